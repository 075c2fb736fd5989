//! Two dispatchers of one namespace, which the host's lock normally prevents: the journal alone must keep them apart.

mod isolation;
mod sweep;

use super::*;
use millrace_journal::{Attempt, Kind, Run, What};
use millrace_namespace::{
    AppendOptions, CreateOptions, Durability, FunctionSpec, RunFilter, RunState, Runtime, outbox::outbox_of,
};

const LONG: Duration = Duration::from_secs(120);

fn namespace(dir: &std::path::Path) -> Namespace {
    let options = CreateOptions { durability: Durability::Memory, segment_bytes: 4 << 20, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.join("ns"), &options).unwrap();
    for log in ["in", "out"] {
        namespace.create_log(&log.parse().unwrap(), 100_000).unwrap();
    }
    namespace
}

/// A namespace with small segments, in which retention soon has something to do; `logs` are its logs and their histories.
fn small_namespace(dir: &std::path::Path, logs: &[(&str, u64)]) -> Namespace {
    let options = CreateOptions {
        durability: Durability::Memory,
        segment_bytes: 1 << 20,
        retain_bytes: 1 << 20,
        ..CreateOptions::default()
    };
    let namespace = Namespace::create(&dir.join("ns"), &options).unwrap();
    for (log, history) in logs {
        namespace.create_log(&log.parse().unwrap(), *history).unwrap();
    }
    namespace
}

fn deploy(namespace: &Namespace, body: &str, adjust: impl FnOnce(&mut FunctionSpec)) {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("f.py"), format!("import os, time\ndef run(record, ctx):\n    {body}\n"))
        .unwrap();
    let mut spec = FunctionSpec::new("f".parse().unwrap(), Runtime::Python);
    spec.handler = "f:run".into();
    spec.on = vec!["in".parse().unwrap()];
    adjust(&mut spec);
    crate::functions::deploy(namespace, &spec, source.path()).unwrap();
}

fn texts(namespace: &Namespace) -> Vec<String> {
    let latest = namespace.latest("out").unwrap();
    let text = |seqno| String::from_utf8(namespace.get("out", seqno).unwrap().payload).unwrap();
    (1..=latest).map(text).collect()
}

#[test]
fn two_dispatchers_never_publish_a_run_twice() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "time.sleep(0.0002); ctx.append('out', record.data)", |spec| {
        (spec.ordered, spec.concurrency) = (false, 2)
    });
    let mut dispatchers: Vec<Dispatcher> = (0..2)
        .map(|_| {
            let namespace = Namespace::open(namespace.dir()).unwrap();
            Dispatcher::start(namespace, None, None).unwrap()
        })
        .collect();
    for n in 0..2000 {
        namespace.append("in", format!("{n:04}").as_bytes(), AppendOptions::default()).unwrap();
    }
    namespace.wait_idle(LONG).unwrap();
    for dispatcher in &mut dispatchers {
        dispatcher.stop(LONG).unwrap();
    }
    let shares: Vec<u64> = dispatchers.iter().map(|dispatcher| dispatcher.status().runs_done).collect();
    let mut out = texts(&namespace);
    out.sort();
    assert_eq!(out, (0..2000).map(|n| format!("{n:04}")).collect::<Vec<_>>());
    assert_eq!(shares.iter().sum::<u64>(), 2000, "{shares:?}");
}

#[test]
fn a_dispatcher_that_was_thought_dead_cannot_publish() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let go = dir.path().join("go");
    let body = format!(
        "while ctx.attempt == 1 and not os.path.exists({go:?}): time.sleep(0.01)\n    ctx.append('out', str(ctx.attempt))"
    );
    deploy(&namespace, &body, |_| {});
    let mut first = Dispatcher::start(namespace.clone(), None, None).unwrap();
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    let start = Instant::now();
    // The run is claimed before its worker has started; it counts as an attempt once that is journaled.
    while namespace.runs(&RunFilter::default()).unwrap().iter().all(|run| run.attempts.is_empty()) {
        assert!(start.elapsed() < LONG);
        thread::yield_now();
    }
    // The second one takes the run for interrupted, and runs it at once.
    let mut second = Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap();
    namespace.wait_idle(LONG).unwrap();
    std::fs::write(&go, "").unwrap();
    first.stop(LONG).unwrap();
    second.stop(LONG).unwrap();
    assert_eq!(texts(&namespace), ["2"]);
    assert_eq!((first.status().runs_done, second.status().runs_done), (0, 1));
    let run = &namespace.runs(&RunFilter::default()).unwrap()[0];
    assert_eq!((run.state, run.attempts.len()), (RunState::Done, 2));
}

