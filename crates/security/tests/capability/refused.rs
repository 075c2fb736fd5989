//! Bodies that are none, and tokens that no key has made.

use crate::{
    HOME, TestKeys, contexts, grant_rules, hex, public_key,
    tokens::{self, Named, find},
};
use millrace_security::token::{self, AuthorityId, Proof, Rules, Signature, Token, TokenId, Way};
use millrace_wire::Code;
use serde_json::{Value, json};

/// Every byte of these is changed.
pub const FLIPPED: [&str; 4] = ["chain 1", "chain 5", "every item", "merged and expiring"];

fn chain(blocks: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![1];
    body.extend(HOME.0);
    body.extend([1, 0, blocks.len() as u8]);
    for block in blocks {
        body.extend((block.len() as u16).to_le_bytes());
        body.extend_from_slice(block);
    }
    body
}

fn item(tag: u8, value: &[u8]) -> Vec<u8> {
    [&[tag, value.len() as u8], value].concat()
}

/// A first block with these items between its grant and its id.
fn with(items: &[u8]) -> Vec<u8> {
    chain(&[&[&item(1, b"\x01\x01\x00raw")[..], items, &item(16, &[1; 8])].concat()])
}

/// A block that follows a first one that is right.
fn second(items: &[u8]) -> Vec<u8> {
    chain(&[&[item(1, b"\x01\x01\x00raw"), item(16, &[1; 8])].concat(), items])
}

fn merged(parts: &[&[u8]], blocks: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![129, parts.len() as u8];
    for part in parts {
        body.extend((part.len() as u16).to_le_bytes());
        body.extend_from_slice(part);
    }
    body.push(blocks.len() as u8);
    blocks.iter().for_each(|block| body.extend([&(block.len() as u16).to_le_bytes()[..], block].concat()));
    body
}

