//! Keys in order, each with its newest version: files, and in memory what has changed since.

use crate::{
    frozen::{Frozen, FrozenRange},
    view::Found,
};
use millrace_journal::Position;
use millrace_wire::{Result, table::KeyRange};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

/// So many deletions are remembered in any case.
const FEW: usize = 1024;

/// What a key takes in a file, about.
const KEY_BYTES: u64 = 64;

/// Versions in memory.
#[derive(Default)]
pub(crate) struct Changed {
    versions: BTreeMap<Box<[u8]>, Found>,
    /// Those that expire, by time.
    expiring: BTreeSet<(u64, Box<[u8]>)>,
    /// How many keys have no value.
    deleted: usize,
    /// How many keys are in nothing older.
    new: usize,
}

impl Changed {
    /// Whether the key was not among these.
    fn insert(&mut self, key: &[u8], found: Found) -> bool {
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
        before.is_none()
    }

    fn range<'s>(&'s self, range: KeyRange<'_>) -> impl Iterator<Item = (&'s [u8], Found)> + use<'s> {
        let is_empty = !range.to.is_empty() && range.to <= range.from;
        let to = if range.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(range.to) };
        let bounds = (Bound::Included(range.from), to);
        let keys = (!is_empty).then(|| self.versions.range::<[u8], _>(bounds));
        keys.into_iter().flatten().map(|(key, found)| (&**key, *found))
    }
}

/// The newest version of each key, and which of them expire when.
#[derive(Default)]
pub(crate) struct Sorted {
    /// The older one first; the second one has what changed since the first.
    files: Vec<Arc<Frozen>>,
    /// What is being written to a file.
    freezing: Option<Arc<Changed>>,
    newest: Changed,
    /// Deletions before this were forgotten.
    forgotten: Position,
}

impl Sorted {
    pub fn of(files: Vec<Arc<Frozen>>) -> Self {
        Self { files, ..Self::default() }
    }

    /// How many keys it has. While it has files, keys that were remembered in one process and forgotten in another may count twice or not
    /// at all.
    pub fn len(&self) -> usize {
        let files: usize = self.files.iter().map(|file| file.new_keys()).sum();
        files + self.freezing.as_ref().map_or(0, |changed| changed.new) + self.newest.new
    }

    pub fn files(&self) -> &[Arc<Frozen>] {
        &self.files
    }

    pub fn is_freezing(&self) -> bool {
        self.freezing.is_some()
    }

