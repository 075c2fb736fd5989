//! Packets from clients.

use super::{
    CONNECT_MAX_BYTES, FILTERS_MAX, Fault, Properties, Qos, Version,
    properties::{ACK, CONNECT, DISCONNECT, PUBLISH, SUBSCRIBE, UNSUBSCRIBE, WILL},
    reason,
};
use crate::filter::check_topic;
use millrace_wire::{Code, Headers};

/// A packet from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'b> {
    /// A message.
    Publish(Publish<'b>),
    /// PUBACK, with its reason.
    Acknowledged(u16, u8),
    /// PUBREC.
    Received(u16, u8),
    /// PUBREL.
    Release(u16),
    /// PUBCOMP.
    Complete(u16),
    /// SUBSCRIBE: the filters, and the number of the subscription.
    Subscribe(u16, Vec<Subscription<'b>>, Option<u32>),
    /// UNSUBSCRIBE.
    Unsubscribe(u16, Vec<&'b str>),
    /// PINGREQ.
    Ping,
    /// DISCONNECT, with its reason, and the new expiry of the session.
    Disconnect(u8, Option<u32>),
}

/// The first packet of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect<'b> {
    /// The version.
    pub version: Version,
    /// The client id; empty if the server has to choose one.
    pub client: &'b str,
    /// Whether it begins a session, rather than continue one.
    pub clean: bool,
    /// After one and a half times as many seconds without a packet the client is gone; 0 for never.
    pub keep_alive_s: u16,
    /// Its properties.
    pub properties: Properties,
    /// What is published when it is gone.
    pub will: Option<Will<'b>>,
    /// The user.
    pub user: Option<&'b str>,
    /// The password.
    pub password: Option<&'b [u8]>,
}

/// What is published when a client is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will<'b> {
    /// The topic.
    pub topic: &'b str,
    /// The message.
    pub payload: &'b [u8],
    /// Its quality.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
    /// How long after the end of the connection.
    pub delay_s: u32,
    /// Its user properties.
    pub headers: Headers,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish<'b> {
    /// The topic; empty if there is an alias.
    pub topic: &'b str,
    /// The number of the topic.
    pub alias: Option<u16>,
    /// The packet's id; 0 for quality 0.
    pub id: u16,
    /// Whether it may have been sent before.
    pub dup: bool,
    /// The quality.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
    /// The message.
    pub payload: &'b [u8],
    /// What the client says about it, in 5.0; of a number of the topic, `alias` has it.
    pub said: Properties,
}

/// A topic filter that is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription<'b> {
    /// The filter, which may be invalid.
    pub filter: &'b str,
    /// The highest quality.
    pub qos: Qos,
    /// The client does not want its own messages.
    pub no_local: bool,
    /// Messages keep their flag RETAIN.
    pub retain_as_published: bool,
    /// Retained messages: 0 always, 1 for a new subscription, 2 never.
    pub retain_handling: u8,
}

/// Bytes of a packet that are not read yet.
pub(super) struct Bytes<'b>(pub &'b [u8]);

impl<'b> Bytes<'b> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| Fault::malformed("the packet is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn part(&mut self, count: usize) -> Result<Bytes<'b>, Fault> {
        self.take(count).map(Bytes)
    }

    pub fn byte(&mut self) -> Result<u8, Fault> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn two(&mut self) -> Result<u16, Fault> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn four(&mut self) -> Result<u32, Fault> {
        self.take(4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn variable(&mut self) -> Result<u32, Fault> {
        match variable(self.0)? {
            Some((value, count)) => {
                self.take(count)?;
                Ok(value)
            }
            None => Err(Fault::malformed("the packet is cut off")),
        }
    }

    pub fn binary(&mut self) -> Result<&'b [u8], Fault> {
        let length = self.two()?;
        self.take(length.into())
    }

    pub fn text(&mut self) -> Result<&'b str, Fault> {
        let text = std::str::from_utf8(self.binary()?).map_err(|_| Fault::malformed("a text is not UTF-8"))?;
        if text.contains('\0') { Err(Fault::malformed("a text has a zero character")) } else { Ok(text) }
    }

    fn id(&mut self) -> Result<u16, Fault> {
        match self.two()? {
            0 => Err(Fault::protocol("the packet id is 0")),
            id => Ok(id),
        }
    }

    fn end(&self) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { Err(Fault::malformed("bytes behind the end of the packet")) }
    }
}

/// A number of variable length and how many bytes it has; `None` if they are not all there.
fn variable(bytes: &[u8]) -> Result<Option<(u32, usize)>, Fault> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            if at > 0 && *byte == 0 {
                return Err(Fault::malformed("a length has more bytes than it needs"));
            }
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() < 4 { Ok(None) } else { Err(Fault::malformed("a length has more than four bytes")) }
}

