//! How much a host's clients may make a namespace allocate. Each log has an index of eight bytes for each record that it keeps; programs
//! that work on the files have no such limits.

use super::Access;
use crate::DEAD_LETTER_HISTORY;
use millrace_journal::Catalog;
use millrace_namespace::{
    FunctionSpec,
    outbox::{OUTBOX_RECORDS_MAX, outbox_of, state::State},
};
use millrace_wire::{Address, Code, HISTORY_ALL, HISTORY_MAX, LogName, Peer, Result, protocol::Link};
use std::collections::BTreeMap;

/// The longest history that a client may ask for.
pub const CLIENT_HISTORY_MAX: u64 = 1 << 24;
/// Bytes of all indexes together, beyond which clients of a host make no log.
pub const CLIENT_INDEX_MAX_BYTES: u64 = 1 << 30;

/// Runs at once of all functions of one deployer that does not administer the namespace.
pub const CLIENT_RUNS_MAX: u64 = 16;
/// The part of the machine's memory that the functions of such a deployer may have together.
const CLIENT_MEMORY_PART: u64 = 2;
/// The least that they may have together.
const CLIENT_MEMORY_MIN_BYTES: u64 = 1 << 30;

/// How much the functions of one deployer may use at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    runs: u64,
    memory_bytes: u64,
}

impl Demand {
    /// That of these functions together.
    pub(super) fn of<'f>(functions: impl Iterator<Item = &'f FunctionSpec>) -> Self {
        functions.fold(Self::default(), |sum, spec| {
            let runs = u64::from(spec.concurrency);
            let memory_bytes = sum.memory_bytes.saturating_add(spec.memory_max_bytes.saturating_mul(runs));
            Self { runs: sum.runs + runs, memory_bytes }
        })
    }

    /// What is beyond the limits of this machine.
    pub(super) fn beyond(self) -> Vec<String> {
        self.beyond_limits(CLIENT_RUNS_MAX, (machine_bytes() / CLIENT_MEMORY_PART).max(CLIENT_MEMORY_MIN_BYTES))
    }

    fn beyond_limits(self, runs_max: u64, memory_max_bytes: u64) -> Vec<String> {
        let mut beyond = Vec::new();
        if self.runs > runs_max {
            beyond.push(format!("{} runs at once of the deployer's functions (the limit is {runs_max})", self.runs));
        }
        if self.memory_bytes > memory_max_bytes {
            let (memory, most) = (self.memory_bytes, memory_max_bytes);
            beyond.push(format!("{memory} bytes of memory for the deployer's functions (the limit is {most})"));
        }
        beyond
    }
}

/// The memory of this machine; 0 if it is not known.
fn machine_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    total.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// The limits for clients of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Logs beyond which clients make no further one.
    pub logs_max: usize,
    /// Bytes of all indexes together, beyond which clients make no further log.
    pub index_max_bytes: u64,
}

/// Bytes of the index of a log with this history, when it is full. A log that keeps everything counts as one with the longest history.
fn index_bytes(history: u64) -> u64 {
    8 * (history.min(CLIENT_HISTORY_MAX) + 1).next_power_of_two()
}

/// Whether a client may ask for this history at all.
fn check_longest(history: u64) -> Result<()> {
    if history > HISTORY_MAX && history != HISTORY_ALL {
        return Err(Code::HistoryInvalid.error(format!("a history of {history} records")));
    }
    if history > CLIENT_HISTORY_MAX && history != HISTORY_ALL {
        let reported = format!("a history of {history} records; the limit for clients is {CLIENT_HISTORY_MAX}");
        return Err(Code::LogsExhausted.error(reported));
    }
    Ok(())
}

impl Limits {
    /// Whether this number of logs with this history may be created.
    fn check(self, catalog: &Catalog, logs: usize, history: u64) -> Result<()> {
        self.check_index(catalog, logs, history, logs as u64 * index_bytes(history))
    }

