//! Channels: both messages, the records of both directions, and bytes that the other side refuses.

use crate::{
    TestKeys, contexts, hex,
    tokens::{Named, find},
};
use millrace_security::{
    channel::{Accepted, Channel, Connecting, First, Nonce, Offered},
    token::{Keys, Way},
};
use millrace_wire::Code;
use serde_json::{Value, json};

struct Case {
    token: &'static str,
    nonces: [Nonce; 2],
    /// The longest record that the client takes, and the host.
    limits: [u16; 2],
    /// What the client sends, and the host; the first of the client's is its first record.
    plains: [Vec<Vec<u8>>; 2],
}

fn cases() -> Vec<Case> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        Case {
            token: "chain 1",
            nonces: [[1; 16], [2; 16]],
            limits: [64, 16384],
            plains: [vec![text("hello"), text("a"), vec![0; 300]], vec![text("welcome"), vec![0xff; 48], text("")]],
        },
        Case {
            token: "chain 8",
            nonces: [[0; 16], [0xff; 16]],
            limits: [16384, 64],
            plains: [vec![vec![]], vec![vec![]]],
        },
        Case {
            token: "merged and expiring",
            nonces: [*b"0123456789abcdef", *b"fedcba9876543210"],
            limits: [1024, 512],
            plains: [vec![vec![7; 496]], vec![vec![9; 1008]]],
        },
    ]
}

/// Sends each text: one record, or as many as its length takes.
fn seal(channel: &mut Channel, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match plain.is_empty() {
        true => channel.sealer.seal_empty(&mut out).unwrap(),
        false => channel.sealer.seal(plain, &mut out).unwrap(),
    }
    out
}

/// What a side makes of bytes, until there are no whole records.
fn open(channel: &mut Channel, mut bytes: &[u8]) -> Result<Vec<u8>, Code> {
    let mut plain = Vec::new();
    while let Some(used) = channel.opener.open(bytes, &mut plain).map_err(|error| error.code())? {
        bytes = &bytes[used..];
    }
    assert!(bytes.is_empty(), "{} bytes are left", bytes.len());
    Ok(plain)
}

struct Handshake {
    m1: Vec<u8>,
    m2: Vec<u8>,
    client: Channel,
    host: Accepted,
}

fn shake(all: &[Named], keys: &dyn Keys, case: &Case) -> Handshake {
    let connecting = Connecting::new(&find(all, case.token).token, &case.nonces[0], case.limits[0]).unwrap();
    let m1 = connecting.m1().to_vec();
    for cut in 0..m1.len() {
        assert!(Offered::read(&m1[..cut]).unwrap().is_none(), "M1 cut at {cut}");
    }
    let (offered, used) = Offered::read(&m1).unwrap().expect("M1 is whole");
    assert_eq!(used, m1.len());
    let host = offered.accept(keys, &case.nonces[1], case.limits[1]).unwrap();
    let m2 = host.m2().to_vec();
    for cut in 0..m2.len() {
        assert!(connecting.receive(&m2[..cut]).unwrap().is_none(), "M2 cut at {cut}");
    }
    let (client, used) = connecting.receive(&m2).unwrap().expect("M2 is whole");
    assert_eq!(used, m2.len());
    Handshake { m1, m2, client, host }
}

/// The host's channel, once it has the client's first record.
fn first(host: Accepted, keys: &dyn Keys, record: &[u8]) -> (Channel, Vec<u8>, usize) {
    let mut host = host;
    let length = 2 + usize::from(u16::from_le_bytes([record[0], record[1]]));
    for cut in 0..length {
        let First::Incomplete(again) = host.receive(keys, contexts::peer(Way::Channel), &record[..cut]).unwrap() else {
            panic!("a cut record is taken for a whole one");
        };
        host = again;
    }
    match host.receive(keys, contexts::peer(Way::Channel), record).unwrap() {
        First::Open { channel, plain, used, .. } => (channel, plain, used),
        First::Incomplete(_) => panic!("the first record is there"),
    }
}

