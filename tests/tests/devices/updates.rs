//! Updates of firmware, with the boot loader for POSIX (`device/examples/boot.c`): the image arrives whatever breaks, new firmware that
//! reaches a host stays, and other firmware does not.

use super::{Bench, device_program};
use millrace_security::token::Token;
use millrace_tests::{Ended, end, eventually};
use serde_json::Value;
use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// A device that was provisioned, with its slots; its boot loader runs until this value ends.
struct Board {
    bench: Bench,
    process: Option<Child>,
}

impl Board {
    fn new() -> Self {
        let bench = Bench::new();
        let host = format!("127.0.0.1:{}", bench.port);
        bench.place.run(["device", "provision", "kitchen", "--host", &host]).ok();
        fs::create_dir(bench.place.path().join("slots")).unwrap();
        fs::copy(&bench.program, bench.place.path().join("slots/slot-0")).unwrap();
        let mut board = Self { bench, process: None };
        board.start("");
        board.reports("idle", 0);
        board
    }

    fn start(&mut self, more: &str) {
        let mut boot = Command::new(device_program("boot"));
        boot.args("kitchen.flash --slots slots --provisioned kitchen.identity --records 3 --linger 600000".split(' '));
        boot.args(more.split_whitespace()).current_dir(self.bench.place.path()).stderr(Stdio::inherit());
        self.process = Some(boot.process_group(0).spawn().expect("it starts"));
    }

    /// Without power, nothing runs.
    fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        let group = format!("-{}", process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = process.wait();
    }

    /// An image: a program that does this, and then bytes that nobody reads.
    fn image(&self, name: &str, script: &str, bytes: usize) {
        let mut image = format!("#!/bin/sh\n{script}\nexit 0\n").into_bytes();
        image.resize(bytes, b'#');
        self.bench.place.write(name, std::str::from_utf8(&image).unwrap());
    }

    /// An image of firmware that works.
    fn working(&self, name: &str, bytes: usize) {
        self.image(name, &format!("exec '{}' \"$@\"", self.bench.program.display()), bytes);
    }

    fn update(&self, image: &str, version: &str, more: &str) -> Ended {
        let args = ["--json", "device", "update", "kitchen", "--image", image, "--version", version];
        self.bench.place.run(args.into_iter().chain(more.split_whitespace()))
    }

    /// The same, which fails with this code.
    #[track_caller]
    fn refuses(&self, image: &str, version: &str, code: &str, exit: i32) {
        let args = ["device", "update", "kitchen", "--image", image, "--version", version];
        self.bench.place.run(args).fails(code, exit);
    }

    fn firmware(&self) -> Value {
        self.bench.shown("kitchen")["firmware"].clone()
    }

