//! table.remote: put and get through a host, one client, beside SET and GET of Redis.

use super::{LOG, Random, TABLE, VALUE, check_value, key, put_of, put_value, with_table};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, figure},
    peers::redis::{self, Redis},
    rows::{
        Measured,
        remote::{Host, PACE},
    },
};
use millrace_client::AppendOptions;
use millrace_wire::table::TableRequest;
use std::{thread, time::Instant};

const COUNT: u64 = 400;
const KEYS: u64 = 10_000;

/// So many operations on random keys, each a pace after the answer before.
fn paced(random: &mut Random, mut operation: impl FnMut(&[u8]) -> Outcome<()>) -> Outcome<Samples> {
    let mut samples = Samples::new();
    for _ in 0..COUNT {
        let key = key(random.below(KEYS));
        thread::sleep(PACE);
        let start = Instant::now();
        operation(&key)?;
        samples.record(start.elapsed());
    }
    Ok(samples)
}

pub fn remote(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    {
        let namespace = with_table(&dir.path().join("memory"), KEYS)?;
        (0..KEYS).try_for_each(|number| put_value(&namespace, number))?;
    }
    let host = Host::serve(context, dir, 0, &["memory=memory"])?;
    let client = host.client("memory")?;
    let redis_dir = context.fresh()?;
    let redis = Redis::start_forgetful(redis_dir.path())?;
    let mut asker = redis.as_ref().map(Redis::asker).transpose()?;
    if let Some(asker) = &mut asker {
        (0..KEYS).try_for_each(|number| asker.ask(&[b"SET", &key(number), &VALUE]).map(drop))?;
    }
    let ask = |request: &TableRequest<'_>| Ok(client.table(TABLE, request, AppendOptions::default())?);
    let put = |key: &[u8]| -> Outcome<()> { ask(&put_of(key, &VALUE)).map(drop) };
    let get = |key: &[u8]| -> Outcome<()> { check_value(&ask(&TableRequest::Get { key })?) };
    let append = |_: &[u8]| -> Outcome<()> { Ok(client.append(LOG, &VALUE, AppendOptions::default()).map(drop)?) };
    let mut random = Random(1);
    paced(&mut random, put)?;
    paced(&mut random, get)?;
    let mut all = [(); 5].map(|()| Samples::new());
    let (mut p50, mut over) = (Repeated::default(), [(); 2].map(|()| Repeated::default()));
    for _ in 0..context.repetitions(9) {
        let mut now = vec![paced(&mut random, put)?, paced(&mut random, get)?, paced(&mut random, append)?];
        p50.push(now[0].p50_us());
        if let Some(asker) = &mut asker {
            now.push(paced(&mut random, |key| asker.ask(&[b"SET", key, &VALUE]).map(drop))?);
            now.push(paced(&mut random, |key| asker.ask(&[b"GET", key]).map(drop))?);
            over[0].push(now[0].p50_us() / now[3].p50_us());
            over[1].push(now[1].p50_us() / now[4].p50_us());
        }
        all.iter_mut().zip(&now).for_each(|(all, now)| all.add(now));
    }
    let [puts, gets, appends, sets, redis_gets] = &all;
    let mut measured = Measured::new(p50.median(), puts.count())
        .spread_us(puts)
        .also("get, p50", gets.p50_us(), "µs")
        .also("get, p99", gets.p99_us(), "µs")
        .also("append of the same value to a log, p50", appends.p50_us(), "µs");
    if redis.is_some() {
        measured = measured
            .target("put ≤ 1.2 × Redis SET", over[0].median() <= 1.2)
            .target("get ≤ 1.2 × Redis GET", over[1].median() <= 1.2)
            .also("put, ratio to Redis SET", over[0].median(), "")
            .also("get, ratio to Redis GET", over[1].median(), "")
            .peer("Redis SET, p50", sets.p50_us())
            .peer("Redis SET, p99", sets.p99_us())
            .peer("Redis GET, p50", redis_gets.p50_us())
            .peer("Redis GET, p99", redis_gets.p99_us());
    }
    let missing = if redis.is_some() { "Redis 7 over TCP, not persistent." } else { redis::INSTALL };
    Ok(measured.note(format!(
        "One blocking client over TCP, not pinned, sends the next request {} µs after the answer, {COUNT} of each kind \
         in turn, for random ones of {KEYS} keys of 24 bytes; values of {} bytes, durability memory. Put: {}. Most of \
         the time is that of the network stack and of two wake-ups, as in remote.append; the same append to a log has \
         no lookup of a key. {missing}",
        figure(PACE.as_micros() as f64),
        VALUE.len(),
        p50.spread()
    )))
}
