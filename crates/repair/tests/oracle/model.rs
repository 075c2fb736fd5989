//! The oracle: what a history comes to if other values had come from outside, found by going through it once. It knows of the
//! journal what everybody can read, and nothing of repairs.

use crate::program::{self, Io, Program};
use millrace_journal::{Entry, Journal, Kind, Origin, Position, ReadFrom, What};
use millrace_namespace::outbox::message;
use millrace_wire::{EventId, LogName};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Corrections: by log and seqno, the value or none.
pub type Corrections = BTreeMap<(u32, u64), Option<u64>>;
/// What is in each slot: a number, another text (a dead letter), or nothing.
pub type Logs = BTreeMap<u32, BTreeMap<u64, Option<String>>>;

/// A run would leave more than it had left: no such history is made.
#[derive(Debug)]
pub struct Grows;

struct Slot {
    value: Option<String>,
    sequence: u64,
    claim: Option<(u64, u32)>,
}

struct Fired {
    sequence: u64,
    claim: u64,
    place: u32,
    revision: u32,
}

/// Other code for the runs of a function.
#[derive(Clone)]
pub struct OtherCode {
    /// The function.
    pub function: u32,
    /// Runs that were FIRED from this sequence on, and had ended before this one.
    pub since: u64,
    pub before: u64,
    pub program: Program,
}

/// What a log keeps, from which sequence on: how many records, and none before which.
#[derive(Default)]
struct Kept {
    histories: Vec<(u64, u64)>,
    floors: Vec<(u64, u64)>,
}

impl Kept {
    /// The oldest record that there was before a sequence, if this was the newest.
    fn oldest(&self, newest: u64, before: u64) -> u64 {
        let history = self.histories.iter().rev().find(|(from, _)| *from < before).map_or(0, |(_, history)| *history);
        let floors = self.floors.iter().filter(|(from, _)| *from < before).map(|(_, floor)| *floor);
        (newest + 1).saturating_sub(history).max(floors.max().unwrap_or(0)).max(1)
    }
}

/// A definition in the journal.
#[derive(Deserialize)]
struct Define {
    define: String,
    id: u32,
    #[serde(default)]
    name: String,
    #[serde(default)]
    history: u64,
}

/// What is added to the number of a log of the other namespace: messages there have places of their own.
pub const ELSEWHERE: u32 = 1 << 30;
/// Records that change in the other namespace: by id, what they are.
pub type Seeds = BTreeMap<EventId, Option<String>>;

pub struct Model<'a> {
    /// Log ids, by number in programs; the last one takes dead letters.
    pub logs: &'a [u32],
    /// By number in programs: the names.
    pub names: &'a [LogName],
    /// What the revisions of functions do.
    pub programs: &'a dyn Fn(u32, u32) -> &'a Program,
    /// Functions whose runs leave what they left, unless their record is gone.
    pub kept: &'a HashSet<u32>,
    pub corrections: &'a Corrections,
    /// Other code; the last one counts.
    pub code: &'a [OtherCode],
    /// Whether a run may leave more than it had left: the rest is appended by the repair.
    pub append_new: bool,
    /// The outbox, if anything was sent.
    pub outbox: Option<u32>,
    /// What changes of what the other namespace has sent.
    pub seeds: &'a Seeds,
}

/// Records for which runs had no place, until a repair appends them.
#[derive(Default)]
struct Rest(Vec<(EventId, u32, String)>);

impl Rest {
    fn take(&mut self, run: EventId, log: u32) -> Option<String> {
        let at = self.0.iter().position(|(by, of, _)| (*by, *of) == (run, log))?;
        Some(self.0.remove(at).2)
    }
}

struct View<'a> {
    /// The logs that there were, by number in programs.
    logs: Vec<u32>,
    program: &'a Program,
    kept: &'a HashMap<u32, Kept>,
    slots: &'a HashMap<u32, BTreeMap<u64, Slot>>,
    fired: &'a Fired,
    /// Reads that were refused because of what had happened since the run was FIRED.
    refused: &'a HashSet<(u32, u64)>,
    own: Vec<(u32, u64)>,
}

