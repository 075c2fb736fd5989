//! What a replica finds of its log after a start.

use crate::{
    Leaders, Mark, Payloads, Place, Proposal, State, Write,
    index::{Index, Slot},
};
use millrace_wire::{Code, Result};
use std::collections::HashMap;

/// The stored state of a replica.
pub struct Recovered {
    pub(super) index: Index,
    /// The snapshot in progress: the bytes of its topics, and the entries with their records.
    begun: Option<(Vec<u8>, HashMap<u64, Slot>)>,
    /// The newest complete snapshot.
    pub(super) snapshot: Option<(Mark, Vec<u8>)>,
}

impl Recovered {
    /// Nothing yet.
    pub fn new(founders: Vec<u64>, payloads: Box<dyn Payloads>) -> Self {
        Self { index: Index::new(founders, payloads), begun: None, snapshot: None }
    }

    /// Adds a written item, in the order of writing, without the bytes of entries: their number is `bytes`.
    pub fn wrote(&mut self, write: Write, place: Place, bytes: usize) -> Result<()> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        match write {
            Write::Entry(Proposal { index, term, form, .. }) => {
                if !self.index.note(index, Slot { term, place, bytes, form }) {
                    let last = self.index.last();
                    return Err(Code::GroupLogDamaged.error(format!("entry {index} comes after entry {last}")));
                }
                return Ok(());
            }
            Write::Led(leaders) => self.index.note_leaders(&leaders),
            Write::Begin => self.begun = Some(Default::default()),
            Write::Part(part) => {
                if let Some((state, _)) = &mut self.begun {
                    state.extend_from_slice(&part);
                }
            }
            Write::Kept(Proposal { index, term, form, .. }) => {
                if let Some((_, kept)) = &mut self.begun {
                    kept.insert(index, Slot { term, place, bytes, form });
                }
            }
            Write::End(mark) => {
                mark.check()?;
                // The beginning of a snapshot that a later one has replaced may be trimmed.
                if let Some((state, kept)) = self.begun.take()
                    && self.index.install(&mark, kept)
                {
                    self.snapshot = Some((mark, state));
                }
            }
        }
        self.index.count(bytes as usize);
        Ok(())
    }

    /// Adds a written state, in the same way.
    pub fn state(&mut self, state: State) {
        if state.term == self.index.last_term() {
            // Versions that wrote no leaders of terms.
            let mut leaders = Leaders::default();
            leaders.note(state.term, state.leader, self.index.last());
            self.index.note_leaders(&leaders);
        }
        self.index.set_state(state);
    }

    /// After a power failure, entries of a term may exist without the STATE that began the term: no message was sent in that term.
    pub(super) fn complete(&mut self) {
        let (state, term) = (self.index.state(), self.index.last_term());
        if term > state.term {
            self.index.set_state(State { term, vote: 0, leader: 0, ..state });
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let (commit, base, last) = (self.index.state().commit, self.index.base(), self.index.last());
        if commit > last {
            return Err(
                Code::GroupLogDamaged.error(format!("entry {commit} was committed, but the last entry is {last}"))
            );
        }
        if commit < base || (base > 0 && self.snapshot.is_none()) {
            return Err(Code::GroupLogDamaged
                .error(format!("entries up to {base} are missing, and there is no snapshot of them")));
        }
        Ok(())
    }
}
