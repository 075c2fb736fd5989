//! A function that is run for records which were there before it.

mod common;

use common::{Fixture, LONG, name};
use millrace_node::{Backfilled, Code, RunFilter, Stretch};
use std::time::Duration;

const NOW: Duration = Duration::ZERO;

/// A log `in` of ten records, a function `seen` bound to it that has run for each of them, and a function `late` bound to none.
fn fixture() -> Fixture {
    let f = Fixture::new();
    for log in ["in", "seen", "late"] {
        f.log(log);
    }
    f.python("seen", &["in"], "ctx.append('seen', record.data)", |_| {});
    for n in 1..=10 {
        f.append("in", &n.to_string());
    }
    run_all(&f);
    f.python("late", &[], "ctx.append('late', f'{record.log} {record.seqno} {record.text()}')", |spec| {
        spec.pending_max = 4;
        spec.concurrency = 1;
        spec.ordered = true;
    });
    f
}

/// Has a host run everything that is pending.
fn run_all(f: &Fixture) {
    let host = f.host();
    f.idle();
    host.stop(LONG).unwrap();
}

#[test]
fn each_record_of_the_stretch_runs_that_function_alone_and_appends_nothing() {
    let f = fixture();
    let host = f.host();
    let mut heard = Vec::new();
    let stretch = Stretch { from: Some(3), to: Some(9), ..Stretch::default() };
    let done = f.namespace.backfill(&name("late"), "in", stretch, LONG, &mut |done| heard.push(done)).unwrap();
    assert_eq!(done, Backfilled { runs: 7, upto: 9, missing: 0, ran: 0 });
    assert_eq!(heard.last(), Some(&done));
    f.idle();
    host.stop(LONG).unwrap();
    assert_eq!(f.all("late"), (3..=9).map(|n| format!("in {n} {n}")).collect::<Vec<_>>());
    assert_eq!((f.namespace.latest("in").unwrap(), f.namespace.latest("seen").unwrap()), (10, 10));
    let filter = RunFilter { function: Some(name("late")), limit: 100, ..RunFilter::default() };
    let runs = f.namespace.runs(&filter).unwrap();
    let mut records: Vec<_> = runs.iter().map(|run| run.record.seqno).collect();
    records.sort_unstable();
    assert_eq!(records, (3..=9).collect::<Vec<_>>());
    // A record may be given as many runs as are asked for.
    let stretch = Stretch { from: Some(10), to: None, ..Stretch::default() };
    for _ in 0..2 {
        f.namespace.backfill(&name("late"), "in", stretch, NOW, &mut |_| {}).unwrap();
    }
    run_all(&f);
    assert_eq!(f.all("late")[7..], ["in 10 10", "in 10 10"]);
}

#[test]
fn without_a_stretch_only_records_run_that_were_there_before_the_function() {
    let f = fixture();
    f.python("late", &["in"], "ctx.append('late', f'{record.log} {record.seqno} {record.text()}')", |spec| {
        spec.pending_max = 100;
        spec.ordered = true;
    });
    for n in 11..=13 {
        f.append("in", &n.to_string());
    }
    let missed = Stretch { missed: true, ..Stretch::default() };
    let done = f.namespace.backfill(&name("late"), "in", missed, NOW, &mut |_| {}).unwrap();
    assert_eq!(done, Backfilled { runs: 10, upto: 10, missing: 0, ran: 3 });
    let all = Stretch::default();
    let done = f.namespace.backfill(&name("late"), "in", all, NOW, &mut |_| {}).unwrap();
    assert_eq!(done, Backfilled { runs: 13, upto: 13, missing: 0, ran: 0 });
}

#[test]
fn a_backfill_without_room_says_how_far_it_came_and_continues_behind_that() {
    let f = fixture();
    let mut last = Backfilled::default();
    let all = Stretch::default();
    let error = f.namespace.backfill(&name("late"), "in", all, NOW, &mut |done| last = done).unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    assert_eq!(last, Backfilled { runs: 4, upto: 4, missing: 0, ran: 0 });
    run_all(&f);
    let host = f.host();
    let rest = Stretch { from: Some(last.upto + 1), to: None, ..Stretch::default() };
    let done = f.namespace.backfill(&name("late"), "in", rest, LONG, &mut |_| {}).unwrap();
    assert_eq!(done, Backfilled { runs: 6, upto: 10, missing: 0, ran: 0 });
    f.idle();
    host.stop(LONG).unwrap();
    assert_eq!(f.all("late"), (1..=10).map(|n| format!("in {n} {n}")).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_backfilled_is_refused_before_anything_runs() {
    let f = fixture();
    f.namespace.trim_log(&"in".parse().unwrap(), 4, false).unwrap();
    let refused = |function: &str, log: &str, from, to| {
        let stretch = Stretch { from, to, ..Stretch::default() };
        let refused = f.namespace.backfill(&name(function), log, stretch, NOW, &mut |_| panic!("nothing is to run"));
        refused.unwrap_err().code()
    };
    assert_eq!(refused("late", "in", Some(3), None), Code::BelowHistory);
    assert_eq!(refused("late", "in", None, Some(11)), Code::AboveTail);
    assert_eq!(refused("late", "in", Some(9), Some(8)), Code::ValueInvalid);
    assert_eq!(refused("late", "none", None, None), Code::LogNotFound);
    assert_eq!(refused("nobody", "in", None, None), Code::FunctionNotFound);
    assert!(f.namespace.functions().unwrap().iter().all(|stat| stat.pending() == 0));
    // Without a first record it begins with the oldest.
    let stretch = Stretch { from: None, to: Some(5), ..Stretch::default() };
    let done = f.namespace.backfill(&name("late"), "in", stretch, NOW, &mut |_| {}).unwrap();
    assert_eq!(done, Backfilled { runs: 2, upto: 5, missing: 0, ran: 0 });
}
