//! Logs and how full they are.

use super::{
    Bounded,
    text::{names, rfc3339},
};
use millrace_node::{LogStat, Namespace};
use millrace_wire::{Code, Result};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Logs {
    logs: Vec<LogDoc>,
}

/// A log.
#[derive(Serialize)]
pub(super) struct LogDoc {
    name: String,
    history: u64,
    records: u64,
    earliest: u64,
    latest: u64,
    functions: Vec<String>,
    last_append: Option<String>,
    /// Tells this log from one that had its name before; a cursor begins with it.
    incarnation: u32,
}

fn log_document(namespace: &Namespace, stat: &LogStat) -> Result<LogDoc> {
    let log = namespace.log(&stat.name)?;
    let mut payload = Vec::new();
    // It may be overtaken while we look; then nothing is said of it.
    let newest = (stat.latest > 0).then(|| namespace.journal().get(&log, stat.latest, &mut payload).ok()).flatten();
    Ok(LogDoc {
        name: stat.name.to_string(),
        history: stat.history,
        // A log may be trimmed of all its records: then the earliest is the one to come.
        records: if stat.earliest == 0 { 0 } else { (stat.latest + 1).saturating_sub(stat.earliest) },
        earliest: stat.earliest,
        latest: stat.latest,
        functions: names(&stat.functions),
        last_append: newest.map(|record| rfc3339(record.hlc)),
        incarnation: log.id(),
    })
}

pub(super) fn list(namespace: &Namespace, prefix: &str) -> Result<Logs> {
    let mut bounded = Bounded::new();
    let mut logs = Vec::new();
    for stat in namespace.logs()?.iter().filter(|stat| stat.name.starts_with(prefix)) {
        match log_document(namespace, stat) {
            Ok(log) if bounded.admits(&log) => logs.push(log),
            Ok(_) => break,
            Err(error) if error.code() == Code::LogNotFound => {} // It was removed while we looked.
            Err(error) => return Err(error),
        }
    }
    Ok(Logs { logs })
}

pub(super) fn one(namespace: &Namespace, name: &str) -> Result<LogDoc> {
    // Looked up by name first, so that a name that cannot be one says so.
    let name = namespace.log(name)?.name().clone();
    let stat = namespace.logs()?.into_iter().find(|stat| stat.name == name);
    log_document(namespace, &stat.ok_or_else(|| Code::LogNotFound.error(format!("no log '{name}'")))?)
}
