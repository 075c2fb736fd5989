mod large;

use super::*;
use crate::{
    METHODS, Outcome,
    session::{ANSWERS_MAX_BYTES, CALLS_MAX},
};
use std::sync::Arc;

/// A space with clients, whose calls number themselves.
struct World {
    space: Space,
    now: u64,
    token: u64,
    calls: HashMap<u8, u64>,
    /// That of every call.
    fence: Option<Fence<'static>>,
}

const LEASE_MS: u64 = 1000;

impl World {
    fn new(clients: &[u8]) -> Self {
        let mut world = Self { space: Space::default(), now: 0, token: 100, calls: HashMap::new(), fence: None };
        for client in clients {
            let moment = world.moment();
            assert!(!world.space.open([*client; 16], "", LEASE_MS, moment).unwrap());
        }
        world
    }

    fn moment(&mut self) -> Moment {
        self.token += 1;
        Moment { now_ms: self.now, token: self.token }
    }

    fn number(&mut self, client: u8) -> u64 {
        let number = self.calls.entry(client).or_default();
        *number += 1;
        *number
    }

    fn with(
        &mut self,
        client: u8,
        number: u64,
        on: (Type, &str),
        method: &str,
        args: &[Vec<u8>],
        flags: Flags,
    ) -> Result<Called> {
        let moment = self.moment();
        let (kind, key) = on;
        let args = value::array(args.iter().map(Vec::as_slice));
        let new = match kind {
            Type::CountDownLatch | Type::Barrier => Some(value::array([&*value::int(2)].into_iter())),
            Type::Queue => Some(value::array([&*value::int(1)].into_iter())),
            _ => None,
        };
        let call = Call {
            session: [client; 16],
            number,
            acked: 0,
            kind,
            key,
            incarnation: 0,
            method: kind.method(method)?,
            args: &args,
            new: new.as_deref(),
            flags,
            fence: self.fence,
        };
        self.space.call(&call, moment)
    }

    fn call(&mut self, client: u8, on: (Type, &str), method: &str, args: &[Vec<u8>]) -> Called {
        let number = self.number(client);
        self.with(client, number, on, method, args, Flags::default()).unwrap()
    }

    fn value(&mut self, client: u8, on: (Type, &str), method: &str, args: &[Vec<u8>]) -> Vec<u8> {
        match self.call(client, on, method, args) {
            Called::Now(_, Ok(value)) => value.to_vec(),
            other => panic!("{method}: {other:?}"),
        }
    }

    fn waits(&mut self, client: u8, on: (Type, &str), method: &str, args: &[Vec<u8>]) -> u64 {
        let called = self.call(client, on, method, args);
        assert!(matches!(called, Called::Waiting(_)), "{method}: {called:?}");
        self.calls[&client]
    }

    fn reply(&self, client: u8, number: u64) -> Option<Outcome> {
        match self.space.reply(&[client; 16], number)? {
            Called::Now(_, reply) => Some(reply.map(|value| value.to_vec())),
            Called::Waiting(_) => None,
        }
    }

    fn expire(&mut self, by: u64) {
        self.now += by;
        let moment = self.moment();
        self.space.expire(moment);
    }
}

const HITS: (Type, &str) = (Type::AtomicLong, "hits");
const DOOR: (Type, &str) = (Type::Lock, "door");

#[test]
fn a_call_that_is_repeated_counts_once() {
    let mut world = World::new(&[1]);
    for (number, expected) in [(1, 5), (1, 5), (2, 10), (2, 10), (1, 5)] {
        let called = world.with(1, number, HITS, "add_and_get", &[value::int(5)], Flags::default()).unwrap();
        assert!(matches!(called, Called::Now(_, Ok(value)) if *value == *value::int(expected)), "call {number}");
    }
    let diverged = world.with(1, 2, HITS, "set", &[value::int(5)], Flags::default()).unwrap_err();
    assert_eq!(diverged.code(), Code::CallDiverged);
}

#[test]
fn what_was_acknowledged_is_forgotten_and_never_done_again() {
    let mut world = World::new(&[1]);
    world.value(1, HITS, "add_and_get", &[]);
    let client = world.space.sessions.get_mut(&[1; 16]).unwrap();
    client.acknowledge(2, &mut world.space.kept);
    assert!(client.calls.is_empty());
    let again = world.with(1, 1, HITS, "add_and_get", &[], Flags::default()).unwrap_err();
    assert_eq!(again.code(), Code::OutcomeUnknown);
}

