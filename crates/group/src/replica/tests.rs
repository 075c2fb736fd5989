use super::*;
use crate::{
    Durability, Leaders, Mark, Payloads, Without,
    snapshot::{Chunk, Fetch, Reached},
};

struct Nothing;

impl Payloads for Nothing {
    fn read(&self, _: Place) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

fn message(kind: MessageType, adjust: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut message = Message { from: 2, to: 1, term: 1, ..Message::default() };
    message.set_msg_type(kind);
    adjust(&mut message);
    Said::Raft(Box::new(message)).bytes()
}

fn append(index: u64, log_term: u64, entries: &[(u64, u64)], commit: u64) -> Vec<u8> {
    message(MessageType::MsgAppend, |message| {
        (message.index, message.log_term, message.commit) = (index, log_term, commit);
        let entry = |(index, term): &(u64, u64)| entry_of(*term, *index, Form::Command, Vec::new());
        message.entries = entries.iter().map(entry).collect::<Vec<_>>().into();
    })
}

fn said(said: &Said) -> Vec<u8> {
    said.bytes()
}

fn offer(index: u64, term: u64, voters: &[u64]) -> Vec<u8> {
    let (first, voters) = (index + 1, voters.to_vec());
    let mark = Mark { index, term, first, before: term, voters, learners: Vec::new() };
    message(MessageType::MsgSnapshot, |message| message.set_snapshot(mark.as_message()))
}

fn chunk(index: u64, part: &[u8]) -> Chunk {
    let (behind, reached) = (Reached::default(), Some(Reached { bytes: part.len() as u64, entries: 0 }));
    let (part, entries) = (part.to_vec(), Vec::new());
    Chunk { from: 2, to: 1, index, term: 1, behind, reached, part, entries, is_last: true }
}

fn long() -> Entry {
    entry_of(1, 3, Form::Command, vec![0; Limits::default().entry_max_bytes + 1])
}

fn append_long() -> Vec<u8> {
    message(MessageType::MsgAppend, |message| {
        (message.index, message.log_term, message.entries) = (2, 1, vec![long()].into());
    })
}

fn propose_long() -> Vec<u8> {
    message(MessageType::MsgPropose, |message| (message.term, message.entries) = (0, vec![long()].into()))
}

fn turns(replica: &mut Replica) {
    let mut place = replica.progress().2;
    while let Some(turn) = replica.take() {
        place += 1;
        let held = replica.wrote(turn, vec![Place(place); 64]);
        replica.flushed(held);
    }
}

/// An entry of a newer version: its head is a list of an origin and an action that nobody knows.
fn unknown(index: u64) -> Entry {
    let head = b"\x92\x94\x02\x01\x01\x01\xa7Archive";
    let bytes = [&[head.len() as u8, 0][..], head].concat();
    entry_of(1, index, Form::Command, bytes)
}

#[test]
fn a_replica_stops_at_a_command_that_it_does_not_know_and_proposes_none() {
    let founders = vec![1, 2];
    let options =
        Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    assert_eq!(replica.step(&append(0, 0, &[(1, 1)], 1)), Some(2));
    turns(&mut replica);
    let propose =
        message(MessageType::MsgPropose, |message| (message.term, message.entries) = (0, vec![unknown(2)].into()));
    assert_eq!(replica.step(&propose), None);
    assert!(replica.refused().is_some_and(|refused| refused.detail().contains("Archive")), "{:?}", replica.refused());
    assert_eq!((replica.progress(), replica.stopped()), ((1, 1, 1), None));
    // Others, which know it, have agreed on it.
    replica.step(&message(MessageType::MsgAppend, |message| {
        (message.index, message.log_term, message.commit) = (1, 1, 2);
        message.entries = vec![unknown(2)].into();
    }));
    turns(&mut replica);
    let (applied, committed, _) = replica.progress();
    assert_eq!((applied, committed), (1, 2), "nothing that comes behind it counts here");
    let stopped = replica.stopped().expect("it stops");
    assert_eq!(stopped.code(), Code::MessageUnknown);
    assert!(stopped.detail().contains("entry 2"), "{stopped:?}");
}

#[test]
fn a_replica_that_has_lost_what_it_acknowledged_stops() {
    let founders = vec![1, 2, 3];
    let options =
        Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    replica.step(&append(0, 0, &[(1, 1), (2, 1)], 1));
    turns(&mut replica);
    replica.step(&message(MessageType::MsgHeartbeat, |message| message.commit = 2));
    turns(&mut replica);
    assert_eq!((replica.progress(), replica.stopped()), ((2, 2, 2), None));
    replica.step(&message(MessageType::MsgHeartbeat, |message| message.commit = 3));
    let stopped = replica.stopped().expect("it stops");
    assert_eq!(stopped.code(), Code::GroupLogDamaged);
    assert!(stopped.detail().contains("entry 3"), "{stopped:?}");
}

#[test]
fn invalid_messages_are_ignored() {
    let founders = vec![1, 2];
    let options =
        Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    replica.step(&append(0, 0, &[(1, 1), (2, 1)], 2));
    turns(&mut replica);
    assert_eq!(replica.progress(), (2, 2, 2));
    let one = |kind| message(kind, |message| message.entries = vec![Entry::default(); 1].into());
    let hostile = [
        message(MessageType::MsgHeartbeat, |message| (message.term, message.commit) = (0, 9)),
        append(2, 1, &[(4, 1)], 0),
        append(2, 1, &[(3, 1), (5, 1)], 5),
        append(2, 1, &[(3, 0)], 3),
        append(2, 1, &[(1, 1)], 0),
        append(2, 1, &[(2, 2)], 0),
        append(1, 1, &[(2, 2)], 2),
        append(0, 0, &[(1, 2), (2, 2)], 2),
        offer(2, 2, &[1, 2]),
        offer(9, 1, &[2, 3]),
        offer(9, 1, &[1, 1, 2]),
        offer(0, 1, &[1, 2]),
        said(&Said::Fetch(Fetch {
            from: 2,
            to: 1,
            index: 1,
            term: 1,
            reached: Reached { bytes: 9, entries: u64::MAX },
        })),
        said(&Said::Chunk(chunk(9, b"no topics"))),
        append_long(),
        propose_long(),
        vec![7, 1],
        vec![],
        append(u64::MAX, 0, &[], 9),
        append(9, 0, &[(10, 1)], 10),
        message(MessageType::MsgPropose, |message| message.term = 0),
        message(MessageType::MsgReadIndex, |message| message.term = 0),
        message(MessageType::MsgReadIndex, |message| (message.term, message.from) = (0, 1)),
        message(MessageType::MsgAppendResponse, |message| message.index = u64::MAX),
        message(MessageType::MsgSnapshot, |_| ()),
        one(MessageType::MsgRequestVoteResponse),
    ];
    let all = |replica: &mut Replica| {
        for (at, bytes) in hostile.iter().enumerate() {
            let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                replica.step(bytes);
                turns(replica);
            }));
            assert!(taken.is_ok(), "message {at}");
        }
    };
    all(&mut replica);
    assert_eq!(replica.progress(), (2, 2, 2));
    replica.step(&append(2, 1, &[(3, 1)], 3));
    turns(&mut replica);
    assert_eq!(replica.progress(), (3, 3, 3), "it goes on");
    // Likewise one that leads.
    while replica.role() != Role::Leader {
        replica.tick();
        turns(&mut replica);
        for kind in [MessageType::MsgRequestPreVoteResponse, MessageType::MsgRequestVoteResponse] {
            let ahead = u64::from(kind == MessageType::MsgRequestPreVoteResponse);
            let term = replica.term() + ahead;
            replica.step(&message(kind, |message| message.term = term));
            turns(&mut replica);
        }
    }
    let (term, last) = (replica.term(), replica.progress().2);
    replica.step(&message(MessageType::MsgAppendResponse, |message| (message.term, message.index) = (term, last)));
    turns(&mut replica);
    all(&mut replica);
    replica.step(&message(MessageType::MsgAppendResponse, |message| (message.term, message.index) = (term, u64::MAX)));
    turns(&mut replica);
    assert_eq!((replica.role(), replica.progress().1), (Role::Leader, last));
}

