//! The C client connects to a host through the channel, like a device on another machine; and attackers in between.

use crate::support::{Driver, build_remote, hex};
use millrace_tests::{Host, Place, eventually};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
};

fn driver() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_remote("driver"))
}

/// A namespace with a log, its host, which listens beyond loopback, and the port.
fn hub() -> (Place, Host, u16) {
    let place = Place::new();
    place.run(["log", "create", "raw"]).ok();
    let host = Host::start(place.command(["--json", "serve", "--listen", "0.0.0.0:0", "--name", "farm"]));
    let port = host.port();
    (place, host, port)
}

/// A capability of the namespace, in a file.
fn issue(place: &Place, name: &str, may: &[&str]) -> PathBuf {
    place.run(["cap", "issue", "--out", name].iter().chain(may)).ok();
    place.path().join(name)
}

/// Connects to 127.0.0.2 like a client of another machine; there is no token for this address.
fn address(port: u16) -> String {
    format!("mr://127.0.0.2:{port}/farm")
}

fn append(driver: &mut Driver, data: &[u8]) -> Value {
    driver.ask(&format!("append {} {} 0 - - -", hex(b"raw"), hex(data)))
}

/// The error of opening with this capability and appending.
fn fails(capability: &Path, address: &str) -> String {
    let mut driver = Driver::with(Some(capability), driver(), &[address]);
    driver.answer()["fails"].as_str().expect("it is refused").to_owned()
}

#[test]
fn a_device_appends_and_reads_with_little_memory() {
    let (place, _host, port) = hub();
    let capability = issue(&place, "device.cap", &["--append", "raw", "--read", "raw"]);
    // 4 KiB to receive: records of the channel are 1 KiB.
    let mut small = Driver::with(Some(&capability), driver(), &[&address(port), "4096"]);
    for count in 1..=40_u8 {
        assert_eq!(append(&mut small, &[count; 3000])["seqno"], count);
    }
    let got = |driver: &mut Driver, seqno: u64| driver.ask(&format!("get {} {seqno} 0", hex(b"raw")));
    assert_eq!(got(&mut small, 7)["data"], hex(&[7; 3000])[1..]);
    // A record that is larger than all buffers is sent in parts, and skipped when it is received.
    let large: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    assert_eq!(append(&mut small, &large)["seqno"], 41);
    assert_eq!(got(&mut small, 41)["fails"], "MR6111");
    assert_eq!(got(&mut small, 40)["data"], hex(&[40; 3000])[1..]);
    assert_eq!(small.end(), 0);
    let mut roomy = Driver::with(Some(&capability), driver(), &[&address(port)]);
    assert_eq!(got(&mut roomy, 41)["data"], hex(&large)[1..]);
    let flooded = roomy.ask(&format!("flood {} {} 2000", hex(b"raw"), hex(b"x")));
    assert_eq!((&flooded["appended"], &flooded["refused"]), (&2000.into(), &0.into()), "{flooded}");
    // The capability limits the client's rights.
    let denied = roomy.ask(&format!("remove_log {}", hex(b"raw")));
    assert_eq!(denied["fails"], "MR6132");
    assert_eq!(roomy.end(), 0);
}

#[test]
fn capabilities_that_are_not_valid_open_no_channel() {
    let (place, _host, port) = hub();
    let (elsewhere, _other, _) = hub();
    let good = issue(&place, "good.cap", &["--append", "raw"]);
    let text = fs::read_to_string(&good).unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        place.write(name, text);
        let path = place.path().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    // A character of the signature, which the host does not see: its answer shows another key.
    let changed = format!(
        "{}{}{}",
        &text[..text.len() - 5],
        if text.as_bytes()[text.len() - 5] == b'A' { 'B' } else { 'A' },
        &text[text.len() - 4..]
    );
    assert_eq!(fails(&file("changed.cap", &changed, 0o600), &address(port)), "MR6139");
    assert_eq!(fails(&file("cut.cap", &text[..40], 0o600), &address(port)), "MR6130");
    assert_eq!(fails(&file("shown.cap", &text, 0o644), &address(port)), "MR6165");
    assert_eq!(fails(&issue(&elsewhere, "foreign.cap", &["--append", "raw"]), &address(port)), "MR6138");
    let mut open = Driver::with(Some(&good), driver(), &[&address(port)]);
    assert_eq!(append(&mut open, b"one")["seqno"], 1);
    place.run(["cap", "revoke", "--file", good.to_str().unwrap()]).ok();
    assert_eq!(append(&mut open, b"two")["fails"], "MR6131", "a revocation also ends open connections");
    assert_eq!(fails(&good, &address(port)), "MR6138");
    assert_eq!(place.records("raw"), ["one"]);
}

/// Forwards bytes from one side to the other, and changes the byte at `flip`.
fn pass(mut from: TcpStream, mut to: TcpStream, flip: Option<usize>) {
    let (mut at, mut bytes) = (0, [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(flip) = flip.filter(|flip| (at..at + count).contains(flip)) {
            bytes[flip - at] ^= 1;
        }
        at += count;
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[test]
fn a_byte_changed_in_transit_is_detected() {
    let (place, _host, port) = hub();
    let capability = issue(&place, "device.cap", &["--append", "raw"]);
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let between = address(listener.local_addr().unwrap().port());
    // An unchanged append: the number of bytes in each direction is always the same.
    let run = |flips: [Option<usize>; 2]| {
        let mut asks = Driver::with(Some(&capability), driver(), &[&between, "0", "30000"]);
        let (client, _) = listener.accept().unwrap();
        let host = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (client_too, host_too) = (client.try_clone().unwrap(), host.try_clone().unwrap());
        let up = thread::spawn(move || pass(client, host, flips[0]));
        let down = thread::spawn(move || pass(host_too, client_too, flips[1]));
        asks.tell(&format!("append {} {} 0 - - -", hex(b"raw"), hex(b"secret")));
        let answer = asks.answer();
        drop(asks);
        up.join().unwrap();
        down.join().unwrap();
        answer
    };
    assert_eq!(run([None, None])["seqno"], 1);
    let body = fs::read_to_string(&capability).unwrap().trim().len() * 3 / 4 - 35;
    let first = 25 + body;
    // In M1: magic, version, limit, nonce, body. Then the length, the text and the tag of records.
    for at in [0, 6, 7, 10, 26, first - 1, first + 4, first + 20, first + 90] {
        let answer = run([Some(at), None]);
        assert!(answer["fails"].is_string(), "byte {at} to the host: {answer}");
    }
    for at in [2, 3, 6, 21, 36, 39, 41, 60] {
        let answer = run([None, Some(at)]);
        assert_eq!(answer["fails"], "MR6139", "byte {at} to the client: {answer}");
    }
    // No changed record was appended; an unchanged one may have been, if only the answer was changed.
    eventually("the host has answered", || place.run(["log", "get", "raw", "--all"]).code == 0);
    assert!(place.records("raw").iter().all(|record| record == "secret"));
}

/// An address of this machine that is not a loopback address, if it has one.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

#[test]
fn beyond_this_machine_only_the_channel_is_spoken() {
    let (place, _host, port) = hub();
    let Some(own) = own_address() else { return };
    let capability = issue(&place, "device.cap", &["--append", "raw"]);
    let address = format!("mr://{own}:{port}/farm");
    let mut clear = Driver::with(None, driver(), &[&address]);
    assert_eq!(clear.answer()["fails"], "MR6163");
    assert_eq!(append(&mut Driver::with(Some(&capability), driver(), &[&address]), b"one")["seqno"], 1);
}
