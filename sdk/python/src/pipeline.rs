//! Requests of asyncio programs to a host: all in flight together over one connection, with no thread for each.
//!
//! ```text
//! event loop: append(future, ...) --> tokio task --> millrace_client
//!             drain() <-- eventfd <-- finished futures and their answers
//! ```
//!
//! The tokio thread never needs the interpreter; otherwise a busy program would delay all answers.

use crate::{
    arguments::{self, Seqno, Token, bytes_of, event, seconds, text},
    errors::{OrRaise, exception, refuse},
    forks::Birth,
    record::{Meta, Record},
    remote::wait_for,
};
use millrace_client::{AppendOptions, Options, Place, Resilient, Wait};
use millrace_wire::{
    Code, Result,
    protocol::{Call, Fence, Invoke, InvokeFunction, Message, Revoke, Session, split},
};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyBytes, PyString, PyTuple},
};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    future::Future,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{runtime::Runtime, task::AbortHandle};

/// A connection for one event loop. `fileno` becomes readable when `drain` has something to do.
#[pyclass(frozen, module = "millrace._native")]
pub struct Pipeline {
    client: Resilient,
    finished: Arc<Finished>,
    birth: Birth,
}

/// What has been answered and was not handed to its future yet.
struct Finished {
    ready: OwnedFd,
    answers: Mutex<Vec<(Py<PyAny>, Answer)>>,
}

enum Answer {
    Number(Result<u64>),
    Record(Py<PyString>, Result<millrace_client::Record>),
    Frame(Result<Vec<u8>>),
}

impl Finished {
    fn push(&self, future: Py<PyAny>, answer: Answer) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push((future, answer));
        if answers.len() == 1 {
            // It cannot be full: it is written once, and then read before it is written again.
            let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<(Py<PyAny>, Answer)> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::io::read(&self.ready, &mut [0; 8]); // nothing in it is fine
        std::mem::take(&mut *answers)
    }
}

/// A request that was sent.
#[pyclass(frozen, module = "millrace._native")]
pub struct Request {
    task: AbortHandle,
    birth: Birth,
}

#[pymethods]
impl Request {
    /// Nobody wants the answer any more; what was asked may happen nevertheless.
    fn cancel(&self) {
        // A forked child has no thread that could hear of it.
        if !self.birth.is_inherited() {
            self.task.abort();
        }
    }
}

/// The threads that serve all connections of asyncio programs: one. A forked child starts its own; that of its parent is left as it is,
/// because its end would wait for a thread that the child does not have.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: Mutex<Option<(&'static Runtime, Birth)>> = Mutex::new(None);
    // Only threads that have the interpreter take the lock.
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((runtime, _)) = runtime.filter(|(_, birth)| !birth.is_inherited()) {
        return Ok(runtime);
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let built = builder.worker_threads(1).thread_name("millrace-wire").enable_all().build();
    let built = built.map_err(|error| Code::Io.error(format!("cannot start a thread: {error}")))?;
    Ok(runtime.insert((Box::leak(Box::new(built)), Birth::now())).0)
}

impl Pipeline {
    fn spawn(
        &self,
        py: Python<'_>,
        future: Py<PyAny>,
        ask: impl Future<Output = Answer> + Send + 'static,
    ) -> PyResult<Request> {
        self.birth.check(py, "the connection")?;
        let finished = self.finished.clone();
        let task = runtime().or_raise(py)?.spawn(async move {
            let answer = ask.await;
            finished.push(future, answer);
        });
        Ok(Request { task: task.abort_handle(), birth: self.birth })
    }
}

