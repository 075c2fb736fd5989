//! Iterates over the records of a log on a host: existing ones in pages, future ones with a tail.

use crate::{
    arguments::{Most, text},
    forks::Birth,
    record::{Meta, Record},
    remote::{answer, slice},
};
use millrace_client::{
    Options, Place, TailOptions,
    blocking::{Client, Tail},
};
use millrace_wire::Result;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyString};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Most records of one page.
const PAGE_RECORDS: u64 = 1024;
/// A tail's connection looks at the clock four times as often: so that a timeout is kept, and closing is noticed.
const TAIL_LOOK_MS: u32 = 200;

/// An iterator over records of a log on a host.
#[pyclass(frozen, module = "millrace._native")]
pub struct RemoteRecords {
    source: Mutex<Source>,
    name: Py<PyString>,
    next: AtomicU64,
    incarnation: AtomicU32,
    closed: AtomicBool,
    birth: Birth,
    raised: Arc<Mutex<Option<PyErr>>>,
}

struct Source {
    way: Way,
    log: String,
    incarnation: u32,
    /// What came and was not taken.
    held: VecDeque<millrace_client::Record>,
    timeout: Option<Duration>,
}

enum Way {
    Pages { client: Client, next: u64, stop: u64 },
    Tail(Box<Tail>),
    Ended,
}

impl Source {
    /// Gets more records, and says whether there may be more later.
    fn fetch(&mut self, patience: Duration) -> Result<bool> {
        match &mut self.way {
            Way::Pages { client, next, stop } => {
                if *next >= *stop {
                    return Ok(false);
                }
                let batch = client.range(&self.log, *next, PAGE_RECORDS.min(*stop - *next) as u32, None)?;
                *next = if batch.records.is_empty() { *stop } else { batch.cursor.next };
                self.incarnation = batch.cursor.incarnation;
                self.held.extend(batch.records);
                Ok(true)
            }
            Way::Ended => Ok(false),
            Way::Tail(tail) => {
                if let Some(batch) = tail.batch_within(patience)? {
                    self.incarnation = batch.cursor.incarnation;
                    self.held.extend(batch.records);
                }
                Ok(true)
            }
        }
    }
}

impl RemoteRecords {
    pub fn open(
        py: Python<'_>,
        (client, place, raised): (Client, &Place, &Arc<Mutex<Option<PyErr>>>),
        options: Options,
        (log, incarnation): (&Bound<'_, PyString>, u32),
        start: u64,
        stop: Option<u64>,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let name = text(log)?;
        let way = match stop {
            Some(stop) => Way::Pages { client, next: start, stop },
            None => {
                let tail_options = TailOptions { incarnation, ..TailOptions::default() };
                let options = Options { request_timeout_ms: TAIL_LOOK_MS, ..options };
                let tail = || Client::connect(place, &options)?.tail(name, start, tail_options);
                Way::Tail(Box::new(answer(py, raised, py.detach(tail))?))
            }
        };
        let source = Source { way, log: name.to_owned(), incarnation, held: VecDeque::new(), timeout };
        Ok(Self {
            source: Mutex::new(source),
            name: log.clone().unbind(),
            next: AtomicU64::new(start),
            incarnation: AtomicU32::new(incarnation),
            closed: AtomicBool::new(false),
            birth: Birth::now(),
            raised: raised.clone(),
        })
    }

    /// The records belong to one thread at a time. Waiting for the other one here could wait forever: it needs the interpreter to go on.
    fn source(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Source>> {
        self.birth.check(py, "the iteration")?;
        self.source.try_lock().map_err(|_| PyValueError::new_err("another thread reads these records already"))
    }

    fn taken(&self, py: Python<'_>, record: &millrace_client::Record) -> Record {
        self.next.store(record.seqno + 1, Ordering::Relaxed);
        let meta = Meta {
            seqno: record.seqno,
            id: record.id,
            hlc: record.hlc,
            cause: record.cause,
            headers: record.headers.clone(),
        };
        Record::of(self.name.bind(py), meta, &record.data)
    }

    /// Returns when records are held, or when there will be none.
    fn fill(&self, py: Python<'_>, source: &mut Source) -> PyResult<()> {
        let since = Instant::now();
        while source.held.is_empty() {
            let left = source.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(since.elapsed()));
            let fetched = py.detach(|| source.fetch(slice(left)));
            if fetched.is_err() {
                // Like a generator that has raised, it goes on no more.
                if let Err(error) = &fetched
                    && error.code() != millrace_wire::Code::CallInterrupted
                {
                    source.way = Way::Ended;
                }
            }
            self.incarnation.store(source.incarnation, Ordering::Relaxed);
            let over = left.is_zero() && matches!(source.way, Way::Tail(_));
            if !answer(py, &self.raised, fetched)? || over || self.closed.load(Ordering::Relaxed) {
                return Ok(());
            }
            py.check_signals()?;
        }
        Ok(())
    }
}

#[pymethods]
impl RemoteRecords {
    /// The number of the next record, at which to resume later.
    #[getter]
    fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// The incarnation of the log; 0 before the first record.
    #[getter]
    fn incarnation(&self) -> u32 {
        self.incarnation.load(Ordering::Relaxed)
    }

    /// Ends the iteration; can be called from any thread.
    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits for one record, and returns it with up to `most - 1` available records that follow it; returns none at the end.
    fn batch(&self, py: Python<'_>, most: Most) -> PyResult<Vec<Record>> {
        let mut source = self.source(py)?;
        self.fill(py, &mut source)?;
        let count = source.held.len().min(most.0);
        Ok(source.held.drain(..count).map(|record| self.taken(py, &record)).collect())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Record>> {
        let mut source = self.source(py)?;
        self.fill(py, &mut source)?;
        Ok(source.held.pop_front().map(|record| self.taken(py, &record)))
    }
}
