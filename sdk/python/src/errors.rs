//! Errors as Python sees them: the exception tree of `millrace`, with the catalogue's cause and remedy.

use millrace_wire::{Code, Error};
use pyo3::{prelude::*, sync::PyOnceLock};

/// The exception for an error.
#[cold]
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let code = error.code();
    let retry_after_s = error.retry_after_ms().map(|after_ms| f64::from(after_ms) / 1e3);
    let make = || {
        let make = MAKE.import(py, "millrace._worker", "error_of")?;
        make.call1((code.id(), error.detail(), code.cause(), code.remedy_python(), retry_after_s))
    };
    make().map_or_else(|failure| failure, PyErr::from_value)
}

/// The exception for a code and what was wrong.
#[cold]
pub fn refuse(py: Python<'_>, code: Code, detail: impl Into<String>) -> PyErr {
    exception(py, &code.error(detail))
}

/// An error while the module of a function is imported, which happens each time the function is started or checked.
pub fn check_importing(py: Python<'_>, place: &str) -> PyResult<()> {
    let modules = py.import("sys")?.getattr("modules")?;
    let worker = modules.call_method1("get", ("millrace._worker",))?;
    let Ok(importing) = worker.getattr("importing") else { return Ok(()) };
    if importing.is_none() {
        return Ok(());
    }
    let detail = format!("the namespace '{place}' was to be opened while module '{importing}' was imported");
    Err(refuse(py, Code::ImportUsesNamespace, detail))
}

/// Turns an error into its exception.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for millrace_wire::Result<T> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// The exception for a code of the catalogue, for errors that Python code finds.
#[pyfunction]
pub fn error(py: Python<'_>, code: &str, detail: &str) -> Py<PyAny> {
    let code = Code::from_id(code).unwrap_or(Code::CodeUnknown);
    exception(py, &code.error(detail)).into_value(py).into_any()
}

/// Every code of the catalogue.
#[pyfunction]
pub fn codes() -> Vec<&'static str> {
    millrace_wire::catalogue().map(|(_, id, _, _)| id).collect()
}
