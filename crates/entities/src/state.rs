//! The state of an entity, whatever its type, and the effects that change it.

use crate::{Session, value};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, VecDeque},
    mem,
};

/// The place of a waiter in an entity's queue; tickets only grow.
pub type Ticket = u64;

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// A waiting call.
    pub session: Session,
    /// The number of the call.
    pub call: u64,
    /// The kind of wait, which the type defines.
    pub way: u8,
    /// Its data: an item, a result.
    pub value: Vec<u8>,
    /// The name and the token of a lock, if the call has them: a call with a higher token of this name refuses it.
    pub fence: Option<(Box<str>, u64)>,
}

impl Waiter {
    fn bytes(&self) -> usize {
        let fence = self.fence.as_ref().map_or(0, |(name, _)| name.len() + ELEMENT_BYTES);
        self.value.len() + ELEMENT_BYTES + fence
    }
}

/// A key of a map, in the order of numbers, then text, then bytes, then everything else by its encoding. Keys that are equal in Python are
/// equal: see [`value::canonical`].
#[derive(Clone, Debug)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub fn of(key: &[u8]) -> Self {
        Self(value::canonical(key).into_owned())
    }

    fn rank(&self) -> (u8, f64, i64) {
        match (value::as_int(&self.0), value::as_float(&self.0)) {
            (Some(whole), _) => (0, whole as f64, whole),
            // NaN sorts after all numbers, and equals itself.
            (None, Some(number)) if number.is_nan() => (1, 0.0, 0),
            (None, Some(number)) => (0, number, if number < 0.0 { i64::MIN } else { i64::MAX }),
            (None, None) => (2, 0.0, 0),
        }
    }

    /// The bytes after the length: text and bytes sort by content.
    fn content(&self) -> (u8, &[u8]) {
        match self.0.first() {
            Some(0xa0..=0xbf) => (0, &self.0[1..]),
            Some(0xd9) => (0, self.0.get(2..).unwrap_or_default()),
            Some(0xda) => (0, self.0.get(3..).unwrap_or_default()),
            Some(0xdb) => (0, self.0.get(5..).unwrap_or_default()),
            Some(0xc4..=0xc6) => (1, value::as_bytes(&self.0).unwrap_or_default()),
            _ => (2, &self.0),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((rank, number, tie), (other_rank, other_number, other_tie)) = (self.rank(), other.rank());
        let numbers = || number.total_cmp(&other_number).then(tie.cmp(&other_tie));
        rank.cmp(&other_rank)
            .then_with(numbers)
            .then_with(|| self.content().cmp(&other.content()))
            .then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

/// One change of a state. It contains the new value, so applying it twice has the same result as applying it once, except for insertions
/// into and removals from a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Sets a field of the type; `None` removes it.
    Field(u8, Option<Vec<u8>>),
    /// Sets the value of a key, with its place in the order of insertion; `None` removes the key.
    Put(Vec<u8>, Option<(u64, Vec<u8>)>),
    /// Inserts an item at this place of the sequence.
    Insert(usize, Vec<u8>),
    /// Replaces the item at this place of the sequence.
    Replace(usize, Vec<u8>),
    /// Removes the item at this place of the sequence.
    Remove(usize),
    /// Writes these bytes from this place on, and sets the length.
    Write(usize, Vec<u8>, usize),
    /// Adds a waiter.
    Wait(Ticket, Waiter),
    /// Removes the waiter with this ticket.
    Leave(Ticket),
}

/// The state of an entity at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    fields: BTreeMap<u8, Vec<u8>>,
    map: BTreeMap<Key, (u64, Vec<u8>)>,
    /// The keys in the form in which they were put, by their places.
    order: BTreeMap<u64, Vec<u8>>,
    sequence: VecDeque<Vec<u8>>,
    blob: Vec<u8>,
    waiters: BTreeMap<Ticket, Waiter>,
    bytes: usize,
}

/// The approximate overhead of an element in bytes.
const ELEMENT_BYTES: usize = 48;

