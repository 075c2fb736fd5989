//! Links between hosts: messages of functions and relays, with both hosts killed again and again.

use millrace_tests::{Ended, Host, Place, end, eventually};
use serde_json::Value;
use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A place and its host, which comes back under the port that it had.
struct Station {
    place: Place,
    host: Option<Host>,
    port: u16,
}

impl Station {
    fn new(place: Place) -> Self {
        let mut station = Self { place, host: None, port: 0 };
        station.start();
        station
    }

    fn command(&self) -> Command {
        let listen = format!("127.0.0.1:{}", self.port);
        self.place.command(["--json", "serve", "--listen", &listen, "--name", "farm", "--drain", "100s"])
    }

    fn start(&mut self) {
        let host = Host::start(self.command());
        self.port = host.port();
        self.host = Some(host);
    }

    /// As a power cut takes it, but for the machine.
    fn kill(&mut self) {
        self.host = None;
    }

    fn log(&self, name: &str) -> &Self {
        self.place.run(["log", "create", name, "--history", "100000"]).ok();
        self
    }

    fn address(&self, log: &str) -> String {
        format!("mr://127.0.0.1:{}/farm/{log}", self.port)
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.place.run(args)
    }

    fn latest(&self, log: &str) -> u64 {
        self.run(&["--json", "log", "stat", log]).ok().object()["latest"].as_u64().unwrap()
    }

    /// The link of this kind and name, as programs see it.
    fn link(&self, kind: &str, name: &str) -> Option<Value> {
        let links = self.run(&["--json", kind, "ls"]).ok().objects();
        links.into_iter().find(|link| link["name"] == name)
    }
}

fn numbers(from: u64, upto: u64) -> Vec<String> {
    (from..=upto).map(|n| n.to_string()).collect()
}

fn feed_numbers(station: &Station, log: &str, from: u64, upto: u64) {
    let lines = numbers(from, upto).join("\n") + "\n";
    station.place.feed(["log", "append", log, "--lines", "--quiet"], lines.as_bytes()).ok();
}