/// A packet that is all there: its first byte, its body, and its length.
pub type Framed<'b> = (u8, &'b [u8], usize);

/// The first packet of these bytes; `None` if it is not all there.
///
/// # Errors
/// It is longer than `max_bytes`.
pub fn frame(bytes: &[u8], max_bytes: usize) -> Result<Option<Framed<'_>>, Fault> {
    let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
    let Some((length, count)) = variable(rest)? else { return Ok(None) };
    let whole = 1 + count + length as usize;
    if whole > max_bytes {
        let error = format!("a packet of {whole} bytes; the limit is {max_bytes}");
        return Err(Fault::new(reason::TOO_LARGE, Code::MqttPacketTooLarge.error(error)));
    }
    Ok(bytes.get(1 + count..whole).map(|body| (*first, body, whole)))
}

/// Whether these bytes are the beginning of a CONNECT of 5.0, which may be wrong otherwise.
pub fn speaks_5(packet: &[u8]) -> bool {
    let length = packet.iter().skip(1).take(4).position(|byte| byte & 0x80 == 0);
    let body = length.and_then(|at| packet.get(at + 2..));
    packet.first() == Some(&0x10) && body.is_some_and(|body| body.starts_with(b"\0\x04MQTT\x05"))
}

impl<'b> Connect<'b> {
    /// Reads a CONNECT.
    pub fn read(first: u8, body: &'b [u8]) -> Result<Self, Fault> {
        debug_assert!(body.len() < CONNECT_MAX_BYTES);
        if first != 0x10 {
            return Err(Fault::protocol(format!("the first packet is of type {}, and not CONNECT", first >> 4)));
        }
        let mut bytes = Bytes(body);
        let (name, level) = (bytes.text()?, bytes.byte()?);
        let version = match (name, level) {
            ("MQTT", 4) => Version::V3,
            ("MQTT", 5) => Version::V5,
            _ => {
                let shown: String = name.chars().take(16).flat_map(char::escape_debug).collect();
                let error = Code::MqttPacketInvalid.error(format!("the client speaks '{shown}', level {level}"));
                return Err(Fault::new(reason::UNSUPPORTED_VERSION, error));
            }
        };
        let (flags, keep_alive_s) = (bytes.byte()?, bytes.two()?);
        let is = |bit: u8| flags & bit != 0;
        let properties = match version {
            Version::V3 => Properties::default(),
            Version::V5 => Properties::read(&mut bytes, CONNECT)?,
        };
        let (clean, with_will) = (is(2), is(4));
        let qos = Qos::of((flags >> 3) & 3).ok_or_else(|| Fault::malformed("quality 3 of the will"))?;
        if is(1) || (!with_will && flags & 0x38 != 0) {
            return Err(Fault::malformed("reserved flags of CONNECT"));
        }
        if version == Version::V3 && is(0x40) && !is(0x80) {
            return Err(Fault::malformed("a password without a user"));
        }
        let client = bytes.text()?;
        let will = if with_will {
            let of_will = match version {
                Version::V3 => Properties::default(),
                Version::V5 => Properties::read(&mut bytes, WILL)?,
            };
            let (topic, payload) = (bytes.text()?, bytes.binary()?);
            check_topic(topic).map_err(|error| Fault::new(reason::TOPIC_INVALID, error))?;
            Some(Will {
                topic,
                payload,
                qos,
                retain: is(0x20),
                delay_s: of_will.will_delay_s.unwrap_or(0),
                headers: of_will.headers,
            })
        } else {
            None
        };
        let user = is(0x80).then(|| bytes.text()).transpose()?;
        let password = is(0x40).then(|| bytes.binary()).transpose()?;
        bytes.end()?;
        Ok(Self { version, client, clean, keep_alive_s, properties, will, user, password })
    }
}

impl<'b> Packet<'b> {
    /// Reads a packet that is not the first of its connection.
    pub fn read(first: u8, body: &'b [u8], version: Version) -> Result<Self, Fault> {
        let (kind, flags) = (first >> 4, first & 15);
        let expected = match kind {
            3 => flags,
            6 | 8 | 10 => 2,
            _ => 0,
        };
        if flags != expected {
            return Err(Fault::malformed(format!("flags {flags} of a packet of type {kind}")));
        }
        let mut bytes = Bytes(body);
        let packet = match kind {
            3 => Self::Publish(Publish::read(flags, &mut bytes, version)?),
            4..=7 => {
                let (id, reason) = (bytes.id()?, answer(&mut bytes, version)?);
                match kind {
                    4 => Self::Acknowledged(id, reason),
                    5 => Self::Received(id, reason),
                    6 => Self::Release(id),
                    _ => Self::Complete(id),
                }
            }
            8 => subscribe(&mut bytes, version)?,
            10 => unsubscribe(&mut bytes, version)?,
            12 => Self::Ping,
            14 => disconnect(&mut bytes, version)?,
            1 => return Err(Fault::protocol("a second CONNECT")),
            15 => return Err(Fault::protocol("AUTH without an authentication method")),
            _ => return Err(Fault::protocol(format!("a packet of type {kind} from a client"))),
        };
        bytes.end()?;
        Ok(packet)
    }
}