impl State {
    /// Applies an effect, and returns the effect that undoes it. A place outside the sequence is the caller's error: the nearest existing
    /// place is used.
    pub fn apply(&mut self, effect: Effect) -> Effect {
        match effect {
            Effect::Field(field, value) => {
                self.grow(value.as_ref());
                let old = match value {
                    Some(value) => self.fields.insert(field, value),
                    None => self.fields.remove(&field),
                };
                self.shrink(old.as_ref());
                Effect::Field(field, old)
            }
            Effect::Put(key, value) => {
                let same = Key::of(&key);
                // The first of equal keys stays, as in Python.
                let key = self.map.get(&same).and_then(|(at, _)| self.order.get(at)).cloned().unwrap_or(key);
                let old = match value {
                    Some((at, value)) => {
                        self.bytes += key.len() + value.len() + 2 * ELEMENT_BYTES;
                        self.order.insert(at, key.clone());
                        self.map.insert(same.clone(), (at, value))
                    }
                    None => self.map.remove(&same),
                };
                if let Some((at, value)) = &old {
                    self.bytes -= key.len() + value.len() + 2 * ELEMENT_BYTES;
                    if self.map.get(&same).is_none_or(|(now, _)| now != at) {
                        self.order.remove(at);
                    }
                }
                Effect::Put(key, old)
            }
            Effect::Insert(at, value) => {
                let at = at.min(self.sequence.len());
                self.grow(Some(&value));
                self.sequence.insert(at, value);
                Effect::Remove(at)
            }
            Effect::Replace(at, value) => match self.sequence.get_mut(at) {
                Some(place) => {
                    let old = mem::replace(place, value);
                    self.bytes = self.bytes + self.sequence[at].len() - old.len();
                    Effect::Replace(at, old)
                }
                None => self.apply(Effect::Insert(at, value)),
            },
            Effect::Remove(at) => match self.sequence.remove(at) {
                Some(old) => {
                    self.shrink(Some(&old));
                    Effect::Insert(at, old)
                }
                None => Effect::Remove(at),
            },
            Effect::Write(at, with, length) => {
                let before = self.blob.len();
                let at = at.min(before.max(length));
                let end = (at + with.len()).max(length).max(before);
                let mut old = self.blob.get(at..).unwrap_or_default().to_vec();
                if length >= before {
                    old.truncate(with.len());
                }
                self.blob.resize(end, 0);
                self.blob[at..at + with.len()].copy_from_slice(&with);
                self.blob.truncate(length);
                self.bytes = self.bytes + self.blob.len() - before;
                Effect::Write(at, old, before)
            }
            Effect::Wait(ticket, waiter) => {
                self.bytes += waiter.bytes();
                self.waiters.insert(ticket, waiter);
                Effect::Leave(ticket)
            }
            Effect::Leave(ticket) => match self.waiters.remove(&ticket) {
                Some(waiter) => {
                    self.bytes -= waiter.bytes();
                    Effect::Wait(ticket, waiter)
                }
                None => Effect::Leave(ticket),
            },
        }
    }

    fn grow(&mut self, value: Option<&Vec<u8>>) {
        self.bytes += value.map_or(0, |value| value.len() + ELEMENT_BYTES);
    }

    fn shrink(&mut self, value: Option<&Vec<u8>>) {
        self.bytes -= value.map_or(0, |value| value.len() + ELEMENT_BYTES);
    }

