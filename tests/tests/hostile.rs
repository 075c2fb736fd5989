//! Clients that lie, vanish, never read, never finish or come in masses: each is told what was wrong, as far as it
//! listens, and nobody else notices.

use millrace_tests::{
    Host, Place, eventually,
    raw::{Client, LONG, framed, hello, memory_bytes, status_file},
};
use millrace_wire::protocol::{
    Append, AppendMany, Appended, AppendedMany, CreateLog, Get, Hello, Message, NewRecord, Offer, PREFACE, Ping, Pong,
    Record, Records, Tail,
};
use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

fn place() -> Place {
    let place = Place::new();
    place.run(["log", "create", "raw", "--history", "100000"]).ok();
    place
}

#[test]
fn lies_before_the_handshake_are_told_and_end_the_connection() {
    let (place, body) = (place(), |body: &[u8]| [&(body.len() as u32).to_le_bytes()[..], body].concat());
    let host = place.serve_tcp([] as [&str; 0]);
    let port = host.port();
    let mut witness = Client::connect(port);
    let versions = framed(1, &Hello { oldest: 3, newest: 9, ..hello() });
    let entitled = framed(1, &Hello { capabilities: vec![Offer { capability: b"owner", proof: &[0; 32] }], ..hello() });
    let elsewhere = framed(1, &Hello { namespace: "elsewhere", ..hello() });
    for (bytes, code) in [
        (u32::MAX.to_le_bytes().to_vec(), "MR6002"),
        ((17u32 << 10).to_le_bytes().to_vec(), "MR6002"),
        (body(b""), "MR6003"),
        (body(b"\xc0"), "MR6003"),
        (body(b"\x96\x01\x01\x00\xc0\x80\xc0"), "MR6003"),
        (body(b"\x96\x01\x01\x00\xc0\x80\x10"), "MR6003"),
        (body(b"\x95\x01\xa1x\x00\xc0\x80"), "MR6003"),
        (body(&[0x91; 4000]), "MR6003"),
        (framed(1, &Ping {}), "MR6005"),
        (framed(1, &Append { log: "raw", data: b"x", ..Append::default() }), "MR6005"),
        (body(b"\x95\x01\x01\x00\xc0\x80"), "MR6003"),
        (versions, "MR6006"),
        (entitled, "MR6131"),
        (elsewhere, "MR6007"),
    ] {
        let mut client = Client::raw(port);
        client.stream.write_all(&bytes).unwrap();
        assert_eq!(client.failure(), code, "{bytes:x?}");
        assert!(client.is_closed());
        witness.append(b"still there");
    }
    assert_eq!(witness.append(b"last"), 15);
}

#[test]
fn a_bad_request_is_answered_and_the_next_one_served() {
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let mut client = Client::connect(host.port());
    let body = |body: &[u8]| [&(body.len() as u32).to_le_bytes()[..], body].concat();
    let wrong_type = body(b"\x95\x10\x05\x00\xc0\x82\xa3log\x01\xa4data\xc4\x00");
    let twice = body(b"\x95\x10\x05\x00\xc0\x83\xa3log\xa1a\xa3log\xa1a\xa4data\xc4\x00");
    let text_for_bytes = body(b"\x95\x10\x05\x00\xc0\x82\xa3log\xa3raw\xa4data\xc0");
    let unknown = body(b"\x95\xcc\xc8\x05\x00\xc0\x80");
    let tail = framed(5, &Tail { log: "raw", from: 1, incarnation: 999, credit: 1, ..Tail::default() });
    for (bytes, code) in [
        (wrong_type, "MR6003"),
        (twice, "MR6003"),
        (text_for_bytes, "MR6003"),
        (unknown, "MR6004"),
        (framed(5, &Append { log: "../raw", data: b"", ..Append::default() }), "MR1001"),
        (framed(5, &Append { log: "_keys", data: b"", ..Append::default() }), "MR6022"),
        (framed(5, &Append { log: "none", data: b"", ..Append::default() }), "MR2101"),
        (framed(5, &Append { log: "raw", data: b"", function: Some("f"), ..Append::default() }), "MR3001"),
        (framed(5, &Append { log: "raw", data: b"", key: Some(""), ..Append::default() }), "MR6025"),
        (framed(5, &Get { log: "raw", seqno: u64::MAX, ..Get::default() }), "MR2105"),
        (framed(5, &CreateLog { log: "big", history: u64::MAX }), "MR2107"),
        (tail, "MR6024"),
    ] {
        client.stream.write_all(&bytes).unwrap();
        assert_eq!(client.failure(), code, "{bytes:x?}");
        client.send(6, &Ping {});
        client.next(|frame| frame.message::<Pong>().expect("pong"));
    }
    // One that goes on sending is told all the same.
    let mut deaf = Client::connect(host.port());
    deaf.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let _ = deaf.stream.write_all(&[0; 4 << 20]);
    assert_eq!(deaf.failure(), "MR6002");
    // A frame that lies about where it ends takes the rest of the connection with it, and no more.
    client.stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert_eq!(client.failure(), "MR6002");
    assert!(client.is_closed());
    assert_eq!(Client::connect(host.port()).append(b"x"), 1);
}

