#!/usr/bin/env bash
# Installs what this machine lacks: `setup.sh demo`, `setup.sh web`, `setup.sh test` (if none is named), `setup.sh dist`, `setup.sh bench`.
# When nothing is missing it ends within a second. It never removes a package. Where only root can install something, and this
# user may not become root, it prints the one command that root has to run.
set -euo pipefail
cd "$(dirname "$0")/.."

GOAL=${1:-test}
RUST=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
PYTHON_MIN=3.11
NATS=v2.12.2
LITHOPS=3.8.0
LITTLEFS=v2.11.0
FLASHDB=2.2.0
MOTO=5.2.5
# The installer of Rust, by the version and checksums that https://static.rust-lang.org/rustup/archive publishes.
RUSTUP=1.28.2
RUSTUP_SHA256_x86_64=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c
RUSTUP_SHA256_aarch64=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c

# The linker and C compiler that cargo calls, and a Python that can make virtual environments.
PACKAGES=(ca-certificates gcc libc6-dev python3-venv)
TOOLS=(cc python3)
REQUIREMENTS=(web/requirements.txt examples/thermometer/requirements.txt)
case $GOAL in
    demo) ;;
    web) REQUIREMENTS=(web/requirements.txt) ;;
    dist)
        # The static program is built with musl; `file` and `objdump` look at what was built.
        PACKAGES+=(binutils file git musl-tools)
        # Of another kind of machine (`scripts/dist.py --machine aarch64`): a compiler for the C code of ring, and an emulator.
        [[ ${MACHINE:-} != aarch64 ]] || PACKAGES+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
        TOOLS+=(file git musl-gcc objdump)
        REQUIREMENTS=(web/requirements.txt sdk/python/requirements-dev.txt)
        ;;
    test | bench)
        # Functions in Wasm, sanitizers and fuzzers of the C clients; namespaces, filters and faults for the tests of networks and disks;
        # a JDK and Maven for the client in Java; Go for the check of histories.
        PACKAGES+=(clang lld wasi-libc libclang-rt-dev libclang-rt-dev-wasm32 curl git iproute2 nftables procps strace)
        # NATS, which keeps topics; clocks that jump.
        PACKAGES+=(default-jdk-headless maven nats-server faketime)
        # Keys and downloads of releases, and an older way to download.
        PACKAGES+=(gnupg openssl wget)
        # Databases to which tables are written.
        PACKAGES+=(postgresql redis-server etcd-server)
        # Firmware of devices, and a board that runs it.
        PACKAGES+=(gcc-arm-none-eabi qemu-system-arm)
        # Clients of MQTT.
        PACKAGES+=(mosquitto-clients)
        # A browser that shows the dashboard.
        PACKAGES+=(chromium)
        # Go may be installed from elsewhere, but functions in sandboxes see it only below /usr.
        [[ $(readlink -f "$(command -v go)") == /usr/* ]] || PACKAGES+=(golang-go)
        TOOLS+=(clang wasm-ld curl git go javac mvn nats-server arm-none-eabi-gcc qemu-system-arm)
        REQUIREMENTS=(web/requirements.txt requirements-dev.txt sdk/python/requirements-dev.txt examples/*/requirements.txt)
        ;;
    *) printf 'setup: there is no goal %s; the goals are demo, web, test, dist and bench\n' "$GOAL" >&2; exit 2 ;;
