//! Capabilities: tokens that say what their holder may do. The format is `spec/formats/capability.md`.
//!
//! ```text
//!  issue ──> Token ──attenuate, merge──> Token          by any holder, offline
//!              │ body, proof
//!              v
//!           recover(keys, body) ──> Recovered ──admit──> Caller ──check(action)──> permitted or not
//!            the chain of HMACs      its signature        for a connection          for each request
//! ```
//!
//! A token is a chain of blocks. A block can only deny, so no chain permits more than its first block. Everything here is pure: keys,
//! revocations and rates come from implementations of [`Keys`] and [`Rates`], and the time is an argument.

mod caller;
mod chain;
mod invitation;
mod rights;
mod rules;
mod squash;

pub use caller::{Action, Caller, Now, Peer, Principal, Purpose, Rates, check};
pub use chain::{Binding, Chain, Key, Keys, Link, Part, Proof, Recovered, Signature, admit, inspect, recover};
pub use invitation::{INVITATION_PREFIX, Invitation};
pub use rights::{GRANT_NAME_MAX_BYTES, Grant, Kind, Resource, Right, Rights};
pub use rules::{LABEL_MAX_BYTES, Net, Rate, Rules, SUBJECT_MAX_BYTES, Way, Ways};
pub use squash::squash;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use chain::{Layout, MERGED, PLAIN};
use millrace_wire::{Code, Error, Result};
use rules::malformed;
use std::{fmt, str::FromStr};
use zeroize::{Zeroize, Zeroizing};

/// Longest token: body and signature.
pub const TOKEN_MAX_BYTES: usize = 1024;
/// Most blocks of a chain; of a merged token, of each part and behind the parts.
pub const BLOCKS_MAX: usize = 8;
/// Most tokens that one merged token unites.
pub const PARTS_MAX: usize = 4;
/// What the text of a token begins with, so that scanners for leaked secrets find it.
pub const TEXT_PREFIX: &str = "mr1_";
const SIGNATURE_BYTES: usize = 32;

macro_rules! id_type {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub [u8; 8]);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", u64::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let id = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
                id.map(|id| Self(id.to_be_bytes())).ok_or_else(|| {
                    let text = text.escape_debug();
                    Code::CapabilityRuleInvalid.error(format!("'{text}' is not {}: 16 hexadecimal digits", $what))
                })
            }
        }
    };
}

id_type! {
    /// The id that a block is revoked by.
    TokenId, "the id of a capability"
}
id_type! {
    /// The id of the authority that issued a token.
    AuthorityId, "the id of an authority"
}

/// A capability: what may be shown to a host, and the signature, which is a key and stays with the holder.
#[derive(Clone)]
pub struct Token {
    body: Box<[u8]>,
    signature: Signature,
}

impl Token {
    /// Makes a token of one block with an authority's key.
    pub fn issue(key: &Key, authority: AuthorityId, generation: u16, rules: &Rules) -> Result<Self> {
        if rules.grants.is_empty() || rules.ids.is_empty() {
            return Err(
                Code::CapabilityRuleInvalid.error("the first block of a capability must have a grant and an id")
            );
        }
        let mut body = vec![PLAIN];
        body.extend_from_slice(&authority.0);
        body.extend_from_slice(&generation.to_le_bytes());
        body.push(1);
        body.extend(block(rules)?);
        within_limit(&body)?;
        let signature = chain::first(key, &body[..chain::HEAD_BYTES], &body[chain::HEAD_BYTES + 1..]);
        Ok(Self { body: body.into(), signature })
    }

    /// The token with another block: it permits what this one does, and what `rules` do not deny.
    pub fn attenuate(&self, rules: &Rules) -> Result<Self> {
        let (mut body, block) = (self.body.to_vec(), block(rules)?);
        let at = Layout::parse(&body)?.count_at;
        if usize::from(body[at]) == BLOCKS_MAX {
            return Err(Code::CapabilityTooLong.error(format!("the chain already has {BLOCKS_MAX} blocks")));
        }
        body[at] += 1;
        body.extend_from_slice(&block);
        within_limit(&body)?;
        Ok(Self { body: body.into(), signature: chain::next(&self.signature, &block) })
    }

