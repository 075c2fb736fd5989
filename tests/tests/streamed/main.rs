//! Streamed functions of every runtime, on hosts that are killed: each append is there once, in order, and what a run was
//! told once it is told again.

use millrace_tests::{Host, Place, end, eventually};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// How many records each function gets, and how many it appends for each.
const RECORDS: usize = 40;
const APPENDS: usize = 4;
/// How often the host is killed.
const KILLS: u64 = 10;

/// Appends lines `NAME SEQNO I TOKEN NOW BEFORE`: the same token and time in all lines of a run, and the seqno that the
/// append before was answered.
const PYTHON: &str = "
import time
def line(record, ctx):
    token, now, before = ctx.random(6).hex(), int(ctx.now() * 1e6), 0
    for i in range(4):
        before = ctx.append('all', f'python {record.seqno} {i} {token} {now} {before}')
        time.sleep(0.002)
";

/// The same for WebAssembly and a native process: the log says which, `in/wasm` or `in/process`.
const C: &str = r#"
#include "millrace.h"
static char text[300];
static size_t at;
static volatile int sink;
static void put(const char *word) { while (*word != 0) text[at++] = *word++; }
static void number(uint64_t n) {
    char digits[20];
    int count = 0;
    text[at++] = ' ';
    do digits[count++] = (char)('0' + n % 10); while ((n /= 10) != 0);
    while (count > 0) text[at++] = digits[--count];
}
int handle(const mr_record *record) {
    unsigned char token[6];
    uint64_t now, i;
    int64_t before = 0;
    int j;
    if (mr_random(token, sizeof token) != 0) return 1;
    now = (uint64_t)mr_now_ns();
    for (i = 0; i < 4; i++) {
        at = 0;
        put(record->log + 3);
        number(record->seqno);
        number(i);
        text[at++] = ' ';
        for (j = 0; j < 12; j++) text[at++] = "0123456789abcdef"[token[j / 2] >> (j % 2 ? 0 : 4) & 15];
        number(now);
        number((uint64_t)before);
        before = mr_publish("all", text, at);
        if (before <= 0) return 2;
        for (j = 0; j < 1000000; j++) sink++;
    }
    return 0;
}
"#;

/// A one-shot process is answered nothing; its token is the idempotency key.
const SHELL: &str = "#!/bin/sh
for i in 0 1 2 3; do
    printf 'all\\toneshot %s %s %s 0 0\\n' \"$MILLRACE_SEQNO\" $i \"$MILLRACE_IDEMPOTENCY_KEY\" >&3
    sleep 0.002
done
";

const RUNTIMES: [&str; 4] = ["python", "wasm", "process", "oneshot"];

fn compile(place: &Place, source: &str) {
    place.write("f.c", source);
    for (compiler, output) in
        [(&["clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry"][..], "f.wasm"), (&["cc", "-std=c99"], "f")]
    {
        let mut command = Command::new(compiler[0]);
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c");
        command.args(&compiler[1..]).args(["-O1", "-I"]).arg(include).args(["f.c", "-o", output]);
        command.current_dir(place.path());
        let said = end(command, b"");
        assert_eq!(said.code, 0, "{}", said.stderr);
    }
}

/// A place with a streamed function of each runtime on a log of its own, `in/RUNTIME`.
fn place(python: &str, c: &str, shell: &str, logs: &[&str]) -> Place {
    let place = Place::empty();
    place.write("f.py", python);
    place.write("f.sh", shell);
    compile(&place, c);
    let mut text = String::from("[namespace]\nsegment_size = \"1MiB\"\ndurability = \"memory\"\n");
    for log in logs {
        text += &format!("[logs.{log}]\n");
    }
    for runtime in RUNTIMES {
        let code = match runtime {
            "python" => "code = \"f.py\"\nhandler = \"f:line\"",
            "wasm" => "code = \"f.wasm\"",
            "process" => "code = \"f\"\ncommand = [\"./f\"]",
            _ => "code = \"f.sh\"\ncommand = [\"./f.sh\"]",
        };
        text += &format!(
            "[logs.\"in/{runtime}\"]\n[functions.{runtime}]\nruntime = \"{runtime}\"\n{code}\non = [\"in/{runtime}\"]\n\
             streamed = true\nretries = 100\nbackoff = \"1ms\"\ntimeout = \"100s\"\n"
        );
    }
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place
}

