//! topic.groups: many groups on the same three hosts, without work.

use super::cluster::{Cluster, HOSTS};
use crate::{Context, Outcome, measure::Repeated, rows::Measured};
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

const GROUPS: usize = 1000;
const GROUPS_QUICK: usize = 50;

pub fn groups(context: &Context) -> Outcome<Measured> {
    let cluster = Cluster::start(context)?;
    let leader = cluster.leader()?;
    let client = cluster.client(leader)?;
    let count = if context.quick { GROUPS_QUICK } else { GROUPS };
    let time = Duration::from_secs(if context.quick { 3 } else { 20 });
    let before = (0..HOSTS).map(|host| cluster.resident_mb(host)).collect::<Outcome<Vec<f64>>>()?;
    let start = Instant::now();
    for number in 0..count {
        client.create_group(&format!("g{number}"), Vec::new(), HOSTS as u64)?;
    }
    let created = start.elapsed();
    cluster.await_that("all groups rest", |cluster| {
        let mut resting = 0;
        for host in 0..HOSTS {
            let all: Vec<Value> = serde_json::from_str(&cluster.client(host)?.show("cluster/groups")?)?;
            resting += all.iter().filter(|group| group["role"] == "leader" && group["resting"] == true).count();
        }
        thread::sleep(Duration::from_millis(200));
        Ok(resting >= count)
    })?;
    let [mut cpu, mut resident] = [(); 2].map(|()| Repeated::default());
    for host in 0..HOSTS {
        let (from, start) = (cluster.cpu_s(host)?, Instant::now());
        thread::sleep(time);
        cpu.push((cluster.cpu_s(host)? - from) / start.elapsed().as_secs_f64() * 100.0);
        resident.push(cluster.resident_mb(host)?);
    }
    let (most_cpu, most_mb) = (cpu.most(), resident.most());
    let note = format!(
        "{count} groups with three voters are created one after the other in {:.1} s, and not used until none of them \
         sends heartbeats. Then the processor time of each host over {} s and its resident memory are measured. The \
         value is that of the busiest host.",
        created.as_secs_f64(),
        time.as_secs()
    );
    Ok(Measured::new(most_cpu, HOSTS as u64)
        .target("CPU < 5 % of a core", most_cpu < 5.0)
        .target("resident memory < 300 MB per host", most_mb < 300.0)
        .also("resident memory, the largest host", most_mb, "MB")
        .also("resident memory before the groups", before.into_iter().fold(0.0, f64::max), "MB")
        .also("groups created", count as f64 / created.as_secs_f64(), "/s")
        .note(note))
}
