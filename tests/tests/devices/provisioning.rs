//! `millrace device provision --serial`: a board in QEMU that has no identity gets one over its line; and devices of this file, which answer as
//! they like.

use super::boards::{Board, attach};
use millrace_device::serial::{Decoder, Found, Frame, Kind};
use millrace_tests::{Ended, Place, eventually};
use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    thread,
};

fn provision(place: &Place, device: &str, port: &Path) -> Ended {
    place.run(["--json", "device", "provision", device, "--serial", port.to_str().unwrap()])
}

/// The same, which people read.
fn tried(place: &Place, device: &str, port: &Path) -> Ended {
    place.run(["device", "provision", device, "--serial", port.to_str().unwrap()])
}

/// Nothing was made for a device of this name.
#[track_caller]
fn is_unknown(place: &Place, device: &str) {
    place.run(["device", "show", device]).fails("MR6303", 1);
    assert!(!place.path().join(format!("{device}.identity")).exists());
}

#[test]
fn a_board_without_an_identity_gets_one_over_its_line_and_keeps_it() {
    let place = Place::new();
    let _host = place.serve();
    let board = Board::boot(place.path(), "tty", 0);
    let made = provision(&place, "cellar", &board.port).ok().object();
    assert_eq!((&made["device"], &made["serial"]), (&"cellar".into(), &board.port.to_str().unwrap().into()), "{made}");
    // It began again with that, and with an empty journal; its host knows its key, so commands take effect.
    place.run(["device", "send", "cellar", "config", "every=60"]).ok();
    let line = attach(&place, &board.port, &[]);
    eventually("the command took effect", || place.run(["log", "get", "cellar/applied", "1"]).code == 0);
    let busy = tried(&place, "attic", &board.port).fails("MR2012", 1);
    assert!(busy.stderr.contains("another program uses this port"), "{}", busy.stderr);
    eventually("all is measured", || place.run(["log", "get", "cellar/mean", "96"]).code == 0);
    assert_eq!((&*place.records("cellar/raw")[0], place.records("cellar/raw").len()), ("18.00", 96));
    line.signal("TERM");
    line.ended();
    // Another identity is refused before its name is taken; the same one is accepted.
    let kept = tried(&place, "attic", &board.port).fails("MR6353", 1);
    assert!(kept.stderr.contains("connect the right one"), "{}", kept.stderr);
    is_unknown(&place, "attic");
    provision(&place, "cellar", &board.port).ok();
    // Who already has the file of another device does not get further.
    place.run(["device", "provision", "attic"]).ok();
    let kept = tried(&place, "attic", &board.port).fails("MR6353", 1);
    assert!(kept.stderr.contains("attic.identity has the identity"), "{}", kept.stderr);
    let shown = place.run(["--json", "device", "show", "cellar"]).ok().object();
    assert_eq!((&shown["records"], &shown["lost_records"]), (&194.into(), &0.into()), "{shown}");
}

#[test]
fn an_identity_arrives_over_a_bad_line() {
    let place = Place::new();
    place.run(["init"]).ok();
    // Every third exchange loses or changes a byte.
    let board = Board::boot(place.path(), "socket", 400);
    let give = |device: &str| {
        (0..5).map(|_| tried(&place, device, &board.port)).find(|ended| !ended.stderr.contains("MR6355"))
    };
    give("cellar").expect("the device answers").ok();
    give("cellar").expect("the device answers").ok();
    give("attic").expect("the device answers").fails("MR6353", 1);
}

/// A device at a Unix socket, which does with each frame what `answer` says: the bytes that it sends, or the end of the line.
fn fake(
    place: &Place,
    name: &str,
    mut answer: impl FnMut(Option<&Frame>) -> Option<Vec<u8>> + Send + 'static,
) -> std::path::PathBuf {
    let path = place.path().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        while let Ok((mut port, _)) = listener.accept() {
            serve(&mut port, &mut answer);
        }
    });
    path
}

fn serve(port: &mut UnixStream, answer: &mut impl FnMut(Option<&Frame>) -> Option<Vec<u8>>) {
    let (mut decoder, mut bytes) = (Decoder::default(), [0; 256]);
    if port.write_all(&answer(None).unwrap_or_default()).is_err() {
        return;
    }
    while let Ok(size @ 1..) = port.read(&mut bytes) {
        for byte in &bytes[..size] {
            let Found::Frame(frame) = decoder.take(*byte) else { continue };
            match answer(Some(&frame)) {
                Some(said) if port.write_all(&said).is_ok() => {}
                _ => return,
            }
        }
    }
}

/// The answer of a device to a frame.
fn answered(frame: &Frame, code: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { data: code.to_le_bytes().to_vec(), ..frame.clone() }.encode(&mut bytes);
    bytes
}

