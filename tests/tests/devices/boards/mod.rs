//! Boards in QEMU: how tests boot them, and what both have in common.

mod cuts;
mod targets;
mod updates;

use super::twins::mean;
use millrace_tests::{Host, Place, eventually};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// How many hours the boards measure.
pub(super) const READINGS: usize = 96;

/// The kinds of boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    Mps2,
    Lm3s,
}

impl Machine {
    const fn name(self) -> &'static str {
        match self {
            Self::Mps2 => "mps2-an385",
            Self::Lm3s => "lm3s6965evb",
        }
    }

    /// The thermometer for it, as `make -C device firmware` builds it.
    const fn firmware(self) -> &'static str {
        match self {
            Self::Mps2 => "build/arm/board.elf",
            Self::Lm3s => "build/arm/board-lm3s.elf",
        }
    }

    /// Where its flash for the journal is, its sectors, and their bytes, as in registers.h.
    const fn flash(self) -> (u64, usize, usize) {
        match self {
            Self::Mps2 => (0x2100_0000, 18, 4096),
            Self::Lm3s => (0x2000_9000, 14, 2048),
        }
    }
}

pub(super) fn device() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("device")
}

/// A program of `device/`, compiled by the first test that asks for it.
pub(super) fn made(target: &str, more: &[&str]) -> PathBuf {
    let mut made = Command::new("flock");
    made.arg(device().join("Makefile")).args(["make", "-s", "-C"]).arg(device()).args(more).arg(target);
    assert!(made.status().expect("make starts").success(), "{target} is not compiled");
    device().join(target)
}

/// A board, and the cable between it and the computer.
pub(super) struct Board {
    parts: Vec<Child>,
    pub port: PathBuf,
    monitor: PathBuf,
}

impl Drop for Board {
    fn drop(&mut self) {
        for part in &mut self.parts {
            let _ = part.kill();
            let _ = part.wait();
        }
    }
}

impl Board {
    /// Boots the thermometer in `folder`. `kind` is that of the port, `tty` or `socket`; `noise` as in cable.py.
    pub fn boot(folder: &Path, kind: &str, noise: u32) -> Self {
        Self::boot_on(Machine::Mps2, folder, kind, noise, &[])
    }

    /// The same on any board, with more arguments for QEMU.
    pub fn boot_on(machine: Machine, folder: &Path, kind: &str, noise: u32, more: &[&str]) -> Self {
        Self::start(machine, &made(machine.firmware(), &[]), folder, (kind, noise), more)
    }

    fn start(machine: Machine, firmware: &Path, folder: &Path, (kind, noise): (&str, u32), more: &[&str]) -> Self {
        let (uart, port) = (folder.join("uart"), folder.join(format!("port-{kind}")));
        let monitor = folder.join("monitor");
        // Those of a board that was here before.
        for socket in [&uart, &port, &monitor] {
            let _ = fs::remove_file(socket);
        }
        let mut qemu = Command::new("qemu-system-arm");
        qemu.args(["-M", machine.name(), "-display", "none", "-monitor", "none", "-qmp"]);
        qemu.arg(format!("unix:{},server=on,wait=off", monitor.display())).arg("-serial");
        qemu.arg(format!("unix:{},server=on", uart.display())).arg("-kernel").arg(firmware).args(more);
        let mut parts = vec![qemu.stdin(Stdio::null()).spawn().expect("install qemu-system-arm: scripts/setup.sh")];
        eventually("QEMU listens", || uart.exists());
        let cable = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devices/cable.py");
        let mut cable = Command::new("python3")
            .arg(cable)
            .arg(kind)
            .args([&port, &uart])
            .arg(noise.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut ready = String::new();
        BufReader::new(cable.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        parts.push(cable);
        Self { parts, port, monitor }
    }

    fn monitor(&self) -> Monitor {
        Monitor::new(&self.monitor)
    }
}

/// The monitor of QEMU (QMP), which stops the board, reads its memory and resets it.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn new(path: &Path) -> Self {
        let mut monitor = Self(BufReader::new(UnixStream::connect(path).expect("QEMU listens")));
        let greeting = monitor.line();
        assert!(greeting["QMP"].is_object(), "{greeting}");
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("QEMU says something");
        serde_json::from_str(&line).expect("JSON")
    }

