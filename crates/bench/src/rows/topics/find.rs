//! topic.find: which group has a topic, in a cluster with many groups.

use super::chord::Chord;
use crate::{
    Context, Outcome,
    machine::memory_mb,
    measure::{Repeated, Samples},
    peers::echo::Echo,
    picture::{Curve, curves},
    rows::Measured,
};
use millrace_group::{Action, Command, Member, Origin, Topics, Without};
use std::{
    hint::black_box,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

const GROUPS: usize = 10_000;
const TOPICS: usize = 200_000;
const QUICK: usize = 100;
const LOOKUPS: usize = 20_000;
/// The rings that the picture shows have two to the power of this many groups.
const POWERS: RangeInclusive<u32> = 4..=14;
const HOST: u64 = 1;
const MESSAGE_BYTES: usize = 64;
const PACE: Duration = Duration::from_micros(500);

pub fn find(context: &Context) -> Outcome<Measured> {
    let share = if context.quick { QUICK } else { 1 };
    let (groups, topics) = (GROUPS / share, TOPICS / share);
    let (before, begun) = (memory_mb(std::process::id(), "VmRSS")?, Instant::now());
    let made = cluster(groups, topics)?;
    let (built, resident) = (begun.elapsed(), memory_mb(std::process::id(), "VmRSS")? - before);
    let names: Vec<String> = (0..LOOKUPS).map(|lookup| topic(lookup * 7919 % topics)).collect();
    let mut mean = Repeated::default();
    for _ in 0..context.repetitions(9) {
        let start = Instant::now();
        for name in &names {
            black_box(made.directory().placed(name).ok_or("a topic is not in the directory")?);
        }
        mean.push(start.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64);
    }
    let mut echoes = Samples::new();
    Echo::start(MESSAGE_BYTES, MESSAGE_BYTES)?.paced(2000, PACE, &mut echoes)?;
    let (value, ring, messages) = (mean.median(), hops(groups), bound(groups));
    let note = format!(
        "Every host has the directory of the cluster in its memory, as part of the group `main`, and finds the group \
         of a topic there without a message. With {topics} topics in {groups} groups, mean of {LOOKUPS} lookups, {}; \
         the directory was built from its commands in {:.1} s. Chord: a ring of as many groups whose finger tables \
         are all correct, mean of {LOOKUPS} lookups. Each message of Chord waits for the answer to the previous one, \
         and takes at least as long as the echo of {MESSAGE_BYTES} bytes between processes of one machine.",
        mean.spread(),
        built.as_secs_f64()
    );
    Ok(Measured::new(value, LOOKUPS as u64)
        .target("≤ (½ log₂ N + 1) × echo", value <= messages * echoes.p50_us() * 1000.0)
        .also("memory per topic", resident * 1e6 / topics as f64, "bytes")
        .peer("Chord, simulated, messages", ring)
        .peer("½ log₂ N + 1, messages", messages)
        .peer("echo, p50, ns", echoes.p50_us() * 1000.0)
        .drawing(drawing())
        .note(note))
}

/// Messages of a lookup over the number of groups.
fn drawing() -> String {
    let points = |of: fn(usize) -> f64| POWERS.map(|power| (f64::from(power), of(1 << power))).collect();
    let chord = Curve { name: "Chord, simulated", points: points(hops) };
    let limit = Curve { name: "½ log₂ N + 1", points: points(bound) };
    let own = Curve { name: "Millrace: the directory of each host", points: points(|_| 0.0) };
    curves("Messages to find the group of a topic among N groups", "log₂ N", &[chord, limit, own])
}

fn bound(groups: usize) -> f64 {
    (groups as f64).log2() / 2.0 + 1.0
}

fn topic(number: usize) -> String {
    format!("site{}/sensor{number}/raw", number % 100)
}

/// The state of the group `main` behind the commands that make these groups and topics.
fn cluster(groups: usize, topics: usize) -> Outcome<Topics> {
    let (mut state, mut serial) = (Topics::default(), 0);
    let member = Member { id: HOST, ..Member::default() };
    let mut submit = |action| -> Outcome<u64> {
        serial += 1;
        let origin = Origin { host: HOST, boot: 1, serial, settled: serial };
        let applied = state.apply(serial, Command { origin, action, data: &[] }, &mut Without);
        Ok(applied.ok_or("a command was applied before")??)
    };
    submit(Action::Member(member))?;
    let mut ids = Vec::with_capacity(groups);
    for group in 0..groups {
        ids.push(submit(Action::Group { name: format!("g{group}"), hosts: vec![HOST], size: 1 })?);
    }
    for number in 0..topics {
        let group = u32::try_from(ids[number % groups])?;
        submit(Action::Place { topic: topic(number), group })?;
    }
    Ok(state)
}

/// The mean over lookups that begin at different groups.
fn hops(groups: usize) -> f64 {
    let ring = Chord::new(groups);
    let hops: u64 = (0..LOOKUPS).map(|lookup| ring.hops(lookup * 7919, &topic(lookup))).sum();
    hops as f64 / LOOKUPS as f64
}
