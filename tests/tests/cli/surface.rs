//! What somebody types who is new: usage errors that name every choice, commands that take what others print, and functions that
//! are asked for their result.

use millrace_tests::{Place, end, eventually};
use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
};

const APPLICATION: &str = r#"
[namespace]
segment_size = "1MiB"
durability = "memory"

[logs.inbox]
[logs.outbox]

[functions.shout]
runtime = "oneshot"
code = "shout.sh"
command = ["./shout.sh"]
on = ["inbox"]

[functions.alone]
runtime = "oneshot"
code = "shout.sh"
command = ["./shout.sh"]

[functions.broken]
runtime = "oneshot"
code = "broken.sh"
command = ["./broken.sh"]
retries = 0
"#;

fn application() -> Place {
    let place = Place::empty();
    let shout =
        "#!/bin/sh\nread word\necho \"heard $word\"\nprintf 'outbox\\they %s\\n' \"$word\" >&\"$MILLRACE_APPEND_FD\"\n";
    place.write("shout.sh", shout);
    place.write("broken.sh", "#!/bin/sh\necho no connection\nexit 1\n");
    place.write("millrace.toml", APPLICATION);
    place.run(["up"]).ok();
    place
}

#[test]
fn a_usage_error_names_every_choice() {
    let place = Place::new();
    for (command, choices) in [
        (&["run", "wait"][..], ["RUN", "--idle"]),
        (&["run", "retry"], ["RUN", "--function"]),
        (&["log", "trim", "a"], ["--before", "--all"]),
        (&["outbox", "reset", "edge"], ["--resend", "--skip"]),
    ] {
        let said = place.run(command);
        assert_eq!(said.code, 2, "{said:#?}");
        for choice in choices {
            assert!(said.stderr.contains(choice), "{command:?} does not name {choice}:\n{}", said.stderr);
        }
    }
}

#[test]
fn numbers_are_taken_as_people_write_them() {
    let place = Place::new();
    place.run(["log", "create", "a", "--history", "10k"]).ok();
    assert_eq!(place.run(["--json", "log", "stat", "a"]).ok().object()["history"], 10_000);
    for (option, value) in [("--history", "ten"), ("--history", "1.5")] {
        let said = place.run(["log", "create", "b", option, value]);
        assert!(said.code == 2 && said.stderr.contains(&format!("'{value}' is not a whole number")), "{said:#?}");
    }
    let said = place.run(["log", "trim", "a", "--before", "soon"]);
    assert!(said.code == 2 && said.stderr.contains("'soon' is not a sequence number"), "{said:#?}");
}

#[test]
fn a_wrong_value_is_refused_with_the_rule() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    for (line, expected) in [
        ("log create b --history -1", "the value of --history must not be negative"),
        ("run wait --idle --timeout -1s", "the value of --timeout must not be negative"),
        ("cap issue --read a --expires 0s", "would expire at once"),
        ("repair show x", "'x' is not the number of a repair"),
        ("trace a@x", "'x' in 'a@x' is not a sequence number"),
        ("function backfill nobody", "no function 'nobody'"),
        ("function deploy f --runtime python --code .", "give --handler MODULE:FUNCTION"),
    ] {
        let said = place.run(line.split(' '));
        assert!(said.code != 0 && said.stderr.contains(expected), "{line}: {said:#?}");
        assert!(!said.stderr.contains("as a value, use"), "{line}: {said:#?}");
    }
    let said = place.run(["log", "ls", "--limit", "3"]);
    assert!(said.code == 2 && !said.stderr.contains("tip:"), "{said:#?}");
}

#[test]
fn help_of_a_command_is_shown_by_name() {
    let place = Place::empty();
    let helped = place.run(["help", "log", "append"]).ok();
    assert_eq!(helped.stdout, place.run(["log", "append", "--help"]).ok().stdout);
    assert_eq!(place.run(["help"]).ok().stdout, place.run(["--help"]).ok().stdout);
    assert_eq!(place.run(["help", "nonsense"]).code, 2);
}

#[test]
fn an_application_is_found_from_the_directories_below_it() {
    let place = application();
    fs::create_dir_all(place.path().join("a/b")).unwrap();
    let below = |args: &[&str]| {
        let mut command = place.command(args);
        command.current_dir(place.path().join("a/b"));
        end(command, b"")
    };
    assert_eq!(below(&["--json", "function", "ls"]).ok().objects().len(), 3);
    assert!(below(&["up"]).ok().text().contains("= function shout unchanged"));
    assert!(below(&["context", "show"]).ok().text().contains("../../millrace.toml names it"));
    // A namespace here goes before an application above.
    below(&["init", "--bare"]).ok();
    assert_eq!(below(&["--json", "function", "ls"]).ok().objects().len(), 0);
}

