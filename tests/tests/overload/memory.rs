//! Many connections, and much over each: what a host holds for them is bounded, and the others go on.

use crate::{LARGE_BYTES, OWN_BYTES, Peak, protocols, slack_bytes};
use millrace_tests::{
    Place, eventually,
    raw::{Client, LONG, framed, hello},
};
use millrace_wire::protocol::{Append, Appended, Failure, Get, PREFACE, Record, Records, Tail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Who is given up makes room: here nobody is, however slow the machine.
const PATIENT: [&str; 2] = ["--patience", "1000s"];

/// A namespace with a log `raw`, where records may be long.
fn place(history: u64) -> Place {
    let place = Place::empty();
    let text = format!(
        "[namespace]\nsegment_size = \"64MiB\"\nretain_bytes = \"64MiB\"\ndurability = \"memory\"\n\
         [logs.raw]\nhistory = {history}\n[logs.large]\nhistory = 2\n"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place
}

/// Appends a long record to the log `large`.
fn append_large(client: &mut Client, bytes: usize) -> u64 {
    client.send(7, &Append { log: "large", data: &vec![7; bytes], ..Append::default() });
    client.next(|frame| frame.message::<Appended>().expect("appended").seqno)
}

#[test]
fn clients_that_never_read_large_answers_share_one_limit_and_others_continue() {
    const DEAF: usize = 90;
    let place = place(1000);
    // Anyone who waits for memory has it once others were given up.
    let host = place.serve_tcp(["--patience", "10s"]);
    let port = host.port();
    let mut witness = Client::connect(port);
    append_large(&mut witness, 14_000_000);
    let peak = Peak::of(&host);
    let mut deaf = Vec::new();
    for n in 0..DEAF {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let of_six = n * 6 / DEAF;
        match of_six {
            4 => stream
                .write_all(b"GET /v1/namespaces/main/logs/large/records/1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .unwrap(),
            5 => stream
                .write_all(b"GET /v1/namespaces/main/logs/large/tail?from=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .unwrap(),
            _ => {
                let mut bytes = [PREFACE.to_vec(), framed(1, &hello())].concat();
                let get = Get { log: "large", seqno: 1, ..Get::default() };
                let tail = Tail { log: "large", from: 1, credit: 1000, ..Tail::default() };
                (2..5).for_each(|request| bytes.extend(framed(request, &get)));
                (5..8).for_each(|request| bytes.extend(framed(request, &tail)));
                stream.write_all(&bytes).unwrap();
            }
        }
        // It is answered, one way or the other, before the next one asks; a welcome alone is shorter.
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut begun = vec![0; if of_six < 4 { 250 } else { 12 }];
        stream.read_exact(&mut begun).unwrap();
        deaf.push(stream);
    }
    // Small things go on, whatever large ones there is no room for.
    for n in 1..=500 {
        assert_eq!(witness.append(b"small"), n);
        witness.send(3, &Get { log: "raw", seqno: n, ..Get::default() });
        witness.next(|frame| _ = frame.message::<Record<'_>>().expect("a small record"));
    }
    // A large one is there, or it is told when to ask again.
    let mut large = Client::connect(port);
    let mut is_there = || {
        large.send(3, &Get { log: "large", seqno: 1, ..Get::default() });
        large.next(|frame| match frame.message::<Failure<'_>>() {
            Ok(failure) => {
                assert_eq!((failure.code, failure.retry_after_ms), ("MR6050", Some(1000)));
                false
            }
            Err(_) => frame.message::<Record<'_>>().expect("a large record").data.len() == 14_000_000,
        })
    };
    is_there();
    drop(deaf);
    eventually("there is memory again", is_there);
    peak.expect_within(LARGE_BYTES + DEAF as u64 * OWN_BYTES + slack_bytes());
}

#[test]
fn web_clients_that_never_take_large_answers_share_the_same_bound() {
    const DEAF: usize = 80;
    let place = place(1000);
    let host = place.serve_tcp(PATIENT);
    let port = host.port();
    let mut witness = Client::connect(port);
    append_large(&mut witness, 14_000_000);
    let peak = Peak::of(&host);
    let ask = |accept: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let path = "/v1/namespaces/main/logs/large/records/1";
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        // The head of each answer is taken, so that it is made before the next one is asked for.
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, String::from_utf8(head.to_vec()).unwrap())
    };
    let answers: Vec<_> = (0..DEAF).map(|n| ask(["*/*", "application/json"][n % 2])).collect();
    let given = answers.iter().filter(|(_, head)| head == "HTTP/1.1 200").count();
    assert!(answers.iter().all(|(_, head)| ["HTTP/1.1 200", "HTTP/1.1 503"].contains(&&**head)));
    assert!((8..40).contains(&given), "{given} large answers at once");
    assert_eq!(witness.append(b"small"), 1);
    drop(answers);
    eventually("there is memory again", || ask("*/*").1 == "HTTP/1.1 200");
    peak.expect_within(LARGE_BYTES + DEAF as u64 * OWN_BYTES + slack_bytes());
}

#[test]
fn answers_over_http2_that_nobody_takes_share_the_same_bound() {
    const DEAF: usize = 40;
    let place = place(1000);
    let host = place.serve_tcp(PATIENT);
    let port = host.port();
    let mut witness = Client::connect(port);
    append_large(&mut witness, 14_000_000);
    let peak = Peak::of(&host);
    let get = protocols::get("/v1/namespaces/main/logs/large/records/1");
    let ask = || {
        let mut asks = protocols::preface(&protocols::SETTING_WINDOW);
        for number in 0..DEAF as u32 {
            asks.extend(protocols::frame(protocols::HEADERS, 5, 2 * number + 1, &get));
        }
        let mut stream = protocols::open(port, &asks);
        let mut heads = Vec::new();
        while heads.len() < DEAF {
            let (_, _, fields) =
                protocols::frames(&mut stream, |(kind, ..)| *kind == protocols::HEADERS).pop().unwrap();
            // 0x88 is the field `:status: 200`.
            heads.push(fields[0] == 0x88);
        }
        (stream, heads)
    };
    let answers = [ask(), ask()];
    let given = answers.iter().flat_map(|(_, heads)| heads).filter(|is_given| **is_given).count();
    assert!((8..40).contains(&given), "{given} large answers at once");
    assert_eq!(witness.append(b"small"), 1);
    drop(answers);
    eventually("there is memory again", || ask().1[0]);
    peak.expect_within(LARGE_BYTES + 2 * OWN_BYTES + slack_bytes());
}

#[test]
fn a_flood_of_large_records_is_accepted_piece_by_piece_and_completely() {
    const MANY: usize = 48;
    const BYTES: usize = 14_000_000;
    let place = place(1000);
    let host = place.serve_tcp(PATIENT);
    let port = host.port();
    let mut witness = Client::connect(port);
    let peak = Peak::of(&host);
    let (go, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let floods: Vec<_> = (0..MANY)
        .map(|_| {
            let (go, sent) = (go.clone(), sent.clone());
            thread::spawn(move || {
                let frame = framed(7, &Append { log: "large", data: &vec![7; BYTES], ..Append::default() });
                // All but the end, so that the host has to keep it.
                let (most, end) = frame.split_at(frame.len() - 1000);
                let mut client = Client::connect(port);
                client.stream.write_all(most).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                while !go.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
                client.stream.write_all(end).unwrap();
                client.next(|frame| frame.message::<Appended>().expect("taken sooner or later").seqno)
            })
        })
        .collect();
    eventually("some have been received", || sent.load(Ordering::Relaxed) >= 8);
    // Time for all of them to come, if the host would let them.
    let start = Instant::now();
    let mut small = 0;
    while sent.load(Ordering::Relaxed) < MANY && start.elapsed() < Duration::from_secs(3) {
        small += 1;
        assert_eq!(witness.append(b"small"), small);
    }
    go.store(true, Ordering::Relaxed);
    let mut seqnos: Vec<u64> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
    seqnos.sort_unstable();
    assert!(seqnos.into_iter().eq(1..=MANY as u64), "each is taken once");
    assert_eq!(witness.append(b"after"), small + 1);
    peak.expect_within(LARGE_BYTES + MANY as u64 * OWN_BYTES + slack_bytes());
}

#[test]
fn ten_thousand_connections_of_all_kinds_cost_little_and_serve_each_other() {
    let room = raise_descriptors(11_000);
    let idle = room.min(11_000).saturating_sub(1000);
    let (tails, deaf, active, each) = (100, 100, 200, 10u64);
    let place = place(100_000);
    // The readers read only after everything was written, which may take longer than a host waits for them.
    let host = place.serve_tcp(PATIENT);
    let port = host.port();
    let peak = Peak::of(&host);
    let idlers: Vec<TcpStream> = (0..idle)
        .map(|n| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(&PREFACE).unwrap();
            // Some have not even greeted.
            if n % 10 > 0 {
                stream.write_all(&framed(1, &hello())).unwrap();
            }
            stream
        })
        .collect();
    let tail = Tail { log: "raw", from: 1, credit: 1_000_000, ..Tail::default() };
    let follow = |_| {
        let mut client = Client::connect(port);
        client.send(9, &tail);
        client
    };
    let mut readers: Vec<Client> = (0..tails).map(follow).collect();
    let _deaf: Vec<Client> = (0..deaf).map(follow).collect();
    let mut writers: Vec<Client> = (0..active).map(|_| Client::connect(port)).collect();
    let data = [7; 1000];
    for _ in 0..each {
        for writer in &mut writers {
            writer.send(7, &Append { log: "raw", data: &data, ..Append::default() });
        }
        for writer in &mut writers {
            writer.next(|frame| frame.message::<Appended>().expect("appended"));
        }
    }
    let all = active as u64 * each;
    for reader in &mut readers {
        let mut next = 1;
        while next <= all {
            reader.next(|frame| {
                for record in frame.message::<Records<'_>>().expect("records").records {
                    assert_eq!(record.seqno, next);
                    next += 1;
                }
            });
        }
    }
    let connections = (idle + tails + deaf + active) as u64;
    assert!(connections >= 10_000 || room < 11_000);
    // Those who say nothing take a few KiB, those who never read what is their own.
    peak.expect_within(connections * (16 << 10) + deaf as u64 * (2 << 20) + (64 << 20));
    let mut bytes = [0; 64];
    assert!((&idlers[idle - 1]).read(&mut bytes).unwrap() > 0, "the last of them was greeted too");
}

/// Lets this process have so many descriptors; how many it may have.
fn raise_descriptors(wanted: u64) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|current| current < most) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }).unwrap();
    }
    most as usize
}
