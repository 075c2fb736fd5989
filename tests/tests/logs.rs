//! Logs from the command line: what goes in comes out, in every form, and what cannot be done says so.

use millrace_tests::{Place, end};
use serde_json::json;
use std::process::{Command, Stdio};

fn place_with(log: &str) -> Place {
    let place = Place::new();
    place.run(["log", "create", log, "--history", "100"]).ok();
    place
}

#[test]
fn a_record_comes_back_as_it_went_in() {
    let place = place_with("raw/kitchen");
    assert_eq!(place.run(["log", "append", "raw/kitchen", "21.5"]).ok().text(), "1\n");
    assert_eq!(place.run(["log", "append", "raw/kitchen", "-3.5"]).ok().text(), "2\n");
    assert_eq!(place.feed(["log", "append", "raw/kitchen"], b"from\nstdin\n").ok().text(), "3\n");
    assert_eq!(place.run(["log", "get", "raw/kitchen"]).ok().text(), "from\nstdin\n");
    assert_eq!(place.run(["log", "get", "raw/kitchen", "2"]).ok().text(), "-3.5\n");
    assert_eq!(place.run(["log", "get", "raw/kitchen", "3", "--raw"]).ok().stdout, b"from\nstdin\n");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    place.feed(["log", "append", "raw/kitchen", "--quiet"], &bytes).ok();
    assert_eq!(place.run(["log", "get", "raw/kitchen", "--raw"]).ok().stdout, bytes);
    place.run(["log", "append", "raw/kitchen", ""]).ok();
    assert_eq!(place.run(["log", "get", "raw/kitchen", "--raw"]).ok().stdout, b"");
}

#[test]
fn bytes_that_could_disturb_a_terminal_are_escaped() {
    let place = place_with("a");
    place.feed(["log", "append", "a"], b"\x1b]0;owned\x07 \xff\0").ok();
    assert_eq!(place.run(["log", "get", "a"]).ok().text(), "\\u{1b}]0;owned\\u{7} \\xff\\0\n");
    let shown = place.run(["log", "tail", "a", "--no-follow"]).ok();
    assert!(shown.text().is_ascii() && !shown.text().contains('\x1b'), "{}", shown.text());
}

#[test]
fn text_and_json_are_printed_as_they_are() {
    let place = place_with("a");
    let json = r#"{"path":"C:\\temp","lines":"one\ntwo"}"#;
    place.run(["log", "append", "a", json]).ok();
    place.run(["log", "append", "a", r"C:\temp"]).ok();
    for command in [&["log", "tail", "a", "--no-follow"][..], &["log", "get", "a", "--all"]] {
        let shown = place.run(command).ok();
        let records: Vec<_> = shown.text().lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
        assert_eq!(records, [json, r"C:\temp"]);
    }
}

#[test]
fn lines_and_objects_are_streams_of_records() {
    let place = place_with("n");
    let lines: String = (1..=50).map(|n| format!("line {n}\n")).collect();
    let said = place.feed(["log", "append", "n", "--lines"], lines.as_bytes()).ok();
    assert_eq!(said.text(), "n: 50 records, 1 to 50\n");
    assert_eq!(place.records("n"), lines.lines().collect::<Vec<_>>());
    // A last line without a newline is a record too, and an empty line is an empty one.
    place.feed(["log", "append", "n", "--lines"], b"x\n\nlast").ok();
    assert_eq!(place.records("n")[50..], ["x", "", "last"]);

    place.run(["log", "create", "copy", "--history", "100"]).ok();
    let all = place.run(["--json", "log", "get", "n", "--all"]).ok();
    let moved = all.text().replace("\"log\":\"n\"", "\"log\":\"copy\"");
    let receipts = place.feed(["--json", "log", "append", "--ndjson"], moved.as_bytes()).ok().objects();
    assert_eq!(receipts.len(), 53);
    assert_eq!((&receipts[52]["log"], &receipts[52]["seqno"]), (&json!("copy"), &json!(53)));
    assert_eq!(place.records("copy"), place.records("n"));
    let mixed = b"{\"log\": \"n\", \"data\": {\"t\": 1}}\n\n{\"log\": \"copy\", \"base64\": \"/w==\"}\n";
    place.feed(["log", "append", "--ndjson", "--quiet"], mixed).ok();
    assert_eq!(place.run(["log", "get", "n"]).ok().text(), "{\"t\":1}\n");
    assert_eq!(place.run(["log", "get", "copy", "--raw"]).ok().stdout, b"\xff");
}

