//! Read-only access to a namespace's files: writes stay in this process's memory.
//!
//! Segments are mapped privately, so a page is copied when it is written. All other files are read once and are in memory from then on. No
//! other process may use the namespace meanwhile: [`ViewMedium::open`] refuses one that is in use, and [`Medium::is_undisturbed`] checks
//! that no process has opened it since.

use super::{
    FileMedium, Medium, NotFlushed, Region, Slot,
    file::{extend_memory, map_memory_within, map_private, next_data, read_at, retire_region},
};
use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

const CONTROL: &str = "control";

/// A namespace's directory, to look at.
pub struct ViewMedium {
    dir: PathBuf,
    /// The real one, to ask who has the namespace open; a copy may lack what that needs.
    real: Option<FileMedium>,
    /// The control page as it was found.
    control: Vec<u8>,
    /// Files and folders of a namespace, and what they are called there, if that is something else.
    names: &'static [(&'static str, &'static str)],
    /// Files that differ from those in the directory, by content or because they are gone.
    written: Mutex<BTreeMap<String, Option<Written>>>,
    identities: AtomicU64,
}

/// A file that lives in memory.
enum Written {
    Bytes(Vec<u8>),
    Mapped(Arc<Region>),
}

impl ViewMedium {
    /// Opens a view of a directory; an error if a process has the namespace open. `names` has the names of files that differ from those in
    /// a namespace.
    pub fn open(dir: &Path, names: &'static [(&'static str, &'static str)]) -> io::Result<Self> {
        let real = if dir.join("lock").exists() { FileMedium::open(dir, false).ok() } else { None };
        let view = Self {
            dir: dir.to_owned(),
            real,
            names,
            control: fs::read(dir.join(CONTROL)).unwrap_or_default(),
            written: Mutex::default(),
            identities: AtomicU64::new(1 << 63),
        };
        if !view.is_undisturbed()? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(view)
    }

