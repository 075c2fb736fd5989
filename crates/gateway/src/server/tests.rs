//! A server that cannot go on says so; one that is full makes room for those who have something to say.

mod stalls;

use super::{Protocols, Server, ServerOptions, event_loop::EventLoop, event_loop::Shared};
use crate::{
    Hosted,
    wire::tests::{framed, hello, hosted},
};
use millrace_node::{
    Durability,
    secrets::{Authority, HostKey},
    token::{Grant, Rights, Rules, TokenId},
};
use millrace_wire::Code;
use millrace_wire::protocol::{FRAME_MAX_BYTES, Failure, Message, PREFACE, Ping, Pong, Welcome, split};
use std::{
    io::{Read, Write},
    net::{IpAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixListener, UnixStream},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const CASE: &str = "MILLRACE_ACCEPT_CASE";
/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(120);

/// A host whose acceptors panic at the first connection: they have no loop to give it to.
fn host_that_cannot_go_on(case: &str) {
    millrace_threads::guard().unwrap();
    let options = ServerOptions { loops: 1, connections_max: 10, ..ServerOptions::default() };
    let shared = Arc::new(Shared::new(Arc::new(Hosted::new(Vec::new())), Protocols::all(), None, &options));
    let lonely = EventLoop::start(0, "lonely".into(), shared).unwrap();
    if case == "accept TCP" {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        lonely.accept(vec![(listener, None)], None, Vec::new()).unwrap();
        let _connected = TcpStream::connect(address);
        thread::sleep(HANG);
    } else {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        lonely.accept(Vec::new(), Some(listener), Vec::new()).unwrap();
        let _connected = UnixStream::connect(&path);
        thread::sleep(HANG);
    }
}

/// The case is this test again in a process of its own, which has to end.
#[test]
fn a_panic_where_connections_are_accepted_ends_the_host_loudly() {
    if let Ok(case) = std::env::var(CASE) {
        return host_that_cannot_go_on(&case);
    }
    for case in ["accept TCP", "accept Unix"] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "server::tests::a_panic_where_connections_are_accepted_ends_the_host_loudly"]);
        let ended = again.arg("--nocapture").env(CASE, case).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("error[MR5005]: task '{case}' panicked")), "{said}");
    }
}

/// As if it came between the look at who is there and the end of accepting.
#[test]
fn a_silent_connection_does_not_delay_a_stopping_host() {
    let (_dir, hosted) = hosted(Durability::Memory);
    let options = ServerOptions { listen: "127.0.0.1:0".parse().unwrap(), ..ServerOptions::default() };
    let server = Server::start(hosted.clone(), &options).unwrap();
    hosted.drain();
    // Nobody listens there any more: that is as good.
    let Ok(mut silent) = TcpStream::connect(server.bound().addresses[0]) else { return };
    assert_eq!(rest(&mut silent), "");
    let dropped = hosted.counters.dropped.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(dropped, 0, "it was waited for, and given up");
    server.stop(HANG);
}

/// What the host still sends, until it closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.set_read_timeout(Some(HANG)).unwrap();
    match stream.read_to_string(&mut text) {
        Ok(_) => text,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => text,
        Err(error) => panic!("the host neither answers nor closes: {error}"),
    }
}

