//! What a table makes of the shadow entries of repairs.

use crate::world::int;
use millrace_causality::{Builder, Changes, Event, Extent, History, Table, Tree, TreeLimits, discover};
use millrace_journal::{Kind, What, map};
use millrace_wire::{EventId, Hlc, NamespaceId};
use std::collections::HashSet;

const IN: u32 = 1;
const SIDE: u32 = 2;
const OUT: u32 = 3;
const FUNCTION: u32 = 10;

/// The entries of one journal, as they are written.
struct Journal {
    builder: Builder,
    sequence: u64,
}

impl Journal {
    fn new() -> Self {
        let mut builder = Builder::new(NamespaceId::new(7).unwrap());
        for (log, name) in [(IN, "in"), (SIDE, "side"), (OUT, "out")] {
            builder.name_log(log, name);
        }
        builder.name_function(FUNCTION, "f");
        Self { builder, sequence: 0 }
    }

    fn push(
        &mut self,
        kind: Kind,
        (subject, seqno): (u32, u64),
        cause: EventId,
        payload: &[u8],
        repair: Option<u64>,
    ) -> EventId {
        self.sequence += 1;
        let id = EventId::new(NamespaceId::new(7).unwrap(), 1, self.sequence);
        let void = repair.is_some() && kind == Kind::Append && payload.is_empty();
        self.builder
            .push(&Event {
                id,
                position: self.sequence * 64,
                kind,
                hlc: Hlc::from_bits(self.sequence),
                cause,
                subject,
                seqno,
                ordinal: 0,
                carried: false,
                claimed: false,
                repair,
                void,
                payload,
                key: None,
                payload_bytes: payload.len() as u64,
            })
            .unwrap();
        id
    }

    /// A record of `in`, and its run, which reads nothing and appends to `out`.
    fn run(&mut self, seqno: u64) -> EventId {
        let none = EventId::NONE;
        let record = self.push(Kind::Append, (IN, seqno), none, b"1", None);
        let mut payload = Vec::new();
        map::push(&mut payload, 1, &int(IN.into()));
        map::push(&mut payload, 2, &int(seqno));
        let run = self.push(Kind::Trigger, (FUNCTION, seqno), record, &payload, None);
        self.push(Kind::Fired, (FUNCTION, seqno), run, &[], None);
        self.push(Kind::Append, (OUT, seqno), run, b"one", None);
        self.push(Kind::Done, (FUNCTION, seqno), run, &[], None);
        run
    }

    /// Its replay, which reads the first record of `side` and appends something else, or nothing.
    fn replay(&mut self, repair: u64, run: EventId, seqno: u64, value: &[u8]) {
        let mut payload = Vec::new();
        map::push(&mut payload, 1, &[0, SIDE as u8, 1]); // A record: its log and its seqno.
        let repair = Some(repair);
        self.push(Kind::Read, (FUNCTION, seqno), run, &payload, repair);
        self.push(Kind::Append, (OUT, seqno), run, value, repair);
        self.push(Kind::Done, (FUNCTION, seqno), run, &[], repair);
    }
}

fn reached(table: &Table, record: u32) -> Vec<u32> {
    let changes = Changes { records: HashSet::from([record]), ..Changes::default() };
    discover(table, &changes, &mut |_| None).candidates.iter().map(|candidate| candidate.run).collect()
}

#[test]
fn a_repair_in_force_gives_records_versions_and_runs_the_reads_of_their_replays() {
    let table = |in_force: &[u64]| {
        let mut journal = Journal::new();
        in_force.iter().for_each(|repair| journal.builder.in_force(*repair));
        journal.push(Kind::Append, (SIDE, 1), EventId::NONE, b"2", None);
        let runs = [journal.run(1), journal.run(2), journal.run(3)];
        journal.replay(4, runs[0], 1, b"two");
        journal.replay(4, runs[1], 2, b"");
        journal.replay(6, runs[1], 2, b"three");
        journal.builder.finish()
    };
    let as_it_was = table(&[]);
    let side = as_it_was.record(SIDE, 1).unwrap();
    let records: Vec<u32> = (1..=3).map(|seqno| as_it_was.record(OUT, seqno).unwrap()).collect();
    let run_of = |number: usize| as_it_was.run_of(records[number]).unwrap();
    assert_eq!((as_it_was.version(records[0]), as_it_was.replay(run_of(0))), (None, None));
    assert!(reached(&as_it_was, side).is_empty(), "no run read it");
    assert!(as_it_was.repairs().is_empty());

    let once = table(&[4]);
    let version = |table: &Table, number: usize| {
        table.version(records[number]).map(|it| (it.repair, it.void, table.row(it.row).record_bytes()))
    };
    assert_eq!(version(&once, 0), Some((4, false, 3)));
    assert_eq!(version(&once, 1), Some((4, true, 0)));
    assert_eq!(version(&once, 2), None);
    assert_eq!(reached(&once, side), [run_of(0), run_of(1)], "their replays read it");
    let extents = |table: &Table| table.repairs().into_iter().collect::<Vec<_>>();
    assert_eq!(extents(&once), [(4, Extent { runs: 2, records: 1, void: 1 })]);

    let twice = table(&[4, 6]);
    assert_eq!(version(&twice, 1), Some((6, false, 5)), "the last one counts");
    let of_six = (6, Extent { runs: 1, records: 1, void: 0 });
    assert_eq!(extents(&twice), [(4, Extent { runs: 1, records: 1, void: 0 }), of_six]);
    // The replays' reads stand where the runs began, before what the runs appended.
    let history = History::new(vec![twice]);
    let root = history.record(millrace_causality::Place { table: 0, row: side }, SIDE, 1).unwrap();
    let limits = TreeLimits { branches_max: 100, below_max: 100, depth_max: 100 };
    let tree = Tree::effects(&history, root, limits).unwrap();
    assert_eq!((tree.records, tree.runs), (3, 2), "the record, two runs, and what they left");
    let up = history.record(root, OUT, 1).unwrap();
    let tree = Tree::causes(&history, up, limits).unwrap();
    assert_eq!(
        (tree.records, tree.runs),
        (3, 1),
        "what the run appended, its record, and the one that its replay read"
    );
    let what =
        history.table(root).reads(run_of(0) + 1).map(|read| (read.log, read.from, read.what)).collect::<Vec<_>>();
    assert_eq!(what, [(SIDE, 1, What::Record)], "told by its FIRED");
}
