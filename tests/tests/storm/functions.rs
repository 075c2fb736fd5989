//! What runs in the storm.
//!
//! ```text
//!   here:   in --reads (Python)--> mid --sends (Wasm)--> [message] ---------------> there: arrive --ends (process)--> out
//!                  |  \            |                `--> relayed ==== relay =====>        relayed
//!                  |   `-> stamps  |
//!                  |-> tenth --fails_first (Python)--> tenth_out
//!                  |            `--streams (Python, streamed)--> parts
//!                  |-> credit --credits (Python)--.
//!                  `-> debit ---debits (Wasm)------+--> ledger          one monitor
//!           loop --counts (Wasm)--> loop
//! ```

use super::watch::UNREAD_MAX;
use millrace_tests::{Place, end};
use std::{path::Path, process::Command};

/// Which records also go elsewhere: every tenth, and of those every second one to each of the monitor's logs.
pub const TENTH: u64 = 10;
pub const CREDIT: (u64, u64) = (20, 5);
pub const DEBIT: (u64, u64) = (20, 15);

pub const HERE: &[&str] = &["reads", "sends", "fails_first", "streams", "credits", "debits", "counts"];
pub const THERE: &[&str] = &["ends"];

/// The logs of each site, and of how many records one comes there; 0 for a log that has its own pace.
pub const LOGS_HERE: &[(&str, u64)] = &[
    ("in", 1),
    ("mid", 1),
    ("stamps", 1),
    ("relayed", 1),
    ("tenth", TENTH),
    ("tenth_out", TENTH),
    ("parts", TENTH / 2),
    ("credit", CREDIT.0),
    ("debit", DEBIT.0),
    ("ledger", TENTH),
    ("loop", 0),
];
pub const LOGS_THERE: &[(&str, u64)] = &[("arrive", 1), ("relayed", 1), ("out", 1)];

const PYTHON: &str = r#"
def reads(record, ctx):
    n = int(record.text())
    note = f"{n} {ctx.now():.9f} {ctx.random(8).hex()}"
    ctx.append("mid", note)
    ctx.append("stamps", note)
    if n % 10 == 0:
        ctx.append("tenth", str(n))
    if n % 20 == 5:
        ctx.append("credit", str(n))
    if n % 20 == 15:
        ctx.append("debit", str(n))


def fails_first(record, ctx):
    if ctx.attempt == 1:
        raise ValueError("not at once")
    ctx.append("tenth_out", record.data)


def streams(record, ctx):
    n, chance = int(record.text()), ctx.random(8).hex()
    began = ctx.append("parts", f"{n} {chance}")
    ctx.append("parts", f"{n} {chance} {began} {ctx.latest('mid') > 0}")


def credits(record, ctx):
    latest = ctx.latest("ledger")
    balance = int(ctx.get("ledger", latest).text().split()[1]) if latest else 0
    n = int(record.text())
    ctx.append("ledger", f"{latest} {balance + n} credit {n}")
"#;

/// Numbers in C without a library.
const NUMBERS: &str = r#"
#include "millrace.h"
static int64_t number(const unsigned char *text, size_t size, size_t *at) {
    int64_t value = 0, sign = 1;
    if (*at < size && text[*at] == '-') { sign = -1; ++*at; }
    while (*at < size && text[*at] >= '0' && text[*at] <= '9') value = value * 10 + (text[(*at)++] - '0');
    return sign * value;
}
static size_t put(char *to, size_t at, int64_t value) {
    char digits[24];
    size_t count = 0;
    if (value < 0) { to[at++] = '-'; value = -value; }
    do { digits[count++] = (char)('0' + value % 10); value /= 10; } while (value);
    while (count) to[at++] = digits[--count];
    return at;
}
"#;

const SENDS: &str = r#"
int handle(const mr_record *record) {
    mr_append("ADDRESS", record->data, record->size);
    return mr_append("relayed", record->data, record->size);
}
"#;

const DEBITS: &str = r#"
int handle(const mr_record *record) {
    char text[96];
    unsigned char last[96];
    size_t at = 0, place = 0;
    int64_t balance = 0, latest = mr_latest("ledger"), n = number(record->data, record->size, &place);
    if (latest < 0) return 1;
    if (latest > 0) {
        int64_t size = mr_get("ledger", (uint64_t)latest, last, sizeof last);
        if (size < 0) return 2;
        place = 0;
        number(last, (size_t)size, &place);
        place++;
        balance = number(last, (size_t)size, &place);
    }
    at = put(text, at, latest);
    text[at++] = ' ';
    at = put(text, at, balance - n);
    for (const char *word = " debit "; *word; word++) text[at++] = *word;
    at = put(text, at, n);
    return mr_append("ledger", text, at);
}
"#;

