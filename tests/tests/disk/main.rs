//! Real hosts on disks that fill up, turn read-only, fail and stall, while functions run, clients append over the wire and
//! HTTP, an outbox sends and a relay receives. What was acknowledged stays, what was refused is not there, and service returns
//! by itself when the disk does.
//!
//! The engine's own tests (`crates/journal/tests/disk.rs`) refuse every single call; these show the whole host.

mod ends;
mod groups;
mod small;
mod support;

use millrace_client::{AppendOptions, Durability, Options, Wait, blocking::Client};
use millrace_tests::{Place, end, eventually};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
};
use support::{Injected, Producers, Reported, SmallDisk, Watched, compare, http};

/// The longest history that tests need.
const HISTORY: u32 = 200_000;

/// A namespace whose function copies `in` to `out` and sends it to an address, if there is one.
fn application(place: &Place, durability: &str, send_to: Option<&str>) {
    let send = send_to.map_or(String::new(), |to| format!("    ctx.append({to:?}, record.data[:20])\n"));
    place.write("f.py", &format!("def copy(record, ctx):\n    ctx.append('out', record.data)\n{send}"));
    place.write(
        "millrace.toml",
        &format!(
            "[namespace]\nsegment_size = \"1MiB\"\nretain_bytes = \"4MiB\"\ndurability = \"{durability}\"\n\
             [logs.in]\nhistory = {HISTORY}\n[logs.out]\nhistory = {HISTORY}\n[logs.in2]\nhistory = {HISTORY}\n\
             [functions.copy]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:copy\"\non = [\"in\"]\n\
             pending_max = 100000\nsends = {:?}\n",
            Vec::from_iter(send_to)
        ),
    );
    place.run(["up"]).ok();
}

/// Everything that was acknowledged was worked on once, and is still there when the host was killed.
fn verify(place: &Place, reported: &Reported) -> Vec<String> {
    place.idle();
    let records = place.records("in");
    compare(&records, reported);
    let mut out = place.records("out");
    let mut expected = records.clone();
    out.sort();
    expected.sort();
    assert!(out == expected, "{} records came in, and {} out", records.len(), out.len());
    records
}

fn a_full_disk(durability: &str) {
    let Some(disk) = SmallDisk::new(48) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    // Another host, on a disk that is well: it is sent to, and sends.
    let other = Place::new();
    for log in ["sink", "source"] {
        other.run(["log", "create", log, "--history", "200000"]).ok();
    }
    let other_host = other.serve_tcp(["--name", "other"]);
    let place = Place::within(disk.path());
    application(&place, durability, Some(&format!("mr://127.0.0.1:{}/other/sink", other_host.port())));
    let stderr = elsewhere.path().join("stderr");
    let farm = Watched::start(&place, &stderr);
    let (port, pid) = (farm.host.port(), farm.host.pid());
    other.run(["relay", "add", "source", &format!("mr://127.0.0.1:{port}/farm/in2")]).ok();
    let feed = |from: u64| {
        let lines: String = (from..from + 500).map(|n| format!("{n} {}\n", "y".repeat(1000))).collect();
        other.feed(["log", "append", "source", "--lines", "--quiet"], lines.as_bytes()).ok();
    };
    let producers = Producers::start(port, "in");
    producers.go_on();
    disk.fill();
    feed(0);
    eventually("the full disk is told", || producers.refused("MR2008") > 40);
    eventually("the operator hears of it", || farm.said("MR2008"));
    let ready = farm.is_ready();
    assert!(ready.status == 503 && ready.body.contains("MR2008"), "{}", ready.body);
    let metrics = http(port, "GET", "/metrics", "").unwrap().body;
    assert!(metrics.contains("millrace_journal_refusing{namespace=\"farm\"} 1"), "{metrics}");
    assert!(metrics.contains("millrace_journal_healthy{namespace=\"farm\"} 1"), "{metrics}");
    let status = http(port, "GET", "/v1/namespaces/farm/status", "").unwrap().body;
    assert!(status.contains("\"healthy\":false") && status.contains("MR2008"), "{status}");
    // Programs that use the files are told as well, though they were refused nothing themselves.
    let why = place.run(["--json", "why"]).ok().object();
    assert_eq!(why["reasons"][0]["reason"], "refusing", "{why}");
    let top = place.run(["--json", "top", "--once"]).ok().object();
    assert!(top["host"]["refusal"].as_str().is_some_and(|refusal| refusal.contains("MR2008")), "{top}");
    // What is there can be read, and what runs is not replaced by half of something.
    assert_eq!(http(port, "GET", "/v1/namespaces/farm/logs/in/records/1", "").unwrap().status, 200);
    place.run(["log", "append", "in", &"x".repeat(100_000)]).fails("MR2008", 1);
    // Not its counters: it goes on with what it has.
    let version = |place: &Place| place.run(["--json", "function", "ls"]).ok().object()["code"].clone();
    let before = version(&place);
    assert!(before.is_string(), "{before}");
    let up = Place::empty();
    up.write("f.py", "def copy(record, ctx):\n    raise ValueError('the new one runs')\n");
    fs::copy(place.path().join("millrace.toml"), up.path().join("millrace.toml")).unwrap();
    let mut command = up.command(["--namespace"]);
    command.arg(place.namespace()).args(["up", "--take-over"]);
    end(command, b"").fails("MR2008", 1);
    assert_eq!(version(&place), before);
    disk.empty();
    eventually("it is ready again", || farm.is_ready().status == 200);
    let why = place.run(["--json", "why"]).ok();
    assert!(!why.text().contains("refusing"), "{}", why.text());
    producers.go_on();
    eventually("a refused client is served again", || producers.acked() > 100);
    let reported = producers.end();
    feed(500);
    let records = verify(&place, &reported);
    eventually("the outbox has sent all", || other.records("sink").len() == records.len());
    let mut sent = other.records("sink");
    let mut expected: Vec<String> = records.iter().map(|record| record.chars().take(20).collect()).collect();
    sent.sort();
    expected.sort();
    assert!(sent == expected, "the outbox sent something else");
    eventually("the relay has brought all", || place.records("in2").len() == 1000);
    assert!(place.records("in2") == other.records("source"), "the relay brought something else");
    assert_eq!(farm.host.pid(), pid);
    drop(farm); // As by SIGKILL.
    let again = Watched::start(&place, &stderr);
    verify(&place, &reported);
    drop(again);
}

