//! Replicas against the states that their owner had: random batches that change two tables, with retention, restarts, repeated deliveries and
//! pauses between any two steps.

use millrace_namespace::{
    AppendOptions, Code, CreateOptions, Durability, EventId, LogName, Namespace, Position, Result,
    replicas::{Batches, Imported, Loading, Replica, ReplicaStage},
    tables::When,
};
use millrace_wire::table::{Condition, KeyRange, SCAN_MAX, TableEntry, TableOptions, TableRequest};
use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

/// A sequence of random numbers that a seed determines.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % sides
    }
}

const TABLES: [&str; 2] = ["grades", "totals"];
/// What both tables have: per key the version, the value and when it expires.
type State = BTreeMap<(usize, Vec<u8>), (u64, Vec<u8>, u64)>;

/// What tables of these names had before a position, or have now.
fn state(namespace: &Namespace, names: [&str; 2], upto: Option<Position>) -> Result<State> {
    let mut all = State::new();
    for (number, name) in names.into_iter().enumerate() {
        let (table, mut from) = (namespace.table(name)?, Vec::new());
        loop {
            let range = KeyRange { from: &from, to: b"" };
            let scan = TableRequest::Scan { range, limit: SCAN_MAX, keys_only: false };
            let (answer, _) = namespace.read_table(&table, &scan, When { upto, now_us: 0 })?;
            let Some(last) = answer.entries.last() else { break };
            from = [&last.key, &b"\0"[..]].concat();
            for TableEntry { key, version, value, expires_us, .. } in answer.entries {
                all.insert((number, key), (version, value.unwrap_or_default(), expires_us));
            }
            if !answer.more {
                break;
            }
        }
    }
    Ok(all)
}

fn create(place: &Path, segments: u64) -> Namespace {
    let options = CreateOptions {
        durability: Durability::Memory,
        segment_bytes: 1 << 20,
        retain_bytes: segments << 20,
        ..CreateOptions::default()
    };
    let namespace = Namespace::create(place, &options).unwrap();
    namespace.create_log(&"filler".parse().unwrap(), 1).unwrap();
    namespace
}

struct World {
    _dir: tempfile::TempDir,
    places: [PathBuf; 2],
    owner: Namespace,
    replica: Namespace,
    dice: Dice,
    /// Every state that the owner had.
    states: HashSet<State>,
    now: State,
    cursor: Option<(EventId, EventId)>,
    last: Option<((EventId, EventId), Batches)>,
    first_follow: bool,
    observed: usize,
    loads: usize,
}

fn names() -> Vec<LogName> {
    ["copy/grades", "copy/totals"].map(|name| name.parse().unwrap()).to_vec()
}

