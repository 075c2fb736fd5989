//! Trees over tables: the records behind missing keys and ranges, against a model of what each run saw.

use crate::{
    trees::{ALL, closure},
    world::{Random, int, name_of, varint},
};
use millrace_causality::{Builder, Event, History, KeyedEvent, Tree};
use millrace_journal::{Kind, Operation, map};
use millrace_wire::{EventId, Hlc};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const TABLE: u32 = 1;
const INBOX: u32 = 2;
const FUNCTION: u32 = 11;

/// What the keys have: the newest record of each, and whether it is a value.
type State = BTreeMap<Vec<u8>, (EventId, bool)>;

/// The ordinal and the payload of an entry, and what it does to a key.
type Told<'b> = (u16, &'b [u8], Option<(&'b [u8], Operation)>);

struct Model {
    random: Random,
    builder: Builder,
    sequence: u64,
    seqnos: [u64; 3],
    runs: u64,
    pending: Vec<(EventId, u64)>,
    state: State,
    /// Every pair of a cause and its effect.
    pairs: Vec<(EventId, EventId)>,
}

fn key(random: &mut Random) -> Vec<u8> {
    vec![b'a' + random.below(5) as u8; 1 + random.below(2) as usize]
}

impl Model {
    fn push(&mut self, kind: Kind, (subject, seqno): (u32, u64), cause: EventId, of: Told<'_>) -> EventId {
        self.sequence += 1;
        let id = EventId::new(name_of(0), 1, self.sequence);
        let (ordinal, payload, key) = of;
        let event = Event {
            id,
            position: self.sequence * 64,
            kind,
            hlc: Hlc::from_wall_us(self.sequence),
            cause,
            subject,
            seqno,
            ordinal,
            carried: false,
            claimed: false,
            repair: None,
            void: false,
            key: key.map(|(key, operation)| (key, KeyedEvent::new(key, operation, 0))),
            payload,
            payload_bytes: payload.len() as u64,
        };
        self.builder.push(&event).expect("the table has room");
        id
    }

    /// A change of the table, by a run or from outside.
    fn change(&mut self, cause: EventId) -> (Vec<u8>, (EventId, bool)) {
        let (key, is_value) = (key(&mut self.random), self.random.chance(60));
        let operation = if is_value { Operation::Put } else { Operation::Delete };
        self.seqnos[1] += 1;
        let id = self.push(Kind::Append, (TABLE, self.seqnos[1]), cause, (0, b"v", Some((&key, operation))));
        self.pairs.extend((!cause.is_none()).then_some((cause, id)));
        self.state.insert(key.clone(), (id, is_value));
        (key, (id, is_value))
    }

    fn trigger(&mut self) {
        self.seqnos[2] += 1;
        let record = self.push(Kind::Append, (INBOX, self.seqnos[2]), EventId::NONE, (0, b"go", None));
        self.runs += 1;
        let mut payload = Vec::new();
        map::push(&mut payload, 1, &int(INBOX.into()));
        map::push(&mut payload, 2, &int(self.seqnos[2]));
        let run = self.push(Kind::Trigger, (FUNCTION, self.runs), record, (0, &payload, None));
        self.pairs.push((record, run));
        self.pending.push((run, self.runs));
    }

    /// Several runs of one claim: each sees what was there before the claim, and what the ones before it did.
    fn claim(&mut self) {
        let runs: Vec<_> = (0..=self.random.below(3)).filter_map(|_| self.pending.pop()).collect();
        let mut view = self.state.clone();
        for (place, (run, number)) in runs.iter().enumerate() {
            let mut payload = Vec::new();
            map::push(&mut payload, 3, &int(place as u64));
            self.push(Kind::Fired, (FUNCTION, *number), *run, (1, &payload, None));
        }
        for (run, number) in runs {
            while self.random.chance(40) {
                self.change(EventId::NONE);
            }
            let rows = self.reads(&view, run);
            let mut payload = Vec::new();
            map::push(&mut payload, 2, &rows);
            self.push(Kind::Read, (FUNCTION, number), run, (0, &payload, None));
            for _ in 0..self.random.below(3) {
                let (key, record) = self.change(run);
                view.insert(key, record);
            }
            self.push(Kind::Done, (FUNCTION, number), run, (0, b"", None));
        }
    }

    /// What a run reads of a view, as a READ has it.
    fn reads(&mut self, view: &State, run: EventId) -> Vec<u8> {
        let mut rows = Vec::new();
        let text = |rows: &mut Vec<u8>, bytes: &[u8]| {
            varint(rows, bytes.len() as u64);
            rows.extend_from_slice(bytes);
        };
        for _ in 0..self.random.below(3) {
            if self.random.chance(50) {
                let key = key(&mut self.random);
                let found = view.get(&key);
                if found.is_none_or(|(_, is_value)| !is_value) {
                    rows.push(1);
                    varint(&mut rows, TABLE.into());
                    text(&mut rows, &key);
                    self.pairs.extend(found.map(|(record, _)| (*record, run)));
                }
                continue;
            }
            let (from, to) = (key(&mut self.random), key(&mut self.random));
            let from = if self.random.chance(30) { Vec::new() } else { from };
            let to = if self.random.chance(30) { Vec::new() } else { to };
            let limit = self.random.below(4);
            rows.push(2);
            varint(&mut rows, TABLE.into());
            text(&mut rows, &from);
            text(&mut rows, &to);
            varint(&mut rows, limit);
            let mut values = 0;
            for (_, (record, is_value)) in view.iter().filter(|(key, _)| **key >= from && (to.is_empty() || **key < to))
            {
                if values == limit {
                    break;
                }
                values += u64::from(*is_value);
                self.pairs.push((*record, run));
            }
        }
        rows
    }
}

proptest! {
    #[test]
    fn trees_have_the_records_behind_missing_keys_and_ranges(seed: u64, steps in 1usize..60) {
        let mut model = Model {
            random: Random(seed),
            builder: Builder::new(name_of(0)),
            sequence: 0,
            seqnos: [0; 3],
            runs: 0,
            pending: Vec::new(),
            state: State::new(),
            pairs: Vec::new(),
        };
        model.builder.name_log(TABLE, "table");
        model.builder.name_log(INBOX, "inbox");
        model.builder.name_function(FUNCTION, "function");
        for _ in 0..steps {
            match model.random.below(3) {
                0 => drop(model.change(EventId::NONE)),
                1 => model.trigger(),
                _ => model.claim(),
            }
        }
        let history = History::new(vec![model.builder.finish()]);
        let back: Vec<(EventId, EventId)> = model.pairs.iter().map(|(cause, effect)| (*effect, *cause)).collect();
        let ids = |tree: Tree| -> BTreeSet<EventId> { tree.branches.iter().map(|branch| history.id(branch.place)).collect() };
        for place in history.order() {
            let row = history.row(place);
            if row.is(Kind::Append) || row.is(Kind::Trigger) {
                let root = history.id(place);
                prop_assert_eq!(ids(Tree::effects(&history, place, ALL).unwrap()), closure(&model.pairs, root));
                prop_assert_eq!(ids(Tree::causes(&history, place, ALL).unwrap()), closure(&back, root));
            }
        }
    }
}
