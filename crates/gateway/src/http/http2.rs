//! HTTP/2: the same requests as over HTTP/1.1, several at once over one connection. Each is a task of the connection's loop.

use super::{
    FAREWELL, HEAD_MAX_BYTES, IDLE_PATIENCE, LOOK,
    connection::watched::{Activity, Watched},
    response::{Content, Response},
    session::Session,
};
use crate::{
    memory::{self, Reservation},
    patience,
    server::{Protocol, Rewound, Speaking, of_stream},
};
use hyper::{
    Method, Request,
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    header::{CONTENT_LENGTH, HeaderValue},
    rt::Executor,
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use millrace_wire::Result;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::{
    io::AsyncWriteExt,
    sync::{Notify, watch},
    time::{Instant, timeout},
};

/// The beginning of the client's preface, `PRI * HTTP/2.0`.
const PREFACE: &[u8; 4] = b"PRI ";
/// Requests of one connection that are answered at once.
const STREAMS_MAX: u32 = 64;
/// The parts of bodies that a client may send before the host has read them: of one request, and of all of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const WINDOW_BYTES: u32 = 128 << 10;
/// The parts of an answer that wait for the client.
const SENDING_MAX_BYTES: usize = 64 << 10;
/// Requests that a client has cancelled and the host has not seen yet; requests that were wrong. Beyond this, the connection ends.
const RESETS_MAX: usize = 20;
/// A quiet client is probed after this, and has so long to answer.
const PROBE: Duration = Duration::from_secs(20);
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const PROTOCOL: Protocol = Protocol {
    alpn: b"h2",
    listeners: super::PROTOCOL.listeners,
    plain: None,
    claims: |first| first == PREFACE,
    serve: |speaking| Box::pin(serve(speaking)),
    begins: |_| Box::pin(std::future::ready(())),
    refusal: |_| GOAWAY.to_vec(),
};

/// An empty SETTINGS frame, then a GOAWAY frame with the error ENHANCE_YOUR_CALM: a refusal has no room for more.
const GOAWAY: [u8; 26] = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11];

/// Starts the tasks of a connection on its loop.
#[derive(Clone, Copy)]
struct OwnLoop;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for OwnLoop {
    fn execute(&self, stream: F) {
        of_stream(stream);
    }
}

/// Serves one connection until either side has had enough.
async fn serve(Speaking { first, stream, identity, only, hosted, stopping }: Speaking) -> Result<()> {
    let mut stopping = pin!(stopping.notified());
    let (activity, streams) = (Arc::<Activity>::default(), Arc::<Streams>::default());
    let (stop, stopped) = watch::channel(hosted.is_draining());
    let session = Arc::new(Session::new(identity, only, hosted.clone(), activity.clone(), stopped));
    let mut stream = Watched::unchanged(Rewound::new(first, stream), activity, hosted.clone());
    let Ok(_room) = session.account().within(memory::for_http()).await else {
        let _ = timeout(FAREWELL, stream.write_all(&GOAWAY)).await;
        return Ok(());
    };
    let of_service = streams.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (session, open, is_head) = (session.clone(), of_service.ask(), request.method() == Method::HEAD);
        Box::pin(async move {
            let (answer, room) = session.answer_stream(request).await;
            let answer = if is_head { without_body(answer) } else { answer };
            Ok::<_, Infallible>(answer.map(|content| Answer::new(content, open, room)))
        })
    });
    let mut connection = pin!(
        http2::Builder::new(OwnLoop)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_send_buf_size(SENDING_MAX_BYTES)
            .max_header_list_size(HEAD_MAX_BYTES as u32)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_local_error_reset_streams(RESETS_MAX)
            .keep_alive_interval(PROBE)
            .keep_alive_timeout(PROBE_PATIENCE)
            .serve_connection(TokioIo::new(stream), service)
    );
    let (mut before, mut is_ending) = (0, false);
    loop {
        // Some clients take nothing more after a GOAWAY frame, so the answers that have begun go before it.
        if *stop.borrow() && !is_ending && streams.is_quiet() {
            is_ending = true;
            connection.as_mut().graceful_shutdown();
        }
        let asked = streams.asked();
        // Whatever else than a request the client sends counts as silence.
        let progress = poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Ready(over) => Poll::Ready(Some(over)),
            Poll::Pending if streams.asked() > asked => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let is_silent = asked == before && streams.is_quiet();
        before = asked;
        let next = async {
            if !is_silent {
                return Some(timeout(LOOK, progress).await.unwrap_or(None));
            }
            let quiet = if asked == 0 { patience::client() } else { IDLE_PATIENCE };
            hosted.silence.until(timeout(quiet, progress)).await.and_then(std::result::Result::ok)
        };
        let next = tokio::select! {
            () = &mut stopping, if !*stop.borrow() => {
                stop.send_replace(true);
                continue;
            }
            () = streams.quiet.notified(), if *stop.borrow() && !is_ending => continue,
            next = next => next,
        };
        match next {
            Some(None) if !streams.is_late() => {}
            Some(Some(Ok(()))) => return Ok(()),
            // The client learns which requests it may send again.
            None if asked > 0 => {
                connection.as_mut().graceful_shutdown();
                let _ = timeout(FAREWELL, connection).await;
                return Ok(());
            }
            _ => break,
        }
    }
    tracing::debug!(target: "connections", protocol = "http", "closed: the client broke the protocol, or was silent or too slow");
    hosted.counters.dropped.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// An answer to HEAD, which over HTTP/1.1 hyper sends without the body.
