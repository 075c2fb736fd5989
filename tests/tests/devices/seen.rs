//! What people see of a device that is not as it should be: its entries are refused, its runs have not come, or it was removed.

use super::{Bench, measured};
use millrace_device::{Burst, Entry, Image, crc32c};
use millrace_tests::{end, eventually};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
};

const SECTOR: usize = 4096;
const HEADER: usize = 40;
/// Length and checksum of a burst.
const HEAD: usize = 6;

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// Where the oldest sector begins.
fn oldest(flash: &[u8]) -> usize {
    Image::read(flash).unwrap().sectors[0].at
}

/// Lets newer firmware have written the flash: a run in its oldest sector has ended in a way that today's format does not have. All checksums
/// are right. The device does not read that sector at its start.
fn outdate(path: &Path) {
    let mut flash = fs::read(path).unwrap();
    let image = Image::read(&flash).unwrap();
    assert!(image.sectors.len() >= 2);
    let sector = &image.sectors[0];
    let bytes = &mut flash[sector.at..sector.at + SECTOR];
    // Each checksum begins with the one before it; that of the catalog stays.
    let mut crc = number(&bytes[HEADER + 2..]);
    let mut changed = false;
    for (begin, burst) in &sector.bursts {
        let length = usize::from(u16::from_le_bytes([bytes[*begin], bytes[begin + 1]]));
        let body = begin + HEAD..begin + HEAD + length;
        let done = burst.entries.iter().find(|entry| matches!(entry, Entry::Done { outcome: 0, .. }));
        if let (Some(done), true) = (done, !changed && *begin > SECTOR / 2) {
            let (alone, _) = Burst { ms: 0, entries: vec![done.clone()] }.write(0);
            let at = body.clone().find(|at| bytes[*at..].starts_with(&alone[HEAD + 1..])).unwrap();
            bytes[at + 1] |= 3;
            changed = true;
        }
        crc = crc32c(crc32c(crc32c(0, &crc.to_le_bytes()), &bytes[*begin..begin + 2]), &bytes[body]);
        bytes[begin + 2..begin + HEAD].copy_from_slice(&crc.to_le_bytes());
    }
    assert!(changed);
    fs::write(path, flash).unwrap();
}

#[test]
fn a_host_that_is_older_than_the_firmware_says_so_and_gets_everything_when_it_is_updated() {
    let mut bench = Bench::new();
    bench.run_alone("kitchen.flash", "--records 150");
    let path = bench.place.path().join("kitchen.flash");
    let understood = fs::read(&path).unwrap();
    outdate(&path);
    for records in [150, 155] {
        let refused = bench.run("kitchen.flash", &format!("--records {records} --patience 1"));
        assert_eq!((refused.code, refused.stderr.contains("MR2002")), (super::REFUSED, true), "{}", refused.stderr);
    }
    // What came before is here, and people see why no more comes.
    let records = || bench.place.records("kitchen/raw").len();
    let before = records();
    assert!((1..150).contains(&before), "{before}");
    let shown = bench.shown("kitchen");
    let refusal = &shown["refused"][0];
    assert_eq!(
        (&refusal["code"], &refusal["known_by"], &refusal["times"]),
        (&"MR2002".into(), &"right".into(), &2.into())
    );
    let listed = bench.place.run(["device", "ls"]).ok();
    for said in [listed, bench.place.run(["device", "show", "kitchen"]).ok()] {
        let text = said.text();
        assert!(text.contains("MR2002") && text.contains("firmware is newer"), "{text}");
        assert!(text.contains("Update Millrace on this host"), "{text}");
    }
    // The same refusal is counted, across a restart of the host, and although the device attaches.
    bench.kill();
    bench.serve();
    bench.run("kitchen.flash", "--records 155 --patience 1");
    let again = bench.shown("kitchen");
    assert_eq!(
        (again["refused"].as_array().map(Vec::len), &again["refused"][0]["times"]),
        (Some(1), &3.into()),
        "{again}"
    );
    assert_eq!(again["refused"][0]["first"], refusal["first"]);
    // The host is updated: it understands this sector. The device has measured on meanwhile.
    bench.kill();
    let (mut flash, at) = (fs::read(&path).unwrap(), oldest(&understood));
    assert_eq!(flash[at..at + HEADER], understood[at..at + HEADER]);
    flash[at..at + SECTOR].copy_from_slice(&understood[at..at + SECTOR]);
    fs::write(&path, flash).unwrap();
    bench.serve();
    bench.run("kitchen.flash", "--records 160").ok();
    bench.has("kitchen", 160);
    let shown = bench.shown("kitchen");
    assert!(shown["refused"].is_null(), "{shown}");
}

