#!/usr/bin/env bash
# Runs a command in a clone of HEAD, in a minimal Debian that has only the packages that README requires:
#   scripts/clean-root.sh [--fresh] [--user] [--copy DIR] [--roots DIR] bookworm|trixie COMMAND...
#   scripts/clean-root.sh --fresh trixie make demo
# --copy also copies a directory of this tree that is not in git, such as target/packages.
# Needs root, debootstrap, and a network. The first run for a release downloads the system and keeps it as DIR/RELEASE.tar;
# later runs use the same root, with everything that was installed and built there, unless --fresh unpacks it again.
# Mounts and processes belong to namespaces of this run, so both are gone when it ends, also when it is killed.
set -euo pipefail
cd "$(dirname "$0")/.."

MIRROR=http://deb.debian.org/debian
SECURITY=http://deb.debian.org/debian-security
ROOTS=/var/tmp/millrace-roots
# Where the tree stands in the root, and whose it is.
USER_NAME=root TREE=/root/millrace
fresh= copied=

usage() { sed -n '2,/^set /{s/^# \?//;/^set /d;p}' "$0" >&2; exit 2; }
refuse() { printf 'clean-root: %s\n' "$*" >&2; exit 1; }

make_tarball() {
    [[ -f $ROOTS/$RELEASE.tar ]] && return
    command -v debootstrap >/dev/null || refuse "debootstrap is missing; install it: apt-get install -y debootstrap"
    printf 'clean-root: downloading a minimal %s\n' "$RELEASE"
    rm -rf "$ROOTS/$RELEASE.new"
    debootstrap --variant=minbase "$RELEASE" "$ROOTS/$RELEASE.new" "$MIRROR" >"$ROOTS/$RELEASE.log" \
        || refuse "debootstrap failed; see $ROOTS/$RELEASE.log"
    printf 'deb %s %s main\n' "$MIRROR" "$RELEASE" "$MIRROR" "$RELEASE-updates" "$SECURITY" "$RELEASE-security" \
        >"$ROOTS/$RELEASE.new/etc/apt/sources.list"
    rm -rf "$ROOTS/$RELEASE.new"/var/cache/apt/archives/*.deb "$ROOTS/$RELEASE.new"/var/lib/apt/lists/*
    tar -C "$ROOTS/$RELEASE.new" --numeric-owner -cf "$ROOTS/$RELEASE.tar.new" .
    rm -rf "$ROOTS/$RELEASE.new"
    mv "$ROOTS/$RELEASE.tar.new" "$ROOTS/$RELEASE.tar"
}

make_root() {
    [[ -n $fresh ]] && rm -rf --one-file-system "$ROOT"
    [[ -d $ROOT ]] && return
    rm -rf "$ROOT.new"
    mkdir "$ROOT.new"
    tar -C "$ROOT.new" --numeric-owner -xf "$ROOTS/$RELEASE.tar"
    # A network that inspects TLS has certificate authorities of its own; this machine passes on those it trusts.
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        mkdir -p "$ROOT.new/usr/local/share/ca-certificates"
        cp /usr/local/share/ca-certificates/*.crt "$ROOT.new/usr/local/share/ca-certificates/"
        printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$ROOT.new/etc/pip.conf"
    fi
    chroot "$ROOT.new" /usr/sbin/useradd --create-home --shell /bin/bash someone
    mv "$ROOT.new" "$ROOT"
}

# The clone of an earlier run is brought to HEAD and keeps what was built in it.
clone_head() {
    local clone=$ROOT$TREE git=(git -c safe.directory='*')
    if [[ -d $clone/.git ]]; then
        "${git[@]}" -C "$clone" fetch --quiet --force "$PWD" HEAD
        "${git[@]}" -C "$clone" reset --quiet --hard FETCH_HEAD
    else
        git clone --quiet --no-hardlinks --no-local . "$clone"
    fi
    if [[ -n $copied ]]; then
        mkdir -p "$clone/$copied"
        cp -a "$copied/." "$clone/$copied/"
    fi
    chroot "$ROOT" chown -R "$USER_NAME:" "$TREE"
}

# Runs as the first process of namespaces of its own. The root becomes `/` of its mounts: in a mere chroot no user namespace and no
# network namespace could be made.
inside() {
    mount --bind "$ROOT" "$ROOT"
    mount -t proc proc "$ROOT/proc"
    mount --rbind /sys "$ROOT/sys"
    mount --rbind /dev "$ROOT/dev"
    mount -t tmpfs -o mode=755 run "$ROOT/run"
    touch "$ROOT/etc/resolv.conf"
    mount --bind "$(realpath /etc/resolv.conf)" "$ROOT/etc/resolv.conf"
    cd "$ROOT"
    pivot_root . mnt
    cd /
    umount --lazy /mnt
    local clean=(env -i "TERM=${TERM:-dumb}" LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin) name
    for name in http_proxy https_proxy no_proxy; do [[ -n ${!name:-} ]] && clean+=("$name=${!name}"); done
    if [[ ! -x /usr/bin/make || ! -x /usr/bin/git ]]; then
        printf 'clean-root: %s\n' "$PREREQUISITES"
        "${clean[@]}" DEBIAN_FRONTEND=noninteractive sh -c "$PREREQUISITES" >/var/log/prerequisites 2>&1 \
            || { tail -n 15 /var/log/prerequisites >&2; refuse "the prerequisites could not be installed"; }
    fi
    local began=$SECONDS code=0
    "${clean[@]}" HOME="${TREE%/*}" USER="$USER_NAME" setpriv --reuid "$USER_NAME" --regid "$USER_NAME" --init-groups \
        sh -c 'cd "$0" && exec "$@"' "$TREE" "$@" || code=$?
    printf 'clean-root: ended with %d after %d s\n' "$code" "$((SECONDS - began))"
    exit "$code"
}

while [[ ${1:-} == --* ]]; do
    case $1 in
        --fresh) fresh=1 ;;
        --user) USER_NAME=someone TREE=/home/someone/millrace ;;
        --copy) copied=${2:?--copy needs a directory}; shift ;;
        --roots) ROOTS=${2:?--roots needs a directory}; shift ;;
        *) usage ;;
    esac
    shift
done
RELEASE=${1:-}
[[ $RELEASE == bookworm || $RELEASE == trixie ]] && (( $# > 1 )) || usage
shift
(( EUID == 0 )) || refuse "this script has to run as root; use sudo"
mkdir -p "$ROOTS"
ROOTS=$(realpath "$ROOTS") ROOT=$(realpath "$ROOTS")/$RELEASE
exec 9>"$ROOTS/$RELEASE.lock"
flock --nonblock 9 || refuse "another run is using $ROOT; wait until it has ended"
make_tarball
make_root
clone_head
# What README asks for is tried as well.
PREREQUISITES=$(grep -m 1 '^apt-get .*\bmake\b' README.md) || refuse "README.md has no line 'apt-get … make' with the prerequisites"
printf 'clean-root: %s at %s on %s, as %s\n' "${*@Q}" "$(git rev-parse --short HEAD)" "$RELEASE" "$USER_NAME"
export ROOT USER_NAME TREE PREREQUISITES
export -f inside refuse
exec unshare --mount --pid --fork --kill-child --propagation private bash -euo pipefail -c 'inside "$@"' inside "$@"
