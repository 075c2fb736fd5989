//! The clock behind timeouts: one thread that advances the engine's epoch while functions run.
//!
//! It parks after a while without runs, so an idle host has no timer; the next run wakes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use wasmtime::Engine;

/// How often the epoch advances: the precision of timeouts.
const TICK: Duration = Duration::from_millis(2);
/// The ticks without any run after which the thread parks. Waking it costs some microseconds, so not at once.
const IDLE_TICKS_MAX: u32 = 50;

#[derive(Default)]
struct Shared {
    /// Runs begun and runs ended; nothing runs when they are equal.
    begun: AtomicU64,
    ended: AtomicU64,
    parked: AtomicBool,
    stop: AtomicBool,
}

pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Ticker {
    pub(super) fn start(engine: Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let builder = thread::Builder::new().name("wasm-ticker".into()).stack_size(64 << 10);
        let thread = millrace_threads::spawn(builder, move || tick(&engine, &seen))?;
        Ok(Self { shared, thread })
    }

    /// Time passes as long as the guard lives.
    pub(super) fn running(&self) -> Running<'_> {
        self.shared.begun.fetch_add(1, SeqCst);
        // Pairs with `tick`, which announces that it parks before it looks at `begun` a last time: one of the two sees
        // the other.
        if self.shared.parked.load(SeqCst) {
            self.thread.thread().unpark();
        }
        Running(&self.shared)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.thread.thread().unpark();
    }
}

pub(super) struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

fn tick(engine: &Engine, shared: &Shared) {
    let (mut seen, mut idle_ticks) = (0, 0);
    while !shared.stop.load(SeqCst) {
        thread::sleep(TICK);
        engine.increment_epoch();
        let (ended, begun) = (shared.ended.load(SeqCst), shared.begun.load(SeqCst));
        idle_ticks = if begun == ended && begun == seen { idle_ticks + 1 } else { 0 };
        seen = begun;
        if idle_ticks >= IDLE_TICKS_MAX {
            shared.parked.store(true, SeqCst);
            while shared.begun.load(SeqCst) == seen && !shared.stop.load(SeqCst) {
                thread::park();
            }
            shared.parked.store(false, SeqCst);
            idle_ticks = 0;
        }
    }
}
