//! object.many: 200 clients, 800 objects; a simple operation of each, beside Redis.

use super::{Caller, Target};
use crate::{
    Context, Outcome,
    peers::redis::{self, Redis},
    rows::{Measured, remote::Host},
};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const CLIENTS: u32 = 200;
const OBJECTS: u32 = 800;
/// The loop that is measured beside a simple operation: a number multiplied so often.
const LOOP: &str = "local x = 1.0 for i = 1, 10000 do x = x * 1.0000001 end redis.call('INCR', KEYS[1]) return 1";

/// What one client does with the object of this number.
type Once<'a> = Box<dyn FnMut(u32) -> Outcome<()> + Send + 'a>;

/// Operations of all clients in a second, each with an object at random.
fn rate<'a>(time: Duration, open: impl Fn(u32) -> Outcome<Once<'a>>) -> Outcome<f64> {
    let clients = (0..CLIENTS).map(&open).collect::<Outcome<Vec<_>>>()?;
    let (begin, is_over, done) = (Barrier::new(clients.len() + 1), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let work = |(id, mut once): (u32, Once<'a>)| {
            let (begin, is_over, done) = (&begin, &is_over, &done);
            scope.spawn(move || -> Result<(), String> {
                let mut chance = id;
                begin.wait();
                while !is_over.load(Ordering::Relaxed) {
                    chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    once((chance >> 8) % OBJECTS).map_err(|error| error.to_string())?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..).zip(clients).map(work).collect();
        begin.wait();
        let start = Instant::now();
        thread::sleep(time);
        let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a client panicked")??;
        }
        Ok(rate)
    })
}

pub fn many(context: &Context) -> Outcome<Measured> {
    let time = Duration::from_millis(if context.quick { 1000 } else { 5000 });
    let host = Host::start(context, 10_000)?;
    let ours = rate(time, |id| {
        let mut caller = Caller::open(host.client("memory")?, id + 1)?;
        let once = move |object: u32| {
            caller.call(Target::of("AtomicInt", &format!("object-{object}"), "add_and_get", &[0x91, 1]))
        };
        Ok(Box::new(once))
    })?;
    let dir = context.fresh()?;
    let mut measured = Measured::new(ours, u64::from(CLIENTS));
    let missing = match Redis::start_forgetful(dir.path())? {
        None => redis::INSTALL,
        Some(redis) => {
            let theirs = rate(time, |_| {
                let mut asker = redis.asker()?;
                Ok(Box::new(move |object: u32| asker.ask(&[b"INCR", format!("object-{object}").as_bytes()]).map(drop)))
            })?;
            let complex = rate(time, |_| {
                let mut asker = redis.asker()?;
                Ok(Box::new(move |object: u32| {
                    asker.ask(&[b"EVAL", LOOP.as_bytes(), b"1", format!("object-{object}").as_bytes()]).map(drop)
                }))
            })?;
            measured = measured.peer("Redis INCR", theirs).target("≥ 0.8 × Redis", ours >= 0.8 * theirs).also(
                "Redis + Lua, 10 000 multiplications",
                complex,
                "/s",
            );
            "Redis 7 over TCP."
        }
    };
    Ok(measured.note(format!(
        "{CLIENTS} blocking clients, each with a connection and a thread of this process, increment {OBJECTS} objects at random; host and \
         load on the same cores. {missing}"
    )))
}
