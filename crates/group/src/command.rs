//! The commands of a group, and their encoding.
//!
//! ```text
//!  length of the head (2, little-endian)  head (MessagePack)  extension (MessagePack, within the head's length)  data, to the end
//! ```
//!
//! The extension is a map of numbers to byte strings, or nothing. A replica that does not know a key ignores it if it is 128 or more, and
//! otherwise treats the command like an unknown one. Versions before the extension ignore all of it. The published record's [`Stamp`] is
//! there: it changes nothing in the topics.
//!
//! The data of a published record is last and unchanged, so that it can be read in place in the group's log.
//!
//! The highest bit of the length is set if a replica that does not know the action may ignore the command. Of the actions of this version,
//! it may ignore LABELS, on which nothing else depends. A replica that ignored any other action would have different topics than the rest
//! of its group.

use millrace_wire::{Code, EventId, Hlc, LogName, Name, Result};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io::Cursor};

/// The longest name of a topic: on hosts where its functions run, a log has the name, too.
pub const TOPIC_NAME_MAX_BYTES: usize = 200;

/// A command with this bit in the length of its head may be ignored by a replica that does not know it.
const IGNORABLE: u16 = 1 << 15;

/// Keys of the extension. 130 is for a trace context (25 bytes), which this version does not write.
const TIME: u8 = 128;
const CAUSE: u8 = 129;
/// Keys from here on may be ignored.
const MAY_IGNORE: u8 = 128;
/// Marks of MessagePack: a map with few items, a number of one byte, and a short byte string.
const FIXMAP: u8 = 0x80;
const UINT8: u8 = 0xCC;
const BIN8: u8 = 0xC4;

/// What the publisher of a record says of it: the same on every host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When it was published; zero if the publisher's version does not say.
    pub time: Hlc,
    /// The record or the run of its publisher that it comes from.
    pub cause: EventId,
}

impl Stamp {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let time = (self.time != Hlc::ZERO).then(|| self.time.get().to_le_bytes());
        let cause = (!self.cause.is_none()).then(|| self.cause.get().to_le_bytes());
        let items = [(TIME, time.as_ref().map(|it| &it[..])), (CAUSE, cause.as_ref().map(|it| &it[..]))];
        let items = items.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let count = items.clone().count() as u8; // at most two
        if count == 0 {
            return;
        }
        bytes.push(FIXMAP | count);
        for (key, value) in items {
            bytes.extend_from_slice(&[UINT8, key, BIN8, value.len() as u8]); // at most 16
            bytes.extend_from_slice(value);
        }
    }

    fn decode(extension: &[u8]) -> Result<Self> {
        let mut stamp = Self::default();
        let Some((map, mut rest)) = extension.split_first() else { return Ok(stamp) };
        let invalid = || damaged("its extension is invalid");
        let count = map.checked_sub(FIXMAP).filter(|count| *count < 16).ok_or_else(invalid)?;
        for _ in 0..count {
            let key = match rest {
                [UINT8, key, ..] => *key,
                [key @ 0..FIXMAP, ..] => *key,
                _ => return Err(invalid()),
            };
            let at = if rest[0] == UINT8 { 2 } else { 1 };
            let [BIN8, length, behind @ ..] = &rest[at..] else { return Err(invalid()) };
            let value = behind.get(..usize::from(*length)).ok_or_else(invalid)?;
            rest = &behind[value.len()..];
            match key {
                TIME => stamp.time = Hlc::from_bits(u64::from_le_bytes(value.try_into().map_err(|_| invalid())?)),
                CAUSE => {
                    stamp.cause = EventId::from_bits(u128::from_le_bytes(value.try_into().map_err(|_| invalid())?))
                }
                key if key >= MAY_IGNORE => {}
                key => return Err(damaged(&format!("key {key} of its extension is unknown"))),
            }
        }
        Ok(stamp)
    }
}

