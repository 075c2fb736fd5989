//! A replica has what its owner has, and takes changes of nobody else.

use crate::world::Site;
use millrace_tests::{Place, eventually};
use serde_json::{Value, json};

/// An owner with some history, and a replica that begins later.
fn sites() -> (Site, Site) {
    let (owner, replica) = (Site::new("school"), Site::new("cloud"));
    owner.place.run(["table", "create", "grades", "--history", "2"]).ok();
    owner.put("grades", "alice", "1");
    owner.put("grades", "bob", "2");
    owner.put("grades", "gone", "3");
    owner.place.run(["table", "delete", "grades", "gone"]).ok();
    owner.place.run(["table", "put", "grades", "session", "4", "--ttl", "1h"]).ok();
    owner.put("grades", "alice", "5");
    replica.place.run(["table", "mirror", "grades", "--from", &owner.address("")]).ok();
    replica.follows("grades");
    (owner, replica)
}

#[test]
fn a_replica_has_the_values_versions_and_expiries_of_its_owner() {
    let (owner, replica) = sites();
    // The log of the owner has two of the six records.
    assert_eq!(replica.all("grades"), owner.all("grades"));
    let expires = |site: &Site| site.get("grades", "session").unwrap()["expires"].clone();
    assert!(expires(&owner).is_string());
    assert_eq!(expires(&replica), expires(&owner));
    let token = owner.put("grades", "carol", "7");
    let read = replica.place.run(["--json", "table", "get", "grades", "carol", "--after", &token]).ok().object();
    assert_eq!((&read["version"], &read["data"]), (&json!(7), &json!("7")));
    owner.place.run(["table", "delete", "grades", "bob"]).ok();
    let token = owner.put("grades", "carol", "8");
    // Over the network, too.
    let at = replica.address("");
    let read = ["--json", "-n", &at, "table", "versions", "grades", "carol", "--after", &token];
    let versions: Vec<Value> =
        replica.place.run(read).ok().objects().iter().map(|row| row["version"].clone()).collect();
    assert_eq!(versions, [9, 7]);
    assert_eq!(replica.all("grades"), owner.all("grades"));
    replica.place.run(["namespace", "check"]).ok();
}

#[test]
fn two_replicas_of_one_table_and_a_replica_under_another_name() {
    let (owner, replica) = sites();
    let other = Site::new("backup");
    other.place.run(["table", "mirror", "edge/marks", "--from", &owner.address("/grades")]).ok();
    other.follows("edge/marks");
    assert_eq!(other.all("edge/marks"), replica.all("grades"));
    let names = |place: &Place| place.run(["table", "ls"]).ok().text().to_owned();
    assert!(names(&other.place).contains(&owner.address("/grades")), "{}", names(&other.place));
    let again = ["table", "mirror", "edge/marks", "--from", &owner.address("/other")];
    other.place.run(again).fails("MR7336", 1);
    other.place.run(["table", "create", "own"]).ok();
    other.place.run(["table", "mirror", "own", "--from", &owner.address("/grades")]).fails("MR7336", 1);
    other.place.run(["table", "mirror", "own", "--stop"]).fails("MR7337", 1);
    // No chains: a token of an answer is of one owner.
    let third = Site::new("third");
    third.place.run(["table", "mirror", "grades", "--from", &replica.address("")]).ok();
    eventually("it is refused", || third.replica("grades")["trouble"]["code"] == "MR7330");
}

