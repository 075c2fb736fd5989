//! `millrace.toml` from the command line: the first five minutes, applying, reloading, taking away, and mistakes.

use millrace_tests::{Host, Place, eventually};
use serde_json::json;
use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

/// A shell function that appends what it was given, with a prefix, to another log.
fn shout(prefix: &str) -> String {
    format!("#!/bin/sh\nprintf 'outbox\\t{prefix}%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n")
}

const APPLICATION: &str = r#"
[namespace]
segment_size = "1MiB"
durability = "memory"

[logs.inbox]
[logs.outbox]
history = 500

[functions.shout]
runtime = "oneshot"
code = "shout.sh"
command = ["./shout.sh"]
on = ["inbox"]
"#;

fn application() -> Place {
    let place = Place::empty();
    place.write("shout.sh", &shout("hey "));
    place.write("millrace.toml", APPLICATION);
    place
}

fn steps(ended: &millrace_tests::Ended) -> Vec<String> {
    let step =
        |step: &serde_json::Value| format!("{} {}", step["name"].as_str().unwrap(), step["change"].as_str().unwrap());
    ended.objects().iter().map(step).collect()
}

#[test]
fn the_first_five_minutes_go_as_the_readme_says() {
    let place = Place::empty();
    let said = place.run(["init", "demo"]).ok();
    assert!(said.text().contains("demo/millrace.toml") && said.text().contains("cd demo"), "{}", said.text());
    let at = |args: &[&str]| {
        let mut command = place.command(args);
        command.current_dir(place.path().join("demo"));
        command
    };
    let run = |args: &[&str]| millrace_tests::end(at(args), b"");
    let dev = Host::start(at(&["dev"]));
    run(&["log", "append", "inbox", "world"]).ok();
    run(&["run", "wait", "--idle"]).ok();
    assert_eq!(run(&["log", "get", "outbox"]).ok().text(), "Hello, world!\n");
    dev.line_with(&["Hello, world!"]);
    let runs = run(&["--json", "run", "ls"]).ok().objects();
    assert_eq!((&runs[0]["function"], &runs[0]["state"]), (&json!("hello"), &json!("done")));
    let shown = run(&["run", "show", runs[0]["id"].as_str().unwrap()]).ok();
    assert!(
        shown.text().contains("record     inbox 1") && shown.text().contains("appended   outbox 1"),
        "{}",
        shown.text()
    );

    // Saving a change is enough.
    let function = place.path().join("demo/functions/hello.py");
    let code = fs::read_to_string(&function).unwrap();
    fs::write(&function, code.replace("Hello, ", "Good day, ")).unwrap();
    dev.line_with(&["function hello updated"]);
    run(&["log", "append", "inbox", "world"]).ok();
    run(&["run", "wait", "--idle"]).ok();
    assert_eq!(run(&["log", "get", "outbox"]).ok().text(), "Good day, world!\n");
    dev.signal("INT");
    dev.line_with(&["stopped"]);
    assert_eq!(dev.ended(), 0);
    assert!(run(&["why"]).ok().text().contains("no host is running"));
}

#[test]
fn starting_an_application_twice_leaves_the_first_one_alone() {
    let place = Place::empty();
    place.run(["init"]).ok();
    place.write("millrace.toml", "[logs.mine]\n");
    let again = place.run(["--json", "init"]).ok().object();
    assert_eq!(again["written"], json!([]));
    assert_eq!(fs::read_to_string(place.path().join("millrace.toml")).unwrap(), "[logs.mine]\n");
}

#[test]
fn applying_is_idempotent_and_says_what_changed() {
    let place = application();
    let planned = place.run(["--json", "up", "--dry-run"]).ok();
    assert!(place.run(["up", "--dry-run"]).ok().text().starts_with("+ namespace "), "the plan names the namespace");
    assert!(!place.namespace().exists(), "nothing was made");
    assert_eq!(steps(&planned), ["inbox created", "outbox created", "dead/shout created", "shout created"]);
    assert_eq!(steps(&place.run(["--json", "up"]).ok()), steps(&planned));
    let unchanged = ["inbox unchanged", "outbox unchanged", "shout unchanged"];
    assert_eq!(steps(&place.run(["--json", "up", "--dry-run"]).ok()), unchanged);
    assert_eq!(steps(&place.run(["--json", "up"]).ok()), unchanged);
    // Code and settings both count.
    place.write("shout.sh", &shout("oi "));
    let updated = ["inbox unchanged", "outbox unchanged", "shout updated"];
    assert_eq!(steps(&place.run(["--json", "up", "--dry-run"]).ok()), updated);
    assert_eq!(steps(&place.run(["--json", "up"]).ok()), updated);
    place.write("millrace.toml", &APPLICATION.replace("on = [\"inbox\"]", "on = [\"inbox\"]\nretries = 0"));
    assert_eq!(steps(&place.run(["--json", "up"]).ok()), updated);
    let function = place.run(["--json", "function", "ls"]).ok().object();
    assert_eq!(
        (&function["name"], &function["on"], &function["retries"]),
        (&json!("shout"), &json!(["inbox"]), &json!(0))
    );
}

