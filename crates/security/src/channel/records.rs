//! Records: `length (2)  ciphertext and tag`, in order, without gaps. The nonce is a counter that is not sent.

use super::broken;
use millrace_wire::Result;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const IV_BYTES: usize = 12;
const LENGTH_BYTES: usize = 2;

/// The keys of both directions: client key, host key, client's initialisation vector, host's.
pub(super) struct Secrets(Zeroizing<[u8; 2 * (KEY_BYTES + IV_BYTES)]>);

impl Secrets {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.try_into().expect("two keys and two initialisation vectors")))
    }

    /// The key and initialisation vector of a side: 0 is the client.
    fn direction(&self, side: usize) -> Direction {
        let iv = 2 * KEY_BYTES + side * IV_BYTES;
        Direction {
            cipher: LessSafeKey::new(
                UnboundKey::new(&CHACHA20_POLY1305, &self.0[side * KEY_BYTES..][..KEY_BYTES]).expect("32 bytes"),
            ),
            iv: Zeroizing::new(self.0[iv..iv + IV_BYTES].try_into().expect("12 bytes")),
            counter: 0,
        }
    }

    /// The client's channel: it sends records of up to `sends_max` bytes and accepts those of up to `takes_max`.
    pub fn client(&self, sends_max: u16, takes_max: u16) -> Channel {
        self.channel(0, sends_max, takes_max)
    }

    /// The host's channel.
    pub fn host(&self, sends_max: u16, takes_max: u16) -> Channel {
        self.channel(1, sends_max, takes_max)
    }

    fn channel(&self, side: usize, sends_max: u16, takes_max: u16) -> Channel {
        Channel {
            sealer: Sealer { direction: self.direction(side), record_max: sends_max.into() },
            opener: Opener { direction: self.direction(1 - side), record_max: takes_max.into(), is_broken: false },
        }
    }
}

struct Direction {
    cipher: LessSafeKey,
    iv: Zeroizing<[u8; IV_BYTES]>,
    counter: u64,
}

impl Direction {
    /// The nonce of the next record: the counter is XORed into the last eight bytes of the initialisation vector.
    fn nonce(&self) -> [u8; IV_BYTES] {
        let mut nonce = *self.iv;
        nonce[4..].iter_mut().zip(self.counter.to_le_bytes()).for_each(|(byte, counter)| *byte ^= counter);
        nonce
    }

    /// No nonce is used twice: no connection reaches 2^64 records, and the last one is refused.
    fn advance(&mut self) -> Result<()> {
        self.counter =
            self.counter.checked_add(1).ok_or_else(|| broken("the channel has used all of its record numbers"))?;
        Ok(())
    }
}

/// Both directions of an open channel.
pub struct Channel {
    /// Encrypts the records to send.
    pub sealer: Sealer,
    /// Decrypts the received records.
    pub opener: Opener,
}

/// Encrypts the records to send.
pub struct Sealer {
    direction: Direction,
    record_max: usize,
}

impl Sealer {
    /// The maximum number of bytes in one record, which the other side sets.
    pub fn plain_max(&self) -> usize {
        self.record_max - TAG_BYTES
    }

    /// Appends `plain` to `out`, in as many records as necessary; for no bytes, it appends none: see [`Sealer::seal_empty`].
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
        plain.chunks(self.plain_max()).try_for_each(|chunk| self.record(chunk, out))
    }

    /// Appends an empty record, with which a client without requests proves that it has the signature.
    pub fn seal_empty(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.record(&[], out)
    }

    fn record(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let nonce = self.direction.nonce();
        self.direction.advance()?;
        let length = ((plain.len() + TAG_BYTES) as u16).to_le_bytes(); // at most `record_max`
        out.extend_from_slice(&length);
        let start = out.len();
        out.extend_from_slice(plain);
        let tag = self
            .direction
            .cipher
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(length), &mut out[start..])
            .map_err(|_| broken("a record is too long to be encrypted"))?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Decrypts received records. After a record that was changed, it accepts no others.
pub struct Opener {
    direction: Direction,
    record_max: usize,
    is_broken: bool,
}

