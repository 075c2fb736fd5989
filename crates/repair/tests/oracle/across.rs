//! Two namespaces whose functions send each other messages: what comes of a repair in both is what the oracle says of each, with what
//! changes of the other one's messages. Hosts die, and messages are late.

use crate::{
    Programs, Repaired, Seed, ids, logs,
    model::{Logs, Model, Seeds},
    program::{Program, Random},
    same,
    world::{Other, World},
};
use millrace_namespace::{
    Namespace,
    admission::{Publish, Room, Stage},
    names::log_name,
    outbox::{message, state::State},
};
use millrace_repair::{
    NoPeers, PartAsk, Peers, Phase, abandon, ask_apply, drive, outcomes, part, repair, repairs, sent_page, undo,
};
use millrace_wire::{Code, LogName, Result};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const A: &str = "mr://a.test:7070/n";
const B: &str = "mr://b.test:7070/n";

/// Brings some of the messages that one namespace has left for the other, as links do: each once, in order, and acknowledged.
fn deliver(from: &Namespace, to: &Namespace, most: u64) {
    let catalog = from.journal().catalog().unwrap();
    let Some(outbox) = catalog.logs().find(|log| log.name().starts_with("_outbox/")).cloned() else { return };
    let inbox: LogName = log_name(&format!("_inbox/{}/outbox/n/1", from.journal().namespace()));
    let (first, last) = (outbox.earliest(), outbox.latest().min(outbox.earliest() + most - 1));
    if first > last || outbox.latest() == 0 {
        return;
    }
    let mut state = State::load(from).unwrap();
    if state.peers[0].course.namespace.is_none() {
        state.peers[0].course.namespace = Some(to.journal().namespace().get());
        from.journal().commit(|tx| state.save(tx)).unwrap();
    }
    let mut bytes = Vec::new();
    for number in first..=last {
        let id = from.journal().get(&outbox, number, &mut bytes).unwrap().id;
        let message = message::decode(&bytes).unwrap();
        let taken = to.journal().commit(|tx| {
            if tx.catalog().log(&inbox).is_none() {
                tx.create_log(&inbox, 4)?;
            }
            let publish = Publish::new(to, tx);
            let log = tx.catalog().log(message.log).cloned().unwrap();
            let stage = Stage { cause: id, ordinal: 0, room: Room::Outside, named: None, ending: None };
            publish.append(tx, &log, message.data, stage)
        });
        taken.unwrap();
    }
    from.journal().commit(|tx| tx.trim(&outbox, last + 1)).unwrap();
}

/// Reaches the other namespace, unless a line is cut.
struct Lines<'a> {
    a: &'a Namespace,
    b: &'a Namespace,
    random: &'a mut Random,
}

impl Lines<'_> {
    fn cross(&mut self) -> Result<()> {
        deliver(self.a, self.b, 1 + self.random.below(5));
        deliver(self.b, self.a, 1 + self.random.below(5));
        match self.random.below(20) {
            0 => Err(Code::ConnectionLost.error("a line was cut")),
            _ => Ok(()),
        }
    }
}

impl Peers for Lines<'_> {
    fn meet(&mut self, address: &str) -> Result<String> {
        assert_eq!(address, B);
        self.cross().map(|()| self.b.journal().namespace().to_string())
    }

    fn ask(&mut self, _: &str, json: &str) -> Result<String> {
        self.cross()?;
        let asked: PartAsk = serde_json::from_str(json).unwrap();
        let answer = part(self.b, asked).map(|part| serde_json::to_string(&part).unwrap())?;
        self.cross().map(|()| answer) // The answer may be lost.
    }

    fn show(&mut self, _: &str, path: &str) -> Result<String> {
        self.cross()?;
        let path = path.strip_prefix("repairs/").unwrap();
        match path.split_once("/sent?after=") {
            Some((number, after)) => {
                let page = sent_page(self.b, number.parse().unwrap(), after.parse().unwrap())?;
                Ok(serde_json::to_string(&page).unwrap())
            }
            None => Ok(serde_json::to_string(&repair(self.b, path.parse().unwrap())?).unwrap()),
        }
    }
}

