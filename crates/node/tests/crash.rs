//! A host may be killed at any moment: every record has a run, whose effects exist exactly once.

mod common;

use common::{Fixture, LONG, Storm};
use millrace_node::{AppendOptions, Code, RunFilter, RunState};
use std::{collections::BTreeMap, fs, time::Duration};

#[test]
fn every_record_has_exactly_one_effect_however_often_hosts_are_killed() {
    let f = Fixture::new();
    for name in ["in", "middle", "out"] {
        f.log(name);
    }
    let stubborn = |spec: &mut millrace_node::FunctionSpec| spec.retries = 100;
    // While the file `hold` exists, a run stays in progress, so that it can be killed.
    let (hold, held) = (f.dir.path().join("hold"), f.dir.path().join("held"));
    let body = format!(
        "if os.path.exists({hold:?}): open({held:?}, 'w').close()\nwhile os.path.exists({hold:?}): time.sleep(0.01)\n\
         ctx.append('middle', record.data)\nctx.append('middle', record.data)"
    );
    f.python("first", &["in"], &body, stubborn);
    f.wasm("second", &["middle"], "return mr_append(\"out\", record->data, record->size);", |spec| {
        spec.retries = 100;
        (spec.ordered, spec.concurrency) = (false, 2);
    });
    let mut storm = Storm::new(f.namespace.dir());
    let mut n = 0;
    for round in 0..25u64 {
        let in_the_middle = round > 0 && round % 5 == 0;
        if in_the_middle {
            fs::write(&hold, "").unwrap();
            f.append("in", &n.to_string());
            n += 1;
            common::until("a run is in progress", || held.exists());
        }
        storm.next(Duration::from_millis(round * 7 % 40));
        if in_the_middle {
            fs::remove_file(&hold).unwrap();
            fs::remove_file(&held).unwrap();
        }
        for _ in 0..200 {
            f.append("in", &n.to_string());
            n += 1;
        }
    }
    f.idle();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for text in f.all("out") {
        *counts.entry(text).or_default() += 1;
    }
    assert_eq!(counts.len(), n);
    assert!(counts.values().all(|count| *count == 2), "{:?}", counts.iter().find(|(_, count)| **count != 2));
    let runs = f.namespace.runs(&RunFilter { limit: usize::MAX, ..RunFilter::default() }).unwrap();
    assert_eq!(runs.len(), 3 * n);
    assert!(runs.iter().all(|run| run.state == RunState::Done));
    assert!(runs.iter().any(|run| run.attempts.len() > 1), "no host was killed in the middle of a run");
}

#[test]
fn a_record_that_ends_every_host_is_given_up() {
    let f = Fixture::new();
    f.log("in");
    f.log("out");
    // The function kills the host, and so also itself.
    let body = "host = json.load(open(os.environ['NS'] + '/host'))['pid']\n\
                if record.text() == 'poison': os.kill(host, 9); time.sleep(60)\n\
                ctx.append('out', record.data)";
    f.python("fatal", &["in"], body, |spec| {
        spec.retries = 2;
        spec.env.insert("NS".into(), f.namespace.dir().to_str().unwrap().into());
    });
    f.append("in", "poison");
    f.append("in", "good");
    let mut hosts = 0;
    while f.namespace.latest("out").unwrap() == 0 {
        hosts += 1;
        assert!(hosts < 20, "the record was not given up");
        let mut host = common::host_process(f.namespace.dir());
        common::until("the host is killed or the run behind is done", || {
            host.try_wait().unwrap().is_some() || f.namespace.latest("out").unwrap() > 0
        });
        let _ = host.kill();
        host.wait().unwrap();
    }
    assert_eq!(hosts, 12, "three attempts, eight more that may be the hosts' fault, and a host that gives up");
    assert_eq!(f.all("out"), ["good"]);
    let dead = f.namespace.runs(&RunFilter { state: Some(RunState::Dead), ..RunFilter::default() }).unwrap();
    assert_eq!(dead[0].ending.clone().unwrap().dead.unwrap().code, Code::RunInterrupted.id());
    assert_eq!(dead[0].record.seqno, 1);
    assert!(f.all("dead/fatal")[0].contains("\"data\":\"poison\""), "the dead letter has the record");
}

#[test]
fn a_namespace_has_one_host_at_a_time_and_says_which() {
    let f = Fixture::new();
    assert_eq!(f.namespace.host().unwrap(), None);
    let host = f.host();
    let error = millrace_node::Host::start(f.namespace.clone(), Default::default()).err().unwrap();
    assert_eq!(error.code(), Code::HostHeld);
    let pid = std::process::id();
    assert!(error.detail().contains(&format!("process {pid}")) && error.detail().contains("crash"), "{error}");
    assert_eq!(f.namespace.host().unwrap().unwrap().pid, pid);
    host.stop(LONG).unwrap();
    assert_eq!(f.namespace.host().unwrap(), None);
    drop(f.host());
    let host = f.host();
    f.log("in");
    f.python("f", &["in"], "pass", |_| {});
    f.namespace.append("in", b"x", AppendOptions::default()).unwrap();
    f.idle();
    host.stop(LONG).unwrap();
}
