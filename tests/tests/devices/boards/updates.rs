//! Updates of firmware over a serial line, on a board in QEMU with two slots (`device/port/cortex_m/boot`): its boot loader tries new firmware
//! once, and goes back.

use super::{Board, Machine, READINGS, attach, await_readings, has_readings, made};
use millrace_tests::{Ended, Host, Place, eventually};
use serde_json::{Value, json};
use std::fs;

/// A board, its host, and the command between them.
struct Bench {
    place: Place,
    _host: Host,
    board: Board,
    line: Host,
}

impl Bench {
    /// With an identity, everything is encrypted, and only the host where the board was provisioned may send firmware.
    fn new(provisioned: bool) -> Self {
        let place = Place::new();
        let host = place.serve();
        let loader = made("build/arm/boot.elf", &[]);
        let board = Board::start(Machine::Mps2, &loader, place.path(), ("socket", 0), &[]);
        if provisioned {
            place.run(["device", "provision", "kitchen", "--serial", board.port.to_str().unwrap()]).ok();
        }
        let line = attach(&place, &board.port, &[]);
        eventually("the board says what it runs", || place.run(["log", "get", "kitchen/update"]).code == 0);
        Self { place, _host: host, board, line }
    }

    fn update(&self, image: &str, version: &str, more: &[&str]) -> Ended {
        self.place.run(["--json"].iter().chain(&update(image, version)).chain(more))
    }

    fn shown(&self) -> Value {
        self.place.run(["--json", "device", "show", "kitchen"]).ok().object()
    }

    fn firmware(&self) -> Value {
        self.shown()["firmware"].clone()
    }

    /// The board has started this version from this slot.
    #[track_caller]
    fn starts(&self, version: &str, slot: u32) {
        self.line.line_with(&[&format!("boot: slot {slot}")]);
        self.line.line_with(&[&format!("version {version}")]);
        assert_eq!(self.firmware()["running"], version);
    }

    /// The firmware fails, and what ran before runs again.
    #[track_caller]
    fn goes_back(&self, image: &str, said: &str, (version, slot): (&str, u32)) {
        self.place.run(update(image, "9")).fails("MR6348", 1);
        self.line.line_with(&[said]);
        self.starts(version, slot);
    }

    /// Resets the board, which keeps what its flash has, and waits until it has connected again.
    fn reset_board(&self) {
        let connection = || self.shown()["presence"]["since"].clone();
        let before = connection();
        self.board.monitor().execute("system_reset", &json!({}));
        eventually("the board has connected again", || connection().as_str().is_some_and(|since| before != since));
    }
}

fn update<'a>(image: &'a str, version: &'a str) -> [&'a str; 7] {
    ["device", "update", "kitchen", "--image", image, "--version", version]
}

/// An image that `make -C device firmware` makes.
fn image(name: &str) -> String {
    made(&format!("build/arm/board-{name}.bin"), &[]).to_str().unwrap().into()
}

fn state(ended: &Ended) -> Value {
    ended.objects().into_iter().rfind(|object| object["state"].is_string()).expect("it says how far it is")["state"]
        .clone()
}

#[test]
fn a_board_runs_new_firmware_from_either_slot_and_loses_no_record() {
    let (first, second) = (image("1"), image("2"));
    let bench = Bench::new(true);
    assert_eq!(bench.firmware()["running"], "1");
    bench.update(&second, "2", &["--no-wait"]).ok();
    eventually("some of it was sent", || bench.firmware()["update"]["sent"].as_u64().unwrap() >= 1000);
    bench.reset_board();
    // The same command follows the update.
    assert_eq!(state(&bench.update(&second, "2", &[]).ok()), "confirmed");
    bench.starts("2", 1);
    assert_eq!(state(&bench.update(&first, "1", &[]).ok()), "confirmed");
    bench.starts("1", 0);
    // What is confirmed starts again.
    bench.reset_board();
    bench.starts("1", 0);
    assert_eq!(bench.firmware()["update"]["number"], 2);
    await_readings(&bench.place);
    has_readings(&bench.place, "kitchen", READINGS as u64);
    assert_eq!(bench.shown()["lost_records"], 0);
}

#[test]
fn a_board_goes_back_from_firmware_that_crashes_hangs_is_none_or_reaches_no_host() {
    let images = ["crashes", "hangs", "renamed", "2"].map(image);
    let bench = Bench::new(false);
    bench.goes_back(&images[0], "boot: slot 1", ("1", 0));
    bench.goes_back(&images[1], "boot: slot 1", ("1", 0));
    // Its name is that of another device, and the host refuses it.
    bench.goes_back(&images[2], "thermometer cellar", ("1", 0));
    assert_eq!(bench.firmware()["update"]["code"], "MR6348");
    assert_eq!(state(&bench.update(&images[3], "2", &[]).ok()), "confirmed");
    bench.starts("2", 1);
    // The boot loader does not start these, and goes back to the firmware before, which is not that of the factory.
    bench.place.write("none.bin", "This is no firmware.");
    bench.goes_back("none.bin", "no whole image", ("2", 1));
    let mut damaged = fs::read(&images[0]).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(bench.place.path().join("damaged.bin"), damaged).unwrap();
    bench.goes_back("damaged.bin", "no whole image", ("2", 1));
    await_readings(&bench.place);
    has_readings(&bench.place, "kitchen", READINGS as u64);
}
