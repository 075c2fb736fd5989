//! The tree of what an event caused, or of what it came from.
//!
//! Records and runs are the branches: a record leads to the runs that it triggered and to those that read it, a run to the records
//! that it appended. An event that is reached in several ways stands where it is reached first.

use crate::{
    discover::Bits,
    history::{Cause, History, Place},
    table::seen::Seen,
};
use millrace_journal::{Kind, What};
use std::{cell::OnceCell, collections::HashMap, ops::ControlFlow};

/// How a branch hangs on the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// It is the event that was asked about.
    Root,
    /// A record triggered a run.
    Triggered,
    /// A run read a record.
    Read,
    /// A run appended a record.
    Appended,
    /// A record went into another namespace, or through a relay, and is this one there.
    Forwarded,
    /// A client claims this as the cause of its record.
    Claimed,
}

/// A record or a run in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The APPEND or the TRIGGER.
    pub place: Place,
    /// How it hangs on the branch above.
    pub link: Link,
    /// The branch above; of the root, itself.
    pub above: usize,
    /// The branches below, oldest first.
    pub below: Vec<usize>,
    /// The number of omitted records and runs below it.
    pub more: u64,
}

/// How much of a tree is kept.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    /// Most branches in all, at least 1.
    pub branches_max: usize,
    /// Most branches below one.
    pub below_max: usize,
    /// How many branches may hang one on the other, the root not counted.
    pub depth_max: usize,
}

/// A tree of causes or effects; the first branch is its root.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its branches.
    pub branches: Vec<Branch>,
    /// How many records there are in all, shown or not.
    pub records: u64,
    /// How many runs.
    pub runs: u64,
    /// Causes that none of the journals has: of how many branches something is missing.
    pub unknown: u64,
}

struct Growing<'h> {
    history: &'h History,
    limits: TreeLimits,
    tree: Tree,
    /// For every event reached: the branch that shows it, or that counts it.
    owners: HashMap<Place, usize>,
    /// The same set, a bit for each row.
    reached: Vec<Bits>,
    /// The depth of each branch.
    depths: Vec<usize>,
}

impl<'h> Growing<'h> {
    fn new(history: &'h History, root: Place, limits: TreeLimits) -> Self {
        let branch = Branch { place: root, link: Link::Root, above: 0, below: Vec::new(), more: 0 };
        let tree = Tree { branches: vec![branch], records: 0, runs: 0, unknown: 0 };
        let reached = history.tables().iter().map(|table| Bits::new(table.len())).collect();
        let mut growing = Self { history, limits, tree, owners: HashMap::from([(root, 0)]), reached, depths: vec![0] };
        growing.count(root);
        growing
    }

    fn has(&self, place: Place) -> bool {
        self.reached[place.table as usize].has(place.row)
    }

    fn count(&mut self, place: Place) {
        self.reached[place.table as usize].set(place.row);
        if self.history.row(place).is(Kind::Trigger) {
            self.tree.runs += 1;
        } else {
            self.tree.records += 1;
        }
    }

    /// Hangs an event on one that was reached, unless it is in the tree.
    fn add(&mut self, place: Place, link: Link, on: Place) {
        if self.has(place) {
            return;
        }
        self.count(place);
        let above = self.owners[&on];
        // Where the one above is left out, the branch that counts it has no room either.
        let has_room = self.tree.branches.len() < self.limits.branches_max
            && self.tree.branches[above].below.len() < self.limits.below_max
            && self.depths[above] < self.limits.depth_max;
        if has_room {
            let branch = self.tree.branches.len();
            self.tree.branches.push(Branch { place, link, above, below: Vec::new(), more: 0 });
            self.tree.branches[above].below.push(branch);
            self.depths.push(self.depths[above] + 1);
            self.owners.insert(place, branch);
        } else {
            self.tree.branches[above].more += 1;
            self.owners.insert(place, above);
        }
    }
}

fn is_read(history: &History, place: Place) -> bool {
    history.table(place).is_read(place.row)
}

/// What runs saw of tables, by journal; built when it is needed.
struct AllSeen<'h> {
    history: &'h History,
    of: Vec<OnceCell<Seen<'h>>>,
}

impl<'h> AllSeen<'h> {
    fn new(history: &'h History) -> Self {
        Self { history, of: history.tables().iter().map(|_| OnceCell::new()).collect() }
    }

    /// Calls `each` for the records behind the ranges and missing keys that a read has.
    fn records(&self, read: Place, mut each: impl FnMut(Place) -> ControlFlow<()>) {
        let table = self.history.table(read);
        if table.keyed_reads(read.row).next().is_some() {
            let seen = self.of[read.table as usize].get_or_init(|| Seen::of(table));
            let _stopped = seen.records(read.row, |row| each(Place { row, ..read }));
        }
    }
}

