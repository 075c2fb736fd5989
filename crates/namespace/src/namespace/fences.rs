//! Fences: an append that names a token of a lock is refused if a later owner of the lock has appended.
//!
//! The log `_fences` has one record, the highest token of each name. It is written in the batch of the append that has a higher token.

use crate::names;
use millrace_journal::{Journal, Transaction};
use millrace_wire::{Code, Result, protocol::Fence};
use std::collections::BTreeMap;

/// The log of the tokens.
const LOG: &str = "_fences";
/// The most names of a namespace.
const NAMES_MAX: usize = 1000;

/// Refuses an append with this fence if a higher token was used, and otherwise stages the note of the token.
pub(super) fn pass(journal: &Journal, tx: &mut Transaction<'_>, fence: Fence<'_>) -> Result<()> {
    fence.check()?;
    let mut highest: BTreeMap<Box<str>, u64> = BTreeMap::new();
    if let Some(log) = tx.catalog().log(LOG).filter(|log| log.latest() > 0) {
        let mut payload = Vec::new();
        journal.get(log, log.latest(), &mut payload)?;
        highest = serde_json::from_slice(&payload)
            .map_err(|error| Code::EntryDamaged.error(format!("record {} of log '{LOG}': {error}", log.latest())))?;
    }
    let known = highest.get(fence.name).copied();
    fence.check_against(known.unwrap_or(0))?;
    if known == Some(fence.token) {
        return Ok(());
    }
    if known.is_none() && highest.len() >= NAMES_MAX {
        return Err(Code::FenceInvalid.error(format!("{NAMES_MAX} names of fences are in use")));
    }
    highest.insert(fence.name.into(), fence.token);
    let payload = serde_json::to_vec(&highest).expect("text and numbers always make JSON");
    names::note(tx, &names::internal(LOG), 1, &payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppendOptions, CreateOptions, Durability, Namespace};

    fn append(namespace: &Namespace, name: &str, token: u64) -> Result<u64> {
        let (fence, durability) = (Some(Fence { name, token }), Some(Durability::Memory));
        let options = AppendOptions { fence, durability, ..AppendOptions::default() };
        Ok(namespace.append("a", b"x", options)?.seqno)
    }

    #[test]
    fn a_lower_token_is_refused_also_by_another_process_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("n");
        let namespace = Namespace::create(&place, &CreateOptions::default()).unwrap();
        namespace.create_log(&"a".parse().unwrap(), 100).unwrap();
        let appended = [append(&namespace, "tick", 5), append(&namespace, "tick", 5), append(&namespace, "tick", 7)];
        assert_eq!(appended.map(Result::unwrap), [1, 2, 3]);
        assert_eq!(append(&namespace, "tick", 6).unwrap_err().code(), Code::FenceStale);
        assert_eq!(append(&namespace, "other", 1).unwrap(), 4);
        let twice = namespace.append_many_gated(
            &[("a", b"1"), ("a", b"2")],
            AppendOptions { fence: Some(Fence { name: "tick", token: 6 }), ..AppendOptions::default() },
        );
        assert_eq!(twice.err().unwrap().code(), Code::FenceStale);
        let (without, keyed) = (AppendOptions::default(), |token| AppendOptions {
            fence: Some(Fence { name: "tick", token }),
            key: Some("k"),
            ..AppendOptions::default()
        });
        assert_eq!(namespace.append("a", b"x", without).unwrap().seqno, 5, "no fence, no refusal");
        assert_eq!(namespace.append("a", b"x", keyed(7)).unwrap().seqno, 6);
        append(&namespace, "tick", 8).unwrap();
        assert_eq!(namespace.append("a", b"x", keyed(7)).unwrap().seqno, 6, "it was appended when its token was valid");
        drop(namespace);
        let namespace = Namespace::open(&place).unwrap();
        assert_eq!(append(&namespace, "tick", 7).unwrap_err().code(), Code::FenceStale);
        assert_eq!(append(&namespace, "tick", 9).unwrap(), 8);
    }

    #[test]
    fn names_and_their_number_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Namespace::create(&dir.path().join("n"), &CreateOptions::default()).unwrap();
        namespace.create_log(&"a".parse().unwrap(), 2000).unwrap();
        for odd in [("", 1), ("a", 0), (&*"a".repeat(256), 1)] {
            assert_eq!(append(&namespace, odd.0, odd.1).unwrap_err().code(), Code::FenceInvalid);
        }
        for name in 0..NAMES_MAX {
            append(&namespace, &name.to_string(), 1).unwrap();
        }
        assert_eq!(append(&namespace, "more", 1).unwrap_err().code(), Code::FenceInvalid);
        assert!(append(&namespace, "17", 2).is_ok());
    }
}
