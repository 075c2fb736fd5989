//! Namespaces on small disks: their limits fit, the free space is looked after, and a full disk can be freed.

use super::support::{SmallDisk, Watched, http};
use millrace_client::{Options, blocking::Answer};
use millrace_tests::{Caller, Place, end, eventually};
use millrace_wire::Code;
use std::fs;

const MIB: u64 = 1 << 20;

/// Lines of 100 KB each, `mib` in all.
fn lines(mib: u64) -> Vec<u8> {
    let line = format!("{}\n", "x".repeat(100_000));
    line.repeat((mib * MIB) as usize / line.len()).into_bytes()
}

/// A namespace whose limits are those of a large disk.
fn too_large(place: &Place) {
    place.write("millrace.toml", "[namespace]\nsegment_size = \"16MiB\"\nretain_bytes = \"1GiB\"\n");
    place.run(["init", "--bare"]).ok();
}

#[test]
fn a_new_namespace_fits_its_disk_and_says_so() {
    for (mib, segment) in [(63, 2), (200, 8), (2047, 64)] {
        let Some(disk) = SmallDisk::new(mib) else { return };
        let place = Place::within(disk.path());
        let made = place.run(["--json", "init", "--bare", "a"]).ok().object();
        assert_eq!(made["segment_bytes"], segment * MIB, "{mib} MiB: {made}");
        let retain = made["retain_bytes"].as_u64().unwrap();
        assert!((u64::from(mib) * MIB / 5..=u64::from(mib) * MIB / 4).contains(&retain), "{mib} MiB: {made}");
        let said = place.run(["init", "--bare", "b"]).ok();
        assert!(said.text().contains("the disk is small, so the journal keeps at least"), "{}", said.text());
    }
}

/// No host drops anything there: the appends themselves do.
#[test]
fn programs_without_a_host_write_more_than_the_disk_holds() {
    for mib in [64, 200] {
        let Some(disk) = SmallDisk::new(mib) else { return };
        let place = Place::within(disk.path());
        place.run(["init", "--bare"]).ok();
        place.run(["log", "create", "in", "--history", "20"]).ok();
        for _ in 0..3 {
            place.feed(["log", "append", "in", "--lines", "--quiet"], &lines(u64::from(mib) / 2)).ok();
        }
        let latest = place.run(["--json", "log", "stat", "in"]).ok().object()["latest"].as_u64().unwrap();
        assert!(latest > u64::from(mib) * MIB / 100_000, "{latest}");
        place.run(["namespace", "check"]).ok();
    }
}

#[test]
fn a_full_disk_is_announced_and_freed_by_trimming_removing_and_keeping_less() {
    let Some(disk) = SmallDisk::new(200) else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let place = Place::within(disk.path());
    too_large(&place);
    for log in ["a", "b", "c"] {
        place.run(["log", "create", log, "--history", "all"]).ok();
    }
    let stderr = elsewhere.path().join("stderr");
    let farm = Watched::start(&place, &stderr);
    let port = farm.host.port();
    let low = || http(port, "GET", "/metrics", "").unwrap().body.contains("millrace_disk_low{namespace=\"farm\"} 1");
    let why = || place.run(["why"]).ok().text().to_owned();
    assert!(!low() && !why().contains("nearly full"));
    let (chunk, logs) = (lines(4), ["a", "b", "c"]);
    let append = |log: &str| place.feed(["log", "append", log, "--lines", "--quiet"], &chunk);
    // Appends of the command line only: the host itself is refused nothing.
    let mut announced = false;
    let refused = (0..100).find_map(|n| {
        announced |= low() && why().contains("nearly full");
        Some(append(logs[n % 3])).filter(|ended| ended.code != 0)
    });
    refused.expect("200 MiB are not enough").fails("MR2008", 1);
    assert!(announced, "the disk was full before anybody heard of it");
    eventually("the host reports what others are refused", || farm.is_ready().status == 503);
    assert!(why().contains("appends fail"), "{}", why());
    let status = http(port, "GET", "/v1/namespaces/farm/status", "").unwrap().body;
    assert!(status.contains("disk_low") && status.contains("MR2008"), "{status}");
    // Not a byte is left, and still each of these works.
    disk.fill();
    place.run(["log", "trim", "a", "--all"]).ok();
    place.run(["log", "rm", "b"]).ok();
    place.run(["namespace", "set", "--retain-bytes", "16MiB"]).ok();
    eventually("the host frees what is no longer needed", || !low());
    eventually("it is ready again", || farm.is_ready().status == 200);
    append("c").ok();
    disk.empty();
    drop(farm);
    place.run(["namespace", "check"]).ok();
}

#[test]
fn a_full_disk_is_freed_without_a_host() {
    let Some(disk) = SmallDisk::new(64) else { return };
    let place = Place::within(disk.path());
    place.write("millrace.toml", "[namespace]\nsegment_size = \"1MiB\"\nretain_bytes = \"1GiB\"\n");
    place.run(["init", "--bare"]).ok();
    for log in ["a", "b"] {
        place.run(["log", "create", log, "--history", "all"]).ok();
    }
    let append = |log: &str| place.feed(["log", "append", log, "--lines", "--quiet"], &lines(2));
    let refused = (0..100).find_map(|n| Some(append(["a", "b"][n % 2])).filter(|ended| ended.code != 0));
    refused.expect("64 MiB are not enough").fails("MR2008", 1);
    disk.fill();
    assert!(place.run(["why"]).ok().text().contains("nearly full"));
    let before = place.run(["--json", "log", "stat", "b"]).ok().object();
    place.run(["log", "trim", "a", "--all"]).ok();
    append("b").ok();
    let after = place.run(["--json", "log", "stat", "b"]).ok().object();
    assert!(after["latest"].as_u64() > before["latest"].as_u64() && after["earliest"] == before["earliest"], "{after}");
    disk.empty();
    place.run(["namespace", "check"]).ok();
}

