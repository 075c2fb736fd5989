//! TLS as a host speaks it: 1.3 only, with its own key. Clients may present a key; their capability determines what it permits.

use crate::admission::Identity;
use millrace_client::secure::tls::{NO_NAME, binding, certified, failed, key_hash, provider};
use millrace_node::secrets::HostKey;
use millrace_wire::Result;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::{
        ClientHello, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use std::{io, sync::Arc};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{certificate::Certificate, protocol::Protocols, stream::Rewound};

/// The first byte of a TLS connection: a record of a handshake.
pub(super) const FIRST_BYTE: u8 = 0x16;

/// The TLS configuration of a host with this key. Clients that have pinned the key get it, and others get the certificate, if there is one.
pub(super) fn config(
    key: &HostKey,
    certificate: Option<Arc<Certificate>>,
    protocols: Protocols,
) -> Result<Arc<ServerConfig>> {
    let provider = provider();
    let anybody = Anybody { algorithms: provider.signature_verification_algorithms };
    let (chain, key) = certified(&key.certificate, &key.key);
    let own = Arc::new(CertifiedKey::from_der(chain, key, &provider).map_err(|error| failed(&error))?);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .with_client_cert_verifier(Arc::new(anybody))
        .with_cert_resolver(Arc::new(Shown { own, certificate }));
    config.alpn_protocols = protocols.0.iter().map(|protocol| protocol.alpn.to_vec()).collect();
    // Each connection shows its keys: nothing is resumed, and no data is taken before the handshake is over.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The certificates of a host.
#[derive(Debug)]
struct Shown {
    own: Arc<CertifiedKey>,
    certificate: Option<Arc<Certificate>>,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that has pinned the host's key asks for the reserved name.
        let certificate = self.certificate.as_ref().filter(|_| hello.server_name() != Some(NO_NAME));
        Some(certificate.map_or_else(|| self.own.clone(), |certificate| certificate.certified()))
    }
}

/// Shakes hands; who is at the other end is known as far as TLS says.
pub(super) async fn accept(
    config: &Arc<ServerConfig>,
    stream: Rewound,
    identity: Identity,
) -> io::Result<(TlsStream<Rewound>, Identity)> {
    let stream = TlsAcceptor::from(config.clone()).accept(stream).await?;
    let connection = stream.get_ref().1;
    let key = match connection.peer_certificates() {
        Some([certificate, ..]) => Some(key_hash(certificate).map_err(io::Error::other)?),
        _ => None,
    };
    let binding = binding(connection).map_err(io::Error::other)?;
    Ok((stream, identity.over_tls(binding, key)))
}

/// Accepts any key that the client proves to have. It is not certified.
#[derive(Debug)]
struct Anybody {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        key_hash(certificate).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not supported".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
