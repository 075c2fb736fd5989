//! Operations on messages in an outbox: deferring them, making them dead letters, dropping them. [`millrace_namespace::outbox`] commits new
//! ones.

use super::{
    Links, log_name,
    message::{self, Message},
    state::{Aside, Peer, Stop},
};
use millrace_journal::{Journal, Log};
use millrace_namespace::{
    admission::{Publish, Room, Stage},
    gate::{Shows, Site},
    outbox::{OUTBOX_RECORDS_MAX, Waiting, log_of, waiting},
};
use millrace_wire::{Address, Code, EventId, JsonBytes, LogName, Name, Result};
use serde::Serialize;
use std::time::Duration;

/// Where messages go that their peer will never take.
pub const OUTBOX_DEAD_LETTERS: &str = "dead/outbox";
/// The longest message that its dead letter repeats; a longer one is kept in a log of its own, see [`letters`](super::letters).
const DEAD_LETTER_DATA_MAX: usize = 64 << 10;
/// How long a message waits for a log or a function that its peer lacks, before it is given up.
const MISSING_MAX: Duration = Duration::from_secs(60 * 60);
/// Most messages that are put behind others at once, and most bytes of them; with more the others wait as well.
const ASIDE_RECORDS_MAX: u64 = 4096;
const ASIDE_BYTES_MAX: usize = 256 << 10;
/// Most targets of a peer that are known to be missing at once.
const ASIDE_TARGETS_MAX: usize = 256;

/// A record in the log of undeliverable messages.
#[derive(Serialize)]
struct DeadLetter<'a> {
    to: String,
    number: u64,
    message: String,
    function: Option<&'a str>,
    code: &'a str,
    error: &'a str,
    /// The record that has the message, if it has too many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<u64>,
    /// The message's bytes, otherwise.
    #[serde(flatten)]
    data: Option<JsonBytes<'a>>,
}

/// The outcome of a message whose target is missing at the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It waits: nothing else does.
    Waits,
    /// It and all others to its log come after those to other logs now.
    PutAside,
    /// It has waited for too long.
    TooLong,
}

/// The messages to one log that wait in an outbox, with their ids.
struct Behind {
    target: String,
    next: u64,
    messages: Vec<(EventId, Vec<u8>)>,
    bytes: usize,
    /// Whether messages to other logs wait among them.
    others: bool,
}

impl Behind {
    fn new(target: String, first: u64) -> Self {
        Self { target, next: first, messages: Vec::new(), bytes: 0, others: false }
    }

    /// Whether they are too many to be put aside.
    fn is_too_much(&self) -> bool {
        self.bytes > ASIDE_BYTES_MAX || self.messages.len() as u64 > ASIDE_RECORDS_MAX
    }

    /// Reads on to the newest message.
    fn read(&mut self, journal: &Journal, outbox: &Log) -> Result<()> {
        while self.next <= outbox.latest() && !self.is_too_much() {
            let mut payload = Vec::new();
            let meta = journal.get(outbox, self.next, &mut payload)?;
            self.next += 1;
            if message::decode(&payload)?.log == self.target {
                self.bytes += payload.len();
                self.messages.push((meta.id, payload));
            } else {
                self.others = true;
            }
        }
        Ok(())
    }
}

