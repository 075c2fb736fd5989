//! Logs and how full they are.

use super::{
    Page,
    text::{names, rfc3339},
};
use millrace_node::{LogStat, Namespace};
use millrace_wire::{Code, Result};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Logs {
    logs: Vec<LogDoc>,
    /// The log after which the next page begins, if there are more.
    next: Option<String>,
}

/// A log.
#[derive(Serialize)]
pub(super) struct LogDoc {
    name: String,
    #[serde(with = "millrace_wire::history")]
    history: u64,
    records: u64,
    earliest: u64,
    latest: u64,
    functions: Vec<String>,
    last_append: Option<String>,
    /// Tells this log from one that had its name before; a cursor begins with it.
    incarnation: u32,
}

/// Describes a log; with `newest`, also reads its newest record for the time of the append.
fn log_document(namespace: &Namespace, stat: &LogStat, newest: bool) -> Result<LogDoc> {
    let log = namespace.log(&stat.name)?;
    let mut payload = Vec::new();
    // It may be overtaken while we look; then nothing is said of it.
    let newest =
        (newest && stat.latest > 0).then(|| namespace.journal().get(&log, stat.latest, &mut payload).ok()).flatten();
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

/// The logs that `sees` shows.
pub(super) fn list(
    namespace: &Namespace,
    sees: impl Fn(&str) -> bool,
    prefix: &str,
    newest: bool,
    page: &Page,
) -> Result<Logs> {
    let stats = namespace.logs()?;
    let named = stats.iter().filter(|stat| stat.name.starts_with(prefix) && sees(&stat.name));
    let document = |stat: &&LogStat| match log_document(namespace, stat, newest) {
        Err(error) if error.code() == Code::LogNotFound => Ok(None), // It was removed while we looked.
        document => document.map(Some),
    };
    let (logs, next) = page.of_list(named, |stat| &stat.name, document)?;
    Ok(Logs { logs, next })
}

pub(super) fn one(namespace: &Namespace, name: &str) -> Result<LogDoc> {
    // Looked up by name first, so that an invalid name is reported as such.
    let name = namespace.log(name)?.name().clone();
    let stat = namespace.logs()?.into_iter().find(|stat| stat.name == name);
    log_document(namespace, &stat.ok_or_else(|| Code::LogNotFound.error(format!("no log '{name}'")))?, true)
}
