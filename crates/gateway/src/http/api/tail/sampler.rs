//! The counters of a namespace, which all listeners of [`super::live`] share: they are read at most four times a second, and only while
//! somebody listens and something has changed.

use crate::documents::flows_of;
use millrace_documents::rfc3339;
use millrace_node::{Log, Namespace, Position};
use millrace_wire::{LogName, Name, Result};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How old counters may be that another listener has read.
const FRESH: Duration = Duration::from_millis(250);

/// The counters at a moment.
pub(super) struct Sampled {
    /// Each log: its incarnation and its newest record.
    pub logs: Vec<(LogName, (u32, u64))>,
    /// Each function: ended and pending runs, and dead letters.
    pub functions: Vec<(Name, [u64; 3])>,
    /// The records of each flow.
    pub edges: Vec<(String, u64)>,
    /// The versions of documents: they are other ones if the document has changed.
    pub logs_version: u64,
    pub repairs_version: u64,
    pub runs_version: u64,
}

struct Taken {
    at: Instant,
    /// The end of the journal then, and the version of its definitions: while both stay, no counter changes.
    tail: Position,
    version: u64,
    /// The clock of the journal at `at`.
    time: String,
    sample: Arc<Sampled>,
}

/// The newest counters of each namespace.
#[derive(Default)]
pub(crate) struct Samplers(Mutex<HashMap<Name, Arc<Mutex<Option<Taken>>>>>);

impl Samplers {
    /// The counters of a namespace now, or a moment ago, and when that was. Listeners that ask meanwhile wait for the one that reads them.
    pub(super) fn sample(&self, name: &Name, namespace: &Namespace) -> Result<(String, Arc<Sampled>)> {
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slots.entry(name.clone()).or_default().clone()
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let journal = namespace.journal();
        if let Some(taken) = slot.as_ref().filter(|taken| taken.at.elapsed() < FRESH) {
            return Ok((taken.time.clone(), taken.sample.clone()));
        }
        let (at, tail, version) = (Instant::now(), journal.tail(), journal.catalog_version());
        let time = rfc3339(journal.clock());
        if let Some(taken) = slot.as_mut().filter(|taken| (taken.tail, taken.version) == (tail, version)) {
            (taken.at, taken.time) = (at, time);
            return Ok((taken.time.clone(), taken.sample.clone()));
        }
        let sample = Arc::new(Sampled::take(namespace)?);
        *slot = Some(Taken { at, tail, version, time: time.clone(), sample: sample.clone() });
        Ok((time, sample))
    }
}

impl Sampled {
    fn take(namespace: &Namespace) -> Result<Sampled> {
        let journal = namespace.journal();
        let catalog = journal.catalog()?;
        let logs: Vec<_> = catalog.logs().map(|log: &Log| (log.name().clone(), (log.id(), log.latest()))).collect();
        let of_repairs = logs.iter().filter(|(name, _)| name.starts_with("_repair"));
        let repairs_version = of_repairs.map(|(_, (_, latest))| latest).sum();
        let (mut functions, mut runs_version) = (Vec::new(), 0);
        for stat in namespace.functions()? {
            let dead = stat.dead_letters.kept.saturating_sub(stat.dead_letters.retried);
            runs_version += stat.triggered + stat.done + dead;
            functions.push((stat.name.clone(), [stat.done, stat.pending(), dead]));
        }
        let edges = flows_of(namespace)?.edges.into_iter().map(|edge| (edge.id, edge.records)).collect();
        Ok(Sampled { logs, functions, edges, logs_version: catalog.version(), repairs_version, runs_version })
    }
}
