//! A namespace that another process serves looks as it does by its files.

use millrace_tests::{Host, Place, end, eventually, wait};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    process::Stdio,
};

const FUNCTION: &str = "#!/bin/sh\nread -r record\n[ \"$record\" != bad ] || { echo no >&2; exit 1; }\n";

/// A namespace with records and runs, its host, and its address.
fn served() -> (Place, Host, String) {
    let place = Place::new();
    place.write("shout.sh", FUNCTION);
    place.run(["log", "create", "inbox"]).ok();
    place.run(["log", "create", "a/b"]).ok();
    let deploy = "function deploy shout --runtime oneshot --code shout.sh --on inbox --retries 0 -- ./shout.sh";
    place.run(deploy.split(' ')).ok();
    let host = place.serve_tcp(["--name", "farm"]);
    place.feed(["log", "append", "inbox", "--lines"], b"one\nbad\nthree\n").ok();
    place.feed(["log", "append", "a/b", "--ndjson"], b"{\"base64\":\"AP8=\"}\n{\"data\":\"x\"}\n").ok();
    place.idle();
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    (place, host, address)
}

fn at(address: &str, args: &[&str]) -> Vec<String> {
    ["-n", address].iter().chain(args).map(ToString::to_string).collect()
}

#[test]
fn every_reading_command_prints_the_same() {
    let (place, _host, address) = served();
    let unix = format!("unix:{}", place.namespace().join("socket").display());
    let dead = place.run(["--json", "run", "ls", "--state", "dead"]).ok().object();
    let dead = dead["id"].as_str().unwrap();
    for args in [
        &["log", "ls"][..],
        &["log", "ls", "a"],
        &["log", "stat", "a/b"],
        &["log", "get", "inbox"],
        &["log", "get", "inbox", "2"],
        &["log", "get", "a/b", "--all"],
        &["log", "get", "inbox", "--from", "2", "--to", "3"],
        &["log", "tail", "inbox", "--no-follow", "-l", "2"],
        &["log", "tail", "inbox", "--from", "1", "--until-idle", "10ms"],
        &["log", "export", "a/b"],
        &["log", "export", "inbox", "--format", "csv"],
        &["function", "ls"],
        &["run", "ls"],
        &["run", "ls", "--function", "shout", "--log", "inbox", "--state", "done", "-l", "1"],
        &["run", "show"],
        &["run", "show", dead],
        &["why"],
        &["why", "a/b"],
        &["why", dead],
        &["journal", "show"],
        &["journal", "show", "-l", "3"],
        &["journal", "show", "--from", "0"],
    ] {
        let json = [&["--json"], args].concat();
        let here = place.run(&json).ok();
        assert!(!here.stdout.is_empty(), "{args:?} prints nothing");
        assert_eq!(here.text(), place.run(at(&address, &json)).ok().text(), "{args:?}");
        assert_eq!(here.text(), place.run(at(&unix, &json)).ok().text(), "{args:?} over the socket");
    }
    // For people, too, where no time passes in what is told.
    for args in [&["function", "ls"][..], &["journal", "show"], &["log", "tail", "inbox", "--no-follow"], &["why"]] {
        assert_eq!(place.run(args).ok().text(), place.run(at(&address, args)).ok().text(), "{args:?}");
    }
}

