//! One end of a bridge: a connection to a broker.

use millrace_mqtt::packet::{Greeting, PACKET_MAX_BYTES, Version, Welcome, connect, frame, reason, subscribe};
use millrace_wire::{Code, Error, Result};
use rustls::{ClientConfig, pki_types::ServerName};
use std::{path::PathBuf, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

/// How much is read at a time.
const READ_BYTES: usize = 64 << 10;
/// The packet id of SUBSCRIBE: the last one that a message would get.
const SUBSCRIBE_ID: u16 = u16::MAX;

/// Where a broker is.
#[derive(Clone, Debug)]
pub enum Broker {
    /// The host of this namespace.
    Socket(PathBuf),
    /// A broker elsewhere, with TLS if it is to be spoken.
    Remote {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
        /// Who vouches for it.
        tls: Option<Arc<ClientConfig>>,
    },
}

/// A connection to a broker.
pub(super) trait BrokerStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> BrokerStream for S {}

impl Broker {
    /// How errors name it.
    pub fn name(&self) -> String {
        match self {
            Self::Socket(_) => "the host of this namespace".to_owned(),
            Self::Remote { host, port, .. } => format!("{host}:{port}"),
        }
    }

    async fn connect(&self) -> std::io::Result<Box<dyn BrokerStream>> {
        Ok(match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Self::Remote { host, port, tls } => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Box::new(stream),
                    Some(config) => {
                        let name = ServerName::try_from(host.clone()).map_err(std::io::Error::other)?;
                        Box::new(TlsConnector::from(config.clone()).connect(name, stream).await?)
                    }
                }
            }
        })
    }
}

/// A broker that has greeted.
pub(super) struct GreetedBroker {
    pub welcome: Welcome,
    source: Source,
    sink: Sink,
}

/// What comes from a broker.
pub(super) struct Source {
    pub name: String,
    pub version: Version,
    pub input: Vec<u8>,
    stream: ReadHalf<Box<dyn BrokerStream>>,
}

/// What goes to a broker.
pub(super) struct Sink {
    pub name: String,
    pub version: Version,
    pub packet_max_bytes: u32,
    stream: WriteHalf<Box<dyn BrokerStream>>,
}

impl GreetedBroker {
    /// Connects, and waits until the broker has greeted.
    pub async fn open(broker: &Broker, greeting: &Greeting<'_>) -> Result<Self> {
        let (name, version) = (broker.name(), greeting.version);
        let stream = broker.connect().await.map_err(|error| broken(&name, &error))?;
        let (from, to) = split(stream);
        let mut source = Source { name: name.clone(), version, input: Vec::new(), stream: from };
        let mut sink = Sink { name, version, packet_max_bytes: u32::MAX, stream: to };
        let mut out = Vec::new();
        connect(&mut out, greeting);
        sink.write(&out).await?;
        let welcome = loop {
            if let Some((first, body, length)) = frame(&source.input, PACKET_MAX_BYTES).map_err(|fault| fault.error)? {
                if first != 0x20 {
                    let detail = format!("{} answered with a packet of type {}", source.name, first >> 4);
                    return Err(Code::MqttBrokerFailed.error(detail));
                }
                let welcome = Welcome::read(body, version).map_err(|fault| fault.error)?;
                source.input.drain(..length);
                break welcome;
            }
            source.read().await?;
        };
        if welcome.reason != 0 {
            return Err(refused(&source.name, version, welcome.reason));
        }
        sink.packet_max_bytes = welcome.packet_max_bytes;
        Ok(Self { welcome, source, sink })
    }

    /// Subscribes to these filters, if there are any.
    pub async fn subscribe(&mut self, filters: &[String]) -> Result<()> {
        if filters.is_empty() {
            return Ok(());
        }
        let mut out = Vec::new();
        subscribe(&mut out, self.sink.version, SUBSCRIBE_ID, filters);
        self.sink.write(&out).await
    }

    pub fn split(self) -> (Source, Sink) {
        (self.source, self.sink)
    }
}

impl Source {
    /// Reads more; it may be dropped at any time.
    pub async fn read(&mut self) -> Result<()> {
        self.input.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err(Code::MqttBrokerFailed.error(format!("{} closed the connection", self.name))),
            Ok(_) => Ok(()),
            Err(error) => Err(broken(&self.name, &error)),
        }
    }
}

impl Sink {
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        written.await.map_err(|error| broken(&self.name, &error))
    }
}

fn broken(name: &str, error: &std::io::Error) -> Error {
    Code::MqttBrokerFailed.error(format!("{name}: {error}"))
}

/// A broker refuses the bridge.
fn refused(name: &str, version: Version, code: u8) -> Error {
    let denied = match version {
        Version::V3 => matches!(code, 4 | 5),
        Version::V5 => matches!(code, reason::BAD_CREDENTIALS | reason::NOT_AUTHORIZED | reason::BAD_AUTHENTICATION),
    };
    let known = match (version, code) {
        _ if denied => "user name or password is wrong, or the user may not connect",
        (Version::V3, 1) | (Version::V5, reason::UNSUPPORTED_VERSION) => "it does not speak this version of MQTT",
        (Version::V3, 2) | (Version::V5, reason::CLIENT_ID_INVALID) => "it does not take this client id",
        _ => "it has no use for the bridge now",
    };
    let code_of = if denied { Code::MqttBridgeDenied } else { Code::MqttBrokerFailed };
    code_of.error(format!("{name} refused the bridge with reason {code:#04x}: {known}"))
}
