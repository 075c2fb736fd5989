//! Hosts that lie, fall silent, vanish and flood: the client ends each call in time, with a code, and stays usable.

use crate::support::{Driver, build_remote, hex};
use millrace_tests::{PATIENCE, eventually};
use millrace_wire::{
    Durability, EventId, Hlc, NamespaceId,
    protocol::{
        Append, Appended, Failure, Frame, Get, Heading, Hello, Message, PREFACE, Ping, Record, Records, Seqno, Tail,
        Welcome, encode, split,
    },
};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{OnceLock, mpsc},
    thread,
};

/// The driver, built once.
fn driver() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_remote("driver"))
}

fn framed<M: Message>(request: u64, message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, Heading { request, ..Heading::default() }, message);
    out
}

/// A frame of these bytes.
fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes()[..], body].concat()
}

/// The host's side of a connection.
struct Host {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Host {
    fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().expect("a client comes");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        let mut host = Self { stream, input: Vec::new() };
        let mut preface = [0; 4];
        host.stream.read_exact(&mut preface).expect("the preface comes");
        assert_eq!(preface, PREFACE);
        host
    }

    /// A connection that was greeted.
    fn greet(listener: &TcpListener) -> Self {
        let mut host = Self::accept(listener);
        let request = host.next(|frame| {
            assert_eq!(frame.message::<Hello<'_>>().expect("hello").namespace, "farm");
            frame.heading.request
        });
        host.send(&framed(request.expect("hello comes"), &welcome()));
        host
    }

    fn send(&mut self, bytes: &[u8]) {
        // A client that has given up does not listen.
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame; nothing if the client closed.
    fn next<R>(&mut self, look: impl FnOnce(&Frame<'_>) -> R) -> Option<R> {
        loop {
            if let Some((frame, used)) = split(&self.input, usize::MAX).expect("the client sends frames") {
                let seen = look(&frame);
                self.input.drain(..used);
                return Some(seen);
            }
            let mut bytes = [0; 1 << 16];
            match self.stream.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// The number of the next request, which is of this type.
    fn request(&mut self, kind: u8) -> u64 {
        let seen = self.next(|frame| (frame.kind, frame.heading.request));
        let (got, request) = seen.expect("a request comes");
        assert_eq!(got, kind);
        request
    }

    /// Waits until the client closes.
    fn closed(&mut self) {
        while self.next(|_| ()).is_some() {}
    }
}

fn welcome() -> Welcome<'static> {
    Welcome {
        version: 2,
        host: "scripted",
        name: "farm",
        namespace: 1,
        epoch: 1,
        frame_max_bytes: 16_842_752,
        record_max_bytes: 1 << 20,
        requests_max: 64,
        durability: Durability::Memory,
    }
}

/// Lets a scripted host and a driver meet. `options`: bytes that the client receives, its timeout, its window.
fn meet(host: impl FnOnce(TcpListener) + Send + 'static, options: [&str; 3], client: impl FnOnce(&mut Driver)) {
    meet_within("100000", host, options, client);
}

/// The same with so many milliseconds to greet each other.
fn meet_within(
    connect_timeout_ms: &str,
    host: impl FnOnce(TcpListener) + Send + 'static,
    options: [&str; 3],
    client: impl FnOnce(&mut Driver),
) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("mr://{}/farm", listener.local_addr().expect("it has one"));
    let host = thread::spawn(move || host(listener));
    let mut driver = Driver::start(driver(), &[&address, options[0], options[1], options[2], connect_timeout_ms]);
    client(&mut driver);
    drop(driver);
    host.join().expect("the host keeps to its script");
}

const PLAIN: [&str; 3] = ["0", "100000", "0"];
const LATEST: &str = "latest x72 0 0";

fn fails(answer: &Value, code: &str) {
    assert_eq!(answer["fails"], code, "{answer}");
}

/// Answers the greeting with these bytes, and expects the client to say this code.
fn greeted_with(bytes: Vec<u8>, code: &str) {
    let host = move |listener: TcpListener| {
        let mut host = Host::accept(&listener);
        host.request(Hello::TYPE);
        host.send(&bytes);
        host.closed();
    };
    // What was not answered in full is waited for; all else is refused at once.
    let timeout = if code == "MR6122" { "1000" } else { "100000" };
    meet_within(timeout, host, PLAIN, |driver| fails(&driver.answer(), code));
}

#[test]
fn greetings_that_are_none_are_refused() {
    greeted_with(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "MR6002");
    greeted_with(u32::MAX.to_le_bytes().to_vec(), "MR6002");
    greeted_with(frame(b"\x94\x02\x01\x00\xc0"), "MR6003");
    greeted_with(frame(b"\x95\xcd\x01\x00\x01\x00\xc0\x80"), "MR6004");
    greeted_with(framed(1, &Welcome { version: 3, ..welcome() }), "MR6006");
    greeted_with(framed(1, &Welcome { name: "../x", ..welcome() }), "MR6003");
    greeted_with(framed(9, &welcome()), "MR6125");
    greeted_with(framed(1, &Seqno { seqno: 1 }), "MR6005");
    greeted_with(framed(0, &Failure { code: "MR6007", detail: "no", retry_after_ms: None }), "MR6007");
    greeted_with(framed(1, &Failure { code: "none", detail: "no", retry_after_ms: None }), "MR6003");
    greeted_with(framed(1, &welcome())[..20].to_vec(), "MR6122");
    greeted_with(Vec::new(), "MR6122");
}

#[test]
fn what_was_sent_before_the_host_closed_answers_nothing() {
    let (reported, driver) = mpsc::channel();
    let host = move |listener: TcpListener| {
        let mut host = Host::accept(&listener);
        let request = host.request(Hello::TYPE);
        let driver = driver.recv_timeout(PATIENCE).expect("the driver runs");
        // It looks at nothing until the host has closed.
        kill_process(driver, Signal::STOP).expect("it is there");
        let status = format!("/proc/{}/stat", driver.as_raw_nonzero());
        eventually("the driver stops", || fs::read_to_string(&status).expect("it is there").contains(") T "));
        host.send(&[framed(request, &welcome()), framed(request + 1, &Seqno { seqno: 7 })].concat());
        drop(host);
        kill_process(driver, Signal::CONT).expect("it is there");
    };
    meet(host, PLAIN, |driver| {
        reported.send(driver.pid()).expect("the host waits");
        fails(&driver.answer(), "MR6123");
    });
}

#[test]
fn places_that_lead_nowhere_are_refused() {
    let long = format!("unix:/{}", "x".repeat(200));
    for (place, code) in [
        ("mr://127.0.0.1:1/farm", "MR6121"),
        ("mr://127.0.0.1/farm/raw", "MR6001"),
        ("mr://127.0.0.1:0/farm", "MR6001"),
        ("mr://127.0.0.1:70000/farm", "MR6001"),
        ("mr://[::1/farm", "MR6001"),
        ("mr://[x]:1/farm", "MR6001"),
        ("mr://u@a/farm", "MR6001"),
        ("mr:///farm", "MR6001"),
        ("mr://a", "MR6001"),
        ("mr://a/.x", "MR6001"),
        ("unix:/nowhere/at/all", "MR6121"),
        ("unix:", "MR6110"),
        ("", "MR6110"),
        (&long, "MR6121"),
        ("/nowhere/at/all", "MR6112"),
    ] {
        fails(&Driver::start(driver(), &[place]).answer(), code);
    }
}

/// Answers one request with these bytes; what the client says.
fn answered_with(bytes: impl FnOnce(u64) -> Vec<u8> + Send + 'static) -> Value {
    answered_within("100000", bytes)
}

/// The same with so many milliseconds for an answer.
fn answered_within(timeout_ms: &str, bytes: impl FnOnce(u64) -> Vec<u8> + Send + 'static) -> Value {
    let mut said = Value::Null;
    let host = move |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        let request = host.request(24);
        host.send(&bytes(request));
        host.closed();
    };
    meet(host, ["0", timeout_ms, "0"], |driver| said = driver.ask(LATEST));
    said
}

#[test]
fn answers_that_are_none_end_the_connection() {
    fails(&answered_with(|request| framed(request + 1, &Seqno { seqno: 1 })), "MR6125");
    fails(&answered_with(|_| framed(0, &Seqno { seqno: 1 })), "MR6125");
    fails(&answered_with(|request| framed(request, &Appended::default())), "MR6005");
    fails(&answered_with(|_| b"\xff\xff\xff\xff".to_vec()), "MR6002");
    fails(&answered_with(|_| frame(b"")), "MR6003");
    fails(
        &answered_with(|_| frame(&[&b"\x95\x19\x02\x00\xc0\x81\xa1x"[..], &[0x91; 4000], b"\xc0"].concat())),
        "MR6003",
    );
    fails(&answered_with(|_| frame(b"\x95\x19\x02\x00\xc0\x82\xa5seqno\x01\xa5seqno\x02")), "MR6003");
    fails(&answered_within("1000", |request| framed(request, &Seqno { seqno: 1 })[..9].to_vec()), "MR6124");
    fails(&answered_within("1000", |_| Vec::new()), "MR6124");
}

#[test]
fn failures_are_told_as_the_host_said_them_and_harmless_to_terminals() {
    let said = answered_with(|request| {
        framed(request, &Failure { code: "MR2102", detail: "a\x1b[31m\u{9b}é", retry_after_ms: Some(70) })
    });
    assert_eq!((&said["number"], &said["retry_after_ms"]), (&json!(-2102), &json!(70)));
    assert_eq!(said["detail"], hex("a.[31m..é".as_bytes())[1..]);
    let unknown =
        answered_with(|request| framed(request, &Failure { code: "MR9999", detail: "", retry_after_ms: None }));
    assert_eq!((&unknown["fails"], &unknown["known"]), (&json!("MR9999"), &json!(false)));
    let long = "é".repeat(1000);
    let said =
        answered_with(move |request| framed(request, &Failure { code: "MR2102", detail: &long, retry_after_ms: None }));
    assert_eq!(said["detail"].as_str().unwrap().len() % 4, 0, "no character is cut: {said}");
}

#[test]
fn a_connection_that_breaks_can_be_made_again() {
    let host = |listener: TcpListener| {
        let mut first = Host::greet(&listener);
        let request = first.request(24);
        first.send(&framed(request, &Seqno { seqno: 7 })[..6]);
        drop(first);
        let mut second = Host::greet(&listener);
        let request = second.request(24);
        for byte in framed(request, &Seqno { seqno: 8 }) {
            second.send(&[byte]); // slowly, but whole
        }
        second.closed();
    };
    meet(host, PLAIN, |driver| {
        fails(&driver.ask(LATEST), "MR6123");
        fails(&driver.ask(LATEST), "MR6123");
        assert_eq!(driver.ask("reconnect"), json!({}));
        assert_eq!(driver.ask(LATEST)["seqno"], 8);
    });
}

#[test]
fn requests_carry_the_largest_clock_that_was_seen_and_their_cause() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        for hlc in [900, 77] {
            let mut out = Vec::new();
            let request = host.request(24);
            encode(&mut out, Heading { request, hlc: Hlc::from_bits(hlc), ..Heading::default() }, &Seqno { seqno: 1 });
            host.send(&out);
        }
        let cause = EventId::new(NamespaceId::new(0xabc).unwrap(), 3, 0x12);
        let heading = host.next(|frame| frame.heading).expect("an append comes");
        assert_eq!((heading.hlc, heading.cause), (Hlc::from_bits(900), cause));
        host.send(&framed(heading.request, &Appended { seqno: 5, id: cause }));
        host.closed();
    };
    meet(host, PLAIN, |driver| {
        assert_eq!(driver.ask(LATEST)["seqno"], 1);
        assert_eq!(driver.ask(LATEST)["seqno"], 1);
        let append = format!("append x72 x31 1 - - {}", hex(b"000000000abc-3-12"));
        assert_eq!(driver.ask(&append), json!({"seqno": 5, "id": "000000000abc-3-12"}));
    });
}

