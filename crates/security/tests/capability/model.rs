//! All chains over a tiny universe, against sets: a block is the set of actions that it permits.
//!
//! A chain permits what all of its blocks do, never more than a prefix of it; squash permits the same; merge permits the union.

use crate::{HOME, TestKeys, contexts, grant_rules, net, ways};
use millrace_security::token::{
    self, Action, Caller, Kind, Now, Peer, Proof, Purpose, Rate, Rates, Resource, Right, Rules, Token, TokenId, Way,
};
use millrace_wire::Code;
use proptest::prelude::*;
use std::{cell::Cell, collections::BTreeSet};

struct Unlimited;

impl Rates for Unlimited {
    fn take(&self, _: &[u8; 32], _: Rate) -> bool {
        true
    }
}

const NAMES: [(Kind, &str); 7] = [
    (Kind::Namespace, ""),
    (Kind::Log, "a"),
    (Kind::Log, "a/b"),
    (Kind::Log, "ab"),
    (Kind::Log, "_a"),
    (Kind::Function, "a"),
    (Kind::Function, "b"),
];
const RIGHTS: [Right; 2] = [Right::Read, Right::Append];
const TIMES: [u32; 3] = [10, 20, 30];
const ADDRESSES: [&str; 2] = ["10.0.0.1", "11.0.0.1"];
const LENGTHS: [usize; 2] = [0, 9];
const WAYS: [Way; 2] = [Way::Channel, Way::TlsProof];

/// An action, all of its context included, as indices into the lists above.
type Point = (usize, usize, usize, usize, usize, usize);

fn universe() -> impl Iterator<Item = Point> {
    let rest = || {
        (0..TIMES.len())
            .flat_map(|t| (0..2).flat_map(move |a| (0..2).flat_map(move |l| (0..2).map(move |w| (t, a, l, w)))))
    };
    (0..NAMES.len()).flat_map(move |n| (0..2).flat_map(move |r| rest().map(move |(t, a, l, w)| (n, r, t, a, l, w))))
}

/// What rules permit, said again without a line of the product's code.
fn set_of(rules: &Rules) -> BTreeSet<Point> {
    let permits = |&(n, r, t, a, l, w): &Point| {
        let (kind, name) = NAMES[n];
        let covered = rules.grants.iter().any(|grant| {
            let own = String::from_utf8(grant.name.to_vec()).unwrap();
            let named = match (grant.kind, grant.subtree) {
                (Kind::Namespace, _) => true,
                (granted, _) if granted != kind || (kind == Kind::Log && name.starts_with('_')) => false,
                (_, false) => own == name,
                (_, true) => own.is_empty() || own == name || name.starts_with(&format!("{own}/")),
            };
            named && grant.rights.iter().any(|right| right == RIGHTS[r])
        });
        let address: std::net::IpAddr = ADDRESSES[a].parse().unwrap();
        (rules.grants.is_empty() || covered)
            && rules.not_after.is_none_or(|end| TIMES[t] <= end)
            && rules.not_before.is_none_or(|start| TIMES[t] >= start)
            && rules.record_max_bytes.is_none_or(|max| LENGTHS[l] <= max as usize)
            && (rules.nets.is_empty()
                || rules
                    .nets
                    .iter()
                    .any(|net| net.to_string().split('.').next() == address.to_string().split('.').next()))
            && rules.ways.is_none_or(|ways| ways.names().split(',').any(|name| name == WAYS[w].name()))
    };
    universe().filter(permits).collect()
}

fn permitted(keys: &TestKeys, token: &Token) -> BTreeSet<Point> {
    let admitted =
        |peer: Peer| -> Caller { token::admit(keys, token.body(), Proof::Bearer(token.signature()), peer).unwrap() };
    let callers: Vec<Caller> = (0..4)
        .map(|at| admitted(Peer { way: WAYS[at / 2], address: Some(ADDRESSES[at % 2].parse().unwrap()), key: None }))
        .collect();
    let permits = |&(n, r, t, a, l, w): &Point| {
        let on = Resource { kind: NAMES[n].0, name: NAMES[n].1 };
        let action = Action { right: RIGHTS[r], on, bytes: LENGTHS[l], purpose: Purpose::Request, below: false };
        token::check(&callers[2 * w + a], &action, Now::at(TIMES[t]), &Unlimited).is_ok()
    };
    universe().filter(permits).collect()
}