#[test]
fn every_refusal_is_the_same() {
    let (place, _host, address) = served();
    for (args, code, exit) in [
        (&["log", "get", "nothing"][..], "MR2101", 1),
        (&["log", "get", "inbox", "99"], "MR2105", 1),
        (&["log", "get", "inbox", "0"], "MR1003", 2),
        (&["log", "get", "inbox", "--to", "99"], "MR2105", 1),
        (&["log", "get", "../x"], "MR1001", 2),
        (&["log", "append", "nothing", "x"], "MR2101", 1),
        (&["log", "append", "inbox", "x", "--function", "none"], "MR3001", 1),
        (&["log", "tail", "nothing"], "MR2101", 1),
        (&["log", "stat", "nothing"], "MR2101", 1),
        (&["log", "create", "inbox", "--history", "7"], "MR2102", 1),
        (&["log", "set", "nothing", "--history", "7"], "MR2101", 1),
        (&["log", "set", "inbox", "--history", "0"], "MR2107", 1),
        (&["run", "cancel", "1-0-1"], "MR3007", 1),
        (&["log", "rm", "inbox"], "MR2103", 1),
        (&["log", "rm", "nothing"], "MR2101", 1),
        (&["run", "show", "1-0-1"], "MR3007", 1),
        (&["why", "nothing"], "MR3001", 1),
    ] {
        let here = place.run(args);
        let there = place.run(at(&address, args));
        assert!(here.stderr.starts_with(&format!("error[{code}]")), "{args:?}: {here:?}");
        assert_eq!(here.stderr.split(']').next(), there.stderr.split(']').next(), "{args:?}: {here:?} {there:?}");
        assert_eq!((here.code, there.code), (exit, exit), "{args:?}: {here:?}");
    }
    let deploy = "function deploy f --runtime oneshot --code shout.sh -- ./shout.sh";
    for args in [&deploy.split(' ').collect::<Vec<_>>()[..], &["namespace", "check"], &["secret", "ls"]] {
        place.run(at(&address, args)).fails("MR4019", 1);
    }
    place.run(at("mr://127.0.0.1:1/farm", &["log", "ls"])).fails("MR6121", 1);
}

#[test]
fn logs_are_made_filled_followed_and_removed_from_afar() {
    let (place, _host, address) = served();
    let remote = |args: &[&str]| place.run(at(&address, args));
    assert_eq!(remote(&["log", "create", "new/log", "--history", "5000"]).ok().text().lines().count(), 1);
    assert!(remote(&["log", "create", "new/log", "--history", "5000"]).ok().text().contains("already"));
    assert_eq!(remote(&["log", "append", "new/log", "first"]).ok().text(), "1\n");
    let lines: String = (2..=3000).map(|n| format!("{n}\n")).collect();
    let reported = place.feed(at(&address, &["log", "append", "new/log", "--lines"]), lines.as_bytes()).ok();
    assert_eq!(reported.text(), "new/log: 2999 records, 2 to 3000\n");
    let receipts =
        place.feed(at(&address, &["--json", "log", "append", "--ndjson"]), b"{\"log\":\"a/b\",\"data\":1}").ok();
    assert_eq!(receipts.object()["seqno"], 3);

    remote(&["log", "export", "new/log", "-o", "x.parquet"]).ok();
    remote(&["log", "create", "copy"]).ok();
    remote(&["log", "import", "copy", "x.parquet", "--skip", "1000"]).ok();
    let copied = place.records("copy");
    assert_eq!((copied.len(), copied[0].as_str(), copied[1999].as_str()), (2000, "1001", "3000"));

    remote(&["log", "set", "copy", "--history", "500"]).ok();
    assert_eq!(place.records("copy").len(), 500);
    remote(&["log", "set", &format!("{address}/copy"), "--history", "all"]).ok();
    assert_eq!(remote(&["--json", "log", "stat", "copy"]).ok().object()["history"], serde_json::Value::Null);

    let follower = ["log", "tail", "new/log", "-l", "1", "--until-idle", "60s", "--raw"];
    let mut follower = place.command(at(&address, &follower)).stdout(Stdio::piped()).spawn().unwrap();
    let mut reported = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(reported.next().as_deref(), Some("3000"));
    place.run(["log", "append", "new/log", "news"]).ok();
    assert_eq!(reported.next().as_deref(), Some("news"), "it follows");
    follower.kill().unwrap();
    follower.wait().unwrap();
    let dead = remote(&["--json", "log", "append", "inbox", "bad"]).ok().object();
    assert_eq!(dead["seqno"], 4);
    remote(&["run", "wait", "--idle", "--timeout", "120s"]).ok();
    assert_eq!(remote(&["--json", "run", "show"]).ok().object()["state"], "dead");
    remote(&["log", "rm", "copy"]).ok();
    place.run(["log", "get", "copy"]).fails("MR2101", 1);
}