    fn path(&self, name: &str) -> PathBuf {
        let (first, rest) = name.split_once('/').map_or((name, None), |(first, rest)| (first, Some(rest)));
        let first = self.names.iter().find(|(known, _)| *known == first).map_or(first, |(_, called)| called);
        rest.map_or_else(|| self.dir.join(first), |rest| self.dir.join(first).join(rest))
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<String, Option<Written>>> {
        self.written.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A file of `bytes` in memory that begins with `content`.
    fn in_memory(&self, bytes: u64, content: &[u8]) -> io::Result<Arc<Region>> {
        let identity = self.identities.fetch_add(1, Ordering::Relaxed);
        let region = map_private(None, bytes, identity)?;
        self.write(&region, 0, &content[..content.len().min(bytes as usize)])?;
        Ok(region)
    }
}

impl Medium for ViewMedium {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        match self.written().get(name) {
            Some(Some(Written::Bytes(bytes))) => Ok(bytes.clone()),
            Some(_) => Err(io::ErrorKind::NotFound.into()),
            None => fs::read(self.path(name)),
        }
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.written().insert(name.into(), Some(Written::Bytes(content.to_vec())));
        Ok(())
    }

    fn map(&self, name: &str, bytes: u64, create: bool) -> io::Result<Arc<Region>> {
        match self.written().get(name) {
            Some(Some(Written::Mapped(region))) if region.bytes >= bytes => return Ok(region.clone()),
            Some(_) if !create => return Err(io::ErrorKind::NotFound.into()),
            _ => {}
        }
        let path = self.path(name);
        let is_removed = self.written().get(name).is_some_and(Option::is_none);
        let there = fs::metadata(&path).ok().filter(|_| !is_removed);
        let region = match &there {
            None if !create => return Err(io::ErrorKind::NotFound.into()),
            Some(metadata) if metadata.len() >= bytes && name != CONTROL => {
                let file: OwnedFd = fs::File::open(&path)?.into();
                let identity = std::os::unix::fs::MetadataExt::ino(metadata);
                map_private(Some(file), bytes, identity)?
            }
            Some(metadata) if metadata.len() < bytes && !create => return Err(io::ErrorKind::UnexpectedEof.into()),
            // Bytes after a file's end read as zeros.
            Some(_) => self.in_memory(bytes, &fs::read(&path)?)?,
            None => self.in_memory(bytes, &[])?,
        };
        self.written().insert(name.into(), Some(Written::Mapped(region.clone())));
        Ok(region)
    }

    /// The existing content is not used: a view rebuilds it.
    fn map_within(&self, name: &str, reserved_bytes: u64, create: bool) -> io::Result<Arc<Region>> {
        if !create {
            return Err(io::ErrorKind::NotFound.into());
        }
        let identity = self.identities.fetch_add(1, Ordering::Relaxed);
        let region = map_memory_within(reserved_bytes, identity)?;
        self.written().insert(name.into(), Some(Written::Mapped(region.clone())));
        Ok(region)
    }

    fn extend(&self, region: &Region, _from: u64, to: u64) -> io::Result<()> {
        extend_memory(region, to)
    }

    fn read_at(&self, region: &Region, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        if region.fd.load(Ordering::Relaxed) >= 0 {
            return read_at(region, at, bytes);
        }
        assert!(at + bytes.len() as u64 <= region.bytes);
        // SAFETY: within the mapping (asserted), which is memory of this process.
        unsafe { std::ptr::copy_nonoverlapping(region.base.add(at as usize), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn write(&self, region: &Region, at: u64, bytes: &[u8]) -> io::Result<usize> {
        assert!(at + bytes.len() as u64 <= region.bytes);
        // SAFETY: within the mapping (asserted), which is private and writable; the caller is the only writer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), region.base.add(at as usize), bytes.len()) };
        Ok(bytes.len())
    }

    fn allocate(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        assert!(from <= to && to <= region.bytes);
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(region.base.add(from as usize), 0, (to - from) as usize) };
        Ok(())
    }

    fn reserve_range(&self, _region: &Region, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }

    fn prefault(&self, _region: &Region, _from: u64, _to: u64) {}

    /// Reading a hole asks some file systems for storage. Nothing is written there: no view is appended to.
    fn next_data(&self, region: &Region, from: u64) -> (u64, u64) {
        if region.fd.load(Ordering::Relaxed) < 0 { (from, region.bytes) } else { next_data(region, from) }
    }

    fn flush(&self, _region: &Region) -> io::Result<()> {
        Ok(())
    }

    fn flush_range(&self, _region: &Region, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }

    fn flush_beside(&self, _name: &str) -> Result<(), NotFlushed> {
        Ok(())
    }

    fn flush_names(&self, _folder: &str) -> Result<(), NotFlushed> {
        Ok(())
    }

    fn drop_cache(&self, _name: &str) {}

    fn retire(&self, region: &Region) {
        retire_region(region);
    }

    fn is_removed(&self, _region: &Region) -> bool {
        false
    }

    fn identify(&self, name: &str) -> io::Result<(u64, u64)> {
        match self.written().get(name) {
            Some(Some(Written::Mapped(region))) => Ok((region.identity, region.bytes)),
            Some(Some(Written::Bytes(bytes))) => Ok((0, bytes.len() as u64)),
            Some(None) => Err(io::ErrorKind::NotFound.into()),
            None => {
                let metadata = fs::symlink_metadata(self.path(name))?;
                Ok((std::os::unix::fs::MetadataExt::ino(&metadata), metadata.len()))
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut written = self.written();
        let file = written.insert(from.into(), None).flatten().ok_or(io::ErrorKind::NotFound)?;
        written.insert(to.into(), Some(file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.written().insert(name.into(), None);
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let found: io::Result<Vec<String>> = fs::read_dir(self.path(folder))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect();
        let mut names = found?;
        let written = self.written();
        names.retain(|name| !written.get(&format!("{folder}/{name}")).is_some_and(Option::is_none));
        for (path, file) in written.iter().filter(|(_, file)| file.is_some()) {
            if let Some((within, name)) = path.rsplit_once('/')
                && within == folder
                && file.is_some()
                && !names.iter().any(|known| known == name)
            {
                names.push(name.into());
            }
        }
        Ok(names)
    }

    fn gate(&self, f: &mut dyn FnMut()) -> io::Result<()> {
        f();
        Ok(())
    }

    fn attach(&self) -> io::Result<Option<Slot>> {
        Ok(Some(1))
    }

    fn detach(&self, _slot: Slot) {}

    fn is_alive(&self, slot: Slot) -> bool {
        slot == 1
    }

    fn has_others(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn boot(&self) -> u64 {
        0
    }

    fn wall_us(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.as_micros() as u64
    }

    /// Anyone who opens the namespace writes to its control page.
    fn is_undisturbed(&self) -> io::Result<bool> {
        let in_use = self.real.as_ref().map_or(Ok(false), Medium::has_others)?;
        Ok(!in_use && fs::read(self.dir.join(CONTROL)).unwrap_or_default() == self.control)
    }

    fn is_inherited(&self) -> bool {
        false
    }
}
