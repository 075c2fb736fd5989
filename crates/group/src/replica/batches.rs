//! How the writes of a turn are divided: each batch is on disk as a whole or not at all.

use super::{Place, Proposal, State, Turn, Write};
use millrace_wire::Result;

/// A part of the writes of a turn.
pub struct Batch<'t> {
    /// The items, in this order.
    pub writes: &'t [Write],
    /// The state to be written after them.
    pub state: Option<State>,
    /// Everything written before this position is no longer needed.
    pub trim: Option<Place>,
}

/// The most that a journal adds to an item: its own head, and that of the entry.
const AROUND_BYTES: usize = 128;

impl Turn {
    /// Batches of at most this many bytes, with what a journal adds to each item; an entry that alone has more is a batch of its own.
    ///
    /// A replica that has the entries of a batch also has the commit index that its leader sent with them. Otherwise, a power failure
    /// could leave it with two changes of the voters and no knowledge that they are committed, and former voters could elect it. With the
    /// commit index it misses at most one change, and any majority of the voters before that change has a voter in common with any
    /// majority of those after it.
    pub fn batches(&self, max_bytes: usize) -> Vec<Batch<'_>> {
        let (mut batches, mut rest) = (Vec::new(), &*self.writes);
        loop {
            let mut bytes = 0;
            let fits = |write: &&Write| {
                bytes += write.bytes() + AROUND_BYTES;
                bytes <= max_bytes
            };
            let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
            let (writes, later) = rest.split_at(count);
            rest = later;
            if rest.is_empty() {
                batches.push(Batch { writes, state: self.state, trim: self.trim });
                return batches;
            }
            let last = writes.iter().rev().find_map(|write| match write {
                Write::Entry(Proposal { index, .. }) => Some(*index),
                _ => None,
            });
            let known = |last| self.state.map(|state| State { commit: state.commit.min(last), ..state });
            batches.push(Batch { writes, state: last.and_then(known), trim: None });
        }
    }
}

/// How far a turn is written: whole batches. A disk that refuses one may take it later, and then only that one and those behind it are
/// written. A part of a snapshot that stood in the log twice would make the snapshot unreadable.
#[derive(Debug, Default)]
pub struct Written {
    batches: usize,
    places: Vec<Place>,
}

impl Written {
    /// Writes the batches of the turn that are not written yet. `write` returns the position of each item of a batch, all or nothing. After
    /// an error, a later call goes on with the batch that was refused.
    pub fn go_on(
        &mut self,
        turn: &Turn,
        batch_max_bytes: usize,
        mut write: impl FnMut(&Batch<'_>) -> Result<Vec<Place>>,
    ) -> Result<()> {
        for batch in &turn.batches(batch_max_bytes)[self.batches..] {
            self.places.extend(write(batch)?);
            self.batches += 1;
        }
        Ok(())
    }

    /// The positions of the items, once all are written.
    pub fn places(self) -> Vec<Place> {
        self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Form;
    use millrace_wire::Code;

    /// Room for two entries of 60 bytes.
    const TWO: usize = 2 * (60 + AROUND_BYTES);

    fn entry(index: u64, bytes: usize) -> Write {
        Write::Entry(Proposal { term: 2, index, form: Form::Command, data: vec![0; bytes] })
    }

    #[test]
    fn whoever_has_entries_knows_how_far_they_were_committed() {
        let state = State { term: 2, vote: 0, commit: 12, leader: 3 };
        let writes = vec![entry(10, 60), entry(11, 60), entry(12, 60), entry(13, 300), entry(14, 1)];
        let turn = Turn { writes, state: Some(state), trim: Some(Place(3)), ..Turn::default() };
        let of = |batch: &Batch<'_>| (batch.writes.len(), batch.state.map(|state| state.commit), batch.trim);
        let batches: Vec<_> = turn.batches(TWO).iter().map(of).collect();
        let expected = [(2, Some(11), None), (1, Some(12), None), (1, Some(12), None), (1, Some(12), Some(Place(3)))];
        assert_eq!(batches, expected);
        // The commit index has not changed, or there is nothing to write.
        let turn = Turn { state: None, ..turn };
        assert!(turn.batches(TWO).iter().all(|batch| batch.state.is_none()));
        let turn = Turn { state: Some(state), ..Turn::default() };
        assert_eq!(turn.batches(TWO).iter().map(of).collect::<Vec<_>>(), [(0, Some(12), None)]);
    }

    #[test]
    fn a_turn_goes_on_behind_the_last_batch_that_was_written() {
        let writes: Vec<Write> = (1..=5).map(|index| entry(index, 100)).collect();
        let turn = Turn { writes, state: Some(State { term: 2, vote: 0, commit: 5, leader: 3 }), ..Turn::default() };
        for refused in 0..5 {
            let (mut log, mut written, mut calls) = (Vec::new(), Written::default(), 0);
            let mut write = |batch: &Batch<'_>| {
                calls += 1;
                if calls == refused + 1 {
                    return Err(Code::DiskFull.error("no room"));
                }
                let first = log.len() as u64;
                log.extend(batch.writes.iter().cloned());
                Ok((first..log.len() as u64).map(Place).collect())
            };
            assert_eq!(written.go_on(&turn, 100 + AROUND_BYTES, &mut write).unwrap_err().code(), Code::DiskFull);
            written.go_on(&turn, 100 + AROUND_BYTES, &mut write).unwrap();
            written.go_on(&turn, 100 + AROUND_BYTES, &mut write).unwrap();
            assert_eq!(log, turn.writes, "refused {refused}");
            assert_eq!(written.places(), (0..5).map(Place).collect::<Vec<_>>());
        }
    }
}
