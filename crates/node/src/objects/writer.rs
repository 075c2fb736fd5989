//! The log of persistent objects, `_entities`: one thread writes the records of their steps, many to a commit.
//!
//! ```text
//!  a step ── its record ──> queue ── commit ──> written: the answers that wait for it go to the gate
//! ```
//!
//! The log has the steps in their order. Answers about a persistent object wait until its last step is written, and then at the gate until
//! that step has the durability of the namespace. Once the log is twice as long as the objects, the thread writes a snapshot between other
//! steps, and trims everything before the snapshot.

use super::{Inner, State};
use crate::Namespace;
use crate::slot::Slot;
use millrace_entities::{Called, Cursor, Space};
use millrace_journal::{Log, Position};
use millrace_namespace::names;
use millrace_wire::{Code, Error, EventId, HISTORY_ALL, Result};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    task::Waker,
    thread,
    time::{Duration, Instant},
};

const LOG: &str = "_entities";
/// The most of one commit.
const BATCH_RECORDS_MAX: usize = 1024;
const BATCH_MAX_BYTES: usize = 512 << 10;
/// Bytes of records beyond which a snapshot is made, if the objects have less than half as many.
const SNAPSHOT_MIN_BYTES: usize = 4 << 20;
/// How many bytes of a snapshot wait to be written at once.
const SNAPSHOT_AHEAD_BYTES: usize = 1 << 20;
/// How long to wait before trying again after an error that may go away, such as a full disk.
const PAUSE: Duration = Duration::from_millis(200);
/// How long answers wait for a disk that refuses. Then they are errors, and so is each further call until the disk accepts records.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the writer sleeps when nothing rings.
const LOOK: Duration = Duration::from_secs(60);

/// An answer, and the call that waits for it.
type Late = (Arc<Slot>, Result<Called>);

/// The records to be written, and their waiters.
#[derive(Default)]
pub(super) struct Writer {
    queue: VecDeque<Vec<u8>>,
    /// How many bytes they have.
    waiting: usize,
    /// How many records were queued, and how many of them are written.
    queued: u64,
    written: u64,
    /// Everything written is in front of this position.
    safe: Position,
    /// Answers, by the number of records that have to be written before.
    late: BTreeMap<u64, Vec<Late>>,
    /// Why nothing more can be written.
    failure: Option<Error>,
    /// Since when the disk refuses.
    refused: Option<Instant>,
    /// The number of the log's newest record when the host started.
    base: u64,
    /// Bytes that were written since the last snapshot, and with how many of them it is looked whether another one is due.
    since: usize,
    look_at: usize,
    snapshot: Option<Cursor>,
    /// How many records there are with the last one of the snapshot, and the number of its first one in the log.
    trim: Option<(u64, u64)>,
    begun: u64,
}

impl Writer {
    /// Takes the records that the last step made; whether there were any.
    pub fn take(&mut self, space: &mut Space) -> bool {
        let records = space.take_records();
        let took = !records.is_empty();
        self.queued += records.len() as u64;
        self.waiting += records.iter().map(Vec::len).sum::<usize>();
        self.queue.extend(records);
        took
    }

    /// How many records were queued.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// An answer that may leave once so many records are written: where it depends on, if that is so now.
    pub fn reached(&self, after: u64) -> Option<Position> {
        match after {
            0 => Some(Position::default()),
            after => (after <= self.written).then_some(self.safe),
        }
    }

    /// Has an answer wait for records.
    pub fn add(&mut self, after: u64, slot: Arc<Slot>, called: Result<Called>) {
        self.late.entry(after).or_default().push((slot, called));
    }