/// What is refused under a name, also if it is no device of the namespace.
fn refused(bench: &Bench, device: &str) -> Vec<Value> {
    let shown = bench.place.run(["--json", "device", "show", device]);
    if shown.code == 0 { shown.object()["refused"].as_array().cloned().unwrap_or_default() } else { Vec::new() }
}

/// The texts of `device ls` and `device show`, which both say all of this.
#[track_caller]
fn both_say(bench: &Bench, device: &str, parts: &[&str]) {
    for args in [&["device", "ls"][..], &["device", "show", device]] {
        let said = bench.place.run(args).ok();
        parts.iter().for_each(|part| assert!(said.text().contains(part), "{args:?} {part}: {}", said.text()));
    }
}

fn get(bench: &Bench, path: &str) -> Value {
    let mut curl = Command::new("curl");
    curl.arg("-sS").arg(format!("http://127.0.0.1:{}/v1/namespaces/main/{path}", bench.port));
    end(curl, b"").ok().object()
}

#[test]
fn a_second_device_of_a_name_and_an_older_flash_are_named_until_they_are_accepted() {
    let mut bench = Bench::new();
    bench.run("kitchen.flash", "--records 20").ok();
    let copy = bench.place.path().join("copy.flash");
    fs::copy(bench.place.path().join("kitchen.flash"), &copy).unwrap();
    bench.run("kitchen.flash", "--records 40").ok();
    let other = "--records 5 --identity 77aa77aa0001";
    assert_eq!(bench.run("other.flash", other).code, super::REFUSED);
    let first = refused(&bench, "kitchen");
    assert_eq!(
        (first.len(), &first[0]["code"], &first[0]["known_by"]),
        (1, &"MR6302".into(), &"right".into()),
        "{first:?}"
    );
    assert_eq!((&first[0]["identity"], &first[0]["capability"]), (&"77aa77aa0001".into(), &Value::Null), "{first:?}");
    both_say(
        &bench,
        "kitchen",
        &[
            "kitchen is refused: MR6302: device 'kitchen' is",
            "from address 127.0.0.1",
            "identity 77aa77aa0001",
            "Give the device another name",
        ],
    );
    // The one that has the name goes on, and the other one is still refused, also after a restart of the host.
    bench.run("kitchen.flash", "--records 45").ok();
    bench.kill();
    bench.serve();
    assert_eq!(bench.run("other.flash", other).code, super::REFUSED);
    let again = refused(&bench, "kitchen");
    assert!(again[0]["times"].as_u64() > first[0]["times"].as_u64(), "{again:?}");
    assert_eq!((again.len(), &again[0]["first"]), (1, &first[0]["first"]), "{again:?}");
    // The remedy: a name of its own.
    bench.run("other.flash", &format!("{other} --name cellar")).ok();
    assert_eq!(refused(&bench, "kitchen"), Vec::<Value>::new());
    // An older copy of the flash has the same identity: it is refused until the device itself comes again.
    assert_eq!(bench.run("copy.flash", "--records 25").code, super::REFUSED);
    let older = refused(&bench, "kitchen");
    assert_eq!((older.len(), &older[0]["code"]), (1, &"MR6300".into()), "{older:?}");
    both_say(
        &bench,
        "kitchen",
        &["kitchen is refused: MR6300: device 'kitchen' has sent entries up to", "erase the flash of one"],
    );
    assert_eq!(get(&bench, "devices/kitchen")["refused"], Value::from(older.clone()));
    assert_eq!(get(&bench, "devices")["refused"], Value::from(older));
    // The remedy: an erased flash, another identity and name.
    fs::remove_file(&copy).unwrap();
    bench.run("copy.flash", "--records 5 --identity 77aa77aa0002 --name attic").ok();
    assert_eq!(refused(&bench, "kitchen").len(), 1);
    bench.run("kitchen.flash", "--records 50").ok();
    assert!(bench.shown("kitchen")["refused"].is_null());
    bench.has("kitchen", 50);
}

