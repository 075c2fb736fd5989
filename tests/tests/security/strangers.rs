//! What somebody learns and does who has a capability for something else, or none.

use super::{
    Hub,
    defences::hub,
    neighbours::{curl, is_root, other},
    tls,
};
use millrace_security::token::{Binding, Token};
use millrace_tests::{
    Host, Place, Port, eventually,
    raw::{framed, hello},
};
use millrace_wire::{
    Defence, EventId, Hlc,
    protocol::{
        self, Call, Deliver, Delivered, Failure, Frame, Get, Hello, Item, Link, Linked, Message, Offer, PREFACE,
        Present, Records, Returned, Tail, Welcome, split,
    },
};
use rustls::{ClientConnection, StreamOwned};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// As many as a host takes who have shown nothing, and those beyond that may still be closing.
const UNKNOWN_MAX: usize = 1024 + 128;
/// So many connections come that show nothing.
const CROWD_SIZE: usize = UNKNOWN_MAX + 100;

/// A connection over TLS that was welcomed with a capability.
pub struct Session {
    stream: StreamOwned<ClientConnection, TcpStream>,
    input: Vec<u8>,
    request: u64,
    binding: Binding,
}

impl Session {
    pub fn open(hub: &Hub, file: &str) -> Self {
        let token: Token = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        Self::with(hub, &token, "").unwrap_or_else(|code| panic!("not welcome: {code}"))
    }

