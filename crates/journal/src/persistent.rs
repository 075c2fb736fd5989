//! Persistent collections: a copy shares the unchanged chunks, so a copy with one change costs a few chunks, whatever the size.

use std::{
    borrow::Borrow,
    hash::{BuildHasher, Hash, RandomState},
    sync::Arc,
};

/// Entries of a chunk, at most.
const CHUNK_MAX: usize = 64;

/// An item with a small number as its key.
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

/// An item with a key by which it is sorted.
pub(crate) trait Keyed {
    type Key: Ord + ?Sized;
    fn key(&self) -> &Self::Key;
}

/// Values in the order of their keys, which are unique.
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

    /// Whether there are so few that to compare keys takes less than to hash one.
    pub fn is_small(&self) -> bool {
        self.0.len() <= 1
    }
}

/// Buckets that are copied together.
const GROUP: usize = 32;
/// Values of a bucket on average, at most.
const BUCKET_MEAN: usize = 8;

/// Values whose keys have one hash, modulo the number of buckets; each with the rest of its hash.
type Bucket<T> = Arc<[(u32, T)]>;

/// Values that are found by the hash of their keys. To find one of many in [`Sorted`] takes a look at a dozen others, which are
/// all over the memory.
#[derive(Clone)]
pub(crate) struct Hashed<T> {
    groups: Vec<Arc<[Bucket<T>; GROUP]>>,
    count: usize,
    hashes: RandomState,
}

impl<T> Default for Hashed<T> {
    fn default() -> Self {
        Self { groups: Vec::new(), count: 0, hashes: RandomState::new() }
    }
}

impl<T: Clone + Keyed> Hashed<T>
where
    T::Key: Hash,
{
    /// The group and bucket of a key, and the rest of its hash.
    #[inline]
    fn place(&self, key: &T::Key) -> (usize, usize, u32) {
        let hash = self.hashes.hash_one(key);
        let bucket = hash as usize % (self.groups.len() * GROUP).max(1);
        (bucket / GROUP, bucket % GROUP, (hash >> 32) as u32)
    }

    #[inline]
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        let (group, bucket, rest) = self.place(key);
        let bucket = &self.groups.get(group)?[bucket];
        bucket.iter().find(|(other, value)| *other == rest && value.key() == key).map(|(_, value)| value)
    }

    pub fn insert(&mut self, value: T) {
        if self.count >= self.groups.len() * GROUP * BUCKET_MEAN {
            self.grow();
        }
        let (group, bucket, rest) = self.place(value.key());
        let bucket = &mut Arc::make_mut(&mut self.groups[group])[bucket];
        let others = bucket.iter().filter(|(_, other)| other.key() != value.key()).cloned();
        let with: Bucket<T> = others.chain([(rest, value.clone())]).collect();
        self.count += with.len() - bucket.len();
        *bucket = with;
    }

    pub fn remove(&mut self, key: &T::Key) {
        let (group, bucket, _) = self.place(key);
        let Some(group) = self.groups.get_mut(group) else { return };
        if group[bucket].iter().any(|(_, value)| value.key() == key) {
            let bucket = &mut Arc::make_mut(group)[bucket];
            *bucket = bucket.iter().filter(|(_, value)| value.key() != key).cloned().collect();
            self.count -= 1;
        }
    }

    fn grow(&mut self) {
        let mut buckets: Vec<Vec<(u32, T)>> = vec![Vec::new(); (self.groups.len() * 2).max(1) * GROUP];
        let mut grown = Self { groups: Vec::new(), count: self.count, hashes: self.hashes.clone() };
        let empty: Arc<[Bucket<T>; GROUP]> = Arc::new(std::array::from_fn(|_| Arc::from([])));
        grown.groups.resize(buckets.len() / GROUP, empty);
        for (rest, value) in self.groups.iter().flat_map(|group| group.iter()).flat_map(|bucket| bucket.iter()) {
            let (group, bucket, _) = grown.place(value.key());
            buckets[group * GROUP + bucket].push((*rest, value.clone()));
        }
        let mut buckets = buckets.into_iter().map(Bucket::from);
        for group in &mut grown.groups {
            *group = Arc::new(std::array::from_fn(|_| buckets.next().expect("so many were made")));
        }
        *self = grown;
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
    fn each_is_what_a_map_is_and_copies_stay_what_they_were() {
        let (mut map, mut sorted, mut table) = (BTreeMap::new(), Sorted::default(), Table::default());
        let mut hashed = Hashed::default();
        let (mut before, mut random) = (None, 7_u64);
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (random >> 33) as u32 % 700;
            let name = format!("log/{id}");
            if random >> 62 == 0 {
                map.remove(&name);
                sorted.remove(name.as_str());
                hashed.remove(name.as_str());
                table.set(id, None);
            } else {
                map.insert(name.clone(), Named(name.clone(), step));
                sorted.insert(Named(name.clone(), step));
                hashed.insert(Named(name.clone(), step));
                table.set(id, Some(step));
            }
            assert_eq!(sorted.get(name.as_str()), map.get(&name));
            assert_eq!(hashed.get(name.as_str()), map.get(&name));
            assert_eq!(hashed.count, map.len());
            assert_eq!(table.get(id).copied(), map.get(&name).map(|named| named.1));
            if step % 1000 == 0 {
                assert!(sorted.iter().eq(map.values()));
                let now = (map.clone(), sorted.clone(), hashed.clone());
                if let Some((map, sorted, hashed)) = before.replace(now) {
                    assert!(sorted.iter().eq(map.values()), "a copy changed");
                    assert!(map.iter().all(|(name, value)| hashed.get(name.as_str()) == Some(value)), "a copy changed");
                    assert_eq!(hashed.count, map.len());
                }
            }
        }
    }
}
