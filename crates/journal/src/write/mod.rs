//! Writing: the lock, the batch, the flush, and room for more.

pub(crate) mod cataloged;
#[allow(unsafe_code)]
pub(crate) mod commit;
pub(crate) mod committed;
mod entries;
pub(crate) mod flush;
#[allow(unsafe_code)]
pub(crate) mod lock;
pub(crate) mod pins;
pub(crate) mod prepare;
pub(crate) mod retention;
pub(crate) mod standing;
pub(crate) mod waiters;
