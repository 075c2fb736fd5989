//! One order of the events of any number of journals.
//!
//! Each event's key is its clock and its id. The clocks of one journal grow, and a namespace that receives something adopts the sender's
//! clock, so every cause has a smaller key than its effects. The key does not contain the journal's place in the list: the order is the
//! same, however journals are merged. Where the clock of a journal went back, because it had been wrong, its events keep the order of the
//! journal: [`clocks`] says how late each counts as being.

use crate::{
    history::{History, Place},
    row::Row,
    table::Table,
};
use millrace_wire::{EventId, Hlc};

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
    /// The clock of the row; `u64::MAX` behind the last event.
    clock: u64,
    /// The clocks of all rows, if they are not simply those of the events.
    clocks: Option<Vec<u64>>,
}

impl Head<'_> {
    fn advance(&mut self) {
        self.row += 1;
        self.clock = match (&self.clocks, self.table.rows().get(self.row as usize)) {
            (Some(clocks), Some(_)) => clocks[self.row as usize],
            (None, Some(row)) => row.hlc().get(),
            (_, None) => u64::MAX,
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
            let clocks = clocks(table);
            let own = || table.rows().first().map_or(u64::MAX, |row| row.hlc().get());
            let clock = clocks.as_ref().map_or_else(own, |clocks| clocks[0]);
            Head { table, number: number as u32, row: 0, clock, clocks }
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

/// A clock is not taken for wrong because of a smaller step.
const STEP: u64 = Hlc::from_wall_us(60_000_000).get();

/// How late each event of a journal counts as being, if its clock went back; `None` if each is as late as its clock says.
///
/// Either the clock was ahead before it went back, or it was behind afterwards: the smaller number of events is taken for wrong. An event that
/// was ahead counts as being as late as the earliest after it, and one that was behind as the latest before it.
fn clocks(table: &Table) -> Option<Vec<u64>> {
    let rows = table.rows();
    if rows.is_sorted_by_key(Row::hlc) {
        return None;
    }
    let own: Vec<u64> = rows.iter().map(|row| row.hlc().get()).collect();
    let running = |clocks: &mut dyn Iterator<Item = &u64>, choose: fn(u64, u64) -> u64| {
        let mut found: Option<u64> = None;
        let clocks = clocks.map(|clock| *found.insert(found.map_or(*clock, |found| choose(found, *clock))));
        clocks.collect::<Vec<u64>>()
    };
    let latest_before = running(&mut own.iter(), u64::max);
    let mut earliest_after = running(&mut own.iter().rev(), u64::min);
    earliest_after.reverse();
    let far = |(ahead, behind): (&u64, &u64)| ahead.saturating_sub(*behind) > STEP;
    let ahead = own.iter().zip(&earliest_after).filter(|pair| far(*pair)).count();
    let behind = latest_before.iter().zip(&own).filter(|pair| far(*pair)).count();
    if ahead == 0 || ahead > behind {
        return Some(latest_before);
    }
    let corrected = own.iter().zip(&earliest_after).map(|(own, after)| if far((own, after)) { *after } else { *own });
    Some(running(&mut corrected.collect::<Vec<u64>>().iter(), u64::max))
}

/// The key of an event in the one order.
pub(crate) struct Keys<'h> {
    history: &'h History,
    /// Of each table whose clock goes back: how late each row counts as being.
    clocks: Vec<Option<Vec<u64>>>,
}

impl<'h> Keys<'h> {
    pub fn new(history: &'h History) -> Self {
        Self { history, clocks: history.tables().iter().map(clocks).collect() }
    }

    pub fn of(&self, place: Place) -> (u64, EventId) {
        let clock = match &self.clocks[place.table as usize] {
            Some(clocks) => clocks[place.row as usize],
            None => self.history.row(place).hlc().get(),
        };
        (clock, self.history.id(place))
    }
}
