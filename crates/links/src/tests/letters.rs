//! Messages that peers refuse are kept, whatever their length, until they are sent again.

use super::*;

/// A record is at most a quarter of a segment, which are smaller at the receiver.
const TOO_LONG_BYTES: usize = (256 << 10) + 1;

fn uneven() -> World {
    let (a, b) = (Side::with_segments(4 << 20), Side::new());
    b.create_log("in", 100_000);
    World::new(a, b, outbox())
}

/// The receiver is replaced by one that takes longer records.
fn replace(world: &mut World) {
    world.b = Side::with_segments(4 << 20);
    world.b.create_log("in", 100_000);
    assert_eq!(world.carry().unwrap_err().code(), Code::LinkPeerChanged);
    world.a.links().reset_outbox("b_1_farm", false).unwrap();
}

#[test]
fn a_message_too_long_for_its_dead_letter_is_kept_and_sent_again_once() {
    let mut world = uneven();
    let long = |n: u8| vec![n; TOO_LONG_BYTES];
    for n in 1..=3 {
        world.a.append(THERE, &long(n));
        world.a.append(THERE, &[n]);
    }
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [[1], [2], [3]]);
    let letters: Vec<serde_json::Value> =
        world.a.records("dead/outbox").iter().map(|letter| serde_json::from_slice(letter).unwrap()).collect();
    let kept: Vec<u64> = letters.iter().map(|letter| letter["kept"].as_u64().unwrap()).collect();
    assert_eq!(kept, [1, 2, 3]);
    // What a client appends there is no dead letter.
    let forged =
        format!(r#"{{"to":"{THERE}","message":"{}","data":"forged"}}"#, letters[0]["message"].as_str().unwrap());
    world.a.append("dead/outbox", forged.as_bytes());
    replace(&mut world);
    let expected = Resent { resent: 3, before: 0, lost: 0, gone: 0 };
    assert_eq!(world.a.links().resend_letters("b_1_farm").unwrap(), expected);
    assert_eq!(world.a.links().resend_letters(THERE).unwrap(), Resent { resent: 0, before: 3, ..expected });
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [long(1), long(2), long(3)]);
    let kept = world.a.namespace().log("_undelivered").unwrap();
    assert!(kept.earliest() > kept.latest(), "what was sent again is not kept twice");
    assert_eq!(world.a.links().resend_letters("mr://c:1/farm").unwrap(), Resent::default());
    assert_eq!(world.a.links().resend_letters("nobody").unwrap_err().code(), Code::PeerNotFound);
}

#[test]
fn sending_again_ends_with_the_same_result_wherever_it_is_killed() {
    let mut random = Random::new("sending again");
    for _ in 0..20 {
        let mut world = uneven();
        (1..=5).for_each(|n| world.a.append(THERE, &[n; TOO_LONG_BYTES]));
        world.carry().unwrap();
        replace(&mut world);
        let mut found = Resent::default();
        for _ in 0..3 {
            let done = world.a.links().resend_letters("b_1_farm").unwrap();
            found = Resent { resent: found.resent + done.resent, ..done };
            world.a.crash(Some(&mut random));
        }
        world.carry().unwrap();
        assert_eq!((found.resent, found.before), (5, 5));
        assert_eq!(world.b.records("in"), (1..=5).map(|n| vec![n; TOO_LONG_BYTES]).collect::<Vec<_>>());
    }
}

#[test]
fn a_message_that_cannot_be_kept_stays_in_its_outbox_which_stops() {
    let mut world = uneven();
    let journal = world.a.namespace().journal().clone();
    // As if that much was kept: the size of what waits is the difference of two totals.
    let name = crate::log_name("_undelivered");
    let mut payload = Vec::new();
    for total in [1, OUTBOX_BYTES_MAX] {
        millrace_namespace::outbox::message::encode(&mut payload, total, "in", None, b"x");
        let keep = |tx: &mut Transaction<'_>| {
            let log = match tx.catalog().log(&name).cloned() {
                Some(log) => log,
                None => tx.create_log(&name, millrace_journal::HISTORY_ALL)?,
            };
            tx.append(&log, &payload, EventId::NONE, 0)
        };
        journal.commit(keep).unwrap();
    }
    // A dead letter that needs them.
    let message = EventId::new(world.a.namespace().journal().namespace(), 1, 77);
    let letter = format!(r#"{{"to":"{THERE}","message":"{message}","kept":1}}"#);
    let dead = crate::log_name(OUTBOX_DEAD_LETTERS);
    journal
        .commit(|tx| tx.create_log(&dead, 1000).and_then(|log| tx.append(&log, letter.as_bytes(), message, 0)))
        .unwrap();
    world.a.append(THERE, &[7; TOO_LONG_BYTES]);
    assert_eq!(world.carry().unwrap_err().code(), Code::RefusedMessagesFull);
    let view = world.a.links().view().unwrap().remove(0);
    assert_eq!((view.lag_records, view.code.as_deref()), (1, Some("MR6082")));
    // The operator drops the letters, as the remedy says.
    let log = world.a.namespace().log(OUTBOX_DEAD_LETTERS).unwrap();
    journal.commit(|tx| tx.trim(&log, 2)).unwrap();
    world.a.links().reset_outbox("b_1_farm", false).unwrap();
    world.carry().unwrap();
    assert_eq!(world.a.links().view().unwrap()[0].dead, 1);
    replace(&mut world);
    assert_eq!(world.a.links().resend_letters("b_1_farm").unwrap().resent, 1);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [[7; TOO_LONG_BYTES]]);
}
