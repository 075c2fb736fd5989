//! The state of all links: every change appends the whole state to `_links`, so the newest record is sufficient.

use crate::{
    Namespace,
    names::{log_name, newest_note, note},
};
use millrace_journal::Transaction;
use millrace_wire::{Address, Code, Error, LogName, Name, NamespaceId, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most peers that a namespace sends messages to.
pub const PEERS_MAX: usize = 256;
/// Most earlier addresses of a peer that are remembered.
const EARLIER_MAX: usize = 16;
/// Most relays of a namespace.
pub const RELAYS_MAX: usize = 256;
/// Changes that stay readable.
const HISTORY: u64 = 64;
/// The log of the note.
pub const LOG: &str = "_links";
/// The form of the note.
const VERSION: u32 = 1;

/// Why a link is stopped until the operator decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The stable code, such as `MR6063`.
    pub code: String,
    /// The description of the error.
    pub detail: String,
    /// The first and the last of the records that are lost, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<(u64, u64)>,
}

impl Stop {
    /// A stored error. If the other side lacks a log or a function, the link waits for it, and the error says so.
    pub fn of(error: &Error) -> Self {
        let code = match error.code() {
            Code::LogNotFound | Code::FunctionNotFound => Code::LinkTargetMissing,
            code => code,
        };
        Self { code: code.id().to_owned(), detail: error.detail().to_owned(), gap: None }
    }

    /// The error that it represents.
    pub fn error(&self) -> Error {
        Code::from_id(&self.code).unwrap_or(Code::LinkStopped).error(self.detail.clone())
    }
}

/// The recorded state of the other side, for both kinds of link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The other namespace's identity, once it was met.
    pub namespace: Option<u64>,
    /// Whether the other side may know of the stream.
    #[serde(default)]
    pub opened: bool,
    /// Counts how often the stream was restarted: each time it has another name for the other side.
    pub generation: u32,
    /// A random number in the stream's name, once another copy of the namespace was met that sends a stream of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<u32>,
    /// Nothing was acknowledged since the stream was begun or resumed: the other side may be behind.
    pub fresh: bool,
    /// The operator gave the other side another address, at which it was not met yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// The record at which a restarted or resumed relay continues, unless the other side is further.
    pub begin: Option<u64>,
    /// A record that takes its number and nothing else.
    pub void: Option<u64>,
    /// Of a relay that fetches from a restored namespace: the identity that the namespace had before, and the last record of that time that
    /// is here already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub had: Option<(u64, u64)>,
    /// Targets that the other side lacks: what waits for one keeps nothing for others waiting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aside: Vec<Aside>,
    /// Why it is stopped.
    pub stopped: Option<Stop>,
}

/// A log that the other side lacks, or a function there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// The log.
    pub log: String,
    /// Messages to it with a smaller number were put behind those to other logs, or given up: their numbers are voids.
    pub from: u64,
    /// Since when it is known to be missing, in microseconds since 1970.
    pub since_us: u64,
}

impl Course {
    /// A stream that has not begun yet.
    pub fn new() -> Self {
        Self { fresh: true, ..Self::default() }
    }

    /// The stream restarts under another name, so that the state of the old one at the other side does not matter.
    pub fn restart(&mut self, begin: Option<u64>) {
        let (aside, copy) = (std::mem::take(&mut self.aside), self.copy);
        *self = Self { generation: self.generation + 1, begin, aside, copy, ..Self::new() };
    }

    /// The stream goes on at the number that the other side has, which may be another namespace than before.
    pub fn go_on(&mut self, begin: Option<u64>) {
        (self.namespace, self.fresh, self.begin, self.stopped) = (None, true, begin, None);
    }

    /// The other side has another address. What only the other side can cure is looked at again there.
    pub fn move_to(&mut self) {
        self.moved = true;
        let is_own = |stop: &mut Stop| {
            matches!(stop.error().code(), Code::LinkGap | Code::LinkRestored | Code::RefusedMessagesFull)
        };
        self.stopped.take_if(|stop| !is_own(stop));
    }

