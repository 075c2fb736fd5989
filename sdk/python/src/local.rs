//! A namespace on this machine, by its mapped files: no host, no copy on the way, no other process.
//!
//! Calls that may wait for the disk, for space or for records release the interpreter, so that other Python threads run meanwhile. Other
//! calls keep it, because releasing it costs as much as the append itself.

use crate::{
    arguments::{
        self, History, Incarnation, RetainBytes, SLICE, SegmentBytes, Seqno, Token, bytes_of, event, fence_of,
        history_of, patiently, seconds, text,
    },
    errors::{OrRaise, check_importing, refuse},
    forks::Birth,
    record::{Meta, Record},
    records::Records,
    sandbox::isolation,
    views,
};
use millrace_node::{
    AppendOptions, CreateOptions, Durability, LogName, Name, Namespace, NewRecord, Receipt, RunResult, Served,
    default_name,
    devices::updates::{self, NewImage},
    documents, functions, hinted, invoke, owner,
    repairs::{self, Ask, NewCode},
};
use millrace_wire::{Code, EventId, HISTORY_ALL, table::TableRequest};
use pyo3::{
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyBytes, PyString},
};
use std::{
    path::PathBuf,
    sync::Arc,
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

/// A namespace's files, mapped into this process.
#[pyclass(frozen, subclass, module = "millrace._native")]
pub struct LocalNamespace {
    open: RwLock<Option<Namespace>>,
    birth: Birth,
    disk: bool,
    #[pyo3(get)]
    address: String,
}

impl LocalNamespace {
    fn over(namespace: Namespace) -> Self {
        let disk = namespace.journal().durability() == Durability::Disk;
        let address = std::path::absolute(namespace.dir()).unwrap_or_else(|_| namespace.dir().into());
        Self { address: address.display().to_string(), open: RwLock::new(Some(namespace)), birth: Birth::now(), disk }
    }

    /// Calls `f` with the namespace. For what does not wait: nobody can close it meanwhile.
    #[inline]
    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&Namespace) -> millrace_wire::Result<T>) -> PyResult<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        self.birth.check(py, "the open namespace")?;
        match &*open {
            Some(namespace) => f(namespace).map_err(|error| hinted(error, namespace, |_, _| true)).or_raise(py),
            None => Err(closed(py, &self.address)),
        }
    }

    /// Calls `f` with the namespace while other Python threads run.
    fn detached<T: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&Namespace) -> millrace_wire::Result<T> + Send,
    ) -> PyResult<T> {
        let namespace = self.handle(py)?;
        py.detach(|| f(&namespace).map_err(|error| hinted(error, &namespace, |_, _| true))).or_raise(py)
    }

    /// A handle of its own, which lives on when the namespace is closed meanwhile.
    pub fn handle(&self, py: Python<'_>) -> PyResult<Namespace> {
        self.with(py, |namespace| Ok(namespace.clone()))
    }

    /// Whether an append with these options cannot wait for anything but the journal's lock.
    #[inline]
    fn is_prompt(&self, durability: Option<Durability>, patience: Duration) -> bool {
        let disk = durability.map_or(self.disk, |durability| durability == Durability::Disk);
        !disk && patience.is_zero()
    }
}

#[cold]
pub fn closed(py: Python<'_>, address: &str) -> PyErr {
    refuse(py, Code::PythonClosed, format!("the namespace '{address}' is closed"))
}

/// All of the records or none, in one commit.
fn append_together(
    namespace: &Namespace,
    records: &[NewRecord],
    options: AppendOptions<'_>,
) -> millrace_wire::Result<Vec<Receipt>> {
    let records: Vec<(&str, &[u8])> = records.iter().map(|new| (&*new.log, &*new.payload)).collect();
    let served = Served::new(default_name(namespace.dir()), namespace.clone())?;
    served.access(&Arc::new(owner())).append_many(&records, options).wait()
}

