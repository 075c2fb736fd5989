//! What a host notes about its own work.

use millrace_tests::{Host, Place, eventually};
use serde_json::Value;
use std::fs::{self, File};

#[test]
fn a_host_notes_what_it_does_and_refuses_at_the_level_asked() {
    let place = Place::new();
    place.write("fail.sh", "#!/bin/sh\necho secret-of-the-run\nexit 3\n");
    place.run(["log", "create", "in"]).ok();
    let deploy = "function deploy fail --runtime oneshot --code fail.sh --on in --retries 0 -- ./fail.sh";
    place.run(deploy.split(' ')).ok();
    let unix = format!("unix:{}", place.namespace().join("socket").display());
    let notes = place.namespace().with_file_name("notes");
    let serve = |levels: &str| {
        let mut command = place.command(["--json", "serve", "--listen", "none", "--log-level", levels]);
        command.stderr(File::create(&notes).unwrap());
        let host = Host::start(command);
        place.run(["-n", &unix, "log", "append", "none", "secret-of-a-client"]).fails("MR2101", 1);
        place.run(["-n", &unix, "log", "append", "in", "secret-of-a-record"]).ok();
        host.line_with(&["failed"]);
        host
    };
    let host = serve("warn,requests=debug,runs=debug");
    let noted = || fs::read_to_string(&notes).unwrap();
    let has = |subject: &str, code: &str| {
        let lines = noted();
        let of_it = |line: &Value| line["target"] == subject && line["code"] == code;
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).any(|line: Value| of_it(&line))
    };
    eventually("the refusal is noted", || has("requests", "MR2101"));
    eventually("the failed run is noted", || has("runs", "MR3109"));
    assert!(!noted().contains("connections"), "{}", noted());
    assert!(!noted().contains("secret-of"), "no record, and nothing that a run printed: {}", noted());
    host.signal("TERM");
    host.ended();
    drop(serve("off"));
    assert_eq!(noted(), "");
    let refused = place.run(["serve", "--log-level", "loud"]);
    assert!(refused.code == 2 && refused.stderr.starts_with("error[MR4004]: invalid value 'loud'"), "{refused:#?}");
}