impl World {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let places = ["owner", "replica"].map(|name| dir.path().join(name));
        let (owner, replica) = (create(&places[0], 2), create(&places[1], 2));
        for table in TABLES {
            owner.create_table(&table.parse().unwrap(), 20, TableOptions::default()).unwrap();
        }
        let (states, now) = (HashSet::from([State::new()]), State::new());
        let (dice, cursor, last) = (Dice(seed), None, None);
        let (first_follow, observed, loads) = (false, 0, 0);
        Self { _dir: dir, places, owner, replica, dice, states, now, cursor, last, first_follow, observed, loads }
    }

    /// One batch that changes one table or both.
    fn change(&mut self, step: u64) {
        let count = 1 + self.dice.roll(4);
        let mut changes = Vec::new();
        for _ in 0..count {
            let table = self.dice.roll(2) as usize;
            let key = format!("k{:03}", self.dice.roll(150)).into_bytes();
            let value = format!("\"{step}{}\"", "x".repeat(self.dice.roll(3000) as usize)).into_bytes();
            changes.push((table, key, value, self.dice.roll(4) == 0, self.dice.roll(5) == 0));
        }
        let requests: Vec<(&str, TableRequest<'_>)> = changes
            .iter()
            .map(|(table, key, value, deletes, expires)| {
                let (condition, ttl_ms) = (Condition::Always, if *expires { 1 << 40 } else { 0 });
                let change = match deletes {
                    true => TableRequest::Delete { key, condition },
                    false => TableRequest::Put { key, value, condition, ttl_ms },
                };
                (TABLES[*table], change)
            })
            .collect();
        self.owner.change_tables_gated(&requests, AppendOptions::default()).unwrap().wait().unwrap();
        self.now = state(&self.owner, TABLES, None).unwrap();
        self.states.insert(self.now.clone());
    }

    fn fill(&mut self, owner: bool) {
        let namespace = if owner { &self.owner } else { &self.replica };
        namespace.append("filler", &vec![0; 200 << 10], AppendOptions::default()).unwrap();
        namespace.reclaim().unwrap();
    }

    fn restart(&mut self, owner: bool) {
        let place = self.places[usize::from(!owner)].clone();
        let namespace = if owner { &mut self.owner } else { &mut self.replica };
        // The last handle closes it.
        *namespace = create(&place.with_extension(format!("spare{}", self.dice.roll(u64::MAX))), 2);
        *namespace = Namespace::open(&place).unwrap();
        if !owner {
            (self.cursor, self.first_follow) = (None, false);
        }
    }

    fn replicas(&self) -> Vec<(LogName, Replica)> {
        self.replica.replicas().unwrap()
    }

    /// One step of the replica's host.
    fn import(&mut self) -> Result<()> {
        let number = 1;
        let its = self.replicas();
        self.replica.meet_owner(number, self.owner.journal().namespace())?;
        let noted = self.replica.owner(number)?.position;
        let (followed, loading): (Vec<_>, Vec<_>) =
            its.iter().partition(|(_, replica)| replica.stage == ReplicaStage::Following);
        if !loading.is_empty() && (!self.first_follow || followed.is_empty()) {
            return self.load(noted, &loading);
        }
        let position = noted.unwrap();
        let after = self.cursor.filter(|(of, _)| *of == position).map_or(position, |(_, upto)| upto);
        let tables: Vec<&str> = followed.iter().map(|(_, replica)| &*replica.table).collect();
        let names: Vec<LogName> = followed.iter().map(|(name, _)| name.clone()).collect();
        let batches = self.owner.follow_tables_gated(&tables, after)?.wait()?;
        assert!(batches.records.last().is_none_or(|last| last.ends), "small batches are whole");
        if batches.records.is_empty() {
            self.cursor = Some((position, batches.upto));
        } else {
            let ends = (position, batches.upto);
            let before = self.replica.journal().tail();
            assert_eq!(self.replica.import_batches(number, &names, ends, &batches.records)?, Imported::All);
            if names == self::names() {
                self.observe_each(before);
            }
            self.last = (names == self::names()).then(|| (ends, batches.clone()));
        }
        self.first_follow &= !batches.is_newest;
        Ok(())
    }

    fn load(&mut self, noted: Option<EventId>, loading: &[&(LogName, Replica)]) -> Result<()> {
        let tables: Vec<&str> = loading.iter().map(|(_, replica)| &*replica.table).collect();
        let known = self.owner.follow_tables_gated(&tables, EventId::NONE)?.wait()?;
        // It knows nothing of this table.
        self.cursor = None;
        let Some(at) = noted else { return self.replica.begin_at(1, known.upto) };
        let ((table, replica), followed) = (loading[0], &known.tables[0]);
        if replica.stage == ReplicaStage::New {
            return self.replica.begin_load(table, followed);
        }
        let Some(Loading { replica, loaded }) = self.replica.loading(table)? else { return Ok(()) };
        let page = self.owner.load_table_gated(&replica.table, at, loaded)?.wait()?;
        // Not always all of it: a host may end here.
        let part = self.dice.roll(page.records.len() as u64 + 2) as usize;
        if part <= page.records.len() && self.dice.roll(3) > 0 {
            self.replica.load_records(table, &page.records[..part])?;
            self.observe();
            return Ok(());
        }
        self.replica.load_records(table, &page.records)?;
        if !page.more {
            self.replica.end_load(table, page.table.latest)?;
            self.loads += 1;
        }
        Ok(())
    }

    fn imported(&mut self) {
        let passed = match self.import() {
            Err(error) if error.code() == Code::ReplicaPassed => error,
            Ok(()) => return,
            Err(error) => panic!("{error}"),
        };
        let is_loading = self.replicas().iter().any(|(_, replica)| replica.stage != ReplicaStage::Following);
        assert!(!passed.detail().is_empty());
        let all = [ReplicaStage::New, ReplicaStage::Loading, ReplicaStage::Following];
        let stages = if is_loading && !self.first_follow { &all[..2] } else { &all[..] };
        self.replica.load_again(1, stages).unwrap();
        (self.cursor, self.first_follow) = (None, true);
    }

    /// What somebody sees who reads both tables as of one moment.
    fn observe(&mut self) {
        let seen = match self.dice.roll(2) {
            0 => state(&self.replica, ["copy/grades", "copy/totals"], Some(self.replica.journal().tail())),
            // Another process.
            _ => {
                let other = Namespace::open(&self.places[1]).unwrap();
                state(&other, ["copy/grades", "copy/totals"], Some(other.journal().tail()))
            }
        };
        match seen {
            Ok(seen) => {
                assert!(self.states.contains(&seen), "a state that never existed at the owner");
                self.observed += 1;
            }
            Err(error) => assert!(matches!(error.code(), Code::ReplicaLoading | Code::LogNotFound), "{error}"),
        }
    }

    /// What somebody saw between any two commits of an import.
    fn observe_each(&mut self, from: Position) {
        let (journal, mut ends) = (self.replica.journal(), Vec::new());
        journal
            .visit(from, journal.tail(), &mut |entry| {
                ends.extend(entry.last.then_some(entry.end));
                true
            })
            .unwrap();
        for end in ends {
            let seen = state(&self.replica, ["copy/grades", "copy/totals"], Some(end)).unwrap();
            assert!(self.states.contains(&seen), "a state that never existed at the owner");
        }
    }

    /// What arrived before arrives again.
    fn repeat(&mut self) {
        if let Some((ends, batches)) = &self.last
            && self.replica.owner(1).unwrap().position != Some(ends.0)
        {
            let again = self.replica.import_batches(1, &names(), *ends, &batches.records).unwrap();
            assert_eq!(again, Imported::Moved);
        }
    }
}

