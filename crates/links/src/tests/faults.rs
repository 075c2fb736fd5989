//! Sides that are not what they were, records that are gone, refusals: the stream stops with a code, and goes on when told.

use super::*;
use millrace_wire::protocol::{Delivered, Refused};

/// What stopped the stream, which must be noted as well as said.
fn stopped(world: &mut World) -> Code {
    let said = world.carry().unwrap_err();
    let state = world.a.links().state().unwrap();
    let courses = state.peers.iter().map(|peer| &peer.course).chain(state.relays.iter().map(|relay| &relay.course));
    let noted: Vec<Code> = courses.filter_map(|course| Some(course.stopped.as_ref()?.error().code())).collect();
    assert_eq!(noted, [said.code()], "{said}");
    world.carry().unwrap(); // It stands still, and moves nothing.
    said.code()
}

#[test]
fn a_wiped_peer_stops_the_outbox_until_it_is_reset() {
    for skip in [false, true] {
        let mut world = world();
        send_numbers(&world.a, THERE, 1, 20);
        world.carry().unwrap();
        world.b = Side::new();
        world.b.create_log("in", 100);
        send_numbers(&world.a, THERE, 21, 25);
        assert_eq!(stopped(&mut world), Code::LinkPeerChanged);
        assert_eq!(world.b.namespace().latest("in").unwrap(), 0);
        assert_eq!(world.a.links().reset_outbox("b_1_farm", skip).unwrap(), if skip { 5 } else { 0 });
        send_numbers(&world.a, THERE, 26, 30);
        world.carry().unwrap();
        assert_eq!(world.b.records("in"), if skip { numbers(26, 30) } else { numbers(21, 30) });
        let view = &world.a.links().view().unwrap()[0];
        assert_eq!((view.sent, view.dropped), if skip { (25, 5) } else { (30, 0) });
        world.carry().unwrap();
    }
}

#[test]
fn a_peer_that_was_restored_is_seen() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 10);
    world.carry().unwrap();
    let backup = world.b.backup();
    send_numbers(&world.a, THERE, 11, 20);
    world.carry().unwrap();
    world.b.restore(&backup);
    send_numbers(&world.a, THERE, 21, 22);
    assert_eq!(stopped(&mut world), Code::LinkPeerBehind);
    world.a.links().reset_outbox("mr://b:1/farm", false).unwrap();
    world.carry().unwrap();
    let expected = [numbers(1, 10), numbers(21, 22)].concat();
    assert_eq!(world.b.records("in"), expected, "what was acknowledged and lost there is nowhere any more");
}

#[test]
fn a_reset_outbox_sends_nothing_twice_to_a_peer_that_says_what_it_has() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 5);
    world.carry().unwrap();
    let older = world.b.backup();
    send_numbers(&world.a, THERE, 6, 10);
    world.carry().unwrap();
    send_numbers(&world.a, THERE, 11, 15);
    // They arrive, and the answer is lost.
    assert!(world.connect().unwrap() && world.send(1000).unwrap() && world.arrive(false).unwrap());
    let newer = world.b.backup();
    assert_eq!(world.b.records("in"), numbers(1, 15));
    world.b.restore(&older);
    assert_eq!(stopped(&mut world), Code::LinkPeerBehind);
    // Somebody finds the newer copy.
    world.b.restore(&newer);
    world.a.links().reset_outbox("b_1_farm", false).unwrap();
    send_numbers(&world.a, THERE, 16, 17);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 17));
}

#[test]
fn a_sender_that_was_restored_is_seen() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 10);
    world.carry().unwrap();
    let backup = world.a.backup();
    send_numbers(&world.a, THERE, 11, 20);
    world.carry().unwrap();
    world.a.restore(&backup);
    send_numbers(&world.a, THERE, 101, 103);
    assert_eq!(stopped(&mut world), Code::LinkPeerAhead);
    world.a.links().reset_outbox("b_1_farm", false).unwrap();
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [numbers(1, 20), numbers(101, 103)].concat());
}

