//! The first bytes of connections, and requests over HTTP/2, that no honest client sends: each connection ends, and the others are served.

use crate::connections::rest;
use millrace_tests::{
    Host, Place,
    raw::{Client, LONG},
};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::TcpStream,
};

pub(crate) const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
pub(crate) const SETTING_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];

fn place() -> Place {
    let place = Place::new();
    place.run(["log", "create", "raw", "--history", "100000"]).ok();
    place
}

pub(crate) fn open(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// The answer to a request over HTTP/1.1, after which the host closes.
fn asked(port: u16, request: &str) -> String {
    let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
    let head = head.replace('\n', "\r\n");
    let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n{body}");
    String::from_utf8(rest(&mut open(port, request.as_bytes()))).unwrap()
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The client's preface, with these settings.
pub(crate) fn preface(settings: &[u8]) -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, settings)].concat()
}

/// The header fields of a GET request.
pub(crate) fn get(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0x82, 0x86, 0x04], text(path), vec![0x01], text("localhost")].concat()
}

/// The frames that come until the host closes: kind, stream, payload. `enough` ends it earlier.
pub(crate) fn frames(stream: &mut TcpStream, enough: impl Fn(&(u8, u32, Vec<u8>)) -> bool) -> Vec<(u8, u32, Vec<u8>)> {
    let mut frames = Vec::new();
    loop {
        let mut head = [0; 9];
        // A reset ends it, too; silence does not.
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the host is silent"),
            Err(_) => return frames,
            Ok(()) => {}
        }
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        if stream.read_exact(&mut payload).is_err() {
            return frames;
        }
        frames.push((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload));
        if enough(frames.last().unwrap()) {
            return frames;
        }
    }
}

/// Whether a request over HTTP/2 is answered with status 200.
fn is_served(host: &Host) -> bool {
    let ask = frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/healthz"));
    let mut stream = open(host.port(), &[preface(&[]), ask].concat());
    let answer = frames(&mut stream, |(kind, ..)| *kind == HEADERS);
    // 0x88 is the field `:status: 200`.
    answer.last().is_some_and(|(kind, stream, fields)| (*kind, *stream, fields[0]) == (HEADERS, 1, 0x88))
}

#[test]
fn half_of_the_first_bytes_slow_ones_and_unknown_ones_harm_nobody() {
    let place = place();
    let host = place.serve_tcp(["--patience", "2s"]);
    let mut witness = Client::connect(host.port());
    // Of each protocol: a part of the first bytes, and then of what follows them.
    let beginnings: [&[u8]; 6] = [
        b"MR/2\x10",
        b"MR/P\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"GET / HTTP/1.1\r\nHo",
        b"\x16\x03\x01\x02",
        b"\x10\x10",
    ];
    let mut halves: Vec<TcpStream> = beginnings
        .iter()
        .flat_map(|beginning| (1..=beginning.len()).map(|length| &beginning[..length]))
        .map(|half| open(host.port(), half))
        .collect();
    assert_eq!(witness.append(b"x"), 1);
    assert!(is_served(&host));
    for half in &mut halves {
        rest(half);
    }
    // Byte by byte, each in a segment of its own.
    let mut slow = open(host.port(), b"");
    slow.set_nodelay(true).unwrap();
    for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" {
        slow.write_all(&[*byte]).unwrap();
    }
    assert!(rest(&mut slow).starts_with(b"HTTP/1.1 200 "));
    for unknown in [[0; 8], [0xff; 8], *b"MR/3\0\0\0\0", *b"SSH-2.0-", *b"PRI?\r\n\r\n"] {
        let answer = String::from_utf8(rest(&mut open(host.port(), &[&unknown[..], b"\r\n\r\n"].concat()))).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("MR6051"), "{unknown:?}: {answer}");
    }
    assert_eq!(witness.append(b"x"), 2);
}

#[test]
fn an_address_for_one_protocol_refuses_the_others_in_their_own_words() {
    let place = place();
    let host = place.serve_tcp(["--listen", "http=127.0.0.1:0"]);
    let announced: Value = serde_json::from_str(host.announcement()).unwrap();
    assert_eq!(announced["only"][0]["name"], "http");
    let address = announced["only"][0]["address"].as_str().unwrap();
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    assert!(asked(port, "GET /healthz HTTP/1.1").starts_with("HTTP/1.1 200 "));
    assert_eq!(Client::raw(port).failure(), "MR6085");
    assert_eq!(rest(&mut open(port, b"MR/P")), b"");
    assert_eq!(Client::connect(host.port()).append(b"x"), 1);
    Place::new().run(["serve", "--listen", "htp=127.0.0.1:0"]).fails("MR1006", 2);
}

