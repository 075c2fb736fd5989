//! Logs and how full they are.

use super::{LogDoc, Page};
use millrace_node::{LogStat, Namespace};
use millrace_wire::{Code, Result};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Logs {
    logs: Vec<LogDoc>,
    /// The log after which the next page begins, if there are more.
    next: Option<String>,
}

/// Describes a log; with `newest`, also reads its newest record for the time of the append.
fn log_document(namespace: &Namespace, stat: &LogStat, newest: bool) -> Result<LogDoc> {
    let log = namespace.log(&stat.name)?;
    let mut payload = Vec::new();
    // It may be overtaken while we look; then nothing is said of it.
    let newest =
        (newest && stat.latest > 0).then(|| namespace.journal().get(&log, stat.latest, &mut payload).ok()).flatten();
    Ok(LogDoc::of(stat, newest.map(|record| record.hlc), log.id()))
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
