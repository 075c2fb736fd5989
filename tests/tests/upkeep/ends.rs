//! How a host ends: gently with everything that was begun, at once when it is asked twice, and what the next one finds.

use super::copying;
use millrace_tests::{Host, Place, end, eventually};
use std::{fs, fs::File, path::PathBuf};

/// A host on a port of its own whose standard error goes to a file.
fn host(place: &Place) -> (Host, PathBuf) {
    let said = place.path().join("stderr");
    let mut command =
        place.command(["--json", "serve", "--listen", "127.0.0.1:0", "--drain", "100s", "--name", "farm"]);
    command.stderr(File::create(&said).unwrap());
    (Host::start(command), said)
}

#[test]
fn a_signal_ends_a_host_with_tails_connections_and_links_and_the_next_one_needs_no_recovery() {
    let place = copying();
    place.run(["log", "create", "far"]).ok();
    // Nobody answers there; the link tries and waits.
    place.run(["relay", "add", "far", "mr://127.0.0.1:9/edge/far"]).ok();
    place.run(["log", "append", "far", "x"]).ok();
    let (served, said) = host(&place);
    let address = format!("mr://127.0.0.1:{}/farm", served.port());
    let tail = {
        let command = place.command(["-n", &address, "log", "tail", "out", "--follow"]);
        std::thread::spawn(move || end(command, b""))
    };
    let lines: String = (0..50).map(|n| format!("{n}\n")).collect();
    end(place.command(["-n", &address, "log", "append", "in", "--lines", "--quiet"]), lines.as_bytes()).ok();
    place.idle();
    let epoch = |place: &Place| place.run(["--json", "namespace", "check"]).ok().object()["epoch"].clone();
    let before = epoch(&place);
    served.signal("TERM");
    assert_eq!(served.ended(), 0);
    let tail = tail.join().unwrap();
    assert!(tail.text().lines().count() == 50, "every record that was there came before the end: {tail:#?}");
    assert!(!tail.stderr.contains("panicked"), "{tail:#?}");
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("SIGTERM: stopping;") && said.contains("again to stop at once"), "{said}");
    assert_eq!(place.records("out").len(), 50);
    assert_eq!(epoch(&place), before, "a clean end begins no epoch");
}

#[test]
fn a_stuck_function_is_left_to_the_next_start_when_the_signal_comes_again() {
    let place = copying();
    let wait = "touch \"$HOME/started\"\nwhile [ ! -e \"$HOME/go\" ]; do sleep 0.05; done\n";
    place.write("copy.sh", &format!("#!/bin/sh\n{wait}printf 'out\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n"));
    let text = fs::read_to_string(place.path().join("millrace.toml")).unwrap();
    let home = format!("env = {{ HOME = \"{}\" }}\n", place.path().display());
    place.write("millrace.toml", &(text + &home));
    place.run(["up"]).ok();
    let (served, said) = host(&place);
    place.run(["log", "append", "in", "stuck"]).ok();
    eventually("it runs", || place.path().join("started").exists());
    served.signal("TERM");
    eventually("it says so", || fs::read_to_string(&said).unwrap().contains("SIGTERM: stopping;"));
    served.signal("TERM");
    assert_eq!(served.ended(), 128 + 15);
    assert!(fs::read_to_string(&said).unwrap().contains("SIGTERM again: stopping at once"));
    place.write("go", "");
    let _next = place.serve();
    place.idle();
    assert_eq!(place.records("out"), ["stuck"]);
}

#[test]
fn a_drain_time_that_passes_ends_the_host_all_the_same() {
    let place = copying();
    place.write("copy.sh", "#!/bin/sh\ntouch \"$HOME/started\"\nsleep 1000\n");
    let text = fs::read_to_string(place.path().join("millrace.toml")).unwrap();
    let home = format!("timeout = \"2000s\"\nenv = {{ HOME = \"{}\" }}\n", place.path().display());
    place.write("millrace.toml", &(text + &home));
    place.run(["up"]).ok();
    let served = Host::start(place.command(["serve", "--drain", "50ms"]));
    place.run(["log", "append", "in", "stuck"]).ok();
    eventually("it runs", || place.path().join("started").exists());
    served.signal("TERM");
    served.ended();
    let run = place.run(["--json", "run", "ls"]).ok().object();
    assert!(run["ended"].is_null(), "{run}");
    assert!(place.run(["--json", "namespace", "check"]).ok().object()["sound"] == true);
}