#[test]
fn a_device_without_the_right_capability_is_named_as_what_it_says_to_be() {
    let bench = Bench::new();
    let place = &bench.place;
    let issue = |name: &str, more: &[&str]| {
        let file = format!("{name}.cap");
        place.run(["--json", "cap", "issue", "--out", &file].iter().chain(more)).ok();
        place.run(["--json", "cap", "show", &file]).ok().object()
    };
    issue("cellar", &["--allow", "append=cellar/", "--allow", "create=cellar/"]);
    let kitchen = |cap: &str, records: u64| {
        let more = format!("--records {records} --capability {cap}.cap --patience 1");
        bench.run("kitchen.flash", &more)
    };
    assert_eq!(kitchen("cellar", 5).code, super::REFUSED);
    let claimed = refused(&bench, "kitchen");
    assert_eq!(
        (claimed.len(), &claimed[0]["code"], &claimed[0]["known_by"]),
        (1, &"MR6132".into(), &"claim".into()),
        "{claimed:?}"
    );
    both_say(
        &bench,
        "kitchen",
        &[
            "a device that calls itself kitchen is refused: MR6132",
            "with capability",
            "millrace cap issue --allow append=kitchen/",
        ],
    );
    // It is no device, and its claim is no fact.
    assert_eq!(get(&bench, "devices")["devices"], Value::Array(Vec::new()));
    let unknown = get(&bench, "devices/kitchen")["error"].clone();
    assert_eq!(unknown["code"], "MR6303");
    assert!(unknown["detail"].as_str().unwrap().contains("one that uses this name was refused: MR6132"), "{unknown}");
    // Whatever names it uses, it fills no list.
    for number in 0..6 {
        let more =
            format!("--records 1 --name n{number} --identity 77aa77aa000{number} --capability cellar.cap --patience 1");
        assert_eq!(bench.run(&format!("n{number}.flash"), &more).code, super::REFUSED);
    }
    assert_eq!(get(&bench, "devices")["refused"].as_array().map(Vec::len), Some(4));
    // The device itself: a capability that does not permit to create its logs, and then the one that the remedy says.
    issue("half", &["--allow", "append=kitchen/"]);
    for _ in 0..2 {
        assert_eq!(kitchen("half", 5).code, super::REFUSED);
    }
    let half = refused(&bench, "kitchen");
    assert_eq!((&half[0]["code"], &half[0]["known_by"]), (&"MR6132".into(), &"right".into()), "{half:?}");
    assert!(half[0]["times"].as_u64() > Some(1), "{half:?}: that it attaches is not enough");
    issue("whole", &["--allow", "append=kitchen/", "--allow", "create=kitchen/"]);
    kitchen("whole", 5).ok();
    assert_eq!(refused(&bench, "kitchen"), Vec::<Value>::new());
    // One that has expired.
    issue("brief", &["--allow", "append=kitchen/", "--expires", "1s"]);
    eventually("the capability has expired", || kitchen("brief", 6).code == super::REFUSED);
    let expired = refused(&bench, "kitchen");
    assert!(expired[0]["detail"].as_str().unwrap().contains("not valid at this time"), "{expired:?}");
    // One that was revoked proves nothing: only its id says whose it was.
    kitchen("whole", 7).ok();
    assert_eq!(refused(&bench, "kitchen"), Vec::<Value>::new());
    place.run(["cap", "revoke", "--file", "whole.cap"]).ok();
    assert_eq!(kitchen("whole", 8).code, super::REFUSED);
    eventually("the refusal is noted", || !refused(&bench, "kitchen").is_empty());
    let revoked = refused(&bench, "kitchen");
    assert_eq!((&revoked[0]["code"], &revoked[0]["known_by"]), (&"MR6138".into(), &"capability".into()), "{revoked:?}");
    both_say(
        &bench,
        "kitchen",
        &["a connection that names the capability of kitchen, and proves nothing, is refused: MR6138"],
    );
    // One that no device had makes no line.
    issue("unknown", &["--allow", "append=pantry/", "--allow", "create=pantry/"]);
    place.run(["cap", "revoke", "--file", "unknown.cap"]).ok();
    let unknown = bench
        .run("pantry.flash", "--records 1 --name pantry --identity 77aa77aa0009 --capability unknown.cap --patience 1");
    assert_eq!(unknown.code, super::REFUSED);
    issue("again", &["--allow", "append=kitchen/", "--allow", "create=kitchen/"]);
    kitchen("again", 9).ok();
    assert_eq!(refused(&bench, "kitchen"), Vec::<Value>::new());
    place.run(["device", "show", "pantry"]).fails("MR6303", 1);
    // `rm` forgets what was refused, also of a name that is no device.
    let named = refused(&bench, "n5");
    assert_eq!(named.len(), 1);
    place.run(["device", "rm", "n5"]).ok();
    place.run(["device", "show", "n5"]).fails("MR6303", 1);
    place.run(["device", "rm", "n5"]).fails("MR6303", 1);
}

/// What a device has not run, as `why` says it.
fn pending(bench: &Bench, target: &[&str]) -> Vec<Value> {
    let why = bench.place.run(["--json", "why"].iter().chain(target)).ok().object();
    let reasons = why["reasons"].as_array().unwrap().iter();
    reasons.filter(|reason| reason["reason"] == "on_device").cloned().collect()
}