impl Links {
    /// Message `number` of an outbox is for a log that the peer lacks. If others wait behind it, all messages to that log are put
    /// behind them, in their order: order matters within a log, not across logs.
    pub(super) fn put_aside(&self, peer: &str, outbox: &Log, number: u64) -> Result<(Missing, Vec<Aside>)> {
        let journal = self.namespace.journal();
        let now_us = journal.clock().wall_us();
        let mut payload = Vec::new();
        journal.get(outbox, number, &mut payload)?;
        let target = message::decode(&payload)?.log.to_owned();
        // Read before the lock is taken; under it only what came since.
        let mut behind = Behind::new(target.clone(), number);
        behind.read(self.namespace.journal(), outbox)?;
        let (reported, end) = self.change(|state, tx| {
            let course = &mut state.peer_mut(peer)?.course;
            let known = course.aside.iter().position(|aside| aside.log == target);
            let place = match known {
                Some(place) => place,
                None if course.aside.len() == ASIDE_TARGETS_MAX => return Ok((Missing::Waits, course.aside.clone())),
                None => {
                    course.aside.push(Aside { log: target.clone(), from: number, since_us: now_us });
                    course.aside.len() - 1
                }
            };
            // A clock that was ahead then must not make it wait until that time.
            course.aside[place].since_us = course.aside[place].since_us.min(now_us);
            if now_us.saturating_sub(course.aside[place].since_us) >= MISSING_MAX.as_micros() as u64 {
                course.aside[place].from = course.aside[place].from.max(number + 1);
                return Ok((Missing::TooLong, course.aside.clone()));
            }
            behind.read(journal, outbox)?;
            let waiting = waiting(&self.namespace, outbox)?;
            let fits = waiting.records + behind.messages.len() as u64 <= OUTBOX_RECORDS_MAX;
            if !behind.others || behind.is_too_much() || !fits {
                return Ok((Missing::Waits, course.aside.clone()));
            }
            let (mut total, mut copy) = (waiting.total, Vec::new());
            for (id, payload) in &behind.messages {
                let Message { log, function, data, .. } = message::decode(payload)?;
                let function = function.map(str::parse::<Name>).transpose()?;
                total += message::bytes(log, function.as_ref(), data);
                message::encode(&mut copy, total, log, function.as_ref(), data);
                tx.append(outbox, &copy, *id, 0)?;
            }
            course.aside[place].from = outbox.latest() + 1;
            Ok((Missing::PutAside, course.aside.clone()))
        })?;
        if reported.0 == Missing::PutAside {
            // The voids that take the old numbers may not leave before the copies are safe.
            self.namespace.settle(Site::Bury, Shows::Report(end), None)?;
        }
        Ok(reported)
    }

    /// A message to a log was taken that the peer lacked until now.
    pub(super) fn found_again(&self, peer: &str, target: &str) -> Result<Vec<Aside>> {
        let (aside, _) = self.change(|state, _| {
            let course = &mut state.peer_mut(peer)?.course;
            course.aside.retain(|aside| aside.log != target);
            Ok(course.aside.clone())
        })?;
        Ok(aside)
    }

    /// Gives up a message that its peer has refused permanently: leaves it as a dead letter and its number as a void, at once.
    pub(super) fn bury(&self, peer: &str, outbox: &Log, number: u64, stop: &Stop) -> Result<()> {
        let mut payload = Vec::new();
        let meta = self.namespace.journal().get(outbox, number, &mut payload)?;
        let message = message::decode(&payload)?;
        let Message { log, function, data, .. } = message;
        let dead: LogName = log_name(OUTBOX_DEAD_LETTERS);
        let is_long = data.len() > DEAD_LETTER_DATA_MAX;
        if is_long {
            self.drop_unneeded()?;
        }
        let (_, end) = self.change(|state, tx| {
            let peer = state.peer_mut(peer)?;
            if peer.course.void == Some(number) {
                return Ok(()); // It was buried before a crash.
            }
            let kept = is_long.then(|| self.keep_message(tx, meta.id, &message)).transpose()?;
            peer.course.void = Some(number);
            peer.dead += 1;
            let letter = DeadLetter {
                to: Address { log: log.parse().ok(), ..peer.address.clone() }.to_string(),
                number,
                message: meta.id.to_string(),
                function,
                code: &stop.code,
                error: &stop.detail,
                kept,
                data: (!is_long).then_some(JsonBytes(data)),
            };
            let letter = serde_json::to_vec(&letter).expect("names, numbers and text always make JSON");
            let stage = Stage { cause: meta.id, ordinal: 0, room: Room::DeadLetter, named: None, ending: None };
            Publish::new(&self.namespace, tx).dead_letter(tx, &dead, &letter, stage).map(drop)
        })?;
        self.namespace.settle(Site::Bury, Shows::Report(end), None)
    }