#[test]
fn what_is_kept_can_be_changed_and_a_restored_namespace_keeps_what_fits() {
    let place = Place::empty();
    place.write(
        "millrace.toml",
        "[namespace]\nsegment_size = \"1MiB\"\nretain_bytes = \"20MiB\"\n[logs.in]\nhistory = 10\n",
    );
    place.run(["up"]).ok();
    let tail_of = |dir: &std::path::Path| {
        let files = fs::read_dir(dir.join("segments")).unwrap().flatten();
        files.filter(|file| file.file_name().to_string_lossy().parse::<u64>().is_ok()).count()
    };
    place.feed(["log", "append", "in", "--lines", "--quiet"], &lines(16)).ok();
    assert!(tail_of(&place.namespace()) >= 15);
    place.run(["namespace", "backup", "copy"]).ok();
    place.write(
        "millrace.toml",
        "[namespace]\nsegment_size = \"1MiB\"\nretain_bytes = \"4MiB\"\n[logs.in]\nhistory = 10\n",
    );
    let planned = place.run(["up", "--dry-run"]).ok();
    assert!(planned.text().contains("retain_bytes = 4 MiB (was 20 MiB)"), "{}", planned.text());
    assert!(tail_of(&place.namespace()) >= 15, "a plan changes nothing");
    place.run(["up"]).ok();
    assert!(tail_of(&place.namespace()) < 9, "{}", tail_of(&place.namespace()));
    let set = place.run(["--json", "namespace", "set", "--retain-age", "24h"]).ok().object();
    assert_eq!((&set["retain_bytes"], &set["retain_age_ms"]), (&(4 * MIB).into(), &86_400_000.into()));
    let set = place.run(["--json", "namespace", "set", "--retain-age", "none", "--retain-bytes", "2MiB"]).ok().object();
    assert_eq!((&set["retain_bytes"], set["retain_age_ms"].as_u64()), (&(2 * MIB).into(), None));
    // A running host follows, and another start finds it again.
    let host = place.serve_tcp(["--name", "farm"]);
    place.run(["namespace", "set", "--retain-bytes", "1MiB"]).ok();
    eventually("the host follows", || tail_of(&place.namespace()) < 5);
    drop(host);
    let set = place.run(["--json", "namespace", "set", "--retain-bytes", "1MiB"]).ok().object();
    assert_eq!(set["changed"], false);
    let Some(disk) = SmallDisk::new(64) else { return };
    let mut command = place.command(["--json", "namespace", "restore", "copy"]);
    command.arg(disk.path().join("restored"));
    let restored = end(command, b"").ok().object();
    assert!(restored["retain_bytes"].as_u64().unwrap() <= 16 * MIB, "{restored}");
}

#[test]
fn calls_of_persistent_objects_get_an_error_while_the_disk_is_full_and_work_again() {
    let Some(disk) = SmallDisk::new(64) else { return };
    let place = Place::within(disk.path());
    place.write("millrace.toml", "[namespace]\nsegment_size = \"1MiB\"\nretain_bytes = \"1MiB\"\n");
    place.run(["init", "--bare"]).ok();
    let host = place.serve_tcp(["--name", "farm"]);
    let address = format!("mr://127.0.0.1:{}/farm", host.port()).parse().expect("an address");
    let mut caller = Caller::new(&[address], 1, 600_000, &Options::default()).expect("the host answers");
    // 100 KB: an array of one byte string.
    let value = [&[0x91, 0xc6, 0, 1, 0x86, 0xa0][..], &vec![7; 100_000]].concat();
    let mut call = |method: &str, arguments: &[u8]| {
        caller.number += 1;
        caller.once(("AtomicBytes", "last", method), arguments, (0, 60_000))
    };
    call("set", &value).expect("there is room");
    disk.fill();
    // What was taken before the disk was full has taken effect later; what comes then is refused.
    let refused = (0..1000).find_map(|_| call("set", &value).err()).expect("the disk is full");
    assert_eq!(refused, Code::OutcomeUnknown);
    assert_eq!(call("set", &value).expect_err("it is still full"), Code::DiskFull);
    disk.empty();
    eventually("calls work again", || matches!(call("set", &value), Ok(Answer::Returned(..))));
    assert!(matches!(call("get", &[0x90]), Ok(Answer::Returned(..))));
}

#[test]
fn an_identity_of_a_device_that_cannot_be_written_takes_no_name() {
    let (place, Some(disk)) = (Place::new(), SmallDisk::new(1)) else { return };
    disk.fill();
    let file = disk.path().join("kitchen.identity");
    let args = ["device", "provision", "kitchen", "--out", file.to_str().unwrap()];
    place.run(args).fails("MR4009", 1);
    assert!(!file.exists());
    place.run(["device", "show", "kitchen"]).fails("MR6303", 1);
    disk.empty();
    place.run(args).ok();
    assert!(file.exists());
}