impl Opener {
    /// Decrypts the first record of `bytes`: `None` until it is complete, then its length. Its content is appended to `plain`.
    pub fn open(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<Option<usize>> {
        if self.is_broken {
            return Err(broken("the channel was closed"));
        }
        let opened = self.record(bytes, plain);
        self.is_broken = opened.is_err();
        opened
    }

    fn record(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<Option<usize>> {
        let Some(head) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes(*head));
        if !(TAG_BYTES..=self.record_max).contains(&length) {
            return Err(broken("a record is too short or too long"));
        }
        let Some(record) = bytes.get(LENGTH_BYTES..LENGTH_BYTES + length) else { return Ok(None) };
        let nonce = Nonce::assume_unique_for_key(self.direction.nonce());
        self.direction.advance()?;
        let start = plain.len();
        plain.extend_from_slice(record);
        if self.direction.cipher.open_in_place(nonce, Aad::from(*head), &mut plain[start..]).is_err() {
            plain.truncate(start);
            return Err(broken("a record was changed on its way"));
        }
        plain.truncate(start + length - TAG_BYTES);
        Ok(Some(LENGTH_BYTES + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::Code;

    /// A client that sends records of up to 1024 bytes, and a host that accepts those of up to `takes_max`.
    fn pair(takes_max: u16) -> (Channel, Channel) {
        let secrets = Secrets::of(&[7; 88]);
        (secrets.client(1024, 64), secrets.host(64, takes_max))
    }

    #[test]
    fn a_record_that_is_too_long_is_refused_by_its_length() {
        for (takes_max, plain, fits) in [(1024, 1008, true), (64, 48, true), (64, 49, false)] {
            let ((mut client, mut host), mut sent, mut opened) = (pair(takes_max), Vec::new(), Vec::new());
            client.sealer.seal(&vec![1; plain], &mut sent).unwrap();
            // The opener does not wait for bytes that it will refuse.
            let head = host.opener.open(&sent[..2], &mut opened).map_err(|error| error.code());
            assert_eq!(head, if fits { Ok(None) } else { Err(Code::ChannelBroken) }, "{plain} of {takes_max}");
            assert_eq!(host.opener.open(&sent, &mut opened).is_ok(), fits);
        }
    }

    #[test]
    fn nothing_is_opened_after_a_record_that_was_changed() {
        let ((mut client, mut host), mut first, mut second) = (pair(1024), Vec::new(), Vec::new());
        client.sealer.seal(b"one", &mut first).unwrap();
        client.sealer.seal(b"two", &mut second).unwrap();
        *first.last_mut().unwrap() ^= 1;
        let mut opened = Vec::new();
        for record in [&first, &second] {
            let refused = host.opener.open(record, &mut opened).unwrap_err();
            assert_eq!((refused.code(), opened.len()), (Code::ChannelBroken, 0));
        }
    }

    #[test]
    fn records_that_are_left_out_swapped_repeated_or_sent_back_are_refused() {
        let sealed = || {
            // The two directions have keys of their own.
            let bytes: [u8; 88] = std::array::from_fn(|at| at as u8);
            let secrets = Secrets::of(&bytes);
            let (mut client, host) = (secrets.client(1024, 1024), secrets.host(1024, 1024));
            let records: [Vec<u8>; 2] = [b"one", b"two"].map(|plain| {
                let mut sent = Vec::new();
                client.sealer.seal(plain, &mut sent).unwrap();
                sent
            });
            (client, host, records)
        };
        let refused = |opener: &mut Opener, record: &[u8]| {
            opener.open(record, &mut Vec::new()).is_err_and(|error| error.code() == Code::ChannelBroken)
        };
        let (_, mut host, [_, second]) = sealed();
        assert!(refused(&mut host.opener, &second), "the first is missing, or comes later");
        let (_, mut host, [first, _]) = sealed();
        assert_eq!(host.opener.open(&first, &mut Vec::new()).unwrap(), Some(first.len()));
        assert!(refused(&mut host.opener, &first), "it comes a second time");
        let (mut client, _, [first, _]) = sealed();
        assert!(refused(&mut client.opener, &first), "it comes back to its sender");
    }
}
