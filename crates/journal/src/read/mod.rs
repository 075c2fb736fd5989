//! Reading: without a lock, without blocking a writer, every byte checked.

pub(crate) mod check;
pub(crate) mod correct;
mod find;
pub(crate) mod get;
pub(crate) mod scan;
pub(crate) mod wait;
