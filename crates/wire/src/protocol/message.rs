//! Messages between a client and a host. `spec/protocol/wire.md` describes the protocol.

use super::{Fence, Message};
use crate::{Durability, EventId, Hlc};
use serde::{Deserialize, Serialize};

/// The version of the protocol.
pub const VERSION: u16 = 2;
/// How many capabilities a connection may have at once: the slots of [`super::Heading::slot`].
pub const SLOTS: usize = 16;

macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $type:ident $(<$life:lifetime>)? {
        $($(#[$field:meta])* $name:ident: $of:ty,)*
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $type $(<$life>)? { $($(#[$field])* pub $name: $of,)* }

        impl Message for messages!(@of $type $($life)?) {
            const TYPE: u8 = $number;
        }
    )* };
    (@of $type:ident $life:lifetime) => { $type<'_> };
    (@of $type:ident) => { $type };
}

messages! {
    /// The first frame of a connection, from the client.
    1 Hello<'b> {
        /// The lowest version of the protocol that the client speaks.
        oldest: u16,
        /// The highest.
        newest: u16,
        /// The namespace of the connection; empty for the only one of the host.
        namespace: &'b str,
        /// The client's name and version, for people.
        client: &'b str,
        /// The client's capabilities, at most [`SLOTS`]: they fill the slots from 0 on.
        #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
        capabilities: Vec<Offer<'b>>,
    }

    /// The host's answer to [`Hello`]. From now on requests may be sent without waiting for answers.
    2 Welcome<'b> {
        /// The version that both sides use from now on.
        version: u16,
        /// The host's name and version, for people.
        host: &'b str,
        /// The namespace's name on this host.
        name: &'b str,
        /// The namespace's identity.
        namespace: u64,
        /// Its epoch.
        epoch: u32,
        /// The longest frame that the host accepts.
        frame_max_bytes: u32,
        /// The longest record that the namespace accepts.
        record_max_bytes: u32,
        /// How many requests may be unanswered: at this number, the host stops reading until one is answered.
        requests_max: u32,
        /// The default durability of appends.
        durability: Durability,
    }

    /// A request failed; under request 0, the connection failed and is closed.
    3 Failure<'b> {
        /// The stable code, such as `MR2101`.
        code: &'b str,
        /// The description of the failure.
        detail: &'b str,
        /// The time after which a retry may succeed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u32>,
    }

    /// Sent by either side to check that the other one answers.
    4 Ping {}

    /// The answer to [`Ping`].
    5 Pong {}

    /// The answer to [`Hello`] where proofs have to be bound to a value that the host chooses: the client sends [`Hello`] again.
    6 Challenge<'b> {
        /// The value to which the proofs are bound, 16 bytes.
        #[serde(borrow, with = "serde_bytes")]
        challenge: &'b [u8],
    }

    /// Fills a slot with a capability, or replaces the one in it.
    7 Present<'b> {
        /// Which slot, 0 to 15.
        slot: u8,
        /// The capability's body.
        #[serde(borrow, with = "serde_bytes")]
        capability: &'b [u8],
        /// The proof that the client has its signature, 32 bytes.
        #[serde(borrow, with = "serde_bytes")]
        proof: &'b [u8],
    }

    /// Appends one record.
    16 Append<'b> {
        /// The log.
        log: &'b str,
        /// The record's bytes.
        #[serde(borrow, with = "serde_bytes")]
        data: &'b [u8],
        /// The durability that the answer requires; by default the namespace's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durability: Option<Durability>,
        /// A function that runs for the record, in addition to those bound to its log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        function: Option<&'b str>,
        /// The idempotency key: an append with a known key gets the answer of the earlier append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<&'b str>,
        /// A token of a lock: the append is refused if a higher one was seen.
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence<'b>>,
    }

    /// The answer to [`Append`].
    17 Appended {
        /// The record's sequence number.
        seqno: u64,
        /// Its id.
        id: EventId,
    }

    /// Appends all of these records, or none.
    18 AppendMany<'b> {
        /// The records, at most 1024.
        #[serde(borrow)]
        records: Vec<NewRecord<'b>>,
        /// The durability that the answer requires; by default the namespace's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durability: Option<Durability>,
        /// The idempotency key of the batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<&'b str>,
        /// A token of a lock: the append is refused if a higher one was seen.
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence<'b>>,
    }

    /// The answer to [`AppendMany`].
    19 AppendedMany {
        /// The results, in the order of the records.
        records: Vec<Appended>,
    }

    /// Reads one record, or waits for it.
    20 Get<'b> {
        /// The log.
        log: &'b str,
        /// The record; 0 for the newest.
        seqno: u64,
        /// How long to wait for it, if it does not exist yet.
        #[serde(default)]
        wait_ms: u32,
        /// The durability that the answer requires; by default the namespace's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durability: Option<Durability>,
    }

    /// Reads a range of records.
    22 Range<'b> {
        /// The log.
        log: &'b str,
        /// The first record; an error if it has left the log's history.
        from: u64,
        /// The maximum number of records; the answer has as many as fit a frame, and the position at which to continue.
        count: u32,
        /// The durability that the answer requires; by default the namespace's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durability: Option<Durability>,
    }

    /// Requests the newest sequence number, or waits until it is above a given one.
    24 Latest<'b> {
        /// The log.
        log: &'b str,
        /// Wait until it is above this.
        #[serde(default)]
        above: u64,
        /// How long to wait at most; then the answer is the current number.
        #[serde(default)]
        wait_ms: u32,
        /// The durability that the answer requires; by default the namespace's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durability: Option<Durability>,
    }

    /// The answer to [`Latest`].
    25 Seqno {
        /// The newest sequence number, 0 if there is none.
        seqno: u64,
    }

    /// Follows a log: the host sends [`super::Records`] under this request until it is cancelled.
    26 Tail<'b> {
        /// The log.
        log: &'b str,
        /// The first record; 0 for records that are appended from now on.
        from: u64,
        /// The incarnation that the cursor belongs to; 0 if unknown.
        #[serde(default)]
        incarnation: u32,
        /// How many records the host may send before it gets more credit.
        credit: u32,
        /// The durability that a record requires before it is sent; by default the namespace's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        durability: Option<Durability>,
    }

    /// More credit for the [`Tail`] with the same request number. Has no answer.
    27 Credit {
        /// How many more records the host may send.
        records: u32,
    }

    /// Ends the [`Tail`] or the waiting request with the same request number.
    28 Cancel {}

    /// The last answer of a tail or a waiting request that the client ended.
    29 Ended {}

    /// Creates a log; an existing one with the same attributes is left as it is.
    30 CreateLog<'b> {
        /// Its name.
        log: &'b str,
        /// How many of its newest records stay readable.
        history: u64,
    }

    /// The request was carried out.
    31 Done {}

    /// Removes a log and its records.
    32 RemoveLog<'b> {
        /// Its name.
        log: &'b str,
    }

    /// Changes the settings of a log. The answer is [`Done`].
    140 SetLog<'b> {
        /// Its name.
        log: &'b str,
        /// How many of its newest records stay readable from now on.
        history: u64,
    }

    /// Cancels a run that has not ended. The answer is [`Done`].
    141 CancelRun {
        /// The run's id.
        run: EventId,
    }

    /// Exchanges the capability of the request, which permits only this and only once, for a lasting one.
    44 Redeem {}

    /// The answer to [`Redeem`], over TLS only.
    45 Redeemed<'b> {
        /// The capability: its body and its signature.
        #[serde(borrow, with = "serde_bytes")]
        capability: &'b [u8],
    }

    /// Requests a document: the answer of HTTP to `GET /v1/namespaces/NAME/…`.
    34 Show<'b> {
        /// The path after the namespace's name, with its query: `logs`, `runs?limit=10`, `functions/smooth`.
        path: &'b str,
    }

    /// A request about repairs, as in the body of `POST /v1/namespaces/NAME/repairs` over HTTP. The answer is a [`Document`].
    84 Repair<'b> {
        /// The JSON text.
        json: &'b str,
    }

    /// The answer to [`Show`].
    35 Document<'b> {
        /// The JSON text, as over HTTP.
        json: &'b str,
    }
}

/// A capability that a client presents, and the proof that it has the signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer<'b> {
    /// The capability's body.
    #[serde(borrow, with = "serde_bytes")]
    pub capability: &'b [u8],
    /// 32 bytes; empty as long as the client does not know the value to which it is bound.
    #[serde(borrow, default, with = "serde_bytes", skip_serializing_if = "<[u8]>::is_empty")]
    pub proof: &'b [u8],
}

/// A record to be appended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRecord<'b> {
    /// The log.
    pub log: &'b str,
    /// The record's bytes.
    #[serde(borrow, with = "serde_bytes")]
    pub data: &'b [u8],
}

impl Serialize for EventId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_bytes(&self.get().to_le_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom);
        }
        let bytes: [u8; 16] = serde_bytes::deserialize(deserializer)?;
        Ok(EventId::from_bits(u128::from_le_bytes(bytes)))
    }
}

impl Serialize for Hlc {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.get())
    }
}

impl<'de> Deserialize<'de> for Hlc {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Hlc::from_bits)
    }
}
