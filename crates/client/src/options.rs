//! Options and their defaults.

use crate::{connector::Resolve, credentials::Credentials, loopback::Near};
use millrace_wire::{Durability, EventId, Peer, Result, protocol::Fence};
use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

/// How to connect and how long to wait.
#[derive(Clone)]
pub struct Options {
    /// How long looking up the host's name may take, then connecting, and then the handshake.
    pub connect_timeout_ms: u32,
    /// How long an answer may take, beyond what the request itself asks the host to wait; 0 for as long as it takes.
    pub request_timeout_ms: u32,
    /// A peer that sends nothing for this long while a request is unanswered is considered dead. The client sends a PING after half of it.
    pub silence_max_ms: u32,
    /// How many requests may be unanswered, unless the host admits fewer.
    pub requests_max: u32,
    /// How many bytes of unanswered requests there may be; a request that alone has more goes alone.
    pub in_flight_bytes_max: usize,
    /// For how long [`crate::Resilient`] and resumed tails try to get a connection again, from its loss on.
    pub reconnect_ms: u32,
    /// The name and version under which the client introduces itself.
    pub name: Arc<str>,
    /// Asked when a signal interrupts a blocking call, and every few seconds; if it says true, the call gives up.
    pub interrupted: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// How names of hosts are looked up, instead of as the system does.
    pub resolve: Option<Resolve>,
    /// The credentials for the host; by default this user's stored ones: [`crate::credentials`].
    pub credentials: Option<Arc<Credentials>>,
    /// The certificate authorities that identify a host whose key is not known: a PEM file, or `system` for those of this machine; by
    /// default what `MILLRACE_CA` says.
    pub ca: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 10_000,
            request_timeout_ms: 30_000,
            silence_max_ms: 10_000,
            requests_max: 1024,
            in_flight_bytes_max: 8 << 20,
            reconnect_ms: 30_000,
            name: concat!("millrace-rust/", env!("CARGO_PKG_VERSION")).into(),
            interrupted: None,
            resolve: None,
            credentials: None,
            ca: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("connect_timeout_ms", &self.connect_timeout_ms)
            .field("request_timeout_ms", &self.request_timeout_ms)
            .field("silence_max_ms", &self.silence_max_ms)
            .field("requests_max", &self.requests_max)
            .field("in_flight_bytes_max", &self.in_flight_bytes_max)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The credentials for this host, whose address was resolved, and whether they include a token. The token that a host of this machine
    /// leaves is not used, unless `near` is set.
    pub(crate) fn for_host(&self, peer: &Peer, address: SocketAddr, near: Near) -> Result<(Credentials, bool)> {
        let (credentials, is_left) = match &self.credentials {
            Some(credentials) => (Credentials::clone(credentials), false),
            None => Credentials::find(peer, address, self.ca.as_deref())?,
        };
        let without = is_left && near == Near::InClear;
        Ok((if without { Credentials::default() } else { credentials }, without))
    }

    /// The credentials for a host at its Unix socket, if it requests any.
    pub(crate) fn for_socket(&self) -> Result<Credentials> {
        match &self.credentials {
            Some(credentials) => Ok(Credentials::clone(credentials)),
            None => Ok(Credentials { capability: Credentials::of_environment()?, ..Credentials::default() }),
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms.max(1).into())
    }

    pub(crate) fn silence_max(&self) -> Duration {
        Duration::from_millis(self.silence_max_ms.max(10).into())
    }

    /// How long an answer may take to a request that lets the host wait for `wait_ms`.
    pub(crate) fn patience(&self, wait_ms: u32) -> Option<Duration> {
        let own = Duration::from_millis(self.request_timeout_ms.into());
        (!own.is_zero()).then(|| own + Duration::from_millis(wait_ms.into()))
    }

    /// How often to look at the clock: often enough for the shortest of the times that matter.
    pub(crate) fn tick(&self) -> Duration {
        let silence = self.silence_max() / 4;
        self.patience(0).map_or(silence, |patience| silence.min(patience / 4)).max(Duration::from_millis(2))
    }
}

/// How a record is appended.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendOptions<'a> {
    /// When the append is answered; by default as the namespace says.
    pub durability: Option<Durability>,
    /// One more function to run, besides those bound to the log.
    pub function: Option<&'a str>,
    /// The idempotency key, 1 to 128 bytes: an append with a key that was used before gets the answer of the earlier append.
    pub key: Option<&'a str>,
    /// A token of a lock: the append is refused if a higher one was used under its name.
    pub fence: Option<Fence<'a>>,
    /// The cause; none if it comes from outside.
    pub cause: EventId,
    /// Of a read of a table: the answer shows at least what the answer with this token showed or changed.
    pub after: EventId,
}

/// How a record is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    /// How long the host waits for it, if it is not there yet.
    pub wait_ms: u32,
    /// The durability that it must have before it is returned; by default the namespace's.
    pub durability: Option<Durability>,
}

impl Wait {
    /// Waits for at most this many milliseconds.
    pub fn ms(wait_ms: u32) -> Self {
        Self { wait_ms, durability: None }
    }
}

/// How a log is followed.
#[derive(Clone, Copy, Debug)]
pub struct TailOptions {
    /// The incarnation that the first record's number belongs to; 0 if it is unknown.
    pub incarnation: u32,
    /// How many records the client holds at most; fewer if they are large.
    pub records_max: u32,
    /// About how many bytes of records the client holds.
    pub bytes_max: usize,
    /// The durability that a record must have before it is returned; by default the namespace's.
    pub durability: Option<Durability>,
}

impl Default for TailOptions {
    fn default() -> Self {
        Self { incarnation: 0, records_max: 4096, bytes_max: 4 << 20, durability: None }
    }
}
