//! A world of namespaces that append, run functions and send one another messages, at random; and the entries that their journals have.

use millrace_causality::{Builder, Event, History, Table};
use millrace_journal::{Kind, map};
use millrace_wire::{EventId, Hlc, NamespaceId};

/// An entry with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: EventId,
    pub kind: Kind,
    pub hlc: Hlc,
    pub cause: EventId,
    pub subject: u32,
    pub seqno: u64,
    pub ordinal: u16,
    /// Whether a client named the cause.
    pub claimed: bool,
    /// Whether a link brought it.
    pub received: bool,
    pub carried: bool,
    pub payload: Vec<u8>,
    /// What a READ holds, in plain.
    pub reads: Vec<Read>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    pub log: u32,
    pub from: u64,
    pub count: u64,
    /// 0 records, 1 the newest seqno, 2 no such record.
    pub what: u8,
}

/// The table of these entries.
pub fn table(namespace: NamespaceId, entries: &[Entry]) -> Table {
    let mut builder = Builder::new(namespace);
    (1..=LOGS).for_each(|log| builder.name_log(log, &format!("log/{log}")));
    builder.name_log(OUTBOX, "_outbox/<peer>");
    for other in (0..5).map(name_of).filter(|other| *other != namespace) {
        builder.name_log(100 + other.get() as u32, &format!("_inbox/{other}/messages"));
    }
    FUNCTIONS.for_each(|function| builder.name_function(function, &format!("function-{function}")));
    for (at, entry) in entries.iter().enumerate() {
        let event = Event {
            id: entry.id,
            position: at as u64 * 64,
            kind: entry.kind,
            hlc: entry.hlc,
            cause: entry.cause,
            subject: entry.subject,
            seqno: entry.seqno,
            ordinal: entry.ordinal,
            carried: entry.carried,
            claimed: entry.claimed || entry.received,
            repair: None,
            void: false,
            payload: &entry.payload,
            key: None,
            payload_bytes: entry.payload.len() as u64,
        };
        builder.push(&event).expect("the table has room");
    }
    builder.finish()
}

/// SplitMix64: the same numbers for the same seed.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let a = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let b = (a ^ a >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        b ^ b >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Logs of each namespace, and its functions: 1 to 4 and 11 to 13; 20 is its outbox.
pub const LOGS: u32 = 4;
pub const FUNCTIONS: std::ops::RangeInclusive<u32> = 11..=13;
pub const OUTBOX: u32 = 20;

struct Pending {
    run: EventId,
    function: u32,
    number: u64,
}

pub struct Namespace {
    pub id: NamespaceId,
    pub entries: Vec<Entry>,
    clock: Hlc,
    latest: Vec<u64>,
    triggered: Vec<u64>,
    pending: Vec<Pending>,
    /// By log: the functions bound to it.
    bound: Vec<Vec<u32>>,
    /// By function: the logs that it appends to.
    targets: Vec<Vec<u32>>,
}

/// The identity of a namespace, by its number: they are in no order.
pub fn name_of(at: usize) -> NamespaceId {
    NamespaceId::new(0xA00 + 7 * (at as u64 * 5 % 11) + 1).expect("it is not 0")
}

pub struct World {
    pub namespaces: Vec<Namespace>,
    random: Random,
    wall_us: u64,
    /// Messages on their way: receiver, log, id at the source, its clock.
    sent: Vec<(usize, u32, EventId, Hlc)>,
}

pub fn int(number: u64) -> Vec<u8> {
    let bytes = number.to_le_bytes();
    bytes[..8 - number.leading_zeros() as usize / 8].to_vec()
}

pub fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl Namespace {
    fn new(id: NamespaceId, random: &mut Random) -> Self {
        let logs = OUTBOX as usize + 1;
        let mut bound = vec![Vec::new(); logs];
        let mut targets = vec![Vec::new(); logs];
        for function in FUNCTIONS {
            bound[1 + random.below(LOGS.into()) as usize].push(function);
            for log in 1..=LOGS {
                if random.chance(35) {
                    targets[function as usize].push(log);
                }
            }
        }
        let (latest, triggered) = (vec![0; logs], vec![0; logs]);
        Self { id, entries: Vec::new(), clock: Hlc::ZERO, latest, triggered, pending: Vec::new(), bound, targets }
    }

    fn push(&mut self, wall_us: u64, mut entry: Entry) -> EventId {
        self.clock = self.clock.next(wall_us);
        entry.hlc = self.clock;
        entry.id = EventId::new(self.id, 1, self.entries.len() as u64 + 1);
        self.entries.push(entry);
        self.entries[self.entries.len() - 1].id
    }

    fn append(&mut self, wall_us: u64, log: u32, cause: EventId, claimed: bool) -> EventId {
        self.latest[log as usize] += 1;
        let seqno = self.latest[log as usize];
        let record = Entry { subject: log, seqno, cause, claimed, payload: vec![7; 5], ..entry(Kind::Append) };
        let id = self.push(wall_us, record);
        for function in self.bound[log as usize].clone() {
            self.triggered[function as usize] += 1;
            let number = self.triggered[function as usize];
            let mut payload = Vec::new();
            map::push(&mut payload, 1, &int(log.into()));
            map::push(&mut payload, 2, &int(seqno));
            let trigger = Entry { subject: function, seqno: number, cause: id, payload, ..entry(Kind::Trigger) };
            let run = self.push(wall_us, trigger);
            self.pending.push(Pending { run, function, number });
        }
        id
    }
}

