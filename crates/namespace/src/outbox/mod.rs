//! The outbox: messages to other namespaces, committed together with their cause. Delivering them is not done here.
//!
//! ```text
//!  append to mr://…, in the batch of what caused it ──> _outbox/PEER ──> (links: the sender)
//!                                                       _links      the first message to a peer notes it
//!  publish to a topic, later ─────────────────────────> _publish/TOPIC ──> (node: the feed of the topic)
//! ```
//!
//! An outbox is bounded. Appends from outside stop at half of it, so that runs in progress have room to end.

pub mod message;
pub mod state;
pub mod topics;
mod trim;

pub use trim::not_forwarded;

use crate::{
    Namespace,
    admission::{self, Room},
    names::log_name,
};
use millrace_journal::{Appended, Log, Transaction};
use millrace_wire::{Address, Code, EventId, Hex, LogName, Name, Result, SEGMENT_MAX_BYTES};
use sha2::{Digest, Sha256};
use state::{PEERS_MAX, Peer, State};
use std::collections::HashMap;

/// Most messages in an outbox.
pub const OUTBOX_RECORDS_MAX: u64 = (1 << 20) - 1;
/// Most bytes in an outbox.
pub const OUTBOX_BYTES_MAX: u64 = 512 << 20;
/// A suffix that distinguishes peers whose addresses contain characters that are invalid in names.
const HASH_BYTES: usize = 6;

/// The name that a peer has here: one segment, another one for every address.
pub fn peer_name(peer: &millrace_wire::Peer) -> String {
    let plain = format!("{}_{}_{}", peer.host, peer.port, peer.namespace);
    // Without an underscore in the host, such a name can be read back in one way only.
    let odd = peer.host.contains(['_', ':']) || peer.host.starts_with('.');
    if plain.len() <= SEGMENT_MAX_BYTES && !odd {
        return plain;
    }
    let hash = Sha256::digest(peer.to_string().as_bytes());
    let hash = Hex(&hash[..HASH_BYTES]).to_string();
    let room = SEGMENT_MAX_BYTES - hash.len() - 1;
    let kept: String = plain.replace(':', "-").trim_start_matches('.').chars().take(room).collect();
    format!("{kept}-{hash}")
}

/// The outbox of the peer that has this name here.
pub fn log_of(peer: &str) -> LogName {
    log_name(&format!("_outbox/{peer}"))
}

/// The outbox of the peer that had this address first. A peer may get other addresses later: [`State::peer_at`].
pub fn outbox_of(peer: &millrace_wire::Peer) -> LogName {
    log_of(&peer_name(peer))
}

/// The log that an address names, if messages may be sent there.
pub fn check_target(to: &Address) -> Result<&LogName> {
    match &to.log {
        Some(log) if LogName::is_internal(log) => {
            Err(Code::LogInternal.error(format!("log '{log}' belongs to the runtime of '{}'", to.peer)))
        }
        Some(log) => Ok(log),
        None => {
            Err(Code::AddressInvalid.error(format!("address '{to}' is that of a namespace; add the name of a log")))
        }
    }
}

/// The messages that one batch of the journal adds to outboxes. It keeps track of what it has staged, which is not readable yet.
#[derive(Default)]
pub struct Outgoing {
    /// By peer, or by the log of a topic: what the batch has made of its outbox.
    staged: HashMap<String, Staged>,
    /// The note of links, if the batch has read or changed it.
    state: Option<State>,
    scratch: Vec<u8>,
}

struct Staged {
    log: Log,
    /// Messages that are not acknowledged.
    waiting: u64,
    /// Their bytes.
    waiting_bytes: u64,
    /// [`Message::total`] of the newest.
    total: u64,
}

/// A message to be staged.
pub struct NewMessage<'a> {
    /// The log elsewhere.
    pub to: &'a Address,
    /// A function there that is to run.
    pub function: Option<&'a Name>,
    /// Its bytes.
    pub data: &'a [u8],
    /// Its cause.
    pub cause: EventId,
    /// Which one it is of the records of its cause.
    pub ordinal: u16,
}

