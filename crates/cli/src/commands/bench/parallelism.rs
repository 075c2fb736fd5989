//! `millrace bench parallelism`: runs the module `millrace.parallelism` of the Python package, which measures functions on any platform.

use crate::{args::ParallelismArgs, report::Outcome};
use millrace_node::Code;
use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The variable that names the interpreter.
const PYTHON: &str = "MILLRACE_PYTHON";
/// How the module calls itself in its help.
const NAME: (&str, &str) = ("MILLRACE_PARALLELISM_NAME", "millrace bench parallelism");

pub fn run(args: &ParallelismArgs) -> Outcome {
    let candidates = candidates();
    let Some(python) = candidates.iter().find(|python| has_module(python)) else {
        let tried: Vec<_> = candidates.iter().map(|python| python.to_string_lossy()).collect();
        let detail = format!(
            "the benchmark is a part of the Python package, which {} cannot import; run `pip install 'millrace[parallelism]'`, or set \
             {PYTHON} to a Python that has it",
            tried.join(" and ")
        );
        return Err(Code::PythonPackageMissing.error(detail).into());
    };
    // The module takes the place of this process, so signals and the exit code are its own.
    let error = Command::new(python).args(["-m", "millrace.parallelism"]).args(&args.words).env(NAME.0, NAME.1).exec();
    Err(Code::PythonPackageMissing.error(format!("{} cannot be started: {error}", python.to_string_lossy())).into())
}

/// The interpreters to try, the best first: the one that the user names, or the one beside this program and the one in PATH.
fn candidates() -> Vec<OsString> {
    if let Some(named) = std::env::var_os(PYTHON).filter(|named| !named.is_empty()) {
        return vec![named];
    }
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("python3")));
    beside
        .filter(|python| python.is_file())
        .map(PathBuf::into_os_string)
        .into_iter()
        .chain(["python3".into()])
        .collect()
}

/// Whether an interpreter is there and has the module.
fn has_module(python: &OsString) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import millrace.parallelism"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
