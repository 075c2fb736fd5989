//! The byte stream of a connection, over any transport.

use millrace_client::secure::ChannelStream;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

/// A connection: TCP or the Unix socket, and what encrypts it.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Channel(Box<ChannelStream<Stream>>),
    Tls(Box<TlsStream<Rewound>>),
}

macro_rules! forward {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
            Stream::Channel($stream) => {
                let $stream = &mut **$stream;
                $call
            }
            Stream::Tls($stream) => {
                let $stream = &mut **$stream;
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// How much of what a refused client sends is read.
const LINGER_MAX_BYTES: usize = 32 << 20;

/// Reads what a refused client is still sending, for a while: closing at once would reset the connection, and it might
/// not see why it was refused.
pub(crate) async fn linger(mut stream: Stream) -> io::Result<()> {
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

/// A stream whose first bytes were read already, and come again.
pub(crate) struct Rewound {
    first: [u8; 4],
    left: u8,
    stream: Stream,
}

impl Rewound {
    pub fn new(first: [u8; 4], stream: Stream) -> Self {
        Self { first, left: 4, stream }
    }
}

impl AsyncRead for Rewound {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left > 0 && buf.remaining() > 0 {
            let count = buf.remaining().min(usize::from(self.left));
            let from = self.first.len() - usize::from(self.left);
            buf.put_slice(&self.first[from..from + count]);
            self.left -= count as u8; // at most 4
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