#[test]
fn stopping_lets_runs_in_progress_end() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let (started, go) = (dir.path().join("started"), dir.path().join("go"));
    let body = format!(
        "open({started:?}, 'w').close()\n    while not os.path.exists({go:?}): time.sleep(0.01)\n    \
         ctx.append('out', str(record.seqno))"
    );
    deploy(&namespace, &body, |_| {});
    let mut first = Dispatcher::start(namespace.clone(), None, None).unwrap();
    for _ in 0..2 {
        namespace.append("in", b"x", AppendOptions::default()).unwrap();
    }
    let until = |condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LONG);
            thread::sleep(Duration::from_millis(2));
        }
    };
    until(&|| started.exists());
    let shared = first.shared.clone();
    thread::scope(|scope| {
        scope.spawn(|| first.stop(LONG).unwrap());
        until(&|| shared.stopping());
        std::fs::write(&go, "").unwrap();
    });
    assert_eq!(texts(&namespace), ["1"], "the one in progress ended, and no other was started");
    let mut second = Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap();
    namespace.wait_idle(LONG).unwrap();
    assert_eq!(texts(&namespace), ["1", "2"]);
    second.stop(LONG).unwrap();
}

#[test]
fn what_runs_wait_for_is_loaded_before_a_run_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "pass", |_| {});
    deploy(&namespace, "pass", |spec| (spec.name, spec.on) = ("g".parse().unwrap(), vec!["out".parse().unwrap()]));
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    let wanted = shared.state().wanted(&namespace).unwrap();
    let names: Vec<String> = wanted.iter().map(|(_, starter)| starter.definition().spec.name.to_string()).collect();
    assert_eq!(names, ["f"], "nothing waits for the other");
    let function = wanted[0].0;
    // Twice: the second one finds that there is one already.
    let wanted = [&wanted[..], &wanted[..]].concat();
    warm::start(&shared, wanted);
    let start = Instant::now();
    while Arc::weak_count(&shared) > 0 {
        assert!(start.elapsed() < LONG);
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(shared.state().runners[&function].idle.len(), 1);
}

/// The only run of a namespace, as its journal tells it.
fn only_run(namespace: &Namespace) -> millrace_namespace::RunView {
    namespace.runs(&RunFilter::default()).unwrap().remove(0)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "waited too long until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn attempts_that_ended_with_their_host_leave_a_function_its_own() {
    const HOSTS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let go = dir.path().join("go");
    let body = format!(
        "while ctx.attempt <= {HOSTS} and not os.path.exists({go:?}): time.sleep(0.01)\n    raise ValueError('always')"
    );
    deploy(&namespace, &body, |spec| (spec.retries, spec.backoff) = (1, Duration::from_millis(1)));
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    // Each host knows only the journal, so it takes the attempt of the host before it for one that ended with that host.
    let mut hosts: Vec<Dispatcher> = Vec::new();
    for host in 1..=HOSTS {
        hosts.push(Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap());
        wait_until("it has begun an attempt", || only_run(&namespace).attempts.len() == host);
    }
    let last = Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap();
    namespace.wait_idle(LONG).unwrap();
    let run = only_run(&namespace);
    assert_eq!((run.state, run.attempts.len()), (RunState::Dead, HOSTS + 2), "it may fail twice by itself");
    std::fs::write(go, "").unwrap();
    for mut host in hosts.into_iter().chain([last]) {
        host.stop(LONG).unwrap();
    }
    assert_eq!(only_run(&namespace).attempts.len(), HOSTS + 2, "whoever was thought dead changes nothing");
}