/// The submitter of a command. If a command arrives twice, both copies have the same origin, and it is applied once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The host.
    pub host: u64,
    /// The number of the host's start; it grows with each start.
    pub boot: u64,
    /// The number of the command since that start.
    pub serial: u64,
    /// No command below this one will be submitted again.
    pub settled: u64,
}

/// The hosts that must have a record on disk before its publish is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A majority of the group.
    #[default]
    Quorum,
    /// The leader alone.
    Leader,
}

/// The engine that keeps the records of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The group of the topic.
    #[default]
    Builtin,
    /// JetStream of a NATS cluster. The group has only the definition of the topic.
    Nats,
}

impl Engine {
    /// Whether the group has the records.
    pub fn is_builtin(&self) -> bool {
        *self == Engine::Builtin
    }

    /// Its name in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Builtin => "builtin",
            Engine::Nats => "nats",
        }
    }
}

/// A host of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The identity of its namespace.
    pub id: u64,
    /// Where the other hosts reach it: `host:port`.
    pub address: String,
    /// The name under which it serves its namespace.
    pub name: String,
    /// The site it is at.
    pub site: String,
}

/// The labels of a host, such as zone=barn, by key.
pub type Labels = BTreeMap<String, String>;

/// Most labels of a host.
pub const LABELS_MAX: usize = 16;

/// Refuses too many labels, and labels whose keys or values are not names.
pub fn check_labels(labels: &Labels) -> Result<()> {
    if labels.len() > LABELS_MAX {
        return Err(Code::ValueInvalid.error(format!("{} labels; a host has at most {LABELS_MAX}", labels.len())));
    }
    labels.iter().flat_map(|(key, value)| [key, value]).try_for_each(|text| text.parse::<Name>().map(drop))
}