#[test]
fn a_wrong_line_is_named_and_those_before_it_are_kept() {
    let place = place_with("a");
    let input = b"{\"data\": \"one\"}\n\n{\"data\": \"two\"}\nnot json\n{\"data\": \"never\"}\n";
    let said = place.feed(["log", "append", "a", "--ndjson"], input).fails("MR4005", 1);
    assert!(said.stderr.contains("line 4 of standard input"), "{}", said.stderr);
    assert_eq!(place.records("a"), ["one", "two"]);
    let input = b"{\"data\": \"three\"}\n{\"log\": \"nowhere\", \"data\": 1}\n";
    let said = place.feed(["log", "append", "a", "--ndjson"], input).fails("MR2101", 1);
    assert!(said.stderr.contains("nowhere"), "{}", said.stderr);
}

#[test]
fn a_stream_is_committed_while_its_producer_pauses() {
    let place = place_with("a");
    let mut producer = place.command(["log", "append", "a", "--lines", "--quiet"]);
    let mut producer = producer.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = producer.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"early\n").unwrap();
    // The producer still holds its pipe open, and its record can be read.
    millrace_tests::eventually("the first line is a record", || place.records("a") == ["early"]);
    drop(stdin);
    assert_eq!(millrace_tests::wait(&mut producer, "the producer"), 0);
}

#[test]
fn ranges_and_tails_show_what_was_asked_for() {
    let place = place_with("a");
    place.feed(["log", "append", "a", "--lines", "--quiet"], b"1\n2\n3\n4\n5\n").ok();
    let shown = |args: &[&str]| -> Vec<String> {
        let said = place.run([&["log"], args].concat()).ok();
        said.text().lines().map(|line| line.split_whitespace().last().unwrap().to_string()).collect()
    };
    assert_eq!(shown(&["get", "a", "--from", "2", "--to", "3"]), ["2", "3"]);
    assert_eq!(shown(&["get", "a", "--from", "4"]), ["4", "5"]);
    assert_eq!(shown(&["get", "a", "--to", "2"]), ["1", "2"]);
    assert_eq!(shown(&["tail", "a", "-l", "2", "--no-follow"]), ["4", "5"]);
    assert_eq!(shown(&["tail", "a", "--from", "3", "--until-idle", "50ms"]), ["3", "4", "5"]);
    assert_eq!(place.run(["log", "get", "a", "--all", "--raw"]).ok().text(), "1\n2\n3\n4\n5\n");
    // As `tail -n 5` is typed: -n names a namespace here.
    let counted = place.run(["log", "tail", "a", "-n", "5"]).fails("MR2001", 1);
    assert!(counted.stderr.contains("-l 5"), "{counted:?}");
}

#[test]
fn a_tail_prints_what_comes_until_it_is_idle() {
    // It prints all of them, unless this machine takes longer between two appends than it waits.
    let prints_all = |idle: &&str| {
        let place = place_with("a");
        let tail = {
            let command = place.command(["log", "tail", "a", "--from", "1", "--raw", "--until-idle", idle]);
            std::thread::spawn(move || end(command, b""))
        };
        for n in 0..20 {
            place.run(["log", "append", "a", &n.to_string(), "--quiet"]).ok();
        }
        let expected: String = (0..20).map(|n| format!("{n}\n")).collect();
        let printed = tail.join().unwrap().ok();
        assert!(expected.starts_with(printed.text()), "{printed:?}");
        printed.text() == expected
    };
    assert!(["2s", "20s", "60s"].iter().any(prints_all));
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let place = place_with("a");
    let lines: String = (0..100).map(|_| format!("{}\n", "x".repeat(5000))).collect();
    place.feed(["log", "append", "a", "--lines", "--quiet"], lines.as_bytes()).ok();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg("\"$MILLRACE\" log get a --all | head -c 10 >/dev/null; echo done");
    shell.env("MILLRACE", millrace_tests::binary()).current_dir(place.path());
    let ended = end(shell, b"").ok();
    assert_eq!(ended.text(), "done\n");
}

