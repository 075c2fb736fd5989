//! Compiled modules on disk.
//!
//! A file is the SHA-256 of the artifact, then the artifact. Its name is the SHA-256 of the module, the compiler's
//! version and the engine's configuration, so nothing needs to be invalidated. Artifacts are machine code that is run
//! without further checks: the directory must be ours alone, and a file whose checksum is wrong counts as absent.

use crate::{Code, Result};
use millrace_wire::Hex;
use sha2::{Digest, Sha256};
use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};
use wasmtime::Engine;

const CHECKSUM_BYTES: usize = 32;

pub(super) struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// The cache in `dir`, which is created with mode 0700 if it is missing and refused if others may write to it.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let unusable = |e: io::Error| Code::Io.error(format!("cannot use '{}': {e}", dir.display()));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
        let found = fs::symlink_metadata(dir).map_err(unusable)?;
        let us = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != us || found.mode() & 0o077 != 0 {
            return Err(Code::CacheUnsafe.error(format!(
                "'{}' has owner {} and mode {:o}, not owner {us} and mode 700",
                dir.display(),
                found.uid(),
                found.mode() & 0o7777
            )));
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// The path of the artifact of this module for this engine.
    pub(super) fn path(&self, engine: &Engine, module: &[u8]) -> PathBuf {
        let mut configuration = DefaultHasher::new();
        // It includes the version of wasmtime and the features of this CPU.
        engine.precompile_compatibility_hash().hash(&mut configuration);
        let mut key = Sha256::new();
        key.update(configuration.finish().to_le_bytes());
        key.update(module);
        let name = Hex(key.finalize()).to_string();
        self.dir.join(name)
    }

    /// The artifact at `path`, or `None` if it is absent or damaged.
    pub(super) fn get(path: &Path) -> Option<Vec<u8>> {
        let mut artifact = fs::read(path).ok()?;
        // Files that were not used for long may be removed. If the time cannot be set, the module may have to be compiled again.
        let _ = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
        let checksum: Vec<u8> = artifact.drain(..CHECKSUM_BYTES.min(artifact.len())).collect();
        (Sha256::digest(&artifact)[..] == checksum[..]).then_some(artifact)
    }

    /// Stores the artifact atomically.
    pub(super) fn put(path: &Path, artifact: &[u8]) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let temporary = path.with_extension(format!("{}-{}", process::id(), NEXT.fetch_add(1, Relaxed)));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let written = io::Write::write_all(&mut file, &Sha256::digest(artifact))
            .and_then(|()| io::Write::write_all(&mut file, artifact))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // Best effort: the file is ours and incomplete, and is not read under this name.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}