/// The action of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Creates a topic whose newest records can be read.
    Create {
        /// Its name.
        topic: String,
        /// How many records it keeps.
        history: u64,
        /// The hosts that must have a record on disk before its publish is acknowledged, by default.
        #[serde(default)]
        durability: Durability,
    },
    /// Adds the command's data to a topic.
    Publish {
        /// The topic.
        topic: String,
        /// The record's idempotency key: a second record with the same key is not added.
        key: Option<String>,
    },
    /// Runs a function of a host for every record of a topic.
    Subscribe {
        /// The topic.
        topic: String,
        /// The function, of the host's namespace.
        function: String,
        /// The host.
        host: u64,
    },
    /// Ends that.
    Unsubscribe {
        /// The topic.
        topic: String,
        /// The function.
        function: String,
        /// The host.
        host: u64,
    },
    /// Makes a log of a host a feed of a topic.
    Feed {
        /// The topic.
        topic: String,
        /// The host.
        host: u64,
        /// The log, of the host's namespace.
        log: String,
        /// The records after this one are published.
        after: u64,
    },
    /// Ends that.
    Unfeed {
        /// The topic.
        topic: String,
        /// The host.
        host: u64,
        /// The log.
        log: String,
    },
    /// Adds a record of a log that feeds a topic, which is the command's data.
    Fed {
        /// The topic.
        topic: String,
        /// The host.
        host: u64,
        /// The log.
        log: String,
        /// The entry that began the feed.
        since: u64,
        /// The feed's previous record: a record that is out of order is refused.
        behind: u64,
        /// The record.
        seqno: u64,
        /// The record's idempotency key: a second record with the same key is not added.
        #[serde(default)]
        key: Option<String>,
    },
    /// Prefers hosts at this site as leaders; with an empty name, any host may lead.
    Prefer {
        /// The site.
        site: String,
    },
    /// Sets the address of a host.
    Member(Member),
    /// Sets the number of voters.
    Voters {
        /// 1, 3 or 5.
        count: u64,
    },
    /// Creates another group. This and the following actions are commands of the group that has the directory.
    Group {
        /// Its name.
        name: String,
        /// The hosts that vote in it; if empty, they are chosen.
        hosts: Vec<u64>,
        /// How many hosts vote in it, once there are as many.
        size: u64,
    },
    /// Removes a group without topics.
    Ungroup {
        /// Its name.
        name: String,
    },
    /// Sets the number of voters of another group.
    Resize {
        /// Its name.
        name: String,
        /// 1, 3 or 5.
        size: u64,
    },
    /// Makes a host follow a group without a vote.
    Follow {
        /// The group.
        group: u32,
        /// The host.
        host: u64,
    },
    /// Passes the command's data to the group's [`crate::Machine`].
    Machine,
    /// Records which group has a topic; a topic stays in its group.
    Place {
        /// The topic.
        topic: String,
        /// The group.
        group: u32,
    },
    /// Creates a topic whose records an engine outside of the group keeps.
    CreateOutside {
        /// Its name.
        topic: String,
        /// How many records it keeps.
        history: u64,
        /// The engine that keeps them.
        engine: Engine,
    },
    /// Runs a function of a host for the records of such a topic.
    SubscribeOutside {
        /// The topic.
        topic: String,
        /// The function, of the host's namespace.
        function: String,
        /// The host.
        host: u64,
        /// The first record that it runs for.
        first: u64,
    },
    /// Creates a topic in a cluster in which a topic was removed before: see [`crate::Topic::born`].
    CreateAt {
        /// Its name.
        topic: String,
        /// How many records it keeps.
        history: u64,
        /// The hosts that must have a record on disk before its publish is acknowledged, by default.
        durability: Durability,
        /// The engine that keeps its records.
        engine: Engine,
        /// The entry of the first group that reserved the name; 0 if this group is the first.
        born: u64,
    },
    /// Removes a topic with its records, subscriptions and feeds.
    Remove {
        /// The topic.
        topic: String,
        /// The entry of the first group that began the removal: a name that was reserved before it no longer leads to a topic. 0 if this
        /// group is the first.
        horizon: u64,
    },
    /// Begins the removal of a topic of another group: its name cannot be used until the removal has ended.
    Displace {
        /// The topic.
        topic: String,
        /// The group.
        group: u32,
    },
    /// Ends the removal: the name is free.
    Displaced {
        /// The topic.
        topic: String,
        /// The entry that began the removal.
        since: u64,
    },
    /// Sets the labels of a host; the earlier ones are removed.
    Labels {
        /// The host.
        host: u64,
        /// Its labels.
        labels: Labels,
    },
    /// Changes the cluster's secret, which is not in the command.
    Secret {
        /// The digest of the new one.
        digest: String,
        /// The digest that the last change had; empty for the first change.
        before: String,
    },
    /// Gives up a group whose hosts are lost, with its topics.
    Abandon {
        /// Its name.
        group: String,
    },
    /// Continues with one host, because the others are lost: see [`crate::Replica::recover`].
    Recover {
        /// The host.
        host: u64,
        /// Its identity before: that of the namespace that it is a copy of.
        was: u64,
        /// In the first group: the groups that continue. The others are given up with their topics.
        kept: Option<Vec<u32>>,
    },
}

impl Action {
    /// The host that the action is about, if any.
    pub(crate) fn host(&self) -> Option<u64> {
        match self {
            Action::Subscribe { host, .. }
            | Action::Unsubscribe { host, .. }
            | Action::Feed { host, .. }
            | Action::Unfeed { host, .. }
            | Action::Fed { host, .. }
            | Action::SubscribeOutside { host, .. }
            | Action::Follow { host, .. }
            | Action::Labels { host, .. } => Some(*host),
            Action::Member(member) => Some(member.id),
            Action::Create { .. }
            | Action::CreateOutside { .. }
            | Action::Publish { .. }
            | Action::Prefer { .. }
            | Action::Voters { .. }
            | Action::Machine
            | Action::Group { .. }
            | Action::Ungroup { .. }
            | Action::Resize { .. }
            | Action::Place { .. }
            | Action::CreateAt { .. }
            | Action::Remove { .. }
            | Action::Displace { .. }
            | Action::Displaced { .. }
            | Action::Secret { .. }
            | Action::Abandon { .. }
            | Action::Recover { .. } => None,
        }
    }