/// Does what repairs of both namespaces wait for, in hosts that die after some runs.
fn work(a: &Namespace, b: &Namespace, random: &mut Random) {
    let (ends, of_b) = (AtomicBool::new(false), Mutex::new(Random(random.below(u64::MAX))));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                let stop = AtomicBool::new(false);
                let left = if of_b.lock().unwrap().below(3) == 0 { 2 } else { usize::MAX };
                match drive(b, &mut Programs { left, stop: &stop }, &mut NoPeers, &stop, &mut |_, _, _, _| {}) {
                    Ok(true) => {}
                    Ok(false) => thread::sleep(Duration::from_millis(1)),
                    Err(error) => assert!(matches!(error.code(), Code::HostStopping | Code::RepairPhase), "{error}"),
                }
            }
        });
        let mut rest = || loop {
            let stop = AtomicBool::new(false);
            let left = if random.below(3) == 0 { 1 + random.index(4) } else { usize::MAX };
            let mut lines = Lines { a, b, random: &mut *random };
            let done = drive(a, &mut Programs { left, stop: &stop }, &mut lines, &stop, &mut |_, _, _, _| {});
            let never = AtomicBool::new(false);
            match done {
                Ok(true) => {}
                Ok(false) => match outcomes(a, &mut lines, &never) {
                    Ok(false) => return,
                    Ok(true) => {}
                    Err(error) => panic!("{error}"),
                },
                Err(error) => assert!(matches!(error.code(), Code::HostStopping | Code::RepairPeer), "{error}"),
            }
        };
        let rested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut rest));
        ends.store(true, Ordering::Release);
        b.journal().wake();
        rested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The histories that a repair of the first namespace makes of both; none if a run would leave more than before.
fn expected(worlds: [&World; 2], repaired: Option<&Repaired>, append_new: bool) -> Option<[Logs; 2]> {
    let repaired = [Repaired::parts(repaired), Repaired::parts(None)];
    let mut seeds = [Seeds::new(), Seeds::new()];
    loop {
        let histories = [0, 1].map(|at| {
            let world = worlds[at];
            let (corrections, code) = &repaired[at];
            let (outbox, seeds) = (world.outbox(), &seeds[at]);
            let (logs, names, kept) = (&world.logs, &world.names, &world.kept);
            let programs = &|function, _| &world.original[&function];
            let model = Model { logs, names, programs, kept, corrections, code, append_new, outbox, seeds };
            model.histories(world.namespace.journal())
        });
        let [(of_a, from_a, a_grows), (of_b, from_b, b_grows)] = histories;
        let next = [from_b, from_a];
        if seeds == next {
            return (append_new || !a_grows && !b_grows).then_some([of_a, of_b]);
        }
        seeds = next;
    }
}

