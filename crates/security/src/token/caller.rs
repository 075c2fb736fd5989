//! Callers, actions, and whether a caller may do an action.

use super::{
    TokenId,
    chain::{Chain, Keys, Link, Part, refused},
    rights::{Grant, Resource, Right},
    rules::{Rate, Way},
};
use millrace_wire::{Code, Defence, Error, NamespaceId, Result};
use std::{fmt, net::IpAddr, sync::Arc};

/// On whose behalf something is done. It owns idempotency keys, incoming streams and rates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// The owner of the namespace.
    Owner,
    /// The principal of a token: its first id, and the first subject that was added.
    Holder {
        /// The id of the first block.
        id: TokenId,
        /// The subject, if there is one.
        subject: Option<Box<[u8]>>,
    },
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Owner => f.write_str("owner"),
            Principal::Holder { id, subject: None } => write!(f, "{id}"),
            Principal::Holder { id, subject: Some(subject) } => write!(f, "{id}/{}", subject.escape_ascii()),
        }
    }
}

/// How a caller is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The way that its requests take.
    pub way: Way,
    /// Its address, if it has one.
    pub address: Option<IpAddr>,
    /// The SHA-256 of the public key of its TLS certificate, if it showed one.
    pub key: Option<[u8; 32]>,
}

/// The time of a request by the host's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now(Option<u32>);

impl Now {
    /// The clock at a number of seconds since 1970.
    pub fn at(seconds: u32) -> Self {
        Self(Some(seconds))
    }

    /// The clock was not set since boot: nothing that depends on it is permitted.
    pub fn unknown() -> Self {
        Self(None)
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The action itself.
    Request,
    /// To deliver a record from another namespace.
    Delivery(NamespaceId),
    /// To exchange the token for one that lasts. Grants, lengths and sources do not count for it.
    Redeem,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action<'a> {
    /// The right that it takes.
    pub right: Right,
    /// The resource.
    pub on: Resource<'a>,
    /// The length of the record that is written; 0 if none is.
    pub bytes: usize,
    /// Its purpose.
    pub purpose: Purpose,
    /// Whether it is about everything below the resource too, by whole segments: with an empty name, about all of the kind.
    pub below: bool,
}

impl<'a> Action<'a> {
    /// A request that writes no record.
    pub fn new(right: Right, on: Resource<'a>) -> Self {
        Self { right, on, bytes: 0, purpose: Purpose::Request, below: false }
    }
}

/// Counts requests. An implementation must bound its memory.
pub trait Rates {
    /// Takes one request from a bucket that fills at this rate; false if it is empty.
    fn take(&self, bucket: &[u8; 32], rate: Rate) -> bool;
}

/// The caller that makes a request.
#[derive(Clone, Debug)]
pub struct Caller {
    principal: Principal,
    /// The rules; none for the owner.
    chain: Option<Arc<Chain>>,
    /// Which parts of the chain count, a bit for each.
    live: u8,
    peer: Peer,
    epoch: u64,
}

impl Caller {
    /// The owner, who may do everything.
    pub fn owner(peer: Peer) -> Self {
        Self { principal: Principal::Owner, chain: None, live: 0, peer, epoch: 0 }
    }

    pub(super) fn holder(chain: Arc<Chain>, keys: &dyn Keys, peer: Peer, epoch: u64) -> Self {
        let (principal, live) = (chain.principal(), live(&chain, keys));
        Self { principal, chain: Some(chain), live, peer, epoch }
    }

    /// On whose behalf the caller acts.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The caller's token; `None` for the owner.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_deref()
    }

    /// Whether revocations and generations were looked at in this epoch of the keys.
    pub fn is_current(&self, keys: &dyn Keys) -> bool {
        self.chain.is_none() || self.epoch == keys.epoch()
    }

    /// How the caller is connected.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Looks at revocations and generations again, if there are new ones.
    pub fn refresh(&mut self, keys: &dyn Keys) -> Result<()> {
        let epoch = keys.epoch();
        if let Some(chain) = self.chain.as_ref().filter(|_| self.epoch != epoch) {
            (self.live, self.epoch) = (live(chain, keys), epoch);
        }
        if self.chain.is_some() && self.live == 0 {
            return Err(refused());
        }
        Ok(())
    }
}

fn live(chain: &Chain, keys: &dyn Keys) -> u8 {
    // A merged token needs the keys of all its parts to be genuine; a revoked part only takes its own rights away.
    if chain.parts.iter().any(|part| keys.key(part.authority, part.generation).is_none()) {
        return 0;
    }
    chain.parts.iter().enumerate().fold(0, |live, (at, part)| live | u8::from(chain.lives(part, keys)) << at)
}

/// Why a block does not permit an action.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Denied {
    Grant,
    Time,
    Clock,
    Record(u32),
    Way,
    Address,
    Key,
    Source,
    Once,
}

