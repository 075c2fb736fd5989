//! object.barrier: from the last of 1800 arrivals until all have heard of it.

use super::{Caller, Target};
use crate::{
    Context, Outcome,
    children::{Helper, RELEASE_BYTES},
    measure::Repeated,
    peers::{
        redis::{self, Redis},
        zookeeper::{self, ZooKeeper},
    },
    rows::{Measured, remote::Host},
};
use std::{
    io::Read,
    net::TcpStream,
    sync::{
        Arc, Barrier,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

const WAITERS: u32 = 1800;
/// So many threads have few pages of stack each.
const STACK_BYTES: usize = 128 << 10;

/// What a waiter does: it waits once.
type Wait = Box<dyn FnMut() -> Result<(), String> + Send>;

/// Waiters, each on its own thread, which report when they were released.
struct Waiters {
    begin: Arc<Barrier>,
    released: Receiver<Result<Instant, String>>,
}

impl Waiters {
    fn start(rounds: usize, open: impl Fn(u32) -> Outcome<Wait>) -> Outcome<Self> {
        let (begin, (sender, released)) = (Arc::new(Barrier::new(WAITERS as usize + 1)), channel());
        for id in 0..WAITERS {
            let (begin, sender, mut wait): (_, Sender<_>, _) = (begin.clone(), sender.clone(), open(id)?);
            let work = move || {
                for _ in 0..rounds {
                    begin.wait();
                    // Who does not hear any more has reported.
                    let _ = sender.send(wait().map(|()| Instant::now()));
                }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?;
        }
        Ok(Self { begin, released })
    }

    /// One round: all wait, are released, and have heard of it; in milliseconds.
    fn round(&self, are_waiting: impl FnMut() -> Outcome<bool>, release: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
        self.begin.wait();
        until("all wait", are_waiting)?;
        let start = Instant::now();
        release()?;
        let mut last = start;
        for _ in 0..WAITERS {
            last = last.max(self.released.recv_timeout(Duration::from_secs(60))??);
        }
        Ok(last.duration_since(start).as_secs_f64() * 1000.0)
    }
}

fn until(what: &str, mut check: impl FnMut() -> Outcome<bool>) -> Outcome<()> {
    let start = Instant::now();
    while !check()? {
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("after a minute still not: {what}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub fn barrier(context: &Context) -> Outcome<Measured> {
    let rounds = context.repetitions(9);
    let host = Host::start(context, 10_000)?;
    // The last to arrive is the one that measures.
    let parties = [&[0x91, 0xcd][..], &(WAITERS as u16 + 1).to_be_bytes()].concat();
    let new = Arc::new(parties);
    let of_waiters = new.clone();
    let waiters = Waiters::start(rounds, |id| {
        let (mut caller, new) = (Caller::open(host.client("memory")?, id + 2)?, of_waiters.clone());
        let wait = move || {
            let target = Target::of("Barrier", "start", "wait", &[0x90]).made_with(&new);
            caller.call(target).map_err(|error| error.to_string())
        };
        Ok(Box::new(wait))
    })?;
    let (mut last, looking) = (Caller::open(host.client("memory")?, 1)?, host.client("memory")?);
    let mut ours = Repeated::default();
    for _ in 0..rounds {
        let are_waiting = || {
            let shown: serde_json::Value =
                serde_json::from_str(&looking.show("objects/start").unwrap_or_default()).unwrap_or_default();
            Ok(shown["waiting"] == WAITERS)
        };
        let arrive = || last.call(Target::of("Barrier", "start", "wait", &[0x90]).made_with(&new));
        ours.push(waiters.round(are_waiting, arrive)?);
    }
    drop((waiters, last, looking, host));
    let least = raw(rounds)?;
    let mut measured = Measured::new(ours.median(), rounds as u64)
        .target("≤ 20 ms", ours.median() <= 20.0)
        .peer("raw TCP, a loop of writes", least.median());
    let dir = context.fresh()?;
    let missing = match Redis::start_forgetful(dir.path())? {
        None => redis::INSTALL,
        Some(redis) => {
            let waiters = Waiters::start(rounds, |id| {
                let (mut asker, key) = (redis.asker()?, format!("waiter-{id}"));
                let wait =
                    move || asker.ask(&[b"BLPOP", key.as_bytes(), b"0"]).map(drop).map_err(|error| error.to_string());
                Ok(Box::new(wait))
            })?;
            let (mut asker, mut theirs) = (redis.asker()?, Repeated::default());
            // One script releases all, as the last arrival does.
            let script = format!("for i = 0, {} do redis.call('RPUSH', 'waiter-' .. i, '1') end return 1", WAITERS - 1);
            let mut looking = redis.asker()?;
            for _ in 0..rounds {
                let are_waiting = || {
                    let info = String::from_utf8_lossy(looking.ask(&[b"INFO", b"clients"])?).into_owned();
                    Ok(info.contains(&format!("blocked_clients:{WAITERS}\r")))
                };
                let release = || asker.ask(&[b"EVAL", script.as_bytes(), b"0"]).map(drop);
                theirs.push(waiters.round(are_waiting, release)?);
            }
            measured = measured.peer("Redis, BLPOP and one script", theirs.median());
            "Redis 7: each client waits in BLPOP for its own list, and one Lua script releases all."
        }
    };
    let zookeeper = match ZooKeeper::start(context.fresh()?.path())? {
        None => zookeeper::INSTALL,
        Some(zookeeper) => {
            measured = measured.peer("ZooKeeper, a double barrier", double_barrier(&zookeeper, rounds)?.median());
            "ZooKeeper: the first half of its recipe for a double barrier, one server."
        }
    };
    Ok(measured.note(format!(
        "{WAITERS} blocking clients, each with a connection and a thread of this process, wait at a barrier. Value: \
         the time from the last arrival until the last client has its answer, {}. Raw TCP: a process writes \
         {RELEASE_BYTES} bytes to each of {WAITERS} connections in a loop, {}; a server with a connection for each client \
         cannot be faster on this machine. {missing} {zookeeper}",
        ours.spread(),
        least.spread()
    )))
}

/// The same clients, released by a process that does nothing but write to their connections.
fn raw(rounds: usize) -> Outcome<Repeated> {
    let mut server = Helper::start("release-tcp", &[&WAITERS.to_string()])?;
    let port: u16 = server.line()?.parse()?;
    let waiters = Waiters::start(rounds, |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        Ok(Box::new(move || stream.read_exact(&mut [0; RELEASE_BYTES]).map_err(|error| error.to_string())))
    })?;
    let mut times = Repeated::default();
    for _ in 0..rounds {
        let are_waiting = || {
            // Nobody can tell whether they do; they have nothing else to do.
            thread::sleep(Duration::from_millis(500));
            Ok(true)
        };
        times.push(waiters.round(are_waiting, || server.say("release"))?);
    }
    Ok(times)
}

/// Each waiter enters as a child of the barrier's node and watches for the node `ready`, which the last one to enter makes.
fn double_barrier(zookeeper: &ZooKeeper, rounds: usize) -> Outcome<Repeated> {
    let mut last = zookeeper.asker()?;
    for round in 0..rounds {
        last.create(&format!("/round-{round}"), false)?;
    }
    let waiters = Waiters::start(rounds, |id| {
        let (mut asker, mut round) = (zookeeper.asker()?, 0);
        let wait = move || {
            let barrier = format!("/round-{round}");
            round += 1;
            asker
                .create(&format!("{barrier}/waiter-{id}"), true)
                .and_then(|()| asker.wait_for(&format!("{barrier}/ready")))
                .map_err(|error| error.to_string())
        };
        Ok(Box::new(wait))
    })?;
    let mut theirs = Repeated::default();
    for round in 0..rounds {
        let barrier = format!("/round-{round}");
        let release = || {
            last.create(&format!("{barrier}/last"), true)?;
            if last.children(&barrier)? != WAITERS as usize + 1 {
                return Err("not all have entered".into());
            }
            last.create(&format!("{barrier}/ready"), false)
        };
        theirs.push(waiters.round(|| Ok(zookeeper.watches()? == WAITERS as usize), release)?);
    }
    Ok(theirs)
}
