//! The vectors of `spec/vectors/capability.json`: tokens, evaluations and channels, made and read exactly so.
//!
//! The cases stand here; `MILLRACE_BLESS=1` writes the file from them. `sdk/python/tests/test_capability_vectors.py` computes the
//! whole file again from the specification, with nothing but HMAC and SHA-256 of Python's library.

#[path = "capability/channels.rs"]
mod channels;
#[path = "capability/contexts.rs"]
mod contexts;
#[path = "capability/model.rs"]
mod model;
#[path = "capability/refused.rs"]
mod refused;
#[path = "capability/tokens.rs"]
mod tokens;

use millrace_security::token::{
    self, AuthorityId, Binding, Key, Keys, Net, Proof, Rate, Rights, Rules, Token, TokenId, Way, Ways,
};
use millrace_wire::Code;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fmt::Write, fs, path::PathBuf};

const ABOUT: &str = "Vectors of spec/formats/capability.md, made by crates/security/tests/capability.rs. Bytes are in hexadecimal. \
    keys: what the host knows. primitives: RFC 4231, 5869 and 8439. tokens: from rules, and from other tokens by their names. \
    malformed: bodies that are refused whatever the keys are. forged: well-formed tokens that no key has made. flipped: of each of these \
    tokens, every byte is changed once, by XOR with 1, and none of the results is accepted. evaluations: whether an action is permitted. \
    channels: both messages and the records of both directions; broken: each is refused by the side that receives it.";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to memory does not fail");
        text
    })
}

/// The keys of two generations of one authority, and of another authority.
struct TestKeys {
    keys: Vec<(AuthorityId, u16, Key)>,
    revoked: BTreeSet<TokenId>,
}

const HOME: AuthorityId = AuthorityId(*b"homehome");
const GROUP: AuthorityId = AuthorityId(*b"groupgrp");

/// A key that everybody may know.
fn public_key(seed: u8) -> Key {
    Key::new(&std::array::from_fn(|at| seed.wrapping_mul(31).wrapping_add(at as u8)))
}

impl TestKeys {
    fn new() -> Self {
        let keys = vec![(HOME, 1, public_key(1)), (HOME, 2, public_key(2)), (GROUP, 1, public_key(3))];
        Self { keys, revoked: BTreeSet::new() }
    }

    fn of(&self, authority: AuthorityId, generation: u16) -> &Key {
        self.key(authority, generation).expect("one of the test's keys")
    }

    fn json(&self) -> Value {
        let key = |(authority, generation, key): &(AuthorityId, u16, Key)| {
            let (authority, key) = (authority.to_string(), hex(key.bytes()));
            json!({ "authority": authority, "generation": generation, "key": key })
        };
        self.keys.iter().map(key).collect()
    }
}

impl Keys for TestKeys {
    fn key(&self, authority: AuthorityId, generation: u16) -> Option<&Key> {
        self.keys.iter().find(|(a, g, _)| (*a, *g) == (authority, generation)).map(|(_, _, key)| key)
    }

    fn is_revoked(&self, id: TokenId) -> bool {
        self.revoked.contains(&id)
    }

    fn epoch(&self) -> u64 {
        self.revoked.len() as u64
    }
}

/// Rules as the file states them: items with names, in the order of their tags.
fn rules_json(rules: &Rules) -> Value {
    let mut items = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("names in vectors are text");
    for grant in &rules.grants {
        let rights: Vec<&str> = grant.rights.iter().map(token::Right::name).collect();
        let (kind, name) = (grant.kind.name(), text(&grant.name));
        items.push(json!({ "grant": { "kind": kind, "name": name, "subtree": grant.subtree, "rights": rights } }));
    }
    let numbers =
        [("not_after", rules.not_after), ("not_before", rules.not_before), ("record_max", rules.record_max_bytes)];
    items.extend(numbers.into_iter().filter_map(|(name, number)| Some(json!({ name: number? }))));
    items.extend(rules.ways.map(|ways| json!({ "way": ways.names().split(',').collect::<Vec<_>>() })));
    items.extend(rules.nets.iter().map(|net| json!({ "peer_net": net.to_string() })));
    items.extend(rules.keys.iter().map(|key| json!({ "peer_key": hex(key) })));
    items.extend(rules.rate.map(|rate| json!({ "rate": [rate.per_second, rate.burst] })));
    items.extend(rules.sources.iter().map(|source| json!({ "source": source.get() })));
    items.extend(rules.once.then(|| json!({ "once": true })));
    items.extend(rules.ids.iter().map(|id| json!({ "id": id.to_string() })));
    items.extend(rules.subject.iter().map(|subject| json!({ "subject": text(subject) })));
    items.extend(rules.label.iter().map(|label| json!({ "label": text(label) })));
    Value::Array(items)
}

