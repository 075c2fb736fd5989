//! The results of a verification, for people and for programs.

use crate::{
    out::{Out, Style},
    progress::{Progress, Unit},
    report::{Failure, Outcome},
    show,
};
use millrace_node::{
    Error, LostRecords, Name, Namespace, Position, Rebuilt, application::units, upkeep, upkeep::Inspection,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub fn check(namespace: &Namespace, out: &mut Out) -> Outcome {
    let journal = namespace.journal();
    let progress = Progress::new("checking", Some(0), Unit::Bytes, true);
    let found = upkeep::examine(namespace, &mut |done, total| progress.set_of(done, total))?;
    drop(progress);
    let (report, recovery, sound) = (&found.journal, journal.recovery(), found.is_sound());
    let (faults, fault_count) = faults(&found);
    if out.json() {
        let faults = fault_objects(&faults);
        let damaged = ranges(&recovery.damaged);
        out.object(&json!({
            "sound": sound, "batches": report.batches, "entries": report.entries, "bytes": report.bytes,
            "fault_count": fault_count, "faults": faults, "lost": lost_objects(&found.lost), "damaged": damaged,
            "warnings": fault_objects(&report.warnings.iter().collect::<Vec<_>>()),
            "missing": lost_objects(&found.missing), "missing_runs": found.missing_runs, "rebuilt": found.rebuilt.as_ref().map(rebuilt_object),
            "first": journal.first().get(), "tail": journal.tail().get(), "durable": journal.durable().get(),
            "namespace": journal.namespace().to_string(), "epoch": journal.epoch(),
            "lineage": journal.lineage().iter().map(|ancestor| ancestor.namespace.to_string()).collect::<Vec<_>>(),
            "recovery": { "scanned": recovery.scanned, "discarded_bytes": recovery.discarded_bytes },
        }))?;
        return if sound { Ok(()) } else { Err(Failure::Said(1)) };
    }
    let entries: u64 = report.entries.values().sum();
    let kinds: Vec<String> = report.entries.iter().map(|(kind, n)| format!("{kind} {}", show::grouped(*n))).collect();
    out.line(format!("namespace  {} (epoch {})", journal.namespace(), journal.epoch()))?;
    for ancestor in journal.lineage() {
        out.line(format!("restored   from namespace {}, as of epoch {}", ancestor.namespace, ancestor.epoch))?;
    }
    out.line(format!("journal    {} from position {}", units::show_size(report.bytes), journal.first().get()))?;
    for pin in journal.pins()? {
        out.line(format!("pinned     {} protects everything from position {} on from retention", pin.owner, pin.from))?;
    }
    out.line(format!("entries    {} in {}", show::grouped(entries), batches(report.batches)))?;
    out.line(format!("kinds      {}", kinds.join(", ")))?;
    if recovery.discarded_bytes > 0 {
        let bytes = units::show_size(recovery.discarded_bytes);
        let what = match recovery.damaged.is_empty() {
            true => "were never acknowledged as durable, and are ignored",
            false => "are ignored; because of the damage, it is not known whether they were acknowledged as durable",
        };
        out.line(format!("recovery   {bytes} after the journal's end {what}"))?;
    }
    tell_faults(&faults, out)?;
    for warning in &report.warnings {
        let line = out.styled(Style::Warn, &format!("warning    {warning}"));
        out.line(line)?;
    }
    tell_rebuilt(found.rebuilt.as_ref(), out)?;
    if fault_count == 0 {
        for (from, to) in &recovery.damaged {
            let line =
                out.styled(Style::Bad, &format!("damaged    positions {from} to {to} were durable, and are lost"));
            out.line(line)?;
        }
    }
    tell_lost(&found.lost, out)?;
    for missing in &found.missing {
        out.line(format!("missing    {}: lost when this namespace was salvaged", records(missing)))?;
    }
    for (function, runs) in &found.missing_runs {
        out.line(format!(
            "missing    {}: lost when this namespace was salvaged, and now dead letters",
            runs_of(function, *runs)
        ))?;
    }
    let verdict = match (sound, fault_count) {
        (true, _) => {
            let missing: u64 = found.missing.iter().map(|missing| missing.to - missing.from + 1).sum();
            let without = match missing {
                0 => String::new(),
                n => format!("; {} lost when it was salvaged", show::count(n, "record")),
            };
            out.styled(
                Style::Good,
                &format!("sound      all checksums, links between entries, and indexes are correct{without}"),
            )
        }
        (false, 0) => out.styled(Style::Bad, "unsound    records are lost"),
        (false, n) => out.styled(Style::Bad, &format!("unsound    {}", show::count(n, "fault"))),
    };
    out.line(verdict)?;
    if sound { Ok(()) } else { Err(Failure::Said(1)) }
}

/// All that is wrong, as far as it is kept, and how much it is.
fn faults(found: &Inspection) -> (Vec<&Error>, u64) {
    let manifest = found.rebuilt.as_ref().and_then(|rebuilt| rebuilt.manifest.as_ref());
    let others: Vec<&Error> = manifest.into_iter().chain(&found.files).chain(&found.functions).collect();
    let count = found.journal.fault_count + others.len() as u64;
    (others.into_iter().chain(&found.journal.faults).collect(), count)
}

fn fault_objects(faults: &[&Error]) -> Vec<Value> {
    faults.iter().map(|fault| crate::report::object(fault)["error"].clone()).collect()
}

fn tell_faults(faults: &[&Error], out: &mut Out) -> Outcome {
    for fault in faults {
        let fault = out.styled(Style::Bad, &format!("damaged    {fault}"));
        out.line(fault)?;
    }
    Ok(())
}

/// The findings of the verification of a new backup.
pub fn backup_object(found: &Inspection) -> Value {
    let (faults, fault_count) = faults(found);
    json!({
        "sound": found.is_sound(), "fault_count": fault_count, "faults": fault_objects(&faults),
        "lost": lost_objects(&found.lost),
    })
}

/// Tells what a backup lacks.
pub fn tell_backup(found: &Inspection, out: &mut Out) -> Outcome {
    tell_faults(&faults(found).0, out)?;
    tell_lost(&found.lost, out)
}

pub fn tell_lost_runs(lost: &BTreeMap<Name, u64>, out: &mut Out) -> Outcome {
    for (function, runs) in lost {
        let line = format!("lost       {}: became dead letters (MR2032)", runs_of(function, *runs));
        let line = out.styled(Style::Bad, &line);
        out.line(line)?;
    }
    Ok(())
}

fn runs_of(function: &Name, runs: u64) -> String {
    format!("{} of function '{function}'", show::count(runs, "run"))
}

pub fn tell_lost(lost: &[LostRecords], out: &mut Out) -> Outcome {
    for lost in lost {
        let why = if lost.unproven { "written, but never acknowledged as durable" } else { "damaged" };
        let line = out.styled(Style::Bad, &format!("lost       {}: {why}", records(lost)));
        out.line(line)?;
    }
    Ok(())
}

fn records(LostRecords { log, from, to, .. }: &LostRecords) -> String {
    if from == to { format!("record {from} of log '{log}'") } else { format!("records {from} to {to} of log '{log}'") }
}

/// The information that is available without a manifest, and what is missing.
pub fn tell_rebuilt(rebuilt: Option<&Rebuilt>, out: &mut Out) -> Outcome {
    let Some(Rebuilt { manifest, cataloged, unnamed, functions, left_out }) = rebuilt else { return Ok(()) };
    if manifest.is_some() {
        let known =
            if *cataloged { "with all its content" } else { "without retention and durability, which are lost" };
        out.line(format!("rebuilt    the manifest, from the segments, {known}"))?;
    }
    for name in unnamed {
        out.line(format!("unnamed    log '{name}': its original name and its history are lost"))?;
    }
    for id in functions {
        out.line(format!("unknown    function {id}: its definition and its pending runs are lost"))?;
    }
    for number in left_out {
        out.line(format!("left out   segment {number}: the segments between it and the others are missing"))?;
    }
    Ok(())
}

pub fn rebuilt_object(rebuilt: &Rebuilt) -> Value {
    let Rebuilt { manifest, cataloged, unnamed, functions, left_out } = rebuilt;
    let error = manifest.as_ref().map(|error| crate::report::object(error)["error"].clone());
    json!({ "manifest": error, "cataloged": cataloged, "unnamed": unnamed, "functions": functions, "left_out": left_out })
}

/// Ranges of the journal.
pub fn ranges(ranges: &[(Position, Position)]) -> Vec<Value> {
    ranges.iter().map(|(from, to)| json!({ "from": from.get(), "to": to.get() })).collect()
}

pub fn lost_objects(lost: &[LostRecords]) -> Vec<Value> {
    let object = |lost: &LostRecords| {
        let reason = if lost.unproven { "unproven" } else { "damaged" };
        json!({ "log": lost.log, "from": lost.from, "to": lost.to, "reason": reason })
    };
    lost.iter().map(object).collect()
}

fn batches(n: u64) -> String {
    format!("{} batch{}", show::grouped(n), if n == 1 { "" } else { "es" })
}
