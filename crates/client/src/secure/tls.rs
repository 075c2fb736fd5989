//! TLS 1.3 with a host whose public key is known, or whose certificate a trusted authority has signed. With a known key, the names
//! and times of the certificate are ignored.

use crate::credentials::{Credentials, Identity, SYSTEM};
use millrace_security::token::Binding;
use millrace_wire::{Code, Defence, Error, Result};
use rustls::{
    CertificateError, ClientConfig, ConnectionCommon, DigitallySignedStruct, RootCertStore, SideData, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use sha2::{Digest, Sha256};
use std::{path::Path, sync::Arc};

/// The name of the protocol in TLS.
pub const ALPN: &[u8] = b"millrace/2";
/// Where systems keep the certificates of authorities, all in one file.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// The binding of RFC 9266.
const EXPORTER: &[u8] = b"EXPORTER-Channel-Binding";

/// The name that a client sends to a host whose key it knows, which decides nothing.
pub const NO_NAME: &str = "millrace.invalid";

/// The library's cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The hash by which the public key of a certificate is known.
pub fn key_hash(certificate: &CertificateDer<'_>) -> std::result::Result<[u8; 32], rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(Sha256::digest(&*parsed.subject_public_key_info()).into())
}

/// The keying material to which proofs over a connection are bound.
pub fn binding<S: SideData>(connection: &ConnectionCommon<S>) -> Result<Binding> {
    let exported = connection.export_keying_material([0; 32], EXPORTER, None);
    exported.map(Binding::Exporter).map_err(|error| failed(&error))
}

/// A failure of TLS.
pub fn failed(error: &rustls::Error) -> Error {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            Code::HostKeyWrong.error("the host's public key is not the stored one")
        }
        rustls::Error::InvalidCertificate(error) => Code::HostCertificateRefused.error(match error {
            CertificateError::UnknownIssuer => "no trusted authority has issued the certificate".to_owned(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate has expired".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate is for another name".to_owned()
            }
            error => error.to_string(),
        }),
        error => Code::TlsFailed.error(error.to_string()),
    }
}

/// A private key and its certificate as the library takes them.
pub fn certified(certificate: &[u8], key: &[u8]) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    (vec![CertificateDer::from(certificate.to_vec())], PrivatePkcs8KeyDer::from(key.to_vec()).into())
}

/// How to speak TLS with a host, and the name that it is asked for, if it is spoken: its key is known, or authorities that vouch for it.
pub(crate) fn way(credentials: &Credentials, host: &str) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?;
    let (builder, name) = match (credentials.pin, &credentials.authorities) {
        (Some(pin), _) => {
            let pinned = Pinned { pin, algorithms };
            let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
            (builder, ServerName::try_from(NO_NAME).expect("it is a name"))
        }
        (None, Some(authorities)) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let name = ServerName::try_from(bare).map_err(|_| {
                Code::HostCertificateRefused.error(format!("'{host}' cannot be the name in a certificate"))
            })?;
            (builder.with_root_certificates(authorities.clone()), name)
        }
        (None, None) => return Ok(None),
    };
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
    Ok(Some((Arc::new(config), name)))
}

/// How to speak TLS with a server of another protocol that these authorities vouch for.
pub fn to_server(authorities_of: &Path, alpn: &[u8]) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?;
    let mut config = builder.with_root_certificates(authorities(authorities_of)?).with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(Arc::new(config))
}

/// The certificates of the authorities in a file, or, of the name `system`, those that this machine has.
pub(crate) fn authorities(named: &Path) -> Result<Arc<RootCertStore>> {
    let unusable = |path: &Path, why: &dyn std::fmt::Display| {
        Code::AuthoritiesUnusable.error(format!("'{}': {why}", path.display()))
    };
    let path = if named == Path::new(SYSTEM) {
        let known = SYSTEM_AUTHORITIES.into_iter().map(Path::new).find(|path| path.exists());
        known.ok_or_else(|| unusable(named, &"this machine has no certificates of authorities in a known place"))?
    } else {
        named
    };
    let text = std::fs::read(path).map_err(|error| unusable(path, &error))?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(path, &error))?;
        // A system's store may contain unusable certificates; they are skipped.
        let _ = authorities.add(certificate);
    }
    if authorities.is_empty() {
        return Err(unusable(path, &"it contains no certificate of an authority in PEM"));
    }
    Ok(Arc::new(authorities))
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
        Err(rustls::Error::General("TLS 1.2 is not supported".into()))
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
