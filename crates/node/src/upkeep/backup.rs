//! Backups: a directory with a consistent copy of a namespace in use, and a checksum of every file.
//!
//! ```text
//!  BACKUP               what it is, and the checksums; written last
//!  manifest.saved       the namespace's manifest as of the copy's end
//!  journal/N            segments, the last one up to the copy's end
//!  functions/<sha256>/  code
//! ```
//!
//! A backup is not a namespace: only [`restore`], which creates another namespace from it, and the check, which reports damage and salvages
//! the rest, can open it.

use super::inspect::{Inspection, examine_with};
use crate::{Namespace, functions, links::Links};
use millrace_journal::{Journal, Snapshot, SnapshotSink, StagingDir};
use millrace_namespace::FOLDER;
use millrace_wire::{Code, Error, Hex, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The file that makes a directory a backup.
const HEAD: &str = "BACKUP";
const MAGIC: &str = "millrace-backup 1";
const MANIFEST: &str = "manifest.saved";
const JOURNAL: &str = "journal";
/// The names of a namespace's files in a backup.
const NAMES: &[(&str, &str)] = &[("segments", JOURNAL), ("manifest", MANIFEST)];
/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The content of the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// The original namespace.
    pub namespace: String,
    /// Its epoch.
    pub epoch: u32,
    /// The version of Millrace that made it.
    pub millrace: String,
    /// When, in microseconds since 1970.
    pub created_us: u64,
    /// The first segment.
    pub first_segment: u64,
    /// Where the journal ends.
    pub tail: u64,
    /// Whether every checksum in it agreed when it was made; versions that did not look say nothing.
    #[serde(default = "unless_said")]
    pub sound: bool,
    /// Functions' code, by hash.
    pub functions: BTreeSet<String>,
    /// Every other file: its bytes and SHA-256.
    pub files: BTreeMap<String, (u64, String)>,
}

fn unless_said() -> bool {
    true
}

/// The result of a backup.
#[derive(Clone, Debug)]
pub struct BackupDone {
    /// The head.
    pub head: Backup,
    /// Bytes written.
    pub bytes: u64,
    /// The findings of its verification. Damaged records come from the namespace itself.
    pub found: Inspection,
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::StorageFull => Code::DiskFull,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
        _ => Code::Io,
    };
    code.error(format!("'{}': {error}", path.display()))
}

fn hex(hash: Sha256) -> String {
    Hex(hash.finalize()).to_string()
}

/// A file that is being written, and the checksum of what was.
struct Writing {
    path: PathBuf,
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Writing {
    fn create(path: PathBuf) -> Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        Ok(Self { path, file, hash: Sha256::new(), bytes: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| failed(&self.path, &error))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self) -> Result<(u64, String)> {
        self.file.sync_all().map_err(|error| failed(&self.path, &error))?;
        Ok((self.bytes, hex(self.hash)))
    }
}

/// The backup in the making.
struct Sink<'p> {
    dir: PathBuf,
    open: BTreeMap<u64, Writing>,
    progress: &'p mut dyn FnMut(u64, u64),
}

fn segment(number: u64) -> String {
    format!("{JOURNAL}/{number:010}")
}

impl SnapshotSink for Sink<'_> {
    fn write(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        if !self.open.contains_key(&number) {
            self.open.insert(number, Writing::create(self.dir.join(segment(number)))?);
        }
        self.open.get_mut(&number).expect("just made").write(bytes)
    }

    fn forget(&mut self, number: u64) -> Result<()> {
        if let Some(writing) = self.open.remove(&number) {
            fs::remove_file(&writing.path).map_err(|error| failed(&writing.path, &error))?;
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, total: u64) {
        (self.progress)(done, total);
    }
}

fn make_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(|error| failed(path, &error))
}

fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(|error| failed(path, &error))
}

