//! Relays in a circle, within a namespace and across several.

use super::*;
use millrace_wire::{Result, protocol::Link};

/// Opens the stream of `relay` between two sides and carries what there is.
fn carry(from: &Side, to: &Side, relay: &Relay) -> Result<()> {
    let Some(mut sender) = from.links().sender(&LinkKey::Relay(relay.id))? else { return Ok(()) };
    let inbox = to.links().inbox();
    let hello = sender.hello()?;
    let (inbound, linked) = inbox.link(&hello.link()).map_err(|error| sender.stop(error))?;
    sender.linked(&linked.value)?;
    while let Some(batch) = sender.next(1 << 20)? {
        let accepted = inbox.accept(&inbound, 1, &batch.deliver(1))?;
        sender.answered(&accepted.value)?;
    }
    Ok(())
}

fn add(side: &Side, from: &str, to: &str) -> Result<Relay> {
    side.links().add_relay(from, to, &RelayOptions::default())
}

fn three() -> [Side; 3] {
    let sides = [Side::new(), Side::new(), Side::new()];
    sides.iter().for_each(|side| side.create_log("log", 1000));
    sides
}

fn source(
    (namespace, epoch): (u64, u32),
    upstream: Option<&[u8]>,
    latest: u64,
    incarnation: Option<u32>,
) -> Source<'_> {
    Source { namespace, epoch, upstream, latest, incarnation, ..Source::default() }
}

#[test]
fn a_cycle_of_two_relays_is_refused() {
    let [a, b, _] = three();
    let there = add(&a, "log", "mr://b:1/b/log").unwrap();
    let back = add(&b, "log", "mr://a:1/a/log").unwrap();
    a.append("log", b"x");
    carry(&a, &b, &there).unwrap();
    assert_eq!(carry(&b, &a, &back).unwrap_err().code(), Code::RelayCircle);
    assert_eq!((a.records("log").len(), b.records("log").len()), (1, 1));
    let stop = b.links().relay("log").unwrap().course.stopped.unwrap();
    assert_eq!(stop.error().code(), Code::RelayCircle);
}

#[test]
fn a_circle_of_three_is_refused_where_it_closes_and_forgotten_when_it_opens() {
    let [a, b, c] = three();
    let ab = add(&a, "log", "mr://b:1/b/log").unwrap();
    let bc = add(&b, "log", "mr://c:1/c/log").unwrap();
    let ca = add(&c, "log", "mr://a:1/a/log").unwrap();
    a.append("log", b"x");
    carry(&a, &b, &ab).unwrap();
    carry(&b, &c, &bc).unwrap();
    assert_eq!(carry(&c, &a, &ca).unwrap_err().code(), Code::RelayCircle);
    // Once a relay of the circle has gone and the news of it has gone round, there is none.
    assert!(!a.links().remove_relay("log", false).unwrap(), "the other side is to be told");
    carry(&a, &b, &ab).unwrap();
    a.links().forget_relay(ab.id).unwrap();
    assert_eq!(a.links().relays().unwrap(), []);
    carry(&b, &c, &bc).unwrap();
    c.links().resume_relay("log", false, None).unwrap();
    carry(&c, &a, &ca).unwrap();
    assert_eq!(a.records("log"), [b"x", b"x"]);
}

#[test]
fn a_cycle_that_closes_unnoticed_stops_once_the_lists_of_sources_have_passed_through_it() {
    let [a, b, c] = three();
    let ab = add(&a, "log", "mr://b:1/b/log").unwrap();
    let bc = add(&b, "log", "mr://c:1/c/log").unwrap();
    let ca = add(&c, "log", "mr://a:1/a/log").unwrap();
    // All three are opened at once: none knows of the others.
    let mut senders: Vec<Sender> = [(&c, &ca), (&b, &bc), (&a, &ab)]
        .map(|(side, relay)| side.links().sender(&LinkKey::Relay(relay.id)).unwrap().unwrap())
        .into();
    let hellos: Vec<Hello> = senders.iter_mut().map(|sender| sender.hello().unwrap()).collect();
    for (hello, to) in hellos.iter().zip([&a, &c, &b]) {
        to.links().inbox().link(&hello.link()).unwrap();
    }
    assert!(senders.iter().all(Sender::is_path_stale), "each hears that what it told is no longer true");
    let mut refused = 0;
    for _ in 0..4 {
        for (from, to, relay) in [(&a, &b, &ab), (&b, &c, &bc), (&c, &a, &ca)] {
            match carry(from, to, relay) {
                Err(error) if error.code() == Code::RelayCircle => refused += 1,
                other => other.unwrap(),
            }
        }
    }
    assert!((1..=3).contains(&refused), "{refused}");
    a.append("log", b"x");
    for _ in 0..8 {
        for (from, to, relay) in [(&a, &b, &ab), (&b, &c, &bc), (&c, &a, &ca)] {
            carry(from, to, relay).unwrap();
        }
    }
    assert_eq!(a.records("log").len(), 1, "nothing goes round");
}

