use super::*;
use crate::functions;
use millrace_group::{Action, Form, Proposal, Turn, Write, Written};
use millrace_journal::CreateOptions;
use millrace_namespace::{FunctionSpec, Runtime};
use millrace_wire::EventId;
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
    Facts::begin(&namespace, "lab", None).unwrap();
    restarted(&namespace)
}

fn restarted(namespace: &Namespace) -> Cluster {
    let options = ClusterOptions {
        address: "127.0.0.1:9".into(),
        name: "n".into(),
        labels: Labels::new(),
        election: ELECTION,
        streams: None,
    };
    Cluster::start(namespace, &options, Arc::new(Nowhere)).unwrap().unwrap()
}

fn called<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> std::result::Result<T, Code> {
    let (sender, receiver) = channel();
    call(Box::new(move |outcome| drop(sender.send(outcome))));
    receiver.recv().unwrap().map_err(|error| error.code())
}

fn kept(history: u64) -> TopicOptions {
    TopicOptions { history, durability: Durability::Quorum, group: None, engine: Engine::Builtin }
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
        called(|reply| cluster.create(topic, &kept(10), reply)).unwrap();
    }
    assert_eq!(called(|reply| cluster.subscribe(deep, "keep", reply)), Err(Code::TopicNameInvalid));
    // Another version of this host may have had it agreed on.
    let action = Action::Subscribe { topic: deep.into(), function: "keep".into(), host: cluster.host() };
    called(|reply| cluster.of_directory(action, reply)).unwrap();
    called(|reply| cluster.subscribe(good, "keep", reply)).unwrap();
    for topic in [deep, good] {
        called(|reply| cluster.publish(topic, b"x", None, None, reply)).unwrap();
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
fn waiting_for_a_topic_ends_at_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", &kept(10), reply)).unwrap();
    for _ in 0..3 {
        assert_eq!(called(|reply| cluster.growth("t", 0, Duration::from_millis(1), reply)), Ok(0));
    }
    assert!(locked(&cluster.shared.waiters).is_empty());
    for _ in 0..WAITERS_MAX {
        cluster.growth("t", 0, Duration::MAX, Box::new(drop));
    }
    assert_eq!(called(|reply| cluster.growth("t", 0, Duration::MAX, reply)), Err(Code::GroupBusy));
    called(|reply| cluster.publish("t", b"x", None, None, reply)).unwrap();
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
    called(|reply| cluster.create("t", &kept(10), reply)).unwrap();
    assert_eq!(called(|reply| cluster.feed("t", "_cluster", reply)), Err(Code::LogInternal));
    // Another host may have had it agreed on.
    let (topic, log, host) = ("t".to_owned(), "_cluster".to_owned(), cluster.host());
    let action = Action::Feed { topic, host, log, after: 0 };
    called(|reply| cluster.of_directory(action, reply)).unwrap();
    let start = Instant::now();
    while !cluster.stat().why.iter().any(|why| why.contains("_cluster") && why.contains(Code::LogInternal.id())) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", cluster.stat().why);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cluster.latest("t"), Ok(0));
}

#[test]
fn the_queue_of_the_group_is_bounded_in_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", &kept(10), reply)).unwrap();
    // The driver takes nothing while this is held.
    let held = locked(&cluster.shared.main.replica);
    let message = || Input::Messages { group: MAIN, messages: vec![vec![0; 16 << 20]] };
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
    called(|reply| cluster.publish("t", b"x", None, None, reply)).unwrap();
}