#[test]
fn pings_are_answered_and_a_flood_of_them_holds_nobody_up() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        let request = host.request(24);
        host.send(&framed(99, &Ping {}));
        assert_eq!(host.next(|frame| (frame.kind, frame.heading.request)), Some((5, 99)));
        host.send(&framed(request, &Seqno { seqno: 1 }));
        host.request(24);
        let pings = framed(99, &Ping {}).repeat(1000);
        while host.stream.write_all(&pings).is_ok() {
            host.stream.set_nonblocking(true).expect("it is a socket");
            let mut answers = vec![0; 1 << 20];
            let _ = host.stream.read(&mut answers);
            host.stream.set_nonblocking(false).expect("it is a socket");
        }
    };
    meet(host, ["0", "5000", "0"], |driver| {
        assert_eq!(driver.ask(LATEST)["seqno"], 1);
        fails(&driver.ask(LATEST), "MR6124");
    });
}

#[test]
fn a_silent_host_is_asked_and_then_given_up() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        host.request(24);
        host.request(Ping::TYPE);
        host.closed();
    };
    meet(host, ["0", "60000", "0"], |driver| fails(&driver.ask(LATEST), "MR6127"));
}

#[test]
fn an_answer_that_is_too_long_is_passed_over() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        for size in [100_000, 1 << 20, 4000] {
            let request = host.request(Get::TYPE);
            let data = vec![7; size];
            host.send(&framed(request, &Record { seqno: 1, data: &data, ..Record::default() }));
        }
        host.closed();
    };
    meet(host, ["4096", "100000", "0"], |driver| {
        fails(&driver.ask("get x72 1 0"), "MR6111");
        fails(&driver.ask("get x72 1 0"), "MR6111");
        assert_eq!(driver.ask("get x72 1 0")["data"], "07".repeat(4000));
    });
}