#[test]
fn a_sender_that_was_restored_and_went_on_is_seen() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 10);
    world.carry().unwrap();
    let backup = world.a.backup();
    send_numbers(&world.a, THERE, 11, 20);
    world.carry().unwrap();
    world.a.restore(&backup);
    // As many as were lost, and more: by their numbers alone they would be taken for what has come.
    send_numbers(&world.a, THERE, 101, 115);
    assert_eq!(stopped(&mut world), Code::LinkDiverged);
    world.a.links().reset_outbox("b_1_farm", false).unwrap();
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [numbers(1, 20), numbers(101, 115)].concat());
}

#[test]
fn a_relay_sends_again_to_a_peer_that_was_restored() {
    let mut world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 10);
    world.carry().unwrap();
    let backup = world.b.backup();
    send_numbers(&world.a, "all", 11, 20);
    world.carry().unwrap();
    world.b.restore(&backup);
    assert_eq!(stopped(&mut world), Code::LinkPeerBehind);
    world.a.links().resume_relay("all", false, None).unwrap();
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 20));
    // A peer that lost even the beginning gets all of it again.
    let empty = Side::new();
    empty.create_log("in", 100);
    world.b = empty;
    assert_eq!(stopped(&mut world), Code::LinkPeerChanged);
    world.a.links().resume_relay("all", false, Some(1)).unwrap();
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 20));
}

#[test]
fn a_relay_whose_source_was_restored_and_went_on_has_diverged() {
    let mut world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 10);
    world.carry().unwrap();
    let backup = world.a.backup();
    send_numbers(&world.a, "all", 11, 12);
    world.carry().unwrap();
    world.a.restore(&backup);
    send_numbers(&world.a, "all", 111, 112);
    assert_eq!(stopped(&mut world), Code::LinkDiverged);
    let resumed = world.a.links().resume_relay("all", false, Some(11)).unwrap();
    assert_eq!(resumed, Resumed::default(), "all that is here is sent");
    send_numbers(&world.a, "all", 113, 113);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [numbers(1, 12), numbers(111, 113)].concat(), "both histories are there");
}

#[test]
fn records_lost_to_history_stop_a_relay_or_are_counted() {
    for on_gap in [OnGap::Stop, OnGap::Skip] {
        let (a, b) = (Side::new(), Side::new());
        a.create_log("all", 10);
        b.create_log("in", 100);
        let options = RelayOptions { on_gap, ..RelayOptions::default() };
        let relay = a.links().add_relay("all", THERE, &options).unwrap();
        let mut world = World::new(a, b, LinkKey::Relay(relay.id));
        send_numbers(&world.a, "all", 1, 5);
        world.carry().unwrap();
        send_numbers(&world.a, "all", 6, 30);
        if on_gap == OnGap::Stop {
            assert_eq!(stopped(&mut world), Code::LinkGap);
            let resumed = world.a.links().resume_relay("all", false, None).unwrap();
            assert_eq!(resumed, Resumed { passed_over: Some((6, 20)), lost: true });
        }
        world.carry().unwrap();
        assert_eq!(world.b.records("in"), [numbers(1, 5), numbers(21, 30)].concat());
        assert_eq!(world.a.links().relay("all").unwrap().lost, 15);
        world.carry().unwrap();
        assert_eq!(world.a.links().relay("all").unwrap().lost, 15);
    }
}

