//! Two copies of one namespace, whose events have the same ids and times: each receiver sees that they are two.

use super::*;
use millrace_wire::protocol::{Life, Linked, Record, Records};

fn stopped(world: &mut World) -> Code {
    let error = world.carry().unwrap_err();
    let views = world.a.links().view().unwrap();
    assert_eq!(views.iter().filter_map(|view| view.code.as_deref()).collect::<Vec<_>>(), [error.code().id()]);
    error.code()
}

/// A relay, and an outbox; the log that is appended to, and how the link goes on.
type Kind = (fn() -> World, &'static str, fn(&World));

fn kinds() -> [Kind; 2] {
    let relay: Kind = (
        || relay_world(&RelayOptions::default()),
        "all",
        |world| {
            world.a.links().resume_relay("all", false, None).unwrap();
        },
    );
    let outbox: Kind = (world, THERE, |world| {
        world.a.links().reset_outbox("b_1_farm", false).unwrap();
    });
    [relay, outbox]
}

#[test]
fn a_sender_put_back_from_an_older_copy_is_seen_even_if_ids_times_and_bytes_are_the_same() {
    for (make, to, resume) in kinds() {
        for (from, upto) in [(11, 20), (11, 13), (111, 113), (111, 125)] {
            let mut world = make();
            send_numbers(&world.a, to, 1, 10);
            world.carry().unwrap();
            let older = world.a.copy();
            send_numbers(&world.a, to, 11, 20);
            world.carry().unwrap();
            world.a = Side::on(older);
            send_numbers(&world.a, to, from, upto);
            assert_eq!(stopped(&mut world), Code::LinkForked, "{to} {from}-{upto}");
            assert_eq!(world.b.records("in"), numbers(1, 20), "nothing was taken for what came before");
            let refused = world.b.links().refused().unwrap();
            let source = world.a.namespace().journal().namespace().get();
            assert!(matches!(&*refused, [one] if one.namespace == source && one.code == "MR6081"), "{refused:?}");
            resume(&world);
            world.carry().unwrap();
            send_numbers(&world.a, to, 201, 202);
            world.carry().unwrap();
            assert_eq!(world.b.records("in"), [numbers(1, 20), numbers(from, upto), numbers(201, 202)].concat());
        }
    }
}

#[test]
fn a_sender_that_starts_again_goes_on() {
    for (make, to, _) in kinds() {
        let mut world = make();
        for n in 1..=20 {
            send_numbers(&world.a, to, n, n);
            if n % 3 > 0 {
                world.carry().unwrap();
            }
            world.a.copy(); // and dropped
        }
        world.carry().unwrap();
        assert_eq!(world.b.records("in"), numbers(1, 20));
        assert_eq!(world.b.links().refused().unwrap(), []);
    }
}

#[test]
fn two_copies_that_send_at_once_lose_nothing_and_neither_ends_the_stream_of_the_other() {
    for (make, to, resume) in kinds() {
        let mut world = make();
        let mut clone = Side::on(world.a.copy());
        // Both open the stream before anything was sent.
        send_numbers(&world.a, to, 1, 5);
        send_numbers(&clone, to, 1, 5);
        assert!(world.connect().unwrap());
        let (mut second, hello) = {
            let mut sender = clone.links().sender(&world.key).unwrap().unwrap();
            let hello = sender.hello().unwrap();
            (sender, hello)
        };
        let (inbound, linked) = world.b.links().inbox().link(&hello.link()).unwrap();
        second.linked(&linked.value).unwrap();
        assert!(world.send(1 << 20).unwrap() && world.arrive(false).unwrap());
        world.answer().unwrap();
        let batch = second.next(1 << 20).unwrap().unwrap();
        let refused = world.b.links().inbox().accept(&inbound, hello.epoch, &batch.deliver(1)).unwrap();
        assert_eq!(second.answered(&refused.value).unwrap_err().code(), Code::LinkForked);
        assert_eq!(world.b.links().refused().unwrap().len(), 1);
        assert_eq!(world.b.records("in"), numbers(1, 5));
        // The second goes on as a stream of its own, and the first is not disturbed.
        std::mem::swap(&mut world.a, &mut clone);
        resume(&world);
        world.carry().unwrap();
        send_numbers(&clone, to, 6, 9);
        std::mem::swap(&mut world.a, &mut clone);
        world.carry().unwrap();
        assert_eq!(world.b.records("in"), [numbers(1, 5), numbers(1, 5), numbers(6, 9)].concat());
    }
}

#[test]
fn a_sender_of_a_version_without_lives_goes_on_and_is_compared_by_its_last_record() {
    let mut world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 10);
    world.carry().unwrap();
    let mut sender = world.a.links().sender(&world.key).unwrap().unwrap();
    let hello = sender.hello().unwrap();
    let link = millrace_wire::protocol::Link { life: None, ..hello.link() };
    let inbox = world.b.links().inbox();
    let (inbound, linked) = inbox.link(&link).unwrap();
    sender.linked(&Linked { life: None, ..linked.value }).unwrap();
    send_numbers(&world.a, "all", 11, 12);
    let batch = sender.next(1 << 20).unwrap().unwrap();
    assert_eq!(inbox.accept(&inbound, 1, &batch.deliver(1)).unwrap().value.number, 12);
    // A record of the same id from another time.
    let mut deliver = batch.deliver(1);
    deliver.items.iter_mut().for_each(|item| item.hlc = Hlc::from_bits(item.hlc.get() + 1));
    let refused = inbox.accept(&inbound, 1, &deliver).unwrap().value.refused.unwrap();
    assert_eq!(refused.code, Code::LinkDiverged.id());
}