#[test]
fn the_start_of_a_worker_is_no_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let (hold, held) = (dir.path().join("hold"), dir.path().join("held"));
    // A module that takes as long to import as its test likes.
    let body = format!(
        "ctx.append('out', str(ctx.attempt))\nif os.path.exists({hold:?}):\n    open({held:?}, 'w').close()\n\
         while os.path.exists({hold:?}): time.sleep(0.01)"
    );
    deploy(&namespace, &body, |_| {});
    std::fs::write(&hold, "").unwrap();
    let mut dispatcher = Dispatcher::start(namespace.clone(), None, None).unwrap();
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    wait_until("a worker starts", || held.exists());
    // A host that is killed now has not tried the run.
    assert!(only_run(&namespace).attempts.is_empty());
    std::fs::remove_file(hold).unwrap();
    namespace.wait_idle(LONG).unwrap();
    assert_eq!((only_run(&namespace).attempts.len(), texts(&namespace)), (1, vec!["1".into()]));
    dispatcher.stop(LONG).unwrap();
}

#[test]
fn retention_between_claim_and_attempt_takes_no_record_away() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = small_namespace(dir.path(), &[("in", 1), ("noise", 1), ("out", 10)]);
    deploy(&namespace, "ctx.append('out', record.data)", |_| {});
    // The record of the first has left its log.
    for record in ["first", "second"] {
        namespace.append("in", record.as_bytes(), AppendOptions::default()).unwrap();
    }
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    shared.state().recover(&namespace).unwrap();
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    let first = namespace.journal().first();
    let function = namespace.journal().catalog().unwrap().function("f").unwrap().clone();
    let stood = function.run(1).unwrap().opened;
    for _ in 0..80 {
        namespace.append("noise", &[0; 50_000], AppendOptions::default()).unwrap();
    }
    shared.maintain().unwrap();
    assert!(namespace.journal().first() > first, "retention has gone on");
    assert_ne!(function.run(1).unwrap().opened, stood, "its TRIGGER and its record were moved");
    shared.run(claim).unwrap();
    assert_eq!(texts(&namespace), ["first"]);
}

/// The journal keeps the newest attempt of a run that is put off repeatedly, and that it waits, so the next host continues the count.
#[test]
fn retention_continues_after_a_run_that_waits_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = small_namespace(dir.path(), &[("in", 10), ("out", 10)]);
    deploy(&namespace, "ctx.append('out', str(ctx.attempt))", |spec| spec.retries = 5);
    namespace.append("in", b"record", AppendOptions::default()).unwrap();
    let (journal, run) = (namespace.journal(), Run { id: only_run(&namespace).id, number: 1 });
    let function = journal.catalog().unwrap().function("f").unwrap().id();
    // Two attempts failed, one was cut short, and the fourth is put off again and again.
    while journal.tail().get() < 4 << 20 {
        let put_off = |tx: &mut millrace_journal::Transaction<'_>| {
            let begun = Attempt { attempt: 4, interrupted: 1, ..Attempt::default() };
            let before = tx.fired(function, run, &begun)?.sequence();
            let over = Attempt { attempt: 3, waits: true, before, begun: 4, ..begun };
            tx.fired(function, run, &over)
        };
        journal.commit(put_off).unwrap();
    }
    let first = journal.first();
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    shared.state().recover(&namespace).unwrap();
    shared.maintain().unwrap();
    assert!(journal.first() > first, "the journal grows for as long as the run waits");
    let catalog = journal.catalog().unwrap();
    let pending = millrace_namespace::runs::pending::pending(journal, catalog.function_by_id(function).unwrap(), 1);
    let begun: Vec<u32> = pending.map(|run| run.unwrap().found().unwrap().attempts_begun()).collect();
    assert_eq!(begun, [4], "what its dead letter told");
    drop(shared);
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    shared.state().recover(&namespace).unwrap();
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    assert_eq!((claim.runs[0].attempt, claim.runs[0].excused), (4, 1));
    shared.run(claim).unwrap();
    assert_eq!(texts(&namespace), ["4"]);
}

/// A function that cannot be imported as long as `broken` is there.
fn deploy_broken(namespace: &Namespace, broken: &std::path::Path, on: &str) {
    let body = format!("pass\nif os.path.exists({broken:?}): raise ImportError('today')");
    deploy(namespace, &body, |spec| {
        (spec.name, spec.on) = ("g".parse().unwrap(), vec![on.parse().unwrap()]);
        (spec.pending_max, spec.retries) = (1, 0);
    });
    std::fs::write(broken, "").unwrap();
}

