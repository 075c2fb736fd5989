//! Hands a new secret of a cluster from one host to another.
//!
//! Both hosts know each other by the old secret, and so does everybody who has it. So the key is encrypted with a key that follows from
//! numbers which both draw for this purpose (X25519) and forget: who has the old secret and has recorded what the hosts sent cannot read it.

use millrace_wire::{Code, Error, Result};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral},
    rand::SystemRandom,
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The bytes of a number that is sent.
pub const PUBLIC_BYTES: usize = 32;
/// The bytes of an encrypted key: the sender's number, the key, a tag.
pub const SEALED_BYTES: usize = PUBLIC_BYTES + 32 + 16;

type Public = [u8; PUBLIC_BYTES];

fn failed<E>(_: E) -> Error {
    Code::HostInternal.error("the handover of a secret failed")
}

fn pair() -> Result<(EphemeralPrivateKey, Public)> {
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(failed)?;
    let public = private.compute_public_key().map_err(failed)?;
    Ok((private, public.as_ref().try_into().map_err(failed)?))
}

/// The key for one message: it follows from the numbers of both.
fn agreed(private: EphemeralPrivateKey, other: &Public, receiver: &Public, sender: &Public) -> Result<LessSafeKey> {
    let key = agree_ephemeral(private, &UnparsedPublicKey::new(&X25519, other), |shared| {
        let mut hash = Sha256::new();
        for part in [b"millrace handover 1", shared, receiver, sender] {
            hash.update(part);
        }
        Zeroizing::new(<[u8; 32]>::from(hash.finalize()))
    });
    UnboundKey::new(&CHACHA20_POLY1305, &*key.map_err(failed)?).map(LessSafeKey::new).map_err(failed)
}

/// The key is used once.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// A host that is to get a secret.
pub struct Receiver {
    private: EphemeralPrivateKey,
    public: Public,
}

impl Receiver {
    /// With a new number.
    pub fn new() -> Result<Self> {
        let (private, public) = pair()?;
        Ok(Self { private, public })
    }

    /// The number that the sender needs.
    pub fn public(&self) -> &Public {
        &self.public
    }

    /// The key in what the sender has sent.
    pub fn open(self, sealed: &[u8]) -> Result<Zeroizing<[u8; 32]>> {
        let (sender, sealed) = sealed.split_first_chunk::<PUBLIC_BYTES>().ok_or_else(|| failed(()))?;
        let key = agreed(self.private, sender, &self.public, sender)?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let opened = key.open_in_place(nonce(), Aad::empty(), &mut bytes).map_err(failed)?;
        Ok(Zeroizing::new((&*opened).try_into().map_err(failed)?))
    }
}

/// A key, for the receiver with this number.
pub fn seal(receiver: &Public, secret: &[u8; 32]) -> Result<Vec<u8>> {
    let (private, public) = pair()?;
    let key = agreed(private, receiver, receiver, &public)?;
    let mut bytes = Zeroizing::new(secret.to_vec());
    let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), &mut bytes).map_err(failed)?;
    Ok([&public, &**bytes, tag.as_ref()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reaches_the_receiver_alone_and_unchanged() {
        let (receiver, other) = (Receiver::new().unwrap(), Receiver::new().unwrap());
        let sealed = seal(receiver.public(), &[7; 32]).unwrap();
        assert_eq!(sealed.len(), SEALED_BYTES);
        assert!(!sealed.windows(32).any(|bytes| bytes == [7; 32]));
        assert!(other.open(&sealed).is_err());
        for at in 0..sealed.len() {
            let receiver = Receiver::new().unwrap();
            let mut changed = seal(receiver.public(), &[7; 32]).unwrap();
            // The highest bit of a number does not count.
            changed[at] ^= 1;
            assert!(receiver.open(&changed).is_err(), "byte {at}");
        }
        assert_eq!(*receiver.open(&sealed).unwrap(), [7; 32]);
    }
}
