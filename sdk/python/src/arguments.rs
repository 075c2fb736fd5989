//! Arguments of methods: data, sequence numbers, times, words and timeouts.

use crate::errors::{OrRaise, refuse};
use millrace_wire::{
    Code, Durability, EventId, HISTORY_ALL, HISTORY_MAX, TimeField, TimeUnit,
    protocol::Fence,
    table::{KeyType, TableCodec, TableOptions},
};
use pyo3::{
    exceptions::{PyOverflowError, PyTypeError},
    prelude::*,
    pybacked::PyBackedStr,
    sync::PyOnceLock,
    types::{PyBytes, PyInt, PyString},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// A wait is repeated at least so often, so that Ctrl-C is heard.
pub const SLICE: Duration = Duration::from_millis(50);
/// The longest wait that can be asked for: as good as forever, and no overflow.
const WAIT_MAX_S: f64 = 365.0 * 86_400.0;

/// The bytes of a Python object: bytes as they are; everything else as `millrace._worker.encode` makes bytes of it, so
/// that a program and a function append the same.
#[inline]
pub fn bytes_of<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match data.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => encode(data),
    }
}

#[cold]
fn encode<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = data.py();
    let encoded = ENCODE.import(py, "millrace._worker", "encode")?.call1((data,)).map_err(|error| {
        let refused = refuse(py, Code::PythonDataInvalid, error.value(py).to_string());
        refused.set_cause(py, Some(error));
        refused
    })?;
    Ok(encoded.cast_into::<PyBytes>()?)
}

/// A name or word given as text.
#[inline]
pub fn text<'a>(value: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    value.to_str()
}

/// A fence as Python gives it: the name and the token.
pub fn fence_of(fence: &Option<(PyBackedStr, Token)>) -> Option<Fence<'_>> {
    fence.as_ref().map(|(name, token)| Fence { name, token: token.0 })
}

/// A whole number of Python, which has no largest one. One that does not fit, or is not `allowed`, is refused with the rule.
fn whole<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    value: Borrowed<'a, 'py, PyAny>,
    (code, what, rule): (Code, &str, &str),
    allowed: impl FnOnce(&T) -> bool,
) -> PyResult<T> {
    let py = value.py();
    match value.extract::<T>() {
        Ok(number) if allowed(&number) => Ok(number),
        Err(error) if !error.is_instance_of::<PyOverflowError>(py) => Err(error),
        _ => Err(refuse(py, code, format!("{what} is {}; it must be {rule}", *value))),
    }
}