/// Whether the repair was made.
fn play(seed: u64) -> bool {
    let random = &mut Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let to_b = Other { address: B.into(), logs: 0..1 };
    let mut a = World::beside(&dir.path().join("a"), random, Some(to_b));
    // What comes back runs nothing, so that nothing goes round forever; it is read.
    let last = a.logs.len() - 2;
    let to_a = Some(Other { address: A.into(), logs: last..last + 1 }).filter(|_| random.below(2) == 0);
    let comes_back = to_a.is_some();
    let mut b = World::beside(&dir.path().join("b"), random, to_a);
    let live = |a: &mut World, b: &mut World, random: &mut Random, steps: usize| {
        for _ in 0..steps {
            if random.below(3) > 0 {
                a.step(random)
            } else {
                b.step(random)
            }
            if random.below(4) == 0 {
                deliver(&a.namespace, &b.namespace, 1 + random.below(4));
                deliver(&b.namespace, &a.namespace, 1 + random.below(4));
            }
        }
    };
    let steps = 60 + random.index(120);
    live(&mut a, &mut b, random, steps);
    let shown = |a: &World, b: &World| [logs(a), logs(b)];
    let append_new = random.below(2) == 0;
    let first = expected([&a, &b], None, append_new).unwrap();
    same(&logs(&a), &first[0], "the first world is as its journal says");
    same(&logs(&b), &first[1], "the second world is as its journal says");
    let (before, before_ids) = (shown(&a, &b), ids(&b));
    let Some(repaired) = Repaired::random(&a, &before[0], random) else { return false };
    let mut run_external = Vec::new();
    if random.below(2) == 0 {
        run_external.extend(a.run_external());
        run_external.extend(b.run_external());
    }
    let number = repaired.open(&a, append_new, vec![B.into()], run_external);
    work(&a.namespace, &b.namespace, random);
    let steps = random.index(30);
    live(&mut a, &mut b, random, steps);
    if repair(&a.namespace, number).unwrap().phase == Phase::Ready {
        ask_apply(&a.namespace, number).unwrap();
        work(&a.namespace, &b.namespace, random);
    }
    let unrepaired = expected([&a, &b], None, append_new).unwrap();
    let history = expected([&a, &b], Some(&repaired), append_new);
    // Where messages come back, a run may leave more while what came back is not settled yet. That is refused, too.
    // So is a first message to a namespace.
    let found = repair(&a.namespace, number).unwrap();
    let is_first = found.error.as_ref().is_some_and(|(code, _)| code == Code::RepairUnsupported.id());
    let is_refused = found.phase == Phase::Stopped && (comes_back || is_first);
    let Some(history) = history.filter(|_| !is_refused) else {
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Stopped);
        assert_eq!(shown(&a, &b), unrepaired, "what cannot be made changes nothing in either");
        abandon(&a.namespace, number).unwrap();
        work(&a.namespace, &b.namespace, random);
        assert!(repairs(&b.namespace).unwrap().iter().all(|part| !part.phase.is_open()), "nor waits for it");
        return false;
    };
    let found = repair(&a.namespace, number).unwrap();
    assert_eq!(found.phase, Phase::Applied, "{found:?}");
    same(&logs(&a), &history[0], "the first after the repair");
    same(&logs(&b), &history[1], "the second after the repair");
    let live_ids = ids(&b);
    let unchanged = before_ids.iter().filter(|((log, n), _)| unrepaired[1][log][n] == history[1][log][n]);
    for (slot, id) in unchanged {
        assert_eq!(live_ids.get(slot), Some(id), "an independent record stays what it was");
    }
    if let Repaired::Code(function, _, steps, _) = &repaired {
        a.programs.insert(*function, Program { steps: steps.clone(), reads: None });
    }
    let steps = random.index(40);
    live(&mut a, &mut b, random, steps);
    let with = expected([&a, &b], Some(&repaired), append_new).unwrap();
    same(&logs(&a), &with[0], "life after the repair in the first");
    same(&logs(&b), &with[1], "life after the repair in the second");
    let undone = undo(&a.namespace, number, String::new()).unwrap();
    work(&a.namespace, &b.namespace, random);
    let found = repair(&a.namespace, undone).unwrap();
    if !comes_back || found.phase != Phase::Stopped {
        let put_back = expected([&a, &b], None, true).unwrap();
        assert_eq!(found.phase, Phase::Applied, "{found:?}");
        same(&logs(&a), &put_back[0], "taken back in the first");
        same(&logs(&b), &put_back[1], "taken back in the second");
    }
    true
}

#[test]
fn repaired_histories_of_two_namespaces_are_what_the_oracle_says() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (begin, seconds) = (number("MILLRACE_SEED").unwrap_or(1), number("MILLRACE_REPAIR_SECONDS"));
    let (most, start) = (number("MILLRACE_REPAIR_SEEDS").map_or(40, |most| most.div_ceil(4)), Instant::now());
    let goes_on = |played| seconds.map_or(played < most, |seconds| start.elapsed().as_secs() < seconds);
    let (mut made, mut count) = (0, 0);
    while goes_on(count) {
        let seed = Seed(begin + count);
        made += u64::from(play(seed.0));
        count += 1;
    }
    println!("tally: histories_of_two={count} repairs_of_two_made={made}");
    assert!(count < 20 || made * 8 > count, "{made} of {count} were made: too few show anything");
}
