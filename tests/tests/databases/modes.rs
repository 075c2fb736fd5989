//! Runs that wait for the database: those of synchronous tables and functions, and those that ask for it.

use crate::{
    http::{Request, ask},
    postgres::{PASSWORD, Postgres},
};
use millrace_tests::{Host, Place, eventually};

/// How often something independent is answered while a run must not go on.
const ROUNDS: usize = 5;

const FUNCTIONS: &str = r#"
[logs.asks]
[logs.seen]
[logs.other]
[logs.echo]
[logs.quick]
[logs.exactly]
[logs.careful]
[logs.watched]
[tables.events]
database = "main"
mode = "asynchronous"
[tables.grades]
database = "main"
[tables.exact]
database = "main"
mode = "synchronous"
[functions.follow]
runtime = "python"
code = "modes.py"
handler = "modes:follow"
on = ["exact"]
[functions.answer]
runtime = "python"
code = "modes.py"
handler = "modes:answer"
on = ["asks"]
[functions.quick]
runtime = "python"
code = "modes.py"
handler = "modes:put"
on = ["quick"]
table_mode = "asynchronous"
[functions.exactly]
runtime = "python"
code = "modes.py"
handler = "modes:put"
on = ["exactly"]
table_mode = "synchronous"
[functions.careful]
runtime = "python"
code = "modes.py"
handler = "modes:note"
on = ["careful"]
table_mode = "external"
[functions.watch]
runtime = "python"
code = "modes.py"
handler = "modes:watch"
on = ["grades"]
[functions.echo]
runtime = "python"
code = "modes.py"
handler = "modes:echo"
on = ["other"]
"#;

const CODE: &str = "
def follow(record, ctx):
    ctx.append('seen', 'follow')


def answer(record, ctx):
    if record.text() == 'exact':
        ctx.append('seen', 'exact ' + str(ctx.table('exact').get('a')))
    if record.text() == 'grades':
        ctx.append('seen', 'grades ' + str(ctx.table('grades').get('a')))
    if record.text() == 'externalize':
        value = ctx.table('grades').get('a')
        ctx.externalize()
        ctx.append('seen', 'externalize ' + str(value))
    if record.text() == 'count':
        grades = ctx.table('grades')
        grades['count'] = grades.get('count', 0) + 1
        ctx.externalize()


def put(record, ctx):
    ctx.table('grades')[record.text()] = 2


def note(record, ctx):
    ctx.table('events')[record.text()] = 2


def watch(record, ctx):
    ctx.append('watched', ctx.table(record.log).change(record).key)


def echo(record, ctx):
    ctx.append('echo', record.data)
";

fn place(postgres: &Postgres) -> Place {
    let place = Place::empty();
    let url = postgres.url();
    place.write("modes.py", CODE);
    place
        .write("millrace.toml", &format!("[databases.main]\nurl = \"{url}\"\nsecret = \"main-password\"\n{FUNCTIONS}"));
    place.run(["up"]).ok();
    place.feed(["secret", "set", "main-password"], PASSWORD.as_bytes()).ok();
    place
}

fn latest(port: u16, log: &str) -> u64 {
    ask(port, "GET", &format!("logs/{log}"), "").json()["latest"].as_u64().expect("a number")
}

/// Runs of another function go on, and `seen` gets no record.
#[track_caller]
fn nothing_is_seen(port: u16, seen: u64) {
    nothing_is_new(port, "seen", seen);
}

/// Runs of another function go on, and a log gets no record.
#[track_caller]
fn nothing_is_new(port: u16, log: &str, seen: u64) {
    for _ in 0..ROUNDS {
        let before = latest(port, "echo");
        assert!(ask(port, "POST", "logs/other/records", "x").status < 300);
        eventually("the other function runs", || latest(port, "echo") > before);
        assert_eq!(latest(port, log), seen, "a run went on");
    }
}

