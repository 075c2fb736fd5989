//! Two hosts on a network that is unplugged: network namespaces joined by a cable, which is pulled, loses packets, swallows
//! them. Needs root; without it the test says loudly that it did not run.

use millrace_tests::{Host, Place, eventually};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Where the forwarder of each side listens on the cable.
const CABLE_PORT: u16 = 7070;
/// Of the hosts: a link waits a third of it for a sign of the other one.
const PATIENCE: &str = "6s";
/// Longer than a link waits for an answer.
const LONG: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(700);

/// Runs a command that sets something up, and has to work.
fn run(line: &str, input: &str) {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let mut child = command.args(words).stdin(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{line}: {error}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{line}");
}

/// One side of the cable: a network namespace with an address of its own.
struct Network {
    name: String,
    device: String,
    address: Ipv4Addr,
}

impl Network {
    /// Two of them, joined.
    fn pair() -> [Network; 2] {
        let id = std::process::id() % 100_000;
        let side = |n: u8| Network {
            name: format!("millrace-{id}-{n}"),
            device: format!("mr{id}{}", ["a", "b"][usize::from(n)]),
            address: Ipv4Addr::new(10, 77, 77, n + 1),
        };
        let [a, b] = [side(0), side(1)];
        for network in [&a, &b] {
            run(&format!("ip netns add {}", network.name), "");
        }
        run(
            &format!("ip link add {} netns {} type veth peer name {} netns {}", a.device, a.name, b.device, b.name),
            "",
        );
        for network in [&a, &b] {
            network.ip(&format!("addr add {}/24 dev {}", network.address, network.device));
            network.ip("link set lo up");
            network.ip(&format!("link set {} up", network.device));
        }
        [a, b]
    }

    fn ip(&self, command: &str) {
        run(&format!("ip -n {} {command}", self.name), "");
    }

    /// The cable is pulled or put back.
    fn plug(&self, plugged: bool) {
        self.ip(&format!("link set {} {}", self.device, if plugged { "up" } else { "down" }));
    }

    /// So many packets of a hundred are swallowed, both ways; nobody is told.
    fn swallow(&self, percent: u32) {
        let rule = match percent {
            0 => String::new(),
            100 => "drop".into(),
            percent => format!("numgen random mod 100 < {percent} drop"),
        };
        let chain = |hook: &str, key: &str| {
            let rule = if rule.is_empty() { String::new() } else { format!("{key} \"{}\" {rule}\n", self.device) };
            format!("chain {hook} {{\n type filter hook {hook} priority 0; policy accept;\n {rule}}}\n")
        };
        let table = format!(
            "table inet cable\ndelete table inet cable\ntable inet cable {{\n{}{}}}\n",
            chain("input", "iifname"),
            chain("output", "oifname")
        );
        run(&format!("ip netns exec {} nft -f -", self.name), &table);
    }

    /// Runs something on a thread that lives in this network.
    fn thread(&self, work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
        let file = File::open(format!("/var/run/netns/{}", self.name)).unwrap();
        thread::spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work();
        })
    }

    fn command(&self, of: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(of.get_program()).args(of.get_args());
        command.current_dir(of.get_current_dir().unwrap());
        for (key, value) in of.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Carries connections from one address to another within a network: hosts listen on loopback addresses only.
struct Forwarder {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Forwarder {
    fn start(network: &Network, from: SocketAddr, to: SocketAddr) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let of_thread = over.clone();
        network.thread(move || {
            let listener = TcpListener::bind(from).unwrap();
            listener.set_nonblocking(true).unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            while !of_thread.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => forward(stream, to),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(5)),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Self { address: receiver.recv().unwrap(), over }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// New threads live in the network of the one that starts them.
fn forward(from: TcpStream, to: SocketAddr) {
    from.set_nonblocking(false).unwrap();
    thread::spawn(move || {
        let Ok(to) = TcpStream::connect_timeout(&to, Duration::from_secs(3)) else {
            let _ = from.shutdown(Shutdown::Both);
            return;
        };
        for (from, to) in [(from.try_clone(), to.try_clone()), (Ok(to), Ok(from))] {
            let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
            thread::spawn(move || {
                let mut buffer = [0; 64 << 10];
                while let Ok(read) = from.read(&mut buffer)
                    && read > 0
                    && to.write_all(&buffer[..read]).is_ok()
                {}
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    });
}

/// A host in a network, and what leads to the other one.
struct Station {
    place: Place,
    host: Host,
    _forwarders: Vec<Forwarder>,
}

impl Station {
    fn start(network: &Network) -> Self {
        let place = Place::new();
        for log in ["raw", "in"] {
            place.run(["log", "create", log, "--history", "1000000"]).ok();
        }
        let mut command = place.command(["--json", "serve", "--listen", "127.0.0.1:0", "--name", "farm"]);
        command.args(["--drain", "100s", "--patience", PATIENCE]);
        let host = Host::start(network.command(&command));
        let cable = SocketAddr::from((network.address, CABLE_PORT));
        let inward = Forwarder::start(network, cable, SocketAddr::from((Ipv4Addr::LOCALHOST, host.port())));
        Self { place, host, _forwarders: vec![inward] }
    }

    /// The address under which this side reaches the other one's namespace.
    fn address_of(&mut self, network: &Network, other: &Network) -> String {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let outward = Forwarder::start(network, local, SocketAddr::from((other.address, CABLE_PORT)));
        let address = format!("mr://{}/farm", outward.address);
        self._forwarders.push(outward);
        address
    }

    fn feed(&self, log: &str, from: u64, upto: u64) {
        let lines: String = (from..=upto).map(|n| format!("{n}\n")).collect();
        self.place.feed(["log", "append", log, "--lines", "--quiet"], lines.as_bytes()).ok();
    }

    fn latest(&self, log: &str) -> u64 {
        self.place.run(["--json", "log", "stat", log]).ok().object()["latest"].as_u64().unwrap()
    }

    fn has_numbers(&self, log: &str, upto: u64) {
        let expected: Vec<String> = (1..=upto).map(|n| n.to_string()).collect();
        assert!(self.place.records(log) == expected, "log '{log}' is not exactly 1 to {upto}");
    }

    fn errors(&self, kind: &str) -> Vec<Value> {
        let links = self.place.run(["--json", kind, "ls"]).ok().objects();
        links.into_iter().map(|link| link["error"].clone()).filter(|error| !error.is_null()).collect()
    }
}

/// Some machines, as most containers, keep that even from root.
fn may_make_networks() -> bool {
    let name = format!("millrace-probe-{}", std::process::id());
    let ip = |command: &str| Command::new("ip").args(["netns", command, &name]).stderr(Stdio::null()).status();
    ip("add").is_ok_and(|status| status.success()) && ip("del").is_ok_and(|status| status.success())
}

/// What is done to the network, and undone, and for how long: its name, and how.
type Disturbance<'a> = (&'a str, &'a dyn Fn(bool), Duration);

#[test]
fn an_afternoon_of_being_unplugged_loses_and_doubles_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: links on a network that is unplugged. It takes root to make network namespaces.");
        return;
    }
    if !may_make_networks() {
        eprintln!(
            "NOT TESTED: links on a network that is unplugged. This machine lets nobody make network namespaces."
        );
        return;
    }
    let [here, there] = Network::pair();
    let (mut a, mut b) = (Station::start(&here), Station::start(&there));
    let (to_b, to_a) = (a.address_of(&here, &there), b.address_of(&there, &here));
    // Three streams: messages, a relay that pushes, and one that fetches the other way.
    let messages = format!("{to_b}/in");
    a.place.run(["relay", "add", "raw", &format!("{to_b}/raw")]).ok();
    b.place.run(["relay", "add", &format!("{to_a}/in"), "in", "--name", "fetched"]).ok();
    let disturbances: [Disturbance<'_>; 6] = [
        ("pulled for a moment", &|on| here.plug(!on), SHORT),
        ("every third packet is lost", &|on| here.swallow(if on { 33 } else { 0 }), SHORT * 3),
        ("swallowed for long", &|on| there.swallow(if on { 100 } else { 0 }), LONG),
        ("pulled at the other end", &|on| there.plug(!on), SHORT),
        ("swallowed for a moment", &|on| here.swallow(if on { 100 } else { 0 }), SHORT),
        ("pulled again", &|on| here.plug(!on), SHORT * 2),
    ];
    let (mut sent, step) = (0, 500);
    for (what, disturb, time) in disturbances {
        let started = Instant::now();
        disturb(true);
        while started.elapsed() < time {
            a.feed(&messages, sent + 1, sent + step);
            a.feed("raw", sent + 1, sent + step);
            sent += step;
            thread::sleep(time / 4);
        }
        if time == LONG {
            // Nothing comes back for so long that the link has to notice.
            eventually("the link says that it is cut off", || !a.errors("outbox").is_empty());
        }
        disturb(false);
        eprintln!("{what}: {} of {sent} messages, {} of {sent} relayed", b.latest("in"), b.latest("raw"));
    }
    eventually("everything arrives", || b.latest("in") == sent && b.latest("raw") == sent);
    b.has_numbers("in", sent);
    b.has_numbers("raw", sent);
    a.feed("in", 1, 10);
    eventually("what is fetched arrives", || b.latest("in") == sent + 10);
    eventually("links are well again", || a.errors("outbox").is_empty() && a.errors("relay").is_empty());
    for station in [a, b] {
        station.host.signal("TERM");
        assert_eq!(station.host.ended(), 0);
    }
}
