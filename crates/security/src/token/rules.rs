//! One block of a token: rules as items `tag (1)  length (1)  value`, whose tags ascend. A rule can only deny.

use super::{
    TokenId,
    rights::{Grant, Kind, Rights},
};
use millrace_wire::{Code, Error, NamespaceId, Result};
use std::{fmt, net::IpAddr, str::FromStr};

/// Longest subject.
pub const SUBJECT_MAX_BYTES: usize = 16;
/// Longest label.
pub const LABEL_MAX_BYTES: usize = 32;
/// The bit of a GRANT's first byte that says that it is of a subtree.
const SUBTREE: u8 = 0x80;

/// How a request reaches the host. The number of each is its bit in a WAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Way {
    /// The Unix socket of the host.
    Unix = 1,
    /// The encrypted channel that the token is the key of.
    Channel = 2,
    /// TLS, with proof that the client has the token.
    TlsProof = 4,
    /// HTTP, with the token as bearer.
    HttpBearer = 8,
}

impl Way {
    /// Every way, in the order of their bits.
    pub const ALL: [Way; 4] = [Way::Unix, Way::Channel, Way::TlsProof, Way::HttpBearer];

    /// The way's name in commands and documents.
    pub fn name(self) -> &'static str {
        match self {
            Way::Unix => "unix",
            Way::Channel => "channel",
            Way::TlsProof => "tls",
            Way::HttpBearer => "http",
        }
    }
}

impl FromStr for Way {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|way| way.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Way::name).join(", ");
            let text = text.escape_debug();
            Code::CapabilityRuleInvalid.error(format!("'{text}' is not a transport; the transports are {known}"))
        })
    }
}

/// A set of ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways(u8);

impl Ways {
    const ALL: u8 = 15;

    /// The set with these bits, unless it is empty or one of them means no transport.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits != 0 && bits & !Self::ALL == 0).then_some(Self(bits))
    }

    /// The set as bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether `way` is in the set.
    pub fn has(self, way: Way) -> bool {
        self.0 & way as u8 != 0
    }

    /// The names of the ways, with commas.
    pub fn names(self) -> String {
        let names: Vec<&str> = Way::ALL.into_iter().filter(|way| self.has(*way)).map(Way::name).collect();
        names.join(",")
    }
}

/// A network: an address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net {
    address: IpAddr,
    bits: u8,
}

impl Net {
    /// The network of the first `bits` bits of `address`, unless the address has fewer.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Self { address, bits })
    }

    /// The length of its prefix.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether `address` is in the network. An IPv4 address is the same one when it is mapped into IPv6.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(address)) => {
                same(u32::from(own).into(), u32::from(address).into(), self.bits + 96)
            }
            (IpAddr::V6(own), IpAddr::V6(address)) => same(own.into(), address.into(), self.bits),
            _ => false,
        }
    }

    /// The addresses in both networks: prefixes are disjoint, or one holds the other.
    pub(super) fn and(self, other: Net) -> Option<Net> {
        let (narrow, wide) = if self.bits >= other.bits { (self, other) } else { (other, self) };
        // `contains` takes a mapped address for IPv4, which a network of IPv6 is not.
        let both = match (wide.address, narrow.address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), wide.bits + 96),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), wide.bits),
            _ => false,
        };
        both.then_some(narrow)
    }
}

/// Whether two numbers agree in their first bits.
fn same(a: u128, b: u128, bits: u8) -> bool {
    (a ^ b).checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Net {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let parse = || {
            let address: IpAddr = address.parse().ok()?;
            Net::new(address, bits.map_or(Some(if address.is_ipv4() { 32 } else { 128 }), |bits| bits.parse().ok())?)
        };
        parse().ok_or_else(|| {
            let text = text.escape_debug();
            Code::CapabilityRuleInvalid.error(format!("'{text}' is not a network such as 10.0.0.0/8 or fd00::/8"))
        })
    }
}

/// How many requests may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second, at least 1.
    pub per_second: u16,
    /// Requests at once, at least 1.
    pub burst: u16,
}

