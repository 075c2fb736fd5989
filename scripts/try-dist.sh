#!/usr/bin/env bash
# Installs each package of target/packages in a minimal Debian, and runs the first commands of the README's tour there:
#   scripts/try-dist.sh [--roots DIR] bookworm|trixie [wheel|tarball|deb|apt|script]...
# apt and script (install.sh) need packages that scripts/release/sign.py has signed with --gpg; without kinds, they are tried if there are.
# Needs what scripts/clean-root.sh needs.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { printf 'try-dist: %s\n' "$*" >&2; exit 1; }

# Fails unless all files of a package are in the directory `share` and the directory of its licences.
complete() {
    local share=$1 doc=$1/doc/millrace file
    shift
    for file in "$share/man/man1/millrace-log-get.1.gz" "$share/bash-completion/completions/millrace" "$doc/README.md" "$doc/CHANGELOG.md" \
        "$doc/docs/guide/sensor.md" "$doc/examples/millrace.service" "$@"; do
        [[ -s $file ]] || refuse "$file is missing"
    done
    grep -q '^Delegate=' "$doc/examples/millrace.service" || refuse "the systemd unit has no Delegate="
}

# In the root: installs one package and types the tour.
inside() {
    local packages=$PWD/target/packages place
    place=$(mktemp -d)
    case $1 in
        wheel)
            apt-get install -y -q --no-install-recommends python3-venv >/dev/null 2>&1
            python3 -m venv "$place/venv"
            "$place/venv/bin/pip" install --quiet --disable-pip-version-check --no-index "$packages"/millrace-*.whl
            export PATH=$place/venv/bin:$PATH
            complete "$place/venv/share" "$(echo "$place"/venv/lib/python3*/site-packages/millrace-*.dist-info)"/licenses/{LICENSE,THIRD-PARTY-NOTICES.txt}
            python3 - <<'PYTHON'
import millrace, tempfile
namespace = millrace.create(tempfile.mkdtemp() + "/farm")
namespace.create_log("a", history=10)
assert namespace.get("a", namespace.append("a", "x")).text() == "x"
PYTHON
            ;;
        tarball)
            tar -C "$place" -xzf "$packages"/millrace-*-linux-*.tar.gz
            PATH=$(echo "$place"/millrace-*/bin):$PATH
            export PATH
            complete "$(echo "$place"/millrace-*/share)" "$(echo "$place"/millrace-*)"/{LICENSE,THIRD-PARTY-NOTICES.txt}
            ;;
        deb)
            apt-get install -y -q --no-install-recommends "$packages"/millrace_*.deb gcc libc6-dev >/dev/null 2>&1
            complete /usr/share /usr/share/doc/millrace/{copyright,changelog.gz,third-party-notices.txt.gz}
            # The client in C compiles from what the package has.
            printf '#include "millrace_client.h"\nint main(void) { return mrc_remedy("MR2101") == NULL; }\n' >"$place/client.c"
            (cd /usr/share/millrace/c && cc -o "$place/client" "$place/client.c" ./*.c wire/*.c -I .)
            "$place/client"
            ;;
        apt)
            sed "s|ADDRESS|file:$packages|; s|/etc/apt/keyrings|$packages|" >/etc/apt/sources.list.d/millrace.sources <<'SOURCES'
Types: deb
URIs: ADDRESS/apt
Suites: stable
Components: main
Signed-By: /etc/apt/keyrings/millrace.gpg
SOURCES
            chmod a+rx "$packages" "${packages%/*}" "$PWD" "${PWD%/*}"
            apt-get update -q >"$place/told" 2>&1 && apt-get install -y -q --no-install-recommends millrace >>"$place/told" 2>&1 \
                || { tail -n 20 "$place/told" >&2; refuse "apt could not install from the repository"; }
            rm /etc/apt/sources.list.d/millrace.sources
            complete /usr/share /usr/share/doc/millrace/{copyright,changelog.gz,third-party-notices.txt.gz}
            ;;
        script)
            # What a system has that downloads with https.
            apt-get install -y -q --no-install-recommends ca-certificates >/dev/null 2>&1
            MILLRACE_FROM=$packages MILLRACE_PREFIX=$place/local sh "$packages/install.sh"
            export PATH=$place/local/bin:$PATH
            complete "$place/local/share" "$place"/local/share/doc/millrace/{LICENSE,THIRD-PARTY-NOTICES.txt}
            ;;
    esac
    millrace version
    millrace log append --help >/dev/null 2>&1
    # The second and third block of the tour; the third has functions, of which one is in Python.
    apt-get install -y -q --no-install-recommends python3 >/dev/null 2>&1
    mkdir "$place/tour"
    {
        echo "set -me; trap 'kill -9 \$(jobs -p) 2>/dev/null || true' EXIT; cd '$place/tour'"
        awk '/^## A tour$/ { tour = 1 } tour && /^```$/ { inside = 0 } inside && n > 1 && n < 4 { print } tour && /^```sh$/ { inside = 1; n++ }' README.md
        echo 'test "$(millrace log get double 1)" = 47; test "$(millrace log get mean 1)" = 22.33; millrace namespace check'
    } >"$place/typed"
    grep -q 'millrace run wait --idle' "$place/typed" || refuse "the tour was not found in README.md"
    # Any free port: the network is that of the machine.
    MILLRACE_LISTEN=127.0.0.1:0 bash "$place/typed" >"$place/told" 2>&1 || { tail -n 20 "$place/told" >&2; refuse "the tour failed with the $1"; }
    [[ $1 == deb || $1 == apt ]] && apt-get remove -y -q millrace >/dev/null 2>&1
    printf 'try-dist: %s works on %s\n' "$1" "$(. /etc/os-release; echo "$PRETTY_NAME")"
}

if [[ ${1:-} == --inside ]]; then
    shift
    apt-get update -q >/dev/null 2>&1
    for kind in "$@"; do inside "$kind"; done
    exit
fi

ROOTS=()
if [[ ${1:-} == --roots ]]; then
    ROOTS=(--roots "${2:?--roots needs a directory}")
    shift 2
fi
RELEASE=${1:-}
[[ $RELEASE == bookworm || $RELEASE == trixie ]] || { sed -n '2,/^set /{s/^# \?//;/^set /d;p}' "$0" >&2; exit 2; }
shift
if (( $# == 0 )); then
    set -- wheel tarball deb
    [[ ! -s target/packages/SHA256SUMS.sig ]] || set -- "$@" apt script
fi
(cd target/packages && sha256sum --check --quiet SHA256SUMS) || refuse "run scripts/dist.py first"
exec scripts/clean-root.sh --fresh --copy target/packages "${ROOTS[@]}" "$RELEASE" scripts/try-dist.sh --inside "$@"
