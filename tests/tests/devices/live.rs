//! Requests to a device that is connected: they see what it has now, and fail with a reason if it is not there.

use super::{Bench, commands::Awake, measured};
use millrace_tests::{Ended, Place, end, eventually};
use serde_json::Value;
use std::{fs, process::Command, thread};

/// A provisioned device.
fn bench() -> Bench {
    let bench = Bench::new();
    let host = format!("127.0.0.1:{}", bench.port);
    bench.place.run(["device", "provision", "kitchen", "--host", &host]).ok();
    bench
}

const KITCHEN: &str = "--provisioned kitchen.identity";

fn get(place: &Place, args: &str) -> Ended {
    place.run(["device", "get", "kitchen"].into_iter().chain(args.split(' ')))
}

fn send(bench: &Bench, log: &str, record: &str) -> Ended {
    bench.place.run(["device", "send", "kitchen", log, record, "--live"])
}

/// The seqno of a record that the device took.
fn sent(bench: &Bench, log: &str, record: &str) -> Value {
    let sent = bench.place.run(["--json", "device", "send", "kitchen", log, record, "--live"]).ok().object();
    assert_eq!(sent["delivered"], true, "{sent}");
    sent["seqno"].clone()
}

/// What the host answers over HTTP.
fn http(bench: &Bench, path: &str) -> Value {
    let mut curl = Command::new("curl");
    curl.arg("-sS").arg(format!("http://127.0.0.1:{}/v1/namespaces{path}", bench.port));
    end(curl, b"").ok().object()
}

/// The name of the namespace.
fn name(bench: &Bench) -> String {
    http(bench, "")["namespaces"][0]["name"].as_str().expect("it has a name").to_owned()
}

/// Waits until the device answers.
fn reached(bench: &Bench) {
    eventually("the device can be asked", || get(&bench.place, "raw --latest").code == 0);
}

fn count(bench: &Bench, of: u64) {
    eventually("the device has measured", || get(&bench.place, "raw --latest").text().trim() == of.to_string());
}

#[test]
fn a_device_tells_what_it_has_and_what_the_host_does_not_keep() {
    let bench = bench();
    let place = &bench.place;
    let _awake = Awake::start(&bench, &format!("--records 100 {KITCHEN}"));
    reached(&bench);
    count(&bench, 100);
    eventually("all has arrived", || place.run(["log", "get", "kitchen/mean", "100"]).code == 0);
    place.run(["log", "trim", "kitchen/raw", "--before", "50", "--force"]).ok();
    place.run(["log", "get", "kitchen/raw", "7"]).fails("MR2104", 1);
    assert_eq!(get(place, "raw 7").ok().text().trim(), measured(7));
    assert_eq!(get(place, "raw").ok().text().trim(), measured(100));
    let lines =
        place.run(["--json", "device", "get", "kitchen", "raw", "--from", "30", "--count", "40"]).ok().objects();
    let found: Vec<&str> = lines.iter().map(|line| line["data"].as_str().unwrap()).collect();
    assert_eq!(found, (30..70).map(measured).collect::<Vec<_>>());
    assert_eq!((&lines[0]["log"], &lines[39]["seqno"]), (&"kitchen/raw".into(), &69.into()));
    // The run of the device is the cause.
    let mean = place.run(["--json", "device", "get", "kitchen", "mean", "60"]).ok().object();
    let imported = place.run(["--json", "log", "get", "kitchen/mean", "60"]).ok().object();
    assert_eq!(mean["data"], imported["data"]);
    assert!(mean["cause"].is_string(), "{mean}");
    get(place, "raw 101").fails("MR2105", 1);
    get(place, "none").fails("MR2101", 1);
    get(place, "a//b").fails("MR1001", 2);
    get(place, "raw 0").fails("MR1003", 2);
    place.run(["device", "get", "cellar", "raw"]).fails("MR6303", 1);
}

#[test]
fn a_record_is_appended_now_or_not_at_all() {
    let bench = bench();
    let place = &bench.place;
    let failed = send(&bench, "config", "every=60").fails("MR6360", 75);
    assert!(failed.stderr.contains("it has never sent anything"), "{}", failed.stderr);
    let awake = Awake::start(&bench, &format!("--records 3 {KITCHEN}"));
    reached(&bench);
    assert_eq!(bench.shown("kitchen")["presence"]["connected"], true);
    assert!(place.run(["device", "ls"]).ok().text().contains("yes, since "));
    assert_eq!(sent(&bench, "config", "every=60"), 1);
    assert_eq!(sent(&bench, "config", "every=50"), 2);
    // A function of the device ran for it, and what it did reaches the host as ever.
    eventually("the device reports", || place.run(["log", "get", "kitchen/applied", "2"]).code == 0);
    assert_eq!(place.records("kitchen/applied"), ["every=60", "every=50"]);
    send(&bench, "raw", "x").fails("MR6132", 1);
    send(&bench, "none", "x").fails("MR2101", 1);
    send(&bench, "config", &"x".repeat(257)).fails("MR1006", 2);
    drop(awake);
    eventually("the host notices", || send(&bench, "config", "every=40").code == 75);
    let failed = send(&bench, "config", "every=40").fails("MR6360", 75);
    assert!(failed.stderr.contains("kitchen is asleep; it was connected until"), "{}", failed.stderr);
    assert_eq!(bench.shown("kitchen")["presence"]["connected"], false);
    assert!(place.run(["device", "show", "kitchen"]).ok().text().contains("connected     until "));
    // Nothing of it waits for the device.
    assert_eq!(bench.shown("kitchen")["commands_waiting"], 0);
    bench.run("kitchen.flash", &format!("--records 4 {KITCHEN}")).ok();
    assert_eq!(place.records("kitchen/config"), ["every=60", "every=50"]);
}

