//! Removes stored code that no definition in the journal names, and other leftover files beside it.

use super::{FUNCTIONS, SCRATCH};
use millrace_namespace::Namespace;
use millrace_wire::{Code, Error, Result};
use serde::Deserialize;
use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    path::Path,
    time::{Duration, SystemTime},
};

/// The file that a process locks while it needs the stored code.
const LOCK: &str = "functions.lock";
/// Code that nothing names any longer is kept for this long after it was last deployed, and so is what a deployment left unfinished.
const CODE_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A compiled module is kept for this long after it was last loaded.
const CACHE_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// As long as this is held no stored code is removed.
pub struct StoreLock(File);

impl StoreLock {
    /// Waits while code is being removed.
    pub fn shared(namespace_dir: &Path) -> Result<Self> {
        let lock = Self(Self::open(namespace_dir, true).map_err(|error| failed(namespace_dir, &error))?);
        lock.0.lock_shared().map_err(|error| failed(namespace_dir, &error))?;
        Ok(lock)
    }

    /// Locked; `None` if another process has the lock, or nothing was ever deployed.
    fn alone(namespace_dir: &Path) -> Result<Option<Self>> {
        let lock = match Self::open(namespace_dir, false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            lock => Self(lock.map_err(|error| failed(namespace_dir, &error))?),
        };
        match lock.0.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(namespace_dir, &error)),
        }
    }

    fn open(namespace_dir: &Path, create: bool) -> io::Result<File> {
        let path = namespace_dir.join(LOCK);
        File::options().read(true).write(true).create(create).truncate(false).open(path)
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between its start and its program has the same open file, and with it the lock.
        let _ = self.0.unlock();
    }
}

fn failed(namespace_dir: &Path, error: &io::Error) -> Error {
    Code::Io.error(format!("cannot lock '{}': {error}", namespace_dir.join(LOCK).display()))
}

/// Removes files that the host no longer needs: code that neither a definition nor `in_use` names, nor a former definition whose runs a
/// repair may replay because the journal has them, compiled modules that were not loaded
/// for long, and working directories of ended hosts. Files that cannot be removed stay until the next time.
pub(crate) fn sweep(namespace: &Namespace, cache: &str, in_use: impl FnOnce() -> BTreeSet<String>) -> Result<()> {
    let (dir, now) = (namespace.dir(), SystemTime::now());
    remove_older(&dir.join(cache), now, CACHE_KEPT, |_| true);
    let Some(_lock) = StoreLock::alone(dir)? else { return Ok(()) };
    if !namespace.journal().pins()?.is_empty() {
        return Ok(()); // A repair may replay runs of the past with what they ran, or give a function other code.
    }
    let mut needed = in_use();
    for (_, definition) in namespace.bindings()?.functions() {
        match definition {
            Ok(definition) => drop(needed.insert(definition.code.clone())),
            Err(_) => return Ok(()), // Nobody knows which code it names.
        }
    }
    let is_readable = namespace.journal().functions_kept(&mut |attributes| {
        // Of a definition that this version cannot read, the code has the same key.
        let code = serde_json::from_str::<OfCode>(attributes)
            .map_err(|error| Code::DefinitionDamaged.error(error.to_string()))?;
        needed.insert(code.code);
        Ok(())
    });
    match is_readable {
        Ok(()) => remove_older(&dir.join(FUNCTIONS), now, CODE_KEPT, |name| !needed.contains(name)),
        // Nobody knows which code it names.
        Err(error) if matches!(error.code(), Code::DefinitionDamaged | Code::EntryDamaged) => {
            tracing::warn!(%error, "no code of functions is removed, because a definition cannot be read");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What a definition of any version says of its code.
#[derive(Deserialize)]
struct OfCode {
    code: String,
}

/// Removes the working directories of hosts that are gone.
pub fn sweep_scratch(namespace_dir: &Path) {
    let own = std::process::id().to_string();
    each(&namespace_dir.join(SCRATCH), |name, path| {
        let pid = name.split('-').next().unwrap_or_default();
        if pid != own && !Path::new("/proc").join(pid).exists() {
            // Files that cannot be removed are removed when the next host starts.
            let _ = fs::remove_dir_all(path);
        }
    });
}

fn remove_older(dir: &Path, now: SystemTime, kept: Duration, may_go: impl Fn(&str) -> bool) {
    each(dir, |name, path| {
        let age = fs::symlink_metadata(path).and_then(|meta| meta.modified()).map(|at| now.duration_since(at));
        if may_go(name) && matches!(age, Ok(Ok(age)) if age > kept) {
            // Files that cannot be removed are tried again later.
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    });
}

fn each(dir: &Path, mut see: impl FnMut(&str, &Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Some(name) = entry.file_name().to_str() {
            see(name, &entry.path());
        }
    }
}