/// An argument that is a whole number of this type, with the code, the name and the rule of a refusal.
macro_rules! whole_argument {
    ($(#[$doc:meta])* $name:ident($type:ty), $code:expr, $what:literal, $rule:expr, $allowed:expr) => {
        $(#[$doc])*
        pub struct $name(pub $type);

        impl<'a, 'py> FromPyObject<'a, 'py> for $name {
            type Error = PyErr;

            fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
                whole(value, ($code, $what, &$rule), $allowed).map(Self)
            }
        }
    };
}

whole_argument!(
    /// The history of a log or a topic; the namespace or the host refuses one that is too long.
    History(u64),
    Code::HistoryInvalid,
    "history",
    format!("1 to {HISTORY_MAX}, or None for all records"),
    |history| *history > 0 && *history != HISTORY_ALL
);
whole_argument!(
    /// The token of a fence.
    Token(u64),
    Code::FenceInvalid,
    "the token of the fence",
    format!("1 to {}", u64::MAX),
    |token| *token > 0
);
whole_argument!(
    /// The incarnation of a log.
    Incarnation(u32),
    Code::ValueInvalid,
    "incarnation",
    format!("0 to {}", u32::MAX),
    |_| true
);
whole_argument!(
    /// How many records a batch may have.
    Most(usize),
    Code::ValueInvalid,
    "most",
    format!("0 to {}", usize::MAX),
    |_| true
);
whole_argument!(
    /// The size of a segment; the journal refuses one that is no power of two.
    SegmentBytes(u64),
    Code::ValueInvalid,
    "segment_bytes",
    "a power of two from 1 MiB to 1 GiB",
    |_| true
);
whole_argument!(
    /// How much of a journal is kept; the journal refuses more than it can have.
    RetainBytes(u64),
    Code::ValueInvalid,
    "retain_bytes",
    "0 to 4032 segments",
    |_| true
);

/// The field that has the time of the observation, as its pointer and unit name it.
pub fn time_field(py: Python<'_>, field: Option<&str>, unit: Option<&str>) -> PyResult<Option<TimeField>> {
    let unit = unit.map(TimeUnit::parse).transpose().or_raise(py)?;
    field.map(|field| TimeField::new(field, unit)).transpose().or_raise(py)
}

/// The inverse.
pub fn told(time: TimeField) -> (String, Option<&'static str>) {
    (time.field().to_owned(), time.unit().map(TimeUnit::name))
}

/// How many records a log or a topic keeps.
pub fn history_of(history: Option<History>) -> u64 {
    history.map_or(HISTORY_ALL, |history| history.0)
}

/// A sequence number as Python gives it; what is no whole number from 1 on is refused with the catalogue's words.
pub struct Seqno(pub u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Seqno {
    type Error = PyErr;

    #[inline]
    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match value.extract::<u64>() {
            Ok(seqno) if seqno != 0 => Ok(Self(seqno)),
            _ => Err(odd_seqno(&value)),
        }
    }
}

#[cold]
fn odd_seqno(value: &Bound<'_, PyAny>) -> PyErr {
    let py = value.py();
    if !value.is_instance_of::<PyInt>() {
        return PyTypeError::new_err(format!("a sequence number is an int, not {}", value.get_type()));
    }
    refuse(py, Code::SeqnoInvalid, format!("{value} is not a sequence number"))
}

/// A durability by its name.
pub fn durability(py: Python<'_>, word: Option<&str>) -> PyResult<Option<Durability>> {
    match word {
        None => Ok(None),
        Some("memory") => Ok(Some(Durability::Memory)),
        Some("disk") => Ok(Some(Durability::Disk)),
        Some(other) => {
            let detail = format!("durability '{}' is neither 'memory' nor 'disk'", other.escape_debug());
            Err(refuse(py, Code::ValueInvalid, detail))
        }
    }
}

/// An event by its id; none without one.
pub fn event(py: Python<'_>, id: Option<&str>) -> PyResult<EventId> {
    id.map_or(Ok(EventId::NONE), |id| id.parse().or_raise(py))
}

/// A time in seconds.
pub fn seconds(py: Python<'_>, what: &str, value: f64) -> PyResult<Duration> {
    if value.is_nan() || value < 0.0 {
        return Err(refuse(py, Code::ValueInvalid, format!("{what} is {value}, and must not be negative")));
    }
    Ok(Duration::from_secs_f64(value.min(WAIT_MAX_S)))
}

/// Tries again while the answer is `Busy` and patience lasts, a little at a time, so that Ctrl-C is heard in between.
/// `attempt` is told how long it may wait for room itself; where it cannot, `pause` is how long to wait here.
pub fn patiently<T>(
    py: Python<'_>,
    patience: Duration,
    pause: Duration,
    mut attempt: impl FnMut(Duration) -> PyResult<T>,
) -> PyResult<T> {
    let started = Instant::now();
    loop {
        let left = patience.saturating_sub(started.elapsed());
        match attempt(left.min(SLICE)) {
            Err(error) if !left.is_zero() && is(py, &error, "Busy") => {
                py.detach(|| thread::sleep(pause.min(left)));
                py.check_signals()?;
            }
            answer => return answer,
        }
    }
}

/// Whether an exception is of the class of `millrace` with this name.
pub fn is(py: Python<'_>, error: &PyErr, class: &str) -> bool {
    error.get_type(py).name().is_ok_and(|name| name == class)
}

/// The attributes of a table, by their names.
pub fn table_options(py: Python<'_>, keys: &str, codec: &str, ttl_ms: u64) -> PyResult<TableOptions> {
    let keys = match keys {
        "text" => KeyType::Text,
        "bytes" => KeyType::Bytes,
        other => return Err(refuse(py, Code::ValueInvalid, format!("keys '{other}': they are text or bytes"))),
    };
    let codec = match codec {
        "bytes" => TableCodec::Bytes,
        "text" => TableCodec::Text,
        "json" => TableCodec::Json,
        other => return Err(refuse(py, Code::ValueInvalid, format!("codec '{other}': it is bytes, text or json"))),
    };
    Ok(TableOptions { keys, codec, ttl_ms, ..TableOptions::default() })
}