#[test]
fn a_snapshot_whose_topics_cannot_be_read_is_given_up_and_another_one_is_taken() {
    let founders = vec![1, 2];
    let limits = Limits::default();
    let options = Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    let all = |replica: &mut Replica, messages: &[Vec<u8>]| {
        for message in messages {
            replica.step(message);
            turns(replica);
        }
    };
    all(&mut replica, &[offer(9, 1, &[1, 2]), said(&Said::Chunk(chunk(9, b"no topics")))]);
    assert_eq!((replica.progress(), replica.received()), ((0, 0, 0), 0));
    let topics = crate::snapshot::encode(&Topics::default(), &Without).unwrap();
    all(&mut replica, &[offer(9, 1, &[1, 2]), said(&Said::Chunk(chunk(9, &topics)))]);
    assert_eq!((replica.progress(), replica.received()), ((9, 9, 9), 1));
    all(&mut replica, &[append(9, 1, &[(10, 1)], 10)]);
    assert_eq!(replica.progress(), (10, 10, 10), "the log goes on behind it");
}

#[test]
fn a_command_that_was_applied_before_a_snapshot_which_arrives_is_settled_by_it() {
    let founders = vec![1, 2];
    let limits = Limits::default();
    let options = Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    let create = Action::Create { topic: "t".into(), history: 9, durability: Durability::Quorum };
    let refused = Action::Publish { topic: "u".into(), key: None };
    let [made, failed, unknown] =
        [&create, &refused, &create].map(|action| replica.submit(action.clone(), &[], Durability::Quorum).unwrap());
    // The others have applied two of the commands, and trimmed the entries.
    let mut topics = Topics::default();
    for (serial, action) in [(made, create), (failed, refused)] {
        let origin = Origin { host: 1, boot: 1, serial, settled: 1 };
        topics.apply(serial, Command { origin, action, data: &[] }, &mut Without);
    }
    let topics = crate::snapshot::encode(&topics, &Without).unwrap();
    let mut completed = Vec::new();
    for message in [offer(9, 1, &[1, 2]), said(&Said::Chunk(chunk(9, &topics)))] {
        replica.step(&message);
        while let Some(turn) = replica.take() {
            completed.extend(turn.completed.iter().map(|known| (known.serial, known.outcome.is_ok())));
            let held = replica.wrote(turn, vec![Place(9); 64]);
            replica.flushed(held);
        }
    }
    assert_eq!(replica.received(), 1);
    assert_eq!(completed, [(made, true), (failed, false)], "command {unknown} was never applied");
}