    /// Whether a replica that does not know it may ignore it.
    fn is_ignorable(&self) -> bool {
        matches!(self, Action::Labels { .. })
    }
}

/// A command in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command<'b> {
    /// Its submitter.
    pub origin: Origin,
    /// Its action.
    pub action: Action,
    /// The record that it publishes.
    pub data: &'b [u8],
}

#[derive(Serialize, Deserialize)]
struct Head {
    origin: Origin,
    action: Action,
}

impl<'b> Command<'b> {
    /// Encodes it.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.encode_with(&Stamp::default())
    }

    /// Encodes it with what its publisher says of the record.
    pub fn encode_with(&self, stamp: &Stamp) -> Result<Vec<u8>> {
        let head = Head { origin: self.origin, action: self.action.clone() };
        let mut head = rmp_serde::to_vec(&head)
            .map_err(|error| Code::HostInternal.error(format!("a command cannot be encoded: {error}")))?;
        stamp.encode(&mut head);
        let length = u16::try_from(head.len()).ok().filter(|length| length & IGNORABLE == 0);
        let length = length
            .ok_or_else(|| Code::ValueInvalid.error(format!("the head of a command has {} bytes", head.len())))?;
        let mut bytes = Vec::with_capacity(2 + head.len() + self.data.len());
        let mark = if self.action.is_ignorable() { IGNORABLE } else { 0 };
        bytes.extend_from_slice(&(length | mark).to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(self.data);
        Ok(bytes)
    }

    /// Decodes a command.
    pub fn decode(bytes: &'b [u8]) -> Result<Self> {
        Self::decode_with(bytes).map(|(command, _)| command)
    }

    /// Decodes a command, and what its publisher says of the record.
    pub fn decode_with(bytes: &'b [u8]) -> Result<(Self, Stamp)> {
        let (head, data) = split(bytes).ok_or_else(|| damaged("it is truncated"))?;
        let mut reader = Cursor::new(head);
        let Head { origin, action } = rmp_serde::from_read(&mut reader).map_err(|error| damaged(&error.to_string()))?;
        let extension = usize::try_from(reader.position()).ok().and_then(|at| head.get(at..)).unwrap_or_default();
        Ok((Self { origin, action, data }, Stamp::decode(extension)?))
    }

    /// Decodes a command; `None` if this version does not know it and may ignore it. An unknown command that may not be ignored is refused.
    pub fn known(bytes: &'b [u8]) -> Result<Option<Self>> {
        let is_ignorable = bytes.first_chunk::<2>().is_some_and(|length| u16::from_le_bytes(*length) & IGNORABLE != 0);
        match Self::decode(bytes) {
            Ok(command) => Ok(Some(command)),
            Err(_) if is_ignorable => Ok(None),
            Err(error) => {
                let detail = format!("a command that this version does not know ({})", error.detail());
                Err(Code::MessageUnknown.error(detail))
            }
        }
    }

    /// The data of the command of these bytes.
    pub fn data_of(bytes: &[u8]) -> Result<&[u8]> {
        split(bytes).map(|(_, data)| data).ok_or_else(|| damaged("it is truncated"))
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length) & !IGNORABLE))
}

fn damaged(why: &str) -> millrace_wire::Error {
    Code::GroupLogDamaged.error(format!("a command of the group cannot be read: {why}"))
}