fn run(seed: u64, steps: u64) -> (usize, usize) {
    let mut world = World::new(seed);
    (0..world.dice.roll(40)).for_each(|step| world.change(step));
    let from = |table: &str| format!("mr://owner.example/owner/{table}").parse().unwrap();
    world.replica.mirror_table(&names()[0], &from("grades"), 20, false).unwrap();
    let second = world.dice.roll(steps / 2);
    for step in 0..steps {
        if step == second {
            world.replica.mirror_table(&names()[1], &from("totals"), 20, false).unwrap();
        }
        match world.dice.roll(40) {
            0..8 => world.change(step + 100),
            8 => (0..6).for_each(|_| world.fill(true)),
            9 => world.fill(false),
            10 => world.restart(true),
            11 => world.restart(false),
            12 => world.repeat(),
            13..17 => world.observe(),
            _ => world.imported(),
        }
    }
    world.first_follow = false;
    for _ in 0..400 {
        world.imported();
    }
    world.observe();
    let seen = state(&world.replica, ["copy/grades", "copy/totals"], None).unwrap();
    assert_eq!(seen, world.now, "it has caught up");
    for (name, table) in names().iter().zip(TABLES) {
        let latest = |namespace: &Namespace, name: &str| namespace.log(name).unwrap().latest();
        assert_eq!(latest(&world.replica, name), latest(&world.owner, table));
    }
    let report = world.replica.journal().check(&mut |_, _| ()).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    (world.observed, world.loads)
}

#[test]
fn a_replica_shows_only_states_that_its_owner_had() {
    let seeds = match std::env::var("MILLRACE_REPLICA_SEED") {
        Ok(seed) => seed.parse().unwrap()..seed.parse::<u64>().unwrap() + 1,
        Err(_) => 0..std::env::var("MILLRACE_REPLICA_SEEDS").map_or(4, |seeds| seeds.parse().unwrap()),
    };
    let (mut observed, mut loads) = (0, 0);
    for seed in seeds {
        let seen = std::panic::catch_unwind(|| run(seed, 600));
        let seen = seen.unwrap_or_else(|_| panic!("MILLRACE_REPLICA_SEED={seed}"));
        (observed, loads) = (observed + seen.0, loads + seen.1);
    }
    assert!(observed > 0 && loads > 8, "{observed} states were seen, {loads} loads ended");
}