    pub fn is_damaged(&self) -> bool {
        self.files.iter().any(|file| file.is_damaged())
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Found>> {
        let changed = [Some(&self.newest), self.freezing.as_deref()];
        if let Some(found) = changed.into_iter().flatten().find_map(|changed| changed.versions.get(key)) {
            return Ok(Some(*found));
        }
        for file in self.files.iter().rev() {
            if let Some(found) = file.get(key)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Takes a version, which is newer than that which the key has. `is_first` says whether its record names no version before it.
    pub fn insert(&mut self, key: &[u8], found: Found, is_first: bool) {
        let is_known = || self.freezing.as_ref().is_some_and(|changed| changed.versions.contains_key(key));
        let is_new = (self.files.is_empty() || is_first) && !is_known();
        if self.newest.insert(key, found) && is_new {
            self.newest.new += 1;
        }
    }

    /// Forgets deletions whose records are gone: without them, the keys have no value either. What is in files is forgotten when they are
    /// written.
    pub fn forget_before(&mut self, first: Position) {
        let newest = &mut self.newest;
        if !self.files.is_empty() || self.freezing.is_some() {
            return;
        }
        // Looking at all keys pays off only if many of them have no value.
        if self.forgotten < first && newest.deleted > FEW && newest.deleted > newest.versions.len() / 4 {
            newest.versions.retain(|_, found| found.is_value || found.position >= first);
            newest.deleted = newest.versions.values().filter(|found| !found.is_value).count();
            newest.new = newest.versions.len();
            self.forgotten = first;
        }
    }

    pub fn range<'s>(&'s self, range: KeyRange<'_>) -> Result<Keys<'s>> {
        let is_empty = !range.to.is_empty() && range.to <= range.from;
        let changed = [Some(&self.newest), self.freezing.as_deref()].into_iter().flatten();
        let mut sources: Vec<Source<'s>> =
            changed.map(|changed| Source::of(Of::Changed(Box::new(changed.range(range))))).collect();
        if !is_empty {
            sources.extend(self.files.iter().rev().map(|file| Source::of(Of::Frozen(file.range(range)))));
        }
        Keys::of(sources)
    }

    /// Keys whose values expire at this time or before.
    pub fn expired(&self, now_us: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for changed in [Some(&self.newest), self.freezing.as_deref()].into_iter().flatten() {
            for (_, key) in changed.expiring.iter().take_while(|(expires_us, _)| *expires_us <= now_us) {
                if keys.len() == limit {
                    return Ok(keys);
                }
                if std::ptr::eq(changed, &self.newest) || !self.newest.versions.contains_key(key) {
                    keys.push(key.to_vec());
                }
            }
        }
        let is_newest = |key: &[u8], found: &Found| Ok(self.get(key)?.is_some_and(|newest| newest == *found));
        for file in &self.files {
            keys.extend(file.expired(now_us, limit - keys.len(), is_newest)?);
        }
        Ok(keys)
    }

    /// How many of the files stay if a further one is written; the others are merged into it.
    fn kept(&self) -> usize {
        let changed = self.newest.versions.len();
        match &*self.files {
            // The larger the first one is, the less often it is written anew.
            [first, others @ ..] => {
                let others: usize = others.iter().map(|file| file.len()).sum();
                usize::from((others + changed) * 8 < first.len())
            }
            [] => 0,
        }
    }

    /// What is in memory is to be written to a file; `None` if that is already under way.
    pub fn freeze(&mut self) -> Option<Freezing> {
        if self.freezing.is_some() {
            return None;
        }
        let kept = self.kept();
        let changed = Arc::new(std::mem::take(&mut self.newest));
        self.freezing = Some(changed.clone());
        Some(Freezing { kept: self.files[..kept].to_vec(), merged: self.files[kept..].to_vec(), changed })
    }

    /// What was to be written is in a file, after those that stay.
    pub fn frozen(&mut self, kept: usize, file: Arc<Frozen>) {
        self.files.truncate(kept);
        self.files.push(file);
        self.freezing = None;
    }

    /// What was to be written could not be: it stays in memory.
    pub fn thaw(&mut self) {
        let Some(changed) = self.freezing.take() else { return };
        let newer = std::mem::take(&mut self.newest);
        let new = changed.new + newer.new;
        for (key, found) in changed.range(KeyRange::default()) {
            self.newest.insert(key, found);
        }
        for (key, found) in newer.range(KeyRange::default()) {
            self.newest.insert(key, found);
        }
        self.newest.new = new;
    }
}

/// What is being written to a file.
pub(crate) struct Freezing {
    pub kept: Vec<Arc<Frozen>>,
    merged: Vec<Arc<Frozen>>,
    changed: Arc<Changed>,
}

impl Freezing {
    /// All keys that the file will have, in order.
    pub fn keys(&self) -> Result<Keys<'_>> {
        let everything = KeyRange::default();
        let mut sources = vec![Source::of(Of::Changed(Box::new(self.changed.range(everything))))];
        sources.extend(self.merged.iter().rev().map(|file| Source::of(Of::Frozen(file.range(everything)))));
        Keys::of(sources)
    }

    /// About how many bytes the file will have.
    pub fn bytes(&self) -> u64 {
        let merged: usize = self.merged.iter().map(|file| file.len()).sum();
        (merged + self.changed.versions.len()) as u64 * KEY_BYTES
    }

    /// Whether a key is in a file that stays.
    pub fn is_kept(&self, key: &[u8]) -> Result<bool> {
        for file in &self.kept {
            if file.get(key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

enum Of<'s> {
    Changed(Box<dyn Iterator<Item = (&'s [u8], Found)> + 's>),
    Frozen(FrozenRange<'s>),
}

/// Keys in order, and the next one of them.
struct Source<'s> {
    of: Of<'s>,
    key: Vec<u8>,
    /// `None` after the last one.
    found: Option<Found>,
}

impl<'s> Source<'s> {
    fn of(of: Of<'s>) -> Self {
        Self { of, key: Vec::new(), found: None }
    }

    fn step(&mut self) -> Result<()> {
        self.found = match &mut self.of {
            Of::Frozen(range) => range.next_into(&mut self.key)?,
            Of::Changed(range) => range.next().map(|(key, found)| {
                self.key.clear();
                self.key.extend_from_slice(key);
                found
            }),
        };
        Ok(())
    }
}

/// Keys in order, each with its newest version.
pub(crate) struct Keys<'s> {
    /// The newest first.
    sources: Vec<Source<'s>>,
}

impl<'s> Keys<'s> {
    fn of(mut sources: Vec<Source<'s>>) -> Result<Self> {
        sources.iter_mut().try_for_each(Source::step)?;
        Ok(Self { sources })
    }

    /// The next key, which replaces what is in `key`.
    pub fn next_into(&mut self, key: &mut Vec<u8>) -> Result<Option<Found>> {
        let there = self.sources.iter().enumerate().filter(|(_, source)| source.found.is_some());
        // Of several sources with one key, the first is the newest.
        let Some((first, _)) = there.min_by(|(_, one), (_, other)| one.key.cmp(&other.key)) else { return Ok(None) };
        std::mem::swap(key, &mut self.sources[first].key);
        let found = self.sources[first].found;
        for (at, source) in self.sources.iter_mut().enumerate() {
            if at == first || (source.found.is_some() && source.key == *key) {
                source.step()?;
            }
        }
        Ok(found)
    }
}
