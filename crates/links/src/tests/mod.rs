//! Streams over lines that are cut, between sides that die: everything arrives once and in order, or the link reports why not.

mod circles;
mod copies;
mod faults;
mod letters;
mod lives;
mod world;

use super::*;
use millrace_namespace::{
    AppendOptions,
    outbox::{self, NewMessage, Outgoing},
};
use millrace_wire::{Code, EventId, Hlc, Name};
use world::{Random, Side, World};

const THERE: &str = "mr://b:1/farm/in";

fn outbox() -> LinkKey {
    LinkKey::Outbox("b_1_farm".into())
}

/// Two sides; `a` has sent nothing yet.
fn sides() -> (Side, Side) {
    let (a, b) = (Side::new(), Side::new());
    a.create_log("all", 100_000);
    b.create_log("in", 100_000);
    (a, b)
}

fn world() -> World {
    let (a, b) = sides();
    World::new(a, b, outbox())
}

fn relay_world(options: &RelayOptions) -> World {
    let (a, b) = sides();
    let relay = a.links().add_relay("all", THERE, options).unwrap();
    World::new(a, b, LinkKey::Relay(relay.id))
}

fn numbers(from: u64, to: u64) -> Vec<Vec<u8>> {
    (from..=to).map(|n| n.to_string().into_bytes()).collect()
}

fn send_numbers(side: &Side, to: &str, from: u64, upto: u64) {
    numbers(from, upto).iter().for_each(|number| side.append(to, number));
}

#[test]
fn messages_arrive_once_in_order_and_leave_the_outbox() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 500);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 500));
    let record = world.b.namespace().get("in", 7).unwrap();
    assert_eq!(record.cause.namespace(), Some(world.a.namespace().journal().namespace()));
    let view = &world.a.links().peers().unwrap()[0];
    assert_eq!(view.course.namespace, Some(world.b.namespace().journal().namespace().get()));
    let outbox = world.a.namespace().log("_outbox/b_1_farm").unwrap();
    assert_eq!((outbox.earliest(), outbox.latest()), (501, 500), "acknowledged messages are trimmed");
    assert_eq!(outbox::waiting(world.a.namespace(), &outbox).unwrap().bytes, 0);
    send_numbers(&world.a, THERE, 501, 510);
    let waits = outbox::waiting(world.a.namespace(), &outbox).unwrap();
    assert_eq!((waits.records, waits.bytes), (10, 10 * (11 + 2 + 3)));
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 510));
}

#[test]
fn a_message_may_name_a_function_and_several_logs_share_an_outbox() {
    let mut world = world();
    world.b.create_log("other", 10);
    let options = AppendOptions { function: Some("nobody"), ..AppendOptions::default() };
    world.a.namespace().append(THERE, b"runs", options).unwrap();
    world.a.append("mr://b:1/farm/other", b"two");
    assert_eq!(world.carry_on(), Some(Code::FunctionNotFound));
    assert_eq!(world.b.namespace().latest("in").unwrap(), 0, "no such function: not even the record");
    assert_eq!(world.b.records("other"), [b"two"], "what is for another log does not wait");
    world.a.links().reset_outbox("b_1_farm", true).unwrap();
    world.a.append("mr://b:1/farm/other", b"three");
    world.carry().unwrap();
    assert_eq!(world.b.records("other"), [&b"two"[..], b"three"]);
    assert!(world.a.namespace().log("dead/outbox").is_err(), "what was dropped is counted, and no dead letter");
}

/// Messages to a log that is not there, and to one that is, in turn.
fn mixed(world: &World, from: u64, upto: u64) {
    for n in from..=upto {
        world.a.append("mr://b:1/farm/missing", format!("m{n}").as_bytes());
        world.a.append(THERE, n.to_string().as_bytes());
    }
}

#[test]
fn a_missing_log_delays_no_other_log_and_gets_its_messages_in_order_once_it_exists() {
    for crashes in [false, true] {
        let mut world = world();
        let wait = |world: &mut World| {
            assert_eq!(world.carry_on(), Some(Code::LogNotFound));
            if crashes {
                world.a.crash(None);
                world.b.crash(None);
            }
        };
        mixed(&world, 1, 40);
        wait(&mut world);
        assert_eq!(world.b.records("in"), numbers(1, 40));
        mixed(&world, 41, 60);
        wait(&mut world);
        wait(&mut world);
        assert_eq!(world.b.records("in"), numbers(1, 60));
        world.a.append("mr://b:1/farm/missing", b"m61");
        world.b.create_log("missing", 1000);
        world.carry().unwrap();
        let expected: Vec<Vec<u8>> = (1..=61).map(|n| format!("m{n}").into_bytes()).collect();
        assert_eq!((world.b.records("missing"), world.b.records("in")), (expected, numbers(1, 60)));
        let peer = &world.a.links().peers().unwrap()[0];
        assert_eq!((&*peer.course.aside, peer.dead), (&[][..], 0));
        mixed(&world, 62, 70);
        world.carry().unwrap();
        assert_eq!((world.b.records("missing").len(), world.b.records("in").len()), (70, 69));
    }
}