#[test]
fn a_replica_refuses_changes_and_names_its_owner() {
    let (owner, replica) = sites();
    let at = replica.address("");
    for place in [&["--json"][..], &["--json", "-n", &at]] {
        for change in
            [&["put", "grades", "x", "1"][..], &["delete", "grades", "alice"], &["increment", "grades", "alice"]]
        {
            let command = place.iter().chain(&["table"]).chain(change);
            let refused = replica.place.run(command);
            assert!(refused.code == 1 && refused.stderr.contains("MR7330"), "{refused:#?}");
            assert!(refused.stderr.contains(&owner.address("/grades")), "{refused:#?}");
        }
    }
    replica.place.run(["log", "rm", "grades"]).fails("MR2103", 1);
    let correction = [r#"{"key": "alice", "value": 1}"#].join("\n");
    replica.place.feed(["repair", "run", "grades", "--values", "-"], correction.as_bytes()).fails("MR7330", 1);
    // What the remedy says.
    let there = owner.address("");
    replica.place.run(["-n", &there, "table", "put", "grades", "x", "1"]).ok();
    eventually("it is here", || replica.get("grades", "x").is_some());
    replica.place.run(["table", "mirror", "grades", "--stop"]).ok();
    let put = replica.place.run(["table", "put", "grades", "x", "2"]).ok();
    assert_eq!(put.text().trim(), "8", "the versions go on behind those of the owner");
    owner.put("grades", "x", "3");
    assert_eq!(replica.get("grades", "x").unwrap()["data"], "2");
}

#[test]
fn functions_run_for_the_changes_of_a_replica() {
    let (owner, replica) = sites();
    replica.place.write(
        "millrace.toml",
        &format!(
            "[tables.grades]\nfrom = \"{}\"\n[logs.seen]\n\
             [functions.note]\nruntime = \"python\"\ncode = \"note.py\"\nhandler = \"note:note\"\non = [\"grades\"]\n\
             [functions.wrong]\nruntime = \"python\"\ncode = \"note.py\"\nhandler = \"note:wrong\"\non = [\"seen\"]\nretries = 0\n",
            owner.address("")
        ),
    );
    replica.place.write(
        "note.py",
        "import json\n\n\ndef note(record, ctx):\n    change = ctx.table('grades').change(record)\n    \
         value = None if change.deleted else change.value\n    ctx.append('seen', json.dumps([change.key, change.version, value]))\n\n\n\
         def wrong(record, ctx):\n    ctx.table('grades')['x'] = 1\n",
    );
    replica.place.run(["up"]).ok();
    let token = owner.put("grades", "dora", "9");
    owner.place.run(["table", "delete", "grades", "alice"]).ok();
    assert!(!token.is_empty());
    eventually("both changes are seen", || replica.place.records("seen").len() == 2);
    assert_eq!(replica.place.records("seen"), [r#"["dora", 7, 9]"#, r#"["alice", 8, null]"#]);
    // What changes a replica is given up, and says why.
    eventually("the runs are given up", || {
        let failures = replica.place.run(["--json", "run", "failures"]);
        failures.code == 0 && failures.text().contains("MR7330")
    });
}

#[test]
fn an_application_declares_a_replica_and_ends_it() {
    let owner = Site::new("school");
    let replica = Site::new("cloud");
    let declared = |more: &str| format!("[tables.grades]\nfrom = \"{}\"\n{more}", owner.address(""));
    replica.place.write("millrace.toml", &declared("codec = \"text\"\n"));
    replica.place.run(["up"]).fails("MR4002", 1);
    replica.place.write("millrace.toml", &declared("history = 50\n"));
    // The owner has no such table yet.
    replica.place.run(["up"]).ok();
    eventually("it is missing", || replica.replica("grades")["trouble"]["code"] == "MR2101");
    replica.place.run(["table", "scan", "grades"]).fails("MR7332", 75);
    owner.place.run(["table", "create", "grades", "--codec", "text"]).ok();
    owner.put("grades", "a", "hello");
    replica.follows("grades");
    assert_eq!(replica.all("grades"), owner.all("grades"));
    let unchanged = replica.place.run(["--json", "up"]).ok();
    assert!(unchanged.text().contains("unchanged"), "{}", unchanged.text());
    let other = owner.address("/other");
    replica.place.write("millrace.toml", &format!("[tables.grades]\nfrom = \"{other}\"\n"));
    replica.place.run(["up"]).fails("MR7336", 1);
    replica.place.write("millrace.toml", &declared("history = 50\n"));
    replica.place.run(["down", "--logs"]).ok();
    assert!(replica.place.run(["--json", "table", "ls"]).ok().text().is_empty());
}

#[test]
fn a_repair_at_the_owner_reaches_the_replica_as_a_new_version() {
    let (owner, replica) = sites();
    let correction = br#"{"key": "alice", "value": 50}"#;
    owner.place.feed(["repair", "run", "grades", "--values", "-", "--reason", "a slip"], correction).ok();
    owner.place.run(["repair", "apply", "1"]).ok();
    eventually("the correction is here", || replica.all("grades") == owner.all("grades"));
    let alice = replica.get("grades", "alice").unwrap();
    assert_eq!((&alice["data"], &alice["version"]), (&json!("50"), &json!(7)));
}
