//! Revocations: the ids of capabilities that end before they expire, in the log `_revoked`.
//!
//! A record has an id, and the time until which it must be kept: by then the capability would have expired. The clock may have jumped ahead
//! of that time and jump back, so a revocation counts for as long as the log has it. The log's history is twice the maximum length of the
//! list. When it is full, revocations are appended again before the oldest records leave it: those that must be kept longest, as many as
//! the list may have.

use crate::audit::{Act, Audited};
use millrace_journal::{Durability, Log};
use millrace_namespace::{Namespace, Shows, Site, names};
use millrace_security::token::TokenId;
use millrace_wire::{Code, Error, EventId, Result};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

const LOG: &str = "_revoked";
/// Most revocations that count.
pub const REVOCATIONS_MAX: usize = 4096;
const HISTORY: u64 = 2 * REVOCATIONS_MAX as u64;
/// Records in one commit.
const BATCH: usize = 256;

/// One revocation, as it is in the log; or the note that there are other keys from now on, for hosts to read them again.
#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u16>,
    /// The second after which it need not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u32>,
}

impl Row {
    fn of(id: TokenId, until: Option<u32>) -> Self {
        Self { id: Some(id.to_string()), generation: None, until }
    }
}

/// Tells running hosts that the keys are others from now on.
pub fn rotated(namespace: &Namespace, generation: u16) -> Result<()> {
    let _folder = super::files::Folder::open(namespace.dir())?;
    make_room(namespace, &revoked(namespace)?, 1)?;
    let line = Audited::by_owner(Act::Rotate).about(format!("generation {generation}"));
    append(namespace, &[Row { id: None, generation: Some(generation), until: None }], Some(&line))
}

/// How many records the log ever had: what was read at this number is what counts until it grows.
pub(super) fn version(namespace: &Namespace) -> Result<u64> {
    Ok(namespace.journal().catalog()?.log(LOG).map_or(0, Log::latest))
}

/// The revocations, and until when each is kept; `None` means forever.
pub type Revoked = BTreeMap<TokenId, Option<u32>>;

/// Seconds since 1970 by this machine's clock.
pub fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// All revocations that the log has.
fn read(namespace: &Namespace) -> Result<Revoked> {
    let mut revoked = Revoked::new();
    let catalog = namespace.journal().catalog()?;
    let Some(log) = catalog.log(LOG) else { return Ok(revoked) };
    let (mut next, latest, mut payload) = (log.earliest().max(1), log.latest(), Vec::new());
    while next <= latest {
        match namespace.journal().get(log, next, &mut payload) {
            Ok(_) => {}
            // Records that leave the history were appended again after `latest`, or are no longer needed.
            Err(error) if error.code() == Code::BelowHistory => return read(namespace),
            Err(error) => return Err(damaged(next, &error)),
        }
        let row: Row = serde_json::from_slice(&payload).map_err(|error| damaged(next, &error))?;
        next += 1;
        let Some(id) = row.id else { continue };
        let id: TokenId = id.parse().map_err(|error: Error| damaged(next - 1, &error))?;
        // Of two revocations the longer one counts.
        let until = match (revoked.get(&id), row.until) {
            (Some(Some(before)), Some(until)) => Some(until.max(*before)),
            (Some(None), _) | (_, None) => None,
            (None, until) => until,
        };
        revoked.insert(id, until);
    }
    Ok(revoked)
}

fn damaged(seqno: u64, error: &dyn std::fmt::Display) -> Error {
    Code::RevocationDamaged.error(format!("record {seqno}: {error}"))
}

fn append(namespace: &Namespace, rows: &[Row], line: Option<&Audited>) -> Result<()> {
    let name = names::internal(LOG);
    let committed = namespace.journal().commit(|tx| {
        let log: Log = match tx.catalog().log(&name).cloned() {
            Some(log) => log,
            None => tx.create_log(&name, HISTORY)?,
        };
        for row in rows {
            let payload = serde_json::to_vec(row).expect("text and numbers always make JSON");
            tx.append(&log, &payload, EventId::NONE, 0)?;
        }
        line.map_or(Ok(()), |line| line.note(tx))
    })?;
    // A revocation is always flushed to disk, whatever the namespace's durability.
    namespace.settle(Site::AppendBatch, Shows::Batch(committed.end), Some(Durability::Disk))
}

/// Appends revocations again if `more` records would push some of them out of the log.
fn make_room(namespace: &Namespace, revoked: &Revoked, more: u64) -> Result<()> {
    let catalog = namespace.journal().catalog()?;
    let kept = catalog.log(LOG).map_or(0, |log| (log.latest() + 1).saturating_sub(log.earliest().max(1)));
    if kept + more <= HISTORY {
        return Ok(());
    }
    let mut rows: Vec<_> = revoked.iter().collect();
    rows.sort_by_key(|(_, until)| Reverse(until.unwrap_or(u32::MAX)));
    rows.truncate(REVOCATIONS_MAX);
    let rows: Vec<Row> = rows.into_iter().map(|(id, until)| Row::of(*id, *until)).collect();
    rows.chunks(BATCH).try_for_each(|rows| append(namespace, rows, None))
}

