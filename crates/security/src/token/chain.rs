//! The chain of HMACs, and the parser of a token's body.
//!
//! ```text
//!  plain    version 1 (1)  authority (8)  generation (2)  blocks (1)  block…      block  length (2)  item…
//!  merged   version 129 (1)  n (1)  n × (length (2)  plain)  blocks (1)  block…
//! ```

use super::{
    AuthorityId, BLOCKS_MAX, PARTS_MAX, SIGNATURE_BYTES, TOKEN_MAX_BYTES, TokenId,
    caller::{Caller, Peer, Principal},
    clear,
    rules::{Rules, malformed},
};
use hmac::{Hmac, KeyInit, Mac};
use millrace_wire::{Code, Defence, Error, Result};
use sha2::Sha256;
use std::{fmt, sync::Arc};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The version of a token with one chain.
pub(super) const PLAIN: u8 = 1;
/// The version of a token that unites several.
pub(super) const MERGED: u8 = 129;
/// The bytes of a plain token before its number of blocks: version, authority, generation.
pub(super) const HEAD_BYTES: usize = 11;
const FIRST: u8 = 0;
const NEXT: u8 = 1;
const USE: u8 = 2;

pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// The key of one generation of an authority. Half of the work of an HMAC depends on the key alone and is done once.
pub struct Key {
    bytes: [u8; 32],
    keyed: Hmac<Sha256>,
}

impl Key {
    /// The key of these bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        let keyed = Hmac::new_from_slice(bytes).expect("HMAC takes keys of every length");
        Self { bytes: *bytes, keyed }
    }

    /// The bytes, for storing the key on disk.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.keyed.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        clear(&mut self.bytes);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// The last HMAC of a chain: a key that the token's holder shares with the host. It is compared in constant time only.
#[derive(Clone)]
pub struct Signature([u8; 32]);

impl Signature {
    /// The signature of these bytes.
    pub fn of(bytes: &[u8; 32]) -> Self {
        Self(*bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether both are the same; it takes as long whichever byte differs.
    pub fn matches(&self, other: &Signature) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// The key for one use. What is sent is made with such keys, and never with the signature itself.
    fn for_use(&self, name: &str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(hmac(&self.0, &[&[USE], name.as_bytes()]))
    }

    /// The proof, for one connection, that the client has the signature.
    pub(super) fn proof(&self, binding: &Binding) -> [u8; 32] {
        let key = self.for_use("proof");
        match binding {
            Binding::Exporter(exporter) => hmac(&*key, &[exporter]),
            Binding::Challenge(challenge) => hmac(&*key, &[b"unix", challenge]),
        }
    }

    /// The key that a channel is made from.
    pub(crate) fn channel_key(&self) -> Zeroizing<[u8; 32]> {
        self.for_use("channel")
    }

    /// The secret of requests that are signed in the manner of S3.
    pub fn sigv4_key(&self) -> Zeroizing<[u8; 32]> {
        self.for_use("sigv4")
    }
}

impl Drop for Signature {
    fn drop(&mut self) {
        clear(&mut self.0);
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature")
    }
}

/// What a proof is bound to, so that it is of no use on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// What TLS exports for this connection (RFC 9266).
    Exporter([u8; 32]),
    /// What the host sent over its Unix socket.
    Challenge([u8; 16]),
}

/// The signature of a chain of one block.
pub(super) fn first(key: &Key, head: &[u8], block: &[u8]) -> Signature {
    Signature(key.hmac(&[&[FIRST], head, block]))
}

/// The signature of a chain with one more block.
pub(super) fn next(signature: &Signature, block: &[u8]) -> Signature {
    Signature(hmac(&signature.0, &[&[NEXT], block]))
}

/// The signature of a merged token without blocks of its own.
pub(super) fn union<'s>(signatures: impl Iterator<Item = &'s Signature>) -> Signature {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"millrace merge 1").expect("HMAC takes keys of every length");
    signatures.for_each(|signature| mac.update(&signature.0));
    Signature(mac.finalize().into_bytes().into())
}

/// The blocks of one chain, as they are in a body.
#[derive(Clone, Copy, Default)]
struct Blocks<'a> {
    count: usize,
    blocks: [&'a [u8]; BLOCKS_MAX],
}

impl<'a> Blocks<'a> {
    fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.blocks.into_iter().take(self.count)
    }
}

/// One plain token within a body.
#[derive(Clone, Copy, Default)]
struct Plain<'a> {
    head: &'a [u8],
    blocks: Blocks<'a>,
}

/// Where the parts of a body are; nothing is copied.
pub(super) struct Layout<'a> {
    parts: [Plain<'a>; PARTS_MAX],
    count: usize,
    after: Blocks<'a>,
    /// The offset of the number of blocks, which an attenuation raises.
    pub count_at: usize,
}

/// Takes bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or_else(|| malformed("it ends too early"))?;
    *bytes = rest;
    Ok(taken)
}

