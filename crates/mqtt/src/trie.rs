//! The subscriptions of all sessions, by the levels of their filters.

use crate::filter::is_reserved;
use std::collections::{BTreeMap, HashMap};

/// Who has which filter. Finding those whose filters match a topic takes no longer when there are more that do not.
#[derive(Debug)]
pub struct Trie<V> {
    root: Node<V>,
}

#[derive(Debug)]
struct Node<V> {
    /// By the next level, which may be `+`.
    below: HashMap<Box<str>, Node<V>>,
    /// Filters that end here, and those that end with `#` here.
    here: BTreeMap<u64, V>,
    all: BTreeMap<u64, V>,
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self { below: HashMap::new(), here: BTreeMap::new(), all: BTreeMap::new() }
    }
}

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Self { root: Node::default() }
    }
}

impl<V> Node<V> {
    fn is_empty(&self) -> bool {
        self.below.is_empty() && self.here.is_empty() && self.all.is_empty()
    }

    fn remove<'f>(&mut self, mut levels: impl Iterator<Item = &'f str>, who: u64) -> Option<V> {
        match levels.next() {
            None => self.here.remove(&who),
            Some("#") => self.all.remove(&who),
            Some(level) => {
                let below = self.below.get_mut(level)?;
                let removed = below.remove(levels, who);
                if below.is_empty() {
                    self.below.remove(level);
                }
                removed
            }
        }
    }

    fn visit<'t>(&self, levels: &[&'t str], wildcards: bool, visit: &mut dyn FnMut(u64, &V)) {
        if wildcards {
            self.all.iter().for_each(|(who, value)| visit(*who, value));
        }
        let Some((level, rest)) = levels.split_first() else {
            return self.here.iter().for_each(|(who, value)| visit(*who, value));
        };
        if let Some(below) = self.below.get(*level) {
            below.visit(rest, true, visit);
        }
        if wildcards && let Some(below) = self.below.get("+") {
            below.visit(rest, true, visit);
        }
    }
}

impl<V> Trie<V> {
    /// Whether nobody has a filter.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// Somebody has this valid filter from now on; returns the value that it had before.
    pub fn insert(&mut self, filter: &str, who: u64, value: V) -> Option<V> {
        let mut node = &mut self.root;
        for level in filter.split('/') {
            if level == "#" {
                return node.all.insert(who, value);
            }
            node = node.below.entry(level.into()).or_default();
        }
        node.here.insert(who, value)
    }

    /// Somebody has it no longer.
    pub fn remove(&mut self, filter: &str, who: u64) -> Option<V> {
        self.root.remove(filter.split('/'), who)
    }

    /// Visits everybody with a filter that matches the topic, once for each such filter.
    pub fn visit(&self, topic: &str, mut visit: impl FnMut(u64, &V)) {
        let levels: Vec<&str> = topic.split('/').collect();
        self.root.visit(&levels, !is_reserved(topic), &mut visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{check_filter, matches};
    use proptest::prelude::*;

    fn levels(of: &'static str) -> impl Strategy<Value = String> {
        prop::collection::vec(of, 1..5).prop_map(|levels| levels.join("/"))
    }

    proptest! {
        #[test]
        fn it_finds_exactly_the_filters_that_match(
            filters in prop::collection::vec((levels("[ab+]|\\$s|"), any::<bool>(), 0u64..4), 0..24),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            topics in prop::collection::vec(levels("[ab]|\\$s|"), 1..8),
        ) {
            let mut model: Vec<(String, u64)> = Vec::new();
            let mut trie = Trie::default();
            for (mut filter, all, who) in filters {
                if all {
                    filter.push_str("/#");
                }
                if check_filter(&filter).is_err() {
                    continue; // an empty one
                }
                let before = trie.insert(&filter, who, ());
                prop_assert_eq!(before.is_some(), model.contains(&(filter.clone(), who)));
                model.retain(|there| *there != (filter.clone(), who));
                model.push((filter, who));
            }
            for index in removed {
                if !model.is_empty() {
                    let (filter, who) = model.remove(index.index(model.len()));
                    prop_assert!(trie.remove(&filter, who).is_some());
                    prop_assert!(trie.remove(&filter, who).is_none());
                }
            }
            for topic in topics {
                let mut found = Vec::new();
                trie.visit(&topic, |who, ()| found.push(who));
                let mut expected: Vec<u64> =
                    model.iter().filter(|(filter, _)| matches(filter, &topic)).map(|(_, who)| *who).collect();
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
            for (filter, who) in model {
                trie.remove(&filter, who);
            }
            prop_assert!(trie.is_empty(), "empty branches stay");
        }
    }
}
