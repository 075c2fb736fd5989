use super::*;
use crate::Without;

fn apply(topics: &mut Topics, entry: u64, serial: u64, action: Action) -> Option<Result<u64>> {
    let origin = Origin { host: 1, boot: 1, serial, settled: 0 };
    topics.apply(entry, Command { origin, action, data: b"" }, &mut Without)
}

fn publish() -> Action {
    Action::Publish { topic: "t".into(), key: None }
}

fn with_topic(history: u64) -> Topics {
    let mut topics = Topics::default();
    apply(&mut topics, 1, 1, Action::Create { topic: "t".into(), history, durability: Durability::Quorum })
        .unwrap()
        .unwrap();
    topics
}

#[test]
fn records_are_numbered_without_gaps_and_leave_the_history() {
    let mut topics = with_topic(2);
    for (entry, serial) in [(5, 2), (7, 3), (8, 4)] {
        assert_eq!(apply(&mut topics, entry, serial, publish()), Some(Ok(serial - 1)));
    }
    let topic = topics.topic("t").unwrap();
    assert_eq!((topic.earliest(), topic.latest), (2, 3));
    assert_eq!(topic.entry("t", 1).unwrap_err().code(), Code::BelowHistory);
    assert_eq!((topic.entry("t", 2), topic.entry("t", 3)), (Ok(7), Ok(8)));
    assert_eq!(topic.entry("t", 4).unwrap_err().code(), Code::AboveTail);
}

#[test]
fn the_revision_counts_what_changes_subscriptions_and_feeds_and_no_new_topics() {
    let mut topics = with_topic(2);
    let (topic, log, function) = (|| "t".to_owned(), || "l".to_owned(), || "f".to_owned());
    let history = 2;
    let mut serial = 1;
    let mut counts = |action: Action| {
        let before = topics.revision();
        serial += 1;
        apply(&mut topics, serial, serial, action).unwrap().unwrap();
        topics.revision() - before
    };
    assert_eq!(counts(Action::Create { topic: "u".into(), history, durability: Durability::Quorum }), 0);
    assert_eq!(counts(publish()), 0);
    assert_eq!(counts(Action::Subscribe { topic: topic(), function: function(), host: 1 }), 1);
    assert_eq!(counts(Action::Unsubscribe { topic: topic(), function: function(), host: 1 }), 1);
    assert_eq!(counts(Action::Feed { topic: topic(), host: 1, log: log(), after: 0 }), 1);
    assert_eq!(counts(Action::Unfeed { topic: topic(), host: 1, log: log() }), 1);
    assert_eq!(counts(Action::Remove { topic: topic(), horizon: 0 }), 1);
}

#[test]
fn what_arrives_twice_counts_once() {
    let mut topics = with_topic(10);
    assert_eq!(apply(&mut topics, 2, 2, publish()), Some(Ok(1)));
    assert_eq!(apply(&mut topics, 3, 2, publish()), Some(Ok(1)), "the outcome of the first time");
    assert_eq!(topics.topic("t").unwrap().latest, 1);
    let again = |topics: &mut Topics, boot, serial, settled| {
        let origin = Origin { host: 1, boot, serial, settled };
        topics.apply(9, Command { origin, action: publish(), data: b"" }, &mut Without)
    };
    assert_eq!(again(&mut topics, 1, 3, 3), Some(Ok(2)));
    assert_eq!(again(&mut topics, 1, 2, 0), None, "it was settled");
    assert_eq!(again(&mut topics, 2, 1, 0), Some(Ok(3)), "another life of the host");
    assert_eq!(again(&mut topics, 1, 4, 0), None, "the host has ended that life");
}

/// Has the commands that it was given.
#[derive(Default)]
struct Heard(Vec<u8>);

impl Machine for Heard {
    fn apply(&mut self, command: &[u8]) {
        self.0.extend_from_slice(command);
    }

