//! Logs and how full they are.

use super::Page;
use millrace_documents::LogsDoc;
use millrace_node::{LogStat, Namespace, documents};
use millrace_wire::Result;

/// The logs that `sees` shows.
pub(super) fn list(
    namespace: &Namespace,
    sees: impl Fn(&str) -> bool,
    prefix: &str,
    newest: bool,
    page: &Page,
) -> Result<LogsDoc> {
    let stats = namespace.logs()?;
    let named = stats.iter().filter(|stat| stat.name.starts_with(prefix) && sees(&stat.name));
    let document = |stat: &&LogStat| documents::log_if_there(namespace, stat, newest);
    let (logs, next) = page.of_list(named, |stat| &stat.name, document)?;
    Ok(LogsDoc { logs, next })
}
