//! Sealed files: derived data that is written as a whole, once, and never changed.
//!
//! They are in the folder of the arena, and any process may remove one at any time. A file that is not complete never gets its name. What is in
//! one has to be checked by those who read it: the journal knows only bytes.

use super::{arena, segments::io_error};
use crate::{
    journal::Inner,
    medium::{Medium, Region},
};
use millrace_wire::{Code, Result};
use std::{
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// All names begin with it, so that other strays can be told from them.
pub const SEALED_PREFIX: &str = "table-";
const FOLDER: &str = "index";
const BUFFER_BYTES: usize = 1 << 20;

/// A sealed file, mapped into memory.
#[derive(Clone)]
pub struct Sealed(Arc<Region>);

impl AsRef<[u8]> for Sealed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self` and is never retired; nobody writes to the file any more. If something cuts it short,
        // the handler of SIGBUS ends the process.
        unsafe { std::slice::from_raw_parts(self.0.base, self.0.bytes as usize) }
    }
}

/// A file that is being written.
struct Unsealed<'m> {
    medium: &'m dyn Medium,
    region: &'m Region,
    at: u64,
}

impl Write for Unsealed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.medium.write(self.region, self.at, bytes)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Removes what is neither the arena nor a sealed file. What a sealed file has was durable before the file was, so it stays.
pub(crate) fn remove_others(medium: &dyn Medium) {
    let names = medium.list(FOLDER).unwrap_or_default().into_iter();
    for name in names.filter(|name| path(name) != arena::NAME && !name.starts_with(SEALED_PREFIX)) {
        let _ = medium.remove(&path(&name)); // It only wastes space; the next unclean open tries again.
    }
}

/// The sealed files of a journal.
pub struct SealedFiles<'j>(&'j Inner);

impl<'j> SealedFiles<'j> {
    pub(crate) fn of(inner: &'j Inner) -> Self {
        Self(inner)
    }

    /// The names of all of them, and of those that were not completed.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let names = self.0.medium.list(FOLDER)?;
        Ok(names.into_iter().filter(|name| name.starts_with(SEALED_PREFIX)).collect())
    }

    /// Removes one; those who have it open keep it.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.0.medium.remove(&path(name))
    }

    /// Opens one.
    pub fn open(&self, name: &str) -> io::Result<Sealed> {
        let bytes = self.0.medium.identify(&path(name))?.1;
        self.0.medium.map(&path(name), bytes.max(1), false).map(Sealed)
    }

    /// Makes one of about so many bytes, whose name begins with [`SEALED_PREFIX`], durable. It replaces one of the same name. Refused if the
    /// disk is nearly full: what can be derived takes no storage that appends need.
    pub fn make(&self, name: &str, bytes: u64, fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        // One process may have the namespace open twice.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let inner = self.0;
        if inner.is_view {
            return Err(Code::ReadOnly.error("the namespace is only looked at"));
        }
        let room =
            inner.medium.space().map(|space| (space.available_bytes, space.needed_bytes(inner.segments.bytes())));
        if room.is_some_and(|(available, needed)| available < needed.saturating_add(bytes)) {
            return Err(Code::DiskFull.error(format!("{name}: about {bytes} bytes")));
        }
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let (medium, fresh) = (&*inner.medium, path(&format!("{name}.{}-{made}", std::process::id())));
        let mut write = || {
            medium.remove(&fresh)?;
            let region = medium.map(&fresh, 1, true)?;
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, Unsealed { medium, region: &region, at: 0 });
            fill(&mut out)?;
            out.flush()?;
            drop(out);
            medium.flush(&region)?;
            medium.rename(&fresh, &path(name))?;
            medium.flush_names(FOLDER).map_err(io::Error::from)
        };
        write().map_err(|error| {
            // Blocks that it got of a full disk are released.
            let _ = medium.remove(&fresh);
            io_error(name, &error)
        })
    }
}
