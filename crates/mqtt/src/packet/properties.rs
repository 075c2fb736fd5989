//! The properties of 5.0.

use super::{Fault, read::Bytes};
use millrace_wire::Headers;

/// The user property with the idempotency key of a message.
const KEY: &str = "millrace-key";
/// The user property with the id of what the client says caused the message.
const CAUSE: &str = "millrace-cause";
/// The user property of the first message behind some that the client does not get.
pub(super) const LOST: &str = "millrace-lost";
/// The header of a message that its own session does not want back: the name of this session.
pub const SESSION: &str = "millrace-session";

/// The packet that properties belong to; one bit each.
pub(super) const CONNECT: u16 = 1;
pub(super) const PUBLISH: u16 = 2;
pub(super) const ACK: u16 = 4;
pub(super) const SUBSCRIBE: u16 = 8;
pub(super) const UNSUBSCRIBE: u16 = 16;
pub(super) const DISCONNECT: u16 = 32;
pub(super) const WILL: u16 = 64;

/// What a client said with properties. Those that this server does not use are checked and forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Seconds that a session outlives its connection.
    pub session_expiry_s: Option<u32>,
    /// Messages that the client has unacknowledged at most.
    pub receive_max: Option<u16>,
    /// The longest packet that it reads.
    pub packet_max_bytes: Option<u32>,
    /// Seconds between the end of a connection and its will.
    pub will_delay_s: Option<u32>,
    /// The number of a topic that is not repeated.
    pub topic_alias: Option<u16>,
    /// The number of a subscription, which messages for it carry.
    pub subscription: Option<u32>,
    /// User properties of a message, except those that mean something here.
    pub headers: Headers,
    /// They are too long; then `headers` has only the first ones.
    pub has_long_headers: bool,
    /// The idempotency key of a message.
    pub key: Option<String>,
    /// What caused the message, as the client says.
    pub cause: Option<String>,
    /// Whether the client asks for an authentication that this server does not have.
    pub authenticates: bool,
}

/// The type of a property's value, and the packets that may have it.
fn allowed(id: u32) -> Option<(Type, u16)> {
    Some(match id {
        1 => (Type::Flag, PUBLISH | WILL),
        2 => (Type::Four, PUBLISH | WILL),
        3 | 8 => (Type::Text, PUBLISH | WILL),
        9 => (Type::Binary, PUBLISH | WILL),
        11 => (Type::Variable, SUBSCRIBE),
        17 => (Type::Four, CONNECT | DISCONNECT),
        21 => (Type::Text, CONNECT),
        22 => (Type::Binary, CONNECT),
        23 | 25 => (Type::Flag, CONNECT),
        24 => (Type::Four, WILL),
        31 => (Type::Text, ACK | DISCONNECT),
        33 | 34 => (Type::Two, CONNECT),
        35 => (Type::Two, PUBLISH),
        38 => (Type::Pair, CONNECT | PUBLISH | WILL | ACK | SUBSCRIBE | UNSUBSCRIBE | DISCONNECT),
        39 => (Type::Four, CONNECT),
        _ => return None,
    })
}

enum Type {
    Flag,
    Two,
    Four,
    Variable,
    Text,
    Binary,
    Pair,
}

impl Properties {
    fn said(&mut self, name: &str, value: &str) {
        match name {
            KEY => self.key = Some(value.to_owned()),
            CAUSE => self.cause = Some(value.to_owned()),
            // Only the host says it.
            LOST | SESSION => {}
            _ => self.has_long_headers |= self.headers.push(name, value).is_err(),
        }
    }

    /// Reads the properties of a packet of this kind, with their length.
    pub(super) fn read(bytes: &mut Bytes<'_>, of: u16) -> Result<Self, Fault> {
        let length = bytes.variable()? as usize;
        let mut bytes = bytes.part(length)?;
        let (mut read, mut seen) = (Self::default(), 0u64);
        let mut has_method = false;
        while !bytes.is_empty() {
            let id = bytes.variable()?;
            let (kind, _) = allowed(id)
                .filter(|(_, packets)| packets & of != 0)
                .ok_or_else(|| Fault::malformed(format!("property {id} in this packet")))?;
            let bit = 1u64 << id; // at most 39
            if seen & bit != 0 && id != 38 {
                return Err(Fault::protocol(format!("property {id} twice")));
            }
            seen |= bit;
            let number = match kind {
                Type::Flag => match bytes.byte()? {
                    flag @ 0..=1 => u32::from(flag),
                    other => return Err(Fault::protocol(format!("property {id} with the value {other}"))),
                },
                Type::Two => u32::from(bytes.two()?),
                Type::Four => bytes.four()?,
                Type::Variable => bytes.variable()?,
                Type::Text => bytes.text().map(|_| 0)?,
                Type::Binary => bytes.binary().map(|_| 0)?,
                Type::Pair => {
                    let (name, value) = (bytes.text()?, bytes.text()?);
                    if of & (PUBLISH | WILL) != 0 {
                        read.said(name, value);
                    }
                    0
                }
            };
            if number == 0 && matches!(id, 11 | 33 | 35 | 39) {
                return Err(Fault::protocol(format!("property {id} with the value 0")));
            }
            match id {
                11 => read.subscription = Some(number),
                17 => read.session_expiry_s = Some(number),
                21 => has_method = true,
                22 => read.authenticates = true,
                24 => read.will_delay_s = Some(number),
                33 => read.receive_max = Some(number as u16), // was two bytes
                35 => read.topic_alias = Some(number as u16),
                39 => read.packet_max_bytes = Some(number),
                _ => {}
            }
        }
        if read.authenticates && !has_method {
            return Err(Fault::protocol("authentication data without a method"));
        }
        read.authenticates |= has_method;
        Ok(read)
    }
}
