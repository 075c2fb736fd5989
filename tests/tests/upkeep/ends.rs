//! How a host ends: gently with everything that was begun, at once when it is asked twice, and what the next one finds.

use super::copying;
use millrace_client::{AppendOptions, Options, TailOptions, Wait, blocking};
use millrace_tests::{Host, Place, Port, end, eventually, raw, wait};
use millrace_wire::protocol::{Failure, Get, Message, Records, Tail};
use std::{
    fs,
    fs::File,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::Stdio,
};

/// A host on a port of its own whose standard error goes to a file.
fn host(place: &Place) -> (Host, PathBuf) {
    host_at(place, "127.0.0.1:0")
}

fn host_at(place: &Place, address: &str) -> (Host, PathBuf) {
    let said = place.path().join("stderr");
    let mut command = place.command(["--json", "serve", "--listen", address, "--drain", "100s", "--name", "farm"]);
    command.args(["--sandbox", "none"]); // Functions here wait for files of the test.
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
    let mut tail = place.command(["-n", &address, "log", "tail", "out", "--from", "1", "--follow"]);
    let mut tail = tail.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(tail.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: String = (0..50).map(|n| format!("{n}\n")).collect();
    end(place.command(["-n", &address, "log", "append", "in", "--lines", "--quiet"]), lines.as_bytes()).ok();
    place.idle();
    printed.next().expect("it follows");
    let epoch = |place: &Place| place.run(["--json", "namespace", "check"]).ok().object()["epoch"].clone();
    let before = epoch(&place);
    served.signal("TERM");
    assert_eq!(served.ended(), 0);
    assert_eq!(printed.count(), 49, "every record that was there came before the end");
    wait(&mut tail, "the tail");
    let tail = std::io::read_to_string(tail.stderr.unwrap()).unwrap();
    assert!(!tail.contains("panicked"), "{tail}");
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
    let _next = host(&place);
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
    let served = Host::start(place.command(["serve", "--drain", "50ms", "--sandbox", "none"]));
    place.run(["log", "append", "in", "stuck"]).ok();
    eventually("it runs", || place.path().join("started").exists());
    served.signal("TERM");
    assert_eq!(served.ended(), 1, "as any failure: MR5001");
    let run = place.run(["--json", "run", "ls"]).ok().object();
    assert!(run["ended"].is_null(), "{run}");
    assert!(place.run(["--json", "namespace", "check"]).ok().object()["sound"] == true);
}

/// Everybody who is connected hears why the connection ends, however it was used.
#[test]
fn clients_are_informed_that_the_host_stops() {
    let place = copying();
    let (served, _) = host(&place);
    let port = served.port();
    let mut idle = raw::Client::connect(port);
    let mut following = raw::Client::connect(port);
    following.send(9, &Tail { log: "in", from: 1, incarnation: 0, credit: 10, durability: None });
    following.next(|frame| assert_eq!(frame.kind, Records::TYPE, "where the tail begins"));
    // One that asks and never reads is not waited for.
    let mut deaf = raw::Client::connect(port);
    deaf.send(9, &Get { log: "in", seqno: 1, wait_ms: 3_600_000, durability: None });
    let half = raw::Client::raw(port);
    served.signal("TERM");
    for client in [&mut idle, &mut following] {
        let said =
            client.next(|frame| (frame.heading.request, frame.message::<Failure<'_>>().unwrap().code.to_owned()));
        assert_eq!(said, (0, "MR6053".to_owned()));
        assert!(client.try_next(|_| ()).is_none(), "it is the last word");
    }
    assert_eq!(served.ended(), 0);
    drop((deaf, half));
}

/// What a client that uses the library sees of a host that is stopped and started again.
#[test]
fn clients_continue_at_the_next_host_after_a_clean_stop() {
    let place = copying();
    let port = Port::reserve();
    let (served, _) = host_at(&place, &format!("127.0.0.1:{port}"));
    let there: millrace_client::Place = format!("mr://127.0.0.1:{port}/farm").parse().unwrap();
    let options = Options { reconnect_ms: 120_000, ..Options::default() };
    let client = blocking::Client::connect(&there, &options).unwrap();
    let mut tail = client.tail("in", 1, TailOptions::default()).unwrap();
    client.append("in", b"1", AppendOptions::default()).unwrap();
    assert_eq!(tail.next().unwrap().data, b"1");
    let plain = blocking::Client::connect(&there, &Options { reconnect_ms: 0, ..Options::default() }).unwrap();
    let mut left = plain.tail("in", 2, TailOptions::default()).unwrap();
    let waits = std::thread::spawn(move || left.next().map(drop).unwrap_err());
    let following = std::thread::spawn(move || tail.next().unwrap());
    served.signal("TERM");
    assert_eq!(served.ended(), 0);
    assert_eq!(waits.join().unwrap().code().id(), "MR6053", "the reason, and not a torn connection");
    let _next = host_at(&place, &format!("127.0.0.1:{port}"));
    client.append("in", b"2", AppendOptions { key: Some("two"), ..AppendOptions::default() }).unwrap();
    assert_eq!(following.join().unwrap().data, b"2", "the tail went on");
    assert_eq!(client.latest("in", 0, Wait::default()).unwrap(), 2);
}