#[test]
fn topics_are_found_in_whichever_group_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    let of = |group: &str| TopicOptions { group: Some(group.into()), ..kept(10) };
    assert_eq!(called(|reply| cluster.create("t", &of("farm"), reply)), Err(Code::GroupNotFound));
    // It has to say where it is before a group can be made on it.
    let start = Instant::now();
    while called(|reply| cluster.create_group("farm", Vec::new(), 1, reply)) == Err(Code::GroupBusy) {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    called(|reply| cluster.create("t", &of("farm"), reply)).unwrap();
    called(|reply| cluster.create("t", &of("farm"), reply)).unwrap();
    assert_eq!(called(|reply| cluster.create("t", &kept(10), reply)), Err(Code::TopicExists));
    called(|reply| cluster.create("u", &of(MAIN_NAME), reply)).unwrap();
    assert_eq!(called(|reply| cluster.create("u", &of("farm"), reply)), Err(Code::TopicExists));
    for topic in ["t", "u"] {
        assert_eq!(called(|reply| cluster.publish(topic, topic.as_bytes(), None, None, reply)), Ok(1));
        called(|reply| cluster.fresh(topic, reply)).unwrap();
        assert_eq!(cluster.get(topic, 0).unwrap().payload, topic.as_bytes());
    }
    let groups: Vec<(String, String)> =
        cluster.topics("", 10).into_iter().map(|topic| (topic.topic, topic.group)).collect();
    assert_eq!(groups, [("t".into(), "farm".into()), ("u".into(), "main".into())]);
    // With the durability of the leader alone no index is known yet; what follows has the next one.
    assert_eq!(called(|reply| cluster.publish("t", b"early", None, Some(Durability::Leader), reply)), Ok(0));
    assert_eq!(called(|reply| cluster.publish("t", b"late", None, None, reply)), Ok(3));
    assert_eq!(cluster.get("t", 2).unwrap().payload, b"early");
    assert_eq!(called(|reply| cluster.remove_group("farm", reply)), Err(Code::GroupHasTopics));
    called(|reply| cluster.create_group("gone", Vec::new(), 1, reply)).unwrap();
    called(|reply| cluster.remove_group("gone", reply)).unwrap();
    let names = || cluster.groups().into_iter().map(|group| group.group).collect::<Vec<_>>();
    assert_eq!(names(), ["main", "farm"]);
    // All of it is there after a start.
    let namespace = cluster.shared.namespace.clone();
    drop(cluster);
    let cluster = restarted(&namespace);
    called(|reply| cluster.fresh("t", reply)).unwrap();
    assert_eq!(cluster.get("t", 3).unwrap().payload, b"late");
    let start = Instant::now();
    while !cluster.groups().iter().all(|group| group.resting) {
        assert!(start.elapsed() < Duration::from_secs(60), "a group without work rests");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(called(|reply| cluster.publish("t", b"awake", None, None, reply)), Ok(4));
}

/// Publishes a record that is kept here first.
fn later(cluster: &Cluster, topic: &str, data: &[u8], key: Option<&str>) -> std::result::Result<(), Code> {
    let record = NewPublish { topic, key, data, cause: millrace_wire::EventId::NONE, ordinal: 0 };
    let kept = cluster.publish_later(record, millrace_wire::Hlc::default());
    kept.and_then(crate::Gated::wait).map_err(|error| error.code())
}

#[test]
fn records_that_wait_are_published_in_order_and_once_and_leave_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    assert_eq!(later(&cluster, "t", b"x", None), Err(Code::TopicNotFound));
    assert_eq!(later(&cluster, "_t", b"x", None), Err(Code::TopicNameInvalid));
    called(|reply| cluster.create("t", &kept(1000), reply)).unwrap();
    assert_eq!(later(&cluster, "t", b"x", Some("")), Err(Code::ValueInvalid));
    assert_eq!(later(&cluster, "t", &vec![0; 64 << 20], None), Err(Code::RecordTooLong));
    assert_eq!(called(|reply| cluster.publish("t", b"first", Some("k"), None, reply)), Ok(1));
    let mut expected = vec![b"first".to_vec()];
    for number in 0..200 {
        let record = number.to_string().into_bytes();
        later(&cluster, "t", &record, None).unwrap();
        expected.push(record);
        if number % 50 == 0 {
            later(&cluster, "t", b"again", Some("k")).unwrap();
        }
    }
    let start = Instant::now();
    while cluster.latest("t") != Ok(201) || !cluster.buffers().unwrap().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", cluster.buffers());
        thread::sleep(Duration::from_millis(5));
    }
    let records: Vec<Vec<u8>> =
        cluster.range("t", 1, 1000, 1 << 20).unwrap().into_iter().map(|record| record.payload).collect();
    assert_eq!(records, expected);
    assert!(cluster.stat().why.iter().all(|why| !why.contains("publish")), "{:?}", cluster.stat().why);
    assert_eq!(called(|reply| cluster.unfeed("t", "_publish", reply)), Err(Code::LogInternal));
}