fn run(all: &[Named], keys: &dyn Keys, case: &Case) -> Value {
    let Handshake { m1, m2, mut client, host } = shake(all, keys, case);
    let from_client: Vec<Vec<u8>> = case.plains[0].iter().map(|plain| seal(&mut client, plain)).collect();
    let stream = from_client.concat();
    let (mut host, mut plain, used) = first(host, keys, &stream);
    plain.extend(open(&mut host, &stream[used..]).unwrap());
    assert_eq!(plain, case.plains[0].concat());
    let from_host: Vec<Vec<u8>> = case.plains[1].iter().map(|plain| seal(&mut host, plain)).collect();
    assert_eq!(open(&mut client, &from_host.concat()).unwrap(), case.plains[1].concat());
    let texts = |plains: &[Vec<u8>], records: &[Vec<u8>]| -> Value {
        plains.iter().zip(records).map(|(plain, sent)| json!({ "plain": hex(plain), "sent": hex(sent) })).collect()
    };
    json!({
        "token": case.token, "client_nonce": hex(&case.nonces[0]), "host_nonce": hex(&case.nonces[1]),
        "client_takes": case.limits[0], "host_takes": case.limits[1], "m1": hex(&m1), "m2": hex(&m2),
        "from_client": texts(&case.plains[0], &from_client), "from_host": texts(&case.plains[1], &from_host),
        "broken": broken(all, keys, case),
    })
}

/// Bytes that a side receives after the handshake; it refuses the last record of each.
fn broken(all: &[Named], keys: &dyn Keys, case: &Case) -> Value {
    let mut shaken = shake(all, keys, case);
    let sent: Vec<Vec<u8>> =
        [&b"one"[..], b"two", b"three"].iter().map(|plain| seal(&mut shaken.client, plain)).collect();
    let (mut host, ..) = first(shaken.host, keys, &sent[0]);
    let back = seal(&mut host, b"back");
    let flip = |at: usize| {
        let mut record = sent[0].clone();
        record[at] ^= 1;
        record
    };
    let too_long = [&(case.limits[1] + 1).to_le_bytes()[..], &vec![0; usize::from(case.limits[1]) + 1]].concat();
    let broken: Vec<(String, &str, Vec<u8>)> = [
        ("the first record again".into(), "host", [&sent[0][..], &sent[0]].concat()),
        ("the second record first".into(), "host", sent[1].clone()),
        ("the second record left out".into(), "host", [&sent[0][..], &sent[2]].concat()),
        ("the host's record sent back to it".into(), "host", back),
        ("the client's record sent back to it".into(), "client", sent[0].clone()),
        ("a record that is too long".into(), "host", too_long),
        ("a record without a tag".into(), "host", [&15u16.to_le_bytes()[..], &[0; 15]].concat()),
        ("a record of no bytes".into(), "host", vec![0, 0]),
    ]
    .into_iter()
    // Not in the length: the host would wait for more, or for less.
    .chain((2..sent[0].len()).map(|at| (format!("byte {at} changed"), "host", flip(at))))
    .collect();
    for (name, side, bytes) in &broken {
        let shaken = shake(all, keys, case);
        let refused = match *side {
            "client" => {
                let mut client = shaken.client;
                let refused = open(&mut client, bytes).err();
                assert_eq!(open(&mut client, bytes).err(), Some(Code::ChannelBroken), "after {name} it goes on");
                refused
            }
            _ => match shaken.host.receive(keys, contexts::peer(Way::Channel), bytes) {
                Ok(First::Open { mut channel, used, .. }) => open(&mut channel, &bytes[used..]).err(),
                Ok(First::Incomplete(_)) => None,
                Err(error) => Some(error.code()),
            },
        };
        assert_eq!(refused, Some(Code::ChannelBroken), "{}: {name}", case.token);
    }
    broken.iter().map(|(name, to, bytes)| json!({ "name": name, "to": to, "bytes": hex(bytes) })).collect()
}

pub fn all(all: &[Named], keys: &TestKeys) -> Value {
    cases().iter().map(|case| run(all, keys, case)).collect()
}

#[test]
fn every_byte_of_both_messages_counts() {
    let keys = TestKeys::new();
    let all = crate::tokens::all(&keys);
    let case = &cases()[0];
    let connecting = Connecting::new(&find(&all, case.token).token, &case.nonces[0], case.limits[0]).unwrap();
    let handshake = shake(&all, &keys, case);
    for (at, bit) in (0..handshake.m2.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut m2 = handshake.m2.clone();
        m2[at] ^= 1 << bit;
        assert!(connecting.receive(&m2).is_err(), "M2 byte {at}, bit {bit}");
    }
    for (at, bit) in (0..handshake.m1.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut m1 = handshake.m1.clone();
        m1[at] ^= 1 << bit;
        // The host may accept another token or nonce; then the client does not take what it answers.
        let Ok(Some((offered, _))) = Offered::read(&m1) else { continue };
        let Ok(host) = offered.accept(&keys, &case.nonces[1], case.limits[1]) else { continue };
        assert!(connecting.receive(host.m2()).is_err(), "M1 byte {at}, bit {bit}");
    }
}

