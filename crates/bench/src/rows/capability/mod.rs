//! Capabilities: what it costs to verify one when a client comes, and to check each of its requests.

use super::Measured;
use crate::{
    Context, Outcome,
    measure::{Repeated, mean_us, repeat},
};
use hmac::{Hmac, KeyInit, Mac};
use millrace_security::token::{
    Action, AuthorityId, Binding, Caller, Grant, Key, Keys, Kind, Now, Peer, Proof, Purpose, Rate, Rates, Resource,
    Right, Rules, Token, TokenId, Way, admit, check, recover,
};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
        UnparsedPublicKey,
    },
};
use sha2::Sha256;
use std::hint::black_box;

const COUNT: u64 = 200_000;
/// Signatures with public keys take much longer.
const PEER_COUNT: u64 = 10_000;
const AUTHORITY: AuthorityId = AuthorityId([7; 8]);

struct OneKey(Key);

impl Keys for OneKey {
    fn key(&self, authority: AuthorityId, generation: u16) -> Option<&Key> {
        (authority == AUTHORITY && generation == 1).then_some(&self.0)
    }

    fn is_revoked(&self, id: TokenId) -> bool {
        black_box(id) == TokenId([0xff; 8])
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

fn keys() -> OneKey {
    OneKey(Key::new(&[5; 32]))
}

/// A typical chain of this number of blocks: a grant, then a narrower one, a time, a network, a subject.
fn chain(keys: &OneKey, blocks: u8) -> Outcome<Token> {
    let grant = |name: &str, rights: &[Right]| Grant {
        kind: Kind::Log,
        name: name.as_bytes().into(),
        subtree: true,
        rights: rights.iter().copied().collect(),
    };
    let id = |id: u8| Rules { ids: vec![TokenId([id; 8])], ..Rules::default() };
    let first = Rules { grants: vec![grant("raw", &[Right::Read, Right::Append])], ..id(1) };
    let mut token = Token::issue(&keys.0, AUTHORITY, 1, &first)?;
    for block in 1..blocks {
        token = token.attenuate(&match block {
            1 => Rules { not_after: Some(u32::MAX), ..id(2) },
            2 => Rules { grants: vec![grant("raw/kitchen", &[Right::Append])], ..id(3) },
            3 => Rules { nets: vec!["10.0.0.0/8".parse()?], ..id(4) },
            _ => Rules { subject: Some(b"alice"[..].into()), ..id(5) },
        })?;
    }
    Ok(token)
}

fn peer() -> Outcome<Peer> {
    Ok(Peer { way: Way::TlsProof, address: Some("10.1.2.3".parse()?), key: None })
}

fn hmac_us(repetitions: usize, bytes: &[u8]) -> Outcome<Repeated> {
    repeat(repetitions, || {
        mean_us(COUNT, || {
            let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(black_box(&[5; 32]))?;
            mac.update(bytes);
            black_box(mac.finalize());
            Ok(())
        })
    })
}

/// What verifying one signature of the same bytes takes: Ed25519, and ECDSA over P-256.
fn signatures_us(repetitions: usize, bytes: &[u8]) -> Outcome<(f64, f64)> {
    let failed = |_| "ring refuses its own key";
    let edwards = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).map_err(|_| "ring refuses a seed")?;
    let signed = edwards.sign(bytes);
    let public = UnparsedPublicKey::new(&ED25519, edwards.public_key().as_ref());
    let verify = || Ok(public.verify(black_box(bytes), signed.as_ref()).map_err(failed)?);
    let ed25519 = repeat(repetitions, || mean_us(PEER_COUNT, verify))?;
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(failed)?;
    let curve = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random)
        .map_err(|_| "ring refuses its own key")?;
    let signed = curve.sign(&random, bytes).map_err(failed)?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, curve.public_key().as_ref());
    let verify = || Ok(public.verify(black_box(bytes), signed.as_ref()).map_err(failed)?);
    let p256 = repeat(repetitions, || mean_us(PEER_COUNT, verify))?;
    Ok((ed25519.median(), p256.median()))
}

fn verify(context: &Context, blocks: u8, limit_us: f64) -> Outcome<Measured> {
    let (keys, peer) = (keys(), peer()?);
    let token = chain(&keys, blocks)?;
    let repetitions = context.repetitions(11);
    let body = token.body();
    let verified = repeat(repetitions, || {
        mean_us(COUNT, || {
            black_box(recover(&keys, black_box(body))?);
            Ok(())
        })
    })?;
    let binding = Binding::Exporter([9; 32]);
    let proof = token.proof(&binding);
    let admitted = repeat(repetitions, || {
        mean_us(COUNT, || {
            black_box(admit(&keys, black_box(body), Proof::Bound(&binding, &proof), peer)?);
            Ok(())
        })
    })?;
    let hmac = hmac_us(repetitions, body)?;
    let (ed25519, p256) = signatures_us(repetitions.min(5), body)?;
    let text = format!("≤ {limit_us} µs");
    Ok(Measured::new(verified.median(), COUNT * repetitions as u64)
        .target(text, verified.median() <= limit_us)
        .also("with proof of possession", admitted.median(), "µs")
        .peer("HMAC-SHA-256 of the same bytes", hmac.median())
        .peer("Ed25519 verify of the same bytes", ed25519)
        .peer("ECDSA P-256 verify of the same bytes", p256)
        .note(format!(
            "The time to parse a body of {} bytes, read its rules and compute its signature, {}. With proof of \
             possession: two more HMACs and the comparison, which are made once for each connection.",
            body.len(),
            verified.spread()
        )))
}

pub fn verify_1(context: &Context) -> Outcome<Measured> {
    verify(context, 1, 0.4)
}

pub fn verify_3(context: &Context) -> Outcome<Measured> {
    verify(context, 3, 0.9)
}

pub fn verify_5(context: &Context) -> Outcome<Measured> {
    verify(context, 5, 1.5)
}

fn check_us(repetitions: usize, caller: &Caller) -> Outcome<Repeated> {
    let action = Action {
        right: Right::Append,
        on: Resource::log("raw/kitchen"),
        bytes: 1024,
        purpose: Purpose::Request,
        below: false,
    };
    repeat(repetitions, || {
        mean_us(COUNT, || {
            check(black_box(caller), black_box(&action), Now::at(1_800_000_000), &Unlimited)?;
            Ok(())
        })
    })
}

pub fn request(context: &Context) -> Outcome<Measured> {
    let (keys, peer) = (keys(), peer()?);
    let repetitions = context.repetitions(11);
    let caller = |blocks| -> Outcome<Caller> {
        let token = chain(&keys, blocks)?;
        Ok(admit(&keys, token.body(), Proof::Bearer(token.signature()), peer)?)
    };
    let five = check_us(repetitions, &caller(5)?)?;
    let one = check_us(repetitions, &caller(1)?)?;
    let owner = check_us(repetitions, &Caller::owner(peer))?;
    Ok(Measured::new(five.median(), COUNT * repetitions as u64)
        .target("≤ 0.2 µs", five.median() <= 0.2)
        .also("a chain of one block", one.median(), "µs")
        .peer("the owner's request", owner.median())
        .note(format!(
            "The check of an append against a chain of five blocks, {}; the signatures are not verified \
            again.",
            five.spread()
        )))
}
