//! Chord, simulated: how many messages a lookup takes in a ring of so many groups, without churn (Stoica et al., 2001, section 4).

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The bits of an identifier that the ring uses: no two groups here have the same ones.
const BITS: u32 = u64::BITS;

/// A ring whose fingers are all correct.
pub struct Chord {
    /// In ascending order.
    ids: Vec<u64>,
    /// Of each node: the successor of its id + 2^k, for each k.
    fingers: Vec<Vec<usize>>,
}

impl Chord {
    pub fn new(nodes: usize) -> Self {
        let mut ids: Vec<u64> = (0..nodes).map(|node| id(&format!("group {node}"))).collect();
        ids.sort_unstable();
        ids.dedup();
        let fingers = |own: &u64| (0..BITS).map(|bit| successor(&ids, own.wrapping_add(1 << bit))).collect();
        let fingers = ids.iter().map(fingers).collect();
        Self { ids, fingers }
    }

    /// How many nodes are asked, one after the other, until the one that has the key answers. `from` is any number: it chooses who begins.
    pub fn hops(&self, from: usize, key: &str) -> u64 {
        let (key, mut at, mut hops) = (id(key), from % self.ids.len(), 0);
        let owner = successor(&self.ids, key);
        while at != owner {
            let behind = |node: &usize| self.ids[*node].wrapping_sub(self.ids[at]);
            let distance = key.wrapping_sub(self.ids[at]);
            // The closest finger before the key; behind the last one is the owner.
            let closest = self.fingers[at].iter().rev().copied().find(|finger| (1..distance).contains(&behind(finger)));
            at = closest.unwrap_or(owner);
            hops += 1;
        }
        hops
    }
}

fn id(name: &str) -> u64 {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, name.as_bytes());
    digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The first node at or behind an id, around the ring.
fn successor(ids: &[u64], id: u64) -> usize {
    ids.partition_point(|node| *node < id) % ids.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_in_a_ring_takes_about_half_its_logarithm() {
        assert_eq!(Chord::new(1).hops(0, "t"), 0);
        for (nodes, most) in [(16, 4.0), (1024, 7.0)] {
            let (ring, lookups) = (Chord::new(nodes), 4000);
            let hops: u64 = (0..lookups).map(|lookup| ring.hops(lookup * 7, &format!("topic {lookup}"))).sum();
            let mean = hops as f64 / lookups as f64;
            let half = (nodes as f64).log2() / 2.0;
            assert!(half * 0.8 <= mean && mean <= most, "{nodes} nodes: {mean}");
        }
    }
}