#[test]
fn a_permanently_refused_message_becomes_a_dead_letter_and_the_rest_arrives() {
    let (a, b) = (Side::with_segments(2 << 20), Side::new());
    b.create_log("in", 100_000);
    let mut world = World::new(a, b, outbox());
    let mut random = Random::new("dead letters");
    // A record is at most a quarter of a segment, which are smaller there.
    let too_long = vec![b'x'; (256 << 10) + 1];
    for n in 1..=20u64 {
        let number = n.to_string().into_bytes();
        world.a.append(THERE, if n % 4 == 0 { &too_long } else { &number });
    }
    // The sender dies from time to time, also between burying a message and sending on.
    let mut rounds = 0;
    while world.b.namespace().latest("in").unwrap() < 15 {
        rounds += 1;
        assert!(rounds < 10_000, "it does not get on");
        match random.below(8) {
            0 => {
                world.cut();
                world.a.crash((rounds % 2 == 0).then_some(&mut random));
            }
            1 => drop(world.connect().unwrap()),
            2..=3 => drop(world.send(6).unwrap()),
            4..=5 => drop(world.arrive(false).unwrap()),
            _ => drop(world.answer().unwrap()),
        }
    }
    world.carry().unwrap();
    let sent: Vec<Vec<u8>> =
        numbers(1, 20).into_iter().enumerate().filter(|(n, _)| (n + 1) % 4 != 0).map(|(_, n)| n).collect();
    assert_eq!(world.b.records("in"), sent);
    let dead: Vec<u64> = world
        .a
        .records("dead/outbox")
        .iter()
        .map(|letter| serde_json::from_slice::<serde_json::Value>(letter).unwrap()["number"].as_u64().unwrap())
        .collect();
    assert_eq!(dead, [4, 8, 12, 16, 20]);
    let view = &world.a.links().view().unwrap()[0];
    assert_eq!((view.acked, view.sent, view.dead, view.lag_records), (20, 15, 5, 0), "the dead were not sent");
}

#[test]
fn an_outbox_waits_for_a_log_that_its_peer_does_not_have_yet() {
    let mut world = world();
    let mut random = Random::new("a log to come");
    send_numbers(&world.a, THERE, 1, 3);
    send_numbers(&world.a, "mr://b:1/farm/late", 1, 1500);
    send_numbers(&world.a, THERE, 4, 5);
    for round in 0..50 {
        assert_eq!(world.carry_on(), Some(Code::LogNotFound));
        world.cut();
        match random.below(3) {
            0 => world.a.crash((round % 2 == 0).then_some(&mut random)),
            1 => world.b.crash((round % 2 == 0).then_some(&mut random)),
            _ => {}
        }
    }
    assert_eq!(world.b.records("in"), numbers(1, 5), "what is for another log does not wait");
    let view = &world.a.links().view().unwrap()[0];
    assert_eq!((view.lag_records, view.dead), (1500, 0));
    world.b.create_log("late", 10_000);
    world.carry().unwrap();
    assert_eq!(world.b.records("late"), numbers(1, 1500));
    assert_eq!(world.b.records("in"), numbers(1, 5));
    assert!(world.a.namespace().log("dead/outbox").is_err());
}

/// All refusals that an older peer calls final: only those that can never be anything else are.
#[test]
fn only_messages_that_can_never_succeed_become_dead_letters() {
    let of = |code: Code| {
        let mut world = world();
        send_numbers(&world.a, THERE, 1, 1);
        assert!(world.connect().unwrap() && world.send(1000).unwrap());
        let refused = millrace_wire::protocol::Refused {
            code: code.id().into(),
            detail: "as it is".into(),
            retry_after_ms: None,
        };
        let verdict = world.answer_with(&millrace_wire::protocol::Delivered { number: 0, refused: Some(refused) });
        (verdict, world.a.links().view().unwrap()[0].dead)
    };
    for code in [Code::RecordTooLong, Code::BatchTooLarge, Code::LogNameInvalid, Code::NameInvalid, Code::LogInternal] {
        assert_eq!(of(code), (Ok(Verdict::Go), 1), "{code:?}");
    }
    for code in [
        Code::LogNotFound,
        Code::FunctionNotFound,
        Code::Busy,
        Code::RoomExhausted,
        Code::DiskFull,
        Code::ReadOnly,
        Code::Io,
        Code::JournalFull,
        Code::ClockAhead,
        Code::LinksFull,
    ] {
        let (verdict, dead) = of(code);
        assert!(matches!(verdict, Ok(Verdict::Retry(after, _)) if !after.is_zero()), "{code:?}: {verdict:?}");
        assert_eq!(dead, 0, "{code:?}");
    }
}

