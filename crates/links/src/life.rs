//! The lives of a namespace: each start of its host adds a random number to a log.
//!
//! Two copies of one directory have different lives from the moment when they were copied, although they have one identity and number their
//! entries alike. A receiver notes the life in which the last number of a stream was sent. If this life is not in the log of the sender, the
//! sender is another copy than the one that sent it: its records of the same numbers are other records.

use super::{Links, log_name, note, state::Refusal};
use millrace_journal::{Log, lock_within};
use millrace_wire::{Code, Error, Result, protocol::Life};
use std::time::Duration;

/// The log of all lives: record N is the random number of life N.
pub(super) const LOG: &str = "_lives";
/// Lives that stay known: a receiver that last heard of an earlier one compares only the last record.
const HISTORY: u64 = 1024;

/// How long a host waits for the journal's lock before it tries again.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Refused streams of other copies that stay listed, and for how long.
const REFUSALS_MAX: usize = 16;
const REFUSAL_LASTS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The time of a refusal that is repeated is noted at most this often.
const REFUSAL_EVERY: Duration = Duration::from_secs(60);

/// The number in a record of the log.
pub(super) fn decode(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_le_bytes)
}

impl Links {
    /// Begins a life. Called by the host of the namespace, before it sends anything through a link.
    pub fn begin_life(&self) -> Result<()> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| Code::HostStart.error(format!("no random number: {error}")))?;
        // A process that holds the lock must not keep the host from stopping.
        let begin = || self.namespace.journal().commit(|tx| note(tx, &log_name(LOG), HISTORY, &id));
        lock_within(LOCK_PATIENCE, begin).map(drop)
    }

    /// A random number for the names of streams, once another copy of the namespace sends under the same names.
    pub(super) fn copy_number() -> Result<u32> {
        let mut number = [0; 4];
        getrandom::fill(&mut number).map_err(|error| Code::HostStart.error(format!("no random number: {error}")))?;
        Ok(u32::from_le_bytes(number))
    }

    /// The current life; none before the first host.
    pub(super) fn life(&self) -> Result<Option<Life>> {
        let catalog = self.namespace.journal().catalog()?;
        let Some(log) = catalog.log(LOG).filter(|log| log.latest() > 0) else { return Ok(None) };
        Ok(self.life_at(log, log.latest())?.map(|id| Life { number: log.latest(), id }))
    }

    /// The current life, for other streams than those of links; none before the host has begun one. Whoever sends it waits until it is safe.
    pub fn current_life(&self) -> Result<Option<Life>> {
        self.life()
    }

    /// Whether the current life will be remembered after a crash. Otherwise a stream of this life would seem to be one of a copy.
    pub(super) fn life_is_durable(&self) -> Result<bool> {
        let journal = self.namespace.journal();
        let catalog = journal.catalog()?;
        let noted = catalog.log(LOG).filter(|log| log.latest() > 0);
        Ok(noted.is_none_or(|log| journal.position(log, log.latest()) < journal.durable()))
    }

    /// Whether a life was one of this namespace, as far as is still known.
    pub(super) fn has_lived(&self, life: Life) -> Result<bool> {
        let catalog = self.namespace.journal().catalog()?;
        let Some(log) = catalog.log(LOG).filter(|log| (1..=log.latest()).contains(&life.number)) else {
            return Ok(false);
        };
        Ok(self.life_at(log, life.number)?.is_none_or(|id| id == life.id))
    }

    /// The random number of a life; none if it is no longer known.
    fn life_at(&self, log: &Log, number: u64) -> Result<Option<u64>> {
        let mut payload = Vec::new();
        match self.namespace.journal().get(log, number, &mut payload) {
            Ok(_) => Ok(decode(&payload)),
            Err(error) if error.code() == Code::BelowHistory => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Notes that a stream was refused, for the operator.
    pub(super) fn note_refused(&self, namespace: u64, stream: &str, error: &Error) {
        let at_us = self.namespace.journal().clock().wall_us();
        // The sender gets the same error; if it cannot be noted here, it is noted the next time.
        let _ = self.change(|state, _| {
            state.refused.retain(|known| is_recent(known.at_us, at_us, REFUSAL_LASTS));
            let is_it = |known: &Refusal| known.namespace == namespace && known.stream == stream;
            match state.refused.iter().position(is_it) {
                Some(at) if is_recent(state.refused[at].at_us, at_us, REFUSAL_EVERY) => return Ok(()),
                Some(at) => drop(state.refused.remove(at)),
                None if state.refused.len() >= REFUSALS_MAX => drop(state.refused.remove(0)),
                None => {}
            }
            let (code, detail) = (error.code().id().to_owned(), error.detail().to_owned());
            state.refused.push(Refusal { namespace, stream: stream.to_owned(), at_us, code, detail });
            Ok(())
        });
    }

    /// The incoming streams that were refused in the last days because another copy of their namespace sends them.
    pub fn refused(&self) -> Result<Vec<Refusal>> {
        let now_us = self.namespace.journal().clock().wall_us();
        let refused = self.state()?.refused.into_iter();
        Ok(refused.filter(|known| is_recent(known.at_us, now_us, REFUSAL_LASTS)).collect())
    }
}

/// Whether a time is at most so long ago; in the future counts, too.
fn is_recent(at_us: u64, now_us: u64, within: Duration) -> bool {
    u128::from(now_us.saturating_sub(at_us)) < within.as_micros()
}
