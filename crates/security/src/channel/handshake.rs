//! The two messages.
//!
//! ```text
//!  M1  "MR/P"  length (2)  version 1 (1)  record_max (2)  nonce (16)  body
//!  M2  length (2)  version 1 (1)  record_max (2)  nonce (16)  mac (16)          length 0: refused
//! ```

use super::{
    MAGIC, VERSION, broken, limit,
    records::{Channel, Secrets},
};
use crate::token::{Caller, Keys, Peer, Recovered, Token, recover};
use hmac::{Hmac, Mac};
use millrace_wire::{Code, Result};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A number that a side uses once.
pub type Nonce = [u8; 16];

const MAC_BYTES: usize = 16;
/// Version, limit and nonce.
const FIELDS_BYTES: usize = 1 + 2 + 16;
const M2_BYTES: usize = 2 + FIELDS_BYTES + MAC_BYTES;
/// The longest M1 behind its length: no token's body is longer.
const M1_MAX_BYTES: usize = FIELDS_BYTES + crate::token::TOKEN_MAX_BYTES - 32;
/// MAC key, two keys, two initialisation vectors.
const OKM_BYTES: usize = 120;

/// M2 for a client that is refused.
pub fn refusal() -> [u8; 2] {
    [0, 0]
}

fn fields(message: &mut Vec<u8>, record_max: u16, nonce: &Nonce) {
    message.push(VERSION);
    message.extend_from_slice(&record_max.to_le_bytes());
    message.extend_from_slice(nonce);
}

/// The limit of records that the fields of a message ask for.
fn read_fields(fields: &[u8]) -> Result<u16> {
    if fields[0] != VERSION {
        return Err(broken("the other side speaks another version of the channel"));
    }
    limit(u16::from_le_bytes([fields[1], fields[2]]))
}

/// The keys that are derived from both messages and the token's key.
struct Derived {
    mac: [u8; MAC_BYTES],
    secrets: Secrets,
    exporter: [u8; 32],
}

/// `messages` is M1 and M2 without its mac.
fn derive(key: &[u8; 32], messages: [&[u8]; 2]) -> Derived {
    let mut transcript = Sha256::new();
    messages.iter().for_each(|message| transcript.update(message));
    let transcript = transcript.finalize();
    let mut okm = Zeroizing::new([0; OKM_BYTES]);
    let expander = hkdf::Hkdf::<Sha256>::new(Some(&transcript), key);
    expander.expand(b"millrace channel 1", &mut *okm).expect("120 bytes are fewer than HKDF can make");
    let mut exporter = [0; 32];
    expander.expand(b"millrace exporter", &mut exporter).expect("32 bytes are fewer than HKDF can make");
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&okm[..32]).expect("HMAC takes keys of every length");
    mac.update(&transcript);
    let mac: [u8; 32] = mac.finalize().into_bytes().into();
    Derived { mac: mac[..MAC_BYTES].try_into().expect("16 of 32 bytes"), secrets: Secrets::of(&okm[32..]), exporter }
}

/// A client that waits for M2.
pub struct Connecting {
    key: Zeroizing<[u8; 32]>,
    m1: Vec<u8>,
    record_max: u16,
}

impl Connecting {
    /// Begins a channel: the client sends M1, which [`Connecting::m1`] returns. It takes records of up to `record_max` bytes.
    pub fn new(token: &Token, nonce: &Nonce, record_max: u16) -> Result<Self> {
        let mut m1 = MAGIC.to_vec();
        let length = FIELDS_BYTES + token.body().len();
        m1.extend_from_slice(&u16::try_from(length).expect("a token is shorter than 64 KiB").to_le_bytes());
        fields(&mut m1, limit(record_max)?, nonce);
        m1.extend_from_slice(token.body());
        Ok(Self { key: token.signature().channel_key(), m1, record_max })
    }

    /// The client's first message.
    pub fn m1(&self) -> &[u8] {
        &self.m1
    }

