//! A group's log in the journal: the records of the log `_group/N`, in the order in which they were written.
//!
//! ```text
//!  PROPOSE  1  form (1)  index (8)  term (8)  data           takes the place of all that have its index or a higher one
//!  STATE    2  term (8)  vote (8)  commit (8)  leader (8)
//!  BEGIN    3                                                a snapshot begins: once complete, it replaces the log's beginning
//!  PART     4  bytes of its topics
//!  KEPT     5  form (1)  index (8)  term (8)  data           an entry that its topics hold
//!  END      6  index (8)  term (8)  first (8)  before (8)  voters (2)  learners (2)  their ids (8 each)
//!  LED      7  term (8)  leader (8)  first (8), for each of some terms of entries
//! ```
//!
//! If a follower had wrong entries at its end, the right ones follow them. Topics refer to PROPOSE and KEPT records, so the bytes of a
//! published record are read in place. Everything before a snapshot, and before the first entry that is kept after it, is trimmed.

use crate::Namespace;
use millrace_group::{
    Command, Form, Leaders, Mark, Payloads, Place, Proposal, Recovered, Stamp, State, Turn, Write, Written,
};
use millrace_journal::{Log, Position, RecordMeta};
use millrace_namespace::names;
use millrace_wire::{Code, EventId, HISTORY_ALL, Result};

