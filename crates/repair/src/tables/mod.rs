//! Tables in a repair: the versions of each key in the history as it is, those that the repair changes, and which of them a run saw.
//!
//! ```text
//!   live:      alice  1: 20   4: 22   7: 23        overlay:   4: 25
//!   repaired:  alice  1: 20   4: 25   7: 23        a run FIRED between 4 and 7 reads 25
//! ```
//!
//! A version's *place* orders those of its key: the sequence of what wrote it. A record that a repair appends for a run which had ended has the
//! place of the run's end, not that of its seqno. A record with which a repair *restates* what a key has, so that readers and databases learn it,
//! is no event of its own: it stands for the version whose value it has, and changes with it.

pub(crate) mod calls;
pub(crate) mod places;
pub(crate) mod restate;
pub(crate) mod sums;

use crate::{
    overlay::Overlay,
    past::{Fired, Past, Run},
};
use millrace_journal::{KeyedRead, Operation, Position, Row as Keyed};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::{Bound, Range},
    sync::Arc,
};

/// Where a version stands in the order of those of its key: a sequence, and its slot.
pub type Place = (u64, u64);

/// Before every place, and behind every one.
pub const FIRST: Place = (0, 0);
pub const LAST: Place = (u64::MAX, u64::MAX);

/// In place of a seqno: the records that the repair will append, from this number on.
pub const LATE: u64 = 1 << 63;

/// What a key has from some place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its seqno, or [`LATE`] and a number.
    pub slot: u64,
    /// Where its entry stands.
    pub at: Position,
    /// What it does to the key.
    pub operation: Operation,
    /// When the value expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// What is added, of an increment.
    pub amount: i64,
    /// Its place.
    pub place: Place,
    /// When it was written, in microseconds since 1970.
    pub time_us: u64,
    /// The version that it restates: its seqno, or 0 for none.
    pub restates: Option<u64>,
    /// Whether the runtime deleted an expired value by it.
    pub is_expiry: bool,
    /// Whether there is a version before it.
    has_previous: bool,
    claim: u64,
    turn: u32,
}

impl Version {
    /// Whether the key has a value at a time.
    pub fn has_value(&self, now_us: u64) -> bool {
        self.operation != Operation::Delete && (self.expires_us == 0 || self.expires_us > now_us)
    }

    /// Whether an attempt saw it.
    pub fn is_seen(&self, fired: &Fired) -> bool {
        self.place.0 < fired.sequence || fired.is_of_claim(self.claim, self.turn)
    }
}

/// Who wrote a slot, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The sequence that gives it its place.
    pub sequence: u64,
    /// The claim of the run, and which run of the claim it is.
    pub claim: (u64, u32),
    /// Microseconds since 1970.
    pub time_us: u64,
    /// Whether it is the runtime.
    pub is_runtime: bool,
}

/// The versions of the keys of a table.
#[derive(Debug, Default)]
pub struct Versions {
    by_key: BTreeMap<Arc<[u8]>, BTreeMap<Place, Version>>,
    /// The keys of slots.
    keys: HashMap<u64, (Arc<[u8]>, Place)>,
}

impl Versions {
    /// Puts a version into a slot, in place of what was there.
    pub fn insert(&mut self, slot: u64, row: &Keyed<'_>, at: Position, by: &Writer) {
        self.remove(slot);
        let known = self.by_key.range::<[u8], _>((Bound::Included(row.key), Bound::Included(row.key))).next();
        let key: Arc<[u8]> = known.map_or_else(|| row.key.into(), |(key, _)| key.clone());
        let place = (by.sequence, slot);
        let version = Version {
            slot,
            at,
            operation: row.operation,
            expires_us: row.expires_us,
            amount: row.amount,
            place,
            time_us: by.time_us,
            restates: row.restates.map(|restates| restates.seqno),
            is_expiry: by.is_runtime && row.restates.is_none() && row.operation == Operation::Delete,
            has_previous: row.previous != Position::default(),
            claim: by.claim.0,
            turn: by.claim.1,
        };
        self.by_key.entry(key.clone()).or_default().insert(place, version);
        self.keys.insert(slot, (key, place));
    }

