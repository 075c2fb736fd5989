//! The lock that makes a process the host of a namespace, and its holder.
//!
//! It is a lock on the file `host`, for as long as the host runs; the operating system releases it when the host ends for any reason.

use millrace_wire::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, TryLockError},
    io::{ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The file that is locked.
const FILE: &str = "host";
/// Those who only ask whether there is a host hold the lock for a moment; a starting host sits such moments out.
const LOCK_PATIENCE: Duration = Duration::from_millis(300);
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// Longest description of a host that is read back.
const HOLDER_BYTES_MAX: u64 = 16 << 10;

/// A process that holds a namespace as its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The machine it runs on.
    pub machine: String,
}

/// The locked file.
pub struct HostLock(File);

impl Drop for HostLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between its fork and its exec has the same open file, and with it the lock.
        let _ = self.0.unlock();
    }
}

/// Becomes the host of the namespace in `dir`, until the lock is dropped.
pub fn lock(dir: &Path) -> Result<HostLock> {
    let path = dir.join(FILE);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| refused(&path, &e))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_PATIENCE => thread::sleep(LOCK_RETRY),
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file);
                return Err(Code::HostHeld.error(format!(
                    "namespace '{}' is served by process {} ({}) on {}",
                    dir.display(),
                    holder.pid,
                    holder.command,
                    holder.machine
                )));
            }
            Err(TryLockError::Error(e)) => return Err(refused(&path, &e)),
        }
    }
    let mut held = HostLock(file);
    let holder = Holder { pid: std::process::id(), command: command_line(), machine: machine() };
    let text = serde_json::to_vec(&holder).expect("numbers and text always make JSON");
    let file = &mut held.0;
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(&text))
        .map_err(|e| refused(&path, &e))?;
    Ok(held)
}

/// The host of the namespace in `dir`, or `None` if it has none now.
pub fn holder(dir: &Path) -> Result<Option<Holder>> {
    let path = dir.join(FILE);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refused(&path, &e)),
    };
    match file.try_lock_shared() {
        Ok(()) => {
            drop(HostLock(file));
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => Ok(Some(read_holder(&mut file))),
        Err(TryLockError::Error(e)) => Err(refused(&path, &e)),
    }
}

/// The owner of the lock; unknown between locking the file and writing it.
fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(HOLDER_BYTES_MAX).read_to_string(&mut text));
    let unknown = || Holder { pid: 0, command: "unknown".into(), machine: "unknown".into() };
    read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_else(unknown)
}

fn command_line() -> String {
    let line: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    line.join(" ").chars().take(1000).collect()
}

fn machine() -> String {
    let name = std::fs::read_to_string(PathBuf::from("/proc/sys/kernel/hostname"));
    name.map_or_else(|_| "unknown".into(), |name| name.trim().into())
}

fn refused(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
        ErrorKind::StorageFull => Code::DiskFull,
        _ => Code::HostStart,
    };
    code.error(format!("'{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_has_not_yet_begun_its_program_keeps_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        // What a fork leaves in the child until the exec closes it.
        let inherited = held.0.try_clone().unwrap();
        assert_eq!(holder(dir.path()).unwrap().unwrap().pid, std::process::id());
        drop(held);
        assert_eq!(holder(dir.path()).unwrap(), None);
        drop(lock(dir.path()).unwrap());
        drop(inherited);
    }
}
