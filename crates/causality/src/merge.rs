//! One order of the events of any number of journals.
//!
//! Each event's key is its clock and its id. The clocks of one journal grow, and a namespace that receives something adopts the sender's
//! clock, so every cause has a smaller key than its effects. The key does not contain the journal's place in the list: the order is the
//! same, however journals are merged. Where the clock of a journal went back (it was tampered with), its events keep the order of the
//! journal: each counts as being as late as the latest before it.

use crate::{
    history::{History, Place},
    table::{Row, Table},
};
use millrace_wire::EventId;

/// The events of a history in their one order. An event that several tables have is given once.
pub struct Merge<'h> {
    heads: Vec<Head<'h>>,
    /// The head whose events come next, as long as their clocks are below the bound.
    current: usize,
    bound: u64,
}

struct Head<'h> {
    table: &'h Table,
    number: u32,
    row: u32,
    /// The latest clock so far; `u64::MAX` behind the last event.
    clock: u64,
}

impl Head<'_> {
    fn advance(&mut self) {
        self.row += 1;
        self.clock = match self.table.rows().get(self.row as usize) {
            Some(row) => self.clock.max(row.hlc().get()),
            None => u64::MAX,
        };
    }

    fn is_over(&self) -> bool {
        self.row >= self.table.len()
    }

    fn key(&self) -> (u64, EventId) {
        (self.clock, self.table.id(self.row))
    }
}

impl<'h> Merge<'h> {
    pub(crate) fn new(history: &'h History) -> Self {
        let head = |(number, table): (usize, &'h Table)| {
            let clock = table.rows().first().map_or(u64::MAX, |row| row.hlc().get());
            Head { table, number: number as u32, row: 0, clock }
        };
        Self { heads: history.tables().iter().enumerate().map(head).collect(), current: 0, bound: 0 }
    }

    /// Finds the head that comes next, and drops what others have of the same event.
    fn choose(&mut self) -> Option<()> {
        let heads = &mut self.heads;
        let mut first: Option<usize> = None;
        for at in 0..heads.len() {
            if heads[at].is_over() {
                continue;
            }
            let Some(best) = first else {
                first = Some(at);
                continue;
            };
            let (clock, best_clock) = (heads[at].clock, heads[best].clock);
            if clock < best_clock || (clock == best_clock && heads[at].key() < heads[best].key()) {
                first = Some(at);
            }
        }
        let first = first?;
        let (clock, id) = (heads[first].clock, heads[first].table.id(heads[first].row));
        let mut bound = u64::MAX;
        for at in (0..heads.len()).filter(|at| *at != first) {
            while !heads[at].is_over() && heads[at].clock == clock && heads[at].table.id(heads[at].row) == id {
                heads[at].advance();
            }
            bound = bound.min(heads[at].clock);
        }
        (self.current, self.bound) = (first, bound);
        Some(())
    }
}

impl Iterator for Merge<'_> {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        let head = self.heads.get(self.current)?;
        if head.is_over() || head.clock >= self.bound {
            self.choose()?;
        }
        let head = &mut self.heads[self.current];
        let place = Place { table: head.number, row: head.row };
        head.advance();
        Some(place)
    }
}

/// The key of an event in the one order.
pub(crate) struct Keys<'h> {
    history: &'h History,
    /// Of each table whose clock goes back: the latest clock up to each row.
    latest: Vec<Option<Vec<u64>>>,
}

impl<'h> Keys<'h> {
    pub fn new(history: &'h History) -> Self {
        let latest = |table: &Table| {
            let grows = table.rows().is_sorted_by_key(Row::hlc);
            (!grows).then(|| {
                let mut latest = 0;
                let clocks = table.rows().iter().map(|row| {
                    latest = row.hlc().get().max(latest);
                    latest
                });
                clocks.collect()
            })
        };
        Self { history, latest: history.tables().iter().map(latest).collect() }
    }

    pub fn of(&self, place: Place) -> (u64, EventId) {
        let clock = match &self.latest[place.table as usize] {
            Some(latest) => latest[place.row as usize],
            None => self.history.row(place).hlc().get(),
        };
        (clock, self.history.id(place))
    }
}
