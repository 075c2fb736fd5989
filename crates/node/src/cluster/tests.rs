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
fn a_topic_whose_name_has_no_room_for_a_function_is_refused_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    let code = dir.path().join("run.sh");
    std::fs::write(&code, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&code, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut spec = FunctionSpec::new("keep".parse().unwrap(), Runtime::Oneshot);
    spec.command = vec!["./run.sh".into()];
    functions::deploy(&cluster.shared.namespace, &spec, &code).unwrap();
    let (deep, good) = ("a/b/c/d/e/f/g", "good");
    for topic in [deep, good] {
        called(|reply| cluster.create(topic, 10, reply)).unwrap();
    }
    assert_eq!(called(|reply| cluster.subscribe(deep, "keep", reply)), Err(Code::TopicNameInvalid));
    // Another version of this host may have had it agreed on.
    let action = Action::Subscribe { topic: deep.into(), function: "keep".into(), host: cluster.host() };
    called(|reply| cluster.submit(Ok(action), Vec::new(), reply)).unwrap();
    called(|reply| cluster.subscribe(good, "keep", reply)).unwrap();
    for topic in [deep, good] {
        called(|reply| cluster.publish(topic, b"x", None, reply)).unwrap();
    }
    let [log, _] = deliver::logs(good, "keep").unwrap();
    let start = Instant::now();
    while !cluster.shared.namespace.latest(&log).is_ok_and(|latest| latest > 0) {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is delivered");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(cluster.stat().why.iter().any(|why| why.contains(deep)), "{:?}", cluster.stat().why);
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
    // The publisher gets the answer first.
    while !locked(&cluster.shared.waiters).is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(called(|reply| cluster.growth("t", 1, Duration::from_millis(1), reply)), Ok(1));
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
    let mut taken = 0;
    let refused = (0..16).find_map(|_| cluster.shared.queue(message()).inspect(|()| taken += 1).err());
    assert!(refused.is_some_and(|refused| refused.1.code() == Code::GroupBusy));
    // Two batches at most are in the driver's hands.
    assert!((3..=5).contains(&taken), "{taken} messages were taken");
    drop(held);
    let start = Instant::now();
    while cluster.shared.queued.load(Ordering::Relaxed) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    called(|reply| cluster.publish("t", b"x", None, reply)).unwrap();
}