impl Tree {
    /// Everything that an event caused. Of any event, its record or run is the root.
    pub fn effects(history: &History, event: Place, limits: TreeLimits) -> Option<Tree> {
        let root = root_of(history, event)?;
        let mut growing = Growing::new(history, root, limits);
        // By log, in any table: reached seqnos, in ascending order.
        let mut seqnos: HashMap<u32, Vec<u64>> = HashMap::new();
        let note = |seqnos: &mut HashMap<u32, Vec<u64>>, place: Place| {
            let row = history.row(place);
            if row.is(Kind::Append) {
                let known = seqnos.entry(row.subject).or_default();
                let at = known.partition_point(|seqno| *seqno < row.seqno);
                known.insert(at, row.seqno);
            }
        };
        note(&mut seqnos, root);
        let seen = AllSeen::new(history);
        for place in history.order().skip_while(|place| *place != root) {
            let row = history.row(place);
            if row.is(Kind::Append) {
                let Cause::Known(cause) = history.cause(place) else { continue };
                let link = match (row.claimed(), history.row(cause).is(Kind::Trigger)) {
                    (true, _) => Link::Claimed,
                    (_, true) => Link::Appended,
                    (_, false) => Link::Forwarded,
                };
                if growing.has(cause) && !growing.has(place) {
                    growing.add(place, link, cause);
                    note(&mut seqnos, place);
                }
            } else if row.is(Kind::Trigger) {
                if let Cause::Known(cause) = history.cause(place)
                    && growing.has(cause)
                {
                    growing.add(place, Link::Triggered, cause);
                }
            } else if is_read(history, place) {
                let Some(run) = history.run_of(place).filter(|run| !growing.has(*run)) else { continue };
                let mut found = history.table(place).reads(place.row).find_map(|read| {
                    let known = seqnos.get(&read.log).filter(|_| read.what == What::Record)?;
                    let at = known.partition_point(|seqno| *seqno < read.from);
                    let mut within = known[at..].iter().take_while(|seqno| **seqno - read.from < read.count);
                    // Other tables have logs of that number, too.
                    within
                        .find_map(|seqno| history.record(place, read.log, *seqno).filter(|record| growing.has(*record)))
                });
                if found.is_none() {
                    seen.records(place, |record| {
                        found = Some(record).filter(|record| growing.has(*record));
                        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                    });
                }
                if let Some(record) = found {
                    growing.add(run, Link::Read, record);
                }
            }
        }
        Some(growing.tree)
    }

    /// Everything that an event came from. Of any event, its record or run is the root.
    pub fn causes(history: &History, event: Place, limits: TreeLimits) -> Option<Tree> {
        let root = root_of(history, event)?;
        let mut growing = Growing::new(history, root, limits);
        // A run's reads come after its TRIGGER.
        let order: Vec<Place> = if history.row(root).is(Kind::Trigger) {
            history.order().collect()
        } else {
            history.order().take_while(|place| *place != root).chain([root]).collect()
        };
        let seen = AllSeen::new(history);
        for place in order.into_iter().rev() {
            let row = history.row(place);
            if row.is(Kind::Append) || row.is(Kind::Trigger) {
                if !growing.has(place) {
                    continue;
                }
                let cause = match history.cause(place) {
                    Cause::Known(cause) => cause,
                    Cause::Outside => continue,
                    Cause::Unknown(_) => {
                        growing.tree.unknown += 1;
                        continue;
                    }
                };
                let link = match (row.claimed(), row.is(Kind::Trigger), history.row(cause).is(Kind::Trigger)) {
                    (true, ..) => Link::Claimed,
                    (_, true, _) => Link::Triggered,
                    (_, _, true) => Link::Appended,
                    (_, _, false) => Link::Forwarded,
                };
                // A claim may name any event; only records and runs are shown.
                if history.row(cause).is(Kind::Append) || history.row(cause).is(Kind::Trigger) {
                    growing.add(cause, link, place);
                }
            } else if is_read(history, place) {
                let Some(run) = history.run_of(place).filter(|run| growing.has(*run)) else { continue };
                let table = history.table(place);
                for read in table.reads(place.row).filter(|read| read.what == What::Record) {
                    // At most as many as the log has, whatever the entry contains.
                    let newest = table.bounds(read.log).map_or(0, |(_, newest)| newest);
                    for seqno in read.from..=newest.min(read.from.saturating_add(read.count - 1)) {
                        match history.record(place, read.log, seqno) {
                            Some(record) => growing.add(record, Link::Read, run),
                            None => growing.tree.unknown += 1,
                        }
                    }
                }
                seen.records(place, |record| {
                    growing.add(record, Link::Read, run);
                    ControlFlow::Continue(())
                });
            }
        }
        for branch in &mut growing.tree.branches {
            branch.below.reverse();
        }
        growing.tree.branches = numbered(growing.tree.branches);
        Some(growing.tree)
    }
}

/// The same branches, with numbers in the order in which each one's branches are listed.
fn numbered(branches: Vec<Branch>) -> Vec<Branch> {
    let mut order = vec![0];
    let mut at = 0;
    while let Some(number) = order.get(at) {
        order.extend_from_slice(&branches[*number].below);
        at += 1;
    }
    let mut numbers = vec![0; branches.len()];
    order.iter().enumerate().for_each(|(new, old)| numbers[*old] = new);
    let mut left: Vec<Option<Branch>> = branches.into_iter().map(Some).collect();
    let renumbered = order.iter().filter_map(|old| left[*old].take()).map(|branch| Branch {
        above: numbers[branch.above],
        below: branch.below.iter().map(|below| numbers[*below]).collect(),
        ..branch
    });
    renumbered.collect()
}

/// The record or the run that an event belongs to.
fn root_of(history: &History, event: Place) -> Option<Place> {
    let row = history.row(event);
    if row.is(Kind::Append) { Some(event) } else { history.run_of(event) }
}
