//! Links between servers of this process, over a line that is cut again and again.

use super::Linker;
use crate::{Hosted, Listen, Server, ServerOptions};
use millrace_node::{
    AppendOptions, CreateOptions, Durability, Namespace, NewRecord, Served,
    links::{LinkState, Links, RelayOptions},
};
use millrace_wire::Code;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

/// A namespace with a server and a linker.
struct Place {
    namespace: Namespace,
    address: SocketAddr,
    /// Bound and not listening, so that the system gives the port to nobody else between two servers.
    port: TcpListener,
    linker: Option<Linker>,
    server: Option<Server>,
    _dir: tempfile::TempDir,
}

impl Place {
    fn new(durability: Durability) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { segment_bytes: 8 << 20, durability, ..CreateOptions::default() };
        let namespace = Namespace::create(dir.path(), &options).unwrap();
        let port = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&port, true).unwrap();
        bind(&port, &"127.0.0.1:0".parse::<SocketAddrV4>().unwrap()).unwrap();
        let port = TcpListener::from(port);
        let address = port.local_addr().unwrap();
        let mut place = Self { namespace, address, port, linker: None, server: None, _dir: dir };
        place.serve();
        place
    }

    /// Begins to serve, at the same address as before if there was one.
    fn serve(&mut self) {
        let served = Served::new("farm".parse().unwrap(), self.namespace.clone()).unwrap();
        let hosted = Arc::new(Hosted::new(vec![served]));
        let options =
            ServerOptions { listen: Listen::On(vec![self.address.into()]), loops: 1, ..ServerOptions::default() };
        let server = Server::start(hosted, &options).unwrap();
        self.server = Some(server);
        self.linker = Some(Linker::start(self.namespace.clone(), None).unwrap());
    }

    fn log(&self, name: &str) -> &Self {
        self.namespace.create_log(&name.parse().unwrap(), 1 << 20).unwrap();
        self
    }

    fn append_numbers(&self, log: &str, from: u64, upto: u64) {
        let records = (from..=upto).map(|n| Ok(NewRecord { log: log.into(), payload: n.to_string().into_bytes() }));
        self.namespace.append_many(records, AppendOptions::default(), |_| ()).unwrap();
    }

    fn numbers(&self, log: &str) -> Vec<u64> {
        let latest = self.namespace.latest(log).unwrap();
        let number =
            |seqno| String::from_utf8(self.namespace.get(log, seqno).unwrap().payload).unwrap().parse().unwrap();
        (1..=latest).map(number).collect()
    }

    /// Waits until a log has this number of records.
    fn wait_for(&self, log: &str, records: u64) {
        let start = Instant::now();
        while self.namespace.latest(log).unwrap() < records {
            let views = Links::of(&self.namespace).view().unwrap();
            assert!(start.elapsed() < HANG, "{} of {records}; {views:?}", self.namespace.latest(log).unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until everything that was sent is acknowledged: what is not would be sent again.
    fn wait_for_acknowledgements(&self) {
        let start = Instant::now();
        while Links::of(&self.namespace).view().unwrap().iter().any(|view| view.lag_records > 0) {
            assert!(start.elapsed() < HANG, "{:?}", Links::of(&self.namespace).view().unwrap());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a link has stopped, and says why.
    fn wait_for_stop(&self) -> Code {
        let start = Instant::now();
        loop {
            let views = Links::of(&self.namespace).view().unwrap();
            if let Some(view) = views.iter().find(|view| view.state == LinkState::Stopped) {
                assert!(view.remedy.is_some());
                return Code::from_id(view.code.as_deref().unwrap()).unwrap();
            }
            assert!(start.elapsed() < HANG, "{views:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A line between two places that can be cut: every connection goes through here.
struct Wire {
    address: SocketAddr,
    shared: Arc<WireShared>,
}

#[derive(Default)]
struct WireShared {
    /// Connections are refused, as by a host that is down.
    unplugged: AtomicBool,
    over: AtomicBool,
    /// Each connection breaks after this number of bytes; 0 means never.
    break_after: AtomicU64,
    carried: AtomicU64,
    broken: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Wire {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::new(WireShared::default()));
        let of_thread = shared.clone();
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                if of_thread.over.load(Ordering::Relaxed) {
                    return;
                }
                let Some(to) = TcpStream::connect(target).ok().filter(|_| !of_thread.unplugged.load(Ordering::Relaxed))
                else {
                    let _ = from.shutdown(Shutdown::Both);
                    continue;
                };
                of_thread.streams.lock().unwrap().extend([from.try_clone().unwrap(), to.try_clone().unwrap()]);
                for (from, to) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
                    let shared = of_thread.clone();
                    thread::spawn(move || shared.carry(from, to));
                }
            }
        });
        Self { address, shared }
    }

    fn cut(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn unplug(&self, unplugged: bool) {
        self.shared.unplugged.store(unplugged, Ordering::Relaxed);
        self.cut();
    }

    fn peer(&self, log: &str) -> String {
        format!("mr://{}/farm/{log}", self.address)
    }
}

impl WireShared {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 8192];
        let mut left = self.break_after.load(Ordering::Relaxed);
        let bounded = left > 0;
        while let Ok(read) = from.read(&mut buffer) {
            let some = if bounded { read.min(left as usize) } else { read };
            if some == 0 || to.write_all(&buffer[..some]).is_err() {
                break;
            }
            self.carried.fetch_add(some as u64, Ordering::Relaxed);
            left = left.saturating_sub(some as u64);
        }
        self.broken.fetch_add(u64::from(bounded && left == 0), Ordering::Relaxed);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

#[test]
fn messages_arrive_exactly_once_over_a_line_that_is_cut_again_and_again() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (a, b) = (Place::new(durability), Place::new(durability));
        b.log("in");
        let wire = Wire::to(b.address);
        let to = wire.peer("in");
        for (round, break_after) in [0, 700, 3_000, 20_000, 100_000].into_iter().enumerate() {
            let broken = wire.shared.broken.load(Ordering::Relaxed);
            wire.shared.break_after.store(break_after, Ordering::Relaxed);
            wire.cut();
            let from = 5_000 * round as u64;
            a.append_numbers(&to, from + 1, from + 5_000);
            // Some records get through each connection, so that it ends.
            let start = Instant::now();
            let has_all = || b.namespace.latest("in").unwrap() == from + 5_000;
            while break_after > 0 && wire.shared.broken.load(Ordering::Relaxed) == broken && !has_all() {
                assert!(start.elapsed() < HANG, "the line holds");
                thread::sleep(Duration::from_millis(5));
            }
            wire.shared.break_after.store(0, Ordering::Relaxed);
            wire.cut();
            b.wait_for("in", from + 5_000);
        }
        assert!(wire.shared.broken.load(Ordering::Relaxed) > 2, "the line held");
        assert_eq!(b.numbers("in"), (1..=25_000).collect::<Vec<_>>());
    }
}

#[test]
fn relays_push_and_pull_through_outages_and_restarts() {
    let (a, mut b, c) = (Place::new(Durability::Disk), Place::new(Durability::Disk), Place::new(Durability::Disk));
    a.log("raw");
    b.log("raw");
    c.log("raw");
    let (to_b, of_b) = (Wire::to(b.address), Wire::to(b.address));
    // A sends to B, and C fetches from there.
    Links::of(&a.namespace).add_relay("raw", &to_b.peer("raw"), &RelayOptions::default()).unwrap();
    Links::of(&c.namespace).add_relay(&of_b.peer("raw"), "raw", &RelayOptions::default()).unwrap();
    a.append_numbers("raw", 1, 2_000);
    c.wait_for("raw", 2_000);
    for round in 1..=4u64 {
        let wire = if round % 2 == 0 { &to_b } else { &of_b };
        wire.unplug(true);
        a.append_numbers("raw", 2_000 * round + 1, 2_000 * round + 2_000);
        if round == 3 {
            (b.linker, b.server) = (None, None);
            b.serve();
        }
        wire.unplug(false);
        c.wait_for("raw", 2_000 * round + 2_000);
    }
    let all: Vec<u64> = (1..=10_000).collect();
    assert_eq!((a.numbers("raw"), b.numbers("raw"), c.numbers("raw")), (all.clone(), all.clone(), all));
    let record = c.namespace.get("raw", 77).unwrap();
    assert_eq!(record.cause, b.namespace.get("raw", 77).unwrap().id, "each copy is caused by the one before");
}

#[test]
fn circles_wiped_peers_and_missing_logs_are_told() {
    let (a, b) = (Place::new(Durability::Memory), Place::new(Durability::Memory));
    a.log("raw").log("sent");
    b.log("raw");
    let (to_b, to_a) = (Wire::to(b.address), Wire::to(a.address));
    Links::of(&a.namespace).add_relay("raw", &to_b.peer("raw"), &RelayOptions::default()).unwrap();
    a.append_numbers("raw", 1, 10);
    b.wait_for("raw", 10);
    Links::of(&b.namespace).add_relay("raw", &to_a.peer("raw"), &RelayOptions::default()).unwrap();
    assert_eq!(b.wait_for_stop(), Code::RelayCircle);
    Links::of(&b.namespace).remove_relay("raw", true).unwrap();
    Links::of(&b.namespace).add_relay(&to_a.peer("raw"), "raw", &RelayOptions::default()).unwrap();
    a.append_numbers("raw", 11, 20);
    b.wait_for("raw", 30); // Two relays lead the same way: no circle, each delivers.
    // A log that is missing over there may come.
    Links::of(&a.namespace).add_relay("sent", &to_b.peer("later"), &RelayOptions::default()).unwrap();
    a.append_numbers("sent", 1, 5);
    b.log("later").wait_for("later", 5);
    let other = Place::new(Durability::Memory);
    other.log("in");
    let wire = Wire::to(b.address);
    b.log("in");
    a.append_numbers(&wire.peer("in"), 1, 3);
    b.wait_for("in", 3);
    drop(wire);
    let stops = |place: &Place| Links::of(&place.namespace).view().unwrap().into_iter().find_map(|view| view.code);
    assert_eq!(stops(&a), None);
}

#[test]
fn another_namespace_at_the_same_address_stops_the_link_until_it_is_reset() {
    let (a, mut b) = (Place::new(Durability::Disk), Place::new(Durability::Disk));
    b.log("in");
    let to = format!("mr://{}/farm/in", b.address);
    a.append_numbers(&to, 1, 10);
    b.wait_for("in", 10);
    a.wait_for_acknowledgements();
    (b.linker, b.server) = (None, None);
    let mut other = Place::new(Durability::Disk);
    (other.linker, other.server) = (None, None);
    (other.address, other.port) = (b.address, b.port);
    other.serve();
    other.log("in");
    a.append_numbers(&to, 11, 12);
    assert_eq!(a.wait_for_stop(), Code::LinkPeerChanged);
    assert_eq!(other.namespace.latest("in").unwrap(), 0);
    let peer = Links::of(&a.namespace).peers().unwrap()[0].name.clone();
    Links::of(&a.namespace).reset_outbox(&peer, false).unwrap();
    other.wait_for("in", 2);
    assert_eq!(other.numbers("in"), [11, 12]);
}

#[test]
fn relays_within_a_namespace_copy_and_removed_ones_stop() {
    let (a, b) = (Place::new(Durability::Disk), Place::new(Durability::Memory));
    a.log("raw").log("copy");
    b.log("raw");
    let links = Links::of(&a.namespace);
    links.add_relay("raw", "copy", &RelayOptions::default()).unwrap();
    let wire = Wire::to(b.address);
    let there = RelayOptions { name: Some("there".parse().unwrap()), ..RelayOptions::default() };
    links.add_relay("raw", &wire.peer("raw"), &there).unwrap();
    a.append_numbers("raw", 1, 300);
    a.wait_for("copy", 300);
    b.wait_for("raw", 300);
    // Removed while the other side is away: it leaves once it was told.
    wire.unplug(true);
    assert!(!links.remove_relay("there", false).unwrap());
    assert_eq!(links.view().unwrap().iter().filter(|view| view.state == LinkState::Leaving).count(), 1);
    wire.unplug(false);
    let start = Instant::now();
    while links.relays().unwrap().len() == 2 {
        assert!(start.elapsed() < HANG);
        thread::sleep(Duration::from_millis(5));
    }
    assert!(links.remove_relay("raw", false).unwrap());
    a.append_numbers("raw", 301, 310);
    b.log("other");
    a.append_numbers(&wire.peer("other"), 1, 1);
    b.wait_for("other", 1);
    assert_eq!((a.namespace.latest("copy").unwrap(), b.namespace.latest("raw").unwrap()), (300, 300));
}

/// Appends to a log without a pause that would be long enough for a link to look around in, until it is dropped.
struct Busy {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Busy {
    fn with(place: &Place, log: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (stop, namespace, log) = (over.clone(), place.namespace.clone(), log.to_owned());
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                namespace.append(&log, b"x", AppendOptions::default()).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < HANG, "it never came true: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn decisions_about_a_busy_link_take_effect_while_it_is_busy() {
    let (a, b) = (Place::new(Durability::Memory), Place::new(Durability::Memory));
    a.log("raw").log("copy");
    b.log("raw").log("in");
    let (links, there) = (Links::of(&a.namespace), format!("mr://{}/farm", b.address));
    links.add_relay("raw", &format!("{there}/raw"), &RelayOptions::default()).unwrap();
    links
        .add_relay("raw", "copy", &RelayOptions { name: Some("copy".parse().unwrap()), ..RelayOptions::default() })
        .unwrap();
    let _busy = [Busy::with(&a, "raw"), Busy::with(&a, &format!("{there}/in"))];
    for (place, log) in [(&a, "copy"), (&b, "raw"), (&b, "in")] {
        place.wait_for(log, 10);
    }
    // A stream that is restarted has a name of its own over there.
    let peer = links.peers().unwrap()[0].clone();
    links.reset_outbox(&peer.name, false).unwrap();
    let stream = format!("outbox/{}/{}", peer.name, peer.course.generation + 1);
    let comes_anew = || b.namespace.logs().unwrap().iter().any(|log| log.name.ends_with(&stream) && log.latest > 1);
    wait_until("the outbox goes on as a new stream", comes_anew);
    assert!(links.remove_relay("copy", false).unwrap());
    let copied = a.namespace.latest("copy").unwrap();
    assert!(!links.remove_relay("raw", false).unwrap());
    wait_until("the relay is gone", || links.relays().unwrap().is_empty());
    let (raw, forwarded) = (a.namespace.latest("raw").unwrap(), b.namespace.latest("raw").unwrap());
    a.wait_for("raw", raw + 20);
    assert_eq!(b.namespace.latest("raw").unwrap(), forwarded, "one that is gone forwards nothing");
    assert_eq!(a.namespace.latest("copy").unwrap(), copied, "one that was removed forwards nothing");
    let relays = a.namespace.logs().unwrap().into_iter().filter(|log| log.name.starts_with("_relay/"));
    assert_eq!(relays.map(|log| log.name.to_string()).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_fetching_relay_stops_when_its_source_is_removed_or_recreated() {
    let (a, b) = (Place::new(Durability::Memory), Place::new(Durability::Memory));
    a.log("raw");
    b.log("raw");
    let raw = "raw".parse().unwrap();
    Links::of(&b.namespace)
        .add_relay(&format!("mr://{}/farm/raw", a.address), "raw", &RelayOptions::default())
        .unwrap();
    a.append_numbers("raw", 1, 10);
    b.wait_for("raw", 10);
    a.namespace.remove_log(&raw).unwrap();
    a.log("raw").append_numbers("raw", 101, 107);
    assert_eq!(b.wait_for_stop(), Code::LinkSourceGone);
    Links::of(&b.namespace).resume_relay("raw", false, None).unwrap();
    b.wait_for("raw", 17);
    a.namespace.remove_log(&raw).unwrap();
    assert_eq!(b.wait_for_stop(), Code::LinkSourceGone);
    Links::of(&b.namespace).resume_relay("raw", false, None).unwrap();
    a.log("raw").append_numbers("raw", 201, 203);
    b.wait_for("raw", 20);
    assert_eq!(b.numbers("raw"), [(1..=10).collect::<Vec<_>>(), (101..=107).collect(), (201..=203).collect()].concat());
}

#[test]
fn a_link_of_which_something_cannot_be_read_says_so_and_keeps_no_other_from_running() {
    let (mut a, b) = (Place::new(Durability::Memory), Place::new(Durability::Memory));
    for log in ["one", "two"] {
        a.log(log);
        b.log(log);
        let to = format!("mr://{}/farm/{log}", b.address);
        Links::of(&a.namespace).add_relay(log, &to, &RelayOptions::default()).unwrap();
        a.append_numbers(log, 1, 5);
        b.wait_for(log, 5);
    }
    a.wait_for_acknowledgements();
    (a.linker, a.server) = (None, None);
    let journal = a.namespace.journal();
    let id = Links::of(&a.namespace).relay("one").unwrap().id;
    let noted = a.namespace.log(&format!("_relay/{id}")).unwrap();
    journal.commit(|tx| tx.append(&noted, b"no number", millrace_wire::EventId::NONE, 0)).unwrap();
    a.serve();
    a.append_numbers("one", 6, 10);
    a.append_numbers("two", 6, 10);
    b.wait_for("two", 10);
    let views = Links::of(&a.namespace).view().unwrap();
    let codes: Vec<_> = views.iter().map(|view| (&*view.name, view.code.as_deref())).collect();
    assert_eq!(codes, [("one", Some(Code::LinkStateDamaged.id())), ("two", None)]);
    assert_eq!(b.namespace.latest("one").unwrap(), 5);
    // Its host says so as well, and it can be removed, which needs no number.
    let reported = a.namespace.dir().join("links.json");
    let says = || std::fs::read_to_string(&reported).is_ok_and(|text| text.contains("MR6077"));
    wait_until("the host says what is wrong", says);
    Links::of(&a.namespace).remove_relay("one", false).unwrap();
    wait_until("it is gone", || Links::of(&a.namespace).relays().unwrap().len() == 1);
}
