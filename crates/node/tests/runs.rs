//! Runs end to end: real journal, real executors.

mod common;

use common::{Fixture, LONG, log, name, until};
use millrace_node::{AppendOptions, Code, EventId, NewRecord, RunFilter, RunState, functions};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

#[test]
fn a_record_runs_its_function_and_the_journal_tells_what_came_of_it() {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    f.python("double", &["in"], "ctx.append('out', str(2 * int(record.text())))\nprint('hello', record.seqno)", |_| {});
    let host = f.host();
    let receipt = f.namespace.append("in", b"21", AppendOptions::default()).unwrap();
    f.idle();
    assert_eq!(f.all("out"), ["42"]);
    let runs = f.namespace.runs(&RunFilter::default()).unwrap();
    let run = f.namespace.run(runs[0].id).unwrap();
    assert_eq!((runs.len(), &runs[0].id), (1, &run.id));
    assert_eq!((run.cause, run.caused_by, run.state), (receipt.id, EventId::NONE, RunState::Done));
    assert_eq!((run.attempts.len(), run.record.seqno, run.appends.len()), (1, 1, 1));
    assert_eq!(run.ending.unwrap().output, "hello 1\n");
    assert_eq!(f.records("out")[0].cause, run.id);
    host.stop(LONG).unwrap();
}

#[test]
fn each_runtime_runs_the_same_way() {
    let f = Fixture::new();
    for name in ["in", "out"] {
        f.log(name);
    }
    f.wasm("wasm", &["in"], "return mr_append(\"out\", record->data, record->size);", |_| {});
    f.script("script", &["in"], "printf 'out\\t%s\\n' \"$(cat)\" >&3", |_| {});
    f.python("python", &["in"], "ctx.append('out', record.data)", |_| {});
    let host = f.host();
    for n in 0..20 {
        f.append("in", &n.to_string());
    }
    f.idle();
    let mut out: Vec<u32> = f.all("out").iter().map(|text| text.parse().unwrap()).collect();
    out.sort();
    assert_eq!(out, (0..20).flat_map(|n| [n; 3]).collect::<Vec<_>>());
    host.stop(LONG).unwrap();
}

