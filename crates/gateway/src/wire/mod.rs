//! The wire protocol's server side: `spec/protocol/wire.md`.
//!
//! [`connection`] moves bytes and enforces limits, [`requests`] turns messages into calls of `Access`, [`commits`] does so for those that
//! commit, and [`waits`] has the requests that wait: tails and blocking reads.

mod commits;
mod connection;
mod devices;
mod requests;
#[cfg(test)]
pub(crate) mod tests;
mod topics;
mod waits;

use crate::{Hosted, admission::Identity, patience, server::Stream};
use connection::{Connection, Over};
use millrace_wire::{
    Error, Result,
    protocol::{Failure, Heading, encode},
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::yield_now,
    time::timeout,
};

/// The host's name in the handshake.
pub(crate) const SOFTWARE: &str = concat!("millrace ", env!("CARGO_PKG_VERSION"));
/// Requests of one connection that may be unanswered.
pub(crate) const REQUESTS_MAX: usize = 4096;

/// How long, and how much of, what a refused client sends is read.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_MAX_BYTES: usize = 32 << 20;

/// Serves a connection whose preface has been read, until it ends.
pub(crate) async fn serve(stream: Stream, identity: Identity, hosted: Arc<Hosted>, stopping: &Notify) -> Result<()> {
    serve_with(Box::new(Connection::new(stream, identity, hosted, patience::client())), stopping).await
}

async fn serve_with(mut connection: Box<Connection>, stopping: &Notify) -> Result<()> {
    let mut stopping = pin!(stopping.notified());
    stopping.as_mut().enable();
    let ended = loop {
        match std::future::poll_fn(|context| connection.poll(context, stopping.as_mut())).await {
            // Also those get their turn whose bytes this thread has not noticed yet.
            Over::Turn => yield_now().await,
            Over::Connection(ended) => break ended,
        }
    };
    if let Some(stream) = connection.refused() {
        // A client that is still sending may disconnect without having received the error.
        let _ = timeout(LINGER, linger(stream)).await;
    }
    ended
}

/// Reads what a refused client is still sending, for a while: closing at once would reset the connection, and it might
/// not see why it was refused.
pub(crate) async fn linger(mut stream: Stream) -> std::io::Result<()> {
    stream.shutdown().await?;
    let (mut unwanted, mut left) = (vec![0; 64 << 10], LINGER_MAX_BYTES);
    while left > 0 {
        match stream.read(&mut unwanted).await? {
            0 => break,
            bytes => left = left.saturating_sub(bytes),
        }
    }
    Ok(())
}

/// The frame that refuses a connection.
pub(crate) fn refusal(error: &Error) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, Heading::default(), &failure(error));
    out
}

/// An error as a message.
fn failure(error: &Error) -> Failure<'_> {
    Failure { code: error.code().id(), detail: error.detail(), retry_after_ms: error.retry_after_ms() }
}
