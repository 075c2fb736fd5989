//! table.get: the values of random keys of a large table, beside random records of a log.

use super::{Random, TABLE, VALUE, append_value, ask, check_value, key, keys, put_value, scattered, with_table};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, clock_us, each, figure, mean_us, repeat},
    rows::Measured,
};
use millrace_node::Namespace;
use millrace_wire::table::TableRequest;
use std::{collections::BTreeMap, hint::black_box};

const COUNT: u64 = 100_000;

fn get_value(namespace: &Namespace, number: u64) -> Outcome<()> {
    check_value(&ask(namespace, &TableRequest::Get { key: &key(number) })?)
}

pub fn get(context: &Context) -> Outcome<Measured> {
    let (dir, count) = (context.fresh()?, keys(context));
    let namespace = with_table(&dir.path().join("n"), count)?;
    for at in 0..count {
        put_value(&namespace, scattered(at, count))?;
        append_value(&namespace)?;
    }
    let map: BTreeMap<[u8; 24], Vec<u8>> = (0..count).map(|at| (key(scattered(at, count)), VALUE.to_vec())).collect();
    let mut random = Random(1);
    let repetitions = context.repetitions(11);
    mean_us(COUNT, || get_value(&namespace, random.below(count)))?;
    let (mut gets, mut records, mut maps, mut ratio) =
        (Repeated::default(), Repeated::default(), Repeated::default(), Repeated::default());
    for _ in 0..repetitions {
        let of_table = mean_us(COUNT, || get_value(&namespace, random.below(count)))?;
        let of_log = mean_us(COUNT, || {
            let record = namespace.get(super::LOG, 1 + random.below(count))?;
            black_box(&record);
            Ok(())
        })?;
        let of_map = mean_us(COUNT, || {
            let value = map.get(&key(random.below(count))).ok_or("a key is missing")?;
            black_box(value.clone());
            Ok(())
        })?;
        gets.push(of_table);
        records.push(of_log);
        maps.push(of_map);
        ratio.push(of_table / of_log);
    }
    let same = repeat(repetitions, || mean_us(COUNT, || get_value(&namespace, 1)))?;
    let mut samples = Samples::new();
    each(COUNT, &mut samples, || get_value(&namespace, random.below(count)))?;
    Ok(Measured::new(gets.median(), COUNT * repetitions as u64)
        .spread_us(&samples)
        .target("≤ 4 × get of a log", ratio.median() <= 4.0)
        .also("ratio to a get of a log", ratio.median(), "")
        .also("the same key again, mean", same.median(), "µs")
        .peer("get of random records of a log", records.median())
        .peer("get and copy of random keys of a BTreeMap in memory", maps.median())
        .note(format!(
            "One thread, not pinned, calls Namespace::ask_table for random ones of {count} keys of 24 bytes in table \
             `{TABLE}`, whose values of {} bytes were put in an order without a pattern, back to back, mean of {COUNT}: {}. \
             In the same repetition: Namespace::get of random records with the same values of a log in the same \
             journal, {}; ratio: {}; a BTreeMap of the standard library, {}. The keys of a table are in \
             files and, if they have changed since, in a sorted map in memory, and the values stand in the journal: a get \
             finds the key, copies the record from the mapped journal, and verifies its checksum. No library of \
             LMDB is part of the bench. p50 and p99 include {} µs for the clock.",
            VALUE.len(),
            gets.spread(),
            records.spread(),
            ratio.spread(),
            maps.spread(),
            figure(clock_us())
        )))
}
