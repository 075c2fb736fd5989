//! Admission: whether an append may add pending runs to a function.
//!
//! There are three limits, so that work in progress can always finish and nothing waits for itself: appends from outside stop at
//! `pending_max`, appends of runs at twice that, and dead letters at four times. A dead letter, and a run that feeds its own function,
//! takes the place of the run that ends with it.

mod backfill;
pub mod devices;
pub mod mirrors;
mod publish;

pub use backfill::{Backfilled, Stretch};
pub use publish::Publish;

use crate::bindings::{Bindings, Bound};
use millrace_journal::{Appended, Log, Origin, Transaction};
use millrace_wire::{Code, Error, EventId, RETRY_AFTER_MS, Result};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
};

/// When this one of those who are refused is to try again: each at another moment, spread evenly over as long again as
/// the shortest wait, so that they do not all come back at once.
pub(crate) fn retry_after_ms() -> u32 {
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    // Multiples of the golden section, modulo one, lie as far from each other as they can.
    let spread = REFUSED.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9);
    RETRY_AFTER_MS + ((u64::from(spread) * u64::from(RETRY_AFTER_MS)) >> 32) as u32 // less than twice as long
}

/// On whose behalf a record is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// From outside.
    Outside,
    /// Of a run, or of another namespace whose stream has begun.
    Run,
    /// A dead letter.
    DeadLetter,
    /// The copy of a topic's record in its mirror.
    Mirror,
}

impl Room {
    fn multiple(self) -> u64 {
        match self {
            Room::Outside | Room::Mirror => 1,
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
            Room::Outside | Room::Mirror => {
                let after_ms = retry_after_ms();
                let reported = format!(
                    "{pending} runs of function '{function}' are pending, so log '{log}' accepts no more records; \
                     retry after {after_ms} ms"
                );
                Code::Busy.error(reported).retry_after(after_ms)
            }
            Room::Run | Room::DeadLetter => Code::RoomExhausted
                .error(format!("{pending} runs of function '{function}', bound to log '{log}', are pending")),
        }
    }
}

/// The refusal of a batch that alone runs a function more often than may be pending: there will never be room for it.
pub fn too_large<'a>(bindings: &Bindings, logs: impl Iterator<Item = &'a Log>, named: Option<Bound>) -> Option<Error> {
    let mut runs: HashMap<u32, (Bound, u64)> = HashMap::new();
    for log in logs {
        let bound = bindings.of_log(log.id());
        for bound in bound.iter().chain(named.as_ref().filter(|named| !bound.contains(named))) {
            runs.entry(bound.function).or_insert((*bound, 0)).1 += 1;
        }
    }
    let (bound, runs) = runs.into_values().find(|(bound, runs)| *runs > Room::Outside.most(*bound))?;
    let function = bindings.definition(bound.function).map_or("?", |definition| &*definition.spec.name);
    let most = bound.pending_max;
    let detail = format!("{runs} records of the batch run function '{function}', which may have {most} runs pending");
    Some(Code::BatchTooLarge.error(detail))
}

/// Stages a record with its cause and its ordinal there. A cause that a client gives is only a claim; the host knows the effects of the
/// runs that it executed.
pub fn record(
    tx: &mut Transaction<'_>,
    room: Room,
    log: &Log,
    payload: &[u8],
    (cause, ordinal): (EventId, u16),
) -> Result<Appended> {
    if matches!(room, Room::Outside | Room::Mirror) {
        tx.append_claimed(log, payload, cause, ordinal)
    } else {
        tx.append(log, payload, cause, ordinal)
    }
}

/// Appends one record and triggers the functions bound to its log, and `named` besides; refuses when one has no room.
///
/// Nothing is staged when this refuses.
pub fn append(
    tx: &mut Transaction<'_>,
    bindings: &Bindings,
    log: &Log,
    payload: &[u8],
    options: Stage,
) -> Result<Appended> {
    append_by(tx, bindings, log, options, |tx| record(tx, options.room, log, payload, (options.cause, options.ordinal)))
}

/// The same of a record that `stage` stages.
fn append_by(
    tx: &mut Transaction<'_>,
    bindings: &Bindings,
    log: &Log,
    options: Stage,
    stage: impl FnOnce(&mut Transaction<'_>) -> Result<Appended>,
) -> Result<Appended> {
    if options.room != Room::Mirror && bindings.is_mirror(log.id()) {
        return Err(Code::LogIsMirror.error(format!("log '{}' is the mirror of a topic", log.name())));
    }
    if bindings.is_of_device(log.id()) {
        return Err(Code::LogOfDevice.error(format!("log '{}' has the records of a device", log.name())));
    }
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
    let appended = stage(tx)?;
    for bound in bound {
        tx.trigger(bound.function, appended.id, log, appended.seqno, Origin::Bound)?;
    }
    if let Some(named) = named {
        tx.trigger(named.function, appended.id, log, appended.seqno, Origin::Named)?;
    }
    Ok(appended)
}

/// The options of an append.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Its cause.
    pub cause: EventId,
    /// Which one it is of the records of its cause.
    pub ordinal: u16,
    /// On whose behalf it is appended.
    pub room: Room,
    /// A function that this record is to run besides those bound to its log.
    pub named: Option<Bound>,
    /// The function of the run that ends with this batch: its place is free.
    pub ending: Option<u32>,
}