fn records(from: u64, count: u64) -> Records<'static> {
    let record = |seqno| Record { seqno, id: EventId::from_bits(1 << 90), data: b"x", ..Record::default() };
    Records { incarnation: 3, records: (from..from + count).map(record).collect(), next: from + count }
}

#[test]
fn a_tail_that_takes_more_than_its_credit_is_ended() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        let request = host.request(24);
        host.send(&framed(request, &Seqno { seqno: 0 }));
        let seen = host.next(|frame| (frame.heading.request, frame.message::<Tail<'_>>().expect("a tail").credit));
        let (request, credit) = seen.expect("a tail comes");
        host.send(&framed(request, &records(1, u64::from(credit) + 1)));
        host.closed();
    };
    meet(host, PLAIN, |driver| fails(&driver.ask("tail x72 1 0 10 100000"), "MR6125"));
}

#[test]
fn appends_are_answered_in_any_order_and_each_is_told_once() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        let mut left = 1000;
        while left > 0 {
            let mut answers: Vec<Vec<u8>> = Vec::new();
            // As many as the window lets come, or the last of them.
            for _ in 0..left.min(64) {
                let request = host.request(Append::TYPE);
                let id = EventId::from_bits(1 << 90);
                answers.push(match request % 10 {
                    0 => framed(request, &Failure { code: "MR2102", detail: "full", retry_after_ms: Some(5) }),
                    _ => framed(request, &Appended { seqno: request, id }),
                });
            }
            left -= answers.len();
            host.send(&answers.into_iter().rev().collect::<Vec<_>>().concat());
        }
        // The last one again: nobody waits for it.
        let request = host.request(24);
        host.send(&framed(request - 1, &Appended::default()));
        host.closed();
    };
    meet(host, PLAIN, |driver| {
        let reported = driver.ask("flood x72 x31 1000");
        assert_eq!(
            (&reported["appended"], &reported["refused"], &reported["status"]),
            (&json!(900), &json!(100), &json!(-2102))
        );
        fails(&driver.ask(LATEST), "MR6125");
    });
}

