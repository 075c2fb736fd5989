//! Functions in C from one source, as WebAssembly and as a native process: what works works in both, what fails fails alone.

use millrace_tests::{Place, end};
use serde_json::{Value, json};
use std::{path::Path, process::Command};

/// Each function is this source with its own `BODY`.
const SOURCE: &str = r#"
#include "millrace.h"
static volatile int sink;
static int deeper(int n) { volatile char frame[1000]; frame[0] = (char)n; return n < 0 ? 0 : deeper(n + 1) + frame[0]; }
int handle(const mr_record *record) { (void)deeper; BODY }
"#;

/// Names, bodies, and whether WebAssembly and a native process are expected to fail.
const FUNCTIONS: &[(&str, &str, bool)] = &[
    ("copies", "return mr_append(\"out\", record->data, record->size);", false),
    ("refuses", "(void)record; return 7;", true),
    ("traps", "(void)record; __builtin_trap(); return 0;", true),
    ("recurses", "return deeper((int)record->size) & 1;", true),
    ("endless", "(void)record; for (;;) sink++; return 0;", true),
    ("chatters", "(void)record; for (;;) mr_print(\"all work and no play\\n\"); return 0;", true),
    ("lost", "return mr_append(\"nowhere\", record->data, record->size);", true),
    ("climbs", "return mr_append(\"../out\", record->data, record->size);", true),
];

/// Only in WebAssembly is the memory of a run its own affair.
const GREEDY: &str = "(void)record; while (__builtin_wasm_memory_grow(0, 16) != (__SIZE_TYPE__)-1) sink++; return 9;";

fn compile(place: &Place, compiler: &[&str], name: &str, body: &str, output: &str) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c");
    place.write(&format!("{name}.c"), &SOURCE.replace("BODY", body));
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-O1", "-ffp-contract=off", "-I"]).arg(include);
    command.args([&format!("{name}.c"), "-o", output]).current_dir(place.path());
    let said = end(command, b"");
    assert_eq!(said.code, 0, "{name}: {}", said.stderr);
}

