//! What happens to namespaces in years of use: they are put back from older copies, cloned, restored from backups, given another clock and
//! another capability. Links lose nothing without a word, and each printed remedy is executed.

use millrace_tests::{Ended, Host, Place, Port, eventually};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::Command,
};

/// A place and its host, which comes back under the port that it had.
struct Station {
    place: Place,
    host: Option<Host>,
    port: Port,
    env: Vec<(&'static str, String)>,
}

impl Station {
    fn new() -> Self {
        Self::at(Place::new())
    }

    fn at(place: Place) -> Self {
        Self { place, host: None, port: Port::reserve(), env: Vec::new() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn start(&mut self) -> &mut Self {
        self.start_at(&format!("127.0.0.1:{}", self.port))
    }

    fn start_at(&mut self, listen: &str) -> &mut Self {
        let serve = self.command(&["--json", "serve", "--listen", listen, "--name", "farm", "--drain", "100s"]);
        self.host = Some(Host::start(serve));
        self
    }

    /// Stops it as an operator does.
    fn stop(&mut self) -> &mut Self {
        let host = self.host.take().expect("it runs");
        host.signal("TERM");
        assert_eq!(host.ended(), 0);
        self
    }

    fn run(&self, args: &[&str]) -> Ended {
        millrace_tests::end(self.command(args), b"")
    }

    fn log(&self, name: &str) -> &Self {
        self.run(&["log", "create", name, "--history", "100000"]).ok();
        self
    }

    fn feed(&self, log: &str, from: u64, upto: u64) {
        let lines = numbers(from, upto).join("\n") + "\n";
        millrace_tests::end(self.command(&["log", "append", log, "--lines", "--quiet"]), lines.as_bytes()).ok();
    }

    fn address(&self, log: &str) -> String {
        format!("mr://127.0.0.1:{}/farm/{log}", self.port)
    }

    fn latest(&self, log: &str) -> u64 {
        self.run(&["--json", "log", "stat", log]).ok().object()["latest"].as_u64().unwrap()
    }

    fn has(&self, log: &str, records: u64) -> &Self {
        eventually(&format!("{records} records of {log}"), || self.latest(log) >= records);
        self
    }

    /// The code that stopped a link of this kind.
    fn stop_code(&self, kind: &str) -> Option<String> {
        let links = self.run(&["--json", kind, "ls"]).ok().objects();
        links.iter().find(|link| link["state"] == "stopped").map(|link| link["code"].as_str().unwrap().to_owned())
    }

    fn stops(&self, kind: &str, code: &str) -> &Self {
        eventually(&format!("{code} stops the {kind}"), || self.stop_code(kind).as_deref() == Some(code));
        self
    }

    /// What this end acknowledged of everything that was sent.
    fn rests(&self, kind: &str) -> &Self {
        eventually("everything is acknowledged", || {
            let links = self.run(&["--json", kind, "ls"]).ok().objects();
            links.iter().all(|link| link["lag_records"] == 0)
        });
        self
    }

    fn why(&self) -> String {
        self.run(&["why"]).ok().text().to_owned()
    }

    /// The answer to `/readyz`.
    fn ready(&self) -> String {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A copy of the namespace's directory, which no process has open.
    fn copied(&self) -> PathBuf {
        let to = self.place.path().join("older");
        copy(&self.place.namespace(), &to);
        to
    }

    /// Puts a copy in the place of the directory.
    fn put_back(&self, older: &PathBuf) {
        fs::remove_dir_all(self.place.namespace()).unwrap();
        copy(older, &self.place.namespace());
    }
}

fn copy(from: &PathBuf, to: &PathBuf) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn numbers(from: u64, upto: u64) -> Vec<String> {
    (from..=upto).map(|n| n.to_string()).collect()
}

/// A hub, and an edge with a relay to it.
fn pair() -> (Station, Station) {
    let (mut hub, mut edge) = (Station::new(), Station::new());
    hub.log("in");
    hub.start();
    edge.log("all").run(&["relay", "add", "all", &hub.address("in")]).ok();
    edge.start();
    (hub, edge)
}

#[test]
fn a_sender_put_back_from_an_older_copy_stops_on_both_sides_and_the_remedy_loses_nothing() {
    let (hub, mut edge) = pair();
    hub.log("mail");
    let mail = hub.address("mail");
    edge.feed("all", 1, 10);
    edge.feed(&mail, 1, 10);
    hub.has("in", 10).has("mail", 10);
    edge.rests("relay").rests("outbox");
    let older = edge.stop().copied();
    edge.start();
    edge.feed("all", 11, 20);
    edge.feed(&mail, 11, 20);
    hub.has("in", 20).has("mail", 20);
    edge.rests("relay").rests("outbox");
    edge.stop();
    edge.put_back(&older);
    // As many as were lost, and more, before any host runs: their numbers and ids are those of what came before.
    edge.feed("all", 111, 125);
    edge.feed(&mail, 111, 125);
    edge.start();
    edge.stops("relay", "MR6081").stops("outbox", "MR6081");
    hub.host.as_ref().unwrap().line_with(&["\"change\":\"refused\""]);
    let why = hub.why();
    assert!(why.contains("MR6081") && why.contains("relay resume"), "{why}");
    assert!(edge.why().contains("MR6081"));
    edge.run(&["relay", "resume", "all"]).ok();
    edge.run(&["outbox", "reset", &mail, "--resend"]).ok();
    edge.feed("all", 201, 202);
    edge.feed(&mail, 201, 202);
    let expected = [numbers(1, 20), numbers(111, 125), numbers(201, 202)].concat();
    hub.has("in", 37).has("mail", 37);
    assert_eq!((hub.place.records("in"), hub.place.records("mail")), (expected.clone(), expected));
}

#[test]
fn one_image_on_two_gateways_delivers_the_records_of_both() {
    let (hub, mut edge) = pair();
    edge.feed("all", 1, 3);
    hub.has("in", 3);
    edge.rests("relay");
    edge.stop();
    let mut clone = Station::at(Place::empty());
    copy(&edge.place.namespace(), &clone.place.namespace());
    edge.start();
    clone.start();
    edge.feed("all", 11, 15);
    clone.feed("all", 21, 25);
    let all = [numbers(1, 3), numbers(11, 15), numbers(21, 25)].concat();
    eventually("all records of both, after the remedy", || {
        for gateway in [&edge, &clone] {
            if gateway.stop_code("relay").is_some_and(|code| code == "MR6081") {
                gateway.run(&["relay", "resume", "all"]).ok();
            }
        }
        let came = hub.place.records("in");
        all.iter().all(|record| came.contains(record))
    });
    // Both go on, and neither stops the other.
    edge.feed("all", 31, 32);
    clone.feed("all", 41, 42);
    let more = [numbers(31, 32), numbers(41, 42)].concat();
    eventually("more of both", || {
        let came = hub.place.records("in");
        more.iter().all(|record| came.contains(record))
    });
    assert_eq!((edge.stop_code("relay"), clone.stop_code("relay")), (None, None));
    assert!(hub.why().contains("MR6081"));
}

#[test]
fn a_receiver_put_back_from_an_older_copy_gets_what_it_lacks() {
    let (mut hub, edge) = pair();
    edge.feed("all", 1, 10);
    hub.has("in", 10);
    edge.rests("relay");
    let older = hub.stop().copied();
    hub.start();
    edge.feed("all", 11, 20);
    hub.has("in", 20);
    edge.rests("relay");
    hub.stop().put_back(&older);
    hub.start();
    edge.stops("relay", "MR6064").run(&["relay", "resume", "all"]).ok();
    edge.feed("all", 21, 22);
    hub.has("in", 22);
    assert_eq!(hub.place.records("in"), numbers(1, 22));
}

#[test]
fn a_receiver_restored_from_a_backup_gets_what_it_lacks_and_nothing_twice() {
    let (mut hub, edge) = pair();
    hub.log("mail");
    let mail = hub.address("mail");
    edge.feed("all", 1, 10);
    edge.feed(&mail, 1, 10);
    hub.has("in", 10).has("mail", 10);
    edge.rests("relay").rests("outbox");
    hub.run(&["namespace", "backup", "monday"]).ok();
    edge.feed("all", 11, 20);
    hub.has("in", 20);
    edge.rests("relay");
    hub.stop();
    edge.feed("all", 21, 25);
    edge.feed(&mail, 11, 15);
    fs::remove_dir_all(hub.place.namespace()).unwrap();
    hub.run(&["namespace", "restore", "monday", ".millrace"]).ok();
    hub.start();
    edge.stops("relay", "MR6063").stops("outbox", "MR6063");
    edge.run(&["relay", "resume", "all"]).ok();
    edge.run(&["outbox", "reset", &mail, "--resend"]).ok();
    hub.has("in", 25).has("mail", 15);
    edge.feed("all", 26, 26);
    hub.has("in", 26);
    assert_eq!((hub.place.records("in"), hub.place.records("mail")), (numbers(1, 26), numbers(1, 15)));
}

#[test]
fn a_fetching_relay_sees_a_source_that_was_put_back_or_restored() {
    let (mut source, mut hub) = (Station::new(), Station::new());
    source.log("all");
    source.start();
    hub.log("in").run(&["relay", "add", &source.address("all"), "in", "--name", "fetch"]).ok();
    hub.start();
    source.feed("all", 1, 10);
    hub.has("in", 10);
    let older = source.stop().copied();
    source.start();
    source.feed("all", 11, 20);
    hub.has("in", 20);
    source.stop().put_back(&older);
    source.feed("all", 111, 125);
    source.start();
    hub.stops("relay", "MR6081").run(&["relay", "resume", "fetch", "--start", "11"]).ok();
    hub.has("in", 35);
    source.run(&["namespace", "backup", "monday"]).ok();
    source.feed("all", 126, 130);
    hub.has("in", 40);
    source.stop();
    fs::remove_dir_all(source.place.namespace()).unwrap();
    source.run(&["namespace", "restore", "monday", ".millrace"]).ok();
    source.feed("all", 201, 203);
    source.start();
    hub.stops("relay", "MR6063").run(&["relay", "resume", "fetch"]).ok();
    hub.has("in", 43);
    source.feed("all", 204, 204);
    hub.has("in", 44);
    assert_eq!(hub.place.records("in"), [numbers(1, 20), numbers(111, 130), numbers(201, 204)].concat());
}

/// The library that gives a program another time.
fn faketime() -> Option<PathBuf> {
    let places = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    places.chain(["/usr/lib/faketime/libfaketimeMT.so.1".into()]).find(|path| path.exists())
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_stops_no_link_check_or_backup() {
    let Some(library) = faketime() else {
        eprintln!("NOT TESTED: clocks that jump. Debian's package faketime has the library that lets them.");
        return;
    };
    let ahead = [("LD_PRELOAD", library.display().to_string()), ("FAKETIME", "+2d".to_owned())];
    for wrong in ["hub", "edge"] {
        let (hub, edge) = pair();
        let mail = hub.address("mail");
        hub.log("mail");
        let station = if wrong == "hub" { &hub } else { &edge };
        let log = if wrong == "hub" { "in" } else { "all" };
        let mut append = station.command(&["log", "append", log, "100"]);
        append.envs(ahead.iter().map(|(name, value)| (name, value)));
        millrace_tests::end(append, b"").ok();
        edge.feed("all", 1, 10);
        edge.feed(&mail, 1, 10);
        hub.has("in", 11).has("mail", 10);
        edge.rests("relay").rests("outbox");
        edge.feed("all", 11, 11);
        hub.has("in", 12);
        let time = |log: &str, seqno: &str| {
            let record = station.run(&["--json", "log", "get", log, seqno]).ok().object();
            record["time"].as_str().unwrap().to_owned()
        };
        assert!(time(log, "1") > time(log, "2"), "only its own record has that time");
        assert!(time(log, "2") < time(log, "12"), "time goes on");
        let why = station.why();
        assert!(why.contains("MR2018"), "{why}");
        let ready = station.ready();
        assert!(ready.starts_with("HTTP/1.1 200 ") && ready.contains("warning") && ready.contains("MR2018"), "{ready}");
        let checked = station.run(&["--json", "namespace", "check"]).ok().object();
        assert_eq!((&checked["sound"], &checked["warnings"][0]["code"]), (&Value::Bool(true), &Value::from("MR2018")));
        station.run(&["namespace", "backup", "monday"]).ok();
        station.run(&["namespace", "restore", "monday", "copy"]).ok();
        station.run(&["-n", "copy", "namespace", "check"]).ok();
        station.run(&["-n", "copy", "log", "append", log, "again"]).ok();
    }
}

#[test]
fn a_relay_goes_on_when_its_capability_is_replaced_by_one_of_another_name() {
    let (mut hub, mut edge) = (Station::new(), Station::new());
    hub.log("in");
    let (listen, address) = (format!("0.0.0.0:{}", hub.port), format!("127.0.0.2:{}", hub.port));
    hub.start_at(&listen);
    let invite = |name: &str| {
        let line = hub.run(&["invite", name, "--append", "in", "--address", &address, "--served-as", "farm"]).ok();
        edge_line(line.text())
    };
    edge.log("all").run(&["join", &invite("edge")]).ok();
    edge.run(&["relay", "add", "all", &format!("mr://{address}/farm/in")]).ok();
    edge.start();
    edge.feed("all", 1, 5);
    hub.has("in", 5);
    edge.rests("relay");
    // Another name, as the guide has it.
    edge.run(&["join", &invite("deployer"), "--context", "deploy"]).ok();
    edge.stop().start();
    edge.feed("all", 6, 10);
    hub.has("in", 10);
    edge.rests("relay");
    // Revoked, and invited again under a third one.
    let audit = hub.run(&["--json", "cap", "audit"]).ok().objects();
    let redeemed = audit.iter().filter(|event| event["act"] == "cap.redeem");
    for id in redeemed.map(|event| event["ids"][1].as_str().unwrap()) {
        hub.run(&["cap", "revoke", id]).ok();
    }
    edge.run(&["join", &invite("third"), "--context", "third"]).ok();
    edge.stop().start();
    edge.feed("all", 11, 15);
    hub.has("in", 15);
    assert_eq!(hub.place.records("in"), numbers(1, 15));
    assert_eq!(edge.stop_code("relay"), None);
}

/// The line that an invitation prints.
fn edge_line(text: &str) -> String {
    text.split_whitespace().find(|word| word.starts_with("mri1_")).expect("the line of an invitation").to_owned()
}

/// A hub, and an edge that sends it records of a relay and messages, ten of each.
fn busy_pair() -> (Station, Station, String) {
    let (hub, edge) = pair();
    let mail = hub.address("mail");
    hub.log("mail");
    edge.feed("all", 1, 10);
    edge.feed(&mail, 1, 10);
    hub.has("in", 10).has("mail", 10);
    edge.rests("relay").rests("outbox");
    (hub, edge, mail)
}

fn both(station: &Station) -> (Vec<String>, Vec<String>) {
    (station.place.records("in"), station.place.records("mail"))
}

#[test]
fn links_go_on_at_a_new_address_of_the_same_namespace_with_nothing_lost_or_sent_twice() {
    let (mut hub, edge, mail) = busy_pair();
    hub.stop();
    // These wait.
    edge.feed("all", 11, 15);
    edge.feed(&mail, 11, 15);
    hub.port = Port::reserve();
    hub.start();
    let peer = hub.address("mail").replace("/mail", "");
    edge.run(&["relay", "set", "all", "--to", &peer]).ok();
    let old = mail.replace("/mail", "");
    edge.run(&["outbox", "set", &old, "--to", &peer]).ok();
    hub.has("in", 15).has("mail", 15);
    // Functions name the old address as well as the new one, and there is one outbox.
    edge.feed(&mail, 16, 18);
    edge.feed(&hub.address("mail"), 19, 20);
    hub.has("mail", 20);
    assert_eq!(edge.run(&["--json", "outbox", "ls"]).ok().objects().len(), 1);
    edge.feed("all", 16, 20);
    hub.has("in", 20);
    edge.rests("relay").rests("outbox");
    // The directory goes to another machine.
    hub.stop();
    let mut moved = Station::at(Place::empty());
    copy(&hub.place.namespace(), &moved.place.namespace());
    moved.start();
    let there = moved.address("in");
    let set = edge.run(&["--json", "relay", "set", "all", "--to", &there]).ok().object();
    assert_eq!((&set["to"], &set["moving"]), (&Value::from(there), &Value::Bool(false)), "{set}");
    // Nothing waits, and it is checked all the same.
    let peer = moved.address("mail").replace("/mail", "");
    let set = edge.run(&["--json", "outbox", "set", &old, "--to", &peer]).ok().object();
    assert_eq!(set["moving"], false, "{set}");
    edge.feed("all", 21, 22);
    edge.feed(&mail, 21, 22);
    moved.has("in", 22).has("mail", 22);
    assert_eq!(both(&moved), (numbers(1, 22), numbers(1, 22)));
}

#[test]
fn links_do_not_go_on_at_the_address_of_another_namespace_and_go_on_at_the_right_one() {
    let (mut hub, edge, mail) = busy_pair();
    let mut other = Station::new();
    other.log("in").log("mail");
    other.start();
    let (wrong, old) = (other.address("in"), mail.replace("/mail", ""));
    edge.run(&["relay", "set", "all", "--to", &wrong]).fails("MR6063", 1);
    edge.run(&["outbox", "set", &old, "--to", &wrong.replace("/in", "")]).fails("MR6063", 1);
    assert!(edge.run(&["relay", "show", "all"]).ok().text().contains("relay set"));
    // Neither another log, nor the side that has no address, nor an address of a log where that of a namespace is due.
    edge.run(&["relay", "set", "all", "--to", &hub.address("mail")]).fails("MR6075", 1);
    edge.run(&["relay", "set", "all", "--from", &wrong]).fails("MR6075", 1);
    edge.run(&["outbox", "set", &old, "--to", &wrong]).fails("MR6001", 2);
    hub.stop();
    hub.port = Port::reserve();
    hub.start();
    let peer = hub.address("in").replace("/in", "");
    edge.run(&["relay", "set", "all", "--to", &peer]).ok();
    edge.run(&["outbox", "set", &old, "--to", &peer]).ok();
    edge.feed("all", 11, 15);
    edge.feed(&mail, 11, 15);
    hub.has("in", 15).has("mail", 15);
    assert_eq!(both(&hub), (numbers(1, 15), numbers(1, 15)));
    assert_eq!(both(&other), (vec![], vec![]));
    // A copy that lacks what was acknowledged is not taken for it, either.
    let older = hub.stop().copied();
    hub.start();
    edge.feed("all", 16, 20);
    hub.has("in", 20);
    edge.rests("relay");
    hub.stop();
    let mut copied = Station::at(Place::empty());
    copy(&older, &copied.place.namespace());
    copied.start();
    edge.run(&["relay", "set", "all", "--to", &copied.address("in")]).fails("MR6064", 1);
    edge.run(&["relay", "resume", "all"]).ok();
    copied.has("in", 20);
    assert_eq!(copied.place.records("in"), numbers(1, 20));
}

#[test]
fn links_go_on_at_a_restored_copy_that_has_everything_and_a_fetching_relay_at_a_moved_source() {
    let (mut hub, edge, mail) = busy_pair();
    hub.run(&["namespace", "backup", "monday"]).ok();
    hub.stop();
    edge.feed("all", 11, 12);
    edge.feed(&mail, 11, 12);
    let mut restored = Station::at(Place::empty());
    let backup = hub.place.path().join("monday");
    restored.run(&["namespace", "restore", &backup.display().to_string(), ".millrace"]).ok();
    restored.start();
    let peer = restored.address("in").replace("/in", "");
    edge.run(&["relay", "set", "all", "--to", &peer]).ok();
    edge.run(&["outbox", "set", &mail.replace("/mail", ""), "--to", &peer]).ok();
    restored.has("in", 12).has("mail", 12);
    assert_eq!(both(&restored), (numbers(1, 12), numbers(1, 12)));

    // A third one fetches from the restored one, which then moves.
    let mut third = Station::new();
    third.log("copy").run(&["relay", "add", &restored.address("in"), "copy", "--name", "fetch"]).ok();
    third.start();
    third.has("copy", 12);
    restored.stop();
    edge.feed("all", 13, 15);
    restored.port = Port::reserve();
    restored.start();
    edge.run(&["relay", "set", "all", "--to", &restored.address("in")]).ok();
    third.run(&["relay", "set", "fetch", "--to", &restored.address("in")]).fails("MR6075", 1);
    third.run(&["relay", "set", "fetch", "--from", &edge.address("all")]).fails("MR6063", 1);
    third.run(&["relay", "set", "fetch", "--from", &restored.address("in")]).ok();
    third.has("copy", 15);
    assert_eq!(third.place.records("copy"), numbers(1, 15));
}

#[test]
fn a_part_of_a_repair_is_not_continued_by_a_repair_that_has_its_number_in_a_copy_that_was_put_back() {
    let (hub, mut edge) = pair();
    edge.feed("all", 1, 5);
    hub.has("in", 5);
    edge.rests("relay");
    let older = edge.stop().copied();
    edge.start();
    let with = hub.address("in").replace("/in", "");
    edge.place.write("two.json", "{\"seqno\": 2, \"value\": \"20\"}\n");
    edge.place.write("three.json", "{\"seqno\": 3, \"value\": \"30\"}\n");
    edge.run(&["repair", "run", "all", "--values", "two.json", "--with", &with]).ok();
    edge.stop();
    edge.put_back(&older);
    edge.start();
    // The other namespace still has the part of the repair that this copy knows nothing of.
    let run = ["--json", "repair", "run", "all", "--values", "three.json", "--with", &with];
    let refused = edge.run(&run);
    assert_ne!(refused.code, 0, "{refused:?}");
    let part = hub.run(&["--json", "repair", "ls"]).ok().objects()[0]["repair"].to_string();
    hub.run(&["repair", "abandon", &part]).ok();
    let number = edge.run(&["--json", "repair", "ls"]).ok().objects()[0]["repair"].to_string();
    edge.run(&["repair", "run", &number]).ok();
    edge.run(&["repair", "apply", &number]).ok();
    eventually("the other side has switched", || hub.place.records("in") == ["1", "2", "30", "4", "5"]);
    assert_eq!(edge.place.records("all"), ["1", "2", "30", "4", "5"]);
}