#[test]
fn one_key_is_one_type() {
    let mut world = World::new(&[1]);
    world.value(1, HITS, "get", &[]);
    let error = world.with(1, 9, (Type::Dict, "hits"), "len", &[], Flags::default()).unwrap_err();
    assert_eq!(error.code(), Code::ObjectTypeMismatch);
}

#[test]
fn a_lock_goes_round_in_the_order_of_asking_and_its_tokens_only_grow() {
    let mut world = World::new(&[1, 2, 3]);
    let first = value::as_int(&world.value(1, DOOR, "acquire", &[])).unwrap();
    let (second, third) = (world.waits(2, DOOR, "acquire", &[]), world.waits(3, DOOR, "acquire", &[]));
    assert!(
        matches!(world.call(2, DOOR, "release", &[]), Called::Now(_, Err(raised)) if raised.class == "RuntimeError")
    );
    world.value(1, DOOR, "release", &[]);
    let token = |reply: Option<Outcome>| value::as_int(&reply.unwrap().unwrap()).unwrap();
    let granted = token(world.reply(2, second));
    assert!(granted > first && world.reply(3, third).is_none());
    world.value(2, DOOR, "release", &[]);
    assert!(token(world.reply(3, third)) > granted);
}

#[test]
fn a_lock_of_a_client_that_is_gone_is_free_after_its_lease_and_the_late_one_is_told() {
    let mut world = World::new(&[1, 2]);
    world.value(1, DOOR, "acquire", &[]);
    let waiting = world.waits(2, DOOR, "acquire", &[]);
    world.space.pin(&[2; 16]);
    world.expire(LEASE_MS - 1);
    assert!(world.reply(2, waiting).is_none());
    world.expire(1);
    assert!(world.reply(2, waiting).unwrap().is_ok());
    let late = world.with(1, 7, DOOR, "release", &[], Flags::default()).unwrap_err();
    assert_eq!(late.code(), Code::SessionExpired);
    let moment = world.moment();
    assert_eq!(world.space.renew([1; 16], LEASE_MS, moment).unwrap_err().code(), Code::SessionExpired);
}

#[test]
fn who_gives_up_leaves_the_queue() {
    let mut world = World::new(&[1, 2, 3]);
    world.value(1, DOOR, "acquire", &[]);
    let second = world.waits(2, DOOR, "acquire", &[]);
    let third = world.waits(3, DOOR, "acquire", &[]);
    let flags = Flags { give_up: true, ..Flags::default() };
    let gave_up = world.with(2, second, DOOR, "acquire", &[], flags).unwrap();
    assert!(matches!(gave_up, Called::Now(_, Ok(value)) if *value == *value::boolean(false)));
    world.value(1, DOOR, "release", &[]);
    assert!(world.reply(3, third).is_some());
}

#[test]
fn a_queue_hands_items_over_in_order_and_holds_no_more_than_it_may() {
    let mut world = World::new(&[1, 2]);
    let jobs = (Type::Queue, "jobs");
    let taker = world.waits(2, jobs, "get", &[]);
    world.value(1, jobs, "put", &[value::int(1)]);
    assert_eq!(world.reply(2, taker), Some(Ok(value::int(1))));
    world.value(1, jobs, "put", &[value::int(2)]);
    let putter = world.waits(1, jobs, "put", &[value::int(3)]);
    assert_eq!(world.value(2, jobs, "get", &[]), value::int(2));
    assert!(world.reply(1, putter).is_some());
    assert_eq!(world.value(2, jobs, "get", &[]), value::int(3));
    let joiner = world.waits(1, jobs, "join", &[]);
    (0..3).for_each(|_| drop(world.value(2, jobs, "task_done", &[])));
    assert_eq!(world.reply(1, joiner), Some(Ok(value::boolean(true))));
}

#[test]
fn a_barrier_lets_all_pass_at_once_and_breaks_when_one_will_not_come() {
    let mut world = World::new(&[1, 2, 3]);
    let gate = (Type::Barrier, "gate");
    let first = world.waits(1, gate, "wait", &[]);
    assert_eq!(world.value(2, gate, "wait", &[]), value::int(1));
    assert_eq!(world.reply(1, first), Some(Ok(value::int(0))));
    world.waits(1, gate, "wait", &[]);
    world.expire(LEASE_MS);
    let moment = world.moment();
    world.space.open([2; 16], "", LEASE_MS, moment).unwrap();
    let broken = world.with(2, 50, gate, "wait", &[], Flags::default()).unwrap();
    assert!(matches!(broken, Called::Now(_, Err(raised)) if raised.class.ends_with("BrokenBarrierError")));
}

