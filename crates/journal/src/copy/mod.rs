//! Copies of a whole journal: a consistent one of a journal in use, one made from it again, and what can be saved of a
//! damaged one, also without its manifest. A copy that is used gets an identity of its own: two journals must never give out the same event id.

mod rebuild;
mod salvage;
mod snapshot;

pub use rebuild::Rebuilt;
pub(crate) use rebuild::rebuild;
pub use salvage::{LostRecords, Salvaged};
pub use snapshot::{Snapshot, SnapshotSink};

use crate::{
    journal::{self, OpenOptions},
    medium::FileMedium,
    store::segments::io_error,
};
use millrace_wire::{Code, Result};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory in which a namespace is put together, beside the place it is to have. It gets its name when it is whole;
/// until then, and if that never comes, the place is as free as it was.
pub(crate) struct Workshop {
    to: PathBuf,
    dir: PathBuf,
}

impl Workshop {
    pub fn new(to: &Path) -> Result<Self> {
        let name =
            to.file_name().ok_or_else(|| Code::ValueInvalid.error(format!("'{}' names no place", to.display())))?;
        if to.read_dir().map_or(to.exists(), |mut entries| entries.next().is_some()) {
            return Err(Code::NamespaceExists.error(format!("'{}' is there already", to.display())));
        }
        let mut partial = name.to_owned();
        partial.push(format!(".partial-{}", std::process::id()));
        let dir = to.with_file_name(partial);
        let workshop = Self { to: to.to_owned(), dir };
        workshop.clear();
        Ok(workshop)
    }

    /// The medium that the namespace is made on.
    pub fn medium(&self) -> Result<Arc<FileMedium>> {
        Ok(Arc::new(FileMedium::open(&self.dir, true).map_err(|error| io_error(self.dir.display(), &error))?))
    }

    /// Where it is made.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Gives the namespace its name. Nobody has it open.
    pub fn finish(self) -> Result<()> {
        let failed = |error: std::io::Error| io_error(self.to.display(), &error);
        std::fs::rename(&self.dir, &self.to).map_err(failed)?;
        let parent = self.to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
    }

    fn clear(&self) {
        // What a process of the same id left, or this one; a leftover only takes room.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        self.clear(); // Not there any more if it was finished.
    }
}

/// Opens what was just put together.
pub(crate) fn open_made(workshop: &Workshop) -> Result<journal::Journal> {
    let options = OpenOptions { background: false };
    journal::Journal::open_on(workshop.medium()?, workshop.dir(), &options)
}