fn backs_off(dispatcher: &Dispatcher, function: &str) -> Option<String> {
    dispatcher.status().function(function).and_then(|live| live.backing_off.first()?.error.clone())
}

fn dead(namespace: &Namespace) -> usize {
    namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap().len()
}

#[test]
fn waiting_runs_are_not_given_up_however_often_hosts_end() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let broken = dir.path().join("broken");
    deploy_broken(&namespace, &broken, "out");
    deploy(&namespace, "ctx.append('out', record.data)", |spec| spec.retries = 0);
    // Two runs of the one that cannot start may wait for it: the third record has no room.
    for n in 1..=3 {
        namespace.append("in", n.to_string().as_bytes(), AppendOptions::default()).unwrap();
    }
    for _ in 0..10 {
        let mut host = Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap();
        wait_until("one cannot start, and the other lacks room", || {
            let stopped = host.status().function("g").is_some_and(|g| g.state != crate::status::FunctionState::Ready);
            stopped && backs_off(&host, "f").is_some_and(|error| error.contains("MR3011"))
        });
        host.stop(LONG).unwrap();
    }
    assert_eq!(dead(&namespace), 0);
    let runs = namespace.runs(&RunFilter::default()).unwrap();
    let tried = runs.iter().filter(|run| run.function.as_deref() == Some("g")).map(|run| run.attempts.len());
    assert_eq!(tried.collect::<Vec<_>>(), [0, 0], "what cannot start is not tried");
    std::fs::remove_file(broken).unwrap();
    let mut host = Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap();
    namespace.wait_idle(LONG).unwrap();
    assert_eq!((dead(&namespace), texts(&namespace)), (0, vec!["1".into(), "2".into(), "3".into()]));
    host.stop(LONG).unwrap();
}

#[test]
fn a_failed_attempt_is_one_although_its_host_ends_while_it_backs_off() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "raise ValueError('always')", |spec| (spec.retries, spec.backoff) = (2, LONG / 4));
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    for _ in 0..3 {
        let mut host = Dispatcher::start(Namespace::open(namespace.dir()).unwrap(), None, None).unwrap();
        wait_until("it backs off or is given up", || backs_off(&host, "f").is_some() || dead(&namespace) == 1);
        host.stop(LONG).unwrap();
    }
    let run = only_run(&namespace);
    assert_eq!((run.state, run.attempts.len()), (RunState::Dead, 3));
}

#[test]
fn a_dead_letter_that_is_refused_is_tried_again_and_not_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let (broken, count) = (dir.path().join("broken"), dir.path().join("count"));
    deploy_broken(&namespace, &broken, "out");
    let body = format!("open({count:?}, 'a').write('x')\n    raise ValueError('always')");
    deploy(&namespace, &body, |spec| (spec.retries, spec.dead_letter) = (0, "out".parse().unwrap()));
    // There is room for four dead letters.
    for n in 1..=5 {
        namespace.append("in", n.to_string().as_bytes(), AppendOptions::default()).unwrap();
    }
    let mut host = Dispatcher::start(namespace.clone(), None, None).unwrap();
    wait_until("the last one was taken up again", || {
        namespace.runs(&RunFilter::default()).unwrap().iter().any(|run| run.record.seqno == 5 && run.attempts.len() > 2)
    });
    std::fs::remove_file(broken).unwrap();
    namespace.wait_idle(LONG).unwrap();
    assert_eq!((dead(&namespace), namespace.latest("out").unwrap()), (5, 5));
    assert_eq!(std::fs::read_to_string(count).unwrap().len(), 5, "each was run once");
    host.stop(LONG).unwrap();
}