#[test]
fn settings_that_the_namespace_was_not_made_with_are_refused() {
    let place = application();
    place.run(["up"]).ok();
    let other = APPLICATION.replace("\"memory\"", "\"disk\"\nretain_age = \"7d\"");
    place.write("millrace.toml", &other.replace("[logs.outbox]", "[logs.another]\n[logs.outbox]"));
    for args in [&["up"][..], &["up", "--dry-run"], &["init"]] {
        let said = place.run(args).fails("MR4027", 1).stderr;
        assert!(
            said.contains("durability is memory, but disk was requested") && !said.contains("retain_age is"),
            "{said}"
        );
    }
    place.run(["log", "get", "another"]).fails("MR2101", 1);
    place.run(["init", "--bare", "--segment-size", "2MiB"]).fails("MR4027", 1);
    // What is not said follows the namespace.
    place.write("millrace.toml", &APPLICATION.replace("durability = \"memory\"\n", ""));
    assert_eq!(steps(&place.run(["--json", "up"]).ok())[0], "inbox unchanged");
}

#[test]
fn taking_away_leaves_data_unless_asked() {
    let place = application();
    place.run(["up"]).ok();
    place.run(["log", "append", "outbox", "kept"]).ok();
    place.run(["log", "rm", "inbox"]).fails("MR2103", 1);
    assert_eq!(steps(&place.run(["--json", "down"]).ok()), ["shout removed"]);
    assert_eq!(place.records("outbox"), ["kept"]);
    assert_eq!(place.run(["--json", "function", "ls"]).ok().text(), "");
    assert_eq!(place.run(["down"]).ok().text(), "nothing to remove\n");
    let removed = steps(&place.run(["--json", "down", "--logs"]).ok());
    assert_eq!(removed, ["inbox removed", "outbox removed", "dead/shout removed"]);
    assert_eq!(place.run(["--json", "log", "ls"]).ok().text(), "");
}

#[test]
fn another_history_in_the_file_changes_the_log_that_is_there() {
    let place = application();
    place.run(["init", "--bare"]).ok();
    place.run(["log", "create", "outbox", "--history", "7"]).ok();
    place.feed(["log", "append", "outbox", "--lines", "--quiet"], b"1\n2\n3\n4\n5\n6\n7\n8\n").ok();
    let planned = place.run(["up", "--dry-run"]).ok();
    assert!(planned.text().contains("log outbox would be updated: history 7 to 500"), "{}", planned.text());
    assert_eq!(place.run(["--json", "log", "stat", "outbox"]).ok().object()["history"], 7, "nothing was changed");
    let host = Host::start(place.command(["serve"]));
    let reported = place.run(["--json", "up"]).ok();
    let outbox = reported.objects().into_iter().find(|step| step["name"] == "outbox").unwrap();
    assert_eq!((&outbox["change"], &outbox["history"]), (&json!("updated"), &json!({ "from": 7, "to": 500 })));
    // The running host goes by it at once.
    place.run(["log", "append", "inbox", "x"]).ok();
    place.run(["run", "wait", "--idle"]).ok();
    assert_eq!(place.records("outbox"), ["2", "3", "4", "5", "6", "7", "8", "hey x"]);
    assert!(steps(&place.run(["--json", "up"]).ok()).contains(&"outbox unchanged".to_owned()));
    drop(host);
    place.write("millrace.toml", &APPLICATION.replace("history = 500", "history = 2"));
    place.run(["up"]).ok();
    assert_eq!(place.records("outbox"), ["8", "hey x"]);
}

