//! Copies of a damaged namespace, copies that are damaged themselves, and the runs that damage takes.

use super::{copy_as_smaller, copying, copying_as_larger, flip};
use millrace_tests::Place;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn object(place: &Place, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    place.run(all).ok().object()
}

fn find(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).expect("it is there")
}

fn newest_segment(folder: &Path) -> PathBuf {
    let segments = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    segments.filter(|path| !path.to_string_lossy().contains("spare")).max().unwrap()
}

/// A namespace with records 1 to 9 in log `plain`.
fn plain() -> Place {
    let place = copying();
    place.run(["log", "create", "plain"]).ok();
    for n in 1..=9 {
        place.run(["log", "append", "plain", &format!("a record, number {n}")]).ok();
    }
    place
}

fn lost(n: u64) -> Value {
    json!([{ "log": "plain", "from": n, "to": n, "reason": "damaged" }])
}

/// What is left in `dir`, when it was saved from something without record `n`.
fn holds_all_but(place: &Place, dir: &str, n: u64) {
    let found = object(place, &["namespace", "check", dir]);
    assert_eq!((&found["sound"], &found["missing"]), (&json!(true), &lost(n)), "{found}");
    for other in (1..=9).filter(|other| *other != n) {
        let record = object(place, &["-n", dir, "log", "get", "plain", &other.to_string()]);
        assert_eq!(record["data"], format!("a record, number {other}"));
    }
    assert_eq!(object(place, &["-n", dir, "function", "ls"])["name"], "copy", "with its code");
}

#[test]
fn a_backup_of_a_damaged_namespace_reports_it_and_restores_what_is_intact() {
    let place = plain();
    let good = object(&place, &["namespace", "backup", "good"]);
    assert_eq!((&good["sound"], &good["faults"], &good["lost"]), (&json!(true), &json!([]), &json!([])), "{good}");
    let segment = place.namespace().join("segments/0000000000");
    let at = find(&fs::read(&segment).unwrap(), "a record, number 4");
    flip(&segment, at);
    let said = place.run(["--json", "namespace", "backup", "bad"]);
    let made = said.object();
    assert!(said.code == 1 && said.stderr.contains("MR2033") && said.stderr.contains("--salvage TO"), "{said:#?}");
    assert_eq!((&made["sound"], &made["lost"]), (&json!(false), &lost(4)), "{made}");
    assert!(made["fault_count"].as_u64().unwrap() > 0 && made["faults"][0]["code"] == "MR2010", "{made}");
    let text = place.run(["namespace", "backup", "worse"]).fails("MR2033", 1);
    assert!(text.text().contains("record 4 of log 'plain': damaged"), "{text:#?}");
    // It is not restored as if nothing were the matter, and everything that is whole comes back.
    let said = place.run(["namespace", "restore", "bad", "r"]).fails("MR2033", 1);
    assert!(
        said.stderr.contains("namespace check BACKUP --salvage TO") && !place.path().join("r").exists(),
        "{said:#?}"
    );
    let found = place.run(["--json", "namespace", "check", "bad"]);
    assert_eq!((found.code, &found.object()["lost"]), (1, &lost(4)), "{found:#?}");
    let saved = object(&place, &["namespace", "check", "bad", "--salvage", "saved"]);
    assert_eq!(saved["lost"], lost(4), "{saved}");
    holds_all_but(&place, "saved", 4);
    // A version that did not look said nothing; restoring tells it all the same.
    let head = place.path().join("bad/BACKUP");
    let body = fs::read_to_string(&head).unwrap();
    let body = body.split_once('\n').unwrap().1.replace("\"sound\": false,", "");
    assert!(!body.contains("sound"), "{body}");
    fs::write(place.path().join("body"), &body).unwrap();
    let hash = Command::new("sha256sum").arg(place.path().join("body")).output().unwrap();
    let hash = String::from_utf8(hash.stdout).unwrap()[..64].to_owned();
    fs::write(&head, format!("millrace-backup 1 {hash}\n{body}")).unwrap();
    place.run(["namespace", "restore", "bad", "r"]).fails("MR2033", 1);
    // What was lost once is not missed again: a backup of what was saved is sound.
    object(&place, &["-n", "saved", "namespace", "backup", "again"]);
    object(&place, &["namespace", "restore", "again", "r"]);
    holds_all_but(&place, "r", 4);
    object(&place, &["namespace", "restore", "good", "first"]);
}

