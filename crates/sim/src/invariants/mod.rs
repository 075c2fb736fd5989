//! What is always true of a group, each in a file of its own.

mod acknowledged;
mod agreement;
mod election;
mod matching;

pub use acknowledged::Acknowledged;
pub use agreement::Agreement;
pub use election::Election;
pub use matching::Matching;
