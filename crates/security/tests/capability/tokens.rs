//! Tokens: chains of one to eight blocks, every item, merged and squashed ones.

use crate::{GROUP, HOME, TestKeys, grant_rules, hex, net, rate, rights, rules_json, ways};
use millrace_security::token::{
    self, AuthorityId, Binding, Grant, Kind, LABEL_MAX_BYTES, Principal, Rules, SUBJECT_MAX_BYTES, Token, TokenId, Way,
};
use millrace_wire::{Code, NamespaceId};
use serde_json::{Value, json};

/// How a token comes to be.
pub enum Made {
    Issue(AuthorityId, u16, Rules),
    Attenuate(&'static str, Rules),
    Merge(Vec<&'static str>),
    Squash(&'static str),
}

pub struct Named {
    pub name: &'static str,
    pub made: Made,
    pub token: Token,
}

/// A grant: its rights, and a resource as `kind:name`; a name that ends with `/` is of a subtree.
pub fn grant(names: &str, on: &str) -> Grant {
    let (kind, name) = on.split_once(':').unwrap_or((on, ""));
    let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).expect("a kind");
    let (name, subtree) = name.strip_suffix('/').map_or((name, false), |name| (name, true));
    Grant { kind, name: name.as_bytes().into(), subtree, rights: rights(names) }
}

pub fn find<'a>(all: &'a [Named], name: &str) -> &'a Named {
    all.iter().find(|named| named.name == name).unwrap_or_else(|| panic!("no token '{name}'"))
}

pub const FARM: u64 = 0x0000_1234_5678_9abc;

fn everything() -> Rules {
    Rules {
        grants: vec![
            grant("read,append", "log:raw/"),
            grant("run,call,observe", "function:smooth"),
            grant("read,append,create,delete", "object:cart/"),
            grant("read", "store:s3/bucket/"),
            grant("link", "peer:127.0.0.1:7071/edge"),
        ],
        not_after: Some(2_000_000_000),
        not_before: Some(1_700_000_000),
        record_max_bytes: Some(4096),
        ways: ways(&[Way::Unix, Way::Channel, Way::TlsProof]),
        nets: vec![net("10.0.0.0/8"), net("fd00::/8"), net("127.0.0.1")],
        keys: vec![[0x11; 32], [0x22; 32]],
        rate: rate(100, 200),
        sources: vec![NamespaceId::new(FARM).unwrap(), NamespaceId::new(NamespaceId::MAX).unwrap()],
        once: false,
        ids: vec![TokenId([9; 8])],
        subject: Some(b"alice"[..].into()),
        label: Some(b"every item"[..].into()),
    }
}

/// The made token, from what it is made of.
fn make(keys: &TestKeys, all: &[Named], made: &Made) -> token::Token {
    let of = |name: &str| find(all, name).token.clone();
    match made {
        Made::Issue(authority, generation, rules) => {
            Token::issue(keys.of(*authority, *generation), *authority, *generation, rules).unwrap()
        }
        Made::Attenuate(name, rules) => of(name).attenuate(rules).unwrap(),
        Made::Merge(names) => Token::merge(&names.iter().map(|name| of(name)).collect::<Vec<_>>()).unwrap(),
        Made::Squash(name) => {
            let chain = token::inspect(of(name).body()).unwrap();
            let (authority, generation) = (chain.parts[0].authority, chain.parts[0].generation);
            Token::issue(keys.of(authority, generation), authority, generation, &token::squash(&chain).unwrap())
                .unwrap()
        }
    }
}