#[test]
fn a_full_disk_is_refused_clearly_and_over_when_there_is_room() {
    a_full_disk("disk");
}

/// Appends go through mapped pages there: a page without storage would end the process with SIGBUS.
#[test]
fn a_full_disk_never_faults_where_appends_go_through_memory() {
    a_full_disk("memory");
}

#[test]
fn a_disk_that_takes_nothing_for_a_while_is_waited_for() {
    let place = Place::empty();
    application(&place, "disk", None);
    let farm = Watched::start(&place, &place.path().join("stderr"));
    let producers = Producers::start(farm.host.port(), "in");
    for (error, code) in [("ENOSPC", "MR2008"), ("EROFS", "MR2005"), ("EIO", "MR2012")] {
        producers.go_on();
        let injected = Injected::into(farm.host.pid(), &format!("pwrite64:error={error}"));
        eventually("it is refused", || producers.refused(code) > 20);
        eventually("the operator hears of it", || farm.said(code));
        assert_eq!(farm.is_ready().status, 503);
        drop(injected);
        eventually("it is ready again", || farm.is_ready().status == 200);
        producers.go_on();
    }
    // Now the manifest cannot be replaced, which retention does all the time.
    let injected = Injected::into(farm.host.pid(), "rename:error=ENOSPC");
    eventually("retention was refused", || injected.count() > 3);
    producers.go_on();
    drop(injected);
    let first = || http(farm.host.port(), "GET", "/v1/namespaces/farm/status", "").unwrap().body;
    let reported = producers.end();
    verify(&place, &reported);
    assert!(first().contains("\"healthy\":true"), "{}", first());
    drop(farm);
    let again = Watched::start(&place, &place.path().join("stderr"));
    verify(&place, &reported);
    drop(again);
}

#[test]
fn a_failed_flush_ends_the_host_and_the_next_one_has_all_that_was_acknowledged() {
    let place = Place::empty();
    application(&place, "disk", None);
    let mut reported = Reported::default();
    for round in 0..2 {
        let farm = Watched::start(&place, &place.path().join("stderr"));
        let producers = Producers::start(farm.host.port(), "in");
        producers.go_on();
        let injected = Injected::into(farm.host.pid(), "fdatasync:error=EIO:when=1");
        let stderr = place.path().join("stderr");
        assert_eq!(farm.host.ended(), 74, "round {round}");
        drop(injected);
        let said = fs::read_to_string(stderr).unwrap();
        assert!(said.contains("MR2009") && said.contains("remedy") && !said.contains("panicked"), "{said}");
        let more = producers.end();
        reported.acked.extend(more.acked);
        reported.refused.extend(more.refused);
        reported.unknown.extend(more.unknown);
    }
    let again = Watched::start(&place, &place.path().join("stderr"));
    verify(&place, &reported);
    drop(again);
}

