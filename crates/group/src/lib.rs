//! A replicated group and its topics, without files, network or clock.
//!
//! ```text
//!  submit, step, tick ──> Replica ──take──> Turn { writes, state: to be written   before_disk, after_disk: to be sent }
//!                            │                 │ written, flushed by its caller
//!                            v                 v
//!                          Topics <──apply── committed entries ──> outcomes of local submissions, reads that may be answered
//! ```
//!
//! A group is a Raft group: one ordered sequence of commands, which is the same on each of its hosts. Its topics result from the commands,
//! so every replica has the same topics with the same records in the same order. Only [`Replica`] uses the Raft library; no other crate
//! does.
//!
//! Besides its topics a group has a [`Machine`]: state that this crate does not know, which commands change, in the same order on every
//! replica.
//!
//! A cluster has several groups. The first one also has the [`Directory`]: which groups there are, which hosts keep them, and which group
//! has which topic. All hosts follow the first group, so each of them finds every topic by itself.

mod command;
mod directory;
pub mod goal;
mod index;
mod leaders;
mod machine;
pub mod plan;
mod replica;
mod snapshot;
mod topics;

pub use command::{
    Action, Command, Durability, Engine, LABELS_MAX, Labels, Member, Origin, Stamp, TOPIC_NAME_MAX_BYTES, check_labels,
    check_topic,
};
pub use directory::{Directory, GroupSpec, MAIN, MAIN_NAME, OBJECTS_NAME};
pub use index::{Form, Payloads, Place, Proposal, State};
pub use leaders::Leaders;
pub use machine::{Machine, Without};
pub use replica::{
    Batch, Beat, Completed, Envelope, Limits, Options, Placement, Recovered, Released, Replica, Role, Turn, Unflushed,
    Written,
};
pub use snapshot::{Mark, Write};
pub use topics::{Feed, Subscription, Topic, Topics};