#[pymethods]
impl Pipeline {
    #[new]
    #[pyo3(signature = (address, ca=None))]
    fn new(py: Python<'_>, address: &str, ca: Option<PathBuf>) -> PyResult<Self> {
        let place: Place = address.parse().or_raise(py)?;
        let name = concat!("millrace-python/", env!("CARGO_PKG_VERSION")).into();
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| refuse(py, Code::Io, format!("cannot make an eventfd: {errno}")))?;
        let finished = Arc::new(Finished { ready, answers: Mutex::default() });
        let client = Resilient::new(place, Options { name, ca, ..Options::default() });
        Ok(Self { client, finished, birth: Birth::now() })
    }

    fn fileno(&self) -> i32 {
        self.finished.ready.as_raw_fd()
    }

    /// Sends an append; `future` gets its number.
    #[pyo3(signature = (future, log, data, function=None, durability=None, key=None, cause=None, fence=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn append(
        &self,
        py: Python<'_>,
        future: Py<PyAny>,
        log: &Bound<'_, PyString>,
        data: &Bound<'_, PyAny>,
        function: Option<String>,
        durability: Option<&str>,
        key: Option<String>,
        cause: Option<&str>,
        fence: Option<(String, Token)>,
    ) -> PyResult<Request> {
        let (log, data) = (text(log)?.to_owned(), bytes_of(data)?.as_bytes().to_vec());
        let durability = arguments::durability(py, durability)?;
        let (client, cause) = (self.client.clone(), event(py, cause)?);
        self.spawn(py, future, async move {
            let (function, key) = (function.as_deref(), key.as_deref());
            let fence = fence.as_ref().map(|(name, token)| Fence { name, token: token.0 });
            let options = AppendOptions { durability, function, key, fence, cause, ..AppendOptions::default() };
            let append = async || client.client().await?.append(&log, &data, options).await;
            Answer::Number(append().await.map(|receipt| receipt.seqno))
        })
    }

    /// Asks for a record; `future` gets it.
    #[pyo3(signature = (future, log, seqno=None, wait=0.0))]
    fn get(
        &self,
        py: Python<'_>,
        future: Py<PyAny>,
        log: &Bound<'_, PyString>,
        seqno: Option<Seqno>,
        wait: f64,
    ) -> PyResult<Request> {
        let (name, seqno) = (text(log)?.to_owned(), seqno.map_or(0, |seqno| seqno.0));
        let wait = wait_for(seconds(py, "wait", wait)?);
        let (client, log) = (self.client.clone(), log.clone().unbind());
        self.spawn(py, future, async move { Answer::Record(log, client.get(&name, seqno, wait).await) })
    }

    /// Asks for the newest number; `future` gets it.
    fn latest(&self, py: Python<'_>, future: Py<PyAny>, log: String) -> PyResult<Request> {
        let client = self.client.clone();
        self.spawn(py, future, async move { Answer::Number(client.latest(&log, 0, Wait::default()).await) })
    }

    /// Asks about shared objects or tasks, or runs a function, with a whole frame; `future` gets the frame of the answer. It is asked once.
    fn ask(&self, py: Python<'_>, future: Py<PyAny>, frame: &[u8], wait_ms: u32) -> PyResult<Request> {
        let (client, frame) = (self.client.clone(), frame.to_vec());
        self.spawn(py, future, async move {
            let ask = async || -> Result<Vec<u8>> {
                let (asked, _) =
                    split(&frame, frame.len())?.ok_or_else(|| Code::FrameMalformed.error("a part of a frame"))?;
                let (client, bytes) = (client.client().await?, frame.len());
                let pending = match asked.kind {
                    Session::TYPE => client.send(&asked.message::<Session<'_>>()?, bytes, wait_ms).await?,
                    Call::TYPE => client.send(&asked.message::<Call<'_>>()?, bytes, wait_ms).await?,
                    Invoke::TYPE => client.send(&asked.message::<Invoke<'_>>()?, bytes, wait_ms).await?,
                    InvokeFunction::TYPE => {
                        client.send(&asked.message::<InvokeFunction<'_>>()?, bytes, wait_ms).await?
                    }
                    Revoke::TYPE => client.send(&asked.message::<Revoke<'_>>()?, bytes, wait_ms).await?,
                    kind => return Err(Code::MessageUnexpected.error(format!("a message of type {kind}"))),
                };
                Ok(pending.await?.bytes().to_vec())
            };
            Answer::Frame(ask().await)
        })
    }

    /// Gives every answer that has come to its future, unless that was cancelled.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        // The descriptor is its parent's, too, which would miss what a child reads.
        self.birth.check(py, "the connection")?;
        for (future, answer) in self.finished.take() {
            let future = future.bind(py);
            if future.call_method0("done")?.is_truthy()? {
                continue;
            }
            let value = match answer {
                Answer::Number(number) => number.map(|number| number.into_py_any(py)),
                Answer::Record(log, record) => record.map(|record| {
                    let meta = Meta {
                        seqno: record.seqno,
                        id: record.id,
                        hlc: record.hlc,
                        cause: record.cause,
                        headers: record.headers.clone(),
                    };
                    Record::of(log.bind(py), meta, &record.data).into_py_any(py)
                }),
                Answer::Frame(frame) => frame.map(|bytes| PyBytes::new(py, &bytes).into_py_any(py)),
            };
            match value {
                Ok(value) => future.call_method1("set_result", PyTuple::new(py, [value?])?)?,
                Err(error) => future.call_method1("set_exception", (exception(py, &error),))?,
            };
        }
        Ok(())
    }
}
