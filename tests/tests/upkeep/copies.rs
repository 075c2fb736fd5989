//! Backups of a namespace in use, what is restored of them, and what is saved of a damaged namespace.

use super::{copy_as_smaller, copying, copying_as_larger, flip};
use millrace_node::{Code, upkeep};
use millrace_tests::{Host, Place, end, raw};
use millrace_wire::protocol::{Append, Appended, Failure};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn numbers(upto: usize) -> Vec<String> {
    (1..=upto).map(|n| n.to_string()).collect()
}

/// A place beside another, which uses a namespace by `-n`.
fn object(place: &Place, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    place.run(all).ok().object()
}

#[test]
fn a_backup_of_a_busy_namespace_is_a_prefix_and_restores_as_another_namespace() {
    let place = copying();
    let host = place.serve();
    let lines: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    let writer = {
        let command = place.command(["log", "append", "in", "--lines", "--quiet"]);
        std::thread::spawn(move || end(command, lines.as_bytes()))
    };
    let mut backups = Vec::new();
    for n in 0..3 {
        let name = format!("backup-{n}");
        let made = object(&place, &["namespace", "backup", &name]);
        assert!(made["bytes"].as_u64().unwrap() > 0 && made["functions"] == 1, "{made}");
        backups.push(name);
    }
    writer.join().unwrap().ok();
    backups.push("backup-all".into());
    object(&place, &["namespace", "backup", "backup-all"]);
    let mut before = 0;
    for name in &backups {
        let to = format!("restored-{name}");
        let restored = object(&place, &["namespace", "restore", name, &to]);
        assert_ne!(restored["namespace"], restored["from"]["namespace"]);
        assert_eq!(restored["epoch"].as_u64().unwrap(), restored["from"]["epoch"].as_u64().unwrap() + 1);
        let found = object(&place, &["namespace", "check", &to]);
        assert_eq!((&found["sound"], &found["lineage"]), (&json!(true), &json!([restored["from"]["namespace"]])));
        let records =
            |log: &str| -> Vec<Value> { place.run(["--json", "-n", &to, "log", "get", log, "--all"]).ok().objects() };
        let data = |records: &[Value]| -> Vec<String> {
            records.iter().map(|record| record["data"].as_str().unwrap().to_owned()).collect()
        };
        let taken = records("in");
        assert_eq!(data(&taken), numbers(taken.len()), "a prefix");
        assert!(taken.len() >= before, "a later backup has less");
        before = taken.len();
        // Old events keep their ids; new ones cannot be mistaken for the original's.
        if let Some(first) = taken.first() {
            let original = object(&place, &["log", "get", "in", "1"]);
            assert_eq!(first["id"], original["id"]);
        }
        place.run(["-n", &to, "log", "append", "in", "new"]).ok();
        let newest = object(&place, &["-n", &to, "log", "get", "in"]);
        assert!(newest["id"].as_str().unwrap().starts_with(restored["namespace"].as_str().unwrap()), "{newest}");
    }
    assert_eq!(before, 3000);
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    // The function's code came along, and what was pending runs.
    let few = Place::empty();
    let from = place.path().join("backup-0");
    few.run(["namespace", "restore", from.to_str().unwrap(), ".millrace"]).ok();
    let _host = few.serve();
    few.idle();
    assert_eq!(few.records("out"), few.records("in"));
}

#[test]
fn pending_runs_of_a_backup_run_before_later_ones() {
    let place = copying_as_larger();
    let append = |place: &Place, n: usize| drop(place.run(["log", "append", "in", &n.to_string()]).ok());
    (1..=5).for_each(|n| append(&place, n));
    object(&place, &["namespace", "backup", "b"]);
    for make in [&["namespace", "restore", "b"][..], &["namespace", "check", "b", "--salvage"]] {
        copy_as_smaller(&place, make, "made");
        let copy = Place::empty();
        fs::rename(place.path().join("made"), copy.namespace()).unwrap();
        (6..=8).for_each(|n| append(&copy, n));
        let runs = copy.run(["--json", "run", "ls"]).ok().objects();
        let newest_first: Vec<u64> = runs.iter().map(|run| run["seqno"].as_u64().unwrap()).collect();
        assert_eq!(newest_first, [8, 7, 6, 5, 4, 3, 2, 1]);
        let _host = copy.serve();
        copy.idle();
        assert_eq!(copy.records("out"), numbers(8));
    }
}

