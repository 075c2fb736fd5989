//! Random lives: both sides die, machines lose power, the line is cut at any moment; in the end both sides agree.

use super::*;
use millrace_wire::protocol::Delivered;
use std::time::{Duration, Instant};

const STEPS: usize = 150;

/// Appends one number to a log here and to the log there, in one batch: what survives here says what must arrive.
fn append_both(side: &Side, n: u64) {
    let records = [(b"all".as_slice(), "all"), (b"".as_slice(), THERE)];
    let payload = n.to_string().into_bytes();
    let records =
        records.map(|(_, log)| Ok(millrace_namespace::NewRecord { log: log.into(), payload: payload.clone() }));
    side.namespace().append_many(records, AppendOptions::default(), |_| ()).unwrap();
}

/// One random thing happens.
fn step(world: &mut World, random: &mut Random, n: &mut u64, append: fn(&Side, u64)) {
    match random.below(16) {
        0..=3 => {
            for _ in 0..random.below(6) {
                *n += 1;
                append(&world.a, *n);
            }
        }
        4 => drop(world.connect().unwrap()),
        5..=7 => drop(world.send(40).unwrap()),
        8..=10 => {
            let dies = random.below(12) == 0;
            world.arrive(dies).unwrap();
            if dies {
                world.cut();
                let with_machine = random.below(2) == 0;
                world.b.crash(with_machine.then_some(random));
            }
        }
        11..=12 => drop(world.answer().unwrap()),
        13 => world.cut(),
        14 => {
            world.cut();
            let with_machine = random.below(2) == 0;
            world.a.crash(with_machine.then_some(random));
        }
        _ => {
            let (a, b) = (world.a.namespace(), world.b.namespace());
            a.journal().maintain(&|_, _| false).unwrap();
            b.journal().maintain(&|_, _| false).unwrap();
        }
    }
}

fn live(name: &str, make: fn() -> World, append: fn(&Side, u64)) {
    let mut random = Random::new(name);
    let started = Instant::now();
    let (mut lives, mut carried) = (0, 0);
    while lives < 5 || started.elapsed() < Duration::from_secs(4) {
        let (mut world, mut n) = (make(), 0);
        for _ in 0..STEPS {
            step(&mut world, &mut random, &mut n, append);
        }
        world.carry().unwrap();
        let (sent, came) = (world.a.records("all"), world.b.records("in"));
        assert_eq!(sent, came, "life {lives}: what is here is not what arrived there");
        carried += came.len();
        lives += 1;
    }
    println!("{lives} lives, {carried} records");
    assert!(carried > 50, "{carried} records are no test");
}

#[test]
fn messages_survive_random_crashes() {
    live("outbox", world, append_both);
}

#[test]
fn relays_survive_random_crashes() {
    let append = |side: &Side, n: u64| side.append("all", n.to_string().as_bytes());
    live("relay", || relay_world(&RelayOptions::default()), append);
}

#[test]
fn records_that_are_not_safe_here_are_never_visible_there() {
    let mut random = Random::new("gate");
    let mut seen = 0;
    for round in 0..60 {
        let (mut world, mut n) = (relay_world(&RelayOptions::default()), 0);
        for _ in 0..20 {
            // Appended and not waited for: a power failure may take it.
            n += 1;
            let options =
                AppendOptions { durability: Some(millrace_namespace::Durability::Memory), ..AppendOptions::default() };
            world.a.namespace().append("all", format!("{round}.{n}").as_bytes(), options).unwrap();
            if random.below(4) == 0 {
                let _ = world.connect().unwrap();
                while world.send(1000).unwrap() {}
                while world.arrive(false).unwrap() {}
                break;
            }
        }
        world.a.crash(Some(&mut random));
        let (here, there) = (world.a.records("all"), world.b.records("in"));
        assert!(there.len() <= here.len() && here[..there.len()] == there, "{here:?} and {there:?}");
        seen += there.len();
        world.carry().unwrap();
        assert_eq!(world.a.records("all"), world.b.records("in"));
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn late_answers_of_an_old_stream_do_not_affect_the_new_one() {
    let mut world = world();
    send_numbers(&world.a, THERE, 1, 10);
    world.carry().unwrap();
    world.connect().unwrap();
    send_numbers(&world.a, THERE, 11, 15);
    world.send(1 << 20).unwrap();
    world.arrive(false).unwrap();
    world.a.links().reset_outbox("b_1_farm", false).unwrap();
    let course = |world: &World| world.a.links().peers().unwrap()[0].course.clone();
    let begun = course(&world);
    world.answer().unwrap();
    assert_eq!(course(&world), begun, "its answers do not count as those of the new one");
    let ahead = Delivered { number: 999, refused: None };
    assert_eq!(world.answer_with(&ahead).unwrap_err().code(), Code::LinkPeerAhead);
    assert_eq!(course(&world), begun, "what is wrong with it does not stop the new one");
    world.carry().unwrap();
    send_numbers(&world.a, THERE, 16, 20);
    world.carry().unwrap();
    assert_eq!(world.b.records("in"), numbers(1, 20));
}