#[test]
fn a_command_that_no_record_can_hold_is_refused() {
    let founders = vec![1];
    let limits = Limits { entry_max_bytes: 100, ..Limits::default() };
    let options = Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    let action = Action::Publish { topic: "t".into(), key: None };
    assert_eq!(replica.submit(action, &[0; 100], Durability::Quorum).unwrap_err().code(), Code::RecordTooLong);
}

#[test]
fn a_host_that_is_no_replica_proposes_nothing() {
    let founders = vec![1];
    let options =
        Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    while replica.role() != Role::Leader {
        replica.tick();
        turns(&mut replica);
    }
    let progress = replica.progress();
    let entries = || vec![entry_of(0, 0, Form::Command, vec![0; 3])];
    replica.step(&message(MessageType::MsgPropose, |message| (message.term, message.entries) = (0, entries().into())));
    turns(&mut replica);
    assert_eq!(replica.progress(), progress);
}

#[test]
fn a_learner_forgets_a_leader_that_it_hears_nothing_of() {
    let founders = vec![2];
    let options =
        Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    let heartbeat = || message(MessageType::MsgHeartbeat, |_| ());
    for _ in 0..2 {
        replica.step(&heartbeat());
        turns(&mut replica);
        assert_eq!((replica.role(), replica.leader()), (Role::Learner, 2));
        for _ in 0..2 * ELECTION_TICKS {
            replica.tick();
            turns(&mut replica);
        }
        assert_eq!(replica.leader(), 0);
    }
}

