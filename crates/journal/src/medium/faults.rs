//! The failures of a simulated disk.

use super::{Region, bus};
use std::{
    ops::Range,
    sync::{Arc, Condvar, Mutex, Weak},
};

/// Ranges that a disk can no longer read.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Ranges of files. Mappings still show their content, unless they are set to fault, so that a test can detect code that relies on mappings.
    ranges: Vec<(String, Range<u64>)>,
    /// Mappings, with the inodes of their files.
    mapped: Vec<(u64, Weak<Region>)>,
}

impl Unreadable {
    pub fn add(&mut self, name: &str, range: Range<u64>) {
        self.ranges.push((name.into(), range));
    }

    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    pub fn has(&self, is_of: impl Fn(&str) -> bool, range: Range<u64>) -> bool {
        let touches = |other: &Range<u64>| range.start < other.end && other.start < range.end;
        self.ranges.iter().any(|(name, other)| is_of(name) && touches(other))
    }

    pub fn watch(&mut self, inode: u64, region: &Arc<Region>) {
        self.mapped.retain(|(_, region)| region.strong_count() > 0);
        self.mapped.push((inode, Arc::downgrade(region)));
    }

    /// Lets a range of every mapping of a file fault, as a page does that cannot be read.
    pub fn fault(&self, inode: u64, range: &Range<u64>) {
        for region in self.mapped.iter().filter(|(of, _)| *of == inode).filter_map(|(_, region)| region.upgrade()) {
            bus::make_fault(&region, range.clone());
        }
    }
}

/// A call that a disk may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A file or a folder is opened, to be flushed.
    Open,
    /// A file is opened, to be mapped.
    Map,
    /// Bytes are written through a file.
    Write,
    /// A range gets storage, or a file is made.
    Allocate,
    /// A file's bytes are made durable.
    Flush,
    /// A folder's names are made durable.
    FlushNames,
    /// The new content of a file that is to be replaced is written and flushed, under another name.
    Replace,
    /// A name is changed or removed.
    Rename,
}

/// How a call ends.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Well.
    None,
    /// It succeeds, but only after the flag is set; other calls continue meanwhile.
    Stall(Arc<(Mutex<bool>, Condvar)>),
    /// With this error number, and nothing done. A flush that fails leaves its data unwritten, and the next one does not
    /// know of it.
    Error(i32),
    /// At most this number of bytes is written; a call that writes nothing succeeds.
    Short(usize),
}

/// Decides how each call ends. Called by every process of the machine, in the order of their calls.
pub type Faults = Box<dyn FnMut(Call) -> Fault + Send>;
