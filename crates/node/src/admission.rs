//! Admission: who may still add to the runs that wait for a function.
//!
//! Room is handed out in three levels, so that work in progress can always finish and nothing waits for itself: appends
//! from outside stop at `pending_max`, appends of runs at twice that, and dead letters at four times. A dead letter, and
//! a run that feeds its own function, takes the place of the run that ends with it.

use crate::bindings::{Bindings, Bound};
use millrace_journal::{Appended, Log, Transaction};
use millrace_wire::{Code, Error, EventId, Result};

/// How long a refused appender is told to wait before it tries again.
pub const RETRY_AFTER_MS: u64 = 100;

/// The same for what somebody has to put right first, such as a full disk.
pub const RETRY_LATER_MS: u64 = 1000;

/// When it makes sense to try again what was refused with this code; none if that helps nobody.
pub fn retry_after_ms(code: Code) -> Option<u64> {
    match code {
        Code::Busy | Code::OutboxFull => Some(RETRY_AFTER_MS),
        Code::DiskFull | Code::ReadOnly | Code::JournalFull | Code::FlushFailed | Code::JournalPoisoned => {
            Some(RETRY_LATER_MS)
        }
        _ => None,
    }
}

/// On whose behalf a record is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Outside,
    Run,
    DeadLetter,
}

impl Room {
    fn multiple(self) -> u64 {
        match self {
            Room::Outside => 1,
            Room::Run => 2,
            Room::DeadLetter => 4,
        }
    }

    /// The most runs that may wait for this function, counting the one being added.
    pub fn most(self, bound: Bound) -> u64 {
        bound.pending_max.saturating_mul(self.multiple())
    }

    /// The refusal when there is no room for `log`'s functions.
    pub fn refusal(self, log: &str, function: &str, pending: u64) -> Error {
        match self {
            Room::Outside => Code::Busy.error(format!(
                "{pending} runs of function '{function}' are pending, so log '{log}' takes no more; \
                 retry after {RETRY_AFTER_MS} ms"
            )),
            Room::Run | Room::DeadLetter => Code::RoomExhausted
                .error(format!("{pending} runs of function '{function}', bound to log '{log}', are pending")),
        }
    }
}

/// Appends one record and triggers the functions bound to its log, and `named` besides; refuses when one has no room.
///
/// Nothing is staged when this refuses.
pub(crate) fn append(
    tx: &mut Transaction<'_>,
    bindings: &Bindings,
    log: &Log,
    payload: &[u8],
    options: Stage,
) -> Result<Appended> {
    let bound = bindings.of_log(log.id());
    let named = options.named.filter(|named| !bound.contains(named));
    for bound in bound.iter().copied().chain(named) {
        let ending = u64::from(options.ending == Some(bound.function));
        let pending = tx.pending(bound.function).saturating_sub(ending);
        if pending >= options.room.most(bound) {
            let name = bindings.definition(bound.function).map_or("?", |definition| &*definition.spec.name);
            return Err(options.room.refusal(log.name(), name, pending));
        }
    }
    let appended = tx.append(log, payload, options.cause, options.ordinal)?;
    for bound in bound.iter().copied().chain(named) {
        tx.trigger(bound.function, appended.id, log, appended.seqno)?;
    }
    Ok(appended)
}

/// What goes with a record that is appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub cause: EventId,
    pub ordinal: u16,
    pub room: Room,
    /// A function that this record is to run besides those bound to its log.
    pub named: Option<Bound>,
    /// The function of the run that ends with this batch: its place is free.
    pub ending: Option<u32>,
}