#[test]
fn damage_in_an_outbox_delays_only_runs_that_send_to_its_peer() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "ctx.append('mr://127.0.0.1:9/x/y', b'message-' + record.data)", |spec| {
        spec.retries = 0;
        spec.rights.sends = vec!["mr://127.0.0.1:9/x/y".parse().unwrap()];
    });
    deploy(&namespace, "pass", |spec| (spec.name, spec.on) = ("g".parse().unwrap(), vec!["out".parse().unwrap()]));
    let append = |log: &str| {
        namespace.append(log, b"1", AppendOptions::default()).unwrap();
    };
    append("in");
    let mut host = Dispatcher::start(namespace.clone(), None, None).unwrap();
    namespace.wait_idle(LONG).unwrap();
    host.stop(LONG).unwrap();
    let mut flipped = 0;
    for segment in std::fs::read_dir(namespace.dir().join("segments")).unwrap() {
        let path = segment.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if let Some(at) = bytes.windows(9).position(|window| window == b"message-1") {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"M", at as u64).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
    append("in");
    let mut host = Dispatcher::start(namespace.clone(), None, None).unwrap();
    wait_until("it says what is wrong", || {
        backs_off(&host, "f").is_some_and(|error| error.contains("MR2010")) || host.failure().is_some()
    });
    append("out");
    wait_until("the other function has run", || {
        let done = RunFilter { state: Some(RunState::Done), ..RunFilter::default() };
        let done = namespace.runs(&done).unwrap();
        done.iter().any(|run| run.function.as_deref() == Some("g")) || host.failure().is_some()
    });
    assert!(host.failure().is_none(), "{:?}", host.failure());
    // Once the outbox has room, the run continues by itself.
    let peer = "mr://127.0.0.1:9/x/y".parse::<millrace_wire::Address>().unwrap().peer;
    let outbox = namespace.log(&outbox_of(&peer)).unwrap();
    namespace.journal().commit(|tx| tx.trim(&outbox, outbox.latest() + 1)).unwrap();
    namespace.wait_idle(LONG).unwrap();
    assert_eq!(dead(&namespace), 0);
    host.stop(LONG).unwrap();
}

#[test]
fn lost_runs_that_cannot_be_given_up_yet_are_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { durability: Durability::Disk, segment_bytes: 1 << 20, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
    for log in ["in", "out"] {
        namespace.create_log(&log.parse().unwrap(), 100_000).unwrap();
    }
    deploy(&namespace, "pass", |_| {});
    namespace.remove_log(&"dead/f".parse().unwrap()).unwrap();
    namespace.append("in", b"a lost run", AppendOptions::default()).unwrap();
    // The rest of the segment has no room for a dead letter.
    let room = || (1 << 20) - namespace.journal().tail().get() % (1 << 20);
    while room() > 400 {
        let bytes = (room() - 160 - 64).min(60_000);
        namespace.append("out", &vec![7; bytes as usize], AppendOptions::default()).unwrap();
    }
    let (at, segment) = (namespace.journal().tail(), namespace.dir().join("segments/0000000000"));
    drop(namespace);
    let bytes = std::fs::read(&segment).unwrap();
    let record = bytes.windows(10).position(|window| window == b"a lost run").unwrap();
    // Behind the record's 10 bytes and their padding: the TRIGGER, with a short header.
    let trigger = record + 16 + 16;
    assert!((trigger as u64) < at.get());
    let file = std::fs::File::options().write(true).open(&segment).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[!bytes[trigger]], trigger as u64).unwrap();
    let namespace = Namespace::open(&dir.path().join("ns")).unwrap();
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    shared.state().recover(&namespace).unwrap();
    // The next segment cannot be made.
    let (segments, aside) = (namespace.dir().join("segments"), dir.path().join("aside"));
    std::fs::rename(&segments, &aside).unwrap();
    std::fs::write(&segments, "").unwrap();
    let refused = shared.maintain().unwrap_err();
    assert!(state::is_transient(&refused), "{refused}");
    std::fs::remove_file(&segments).unwrap();
    std::fs::rename(&aside, &segments).unwrap();
    shared.maintain().unwrap();
    assert_eq!(namespace.latest("dead/f").unwrap(), 1);
    namespace.wait_idle(Duration::ZERO).unwrap();
}

/// An executor whose runs do what the test says.
struct Scripted<F>(F);

