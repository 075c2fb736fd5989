//! Records as they are in messages.

use super::Message;
use crate::{EventId, Hlc};
use serde::{Deserialize, Serialize};

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<'b> {
    /// Its sequence number in its log.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
    /// When it was appended.
    pub hlc: Hlc,
    /// Its cause.
    #[serde(default, skip_serializing_if = "no_event")]
    pub cause: EventId,
    /// Its bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
}

fn no_event(id: &EventId) -> bool {
    id.is_none()
}

impl Message for Record<'_> {
    const TYPE: u8 = 21;
}

/// Records of one log, in order. Answers [`super::Range`] once and [`super::Tail`] again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records<'b> {
    /// Which log of this name it is: one that was removed and made again has another number.
    pub incarnation: u32,
    /// The records.
    #[serde(borrow)]
    pub records: Vec<Record<'b>>,
    /// The sequence number at which to continue.
    pub next: u64,
}

impl Message for Records<'_> {
    const TYPE: u8 = 23;
}
