//! `millrace._native`: the native part of the Python package.
//!
//! ```text
//! millrace (Python)  -- one API, codecs, async, reprs
//!     |
//! _native            -- LocalNamespace: the mapped files, through millrace_node
//!                       RemoteNamespace, Pipeline: a host, through millrace_client, blocking and for asyncio
//!                       Topics: a host of a cluster, likewise
//! ```

mod arguments;
mod errors;
mod forks;
mod local;
mod pipeline;
mod record;
mod records;
mod remote;
mod sandbox;
mod topics;
mod views;

use errors::OrRaise;
use millrace_node::application::{Application, trust};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Does nothing: what a call from Python costs by itself.
#[pyfunction]
fn empty_call() {}

/// The namespace's directory that the application file at `path` names, if there is such a file.
#[pyfunction]
fn namespace_of(path: PathBuf) -> Option<PathBuf> {
    Application::namespace_of(&path)
}

/// Refuses a file or a directory that nobody named, and that another user controls.
#[pyfunction]
fn check_trusted(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    trust::check(&path).or_raise(py)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    forks::install(module)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<local::LocalNamespace>()?;
    module.add_class::<remote::RemoteNamespace>()?;
    module.add_class::<remote::records::RemoteRecords>()?;
    module.add_class::<pipeline::Pipeline>()?;
    module.add_class::<pipeline::Request>()?;
    module.add_class::<record::Record>()?;
    module.add_class::<records::Records>()?;
    module.add_class::<topics::Topics>()?;
    module.add_function(wrap_pyfunction!(empty_call, module)?)?;
    module.add_function(wrap_pyfunction!(errors::codes, module)?)?;
    module.add_function(wrap_pyfunction!(errors::error, module)?)?;
    module.add_function(wrap_pyfunction!(check_trusted, module)?)?;
    module.add_function(wrap_pyfunction!(sandbox::become_supervisor, module)?)?;
    module.add_function(wrap_pyfunction!(namespace_of, module)?)
}