#[test]
fn what_waits_for_a_log_is_dropped_when_told_and_the_stream_goes_on() {
    let mut world = world();
    send_numbers(&world.a, "mr://b:1/farm/never", 1, 20);
    assert_eq!(world.waits(), Some(Code::LogNotFound));
    assert_eq!(world.a.links().reset_outbox("b_1_farm", true).unwrap(), 20);
    assert!(!world.send(1000).unwrap(), "the sender that waits has nothing left to send");
    send_numbers(&world.a, THERE, 1, 2);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 2));
    let view = &world.a.links().view().unwrap()[0];
    assert_eq!((view.sent, view.dropped, view.dead), (2, 20, 0));
}

#[test]
fn a_relay_waits_for_its_target_and_stops_at_a_record_that_is_refused_until_told() {
    let (a, b) = (Side::with_segments(2 << 20), Side::new());
    a.create_log("all", 100_000);
    b.create_log("in", 100);
    let relay = a.links().add_relay("all", THERE, &RelayOptions::default()).unwrap();
    let mut world = World::new(a, b, LinkKey::Relay(relay.id));
    send_numbers(&world.a, "all", 1, 3);
    world.b.namespace().remove_log(&"in".parse().unwrap()).unwrap();
    let error = world.carry().unwrap_err();
    assert_eq!(error.code(), Code::LogNotFound, "the target has to be there before anything is sent");
    world.b.create_log("in", 100);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 3));
    send_numbers(&world.a, "all", 4, 5);
    assert!(world.connect().unwrap());
    world.b.namespace().remove_log(&"in".parse().unwrap()).unwrap();
    assert!(world.send(100).unwrap() && world.arrive(false).unwrap());
    let verdict = world.answer().unwrap();
    assert!(matches!(verdict, Some(Verdict::Retry(..))), "a log that was removed may come again: {verdict:?}");
    assert!(world.a.links().relay("all").unwrap().course.stopped.is_none());
    world.b.create_log("in", 100);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(4, 5));
    world.a.append("all", &vec![b'x'; (256 << 10) + 1]);
    send_numbers(&world.a, "all", 7, 7);
    assert_eq!(stopped(&mut world), Code::RecordTooLong);
    let resumed = world.a.links().resume_relay("all", true, None).unwrap();
    assert_eq!(resumed, Resumed { passed_over: Some((6, 6)), lost: false });
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [numbers(4, 5), numbers(7, 7)].concat(), "record 6 was passed over");
}

#[test]
fn a_source_that_was_made_anew_stops_its_relay() {
    let mut world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 3);
    world.carry().unwrap();
    world.a.namespace().remove_log(&"all".parse().unwrap()).unwrap();
    world.a.create_log("all", 100);
    send_numbers(&world.a, "all", 11, 15);
    assert_eq!(stopped(&mut world), Code::LinkSourceGone);
    world.a.links().resume_relay("all", false, None).unwrap();
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [numbers(1, 3), numbers(11, 15)].concat());
}

#[test]
fn a_busy_peer_is_tried_again_and_misses_nothing() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 3);
    assert!(world.connect().unwrap());
    // As a peer answers whose function lags behind.
    world.send(1000).unwrap();
    let busy = millrace_wire::protocol::Refused {
        code: Code::Busy.id().into(),
        detail: "full".into(),
        retry_after_ms: Some(50),
    };
    let answer = millrace_wire::protocol::Delivered { number: 0, refused: Some(busy) };
    let verdict = world.answer_with(&answer).unwrap();
    assert!(matches!(verdict, Verdict::Retry(after, _) if after.as_millis() == 50));
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 3));
}

