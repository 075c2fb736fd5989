#!/usr/bin/env bash
# Runs the Rust tests where everything is slow: on one processor, beside four processes that want all of it. A test that fails
# here and nowhere else depends on the pace of the machine. Everything has to be built; arguments go to nextest:
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