    /// The end of the stream's name, which is different for each restart.
    pub fn version(&self) -> String {
        match self.copy {
            Some(copy) => format!("{}-{copy:08x}", self.generation),
            None => self.generation.to_string(),
        }
    }
}

/// A namespace that messages are sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name here; its outbox is the log `_outbox/NAME`.
    pub name: String,
    /// Its location.
    #[serde(with = "address_text")]
    pub address: Address,
    /// Its earlier locations, the latest last. Messages to them go to it, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The progress.
    pub course: Course,
    /// Messages that it refused permanently: their numbers are done, but they were not delivered.
    #[serde(default)]
    pub dead: u64,
    /// Messages that were dropped when the stream was restarted.
    #[serde(default)]
    pub dropped: u64,
}

impl Peer {
    /// Whether this is an earlier address of it.
    pub fn had(&self, address: &millrace_wire::Peer) -> bool {
        let text = Address { peer: address.clone(), log: None }.to_string();
        self.earlier.contains(&text)
    }

    /// Gives it another address.
    pub fn move_to(&mut self, address: Address) {
        let (before, now) = (self.address.to_string(), address.to_string());
        self.address = address;
        self.earlier.retain(|earlier| *earlier != before && *earlier != now);
        if before != now {
            self.earlier.push(before);
        }
        let most = self.earlier.len().saturating_sub(EARLIER_MAX);
        self.earlier.drain(..most);
        self.course.move_to();
    }
}

/// One end of a relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Endpoint {
    /// A log of this namespace.
    Here(LogName),
    /// A log of another one; the address names a log.
    There(#[serde(with = "address_text")] Address),
}

impl Endpoint {
    /// A log's name, or an address that names a log.
    pub fn parse(text: &str) -> Result<Self> {
        let end = if Address::claims(text) { Endpoint::There(text.parse()?) } else { Endpoint::Here(text.parse()?) };
        match end.log() {
            None => Err(invalid(format!("address '{end}' is that of a namespace; add the name of a log"))),
            Some(log) if LogName::is_internal(log) => Err(invalid(format!("log '{log}' belongs to the runtime"))),
            Some(_) => Ok(end),
        }
    }

    /// The log that it is, here or there.
    pub fn log(&self) -> Option<&LogName> {
        match self {
            Endpoint::Here(log) => Some(log),
            Endpoint::There(address) => address.log.as_ref(),
        }
    }
}

fn invalid(detail: impl Into<String>) -> Error {
    Code::RelayInvalid.error(detail)
}

mod address_text {
    use super::Address;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(address)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Here(log) => log.fmt(f),
            Endpoint::There(address) => address.fmt(f),
        }
    }
}

/// The behaviour of a relay when records left the history of its source before they were forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnGap {
    /// It stops with an error.
    #[default]
    Stop,
    /// It continues with the oldest record that is left, and counts the missing ones.
    Skip,
}

/// A log that is forwarded to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// Never used twice in this namespace.
    pub id: u64,
    /// Its name.
    pub name: Name,
    /// Where records come from.
    pub from: Endpoint,
    /// Where they go.
    pub to: Endpoint,
    /// The behaviour at lost records.
    pub on_gap: OnGap,
    /// The first record to forward.
    pub start: u64,
    /// Which log of its name the source is: a recreated one has another number.
    pub source: Option<u32>,
    /// Records that were lost before they were forwarded.
    pub lost: u64,
    /// The operator decided that the next gap may be skipped.
    pub pass_gap: bool,
    /// It was removed, and is gone once the other side knows.
    pub leaving: bool,
    /// The progress.
    pub course: Course,
}

impl Relay {
    /// The log of what was acknowledged.
    pub fn progress_log(&self) -> LogName {
        log_name(&format!("_relay/{}", self.id))
    }

