//! Functions that fail in every way they can: the record ends up in the dead-letter log, the host and others go on.

use millrace_tests::{Host, Place, binary, end};
use serde_json::{Value, json};
use std::{path::Path, process::Command};

/// Python functions by what they do wrong; each gets one record.
const WRONG: &[(&str, &str)] = &[
    ("raises", "raise ValueError('no such colour')"),
    ("exits", "import sys; sys.exit(3)"),
    ("exits_hard", "import os; os._exit(0)"),
    ("killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    ("endless", "while True: pass"),
    ("bad_log", "ctx.append('../x', 'y')"),
    ("no_log", "ctx.append('nowhere', 'y')"),
    (
        "scribbles",
        "
        import os
        for fd in range(3, 20):
            try: os.write(fd, b'garbage' * 100)
            except OSError: pass
        ctx.append('out', record.text())",
    ),
];

/// Python functions that are odd but do what they should.
const ODD: &[(&str, &str)] = &[
    ("plain", "ctx.append('out', record.text())"),
    ("prints", "print('working'); ctx.append('out', record.text())"),
    ("floods", "print('x' * 10_000_000); ctx.append('out', record.text())"),
    (
        "forks",
        "
        import os
        if os.fork() == 0: os._exit(0)
        os.wait()
        ctx.append('out', record.text())",
    ),
    (
        "closes",
        "
        import sys
        sys.stdout.close()
        ctx.append('out', record.text())",
    ),
];

fn place_with(functions: &[(&str, &str)]) -> Place {
    let place = Place::empty();
    let mut code = String::new();
    let mut application =
        String::from("[namespace]\nsegment_size = \"4MiB\"\ndurability = \"memory\"\n[logs.in]\n[logs.out]\n");
    for (name, body) in functions {
        // Only the one that has to reach it is in a hurry.
        let timeout = if *name == "endless" { "2s" } else { "100s" };
        code += &format!("def {name}(record, ctx):\n    if True:\n        {}\n", body.trim_start());
        application += &format!(
            "[functions.{name}]\nruntime = \"python\"\ncode = \"code\"\nhandler = \"faulty:{name}\"\non = [\"in\"]\n\
             retries = 1\nbackoff = \"1ms\"\ntimeout = \"{timeout}\"\n"
        );
    }
    place.write("code/faulty.py", &code);
    place.write("millrace.toml", &application);
    place.run(["up"]).ok();
    place
}

#[test]
fn failing_python_functions_leave_a_dead_letter_each_and_do_not_disturb_others() {
    let functions = [WRONG, &ODD[..1]].concat();
    let place = place_with(&functions);
    let _host = place.serve();
    place.run(["log", "append", "in", "precious"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["precious"], "the function that works has worked, once");
    for (name, _) in WRONG {
        let dead_letters = place.records(&format!("dead/{name}"));
        assert_eq!(dead_letters.len(), 1, "{name}: {dead_letters:?}");
        let letter: Value = serde_json::from_str(&dead_letters[0]).unwrap();
        assert_eq!((&letter["function"], &letter["log"], &letter["seqno"]), (&json!(name), &json!("in"), &json!(1)));
        assert!(letter["code"].as_str().is_some_and(|code| code.starts_with("MR")), "{letter}");
        assert!(letter["error"].as_str().is_some_and(|error| !error.is_empty()), "{letter}");
        let run = place.run(["--json", "run", "ls", "--function", name, "--state", "dead"]).ok().object();
        assert_eq!(run["attempts"].as_array().map(Vec::len), Some(2), "{run}");
        let id = run["id"].as_str().unwrap();
        let shown = place.run(["run", "show", id]).ok();
        assert!(shown.text().contains("state      dead") && shown.text().contains("error      MR"), "{}", shown.text());
        assert!(place.run(["why", id]).ok().text().contains("failed for good: MR"), "{name}");
        assert_eq!(place.run(["run", "wait", id]).code, 1, "{name}");
    }
    let raised = place.run(["run", "ls", "--function", "raises"]).ok();
    assert!(raised.text().contains("no such colour"), "{}", raised.text());
}

#[test]
fn python_functions_that_are_odd_still_do_their_work_once() {
    let place = place_with(ODD);
    let _host = place.serve();
    place.run(["log", "append", "in", "x"]).ok();
    place.idle();
    for (name, _) in ODD {
        let run = place.run(["--json", "run", "ls", "--function", name]).ok().object();
        assert_eq!(run["state"], "done", "{run}");
        assert_eq!(run["appends"].as_array().map(Vec::len), Some(1), "{run}");
        let output = run["output"].as_str().unwrap();
        assert!(output.len() < 70_000, "{name} printed {} bytes", output.len());
        assert!(*name != "prints" || output == "working\n", "{output}");
    }
    assert_eq!(place.records("out").len(), ODD.len());
}

#[test]
fn a_shell_function_that_fails_is_tried_again_and_given_up() {
    let place = Place::empty();
    place.write(
        "fail.sh",
        "#!/bin/sh\necho trying $MILLRACE_ATTEMPT\necho bad thing >&2\nprintf 'out\\tlost\\n' >&3\nexit 4\n",
    );
    place.write(
        "later.sh",
        "#!/bin/sh\n[ \"$MILLRACE_ATTEMPT\" -ge 3 ] || exit 1\n\
         printf 'out\\tfrom %s %s\\n' \"$MILLRACE_LOG\" \"$MILLRACE_SEQNO\" >&3\n",
    );
    let function = |name: &str| {
        format!(
            "[functions.{name}]\nruntime = \"oneshot\"\ncode = \"{name}.sh\"\ncommand = [\"./{name}.sh\"]\non = [\"in\"]\n\
             retries = 2\nbackoff = \"1ms\"\n"
        )
    };
    let application = format!(
        "[namespace]\ndurability = \"memory\"\n[logs.in]\n[logs.out]\n{}{}",
        function("fail"),
        function("later")
    );
    place.write("millrace.toml", &application);
    place.run(["up"]).ok();
    let host = place.serve();
    place.run(["log", "append", "in", "x"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["from in 1"], "what a failed run appended is dropped");
    host.line_with(&["attempt 3 of fail failed (not retried)"]);
    let run = place.run(["--json", "run", "ls", "--function", "fail"]).ok().object();
    assert_eq!((&run["state"], run["attempts"].as_array().map(Vec::len)), (&json!("dead"), Some(3)));
    assert!(run["output"].as_str().unwrap().contains("trying 3"), "{run}");
    assert!(run["output"].as_str().unwrap().contains("bad thing"), "{run}");
    let letter: Value = serde_json::from_str(&place.records("dead/fail")[0]).unwrap();
    assert_eq!((&letter["attempts"], &letter["data"]), (&json!(3), &json!("x")));
}

#[test]
fn a_loop_of_functions_goes_on_and_ends_when_it_should() {
    let place = Place::empty();
    place.write("count.sh", "#!/bin/sh\nn=$(cat)\n[ \"$n\" -ge 25 ] || printf 'a\\t%s\\n' $((n + 1)) >&3\n");
    let application = "[namespace]\ndurability = \"memory\"\n[logs.a]\n[functions.count]\nruntime = \"oneshot\"\n\
                       code = \"count.sh\"\ncommand = [\"./count.sh\"]\non = [\"a\"]\npending_max = 1\n";
    place.write("millrace.toml", application);
    place.run(["up"]).ok();
    let _host = place.serve();
    place.run(["log", "append", "a", "1"]).ok();
    place.idle();
    assert_eq!(place.records("a"), (1..=25).map(|n| n.to_string()).collect::<Vec<_>>());
    let runs = place.run(["--json", "run", "ls", "-l", "100"]).ok().objects();
    // Each record but the first was appended by the run before: causality is recorded.
    for (later, earlier) in runs.iter().zip(&runs[1..]) {
        assert_eq!(later["caused_by"], earlier["id"]);
    }
    assert_eq!(runs[24]["caused_by"], Value::Null);
}

fn copies_to(log: &str) -> String {
    format!("#!/bin/sh\nprintf '{log}\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n")
}

/// Deploys the function that fails anew, so that it does not.
fn mend(place: &Place) {
    place.write("f.sh", &copies_to("out"));
    place.run(["up"]).ok();
}

/// A function that fails, and another one of the same log; 120 of its records are given up, and the last 100 letters are kept.
fn given_up() -> Place {
    let place = Place::empty();
    place.write("f.sh", "#!/bin/sh\nexit 1\n");
    place.write("other.sh", &copies_to("others"));
    let function = |name: &str| {
        format!(
            "[functions.{name}]\nruntime = \"oneshot\"\ncode = \"{name}.sh\"\ncommand = [\"./{name}.sh\"]\non = [\"in\"]\n\
             retries = 0\npending_max = 40\n"
        )
    };
    let text = format!(
        "[namespace]\nsegment_size = \"1MiB\"\ndurability = \"memory\"\n[logs.in]\nhistory = 50\n[logs.out]\n[logs.others]\n\
         [logs.\"dead/f\"]\nhistory = 100\n{}{}",
        function("f"),
        function("other")
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    let host = place.serve();
    let lines: String = (1..=120).map(|n| format!("{n}\n")).collect();
    place.feed(["log", "append", "in", "--lines", "--quiet"], lines.as_bytes()).ok();
    place.idle();
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    place
}

fn function_f(place: &Place) -> serde_json::Value {
    let functions = place.run(["--json", "function", "ls"]).ok().objects();
    functions.into_iter().find(|function| function["name"] == "f").expect("it is there")
}

#[test]
fn dead_letters_are_counted_and_retried_once_even_if_the_command_is_killed() {
    let place = given_up();
    let counts = |f: &serde_json::Value| ["dead", "dead_kept", "dead_retried"].map(|key| f[key].as_u64().unwrap());
    assert_eq!(counts(&function_f(&place)), [120, 100, 0]);
    let why = place.run(["why", "f"]).ok();
    assert!(
        why.text().contains("120 runs of function") && why.text().contains("20 have left its history"),
        "{}",
        why.text()
    );
    assert!(place.run(["function", "ls"]).ok().text().contains("120 (20 gone)"));
    mend(&place);
    // With no host they wait for room in the middle of their work, and are killed there.
    for round in 1..=2 {
        let mut command = place.command(["run", "retry", "--function", "f", "--busy-timeout", "120s"]);
        let mut retry = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        millrace_tests::eventually("it waits for room", || function_f(&place)["pending"] == 40);
        retry.kill().unwrap();
        retry.wait().unwrap();
        assert_eq!(counts(&function_f(&place)), [120, 100, 40 * round]);
        let host = place.serve();
        place.idle();
        host.signal("TERM");
        assert_eq!(host.ended(), 0);
    }
    let _host = place.serve();
    let said = place.run(["run", "retry", "--function", "f"]).ok();
    assert!(said.text().contains("20 runs") && said.text().contains("80 were already retried"), "{}", said.text());
    let said = place.run(["run", "retry", "--function", "f"]).ok();
    assert!(said.text().contains("0 runs") && said.text().contains("100 were already retried"), "{}", said.text());
    place.idle();
    let expected: Vec<String> = (21..=120).map(|n| n.to_string()).collect();
    assert_eq!(place.records("out"), expected, "each once");
    let others = place.run(["--json", "log", "stat", "others"]).ok().object();
    assert_eq!(others["latest"], 120, "another function of the log does not run again");
    let why = place.run(["why", "f"]).ok();
    assert!(why.text().contains("100 were retried"), "{}", why.text());
}

#[test]
fn one_dead_run_is_run_again_and_shows_as_what() {
    let place = given_up();
    mend(&place);
    let dead = place.run(["--json", "run", "ls", "--function", "f", "--state", "dead"]).ok().objects();
    let dead = dead[0]["id"].as_str().unwrap().to_owned();
    let again = place.run(["--json", "run", "retry", &dead]).ok().object();
    let run = again["run"].as_str().unwrap();
    assert_eq!((&again["before"], &again["log"]), (&serde_json::json!(false), &serde_json::json!("in")));
    let shown = place.run(["--json", "run", "show", run]).ok().object();
    assert_eq!(shown["caused_by"], dead.as_str());
    let shown = place.run(["--json", "run", "show", &dead]).ok().object();
    assert_eq!((&shown["state"], &shown["retried_as"]), (&serde_json::json!("dead"), &serde_json::json!(run)));
    let twice = place.run(["--json", "run", "retry", &dead]).ok().object();
    assert_eq!((&twice["before"], &twice["run"]), (&serde_json::json!(true), &serde_json::json!(run)));
    place.run(["run", "retry", run]).fails("MR3021", 1);
    let _host = place.serve();
    place.idle();
    assert_eq!(place.records("out"), ["120"]);
}

#[test]
fn in_a_sandbox_functions_do_their_work_and_reach_nothing_else() {
    let secret = Place::empty();
    secret.write("secret", "told");
    let path = secret.path().join("secret");
    let reaches = format!("ctx.append('out', open({path:?}).read())");
    let connects = "\n        import socket\n        socket.create_connection(('127.0.0.1', 1), 1)\n        ctx.append('out', 'connected')";
    let functions =
        [&[("reaches", &*reaches), ("connects", connects), ("exits", "import sys; sys.exit(3)")][..], ODD].concat();
    let place = place_with(&functions);
    let mut host = place.command(["serve", "--drain", "100s", "--sandbox", "full", "--require-sandbox", "partial"]);
    host.env("MILLRACE_LISTEN", "none");
    let host = Host::start(host);
    host.line_with(&["sandbox: full", "sandbox: partial"]);
    place.run(["log", "append", "in", "x"]).ok();
    place.idle();
    assert_eq!(place.records("out"), vec!["x"; ODD.len()]);
    for (name, says) in [("reaches", "No such file"), ("connects", "OSError"), ("exits", "exit")] {
        let run = place.run(["--json", "run", "ls", "--function", name]).ok().object();
        assert_eq!(run["state"], "dead", "{name}: {run}");
        let shown = run.to_string();
        assert!(shown.contains(says) || shown.contains("PermissionError"), "{name}: {run}");
    }
}

#[test]
fn a_host_does_not_serve_below_the_level_that_is_required() {
    let place = place_with(ODD);
    // As in a container: one user, and no further user namespaces.
    let mut command = Command::new("unshare");
    let without = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$0\" serve --listen none --require-sandbox full";
    command.args(["--user", "--map-root-user", "sh", "-c", without]).arg(binary());
    command.current_dir(place.path());
    let ended = end(command, b"");
    assert_ne!(ended.code, 0);
    let said = ended.stderr;
    assert!(said.contains("--require-sandbox is full, but this machine supports only partial"), "{said}");
    assert!(said.contains("user.max_user_namespaces"), "{said}");
}

/// Every file below a directory whose bytes hold this text.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn a_function_has_its_secret_and_nobody_else_is_told() {
    let code = "def f(record, ctx):\n    key = ctx.secret('api-key')\n    print('the key is', key)\n    \
                ctx.append('out', f'{len(key)} {key[:3]}')\n    if record.data == b'fail': raise ValueError(key)\n";
    for level in [&[][..], &["--sandbox", "full"]] {
        let place = Place::empty();
        place.write("f.py", code);
        place.write(
            "millrace.toml",
            "[logs.in]\n[logs.out]\n[functions.f]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:f\"\non = [\"in\"]\n\
             secrets = [\"api-key\"]\nretries = 0\n",
        );
        place.run(["up"]).ok();
        let mut host = place.command([&["serve"][..], level].concat());
        host.env("MILLRACE_LISTEN", "none");
        let _host = Host::start(host);
        place.run(["log", "append", "in", "x"]).ok();
        millrace_tests::eventually("it says what is missing", || {
            let why = place.run(["why", "f"]).ok().text().to_owned();
            why.contains("MR3131") && why.contains("'api-key' is not set")
        });
        place.feed(["secret", "set", "api-key"], b"one-for-nobody\n").ok();
        place.idle();
        assert_eq!(place.records("out"), ["14 one"]);
        place.run(["log", "append", "in", "fail"]).ok();
        place.idle();
        place.feed(["secret", "set", "api-key"], b"two-for-nobody-else").ok();
        // A host looks at secrets once a second.
        let mut last = String::new();
        millrace_tests::eventually("it has the new value", || {
            place.run(["log", "append", "in", "x"]).ok();
            place.idle();
            last = place.records("out").pop().unwrap();
            last != "14 one"
        });
        assert_eq!(last, "19 two");
        let runs = place.run(["--json", "run", "ls", "--state", "dead"]).ok().text().to_owned();
        assert!(runs.contains("the key is ***") && runs.contains("ValueError: ***"), "{runs}");
        let shown = place.run(["function", "show", "f"]).ok().text().to_owned();
        assert!(shown.contains("api-key"), "{shown}");
        assert_eq!(place.run(["secret", "ls"]).ok().text(), "api-key\n");
        place.run(["namespace", "backup", "copy"]).ok();
        let (held, copied): (Vec<_>, Vec<_>) =
            files_with(place.path(), "for-nobody").into_iter().partition(|file| file.contains("/.millrace/"));
        // Below full its processes find it in a directory of the host's user.
        let kept = ["/secrets/functions/", "/scratch/"];
        let reported: Vec<_> = held.iter().filter(|file| !kept.iter().any(|place| file.contains(place))).collect();
        assert!(copied.is_empty() && reported.is_empty(), "{copied:?} {reported:?}");
        place.run(["secret", "rm", "api-key"]).ok();
        place.run(["secret", "rm", "api-key"]).fails("MR3133", 1);
    }
}

/// Whether functions are kept from the files of the user here.
fn has_sandbox(place: &Place) -> bool {
    let status = std::fs::read_to_string(place.namespace().join("host.json")).unwrap();
    serde_json::from_str::<Value>(&status).unwrap()["sandbox"]["level"] != "none"
}

/// A place with a function that reads a file of the user when it is imported and when it runs.
fn spying(place: &Place) -> std::path::PathBuf {
    let secret = place.path().join("secret");
    place.write("secret", "told");
    let source = format!(
        "def spy():\n    try: return open({secret:?}).read()\n    except OSError: return 'nothing'\n\
         if spy() == 'told': raise Exception('the import was told')\n\
         def run(record, ctx): ctx.append('out', record.text() + ' ' + spy())\n"
    );
    place.write("code/spy.py", &source);
    place.write(
        "millrace.toml",
        "[logs.in]\n[logs.out]\n[functions.spy]\nruntime = \"python\"\ncode = \"code\"\nhandler = \"spy:run\"\n\
         on = [\"in\"]\n",
    );
    secret
}

#[test]
fn code_is_checked_and_replayed_in_a_sandbox_without_a_host_too() {
    let place = Place::empty();
    let secret = spying(&place);
    let upped = place.run(["up"]);
    let host = place.serve();
    if !has_sandbox(&place) {
        return;
    }
    upped.ok();
    let deploy = "function deploy again --runtime python --code code --handler spy:run --on in";
    place.run(deploy.split(' ')).ok();
    place.run(["function", "rm", "again"]).ok();
    place.run(["log", "append", "in", "a"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["a nothing"]);
    drop(host);
    let plan = place.run(["--json", "repair", "plan", "in", "--at", "1", "--verify", "10"]).ok().object();
    assert_eq!(plan["verified"], json!([{ "function": "spy", "runs": 1, "same": 1, "differs": null }]), "{plan}");
    place.feed(["repair", "run", "in", "--at", "1", "--values", "-"], b"{\"seqno\": 1, \"value\": \"b\"}").ok();
    place.run(["repair", "apply", "1"]).ok();
    assert_eq!(place.records("out"), ["b nothing"]);
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "told");
}