/// The other side passes over the old numbers for good as soon as it is told that they are voids.
#[test]
fn messages_that_were_put_aside_are_safe_before_their_old_numbers_are_voids() {
    let mut world = world();
    mixed(&world, 1, 1);
    assert!(world.connect().unwrap() && world.send(1000).unwrap() && world.arrive(false).unwrap());
    assert_eq!(world.answer().unwrap(), Some(Verdict::Go));
    let journal = world.a.namespace().journal();
    assert!(journal.durable() >= journal.tail());
}

#[test]
fn a_message_that_waits_too_long_for_its_log_becomes_a_dead_letter() {
    let mut world = world();
    mixed(&world, 1, 3);
    assert_eq!(world.carry_on(), Some(Code::LogNotFound));
    let hour = 60 * 60 * 1_000_000;
    let then = world.a.namespace().journal().clock().wall_us() + hour;
    world.a.disk.set_wall_us(then);
    world.b.disk.set_wall_us(then);
    world.a.append(THERE, b"4");
    assert_eq!(world.carry_on(), None);
    assert_eq!(world.b.records("in"), numbers(1, 4));
    let dead: Vec<serde_json::Value> =
        world.a.records("dead/outbox").iter().map(|letter| serde_json::from_slice(letter).unwrap()).collect();
    let reported = |letter: &serde_json::Value| (letter["code"].clone(), letter["to"].clone());
    assert_eq!(dead.len(), 3);
    assert!(dead.iter().map(reported).all(|it| it == ("MR2101".into(), "mr://b:1/farm/missing".into())), "{dead:?}");
    assert_eq!(world.a.links().peers().unwrap()[0].dead, 3);
}

#[test]
fn a_message_that_was_put_aside_while_the_clock_was_ahead_waits_no_longer_than_others() {
    let mut world = world();
    let (now, hour) = (world.a.namespace().journal().clock().wall_us(), 60 * 60 * 1_000_000);
    world.a.disk.set_wall_us(now + 100 * hour);
    mixed(&world, 1, 1);
    assert_eq!(world.carry_on(), Some(Code::LogNotFound));
    world.a.disk.set_wall_us(now);
    assert_eq!(world.carry_on(), Some(Code::LogNotFound));
    world.a.disk.set_wall_us(now + 2 * hour);
    world.a.append(THERE, b"2");
    assert_eq!(world.carry_on(), None);
    assert_eq!(world.a.links().peers().unwrap()[0].dead, 1);
}

#[test]
fn addresses_that_cannot_be_sent_to_are_refused_at_once() {
    let (a, _) = sides();
    let refused = |log: &str| a.namespace().append(log, b"x", AppendOptions::default()).unwrap_err().code();
    assert_eq!(refused("mr://b:1/farm"), Code::AddressInvalid);
    assert_eq!(refused("mr://b:1/farm/_inbox/x"), Code::LogInternal);
    assert_eq!(refused("mr://b:0/farm/in"), Code::AddressInvalid);
    assert_eq!(a.links().peers().unwrap(), []);
    let mut last = Ok(());
    for port in 1..=PEERS_MAX as u64 + 1 {
        let sent = a.namespace().append(&format!("mr://b:{port}/farm/in"), b"x", AppendOptions::default());
        last = sent.map(drop).map_err(|error| error.code());
        assert!(last.is_ok() || port > PEERS_MAX as u64, "{last:?} at {port}");
    }
    assert_eq!(last, Err(Code::LinksFull));
}

