//! A part whose fence is down between its promise to switch and its switch: runs end there meanwhile, use what the repair replaces, and
//! send it on.

use crate::world::{Replays, World, deliver};
use millrace_namespace::fence::Verdict;
use millrace_repair::{
    NoPeers, NotRun, PartAsk, Peers, Phase, Repair, Step, ask_apply, outcomes, part, repair, repairs, sent_page, undo,
};
use millrace_runtime::LogCalls;
use millrace_wire::{Code, Result};
use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

pub const A: &str = "mr://a.test:7070/n";
pub const B: &str = "mr://b.test:7070/n";
const C: &str = "mr://c.test:7070/n";
pub const A_BACK: &str = "mr://a.test:7070/n/back";
pub const B_IN: &str = "mr://b.test:7070/n/in";
pub const B_AGAIN: &str = "mr://b.test:7070/n/again";
pub const B_QUOTED: &str = "mr://b.test:7070/n/quoted";
const C_IN: &str = "mr://c.test:7070/n/in";

/// What all functions do, each in its namespace.
pub fn does(name: &str, record: &[u8], calls: &mut dyn LogCalls) -> Result<()> {
    match name {
        "send" => calls.append(B_IN, record).map(drop),
        "keep" => calls.append("out", record).map(drop),
        "return" => calls.append(A_BACK, record).map(drop),
        "forward" => calls.append(B_AGAIN, record).map(drop),
        "answer" => {
            let kept = calls.get("out", 1)?;
            calls.append(A_BACK, &kept).map(drop)
        }
        "quote" => {
            let came_back = calls.get("back", 1)?;
            calls.append(B_QUOTED, &came_back).map(drop)
        }
        "grow" => {
            let kept = calls.get("out", 1)?;
            calls.append("more", &kept)?;
            if kept == b"new" { calls.append("more", b"one more").map(drop) } else { Ok(()) }
        }
        "tell" => {
            let kept = calls.get("out", 1)?;
            calls.append(A_BACK, &kept)?;
            calls.append(C_IN, &kept).map(drop)
        }
        name => panic!("function '{name}'"),
    }
}

/// The hosts of the two that take part.
pub struct Hosts<'a> {
    pub b: &'a World,
    pub c: &'a World,
    /// Whether that of the first one has ended.
    pub b_ended: &'a AtomicBool,
}

impl Hosts<'_> {
    pub fn run(&self, world: &World, ended: &AtomicBool, all_ended: &AtomicBool) {
        while !all_ended.load(Ordering::Acquire) {
            let worked = match ended.load(Ordering::Acquire) {
                true => Ok(false),
                false => world.drive(&mut Replays(&mut does), &mut NoPeers, ended, &mut || ()),
            };
            match worked {
                Ok(true) => {}
                Ok(false) => thread::sleep(Duration::from_millis(1)),
                Err(error) => assert!(matches!(error.code(), Code::HostStopping | Code::RepairPhase), "{error}"),
            }
        }
    }
}

/// Reaches them.
pub struct Lines<'a> {
    pub hosts: &'a Hosts<'a>,
    /// Whether they were told what changes.
    pub told: bool,
    /// Called when the first one has said what it changes of what it sent, and has promised to switch: it is not asked again.
    pub prepared: &'a dyn Fn(),
}

impl Lines<'_> {
    fn world(&self, address: &str) -> &World {
        if address == B { self.hosts.b } else { self.hosts.c }
    }
}

impl Peers for Lines<'_> {
    fn meet(&mut self, address: &str) -> Result<String> {
        Ok(self.world(address).namespace.journal().namespace().to_string())
    }

    fn ask(&mut self, address: &str, json: &str) -> Result<String> {
        let asked: PartAsk = serde_json::from_str(json).unwrap();
        self.told |= matches!(asked.ask, Step::Seeds { .. });
        part(&self.world(address).namespace, asked).map(|part| serde_json::to_string(&part).unwrap())
    }

    fn show(&mut self, address: &str, path: &str) -> Result<String> {
        let namespace = &self.world(address).namespace;
        let path = path.strip_prefix("repairs/").unwrap();
        let Some((number, after)) = path.split_once("/sent?after=") else {
            return Ok(serde_json::to_string(&repair(namespace, path.parse().unwrap())?).unwrap());
        };
        let number = number.parse().unwrap();
        let page = sent_page(namespace, number, after.parse().unwrap())?;
        if address == B && self.told && repair(namespace, number)?.phase == Phase::Prepared {
            (self.prepared)();
        }
        Ok(serde_json::to_string(&page).unwrap())
    }
}

