//! The oracle: what a history comes to if other values had come from outside, found by going through it once. It knows of the journal what
//! everybody can read, and nothing of repairs but that a record which restates a key is none of the history.

use crate::{
    program::{self, Io, KEYS, Program},
    world::{DEAD, input, key},
};
use millrace_journal::{Entry, Journal, Kind, Operation, Position};
use millrace_wire::EventId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Corrections: by log and seqno, the value or none.
pub type Corrections = BTreeMap<(u32, u64), Option<i64>>;

/// A run would leave more than it had left.
#[derive(Debug)]
pub struct Grows;

/// What happens to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Put(i64),
    Delete,
    Increment(i64),
}

/// What a run left: the log, the seqno, the sequence, and the key if it is a table.
type Left = (u32, u64, u64, Option<u64>);

/// What is in a slot: the text of a record of a log; of a table also its key, and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    Log(String),
    Table(u64, Event),
}

/// The versions of a table by their place, and in which slot they are.
type Versions = BTreeMap<(u64, u64), (u64, Event)>;

/// What a namespace comes to.
#[derive(Debug, PartialEq, Eq)]
pub struct History {
    /// By log and seqno, the texts.
    pub logs: BTreeMap<(u32, u64), Option<String>>,
    /// By table and key, the values.
    pub values: BTreeMap<(u32, u64), i64>,
}

pub struct Model<'a> {
    pub logs: &'a [u32],
    pub tables: &'a [u32],
    pub programs: &'a HashMap<u32, Program>,
    pub corrections: &'a Corrections,
    pub append_new: bool,
}

/// The value of a key, counting the versions that somebody sees.
fn value(versions: &Versions, key: u64, sees: impl Fn(&(u64, u64)) -> bool) -> Option<i64> {
    let mut value = None;
    for (_, (of, event)) in versions.iter().filter(|(place, _)| sees(place)) {
        if *of == key {
            value = after(value, *event);
        }
    }
    value
}

fn after(value: Option<i64>, event: Event) -> Option<i64> {
    match event {
        Event::Put(value) => Some(value),
        Event::Delete => None,
        Event::Increment(by) => Some(value.unwrap_or(0) + by),
    }
}

struct View<'a> {
    model: &'a Model<'a>,
    tables: &'a HashMap<u32, Versions>,
    fired: u64,
    own: Vec<(u32, Slot)>,
}

impl View<'_> {
    fn at(&self, table: usize, key: u64) -> Option<i64> {
        let id = self.model.tables[table];
        let before = self.tables.get(&id).and_then(|versions| value(versions, key, |place| place.0 < self.fired));
        self.own.iter().fold(before, |before, (of, slot)| match slot {
            Slot::Table(at, event) if (*of, *at) == (id, key) => after(before, *event),
            _ => before,
        })
    }
}

impl Io for View<'_> {
    fn get(&mut self, table: usize, key: u64) -> Option<i64> {
        self.at(table, key)
    }

    fn scan(&mut self, table: usize, from: u64, to: u64) -> Vec<(u64, i64)> {
        (from..to).filter_map(|key| Some((key, self.at(table, key)?))).collect()
    }

    fn put(&mut self, table: usize, key: u64, value: i64) {
        self.own.push((self.model.tables[table], Slot::Table(key, Event::Put(value))));
    }

    fn delete(&mut self, table: usize, key: u64) {
        self.own.push((self.model.tables[table], Slot::Table(key, Event::Delete)));
    }

    fn increment(&mut self, table: usize, key: u64, by: i64) {
        self.own.push((self.model.tables[table], Slot::Table(key, Event::Increment(by))));
    }

    fn append(&mut self, log: usize, value: i64) {
        self.own.push((self.model.logs[log], Slot::Log(value.to_string())));
    }
}

fn number_of(key_bytes: &[u8]) -> u64 {
    (0..KEYS).find(|number| key(*number) == key_bytes).unwrap()
}

fn slot_of(entry: &Entry) -> Slot {
    match entry.row() {
        None => Slot::Log(String::from_utf8(entry.payload.clone()).unwrap()),
        Some(row) => {
            let event = match row.operation {
                Operation::Put => Event::Put(input(&entry.payload)),
                Operation::Delete => Event::Delete,
                Operation::Increment => Event::Increment(row.amount),
            };
            Slot::Table(number_of(row.key), event)
        }
    }
}

