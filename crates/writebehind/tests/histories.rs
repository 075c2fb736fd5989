//! Random histories of two databases against a sequential model: after each transaction, the rows of a database are those that the
//! model has after the batch with the transaction's number. MILLRACE_WRITEBEHIND_SEED repeats one history.

use bytes::Bytes;
use millrace_writebehind::{
    Batch, Limits, OnRefused, Opened, Operation, Outcome, Refusal, RefusalKind, Requirement, Row, Settings, State,
    Stream, Transaction,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env,
};

const LIMITS: Limits = Limits { rows: 12, bytes: 4096, key: 16, value: 64, in_flight: 3 };
const BATCHES: u64 = 60;
/// A history without progress for this many steps hangs.
const STEPS_MAX: usize = 20_000;

type Rows = BTreeMap<Bytes, (Bytes, u64)>;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// How the transactions of a history end.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    /// As the crate does it: before the first batch that waits for another database.
    BeforeWaiting,
    /// They do not: a transaction waits until everything that its batches require is reached.
    Never,
}

/// A database: what it has, and the transactions that its connections brought.
#[derive(Default)]
struct Server {
    number: u64,
    rows: Rows,
    /// Not executed yet.
    line: VecDeque<Transaction>,
    /// Executed, not known to the host yet.
    answers: VecDeque<Outcome>,
    /// Of connections that were lost: executed at any later time, and nobody learns of it.
    zombies: VecDeque<Transaction>,
    backup: Option<(u64, Rows)>,
}

impl Server {
    fn execute(&mut self, transaction: &Transaction) -> Outcome {
        if self.number != transaction.after {
            return Outcome::Stale(transaction.number);
        }
        let is_poison = |row: &Row| row.value().is_some_and(|value| value.starts_with(b"poison"));
        if let Some(row) = transaction.rows.iter().position(is_poison) {
            let refusal = Refusal { kind: RefusalKind::Data, code: "23514".into(), detail: "no poison".into() };
            return Outcome::Refused { number: transaction.number, row: Some(row), refusal };
        }
        let keys: BTreeSet<&Bytes> = transaction.rows.iter().map(|row| &row.key).collect();
        assert_eq!(keys.len(), transaction.rows.len(), "a key occurs once in a transaction");
        transaction.rows.iter().for_each(|row| apply(&mut self.rows, row));
        self.number = transaction.number;
        Outcome::Written(transaction.number)
    }
}

fn apply(rows: &mut Rows, row: &Row) {
    match row.value() {
        Some(value) => rows.insert(row.key.clone(), (value.clone(), row.version)),
        None => rows.remove(&row.key),
    };
}

/// One database with the host's side of it.
struct Side {
    stream: Stream,
    server: Server,
    /// The writes of the journal to this database.
    journal: Vec<Batch>,
    /// How many of them the stream was given.
    fed: usize,
    /// Transactions that wait as a whole, without the cut.
    held: VecDeque<Transaction>,
    dead: BTreeSet<u64>,
}

impl Side {
    fn new(settings: Settings) -> Self {
        Self {
            stream: Stream::new(settings),
            server: Server::default(),
            journal: Vec::new(),
            fed: 0,
            held: VecDeque::new(),
            dead: BTreeSet::new(),
        }
    }

    fn newest(&self) -> u64 {
        self.journal.last().map_or(0, |batch| batch.number)
    }

    /// What the database must have with this number.
    fn model(&self, number: u64) -> Rows {
        let mut rows = Rows::new();
        let batches = self.journal.iter().filter(|batch| batch.number <= number && !self.dead.contains(&batch.number));
        batches.flat_map(|batch| &batch.rows).for_each(|row| apply(&mut rows, row));
        rows
    }

    fn requirements(&self, transaction: &Transaction) -> Vec<Requirement> {
        let within = |batch: &&Batch| transaction.after < batch.number && batch.number <= transaction.number;
        self.journal.iter().filter(within).flat_map(|batch| batch.requires.clone()).collect()
    }
}

struct History {
    random: Random,
    seed: u64,
    sides: [Side; 2],
    cut: Cut,
    has_faults: bool,
    /// Restores go behind what another database may have seen, so the order between databases is not checked then.
    has_restores: bool,
}

impl History {
    fn new(seed: u64, cut: Cut, has_faults: bool) -> Self {
        let mut random = Random(seed);
        let settings = Settings { rows: 1 + random.below(12) as usize, ..Settings::new(LIMITS) };
        let has_restores = has_faults && random.one_in(4);
        let mut history =
            Self { random, seed, sides: [Side::new(settings), Side::new(settings)], cut, has_faults, has_restores };
        (1..=BATCHES).for_each(|number| history.write(number));
        history
    }