impl<F> millrace_runtime::Executor for Scripted<F>
where
    F: FnMut(&mut [millrace_runtime::Run<'_>], &mut dyn millrace_runtime::Progress) + Send,
{
    fn run(&mut self, batch: &mut [millrace_runtime::Run<'_>], progress: &mut dyn millrace_runtime::Progress) {
        (self.0)(batch, progress);
    }
}

fn completion(outcome: millrace_runtime::Outcome) -> millrace_runtime::Completion {
    millrace_runtime::Completion { outcome, output: Vec::new(), elapsed: Duration::ZERO }
}

/// A dispatcher without threads that knows of this number of records, and whose function `f` runs many of them in a batch.
fn unthreaded(namespace: &Namespace, records: u64) -> (Arc<Shared>, u32) {
    for n in 1..=records {
        namespace.append("in", n.to_string().as_bytes(), AppendOptions::default()).unwrap();
    }
    let shared = Shared::new(namespace.clone(), None, None).unwrap();
    shared.state().recover(namespace).unwrap();
    let function = namespace.journal().catalog().unwrap().function("f").unwrap().id();
    for _ in 0..20 {
        shared.state().runners.get_mut(&function).unwrap().pace.note(Duration::ZERO);
    }
    (shared, function)
}

/// Does what an executor does while a run takes long, until `enough`.
fn take_long(progress: &mut dyn millrace_runtime::Progress, mut enough: impl FnMut(millrace_runtime::Rest) -> bool) {
    loop {
        let at = progress.wake_at().expect("nobody wants to be woken while the run takes long");
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if enough(progress.wake()) {
            return;
        }
    }
}

#[test]
fn what_a_run_leaves_is_published_although_the_next_of_its_batch_takes_long() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "pass", |_| {});
    let (shared, function) = unthreaded(&namespace, 2);
    let seen = namespace.clone();
    let script =
        Scripted(move |batch: &mut [millrace_runtime::Run<'_>], progress: &mut dyn millrace_runtime::Progress| {
            assert_eq!(batch.len(), 2);
            for (n, call) in batch.iter_mut().enumerate() {
                call.logs.append("out", call.invocation.payload).unwrap();
                if n == 1 {
                    take_long(progress, |_| seen.latest("out").unwrap() == 1);
                }
                progress.ended(n, completion(millrace_runtime::Outcome::Done));
            }
        });
    shared.state().runners.get_mut(&function).unwrap().idle.push((0, Box::new(script)));
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    shared.run(claim).unwrap();
    assert_eq!(texts(&namespace), ["1", "2"]);
}

#[test]
fn runs_behind_a_slow_one_are_left_to_others_and_their_attempts_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "ctx.append('out', f'{record.text()} {ctx.attempt}')", |spec| {
        (spec.ordered, spec.concurrency) = (false, 2)
    });
    let (shared, function) = unthreaded(&namespace, 4);
    let others = shared.clone();
    let script =
        Scripted(move |batch: &mut [millrace_runtime::Run<'_>], progress: &mut dyn millrace_runtime::Progress| {
            assert_eq!(batch.len(), 2);
            take_long(progress, |rest| rest == millrace_runtime::Rest::Leave);
            // Those are free for another worker while this one goes on.
            while let Some((claim, _)) = others.claim(others.now()).unwrap() {
                others.run(claim).unwrap();
            }
            batch[0].logs.append("out", b"slow").unwrap();
            progress.ended(0, completion(millrace_runtime::Outcome::Done));
            progress.ended(1, completion(millrace_runtime::Outcome::NotStarted));
        });
    shared.state().runners.get_mut(&function).unwrap().idle.push((0, Box::new(script)));
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    shared.run(claim).unwrap();
    let mut out = texts(&namespace);
    out.sort();
    assert_eq!(out, ["2 1", "3 1", "4 1", "slow"]);
    namespace.wait_idle(Duration::ZERO).unwrap();
}

#[test]
fn runs_of_a_serial_function_stay_behind_a_slow_one() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "pass", |_| {});
    let (shared, function) = unthreaded(&namespace, 2);
    let script = Scripted(move |_: &mut [millrace_runtime::Run<'_>], progress: &mut dyn millrace_runtime::Progress| {
        // Meanwhile only a cancellation of the run is looked for, and nothing else.
        take_long(progress, |rest| rest == millrace_runtime::Rest::Run);
        for n in 0..2 {
            progress.ended(n, completion(millrace_runtime::Outcome::Done));
        }
    });
    shared.state().runners.get_mut(&function).unwrap().idle.push((0, Box::new(script)));
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    shared.run(claim).unwrap();
    namespace.wait_idle(Duration::ZERO).unwrap();
}

