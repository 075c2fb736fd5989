//! The secret of a cluster: an authority that all of its hosts share, so that each of them knows the others.
//!
//! ```text
//!  "MRCLUS1\n" (8)  id (8)  key (32)  SHA-256 of all before (32)                     the first secret of a cluster
//!  "MRCLUS2\n" (8)  id (8)  generation (2)  key (32)  count (1)  count times: generation (2)  key (32)   SHA-256 of all before (32)
//! ```
//!
//! The keys behind the count are accepted, too: the cluster may be about to change its secret to one of them. The bytes without them, as
//! hexadecimal digits behind `mrc1_`, are the secret's text, which a new host is given once.

use super::{
    authority::{random, random_id},
    files::Folder,
};
use millrace_security::token::{AuthorityId, Grant, Key, Right, Rules, Token, TokenId};
use millrace_wire::{Code, Defence, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use zeroize::Zeroizing;

const NAME: &str = "cluster";
const MAGIC: &[u8; 8] = b"MRCLUS1\n";
const MAGIC_2: &[u8; 8] = b"MRCLUS2\n";
const SUM_BYTES: usize = 32;
/// The prefix of a secret's text, so that scanners for leaked secrets find it.
const TEXT_PREFIX: &str = "mrc1_";
/// The longest text has the bytes of a secret with a generation.
const TEXT_MAX_BYTES: usize = 8 + 8 + 2 + 32 + 1 + SUM_BYTES;
/// The generation of the first key of a cluster.
const GENERATION: u16 = 1;
/// How many keys can be accepted besides; older ones are dropped.
const NEXT_MAX: usize = 4;

/// What tells two secrets apart without revealing them.
pub type SecretDigest = [u8; 32];

/// A key and its generation. Generations have no order: they tell a few keys apart.
struct Generation {
    number: u16,
    key: Key,
}

impl Generation {
    fn copy(&self) -> Self {
        Self { number: self.number, key: Key::new(self.key.bytes()) }
    }

    fn digest(&self, id: AuthorityId) -> SecretDigest {
        digest(id, self.key.bytes())
    }

    fn token(&self, id: AuthorityId) -> Result<Token> {
        let rights = [Right::Link].into_iter().collect();
        let rules =
            Rules { grants: vec![Grant::namespace(rights)], ids: vec![TokenId(random_id()?)], ..Rules::default() };
        Token::issue(&self.key, id, self.number, &rules)
    }
}

fn digest(id: AuthorityId, key: &[u8; 32]) -> SecretDigest {
    let mut hash = Sha256::new();
    hash.update(b"millrace cluster secret");
    hash.update(id.0);
    hash.update(key);
    hash.finalize().into()
}

/// The generation of a key that is not the first one of its cluster.
fn number_of(id: AuthorityId, key: &[u8; 32]) -> u16 {
    let [a, b, ..] = digest(id, key);
    u16::from_le_bytes([a, b]).max(GENERATION + 1)
}

/// The secret with which the hosts of a cluster authenticate.
pub struct ClusterSecret {
    id: AuthorityId,
    current: Generation,
    /// Keys that are accepted besides.
    next: Vec<Generation>,
}

impl ClusterSecret {
    /// A secret for a new cluster.
    pub fn make() -> Result<Self> {
        let current = Generation { number: GENERATION, key: Key::new(&*random()?) };
        Ok(Self { id: AuthorityId(random_id()?), current, next: Vec::new() })
    }

    /// The secret of the cluster that the namespace in `dir` belongs to.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let Some(folder) = Folder::existing(dir)? else { return Ok(None) };
        folder.read(NAME)?.map(|bytes| Self::decode(&bytes)).transpose()
    }

    /// Keeps it for the namespace in `dir`.
    pub fn keep(&self, dir: &Path) -> Result<()> {
        Folder::open(dir)?.replace(NAME, &self.encode(&self.next))
    }

    /// The cluster's id.
    pub fn id(&self) -> AuthorityId {
        self.id
    }

    /// The key of a generation that is accepted.
    pub(super) fn key(&self, generation: u16) -> Option<&Key> {
        let mut all = std::iter::once(&self.current).chain(&self.next);
        all.find(|known| known.number == generation).map(|known| &known.key)
    }

    /// The capabilities that a host of the cluster presents to the others: the one of the current key, and then those with which it is
    /// accepted where the cluster has changed its secret already.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        std::iter::once(&self.current).chain(&self.next).map(|known| known.token(self.id)).collect()
    }

    /// A key for a new secret of the cluster, and the digest of that secret.
    pub fn draw(&self) -> Result<(Zeroizing<[u8; 32]>, SecretDigest)> {
        loop {
            let key = random()?;
            if self.key(number_of(self.id, &key)).is_none() {
                let digest = digest(self.id, &key);
                return Ok((key, digest));
            }
        }
    }

    /// The digest of the secret that this one becomes with a key.
    pub fn digest_with(&self, key: &[u8; 32]) -> SecretDigest {
        digest(self.id, key)
    }

    /// The digest of the current secret.
    pub fn digest(&self) -> SecretDigest {
        self.current.digest(self.id)
    }

    /// Whether a secret is current or accepted.
    pub fn knows(&self, digest: &SecretDigest) -> bool {
        std::iter::once(&self.current).chain(&self.next).any(|known| known.digest(self.id) == *digest)
    }

    /// The same secret, which also accepts a key.
    #[must_use]
    pub fn accepting(&self, key: &[u8; 32]) -> Self {
        let (number, mut next) = (number_of(self.id, key), Vec::new());
        next.extend(self.next.iter().rev().take(NEXT_MAX - 1).map(Generation::copy));
        next.reverse();
        next.push(Generation { number, key: Key::new(key) });
        Self { id: self.id, current: self.current.copy(), next }
    }

    /// The secret of this digest, if it is accepted and not current; nothing else is accepted any more.
    pub fn changed_to(&self, digest: &SecretDigest) -> Option<Self> {
        let found = self.next.iter().find(|known| known.digest(self.id) == *digest)?;
        let next = if Defence::ClusterSecret.stands() { Vec::new() } else { vec![self.current.copy()] };
        Some(Self { id: self.id, current: found.copy(), next })
    }

    /// The secret as text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let bytes = self.encode(&[]);
        let mut text = Zeroizing::new(String::with_capacity(TEXT_PREFIX.len() + 2 * bytes.len()));
        text.push_str(TEXT_PREFIX);
        for byte in &*bytes {
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
        if !digits.len().is_multiple_of(2) || digits.len() > 2 * TEXT_MAX_BYTES {
            return Err(wrong());
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_MAX_BYTES));
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())?);
        }
        Self::decode(&bytes).map_err(|_| wrong())
    }

    fn encode(&self, next: &[Generation]) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(TEXT_MAX_BYTES + NEXT_MAX * 34));
        // Hosts of an earlier version know the first form alone.
        let is_first = self.current.number == GENERATION && next.is_empty();
        bytes.extend_from_slice(if is_first { MAGIC } else { MAGIC_2 });
        bytes.extend_from_slice(&self.id.0);
        if !is_first {
            bytes.extend_from_slice(&self.current.number.to_le_bytes());
        }
        bytes.extend_from_slice(self.current.key.bytes());
        if !is_first {
            bytes.push(next.len() as u8); // at most NEXT_MAX
        }
        for Generation { number, key } in next {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(key.bytes());
        }
        let checksum = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&checksum);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Code::AuthorityDamaged.error(format!("'secrets/{NAME}' {what}"));
        let truncated = || damaged("is truncated");
        let (content, sum) = bytes.len().checked_sub(SUM_BYTES).map(|at| bytes.split_at(at)).ok_or_else(truncated)?;
        if Sha256::digest(content)[..] != *sum {
            return Err(damaged("has a wrong checksum"));
        }
        let (magic, rest) = content.split_first_chunk::<8>().ok_or_else(truncated)?;
        let (id, rest) = rest.split_first_chunk::<8>().ok_or_else(truncated)?;
        let id = AuthorityId(*id);
        if magic == MAGIC {
            let key: &[u8; 32] = rest.try_into().map_err(|_| truncated())?;
            let current = Generation { number: GENERATION, key: Key::new(key) };
            return Ok(Self { id, current, next: Vec::new() });
        }
        if magic != MAGIC_2 {
            return Err(damaged("does not have the format of this version"));
        }
        let generation = |bytes: &[u8]| {
            let (number, key) = bytes.split_first_chunk::<2>()?;
            Some(Generation { number: u16::from_le_bytes(*number), key: Key::new(key.try_into().ok()?) })
        };
        let (first, rest) = rest.split_at_checked(34).ok_or_else(truncated)?;
        let (count, rest) = rest.split_first().ok_or_else(truncated)?;
        if usize::from(*count) > NEXT_MAX || rest.len() != usize::from(*count) * 34 {
            return Err(truncated());
        }
        let current = generation(first).ok_or_else(truncated)?;
        let next = rest.chunks_exact(34).map(generation).collect::<Option<_>>().ok_or_else(truncated)?;
        Ok(Self { id, current, next })
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
        assert_eq!((again.id, again.digest()), (secret.id, secret.digest()));
        let text = secret.to_text();
        assert_eq!(ClusterSecret::from_text(&format!("{}\n", *text)).unwrap().digest(), secret.digest());
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(ClusterSecret::from_text(std::str::from_utf8(&changed).unwrap()).is_err(), "digit {at}");
            assert!(ClusterSecret::from_text(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_secret_that_is_changed_accepts_both_until_then_and_afterwards_the_new_one_alone() {
        let dir = tempfile::tempdir().unwrap();
        let first = ClusterSecret::make().unwrap();
        let (key, digest) = first.draw().unwrap();
        assert_eq!(first.digest_with(&key), digest);
        let both = first.accepting(&key);
        both.keep(dir.path()).unwrap();
        let both = ClusterSecret::load(dir.path()).unwrap().unwrap();
        assert!(both.knows(&digest) && both.knows(&first.digest()));
        assert_eq!((both.digest(), both.tokens().unwrap().len()), (first.digest(), 2));
        assert_eq!(*both.to_text(), *first.to_text(), "a new host gets the one that counts");
        assert!(both.changed_to(&first.digest()).is_none(), "it is that already");
        let second = both.changed_to(&digest).unwrap();
        second.keep(dir.path()).unwrap();
        let text = second.to_text();
        for second in [&ClusterSecret::load(dir.path()).unwrap().unwrap(), &ClusterSecret::from_text(&text).unwrap()] {
            assert_eq!((second.id(), second.digest()), (first.id(), digest));
            assert!(!second.knows(&first.digest()) && second.key(GENERATION).is_none());
        }
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(ClusterSecret::from_text(std::str::from_utf8(&changed).unwrap()).is_err(), "digit {at}");
        }
        // What is accepted is bounded, and the newest stay.
        let many = (0..3 * NEXT_MAX).fold((second, digest), |(secret, _), _| {
            let (key, digest) = secret.draw().unwrap();
            (secret.accepting(&key), digest)
        });
        assert_eq!(many.0.next.len(), NEXT_MAX);
        assert!(many.0.knows(&many.1) && many.0.knows(&digest));
    }
}
