//! Two machines, and attackers that impersonate one of them. The second host of a test has another home directory, so it knows about the
//! first one only what the test passes on; it connects to 127.0.0.2, for which this machine has no token.

mod attacks;
mod audit;
mod certificate;
mod defences;
mod deploy;
mod neighbours;
mod rights;
mod routes;
mod strangers;
mod tls;
mod web;

use millrace_tests::{Host, Place, Port, eventually};
use std::fs;

/// A namespace with two logs, the host that serves it over TLS, and its port.
struct Hub {
    place: Place,
    host: Option<Host>,
    port: Port,
}

impl Hub {
    fn new() -> Self {
        Self::of(Place::new())
    }

    /// The same in this place.
    fn of(place: Place) -> Self {
        Self::at(place, Port::reserve())
    }

    /// The same at this port.
    fn at(place: Place, port: Port) -> Self {
        place.run(["log", "create", "raw"]).ok();
        place.run(["log", "create", "other"]).ok();
        let mut hub = Self { place, host: None, port };
        hub.start();
        hub
    }

    fn start(&mut self) {
        self.host = None;
        let listen = format!("0.0.0.0:{}", self.port);
        self.host = Some(Host::start(self.place.command(["serve", "--listen", &listen, "--name", "hub"])));
    }

    /// Its address for another machine.
    fn authority(&self) -> String {
        format!("127.0.0.2:{}", self.port)
    }

    fn log(&self, log: &str) -> String {
        format!("mr://{}/hub/{log}", self.authority())
    }

    /// An invitation for another machine, with these rights.
    fn invite(&self, name: &str, may: &[&str]) -> String {
        let address = self.authority();
        let mut args = vec!["invite", name, "--address", &address, "--served-as", "hub"];
        args.extend(may);
        self.place.run(args).ok().text().trim().to_owned()
    }

    /// A capability of the namespace, in a file.
    fn issue(&self, file: &str, may: &[&str]) -> String {
        let path = self.place.path().join(file).display().to_string();
        let mut args = vec!["cap", "issue", "--out", &path];
        args.extend(may);
        self.place.run(args).ok();
        path
    }
}

#[test]
fn two_hosts_go_from_nothing_to_a_relayed_record() {
    let (mut hub, edge) = (Hub::new(), Place::new());
    edge.feed(["join", "-"], hub.invite("edge", &["--append", "raw"]).as_bytes()).ok();
    edge.run(["log", "create", "raw"]).ok();
    edge.run(["relay", "add", "raw", &hub.log("raw")]).ok();
    let _host = edge.serve();
    edge.run(["log", "append", "raw", "21.5"]).ok();
    eventually("the record is relayed", || hub.place.records("raw") == ["21.5"]);
    // A message to a log there uses the same connection.
    edge.run(["log", "append", &hub.log("raw"), "22.5"]).ok();
    eventually("the message is there", || hub.place.records("raw").len() == 2);
    // The host is started again with the same key, and the stream continues where it was.
    hub.start();
    edge.run(["log", "append", "raw", "23.5"]).ok();
    eventually("the next one is relayed", || hub.place.records("raw").len() == 3);
    assert_eq!(hub.place.records("raw"), ["21.5", "22.5", "23.5"], "each is there once");
}

#[test]
fn a_joined_user_has_exactly_the_rights_of_the_invitation() {
    let (hub, edge) = (Hub::new(), Place::new());
    let line = hub.invite("edge", &["--append", "raw"]);
    edge.run(["join", &line]).ok();
    assert_eq!(edge.run(["-n", "hub", "log", "append", "raw", "1"]).ok().text(), "1\n");
    // The error is the same for an existing log and a missing one.
    let refused = |log: &str| edge.run(["-n", "hub", "log", "get", log]).fails("MR6132", 1).stderr.replace(log, "LOG");
    assert_eq!(refused("other"), refused("none"));
    edge.run(["-n", "hub", "log", "append", "other", "1"]).fails("MR6132", 1);
    edge.run(["-n", "hub", "log", "create", "new"]).fails("MR6132", 1);
    edge.run(["-n", "hub", "journal", "show"]).fails("MR6132", 1);
    // Lists contain only what the capability permits.
    let logs = edge.run(["--json", "-n", "hub", "log", "ls"]).ok().objects();
    assert_eq!(logs.iter().map(|log| log["name"].as_str().unwrap()).collect::<Vec<_>>(), ["raw"]);
    // Only this user can read the stored capability.
    let kept = edge.path().join("state/millrace/peers").join(hub.authority()).join("hub");
    assert!(fs::read_to_string(&kept).unwrap().contains("capability mr1_"));
}
