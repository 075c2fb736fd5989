//! A connection's bytes, watched: counted, timed, and with a body in the refusals that hyper writes without one.

use crate::{Hosted, http::response, patience};
use hyper::body::Bytes;
use millrace_wire::{Code, Error};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// A connection without requests for this long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// The part of its answer that a client must take within [`patience::client`]: so none takes longer than ten times that.
const GOOD_PART: u64 = 10;

/// The activity of a connection. Only its task writes it; the counters are atomic only to be shared within the task.
#[derive(Default)]
pub(in crate::http) struct Activity {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// Bytes read when the last answer was made.
    read_before: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    /// The client does not take what is written.
    blocked: AtomicBool,
    /// How long the newest answer is, or the newest part of one that has no end.
    answer_bytes: AtomicU64,
    /// Written bytes may be a record with any content.
    raw: AtomicBool,
    /// The client may still be sending what was refused.
    lingers: AtomicBool,
}

impl Activity {
    /// A request has begun to be answered.
    pub fn begin(self: &Arc<Self>) -> Exchange {
        self.begun.fetch_add(1, Relaxed);
        Exchange(self.clone())
    }

    /// A request was refused before all of it was read.
    pub fn refuses_early(&self) {
        self.lingers.store(true, Relaxed);
    }

    pub fn lingers(&self) -> bool {
        self.lingers.load(Relaxed)
    }

    /// An answer of this length begins.
    pub fn answers(&self, bytes: u64) {
        self.answer_bytes.store(bytes, Relaxed);
    }

    /// The bytes of a record are about to be sent.
    pub fn sends_raw(&self) {
        self.raw.store(true, Relaxed);
    }
}

/// A request that is being answered; dropped with the last of its answer.
pub(in crate::http) struct Exchange(Arc<Activity>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
        self.0.read_before.store(self.0.read_bytes.load(Relaxed), Relaxed);
    }
}

/// How a connection is doing.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) enum Verdict {
    Well,
    /// Nothing is asked.
    Idle,
    /// A request has begun and does not arrive.
    Slow,
    /// An answer is not taken.
    Stuck,
}

/// Checks a connection from time to time.
pub(in crate::http) struct Watchdog {
    activity: Arc<Activity>,
    /// The last state: requests begun and ended, whether a head has begun, since when this is unchanged without progress of an answer, and
    /// how many bytes had been written then.
    seen: (u64, u64, bool),
    since: Instant,
    written_bytes: u64,
}

impl Watchdog {
    pub fn new(activity: Arc<Activity>) -> Self {
        Self { activity, seen: (0, 0, true), since: Instant::now(), written_bytes: 0 }
    }

    pub fn look(&mut self) -> Verdict {
        self.look_at(Instant::now())
    }

    fn look_at(&mut self, now: Instant) -> Verdict {
        let activity = &self.activity;
        let (begun, ended) = (activity.begun.load(Relaxed), activity.ended.load(Relaxed));
        let head = begun == ended && activity.read_bytes.load(Relaxed) > activity.read_before.load(Relaxed);
        let (seen, written_bytes) = ((begun, ended, head), activity.written_bytes.load(Relaxed));
        let blocked = activity.blocked.load(Relaxed);
        // A client that has received everything is not late.
        let part = if blocked { activity.answer_bytes.load(Relaxed) / GOOD_PART } else { 0 };
        if seen != self.seen || written_bytes - self.written_bytes >= part.max(1) {
            (self.seen, self.since, self.written_bytes) = (seen, now, written_bytes);
            return Verdict::Well;
        }
        let quiet = now.saturating_duration_since(self.since);
        match (begun == ended, head) {
            _ if blocked && quiet > patience::client() => Verdict::Stuck,
            (true, true) if quiet > patience::head() => Verdict::Slow,
            // Parts of an answer may still be in transit.
            (true, false) if !blocked && quiet > IDLE_AFTER => Verdict::Idle,
            _ => Verdict::Well,
        }
    }
}

