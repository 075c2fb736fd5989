//! Packets to clients.

use super::{
    Qos, Version,
    properties::{LOST, SESSION},
};
use millrace_wire::Headers;

/// The bytes of a number of variable length.
pub(super) fn variable(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        out.push(if value > 0 { byte | 0x80 } else { byte });
        if value == 0 {
            return;
        }
    }
}

fn variable_bytes(value: usize) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

/// A text or binary data. Ours are shorter than 64 KiB.
pub(super) fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = bytes.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&(length as u16).to_be_bytes());
    out.extend_from_slice(&bytes[..length]);
}

/// A packet with this first byte, whose body is short.
pub(super) fn packet(out: &mut Vec<u8>, first: u8, body: &[u8]) {
    out.push(first);
    variable(out, body.len());
    out.extend_from_slice(body);
}

/// What a CONNACK says besides that the client is connected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connected<'a> {
    /// The session was there before.
    pub present: bool,
    /// The client id that the server chose.
    pub client: Option<&'a str>,
    /// How long a session without a connection is kept, if it is shorter than the client asked for.
    pub session_expiry_s: Option<u32>,
    /// How many messages may be unacknowledged.
    pub receive_max: u16,
    /// The longest packet.
    pub packet_max_bytes: u32,
    /// Numbers of topics.
    pub aliases_max: u16,
    /// Whether there are shared subscriptions.
    pub shared: bool,
    /// The highest quality, if it is below 2.
    pub qos_max: Option<u8>,
}

/// CONNACK.
pub fn connected(out: &mut Vec<u8>, version: Version, outcome: Result<Connected<'_>, u8>) {
    let (present, code) = match &outcome {
        Ok(connected) => (u8::from(connected.present), 0),
        Err(reason) if version == Version::V5 => (0, *reason),
        // 3.1.1 has five reasons of its own.
        Err(reason) => (
            0,
            match *reason {
                super::reason::UNSUPPORTED_VERSION => 1,
                super::reason::CLIENT_ID_INVALID => 2,
                super::reason::BAD_CREDENTIALS => 4,
                super::reason::NOT_AUTHORIZED | super::reason::BAD_AUTHENTICATION => 5,
                _ => 3,
            },
        ),
    };
    let mut body = vec![present, code];
    if version == Version::V5 {
        let mut properties = Vec::new();
        if let Ok(connected) = outcome {
            if let Some(expiry) = connected.session_expiry_s {
                properties.push(17);
                properties.extend_from_slice(&expiry.to_be_bytes());
            }
            properties.push(33);
            properties.extend_from_slice(&connected.receive_max.to_be_bytes());
            if let Some(qos) = connected.qos_max {
                properties.extend_from_slice(&[36, qos]);
            }
            properties.push(39);
            properties.extend_from_slice(&connected.packet_max_bytes.to_be_bytes());
            properties.push(34);
            properties.extend_from_slice(&connected.aliases_max.to_be_bytes());
            properties.extend_from_slice(&[42, u8::from(connected.shared)]);
            if let Some(client) = connected.client {
                properties.push(18);
                binary(&mut properties, client.as_bytes());
            }
        }
        variable(&mut body, properties.len());
        body.extend_from_slice(&properties);
    }
    packet(out, 0x20, &body);
}

/// The kind of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// PUBACK.
    Published = 0x40,
    /// PUBREC.
    Received = 0x50,
    /// PUBREL.
    Release = 0x62,
    /// PUBCOMP.
    Complete = 0x70,
}

/// An acknowledgement; 3.1.1 has no reasons.
pub fn acknowledge(out: &mut Vec<u8>, version: Version, kind: Acknowledged, id: u16, reason: u8) {
    let [high, low] = id.to_be_bytes();
    match reason != 0 && version == Version::V5 {
        true => packet(out, kind as u8, &[high, low, reason]),
        false => packet(out, kind as u8, &[high, low]),
    }
}

/// SUBACK, with a reason or the quality for each filter.
pub fn subscribed(out: &mut Vec<u8>, version: Version, id: u16, reasons: &[u8]) {
    let mut body = Vec::with_capacity(reasons.len() + 3);
    body.extend_from_slice(&id.to_be_bytes());
    match version {
        Version::V5 => {
            body.push(0);
            body.extend_from_slice(reasons);
        }
        Version::V3 => body.extend(reasons.iter().map(|reason| if *reason > 2 { 0x80 } else { *reason })),
    }
    packet(out, 0x90, &body);
}

/// UNSUBACK; 3.1.1 has no reasons.
pub fn unsubscribed(out: &mut Vec<u8>, version: Version, id: u16, reasons: &[u8]) {
    let mut body = Vec::with_capacity(reasons.len() + 3);
    body.extend_from_slice(&id.to_be_bytes());
    if version == Version::V5 {
        body.push(0);
        body.extend_from_slice(reasons);
    }
    packet(out, 0xB0, &body);
}

/// PINGRESP.
pub fn pong(out: &mut Vec<u8>) {
    packet(out, 0xD0, &[]);
}

/// DISCONNECT, which a server of 3.1.1 does not send.
pub fn disconnect(out: &mut Vec<u8>, version: Version, reason: u8) {
    if version == Version::V5 {
        packet(out, 0xE0, &[reason]);
    }
}

/// A message to a client.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The message.
    pub payload: &'a [u8],
    /// The packet's id; unused with quality 0.
    pub id: u16,
    /// The quality.
    pub qos: Qos,
    /// It may have been sent before.
    pub dup: bool,
    /// It was there before the subscription.
    pub retain: bool,
    /// The numbers of the subscriptions that it matches.
    pub subscriptions: &'a [u32],
    /// Its headers; 5.0 gets them as user properties.
    pub headers: &'a Headers,
    /// How many messages before it the client does not get, because the log no longer has them; 5.0 tells it.
    pub lost: u64,
}

/// PUBLISH; false, and nothing is written, if the packet were longer than the client reads.
pub fn publish(out: &mut Vec<u8>, version: Version, message: &Outgoing<'_>, max_bytes: usize) -> bool {
    let with_id = message.qos != Qos::AtMostOnce;
    let mut properties = Vec::new();
    for number in message.subscriptions {
        properties.push(11);
        variable(&mut properties, *number as usize);
    }
    let lost = (message.lost > 0).then(|| message.lost.to_string());
    let headers = message.headers.iter().filter(|(name, _)| *name != SESSION);
    let headers = headers.chain(lost.as_deref().map(|lost| (LOST, lost)));
    for (name, value) in headers {
        properties.push(38);
        binary(&mut properties, name.as_bytes());
        binary(&mut properties, value.as_bytes());
    }
    let of_properties = match version {
        Version::V3 => 0,
        Version::V5 => variable_bytes(properties.len()) + properties.len(),
    };
    let length = 2 + message.topic.len() + if with_id { 2 } else { 0 } + of_properties + message.payload.len();
    if 1 + variable_bytes(length) + length > max_bytes {
        return false;
    }
    out.push(0x30 | u8::from(message.dup) << 3 | (message.qos as u8) << 1 | u8::from(message.retain));
    variable(out, length);
    binary(out, message.topic.as_bytes());
    if with_id {
        out.extend_from_slice(&message.id.to_be_bytes());
    }
    if version == Version::V5 {
        variable(out, properties.len());
        out.extend_from_slice(&properties);
    }
    out.extend_from_slice(message.payload);
    true
}
