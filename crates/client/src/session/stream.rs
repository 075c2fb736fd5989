//! A connection's byte stream: TCP or a Unix socket, connected, encrypted if necessary, after the handshake.

use crate::{
    Credentials, Host, Options, Place,
    ask::{Answered, Greeting},
    connector,
    loopback::{self, Near},
    secure::{self, ChannelStream, Records, tls},
};
use bytes::BytesMut;
use millrace_security::token::{Binding, Token};
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
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Any kind of stream.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Channel(Box<ChannelStream<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream after the handshake.
pub struct Greeted {
    pub stream: Stream,
    pub host: Host,
    /// The host's clock.
    pub hlc: Hlc,
    /// Bytes that were received after the handshake.
    pub received: BytesMut,
}

/// Connects and greets, each within its time.
pub async fn connect(place: &Place, options: &Options) -> Result<Greeted> {
    let late = |_| Code::ConnectTimeout.error(format!("{place} did not answer in {} ms", options.connect_timeout_ms));
    let stream = timeout(options.connect_timeout(), open(place, options)).await.map_err(late)?;
    let stream = stream.map_err(|error| refused(place, &error))?;
    let shake = async {
        let safe = secure(stream, place, options, Near::InClear).await?;
        let has_token = safe.has_token;
        match greet(safe, place, options).await {
            Err(error) if has_token && loopback::is_unknown(&error) => {
                let stream = open(place, options).await.map_err(|error| refused(place, &error))?;
                greet(secure(stream, place, options, Near::ByToken).await?, place, options).await
            }
            greeted => greeted,
        }
    };
    timeout(options.connect_timeout(), shake).await.map_err(late)?
}

/// A stream over which one may greet.
struct Safe {
    stream: Stream,
    credentials: Credentials,
    binding: Option<Binding>,
    /// Whether there is a token that was not used.
    has_token: bool,
}

/// Makes a connection safe that leads to a port, with what this user has for it.
async fn secure(stream: Stream, place: &Place, options: &Options, near: Near) -> Result<Safe> {
    let lost = |error: io::Error| secure::failed(&error);
    let (mut stream, peer) = match (stream, place) {
        (Stream::Tcp(stream), Place::Tcp(peer)) => (stream, peer),
        (stream, _) => {
            return Ok(Safe { stream, credentials: options.for_socket()?, binding: None, has_token: false });
        }
    };
    let address = stream.peer_addr().map_err(|error| broken(&error))?;
    let (credentials, has_token) = options.for_host(peer, address, near)?;
    if let Some((config, name)) = tls::way(&credentials, &peer.host)? {
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(lost)?;
        let binding = tls::binding(stream.get_ref().1)?;
        return Ok(Safe { stream: Stream::Tls(Box::new(stream)), credentials, binding: Some(binding), has_token });
    }
    let Some(connecting) = secure::begin(&credentials)? else {
        loopback::check_near(address)?;
        return Ok(Safe { stream: Stream::Tcp(stream), credentials, binding: None, has_token });
    };
    stream.write_all(connecting.m1()).await.map_err(|error| broken(&error))?;
    let mut received = Vec::with_capacity(256);
    loop {
        if let Some((channel, used)) = connecting.receive(&received)? {
            let records = Records::new(channel, Vec::new(), received.split_off(used));
            let stream = Stream::Channel(Box::new(ChannelStream::new(stream, records)));
            return Ok(Safe { stream, credentials, binding: None, has_token });
        }
        if stream.read_buf(&mut received).await.map_err(|error| broken(&error))? == 0 {
            return Err(closed());
        }
    }
}

/// A connection over TLS to a host whose key or authorities are known, for requests over HTTP.
pub struct Encrypted {
    /// The connection.
    pub stream: Box<TlsStream<TcpStream>>,
    /// This user's capability for the host.
    pub capability: Option<Token>,
}

/// Connects over TLS, with this user's credentials for the host; nothing if they name no key and no authorities, so that a connection would
/// be made safe in another way.
pub async fn encrypted(place: &Place, options: &Options) -> Result<Option<Encrypted>> {
    let late = |_| Code::ConnectTimeout.error(format!("{place} did not answer in {} ms", options.connect_timeout_ms));
    let connecting = async {
        let Place::Tcp(peer) = place else { return Ok(None) };
        let Stream::Tcp(stream) = open(place, options).await.map_err(|error| refused(place, &error))? else {
            return Ok(None);
        };
        let address = stream.peer_addr().map_err(|error| broken(&error))?;
        let (credentials, _) = options.for_host(peer, address, Near::InClear)?;
        let Some((config, name)) = tls::way(&credentials, &peer.host)? else { return Ok(None) };
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| secure::failed(&error))?;
        Ok(Some(Encrypted { stream: Box::new(stream), capability: credentials.capability }))
    };
    timeout(options.connect_timeout(), connecting).await.map_err(late)?
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

async fn greet(safe: Safe, place: &Place, options: &Options) -> Result<Greeted> {
    let Safe { mut stream, credentials, binding, .. } = safe;
    let mut greeting = Greeting::new(place, &options.name, &credentials, binding);
    let preface = !matches!(stream, Stream::Channel(_));
    let mut out = greeting.first(preface);
    let mut received = BytesMut::with_capacity(64 << 10);
    loop {
        if !out.is_empty() {
            stream.write_all(&out).await.map_err(|error| broken(&error))?;
            stream.flush().await.map_err(|error| broken(&error))?;
            out.clear();
        }
        match greeting.answer(&received)? {
            Answered::Incomplete => {}
            Answered::Asked(more, used) => {
                let _question = received.split_to(used);
                out = more;
                continue;
            }
            Answered::Welcome(host, hlc, used) => {
                if let Stream::Tcp(stream) = &stream {
                    loopback::check(|| Ok((stream.peer_addr()?, stream.local_addr()?)))?;
                }
                let _greeting = received.split_to(used);
                return Ok(Greeted { stream, host: *host, hlc, received });
            }
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
            Stream::Channel(stream) => Pin::new(&mut **stream).$method($($argument),*),
            Stream::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
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