/// Blocks that differ in every rule that the universe can tell apart.
fn blocks() -> Vec<Rules> {
    let mut all: Vec<Rules> = [
        &[("read,append", "namespace")][..],
        &[("read", "namespace"), ("append", "log:a")],
        &[("read,append", "log:a/")],
        &[("read", "log:a"), ("append", "log:a/b")],
        &[("read", "log:/"), ("read,append", "function:a")],
        &[("append", "log:ab"), ("read", "function:/")],
        &[("read", "log:_a")],
    ]
    .into_iter()
    .map(|grants| grant_rules(1, grants))
    .collect();
    let id = Rules { ids: vec![TokenId([1; 8])], ..Rules::default() };
    all.extend([
        Rules { not_after: Some(20), ..id.clone() },
        Rules { not_before: Some(20), ..id.clone() },
        Rules { record_max_bytes: Some(5), ..id.clone() },
        Rules { nets: vec![net("10.0.0.0/8")], ..id.clone() },
        Rules { ways: ways(&[Way::Channel]), ..id.clone() },
        id,
    ]);
    all
}

fn check_chain(keys: &TestKeys, chain: &[Rules]) -> (Token, BTreeSet<Point>) {
    let mut token = Token::issue(keys.of(HOME, 1), HOME, 1, &chain[0]).unwrap();
    let mut model = set_of(&chain[0]);
    assert_eq!(permitted(keys, &token), model, "{chain:?}");
    for rules in &chain[1..] {
        let before = permitted(keys, &token);
        token = token.attenuate(rules).unwrap();
        model = model.intersection(&set_of(rules)).copied().collect();
        let now = permitted(keys, &token);
        assert!(now.is_subset(&before), "a block granted something: {chain:?}");
        assert_eq!(now, model, "{chain:?}");
    }
    match token::squash(&token::inspect(token.body()).unwrap()) {
        Ok(rules) => {
            let squashed = Token::issue(keys.of(HOME, 1), HOME, 1, &rules).unwrap();
            assert_eq!(permitted(keys, &squashed), model, "squashed: {chain:?}");
            let ids = |rules: &Rules| rules.ids.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(ids(&rules), chain.iter().flat_map(|rules| rules.ids.clone()).collect(), "{chain:?}");
        }
        // Logs of the runtime, which no grant on a log covers, may be all that is left.
        Err(error) => {
            assert_eq!(error.code(), Code::CapabilityNotSquashable);
            assert!(model.is_empty(), "it permits something and is not squashed: {chain:?}");
        }
    }
    (token, model)
}