#[test]
fn a_backup_that_is_not_whole_is_refused_and_nothing_is_written_over() {
    let place = copying();
    place.run(["log", "append", "in", "x"]).ok();
    place.run(["namespace", "backup", "b"]).ok();
    place.run(["namespace", "backup", "b"]).fails("MR2006", 1);
    place.run(["namespace", "restore", "b", ".millrace"]).fails("MR2006", 1);
    place.run(["namespace", "restore", "nothing", "r"]).fails("MR4024", 1);
    place.run(["-n", "b", "log", "ls"]).fails("MR2001", 1);
    let mut files = Vec::new();
    list(place.path().join("b"), &mut files);
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let good = fs::read(&file).unwrap();
        for at in [0, good.len() / 2, good.len() - 1] {
            flip(&file, at);
            let said = place.run(["namespace", "restore", "b", "r"]);
            assert!(said.code == 1 && said.stderr.starts_with("error[MR4024]"), "{} {at}: {said:#?}", file.display());
            fs::write(&file, &good).unwrap();
        }
        fs::remove_file(&file).unwrap();
        place.run(["namespace", "restore", "b", "r"]).fails("MR4024", 1);
        assert!(!place.path().join("r").exists());
        fs::write(&file, &good).unwrap();
        if file.ends_with("copy.sh") {
            place
                .write(file.strip_prefix(place.path()).unwrap().to_str().unwrap(), std::str::from_utf8(&good).unwrap());
        }
    }
    place.run(["namespace", "restore", "b", "r"]).ok();
    assert_eq!(object(&place, &["-n", "r", "log", "get", "in"])["data"], "x");
    let left: Vec<String> =
        fs::read_dir(place.path()).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into()).collect();
    assert!(!left.iter().any(|name| name.contains("partial")), "{left:?}");
}

/// By the library, which is quick enough to try each byte.
#[test]
fn every_byte_of_a_backup_counts() {
    let place = copying();
    for n in 0..20 {
        place.run(["log", "append", "in", &format!("record {n} {}", "x".repeat(500))]).ok();
    }
    place.run(["namespace", "backup", "b"]).ok();
    let (from, to) = (place.path().join("b"), place.path().join("r"));
    let restore = || upkeep::restore(&from, &to, &mut |_, _| {});
    let refused = |what: &str| {
        let error = restore().map(drop).expect_err(what);
        // The head's own version may be what was hit.
        let codes = [Code::BackupDamaged, Code::FormatVersion];
        assert!(codes.contains(&error.code()) && !to.exists(), "{what}: {error}");
    };
    let mut files = Vec::new();
    list(from.clone(), &mut files);
    let mut tried = 0;
    for file in files {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        let good = fs::read(&file).unwrap();
        let name = file.strip_prefix(&from).unwrap().display().to_string();
        let step = if good.len() > 8192 { good.len() / 400 } else { 1 };
        for at in (0..good.len()).step_by(step) {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&file, &bytes).unwrap();
            refused(&format!("byte {at} of {name}"));
            tried += 1;
        }
        for length in [0, good.len() / 2, good.len() - 1] {
            fs::write(&file, &good[..length]).unwrap();
            refused(&format!("{name} cut to {length}"));
        }
        fs::write(&file, [&good[..], b"\n"].concat()).unwrap();
        refused(&format!("{name} and a byte more"));
        fs::remove_file(&file).unwrap();
        refused(&format!("{name} left out"));
        fs::write(&file, &good).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    }
    println!("{tried} bytes");
    restore().unwrap();
    assert_eq!(object(&place, &["-n", "r", "log", "stat", "in"])["latest"], 20);
}

fn list(dir: PathBuf, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() { list(entry.path(), files) } else { files.push(entry.path()) }
    }
}

