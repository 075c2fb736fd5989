//! The system below the journal: files that can be mapped and flushed, and a way to find out which processes are alive.
//!
//! [`FileMedium`] is the real one. Nothing above this folder opens a file.

#[allow(unsafe_code)]
pub(crate) mod bus;
mod faults;
#[allow(unsafe_code)]
mod file;
mod holder;

#[allow(unsafe_code)]
mod view;

pub use file::FileMedium;
pub use holder::Holder;
pub use view::ViewMedium;

pub(crate) use file::space_of;
pub mod sim;

use crate::space::Space;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32},
    },
};

/// One process's place among those that have the namespace open; 1 to [`SLOT_MAX`].
pub type Slot = u32;
/// The most processes that can have a namespace open at once.
pub const SLOT_MAX: Slot = 255;

/// A file mapped into memory, shared with every other process that maps it.
///
/// The address stays valid (it may read as zeros after [`Medium::retire`]) until the medium itself is dropped, so a reader
/// that lost a race with retention reads bytes that fail their checksum, never a fault.
#[derive(Debug)]
pub struct Region {
    /// The first byte.
    pub base: *mut u8,
    /// Bytes mapped.
    pub bytes: u64,
    /// Identity of the file behind it, stable across renames.
    pub identity: u64,
    pub(crate) fd: AtomicI32,
    /// Whether only its address is still in use, as one where zeros stand.
    pub(crate) retired: AtomicBool,
}

// SAFETY: a region is an address range and a descriptor; what may be done through it from several threads is decided by
// those who read and write the bytes, who use atomics or the journal's lock.
#[allow(unsafe_code)]
unsafe impl Send for Region {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Region {}

/// Why what is flushed by its name was not.
#[derive(Debug)]
pub enum NotFlushed {
    /// It could not be opened. The disk was asked for nothing, and nothing is lost.
    Unopened(io::Error),
    /// The disk refused.
    Refused(io::Error),
}

impl From<NotFlushed> for io::Error {
    fn from(error: NotFlushed) -> Self {
        match error {
            NotFlushed::Unopened(error) | NotFlushed::Refused(error) => error,
        }
    }
}

/// The file that says who has the namespace open is not the one that others hold.
#[derive(Debug)]
pub struct LockReplaced;

impl std::fmt::Display for LockReplaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the file `lock` was removed or replaced while another process has the namespace open")
    }
}

impl std::error::Error for LockReplaced {}

