//! Outboxes and relays.

use serde::{Deserialize, Serialize};

/// An outbox or a relay, and its state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkDoc {
    /// `outbox` or `relay`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Where records come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// `no-host`, `connecting`, `carrying`, `waiting`, `idle`, `leaving` or `stopped`.
    pub state: String,
    /// The last number that is safe at the receiving side, as far as is known here.
    pub acked: u64,
    /// The first record that a relay forwards; 0 of an outbox.
    pub start: u64,
    /// Messages of an outbox that arrived.
    pub sent: u64,
    /// Messages that the peer refused permanently.
    pub dead: u64,
    /// Messages that the operator dropped.
    pub dropped: u64,
    /// The newest number there is.
    pub newest: u64,
    /// Records that are still to come.
    pub lag_records: u64,
    /// Their bytes; an estimate for relays that are far behind.
    pub lag_bytes: u64,
    /// Records that were lost before they could be forwarded.
    pub lost: u64,
    /// The other namespace, once it was met.
    pub peer: Option<String>,
    /// Whether the other side answers.
    pub connected: bool,
    /// When it answered last.
    pub last_contact: Option<String>,
    /// Whether it was given an address at which the other side has not answered yet.
    pub moving: bool,
    /// When it is tried again.
    pub next_try: Option<String>,
    /// The code of what stopped it, or of what was wrong last.
    pub code: Option<String>,
    /// What was wrong.
    pub error: Option<String>,
    /// The remedy.
    pub remedy: Option<String>,
}

/// A page of links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinksDoc {
    /// The links.
    pub links: Vec<LinkDoc>,
    /// The link after which the next page begins, as KIND/NAME, if there are more.
    pub next: Option<String>,
}
