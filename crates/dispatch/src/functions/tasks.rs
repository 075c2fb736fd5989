//! Tasks: runs of a pool's function. Each appends its result to a log of the pool, in the batch that ends it, whether it succeeded or not.
//!
//! ```text
//!  _bodies/POOL   functions that clients have pickled and tasks name
//!  _tasks/POOL    [ id: 24 bytes ][ what to run ]            one record, one run
//!  _results/POOL  [ kind ][ id: 24 bytes ][ the outcome ]
//! ```
//!
//! The client chooses the id; by it, the clients of a pool recognize their own results.

use millrace_journal::{End, Position, Transaction};
use millrace_namespace::{
    Ending, Namespace,
    admission::{Publish, Room, Stage},
    no_function,
    runs::pending::{RecordOf, pending},
    tasks,
};
use millrace_wire::{Code, Error, Name, Result};

/// The maximum length of the description of an error in a result.
const ERROR_MAX_BYTES: usize = 16 << 10;

/// Appends the result of a task that is given up, so that waiters get it.
pub(crate) fn leave_failure(
    publish: &Publish<'_>,
    tx: &mut Transaction<'_>,
    (log, task): (&str, &[u8]),
    error: &Error,
    stage: Stage,
) -> Result<()> {
    let (Some(pool), Some(id)) = (tasks::pool_of(log), task.get(..tasks::ID_BYTES)) else { return Ok(()) };
    let Some(results) = tx.catalog().clone().logs().find(|log| **log.name() == *tasks::results(pool)).cloned() else {
        return Ok(());
    };
    let detail = error.detail();
    let detail = &detail[..detail.floor_char_boundary(ERROR_MAX_BYTES)];
    let result = [&[tasks::FAILED][..], id, error.code().id().as_bytes(), detail.as_bytes()].concat();
    publish.append(tx, &results, &result, stage).map(drop)
}

/// Ends a task if no attempt of it has begun; returns whether it did, and the journal position that shows this.
pub fn cancel(namespace: &Namespace, pool: &Name, seqno: u64) -> Result<(bool, Position)> {
    let name = tasks::function(pool)?;
    let error = Code::TaskCancelled.error("it was cancelled before it began");
    let committed = namespace.journal().commit(|tx| {
        let function = tx.catalog().function(&name).cloned().ok_or_else(|| no_function(&name))?;
        for run in pending(namespace.journal(), &function, 1) {
            let run = run?;
            let Some(found) = run.found() else { continue };
            if found.record.1 != seqno {
                continue;
            }
            if found.attempts_begun() > 0 {
                return Ok(false);
            }
            let Some(log) = tx.catalog().log_by_id(found.record.0).cloned() else { return Ok(false) };
            let of = RecordOf { run: (found.function, found.run.number), cause: found.cause, log: &log, seqno };
            let task = namespace.record_of_run(of)?;
            let begun = tx.next_sequence();
            let publish = Publish::new(namespace, tx);
            let stage = Stage {
                cause: found.run.id,
                ordinal: 0,
                room: Room::DeadLetter,
                named: None,
                ending: Some(function.id()),
            };
            leave_failure(&publish, tx, (log.name(), &task), &error, stage)?;
            let effects = tx.next_sequence() - begun;
            tx.done(function.id(), found.run, &End { effects, ..Ending::dead(&error, &[]).to_end() })?;
            return Ok(true);
        }
        Ok(false)
    })?;
    Ok((committed.value, committed.end))
}
