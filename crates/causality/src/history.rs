//! The events of any number of journals, and the causes between them.

use crate::{
    merge::{Keys, Merge},
    row::Row,
    table::{Origin, Table},
};
use millrace_wire::EventId;

/// An event: the table it is in, and its row there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The table's number in the order in which tables were given.
    pub table: u32,
    /// The row.
    pub row: u32,
}

/// The cause of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing that was recorded: it came from outside.
    Outside,
    /// This event.
    Known(Place),
    /// An event that none of the tables has: another namespace's, or one that retention dropped.
    Unknown(EventId),
}

/// Two events in the wrong order: the first must come before the second and does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The effect has no later clock than its cause.
    CauseBehindEffect {
        /// The cause.
        cause: Place,
        /// Its effect.
        effect: Place,
    },
    /// The clock of a journal went back.
    ClockWentBack {
        /// The earlier entry of the journal.
        before: Place,
        /// The next one.
        after: Place,
    },
    /// Two journals have different events under one id.
    Differs {
        /// One of them.
        one: Place,
        /// The other.
        other: Place,
    },
}

/// Journals together.
#[derive(Debug)]
pub struct History {
    tables: Vec<Table>,
    /// For each table, where its foreign causes are.
    causes: Vec<Vec<Option<Place>>>,
    /// For each table, those before it that may have some of its events, too.
    originals: Vec<Vec<u32>>,
}

impl History {
    /// The history that these tables are.
    pub fn new(tables: Vec<Table>) -> Self {
        let locate = |own: usize, id: EventId| {
            let at = |at: usize| Some(Place { table: at as u32, row: tables[at].find(id)? });
            // In its own table it could only come after its effect, which is reported as an error. Of several copies, the one in the
            // smallest namespace is taken, independent of the order of the tables.
            let others = (0..tables.len()).filter(|other| *other != own).filter_map(at);
            at(own).or_else(|| {
                others.min_by_key(|place| {
                    let table = &tables[place.table as usize];
                    (table.namespace(), table.len())
                })
            })
        };
        let causes = tables.iter().enumerate();
        let causes = causes.map(|(own, table)| table.foreign().iter().map(|id| locate(own, *id)).collect()).collect();
        let originals = (0..tables.len()).map(|at| {
            let before = (0..at).filter(|other| shares_ids(&tables[*other], &tables[at]));
            before.map(|other| other as u32).collect()
        });
        let originals = originals.collect();
        Self { tables, causes, originals }
    }

    /// Where an event stands that several tables may have: in the first of them, which is the one that [`History::order`] gives.
    fn first(&self, place: Place) -> Place {
        let originals = &self.originals[place.table as usize];
        if originals.is_empty() {
            return place;
        }
        let id = self.id(place);
        let mut found =
            originals.iter().filter_map(|at| Some(Place { table: *at, row: self.tables[*at as usize].find(id)? }));
        found.next().unwrap_or(place)
    }

    /// The run of an event of a run, or of a record that a run appended, if it is known.
    pub fn run_of(&self, place: Place) -> Option<Place> {
        let row = self.table(place).run_of(place.row)?;
        Some(self.first(Place { row, ..place }))
    }

    /// The record of a log of the namespace that an event is in.
    pub fn record(&self, near: Place, log: u32, seqno: u64) -> Option<Place> {
        let row = self.table(near).record(log, seqno)?;
        Some(self.first(Place { row, ..near }))
    }

    /// The tables.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// A table.
    pub fn table(&self, place: Place) -> &Table {
        &self.tables[place.table as usize]
    }

    /// The event at a place.
    pub fn row(&self, place: Place) -> &Row {
        self.table(place).row(place.row)
    }

    /// The id of the event at a place.
    pub fn id(&self, place: Place) -> EventId {
        self.table(place).id(place.row)
    }

    /// How many events the tables have; an event that several have counts for each.
    pub fn len(&self) -> u64 {
        self.tables.iter().map(|table| u64::from(table.len())).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The event with this id.
    pub fn find(&self, id: EventId) -> Option<Place> {
        let mut tables = self.tables.iter().enumerate();
        tables.find_map(|(at, table)| Some(Place { table: at as u32, row: table.find(id)? }))
    }

    /// The cause of an event.
    pub fn cause(&self, place: Place) -> Cause {
        match self.table(place).origin(place.row) {
            Origin::Outside => Cause::Outside,
            Origin::Row(row) => Cause::Known(self.first(Place { row, ..place })),
            Origin::Foreign(number) => match self.causes[place.table as usize][number as usize] {
                Some(place) => Cause::Known(self.first(place)),
                None => Cause::Unknown(self.table(place).foreign()[number as usize]),
            },
        }
    }

    /// All events: every cause before its effects, and in the same order whichever way the tables are given.
    pub fn order(&self) -> Merge<'_> {
        Merge::new(self)
    }

    /// The pairs of events in the wrong order, up to a limit, and their total number. There are none in journals that
    /// Millrace wrote.
    pub fn violations(&self, most: usize) -> (Vec<Violation>, u64) {
        let (mut found, mut all) = (Vec::new(), 0);
        let mut note = |violation| {
            all += 1;
            if found.len() < most {
                found.push(violation);
            }
        };
        let keys = Keys::new(self);
        for (number, table) in self.tables.iter().enumerate() {
            let place = |row| Place { table: number as u32, row };
            for row in 0..table.len() {
                let here = place(row);
                // Copies are in the order of their ids.
                if row > table.first_regular() && table.row(row - 1).hlc() >= table.row(row).hlc() {
                    note(Violation::ClockWentBack { before: place(row - 1), after: here });
                }
                // A claim may name anything.
                if table.row(row).claimed() {
                    continue;
                }
                if let Cause::Known(cause) = self.cause(here)
                    && keys.of(cause) >= keys.of(here)
                {
                    note(Violation::CauseBehindEffect { cause, effect: here });
                }
            }
        }
        self.differences(&mut note);
        (found, all)
    }

    /// Events that two tables have, and that are not the same.
    fn differences(&self, note: &mut dyn FnMut(Violation)) {
        for (one, table) in self.tables.iter().enumerate() {
            for (other, copy) in self.tables.iter().enumerate().skip(one + 1) {
                if !shares_ids(table, copy) {
                    continue;
                }
                for row in 0..table.len() {
                    let Some(found) = copy.find(table.id(row)) else { continue };
                    let (one, other) = (Place { table: one as u32, row }, Place { table: other as u32, row: found });
                    if !self.is_same(one, other) {
                        note(Violation::Differs { one, other });
                    }
                }
            }
        }
    }

    fn is_same(&self, one: Place, other: Place) -> bool {
        let (a, b) = (self.row(one), self.row(other));
        let cause = |place| match self.cause(place) {
            Cause::Outside => EventId::NONE,
            Cause::Known(place) => self.id(place),
            Cause::Unknown(id) => id,
        };
        (a.hlc(), a.seqno, a.subject, a.ordinal, a.record_bytes())
            == (b.hlc(), b.seqno, b.subject, b.ordinal, b.record_bytes())
            && cause(one) == cause(other)
    }
}

/// Whether two tables may have an event in common: they are of one namespace, or one is a copy of the other's.
fn shares_ids(one: &Table, other: &Table) -> bool {
    let others = other.namespaces();
    one.namespaces().iter().any(|namespace| others.contains(namespace))
}
