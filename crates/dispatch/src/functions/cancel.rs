//! Cancels one run: it ends permanently, and publishes nothing.

use super::tasks;
use millrace_journal::{End, Outcome, Position};
use millrace_namespace::{
    Ending, Namespace, Shows, Site,
    admission::{Publish, Room, Stage},
    runs::pending::RecordOf,
};
use millrace_wire::{Code, EventId, Result};

/// Cancels a run: see [`cancel_gated`].
pub fn cancel(namespace: &Namespace, id: EventId) -> Result<()> {
    let end = cancel_gated(namespace, id)?;
    namespace.settle(Site::GiveUpFunction, Shows::Report(end), None)
}

/// Ends a run that is pending or in progress with a DONE of the kind cancelled. An attempt in progress publishes nothing more, and its
/// process is stopped soon; appends that a streamed run has published stay. There is no dead letter; the result of a task is that it was
/// cancelled. Returns the position of the DONE, which is not durable yet.
///
/// # Errors
///
/// `RunOver` if it has ended; `RunNotFound` if there is no such run.
pub fn cancel_gated(namespace: &Namespace, id: EventId) -> Result<Position> {
    let journal = namespace.journal();
    let fold = namespace.fold_of(id, false)?.ok_or_else(|| Code::RunNotFound.error(format!("no run {id}")))?;
    let over = || Code::RunOver.error(format!("run {id} has ended"));
    if fold.outcome().is_some() {
        return Err(over());
    }
    let error = Code::RunCancelled.error("it was cancelled");
    let committed = journal.commit(|tx| {
        let function = tx.catalog().function_by_id(fold.function).cloned().ok_or_else(over)?;
        // Under the lock, so no other process can end it from here on.
        if function.run(fold.run.number).is_none_or(|item| item.opened == 0 || item.closed != 0) {
            return Err(over());
        }
        let (log, seqno) = fold.record;
        let begun = tx.next_sequence();
        if let Some(log) = tx.catalog().log_by_id(log).cloned() {
            let record = RecordOf { run: (fold.function, fold.run.number), cause: fold.cause, log: &log, seqno };
            if let Ok(task) = namespace.record_of_run(record) {
                let publish = Publish::new(namespace, tx);
                let ending = Some(function.id());
                let stage = Stage { cause: id, ordinal: 0, room: Room::DeadLetter, named: None, ending };
                tasks::leave_failure(&publish, tx, (log.name(), &task), &error, stage)?;
            }
        }
        let (effects, fired) = (tx.next_sequence() - begun, fold.newest.map_or(0, |fired| fired.id.sequence()));
        let ending = Ending::dead(&error, &[]);
        tx.done(function.id(), fold.run, &End { outcome: Outcome::Cancelled, effects, fired, ..ending.to_end() })
    })?;
    Ok(committed.end)
}