impl Outgoing {
    /// Stages a message; nothing if there is no room for it.
    pub fn append(
        &mut self,
        namespace: &Namespace,
        tx: &mut Transaction<'_>,
        room: Room,
        letter: NewMessage<'_>,
    ) -> Result<Appended> {
        let NewMessage { to, function, data, cause, ordinal } = letter;
        let target = check_target(to)?;
        let name = self.name_of(namespace, tx, &to.peer)?;
        if !self.staged.contains_key(&name) {
            let staged = self.open(namespace, tx, &name, to)?;
            self.staged.insert(name.clone(), staged);
        }
        let staged = self.staged.get_mut(&name).expect("inserted above");
        let bytes = message::bytes(target, function, data);
        let share = if room == Room::Outside { 2 } else { 1 };
        if staged.waiting >= OUTBOX_RECORDS_MAX / share || staged.waiting_bytes + bytes > OUTBOX_BYTES_MAX / share {
            return Err(Code::OutboxFull.error(format!(
                "{} messages of {} bytes wait for '{}'",
                staged.waiting, staged.waiting_bytes, to.peer
            )));
        }
        message::encode(&mut self.scratch, staged.total + bytes, target, function, data);
        let appended = admission::record(tx, room, &staged.log, &self.scratch, (cause, ordinal))?;
        staged.total += bytes;
        staged.waiting += 1;
        staged.waiting_bytes += bytes;
        Ok(appended)
    }

    /// The name of the peer that has this address, by its name or since it was moved.
    fn name_of(
        &mut self,
        namespace: &Namespace,
        tx: &mut Transaction<'_>,
        peer: &millrace_wire::Peer,
    ) -> Result<String> {
        let name = peer_name(peer);
        if self.staged.contains_key(&name) || tx.catalog().log(&log_of(&name)).is_some() {
            return Ok(name);
        }
        let state = match self.state.take() {
            Some(state) => state,
            None => State::load(namespace)?,
        };
        let moved = state.peer_at(peer).map(|peer| peer.name.clone());
        self.state = Some(state);
        Ok(moved.unwrap_or(name))
    }

    /// The peer's outbox as it is committed; a new one if this is the first message ever.
    fn open(&mut self, namespace: &Namespace, tx: &mut Transaction<'_>, name: &str, to: &Address) -> Result<Staged> {
        let log_name = log_of(name);
        if let Some(log) = tx.catalog().log(&log_name).cloned() {
            let Waiting { records, bytes, total } = waiting(namespace, &log)?;
            return Ok(Staged { log, waiting: records, waiting_bytes: bytes, total });
        }
        let mut state = match self.state.take() {
            Some(state) => state,
            None => State::load(namespace)?,
        };
        if state.peers.len() >= PEERS_MAX {
            return Err(
                Code::LinksFull.error(format!("there are already {PEERS_MAX} peers, and '{to}' is not one of them"))
            );
        }
        let address = Address { peer: to.peer.clone(), log: None };
        let course = state.new_course();
        let (name, earlier) = (name.to_owned(), Vec::new());
        state.peers.push(Peer { name, address, earlier, course, dead: 0, dropped: 0 });
        state.save(tx)?;
        self.state = Some(state);
        let log = tx.create_log(&log_name, OUTBOX_RECORDS_MAX)?;
        Ok(Staged { log, waiting: 0, waiting_bytes: 0, total: 0 })
    }
}

/// The number and size of the waiting messages of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Messages.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// [`message::Message::total`] of the newest.
    pub total: u64,
}

/// The committed messages that are not acknowledged.
///
/// Once everything is acknowledged, the next message restarts the count of bytes, because no earlier message is left to compare it with.
pub fn waiting(namespace: &Namespace, log: &Log) -> Result<Waiting> {
    let mut payload = Vec::new();
    loop {
        let (earliest, latest) = (log.earliest(), log.latest());
        if earliest > latest || latest == 0 {
            return Ok(Waiting::default());
        }
        let mut total_at = |seqno: u64| -> Result<(u64, u64)> {
            namespace.journal().get(log, seqno, &mut payload)?;
            Ok((message::decode(&payload)?.total, payload.len() as u64))
        };
        match total_at(latest).and_then(|(total, _)| Ok((total, total_at(earliest)?))) {
            Ok((total, (first, bytes))) => {
                return Ok(Waiting { records: latest + 1 - earliest, bytes: total - first + bytes, total });
            }
            Err(error) if error.code() == Code::BelowHistory && log.earliest() > earliest => {}
            Err(error) => return Err(error),
        }
    }
}
