//! Replicas: tables with the records of a table of another namespace, its owner.
//!
//! ```text
//!  owner: its journal ── follow, load ──> gate ══ network ══> import ──> the replica's log, and _owner/N
//!                                                 (gateway)              in one batch
//! ```
//!
//! The batches of the owner's journal that changed any of the tables are followed in one order, and each is imported whole. So the replicas of
//! one owner show together a state that their owner had. A record keeps its seqno, which is the version of its key. A replica that begins, or
//! whose owner's journal no longer has the batches that it needs, is loaded: it gets the newest record of each key as of an entry, and shows
//! nothing until it has all of them. Meanwhile the other replicas of the owner stay at that entry.
//!
//! | log | its newest record |
//! |---|---|
//! | `_replica/TABLE` | TABLE is a replica: of which table of which owner, and whether it is loaded ([`Replica`]) |
//! | `_owner/N` | the address of an owner, and up to which entry of its journal it is imported ([`Owner`]) |

mod import;
mod live;
mod source;
mod state;

pub use import::{Imported, Loading};
pub(crate) use live::LiveOwners;
pub use live::{LiveOwner, Reached, ReplicaStat, behind};
pub use source::{BATCH_TABLES_MAX, Batches, Followed, FollowedRecord, Loaded};
pub use state::{Owner, Replica, ReplicaStage, Stopped};
pub(crate) use state::{check_note, mark, names};

/// Tables of one owner that are mirrored.
pub const REPLICAS_MAX: usize = BATCH_TABLES_MAX;
