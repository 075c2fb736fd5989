//! `run cancel`: runs that wait and runs that are in progress, by files and by address.

use millrace_tests::{Host, Place, eventually};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// Functions that leave their process id in a file and then take an hour, unless the record is `quick`.
const PROCESS: &str = "#!/bin/sh\nread -r record\n[ \"$record\" = quick ] && exit 0\n\
    printf 'out\\tbegan\\n' >&3\necho $$ > \"$PLACE/oneshot.pid\"\nexec sleep 3600\n";
const PYTHON: &str = "import os, pathlib, time\ndef slow(record, ctx):\n    if record.text() == 'quick':\n        return\n    \
    ctx.append('out', 'began')\n    pathlib.Path(os.environ['PLACE'], 'python.pid').write_text(f'{os.getpid()}\\n')\n    \
    time.sleep(3600)\n";

/// A namespace with the function `slow`, of this runtime.
fn place_with(runtime: &str, more: &str) -> Place {
    let place = Place::empty();
    place.write("slow.sh", PROCESS);
    place.write("slow.py", PYTHON);
    let what = match runtime {
        "oneshot" => "code = \"slow.sh\"\ncommand = [\"./slow.sh\"]",
        _ => "code = \"slow.py\"\nhandler = \"slow:slow\"",
    };
    place.write(
        "millrace.toml",
        &format!(
            "[logs.in]\n[logs.out]\n[functions.slow]\nruntime = \"{runtime}\"\n{what}\non = [\"in\"]\ntimeout = \"1h\"\n{more}\n\
             [functions.slow.env]\nPLACE = \"{}\"\n",
            place.path().display()
        ),
    );
    place.run(["up"]).ok();
    place
}

/// The id of the newest run.
fn newest(place: &Place) -> String {
    place.run(["--json", "run", "ls", "-l", "1"]).ok().object()["id"].as_str().unwrap().to_owned()
}

fn shown(place: &Place, run: &str) -> Value {
    place.run(["--json", "run", "show", run]).ok().object()
}

/// The process that a function left in this file, once it is at work.
fn process(place: &Place, file: &str) -> String {
    let file = place.path().join(file);
    eventually("the function is at work", || fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')));
    let pid = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    pid.trim().to_owned()
}

/// Functions without a sandbox have their process ids in the namespace of the host.
fn serve(place: &Place) -> Host {
    Host::start(place.command(["--json", "serve", "--sandbox", "none", "--listen", "127.0.0.1:0", "--name", "farm"]))
}

#[test]
fn a_run_that_waits_never_starts() {
    let place = place_with("oneshot", "");
    place.run(["log", "append", "in", "slow"]).ok();
    let run = newest(&place);
    assert_eq!(place.run(["run", "cancel", &run]).ok().text(), format!("cancelled run {run}\n"));
    let reported = shown(&place, &run);
    assert_eq!((&reported["state"], &reported["error"]["code"]), (&json!("cancelled"), &json!("MR3140")));
    assert_eq!(reported["attempts"], json!([]));
    place.run(["run", "cancel", &run]).fails("MR3141", 1);
    place.run(["run", "cancel", "5f3a9c0d1e2b-0-1c"]).fails("MR3007", 1);
    place.run(["run", "cancel", "odd"]).fails("MR1005", 2);
    let _host = serve(&place);
    place.run(["log", "append", "in", "quick"]).ok();
    place.idle();
    assert!(!place.path().join("oneshot.pid").exists(), "it ran");
    assert_eq!(place.run(["--json", "log", "ls", "dead/"]).ok().object()["latest"], 0, "there is no dead letter");
    let why = place.run(["--json", "why", &run]).ok().object()["reasons"][0].take();
    assert_eq!((&why["reason"], &why["at"]), (&json!("cancelled"), &reported["ended"]));
    let functions = place.run(["function", "ls"]).ok();
    let rows: Vec<Vec<&str>> = functions.text().lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((&rows[0][2..5], &rows[1][2..5]), (&["PENDING", "ENDED", "DEAD"][..], &["0", "2", "0"][..]));
    let listed = place.run(["--json", "run", "ls", "--state", "cancelled"]).ok().object();
    assert_eq!(listed["id"], json!(run));
    place.run(["namespace", "check"]).ok();
}

#[test]
fn a_run_in_progress_is_stopped_and_the_next_one_starts() {
    for runtime in ["oneshot", "python"] {
        // In order: as long as it is in progress nothing else starts.
        let place = place_with(runtime, "ordered = true");
        let host = serve(&place);
        let address = format!("mr://127.0.0.1:{}/farm", host.port());
        for from in [None, Some(address.as_str())] {
            place.run(["log", "append", "in", "slow"]).ok();
            let pid = process(&place, &format!("{runtime}.pid"));
            let run = newest(&place);
            place.run(["log", "append", "in", "quick"]).ok();
            let mut cancel = vec!["run", "cancel", run.as_str()];
            if let Some(address) = from {
                cancel.splice(0..0, ["-n", address]);
            }
            place.run(&cancel).ok();
            place.run(&cancel).fails("MR3141", 1);
            eventually("the process is stopped", || !Path::new("/proc").join(&pid).exists());
            place.idle();
            let reported = shown(&place, &run);
            assert_eq!((&reported["state"], &reported["appends"]), (&json!("cancelled"), &json!([])), "{runtime}");
            assert_eq!(shown(&place, &newest(&place))["state"], "done");
        }
        assert_eq!(place.run(["--json", "log", "stat", "out"]).ok().object()["latest"], 0, "what it appended is gone");
    }
}

#[test]
fn a_streamed_run_keeps_what_it_has_published() {
    let place = place_with("oneshot", "streamed = true");
    let _host = serve(&place);
    place.run(["log", "append", "in", "slow"]).ok();
    let pid = process(&place, "oneshot.pid");
    eventually("it has published", || place.records("out") == ["began"]);
    let run = newest(&place);
    place.run(["run", "cancel", &run]).ok();
    eventually("the process is stopped", || !Path::new("/proc").join(&pid).exists());
    place.idle();
    assert_eq!(shown(&place, &run)["state"], "cancelled");
    assert_eq!(place.records("out"), ["began"]);
}