    /// A token that permits what any of `tokens` does.
    pub fn merge(tokens: &[Token]) -> Result<Self> {
        if !(2..=PARTS_MAX).contains(&tokens.len()) {
            let count = tokens.len();
            return Err(
                Code::CapabilityRuleInvalid.error(format!("{count} capabilities; 2 to {PARTS_MAX} can be merged"))
            );
        }
        if tokens.iter().any(|token| token.body[0] == MERGED) {
            return Err(Code::CapabilityRuleInvalid.error("a merged capability cannot be merged again"));
        }
        let mut body = vec![MERGED, tokens.len() as u8]; // at most 4
        for token in tokens {
            let length = u16::try_from(token.body.len()).expect("a token is shorter than 64 KiB");
            body.extend_from_slice(&length.to_le_bytes());
            body.extend_from_slice(&token.body);
        }
        body.push(0);
        within_limit(&body)?;
        Ok(Self { body: body.into(), signature: chain::union(tokens.iter().map(|token| &token.signature)) })
    }

    /// The token of these bytes: body and signature.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > TOKEN_MAX_BYTES {
            return Err(malformed(format!("{} bytes; the limit is {TOKEN_MAX_BYTES}", bytes.len())));
        }
        let Some((body, signature)) = bytes.split_last_chunk::<SIGNATURE_BYTES>() else {
            return Err(malformed(format!("{} bytes are too few", bytes.len())));
        };
        inspect(body)?;
        Ok(Self { body: body.into(), signature: Signature::of(signature) })
    }

    /// The token as bytes: body and signature.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.body.len() + SIGNATURE_BYTES));
        bytes.extend_from_slice(&self.body);
        bytes.extend_from_slice(self.signature.bytes());
        bytes
    }

    /// The token as text.
    pub fn to_text(&self) -> Zeroizing<String> {
        let bytes = self.to_bytes();
        let mut text = Zeroizing::new(String::with_capacity(TEXT_PREFIX.len() + bytes.len() * 4 / 3 + 4));
        text.push_str(TEXT_PREFIX);
        BASE64_URL_SAFE_NO_PAD.encode_string(&*bytes, &mut text);
        text
    }

    /// What the holder shows to a host.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The signature. Only HTTP carries it.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// What proves on one connection that the holder has the token.
    pub fn proof(&self, binding: &Binding) -> [u8; 32] {
        self.signature.proof(binding)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({} bytes)", self.body.len() + SIGNATURE_BYTES)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(encoded) = text.strip_prefix(TEXT_PREFIX) else {
            return Err(malformed(format!("the text does not begin with {TEXT_PREFIX}")));
        };
        if encoded.len() > TOKEN_MAX_BYTES.div_ceil(3) * 4 {
            return Err(malformed(format!("the text is longer than that of {TOKEN_MAX_BYTES} bytes")));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(TOKEN_MAX_BYTES));
        // What base64 says of a wrong text quotes a byte of it, which is secret.
        BASE64_URL_SAFE_NO_PAD
            .decode_vec(encoded, &mut bytes)
            .map_err(|_| malformed("the text is not base64url without padding"))?;
        Self::from_bytes(&bytes)
    }
}

/// A block: the length of its items, and the items.
fn block(rules: &Rules) -> Result<Vec<u8>> {
    let items = rules.encode()?;
    let length = u16::try_from(items.len()).ok().filter(|_| items.len() < TOKEN_MAX_BYTES).ok_or_else(|| {
        Code::CapabilityTooLong
            .error(format!("a block of {} bytes; a capability has at most {TOKEN_MAX_BYTES}", items.len()))
    })?;
    Ok([&length.to_le_bytes()[..], &items].concat())
}

fn within_limit(body: &[u8]) -> Result<()> {
    let bytes = body.len() + SIGNATURE_BYTES;
    if bytes > TOKEN_MAX_BYTES {
        return Err(
            Code::CapabilityTooLong.error(format!("it would have {bytes} bytes; the limit is {TOKEN_MAX_BYTES}"))
        );
    }
    Ok(())
}

/// Clears bytes that must not stay in memory.
fn clear(bytes: &mut [u8; 32]) {
    bytes.zeroize();
}
