//! What keeps a function from everything that is not its own.

#[allow(unsafe_code)]
pub(crate) mod system;
