//! TLS as an attacker speaks it.

use millrace_client::secure::tls::{ALPN, binding, provider};
use millrace_security::token::Binding;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
    StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{
    io::Read,
    net::{TcpListener, TcpStream},
    sync::Arc,
};

/// Takes every host for the right one.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A TLS session with a host, and what proofs on it are bound to.
pub fn session(port: u16) -> (StreamOwned<ClientConnection, TcpStream>, Binding) {
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13]);
    let config = config.unwrap().dangerous().with_custom_certificate_verifier(Arc::new(Anyone));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let name = ServerName::try_from("millrace.invalid").unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(millrace_tests::raw::LONG)).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).unwrap();
    }
    let binding = binding(&connection).unwrap();
    (StreamOwned::new(connection, stream), binding)
}

/// Takes one connection as a host that shows this certificate and signs with this key, which need not belong together; what it is told
/// first, if the other end believes it.
pub fn pose(listener: &TcpListener, certificate: Vec<u8>, key: Vec<u8>) -> Option<[u8; 4]> {
    let key = provider().key_provider.load_private_key(PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key))).unwrap();
    let certified = CertifiedKey::new(vec![CertificateDer::from(certificate)], key);
    let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13]);
    let mut config =
        config.unwrap().with_no_client_auth().with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(millrace_tests::raw::LONG)).unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream);
    let mut first = [0; 4];
    stream.read_exact(&mut first).ok().map(|()| first)
}
