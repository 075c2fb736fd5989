//! A namespace on a host, through its address. Every call lets other Python threads run while it waits, and Ctrl-C ends
//! it.

pub mod records;

use crate::{
    arguments::{
        self, History, Incarnation, SLICE, Seqno, Token, bytes_of, event, fence_of, history_of, patiently, seconds,
        text,
    },
    errors::{OrRaise, check_importing, refuse},
    forks::Connections,
    record::{Meta, Record},
    views::Options as Question,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use millrace_client::{
    AppendOptions, Options, Place, Wait,
    blocking::{Answer, Asked, Client},
};
use millrace_wire::{
    Code, Durability, Error, EventId, HISTORY_ALL, LogName, NamespaceId, Result, TimeField, table::TableRequest,
};
use pyo3::{
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyBytes, PyString},
};
use records::RemoteRecords;
use std::{
    collections::HashMap,
    fmt::Write,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Most records and bytes of one message; a single longer record is a message of its own.
const BATCH_RECORDS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 256 << 10;
/// How often a host is asked whether it is idle.
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// What a Python signal handler raised while a call waited.
pub type Raised = Arc<Mutex<Option<PyErr>>>;

/// A connection to a host, and what is known of the namespace there.
#[pyclass(frozen, subclass, module = "millrace._native")]
pub struct RemoteNamespace {
    open: Connections,
    place: Place,
    ca: Option<PathBuf>,
    /// How long a lost connection is replaced.
    reconnect_ms: Option<u32>,
    raised: Raised,
    disk: bool,
    id: String,
}

/// The options of a connection whose waits end when a Python signal handler raises.
pub fn options(raised: &Raised, ca: Option<PathBuf>, reconnect_ms: Option<u32>) -> Options {
    let raised = raised.clone();
    let interrupted = move || {
        let check = |py: Python<'_>| match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                true
            }
        };
        // A daemon thread may wait still when the interpreter has ended.
        Python::try_attach(check).unwrap_or(true)
    };
    let default = Options::default();
    Options {
        name: concat!("millrace-python/", env!("CARGO_PKG_VERSION")).into(),
        interrupted: Some(Arc::new(interrupted)),
        ca,
        reconnect_ms: reconnect_ms.unwrap_or(default.reconnect_ms),
        ..default
    }
}

/// What a call answered; what a signal handler raised goes before the error that it led to.
pub fn answer<T>(py: Python<'_>, raised: &Raised, answer: Result<T>) -> PyResult<T> {
    match answer {
        Err(error) if error.code() == Code::CallInterrupted => {
            let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
            Err(raised.unwrap_or_else(|| crate::errors::exception(py, &error)))
        }
        answer => answer.or_raise(py),
    }
}

impl RemoteNamespace {
    fn client(&self, py: Python<'_>) -> PyResult<Client> {
        self.open.client(py, &self.place)
    }

    /// Asks the host while other Python threads run.
    fn ask<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Client) -> Result<T> + Send) -> PyResult<T> {
        let client = self.client(py)?;
        let answered = py.detach(|| ask(&client));
        answer(py, &self.raised, answered)
    }

    /// How full a log is, as the host's document says.
    fn bounds_of(client: &Client, log: &str) -> Result<(Option<u64>, u64, u64)> {
        let log: LogName = log.parse()?;
        let reported = client.show(&format!("logs/{}", escaped(&log)))?;
        let reported: HashMap<String, serde_json::Value> =
            serde_json::from_str(&reported).map_err(|error| odd(&error))?;
        let number = |key| reported.get(key).and_then(serde_json::Value::as_u64).ok_or_else(|| odd(&key));
        let history = match reported.get("history") {
            Some(serde_json::Value::Null) => None,
            _ => Some(number("history")?),
        };
        Ok((history, number("earliest")?, number("latest")?))
    }

    fn is_idle(client: &Client) -> Result<Option<String>> {
        let mut path = "functions".to_owned();
        loop {
            let reported: serde_json::Value =
                serde_json::from_str(&client.show(&path)?).map_err(|error| odd(&error))?;
            let functions = reported["functions"].as_array().ok_or_else(|| odd(&"functions"))?;
            if let Some(busy) = functions.iter().find(|function| function["pending"].as_u64() != Some(0)) {
                return Ok(Some(format!("{} runs of function {} are pending", busy["pending"], busy["name"])));
            }
            let Some(next) = reported["next"].as_str() else { return Ok(None) };
            path = format!("functions?after={}", escaped(next));
        }
    }
}

