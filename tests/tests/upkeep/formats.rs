//! A namespace of every released format, as `tests/golden/make.sh` made it with a binary of that time, killed in the middle
//! of its work: it is verified as it lies, and goes on where it stood. Formats 1 and 2 were never released.

use millrace_tests::{Place, end};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

/// What is released beside the formats.
fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn unpack(format: u32) -> Place {
    let place = Place::empty();
    let archive = golden(&format!("format-{format}.tar.gz"));
    let tar = Command::new("tar").arg("-xzf").arg(&archive).current_dir(place.path()).status().unwrap();
    assert!(tar.success(), "{}", archive.display());
    place
}

fn first_line(place: &Place) -> String {
    let manifest = fs::read_to_string(place.namespace().join("manifest")).unwrap();
    manifest.lines().next().unwrap().to_owned()
}

/// Everything that the script put in, and what its pending runs come to.
fn verify(format: u32) {
    let place = unpack(format);
    let found = place.run(["--json", "namespace", "check"]).ok().object();
    assert_eq!((&found["sound"], &found["lost"]), (&json!(true), &json!([])), "{found}");
    assert!(first_line(&place).starts_with(&format!("millrace-manifest {format} ")), "a look changes nothing");
    let expected = fs::read(golden(&format!("format-{format}.json"))).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    assert_eq!(expected["format"], format);
    let mut describe = Command::new("python3");
    describe.arg(golden("describe.py")).arg(millrace_tests::binary()).arg(place.path());
    let found: Value = serde_json::from_slice(&end(describe, b"").ok().stdout).unwrap();
    for (part, expected) in expected.as_object().unwrap() {
        assert_eq!(&found[part], expected, "{part} of format {format}");
    }
    let stat = |log: &str| {
        let stat = place.run(["--json", "log", "stat", log]).ok().object();
        (stat["earliest"].as_u64().unwrap(), stat["latest"].as_u64().unwrap())
    };
    let named = |prefix: &str, range: std::ops::RangeInclusive<u64>| -> Vec<String> {
        range.map(|n| format!("{prefix} {n}")).collect()
    };
    assert_eq!((stat("in"), stat("plain"), stat("out")), ((8, 12), (213, 220), (1, 12)));
    assert!(first_line(&place).starts_with("millrace-manifest 3 "), "{}", first_line(&place));
    assert_eq!(place.records("in"), named("record", 8..=12));
    assert_eq!(place.records("plain"), named("plain", 213..=220));
    assert_eq!(place.records("out"), named("record", 1..=12));
    assert_eq!(place.records("slow-out"), Vec::<String>::new());
    let dead = place.run(["--json", "run", "ls", "--state", "dead"]).ok().objects();
    assert_eq!(dead.len(), 2, "{dead:?}");
    let runs = place.run(["--json", "run", "ls", "--function", "slow"]).ok().objects();
    let states: Vec<&str> = runs.iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert!(states.len() == 3 && states.iter().all(|state| ["pending", "started"].contains(state)), "{states:?}");
    let host = place.serve();
    place.idle();
    assert_eq!(place.records("slow-out"), named("slow", 1..=3));
    place.run(["log", "append", "in", "record 13"]).ok();
    place.idle();
    assert_eq!(place.records("out"), named("record", 1..=13));
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    let found = place.run(["--json", "namespace", "check"]).ok().object();
    assert_eq!(found["sound"], true, "{found}");
}

#[test]
fn a_namespace_of_format_3_can_be_used() {
    verify(3);
}

#[test]
fn a_format_from_before_the_first_release_is_refused_and_stays_as_it_is() {
    let place = unpack(2);
    let before = fs::read(place.namespace().join("manifest")).unwrap();
    for command in [&["log", "ls"][..], &["serve"], &["namespace", "check"], &["namespace", "backup", "b"]] {
        let said = place.run(command).fails("MR2002", 1);
        assert!(said.stderr.contains("has format 2") && said.stderr.contains("millrace log export"), "{}", said.stderr);
    }
    assert_eq!(fs::read(place.namespace().join("manifest")).unwrap(), before);
}

#[test]
fn a_newer_format_is_refused_with_a_remedy() {
    let place = Place::new();
    let path = place.namespace().join("manifest");
    let text = fs::read_to_string(&path).unwrap().replacen("millrace-manifest 3", "millrace-manifest 4", 1);
    fs::write(&path, &text).unwrap();
    for command in [&["log", "ls"][..], &["serve"], &["namespace", "check"], &["namespace", "backup", "b"]] {
        let said = place.run(command).fails("MR2002", 1);
        assert!(said.stderr.contains("has format 4") && said.stderr.contains("reads format 3"), "{}", said.stderr);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
