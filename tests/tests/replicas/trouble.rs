//! What is said when a replica is behind, and what helps.

use crate::world::{Line, Site};
use millrace_tests::{Place, eventually};
use std::fs;

fn followed(owner: &Site) -> (Site, Line) {
    owner.place.run(["table", "create", "grades"]).ok();
    owner.put("grades", "alice", "1");
    let (replica, line) = (Site::new("cloud"), Line::to(owner.port.number));
    let from = format!("mr://127.0.0.1:{}/school", line.port);
    replica.place.run(["table", "mirror", "grades", "--from", &from]).ok();
    replica.follows("grades");
    (replica, line)
}

#[test]
fn a_replica_that_lacks_what_a_token_names_says_so() {
    let mut owner = Site::new("school");
    let (replica, _line) = followed(&owner);
    owner.kill();
    // Programs that open the files change the table without a host.
    let token = owner.put("grades", "bob", "2");
    for place in [vec!["table"], vec!["-n", &*replica.address(""), "table"]] {
        let read = place.iter().copied().chain(["get", "grades", "bob", "--after", &token]);
        replica.place.run(read).fails("MR7331", 75);
    }
    let text = replica.place.run(["-n", &replica.address(""), "table", "ls"]).ok();
    assert!(text.text().contains("since") && text.text().contains("MR60"), "{}", text.text());
    let why = replica.place.run(["-n", &replica.address(""), "why", "grades"]).ok();
    assert!(why.text().contains("a replica of mr://"), "{}", why.text());
    owner.start();
    replica.place.run(["table", "get", "grades", "bob", "--after", &token]);
    eventually("it is here", || replica.place.run(["table", "get", "grades", "bob", "--after", &token]).code == 0);
    // A token of somebody else says nothing of this table.
    let foreign = "00000000000b-1-23";
    replica.place.run(["table", "get", "grades", "bob", "--after", foreign]).fails("MR7335", 2);
    replica
        .place
        .run(["-n", &replica.address(""), "table", "get", "grades", "bob", "--after", foreign])
        .fails("MR7335", 2);
}

#[test]
fn a_replica_that_was_away_for_too_long_is_loaded_again() {
    let place = Place::new();
    place.run(["namespace", "set", "--retain-bytes", "2MiB"]).ok();
    let owner = Site::at(place, "school");
    let (mut replica, _line) = followed(&owner);
    for key in ["b", "c", "gone"] {
        owner.put("grades", key, "1");
    }
    eventually("they are here", || replica.all("grades") == owner.all("grades"));
    replica.kill();
    owner.place.run(["table", "delete", "grades", "gone"]).ok();
    owner.place.run(["log", "create", "filler", "--history", "1"]).ok();
    let large = vec![b'x'; 200 << 10];
    for _ in 0..40 {
        owner.place.feed(["log", "append", "filler"], &large).ok();
    }
    owner.put("grades", "b", "2");
    // The host drops segments every few seconds.
    let first = owner.place.namespace().join("segments/0000000000");
    eventually("the owner's journal begins later", || !first.exists());
    replica.start();
    replica.follows("grades");
    assert_eq!(replica.all("grades"), owner.all("grades"));
    assert!(replica.get("grades", "gone").is_none());
    // One that has followed would have both.
    assert_eq!(replica.place.run(["--json", "table", "versions", "grades", "b"]).ok().objects().len(), 1);
}

#[test]
fn another_namespace_in_place_of_the_owner_stops_the_replica_until_somebody_decides() {
    let mut owner = Site::new("school");
    let (replica, _line) = followed(&owner);
    owner.kill();
    fs::remove_dir_all(owner.place.namespace()).unwrap();
    owner.place.run(["init", "--bare", "--durability", "memory"]).ok();
    owner.place.run(["table", "create", "grades"]).ok();
    owner.put("grades", "carol", "3");
    owner.start();
    eventually("it has stopped", || {
        let trouble = &replica.replica("grades")["trouble"];
        trouble["code"] == "MR7334" && trouble["stopped"] == true
    });
    // It shows what it has.
    assert_eq!(replica.all("grades").len(), 1);
    assert!(replica.get("grades", "alice").is_some());
    let from = replica.replica("grades")["owner"].as_str().unwrap().to_owned();
    replica.place.run(["table", "mirror", "grades", "--from", &from, "--reload"]).ok();
    replica.follows("grades");
    assert_eq!(replica.all("grades"), owner.all("grades"));
}

#[test]
fn a_table_moves_to_the_namespace_of_its_replica() {
    let owner = Site::new("school");
    let (replica, _line) = followed(&owner);
    let third = Site::new("third");
    third.place.run(["table", "mirror", "grades", "--from", &owner.address("")]).ok();
    third.follows("grades");
    // Nothing changes it any more, and the replica is current.
    replica.follows("grades");
    replica.place.run(["table", "mirror", "grades", "--stop"]).ok();
    replica.put("grades", "bob", "2");
    third.place.run(["table", "mirror", "grades", "--stop"]).ok();
    third.place.run(["log", "rm", "grades"]).ok();
    third.place.run(["table", "mirror", "grades", "--from", &replica.address("")]).ok();
    third.follows("grades");
    assert_eq!(third.all("grades"), replica.all("grades"));
    assert_eq!(third.get("grades", "bob").unwrap()["version"], 2);
}
