//! The protocol between a client and a host, and between two hosts: `spec/protocol/wire.md`.
//!
//! [`frame`] knows how frames follow one another in a byte stream; [`message`] and [`link`] what stands in them.

mod frame;
mod link;
mod message;
mod object;
mod record;
mod strict;
mod topic;

pub use frame::{
    FRAME_MAX_BYTES, FRAME_OVERHEAD_BYTES, Frame, HELLO_MAX_BYTES, Heading, Message, PREFACE, encode, split,
};
pub use link::{Deliver, Delivered, Item, Link, Linked, PathStep, Refused};
pub use message::{SLOTS, VERSION, Append, AppendMany, Appended, AppendedMany, Cancel, CancelRun, Challenge, CreateLog, Credit, Document, Done, Ended, Failure, Get, Hello, Latest, NewRecord, Offer, Ping, Pong, Present, Range, Redeem, Redeemed, RemoveLog, Repair, Seqno, SetLog, Show, Tail, Welcome,
};
pub use object::{Call, Invoke, Invoked, Opened, Raised, Returned, Revoke, Revoked, Session};
pub use record::{Record, Records};
pub use serde_bytes::Bytes;
pub use topic::{
    CreateTopic, FeedTopic, GetTopic, GroupMessage, GroupMessages, JoinCluster, LatestTopic, LeadGroup, PreferSite,
    PublishTopic, RangeTopic, RemoveHost, SubscribeTopic, UnfeedTopic, UnsubscribeTopic,
};
