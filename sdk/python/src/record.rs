//! A record as Python sees it.

use crate::{arguments::event, errors::OrRaise};
use millrace_wire::{EventId, Headers, Hlc};
use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyString, PyTuple},
};

/// A record of a log.
#[pyclass(frozen, module = "millrace._native")]
pub struct Record {
    log: Py<PyString>,
    #[pyo3(get)]
    seqno: u64,
    #[pyo3(get)]
    data: Py<PyBytes>,
    id: EventId,
    hlc: Hlc,
    cause: EventId,
    headers: Headers,
}

/// What is known of a record beside its log and its bytes.
#[derive(Clone)]
pub struct Meta {
    pub seqno: u64,
    pub id: EventId,
    pub hlc: Hlc,
    pub cause: EventId,
    pub headers: Headers,
}

impl Record {
    pub fn of(log: &Bound<'_, PyString>, meta: Meta, data: &[u8]) -> Self {
        let Meta { seqno, id, hlc, cause, headers } = meta;
        let data = PyBytes::new(log.py(), data).unbind();
        Self { log: log.clone().unbind(), seqno, data, id, hlc, cause, headers }
    }
}

#[pymethods]
impl Record {
    #[new]
    #[pyo3(signature = (log, seqno, data, id=None, clock=0, cause=None, headers=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        log: Py<PyString>,
        seqno: u64,
        data: Py<PyBytes>,
        id: Option<&str>,
        clock: u64,
        cause: Option<&str>,
        headers: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let mut given = Headers::default();
        for (name, value) in &headers {
            given.push(name, value).or_raise(py)?;
        }
        let (id, hlc, cause) = (event(py, id)?, Hlc::from_bits(clock), event(py, cause)?);
        Ok(Self { log, seqno, data, id, hlc, cause, headers: given })
    }

    #[getter]
    fn log(&self, py: Python<'_>) -> Py<PyString> {
        self.log.clone_ref(py)
    }

    /// The topic that the record was published to, if it is in the log of a subscription.
    #[getter]
    fn topic(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let log = self.log.bind(py).to_str()?;
        let named = log.strip_prefix("_topic/").and_then(|rest| rest.split_once('/'));
        Ok(named.map(|(_, topic)| topic.to_owned()))
    }

    /// The id of the record, which is unique across namespaces.
    #[getter]
    fn id(&self) -> Option<String> {
        shown(self.id)
    }

    /// The run that appended it, or None if it came from outside.
    #[getter]
    fn cause(&self) -> Option<String> {
        shown(self.cause)
    }

    /// What its client said beside its bytes: names and values, such as the user properties of a message of MQTT.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.headers.iter().collect::<Vec<_>>())
    }

    /// When it was appended, on the hybrid logical clock, which orders every cause before its effect.
    #[getter]
    fn clock(&self) -> u64 {
        self.hlc.get()
    }

    /// When it was appended, to the microsecond.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        moment(py, self.hlc)
    }

    /// The record as UTF-8 text.
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.data.bind(py).call_method0("decode")
    }

    /// The record as JSON.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        LOADS.import(py, "json", "loads")?.call1((&self.data,))
    }

    fn __eq__(&self, py: Python<'_>, other: &Self) -> bool {
        (self.id, self.seqno, self.hlc) == (other.id, other.seqno, other.hlc)
            && self.log.bind(py).to_string() == other.log.bind(py).to_string()
            && self.data.bind(py).as_bytes() == other.data.bind(py).as_bytes()
    }

    fn __hash__(&self) -> u64 {
        self.id.get() as u64 ^ self.seqno
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let data = self.data.bind(py).as_bytes();
        let head = PyBytes::new(py, &data[..data.len().min(40)]).repr()?;
        let more = if data.len() > 40 { "..." } else { "" };
        Ok(format!("Record({}, {}, {head}{more})", self.log.bind(py).repr()?, self.seqno))
    }

    #[allow(clippy::type_complexity)]
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> (Bound<'py, PyAny>, (Py<PyString>, u64, Py<PyBytes>, Option<String>, u64, Option<String>, Vec<(String, String)>))
    {
        let (py, record) = (slf.py(), slf.get());
        let (log, data) = (record.log.clone_ref(py), record.data.clone_ref(py));
        let headers = record.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let arguments = (log, record.seqno, data, record.id(), record.clock(), record.cause(), headers);
        (slf.get_type().into_any(), arguments)
    }
}

fn shown(id: EventId) -> Option<String> {
    (!id.is_none()).then(|| id.to_string())
}

/// A moment as an aware `datetime` in UTC.
pub fn moment(py: Python<'_>, hlc: Hlc) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static DELTA: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        let datetime = py.import("datetime")?;
        let zone = PyDict::new(py);
        zone.set_item("tzinfo", datetime.getattr("timezone")?.getattr("utc")?)?;
        PyResult::Ok(datetime.getattr("datetime")?.call((1970, 1, 1), Some(&zone))?.unbind())
    })?;
    let us = hlc.wall_us();
    // Days and seconds apart: `timedelta` takes them without rounding.
    let since = DELTA.import(py, "datetime", "timedelta")?.call1((0, us / 1_000_000, us % 1_000_000))?;
    epoch.bind(py).call_method1("__add__", (since,))
}
