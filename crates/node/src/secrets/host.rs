//! The key of a host in TLS, and of clients: a P-256 key and a certificate for it.
//!
//! The certificate is self-signed: clients pin the SHA-256 of the public key, which therefore stays the same when the certificate is
//! renewed. The file has the certificate and the key in DER, each behind its length.

use super::files::Folder;
use millrace_wire::{Code, Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use zeroize::Zeroizing;

const NAME: &str = "host";
const MAGIC: &[u8; 8] = b"MRHOST1\n";

/// A key and the certificate that shows it.
pub struct HostKey {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// The key, in PKCS #8.
    pub key: Zeroizing<Vec<u8>>,
    /// The SHA-256 of the public key, as it is in the certificate.
    pub pin: [u8; 32],
}

/// The hash by which a public key is known: of its SubjectPublicKeyInfo in DER.
pub fn key_hash(public_key: &[u8]) -> [u8; 32] {
    Sha256::digest(public_key).into()
}

fn failed(error: rcgen::Error) -> Error {
    Code::TlsKey.error(format!("a key or certificate cannot be created or read: {error}"))
}

impl HostKey {
    /// Makes one.
    pub fn generate() -> Result<Self> {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        Self::with(&key)
    }

    fn with(key: &rcgen::KeyPair) -> Result<Self> {
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let certificate = parameters.and_then(|parameters| parameters.self_signed(key)).map_err(failed)?;
        Ok(Self {
            certificate: certificate.der().to_vec(),
            key: Zeroizing::new(key.serialize_der()),
            pin: key_hash(&rcgen::PublicKeyData::subject_public_key_info(key)),
        })
    }

    /// The one of the namespace in `dir`; it is made if there is none.
    pub fn ensure(dir: &Path) -> Result<Self> {
        let folder = Folder::open(dir)?;
        if let Some(bytes) = folder.read(NAME)? {
            return Self::from_bytes(&bytes);
        }
        let made = Self::generate()?;
        folder.replace(NAME, &made.to_bytes())?;
        Ok(made)
    }

    /// The one of the namespace in `dir`, if it has one.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let Some(folder) = Folder::existing(dir)? else { return Ok(None) };
        folder.read(NAME)?.map(|bytes| Self::from_bytes(&bytes)).transpose()
    }

    /// As it is kept in a file.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(16 + self.certificate.len() + self.key.len()));
        bytes.extend_from_slice(MAGIC);
        for part in [&self.certificate, &*self.key] {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes()); // some hundred bytes
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// Reads what [`HostKey::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Code::TlsKey.error("the file does not contain a host's key");
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let mut part = || {
            let length = u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?) as usize;
            rest.split_off(..length).map(<[u8]>::to_vec)
        };
        let (certificate, key) = part().zip(part()).ok_or_else(damaged)?;
        let key = Zeroizing::new(key);
        let der = rcgen::KeyPair::try_from(&key[..]).map_err(failed)?;
        Ok(Self { certificate, pin: key_hash(&rcgen::PublicKeyData::subject_public_key_info(&der)), key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_key_is_made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        assert!(HostKey::load(dir.path()).unwrap().is_none());
        let made = HostKey::ensure(dir.path()).unwrap();
        for again in [HostKey::ensure(dir.path()).unwrap(), HostKey::load(dir.path()).unwrap().unwrap()] {
            assert_eq!((again.pin, &again.certificate, &*again.key), (made.pin, &made.certificate, &*made.key));
        }
        let bytes = made.to_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(HostKey::from_bytes(&bytes[..cut]).err().map(|error| error.code()), Some(Code::TlsKey), "{cut}");
        }
        assert_ne!(HostKey::generate().unwrap().pin, made.pin);
    }
}
