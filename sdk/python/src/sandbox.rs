//! How functions are kept apart from a Python program that deploys them, or replays them in place of a host: in sandboxes whose supervisor is
//! the interpreter, which loads this module and nothing else.

use crate::errors::OrRaise;
use millrace_node::{Isolation, Level, supervise};
use millrace_wire::Code;
use pyo3::{prelude::*, sync::PyOnceLock};
use std::{path::PathBuf, sync::Arc};

/// Loads this module from its file, which follows, and becomes the supervisor of a sandbox.
const SUPERVISOR: &str = "import sys, importlib.util as util; \
    spec = util.spec_from_file_location('millrace._native', sys.argv[1]); \
    module = util.module_from_spec(spec); spec.loader.exec_module(module); module.supervise()";
/// The variable with the highest level of a host's sandbox.
const VARIABLE: &str = "MILLRACE_SANDBOX";

/// Becomes the supervisor of a sandbox, for the program that started this one. It does not return.
#[pyfunction]
#[pyo3(name = "supervise")]
pub fn become_supervisor() {
    let _ = supervise();
    std::process::exit(0)
}

/// As well as this machine gives, unless MILLRACE_SANDBOX asks for less. It is found out once.
pub fn isolation(py: Python<'_>) -> PyResult<Arc<Isolation>> {
    static FOUND: PyOnceLock<Arc<Isolation>> = PyOnceLock::new();
    let find = || -> PyResult<Arc<Isolation>> {
        let level = match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => text
                .parse::<Level>()
                .map_err(|error| Code::ValueInvalid.error(format!("{VARIABLE}: {error}")))
                .or_raise(py)?,
            _ => Level::Full,
        };
        let python: PathBuf = py.import("sys")?.getattr("executable")?.extract()?;
        let module: String = py.import("millrace._native")?.getattr("__file__")?.extract()?;
        let arguments = ["-I", "-S", "-c", SUPERVISOR, &module].map(str::to_owned);
        Ok(Arc::new(py.detach(|| Isolation::started_by(level, &python, &arguments))))
    };
    FOUND.get_or_try_init(py, find).cloned()
}