fn take_length(bytes: &mut &[u8]) -> Result<usize> {
    let length = take(bytes, 2)?;
    Ok(usize::from(u16::from_le_bytes([length[0], length[1]])))
}

/// Takes this many blocks, which must be all of the rest.
fn take_blocks<'a>(bytes: &mut &'a [u8], least: usize) -> Result<Blocks<'a>> {
    let count = usize::from(take(bytes, 1)?[0]);
    if !(least..=BLOCKS_MAX).contains(&count) {
        return Err(malformed(format!("a chain of {count} blocks; {least} to {BLOCKS_MAX} are allowed")));
    }
    let mut blocks = Blocks { count, ..Blocks::default() };
    for block in &mut blocks.blocks[..count] {
        let start = *bytes;
        let length = take_length(bytes)?;
        take(bytes, length)?;
        *block = &start[..2 + length];
    }
    if !bytes.is_empty() {
        return Err(malformed(format!("{} bytes follow its last block", bytes.len())));
    }
    Ok(blocks)
}

impl<'a> Plain<'a> {
    fn parse(mut body: &'a [u8]) -> Result<Self> {
        let head = take(&mut body, HEAD_BYTES)?;
        if head[0] != PLAIN {
            return Err(malformed(format!("version {}", head[0])));
        }
        Ok(Self { head, blocks: take_blocks(&mut body, 1)? })
    }

    fn authority(&self) -> AuthorityId {
        AuthorityId(self.head[1..9].try_into().expect("eight bytes"))
    }

    fn generation(&self) -> u16 {
        u16::from_le_bytes([self.head[9], self.head[10]])
    }
}

impl<'a> Layout<'a> {
    /// Finds the parts and blocks of a body; items are not looked at.
    pub fn parse(body: &'a [u8]) -> Result<Self> {
        if body.len() + SIGNATURE_BYTES > TOKEN_MAX_BYTES {
            return Err(malformed(format!("a body of {} bytes is too long", body.len())));
        }
        let mut parts = [Plain::default(); PARTS_MAX];
        if body.first() != Some(&MERGED) {
            parts[0] = Plain::parse(body)?;
            return Ok(Self { parts, count: 1, after: Blocks::default(), count_at: HEAD_BYTES });
        }
        let mut rest = &body[1..];
        let count = usize::from(take(&mut rest, 1)?[0]);
        if !(2..=PARTS_MAX).contains(&count) {
            return Err(malformed(format!("{count} parts; 2 to {PARTS_MAX} are allowed")));
        }
        for part in &mut parts[..count] {
            let length = take_length(&mut rest)?;
            *part = Plain::parse(take(&mut rest, length)?)?;
        }
        let count_at = body.len() - rest.len();
        Ok(Self { parts, count, after: take_blocks(&mut rest, 0)?, count_at })
    }
}

/// The rules of a block; the first of a chain has a grant and an id.
fn rules(is_first: bool, block: &[u8]) -> Result<Rules> {
    let rules = Rules::decode(&block[2..])?;
    if is_first && (rules.grants.is_empty() || rules.ids.is_empty()) {
        return Err(malformed("its first block lacks a grant or an id"));
    }
    Ok(rules)
}

/// One block of a chain that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its rules.
    pub rules: Rules,
    /// What its rate is counted under: the same for every token behind this block, and for no other. None if it has no rate.
    pub bucket: Option<[u8; 32]>,
}

/// One chain that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who issued it.
    pub authority: AuthorityId,
    /// With which key.
    pub generation: u16,
    /// Its blocks, at least one.
    pub blocks: Box<[Link]>,
}

/// A token's rules: any of the parts must permit an action, and all blocks behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// One of a plain token, 2 to 4 of a merged one.
    pub parts: Box<[Part]>,
    /// The blocks that a merged token was attenuated by.
    pub after: Box<[Link]>,
}

impl Chain {
    /// The blocks of a part and those behind all parts, first to last.
    pub(super) fn blocks_of<'c>(&'c self, part: &'c Part) -> impl Iterator<Item = &'c Link> + Clone {
        part.blocks.iter().chain(&self.after)
    }

    /// Every block.
    pub fn blocks(&self) -> impl Iterator<Item = &Link> {
        self.parts.iter().flat_map(|part| &part.blocks).chain(&self.after)
    }

    /// Whether the chain unites several tokens.
    pub fn is_merged(&self) -> bool {
        self.parts.len() > 1
    }

    /// On whose behalf the holder acts: the first id, and the first subject of the first part.
    pub fn principal(&self) -> Principal {
        let mut blocks = self.blocks_of(&self.parts[0]);
        let id = self.parts[0].blocks[0].rules.ids[0];
        Principal::Holder { id, subject: blocks.find_map(|link| link.rules.subject.clone()) }
    }

    /// Whether a part is usable: its generation lives, and no id in its blocks or behind them is revoked.
    pub(super) fn lives(&self, part: &Part, keys: &dyn Keys) -> bool {
        let revoked =
            |link: &Link| Defence::Revocation.stands() && link.rules.ids.iter().any(|id| keys.is_revoked(*id));
        keys.key(part.authority, part.generation).is_some() && !self.blocks_of(part).any(revoked)
    }
}