#[test]
fn names_that_could_climb_hide_or_confuse_are_refused() {
    let place = Place::new();
    let (long, wide, deep) = (vec!["x".repeat(60); 5].join("/"), "x".repeat(300), ["x"; 9].join("/"));
    let names =
        ["../x", "", "/", "/etc/passwd", "a//b", ".hidden", "a/..", "a b", "лог", "a\nb", "~", &long, &wide, &deep];
    for name in names {
        for command in
            [vec!["create", name], vec!["append", name, "x"], vec!["get", name], vec!["rm", name], vec!["stat", name]]
        {
            place.run([vec!["log"], command].concat()).fails("MR1001", 2);
        }
    }
    assert_eq!(place.run(["--json", "log", "ls"]).ok().text(), "");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "only the namespace is there");
}

#[test]
fn sequence_numbers_that_are_none_are_refused() {
    let place = place_with("a");
    place.run(["log", "get", "a"]).fails("MR2105", 1);
    place.run(["log", "append", "a", "x"]).ok();
    for seqno in ["0", "-1", "1.5", "x", "1e3", "18446744073709551616", "٣", ""] {
        place.run(["log", "get", "a", seqno]).fails("MR1003", 2);
        place.run(["log", "get", "a", "--from", seqno]).fails("MR1003", 2);
        place.run(["log", "tail", "a", "--no-follow", "--from", seqno]).fails("MR1003", 2);
    }
    for seqno in ["2", "4294967297", "18446744073709551615"] {
        place.run(["log", "get", "a", seqno]).fails("MR2105", 1);
    }
    let place = Place::new();
    place.run(["log", "create", "short", "--history", "2"]).ok();
    place.feed(["log", "append", "short", "--lines", "--quiet"], b"1\n2\n3\n").ok();
    place.run(["log", "get", "short", "1"]).fails("MR2104", 1);
    place.run(["log", "get", "short", "--from", "1"]).fails("MR2104", 1);
    assert_eq!(place.records("short"), ["2", "3"]);
    let said = place.run(["log", "get", "short", "--from", "3", "--to", "2"]).fails("MR1006", 2);
    assert!(said.stderr.contains("--from 3 is greater than --to 2"), "{}", said.stderr);
    place.run(["log", "get", "short", "--to", "1"]).fails("MR2104", 1);
}

#[test]
fn a_log_with_other_attributes_is_left_as_it_is() {
    let place = place_with("a");
    place.run(["log", "append", "a", "kept"]).ok();
    place.run(["log", "create", "a", "--history", "100"]).ok();
    place.run(["log", "create", "a", "--history", "5"]).fails("MR2102", 1);
    assert_eq!(place.records("a"), ["kept"]);
    place.run(["log", "create", "b", "--history", "0"]).fails("MR2107", 1);
    place.run(["log", "create", "b", "--history", "268435457"]).fails("MR2107", 1);
    place.run(["log", "append", "b", "x"]).fails("MR2101", 1);
}

#[test]
fn a_log_keeps_all_of_its_records_until_they_are_trimmed() {
    let place = place_with("short");
    place.run(["log", "create", "all", "--history", "all"]).ok();
    place.run(["log", "create", "all", "--history", "all"]).ok();
    let said = place.run(["log", "create", "all", "--history", "10"]).fails("MR2102", 1);
    assert!(said.stderr.contains("history = all"), "{}", said.stderr);
    // Its number is nobody's way around the word.
    place.run(["log", "create", "odd", "--history", "4611686018427387904"]).fails("MR2107", 1);
    assert!(place.run(["log", "ls"]).ok().text().contains("all"));
    assert!(place.run(["log", "stat", "all"]).ok().text().contains("all records until they are trimmed"));
    assert!(place.run(["--json", "log", "stat", "all"]).ok().text().contains("\"history\":null"));
    for text in ["one", "two", "three"] {
        place.run(["log", "append", "all", text]).ok();
    }
    assert_eq!(place.records("all"), ["one", "two", "three"]);
    place.run(["log", "trim", "all", "--before", "3"]).ok();
    assert_eq!(place.records("all"), ["three"]);
}

