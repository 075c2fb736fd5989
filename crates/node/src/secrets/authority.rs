//! The authority of a namespace: its id, and the keys that capabilities are issued with, a generation each.
//!
//! ```text
//!  "MRAUTH1\n" (8)  id (8)  n (1)  n × (generation (2)  key (32))  SHA-256 of all before (32)
//! ```
//!
//! It is created when it is first needed. Backups do not contain it, and neither do restored or salvaged namespaces: a copy creates its
//! own, so that capabilities of the original are invalid there.

use super::files::Folder;
use millrace_security::token::{AuthorityId, Key, Rules, Token};
use millrace_wire::{Code, Error, Result};
use sha2::{Digest, Sha256};
use std::path::Path;
use zeroize::Zeroizing;

const NAME: &str = "authority";
const MAGIC: &[u8; 8] = b"MRAUTH1\n";
const KEY_BYTES: usize = 32;
const GENERATION_BYTES: usize = 2 + KEY_BYTES;
const CHECKSUM_BYTES: usize = 32;
/// Most generations whose capabilities are valid at once.
pub const GENERATIONS_MAX: usize = 4;

/// The issuer of a namespace's capabilities.
#[derive(Debug)]
pub struct Authority {
    id: AuthorityId,
    /// Oldest first; at least one.
    generations: Vec<(u16, Key)>,
}

pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes)
        .map_err(|error| Code::Io.error(format!("the operating system gives no random bytes: {error}")))?;
    Ok(bytes)
}

/// Eight random bytes, for the id of a block.
pub fn random_id() -> Result<[u8; 8]> {
    Ok(*random()?)
}