/// Refuses an invalid name of a topic: the rules are those of logs, and it must not begin with `_`.
pub fn check_topic(name: &str) -> Result<()> {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    if name.len() > TOPIC_NAME_MAX_BYTES {
        return Err(Code::TopicNameInvalid.error(format!("'{shown}…' has {} bytes", name.len())));
    }
    match name.parse::<LogName>() {
        Ok(_) if !LogName::is_internal(name) => Ok(()),
        Ok(_) => Err(Code::TopicNameInvalid.error(format!("'{shown}' begins with '_'"))),
        Err(error) => Err(Code::TopicNameInvalid.error(error.detail().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_as_it_was_written() {
        let origin = Origin { host: u64::MAX, boot: 3, serial: 9, settled: 8 };
        let member = Member { id: 7, address: "[::1]:7070".into(), name: "a".into(), site: "lab".into() };
        for action in [
            Action::Create { topic: "env/raw".into(), history: 10, durability: Durability::Leader },
            Action::Publish { topic: "env/raw".into(), key: Some("k".into()) },
            Action::Subscribe { topic: "env/raw".into(), function: "smooth".into(), host: 1 },
            Action::Unsubscribe { topic: "env/raw".into(), function: "smooth".into(), host: 1 },
            Action::Feed { topic: "t".into(), host: 1, log: "raw".into(), after: 3 },
            Action::Unfeed { topic: "t".into(), host: 1, log: "raw".into() },
            Action::Fed {
                topic: "t".into(),
                host: 1,
                log: "raw".into(),
                since: 9,
                behind: 3,
                seqno: 4,
                key: Some("k".into()),
            },
            Action::Prefer { site: "lab".into() },
            Action::Member(member),
            Action::Voters { count: 5 },
            Action::Group { name: "farm".into(), hosts: vec![1, 2, 3], size: 3 },
            Action::Ungroup { name: "farm".into() },
            Action::Resize { name: "farm".into(), size: 5 },
            Action::Follow { group: 2, host: 1 },
            Action::Place { topic: "t".into(), group: 2 },
            Action::Machine,
            Action::CreateOutside { topic: "t".into(), history: 10, engine: Engine::Nats },
            Action::SubscribeOutside { topic: "t".into(), function: "f".into(), host: 1, first: 7 },
            Action::CreateAt {
                topic: "t".into(),
                history: 10,
                durability: Durability::Leader,
                engine: Engine::Builtin,
                born: 9,
            },
            Action::Remove { topic: "t".into(), horizon: 9 },
            Action::Displace { topic: "t".into(), group: 2 },
            Action::Displaced { topic: "t".into(), since: 9 },
            Action::Labels { host: 1, labels: [("zone".to_owned(), "barn".to_owned())].into() },
            Action::Secret { digest: "0a".into(), before: String::new() },
            Action::Abandon { group: "farm".into() },
            Action::Recover { host: 1, was: 2, kept: Some(vec![3]) },
            Action::Recover { host: 1, was: 1, kept: None },
        ] {
            let command = Command { origin, action, data: b"21.5" };
            let bytes = command.encode().unwrap();
            assert_eq!(Command::decode(&bytes).unwrap(), command);
            assert_eq!(Command::data_of(&bytes).unwrap(), b"21.5");
            let may_ignore = matches!(command.action, Action::Labels { .. });
            assert_eq!(bytes[1] & 0x80 != 0, may_ignore, "{:?}", command.action);
        }
    }

    #[test]
    fn bytes_that_are_no_command_are_refused() {
        let bytes =
            Command { origin: Origin::default(), action: Action::Publish { topic: "t".into(), key: None }, data: b"" };
        let bytes = bytes.encode().unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(Command::decode(&bytes[..cut]).unwrap_err().code(), Code::GroupLogDamaged, "cut at {cut}");
        }
        assert_eq!(Command::decode(&[2, 0, 0xc1, 0xc1]).unwrap_err().code(), Code::GroupLogDamaged);
    }

    #[test]
    fn an_unknown_command_is_refused_unless_it_may_be_ignored() {
        #[derive(Serialize)]
        enum Later {
            Archive { topic: String },
        }
        let head = rmp_serde::to_vec(&(Origin::default(), Later::Archive { topic: "t".into() })).unwrap();
        let bytes = |length: u16| [&length.to_le_bytes()[..], &head, b"data"].concat();
        let length = u16::try_from(head.len()).unwrap();
        let refused = Command::known(&bytes(length)).unwrap_err();
        assert_eq!(refused.code(), Code::MessageUnknown);
        assert!(refused.detail().contains("Archive"), "{refused:?}");
        assert_eq!(Command::known(&bytes(length | IGNORABLE)).unwrap(), None);
        // A known command is decoded even if it is marked as ignorable.
        let command = Command { origin: Origin::default(), action: Action::Machine, data: b"x" };
        let mut bytes = command.encode().unwrap();
        bytes[1] |= 1 << 7;
        assert_eq!(Command::known(&bytes).unwrap(), Some(command));
    }

    #[test]
    fn what_a_publisher_says_of_a_record_is_read_as_it_was_written_and_ignored_by_earlier_versions() {
        let action = Action::Publish { topic: "t".into(), key: None };
        let command = Command { origin: Origin::default(), action, data: b"21.5" };
        let (time, cause) = (Hlc::from_wall_us(1_700_000_000_000_000), EventId::from_bits(u128::MAX / 3));
        for stamp in [
            Stamp::default(),
            Stamp { time, ..Stamp::default() },
            Stamp { cause, ..Stamp::default() },
            Stamp { time, cause },
        ] {
            let bytes = command.encode_with(&stamp).unwrap();
            assert_eq!(Command::decode_with(&bytes).unwrap(), (command.clone(), stamp));
            assert_eq!(Command::known(&bytes).unwrap(), Some(command.clone()));
            assert_eq!(Command::data_of(&bytes).unwrap(), b"21.5");
            // As a version reads it that knows no extension.
            let (head, _) = split(&bytes).unwrap();
            let Head { origin, action } = rmp_serde::from_slice(head).unwrap();
            assert_eq!((origin, action), (command.origin, command.action.clone()));
        }
        assert_eq!(command.encode_with(&Stamp::default()).unwrap(), command.encode().unwrap(), "as before");
    }

    #[test]
    fn a_key_of_the_extension_that_is_unknown_is_refused_unless_it_may_be_ignored() {
        let head = rmp_serde::to_vec(&(Origin::default(), Action::Machine)).unwrap();
        let with = |extension: &[u8]| {
            let length = u16::try_from(head.len() + extension.len()).unwrap().to_le_bytes();
            [&length[..], &head, extension, b"data"].concat()
        };
        let time = Hlc::from_wall_us(7);
        let mut known = Vec::new();
        Stamp { time, ..Stamp::default() }.encode(&mut known);
        known[0] += 1;
        // A trace context of a later version.
        let later = [&known[..], &[UINT8, 130, BIN8, 3, 1, 2, 3]].concat();
        assert_eq!(Command::decode_with(&with(&later)).unwrap().1, Stamp { time, ..Stamp::default() });
        let critical = [&known[..], &[5, BIN8, 1, 0]].concat();
        assert_eq!(Command::known(&with(&critical)).unwrap_err().code(), Code::MessageUnknown);
        for cut in 1..later.len() {
            assert!(Command::decode_with(&with(&later[..cut])).is_err(), "cut at {cut}");
        }
        assert!(Command::decode_with(&with(&[0xC0])).is_err());
    }

    #[test]
    fn topics_are_named_like_logs() {
        for good in ["cpu_raw", "farm/env/raw"] {
            check_topic(good).unwrap();
        }
        for bad in ["", "_x", "a//b", "a b", &"x".repeat(201)] {
            assert_eq!(check_topic(bad).unwrap_err().code(), Code::TopicNameInvalid, "{bad}");
        }
    }
}