fn entry(kind: Kind) -> Entry {
    Entry {
        id: EventId::NONE,
        kind,
        hlc: Hlc::ZERO,
        cause: EventId::NONE,
        subject: 0,
        seqno: 0,
        ordinal: 0,
        claimed: false,
        received: false,
        carried: false,
        payload: Vec::new(),
        reads: Vec::new(),
    }
}

impl World {
    /// A world of so many namespaces after so many steps.
    pub fn grown(seed: u64, namespaces: usize, steps: usize) -> World {
        let mut random = Random(seed);
        let namespaces = (0..namespaces).map(|at| Namespace::new(name_of(at), &mut random)).collect();
        let mut world = World { namespaces, random, wall_us: 1_000_000, sent: Vec::new() };
        for namespace in &mut world.namespaces {
            namespace.push(1_000_000, entry(Kind::Open));
        }
        (0..steps).for_each(|_| world.step());
        world
    }

    fn step(&mut self) {
        // Often no time passes: then only the count of the clock tells events apart.
        self.wall_us += self.random.below(3);
        let at = self.random.below(self.namespaces.len() as u64) as usize;
        let has_runs = !self.namespaces[at].pending.is_empty();
        if has_runs && self.random.chance(60) {
            return self.run(at);
        }
        if !self.sent.is_empty() && self.random.chance(50) {
            let (to, log, id, hlc) = self.sent.remove(0);
            let receiver = &mut self.namespaces[to];
            receiver.clock = receiver.clock.max(hlc);
            let received = receiver.append(self.wall_us, log, id, false);
            let at = received.sequence() as usize - 1;
            receiver.entries[at].received = true;
            return;
        }
        let log = 1 + self.random.below(LOGS.into()) as u32;
        // A claim that names a run could name one that has yet to read what it is going to read.
        let entries = &self.namespaces[at].entries;
        let claimed = &entries[self.random.below(entries.len() as u64) as usize];
        let claimed = (claimed.kind != Kind::Trigger && self.random.chance(15)).then_some(claimed.id);
        let wall_us = self.wall_us;
        self.namespaces[at].append(wall_us, log, claimed.unwrap_or(EventId::NONE), claimed.is_some());
    }

    fn run(&mut self, at: usize) {
        let random = &mut self.random;
        let namespace = &mut self.namespaces[at];
        let wall_us = self.wall_us;
        let Pending { run, function, number } =
            namespace.pending.remove(random.below(namespace.pending.len() as u64) as usize);
        let of_run = |kind| Entry { subject: function, seqno: number, cause: run, ..entry(kind) };
        namespace.push(wall_us, Entry { ordinal: 1, ..of_run(Kind::Fired) });
        let (mut reads, mut rows) = (Vec::new(), Vec::new());
        for _ in 0..random.below(4) {
            let log = 1 + random.below(LOGS.into()) as u32;
            let latest = namespace.latest[log as usize];
            let read = match random.below(3) {
                0 => Read { log, from: latest, count: 1, what: 1 },
                1 => Read { log, from: latest + 1, count: 1, what: 2 },
                _ if latest == 0 => continue,
                _ => {
                    let from = 1 + random.below(latest);
                    Read { log, from, count: 1 + random.below((latest - from + 1).min(5)), what: 0 }
                }
            };
            rows.push(read.what | if read.count != 1 { 0x20 } else { 0 });
            varint(&mut rows, log.into());
            varint(&mut rows, read.from);
            if read.count != 1 {
                varint(&mut rows, read.count);
            }
            reads.push(read);
        }
        if !reads.is_empty() {
            let mut payload = Vec::new();
            map::push(&mut payload, 1, &rows);
            namespace.push(wall_us, Entry { payload, reads, ..of_run(Kind::Read) });
        }
        for log in namespace.targets[function as usize].clone() {
            for _ in 0..random.below(3) {
                namespace.append(wall_us, log, run, false);
            }
        }
        let to = random.below(self.namespaces.len() as u64) as usize;
        if to != at && random.chance(30) {
            let log = 1 + random.below(LOGS.into()) as u32;
            let source = &mut self.namespaces[at];
            let id = source.append(wall_us, OUTBOX, run, false);
            self.sent.push((to, log, id, source.clock));
        }
        self.namespaces[at].push(wall_us, of_run(Kind::Done));
    }

    /// The tables of all namespaces.
    pub fn tables(&self) -> Vec<Table> {
        self.namespaces.iter().map(|namespace| table(namespace.id, &namespace.entries)).collect()
    }

    /// Its history.
    pub fn history(&self) -> History {
        History::new(self.tables())
    }
}
