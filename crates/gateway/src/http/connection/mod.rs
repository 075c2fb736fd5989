//! From the bytes of a connection to its requests.

pub(super) mod body;
pub(super) mod cors;
pub(super) mod guard;
pub(super) mod watched;