    /// Takes what the host answered: `None` until all of M2 is there, then the channel and how many bytes M2 had.
    pub fn receive(&self, bytes: &[u8]) -> Result<Option<(Channel, usize)>> {
        let Some(length) = bytes.first_chunk::<2>().map(|length| usize::from(u16::from_le_bytes(*length))) else {
            return Ok(None);
        };
        if length == 0 {
            return Err(Code::ChannelRefused.error("the host does not accept the capability"));
        }
        if length != M2_BYTES - 2 {
            return Err(broken("the host's answer is malformed"));
        }
        let Some(m2) = bytes.get(..M2_BYTES) else { return Ok(None) };
        let (said, mac) = m2.split_at(M2_BYTES - MAC_BYTES);
        let sends_max = read_fields(&said[2..])?;
        let derived = derive(&self.key, [&self.m1, said]);
        if !bool::from(derived.mac.ct_eq(mac)) {
            return Err(broken("the other side does not know the capability"));
        }
        Ok(Some((derived.secrets.client(sends_max, self.record_max), M2_BYTES)))
    }
}

/// A client's M1, as the host received it.
pub struct Offered<'a> {
    m1: &'a [u8],
    body: &'a [u8],
    record_max: u16,
}

impl<'a> Offered<'a> {
    /// Reads M1: `None` until all of it is there, then what the client offers and how many bytes it had.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>> {
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        if *start != MAGIC[..start.len()] {
            return Err(broken("the client does not begin a channel"));
        }
        let Some(length) = bytes.get(4..6).map(|length| usize::from(u16::from_le_bytes([length[0], length[1]]))) else {
            return Ok(None);
        };
        if !(FIELDS_BYTES..=M1_MAX_BYTES).contains(&length) {
            return Err(broken("the client's first message is too short or too long"));
        }
        let Some(m1) = bytes.get(..6 + length) else { return Ok(None) };
        let record_max = read_fields(&m1[6..])?;
        Ok(Some((Self { m1, body: &m1[6 + FIELDS_BYTES..], record_max }, m1.len())))
    }

    /// The body of the capability that the client offers. It has proved nothing.
    pub fn body(&self) -> &[u8] {
        self.body
    }

    /// Accepts the client, whose first record then has to prove that it has the signature. If this returns an error, the client is refused
    /// with [`refusal`], whatever the error. The host accepts records of up to `record_max` bytes.
    pub fn accept(&self, keys: &dyn Keys, nonce: &Nonce, record_max: u16) -> Result<Accepted> {
        let recovered = recover(keys, self.body)?;
        let mut m2 = (M2_BYTES as u16 - 2).to_le_bytes().to_vec();
        fields(&mut m2, limit(record_max)?, nonce);
        let derived = derive(&recovered.signature().channel_key(), [self.m1, &m2]);
        m2.extend_from_slice(&derived.mac);
        let channel = derived.secrets.host(self.record_max, record_max);
        Ok(Accepted { m2, channel, recovered, exporter: derived.exporter })
    }
}

/// A host that has answered a client, and waits for its first record.
pub struct Accepted {
    m2: Vec<u8>,
    channel: Channel,
    recovered: Recovered,
    exporter: [u8; 32],
}

impl Accepted {
    /// The host's answer.
    pub fn m2(&self) -> &[u8] {
        &self.m2
    }

    /// Takes what the client sent behind M1: incomplete until its first record is there. Then the client has the signature; the
    /// record's bytes are the first of the stream.
    pub fn receive(mut self, keys: &dyn Keys, peer: Peer, bytes: &[u8]) -> Result<First> {
        let mut plain = Vec::new();
        match self.channel.opener.open(bytes, &mut plain)? {
            None => Ok(First::Incomplete(self)),
            Some(used) => Ok(First::Open {
                caller: self.recovered.caller(keys, peer),
                channel: self.channel,
                exporter: self.exporter,
                plain,
                used,
            }),
        }
    }
}

/// The result of reading the bytes of M1.
pub enum First {
    /// The first record is not there as a whole.
    Incomplete(Accepted),
    /// The channel is open.
    Open {
        /// The peer.
        caller: Caller,
        /// The channel.
        channel: Channel,
        /// What proofs on this channel are bound to.
        exporter: [u8; 32],
        /// The content of the first record.
        plain: Vec<u8>,
        /// How many bytes it had.
        used: usize,
    },
}
