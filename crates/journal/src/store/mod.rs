//! The files of a namespace: what each one holds and how it is mapped.
//!
//! | file | what | truth? |
//! |---|---|---|
//! | `manifest` | identity, epoch, definitions, first segment | yes; replaced atomically |
//! | `segments/N` | the entries | yes; append-only |
//! | `index/arena` | logs' rings of positions, functions' items and counters | no; rebuilt from the segments |
//! | `index/table-*` | sealed files: what the crate `tables` derives from the journal | no |
//! | `control` | the lock and the watermarks that live processes share | no; rebuilt when no process is alive |

#[allow(unsafe_code)]
pub(crate) mod arena;
#[allow(unsafe_code)]
pub(crate) mod control;
pub(crate) mod index;
pub mod json;
pub(crate) mod manifest;
pub(crate) mod part;
mod ring;
#[allow(unsafe_code)]
pub(crate) mod sealed;
#[allow(unsafe_code)]
pub(crate) mod segments;
pub(crate) mod slot;
