//! Functions, relays and logs of a namespace are changed at its address as they are in its directory, and an application is deployed
//! there with its code.

use millrace_tests::{Host, Place, eventually};
use serde_json::Value;
use std::fs;

const SHOUT: &str = "#!/bin/sh\nread -r record\n[ \"$record\" != bad ] || { echo no >&2; exit 1; }\n\
    echo heard \"$record\"\nprintf 'loud\\t%s!\\n' \"$record\" >&3\n";
const APPLICATION: &str = "[logs.inbox]\n[logs.loud]\n[functions.shout]\nruntime = \"oneshot\"\ncode = \"code\"\n\
    command = [\"./shout.sh\"]\non = [\"inbox\"]\nretries = 0\n";

/// A host whose namespace has nothing yet, and a directory elsewhere with an application.
struct Machines {
    host: Place,
    laptop: Place,
    serving: Option<Host>,
    address: String,
}

impl Machines {
    fn new() -> Self {
        let (host, laptop) = (Place::new(), Place::empty());
        let serving = host.serve_tcp(["--name", "farm"]);
        let address = format!("mr://127.0.0.1:{}/farm", serving.port());
        laptop.write("code/shout.sh", SHOUT);
        laptop.write("code/lib/words.txt", "hear, hear\n");
        laptop.write("code/empty", "");
        laptop.write("millrace.toml", APPLICATION);
        Self { host, laptop, serving: Some(serving), address }
    }

    fn at(&self, args: &[&str]) -> millrace_tests::Ended {
        let args: Vec<&str> = ["-n", &self.address].into_iter().chain(args.iter().copied()).collect();
        self.laptop.run(args)
    }

    /// What the host has of what was sent and not deployed.
    fn left(&self) -> usize {
        fs::read_dir(self.host.namespace().join("scratch")).map_or(0, |scratch| {
            let names = scratch.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.contains("upload")).count()
        })
    }
}

fn changes(said: &millrace_tests::Ended) -> Vec<String> {
    let reported = |step: &Value| format!("{} {}", step["name"].as_str().unwrap(), step["change"].as_str().unwrap());
    said.objects().iter().map(reported).collect()
}

#[test]
fn an_application_is_deployed_at_an_address_with_its_code() {
    let machines = Machines::new();
    let planned = changes(&machines.at(&["--json", "up", "--dry-run"]).ok());
    assert_eq!(planned, ["inbox created", "loud created", "dead/shout created", "shout created"]);
    assert!(machines.at(&["function", "ls"]).ok().text().contains("no functions"), "nothing was changed");
    assert_eq!(changes(&machines.at(&["--json", "up"]).ok()), planned);
    assert_eq!(machines.left(), 0, "what was sent is deployed or gone");

    let said = machines.at(&["function", "invoke", "shout", "--data", "hello", "--wait"]).ok();
    assert_eq!(said.text(), "loud 1  hello!\n");
    assert!(machines.at(&["function", "logs", "shout"]).ok().text().contains("heard hello"));
    assert_eq!(machines.at(&["log", "append", "inbox", "you", "--wait"]).ok().text(), "loud 2  you!\n");

    // The same again changes nothing; another version of the code replaces it.
    let again = changes(&machines.at(&["--json", "up"]).ok());
    assert!(again.iter().all(|change| change.ends_with("unchanged")), "{again:?}");
    machines.laptop.write("code/shout.sh", &SHOUT.replace("%s!", "%s?"));
    let planned = changes(&machines.at(&["--json", "up", "--dry-run"]).ok());
    assert!(planned.contains(&"shout updated".to_owned()), "{planned:?}");
    assert!(changes(&machines.at(&["--json", "up"]).ok()).contains(&"shout updated".to_owned()));
    assert_eq!(machines.at(&["function", "invoke", "shout", "--data", "hi", "--wait"]).ok().text(), "loud 3  hi?\n");

    // A function that the file does not name any more goes, and none of another application.
    machines.host.write("own.sh", "#!/bin/sh\n");
    machines.host.run(["log", "create", "kept"]).ok();
    let deploy = "function deploy own --runtime oneshot --code own.sh --on kept -- ./own.sh";
    machines.host.run(deploy.split(' ')).ok();
    machines.laptop.write("millrace.toml", &APPLICATION.replace("functions.shout", "functions.call"));
    let steps = changes(&machines.at(&["--json", "up"]).ok());
    assert!(steps.contains(&"shout removed".to_owned()) && steps.contains(&"call created".to_owned()), "{steps:?}");
    assert_eq!(changes(&machines.at(&["--json", "down", "--logs"]).ok())[0], "call removed");
    let names: Vec<Value> = machines.at(&["--json", "function", "ls"]).ok().objects();
    assert_eq!(names.len(), 1, "{names:?}");
    // Deployments from elsewhere are audited.
    let audited = machines.host.run(["cap", "audit"]).ok();
    assert!(audited.text().contains("function.deploy") && audited.text().contains("function.rm"), "{audited:?}");
}

