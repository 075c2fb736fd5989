//! Evaluations: tokens against peers, actions and times.

use crate::{TestKeys, hex, tokens};
use millrace_security::token::{
    self, Action, Kind, Now, Peer, Proof, Purpose, Rate, Rates, Resource, Right, TokenId, Way,
};
use millrace_wire::{Code, NamespaceId};
use serde_json::{Value, json};

/// Rates that are never exceeded; what they are asked is tested elsewhere.
struct Unlimited;

impl Rates for Unlimited {
    fn take(&self, _: &[u8; 32], _: Rate) -> bool {
        true
    }
}

pub fn peer(way: Way) -> Peer {
    Peer { way, address: None, key: None }
}

struct Context {
    peer: Peer,
    action: Action<'static>,
    now: Option<u32>,
    revoked: &'static [u8],
}

const NOW: u32 = 1_800_000_000;

fn on(kind: Kind, name: &'static str) -> Resource<'static> {
    Resource { kind, name }
}

fn context(right: Right, on: Resource<'static>) -> Context {
    let address = Some("10.1.2.3".parse().expect("an address"));
    let peer = Peer { way: Way::TlsProof, address, key: Some([0x33; 32]) };
    Context { peer, action: Action::new(right, on), now: Some(NOW), revoked: &[] }
}

/// What is asked of every token.
fn common() -> Vec<Context> {
    let farm = NamespaceId::new(tokens::FARM).expect("an id");
    let kitchen = || context(Right::Append, on(Kind::Log, "raw/kitchen"));
    let delivery = |purpose| {
        let mut context = context(Right::Append, on(Kind::Log, "orders/eu"));
        context.action.purpose = purpose;
        context
    };
    let mut long = kitchen();
    long.action.bytes = 101;
    let mut short = kitchen();
    short.action.bytes = 100;
    let mut other_peer = kitchen();
    other_peer.peer = Peer { way: Way::Channel, address: Some("192.168.0.1".parse().unwrap()), key: None };
    let mut redeem_with_key = delivery(Purpose::Redeem);
    redeem_with_key.peer.key = Some([0x44; 32]);
    vec![
        context(Right::Read, on(Kind::Log, "raw/kitchen")),
        context(Right::Read, on(Kind::Log, "rawness")),
        context(Right::Read, on(Kind::Log, "_links")),
        context(Right::Read, Resource::NAMESPACE),
        context(Right::Run, on(Kind::Function, "smooth")),
        context(Right::Call, on(Kind::Object, "cart/7")),
        long,
        short,
        other_peer,
        delivery(Purpose::Request),
        delivery(Purpose::Delivery(farm)),
        delivery(Purpose::Delivery(NamespaceId::new(1).expect("an id"))),
        delivery(Purpose::Redeem),
        redeem_with_key,
    ]
}

/// What is asked of few tokens, because it is about one of their items.
fn special() -> Vec<(&'static str, Context)> {
    let append = || context(Right::Append, on(Kind::Log, "raw/kitchen"));
    let at = |now| Context { now, ..append() };
    let revoked = |revoked| Context { revoked, ..append() };
    let from = |address: Option<&str>| {
        let mut context = append();
        context.peer.address = address.map(|address| address.parse().unwrap());
        context
    };
    let read_by = |way, key| {
        let mut context = context(Right::Read, on(Kind::Log, "raw"));
        (context.peer.way, context.peer.key) = (way, key);
        context
    };
    let mut all = vec![
        ("chain 2", at(Some(1_900_000_000))),
        ("chain 2", at(Some(1_900_000_001))),
        ("chain 2", at(None)),
        ("chain 1", at(None)),
        ("chain 7", at(Some(1_799_999_999))),
        ("chain 7", at(Some(1_800_000_000))),
        ("chain 4", from(None)),
        ("chain 4", from(Some("::ffff:10.255.255.255"))),
        ("chain 4", from(Some("11.0.0.0"))),
        ("chain 4", from(Some("fd00::1"))),
        ("chain 1", from(None)),
        ("merged and expiring", at(Some(1_850_000_001))),
    ];
    for id in [1, 2, 3, 4, 5, 6, 7, 8, 99] {
        let ids: &'static [u8] = match id {
            1 => &[1],
            2 => &[2],
            3 => &[3],
            4 => &[4],
            5 => &[5],
            6 => &[6],
            7 => &[7],
            8 => &[8],
            _ => &[99],
        };
        all.push(("chain 8", revoked(ids)));
        all.push(("squashed 8", revoked(ids)));
    }
    // A revoked part takes its own rights away, a revoked block behind the parts all of them.
    for ids in [&[1][..], &[12], &[1, 12], &[22]] {
        all.push(("merged and narrowed", revoked(ids)));
        let mut orders = revoked(ids);
        orders.action.on = on(Kind::Log, "orders/eu");
        all.push(("merged and narrowed", orders));
    }
    for way in Way::ALL {
        all.push(("way", read_by(way, None)));
        all.push(("squashed way", read_by(way, None)));
    }
    for key in [None, Some([0x33; 32]), Some([0x34; 32])] {
        all.push(("key", read_by(Way::TlsProof, key)));
    }
    for right in Right::ALL {
        all.push(("chain 1", context(right, on(Kind::Log, "raw"))));
        all.push(("namespace", context(right, on(Kind::Store, "any/path"))));
    }
    all
}

fn evaluate(all: &[tokens::Named], name: &str, context: &Context) -> Value {
    let Context { peer, action, now, revoked } = context;
    let mut keys = TestKeys::new();
    keys.revoked = revoked.iter().map(|id| TokenId([*id; 8])).collect();
    let token = &tokens::find(all, name).token;
    let now_is = now.map_or(Now::unknown(), Now::at);
    let permitted = token::admit(&keys, token.body(), Proof::Bearer(token.signature()), *peer)
        .and_then(|caller| token::check(&caller, action, now_is, &Unlimited));
    if let Err(error) = &permitted {
        assert!(matches!(error.code(), Code::CapabilityRefused | Code::CapabilityDenied), "{error}");
    }
    let (purpose, source) = match action.purpose {
        Purpose::Request => ("request", None),
        Purpose::Delivery(from) => ("delivery", Some(from.get())),
        Purpose::Redeem => ("redeem", None),
    };
    json!({
        "token": name, "permitted": permitted.is_ok(),
        "way": peer.way.name(), "address": peer.address.map(|address| address.to_string()),
        "key": peer.key.map(|key| hex(&key)), "now": now,
        "right": action.right.name(), "kind": action.on.kind.name(), "name": action.on.name, "bytes": action.bytes,
        "purpose": purpose, "source": source,
        "revoked": revoked.iter().map(|id| TokenId([*id; 8]).to_string()).collect::<Vec<_>>(),
    })
}

pub fn evaluations(all: &[tokens::Named]) -> Value {
    let names = [
        "chain 1",
        "chain 5",
        "chain 8",
        "squashed 8",
        "every item",
        "namespace",
        "every log",
        "group",
        "way",
        "source",
        "once",
        "once for a key",
        "merged 2",
        "merged 4",
        "merged and narrowed",
    ];
    let mut cases: Vec<Value> = Vec::new();
    for name in names {
        cases.extend(common().iter().map(|context| evaluate(all, name, context)));
    }
    cases.extend(special().iter().map(|(name, context)| evaluate(all, name, context)));
    let permitted = cases.iter().filter(|case| case["permitted"] == true).count();
    assert!(cases.len() >= 200 && permitted >= 50 && cases.len() - permitted >= 50, "{permitted} of {}", cases.len());
    Value::Array(cases)
}