#[test]
fn streams_of_a_restored_namespace_stay_stopped_until_the_operator_decides() {
    let place = Place::new();
    for n in 1..=3 {
        place.run(["log", "append", "mr://127.0.0.1:9/edge/raw", &n.to_string()]).ok();
    }
    place.run(["log", "create", "here"]).ok();
    place.run(["relay", "add", "here", "mr://127.0.0.1:9/edge/there"]).ok();
    place.run(["namespace", "backup", "b"]).ok();
    place.run(["namespace", "restore", "b", "r"]).ok();
    for kind in ["outbox", "relay"] {
        let link = object(&place, &["-n", "r", kind, "ls"]);
        assert!(link.to_string().contains("MR4026"), "{link}");
        let original = object(&place, &[kind, "ls"]);
        assert!(!original.to_string().contains("MR4026"), "{original}");
    }
    let peer = object(&place, &["-n", "r", "outbox", "ls"])["name"].as_str().unwrap().to_owned();
    place.run(["-n", "r", "outbox", "reset", &peer, "--resend"]).ok();
    let relay = object(&place, &["-n", "r", "relay", "ls"])["name"].as_str().unwrap().to_owned();
    place.run(["-n", "r", "relay", "resume", &relay]).ok();
    for kind in ["outbox", "relay"] {
        let link = object(&place, &["-n", "r", kind, "ls"]);
        assert!(!link.to_string().contains("MR4026"), "{link}");
    }
}

#[test]
fn damage_is_reported_the_rest_salvaged_and_the_original_unchanged() {
    let place = copying();
    place.run(["log", "create", "plain"]).ok();
    for n in 1..=5 {
        place.run(["log", "append", "plain", &format!("a record, number {n}")]).ok();
    }
    place.run(["log", "append", "in", "to run"]).ok();
    let segment = place.namespace().join("segments/0000000000");
    let bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(18).position(|window| window == b"a record, number 3").unwrap();
    flip(&segment, at);
    let damaged = fs::read(&segment).unwrap();
    let said = place.run(["--json", "namespace", "check"]);
    assert_eq!(said.code, 1, "{said:#?}");
    let found = said.object();
    assert_eq!(found["sound"], false);
    assert_eq!(found["lost"], json!([{ "log": "plain", "from": 3, "to": 3, "reason": "damaged" }]), "{found}");
    assert_eq!(found["damaged"].as_array().unwrap().len(), 1, "{found}");
    let text = place.run(["namespace", "check"]);
    assert!(text.code == 1 && text.text().contains("record 3 of log 'plain': damaged"), "{text:#?}");
    // Without a clean end, nothing opens it any more, and the way out is told.
    fs::remove_file(place.namespace().join("index/arena")).unwrap();
    let said = place.run(["log", "ls"]).fails("MR2030", 1);
    assert!(said.stderr.contains("namespace check DIR --salvage TO") && said.stderr.contains("segments/0000000000"));
    let saved = object(&place, &["namespace", "check", "--salvage", "saved"]);
    assert_eq!(saved["lost"], found["lost"]);
    assert_eq!(fs::read(&segment).unwrap(), damaged);
    place.run(["namespace", "check", "--salvage", "saved"]).fails("MR2006", 1);
    // The copy is whole, and remembers what it lacks.
    let again = object(&place, &["namespace", "check", "saved"]);
    assert_eq!(
        (&again["sound"], &again["lost"], &again["missing"]),
        (&json!(true), &json!([]), &found["lost"]),
        "{again}"
    );
    let text = place.run(["namespace", "check", "saved"]).ok();
    assert!(text.text().contains("missing    record 3 of log 'plain'"), "{text:#?}");
    assert!(text.text().contains("are correct; 1 record lost when it was salvaged"), "{text:#?}");
    let other = Place::empty();
    fs::rename(place.path().join("saved"), other.namespace()).unwrap();
    for n in [1, 2, 4, 5] {
        let record = object(&other, &["log", "get", "plain", &n.to_string()]);
        assert_eq!(record["data"], format!("a record, number {n}"));
    }
    other.run(["log", "get", "plain", "3"]).fails("MR2010", 1);
    let _host = other.serve();
    other.idle();
    assert_eq!(other.records("out"), ["to run"]);
    other.run(["namespace", "check", "--salvage", "more"]).fails("MR4023", 1);
    // Verified as it stands while it is in use.
    other.run(["namespace", "check"]);
}

