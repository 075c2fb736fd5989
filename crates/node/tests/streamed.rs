//! Streamed functions: each append is visible at once, and a further attempt goes on where the earlier one stood.

mod common;

use common::{Fixture, Storm, until};
use millrace_node::{
    AppendOptions, CreateOptions, Durability, FunctionSpec, HostOptions, Namespace, RunFilter, RunState,
};
use std::{collections::BTreeMap, time::Duration};

fn streamed(spec: &mut FunctionSpec) {
    (spec.streamed, spec.retries) = (true, 100);
}

/// A fixture with logs `in` and `out`, and a streamed Python function between them.
fn fixture(body: &str) -> Fixture {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    f.python("f", &["in"], body, streamed);
    f
}

/// Waits until a file is there: how a test holds a function.
fn wait_for(path: &str) -> String {
    format!("while not os.path.exists({path:?}): time.sleep(0.01)\n")
}

#[test]
fn appends_are_visible_while_the_run_is_in_progress() {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    f.log("seen");
    let go = f.dir.path().join("go");
    let body = format!("ctx.append('out', 'one')\n{}ctx.append('out', 'two')", wait_for(go.to_str().unwrap()));
    f.python("f", &["in"], &body, streamed);
    f.python("follows", &["out"], "ctx.append('seen', record.data)", |_| {});
    let _host = f.host();
    f.append("in", "x");
    until("another function has run for the first append", || f.namespace.latest("seen").unwrap() == 1);
    assert_eq!(f.all("out"), ["one"]);
    std::fs::write(go, "").unwrap();
    f.idle();
    assert_eq!(f.all("seen"), ["one", "two"]);
}

#[test]
fn a_repeated_attempt_gets_the_same_answers_and_appends_nothing_twice() {
    let f = Fixture::new();
    for log in ["in", "out", "state"] {
        f.log(log);
    }
    let go = f.dir.path().join("go");
    let body = format!(
        "newest = ctx.latest('state')\nvalue = ctx.get('state', newest).text()\n\
         token = f'{{ctx.now()}} {{ctx.random(4).hex()}} {{value}}'\nctx.append('out', token)\n\
         try: ctx.get('state', 9)\nexcept Exception as error: ctx.append('out', error.code)\n\
         if ctx.attempt == 1:\n    {}    raise ValueError('once')\nctx.append('out', token)\n\
         ctx.append('out', ctx.get('state', ctx.latest('state')).data)",
        wait_for(go.to_str().unwrap()).trim_start()
    );
    f.python("f", &["in"], &body, streamed);
    f.append("state", "old");
    let host = f.host();
    f.append("in", "x");
    until("the first attempt has appended", || f.namespace.latest("out").unwrap() == 2);
    f.append("state", "new");
    std::fs::write(go, "").unwrap();
    f.idle();
    host.stop(common::LONG).unwrap();
    let out = f.all("out");
    assert_eq!(out.len(), 4, "{out:?}");
    assert!(out[0].ends_with(" old") && out[1] == "MR2105" && out[2] == out[0] && out[3] == "new", "{out:?}");
    let run = &f.namespace.runs(&RunFilter::default()).unwrap()[0];
    assert_eq!((run.state, run.attempts.len(), run.appends.len()), (RunState::Done, 2, 4));
    assert_eq!(run.reads.iter().map(|read| read.seqno).collect::<Vec<_>>(), [1, 1, 9, 2, 2]);
}

#[test]
fn a_diverging_run_is_given_up_and_both_calls_are_reported() {
    let bodies = [
        (
            "ctx.append('out', f'attempt {ctx.attempt}')",
            "bytes 'attempt 1' in an earlier attempt, and is now append to 'out' of 9 bytes 'attempt 2'",
        ),
        (
            "if ctx.attempt == 2: ctx.now()\nctx.append('out', 'x')",
            "was append to 'out' of 1 bytes 'x' in an earlier attempt, and is now now",
        ),
        (
            "if ctx.attempt == 1: ctx.append('out', 'x')\nelse: return",
            "continued with call 1, append to 'out' of 1 bytes 'x'",
        ),
        (
            "ctx.random(ctx.attempt)\nctx.append('out', 'x')",
            "random of 1 bytes in an earlier attempt, and is now random of 2 bytes",
        ),
    ];
    for (body, versions) in bodies {
        let f = fixture(&format!(
            "try:\n    {}\nfinally:\n    if ctx.attempt == 1: raise ValueError('once')",
            body.replace('\n', "\n    ")
        ));
        let _host = f.host();
        f.append("in", "x");
        f.idle();
        assert_eq!(f.namespace.latest("out").unwrap(), 1, "what was published stays");
        let dead_letters = f.all("dead/f");
        assert!(
            dead_letters.len() == 1 && dead_letters[0].contains("MR3012") && dead_letters[0].contains(versions),
            "{dead_letters:?}"
        );
        let run = &f.namespace.runs(&RunFilter::default()).unwrap()[0];
        assert_eq!((run.state, run.attempts.len()), (RunState::Dead, 2), "a divergence is not tried again");
    }
}