#[test]
fn chains_and_loops_of_functions_never_wait_for_themselves() {
    let f = Fixture::new();
    for name in ["a", "b", "c", "down"] {
        f.log(name);
    }
    // Each has room for a single run from outside: what runs append must still get through.
    let narrow = |spec: &mut millrace_node::FunctionSpec| spec.pending_max = 1;
    f.python("ab", &["a"], "ctx.append('b', record.data)", narrow);
    f.wasm("bc", &["b"], "return mr_append(\"c\", record->data, record->size);", narrow);
    f.python("down", &["down"], "n = int(record.text())\nif n > 0: ctx.append('down', str(n - 1))", narrow);
    let host = f.host();
    let patient = AppendOptions { patience: LONG, ..AppendOptions::default() };
    for n in 0..30 {
        f.namespace.append("a", n.to_string().as_bytes(), patient).unwrap();
    }
    f.namespace.append("down", b"300", patient).unwrap();
    f.idle();
    assert_eq!(f.all("c"), (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(f.all("down").last().unwrap(), "0");
    assert_eq!(f.namespace.latest("down").unwrap(), 301);
    assert!(f.namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap().is_empty());
    host.stop(LONG).unwrap();
}

#[test]
fn a_failing_run_is_retried_and_then_leaves_a_dead_letter_that_runs_functions() {
    let f = Fixture::new();
    for name in ["in", "out", "seen"] {
        f.log(name);
    }
    f.python(
        "picky",
        &["in"],
        "ctx.append('out', record.data)\nif record.text() == 'bad' or (record.text() == 'shy' and ctx.attempt < 3): raise ValueError('no ' + record.text())",
        |spec| spec.retries = 2,
    );
    f.python("watch", &["dead/picky"], "ctx.append('seen', str(record.json()['attempts']))", |_| {});
    let events = Arc::new(Mutex::new(Vec::new()));
    let of_observer = events.clone();
    let observer: millrace_node::Observer =
        Arc::new(move |event| of_observer.lock().unwrap().push(format!("{event:?}")));
    let options = millrace_node::HostOptions { observer: Some(observer), ..Default::default() };
    let host = millrace_node::Host::start(f.namespace.clone(), options).unwrap();
    for text in ["good", "bad", "shy", "last"] {
        f.append("in", text);
    }
    f.idle();
    // Ordered: what is behind a failing run waits for it; what a failed attempt appended never shows.
    assert_eq!(f.all("out"), ["good", "shy", "last"]);
    assert_eq!(f.all("seen"), ["3"]);
    let dead = f.namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap();
    assert_eq!((dead.len(), dead[0].attempts.len(), dead[0].record.seqno), (1, 3, 2));
    let death = dead[0].ending.clone().unwrap().dead.unwrap();
    assert!(death.code == Code::PythonRaised.id() && death.error.contains("no bad"), "{death:?}");
    let letter: serde_json::Value = serde_json::from_str(&f.all("dead/picky")[0]).unwrap();
    assert_eq!(letter["function"], "picky");
    assert_eq!((&letter["log"], &letter["seqno"], &letter["data"]), (&"in".into(), &2.into(), &"bad".into()));
    assert_eq!(letter["run"], dead[0].id.to_string());
    // A host tells after it has published.
    until("the host has counted them", || host.status().runs_failed >= 5);
    let failed = events.lock().unwrap().iter().filter(|event| event.starts_with("Failed")).count();
    assert_eq!((failed, host.status().runs_failed), (3 + 2, 5));
    host.stop(LONG).unwrap();
}

#[test]
fn appends_from_outside_are_refused_when_too_much_is_pending() {
    let f = Fixture::new();
    f.log("in");
    f.log("free");
    f.python("slow", &["in"], "pass", |spec| spec.pending_max = 3);
    for _ in 0..3 {
        f.append("in", "x");
    }
    let error = f.namespace.append("in", b"x", AppendOptions::default()).unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    assert!(error.detail().contains("slow") && error.detail().contains("retry after"), "{error}");
    assert_eq!(f.namespace.latest("in").unwrap(), 3, "a refused record is not appended");
    f.append("free", "x");
    // A batch goes as far as there is room, and says how far that was.
    let mut receipts = 0;
    let records = (0..5).map(|_| Ok(millrace_node::NewRecord { log: "in".into(), payload: vec![1] }));
    let error = f.namespace.append_many(records, AppendOptions::default(), |r| receipts += r.len()).unwrap_err();
    assert_eq!((error.code(), receipts), (Code::Busy, 0));
    // One that is all or nothing, and that no waiting can help, is refused for good.
    let whole = |count| f.namespace.append_many_gated(&vec![("in", b"x".as_slice()); count], AppendOptions::default());
    let code = |count| whole(count).and_then(|gated| gated.wait()).unwrap_err().code();
    assert_eq!((code(3), code(4)), (Code::Busy, Code::BatchTooLarge));
    let host = f.host();
    let patient = AppendOptions { patience: LONG, ..AppendOptions::default() };
    let records = (0..50).map(|_| Ok(millrace_node::NewRecord { log: "in".into(), payload: vec![1] }));
    f.namespace.append_many(records, patient, |r| receipts += r.len()).unwrap();
    assert_eq!(receipts, 50);
    f.idle();
    host.stop(LONG).unwrap();
}

#[test]
fn a_stuck_function_does_not_hold_up_another() {
    let f = Fixture::new();
    for name in ["stuck", "stuck-wasm", "fast", "out"] {
        f.log(name);
    }
    f.python("stuck", &["stuck"], "time.sleep(600)", |spec| (spec.ordered, spec.concurrency) = (false, 3));
    f.wasm("spin", &["stuck-wasm"], "for (volatile int i = 0;; i++) {} return 0;", |_| {});
    f.wasm("fast", &["fast"], "return mr_append(\"out\", record->data, record->size);", |_| {});
    let host = f.host();
    for _ in 0..20 {
        f.append("stuck", "x");
        f.append("stuck-wasm", "x");
    }
    until("both are stuck", || {
        let status = host.status();
        let running = |name: &str| status.function(name).map_or(0, |function| function.running.len());
        running("stuck") == 3 && running("spin") == 1
    });
    for n in 1..=200 {
        f.append("fast", "x");
        until("the fast function ran", || f.namespace.latest("out").unwrap() == n);
    }
    let error = host.stop(Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.code(), Code::HostStopTimeout);
}

#[test]
fn concurrent_runs_really_overlap_and_no_more_than_allowed() {
    let f = Fixture::new();
    f.log("in");
    let (here, go) = (f.dir.path().join("here"), f.dir.path().join("go"));
    std::fs::create_dir(&here).unwrap();
    // Anyone who is in leaves a file; nobody goes before the test has seen how many meet.
    let body = format!(
        "mine = os.path.join({here:?}, str(record.seqno))\nopen(mine, 'w').close()\n\
         while not os.path.exists({go:?}): time.sleep(0.01)\n\
         most = len(os.listdir({here:?}))\ntime.sleep(0.002)\nos.remove(mine)\n\
         if most > 4: raise ValueError(f'{{most}} at once')"
    );
    f.python("meet", &["in"], &body, |spec| (spec.ordered, spec.concurrency, spec.retries) = (false, 4, 0));
    let host = f.host();
    for _ in 0..40 {
        f.append("in", "x");
    }
    until("four runs meet", || std::fs::read_dir(&here).unwrap().count() == 4);
    std::fs::write(&go, "").unwrap();
    f.idle();
    let dead = f.namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap();
    assert!(dead.is_empty(), "{dead:?}");
    until("the host has counted them", || host.status().runs_done == 40);
    host.stop(LONG).unwrap();
}

#[test]
fn a_run_sees_its_snapshot_and_its_own_appends() {
    let f = Fixture::new();
    for name in ["in", "state", "out"] {
        f.log(name);
    }
    let body = "n = ctx.latest('state')\n\
                last = int(ctx.get('state', n).text()) if n else 0\n\
                ctx.append('state', str(last + 1))\n\
                assert ctx.latest('state') == n + 1 and ctx.get('state', n + 1).text() == str(last + 1)\n\
                ctx.append('out', f'{record.seqno} {last + 1}')";
    f.python("count", &["in"], body, |_| {});
    let host = f.host();
    for _ in 0..500 {
        f.append("in", "x");
    }
    f.idle();
    let expected: Vec<String> = (1..=500).map(|n| format!("{n} {n}")).collect();
    assert_eq!(f.all("out"), expected, "an ordered function builds on every run before it, batched or not");
    let run = f.namespace.run(f.namespace.runs(&RunFilter::default()).unwrap()[0].id).unwrap();
    assert_eq!(run.reads.iter().map(|read| read.seqno).collect::<Vec<_>>(), [499, 499]);
    host.stop(LONG).unwrap();
}

#[test]
fn another_writer_of_the_same_log_confuses_nobody() {
    let f = Fixture::new();
    for name in ["in", "state"] {
        f.log(name);
    }
    // Each run notes which seqno it saw as newest: it must be the record just before its own, or an older one, but what
    // it read there must be what is there.
    let body = "n = ctx.latest('state')\n\
                seen = ctx.get('state', n).text() if n else ''\n\
                ctx.append('state', f'{n}:{seen[:20]}')";
    f.python("note", &["in"], body, |_| {});
    let host = f.host();
    for n in 0..400 {
        f.append("in", "x");
        f.append("state", &format!("outside {n}"));
    }
    f.idle();
    let state = f.all("state");
    let mut notes = 0;
    for text in &state {
        if let Some((n, seen)) = text.split_once(':') {
            notes += 1;
            let n: usize = n.parse().unwrap();
            let expected = if n == 0 { "" } else { &state[n - 1][..state[n - 1].len().min(20)] };
            assert_eq!(seen, expected, "at {n}");
        }
    }
    assert_eq!(notes, 400);
    host.stop(LONG).unwrap();
}

#[test]
fn new_code_takes_over_while_runs_are_in_flight() {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    let version = |n: u32| f.python("f", &["in"], &format!("ctx.append('out', '{n} ' + record.text())"), |_| {});
    version(0);
    let host = f.host();
    let mut appended = 0;
    for n in 1..6 {
        for _ in 0..60 {
            f.append("in", &appended.to_string());
            appended += 1;
        }
        version(n);
    }
    f.append("in", &appended.to_string());
    f.idle();
    let out: Vec<(u32, u32)> = f
        .all("out")
        .iter()
        .map(|text| text.split_once(' ').map(|(v, n)| (v.parse().unwrap(), n.parse().unwrap())).unwrap())
        .collect();
    assert_eq!(out.iter().map(|(_, n)| *n).collect::<Vec<_>>(), (0..=appended).collect::<Vec<_>>());
    assert!(out.is_sorted_by_key(|(version, _)| *version), "{out:?}");
    assert_eq!(out.last().unwrap().0, 5);
    host.stop(LONG).unwrap();
}

#[test]
fn a_queue_longer_than_its_logs_history_loses_no_run() {
    let f = Fixture::new();
    f.namespace.create_log(&log("short"), 10).unwrap();
    f.log("out");
    f.python("copy", &["short"], "ctx.append('out', record.data)", |_| {});
    for n in 0..500 {
        f.append("short", &n.to_string());
    }
    let host = f.host();
    f.idle();
    assert_eq!(f.all("out"), (0..500).map(|n| n.to_string()).collect::<Vec<_>>());
    host.stop(LONG).unwrap();
}

#[test]
fn a_log_in_use_cannot_be_removed_and_a_function_leaves_with_its_runs() {
    let f = Fixture::new();
    f.log("in");
    f.log("other");
    f.python("f", &["in"], "pass", |_| {});
    for _ in 0..5 {
        f.append("in", "x");
    }
    let named = AppendOptions { function: Some("f"), ..AppendOptions::default() };
    f.namespace.append("other", b"x", named).unwrap();
    for log_name in ["in", "other", "dead/f"] {
        let error = f.namespace.remove_log(&log(log_name)).unwrap_err();
        assert_eq!(error.code(), Code::LogInUse, "{log_name}");
    }
    let refused = functions::remove(&f.namespace, &name("f")).unwrap_err();
    assert!(refused.code() == Code::FunctionPending && refused.detail().contains("6 pending runs"), "{refused}");
    f.append("in", "y");
    assert_eq!(functions::give_up(&f.namespace, &name("f")).unwrap(), 7, "a refused removal changed nothing");
    f.namespace.wait_idle(Duration::ZERO).unwrap();
    let dead = f.namespace.runs(&RunFilter::default()).unwrap();
    assert!(dead.len() == 7 && dead.iter().all(|run| run.state == RunState::Dead));
    // None of them is silent: each left a letter with its record.
    let dead_letters: Vec<serde_json::Value> =
        f.all("dead/f").iter().map(|letter| serde_json::from_str(letter).unwrap()).collect();
    let of = |letter: &serde_json::Value| (letter["log"].to_string(), letter["seqno"].as_u64().unwrap());
    let expected = [("in", 1), ("in", 2), ("in", 3), ("in", 4), ("in", 5), ("other", 1), ("in", 6)];
    assert!(
        dead_letters.iter().map(of).eq(expected.map(|(log, seqno)| (format!("\"{log}\""), seqno))),
        "{dead_letters:#?}"
    );
    assert!(dead_letters.iter().all(|letter| letter["code"] == Code::FunctionRemoved.id()), "{dead_letters:#?}");
    assert_eq!((&dead_letters[0]["data"], &dead_letters[6]["data"]), (&"x".into(), &"y".into()));
    assert_eq!(functions::remove(&f.namespace, &name("f")).unwrap_err().code(), Code::FunctionNotFound);
    assert_eq!(f.namespace.append("other", b"x", named).unwrap_err().code(), Code::FunctionNotFound);
    for log_name in ["in", "other", "dead/f"] {
        f.namespace.remove_log(&log(log_name)).unwrap();
    }
    assert_eq!(f.namespace.append("in", b"x", AppendOptions::default()).unwrap_err().code(), Code::LogNotFound);
}

#[test]
fn a_run_that_appends_to_no_log_or_too_much_fails_and_leaves_nothing() {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    let once = |spec: &mut millrace_node::FunctionSpec| spec.retries = 0;
    f.python("lost", &["in"], "ctx.append('out', 'x')\nctx.append('nowhere', 'x')", once);
    f.python("wide", &["in"], "for _ in range(10001): ctx.append('out', 'x')", once);
    f.python("long", &["in"], "ctx.append('out', 'x')\nctx.append('out', b'x' * (2 << 20))", once);
    let host = f.host();
    f.append("in", "x");
    f.idle();
    assert_eq!(f.namespace.latest("out").unwrap(), 0);
    let runs = f.namespace.runs(&RunFilter::default()).unwrap();
    let mut codes: Vec<(String, String)> = runs
        .iter()
        .map(|run| (run.function.clone().unwrap().to_string(), run.ending.clone().unwrap().dead.unwrap().code))
        .collect();
    codes.sort();
    let expected = [("long", Code::RecordTooLong), ("lost", Code::LogNotFound), ("wide", Code::RunTooWide)];
    assert_eq!(codes, expected.map(|(function, code)| (function.to_owned(), code.id().to_owned())));
    host.stop(LONG).unwrap();
}

/// Logs that are read side by side, by a run that reads more records than it could name one by one.
#[test]
fn a_run_reads_ranges_of_any_length() {
    const RECORDS: u64 = 6000;
    let f = Fixture::new();
    for name in ["in", "out", "a", "b"] {
        f.namespace.create_log(&log(name), 10_000).unwrap();
    }
    for name in ["a", "b"] {
        let records = (0..RECORDS).map(|n| Ok(NewRecord { log: name.into(), payload: n.to_string().into_bytes() }));
        f.namespace.append_many(records, AppendOptions::default(), |_| {}).unwrap();
    }
    let body = format!(
        "total = sum(int(ctx.get(name, i).text()) for i in range(1, {RECORDS} + 1) for name in ('a', 'b'))\n\
         ctx.append('out', str(total))"
    );
    f.python("wide", &["in"], &body, |spec| spec.retries = 0);
    let host = f.host();
    f.append("in", "x");
    f.idle();
    assert_eq!(f.all("out"), [(RECORDS * (RECORDS - 1)).to_string()]);
    let mut rows = 0;
    let mut scan = f.namespace.journal().scan(millrace_node::Position::default());
    while let Some(entry) = scan.next().unwrap() {
        rows += entry.reads().count();
    }
    assert_eq!(rows, 2, "a range is one read");
    host.stop(LONG).unwrap();
}

#[test]
fn a_function_that_multiplies_is_bounded_and_ends() {
    let f = Fixture::new();
    f.log("in");
    // Each record makes two more: 2^8 runs in all, where no more than eight may ever wait.
    let body = "n = int(record.text())\nif n > 0:\n    ctx.append('in', str(n - 1))\n    ctx.append('in', str(n - 1))";
    f.python("twice", &["in"], body, |spec| (spec.pending_max, spec.retries) = (4, 1));
    let host = f.host();
    f.append("in", "7");
    f.idle();
    let runs = f.namespace.runs(&RunFilter { limit: usize::MAX, ..RunFilter::default() }).unwrap();
    let dead: Vec<_> = runs.iter().filter_map(|run| run.ending.clone().unwrap().dead).collect();
    assert!(!dead.is_empty() && dead.iter().all(|death| death.code == Code::RoomExhausted.id()), "{dead:?}");
    assert_eq!(f.all("dead/twice").len(), dead.len());
    // How many waited at once, as the journal tells it.
    let (mut waiting, mut most) = (0i64, 0);
    let mut scan = f.namespace.journal().scan(millrace_node::Position::default());
    while let Some(entry) = scan.next().unwrap() {
        waiting += i64::from(entry.kind as u8 == 4) - i64::from(entry.kind as u8 == 6);
        most = most.max(waiting);
    }
    // Within one batch the triggers are before the DONE that makes room for one of them.
    assert!(waiting == 0 && (5..=9).contains(&most), "{most} waited at once");
    host.stop(LONG).unwrap();
}

#[test]
fn a_run_waits_for_a_function_that_lags_behind_and_is_not_given_up() {
    let f = Fixture::new();
    f.log("in");
    f.log("next");
    f.python("fast", &["in"], "ctx.append('next', record.data)", |spec| spec.retries = 0);
    // Far slower than what feeds it, with room for two.
    f.python("slow", &["next"], "import time; time.sleep(0.15)", |spec| spec.pending_max = 1);
    let host = f.host();
    for n in 0..8 {
        f.append("in", &n.to_string());
    }
    f.idle();
    assert_eq!(f.all("next"), (0..8).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(f.namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap().is_empty());
    host.stop(LONG).unwrap();
}