impl View<'_> {
    /// The newest record when the run was FIRED, and the oldest.
    fn range(&self, log: u32) -> (u64, u64) {
        let mut slots = self.slots.get(&log).into_iter().flatten();
        let newest = slots.rfind(|(_, slot)| slot.sequence < self.fired.sequence).map_or(0, |(seqno, _)| *seqno);
        (newest, self.kept[&log].oldest(newest, self.fired.sequence))
    }

    fn seen(&self, log: u32) -> Vec<(u64, &Slot)> {
        let seen = |slot: &Slot| {
            slot.sequence < self.fired.sequence
                || slot.claim.is_some_and(|(claim, place)| claim == self.fired.claim && place < self.fired.place)
        };
        let slots = self.slots.get(&log).into_iter().flatten();
        slots.filter(|(_, slot)| seen(slot)).map(|(seqno, slot)| (*seqno, slot)).collect()
    }

    fn own(&self, log: u32) -> Vec<u64> {
        self.own.iter().filter(|(of, _)| *of == log).map(|(_, value)| *value).collect()
    }
}

impl Io for View<'_> {
    fn latest(&mut self, log: usize) -> u64 {
        if !self.program.may_read(log) {
            return 0;
        }
        let log = self.logs[log];
        let seen = self.seen(log);
        let own = self.own(log).len() as u64;
        if own > 0 {
            return seen.last().map_or(0, |(seqno, _)| *seqno) + own;
        }
        // The one before the oldest, if nothing is left.
        let (_, oldest) = self.range(log);
        let kept = seen.iter().rev().take_while(|(seqno, _)| *seqno >= oldest);
        let newest = kept.clone().find(|(_, slot)| slot.value.is_some()).map(|(seqno, _)| *seqno);
        newest.unwrap_or(if seen.is_empty() { 0 } else { oldest - 1 })
    }

    fn get(&mut self, log: usize, seqno: u64) -> Option<u64> {
        if !self.program.may_read(log) {
            return None;
        }
        let log = self.logs[log];
        if self.refused.contains(&(log, seqno)) {
            return None;
        }
        let seen = self.seen(log);
        let last = seen.last().map_or(0, |(seqno, _)| *seqno);
        if seqno > last {
            return self.own(log).get((seqno - last - 1) as usize).copied();
        }
        let (newest, oldest) = self.range(log);
        if seqno <= newest && seqno < oldest {
            return None;
        }
        let slot = seen.into_iter().find(|(other, _)| *other == seqno)?.1;
        slot.value.as_ref()?.parse().ok()
    }

    fn append(&mut self, log: usize, value: u64) {
        self.own.push((self.logs[log], value));
    }

    fn send(&mut self, log: usize, value: u64) {
        self.own.push((ELSEWHERE + log as u32, value));
    }
}

