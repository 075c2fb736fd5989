//! Whether the time of a refusal depends on how much of a proof is right. It measures times, so it runs only with MILLRACE_TIMING=1, and
//! alone, as in `make test-all`.

use millrace_security::token::{
    AuthorityId, Binding, Grant, Key, Keys, Peer, Proof, Rights, Rules, Token, TokenId, Way, admit,
};
use std::{hint::black_box, time::Instant};

/// Refusals of each kind that are timed.
const SAMPLES: usize = 300_000;
/// Of so many thousandths of all samples, the slowest, something else took the time.
const CROPPED: usize = 100;
/// Welch's t of two kinds of refusals that take the same time is above this in one of 10^20 tests, if samples are independent; the rest is
/// for what is not.
const T_MAX: f64 = 10.0;

const HOME: AuthorityId = AuthorityId(*b"homehome");

struct OneKey(Key);

impl Keys for OneKey {
    fn key(&self, _: AuthorityId, _: u16) -> Option<&Key> {
        Some(&self.0)
    }

    fn is_revoked(&self, _: TokenId) -> bool {
        false
    }

    fn epoch(&self) -> u64 {
        0
    }
}

/// Welch's t of the times that `refuse` takes for each of two proofs, which alternate at random.
fn t_of(proofs: [[u8; 32]; 2], mut refuse: impl FnMut(&[u8; 32])) -> f64 {
    let mut times: Vec<(usize, u64)> = Vec::with_capacity(2 * SAMPLES);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2 * SAMPLES {
        // xorshift
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let kind = (random >> 33) as usize & 1;
        let began = Instant::now();
        refuse(black_box(&proofs[kind]));
        times.push((kind, u64::try_from(began.elapsed().as_nanos()).unwrap()));
    }
    let mut sorted: Vec<u64> = times.iter().map(|(_, time)| *time).collect();
    sorted.sort_unstable();
    let most = sorted[sorted.len() - 1 - sorted.len() * CROPPED / 1000];
    let moments = [0, 1].map(|wanted| {
        let of_kind =
            || times.iter().filter(|(kind, time)| *kind == wanted && *time <= most).map(|(_, time)| *time as f64);
        let count = of_kind().count() as f64;
        let mean = of_kind().sum::<f64>() / count;
        let variance = of_kind().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    let [(first, of_first), (last, of_last)] = moments;
    ((first - last) / (of_first + of_last).sqrt()).abs()
}

#[test]
fn the_time_of_a_refusal_does_not_depend_on_how_much_of_a_proof_is_right() {
    // Beside other tests it would show nothing.
    if std::env::var_os("MILLRACE_TIMING").is_none() {
        return;
    }
    let key = Key::new(&[7; 32]);
    let grant = Grant::namespace(Rights::ALL);
    let token =
        Token::issue(&key, HOME, 1, &Rules { grants: vec![grant], ids: vec![TokenId([1; 8])], ..Rules::default() })
            .unwrap();
    let binding = Binding::Exporter([9; 32]);
    let right: [u8; 32] = token.proof(&binding);
    let proofs = [0, 31].map(|wrong| {
        let mut proof = right;
        proof[wrong] ^= 1;
        proof
    });
    let (keys, peer) = (OneKey(key), Peer { way: Way::TlsProof, address: None, key: None });
    let refuse = |proof: &[u8; 32]| {
        let admitted = admit(&keys, token.body(), Proof::Bound(&binding, proof), peer);
        assert!(black_box(admitted).is_err());
    };
    // A comparison that ends at the first difference is noticed, so the method can tell.
    let naive = |proof: &[u8; 32]| {
        refuse(proof);
        assert!(!black_box(right.iter().zip(proof).all(|(one, other)| black_box(one) == black_box(other))));
    };
    let naive = t_of(proofs, naive);
    assert!(naive > T_MAX, "a naive comparison is not noticed: t = {naive:.1}");
    let t = t_of(proofs, refuse);
    println!("t = {t:.1}; of a naive comparison {naive:.1}");
    assert!(t < T_MAX, "the times differ: t = {t:.1}");
}
