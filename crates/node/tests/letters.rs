//! Dead letters that are run again, and what is none of them.

mod common;

use common::{Fixture, LONG, log, name};
use millrace_node::{
    AppendOptions, Code, CreateOptions, Durability, EventId, Namespace, Retried, RetriedAll, RunFilter, RunState,
    functions, why,
};
use std::time::Duration;

/// A function `f` that fails on `bad`, and its namespace.
fn failing() -> Fixture {
    let f = Fixture::new();
    for name in ["in", "out"] {
        f.log(name);
    }
    f.python(
        "f",
        &["in"],
        "if record.text() == 'bad': raise ValueError('no')\nctx.append('out', record.data)",
        |spec| {
            spec.retries = 0;
        },
    );
    f
}

/// Has a host run everything that is pending.
fn run_all(f: &Fixture) {
    let host = f.host();
    f.idle();
    host.stop(LONG).unwrap();
}

fn retry(namespace: &Namespace) -> (RetriedAll, Vec<Retried>) {
    let mut reported = Vec::new();
    let all =
        namespace.retry_function(&name("f"), Duration::ZERO, &mut |retried| reported.push(retried.clone())).unwrap();
    (all, reported)
}

fn letter(run: &str, log: &str, data: &str) -> String {
    format!(
        r#"{{"run":"{run}","function":"f","log":"{log}","seqno":1,"attempts":1,"code":"MR3001","error":"","data":"{data}"}}"#
    )
}

/// Appends to the log of letters as somebody does who says that `cause` made him.
fn forge(f: &Fixture, text: &str, cause: EventId) {
    f.namespace.append("dead/f", text.as_bytes(), AppendOptions { cause, ..AppendOptions::default() }).unwrap();
}

#[test]
fn a_record_that_a_client_appended_to_a_dead_letter_log_is_not_retried_and_delays_no_other() {
    let f = failing();
    let keyed = |key| AppendOptions { key: Some(key), ..AppendOptions::default() };
    f.namespace.append("out", b"x", keyed("first")).unwrap();
    let foreign: EventId = "1-1-1".parse().unwrap();
    for cause in [EventId::NONE, foreign] {
        for log in ["_keys", "_links", "_retried/1", "_inbox/x", "in"] {
            forge(&f, &letter("1-1-1", log, "Z2FyYmFnZQ=="), if log == "in" { EventId::NONE } else { cause });
        }
    }
    forge(&f, &letter("-", "in", "Z2FyYmFnZQ=="), EventId::NONE);
    forge(&f, &letter("-", "in", "Z2FyYmFnZQ==").replace("MR3001", "MR2032"), foreign);
    // Of a run, but with what is no record.
    forge(&f, &letter("1-1-1", "in", "!"), foreign);
    forge(&f, &letter("1-1-1", "nowhere", "Z2FyYmFnZQ=="), foreign);
    f.append("in", "bad");
    run_all(&f);
    let keys = f.namespace.latest("_keys").unwrap();
    let (all, reported) = retry(&f.namespace);
    assert_eq!((all.retried, all.before, all.lost), (1, 0, 0), "{reported:?}");
    assert_eq!((&*reported[0].log, reported[0].seqno), ("in", 1));
    assert_eq!(f.namespace.latest("_keys").unwrap(), keys);
    let refused = f.namespace.retry_run(foreign, Duration::ZERO).unwrap_err();
    assert_eq!(refused.code(), Code::RunNotFound, "{refused}");
    f.namespace.append("out", b"y", keyed("second")).unwrap();
}

#[test]
fn a_retried_record_of_a_dead_letter_log_is_not_mistaken_for_a_dead_letter() {
    let f = failing();
    f.python("watch", &["dead/f"], "raise ValueError('never')", |spec| spec.retries = 0);
    f.append("in", "bad");
    run_all(&f);
    let watch = name("watch");
    let all = f.namespace.retry_function(&watch, Duration::ZERO, &mut |_| {}).unwrap();
    assert_eq!((all.retried, f.namespace.latest("dead/f").unwrap()), (1, 1));
    let (all, _) = retry(&f.namespace);
    assert_eq!((all.retried, f.namespace.latest("in").unwrap()), (1, 1), "and is one");
}

