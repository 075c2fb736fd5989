#!/usr/bin/env bash
# Builds the program of the release before HEAD in target/previous, where tests/packages/test_upgrade.py finds it. If there is no such
# release, it does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

PLACE=target/previous
if ! TAG=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null); then
    echo "previous: there is no release before this commit"
    rm -rf "$PLACE"
    exit 0
fi
[[ -d $PLACE/.git ]] || git clone --quiet --shared --no-checkout . "$PLACE"
git -C "$PLACE" fetch --quiet --force --tags origin
git -C "$PLACE" checkout --quiet --force --detach "$TAG"
echo "previous: building millrace of $TAG"
cd "$PLACE"
exec cargo build --release --locked -p millrace-cli