    /// Waits until the device reports this state of this update.
    fn reports(&self, state: &str, number: u64) {
        let log = || self.bench.place.run(["--json", "log", "get", "kitchen/update", "--all"]);
        let reported = |record: Value| {
            let said: Value = serde_json::from_str(record["data"].as_str().unwrap_or("")).unwrap_or_default();
            said["state"] == state && said["update"].as_u64().unwrap_or(0) == number
        };
        eventually(&format!("update {number} is {state}"), || {
            let ended = log();
            ended.code == 0 && ended.objects().into_iter().any(reported)
        });
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn last(ended: &Ended) -> Value {
    ended.objects().into_iter().rfind(|object| object["state"].is_string()).expect("it says how far it is")
}

#[test]
fn firmware_that_reaches_a_host_stays_and_firmware_that_does_not_is_replaced_by_the_one_before() {
    let board = Board::new();
    let place = &board.bench.place;
    assert_eq!(board.firmware()["running"], "1");
    board.working("works.bin", 20_001);
    let done = board.update("works.bin", "2.0", "").ok();
    assert_eq!(last(&done)["state"], "confirmed");
    assert_eq!(last(&done)["percent"], 100);
    let states: Vec<Value> = done.objects().into_iter().map(|line| line["state"].clone()).collect();
    assert_eq!(states[0], "waiting", "{states:?}");
    let boot = || fs::read_to_string(place.path().join("slots/boot")).unwrap();
    assert_eq!(boot(), "1 -1 0\n");
    let slot = fs::read(place.path().join("slots/slot-1")).unwrap();
    let image = fs::read(place.path().join("works.bin")).unwrap();
    assert_eq!(slot[..image.len()], image);
    assert!(slot[image.len()..].iter().all(|byte| *byte == 0xFF));
    // The image is not kept.
    assert!(place.run(["log", "get", "_firmware/kitchen", "--all"]).stdout.is_empty());

    board.image("crashes.bin", "kill -SEGV $$", 9_000);
    board.refuses("crashes.bin", "3.0", "MR6348", 1);
    assert_eq!(boot(), "1 -1 0\n");
    let fails = |script: &str, version: &str| {
        board.image("fails.bin", script, 9_000);
        board.refuses("fails.bin", version, "MR6348", 1);
        assert_eq!(boot(), "1 -1 0\n", "{script}");
    };
    fails("exit 1", "3.1");
    // It works, but it dials another host: when its time is over, it resets the board.
    let station = board.bench.program.display();
    fails(&format!("exec '{station}' \"$@\" --host 127.0.0.1:1 --trial 300"), "3.2");
    let shown = board.firmware();
    assert_eq!((&shown["update"]["state"], &shown["update"]["number"]), (&"reverted".into(), &4.into()), "{shown}");
    assert_eq!(shown["update"]["code"], "MR6348");
    let listed = place.run(["device", "ls"]).ok();
    assert!(listed.text().contains("FIRMWARE"), "{}", listed.text());
    // The device goes on, and takes the next one.
    assert_eq!(last(&board.update("works.bin", "2.1", "").ok())["state"], "confirmed");
    assert_eq!(boot(), "0 -1 0\n");
}

#[test]
fn an_update_goes_on_although_the_command_the_host_and_the_device_are_killed() {
    let mut board = Board::new();
    board.working("works.bin", 150_000);
    let started = board.update("works.bin", "2.0", "--no-wait").ok();
    let number = last(&started)["number"].as_u64().unwrap();
    let seed = std::env::var("MILLRACE_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = super::Random(seed * 2 + 1);
    let has_sent = |board: &Board, bytes: u64| {
        let update = board.firmware()["update"].clone();
        update["sent"].as_u64().unwrap() >= bytes || update["state"] == "confirmed"
    };
    for round in 1..=6 {
        let some = round * 20_000 + random.below(10_000);
        eventually("some more was sent", || has_sent(&board, some));
        match round % 2 {
            0 => {
                board.bench.kill();
                board.bench.serve();
            }
            _ => {
                board.kill();
                board.start("");
            }
        }
    }
    // The same command follows the update; it begins none.
    let followed = board.update("works.bin", "2.0", "").ok();
    let end = last(&followed);
    assert_eq!((&end["state"], &end["number"]), (&"confirmed".into(), &number.into()), "seed {seed}: {end}");
}

#[test]
fn what_cannot_be_an_update_is_refused() {
    let mut board = Board::new();
    board.working("works.bin", 20_000);
    board.working("large.bin", 5_000_000);
    board.bench.place.write("empty.bin", "");
    board.refuses("large.bin", "2.0", "MR6346", 1);
    board.refuses("empty.bin", "2.0", "MR1006", 2);
    board.refuses("works.bin", "2\"0", "MR1006", 2);
    board.refuses("works.bin", "a version that is too long", "MR1006", 2);
    board.refuses("nothing.bin", "2.0", "MR4010", 1);
    let place = &board.bench.place;
    place.run(["device", "update", "cellar", "--image", "works.bin"]).fails("MR6303", 1);
    // A record that somebody else sends to the log changes nothing.
    place.run(["device", "send", "kitchen", "firmware", "nonsense", "--wait", "100s"]).ok();
    // Firmware without updates.
    board.bench.run("attic.flash", "--records 3 --name attic --identity 77aa77aa0001").ok();
    place.run(["device", "update", "attic", "--image", "works.bin"]).fails("MR6350", 1);
    // A device that is away gets it later, and the command says that it waits.
    board.kill();
    let waits = board.update("works.bin", "2.0", "--wait 300ms");
    assert_eq!(waits.code, 75, "{}", waits.stderr);
    assert_eq!(last(&waits)["state"], "waiting");
    // Another image takes its place.
    board.working("other.bin", 21_000);
    board.update("other.bin", "2.1", "--no-wait").ok();
    board.start("");
    board.reports("confirmed", 2);
    assert_eq!(board.firmware()["update"]["version"], "2.1");
    // What was for a device is not for the next one of its name.
    board.kill();
    board.update("works.bin", "2.2", "--no-wait").ok();
    board.bench.place.run(["device", "rm", "kitchen"]).ok();
    assert!(board.bench.place.run(["log", "get", "_firmware/kitchen", "--all"]).stdout.is_empty());
}

#[test]
fn a_host_needs_the_right_to_send_firmware_at_the_host_and_at_the_device() {
    let mut board = Board::new();
    board.working("works.bin", 20_000);
    let host = format!("mr://127.0.0.1:{}/main", board.bench.port);
    let kept = board.bench.place.namespace().join("secrets/devices/kitchen.capability");
    let all = fs::read(&kept).unwrap();
    board.bench.place.write("all.cap", &Token::from_bytes(&all).unwrap().to_text());
    let reconnect = |board: &mut Board| {
        board.kill();
        board.start("");
    };
    // At the device: commands for `config` are permitted, those for `firmware` are not.
    let less = ["cap", "attenuate", "all.cap", "--allow", "link=namespace", "--append", "config", "--out", "less.cap"];
    board.bench.place.run(less).ok();
    let text = fs::read_to_string(board.bench.place.path().join("less.cap")).unwrap();
    fs::write(&kept, text.trim().parse::<Token>().unwrap().to_bytes()).unwrap();
    reconnect(&mut board);
    board.bench.place.run(["device", "send", "kitchen", "config", "x", "--wait", "100s"]).ok();
    board.refuses("works.bin", "2.0", "MR6132", 1);
    assert_eq!(board.firmware()["update"]["state"], "refused");
    // The remedy: what it permits, and one that permits more.
    let permits = board.bench.place.run(["cap", "show", "less.cap"]).ok();
    assert!(permits.text().contains("config") && !permits.text().contains("firmware"), "{}", permits.text());
    // Without any, the update waits for one.
    fs::write(&kept, &all).unwrap();
    let away = board.bench.place.path().join("away");
    fs::rename(&kept, &away).unwrap();
    reconnect(&mut board);
    board.refuses("works.bin", "2.1", "MR6132", 1);
    assert_eq!(board.firmware()["update"]["state"], "waiting");
    fs::rename(&away, &kept).unwrap();
    reconnect(&mut board);
    board.reports("confirmed", 2);
    // At the host.
    let place = &board.bench.place;
    for log in ["config", "firmware"] {
        let (right, file) = (format!("kitchen/{log}"), format!("{log}.cap"));
        place.run(["cap", "issue", "--append", &right, "--allow", "observe=namespace", "--out", &file]).ok();
    }
    let update = |capability: &str| {
        let mut command =
            place.command(["-n", &host, "device", "update", "kitchen", "--image", "works.bin", "--version", "2.2"]);
        command.env("MILLRACE_CAPABILITY", place.path().join(capability));
        end(command, b"")
    };
    let denied = update("config.cap").fails("MR6132", 1);
    assert!(denied.stderr.contains("does not grant append on log 'kitchen/firmware'"), "{}", denied.stderr);
    update("firmware.cap").ok();
    assert_eq!(board.firmware()["update"]["number"], 3);
}
