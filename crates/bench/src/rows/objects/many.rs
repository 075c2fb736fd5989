//! object.many: 200 clients, 800 objects. A simple operation of each beside Redis; and 10 000 multiplications, by a class in WebAssembly, by one
//! in Python, and by a script of Redis.

use super::{Caller, Target};
use crate::{
    Context, Outcome, functions,
    peers::redis::{self, Redis},
    rows::{
        Measured, python,
        remote::{Host, below},
    },
};
use millrace_node::{FunctionSpec, Namespace, Runtime, pools};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
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

/// A class of a pool: how its calls name it, and the arguments of its constructor and of its method.
struct Class {
    about: Vec<u8>,
    nothing: &'static [u8],
}

/// Text, or bytes, as MessagePack has them.
fn run(out: &mut Vec<u8>, marker: u8, bytes: &[u8]) {
    out.extend([marker, bytes.len() as u8]);
    out.extend(bytes);
}

impl Class {
    /// Its name, pool, version, body and code.
    fn new(name: &str, pool: &str, body: u64, code: &[u8], nothing: &'static [u8]) -> Self {
        let mut about = Vec::new();
        run(&mut about, 0xd9, name.as_bytes());
        run(&mut about, 0xd9, pool.as_bytes());
        about.extend([1, 0xcf]);
        about.extend(body.to_be_bytes());
        run(&mut about, 0xc4, code);
        Self { about, nothing }
    }

    /// The arguments of its constructor.
    fn new_object(&self) -> Vec<u8> {
        let mut new = [&[0x96][..], &self.about].concat();
        run(&mut new, 0xc4, self.nothing);
        new
    }

    /// Those of a call of its method `multiply`, which may take a minute: others are before it.
    fn multiply(&self) -> Vec<u8> {
        let mut call = [&[0x98][..], &self.about].concat();
        run(&mut call, 0xd9, b"multiply");
        call.extend([0xcd, 0xea, 0x60]);
        run(&mut call, 0xc4, self.nothing);
        call
    }
}

/// The class in WebAssembly, in a pool of this host.
fn wasm_class(context: &Context, host: &Host) -> Outcome<Class> {
    let module = functions::wasm(context, "multiply")?;
    let namespace = Namespace::open(&below(host, "memory"))?;
    let mut spec = FunctionSpec::new("pool".parse()?, Runtime::Wasm);
    (spec.concurrency, spec.ordered) = (2, false);
    pools::make(&namespace, &"multiply".parse()?, &spec, &module, None)?;
    Ok(Class::new("wasm:multiply", "multiply", 1, b"multiply", &[0x90]))
}

/// The program that has sent the class in Python to the host; it ends with the handle.
struct Sender(Child);

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The class in Python, in a pool of this host.
fn python_class(context: &Context, host: &Host) -> Outcome<(Class, Sender)> {
    let mut command = python::command(context, &["--class"])?;
    command.arg(below(host, "memory")).arg(host.place("memory")?.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let said = child.stdout.take().ok_or("a program without output")?;
    let sender = Sender(child);
    BufReader::new(said).read_line(&mut line)?;
    let about: Value = serde_json::from_str(&line).map_err(|error| format!("bench.py printed {line:?}: {error}"))?;
    let text = |at: usize| about[at].as_str().ok_or_else(|| format!("bench.py printed {line}"));
    let code: Vec<u8> = (0..text(4)?.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text(4)?[at..at + 2], 16).map_err(|_| line.clone()))
        .collect::<Result<_, _>>()?;
    let body = about[3].as_u64().ok_or("a body has a number")?;
    Ok((Class::new(text(0)?, text(1)?, body, &code, &[0x92, 0x90, 0x80]), sender))
}

/// Calls of a class's method in a second, each of an object at random.
fn rate_of_class(time: Duration, host: &Host, class: &Class) -> Outcome<f64> {
    let (new, arguments) = (class.new_object(), class.multiply());
    // Its workers start, and open the class.
    Caller::open(host.client("memory")?, CLIENTS + 1)?
        .call(Target::of("Shared", "multiply/0", "call", &arguments).made_with(&new))?;
    rate(time, |id| {
        let mut caller = Caller::open(host.client("memory")?, id + 1)?;
        let (new, arguments) = (&new, &arguments);
        let once = move |object: u32| {
            caller.call(Target::of("Shared", &format!("multiply/{object}"), "call", arguments).made_with(new))
        };
        Ok(Box::new(once))
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
    drop(host);
    // A host of its own for each class: what one leaves behind does not count for the next.
    let host = Host::start(context, 10_000)?;
    let in_wasm = rate_of_class(time, &host, &wasm_class(context, &host)?)?;
    drop(host);
    let host = Host::start(context, 10_000)?;
    let (class, sender) = python_class(context, &host)?;
    let in_python = rate_of_class(time, &host, &class)?;
    drop((sender, host));
    let dir = context.fresh()?;
    let mut measured = Measured::new(ours, u64::from(CLIENTS))
        .also("10 000 multiplications, a class in WebAssembly", in_wasm, "/s")
        .also("10 000 multiplications, a class in Python", in_python, "/s");
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
            measured = measured
                .peer("Redis INCR", theirs)
                .peer("Redis + Lua, 10 000 multiplications", complex)
                .target("≥ 0.8 × Redis", ours >= 0.8 * theirs)
                .target("WebAssembly ≥ 5 × Redis + Lua", in_wasm >= 5.0 * complex);
            "Redis 7 over TCP."
        }
    };
    Ok(measured.note(format!(
        "{CLIENTS} blocking clients, each with a connection and a thread of this process, increment {OBJECTS} objects \
         at random; the host and the clients share the cores. {missing} A method with 10 000 multiplications runs in \
         the host (WebAssembly), in two sandboxed workers (Python), or as a script in Redis."
    )))
}
