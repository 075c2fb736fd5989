//! Updates of firmware, with the boot loader for POSIX (`device/examples/boot.c`): the image arrives whatever breaks, new firmware that
//! reaches a host stays, and other firmware does not.

use super::{Bench, device_program};
use base64::prelude::{BASE64_STANDARD, Engine};
use millrace_security::token::{Grant, Kind, Right, Rules, Token};
use millrace_tests::{Ended, end, eventually};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
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
    // The device runs it: the same command changes nothing.
    let again = board.update("works.bin", "2.0", "").ok();
    assert_eq!((again.objects().len(), last(&again)["number"].as_u64()), (1, Some(1)), "{}", again.text());

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
    // Most of it is left when the device loses power for the last time: in a trial, that would end it.
    board.working("works.bin", 600_000);
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
fn a_device_that_is_removed_during_an_update_stays_awake_no_longer() {
    let mut board = Board::new();
    board.kill();
    // As a board that sleeps if nothing keeps it awake.
    board.start("--patience 1 --quiet 1000");
    board.working("works.bin", 1_500_000);
    board.update("works.bin", "2.0", "--no-wait").ok();
    board.sends(20_000);
    board.bench.place.run(["device", "rm", "kitchen"]).ok();
    let mut process = board.process.take().expect("it runs");
    eventually("it sleeps", || process.try_wait().expect("it was started").is_some());
    assert_eq!(process.wait().unwrap().code(), Some(super::REFUSED));
    let said = board.bench.place.run(["log", "get", "kitchen/update"]).ok();
    assert!(said.text().contains("receiving"), "{}", said.text());
}

impl Board {
    /// An update began, and so many bytes were sent.
    fn sends(&self, bytes: u64) {
        eventually(&format!("{bytes} bytes were sent"), || {
            self.firmware()["update"]["sent"].as_u64().unwrap_or(0) >= bytes
        });
    }

    /// Sends the host a change over HTTP.
    fn manage(&self, order: &Value) -> Value {
        let mut curl = Command::new("curl");
        let url = format!("http://127.0.0.1:{}/v1/namespaces/main/manage", self.bench.port);
        curl.args(["-sS", &url, "-H", "Content-Type: application/json", "-d", &order.to_string()]);
        end(curl, b"").ok().object()
    }

    fn capability(&self) -> PathBuf {
        self.bench.place.namespace().join("secrets/devices/kitchen.capability")
    }

    fn has_no_image(&self) -> bool {
        self.bench.place.run(["log", "get", "_firmware/kitchen", "--all"]).stdout.is_empty()
    }
}

#[test]
fn an_image_that_arrives_damaged_at_the_host_is_not_sent_to_the_device() {
    let board = Board::new();
    board.working("works.bin", 40_000);
    let mut image = fs::read(board.bench.place.path().join("works.bin")).unwrap();
    let hex: String = Sha256::digest(&image).iter().map(|byte| format!("{byte:02x}")).collect();
    *image.last_mut().unwrap() ^= 1;
    let begin =
        json!({ "do": "begin-update", "device": "kitchen", "size": image.len(), "sha256": hex, "version": "2.0" });
    let add = |offset: usize, part: &[u8]| {
        let base64 = BASE64_STANDARD.encode(part);
        board.manage(
            &json!({ "do": "add-firmware", "device": "kitchen", "update": 1, "offset": offset, "base64": base64 }),
        )
    };
    assert_eq!(board.manage(&begin)["state"], "storing");
    assert_eq!(add(0, &image[..32 << 10])["stored"], 32 << 10);
    let refused = add(32 << 10, &image[32 << 10..]);
    assert_eq!(refused["error"]["code"], "MR6347", "{refused}");
    let update = board.firmware()["update"].clone();
    assert_eq!((&update["state"], &update["code"], &update["sent"]), (&"refused".into(), &"MR6347".into(), &0.into()));
    let shown = board.bench.place.run(["device", "show", "kitchen"]).ok();
    assert!(shown.text().contains("MR6347: the host has received other bytes"), "{}", shown.text());
    assert!(board.has_no_image());
    // It has ended, and what comes late begins nothing.
    assert_eq!(add(0, &image[..32 << 10])["error"]["code"], "MR6352");
    // The remedy: the same command again, with the file as it is.
    let done = board.update("works.bin", "2.0", "").ok();
    assert_eq!((&last(&done)["state"], &last(&done)["number"]), (&"confirmed".into(), &2.into()));
    // The device has never heard of the first one.
    let said = board.bench.place.records("kitchen/update");
    assert!(said.iter().all(|line| !line.contains("\"update\":1,")), "{said:?}");
}

