//! Messages between two hosts: numbered streams of records between namespaces.
//!
//! The sender assigns numbers; the receiver commits a delivery and its last number in one batch, so that after a crash a stream resumes
//! exactly where it stopped.

use super::Message;
use crate::{EventId, Hlc};
use serde::{Deserialize, Serialize};

/// One log that a stream's records came through.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathStep {
    /// The namespace's identity.
    pub namespace: u64,
    /// The log in it.
    pub log: String,
}

/// One of the lives of a namespace: every start of its host begins one. Copies of a namespace have different lives from the moment when
/// they were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Life {
    /// How many lives there were up to this one.
    pub number: u64,
    /// A random number, which no other life has.
    pub id: u64,
}

/// Opens a stream into the connection's namespace. Its request number names the stream in [`Deliver`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link<'b> {
    /// The stream's name, unique within the namespace it comes from.
    pub stream: &'b str,
    /// The identity of the namespace it comes from.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The log that all of its records go to; none if each names its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<&'b str>,
    /// Where its records came through, the farthest first. A stream that would come through its own target is refused.
    #[serde(default)]
    pub path: Vec<PathStep>,
    /// The life of the namespace it comes from; none from a version that counts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
    /// The life in the answer to an earlier request is none of the sender's: the receiver has records of another copy of the namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forked: bool,
}

impl Message for Link<'_> {
    const TYPE: u8 = 48;
}

/// The answer to [`Link`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    /// The last number that was committed; 0 if nothing ever came.
    pub number: u64,
    /// The receiving namespace's identity.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The life of the sending namespace in which the last committed number was sent, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<Life>,
}

impl Message for Linked {
    const TYPE: u8 = 49;
}

/// The next records of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deliver<'b> {
    /// The request number of its [`Link`].
    pub link: u64,
    /// The number of the first item; the others follow without gap.
    pub first: u64,
    /// Numbers below `first` that were never sent are known to be lost at the source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap: bool,
    /// The records.
    #[serde(borrow)]
    pub items: Vec<Item<'b>>,
}

impl Message for Deliver<'_> {
    const TYPE: u8 = 50;
}

/// A record on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item<'b> {
    /// The log it goes to.
    pub log: &'b str,
    /// Its bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
    /// Its id at the source, which is its cause at the target.
    pub id: EventId,
    /// When it was appended at the source.
    pub hlc: Hlc,
    /// A function that it is to run besides those bound to its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<&'b str>,
    /// Takes its number and nothing else: what it was is a dead letter at the source.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
}

/// The answer to [`Deliver`], once it is durable: everything up to this number is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// The last number that was committed.
    pub number: u64,
    /// Why the next one was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

impl Message for Delivered {
    const TYPE: u8 = 51;
}

/// Why an item was not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The stable code, such as `MR2101`.
    pub code: String,
    /// The description of the error.
    pub detail: String,
    /// When it makes sense to try again; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u32>,
}
