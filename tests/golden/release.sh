#!/bin/sh
# Makes the namespace that a release leaves for its successors: tests/golden/release.sh MILLRACE OUT.tar.gz
# It has what a namespace of a running application has: pending runs, results, dead letters, keys of appends, a repair that was applied
# and one that was not, a relay and an outbox with records that wait, a topic, keys of capabilities. Its host was killed.
# What it holds goes to OUT.json, and tests/packages/test_upgrade.py expects to find just that for ever.
set -eu
millrace=$(realpath "$1")
out=$(realpath "$2")
here=$(dirname "$(realpath "$0")")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/farm"
cd "$dir/farm"
export MILLRACE_LISTEN=127.0.0.1:0 XDG_CONFIG_HOME="$dir/config"
unset MILLRACE_NAMESPACE || true
printf '#!/bin/sh\nprintf "double\\t%%s\\n" "$(($(cat) * 2))" >&"$MILLRACE_APPEND_FD"\n' >double.sh
printf '#!/bin/sh\nread -r line\nprintf "slow-out\\t%%s\\n" "$line" >&"$MILLRACE_APPEND_FD"\nsleep 2\n' >slow.sh
printf '#!/bin/sh\nread -r line\nprintf "mr://127.0.0.1:9/cloud/in\\t%%s\\n" "$line" >&"$MILLRACE_APPEND_FD"\n' >send.sh
printf '#!/bin/sh\necho no connection; exit 1\n' >bill.sh
chmod +x ./*.sh
cat >millrace.toml <<'T'
[namespace]
segment_size = "1MiB"
durability = "disk"
[logs.raw]
history = 100
[logs.double]
[logs.slow-in]
[logs.slow-out]
[logs.send-in]
[logs.bills]
[logs.kept]
[functions.double]
runtime = "oneshot"
code = "double.sh"
command = ["./double.sh"]
on = ["raw"]
[functions.slow]
runtime = "oneshot"
code = "slow.sh"
command = ["./slow.sh"]
on = ["slow-in"]
[functions.send]
runtime = "oneshot"
code = "send.sh"
command = ["./send.sh"]
on = ["send-in"]
sends = ["mr://127.0.0.1:9/cloud/in"]
[functions.bill]
runtime = "oneshot"
code = "bill.sh"
command = ["./bill.sh"]
on = ["bills"]
retries = 0
T
"$millrace" up >/dev/null
"$millrace" cluster init >/dev/null
"$millrace" cap issue --read raw --expires 30d >/dev/null
"$millrace" serve >"$dir/told" 2>&1 &
host=$!
until grep -q http: "$dir/told"; do sleep 0.1; done
seq 1 10 | "$millrace" log append raw --lines --quiet
"$millrace" log append raw 11 --key eleven >/dev/null
"$millrace" log append bills 1 >/dev/null
for n in 1 2 3; do "$millrace" log append send-in "message $n" >/dev/null; done
"$millrace" run wait --idle --timeout 60s >/dev/null
# The applied repair corrects a record and replays its run; the other is not applied.
printf "seqno,value\n2,100\n" | "$millrace" repair run raw --values - >/dev/null
"$millrace" repair apply 1 >/dev/null
printf "seqno,value\n3,300\n" | "$millrace" repair run raw --values - >/dev/null
seq 1 5 | "$millrace" log append kept --lines --quiet
"$millrace" relay add kept mr://127.0.0.1:9/cloud/kept >/dev/null
name=$(sed -n 's|^  \(mr://.*\)|\1|p' "$dir/told" | head -n 1)
"$millrace" -n "$name" topic create news >/dev/null
for n in 1 2 3; do "$millrace" -n "$name" topic publish news "news $n" >/dev/null; done
for n in 1 2 3; do echo "slow $n"; done | "$millrace" log append slow-in --lines --quiet
until "$millrace" --json run ls --function slow | grep -q '"started"'; do sleep 0.1; done
kill -9 $host
wait $host 2>/dev/null || true
find .millrace -name 'spare-*' -delete
rm -f .millrace/socket
tar --sort=name --mtime=@0 --owner=0 --group=0 --sparse -cf - .millrace | gzip -9n >"$out"
mkdir looked && tar -xzf "$out" -C looked
python3 "$here/describe.py" "$millrace" looked >"${out%.tar.gz}.json"