/// Ends the hosts also if the test fails.
pub struct AtEnd<'a> {
    pub flags: [&'a AtomicBool; 2],
    pub worlds: [&'a World; 2],
}

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.flags.iter().for_each(|flag| flag.store(true, Ordering::Release));
        self.worlds.iter().for_each(|world| world.namespace.journal().wake());
    }
}

/// Does what the repairs of the initiator wait for.
pub fn work(world: &World, lines: &mut Lines<'_>) {
    let never = AtomicBool::new(false);
    loop {
        match world.drive(&mut Replays(&mut does), lines, &never, &mut || ()) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => assert_eq!(error.code(), Code::RepairPeer, "{error}"),
        }
    }
}

fn is_done(world: &World) -> bool {
    repairs(&world.namespace).unwrap().iter().all(|repair| !repair.phase.is_open())
}

#[test]
fn what_a_part_sent_on_while_its_fence_was_down_is_corrected_after_the_switch() {
    let a = World::new(&["raw", "back", "out"]);
    let (b, c) = (World::new(&["in", "live", "out"]), World::new(&["in", "out"]));
    let (send, kept_of_a) = (a.function("send", "raw", &[B]), a.function("keep", "back", &[]));
    let (keep, tell) = (b.function("keep", "in", &[]), b.function("tell", "live", &[A, C]));
    let kept_of_c = c.function("keep", "in", &[]);
    a.append("raw", "old");
    a.echo(&send, B_IN);
    deliver(&a, &b, B);
    b.echo(&keep, "out");

    let number = a.repair("raw", &[(1, "new")], &[B, C]);
    let (b_ended, is_over, was_late) = (AtomicBool::new(false), AtomicBool::new(false), Cell::new(false));
    let hosts = Hosts { b: &b, c: &c, b_ended: &b_ended };
    let late = || {
        if was_late.replace(true) {
            return;
        }
        // Its host ends, and the next one has no fence up. The same happens if the initiator takes too long.
        b_ended.store(true, Ordering::Release);
        b.namespace.journal().wake();
        b.append("live", "go");
        let begun = b.begin(&tell);
        let leaves: [(&str, &[u8]); 2] = [(A_BACK, b"old"), (C_IN, b"old")];
        while b.end(&begun, &[("out", 1)], &leaves) != Verdict::Passes {
            thread::sleep(Duration::from_millis(1));
        }
        deliver(&b, &a, A);
        deliver(&b, &c, C);
        a.echo(&kept_of_a, "out");
        c.echo(&kept_of_c, "out");
        b_ended.store(false, Ordering::Release);
    };
    let work = |lines: &mut Lines<'_>| work(&a, lines);
    // Until all know how the repairs ended, also those that are opened meanwhile.
    let settle = |lines: &mut Lines<'_>| {
        let has_news = || repairs(&a.namespace).unwrap().iter().any(Repair::has_news_for_others);
        let is_moving = || repairs(&a.namespace).unwrap().iter().any(|repair| repair.phase.is_moving());
        while outcomes(&a.namespace, lines, &AtomicBool::new(false)).unwrap() || has_news() || is_moving() {
            work(lines);
        }
    };
    thread::scope(|scope| {
        let _end = AtEnd { flags: [&b_ended, &is_over], worlds: [&b, &c] };
        scope.spawn(|| hosts.run(&b, hosts.b_ended, &is_over));
        scope.spawn(|| hosts.run(&c, &is_over, &is_over));
        work(&mut Lines { hosts: &hosts, told: false, prepared: &late });
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Ready);
        assert!(!was_late.get());
        ask_apply(&a.namespace, number).unwrap();
        let mut lines = Lines { hosts: &hosts, told: false, prepared: &late };
        work(&mut lines);
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Applied);
        assert!(was_late.get());
        settle(&mut lines);
        for (world, back) in [(&a, "back"), (&c, "in")] {
            assert_eq!((world.get(back, 1), world.get("out", 1)), ("new".to_owned(), "new".to_owned()));
        }
        // A machine that stands still for seconds has the first one prepared once more, which finds everything.
        let made = repairs(&a.namespace).unwrap();
        for further in &made[1..] {
            assert_eq!(further.late_of.as_ref().map(|of| (of.repair, &*of.address)), Some((number, B)));
        }

        assert!(is_done(&b) && is_done(&c));
        // All is taken back, the newest first.
        for number in made.iter().rev().map(|repair| repair.repair) {
            undo(&a.namespace, number, String::new()).unwrap();
            work(&mut lines);
            settle(&mut lines);
        }
        for (world, log) in [(&a, "raw"), (&a, "back"), (&a, "out"), (&b, "in"), (&b, "out"), (&c, "in"), (&c, "out")] {
            assert_eq!(world.get(log, 1), "old");
        }
    });
}