#[test]
fn a_run_waits_for_a_synchronous_table() {
    let postgres = Postgres::start();
    let place = place(&postgres);
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/exact/keys/a", "1").status, 200);
    assert_eq!(ask(port, "PUT", "tables/grades/keys/a", "1").status, 200);
    eventually("the function has run", || latest(port, "seen") == 1);
    let block = postgres.block("exact\", \"grades");
    let put = Request::send(port, "PUT", "tables/exact/keys/a", "", "2").unwrap();
    eventually("the record is there", || latest(port, "exact") == 2);
    nothing_is_seen(port, 1);
    // Nor does a run read it.
    assert!(ask(port, "POST", "logs/asks/records", "exact").status < 300);
    nothing_is_seen(port, 1);
    // A run that reads another table of the same database goes on, although that has unwritten values as well.
    let other = Request::send(port, "PUT", "tables/grades/keys/a", "", "2").unwrap();
    eventually("the record is there", || latest(port, "grades") == 2);
    drop(block);
    eventually("both runs have ended", || latest(port, "seen") == 3);
    drop((put, other));
    let seen = place.records("seen");
    assert!(seen.contains(&"follow".to_owned()) && seen.contains(&"exact 2".to_owned()), "{seen:?}");
}

#[test]
fn a_run_waits_for_what_it_has_read_if_it_asks_for_that() {
    let postgres = Postgres::start();
    let place = place(&postgres);
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let port = host.port();
    assert_eq!(ask(port, "PUT", "tables/grades/keys/a", "1").status, 200);
    let block = postgres.block("grades");
    let put = Request::send(port, "PUT", "tables/grades/keys/a", "", "2").unwrap();
    eventually("the record is there", || latest(port, "grades") == 2);
    // Without asking it goes on.
    assert!(ask(port, "POST", "logs/asks/records", "grades").status < 300);
    eventually("the run has ended", || latest(port, "seen") == 1);
    assert!(ask(port, "POST", "logs/asks/records", "externalize").status < 300);
    nothing_is_seen(port, 1);
    drop(block);
    eventually("the run has ended", || latest(port, "seen") == 2);
    drop(put);
    assert_eq!(place.records("seen"), ["grades 2", "externalize 2"]);
    // Runs that are executed together see what those before them wrote: it is published and written first.
    let all: Vec<&str> = vec!["count"; 20];
    for body in all {
        assert!(ask(port, "POST", "logs/asks/records", body).status < 300);
    }
    eventually("all have run", || postgres.value("grades", "count").as_deref() == Some("20"));
    assert!(place.run(["--json", "run", "ls", "--state", "dead"]).ok().objects().is_empty());
}

#[test]
fn a_function_has_a_mode_of_its_own() {
    let postgres = Postgres::start();
    let place = place(&postgres);
    let host = Host::start(place.command(["--json", "serve", "--name", "site", "--listen", "127.0.0.1:0"]));
    let port = host.port();
    let append = |log: &str, key: &str| assert!(ask(port, "POST", &format!("logs/{log}/records"), key).status < 300);
    assert_eq!(ask(port, "PUT", "tables/grades/keys/a", "1").status, 200);
    assert_eq!(ask(port, "PUT", "tables/events/keys/a", "1").status, 200);
    place.run(["table", "externalize"]).ok();
    eventually("the function has run", || latest(port, "watched") == 1);
    let block = postgres.block("grades\", \"events");
    // Nothing waits for the changes of an asynchronous function, though the table is external.
    append("quick", "q");
    eventually("the other function has run", || latest(port, "watched") == 2);
    let answer = ask(port, "GET", "tables/grades/keys/q", "");
    assert_eq!((answer.status, &*answer.body), (200, "2"));
    // Answers wait for the changes of an external one, though the table is asynchronous.
    append("careful", "c");
    eventually("the record is there", || latest(port, "events") == 2);
    let mut careful = Request::send(port, "GET", "tables/events/keys/c", "", "").unwrap();
    // No run starts because of a synchronous change, and none reads it.
    append("exactly", "e");
    eventually("the record is there", || latest(port, "grades") == 3);
    nothing_is_new(port, "watched", 2);
    append("asks", "grades");
    nothing_is_seen(port, 0);
    assert_eq!(postgres.value("grades", "q"), None);
    assert!(careful.poll().is_none());
    drop(block);
    eventually("all runs have ended", || (latest(port, "watched"), latest(port, "seen")) == (3, 1));
    let answer = careful.wait().unwrap();
    assert_eq!((answer.status, &*answer.body), (200, "2"));
    let values = [("grades", "q"), ("events", "c"), ("grades", "e")].map(|(table, key)| postgres.value(table, key));
    assert_eq!(values, [(); 3].map(|()| Some("2".to_owned())));
}