#[pymethods]
impl LocalNamespace {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        check_importing(py, &path.display().to_string())?;
        py.detach(|| Namespace::open(&path)).map(Self::over).or_raise(py)
    }

    /// Creates a namespace, which is then opened like any other.
    #[staticmethod]
    #[pyo3(signature = (path, durability, segment_bytes=None, retain_bytes=None, retain_age=None))]
    fn make(
        py: Python<'_>,
        path: PathBuf,
        durability: &str,
        segment_bytes: Option<SegmentBytes>,
        retain_bytes: Option<RetainBytes>,
        retain_age: Option<f64>,
    ) -> PyResult<()> {
        check_importing(py, &path.display().to_string())?;
        let sizes = (segment_bytes.map(|bytes| bytes.0), retain_bytes.map(|bytes| bytes.0));
        let mut options = CreateOptions::fitting(&path, sizes.0, sizes.1);
        options.durability = arguments::durability(py, Some(durability))?.unwrap_or(options.durability);
        options.retain_age = retain_age.map(|age| seconds(py, "retain_age", age)).transpose()?;
        py.detach(|| Namespace::create(&path, &options).map(drop)).or_raise(py)
    }

    fn close(&self, py: Python<'_>) {
        let taken = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        // Closing may wait for the thread that makes room ahead.
        py.detach(|| drop(taken));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    #[getter]
    fn durability(&self) -> &'static str {
        if self.disk { "disk" } else { "memory" }
    }

    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |namespace| Ok(namespace.journal().namespace().to_string()))
    }

    #[pyo3(signature = (log, data, *, function=None, durability=None, key=None, fence=None, cause=None, patience=0.0))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn append(
        &self,
        py: Python<'_>,
        log: &Bound<'_, PyString>,
        data: &Bound<'_, PyAny>,
        function: Option<&str>,
        durability: Option<&str>,
        key: Option<&str>,
        fence: Option<(PyBackedStr, Token)>,
        cause: Option<&str>,
        patience: f64,
    ) -> PyResult<u64> {
        let (log, data) = (text(log)?, bytes_of(data)?);
        let durability = arguments::durability(py, durability)?;
        let patience = seconds(py, "patience", patience)?;
        let cause = event(py, cause)?;
        let fence = fence_of(&fence);
        let options = AppendOptions { function, durability, key, fence, cause, patience, ..AppendOptions::default() };
        let payload = data.as_bytes();
        if self.is_prompt(durability, patience) {
            return self.with(py, |namespace| Ok(namespace.append(log, payload, options)?.seqno));
        }
        patiently(py, patience, Duration::ZERO, |patience| {
            let options = AppendOptions { patience, ..options };
            self.detached(py, |namespace| Ok(namespace.append(log, payload, options)?.seqno))
        })
    }

    /// Appends in batches, and returns the seqnos. When a batch is refused, `progress` tells what is appended.
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    #[pyo3(signature = (records, progress, *, durability=None, key=None, fence=None, patience=0.0))]
    fn append_batch(
        &self,
        py: Python<'_>,
        records: Vec<(String, Bound<'_, PyAny>)>,
        progress: &Bound<'_, PyAny>,
        durability: Option<&str>,
        key: Option<&str>,
        fence: Option<(PyBackedStr, Token)>,
        patience: f64,
    ) -> PyResult<()> {
        let options = AppendOptions {
            durability: arguments::durability(py, durability)?,
            patience: seconds(py, "patience", patience)?,
            key,
            fence: fence_of(&fence),
            ..AppendOptions::default()
        };
        let new = |(log, data): (String, Bound<'_, PyAny>)| {
            PyResult::Ok(NewRecord { log, payload: bytes_of(&data)?.as_bytes().to_vec() })
        };
        let records = records.into_iter().map(new).collect::<PyResult<Vec<_>>>()?;
        let mut seqnos = Vec::with_capacity(records.len());
        let namespace = self.handle(py)?;
        if key.is_some() {
            // The records of a key are one batch, all or none, as through a host: so it is done as a host does it.
            let receipts = py.detach(|| append_together(&namespace, &records, options)).or_raise(py)?;
            progress.call_method1("extend", (receipts.iter().map(|r| r.seqno).collect::<Vec<_>>(),))?;
            return Ok(());
        }
        let appended = py.detach(|| {
            namespace.append_many(records.into_iter().map(Ok), options, |receipts| {
                seqnos.extend(receipts.iter().map(|r| r.seqno))
            })
        });
        progress.call_method1("extend", (seqnos,))?;
        appended.or_raise(py)
    }

    #[pyo3(signature = (log, seqno=None, *, wait=0.0))]
    fn get(&self, py: Python<'_>, log: &Bound<'_, PyString>, seqno: Option<Seqno>, wait: f64) -> PyResult<Record> {
        let (name, seqno) = (text(log)?, seqno.map(|seqno| seqno.0));
        if wait > 0.0 {
            self.wait_for(py, name, seqno.unwrap_or(1), seconds(py, "wait", wait)?)?;
        }
        let read = |namespace: &Namespace| match seqno {
            Some(seqno) => namespace.get(name, seqno),
            None => match namespace.latest(name)? {
                0 => Err(Code::AboveTail.error(format!("log '{name}' has no records yet"))),
                _ => namespace.newest(name),
            },
        };
        // In a namespace on disk the record may have to become durable first.
        let record = if self.disk { self.detached(py, read)? } else { self.with(py, read)? };
        let meta = Meta {
            seqno: record.seqno,
            id: record.id,
            hlc: record.hlc,
            cause: record.cause,
            headers: record.headers.clone(),
        };
        Ok(Record::of(log, meta, &record.payload))
    }

    fn latest(&self, py: Python<'_>, log: &Bound<'_, PyString>) -> PyResult<u64> {
        let log = text(log)?;
        self.with(py, |namespace| namespace.latest(log))
    }

    /// How many of its newest records a log keeps (none: all until they are trimmed), the oldest that it has, and the newest; 0 for none.
    fn bounds(&self, py: Python<'_>, log: &Bound<'_, PyString>) -> PyResult<(Option<u64>, u64, u64)> {
        let log = text(log)?;
        self.with(py, |namespace| {
            namespace.inspect(|namespace| {
                let log = namespace.log(log)?;
                Ok((Some(log.history()).filter(|kept| *kept != HISTORY_ALL), log.earliest(), log.latest()))
            })
        })
    }

    /// Records from `start` on: up to `stop`, or as they come until none came for `timeout` seconds.
    #[pyo3(signature = (log, start, stop=None, timeout=None, incarnation=Incarnation(0)))]
    fn records(
        &self,
        py: Python<'_>,
        log: Bound<'_, PyString>,
        start: Seqno,
        stop: Option<u64>,
        timeout: Option<f64>,
        incarnation: Incarnation,
    ) -> PyResult<Records> {
        let timeout = timeout.map(|timeout| seconds(py, "timeout", timeout)).transpose()?;
        Records::open(py, self.handle(py)?, (&log, incarnation.0), start.0, stop, timeout)
    }

    #[pyo3(signature = (log, history))]
    fn make_log(&self, py: Python<'_>, log: &str, history: Option<History>) -> PyResult<()> {
        let name: LogName = log.parse().or_raise(py)?;
        self.detached(py, |namespace| namespace.create_log(&name, history_of(history)).map(drop))
    }

    #[pyo3(signature = (log, field, unit))]
    fn set_time_field(&self, py: Python<'_>, log: &str, field: Option<&str>, unit: Option<&str>) -> PyResult<()> {
        let (name, time) = (log.parse().or_raise(py)?, arguments::time_field(py, field, unit)?);
        self.detached(py, |namespace| namespace.set_time_field(&name, time.as_ref()).map(drop))
    }

    /// The field of a log's records that has the time of the observation, and the unit of numbers in it.
    fn time_field(
        &self,
        py: Python<'_>,
        log: &Bound<'_, PyString>,
    ) -> PyResult<Option<(String, Option<&'static str>)>> {
        let log = text(log)?;
        self.with(py, |namespace| {
            namespace.inspect(|namespace| Ok(namespace.time_field(&namespace.log(log)?)?.map(arguments::told)))
        })
    }

    fn begin_update(&self, py: Python<'_>, device: &str, size: u64, sha256: &str, version: &str) -> PyResult<String> {
        self.detached(py, |namespace| {
            let begun = updates::begin(namespace, device, &NewImage { size, sha256, version })?;
            namespace.journal().sync(begun.end)?;
            Ok(serde_json::json!(begun.value).to_string())
        })
    }

    fn add_firmware(&self, py: Python<'_>, device: &str, update: u64, offset: u64, part: &[u8]) -> PyResult<String> {
        self.detached(py, |namespace| {
            let added = updates::add(namespace, device, update, offset, part)?;
            namespace.journal().sync(added.end)?;
            Ok(serde_json::json!(added.value).to_string())
        })
    }

    #[pyo3(signature = (table, history, keys, codec, ttl_ms))]
    fn make_table(
        &self,
        py: Python<'_>,
        table: &str,
        history: Option<History>,
        keys: &str,
        codec: &str,
        ttl_ms: u64,
    ) -> PyResult<()> {
        let name: LogName = table.parse().or_raise(py)?;
        let options = arguments::table_options(py, keys, codec, ttl_ms)?;
        self.detached(py, |namespace| namespace.create_table(&name, history_of(history), options).map(drop))
    }

    /// Asks a table, or changes it: the bytes of `spec/protocol/table.md`, and the token of the answer.
    #[pyo3(signature = (table, request, after=None))]
    fn ask_table(
        &self,
        py: Python<'_>,
        table: &str,
        request: &[u8],
        after: Option<&str>,
    ) -> PyResult<(Py<PyBytes>, Option<String>)> {
        let asked = TableRequest::decode(request).or_raise(py)?;
        let options = AppendOptions { after: event(py, after)?, ..AppendOptions::default() };
        let answer = self.detached(py, |namespace| namespace.ask_table(table, &asked, options))?;
        let token = (!answer.token.is_none()).then(|| answer.token.to_string());
        Ok((PyBytes::new(py, &answer.encode()).unbind(), token))
    }

    fn set_history(&self, py: Python<'_>, log: &str, history: Option<History>) -> PyResult<()> {
        let name: LogName = log.parse().or_raise(py)?;
        self.detached(py, |namespace| namespace.set_history(&name, history_of(history)).map(drop))
    }

    /// Runs a function for a record, and waits for its end: the run, its state, its result, and the code and description of its error.
    #[pyo3(signature = (function, data, wait, log=None, durability=None, key=None, cause=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn call_function(
        &self,
        py: Python<'_>,
        function: &str,
        data: &Bound<'_, PyAny>,
        wait: f64,
        log: Option<&str>,
        durability: Option<&str>,
        key: Option<&str>,
        cause: Option<&str>,
    ) -> PyResult<(String, String, Py<PyBytes>, String, String)> {
        let data = bytes_of(data)?;
        let durability = arguments::durability(py, durability)?;
        let options = AppendOptions { durability, key, cause: event(py, cause)?, ..AppendOptions::default() };
        let wait = seconds(py, "wait", wait)?;
        let name: Name = function.parse().or_raise(py)?;
        let payload = data.as_bytes();
        let (_, receipt) = self.detached(py, |namespace| invoke::invoke(namespace, &name, log, payload, options))?;
        let started = Instant::now();
        loop {
            let left = wait.saturating_sub(started.elapsed());
            let run = self.detached(py, |namespace| invoke::wait(namespace, function, receipt.id, left.min(SLICE)))?;
            if run.ended.is_none() && left > SLICE {
                py.check_signals()?;
                continue;
            }
            let (id, state) = (run.id.to_string(), documents::state_word(run.state).to_owned());
            let (result, error) = match invoke::answer(&run) {
                Ok(result) => (result.map(RunResult::to_bytes).unwrap_or_default(), None),
                Err(error) => (Vec::new(), Some(error)),
            };
            let error = error.map(|error| (error.code().id().to_owned(), error.detail().to_owned()));
            let (code, error) = error.unwrap_or_default();
            return Ok((id, state, PyBytes::new(py, &result).unbind(), code, error));
        }
    }

    fn cancel_run(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        let run: EventId = id.parse().or_raise(py)?;
        self.detached(py, |namespace| functions::cancel(namespace, run))
    }

    fn remove_log(&self, py: Python<'_>, log: &str) -> PyResult<()> {
        let name: LogName = log.parse().or_raise(py)?;
        self.detached(py, |namespace| namespace.remove_log(&name))
    }

    /// A document about the namespace, as JSON: `logs`, `functions`, `runs?…`, `runs/ID`, `why?target=…`.
    #[pyo3(signature = (what, **options))]
    fn show(&self, py: Python<'_>, what: &str, options: Option<views::Options>) -> PyResult<String> {
        let options = options.unwrap_or_default();
        self.detached(py, |namespace| views::show(namespace, what, &options))
    }

    /// Deploys a function as its JSON says, with the code at `source`.
    fn deploy_code(&self, py: Python<'_>, spec: &str, source: PathBuf) -> PyResult<String> {
        let isolation = isolation(py)?;
        self.detached(py, |namespace| views::deploy(namespace, spec, &source, &isolation))
    }

    /// Makes a pool of workers for tasks, or rebuilds it with other settings.
    fn make_pool(&self, py: Python<'_>, pool: &str, spec: &str, source: PathBuf) -> PyResult<String> {
        let pool: Name = pool.parse().or_raise(py)?;
        let isolation = isolation(py)?;
        self.detached(py, |namespace| views::make_pool(namespace, &pool, spec, &source, &isolation))
    }

    /// Makes a request about repairs, as JSON, and returns the current state of the repair.
    fn ask_repair(&self, py: Python<'_>, request: &str) -> PyResult<String> {
        let ask = Ask::parse(request).or_raise(py)?;
        self.detached(py, |namespace| views::repair(namespace, ask))
    }

    /// Opens a repair that replaces the code of a function.
    #[pyo3(signature = (function, source, since, reason, append_new, across, run_external))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn repair_code(
        &self,
        py: Python<'_>,
        function: &str,
        source: PathBuf,
        since: Option<&str>,
        reason: String,
        append_new: bool,
        across: Vec<String>,
        run_external: Vec<String>,
    ) -> PyResult<String> {
        let function: Name = function.parse().or_raise(py)?;
        let since = since.map(|event| event.parse::<EventId>().or_raise(py)).transpose()?;
        let since = since.map_or(0, EventId::sequence);
        let run_external = run_external.iter().map(|name| name.parse()).collect::<Result<_, _>>().or_raise(py)?;
        let isolation = Some(isolation(py)?);
        let ask = Ask::Code(NewCode { function, source, since, reason, append_new, across, run_external, isolation });
        self.detached(py, |namespace| views::repair(namespace, ask))
    }

    /// Does what repairs wait for in this process, unless a host does it.
    fn repair_here(&self, py: Python<'_>) -> PyResult<()> {
        let isolation = isolation(py)?;
        self.detached(py, |namespace| {
            match repairs::here(namespace, &isolation, &mut repairs::NoPeers, &mut |_, _, _, _| {}) {
                Err(error) if error.code() == Code::HostHeld => Ok(()),
                done => done,
            }
        })
    }

    #[pyo3(signature = (name, force = false))]
    fn remove_function(&self, py: Python<'_>, name: &str, force: bool) -> PyResult<u64> {
        let name: Name = name.parse().or_raise(py)?;
        self.detached(py, |namespace| match force {
            true => functions::give_up(namespace, &name),
            false => functions::remove(namespace, &name).map(|()| 0),
        })
    }

    fn wait_idle(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = seconds(py, "timeout", timeout)?;
        let started = Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let namespace = self.handle(py)?;
            match py.detach(|| namespace.wait_idle(left.min(SLICE))) {
                Err(error) if error.code() == Code::WaitTimeout && left > SLICE => py.check_signals()?,
                answer => return answer.or_raise(py),
            }
        }
    }

    /// Waits until everything that was appended so far is durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.detached(py, |namespace| namespace.journal().sync(namespace.journal().tail()))
    }
}

impl LocalNamespace {
    /// Returns when the log has record `seqno`, or at the timeout.
    fn wait_for(&self, py: Python<'_>, log: &str, seqno: u64, timeout: Duration) -> PyResult<()> {
        let log = self.with(py, |namespace| namespace.log(log))?;
        let started = Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let seen = seqno.saturating_sub(1);
            // Closing it from another thread ends the wait.
            let namespace = self.handle(py)?;
            let latest = py.detach(|| namespace.journal().wait_log(&log, seen, left.min(SLICE))).or_raise(py)?;
            if latest >= seqno || left.is_zero() {
                return Ok(());
            }
            py.check_signals()?;
        }
    }
}