#[test]
fn a_backup_is_verified_and_its_intact_part_salvaged() {
    let place = plain();
    object(&place, &["namespace", "backup", "b"]);
    let found = object(&place, &["namespace", "check", "b"]);
    assert_eq!((&found["sound"], &found["lost"]), (&json!(true), &json!([])), "{found}");
    let backup = place.path().join("b");
    let journal = newest_segment(&backup.join("journal"));
    let bytes = fs::read(&journal).unwrap();
    // A record in the middle, and the last one, behind which no mark tells that it was durable: the head does.
    for n in [4, 9] {
        flip(&journal, find(&bytes, &format!("a record, number {n}")));
        let said = place.run(["--json", "namespace", "check", "b"]);
        let found = said.object();
        assert_eq!((said.code, &found["sound"], &found["faults"][0]["code"]), (1, &json!(false), &json!("MR4024")));
        assert!(found["damaged"].as_array().unwrap().len() == 1, "{found}");
        let to = format!("saved-{n}");
        let saved = object(&place, &["namespace", "check", "b", "--salvage", &to]);
        assert_eq!(saved["damaged"].as_array().unwrap().len(), 1, "{saved}");
        holds_all_but(&place, &to, n);
        fs::write(&journal, &bytes).unwrap();
    }
    // Head and manifest, damaged or gone.
    for (n, name) in ["BACKUP", "manifest.saved"].into_iter().enumerate() {
        let file = backup.join(name);
        let good = fs::read(&file).unwrap();
        for gone in [false, true] {
            if gone {
                fs::remove_file(&file).unwrap()
            } else {
                flip(&file, good.len() / 2)
            }
            let said = place.run(["--json", "namespace", "check", "b"]);
            let faults = said.object()["faults"].as_array().unwrap().clone();
            assert!(said.code == 1 && faults.iter().any(|fault| fault["code"] == "MR4024"), "{said:#?}");
            let to = format!("of-{n}-{gone}");
            object(&place, &["namespace", "check", "b", "--salvage", &to]);
            assert_eq!(object(&place, &["-n", &to, "log", "get", "plain", "9"])["data"], "a record, number 9");
        }
        fs::write(&file, good).unwrap();
    }
    object(&place, &["namespace", "restore", "b", "whole"]);
}

/// A namespace whose host has ended, with `lost` pending runs that damage took, and what is told of them.
fn without_triggers() -> (Place, u64) {
    let place = copying();
    let lines: String = (1..=200).map(|n| format!("{n:06} of the records\n")).collect();
    millrace_tests::end(place.command(["log", "append", "in", "--lines", "--quiet"]), lines.as_bytes()).ok();
    let segment = place.namespace().join("segments/0000000000");
    let mut bytes = fs::read(&segment).unwrap();
    let at = find(&bytes, "000100 of the records");
    bytes[at..at + 3000].fill(0x55);
    fs::write(&segment, bytes).unwrap();
    let found = place.run(["--json", "namespace", "check"]).object();
    let range = &found["lost"][0];
    assert_eq!(range["from"], 100, "{found}");
    (place, range["to"].as_u64().unwrap() - 99)
}

/// Every run has come to one end; returns the dead letters.
fn all_ended(place: &Place) -> Vec<Value> {
    place.idle();
    let function = object(place, &["function", "ls"]);
    assert_eq!((&function["pending"], &function["done"]), (&json!(0), &json!(200)), "{function}");
    let why = object(place, &["why", "copy"]);
    assert!(!why.to_string().contains("uncounted"), "{why}");
    let dead_letters = place.records("dead/copy");
    assert_eq!(place.records("out").len() + dead_letters.len(), 200);
    dead_letters.iter().map(|letter| serde_json::from_str(letter).unwrap()).collect()
}