    fn execute(&mut self, command: &str, arguments: &Value) {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{line}").expect("QEMU listens");
        // Events come before the answer.
        loop {
            let said = self.line();
            assert!(said["error"].is_null(), "{command}: {said}");
            if !said["return"].is_null() {
                return;
            }
        }
    }

    /// So many bytes of the memory, by way of `file`.
    fn memory(&mut self, at: u64, bytes: usize, file: &Path) -> Vec<u8> {
        self.execute("pmemsave", &json!({ "val": at, "size": bytes, "filename": file.to_str() }));
        fs::read(file).expect("QEMU has written it")
    }
}

pub(super) fn attach(place: &Place, port: &Path, more: &[&str]) -> Host {
    let port = port.to_str().unwrap();
    Host::start(place.command(["--json", "device", "attach", port].iter().chain(more)))
}

/// The newest record that the host has of a log.
pub(super) fn latest(place: &Place, log: &str) -> u64 {
    let found = place.run(["--json", "log", "stat", log]);
    if found.code == 0 { found.object()["latest"].as_u64().unwrap_or(0) } else { 0 }
}

/// What record `seqno` of "raw" is on a board: on the third day the sensor repeats one reading.
fn measured(seqno: u64) -> String {
    let hour = if (49..=72).contains(&seqno) { 48 } else { seqno - 1 };
    let from_midnight = if hour % 24 < 12 { hour % 24 } else { 24 - hour % 24 };
    let hundredths = 1800 + 50 * from_midnight + 7 * (hour / 24) + hour * hour % 11;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The host has what the board measured up to here, each reading once and in order, and the mean of each.
#[track_caller]
fn has_readings(place: &Place, device: &str, count: u64) {
    let expected: Vec<String> = (1..=count).map(measured).collect();
    assert_eq!(place.records(&format!("{device}/raw")), expected);
    let means: Vec<String> = (1..=expected.len()).map(|seqno| mean(&expected, seqno)).collect();
    assert_eq!(place.records(&format!("{device}/mean")), means);
}

/// The same, and nothing else.
#[track_caller]
fn has_all_of(place: &Place, device: &str, count: u64) {
    has_readings(place, device, count);
    let shown = place.run(["--json", "device", "show", device]).ok().object();
    assert_eq!((&shown["lost_records"], &shown["records"]), (&0.into(), &(2 * count).into()), "{shown}");
}

/// A board that is called kitchen has sent everything.
#[track_caller]
fn await_readings(place: &Place) {
    for at_least in (0..READINGS as u64).step_by(10) {
        eventually("more records are here", || latest(place, "kitchen/raw") >= at_least);
    }
    eventually("the host has everything", || place.run(["log", "get", "kitchen/mean", "96"]).code == 0);
}

/// The same of a board without an identity, which is called kitchen, once it has measured everything.
#[track_caller]
pub(super) fn has_everything(place: &Place) {
    await_readings(place);
    has_all_of(place, "kitchen", READINGS as u64);
}

#[test]
fn a_board_with_little_memory_keeps_its_journal_in_a_reset() {
    let place = Place::new();
    let _host = place.serve();
    let board = Board::boot_on(Machine::Lm3s, place.path(), "socket", 0, &[]);
    let line = attach(&place, &board.port, &[]);
    line.line_with(&["text", "thermometer kitchen on lm3s6965evb"]);
    for at_least in [10, 40] {
        eventually("records are here", || latest(&place, "kitchen/raw") >= at_least);
        board.monitor().execute("system_reset", &json!({}));
        line.line_with(&["text", "thermometer kitchen on lm3s6965evb"]);
    }
    has_everything(&place);
}
