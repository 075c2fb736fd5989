#!/bin/sh
# Makes a golden namespace with a given binary: tests/golden/make.sh MILLRACE OUT.tar.gz
# What it holds goes to OUT.json (describe.py), and the test `formats` expects to find just that in it for ever.
set -eu
millrace=$(realpath "$1")
out=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export MILLRACE_LISTEN=none XDG_CONFIG_HOME="$dir/config"
unset MILLRACE_NAMESPACE || true
printf '#!/bin/sh\nprintf "out\\t%%s\\n" "$(cat)" >&"$MILLRACE_APPEND_FD"\n' >copy.sh
printf '#!/bin/sh\nread -r line\nprintf "slow-out\\t%%s\\n" "$line" >&"$MILLRACE_APPEND_FD"\nsleep 2\n' >slow.sh
printf '#!/bin/sh\nexit 1\n' >fail.sh
chmod +x ./*.sh
cat >millrace.toml <<'T'
[namespace]
segment_size = "1MiB"
durability = "disk"
[logs.in]
history = 5
[logs.out]
[logs.plain]
history = 8
[logs.slow-in]
[logs.slow-out]
[logs.bad]
[functions.copy]
runtime = "oneshot"
code = "copy.sh"
command = ["./copy.sh"]
on = ["in"]
[functions.slow]
runtime = "oneshot"
code = "slow.sh"
command = ["./slow.sh"]
on = ["slow-in"]
[functions.fail]
runtime = "oneshot"
code = "fail.sh"
command = ["./fail.sh"]
on = ["bad"]
retries = 0
T
"$millrace" up >/dev/null
# More than a segment of records that their log no longer has, then records 201 to 220, of which 213 to 220 are kept.
large=$(head -c 6000 /dev/zero | tr '\0' x)
for n in $(seq 200); do echo "$large"; done | "$millrace" log append plain --lines --quiet
for n in $(seq 201 220); do echo "plain $n"; done | "$millrace" log append plain --lines --quiet
"$millrace" serve >/dev/null 2>&1 &
host=$!
for n in $(seq 12); do "$millrace" log append in "record $n" >/dev/null; done
for n in 1 2; do "$millrace" log append bad "bad $n" >/dev/null; done
"$millrace" run wait --idle --timeout 60s >/dev/null
# Three runs are pending, one of them begun, when the host is killed.
for n in 1 2 3; do echo "slow $n"; done | "$millrace" log append slow-in --lines --quiet
sleep 0.5
kill -9 $host
wait $host 2>/dev/null || true
rm -f .millrace/segments/spare-* .millrace/socket
tar --sort=name --mtime=@0 --owner=0 --group=0 --sparse -cf - .millrace | gzip -9n >"$out"
mkdir looked && tar -xzf "$out" -C looked
python3 "$here/describe.py" "$millrace" looked >"${out%.tar.gz}.json"
