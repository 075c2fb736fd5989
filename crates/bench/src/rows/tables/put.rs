//! table.put: a new value of a key of a large table, beside an append of the same bytes.

use super::{HISTORY, LOG, Random, VALUE, append_value, keys, put_value, scattered, with_table};
use crate::{
    Context, Outcome,
    measure::{Repeated, Samples, clock_us, each, figure, mean_us},
    rows::{Measured, journal},
};
use std::thread;

pub fn put(context: &Context) -> Outcome<Measured> {
    let dir = context.fresh()?;
    let namespace = with_table(&dir.path().join("n"), HISTORY)?;
    let (count, mut at) = (keys(context), 0);
    let first = mean_us(count, || {
        at += 1;
        put_value(&namespace, scattered(at - 1, count))
    })?;
    let mut random = Random(1);
    // Bursts, as in journal.append: back to back without end the thread that makes room in the journal would set the pace.
    let mut burst = |appends: bool| {
        let mean = mean_us(journal::BURST, || match appends {
            true => append_value(&namespace),
            false => put_value(&namespace, random.below(count)),
        });
        thread::sleep(journal::PAUSE);
        mean
    };
    for appends in [true, false, true, false] {
        burst(appends)?;
    }
    let (mut puts, mut appends, mut ratio) = (Repeated::default(), Repeated::default(), Repeated::default());
    for _ in 0..context.repetitions(15) {
        let (mut of_puts, mut of_appends) = (0.0, 0.0);
        for _ in 0..2 {
            of_puts += burst(false)? / 2.0;
            of_appends += burst(true)? / 2.0;
        }
        puts.push(of_puts);
        appends.push(of_appends);
        ratio.push(of_puts / of_appends);
    }
    let mut samples = Samples::new();
    for _ in 0..context.repetitions(8) {
        each(journal::BURST, &mut samples, || put_value(&namespace, random.below(count)))?;
        thread::sleep(journal::PAUSE);
    }
    let found = namespace.tables().keys(namespace.journal(), &namespace.table(super::TABLE)?)?;
    if found as u64 != count {
        return Err(format!("the table has {found} keys instead of {count}").into());
    }
    Ok(Measured::new(puts.median(), samples.count())
        .spread_us(&samples)
        .target("≤ 4 × an append", ratio.median() <= 4.0)
        .target("≤ 5 µs", puts.median() <= 5.0)
        .also("ratio to an append", ratio.median(), "")
        .also("the first value of a key, mean", first, "µs")
        .also("p99.9", samples.quantile_us(0.999), "µs")
        .peer("append of the same value to a log", appends.median())
        .note(format!(
            "One thread, not pinned, calls Namespace::ask_table by the table's name, durability memory, with random \
             ones of {count} keys of 24 bytes and values of {} bytes, in bursts as in journal.append: {}; in turn with \
             bursts of Namespace::append of the same value to log `{LOG}`: {}. Ratio in the same repetition: {}. The \
             first value of a key: the mean of the {count} puts that made the table, in an order without a pattern. \
             Each put looks up the version before, which its record names; the next look at the table reads the new \
             record back, verifies its checksum, and changes the sorted map in the memory of the process, which has the \
             keys that have changed since they were written to files last. So a put looks a key up in the map and in \
             two files, and changes the map, besides the append; another thread writes the files meanwhile. p50 and p99 include {} µs for the clock.",
            VALUE.len(),
            puts.spread(),
            appends.spread(),
            ratio.spread(),
            figure(clock_us())
        )))
}
