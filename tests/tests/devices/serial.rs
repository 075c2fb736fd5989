//! `millrace device attach`: the thermometer on a board in QEMU (more of it in `boards`), and the decoder of the host against that of the device.

use super::{
    Random,
    boards::{Board, Machine, attach, device, has_everything, latest, made},
};
use millrace_device::serial::{Decoder, Found, Frame, Kind};
use millrace_tests::{Place, end, eventually};
use serde_json::Value;
use std::{fmt::Write as _, fs, os::unix::net::UnixListener, path::Path, process::Command};

fn line(found: Found) -> Option<String> {
    match found {
        Found::Part => None,
        Found::Text(byte) => Some(format!("text {byte:02x}")),
        Found::Invalid => Some("invalid".into()),
        Found::Frame(frame) => {
            let Frame { kind, session, number, data } = frame;
            let data = data.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            Some(format!("frame {} {session} {number} {data}", kind as u8))
        }
    }
}

/// What both decoders find.
#[track_caller]
fn same(program: &Path, bytes: &[u8], what: &str) -> Vec<String> {
    let mut decoder = Decoder::default();
    let found: Vec<String> = bytes.iter().filter_map(|byte| line(decoder.take(*byte))).collect();
    let printed = end(Command::new(program), bytes).ok();
    let printed: Vec<&str> = printed.text().lines().collect();
    assert_eq!(printed, found, "{what}: {bytes:02x?}");
    found
}

