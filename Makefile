# make demo      builds the program, and runs the thermometer on a year of weather
# make web       builds the dashboard, which the next build of the program embeds
# make web-dev   builds the dashboard at each change, and serves it with the data of the host at MILLRACE_HOST [127.0.0.1:7070]
# make test      runs all checks and tests
# make test-all  also runs the long forms of tests that make test keeps short
# make check     checks the format and runs the lints only
# make dist      builds a wheel, a tarball, a Debian package, a repository for apt and an image for containers in target/packages;
#                MACHINE=aarch64 builds all but the wheel for that kind of machine
# make bench     measures the figures of docs/benchmarks.md; ONLY=id measures one row
# make soak      runs storms, the liar test, disk faults and repairs for MINUTES=60; ONLY=storm runs one of them
.PHONY: demo web web-dev test test-all check dist bench soak setup
# Rust of rustup before Debian's, which is older; the test runner is in the virtual environment.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

demo:
	@scripts/setup.sh demo
	@scripts/web.sh
	cargo build --release --locked -p millrace-cli
	.venv/bin/python examples/thermometer/run.py
	@printf '\nto see such an application at work, with its dashboard:  target/release/millrace demo\n'

web:
	@scripts/setup.sh web
	@scripts/web.sh

web-dev:
	@scripts/setup.sh web
	@scripts/web.sh dev

test: setup
	@.venv/bin/python scripts/test.py

test-all: setup
	@.venv/bin/python scripts/test.py --long

check: setup
	@.venv/bin/python scripts/test.py format lints

dist:
	@MACHINE=$(MACHINE) scripts/setup.sh dist
	@scripts/web.sh
	.venv/bin/python scripts/dist.py $(if $(MACHINE),--machine $(MACHINE))

bench:
	@scripts/setup.sh bench
	scripts/wheel.sh dist
	cargo run --profile dist --locked -p millrace-bench -- $(if $(ONLY),--only $(ONLY))
	scripts/standing.py

soak: setup
	@MINUTES=$(or $(MINUTES),60) ONLY=$(ONLY) python3 scripts/soak.py

setup:
	@scripts/setup.sh test
