//! A namespace that is reached through its files.

use super::{Found, Receipt, check_incarnation, docs};
use crate::report::Outcome;
use docs::{AmendmentsDoc, ChangesDoc, FunctionDoc, LogDoc, RepairDoc, RunDoc, RunsDoc, WhyDoc};
use millrace_node::{
    AppendOptions, Code, EventId, LogName, Namespace, NewRecord, Record, Result, RunFilter, documents,
    repairs::{self, Ask},
};
use std::time::{Duration, Instant};

pub fn logs(namespace: &Namespace) -> Result<Vec<LogDoc>> {
    namespace.inspect(|namespace| {
        let logs = namespace.logs()?;
        logs.iter().filter_map(|log| documents::log_if_there(namespace, log, true).transpose()).collect()
    })
}

pub fn log(namespace: &Namespace, name: &str) -> Result<LogDoc> {
    namespace.inspect(|namespace| documents::log_named(namespace, name))
}

/// The oldest and the newest record that can be read, each 0 if there is none.
pub fn bounds(namespace: &Namespace, log: &str) -> Result<(u64, u64)> {
    namespace.inspect(|namespace| {
        let log = namespace.log(log)?;
        Ok((log.earliest(), log.latest()))
    })
}

/// Says whether it was there already.
pub fn create_log(namespace: &Namespace, name: &LogName, history: u64) -> Result<bool> {
    let existed = namespace.log(name).is_ok();
    namespace.create_log(name, history)?;
    Ok(existed)
}

pub fn append(namespace: &Namespace, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
    let receipt = namespace.append(log, data, options)?;
    Ok(Receipt { seqno: receipt.seqno, id: receipt.id })
}

pub fn append_many(
    namespace: &Namespace,
    records: Vec<Result<NewRecord>>,
    options: AppendOptions<'_>,
    progress: &mut dyn FnMut(&[Receipt]),
) -> Result<()> {
    namespace.append_many(records, options, |batch| {
        let receipts: Vec<Receipt> =
            batch.iter().map(|receipt| Receipt { seqno: receipt.seqno, id: receipt.id }).collect();
        progress(&receipts);
    })
}

pub fn read(
    namespace: &Namespace,
    log: &str,
    incarnation: Option<u32>,
    (from, to): (u64, u64),
    visit: &mut dyn FnMut(u64, Found) -> Outcome,
) -> Outcome {
    let mut next = from;
    while next <= to {
        let read = namespace.get(log, next);
        if incarnation.is_some() {
            // Ids of logs only grow: if it is the same now, it was when it was read.
            check_incarnation(log, incarnation, Some(namespace.log(log)?.id()))?;
        }
        match read {
            Ok(record) => visit(next, Found::Record(record))?,
            // Records that were appended meanwhile pushed it out of the history.
            Err(error) if error.code() == Code::BelowHistory => {
                let earliest = bounds(namespace, log)?.0;
                let missed = earliest.clamp(next + 1, to.saturating_add(1).max(next + 1)) - next;
                visit(next, Found::Missed(missed))?;
                next += missed;
                continue;
            }
            Err(error) if error.code() == Code::EntryDamaged => visit(next, Found::Damaged(error))?,
            // A repair took it away.
            Err(error) if error.code() == Code::RecordVoid => {}
            Err(error) => return Err(error.into()),
        }
        next += 1;
    }
    Ok(())
}

/// The newest seqno, as soon as it is above `seen` or the time is up.
pub fn wait_above(namespace: &Namespace, log: &str, seen: u64, timeout: Duration) -> Result<u64> {
    // By name every time: the log may have been removed, and another may have its name by now.
    let log = namespace.log(log)?;
    namespace.journal().wait_log(&log, seen, timeout)
}

pub fn functions(namespace: &Namespace) -> Result<Vec<FunctionDoc>> {
    namespace.inspect(|namespace| Ok(namespace.functions()?.iter().map(documents::function).collect()))
}

pub fn runs(namespace: &Namespace, filter: &RunFilter) -> Result<Vec<RunDoc>> {
    namespace.inspect(|namespace| Ok(namespace.runs(filter)?.iter().map(documents::run).collect()))
}

pub fn runs_page(namespace: &Namespace, filter: &RunFilter) -> Result<RunsDoc> {
    namespace.inspect(|namespace| {
        let page = namespace.runs_page(filter)?;
        let runs = page.runs.iter().map(documents::run).collect();
        Ok(RunsDoc { runs, next: page.next.map(|next| next.to_string()) })
    })
}

pub fn run(namespace: &Namespace, id: EventId) -> Result<RunDoc> {
    namespace.inspect(|namespace| namespace.run(id).map(|view| documents::run(&view)))
}

/// The run once it has ended, or as it is when the time is up.
pub fn wait_run(namespace: &Namespace, id: EventId, timeout: Duration) -> Result<RunDoc> {
    let started = Instant::now();
    let journal = namespace.journal();
    loop {
        let seen = journal.tail();
        let view = namespace.inspect(|namespace| namespace.run(id))?;
        let left = timeout.saturating_sub(started.elapsed());
        if view.ended.is_some() || left.is_zero() {
            return Ok(documents::run(&view));
        }
        journal.wait(seen, left.min(Duration::from_secs(1)));
    }
}

/// A document of what the host would answer.
fn reported<T: serde::de::DeserializeOwned>(value: &impl serde::Serialize) -> Result<T> {
    let document = serde_json::to_value(value).and_then(serde_json::from_value);
    document.map_err(|error| Code::DocumentUnknown.error(format!("a repair: {error}")))
}

pub fn ask_repair<T: serde::de::DeserializeOwned>(namespace: &Namespace, ask: Ask) -> Result<T> {
    reported(&namespace.inspect(|namespace| ask.ask(namespace))?)
}

pub fn amendments(namespace: &Namespace) -> Result<Vec<AmendmentsDoc>> {
    reported(&namespace.inspect(repairs::amendments)?)
}

pub fn repairs(namespace: &Namespace) -> Result<Vec<RepairDoc>> {
    reported(&namespace.inspect(repairs::repairs)?)
}

pub fn repair(namespace: &Namespace, number: u64) -> Result<RepairDoc> {
    reported(&namespace.inspect(|namespace| repairs::repair(namespace, number))?)
}

pub fn repair_changes(namespace: &Namespace, number: u64, log: Option<&str>, after: u64) -> Result<ChangesDoc> {
    reported(&namespace.inspect(|namespace| repairs::page(namespace, number, log, after))?)
}

pub fn why(namespace: &Namespace, target: &str) -> Result<WhyDoc> {
    namespace.inspect(|namespace| documents::why(namespace, target))
}

pub fn get(namespace: &Namespace, log: &str, seqno: u64) -> Result<Record> {
    namespace.get(log, seqno)
}

pub fn newest(namespace: &Namespace, log: &str) -> Result<Record> {
    namespace.newest(log)
}