#[test]
fn the_host_and_the_device_find_the_same_frames() {
    let program = made("build/checked/frames", &["CC=clang", "BUILD=build/checked"]);
    let vectors = fs::read(device().with_file_name("spec").join("vectors/serial.json")).unwrap();
    let vectors: Value = serde_json::from_slice(&vectors).unwrap();
    for case in vectors["cases"].as_array().unwrap() {
        let hex = case["bytes"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let name = case["name"].as_str().unwrap();
        assert_eq!(Value::from(same(&program, &bytes, name)), case["found"], "{name}");
    }
    let seed = std::env::var("MILLRACE_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed * 2 + 1);
    let mut frames = 0;
    for round in 0..40 {
        let mut bytes = Vec::new();
        for _ in 0..200 {
            match random.below(8) {
                0 => bytes.extend(b"boot 1.2\r\n"),
                1 => bytes.extend((0..random.below(300)).map(|_| random.below(4) as u8 * 85)),
                2 => bytes.extend((0..random.below(20)).map(|_| random.below(256) as u8)),
                _ => {
                    let kind = [Kind::Data, Kind::Open, Kind::Close, Kind::Provision][random.below(4) as usize];
                    let zeros = random.below(3);
                    let size = random.below(129);
                    let data = (0..size).map(|_| (random.below(256) * zeros.min(1)) as u8).collect();
                    let frame = Frame { kind, session: random.below(1 << 31) as u32, number: 7, data };
                    let begin = bytes.len();
                    frame.encode(&mut bytes);
                    if random.below(2) == 0 {
                        let at = begin + random.below((bytes.len() - begin) as u64) as usize;
                        match random.below(3) {
                            0 => drop(bytes.remove(at)),
                            1 => bytes.insert(at, random.below(256) as u8),
                            _ => bytes[at] ^= 1 << random.below(8),
                        }
                    }
                }
            }
        }
        let found = same(&program, &bytes, &format!("seed {seed}, round {round}"));
        frames += found.iter().filter(|line| line.starts_with("frame")).count();
    }
    assert!(frames > 1000, "{frames}");
    // And what the one encodes, the other does, too.
    let frame = Frame { kind: Kind::Data, session: 0x0100_00FF, number: 256, data: (0..128).rev().collect() };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let mut command = Command::new(program);
    command.arg("encode");
    let typed = line(Found::Frame(frame)).unwrap();
    let encoded = end(command, format!("{}\n", typed.strip_prefix("frame ").unwrap()).as_bytes()).ok();
    assert_eq!(encoded.stdout, bytes);
}

#[test]
fn a_board_delivers_each_record_once_whoever_restarts() {
    let place = Place::new();
    let host = place.serve();
    let board = Board::boot(place.path(), "socket", 0);
    let line = attach(&place, &board.port, &[]);
    assert!(line.announcement().contains("attached"), "{}", line.announcement());
    eventually("the first records are here", || latest(&place, "kitchen/raw") >= 10);
    line.signal("KILL");
    line.ended();
    let line = attach(&place, &board.port, &[]);
    let now = latest(&place, "kitchen/raw");
    eventually("more records are here", || latest(&place, "kitchen/raw") > now);
    host.signal("KILL");
    host.ended();
    let _host = place.serve();
    has_everything(&place);
    line.signal("TERM");
    assert_eq!(line.ended(), 0);
}

#[test]
fn a_board_at_a_terminal_device_prints_text_and_finds_a_host_that_comes_later() {
    let place = Place::new();
    let board = Board::boot(place.path(), "tty", 0);
    let line = attach(&place, &board.port, &["--baud", "115200"]);
    line.line_with(&["unreachable"]);
    let second = place.run(["device", "attach", board.port.to_str().unwrap()]).fails("MR2012", 1);
    assert!(second.stderr.contains("another program uses this port"), "{}", second.stderr);
    let _host = place.serve();
    line.line_with(&["connected"]);
    line.line_with(&["text", "measured everything"]);
    has_everything(&place);
}

#[test]
fn a_board_with_an_identity_in_its_flash_is_encrypted_and_takes_commands_from_its_host_alone() {
    let place = Place::new();
    let _host = place.serve();
    place.run(["device", "provision", "attic", "--out", "attic.identity"]).ok();
    let image = ["--out", "attic.img", "--journal-sectors", "16"];
    place.run(["device", "flash-image", "attic.identity"].iter().chain(&image)).ok();
    // The first copy is damaged: the board uses the second one.
    let path = place.path().join("attic.img");
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    fs::write(&path, bytes).unwrap();
    let loader = format!("loader,file={},addr=0x21000000,force-raw=on", path.display());
    let board = Board::boot_on(Machine::Mps2, place.path(), "socket", 0, &["-device", &loader]);
    place.run(["device", "send", "attic", "config", "every=60"]).ok();
    let line = attach(&place, &board.port, &[]);
    line.line_with(&["text", "identity in flash"]);
    eventually("the command took effect", || place.run(["log", "get", "attic/applied", "1"]).code == 0);
    assert_eq!(place.records("attic/applied"), ["every=60"]);
    eventually("all is measured", || place.run(["log", "get", "attic/mean", "96"]).code == 0);
    place.run(["device", "send", "attic", "config", "every=50", "--wait", "100s"]).ok();
    // Over the same line, the host asks the board.
    let told = place.run(["--json", "device", "get", "attic", "raw", "--from", "1", "--count", "96"]).ok().objects();
    let told: Vec<&str> = told.iter().map(|record| record["data"].as_str().unwrap()).collect();
    assert_eq!(told, place.records("attic/raw"));
    let sent = place.run(["--json", "device", "send", "attic", "config", "every=45", "--live"]).ok().object();
    assert_eq!(sent["seqno"], 3);
    // Without the capability for it, the next connection takes none.
    let kept = place.namespace().join("secrets/devices/attic.capability");
    fs::remove_file(kept).unwrap();
    line.signal("KILL");
    line.ended();
    place.run(["device", "send", "attic", "config", "every=40"]).ok();
    let _line = attach(&place, &board.port, &[]);
    let shown = || place.run(["--json", "device", "show", "attic"]).ok().object();
    eventually("the device has refused", || shown()["commands_refused"]["code"] == "MR6132");
    assert_eq!(shown()["commands_waiting"], 1);
    place.run(["device", "get", "attic", "raw"]).fails("MR6132", 1);
}

#[test]
fn a_port_that_cannot_be_used_is_refused_with_what_to_do() {
    let place = Place::new();
    let attach = |port: &str| place.run(["device", "attach", port, "--host", "127.0.0.1:1"]);
    let says = |port: &str, what: &str| {
        let refused = attach(port).fails("MR2012", 1);
        assert!(refused.stderr.contains(what), "{}", refused.stderr);
    };
    says("/dev/ttyNONE", "there is no such port");
    says("/dev/null", "it is no serial port");
    place.write("file", "");
    says("file", "neither a serial port");
    let path = place.path().join("closed.sock");
    drop(UnixListener::bind(&path).unwrap());
    says("closed.sock", "no emulator listens");
    place.run(["device", "attach", "x", "--host", "mr://127.0.0.1:7070/farm"]).fails("MR1006", 2);
    let wrong = place.run(["device", "attach", "x", "--baud", "12"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[test]
fn bytes_of_another_baud_rate_are_named() {
    let place = Place::new();
    let path = place.path().join("noise.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let line = attach(&place, &path, &["--host", "127.0.0.1:1"]);
    let (mut port, _) = listener.accept().unwrap();
    let mut random = Random(3);
    let noise: Vec<u8> = (0..2000).map(|_| [0x80, 0xF8, 0, 0xFE, 0x66][random.below(5) as usize]).collect();
    std::io::Write::write_all(&mut port, &noise).unwrap();
    line.line_with(&["noise", "115200"]);
    // The port goes, and comes back.
    drop((port, listener));
    line.line_with(&["port-gone"]);
    fs::remove_file(&path).unwrap();
    let _listener = UnixListener::bind(&path).unwrap();
    line.line_with(&["port-back"]);
}