#[test]
fn deliveries_that_do_not_follow_are_refused_and_lies_change_nothing() {
    use millrace_wire::protocol::{Deliver, Item, Link};
    let (_, b) = sides();
    let inbox = b.links().inbox();
    for stream in ["", "a/b/c/d", "../x", ".x", "a//b", &"x".repeat(200)] {
        let link = Link { stream, namespace: 7, ..Link::default() };
        assert_eq!(inbox.link(&link).unwrap_err().code(), Code::NameInvalid, "{stream:?}");
    }
    for namespace in [0, u64::MAX] {
        let link = Link { stream: "x", namespace, ..Link::default() };
        assert_eq!(inbox.link(&link).unwrap_err().code(), Code::NameInvalid);
    }
    let (inbound, linked) = inbox.link(&Link { stream: "x", namespace: 7, ..Link::default() }).unwrap();
    assert_eq!(linked.value.number, 0);
    let item = |log, hlc| Item { log, data: b"x", id: EventId::from_bits(9), hlc, ..Item::default() };
    let refused = |first, gap, item: Item<'_>| {
        let deliver = Deliver { link: 1, first, gap, items: vec![item] };
        let accepted = inbox.accept(&inbound, 1, &deliver).unwrap().value;
        (accepted.number, accepted.refused.map(|refused| Code::from_id(&refused.code).unwrap()))
    };
    let now = b.namespace().journal().clock();
    let hour_ahead = Hlc::from_wall_us(now.wall_us() + 3_600_000_000);
    assert_eq!(refused(2, false, item("in", now)), (0, Some(Code::LinkOutOfOrder)));
    assert_eq!(refused(1, false, item("_links", now)), (0, Some(Code::LogInternal)));
    assert_eq!(refused(1, false, item("../in", now)), (0, Some(Code::LogNameInvalid)));
    assert_eq!(b.namespace().latest("in").unwrap(), 0);
    assert_eq!(refused(1, false, item("in", now)), (1, None));
    assert_eq!(refused(1, false, item("in", now)), (1, None), "what came before is passed over");
    let other = Item { id: EventId::from_bits(10), ..item("in", now) };
    assert_eq!(refused(1, false, other), (1, Some(Code::LinkDiverged)));
    assert_eq!(refused(2, false, item("in", hour_ahead)), (2, None), "its clock is wrong, and not its record");
    assert_eq!(refused(3, false, item("in", Hlc::from_bits(u64::MAX))), (3, None));
    assert!(b.namespace().journal().check_clock().is_ok());
    assert_eq!(refused(9, true, item("in", now)), (9, None));
    for number in [0, EventId::SEQUENCE_MAX + 1, u64::MAX] {
        assert_eq!(refused(number, true, item("in", now)), (9, Some(Code::SeqnoInvalid)));
    }
    assert_eq!(b.namespace().latest("in").unwrap(), 4);
}

/// A host first tries without waiting for the journal's lock, and then waits for it on another thread. A refusal would make the sender pause.
#[test]
fn a_delivery_that_finds_the_journal_locked_is_tried_again_and_not_refused() {
    use millrace_journal::lock_within;
    use millrace_wire::protocol::{Deliver, Item, Link};
    let b = Side::new();
    b.create_log("in", 100);
    let inbox = b.links().inbox();
    let (inbound, _) = inbox.link(&Link { stream: "x", namespace: 7, ..Link::default() }).unwrap();
    let item = Item { log: "in", data: b"x", id: EventId::from_bits(9), ..Item::default() };
    let deliver = Deliver { link: 1, first: 1, gap: false, items: vec![item] };
    let (taken, is_taken) = std::sync::mpsc::channel();
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let journal = b.namespace().journal().clone();
        scope.spawn(move || {
            let holds = |_: &mut millrace_journal::Transaction<'_>| {
                taken.send(()).unwrap();
                let _ = is_released.recv();
                Ok(())
            };
            journal.commit(holds).unwrap();
        });
        is_taken.recv().unwrap();
        let tried = lock_within(Duration::ZERO, || inbox.accept(&inbound, 1, &deliver));
        drop(release);
        assert_eq!(tried.unwrap_err().code(), Code::JournalBlocked);
    });
    let accepted = inbox.accept(&inbound, 1, &deliver).unwrap().value;
    assert_eq!((accepted.number, accepted.refused), (1, None));
}

