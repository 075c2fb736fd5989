//! The changes of a repair, record by record.

use crate::{book, overlay::Overlay, past::Past};
use millrace_journal::Position;
use millrace_namespace::{Namespace, outbox::message};
use millrace_wire::{Code, LogName, Result};

/// One record in the original and in the repaired history; `None` where there is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The log.
    pub log: LogName,
    /// The record's seqno; 0 for one that is appended when the repair is applied.
    pub seqno: u64,
    /// Its bytes before.
    pub old: Option<Vec<u8>>,
    /// Its bytes with the repair.
    pub new: Option<Vec<u8>>,
}

/// Passes the changes of a repair to `visit`, by log and seqno, for all logs or one (which may have been removed since), until `visit`
/// returns `false`.
pub fn changes(
    namespace: &Namespace,
    number: u64,
    of: Option<&str>,
    visit: &mut dyn FnMut(Change) -> Result<bool>,
) -> Result<()> {
    let (journal, repair) = (namespace.journal(), book::repair(namespace, number)?);
    let mut past = Past::new(journal)?;
    past.follow(journal, journal.tail())?;
    if let Some(of) = of.filter(|of| past.logs.values().all(|log| *of != &*log.name)) {
        return Err(Code::LogNotFound.error(format!("no log '{}'", of.escape_debug())));
    }
    let mut new = Overlay::default();
    let before = past.applied.get(&number).map(|applied| applied.before.as_slice());
    // A rollback restores the records before the repair that it undoes.
    let put_back = repair.undo.and_then(|undone| past.applied.get(&undone)).map_or(&[][..], |applied| &applied.before);
    put_back.iter().for_each(|(slot, at)| new.insert(*slot, *at));
    if let Some(written) = past.written.get(&number) {
        written.slots.iter().for_each(|(slot, at)| new.insert(*slot, *at));
    }
    let mut old = Overlay::default();
    before.into_iter().flatten().for_each(|(slot, at)| old.insert(*slot, *at));
    let mut slots: Vec<_> = new.iter().collect();
    slots.sort_unstable_by_key(|(slot, _)| *slot);
    // Of a message, its content.
    let payload = |log: u32, at: Position| -> Result<Vec<u8>> {
        let payload = journal.entry_at(at)?.payload;
        Ok(if past.is_outbox(log) { message::decode(&payload)?.data.to_vec() } else { payload })
    };
    let bytes = |log: u32, at: crate::past::At| -> Result<Option<Vec<u8>>> {
        if at.void { Ok(None) } else { payload(log, at.position).map(Some) }
    };
    for ((log, seqno), now) in slots {
        let Some(of_log) = past.logs.get(&log).filter(|log| of.is_none_or(|of| of == &*log.name)) else { continue };
        let live = of_log.slots.get(&seqno).map(|slot| slot.at);
        let was = old.at(log, seqno).or(live).map_or(Ok(None), |at| bytes(log, at))?;
        let change = Change { log: of_log.name.clone(), seqno, old: was, new: bytes(log, now)? };
        if !visit(change)? {
            return Ok(());
        }
    }
    let extra = past.written.get(&number).map_or(&[][..], |written| &written.extra);
    let mut added = past.applied.get(&number).map_or(&[][..], |applied| &applied.added).iter().peekable();
    for extra in extra {
        let seqno = added.next_if(|(log, _)| *log == extra.log).map_or(0, |(_, seqno)| *seqno);
        let Some(of_log) = past.logs.get(&extra.log).filter(|log| of.is_none_or(|of| of == &*log.name)) else {
            continue;
        };
        let new = Some(payload(extra.log, extra.position)?);
        if !visit(Change { log: of_log.name.clone(), seqno, old: None, new })? {
            return Ok(());
        }
    }
    Ok(())
}
