#!/usr/bin/env bash
# Runs the Rust tests under heavy load: on one processor, which four other processes also use. A test that fails only here depends
# on the speed of the machine. The tests have to be built; arguments are passed to nextest:
#
#   scripts/pace.sh
#   scripts/pace.sh -E 'binary(hosts)' --stress-count 5
set -euo pipefail
cd "$(dirname "$0")/.."

CORE=${CORE:-0}
LOAD=4
load=()
trap 'kill "${load[@]}"' EXIT
for ((n = 0; n < LOAD; n++)); do
    taskset -c "$CORE" sh -c 'while :; do :; done' &
    load+=($!)
done
taskset -c "$CORE" .venv/bin/cargo-nextest nextest run --locked --workspace --all-targets --no-fail-fast "$@"
