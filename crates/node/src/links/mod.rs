//! Links to other namespaces: numbered streams of records, each delivered once and in order.
//!
//! ```text
//!  append to mr://…  ──> outbox ──> _outbox/PEER ─┐                       ┌─> inbox ──> the logs, and
//!                                                 ├─ sender ══ network ═══┤             _inbox/NAMESPACE/STREAM
//!  append to a log   ──────────────> the log ─────┘        (gateway)      └── in one batch
//!                                     ^ relay add
//! ```
//!
//! Outbox and relay are one mechanism. A record's number in a stream is its seqno in the log that the stream reads; the
//! receiver commits the records of a delivery together with the last number of it, so whatever crashes, a stream goes on
//! exactly where it stood. Nothing here knows a network: [`Sender`] says what to send next and takes up the answers,
//! [`Inbox`] takes what arrives, and `gateway` carries it.
//!
//! All of it is kept in logs whose names begin with `_`, which only the runtime writes:
//!
//! | log | newest record says |
//! |---|---|
//! | `_links` | every peer and relay, and what stopped it ([`state`]) |
//! | `_outbox/PEER` | a message that the peer has not acknowledged; acknowledged ones are trimmed ([`message`]) |
//! | `_relay/ID` | what the other side has acknowledged of a relay, now and then |
//! | `_inbox/NAMESPACE/STREAM` | the last number that came, and the id it had at its source |
//! | `_upstream` | by which logs the streams that come in have passed, so that circles are seen ([`upstream`]) |

mod inbox;
mod live;
mod message;
mod news;
mod outbox;
mod puller;
mod relay;
mod sender;
mod state;
mod upstream;
mod view;

pub(crate) use inbox::log_of as inbox_of;
pub use inbox::{Accepted, INBOUND_MAX, Inbound, Inbox};
pub use live::{LinksStatus, LiveLink};
pub use news::{LinkChange, LinkNews, LinkWatch};
pub(crate) use outbox::{Letter, Outgoing, check_target, outbox_of};
pub use outbox::{OUTBOX_BYTES_MAX, OUTBOX_DEAD_LETTERS, OUTBOX_RECORDS_MAX};
pub use puller::Puller;
pub use relay::{RelayOptions, Resumed};
pub use sender::{Batch, Hello, Sender, Verdict};
pub use state::{Aside, Course, Endpoint, OnGap, PEERS_MAX, Peer, RELAYS_MAX, Relay, Stop};
pub use view::{LinkState, LinkView};

use crate::Namespace;
use millrace_journal::Transaction;
use millrace_wire::{LogName, Result};
use serde::{Deserialize, Serialize};

/// What a stream reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKey {
    /// The outbox of the peer with this name.
    Outbox(String),
    /// The relay with this id.
    Relay(u64),
}

/// The links of a namespace.
#[derive(Clone)]
pub struct Links {
    namespace: Namespace,
}

impl Namespace {
    /// Its links to other namespaces.
    pub fn links(&self) -> Links {
        Links { namespace: self.clone() }
    }
}

/// Appends to a log of the runtime, which comes into being if need be.
pub(crate) fn note(tx: &mut Transaction<'_>, log: &LogName, history: u64, payload: &[u8]) -> Result<()> {
    let log = match tx.catalog().log(log) {
        Some(log) => log.clone(),
        None => tx.create_log(log, history)?,
    };
    tx.append(&log, payload, millrace_wire::EventId::NONE, 0).map(drop)
}

/// A name that is made of parts known to be good.
fn log_name(text: &str) -> LogName {
    text.parse().expect("made of parts that are names")
}

#[cfg(test)]
mod tests;