#[test]
fn the_outcome_of_every_append_is_reported_when_the_host_dies() {
    let host = |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        for _ in 0..10 {
            let request = host.request(Append::TYPE);
            host.send(&framed(request, &Appended { seqno: request, id: EventId::from_bits(1 << 90) }));
        }
    };
    meet(host, PLAIN, |driver| {
        let reported = driver.ask("flood x72 x31 5000");
        let (appended, refused) = (reported["appended"].as_i64().unwrap(), reported["refused"].as_i64().unwrap());
        // What was under way is told as refused; what was never sent was refused to its face.
        assert!(appended <= 10 && refused > 0 && appended + refused < 5000, "{reported}");
        assert_eq!((&reported["status"], &reported["last"]), (&json!(-6123), &json!(-6123)));
    });
}

#[test]
fn a_host_that_does_not_read_holds_nobody_up() {
    let (reported, given_up) = mpsc::channel();
    let host = move |listener: TcpListener| {
        let mut host = Host::greet(&listener);
        host.request(Append::TYPE);
        given_up.recv_timeout(PATIENCE).expect("the client gives up");
    };
    let data = hex(&vec![1; 1 << 20]);
    meet(host, ["0", "1000", "64"], move |driver| {
        let said = driver.ask(&format!("flood x72 {data} 100"));
        reported.send(()).expect("the host waits");
        assert_eq!(said["status"], -6124, "{said}");
        assert_eq!(said["appended"], 0);
    });
}
