//! State besides the topics that the commands of a group change.

use millrace_wire::{Code, Result};

/// State that a group keeps on all its replicas, and that this crate does not know. An implementation must depend only on its state and the
/// command, so that every replica has the same state after the same entry.
pub trait Machine: Send {
    /// Applies a command. Each is applied once.
    fn apply(&mut self, command: &[u8]);

    /// The bytes of the state, for a snapshot; empty for the initial state.
    fn encode(&self) -> Vec<u8>;

    /// Whether these bytes are a valid state.
    fn check(&self, bytes: &[u8]) -> Result<()>;

    /// Replaces the state by that of these bytes, which were checked.
    fn restore(&mut self, bytes: &[u8]);
}

/// For groups that have topics only.
#[derive(Debug)]
pub struct Without;

impl Machine for Without {
    fn apply(&mut self, _: &[u8]) {}

    fn encode(&self) -> Vec<u8> {
        Vec::new()
    }

    fn check(&self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        Err(Code::GroupLogDamaged.error("a snapshot has state besides topics, which this group does not keep"))
    }

    fn restore(&mut self, _: &[u8]) {}
}
