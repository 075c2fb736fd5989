//! `millrace device verify`: whether the firmware of a device computes what its twin does.

use crate::{
    args::{DeviceVerifyArgs, Global},
    commands::sandbox,
    out::{Out, Style, Table},
    place::{Found, Place},
    report::{Failure, Outcome},
    show,
};
use millrace_node::{Code, EventId, Record, Result, devices, repairs};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};

/// Differences that are printed one by one.
const LISTED_MAX: usize = 10;
const CHARS_MAX: usize = 40;

/// What was appended because of each record of a log of the device, by the number of that record.
type Outputs = BTreeMap<u64, Vec<Vec<u8>>>;

/// The newest records of a log, at most so many.
fn newest(place: &Place, log: &str, most: u64) -> Result<Vec<Record>> {
    let (earliest, latest) = place.bounds(log)?;
    let from = earliest.max((latest + 1).saturating_sub(most)).max(1);
    let mut records = Vec::new();
    if latest == 0 {
        return Ok(records);
    }
    let mut failed = None;
    let read = place.read(log, from, latest, &mut |_, found| {
        match found {
            Found::Record(record) => records.push(record),
            // What the device had dropped, or what was trimmed meanwhile.
            Found::Missed(_) => {}
            Found::Damaged(error) => failed = Some(error),
        }
        Ok(())
    });
    match failed {
        Some(error) => Err(error),
        None => read.map(|()| records).map_err(|_| Code::DocumentUnknown.error(format!("log '{log}' cannot be read"))),
    }
}

pub fn run(args: &DeviceVerifyArgs, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match (&args.log, &args.on, &args.twin) {
        (Some(log), Some(on), Some(twin)) => compare(&place, args, (log, on, twin), out),
        _ => replay(&place, args, out),
    }
}

/// Replays runs of the device with the twins of their functions.
fn replay(place: &Place, args: &DeviceVerifyArgs, out: &mut Out) -> Outcome {
    let namespace = place.files()?;
    if !devices::all(namespace)?.iter().any(|device| device.name == args.name) {
        let detail = format!("no device '{}' has sent entries to this namespace", args.name);
        return Err(Code::DeviceNotFound.error(detail).into());
    }
    let most = usize::try_from(args.last).unwrap_or(usize::MAX);
    let found = repairs::verify(namespace, most, Some(&args.name), &sandbox::isolation()?)?;
    if found.is_empty() {
        let detail = format!(
            "no run of device '{}' can be replayed: deploy a twin with `millrace function deploy MODEL.NAME --at MODEL`, or declare it in \
             [devices.MODEL] of millrace.toml",
            args.name
        );
        return Err(Code::FunctionNotFound.error(detail).into());
    }
    for ((function, _), verified) in &found {
        let differs = verified.differs.map(|run| run.to_string());
        if out.json() {
            let (runs, same) = (verified.runs, verified.same);
            out.object(
                &json!({ "device": args.name, "function": function, "runs": runs, "same": same, "differs": differs }),
            )?;
            continue;
        }
        let runs = show::count(verified.runs, "run");
        match differs {
            None => {
                out.line(format!("the firmware of {} and its twin {function} did the same in {runs}", args.name))?
            }
            Some(run) => {
                let other = show::grouped(verified.runs - verified.same);
                let said = format!(
                    "the firmware of {} differs from its twin {function}: {other} of {runs} left other records, such as {run}",
                    args.name
                );
                let said = out.styled(Style::Bad, &said);
                out.line(said)?;
            }
        }
    }
    if found.values().all(|verified| verified.differs.is_none()) { Ok(()) } else { Err(Failure::Said(1)) }
}

/// Compares the records of the device with those of another function of the namespace.
fn compare(place: &Place, args: &DeviceVerifyArgs, (log, on, twin_log): (&str, &str, &str), out: &mut Out) -> Outcome {
    let (on, log) = (format!("{}/{on}", args.name), format!("{}/{log}", args.name));
    // Records of runs that were not imported have the record that ran them as their cause.
    let mut inputs: HashMap<EventId, Option<u64>> =
        newest(place, &on, args.last)?.iter().map(|record| (record.id, Some(record.seqno))).collect();
    // Of each input, the device and its twin append about as many records.
    let mut outputs = |log: &str| -> Result<Outputs> {
        let mut outputs = Outputs::new();
        for record in newest(place, log, args.last)? {
            let input = match inputs.get(&record.cause) {
                Some(input) => *input,
                None => *inputs.entry(record.cause).or_insert(input_of(place, &on, record.cause)?),
            };
            if let Some(input) = input {
                outputs.entry(input).or_default().push(record.payload);
            }
        }
        Ok(outputs)
    };
    let (device, twin) = (outputs(&log)?, outputs(twin_log)?);
    // Only records that both have handled: one may be ahead of the other, and have a longer history.
    let mut both: Vec<u64> = device.keys().filter(|input| twin.contains_key(input)).copied().collect();
    both.sort_unstable();
    if both.is_empty() {
        let detail = format!(
            "no record of '{on}' led to records of both '{log}' and '{twin_log}'; a function bound to '{on}' that appends to '{twin_log}' is the twin"
        );
        return Err(Code::ValueInvalid.error(detail).into());
    }
    let differ: Vec<u64> = both.iter().filter(|input| device[input] != twin[input]).copied().collect();
    report(args, (&on, &log, twin_log), (&both, &differ), (&device, &twin), out)?;
    if differ.is_empty() { Ok(()) } else { Err(Failure::Said(1)) }
}

/// The record of the device that a run of the twin was for; none if it was for another log, or is not known any more.
fn input_of(place: &Place, on: &str, run: EventId) -> Result<Option<u64>> {
    if run.is_none() {
        return Ok(None);
    }
    match place.run(run) {
        Ok(run) if run.record.log.as_deref() == Some(on) => Ok(Some(run.record.seqno)),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.code(), Code::RunNotFound | Code::EventNotKept) => Ok(None),
        Err(error) => Err(error),
    }
}

fn report(
    args: &DeviceVerifyArgs,
    (on, log, twin_log): (&str, &str, &str),
    (both, differ): (&[u64], &[u64]),
    (device, twin): (&Outputs, &Outputs),
    out: &mut Out,
) -> Outcome {
    let line = |outputs: &[Vec<u8>]| -> String {
        outputs.iter().map(|record| show::brief(record, CHARS_MAX)).collect::<Vec<_>>().join(" | ")
    };
    if out.json() {
        let first = differ.iter().take(LISTED_MAX).map(
            |input| json!({ "log": on, "seqno": input, "device": line(&device[input]), "twin": line(&twin[input]) }),
        );
        let first: Vec<_> = first.collect();
        return Ok(out.object(&json!({
            "device": args.name, "log": log, "twin": twin_log, "compared": both.len(), "differ": differ.len(), "first": first,
        }))?);
    }
    let compared = show::count(both.len() as u64, "record");
    if differ.is_empty() {
        return Ok(out.line(format!("the firmware of {} and its twin did the same for {compared} of {on}", args.name))?);
    }
    let said = format!(
        "the firmware of {} differs from its twin: for {} of {compared} of {on}, '{log}' and '{}' have other records",
        args.name,
        show::grouped(differ.len() as u64),
        twin_log
    );
    let said = out.styled(Style::Bad, &said);
    out.line(said)?;
    let mut table = Table::new(&["record", "device", "twin"]);
    for input in differ.iter().take(LISTED_MAX) {
        table.row(vec![format!("{on}@{input}"), line(&device[input]), line(&twin[input])]);
    }
    Ok(out.table(&table)?)
}