/// Delivers all messages, until there are none.
fn exchange(replicas: &mut [Replica]) {
    loop {
        let mut sent = Vec::new();
        for replica in &mut *replicas {
            let mut place = replica.progress().2;
            while let Some(mut turn) = replica.take() {
                sent.append(&mut turn.before_disk);
                place += 1;
                let held = replica.wrote(turn, vec![Place(place); 64]);
                sent.extend(replica.flushed(held).messages);
            }
        }
        if sent.is_empty() {
            return;
        }
        for Envelope { to, bytes } in sent {
            replicas[to as usize - 1].step(&bytes);
        }
    }
}

fn pass(replicas: &mut [Replica], ticks: usize) {
    for _ in 0..ticks {
        replicas.iter_mut().for_each(Replica::tick);
        for at in 0..replicas.len() {
            let Some(beat) = replicas[at].beat() else { continue };
            let others = replicas.iter_mut().enumerate().filter(|(other, _)| *other != at);
            if others.fold(false, |differs, (_, other)| !other.hears(at as u64 + 1, beat) || differs) {
                replicas[at].wake();
            }
        }
        exchange(replicas);
    }
}

#[test]
fn the_preferred_site_leads_whenever_the_leader_before_it_was_elected() {
    // A leader counts who answers it in periods that begin with its election, which the seed decides.
    for (seed, before) in (0..50).flat_map(|seed| (0..40).map(move |before| (seed, before))) {
        let founders = vec![1, 2, 3];
        let replica = |id| {
            let options =
                Options { id, boot: 1, founders: founders.clone(), seed, voters_max: 3, limits: Limits::default() };
            Replica::new(options, Recovered::new(founders.clone(), Box::new(Nothing)), Box::new(Without)).unwrap()
        };
        let mut replicas: Vec<Replica> = founders.iter().copied().map(replica).collect();
        while replicas[0].leader() == 0 {
            pass(&mut replicas, 1);
        }
        pass(&mut replicas, before);
        let leader = replicas[0].leader();
        let next = leader % 3 + 1;
        for id in [1, 2, 3] {
            let site = if id == next { "campus" } else { "lab" };
            let member = Member { id, site: site.into(), ..Member::default() };
            replicas[id as usize - 1].submit(Action::Member(member), &[], Durability::Quorum).unwrap();
            exchange(&mut replicas);
        }
        let prefer = Action::Prefer { site: "campus".into() };
        replicas[leader as usize - 1].submit(prefer, &[], Durability::Quorum).unwrap();
        exchange(&mut replicas);
        pass(&mut replicas, 6 * ELECTION_TICKS);
        assert_eq!(replicas[0].leader(), next, "seed {seed}, {before}");
    }
}

