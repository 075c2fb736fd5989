//! The load: connections that append, each on a thread of its own.
//!
//! With a rate, appends are due at even times, and latency counts from then: a late answer delays the appends behind it, and
//! their latency shows it. Without a rate, an append is due when the window admits it, so that rate × mean latency is what is
//! in flight: at most connections × window (Little's law).

use crate::place::{Place, Target, remote::Remote};
use hdrhistogram::Histogram;
use millrace_node::{AppendOptions, Code, Durability, NewRecord, Result};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Latencies are kept to a thousandth.
const DIGITS: u8 = 3;
/// Longer latencies count as this one.
const LATENCY_MAX_NS: u64 = 600_000_000_000;
/// How long an append waits for room while functions lag behind.
const PATIENCE: Duration = Duration::from_secs(5);

/// The settings of the load.
#[derive(Clone, Debug)]
pub struct Plan {
    pub size: usize,
    pub connections: usize,
    pub window: usize,
    pub time: Duration,
    pub durability: Option<Durability>,
    pub rate: Option<f64>,
}

/// The measurements.
pub struct Tally {
    pub records: u64,
    pub latency_ns: Histogram<u64>,
    began: Instant,
    ended: Instant,
}

impl Tally {
    pub fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).expect("bounds and digits in order");
        let now = Instant::now();
        Self { records: 0, latency_ns, began: now, ended: now }
    }

    /// From the first connection's start to the last one's end.
    pub fn took(&self) -> Duration {
        self.ended - self.began
    }

    /// Counts records that were all answered now.
    pub fn count(&mut self, records: usize, since: Instant) {
        let took_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.records += records as u64;
        self.latency_ns.saturating_record_n(took_ns.max(1), records as u64);
    }
}

/// When appends are due.
pub struct Schedule {
    next: Instant,
    every: Option<Duration>,
}

impl Schedule {
    /// The schedule of one of several connections that share the rate, for `records` at a time.
    pub fn new(plan: &Plan, connection: usize, records: usize) -> Self {
        let every = plan.rate.map(|rate| Duration::from_secs_f64((plan.connections * records) as f64 / rate));
        let offset = every.map_or(Duration::ZERO, |every| every.mul_f64(connection as f64 / plan.connections as f64));
        Self { next: Instant::now() + offset, every }
    }

    /// When the next append is due; without a rate, as soon as it can be sent.
    pub fn due(&mut self) -> Option<Instant> {
        let due = self.every.map(|_| self.next);
        self.next += self.every.unwrap_or_default();
        due
    }
}

/// Connections at work.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Connections that have ended, all of them or one for a reason of its own.
    ended: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Result<Tally>>>,
}

impl Load {
    /// Starts the connections; when it returns, all of them are open.
    pub fn start(target: &Target, place: &Place, log: &str, plan: &Plan) -> Result<Load> {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut load = Load { stop, ended, threads: Vec::new() };
        for connection in 0..plan.connections {
            match load.connection(target, place, log, plan, connection) {
                Ok(thread) => load.threads.push(thread),
                Err(error) => {
                    // Running threads end first; their results no longer matter.
                    let _ = load.end();
                    return Err(error.within(format!("connection {}", connection + 1)));
                }
            }
        }
        Ok(load)
    }

    fn connection(
        &self,
        target: &Target,
        place: &Place,
        log: &str,
        plan: &Plan,
        connection: usize,
    ) -> Result<JoinHandle<Result<Tally>>> {
        let (stop, ended) = (self.stop.clone(), self.ended.clone());
        let (plan, log) = (plan.clone(), log.to_string());
        // A namespace's files are opened once for all; each connection is one of its own.
        let place = match place {
            Place::Local(namespace) => Place::Local(namespace.clone()),
            Place::Remote(..) => Place::at(target)?,
        };
        let work = move || {
            let tally = match &place {
                Place::Local(_) => files(&place, &log, &plan, connection, &stop),
                Place::Remote(remote, _) => pipelined(remote, &log, &plan, connection, &stop),
            };
            ended.fetch_add(1, Ordering::Relaxed);
            tally
        };
        let builder = thread::Builder::new().name(format!("bench-{connection}"));
        millrace_threads::spawn(builder, work)
            .map_err(|error| Code::BenchImpossible.error(format!("a thread cannot be started: {error}")))
    }