fn all_malformed() -> Vec<(String, Vec<u8>)> {
    let right = with(&[]);
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, body: Vec<u8>| all.push((name.to_owned(), body));
    (0..right.len()).for_each(|cut| add(&format!("cut at {cut}"), right[..cut].to_vec()));
    add("a byte too many", [&right[..], &[0]].concat());
    for version in [0, 2, 127, 128, 130, 255] {
        add(&format!("version {version}"), [&[version], &right[1..]].concat());
    }
    add("no block", chain(&[]));
    add("nine blocks", chain(&[&right[14..], &[], &[], &[], &[], &[], &[], &[], &[]]));
    let mut lies = right.clone();
    lies[11] = 255;
    add("255 blocks of which there is one", lies);
    add("10000 blocks, counted in two bytes", [&right[..11], &10_000u16.to_le_bytes(), &right[12..]].concat());
    add("no grant in the first block", chain(&[&item(16, &[1; 8])]));
    add("no id in the first block", chain(&[&item(1, b"\x01\x01\x00raw")]));
    add("an empty first block", chain(&[&[]]));
    for tag in [0, 11, 15, 19, 127, 255] {
        add(&format!("unknown item {tag}"), second(&item(tag, &[])));
    }
    for (name, items) in [
        ("tags that descend", [item(3, &[0; 4]), item(2, &[0; 4])].concat()),
        ("NOT_AFTER twice", [item(2, &[0; 4]), item(2, &[0; 4])].concat()),
        ("RATE twice", [item(8, &[1, 0, 1, 0]), item(8, &[1, 0, 1, 0])].concat()),
        ("ONCE twice", [item(10, &[]), item(10, &[])].concat()),
        ("SUBJECT twice", [item(17, b"a"), item(17, b"b")].concat()),
        ("a tag without a length", vec![2]),
        ("a value longer than its block", vec![2, 4, 0, 0, 0]),
        ("a grant without rights", item(1, b"\x01\x00\x00raw")),
        ("a grant of an unknown right", item(1, b"\x01\x00\x10raw")),
        ("a grant of an unknown kind", item(1, b"\x06\x01\x00raw")),
        ("a grant of an unknown scope", item(1, b"\x41\x01\x00raw")),
        ("a grant of two bytes", item(1, b"\x01\x01")),
        ("a grant of an exact empty name", item(1, b"\x01\x01\x00")),
        ("a grant of the namespace with a name", item(1, b"\x00\x01\x00raw")),
        ("a grant of the namespace's subtree", item(1, b"\x80\x01\x00")),
        ("NOT_AFTER of three bytes", item(2, &[0; 3])),
        ("NOT_BEFORE of eight bytes", item(3, &[0; 8])),
        ("RECORD_MAX of no bytes", item(4, &[])),
        ("WAY of no way", item(5, &[0])),
        ("WAY of an unknown way", item(5, &[16])),
        ("WAY of two bytes", item(5, &[1, 0])),
        ("PEER_NET of 33 bits", item(6, &[33, 10, 0, 0, 0])),
        ("PEER_NET of 129 bits", item(6, &[[129].to_vec(), vec![0; 16]].concat())),
        ("PEER_NET of six bytes", item(6, &[8, 10, 0, 0, 0, 0])),
        ("PEER_NET of no bytes", item(6, &[])),
        ("PEER_KEY of 31 bytes", item(7, &[1; 31])),
        ("RATE of none per second", item(8, &[0, 0, 1, 0])),
        ("RATE without a burst", item(8, &[1, 0, 0, 0])),
        ("RATE of two bytes", item(8, &[1, 0])),
        ("SOURCE of zero", item(9, &[0; 6])),
        ("SOURCE of eight bytes", item(9, &[1; 8])),
        ("ONCE with a value", item(10, &[1])),
        ("ID of seven bytes", item(16, &[1; 7])),
        ("SUBJECT of no bytes", item(17, &[])),
        ("SUBJECT of 17 bytes", item(17, &[b's'; 17])),
        ("LABEL of no bytes", item(18, &[])),
        ("LABEL of 33 bytes", item(18, &[b'l'; 33])),
    ] {
        add(name, second(&items));
    }
    add(
        "longer than 992 bytes",
        chain(&[&right[14..], &[&item(1, &[&b"\x01\x01\x00"[..], &[b'n'; 252]].concat())[..]; 4].concat()]),
    );
    add("merged from one", merged(&[&right], &[]));
    add("merged from five", merged(&[&right[..]; 5], &[]));
    add("merged from none", merged(&[], &[]));
    add("merged within merged", merged(&[&right, &merged(&[&right, &right], &[])], &[]));
    add("merged with nine blocks", merged(&[&right, &right], &[&[][..]; 9]));
    add("merged without its number of blocks", merged(&[&right, &right], &[])[..2 + 2 * (2 + right.len())].to_vec());
    add("merged with a part that is longer than it says", {
        let mut body = merged(&[&right, &right], &[]);
        body[2] -= 1;
        body
    });
    all
}

pub fn malformed() -> Value {
    all_malformed().iter().map(|(name, body)| json!({ "name": name, "body": hex(body) })).collect()
}