impl Authority {
    /// The authority of the namespace in `dir`, or `None` if it has none yet.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        match Folder::existing(dir)? {
            Some(folder) => Self::read(&folder),
            None => Ok(None),
        }
    }

    /// The authority of the namespace in `dir`, created if it has none yet.
    pub fn ensure(dir: &Path) -> Result<Self> {
        let folder = Folder::open(dir)?;
        if let Some(authority) = Self::read(&folder)? {
            return Ok(authority);
        }
        let authority = Self { id: AuthorityId(random_id()?), generations: vec![(1, Key::new(&*random()?))] };
        authority.write(&folder)?;
        Ok(authority)
    }

    /// Adds a generation, which issues from now on, and drops those before `revoke_before`, if that is given.
    pub fn rotate(dir: &Path, revoke_before: Option<u16>) -> Result<Self> {
        let folder = Folder::open(dir)?;
        let Some(mut authority) = Self::read(&folder)? else {
            drop(folder);
            return Self::ensure(dir);
        };
        let next = authority
            .generation()
            .checked_add(1)
            .ok_or_else(|| Code::GenerationsFull.error("generation 65535 is the highest possible"))?;
        if let Some(before) = revoke_before {
            if before > next {
                let detail = format!("cannot revoke the generations before {before}: the new generation is {next}");
                return Err(Code::CapabilityRuleInvalid.error(detail));
            }
            authority.generations.retain(|(generation, _)| *generation >= before);
        }
        if authority.generations.len() == GENERATIONS_MAX {
            let oldest = authority.generations[0].0;
            let detail = format!("{GENERATIONS_MAX} generations are valid, and {oldest} is the oldest");
            return Err(Code::GenerationsFull.error(detail));
        }
        authority.generations.push((next, Key::new(&*random()?)));
        authority.write(&folder)?;
        Ok(authority)
    }

    /// Its id.
    pub fn id(&self) -> AuthorityId {
        self.id
    }

    /// The generation that issues.
    pub fn generation(&self) -> u16 {
        self.generations.last().expect("an authority has a generation").0
    }

    /// Every generation whose capabilities are valid, oldest first.
    pub fn generations(&self) -> impl Iterator<Item = u16> {
        self.generations.iter().map(|(generation, _)| *generation)
    }

    /// Issues a capability with the newest key.
    pub fn issue(&self, rules: &Rules) -> Result<Token> {
        self.issue_as(self.generation(), rules)
    }

    /// Issues a capability of an older generation, for a holder of such a capability: it ends with that generation.
    pub fn issue_as(&self, generation: u16, rules: &Rules) -> Result<Token> {
        let key = self.key(generation).ok_or_else(|| {
            Code::CapabilityRefused.error(format!("generation {generation} of the authority's keys was retired"))
        })?;
        Token::issue(key, self.id, generation, rules)
    }

    /// The key of a generation that is live.
    pub(super) fn key(&self, generation: u16) -> Option<&Key> {
        self.generations.iter().find(|(known, _)| *known == generation).map(|(_, key)| key)
    }

    fn read(folder: &Folder) -> Result<Option<Self>> {
        folder.read(NAME)?.map(|bytes| Self::decode(&bytes)).transpose()
    }

    fn write(&self, folder: &Folder) -> Result<()> {
        let length = MAGIC.len() + 8 + 1 + self.generations.len() * GENERATION_BYTES + CHECKSUM_BYTES;
        let mut bytes = Zeroizing::new(Vec::with_capacity(length));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.id.0);
        bytes.push(self.generations.len() as u8); // at most GENERATIONS_MAX
        for (generation, key) in &self.generations {
            bytes.extend_from_slice(&generation.to_le_bytes());
            bytes.extend_from_slice(key.bytes());
        }
        let checksum = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&checksum);
        folder.replace(NAME, &bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| Code::AuthorityDamaged.error(format!("'secrets/{NAME}' {what}"));
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(|| damaged("is truncated"))?;
        let mut rest =
            content.strip_prefix(MAGIC).ok_or_else(|| damaged("does not have the format of this version"))?;
        if Sha256::digest(content)[..] != *checksum {
            return Err(damaged("has a wrong checksum"));
        }
        let mut parse = || -> Option<Self> {
            let id = AuthorityId(*rest.split_off(..8)?.first_chunk()?);
            let count = usize::from(*rest.split_off_first()?);
            let mut generations: Vec<(u16, Key)> = Vec::new();
            for _ in 0..count {
                let generation = u16::from_le_bytes(*rest.split_off(..2)?.first_chunk()?);
                generations.push((generation, Key::new(rest.split_off(..KEY_BYTES)?.first_chunk()?)));
            }
            let ascends = generations.is_sorted_by(|(a, _), (b, _)| a < b);
            (rest.is_empty() && (1..=GENERATIONS_MAX).contains(&count) && ascends).then_some(Self { id, generations })
        };
        parse().ok_or_else(|| -> Error { damaged("is malformed") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(dir: &Path) -> std::path::PathBuf {
        dir.join("secrets").join(NAME)
    }

    #[test]
    fn an_authority_is_made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Authority::load(dir.path()).unwrap().is_none());
        assert!(!dir.path().join("secrets").exists(), "looking makes none");
        let made = Authority::ensure(dir.path()).unwrap();
        for again in [Authority::ensure(dir.path()).unwrap(), Authority::load(dir.path()).unwrap().unwrap()] {
            assert_eq!((again.id(), again.generation()), (made.id(), 1));
            assert_eq!(again.key(1).unwrap().bytes(), made.key(1).unwrap().bytes());
        }
        let other = tempfile::tempdir().unwrap();
        assert_ne!(Authority::ensure(other.path()).unwrap().id(), made.id());
    }

    #[test]
    fn four_generations_live_until_older_ones_are_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        Authority::ensure(path).unwrap();
        for generation in 2..=4 {
            assert_eq!(Authority::rotate(path, None).unwrap().generation(), generation);
        }
        assert_eq!(Authority::rotate(path, None).unwrap_err().code(), Code::GenerationsFull);
        assert_eq!(Authority::rotate(path, Some(6)).unwrap_err().code(), Code::CapabilityRuleInvalid);
        assert_eq!(Authority::load(path).unwrap().unwrap().generations().collect::<Vec<_>>(), [1, 2, 3, 4]);
        let rotated = Authority::rotate(path, Some(3)).unwrap();
        assert_eq!(rotated.generations().collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(rotated.issue_as(2, &Rules::default()).unwrap_err().code(), Code::CapabilityRefused);
        assert_eq!(Authority::rotate(path, Some(6)).unwrap().generations().collect::<Vec<_>>(), [6], "all older ones");
        assert!(Authority::load(path).unwrap().unwrap().key(5).is_none());
    }

    #[test]
    fn no_byte_of_the_file_can_change_and_none_can_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        Authority::ensure(dir.path()).unwrap();
        let bytes = fs::read(file(dir.path())).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(file(dir.path()), bytes).unwrap();
            Authority::load(dir.path()).unwrap_err().code()
        };
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(refused(&changed), Code::AuthorityDamaged, "byte {at}");
            assert_eq!(refused(&bytes[..at]), Code::AuthorityDamaged, "cut at {at}");
        }
        assert_eq!(Authority::ensure(dir.path()).unwrap_err().code(), Code::AuthorityDamaged, "a damaged one is kept");
        for forged in [&[0u8][..], &[5], &[1, 1, 0], &[2]] {
            let mut content = [&MAGIC[..], &[7; 8], forged].concat();
            content.extend(Sha256::digest(&content).to_vec());
            assert_eq!(refused(&content), Code::AuthorityDamaged, "{forged:?}");
        }
        fs::write(file(dir.path()), &bytes).unwrap();
        Authority::load(dir.path()).unwrap();
    }
}