#[test]
fn the_longest_silent_connection_is_closed_and_active_ones_are_not() {
    const MOST: usize = 3;
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ServerOptions { listen, loops: 2, connections_max: MOST, ..ServerOptions::default() };
    let (_dir, hosted) = hosted(Durability::Memory);
    let server = Server::start(hosted, &options).unwrap();
    let address = server.bound().addresses[0];
    let connect = || TcpStream::connect(address).unwrap();
    let ask = |stream: &mut TcpStream, connection| {
        let asked = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n");
        stream.write_all(asked.as_bytes()).unwrap();
    };
    let wait_for_open = |count| until("connections come and go", || server.shared.open() == count);
    // Accepted one by one, so that they are silent in this order.
    let mut silent: Vec<TcpStream> = Vec::new();
    for count in 1..=MOST {
        silent.push(connect());
        until("it is silent", || server.shared.hosted.silence.len() == count);
    }
    let mut speaks = connect();
    ask(&mut speaks, "close");
    assert!(rest(&mut speaks).starts_with("HTTP/1.1 200 "), "the first of the silent made room");
    assert_eq!(rest(&mut silent.remove(0)), "");
    // The others still have their place.
    for stream in &mut silent {
        ask(stream, "close");
        assert!(rest(stream).starts_with("HTTP/1.1 200 "));
    }
    wait_for_open(0);
    // Those who have spoken the wire protocol keep their place: now the newcomer is refused, with an error.
    let greeted = || {
        let mut stream = connect();
        stream.write_all(&[PREFACE.to_vec(), hello()].concat()).unwrap();
        assert_eq!(next_kind(&mut stream), Welcome::TYPE);
        stream
    };
    let mut speaking: Vec<TcpStream> = (0..MOST).map(|_| greeted()).collect();
    let mut refused = connect();
    ask(&mut refused, "keep-alive");
    let reported = rest(&mut refused);
    assert!(reported.starts_with("HTTP/1.1 503 ") && reported.contains("\r\nretry-after: 1\r\n"), "{reported}");
    assert!(reported.contains("\"MR6009\"") && reported.contains("\"retry_after_ms\":1000"), "{reported}");
    let mut refused = connect();
    refused.write_all(&[PREFACE.to_vec(), hello()].concat()).unwrap();
    assert_eq!(next_kind(&mut refused), Failure::TYPE);
    for stream in &mut speaking {
        let mut ping = Vec::new();
        framed(&mut ping, 2, &Ping {});
        stream.write_all(&ping).unwrap();
        assert_eq!(next_kind(stream), Pong::TYPE);
    }
    // An HTTP connection without a request is as good as silent.
    drop(speaking);
    wait_for_open(0); // Sooner there would be no place yet, and nobody silent who could make one.
    let mut kept = connect();
    ask(&mut kept, "keep-alive");
    let mut head = [0; 12];
    kept.set_read_timeout(Some(HANG)).unwrap();
    kept.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    until("it is silent again", || server.shared.hosted.silence.len() == 1 && server.shared.open() == 1);
    let _speaking: Vec<TcpStream> = (0..MOST).map(|_| greeted()).collect();
    rest(&mut kept); // It was closed when its place was needed.
}

#[test]
fn at_the_limit_the_oldest_handshake_ends() {
    const MOST: usize = super::event_loop::HANDSHAKES_MAX;
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ServerOptions { listen, loops: 2, ..ServerOptions::default() };
    let (_dir, hosted) = hosted(Durability::Memory);
    let server = Server::start(hosted, &options).unwrap();
    let begins = || {
        let mut stream = TcpStream::connect(server.bound().addresses[0]).unwrap();
        stream.write_all(&millrace_security::channel::MAGIC).unwrap();
        stream
    };
    let shaking = |count| until("handshakes are under way", || server.shared.shaking.len() == count);
    let mut first = begins();
    shaking(1);
    let others: Vec<TcpStream> = (1..MOST).map(|_| begins()).collect();
    shaking(MOST);
    let last = begins();
    assert_eq!(rest(&mut first), "", "it made room");
    shaking(MOST);
    drop((others, last));
    shaking(0);
}