#[test]
fn a_host_without_the_key_and_a_client_without_the_signature_are_found_out() {
    let keys = TestKeys::new();
    let all = crate::tokens::all(&keys);
    let case = &cases()[0];
    let token = &find(&all, case.token).token;
    // A false host that knows the body, and has another key under the same name.
    let connecting = Connecting::new(token, &case.nonces[0], 1024).unwrap();
    let false_token = {
        let chain = millrace_security::token::inspect(token.body()).unwrap();
        millrace_security::token::Token::issue(&crate::public_key(9), crate::HOME, 1, &chain.parts[0].blocks[0].rules)
            .unwrap()
    };
    assert_eq!(false_token.body(), token.body());
    struct FalseKeys(millrace_security::token::Key);
    impl Keys for FalseKeys {
        fn key(&self, _: millrace_security::token::AuthorityId, _: u16) -> Option<&millrace_security::token::Key> {
            Some(&self.0)
        }
        fn is_revoked(&self, _: millrace_security::token::TokenId) -> bool {
            false
        }
        fn epoch(&self) -> u64 {
            0
        }
    }
    let false_keys = FalseKeys(crate::public_key(9));
    let (offered, _) = Offered::read(connecting.m1()).unwrap().unwrap();
    let accepted = offered.accept(&false_keys, &case.nonces[1], 1024).unwrap();
    assert_eq!(connecting.receive(accepted.m2()).err().map(|error| error.code()), Some(Code::ChannelBroken));
    // A client that saw M1, and makes records with another signature.
    let accepted = offered.accept(&keys, &case.nonces[1], 1024).unwrap();
    let thief = Connecting::new(&false_token, &case.nonces[0], 1024).unwrap();
    let (mut channel, _) = {
        let (offered, _) = Offered::read(thief.m1()).unwrap().unwrap();
        let own = offered.accept(&false_keys, &case.nonces[1], 1024).unwrap();
        thief.receive(own.m2()).unwrap().unwrap()
    };
    let record = seal(&mut channel, b"hello");
    let refused = accepted.receive(&keys, contexts::peer(Way::Channel), &record);
    assert_eq!(refused.err().map(|error| error.code()), Some(Code::ChannelBroken));
    // The whole handshake played again: the host has another nonce, so the old records mean nothing.
    let mut old = shake(&all, &keys, case);
    let record = seal(&mut old.client, b"hello");
    let (offered, _) = Offered::read(&old.m1).unwrap().unwrap();
    let again = offered.accept(&keys, &[3; 16], 1024).unwrap();
    assert!(again.receive(&keys, contexts::peer(Way::Channel), &record).is_err());
}

#[test]
fn what_is_no_handshake_is_refused() {
    let keys = TestKeys::new();
    let all = crate::tokens::all(&keys);
    let token = &find(&all, "chain 1").token;
    for limit in [0, 63, 16385, u16::MAX] {
        assert!(Connecting::new(token, &[0; 16], limit).is_err(), "{limit}");
    }
    let connecting = Connecting::new(token, &[0; 16], 64).unwrap();
    assert_eq!(connecting.receive(&[0, 0]).err().map(|error| error.code()), Some(Code::ChannelRefused));
    let handshake = shake(&all, &keys, &cases()[0]);
    for (at, bytes) in [(0, &b"MR/2"[..]), (4, &[18, 0]), (4, &[0xff, 0xff]), (6, &[2]), (7, &[63, 0]), (7, &[1, 0x40])]
    {
        let mut m1 = handshake.m1.clone();
        m1[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(Offered::read(&m1).err().map(|error| error.code()), Some(Code::ChannelBroken), "{at} {bytes:?}");
    }
    let (offered, _) = Offered::read(&handshake.m1).unwrap().unwrap();
    let mut keys = TestKeys::new();
    keys.revoked.insert(millrace_security::token::TokenId([1; 8]));
    let refused = offered.accept(&keys, &[0; 16], 64).err().map(|error| error.code());
    assert_eq!(refused, Some(Code::CapabilityRefused));
}