#[test]
fn every_mistake_is_told_with_its_place_and_nothing_is_changed() {
    let place = application();
    let wrong = APPLICATION.replace("history", "hitory").replace("on = [\"inbox\"]", "on = [\"inbix\"]\ntimeout = 5");
    place.write("millrace.toml", &wrong);
    let said = place.run(["up"]).fails("MR4002", 1);
    for expected in [
        "millrace.toml:8:1: unknown key 'hitory' in [logs.\"outbox\"]; did you mean 'history'?",
        "millrace.toml:14:7: no log 'inbix' is declared; did you mean 'inbox'?",
        "millrace.toml:15:11: timeout in [functions.shout]: 5 has no unit; write \"5s\" or \"5ms\"",
    ] {
        assert!(said.stderr.contains(expected), "{expected}\nis not in\n{}", said.stderr);
    }
    assert!(!place.namespace().exists());
    place.run(["dev"]).fails("MR4002", 1);
    place.write("millrace.toml", &format!("{APPLICATION}\n[functions.shout]\nruntime = \"wasm\"\n"));
    let said = place.run(["up"]).fails("MR4002", 1);
    assert!(said.stderr.contains("[functions.shout] is defined twice"), "{}", said.stderr);
    place.write("millrace.toml", "[logs.a]\nhistory = 10 20\n");
    assert!(place.run(["up"]).fails("MR4002", 1).stderr.contains("millrace.toml:2:11:"));
    place.run(["up", "--file", "nowhere.toml"]).fails("MR4001", 1);
    fs::write(place.path().join("millrace.toml"), b"\xff\xfe").unwrap();
    assert!(place.run(["up"]).fails("MR4002", 1).stderr.contains("millrace.toml:1:1:"));
}

#[test]
fn code_that_is_missing_or_cannot_run_is_refused() {
    let place = application();
    place.write("millrace.toml", &APPLICATION.replace("code = \"shout.sh\"", "code = \"gone.sh\""));
    let said = place.run(["up"]).fails("MR4002", 1);
    assert!(said.stderr.contains("there is no file or directory 'gone.sh'"), "{}", said.stderr);
    place.write("millrace.toml", &APPLICATION.replace("[\"./shout.sh\"]", "[\"./other.sh\"]"));
    let said = place.run(["up"]);
    assert!(said.code == 1 && said.stderr.starts_with("error[MR3"), "{said:#?}");
    assert!(said.stderr.contains("shout") && said.stderr.contains("other.sh"), "{}", said.stderr);
    assert!(!place.namespace().exists(), "nothing was made");
    place.write("bad.wasm", "not a module");
    place.write("millrace.toml", "[functions.f]\nruntime = \"wasm\"\ncode = \"bad.wasm\"\n");
    let said = place.run(["up"]);
    assert!(said.code == 1 && said.stderr.starts_with("error[MR3"), "{said:#?}");
    place.write("m.py", "def other(record, ctx): pass\n");
    let python = "[functions.f]\nruntime = \"python\"\ncode = \"m.py\"\nhandler = \"m:missing\"\n";
    place.write("millrace.toml", python);
    let said = place.run(["up"]);
    assert!(said.code == 1 && said.stderr.starts_with("error[MR3") && said.stderr.contains("missing"), "{said:#?}");
}

#[test]
fn nothing_is_changed_until_everything_is_right_and_every_mistake_is_told() {
    let place = application();
    let more = |name: &str, code: &str| {
        format!("[functions.{name}]\nruntime = \"oneshot\"\ncode = \"shout.sh\"\ncommand = [\"{code}\"]\n")
    };
    let broken = format!("{APPLICATION}\n{}{}", more("broken", "./no-such-program"), more("last", "./nor-this"));
    place.write("millrace.toml", &broken);
    for command in ["up", "dev"] {
        let said = place.run([command]);
        assert!(said.code == 1 && said.stderr.starts_with("error[MR3"), "{said:#?}");
        assert!(
            said.stderr.contains("function 'broken': ") && said.stderr.contains("function 'last': "),
            "{}",
            said.stderr
        );
        let left = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".millrace")), "{left:?}");
    }
    // The same where there is a namespace: neither the new log nor the changes of `shout` and of a history are applied.
    place.write("millrace.toml", APPLICATION);
    place.run(["up"]).ok();
    place.write("shout.sh", &shout("louder "));
    place.write("millrace.toml", &broken.replace("[logs.inbox]", "[logs.more]\n[logs.inbox]\nhistory = 3"));
    let before = place.run(["--json", "function", "ls"]).ok();
    let said = place.run(["up"]);
    assert!(
        said.code == 1 && said.stderr.contains("function 'broken': ") && said.stderr.contains("function 'last': "),
        "{}",
        said.stderr
    );
    assert_eq!(place.run(["--json", "function", "ls"]).ok().stdout, before.stdout);
    assert_eq!(place.run(["--json", "log", "stat", "inbox"]).ok().object()["history"], 10_000);
    place.run(["log", "get", "more"]).fails("MR2101", 1);
}