const PROPOSE: u8 = 1;
const STATE: u8 = 2;
const BEGIN: u8 = 3;
const PART: u8 = 4;
const KEPT: u8 = 5;
const END: u8 = 6;
const LED: u8 = 7;
const END_HEAD_BYTES: usize = 37;
/// The bytes of an entry before its data.
pub const PROPOSE_HEAD_BYTES: usize = 18;
const STATE_BYTES: usize = 33;
/// Of a version that did not store the leader.
const STATE_WITHOUT_LEADER_BYTES: usize = 25;
/// The maximum overhead of a published record: the name of its topic, and its publisher.
pub const AROUND_MAX_BYTES: usize = 512;
/// Bytes of one batch of the journal, unless one entry alone has more.
const BATCH_MAX_BYTES: usize = 512 << 10;
/// What a batch has besides its entries: the state, and what is trimmed.
const BATCH_END_BYTES: usize = 1024;

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
    /// The log of this group, created if it does not exist.
    pub fn open(namespace: &Namespace, group: u32) -> Result<Self> {
        let name = names::internal(&format!("_group/{group}"));
        let committed = namespace.journal().commit(|tx| match tx.catalog().log(&name) {
            Some(log) => Ok(log.clone()),
            None => tx.create_log(&name, HISTORY_ALL),
        })?;
        Ok(Self { namespace: namespace.clone(), log: committed.value })
    }

    /// Its contents.
    pub fn recover(&self, founders: Vec<u64>) -> Result<Recovered> {
        let mut recovered = Recovered::new(founders, Box::new(self.clone()));
        let mut bytes = Vec::new();
        for seqno in self.log.earliest().max(1)..=self.log.latest() {
            bytes.clear();
            self.namespace.journal().get(&self.log, seqno, &mut bytes)?;
            let damaged = || Code::GroupLogDamaged.error(format!("record {seqno} of log '{}'", self.log.name()));
            match bytes.first() {
                Some(&kind @ (PROPOSE | KEPT)) => {
                    let (index, term) = word(&bytes, 2).zip(word(&bytes, 10)).ok_or_else(damaged)?;
                    let form = form(bytes[1]).ok_or_else(damaged)?;
                    let entry = Proposal { term, index, form, data: Vec::new() };
                    let write = if kind == PROPOSE { Write::Entry(entry) } else { Write::Kept(entry) };
                    recovered.wrote(write, Place(seqno), bytes.len() - PROPOSE_HEAD_BYTES)?;
                }
                Some(&BEGIN) if bytes.len() == 1 => recovered.wrote(Write::Begin, Place(seqno), 0)?,
                Some(&PART) => recovered.wrote(Write::Part(bytes.split_off(1)), Place(seqno), 0)?,
                Some(&END) => recovered.wrote(Write::End(mark(&bytes).ok_or_else(damaged)?), Place(seqno), 0)?,
                Some(&LED) => {
                    let leaders = Leaders::parse(&bytes[1..]).ok_or_else(damaged)?;
                    recovered.wrote(Write::Led(leaders), Place(seqno), 0)?;
                }
                Some(&STATE) if [STATE_BYTES, STATE_WITHOUT_LEADER_BYTES].contains(&bytes.len()) => {
                    let leader = word(&bytes, 25).unwrap_or(0);
                    let word = |at| word(&bytes, at).ok_or_else(damaged);
                    recovered.state(State { term: word(1)?, vote: word(9)?, commit: word(17)?, leader });
                }
                // The journal checks the bytes of its records, so a newer version has written this one.
                Some(&kind) if kind == STATE || kind > LED => {
                    let (log, bytes) = (self.log.name(), bytes.len());
                    return Err(Code::MessageUnknown.error(format!(
                        "record {seqno} of log '{log}' has kind {kind} and {bytes} bytes: a newer version of Millrace has written it"
                    )));
                }
                _ => return Err(damaged()),
            }
        }
        Ok(recovered)
    }

    /// Writes the items of a turn that are not written yet; returns the position up to which to flush. After an error, the next call goes
    /// on behind the last batch that was committed.
    pub fn write(&self, turn: &Turn, written: &mut Written) -> Result<Position> {
        let mut end = Position::default();
        // The journal takes half a segment at once, and a quarter of one in a record.
        let most = BATCH_MAX_BYTES.min(2 * self.namespace.journal().record_max_bytes() - BATCH_END_BYTES);
        written.go_on(turn, most, |batch| {
            let committed = self.namespace.journal().commit(|tx| {
                let mut stand = Vec::with_capacity(batch.writes.len());
                for write in batch.writes {
                    stand.push(Place(tx.append(&self.log, &written_as(write), EventId::NONE, 0)?.seqno));
                }
                if let Some(state) = batch.state {
                    tx.append(&self.log, &stated(state), EventId::NONE, 0)?;
                }
                if let Some(Place(before)) = batch.trim {
                    tx.trim(&self.log, before)?;
                }
                Ok(stand)
            })?;
            end = committed.end;
            Ok(committed.value)
        })?;
        Ok(end)
    }

    /// A published record, what its publisher says of it, and what the journal says of the entry that holds it.
    pub fn record(&self, place: Place) -> Result<(RecordMeta, Stamp, Vec<u8>)> {
        let mut bytes = Vec::new();
        let meta = self.namespace.journal().get(&self.log, place.0, &mut bytes)?;
        let (command, stamp) = Command::decode_with(bytes.get(PROPOSE_HEAD_BYTES..).unwrap_or_default())?;
        let start = bytes.len() - command.data.len();
        bytes.drain(..start);
        Ok((meta, stamp, bytes))
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

fn written_as(write: &Write) -> Vec<u8> {
    match write {
        Write::Entry(entry) => proposed(PROPOSE, entry),
        Write::Kept(entry) => proposed(KEPT, entry),
        Write::Begin => vec![BEGIN],
        Write::Part(part) => [&[PART], &**part].concat(),
        Write::End(mark) => ended(mark),
        Write::Led(leaders) => [&[LED], &*leaders.bytes()].concat(),
    }
}

fn ended(mark: &Mark) -> Vec<u8> {
    let mut bytes = vec![END];
    for word in [mark.index, mark.term, mark.first, mark.before] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for hosts in [&mark.voters, &mark.learners] {
        // A cluster has a few.
        bytes.extend_from_slice(&u16::try_from(hosts.len()).unwrap_or(u16::MAX).to_le_bytes());
    }
    for host in mark.voters.iter().chain(&mark.learners).take(2 * usize::from(u16::MAX)) {
        bytes.extend_from_slice(&host.to_le_bytes());
    }
    bytes
}

fn mark(bytes: &[u8]) -> Option<Mark> {
    let short = |at: usize| Some(usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
    let (voters, learners) = (short(33)?, short(35)?);
    let ids = bytes.get(END_HEAD_BYTES..).filter(|ids| ids.len() == 8 * (voters + learners))?;
    let mut ids = ids.chunks_exact(8).filter_map(|id| word(id, 0));
    let voters = ids.by_ref().take(voters).collect();
    let (index, term, first, before) = (word(bytes, 1)?, word(bytes, 9)?, word(bytes, 17)?, word(bytes, 25)?);
    Some(Mark { index, term, first, before, voters, learners: ids.collect() })
}

fn proposed(kind: u8, entry: &Proposal) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PROPOSE_HEAD_BYTES + entry.data.len());
    bytes.extend_from_slice(&[kind, u8::from(entry.form == Form::Change)]);
    bytes.extend_from_slice(&entry.index.to_le_bytes());
    bytes.extend_from_slice(&entry.term.to_le_bytes());
    bytes.extend_from_slice(&entry.data);
    bytes
}

fn stated(state: State) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(STATE_BYTES);
    bytes.push(STATE);
    for word in [state.term, state.vote, state.commit, state.leader] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
