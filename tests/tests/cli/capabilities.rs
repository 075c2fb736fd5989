//! `millrace cap`: capabilities are issued, narrowed, explained, united and ended.

use millrace_tests::Place;
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// The output of `cap show` for a file.
fn shown(place: &Place, file: &str) -> Value {
    place.run(["--json", "cap", "show", file]).ok().object()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The ids of the blocks of the first part.
fn ids(shown: &Value) -> Vec<String> {
    let blocks = shown["parts"][0]["blocks"].as_array().unwrap();
    blocks.iter().map(|block| block["ids"][0].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_capability_is_issued_narrowed_and_explained() {
    let place = Place::new();
    assert!(!place.namespace().join("secrets").exists(), "keys are made when they are needed");
    let issued = place.run([
        "cap",
        "issue",
        "--read",
        "raw/",
        "--allow",
        "append,create=raw/",
        "--label",
        "edge",
        "--out",
        "edge.cap",
    ]);
    assert!(issued.ok().text().starts_with("wrote edge.cap: 1 block, "));
    let secrets = place.namespace().join("secrets");
    assert_eq!((mode(&secrets), mode(&secrets.join("authority"))), (0o700, 0o600));
    assert_eq!(mode(&place.path().join("edge.cap")), 0o600);
    let text = fs::read_to_string(place.path().join("edge.cap")).unwrap();
    assert!(text.starts_with("mr1_") && text.ends_with('\n'), "{text}");

    let edge = shown(&place, "edge.cap");
    assert_eq!(
        edge["parts"][0]["blocks"][0]["grants"],
        json!([{ "kind": "log", "name": "raw", "subtree": true, "rights": ["read", "append", "create"] }])
    );
    assert_eq!((&edge["valid_here"], &edge["expires"]), (&json!(true), &Value::Null));

    // Offline: a directory that has no namespace, and the capability from standard input.
    let far = Place::empty();
    let narrowed = far.feed(
        [
            "cap",
            "attenuate",
            "-",
            "--append",
            "raw/kitchen",
            "--expires",
            "1h",
            "--subject",
            "alice",
            "--record-max",
            "1KiB",
        ],
        text.as_bytes(),
    );
    let narrowed = narrowed.ok().text().to_owned();
    fs::write(far.path().join("alice.cap"), &narrowed).unwrap();
    assert_eq!(shown(&far, "alice.cap")["valid_here"], Value::Null, "the namespace is not here");
    fs::write(place.path().join("alice.cap"), &narrowed).unwrap();
    let alice = shown(&place, "alice.cap");
    assert_eq!(alice["valid_here"], true);
    assert_eq!(alice["principal"], format!("{}/alice", ids(&edge)[0]));
    assert_eq!(ids(&alice)[0], ids(&edge)[0]);
    assert_eq!(alice["parts"][0]["blocks"][1]["record_max_bytes"], 1024);

    let table = place.run(["cap", "show", "alice.cap"]).ok();
    for words in [
        "valid here   yes",
        "acts as      alice (of ",
        "read,append,create on log raw and everything below it",
        "append on log raw/kitchen",
        "at most 1 KiB",
        "Z (in ",
        "An action is permitted if every block permits it.",
        "Together, the blocks grant:\n  append on log raw/kitchen\n",
    ] {
        assert!(table.text().contains(words), "'{words}' is missing:\n{}", table.text());
    }
}

#[test]
fn every_rule_is_shown() {
    let place = Place::new();
    let key = "ab".repeat(32);
    let rules = [
        "cap",
        "issue",
        "--allow",
        "run,observe=function:smooth",
        "--read",
        "namespace",
        "--expires",
        "30d",
        "--after",
        "1m",
        "--record-max",
        "4KiB",
        "--transport",
        "channel,tls",
        "--from",
        "10.0.0.0/8,::1",
        "--key",
        &key,
        "--rate",
        "10/50",
        "--source",
        "0000000000ff",
        "--subject",
        "bob",
        "--label",
        "all of them",
        "--out",
        "all.cap",
    ];
    place.run(rules).ok();
    let text = place.run(["cap", "show", "all.cap"]).ok();
    for words in [
        "one of: read on the namespace and everything in it",
        "one of: run,observe on function smooth",
        "only by channel or tls",
        "only from 10.0.0.0/8 or ::1/128",
        &format!("only for the holder of TLS key {key}"),
        "10 requests per second, at most 50 in a burst",
        "only deliveries from namespace 0000000000ff",
        "all of them",
    ] {
        assert!(text.text().contains(words), "'{words}' is missing:\n{}", text.text());
    }
    let block = shown(&place, "all.cap")["parts"][0]["blocks"][0].clone();
    assert_eq!(block["rate"], json!({ "per_second": 10, "burst": 50 }));
    assert_eq!((&block["ways"], &block["nets"]), (&json!(["channel", "tls"]), &json!(["10.0.0.0/8", "::1/128"])));
}

#[test]
fn revoking_ends_a_capability_and_what_was_derived_from_it() {
    let place = Place::new();
    place.run(["cap", "issue", "--read", "/", "--expires", "1h", "--out", "a.cap"]).ok();
    place.run(["cap", "attenuate", "a.cap", "--read", "raw", "--out", "b.cap"]).ok();
    place.run(["cap", "attenuate", "b.cap", "--expires", "1m", "--out", "c.cap"]).ok();
    place.run(["cap", "squash", "c.cap", "--out", "d.cap"]).ok();
    assert_eq!(ids(&shown(&place, "d.cap")).len(), 1, "one block");
    assert_eq!(shown(&place, "d.cap")["parts"][0]["blocks"][0]["ids"].as_array().unwrap().len(), 3, "with every id");

    let revoked = place.run(["--json", "cap", "revoke", "--file", "b.cap"]).ok().object();
    let id = ids(&shown(&place, "b.cap"))[1].clone();
    assert_eq!((&revoked["revoked"], &revoked["new"]), (&json!([id]), &json!(1)));
    assert_eq!(
        revoked["kept_until"],
        shown(&place, "a.cap")["expires"],
        "as long as anything that has the block can live"
    );
    let valid = |file: &str| shown(&place, file)["valid_here"].clone();
    assert_eq!(
        (valid("a.cap"), valid("b.cap"), valid("c.cap"), valid("d.cap")),
        (json!(true), json!(false), json!(false), json!(false))
    );
    assert_eq!(shown(&place, "d.cap")["because"], format!("{id} was revoked"));
    assert_eq!(place.run(["--json", "cap", "revoke", &id]).ok().object()["new"], 1, "for ever instead of for an hour");
    assert_eq!(place.run(["--json", "cap", "revoke", &id]).ok().object()["new"], 0);
    place.run(["cap", "squash", "b.cap"]).fails("MR6131", 1);
    assert!(place.run(["log", "get", "_revoked"]).ok().text().contains(&id));
    place.run(["log", "append", "_revoked", "x"]).fails("MR6022", 1);
}

#[test]
fn a_rotation_ends_older_generations_when_asked() {
    let place = Place::new();
    place.run(["cap", "issue", "--read", "/", "--out", "one.cap"]).ok();
    assert_eq!(place.run(["--json", "cap", "rotate"]).ok().object()["live"], json!([1, 2]));
    place.run(["cap", "issue", "--read", "/", "--out", "two.cap"]).ok();
    let valid = |file: &str| shown(&place, file)["valid_here"].clone();
    assert_eq!((valid("one.cap"), valid("two.cap")), (json!(true), json!(true)));
    place.run(["cap", "rotate", "--revoke-before", "9"]).fails("MR6136", 2);
    assert_eq!(place.run(["--json", "cap", "rotate", "--revoke-before", "2"]).ok().object()["live"], json!([2, 3]));
    assert_eq!((valid("one.cap"), valid("two.cap")), (json!(false), json!(true)));
    assert_eq!(shown(&place, "one.cap")["because"], "generation 1 of the namespace's keys is no longer valid");
    place.run(["cap", "rotate"]).ok();
    place.run(["cap", "rotate"]).ok();
    place.run(["cap", "rotate"]).fails("MR6146", 1);
    assert_eq!(place.run(["--json", "cap", "rotate", "--revoke-all"]).ok().object()["live"], json!([6]));
    assert_eq!(valid("two.cap"), false);
}

#[test]
fn merged_capabilities_say_what_each_part_permits() {
    let place = Place::new();
    place.run(["cap", "issue", "--read", "a", "--out", "a.cap"]).ok();
    place.run(["cap", "issue", "--append", "b", "--expires", "1h", "--out", "b.cap"]).ok();
    place.run(["cap", "merge", "a.cap", "b.cap", "--out", "both.cap"]).ok();
    let both = shown(&place, "both.cap");
    assert_eq!((both["parts"].as_array().unwrap().len(), &both["expires"]), (2, &Value::Null), "a part lives on");
    let text = place.run(["cap", "show", "both.cap"]).ok();
    assert!(text.text().contains("\n1.1    grants  read on log a\n"), "{}", text.text());
    assert!(text.text().contains("\n2.1    grants  append on log b\n"), "{}", text.text());
    place.run(["cap", "merge", "both.cap", "a.cap"]).fails("MR6136", 2);
    place.run(["cap", "squash", "both.cap"]).fails("MR6135", 1);
    place.run(["cap", "revoke", "--file", "a.cap"]).ok();
    assert_eq!(shown(&place, "both.cap")["valid_here"], true, "the other part lives");
    place.run(["cap", "revoke", "--file", "both.cap"]).ok();
    assert_eq!(shown(&place, "both.cap")["valid_here"], false);
}

#[test]
fn what_is_no_capability_or_no_rule_is_refused() {
    let place = Place::new();
    place.run(["cap", "issue", "--read", "a", "--out", "a.cap"]).ok();
    let text = fs::read_to_string(place.path().join("a.cap")).unwrap();
    for command in ["show", "attenuate", "squash"] {
        let refused = place.run(["cap", command, text.trim()]).fails("MR6137", 2);
        assert!(!format!("{refused:?}").contains(&text[10..40]), "the capability is repeated: {refused:?}");
    }
    fs::write(place.path().join("cut.cap"), &text[..text.len() - 5]).unwrap();
    fs::write(place.path().join("bytes.cap"), [0xff; 40]).unwrap();
    fs::write(place.path().join("long.cap"), "A".repeat(100_000)).unwrap();
    for file in ["bytes.cap", "long.cap"] {
        place.run(["cap", "show", file]).fails("MR6130", 2);
    }
    // Cut within its signature, the text may still have the form of one; it is not valid.
    let cut = place.run(["--json", "cap", "show", "cut.cap"]);
    assert!(!cut.text().contains("\"valid_here\":true"), "{cut:?}");
    let mut changed = text.trim().to_owned().into_bytes();
    let last = changed.len() - 2;
    changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
    fs::write(place.path().join("changed.cap"), changed).unwrap();
    assert_eq!(shown(&place, "changed.cap")["because"], "its signature is wrong");
    place.run(["cap", "squash", "changed.cap"]).fails("MR6131", 1);
    place.run(["cap", "issue", "--read", "a", "--out", "a.cap"]).fails("MR4009", 1);
    for rules in [
        &["--label", "nothing granted"][..],
        &["--allow", "write=a"],
        &["--allow", "read"],
        &["--read", "_links"],
        &["--read", "topic:a"],
        &["--read", "namespace:x"],
        &["--read", "a", "--subject", "longer than sixteen"],
        &["--read", "a", "--rate", "0"],
        &["--read", "a", "--key", "ab"],
        &["--read", "a", "--expires", "1s", "--after", "2s"],
        &["--read", "a", "--expires", "200000d"],
    ] {
        place.run(["cap", "issue"].iter().chain(rules)).fails("MR6136", 2);
    }
    place.run(["cap", "issue", "--read", "../a"]).fails("MR1001", 2);
    let other = Place::new();
    other.run(["cap", "issue", "--read", "a", "--out", "other.cap"]).ok();
    let foreign = other.path().join("other.cap");
    place.run(["cap", "revoke", "--file", foreign.to_str().unwrap()]).fails("MR6131", 1);
    place.run(["cap", "squash", foreign.to_str().unwrap()]).fails("MR6131", 1);
    assert_eq!(shown(&place, foreign.to_str().unwrap())["valid_here"], Value::Null);
}

#[test]
fn keys_are_not_used_when_somebody_else_may_have_them() {
    let place = Place::new();
    place.run(["cap", "issue", "--read", "a", "--out", "a.cap"]).ok();
    let secrets = place.namespace().join("secrets");
    let (file, aside) = (secrets.join("authority"), place.path().join("aside"));
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let refused = |code: &str| {
        for command in [
            &["cap", "issue", "--read", "a"][..],
            &["cap", "rotate"],
            &["cap", "show", "a.cap"],
            &["cap", "squash", "a.cap"],
        ] {
            place.run(command).fails(code, 1);
        }
    };
    chmod(&file, 0o644);
    refused("MR6144");
    chmod(&file, 0o600);
    fs::hard_link(&file, &aside).unwrap();
    refused("MR6143");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&aside, &file).unwrap();
    refused("MR6141");
    fs::remove_file(&file).unwrap();
    fs::rename(&aside, &file).unwrap();
    chmod(&secrets, 0o755);
    refused("MR6140");
    chmod(&secrets, 0o700);
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[1..]).unwrap();
    refused("MR6145");
    fs::write(&file, &bytes).unwrap();
    assert_eq!(shown(&place, "a.cap")["valid_here"], true);
}

/// Every file below a directory.
fn files(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn copies_of_a_namespace_have_no_keys_of_it() {
    let place = Place::new();
    place.run(["log", "create", "a"]).ok();
    place.run(["cap", "issue", "--read", "a", "--out", "a.cap"]).ok();
    place.run(["cap", "revoke", "5f3a9c0d1e2b4a6c"]).ok();
    let key = fs::read(place.namespace().join("secrets/authority")).unwrap()[19..51].to_vec();
    place.run(["namespace", "backup", "backup"]).ok();
    place.run(["namespace", "restore", "backup", "restored"]).ok();
    let namespace = place.namespace();
    place.run(["namespace", "check", namespace.to_str().unwrap(), "--salvage", "salvaged"]).ok();
    for copy in ["backup", "restored", "salvaged"] {
        let mut all = Vec::new();
        files(&place.path().join(copy), &mut all);
        assert!(all.len() > 2, "{all:?}");
        for file in all {
            assert!(!file.to_string_lossy().contains("secrets"), "{}", file.display());
            let bytes = fs::read(&file).unwrap();
            assert!(!bytes.windows(key.len()).any(|window| window == key), "{} has a key", file.display());
        }
    }
    // Each copy creates its own authority, so the old capability is invalid there.
    for copy in ["restored", "salvaged"] {
        assert_eq!(place.run(["--json", "-n", copy, "cap", "show", "a.cap"]).ok().object()["valid_here"], Value::Null);
        place.run(["-n", copy, "cap", "issue", "--read", "a", "--out", &format!("{copy}.cap")]).ok();
        let authority = |file: &str| shown(&place, file)["parts"][0]["authority"].clone();
        assert_ne!(authority("a.cap"), authority(&format!("{copy}.cap")));
        place.run(["-n", copy, "cap", "squash", "a.cap"]).fails("MR6131", 1);
    }
}

#[test]
fn a_host_and_the_commands_share_revocations() {
    let place = Place::new();
    place.run(["cap", "issue", "--read", "a", "--out", "a.cap"]).ok();
    let host = place.serve();
    place.run(["cap", "revoke", "--file", "a.cap"]).ok();
    assert_eq!(shown(&place, "a.cap")["valid_here"], false);
    host.signal("TERM");
    assert_eq!(host.ended(), 0);
    place.run(["namespace", "check"]).ok();
}
