//! Connections that say nothing, say or take a byte a second, or come in masses: bounded, ended, and no harm to the others.

use crate::Peak;
use millrace_tests::{
    Place, eventually,
    raw::{Client, LONG, framed, hello},
};
use millrace_wire::protocol::{Append, Appended, Failure, Get, PREFACE, Tail, Welcome};
use rustix::net::sockopt;
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const LARGE_RECORD_BYTES: usize = 14_000_000;

fn place() -> Place {
    let place = Place::empty();
    let text = "[namespace]\nsegment_size = \"64MiB\"\nretain_bytes = \"64MiB\"\ndurability = \"memory\"\n\
                [logs.raw]\nhistory = 100000\n[logs.large]\nhistory = 2\n";
    place.write("millrace.toml", text);
    place.run(["up"]).ok();
    place
}

fn open(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // What the kernel takes for a client is not taken by the client; so it takes little.
    sockopt::set_socket_recv_buffer_size(&stream, 4096).unwrap();
    // Whom the host has refused already it need not hear.
    let _ = stream.write_all(bytes);
    stream
}

/// What the host still sends, until it closes.
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it neither answers nor closes: {error}"),
        _ => bytes,
    }
}

/// One who behaves asks over HTTP; whether it was served. If not, it is told when to come again.
fn is_served(port: u16) -> bool {
    let mut stream = open(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(rest(&mut stream)).unwrap();
    let reported = answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") || (reported && answer.contains("\"MR6009\"")), "{answer:?}");
    !reported
}

/// The same over the wire protocol.
fn is_welcome(port: u16) -> bool {
    let mut client = Client::raw(port);
    client.send(1, &hello());
    client.next(|frame| match frame.message::<Failure<'_>>() {
        Ok(failure) => {
            assert_eq!((failure.code, failure.retry_after_ms), ("MR6009", Some(1000)));
            false
        }
        Err(_) => frame.message::<Welcome<'_>>().is_ok(),
    })
}

