// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! The messages of the protocol, by section of `spec/protocol/wire.md`.

mod changes;
mod clusters;
mod coding;
mod connection;
mod devices;
mod links;
mod objects;
mod records;
mod tails;
mod tasks;

pub use changes::*;
pub use clusters::*;
pub use connection::*;
pub use devices::*;
pub use links::*;
pub use objects::*;
pub use records::*;
pub use tails::*;
pub use tasks::*;

/// Calls the macro `$then` with the message that has the number `$kind`; without one, the value is `$otherwise`. For tests.
#[macro_export]
macro_rules! message_of_type {
    ($kind:expr, $then:ident, $otherwise:expr) => {
        match $kind {
            1 => $then!(Hello),
            2 => $then!(Welcome),
            3 => $then!(Failure),
            4 => $then!(Ping),
            5 => $then!(Pong),
            6 => $then!(Challenge),
            7 => $then!(Present),
            16 => $then!(Append),
            17 => $then!(Appended),
            18 => $then!(AppendMany),
            19 => $then!(AppendedMany),
            20 => $then!(Get),
            21 => $then!(Record),
            22 => $then!(Range),
            23 => $then!(Records),
            24 => $then!(Latest),
            25 => $then!(Seqno),
            26 => $then!(Tail),
            27 => $then!(Credit),
            28 => $then!(Cancel),
            29 => $then!(Ended),
            30 => $then!(CreateLog),
            31 => $then!(Done),
            32 => $then!(RemoveLog),
            34 => $then!(Show),
            35 => $then!(Document),
            44 => $then!(Redeem),
            45 => $then!(Redeemed),
            48 => $then!(Link),
            49 => $then!(Linked),
            50 => $then!(Deliver),
            51 => $then!(Delivered),
            52 => $then!(Attach),
            53 => $then!(Attached),
            54 => $then!(Entries),
            55 => $then!(Entered),
            56 => $then!(Table),
            57 => $then!(OfTable),
            64 => $then!(Session),
            65 => $then!(Opened),
            66 => $then!(Call),
            67 => $then!(Returned),
            68 => $then!(Raised),
            70 => $then!(Invoke),
            71 => $then!(Invoked),
            72 => $then!(Revoke),
            73 => $then!(Revoked),
            84 => $then!(Repair),
            96 => $then!(GroupMessages),
            97 => $then!(JoinCluster),
            98 => $then!(CreateTopic),
            99 => $then!(PublishTopic),
            100 => $then!(GetTopic),
            101 => $then!(RangeTopic),
            102 => $then!(LatestTopic),
            103 => $then!(SubscribeTopic),
            104 => $then!(UnsubscribeTopic),
            105 => $then!(FeedTopic),
            106 => $then!(UnfeedTopic),
            107 => $then!(LeadGroup),
            108 => $then!(RemoveHost),
            109 => $then!(PreferSite),
            110 => $then!(Manage),
            111 => $then!(InvokeFunction),
            112 => $then!(InvokedFunction),
            113 => $then!(Upload),
            140 => $then!(SetLog),
            141 => $then!(CancelRun),
            146 => $then!(SetVoters),
            147 => $then!(CreateGroup),
            148 => $then!(RemoveGroup),
            153 => $then!(MirrorTopic),
            154 => $then!(UnmirrorTopic),
            155 => $then!(RemoveTopic),
            156 => $then!(FollowTables),
            157 => $then!(TableBatches),
            158 => $then!(LoadTable),
            159 => $then!(LoadedTable),
            _ => $otherwise,
        }
    };
}
