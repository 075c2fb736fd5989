# make demo: the thermometer, from nothing to a picture      make test: everything that must hold
# make check: format and lints only                          make test-all: the same with the long forms of short tests
# make dist: a wheel, a tarball and a Debian package in target/packages
# make bench [ONLY=id]: the numbers                          make soak [MINUTES=60] [ONLY=storm]: storms, lies, disk faults, repairs
.PHONY: demo test test-all check dist bench soak setup
# Rust of rustup before Debian's, which is older; the test runner is in the virtual environment.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

demo:
	@scripts/setup.sh demo
	cargo build --release --locked -p millrace-cli
	.venv/bin/python examples/thermometer/run.py

test: setup
	@.venv/bin/python scripts/test.py

test-all: setup
	@.venv/bin/python scripts/test.py --long

check: setup
	@.venv/bin/python scripts/test.py format lints

dist:
	@scripts/setup.sh dist
	.venv/bin/python scripts/dist.py

bench:
	@scripts/setup.sh bench
	scripts/wheel.sh dist
	cargo run --profile dist --locked -p millrace-bench -- $(if $(ONLY),--only $(ONLY))

soak: setup
	@MINUTES=$(or $(MINUTES),60) ONLY=$(ONLY) python3 scripts/soak.py

setup:
	@scripts/setup.sh test