/// The disk may have room for a record, none for the run that it triggers, and some again a moment later.
#[test]
fn a_record_is_delivered_with_all_that_it_triggers_or_not_at_all() {
    use millrace_journal::medium::sim::{Call, Fault};
    use millrace_wire::protocol::{Deliver, Item, Link};
    const CHUNK: usize = 1 << 20; // Room is had by so much at once.
    const UPKEEP: usize = 64 << 10; // So much of it is left to what frees space.
    let data = vec![b'd'; CHUNK];
    let mut refusals = 0;
    // What the second record leaves of the room that is there.
    for left in (0..160).step_by(16) {
        let b = Side::with_segments(16 * CHUNK as u64);
        b.create_log("in", 100);
        b.create_log("pad", 1);
        // Until room is had once more: then it reaches to the end of the next chunk.
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let asks = asked.clone();
        b.disk.set_faults(Some(Box::new(move |call| {
            asks.fetch_or(call == Call::Allocate, std::sync::atomic::Ordering::Relaxed);
            Fault::None
        })));
        while !asked.load(std::sync::atomic::Ordering::Relaxed) {
            b.append("pad", &data[..50_000]);
        }
        let mut spec =
            millrace_namespace::FunctionSpec::new("f".parse().unwrap(), millrace_namespace::Runtime::Oneshot);
        (spec.on, spec.command) = (vec!["in".parse().unwrap()], vec!["true".into()]);
        let definition = millrace_namespace::Definition {
            spec,
            code: "ab".repeat(32),
            file: None,
            application: None,
            confined: false,
            removing: false,
        };
        let define = |tx: &mut millrace_journal::Transaction<'_>| {
            tx.define_function(&definition.spec.name, &definition.to_attributes()).map(drop)
        };
        b.namespace().journal().commit(define).unwrap();
        let inbox = b.links().inbox();
        let (inbound, _) = inbox.link(&Link { stream: "x", namespace: 7, ..Link::default() }).unwrap();
        // A record of 1024 bytes with its TRIGGER, whose header is short, and all that the second may take beside its header.
        let tail = b.namespace().journal().tail().get() as usize;
        let last = tail.next_multiple_of(CHUNK) + CHUNK - UPKEEP - tail - (64 + 1024 + 32) - 64 - left;
        let item = |n: u128, data| Item { log: "in", data, id: EventId::from_bits(n), ..Item::default() };
        let items = [item(1, &data[..1024]), item(2, &data[..last])];
        let mut is_full = true;
        b.disk.set_faults(Some(Box::new(move |call| match call {
            Call::Allocate if std::mem::take(&mut is_full) => Fault::Error(28), // ENOSPC
            _ => Fault::None,
        })));
        let mut number = 0;
        while number < 2 {
            let deliver = Deliver { link: 1, first: number + 1, gap: false, items: items[number as usize..].to_vec() };
            let accepted = inbox.accept(&inbound, 1, &deliver).unwrap().value;
            refusals += usize::from(accepted.refused.is_some());
            let triggered = b.namespace().journal().catalog().unwrap().function("f").unwrap().triggered();
            let latest = b.namespace().latest("in").unwrap();
            assert_eq!((latest, triggered), (accepted.number, accepted.number), "{left} bytes left");
            number = accepted.number;
        }
    }
    assert!(refusals > 0, "the disk was never full");
}

#[test]
fn a_stream_that_begins_anew_takes_the_place_of_the_one_before() {
    use millrace_wire::protocol::Link;
    let (_, b) = sides();
    let inbox = b.links().inbox();
    let streams = || {
        let catalog = b.namespace().journal().catalog().unwrap();
        let mut names: Vec<String> = catalog.logs().map(|log| log.name().to_string()).collect();
        names.retain(|name| name.starts_with("_inbox/"));
        names.sort();
        names
    };
    for generation in [1, 2, 3] {
        for stream in [format!("outbox/a/{generation}"), format!("outbox/b/{generation}")] {
            inbox.link(&Link { stream: &stream, namespace: 7, ..Link::default() }).unwrap();
        }
    }
    assert_eq!(streams(), ["_inbox/000000000007/outbox/a/3", "_inbox/000000000007/outbox/b/3"]);
}