/// Deploys the functions, gives each one record, and checks who failed.
fn check(place: &Place, functions: &[(&str, &str, bool)], table: impl Fn(&str) -> String) {
    let mut text =
        String::from("[namespace]\nsegment_size = \"4MiB\"\ndurability = \"memory\"\n[logs.in]\n[logs.out]\n");
    for (name, ..) in functions {
        // Only those that have to reach it are in a hurry.
        let timeout = if ["endless", "chatters"].contains(name) { "500ms" } else { "100s" };
        let limits =
            format!("on = [\"in\"]\ntimeout = \"{timeout}\"\nretries = 1\nbackoff = \"1ms\"\nmemory = \"16MiB\"");
        text += &format!("[functions.{name}]\n{}\n{limits}\n", table(name));
    }
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    let host = place.serve();
    place.run(["log", "append", "in", "precious"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["precious"]);
    for (name, _, fails) in functions {
        let run = place.run(["--json", "run", "ls", "--function", name]).ok().object();
        let expected = if *fails { "dead" } else { "done" };
        assert_eq!(run["state"], expected, "{run}");
        assert!(run["output"].as_str().unwrap().len() < 70_000, "{name} printed without end");
        if *fails {
            let letter: Value = serde_json::from_str(&place.records(&format!("dead/{name}"))[0]).unwrap();
            assert_eq!((&letter["function"], &letter["attempts"]), (&json!(name), &json!(2)));
            assert!(letter["code"].as_str().is_some_and(|code| code.starts_with("MR")), "{letter}");
        }
    }
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
}

#[test]
fn webassembly_that_fails_in_every_way_leaves_a_dead_letter_each() {
    let place = Place::empty();
    let functions = [FUNCTIONS, &[("greedy", GREEDY, true)]].concat();
    let clang = ["clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry"];
    for (name, body, _) in &functions {
        compile(&place, &clang, name, body, &format!("{name}.wasm"));
    }
    check(&place, &functions, |name| format!("runtime = \"wasm\"\ncode = \"{name}.wasm\""));
}

#[test]
fn native_processes_that_fail_in_every_way_leave_a_dead_letter_each() {
    let place = Place::empty();
    for (name, body, _) in FUNCTIONS {
        std::fs::create_dir(place.path().join(name)).unwrap();
        compile(&place, &["cc"], name, body, &format!("{name}/run"));
    }
    check(&place, FUNCTIONS, |name| format!("runtime = \"process\"\ncode = \"{name}\"\ncommand = [\"./run\"]"));
}

#[test]
fn a_function_in_c_sets_the_result_of_its_run() {
    let place = Place::empty();
    let body = "if (record->size == 1) return mr_result(9, record->data, 1);\n\
        if (record->size > 60) return mr_result(MR_BYTES, record->data, MR_RESULT_MAX + 1) == MR_CALL_INVALID ? 0 : 1;\n\
        mr_result(MR_TEXT, \"replaced\", 8); mr_result(MR_JSON, \"{\\\"n\\\":1}\", 7); return record->size == 2;";
    compile(&place, &["clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry"], "wasm", body, "wasm.wasm");
    std::fs::create_dir(place.path().join("native")).unwrap();
    compile(&place, &["cc"], "native", body, "native/run");
    place.write(
        "millrace.toml",
        "[functions.wasm]\nruntime = \"wasm\"\ncode = \"wasm.wasm\"\nretries = 0\n\
         [functions.native]\nruntime = \"process\"\ncode = \"native\"\ncommand = [\"./run\"]\nretries = 0\n",
    );
    place.run(["up"]).ok();
    let _host = place.serve();
    for function in ["wasm", "native"] {
        let invoke = |record: &str| place.run(["function", "invoke", function, record]);
        assert_eq!(invoke("any").ok().text(), "{\"n\":1}\n");
        assert!(invoke(&"x".repeat(61)).ok().text().contains("appended nothing"), "a result that is too long is none");
        let failed = invoke("xx").fails("MR3109", 1);
        assert!(failed.stdout.is_empty(), "a run that failed has no result: {failed:#?}");
        let unknown = invoke("x");
        assert!(unknown.code == 1 && unknown.stderr.contains("of an unknown kind"), "{unknown:#?}");
    }
}

/// Counts words in a table, one word a record; the record "sum" has the sum of all counts, and the keys in their order, appended.
const COUNTS: &str = "char key[MR_KEY_MAX + 1], text[64]; size_t size = 0, i; int64_t length, sum = 0;\n\
    if (record->size != 3) {\n\
        if (mr_table_get(\"words\", \"none\", 4, text, 1) != MR_ABSENT) return 1;\n\
        if (mr_table_get(\"words\", key, MR_KEY_MAX + 1, text, 1) != -7303) return 2;\n\
        if (mr_table_get(\"in\", \"a\", 1, text, 1) != -7302) return 3;\n\
        if (mr_table_put(\"words\", \"brief\", 5, \"1\", 1, 0) || mr_table_delete(\"words\", \"brief\", 5)) return 4;\n\
        if (mr_table_get(\"words\", \"brief\", 5, text, 9) != MR_ABSENT) return 5;\n\
        if (mr_table_put(\"words\", \"long\", 4, \"12345\", 5, 60000) || mr_table_get(\"words\", \"long\", 4, text, 2) != 5) return 6;\n\
        if (mr_table_put(\"words\", \"long\", 4, key, MR_RECORD_MAX + 1, 0) != MR_RECORD_TOO_LONG) return 7;\n\
        return mr_table_increment(\"words\", record->data, record->size, 2);\n\
    }\n\
    while ((length = mr_table_find(\"words\", key, size, key, &size, text, sizeof text)) >= 0) {\n\
        int64_t number = 0;\n\
        for (i = 0; i < (size_t)length; i++) number = 10 * number + (text[i] - '0');\n\
        sum += number;\n\
        if (mr_append(\"out\", key, size)) return 8;\n\
        key[size++] = 0;\n\
    }\n\
    if (length != MR_ABSENT) return 9;\n\
    text[0] = (char)('0' + sum % 10);\n\
    return mr_append(\"out\", text, 1);";

#[test]
fn functions_in_c_use_tables() {
    let compilers: [(&str, &[&str], &str); 2] = [
        (
            "wasm",
            &["clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry"],
            "runtime = \"wasm\"\ncode = \"it.wasm\"",
        ),
        ("process", &["cc"], "runtime = \"process\"\ncode = \"native\"\ncommand = [\"./it.wasm\"]"),
    ];
    for (runtime, compiler, settings) in compilers {
        let place = Place::empty();
        std::fs::create_dir(place.path().join("native")).unwrap();
        let output = if runtime == "wasm" { "it.wasm" } else { "native/it.wasm" };
        compile(&place, compiler, "counts", COUNTS, output);
        place.write(
            "millrace.toml",
            &format!("[logs.in]\n[logs.out]\n[tables.words]\ncodec = \"text\"\n[functions.counts]\non = [\"in\"]\nretries = 0\n{settings}\n"),
        );
        place.run(["up"]).ok();
        let _host = place.serve();
        for word in ["beta", "alpha", "beta", "sum"] {
            place.run(["log", "append", "in", word]).ok();
            place.idle();
        }
        let runs = place.run(["run", "ls", "--function", "counts"]).ok().text().to_owned();
        assert_eq!(place.records("out"), ["alpha", "beta", "long", "1"], "{runtime}: {runs}"); // 2 + 4 + 12345
        assert_eq!(place.run(["table", "get", "words", "beta"]).ok().text(), "4\n");
    }
}