/// The reason of an acknowledgement, and its properties.
fn answer(bytes: &mut Bytes<'_>, version: Version) -> Result<u8, Fault> {
    if version == Version::V3 || bytes.is_empty() {
        return Ok(reason::SUCCESS);
    }
    let reason = bytes.byte()?;
    if !bytes.is_empty() {
        Properties::read(bytes, ACK)?;
    }
    Ok(reason)
}

impl<'b> Publish<'b> {
    fn read(flags: u8, bytes: &mut Bytes<'b>, version: Version) -> Result<Self, Fault> {
        let (dup, retain) = (flags & 8 != 0, flags & 1 != 0);
        let qos = Qos::of((flags >> 1) & 3).ok_or_else(|| Fault::malformed("quality 3"))?;
        if dup && qos == Qos::AtMostOnce {
            return Err(Fault::malformed("DUP with quality 0"));
        }
        let topic = bytes.text()?;
        let id = if qos == Qos::AtMostOnce { 0 } else { bytes.id()? };
        let said = match version {
            Version::V3 => Properties::default(),
            Version::V5 => Properties::read(bytes, PUBLISH)?,
        };
        let alias = said.topic_alias;
        if !topic.is_empty() || alias.is_none() {
            check_topic(topic).map_err(|error| Fault::new(reason::TOPIC_INVALID, error))?;
        }
        let payload = std::mem::take(&mut bytes.0);
        Ok(Self { topic, alias, id, dup, qos, retain, payload, said })
    }
}

fn subscribe<'b>(bytes: &mut Bytes<'b>, version: Version) -> Result<Packet<'b>, Fault> {
    let id = bytes.id()?;
    let number = match version {
        Version::V3 => None,
        Version::V5 => Properties::read(bytes, SUBSCRIBE)?.subscription,
    };
    let mut filters = Vec::new();
    while !bytes.is_empty() {
        let (filter, options) = (bytes.text()?, bytes.byte()?);
        let qos = Qos::of(options & 3).ok_or_else(|| Fault::malformed("quality 3"))?;
        let retain_handling = (options >> 4) & 3;
        if options & 0xC0 != 0 || (version == Version::V3 && options > 2) || retain_handling == 3 {
            return Err(Fault::malformed("reserved options of SUBSCRIBE"));
        }
        let (no_local, retain_as_published) = (options & 4 != 0, options & 8 != 0);
        if no_local && filter.starts_with("$share/") {
            return Err(Fault::protocol("a shared subscription without the client's own messages"));
        }
        filters.push(Subscription { filter, qos, no_local, retain_as_published, retain_handling });
        check_count(filters.len())?;
    }
    if filters.is_empty() {
        return Err(Fault::protocol("SUBSCRIBE without a topic filter"));
    }
    Ok(Packet::Subscribe(id, filters, number))
}

fn unsubscribe<'b>(bytes: &mut Bytes<'b>, version: Version) -> Result<Packet<'b>, Fault> {
    let id = bytes.id()?;
    if version == Version::V5 {
        Properties::read(bytes, UNSUBSCRIBE)?;
    }
    let mut filters = Vec::new();
    while !bytes.is_empty() {
        filters.push(bytes.text()?);
        check_count(filters.len())?;
    }
    if filters.is_empty() {
        return Err(Fault::protocol("UNSUBSCRIBE without a topic filter"));
    }
    Ok(Packet::Unsubscribe(id, filters))
}

fn check_count(filters: usize) -> Result<(), Fault> {
    if filters <= FILTERS_MAX {
        return Ok(());
    }
    let error = Code::MqttLimit.error(format!("more than {FILTERS_MAX} topic filters in one packet"));
    Err(Fault::new(reason::QUOTA, error))
}

fn disconnect<'b>(bytes: &mut Bytes<'b>, version: Version) -> Result<Packet<'b>, Fault> {
    if version == Version::V3 || bytes.is_empty() {
        return Ok(Packet::Disconnect(reason::SUCCESS, None));
    }
    let reason = bytes.byte()?;
    let expiry = if bytes.is_empty() { None } else { Properties::read(bytes, DISCONNECT)?.session_expiry_s };
    Ok(Packet::Disconnect(reason, expiry))
}