/// The rules of one block. What is empty or absent does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// One of these must cover the action.
    pub grants: Vec<Grant>,
    /// Not permitted after this second since 1970.
    pub not_after: Option<u32>,
    /// Not permitted before this second since 1970.
    pub not_before: Option<u32>,
    /// The longest record that may be appended.
    pub record_max_bytes: Option<u32>,
    /// The ways that a request may take.
    pub ways: Option<Ways>,
    /// The caller's address is in one of these.
    pub nets: Vec<Net>,
    /// The SHA-256 of the caller's public key is one of these.
    pub keys: Vec<[u8; 32]>,
    /// How many requests all tokens behind this block may make together.
    pub rate: Option<Rate>,
    /// Only deliveries from one of these namespaces are permitted.
    pub sources: Vec<NamespaceId>,
    /// Only REDEEM is permitted, once.
    pub once: bool,
    /// What the block is revoked by.
    pub ids: Vec<TokenId>,
    /// On whose behalf the holder acts.
    pub subject: Option<Box<[u8]>>,
    /// What people call it.
    pub label: Option<Box<[u8]>>,
}

mod tag {
    pub const GRANT: u8 = 1;
    pub const NOT_AFTER: u8 = 2;
    pub const NOT_BEFORE: u8 = 3;
    pub const RECORD_MAX: u8 = 4;
    pub const WAY: u8 = 5;
    pub const PEER_NET: u8 = 6;
    pub const PEER_KEY: u8 = 7;
    pub const RATE: u8 = 8;
    pub const SOURCE: u8 = 9;
    pub const ONCE: u8 = 10;
    pub const ID: u8 = 16;
    pub const SUBJECT: u8 = 17;
    pub const LABEL: u8 = 18;

    pub fn repeats(tag: u8) -> bool {
        matches!(tag, GRANT | PEER_NET | PEER_KEY | SOURCE | ID)
    }
}

pub(super) fn malformed(what: impl Into<String>) -> Error {
    Code::CapabilityMalformed.error(what)
}

