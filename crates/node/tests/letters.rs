//! Dead letters that are run again, and what is none of them.

mod common;

use common::{Fixture, LONG, log, name};
use millrace_node::{AppendOptions, Code, CreateOptions, Durability, EventId, Namespace, Retried, RetriedAll};
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
    let mut told = Vec::new();
    let all = namespace.retry_function(&name("f"), Duration::ZERO, &mut |retried| told.push(retried.clone())).unwrap();
    (all, told)
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
fn a_letter_that_no_run_left_moves_nothing_and_stands_in_nobodys_way() {
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
    let (all, told) = retry(&f.namespace);
    assert_eq!((all.retried, all.before, all.lost), (1, 0, 4 + 2), "{told:?}");
    assert_eq!((&*told[0].log, told[0].seqno), ("in", 2));
    assert_eq!(f.namespace.latest("_keys").unwrap(), keys);
    let refused = f.namespace.retry_run(foreign, Duration::ZERO).unwrap_err();
    assert_eq!(refused.code(), Code::LogInternal, "{refused}");
    f.namespace.append("out", b"y", keyed("second")).unwrap();
}

#[test]
fn a_record_of_the_log_of_letters_that_is_run_again_is_not_taken_for_a_letter() {
    let f = failing();
    f.python("watch", &["dead/f"], "raise ValueError('never')", |spec| spec.retries = 0);
    f.append("in", "bad");
    run_all(&f);
    let watch = name("watch");
    let all = f.namespace.retry_function(&watch, Duration::ZERO, &mut |_| {}).unwrap();
    assert_eq!((all.retried, f.namespace.latest("dead/f").unwrap()), (1, 2), "the letter stands there twice");
    let (all, _) = retry(&f.namespace);
    assert_eq!((all.retried, f.namespace.latest("in").unwrap()), (1, 2), "and is one");
}

#[test]
fn that_a_letter_was_run_again_before_is_told_once_it_is_durable() {
    let f = {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Disk, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
        Fixture { dir, namespace }
    };
    f.log("in");
    f.python("f", &["in"], "pass", |_| {});
    let run: EventId = "1-1-1".parse().unwrap();
    forge(&f, &letter("1-1-1", "in", "Z2FyYmFnZQ=="), run);
    // Another process has run it again, and was killed before the disk had that.
    let notes = log(&format!("_retried/{}", f.namespace.log("dead/f").unwrap().id()));
    let journal = f.namespace.journal();
    let noted = journal.commit(|tx| {
        let notes = tx.create_log(&notes, 10)?;
        tx.append(&notes, br#"{"letter":1,"run":"1-1-2"}"#, EventId::NONE, 0).map(drop)
    });
    let noted = noted.unwrap().end;
    assert!(journal.durable() < noted);
    let (all, told) = retry(&f.namespace);
    assert_eq!((all.retried, all.before, told.len()), (0, 1, 0));
    assert!(journal.durable() >= noted);
}
