//! What no chain of rules may do: permit what one of its blocks does not. Used by a fuzzer and, on the committed corpus, by an ordinary test.
//!
//! What a block permits is said a second time here, from its bytes, as `spec/formats/capability.md` tells it.

use millrace_security::token::{
    Action, AuthorityId, Caller, Grant, Key, Keys, Kind, Now, Peer, Proof, Purpose, Rate, Rates, Resource, Right,
    Rules, Token, TokenId, Way, admit, check, inspect, squash,
};
use millrace_wire::NamespaceId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const AUTHORITY: AuthorityId = AuthorityId(*b"fuzzfuzz");
/// A caller: way, address, key, and the time and the length of what it asks.
const CONTEXT_BYTES: usize = 8;
const NAMES_MAX: usize = 4;

struct TheKey(Key);

impl Keys for TheKey {
    fn key(&self, authority: AuthorityId, generation: u16) -> Option<&Key> {
        (authority == AUTHORITY && generation == 1).then_some(&self.0)
    }

    fn is_revoked(&self, _: TokenId) -> bool {
        false
    }

    fn epoch(&self) -> u64 {
        0
    }
}

struct Unlimited;

impl Rates for Unlimited {
    fn take(&self, _: &[u8; 32], _: Rate) -> bool {
        true
    }
}

/// Items of a block: tag and value.
fn items(mut block: &[u8]) -> Vec<(u8, &[u8])> {
    let mut items = Vec::new();
    while let [tag, length, rest @ ..] = block {
        let (value, behind) = rest.split_at(usize::from(*length));
        items.push((*tag, value));
        block = behind;
    }
    items
}

fn covers(grant: &[u8], action: &Action<'_>) -> bool {
    let (kind, rights, name) = (grant[0], u16::from_le_bytes([grant[1], grant[2]]), &grant[3..]);
    let asked = action.on.name.as_bytes();
    let within = name.is_empty() || asked == name || (asked.starts_with(name) && asked.get(name.len()) == Some(&b'/'));
    let named = match kind {
        0 => true,
        _ if kind & 0x7f != action.on.kind as u8 => false,
        1 | 0x81 if asked.first() == Some(&b'_') => false,
        0x80.. => within,
        _ => asked == name,
    };
    // What is about everything below a name takes a grant on everything below one.
    let reaches = !action.below || kind == 0 || kind & 0x80 != 0;
    named && reaches && rights >> action.right as u8 & 1 == 1
}

/// Whether an address is in a network: an IPv4 address is the same one when it is mapped into IPv6.
fn is_in(net: &[u8], address: IpAddr) -> bool {
    let bytes = match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let bit = |of: &[u8], at: usize| of[at / 8] >> (7 - at % 8) & 1;
    bytes.len() == net.len() - 1 && (0..usize::from(net[0])).all(|at| bit(&bytes, at) == bit(&net[1..], at))
}

/// What the specification says of one block, a rate set aside.
fn permits(block: &[u8], action: &Action<'_>, peer: &Peer, now: u32) -> bool {
    let items = items(block);
    let any = |tag: u8, fits: &dyn Fn(&[u8]) -> bool| {
        let mut of = items.iter().filter(|(own, _)| *own == tag).peekable();
        of.peek().is_none() || of.any(|(_, value)| fits(value))
    };
    let number = |value: &[u8]| u32::from_le_bytes(value.try_into().expect("four bytes"));
    any(1, &|grant| covers(grant, action))
        && any(2, &|end| now <= number(end))
        && any(3, &|start| now >= number(start))
        && any(4, &|max| action.bytes <= number(max) as usize)
        && any(5, &|mask| mask[0] & peer.way as u8 != 0)
        && any(6, &|net| peer.address.is_some_and(|address| is_in(net, address)))
        && any(7, &|key| peer.key.is_some_and(|own| own == key))
        && any(9, &|source| match action.purpose {
            Purpose::Delivery(from) => from.get().to_le_bytes()[..6] == *source,
            _ => false,
        })
        && any(10, &|_| false)
}

