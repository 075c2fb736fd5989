//! object.failover: a hundred clients, and the host that leads the objects is killed.

use super::{Caller, Target, cluster::Cluster};
use crate::{
    Context, Outcome,
    picture::{Curve, curves},
    rows::Measured,
};
use millrace_journal::Durability;
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

const CLIENTS: u32 = 100;
/// What is counted at once.
const BIN: Duration = Duration::from_millis(200);

pub fn failover(context: &Context) -> Outcome<Measured> {
    let bins = if context.quick { 60 } else { 150 };
    let (killed_at, back_at) = (bins / 3, 2 * bins / 3);
    let mut cluster = Cluster::start(context, 3, Durability::Memory)?;
    let callers = (0..CLIENTS).map(|id| Caller::open(cluster.client(id as usize % 3)?, id + 1));
    let mut callers = callers.collect::<Outcome<Vec<_>>>()?;
    let target = Target::of("AtomicInt", "hits", "add_and_get", &[0x91, 1]).copied(2);
    // Every session is one of the group before anything is lost.
    callers.iter_mut().try_for_each(|caller| caller.call(target))?;
    let (is_over, done, errors) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut rates = Vec::new();
    let outcome = thread::scope(|scope| -> Outcome<()> {
        for mut caller in callers {
            let (is_over, done, errors) = (&is_over, &done, &errors);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let counted = if caller.call(target).is_ok() { done } else { errors };
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let observed = (|| -> Outcome<()> {
            let (mut lost, mut before) = (0, 0);
            for bin in 0..bins {
                if bin == killed_at {
                    lost = cluster.leader(0)?;
                    cluster.die(lost);
                }
                if bin == back_at {
                    cluster.live(lost)?;
                }
                let start = Instant::now();
                thread::sleep(BIN);
                let now = done.load(Ordering::Relaxed);
                rates.push((now - before) as f64 / start.elapsed().as_secs_f64());
                before = now;
            }
            Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        observed
    });
    outcome?;
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let (steady, without) = (mean(&rates[killed_at / 2..killed_at]), mean(&rates[(killed_at + back_at) / 2..back_at]));
    let reached =
        |from: usize, rate: f64| rates[from..].iter().position(|now| *now >= rate).map(|bins| bins as f64 * 0.2);
    let interrupted = reached(killed_at, without / 2.0).unwrap_or(f64::INFINITY);
    let restored = reached(back_at, 0.9 * steady.min(mean(&rates[rates.len() - 5..]))).unwrap_or(f64::INFINITY);
    let errors = errors.load(Ordering::Relaxed);
    let series: Vec<f64> = rates.chunks(5).map(mean).collect();
    let shown: Vec<String> = series.iter().map(|rate| format!("{rate:.0}")).collect();
    Ok(Measured::new(restored, u64::from(CLIENTS))
        .target("≤ 5 s", restored <= 5.0)
        .target("no client error", errors == 0)
        .also("calls before, all clients", steady, "/s")
        .also("calls while the host is down, all clients", without, "/s")
        .also("time without an answer after the kill", interrupted, "s")
        .also("errors of clients", errors as f64, "")
        .drawing(drawing(&series, killed_at / 5, back_at / 5))
        .note(format!(
            "{CLIENTS} blocking clients increment one object with rf 2 on three hosts, which are processes on this \
             machine. The leader is killed after {} s, and started again after {} s. Value: the time from its start \
             until nine tenths of the initial rate are reached. Calls in each second: {}.",
            killed_at / 5,
            back_at / 5,
            shown.join(" ")
        )))
}

/// The calls of each second.
fn drawing(series: &[f64], killed_s: usize, back_s: usize) -> String {
    let points = (1..).map(f64::from).zip(series.iter().copied()).collect();
    let axis = format!("second; the leader is killed after {killed_s} s, and started again after {back_s} s");
    curves(&format!("Calls per second of {CLIENTS} clients"), &axis, &[Curve { name: "", points }])
}