#[test]
fn circles_within_a_namespace_are_refused_at_once() {
    let [a, ..] = three();
    a.create_log("one", 10);
    a.create_log("two", 10);
    add(&a, "log", "one").unwrap();
    add(&a, "one", "two").unwrap();
    assert_eq!(add(&a, "two", "log").unwrap_err().code(), Code::RelayCircle);
    assert_eq!(add(&a, "one", "one").unwrap_err().code(), Code::RelayInvalid);
    assert_eq!(add(&a, "log", "one").unwrap_err().code(), Code::RelayExists);
    assert_eq!(add(&a, "mr://a:1/a/log", "mr://b:1/b/log").unwrap_err().code(), Code::RelayInvalid);
    assert_eq!(add(&a, "_links", "one").unwrap_err().code(), Code::RelayInvalid);
    assert_eq!(add(&a, "mr://a:1/a", "one").unwrap_err().code(), Code::RelayInvalid);
    assert_eq!(add(&a, "none", "one").unwrap_err().code(), Code::LogNotFound);
    a.links().remove_relay("one", false).unwrap();
    add(&a, "two", "log").unwrap();
}

#[test]
fn a_relay_that_fetches_goes_on_where_it_stood_and_sees_circles() {
    use millrace_wire::protocol::{Record, Records};
    let [a, b, _] = three();
    let add = || b.links().add_relay("mr://a:1/a/log", "log", &RelayOptions::default());
    add().unwrap();
    let a_id = (a.namespace().journal().namespace().get(), 1);
    let fetch = |start: Option<u64>| -> Result<()> {
        let mut puller = b.links().pullers()?.pop().expect("it has not stopped");
        let latest = a.namespace().latest("log")?;
        let upstream = a.namespace().log(Puller::upstream_log()).ok();
        let note = upstream.map(|log| a.namespace().get(Puller::upstream_log(), log.latest()).unwrap().payload);
        let mut next = puller.begin(source(a_id, note.as_deref(), latest, Some(a.namespace().log("log")?.id())))?;
        if let Some(start) = start {
            next = puller.passed_by(start)?;
        }
        while next <= latest {
            let upto = (next + 2).min(latest);
            let records: Vec<_> = (next..=upto).map(|n| a.namespace().get("log", n).unwrap()).collect();
            let records = records.iter().map(|r| Record {
                seqno: r.seqno,
                headers: r.headers.bytes(),
                id: r.id,
                hlc: r.hlc,
                cause: r.cause,
                data: &r.payload,
            });
            let incarnation = a.namespace().log("log").unwrap().id();
            let records = Records { incarnation, records: records.collect(), next: upto + 1 };
            let accepted = puller.take(1, &records)?;
            assert_eq!((accepted.value.number, accepted.value.refused), (upto, None));
            next = upto + 1;
        }
        Ok(())
    };
    // Nobody said where to begin: with the oldest record.
    send_numbers(&a, "log", 1, 7);
    fetch(Some(4)).unwrap();
    fetch(None).unwrap();
    let relay = b.links().relay("log").unwrap();
    assert_eq!((relay.start, relay.lost), (4, 0));
    send_numbers(&a, "log", 8, 9);
    fetch(None).unwrap();
    assert_eq!(b.records("log"), numbers(4, 9));
    send_numbers(&a, "log", 10, 15);
    assert_eq!(fetch(Some(12)).unwrap_err().code(), Code::LinkGap);
    b.links().resume_relay("log", false, None).unwrap();
    fetch(Some(12)).unwrap();
    assert_eq!(b.records("log"), [numbers(4, 9), numbers(12, 15)].concat());
    assert_eq!(b.links().relay("log").unwrap().lost, 2);
    // The other way would lead records back.
    let back = a.links().add_relay("mr://b:1/b/log", "log", &RelayOptions::default()).unwrap();
    let mut puller = a.links().pullers().unwrap().pop().unwrap();
    let note = b.namespace().get(Puller::upstream_log(), 1).unwrap().payload;
    let b_id = (b.namespace().journal().namespace().get(), 1);
    assert_eq!(puller.begin(source(b_id, Some(&note), 13, None)).unwrap_err().code(), Code::RelayCircle);
    assert!(a.links().relay(&back.name).unwrap().course.stopped.is_some());
    // A source that was recreated is not the one that was read.
    a.namespace().remove_log(&"log".parse().unwrap()).unwrap();
    a.create_log("log", 1000);
    assert_eq!(fetch(None).unwrap_err().code(), Code::LinkSourceGone, "also while it is empty");
    b.links().resume_relay("log", false, None).unwrap();
    send_numbers(&a, "log", 101, 120);
    fetch(None).unwrap();
    assert_eq!(b.records("log")[10..], numbers(101, 120));
}

