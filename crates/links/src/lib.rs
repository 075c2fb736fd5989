//! Links to other namespaces: numbered streams of records, each delivered once and in order.
//!
//! ```text
//!  append to mr://…  ──> outbox ──> _outbox/PEER ─┐                       ┌─> inbox ──> the logs, and
//!                                                 ├─ sender ══ network ═══┤             _inbox/NAMESPACE/STREAM
//!  append to a log   ──────────────> the log ─────┘        (gateway)      └── in one batch
//!                                     ^ relay add
//! ```
//!
//! Outbox and relay are one mechanism. A record's number in a stream is its seqno in the log that the stream reads; the receiver commits
//! the records of a delivery together with the last number of it, so after any crash, a stream resumes exactly where it stopped. Nothing
//! here knows the network: [`Sender`] decides what to send next and processes the answers, [`Inbox`] accepts deliveries, and `gateway`
//! transfers them. [`millrace_namespace::outbox`] commits the messages of an append.
//!
//! The state is in logs whose names begin with `_`, which only the runtime writes:
//! | log | its newest record |
//! |---|---|
//! | `_links` | every peer and relay, and what stopped it ([`millrace_namespace::outbox::state`]) |
//! | `_outbox/PEER` | a message that the peer has not acknowledged; acknowledged ones are trimmed ([`millrace_namespace::outbox::message`]) |
//! | `_relay/ID` | the last record of a relay that the other side has acknowledged, noted from time to time |
//! | `_inbox/NAMESPACE/STREAM` | the last number that arrived, and the id of its record at the source |
//! | `_lives` | the random number of this start of the host, to recognise other copies of the namespace ([`life`]) |
//! | `_undelivered` | a message that its peer refused, if it is too long for its dead letter ([`letters`]) |
//! | `_upstream` | the logs through which incoming streams have passed, to detect cycles ([`upstream`]) |

mod inbox;
mod letters;
mod life;
mod live;
mod news;
mod outbox;
mod puller;
mod relay;
mod sender;
mod upstream;
mod view;

pub use inbox::log_of as inbox_of;
pub use inbox::{Accepted, INBOUND_MAX, Inbound, Inbox};
pub use letters::Resent;
pub use live::{LinksStatus, LiveLink};
pub use news::{LinkChange, LinkNews, LinkObserver, LinkWatch};
pub use outbox::OUTBOX_DEAD_LETTERS;
pub use puller::{Puller, Source};
pub use relay::{RelayOptions, Resumed};
pub use sender::{Batch, Hello, Sender, Verdict};
pub use view::{LinkState, LinkView};

pub use millrace_namespace::outbox::{
    OUTBOX_BYTES_MAX, OUTBOX_RECORDS_MAX,
    state::{Aside, Course, Endpoint, OnGap, PEERS_MAX, Peer, RELAYS_MAX, Refusal, Relay, Stop, shown},
};

use millrace_journal::Transaction;
use millrace_namespace::Namespace;
use millrace_namespace::{
    names::{log_name, newest_note, note},
    outbox::{
        message,
        state::{self, State},
    },
};
use millrace_wire::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The source of a stream.
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

impl Links {
    /// The links of this namespace to others.
    pub fn of(namespace: &Namespace) -> Self {
        Self { namespace: namespace.clone() }
    }

    fn state(&self) -> Result<State> {
        State::load(&self.namespace)
    }

    /// Changes the state under the journal's lock; unchanged state is not written again.
    fn change<R>(
        &self,
        change: impl FnOnce(&mut State, &mut Transaction<'_>) -> Result<R>,
    ) -> Result<(R, millrace_journal::Position)> {
        let committed = self.namespace.journal().commit(|tx| {
            let before = State::load(&self.namespace)?;
            let mut state = before.clone();
            let value = change(&mut state, tx)?;
            if state != before {
                state.save(tx)?;
            }
            Ok(value)
        })?;
        Ok((committed.value, committed.end))
    }

    /// Every peer.
    pub fn peers(&self) -> Result<Vec<Peer>> {
        Ok(self.state()?.peers)
    }

    /// Every relay.
    pub fn relays(&self) -> Result<Vec<Relay>> {
        Ok(self.state()?.relays)
    }

    /// The position of the note of all links, which changes with every change of a link.
    pub fn version(&self) -> Result<u64> {
        Ok(self.namespace.journal().catalog()?.log(state::LOG).map_or(0, millrace_journal::Log::latest))
    }

    /// Returns when there may be another version than `seen`, or at the timeout, or if [`Links::wake`] was called since
    /// [`Links::wakes`] returned `wakes`.
    pub fn wait(&self, seen: u64, wakes: u32, timeout: Duration) -> Result<()> {
        let journal = self.namespace.journal();
        // Before the first link there is no note to wait for.
        let defined = journal.catalog_version();
        match journal.catalog()?.log(state::LOG) {
            Some(note) => journal.wait_change(Some(note), seen, wakes, timeout),
            None => journal.wait_change(None, defined, wakes, timeout),
        }
    }

    /// See [`Links::wait`].
    pub fn wakes(&self) -> u32 {
        self.namespace.journal().wakes()
    }

    /// Ends the waits of this namespace.
    pub fn wake(&self) {
        self.namespace.journal().wake();
    }
}

#[cfg(test)]
mod tests;