#[test]
fn a_condition_gives_the_lock_back_while_it_waits() {
    let mut world = World::new(&[1, 2]);
    let ready = (Type::Condition, "ready");
    world.value(1, ready, "acquire", &[]);
    let waiting = world.waits(1, ready, "wait", &[]);
    world.value(2, ready, "acquire", &[]);
    world.value(2, ready, "notify", &[]);
    assert!(world.reply(1, waiting).is_none(), "the lock is not free yet");
    world.value(2, ready, "release", &[]);
    assert_eq!(world.reply(1, waiting), Some(Ok(value::boolean(true))));
    world.value(1, ready, "release", &[]);
}

#[test]
fn a_condition_answers_who_waited_too_long_once_it_has_the_lock() {
    let mut world = World::new(&[1, 2]);
    let ready = (Type::Condition, "ready");
    world.value(1, ready, "acquire", &[]);
    let waiting = world.waits(1, ready, "wait", &[]);
    world.value(2, ready, "acquire", &[]);
    let flags = Flags { give_up: true, ..Flags::default() };
    let late = world.with(1, waiting, ready, "wait", &[], flags).unwrap();
    assert!(matches!(late, Called::Waiting(_)));
    world.value(2, ready, "release", &[]);
    assert_eq!(world.reply(1, waiting), Some(Ok(value::boolean(false))));
    world.value(1, ready, "release", &[]);
}

#[test]
fn permits_of_a_client_that_is_gone_come_back() {
    let mut world = World::new(&[1, 2]);
    let permits = (Type::Semaphore, "permits");
    world.value(1, permits, "acquire", &[]);
    let waiting = world.waits(2, permits, "acquire", &[]);
    world.space.pin(&[2; 16]);
    world.expire(LEASE_MS);
    assert_eq!(world.reply(2, waiting), Some(Ok(value::boolean(true))));
    world.value(2, permits, "release", &[]);
    assert_eq!(world.value(2, permits, "value", &[]), value::int(1));
}

#[test]
fn permits_of_a_client_that_ended_well_stay_acquired() {
    let mut world = World::new(&[1, 2]);
    let permits = (Type::Semaphore, "permits");
    world.value(1, permits, "acquire", &[]);
    let moment = world.moment();
    world.space.leave_permits(&[1; 16], moment);
    world.space.end(&[1; 16], moment);
    assert_eq!(world.value(2, permits, "value", &[]), value::int(0));
    let waiting = world.waits(2, permits, "acquire", &[]);
    // Any client can release them, as before.
    world.value(2, permits, "release", &[]);
    assert_eq!(world.reply(2, waiting), Some(Ok(value::boolean(true))));
}

#[test]
fn entities_end_with_the_last_session_of_their_application_and_are_never_a_fresh_zero() {
    let mut world = World::new(&[3]);
    let moment = world.moment();
    world.space.open([1; 16], "app", LEASE_MS, moment).unwrap();
    world.space.open([2; 16], "app", LEASE_MS, moment).unwrap();
    let Called::Now(incarnation, _) = world.call(1, HITS, "add_and_get", &[]) else { panic!() };
    let moment = world.moment();
    world.space.end(&[1; 16], moment);
    assert!(world.space.holds("hits"));
    world.space.end(&[2; 16], moment);
    assert!(!world.space.holds("hits"));
    let args = value::array([].into_iter());
    let method = Type::AtomicLong.method("get").unwrap();
    let call = Call {
        session: [3; 16],
        number: 1,
        acked: 0,
        kind: Type::AtomicLong,
        key: "hits",
        incarnation,
        method,
        args: &args,
        new: None,
        flags: Flags::default(),
        fence: None,
    };
    assert_eq!(world.space.call(&call, moment).unwrap_err().code(), Code::ObjectLost);
}

#[test]
fn a_call_with_a_lower_token_than_the_object_has_seen_is_refused() {
    let mut world = World::new(&[1, 2]);
    let refused = |world: &mut World, method, args: &[Vec<u8>]| {
        let number = world.number(1);
        world.with(1, number, HITS, method, args, Flags::default()).unwrap_err().code()
    };
    let fence = |token| Some(Fence { name: "door", token });
    world.fence = fence(7);
    world.value(2, HITS, "get", &[]);
    world.fence = fence(5);
    world.value(1, HITS, "add_and_get", &[]);
    world.fence = fence(7);
    world.value(2, HITS, "add_and_get", &[]);
    world.fence = fence(6);
    for (method, args) in [("add_and_get", &[][..]), ("get", &[]), ("delete", &[])] {
        assert_eq!(refused(&mut world, method, args), Code::FenceStale);
    }
    world.fence = Some(Fence { name: "window", token: 1 });
    world.value(1, HITS, "add_and_get", &[]);
    world.fence = None;
    assert_eq!(world.value(1, HITS, "get", &[]), value::int(3));
    world.fence = fence(0);
    assert_eq!(refused(&mut world, "get", &[]), Code::FenceInvalid);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"] {
        world.fence = Some(Fence { name, token: 1 });
        world.value(1, HITS, "add_and_get", &[]);
    }
    world.fence = Some(Fence { name: "o", token: 1 });
    assert_eq!(refused(&mut world, "get", &[]), Code::FenceInvalid, "16 names are enough");
}

