//! The protocol between a client and a host, and between two hosts: `spec/protocol/wire.md`.
//!
//! [`frame`] splits a byte stream into frames; [`message`] and [`link`] define their contents.

mod device;
mod fence;
mod frame;
mod link;
mod manage;
mod message;
mod object;
mod record;
mod strict;
mod topic;

pub use device::{Attach, Attached, Entered, Entries};
pub use fence::{FENCE_NAME_MAX_BYTES, Fence};
pub use frame::{
    FRAME_MAX_BYTES, FRAME_OVERHEAD_BYTES, Frame, HELLO_MAX_BYTES, Heading, Message, PREFACE, encode, split,
};
pub use link::{Deliver, Delivered, Item, Life, Link, Linked, PathStep, Refused};
pub use manage::{InvokeFunction, InvokedFunction, Manage, UPLOAD_PART_MAX_BYTES, Upload};
pub use message::{
    Append, AppendMany, Appended, AppendedMany, Cancel, CancelRun, Challenge, CreateLog, Credit, Document, Done, Ended,
    Failure, Get, Hello, Latest, NewRecord, Offer, Ping, Pong, Present, Range, Redeem, Redeemed, RemoveLog, Repair,
    SLOTS, Seqno, SetLog, Show, Tail, VERSION, Welcome,
};
pub use object::{Call, Invoke, Invoked, Opened, Raised, Returned, Revoke, Revoked, Session};
pub use record::{Record, Records};
pub use serde_bytes::Bytes;
pub use topic::{
    CreateGroup, CreateTopic, FeedTopic, GetTopic, GroupMessage, GroupMessages, JoinCluster, LatestTopic, LeadGroup,
    MirrorTopic, PreferSite, PublishTopic, RangeTopic, RemoveGroup, RemoveHost, RemoveTopic, SetVoters, SubscribeTopic,
    UnfeedTopic, UnmirrorTopic, UnsubscribeTopic,
};
