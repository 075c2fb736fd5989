//! Records that leave the host by themselves: those of one stream wait for the database, and those of another do not.

use crate::{
    http::ask,
    postgres::{Postgres, place},
};
use millrace_tests::{Host, Place, eventually};

const RECORDS: u64 = 5;

fn topic(place: &Place, name: &str, args: &[&str]) -> millrace_tests::Ended {
    let args: Vec<&str> = ["--json", "topic", "get", name].into_iter().chain(args.iter().copied()).collect();
    place.run(args)
}

/// A log that waits for a database does not keep back the feeds of other topics.
#[test]
fn a_feed_that_waits_for_a_database_does_not_block_another() {
    let postgres = Postgres::start();
    let place = place(&postgres, "");
    place.run(["cluster", "init"]).ok();
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/a", "1").status, 200);
    eventually("the host leads", || place.run(["topic", "create", "changes"]).code == 0);
    place.run(["topic", "create", "free"]).ok();
    place.run(["topic", "feed", "grades", "changes"]).ok();
    place.run(["topic", "feed", "other", "free"]).ok();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/a", "2").status, 200);
    eventually("a record is published", || topic(&place, "changes", &["1"]).code == 0);
    let block = postgres.block("grades");
    let unanswered = crate::http::Request::send(port, "PUT", "tables/grades/keys/a", "", "3").unwrap();
    // A feed that waited at the gate would say so after 30 seconds, in other words, and until then no other feed would go on.
    eventually("the feed says why it waits", || {
        let why = place.run(["cluster", "why"]).ok();
        why.text().contains("MR7310: record 3 of log 'grades' waits for the writes of a database")
    });
    for number in 1..=RECORDS {
        assert!(ask(port, "POST", "logs/other/records", &number.to_string()).status < 300);
        eventually("it is published", || topic(&place, "free", &[&number.to_string()]).code == 0);
    }
    assert_ne!(topic(&place, "changes", &["2"]).code, 0, "the database does not have it");
    drop(block);
    eventually("it is published", || topic(&place, "changes", &["2"]).code == 0);
    drop(unanswered);
}
