//! Logs to files and back.

use millrace_tests::{Place, eventually};
use serde_json::{Value, json};
use std::{fs, io::Write, process::Stdio, time::Duration};

/// Records that text formats find hard.
const RECORDS: [&str; 7] = [
    r#"{"data":"plain"}"#,
    r#"{"data":""}"#,
    r#"{"base64":"AP8Kgg=="}"#,
    r#"{"data":"a,\"b\"\r\nc\n"}"#,
    r#"{"data":"\u0000\u001b[31m \ufeff"}"#,
    r#"{"data":"21.50"}"#,
    r#"{"data":" leading and trailing "}"#,
];

/// What the records of a log are, without where and when they were appended.
fn payloads(place: &Place, log: &str) -> Vec<Value> {
    let objects = place.run(["--json", "log", "get", log, "--all"]).ok().objects();
    objects.iter().map(|record| json!([record["data"], record["base64"]])).collect()
}

fn place_with(records: &[&str]) -> Place {
    let place = Place::new();
    for log in ["from", "to"] {
        place.run(["log", "create", log]).ok();
    }
    place.feed(["log", "append", "from", "--ndjson"], records.join("\n").as_bytes()).ok();
    place
}

#[test]
fn every_format_takes_every_record_there_and_back() {
    let place = place_with(&RECORDS);
    let mut expected = Vec::new();
    for file in ["x.ndjson", "x.csv", "x.parquet"] {
        place.run(["log", "export", "from", "-o", file]).ok();
        let reported = place.run(["--json", "log", "import", "to", file]).ok().object();
        assert_eq!((reported["records"].as_u64(), reported["skipped"].as_u64()), (Some(7), Some(0)), "{reported}");
        expected.extend(payloads(&place, "from"));
        assert_eq!(payloads(&place, "to"), expected, "{file}");
    }
    let text = place.run(["log", "export", "from"]).ok();
    assert_eq!(text.stdout, place.run(["--json", "log", "get", "from", "--all"]).ok().stdout);
    let whole = place.run(["log", "export", "from", "--format", "parquet"]).ok();
    assert_eq!(&whole.stdout[..4], b"PAR1");
    assert!(
        fs::read_dir(place.path())
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().contains("partial") })
    );
}

#[test]
fn objects_become_columns_and_columns_objects() {
    let place = place_with(&[r#"{"data":{"t":21.5,"where":"kitchen"}}"#, r#"{"data":{"where":"a,b","open":true}}"#]);
    let csv = place.run(["log", "export", "from", "--format", "csv"]).ok();
    let lines: Vec<&str> = csv.text().lines().collect();
    assert_eq!(lines[0], "_seqno,_time,t,where,open");
    assert!(lines[1].starts_with("1,") && lines[1].ends_with("Z,21.5,kitchen,"), "{}", lines[1]);
    assert!(lines[2].ends_with("Z,,\"a,b\",true"), "{}", lines[2]);
    place.feed(["log", "import", "to", "-", "--format", "csv"], &csv.stdout).ok();
    assert_eq!(payloads(&place, "to"), payloads(&place, "from"));
    let whole = place.run(["log", "export", "from", "--format", "csv", "--whole", "--from", "2"]).ok();
    assert!(whole.text().starts_with("seqno,time,data,base64\n2,"), "{whole:?}");
}

#[test]
fn an_import_that_stops_reports_how_to_continue() {
    let place = place_with(&[]);
    place.write("x.ndjson", "{\"data\":1}\n\n{\"data\":2}\n{\"oops\":3}\n{\"data\":4}\n");
    let stopped = place.run(["log", "import", "to", "x.ndjson"]).fails("MR4011", 1);
    assert!(stopped.stderr.contains("line 4: it has neither") && stopped.stderr.contains("--skip 2"), "{stopped:?}");
    assert_eq!(place.records("to"), ["1", "2"]);
    place.write("x.ndjson", "{\"data\":1}\n\n{\"data\":2}\n{\"data\":3}\n{\"data\":4}\n");
    place.run(["log", "import", "to", "x.ndjson", "--skip", "2"]).ok();
    assert_eq!(place.records("to"), ["1", "2", "3", "4"]);
    place.run(["log", "import", "to", "x.ndjson", "--skip", "5"]).fails("MR4011", 1);
}

#[test]
fn an_import_that_is_interrupted_ends_with_what_it_has() {
    let place = place_with(&[]);
    let mut command = place.command(["log", "import", "to", "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let line = b"{\"data\":\"x\"}\n";
    input.write_all(&line.repeat(1024)).unwrap();
    input.flush().unwrap();
    let latest = || place.run(["--json", "log", "stat", "to"]).ok().object()["latest"].as_u64().unwrap();
    eventually("the first records are imported", || latest() == 1024);
    send(child.id(), "INT");
    // It notices before it begins with the next records, or after those.
    let mut fed = 0;
    while child.try_wait().unwrap().is_none() {
        fed += 1;
        assert!(fed < 60_000, "it does not stop");
        // Once it has stopped, nobody reads any more.
        let _ = input.write_all(&line.repeat(16));
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("error[MR4012]") && output.status.code() == Some(1), "{said}");
    let imported = latest();
    assert!(imported >= 1024 && said.contains(&format!("--skip {imported}")), "{imported}: {said}");
}

fn send(pid: u32, signal: &str) {
    let status = std::process::Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn what_cannot_be_is_told_and_leaves_files_as_they_were() {
    let place = place_with(&[r#"{"data":"x"}"#]);
    place.write("kept.csv", "precious");
    place.run(["log", "export", "nothing", "-o", "kept.csv"]).fails("MR2101", 1);
    place.run(["log", "export", "from", "--from", "2", "-o", "kept.csv"]).fails("MR2105", 1);
    place.run(["log", "export", "from", "--from", "x", "-o", "kept.csv"]).fails("MR1003", 2);
    assert_eq!(fs::read_to_string(place.path().join("kept.csv")).unwrap(), "precious");
    place.run(["log", "export", "from", "-o", "no/such/dir.csv"]).fails("MR4014", 1);
    place.run(["log", "export", "from", "-o", "x.xlsx"]).fails("MR4015", 1);
    place.run(["log", "import", "to", "missing.csv"]).fails("MR4010", 1);
    place.run(["log", "import", "to", "-", "--format", "parquet"]).fails("MR4015", 1);
    place.write("x.parquet", "PAR1 but not really PAR1");
    place.run(["log", "import", "to", "x.parquet"]).fails("MR4015", 1);
    place.run(["log", "import", "nothing", "kept.csv"]).fails("MR2101", 1);
    assert_eq!(place.run(["--json", "log", "stat", "to"]).ok().object()["latest"], 0);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3, "kept.csv, x.parquet and the namespace");
}

#[test]
fn an_export_ends_where_the_log_ended_when_it_began_and_says_what_is_gone() {
    let place = Place::new();
    place.run(["log", "create", "short", "--history", "3"]).ok();
    place.feed(["log", "append", "short", "--lines"], b"1\n2\n3\n4\n5\n").ok();
    let text = place.run(["log", "export", "short"]).ok();
    let seqnos: Vec<u64> = text.objects().iter().map(|record| record["seqno"].as_u64().unwrap()).collect();
    assert_eq!(seqnos, [3, 4, 5], "without --from it begins with what is there");
    place.run(["log", "export", "short", "--from", "1"]).fails("MR2104", 1);
    let device = place.run(["log", "export", "short", "-o", "/dev/stdout", "--format", "ndjson"]).ok();
    assert!(device.text().starts_with("{\"log\":\"short\",\"seqno\":3"), "{device:?}");
}
