//! A byte stream in the records of a channel.

use millrace_security::channel::Channel;
use millrace_wire::Error;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The maximum size of one read.
const READ_BYTES: usize = 16 << 10;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 64 << 10;

fn broken(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

/// Both directions of a channel and the bytes between them, without I/O.
pub struct Records {
    channel: Channel,
    /// Received and not opened.
    sealed: Vec<u8>,
    /// Opened and not taken.
    plain: Vec<u8>,
    taken: usize,
    /// Sealed and not sent.
    out: Vec<u8>,
    sent: usize,
}

impl Records {
    /// A channel whose handshake is over: `plain` came with it, and `sealed` behind it.
    pub fn new(channel: Channel, plain: Vec<u8>, sealed: Vec<u8>) -> Self {
        Self { channel, sealed, plain, taken: 0, out: Vec::new(), sent: 0 }
    }

    /// Bytes that have come, as many as there are and fit; 0 if more has to be received first.
    pub fn take(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut used = 0;
        while self.taken == self.plain.len() {
            self.plain.clear();
            self.taken = 0;
            match self.channel.opener.open(&self.sealed[used..], &mut self.plain).map_err(|error| broken(&error))? {
                Some(length) => used += length,
                None => break,
            }
        }
        self.sealed.drain(..used);
        let count = to.len().min(self.plain.len() - self.taken);
        to[..count].copy_from_slice(&self.plain[self.taken..self.taken + count]);
        self.taken += count;
        if self.taken == self.plain.len() && self.plain.capacity() > KEPT_BYTES {
            (self.plain, self.taken) = (Vec::new(), 0);
        }
        Ok(count)
    }

    /// Takes note of bytes that were received.
    pub fn received(&mut self, bytes: &[u8]) {
        self.sealed.extend_from_slice(bytes);
    }

    /// Whether a record has begun that is not there as a whole.
    pub fn is_cut(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Seals the first of these bytes; how many.
    pub fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.channel.sealer.plain_max());
        self.channel.sealer.seal(&bytes[..count], &mut self.out).map_err(|error| broken(&error))?;
        Ok(count)
    }

    /// The bytes to send.
    pub fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Records how many of its bytes were sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            self.out.shrink_to(KEPT_BYTES);
        }
    }
}

/// A connection through a channel. What was written is sent by the time a flush is over.
pub struct ChannelStream<S> {
    stream: S,
    records: Records,
}

impl<S> ChannelStream<S> {
    /// A channel over this stream.
    pub fn new(stream: S, records: Records) -> Self {
        Self { stream, records }
    }
}

impl<S: AsyncWrite + Unpin> ChannelStream<S> {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.records.unsent().is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, self.records.unsent()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.records.sent(count),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ChannelStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let count = self.records.take(buf.initialize_unfilled())?;
            if count > 0 || buf.remaining() == 0 {
                buf.advance(count);
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [std::mem::MaybeUninit::uninit(); READ_BYTES];
            let mut received = ReadBuf::uninit(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut received))?;
            if received.filled().is_empty() {
                let cut = self.records.is_cut();
                return Poll::Ready(if cut { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) });
            }
            self.records.received(received.filled());
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ChannelStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let count = self.records.seal(bytes)?;
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