#[test]
fn a_waiting_call_is_refused_when_a_call_with_a_higher_token_comes() {
    let fence = |token| Some(Fence { name: "tick", token });
    let mut world = World::new(&[1, 2, 3, 4]);
    let former = |world: &mut World, on, method, args: &[Vec<u8>]| {
        world.fence = fence(5);
        let number = world.waits(2, on, method, args);
        world.fence = None;
        number
    };
    let is_refused = |world: &World, number| {
        let found = world.reply(2, number).expect("it is answered").unwrap_err();
        assert_eq!(found.class, "millrace.FenceStale");
        assert!(found.text.contains("token 5 of 'tick'; the highest token so far is 6"), "{}", found.text);
    };
    // A lock: it goes to the one behind.
    world.value(1, DOOR, "acquire", &[]);
    let (stale, next) = (former(&mut world, DOOR, "acquire", &[]), world.waits(3, DOOR, "acquire", &[]));
    world.fence = Some(Fence { name: "window", token: 9 });
    let other = world.waits(4, DOOR, "acquire", &[]);
    assert_eq!(world.reply(2, stale), None, "the higher token has another name");
    world.fence = fence(6);
    let owner = world.waits(1, DOOR, "acquire", &[]);
    is_refused(&world, stale);
    world.fence = None;
    world.value(1, DOOR, "release", &[]);
    assert!(world.reply(3, next).is_some() && world.reply(1, owner).is_none() && world.reply(4, other).is_none());
    // A queue: an item that waited for room does not enter it.
    let jobs = (Type::Queue, "jobs");
    world.value(1, jobs, "put", &[value::int(1)]);
    let stale = former(&mut world, jobs, "put", &[value::int(2)]);
    world.fence = fence(6);
    assert_eq!(world.value(1, jobs, "get", &[]), value::int(1));
    is_refused(&world, stale);
    assert_eq!(world.value(1, jobs, "qsize", &[]), value::int(0));
    // A semaphore: the one that wants two is gone, and the one behind it takes the permit that is free.
    let permits = (Type::Semaphore, "permits");
    let new = value::array([&*value::int(2), &*value::int(2)].into_iter());
    let (args, method) = (value::array([].into_iter()), Type::Semaphore.method("acquire").unwrap());
    let (number, moment) = (world.number(1), world.moment());
    let call = Call {
        session: [1; 16],
        number,
        acked: 0,
        kind: permits.0,
        key: permits.1,
        incarnation: 0,
        method,
        args: &args,
        new: Some(&new),
        flags: Flags::default(),
        fence: None,
    };
    world.space.call(&call, moment).unwrap();
    let stale = former(&mut world, permits, "acquire", &[value::int(2)]);
    let next = world.waits(3, permits, "acquire", &[]);
    world.fence = fence(6);
    let owner = world.waits(1, permits, "acquire", &[]);
    is_refused(&world, stale);
    assert_eq!((world.reply(3, next), world.reply(1, owner)), (Some(Ok(value::boolean(true))), None));
    // A barrier: it counts as if it had never come, and the barrier is not broken.
    let start = (Type::Barrier, "start");
    let stale = former(&mut world, start, "wait", &[]);
    world.fence = fence(6);
    let party = world.waits(1, start, "wait", &[]);
    is_refused(&world, stale);
    assert_eq!(world.value(3, start, "wait", &[]), value::int(1));
    assert_eq!(world.reply(1, party), Some(Ok(value::int(0))));
    // A call that raises has not come, and refuses nothing.
    let gate = (Type::CountDownLatch, "gate");
    let stale = former(&mut world, gate, "wait", &[]);
    world.fence = fence(6);
    assert!(matches!(world.call(1, gate, "count_down", &[value::int(-1)]), Called::Now(_, Err(_))));
    assert_eq!(world.reply(2, stale), None);
    world.value(1, gate, "count_down", &[]);
    is_refused(&world, stale);
    let bytes: usize = world.space.entities.values().map(|entity| entity.state.bytes()).sum();
    assert_eq!(bytes, world.space.bytes);
}