/// A key that may have been used is never taken for a new one, until somebody goes on without what is lost.
#[test]
fn keyed_appends_continue_in_a_salvaged_namespace_that_lost_keys() {
    let place = copying();
    place.run(["log", "create", "plain"]).ok();
    let append = |host: &Host, key: &str| -> Result<u64, String> {
        let mut client = raw::Client::connect(host.port());
        client.send(7, &Append { log: "plain", data: key.as_bytes(), key: Some(key), ..Append::default() });
        client.next(|frame| match frame.message::<Appended>() {
            Ok(appended) => Ok(appended.seqno),
            Err(_) => Err(frame.message::<Failure<'_>>().unwrap().code.to_owned()),
        })
    };
    let end = |host: Host| {
        host.signal("TERM");
        assert_eq!(host.ended(), 0);
    };
    let host = place.serve_tcp([] as [&str; 0]);
    for (n, key) in ["first", "second", "third"].into_iter().enumerate() {
        assert_eq!(append(&host, key), Ok(n as u64 + 1));
    }
    end(host);
    let segment = place.namespace().join("segments/0000000000");
    let bytes = fs::read(&segment).unwrap();
    let row = b"{\"key\":\"second\"";
    flip(&segment, bytes.windows(row.len()).position(|window| window == row).unwrap());
    let host = place.serve_tcp([] as [&str; 0]);
    assert_eq!(append(&host, "fourth"), Err("MR2010".into()));
    end(host);
    let saved = object(&place, &["namespace", "check", "--salvage", "saved"]);
    assert_eq!(saved["lost"], json!([{ "log": "_keys", "from": 2, "to": 2, "reason": "damaged" }]), "{saved}");
    let other = Place::empty();
    fs::rename(place.path().join("saved"), other.namespace()).unwrap();
    let host = other.serve_tcp([] as [&str; 0]);
    assert_eq!(append(&host, "fourth"), Ok(4));
    assert_eq!((append(&host, "first"), append(&host, "third")), (Ok(1), Ok(3)), "as they were answered");
    assert_eq!(append(&host, "second"), Ok(5), "its key is not known any more");
}

#[test]
fn a_salvaged_copy_distinguishes_missing_records_from_later_losses() {
    let place = Place::new();
    place.run(["log", "create", "plain"]).ok();
    for n in 1..=9 {
        place.run(["log", "append", "plain", &format!("a record, number {n}")]).ok();
    }
    let spoil = |namespace: &Path, n: u64| {
        let segments = fs::read_dir(namespace.join("segments")).unwrap().flatten().map(|entry| entry.path());
        let newest = segments.filter(|path| !path.to_string_lossy().contains("spare")).max().unwrap();
        let (bytes, text) = (fs::read(&newest).unwrap(), format!("a record, number {n}"));
        flip(&newest, bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap());
    };
    let gap = |from: u64, to: u64| json!({ "log": "plain", "from": from, "to": to, "reason": "damaged" });
    [3, 4].iter().for_each(|n| spoil(&place.namespace(), *n));
    object(&place, &["namespace", "check", "--salvage", "one"]);
    // Right beside what was lost before, and elsewhere.
    [5, 7].iter().for_each(|n| spoil(&place.path().join("one"), *n));
    let said = place.run(["--json", "namespace", "check", "one"]);
    let found = said.object();
    assert_eq!((said.code, &found["missing"]), (1, &json!([gap(3, 4)])), "{found}");
    assert_eq!(found["lost"], json!([gap(5, 5), gap(7, 7)]), "{found}");
    // Of a copy of the copy, all of it is known.
    object(&place, &["namespace", "check", "one", "--salvage", "two"]);
    let found = object(&place, &["namespace", "check", "two"]);
    assert_eq!((&found["sound"], &found["lost"]), (&json!(true), &json!([])), "{found}");
    let missing: u64 = found["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lost| lost["to"].as_u64().unwrap() - lost["from"].as_u64().unwrap() + 1)
        .sum();
    assert_eq!(missing, 4, "{found}");
    assert_eq!(object(&place, &["-n", "two", "log", "get", "plain", "6"])["data"], "a record, number 6");
}

#[test]
fn a_namespace_without_its_manifest_is_saved_with_all_that_the_segments_know() {
    let place = copying();
    for n in 1..=5 {
        place.run(["log", "append", "in", &n.to_string()]).ok();
    }
    let host = place.serve();
    place.idle();
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    place.run(["log", "append", "in", "pending"]).ok();
    let newest = object(&place, &["log", "get", "in"]);
    let manifest = place.namespace().join("manifest");
    let good = fs::read(&manifest).unwrap();
    flip(&manifest, good.len() / 2);
    let said = place.run(["log", "ls"]).fails("MR2003", 1);
    assert!(said.stderr.contains("namespace check DIR --salvage TO"), "{said:#?}");
    let dir = place.namespace();
    let dir = dir.to_str().unwrap();
    let text = place.run(["namespace", "check", dir]);
    assert!(
        text.code == 1 && text.text().contains("MR2003") && text.text().contains("rebuilt    the manifest"),
        "{text:#?}"
    );
    let found = place.run(["--json", "namespace", "check", dir]).object();
    assert_eq!(found["rebuilt"]["manifest"]["code"], "MR2003", "{found}");
    assert_eq!((&found["rebuilt"]["unnamed"], &found["lost"]), (&json!([]), &json!([])), "{found}");
    // Gone altogether, and named by the directory above.
    fs::remove_file(&manifest).unwrap();
    // No command takes it for a place to make a new one in.
    for command in [&["log", "ls"][..], &["up"], &["dev"], &["init", "--bare"]] {
        let said = place.run(command).fails("MR2004", 1);
        assert!(said.stderr.contains("namespace check DIR --salvage TO"), "{said:#?}");
    }
    let saved = object(&place, &["namespace", "check", ".", "--salvage", "saved"]);
    assert_eq!((&saved["lost"], &saved["rebuilt"]["functions"]), (&json!([]), &json!([])), "{saved}");
    let other = Place::empty();
    fs::rename(place.path().join("saved"), other.namespace()).unwrap();
    assert_eq!(object(&other, &["namespace", "check"])["sound"], true);
    assert_eq!(object(&other, &["log", "get", "in"]), newest, "the same record under the same id");
    let _host = other.serve();
    other.idle();
    assert_eq!(other.records("out"), ["1", "2", "3", "4", "5", "pending"]);
    // What never was a namespace is not made one.
    fs::create_dir_all(place.path().join("empty/segments")).unwrap();
    fs::write(place.path().join("empty/segments/0000000000"), vec![7; 1 << 20]).unwrap();
    for dir in ["empty", "saved"] {
        place.run(["namespace", "check", dir]).fails("MR2001", 1);
    }
}

#[test]
fn changed_code_is_reported() {
    let place = copying();
    object(&place, &["namespace", "check"]);
    let mut files = Vec::new();
    list(place.namespace().join("functions"), &mut files);
    flip(&files[0], 0);
    let said = place.run(["namespace", "check"]);
    assert!(said.code == 1 && said.text().contains("function 'copy'"), "{said:#?}");
}

/// The journal is what cannot be made again: it is backed up though code is damaged, and what is left out is told.
#[test]
fn damaged_code_keeps_no_backup_from_being_made() {
    let place = copying();
    let code = |place: &Place| {
        let mut files = Vec::new();
        list(place.namespace().join("functions"), &mut files);
        files
    };
    place.run(["log", "append", "in", "1"]).ok();
    let first = code(&place);
    flip(&first[0], 0);
    let said = place.run(["--json", "namespace", "backup", "bad"]);
    let made = said.object();
    assert!(said.code == 1 && said.stderr.contains("MR2033"), "{said:#?}");
    assert_eq!((&made["sound"], &made["lost"], &made["fault_count"]), (&json!(false), &json!([]), &json!(1)), "{made}");
    assert_eq!(made["faults"][0]["code"], "MR3003", "{made}");
    let text = place.run(["namespace", "backup", "worse"]).fails("MR2033", 1);
    assert!(text.text().contains("function 'copy'"), "{text:#?}");
    place.run(["namespace", "restore", "bad", "r"]).fails("MR2033", 1);
    let found = place.run(["--json", "namespace", "check", "bad"]);
    assert_eq!((found.code, &found.object()["sound"]), (1, &json!(false)), "{found:#?}");
    object(&place, &["namespace", "check", "bad", "--salvage", "saved"]);
    assert_eq!(object(&place, &["-n", "saved", "log", "get", "in"])["data"], "1");
    // Another version of the function: nobody needs the damaged one any more.
    let script = place.path().join("copy.sh");
    let text = fs::read_to_string(&script).unwrap();
    fs::write(&script, format!("{text}# as before\n")).unwrap();
    place.run(["up"]).ok();
    assert_eq!(code(&place).len(), 2 * first.len());
    object(&place, &["namespace", "backup", "good"]);
    object(&place, &["namespace", "restore", "good", "r"]);
    assert_eq!(object(&place, &["-n", "r", "namespace", "check"])["sound"], json!(true));
}