/// Where a namespace's files live. Names are relative, with `/` between folders.
pub trait Medium: Send + Sync {
    /// The whole content of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Replaces a file's content at once and durably: after a crash it is the old or the new content.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Maps a file of exactly `bytes`; creates it, or makes it longer with zeros, if `create` says so.
    fn map(&self, name: &str, bytes: u64, create: bool) -> io::Result<Arc<Region>>;
    /// Maps a file that will grow: this number of addresses, or fewer if this process may not reserve them. Addresses after the file's
    /// end are not accessed before [`Medium::extend`] has given them storage, here or in another process.
    fn map_within(&self, name: &str, reserved_bytes: u64, create: bool) -> io::Result<Arc<Region>>;
    /// Makes the file behind a region as long as `to`, with real storage from `from` on; what is new there is zero.
    fn extend(&self, region: &Region, from: u64, to: u64) -> io::Result<()>;
    /// Reads bytes through the file: what the disk cannot give is an error here, and would be a fault in a mapping.
    fn read_at(&self, region: &Region, at: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Writes the beginning of `bytes` through the file, at least one of them: all mappings show it at once. Returns how many it wrote;
    /// after an error it wrote none.
    fn write(&self, region: &Region, at: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Gives the range real storage holding zeros, so that writing there needs no allocation and cannot fail for want of room. The previous
    /// content is lost.
    fn allocate(&self, region: &Region, from: u64, to: u64) -> io::Result<()>;
    /// Gives the range real storage and leaves what is there.
    fn reserve_range(&self, region: &Region, from: u64, to: u64) -> io::Result<()>;
    /// The same for all of the file.
    fn reserve(&self, region: &Region) -> io::Result<()> {
        self.reserve_range(region, 0, region.bytes)
    }
    /// Makes the pages of the range present in this process, if the platform can; a hint.
    fn prefault(&self, region: &Region, from: u64, to: u64);
    /// Reads the pages of the range into the mapping, without a copy. False if the platform cannot, or if the disk did not give
    /// all of them: which, [`Medium::read_at`] tells.
    fn read_in(&self, _region: &Region, _from: u64, _to: u64) -> bool {
        false
    }
    /// The next range at or behind `from` that may hold something else than zeros, up to the end of the file. Looking at
    /// what lies between, which has no storage, would ask for some.
    fn next_data(&self, region: &Region, from: u64) -> (u64, u64) {
        (from, region.bytes)
    }
    /// Flushes everything written to the file. Two threads must not call it at once: the operating system reports a failure once per
    /// descriptor, and the other thread would get a success.
    fn flush(&self, region: &Region) -> io::Result<()>;
    /// The same of what was written through the mapping to a range of the file, and of nothing else: pages elsewhere stay as
    /// dirty, and as writable, as they are.
    fn flush_range(&self, region: &Region, from: u64, to: u64) -> io::Result<()>;
    /// The same, possibly during a [`Medium::flush`]: both get a failure.
    fn flush_beside(&self, name: &str) -> Result<(), NotFlushed>;
    /// Makes created, renamed and removed names in this folder durable.
    fn flush_names(&self, folder: &str) -> Result<(), NotFlushed>;
    /// Forgets what is cached and not on disk, as far as the platform can: what is read next comes from the disk.
    fn drop_cache(&self, name: &str);
    /// Ends the use of a region: frees its memory, and its file once the region is no longer referenced; its addresses stay readable.
    fn retire(&self, region: &Region);
    /// Whether the file behind a region has no name any more.
    fn is_removed(&self, region: &Region) -> bool;
    /// The identity of a file, as in [`Region::identity`], and its length in bytes.
    fn identify(&self, name: &str) -> io::Result<(u64, u64)>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; a missing file is not an error.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The size of the disk and its free space, if this is known.
    fn space(&self) -> Option<Space> {
        None
    }
    /// The names in a folder.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// Runs `f` while no other process is in such a section of this namespace.
    fn gate(&self, f: &mut dyn FnMut()) -> io::Result<()>;
    /// Takes a free slot for as long as this process lives or until [`Medium::detach`].
    fn attach(&self) -> io::Result<Option<Slot>>;
    /// Gives the slot back.
    fn detach(&self, slot: Slot);
    /// Whether the process that took the slot still lives and has it.
    fn is_alive(&self, slot: Slot) -> bool;
    /// Whether any process but this handle has the namespace open.
    fn has_others(&self) -> io::Result<bool>;
    /// Identifies the boot of the machine, 0 if it can't be told: state in mapped files is only coherent within one.
    fn boot(&self) -> u64;
    /// The process that took the slot, to be shown to a person, as far as the system tells.
    fn holder(&self, _slot: Slot) -> Option<Holder> {
        None
    }
    /// Microseconds since 1970 by the wall clock.
    fn wall_us(&self) -> u64;
    /// Whether the files are unchanged since they were read: false if this is a view and another process has opened them.
    fn is_undisturbed(&self) -> io::Result<bool> {
        Ok(true)
    }
    /// Whether the path that this was opened with still leads to it: false once it was removed, moved or replaced. If this cannot be
    /// determined, it is true.
    fn is_in_place(&self) -> bool {
        true
    }
    /// Whether this handle was inherited through a fork, and so is not this process's own.
    fn is_inherited(&self) -> bool;
}
