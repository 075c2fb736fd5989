//! Packets as a client writes and reads them, for bridges to other brokers.

use super::{
    Fault, Qos, Version,
    read::Bytes,
    write::{binary, packet, variable},
};
use crate::filter::check_topic;

/// What a CONNECT says.
#[derive(Clone, Copy, Debug)]
pub struct Greeting<'a> {
    /// The version.
    pub version: Version,
    /// The client id; its session is continued.
    pub client: &'a str,
    /// The user's name.
    pub user: Option<&'a str>,
    /// The password.
    pub password: Option<&'a [u8]>,
    /// The broker ends the connection after one and a half times as many seconds without a packet.
    pub keep_alive_s: u16,
    /// How long the broker keeps the session, in 5.0.
    pub expiry_s: u32,
    /// How many messages may be unacknowledged, in 5.0.
    pub receive_max: u16,
}

/// CONNECT.
pub fn connect(out: &mut Vec<u8>, greeting: &Greeting<'_>) {
    let mut body = Vec::new();
    binary(&mut body, b"MQTT");
    let is = |there: bool, bit: u8| if there { bit } else { 0 };
    // 5.0 permits a password without a user.
    let user = greeting.user.or(greeting.password.map(|_| ""));
    let flags = is(user.is_some(), 0x80) | is(greeting.password.is_some(), 0x40);
    body.extend_from_slice(&[if greeting.version == Version::V5 { 5 } else { 4 }, flags]);
    body.extend_from_slice(&greeting.keep_alive_s.to_be_bytes());
    if greeting.version == Version::V5 {
        body.extend_from_slice(&[8, 17]);
        body.extend_from_slice(&greeting.expiry_s.to_be_bytes());
        body.push(33);
        body.extend_from_slice(&greeting.receive_max.to_be_bytes());
    }
    binary(&mut body, greeting.client.as_bytes());
    for given in [user.map(str::as_bytes), greeting.password].into_iter().flatten() {
        binary(&mut body, given);
    }
    packet(out, 0x10, &body);
}

/// SUBSCRIBE to these filters at quality 1. In 5.0 the client's own messages do not come back, and retained ones come once.
pub fn subscribe(out: &mut Vec<u8>, version: Version, id: u16, filters: &[String]) {
    let mut body = id.to_be_bytes().to_vec();
    if version == Version::V5 {
        body.push(0);
    }
    for filter in filters {
        binary(&mut body, filter.as_bytes());
        body.push(if version == Version::V5 { 0x15 } else { 1 });
    }
    packet(out, 0x82, &body);
}

/// PINGREQ.
pub fn ping(out: &mut Vec<u8>) {
    packet(out, 0xC0, &[]);
}

/// What a CONNACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The session was there before.
    pub present: bool,
    /// 0, or why the client is refused.
    pub reason: u8,
    /// How many messages the broker takes that are unacknowledged.
    pub receive_max: u16,
    /// The longest packet that it takes.
    pub packet_max_bytes: u32,
}

impl Welcome {
    /// Reads the body of a CONNACK.
    pub fn read(body: &[u8], version: Version) -> Result<Self, Fault> {
        let mut bytes = Bytes(body);
        let (present, reason) = (bytes.byte()? & 1 != 0, bytes.byte()?);
        let mut welcome = Self { present, reason, receive_max: u16::MAX, packet_max_bytes: u32::MAX };
        if version == Version::V3 || bytes.is_empty() {
            return Ok(welcome);
        }
        let length = bytes.variable()? as usize;
        let mut properties = bytes.part(length)?;
        while !properties.is_empty() {
            match properties.byte()? {
                33 => welcome.receive_max = properties.two()?.max(1),
                39 => welcome.packet_max_bytes = properties.four()?,
                17 => drop(properties.four()?),
                19 | 34 => drop(properties.two()?),
                36 | 37 | 40 | 41 | 42 => drop(properties.byte()?),
                18 | 21 | 22 | 26 | 28 | 31 => drop(properties.binary()?),
                38 => drop((properties.binary()?, properties.binary()?)),
                other => return Err(Fault::malformed(format!("property {other} of CONNACK"))),
            }
        }
        Ok(welcome)
    }
}

/// A packet from a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromBroker<'b> {
    /// A message.
    Message(Message<'b>),
    /// PUBACK, with its reason.
    Acknowledged(u16, u8),
    /// SUBACK: the reasons, each of a filter.
    Subscribed(&'b [u8]),
    /// PINGRESP.
    Pong,
    /// DISCONNECT, with its reason.
    Disconnect(u8),
}

/// A message from a broker, at quality 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'b> {
    /// DUP, the quality and RETAIN.
    flags: u8,
    /// The topic.
    pub topic: &'b str,
    /// The packet's id; 0 at quality 0.
    pub id: u16,
    properties: &'b [u8],
    payload: &'b [u8],
}

impl<'b> FromBroker<'b> {
    /// Reads a packet.
    pub fn read(first: u8, body: &'b [u8], version: Version) -> Result<Self, Fault> {
        let mut bytes = Bytes(body);
        let reason = |bytes: &mut Bytes<'b>| if bytes.is_empty() { Ok(0) } else { bytes.byte() };
        Ok(match first >> 4 {
            3 => Self::Message(Message::read(first & 15, &mut bytes, version)?),
            4 => Self::Acknowledged(bytes.two()?, reason(&mut bytes)?),
            9 => {
                bytes.two()?;
                if version == Version::V5 {
                    let length = bytes.variable()? as usize;
                    bytes.part(length)?;
                }
                Self::Subscribed(bytes.0)
            }
            13 => Self::Pong,
            14 => Self::Disconnect(reason(&mut bytes)?),
            other => return Err(Fault::protocol(format!("a packet of type {other} from a broker"))),
        })
    }
}

impl<'b> Message<'b> {
    fn read(flags: u8, bytes: &mut Bytes<'b>, version: Version) -> Result<Self, Fault> {
        if flags & 6 > 2 {
            return Err(Fault::protocol("a message above quality 1, which was not asked for"));
        }
        let topic = bytes.text()?;
        check_topic(topic).map_err(|error| Fault::new(super::reason::TOPIC_INVALID, error))?;
        let id = if flags & 6 == 0 { 0 } else { bytes.two()? };
        let properties = match version {
            Version::V3 => &[][..],
            Version::V5 => {
                let length = bytes.variable()? as usize;
                bytes.part(length)?.0
            }
        };
        Ok(Self { flags, topic, id, properties, payload: bytes.0 })
    }

    /// The quality.
    pub fn qos(&self) -> Qos {
        if self.flags & 6 == 0 { Qos::AtMostOnce } else { Qos::AtLeastOnce }
    }

    /// The same for another broker, under another topic; false, and nothing is written, if the packet were longer than that one takes. 3.1.1 has
    /// no properties.
    pub fn write(&self, out: &mut Vec<u8>, version: Version, topic: &str, max_bytes: u32) -> bool {
        let mut head = Vec::with_capacity(topic.len() + self.properties.len() + 16);
        binary(&mut head, topic.as_bytes());
        if self.qos() != Qos::AtMostOnce {
            head.extend_from_slice(&self.id.to_be_bytes());
        }
        if version == Version::V5 {
            variable(&mut head, self.properties.len());
            head.extend_from_slice(self.properties);
        }
        let before = out.len();
        out.push(0x30 | self.flags);
        variable(out, head.len() + self.payload.len());
        if out.len() - before + head.len() + self.payload.len() > max_bytes as usize {
            out.truncate(before);
            return false;
        }
        out.extend_from_slice(&head);
        out.extend_from_slice(self.payload);
        true
    }
}
