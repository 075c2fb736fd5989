//! Iterates over the records of a log: the existing ones, or future ones as well.

use crate::{
    arguments::{Most, SLICE, text},
    errors::{OrRaise, refuse},
    forks::Birth,
    record::{Meta, Record},
};
use millrace_journal::Log;
use millrace_node::{Durability, Namespace};
use millrace_wire::{Code, Result};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyString};
use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// An iterator over records of a local log.
#[pyclass(frozen, module = "millrace._native")]
pub struct Records {
    source: Mutex<Source>,
    name: Py<PyString>,
    /// The incarnation of the log.
    #[pyo3(get)]
    incarnation: u32,
    /// The number of the next record.
    next: AtomicU64,
    closed: AtomicBool,
    birth: Birth,
}

struct Source {
    namespace: Namespace,
    /// The log as it was at the beginning: one that was removed and made again is another.
    log: Log,
    /// The first record that is not wanted; without it, records are awaited.
    stop: Option<u64>,
    /// How long to wait for a record.
    timeout: Option<Duration>,
    /// Whether a record may have to become durable before it can be had.
    disk: bool,
}

enum Step {
    Record(millrace_node::Record),
    /// A repair took the record away.
    Void,
    Nothing,
    End,
}

impl Source {
    /// Record `next` if it exists.
    fn step(&self, next: u64) -> Result<Step> {
        if self.stop.is_some_and(|stop| next >= stop) {
            return Ok(Step::End);
        }
        if next > self.log.latest() {
            return Ok(if self.stop.is_some() { Step::End } else { Step::Nothing });
        }
        match self.namespace.get(self.log.name(), next) {
            Err(error) if error.code() == Code::RecordVoid => Ok(Step::Void),
            read => read.map(Step::Record),
        }
    }

    /// Waits a little for record `next`.
    fn wait(&self, next: u64, timeout: Duration) -> Result<()> {
        self.namespace.journal().wait_log(&self.log, next - 1, timeout)?;
        let now = self.namespace.log(self.log.name())?;
        if now.id() == self.log.id() {
            return Ok(());
        }
        Err(Code::LogNotFound.error(format!("log '{}' was deleted and recreated", self.log.name())))
    }
}

impl Records {
    pub fn open(
        py: Python<'_>,
        namespace: Namespace,
        (log, incarnation): (&Bound<'_, PyString>, u32),
        start: u64,
        stop: Option<u64>,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let found = namespace.log(text(log)?).or_raise(py)?;
        if ![0, found.id()].contains(&incarnation) {
            let detail = format!("log '{}' was deleted and recreated since the cursor was taken", found.name());
            return Err(refuse(py, Code::CursorIncarnation, detail));
        }
        let incarnation = found.id();
        let disk = namespace.journal().durability() == Durability::Disk;
        let source = Mutex::new(Source { namespace, log: found, stop, timeout, disk });
        Ok(Self {
            source,
            name: log.clone().unbind(),
            incarnation,
            next: AtomicU64::new(start),
            closed: AtomicBool::new(false),
            birth: Birth::now(),
        })
    }

    /// The records belong to one thread at a time. Waiting for the other one here could wait forever: it needs the interpreter to go on.
    fn source(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Source>> {
        self.birth.check(py, "the iteration")?;
        self.source.try_lock().map_err(|_| PyValueError::new_err("another thread reads these records already"))
    }

    /// The next record; none if it is not there, and not to be waited for.
    fn advance(&self, py: Python<'_>, source: &Source, may_wait: bool) -> PyResult<Option<Record>> {
        let mut waiting: Option<Instant> = None;
        loop {
            let next = self.next.load(Ordering::Relaxed);
            let step = if source.disk { py.detach(|| source.step(next)) } else { source.step(next) };
            match step.or_raise(py)? {
                Step::Record(record) => {
                    self.next.store(next + 1, Ordering::Relaxed);
                    let meta = Meta {
                        seqno: record.seqno,
                        id: record.id,
                        hlc: record.hlc,
                        cause: record.cause,
                        headers: record.headers.clone(),
                    };
                    return Ok(Some(Record::of(self.name.bind(py), meta, &record.payload)));
                }
                Step::Void => {
                    self.next.store(next + 1, Ordering::Relaxed);
                    continue;
                }
                Step::End => return Ok(None),
                Step::Nothing if !may_wait => return Ok(None),
                Step::Nothing => {}
            }
            let since = *waiting.get_or_insert_with(Instant::now);
            let left = source.timeout.map_or(SLICE, |timeout| timeout.saturating_sub(since.elapsed()));
            if left.is_zero() || self.closed.load(Ordering::Relaxed) {
                return Ok(None);
            }
            py.detach(|| source.wait(next, left.min(SLICE))).or_raise(py)?;
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Records {
    /// The number of the next record, at which to resume later.
    #[getter]
    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Ends the iteration; can be called from any thread.
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits for one record, and returns it with up to `most - 1` available records that follow it; returns none at the end.
    fn batch(&self, py: Python<'_>, most: Most) -> PyResult<Vec<Record>> {
        let source = self.source(py)?;
        let mut records = Vec::new();
        while records.len() < most.0 {
            match self.advance(py, &source, records.is_empty())? {
                Some(record) => records.push(record),
                None => break,
            }
        }
        Ok(records)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        self.advance(py, &*self.source(py)?, true)
    }
}
