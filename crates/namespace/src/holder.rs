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
/// The file that a starting host locks while a process that stands in for a host holds the other one.
const WANTED: &str = "host.wanted";
/// Those who only ask whether there is a host hold the lock for a moment; a starting host sits such moments out.
const LOCK_PATIENCE: Duration = Duration::from_millis(300);
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// How long a starting host waits for a process that stands in for a host, which lets a replayed run end first.
const STAND_IN_PATIENCE: Duration = Duration::from_secs(120);
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
    /// Whether it only stands in for a host, and makes room for one that starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands_in: bool,
}

/// The locked file.
pub struct HostLock {
    file: File,
    wanted: PathBuf,
}

impl HostLock {
    /// Whether a host wants to start, for which this process is to make room.
    pub fn is_wanted(&self) -> bool {
        let Ok(file) = File::open(&self.wanted) else { return false };
        // Starting hosts share it.
        match file.try_lock() {
            Ok(()) => {
                let _ = file.unlock();
                false
            }
            Err(error) => matches!(error, TryLockError::WouldBlock),
        }
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between its fork and its exec has the same open file, and with it the lock.
        let _ = self.file.unlock();
    }
}

/// Becomes the host of the namespace in `dir`, until the lock is dropped. A process that only stands in for a host makes room.
pub fn lock(dir: &Path) -> Result<HostLock> {
    take(dir, false)
}

/// Stands in for the host of the namespace in `dir`, until the lock is dropped or [`HostLock::is_wanted`].
pub fn lock_until_a_host_starts(dir: &Path) -> Result<HostLock> {
    take(dir, true)
}

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).open(path).map_err(|e| refused(path, &e))
}

fn take(dir: &Path, stands_in: bool) -> Result<HostLock> {
    let (path, wanted) = (dir.join(FILE), dir.join(WANTED));
    let mut file = open(&path)?;
    let (start, mut asked) = (Instant::now(), None::<File>);
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_PATIENCE => thread::sleep(LOCK_RETRY),
            Err(TryLockError::WouldBlock) => {
                let holder = read_holder(&mut file);
                if holder.stands_in && !stands_in && start.elapsed() < STAND_IN_PATIENCE {
                    if asked.is_none() {
                        // Of two hosts that start, both wait, and one gets the lock. The lock goes with the file.
                        let file = open(&wanted)?;
                        // While somebody looks whether it is locked, it is tried again.
                        asked = file.try_lock_shared().is_ok().then_some(file);
                    }
                    thread::sleep(LOCK_RETRY);
                    continue;
                }
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
    // A child between its fork and its exec has the same open file.
    asked.iter().for_each(|asked| drop(asked.unlock()));
    let mut held = HostLock { file, wanted };
    let holder = Holder { pid: std::process::id(), command: command_line(), machine: machine(), stands_in };
    let text = serde_json::to_vec(&holder).expect("numbers and text always make JSON");
    let file = &mut held.file;
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
            // Closing is not enough: see above.
            let _ = file.unlock();
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
    let unknown = || Holder { pid: 0, command: "unknown".into(), machine: "unknown".into(), stands_in: false };
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
        let inherited = held.file.try_clone().unwrap();
        assert_eq!(holder(dir.path()).unwrap().unwrap().pid, std::process::id());
        drop(held);
        assert_eq!(holder(dir.path()).unwrap(), None);
        drop(lock(dir.path()).unwrap());
        drop(inherited);
    }

    #[test]
    fn who_stands_in_for_a_host_makes_room_for_one() {
        let dir = tempfile::tempdir().unwrap();
        let stands_in = lock_until_a_host_starts(dir.path()).unwrap();
        assert!(holder(dir.path()).unwrap().unwrap().stands_in && !stands_in.is_wanted());
        assert_eq!(lock_until_a_host_starts(dir.path()).err().map(|error| error.code()), Some(Code::HostHeld));
        assert!(!stands_in.is_wanted(), "another one that stands in is no host");
        thread::scope(|scope| {
            let host = scope.spawn(|| lock(dir.path()).unwrap());
            while !stands_in.is_wanted() {
                thread::yield_now();
            }
            drop(stands_in);
            let host = host.join().unwrap();
            assert!(!holder(dir.path()).unwrap().unwrap().stands_in && !host.is_wanted());
        });
    }
}