    /// Whether a connection has ended before it was asked to.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) > 0
    }

    /// Ends the connections, and adds up what they measured; the first error of any of them counts.
    pub fn end(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Tally::new();
        let mut result = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(tally)) => {
                    sum.records += tally.records;
                    (sum.began, sum.ended) = (sum.began.min(tally.began), sum.ended.max(tally.ended));
                    sum.latency_ns.add(&tally.latency_ns).expect("histograms of the same bounds add up");
                }
                Ok(Err(error)) => result = result.and(Err(error)),
                Err(_) => result = result.and(Err(Code::BenchImpossible.error("a connection's thread panicked"))),
            }
        }
        result.map(|()| sum)
    }
}

/// Appends to a namespace's files: `window` records to a commit.
fn files(place: &Place, log: &str, plan: &Plan, connection: usize, stop: &AtomicBool) -> Result<Tally> {
    let options = AppendOptions { durability: plan.durability, patience: PATIENCE, ..AppendOptions::default() };
    let payload = vec![b'x'; plan.size];
    let mut tally = Tally::new();
    let mut schedule = Schedule::new(plan, connection, plan.window);
    // However short the time: what is due is appended, once at least.
    loop {
        let due = schedule.due().unwrap_or_else(Instant::now);
        if !sleep_until(due, stop) {
            break;
        }
        if plan.window == 1 {
            place.append(log, &payload, options)?;
            tally.count(1, due);
        } else {
            let record = || Ok(NewRecord { log: log.into(), payload: payload.clone() });
            let records = std::iter::repeat_with(record).take(plan.window).collect();
            place.append_many(records, options, &mut |receipts| tally.count(receipts.len(), due))?;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    tally.ended = Instant::now();
    Ok(tally)
}

/// Appends over a connection, with up to `window` of them under way.
fn pipelined(remote: &Remote, log: &str, plan: &Plan, connection: usize, stop: &AtomicBool) -> Result<Tally> {
    let options = millrace_client::AppendOptions { durability: plan.durability, ..Default::default() };
    let payload = vec![b'x'; plan.size];
    let mut pipeline = remote.pipeline(plan.window as u32)?; // at most 1024
    let mut tally = Tally::new();
    let mut schedule = Schedule::new(plan, connection, 1);
    // When those under way were due, the oldest first.
    let mut under_way: VecDeque<Instant> = VecDeque::with_capacity(plan.window);
    let mut count = |outcome: Result<millrace_client::Receipt>, under_way: &mut VecDeque<Instant>| {
        let due = under_way.pop_front();
        outcome.map(|_| due.map_or((), |due| tally.count(1, due)))
    };
    loop {
        let due = schedule.due();
        // Ahead of time, answers are taken; behind it, appends go out at once, as many as the window admits.
        let early = || due.is_some_and(|due| due > Instant::now());
        while !under_way.is_empty() && (under_way.len() == plan.window || early()) {
            match pipeline.next()? {
                Some(outcome) => count(outcome, &mut under_way)?,
                None => break,
            }
        }
        // Without a rate, from here on: the wait for the window is not the append's.
        let due = due.unwrap_or_else(Instant::now);
        if !sleep_until(due, stop) {
            break;
        }
        pipeline.append(log, &payload, options)?;
        under_way.push_back(due);
        if plan.rate.is_some() {
            pipeline.flush()?;
        }
        while let Some(outcome) = pipeline.ready() {
            count(outcome, &mut under_way)?;
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    while let Some(outcome) = pipeline.next()? {
        count(outcome, &mut under_way)?;
    }
    tally.ended = Instant::now();
    Ok(tally)
}

/// Sleeps until then; returns false if a stop was requested meanwhile.
fn sleep_until(due: Instant, stop: &AtomicBool) -> bool {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shared_evenly() {
        let plan = Plan {
            size: 1,
            connections: 4,
            window: 1,
            time: Duration::from_secs(1),
            durability: None,
            rate: Some(1000.0),
        };
        let mut schedules: Vec<Schedule> = (0..4).map(|connection| Schedule::new(&plan, connection, 1)).collect();
        for schedule in &mut schedules {
            let (first, second) = (schedule.due().unwrap(), schedule.due().unwrap());
            assert_eq!(second - first, Duration::from_millis(4), "each of four does a quarter of 1000 a second");
        }
    }
}
