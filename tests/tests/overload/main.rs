//! More of everything than a host can do: it says so clearly, costs bounded memory, harms nobody else, loses nothing that
//! was acknowledged, does nothing that was refused, and is as before when it is over.

mod connections;
mod functions;
mod memory;
mod pace;
mod protocols;

use millrace_tests::{Host, Place, raw::memory_bytes};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// All that connections hold together beyond [`OWN_BYTES`] each (`gateway::memory`).
const LARGE_BYTES: u64 = 256 << 20;
/// What one connection may hold uncounted, in both directions, with what its task takes.
const OWN_BYTES: u64 = 192 << 10;
/// One answer that each event loop has in its hands: a record of 14 MB, its base64, and the text of which that is a part,
/// while it grows and what it has outgrown is given back.
const IN_HAND_BYTES: u64 = 128 << 20;

/// What there is besides: answers in hand, and what an allocator keeps.
fn slack_bytes() -> u64 {
    let loops = thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    loops * IN_HAND_BYTES + (64 << 20)
}

/// A namespace made by an application: `logs` and `functions` are TOML, `code` is `code.py`.
fn place(logs: &str, functions: &str, code: &str) -> Place {
    let place = Place::empty();
    place.write("code/code.py", code);
    let text = format!(
        "[namespace]\nsegment_size = \"64MiB\"\nretain_bytes = \"256MiB\"\ndurability = \"memory\"\n{logs}\n{functions}"
    );
    place.write("millrace.toml", &text);
    place.run(["up"]).ok();
    place
}

/// A function of `code.py` as TOML.
fn function(name: &str, on: &str, more: &str) -> String {
    format!(
        "[functions.{name}]\nruntime = \"python\"\ncode = \"code\"\nhandler = \"code:{name}\"\non = [{on}]\n{more}\n"
    )
}

/// Watches how much memory of its own a host has at most.
struct Peak {
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    before: u64,
    thread: Option<thread::JoinHandle<()>>,
}

impl Peak {
    fn of(host: &Host) -> Self {
        let (most, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (before, status) = (memory_bytes(host), millrace_tests::raw::status_file(host));
        let (most_, over_) = (most.clone(), over.clone());
        let thread = thread::spawn(move || {
            while !over_.load(Ordering::Relaxed) {
                // A host that has ended has none.
                let now = millrace_tests::raw::memory_in(&status).unwrap_or(0);
                most_.fetch_max(now, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { most, over, before, thread: Some(thread) }
    }

    /// Asserts that it never grew by more than this.
    #[track_caller]
    fn expect_within(mut self, bytes: u64) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().expect("once").join().expect("it watches");
        let grown = self.most.load(Ordering::Relaxed).saturating_sub(self.before);
        assert!(grown <= bytes, "{} MiB more, of {} that may be", grown >> 20, bytes >> 20);
    }
}