#[test]
fn what_does_not_answer_is_named_and_nothing_is_made() {
    let place = Place::new();
    place.run(["init"]).ok();
    let mut open = Vec::new();
    Frame { kind: Kind::Open, session: 7, number: 0, data: Vec::new() }.encode(&mut open);
    let noise: Vec<u8> = (0..2000_u32).map(|at| [0x80, 0xF8, 0, 0xFE, 0x66][at as usize * 7 % 5]).collect();
    let silent: [(&str, Vec<u8>, &str); 4] = [
        ("nothing", Vec::new(), "nothing came for 10 s"),
        ("text", b"login: ".to_vec(), "bytes of text came"),
        ("noise", noise, "is 115200 its baud rate"),
        ("older", open, "its firmware accepts no identity over the line"),
    ];
    thread::scope(|scope| {
        for (name, said, what) in silent {
            let place = &place;
            scope.spawn(move || {
                let port =
                    fake(place, name, move |frame| Some(if frame.is_none() { said.clone() } else { Vec::new() }));
                let ended = tried(place, name, &port).fails("MR6355", 1);
                assert!(ended.stderr.contains(what), "{name}: {}", ended.stderr);
                is_unknown(place, name);
            });
        }
    });
    // Nothing is asked without a port, and nothing is made for a name that cannot be one.
    let missing = tried(&place, "cellar", Path::new("/dev/ttyNONE")).fails("MR2012", 1);
    assert!(missing.stderr.contains("there is no such port"), "{}", missing.stderr);
    is_unknown(&place, "cellar");
}

#[test]
fn a_line_that_breaks_is_continued_by_the_same_command() {
    let place = Place::new();
    place.run(["init"]).ok();
    // The port goes after the first piece; the second command finds a device that began again twice, and then cannot write.
    let mut pieces = 0;
    let port = fake(&place, "port", move |frame| {
        let Some(frame) = frame else { return Some(b"boot 1.2\r\n".to_vec()) };
        pieces += u64::from(frame.number > 0);
        match (frame.number, pieces) {
            (0, _) => Some(answered(frame, 0)),
            (_, 1) => None,
            (_, 2..=3) => Some(answered(frame, 2)),
            _ => Some(answered(frame, 6354)),
        }
    });
    let gone = tried(&place, "cellar", &port).fails("MR2012", 1);
    assert!(gone.stderr.contains("cellar.identity has the identity: the same command goes on"), "{}", gone.stderr);
    let identity = fs::read(place.path().join("cellar.identity")).unwrap();
    let failed = tried(&place, "cellar", &port).fails("MR6354", 1);
    assert!(failed.stderr.contains("Run the same command again"), "{}", failed.stderr);
    assert_eq!(fs::read(place.path().join("cellar.identity")).unwrap(), identity, "it is the same identity");
    // The device loses answers, and then everything has arrived once.
    let (sender, arrived) = std::sync::mpsc::channel();
    let (mut got, mut seen, mut size) = (Vec::<u8>::new(), 0, 0);
    let port = fake(&place, "port2", move |frame| {
        let Some(frame) = frame else { return Some(Vec::new()) };
        let is_new = frame.number > seen;
        if frame.number == 0 {
            got.clear();
            seen = 0;
            size = usize::from(u16::from_le_bytes([frame.data[0], frame.data[1]]));
            return Some(answered(frame, 0));
        }
        if is_new {
            seen = frame.number;
            got.extend(&frame.data);
            return Some(Vec::new()); // the answer is lost
        }
        let done = got.len() == size;
        if done {
            sender.send(got.clone()).unwrap();
        }
        Some(answered(frame, u16::from(done)))
    });
    provision(&place, "cellar", &port).ok();
    assert_eq!(arrived.recv().unwrap(), identity);
    // A file of another device, or of another namespace.
    fs::copy(place.path().join("cellar.identity"), place.path().join("attic.identity")).unwrap();
    let other = tried(&place, "attic", &port).fails("MR1006", 2);
    assert!(other.stderr.contains("is the identity of device 'cellar'"), "{}", other.stderr);
    place.run(["device", "rm", "cellar"]).ok();
    let gone = tried(&place, "cellar", &port).fails("MR6303", 1);
    assert!(gone.stderr.contains("delete cellar.identity"), "{}", gone.stderr);
    fs::rename(place.path().join("cellar.identity"), place.path().join("old")).unwrap();
    place.run(["device", "provision", "cellar", "--out", "new"]).ok();
    let args = ["device", "provision", "cellar", "--out", "old", "--serial", port.to_str().unwrap()];
    place.run(args).fails("MR6340", 1);
}
