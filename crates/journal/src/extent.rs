//! Which records of a log can be read at a point of the journal.
//!
//! Everything that answers reads uses this rule: a read now, a read as of an earlier position, and the replay of a run by a repair.

use millrace_wire::Result;

/// See the module. It follows from the entries before that point: the APPENDs and TRIMs of the log, and the DEFINEs of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The newest seqno, void or not; 0 if there is none.
    pub latest: u64,
    /// How many of its newest records the log keeps.
    pub history: u64,
    /// Records before this seqno were trimmed.
    pub floor: u64,
}

impl Extent {
    /// The oldest seqno that is kept; one more than the newest if all records were trimmed.
    #[inline]
    pub fn earliest(&self) -> u64 {
        (self.latest.saturating_sub(self.history) + 1).max(self.floor)
    }

    /// Whether a record is kept, void or not.
    #[inline]
    pub fn has(&self, seqno: u64) -> bool {
        (self.earliest()..=self.latest).contains(&seqno)
    }

    /// The newest seqno that is not void; the one before the oldest if all are.
    pub fn newest(&self, mut is_void: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
        let (mut seqno, earliest) = (self.latest, self.earliest());
        while seqno >= earliest && is_void(seqno)? {
            seqno -= 1;
        }
        Ok(seqno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_trimmed_or_has_left_the_history_cannot_be_read() {
        let extent = |latest, history, floor| Extent { latest, history, floor };
        let kept = |extent: Extent| (0..=9).filter(|seqno| extent.has(*seqno)).collect::<Vec<u64>>();
        assert_eq!(kept(extent(4, u64::MAX, 0)), [1, 2, 3, 4]);
        assert_eq!(kept(extent(4, 2, 0)), [3, 4]);
        assert_eq!(kept(extent(4, 3, 4)), [4]);
        assert_eq!((kept(extent(4, 3, 5)), extent(4, 3, 5).earliest()), (Vec::new(), 5));
        assert!(kept(extent(0, 3, 0)).is_empty());
        let newest = |extent: Extent, void: &[u64]| extent.newest(|seqno| Ok(void.contains(&seqno))).unwrap();
        assert_eq!(newest(extent(4, 9, 0), &[2, 4]), 3);
        assert_eq!((newest(extent(2, 9, 0), &[1, 2]), newest(extent(4, 2, 0), &[1, 2, 3, 4])), (0, 2));
    }
}
