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

/// Records with a time in the field `t`, out of order, and three without one.
const OBSERVED: [&str; 6] = [
    r#"{"data":{"t":"2026-11-03T10:00:00Z","celsius":4.5}}"#,
    r#"{"data":{"t":"2026-11-03T08:00:00.25+01:00","celsius":3}}"#,
    r#"{"data":{"celsius":5}}"#,
    r#"{"data":{"t":"yesterday","celsius":6}}"#,
    r#"{"data":{"t":-1500,"celsius":7}}"#,
    r#"{"data":{"t":true}}"#,
];

/// The times of the observation in an export, record by record.
fn observed(place: &Place, log: &str) -> Vec<Value> {
    // Standard error says how many have none.
    let lines = place.run(["log", "export", log]);
    assert_eq!(lines.code, 0, "{}", lines.stderr);
    lines.objects().iter().map(|line| line["observed"].clone()).collect()
}

#[test]
fn a_file_says_which_field_has_the_time_and_exports_have_it() {
    let place = place_with(&[]);
    let declare = |time: &str| {
        place.write("millrace.toml", &format!("[logs.from]\n{time}\n[logs.to]\n{time}\n"));
        place.run(["up"]).ok().text().to_owned()
    };
    place.feed(["log", "append", "from", "--ndjson"], OBSERVED.join("\n").as_bytes()).ok();
    assert!(!place.run(["log", "export", "from"]).ok().text().contains("observed"));
    let up = declare("time = \"/t\"");
    assert!(up.contains("log from updated; the time of the observation is in /t"), "{up}");
    assert!(declare("time = \"/t\"").contains("log from unchanged"));
    let times = json!(["2026-11-03T10:00:00.000000Z", "2026-11-03T07:00:00.250000Z", null, null, null, null]);
    assert_eq!(json!(observed(&place, "from")), times);
    // Numbers are times once their unit is known.
    declare("time = { field = \"/t\", unit = \"ms\" }");
    let mut times = times;
    times[4] = json!("1969-12-31T23:59:58.500000Z");
    assert_eq!(json!(observed(&place, "from")), times);
    let stat = place.run(["--json", "log", "stat", "from"]).ok().object();
    assert_eq!(stat["time"], json!({"field": "/t", "unit": "ms"}));

    let whole = place.run(["log", "export", "from", "--format", "csv"]);
    let lines: Vec<&str> = whole.text().lines().collect();
    assert_eq!(lines[0], "_seqno,_time,_observed,t,celsius");
    assert!(lines[1].contains("Z,2026-11-03T10:00:00.000000Z,2026-11-03T10:00:00Z,4.5"), "{}", lines[1]);
    assert!(lines[3].ends_with("Z,,,5"), "{}", lines[3]);
    assert!(whole.stderr.contains("3 records have no time in /t (ms): `observed` is empty there"), "{}", whole.stderr);

    // What was exported, imported and exported again is the same.
    let mut expected = Vec::new();
    for (file, more) in [("x.ndjson", None), ("x.csv", None), ("y.csv", Some("--whole")), ("x.parquet", None)] {
        place.run(["log", "export", "from", "-o", file].into_iter().chain(more)).ok();
        let imported = place.run(["--json", "log", "import", "to", file]).ok().object();
        assert_eq!((&imported["records"], &imported["untimed"]), (&json!(6), &json!(3)), "{file}");
        expected.extend(times.as_array().unwrap().clone());
        assert_eq!(observed(&place, "to"), expected, "{file}");
    }
    let once = payloads(&place, "from");
    assert_eq!(payloads(&place, "to"), [&once[..], &once, &once, &once].concat());

    assert!(declare("").contains("log from updated; no field has the time of the observation"));
    assert!(!place.run(["log", "export", "from"]).ok().text().contains("observed"));
}