const COUNTS: &str = r#"
int handle(const mr_record *record) {
    char text[24];
    size_t at = 0;
    int64_t n = number(record->data, record->size, &at);
    return n >= TURNS ? 0 : mr_append("loop", text, put(text, 0, n + 1));
}
"#;

const ENDS: &str = r#"
int handle(const mr_record *record) {
    char text[24];
    size_t at = 0;
    int64_t n = number(record->data, record->size, &at);
    return mr_append("out", text, put(text, 0, 2 * n + 1));
}
"#;

fn compile(place: &Place, compiler: &[&str], name: &str, body: &str, output: &str) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c");
    place.write(&format!("{name}.c"), &format!("{NUMBERS}{body}"));
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-O1", "-ffp-contract=off", "-I"]).arg(include);
    command.args([&format!("{name}.c"), "-o", output]).current_dir(place.path());
    let said = end(command, b"");
    assert_eq!(said.code, 0, "{name}: {}", said.stderr);
}

const CLANG: [&str; 4] = ["clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry"];
/// Workers are killed all the time, and a run that its worker did not survive has failed.
const PATIENT: &str = "retries = 100\nbackoff = \"2ms\"\ntimeout = \"60s\"\npending_max = 1000";

/// Histories that are soon full, and longer than readers may lag; nobody paces the log of the loop, so it keeps all
/// `turns`. Journals too are full when a third of a run is done;
/// but a segment has to be more than four times as large as what is remembered of keyed appends, some 60 bytes for each
/// record: as long as more of it lives, it stays, and all behind it.
fn namespace(durability: &str, records: u64, turns: u64, logs: &[(&str, u64)]) -> String {
    let (segment, retain) = if records <= 10_000 { ("4MiB", "8MiB") } else { ("64MiB", "64MiB") };
    let mut text = format!("[namespace]\nsegment_size = \"{segment}\"\nretain_bytes = \"{retain}\"\n");
    text += &format!("durability = \"{durability}\"\n");
    for (log, one_in) in logs {
        let history = if *one_in == 0 { turns } else { UNREAD_MAX / one_in } + 100;
        text += &format!("[logs.{log}]\nhistory = {history}\n");
    }
    text
}

/// Where records come from.
pub fn deploy_here(place: &Place, durability: &str, to: &str, records: u64, turns: u64) {
    place.write("code/here.py", PYTHON);
    compile(place, &CLANG, "sends", &SENDS.replace("ADDRESS", &format!("{to}/arrive")), "sends.wasm");
    compile(place, &CLANG, "debits", DEBITS, "debits.wasm");
    compile(place, &CLANG, "counts", &COUNTS.replace("TURNS", &turns.to_string()), "counts.wasm");
    let python = |name: &str| format!("runtime = \"python\"\ncode = \"code\"\nhandler = \"here:{name}\"");
    let wasm = |name: &str| format!("runtime = \"wasm\"\ncode = \"{name}.wasm\"");
    let mut text = namespace(durability, records, turns, LOGS_HERE);
    for (name, how, on, more) in [
        ("reads", python("reads"), "in", ""),
        ("sends", wasm("sends"), "mid", &format!("sends = [\"{to}/arrive\"]")),
        ("fails_first", python("fails_first"), "tenth", "ordered = false\nconcurrency = 2"),
        ("streams", python("streams"), "tenth", "streamed = true"),
        ("credits", python("credits"), "credit", "monitor = \"till\""),
        ("debits", wasm("debits"), "debit", "monitor = \"till\""),
        ("counts", wasm("counts"), "loop", ""),
    ] {
        text += &format!("[functions.{name}]\n{how}\non = [\"{on}\"]\n{PATIENT}\n{more}\n");
    }
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place.run(["relay", "add", "relayed", &format!("{to}/relayed")]).ok();
}

/// Where they end.
pub fn deploy_there(place: &Place, durability: &str, records: u64) {
    std::fs::create_dir(place.path().join("ends")).unwrap();
    compile(place, &["cc"], "ends", ENDS, "ends/run");
    let mut text = namespace(durability, records, 0, LOGS_THERE);
    text += &format!(
        "[functions.ends]\nruntime = \"process\"\ncode = \"ends\"\ncommand = [\"./run\"]\non = [\"arrive\"]\n{PATIENT}\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
}
