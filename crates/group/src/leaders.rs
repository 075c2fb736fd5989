//! Who led in which term, and with which entry the term begins in the log: entries of one index and term are the same only if one host led
//! in the term.

use std::collections::BTreeMap;

/// Of more terms, the newest.
const TERMS_MAX: usize = 256;
const TERM_BYTES: usize = 24;

/// The terms of the entries of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaders(BTreeMap<u64, Led>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Led {
    /// 0 if it is not known.
    leader: u64,
    /// The first entry of the term.
    first: u64,
}

impl Leaders {
    /// The leader of a term; 0 if none is known.
    pub fn of(&self, term: u64) -> u64 {
        self.0.get(&term).map_or(0, |led| led.leader)
    }

    /// The term of an entry; `None` if it is not known. The entry must not be behind the last one.
    pub fn term_at(&self, index: u64) -> Option<u64> {
        self.0.iter().rev().find(|(_, led)| led.first <= index).map(|(term, _)| *term)
    }

    /// Takes note of the leader of a term, unless one is known, and of an entry of the term.
    pub fn note(&mut self, term: u64, leader: u64, entry: u64) {
        if term == 0 {
            return;
        }
        let led = self.0.entry(term).or_insert(Led { leader, first: entry });
        led.first = led.first.min(entry);
        if led.leader == 0 {
            led.leader = leader;
        }
        while self.0.len() > TERMS_MAX {
            self.0.pop_first();
        }
    }

    /// Takes note of all of these.
    pub fn note_all(&mut self, others: &Self) {
        others.0.iter().for_each(|(term, led)| self.note(*term, led.leader, led.first));
    }

    /// The log has this entry, and none behind it.
    pub fn ends_with(&mut self, term: u64, entry: u64) {
        self.0.retain(|known, led| *known == term || led.first < entry);
        self.note(term, 0, entry);
    }

    /// Those of some terms.
    pub fn only(&self, terms: impl Iterator<Item = u64>) -> Self {
        Self(terms.filter_map(|term| self.0.get(&term).map(|led| (term, *led))).collect())
    }

    /// Each term with its leader, as far as it is known.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(term, led)| (*term, led.leader)).filter(|(_, leader)| *leader != 0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Term, leader and first entry of each, as messages and the log have them.
    pub fn bytes(&self) -> Vec<u8> {
        let words = self.0.iter().flat_map(|(term, Led { leader, first })| [*term, *leader, *first]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    /// What these bytes say; `None` if they are invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(TERM_BYTES) || bytes.len() > TERMS_MAX * TERM_BYTES {
            return None;
        }
        let mut leaders = Self::default();
        for term in bytes.chunks_exact(TERM_BYTES) {
            let word = |at: usize| term.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
            leaders.note(word(0)?, word(8)?, word(16)?);
        }
        Some(leaders)
    }
}
