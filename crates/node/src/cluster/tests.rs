use super::*;
use crate::functions;
use millrace_journal::CreateOptions;
use millrace_namespace::{FunctionSpec, Runtime};
use std::{os::unix::fs::PermissionsExt, sync::mpsc::channel};

struct Nowhere;

impl Post for Nowhere {
    fn send(&self, _: u64, _: u32, _: Vec<u8>) {}
    fn members(&self, _: &[Member]) {}
    fn trouble(&self, _: u64) -> Option<String> {
        None
    }
}

/// The one host of a cluster.
fn alone(dir: &std::path::Path) -> Cluster {
    let namespace = Namespace::create(&dir.join("ns"), &CreateOptions::default()).unwrap();
    Facts::begin(&namespace, "lab").unwrap();
    let options = ClusterOptions { address: "127.0.0.1:9".into(), name: "n".into(), election: ELECTION };
    Cluster::start(&namespace, &options, Arc::new(Nowhere)).unwrap().unwrap()
}

fn called<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> std::result::Result<T, Code> {
    let (sender, receiver) = channel();
    call(Box::new(move |outcome| drop(sender.send(outcome))));
    receiver.recv().unwrap().map_err(|error| error.code())
}

#[test]
fn whoever_waits_for_a_topic_is_told_when_the_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", 10, reply)).unwrap();
    for _ in 0..3 {
        assert_eq!(called(|reply| cluster.growth("t", 0, Duration::from_millis(1), reply)), Ok(0));
    }
    assert!(locked(&cluster.shared.waiters).is_empty());
    for _ in 0..WAITERS_MAX {
        cluster.growth("t", 0, Duration::MAX, Box::new(drop));
    }
    assert_eq!(called(|reply| cluster.growth("t", 0, Duration::MAX, reply)), Err(Code::GroupBusy));
    called(|reply| cluster.publish("t", b"x", None, reply)).unwrap();
    assert_eq!(called(|reply| cluster.growth("t", 1, Duration::from_millis(1), reply)), Ok(1), "all were told");
}

#[test]
fn the_logs_of_the_runtime_feed_no_topic() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", 10, reply)).unwrap();
    assert_eq!(called(|reply| cluster.feed("t", "_cluster", reply)), Err(Code::LogInternal));
    // Another host may have had it agreed on.
    let (topic, log, host) = ("t".to_owned(), "_cluster".to_owned(), cluster.host());
    let action = Action::Feed { topic, host, log, after: 0 };
    called(|reply| cluster.submit(Ok(action), Vec::new(), reply)).unwrap();
    let start = Instant::now();
    while !cluster.stat().why.iter().any(|why| why.contains("_cluster") && why.contains(Code::LogInternal.id())) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", cluster.stat().why);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cluster.latest("t"), Ok(0));
}

#[test]
fn what_waits_for_the_group_is_bounded_by_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", 10, reply)).unwrap();
    // The driver takes nothing while this is held.
    let held = locked(&cluster.shared.replica);
    let message = || Input::Messages(vec![vec![0; 16 << 20]]);
    let taken = (0..16).take_while(|_| cluster.shared.queue(message()).is_ok()).count();
    // Two batches at most are in the driver's hands.
    assert!((3..=5).contains(&taken), "{taken} messages were taken");
    assert!(cluster.shared.queue(message()).is_err_and(|(_, error)| error.code() == Code::GroupBusy));
    drop(held);
    let start = Instant::now();
    while cluster.shared.queued.load(Ordering::Relaxed) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    called(|reply| cluster.publish("t", b"x", None, reply)).unwrap();
}