#[test]
fn an_earlier_retry_of_a_dead_letter_is_reported_once_it_is_durable() {
    let f = {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Disk, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
        Fixture { dir, namespace }
    };
    f.log("in");
    f.python("f", &["in"], "pass", |_| {});
    let run: EventId = "1-1-1".parse().unwrap();
    let journal = f.namespace.journal();
    let dead_letters = f.namespace.log("dead/f").unwrap();
    f.append("in", "garbage");
    let text = letter("1-1-1", "in", "Z2FyYmFnZQ==");
    journal.commit(|tx| tx.append(&dead_letters, text.as_bytes(), run, 0)).unwrap();
    // Another process has run it again, and was killed before the disk had that.
    let notes = log(&format!("_retried/{}", f.namespace.log("dead/f").unwrap().id()));
    let noted = journal.commit(|tx| {
        let notes = tx.create_log(&notes, 10)?;
        tx.append(&notes, br#"{"letter":1,"run":"1-1-2"}"#, EventId::NONE, 0).map(drop)
    });
    let noted = noted.unwrap().end;
    assert!(journal.durable() < noted);
    let (all, reported) = retry(&f.namespace);
    assert_eq!((all.retried, all.before, reported.len()), (0, 1, 0));
    assert!(journal.durable() >= noted);
}

#[test]
fn a_dead_letter_is_retried_on_the_existing_record_and_no_other_function_runs() {
    let f = failing();
    let mended = f.dir.path().join("mended");
    f.python("g", &["in"], "ctx.append('out', 'g ' + record.text())", |_| {});
    let body = format!(
        "if not os.path.exists({mended:?}): raise ValueError('no')\n\
         ctx.append('out', f'{{record.log}} {{record.seqno}} {{record.text()}} {{ctx.attempt}}')"
    );
    f.python("f", &["in"], &body, |spec| spec.retries = 0);
    f.append("in", "bad");
    run_all(&f);
    std::fs::write(&mended, "").unwrap();
    let dead = f.namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap().remove(0);
    let reasons = why(&f.namespace, "f").unwrap().reasons;
    assert!(reasons.iter().any(|reason| reason.to_string().contains("run retry")), "{reasons:#?}");
    let (all, reported) = retry(&f.namespace);
    assert_eq!((all.retried, reported[0].dead, reported[0].seqno, reported[0].before), (1, dead.id, 1, false));
    run_all(&f);
    assert_eq!(
        (f.all("in"), f.all("out")),
        (vec!["bad".to_owned()], vec!["g bad".to_owned(), "in 1 bad 1".to_owned()])
    );
    let run = f.namespace.run(reported[0].run).unwrap();
    assert_eq!((run.state, run.caused_by, run.record.clone()), (RunState::Done, dead.id, dead.record));
    assert_eq!(f.namespace.run(dead.id).unwrap().retried_as, Some(run.id));
    let why: Vec<String> = why(&f.namespace, "f").unwrap().reasons.iter().map(ToString::to_string).collect();
    assert!(why.iter().all(|reason| !reason.contains("run retry")), "{why:#?}");
    let again = f.namespace.retry_run(dead.id, Duration::ZERO).unwrap();
    assert_eq!((again.run, again.before), (run.id, true));
    run_all(&f);
    assert_eq!(f.all("out").len(), 2, "once");
}

#[test]
fn a_dead_letter_is_retried_on_its_copy_of_a_record_that_has_left_its_log() {
    let f = Fixture::new();
    f.log("out");
    f.namespace.create_log(&log("in"), 1).unwrap();
    let mended = f.dir.path().join("mended");
    let body = format!(
        "if not os.path.exists({mended:?}): raise ValueError('no')\nctx.append('out', f'{{record.seqno}} {{record.text()}}')"
    );
    f.python("f", &["in"], &body, |spec| spec.retries = 0);
    for n in 1..=5 {
        f.append("in", &format!("record {n}"));
    }
    run_all(&f);
    std::fs::write(&mended, "").unwrap();
    // The log is deleted and recreated: a record of the same number is another one.
    functions::remove(&f.namespace, &name("f")).unwrap();
    f.namespace.remove_log(&log("in")).unwrap();
    f.namespace.create_log(&log("in"), 10).unwrap();
    f.append("in", "not this one");
    f.python("f", &["in"], &body, |spec| spec.retries = 0);
    assert_eq!(retry(&f.namespace).0.retried, 5);
    run_all(&f);
    assert_eq!(f.all("out"), (1..=5).map(|n| format!("{n} record {n}")).collect::<Vec<_>>());
}

#[test]
fn a_client_that_claims_to_be_a_run_changes_neither_its_effects_nor_its_retry() {
    let f = failing();
    f.append("in", "bad");
    f.append("in", "good");
    let runs = f.namespace.runs(&RunFilter::default()).unwrap();
    let (good, bad) = (runs[0].id, runs[1].id);
    // Before the run has left its letter, somebody leaves one with other bytes; and appends as both runs do.
    forge(&f, &letter(&bad.to_string(), "in", "Z2FyYmFnZQ=="), bad);
    for cause in [good, bad] {
        f.namespace.append("out", b"forged", AppendOptions { cause, ..AppendOptions::default() }).unwrap();
    }
    run_all(&f);
    forge(&f, &letter(&bad.to_string(), "in", "Z2FyYmFnZQ=="), bad);
    f.namespace.append("in", b"as if retried", AppendOptions { cause: bad, ..AppendOptions::default() }).unwrap();
    let shown = |run| f.namespace.run(run).unwrap();
    let names = |run| shown(run).appends.iter().map(|r| format!("{} {}", r.log.as_ref().unwrap(), r.seqno)).collect();
    let (of_good, of_bad): (Vec<String>, Vec<String>) = (names(good), names(bad));
    assert_eq!((of_good, of_bad), (vec!["out 3".to_owned()], vec!["dead/f 2".to_owned()]));
    assert_eq!(shown(bad).retried_as, None);
    let last = f.namespace.runs(&RunFilter::default()).unwrap().remove(0);
    assert_eq!((last.record.seqno, last.caused_by), (3, EventId::NONE), "it is caused by no run");
    assert_eq!(f.records("in")[2].cause, bad, "what was claimed is kept");
    f.python("f", &["in"], "ctx.append('out', record.data)", |_| {});
    f.namespace.retry_run(bad, Duration::ZERO).unwrap();
    run_all(&f);
    assert_eq!(f.all("out"), ["forged", "forged", "good", "as if retried", "bad"]);
}