    /// Takes the version of a slot away.
    pub fn remove(&mut self, slot: u64) {
        let Some((key, place)) = self.keys.remove(&slot) else { return };
        if let Some(versions) = self.by_key.get_mut(&key) {
            versions.remove(&place);
            if versions.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// The key of a slot, and its version.
    pub fn of_slot(&self, slot: u64) -> Option<(&Arc<[u8]>, &Version)> {
        let (key, place) = self.keys.get(&slot)?;
        Some((key, self.by_key.get(key)?.get(place)?))
    }

    fn of_key(&self, key: &[u8], places: Range<Place>) -> impl DoubleEndedIterator<Item = &Version> {
        let versions = self.by_key.get(key).filter(|_| places.start < places.end);
        versions.into_iter().flat_map(move |versions| versions.range(places.clone())).map(|(_, version)| version)
    }

    fn keys(&self, (from, to): (&[u8], &[u8])) -> impl Iterator<Item = &Arc<[u8]>> {
        within(&self.by_key, (from, to)).map(|(key, _)| key)
    }
}

/// The part of a map whose keys are in a range; an empty end is none.
fn within<'m, V>(
    map: &'m BTreeMap<Arc<[u8]>, V>,
    (from, to): (&[u8], &[u8]),
) -> impl Iterator<Item = (&'m Arc<[u8]>, &'m V)> {
    let is_empty = !to.is_empty() && to <= from;
    let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
    let keys = (!is_empty).then(|| map.range::<[u8], _>((Bound::Included(from), end)));
    keys.into_iter().flatten()
}

/// That a slot of a key changes.
#[derive(Clone, Copy, Debug)]
struct Touch {
    /// The newest entry that changes it.
    at: Position,
    /// Whether the key has a version there that it did not have before.
    is_new: bool,
}

/// What a repair changes in a table.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// The versions that it writes.
    pub new: Versions,
    /// The slots that change, by the keys that they have or had.
    touched: BTreeMap<Arc<[u8]>, BTreeMap<Place, Touch>>,
}

impl Rewritten {
    /// Puts what the repair writes into a slot; nothing if it becomes void. Returns the keys that change there, each with the place.
    pub fn insert(
        &mut self,
        old: Option<&Versions>,
        slot: u64,
        row: Option<&Keyed<'_>>,
        at: Position,
        by: &Writer,
    ) -> Vec<(Arc<[u8]>, Place)> {
        let was = old.and_then(|old| old.of_slot(slot)).map(|(key, _)| key.clone());
        let before = self.new.of_slot(slot).map(|(key, _)| key.clone());
        self.new.remove(slot);
        if let Some(row) = row {
            self.new.insert(slot, row, at, by);
        }
        let now = self.new.of_slot(slot).map(|(key, _)| key.clone());
        let place = (by.sequence, slot);
        let keys: BTreeSet<Arc<[u8]>> = [&was, &before, &now].into_iter().flatten().cloned().collect();
        for key in &keys {
            let is_new = now.as_ref() == Some(key) && was.as_ref() != Some(key);
            self.touched.entry(key.clone()).or_default().insert(place, Touch { at, is_new });
        }
        keys.into_iter().map(|key| (key, place)).collect()
    }

    /// Takes back what was to be appended.
    pub fn forget_late(&mut self) {
        let late: Vec<u64> = self.new.keys.keys().filter(|slot| **slot >= LATE).copied().collect();
        late.into_iter().for_each(|slot| self.new.remove(slot));
    }

    /// The keys that change.
    pub fn touched(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.touched.keys()
    }

    fn touches(&self, keys: (&[u8], &[u8]), counts: impl Fn(&Place, &Touch) -> bool) -> bool {
        within(&self.touched, keys).any(|(_, places)| places.iter().any(|(place, touch)| counts(place, touch)))
    }

    fn touches_key(&self, key: &[u8], counts: impl Fn(&Place, &Touch) -> bool) -> bool {
        self.touched.get(key).is_some_and(|places| places.iter().any(|(place, touch)| counts(place, touch)))
    }
}

/// What a run read of tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyedRow {
    /// This record of a table.
    Found { log: u32, seqno: u64 },
    /// That a key has no value.
    Absent { log: u32, key: Box<[u8]> },
    /// The keys of a range.
    Range { log: u32, from: Box<[u8]>, to: Box<[u8]> },
}

impl KeyedRow {
    /// The rows of a READ.
    pub fn all(payload: &[u8]) -> impl Iterator<Item = Self> + '_ {
        KeyedRead::decode(payload).map(|row| match row {
            KeyedRead::Found { log, seqno } => Self::Found { log, seqno },
            KeyedRead::Absent { log, key } => Self::Absent { log, key: key.into() },
            KeyedRead::Range { log, from, to, .. } => Self::Range { log, from: from.into(), to: to.into() },
        })
    }

    fn log(&self) -> u32 {
        match self {
            Self::Found { log, .. } | Self::Absent { log, .. } | Self::Range { log, .. } => *log,
        }
    }
}

/// The versions of keys in a history: the live one, or with an overlay the one that a repair makes.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    pub past: &'a Past,
    pub overlay: Option<&'a Overlay>,
}

/// The version of a key that somebody sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// It; none if the key has never had one.
    pub version: Option<&'a Version>,
    /// Its number as readers see it: if a repair has restated it since, that of the restatement.
    pub shown: u64,
    /// Whether the journal may have dropped the version that was there.
    pub is_unknown: bool,
}

