//! Connections to databases, encrypted where the address asks for it.

use crate::{Address, Options};
use millrace_wire::{Code, Defence, Error, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use std::{fmt, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// How long a server may take to accept a connection.
pub const CONNECT: Duration = Duration::from_secs(5);

/// A connection in both directions.
pub trait Line: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Line for T {}

/// Encrypts connections and verifies the certificates of servers.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// For an address, if its connections are encrypted.
    pub fn of(address: &Address, options: &Options, protocols: &[&[u8]]) -> Result<Option<Self>> {
        if !address.is_tls {
            return Ok(None);
        }
        let unusable = |detail: String| Code::DatabaseTls.error(detail);
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if let Some(text) = &options.authorities {
            let failed = |why: &dyn fmt::Display| unusable(format!("the certificates of authorities: {why}"));
            // Callers of the network set them, so they never name a file: its errors would say which files this machine has.
            let read = if Defence::HostFiles.stands() { Ok(text.clone()) } else { std::fs::read_to_string(text) };
            let text = read.map_err(|error| failed(&error))?;
            let before = roots.len();
            for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
                roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
            }
            if roots.len() == before {
                return Err(failed(&"there is none in PEM"));
            }
        }
        if roots.is_empty() {
            return Err(unusable("this machine has no certificates of authorities".into()));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| unusable(error.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Some(Self { connector: TlsConnector::from(Arc::new(config)) }))
    }

    async fn encrypt<S: AsyncRead + AsyncWrite + Unpin>(&self, host: &str, line: S) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.connector.connect(name, line).await
    }
}

/// Bytes that a client sends before it encrypts, and the byte by which the server agrees.
pub type Request = (&'static [u8], u8);

/// Connects to a server.
pub async fn connect(address: &Address, tls: Option<&Tls>, request: Option<Request>) -> Result<Box<dyn Line>> {
    let connecting = TcpStream::connect((address.host.as_str(), address.port));
    let line = timeout(CONNECT, connecting).await.map_err(|_| unreachable(address, &"it does not answer"))?;
    let mut line = line.map_err(|error| unreachable(address, &error))?;
    line.set_nodelay(true).map_err(|error| unreachable(address, &error))?;
    let Some(tls) = tls else { return Ok(Box::new(line)) };
    let failed = |why: &dyn fmt::Display| Code::DatabaseTls.error(format!("{address}: {why}"));
    let encrypting = async {
        if let Some((ask, agreed)) = request {
            line.write_all(ask).await?;
            if line.read_u8().await? != agreed {
                return Err(io::Error::other("the server does not offer TLS"));
            }
        }
        tls.encrypt(&address.host, line).await
    };
    let encrypted = timeout(CONNECT, encrypting).await;
    let encrypted = encrypted.map_err(|_| failed(&"it does not answer"))?.map_err(|error| failed(&error))?;
    Ok(Box::new(encrypted))
}

pub fn unreachable(address: &Address, why: &dyn fmt::Display) -> Error {
    Code::DatabaseUnreachable.error(format!("{address}: {why}"))
}