fn odd(what: &dyn std::fmt::Display) -> Error {
    Code::FrameMalformed.error(format!("the host's document cannot be read: {what}"))
}

/// A part of a path: what is not plain is written as `%` and two digits.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(byte.into());
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to text does not fail");
        }
    }
    escaped
}

#[pymethods]
impl RemoteNamespace {
    #[new]
    #[pyo3(signature = (address, ca=None, others=Vec::new(), reconnect_ms=None))]
    fn new(
        py: Python<'_>,
        address: &str,
        ca: Option<PathBuf>,
        others: Vec<String>,
        reconnect_ms: Option<u32>,
    ) -> PyResult<Self> {
        check_importing(py, address)?;
        let place: Place = address.parse().or_raise(py)?;
        let others = others.iter().map(|other| other.parse()).collect::<Result<Vec<Place>>>().or_raise(py)?;
        let places: Vec<Place> = [place.clone()].into_iter().chain(others).collect();
        let raised = Raised::default();
        let options = options(&raised, ca.clone(), reconnect_ms);
        let connected = py.detach(|| Client::connect_any(&places, &options));
        let client = answer(py, &raised, connected)?;
        let host = client.host();
        let disk = host.durability == Durability::Disk;
        let id = NamespaceId::new(host.namespace).map_or_else(String::new, |id| id.to_string());
        Ok(Self { place, ca, reconnect_ms, raised, disk, id, open: Connections::new(client) })
    }