/// Copies the namespace as it is now to `to`, which must not be there; it may be in use meanwhile. When this returns,
/// the copy is complete and on disk, and was verified: one of a damaged namespace is made, too, and says so.
pub fn back_up(namespace: &Namespace, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<BackupDone> {
    if to.exists() {
        return Err(Code::NamespaceExists.error(format!("'{}' already exists", to.display())));
    }
    let staging_dir = StagingDir::new(to)?;
    let dir = staging_dir.dir().to_owned();
    make_dir(&dir.join(JOURNAL))?;
    let mut sink = Sink { dir: dir.clone(), open: BTreeMap::new(), progress };
    let Snapshot { manifest, first_segment, tail } = namespace.journal().snapshot(&mut sink)?;
    let mut files = BTreeMap::new();
    for (number, writing) in std::mem::take(&mut sink.open) {
        files.insert(segment(number), writing.finish()?);
    }
    let mut saved = Writing::create(dir.join(MANIFEST))?;
    saved.write(&manifest)?;
    files.insert(MANIFEST.into(), saved.finish()?);
    // A definition appears after its code, and code stays: all that the copy's definitions name is there. What of it is not
    // whole is left out, and missed below by the functions that still need it.
    let mut codes = BTreeSet::new();
    let _lock = functions::StoreLock::shared(namespace.dir())?;
    for code in functions::stored_codes(namespace.dir())? {
        if functions::check_code(namespace.dir(), &code).is_ok() {
            functions::copy_code(namespace.dir(), &code, &dir)?;
            codes.insert(code);
        }
    }
    let found = examine_with(&Namespace::over(Journal::view_copy(&dir, NAMES, tail)?), Vec::new(), progress)?;
    let head = Backup {
        namespace: namespace.journal().namespace().to_string(),
        epoch: namespace.journal().epoch(),
        millrace: env!("CARGO_PKG_VERSION").into(),
        created_us: namespace.journal().clock().wall_us(),
        first_segment,
        tail,
        sound: found.is_sound(),
        functions: codes,
        files,
    };
    let body = serde_json::to_vec_pretty(&head).expect("plain data always serialises");
    let mut writing = Writing::create(dir.join(HEAD))?;
    writing.write(format!("{MAGIC} {}\n", hex(Sha256::new_with_prefix(&body))).as_bytes())?;
    writing.write(&body)?;
    let head_bytes = writing.finish()?.0;
    sync_dir(&dir.join(JOURNAL))?;
    sync_dir(&dir)?;
    staging_dir.finish()?;
    let bytes = head.files.values().map(|(bytes, _)| bytes).sum::<u64>() + head_bytes;
    Ok(BackupDone { head, bytes, found })
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Code::BackupDamaged.error(what.to_string())
}

impl Backup {
    /// Reads the head.
    fn read(from: &Path) -> Result<Backup> {
        let path = from.join(HEAD);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => damaged(format!("'{}' is not a backup", from.display())),
            _ => failed(&path, &error),
        })?;
        let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("its header has no first line"))?;
        let (line, body) = (&text[..end], &text[end + 1..]);
        let line = String::from_utf8_lossy(line);
        let Some(checksum) = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')) else {
            if line.starts_with("millrace-backup ") {
                return Err(Code::FormatVersion.error(format!("'{line}'; this version reads '{MAGIC}'")));
            }
            return Err(damaged("its header was not written by Millrace"));
        };
        if checksum != hex(Sha256::new_with_prefix(body)) {
            return Err(damaged("the checksum of its header does not match"));
        }
        serde_json::from_slice(body).map_err(damaged)
    }

    /// Verifies every file and all code; returns the differences from what was written.
    fn verify(&self, from: &Path, progress: &mut dyn FnMut(u64, u64)) -> Vec<Error> {
        let total = self.files.values().map(|(bytes, _)| bytes).sum();
        let mut done = 0;
        let files = self.files.iter().filter_map(|(name, written)| {
            let result = verify_file(&from.join(name), name, written, &mut |seen| progress(done + seen, total));
            done += written.0;
            result.err()
        });
        let mut faults: Vec<Error> = files.collect();
        let codes = self.functions.iter().filter_map(|code| functions::check_code(from, code).err());
        faults.extend(codes.map(|error| damaged(error.detail())));
        faults
    }
}

fn verify_file(path: &Path, name: &str, written: &(u64, String), progress: &mut dyn FnMut(u64)) -> Result<()> {
    let mut file = File::open(path).map_err(|error| damaged(format!("{name}: {error}")))?;
    let (mut found, mut seen) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk).map_err(|error| failed(path, &error))? {
            0 => break,
            n => {
                found.update(&chunk[..n]);
                seen += n as u64;
                progress(seen);
            }
        }
    }
    if (seen, hex(found)) != *written {
        return Err(damaged(format!(
            "{name} has other content than when the backup was made; it has {seen} bytes of {}",
            written.0
        )));
    }
    Ok(())
}

/// Whether a directory is a backup, or what is left of one.
pub(super) fn is_backup(dir: &Path) -> bool {
    let is_namespace = dir.join("segments").exists() || dir.join(FOLDER).exists();
    let has_journal = || {
        let mut names = dir.join(JOURNAL).read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.any(|name| name.len() == 10 && name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    !is_namespace && (dir.join(HEAD).exists() || dir.join(MANIFEST).exists() || has_journal())
}

/// Reads a backup, whatever its state.
pub(super) fn view(dir: &Path) -> Result<Namespace> {
    let tail = Backup::read(dir).map_or(0, |head| head.tail);
    Ok(Namespace::over(Journal::view_copy(dir, NAMES, tail)?))
}

/// The damaged parts of a backup.
pub(super) fn faults(dir: &Path, progress: &mut dyn FnMut(u64, u64)) -> Vec<Error> {
    match Backup::read(dir) {
        Ok(head) => head.verify(dir, progress),
        Err(error) => vec![error],
    }
}

/// Makes a namespace of a backup in `to`, which must be absent or empty. It is another namespace than the one that was
/// backed up: it has an identity of its own, and its outgoing streams are stopped until an operator restarts them.
pub fn restore(from: &Path, to: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Backup> {
    crate::check_directory(to)?;
    let head = Backup::read(from)?;
    if let Some(fault) = head.verify(from, progress).into_iter().next() {
        return Err(fault);
    }
    let unsound = |what: &str| Code::BackupUnsound.error(what).within(from.display());
    if !head.sound {
        return Err(unsound("it was made of a damaged namespace"));
    }
    let manifest = fs::read(from.join(MANIFEST)).map_err(damaged)?;
    let snapshot = Snapshot { manifest, first_segment: head.first_segment, tail: head.tail };
    let mut read = |number: u64, at: u64| {
        let path = from.join(segment(number));
        let read = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(at))?;
            let mut bytes = Vec::new();
            file.take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| failed(&path, &error))
    };
    snapshot
        .restore(to, &mut read, &mut |dir, journal| {
            for code in &head.functions {
                functions::copy_code(from, code, dir)?;
            }
            Links::stop_restored(journal)
        })
        .map_err(|error| match error.code() {
            // Its files are what was written: the damage was there before.
            Code::JournalDamaged | Code::BackupDamaged => unsound(error.detail()),
            _ => error,
        })?;
    Ok(head)
}