/// Seeded by MILLRACE_SEED, or by the clock; prints the seed.
fn seeded() -> impl FnMut(u64) -> u64 {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let mut state = std::env::var("MILLRACE_SEED").map_or_else(|_| clock(), |text| text.parse().expect("a number"));
    println!("MILLRACE_SEED={state}");
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn appends_of_streamed_functions_occur_once_and_in_order_however_often_their_host_is_killed() {
    let place = place(PYTHON, C, SHELL, &["all"]);
    let lines: String = (1..=RECORDS).map(|n| format!("record {n}\n")).collect();
    for runtime in RUNTIMES {
        place.feed(["log", "append", &format!("in/{runtime}"), "--lines"], lines.as_bytes()).ok();
    }
    let namespace = millrace_node::Namespace::open(&place.namespace()).unwrap();
    let appended = || namespace.latest("all").unwrap();
    let all = (RECORDS * APPENDS * RUNTIMES.len()) as u64;
    let mut random = seeded();
    for kill in 1..=KILLS {
        let host = place.serve();
        // Somewhere in what is left for this kill, as far as the last runs.
        let until = (appended() + 1 + random(2 * all / KILLS)).min(all - (KILLS - kill));
        eventually("the functions go on", || appended() >= until);
        drop(host);
    }
    let host = place.serve();
    place.idle();
    drop(host);

    let records = place.records("all");
    assert_eq!(records.len() as u64, all);
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    let mut tokens = BTreeSet::new();
    let mut last: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for (text, place) in records.iter().zip(1u64..) {
        let words: Vec<&str> = text.split(' ').collect();
        let [runtime, seqno, i, token, now, before] = words[..] else { panic!("{text}") };
        let next = next.entry(runtime).or_default();
        let (run, append) = (*next / APPENDS + 1, *next % APPENDS);
        assert_eq!((seqno.parse(), i.parse()), (Ok(run), Ok(append)), "{text}");
        *next += 1;
        let reported = format!("{token} {now}");
        let (answered, then) = last.get(runtime).copied().unwrap_or((0, ""));
        if append == 0 {
            assert!(tokens.insert(reported), "two runs with one token: {text}");
            assert_eq!(before, "0", "{text}");
        } else {
            let earlier = then.split(' ').skip(3).take(2).collect::<Vec<_>>().join(" ");
            assert_eq!(reported, earlier, "a run was told something else: {then}, then {text}");
            let expected = if runtime == "oneshot" { 0 } else { answered };
            assert_eq!(before.parse(), Ok(expected), "the append before was answered wrongly: {text}");
        }
        last.insert(runtime, (place, text));
    }
    // The test has seen what it is about.
    let mut resumed = BTreeSet::new();
    for runtime in RUNTIMES {
        let runs = place.run(["--json", "run", "ls", "--function", runtime, "--last", "1000"]).ok().objects();
        assert_eq!(runs.len(), RECORDS, "{runtime}");
        for run in &runs {
            assert_eq!(run["state"], "done", "{run}");
            if run["attempts"].as_array().is_some_and(|attempts| attempts.len() > 1) {
                resumed.insert(runtime);
            }
        }
        assert!(place.run(["log", "get", &format!("dead/{runtime}")]).stdout.is_empty(), "{runtime} left dead letters");
    }
    assert!(!resumed.is_empty(), "no kill came in the middle of a run");
    println!("resumed: {resumed:?}");
}

/// Functions that depend on their attempt, and fail the first one. Each of them is given up in its second, and both
/// versions are told.
#[test]
fn a_function_that_diverges_is_given_up_with_both_versions() {
    let c = r#"
        #include "millrace.h"
        int handle(const mr_record *record) {
            const char *text = record->attempt == 1 ? "the first" : "the other";
            mr_append(record->log[3] == 'w' ? "wasm" : "process", text, 9);
            return record->attempt == 1;
        }"#;
    let python = "def line(record, ctx):\n    \
             ctx.append('python', 'the first' if ctx.attempt == 1 else 'the other')\n    \
             if ctx.attempt == 1:\n        \
                 raise ValueError('once')\n";
    let shell = "#!/bin/sh\n[ $MILLRACE_ATTEMPT = 1 ] && text='the first' || text='the other'\n\
                 printf 'oneshot\\t%s\\n' \"$text\" >&3\n[ $MILLRACE_ATTEMPT != 1 ]\n";
    let place = place(python, c, shell, &RUNTIMES);
    let _host: Host = place.serve();
    for runtime in RUNTIMES {
        place.run(["log", "append", &format!("in/{runtime}"), "x"]).ok();
    }
    place.idle();
    for runtime in RUNTIMES {
        assert_eq!(place.records(runtime), ["the first"], "what was published stays, and nothing else is");
        let letter: Value = serde_json::from_str(&place.records(&format!("dead/{runtime}"))[0]).unwrap();
        assert_eq!((&letter["code"], &letter["attempts"]), (&json!("MR3012"), &json!(2)), "{letter}");
        let error = letter["error"].as_str().unwrap();
        assert!(error.contains("the first") && error.contains("the other"), "{error}");
        let run = place.run(["--json", "run", "ls", "--function", runtime]).ok().object();
        assert_eq!((&run["state"], run["attempts"].as_array().map(Vec::len)), (&json!("dead"), Some(2)), "{run}");
    }
}
