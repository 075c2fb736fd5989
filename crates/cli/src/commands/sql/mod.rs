//! `millrace sql`: runs `python -m millrace.sql` in place of this program. The engine, DuckDB, is a package of Python.

use crate::{
    args::{Global, SqlArgs},
    place::Target,
    report::{self, Outcome},
};
use millrace_node::Code;
use std::{io::ErrorKind, os::unix::process::CommandExt, process::Command};

/// Runs the module, or prints its first argument, the error of missing packages. Nothing is imported from the current directory, which may be
/// another user's.
const START: &str = "\
import sys
if sys.path[0] == '':
    del sys.path[0]
missing = sys.argv.pop(1)
try:
    import duckdb, numpy
    from millrace.sql.__main__ import main
except ImportError:
    sys.stderr.write(missing)
    sys.exit(1)
code = main()
sys.stdout.flush()
sys.exit(code)";

pub fn run(args: &SqlArgs, global: &Global) -> Outcome {
    let (target, _) = Target::find(global)?;
    let missing = Code::PythonPackageMissing
        .error("SQL needs Python 3.11 or later, as `python3`, with the packages of `pip install 'millrace[sql]'`");
    let mut python = Command::new("python3");
    python.args(["-c", START]).arg(report::text(&missing, global.json));
    python.arg("--namespace").arg(target.to_string());
    if let Target::Peer(_, Some(ca)) = &target {
        python.arg("--ca").arg(ca);
    }
    for decode in &args.decode {
        python.arg("--decode").arg(decode);
    }
    if let Some(memory) = &args.memory {
        python.arg("--memory").arg(memory);
    }
    if args.csv {
        python.arg("--csv");
    } else if global.json {
        python.arg("--json");
    }
    // It answers to Ctrl-C itself, and its exit code is that of the command.
    let error = python.arg("--").arg(&args.query).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => missing.into(),
        _ => Code::PythonPackageMissing.error(format!("cannot run python3: {error}")).into(),
    })
}
