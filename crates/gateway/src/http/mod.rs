//! HTTP/JSON: the operations of the wire protocol, for HTTP clients.
//!
//! ```text
//!  bytes --> watched --> hyper --> session --> guard, mounts, route --> records, tail, logs, documents, metrics
//!              |                      |                              |
//!        slow? stuck?            every refusal is                  Access: waits at the gate
//!                                the same JSON body
//! ```
//!
//! `spec/openapi.json` describes it, and is served as `/openapi.json`.

mod api;
mod capabilities;
mod connection;
mod forward;
pub(crate) mod http2;
mod login;
mod mounts;
mod parquet;
mod response;
mod route;
mod session;
mod tables;

use crate::{
    memory,
    server::{Protocol, Rewound, Speaking},
};
use connection::watched::{Activity, Verdict, Watchdog, Watched};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use millrace_wire::{Code, Result};
use session::Session;
use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{futures::Notified, watch},
    time::{sleep, timeout},
};

/// The longest request line and headers.
const HEAD_MAX_BYTES: usize = 16 << 10;
/// Most headers.
const HEADERS_MAX: usize = 64;
/// The maximum size of hyper's buffers for a connection's input and output.
const BUFFER_MAX_BYTES: usize = 64 << 10;
/// How often a connection is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// A connection without requests is kept for this long.
const IDLE_PATIENCE: Duration = Duration::from_secs(75);
/// How long, and how much of, an unwanted body is read.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_MAX_BYTES: usize = 32 << 20;
/// For the last words to a client that was too slow.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) use api::metrics::Sample;
pub(crate) use api::tail::Samplers;
pub use connection::cors::{ORIGINS_MAX, Origin};
pub use forward::Forward;
pub(crate) use login::Codes;
pub use parquet::ParquetWriter;

/// Connections that begin with anything else than another protocol.
pub(crate) const PROTOCOL: Protocol = Protocol {
    alpn: b"http/1.1",
    listeners: &["http"],
    plain: None,
    claims: |_| true,
    serve: |speaking| Box::pin(serve(speaking)),
    begins: |_| Box::pin(std::future::ready(())),
    refusal: response::raw_refusal,
};

/// Serves one connection until either side has had enough.
async fn serve(Speaking { first, stream, identity, only, hosted, stopping }: Speaking) -> Result<()> {
    let mut stopping = pin!(stopping.notified());
    let activity = Arc::new(Activity::default());
    let (stop, stopped) = watch::channel(hosted.is_draining());
    let session = Arc::new(Session::new(identity, only, hosted.clone(), activity.clone(), stopped));
    let mut stream = Watched::new(Rewound::new(first, stream), activity, hosted);
    // hyper's buffers take 16 KiB and more, so they are only there while there is something to do.
    loop {
        let room = match session.account().within(memory::for_http()).await {
            Ok(room) => room,
            Err(error) => {
                let _ = timeout(FAREWELL, stream.write_all(&response::raw_refusal(&error))).await;
                return Ok(());
            }
        };
        let Some(idle) = requests(stream, &session, &stop, stopping.as_mut()).await else { return Ok(()) };
        drop(room);
        stream = idle;
        let next = tokio::select! {
            () = &mut stopping => return Ok(()),
            next = session.hosted.silence.until(timeout(IDLE_PATIENCE, stream.begins())) => next,
        };
        if !matches!(next, Some(Ok(Ok(true)))) {
            return Ok(());
        }
    }
}

/// Answers requests; gives the connection back when it has been idle for a while.
async fn requests<S>(
    stream: Watched<S>,
    session: &Arc<Session>,
    stop: &watch::Sender<bool>,
    mut stopping: Pin<&mut Notified<'_>>,
) -> Option<Watched<S>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (hosted, activity) = (&session.hosted, &session.activity);
    let of_service = session.clone();
    let service = service_fn(move |request| {
        let session = of_service.clone();
        Box::pin(async move { Ok::<_, Infallible>(session.answer(request).await) })
    });
    let mut connection = http1::Builder::new()
        .max_buf_size(BUFFER_MAX_BYTES)
        .max_header_size(HEAD_MAX_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if *stop.borrow() {
        Pin::new(&mut connection).graceful_shutdown();
    }
    let mut watchdog = Watchdog::new(activity.clone());
    loop {
        tokio::select! {
            biased;
            ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => {
                if let Err(error) = ended {
                    tracing::debug!(target: "connections", protocol = "http", "closed: {error}");
                    hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
                }
                let stream = connection.into_parts().io.into_inner();
                let _ = timeout(LINGER, close(stream, activity.lingers())).await;
                return None;
            }
            () = &mut stopping, if !*stop.borrow() => {
                stop.send_replace(true);
                Pin::new(&mut connection).graceful_shutdown();
            }
            () = sleep(LOOK) => match watchdog.look() {
                Verdict::Well => {}
                Verdict::Idle => {
                    let parts = connection.into_parts();
                    let mut stream = parts.io.into_inner();
                    stream.put_back(&parts.read_buf);
                    return Some(stream);
                }
                Verdict::Stuck => break,
                Verdict::Slow => {
                    let error = Code::HttpRequestSlow.error("the request's head did not arrive in time");
                    let mut stream = connection.into_parts().io.into_inner();
                    let _ = timeout(FAREWELL, stream.write_all(&response::raw_refusal(&error))).await;
                    break;
                }
            },
        }
    }
    tracing::debug!(target: "connections", protocol = "http", "closed: the client sent or read too slowly");
    hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
    None
}

/// Closes a connection. If the client is still sending an unwanted body, closing at once would reset the connection, and the client might
/// not see the refusal. So the body is read for a while.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, lingers: bool) -> io::Result<()> {
    stream.shutdown().await?;
    let (mut unwanted, mut left) = (vec![0; if lingers { BUFFER_MAX_BYTES } else { 0 }], LINGER_MAX_BYTES);
    while left > 0 && !unwanted.is_empty() {
        match stream.read(&mut unwanted).await? {
            0 => break,
            bytes => left = left.saturating_sub(bytes),
        }
    }
    Ok(())
}
