//! `millrace device provision`, `flash-image` and `dump`: a new device, from its identity to what its flash has.

use super::{Bench, REFUSED, measured};
use millrace_tests::eventually;
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt};

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn a_device_is_what_it_was_provisioned_as_until_it_is_removed() {
    let bench = Bench::new();
    let place = &bench.place;
    let host = format!("127.0.0.1:{}", bench.port);
    let made = place.run(["--json", "device", "provision", "kitchen", "--host", &host]).ok().object();
    assert_eq!((&made["device"], &made["host"], &made["capability"]), (&"kitchen".into(), &host.into(), &true.into()));
    let file = place.path().join("kitchen.identity");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    place.run(["device", "provision", "kitchen", "--out", "again"]).fails("MR6341", 1);
    assert!(!place.path().join("again").exists());
    for (name, code, exit) in [("a/b", "MR1002", 2), ("_own", "MR1002", 2), (&*"n".repeat(65), "MR1002", 2)] {
        place.run(["device", "provision", name, "--out", "odd"]).fails(code, exit);
    }
    place.run(["device", "provision", "cellar", "--host", "nowhere"]).fails("MR1006", 2);
    assert_eq!(
        bench.shown("kitchen")["namespace"].as_u64().map(|id| format!("{id:012x}")).as_deref(),
        made["namespace"].as_str()
    );
    // Nobody else can be this device: neither under its name, nor with its identity under another name.
    let other = bench.run("other.flash", "--records 5 --name kitchen --identity 77aa77aa0001");
    assert_eq!((other.code, other.stderr.contains("MR6302")), (REFUSED, true), "{}", other.stderr);
    let twin = format!("--records 5 --name cellar --identity {}", made["namespace"].as_str().unwrap());
    let twin = bench.run("twin.flash", &twin);
    assert_eq!((twin.code, twin.stderr.contains("MR6302")), (REFUSED, true), "{}", twin.stderr);
    bench.run("kitchen.flash", "--provisioned kitchen.identity --records 20").ok();
    bench.has("kitchen", 20);
    // The namespace keeps a capability for the device, and not its key.
    let identity = fs::read(&file).unwrap();
    let kept = fs::read(place.namespace().join("secrets/devices/kitchen.capability")).unwrap();
    assert!(!identity.windows(32).any(|part| kept.windows(32).any(|other| part == other)), "a key was kept");
    place.run(["device", "send", "kitchen", "config", "for this one"]).ok();
    place.run(["device", "rm", "kitchen"]).ok();
    assert!(!place.namespace().join("secrets/devices/kitchen.capability").exists());
    let ended = bench.run("kitchen.flash", "--provisioned kitchen.identity --records 30 --patience 1");
    assert_eq!((ended.code, ended.stderr.contains("MR6138")), (REFUSED, true), "{}", ended.stderr);
    // It is removed, and whose capability knocks is still known.
    eventually("the refusal is noted", || {
        let listed = place.run(["device", "ls"]).ok();
        listed
            .text()
            .contains("a connection that names the capability of kitchen, and proves nothing, is refused: MR6138")
    });
    // Its logs still have records.
    place.run(["device", "provision", "kitchen", "--out", "again"]).fails("MR6302", 1);
    for log in ["raw", "mean"] {
        place.run(["log", "rm", &format!("kitchen/{log}")]).ok();
    }
    // The next one of this name gets no command of the one before.
    place.run(["device", "provision", "kitchen", "--out", "again"]).ok();
    assert_eq!(bench.shown("kitchen")["commands_waiting"], 0);
    place.run(["device", "send", "kitchen", "config", "for the next one"]).ok();
    bench.run("next.flash", "--provisioned again --records 5 --linger 1500").ok();
    assert_eq!(place.records("kitchen/config"), ["for the next one"]);
}

#[test]
fn an_image_has_the_identity_twice_and_what_is_no_identity_is_refused() {
    let bench = Bench::new();
    let place = &bench.place;
    place.run(["device", "provision", "kitchen"]).ok();
    let image = |more: &[&str]| {
        let args = ["device", "flash-image", "kitchen.identity", "--out", "kitchen.img"];
        place.run(args.iter().chain(more))
    };
    let made = image(&["--sector-bytes", "2048", "--journal-sectors", "8"]).ok();
    assert!(
        made.text().contains("20,480 bytes") && made.text().contains("8 sectors from 0x1000 on"),
        "{}",
        made.text()
    );
    image(&[]).fails("MR4009", 1);
    let path = place.path().join("kitchen.img");
    let mut bytes = fs::read(&path).unwrap();
    let identity = fs::read(place.path().join("kitchen.identity")).unwrap();
    assert!(
        bytes.starts_with(&identity)
            && bytes[2048..].starts_with(&identity)
            && bytes[4096..].iter().all(|byte| *byte == 0xff)
    );
    // The second one is read if the first one is damaged.
    bytes[20] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(place.run(["--json", "device", "dump", "kitchen.img"]).ok().objects()[0]["device"], "kitchen");
    bytes[2048 + 20] ^= 1;
    fs::write(&path, &bytes).unwrap();
    place.run(["device", "dump", "kitchen.img"]).fails("MR6344", 1);
    fs::remove_file(&path).unwrap();
    image(&["--sector-bytes", "1000"]).fails("MR1006", 2);
    place.write("kitchen.identity", "something else");
    image(&[]).fails("MR6340", 1);
    let refused = bench.run("kitchen.flash", "--provisioned kitchen.identity --records 1");
    assert_eq!((refused.code, refused.stderr.contains("MR6340")), (2, true), "{}", refused.stderr);
}

