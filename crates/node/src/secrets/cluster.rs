//! The secret of a cluster: an authority that all of its hosts share, so that each of them knows the others.
//!
//! ```text
//!  "MRCLUS1\n" (8)  id (8)  key (32)  SHA-256 of all before (32)
//! ```
//!
//! The same bytes as base64url behind `mrc1_` are its text, which a new host is given once.

use super::{
    authority::{random, random_id},
    files::Folder,
};
use millrace_security::token::{AuthorityId, Grant, Key, Right, Rules, Token, TokenId};
use millrace_wire::{Code, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use zeroize::Zeroizing;

const NAME: &str = "cluster";
const MAGIC: &[u8; 8] = b"MRCLUS1\n";
const CONTENT_BYTES: usize = 8 + 8 + 32;
const BYTES: usize = CONTENT_BYTES + 32;
/// The prefix of a secret's text, so that scanners for leaked secrets find it.
const TEXT_PREFIX: &str = "mrc1_";
/// Its key has one generation.
pub(super) const GENERATION: u16 = 1;

/// The secret with which the hosts of a cluster authenticate.
pub struct ClusterSecret {
    id: AuthorityId,
    key: Key,
}

impl ClusterSecret {
    /// A secret for a new cluster.
    pub fn make() -> Result<Self> {
        Ok(Self { id: AuthorityId(random_id()?), key: Key::new(&*random()?) })
    }

    /// The secret of the cluster that the namespace in `dir` belongs to.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let Some(folder) = Folder::existing(dir)? else { return Ok(None) };
        folder.read(NAME)?.map(|bytes| Self::decode(&bytes)).transpose()
    }

    /// Keeps it for the namespace in `dir`.
    pub fn keep(&self, dir: &Path) -> Result<()> {
        Folder::open(dir)?.replace(NAME, &self.encode())
    }

    /// The cluster's id.
    pub fn id(&self) -> AuthorityId {
        self.id
    }

    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The capability that a host of the cluster presents to the others.
    pub fn token(&self) -> Result<Token> {
        let rights = [Right::Link].into_iter().collect();
        let rules =
            Rules { grants: vec![Grant::namespace(rights)], ids: vec![TokenId(random_id()?)], ..Rules::default() };
        Token::issue(&self.key, self.id, GENERATION, &rules)
    }

    /// The secret as text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(TEXT_PREFIX.len() + 2 * BYTES));
        text.push_str(TEXT_PREFIX);
        for byte in &*self.encode() {
            text.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
            text.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
        }
        text
    }

    /// The secret of this text.
    pub fn from_text(text: &str) -> Result<Self> {
        let wrong = || {
            Code::ClusterSecretMissing
                .error("the file does not contain the secret of a cluster, which begins with mrc1_")
        };
        let digits = text.trim().strip_prefix(TEXT_PREFIX).filter(|digits| digits.is_ascii()).ok_or_else(wrong)?;
        if digits.len() != 2 * BYTES {
            return Err(wrong());
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(BYTES));
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())?);
        }
        Self::decode(&bytes).map_err(|_| wrong())
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(BYTES));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.id.0);
        bytes.extend_from_slice(self.key.bytes());
        let checksum = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&checksum);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Code::AuthorityDamaged.error(format!("'secrets/{NAME}' {what}"));
        let content =
            bytes.get(..CONTENT_BYTES).filter(|_| bytes.len() == BYTES).ok_or_else(|| damaged("is truncated"))?;
        if Sha256::digest(content)[..] != bytes[CONTENT_BYTES..] {
            return Err(damaged("has a wrong checksum"));
        }
        let rest = content.strip_prefix(MAGIC).ok_or_else(|| damaged("does not have the format of this version"))?;
        let parsed = rest.split_first_chunk::<8>().and_then(|(id, key)| Some((*id, *key.first_chunk::<32>()?)));
        let (id, key) = parsed.ok_or_else(|| damaged("is truncated"))?;
        Ok(Self { id: AuthorityId(id), key: Key::new(&key) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_as_it_was_kept_and_no_byte_of_it_can_change() {
        let dir = tempfile::tempdir().unwrap();
        assert!(ClusterSecret::load(dir.path()).unwrap().is_none());
        let secret = ClusterSecret::make().unwrap();
        secret.keep(dir.path()).unwrap();
        let again = ClusterSecret::load(dir.path()).unwrap().unwrap();
        assert_eq!((again.id, again.key.bytes()), (secret.id, secret.key.bytes()));
        let text = secret.to_text();
        assert_eq!(ClusterSecret::from_text(&format!("{}\n", *text)).unwrap().key.bytes(), secret.key.bytes());
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(ClusterSecret::from_text(std::str::from_utf8(&changed).unwrap()).is_err(), "digit {at}");
            assert!(ClusterSecret::from_text(&text[..at]).is_err(), "cut at {at}");
        }
    }
}