#[test]
fn a_damaged_record_is_told_in_its_place_here_and_from_afar() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    place.feed(["log", "append", "a", "--lines"], b"one\nthe-needle\nthree\nfour\n").ok();
    for segment in fs::read_dir(place.namespace().join("segments")).unwrap() {
        let path = segment.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(10).position(|window| window == b"the-needle") {
            bytes[at] ^= 1;
            // In place: the host has it mapped.
            let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&bytes[at..=at]).unwrap();
        }
    }
    for target in [place.namespace().to_str().unwrap(), &address] {
        let got = place.run(at(target, &["--json", "log", "get", "a", "--all"]));
        let seqnos: Vec<u64> = got.objects().iter().map(|record| record["seqno"].as_u64().unwrap()).collect();
        assert_eq!((got.code, &seqnos[..]), (1, &[1, 3, 4][..]), "{got:?}");
        assert!(got.stderr.contains("MR2010") && got.stderr.lines().count() == 1, "{got:?}");
        let exported = place.run(at(target, &["log", "export", "a", "-o", "a.ndjson"]));
        assert_eq!(exported.code, 1, "{exported:?}");
        assert!(exported.stderr.contains("error[MR4013]: 1 record of log 'a' from 1 to 4"), "{exported:?}");
        let lines = fs::read_to_string(place.path().join("a.ndjson")).unwrap();
        assert_eq!(lines.lines().count(), 3, "what can be read is in place");
        fs::remove_file(place.path().join("a.ndjson")).unwrap();
        for ends in [&["--no-follow"][..], &["--until-idle", "1ms"]] {
            let tail = place.run(at(target, &[&["log", "tail", "a", "--raw", "--from", "1"], ends].concat()));
            assert_eq!((tail.code, tail.text()), (1, "one\nthree\nfour\n"), "{tail:?}");
            assert!(tail.stderr.contains("MR2010"), "{tail:?}");
        }
    }
}