/// The keys and revocations of a host.
pub trait Keys {
    /// The key of a generation that is live.
    fn key(&self, authority: AuthorityId, generation: u16) -> Option<&Key>;
    /// Whether a block's id was revoked.
    fn is_revoked(&self, id: TokenId) -> bool;
    /// Grows with every revocation and rotation: who was admitted before is looked at again.
    fn epoch(&self) -> u64;
}

/// How a caller shows that the token is its own.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// With the signature itself.
    Bearer(&'a Signature),
    /// With an HMAC that is bound to the connection.
    Bound(&'a Binding, &'a [u8; 32]),
}

/// A body whose rules were read, and the signature that belongs to it. It is not known yet whether the caller has that.
#[derive(Debug)]
pub struct Recovered {
    /// The rules.
    pub chain: Arc<Chain>,
    signature: Signature,
    epoch: u64,
}

pub(crate) fn refused() -> Error {
    // The same for every reason, so that it does not reveal which keys and ids exist.
    Code::CapabilityRefused.error("the capability is not valid here")
}

/// Reads a body's rules without keys: what the token says, not whether it is genuine.
pub fn inspect(body: &[u8]) -> Result<Chain> {
    Ok(read(&Layout::parse(body)?, None)?.0)
}

/// Reads a body and computes its signature. A malformed body, one of an unknown authority or a revoked generation, and one whose parts are
/// all revoked are refused with the same error.
pub fn recover(keys: &dyn Keys, body: &[u8]) -> Result<Recovered> {
    // Before anything else, so that what changes meanwhile is noticed.
    let epoch = keys.epoch();
    let layout = Layout::parse(body).map_err(|_| refused())?;
    let (chain, signature) = read(&layout, Some(keys)).map_err(|_| refused())?;
    if !chain.parts.iter().any(|part| chain.lives(part, keys)) {
        return Err(refused());
    }
    Ok(Recovered { chain: Arc::new(chain), signature: signature.ok_or_else(refused)?, epoch })
}

/// Reads the rules of all blocks; with keys, also computes the signature.
fn read(layout: &Layout<'_>, keys: Option<&dyn Keys>) -> Result<(Chain, Option<Signature>)> {
    let mut parts = Vec::with_capacity(layout.count);
    let mut ends = [const { None }; PARTS_MAX];
    for (part, end) in layout.parts[..layout.count].iter().zip(&mut ends) {
        let (authority, generation) = (part.authority(), part.generation());
        let key = match keys {
            Some(keys) => Some(keys.key(authority, generation).ok_or_else(refused)?),
            None => None,
        };
        let mut blocks = Vec::with_capacity(part.blocks.count);
        for (at, block) in part.blocks.iter().enumerate() {
            *end = match (key, &*end) {
                (Some(key), None) => Some(first(key, part.head, block)),
                (_, last) => last.as_ref().map(|last| next(last, block)),
            };
            blocks.push(link(rules(at == 0, block)?, end.as_ref()));
        }
        parts.push(Part { authority, generation, blocks: blocks.into() });
    }
    let mut signature = match (layout.count, keys) {
        (_, None) => None,
        (1, _) => ends[0].take(),
        _ => Some(union(ends.iter().flatten())),
    };
    let mut after = Vec::with_capacity(layout.after.count);
    for block in layout.after.iter() {
        signature = signature.map(|signature| next(&signature, block));
        after.push(link(rules(false, block)?, signature.as_ref()));
    }
    Ok((Chain { parts: parts.into(), after: after.into() }, signature))
}

fn link(rules: Rules, signature: Option<&Signature>) -> Link {
    let bucket = rules.rate.and(signature).map(|signature| *signature.for_use("rate"));
    Link { rules, bucket }
}

impl Recovered {
    /// The signature that the holder must have.
    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The caller, once it is known to have the signature.
    pub(crate) fn caller(self, keys: &dyn Keys, peer: Peer) -> Caller {
        Caller::holder(self.chain, keys, peer, self.epoch)
    }

    /// The caller, if the proof shows that it has the signature.
    pub fn admit(self, keys: &dyn Keys, proof: Proof<'_>, peer: Peer) -> Result<Caller> {
        let proved: bool = match proof {
            Proof::Bearer(signature) => self.signature.matches(signature),
            Proof::Bound(binding, proof) => self.signature.proof(binding).ct_eq(proof).into(),
        };
        if !proved && Defence::Proof.stands() {
            return Err(refused());
        }
        Ok(self.caller(keys, peer))
    }
}

/// The caller: the client that presents this body and proves to have its signature.
pub fn admit(keys: &dyn Keys, body: &[u8], proof: Proof<'_>, peer: Peer) -> Result<Caller> {
    recover(keys, body)?.admit(keys, proof, peer)
}
