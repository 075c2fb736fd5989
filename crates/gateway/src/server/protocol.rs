//! What a server has to know about a protocol. The protocols themselves are in the table of [`crate::protocols`].

use super::stream::Stream;
use crate::{Hosted, admission::Identity};
use futures_util::future::BoxFuture;
use millrace_wire::{Error, Result};
use std::sync::Arc;
use tokio::sync::Notify;

/// So many bytes show which protocol a connection speaks. No request of any protocol is shorter.
pub(crate) const FIRST_BYTES: usize = 4;
/// The first bytes of a connection; zeros in place of those that have not come.
pub(crate) type First = [u8; FIRST_BYTES];

/// A protocol that a host speaks.
pub(crate) struct Protocol {
    /// Its name in the negotiation of TLS.
    pub alpn: &'static [u8],
    /// The names of listeners that are for this protocol only: `--listen NAME=ADDRESS`.
    pub listeners: &'static [&'static str],
    /// The one of them at which other machines may speak it without encryption.
    pub plain: Option<Plain>,
    /// Whether a connection that begins with these bytes speaks it.
    pub claims: fn(&First) -> bool,
    /// Serves one connection until it ends. It is dropped if its place is needed while its caller is unknown.
    pub serve: fn(Speaking) -> BoxFuture<'static, Result<()>>,
    /// What it does before there is any connection, on the loop that accepts.
    pub begins: fn(Arc<Hosted>) -> BoxFuture<'static, ()>,
    /// The last bytes to a client that is refused.
    pub refusal: fn(&Error) -> Vec<u8>,
}

/// A listener's name, and whether the host may listen there without encryption.
pub(crate) type Plain = (&'static str, fn(&Hosted) -> Result<()>);

/// A connection whose protocol is known, and over which nothing more needs to be made safe.
pub(crate) struct Speaking {
    /// The bytes that were read already.
    pub first: First,
    pub stream: Stream,
    pub identity: Identity,
    /// The name of its listener, if the listener is for one protocol.
    pub only: Option<&'static str>,
    pub hosted: Arc<Hosted>,
    /// Notifies all when the host stops.
    pub stopping: Arc<Notify>,
}

/// The protocols of a server, in the order in which they are asked. The first one is also spoken within the channel. The last one has all
/// connections that no other protocol claims.
#[derive(Clone, Copy)]
pub(crate) struct Protocols(pub &'static [Protocol]);

impl Protocol {
    /// Whether it is spoken without encryption at listeners of this name.
    pub fn is_plain_at(&self, only: Option<&str>) -> bool {
        self.plain.is_some_and(|(name, _)| only == Some(name))
    }
}

impl Protocols {
    /// The protocol of a connection that begins with these bytes.
    pub fn of(self, first: &First) -> &'static Protocol {
        let claiming = self.0.iter().find(|protocol| (protocol.claims)(first));
        claiming.or(self.0.last()).expect("there is a protocol")
    }

    pub fn within_channel(self) -> &'static Protocol {
        self.0.first().expect("there is a protocol")
    }

    /// What permits listeners of this name to speak their protocol without encryption.
    pub fn plain_at(self, only: Option<&str>) -> Option<Plain> {
        self.0.iter().find(|protocol| protocol.is_plain_at(only)).and_then(|protocol| protocol.plain)
    }

    /// The names of listeners that are for one protocol.
    pub fn listeners(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().flat_map(|protocol| protocol.listeners).copied()
    }
}
