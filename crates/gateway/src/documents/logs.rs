//! Logs and how full they are.

use super::{Bounded, Page, Query, invalid};
use millrace_documents::{FolderDoc, LogsDoc};
use millrace_node::{LogStat, Namespace, documents};
use millrace_wire::Result;

/// Which logs are listed.
pub(super) enum Within {
    /// Those whose names have this beginning.
    Prefix(String),
    /// One level of names behind this beginning: the folders there, and the logs that are in none of them.
    Below(String),
}

impl Within {
    pub fn of(query: &mut Query) -> Result<Within> {
        match (query.take("prefix"), query.take("below")) {
            (Some(_), Some(_)) => Err(invalid("'prefix' and 'below' cannot both be given")),
            (_, Some(below)) if below.is_empty() || below.ends_with('/') => Ok(Within::Below(below)),
            (_, Some(_)) => Err(invalid("parameter 'below' does not end in a slash")),
            (prefix, None) => Ok(Within::Prefix(prefix.unwrap_or_default())),
        }
    }
}

/// The logs that `sees` shows.
pub(super) fn list(
    namespace: &Namespace,
    sees: impl Fn(&str) -> bool,
    within: &Within,
    newest: bool,
    page: &Page,
) -> Result<LogsDoc> {
    let stats = namespace.logs()?;
    let (Within::Prefix(prefix) | Within::Below(prefix)) = within;
    let named = stats.iter().filter(|stat| stat.name.starts_with(&**prefix) && sees(&stat.name));
    let document = |stat: &&LogStat| documents::log_if_there(namespace, stat, newest);
    match within {
        Within::Prefix(_) => {
            let (logs, next) = page.of_list(named, |stat| &stat.name, document)?;
            Ok(LogsDoc { folders: None, logs, next })
        }
        Within::Below(below) => level(named, below, page, document),
    }
}

/// One level of names. A page that ends behind a folder goes on behind everything in it.
fn level<'s>(
    named: impl Iterator<Item = &'s LogStat>,
    below: &str,
    page: &Page,
    document: impl Fn(&&'s LogStat) -> Result<Option<millrace_documents::LogDoc>>,
) -> Result<LogsDoc> {
    let (mut folders, mut logs, mut bounded): (Vec<FolderDoc>, Vec<_>, _) = (Vec::new(), Vec::new(), Bounded::new());
    let mut last = None;
    for stat in named {
        let (name, after) = (&*stat.name, &*page.after);
        if !after.is_empty() && (name <= after || after.ends_with('/') && name.starts_with(after)) {
            continue;
        }
        let folder = name[below.len()..].find('/').map(|slash| &name[..=below.len() + slash]);
        let records = if stat.earliest == 0 { 0 } else { (stat.latest + 1).saturating_sub(stat.earliest) };
        if let Some(same) = folders.last_mut().filter(|last| Some(&*last.name) == folder) {
            (same.logs, same.records) = (same.logs + 1, same.records.saturating_add(records));
            continue;
        }
        let is_full = folders.len() + logs.len() == page.limit;
        match folder {
            Some(folder) => {
                let one = FolderDoc { name: folder.into(), logs: 1, records };
                if is_full || !bounded.admits(&one) {
                    return Ok(LogsDoc { folders: Some(folders), logs, next: last });
                }
                folders.push(one);
                last = Some(folder.to_owned());
            }
            None => {
                let Some(one) = document(&stat)? else { continue };
                if is_full || !bounded.admits(&one) {
                    return Ok(LogsDoc { folders: Some(folders), logs, next: last });
                }
                logs.push(one);
                last = Some(name.to_owned());
            }
        }
    }
    Ok(LogsDoc { folders: Some(folders), logs, next: None })
}
