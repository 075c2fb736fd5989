//! Packets of MQTT 3.1.1 and 5.0, as a server reads and writes them.
//!
//! Nothing is allocated by a length that the other end announces: what is read borrows from the bytes that have arrived. Whatever the
//! specifications forbid is refused, with the reason that 5.0 has for it.

mod client;
mod properties;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use client::{FromBroker, Greeting, Message, Welcome, connect, ping, subscribe};
pub use properties::{Properties, SESSION};
pub use read::{Connect, Framed, Packet, Publish, Subscription, Will, frame, speaks_5};
pub use write::{
    Acknowledged, Connected, Outgoing, acknowledge, connected, disconnect, pong, publish, subscribed, unsubscribed,
};

use millrace_wire::{Code, Error};
use serde::{Deserialize, Serialize};

/// The longest packet, with its header: a record, its topic and its properties.
pub const PACKET_MAX_BYTES: usize = (16 << 20) + (64 << 10);
/// The longest CONNECT.
pub const CONNECT_MAX_BYTES: usize = 256 << 10;
/// Topic filters of one SUBSCRIBE or UNSUBSCRIBE.
pub const FILTERS_MAX: usize = 1000;

/// The version that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 3.1.1.
    V3,
    /// 5.0.
    V5,
}

/// The quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Qos {
    /// At most once.
    #[default]
    AtMostOnce = 0,
    /// At least once.
    AtLeastOnce = 1,
    /// Exactly once.
    ExactlyOnce = 2,
}

impl Qos {
    fn of(bits: u8) -> Option<Self> {
        [Self::AtMostOnce, Self::AtLeastOnce, Self::ExactlyOnce].into_iter().find(|qos| *qos as u8 == bits)
    }
}

/// The reason codes of 5.0 that this server uses.
pub mod reason {
    #![expect(missing_docs, reason = "the names are those of the specification")]
    pub const SUCCESS: u8 = 0x00;
    pub const DISCONNECT_WITH_WILL: u8 = 0x04;
    pub const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
    pub const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
    pub const UNSPECIFIED: u8 = 0x80;
    pub const MALFORMED: u8 = 0x81;
    pub const PROTOCOL_ERROR: u8 = 0x82;
    pub const NOT_ACCEPTED: u8 = 0x83;
    pub const UNSUPPORTED_VERSION: u8 = 0x84;
    pub const CLIENT_ID_INVALID: u8 = 0x85;
    pub const BAD_CREDENTIALS: u8 = 0x86;
    pub const NOT_AUTHORIZED: u8 = 0x87;
    pub const BUSY: u8 = 0x89;
    pub const SHUTTING_DOWN: u8 = 0x8B;
    pub const BAD_AUTHENTICATION: u8 = 0x8C;
    pub const KEEP_ALIVE: u8 = 0x8D;
    pub const TAKEN_OVER: u8 = 0x8E;
    pub const FILTER_INVALID: u8 = 0x8F;
    pub const TOPIC_INVALID: u8 = 0x90;
    pub const ID_NOT_FOUND: u8 = 0x92;
    pub const RECEIVE_MAXIMUM: u8 = 0x93;
    pub const ALIAS_INVALID: u8 = 0x94;
    pub const TOO_LARGE: u8 = 0x95;
    pub const QUOTA: u8 = 0x97;
    pub const QOS_UNSUPPORTED: u8 = 0x9B;
    pub const SHARED_UNSUPPORTED: u8 = 0x9E;
    pub const WILDCARD_UNSUPPORTED: u8 = 0xA2;
}

/// Why a connection ends: the reason in 5.0, and the error of the host.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The reason code.
    pub reason: u8,
    /// The error.
    pub error: Error,
}

impl Fault {
    /// Any reason.
    pub fn new(reason: u8, error: Error) -> Self {
        Self { reason, error }
    }

    /// Bytes that are no packet.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(reason::MALFORMED, Code::MqttPacketInvalid.error(detail))
    }

    /// A packet that is not permitted here.
    pub fn protocol(detail: impl Into<String>) -> Self {
        Self::new(reason::PROTOCOL_ERROR, Code::MqttPacketInvalid.error(detail))
    }
}