fn tells_each(dead_letters: &[Value], lost: u64) {
    let mut seqnos: Vec<u64> = dead_letters.iter().map(|letter| letter["seqno"].as_u64().unwrap()).collect();
    seqnos.sort_unstable();
    assert_eq!(seqnos, (100..100 + lost).collect::<Vec<_>>(), "{dead_letters:?}");
    // The first of the damaged records may have its trigger, and the trigger behind the last its record.
    let codes = |code: &str| dead_letters.iter().filter(|letter| letter["code"] == code).count() as u64;
    assert_eq!(codes("MR2032") + codes("MR3009"), lost, "{dead_letters:?}");
    assert!(codes("MR2032") >= lost - 1 && dead_letters.iter().all(|letter| letter["log"] == "in"), "{dead_letters:?}");
}

#[test]
fn runs_that_damage_took_are_given_up_when_the_rest_is_saved() {
    let (place, lost) = without_triggers();
    let why = place.run(["why", "copy"]);
    assert!(!why.text().contains("is not blocked"), "{why:#?}");
    assert!(why.text().contains("are counted as pending, but the journal has"), "{why:#?}");
    let saved = object(&place, &["namespace", "check", "--salvage", "saved"]);
    let runs = saved["lost_runs"]["copy"].as_u64().unwrap();
    assert!((lost - 1..=lost).contains(&runs), "{saved}");
    let found = object(&place, &["namespace", "check", "saved"]);
    assert_eq!((&found["sound"], &found["missing_runs"]["copy"]), (&json!(true), &json!(runs)), "{found}");
    let text = place.run(["namespace", "check", "saved"]).ok();
    assert!(
        text.text().contains(&format!(
            "{runs} runs of function 'copy': lost when this namespace was salvaged, and now dead letters"
        )),
        "{text:#?}"
    );
    let other = Place::empty();
    fs::rename(place.path().join("saved"), other.namespace()).unwrap();
    let function = object(&other, &["function", "ls"]);
    assert_eq!(function["pending"], 200 - runs, "{function}");
    let _host = other.serve();
    tells_each(&all_ended(&other), lost);
    let again = object(&other, &["namespace", "backup", "b"]);
    assert_eq!(again["sound"], true, "{again}");
}

#[test]
fn runs_that_damage_took_are_given_up_by_the_host_that_finds_it() {
    let (place, lost) = without_triggers();
    let host = place.serve();
    host.line_with(&["MR2032"]);
    tells_each(&all_ended(&place), lost);
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    let _next = place.serve();
    assert_eq!(all_ended(&place).len() as u64, lost, "given up once");
}

/// Of which nothing but its trigger is damaged: the dead letter has the record.
#[test]
fn a_dead_letter_has_the_record_when_only_its_trigger_is_damaged() {
    let place = copying();
    for n in 1..=5 {
        place.run(["log", "append", "in", &format!("a record, number {n}")]).ok();
    }
    let segment = place.namespace().join("segments/0000000000");
    let bytes = fs::read(&segment).unwrap();
    // The record's entry has a header of 64 bytes; the next one begins at a multiple of 16, 96 behind, and has a short header.
    flip(&segment, find(&bytes, "a record, number 3") + 32 + 16);
    let _host = place.serve();
    place.idle();
    let dead_letters = place.records("dead/copy");
    let letter: Value = serde_json::from_str(&dead_letters[0]).unwrap();
    assert_eq!((dead_letters.len(), &letter["code"], &letter["seqno"]), (1, &json!("MR2032"), &json!(3)), "{letter}");
    assert_eq!(letter["data"], "a record, number 3");
    assert_eq!(place.records("out").len(), 4);
    let retry = || place.run(["--json", "run", "retry", "--function", "copy"]).ok();
    let retried = retry().object();
    assert_eq!((&retried["log"], &retried["seqno"], &retried["before"]), (&json!("in"), &json!(3), &json!(false)));
    assert_eq!(retry().text(), "", "once");
    place.idle();
    assert_eq!(place.records("out")[4], "a record, number 3");
    // What anybody appends as such a letter of another error is none.
    let forged = dead_letters[0].replace("MR2032", "MR3009");
    place.run(["log", "append", "dead/copy", &forged]).ok();
    assert_eq!(retry().text(), "");
}