/// A replica that follows, with two committed entries of term 1.
fn follower() -> Replica {
    let founders = vec![1, 2, 3];
    let options =
        Options { id: 1, boot: 7, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    replica.step(&append(0, 0, &[(1, 1), (2, 1)], 2));
    turns(&mut replica);
    assert_eq!((replica.progress(), replica.stopped()), ((2, 2, 2), None));
    replica
}

#[test]
fn a_replica_stops_if_a_later_leader_has_another_entry_in_the_place_of_a_committed_one() {
    let later = |index, log_term, entries: &[(u64, u64)]| {
        let bytes = append(index, log_term, entries, 1);
        let Some(Said::Raft(mut message)) = Said::parse(&bytes) else { unreachable!("it is one of Raft") };
        message.term = 5;
        said(&Said::Raft(message))
    };
    for conflict in [later(1, 1, &[(2, 5)]), later(2, 5, &[(3, 5)]), later(0, 0, &[(1, 2), (2, 5)]), later(1, 2, &[])] {
        let mut replica = follower();
        replica.step(&conflict);
        turns(&mut replica);
        let stopped = replica.stopped().expect("it stops");
        assert_eq!(stopped.code(), Code::GroupDiverged, "{stopped:?}");
        assert_eq!(replica.progress(), (2, 2, 2), "its entries stay");
    }
    // The same entries, and others behind those that are committed.
    let mut replica = follower();
    replica.step(&append(2, 1, &[(3, 1)], 2));
    turns(&mut replica);
    replica.step(&later(1, 1, &[(2, 1), (3, 5)]));
    turns(&mut replica);
    assert_eq!((replica.progress(), replica.stopped()), ((2, 2, 3), None));
}

/// The replica after a start that found these items and this state.
fn started(writes: &[Write], state: State) -> Replica {
    let founders = vec![1, 2, 3];
    let options =
        Options { id: 1, boot: 8, founders: founders.clone(), seed: 7, voters_max: 3, limits: Limits::default() };
    let mut recovered = Recovered::new(founders, Box::new(Nothing));
    for (at, write) in (1..).zip(writes) {
        recovered.wrote(write.clone(), Place(at), 0).unwrap();
    }
    recovered.state(state);
    Replica::new(options, recovered, Box::new(Without)).unwrap()
}

#[test]
fn a_replica_that_was_restarted_stops_if_a_second_host_leads_in_the_term() {
    let mut replica = started(&[], State::default());
    replica.step(&append(0, 0, &[(1, 1), (2, 1)], 1));
    let turn = replica.take().expect("it has entries");
    // The power fails when only a part of the entries is on disk.
    let entries = turn.writes.iter().filter(|write| matches!(write, Write::Entry(_)));
    let (writes, state) = (entries.cloned().collect::<Vec<_>>(), turn.state.expect("it names the leader"));
    assert_eq!((writes.len(), state.leader), (2, 2));
    let writes = &writes[..1];
    let of = |host: u64, bytes: &[u8]| {
        let Some(Said::Raft(mut message)) = Said::parse(bytes) else { unreachable!("it is one of Raft") };
        message.from = host;
        said(&Said::Raft(message))
    };
    let heartbeat = message(MessageType::MsgHeartbeat, |_| ());
    for bytes in [&heartbeat, &append(1, 1, &[(2, 1)], 1), &offer(9, 1, &[1, 2, 3])] {
        let mut replica = started(writes, state);
        replica.step(&of(3, bytes));
        let stopped = replica.stopped().expect("it stops");
        assert_eq!(stopped.code(), Code::GroupDiverged, "{stopped:?}");
        assert!(stopped.detail().contains("both lead in term 1"), "{stopped:?}");
        let mut replica = started(writes, state);
        replica.step(&of(2, bytes));
        turns(&mut replica);
        assert_eq!(
            (replica.stopped(), replica.leader()),
            (None, if *bytes == offer(9, 1, &[1, 2, 3]) { 0 } else { 2 })
        );
    }
}

/// A message as host 3 sends it, which leads in term 5 and names these leaders of earlier terms.
fn of_a_later_leader(bytes: &[u8], named: &[(u64, u64)]) -> Vec<u8> {
    let Some(Said::Raft(mut message)) = Said::parse(bytes) else { unreachable!("it is one of Raft") };
    (message.from, message.term) = (3, 5);
    let mut leaders = Leaders::default();
    named.iter().for_each(|(term, leader)| leaders.note(*term, *leader, *term));
    message.context = leaders.bytes().into();
    said(&Said::Raft(message))
}

#[test]
fn a_replica_stops_if_a_later_leader_has_entries_that_another_leader_of_their_term_made() {
    let turn_of = |message: &[u8]| {
        let mut replica = started(&[], State::default());
        replica.step(message);
        let turn = replica.take().expect("it has entries");
        (turn.writes.clone(), turn.state.expect("it has a term"))
    };
    // Host 2 led in term 1, as its own message shows, or one of the leader of term 3.
    let own = turn_of(&append(0, 0, &[(1, 1), (2, 1)], 0));
    let later = |bytes: &[u8], named: &[(u64, u64)]| of_a_later_leader(bytes, named);
    let told = turn_of(&later(&append(0, 0, &[(1, 1), (2, 1)], 0), &[(1, 2)]));
    for (writes, state) in [own, told] {
        let stops = |bytes: &[u8], leader: u64| {
            let mut replica = started(&writes, State { term: 5, leader: 0, ..state });
            replica.step(&later(bytes, &[(1, leader)]));
            turns(&mut replica);
            replica.stopped().map(|stopped| (stopped.code(), stopped.detail().contains("both lead in term 1")))
        };
        for bytes in [append(2, 1, &[(3, 5)], 0), append(0, 0, &[(1, 1), (2, 1)], 2), offer(2, 1, &[1, 2, 3])] {
            assert_eq!(stops(&bytes, 3), Some((Code::GroupDiverged, true)));
            assert_eq!(stops(&bytes, 2), None);
            // An earlier version names no leaders.
            assert_eq!(stops(&bytes, 0), None);
        }
    }
}

#[test]
fn a_replica_stops_if_a_snapshot_has_another_entry_in_the_place_of_a_committed_one() {
    // Entry 2 is of term 1 here, and entries from 2 on are of term 2 there.
    for (named, stops) in [([(1, 2), (2, 3)], true), ([(1, 2), (3, 3)], false)] {
        let mut replica = follower();
        replica.step(&of_a_later_leader(&offer(9, 3, &[1, 2, 3]), &named));
        assert_eq!(replica.stopped().map(Error::code), stops.then_some(Code::GroupDiverged));
    }
}

#[test]
fn a_leader_names_the_leaders_of_earlier_terms_also_behind_a_snapshot() {
    let topics = crate::snapshot::encode(&Topics::default(), &Without).unwrap();
    let mut replica = started(&[], State::default());
    let mut written = Vec::new();
    let keep = |replica: &mut Replica, written: &mut Vec<Write>| {
        let mut sent = Vec::new();
        while let Some(mut turn) = replica.take() {
            written.extend(turn.writes.iter().cloned());
            sent.append(&mut turn.before_disk);
            let held = replica.wrote(turn, vec![Place(1); 64]);
            sent.extend(replica.flushed(held).messages);
        }
        sent
    };
    for bytes in [
        of_a_later_leader(&offer(9, 3, &[1, 2, 3]), &[(1, 2), (3, 2)]),
        said(&Said::Chunk(Chunk { from: 3, term: 3, ..chunk(9, &topics) })),
        of_a_later_leader(&append(9, 3, &[(10, 4)], 9), &[(3, 2), (4, 1)]),
    ] {
        replica.step(&bytes);
        keep(&mut replica, &mut written);
    }
    assert_eq!((replica.progress().2, replica.stopped()), (10, None));
    // A start finds them in what was written.
    let mut replica = started(&written, State { term: 5, commit: 9, ..State::default() });
    let mut sent = Vec::new();
    while replica.role() != Role::Leader {
        replica.tick();
        keep(&mut replica, &mut written);
        for (kind, ahead) in [(MessageType::MsgRequestPreVoteResponse, 1), (MessageType::MsgRequestVoteResponse, 0)] {
            let term = replica.term() + ahead;
            replica.step(&message(kind, |message| message.term = term));
            sent.extend(keep(&mut replica, &mut written));
        }
    }
    let named = |envelope: &Envelope| match Said::parse(&envelope.bytes) {
        Some(Said::Raft(message)) if message.get_msg_type() == MessageType::MsgAppend => Some(Replica::named(&message)),
        _ => None,
    };
    let named: Vec<_> = sent.iter().filter_map(named).collect();
    assert!(!named.is_empty() && named.iter().all(|named| named.iter().eq([(4, 1)])), "{named:?}");
    let leaders = replica.node.store().leaders();
    assert_eq!([1, 3, 4].map(|term| leaders.of(term)), [2, 2, 1]);
}

#[test]
fn a_replica_answers_a_leader_only_once_it_will_remember_it() {
    let mut replica = started(&[], State { term: 1, ..State::default() });
    replica.step(&message(MessageType::MsgHeartbeat, |_| ()));
    let turn = replica.take().expect("it has an answer");
    assert_eq!(turn.state.map(|state| (state.term, state.leader)), Some((1, 2)));
    assert!(turn.needs_flush() && turn.before_disk.is_empty() && !turn.after_disk.is_empty());
    let held = replica.wrote(turn, Vec::new());
    replica.flushed(held);
    // From then on, nothing waits.
    replica.step(&message(MessageType::MsgHeartbeat, |_| ()));
    assert!(!replica.take().expect("it has an answer").needs_flush());
}

#[test]
fn an_answer_that_was_meant_for_an_earlier_start_answers_no_read() {
    let mut replica = follower();
    let batch = replica.read();
    turns(&mut replica);
    let answer = |boot: u64| {
        message(MessageType::MsgReadIndexResp, |message| {
            let context = [batch.to_le_bytes(), 1u64.to_le_bytes(), boot.to_le_bytes()].concat();
            message.index = 2;
            message.entries = vec![entry_of(0, 0, Form::Command, context)].into();
        })
    };
    let answered = |replica: &mut Replica| {
        let mut answered: Vec<u64> = Vec::new();
        while let Some(turn) = replica.take() {
            answered.extend(&turn.answered);
            let held = replica.wrote(turn, Vec::new());
            replica.flushed(held);
        }
        answered
    };
    replica.step(&answer(6));
    assert_eq!(answered(&mut replica), [0; 0]);
    replica.step(&answer(7));
    assert_eq!(answered(&mut replica), [batch]);
}

#[test]
fn while_a_turn_is_not_written_a_replica_changes_nothing_and_says_that_it_is_catching_up() {
    let founders = vec![1, 2];
    let limits = Limits::default();
    let options = Options { id: 1, boot: 1, founders: founders.clone(), seed: 7, voters_max: 3, limits };
    let mut replica = Replica::new(options, Recovered::new(founders, Box::new(Nothing)), Box::new(Without)).unwrap();
    let topics = crate::snapshot::encode(&Topics::default(), &Without).unwrap();
    replica.step(&offer(9, 1, &[1, 2]));
    turns(&mut replica);
    replica.step(&said(&Said::Chunk(chunk(9, &topics))));
    let mut refused = None;
    while let Some(turn) = replica.take() {
        if turn.writes.iter().any(|write| matches!(write, Write::End(_))) {
            refused = Some(turn);
            break;
        }
        let held = replica.wrote(turn, vec![Place(9); 64]);
        replica.flushed(held);
    }
    // The disk does not take the end of the snapshot.
    assert!(replica.is_catching_up());
    assert_eq!(replica.absent("t", 1).code(), Code::GroupUnavailable);
    let create = Action::Create { topic: "t".into(), history: 9, durability: Durability::Quorum };
    for _ in 0..3 * ELECTION_TICKS {
        replica.tick();
        assert_eq!(replica.step(&append(9, 1, &[(10, 1)], 10)), None);
        let refused = replica.submit(create.clone(), &[], Durability::Quorum).unwrap_err();
        assert_eq!(refused.code(), Code::GroupBusy);
        replica.unreachable(2);
        replica.transfer(2);
        assert!(replica.take().is_none());
    }
    let held = replica.wrote(refused.expect("it comes"), vec![Place(9); 64]);
    replica.flushed(held);
    assert!(!replica.is_catching_up());
    assert_eq!(replica.absent("t", 1).code(), Code::BelowHistory);
    turns(&mut replica);
    replica.step(&append(9, 1, &[(10, 1)], 10));
    turns(&mut replica);
    assert_eq!(replica.progress(), (10, 10, 10));
}

#[test]
fn how_far_entries_are_committed_is_written_also_if_no_more_come() {
    let mut replica = follower();
    replica.step(&append(2, 1, &[(3, 1)], 2));
    turns(&mut replica);
    replica.step(&message(MessageType::MsgHeartbeat, |message| message.commit = 3));
    let states = |replica: &mut Replica| {
        let mut states = Vec::new();
        while let Some(turn) = replica.take() {
            states.extend(turn.state.map(|state| (state.commit, turn.needs_flush())));
            let held = replica.wrote(turn, Vec::new());
            replica.flushed(held);
        }
        states
    };
    assert_eq!(states(&mut replica), [(0, false); 0]);
    replica.tick();
    assert_eq!(states(&mut replica), [(3, false)]);
    replica.tick();
    assert_eq!(states(&mut replica), [(0, false); 0]);
}
