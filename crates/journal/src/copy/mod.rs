//! Copies of a whole journal: a consistent copy of a journal in use, a journal restored from such a copy, and the intact part of a damaged
//! journal, even without its manifest. A restored copy gets a new identity, because two journals must never assign the same event id.

mod rebuild;
mod salvage;
mod snapshot;

pub use rebuild::Rebuilt;
pub(crate) use rebuild::rebuild;
pub use salvage::{LostRecords, Salvaged};
pub use snapshot::{Snapshot, SnapshotSink};

use crate::{journal, medium::FileMedium, options::OpenOptions, store::segments::io_error};
use millrace_wire::{Code, Result};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory in which a copy is assembled, beside its target. It is renamed when it is complete; until then the target does not exist.
pub struct StagingDir {
    to: PathBuf,
    dir: PathBuf,
    /// Locked as long as its maker lives.
    _lock: File,
}

/// Between the name that a copy is to have and the id of the process that makes it.
const PARTIAL: &str = ".partial-";

impl StagingDir {
    /// Begins a copy to `to`, which must be absent or empty. Leftovers of dead processes are removed.
    pub fn new(to: &Path) -> Result<Self> {
        let name = to
            .file_name()
            .ok_or_else(|| Code::ValueInvalid.error(format!("'{}' is not the path of a directory", to.display())))?;
        if to.read_dir().map_or(to.exists(), |mut entries| entries.next().is_some()) {
            return Err(Code::NamespaceExists.error(format!("'{}' already exists", to.display())));
        }
        let mut partial = name.to_owned();
        partial.push(PARTIAL);
        clear_leftovers(parent(to), &partial);
        partial.push(std::process::id().to_string());
        let dir = to.with_file_name(partial);
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir).and_then(|()| {
            let lock = File::open(&dir)?;
            // Another process with the same id, in another PID namespace, may be using it.
            lock.try_lock().map_err(io::Error::from).map(|()| lock)
        });
        let lock = made.map_err(|error| io_error(dir.display(), &error))?;
        Ok(Self { to: to.to_owned(), dir, _lock: lock })
    }

    /// The medium of the new namespace.
    pub(crate) fn medium(&self) -> Result<Arc<FileMedium>> {
        Ok(Arc::new(FileMedium::open(&self.dir, true).map_err(|error| io_error(self.dir.display(), &error))?))
    }

    /// Its directory until it is complete.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Renames the copy to its target. No process has it open.
    pub fn finish(self) -> Result<()> {
        let failed = |error: io::Error| io_error(self.to.display(), &error);
        fs::rename(&self.dir, &self.to).map_err(failed)?;
        File::open(parent(&self.to)).and_then(|parent| parent.sync_all()).map_err(failed)
    }
}

/// The directory that a place is in.
fn parent(place: &Path) -> &Path {
    place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes what was begun under this name by makers that are gone. It only took room, so what cannot be removed stays.
fn clear_leftovers(parent: &Path, partial: &OsStr) {
    let is_one = |name: &OsStr| {
        let id = name.as_encoded_bytes().strip_prefix(partial.as_encoded_bytes());
        id.is_some_and(|id| !id.is_empty() && id.iter().all(u8::is_ascii_digit))
    };
    let is_left =
        |entry: &fs::DirEntry| is_one(&entry.file_name()) && entry.file_type().is_ok_and(|kind| kind.is_dir());
    for entry in parent.read_dir().into_iter().flatten().flatten().filter(is_left) {
        // A maker that lives has it locked, wherever its id means something.
        let _ = File::open(entry.path()).and_then(|lock| {
            lock.try_lock().map_err(io::Error::from)?;
            fs::remove_dir_all(entry.path())
        });
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir); // Not there any more if it was finished.
    }
}

/// Opens what was just put together.
pub(crate) fn open_made(staging_dir: &StagingDir) -> Result<journal::Journal> {
    let options = OpenOptions { background: false };
    journal::Journal::open_on(staging_dir.medium()?, staging_dir.dir(), &options)
}
