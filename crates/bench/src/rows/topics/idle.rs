//! topic.groups: what a thousand groups without work cost a host.

use super::{Trio, patiently};
use crate::{Context, Outcome, rows::Measured};
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

const GROUPS: usize = 1000;

pub fn groups(context: &Context) -> Outcome<Measured> {
    let trio = Trio::start(context)?;
    let client = trio.client(0)?;
    let groups = if context.quick { GROUPS / 5 } else { GROUPS };
    let begin = Instant::now();
    for number in 0..groups {
        client.create_group(&format!("g{number:04}"), Vec::new(), 3)?;
    }
    let created_ms = begin.elapsed().as_secs_f64() * 1e3 / groups as f64;
    patiently("all groups rest", || {
        let all: Vec<Value> = serde_json::from_str(&client.show("cluster/groups")?)?;
        Ok(all.len() == groups + 1 && all.iter().all(|group| group["resting"] == true))
    })?;
    let time = Duration::from_secs(if context.quick { 5 } else { 30 });
    let before = (0..3).map(|at| trio.usage(at)).collect::<Outcome<Vec<_>>>()?;
    let start = Instant::now();
    thread::sleep(time);
    let elapsed = start.elapsed().as_secs_f64();
    let (mut cpu, mut resident_mb) = (0.0_f64, 0.0_f64);
    for (at, before) in before.iter().enumerate() {
        let usage = trio.usage(at)?;
        cpu = cpu.max(100.0 * (usage.cpu_s - before.cpu_s) / elapsed);
        resident_mb = resident_mb.max(usage.resident_mb);
    }
    // One that rests serves at once.
    client.create_topic("t", 10, None, Some("g0000"))?;
    let start = Instant::now();
    client.publish("t", b"x", None, None)?;
    let first_ms = start.elapsed().as_secs_f64() * 1e3;
    Ok(Measured::new(cpu, groups as u64)
        .target("< 5 % of a core", cpu < 5.0)
        .target("< 300 MB", resident_mb < 300.0)
        .also("resident memory", resident_mb, "MB")
        .also("to create a group, mean", created_ms, "ms")
        .also("a publish to a group that rests", first_ms, "ms")
        .note(format!(
            "{groups} groups of three voters on three hosts, to which nothing is published; processor time of the busiest host in {} s, \
             and the largest resident memory.",
            time.as_secs()
        )))
}
