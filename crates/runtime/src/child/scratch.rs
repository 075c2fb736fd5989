//! A worker's working directory: contains the function's code and the files that the worker writes, and is removed with the worker.
//!
//! Its directories are real, and its files are links to those of the code. So a function can read the files of its code by relative names,
//! and files that it creates are here, not among its code.

use crate::{Code, Error, Result};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A directory that is removed when this is dropped.
pub(crate) struct Scratch {
    path: PathBuf,
    /// How it is removed by others, where this process cannot.
    remove: Option<Box<dyn FnOnce() + Send>>,
}

impl Scratch {
    /// A new directory in `base`, which is created if it is missing, that shows what is in `code`.
    pub(crate) fn new(base: &Path, code: &Path) -> Result<Self> {
        let code =
            fs::canonicalize(code).map_err(|e| Code::CodeUnreadable.error(format!("'{}': {e}", code.display())))?;
        let scratch = Self::empty(base)?;
        mirror(&code, &scratch.path).map_err(|e| failed(base, &e))?;
        Ok(scratch)
    }

    /// The same with nothing in it.
    pub(crate) fn empty(base: &Path) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let failed = |e: io::Error| failed(base, &e);
        let base = std::path::absolute(base).map_err(failed)?;
        make(&base).map_err(failed)?;
        let path = base.join(format!("{}-{}", process::id(), NEXT.fetch_add(1, Relaxed)));
        let scratch = Self { path, remove: None };
        match fs::remove_dir_all(&scratch.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {} // A process of the same id that died left it.
        }
        make(&scratch.path).map_err(failed)?;
        Ok(scratch)
    }

    /// A directory that another component creates and removes.
    pub(crate) fn removed_by(path: PathBuf, remove: impl FnOnce() + Send + 'static) -> Self {
        Self { path, remove: Some(Box::new(remove)) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match self.remove.take() {
            Some(remove) => remove(),
            // Files that cannot be removed now are removed when the next host starts.
            None => drop(fs::remove_dir_all(&self.path)),
        }
    }
}

fn failed(base: &Path, error: &io::Error) -> Error {
    Code::SpawnFailed.error(format!("cannot make a working directory in '{}': {error}", base.display()))
}

fn make(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Shows what is in one directory in another.
pub(crate) fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    make(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            mirror(&entry.path(), &to)?;
        } else {
            symlink(entry.path(), to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_the_code_keeps_it_apart_from_what_is_written_and_vanishes() {
        let dir = tempfile::tempdir().unwrap();
        let (code, base) = (dir.path().join("code"), dir.path().join("scratch"));
        fs::create_dir_all(code.join("lib")).unwrap();
        fs::write(code.join("lib/data"), "7").unwrap();
        let scratch = Scratch::new(&base, &code).unwrap();
        let other = Scratch::new(&base, &code).unwrap();
        assert_eq!(fs::read_to_string(scratch.path().join("lib/data")).unwrap(), "7");
        fs::write(scratch.path().join("lib/made"), "here").unwrap();
        fs::write(scratch.path().join("made"), "here").unwrap();
        assert_eq!(fs::read_dir(code.join("lib")).unwrap().count() + fs::read_dir(&code).unwrap().count(), 2);
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1, "each worker has its own");
        drop((scratch, other));
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(code.join("lib/data")).unwrap(), "7");
    }
}