impl Rules {
    /// Reads a block's items.
    pub(super) fn decode(mut items: &[u8]) -> Result<Self> {
        let (mut rules, mut last) = (Self::default(), 0);
        while let [tag, length, rest @ ..] = items {
            let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                return Err(malformed(format!("item {tag} is longer than its block")));
            };
            if *tag < last || (*tag == last && !tag::repeats(*tag)) {
                return Err(malformed(format!("item {tag} follows item {last}")));
            }
            rules.item(*tag, value).ok_or_else(|| malformed(format!("item {tag} is unknown or has no such value")))?;
            (last, items) = (*tag, rest);
        }
        if !items.is_empty() {
            return Err(malformed("a block ends within an item"));
        }
        Ok(rules)
    }

    /// Takes an item; `None` if there is no such item.
    fn item(&mut self, tag: u8, value: &[u8]) -> Option<()> {
        let number = || value.try_into().ok().map(u32::from_le_bytes);
        match tag {
            tag::GRANT => {
                let [kind, low, high, name @ ..] = value else { return None };
                let rights = Rights::from_bits(u16::from_le_bytes([*low, *high]))?;
                let (kind, subtree) = (*Kind::ALL.get(usize::from(kind & !SUBTREE))?, kind & SUBTREE != 0);
                let grant = Grant { kind, name: name.into(), subtree, rights };
                grant.fault().is_none().then(|| self.grants.push(grant))
            }
            tag::NOT_AFTER => self.not_after.replace(number()?).is_none().then_some(()),
            tag::NOT_BEFORE => self.not_before.replace(number()?).is_none().then_some(()),
            tag::RECORD_MAX => self.record_max_bytes.replace(number()?).is_none().then_some(()),
            tag::WAY => {
                let [bits] = value else { return None };
                self.ways = Some(Ways::from_bits(*bits)?);
                Some(())
            }
            tag::PEER_NET => {
                let (bits, address) = value.split_first()?;
                let address = match address.len() {
                    4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
                    _ => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
                };
                self.nets.push(Net::new(address, *bits)?);
                Some(())
            }
            tag::PEER_KEY => {
                self.keys.push(value.try_into().ok()?);
                Some(())
            }
            tag::RATE => {
                let [a, b, c, d] = value else { return None };
                let rate = Rate { per_second: u16::from_le_bytes([*a, *b]), burst: u16::from_le_bytes([*c, *d]) };
                self.rate = Some(rate).filter(|rate| rate.per_second > 0 && rate.burst > 0);
                self.rate.map(drop)
            }
            tag::SOURCE => {
                let mut id = [0; 8];
                id[..6].copy_from_slice(<&[u8; 6]>::try_from(value).ok()?);
                self.sources.push(NamespaceId::new(u64::from_le_bytes(id))?);
                Some(())
            }
            tag::ONCE => {
                self.once = true;
                value.is_empty().then_some(())
            }
            tag::ID => {
                self.ids.push(TokenId(value.try_into().ok()?));
                Some(())
            }
            tag::SUBJECT => {
                self.subject = Some(value.into());
                (1..=SUBJECT_MAX_BYTES).contains(&value.len()).then_some(())
            }
            tag::LABEL => {
                self.label = Some(value.into());
                (1..=LABEL_MAX_BYTES).contains(&value.len()).then_some(())
            }
            _ => None,
        }
    }

    /// The block's items. What could not be read back is refused.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let invalid = |what: &str| Err(Code::CapabilityRuleInvalid.error(what));
        if let Some(fault) = self.grants.iter().find_map(Grant::fault) {
            return invalid(fault);
        }
        if self.rate.is_some_and(|rate| rate.per_second == 0 || rate.burst == 0) {
            return invalid("a rate and its burst are at least 1");
        }
        let fits = |text: &Option<Box<[u8]>>, max| text.as_ref().is_none_or(|text| (1..=max).contains(&text.len()));
        if !fits(&self.subject, SUBJECT_MAX_BYTES) {
            return invalid("a subject is 1 to 16 bytes");
        }
        if !fits(&self.label, LABEL_MAX_BYTES) {
            return invalid("a label is 1 to 32 bytes");
        }
        let mut items = Vec::new();
        let mut put = |tag: u8, parts: &[&[u8]]| {
            let length = parts.iter().map(|part| part.len()).sum::<usize>();
            items.extend([tag, u8::try_from(length).expect("every value is at most 255 bytes")]);
            parts.iter().for_each(|part| items.extend_from_slice(part));
        };
        for grant in &self.grants {
            let kind = grant.kind as u8 | if grant.subtree { SUBTREE } else { 0 };
            put(tag::GRANT, &[&[kind], &grant.rights.bits().to_le_bytes(), &grant.name]);
        }
        let numbers = [
            (tag::NOT_AFTER, self.not_after),
            (tag::NOT_BEFORE, self.not_before),
            (tag::RECORD_MAX, self.record_max_bytes),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                put(tag, &[&number.to_le_bytes()]);
            }
        }
        if let Some(ways) = self.ways {
            put(tag::WAY, &[&[ways.bits()]]);
        }
        for net in &self.nets {
            match net.address {
                IpAddr::V4(address) => put(tag::PEER_NET, &[&[net.bits], &address.octets()]),
                IpAddr::V6(address) => put(tag::PEER_NET, &[&[net.bits], &address.octets()]),
            }
        }
        for key in &self.keys {
            put(tag::PEER_KEY, &[key]);
        }
        if let Some(rate) = self.rate {
            put(tag::RATE, &[&rate.per_second.to_le_bytes(), &rate.burst.to_le_bytes()]);
        }
        for source in &self.sources {
            put(tag::SOURCE, &[&source.get().to_le_bytes()[..6]]);
        }
        if self.once {
            put(tag::ONCE, &[]);
        }
        for id in &self.ids {
            put(tag::ID, &[&id.0]);
        }
        for (tag, text) in [(tag::SUBJECT, &self.subject), (tag::LABEL, &self.label)] {
            if let Some(text) = text {
                put(tag, &[text]);
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_whole_prefixes() {
        let net = |text: &str| text.parse::<Net>().unwrap();
        for (text, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
            ("fd00::/8", "fd12::1", true),
            ("192.168.1.128/25", "192.168.1.127", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
        ] {
            assert_eq!(net(text).contains(address.parse().unwrap()), inside, "{text} {address}");
        }
        assert_eq!(net("10.0.0.0/8").and(net("10.1.0.0/16")), Some(net("10.1.0.0/16")));
        assert_eq!(net("10.0.0.0/8").and(net("11.0.0.0/8")), None);
        assert_eq!(net("0.0.0.0/0").and(net("::/0")), None);
        for text in ["", "10.0.0.0/33", "::/129", "10/8", "10.0.0.0/-1", "10.0.0.0/"] {
            assert_eq!(text.parse::<Net>().unwrap_err().code(), Code::CapabilityRuleInvalid, "{text}");
        }
    }
}