#[test]
fn a_function_made_atomic_meanwhile_still_goes_on_where_its_run_stood() {
    let body =
        "ctx.append('out', record.data)\nif ctx.attempt < 3: raise ValueError('not yet')\nctx.append('out', 'end')";
    let f = fixture(body);
    let host = f.host();
    f.append("in", "x");
    until("it has begun", || f.namespace.latest("out").unwrap() > 0);
    drop(host);
    f.python("f", &["in"], body, |spec| spec.retries = 100);
    let _host = f.host();
    f.idle();
    assert_eq!(f.all("out"), ["x", "end"]);
}

#[test]
fn the_answers_of_a_run_outlive_their_segments() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions {
        durability: Durability::Memory,
        segment_bytes: 1 << 20,
        retain_bytes: 4 << 20,
        ..CreateOptions::default()
    };
    let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
    let f = Fixture { dir, namespace };
    for log in ["in", "out"] {
        f.log(log);
    }
    f.namespace.create_log(&common::log("noise"), 10).unwrap();
    let go = f.dir.path().join("go");
    let body = format!(
        "token = ctx.random(8).hex()\nfor n in range(100): ctx.append('out', f'{{token}} {{n}}')\n\
         if ctx.attempt == 1:\n    {}    raise ValueError('once')\nctx.append('out', f'{{token}} end')",
        wait_for(go.to_str().unwrap())
    );
    f.python("f", &["in"], &body, streamed);
    let host = f.host();
    f.append("in", "x");
    until("it has appended", || f.namespace.latest("out").unwrap() == 100);
    let first = f.namespace.journal().first().get();
    until("retention has passed what the run was told", || {
        for _ in 0..200 {
            f.namespace.append("noise", &[0; 50_000], AppendOptions::default()).unwrap();
        }
        f.namespace.journal().first().get() > first + (8 << 20)
    });
    // Once in the same host, and once more by one that knows only the journal.
    drop(host);
    std::fs::write(go, "").unwrap();
    let _host =
        millrace_node::Host::start(Namespace::open(f.namespace.dir()).unwrap(), HostOptions::default()).unwrap();
    f.idle();
    let out = f.all("out");
    let token = out[0].split(' ').next().unwrap();
    let mut expected: Vec<String> = (0..100).map(|n| format!("{token} {n}")).collect();
    expected.push(format!("{token} end"));
    assert_eq!(out, expected);
    let run = &f.namespace.runs(&RunFilter::default()).unwrap()[0];
    assert_eq!((run.state, run.attempts.len()), (RunState::Done, 2));
}

#[test]
fn every_append_is_there_once_and_in_order_however_often_hosts_are_killed() {
    const RECORDS: usize = 300;
    const APPENDS: usize = 5;
    let f = fixture(&format!(
        "token = f'{{ctx.random(8).hex()}} {{ctx.now()}}'\n\
         for n in range({APPENDS}): ctx.append('out', f'{{record.text()}} {{n}} {{token}}'); time.sleep(0.001)"
    ));
    let mut storm = Storm::new(f.namespace.dir());
    for n in 0..RECORDS {
        f.append("in", &n.to_string());
    }
    // Each host is killed when some run has appended a part of what it appends.
    let mut goal = 2;
    for round in 0..20 {
        storm.next(Duration::ZERO);
        until("a run has begun to append", || f.namespace.latest("out").unwrap() >= goal);
        let appended = f.namespace.latest("out").unwrap() / APPENDS as u64;
        goal = (appended + 1 + round * 7 % 12) * APPENDS as u64 + 1 + round % 3;
        if goal >= (RECORDS * APPENDS) as u64 {
            break; // This machine has been busy with something else.
        }
    }
    storm.next(Duration::ZERO);
    f.idle();
    let mut tokens: BTreeMap<usize, String> = BTreeMap::new();
    let out = f.all("out");
    assert_eq!(out.len(), RECORDS * APPENDS);
    for (place, text) in out.iter().enumerate() {
        let mut words = text.splitn(3, ' ');
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        assert_eq!((number(), number()), (place / APPENDS, place % APPENDS), "{text}");
        let token = words.next().unwrap();
        assert_eq!(tokens.entry(place / APPENDS).or_insert_with(|| token.into()), token);
    }
    let runs = f.namespace.runs(&RunFilter { limit: usize::MAX, ..RunFilter::default() }).unwrap();
    assert!(runs.iter().any(|run| run.attempts.len() > 1), "no host was killed in the middle of a run");
}