#[test]
fn several_permits_are_acquired_at_once_in_the_order_of_the_calls() {
    let mut world = World::new(&[1, 2, 3]);
    let permits = (Type::Semaphore, "permits");
    let (one, two) = ([value::int(1)], [value::int(2)]);
    let session = |client| ([client; 16], Flags::default());
    let new = value::array([&*value::int(3), &*value::int(3)].into_iter());
    let (args, moment) = (value::array([&*two[0]].into_iter()), world.moment());
    let call = Call {
        session: session(1).0,
        number: world.number(1),
        acked: 0,
        kind: Type::Semaphore,
        key: "permits",
        incarnation: 0,
        method: Type::Semaphore.method("acquire").unwrap(),
        args: &args,
        new: Some(&new),
        flags: session(1).1,
        fence: None,
    };
    assert!(matches!(world.space.call(&call, moment).unwrap(), Called::Now(_, Ok(_))));
    let pair = world.waits(2, permits, "acquire", &two);
    let single = world.waits(3, permits, "acquire", &one);
    assert_eq!(world.value(1, permits, "value", &[]), value::int(1), "it does not overtake the one that wants two");
    let odd = world.call(1, permits, "acquire", &[value::int(4)]);
    assert!(matches!(odd, Called::Now(_, Err(raised)) if raised.class == "ValueError"), "there never are four");
    // The one that wants two gives up, and the one behind it goes on.
    let flags = Flags { give_up: true, ..Flags::default() };
    world.with(2, pair, permits, "acquire", &two, flags).unwrap();
    assert_eq!(world.reply(3, single), Some(Ok(value::boolean(true))));
    let pair = world.waits(2, permits, "acquire", &two);
    world.value(1, permits, "release", &two);
    assert_eq!(world.reply(2, pair), Some(Ok(value::boolean(true))));
    // What a session held is free when it ends, and so is the way for those behind it.
    let all = world.waits(1, permits, "acquire", &[value::int(3)]);
    let moment = world.moment();
    world.space.end(&[2; 16], moment);
    assert_eq!(world.reply(1, all), None);
    let single_more = world.waits(3, permits, "acquire", &one);
    let moment = world.moment();
    world.space.end(&[1; 16], moment);
    assert_eq!(world.reply(3, single_more), Some(Ok(value::boolean(true))));
}

#[test]
fn a_queue_shows_its_items_without_taking_them() {
    let mut world = World::new(&[1]);
    let jobs = (Type::Queue, "jobs");
    let empty = world.call(1, jobs, "peek", &[]);
    assert!(matches!(empty, Called::Now(_, Err(raised)) if raised.class == "queue.Empty"));
    assert_eq!(world.value(1, jobs, "items", &[]), value::array([].into_iter()));
    world.value(1, jobs, "put", &[value::int(7)]);
    for _ in 0..2 {
        assert_eq!(world.value(1, jobs, "peek", &[]), value::int(7));
        assert_eq!(world.value(1, jobs, "items", &[]), value::array([&*value::int(7)].into_iter()));
    }
    assert_eq!(world.value(1, jobs, "get", &[]), value::int(7));
}

#[test]
fn what_raises_changes_nothing() {
    let mut world = World::new(&[1]);
    let words = (Type::Counter, "words");
    let pairs = [value::text("a"), value::int(1), value::text("b"), value::text("no number")];
    let pairs = value::array(pairs.iter().map(Vec::as_slice));
    let called = world.call(1, words, "update", &[pairs]);
    assert!(matches!(called, Called::Now(_, Err(raised)) if raised.class == "TypeError"));
    assert_eq!(world.value(1, words, "len", &[]), value::int(0));
    world.value(1, HITS, "set", &[value::int(i64::MAX)]);
    let called = world.call(1, HITS, "add_and_get", &[]);
    assert!(matches!(called, Called::Now(_, Err(raised)) if raised.class == "OverflowError"));
}

#[test]
fn every_method_answers_calls_without_arguments_and_with_odd_ones() {
    let odd = [
        value::nil(),
        value::int(-1),
        value::int(i64::MAX),
        value::text("x"),
        value::float(f64::NAN),
        value::array([].into_iter()),
    ];
    for (kind, methods) in METHODS {
        let mut world = World::new(&[1]);
        // Classes are kept where hosts share a space.
        for method in methods.iter().filter(|method| method.name != CLASS_METHOD) {
            assert_eq!(kind.method(method.name).unwrap(), *method);
            for args in std::iter::once(Vec::new()).chain(odd.iter().map(|odd| vec![odd.clone()])).chain([odd.to_vec()])
            {
                let before = world.space.show_one("it");
                let called = world.call(1, (*kind, "it"), method.name, &args);
                if let Called::Now(_, Err(raised)) = &called {
                    assert_ne!(
                        raised.class,
                        "AttributeError",
                        "{}.{} is listed and not there",
                        kind.name(),
                        method.name
                    );
                    assert!(
                        before.is_none_or(|before| Some(before) == world.space.show_one("it")),
                        "{}.{}",
                        kind.name(),
                        method.name
                    );
                }
                assert!(method.waits || !matches!(called, Called::Waiting(_)), "{}.{}", kind.name(), method.name);
            }
        }
    }
}