/// Tokens that are well-formed and must not be accepted, and what is revoked.
fn all_forged(all: &[Named]) -> Vec<(&'static str, Vec<u8>, Vec<TokenId>)> {
    let bytes = |name: &str| find(all, name).token.to_bytes().to_vec();
    let signature = |name: &str| bytes(name).split_off(find(all, name).token.body().len());
    let body = |name: &str| find(all, name).token.body().to_vec();
    let rules = grant_rules(1, &[("read", "log:raw")]);
    let issue = |key: u8, authority, generation| {
        Token::issue(&public_key(key), authority, generation, &rules).unwrap().to_bytes().to_vec()
    };
    let chain2 = body("chain 2");
    // The first block of chain 2 is all of chain 1.
    let (first, block2) = (&body("chain 1")[12..], &chain2[body("chain 1").len()..]);
    let head = |count| [&chain2[..11], &[count]].concat();
    let own = |parts: &[&[u8]], signature: &[u8]| [&parts.concat(), signature].concat();
    vec![
        ("a key that is nobody's", issue(77, HOME, 1), vec![]),
        ("another generation's key", issue(1, HOME, 2), vec![]),
        ("an unknown generation", issue(1, HOME, 3), vec![]),
        ("an unknown authority", issue(1, AuthorityId([0; 8]), 1), vec![]),
        ("the last block taken away", own(&[&head(1), first], &signature("chain 2")), vec![]),
        ("a block appended without its signature", own(&[&chain2], &signature("chain 1")), vec![]),
        ("the last block twice", own(&[&head(3), first, block2, block2], &signature("chain 2")), vec![]),
        ("a later block first", own(&[&body("chain 5")], &signature("chain 4")), vec![]),
        (
            "a block of another chain",
            own(&[&head(2), first, &body("way")[body("every log").len()..]], &signature("chain 2")),
            vec![],
        ),
        ("merged with the signature of a part", own(&[&body("merged 2")], &signature("group")), vec![]),
        ("a part of merged ones with their signature", own(&[&body("group")], &signature("merged 2")), vec![]),
        ("the signature of what it was squashed from", own(&[&body("squashed 8")], &signature("chain 8")), vec![]),
        ("no signature", own(&[&body("chain 1")], &[0; 32]), vec![]),
        ("the first id revoked", bytes("chain 3"), vec![TokenId([1; 8])]),
        ("the last id revoked", bytes("chain 3"), vec![TokenId([3; 8])]),
        ("squashed, an id in the middle revoked", bytes("squashed 8"), vec![TokenId([4; 8])]),
        ("merged, both parts revoked", bytes("merged 2"), vec![TokenId([1; 8]), TokenId([12; 8])]),
        ("merged, a block behind the parts revoked", bytes("merged and expiring"), vec![TokenId([23; 8])]),
    ]
}

pub fn forged(all: &[Named]) -> Value {
    let case = |(name, bytes, revoked): (&str, Vec<u8>, Vec<TokenId>)| {
        let revoked: Vec<String> = revoked.iter().map(TokenId::to_string).collect();
        json!({ "name": name, "token": hex(&bytes), "revoked": revoked })
    };
    all_forged(all).into_iter().map(case).collect()
}

fn code_of(body: &[u8], keys: &TestKeys, signature: &[u8; 32]) -> Option<Code> {
    let admitted = token::admit(keys, body, Proof::Bearer(&Signature::of(signature)), contexts::peer(Way::Unix));
    admitted.err().map(|error| {
        assert_eq!(error.detail(), "the capability is not valid here", "it tells why");
        error.code()
    })
}

pub fn check(keys: &TestKeys) {
    for (name, body) in all_malformed() {
        let error = token::inspect(&body).err().unwrap_or_else(|| panic!("{name} is accepted"));
        assert_eq!(error.code(), Code::CapabilityMalformed, "{name}");
        let bytes = [&body[..], &[0; 32]].concat();
        assert_eq!(
            Token::from_bytes(&bytes).err().map(|error| error.code()),
            Some(Code::CapabilityMalformed),
            "{name}"
        );
        assert_eq!(code_of(&body, keys, &[0; 32]), Some(Code::CapabilityRefused), "{name}");
    }
    let all = tokens::all(keys);
    for (name, bytes, revoked) in all_forged(&all) {
        let (body, signature) = bytes.split_last_chunk::<32>().expect("a token has a signature");
        token::inspect(body).unwrap_or_else(|error| panic!("{name}: {error}"));
        let keys = TestKeys { revoked: revoked.into_iter().collect(), ..TestKeys::new() };
        assert_eq!(code_of(body, &keys, signature), Some(Code::CapabilityRefused), "{name}");
    }
    let right = find(&all, "chain 1").token.to_text();
    for text in [
        "",
        "mr1_",
        "mr2_AAAA",
        &right[4..],
        &format!("{}=", *right),
        &format!("{} ", *right),
        &right.replace("mr1_", "MR1_"),
    ] {
        assert_eq!(text.parse::<Token>().unwrap_err().code(), Code::CapabilityMalformed, "{text}");
    }
    let huge = format!("mr1_{}", "A".repeat(100_000));
    assert_eq!(huge.parse::<Token>().unwrap_err().code(), Code::CapabilityMalformed);
    let full = find(&all, "chain 8").token.attenuate(&Rules::default());
    assert_eq!(full.unwrap_err().code(), Code::CapabilityTooLong);
}