/// What a relay that is removed meanwhile would leave where it leads to: then the way back is a circle forever.
#[test]
fn a_relay_that_is_removed_while_it_opens_leaves_nothing_behind() {
    let [a, b, _] = three();
    let is_clean = |side: &Side| {
        let logs = side.namespace().logs().unwrap();
        assert!(logs.iter().all(|log| !log.name.starts_with("_inbox/")), "{logs:?}");
        assert_eq!(side.links().path_of("log").unwrap().len(), 1, "only itself");
    };
    // It sends, and the answer does not come before it is removed.
    let there = add(&a, "log", "mr://b:1/b/log").unwrap();
    let key = LinkKey::Relay(there.id);
    let hello = a.links().sender(&key).unwrap().unwrap().hello().unwrap();
    b.links().inbox().link(&hello.link()).unwrap();
    assert!(!a.links().remove_relay("log", false).unwrap(), "the other side may know of it");
    carry(&a, &b, &there).unwrap();
    is_clean(&b);
    // One that was never opened is known to nobody.
    add(&b, "log", "mr://c:1/c/log").unwrap();
    assert!(b.links().remove_relay("log", false).unwrap());
    // It fetches.
    b.links().add_relay("mr://a:1/a/log", "log", &RelayOptions::default()).unwrap();
    let mut puller = b.links().pullers().unwrap().pop().unwrap();
    assert!(b.links().remove_relay("log", false).unwrap());
    let a_id = (a.namespace().journal().namespace().get(), 1);
    assert_eq!(puller.begin(source(a_id, None, 0, Some(1))).unwrap_err().code(), Code::RelayNotFound);
    is_clean(&b);
    // It leads from one log to another here.
    a.create_log("one", 10);
    let here = add(&a, "one", "log").unwrap();
    let mut sender = a.links().sender(&LinkKey::Relay(here.id)).unwrap().unwrap();
    let hello = sender.hello().unwrap();
    assert!(a.links().remove_relay("one", false).unwrap());
    assert_eq!(sender.open_here(&hello).unwrap_err().code(), Code::RelayNotFound);
    is_clean(&a);
}

#[test]
fn a_restarted_relay_is_removed_as_one() {
    let [a, b, _] = three();
    let inbox = b.links().inbox();
    let open = |stream: &str, log: Option<&str>| {
        let namespace = a.namespace().journal().namespace().get();
        let path = log.map(|log| millrace_wire::protocol::PathStep { namespace, log: log.into() });
        let path = path.into_iter().collect();
        inbox.link(&Link { stream, namespace, epoch: 1, target: Some("log"), path, ..Link::default() }).unwrap();
        b.links().path_of("log").unwrap().len()
    };
    assert_eq!(open("relay/1/0", Some("one")), 2);
    assert_eq!(open("relay/11/0", Some("other")), 3);
    assert_eq!(open("relay/1/2", Some("one")), 3);
    assert_eq!(open("relay/1/2", None), 2, "with all that it was before");
    let logs = b.namespace().logs().unwrap();
    assert_eq!(logs.iter().filter(|log| log.name.starts_with("_inbox/")).count(), 1);
}