#[test]
fn the_record_that_was_refused_is_the_one_that_is_passed_over() {
    let (a, b) = (Side::with_segments(2 << 20), Side::new());
    a.create_log("all", 1000);
    b.create_log("in", 1000);
    let relay = a.links().add_relay("all", THERE, &RelayOptions::default()).unwrap();
    let mut world = World::new(a, b, LinkKey::Relay(relay.id));
    // Many deliveries, of which most are not noted when the last is refused.
    (0..40).for_each(|_| world.a.append("all", &[b'x'; 250]));
    world.a.append("all", &vec![b'x'; (256 << 10) + 1]);
    send_numbers(&world.a, "all", 42, 44);
    assert_eq!(stopped(&mut world), Code::RecordTooLong);
    let links = world.a.links();
    assert_eq!(links.view().unwrap()[0].acked, 40);
    let resumed = links.resume_relay("all", true, None).unwrap();
    assert_eq!(resumed, Resumed { passed_over: Some((41, 41)), lost: false });
    world.carry().unwrap();
    assert_eq!(world.b.records("in")[40..], numbers(42, 44));
}

#[test]
fn a_relay_whose_backlog_was_trimmed_stops_or_rests() {
    for on_gap in [OnGap::Stop, OnGap::Skip] {
        let mut world = relay_world(&RelayOptions { on_gap, ..RelayOptions::default() });
        send_numbers(&world.a, "all", 1, 10);
        world.carry().unwrap();
        send_numbers(&world.a, "all", 11, 20);
        let trim = |before, force| world.a.namespace().trim_log(&"all".parse().unwrap(), before, force);
        trim(11, false).unwrap();
        if on_gap == OnGap::Stop {
            let refused = trim(21, false).unwrap_err();
            assert_eq!(refused.code(), Code::LogNotForwarded);
            assert_eq!(refused.detail(), "relay 'all' has not forwarded records 11 to 20 of log 'all'");
            assert_eq!(world.a.namespace().log("all").unwrap().earliest(), 11, "nothing was dropped");
            trim(21, true).unwrap();
        } else {
            trim(21, false).unwrap();
        }
        if on_gap == OnGap::Stop {
            assert_eq!(stopped(&mut world), Code::LinkGap);
            let resumed = world.a.links().resume_relay("all", false, None).unwrap();
            assert_eq!(resumed, Resumed { passed_over: Some((11, 20)), lost: true });
        }
        for _ in 0..3 {
            world.carry().unwrap();
            assert!(world.rests());
        }
        assert_eq!(world.a.links().view().unwrap()[0].lag_records, 0, "nothing is to come");
        send_numbers(&world.a, "all", 21, 22);
        world.carry().unwrap();
        assert_eq!(world.b.records("in"), [numbers(1, 10), numbers(21, 22)].concat());
        assert_eq!(world.a.links().relay("all").unwrap().lost, 10, "counted once");
    }
}

#[test]
fn a_relay_that_leaves_is_stopped_by_nothing() {
    let leave = |world: &World| {
        assert!(!world.a.links().remove_relay("all", false).unwrap(), "the other side is to be told");
    };
    let leaves = |world: &mut World| {
        assert!(world.connect().unwrap(), "it is told");
        assert!(!world.send(1000).unwrap());
        assert_eq!(world.b.namespace().logs().unwrap().iter().filter(|log| log.name.starts_with("_inbox/")).count(), 0);
    };
    // Its source was removed.
    let mut world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 3);
    world.carry().unwrap();
    world.a.namespace().remove_log(&"all".parse().unwrap()).unwrap();
    assert_eq!(stopped(&mut world), Code::LinkSourceGone);
    leave(&world);
    leaves(&mut world);
    // A refusal was on its way.
    let mut world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 3);
    assert!(world.connect().unwrap() && world.send(1000).unwrap());
    leave(&world);
    let refused = Refused { code: Code::RecordTooLong.id().to_owned(), ..Refused::default() };
    world.answer_with(&Delivered { number: 0, refused: Some(refused) }).unwrap_err();
    leaves(&mut world);
}
