//! `millrace demo`, as its first user sees it.

use millrace_tests::{Host, Place, end, eventually};
use serde_json::Value;
use std::{fs, path::Path};

/// Starts the demo in the directory `demo` of a place, and returns what it says of itself.
fn demo(place: &Place, more: &[&str]) -> (Host, Value) {
    let args = ["--json", "demo", "demo", "--listen", "127.0.0.1:0"];
    let host = Host::start(place.command(args.iter().chain(more)));
    let announced = serde_json::from_str(host.announcement()).expect("an object");
    (host, announced)
}

/// A command in the directory of the demo.
fn there(place: &Place, line: &str) -> millrace_tests::Ended {
    let mut command = place.command(line.split(' '));
    command.current_dir(place.path().join("demo"));
    end(command, b"")
}

fn hour(line: &str) -> u64 {
    serde_json::from_str::<Value>(line).expect("an object")["hour"].as_u64().expect("an hour")
}

fn latest(place: &Place, log: &str) -> u64 {
    there(place, &format!("--json log stat {log}")).ok().object()["latest"].as_u64().expect("a number")
}

/// Readings come one hour after the other, without a gap and without a repetition.
fn is_whole(place: &Place, log: &str) {
    let got = there(place, &format!("--json log get {log} --all")).ok();
    let times: Vec<String> = got
        .objects()
        .iter()
        .map(|record| {
            let reading: Value = serde_json::from_str(record["data"].as_str().expect("text")).expect("JSON");
            reading["time"].as_str().expect("a time").to_owned()
        })
        .collect();
    assert!(times.len() > 100 && times.is_sorted(), "{} of {log}", times.len());
    let mut once = times.clone();
    once.dedup();
    assert_eq!(once.len(), times.len(), "an hour is there twice");
}

#[test]
fn the_demo_survives_a_kill_is_repaired_and_explained() {
    let place = Place::empty();
    let (host, announced) = demo(&place, &["--hours", "400"]);
    assert_eq!(announced["python"], true, "{announced}");
    assert!(announced["dashboard"].as_str().expect("a link").ends_with("/ui"), "{announced}");
    let first = hour(&host.line_with(&["\"event\":\"estimate\""]));
    assert!(first > 24, "the first model is made of a day");
    // It is killed while it replays the readings, and started again.
    host.signal("KILL");
    drop(host);
    let (host, again) = demo(&place, &["--hours", "400"]);
    assert_eq!((&again["namespace"], &again["hours"]), (&announced["namespace"], &announced["hours"]));
    let hours = announced["hours"].as_u64().expect("a number");
    eventually("it is replayed", || {
        let newest = there(&place, "log get estimate");
        latest(&place, "smooth/ewr") >= hours && newest.code == 0 && hour(newest.text()) >= hours
    });
    is_whole(&place, "raw/jfk");
    is_whole(&place, "raw/ewr");
    let (jfk, ewr) = (latest(&place, "raw/jfk"), latest(&place, "smooth/ewr"));
    assert!(jfk >= hours && ewr >= hours, "{jfk} {ewr}");

    // One asks for an hour. Early ones have no estimate if the first model came late.
    let known = there(&place, "function invoke at 400").ok();
    let known: Value = serde_json::from_str(known.text()).expect("JSON");
    assert_eq!(known["time"], "2013-01-17T21:00:00Z", "{known}");
    let (estimated, measured) = (known["estimated"].as_f64().unwrap(), known["measured"]["ewr"].as_f64().unwrap());
    assert!((estimated - measured).abs() < 5.0, "{known}");
    let none = there(&place, "function invoke at 1000000").fails("MR3110", 1);
    assert!(none.stderr.contains("there is no hour 1000000 yet"), "{}", none.stderr);

    // The day on which a thermometer was stuck is repaired with what is there, by the printed commands.
    there(&place, "repair run raw/jfk --values right.jsonl --reason stuck").ok();
    assert!(there(&place, "repair diff 1 estimate").ok().text().contains("estimate"));
    there(&place, "repair apply 1").ok();
    let right = fs::read_to_string(place.path().join("demo/right.jsonl")).expect("it is there");
    assert_eq!(right.lines().count(), 24);
    for line in right.lines() {
        let correction: Value = serde_json::from_str(line).expect("JSON");
        let record = there(&place, &format!("log get raw/jfk {}", correction["seqno"])).ok();
        assert_eq!(record.text().trim(), correction["value"].as_str().expect("text"));
    }
    // Why an estimate is what it is.
    let why = there(&place, "trace --up estimate").ok();
    for said in ["smooth/lga", "raw/lga", "run"] {
        assert!(why.text().contains(said), "{}", why.text());
    }
    host.signal("INT");
    assert_eq!(host.ended(), 0);
}

#[test]
fn without_python_a_shell_script_estimates() {
    let place = Place::empty();
    let (host, announced) = demo(&place, &["--shell"]);
    assert_eq!(announced["python"], false, "{announced}");
    host.line_with(&["\"event\":\"estimate\""]);
    eventually("all readings have an estimate", || latest(&place, "estimate") >= announced["hours"].as_u64().unwrap());
    for n in [1, 20, 100] {
        let celsius = |log: &str| {
            let record = there(&place, &format!("log get {log} {n}")).ok();
            serde_json::from_str::<Value>(record.text()).expect("JSON")["celsius"].as_f64().expect("a number")
        };
        assert!((celsius("raw/lga") - 0.2 - celsius("estimate")).abs() < 0.001, "hour {n}");
    }
    assert!(there(&place, "function invoke at 7").ok().text().contains("the record was: 7"));
    there(&place, "repair run raw/jfk --values right.jsonl").ok();
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    // It says to people what it says to programs, and takes another port if one is in use.
    let taken = std::net::TcpListener::bind("127.0.0.1:7070");
    let mut command = place.command(["demo", "demo"]);
    command.env_remove("MILLRACE_LISTEN");
    let host = Host::start(command);
    let lines: Vec<String> = ["dashboard", "kill -9", "repair run", "repair diff", "trace --up", "functions/at"]
        .iter()
        .map(|text| host.line_with(&[text]))
        .collect();
    assert!(taken.is_err() || !lines[0].contains(":7070"), "{lines:?}");
    assert!(lines[0].ends_with("/ui") && lines[1].contains(&format!("kill -9 {}; millrace demo ", host.pid())));
    assert!(lines[3].contains("repair diff 2 estimate; millrace repair apply 2"), "{lines:?}");
    host.signal("INT");
    assert_eq!(host.ended(), 0);
}

#[test]
fn the_demo_takes_no_directory_of_another_application() {
    let place = Place::empty();
    fs::create_dir(place.path().join("mine")).expect("it is new");
    place.write("mine/millrace.toml", "[logs.a]\n");
    place.run(["demo", "mine"]).fails("MR4009", 1);
    assert!(!Path::new(&place.path().join("mine/.millrace")).exists());
}
