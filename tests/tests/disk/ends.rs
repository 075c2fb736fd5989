//! Hosts that end while the disk is slow, and hosts that begin while it is full.

use super::{
    application,
    support::{Injected, Producers, SmallDisk, Watched, farm as address},
    verify,
};
use millrace_client::{AppendOptions, Options, blocking::Client};
use millrace_tests::{Host, Place, eventually, wait};
use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
};

/// Longer than any test waits: it ends when the tracer does.
const STALL: &str = "fdatasync,msync:delay_enter=600000000";

/// Whether a thread of the process is in a flush: with [`STALL`], that one does not end by itself.
fn is_flushing(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let flushes = [libc::SYS_fdatasync, libc::SYS_msync].map(|call| format!("{call} "));
    let mut calls = threads.map(|thread| fs::read_to_string(thread.path().join("syscall")).unwrap_or_default());
    calls.any(|call| flushes.iter().any(|flush| call.starts_with(flush)))
}

fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

fn patient() -> Options {
    Options { request_timeout_ms: 0, silence_max_ms: 600_000, ..Options::default() }
}

/// With `memory`, the end is what flushes.
#[test]
fn a_clean_shutdown_flushes_everything_in_memory() {
    let place = Place::empty();
    application(&place, "memory", None);
    let farm = Watched::start(&place, &place.path().join("stderr"));
    place.idle();
    let client = Client::connect(&address(farm.host.port()), &patient()).unwrap();
    let injected = Injected::into(farm.host.pid(), STALL);
    client.append("in2", b"only in memory", AppendOptions::default()).unwrap();
    drop(client);
    farm.host.signal("TERM");
    eventually("the end flushes", || is_flushing(farm.host.pid()));
    assert!(fs::exists(format!("/proc/{}/task", farm.host.pid())).unwrap(), "it ended without the flush");
    drop(injected);
    assert_eq!(farm.host.ended(), 0);
    // Nothing but what is on the disk is left to the next one: neither control page nor indexes.
    fs::remove_file(place.namespace().join("control")).unwrap();
    assert_eq!(place.records("in2"), ["only in memory"]);
}

/// A host in the middle of appends, none of which the disk takes, that was asked to end.
fn stopping_in_a_stall(place: &Place) -> (Watched, Producers, Injected) {
    application(place, "disk", None);
    let farm = Watched::start(place, &place.path().join("stderr"));
    let producers = Producers::start(farm.host.port(), "in");
    producers.go_on();
    let injected = Injected::into(farm.host.pid(), STALL);
    eventually("a flush stalls", || is_flushing(farm.host.pid()));
    farm.host.signal("TERM");
    eventually("it says so", || farm.said("SIGTERM: stopping;"));
    (farm, producers, injected)
}

#[test]
fn a_clean_end_on_a_slow_disk_answers_what_was_under_way() {
    let place = Place::empty();
    let waits = {
        application(&place, "disk", None);
        let farm = Watched::start(&place, &place.path().join("stderr"));
        let client = Client::connect(&address(farm.host.port()), &patient()).unwrap();
        let injected = Injected::into(farm.host.pid(), STALL);
        let waits = thread::spawn(move || client.append("in2", b"under way", AppendOptions::default()));
        eventually("a flush stalls", || is_flushing(farm.host.pid()));
        farm.host.signal("TERM");
        eventually("it says so", || farm.said("SIGTERM: stopping;"));
        assert!(!waits.is_finished(), "it was answered without a flush");
        drop(injected);
        assert_eq!(farm.host.ended(), 0);
        waits
    };
    assert_eq!(waits.join().unwrap().unwrap().seqno, 1);
    assert_eq!(place.records("in2"), ["under way"]);
}

#[test]
fn a_clean_end_on_a_slow_disk_loses_nothing() {
    let place = Place::empty();
    let (farm, producers, injected) = stopping_in_a_stall(&place);
    drop(injected);
    assert_eq!(farm.host.ended(), 0);
    let reported = producers.end();
    let _next = Watched::start(&place, &place.path().join("stderr"));
    verify(&place, &reported);
}

#[test]
fn a_second_signal_ends_a_host_whose_disk_takes_nothing() {
    let place = Place::empty();
    let (farm, producers, injected) = stopping_in_a_stall(&place);
    farm.host.signal("TERM");
    eventually("it ends while the disk stalls", || has_ended(farm.host.pid()));
    injected.let_go();
    assert_eq!(farm.host.ended(), 128 + 15);
    let reported = producers.end();
    let _next = Watched::start(&place, &place.path().join("stderr"));
    verify(&place, &reported);
}

#[test]
fn a_host_that_begins_on_a_full_disk_waits_for_room_and_loses_nothing() {
    let Some(disk) = SmallDisk::new(32) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let place = Place::within(disk.path());
    application(&place, "disk", None);
    let stderr = elsewhere.path().join("stderr");
    let farm = Watched::start(&place, &stderr);
    let producers = Producers::start(farm.host.port(), "in");
    producers.go_on();
    drop(farm); // As by SIGKILL: the next one has to recover.
    let reported = producers.end();
    disk.fill();
    let said = place.run(["log", "get", "in", "1"]).fails("MR2008", 1);
    assert!(said.stderr.contains("remedy: Free space"), "{said:#?}");
    let serve = || {
        let mut command = place.command(["serve", "--drain", "20s"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&stderr).unwrap());
        command
    };
    let said = |text: &str| fs::read_to_string(&stderr).unwrap().contains(text);
    let mut child = serve().spawn().unwrap();
    eventually("it waits for room", || said("error[MR2008]") && said("waiting for free space on the disk"));
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert_eq!(wait(&mut child, "a host that waits"), 0, "{}", fs::read_to_string(&stderr).unwrap());
    let command = serve();
    let waiting = thread::spawn(move || Host::start(command));
    eventually("the next one waits for room", || said("waiting for free space on the disk"));
    disk.empty();
    let host = waiting.join().unwrap();
    assert_eq!(fs::read_to_string(&stderr).unwrap().matches("error[").count(), 1, "it is told once");
    verify(&place, &reported);
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
}