esac
# CPython's own tests, which Debian has in a package for each version; another Python brings them along.
if [[ $GOAL == test && $(readlink -f "$(command -v python3 || echo /usr/bin/python3)") == /usr/bin/* ]]; then
    VERSION=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null \
        || LC_ALL=C apt-cache policy python3 2>/dev/null | sed -n 's/ *Candidate: \([0-9]*\.[0-9]*\).*/\1/p')
    [[ -z $VERSION ]] || PACKAGES+=("libpython$VERSION-testsuite")
fi
# What the figures stand beside, and what makes the load.
[[ $GOAL == bench ]] && PACKAGES+=(nginx-light rabbitmq-server zookeeper wrk bubblewrap mosquitto)

VENV_STAMP=.venv/.requirements
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

say() { printf 'setup: %s\n' "$*"; }
ask() { printf '\nsetup: %s\n' "$*" >&2; exit 1; }
ask_root() { ask "$1"$'\n\n'"    apt-get update && apt-get install -y --no-install-recommends $2"$'\n\n'"and then run this command again."; }
has() { command -v "$1" >/dev/null; }

# Runs a command and shows the newest line it prints: in place on a terminal, else every ten seconds. If it fails, the last
# lines are printed.
watched() {
    local line shown=$SECONDS code=0
    "$@" 2>&1 </dev/null | while IFS= read -r line; do
        printf '%s\n' "$line" >>"$WORK/log"
        if [[ -t 1 ]]; then
            printf '\r\033[K  %.76s' "$line"
        elif (( SECONDS - shown >= 10 )); then
            shown=$SECONDS
            printf '  %s\n' "$line"
        fi
    done || code=$?
    [[ -t 1 ]] && printf '\r\033[K'
    (( code == 0 )) || tail -n 15 "$WORK/log" >&2
    : >"$WORK/log"
    return "$code"
}

# Sets AS_ROOT to what runs a command as root. With a terminal sudo may ask for the password; without one only a sudo that does
# not ask is of use.
can_be_root() {
    AS_ROOT=()
    (( EUID == 0 )) && return
    AS_ROOT=(sudo)
    has sudo && { [[ -t 0 && -t 1 ]] || sudo -n true 2>/dev/null; }
}

# Which of these packages are installed; dpkg-query fails if it does not know one.
installed() { { dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true; } | sed -n 's/ installed$//p'; }

# The pinned toolchain of rustup; without rustup, a Rust that is new enough.
rust_is_ready() {
    if has rustup; then
        local components
        components=$(rustup component list --toolchain "$RUST" --installed 2>/dev/null) || return 1
        [[ $components == *clippy* && $components == *rustfmt* ]]
    else
        local version
        version=$(cargo --version 2>/dev/null) || return 1
        version=${version#cargo } version=${version%% *}
        printf '%s\n' "$RUST" "$version" | sort -VC || return 1
        [[ $GOAL == demo ]] || { cargo clippy --version && cargo fmt --version; } >/dev/null 2>&1
    fi
}

# Debian's rustup package. It replaces Debian's Rust packages, so it is no choice where these are installed.
rustup_is_packaged() {
    local policy
    policy=$(LC_ALL=C apt-cache policy rustup 2>/dev/null)
    [[ $policy == *"Candidate: "[0-9]* && -z $(installed rustc cargo) ]]
}

install_packages() {
    has dpkg-query || { check_tools; return; }
    local missing=() package rust= root= present
    present=" $(installed "${PACKAGES[@]}" | tr '\n' ' ')"
    for package in "${PACKAGES[@]}"; do [[ $present == *" $package "* ]] || missing+=("$package"); done
    has rustup || rust_is_ready || rust=missing
    [[ -n ${missing[*]} || -n $rust ]] || return 0
    if can_be_root; then
        root=1
        say "refreshing the package lists"
        watched "${AS_ROOT[@]}" apt-get update -q -o DPkg::Lock::Timeout=120 \
            || say "the package lists could not be refreshed; using the existing ones"
    fi
    # Whoever has curl can run the installer of Rust without root.
    if [[ -n $rust ]]; then
        if rustup_is_packaged; then
            [[ -z $root && -z ${missing[*]} ]] && has curl || missing+=(rustup)
        elif ! has curl && [[ " ${missing[*]} " != *" curl "* ]]; then
            missing+=(curl)
        fi
    fi
    [[ -n ${missing[*]} ]] || return 0
    [[ -n $root ]] || ask_root "packages are missing, and this user may not install them. Please run as root:" "${missing[*]}"
    say "installing ${#missing[@]} packages and what they depend on: ${missing[*]}"
    # RUNLEVEL: of a server package only the program is wanted, not a running service.
    watched "${AS_ROOT[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -q --no-install-recommends --no-remove -o DPkg::Lock::Timeout=120 "${missing[@]}" \
        || ask_root "the packages could not be installed. Please run as root:" "${missing[*]}"
}

# On a system without apt only presence can be checked.
check_tools() {
    local tool
    for tool in "${TOOLS[@]}"; do has "$tool" || ask "please install '$tool' (on Debian: apt-get install ${PACKAGES[*]})"; done
}

install_rust() {
    rust_is_ready && return
    if ! has rustup; then
        install_rustup
        return
    fi
    say "installing Rust $RUST"
    rustup toolchain install "$RUST" --profile minimal --component rustfmt --component clippy --no-self-update \
        || ask "Rust $RUST could not be installed: see above"
    # Outside of this tree a rustup without a default has no cargo.
    rustup default >/dev/null 2>&1 || rustup default "$RUST"
}

install_rustup() {
    local machine sum root=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}
    machine=$(uname -m) sum=RUSTUP_SHA256_$machine
    [[ -n ${!sum:-} ]] || ask "please install Rust $RUST on this machine ($machine) as described at https://rustup.rs, and run this command again"
    has curl || ask "please install curl, or Rust $RUST as described at https://rustup.rs, and run this command again"
    say "installing Rust $RUST with rustup from $root, into ~/.cargo and ~/.rustup ('rustup self uninstall' removes it)"
    curl --proto '=https' --tlsv1.2 -fsSL --retry 3 -o "$WORK/rustup-init" "$root/archive/$RUSTUP/$machine-unknown-linux-gnu/rustup-init" \
        || ask "rustup could not be downloaded; please check the network and run this command again"
    sha256sum --check --status <<<"${!sum}  $WORK/rustup-init" || ask "the downloaded rustup-init has the wrong checksum; it was not run"
    chmod +x "$WORK/rustup-init"
    # An old Rust elsewhere on the PATH stays; the Makefile looks into ~/.cargo/bin first.
    RUSTUP_INIT_SKIP_PATH_CHECK=yes "$WORK/rustup-init" -y --default-toolchain "$RUST" --profile minimal \
        --component rustfmt --component clippy >/dev/null \
        || ask "Rust $RUST could not be installed: see above"
    say "Rust is on the PATH of new shells; for this one: . ${CARGO_HOME:-~/.cargo}/env"
}

install_python_packages() {
    local wanted arguments=() file
    wanted=$(sha256sum "${REQUIREMENTS[@]}")
    # Each file of this goal was installed as it is now, and the environment still has its Python.
    if [[ -f $VENV_STAMP && -z $(grep -vxFf "$VENV_STAMP" <<<"$wanted") ]] && .venv/bin/python -c 'import pip' 2>/dev/null; then return; fi
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python3 -c "import sys; sys.exit(sys.version_info < (${PYTHON_MIN/./, }))" \
            || ask "$(python3 --version) is too old; Python $PYTHON_MIN or newer is needed"
        python3 -c 'import ensurepip, venv' 2>/dev/null || ask_root "this python3 has no ensurepip. Please run as root:" python3-venv
        python3 -m venv --clear .venv
    fi
    for file in "${REQUIREMENTS[@]}"; do arguments+=(-r "$file"); done
    say "installing Python packages into .venv"
    # Python compiles what is imported when it is imported first; most of it never is.
    watched .venv/bin/python -m pip install --disable-pip-version-check --no-compile --progress-bar off "${arguments[@]}" \
        || ask "the Python packages could not be installed; please check the network and run this command again"
    printf '%s\n' "$wanted" >"$VENV_STAMP"
}

# The check of histories needs a library, which `go build` finds once it was downloaded.
install_go_modules() {
    (cd tests/porcupine && GOFLAGS=-mod=readonly watched go mod download) \
        || ask "the Go modules of tests/porcupine could not be downloaded; please check the network and run this command again"
}

# Debian's is too old to keep each message safe before it answers, so NATS comes from its sources; without Go the rows do
# without it, and say so.
install_nats() {
    [[ -x target/peers/nats-server ]] && return
    has go || { say "Go is not installed: NATS will not be measured"; return; }
    say "building nats-server $NATS"
    mkdir -p target/peers
    GOBIN="$PWD/target/peers" go install "github.com/nats-io/nats-server/v2@$NATS" \
        || say "nats-server could not be built: NATS will not be measured"
}

# Lithops and what it depends on have an environment of their own; without them the rows do without it, and say so.
install_lithops() {
    [[ -x target/peers/lithops/bin/python ]] && return
    say "installing lithops $LITHOPS into target/peers/lithops"
    mkdir -p target/peers
    { .venv/bin/python -m venv --clear target/peers/lithops \
        && watched target/peers/lithops/bin/python -m pip install --disable-pip-version-check --progress-bar off "lithops==$LITHOPS"; } \
        || { rm -rf target/peers/lithops; say "lithops could not be installed: it will not be measured"; }
}

# What a device's journal is compared with on a board; without them the row does without, and says so.
install_flash_peers() {
    local folder=target/peers/flash clone=target/peers/clone
    [[ -e $folder/src/fdb_tsdb.c && -e $folder/lfs.c ]] && return
    say "fetching littlefs $LITTLEFS and FlashDB $FLASHDB into $folder"
    rm -rf "$folder" "$clone"
    { git clone --quiet --depth 1 --branch "$LITTLEFS" https://github.com/littlefs-project/littlefs "$clone/littlefs" \
        && git clone --quiet --depth 1 --branch "$FLASHDB" https://github.com/armink/FlashDB "$clone/flashdb" \
        && mkdir -p "$folder" && cp "$clone"/littlefs/lfs*.[ch] "$folder" && cp -r "$clone"/flashdb/{src,inc,port} "$folder"; } \
        || { rm -rf "$folder"; say "they could not be fetched: they will not be measured"; }
    rm -rf "$clone"
}

# The DynamoDB API without DynamoDB, for the tests of this engine.
install_moto() {
    [[ -x target/peers/moto/bin/moto_server ]] && return
    say "installing moto $MOTO into target/peers/moto"
    mkdir -p target/peers
    { .venv/bin/python -m venv --clear target/peers/moto \
        && watched target/peers/moto/bin/python -m pip install --disable-pip-version-check --progress-bar off "moto[server]==$MOTO"; } \
        || { rm -rf target/peers/moto; ask "moto could not be installed; please check the network and run this command again"; }
}

# The static program is of another target than this machine's own.
install_musl() {
    local target
    has rustup || return 0
    for target in "$(uname -m)" ${MACHINE:-}; do
        target+=-unknown-linux-musl
        rustup target list --toolchain "$RUST" --installed | grep -qx "$target" || rustup target add --toolchain "$RUST" "$target"
    done
}

install_packages
install_rust
[[ $GOAL == dist ]] && install_musl
install_python_packages
[[ $GOAL == test || $GOAL == bench ]] && install_go_modules
[[ $GOAL == test ]] && install_moto
[[ $GOAL == bench ]] && install_nats
[[ $GOAL == bench ]] && install_flash_peers
[[ $GOAL == bench ]] && install_lithops
say "ready"