    fn close(&self, py: Python<'_>) {
        self.open.close(py);
    }

    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }

    #[getter]
    fn address(&self) -> String {
        self.place.to_string()
    }

    #[getter]
    fn ca(&self) -> Option<&std::ffi::OsStr> {
        self.ca.as_ref().map(|ca| ca.as_os_str())
    }

    #[getter]
    fn durability(&self) -> &'static str {
        if self.disk { "disk" } else { "memory" }
    }

    #[getter]
    fn id(&self) -> &str {
        &self.id
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
        let options = AppendOptions {
            durability,
            function,
            key,
            fence: fence_of(&fence),
            cause: event(py, cause)?,
            ..AppendOptions::default()
        };
        let payload = data.as_bytes();
        patiently(py, seconds(py, "patience", patience)?, SLICE, |_| {
            self.ask(py, |client| Ok(client.append(log, payload, options)?.seqno))
        })
    }

    /// Appends in batches, each all or none, and tells `progress` the numbers of what is appended.
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
        let patience = seconds(py, "patience", patience)?;
        let durability = arguments::durability(py, durability)?;
        let options = AppendOptions { durability, key, fence: fence_of(&fence), ..AppendOptions::default() };
        let bytes = |(log, data): (String, Bound<'_, PyAny>)| PyResult::Ok((log, bytes_of(&data)?.unbind()));
        let records: Vec<(String, Py<PyBytes>)> = records.into_iter().map(bytes).collect::<PyResult<_>>()?;
        let mut left: Vec<(&str, &[u8])> =
            records.iter().map(|(log, data)| (log.as_str(), data.as_bytes(py))).collect();
        let mut most = BATCH_RECORDS_MAX;
        while !left.is_empty() {
            // The records of a key are one batch.
            let part = if key.is_some() { left.len() } else { part_of(&left, most) };
            let patience = if part == 1 || key.is_some() { patience } else { Duration::ZERO };
            let appended =
                patiently(py, patience, SLICE, |_| self.ask(py, |client| client.append_many(&left[..part], options)));
            match appended {
                Ok(receipts) => {
                    progress.call_method1("extend", (receipts.iter().map(|r| r.seqno).collect::<Vec<_>>(),))?;
                    left.drain(..part);
                }
                // A smaller part may find room.
                Err(error) if part > 1 && key.is_none() && may_be_smaller(py, &error) => most = part / 2,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    #[pyo3(signature = (log, seqno=None, *, wait=0.0))]
    fn get(&self, py: Python<'_>, log: &Bound<'_, PyString>, seqno: Option<Seqno>, wait: f64) -> PyResult<Record> {
        let (name, seqno) = (text(log)?, seqno.map_or(0, |seqno| seqno.0));
        let wait = wait_for(seconds(py, "wait", wait)?);
        let record = self.ask(py, |client| client.get(name, seqno, wait))?;
        let meta = Meta {
            seqno: record.seqno,
            id: record.id,
            hlc: record.hlc,
            cause: record.cause,
            headers: record.headers.clone(),
        };
        Ok(Record::of(log, meta, &record.data))
    }

    fn latest(&self, py: Python<'_>, log: &str) -> PyResult<u64> {
        self.ask(py, |client| client.latest(log, 0, Wait::default()))
    }

    fn bounds(&self, py: Python<'_>, log: &str) -> PyResult<(Option<u64>, u64, u64)> {
        self.ask(py, |client| Self::bounds_of(client, log))
    }

    #[pyo3(signature = (log, start, stop=None, timeout=None, incarnation=Incarnation(0)))]
    fn records(
        &self,
        py: Python<'_>,
        log: Bound<'_, PyString>,
        start: Seqno,
        stop: Option<u64>,
        timeout: Option<f64>,
        incarnation: Incarnation,
    ) -> PyResult<RemoteRecords> {
        let timeout = timeout.map(|timeout| seconds(py, "timeout", timeout)).transpose()?;
        RemoteRecords::open(
            py,
            (self.client(py)?, &self.place, &self.raised),
            options(&self.raised, self.ca.clone(), self.reconnect_ms),
            (&log, incarnation.0),
            start.0,
            stop,
            timeout,
        )
    }

    /// Opens a session of shared objects, or lets its lease restart; 0 ends it, and with `resume` it has to be open. Whether it was.
    fn object_session(
        &self,
        py: Python<'_>,
        session: [u8; 16],
        application: &str,
        lease_ms: u32,
        resume: bool,
    ) -> PyResult<bool> {
        self.ask(py, |client| Ok(client.open_session(&session, application, lease_ms, resume)?.0))
    }

    /// Calls a shared object: 0 and the value, 1 and what it raises, or 2 if the call waits.
    #[pyo3(signature = (session, call, acked, target, arguments, new, incarnation, flags, wait_ms, fence=None))]
    #[allow(clippy::too_many_arguments, reason = "each is a field of the message")]
    fn object_call<'py>(
        &self,
        py: Python<'py>,
        session: [u8; 16],
        call: u64,
        acked: u64,
        target: (String, String, String),
        arguments: &[u8],
        new: &[u8],
        incarnation: u64,
        flags: u32,
        wait_ms: u32,
        fence: Option<(PyBackedStr, Token)>,
    ) -> PyResult<(u8, u64, Bound<'py, PyBytes>, String)> {
        let (kind, key, method) = (&*target.0, &*target.1, &*target.2);
        let asked = Asked {
            session: &session,
            call,
            acked,
            kind,
            key,
            method,
            arguments,
            new,
            incarnation,
            give_up: flags & 1 != 0,
            must_exist: flags & 2 != 0,
            must_create: flags & 4 != 0,
            persistent: flags & 8 != 0,
            rf: u8::try_from(flags >> 8).unwrap_or(u8::MAX),
            wait_ms,
            fence: fence_of(&fence),
        };
        Ok(match self.ask(py, |client| client.call(&asked))? {
            Answer::Returned(incarnation, value) => (0, incarnation, PyBytes::new(py, &value), String::new()),
            Answer::Raised(incarnation, class, text) => (1, incarnation, PyBytes::new(py, class.as_bytes()), text),
            Answer::Waiting(incarnation) => (2, incarnation, PyBytes::new(py, &[]), String::new()),
        })
    }

    /// Has tasks run by a pool, all or none; the number of the first.
    fn invoke_tasks(
        &self,
        py: Python<'_>,
        pool: &str,
        bodies: bool,
        tasks: Vec<Bound<'_, PyBytes>>,
        key: &str,
    ) -> PyResult<u64> {
        let tasks: Vec<&[u8]> = tasks.iter().map(|task| task.as_bytes()).collect();
        self.ask(py, |client| client.invoke(pool, bodies, &tasks, key))
    }

    /// Ends a task that has not begun; whether that was so.
    fn revoke(&self, py: Python<'_>, pool: &str, task: u64) -> PyResult<bool> {
        self.ask(py, |client| client.revoke(pool, task))
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
        let (wait_ms, payload) = (u32::try_from(wait.as_millis()).unwrap_or(u32::MAX), data.as_bytes());
        let invoked = self.ask(py, |client| client.call_function(function, log, payload, options, wait_ms))?;
        let Some(run) = invoked.run else {
            let detail = "the host runs a version of Millrace that does not report results";
            return Err(refuse(py, Code::MessageUnknown, detail));
        };
        let error = invoked.error.as_ref().map(|error| (error.code().id().to_owned(), error.detail().to_owned()));
        let (code, error) = error.unwrap_or_default();
        Ok((run.to_string(), invoked.state, PyBytes::new(py, &invoked.result).unbind(), code, error))
    }

    fn make_log(&self, py: Python<'_>, log: &str, history: Option<History>) -> PyResult<()> {
        self.ask(py, |client| client.create_log(log, history_of(history)))
    }

    #[pyo3(signature = (log, field, unit))]
    fn set_time_field(&self, py: Python<'_>, log: &str, field: Option<&str>, unit: Option<&str>) -> PyResult<()> {
        let time = arguments::time_field(py, field, unit)?;
        let mut order = serde_json::json!({ "do": "set-time", "log": log });
        if let Some(time) = time {
            order["time"] = serde_json::json!(time);
        }
        self.ask(py, |client| client.manage(&order.to_string()).map(drop))
    }

    /// The field of a log's records that has the time of the observation, and the unit of numbers in it.
    fn time_field(&self, py: Python<'_>, log: &str) -> PyResult<Option<(String, Option<&'static str>)>> {
        self.ask(py, |client| {
            let log: LogName = log.parse()?;
            let mut document: serde_json::Value =
                serde_json::from_str(&client.show(&format!("logs/{}", escaped(&log)))?).map_err(|error| odd(&error))?;
            // A later host may name it in a form that is unknown here.
            let time = serde_json::from_value::<Option<TimeField>>(document["time"].take()).unwrap_or_default();
            Ok(time.map(arguments::told))
        })
    }

    fn begin_update(&self, py: Python<'_>, device: &str, size: u64, sha256: &str, version: &str) -> PyResult<String> {
        let order = serde_json::json!({
            "do": "begin-update", "device": device, "size": size, "sha256": sha256, "version": version,
        });
        self.ask(py, |client| client.manage(&order.to_string()))
    }

    fn add_firmware(&self, py: Python<'_>, device: &str, update: u64, offset: u64, part: &[u8]) -> PyResult<String> {
        let order = serde_json::json!({
            "do": "add-firmware", "device": device, "update": update, "offset": offset,
            "base64": BASE64_STANDARD.encode(part),
        });
        self.ask(py, |client| client.manage(&order.to_string()))
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
        let options = arguments::table_options(py, keys, codec, ttl_ms)?;
        let history = match history_of(history) {
            HISTORY_ALL => 0,
            history => history,
        };
        let keys = serde_json::json!({
            "do": "create-table", "table": table, "history": history, "keys": options.keys, "codec": options.codec,
            "ttl_ms": options.ttl_ms,
        });
        self.ask(py, |client| client.manage(&keys.to_string()).map(drop))
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
        let answer = self.ask(py, |client| client.table(table, &asked, options))?;
        let token = (!answer.token.is_none()).then(|| answer.token.to_string());
        Ok((PyBytes::new(py, &answer.encode()).unbind(), token))
    }

    fn set_history(&self, py: Python<'_>, log: &str, history: Option<History>) -> PyResult<()> {
        self.ask(py, |client| client.set_history(log, history_of(history)))
    }

    fn cancel_run(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        let run: EventId = id.parse().or_raise(py)?;
        self.ask(py, |client| client.cancel_run(run))
    }

    fn remove_log(&self, py: Python<'_>, log: &str) -> PyResult<()> {
        self.ask(py, |client| client.remove_log(log))
    }

    #[pyo3(signature = (what, **options))]
    fn show(&self, py: Python<'_>, what: &str, options: Option<Question>) -> PyResult<String> {
        let mut options = options.unwrap_or_default();
        let mut path = what.to_owned();
        if let Some(target) = options.remove("target").filter(|target| !target.is_empty()) {
            path = format!("{path}/{}", escaped(&target));
        }
        for (at, (key, value)) in options.iter().enumerate() {
            let mark = if at == 0 { '?' } else { '&' };
            write!(path, "{mark}{}={}", escaped(key), escaped(value)).expect("writing to text does not fail");
        }
        self.ask(py, |client| client.show(&path))
    }

    fn ask_repair(&self, py: Python<'_>, request: &str) -> PyResult<String> {
        self.ask(py, |client| client.repair(request))
    }

    #[pyo3(signature = (function, source, since, reason, append_new, across, run_external))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn repair_code(
        &self,
        py: Python<'_>,
        function: &str,
        source: PathBuf,
        since: Option<&str>,
        reason: &str,
        append_new: bool,
        across: Vec<String>,
        run_external: Vec<String>,
    ) -> PyResult<String> {
        let _ = (source, since, reason, append_new, across, run_external);
        let detail =
            format!("new code of function '{}' was given for a namespace on another machine", function.escape_debug());
        Err(refuse(py, Code::RepairCodeRemote, detail))
    }

    /// The host does it.
    fn repair_here(&self) {}

    #[pyo3(signature = (name, force = false))]
    fn remove_function(&self, py: Python<'_>, name: &str, force: bool) -> PyResult<u64> {
        let _ = force;
        let detail = format!("function '{}' can be removed only with the namespace's files", name.escape_debug());
        Err(refuse(py, Code::PythonLocalOnly, detail))
    }

    fn wait_idle(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = seconds(py, "timeout", timeout)?;
        let started = Instant::now();
        loop {
            let Some(busy) = self.ask(py, Self::is_idle)? else { return Ok(()) };
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(refuse(py, Code::WaitTimeout, format!("after {} ms, {busy}", timeout.as_millis())));
            }
            py.detach(|| thread::sleep(left.min(IDLE_LOOK)));
            py.check_signals()?;
        }
    }
}

/// How many of the records go into one message.
fn part_of(records: &[(&str, &[u8])], most: usize) -> usize {
    let mut bytes = 0;
    let fits = records.iter().take(most).take_while(|(_, data)| {
        bytes += data.len();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

/// The wait that a request asks for; longer than any a host grants is as good as the longest.
pub fn wait_for(wait: Duration) -> Wait {
    Wait::ms(u32::try_from(wait.as_millis()).unwrap_or(u32::MAX))
}

/// How long a tail waits at a time.
pub fn slice(left: Duration) -> Duration {
    left.min(SLICE)
}

/// Whether a smaller batch may be appended, where this one was refused.
fn may_be_smaller(py: Python<'_>, error: &PyErr) -> bool {
    let is_too_large =
        |code: Bound<'_, PyAny>| code.extract::<String>().is_ok_and(|code| code == Code::BatchTooLarge.id());
    arguments::is(py, error, "Busy") || error.value(py).getattr("code").is_ok_and(is_too_large)
}