    /// The same, and whether the index may take `asked` bytes more.
    fn check_index(self, catalog: &Catalog, logs: usize, history: u64, asked: u64) -> Result<()> {
        let exhausted = |reported: String| Err(Code::LogsExhausted.error(reported));
        check_longest(history)?;
        let (mut count, mut bytes) = (0, 0);
        for log in catalog.logs() {
            count += 1;
            bytes += index_bytes(log.history());
        }
        if count + logs > self.logs_max {
            return exhausted(format!("the namespace has {count} logs; the limit for clients is {}", self.logs_max));
        }
        if bytes + asked > self.index_max_bytes {
            return exhausted(format!(
                "an index of {asked} bytes, in addition to {bytes} bytes for other logs; the limit for clients is {} in all",
                self.index_max_bytes
            ));
        }
        Ok(())
    }
}

impl Access {
    /// The same for a client with these limits.
    pub fn within(self, limits: Limits) -> Access {
        Access { limits: Some(limits), ..self }
    }

    /// Whether a client may make this log; an existing one is not made.
    pub(super) fn check_log(&self, name: &LogName, history: u64) -> Result<()> {
        let Some(limits) = self.limits else { return Ok(()) };
        let catalog = self.namespace().journal().catalog()?;
        if catalog.log(name).is_some() { Ok(()) } else { limits.check(&catalog, 1, history) }
    }

    /// Whether a client may change a log's history to this number of records.
    pub(super) fn check_history(&self, before: u64, history: u64) -> Result<()> {
        let Some(limits) = self.limits.filter(|_| history > before) else { return Ok(()) };
        let more = index_bytes(history).saturating_sub(index_bytes(before));
        limits.check_index(&*self.namespace().journal().catalog()?, 0, history, more)
    }

    /// Whether a client may make these logs, all of them together, and have those that are there keep as many records as this says. A log
    /// of dead letters keeps what it keeps if it exists.
    pub(super) fn check_logs<'a>(
        &self,
        logs: impl Iterator<Item = (&'a LogName, u64)>,
        dead_letters: impl Iterator<Item = &'a LogName>,
    ) -> Result<()> {
        let Some(limits) = self.limits else { return Ok(()) };
        let catalog = self.namespace().journal().catalog()?;
        let (mut made, mut asked) = (0, 0);
        for (name, history) in logs {
            let before = catalog.log(name).map(|log| log.history());
            if before.is_some_and(|before| history <= before) {
                continue;
            }
            check_longest(history)?;
            made += usize::from(before.is_none());
            asked += index_bytes(history).saturating_sub(before.map_or(0, index_bytes));
        }
        let new = dead_letters.filter(|name| catalog.log(name).is_none()).count();
        made += new;
        asked += new as u64 * index_bytes(DEAD_LETTER_HISTORY);
        // A request that changes nothing is permitted even beyond the limits.
        if asked == 0 { Ok(()) } else { limits.check_index(&catalog, made, 1, asked) }
    }

    /// Whether a client may append to these logs: the first message to a peer makes its outbox.
    pub(super) fn check_outboxes<'a>(&self, logs: impl Iterator<Item = &'a str>) -> Result<()> {
        let Some(limits) = self.limits else { return Ok(()) };
        let addresses = logs.filter(|log| Address::claims(log)).filter_map(|log| log.parse::<Address>().ok());
        let catalog = self.namespace().journal().catalog()?;
        let mut new: BTreeMap<LogName, Peer> = addresses.map(|to| (outbox_of(&to.peer), to.peer)).collect();
        new.retain(|name, _| catalog.log(name).is_none());
        if !new.is_empty() {
            // A peer may have got its address later.
            let state = State::load(self.namespace())?;
            new.retain(|_, peer| state.peer_at(peer).is_none());
        }
        let new = new.len();
        if new == 0 { Ok(()) } else { limits.check(&catalog, new, OUTBOX_RECORDS_MAX) }
    }

    /// Whether a client may open this stream: one that is new makes a log.
    pub(super) fn check_stream(&self, link: &Link<'_>) -> Result<()> {
        let Some(limits) = self.limits else { return Ok(()) };
        let catalog = self.namespace().journal().catalog()?;
        match crate::links::inbox_of(link, self.own_streams().0.as_deref()) {
            Ok(name) if catalog.log(&name).is_none() => limits.check(&catalog, 1, 1),
            // An invalid name is reported when the log is opened.
            _ => Ok(()),
        }
    }
}