#[test]
fn the_history_of_a_log_can_be_changed() {
    let place = place_with("a");
    place.feed(["log", "append", "a", "--lines", "--quiet"], b"1\n2\n3\n4\n5\n").ok();
    let said = place.run(["log", "set", "a", "--history", "2"]).ok();
    assert!(said.text().contains("now keeps 2 records"), "{}", said.text());
    assert_eq!(place.records("a"), ["4", "5"]);
    place.run(["log", "get", "a", "3"]).fails("MR2104", 1);
    place.run(["log", "set", "a", "--history", "all"]).ok();
    place.feed(["log", "append", "a", "--lines", "--quiet"], b"6\n7\n").ok();
    assert_eq!(place.records("a"), ["4", "5", "6", "7"]);
    assert!(place.run(["log", "set", "a", "--history", "all"]).ok().text().contains("already"));
    let reported = place.run(["--json", "log", "set", "a", "--history", "3"]).ok();
    assert_eq!(reported.object(), serde_json::json!({ "log": "a", "history": 3, "change": "updated" }));
    assert_eq!(place.records("a"), ["5", "6", "7"]);
    place.run(["namespace", "check"]).ok();
    place.run(["log", "set", "a", "--history", "0"]).fails("MR2107", 1);
    place.run(["log", "set", "none", "--history", "5"]).fails("MR2101", 1);
    place.run(["log", "set", "_keys", "--history", "5"]).fails("MR2101", 1);
    assert_eq!(place.records("a"), ["5", "6", "7"]);
}

#[test]
fn a_record_that_is_too_long_is_refused_and_nothing_is_appended() {
    let place = place_with("a");
    place.feed(["log", "append", "a"], &vec![b'x'; (256 << 10) + 1]).fails("MR1004", 1);
    place.feed(["log", "append", "a"], &vec![b'x'; (16 << 20) + 1]).fails("MR1004", 1);
    let mut lines = b"short\n".to_vec();
    lines.extend(vec![b'x'; (256 << 10) + 1]);
    let said = place.feed(["log", "append", "a", "--lines"], &lines).fails("MR1004", 1);
    assert!(said.stderr.contains("line 2"), "{}", said.stderr);
    assert_eq!(place.records("a"), ["short"]);
    place.feed(["log", "append", "a", "--quiet"], &vec![b'x'; 200 << 10]).ok();
}

#[test]
fn a_removed_log_is_gone_and_its_name_is_free() {
    let place = place_with("a");
    place.run(["log", "append", "a", "old"]).ok();
    place.run(["log", "rm", "a"]).ok();
    place.run(["log", "get", "a"]).fails("MR2101", 1);
    place.run(["log", "rm", "a"]).fails("MR2101", 1);
    place.run(["log", "create", "a", "--history", "7"]).ok();
    assert_eq!(place.run(["--json", "log", "stat", "a"]).ok().object()["records"], 0);
}

#[test]
fn programs_read_json_and_people_read_tables() {
    let place = place_with("raw/a");
    place.run(["log", "append", "raw/a", "x"]).ok();
    place.run(["log", "create", "other"]).ok();
    let logs = place.run(["log", "ls", "--json"]).ok().objects();
    assert_eq!(logs.iter().map(|log| log["name"].clone()).collect::<Vec<_>>(), [json!("other"), json!("raw/a")]);
    assert_eq!((&logs[1]["records"], &logs[1]["latest"], &logs[1]["history"]), (&json!(1), &json!(1), &json!(100)));
    assert_eq!(place.run(["log", "ls", "raw/", "--json"]).ok().objects().len(), 1);
    place.run(["log", "append", "mr://127.0.0.1:1/farm/raw", "x"]).ok();
    let names = |args: &[&str]| {
        let listed = place.run([&["--json", "log", "ls"], args].concat()).ok().objects();
        listed.iter().map(|log| log["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["other", "raw/a"]);
    assert_eq!(names(&["--internal"]), ["_links", "_outbox/127.0.0.1_1_farm", "other", "raw/a"]);
    assert_eq!(names(&["_l"]), ["_links"]);
    let table = place.run(["log", "ls"]).ok();
    assert!(table.text().starts_with("LOG ") && !table.text().contains('\x1b'), "{}", table.text());
    let record = place.run(["--json", "log", "get", "raw/a"]).ok().object();
    assert_eq!((&record["seqno"], &record["data"], &record["cause"]), (&json!(1), &json!("x"), &json!(null)));
    let error = place.run(["--json", "log", "get", "nope"]);
    let object: serde_json::Value = serde_json::from_str(&error.stderr).unwrap();
    assert_eq!((error.code, &object["error"]["code"]), (1, &json!("MR2101")));
    for key in ["detail", "cause", "remedy"] {
        assert!(object["error"][key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    let usage = place.run(["log", "nonsense"]);
    assert!(usage.code == 2 && usage.stderr.starts_with("error[MR4004]: unrecognized"), "{usage:#?}");
    let usage = place.run(["--json", "log", "nonsense"]);
    let object: serde_json::Value = serde_json::from_str(&usage.stderr).unwrap();
    assert_eq!((usage.code, &object["error"]["code"]), (2, &json!("MR4004")));
}