/// RFC 4231 (HMAC-SHA-256), RFC 5869 (HKDF) and RFC 8439 (ChaCha20-Poly1305), as they are printed there.
fn primitives() -> Value {
    serde_json::from_str(include_str!("capability/primitives.json")).expect("the file beside this one is JSON")
}

fn whole() -> String {
    let keys = TestKeys::new();
    let mut file = Map::new();
    file.insert("about".into(), json!(ABOUT));
    file.insert("keys".into(), keys.json());
    file.insert("primitives".into(), primitives());
    let all = tokens::all(&keys);
    file.insert("tokens".into(), all.iter().map(|named| named.json(&keys)).collect());
    file.insert("squash_refused".into(), tokens::squash_refused(&all));
    file.insert("malformed".into(), refused::malformed());
    file.insert("forged".into(), refused::forged(&all));
    file.insert("flipped".into(), json!(refused::FLIPPED));
    file.insert("evaluations".into(), contexts::evaluations(&all));
    file.insert("channels".into(), channels::all(&all, &keys));
    // One case on a line.
    let mut text = String::from("{\n");
    for (at, (name, value)) in file.iter().enumerate() {
        let end = if at + 1 == file.len() { "" } else { "," };
        match value {
            Value::Array(cases) if !cases.is_empty() => {
                let lines: Vec<String> = cases.iter().map(|case| format!("    {case}")).collect();
                writeln!(text, "  \"{name}\": [\n{}\n  ]{end}", lines.join(",\n")).unwrap();
            }
            value => writeln!(text, "  \"{name}\": {value}{end}").unwrap(),
        }
    }
    text + "}\n"
}

#[test]
fn the_file_says_what_is_made() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/capability.json");
    let made = whole();
    if std::env::var_os("MILLRACE_BLESS").is_some() {
        fs::write(&path, &made).expect("spec/vectors is writable");
    }
    let file = fs::read_to_string(path).unwrap_or_default();
    for (kept, made) in file.lines().zip(made.lines()) {
        assert_eq!(kept, made, "if the format was meant to change: MILLRACE_BLESS=1");
    }
    assert_eq!(file.len(), made.len(), "if the format was meant to change: MILLRACE_BLESS=1");
}