/// The stream itself.
pub(in crate::http) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    hosted: Arc<Hosted>,
    /// Bytes that were read already, and are read again.
    again: Bytes,
    /// A refusal that goes out in place of hyper's, and how much of it has gone.
    instead: Option<(Vec<u8>, usize)>,
    /// Whether refusals of hyper's are replaced.
    replaces: bool,
}

impl<S> Watched<S> {
    pub fn new(stream: S, activity: Arc<Activity>, hosted: Arc<Hosted>) -> Self {
        Self { stream, activity, hosted, again: Bytes::new(), instead: None, replaces: true }
    }

    /// The same, written as it is: the bytes of an answer over HTTP/2 may look like a refusal.
    pub fn unchanged(stream: S, activity: Arc<Activity>, hosted: Arc<Hosted>) -> Self {
        Self { replaces: false, ..Self::new(stream, activity, hosted) }
    }

    /// Gives back what was read and not used: a request that has begun.
    pub fn put_back(&mut self, bytes: &[u8]) {
        // Also when they are none, they would keep the buffer that they were read into.
        if !bytes.is_empty() {
            self.activity.read_before.store(self.activity.read_bytes.load(Relaxed) - 1, Relaxed);
            self.again = Bytes::copy_from_slice(bytes);
        }
    }

    fn count_written(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.activity.written_bytes.fetch_add(*bytes as u64, Relaxed);
            self.hosted.counters.sent_bytes.fetch_add(*bytes as u64, Relaxed);
        }
        self.activity.blocked.store(written.is_pending(), Relaxed);
    }
}

