//! Which program a function is, as it is called inside its sandbox, and what must be shown for it to run.

use super::files;
use crate::{Code, Error, Result, child};
use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// What a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The program's file, as the host calls it.
    pub(super) program: PathBuf,
    /// Directories that must be shown.
    pub(super) shown: Vec<PathBuf>,
}

/// Says where an interpreter and its libraries are.
const ASK: &str = "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sep='\\n')";

/// Finds the program that `name` means to a function whose code is in `code`.
pub(super) fn find(name: &Path, code: &Path, is_python: bool) -> Result<Found> {
    let program = child::program(name, code)?;
    if program.starts_with(code) || files::is_shown(&program) {
        return Ok(Found { program, shown: Vec::new() });
    }
    let found = if is_python { interpreter(&program)? } else { tool(program) };
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    match found.shown.iter().find(|shown| holds(shown, &home) || holds(shown, code)) {
        None => Ok(found),
        Some(shown) => Err(refused(&found.program, &format!("'{}' holds more than a program", shown.display()))),
    }
}

fn holds(shown: &Path, path: &Path) -> bool {
    let same = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !path.as_os_str().is_empty() && same(path).starts_with(same(shown))
}

fn refused(program: &Path, why: &str) -> Error {
    Code::CommandUnusable.error(format!("'{}' cannot be shown in a sandbox: {why}", program.display()))
}

/// Programs in a `bin` have their libraries beside it.
fn tool(program: PathBuf) -> Found {
    let dir = program.parent().unwrap_or(&program);
    let prefix = match dir.file_name() {
        Some(name) if name == "bin" => dir.parent().unwrap_or(dir),
        _ => &program,
    };
    Found { shown: vec![prefix.to_owned()], program }
}

/// Asks an interpreter of the host's, which may be a script that finds another, once.
fn interpreter(program: &Path) -> Result<Found> {
    static ASKED: Mutex<BTreeMap<PathBuf, Found>> = Mutex::new(BTreeMap::new());
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = asked.get(program).filter(|found| found.program.is_file()) {
        return Ok(found.clone());
    }
    let unusable = |why: &str| Code::PythonUnusable.error(format!("'{}' {why}", program.display()));
    let output = Command::new(program).args(["-I", "-c", ASK]).output();
    let output = output.map_err(|error| unusable(&format!("does not start: {error}")))?;
    let lines = String::from_utf8(output.stdout).map_err(|_| unusable("does not say where it is"))?;
    let mut lines = lines.lines().map(PathBuf::from).filter(|path| path.is_absolute());
    let executable = lines.next().filter(|path| path.is_file()).ok_or_else(|| unusable("does not say where it is"))?;
    let mut shown: Vec<PathBuf> = lines.filter(|path| !files::is_shown(path)).collect();
    shown.dedup();
    let found = Found { program: executable, shown };
    asked.insert(program.to_owned(), found.clone());
    Ok(found)
}