/// An address of this machine that is not a loopback address, if it has one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn at_the_limit_the_longest_silent_unauthenticated_connection_ends_and_others_are_served() {
    const MOST: usize = 3;
    let Some(own) = own_address() else { return };
    let (_dir, hosted) = hosted(Durability::Memory);
    let rules = Rules { grants: vec![Grant::namespace(Rights::ALL)], ids: vec![TokenId([1; 8])], ..Rules::default() };
    let served = hosted.served()[0].clone();
    let token = Authority::ensure(served.namespace().dir()).unwrap().issue(&rules).unwrap();
    let options = ServerOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        key: Some(Arc::new(HostKey::generate().unwrap())),
        loops: 2,
        unknown_max: MOST,
        ..ServerOptions::default()
    };
    let server = Server::start(hosted, &options).unwrap();
    let port = server.bound().addresses[0].port();
    let unknown = |count| until("so many are unknown", || server.shared.unknown.open() == count);
    let place = format!("mr://{own}:{port}/{}", served.name()).parse().unwrap();
    let asks = millrace_client::Options {
        credentials: Some(Arc::new(millrace_client::Credentials::of(token))),
        ..millrace_client::Options::default()
    };
    let known = millrace_client::blocking::Client::connect(&place, &asks).unwrap();
    // Holders of a capability do not count.
    unknown(0);
    let connect = || TcpStream::connect((own, port)).unwrap();
    let mut silent: Vec<TcpStream> = Vec::new();
    for count in 1..=MOST {
        silent.push(connect());
        until("one more is silent", || server.shared.unknown.silent() == count);
    }
    let newcomer = millrace_client::blocking::Client::connect(&place, &asks).unwrap();
    newcomer.ping().unwrap();
    assert_eq!(rest(&mut silent[0]), "", "the longest silent made room");
    known.ping().unwrap();
    unknown(MOST - 1);
    drop(silent);
    unknown(0);
    // Handshakes in progress are not interrupted for others: they have a limit of their own.
    let handshakes: Vec<TcpStream> = (0..MOST)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(&[0x16, 3, 1, 2]).unwrap();
            stream
        })
        .collect();
    unknown(MOST);
    until("they shake hands", || server.shared.shaking.len() == MOST);
    let ask = |address: IpAddr| {
        let mut stream = TcpStream::connect((address, port)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        rest(&mut stream)
    };
    let reported = ask(own);
    assert!(reported.starts_with("HTTP/1.1 503 ") && reported.contains("\"MR6190\""), "{reported}");
    let refused = millrace_client::blocking::Client::connect(&place, &asks).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::ChannelRefused, "the channel has no words for it");
    assert!(ask([127, 0, 0, 1].into()).starts_with("HTTP/1.1 200 "), "the owner is known");
    known.ping().unwrap();
    drop(handshakes);
    unknown(0);
    assert!(!ask(own).contains("MR6190"));
}

#[test]
fn who_is_refused_hears_so_in_its_own_protocol_however_many_are_silent() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = ServerOptions { listen, loops: 2, connections_max: 1, ..ServerOptions::default() };
    let (_dir, hosted) = hosted(Durability::Memory);
    let server = Server::start(hosted, &options).unwrap();
    let connect = || TcpStream::connect(server.bound().addresses[0]).unwrap();
    let mut speaking = connect();
    speaking.write_all(&[PREFACE.to_vec(), hello()].concat()).unwrap();
    assert_eq!(next_kind(&mut speaking), Welcome::TYPE);
    // More than are told at once, and none of them says anything.
    let _silent: Vec<TcpStream> = (0..600).map(|_| connect()).collect();
    for _ in 0..20 {
        let mut refused = connect();
        refused.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let reported = rest(&mut refused);
        assert!(reported.starts_with("HTTP/1.1 503 ") && reported.contains("\"MR6009\""), "{reported}");
    }
    let mut refused = connect();
    refused.write_all(&[PREFACE.to_vec(), hello()].concat()).unwrap();
    assert_eq!(next_kind(&mut refused), Failure::TYPE);
}

/// Waits until it is so; a failure says what was waited for.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HANG, "waited too long until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The kind of the next frame.
fn next_kind(stream: &mut TcpStream) -> u8 {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).unwrap();
    bytes.resize(4 + u32::from_le_bytes(bytes[..].try_into().unwrap()) as usize, 0);
    stream.read_exact(&mut bytes[4..]).unwrap();
    split(&bytes, FRAME_MAX_BYTES).unwrap().unwrap().0.kind
}