impl<S: AsyncRead + Unpin> Watched<S> {
    /// Waits until a request begins; false if the client goes instead.
    pub async fn begins(&mut self) -> io::Result<bool> {
        if !self.again.is_empty() {
            return Ok(true);
        }
        let mut first = [0];
        let bytes = self.read(&mut first).await?;
        self.again = Bytes::copy_from_slice(&first[..bytes]);
        Ok(bytes > 0)
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    /// Writes the refusal with a body in place of `bytes`, which then count as written.
    fn poll_refuse(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<usize>> {
        while let Some((refusal, gone)) = &mut self.instead {
            if *gone == refusal.len() {
                self.instead = None;
                break;
            }
            let written = Pin::new(&mut self.stream).poll_write(cx, &refusal[*gone..]);
            *gone += ready!(written)?;
        }
        Poll::Ready(Ok(bytes))
    }
}

/// The error behind a refusal that hyper wrote: a bare head with one of a few statuses.
fn bare_refusal(bytes: &[u8]) -> Option<Error> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.first_chunk::<3>()?;
    let head = str::from_utf8(bytes).ok().filter(|head| head.len() < 256 && head.ends_with("\r\n\r\n"))?;
    if !head.contains("\r\ncontent-length: 0\r\n") {
        return None;
    }
    match status {
        b"400" => Some(Code::HttpMalformed.error("the request cannot be read")),
        b"414" | b"431" => Some(Code::HttpHeadTooLong.error("the request's URL or headers are too long")),
        _ => None,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.again.is_empty() && buf.remaining() > 0 {
            let count = self.again.len().min(buf.remaining());
            buf.put_slice(&self.again.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = (buf.filled().len() - before) as u64;
        self.activity.read_bytes.fetch_add(bytes, Relaxed);
        self.hosted.counters.received_bytes.fetch_add(bytes, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces && self.instead.is_none() && buf.starts_with(b"HTTP/1.1 4") && !self.activity.raw.load(Relaxed)
        {
            self.instead = bare_refusal(buf).map(|error| (response::raw_refusal(&error), 0));
        }
        let written = match self.instead {
            Some(_) => self.poll_refuse(cx, buf.len()),
            None => Pin::new(&mut self.stream).poll_write(cx, buf),
        };
        self.count_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        if self.instead.is_some() || self.replaces && first.is_some_and(|buf| buf.starts_with(b"HTTP/1.1 4")) {
            return self.poll_write(cx, first.map_or(&[], |buf| buf));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes once it has written all that it was given: what it writes next is no part of an answer that has ended.
        if self.activity.begun.load(Relaxed) == self.activity.ended.load(Relaxed) {
            self.activity.raw.store(false, Relaxed);
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[test]
    fn a_connection_is_slow_idle_or_stuck_only_after_its_patience() {
        let activity = Arc::new(Activity::default());
        let mut dog = Watchdog::new(activity.clone());
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        activity.read_bytes.store(4, Relaxed); // "GET "
        assert_eq!(dog.look_at(after(1)), Verdict::Well);
        assert_eq!(dog.look_at(after(12)), Verdict::Slow);

        let exchange = activity.begin();
        assert_eq!(dog.look_at(after(13)), Verdict::Well);
        assert_eq!(dog.look_at(after(300)), Verdict::Well, "a request may wait for long");
        activity.blocked.store(true, Relaxed);
        assert_eq!(dog.look_at(after(301)), Verdict::Stuck);
        activity.written_bytes.store(1, Relaxed);
        assert_eq!(dog.look_at(after(302)), Verdict::Well);
        activity.blocked.store(false, Relaxed);

        // Of a long answer a tenth is to be taken in each patience, not only something.
        activity.answers(1000);
        activity.blocked.store(true, Relaxed);
        let mut look = |written, at| {
            activity.written_bytes.store(written, Relaxed);
            dog.look_at(after(at))
        };
        assert_eq!((look(101, 310), look(200, 339), look(201, 340)), (Verdict::Well, Verdict::Well, Verdict::Well));
        assert_eq!((look(300, 369), look(300, 371)), (Verdict::Well, Verdict::Stuck));
        assert_eq!(look(301, 372), Verdict::Well);
        drop(exchange);
        assert_eq!(look(302, 373), Verdict::Well);
        assert_eq!(look(302, 402), Verdict::Well, "all of the answer is made, and the client has not taken it");
        activity.written_bytes.store(1000, Relaxed);
        activity.blocked.store(false, Relaxed);
        assert_eq!(dog.look_at(after(403)), Verdict::Well);
        assert_eq!(dog.look_at(after(404)), Verdict::Well);
        assert_eq!(dog.look_at(after(405)), Verdict::Idle);
    }

    #[test]
    fn only_bare_heads_of_refusals_are_replaced() {
        let bare = |text: &str| bare_refusal(text.as_bytes()).map(|error| error.code());
        assert_eq!(bare("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"), Some(Code::HttpMalformed));
        assert_eq!(
            bare("HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n"),
            Some(Code::HttpHeadTooLong)
        );
        assert_eq!(bare("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"), None);
        assert_eq!(bare("HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}"), None);
    }

    /// What is written to a stream by a connection's owner, whether it is replaced or not.
    async fn written(
        activity: &Arc<Activity>,
        steps: impl AsyncFnOnce(&mut Watched<tokio::io::DuplexStream>),
    ) -> String {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let mut watched = Watched::new(ours, activity.clone(), Arc::new(Hosted::new(Vec::new())));
        steps(&mut watched).await;
        drop(watched);
        let mut text = String::new();
        theirs.read_to_string(&mut text).await.unwrap();
        text
    }

    /// A record that looks like a refusal of hyper's.
    const IMITATION: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

    #[test]
    fn a_record_that_looks_like_a_refusal_is_written_as_it_is_whatever_is_asked_behind_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let activity = Arc::new(Activity::default());
        let text = runtime.block_on(written(&activity, async |watched| {
            let exchange = activity.begin();
            activity.sends_raw();
            drop(exchange);
            // The next request has begun before all of the record is written.
            let _next = activity.begin();
            watched.write_all(IMITATION).await.unwrap();
        }));
        assert_eq!(text.as_bytes(), IMITATION);
        let text = runtime.block_on(written(&activity, async |watched| {
            watched.flush().await.unwrap();
            watched.write_all(IMITATION).await.unwrap();
        }));
        assert!(text.contains("MR6051"), "once all is written, a refusal of hyper's gets its body: {text}");
    }
}