/// The revocations that count now.
pub fn revoked(namespace: &Namespace) -> Result<Revoked> {
    read(namespace)
}

/// Revokes capabilities by the ids of their blocks; `until` is when they would have expired. Returns how many were not revoked for as
/// long before.
pub fn revoke(namespace: &Namespace, ids: &[TokenId], until: Option<u32>) -> Result<usize> {
    revoke_as(namespace, ids, until, Audited::by_owner(Act::Revoke).of(ids))
}

/// The same, with this line about it.
pub(crate) fn revoke_as(namespace: &Namespace, ids: &[TokenId], until: Option<u32>, line: Audited) -> Result<usize> {
    // Two who revoke at once: the log is read and made room in by one at a time.
    let _folder = super::files::Folder::open(namespace.dir())?;
    let revoked = revoked(namespace)?;
    let kept =
        |id: &TokenId| revoked.get(id).is_some_and(|before| before.is_none() || (until.is_some() && *before >= until));
    let mut new: Vec<TokenId> = ids.iter().filter(|id| !kept(id)).copied().collect();
    new.sort();
    new.dedup();
    let count = new.iter().filter(|id| !revoked.contains_key(id)).count();
    let now_s = now_s();
    let needed = revoked.values().filter(|until| until.is_none_or(|until| until >= now_s)).count();
    if needed + count > REVOCATIONS_MAX {
        let detail = format!("{needed} revocations must be kept; the limit is {REVOCATIONS_MAX}");
        return Err(Code::RevocationsFull.error(detail));
    }
    if new.is_empty() {
        // The process that revoked them may not have waited for the disk yet.
        namespace.settle(Site::AppendBatch, Shows::Batch(namespace.journal().tail()), Some(Durability::Disk))?;
        return Ok(0);
    }
    make_room(namespace, &revoked, new.len() as u64)?;
    let rows: Vec<Row> = new.iter().map(|id| Row::of(*id, until)).collect();
    for (number, rows) in rows.chunks(BATCH).enumerate() {
        append(namespace, rows, (number == 0).then_some(&line))?;
    }
    Ok(rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_journal::CreateOptions;

    fn id(number: u64) -> TokenId {
        TokenId(number.to_be_bytes())
    }

    #[test]
    fn a_revocation_counts_whatever_the_clock_says() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
        assert!(revoked(&namespace).unwrap().is_empty());
        assert_eq!(revoke(&namespace, &[id(1), id(1), id(2)], Some(u32::MAX)).unwrap(), 2);
        assert_eq!(revoke(&namespace, &[id(3)], Some(now_s() - 10)).unwrap(), 1);
        // To a clock that has jumped ahead, as here, the capability has expired; it may jump back.
        assert_eq!(revoked(&namespace).unwrap().keys().copied().collect::<Vec<_>>(), [id(1), id(2), id(3)]);
        assert_eq!(revoke(&namespace, &[id(1)], Some(u32::MAX)).unwrap(), 0, "it counts already");
        assert_eq!(namespace.latest("_revoked").unwrap(), 3);
        // A later one may only make it longer.
        revoke(&namespace, &[id(2)], None).unwrap();
        revoke(&namespace, &[id(2)], Some(now_s() + 100)).unwrap();
        assert_eq!(revoked(&namespace).unwrap()[&id(2)], None);
    }

    #[test]
    fn a_full_log_forgets_nothing_that_counts() {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { durability: Durability::Memory, ..CreateOptions::default() };
        let namespace = Namespace::create(&dir.path().join("ns"), &options).unwrap();
        revoke(&namespace, &[id(1)], None).unwrap();
        let soon: Vec<TokenId> = (0..1000).map(|n| id(10_000 + n)).collect();
        // More than the history: each is kept for a time that is over.
        for round in 0..9 {
            let past = now_s() - 100 + round;
            revoke(&namespace, &soon, Some(past)).unwrap();
        }
        assert!(namespace.latest("_revoked").unwrap() > HISTORY);
        assert!(namespace.log("_revoked").unwrap().earliest() > 1);
        assert_eq!(revoked(&namespace).unwrap()[&id(1)], None);
        let all: Vec<TokenId> = (1..=REVOCATIONS_MAX as u64).map(id).collect();
        assert_eq!(revoke(&namespace, &all, None).unwrap(), REVOCATIONS_MAX - 1);
        assert_eq!(revoke(&namespace, &[id(5000)], None).unwrap_err().code(), Code::RevocationsFull);
        // Even if all of it is appended again, what must be kept is kept.
        let found = revoked(&namespace).unwrap();
        make_room(&namespace, &found, HISTORY).unwrap();
        let found = revoked(&namespace).unwrap();
        assert!(all.iter().all(|id| found.get(id) == Some(&None)));
    }
}