impl Denied {
    /// Whether it counts: a test may have taken it out.
    fn stands(self) -> bool {
        match self {
            Denied::Grant => Defence::Grants.stands(),
            Denied::Time => Defence::Time.stands(),
            Denied::Key => Defence::PeerKey.stands(),
            Denied::Once => Defence::Once.stands(),
            Denied::Clock | Denied::Record(_) | Denied::Way | Denied::Address | Denied::Source => true,
        }
    }

    fn error(self, action: &Action<'_>) -> Error {
        let (right, on) = (action.right, action.on);
        let detail = match self {
            Denied::Grant if action.below => {
                format!("the capability does not grant {right} on {on} and everything below it")
            }
            Denied::Grant => format!("the capability does not grant {right} on {on}"),
            Denied::Time => "the capability is not valid at this time".into(),
            Denied::Clock => "the capability depends on the time, and the clock of this machine is not set".into(),
            Denied::Record(max) => format!("a record of {} bytes; the capability permits {max}", action.bytes),
            Denied::Way => "the capability does not permit this kind of connection".into(),
            Denied::Address => "the capability does not permit the caller's address".into(),
            Denied::Key => "the capability belongs to the holder of another key".into(),
            Denied::Source => "the capability permits only deliveries from certain namespaces".into(),
            Denied::Once => "the capability can be used only to join".into(),
        };
        Code::CapabilityDenied.error(detail)
    }
}

/// Whether the caller may do this. Pure but for the rates, which are asked last.
pub fn check(caller: &Caller, action: &Action<'_>, now: Now, rates: &dyn Rates) -> Result<()> {
    let Some(chain) = &caller.chain else { return Ok(()) };
    let mut first = None;
    for (at, part) in chain.parts.iter().enumerate().filter(|(at, _)| caller.live >> at & 1 == 1) {
        debug_assert!(at < 8);
        match permits(chain, part, action, &caller.peer, now) {
            Ok(()) if within_rates(chain, part, rates) => return Ok(()),
            Ok(()) => first = Some(Code::CapabilityRate.error("too many requests with this capability")),
            Err(denied) => first = first.or_else(|| Some(denied.error(action))),
        }
    }
    Err(first.unwrap_or_else(refused))
}

fn permits(chain: &Chain, part: &Part, action: &Action<'_>, peer: &Peer, now: Now) -> std::result::Result<(), Denied> {
    let mut blocks = chain.blocks_of(part);
    if action.purpose == Purpose::Redeem && !blocks.clone().any(|link| link.rules.once) {
        return Err(Denied::Once);
    }
    blocks.try_for_each(|link| permits_block(link, action, peer, now))
}

fn permits_block(link: &Link, action: &Action<'_>, peer: &Peer, now: Now) -> std::result::Result<(), Denied> {
    let rules = &link.rules;
    let deny = |denied: bool, why: Denied| if denied && why.stands() { Err(why) } else { Ok(()) };
    if rules.not_after.is_some() || rules.not_before.is_some() {
        let now = now.0.ok_or(Denied::Clock)?;
        let past = rules.not_after.is_some_and(|end| now > end) || rules.not_before.is_some_and(|start| now < start);
        deny(past, Denied::Time)?;
    }
    deny(rules.ways.is_some_and(|ways| !ways.has(peer.way)), Denied::Way)?;
    let within = |address: IpAddr| rules.nets.iter().any(|net| net.contains(address));
    deny(!rules.nets.is_empty() && !peer.address.is_some_and(within), Denied::Address)?;
    deny(!rules.keys.is_empty() && !peer.key.is_some_and(|key| rules.keys.contains(&key)), Denied::Key)?;
    if action.purpose == Purpose::Redeem {
        return Ok(());
    }
    deny(rules.once, Denied::Once)?;
    let delivered = matches!(action.purpose, Purpose::Delivery(from) if rules.sources.contains(&from));
    deny(!rules.sources.is_empty() && !delivered, Denied::Source)?;
    if let Some(max) = rules.record_max_bytes {
        deny(action.bytes as u64 > u64::from(max), Denied::Record(max))?;
    }
    let covers = |grant: &Grant| match action.below {
        true => grant.covers_all_below(action.right, action.on),
        false => grant.covers(action.right, action.on),
    };
    let covered = || rules.grants.iter().any(covers);
    deny(!rules.grants.is_empty() && !covered(), Denied::Grant)
}

fn within_rates(chain: &Chain, part: &Part, rates: &dyn Rates) -> bool {
    let limited = chain.blocks_of(part).filter_map(|link| Some((link.bucket.as_ref()?, link.rules.rate?)));
    limited.into_iter().all(|(bucket, rate)| rates.take(bucket, rate))
}
