//! State besides the topics that the commands of a group change.

use millrace_wire::{Code, Result};

/// State that a group keeps on all its replicas, and that this crate does not know.
///
/// What an implementation does follows from its state and the command alone, so every replica has the same state behind the same entry.
pub trait Machine: Send {
    /// Applies a command. Each is applied once.
    fn apply(&mut self, command: &[u8]);

    /// The bytes of the state, for a snapshot; none for the state that it begins with.
    fn encode(&self) -> Vec<u8>;

    /// Whether these bytes are those of a state.
    fn check(&self, bytes: &[u8]) -> Result<()>;

    /// Takes up the state of these bytes, which were checked.
    fn restore(&mut self, bytes: &[u8]);
}

/// For groups that have topics alone.
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
