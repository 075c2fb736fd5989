use super::*;
use crate::{Finished, Flags};
use millrace_wire::protocol::Fence;

/// A space whose clients call persistent entities at random, and the log that it leaves.
struct World {
    space: Space,
    token: u64,
    numbers: BTreeMap<u8, u64>,
    chance: u64,
    log: Vec<Vec<u8>>,
}

const CLIENTS: [u8; 3] = [1, 2, 3];

impl World {
    fn new(seed: u64) -> Self {
        let numbers = CLIENTS.into_iter().map(|client| (client, 0)).collect();
        let mut world = Self { space: Space::default(), token: 1, numbers, chance: seed * 2 + 1, log: Vec::new() };
        CLIENTS.into_iter().for_each(|client| world.open(client));
        world
    }

    fn open(&mut self, client: u8) {
        let moment = self.moment();
        self.space.open([client; SESSION_BYTES], "", 1000, moment).unwrap();
    }

    fn moment(&mut self) -> Moment {
        self.token += 1;
        Moment { now_ms: 0, token: self.token }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % most
    }

    fn call(&mut self, kind: Type, method: &str, args: &[Vec<u8>], give_up: bool) {
        let client = CLIENTS[self.below(3) as usize];
        let number = self.numbers.get_mut(&client).unwrap();
        *number += 1;
        let (number, key, args) = (*number, format!("{}-{}", kind.name(), self.below(2)), list(args));
        let new = match kind {
            Type::Queue => list(&[value::int(2)]),
            Type::Semaphore => list(&[value::int(1)]),
            Type::Shared => {
                let [class, pool, code] = ["Gate", "p", "c"].map(value::text);
                list(&[class, pool, value::int(1), value::int(1), code, value::bytes(b"new")])
            }
            _ => list(&[]),
        };
        let call = Call {
            session: [client; SESSION_BYTES],
            number,
            acked: 0,
            kind,
            key: &key,
            incarnation: 0,
            method: kind.method(method).unwrap(),
            args: &args,
            new: Some(&new),
            flags: Flags { persistent: true, give_up, ..Flags::default() },
            fence: [None, Some(Fence { name: "tick", token: 1 + self.numbers[&client] / 12 })][self.below(2) as usize],
        };
        let moment = self.moment();
        if let Err(error) = self.space.call(&call, moment) {
            assert_eq!(error.code(), Code::FenceStale);
        }
    }

    fn step(&mut self) {
        let number = value::int(self.below(9) as i64);
        let word = value::text(["a", "b", "c"][self.below(3) as usize]);
        let give_up = self.below(4) == 0;
        match self.below(16) {
            0 => self.call(Type::AtomicInt, "add_and_get", &[number], false),
            1 => self.call(Type::Dict, "set", &[word, number], false),
            2 => self.call(Type::Dict, "pop", &[word], false),
            3 => self.call(Type::List, "append", &[number], false),
            4 => self.call(Type::List, "pop", &[], false),
            5 => self.call(Type::Queue, "put", &[number], give_up),
            6 => self.call(Type::Queue, "get", &[], give_up),
            7 => self.call(Type::Lock, "acquire", &[], give_up),
            8 => self.call(Type::Lock, "release", &[], false),
            9 => self.call(Type::Semaphore, "acquire", &[], give_up),
            10 => self.call(Type::Semaphore, "release", &[], false),
            11 => self.call(Type::Blob, "append", &[value::bytes(&[7; 300])], false),
            12 => {
                let client = CLIENTS[self.below(3) as usize];
                let moment = self.moment();
                self.space.end(&[client; SESSION_BYTES], moment);
                self.open(client);
            }
            13 => {
                let kind = [Type::Dict, Type::Queue][self.below(2) as usize];
                self.call(kind, "delete", &[], false);
            }
            14 => {
                let [class, pool, code, method] = ["Gate", "p", "c", "enter"].map(value::text);
                let (one, payload) = (value::int(1), value::bytes(b"args"));
                let args = [class, pool, one.clone(), one, code, method, value::int(100), payload];
                self.call(Type::Shared, "call", &args, false);
            }
            _ => {
                let moment = self.moment();
                let key = ["Shared-0", "Shared-1"][self.below(2) as usize];
                let Some(job) = self.space.begin(key, moment) else { return };
                let finished = match self.below(3) {
                    0 => Finished::Failed("no".into()),
                    1 => Finished::NotBegun(list(&[value::int(1), value::bytes(b"raised")])),
                    _ => {
                        let changed = vec![(word, (!give_up).then(|| value::bytes(&number)))];
                        Finished::Ran(list(&[value::int(0), number]), changed)
                    }
                };
                let moment = self.moment();
                self.space.finish(&job, finished, moment);
            }
        }
        self.take();
    }

