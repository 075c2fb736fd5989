//! `millrace bench`: appends as fast as a namespace takes them, or at a given rate, and says how long each took.

mod load;
mod parallelism;

use super::serve::on_signals;
use crate::{
    args::{BenchArgs, BenchCommand, Global},
    commands::log::durability,
    out::Out,
    place::{Place, Target},
    progress::{Progress, Unit},
    report::Outcome,
    show,
};
use load::{Load, Plan, Tally};
use millrace_node::{Code, LogName, Result, application::units};
use serde_json::{Value, json};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// The log keeps so few records that it can be removed at once.
const HISTORY: u64 = 1024;
/// Longer measurements give no further information.
const SECONDS_MAX: f64 = 3600.0;
const RATE_MAX: f64 = 1e8;
/// How often it is looked whether the time is up.
const TICK: Duration = Duration::from_millis(50);

pub fn run(args: &BenchArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(BenchCommand::Parallelism(args)) = &args.what {
        return parallelism::run(args);
    }
    let target = match &args.address {
        Some(address) => Target::named(address, global)?,
        None => Target::find(global)?.0,
    };
    let plan = plan(args)?;
    let place = Place::at(&target)?;
    let stop = on_signals(None)?;
    let log: LogName = format!("bench/{}-{:x}", std::process::id(), show::now_us()).parse()?;
    place.create_log(&log, HISTORY)?;
    let measured = measure(&target, &place, &log, &plan, &stop);
    // The log is removed, whatever the outcome.
    let removed = place.remove_log(&log);
    let tally = measured?;
    removed?;
    report(&target, &plan, &tally, tally.took(), out)
}

fn plan(args: &BenchArgs) -> Result<Plan> {
    let impossible = |why: String| Err(Code::ValueInvalid.error(why));
    if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
        return impossible(format!("--seconds is {}; it must be more than 0 and at most {SECONDS_MAX}", args.seconds));
    }
    if args.rate.is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX)) {
        return impossible("--rate must be more than 0 and at most 100000000".into());
    }
    let size = usize::try_from(args.size).unwrap_or(usize::MAX);
    if size > crate::commands::log::RECORD_MAX_BYTES {
        return impossible(format!(
            "--size is {size} bytes; a record has at most {}",
            crate::commands::log::RECORD_MAX_BYTES
        ));
    }
    Ok(Plan {
        size,
        connections: args.connections as usize, // at most 1024
        window: args.window as usize,           // at most 1024
        time: Duration::from_secs_f64(args.seconds),
        durability: args.durability.map(durability),
        rate: args.rate,
    })
}

fn measure(target: &Target, place: &Place, log: &str, plan: &Plan, stop: &Receiver<()>) -> Result<Tally> {
    let progress = Progress::new("measuring", Some(plan.time.as_millis() as u64), Unit::Millis, true);
    let load = Load::start(target, place, log, plan)?;
    let start = Instant::now();
    while start.elapsed() < plan.time && !load.has_ended() {
        match stop.recv_timeout(TICK.min(plan.time)) {
            Err(RecvTimeoutError::Timeout) => progress.set(start.elapsed().as_millis() as u64),
            // Stopped by a signal: prints the measurements so far.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // Answers to requests in progress are counted, and so is the time until they arrive.
    load.end()
}

const QUANTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn report(target: &Target, plan: &Plan, tally: &Tally, took: Duration, out: &mut Out) -> Outcome {
    let per_second = tally.records as f64 / took.as_secs_f64().max(1e-6);
    let latency: Vec<(&str, f64)> = QUANTILES
        .iter()
        .map(|(name, quantile)| (*name, tally.latency_ns.value_at_quantile(*quantile) as f64 / 1e3))
        .collect();
    if out.json() {
        let mean = ("mean", tally.latency_ns.mean() / 1e3);
        let quantiles: serde_json::Map<String, Value> = latency
            .iter()
            .chain([&mean])
            .map(|(name, us)| (name.to_string(), if tally.records == 0 { Value::Null } else { json!(us) }))
            .collect();
        return Ok(out.object(&json!({
            "target": target.to_string(), "size": plan.size, "connections": plan.connections, "window": plan.window,
            "durability": plan.durability, "rate": plan.rate, "seconds": took.as_secs_f64(),
            "records": tally.records, "per_second": per_second, "bytes_per_second": per_second * plan.size as f64,
            "latency_us": quantiles,
        }))?);
    }
    let bytes = units::show_size((per_second * plan.size as f64) as u64);
    let (records, rate) = (show::count(tally.records, "append"), show::grouped(per_second as u64));
    out.line(format!("target      {target}"))?;
    out.line(format!("throughput  {rate} appends/s, {bytes}/s ({records} in {})", units::show_duration(took)))?;
    if tally.records == 0 {
        out.line("latency     not measured: no append was due in this time")?;
        return Ok(());
    }
    let shown: Vec<String> = latency.iter().map(|(name, us)| format!("{name} {}", duration(*us))).collect();
    out.line(format!("latency     {}", shown.join("  ")))?;
    Ok(())
}

/// Microseconds as people read them.
fn duration(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} µs"),
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_shown_with_three_digits() {
        let shown = [0.25, 42.4, 1234.0, 2_500_000.0].map(duration);
        assert_eq!(shown, ["0.25 µs", "42 µs", "1.23 ms", "2.50 s"]);
    }
}
