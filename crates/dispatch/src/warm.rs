//! Loads the functions of pending runs while the journal is still being read; each takes about as long as the other.

use super::{Shared, starter::Starter};
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
};

/// The maximum number of functions that are loaded at once.
const THREADS: usize = 4;

/// Functions to be loaded, the first to be loaded last.
type Queue = Mutex<Vec<(u32, Arc<Starter>)>>;

/// Starts loading these functions. Nothing has to wait for it: a run that needs a function before loads it too, or waits for what
/// its executors share.
pub(super) fn start(shared: &Arc<Shared>, mut functions: Vec<(u32, Arc<Starter>)>) {
    functions.reverse();
    let threads = functions.len().min(THREADS);
    let queue = Arc::new(Mutex::new(functions));
    for _ in 0..threads {
        let (queue, shared) = (Arc::clone(&queue), Arc::downgrade(shared));
        let builder = thread::Builder::new().name("millrace-warm".into());
        // Without the thread the first run loads its function, as it would have anyway.
        let _ = millrace_threads::spawn(builder, move || load(&queue, &shared));
    }
}

fn load(queue: &Queue, shared: &Weak<Shared>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some((function, starter)) = next else { return };
        if shared.upgrade().is_none_or(|shared| shared.stopping()) {
            return;
        }
        // Running the function finds and reports the same error.
        let Ok((generation, mut executor)) = starter.check().and_then(|()| starter.executor()) else { continue };
        // Nothing of the namespace is held meanwhile: it can be closed although an import hangs.
        if executor.get_ready().is_err() {
            continue;
        }
        let Some(shared) = shared.upgrade() else { return };
        let mut state = shared.state();
        let needed = state.engine.view(function).is_some_and(|lane| lane.running.is_empty());
        if let Some(runner) = state.runners.get_mut(&function).filter(|runner| Arc::ptr_eq(&runner.starter, &starter))
            && needed
            && runner.idle.is_empty()
        {
            runner.idle.push((generation, executor));
        }
    }
}