#[test]
fn a_fetching_relay_sees_that_its_source_is_another_copy() {
    let (a, b) = sides();
    let relay = b.links().add_relay("mr://a:1/farm/all", "in", &RelayOptions::default()).unwrap();
    let source = |life: Life, forked| Source {
        namespace: a.namespace().journal().namespace().get(),
        epoch: 1,
        latest: 9,
        incarnation: Some(1),
        life: Some(life),
        forked,
        ..Source::default()
    };
    let of = |number, id| Life { number, id };
    let puller = || b.links().pullers().unwrap().pop();
    let take = |life: Life, n: u64| {
        let mut puller = puller().unwrap();
        puller.begin(source(life, false))?;
        let record = Record { seqno: n, id: id_of(n), hlc: Hlc::from_bits(n), ..Record::default() };
        puller.take(1, &Records { incarnation: 1, records: vec![record], next: n + 1 }).map(drop)
    };
    take(of(1, 7), 1).unwrap();
    take(of(3, 8), 2).unwrap();
    assert_eq!(puller().unwrap().life().unwrap(), Some(of(3, 8)));
    for other in [source(of(2, 9), false), source(of(3, 9), false), source(of(9, 9), true)] {
        assert_eq!(puller().unwrap().begin(other).unwrap_err().code(), Code::LinkForked);
        assert!(puller().is_none(), "it has stopped");
        b.links().resume_relay(&relay.name, false, Some(3)).unwrap();
        take(of(3, 8), 3).unwrap();
    }
}

fn id_of(n: u64) -> EventId {
    EventId::new(millrace_wire::NamespaceId::new(7).unwrap(), 1, n)
}

#[test]
fn a_caller_whose_scope_has_changed_goes_on_with_the_stream_that_it_had() {
    let world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 3);
    let mut sender = world.a.links().sender(&world.key).unwrap().unwrap();
    let hello = sender.hello().unwrap();
    let link = hello.link();
    let before = world.b.links().inbox_of(Some("cap-before"));
    let (inbound, linked) = before.link(&link).unwrap();
    sender.linked(&linked.value).unwrap();
    let batch = sender.next(1 << 20).unwrap().unwrap();
    assert_eq!(before.accept(&inbound, 1, &batch.deliver(1)).unwrap().value.number, 3);
    let now = world.b.links().inbox_of(Some("key-now")).formerly(Some("cap-before"));
    for _ in 0..2 {
        assert_eq!(now.link(&link).unwrap().1.value.number, 3);
    }
    assert_eq!(before.link(&link).unwrap().1.value.number, 0, "the stream has one owner");
}

#[test]
fn a_sender_stops_if_the_receiver_heard_last_of_a_life_that_it_did_not_have() {
    let world = relay_world(&RelayOptions::default());
    send_numbers(&world.a, "all", 1, 3);
    world.a.links().begin_life().unwrap();
    let mut sender = world.a.links().sender(&world.key).unwrap().unwrap();
    let hello = sender.hello().unwrap();
    let (_, linked) = world.b.links().inbox().link(&hello.link()).unwrap();
    let number = hello.link().life.unwrap().number;
    // The other copy has started as often, or less often, than this one.
    for number in 1..=number {
        let of_another = Linked { life: Some(Life { number, id: 9 }), ..linked.value };
        assert_eq!(sender.linked(&of_another).unwrap_err().code(), Code::LinkForked);
    }
}
