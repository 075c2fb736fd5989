//! A connection's byte stream: TCP or a Unix socket, connected and greeted.

use crate::{Host, Options, Place, ask, connector};
use bytes::BytesMut;
use millrace_wire::{Code, Error, Hlc, Result};
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// Either kind of stream.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A stream after the handshake.
pub struct Greeted {
    pub stream: Stream,
    pub host: Host,
    /// The host's clock.
    pub hlc: Hlc,
    /// What was received behind the greeting.
    pub received: BytesMut,
}

/// Connects and greets, each within its time.
pub async fn connect(place: &Place, options: &Options) -> Result<Greeted> {
    let late = |_| Code::ConnectTimeout.error(format!("{place} did not answer in {} ms", options.connect_timeout_ms));
    let stream = timeout(options.connect_timeout(), open(place, options)).await.map_err(late)?;
    let stream = stream.map_err(|error| refused(place, &error))?;
    timeout(options.connect_timeout(), greet(stream, place, options)).await.map_err(late)?
}

/// The connection did not come about.
pub fn refused(place: &Place, error: &io::Error) -> Error {
    Code::ConnectFailed.error(format!("no connection to {place}: {error}"))
}

/// The connection broke.
pub fn broken(error: &io::Error) -> Error {
    Code::ConnectionLost.error(format!("the connection broke: {error}"))
}

/// The host closed the connection.
pub fn closed() -> Error {
    Code::ConnectionLost.error("the host closed the connection")
}

async fn open(place: &Place, options: &Options) -> io::Result<Stream> {
    match place {
        Place::Tcp(peer) => {
            let found = connector::look_up_async(options.resolve.clone(), &peer.host, peer.port).await?;
            let stream = TcpStream::connect(&*found).await?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        }
        Place::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
    }
}

async fn greet(mut stream: Stream, place: &Place, options: &Options) -> Result<Greeted> {
    stream.write_all(&ask::hello(place, &options.name)).await.map_err(|error| broken(&error))?;
    let mut received = BytesMut::with_capacity(64 << 10);
    loop {
        if let Some((host, hlc, used)) = ask::welcome(&received)? {
            let _greeting = received.split_to(used);
            return Ok(Greeted { stream, host, hlc, received });
        }
        if stream.read_buf(&mut received).await.map_err(|error| broken(&error))? == 0 {
            return Err(closed());
        }
    }
}

macro_rules! both {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        both!(self, poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        both!(self, poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        both!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        both!(self, poll_shutdown(cx))
    }
}