#[test]
fn a_removal_that_was_interrupted_is_completed_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    let of = |group: &str| TopicOptions { group: Some(group.into()), ..kept(10) };
    for group in ["farm", "lab"] {
        let start = Instant::now();
        while called(|reply| cluster.create_group(group, Vec::new(), 1, reply)) == Err(Code::GroupBusy) {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
    }
    called(|reply| cluster.create("t", &of("farm"), reply)).unwrap();
    called(|reply| cluster.publish("t", b"old", None, None, reply)).unwrap();
    let group = cluster.shared.locate("t").unwrap();
    let displace = Action::Displace { topic: "t".into(), group };
    let since = called(|reply| cluster.of_directory(displace, reply)).unwrap();
    let is_told = || cluster.stat().why.iter().any(|why| why.contains("millrace topic rm t"));
    for also_removed in [false, true] {
        if also_removed {
            let remove = Action::Remove { topic: "t".into(), horizon: since };
            called(|reply| cluster.shared.submit(group, remove, Vec::new(), Durability::Quorum, reply)).unwrap();
        }
        // Until it has ended the name is no other topic's, and `why` says what completes it.
        for group in ["farm", "lab", MAIN_NAME] {
            assert_eq!(called(|reply| cluster.create("t", &of(group), reply)), Err(Code::TopicRemoving), "{group}");
        }
        assert!(is_told());
    }
    called(|reply| cluster.remove_topic("t", reply)).unwrap();
    assert!(!is_told());
    assert_eq!(called(|reply| cluster.remove_topic("t", reply)), Err(Code::TopicNotFound));
    called(|reply| cluster.remove_group("farm", reply)).unwrap();
    called(|reply| cluster.create("t", &of("lab"), reply)).unwrap();
    assert_eq!(called(|reply| cluster.publish("t", b"new", None, None, reply)), Ok(1));
    // In the first group one command does it.
    called(|reply| cluster.create("u", &kept(10), reply)).unwrap();
    called(|reply| cluster.remove_topic("u", reply)).unwrap();
    called(|reply| cluster.create("u", &kept(20), reply)).unwrap();
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn append(cluster: &Cluster, log: &str, records: std::ops::Range<u32>) {
    for record in records {
        let record = record.to_string().into_bytes();
        cluster.shared.namespace.append(log, &record, crate::AppendOptions::default()).unwrap();
    }
}

fn why(cluster: &Cluster) -> String {
    cluster.stat().why.join("\n")
}

#[test]
fn a_log_that_was_deleted_and_created_again_feeds_no_topic() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", &kept(100), reply)).unwrap();
    let (namespace, log) = (cluster.shared.namespace.clone(), "l".parse().unwrap());
    let again = |cluster: Cluster| {
        namespace.remove_log(&log).unwrap();
        namespace.create_log(&log, 100).unwrap();
        // More than the topic has of the old one: their numbers do not show that they are others.
        append(&cluster, "l", 0..20);
        eventually("it is refused", || why(&cluster).contains("log 'l' was deleted and recreated"));
        cluster
    };
    namespace.create_log(&log, 100).unwrap();
    called(|reply| cluster.feed("t", "l", reply)).unwrap();
    append(&cluster, "l", 0..5);
    eventually("it is fed", || cluster.latest("t") == Ok(5));
    let cluster = again(cluster);
    assert_eq!(cluster.latest("t"), Ok(5));
    // The next feed begins behind what is in the log then.
    called(|reply| cluster.unfeed("t", "l", reply)).unwrap();
    called(|reply| cluster.feed("t", "l", reply)).unwrap();
    append(&cluster, "l", 20..22);
    eventually("it is fed again", || cluster.latest("t") == Ok(7));
    assert!(!why(&cluster).contains("log l"), "{}", why(&cluster));
    // While the host is not there, nobody sees that the log has fewer records for a moment.
    drop(cluster);
    namespace.remove_log(&log).unwrap();
    namespace.create_log(&log, 100).unwrap();
    for record in 0..30_u8 {
        namespace.append("l", &[record], crate::AppendOptions::default()).unwrap();
    }
    let cluster = restarted(&namespace);
    eventually("it is refused after a start", || why(&cluster).contains("was deleted and recreated"));
    // After a start, entries are applied once the group has a leader again.
    eventually("the topic has its records again", || cluster.latest("t") == Ok(7));
}