    /// A connection that greets with this capability, for the namespace of this name; the code of the refusal if it is not welcome.
    pub fn with(hub: &Hub, token: &Token, namespace: &str) -> Result<Self, String> {
        let (stream, binding) = tls::session(hub.port.number);
        let proof = token.proof(&binding);
        let offer = Offer { capability: token.body(), proof: &proof };
        let mut session = Self { stream, input: Vec::new(), request: 0, binding };
        session.stream.write_all(&PREFACE).unwrap();
        session.send(&Hello { namespace, capabilities: vec![offer], ..hello() });
        // A refusal is about the connection, whose number is 0.
        let welcome = session.next_of(&[0, 1], |frame| match frame.message::<Failure<'_>>() {
            Ok(failure) => Err(failure.code.to_owned()),
            Err(_) => Ok(frame.kind),
        });
        assert_eq!(welcome?, Welcome::TYPE);
        Ok(session)
    }

    /// Shows another capability for this slot; the code of the refusal if it is refused.
    pub fn present(&mut self, token: &Token, slot: u8) -> Option<String> {
        let proof = token.proof(&self.binding);
        let present = Present { slot, capability: token.body(), proof: &proof };
        self.ask(&present, |frame| frame.message::<Failure<'_>>().ok().map(|failure| failure.code.to_owned()))
    }

    /// Asks, and looks at the answer.
    pub fn ask<R>(&mut self, message: &impl Message, look: impl FnOnce(&Frame<'_>) -> R) -> R {
        self.send(message);
        self.next(look)
    }

    /// The number of the last request.
    pub fn request(&self) -> u64 {
        self.request
    }

    fn send(&mut self, message: &impl Message) {
        self.request += 1;
        self.stream.write_all(&framed(self.request, message)).unwrap();
    }

    /// Looks at what comes next for the last request, or for the connection as a whole, which is request 0.
    fn next<R>(&mut self, look: impl FnOnce(&Frame<'_>) -> R) -> R {
        self.next_of(&[0, self.request], look)
    }

    fn next_of<R>(&mut self, requests: &[u64], look: impl FnOnce(&Frame<'_>) -> R) -> R {
        loop {
            if let Some((frame, used)) = split(&self.input, usize::MAX).unwrap() {
                assert!(requests.contains(&frame.heading.request));
                let seen = look(&frame);
                self.input.drain(..used);
                return seen;
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the host closed");
            self.input.extend_from_slice(&bytes[..count]);
        }
    }
}

/// The stream that another holder opened: how far it is, and its next number.
pub fn foreign_stream(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let deliver = |file: &str| {
        let mut session = Session::open(&hub, &hub.issue(file, &["--allow", "link=namespace", "--append", "raw"]));
        let link = Link { stream: "in", namespace: 7, epoch: 1, ..Link::default() };
        let number = session.ask(&link, |frame| frame.message::<Linked>().unwrap().number);
        let items =
            vec![Item { log: "raw", data: b"x", id: EventId::NONE, hlc: Hlc::default(), function: None, void: false }];
        let items = Deliver { link: session.request, first: number + 1, gap: false, items };
        let delivered = session.ask(&items, |frame| {
            let refused = || frame.message::<Failure<'_>>().map(|failure| failure.detail.to_string());
            frame.message::<Delivered>().map_err(|_| refused()).map(|delivered| delivered.number)
        });
        assert_eq!(delivered, Ok(number + 1));
        number
    };
    assert_eq!(deliver("one.cap"), 0);
    Some(deliver("two.cap") != 0)
}

/// Whether who may read one log learns which others there are.
pub fn told_of_logs(without: Option<Defence>) -> Option<bool> {
    let hub = hub(without);
    let mut session = Session::open(&hub, &hub.issue("one.cap", &["--read", "raw"]));
    let mut reported = |log: &str| {
        session.ask(&Get { log, seqno: 1, wait_ms: 0, durability: None }, |frame| {
            let failure: Failure<'_> = frame.message().unwrap();
            (failure.code.to_string(), failure.detail.replace(log, "LOG"))
        })
    };
    Some(reported("other") != reported("none"))
}

/// Whether who has no capability of a host learns which namespaces it serves.
pub fn told_of_namespaces(without: Option<Defence>) -> Option<bool> {
    let (hub, elsewhere) = (hub(without), Hub::new());
    let foreign = fs::read_to_string(elsewhere.issue("foreign.cap", &["--read", "raw"])).unwrap();
    let bearer = format!("Authorization: Bearer {}", foreign.trim());
    let reported = |namespace: &str| {
        let url = format!("https://127.0.0.1:{}/v1/namespaces/{namespace}/logs", hub.port);
        curl(Command::new("curl"), &["-k", "-H", &bearer], &url).text().replace(namespace, "NAMESPACE")
    };
    Some(reported("hub") != reported("none"))
}

/// Opens so many connections and says nothing over them.
const CROWD: &str = "ulimit -n 4096 || exit
for at in $(seq $2); do exec {one}<>/dev/tcp/127.0.0.1/$1 || exit; done
echo open; cat";

/// More connections of another user than a host takes of those who show nothing: whether it takes all of them. Holders of a capability are
/// served on, and newcomers with one at once.
pub fn flood(without: Option<Defence>) -> Option<bool> {
    if !is_root() {
        return None;
    }
    let mut hub = hub(without);
    // Silent connections stay for ten minutes, unless they make room.
    hub.host = None;
    let listen = format!("0.0.0.0:{}", hub.port);
    let serve = ["serve", "--listen", &listen, "--name", "hub", "--patience", "10m"];
    hub.host = Some(Host::start(hub.place.command(serve)));
    let mut known = Session::open(&hub, &hub.issue("one.cap", &["--read", "raw"]));
    let mut crowd = other("bash");
    crowd.args(["-c", CROWD, "crowd", &hub.port.to_string(), &CROWD_SIZE.to_string()]);
    let mut crowd = crowd.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(crowd.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "open\n", "another user may have as many files open");
    let newcomer = hub.issue("two.cap", &["--allow", "read,observe=raw"]);
    let bearer = format!("Authorization: Bearer {}", fs::read_to_string(newcomer).unwrap().trim());
    let logs = format!("https://127.0.0.1:{}/v1/namespaces/hub/logs/raw", hub.port);
    // Until those that made room have gone, it may be refused and comes again.
    let served = || curl(other("curl"), &["-k", "-H", &bearer], &logs).text().ends_with("200");
    eventually("a newcomer with a capability is served", served);
    let answer = known.ask(&Get { log: "raw", seqno: 1, wait_ms: 0, durability: None }, |frame| frame.kind);
    assert_eq!(answer, Failure::TYPE, "there is no record, and whoever may read is told so");
    let owner = curl(Command::new("curl"), &[], &format!("http://127.0.0.1:{}/healthz", hub.port));
    assert!(owner.text().ends_with("200"), "{}", owner.text());
    let metrics = curl(Command::new("curl"), &[], &format!("http://127.0.0.1:{}/metrics", hub.port));
    drop(crowd.stdin.take());
    crowd.wait().unwrap();
    let open =
        metrics.text().lines().find_map(|line| line.strip_prefix("millrace_connections ")?.parse::<usize>().ok());
    Some(open.unwrap() > UNKNOWN_MAX + 50)
}

/// Follows a log until the host refuses to go on: with which code. Somebody else appends all the while.
fn tail_ends(hub: &Hub, file: &str, once_open: impl FnOnce()) -> String {
    let mut session = Session::open(hub, file);
    let tail = Tail { log: "raw", from: 1, credit: 1_000_000, ..Tail::default() };
    session.send(&tail);
    let (over, place) = (AtomicBool::new(false), &hub.place);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Long after the host has noticed, also where the test fails.
            for _ in 0..2000 {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                place.run(["log", "append", "raw", "x"]).ok();
            }
        });
        assert_eq!(session.next(|frame| frame.kind), Records::TYPE);
        once_open();
        let code = loop {
            let refused =
                |frame: &Frame<'_>| frame.message::<Failure<'_>>().ok().map(|failure| failure.code.to_string());
            if let Some(code) = session.next(refused) {
                break code;
            }
        };
        over.store(true, Ordering::Relaxed);
        code
    })
}

