//! A device (`device/examples/station.c`, on the port to POSIX) that sends its journal to a real host: whatever breaks, the host has every
//! record once, under the device's number; and nobody takes another device, or an older state of this one, for it.

mod boards;
mod commands;
mod fleet;
mod identity;
mod live;
mod provisioning;
mod seen;
mod serial;
mod twins;
mod updates;

use millrace_tests::{Ended, Host, Place, Port, end, eventually};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const POWER_LOST: i32 = 3;
const REFUSED: i32 = 4;

/// The device's program.
fn station() -> PathBuf {
    device_program("station")
}

/// A program for this computer. The first test that asks for it compiles it.
fn device_program(name: &str) -> PathBuf {
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("device");
    let mut made = Command::new("flock");
    made.arg(device.join("Makefile")).args(["make", "-s", "-C"]).arg(&device);
    // With sanitizers, apart from the one that people run.
    made.args(["CC=clang", "BUILD=build/checked", &format!("build/checked/{name}")]);
    made.arg("CFLAGS=-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all");
    assert!(made.status().expect("make starts").success(), "the device is not compiled");
    device.join("build/checked").join(name)
}

/// What record `seqno` of "raw" is.
fn measured(seqno: u64) -> String {
    let day = seqno % 48;
    let hundredths = 2100 + 10 * if day < 24 { day } else { 48 - day };
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

struct Bench {
    place: Place,
    port: Port,
    host: Option<Host>,
    program: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { place: Place::new(), port: Port::reserve(), host: None, program: station() };
        bench.serve();
        bench
    }

    fn serve(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        self.host = Some(Host::start(self.place.command(["--json", "serve", "--listen", &listen, "--drain", "100s"])));
    }

    fn kill(&mut self) {
        let host = self.host.take().expect("it runs");
        host.signal("KILL");
        host.ended();
    }

    fn device(&self, flash: &str, more: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.place.path().join(flash)).args(["--host", &format!("127.0.0.1:{}", self.port)]);
        command.args(more.split_whitespace()).current_dir(self.place.path());
        command
    }

    fn run(&self, flash: &str, more: &str) -> Ended {
        end(self.device(flash, more), b"")
    }

    /// Without a host, until all is measured.
    fn run_alone(&self, flash: &str, more: &str) {
        let mut command = Command::new(&self.program);
        command.arg(self.place.path().join(flash)).args(["--host", "127.0.0.1:1", "--patience", "1"]);
        assert_eq!(
            end(
                {
                    command.args(more.split_whitespace());
                    command
                },
                b""
            )
            .code,
            REFUSED
        );
    }

    fn shown(&self, device: &str) -> Value {
        self.place.run(["--json", "device", "show", device]).ok().object()
    }

    /// The host has records 1 to `count`, and their means.
    #[track_caller]
    fn has(&self, device: &str, count: u64) {
        let expected: Vec<String> = (1..=count).map(measured).collect();
        assert_eq!(self.place.records(&format!("{device}/raw")), expected);
        assert_eq!(self.place.records(&format!("{device}/mean")).len() as u64, count);
        let shown = self.shown(device);
        assert_eq!((&shown["lost_records"], &shown["lost_entries"]), (&0.into(), &0.into()), "{shown}");
        assert_eq!(shown["records"], count * 2, "{shown}");
    }
}

/// xorshift64*, so that the seed determines everything.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % below
    }
}

