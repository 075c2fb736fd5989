//! TLS 1.3 with a host whose public key is known. There is no certificate authority: names and times of its certificate are ignored.

use crate::credentials::{Credentials, Identity};
use millrace_wire::{Code, Defence, Error, Result, token::Binding};
use rustls::{
    CertificateError, ClientConfig, ConnectionCommon, DigitallySignedStruct, SideData, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// What the protocol is called in TLS.
pub const ALPN: &[u8] = b"millrace/2";
/// The binding of RFC 9266.
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";

/// The library's cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The hash by which the public key of a certificate is known.
pub fn key_hash(certificate: &CertificateDer<'_>) -> std::result::Result<[u8; 32], rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(Sha256::digest(&*parsed.subject_public_key_info()).into())
}

/// What proofs over a connection are bound to.
pub fn binding<S: SideData>(connection: &ConnectionCommon<S>) -> Result<Binding> {
    let exported = connection.export_keying_material([0; 32], EXPORTER, None);
    exported.map(Binding::Exporter).map_err(|error| failed(&error))
}

/// A failure of TLS.
pub fn failed(error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            Code::HostKeyWrong.error("the host's public key is not the one that it is known by")
        }
        error => Code::TlsFailed.error(error.to_string()),
    }
}

/// A private key and its certificate as the library takes them.
pub fn certified(certificate: &[u8], key: &[u8]) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    (vec![CertificateDer::from(certificate.to_vec())], PrivatePkcs8KeyDer::from(key.to_vec()).into())
}

/// How to connect to a host with this key.
pub(crate) fn config(credentials: &Credentials, pin: [u8; 32]) -> Result<Arc<ClientConfig>> {
    let provider = provider();
    let pinned = Pinned { pin, algorithms: provider.signature_verification_algorithms };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned));
    let mut config = match credentials.identity.as_deref() {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let (chain, key) = certified(certificate, key);
            builder.with_client_auth_cert(chain, key).map_err(|error| failed(&error))?
        }
    };
    // Nothing is resumed: each connection shows its keys.
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

/// The name that is sent to a host, which decides nothing.
pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("millrace.invalid").expect("it is a name")
}

/// Takes the host that has the key with this hash, and shows in the handshake that it has it.
#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if key_hash(certificate)? == self.pin || !Defence::Pin.stands() {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        if !Defence::Handshake.stands() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
