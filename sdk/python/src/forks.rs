//! What a fork changes. A child has copies of its parent's objects, but none of the threads that work for them, and what it sends over a
//! connection of its parent is taken for what the parent sends.

use crate::{errors::refuse, local::closed};
use millrace_client::blocking::Client;
use millrace_wire::Code;
use pyo3::{PyResult, prelude::*};
use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicU32, Ordering},
};

/// How many forks lie between the process that imported the module and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in each child.
#[pyfunction]
fn in_forked_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has Python call it.
pub fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let called = pyo3::types::PyDict::new(module.py());
    called.set_item("after_in_child", wrap_pyfunction!(in_forked_child, module)?)?;
    module.py().import("os")?.call_method("register_at_fork", (), Some(&called))?;
    Ok(())
}

/// The process that something belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Birth(u32);

impl Birth {
    #[inline]
    pub fn now() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this process is a forked child of the one that it belongs to.
    #[inline]
    pub fn is_inherited(self) -> bool {
        self != Self::now()
    }

    /// Refuses to go on with something of the parent.
    #[inline]
    pub fn check(self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_inherited() { Err(inherited(py, what)) } else { Ok(()) }
    }
}

#[cold]
fn inherited(py: Python<'_>, what: &str) -> PyErr {
    refuse(py, Code::ForkedHandle, format!("{what} belongs to the process that this one was forked from"))
}

/// Connections to a host, until they are closed. A forked child has its own.
pub struct Connections(RwLock<Option<(Client, Birth)>>);

// The lock is only taken by threads that have the interpreter, as a thread has that forks. So no child finds it taken.
impl Connections {
    pub fn new(client: Client) -> Self {
        Self(RwLock::new(Some((client, Birth::now()))))
    }

    /// The connections of this process.
    pub fn client(&self, py: Python<'_>, address: impl ToString) -> PyResult<Client> {
        let mut open = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some((client, birth)) = open.as_mut() else { return Err(closed(py, &address.to_string())) };
        if birth.is_inherited() {
            (*client, *birth) = (client.separate(), Birth::now());
        }
        Ok(client.clone())
    }

    pub fn is_closed(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    pub fn close(&self, py: Python<'_>) {
        let taken = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(taken));
    }
}