#[test]
fn clients_that_vanish_anywhere_leave_nothing_behind() {
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let mut witness = Client::connect(host.port());
    let session: Vec<u8> = [
        PREFACE.to_vec(),
        framed(1, &hello()),
        framed(2, &Append { log: "raw", data: &[7; 300], key: Some("once"), ..Append::default() }),
        framed(3, &Tail { log: "raw", from: 1, credit: 100, ..Tail::default() }),
        framed(4, &Get { log: "raw", seqno: 1_000_000, wait_ms: 60_000, ..Get::default() }),
    ]
    .concat();
    for cut in (0..session.len()).step_by(3) {
        let mut stream = TcpStream::connect(("127.0.0.1", host.port())).unwrap();
        // The host may have answered and closed already.
        let _ = stream.write_all(&session[..cut]);
        if cut % 2 == 0 {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    // However often it was sent, in whole or in part, the keyed append happens once.
    witness.send(7, &Append { log: "raw", data: &[7; 300], key: Some("once"), ..Append::default() });
    assert_eq!(witness.next(|frame| frame.message::<Appended>().expect("appended").seqno), 1);
    assert_eq!(witness.append(b"after"), 2);
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", host.pid())).unwrap().count();
    eventually("every connection is closed", || descriptors() < 100);
}

#[test]
fn a_client_that_never_reads_and_one_that_never_finishes_are_bounded_and_end() {
    let place = place();
    let host = place.serve_tcp(["--patience", "5s"]);
    let mut witness = Client::connect(host.port());
    assert_eq!(witness.append(&[1; 200_000]), 1);
    let before = memory_bytes(&host);
    let mut slow = Client::connect(host.port());
    slow.stream.write_all(&(1u32 << 20).to_le_bytes()).unwrap();
    let mut deaf = Client::connect(host.port());
    deaf.stream.set_write_timeout(Some(LONG)).unwrap();
    let get = framed(9, &Get { log: "raw", seqno: 1, ..Get::default() });
    // More is asked for than any buffer between takes; at some point no more can be asked: the host has stopped reading, and
    // gives up a client that goes on to take nothing.
    let asking = std::thread::spawn(move || {
        let asked = (0..4_000_000).take_while(|_| deaf.stream.write_all(&get).is_ok()).count();
        (asked, deaf)
    });
    let (mut appended, mut most) = (1, 0);
    while !asking.is_finished() || appended < 1000 {
        appended += 1;
        assert_eq!(witness.append(b"unharmed"), appended);
        most = most.max(memory_bytes(&host));
    }
    let grown = most.saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more for one client");
    let (asked, mut deaf) = asking.join().unwrap();
    assert!(asked < 4_000_000, "the host reads without bound");
    // Both are given up; a client that goes on reading would have been served to the end.
    assert!(slow.is_closed() && deaf.is_closed());
    assert_eq!(witness.append(b"still"), appended + 1);
}

#[test]
fn a_client_that_reads_late_gets_everything_in_full() {
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let mut client = Client::connect(host.port());
    client.append(&[5; 100_000]);
    let requests = 500u64;
    let asking = client.stream.try_clone().unwrap();
    let asker = std::thread::spawn(move || {
        for request in 0..requests {
            (&asking).write_all(&framed(request + 10, &Get { log: "raw", seqno: 1, ..Get::default() })).unwrap();
        }
    });
    std::thread::sleep(Duration::from_secs(1));
    let mut seen: Vec<u64> = (0..requests)
        .map(|_| {
            client.next(|frame| {
                assert_eq!(frame.message::<Record<'_>>().expect("a record").data, [5; 100_000]);
                frame.heading.request
            })
        })
        .collect();
    asker.join().unwrap();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(10..requests + 10));
}

#[test]
fn a_client_that_asks_for_much_and_then_closes_its_half_gets_everything() {
    const MANY: u64 = 500;
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let mut client = Client::connect(host.port());
    client.append(&[5; 16_000]);
    let get = |request| framed(request, &Get { log: "raw", seqno: 1, ..Get::default() });
    let mut asked: Vec<u8> = (0..MANY).flat_map(|n| get(n + 10)).collect();
    asked.extend(framed(7, &Append { log: "raw", data: b"behind them", ..Append::default() }));
    // What is no whole frame is not missed.
    asked.extend(&get(9)[..10]);
    client.stream.write_all(&asked).unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut answered = 0;
    while let Some(seqno) = client.try_next(|frame| frame.message::<Appended>().ok().map(|appended| appended.seqno)) {
        answered += 1;
        assert!(seqno.is_none() || answered == MANY + 1, "an answer to what came last");
    }
    assert_eq!(answered, MANY + 1);
    assert_eq!(place.records("raw").len(), 2);
}

#[test]
fn a_tail_hears_that_its_log_is_removed_however_busy_others_are() {
    let place = place();
    place.run(["log", "create", "doomed"]).ok();
    let host = place.serve_tcp([] as [&str; 0]);
    let port = host.port();
    let mut following = Client::connect(port);
    following.send(9, &Tail { log: "doomed", from: 1, credit: 10, ..Tail::default() });
    following.next(|frame| assert_eq!(frame.kind, Records::TYPE, "where the tail begins"));
    let over = Arc::new(AtomicBool::new(false));
    let busy = {
        let (over, mut client) = (over.clone(), Client::connect(port));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                client.append(b"busy");
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    };
    place.run(["log", "rm", "doomed"]).ok();
    let reported = following.failure();
    over.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    assert_eq!(reported, "MR2101");
}

#[test]
fn millions_of_records_in_one_body_are_refused_without_room_for_them() {
    const MANY: usize = 8_000_000;
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let body = format!("[{}{{}}]", "{},".repeat(MANY - 1));
    let most = |host: &Host| {
        let status = fs::read_to_string(status_file(host)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
    let before = most(&host);
    let mut stream = TcpStream::connect(("127.0.0.1", host.port())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = "POST /v1/namespaces/main/logs/raw/records HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/vnd.millrace.records+json\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("8000000 records in one batch; the limit is 1024"), "{answer}");
    let grown = most(&host) - before;
    assert!(grown < 5 * body.len(), "{} MiB for a body of {}", grown >> 20, body.len() >> 20);
}

#[test]
fn a_keyed_batch_is_noted_in_few_bytes_and_answered_as_it_was_by_the_next_host() {
    let place = place();
    place.run(["log", "create", "other"]).ok();
    let batch = |client: &mut Client| {
        let record = |n: u32| NewRecord { log: if n.is_multiple_of(3) { "other" } else { "raw" }, data: b"x" };
        let records = (0..1024).map(record).collect();
        client.send(7, &AppendMany { records, key: Some("batch"), ..AppendMany::default() });
        client.next(|frame| {
            let AppendedMany { records } = frame.message().expect("appended");
            records.iter().map(|record| (record.seqno, record.id)).collect::<Vec<_>>()
        })
    };
    let host = place.serve_tcp([] as [&str; 0]);
    let mut client = Client::connect(host.port());
    client.append(b"before");
    let first = batch(&mut client);
    assert_eq!((first.len(), first[0].0, first[1].0, first[1023].0), (1024, 1, 2, 342));
    assert_eq!(batch(&mut client), first);
    drop(host);
    let host = place.serve_tcp([] as [&str; 0]);
    assert_eq!(batch(&mut Client::connect(host.port())), first);
    let rows = place.records("_keys");
    assert!(rows.len() == 1 && rows[0].len() < 200, "{rows:?}");
}

#[test]
fn connections_beyond_the_limit_are_refused_and_accepted_again_once_there_is_room() {
    let place = place();
    let host = place.serve_tcp(["--connections-max", "50"]);
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(host.port())).collect();
    let mut refused = Client::raw(host.port());
    assert_eq!(refused.failure(), "MR6009");
    assert!(refused.is_closed());
    assert_eq!(clients[49].append(b"x"), 1);
    clients.truncate(10);
    eventually("there is room again", || {
        let mut client = Client::raw(host.port());
        let _ = client.stream.write_all(&framed(1, &hello()));
        client.try_next(|frame| frame.kind) == Some(2)
    });
}

#[test]
fn random_bytes_never_end_the_host() {
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    let mut witness = Client::connect(host.port());
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let session: Vec<u8> = [
        framed(1, &hello()),
        framed(2, &Append { log: "raw", data: &[7; 64], ..Append::default() }),
        framed(3, &Get { log: "raw", seqno: 1, ..Get::default() }),
        framed(4, &Tail { log: "raw", from: 1, credit: 3, ..Tail::default() }),
    ]
    .concat();
    for _ in 0..400 {
        let mut bytes = session.clone();
        for _ in 0..=random() % 4 {
            let at = (random() % bytes.len() as u64) as usize;
            bytes[at] = random() as u8;
        }
        let mut stream = TcpStream::connect(("127.0.0.1", host.port())).unwrap();
        let _ = stream.write_all(&PREFACE).and_then(|()| stream.write_all(&bytes));
        let _ = stream.shutdown(Shutdown::Write);
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut answers = Vec::new();
        // A reset is an answer too; silence is not.
        if let Err(error) = stream.read_to_end(&mut answers) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
    witness.append(b"x");
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
}
