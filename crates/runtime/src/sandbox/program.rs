//! A function's program, as it is called inside its sandbox, and the files that must be visible for it to run.

use super::files;
use crate::{Code, Error, Result, child};
use std::{
    collections::BTreeMap,
    env,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// The files that a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The program's file, as the host calls it.
    pub(super) program: PathBuf,
    /// Directories that must be shown.
    pub(super) shown: Vec<PathBuf>,
}

/// Says where an interpreter and its libraries are.
const ASK: &str = "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sep='\\n')";

/// Finds the program `name` of a function whose code is in `code`.
pub(super) fn find(name: &Path, code: &Path, is_python: bool) -> Result<Found> {
    let program = child::program(name, code)?;
    if program.starts_with(code) || files::is_shown(&program) {
        return Ok(Found { program, shown: Vec::new() });
    }
    let found = if is_python { interpreter(&program)? } else { tool(program) };
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let also = |shown: &Path| match () {
        () if holds(shown, code) => Some("the function's code"),
        () if holds(shown, &home) => Some("the home directory"),
        () => None,
    };
    match found.shown.iter().find_map(|shown| Some((shown, also(shown)?))) {
        None => Ok(found),
        Some((shown, also)) => {
            let why = format!("it needs all of '{}', which also contains {also}", shown.display());
            Err(refused(&found.program, &why))
        }
    }
}

fn holds(shown: &Path, path: &Path) -> bool {
    let same = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !path.as_os_str().is_empty() && same(path).starts_with(same(shown))
}

fn refused(program: &Path, why: &str) -> Error {
    Code::CommandUnusable.error(format!("'{}' cannot be used in a sandbox: {why}", program.display()))
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
    // In a process group of its own: Ctrl-C is meant for the host, which lets runs in progress end.
    let output = Command::new(program).args(["-I", "-c", ASK]).process_group(0).output();
    let output = output.map_err(|error| unusable(&format!("does not start: {error}")))?;
    let lines = String::from_utf8(output.stdout).map_err(|_| unusable("does not report its path"))?;
    let mut lines = lines.lines().map(PathBuf::from).filter(|path| path.is_absolute());
    let executable = lines.next().filter(|path| path.is_file()).ok_or_else(|| unusable("does not report its path"))?;
    let mut shown: Vec<PathBuf> = lines.filter(|path| !files::is_shown(path)).collect();
    shown.dedup();
    let found = Found { program: within(executable, &shown), shown };
    asked.insert(program.to_owned(), found.clone());
    Ok(found)
}

/// The interpreter's file as it is called below what is shown: a link on the way to a virtual environment is not.
fn within(executable: PathBuf, shown: &[PathBuf]) -> PathBuf {
    let is_shown = |path: &Path| files::is_shown(path) || shown.iter().any(|dir| path.starts_with(dir));
    if is_shown(&executable) {
        return executable;
    }
    // The file itself may be a link by which the interpreter finds its environment.
    let dir = executable.parent().and_then(|dir| dir.canonicalize().ok());
    let other = dir.zip(executable.file_name()).map(|(dir, name)| dir.join(name));
    other.filter(|other| is_shown(other)).unwrap_or(executable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn an_interpreter_behind_a_link_is_called_as_what_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let real = place.join("venv");
        fs::create_dir_all(real.join("bin")).unwrap();
        symlink("/usr/bin/python3", real.join("bin/python")).unwrap();
        symlink(&real, place.join("link")).unwrap();
        let linked = place.join("link/bin/python");
        assert_eq!(within(linked.clone(), std::slice::from_ref(&real)), real.join("bin/python"));
        assert_eq!(within(linked.clone(), &[place.join("link")]), linked);
        assert_eq!(within(linked.clone(), &[]), linked);
    }
}