#[test]
fn what_would_take_too_much_is_refused_and_changes_nothing() {
    let mut world = World::new(&[1]);
    let blob = (Type::Blob, "large");
    // Besides its bytes, a blob has the digest of its arguments.
    let made = 56;
    world.space.limits = Limits { entity: made + 400, space: made + 500, ..Limits::default() };
    let chunk = [value::bytes(&[0; 100])];
    for _ in 0..4 {
        world.value(1, blob, "append", &chunk);
    }
    let number = world.number(1);
    let error = world.with(1, number, blob, "append", &chunk, Flags::default()).unwrap_err();
    assert_eq!(error.code(), Code::ObjectTooLarge);
    assert_eq!(world.value(1, blob, "len", &[]), value::count(400));
    let number = world.number(1);
    let second = world.with(1, number, (Type::List, "second"), "append", &chunk, Flags::default());
    assert_eq!(second.unwrap_err().code(), Code::ObjectTooLarge, "beside the first");
    world.value(1, blob, "truncate", &[value::int(3)]);
    assert_eq!(world.space.bytes, made + 3);
    let moment = world.moment();
    world.space.delete("large", moment);
    assert_eq!(world.space.bytes, 0);
}

#[test]
fn sessions_are_counted_by_what_their_ids_begin_with() {
    let world = World::new(&[1, 2]);
    let same: [u8; 16] = std::array::from_fn(|at| if at < 8 { 1 } else { 9 });
    assert_eq!((world.space.like(&same, 8), world.space.like(&[1; 16], 8), world.space.like(&same, 9)), (1, 0, 0));
}