#[test]
fn a_dump_has_every_record_and_says_what_is_torn_or_damaged() {
    let bench = Bench::new();
    let place = &bench.place;
    bench.run_alone("kitchen.flash", "--records 40");
    let dump = |image: &str, more: &[&str]| place.run(["--json", "device", "dump", image].iter().chain(more));
    let lines = dump("kitchen.flash", &[]).ok().objects();
    let records = |lines: &[Value]| -> Vec<String> {
        let raw = of_kind(lines, "record").into_iter().filter(|line| line["log"] == "raw");
        raw.map(|line| line["data"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(records(&lines), (1..=40).map(measured).collect::<Vec<_>>());
    assert_eq!(of_kind(&lines, "end").len(), 40, "the runs");
    assert_eq!(of_kind(&lines, "start").len(), 1);
    assert!(of_kind(&lines, "sector").iter().all(|sector| sector["torn_at"].is_null()), "{lines:?}");
    assert_eq!(dump("kitchen.flash", &["--log", "mean"]).ok().objects().len(), 40);
    assert!(dump("kitchen.flash", &["--sectors"]).ok().objects().iter().all(|line| line["kind"] != "record"));
    let refused = |args: &[&str], code: &str| place.run(["device", "dump"].iter().chain(args)).fails(code, 1);
    refused(&["kitchen.flash", "--log", "cellar"], "MR2101");
    // The same, read by people.
    let text = place.run(["device", "dump", "kitchen.flash"]).ok();
    assert!(
        text.text().contains("raw@40  21.80\n") && text.text().contains("run of mean for raw@40: done"),
        "{}",
        text.text()
    );
    // A flash operation is interrupted; what it left is shown, and so is the next start.
    let mut torn = 0;
    for cut in 1..6 {
        let end = bench.run("kitchen.flash", &format!("--records {} --cut-power {cut} --way 0", 60 + cut));
        assert_eq!(end.code, super::POWER_LOST, "{}", end.stderr);
        let lines = dump("kitchen.flash", &["--sectors"]).ok().objects();
        torn += of_kind(&lines, "sector").iter().filter(|sector| !sector["torn_at"].is_null()).count();
    }
    assert!(torn > 0);
    // The catalog of a sector is damaged: the sector is left out, and the others remain.
    let path = place.path().join("kitchen.flash");
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    place.write("damaged.flash", "");
    fs::write(place.path().join("damaged.flash"), &bytes).unwrap();
    let lines = dump("damaged.flash", &["--sectors"]).ok().objects();
    assert_eq!(
        of_kind(&lines, "damaged").iter().map(|line| &line["at"]).collect::<Vec<_>>(),
        [&Value::from(0)],
        "{lines:?}"
    );
    // Firmware of a later format wrote it.
    let mut newer = fs::read(&path).unwrap();
    for sector in newer.chunks_mut(4096).filter(|sector| sector.starts_with(b"MRDJ")) {
        sector[4] = 2;
        let crc = millrace_device::crc32c(0, &sector[..36]);
        sector[36..40].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(place.path().join("newer.flash"), &newer).unwrap();
    refused(&["newer.flash"], "MR2002");
    let older = bench.run("newer.flash", "--records 61");
    assert_eq!((older.code, older.stderr.contains("MR2002")), (1, true), "{}", older.stderr);
    place.write("text", "no image");
    refused(&["text"], "MR6344");
    refused(&["none"], "MR4010");
}

#[test]
fn a_device_can_have_the_longest_name_and_what_cannot_be_kept_takes_no_name() {
    let bench = Bench::new();
    let place = &bench.place;
    let provision = |name: &str, more: &[&str]| place.run(["device", "provision", name].iter().chain(more));
    let longest = "n".repeat(64);
    let host = format!("127.0.0.1:{}", bench.port);
    provision(&longest, &["--host", &host]).ok();
    bench.run("long.flash", &format!("--records 3 --provisioned {longest}.identity")).ok();
    bench.has(&longest, 3);
    for name in ["n".repeat(65), "n".repeat(300), "a b".into()] {
        provision(&name, &[]).fails("MR1002", 2);
    }
    for host in ["localhost", "localhost:+7070", "localhost:0", &format!("{}:7070", "h".repeat(123))] {
        provision("kitchen", &["--host", host]).fails("MR1006", 2);
    }
    // A file that exists already.
    provision("kitchen", &["--out", "/proc/self/comm"]).fails("MR4009", 1);
    provision("kitchen", &["--host", &host]).ok();
}
