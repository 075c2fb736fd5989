//! A repair of a table reaches its database like any other change, and so does its rollback.

use crate::postgres::{PASSWORD, Postgres};
use millrace_tests::{Host, Place};

const APPLICATION: &str = r#"
[logs.points]
[logs.reports]
[tables.grades]
database = "main"
[tables.totals]
database = "main"
[functions.grade]
runtime = "python"
code = "grade.py"
handler = "grade:grade"
on = ["points"]
[functions.report]
runtime = "python"
code = "grade.py"
handler = "grade:report"
on = ["grades"]
"#;

const CODE: &str = "
def grade(record, ctx):
    name, points = record.text().split()
    ctx.table('grades')[name] = int(points)
    ctx.table('totals').increment('points', int(points))
    if int(points) > 50:
        ctx.table('totals').increment('high')


def report(record, ctx):
    ctx.append('reports', ctx.table('grades').change(record).key + ' ' + record.text())
";

/// What the database has, once it has everything.
#[track_caller]
fn has(place: &Place, postgres: &Postgres, expected: [Option<&str>; 4]) {
    place.run(["table", "externalize"]).ok();
    let of = |table, key| postgres.value(table, key);
    let found = [of("grades", "alice"), of("grades", "bob"), of("totals", "points"), of("totals", "high")];
    assert_eq!(found.each_ref().map(Option::as_deref), expected);
    for table in ["grades", "totals"] {
        place.run(["table", "check", table]).ok();
    }
}

#[test]
fn the_database_has_what_a_repair_makes_of_the_keys() {
    let postgres = Postgres::start();
    let place = Place::empty();
    place.write("grade.py", CODE);
    let database = format!("[databases.main]\nurl = \"{}\"\nsecret = \"main-password\"\n", postgres.url());
    place.write("millrace.toml", &(database + APPLICATION));
    place.run(["up"]).ok();
    place.feed(["secret", "set", "main-password"], PASSWORD.as_bytes()).ok();
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "none"]));
    place.feed(["log", "append", "points", "--lines"], b"alice 7\nbob 95\nalice 8\n").ok();
    place.run(["run", "wait", "--idle"]).ok();
    has(&place, &postgres, [Some("8"), Some("95"), Some("110"), Some("1")]);
    place.feed(["repair", "run", "points", "--values", "-"], br#"{"seqno": 2, "value": "bob 5"}"#).ok();
    has(&place, &postgres, [Some("8"), Some("95"), Some("110"), Some("1")]);
    place.run(["repair", "apply", "1"]).ok();
    // The key that no run puts any more is gone.
    has(&place, &postgres, [Some("8"), Some("5"), Some("20"), None]);
    let reports = place.run(["log", "get", "reports", "--all", "--json"]).ok();
    assert!(reports.text().contains("bob 5") && !reports.text().contains("bob 95"), "{reports:?}");
    // A key names the record that it has now.
    let alice = br#"{"key": "alice", "value": 9}"#;
    let asked = place.feed(["repair", "run", "grades", "--values", "-", "--json"], alice).ok();
    let number = asked.object()["repair"].as_u64().expect("its number").to_string();
    place.run(["repair", "apply", &*number]).ok();
    has(&place, &postgres, [Some("9"), Some("5"), Some("20"), None]);
    let none = place.feed(["repair", "run", "grades", "--values", "-"], br#"{"key": "nobody", "value": 9}"#);
    none.fails("MR7003", 2);
    place.run(["repair", "rollback", &*number]).ok();
    place.run(["repair", "rollback", "1"]).ok();
    has(&place, &postgres, [Some("8"), Some("95"), Some("110"), Some("1")]);
    drop(host);
}