#[test]
fn a_mistake_is_told_with_its_place_and_nothing_is_deployed() {
    let machines = Machines::new();
    machines.at(&["up"]).ok();
    let before = machines.at(&["--json", "function", "ls"]).ok().text().to_owned();
    machines.laptop.write("millrace.toml", &APPLICATION.replace("oneshot", "onehsot"));
    let here = machines.laptop.run(["-n", "here", "up"]).fails("MR4002", 1);
    let there = machines.at(&["up"]).fails("MR4002", 1);
    assert_eq!(here.stderr, there.stderr);
    assert!(there.stderr.contains("millrace.toml:4:"), "{}", there.stderr);
    // What only the host can tell: its interpreters.
    machines.laptop.write("bin/python", "#!/bin/sh\n");
    let python = "[functions.py]\nruntime = \"python\"\ncode = \"code\"\nhandler = \"a:b\"\npython = \"bin/python\"\n";
    machines.laptop.write("millrace.toml", python);
    let there = machines.at(&["up"]).fails("MR4002", 1);
    assert!(there.stderr.contains("millrace.toml:5:10: python"), "{}", there.stderr);
    // A program that is not there.
    machines.laptop.write("millrace.toml", &APPLICATION.replace("./shout.sh", "./none.sh"));
    let (here, there) = (machines.laptop.run(["-n", "here", "up"]), machines.at(&["up"]));
    assert_eq!((&here.stderr[..13], here.code), (&there.stderr[..13], there.code), "{here:?} {there:?}");
    assert_eq!(machines.at(&["--json", "function", "ls"]).ok().text(), before);
    assert_eq!(machines.left(), 0);
}

#[test]
fn the_history_of_a_log_is_changed_at_an_address_by_whoever_may_drop_records() {
    let machines = Machines::new();
    machines.at(&["up"]).ok();
    machines.laptop.write("millrace.toml", &APPLICATION.replace("[logs.inbox]", "[logs.inbox]\nhistory = 7"));
    let steps = machines.at(&["--json", "up"]).ok().objects();
    let inbox = steps.iter().find(|step| step["name"] == "inbox").unwrap();
    assert_eq!((&inbox["change"], &inbox["history"]["to"]), (&Value::from("updated"), &Value::from(7)));
    assert_eq!(machines.host.run(["--json", "log", "stat", "inbox"]).ok().object()["history"], 7);

    // Who may create and not delete logs makes a history longer, and no shorter.
    let cap = machines.laptop.path().join("maker.cap");
    let issue = ["cap", "issue", "--allow", "create,read,observe=inbox", "--expires", "1h", "--out"];
    machines.host.run(issue.iter().copied().chain([cap.to_str().unwrap()])).ok();
    let with = |args: &[&str]| {
        let mut command = machines.laptop.command(["-n", &machines.address].into_iter().chain(args.iter().copied()));
        command.env("MILLRACE_CAPABILITY", &cap);
        millrace_tests::end(command, b"")
    };
    with(&["log", "set", "inbox", "--history", "9"]).ok();
    with(&["log", "set", "inbox", "--history", "8"]).fails("MR6132", 1);
    with(&["log", "set", "loud", "--history", "20k"]).fails("MR6132", 1);
    assert_eq!(machines.host.run(["--json", "log", "stat", "inbox"]).ok().object()["history"], 9);
}

#[test]
fn dead_letters_are_retried_and_records_are_run_again_at_an_address() {
    let machines = Machines::new();
    machines.at(&["up"]).ok();
    for text in ["bad", "bad", "good"] {
        machines.at(&["log", "append", "inbox", text]).ok();
    }
    machines.at(&["run", "wait", "--idle"]).ok();
    let dead = machines.at(&["--json", "run", "ls", "--state", "dead"]).ok().objects();
    assert_eq!(dead.len(), 2);
    machines.laptop.write("code/shout.sh", &SHOUT.replace("!= bad", "!= worse"));
    machines.at(&["up"]).ok();
    let oldest = dead[1]["id"].as_str().unwrap();
    let retried = machines.at(&["--json", "run", "retry", oldest]).ok().object();
    assert_eq!((&retried["dead"], &retried["before"]), (&dead[1]["id"], &Value::Bool(false)));
    let again = machines.at(&["--json", "run", "retry", oldest]).ok().object();
    assert_eq!((&again["run"], &again["before"]), (&retried["run"], &Value::Bool(true)));
    let all = machines.at(&["run", "retry", "--function", "shout"]).ok();
    assert_eq!(all.text(), "retrying 1 run of function 'shout'; 1 was already retried\n");
    machines.at(&["run", "retry", "1-0-1"]).fails("MR3007", 1);
    machines.at(&["run", "wait", "--idle"]).ok();

    let filled = machines.at(&["--json", "function", "backfill", "shout", "--from", "2"]).ok().object();
    assert_eq!((&filled["runs"], &filled["upto"], &filled["log"]), (&2.into(), &3.into(), &"inbox".into()));
    machines.at(&["run", "wait", "--idle"]).ok();
    assert_eq!(machines.at(&["log", "get", "loud", "--all"]).ok().text().lines().count(), 5);
    machines.at(&["function", "backfill", "shout", "--from", "9"]).fails("MR1006", 2);

    let trimmed = machines.at(&["--json", "log", "trim", "inbox", "--before", "3"]).ok().object();
    assert_eq!((&trimmed["dropped"], &trimmed["earliest"]), (&2.into(), &3.into()));
    assert!(machines.at(&["function", "rm", "shout"]).ok().text().contains("removed function shout"));
    machines.at(&["function", "rm", "shout"]).fails("MR3001", 1);
    machines.at(&["function", "invoke", "shout", "x"]).fails("MR3001", 1);
}

