//! What the entries of runs say, and how much they take.

mod common;

use common::{Fixture, LONG};
use millrace_journal::{Attempt, Kind, Outcome, Position, ReadFrom, What};
use millrace_node::{EventId, RunFilter, RunState};
use sha2::{Digest as _, Sha256};

/// What the tests look at in an entry.
struct Seen {
    kind: Kind,
    run: EventId,
    id: EventId,
    seqno: u64,
    bytes: u64,
    at_us: u64,
    attempt: Option<Attempt>,
    /// Outcome, effects, the sequence of the last FIRED.
    end: Option<(Outcome, u64, u64)>,
    reads: Vec<(Option<String>, u64, u64, What)>,
}

fn entries(f: &Fixture) -> Vec<Seen> {
    let (mut scan, mut found) = (f.namespace.journal().scan(Position::default()), Vec::new());
    while let Some(entry) = scan.next().unwrap() {
        let reads = entry.reads().map(|row| {
            let missing = if let ReadFrom::Name(name) = row.log { Some(name.to_owned()) } else { None };
            (missing, row.from, row.count, row.what)
        });
        found.push(Seen {
            kind: entry.kind,
            run: entry.run(),
            id: entry.id,
            seqno: entry.seqno,
            bytes: entry.end.get() - entry.position.get(),
            at_us: entry.hlc.wall_us(),
            attempt: entry.attempt(),
            end: entry.ending().map(|end| (end.outcome, end.effects, end.fired)),
            reads: reads.collect(),
        });
    }
    found
}

/// The entries of a run, in order.
fn of_run(f: &Fixture, run: EventId) -> Vec<Seen> {
    entries(f).into_iter().filter(|entry| entry.run == run).collect()
}

/// The ids of all runs, the oldest first.
fn runs(f: &Fixture) -> Vec<EventId> {
    f.namespace.runs(&RunFilter::default()).unwrap().iter().rev().map(|run| run.id).collect()
}

#[test]
fn a_plain_run_takes_80_bytes_for_each_of_its_entries_and_says_what_ran() {
    let f = Fixture::new();
    for name in ["in", "out"] {
        f.log(name);
    }
    let body = |text: &str| {
        format!(
            "ctx.get('in', record.seqno)
ctx.append('out', '{text}')
ctx.append('out', 'more')"
        )
    };
    f.python("f", &["in"], &body("one"), |_| {});
    let host = f.host();
    f.append("in", "x");
    f.idle();
    f.python("f", &["in"], &body("two"), |_| {});
    f.append("in", "y");
    f.idle();
    for (at, run) in runs(&f).into_iter().enumerate() {
        let entries = of_run(&f, run);
        use Kind::{Append, Done, Fired, Read, Trigger};
        assert_eq!(
            entries.iter().map(|entry| entry.kind).collect::<Vec<_>>(),
            [Trigger, Fired, Read, Append, Append, Done]
        );
        assert!(
            entries.iter().all(|entry| entry.bytes <= 80),
            "{:?}",
            entries.iter().map(|e| e.bytes).collect::<Vec<_>>()
        );
        let number = at as u64 + 1;
        assert_eq!([entries[0].seqno, entries[1].seqno, entries[2].seqno], [number; 3]);
        let attempt = Attempt { attempt: 1, revision: number as u32, ..Attempt::default() };
        assert_eq!(entries[1].attempt, Some(attempt));
        assert_eq!(entries[2].reads, [(None, number, 1, What::Record)]);
        assert_eq!(entries[5].end, Some((Outcome::Done, 3, entries[1].id.sequence())), "a READ and two APPENDs");
    }
    host.stop(LONG).unwrap();
}

#[test]
fn a_run_that_is_given_up_shows_what_it_read_and_what_was_refused() {
    let f = Fixture::new();
    f.log("in");
    f.namespace.create_log(&common::log("short"), 1).unwrap();
    f.append("short", "gone");
    f.append("short", "there");
    let body = "refused = []\nfor log, seqno in [('short', 2), ('short', 1), ('short', 3), ('nowhere', 7)]:\n    \
                    try: ctx.get(log, seqno)\n    except Exception as error: refused.append(error.code)\n\
                raise ValueError(' '.join(refused))";
    f.python("f", &["in"], body, |spec| spec.retries = 0);
    let host = f.host();
    f.append("in", "x");
    f.idle();
    let run = f.namespace.run(runs(&f)[0]).unwrap();
    assert_eq!(run.state, RunState::Dead);
    let reported = run.ending.clone().unwrap().dead.unwrap().error;
    assert!(reported.contains("MR2104 MR2105 MR2101"), "the function was told otherwise: {reported}");
    let reads: Vec<(String, u64)> =
        run.reads.iter().map(|read| (read.log.as_ref().unwrap().to_string(), read.seqno)).collect();
    let wanted = [("short", 2), ("short", 1), ("short", 3), ("nowhere", 7)];
    assert_eq!(reads, wanted.map(|(log, seqno)| (log.to_owned(), seqno)));
    let entries = of_run(&f, run.id);
    let read: Vec<&Seen> = entries.iter().filter(|entry| entry.kind == Kind::Read).collect();
    assert_eq!(read.len(), 1);
    let rows = &read[0].reads;
    assert_eq!(
        rows[..3],
        [(2, What::Record), (1, What::BelowHistory), (3, What::Absent)].map(|(n, what)| (None, n, 1, what))
    );
    assert!(
        matches!(&rows[3], (Some(name), 7, 1, What::Refused(code)) if name == "nowhere" && *code > 0),
        "{:?}",
        rows[3]
    );
    let end = entries.last().unwrap().end.unwrap();
    assert_eq!((end.0, entries.last().unwrap().kind), (Outcome::Dead, Kind::Done));
    host.stop(LONG).unwrap();
}

#[test]
fn the_clock_and_the_random_numbers_of_an_attempt_can_be_made_again() {
    let f = Fixture::new();
    f.log("in");
    let notes = f.dir.path().join("notes");
    let body = format!(
        "first, now = ctx.random(5), ctx.now()\n\
         with open({notes:?}, 'a') as notes: print(round(now * 1e6), ctx.now() == now, (first + ctx.random(60)).hex(), file=notes)\n\
         if ctx.attempt < 3: raise ValueError('again')"
    );
    f.python("f", &["in"], &body, |_| {});
    let host = f.host();
    f.append("in", "x");
    f.idle();
    let run = runs(&f)[0];
    let entries = of_run(&f, run);
    let fired: Vec<&Seen> = entries.iter().filter(|e| e.attempt.is_some_and(|attempt| !attempt.waits)).collect();
    let seed = f.namespace.journal().replay_seed();
    let mut wanted = Vec::new();
    for (attempt, fired) in (1u32..).zip(&fired) {
        let block = |number: u64| {
            let digest = Sha256::new().chain_update(seed.bytes()).chain_update(run.get().to_le_bytes());
            digest.chain_update(attempt.to_le_bytes()).chain_update(number.to_le_bytes()).finalize()
        };
        let random: Vec<u8> = (0..3).flat_map(block).take(65).collect();
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        wanted.push(format!("{} True {hex}", fired.at_us));
    }
    assert_eq!(wanted.len(), 3);
    assert_eq!(std::fs::read_to_string(&notes).unwrap().lines().collect::<Vec<_>>(), wanted);
    host.stop(LONG).unwrap();
}
