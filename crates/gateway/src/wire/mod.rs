//! The wire protocol's server side: `spec/protocol/wire.md`.
//!
//! [`connection`] moves bytes and enforces limits, [`requests`] turns messages into calls of `Access`, [`commits`] does so for those that
//! commit, and [`waits`] has the requests that wait: tails and blocking reads. [`devices`] has the journals of devices and the commands for them,
//! and [`asking`] takes requests to devices that are connected.

mod asking;
mod commits;
mod connection;
mod devices;
mod requests;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod topics;
mod waits;

pub(crate) use asking::{Askable, RemoteAnswer, RemoteRequest};

use crate::{
    patience,
    server::{Protocol, Speaking, linger},
};
use connection::{Connection, Over};
use millrace_client::secure::tls::ALPN;
use millrace_wire::{
    Error, Result,
    protocol::{Failure, Heading, PREFACE, encode},
};
use std::{pin::pin, time::Duration};
use tokio::{sync::Notify, task::yield_now, time::timeout};

/// The host's name in the handshake.
pub(crate) const SOFTWARE: &str = concat!("millrace ", env!("CARGO_PKG_VERSION"));
/// Requests of one connection that may be unanswered.
pub(crate) const REQUESTS_MAX: usize = 4096;

/// How long what a refused client sends is read.
const LINGER: Duration = Duration::from_secs(2);

/// Connections that begin with the preface, and all over the channel.
pub(crate) const PROTOCOL: Protocol = Protocol {
    alpn: ALPN,
    listeners: &[],
    plain: None,
    claims: |first| *first == PREFACE,
    serve: |speaking| Box::pin(serve(speaking)),
    begins: |_| Box::pin(std::future::ready(())),
    refusal,
};

/// Serves a connection whose preface has been read, until it ends.
async fn serve(Speaking { stream, identity, hosted, stopping, .. }: Speaking) -> Result<()> {
    let stopping = &*stopping;
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

/// The frame that refuses a connection.
fn refusal(error: &Error) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, Heading::default(), &failure(error));
    out
}

/// An error as a message.
fn failure(error: &Error) -> Failure<'_> {
    Failure { code: error.code().id(), detail: error.detail(), retry_after_ms: error.retry_after_ms() }
}