#[test]
fn a_tail_ends_with_the_capability_that_it_was_opened_with() {
    let hub = Hub::new();
    let revoked = hub.issue("revoked.cap", &["--read", "raw"]);
    let revoke = || drop(hub.place.run(["cap", "revoke", "--file", &revoked]).ok());
    assert_eq!(tail_ends(&hub, &revoked, revoke), "MR6131");
    let brief = hub.issue("brief.cap", &["--read", "raw", "--expires", "2s"]);
    assert_eq!(tail_ends(&hub, &brief, || ()), "MR6132");
}

#[test]
fn a_call_that_waits_ends_with_the_capability_that_it_was_asked_with() {
    let hub = Hub::new();
    let file = hub.issue("calls.cap", &["--allow", "call,create=object:Event/go"]);
    let mut session = Session::open(&hub, &file);
    let opens = protocol::Session { session: &[1; 16], application: "", lease_ms: 60_000, resume: false };
    assert_eq!(session.ask(&opens, |frame| frame.kind), protocol::Opened::TYPE);
    let empty = [0x90];
    let call = |wait_ms| Call {
        session: &[1; 16],
        call: 1,
        kind: "Event",
        key: "go",
        method: "wait",
        arguments: &empty,
        new: &empty,
        wait_ms,
        ..Call::default()
    };
    assert!(session.ask(&call(0), |frame| frame.message::<Returned<'_>>().unwrap().waiting), "nobody has set it");
    // While it waits its session does not end, for as long as the caller likes.
    session.send(&call(u32::MAX));
    hub.place.run(["cap", "revoke", "--file", &file]).ok();
    let refused = session.next(|frame| frame.message::<Failure<'_>>().ok().map(|failure| failure.code.to_owned()));
    assert_eq!(refused.as_deref(), Some("MR6131"));
}

#[test]
fn an_older_version_of_tls_is_refused() {
    let hub = Hub::new();
    let url = format!("https://127.0.0.1:{}/healthz", hub.port);
    let asked = |most: &str| curl(Command::new("curl"), &["-k", "--tls-max", most], &url);
    assert_eq!(asked("1.3").code, 0);
    let older = asked("1.2");
    assert!(older.code != 0 && older.text() == "000", "{older:?}");
}

/// A client of MQTT that published one message with this user and password: whether it was appended.
fn publishes(hub: &Place, port: u16, (user, password): (&str, &str), topic: &str) -> bool {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
    let packet = |first: u8, body: Vec<u8>| {
        let length = match body.len() {
            short @ ..0x80 => vec![short as u8],
            long => vec![(long & 0x7f) as u8 | 0x80, (long >> 7) as u8],
        };
        [vec![first], length, body].concat()
    };
    let connect = [text("MQTT"), vec![4, 0xC2, 0, 0], text("lamp"), text(user), text(password)].concat();
    let publish = [text(topic), vec![0, 1], b"x".to_vec()].concat();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the host listens");
    // A refused client may be gone before it has said everything.
    let _ = stream.write_all(&[packet(0x10, connect), packet(0x32, publish), vec![0xE0, 0]].concat());
    let _ = stream.read_to_end(&mut Vec::new());
    !hub.records("raw").is_empty()
}

fn plain(without: Option<Defence>) -> (Place, Host, u16) {
    let place = Place::new();
    let place = match without {
        Some(defence) => place.without(&format!("{defence:?}")),
        None => place,
    };
    place.run(["log", "create", "raw"]).ok();
    place.run(["mqtt", "user", "add", "wall", "--subscribe", "#"]).ok();
    let port = Port::reserve();
    let listen = format!("mqtt-plain=0.0.0.0:{port}");
    let host = Host::start(place.command(["--json", "serve", "--listen", &listen, "--drain", "100s"]));
    (place, host, port.number)
}

/// A user of MQTT publishes to a topic that is not its own.
pub fn foreign_topic(without: Option<Defence>) -> Option<bool> {
    let (place, _host, port) = plain(without);
    let password = place.run(["mqtt", "user", "add", "lamp", "--publish", "tele/lamp"]).ok();
    let password = password.text();
    Some(publishes(&place, port, ("lamp", password.trim()), "raw"))
}

/// A capability that was heard where MQTT is not encrypted is of use there.
pub fn capability_in_clear(without: Option<Defence>) -> Option<bool> {
    let (place, _host, port) = plain(without);
    let token = place.run(["cap", "issue", "--append", "raw"]).ok();
    let token = token.text();
    Some(publishes(&place, port, ("", token.trim()), "raw"))
}
