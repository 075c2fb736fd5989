//! Keys in order, each with its newest version.

use crate::view::Found;
use millrace_journal::Position;
use millrace_wire::table::KeyRange;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// So many deletions are remembered in any case.
const FEW: usize = 1024;

/// The newest version of each key, and which of them expire when.
#[derive(Default)]
pub(crate) struct Sorted {
    versions: BTreeMap<Box<[u8]>, Found>,
    /// Those that expire, by time.
    expiring: BTreeSet<(u64, Box<[u8]>)>,
    /// How many keys have no value.
    deleted: usize,
    /// Deletions before this were forgotten.
    forgotten: Position,
}

impl Sorted {
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    pub fn get(&self, key: &[u8]) -> Option<Found> {
        self.versions.get(key).copied()
    }

    pub fn insert(&mut self, key: &[u8], found: Found) {
        let before = match self.versions.get_mut(key) {
            Some(version) => Some(std::mem::replace(version, found)),
            None => self.versions.insert(key.into(), found),
        };
        self.deleted -= usize::from(before.is_some_and(|before| !before.is_value));
        self.deleted += usize::from(!found.is_value);
        if let Some(before) = before.filter(|before| before.expires_us > 0) {
            self.expiring.remove(&(before.expires_us, key.into()));
        }
        if found.is_value && found.expires_us > 0 {
            self.expiring.insert((found.expires_us, key.into()));
        }
    }

    /// Forgets deletions whose records are gone: without them, the keys have no value either.
    pub fn forget_before(&mut self, first: Position) {
        // Looking at all keys pays off only if many of them have no value.
        if self.forgotten < first && self.deleted > FEW && self.deleted > self.versions.len() / 4 {
            self.versions.retain(|_, found| found.is_value || found.position >= first);
            self.deleted = self.versions.values().filter(|found| !found.is_value).count();
            self.forgotten = first;
        }
    }

    pub fn range<'s>(&'s self, range: KeyRange<'_>) -> impl Iterator<Item = &'s [u8]> {
        let is_empty = !range.to.is_empty() && range.to <= range.from;
        let to = if range.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.to) };
        let bounds = (Bound::Included(range.from), to);
        let keys = (!is_empty).then(|| self.versions.range::<[u8], _>(bounds));
        keys.into_iter().flatten().map(|(key, _)| &**key)
    }

    /// Keys whose values expire at this time or before, the first to expire first.
    pub fn expired(&self, now_us: u64, limit: usize) -> Vec<Vec<u8>> {
        let expired = self.expiring.iter().take_while(|(expires_us, _)| *expires_us <= now_us);
        expired.take(limit).map(|(_, key)| key.to_vec()).collect()
    }
}
