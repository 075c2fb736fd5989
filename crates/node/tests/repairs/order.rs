//! What a replay sees of logs that have changed since, and in which order repairs can be rolled back.

use super::{Phase, ask, common, done, number, open, repairs};
use common::{Fixture, log, until};
use millrace_node::{
    Code, RunFilter, functions,
    repairs::{Ask, Correction, Request},
};
use std::fs;

/// `f` appends its record and what it finds in `a` and `b`.
fn reads(fixture: &Fixture) {
    let body = "def first(log):\n    try: return ctx.get(log, 1).data.decode()\n    except Exception: return 'gone'\n\
                ctx.append('out', f\"{record.data.decode()} {first('a')} {first('b')}\")";
    fixture.python("f", &["raw"], body, |_| ());
}

#[test]
fn a_replayed_run_reads_what_the_logs_kept_when_it_ran() {
    let fixture = Fixture::new();
    ["raw", "out", "b"].into_iter().for_each(|name| fixture.log(name));
    fixture.namespace.create_log(&log("a"), 1).unwrap();
    reads(&fixture);
    let host = fixture.host();
    ["a1", "a2"].into_iter().for_each(|value| _ = fixture.append("a", value));
    fixture.append("b", "b1");
    fixture.append("raw", "1");
    fixture.idle();
    fixture.namespace.set_history(&log("a"), 100).unwrap();
    let b = fixture.namespace.log(&log("b")).unwrap();
    fixture.namespace.journal().commit(|tx| tx.trim(&b, 2)).unwrap();
    fixture.append("raw", "2");
    fixture.idle();
    assert_eq!(fixture.all("out"), ["1 gone b1", "2 gone gone"]);
    let repair = open(&fixture, "raw", &[(1, Some("one")), (2, Some("two"))]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!(fixture.all("out"), ["one gone b1", "two gone gone"]);
    drop(host);
}

#[test]
fn a_read_that_was_refused_because_of_something_during_the_run_is_refused_again() {
    let fixture = Fixture::new();
    ["raw", "out", "a", "b"].into_iter().for_each(|name| fixture.log(name));
    let [began, go] = ["began", "go"].map(|name| fixture.dir.path().join(name));
    let body = format!(
        "open({began:?}, 'a').close()\nwhile not os.path.exists({go:?}): time.sleep(0.005)\n\
         def of(read):\n    try: return read()\n    except Exception: return 'gone'\n\
         a = of(lambda: ctx.get('a', 1).data.decode())\nb = of(lambda: ctx.latest('b'))\n\
         ctx.append('out', f'{{record.data.decode()}} {{a}} {{b}}')"
    );
    fixture.python("f", &["raw"], &body, |_| ());
    let host = fixture.host();
    ["a", "b"].into_iter().for_each(|log| _ = fixture.append(log, "x"));
    fixture.append("raw", "1");
    until("it has begun", || began.exists());
    let a = fixture.namespace.log(&log("a")).unwrap();
    fixture.namespace.journal().commit(|tx| tx.trim(&a, 2)).unwrap();
    fixture.namespace.remove_log(&log("b")).unwrap();
    fs::write(go, "").unwrap();
    fixture.idle();
    assert_eq!(fixture.all("out"), ["1 gone gone"]);
    let repair = open(&fixture, "raw", &[(1, Some("one"))]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!(fixture.all("out"), ["one gone gone"]);
    drop(host);
}

fn repaired(fixture: &Fixture, seqno: u64, value: Option<&str>) -> u64 {
    let repair = open(fixture, "raw", &[(seqno, value)]);
    assert_eq!(done(fixture, repair), Phase::Ready);
    assert_eq!(ask(fixture, Ask::Apply(repair)), Phase::Applied);
    repair
}

fn rolled_back(fixture: &Fixture, repair: u64) -> u64 {
    let undone = number(Ask::Rollback(repair, String::new()).ask(&fixture.namespace).unwrap());
    assert_eq!(done(fixture, undone), Phase::Applied);
    undone
}

/// The detail of the refusal to roll back a repair.
fn refused(fixture: &Fixture, repair: u64) -> String {
    let error = Ask::Rollback(repair, String::new()).ask(&fixture.namespace).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), Code::RepairPhase, "{error}");
    error.detail().to_owned()
}

#[test]
fn a_repair_is_rolled_back_only_to_the_history_from_which_it_came() {
    let fixture = Fixture::new();
    ["raw", "sum"].into_iter().for_each(|name| fixture.log(name));
    let sum = "ctx.append('sum', str(sum(int(ctx.get('raw', n).data) for n in range(1, record.seqno + 1))))";
    fixture.python("add", &["raw"], sum, |_| ());
    let host = fixture.host();
    for value in ["1", "2", "3"] {
        fixture.append("raw", value);
        fixture.idle();
    }
    let first = repaired(&fixture, 1, Some("10"));
    let second = repaired(&fixture, 2, Some("20"));
    assert_eq!(fixture.all("sum"), ["10", "30", "33"]);
    assert!(
        refused(&fixture, first).contains(&format!("repair {second} was applied after repair {first}; roll it back"))
    );
    // A rollback, and a rollback of it: the second repair is in force again.
    let undone = rolled_back(&fixture, second);
    assert_eq!(fixture.all("sum"), ["10", "12", "15"]);
    let redone = rolled_back(&fixture, undone);
    assert_eq!(fixture.all("sum"), ["10", "30", "33"]);
    assert!(
        refused(&fixture, first).contains(&format!("repair {redone} was applied after repair {first}; roll it back"))
    );
    assert_eq!(fixture.all("sum"), ["10", "30", "33"]);
    rolled_back(&fixture, redone);
    let third = rolled_back(&fixture, first);
    assert_eq!(fixture.all("sum"), ["1", "3", "6"]);
    let again = rolled_back(&fixture, third);
    assert_eq!(fixture.all("sum"), ["10", "12", "15"]);
    // What was released stays.
    let last = repaired(&fixture, 3, Some("30"));
    repairs::close(&fixture.namespace, last).unwrap();
    assert!(refused(&fixture, again).contains("is permanent"));
    assert_eq!(fixture.all("sum"), ["10", "12", "42"]);
    drop(host);
}

