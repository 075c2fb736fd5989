//! How a simulated disk refuses.

use std::sync::{Arc, Condvar, Mutex};

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
    /// Well, but not before somebody sets the flag; other calls go on meanwhile.
    Stall(Arc<(Mutex<bool>, Condvar)>),
    /// With this error number, and nothing done. A flush that fails leaves its data unwritten, and the next one does not
    /// know of it.
    Error(i32),
    /// At most so many bytes are written; for a call that writes none, well.
    Short(usize),
}

/// Decides how each call ends. Called by every process of the machine, in the order of their calls.
pub type Faults = Box<dyn FnMut(Call) -> Fault + Send>;