    /// The effects that create it, each with a limited part of the blob.
    pub(crate) fn effects(&self, part: usize) -> impl Iterator<Item = Effect> {
        let fields = self.fields.iter().map(|(field, value)| Effect::Field(*field, Some(value.clone())));
        let map = self.map.values().map(|(at, value)| Effect::Put(self.key(*at).to_vec(), Some((*at, value.clone()))));
        let sequence = self.sequence.iter().enumerate().map(|(at, value)| Effect::Insert(at, value.clone()));
        let parts = self.blob.chunks(part).enumerate();
        let blob = parts.map(move |(at, bytes)| Effect::Write(at * part, bytes.to_vec(), at * part + bytes.len()));
        let waiters = self.waiters.iter().map(|(ticket, waiter)| Effect::Wait(*ticket, waiter.clone()));
        fields.chain(map).chain(sequence).chain(blob).chain(waiters)
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The waiters, in the order in which they came.
    pub fn waiters(&self) -> &BTreeMap<Ticket, Waiter> {
        &self.waiters
    }

    pub(crate) fn field(&self, field: u8) -> Option<&[u8]> {
        self.fields.get(&field).map(Vec::as_slice)
    }

    pub(crate) fn number(&self, field: u8) -> i64 {
        self.field(field).and_then(value::as_int).unwrap_or(0)
    }

    pub(crate) fn at(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.get(&Key::of(key)).map(|(_, value)| value.as_slice())
    }

    pub(crate) fn place(&self, key: &[u8]) -> Option<u64> {
        self.map.get(&Key::of(key)).map(|(at, _)| *at)
    }

    /// The map in the order of insertion.
    pub(crate) fn inserted(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.order.values().map(|key| (key.as_slice(), self.at(key).unwrap_or_default()))
    }

    /// The map in the order of its keys, between two of them if given: the first is in it, the last is not.
    pub(crate) fn sorted(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let (from, to) = (from.map(Key::of), to.map(Key::of));
        let empty = matches!((&from, &to), (Some(from), Some(to)) if from >= to);
        let range = (!empty).then(|| (from.map_or(Unbounded, Included), to.map_or(Unbounded, Excluded)));
        range
            .into_iter()
            .flat_map(|range| self.map.range(range))
            .map(|(_, (at, value))| (self.key(*at), value.as_slice()))
    }

    /// The key at a place of the order of insertion.
    fn key(&self, at: u64) -> &[u8] {
        self.order.get(&at).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn next_place(&self) -> u64 {
        self.order.last_key_value().map_or(0, |(at, _)| at + 1)
    }

    pub(crate) fn sequence(&self) -> &VecDeque<Vec<u8>> {
        &self.sequence
    }

    pub(crate) fn blob(&self) -> &[u8] {
        &self.blob
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(call: u64) -> Waiter {
        Waiter { session: [1; 16], call, way: 0, value: vec![0xc0], fence: Some(("door".into(), call)) }
    }

    #[test]
    fn every_effect_is_taken_back_by_the_one_that_applying_it_returns() {
        let mut state = State::default();
        let first = [
            Effect::Field(0, Some(value::int(3))),
            Effect::Put(value::text("a"), Some((0, value::int(1)))),
            Effect::Put(value::text("b"), Some((1, value::int(2)))),
            Effect::Insert(0, value::int(1)),
            Effect::Insert(1, value::int(2)),
            Effect::Write(0, b"hello world".to_vec(), 11),
            Effect::Wait(4, waiter(1)),
        ];
        first.into_iter().for_each(|effect| drop(state.apply(effect)));
        let cases = [
            Effect::Field(0, None),
            Effect::Field(0, Some(value::int(5))),
            Effect::Field(1, Some(value::int(5))),
            Effect::Put(value::text("a"), None),
            Effect::Put(value::text("a"), Some((0, value::int(9)))),
            Effect::Put(value::text("a"), Some((7, value::int(9)))),
            Effect::Put(value::text("c"), Some((2, value::int(9)))),
            Effect::Insert(1, value::int(9)),
            Effect::Replace(1, value::text("longer than that")),
            Effect::Remove(0),
            Effect::Remove(9),
            Effect::Write(3, b"XY".to_vec(), 11),
            Effect::Write(9, b"beyond".to_vec(), 15),
            Effect::Write(20, b"z".to_vec(), 21),
            Effect::Write(0, Vec::new(), 4),
            Effect::Write(2, b"Q".to_vec(), 5),
            Effect::Wait(5, waiter(2)),
            Effect::Leave(4),
            Effect::Leave(9),
        ];
        for effect in cases {
            let before = state.clone();
            let back = state.apply(effect.clone());
            let after = state.clone();
            let again = state.apply(back.clone());
            assert_eq!(state, before, "{effect:?} and {back:?}");
            state.apply(again);
            assert_eq!(state, after, "{effect:?} once more");
            state.apply(back);
        }
    }

    #[test]
    fn keys_sort_by_what_they_say() {
        let sorted = [
            value::float(f64::NEG_INFINITY),
            value::int(-5),
            value::float(-0.5),
            value::int(0),
            value::float(0.5),
            value::int(2),
            value::int(300),
            value::text("a"),
            value::text(&"a".repeat(40)),
            value::text("b"),
            value::bytes(b"a"),
        ];
        let mut keys: Vec<Key> = sorted.iter().rev().map(|key| Key::of(key)).collect();
        keys.sort();
        assert_eq!(keys, sorted.each_ref().map(|key| Key::of(key)));
    }

    #[test]
    fn equal_numbers_are_one_key_and_the_first_of_them_stays() {
        let tuple = |inner: &[u8]| [&[0xc7, inner.len() as u8 + 1, 2, 0x91], inner].concat();
        let equal = [value::int(1), value::float(1.0), value::boolean(true)];
        for wrap in [|key: &[u8]| key.to_vec(), |key: &[u8]| [&[0xc7, key.len() as u8 + 1, 2, 0x91], key].concat()] {
            for (first, second) in equal.iter().flat_map(|one| equal.iter().map(move |two| (wrap(one), wrap(two)))) {
                let mut state = State::default();
                state.apply(Effect::Put(first.clone(), Some((0, value::int(5)))));
                let before = state.clone();
                let back = state.apply(Effect::Put(second.clone(), Some((0, value::int(6)))));
                assert_eq!(state.inserted().collect::<Vec<_>>(), [(&*first, &*value::int(6))]);
                assert_eq!(state.sorted(None, None).collect::<Vec<_>>(), [(&*first, &*value::int(6))]);
                state.apply(back);
                assert_eq!(state, before);
                let back = state.apply(Effect::Put(second, None));
                assert_eq!((state.len(), state.bytes()), (0, 0));
                state.apply(back);
                assert_eq!(state, before);
                let copied = State::default();
                let copied = before.effects(8).fold(copied, |mut copied, effect| {
                    copied.apply(effect);
                    copied
                });
                assert_eq!(copied, before);
            }
        }
        let mut state = State::default();
        let others = [
            value::float(1.5),
            value::float(1e300),
            value::float(-0.5),
            value::text("1"),
            tuple(&value::int(2)),
            value::int(2),
        ];
        others
            .iter()
            .zip(0..)
            .for_each(|(key, at)| drop(state.apply(Effect::Put(key.clone(), Some((at, value::nil()))))));
        assert_eq!(state.len(), others.len());
        assert!(state.at(&value::int(-0)).is_none() && state.at(&tuple(&value::float(2.0))).is_some());
    }
}