/// Connections that the host has open, but for the one that asks.
fn open_connections(port: u16) -> usize {
    let mut stream = open(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(rest(&mut stream)).unwrap();
    let open = answer.lines().find_map(|line| line.strip_prefix("millrace_connections ")).expect("it is told");
    open.parse::<usize>().unwrap() - 1
}

#[test]
fn floods_of_connections_do_not_keep_out_clients_with_requests() {
    const MOST: usize = 100;
    let place = place();
    let host = place.serve_tcp(["--connections-max", "100", "--patience", "9s"]);
    let port = host.port();
    let mut witness = Client::connect(port);
    let peak = Peak::of(&host);
    // They say nothing; or ask once, and keep their connection; or begin and do not go on.
    let asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let flood = |said: &[u8]| -> Vec<TcpStream> { (0..3 * MOST).map(|_| open(port, said)).collect() };
    let mut before = 0;
    let mut others_go_on = || {
        assert_eq!(witness.append(b"unharmed"), before + 1);
        eventually("who asks is served", || is_served(port));
        eventually("who greets is welcome", || is_welcome(port));
        assert_eq!(witness.append(b"unharmed"), before + 2);
        before += 2;
    };
    let mut silent = flood(b"");
    others_go_on();
    assert!(rest(&mut silent[0]).is_empty(), "it had made room");
    drop(silent);
    let idle = flood(asked);
    others_go_on();
    drop(idle);
    let mut slow = flood(&asked[..20]);
    others_go_on();
    let ends: Vec<Vec<u8>> = slow[..MOST].iter_mut().map(rest).collect();
    assert!(ends.iter().any(|end| end.starts_with(b"HTTP/1.1 408 ")), "{:?}", String::from_utf8_lossy(&ends[0]));
    peak.expect_within(64 << 20);
}

#[test]
fn clients_with_a_byte_per_second_are_disconnected_and_do_not_disturb_others() {
    let place = place();
    // The large record is taken by a host that has the usual patience with it.
    let patient = place.serve_tcp([] as [&str; 0]);
    let mut client = Client::connect(patient.port());
    client.send(7, &Append { log: "large", data: &vec![7; LARGE_RECORD_BYTES], ..Append::default() });
    client.next(|frame| _ = frame.message::<Appended>().expect("appended"));
    drop(patient);
    let host = place.serve_tcp(["--patience", "4s"]);
    let port = host.port();
    let mut witness = Client::connect(port);
    let peak = Peak::of(&host);
    let wire = |messages: &[Vec<u8>]| [PREFACE.to_vec(), framed(1, &hello()), messages.concat()].concat();
    // What each says at once, and what a byte a second.
    let append = framed(2, &Append { log: "raw", data: &[7; 500], ..Append::default() });
    let writers = [
        (Vec::new(), wire(&[])),
        (PREFACE.to_vec(), framed(1, &Append { log: "raw", data: &[7; 500], ..Append::default() })),
        (wire(&[]), append),
        (Vec::new(), format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(300)).into()),
    ];
    let get = Get { log: "large", seqno: 1, ..Get::default() };
    let tail = Tail { log: "large", from: 1, credit: 10, ..Tail::default() };
    let path = "/v1/namespaces/main/logs/large";
    let readers = [
        wire(&[framed(2, &get), framed(3, &get)]),
        wire(&[framed(2, &tail)]),
        format!("GET {path}/records/1 HTTP/1.1\r\nHost: localhost\r\n\r\n").into(),
        format!("GET {path}/tail?from=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").into(),
    ];
    let over = Arc::new(AtomicBool::new(false));
    let of_thread = over.clone();
    let mut writers = writers.map(|(at_once, slowly)| (open(port, &at_once), slowly.into_iter()));
    let readers = readers.map(|asked| open(port, &asked));
    let drip = thread::spawn(move || {
        while !of_thread.load(Ordering::Relaxed) {
            for (stream, slowly) in &mut writers {
                // It may have been given up by now.
                let _ = slowly.next().map(|byte| stream.write_all(&[byte]));
            }
            for stream in &readers {
                let _ = (&*stream).read(&mut [0]);
            }
            thread::sleep(Duration::from_secs(1));
        }
    });
    // One takes some all the while, and yet less than a tenth of what it is owed in four seconds.
    let of_thread = over.clone();
    let mut stream = open(port, &wire(&[framed(2, &get)]));
    let trickle = thread::spawn(move || {
        sockopt::set_socket_recv_buffer_size(&stream, 64 << 10).unwrap();
        let mut taken = 0;
        while !of_thread.load(Ordering::Relaxed) {
            taken += stream.read(&mut [0; 36_000]).unwrap_or(0);
            thread::sleep(Duration::from_secs(1));
        }
        taken
    });
    // The host accepts in the order in which they came, so all of them before the one that asks.
    let mut appended = 0;
    eventually("none of them is left", || {
        appended += 1;
        assert_eq!(witness.append(b"unharmed"), appended);
        open_connections(port) == 1
    });
    over.store(true, Ordering::Relaxed);
    drip.join().unwrap();
    assert!(trickle.join().unwrap() < LARGE_RECORD_BYTES);
    assert_eq!(witness.append(b"still"), appended + 1);
    // Of what never came in full nothing was appended.
    assert!(place.records("raw").iter().all(|data| data == "unharmed" || data == "still"));
    peak.expect_within(256 << 20);
}

#[test]
fn a_web_client_that_takes_its_answer_late_gets_all_of_it() {
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let mut witness = Client::connect(host.port());
    let data: Vec<u8> = (0..LARGE_RECORD_BYTES).map(|n| (n % 251) as u8).collect();
    witness.send(7, &Append { log: "large", data: &data, ..Append::default() });
    witness.next(|frame| _ = frame.message::<Appended>().expect("appended"));
    let path = "/v1/namespaces/main/logs/large/records/1";
    let asked = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(("127.0.0.1", host.port())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(asked.as_bytes()).unwrap();
    // Long enough to be taken for one who asks for nothing any more, and not to have given up.
    thread::sleep(Duration::from_secs(6));
    let answer = rest(&mut stream);
    assert!(answer.ends_with(&data), "{} bytes came", answer.len());
}
