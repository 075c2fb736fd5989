//! Names of logs that the runtime writes, and how it appends notes to them and reads the newest one.

use crate::Namespace;
use millrace_journal::Transaction;
use millrace_wire::{Code, LogName, Result};

/// The log with notes of how far repairs are.
pub const REPAIRS: &str = "_repairs";

/// Refuses logs that belong to the runtime.
pub fn check_public(name: &str) -> Result<()> {
    if LogName::is_internal(name) {
        return Err(Code::LogInternal.error(format!("log '{}' belongs to the runtime", name.escape_debug())));
    }
    Ok(())
}

/// The name of an internal log.
pub fn internal(name: &str) -> LogName {
    debug_assert!(LogName::is_internal(name));
    name.parse().expect("internal names are names")
}

/// Appends to a log of the runtime, which comes into being if need be.
pub fn note(tx: &mut Transaction<'_>, log: &LogName, history: u64, payload: &[u8]) -> Result<()> {
    let log = match tx.catalog().log(log) {
        Some(log) => log.clone(),
        None => tx.create_log(log, history)?,
    };
    tx.append(&log, payload, millrace_wire::EventId::NONE, 0).map(drop)
}

/// The newest record of a log of the runtime; none if there is none.
pub fn newest_note(namespace: &Namespace, log: &str) -> Result<Option<Vec<u8>>> {
    let journal = namespace.journal();
    let catalog = journal.catalog()?;
    let Some(log) = catalog.log(log).filter(|log| log.latest() > 0) else { return Ok(None) };
    let mut payload = Vec::new();
    loop {
        let newest = log.latest();
        match journal.get(log, newest, &mut payload) {
            Ok(_) => return Ok(Some(payload)),
            // Others have appended so many meanwhile that this one has left the history.
            Err(error) if error.code() == Code::BelowHistory && log.latest() > newest => {}
            Err(error) => return Err(error),
        }
    }
}

/// A name that is made of parts known to be good.
pub fn log_name(text: &str) -> LogName {
    text.parse().expect("made of parts that are names")
}