#[test]
fn records_that_left_a_log_before_they_were_published_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    called(|reply| cluster.create("t", &kept(100), reply)).unwrap();
    cluster.shared.namespace.create_log(&"l".parse().unwrap(), 10).unwrap();
    called(|reply| cluster.feed("t", "l", reply)).unwrap();
    append(&cluster, "l", 0..1);
    eventually("it is fed", || cluster.latest("t") == Ok(1));
    assert!(!why(&cluster).contains("log l"), "{}", why(&cluster));
    {
        // As long as this is held, the group decides nothing.
        let _held = locked(&cluster.shared.main.replica);
        append(&cluster, "l", 1..31);
    }
    let newest = || cluster.get("t", 0).unwrap();
    eventually("what is left is fed", || newest().payload == b"30");
    let feeds = cluster.topics("", 10).remove(0).here.unwrap().feeds;
    assert_eq!(feeds[0].published, 31);
    // Some of them may have been on their way when it was held.
    let missed = feeds[0].missed.expect("most of them had left the log");
    assert_eq!(newest().seqno + missed, 31);
    let told =
        format!("{missed} records left the history of log l on this host before they could be published to topic t");
    assert!(why(&cluster).contains(&told), "{}", why(&cluster));
}

#[test]
fn a_mirror_does_not_feed_its_own_topic() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    for topic in ["t", "u"] {
        called(|reply| cluster.create(topic, &kept(100), reply)).unwrap();
    }
    cluster.begin_mirror("t", "copy", None).and_then(crate::Gated::wait).unwrap();
    assert_eq!(called(|reply| cluster.feed("t", "copy", reply)), Err(Code::ValueInvalid));
    called(|reply| cluster.feed("u", "copy", reply)).unwrap();
    called(|reply| cluster.publish("t", b"x", None, None, reply)).unwrap();
    eventually("another topic has the record", || cluster.latest("u") == Ok(1));
    assert_eq!(cluster.latest("t"), Ok(1));
}

#[test]
fn a_reader_that_waits_for_a_topic_hears_that_its_group_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    eventually("a group can be made", || called(|reply| cluster.create_group("farm", Vec::new(), 1, reply)).is_ok());
    let of = TopicOptions { group: Some("farm".into()), ..kept(10) };
    called(|reply| cluster.create("t", &of, reply)).unwrap();
    called(|reply| cluster.fresh("t", reply)).unwrap();
    let (sender, receiver) = channel();
    cluster.growth("t", 0, GROWTH_MAX, Box::new(move |grown| drop(sender.send(grown))));
    // This host hears of the group's end before it hears of the topic's.
    let group = cluster.shared.locate("t").unwrap();
    let displace = Action::Displace { topic: "t".into(), group };
    let since = called(|reply| cluster.of_directory(displace, reply)).unwrap();
    called(|reply| cluster.of_directory(Action::Displaced { topic: "t".into(), since }, reply)).unwrap();
    called(|reply| cluster.remove_group("farm", reply)).unwrap();
    let heard = receiver.recv_timeout(Duration::from_secs(60)).expect("it hears something");
    assert_eq!(heard.unwrap_err().code(), Code::TopicNotFound);
    assert!(locked(&cluster.shared.waiters).is_empty());
}