/// Records as they come, each sent on by a function.
fn with_sender(runtime: &str, to: &str) -> Place {
    let place = Place::empty();
    let function = match runtime {
        "python" => {
            place.write("f.py", &format!("def send(record, ctx):\n    ctx.append({to:?}, record.data)\n"));
            "runtime = \"python\"\ncode = \"f.py\"\nhandler = \"f:send\""
        }
        "wasm" | "process" => {
            let append = format!("return mr_append(\"{to}\", record->data, record->size);");
            place.write(
                "f.c",
                &format!("#include \"millrace.h\"\nint handle(const mr_record *record) {{ {append} }}\n"),
            );
            let wasm = ["clang", "--target=wasm32", "-nostdlib", "-Wl,--no-entry"];
            let (compiler, output) = if runtime == "wasm" { (&wasm[..], "f.wasm") } else { (&["cc"][..], "f") };
            let mut command = Command::new(compiler[0]);
            let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c");
            command.args(&compiler[1..]).args(["-O1", "-I"]).arg(include).args(["f.c", "-o", output]);
            command.current_dir(place.path());
            let said = end(command, b"");
            assert_eq!(said.code, 0, "{}", said.stderr);
            if runtime == "wasm" {
                "runtime = \"wasm\"\ncode = \"f.wasm\""
            } else {
                "runtime = \"process\"\ncode = \"f\"\ncommand = [\"./f\"]"
            }
        }
        _ => {
            place.write("f.sh", &format!("#!/bin/sh\nprintf '{to}\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n"));
            "runtime = \"oneshot\"\ncode = \"f.sh\"\ncommand = [\"./f.sh\"]"
        }
    };
    let text = format!(
        "[namespace]\nsegment_size = \"1MiB\"\n[logs.in]\nhistory = 100000\n[functions.f]\n{function}\non = [\"in\"]\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place
}

#[test]
fn what_functions_send_arrives_once_though_both_hosts_are_killed() {
    for (runtime, records) in [("python", 500u64), ("oneshot", 40), ("wasm", 2_000), ("process", 500)] {
        let mut there = Station::new(Place::new());
        there.log("out");
        let mut here = Station::new(with_sender(runtime, &there.address("out")));
        for round in 0..4 {
            feed_numbers(&here, "in", records * round + 1, records * (round + 1));
            // Somewhere on the way.
            eventually("some arrive", || there.latest("out") > records * round);
            match round {
                0 => here.kill(),
                1 => there.kill(),
                _ => {
                    here.kill();
                    there.kill();
                }
            }
            if there.host.is_none() {
                there.start();
            }
            if here.host.is_none() {
                here.start();
            }
        }
        eventually("all arrive", || there.latest("out") >= records * 4);
        here.place.idle();
        assert_eq!(there.place.records("out"), numbers(1, records * 4), "{runtime}");
        let name = format!("127.0.0.1_{}_farm", there.port);
        eventually("the outbox is empty", || here.link("outbox", &name).unwrap()["lag_records"] == 0);
    }
}

#[test]
fn relays_push_and_fetch_though_all_hosts_are_killed() {
    let mut stations = [Place::new(), Place::new(), Place::new()].map(Station::new);
    for station in &stations {
        station.log("raw");
    }
    let middle = stations[1].address("raw");
    stations[0].run(&["relay", "add", "raw", &middle]).ok();
    stations[2].run(&["relay", "add", &middle, "raw", "--name", "fetched"]).ok();
    for round in 0..6u64 {
        feed_numbers(&stations[0], "raw", 3_000 * round + 1, 3_000 * (round + 1));
        let killed = &mut stations[(round % 3) as usize];
        killed.kill();
        killed.start();
    }
    eventually("all arrive", || stations[2].latest("raw") >= 18_000);
    for station in &stations {
        assert_eq!(station.place.records("raw"), numbers(1, 18_000));
    }
    let relay = stations[0].link("relay", "raw").unwrap();
    assert_eq!((&relay["acked"], &relay["lag_records"]), (&Value::from(18_000), &Value::from(0)));
    let shown = stations[2].run(&["relay", "show", "fetched"]).ok();
    assert!(shown.text().contains("lost          0 records"), "{}", shown.text());
}

#[test]
fn a_wiped_peer_is_told_and_the_outbox_goes_on_when_told_to() {
    let mut there = Station::new(Place::new());
    there.log("in");
    let here = Station::new(Place::new());
    let to = there.address("in");
    feed_numbers(&here, &to, 1, 5);
    eventually("they arrive", || there.latest("in") == 5);
    let port = there.port;
    there.kill();
    // While it is away, what is sent waits and says so.
    feed_numbers(&here, &to, 6, 8);
    let name = format!("127.0.0.1_{port}_farm");
    eventually("the outbox says what is wrong", || {
        let link = here.link("outbox", &name).unwrap();
        link["error"].as_str().is_some_and(|error| error.contains("MR6072")) && link["lag_records"] == 3
    });
    let anew = Place::new();
    let mut there = Station { place: anew, host: None, port };
    there.log("in");
    there.start();
    eventually("the link stops", || here.link("outbox", &name).unwrap()["state"] == "stopped");
    let said = here.run(&["outbox", "ls"]).ok();
    assert!(said.text().contains("MR6063") && said.text().contains("millrace outbox reset"), "{}", said.text());
    let why = here.run(&["why"]).ok();
    assert!(why.text().contains(&name) && why.text().contains("MR6063"), "{}", why.text());
    assert!(!why.text().contains("_links"), "logs of the runtime wait for no function: {}", why.text());
    assert_eq!(there.latest("in"), 0, "nothing goes to a namespace that is not the one it was meant for");
    here.run(&["outbox", "reset", &name]).wrong_usage();
    here.run(&["outbox", "reset", "mr://nowhere/x", "--resend"]).fails("MR6076", 1);
    here.run(&["outbox", "reset", &name, "--resend"]).ok();
    eventually("the rest arrives", || there.latest("in") == 3);
    assert_eq!(there.place.records("in"), numbers(6, 8));
    here.run(&["outbox", "rm", &name]).ok();
    assert_eq!(here.link("outbox", &name), None);
}

#[test]
fn mistakes_are_told_where_they_can_be_mended() {
    let there = Station::new(Place::new());
    there.log("in");
    let here = Station::new(Place::new());
    here.log("raw");
    // An address that is none is wrong usage; all else is not.
    let refused = |args: &[&str], code: &str| drop(here.run(args).fails(code, if code == "MR6001" { 2 } else { 1 }));
    refused(&["relay", "add", "raw", "raw"], "MR6075");
    refused(&["relay", "add", "raw", "mr://127.0.0.1:1/x"], "MR6075");
    refused(&["relay", "add", "mr://a/b/c", "mr://d/e/f"], "MR6075");
    refused(&["relay", "add", "_links", "mr://a/b/c"], "MR6075");
    refused(&["relay", "add", "nowhere", "mr://a/b/c"], "MR2101");
    refused(&["relay", "add", "raw", "mr://a"], "MR6001");
    refused(&["relay", "show", "x"], "MR6070");
    refused(&["relay", "rm", "x"], "MR6070");
    refused(&["relay", "resume", "x"], "MR6070");
    refused(&["log", "append", "mr://127.0.0.1:1/x", "y"], "MR6001");
    // A circle: the relay that would close it stops.
    here.run(&["relay", "add", "raw", &there.address("in")]).ok();
    refused(&["log", "append", "_links", "y"], "MR6022");
    feed_numbers(&here, "raw", 1, 2);
    eventually("they arrive", || there.latest("in") == 2);
    there.run(&["relay", "add", "in", &here.address("raw")]).ok();
    eventually("the circle is seen", || there.link("relay", "in").unwrap()["code"] == "MR6068");
    assert_eq!((here.latest("raw"), there.latest("in")), (2, 2));
    there.run(&["relay", "rm", "in", "--force"]).ok();
    // What the other side will never take is a dead letter, and the rest arrives.
    feed_numbers(&here, &there.address("nowhere"), 1, 2);
    feed_numbers(&here, &there.address("in"), 3, 3);
    eventually("the rest arrives", || there.latest("in") == 3);
    let dead = here.place.records("dead/outbox");
    assert_eq!(dead.len(), 2);
    let name = format!("127.0.0.1_{}_farm", there.port);
    eventually("all are done", || here.link("outbox", &name).unwrap()["lag_records"] == 0);
    let outbox = here.link("outbox", &name).unwrap();
    assert_eq!((&outbox["sent"], &outbox["dead"], &outbox["acked"]), (&1.into(), &2.into(), &3.into()), "{outbox}");
    assert!(dead[0].contains("MR2101") && dead[1].contains("MR2101"), "{dead:?}");
}

/// Appends to a log, many times a second, until it is dropped.
struct Stream {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stream {
    fn into(station: &Station, log: &str) -> Self {
        let mut command = station.place.command(["log", "append", log, "--lines", "--quiet"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (stop, mut stdin) = (over.clone(), child.stdin.take().unwrap());
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && stdin.write_all(b"x\n").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
            drop(stdin);
            child.wait().unwrap();
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_circle_that_closes_under_load_is_refused_and_a_busy_relay_can_be_removed() {
    let stations = [Place::new(), Place::new(), Place::new()].map(Station::new);
    for station in &stations {
        station.log("raw");
    }
    let [a, b, c] = &stations;
    let stream = Stream::into(b, "raw");
    let relay = |from: &Station, to: &Station| drop(from.run(&["relay", "add", "raw", &to.address("raw")]).ok());
    relay(b, c);
    eventually("records arrive", || c.latest("raw") > 10);
    relay(a, b);
    eventually("the other side is met", || !a.link("relay", "raw").unwrap()["peer"].is_null());
    relay(c, a);
    let stopped = |station: &Station| station.link("relay", "raw").unwrap()["code"] == "MR6068";
    eventually("the circle is refused", || stations.iter().any(stopped));
    // While records still come, a relay that is not stopped is removed.
    let (here, there) = if stopped(b) { (c, a) } else { (b, c) };
    let said = here.run(&["relay", "rm", "raw"]).ok();
    assert!(said.text().contains("takes up no more records"), "{}", said.text());
    eventually("it is gone", || here.link("relay", "raw").is_none());
    let (gone, left) = (here.latest("raw"), there.latest("raw"));
    if std::ptr::eq(here, b) {
        eventually("records go on coming", || here.latest("raw") > gone + 20);
        assert_eq!(there.latest("raw"), left, "what is gone forwards nothing");
    }
    drop(stream);
    let all = || stations.iter().map(|station| station.latest("raw")).sum::<u64>();
    let has_nothing_to_do = |station: &Station| {
        station.link("relay", "raw").is_none_or(|link| link["state"] == "stopped" || link["lag_records"] == 0)
    };
    eventually("nothing goes round", || {
        let before = all();
        stations.iter().all(has_nothing_to_do) && all() == before
    });
}

#[test]
fn a_trimmed_log_gives_back_its_room_and_keeps_its_count() {
    let place = Place::new();
    place.run(["log", "create", "in"]).ok();
    place.feed(["log", "append", "in", "--lines", "--quiet"], b"1\n2\n3\n4\n").ok();
    place.run(["log", "trim", "in", "--before", "6"]).fails("MR2105", 1);
    place.run(["log", "trim", "in"]).wrong_usage();
    assert_eq!(place.run(["log", "trim", "in", "--before", "3"]).ok().text(), "dropped 2 records of log in\n");
    place.run(["log", "get", "in", "2"]).fails("MR2104", 1);
    assert_eq!(place.records("in"), ["3", "4"]);
    place.run(["log", "trim", "in", "--all"]).ok();
    let stat = place.run(["--json", "log", "stat", "in"]).ok().object();
    assert_eq!((&stat["records"], &stat["latest"]), (&Value::from(0), &Value::from(4)));
    assert_eq!(place.run(["log", "append", "in", "5"]).ok().text(), "5\n");
    assert_eq!(place.records("in"), ["5"]);
}

/// For commands that clap refuses.
trait WrongUsage {
    fn wrong_usage(self);
}

impl WrongUsage for Ended {
    #[track_caller]
    fn wrong_usage(self) {
        assert_eq!(self.code, 2, "{self:#?}");
    }
}
