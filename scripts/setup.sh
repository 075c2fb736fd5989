#!/usr/bin/env bash
# Installs what building, testing and the demo need and this machine lacks. Running it again costs a blink.
# What it may not install by itself it asks for in one line.
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=(build-essential clang lld wasi-libc libclang-rt-dev libclang-rt-dev-wasm32 python3-venv iproute2 nftables strace)
STAMP=.venv/.installed
# Only `setup.sh bench`: what our figures stand beside, and what makes the load.
PEERS=(redis-server etcd-server nginx-light wrk)
NATS_VERSION=v2.12.2
REQUIREMENTS=(requirements-dev.txt sdk/python/requirements-dev.txt examples/*/requirements.txt)

say() { printf 'setup: %s\n' "$*"; }
ask() { printf '\nsetup: %s\n' "$*" >&2; exit 1; }

install_packages() {
    command -v dpkg-query >/dev/null || { check_tools; return; }
    local missing=() package
    for package in "${PACKAGES[@]}"; do
        [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == *" installed" ]] || missing+=("$package")
    done
    (( ${#missing[@]} )) || return 0
    local as_root=()
    if (( EUID != 0 )); then
        # With a terminal sudo may ask for the password; without one only a sudo that does not ask is of use.
        if command -v sudo >/dev/null && { [[ -t 0 && -t 1 ]] || sudo -n true 2>/dev/null; }; then
            as_root=(sudo)
        else
            ask "please run as root: apt-get install -y ${missing[*]}"
        fi
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq || say "the package lists could not be refreshed; going on with those there are"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL="${RUNLEVEL:-}" apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        || ask "please install these packages by hand: ${missing[*]}"
}

# On a system without apt only presence can be checked.
check_tools() {
    local tool
    for tool in cc clang wasm-ld python3; do
        command -v "$tool" >/dev/null || ask "please install '$tool' (on Debian: apt-get install ${PACKAGES[*]})"
    done
}

install_rust() {
    export PATH="$PATH:$HOME/.cargo/bin"
    command -v cargo >/dev/null || ask "please install Rust, then run this again:" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --default-toolchain none"
    if command -v rustup >/dev/null; then
        local version
        version=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
        rustup run "$version" cargo clippy --version >/dev/null 2>&1 \
            && rustup run "$version" cargo fmt --version >/dev/null 2>&1 && return
        say "installing Rust $version"
        rustup toolchain install "$version" --profile minimal --component rustfmt --component clippy --no-self-update
    fi
    cargo --version >/dev/null || ask "cargo does not start; please repair the Rust installation"
}

install_python_packages() {
    local wanted
    wanted=$(cat "${REQUIREMENTS[@]}" 2>/dev/null | sha256sum)
    [[ -x .venv/bin/python && -f $STAMP && $(<"$STAMP") == "$wanted" ]] && .venv/bin/python -c 'import sys' && return
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python3 -m ensurepip --version >/dev/null 2>&1 \
            || ask "python3 has no ensurepip; please run as root: apt-get install -y python3-venv"
        say "making a virtual environment in .venv"
        python3 -m venv --clear .venv
    fi
    say "installing Python packages into .venv"
    local arguments=() file
    for file in "${REQUIREMENTS[@]}"; do [[ -f $file ]] && arguments+=(-r "$file"); done
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "${arguments[@]}" \
        || ask "the Python packages could not be installed; please check the network and run this again"
    printf '%s\n' "$wanted" >"$STAMP"
}

# Debian's is too old to keep each message safe before it answers, so NATS comes from its sources; without Go the rows do
# without it, and say so.
install_nats() {
    [[ -x target/peers/nats-server ]] && return
    command -v go >/dev/null || { say "no Go here: the figures do without NATS"; return; }
    say "building nats-server $NATS_VERSION"
    mkdir -p target/peers
    GOBIN="$PWD/target/peers" go install "github.com/nats-io/nats-server/v2@$NATS_VERSION" \
        || say "nats-server could not be built: the figures do without NATS"
}

if [[ ${1:-} == bench ]]; then
    PACKAGES+=("${PEERS[@]}")
    # The peers' services are not wanted, only their programs.
    export RUNLEVEL=1
    install_nats
fi
install_packages
install_rust
install_python_packages
say "ready"
