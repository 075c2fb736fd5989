//! What others see: no answer before the database has everything that it depends on, and every other answer at once.

use crate::{
    http::{Request, ask},
    postgres::{Postgres, place},
};
use millrace_tests::{Host, Place, eventually};

/// How often something independent is answered while a dependent answer must not be.
const ROUNDS: usize = 5;

fn serve(place: &Place) -> Host {
    Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]))
}

/// Asserts that none of these is answered, although everything that depends on no write is.
#[track_caller]
fn all_wait(port: u16, waiting: &mut [Request]) {
    for round in 0..ROUNDS {
        let answer = ask(port, "POST", "logs/other/records", &round.to_string());
        assert!(answer.status < 300, "{answer:?}");
        assert_eq!(ask(port, "GET", "logs/other/records/latest", "").status, 200);
        assert_eq!(ask(port, "GET", "why", "").status, 200);
        for (number, request) in waiting.iter_mut().enumerate() {
            assert!(request.poll().is_none(), "request {number} is answered");
        }
    }
}

#[test]
fn an_answer_leaves_when_the_database_has_what_it_shows() {
    let postgres = Postgres::start();
    let place = place(&postgres, "");
    let host = serve(&place);
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/alice", "1").status, 200);
    assert_eq!(postgres.value("grades", "alice").as_deref(), Some("1"));
    let block = postgres.block("grades");
    let get = |path: &str| Request::send(port, "GET", path, "", "").unwrap();
    let mut put = vec![Request::send(port, "PUT", "tables/grades/keys/alice", "", "2").unwrap()];
    eventually("the record is there", || {
        let tables = ask(port, "GET", "tables", "").json();
        tables["tables"][0]["latest"] == 2
    });
    let mut waiting = vec![
        get("tables/grades/keys/alice"),
        get("tables/grades?prefix=a"),
        get("tables/grades/keys/alice?versions=2"),
        get("logs/grades/records/2"),
        get("logs/grades/records/latest"),
        get("journal"),
        // It says which version there is.
        Request::send(port, "PUT", "tables/grades/keys/alice", "If-Match: \"1\"\r\n", "3").unwrap(),
        // Whether there is a key depends on deletions.
        get("tables/grades/keys/bob"),
    ];
    waiting.append(&mut put);
    all_wait(port, &mut waiting);
    // What was written before is shown.
    assert_eq!(ask(port, "GET", "logs/grades/records/1", "").body, "1");
    let databases = ask(port, "GET", "databases", "").json();
    assert_eq!(
        (&databases["databases"][0]["unwritten"], &databases["databases"][0]["database"]),
        (&1.into(), &"main".into())
    );
    drop(block);
    let statuses: Vec<u16> = waiting.into_iter().map(|request| request.wait().unwrap().status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 412, 404, 200]);
    assert_eq!(postgres.value("grades", "alice").as_deref(), Some("2"));
}

#[test]
fn what_a_function_makes_of_an_unwritten_value_waits_with_it() {
    let functions = "[logs.points]\n[logs.seen]\n[logs.derived]\n[tables.local]\n\
        [functions.total]\nruntime = \"python\"\ncode = \"total.py\"\nhandler = \"total:total\"\non = [\"points\"]\n\
        [functions.follow]\nruntime = \"python\"\ncode = \"total.py\"\nhandler = \"total:follow\"\non = [\"seen\"]\n";
    let postgres = Postgres::start();
    let place = Place::empty();
    place.write(
        "total.py",
        "def total(record, ctx):\n    grades = ctx.table('grades')\n    grades['sum'] = grades.get('sum', 0) + record.json()\n    \
         ctx.append('seen', str(record.json()))\n    ctx.table('local')['last'] = record.json()\n\n\n\
         def follow(record, ctx):\n    ctx.append('derived', record.data)\n    return {'n': 1}\n",
    );
    let url = postgres.url();
    place.write(
        "millrace.toml",
        &format!(
            "[namespace]\nsegment_size = \"1MiB\"\n[logs.other]\n[databases.main]\nurl = \"{url}\"\nsecret = \"main-password\"\n\
             [tables.grades]\ndatabase = \"main\"\n{functions}"
        ),
    );
    place.run(["up"]).ok();
    place.feed(["secret", "set", "main-password"], crate::postgres::PASSWORD.as_bytes()).ok();
    let host = serve(&place);
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/sum", "1").status, 200);
    let block = postgres.block("grades");
    // The record itself depends on no write, so its receipt comes at once.
    assert!(ask(port, "POST", "logs/points/records", "4").status < 300);
    eventually("both functions have run", || ask(port, "GET", "logs/derived", "").json()["latest"] == 1);
    let get = |path: &str| Request::send(port, "GET", path, "", "").unwrap();
    let mut waiting = vec![
        get("tables/grades/keys/sum"),
        // Appended by the run that wrote.
        get("logs/seen/records/1"),
        // A table without a database, changed by the same run.
        get("tables/local/keys/last"),
        // Appended by a run that such a record triggered.
        get("logs/derived/records/1"),
    ];
    all_wait(port, &mut waiting);
    drop(block);
    for request in waiting {
        assert_eq!(request.wait().unwrap().status, 200);
    }
    assert_eq!(postgres.value("grades", "sum").as_deref(), Some("5"));
}