#[test]
fn a_mount_has_its_methods_and_no_body_where_it_takes_none() {
    let place = place();
    let host = place.serve_tcp([] as [&str; 0]);
    for (request, status, code) in [
        ("GET /ui/ HTTP/1.1", "200", ""),
        ("GET /ui/farm/logs HTTP/1.1", "200", ""),
        ("GET / HTTP/1.1\nAccept: text/html", "303", ""),
        ("POST /ui/ HTTP/1.1\nContent-Length: 1\n\nx", "405", "MR6042"),
        ("GET /ui/ HTTP/1.1\nContent-Length: 1\n\nx", "413", "MR6087"),
        ("GET /ui/ HTTP/1.1\nTransfer-Encoding: chunked\n\n1\r\nx\r\n0\r\n\r\n", "413", "MR6087"),
        ("GET /uix HTTP/1.1", "404", "MR6041"),
    ] {
        let answer = asked(host.port(), request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(code), "{request}: {answer}");
    }
    let long = format!("GET /ui/{} HTTP/1.1", "a".repeat(20 << 10));
    assert!(asked(host.port(), &long).contains("MR6052"));
    let long = format!("GET /ui/ HTTP/1.1\nCookie: {}", "a".repeat(20 << 10));
    assert!(asked(host.port(), &long).contains("MR6052"));
}

#[test]
fn floods_over_http2_end_and_harm_nobody() {
    let place = place();
    let host = place.serve_tcp(["--patience", "1s", "--name", "farm"]);
    let mut witness = Client::connect(host.port());
    assert_eq!(witness.append(b"x"), 1);
    let port = host.port();
    let ask = |stream: u32, path: &str| frame(HEADERS, END_STREAM | END_HEADERS, stream, &get(path));
    // A head without an end: many continuations, or one field that is too long.
    let mut endless = open(port, &[preface(&[]), frame(HEADERS, END_STREAM, 1, &get("/"))].concat());
    let part = frame(CONTINUATION, 0, 1, &[&[0x00, 1, b'a', 100][..], &[b'a'; 100]].concat());
    while endless.write_all(&part.repeat(100)).is_ok() {}
    drop(endless);
    let field = [&[0x00, 1, b'a', 0x7f, 0x81, 0xfe, 0x00][..], &[b'a'; 16_256]].concat();
    let [first, second] = [&field[..8000], &field[8000..]];
    let head = [
        frame(HEADERS, END_STREAM, 1, &[&get("/healthz")[..], first].concat()),
        frame(CONTINUATION, END_HEADERS, 1, second),
    ];
    let answers = frames(&mut open(port, &[preface(&[]), head.concat()].concat()), |(kind, ..)| {
        matches!(*kind, HEADERS | GOAWAY | RESET)
    });
    assert!(!answers.iter().any(|(kind, _, fields)| *kind == HEADERS && fields[0] == 0x88), "{answers:?}");
    // Requests that are cancelled at once, without end.
    let mut resets = open(port, &preface(&[]));
    for number in 0..20_000u32 {
        let stream = 2 * number + 1;
        if resets.write_all(&[ask(stream, "/metrics"), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat()).is_err() {
            break;
        }
    }
    drop(resets);
    // More at once than there may be.
    let tail = "/v1/namespaces/farm/logs/raw/tail";
    let asks: Vec<u8> = (0..65).flat_map(|number| ask(2 * number + 1, tail)).collect();
    let mut many = open(port, &[preface(&[]), asks].concat());
    let refused = frames(&mut many, |(kind, ..)| *kind == RESET);
    assert_eq!(
        refused.last().map(|(kind, stream, code)| (*kind, *stream, &code[..])),
        Some((RESET, 129, &[0, 0, 0, 7][..]))
    );
    // A client that takes the first parts of an answer, and then no more.
    let window = [0, 4, 0, 0, 0x40, 0];
    let mut stalled = open(port, &[preface(&window), ask(1, "/openapi.json")].concat());
    let answer = frames(&mut stalled, |_| false);
    assert!(answer.iter().any(|(kind, ..)| *kind == DATA), "{answer:?}");
    // One that sends a part of a body, and then no more.
    let post =
        [vec![0x83, 0x86, 0x04, 36], b"/v1/namespaces/farm/logs/raw/records".to_vec(), get("/")[5..].to_vec()].concat();
    let mut slow = open(port, &[preface(&[]), frame(HEADERS, END_HEADERS, 1, &post), frame(DATA, 0, 1, b"x")].concat());
    assert!(frames(&mut slow, |(kind, ..)| *kind == HEADERS).iter().any(|(kind, ..)| *kind == HEADERS));
    // One that sends what asks for nothing, for as long as it is heard.
    let mut pings = open(port, &preface(&[]));
    pings.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    while pings.write_all(&frame(PING, 0, 0, &[0; 8])).is_ok() {
        match pings.read(&mut [0; 4096]) {
            Ok(0) => break,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
            _ => {}
        }
    }
    // A client that leaves no room for the answer.
    let mut stalled = open(port, &[preface(&SETTING_WINDOW), ask(1, "/openapi.json")].concat());
    let answer = frames(&mut stalled, |_| false);
    assert!(answer.iter().any(|(kind, ..)| *kind == HEADERS), "{answer:?}");
    // Windows beyond all bounds, and frames that are none.
    for wrong in [
        frame(WINDOW, 0, 0, &u32::MAX.to_be_bytes()),
        frame(SETTINGS, 0, 1, &[]),
        frame(HEADERS, END_STREAM | END_HEADERS, 2, &[]),
        vec![0xff; 9],
    ] {
        let ended = frames(&mut open(port, &[preface(&[]), wrong].concat()), |_| false);
        assert_eq!(ended.last().map(|(kind, ..)| *kind), Some(GOAWAY), "{ended:?}");
    }
    assert_eq!(witness.append(b"x"), 2);
    assert!(is_served(&host));
}
