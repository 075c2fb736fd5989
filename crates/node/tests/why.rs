//! `why` explains whatever is not running.

mod common;

use common::{Fixture, LONG, log, name, until};
use millrace_node::{AppendOptions, Code, EventId, Reason, RunFilter, RunState, functions, why};
use std::{fs, time::Duration};

fn reasons(f: &Fixture, target: &str) -> Vec<Reason> {
    why(&f.namespace, target).unwrap().reasons
}

fn newest_run(f: &Fixture, function: &str) -> EventId {
    let filter = RunFilter { function: Some(name(function)), ..RunFilter::default() };
    f.namespace.runs(&filter).unwrap()[0].id
}

/// Waits until the host tells other processes something about the target that fits.
fn until_told(f: &Fixture, target: &str, fits: impl Fn(&Reason) -> bool) -> Reason {
    let mut found = None;
    until("the host tells", || {
        found = reasons(f, target).into_iter().find(|reason| fits(reason));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn without_host_binding_or_target_it_says_so() {
    let f = Fixture::new();
    f.log("in");
    assert_eq!(reasons(&f, "in"), [Reason::NoHost, Reason::NothingBound { log: "in".into() }]);
    for (target, code) in
        [("nobody", Code::FunctionNotFound), ("no/log", Code::LogNotFound), ("../x", Code::LogNameInvalid)]
    {
        assert_eq!(why(&f.namespace, target).unwrap_err().code(), code, "{target}");
    }
    let id = EventId::new(f.namespace.journal().namespace(), 1, 999).to_string();
    assert_eq!(why(&f.namespace, &id).unwrap_err().code(), Code::RunNotFound);
    f.python("f", &["in"], "pass", |_| {});
    f.append("in", "x");
    let waiting = Reason::Pending { function: name("f"), pending: 1 };
    assert_eq!(reasons(&f, "f"), [Reason::NoHost, waiting]);
    assert_eq!(reasons(&f, &newest_run(&f, "f").to_string()), [Reason::NoHost]);
    let host = f.host();
    f.idle();
    assert_eq!(reasons(&f, "f"), [Reason::Idle { function: name("f"), done: 1 }]);
    let done = reasons(&f, &newest_run(&f, "f").to_string());
    assert!(matches!(&done[..], [Reason::Done { .. }]), "{done:?}");
    host.stop(LONG).unwrap();
}

#[test]
fn a_run_that_backs_off_and_the_runs_behind_it() {
    let f = Fixture::new();
    f.log("in");
    f.python("f", &["in"], "raise ValueError('no luck')", |spec| spec.backoff = Duration::from_secs(30));
    let host = f.host();
    f.append("in", "1");
    let first = newest_run(&f, "f").to_string();
    f.append("in", "2");
    let second = newest_run(&f, "f").to_string();
    let reason = until_told(&f, &first, |reason| matches!(reason, Reason::BackingOff { .. }));
    let Reason::BackingOff { run, attempt: 1, error, retry_in_ms, .. } = reason else { panic!("{reason:?}") };
    assert!(run == first && error.contains("no luck") && (1..=30_000).contains(&retry_in_ms));
    let behind = reasons(&f, &second);
    assert!(behind.contains(&Reason::Ordered { behind: first.clone() }), "{behind:?}");
    assert!(behind.contains(&Reason::Queued { function: name("f"), ahead: 1 }), "{behind:?}");
    assert!(reasons(&f, "in").iter().any(|reason| matches!(reason, Reason::BackingOff { .. })));
    host.stop(LONG).unwrap();
    assert_eq!(reasons(&f, &first), [Reason::NoHost], "what a host that is gone said is not repeated");
}

#[test]
fn a_monitor_and_full_concurrency_are_told_with_who_holds_them() {
    let f = Fixture::new();
    f.log("a");
    f.log("b");
    f.python("holder", &["a"], "time.sleep(600)", |spec| spec.monitor = Some(name("m")));
    f.python("waiter", &["b"], "pass", |spec| spec.monitor = Some(name("m")));
    f.python("wide", &["b"], "time.sleep(600)", |spec| (spec.ordered, spec.concurrency) = (false, 2));
    let host = f.host();
    f.append("a", "x");
    let held = newest_run(&f, "holder").to_string();
    for _ in 0..3 {
        f.append("b", "x");
    }
    let reason = until_told(&f, "waiter", |reason| matches!(reason, Reason::MonitorHeld { .. }));
    let Reason::MonitorHeld { monitor, function, run, .. } = reason else { panic!("{reason:?}") };
    assert_eq!((monitor, function, run), (name("m"), name("holder"), held));
    let last = newest_run(&f, "wide").to_string();
    until_told(&f, &last, |reason| *reason == Reason::ConcurrencyFull { concurrency: 2 });
    assert_eq!(host.stop(Duration::ZERO).unwrap_err().code(), Code::HostStopTimeout);
}

#[test]
fn a_function_that_cannot_be_started_loses_no_run() {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    f.script("f", &["in"], "printf 'out\\tx\\n' >&3", |spec| spec.retries = 0);
    let functions = f.namespace.dir().join("functions");
    let aside = f.dir.path().join("aside");
    fs::rename(&functions, &aside).unwrap();
    f.append("in", "x");
    let host = f.host();
    let reason = until_told(&f, "f", |reason| matches!(reason, Reason::Stopped { .. }));
    assert!(matches!(reason, Reason::Stopped { error, .. } if error.starts_with(Code::CodeMissing.id())));
    fs::rename(&aside, &functions).unwrap();
    f.idle();
    assert_eq!(f.namespace.latest("out").unwrap(), 1);
    host.stop(LONG).unwrap();
}

#[test]
fn a_python_module_that_no_longer_imports_stops_the_function_not_its_runs() {
    let f = Fixture::new();
    f.log("in");
    let broken = f.dir.path().join("broken");
    let text = format!("import os\nif os.path.exists({broken:?}): import no_such_module\ndef run(record, ctx): pass\n");
    let source = f.source("f", "handler.py", &text);
    let mut spec = common::spec("f", millrace_node::Runtime::Python, &["in"]);
    (spec.handler, spec.retries) = ("handler:run".into(), 0);
    functions::deploy(&f.namespace, &spec, source.parent().unwrap()).unwrap();
    fs::write(&broken, "").unwrap();
    f.append("in", "x");
    let host = f.host();
    let reason = until_told(&f, "f", |reason| matches!(reason, Reason::Stopped { .. }));
    assert!(matches!(reason, Reason::Stopped { error, .. } if error.contains("no_such_module")));
    fs::remove_file(&broken).unwrap();
    f.idle();
    let runs = f.namespace.runs(&RunFilter::default()).unwrap();
    assert_eq!(runs[0].state, RunState::Done);
    host.stop(LONG).unwrap();
}

#[test]
fn refused_appends_and_missing_logs_are_told() {
    let f = Fixture::new();
    f.log("in");
    f.python("f", &["in"], "pass", |spec| spec.pending_max = 1);
    f.append("in", "x");
    f.namespace.append("in", b"x", AppendOptions::default()).unwrap_err();
    let busy = Reason::Busy { function: name("f"), pending: 1, pending_max: 1 };
    assert!(reasons(&f, "f").contains(&busy));
    assert!(reasons(&f, "in").contains(&busy));
    f.log("other");
    f.python("g", &["other"], "pass", |_| {});
    assert_eq!(f.namespace.remove_log(&log("other")).unwrap_err().code(), Code::LogInUse);
    f.python("never", &[], "pass", |_| {});
    assert!(reasons(&f, "never").contains(&Reason::NeverBound { function: name("never") }));
    let all = reasons(&f, "");
    assert!(all.contains(&busy) && all[0] == Reason::NoHost, "{all:?}");
}

#[test]
fn times_are_shown_like_those_of_other_commands() {
    let running = Reason::Running { function: name("f"), run: "1-0-1".into(), attempt: 1, for_ms: 2862 };
    assert_eq!(running.to_string(), "function 'f' is running: run 1-0-1, attempt 1, for 2.9 s");
    let stopped = Reason::Stopped { function: name("f"), error: "no code".into(), retry_in_ms: 75_000 };
    assert_eq!(stopped.to_string(), "function 'f' cannot be started; the next attempt is in 1m 15s: no code");
}
