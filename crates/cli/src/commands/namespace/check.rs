//! What a verification found, for people and for programs.

use crate::{
    out::{Out, Style},
    progress::{Progress, Unit},
    report::{Failure, Outcome},
    show,
};
use millrace_node::{LostRecords, Namespace, Position, application::units};
use serde_json::{Value, json};

pub fn check(namespace: &Namespace, out: &mut Out) -> Outcome {
    let journal = namespace.journal();
    let progress = Progress::new("checking", Some(0), Unit::Bytes, true);
    let found = namespace.examine(&mut |done, total| progress.set_of(done, total))?;
    drop(progress);
    let (report, recovery, sound) = (&found.journal, journal.recovery(), found.is_sound());
    let faults: Vec<_> = report.faults.iter().chain(&found.functions).collect();
    let fault_count = report.fault_count + found.functions.len() as u64;
    if out.json() {
        let faults: Vec<Value> =
            faults.into_iter().map(|fault| crate::report::object(fault)["error"].clone()).collect();
        let damaged = ranges(&recovery.damaged);
        out.object(&json!({
            "sound": sound, "batches": report.batches, "entries": report.entries, "bytes": report.bytes,
            "fault_count": fault_count, "faults": faults, "lost": lost_objects(&found.lost), "damaged": damaged,
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
        out.line(format!("restored   it was {} up to epoch {}", ancestor.namespace, ancestor.epoch))?;
    }
    out.line(format!("journal    {} from position {}", units::show_size(report.bytes), journal.first().get()))?;
    out.line(format!("entries    {} in {}", show::grouped(entries), batches(report.batches)))?;
    out.line(format!("kinds      {}", kinds.join(", ")))?;
    if recovery.discarded_bytes > 0 {
        let bytes = units::show_size(recovery.discarded_bytes);
        out.line(format!("recovery   {bytes} behind the end were never acknowledged as durable"))?;
    }
    for fault in faults {
        let fault = out.styled(Style::Bad, &format!("damaged    {fault}"));
        out.line(fault)?;
    }
    if fault_count == 0 {
        for (from, to) in &recovery.damaged {
            let line = out.styled(Style::Bad, &format!("damaged    {from} to {to} was durable once, and is lost"));
            out.line(line)?;
        }
    }
    tell_lost(&found.lost, out)?;
    let verdict = match (sound, fault_count) {
        (true, _) => out.styled(Style::Good, "sound      every checksum, link and index agrees"),
        (false, 0) => out.styled(Style::Bad, "unsound    records are lost"),
        (false, n) => out.styled(Style::Bad, &format!("unsound    {}", show::count(n, "fault"))),
    };
    out.line(verdict)?;
    if sound { Ok(()) } else { Err(Failure::Said(1)) }
}

pub fn tell_lost(lost: &[LostRecords], out: &mut Out) -> Outcome {
    for LostRecords { log, from, to, unproven } in lost {
        let why = if *unproven { "begun, and never acknowledged as durable" } else { "damaged" };
        let records = if from == to { format!("record {from}") } else { format!("records {from} to {to}") };
        let line = out.styled(Style::Bad, &format!("lost       {records} of log '{log}': {why}"));
        out.line(line)?;
    }
    Ok(())
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