#[test]
fn a_field_that_has_the_name_of_the_column_is_kept() {
    let place = place_with(&[r#"{"data":{"_observed":"x","n":1}}"#, r#"{"data":{"observed":"y","n":2}}"#]);
    place.run(["log", "set", "from", "--time", "/t"]).ok();
    for file in ["x.csv", "x.ndjson", "x.parquet"] {
        place.run(["log", "export", "from", "-o", file]).ok();
        place.run(["log", "import", "to", file]).ok();
    }
    let once = payloads(&place, "from");
    assert_eq!(payloads(&place, "to"), [&once[..], &once, &once].concat());
    place.run(["log", "set", "from", "--no-time"]).ok();
    place.run(["log", "export", "from", "-o", "x.csv"]).ok();
    place.run(["log", "import", "to", "x.csv"]).ok();
    assert_eq!(payloads(&place, "to")[6..], once);
}

#[test]
fn a_table_of_others_has_the_time_in_the_column_that_the_log_names() {
    let place = place_with(&[]);
    place.run(["log", "set", "to", "--time", "/when", "--time-unit", "s"]).ok();
    place.write("x.csv", "when,celsius\n1793700000,1\n2026-11-03T10:00:01Z,2\n,3\n2026-11-03 10:00:03,4\n");
    let tried = place.run(["log", "import", "to", "x.csv", "--dry-run"]).ok();
    let said = "3 records have no time in /when (s): the time of the append takes its place";
    // A column has one type: here text, which numbers are not.
    assert!(tried.text().contains(said), "{}", tried.text());
    place.write("y.csv", "when,celsius\n1793700000,1\n1793700001.5,2\n");
    let imported = place.run(["log", "import", "to", "y.csv"]).ok();
    assert!(!imported.text().contains("have no time"), "{}", imported.text());
    assert_eq!(json!(observed(&place, "to")), json!(["2026-11-03T10:00:00.000000Z", "2026-11-03T10:00:01.500000Z"]));
}

#[test]
fn the_field_of_the_time_is_set_here_and_at_a_host_and_survives() {
    let place = Place::new();
    let created = place.run(["log", "create", "raw", "--time", "/t", "--time-unit", "ms"]).ok();
    assert!(created.text().contains("the time of the observation is in /t (ms)"), "{}", created.text());
    let time = |of: &[&str], log: &str| {
        place.run([of, &["--json", "log", "stat", log]].concat()).ok().object()["time"].clone()
    };
    assert_eq!(time(&[], "raw"), json!({"field": "/t", "unit": "ms"}));
    let again = place.run(["--json", "log", "create", "raw"]).ok().object();
    assert_eq!((&again["change"], again.get("time")), (&json!("unchanged"), None));
    assert_eq!(place.run(["--json", "log", "create", "raw", "--time", "/u"]).ok().object()["change"], "updated");
    assert!(place.run(["log", "stat", "raw"]).ok().text().contains("observed     /u"));

    for wrong in [&["--time", "t"][..], &["--time", ""], &["--time", "/~2"], &["--time", "/t", "--time-unit", "ns"]] {
        for command in ["create", "set"] {
            let refused = place.run([&["log", command, "raw"], wrong].concat()).fails("MR1006", 2);
            assert!(refused.stderr.contains("millrace-toml.md"), "{}", refused.stderr);
        }
    }
    for wrong in [&["--time-unit", "s"][..], &["--time", "/t", "--no-time"], &[]] {
        assert_eq!(place.run([&["log", "set", "raw"], wrong].concat()).code, 2, "{wrong:?}");
    }
    place.run(["log", "set", "other", "--time", "/t"]).fails("MR2101", 1);
    place.write("millrace.toml", "[logs.raw]\ntime = { field = \"/t\", unit = \"h\" }\n[logs.b]\ntime = \"t\"\n");
    let refused = place.run(["up", "--dry-run"]).fails("MR4002", 1);
    assert!(
        refused.stderr.contains("'h' is not a unit of time") && refused.stderr.contains("'t' is not a JSON pointer")
    );

    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    let there = ["-n", &address];
    place.run([&there[..], &["log", "create", "far", "--time", "/at"]].concat()).ok();
    assert_eq!(time(&there, "far"), json!({"field": "/at"}));
    place.run([&there[..], &["log", "append", "far", r#"{"at":"2026-11-03T10:00:00Z"}"#]].concat()).ok();
    let exported = place.run([&there[..], &["log", "export", "far"]].concat()).ok().object();
    assert_eq!(exported["observed"], "2026-11-03T10:00:00.000000Z");
    place.run([&there[..], &["log", "set", "raw", "--no-time"]].concat()).ok();
    assert_eq!(time(&there, "raw"), Value::Null);
    drop(host);

    place.run(["log", "trim", "far", "--all"]).ok();
    place.run(["namespace", "backup", "copy"]).ok();
    place.run(["namespace", "restore", "copy", "again"]).ok();
    assert_eq!(time(&["-n", "again"], "far"), json!({"field": "/at"}));
    place.run(["log", "rm", "far"]).ok();
    place.run(["log", "create", "far"]).ok();
    assert_eq!(time(&[], "far"), Value::Null);
}