impl Board {
    fn back_up(&self) {
        self.bench.place.run(["namespace", "backup", "backup"]).ok();
    }

    /// Puts a namespace from the backup in the place of this one. A backup has no capabilities: the device is refused until they are copied.
    fn restore(&mut self) {
        self.kill();
        self.bench.kill();
        let (namespace, kept) = (self.bench.place.namespace(), self.bench.place.path().join("secrets"));
        fs::rename(namespace.join("secrets"), &kept).unwrap();
        fs::remove_dir_all(&namespace).unwrap();
        self.bench.place.run(["namespace", "restore", "backup", namespace.to_str().unwrap()]).ok();
        self.bench.serve();
        self.start("");
        let refused = || self.bench.shown("kitchen")["refused"].clone();
        eventually("the device is refused", || refused()[0]["code"] == "MR6138");
        assert_eq!(refused()[0]["known_by"], "capability");
        self.kill();
        self.bench.kill();
        let secrets = namespace.join("secrets");
        if secrets.exists() {
            fs::remove_dir_all(&secrets).unwrap();
        }
        fs::rename(&kept, &secrets).unwrap();
        self.bench.serve();
        self.start("");
    }

    /// How many records of images the device has got.
    fn pieces(&self) -> u64 {
        let stat = self.bench.place.run(["--json", "log", "stat", "kitchen/firmware"]).ok().object();
        stat["latest"].as_u64().unwrap()
    }
}

#[test]
fn an_update_begins_again_in_a_namespace_that_was_restored() {
    let mut board = Board::new();
    board.working("works.bin", 1_500_000);
    board.update("works.bin", "2.0", "--no-wait").ok();
    board.sends(20_000);
    board.back_up();
    board.sends(60_000);
    board.restore();
    // The same command follows it. The device gets the image from its beginning, and no record of it is a dead command.
    let followed = board.update("works.bin", "2.0", "").ok();
    assert_eq!((&last(&followed)["state"], &last(&followed)["number"]), (&"confirmed".into(), &1.into()));
    assert!(board.bench.shown("kitchen")["refused"].is_null());
    assert!(board.bench.place.run(["log", "get", "dead/commands", "--all"]).code != 0, "none is dead");
    assert!(board.pieces() > 1_500_000 / 240 + 60_000 / 240, "{} pieces", board.pieces());
    assert!(board.has_no_image());
}

#[test]
fn an_update_that_ended_after_the_backup_has_ended_in_the_namespace_that_was_restored() {
    let mut board = Board::new();
    board.working("works.bin", 150_000);
    // The backup is made while the image waits for the device.
    board.kill();
    board.update("works.bin", "2.0", "--no-wait").ok();
    board.back_up();
    board.start("");
    board.reports("confirmed", 1);
    board.restore();
    // The device says that it has it, before anything is sent again.
    let followed = board.update("works.bin", "2.0", "").ok();
    assert_eq!((&last(&followed)["state"], &last(&followed)["number"]), (&"confirmed".into(), &1.into()));
    assert_eq!(board.pieces(), 1 + 150_000 / 240, "none came twice");
    assert!(board.has_no_image());
}