#[test]
fn a_record_whose_run_has_not_come_is_named_until_it_comes() {
    let bench = Bench::new();
    // Most bursts end behind a record whose run did not fit in. The line breaks later and later, until it does so behind such a burst.
    bench.run_alone("kitchen.flash", "--records 100");
    let waiting = (600..9000).step_by(200).find_map(|cut| {
        bench.run("kitchen.flash", &format!("--records 100 --cut-line {cut} --patience 1"));
        pending(&bench, &[]).pop()
    });
    let waiting = waiting.expect("a burst ends between a record and its run");
    let raw = bench.place.records("kitchen/raw").len() as u64;
    let runs = bench.place.run(["--json", "run", "ls", "--function", "kitchen.mean", "--last", "1"]).ok().object();
    let from = runs["seqno"].as_u64().unwrap() + 1;
    assert_eq!(waiting["device"], "kitchen");
    assert_eq!((&waiting["log"], &waiting["from"]), (&"kitchen/raw".into(), &from.into()), "{waiting}");
    assert_eq!(waiting["records"], raw + 1 - from, "{waiting}");
    let said = format!("from {from} on: it runs on device kitchen");
    let places: [&[&str]; 6] = [
        &["run", "ls"],
        &["run", "ls", "--state", "pending"],
        &["run", "ls", "--log", "kitchen/raw"],
        &["device", "show", "kitchen"],
        &["why", "kitchen/raw"],
        &["why"],
    ];
    for args in places {
        let text = bench.place.run(args).ok();
        assert!(text.text().contains(&said), "{args:?}: {}", text.text());
    }
    for args in [&["run", "ls", "--state", "done"][..], &["run", "ls", "--log", "kitchen/mean"]] {
        assert!(!bench.place.run(args).ok().text().contains("it runs on"), "{args:?}");
    }
    bench.run("kitchen.flash", "--records 100").ok();
    assert!(pending(&bench, &["kitchen.mean"]).is_empty() && pending(&bench, &["kitchen/raw"]).is_empty());
    bench.has("kitchen", 100);
}

/// What the host has counted since its start: how many records flowed between the function `mean` and a log, and which way.
fn flowed(bench: &Bench, kind: &str, log: &str) -> u64 {
    let mut connection = TcpStream::connect(format!("127.0.0.1:{}", bench.port)).unwrap();
    let request = "GET /v1/namespaces/main/flows HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let flows: Value = serde_json::from_str(&answer[answer.find('{').expect("JSON")..]).unwrap();
    let edges = flows["edges"].as_array().unwrap().iter();
    let found = edges.filter(|edge| edge["kind"] == kind && edge["log"] == log && edge["function"] == "kitchen.mean");
    found.map(|edge| edge["records"].as_u64().unwrap()).sum()
}

#[test]
fn the_runs_of_a_device_are_counted_once_as_what_flows() {
    let bench = Bench::new();
    bench.run_alone("kitchen.flash", "--records 60");
    // What a broken connection repeats is not counted again.
    for cut in (600..4000).step_by(500) {
        bench.run("kitchen.flash", &format!("--records 60 --cut-line {cut} --patience 1"));
    }
    bench.run("kitchen.flash", "--records 60").ok();
    bench.has("kitchen", 60);
    assert_eq!((flowed(&bench, "runs", "kitchen/raw"), flowed(&bench, "appends", "kitchen/mean")), (60, 60));
    assert!(flowed(&bench, "reads", "kitchen/raw") > 60);
}

#[test]
fn the_functions_of_a_device_that_was_removed_are_named_and_can_be_removed() {
    let bench = Bench::new();
    let place = &bench.place;
    bench.run("kitchen.flash", "--records 10").ok();
    bench.run("cellar.flash", "--records 10 --name cellar --identity 77aa77aa0001").ok();
    let removed = place.run(["device", "rm", "kitchen"]).ok();
    let said = "its function kitchen.mean stays with its runs, and nothing runs it; `millrace function rm kitchen.mean` removes it";
    assert!(removed.text().contains(said), "{}", removed.text());
    assert!(!removed.text().contains("cellar"), "{}", removed.text());
    // Its history is what it was.
    assert_eq!(place.records("kitchen/raw"), (1..=10).map(measured).collect::<Vec<_>>());
    let runs = place.run(["--json", "run", "ls", "--function", "kitchen.mean"]).ok().objects();
    assert_eq!(runs.len(), 10);
    let listed = place.run(["function", "ls"]).ok();
    let line = |name: &str| listed.text().lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("kitchen.mean").contains("nothing runs it: device kitchen was removed"), "{}", listed.text());
    assert!(line("cellar.mean").contains("runs on devices of model cellar"), "{}", listed.text());
    let why = place.run(["why", "kitchen.mean"]).ok();
    assert!(
        why.text().contains("does not know any more") && why.text().contains("function rm kitchen.mean"),
        "{}",
        why.text()
    );
    place.run(["function", "rm", "kitchen.mean"]).ok();
    assert!(!place.run(["function", "ls"]).ok().text().contains("kitchen.mean"));
    assert_eq!(place.records("kitchen/mean").len(), 10);
    let json = place.run(["--json", "device", "rm", "cellar"]).ok().object();
    assert_eq!(json["functions"], serde_json::json!(["cellar.mean"]), "{json}");
}