#[test]
fn a_rollback_replays_what_read_an_added_record_that_has_left_its_log_since() {
    let fixture = Fixture::new();
    ["raw", "in", "out"].into_iter().for_each(|name| fixture.log(name));
    fixture.namespace.create_log(&log("last"), 1).unwrap();
    fixture.python("keep", &["raw"], "if record.data != b'0': ctx.append('last', record.data)", |_| ());
    let tell = "n = ctx.latest('last')\nctx.append('out', ctx.get('last', n).data if n else b'none')";
    fixture.python("tell", &["in"], tell, |_| ());
    let host = fixture.host();
    fixture.append("raw", "0");
    fixture.idle();
    let request = Request {
        log: log("raw"),
        corrections: vec![Correction { seqno: 1, value: Some(b"7".into()) }],
        reason: String::new(),
        accept_unknown: false,
        append_new: true,
        across: Vec::new(),
        run_external: Vec::new(),
    };
    let repair = number(Ask::Open(request).ask(&fixture.namespace).unwrap());
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    fixture.append("in", "x");
    fixture.idle();
    // The log keeps one record: the added one leaves it.
    fixture.append("raw", "8");
    fixture.append("in", "y");
    fixture.idle();
    assert_eq!(fixture.all("out")[0], "7");
    rolled_back(&fixture, repair);
    assert_eq!(fixture.all("out")[0], "none");
    drop(host);
}

#[test]
fn the_rollback_of_a_removal_runs_what_was_cancelled_and_appends_its_records() {
    let fixture = Fixture::new();
    ["raw", "out"].into_iter().for_each(|name| fixture.log(name));
    fixture.python("f", &["raw"], "ctx.append('out', record.data)", |_| ());
    fixture.append("raw", "1");
    let repair = open(&fixture, "raw", &[(1, None)]);
    let here = || super::here(&fixture.namespace).unwrap();
    here();
    Ask::Apply(repair).ask(&fixture.namespace).unwrap();
    here();
    let host = fixture.host();
    fixture.idle();
    assert_eq!(fixture.namespace.latest("out").unwrap(), 0);
    rolled_back(&fixture, repair);
    assert_eq!(fixture.all("out"), ["1"]);
    drop(host);
}

#[test]
fn a_cancelled_run_stays_cancelled() {
    let fixture = Fixture::new();
    ["raw", "out"].into_iter().for_each(|name| fixture.log(name));
    fixture.python("f", &["raw"], "ctx.append('out', record.data)", |_| ());
    fixture.append("raw", "1");
    let runs = fixture.namespace.runs(&RunFilter { limit: 1, ..RunFilter::default() }).unwrap();
    functions::cancel(&fixture.namespace, runs[0].id).unwrap();
    let host = fixture.host();
    fixture.append("raw", "2");
    fixture.idle();
    let repair = open(&fixture, "raw", &[(1, Some("one")), (2, Some("two"))]);
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(ask(&fixture, Ask::Apply(repair)), Phase::Applied);
    assert_eq!(fixture.all("out"), ["two"]);
    drop(host);
}

/// A function whose replayed run does not end until the file is gone, and a repair that replays it.
fn endless(fixture: &Fixture) -> u64 {
    ["raw", "out"].into_iter().for_each(|name| fixture.log(name));
    let [began, waits] = ["began", "waits"].map(|name| fixture.dir.path().join(name));
    let body = format!(
        "if os.path.exists({waits:?}): open({began:?}, 'a').close()\n\
         while os.path.exists({waits:?}): time.sleep(0.005)\nctx.append('out', record.data)"
    );
    let day = std::time::Duration::from_secs(24 * 60 * 60);
    fixture.python("f", &["raw"], &body, |spec| spec.timeout = day);
    let host = fixture.host();
    fixture.append("raw", "1");
    fixture.idle();
    drop(host);
    fs::write(&waits, "").unwrap();
    open(fixture, "raw", &[(1, Some("one"))])
}

#[test]
fn a_repair_that_is_abandoned_ends_the_run_that_it_replays() {
    let fixture = Fixture::new();
    let repair = endless(&fixture);
    let host = fixture.host();
    until("the run is replayed", || fixture.dir.path().join("began").exists());
    assert_eq!(ask(&fixture, Ask::Abandon(repair)), Phase::Abandoned);
    fs::remove_file(fixture.dir.path().join("began")).unwrap();
    let next = open(&fixture, "raw", &[(1, Some("two"))]);
    until("the next repair replays the run", || fixture.dir.path().join("began").exists());
    fs::remove_file(fixture.dir.path().join("waits")).unwrap();
    assert_eq!(done(&fixture, next), Phase::Ready);
    drop(host);
}

#[test]
fn a_host_that_stops_ends_the_run_that_it_replays() {
    let fixture = Fixture::new();
    let repair = endless(&fixture);
    let host = fixture.host();
    until("the run is replayed", || fixture.dir.path().join("began").exists());
    drop(host);
    assert_eq!(repairs::repair(&fixture.namespace, repair).unwrap().phase, Phase::Running);
    fs::remove_file(fixture.dir.path().join("waits")).unwrap();
    let host = fixture.host();
    assert_eq!(done(&fixture, repair), Phase::Ready);
    assert_eq!(fixture.all("out"), ["1"]);
    drop(host);
}
