//! A group's log in the journal: the records of the log `_group/N`, in the order in which they were written.
//!
//! ```text
//!  PROPOSE  1  form (1)  index (8)  term (8)  data           takes the place of all that have its index or a higher one
//!  STATE    2  term (8)  vote (8)  commit (8)
//! ```
//!
//! Nothing is cut off: a follower whose end was wrong has the right one behind it. Topics point at PROPOSE records, so the bytes of a
//! published record stand in the journal once.

use crate::Namespace;
use millrace_group::{Command, Form, Payloads, Place, Proposal, Recovered, State, Turn};
use millrace_journal::{Log, Position, RecordMeta};
use millrace_namespace::names;
use millrace_wire::{Code, EventId, HISTORY_ALL, Result};

const PROPOSE: u8 = 1;
const STATE: u8 = 2;
const PROPOSE_HEAD_BYTES: usize = 18;
const STATE_BYTES: usize = 25;
/// What a published record has around it, at most: the name of its topic, and who published it.
pub const AROUND_MAX_BYTES: usize = 512;
/// Bytes of one batch of the journal, unless one entry alone has more.
const BATCH_MAX_BYTES: usize = 512 << 10;

/// The log of one group.
#[derive(Clone)]
pub struct Store {
    namespace: Namespace,
    log: Log,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Store {
    /// The log of this group, made if there is none.
    pub fn open(namespace: &Namespace, group: u32) -> Result<Self> {
        let name = names::internal(&format!("_group/{group}"));
        let committed = namespace.journal().commit(|tx| match tx.catalog().log(&name) {
            Some(log) => Ok(log.clone()),
            None => tx.create_log(&name, HISTORY_ALL),
        })?;
        Ok(Self { namespace: namespace.clone(), log: committed.value })
    }

    /// What stands in it.
    pub fn recover(&self, founders: Vec<u64>) -> Result<Recovered> {
        let mut recovered = Recovered::new(founders, Box::new(self.clone()));
        let mut bytes = Vec::new();
        for seqno in self.log.earliest().max(1)..=self.log.latest() {
            bytes.clear();
            self.namespace.journal().get(&self.log, seqno, &mut bytes)?;
            let damaged = || Code::GroupLogDamaged.error(format!("record {seqno} of log '{}'", self.log.name()));
            match bytes.first() {
                Some(&PROPOSE) => {
                    let (index, term) = word(&bytes, 2).zip(word(&bytes, 10)).ok_or_else(damaged)?;
                    recovered.entry(index, term, form(bytes[1]).ok_or_else(damaged)?, Place(seqno))?;
                }
                Some(&STATE) if bytes.len() == STATE_BYTES => {
                    let word = |at| word(&bytes, at).ok_or_else(damaged);
                    recovered.state(State { term: word(1)?, vote: word(9)?, commit: word(17)? });
                }
                _ => return Err(damaged()),
            }
        }
        Ok(recovered)
    }

    /// Writes what a turn wants kept. Where its first entry stands, and what is to be flushed.
    pub fn write(&self, turn: &Turn) -> Result<(Place, Position)> {
        let (mut first, mut rest) = (None, &*turn.entries);
        loop {
            let mut bytes = 0;
            let fits = |entry: &&Proposal| {
                bytes += entry.data.len();
                bytes <= BATCH_MAX_BYTES
            };
            let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
            let (now, later) = rest.split_at(count);
            let state = turn.state.filter(|_| later.is_empty());
            let committed = self.namespace.journal().commit(|tx| {
                let mut place = None;
                for entry in now {
                    let seqno = tx.append(&self.log, &proposed(entry), EventId::NONE, 0)?.seqno;
                    place = place.or(Some(seqno));
                }
                if let Some(state) = state {
                    tx.append(&self.log, &stated(state), EventId::NONE, 0)?;
                }
                Ok(place)
            })?;
            first = first.or(committed.value);
            rest = later;
            if rest.is_empty() {
                return Ok((Place(first.unwrap_or(0)), committed.end));
            }
        }
    }

    /// A published record, and what the journal says of the entry that holds it.
    pub fn record(&self, place: Place) -> Result<(RecordMeta, Vec<u8>)> {
        let mut bytes = Vec::new();
        let meta = self.namespace.journal().get(&self.log, place.0, &mut bytes)?;
        let data = Command::data_of(bytes.get(PROPOSE_HEAD_BYTES..).unwrap_or_default())?;
        let start = bytes.len() - data.len();
        bytes.drain(..start);
        Ok((meta, bytes))
    }
}

impl Payloads for Store {
    fn read(&self, place: Place) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.namespace.journal().get(&self.log, place.0, &mut bytes)?;
        if bytes.len() < PROPOSE_HEAD_BYTES {
            return Err(Code::GroupLogDamaged.error(format!("record {} of log '{}'", place.0, self.log.name())));
        }
        bytes.drain(..PROPOSE_HEAD_BYTES);
        Ok(bytes)
    }
}

fn form(byte: u8) -> Option<Form> {
    match byte {
        0 => Some(Form::Command),
        1 => Some(Form::Change),
        _ => None,
    }
}

fn proposed(entry: &Proposal) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PROPOSE_HEAD_BYTES + entry.data.len());
    bytes.extend_from_slice(&[PROPOSE, u8::from(entry.form == Form::Change)]);
    bytes.extend_from_slice(&entry.index.to_le_bytes());
    bytes.extend_from_slice(&entry.term.to_le_bytes());
    bytes.extend_from_slice(&entry.data);
    bytes
}

fn stated(state: State) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STATE_BYTES);
    bytes.push(STATE);
    for word in [state.term, state.vote, state.commit] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