#[test]
fn a_claim_from_before_a_deployment_runs_the_code_that_was_deployed() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "ctx.append('out', 'old')", |_| {});
    let (shared, _) = unthreaded(&namespace, 1);
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    deploy(&namespace, "ctx.append('out', 'new')", |_| {});
    shared.run(claim).unwrap();
    assert_eq!((texts(&namespace).len(), only_run(&namespace).attempts.len()), (0, 0), "old code ran");
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    shared.run(claim).unwrap();
    assert_eq!((texts(&namespace), only_run(&namespace).attempts.len()), (vec!["new".to_owned()], 1));
}

#[test]
fn a_run_reads_short_logs_as_of_its_snapshot_and_what_it_misses_is_journaled() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    deploy(&namespace, "pass", |_| {});
    for (log, history) in [("one", 1), ("few", 3)] {
        namespace.create_log(&log.parse().unwrap(), history).unwrap();
        for n in 1..=7 {
            namespace.append(log, format!("{log} {n}").as_bytes(), AppendOptions::default()).unwrap();
        }
    }
    let (shared, function) = unthreaded(&namespace, 1);
    let others = namespace.clone();
    let script =
        Scripted(move |batch: &mut [millrace_runtime::Run<'_>], progress: &mut dyn millrace_runtime::Progress| {
            let host = &mut *batch[0].logs;
            assert_eq!(host.latest("one").unwrap(), 7);
            for n in 8..=20 {
                // At first the index still knows where the record stood, then it does not.
                for log in ["one", "few"] {
                    others.append(log, format!("{log} {n}").as_bytes(), AppendOptions::default()).unwrap();
                }
                assert_eq!(host.latest("one").unwrap(), 7);
                assert_eq!(host.get("one", 7).unwrap(), b"one 7", "with {n}");
                for seqno in 5..=7 {
                    assert_eq!(host.get("few", seqno).unwrap(), format!("few {seqno}").as_bytes(), "with {n}");
                }
            }
            assert_eq!(host.get("few", 4).unwrap_err().code(), millrace_wire::Code::BelowHistory, "it had left before");
            assert_eq!(host.get("few", 8).unwrap_err().code(), millrace_wire::Code::AboveTail);
            others.trim_log(&"one".parse().unwrap(), 21, false).unwrap();
            assert_eq!(host.get("one", 7).unwrap_err().code(), millrace_wire::Code::BelowHistory, "trimmed");
            progress.ended(0, completion(millrace_runtime::Outcome::Done));
        });
    shared.state().runners.get_mut(&function).unwrap().idle.push((0, Box::new(script)));
    let (claim, _) = shared.claim(shared.now()).unwrap().unwrap();
    shared.run(claim).unwrap();
    let (journal, mut reads) = (namespace.journal(), Vec::new());
    let mut scan = journal.scan(millrace_journal::Position::default());
    while let Some(entry) = scan.next().unwrap() {
        if entry.kind == Kind::Read {
            reads.push(entry.reads().map(|row| (row.from, row.count, row.what)).collect::<Vec<_>>());
        }
    }
    use What::{Absent, BelowHistory, Latest, Record};
    // One entry: of `one` the newest and its record, of `few` three, one that had left and one to come, and of `one` again.
    let rows =
        [(7, 1, Latest), (7, 1, Record), (5, 3, Record), (4, 1, BelowHistory), (8, 1, Absent), (7, 1, BelowHistory)];
    assert_eq!(reads, [rows]);
}

/// The directory of the only code that a namespace has stored.
fn only_code(namespace: &Namespace) -> std::path::PathBuf {
    let codes = crate::functions::stored_codes(namespace.dir()).unwrap();
    assert_eq!(codes.len(), 1);
    namespace.dir().join("functions").join(&codes[0])
}

#[test]
fn code_that_was_changed_in_the_namespace_does_not_run_until_it_is_deployed_again() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    let genuine = || deploy(&namespace, "ctx.append('out', 'genuine')", |_| {});
    genuine();
    let file = only_code(&namespace).join("f.py");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "def run(record, ctx): ctx.append('out', 'forged')\n").unwrap();
    namespace.append("in", b"x", AppendOptions::default()).unwrap();
    let mut host = Dispatcher::start(namespace.clone(), None, None).unwrap();
    let stopped = || host.status().function("f").map(|live| live.state.clone());
    wait_until(
        "the function is not started",
        || matches!(stopped(), Some(crate::status::FunctionState::Stopped { error, .. }) if error.contains("MR3003")),
    );
    assert_eq!(texts(&namespace).len(), 0);
    genuine();
    namespace.wait_idle(LONG).unwrap();
    assert_eq!(texts(&namespace), ["genuine"]);
    host.stop(LONG).unwrap();
}