#[test]
fn a_function_is_asked_for_its_result() {
    let place = application();
    let _host = place.serve();
    let said = place.run(["function", "invoke", "shout", "--data", "world", "--wait", "--timeout", "100s"]).ok();
    assert_eq!(said.text(), "outbox 1  hey world\n");
    // One that is bound to no log has one for such records.
    let said = place.feed(["function", "invoke", "alone", "--wait", "--timeout", "100s"], b"there\n").ok();
    assert_eq!(said.text(), "outbox 2  hey there\n");
    assert_eq!(place.records("invoke/alone"), ["there\n"]);
    let said = place.run(["log", "append", "inbox", "again", "--wait", "--timeout", "100s"]).ok();
    assert_eq!(said.text(), "outbox 3  hey again\n");
    let run = place
        .run(["--json", "function", "invoke", "shout", "--data", "x", "--wait", "--timeout", "100s"])
        .ok()
        .object();
    assert_eq!((&run["state"], &run["appends"][0]["seqno"]), (&"done".into(), &4.into()));
    let said =
        place.run(["function", "invoke", "broken", "--data", "x", "--wait", "--timeout", "100s"]).fails("MR3109", 1);
    assert!(said.stderr.contains("no connection"), "{}", said.stderr);
    assert!(place.run(["log", "append", "outbox", "x", "--wait"]).ok().text().contains("no function runs for record"));
    place.run(["function", "invoke", "nobody", "--data", "x"]).fails("MR3001", 1);

    let logs = place.run(["function", "logs", "shout"]).ok();
    let words: Vec<&str> = logs.text().lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(words, ["  heard world", "  heard again", "  heard x"], "{}", logs.text());
    let logs = place.run(["--json", "function", "logs", "broken"]).ok().object();
    assert_eq!((&logs["error"]["code"], &logs["output"]), (&"MR3109".into(), &"no connection\n".into()));
}

#[test]
fn a_function_answers_with_its_result() {
    let place = Place::new();
    // One in a shell gives it as a line without a log.
    place.write(
        "answer.sh",
        "#!/bin/sh\nread -r word\n[ \"$word\" != bad ] || { echo no >&2; exit 3; }\nprintf '\\tfirst\\n\\tgot %s\\n' \"$word\" >&3\n",
    );
    place.run("function deploy answer --runtime oneshot --code answer.sh --retries 0 -- ./answer.sh".split(' ')).ok();
    let _host = place.serve();
    assert_eq!(place.run(["function", "invoke", "answer", "this"]).ok().text(), "got this\n", "the last one counts");
    assert_eq!(place.feed(["function", "invoke", "answer", "-"], b"that\n").ok().text(), "got that\n");
    let run = place.run(["--json", "function", "invoke", "answer", "x"]).ok().object();
    assert_eq!((&run["result"]["type"], &run["result"]["data"]), (&"text".into(), &"got x".into()));
    let shown = place.run(["run", "show", run["id"].as_str().unwrap()]).ok();
    assert!(shown.text().contains("result     text, got x"), "{}", shown.text());
    // Lists of runs would be too long with the results.
    let listed = place.run(["--json", "run", "ls"]).ok().objects();
    assert!(listed.len() == 3 && listed.iter().all(|run| run["result"].is_null()), "{listed:?}");
    let failed = place.run(["function", "invoke", "answer", "bad"]).fails("MR3109", 1);
    assert!(failed.stdout.is_empty() && failed.stderr.contains("no"), "{failed:#?}");
    let none = place.run(["function", "invoke", "answer", "x", "--no-wait"]).ok();
    assert_eq!(none.text(), "function answer runs for record 5 of log invoke/answer\n");
    let odd = place.run(["function", "invoke", "answer", "x", "--wait", "--no-wait"]);
    assert_eq!(odd.code, 2, "{odd:#?}");
    let two = place.run(["function", "invoke", "answer", "two", "words"]);
    assert!(two.code == 2 && two.stderr.contains("quote"), "{two:#?}");
    let wrong = place.run(["function", "invoke", "anser", "x"]).fails("MR3001", 1);
    assert!(wrong.stderr.contains("no function 'anser'; did you mean 'answer'?"), "{}", wrong.stderr);
    let wrong = place.run(["log", "get", "invoke/answr"]).fails("MR2101", 1);
    assert!(wrong.stderr.contains("did you mean 'invoke/answer'?"), "{}", wrong.stderr);
    let far = place.run(["log", "get", "elsewhere"]).fails("MR2101", 1);
    assert!(!far.stderr.contains("did you mean"), "{}", far.stderr);
}

#[test]
fn without_a_host_a_result_is_not_waited_for_in_silence() {
    let place = application();
    let said = place.run(["function", "invoke", "shout", "--data", "x", "--wait", "--timeout", "10ms"]);
    assert!(said.code == 1 && said.stderr.starts_with("millrace: no host is running"), "{said:#?}");
    assert!(said.stderr.contains("error[MR2106]"), "{said:#?}");
}

