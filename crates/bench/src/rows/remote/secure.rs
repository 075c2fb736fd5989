//! tls.append, channel.append: what encryption adds to an append.

use super::{Host, PACE, append::paced};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, figure},
    rows::{Measured, namespace_with_logs},
};
use millrace_client::{Credentials, Options, blocking};
use millrace_journal::Durability;
use millrace_node::{
    secrets::{Authority, HostKey},
    token::{Grant, Rights, Rules, TokenId},
};
use std::sync::Arc;

const COUNT: u64 = 400;

/// A host, and clients of its namespace without encryption, through TLS and through the channel.
struct Ways {
    _host: Host,
    clear: blocking::Client,
    tls: blocking::Client,
    channel: blocking::Client,
}

fn ways(context: &Context) -> Outcome<Ways> {
    let dir = context.fresh()?;
    for (name, durability) in [("memory", Durability::Memory), ("disk", Durability::Disk)] {
        namespace_with_logs(&dir.path().join(name), durability, &[("a", 10_000)])?;
    }
    let namespace = dir.path().join("memory");
    let pin = HostKey::ensure(&namespace)?.pin;
    let everything =
        Rules { grants: vec![Grant::namespace(Rights::ALL)], ids: vec![TokenId([1; 8])], ..Rules::default() };
    let token = Authority::ensure(&namespace)?.issue(&everything)?;
    let host = Host::serve(context, dir, 0, &super::BOTH)?;
    let client = |credentials: Credentials| -> Outcome<blocking::Client> {
        let options = Options { credentials: Some(Arc::new(credentials)), ..Options::default() };
        Ok(blocking::Client::connect(&host.place("memory")?, &options)?)
    };
    Ok(Ways {
        clear: client(Credentials::default())?,
        tls: client(Credentials { capability: Some(token.clone()), pin: Some(pin), ..Credentials::default() })?,
        channel: client(Credentials::of(token))?,
        _host: host,
    })
}

/// Appends without encryption and `safely`, in turn.
fn beside(context: &Context, limit: f64, safely: impl Fn(&Ways) -> &blocking::Client, what: &str) -> Outcome<Measured> {
    let ways = ways(context)?;
    let clients = [&ways.clear, safely(&ways)];
    for client in clients {
        paced(client, COUNT, &mut Samples::new())?;
    }
    let mut all = [Samples::new(), Samples::new()];
    let (mut p50, mut ratio) = (Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(11) {
        let mut now = [Samples::new(), Samples::new()];
        for (client, samples) in clients.iter().zip(&mut now) {
            paced(client, COUNT, samples)?;
        }
        p50.push(now[1].p50_us());
        ratio.push(now[1].p50_us() / now[0].p50_us());
        for (all, now) in all.iter_mut().zip(&now) {
            all.add(now);
        }
    }
    let [clear, safe] = &all;
    Ok(Measured::new(p50.median(), safe.count())
        .spread_us(safe)
        .target(format!("p50 ≤ {limit} × unencrypted"), ratio.median() <= limit)
        .also("ratio to unencrypted", ratio.median(), "")
        .peer("unencrypted, p50", clear.p50_us())
        .peer("unencrypted, p99", clear.p99_us())
        .note(format!(
            "One blocking client over TCP {what} appends 1 KiB with durability memory, the next record {} µs after \
             the answer; {COUNT} unencrypted appends alternate with as many encrypted ones. Ratio in the same \
             repetition: {}.",
            figure(PACE.as_micros() as f64),
            ratio.spread()
        )))
}

pub fn tls(context: &Context) -> Outcome<Measured> {
    beside(context, 1.3, |ways| &ways.tls, "with TLS 1.3 (AES-256-GCM or ChaCha20-Poly1305, as the library chooses)")
}

pub fn channel(context: &Context) -> Outcome<Measured> {
    beside(context, 1.15, |ways| &ways.channel, "through the channel (ChaCha20-Poly1305)")
}