#[test]
fn a_result_with_many_waiters_is_stored_once_and_the_answers_of_all_sessions_are_bounded() {
    let mut world = World::new(&[1, 2, 3, 4]);
    let future = (Type::Future, "it");
    let waiting: Vec<(u8, u64)> = [1, 2, 3].map(|client| (client, world.waits(client, future, "result", &[]))).into();
    world.value(4, future, "set_result", &[value::bytes(&[7; 1000])]);
    let answers = waiting.iter().map(|(client, number)| world.space.reply(&[*client; 16], *number));
    let answers: Vec<Arc<[u8]>> = answers
        .map(|called| match called {
            Some(Called::Now(_, Ok(value))) => value,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(answers.iter().all(|answer| Arc::ptr_eq(answer, &answers[0])));
    assert!((1000..1100).contains(&world.space.kept.bytes), "{}", world.space.kept.bytes);
    world.space.limits.answers = 500;
    let number = world.number(4);
    let more = world.with(4, number, (Type::AtomicInt, "n"), "add_and_get", &[value::int(1)], Flags::default());
    assert_eq!(more.unwrap_err().code(), Code::ObjectsBusy);
    for client in [1, 2, 3] {
        let moment = world.moment();
        world.space.end(&[client; 16], moment);
    }
    assert!(world.space.kept.bytes < 100, "{}", world.space.kept.bytes);
    world.value(4, (Type::AtomicInt, "n"), "add_and_get", &[value::int(1)]);
}

#[test]
fn a_call_that_waits_is_not_forgotten_by_an_acknowledgement() {
    let mut world = World::new(&[1, 2]);
    let event = (Type::Event, "it");
    let number = world.waits(1, event, "wait", &[]);
    let Some(client) = world.space.sessions.get_mut(&[1; 16]) else { panic!("it is open") };
    client.acknowledge(number + 1, &mut world.space.kept);
    assert_eq!(client.calls.len(), 1, "it counts");
    world.value(2, event, "set", &[]);
    assert_eq!(world.space.take_ready(), [([1; 16], number)]);
    let Some(client) = world.space.sessions.get_mut(&[1; 16]) else { panic!("it is open") };
    client.acknowledge(number + 2, &mut world.space.kept);
    assert!(client.calls.is_empty());
}

#[test]
fn a_session_with_a_waiting_call_calls_on_and_the_answers_of_its_newest_calls_are_kept() {
    let mut world = World::new(&[1, 2]);
    let event = (Type::Event, "it");
    let waiting = world.waits(1, event, "wait", &[]);
    let calls = 3 * CALLS_MAX as u64;
    for _ in 0..calls {
        world.value(1, HITS, "add_and_get", &[]);
    }
    let last = world.number(1) - 1;
    let repeated = |world: &mut World, number| world.with(1, number, HITS, "add_and_get", &[], Flags::default());
    let kept = CALLS_MAX as u64 / 2;
    for (number, expected) in [(last, calls), (last - kept + 1, calls - kept + 1)] {
        let called = repeated(&mut world, number).unwrap();
        assert!(matches!(&called, Called::Now(_, Ok(value)) if **value == *value::int(expected as i64)), "{called:?}");
    }
    assert_eq!(repeated(&mut world, waiting + 1).unwrap_err().code(), Code::OutcomeUnknown);
    assert_eq!(world.number(2), 1, "the other session is as it was");
    assert!(world.space.sessions[&[1; 16]].calls.len() <= CALLS_MAX + 1);
    // The call that waits is asked for again, and gets its answer.
    let again = world.with(1, waiting, event, "wait", &[], Flags::default()).unwrap();
    assert!(matches!(again, Called::Waiting(_)), "{again:?}");
    world.value(2, event, "set", &[]);
    assert!(world.reply(1, waiting).is_some());
    let again = world.with(1, waiting, event, "wait", &[], Flags::default()).unwrap();
    assert!(matches!(again, Called::Now(_, Ok(_))), "{again:?}");
}

#[test]
fn an_answer_that_nobody_has_asked_for_since_it_came_is_not_forgotten() {
    let mut world = World::new(&[1, 2]);
    let event = (Type::Event, "it");
    let waiting: Vec<u64> = (0..CALLS_MAX + 10).map(|_| world.waits(1, event, "wait", &[])).collect();
    world.value(2, event, "set", &[]);
    for _ in 0..2 * CALLS_MAX {
        world.value(1, HITS, "add_and_get", &[]);
    }
    let again = |world: &mut World, number| world.with(1, number, event, "wait", &[], Flags::default());
    for number in &waiting {
        let called = again(&mut world, *number);
        assert!(matches!(called, Ok(Called::Now(_, Ok(_)))), "{number}: {called:?}");
    }
    // They were handed out; they are the oldest.
    for _ in 0..2 {
        world.value(1, HITS, "add_and_get", &[]);
    }
    assert_eq!(again(&mut world, waiting[0]).unwrap_err().code(), Code::OutcomeUnknown);
    assert!(world.space.sessions[&[1; 16]].calls.len() <= CALLS_MAX + 1);
}

#[test]
fn calls_that_were_answered_together_can_be_asked_for_again_together() {
    let mut world = World::new(&[1, 2]);
    let event = (Type::Event, "it");
    let waiting: Vec<u64> = (0..CALLS_MAX + CALLS_MAX / 2).map(|_| world.waits(1, event, "wait", &[])).collect();
    world.value(2, event, "set", &[]);
    // Their connection is lost with the answers.
    waiting.iter().for_each(|number| world.space.hand(&[1; 16], *number));
    for _ in 0..CALLS_MAX / 2 {
        world.value(1, HITS, "add_and_get", &[]);
    }
    for number in &waiting {
        let called = world.with(1, *number, event, "wait", &[], Flags::default());
        assert!(matches!(called, Ok(Called::Now(_, Ok(_)))), "{number}: {called:?}");
    }
    for _ in 0..2 * CALLS_MAX {
        world.value(1, HITS, "add_and_get", &[]);
    }
    assert!(world.space.sessions[&[1; 16]].calls.len() <= CALLS_MAX + 1, "they are forgotten in the end");
}

#[test]
fn answers_that_nobody_asks_for_do_not_keep_others_from_forgetting_theirs() {
    let mut world = World::new(&[1, 2, 3]);
    let (item, bytes) = (value::bytes(&[7; 1000]), 1000);
    world.space.limits.answers = 30 * bytes;
    // Session 1 is gone with 20 answers that nobody has asked for.
    let left: Vec<u64> = (0..20).map(|_| world.waits(1, (Type::Queue, "left"), "get", &[])).collect();
    for _ in &left {
        world.value(3, (Type::Queue, "left"), "put", std::slice::from_ref(&item));
    }
    for _ in 0..100 {
        world.value(3, (Type::Queue, "it"), "put", std::slice::from_ref(&item));
        world.value(2, (Type::Queue, "it"), "get", &[]);
    }
    assert!(world.space.kept.bytes <= 33 * bytes, "{}", world.space.kept.bytes);
    let called = world.with(1, left[0], (Type::Queue, "left"), "get", &[], Flags::default());
    assert!(matches!(called, Ok(Called::Now(_, Ok(_)))), "{called:?}");
}

#[test]
fn a_session_has_so_many_waiting_calls_at_most() {
    let mut world = World::new(&[1, 2]);
    let (event, other) = ((Type::Event, "it"), (Type::Event, "other"));
    for _ in 0..OPEN_MAX / 2 {
        world.waits(1, event, "wait", &[]);
        world.waits(1, other, "wait", &[]);
    }
    let number = world.number(1);
    let refused = world.with(1, number, event, "wait", &[], Flags::default()).unwrap_err();
    assert!(refused.code() == Code::ObjectsBusy && refused.detail().contains("200000 calls"), "{refused:?}");
    world.value(2, event, "set", &[]);
    world.value(2, other, "set", &[]);
    // They count until somebody has asked for their answers.
    assert!(world.with(1, number, event, "wait", &[], Flags::default()).is_err());
    for number in (1..number).step_by(2) {
        world.with(1, number, event, "wait", &[], Flags::default()).unwrap();
    }
    assert!(matches!(world.call(1, event, "wait", &[]), Called::Now(..)));
}

#[test]
fn answers_that_are_long_are_forgotten_by_their_size() {
    let mut world = World::new(&[1, 2]);
    let queue = (Type::Queue, "it");
    let item = value::bytes(&vec![7; 1 << 20]);
    let _waits = world.waits(1, (Type::Event, "other"), "wait", &[]);
    for _ in 0..200 {
        world.value(2, queue, "put", std::slice::from_ref(&item));
        world.value(1, queue, "get", &[]);
        assert!(world.space.sessions[&[1; 16]].bytes <= ANSWERS_MAX_BYTES + item.len());
    }
    let last = world.number(1) - 1;
    for (number, is_kept) in [(last, true), (last - 30, true), (last - 70, false)] {
        let called = world.with(1, number, queue, "get", &[], Flags::default()).unwrap();
        match called {
            Called::Now(_, Ok(_)) => assert!(is_kept, "{number}"),
            Called::Now(_, Err(raised)) => {
                assert!(!is_kept && raised.class == "millrace.AnswerForgotten", "{raised:?}")
            }
            Called::Waiting(_) => panic!("{number} was called"),
        }
    }
}

#[test]
fn calls_that_nobody_takes_the_answers_of_wait_no_longer() {
    let mut world = World::new(&[1, 2]);
    let queue = (Type::Queue, "it");
    let left = [world.waits(1, queue, "get", &[]), world.waits(1, queue, "get", &[])];
    let waits = world.waits(2, queue, "get", &[]);
    world.value(2, DOOR, "acquire", &[]);
    let _waits = world.waits(1, DOOR, "acquire", &[]);
    let condition = (Type::Condition, "condition");
    world.value(1, condition, "acquire", &[]);
    let _waits = world.waits(1, condition, "wait", &[]);
    let moment = world.moment();
    world.space.give_up_all(&[1; 16], moment);
    for number in left {
        assert!(world.reply(1, number).is_some_and(|reply| reply.is_err()), "it has timed out");
    }
    world.value(2, queue, "put", &[value::int(7)]);
    assert_eq!(world.reply(2, waits), Some(Ok(value::int(7))));
    world.value(2, DOOR, "release", &[]);
    world.value(2, DOOR, "acquire", &[]);
    world.value(2, condition, "acquire", &[]);
}

#[test]
fn sessions_with_the_longest_answers_forget_some_so_that_others_can_call() {
    let mut world = World::new(&[1, 2, 3]);
    let (item, bytes) = (value::bytes(&[7; 1000]), 1000);
    for limits in [(30 * bytes, usize::MAX), (usize::MAX, 30 * bytes)] {
        (world.space.limits.answers, world.space.limits.separate) = limits;
        for at in 0..200_u8 {
            let queue = (Type::Queue, "it");
            world.value(3, queue, "put", std::slice::from_ref(&item));
            world.value(1 + at % 2, queue, "get", &[]);
            assert!(world.space.kept.bytes <= 33 * bytes && world.space.kept.separate <= 33 * bytes);
        }
        for client in [1, 2] {
            let number = world.calls[&client];
            let called = world.with(client, number, (Type::Queue, "it"), "get", &[], Flags::default());
            assert!(matches!(called, Ok(Called::Now(_, Ok(_)))), "the newest answer is kept: {called:?}");
        }
    }
}
