//! The host: the one process that runs a namespace's functions.
//!
//! It holds a lock on the file `host` for as long as it lives; the operating system gives the lock back however it ends.

use crate::{
    Namespace, deploy,
    dispatch::{Dispatcher, Observer},
    status::HostStatus,
};
use millrace_runtime::Isolation;
use millrace_wire::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, TryLockError},
    io::{ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
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

/// How a host runs.
#[derive(Clone, Default)]
pub struct HostOptions {
    /// Who hears of every run as it ends.
    pub observer: Option<Observer>,
    /// How functions are kept apart; without it they have the rights of the host's user.
    pub isolation: Option<Arc<Isolation>>,
}

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

/// The running host of a namespace. Dropping it stops it, without waiting for runs in progress.
pub struct Host {
    namespace: Namespace,
    dispatcher: Dispatcher,
    /// Held until the threads have stopped publishing.
    _lock: Held,
}

/// The locked file.
struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        // Closing is not enough: a child between its fork and its exec has the same open file, and with it the lock.
        let _ = self.0.unlock();
    }
}

impl Host {
    /// Becomes the namespace's host and starts running its functions.
    pub fn start(namespace: Namespace, options: HostOptions) -> Result<Host> {
        let lock = lock(namespace.dir())?;
        Self::start_locked(namespace, options, lock)
    }

    fn start_locked(namespace: Namespace, options: HostOptions, lock: Held) -> Result<Host> {
        HostStatus::remove(namespace.dir());
        deploy::sweep_scratch(namespace.dir());
        millrace_threads::guard().map_err(|e| Code::HostStart.error(format!("cannot start a thread: {e}")))?;
        let dispatcher = Dispatcher::start(namespace.clone(), options.observer, options.isolation)?;
        Ok(Host { namespace, dispatcher, _lock: lock })
    }

    /// What it is doing.
    pub fn status(&self) -> HostStatus {
        self.dispatcher.status()
    }

    /// Why it cannot go on: the journal refused to, or the namespace's directory was moved or removed. To be asked now and then.
    pub fn failure(&self) -> Option<Error> {
        self.dispatcher.failure().or_else(|| self.namespace.journal().check_place().err())
    }

    fn remove_status(&self) {
        // Where another directory has this one's name, the file there is another host's.
        if self.namespace.journal().check_place().is_ok() {
            HostStatus::remove(self.namespace.dir());
        }
    }

    /// From now on no further run is started; those in progress go on, until [`Host::stop`].
    pub fn stop_starting(&self) {
        self.dispatcher.stop_starting();
    }

    /// Stops: no further run is started, and those in progress get `drain` to end.
    ///
    /// Runs that are still in progress then publish nothing; the next host tries them again.
    pub fn stop(mut self, drain: Duration) -> Result<()> {
        let stopped = self.dispatcher.stop(drain);
        self.remove_status();
        stopped
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After `stop` this finds nothing to do; without it, nobody is there to hear of runs that go on.
        let _ = self.dispatcher.stop(Duration::ZERO);
        self.remove_status();
    }
}

fn lock(dir: &Path) -> Result<Held> {
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
                    "namespace '{}' is held by process {} ({}) on {}",
                    dir.display(),
                    holder.pid,
                    holder.command,
                    holder.machine
                )));
            }
            Err(TryLockError::Error(e)) => return Err(refused(&path, &e)),
        }
    }
    let mut held = Held(file);
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
pub(crate) fn holder(dir: &Path) -> Result<Option<Holder>> {
    let path = dir.join(FILE);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refused(&path, &e)),
    };
    match file.try_lock_shared() {
        Ok(()) => {
            drop(Held(file));
            Ok(None)
        }
        Err(TryLockError::WouldBlock) => Ok(Some(read_holder(&mut file))),
        Err(TryLockError::Error(e)) => Err(refused(&path, &e)),
    }
}

impl Namespace {
    /// The process that is this namespace's host, if it has one now.
    pub fn host(&self) -> Result<Option<Holder>> {
        holder(self.dir())
    }

    /// What this namespace's host is doing, if it has one now.
    pub fn host_status(&self) -> Result<Option<HostStatus>> {
        let Some(Holder { pid, .. }) = self.host()? else { return Ok(None) };
        let refusal = self.journal().refusal_anywhere().map(|error| error.to_string());
        let told = HostStatus::read(self.dir())?.filter(|status| status.pid == pid);
        // On a full disk the file may never have been written.
        let told = told.or_else(|| refusal.is_some().then(|| HostStatus { pid, ..HostStatus::default() }));
        Ok(told.map(|status| HostStatus { refusal, ..status }))
    }
}

/// Who holds the lock; unknown in the moment between locking the file and writing it.
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