#[test]
fn peers_have_names_of_their_own() {
    let hosts = ["b", "B", "10.0.0.1", "::1", "a_b", "a-b", "--1", ".x", &"h".repeat(200)];
    let mut names = std::collections::HashSet::new();
    for host in hosts {
        for (port, namespace) in [(1, "x"), (11, "x"), (1, "1_x"), (1, "x_y"), (1, &*"n".repeat(64))] {
            let namespace: Name = namespace.parse().unwrap();
            let name = outbox::peer_name(&millrace_wire::Peer { host: host.into(), port, namespace });
            assert!(name.parse::<Name>().is_ok(), "{name}");
            assert!(names.insert(name.clone()), "{name} twice");
        }
    }
}

#[test]
fn a_peer_that_was_forgotten_begins_anew() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 5);
    let links = world.a.links();
    assert_eq!(links.remove_peer("b_1_farm", false).unwrap_err().code(), Code::PeerInUse);
    world.carry().unwrap();
    send_numbers(&world.a, THERE, 6, 7);
    assert_eq!(links.remove_peer("mr://b:1/farm", true).unwrap(), 2);
    assert_eq!(links.remove_peer("b_1_farm", true).unwrap_err().code(), Code::PeerNotFound);
    drop(links);
    send_numbers(&world.a, THERE, 8, 9);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), [numbers(1, 5), numbers(8, 9)].concat());
}

/// A namespace in memory, where hundreds of megabytes are no matter.
fn roomy() -> (tempfile::TempDir, millrace_namespace::Namespace) {
    let dir = tempfile::tempdir().unwrap();
    let options =
        millrace_namespace::CreateOptions { durability: millrace_namespace::Durability::Memory, ..Default::default() };
    let namespace = millrace_namespace::Namespace::create(dir.path(), &options).unwrap();
    (dir, namespace)
}

#[test]
fn a_full_outbox_leaves_room_for_runs_and_accepts_messages_again_after_acknowledgements() {
    let (_dir, namespace) = roomy();
    let to = THERE.parse().unwrap();
    let data = vec![1u8; 1 << 20];
    let letter =
        || NewMessage { to: &to, function: None, data: &data, cause: millrace_wire::EventId::NONE, ordinal: 0 };
    let stage = |room| {
        let committed = namespace.journal().commit(|tx| Outgoing::default().append(&namespace, tx, room, letter()));
        committed.map(drop).map_err(|error| error.code())
    };
    use millrace_namespace::admission::Room;
    let mut outside = 0;
    while stage(Room::Outside).is_ok() {
        outside += 1;
    }
    assert_eq!(stage(Room::Outside), Err(Code::OutboxFull));
    let log = namespace.log("_outbox/b_1_farm").unwrap();
    let waits = outbox::waiting(&namespace, &log).unwrap();
    assert_eq!(waits.records, outside);
    assert!((OUTBOX_BYTES_MAX / 2 - (2 << 20)..=OUTBOX_BYTES_MAX / 2).contains(&waits.bytes), "{waits:?}");
    let mut inside = 0;
    while stage(Room::Run).is_ok() {
        inside += 1;
    }
    assert!(inside >= outside, "{inside} of runs, {outside} from outside");
    namespace.journal().commit(|tx| tx.trim(&log, inside + 1)).unwrap();
    assert_eq!(stage(Room::Outside), Err(Code::OutboxFull));
    namespace.journal().commit(|tx| tx.trim(&log, inside + 2)).unwrap();
    assert_eq!(stage(Room::Outside), Ok(()));
}

/// More of them than its log remembers would push out those that were not sent.
#[test]
fn an_outbox_of_small_messages_is_full_before_its_log_forgets_any() {
    use millrace_namespace::admission::Room;
    let (_dir, namespace) = roomy();
    let to = THERE.parse().unwrap();
    let letter = || NewMessage { to: &to, function: None, data: b"x", cause: millrace_wire::EventId::NONE, ordinal: 0 };
    let stage = |count: u64| {
        let mut outgoing = Outgoing::default();
        let append = |tx: &mut Transaction<'_>| {
            (0..count).try_for_each(|_| outgoing.append(&namespace, tx, Room::Outside, letter()).map(drop))
        };
        namespace.journal().commit(append).map(drop).map_err(|error| error.code())
    };
    let (most, step) = (OUTBOX_RECORDS_MAX / 2, 8192);
    (0..most / step).for_each(|_| stage(step).unwrap());
    stage(most % step).unwrap();
    assert_eq!(stage(1), Err(Code::OutboxFull));
    let log = namespace.log("_outbox/b_1_farm").unwrap();
    let waits = outbox::waiting(&namespace, &log).unwrap();
    assert!(waits.records == most && waits.bytes < OUTBOX_BYTES_MAX / 2, "{waits:?}");
}