impl Model<'_> {
    /// The history up to the journal's end.
    pub fn history(&self, journal: &Journal) -> Result<Logs, Grows> {
        let (logs, _, grows) = self.histories(journal);
        if grows { Err(Grows) } else { Ok(logs) }
    }

    /// The same, what messages to the other namespace are, and whether a run would leave more than it had left.
    pub fn histories(&self, journal: &Journal) -> (Logs, Seeds, bool) {
        let mut grows = false;
        let mut messages: HashMap<(u32, u64), EventId> = HashMap::new();
        let mut entries: Vec<Entry> = Vec::new();
        let mut scan = journal.scan(Position::default());
        while let Some(entry) = scan.next().unwrap() {
            entries.push(entry.clone());
        }
        let mut slots: HashMap<u32, BTreeMap<u64, Slot>> = HashMap::new();
        let mut triggers: HashMap<EventId, (u32, u32, u64, Option<EventId>)> = HashMap::new();
        let mut fired: HashMap<EventId, Fired> = HashMap::new();
        let mut left: HashMap<EventId, Vec<(u32, u64, u64)>> = HashMap::new();
        let mut recorded: HashMap<(u32, u64), String> = HashMap::new();
        let mut dead_letters: HashMap<EventId, (u32, u64)> = HashMap::new();
        let (mut ended, mut rest) = (HashSet::new(), Rest::default());
        let (mut kept, mut named) = (HashMap::<u32, Kept>::new(), HashMap::<u32, usize>::new());
        let mut refused: HashMap<EventId, HashSet<(u32, u64)>> = HashMap::new();
        for entry in &entries {
            let sequence = entry.id.sequence();
            match entry.kind {
                Kind::Define => {
                    let Ok(define) = serde_json::from_slice::<Define>(&entry.payload) else { continue };
                    let kept = kept.entry(define.id).or_default();
                    if matches!(&*define.define, "log" | "log-history") {
                        kept.histories.push((sequence, if define.history == 0 { u64::MAX } else { define.history }));
                    }
                    let number = self.names.iter().position(|name| **name == *define.name);
                    if let Some(number) = number.filter(|_| define.define == "log") {
                        named.insert(define.id, number);
                    }
                }
                Kind::Trim => kept.entry(entry.subject).or_default().floors.push((sequence, entry.seqno)),
                Kind::Read => {
                    let below = entry.reads().filter(|row| row.what == What::BelowHistory);
                    let slots = below.filter_map(|row| match row.log {
                        ReadFrom::Log(log) => Some((row.from..row.from + row.count).map(move |seqno| (log, seqno))),
                        ReadFrom::Name(_) => None,
                    });
                    refused.entry(entry.cause).or_default().extend(slots.flatten());
                }
                Kind::Append if self.outbox == Some(entry.subject) => {
                    let message = message::decode(&entry.payload).unwrap();
                    let log: u32 = message.log.rsplit('/').next().unwrap().parse().unwrap();
                    messages.insert((ELSEWHERE + log, entry.seqno), entry.id);
                    if ended.contains(&entry.cause) {
                        let value = rest.take(entry.cause, ELSEWHERE + log);
                        let slot = Slot { value, sequence, claim: None };
                        slots.entry(ELSEWHERE + log).or_default().insert(entry.seqno, slot);
                        continue;
                    }
                    let data = String::from_utf8(message.data.to_vec()).unwrap();
                    recorded.insert((ELSEWHERE + log, entry.seqno), data);
                    let append = (ELSEWHERE + log, entry.seqno, sequence);
                    left.entry(entry.cause).or_default().push(append);
                }
                Kind::Append if !named.contains_key(&entry.subject) => {}
                Kind::Append if entry.claimed || entry.cause == EventId::NONE => {
                    let corrected = self.corrections.get(&(entry.subject, entry.seqno));
                    let sent = || Some(String::from_utf8(entry.payload.clone()).unwrap());
                    let recorded = || self.seeds.get(&entry.cause).cloned().unwrap_or_else(sent);
                    let value = corrected.map_or_else(recorded, |value| value.map(|value| value.to_string()));
                    let slot = Slot { value, sequence, claim: None };
                    slots.entry(entry.subject).or_default().insert(entry.seqno, slot);
                }
                Kind::Append if ended.contains(&entry.cause) => {
                    let value = rest.take(entry.cause, entry.subject);
                    let slot = Slot { value, sequence, claim: None };
                    slots.entry(entry.subject).or_default().insert(entry.seqno, slot);
                }
                Kind::Append => {
                    dead_letters.insert(entry.id, (entry.subject, entry.seqno));
                    recorded.insert((entry.subject, entry.seqno), String::from_utf8(entry.payload.clone()).unwrap());
                    let append = (entry.subject, entry.seqno, sequence);
                    left.entry(entry.cause).or_default().push(append);
                }
                Kind::Trigger => {
                    let (log, seqno) = entry.trigger_record().unwrap();
                    let letter = (entry.ordinal == Origin::Retry as u16).then_some(entry.cause);
                    triggers.insert(entry.id, (entry.subject, log, seqno, letter));
                }
                Kind::Fired => {
                    let attempt = entry.attempt().unwrap();
                    let claim = sequence - u64::from(attempt.place);
                    let (place, revision) = (attempt.place, attempt.revision);
                    fired.insert(entry.cause, Fired { sequence, claim, place, revision });
                }
                Kind::Done => {
                    let (function, log, seqno, letter) = triggers[&entry.cause];
                    let places = left.remove(&entry.cause).unwrap_or_default();
                    let input = slots[&log][&seqno].value.clone();
                    let retried = letter.is_none_or(|letter| {
                        let (log, seqno) = dead_letters[&letter];
                        slots[&log][&seqno].value.is_some()
                    });
                    ended.insert(entry.cause);
                    let mut dead = false;
                    let as_before = |(log, seqno, _): &(u32, u64, u64)| (*log, recorded[&(*log, *seqno)].clone());
                    let new = match input {
                        Some(_) if retried && self.kept.contains(&function) => places.iter().map(as_before).collect(),
                        Some(input) if retried => {
                            let fired = &fired[&entry.cause];
                            let given = self.code.iter().rfind(|code| {
                                code.function == function && fired.sequence >= code.since && sequence < code.before
                            });
                            let program = (self.programs)(function, fired.revision);
                            let program = given.map_or(program, |code| &code.program);
                            let logs = self.names.iter().enumerate().map(|(number, _)| {
                                let of = named.iter().filter(|(_, of)| **of == number).map(|(id, _)| *id);
                                of.filter(|id| kept[id].histories[0].0 < fired.sequence).max().unwrap()
                            });
                            let (logs, own, none) = (logs.collect(), Vec::new(), HashSet::new());
                            let refused = refused.get(&entry.cause).unwrap_or(&none);
                            let mut view = View { logs, program, kept: &kept, slots: &slots, fired, refused, own };
                            let done = program::run(&program.steps, input.parse().unwrap(), &mut view);
                            dead = !done;
                            let own = view.own.into_iter().map(|(log, value)| (log, value.to_string()));
                            if done { own.collect() } else { vec![(self.dead(), format!("dead {input}"))] }
                        }
                        _ => Vec::new(),
                    };
                    let claim = fired.get(&entry.cause).map(|fired| (fired.claim, fired.place));
                    let over = place(&mut slots, places, new, claim);
                    if !over.is_empty() && !dead && !self.append_new {
                        grows = true;
                    } else {
                        rest.0.extend(over.into_iter().map(|(log, value)| (entry.cause, log, value)));
                    }
                    // Who corrects what a run left means it so, whatever the run leaves now.
                    for ((log, seqno), value) in self.corrections {
                        if let Some(slot) = slots.get_mut(log).and_then(|log| log.get_mut(seqno)) {
                            slot.value = value.map(|value| value.to_string());
                        }
                    }
                }
                _ => {}
            }
        }
        let values = |of: BTreeMap<u64, Slot>| of.into_iter().map(|(seqno, slot)| (seqno, slot.value)).collect();
        let mut logs: Logs = slots.into_iter().map(|(log, of)| (log, values(of))).collect();
        let sent = logs.split_off(&ELSEWHERE);
        let sent = sent.iter().flat_map(|(log, of)| of.iter().map(|(seqno, value)| ((*log, *seqno), value.clone())));
        (logs, sent.map(|(slot, value)| (messages[&slot], value)).collect(), grows)
    }

    /// The log of dead letters: the last.
    fn dead(&self) -> u32 {
        *self.logs.last().unwrap()
    }
}

/// Gives what a run leaves now the places that it had: the n-th in a log the n-th there. What has no place is returned.
fn place(
    slots: &mut HashMap<u32, BTreeMap<u64, Slot>>,
    places: Vec<(u32, u64, u64)>,
    new: Vec<(u32, String)>,
    claim: Option<(u64, u32)>,
) -> Vec<(u32, String)> {
    let (mut rest, mut over) = (places, Vec::new());
    for (log, value) in new {
        let Some(at) = rest.iter().position(|(of, ..)| *of == log) else {
            over.push((log, value));
            continue;
        };
        let (log, seqno, sequence) = rest.remove(at);
        slots.entry(log).or_default().insert(seqno, Slot { value: Some(value), sequence, claim });
    }
    for (log, seqno, sequence) in rest {
        slots.entry(log).or_default().insert(seqno, Slot { value: None, sequence, claim });
    }
    over
}
