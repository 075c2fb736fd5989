//! Rows that the database refuses.

use crate::{
    http::{Request, ask},
    postgres::{Postgres, place},
};
use millrace_tests::{Host, Place, eventually};

/// Everybody who may observe the namespace sees why nothing is written, also those who may not read the table.
#[test]
fn a_refusal_names_the_records_and_no_value() {
    let postgres = Postgres::start();
    let place = place(&postgres, "");
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/alice", "1").status, 200);
    postgres.query(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'secret % of %', new.value, new.key; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON grades FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    let unanswered = Request::send(port, "PUT", "tables/grades/keys/hunter2", "", "\"hunter2\"").unwrap();
    eventually("the stream stops", || {
        let databases = ask(port, "GET", "databases", "").json();
        let trouble = &databases["databases"][0]["trouble"];
        let expected = "(records grades 2): P0001: a trigger or a function of the database raised an error";
        trouble["stopped"] == true && trouble["error"].as_str().is_some_and(|error| error.ends_with(expected))
    });
    for path in ["databases", "why", "why/grades", "status"] {
        let shown = ask(port, "GET", path, "").body;
        assert!(!shown.contains("hunter2"), "{path}: {shown}");
    }
    for args in [&["table", "lag"][..], &["why"]] {
        let shown = place.run(args).ok();
        assert!(!shown.text().contains("hunter2"), "{shown:?}");
    }
    // Once the database accepts it, it is written.
    postgres.query("DROP TRIGGER refuse ON grades");
    place.run(["table", "resume", "main"]).ok();
    eventually("it is written", || postgres.value("grades", "hunter2").as_deref() == Some("\"hunter2\""));
    drop(unanswered);
}

fn constrained() -> (Postgres, Place, Host) {
    let postgres = Postgres::start();
    let place = place(&postgres, "");
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    assert_eq!(ask(host.port(), "PUT", "tables/grades/keys/alice", "1").status, 200);
    postgres.query("ALTER TABLE grades ADD CONSTRAINT small CHECK ((value)::int < 100)");
    (postgres, place, host)
}

#[test]
fn refused_writes_become_dead_letters_and_the_stream_goes_on() {
    let (postgres, place, host) = constrained();
    let port = host.port();
    let refused = Request::send(port, "PUT", "tables/grades/keys/bob", "", "1000").unwrap();
    eventually("the stream stops", || {
        ask(port, "GET", "databases", "").json()["databases"][0]["trouble"]["stopped"] == true
    });
    let url = postgres.url();
    let set = ["table", "database", "main", "--url", &url, "--secret", "main-password", "--on-refused", "dead-letter"];
    assert!(place.run(set).ok().text().contains("changed"));
    eventually("the stream goes on", || ask(port, "GET", "databases", "").json()["databases"][0]["trouble"].is_null());
    drop(refused);
    assert_eq!(ask(port, "PUT", "tables/grades/keys/carol", "2").status, 200);
    assert_eq!((postgres.value("grades", "bob"), postgres.value("grades", "carol")), (None, Some("2".into())));
    let letters = place.records("dead/grades");
    let letter: serde_json::Value = serde_json::from_str(&letters[0]).unwrap();
    assert_eq!(
        (letters.len(), &letter["key"], &letter["code"], &letter["data"]),
        (1, &"bob".into(), &"23514".into(), &"1000".into())
    );
    let differs = place.run(["table", "check", "grades"]).fails("MR7327", 1);
    assert!(differs.text().contains("bob"), "{differs:?}");
    // After a kill it is not sent again, and a later value of the key is written.
    drop(host);
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    assert_eq!(ask(host.port(), "PUT", "tables/grades/keys/bob", "3").status, 200);
    place.run(["table", "check", "grades"]).ok();
    assert_eq!(place.records("dead/grades").len(), 1);
}

#[test]
fn a_database_refuses_changes_of_others_while_the_setting_says_so() {
    let (postgres, place, host) = constrained();
    let (port, url) = (host.port(), postgres.url());
    let try_it =
        "DO $$ BEGIN UPDATE grades SET value = '9'; EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END $$";
    let set = ["table", "database", "main", "--url", &url, "--secret", "main-password"];
    assert!(place.run([&set[..], &["--refuse-outside"]].concat()).ok().text().contains("changed"));
    let guards = "SELECT tgname::text FROM pg_trigger WHERE tgrelid = 'grades'::regclass AND tgname LIKE 'millrace%'";
    eventually("the table has its trigger", || postgres.query(guards).len() == 1);
    postgres.query(try_it);
    assert_eq!(postgres.value("grades", "alice").as_deref(), Some("1"));
    assert_eq!(ask(port, "PUT", "tables/grades/keys/alice", "2").status, 200);
    assert_eq!(postgres.value("grades", "alice").as_deref(), Some("2"));
    assert!(place.run(set).ok().text().contains("changed"));
    eventually("the table has no trigger", || postgres.query(guards).is_empty());
    postgres.query(try_it);
    assert_eq!(postgres.value("grades", "alice").as_deref(), Some("9"));
    let cache = ["table", "database", "cache", "--url", "redis://127.0.0.1:6379", "--refuse-outside"];
    place.run(cache).fails("MR7324", 2);
}

#[test]
fn a_database_that_somebody_has_changed_gets_all_values_again() {
    let (postgres, place, host) = constrained();
    let port = host.port();
    for key in ["bob", "carol"] {
        assert_eq!(ask(port, "PUT", &format!("tables/grades/keys/{key}"), "2").status, 200);
    }
    place.run(["table", "check", "grades"]).ok();
    postgres.query("UPDATE grades SET value = '9' WHERE key = 'alice'; DELETE FROM grades WHERE key = 'bob'");
    postgres.query("INSERT INTO grades (key, value, version) VALUES ('mallory', '3', 1)");
    let differs = place.run(["--json", "table", "check", "grades"]);
    assert_eq!(differs.code, 1, "{differs:?}");
    assert_eq!(differs.text().lines().filter(|line| line.contains("expected")).count(), 3, "{differs:?}");
    place.run(["table", "resync", "main"]).ok();
    eventually("it has the values", || place.run(["table", "check", "grades"]).code == 0);
    assert_eq!(postgres.query("SELECT key FROM grades ORDER BY key"), ["alice", "bob", "carol"]);
    assert_eq!(ask(port, "PUT", "tables/grades/keys/bob", "4").status, 200);
    assert_eq!(postgres.value("grades", "bob").as_deref(), Some("4"));
    // Another namespace takes over.
    drop(host);
    let next = crate::postgres::place(&postgres, "");
    let host = Host::start(next.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let mut owner = String::new();
    eventually("the database belongs to the first namespace", || {
        let databases = ask(host.port(), "GET", "databases", "").json();
        let trouble = &databases["databases"][0]["trouble"];
        let error = trouble["error"].as_str().unwrap_or_default();
        owner =
            error.split("belongs to '").nth(1).and_then(|rest| rest.split('\'').next()).unwrap_or_default().to_owned();
        trouble["code"] == "MR7316" && !owner.is_empty()
    });
    next.run(["table", "resync", "main", "--previous-owner", &owner]).ok();
    eventually("it has its values", || next.run(["table", "check", "grades"]).code == 0);
    assert_eq!(ask(host.port(), "PUT", "tables/grades/keys/dora", "5").status, 200);
    assert_eq!(postgres.query("SELECT key FROM grades"), ["dora"]);
}

#[test]
fn rows_that_were_there_before_are_loaded() {
    let postgres = Postgres::start();
    postgres.query(
        "CREATE TABLE grades (key text COLLATE \"C\" PRIMARY KEY, value jsonb NOT NULL, version bigint NOT NULL DEFAULT 0); \
         INSERT INTO grades (key, value) SELECT 'k' || n, to_jsonb(n) FROM generate_series(1, 1200) n",
    );
    let place = place(&postgres, "");
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/k7", "\"mine\"").status, 200);
    assert_eq!(place.run(["table", "load", "grades"]).ok().text(), "loaded 1199 rows into table grades\n");
    assert_eq!(place.run(["table", "load", "grades"]).ok().text(), "loaded 0 rows into table grades\n");
    assert_eq!(ask(port, "GET", "tables/grades/keys/k1200", "").body, "1200");
    place.run(["table", "externalize", "grades"]).ok();
    assert!(place.run(["table", "check", "grades"]).ok().text().starts_with("1200 keys are equal"));
}