#[test]
fn what_became_due_since_it_was_looked_for_is_not_slept_over() {
    let mut engine = engine::Engine::default();
    let policy = engine::Policy {
        slots: 1,
        serial: true,
        monitor: None,
        attempts_max: 1,
        backoff: Duration::ZERO,
        backoff_max: Duration::ZERO,
    };
    engine.define(1, Some(policy));
    engine.start_failed(1, millrace_wire::Code::SpawnFailed.error("it"), 0);
    let due = engine.next_deadline(0).unwrap();
    assert_eq!(worker::due_in(&engine, 0, 1), Some(Duration::from_millis(due - 1)));
    assert_eq!(worker::due_in(&engine, due - 1, due + 5), Some(Duration::ZERO), "it became due after the look");
    assert_eq!(worker::due_in(&engine, due, due + 5), None, "it was due then: something else keeps it");
}

#[test]
fn the_start_of_a_host_costs_what_is_pending_and_not_what_has_ended() {
    let visits = |ended: usize| {
        let dir = tempfile::tempdir().unwrap();
        let namespace = namespace(dir.path());
        deploy(&namespace, "pass", |_| {});
        let f = namespace.journal().catalog().unwrap().function("f").unwrap().id();
        let log = namespace.log("in").unwrap();
        namespace.append("in", b"one of the pending", AppendOptions::default()).unwrap();
        for _ in 0..ended / 100 {
            let batch = namespace.journal().commit(|tx| {
                for _ in 0..100 {
                    let record = tx.append(&log, b"x", EventId::NONE, 0)?;
                    let run = tx.trigger(f, record.id, &log, record.seqno, millrace_journal::Origin::Bound)?;
                    tx.fired(f, run, &Attempt { attempt: 1, ..Attempt::default() })?;
                    tx.done(f, run, &millrace_journal::End::default())?;
                }
                Ok(())
            });
            batch.unwrap();
        }
        for _ in 0..9 {
            namespace.append("in", b"pending", AppendOptions::default()).unwrap();
        }
        let before = millrace_journal::entries_visited();
        let shared = Shared::new(namespace.clone(), None, None).unwrap();
        shared.state().recover(&namespace).unwrap();
        shared.settle_lost().unwrap();
        assert_eq!(shared.state().engine.view(f).unwrap().pending, 10);
        millrace_journal::entries_visited() - before
    };
    assert_eq!((visits(1_000), visits(20_000)), (10, 10), "a TRIGGER each");
}

#[test]
fn a_task_leaves_a_result_of_its_own_and_of_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = namespace(dir.path());
    namespace.make_pool(&"p".parse().unwrap()).unwrap();
    let body = "d = record.data; ctx.append('_results/p', bytes(1) + (d[24:] if len(d) > 24 else d) + b'told')";
    deploy(&namespace, body, |spec| {
        (spec.on, spec.retries) = (vec!["_tasks/p".parse().unwrap()], 0);
    });
    let mut dispatcher = Dispatcher::start(namespace.clone(), None, None).unwrap();
    let (own, other) = ([1; 24], [2; 24]);
    let tasks = [&own[..], &[own, other].concat()];
    namespace.invoke_gated("p", false, &tasks, AppendOptions::default()).unwrap().wait().unwrap();
    namespace.wait_idle(LONG).unwrap();
    dispatcher.stop(LONG).unwrap();
    assert_eq!(namespace.latest("_results/p").unwrap(), 2);
    let result = |seqno| namespace.get("_results/p", seqno).unwrap().payload;
    assert_eq!(result(1)[..], [&[0], &own[..], b"told"].concat());
    let refused = result(2);
    assert_eq!((refused[0], &refused[1..25]), (2, &own[..]), "it failed");
    assert!(String::from_utf8_lossy(&refused[25..]).contains("result of another task"), "{refused:?}");
}