pub fn all(keys: &TestKeys) -> Vec<Named> {
    let mut all: Vec<Named> = Vec::new();
    let mut add = |name, made| {
        let token = make(keys, &all, &made);
        all.push(Named { name, made, token });
    };
    let id = |id: u8| Rules { ids: vec![TokenId([id; 8])], ..Rules::default() };
    // A chain of one to eight blocks, each narrower than the previous one.
    add(
        "chain 1",
        Made::Issue(HOME, 1, grant_rules(1, &[("read,append,observe", "log:raw/"), ("run", "function:smooth")])),
    );
    add("chain 2", Made::Attenuate("chain 1", Rules { not_after: Some(1_900_000_000), ..id(2) }));
    add("chain 3", Made::Attenuate("chain 2", Rules { subject: Some(b"alice"[..].into()), ..id(3) }));
    add("chain 4", Made::Attenuate("chain 3", Rules { nets: vec![net("10.0.0.0/8")], ..id(4) }));
    add("chain 5", Made::Attenuate("chain 4", grant_rules(5, &[("read,append", "log:raw/kitchen/")])));
    add("chain 6", Made::Attenuate("chain 5", Rules { record_max_bytes: Some(100), ..id(6) }));
    add("chain 7", Made::Attenuate("chain 6", Rules { not_before: Some(1_800_000_000), ..id(7) }));
    add(
        "chain 8",
        Made::Attenuate("chain 7", grant_rules(8, &[("append", "log:")].map(|(r, _)| (r, "log:raw/kitchen")))),
    );
    add("every item", Made::Issue(HOME, 2, everything()));
    add(
        "namespace",
        Made::Issue(
            HOME,
            1,
            grant_rules(
                10,
                &[("read,append,create,delete,bind,run,call,observe,repair,link,admin,grant", "namespace")],
            ),
        ),
    );
    add("empty block", Made::Attenuate("namespace", Rules::default()));
    add("every log", Made::Issue(HOME, 2, grant_rules(11, &[("read", "log:/")])));
    add("group", Made::Issue(GROUP, 1, grant_rules(12, &[("append", "log:orders/eu"), ("call", "object:cart/")])));
    add("way", Made::Attenuate("every log", Rules { ways: ways(&[Way::TlsProof, Way::HttpBearer]), ..id(13) }));
    add("key", Made::Attenuate("every log", Rules { keys: vec![[0x33; 32]], ..id(14) }));
    add("source", Made::Attenuate("group", Rules { sources: vec![NamespaceId::new(FARM).unwrap()], ..id(15) }));
    add("once", Made::Attenuate("group", Rules { once: true, ..id(16) }));
    add(
        "once for a key",
        Made::Attenuate("once", Rules { keys: vec![[0x44; 32]], not_after: Some(1_750_000_000), ..id(17) }),
    );
    add("rate", Made::Attenuate("every log", Rules { rate: rate(10, 20), ..id(18) }));
    add("second subject", Made::Attenuate("chain 3", Rules { subject: Some(b"mallory"[..].into()), ..id(19) }));
    add(
        "longest texts",
        Made::Attenuate(
            "chain 1",
            Rules {
                subject: Some([b's'; SUBJECT_MAX_BYTES].into()),
                label: Some([b'l'; LABEL_MAX_BYTES].into()),
                ..id(20)
            },
        ),
    );
    add(
        "longest name",
        Made::Issue(
            HOME,
            1,
            Rules { grants: vec![Grant { name: [b'n'; 252].into(), ..grant("read", "store:x") }], ..id(21) },
        ),
    );
    add("merged 2", Made::Merge(vec!["chain 2", "group"]));
    add("merged 4", Made::Merge(vec!["every log", "chain 5", "group", "source"]));
    add("merged and narrowed", Made::Attenuate("merged 2", grant_rules(22, &[("append", "log:/")])));
    add(
        "merged and expiring",
        Made::Attenuate("merged and narrowed", Rules { not_after: Some(1_850_000_000), ..id(23) }),
    );
    for (name, of) in [
        ("squashed 1", "chain 1"),
        ("squashed 3", "chain 3"),
        ("squashed 8", "chain 8"),
        ("squashed way", "way"),
        ("squashed source", "source"),
        ("squashed empty block", "empty block"),
    ] {
        add(name, Made::Squash(of));
    }
    all
}

fn made_json(made: &Made) -> Value {
    match made {
        Made::Issue(authority, generation, rules) => {
            json!({ "issue": { "authority": authority.to_string(), "generation": generation, "items": rules_json(rules) } })
        }
        Made::Attenuate(of, rules) => json!({ "attenuate": { "of": of, "items": rules_json(rules) } }),
        Made::Merge(of) => json!({ "merge": of }),
        Made::Squash(of) => json!({ "squash": of }),
    }
}

pub fn principal_json(principal: &Principal) -> Value {
    match principal {
        Principal::Owner => json!("owner"),
        Principal::Holder { id, subject } => {
            json!({ "id": id.to_string(), "subject": subject.as_ref().map(|subject| hex(subject)) })
        }
    }
}

impl Named {
    pub fn json(&self, keys: &TestKeys) -> Value {
        let (token, bytes) = (&self.token, self.token.to_bytes());
        let (body, signature) = bytes.split_at(bytes.len() - 32);
        let (exporter, challenge) = ([0xE0; 32], [0xC0; 16]);
        let recovered = token::recover(keys, body).unwrap();
        json!({
            "name": self.name, "made": made_json(&self.made),
            "body": hex(body), "signature": hex(signature), "text": *token.to_text(),
            "principal": principal_json(&recovered.chain.principal()),
            "buckets": recovered.chain.blocks().filter_map(|link| link.bucket).map(|bucket| hex(&bucket)).collect::<Vec<_>>(),
            "exporter": hex(&exporter), "exporter_proof": hex(&token.proof(&Binding::Exporter(exporter))),
            "challenge": hex(&challenge), "challenge_proof": hex(&token.proof(&Binding::Challenge(challenge))),
            "sigv4_key": hex(&*token.signature().sigv4_key()),
        })
    }
}

/// Chains of which no single block permits the same.
pub fn squash_refused(all: &[Named]) -> Value {
    ["rate", "once", "merged 2", "every item"]
        .into_iter()
        .map(|name| {
            let chain = token::inspect(find(all, name).token.body()).unwrap();
            assert_eq!(token::squash(&chain).unwrap_err().code(), Code::CapabilityNotSquashable, "{name}");
            json!(name)
        })
        .collect()
}