#[test]
fn a_group_has_a_hundred_thousand_topics_and_no_more() {
    const COUNT: usize = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    let (sender, receiver) = channel();
    for at in 0..COUNT {
        // No more than the group takes at once.
        if at >= 2048 {
            assert_eq!(receiver.recv().unwrap(), Ok(()));
        }
        let sender = sender.clone();
        cluster.create(&format!("of/{at}"), &kept(10), Box::new(move |made| drop(sender.send(made))));
    }
    drop(sender);
    assert!(receiver.iter().all(|made| made == Ok(())));
    assert_eq!(called(|reply| cluster.create("more", &kept(10), reply)), Err(Code::TopicsFull));
    for topic in ["of/0", "of/99999"] {
        called(|reply| cluster.publish(topic, topic.as_bytes(), None, None, reply)).unwrap();
    }
    // A snapshot has all of them.
    let before = cluster.stat().first;
    let record = vec![b'x'; 512 << 10];
    for _ in 0..120 {
        called(|reply| cluster.publish("of/7", &record, None, None, reply)).unwrap();
    }
    eventually("the log was trimmed", || cluster.stat().first > before);
    let namespace = cluster.shared.namespace.clone();
    drop(cluster);
    let cluster = restarted(&namespace);
    for topic in ["of/0", "of/99999"] {
        called(|reply| cluster.fresh(topic, reply)).unwrap();
        assert_eq!(cluster.get(topic, 0).unwrap().payload, topic.as_bytes());
    }
    assert_eq!(cluster.topics("of/99998", 10).len(), 1);
}

#[test]
fn a_record_keeps_the_time_of_its_publisher_and_what_it_comes_from() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = alone(dir.path());
    let namespace = cluster.shared.namespace.clone();
    let code = dir.path().join("run.sh");
    std::fs::write(&code, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&code, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut spec = FunctionSpec::new("keep".parse().unwrap(), Runtime::Oneshot);
    spec.command = vec!["./run.sh".into()];
    functions::deploy(&namespace, &spec, &code).unwrap();
    namespace.create_log(&"raw".parse().unwrap(), 100).unwrap();
    called(|reply| cluster.create("t", &kept(10), reply)).unwrap();
    called(|reply| cluster.subscribe("t", "keep", reply)).unwrap();
    called(|reply| cluster.feed("t", "raw", reply)).unwrap();
    append(&cluster, "raw", 0..1);
    eventually("the record is published", || cluster.latest("t") == Ok(1));
    let fed = namespace.get("raw", 1).unwrap();
    let cause = fed.id;
    called(|reply| cluster.publish_from(cause, "t", (b"said", None), None, reply)).unwrap();
    called(|reply| cluster.publish("t", b"from nothing", None, None, reply)).unwrap();
    let shown = |cluster: &Cluster, index| {
        let record = cluster.get("t", index).unwrap();
        (record.hlc, record.cause)
    };
    assert_eq!(shown(&cluster, 1), (fed.hlc, fed.id));
    let before: Vec<_> = (1..=3).map(|index| shown(&cluster, index)).collect();
    assert_eq!(before.iter().map(|(_, cause)| *cause).collect::<Vec<_>>(), [cause, cause, EventId::NONE]);
    assert!(before[1].0 > before[0].0 && before[2].0 > before[1].0);
    // The copies that the function runs for say what they come from.
    let [log, _] = deliver::logs("t", "keep").unwrap();
    eventually("all are delivered", || namespace.latest(&log) == Ok(3));
    let causes: Vec<_> = (1..=3).map(|index| namespace.get(&log, index).unwrap().cause).collect();
    assert_eq!(causes, [cause, cause, EventId::NONE]);
    drop(cluster);
    let cluster = restarted(&namespace);
    called(|reply| cluster.fresh("t", reply)).unwrap();
    assert_eq!((1..=3).map(|index| shown(&cluster, index)).collect::<Vec<_>>(), before);
}

#[test]
fn turns_of_any_entries_are_written_into_the_smallest_segments() {
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions { segment_bytes: 1 << 20, ..CreateOptions::default() };
    let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
    let store = store::Store::open(&namespace, 1).unwrap();
    let most = namespace.journal().record_max_bytes() - PROPOSE_HEAD_BYTES;
    for (bytes, count) in [(0, 10_000), (1, 10_000), (256, 4000), (64 << 10, 16), (most, 4)] {
        let entry = |index| Write::Entry(Proposal { term: 1, index, form: Form::Command, data: vec![0; bytes] });
        let mut turn = Turn::default();
        turn.writes = (1..=count).map(entry).collect();
        store.write(&turn, &mut Written::default()).unwrap_or_else(|error| panic!("{count} of {bytes}: {error}"));
    }
}