#[test]
fn a_part_switches_once_its_initiator_has_whatever_its_runs_would_leave() {
    let (a, b, none) = (World::new(&["raw"]), World::new(&["in", "live", "out", "more", "copies"]), World::new(&[]));
    let send = a.function("send", "raw", &[B]);
    let (keep, grow) = (b.function("keep", "in", &[]), b.function("grow", "live", &[]));
    let stream = b.function("stream", "live", &[]);
    a.append("raw", "old");
    a.echo(&send, B_IN);
    deliver(&a, &b, B);
    b.echo(&keep, "out");

    let number = a.repair("raw", &[(1, "new")], &[B]);
    let (b_ended, is_over, was_late) = (AtomicBool::new(false), AtomicBool::new(false), Cell::new(false));
    let hosts = Hosts { b: &b, c: &none, b_ended: &b_ended };
    let late = || {
        if was_late.replace(true) {
            return;
        }
        b_ended.store(true, Ordering::Release);
        b.namespace.journal().wake();
        b.append("live", "go");
        // One leaves an additional record when it is replayed, and one cannot be replayed.
        for (begun, log) in [(b.begin(&grow), "more"), (b.begin_as(&stream, true), "copies")] {
            while b.end(&begun, &[("out", 1)], &[(log, b"old")]) != Verdict::Passes {
                thread::sleep(Duration::from_millis(1));
            }
        }
        b_ended.store(false, Ordering::Release);
    };
    thread::scope(|scope| {
        let _end = AtEnd { flags: [&b_ended, &is_over], worlds: [&b, &none] };
        scope.spawn(|| hosts.run(&b, hosts.b_ended, &is_over));
        work(&a, &mut Lines { hosts: &hosts, told: false, prepared: &late });
        ask_apply(&a.namespace, number).unwrap();
        let mut lines = Lines { hosts: &hosts, told: false, prepared: &late };
        work(&a, &mut lines);
        assert!(was_late.get());
        assert_eq!(repair(&a.namespace, number).unwrap().phase, Phase::Applied);
        let is_told = (0..30).any(|_| !outcomes(&a.namespace, &mut lines, &AtomicBool::new(false)).unwrap());
        let part = &repairs(&b.namespace).unwrap()[0];
        assert!(is_told, "{part:?}");
        assert_eq!((part.phase, &*b.get("out", 1)), (Phase::Applied, "new"));
        assert_eq!((&*b.get("more", 1), &*b.get("more", 2)), ("new", "one more"));
        assert_eq!(b.get("copies", 1), "old");
        assert_eq!(
            part.not_run,
            [NotRun { function: "stream".parse().unwrap(), runs: 1, unable: true, device: false }]
        );
    });
}