#[test]
fn the_primitives_are_those_of_their_rfcs() {
    use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Tag, aead::AeadInOut};
    use hmac::{Hmac, Mac};
    let bytes = |case: &Value, name: &str| unhex(case[name].as_str().unwrap_or_else(|| panic!("{case} has no {name}")));
    let all = primitives();
    let mut seen = [0; 3];
    for case in all.as_array().expect("a list") {
        match case["primitive"].as_str().unwrap() {
            "hmac-sha-256" => {
                let mut mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(&bytes(case, "key")).unwrap();
                mac.update(&bytes(case, "data"));
                let (mac, wanted) = (mac.finalize().into_bytes(), bytes(case, "mac"));
                assert_eq!(mac[..wanted.len()], *wanted, "{case}");
                seen[0] += 1;
            }
            "hkdf-sha-256" => {
                let (salt, mut okm) = (bytes(case, "salt"), bytes(case, "okm"));
                let hkdf = hkdf::Hkdf::<sha2::Sha256>::new(Some(&salt), &bytes(case, "ikm"));
                okm.fill(0);
                hkdf.expand(&bytes(case, "info"), &mut okm).unwrap();
                assert_eq!(okm, bytes(case, "okm"), "{case}");
                seen[1] += 1;
            }
            "chacha20-poly1305" => {
                let cipher = ChaCha20Poly1305::new_from_slice(&bytes(case, "key")).unwrap();
                let nonce: [u8; 12] = bytes(case, "nonce").try_into().unwrap();
                let mut text = bytes(case, "plain");
                let tag =
                    cipher.encrypt_inout_detached(&nonce.into(), &bytes(case, "aad"), (&mut text[..]).into()).unwrap();
                assert_eq!(
                    (text, tag),
                    (bytes(case, "sealed"), Tag::try_from(&*bytes(case, "tag")).unwrap()),
                    "{case}"
                );
                seen[2] += 1;
            }
            other => panic!("unknown primitive {other}"),
        }
    }
    assert_eq!(seen, [7, 3, 1]);
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("hexadecimal")).collect()
}

#[test]
fn tokens_come_back_from_bytes_and_text_and_are_admitted() {
    let keys = TestKeys::new();
    for named in tokens::all(&keys) {
        let token: Token = named.token.to_text().parse().unwrap();
        assert_eq!(
            (token.body(), &*token.to_bytes()),
            (named.token.body(), &*named.token.to_bytes()),
            "{}",
            named.name
        );
        let admitted = token::admit(&keys, token.body(), Proof::Bearer(token.signature()), contexts::peer(Way::Unix));
        assert!(admitted.is_ok(), "{}", named.name);
        for binding in [Binding::Exporter([7; 32]), Binding::Challenge([8; 16])] {
            let proof = token.proof(&binding);
            let admit = |binding, proof| {
                token::admit(&keys, token.body(), Proof::Bound(binding, proof), contexts::peer(Way::TlsProof)).map(drop)
            };
            assert_eq!(admit(&binding, &proof), Ok(()));
            let mut wrong = proof;
            wrong[31] ^= 1;
            assert_eq!(admit(&binding, &wrong).unwrap_err().code(), Code::CapabilityRefused);
            // A proof for one connection is of no use on another.
            assert_eq!(admit(&Binding::Exporter([9; 32]), &proof).unwrap_err().code(), Code::CapabilityRefused);
        }
    }
}

#[test]
fn no_byte_of_a_token_can_be_changed() {
    let keys = TestKeys::new();
    let all = tokens::all(&keys);
    for name in refused::FLIPPED {
        let named = all.iter().find(|named| named.name == name).expect("a token of that name");
        let bytes = named.token.to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.to_vec();
                changed[at] ^= 1 << bit;
                let Ok(token) = Token::from_bytes(&changed) else { continue };
                let admitted =
                    token::admit(&keys, token.body(), Proof::Bearer(token.signature()), contexts::peer(Way::Unix));
                assert!(admitted.is_err(), "{name}: byte {at}, bit {bit}");
            }
        }
    }
}

#[test]
fn invalid_tokens_are_refused() {
    let keys = TestKeys::new();
    refused::check(&keys);
}

/// Rules for a block, short.
fn grant_rules(id: u8, grants: &[(&str, &str)]) -> Rules {
    let grant = |(rights, on): &(&str, &str)| tokens::grant(rights, on);
    Rules { grants: grants.iter().map(grant).collect(), ids: vec![TokenId([id; 8])], ..Rules::default() }
}

fn rights(names: &str) -> Rights {
    names.split(',').map(|name| name.parse::<token::Right>().expect("a right")).collect()
}

fn net(text: &str) -> Net {
    text.parse().expect("a network")
}

fn ways(all: &[Way]) -> Option<Ways> {
    Ways::from_bits(all.iter().fold(0, |bits, way| bits | *way as u8))
}

fn rate(per_second: u16, burst: u16) -> Option<Rate> {
    Some(Rate { per_second, burst })
}
