//! Commands: a record that somebody appends to a log of a device through its host arrives once, whatever breaks; and a device that verifies
//! capabilities takes none from a host that has none for it.

use super::Bench;
use millrace_tests::{Place, eventually};
use serde_json::Value;
use std::{fs, process::Child};

/// A provisioned device.
fn bench() -> Bench {
    let bench = Bench::new();
    let host = format!("127.0.0.1:{}", bench.port);
    bench.place.run(["device", "provision", "kitchen", "--host", &host]).ok();
    bench
}

/// One that runs for long; it ends with this value.
pub(super) struct Awake(Child);

impl Awake {
    pub fn signal(&self, name: &str) {
        let status = std::process::Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(status.expect("kill starts").success());
    }

    pub fn start(bench: &Bench, more: &str) -> Self {
        Self(bench.device("kitchen.flash", &format!("--linger 600000 {more}")).spawn().expect("it starts"))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn waiting(bench: &Bench) -> u64 {
    bench.shown("kitchen")["commands_waiting"].as_u64().expect("a number")
}

fn dead(place: &Place) -> Vec<Value> {
    let lines = place.records("dead/commands");
    lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_command_reaches_a_device_that_was_asleep_and_one_that_is_awake_once() {
    let bench = bench();
    let place = &bench.place;
    place.run(["device", "send", "kitchen", "config", "every=60"]).ok();
    place.run(["device", "send", "kitchen", "config", "every=50"]).ok();
    assert_eq!(waiting(&bench), 2);
    let awake = Awake::start(&bench, "--records 5 --provisioned kitchen.identity");
    let args = ["--json", "device", "send", "kitchen", "config", "every=40", "--wait", "100s"];
    let sent = place.run(args).ok().object();
    assert_eq!((&sent["number"], &sent["delivered"]), (&3.into(), &true.into()));
    eventually("the function has run for all", || place.run(["log", "get", "kitchen/applied", "3"]).code == 0);
    assert_eq!(place.records("kitchen/config"), ["every=60", "every=50", "every=40"]);
    assert_eq!(place.records("kitchen/applied"), ["every=60", "every=50", "every=40"]);
    assert_eq!(waiting(&bench), 0);
    // From what came of it, a trace leads back to the command.
    let traced = place.run(["--json", "trace", "kitchen/applied@3", "--up"]).ok();
    assert!(
        traced.text().contains("_commands/kitchen") && traced.text().contains(sent["id"].as_str().unwrap()),
        "{}",
        traced.text()
    );
    drop(awake);
    // It starts again, and gets nothing twice.
    bench.run("kitchen.flash", "--records 8 --provisioned kitchen.identity --linger 300").ok();
    assert_eq!(place.records("kitchen/config").len(), 3);
}

#[test]
fn what_a_device_refuses_is_a_dead_letter_and_the_next_command_goes_on() {
    let bench = bench();
    let place = &bench.place;
    let _awake = Awake::start(&bench, "--records 1 --provisioned kitchen.identity");
    let send = |log: &str, wait: &str| place.run(["device", "send", "kitchen", log, "x", "--wait", wait]);
    send("raw", "100s").fails("MR6132", 1);
    send("none", "100s").fails("MR2101", 1);
    send("config", "100s").ok();
    let codes: Vec<Value> = dead(place).iter().map(|letter| letter["code"].clone()).collect();
    assert_eq!(codes, ["MR6132", "MR2101"]);
    assert_eq!(place.records("kitchen/config"), ["x"]);
    // What no device can get is refused at once.
    place.run(["device", "send", "kitchen", "config", &"x".repeat(257)]).fails("MR1006", 2);
    place.run(["device", "send", "cellar", "config", "x"]).fails("MR6303", 1);
    place.run(["device", "send", "kitchen", "a//b", "x"]).fails("MR1001", 2);
    // Through the host, this takes the right to append to the log of the device.
    place.run(["cap", "issue", "--append", "kitchen/config", "--out", "one.cap"]).ok();
}

#[test]
fn a_device_takes_commands_only_from_a_host_with_a_capability_of_its_key() {
    let bench = bench();
    let place = &bench.place;
    let kept = place.namespace().join("secrets/devices/kitchen.capability");
    let away = place.path().join("away");
    fs::rename(&kept, &away).unwrap();
    place.run(["device", "send", "kitchen", "config", "a"]).ok();
    bench.run("kitchen.flash", "--records 5 --provisioned kitchen.identity --linger 1500").ok();
    assert_eq!(bench.shown("kitchen")["commands_refused"]["code"], "MR6132");
    // One that was made with the key of another device.
    place.run(["device", "provision", "cellar"]).ok();
    fs::copy(place.namespace().join("secrets/devices/cellar.capability"), &kept).unwrap();
    bench.run("kitchen.flash", "--records 6 --provisioned kitchen.identity --linger 1500").ok();
    assert_eq!(bench.shown("kitchen")["commands_refused"]["code"], "MR6138");
    assert_eq!(waiting(&bench), 1);
    fs::rename(&away, &kept).unwrap();
    bench.run("kitchen.flash", "--records 7 --provisioned kitchen.identity --linger 1500").ok();
    assert_eq!(place.records("kitchen/config"), ["a"]);
    assert!(bench.shown("kitchen")["commands_refused"].is_null());
    // A device without a key of its own takes commands from every host that it trusts with its records.
    bench.run("attic.flash", "--records 3 --name attic --identity 77aa77aa0001").ok();
    place.run(["device", "send", "attic", "config", "b"]).ok();
    bench.run("attic.flash", "--records 4 --name attic --identity 77aa77aa0001 --linger 1500").ok();
    assert_eq!(place.records("attic/config"), ["b"]);
}

#[test]
fn each_command_arrives_once_although_hosts_and_lines_fail() {
    let mut bench = bench();
    let seed = std::env::var("MILLRACE_DEVICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = super::Random(seed * 2 + 1);
    let mut expected = Vec::new();
    for round in 0..12 {
        for _ in 0..=random.below(3) {
            expected.push(format!("command {}", expected.len()));
            bench.place.run(["device", "send", "kitchen", "config", expected.last().unwrap()]).ok();
        }
        let more = format!(
            "--records {} --provisioned kitchen.identity --linger 300 --patience 500 --cut-line {} --cut-power {} --way {}",
            round + 1,
            random.below(2) * (200 + random.below(2500)),
            random.below(3) / 2 * (1 + random.below(12)),
            random.below(4)
        );
        bench.run("kitchen.flash", &more);
        if round % 4 == 3 {
            bench.kill();
            bench.serve();
        }
    }
    let _awake = Awake::start(&bench, "--records 12 --provisioned kitchen.identity");
    eventually("all commands are delivered", || waiting(&bench) == 0);
    let last = expected.len().to_string();
    eventually("all are imported", || bench.place.run(["log", "get", "kitchen/config", &last]).code == 0);
    assert_eq!(bench.place.records("kitchen/config"), expected, "seed {seed}");
    assert!(bench.place.run(["log", "get", "dead/commands", "--all"]).code != 0, "none is dead");
}

#[test]
fn a_host_that_was_put_back_repeats_no_command() {
    let mut bench = bench();
    let device = "--provisioned kitchen.identity --linger 1500";
    bench.run("kitchen.flash", &format!("--records 2 {device}")).ok();
    bench.place.run(["device", "send", "kitchen", "config", "a"]).ok();
    let backup = bench.place.path().join("backup");
    let copy = bench.place.path().join("copy");
    bench.place.run(["namespace", "backup", backup.to_str().unwrap()]).ok();
    bench.kill();
    let namespace = bench.place.namespace();
    let copied = std::process::Command::new("cp").arg("-a").args([&namespace, &copy]).status().unwrap();
    assert!(copied.success());
    bench.serve();
    bench.run("kitchen.flash", &format!("--records 3 {device}")).ok();
    assert_eq!(bench.place.records("kitchen/config"), ["a"]);
    bench.kill();
    // An older copy of the directory has the same identity: the device notices that it has been here before.
    fs::remove_dir_all(&namespace).unwrap();
    fs::rename(&copy, &namespace).unwrap();
    bench.serve();
    bench.run("kitchen.flash", &format!("--records 4 {device}")).ok();
    assert_eq!(bench.shown("kitchen")["commands_refused"]["code"], "MR6081", "{}", bench.shown("kitchen"));
    bench.kill();
    // One that was restored has another identity, and cannot know whether the command took effect.
    fs::remove_dir_all(&namespace).unwrap();
    bench.place.run(["namespace", "restore", backup.to_str().unwrap(), namespace.to_str().unwrap()]).ok();
    bench.serve();
    // Its capabilities are not in the backup.
    let plain = "--name kitchen --linger 1500";
    let identity = bench.shown("kitchen")["namespace"].as_u64().map(|id| format!("{id:012x}")).unwrap();
    bench.run("kitchen.flash", &format!("--records 5 {plain} --identity {identity}")).ok();
    let dead = dead(&bench.place);
    assert_eq!((dead.len(), &dead[0]["code"]), (1, &"MR6343".into()), "{dead:?}");
    bench.place.run(["device", "send", "kitchen", "config", "b"]).ok();
    bench.run("kitchen.flash", &format!("--records 6 {plain} --identity {identity}")).ok();
    assert_eq!(bench.place.records("kitchen/config"), ["a", "b"]);
}

#[test]
fn firmware_that_computes_something_else_than_its_twin_is_named() {
    let bench = bench();
    let place = &bench.place;
    let _awake = Awake::start(&bench, "--records 1 --provisioned kitchen.identity");
    let send = |record: &str| place.run(["device", "send", "kitchen", "config", record, "--wait", "100s"]).ok();
    let applied = |count: u64| {
        let last = count.to_string();
        eventually("the device has done it", || place.run(["log", "get", "kitchen/applied", &last]).code == 0);
        place.idle();
    };
    send("a");
    applied(1);
    place.run(["log", "create", "applied"]).ok();
    let twin = |script: &str| {
        place.write("twin.sh", script);
        let deploy = "function deploy twin --runtime oneshot --code twin.sh --on kitchen/config -- sh ./twin.sh";
        place.run(deploy.split(' ')).ok();
    };
    let asked = ["device", "verify", "kitchen", "applied", "--on", "config", "--twin", "applied"];
    let verify = || place.run(["--json"].iter().chain(&asked));
    place.run(asked).fails("MR1006", 2);
    twin("read text\nprintf 'applied\\t%s\\n' \"$text\" >&3\n");
    send("b");
    send("c");
    applied(3);
    let same = verify().ok().object();
    assert_eq!((&same["compared"], &same["differ"]), (&2.into(), &0.into()), "{same}");
    twin("read text\nprintf 'applied\\t%s!\\n' \"$text\" >&3\n");
    send("d");
    applied(4);
    let other = verify();
    assert_eq!(other.code, 1, "{}", other.stderr);
    let other = other.object();
    assert_eq!((&other["compared"], &other["differ"]), (&3.into(), &1.into()), "{other}");
    let first = &other["first"][0];
    assert_eq!((&first["seqno"], &first["device"], &first["twin"]), (&4.into(), &"d".into(), &"d!".into()), "{other}");
}

/// What the flash of a device has in its log `config`.
fn flash_has(place: &Place, flash: &str) -> Vec<Value> {
    let dumped = place.run(["--json", "device", "dump", flash]).ok().objects();
    dumped
        .into_iter()
        .filter(|line| line["kind"] == "record" && line["log"] == "config")
        .map(|line| line["data"].clone())
        .collect()
}

#[test]
fn a_device_that_was_removed_while_it_is_connected_gets_nothing_for_the_next_one_of_its_name() {
    let bench = Bench::new();
    let place = &bench.place;
    let reached = || place.run(["device", "get", "kitchen", "raw"]).code == 0;
    // Without a capability, so that nothing but the host's memory of the device could keep it out.
    let awake = Awake::start(&bench, "--records 1 --identity 77aa77aa0001");
    eventually("it is connected", reached);
    place.run(["device", "rm", "kitchen"]).ok();
    for log in ["raw", "mean"] {
        place.run(["log", "rm", &format!("kitchen/{log}")]).ok();
    }
    let host = format!("127.0.0.1:{}", bench.port);
    place.run(["device", "provision", "kitchen", "--host", &host]).ok();
    place.run(["device", "get", "kitchen", "raw"]).fails("MR6360", 75);
    place.run(["device", "send", "kitchen", "config", "now", "--live"]).fails("MR6360", 75);
    assert_eq!(place.run(["device", "send", "kitchen", "config", "later", "--wait", "2s"]).code, 75);
    assert_eq!(waiting(&bench), 1);
    assert!(flash_has(place, "kitchen.flash").is_empty());
    // It came again, and was refused; nothing of it is under the name.
    drop(awake);
    assert_eq!(bench.shown("kitchen")["logs"], serde_json::json!([]));
    bench.run("new.flash", "--records 2 --provisioned kitchen.identity --linger 1500").ok();
    assert_eq!(place.records("kitchen/config"), ["later"]);
    assert_eq!(flash_has(place, "new.flash"), ["later"]);
}

#[test]
fn a_device_whose_capability_was_revoked_while_it_is_connected_gets_nothing_more() {
    let bench = bench();
    let place = &bench.place;
    let _awake = Awake::start(&bench, "--records 1 --provisioned kitchen.identity");
    eventually("it is connected", || place.run(["device", "get", "kitchen", "raw"]).code == 0);
    let shown = bench.shown("kitchen");
    place.run(["cap", "revoke", shown["capability"].as_str().unwrap()]).ok();
    assert_eq!(place.run(["device", "send", "kitchen", "config", "x", "--wait", "2s"]).code, 75);
    place.run(["device", "get", "kitchen", "raw"]).fails("MR6360", 75);
    assert!(flash_has(place, "kitchen.flash").is_empty());
    assert_eq!(waiting(&bench), 1);
}

#[test]
fn a_command_for_a_device_that_is_removed_is_a_dead_letter() {
    let bench = bench();
    let place = &bench.place;
    place.run(["device", "send", "kitchen", "config", "a"]).ok();
    let waits = place.command(["device", "send", "kitchen", "config", "b", "--wait", "100s"]);
    let failed = std::thread::scope(|scope| {
        let waits = scope.spawn(|| millrace_tests::end(waits, b""));
        eventually("both wait", || waiting(&bench) == 2);
        place.run(["device", "rm", "kitchen"]).ok();
        waits.join().unwrap()
    });
    failed.fails("MR6303", 1);
    let dead = dead(place);
    let said: Vec<_> = dead.iter().map(|letter| (letter["data"].as_str(), letter["code"].as_str())).collect();
    assert_eq!(said, [(Some("a"), Some("MR6303")), (Some("b"), Some("MR6303"))]);
    // The next one of this name gets neither.
    place.run(["device", "provision", "kitchen", "--out", "next"]).ok();
    assert_eq!(waiting(&bench), 0);
}

#[test]
fn who_may_send_a_command_and_not_see_its_end_is_told_that_it_was_accepted() {
    let bench = bench();
    let place = &bench.place;
    place.run(["cap", "issue", "--allow", "append=kitchen/config", "--out", "sender.cap"]).ok();
    let address = format!("mr://127.0.0.1:{}/main", bench.port);
    let mut command = place.command(["-n", &address, "device", "send", "kitchen", "config", "a", "--wait", "100s"]);
    command.env("MILLRACE_CAPABILITY", place.path().join("sender.cap"));
    let failed = millrace_tests::end(command, b"").fails("MR6132", 1);
    assert!(failed.stderr.contains("command 1 was accepted"), "{}", failed.stderr);
    assert_eq!(waiting(&bench), 1);
}