#[test]
fn a_host_that_starts_again_knows_what_is_not_written() {
    let mut postgres = Postgres::start();
    let place = place(&postgres, "");
    let host = serve(&place);
    assert_eq!(ask(host.port(), "PUT", "tables/grades/keys/a", "1").status, 200);
    postgres.die();
    let port = host.port();
    let unanswered = Request::send(port, "PUT", "tables/grades/keys/a", "", "2").unwrap();
    eventually("the record is there", || ask(port, "GET", "tables", "").json()["tables"][0]["latest"] == 2);
    drop(host);
    assert!(unanswered.wait().is_none());
    let host = serve(&place);
    let port = host.port();
    let mut waiting = vec![Request::send(port, "GET", "tables/grades/keys/a", "", "").unwrap()];
    all_wait(port, &mut waiting);
    postgres.live();
    let answer = waiting.remove(0).wait().unwrap();
    assert_eq!((answer.status, &*answer.body), (200, "2"));
    assert_eq!(postgres.value("grades", "a").as_deref(), Some("2"));
}

#[test]
fn a_table_that_is_asynchronous_waits_for_nothing_and_is_written() {
    let postgres = Postgres::start();
    let place = place(&postgres, "[tables.events]\ndatabase = \"main\"\nmode = \"asynchronous\"\n");
    let host = serve(&place);
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/events/keys/a", "1").status, 200);
    place.run(["table", "externalize", "events"]).ok();
    assert_eq!(postgres.value("events", "a").as_deref(), Some("1"));
    let block = postgres.block("events");
    assert_eq!(ask(port, "PUT", "tables/events/keys/a", "2").status, 200);
    assert_eq!(ask(port, "GET", "tables/events/keys/a", "").body, "2");
    assert_eq!(postgres.value("events", "a").as_deref(), Some("1"));
    drop(block);
    eventually("it is written", || postgres.value("events", "a").as_deref() == Some("2"));
}

#[test]
fn a_replica_gets_nothing_that_the_database_lacks() {
    let postgres = Postgres::start();
    let place = place(&postgres, "");
    let host = serve(&place);
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/alice", "1").status, 200);
    let cloud = Place::new();
    let _cloud = cloud.serve();
    cloud.run(["table", "mirror", "grades", "--from", &format!("mr://127.0.0.1:{port}/site")]).ok();
    let value = || {
        let read = cloud.run(["--json", "table", "get", "grades", "alice"]);
        (read.code == 0).then(|| read.object()["data"].as_str().unwrap().to_owned())
    };
    eventually("it is loaded", || value().is_some());
    let block = postgres.block("grades");
    let put = Request::send(port, "PUT", "tables/grades/keys/alice", "", "2").unwrap();
    eventually("the record is there", || ask(port, "GET", "tables", "").json()["tables"][0]["latest"] == 2);
    // However long it waits, and whatever else the owner does.
    for round in 0..ROUNDS {
        assert!(ask(port, "POST", "logs/other/records", &round.to_string()).status < 300);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(value().as_deref(), Some("1"));
    }
    drop(block);
    let mut put = put;
    eventually("the put is answered", || put.poll().is_some());
    eventually("it is here", || value().as_deref() == Some("2"));
}