#[test]
fn functions_that_the_file_no_longer_names_are_removed() {
    let place = application();
    place.run(["up"]).ok();
    // What came there otherwise is left alone.
    let by_hand = ["function", "deploy", "other", "--runtime", "oneshot", "--code", "shout.sh", "--", "./shout.sh"];
    place.run(by_hand).ok();
    place.write("millrace.toml", &APPLICATION.replace("functions.shout", "functions.cry"));
    place.run(["log", "append", "inbox", "1"]).ok();
    let planned = place.run(["--json", "up", "--dry-run", "--force"]).ok();
    let expected = ["inbox unchanged", "outbox unchanged", "dead/cry created", "cry created", "shout removed"];
    assert_eq!(steps(&planned), expected);
    // The plan fails as `up` would.
    let said = place.run(["up", "--dry-run"]).fails("MR3020", 1);
    assert!(said.text().contains("- function shout would be removed; it has 1 pending run"), "{}", said.text());
    let said = place.run(["up"]).fails("MR3020", 1);
    assert!(said.stderr.contains("function 'shout' has 1 pending run"), "{}", said.stderr);
    assert_eq!(steps(&place.run(["--json", "up", "--dry-run", "--force"]).ok()), expected, "nothing was changed");
    assert_eq!(steps(&place.run(["--json", "up", "--force"]).ok()), expected);
    assert_eq!(place.records("dead/shout").len(), 1);
    let names = || {
        let there = place.run(["--json", "function", "ls"]).ok().objects();
        there.iter().map(|function| function["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["cry", "other"]);
    // `down` removes what the file named once, too.
    place.write("millrace.toml", APPLICATION.split("[functions").next().unwrap());
    assert_eq!(steps(&place.run(["--json", "down"]).ok()), ["cry removed"]);
    assert_eq!(names(), ["other"]);
}

#[test]
fn development_takes_up_code_that_was_missing_when_the_file_named_it() {
    let place = application();
    let dev = Host::start(place.command(["dev"]));
    let more = APPLICATION.replace("[functions.shout]", "[functions.late]").replace("shout.sh", "late.sh");
    place.write("millrace.toml", &format!("{APPLICATION}\n{}", &more[more.find("[functions.late]").unwrap()..]));
    dev.line_with(&["the last valid version keeps running"]);
    place.write("late.sh", &shout("late "));
    dev.line_with(&["function late created"]);
}

#[test]
fn a_file_that_is_being_written_gives_nothing_up() {
    let place = application();
    place.run(["up"]).ok();
    place.run(["log", "append", "inbox", "1"]).ok();
    // Without a host, the run is pending.
    for file in ["", "[namespace]\n", "# nothing\n"] {
        place.write("millrace.toml", file);
        for args in [&["up"][..], &["up", "--dry-run"], &["up", "--force"]] {
            place.run(args).fails("MR4033", 1);
        }
    }
    place.write("millrace.toml", APPLICATION);
    let dev = Host::start(place.command(["dev"]));
    place.idle();
    assert_eq!(place.records("outbox"), ["hey 1"]);
    // Nothing that is saved removes a function at once, and an empty file never does.
    place.write("millrace.toml", "");
    dev.line_with(&["the last valid version keeps running"]);
    place.run(["log", "append", "inbox", "2"]).ok();
    place.idle();
    place.write("millrace.toml", APPLICATION);
    dev.line_with(&["the error is corrected"]);
    assert_eq!(place.records("outbox"), ["hey 1", "hey 2"]);
    // A function with a pending run stays, if the file no longer names it.
    place.write("shout.sh", "#!/bin/sh\nwhile ! test -e go; do sleep 0.05; done\n");
    dev.line_with(&["function shout updated"]);
    place.run(["log", "append", "inbox", "3"]).ok();
    place.write("millrace.toml", "[logs.inbox]\n[logs.outbox]\n");
    dev.line_with(&["the last valid version keeps running"]);
    assert_eq!(place.run(["--json", "function", "ls"]).ok().objects()[0]["pending"], 1);
    drop(dev);
    // The remedy of an empty file.
    place.write("millrace.toml", "");
    place.run(["down", "--force"]).ok();
    assert!(place.run(["--json", "function", "ls"]).ok().objects().is_empty());
    place.run(["up"]).ok();
}

#[test]
fn an_empty_input_is_no_record() {
    let place = application();
    place.run(["up"]).ok();
    for args in [&["log", "append", "inbox"][..], &["function", "invoke", "shout"], &["secret", "set", "key"]] {
        place.run(args).fails("MR4034", 2);
    }
    place.run(["log", "append", "inbox", "--lines"]).ok();
    assert!(place.records("inbox").is_empty());
    // The remedy.
    place.run(["log", "append", "inbox", ""]).ok();
    assert_eq!(place.records("inbox"), [""]);
}

#[test]
fn development_shows_no_records_of_the_runtime() {
    let place = application();
    let dev = Host::start(place.command(["dev"]));
    // The key is recorded in a log of the runtime, in the same commit.
    place.run(["log", "append", "inbox", "1", "--key", "once"]).ok();
    place.run(["log", "append", "inbox", "2"]).ok();
    let line = dev.line_with(&["_keys", "inbox 2"]);
    assert!(line.contains("inbox 2"), "{line}");
}

#[test]
fn an_import_that_takes_long_says_so() {
    let place = Place::empty();
    // Longer than what is waited before it is said. The import is sandboxed, so no file of this test could end it.
    place.write("slow.py", "import time\ntime.sleep(20)\ndef run(record, ctx): pass\n");
    place
        .write("millrace.toml", "[functions.slow]\nruntime = \"python\"\ncode = \"slow.py\"\nhandler = \"slow:run\"\n");
    let mut up = place.command(["up"]);
    let mut up = up.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut reported = BufReader::new(up.stderr.take().unwrap()).lines();
    let line = reported.next().expect("it says something before it ends").unwrap();
    assert!(line.contains("function 'slow': still importing the module 'slow'"), "{line}");
    assert_eq!(millrace_tests::wait(&mut up, "millrace up"), 0);
    assert!(reported.next().is_none(), "it is told once");
}

#[test]
fn functions_with_pending_runs_are_removed_by_force_only_and_each_run_leaves_a_dead_letter() {
    let place = application();
    // One that has nothing to do is before it: it is not removed either.
    let calm = "[functions.calm]\nruntime = \"oneshot\"\ncode = \"shout.sh\"\ncommand = [\"./shout.sh\"]\n";
    place.write("millrace.toml", &APPLICATION.replace("[functions.shout]", &format!("{calm}\n[functions.shout]")));
    place.run(["up"]).ok();
    place.feed(["log", "append", "inbox", "--lines", "--quiet"], b"1\n2\n3\n").ok();
    for command in [&["down"][..], &["function", "rm", "shout"]] {
        let said = place.run(command).fails("MR3020", 1);
        assert!(said.stderr.contains("function 'shout' has 3 pending runs"), "{}", said.stderr);
    }
    let there = place.run(["--json", "function", "ls"]).ok().objects();
    let there: Vec<_> = there.iter().map(|function| (&function["name"], &function["pending"])).collect();
    assert_eq!(there, [(&json!("calm"), &json!(0)), (&json!("shout"), &json!(3))], "nothing was changed");
    let said = place.run(["--json", "down", "--force"]).ok();
    assert_eq!(steps(&said), ["calm removed", "shout removed"]);
    assert_eq!(said.objects().last().unwrap()["given_up"], 3);
    let dead_letters = place.records("dead/shout");
    assert!(dead_letters.len() == 3 && dead_letters.iter().all(|letter| letter.contains("MR3006")), "{dead_letters:?}");
    place.run(["up"]).ok();
    place.run(["log", "append", "inbox", "4"]).ok();
    let said = place.run(["function", "rm", "shout", "--force"]).ok();
    assert!(said.text().contains("1 pending run became a dead letter"), "{}", said.text());
    assert_eq!(place.records("dead/shout").len(), 4);
}

#[test]
fn a_running_host_takes_up_what_is_applied() {
    let place = application();
    place.run(["up"]).ok();
    let _host = place.serve();
    place.run(["log", "append", "inbox", "a"]).ok();
    place.idle();
    place.write("shout.sh", &shout("new "));
    place.run(["up"]).ok();
    place.run(["log", "append", "inbox", "b"]).ok();
    place.idle();
    assert_eq!(place.records("outbox"), ["hey a", "new b"]);
    place.run(["down"]).ok();
    place.run(["log", "append", "inbox", "c"]).ok();
    place.idle();
    assert_eq!(place.records("outbox").len(), 2);
}

#[test]
fn development_survives_mistakes_and_follows_saves() {
    let place = application();
    let dev = Host::start(place.command(["dev"]));
    let check = |input: &str, expected: &str| {
        place.run(["log", "append", "inbox", input]).ok();
        place.idle();
        assert_eq!(place.run(["log", "get", "outbox"]).ok().text(), format!("{expected}\n"));
    };
    check("1", "hey 1");
    // A mistake is told, and what was there runs on.
    place.write("millrace.toml", &APPLICATION.replace("history", "hitory"));
    dev.line_with(&["the last valid version keeps running"]);
    check("2", "hey 2");
    // So is its correction, even if nothing has changed since.
    place.write("millrace.toml", APPLICATION);
    dev.line_with(&["the error is corrected"]);
    place.write("millrace.toml", &APPLICATION.replace("history", "hitory"));
    dev.line_with(&["the last valid version keeps running"]);
    // Correcting it, with a second function and without the first, is taken up.
    place.write("more.sh", &shout("more "));
    place.write("millrace.toml", &APPLICATION.replace("shout", "more"));
    dev.line_with(&["function more created"]);
    dev.line_with(&["function shout removed"]);
    check("3", "more 3");
    dev.signal("TERM");
    assert_eq!(dev.ended(), 0);
}

#[test]
fn functions_are_deployed_one_by_one_as_well() {
    let place = Place::new();
    place.run(["log", "create", "inbox"]).ok();
    place.run(["log", "create", "outbox"]).ok();
    place.write("shout.sh", &shout(""));
    let deploy = ["function", "deploy", "shout", "--runtime", "oneshot", "--code", "shout.sh", "--retries", "0"];
    let with = |more: &[&'static str]| place.run([&deploy[..], more, &["--", "./shout.sh"]].concat());
    assert!(with(&["--on", "inbox"]).ok().text().starts_with("deployed function shout"));
    assert!(with(&["--on", "inbox"]).ok().text().contains("is already deployed"));
    with(&["--on", "nowhere"]).fails("MR2101", 1);
    with(&["--on", "../x"]).fails("MR1001", 2);
    let said = with(&["--concurrency", "1000"]);
    assert!(said.code == 2 && said.stderr.contains("1..=64"), "{said:#?}");
    let table = place.run(["function", "ls"]).ok();
    assert!(table.text().contains("shout") && table.text().contains("inbox"), "{}", table.text());
    place.run(["function", "rm", "shout"]).ok();
    let said = place.run(["function", "rm", "shout"]);
    assert!(said.code == 1 && said.stderr.contains("no function 'shout'"), "{said:#?}");
    place.run(["function", "rm", "../shout"]).fails("MR1002", 2);
    eventually("the function is gone", || place.run(["--json", "function", "ls"]).ok().text().is_empty());
}

#[test]
fn a_plan_fails_where_applying_fails_and_changes_nothing() {
    let place = Place::empty();
    place.write("f.py", "def g(record, ctx): pass\n");
    let file = |more: &str| {
        format!(
            "[logs.in]\n[functions.f]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:f\"\non = [\"in\"]\n{more}"
        )
    };
    place.write("millrace.toml", &file(""));
    let planned = place.run(["up", "--dry-run"]);
    let applied = place.run(["up"]);
    assert_eq!((planned.code, applied.code), (1, 1), "{planned:?} {applied:?}");
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    assert_eq!(first(&planned.stderr), first(&applied.stderr));
    assert!(planned.text().contains("function f would be created"), "{}", planned.text());
    assert!(!place.namespace().exists(), "nothing was made");
    // Its own dead letters would run it for ever.
    place.write("f.py", "def f(record, ctx): pass\n");
    place.write("millrace.toml", &file("dead_letter = \"in\"\n"));
    for args in [&["up", "--dry-run"][..], &["up"]] {
        let refused = place.run(args.iter().copied());
        assert!(refused.code != 0 && refused.stderr.contains("own dead letters"), "{refused:?}");
    }
    place.write("millrace.toml", &file(""));
    place.run(["up", "--dry-run"]).ok();
    place.run(["up"]).ok();
}
