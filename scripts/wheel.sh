#!/usr/bin/env bash
# Builds the Python package and installs it into .venv, if anything that it is made of has changed.
# The profile `dev` shares what `make test` compiles anyway; `release` is what `pip install ./sdk/python` builds.
set -euo pipefail
cd "$(dirname "$0")/.."

PROFILE=${1:-dev}
STAMP=.venv/.wheel
SOURCES=(Cargo.toml Cargo.lock spec/errors.toml crates sdk/python)

# Every file's name and content; tests and benchmarks of the sources change nothing in the wheel.
made_of() {
    git ls-files --cached --others --exclude-standard -- "${SOURCES[@]}" ':!*/tests/*' ':!crates/cli' ':!crates/bench' \
        | LC_ALL=C sort -u | while IFS= read -r file; do [[ -f $file ]] && printf '%s\0' "$file"; done \
        | xargs -0 sha256sum
    printf '%s %s\n' "$PROFILE" "$(.venv/bin/python -V)"
}

wanted=$(made_of | sha256sum)
if [[ -f $STAMP && $(<"$STAMP") == "$wanted" ]] && .venv/bin/python -c 'import millrace._native' 2>/dev/null; then
    exit 0
fi
printf 'wheel: building the Python package (%s)\n' "$PROFILE"
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
rm -rf target/wheels
.venv/bin/maturin build --quiet --locked --profile "$PROFILE" --manifest-path sdk/python/Cargo.toml \
    --interpreter .venv/bin/python --out target/wheels
.venv/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheels/millrace-*.whl
printf '%s\n' "$wanted" >"$STAMP"