#[test]
fn every_record_arrives_once_although_power_and_lines_are_lost() {
    let bench = Bench::new();
    let seed = std::env::var("MILLRACE_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed * 2 + 1);
    let (mut total, mut losses) = (0, 0);
    for round in 0..30 {
        total += random.below(20);
        let (cut, way, line) = (random.below(7), random.below(4), random.below(3000));
        let line = if random.below(2) == 0 { 0 } else { line + 1 };
        let more = format!("--records {total} --cut-power {cut} --way {way} --cut-line {line}");
        let Ended { code, stderr, .. } = bench.run("kitchen.flash", &more);
        assert!(code == 0 || code == POWER_LOST, "seed {seed}, round {round}, {more}: {stderr}");
        losses += u64::from(code == POWER_LOST);
    }
    assert!(losses > 3, "seed {seed}: power was lost {losses} times");
    bench.run("kitchen.flash", &format!("--records {total}")).ok();
    bench.has("kitchen", total);
}

#[test]
fn a_line_that_is_cut_at_any_byte_repeats_nothing() {
    let bench = Bench::new();
    for (index, cut) in (1..1200).step_by(53).enumerate() {
        let total = 2 * (index + 1);
        bench.run("kitchen.flash", &format!("--records {total} --cut-line {cut}")).ok();
    }
    bench.has("kitchen", 46);
}

#[test]
fn a_host_that_is_killed_loses_and_repeats_nothing() {
    let mut bench = Bench::new();
    let device = bench.device("kitchen.flash", "--records 400 --every 5").spawn().expect("it starts");
    for at_least in [20, 150] {
        eventually("the host has records", || {
            let found = bench.place.run(["--json", "log", "stat", "kitchen/raw"]);
            found.code == 0 && found.object()["latest"].as_u64().is_some_and(|latest| latest >= at_least)
        });
        bench.kill();
        bench.serve();
    }
    let mut device = device;
    assert!(device.wait().expect("it ends").success());
    bench.has("kitchen", 400);
}

#[test]
fn another_device_with_the_same_identity_or_name_is_refused() {
    let bench = Bench::new();
    bench.run("kitchen.flash", "--records 40").ok();
    let short = bench.run("twin.flash", "--records 10");
    assert_eq!((short.code, short.stderr.contains("MR6300")), (REFUSED, true), "{}", short.stderr);
    // One that has more entries than the host, but others.
    bench.run_alone("longer.flash", "--records 90");
    let longer = bench.run("longer.flash", "--records 90");
    assert_eq!((longer.code, longer.stderr.contains("MR6300")), (REFUSED, true), "{}", longer.stderr);
    let other = bench.run("other.flash", "--records 10 --identity 77aa77aa0001");
    assert_eq!((other.code, other.stderr.contains("MR6302")), (REFUSED, true), "{}", other.stderr);
    let renamed = bench.run("kitchen.flash", "--records 50 --name cellar");
    assert_eq!((renamed.code, renamed.stderr.contains("MR6302")), (REFUSED, true), "{}", renamed.stderr);
    bench.run("other.flash", "--records 10 --identity 77aa77aa0001 --name cellar").ok();
    bench.run("kitchen.flash", "--records 60").ok();
    bench.has("kitchen", 60);
    bench.has("cellar", 10);
}

#[test]
fn a_device_whose_flash_was_put_back_is_noticed() {
    let bench = Bench::new();
    bench.run("kitchen.flash", "--records 40").ok();
    let (flash, dump) = (bench.place.path().join("kitchen.flash"), bench.place.path().join("dump"));
    fs::copy(&flash, &dump).unwrap();
    bench.run("kitchen.flash", "--records 80").ok();
    for (records, alone) in [(50, false), (200, true)] {
        fs::copy(&dump, &flash).unwrap();
        if alone {
            bench.run_alone("kitchen.flash", &format!("--records {records}"));
        }
        let refused = bench.run("kitchen.flash", &format!("--records {records}"));
        assert_eq!((refused.code, refused.stderr.contains("MR6300")), (REFUSED, true), "{}", refused.stderr);
    }
    bench.has("kitchen", 80);
}

#[test]
fn a_host_that_was_put_back_gets_what_it_lacks_or_says_what_is_lost() {
    let mut bench = Bench::new();
    bench.run("kitchen.flash", "--records 40").ok();
    bench.run("cellar.flash", "--records 40 --name cellar --identity 77aa77aa0001 --sectors 4").ok();
    let backup = bench.place.path().join("backup");
    bench.place.run(["namespace", "backup", backup.to_str().unwrap()]).ok();
    bench.run("kitchen.flash", "--records 80").ok();
    // It measures all of them before it sends any.
    bench.run_alone("cellar.flash", "--records 600 --name cellar --identity 77aa77aa0001 --sectors 4");
    bench.run("cellar.flash", "--records 600 --name cellar --identity 77aa77aa0001 --sectors 4").ok();
    bench.kill();
    fs::remove_dir_all(bench.place.namespace()).unwrap();
    bench.place.run(["namespace", "restore", backup.to_str().unwrap(), bench.place.namespace().to_str().unwrap()]).ok();
    bench.serve();
    bench.run("kitchen.flash", "--records 90").ok();
    bench.has("kitchen", 90);
    // The flash of this one holds only its newest records.
    bench.run("cellar.flash", "--records 610 --name cellar --identity 77aa77aa0001 --sectors 4").ok();
    let (shown, place) = (bench.shown("cellar"), &bench.place);
    let lost = shown["lost_records"].as_u64().unwrap();
    assert!(lost > 0, "{shown}");
    assert_eq!(shown["records"].as_u64().unwrap() + lost, 2 * 610, "{shown}");
    for seqno in [1, 40, 610] {
        let found = place.run(["log", "get", "cellar/raw", &seqno.to_string(), "--raw"]).ok();
        assert_eq!(found.text().trim(), measured(seqno));
    }
    place.run(["log", "get", "cellar/raw", "45"]).fails("MR7006", 1);
}

#[test]
fn a_sector_that_is_dropped_while_it_is_sent_is_lost_and_nothing_else() {
    let bench = Bench::new();
    for after in 1..=6 {
        let (device, flash) = (format!("cellar{after}"), format!("cellar{after}.flash"));
        let device_is = format!("--name {device} --identity 77aa77aa{after:04x} --sectors 4");
        bench.run(&flash, &format!("--records 40 {device_is}")).ok();
        // The host has the beginning of a sector, and the device needs its place for other records: 600 do not fit into its flash.
        let sent = bench.run(&flash, &format!("--records 60 --flood 600 --after {after} {device_is}"));
        assert_eq!(sent.code, 0, "{after}: {}", sent.stderr);
        let shown = bench.shown(&device);
        let [records, lost, entries] =
            ["records", "lost_records", "lost_entries"].map(|key| shown[key].as_u64().unwrap());
        assert!(lost > 0 && entries > lost, "{shown}");
        assert_eq!(records + lost, 2 * 660, "{shown}");
        let newest = bench.place.run(["log", "get", &format!("{device}/raw"), "660", "--raw"]).ok();
        assert_eq!(newest.text().trim(), measured(660));
    }
}

#[test]
fn a_device_shows_a_capability_and_imported_records_are_like_any_others() {
    let bench = Bench::new();
    let place = &bench.place;
    let may = ["--allow", "append=kitchen/", "--allow", "create=kitchen/"];
    place.run(["cap", "issue", "--out", "kitchen.cap"].iter().chain(&may)).ok();
    place.run(["cap", "issue", "--out", "cellar.cap", "--allow", "append=cellar/"]).ok();
    let denied = bench.run("kitchen.flash", "--records 5 --capability cellar.cap --patience 1");
    assert_eq!((denied.code, denied.stderr.contains("MR6132")), (REFUSED, true), "{}", denied.stderr);
    bench.run("kitchen.flash", "--records 5 --capability kitchen.cap").ok();
    bench.has("kitchen", 5);
    // A function that is bound to the imported log runs once for each new record.
    place.write("shout.sh", "#!/bin/sh\ncat >&2\n");
    let deploy = "function deploy shout --runtime oneshot --code shout.sh --on kitchen/raw -- ./shout.sh";
    place.run(deploy.split(' ')).ok();
    bench.run("kitchen.flash", "--records 8 --capability kitchen.cap").ok();
    place.idle();
    let runs = place.run(["--json", "run", "ls", "--function", "shout"]).ok().objects();
    assert_eq!(runs.iter().filter(|run| run["state"] == "done").count(), 3, "{runs:?}");
    place.run(["log", "create", "copy"]).ok();
    place.run(["relay", "add", "kitchen/mean", "copy"]).ok();
    eventually("the relay has forwarded", || place.records("copy").len() == 8);
    place.run(["log", "append", "kitchen/raw", "x"]).fails("MR6304", 1);
    // The mean has the measurement as its cause.
    let traced = place.run(["--json", "trace", "kitchen/mean@5", "--up"]).ok();
    assert!(traced.text().contains("kitchen/raw"), "{}", traced.text());
    place.run(["device", "rm", "kitchen"]).ok();
    place.run(["log", "append", "kitchen/raw", "x"]).ok();
    place.run(["device", "show", "kitchen"]).fails("MR6303", 1);
}