#[test]
fn a_result_that_is_not_there_yet_is_waited_for_with_the_reason() {
    let place = Place::new();
    place.write("slow.sh", "#!/bin/sh\nsleep 100\n");
    place.write("lost.sh", "#!/bin/sh\nexit 1\n");
    place.run("function deploy slow --runtime oneshot --code slow.sh -- ./slow.sh".split(' ')).ok();
    place.run("function deploy lost --runtime process --code lost.sh -- ./lost.sh".split(' ')).ok();
    let _host = place.serve();
    place.run(["function", "invoke", "slow", "first", "--no-wait"]).ok();
    for (function, reason) in [("slow", "runs are executed in order, and run "), ("lost", "cannot be started")] {
        let said =
            place.run(["function", "invoke", function, "--data", "x", "--wait", "--timeout", "5s"]).fails("MR2106", 1);
        let (told, error) = said.stderr.split_once("error[").expect("an error");
        assert!(told.starts_with("millrace: run ") && told.contains(reason), "{said:#?}");
        let error = error.lines().next().expect("a line");
        assert!(error.contains(" has not ended after 5.0 s: ") && error.contains(reason), "{said:#?}");
        assert!(error.contains("`millrace why "), "{said:#?}");
    }
    // A program reads standard error, too.
    let said = place.run(["--json", "function", "invoke", "slow", "--data", "x", "--wait", "--timeout", "3s"]);
    assert!(said.code == 1 && said.stderr.lines().all(|line| line.starts_with("{\"error\":")), "{said:#?}");
}

#[test]
fn records_are_read_by_the_address_that_append_takes() {
    let place = application();
    let host = place.serve_tcp(["--name", "farm"]);
    place.run(["log", "append", "outbox", "there"]).ok();
    let address = format!("mr://127.0.0.1:{}/farm", host.port());
    let elsewhere = Place::empty();
    let log = format!("{address}/outbox");
    assert_eq!(elsewhere.run(["log", "get", &log]).ok().text(), "there\n");
    assert!(elsewhere.run(["log", "tail", &log, "--no-follow"]).ok().text().contains("there"));
    assert_eq!(elsewhere.run(["--json", "log", "stat", &log]).ok().object()["latest"], 1);
    let said = elsewhere.run(["log", "get", &address]).fails("MR6001", 2);
    assert!(said.stderr.contains("is the address of a namespace; add the name of a log"), "{}", said.stderr);
}

#[test]
fn top_ends_with_q_and_gives_the_terminal_back() {
    let place = application();
    // `script` gives it a terminal; what it types there is our input.
    let mut script = Command::new("script");
    let top = format!("{} top --every 60s; stty -a", millrace_tests::binary().display());
    script
        .args(["-qec", &top, "/dev/null"])
        .current_dir(place.path())
        .env_remove("MILLRACE_NAMESPACE")
        .env("TERM", "xterm");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = Vec::new();
    eventually("it looks", || {
        let mut part = [0; 4096];
        let count = stdout.read(&mut part).unwrap();
        shown.extend_from_slice(&part[..count]);
        String::from_utf8_lossy(&shown).contains("looking")
    });
    stdin.write_all(b"q").unwrap();
    stdin.flush().unwrap();
    stdout.read_to_end(&mut shown).unwrap();
    drop(stdin);
    assert_eq!(millrace_tests::wait(&mut script, "top"), 0);
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains(" icanon") && shown.contains(" echo "), "{shown}");
}

#[test]
fn the_list_of_entries_says_what_runs_did() {
    let place = application();
    let _host = place.serve();
    place.run(["log", "append", "inbox", "you"]).ok();
    place.run(["function", "invoke", "broken", "x", "--no-wait"]).ok();
    place.idle();
    let shown = place.run(["journal", "show", "--last", "50"]).ok();
    for said in ["for inbox 1", "attempt 1, revision 1", "done, printed heard you", "failed: MR3109"] {
        assert!(shown.text().contains(said), "'{said}' is not in\n{}", shown.text());
    }
}

#[test]
fn a_command_that_needs_a_host_says_that_none_is_running() {
    let place = application();
    for command in [&["entity", "ls"][..], &["topic", "ls"], &["cluster", "ls"]] {
        let said = place.run(command).fails("MR5009", 1);
        assert!(said.stderr.contains("millrace serve"), "{}", said.stderr);
    }
    place.run(["log", "append", "inbox", "x"]).ok();
    let said = place.run(["run", "wait", "--idle", "--timeout", "10ms"]).fails("MR2106", 1);
    assert!(
        said.stderr.contains("1 run has not ended") && said.stderr.contains("no host is running"),
        "{}",
        said.stderr
    );
    let why = place.run(["why", "shout"]).ok();
    assert!(why.text().contains("1 run of function 'shout' is pending"), "{}", why.text());
}
