//! Writing views to files.

use crate::{
    frozen::{self, Frozen, Head},
    sorted::Freezing,
    view::View,
};
use millrace_journal::{Journal, Log, SEALED_PREFIX};
use millrace_wire::Result;
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError, RwLock},
    thread::{Builder, JoinHandle},
};

/// The thread that writes views to files, one at a time.
pub(crate) struct Freezer {
    /// How many records are enough for a file.
    records: u64,
    /// The process whose thread it is, too.
    thread: Mutex<Option<(u32, JoinHandle<()>)>>,
}

impl Freezer {
    pub fn after(records: u64) -> Self {
        Self { records, thread: Mutex::default() }
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Starts to write a view, unless another one is being written: then it is looked at again after some records.
    pub fn start(&self, journal: &Journal, log: &Log, view: &Arc<RwLock<View>>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((process, running)) = thread.take() {
            if process == std::process::id() && !running.is_finished() {
                *thread = Some((process, running));
                return;
            }
            join((process, running));
        }
        let (journal, log, view) = (journal.clone(), log.clone(), view.clone());
        // A view that cannot be written stays in memory.
        let work = move || drop(freeze(&journal, &log, &view));
        let named = Builder::new().name("millrace-tables".into());
        *thread = millrace_threads::spawn(named, work).ok().map(|running| (std::process::id(), running));
    }

    /// Waits until nothing is being written.
    pub fn wait(&self) {
        let running = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        running.into_iter().for_each(join);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.wait();
    }
}

fn join((process, running): (u32, JoinHandle<()>)) {
    if process == std::process::id() {
        millrace_threads::join(running);
    } else {
        // A forked child does not have the thread, and would wait for it forever.
        std::mem::forget(running);
    }
}

/// Writes what a view has in memory to a file.
pub(crate) fn freeze(journal: &Journal, log: &Log, view: &RwLock<View>) -> Result<()> {
    let begun = view.write().unwrap_or_else(PoisonError::into_inner).freeze();
    let Some((freezing, reach, made)) = begun else { return Ok(()) };
    let since = freezing.kept.last().map_or(0, |file| file.head().reach.seen);
    let head = Head { since, reach, clock: frozen::clock_of(journal, log, reach.seen) };
    let name = format!("{}{since}-{}", frozen::prefix(log), reach.seen);
    let written = write(journal, log, &freezing, &head, &name);
    let file = written.as_ref().ok().and_then(|()| Frozen::open(journal, log, &name));
    let mut view = view.write().unwrap_or_else(PoisonError::into_inner);
    if view.frozen(&freezing, file, made) && written.is_ok() {
        tidy(journal, log, &view, reach.seen);
    }
    written
}

fn write(journal: &Journal, log: &Log, freezing: &Freezing, head: &Head, name: &str) -> Result<()> {
    // A file never says anything that a power failure could take back.
    journal.sync(head.reach.upto.max(head.reach.copies))?;
    let (first, is_whole) = (journal.first(), freezing.kept.is_empty());
    journal.sealed().make(name, freezing.bytes(), &mut |out| {
        let mut keys = freezing.keys().map_err(std::io::Error::other)?;
        frozen::write((journal, log), head, out, &mut |key| {
            while let Some(found) = keys.next_into(key)? {
                // Without a deletion whose record is gone, the key has no value either.
                if !is_whole || found.is_value || found.position >= first {
                    return Ok(Some((found, is_whole || !freezing.is_kept(key)?)));
                }
            }
            Ok(None)
        })
    })
}

/// Removes files that no view needs any more. Those who have one open keep it.
fn tidy(journal: &Journal, log: &Log, view: &View, seen: u64) {
    let (Ok(names), Ok(catalog)) = (journal.sealed().names(), journal.catalog()) else { return };
    let used: HashSet<&str> = view.files().collect();
    let logs: HashSet<u32> = catalog.logs().map(Log::id).collect();
    for name in &names {
        let id = name.strip_prefix(SEALED_PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        // Another process may have written more, or be about to.
        let complete = name.split('.').next().unwrap_or_default();
        let is_older = frozen::range_of(complete, log).is_some_and(|(_, of)| of <= seen);
        if (is_older && !used.contains(&**name)) || id.is_none_or(|id| !logs.contains(&id)) {
            // The next one tries again.
            let _ = journal.sealed().remove(name);
        }
    }
}