    /// Whether this side sends: otherwise it fetches.
    pub fn pushes(&self) -> bool {
        matches!(self.from, Endpoint::Here(_))
    }

    /// The address at the other end, if there is one.
    pub fn address(&self) -> Option<&Address> {
        [&self.from, &self.to].into_iter().find_map(|end| match end {
            Endpoint::There(address) => Some(address),
            Endpoint::Here(_) => None,
        })
    }
}

/// An incoming stream that was refused because another copy of its namespace has sent one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The identity that both copies have.
    pub namespace: u64,
    /// The stream.
    pub stream: String,
    /// When it was refused last, in microseconds since 1970.
    pub at_us: u64,
    /// The stable code.
    pub code: String,
    /// The description of the error.
    pub detail: String,
}

impl Refusal {
    /// The error that it represents.
    pub fn error(&self) -> Error {
        Code::from_id(&self.code).unwrap_or(Code::LinkStopped).error(self.detail.clone())
    }
}

/// Everything that is noted of links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// The id of the newest relay.
    relays_made: u64,
    /// How many peers there ever were: a peer that comes back begins streams of its own.
    peers_made: u32,
    /// Every peer.
    pub peers: Vec<Peer>,
    /// Every relay.
    pub relays: Vec<Relay>,
    /// Incoming streams of other copies that were refused, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

impl State {
    /// The current state; under the journal's lock, the state that the next change must start from.
    pub fn load(namespace: &Namespace) -> Result<Self> {
        let Some(payload) = newest_note(namespace, LOG)? else { return Ok(Self::default()) };
        let state: State = serde_json::from_slice(&payload)
            .map_err(|error| Code::LinkStateDamaged.error(format!("log '{LOG}': {error}")))?;
        if state.version > VERSION {
            return Err(Code::LinkStateDamaged.error(format!("log '{LOG}' has version {}", state.version)));
        }
        Ok(state)
    }

    /// Stages the note.
    pub fn save(&mut self, tx: &mut Transaction<'_>) -> Result<()> {
        self.version = VERSION;
        let payload = serde_json::to_vec(self).expect("names, numbers and text always make JSON");
        note(tx, &log_name(LOG), HISTORY, &payload)
    }

    /// The peer of this name.
    pub fn peer_mut(&mut self, name: &str) -> Result<&mut Peer> {
        let found = self.peers.iter_mut().find(|peer| peer.name == name);
        found.ok_or_else(|| Code::PeerNotFound.error(format!("no peer '{}'", name.escape_debug())))
    }

    /// The peer that has this address, or had it before.
    pub fn peer_at(&self, address: &millrace_wire::Peer) -> Option<&Peer> {
        let now = self.peers.iter().find(|peer| peer.address.peer == *address);
        now.or_else(|| self.peers.iter().find(|peer| peer.had(address)))
    }

    /// The relay with this id.
    pub fn relay_mut(&mut self, id: u64) -> Result<&mut Relay> {
        let found = self.relays.iter_mut().find(|relay| relay.id == id);
        found.ok_or_else(|| Code::RelayNotFound.error(format!("no relay with id {id}")))
    }

    /// The relay of this name.
    pub fn relay_named(&mut self, name: &str) -> Result<&mut Relay> {
        let found = self.relays.iter_mut().find(|relay| &*relay.name == name);
        found.ok_or_else(|| Code::RelayNotFound.error(format!("no relay '{}'", name.escape_debug())))
    }

    /// The course of a peer that is not known yet.
    pub fn new_course(&mut self) -> Course {
        self.peers_made += 1;
        Course { generation: self.peers_made, ..Course::new() }
    }

    /// The id of a relay that is being made.
    pub fn next_relay_id(&mut self) -> u64 {
        self.relays_made += 1;
        self.relays_made
    }
}

/// An identity as it is shown.
pub fn shown(namespace: u64) -> String {
    NamespaceId::new(namespace).map_or_else(|| "none".into(), |id| id.to_string())
}
