//! Collections of which a copy shares what did not change: a copy and one change cost what a few chunks take, whatever there is.

use std::{borrow::Borrow, sync::Arc};

/// Entries of a chunk, at most.
const CHUNK_MAX: usize = 64;

/// What is found by a small number.
#[derive(Clone)]
pub(crate) struct Table<T>(Vec<Arc<Vec<Option<T>>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Table<T> {
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        self.0.get(id as usize / CHUNK_MAX)?.get(id as usize % CHUNK_MAX)?.as_ref()
    }

    pub fn set(&mut self, id: u32, value: Option<T>) {
        let (chunk, at) = (id as usize / CHUNK_MAX, id as usize % CHUNK_MAX);
        if self.0.len() <= chunk {
            let empty = Arc::new(Vec::new()); // All that lie between are this one.
            self.0.resize(chunk + 1, empty);
        }
        let chunk = Arc::make_mut(&mut self.0[chunk]);
        if chunk.len() <= at {
            chunk.resize(at + 1, None);
        }
        chunk[at] = value;
    }
}

/// What has a key of its own that it is sorted by.
pub(crate) trait Keyed {
    type Key: Ord + ?Sized;
    fn key(&self) -> &Self::Key;
}

/// Values in the order of their keys, none of which is there twice.
#[derive(Clone)]
pub(crate) struct Sorted<T>(Vec<Arc<Vec<T>>>);

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone + Keyed> Sorted<T> {
    /// The chunk that has or would have a key.
    fn chunk(&self, key: &T::Key) -> usize {
        self.0.partition_point(|chunk| chunk[0].key() <= key).saturating_sub(1)
    }

    pub fn get<Q: Borrow<T::Key> + ?Sized>(&self, key: &Q) -> Option<&T> {
        let key = key.borrow();
        let chunk = self.0.get(self.chunk(key))?;
        chunk.binary_search_by(|value| value.key().cmp(key)).ok().map(|at| &chunk[at])
    }

    pub fn insert(&mut self, value: T) {
        if self.0.is_empty() {
            self.0.push(Arc::new(vec![value]));
            return;
        }
        let n = self.chunk(value.key());
        let chunk = Arc::make_mut(&mut self.0[n]);
        match chunk.binary_search_by(|other| other.key().cmp(value.key())) {
            Ok(at) => chunk[at] = value,
            Err(at) => chunk.insert(at, value),
        }
        if chunk.len() > CHUNK_MAX {
            let behind = chunk.split_off(CHUNK_MAX / 2);
            self.0.insert(n + 1, Arc::new(behind));
        }
    }

    pub fn remove(&mut self, key: &T::Key) {
        let n = self.chunk(key);
        let Some(chunk) = self.0.get_mut(n) else { return };
        if let Ok(at) = chunk.binary_search_by(|value| value.key().cmp(key)) {
            Arc::make_mut(chunk).remove(at);
            if chunk.is_empty() {
                self.0.remove(n);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|chunk| chunk.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq)]
    struct Named(String, u32);

    impl Keyed for Named {
        type Key = str;
        fn key(&self) -> &str {
            &self.0
        }
    }

    #[test]
    fn sorted_and_table_are_what_a_map_is_and_copies_stay_what_they_were() {
        let (mut map, mut sorted, mut table) = (BTreeMap::new(), Sorted::default(), Table::default());
        let (mut before, mut random) = (None, 7_u64);
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (random >> 33) as u32 % 700;
            let name = format!("log/{id}");
            if random >> 62 == 0 {
                map.remove(&name);
                sorted.remove(name.as_str());
                table.set(id, None);
            } else {
                map.insert(name.clone(), Named(name.clone(), step));
                sorted.insert(Named(name.clone(), step));
                table.set(id, Some(step));
            }
            assert_eq!(sorted.get(name.as_str()), map.get(&name));
            assert_eq!(table.get(id).copied(), map.get(&name).map(|named| named.1));
            if step % 1000 == 0 {
                assert!(sorted.iter().eq(map.values()));
                if let Some((map, sorted)) = before.replace((map.clone(), sorted.clone())) {
                    assert!(sorted.iter().eq(map.values()), "a copy changed");
                }
            }
        }
    }
}