/// The run on one side of the damage has an id of the ancestor, that on the other side one of the copy.
#[test]
fn runs_that_damage_took_where_a_copy_begins_are_given_up() {
    let place = copying_as_larger();
    let append =
        |place: &Place, n: usize| drop(place.run(["log", "append", "in", &format!("a record, number {n}")]).ok());
    let host = place.serve();
    (1..=3).for_each(|n| append(&place, n));
    place.idle();
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    object(&place, &["namespace", "backup", "b"]);
    copy_as_smaller(&place, &["namespace", "restore", "b"], "r");
    let copy = Place::empty();
    fs::rename(place.path().join("r"), copy.namespace()).unwrap();
    (4..=6).for_each(|n| append(&copy, n));
    let segment = copy.namespace().join("segments/0000000000");
    let bytes = fs::read(&segment).unwrap();
    // One that has ended, and one that has not.
    for n in [2, 4] {
        flip(&segment, find(&bytes, &format!("a record, number {n}")) + 32 + 16);
    }
    let saved = object(&copy, &["namespace", "check", "--salvage", "saved"]);
    assert_eq!(saved["lost_runs"]["copy"], 1, "{saved}");
    let host = copy.serve();
    host.line_with(&["MR2032"]);
    copy.idle();
    let dead_letters = copy.records("dead/copy");
    let letter: Value = serde_json::from_str(&dead_letters[0]).unwrap();
    assert_eq!((dead_letters.len(), &letter["code"], &letter["seqno"]), (1, &json!("MR2032"), &json!(4)), "{letter}");
    let out = copy.records("out");
    assert_eq!(out.iter().map(|line| &line[line.len() - 1..]).collect::<String>(), "12356");
}

/// The index knows that it has ended, also when the entry cannot be read that says how: to run it again would publish twice.
#[test]
fn a_run_whose_end_is_damaged_has_ended_all_the_same() {
    let place = copying();
    let host = place.serve();
    for n in 1..=3 {
        place.run(["log", "append", "in", &format!("a record, number {n}")]).ok();
    }
    place.idle();
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    let segment = place.namespace().join("segments/0000000000");
    let bytes = fs::read(&segment).unwrap();
    let came = find(&bytes, "a record, number 2") + 1;
    let went = came + find(&bytes[came..], "a record, number 2");
    flip(&segment, went + 32 + 16); // In the header of the DONE behind what the run appended.
    let function = object(&place, &["function", "ls"]);
    assert_eq!((&function["pending"], &function["done"]), (&0.into(), &3.into()), "{function}");
    let newest = object(&place, &["run", "ls", "--last", "1"]);
    let damaged = object(&place, &["run", "ls", "--last", "1", "--before", newest["id"].as_str().unwrap()]);
    assert_eq!((&damaged["seqno"], &damaged["error"]["code"]), (&2.into(), &"MR2010".into()), "{damaged}");
    assert_eq!(damaged["partial"], true, "{damaged}");
    place.run(["log", "append", "in", "one more"]).ok();
    let _next = place.serve();
    place.idle();
    assert_eq!(place.records("out")[3..], ["one more"]);
}

#[test]
fn leftovers_of_killed_copies_are_removed_by_the_next_copy_but_not_while_in_use() {
    let place = plain();
    let parts = || -> Vec<String> {
        let names = fs::read_dir(place.path()).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into());
        names.filter(|name: &String| name.contains(".partial-")).collect()
    };
    let part = |name: &str| fs::create_dir_all(place.path().join(name).join("journal")).unwrap();
    ["b.partial-1", "b.partial-999999", "other.partial-1", "b.partial-x"].into_iter().for_each(part);
    let maker = fs::File::open(place.path().join("b.partial-999999")).unwrap();
    maker.try_lock().unwrap();
    object(&place, &["namespace", "backup", "b"]);
    let mut left = parts();
    left.sort();
    assert_eq!(left, ["b.partial-999999", "b.partial-x", "other.partial-1"]);
    part("r.partial-7");
    object(&place, &["namespace", "restore", "b", "r"]);
    part("s.partial-7");
    object(&place, &["namespace", "check", "b", "--salvage", "s"]);
    assert_eq!(parts().len(), 3, "{:?}", parts());
}