impl Model<'_> {
    pub fn history(&self, journal: &Journal) -> Result<History, Grows> {
        let mut scan = journal.scan(Position::default());
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(entry) = scan.next().unwrap() {
            entries.push(entry.clone());
        }
        let mut logs: BTreeMap<(u32, u64), Option<String>> = BTreeMap::new();
        let mut tables: HashMap<u32, Versions> = self.tables.iter().map(|id| (*id, Versions::new())).collect();
        let mut triggers: HashMap<EventId, (u32, u32, u64)> = HashMap::new();
        let mut fired: HashMap<EventId, u64> = HashMap::new();
        // What runs left, with the key that it was for.
        let mut left: HashMap<EventId, Vec<Left>> = HashMap::new();
        let mut ended: HashMap<EventId, u64> = HashMap::new();
        // What runs leave more than they left, until a repair appends it.
        let mut rest: Vec<(EventId, u32, Slot)> = Vec::new();
        let of = |id: u32| self.logs.contains(&id) || self.tables.contains(&id);
        let mut places: HashMap<(u32, u64), u64> = HashMap::new();
        let mut late = 1 << 62;
        for entry in &entries {
            let (sequence, slot) = (entry.id.sequence(), (entry.subject, entry.seqno));
            match entry.kind {
                Kind::Append if !of(entry.subject) || entry.row().is_some_and(|row| row.restates.is_some()) => {}
                Kind::Append if entry.claimed || entry.cause == EventId::NONE => {
                    let mut content = Some(slot_of(entry));
                    if let Some(corrected) = self.corrections.get(&slot) {
                        content = corrected.zip(content).map(|(value, content)| match content {
                            Slot::Log(_) => Slot::Log(value.to_string()),
                            Slot::Table(key, _) => Slot::Table(key, Event::Put(value)),
                        });
                    }
                    put(&mut logs, &mut tables, slot, (sequence, content), &mut places);
                }
                Kind::Append if ended.contains_key(&entry.cause) => {
                    let is_its = |(run, log, _): &(EventId, u32, Slot)| (*run, *log) == (entry.cause, entry.subject);
                    let content = rest.iter().position(is_its).map(|at| rest.remove(at).2);
                    match content {
                        // It was in its place already, without a seqno.
                        Some(Slot::Table(key, event)) => {
                            let versions = tables.entry(entry.subject).or_default();
                            let is_it = |place: &(u64, u64)| place.0 == ended[&entry.cause] && place.1 >= 1 << 62;
                            let at = versions.iter().find(|(at, it)| is_it(at) && **it == (key, event)).map(|it| *it.0);
                            versions.remove(&at.unwrap());
                            let content = (ended[&entry.cause], Some(Slot::Table(key, event)));
                            put(&mut logs, &mut tables, slot, content, &mut places);
                        }
                        content => put(&mut logs, &mut tables, slot, (sequence, content), &mut places),
                    }
                }
                Kind::Append => {
                    let key = entry.row().map(|row| number_of(row.key));
                    left.entry(entry.cause).or_default().push((entry.subject, entry.seqno, sequence, key));
                }
                Kind::Trigger => {
                    let (log, seqno) = entry.trigger_record().unwrap();
                    triggers.insert(entry.id, (entry.subject, log, seqno));
                }
                Kind::Fired => drop(fired.insert(entry.cause, sequence)),
                Kind::Done => {
                    let (function, log, seqno) = triggers[&entry.cause];
                    let mut free = left.remove(&entry.cause).unwrap_or_default();
                    ended.insert(entry.cause, sequence);
                    let input = self.input(&logs, &tables, &places, (log, seqno));
                    let (mut new, mut dead) = (Vec::new(), false);
                    if let Some(input) = input {
                        let at = fired[&entry.cause];
                        let mut view = View { model: self, tables: &tables, fired: at, own: Vec::new() };
                        dead = !program::run(&self.programs[&function].steps, input, &mut view);
                        new = view.own;
                        if dead {
                            new = vec![(self.logs[DEAD], Slot::Log(format!("dead {input}")))];
                        }
                    }
                    self.drop_idle(&tables, sequence, &mut new);
                    let taken = assign(&mut free, &new);
                    for ((log, content), to) in new.into_iter().zip(taken) {
                        match to {
                            Some((seqno, sequence)) => {
                                put(&mut logs, &mut tables, (log, seqno), (sequence, Some(content)), &mut places);
                            }
                            None if !dead && !self.append_new => return Err(Grows),
                            None => {
                                rest.push((entry.cause, log, content.clone()));
                                if let Slot::Table(key, event) = content {
                                    late += 1;
                                    tables.entry(log).or_default().insert((sequence, late), (key, event));
                                }
                            }
                        }
                    }
                    for (log, seqno, sequence, _) in free {
                        put(&mut logs, &mut tables, (log, seqno), (sequence, None), &mut places);
                    }
                    // Who corrects what a run left means it so.
                    for ((log, seqno), value) in self.corrections {
                        let Some(sequence) = places.get(&(*log, *seqno)).copied() else { continue };
                        if let Some(text) = logs.get_mut(&(*log, *seqno)) {
                            *text = value.map(|value| value.to_string());
                            continue;
                        }
                        let versions = tables.entry(*log).or_default();
                        let key = entries
                            .iter()
                            .find(|it| (it.subject, it.seqno) == (*log, *seqno) && it.kind == Kind::Append);
                        let key = number_of(key.unwrap().row().unwrap().key);
                        match value {
                            Some(value) => drop(versions.insert((sequence, *seqno), (key, Event::Put(*value)))),
                            None => drop(versions.remove(&(sequence, *seqno))),
                        }
                    }
                }
                _ => {}
            }
        }
        let mut values = BTreeMap::new();
        for (table, versions) in &tables {
            for key in 0..KEYS {
                values.extend(value(versions, key, |_| true).map(|value| ((*table, key), value)));
            }
        }
        Ok(History { logs, values })
    }

    /// What a record is as the input of a function, if there is one.
    fn input(
        &self,
        logs: &BTreeMap<(u32, u64), Option<String>>,
        tables: &HashMap<u32, Versions>,
        places: &HashMap<(u32, u64), u64>,
        slot: (u32, u64),
    ) -> Option<i64> {
        if let Some(text) = logs.get(&slot) {
            return text.as_ref().map(|text| input(text.as_bytes()));
        }
        let place = (*places.get(&slot)?, slot.1);
        let versions = &tables[&slot.0];
        let (key, event) = versions.get(&place)?;
        Some(match event {
            Event::Delete => 0,
            _ => value(versions, *key, |at| *at <= place).unwrap(),
        })
    }

    /// A deletion of a key that has no value leaves nothing.
    fn drop_idle(&self, tables: &HashMap<u32, Versions>, before: u64, new: &mut Vec<(u32, Slot)>) {
        let mut now: HashMap<(u32, u64), Option<i64>> = HashMap::new();
        new.retain(|(table, slot)| {
            let Slot::Table(key, event) = slot else { return true };
            let was = now.get(&(*table, *key)).copied().unwrap_or_else(|| {
                tables.get(table).and_then(|versions| value(versions, *key, |place| place.0 < before))
            });
            now.insert((*table, *key), after(was, *event));
            *event != Event::Delete || was.is_some()
        });
    }
}