#[test]
fn an_update_that_a_capability_does_not_permit_says_so() {
    let mut board = Board::new();
    board.working("works.bin", 20_000);
    let place = &board.bench.place;
    // The one who sends it may send other commands only.
    place.run(["cap", "issue", "--append", "kitchen/config", "--out", "config.cap"]).ok();
    let bearer = fs::read_to_string(place.path().join("config.cap")).unwrap();
    let mut curl = Command::new("curl");
    curl.args([
        "-sS",
        "-X",
        "PUT",
        "--data-binary",
        "@works.bin",
        "-H",
        &format!("Authorization: Bearer {}", bearer.trim()),
    ]);
    curl.arg(format!("http://127.0.0.1:{}/v1/namespaces/main/devices/kitchen/firmware?version=2", board.bench.port));
    curl.current_dir(place.path());
    assert_eq!(end(curl, b"").ok().object()["error"]["code"], "MR6132");
    assert!(board.firmware()["update"].is_null());
    // The device takes other commands only.
    let whole = Token::from_bytes(&fs::read(board.capability()).unwrap()).unwrap();
    let rights = |right: Right| [right].into_iter().collect();
    let config =
        Grant { kind: Kind::Log, name: Box::from(&b"config"[..]), subtree: false, rights: rights(Right::Append) };
    let grants = vec![Grant::namespace(rights(Right::Link)), config];
    let less = whole.attenuate(&Rules { grants, ..Rules::default() }).unwrap();
    fs::write(board.capability(), less.to_bytes()).unwrap();
    board.kill();
    board.start("");
    board.refuses("works.bin", "2.0", "MR6132", 1);
    let shown = board.firmware();
    assert_eq!((&shown["update"]["state"], &shown["update"]["code"]), (&"refused".into(), &"MR6132".into()), "{shown}");
    assert!(board.has_no_image());
    // It is no dead command, and other commands go on.
    let place = &board.bench.place;
    assert!(place.run(["log", "get", "dead/commands", "--all"]).code != 0, "none is dead");
    place.run(["device", "send", "kitchen", "config", "x", "--wait", "100s"]).ok();
    // The host has no capability for the device: nothing is lost, and the command says why it waits.
    fs::write(board.capability(), whole.to_bytes()).unwrap();
    let away = board.bench.place.path().join("away");
    fs::rename(board.capability(), &away).unwrap();
    board.kill();
    board.start("");
    board.refuses("works.bin", "2.1", "MR6132", 1);
    assert_eq!(board.firmware()["update"]["state"], "waiting");
    fs::rename(&away, board.capability()).unwrap();
    // Others can read it: commands stop, and that is said.
    fs::set_permissions(board.capability(), Permissions::from_mode(0o644)).unwrap();
    board.kill();
    board.start("");
    let said = || board.bench.place.run(["device", "show", "kitchen"]).ok().text().to_owned();
    eventually("the refusal names the file", || said().contains("kitchen.capability"));
    fs::set_permissions(board.capability(), Permissions::from_mode(0o600)).unwrap();
    board.kill();
    board.start("");
    board.reports("confirmed", 2);
    // One who may send firmware, and nothing else, sends it from elsewhere.
    let place = &board.bench.place;
    let issue = "cap issue --append kitchen/firmware --allow observe=namespace --out firmware.cap";
    place.run(issue.split(' ')).ok();
    let host = format!("mr://127.0.0.1:{}/main", board.bench.port);
    let mut update =
        place.command(["-n", &host, "device", "update", "kitchen", "--image", "works.bin", "--version", "2.2"]);
    update.env("MILLRACE_CAPABILITY", place.path().join("firmware.cap"));
    end(update, b"").ok();
    assert_eq!(board.firmware()["update"]["number"], 3);
}

#[test]
fn an_update_of_a_device_that_the_host_refuses_says_so() {
    let board = Board::new();
    let place = &board.bench.place;
    board.working("works.bin", 20_000);
    // It may attach, and not create its logs.
    place.run(["cap", "issue", "--allow", "append=attic/", "--out", "attic.cap"]).ok();
    let refused = board
        .bench
        .run("attic.flash", "--records 3 --name attic --capability attic.cap --identity 77aa77aa0001 --patience 1");
    assert_eq!(refused.code, super::REFUSED, "{}", refused.stderr);
    let args = ["device", "update", "attic", "--image", "works.bin", "--version", "2"];
    let said = place.run(args).fails("MR6132", 1);
    assert!(said.stderr.contains("the update waits, since this host refuses the device"), "{}", said.stderr);
}

#[test]
fn an_update_waits_for_a_device_that_sleeps_for_long() {
    let mut board = Board::new();
    board.working("works.bin", 20_000);
    board.kill();
    board.update("works.bin", "2.0", "--no-wait").ok();
    board.bench.place.run(["device", "send", "kitchen", "config", "before"]).ok();
    for round in 0..3 {
        board.bench.kill();
        board.bench.serve();
        let waits = board.update("works.bin", "2.0", "--wait 1ms");
        assert_eq!((waits.code, &last(&waits)["number"]), (75, &1.into()), "{}", waits.stderr);
        board.bench.place.run(["device", "send", "kitchen", "config", &format!("{round}")]).ok();
    }
    // Of the image, only the beginning waits as commands, however long it takes: its first record and sixteen pieces.
    assert_eq!(board.bench.shown("kitchen")["commands_waiting"], 17 + 4);
    board.start("");
    board.reports("confirmed", 1);
    assert_eq!(board.bench.place.records("kitchen/config"), ["before", "0", "1", "2"]);
    assert!(board.has_no_image());
}