#[test]
fn every_chain_of_up_to_three_blocks_is_what_its_blocks_have_in_common() {
    let (keys, blocks) = (TestKeys::new(), blocks());
    let mut seen = 0;
    for first in blocks.iter().filter(|rules| !rules.grants.is_empty()) {
        for second in &blocks {
            for third in &blocks {
                check_chain(&keys, &[first.clone(), second.clone(), third.clone()]);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 7 * 13 * 13);
}

#[test]
fn merged_tokens_permit_what_any_of_them_does() {
    let (keys, blocks) = (TestKeys::new(), blocks());
    let grants: Vec<&Rules> = blocks.iter().filter(|rules| !rules.grants.is_empty()).collect();
    for (a, first) in grants.iter().enumerate() {
        for second in &grants[a..] {
            let (one, ones) = check_chain(&keys, &[(*first).clone(), blocks[7].clone()]);
            let (other, others) = check_chain(&keys, &[(*second).clone(), blocks[10].clone()]);
            let both = Token::merge(&[one, other]).unwrap();
            let union: BTreeSet<Point> = ones.union(&others).copied().collect();
            assert_eq!(permitted(&keys, &both), union, "{first:?} {second:?}");
            let narrowed = both.attenuate(&blocks[2]).unwrap();
            let model: BTreeSet<Point> = union.intersection(&set_of(&blocks[2])).copied().collect();
            assert_eq!(permitted(&keys, &narrowed), model, "{first:?} {second:?}");
        }
    }
}

prop_compose! {
    fn any_grants()(grants in prop::collection::vec((0..3usize, any::<bool>(), 0..4usize, 1..4u16), 0..4)) -> Vec<token::Grant> {
        grants.into_iter().map(|(kind, subtree, name, rights)| {
            let kind = [Kind::Namespace, Kind::Log, Kind::Function][kind];
            let rights = token::Rights::from_bits(rights).expect("read and append");
            match kind {
                Kind::Namespace => token::Grant::namespace(rights),
                kind => {
                    let name = ["a", "a/b", "ab", ""][name];
                    token::Grant { kind, name: name.as_bytes().into(), subtree: subtree || name.is_empty(), rights }
                }
            }
        }).collect()
    }
}

prop_compose! {
    fn any_rules()(
        grants in any_grants(),
        not_after in prop::option::of(5..35u32),
        not_before in prop::option::of(5..35u32),
        record_max_bytes in prop::option::of(0..12u32),
        nets in prop::collection::vec(prop::sample::select(vec!["10.0.0.0/8", "11.0.0.0/8"]), 0..3),
        way in prop::option::of(1..16u8),
        id in any::<[u8; 8]>(),
    ) -> Rules {
        Rules {
            grants, not_after, not_before, record_max_bytes,
            nets: nets.into_iter().map(net).collect(),
            ways: way.and_then(token::Ways::from_bits),
            ids: vec![TokenId(id)],
            ..Rules::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_chains_are_what_their_blocks_have_in_common(
        grants in any_grants().prop_filter("a first block has grants", |grants| !grants.is_empty()),
        first in any_rules(), rest in prop::collection::vec(any_rules(), 0..7),
    ) {
        let chain: Vec<Rules> = std::iter::once(Rules { grants, ..first }).chain(rest).collect();
        let bytes = chain.iter().map(|rules| 40 + rules.grants.len() * 8).sum::<usize>();
        prop_assume!(bytes < 700);
        check_chain(&TestKeys::new(), &chain);
    }
}

/// Lets a bucket be taken from so often.
struct Counted(Cell<usize>);

impl Rates for Counted {
    fn take(&self, _: &[u8; 32], rate: Rate) -> bool {
        assert_eq!(rate, Rate { per_second: 10, burst: 20 });
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }
}

#[test]
fn rates_are_counted_by_block_and_only_for_what_is_permitted() {
    let keys = TestKeys::new();
    let all = crate::tokens::all(&keys);
    let rated = &crate::tokens::find(&all, "rate").token;
    let caller = |token: &Token| {
        token::admit(&keys, token.body(), Proof::Bearer(token.signature()), contexts::peer(Way::Unix)).unwrap()
    };
    let (read, append) = (Action::new(Right::Read, Resource::log("a")), Action::new(Right::Append, Resource::log("a")));
    let rates = Counted(Cell::new(1));
    let owner = caller(rated);
    assert_eq!(token::check(&owner, &append, Now::at(0), &rates).unwrap_err().code(), Code::CapabilityDenied);
    assert_eq!(token::check(&owner, &read, Now::at(0), &rates), Ok(()));
    assert_eq!(token::check(&owner, &read, Now::at(0), &rates).unwrap_err().code(), Code::CapabilityRate);
    // Tokens derived from the block share its bucket; a token without it, and one with another such block, do not.
    let bucket =
        |token: &Token| token::recover(&keys, token.body()).unwrap().chain.blocks().find_map(|link| link.bucket);
    let derived = rated.attenuate(&Rules { not_after: Some(1), ..Rules::default() }).unwrap();
    assert!(bucket(rated).is_some());
    assert_eq!(bucket(&derived), bucket(rated));
    let rules = Rules { rate: crate::rate(10, 20), ids: vec![TokenId([99; 8])], ..Rules::default() };
    let other = crate::tokens::find(&all, "every log").token.attenuate(&rules).unwrap();
    assert_ne!(bucket(&other), bucket(rated));
}

#[test]
fn a_caller_learns_of_revocations() {
    let mut keys = TestKeys::new();
    let all = crate::tokens::all(&keys);
    let token = &crate::tokens::find(&all, "merged 2").token;
    let mut caller =
        token::admit(&keys, token.body(), Proof::Bearer(token.signature()), contexts::peer(Way::Unix)).unwrap();
    let orders = Action::new(Right::Append, Resource::log("orders/eu"));
    let raw = Action::new(Right::Append, Resource::log("raw/x"));
    let may = |caller: &Caller, action| token::check(caller, action, Now::at(1), &Unlimited).is_ok();
    assert!(may(&caller, &orders) && may(&caller, &raw));
    keys.revoked.insert(TokenId([12; 8]));
    caller.refresh(&keys).unwrap();
    assert!(!may(&caller, &orders) && may(&caller, &raw));
    keys.revoked.insert(TokenId([2; 8]));
    assert_eq!(caller.refresh(&keys).unwrap_err().code(), Code::CapabilityRefused);
    assert!(!may(&caller, &raw));
    let mut owner = Caller::owner(contexts::peer(Way::Unix));
    owner.refresh(&keys).unwrap();
    assert!(may(&owner, &raw));
}

#[test]
fn nothing_secret_is_shown_for_debugging() {
    let keys = TestKeys::new();
    let named = &crate::tokens::all(&keys)[0];
    let shown = format!("{:?} {:?} {:?}", named.token, named.token.signature(), keys.of(HOME, 1));
    assert_eq!(shown, format!("Token({} bytes) Signature Key", named.token.to_bytes().len()));
}