#[test]
fn firmware_that_answers_no_requests_is_named_and_stays_connected() {
    let bench = bench();
    let place = &bench.place;
    let _awake = Awake::start(&bench, &format!("--records 3 --deaf 1 {KITCHEN}"));
    eventually("it is connected", || get(place, "raw").code == 1);
    get(place, "raw").fails("MR6361", 1);
    send(&bench, "config", "a").fails("MR6361", 1);
    // Commands go on over the same connection.
    place.run(["device", "send", "kitchen", "config", "b", "--wait", "100s"]).ok();
    assert_eq!(place.records("kitchen/config"), ["b"]);
}

#[test]
fn a_device_with_a_key_answers_only_a_host_with_its_capability() {
    let bench = bench();
    let place = &bench.place;
    let kept = place.namespace().join("secrets/devices/kitchen.capability");
    let away = place.path().join("away");
    fs::rename(&kept, &away).unwrap();
    let _awake = Awake::start(&bench, &format!("--records 3 {KITCHEN}"));
    eventually("it is connected", || get(place, "raw").code == 1);
    get(place, "raw").fails("MR6132", 1);
    send(&bench, "config", "a").fails("MR6132", 1);
    // On the same connection, once the host has the capability.
    fs::rename(&away, &kept).unwrap();
    eventually("the device lets the host read", || get(place, "raw").code == 0);
    send(&bench, "config", "a").ok();
}

#[test]
fn a_caller_needs_the_right_to_the_log_of_the_device() {
    let bench = bench();
    let place = &bench.place;
    let _awake = Awake::start(&bench, &format!("--records 3 {KITCHEN}"));
    reached(&bench);
    for (file, allow) in [("reader", "read=kitchen/raw"), ("sender", "append=kitchen/config")] {
        place.run(["cap", "issue", "--allow", allow, "--out", &format!("{file}.cap")]).ok();
    }
    let address = format!("mr://127.0.0.1:{}/{}", bench.port, name(&bench));
    let with = |file: &str, args: &str| {
        let mut command = place.command(["-n", &address].into_iter().chain(args.split(' ')));
        command.env("MILLRACE_CAPABILITY", place.path().join(format!("{file}.cap")));
        end(command, b"")
    };
    assert_eq!(with("reader", "device get kitchen raw 2").ok().text().trim(), measured(2));
    with("reader", "device get kitchen mean").fails("MR6132", 1);
    with("reader", "device send kitchen config x --live").fails("MR6132", 1);
    with("sender", "device get kitchen raw").fails("MR6132", 1);
    with("sender", "device send kitchen config x --live").ok();
}

#[test]
fn many_ask_at_once_and_each_gets_its_answer() {
    let bench = bench();
    let _awake = Awake::start(&bench, &format!("--records 40 {KITCHEN}"));
    reached(&bench);
    count(&bench, 40);
    let place = &bench.place;
    thread::scope(|scope| {
        let asked: Vec<_> = (1..=12).map(|seqno| scope.spawn(move || get(place, &format!("raw {seqno}")))).collect();
        for (seqno, asked) in (1..).zip(asked) {
            let answer = asked.join().unwrap().ok();
            assert_eq!(answer.text().trim(), measured(seqno));
        }
    });
}

#[test]
fn a_device_that_is_suspended_is_asked_four_times_and_no_more() {
    let bench = bench();
    let awake = Awake::start(&bench, &format!("--records 3 {KITCHEN}"));
    reached(&bench);
    let place = &bench.place;
    awake.signal("STOP");
    let answers: Vec<Ended> = thread::scope(|scope| {
        let asked: Vec<_> = (0..6).map(|_| scope.spawn(|| get(place, "raw"))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let of = |code: &str| answers.iter().filter(|answer| answer.stderr.contains(code)).count();
    assert_eq!([of("MR6362"), of("MR6363")], [4, 2]);
    awake.signal("CONT");
    eventually("it answers again", || get(place, "raw").code == 0);
}

#[test]
fn http_asks_a_device_too() {
    let bench = bench();
    let _awake = Awake::start(&bench, &format!("--records 5 {KITCHEN}"));
    reached(&bench);
    count(&bench, 5);
    let name = name(&bench);
    let asked = |path: &str| http(&bench, &format!("/{name}/{path}"));
    assert_eq!(asked("devices/kitchen/live/raw?seqno=2")["data"], measured(2));
    assert_eq!(asked("devices/kitchen/live/raw?latest=true")["latest"], 5);
    let part = asked("devices/kitchen/live/raw?from=2&count=3");
    assert_eq!((part["records"].as_array().unwrap().len(), &part["next"]), (3, &5.into()));
}

#[test]
fn a_host_that_was_restarted_still_knows_when_a_device_came() {
    let mut bench = bench();
    let came = |bench: &Bench| -> Vec<u64> { serde_json::from_value(bench.shown("kitchen")["came"].clone()).unwrap() };
    // It has something new each time, so that this is kept with it.
    for records in 1..=3 {
        bench.run("kitchen.flash", &format!("--records {records} {KITCHEN}")).ok();
    }
    let before = came(&bench);
    assert_eq!(before.len(), 3);
    bench.kill();
    bench.serve();
    assert_eq!(came(&bench), before);
    bench.run("kitchen.flash", &format!("--records 4 {KITCHEN}")).ok();
    let after = came(&bench);
    assert_eq!((after.len(), &after[..3]), (4, &before[..]));
    assert!(after.is_sorted() && after[0] > 1_700_000_000_000, "{after:?}");
}
