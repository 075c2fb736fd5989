//! What stands between the bytes of a connection and the requests on it.

pub(super) mod body;
pub(super) mod cors;
pub(super) mod guard;
pub(super) mod watched;
