//! A connection over HTTP that carries one request at a time.

use crate::{
    Address,
    engine::Full,
    tls::{self, Line, Tls, unreachable},
};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use hyper::{
    Request, StatusCode,
    body::{Body, Frame, SizeHint},
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Outcome, Refusal};
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection.
pub struct Http {
    address: Address,
    tls: Option<Tls>,
    sender: SendRequest<Whole>,
    connection: BoxFuture<'static, hyper::Result<()>>,
}

/// A body that is in memory.
pub struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

impl Http {
    /// Connects to a server.
    pub async fn connect(address: &Address, tls: Option<&Tls>) -> Result<Self> {
        let line: Box<dyn Line> = tls::connect(address, tls, None).await?;
        let failed = |error| unreachable(address, &error);
        let (sender, connection) = handshake(TokioIo::new(line)).await.map_err(failed)?;
        Ok(Self { address: address.clone(), tls: tls.cloned(), sender, connection: Box::pin(connection) })
    }

    /// The header `host`, which leaves the usual port out.
    pub fn host(&self) -> String {
        let Address { host, port, is_tls, .. } = &self.address;
        match (is_tls, port) {
            (true, 443) | (false, 80) => host.clone(),
            _ if host.contains(':') => format!("[{host}]:{port}"),
            _ => format!("{host}:{port}"),
        }
    }

    /// Sends a request with a JSON body, and returns the whole answer.
    pub async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<(StatusCode, Bytes)> {
        // A server may end a connection that carries no request.
        if beside(&mut self.connection, self.sender.ready()).await.is_err() {
            *self = Self::connect(&self.address.clone(), self.tls.clone().as_ref()).await?;
        }
        let mut request = Request::post(path).header("host", self.host());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let address = &self.address;
        let request = request.body(Whole(Some(body.into()))).map_err(|error| odd(address, &error))?;
        let sender = &mut self.sender;
        let exchange = async {
            let failed = |error: hyper::Error| unreachable(address, &error);
            let answer = sender.send_request(request).await.map_err(failed)?;
            let status = answer.status();
            let (mut body, mut bytes) = (answer.into_body(), BytesMut::new());
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                if let Ok(data) = frame.map_err(failed)?.into_data() {
                    bytes.extend_from_slice(&data);
                }
                if bytes.len() > ANSWER_BYTES_MAX {
                    return Err(odd(address, &"the answer is too long"));
                }
            }
            Ok((status, bytes.freeze()))
        };
        beside(&mut self.connection, exchange).await
    }
}

/// Does some work while the connection moves bytes.
async fn beside<T>(connection: &mut BoxFuture<'static, hyper::Result<()>>, work: impl Future<Output = T>) -> T {
    let (mut work, mut has_ended) = (pin!(work), false);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        if !has_ended && connection.as_mut().poll(cx).is_ready() {
            has_ended = true;
            // Requests that wait for it fail now.
            cx.waker().wake_by_ref();
            *connection = Box::pin(std::future::ready(Ok(())));
        }
        Poll::Pending
    })
    .await
}

fn odd(address: &Address, why: &dyn std::fmt::Display) -> Error {
    Code::DatabaseProtocol.error(format!("{address}: {why}"))
}

/// A connection that carries one transaction at a time.
pub enum Single<L, A> {
    /// Nothing is unanswered.
    Idle(L),
    /// The transaction with this number is unanswered.
    Writing(u64, BoxFuture<'static, (L, A)>),
    /// The transaction with this number was not sent.
    Refused(u64, L, Refusal),
    /// A request was dropped half-way.
    Broken,
}

impl<L, A> Single<L, A> {
    /// The connection, if nothing is unanswered. If it is not put back, it is broken.
    pub fn take(&mut self) -> Option<L> {
        match std::mem::replace(self, Self::Broken) {
            Self::Idle(link) => Some(link),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Sends a transaction with `exchange`, unless it is refused here, if nothing is unanswered.
    pub fn submit<R, F>(
        &mut self,
        number: u64,
        request: Result<R, Refusal>,
        exchange: impl FnOnce(L, R) -> F,
    ) -> Result<(), Full>
    where
        F: Future<Output = (L, A)> + Send + 'static,
    {
        let link = self.take().ok_or(Full)?;
        *self = match request {
            Ok(request) => Self::Writing(number, Box::pin(exchange(link, request))),
            Err(refusal) => Self::Refused(number, link, refusal),
        };
        Ok(())
    }

    /// What became of the transaction: `outcome` says it of an answer. Waits for ever if nothing is unanswered. May be dropped at any time.
    pub async fn next(&mut self, outcome: impl FnOnce(u64, A) -> Outcome) -> Outcome {
        if let Self::Writing(number, work) = self {
            let number = *number;
            let (link, answer) = work.await;
            *self = Self::Idle(link);
            return outcome(number, answer);
        }
        match std::mem::replace(self, Self::Broken) {
            Self::Refused(number, link, refusal) => {
                *self = Self::Idle(link);
                Outcome::Refused { number, row: None, refusal }
            }
            other => {
                *self = other;
                std::future::pending().await
            }
        }
    }
}

/// What became of the transaction of a session, which ends if its connection is lost. Waits for ever without a session.
pub async fn next<S>(session: &mut Option<S>, of: impl AsyncFnOnce(&mut S) -> Outcome) -> Outcome {
    let Some(open) = session else { return std::future::pending().await };
    let outcome = of(open).await;
    if matches!(outcome, Outcome::Lost(_)) {
        *session = None;
    }
    outcome
}
