//! How long a host waits for the other end of a connection: one duration, from which the others are derived.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The patience with clients, in milliseconds; one value for the whole process.
static CLIENT_MS: AtomicU64 = AtomicU64::new(30_000);

/// Sets how long a client may take over the rest of a request, or over a good part of its answer: 30 s, unless it is set before a server
/// starts. The host's other timeouts for connections are derived from it.
pub fn set_patience(patience: Duration) {
    CLIENT_MS.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
}

/// Within this time a client must identify its protocol, send the rest of a frame or the next part of a body, and receive a considerable
/// part of its answer.
pub(crate) fn client() -> Duration {
    Duration::from_millis(CLIENT_MS.load(Ordering::Relaxed))
}

/// A request's head must be complete within this once it has begun: 10 s.
pub(crate) fn head() -> Duration {
    client() / 3
}

/// A whole body must be there within this: 5 minutes.
pub(crate) fn body() -> Duration {
    client() * 10
}

/// A link is closed if the host at its other end has sent nothing for this long: 10 s. After half of that, the host is pinged.
pub(crate) fn link() -> Duration {
    client() / 3
}
