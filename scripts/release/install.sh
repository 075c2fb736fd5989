#!/bin/sh
# Installs the program millrace of a release for one user, without root and without a compiler: `sh install.sh`. Variables:
#   MILLRACE_FROM    where the files of the release are: an https or http address or a directory [default: the release's own address]
#   MILLRACE_PREFIX  gets bin/millrace and its pages below share [default: ~/.local]
#   MILLRACE_KEY     the public key that signed the release, one line of base64 [default: the release's own key]
# Nothing is replaced before the signature of SHA256SUMS and the checksum of the package are verified.
set -eu
# Each command that writes stops at this size in blocks of 512 bytes (of 1 KiB in bash), so a wrong server cannot fill the disk.
FILE_MAX_BLOCKS=1000000
# sign.py writes these two lines when it signs a release.
RELEASE_FROM=''
RELEASE_KEY=''

fail() { printf 'install: %s\n' "$*" >&2; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is missing; install it with the package manager of this system, and run this command again"; }

# fetch NAME: one file of the release, into the working directory.
fetch() {
    case $FROM in
        http://* | https://*)
            if command -v curl >/dev/null 2>&1; then
                curl -fsSL --retry 3 --connect-timeout 30 --speed-limit 1 --speed-time 60 -o "$WORK/$1" "$FROM/$1"
            else
                # GNU's gives up after 15 minutes of silence; the one of BusyBox crashes if it is told a time.
                wget -q -t 3 -O "$WORK/$1" "$FROM/$1"
            fi
            ;;
        *) cp "${FROM#file://}/$1" "$WORK/$1" ;;
    esac || fail "$FROM/$1 could not be downloaded completely; nothing was changed. Run this command again, or set MILLRACE_FROM to a mirror"
}

main() {
    FROM=${MILLRACE_FROM:-$RELEASE_FROM} KEY=${MILLRACE_KEY:-$RELEASE_KEY} PREFIX=${MILLRACE_PREFIX:-${HOME:?}/.local}
    FROM=${FROM%/} BIN=$PREFIX/bin
    [ -n "$FROM" ] || fail "this copy is not part of a release: set MILLRACE_FROM to the address or directory of a release"
    [ -n "$KEY" ] || fail "this copy is not part of a release: set MILLRACE_KEY to the public key that signed the release"
    [ "$(uname -s)" = Linux ] || fail "millrace runs on Linux only; this is $(uname -s)"
    case $(uname -m) in
        x86_64 | amd64) machine=x86_64 ;;
        aarch64 | arm64) machine=aarch64 ;;
        *) fail "there are packages for x86_64 and aarch64, not for $(uname -m); build millrace from source" ;;
    esac
    for tool in openssl sha256sum tar gzip; do need "$tool"; done
    case $FROM in http://* | https://*) command -v curl >/dev/null 2>&1 || command -v wget >/dev/null 2>&1 || need "curl (or wget)" ;; esac
    openssl pkeyutl -help 2>&1 | grep -q -- -rawin || fail "$(openssl version) cannot verify the signature; openssl 3.0 or later can"

    mkdir -p "$BIN" "$PREFIX/share"
    # Beside what is replaced, so that the last step is a rename, and because /tmp may forbid to run programs.
    WORK=$(mktemp -d "$PREFIX/.millrace-install-XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    ulimit -f "$FILE_MAX_BLOCKS" 2>/dev/null || true

    fetch SHA256SUMS
    fetch SHA256SUMS.sig
    printf -- '-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n' "$KEY" >"$WORK/key"
    openssl pkeyutl -verify -pubin -inkey "$WORK/key" -rawin -in "$WORK/SHA256SUMS" -sigfile "$WORK/SHA256SUMS.sig" >/dev/null 2>&1 \
        || fail "the signature of $FROM/SHA256SUMS is wrong: these are not the files of the release. Nothing was changed"
    # The signed list names the version, so files of two releases cannot be mixed.
    line=$(grep -E "^[0-9a-f]{64}  millrace-[0-9][0-9.]*-linux-$machine\.tar\.gz\$" "$WORK/SHA256SUMS") \
        || fail "the release at $FROM has no package for $machine"
    name=${line#*  }
    version=${name#millrace-} version=${version%-linux-*}

    if [ -x "$BIN/millrace" ]; then
        have=$("$BIN/millrace" version 2>/dev/null | sed -n 's/^millrace //p')
        if [ -n "$have" ] && [ "$have" != "$version" ] && [ "$(printf '%s\n' "$have" "$version" | sort -V | tail -n 1)" = "$have" ]; then
            fail "millrace $have in $BIN is newer than $version, and an older version may refuse its namespaces. Nothing was changed." \
                "To install $version nevertheless, first remove $BIN/millrace"
        fi
    fi

    fetch "$name"
    (cd "$WORK" && printf '%s\n' "$line" | sha256sum -c >/dev/null 2>&1) \
        || fail "the checksum of $FROM/$name is not the signed one; nothing was changed. Run this command again, or set MILLRACE_FROM to a mirror"
    tar -xzof "$WORK/$name" -C "$WORK"
    tree=$WORK/millrace-$version-linux-$machine
    [ "$("$tree/bin/millrace" version)" = "millrace $version" ] || fail "the program of $name does not run on this machine; nothing was changed"

    cp -R "$tree/share/." "$PREFIX/share/"
    cp "$tree/LICENSE" "$tree/THIRD-PARTY-NOTICES.txt" "$PREFIX/share/doc/millrace/"
    # A host that is running keeps the program that it was started with.
    mv -f "$tree/bin/millrace" "$BIN/millrace"
    printf 'millrace %s is installed in %s\n' "$version" "$BIN"
    case ":$PATH:" in
        *":$BIN:"*)
            first=$(command -v millrace)
            [ "$first" = "$BIN/millrace" ] || printf 'the command millrace still runs %s, which is earlier in PATH\n' "$first"
            ;;
        *) printf 'this directory is not in PATH:  export PATH="%s:%s"\n' "$BIN" "\$PATH" ;;
    esac
    printf 'a first look:  %s/millrace demo\n' "$BIN"
}

# The last line: of a script that was cut off, nothing runs.
main "$@"