fn put(
    logs: &mut BTreeMap<(u32, u64), Option<String>>,
    tables: &mut HashMap<u32, Versions>,
    (log, seqno): (u32, u64),
    (sequence, content): (u64, Option<Slot>),
    places: &mut HashMap<(u32, u64), u64>,
) {
    places.insert((log, seqno), sequence);
    match content {
        Some(Slot::Table(key, event)) => {
            tables.entry(log).or_default().insert((sequence, seqno), (key, event));
        }
        Some(Slot::Log(text)) => drop(logs.insert((log, seqno), Some(text))),
        None if tables.contains_key(&log) => drop(tables.get_mut(&log).unwrap().remove(&(sequence, seqno))),
        None => drop(logs.insert((log, seqno), None)),
    }
}

/// Which slot each record takes: in a log the n-th the n-th; in a table those of the same key first, and changes of one key in their order.
fn assign(free: &mut Vec<Left>, new: &[(u32, Slot)]) -> Vec<Option<(u64, u64)>> {
    let mut taken: Vec<Option<(u64, u64)>> = vec![None; new.len()];
    let mut take = |n: usize, is_it: &dyn Fn(&Left) -> bool| {
        if let (None, Some(at)) = (taken[n], free.iter().position(is_it)) {
            let (_, seqno, sequence, _) = free.remove(at);
            taken[n] = Some((seqno, sequence));
        }
    };
    for (n, (log, slot)) in new.iter().enumerate() {
        match slot {
            Slot::Log(_) => take(n, &|it| it.0 == *log),
            Slot::Table(key, _) => take(n, &|it| it.0 == *log && it.3 == Some(*key)),
        }
    }
    for (n, (log, _)) in new.iter().enumerate() {
        take(n, &|it| it.0 == *log);
    }
    let keys: BTreeSet<(u32, u64)> = new
        .iter()
        .filter_map(|(log, slot)| if let Slot::Table(key, _) = slot { Some((*log, *key)) } else { None })
        .collect();
    for of in keys {
        let is_its = |n: &usize| matches!(&new[*n], (log, Slot::Table(key, _)) if (*log, *key) == of);
        let numbers: Vec<usize> = (0..new.len()).filter(is_its).collect();
        let mut slots: Vec<(u64, u64)> = numbers.iter().filter_map(|n| taken[*n].take()).collect();
        slots.sort_unstable();
        for (n, slot) in numbers.into_iter().zip(slots) {
            taken[n] = Some(slot);
        }
    }
    taken
}
