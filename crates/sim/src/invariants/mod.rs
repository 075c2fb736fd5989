//! The invariants of a group, one per file.

mod acknowledged;
mod agreement;
mod election;
mod matching;
mod reads;

pub use acknowledged::Acknowledged;
pub use agreement::Agreement;
pub use election::Election;
pub use matching::Matching;
pub use reads::Reads;