/// While one flush lasts as long as the test wants, whoever does not wait for it goes on, and memory does not grow.
#[test]
fn a_slow_disk_delays_only_requests_that_wait_for_it() {
    let place = Place::empty();
    application(&place, "disk", None);
    let farm = Watched::start(&place, &place.path().join("stderr"));
    let (port, pid) = (farm.host.port(), farm.host.pid());
    let options = Options { request_timeout_ms: 0, ..Options::default() };
    let client = Client::connect(&support::farm(port), &options).unwrap();
    // Its loop has no other connection: as long as flushes are quick, it waits for them by itself.
    let alone = Client::connect(&support::farm(port), &options).unwrap();
    alone.append("in2", b"durable", AppendOptions::default()).unwrap();
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // Long enough for any machine: it ends when the tracer does.
    let injected = Injected::into(pid, "fdatasync:delay_enter=600000000");
    let waiting = thread::spawn(move || alone.append("in2", b"waits", AppendOptions::default()));
    eventually("a flush has begun to stall", || {
        client.latest("in2", 0, Wait { durability: Some(Durability::Memory), ..Wait::default() }).unwrap() == 2
    });
    let before = resident();
    // Clients that send far more than they are answered.
    let pipelines: Vec<_> = (0..4)
        .map(|n| {
            let client = Client::connect(&support::farm(port), &options).unwrap();
            thread::spawn(move || {
                let mut pipeline = client.pipeline(1024).unwrap();
                for _ in 0..2000 {
                    pipeline.append("in2", &vec![n; 4000], AppendOptions::default()).unwrap();
                }
                let mut answered = 0;
                while let Some(receipt) = pipeline.next().unwrap() {
                    receipt.unwrap();
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    let memory = AppendOptions { durability: Some(Durability::Memory), ..AppendOptions::default() };
    for n in 0..200u64 {
        client.append("in2", &n.to_le_bytes(), memory).unwrap();
        client.ping().unwrap();
        if n % 20 == 0 {
            let newcomer = Client::connect(&support::farm(port), &options).unwrap();
            assert_eq!(newcomer.get("in2", 1, Wait::default()).unwrap().data, b"durable");
        }
        assert_eq!(http(port, "GET", "/healthz", "").unwrap().status, 200);
    }
    assert!(!waiting.is_finished(), "an append was acknowledged without a flush");
    assert!(pipelines.iter().all(|pipeline| !pipeline.is_finished()), "appends were acknowledged without a flush");
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more while the disk stalls");
    drop(injected);
    assert_eq!(waiting.join().unwrap().unwrap().seqno, 2);
    assert_eq!(pipelines.into_iter().map(|pipeline| pipeline.join().unwrap()).sum::<u64>(), 8000);
    assert_eq!(client.latest("in2", 0, Wait::default()).unwrap(), 2 + 200 + 8000);
}

fn files(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn commands_say_what_is_wrong_with_the_disk_and_leave_nothing_half_made() {
    let Some(disk) = SmallDisk::new(8) else { return };
    let place = Place::within(disk.path());
    for bare in [true, false] {
        let init = |name: &str| {
            let mut args = vec!["init", name, "--segment-size", "1MiB"];
            args.extend(bare.then_some("--bare"));
            place.run(args)
        };
        disk.fill();
        // With no room at all, and with a little more each time, until there is enough.
        let mut refused = 0;
        for pages in 0.. {
            let ended = init("app");
            if ended.code == 0 {
                break;
            }
            refused += 1;
            let code = if ended.stderr.contains("MR2008") { "MR2008" } else { "MR4009" };
            ended.fails(code, 1);
            // Nothing, or a namespace that is whole and only could not be opened: the next one takes it.
            let left = files(place.path());
            let is_whole = place.path().join("app/.millrace/manifest").exists();
            assert!(left.is_empty() || is_whole, "{left:?} is left with {pages} pages of room");
            let ballast = fs::File::options().write(true).open(disk.path().join("ballast")).unwrap();
            ballast.set_len(ballast.metadata().unwrap().len() - 4096).unwrap();
        }
        assert!(refused > 2, "{refused}");
        fs::remove_dir_all(place.path().join("app")).unwrap();
        disk.empty();
    }
    place.run(["init", "--bare", "--segment-size", "1MiB"]).ok();
    place.run(["log", "create", "a"]).ok();
    place.run(["log", "append", "a", "one"]).ok();
    disk.remount("ro");
    for args in [&["log", "append", "a", "two"][..], &["log", "create", "b"], &["serve"], &["log", "get", "a"]] {
        place.run(args).fails("MR2005", 1);
    }
    let ended = place.run(["init", "other"]);
    assert!(ended.code == 1 && ended.stderr.contains("Read-only"), "{ended:?}");
    disk.remount("rw");
    place.run(["log", "append", "a", "two"]).ok();
    assert_eq!(place.records("a"), ["one", "two"]);
}

#[test]
fn a_host_whose_log_goes_to_a_full_disk_goes_on() {
    let place = Place::empty();
    application(&place, "disk", None);
    let full = || fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let mut command = place.command(["serve"]);
    let mut child = command.stdin(Stdio::null()).stdout(full()).stderr(full()).spawn().unwrap();
    place.run(["log", "append", "in", "x"]).ok();
    place.idle();
    assert_eq!(place.records("out"), ["x"]);
    assert!(child.try_wait().unwrap().is_none(), "it ended because its log was full");
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert_eq!(millrace_tests::wait(&mut child, "the host"), 0);
}

#[test]
fn a_new_namespace_has_a_durable_name() {
    let place = Place::empty();
    let log = place.path().join("log");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-e", "trace=fsync", "-o"]).arg(&log).arg(millrace_tests::binary());
    command.args(["init", "--bare", "above/app"]).current_dir(place.path()).env_remove("MILLRACE_NAMESPACE");
    let ended = end(command, b"");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let log = fs::read_to_string(log).unwrap();
    let root = place.path().canonicalize().unwrap();
    for dir in [root.join("above/app"), root.join("above"), root] {
        assert!(log.contains(&format!("<{}>)", dir.display())), "{} was not flushed:\n{log}", dir.display());
    }
}

#[test]
fn a_repair_on_a_full_disk_says_what_it_waits_for_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::new(48) else { return };
    let place = Place::within(disk.path());
    place.write("f.py", "def big(record, ctx):\n    ctx.append('out', ctx.get('factor', 1).data * 20000)\n");
    place.write(
        "millrace.toml",
        "[namespace]\nsegment_size = \"1MiB\"\n[logs.in]\n[logs.factor]\n[logs.out]\n\
         [functions.big]\nruntime = \"python\"\ncode = \"f.py\"\nhandler = \"f:big\"\non = [\"in\"]\n",
    );
    place.run(["up"]).ok();
    place.run(["log", "append", "factor", "1"]).ok();
    let host = place.serve();
    place.feed(["log", "append", "in", "--lines", "--quiet"], "x\n".repeat(200).as_bytes()).ok();
    place.idle();
    disk.fill();
    // What the replayed runs leave takes more room than any segment still has.
    let command = place.command(["repair", "run", "factor", "--at", "1", "--values", "-"]);
    let asking = thread::spawn(move || end(command, b"value\n2\n"));
    let repair = || place.run(["--json", "repair", "ls"]).ok().text().to_owned();
    eventually("the repair says what it waits for", || repair().contains("\"waits\":[\"MR2008\""));
    let number = "1";
    let shown = place.run(["repair", "show", number]).ok();
    assert!(shown.text().contains("running") && shown.text().contains("[MR2008]"), "{}", shown.text());
    disk.empty();
    let asked = asking.join().unwrap();
    assert_eq!(asked.code, 0, "{asked:#?}");
    let shown = place.run(["--json", "repair", "show", number]).ok().object();
    assert_eq!((&shown["phase"], &shown["counts"]["replayed"]), (&"ready".into(), &200.into()), "{shown}");
    assert!(shown["waits"].is_null(), "{shown}");
    place.run(["repair", "apply", number]).ok();
    let expected = "2".repeat(20_000);
    assert!(place.records("out").iter().all(|record| *record == expected));
    drop(host);
}
