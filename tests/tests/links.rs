//! Links between hosts: messages of functions and relays, with both hosts killed again and again.

use millrace_tests::{Ended, Host, Place, Port, end, eventually};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
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
    port: Port,
}

impl Station {
    fn new(place: Place) -> Self {
        let mut station = Self { place, host: None, port: Port::reserve() };
        station.start();
        station
    }

    fn command(&self) -> Command {
        let listen = format!("127.0.0.1:{}", self.port);
        self.place.command(["--json", "serve", "--listen", &listen, "--name", "farm", "--drain", "100s"])
    }

    fn start(&mut self) {
        self.host = Some(Host::start(self.command()));
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

    /// The name that its namespace has as a peer.
    fn peer(&self) -> String {
        format!("127.0.0.1_{}_farm", self.port)
    }

    /// What its host says next of a link that contains all of `texts`.
    fn says(&self, texts: &[&str]) -> Value {
        loop {
            let line = self.host.as_ref().expect("it runs").line_with(&["\"event\":\"link\""]);
            if texts.iter().all(|text| line.contains(text)) {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// A number for Prometheus.
    fn metric(&self, start: &str) -> Option<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().find(|line| line.starts_with(start))?.rsplit_once(' ')?.1.trim().parse().ok()
    }
}

/// With larger segments than others have, and so with records that those can never take.
fn large() -> Place {
    let place = Place::empty();
    place.run(["init", "--bare", "--segment-size", "2MiB", "--durability", "memory"]).ok();
    place
}

const TOO_LONG_BYTES: usize = (256 << 10) + 1;

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
        "[namespace]\nsegment_size = \"1MiB\"\n[logs.in]\nhistory = 100000\n[functions.f]\n{function}\non = [\"in\"]\n\
         sends = [\"{to}\"]\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place
}

#[test]
fn messages_of_functions_arrive_once_though_both_hosts_are_killed() {
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
    let name = there.peer();
    there.kill();
    // While it is away, what is sent waits and says so.
    feed_numbers(&here, &to, 6, 8);
    eventually("the outbox says what is wrong", || {
        let link = here.link("outbox", &name).unwrap();
        assert!(link["error"].is_null() == link["code"].is_null(), "{link}");
        assert!(link["error"].is_null() == link["remedy"].is_null(), "{link}");
        link["code"] == "MR6072" && link["lag_records"] == 3
    });
    let anew = Place::new();
    let mut there = Station { place: anew, host: None, port: there.port };
    there.log("in");
    there.start();
    eventually("the link stops", || here.link("outbox", &name).unwrap()["state"] == "stopped");
    let said = here.run(&["outbox", "ls"]).ok();
    assert!(said.text().contains("MR6063") && said.text().contains("millrace outbox reset"), "{}", said.text());
    let why = here.run(&["why"]).ok();
    assert!(why.text().contains(&name) && why.text().contains("MR6063"), "{}", why.text());
    let reported = here.says(&[&name, "\"stopped\""]);
    assert_eq!(reported["error"]["code"], "MR6063");
    assert!(reported["error"]["remedy"].as_str().unwrap().contains("outbox reset"), "{reported}");
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
    let here = Station::new(large());
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
    let too_long = format!("{0}\n{0}\n", "x".repeat(TOO_LONG_BYTES));
    here.place.feed(["log", "append", &there.address("in"), "--lines", "--quiet"], too_long.as_bytes()).ok();
    feed_numbers(&here, &there.address("in"), 3, 3);
    eventually("the rest arrives", || there.latest("in") == 3);
    let dead = here.place.records("dead/outbox");
    assert_eq!(dead.len(), 2);
    // And loud.
    let reported: u64 = here.says(&[&there.peer(), "\"dead\""])["records"].as_u64().unwrap();
    if reported < 2 {
        assert_eq!(here.says(&[&there.peer(), "\"dead\""])["records"], 2 - reported);
    }
    assert!(here.run(&["why"]).ok().text().contains("log 'dead/outbox' has 2"));
    assert_eq!(here.metric("millrace_dead_letters_total{namespace=\"farm\",log=\"dead/outbox\"}"), Some(2));
    let name = format!("127.0.0.1_{}_farm", there.port);
    eventually("all are done", || here.link("outbox", &name).unwrap()["lag_records"] == 0);
    let outbox = here.link("outbox", &name).unwrap();
    assert_eq!((&outbox["sent"], &outbox["dead"], &outbox["acked"]), (&1.into(), &2.into(), &3.into()), "{outbox}");
    assert!(dead.iter().all(|letter| letter.contains("MR1004")), "{dead:?}");
    let top = here.run(&["--json", "top", "--once"]).ok().object();
    let shown = top["links"].as_array().unwrap().iter().find(|link| link["kind"] == "outbox").unwrap();
    assert_eq!(shown["dead"], 2, "{shown}");
}

#[test]
fn messages_wait_for_a_missing_log_and_the_wait_is_reported() {
    let there = Station::new(Place::new());
    there.log("in");
    let here = Station::new(Place::new());
    let name = there.peer();
    feed_numbers(&here, &there.address("late"), 1, 1500);
    feed_numbers(&here, &there.address("in"), 1, 3);
    eventually("what is for another log goes past", || there.latest("in") == 3);
    eventually("the link waits", || {
        let link = here.link("outbox", &name).unwrap();
        link["state"] == "waiting" && link["lag_records"] == 1500
    });
    let link = here.link("outbox", &name).unwrap();
    assert_eq!((&link["code"], &link["error"]), (&json!("MR6080"), &json!("no log 'late'")), "{link}");
    assert!(link["remedy"].as_str().unwrap().contains("millrace log create"), "{link}");
    assert_eq!((&link["lag_records"], &link["connected"], &link["dead"]), (&json!(1500), &json!(true), &json!(0)));
    for moment in [&link["last_contact"], &link["next_try"]] {
        let is_moment = moment.as_str().is_some_and(|text| text.ends_with('Z') && text.contains('T'));
        assert!(is_moment || moment.is_null(), "{link}");
    }
    let reported = here.says(&[&name, "waiting"]);
    assert_eq!((&reported["error"]["code"], &reported["error"]["detail"]), (&json!("MR6080"), &json!("no log 'late'")));
    let why = here.run(&["why"]).ok();
    assert!(
        why.text().contains("MR6080: no log 'late'") && why.text().contains("millrace log create"),
        "{}",
        why.text()
    );
    let labels = format!("{{namespace=\"farm\",kind=\"outbox\",link=\"{name}\"}}");
    let metric = |name: &str| here.metric(&format!("millrace_link_{name}{labels}"));
    assert_eq!((metric("connected"), metric("waiting"), metric("stopped")), (Some(1), Some(1), Some(0)));
    there.log("late");
    eventually("all arrive", || there.latest("late") == 1500 && there.latest("in") == 3);
    assert_eq!(there.place.records("late"), numbers(1, 1500));
    // It was said once that the link waits, and it is said that this is over.
    assert_eq!(here.says(&[&name])["change"], "connected");
    here.run(&["log", "stat", "dead/outbox"]).fails("MR2101", 1);
    eventually("the link is well", || metric("waiting") == Some(0));
    eventually("it is idle", || here.link("outbox", &name).unwrap()["state"] == "idle");
    assert_eq!(here.link("outbox", &name).unwrap()["code"], Value::Null);
    // A peer that is away holds nothing back where there is nothing to send.
    drop(there);
    eventually("the connection is seen to be gone", || metric("connected") == Some(0));
    assert!(!here.run(&["why"]).ok().text().contains(&name), "an idle link holds nothing back");
    let why = here.run(&["why", &name]).ok();
    assert!(why.text().contains("nothing to forward"), "{}", why.text());
}

#[test]
fn what_waits_for_a_log_that_never_comes_is_dropped_when_told() {
    let there = Station::new(Place::new());
    there.log("in");
    let here = Station::new(Place::new());
    let name = there.peer();
    feed_numbers(&here, &there.address("never"), 1, 20);
    eventually("the link waits", || here.link("outbox", &name).unwrap()["state"] == "waiting");
    assert!(here.run(&["outbox", "reset", &name, "--skip"]).ok().text().contains("20 messages dropped"));
    feed_numbers(&here, &there.address("in"), 1, 3);
    eventually("what was sent since arrives", || there.latest("in") == 3);
    assert_eq!(there.place.records("in"), numbers(1, 3));
}

#[test]
fn records_lost_to_history_stop_a_relay_which_reports_it_and_the_skipped_records() {
    let there = Station::new(Place::new());
    there.log("in");
    let mut here = Station::new(Place::new());
    here.run(&["log", "create", "raw", "--history", "100"]).ok();
    here.run(&["relay", "add", "raw", &there.address("in"), "--name", "r"]).ok();
    feed_numbers(&here, "raw", 1, 50);
    eventually("they arrive", || there.latest("in") == 50);
    assert_eq!(here.says(&["\"r\""])["change"], "connected");
    here.kill();
    feed_numbers(&here, "raw", 51, 350);
    here.start();
    let reported = here.says(&["\"r\"", "stopped"]);
    assert_eq!(reported["error"]["code"], "MR6067", "{reported}");
    let link = here.link("relay", "r").unwrap();
    assert_eq!((&link["state"], &link["code"]), (&json!("stopped"), &json!("MR6067")));
    let said = here.run(&["relay", "resume", "r"]).ok();
    assert_eq!(said.text(), "relay r continues; 200 records skipped (51 to 250): no longer in the history\n");
    eventually("the rest arrives", || there.latest("in") == 150);
    assert_eq!(there.place.records("in"), [numbers(1, 50), numbers(251, 350)].concat());
    assert_eq!(here.says(&["\"r\"", "\"lost\""])["records"], 200);
    assert_eq!(here.run(&["relay", "resume", "r"]).ok().text(), "relay r continues\n");
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
fn a_cycle_that_closes_under_load_is_refused_and_a_busy_relay_can_be_removed() {
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
    assert!(said.text().contains("forwards no more records"), "{}", said.text());
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