#[test]
fn a_function_without_a_log_is_invoked_at_an_address() {
    let machines = Machines::new();
    machines.laptop.write("millrace.toml", &APPLICATION.replace("on = [\"inbox\"]\n", ""));
    machines.at(&["up"]).ok();
    let invoked = machines.at(&["--json", "function", "invoke", "shout", "a", "--no-wait"]).ok().object();
    assert_eq!((&invoked["log"], &invoked["seqno"]), (&"invoke/shout".into(), &1.into()));
    let named = ["--json", "function", "invoke", "shout", "--log", "inbox", "b"];
    let named = machines.at(&named).ok().object();
    assert_eq!((&named["log"], &named["seqno"]), (&"inbox".into(), &1.into()));
    machines.at(&["run", "wait", "--idle"]).ok();
    assert_eq!(machines.host.records("loud"), ["a!", "b!"]);
}

#[test]
fn relays_and_outboxes_are_managed_at_an_address() {
    let machines = Machines::new();
    for log in ["from", "to"] {
        machines.at(&["log", "create", log]).ok();
    }
    machines.at(&["log", "append", "from", "first"]).ok();
    assert_eq!(machines.at(&["relay", "add", "from", "to"]).ok().text(), "added relay from: from to to\n");
    machines.at(&["relay", "add", "from", "to"]).fails("MR6071", 1);
    eventually("the record is forwarded", || machines.host.records("to") == ["first"]);
    // The record may arrive before its acknowledgement, and the connection may have to be made again.
    let here = || machines.host.run(["--json", "relay", "ls"]).ok().object();
    eventually("both show the same relay", || {
        let (mut here, mut there) = (here(), machines.at(&["--json", "relay", "ls"]).ok().object());
        (here["last_contact"], there["last_contact"]) = (Value::Null, Value::Null);
        here["state"] == "idle" && here == there
    });
    assert!(machines.at(&["relay", "show", "from"]).ok().text().contains("first record  1"));
    assert_eq!(machines.at(&["relay", "resume", "from"]).ok().text(), "relay from continues\n");
    assert_eq!(machines.at(&["relay", "rm", "from"]).ok().text(), "removed relay from\n");
    machines.at(&["relay", "rm", "from"]).fails("MR6070", 1);
    assert!(machines.at(&["outbox", "ls"]).ok().text().starts_with("no peers: no message was ever sent"));
    let peer = "mr://127.0.0.1:1/none";
    machines.at(&["log", "append", &format!("{peer}/raw"), "x"]).ok();
    assert!(machines.at(&["outbox", "ls"]).ok().text().contains("127.0.0.1_1_none"));
    let dropped = machines.at(&["--json", "outbox", "reset", peer, "--skip"]).ok().object();
    assert_eq!(dropped["dropped"], 1);
    machines.at(&["outbox", "rm", peer]).ok();
    let audited = machines.host.run(["cap", "audit"]).ok();
    assert!(audited.text().contains("relay.add") && audited.text().contains("relay.rm"), "{audited:?}");
}

#[test]
fn a_host_that_dies_leaves_nothing_half_deployed() {
    let mut machines = Machines::new();
    // Directories that a host did not come to remove.
    let left = machines.host.namespace().join("scratch/4194305-upload-0");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("part"), "half").unwrap();
    drop(machines.serving.take());
    machines.at(&["up"]).fails("MR6121", 1);
    let serving = machines.host.serve_tcp(["--name", "farm"]);
    machines.address = format!("mr://127.0.0.1:{}/farm", serving.port());
    assert!(!left.exists(), "the next host removes it");
    machines.at(&["up"]).ok();
    assert_eq!(machines.at(&["function", "invoke", "shout", "--data", "x", "--wait"]).ok().text(), "loud 1  x!\n");
}
