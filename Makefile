# make demo: the thermometer, from nothing to a picture      make test: everything that must hold
# make check: format and lints only                          make bench [ONLY=id]: the numbers
# make soak [MINUTES=60] [ONLY=storm]: storms, lies and disk faults for an hour
.PHONY: demo test check bench soak setup
export PATH := $(PATH):$(HOME)/.cargo/bin

demo: setup
	cargo build --release --locked -p millrace-cli
	.venv/bin/python examples/thermometer/run.py

test: setup check
	cargo build --locked -p millrace-cli
	scripts/wheel.sh dev
	@# Whatever fails, the rest is run as well: one run tells everything.
	failed=0; \
	cargo test --locked --workspace --no-fail-fast || failed=1; \
	.venv/bin/python -m pytest -q examples || failed=1; \
	.venv/bin/python -m pytest -q tests/http || failed=1; \
	.venv/bin/pytest -q -c sdk/python/pyproject.toml sdk/python/tests || failed=1; \
	exit $$failed

check:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

bench:
	@scripts/setup.sh bench
	scripts/wheel.sh release
	cargo run --release --locked -p millrace-bench -- $(if $(ONLY),--only $(ONLY))

soak: setup
	@MINUTES=$(or $(MINUTES),60) ONLY=$(ONLY) python3 scripts/soak.py

setup:
	@scripts/setup.sh