    /// Adds a batch to the journal. Numbers have gaps, because not every batch writes to every database.
    fn write(&mut self, number: u64) {
        let newest = [0, 1].map(|side: usize| self.sides[side].newest());
        for at in 0..2 {
            if self.random.one_in(3) {
                continue;
            }
            let rows = 1 + self.random.below(3);
            let rows = (0..rows).map(|_| self.row(number)).collect();
            let requires = match newest[1 - at] {
                number @ 1.. if self.random.one_in(3) => vec![Requirement { database: 1 - at as u32, number }],
                _ => Vec::new(),
            };
            let on_refused = if self.random.one_in(2) { OnRefused::DeadLetter } else { OnRefused::Stop };
            let is_alone = self.random.one_in(12);
            self.sides[at].journal.push(Batch { number, stamp: number, rows, requires, is_alone, on_refused });
        }
    }

    fn row(&mut self, version: u64) -> Row {
        let key = Bytes::from(format!("k{}", self.random.below(6)));
        let operation = match self.random.below(40) {
            0 if self.has_faults => Operation::Put("poison".into()),
            0..8 => Operation::Delete,
            _ => Operation::Put(format!("v{}", self.random.below(1000)).into()),
        };
        Row { table: "t".into(), key, operation, version }
    }

    fn is_done(&self) -> bool {
        self.sides.iter().all(|side| side.stream.reached() == Some(side.newest()) && side.fed == side.journal.len())
    }

    /// Runs until everything is written. Returns whether it hung.
    fn run(&mut self) -> bool {
        for step in 0..STEPS_MAX {
            if self.is_done() {
                self.check_end();
                return false;
            }
            let at = self.random.below(2) as usize;
            // Faults cease, so that the history ends.
            let is_faulty = self.has_faults && step < STEPS_MAX / 10 && self.random.one_in(8);
            if is_faulty {
                self.fault(at)
            } else {
                self.step(at)
            }
            let reached = self.sides[1 - at].stream.reached();
            if let Some(reached) = reached {
                self.sides[at].stream.other_reached(1 - at as u32, reached);
            }
        }
        true
    }

    fn check_end(&self) {
        for side in &self.sides {
            assert_eq!(side.server.rows, side.model(u64::MAX), "seed {}", self.seed);
            assert_eq!(side.stream.unwritten().rows + side.stream.unwritten().bytes, 0, "seed {}", self.seed);
        }
    }

    fn step(&mut self, at: usize) {
        match self.random.below(5) {
            0 => self.feed(at),
            1 => self.send(at),
            2 => self.execute(at),
            3 => {
                let side = &mut self.sides[at];
                if let Some(answer) = side.server.answers.pop_front() {
                    side.stream.outcome(answer);
                }
            }
            _ => self.mind(at),
        }
    }

    fn feed(&mut self, at: usize) {
        let side = &mut self.sides[at];
        if side.stream.reached().is_none() || !side.stream.has_room() {
            return;
        }
        let Some(batch) = side.journal.get(side.fed) else { return };
        let mut batch = batch.clone();
        if self.cut == Cut::Never {
            batch.requires.clear();
        }
        if side.dead.contains(&batch.number) {
            batch.rows.clear();
        }
        side.stream.push(batch).expect("it fits");
        side.fed += 1;
    }

    fn send(&mut self, at: usize) {
        let seen = self.sides[1 - at].stream.reached().unwrap_or(0);
        let side = &mut self.sides[at];
        if let Some(transaction) = side.stream.next_transaction() {
            assert!(transaction.rows.len() <= LIMITS.rows, "seed {}", self.seed);
            side.held.push_back(transaction);
        }
        while let Some(first) = side.held.front() {
            if self.cut == Cut::Never && side.requirements(first).iter().any(|required| required.number > seen) {
                return;
            }
            side.server.line.extend(side.held.pop_front());
        }
    }

    fn execute(&mut self, at: usize) {
        let has_zombie = !self.sides[at].server.zombies.is_empty() && self.random.one_in(4);
        let server = &mut self.sides[at].server;
        let line = if has_zombie { &mut server.zombies } else { &mut server.line };
        let Some(transaction) = line.pop_front() else { return };
        let outcome = server.execute(&transaction);
        let is_written = matches!(outcome, Outcome::Written(_));
        if !has_zombie {
            server.answers.push_back(outcome);
        }
        let (side, other) = (&self.sides[at], &self.sides[1 - at]);
        assert_eq!(side.server.rows, side.model(side.server.number), "seed {}", self.seed);
        if is_written && !self.has_restores {
            for required in side.requirements(&transaction) {
                assert!(other.server.number >= required.number, "seed {}: an effect before its cause", self.seed);
            }
        }
    }