    /// Why persistent objects can no longer be called.
    pub fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The disk refuses records. A call that has waited too long gets an error, although its step is written later. Further calls that
    /// would change an object are refused until then.
    fn refuse(&mut self, space: &mut Space, error: Error) -> Vec<Waker> {
        let since = *self.refused.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return Vec::new();
        }
        let late = std::mem::take(&mut self.late);
        let unknown = Code::OutcomeUnknown.error(format!(
            "the disk of the host refuses records ({}: {}); the call has taken effect unless the host ends before the disk accepts them",
            error.code().id(),
            error.detail()
        ));
        space.refuse_records(Some(error));
        // A call that the disk's refusal kept from being made says so itself.
        let answer = |called: Result<Called>| match called {
            Err(refused) if refused.code().transient().is_some() => refused,
            _ => unknown.clone(),
        };
        late.into_values().flatten().filter_map(|(slot, called)| slot.give(Err(answer(called)))).collect()
    }

    fn batch(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = 0;
        let fits = |record: &&Vec<u8>| {
            bytes += record.len();
            bytes <= BATCH_MAX_BYTES
        };
        let count = self.queue.iter().take(BATCH_RECORDS_MAX).take_while(fits).count().max(1).min(self.queue.len());
        let batch: Vec<Vec<u8>> = self.queue.drain(..count).collect();
        self.waiting -= batch.iter().map(Vec::len).sum::<usize>();
        batch
    }

    /// So much is written, up to this position; who has an answer now.
    fn wrote(&mut self, records: usize, end: Position) -> Vec<Waker> {
        self.written += records as u64;
        self.safe = end;
        let later = self.late.split_off(&(self.written + 1));
        let now = std::mem::replace(&mut self.late, later);
        now.into_values().flatten().filter_map(|(slot, called)| slot.give(called.map(|called| (called, end)))).collect()
    }

    fn fail(&mut self, error: &Error) -> Vec<Waker> {
        tracing::error!(
            target: "objects",
            code = error.code().id(),
            "the log of persistent objects cannot be written; they are refused until a restart: {}",
            error.detail()
        );
        self.failure = Some(error.clone());
        let late = std::mem::take(&mut self.late);
        late.into_values().flatten().filter_map(|(slot, _)| slot.give(Err(error.clone()))).collect()
    }

    /// Continues a snapshot, or begins one; returns the number of the record up to which the log is trimmed.
    fn snapshot(&mut self, space: &mut Space) -> Option<u64> {
        if let Some((_, first)) = self.trim.take_if(|(after, _)| *after <= self.written) {
            self.since = 0;
            self.look_at = SNAPSHOT_MIN_BYTES;
            return Some(first);
        }
        if self.snapshot.is_none() && self.trim.is_none() {
            if self.since < self.look_at.max(SNAPSHOT_MIN_BYTES) {
                return None;
            }
            let wanted = 2 * space.persistent_bytes();
            if self.since < wanted {
                // Adding them up takes time: not again before it may be so far.
                self.look_at = wanted;
                return None;
            }
            self.snapshot = Some(space.begin_snapshot());
            self.take(space);
            self.begun = self.base + self.queued;
        }
        while let Some(cursor) = self.snapshot.take() {
            if self.waiting >= SNAPSHOT_AHEAD_BYTES {
                self.snapshot = Some(cursor);
                break;
            }
            match space.go_on(cursor) {
                Some(next) => self.snapshot = Some(next),
                None => self.trim = Some((self.queued, self.begun)),
            }
            self.take(space);
        }
        None
    }
}

/// Restores the objects of an earlier host.
pub(super) fn recover(namespace: &Namespace, state: &mut State) -> Result<()> {
    state.space.limit_records(namespace.journal().record_max_bytes());
    let name = names::internal(LOG);
    let catalog = namespace.journal().catalog()?;
    let Some(log) = catalog.log(&name) else { return Ok(()) };
    let moment = millrace_entities::Moment { now_ms: 0, token: 0 };
    let mut bytes = Vec::new();
    for seqno in log.earliest().max(1)..=log.latest() {
        bytes.clear();
        namespace.journal().get(log, seqno, &mut bytes)?;
        let refused = |error: Error| {
            // A later version may have written it.
            let code = if error.code() == Code::FormatVersion { Code::FormatVersion } else { Code::EntitiesDamaged };
            code.error(format!("record {seqno} of log '{name}': {}", error.detail()))
        };
        state.space.restore(&bytes, moment).map_err(refused)?;
        state.writer_state.since += bytes.len();
    }
    state.writer_state.base = log.latest();
    state.space.restored();
    Ok(())
}

fn commit(namespace: &Namespace, records: &[Vec<u8>], trim: Option<u64>) -> Result<Position> {
    let name = names::internal(LOG);
    let committed = namespace.journal().commit(|tx| {
        let log: Log = match tx.catalog().log(&name) {
            Some(log) => log.clone(),
            None => tx.create_log(&name, HISTORY_ALL)?,
        };
        for record in records {
            tx.append(&log, record, EventId::NONE, 0)?;
        }
        if let Some(first) = trim {
            tx.trim(&log, first)?;
        }
        Ok(())
    })?;
    Ok(committed.end)
}

/// Writes until the objects are no longer in use.
pub(super) fn write(objects: &Weak<Inner>) {
    while let Some(inner) = objects.upgrade() {
        let mut state = inner.state();
        let State { space, writer_state, closed, .. } = &mut *state;
        let trim = writer_state.snapshot(space);
        let batch = writer_state.batch();
        if batch.is_empty() && trim.is_none() {
            if *closed {
                return;
            }
            drop(inner.to_write.wait_timeout(state, LOOK));
            continue;
        }
        drop(state);
        let end = loop {
            match commit(&inner.namespace, &batch, trim) {
                Ok(end) => break Ok(end),
                // Nothing was written. A full disk may have room again, and one that refused may take it: answers wait for a moment.
                Err(error) if error.code().transient().is_some() && !inner.state().closed => {
                    let mut state = inner.state();
                    let State { space, writer_state, .. } = &mut *state;
                    let wakers = writer_state.refuse(space, error);
                    drop(state);
                    wakers.into_iter().for_each(Waker::wake);
                    thread::sleep(PAUSE);
                }
                Err(error) => break Err(error),
            }
        };
        let mut state = inner.state();
        let State { space, writer_state, .. } = &mut *state;
        let wakers = match &end {
            Ok(end) => {
                let bytes: usize = batch.iter().map(Vec::len).sum();
                writer_state.since += bytes;
                space.wrote(bytes);
                if writer_state.refused.take().is_some() {
                    space.refuse_records(None);
                }
                writer_state.wrote(batch.len(), *end)
            }
            Err(error) => writer_state.fail(error),
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if end.is_err() {
            return;
        }
    }
}
