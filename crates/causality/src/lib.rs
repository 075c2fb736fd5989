//! What caused what: the events of any number of journals, in one order, and what follows from a change in the past.
//!
//! ```text
//!  journals' entries --> Builder --> Table (32 bytes a row, and indexes)
//!                                      |
//!                     History (any number of tables, causes found across them)
//!                        |           |            |              |
//!                     order        Tree         Graph        Discovery
//!                  every cause   of causes   of logs and   of the runs that a
//!                 before its      or effects  functions     correction reaches
//!                    effects
//! ```
//!
//! This crate is pure: it reads only its arguments and has no files, no network and no clock. So the same code works on a live namespace,
//! on a backup and on the journal of a dead machine.

#![deny(unsafe_code)]

mod definitions;
mod discover;
pub mod draw;
mod event;
mod graph;
mod history;
mod index;
mod merge;
mod repaired;
mod row;
mod table;
mod tree;

pub use definitions::Settings;
pub use discover::{Attempted, Candidate, Changes, Class, Discovery, Kept, Reason, Rewritten, discover};
pub use event::{Event, KeyedEvent};
pub use graph::{Edge, Flow, Graph, Node, NodeKind};
pub use history::{Cause, History, Place, Violation};
pub use merge::Merge;
pub use repaired::{Extent, Replay, Version};
pub use row::{KeyedRead, Read, Row};
pub use table::{Builder, Table};
pub use tree::{Branch, Link, Tree, TreeLimits};
