//! The oracle: what a history comes to if other values had come from outside, found by going through it once. It knows of the
//! journal what everybody can read, and nothing of repairs.

use crate::program::{self, Io, Step};
use millrace_journal::{Entry, Journal, Kind, Origin, Position};
use millrace_namespace::outbox::message;
use millrace_wire::EventId;
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
}

/// What is added to the number of a log of the other namespace: messages there have places of their own.
pub const ELSEWHERE: u32 = 1 << 30;
/// Records that change in the other namespace: by id, what they are.
pub type Seeds = BTreeMap<EventId, Option<String>>;

pub struct Model<'a> {
    /// Log ids, by number in programs.
    pub logs: &'a [u32],
    /// By function's id.
    pub programs: &'a HashMap<u32, Vec<Step>>,
    /// Functions whose runs leave what they left, unless their record is gone.
    pub kept: &'a HashSet<u32>,
    pub corrections: &'a Corrections,
    /// Other code: of which function, for runs that were FIRED from which sequence on, and what it does.
    pub code: Option<(u32, u64, &'a [Step])>,
    /// Whether a run may leave more than it had left: the rest is appended by the repair.
    pub append_new: bool,
    /// The repair that makes this history: what others appended is void in it.
    pub repair: Option<u64>,
    /// The outbox, if anything was sent.
    pub outbox: Option<u32>,
    /// What changes of what the other namespace has sent.
    pub seeds: &'a Seeds,
}

/// Records for which runs had no place, until the repair appends them.
#[derive(Default)]
struct Rest(Vec<(u32, String)>);

impl Rest {
    fn take(&mut self, log: u32) -> Option<String> {
        let at = self.0.iter().position(|(of, _)| *of == log)?;
        Some(self.0.remove(at).1)
    }
}

struct View<'a> {
    logs: &'a [u32],
    slots: &'a HashMap<u32, BTreeMap<u64, Slot>>,
    fired: &'a Fired,
    own: Vec<(u32, u64)>,
}

impl View<'_> {
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
        let log = self.logs[log];
        let seen = self.seen(log);
        let own = self.own(log).len() as u64;
        if own > 0 {
            return seen.last().map_or(0, |(seqno, _)| *seqno) + own;
        }
        seen.iter().rev().find(|(_, slot)| slot.value.is_some()).map_or(0, |(seqno, _)| *seqno)
    }

    fn get(&mut self, log: usize, seqno: u64) -> Option<u64> {
        let log = self.logs[log];
        let seen = self.seen(log);
        let last = seen.last().map_or(0, |(seqno, _)| *seqno);
        if seqno > last {
            return self.own(log).get((seqno - last - 1) as usize).copied();
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
        // What a repair appends, in the batch of its GENERATION.
        let added = |rest: &mut Rest, entries: &[Entry], log: u32| {
            let repair = entries.iter().find_map(Entry::generation);
            if repair == self.repair { rest.take(log) } else { None }
        };
        for (at, entry) in entries.iter().enumerate() {
            match entry.kind {
                Kind::Append if self.outbox == Some(entry.subject) => {
                    let message = message::decode(&entry.payload).unwrap();
                    let log: u32 = message.log.rsplit('/').next().unwrap().parse().unwrap();
                    messages.insert((ELSEWHERE + log, entry.seqno), entry.id);
                    if ended.contains(&entry.cause) {
                        let value = added(&mut rest, &entries[at..], ELSEWHERE + log);
                        let slot = Slot { value, sequence: entry.id.sequence(), claim: None };
                        slots.entry(ELSEWHERE + log).or_default().insert(entry.seqno, slot);
                        continue;
                    }
                    let data = String::from_utf8(message.data.to_vec()).unwrap();
                    recorded.insert((ELSEWHERE + log, entry.seqno), data);
                    let append = (ELSEWHERE + log, entry.seqno, entry.id.sequence());
                    left.entry(entry.cause).or_default().push(append);
                }
                Kind::Append if !self.logs.contains(&entry.subject) => {}
                Kind::Append if entry.claimed || entry.cause == EventId::NONE => {
                    let corrected = self.corrections.get(&(entry.subject, entry.seqno));
                    let sent = || Some(String::from_utf8(entry.payload.clone()).unwrap());
                    let recorded = || self.seeds.get(&entry.cause).cloned().unwrap_or_else(sent);
                    let value = corrected.map_or_else(recorded, |value| value.map(|value| value.to_string()));
                    let slot = Slot { value, sequence: entry.id.sequence(), claim: None };
                    slots.entry(entry.subject).or_default().insert(entry.seqno, slot);
                }
                Kind::Append if ended.contains(&entry.cause) => {
                    let value = added(&mut rest, &entries[at..], entry.subject);
                    let slot = Slot { value, sequence: entry.id.sequence(), claim: None };
                    slots.entry(entry.subject).or_default().insert(entry.seqno, slot);
                }
                Kind::Append => {
                    dead_letters.insert(entry.id, (entry.subject, entry.seqno));
                    recorded.insert((entry.subject, entry.seqno), String::from_utf8(entry.payload.clone()).unwrap());
                    let append = (entry.subject, entry.seqno, entry.id.sequence());
                    left.entry(entry.cause).or_default().push(append);
                }
                Kind::Trigger => {
                    let (log, seqno) = entry.trigger_record().unwrap();
                    let letter = (entry.ordinal == Origin::Retry as u16).then_some(entry.cause);
                    triggers.insert(entry.id, (entry.subject, log, seqno, letter));
                }
                Kind::Fired => {
                    let attempt = entry.attempt().unwrap();
                    let sequence = entry.id.sequence();
                    let claim = sequence - u64::from(attempt.place);
                    fired.insert(entry.cause, Fired { sequence, claim, place: attempt.place });
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
                            let mut view = View { logs: self.logs, slots: &slots, fired, own: Vec::new() };
                            let given = self.code.filter(|(of, since, _)| *of == function && fired.sequence >= *since);
                            let steps = given.map_or(&*self.programs[&function], |(.., steps)| steps);
                            let done = program::run(steps, input.parse().unwrap(), &mut view);
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
                        rest.0.extend(over);
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