#[test]
fn a_tail_ends_when_its_log_is_made_anew_here_and_from_afar() {
    let (place, _host, address) = served();
    for target in [place.namespace().to_str().unwrap(), &address] {
        place.run(["log", "create", "b"]).ok();
        place.run(["log", "append", "b", "old 1"]).ok();
        let tail = ["log", "tail", "b", "--raw", "--until-idle", "120s"];
        let mut tail = place.command(at(target, &tail));
        let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut reported = BufReader::new(tail.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(reported.next().as_deref(), Some("old 1"));
        place.run(["log", "rm", "b"]).ok();
        place.run(["log", "create", "b"]).ok();
        place.feed(["log", "append", "b", "--lines"], b"new 1\nnew 2\nnew 3\n").ok();
        // It may have noticed while there was none.
        let (reported, said) =
            (reported.collect::<Vec<_>>(), std::io::read_to_string(tail.stderr.take().unwrap()).unwrap());
        assert_eq!((wait(&mut tail, "the tail"), reported), (1, Vec::new()), "{said}");
        assert!(said.contains("MR6024") || said.contains("MR2101"), "{said}");
        place.run(["log", "rm", "b"]).ok();
    }
}

#[test]
fn top_tells_what_goes_on() {
    let (place, host, address) = served();
    for target in [place.namespace().to_str().unwrap(), &address] {
        let rates = place.run(["--json", "-n", target, "top", "--once", "--every", "100ms"]).ok().object();
        assert_eq!(rates["host"]["pid"].as_u64(), Some(host.pid().into()), "{rates}");
        let shout = &rates["functions"][0];
        assert_eq!((shout["name"].as_str(), shout["dead"].as_u64()), (Some("shout"), Some(1)), "{rates}");
        assert_eq!(rates["pending"], 0);
        let names: Vec<&Value> = rates["logs"].as_array().unwrap().iter().map(|log| &log["name"]).collect();
        assert!(names.iter().any(|name| *name == "a/b"), "{rates}");
    }
    place.run(["log", "create", "copy"]).ok();
    place.run(["relay", "add", "a/b", "copy"]).ok();
    for target in [place.namespace().to_str().unwrap(), &address] {
        eventually("the relay has carried both records", || {
            let rates = place.run(["--json", "-n", target, "top", "--once", "--every", "50ms"]).ok().object();
            let relay = &rates["links"][0];
            assert_eq!((relay["kind"].as_str(), relay["from"].as_str()), (Some("relay"), Some("a/b")), "{rates}");
            relay["lag_records"] == 0 && relay["state"] == "idle"
        });
    }
    // A rate shows while something is appended.
    let text = place.run(["top", "--once", "--every", "100ms"]).ok();
    assert!(text.text().contains("appends/s") && text.text().contains("shout"), "{text:?}");
    eventually("appends show as a rate", || {
        let top = std::thread::scope(|scope| {
            let top = scope.spawn(|| place.run(["--json", "-n", &address, "top", "--once", "--every", "300ms"]).ok());
            let lines = b"x\n".repeat(200);
            while !top.is_finished() {
                place.feed(["log", "append", "a/b", "--lines", "-q"], &lines).ok();
            }
            top.join().unwrap()
        });
        top.object()["appends_per_second"].as_f64().unwrap() > 1.0
    });
}

#[test]
fn the_benchmark_of_parallelism_is_the_python_packages() {
    let place = Place::empty();
    let typed = ["bench", "parallelism", "2/0/S/s", "--on", "local", "-o", "run.json", "--json"];
    let mut without = place.command(&typed[..typed.len() - 1]);
    without.env("MILLRACE_PYTHON", "/nonexistent/python3");
    let refused = end(without, b"").fails("MR6105", 1);
    assert!(refused.stderr.contains("pip install 'millrace[parallelism]'"), "{refused:?}");
    // An interpreter that has the module, and shows how it is called.
    place.write("python", "#!/bin/sh\n[ \"$1\" = -c ] || { echo \"$MILLRACE_PARALLELISM_NAME: $*\"; exit 3; }\n");
    let mut with = place.command(typed);
    with.env("MILLRACE_PYTHON", "./python");
    let ended = end(with, b"");
    assert_eq!(ended.code, 3, "{ended:?}");
    let called = "millrace bench parallelism: -m millrace.parallelism 2/0/S/s --on local -o run.json --json";
    assert_eq!(ended.text().trim(), called);
}

#[test]
fn bench_measures_and_leaves_nothing_behind() {
    let (place, _host, address) = served();
    let before = place.run(["--json", "log", "ls"]).ok().stdout;
    for (target, more) in [
        (place.namespace().to_str().unwrap(), &["--window", "8"][..]),
        (&address, &["--window", "8", "--connections", "2", "--durability", "memory"]),
        (&address, &["--rate", "200", "--size", "0"]),
    ] {
        let args = [&["--json", "bench", target, "--seconds", "0.3"], more].concat();
        let reported = place.run(args).ok().object();
        let (records, p50) = (reported["records"].as_u64().unwrap(), reported["latency_us"]["p50"].as_f64().unwrap());
        assert!(records > 0 && p50 > 0.0, "{reported}");
        assert!(reported["latency_us"]["max"].as_f64().unwrap() >= p50, "{reported}");
        assert_eq!(place.run(["--json", "log", "ls"]).ok().stdout, before);
    }
    for (connections, window) in [(1, 1), (1, 16), (2, 4)] {
        let shape = ["--connections", &connections.to_string(), "--window", &window.to_string()].map(String::from);
        let args = ["--json", "bench", &address, "--seconds", "0.3"].map(String::from);
        let reported = place.run([&args[..], &shape].concat()).ok().object();
        let mean_us = reported["latency_us"]["mean"].as_f64().unwrap();
        let in_flight = reported["per_second"].as_f64().unwrap() * mean_us / 1e6;
        // Little's law; the histogram keeps a thousandth.
        assert!(in_flight <= f64::from(connections * window) * 1.01, "{in_flight} in flight on average: {reported}");
    }
    let text = place.run(["bench", &address, "--seconds", "0.1"]).ok();
    assert!(text.text().contains("appends/s") && text.text().contains("p99.9"), "{text:?}");
    // However short the time, one append is made; at a low rate none may be due.
    let least = place.run(["--json", "bench", &address, "--seconds", "1e-6", "--size", "256KiB"]).ok().object();
    assert!(least["records"].as_u64().unwrap() > 0, "{least}");
    let none =
        place.run(["--json", "bench", &address, "--seconds", "1e-6", "--connections", "2", "--rate", "1e-3"]).ok();
    assert_eq!(none.object()["records"].as_u64().unwrap(), 1, "the second connection's is due in minutes");
    place.run(["bench", "--seconds", "0"]).fails("MR1006", 2);
    place.run(["bench", "--rate=-1"]).fails("MR1006", 2);
    place.run(["bench", "--size", "17MiB"]).fails("MR1006", 2);
    assert_eq!(place.run(["bench", "--connections", "0"]).code, 2);
    place.run(["bench", &address, "--size", "16MiB", "--seconds", "0.1"]).fails("MR1004", 1);
    assert_eq!(place.run(["--json", "log", "ls"]).ok().stdout, before, "also after a failure");
}