fn without_body(answer: Response) -> Response {
    let (mut head, content) = answer.into_parts();
    if content.length() > 0 {
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(content.length()));
    }
    Response::from_parts(head, Content::whole(Bytes::new()))
}

/// The requests of a connection, and the parts of answers that the client has not taken yet.
#[derive(Default)]
struct Streams {
    counts: Mutex<Counts>,
    /// Notified when no answer is under way any more.
    quiet: Notify,
}

#[derive(Default)]
struct Counts {
    /// Requests so far, and those that are being answered.
    asked: u64,
    open: usize,
    /// Parts so far, and the time by which the client has to take each that it has not taken.
    parts: u64,
    owed: BTreeMap<u64, (Instant, Option<Waker>)>,
}

impl Streams {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> u64 {
        self.counts().asked
    }

    fn is_quiet(&self) -> bool {
        let counts = self.counts();
        counts.open == 0 && counts.owed.is_empty()
    }

    fn tell_if_quiet(&self) {
        if self.is_quiet() {
            self.quiet.notify_one();
        }
    }

    fn is_late(&self) -> bool {
        self.counts().owed.first_key_value().is_some_and(|(_, (until, _))| *until < Instant::now())
    }

    fn ask(self: &Arc<Self>) -> Open {
        let mut counts = self.counts();
        counts.asked += 1;
        counts.open += 1;
        Open(self.clone())
    }

    fn owe(self: &Arc<Self>) -> Owed {
        let mut counts = self.counts();
        counts.parts += 1;
        let number = counts.parts;
        // As over HTTP/1.1, where a client has to take a tenth in each patience.
        counts.owed.insert(number, (Instant::now() + patience::body(), None));
        Owed { of: self.clone(), number }
    }

    /// Ready when the client has taken this part.
    fn poll_taken(&self, part: u64, cx: &Context<'_>) -> Poll<()> {
        match self.counts().owed.get_mut(&part) {
            None => Poll::Ready(()),
            Some((_, waker)) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A request that is being answered.
struct Open(Arc<Streams>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counts().open -= 1;
        self.0.tell_if_quiet();
    }
}

/// A part of an answer that the client has not taken.
struct Owed {
    of: Arc<Streams>,
    number: u64,
}

impl Drop for Owed {
    fn drop(&mut self) {
        let taken = self.of.counts().owed.remove(&self.number);
        if let Some((_, Some(waker))) = taken {
            waker.wake();
        }
        self.of.tell_if_quiet();
    }
}

/// A part of an answer, and the memory that it takes until the client has taken it.
struct Part {
    bytes: Bytes,
    _room: Option<Reservation>,
    _owed: Owed,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of an answer over HTTP/2. The next part is made when the client has taken the one before: hyper alone would have two ready.
struct Answer {
    content: Content,
    /// The newest part.
    part: u64,
    open: Open,
    room: Option<Reservation>,
}

impl Answer {
    fn new(content: Content, open: Open, room: Option<Reservation>) -> Self {
        Self { content, part: 0, open, room }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.open.0.poll_taken(self.part, cx));
        let Some(Ok(frame)) = ready!(Pin::new(&mut self.content).poll_frame(cx)) else { return Poll::Ready(None) };
        let owed = self.open.0.owe();
        self.part = owed.number;
        let bytes = frame.into_data().unwrap_or_default();
        let room = self.room.as_ref().map(|room| room.beside(bytes.len()));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Part { bytes, _room: room, _owed: owed })))))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