    /// Restarts the stream to a peer: `skip` drops the waiting messages, otherwise they are sent again. Returns how many messages were
    /// dropped.
    pub fn reset_outbox(&self, peer: &str, skip: bool) -> Result<u64> {
        let name = self.peer(peer)?.name;
        let outbox = log_of(&name);
        let copy = Self::copy_number()?;
        let (dropped, end) = self.change(|state, tx| {
            let peer = state.peer_mut(&name)?;
            match peer.course.stopped.as_ref().map(|stop| stop.error().code()) {
                // The other side says which messages it has: none is sent twice.
                Some(Code::LinkPeerChanged | Code::LinkPeerBehind) => peer.course.go_on(None),
                // The other copy may go on as well: this one must not take its place.
                Some(Code::LinkForked | Code::LinkPeerAhead | Code::LinkDiverged) => {
                    peer.course.copy = Some(copy);
                    peer.course.restart(None);
                }
                _ => peer.course.restart(None),
            }
            let log = tx.catalog().log(&outbox).cloned();
            let Some(log) = log.filter(|log| skip && log.latest() > 0) else { return Ok(0) };
            let dropped = log.latest() + 1 - log.earliest();
            peer.dropped += dropped;
            tx.trim(&log, log.latest() + 1)?;
            Ok(dropped)
        })?;
        self.namespace.settle(Site::ResetOutbox, Shows::Report(end), None)?;
        Ok(dropped)
    }

    /// Gives a peer another address, to which all messages go from now on, those to the address in its name included.
    pub fn set_peer(&self, peer: &str, address: &str) -> Result<()> {
        let address: Address = address.parse()?;
        if let Some(log) = &address.log {
            let detail = format!("'{address}' is the address of a log; without '/{log}', it is that of the peer");
            return Err(Code::AddressInvalid.error(detail));
        }
        let name = self.peer(peer)?.name;
        let ((), end) = self.change(|state, _| {
            state.peer_mut(&name)?.move_to(address);
            Ok(())
        })?;
        self.namespace.settle(Site::ResetOutbox, Shows::Report(end), None)
    }

    /// Forgets a peer; `force` drops what waits for it, which is otherwise a reason not to. Returns how many messages
    /// were dropped.
    pub fn remove_peer(&self, peer: &str, force: bool) -> Result<u64> {
        let name = self.peer(peer)?.name;
        let outbox = log_of(&name);
        let (dropped, end) = self.change(|state, tx| {
            let log = tx.catalog().log(&outbox).cloned();
            let waits = log.as_ref().map_or(Ok(Waiting::default()), |log| waiting(&self.namespace, log))?;
            if waits.records > 0 && !force {
                return Err(Code::PeerInUse.error(format!("messages that wait for peer '{name}': {}", waits.records)));
            }
            state.peers.retain(|peer| peer.name != name);
            if log.is_some() {
                tx.remove_log(&outbox)?;
            }
            Ok(waits.records)
        })?;
        self.namespace.settle(Site::RemovePeer, Shows::Report(end), None)?;
        Ok(dropped)
    }

    /// The peer of this name, or with this address, or that had this address before.
    pub fn peer(&self, name: &str) -> Result<Peer> {
        let address = name.parse::<Address>().ok().map(|address| address.peer);
        let state = self.state()?;
        let named = state.peers.iter().find(|peer| peer.name == name);
        let found = named.or_else(|| state.peer_at(address.as_ref()?)).cloned();
        found.ok_or_else(|| Code::PeerNotFound.error(format!("no peer '{}'", name.escape_debug())))
    }
}
