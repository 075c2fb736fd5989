//! How far a database is written, in a file that every process of the namespace can read. It is a lower bound: a lost file costs reading.

use super::DatabaseSettings;
use crate::Namespace;
use millrace_journal::Position;
use millrace_wire::DatabaseName;
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
};

pub(super) const FOLDER: &str = "written";
/// The number, the position, and a checksum of both.
const BYTES: usize = 24;

/// Everything that the journal has for a database up to a point is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of the last batch that is written; 0 if none is known to be.
    pub number: u64,
    /// What is not written stands behind this position.
    pub position: Position,
}

fn path(namespace: &Namespace, database: &DatabaseName) -> PathBuf {
    namespace.dir().join(FOLDER).join(&**database)
}

fn checked(namespace: &Namespace, number: u64, position: u64) -> [u8; BYTES] {
    let mut hash = Sha256::new();
    hash.update(namespace.journal().namespace().get().to_le_bytes());
    hash.update(number.to_le_bytes());
    hash.update(position.to_le_bytes());
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&position.to_le_bytes());
    bytes[16..].copy_from_slice(&hash.finalize()[..8]);
    bytes
}

impl Progress {
    /// How far this database is known to be written.
    pub fn of(namespace: &Namespace, settings: &DatabaseSettings) -> Self {
        let since = settings.since(namespace.journal().namespace());
        let mut bytes = [0; BYTES];
        let read = File::open(path(namespace, &settings.name)).and_then(|file| file.read_exact_at(&mut bytes, 0));
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("24 bytes"));
        let (number, position) = (word(0), word(8));
        // A file of another namespace, or one that a power failure has torn, says nothing.
        let is_good = read.is_ok() && bytes == checked(namespace, number, position);
        match Position::named(position) {
            Ok(position) if is_good && position >= since && position <= namespace.journal().tail() => {
                Self { number, position }
            }
            _ => Self { number: 0, position: since },
        }
    }
}

/// The file of one database, for the host that writes it.
pub(super) struct ProgressFile {
    file: File,
    namespace: Namespace,
}

impl ProgressFile {
    /// Makes it, if need be.
    pub fn open(namespace: &Namespace, database: &DatabaseName) -> std::io::Result<Self> {
        let path = path(namespace, database);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        Ok(Self { file, namespace: namespace.clone() })
    }

    /// Notes progress. It need not be flushed: an older one is true as well.
    pub fn note(&self, progress: Progress) -> std::io::Result<()> {
        let bytes = checked(&self.namespace, progress.number, progress.position.get());
        self.file.write_all_at(&bytes, 0)
    }
}