/// Actions about what the rules name, and about what is nearly that.
fn actions(rules: &[Rules]) -> Vec<(Right, Kind, String, bool, Purpose)> {
    let grants = rules.iter().flat_map(|rules| &rules.grants);
    let named = grants.filter_map(|grant: &Grant| String::from_utf8(grant.name.to_vec()).ok()).take(NAMES_MAX);
    let near = named.flat_map(|name| [format!("{name}/x"), format!("{name}x"), format!("_{name}"), name]);
    let mut all = Vec::new();
    for name in near.chain([String::new(), "x".into(), "_x".into()]) {
        for kind in Kind::ALL {
            for right in Right::ALL {
                let delivery = Purpose::Delivery(NamespaceId::new(7).expect("it is one"));
                for (below, purpose) in [(false, Purpose::Request), (true, Purpose::Request), (false, delivery)] {
                    all.push((right, kind, name.clone(), below, purpose));
                }
            }
        }
    }
    all
}

/// A caller, and the blocks of a chain: refused, or each prefix of the chain permits exactly what all of its blocks do. So none permits
/// more than its root.
pub fn rules(input: &[u8]) {
    let Some((context, blocks)) = input.split_first_chunk::<CONTEXT_BYTES>() else { return };
    let head = [&[1][..], &AUTHORITY.0, &1_u16.to_le_bytes()].concat();
    let Ok(chain) = inspect(&[&head, blocks].concat()) else { return };
    let rules: Vec<Rules> = chain.blocks().map(|link| link.rules.clone()).collect();
    let mut rest = &blocks[1..];
    let raw: Vec<&[u8]> = rules
        .iter()
        .map(|_| {
            let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
            let (block, behind) = rest[2..].split_at(length);
            rest = behind;
            block
        })
        .collect();
    let [way, address, key, bytes, now @ ..] = *context;
    let address = match address % 4 {
        0 => None,
        1 => Some(Ipv4Addr::new(10, 0, 0, key).into()),
        2 => Some(Ipv6Addr::from([0xfd; 16]).into()),
        _ => Some(Ipv4Addr::new(10, 0, 0, key).to_ipv6_mapped().into()),
    };
    let way = [Way::Unix, Way::Channel, Way::TlsProof, Way::HttpBearer][usize::from(way % 4)];
    let peer = Peer { way, address, key: (key % 2 == 1).then_some([key; 32]) };
    let now = u32::from_le_bytes(now);
    let keys = TheKey(Key::new(&[7; 32]));
    let admitted = |token: &Token| -> Caller {
        admit(&keys, token.body(), Proof::Bearer(token.signature()), peer).expect("it was just made")
    };
    let mut token = Token::issue(&keys.0, AUTHORITY, 1, &rules[0]).expect("rules that were read can be written");
    let mut callers = vec![admitted(&token)];
    for rules in &rules[1..] {
        token = token.attenuate(rules).expect("it is no longer than what was read");
        callers.push(admitted(&token));
    }
    let squashed = squash(&chain).ok().and_then(|rules| Token::issue(&keys.0, AUTHORITY, 1, &rules).ok());
    let squashed = squashed.map(|token| admitted(&token));
    for (right, kind, name, below, purpose) in actions(&rules) {
        let action = Action { below, right, on: Resource { kind, name: &name }, bytes: bytes.into(), purpose };
        let permitted = |caller: &Caller| check(caller, &action, Now::at(now), &Unlimited).is_ok();
        let mut all = true;
        for (caller, block) in callers.iter().zip(&raw) {
            all = all && permits(block, &action, &peer, now);
            assert_eq!(permitted(caller), all, "{action:?} by {peer:?} at {now}");
        }
        if let Some(squashed) = &squashed {
            assert_eq!(permitted(squashed), all, "squashed: {action:?} by {peer:?} at {now}");
        }
    }
}