    /// What the driver does for a stream that does not send.
    fn mind(&mut self, at: usize) {
        let side = &mut self.sides[at];
        match side.stream.state().clone() {
            State::Closed => {
                side.held.clear();
                let server = &mut side.server;
                server.answers.clear();
                // The old connection is gone, but the server may still execute what it brought.
                server.zombies.extend(server.line.drain(..));
                let opened = side.stream.opened(side.server.number, side.newest()).expect("it is not ahead");
                if let Opened::Seek { after, .. } = opened {
                    side.fed = side.journal.iter().take_while(|batch| batch.number <= after).count();
                }
            }
            State::Burying(_) => {
                let number = side.stream.dead().expect("a batch").0.number;
                // A transaction of an old connection may contain the batch beside later writes that hide the refused one. If it is
                // executed all the same, the database has what the tables have, and the dead letter is about nothing.
                if side.server.number < number {
                    side.dead.insert(number);
                }
                side.server.zombies.clear();
                side.server.backup = None;
                side.stream.buried();
            }
            // Somebody drops the constraint: the refused value becomes an ordinary one.
            State::Stopped(error) => {
                assert_eq!(error.code(), millrace_wire::Code::DatabaseRefused, "seed {}: {error}", self.seed);
                let next = side.stream.reached().expect("it was open");
                let number = side.journal.iter().find(|batch| batch.number > next).expect("the refused one").number;
                side.dead.remove(&number);
                side.server.backup = None;
                for batch in side.journal.iter_mut().filter(|batch| batch.number == number) {
                    for row in batch.rows.iter_mut() {
                        if row.value().is_some_and(|value| value.starts_with(b"poison")) {
                            row.operation = Operation::Put("cured".into());
                        }
                    }
                }
                self.restart(at);
            }
            _ => {}
        }
    }

    /// A host that was killed: a new stream knows nothing.
    fn restart(&mut self, at: usize) {
        let settings = Settings { rows: 1 + self.random.below(12) as usize, ..Settings::new(LIMITS) };
        let side = &mut self.sides[at];
        side.stream = Stream::new(settings);
        side.fed = 0;
        side.held.clear();
    }

    fn fault(&mut self, at: usize) {
        match self.random.below(6) {
            0 => self.restart(at),
            1 => {
                let server = &mut self.sides[at].server;
                server.backup = Some((server.number, server.rows.clone()));
            }
            2 if self.has_restores => {
                let server = &mut self.sides[at].server;
                let Some((number, rows)) = server.backup.clone() else { return };
                (server.number, server.rows) = (number, rows);
                server.zombies.clear();
                server.line.clear();
                self.cut_connection(at);
            }
            _ => self.cut_connection(at),
        }
    }

    /// Answers on their way are lost; so are, or are not, the transactions on their way.
    fn cut_connection(&mut self, at: usize) {
        let arrived = self.random.below(4) as usize;
        let server = &mut self.sides[at].server;
        server.answers.clear();
        server.line.truncate(arrived);
        server.zombies.extend(server.line.drain(..));
        self.sides[at].held.clear();
        let lost = millrace_wire::Code::DatabaseUnreachable.error("the connection was cut");
        self.sides[at].stream.outcome(Outcome::Lost(lost));
    }
}

fn seeds(count: u64) -> Vec<u64> {
    let one = env::var("MILLRACE_WRITEBEHIND_SEED").ok().map(|seed| seed.parse().expect("a number"));
    one.map_or_else(|| (1..=count).collect(), |seed| vec![seed])
}

#[test]
fn every_history_is_that_of_the_model() {
    for seed in seeds(1000) {
        assert!(!History::new(seed, Cut::BeforeWaiting, true).run(), "seed {seed} hangs");
    }
}

#[test]
fn two_databases_wait_for_each_other_without_the_cut() {
    let mut hung = 0;
    for seed in seeds(300) {
        assert!(!History::new(seed, Cut::BeforeWaiting, false).run(), "seed {seed} hangs");
        hung += u64::from(History::new(seed, Cut::Never, false).run());
    }
    assert!(hung >= 30, "only {hung} histories hang without the cut");
}