impl<'a> Lookup<'a> {
    fn live(&self, log: u32) -> Option<&'a Versions> {
        self.past.logs.get(&log)?.versions.as_deref()
    }

    fn rewritten(&self, log: u32) -> Option<&'a Rewritten> {
        self.overlay?.table(log)
    }

    /// The versions of a key within places, the newest first.
    fn versions(&self, log: u32, key: &[u8], places: Range<Place>) -> impl Iterator<Item = &'a Version> {
        let overlay = self.overlay;
        let is_live = move |version: &&Version| overlay.is_none_or(|overlay| overlay.at(log, version.slot).is_none());
        let live = self.live(log).map(|live| live.of_key(key, places.clone()));
        let new = self.rewritten(log).map(|rewritten| rewritten.new.of_key(key, places));
        let live = live.into_iter().flat_map(Iterator::rev).filter(is_live);
        let (mut live, mut new) = (live.peekable(), new.into_iter().flat_map(Iterator::rev).peekable());
        std::iter::from_fn(move || match (live.peek(), new.peek()) {
            (Some(a), Some(b)) if a.place > b.place => live.next(),
            (Some(_), None) => live.next(),
            _ => new.next(),
        })
    }

    /// The version of a key that counts, among those before a place that somebody sees.
    pub fn find(&self, log: u32, key: &[u8], before: Place, sees: impl Fn(&Version) -> bool) -> Held<'a> {
        let mut restated = None;
        for version in self.versions(log, key, FIRST..before).filter(|version| sees(version)) {
            match version.restates {
                Some(_) => restated = restated.or(Some(version)),
                // The value that expired before says so itself.
                None if version.is_expiry => {}
                None => {
                    let shown = restated.map_or(version.slot, |restated| restated.slot);
                    return Held { version: Some(version), shown, is_unknown: false };
                }
            }
        }
        let shown = restated.map_or(0, |restated| restated.slot);
        // The journal may not have the record any more whose value was restated.
        let is_gone = |source: u64| self.live(log).is_some_and(|live| source != 0 && live.of_slot(source).is_none());
        let is_known = |source: u64| self.past.logs.get(&log).is_some_and(|log| log.slots.contains_key(&source));
        let version = restated.filter(|it| it.restates.is_some_and(|of| is_gone(of) && !is_known(of)));
        let mut oldest = None;
        if version.is_none() && self.past.is_cut {
            let all = self.versions(log, key, FIRST..LAST).filter(|version| version.restates.is_none());
            oldest = all.filter(|version| !sees(version) || version.place >= before).last();
        }
        Held { version, shown, is_unknown: oldest.is_some_and(|oldest| oldest.has_previous) }
    }

    /// The keys of a range that have or had a version.
    pub fn keys(&self, log: u32, range: (&[u8], &[u8])) -> BTreeSet<Arc<[u8]>> {
        let live = self.live(log).into_iter().flat_map(|live| live.keys(range));
        let new = self.rewritten(log).into_iter().flat_map(|rewritten| rewritten.new.keys(range));
        live.chain(new).cloned().collect()
    }

    /// Whether a run that read this reads something else in the repaired history, because of an entry after a position if one is given. It
    /// may be asked in vain: then its replay leaves what it left.
    pub fn differs(&self, run: &Run, fired: &Fired, row: &KeyedRow, after: Option<Position>) -> bool {
        let log = row.log();
        let Some(rewritten) = self.rewritten(log) else { return false };
        // What a deletion finds is read when the run is published.
        let seen = |place: &Place, touch: &Touch| {
            let is_before = place.0 < run.done && !run.appends.contains(&(log, place.1));
            is_before && after.is_none_or(|after| touch.at > after)
        };
        match row {
            KeyedRow::Absent { key, .. } => rewritten.touches_key(key, seen),
            KeyedRow::Range { from, to, .. } => rewritten.touches((from, to), seen),
            KeyedRow::Found { seqno, .. } => {
                let live = Lookup { overlay: None, ..*self };
                let Some((key, version)) = live.live(log).and_then(|live| live.of_slot(*seqno)) else {
                    // Of a record that is gone nobody knows the key.
                    return rewritten
                        .touches((&[], &[]), |place, touch| seen(place, touch) && (place.1 == *seqno || touch.is_new));
                };
                let since = match version.restates {
                    None => version.place,
                    Some(_) => {
                        let held = live.find(log, key, (run.done, 0), |it| it.is_seen(fired));
                        held.version.map_or(FIRST, |it| it.place)
                    }
                };
                rewritten.touches_key(key, |place, touch| *place >= since && seen(place, touch))
            }
        }
    }
}