#[test]
fn of_two_updates_of_a_device_the_newer_one_takes_place() {
    let mut board = Board::new();
    board.working("one.bin", 150_000);
    board.working("two.bin", 90_000);
    // The first one is under way, and somebody follows it.
    let mut first =
        board.bench.place.command(["device", "update", "kitchen", "--image", "one.bin", "--version", "2.0"]);
    let first = first.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    board.sends(30_000);
    let second = board.update("two.bin", "3.0", "").ok();
    assert_eq!((&last(&second)["state"], &last(&second)["number"]), (&"confirmed".into(), &2.into()));
    let first = first.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&first.stderr);
    assert!(!first.status.success() && said.contains("MR6352"), "{said}");
    assert_eq!(board.firmware()["running"], "1", "the station says of itself what it is");
    let slot = fs::read(board.bench.place.path().join("slots/slot-1")).unwrap();
    assert_eq!(slot[..90_000], fs::read(board.bench.place.path().join("two.bin")).unwrap());
    // Two who send the same one at once follow the same update, whoever stores which part.
    board.kill();
    let same = || {
        let args = ["--json", "device", "update", "kitchen", "--image", "one.bin", "--version", "4.0"];
        let mut command = board.bench.place.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let both = [same(), same()];
    eventually("the host has it", || board.firmware()["update"]["state"] == "waiting");
    board.start("");
    for one in both {
        let ended = one.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
        assert!(said.contains("\"number\":3") && said.contains("\"confirmed\""), "{said}");
    }
    // Others that are under way at the same time end, except for the last one that has begun.
    let many: Vec<Child> = (0..4)
        .map(|number| {
            let image = if number % 2 == 0 { "one.bin" } else { "two.bin" };
            let version = format!("5.{number}");
            let args = ["device", "update", "kitchen", "--image", image, "--version", &version];
            let mut command = board.bench.place.command(args);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    let ended: Vec<_> = many.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert_eq!(ended.iter().filter(|one| one.status.success()).count(), 1, "{ended:?}");
    for one in ended.iter().filter(|one| !one.status.success()) {
        let said = String::from_utf8_lossy(&one.stderr);
        assert!(said.contains("MR6352"), "{said}");
    }
    assert_eq!(board.firmware()["update"]["state"], "confirmed");
}

#[test]
fn a_device_that_is_removed_during_an_update_gets_no_more_of_it() {
    let mut board = Board::new();
    // Most of it is left when the device is removed.
    board.working("works.bin", 1_500_000);
    let mut follows =
        board.bench.place.command(["device", "update", "kitchen", "--image", "works.bin", "--version", "2.0"]);
    let follows = follows.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    board.sends(30_000);
    board.bench.place.run(["device", "rm", "kitchen"]).ok();
    let followed = follows.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&followed.stderr);
    assert!(!followed.status.success() && said.contains("MR6303"), "{said}");
    assert!(board.has_no_image());
    let place = &board.bench.place;
    assert_eq!(place.run(["--json", "log", "stat", "_commands/kitchen"]).ok().object()["records"], 0);
    // The device keeps its firmware, and is refused from now on.
    let boot = || fs::read_to_string(place.path().join("slots/boot")).unwrap_or_else(|_| "0 -1 0\n".into());
    assert_eq!(boot(), "0 -1 0\n");
    eventually("the device is refused", || {
        let listed = place.run(["--json", "device", "ls"]).ok().objects();
        listed.iter().any(|line| line["refused"][0]["code"] == "MR6138" && line["refused"][0]["device"] == "kitchen")
    });
    // The next one of its name begins without an update.
    board.kill();
    let place = &board.bench.place;
    for log in place.run(["--json", "log", "ls"]).ok().objects() {
        let name = log["name"].as_str().unwrap().to_owned();
        if name.starts_with("kitchen/") {
            place.run(["log", "rm", &name]).ok();
        }
    }
    for file in ["kitchen.identity", "kitchen.flash"] {
        fs::remove_file(place.path().join(file)).unwrap();
    }
    let host = format!("127.0.0.1:{}", board.bench.port);
    place.run(["device", "provision", "kitchen", "--host", &host]).ok();
    assert!(board.firmware().is_null(), "{}", board.firmware());
    board.start("");
    board.reports("idle", 0);
    assert_eq!(last(&board.update("works.bin", "2.0", "").ok())["number"], 1);
}