    fn take(&mut self) {
        self.log.extend(self.space.take_records());
    }

    /// What a host that starts now finds.
    fn restored(&self) -> Space {
        let mut space = Space::default();
        self.log.iter().for_each(|record| space.restore(record, Moment::default()).unwrap());
        space
    }

    fn check(&self, seed: u64) {
        let restored = self.restored();
        let states = |space: &Space| -> BTreeMap<Box<str>, (Type, u64, State)> {
            let of = |entity: &Entity| {
                let mut state = entity.state.clone();
                if entity.kind == Type::Shared {
                    state.apply(Effect::Field(RUNNING, None));
                }
                (entity.kind, entity.incarnation, state)
            };
            space.entities.iter().map(|(key, entity)| (key.clone(), of(entity))).collect()
        };
        assert_eq!(states(&restored), states(&self.space), "seed {seed}");
        assert_eq!(restored.bytes, restored.entities.values().map(|entity| entity.state.bytes()).sum::<usize>());
        for (id, client) in &self.space.sessions {
            let calls = restored.sessions.get(id).map(|client| &client.calls);
            for (number, asked) in &client.calls {
                let found = calls.and_then(|calls| calls.get(number));
                let replies = |asked: &Asked| asked.reply.as_ref().map(|(reply, _)| reply.clone());
                match found {
                    Some(found) => assert_eq!(replies(found), replies(asked), "seed {seed}: call {number}"),
                    None => assert!(asked.reply.is_some(), "seed {seed}: call {number} waits, and is forgotten"),
                }
            }
        }
        assert!(restored.sessions.keys().all(|id| self.space.sessions.contains_key(id)), "seed {seed}");
    }
}

#[test]
fn the_log_of_any_calls_restores_their_state() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.step();
            world.check(seed);
        }
    }
}

#[test]
fn a_snapshot_between_other_steps_replaces_everything_before_it() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        // So that most entities have several parts.
        world.space.limit_records(2000);
        (0..80).for_each(|_| world.step());
        let begin = world.log.len();
        let mut cursor = Some(world.space.begin_snapshot());
        world.take();
        while let Some(now) = cursor.take() {
            (0..world.below(3)).for_each(|_| world.step());
            cursor = world.space.go_on(now);
            // Not trimmed yet: a host that starts behind any record of it finds the same.
            for record in world.space.take_records() {
                world.log.push(record);
                world.check(seed);
            }
        }
        (0..20).for_each(|_| world.step());
        world.log.drain(..begin);
        world.check(seed);
    }
}

#[test]
fn a_step_that_is_too_long_changes_nothing() {
    let mut world = World::new(1);
    world.call(Type::Blob, "append", &[value::bytes(&[1; 10])], false);
    let (args, moment) = (list(&[value::bytes(&vec![0; RECORD_MAX_BYTES])]), world.moment());
    let (key, method) = ("large", Type::Blob.method("append").unwrap());
    let flags = Flags { persistent: true, ..Flags::default() };
    let session = [1; SESSION_BYTES];
    let call = Call {
        session,
        number: 99,
        acked: 0,
        kind: Type::Blob,
        key,
        incarnation: 0,
        method,
        args: &args,
        new: None,
        flags,
        fence: None,
    };
    assert_eq!(world.space.call(&call, moment).unwrap_err().code(), Code::ObjectTooLarge);
    world.take();
    world.check(1);
    assert_eq!(world.space.show_one("large").unwrap().bytes, 56, "no more than the digest of its arguments");
}

#[test]
fn a_record_that_a_later_version_wrote_is_ignored_or_refused_as_its_kind_says() {
    let restore = |kind: i64| Space::default().restore(&list(&[value::int(kind), value::text("?")]), Moment::default());
    restore(IGNORABLE).unwrap();
    assert_eq!(restore(IGNORABLE - 1).unwrap_err().code(), Code::FormatVersion);
}

#[test]
fn damaged_records_are_refused() {
    let mut world = World::new(3);
    (0..60).for_each(|_| world.step());
    for record in &world.log {
        for cut in [1, record.len() / 2, record.len() - 1] {
            assert!(Space::default().restore(&record[..cut], Moment::default()).is_err());
        }
    }
}