    fn encode(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn check(&self, bytes: &[u8]) -> Result<()> {
        if bytes.contains(&b'!') { Err(Code::GroupLogDamaged.error("it is not said")) } else { Ok(()) }
    }

    fn restore(&mut self, bytes: &[u8]) {
        self.0 = bytes.to_vec();
    }
}

#[test]
fn a_machine_has_each_command_once_and_is_in_the_snapshot() {
    let (mut topics, mut machine) = (with_topic(10), Heard::default());
    for (serial, data) in [(2, b"a"), (3, b"b"), (2, b"a"), (4, b"c")] {
        let origin = Origin { host: 1, boot: 1, serial, settled: 0 };
        topics.apply(serial, Command { origin, action: Action::Machine, data }, &mut machine);
    }
    assert_eq!(machine.0, b"abc");
    let mut bytes = crate::snapshot::encode(&topics, &machine).unwrap();
    let (restored, of_machine) = crate::snapshot::decode(&bytes, &machine).unwrap();
    assert_eq!((&restored, of_machine), (&topics, &b"abc"[..]));
    assert_eq!(crate::snapshot::decode(&bytes, &Without).unwrap_err().code(), Code::GroupLogDamaged);
    bytes.push(b'!');
    assert_eq!(crate::snapshot::decode(&bytes, &machine).unwrap_err().code(), Code::GroupLogDamaged);
}

#[test]
fn a_record_with_a_key_is_there_once() {
    let mut topics = with_topic(10);
    let keyed = |key: usize| Action::Publish { topic: "t".into(), key: Some(key.to_string()) };
    assert_eq!(apply(&mut topics, 2, 2, keyed(1)), Some(Ok(1)));
    assert_eq!(apply(&mut topics, 3, 3, publish()), Some(Ok(2)));
    assert_eq!(apply(&mut topics, 4, 4, keyed(1)), Some(Ok(1)), "another command, the same key");
    for serial in 0..KEYS_MAX as u64 {
        apply(&mut topics, 5 + serial, 5 + serial, keyed(100 + serial as usize));
    }
    assert_eq!(apply(&mut topics, 9, 1 << 20, keyed(1)), Some(Ok(3 + KEYS_MAX as u64)), "it was forgotten");
}

#[test]
fn what_is_refused_is_refused_everywhere_alike() {
    let mut topics = with_topic(10);
    let mut code = |serial, action| apply(&mut topics, serial, serial, action).unwrap().unwrap_err().code();
    assert_eq!(code(2, Action::Publish { topic: "u".into(), key: None }), Code::TopicNotFound);
    assert_eq!(
        code(3, Action::Create { topic: "t".into(), history: 11, durability: Durability::Quorum }),
        Code::TopicExists
    );
    assert_eq!(
        code(4, Action::Create { topic: "_t".into(), history: 11, durability: Durability::Quorum }),
        Code::TopicNameInvalid
    );
    assert_eq!(
        code(5, Action::Create { topic: "v".into(), history: 0, durability: Durability::Quorum }),
        Code::ValueInvalid
    );
    assert_eq!(code(1 << 30, Action::Voters { count: 4 }), Code::ValueInvalid);
    let nobody = Action::Unsubscribe { topic: "t".into(), function: "f".into(), host: 1 };
    assert_eq!(code(6, nobody), Code::SubscriptionNotFound);
    let (t, log) = (|| "t".to_owned(), || "_keys".to_owned());
    for (at, of_another) in [
        Action::Subscribe { topic: t(), function: "f".into(), host: 4 },
        Action::Unsubscribe { topic: t(), function: "f".into(), host: 4 },
        Action::Feed { topic: t(), host: 4, log: log(), after: 0 },
        Action::Fed { topic: t(), host: 4, log: log(), since: 1, behind: 0, seqno: 1, key: None },
        Action::Unfeed { topic: t(), host: 4, log: log() },
        Action::Member(Member { id: 4, ..Member::default() }),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(code(7 + at as u64, of_another), Code::ValueInvalid, "{at}");
    }
}

#[test]
fn the_group_has_the_definition_of_a_topic_whose_records_are_elsewhere() {
    let mut topics = Topics::default();
    let create = |history| Action::CreateOutside { topic: "t".into(), history, engine: Engine::Nats };
    let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
    assert_eq!(code(apply(&mut topics, 1, 1, create(10))), Ok(0));
    assert_eq!(code(apply(&mut topics, 2, 2, create(10))), Ok(0), "it is there");
    assert_eq!(code(apply(&mut topics, 3, 3, create(11))), Err(Code::TopicExists));
    let builtin = Action::Create { topic: "t".into(), history: 10, durability: Durability::Quorum };
    assert_eq!(code(apply(&mut topics, 4, 4, builtin)), Err(Code::TopicExists));
    assert_eq!(code(apply(&mut topics, 5, 5, publish())), Err(Code::NatsUnsupported));
    let subscribe = |first| Action::SubscribeOutside { topic: "t".into(), function: "f".into(), host: 1, first };
    let without = Action::Subscribe { topic: "t".into(), function: "f".into(), host: 1 };
    assert_eq!(code(apply(&mut topics, 6, 6, without)), Err(Code::NatsUnsupported));
    assert_eq!(code(apply(&mut topics, 7, 7, subscribe(5))), Ok(0));
    assert_eq!(code(apply(&mut topics, 8, 8, subscribe(9))), Ok(0), "it is subscribed");
    // A feed publishes elsewhere; what the group learns of it is its progress.
    let (topic, log) = (|| "t".to_owned(), || "raw".to_owned());
    let feed = Action::Feed { topic: topic(), host: 1, log: log(), after: 2 };
    let fed = Action::Fed { topic: topic(), host: 1, log: log(), since: 9, behind: 2, seqno: 6, key: None };
    assert_eq!(code(apply(&mut topics, 9, 9, feed)), Ok(0));
    assert_eq!(code(apply(&mut topics, 10, 10, fed)), Ok(0));
    let bytes = crate::snapshot::encode(&topics, &Without).unwrap();
    let (topics, _) = crate::snapshot::decode(&bytes, &Without).unwrap();
    let found = topics.topic("t").unwrap();
    assert_eq!((found.engine, found.latest, found.subscriptions[0].first), (Engine::Nats, 0, 5));
    assert_eq!((found.feeds[0].last, topics.entries().count()), (6, 0));
}

#[test]
fn a_host_has_the_labels_that_it_said_last_until_it_leaves() {
    let mut topics = Topics::default();
    let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
    let labels = |all: &[(&str, &str)]| -> Labels {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let say = |host, all| Action::Labels { host, labels: labels(all) };
    let barn: &[(&str, &str)] = &[("zone", "barn"), ("rack", "2")];
    assert_eq!(code(apply(&mut topics, 1, 1, say(1, barn))), Err(Code::HostNotInCluster));
    topics.enter(Member { id: 1, ..Member::default() });
    assert_eq!(code(apply(&mut topics, 2, 2, say(1, barn))), Ok(0));
    assert_eq!(code(apply(&mut topics, 3, 3, say(2, barn))), Err(Code::ValueInvalid), "it speaks for another");
    assert_eq!(code(apply(&mut topics, 4, 4, say(1, &[("no/name", "x")]))), Err(Code::NameInvalid));
    let bytes = crate::snapshot::encode(&topics, &Without).unwrap();
    let (mut topics, _) = crate::snapshot::decode(&bytes, &Without).unwrap();
    assert_eq!(topics.labels(1), Some(&labels(barn)));
    assert_eq!(code(apply(&mut topics, 5, 5, say(1, &[("zone", "mill")]))), Ok(0));
    assert_eq!(topics.labels(1), Some(&labels(&[("zone", "mill")])));
    topics.leave(1);
    assert_eq!(topics.labels(1), None);
}

#[test]
fn a_removed_topic_is_gone_with_all_that_it_had_and_its_name_can_be_used_again() {
    let mut topics = with_topic(10);
    let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
    let keyed = || Action::Publish { topic: "t".into(), key: Some("k".into()) };
    let remove = |horizon| Action::Remove { topic: "t".into(), horizon };
    let create = || Action::Create { topic: "t".into(), history: 10, durability: Durability::Quorum };
    let create_at = |born| {
        let (topic, durability, engine) = ("t".into(), Durability::Quorum, Engine::Builtin);
        Action::CreateAt { topic, history: 10, durability, engine, born }
    };
    assert_eq!(code(apply(&mut topics, 2, 2, keyed())), Ok(1));
    let subscribe = Action::Subscribe { topic: "t".into(), function: "f".into(), host: 1 };
    assert_eq!(code(apply(&mut topics, 3, 3, subscribe)), Ok(0));
    let feed = Action::Feed { topic: "t".into(), host: 1, log: "raw".into(), after: 0 };
    assert_eq!(code(apply(&mut topics, 4, 4, feed)), Ok(0));
    assert_eq!(code(apply(&mut topics, 5, 5, remove(0))), Ok(0));
    assert_eq!(code(apply(&mut topics, 6, 6, remove(0))), Err(Code::TopicNotFound));
    assert_eq!(code(apply(&mut topics, 7, 7, keyed())), Err(Code::TopicNotFound));
    let fed = Action::Fed { topic: "t".into(), host: 1, log: "raw".into(), since: 4, behind: 0, seqno: 1, key: None };
    assert_eq!(code(apply(&mut topics, 8, 8, fed.clone())), Err(Code::TopicNotFound));
    assert_eq!(topics.entries().count(), 0, "no record is held");
    // A creation that began before the removal makes nothing.
    assert_eq!(code(apply(&mut topics, 9, 9, create())), Err(Code::TopicRemoving));
    assert_eq!(code(apply(&mut topics, 10, 10, create_at(5))), Err(Code::TopicRemoving));
    assert_eq!(code(apply(&mut topics, 11, 11, create_at(0))), Ok(0));
    assert_eq!(code(apply(&mut topics, 12, 12, create_at(0))), Ok(0), "it is there");
    let bytes = crate::snapshot::encode(&topics, &Without).unwrap();
    let (mut topics, _) = crate::snapshot::decode(&bytes, &Without).unwrap();
    let found = topics.topic("t").unwrap();
    assert_eq!((found.born, found.latest, topics.horizon()), (11, 0, 5));
    assert!(found.subscriptions.is_empty() && found.feeds.is_empty());
    assert_eq!(code(apply(&mut topics, 13, 13, fed)), Err(Code::SubscriptionNotFound));
    assert_eq!(code(apply(&mut topics, 14, 14, keyed())), Ok(1), "keys are those of the new topic");
    // As in another group than the first: there the removal began with an entry of the first group, and may be repeated.
    assert_eq!(code(apply(&mut topics, 15, 15, remove(40))), Ok(0));
    assert_eq!(code(apply(&mut topics, 16, 16, remove(40))), Ok(0));
    assert_eq!(code(apply(&mut topics, 17, 17, create_at(39))), Err(Code::TopicRemoving));
    assert_eq!(code(apply(&mut topics, 18, 18, create_at(41))), Ok(0));
    assert_eq!(topics.topic("t").unwrap().born, 41);
}

#[test]
fn a_host_that_was_removed_says_nothing_that_counts() {
    let mut topics = Topics::default();
    let member = || Member { id: 1, ..Member::default() };
    let code = |outcome: Option<Result<u64>>| outcome.unwrap().map_err(|error| error.code());
    let group = Action::Group { name: "g".into(), hosts: vec![1], size: 1 };
    let follow = || Action::Follow { group: 2, host: 1 };
    assert_eq!(code(apply(&mut topics, 1, 1, Action::Member(member()))), Ok(0));
    assert_eq!(code(apply(&mut topics, 2, 2, group)), Ok(2));
    assert_eq!(code(apply(&mut topics, 3, 3, follow())), Ok(0));
    topics.leave(1);
    assert_eq!(code(apply(&mut topics, 4, 4, Action::Member(member()))), Err(Code::HostNotInCluster));
    assert_eq!(code(apply(&mut topics, 5, 5, follow())), Err(Code::HostNotInCluster));
    // Taken in again, it is a host like the others.
    topics.enter(member());
    assert_eq!(code(apply(&mut topics, 6, 6, follow())), Ok(0));
}

#[test]
fn a_log_feeds_a_topic_with_each_record_once_and_in_order() {
    let mut topics = with_topic(10);
    apply(&mut topics, 2, 2, Action::Feed { topic: "t".into(), host: 1, log: "raw".into(), after: 7 });
    let mut serial = 2;
    let mut keyed = |topics: &mut Topics, since, behind, seqno, key: Option<&str>| {
        serial += 1;
        let key = key.map(str::to_owned);
        let (topic, log) = ("t".into(), "raw".into());
        let outcome = apply(topics, serial, serial, Action::Fed { topic, host: 1, log, since, behind, seqno, key });
        outcome.unwrap().map_err(|error| error.code())
    };
    assert_eq!(keyed(&mut topics, 2, 8, 9, None), Err(Code::FeedOutOfOrder), "record 8 comes first");
    assert_eq!(keyed(&mut topics, 2, 7, 8, None), Ok(1));
    assert_eq!(keyed(&mut topics, 2, 7, 8, None), Ok(0), "it is there");
    assert_eq!(keyed(&mut topics, 2, 8, 12, None), Ok(2), "those between had left the log");
    assert_eq!(keyed(&mut topics, 1, 12, 13, None), Err(Code::SubscriptionNotFound), "another feed of that log");
    assert_eq!(keyed(&mut topics, 2, 12, 13, Some("k")), Ok(3));
    assert_eq!(keyed(&mut topics, 2, 13, 14, Some("k")), Ok(3), "the same key");
    assert_eq!(keyed(&mut topics, 2, 14, 15, None), Ok(4), "the feed goes on");
    assert_eq!(topics.topic("t").unwrap().latest, 4);
}

#[test]
fn a_subscription_begins_behind_what_is_there() {
    let mut topics = with_topic(10);
    apply(&mut topics, 2, 2, publish());
    let subscribe = || Action::Subscribe { topic: "t".into(), function: "f".into(), host: 1 };
    apply(&mut topics, 3, 3, subscribe()).unwrap().unwrap();
    apply(&mut topics, 4, 4, subscribe()).unwrap().unwrap();
    let subscriptions = &topics.topic("t").unwrap().subscriptions;
    assert_eq!(*subscriptions, [Subscription { function: "f".into(), host: 1, first: 2, since: 3 }]);
}

#[test]
fn what_a_removed_host_left_behind_is_ended_by_others() {
    let mut topics = with_topic(10);
    let of = |topics: &mut Topics, host, serial, action| {
        let origin = Origin { host, boot: 1, serial, settled: 0 };
        topics.apply(serial, Command { origin, action, data: b"" }, &mut Without).unwrap().map_err(|error| error.code())
    };
    for host in [2, 3] {
        let (topic, function, log) = ("t".to_owned(), "f".to_owned(), "l".to_owned());
        of(&mut topics, host, 1, Action::Subscribe { topic: topic.clone(), function, host }).unwrap();
        of(&mut topics, host, 2, Action::Feed { topic, host, log, after: 0 }).unwrap();
    }
    let gone = [2].into();
    assert_eq!(topics.left_behind(&gone).count(), 0, "it is still a replica");
    let unsubscribe = Action::Unsubscribe { topic: "t".into(), function: "f".into(), host: 2 };
    assert_eq!(of(&mut topics, 1, 10, unsubscribe), Err(Code::ValueInvalid));
    topics.leave(2);
    topics.leave(3);
    let ends: Vec<Action> = topics.left_behind(&gone).collect();
    assert_eq!(ends.len(), 2);
    for (serial, end) in (11..).zip(ends) {
        of(&mut topics, 1, serial, end).unwrap();
    }
    assert_eq!(topics.left_behind(&gone).count(), 0);
    let topic = topics.topic("t").unwrap();
    let hosts = topic.subscriptions.iter().map(|known| known.host).chain(topic.feeds.iter().map(|known| known.host));
    assert!(hosts.eq([3, 3]), "the group does not have host 3 any more, but the cluster may");
}
