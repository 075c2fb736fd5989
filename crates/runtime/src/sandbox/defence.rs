//! The defences of a sandbox, by name, so that tests can remove one and verify that the attack then succeeds.

/// One defence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Defence {
    /// A root directory of its own, with few of the host's files.
    Root = 1,
    /// A view of its own processes only.
    Processes = 1 << 1,
    /// A network without interfaces.
    Network = 1 << 2,
    /// The list of system calls.
    Syscalls = 1 << 3,
    /// Landlock.
    Landlock = 1 << 4,
    /// The limit of processes.
    ProcessLimit = 1 << 5,
    /// A user id of its own, or no capabilities.
    Identity = 1 << 6,
    /// The limit of the temporary files.
    Temporary = 1 << 7,
    /// The limit of memory of all processes together, shared memory included.
    Memory = 1 << 8,
    /// The end of processes that a run left behind.
    Orphans = 1 << 9,
}

impl Defence {
    /// Whether it is active, where `without` are the removed ones. Only test builds remove any.
    pub(super) fn stands(self, without: u32) -> bool {
        !cfg!(debug_assertions) || without & self as u32 == 0
    }
}
