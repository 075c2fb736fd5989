//! How persistent entities are written to a journal, and restored from it.
//!
//! ```text
//!  step ── effects, answers ──> a record      one log for all entities of a space, in the order of their steps
//!  records from the log's beginning on ──> restore ──> entities, waiters, sessions and the answers that were not acknowledged
//! ```
//!
//! A record contains the effects of a step, so a restore executes no method. A snapshot is a series of records, too: the effects of each
//! create one entity. The records of steps that precede a complete snapshot are no longer needed.

#[cfg(test)]
mod tests;

use super::{Application, Asked, Call, Client, Entity, Session, Space, busy};
use crate::{
    Moment, Raised, Reply, SESSION_BYTES, Type, Waiter,
    state::{Effect, State},
    types::user::RUNNING,
    value,
};
use millrace_wire::{Code, Error, Result};
use std::{collections::BTreeMap, sync::Arc};

// The kinds of records.
const STEP: i64 = 1;
const DELETED: i64 = 2;
const ENDED: i64 = 3;
const OPENED: i64 = 4;
const BEGIN: i64 = 5;
const ENTITY: i64 = 6;
const SESSION: i64 = 7;
/// A reader may ignore unknown kinds from here on.
const IGNORABLE: i64 = 128;

/// The longest record, unless the journal takes only shorter ones: a step that would leave a longer one is refused.
const RECORD_MAX_BYTES: usize = 15 << 20;
/// About how many bytes of a snapshot are in one record, likewise.
const PART_MAX_BYTES: usize = 1 << 20;
/// The size of the records that wait to be written at which further steps are refused.
const UNWRITTEN_MAX_BYTES: usize = 64 << 20;

/// An answer that a step gave to a call that waited.
type Released = (Session, u64, Reply);

/// Records for the journal.
#[derive(Debug)]
pub(super) struct Records {
    /// The longest one.
    most: usize,
    /// During a restore: the effects of entities that continue in later parts of the snapshot.
    parts: BTreeMap<Box<str>, Vec<Effect>>,
    /// Made, and not taken yet.
    made: Vec<Vec<u8>>,
    /// How many were ever made.
    pub count: u64,
    /// The bytes of records that were made and are not written yet.
    pub unwritten: usize,
    /// Whether only snapshots make records, and steps do not.
    pub of_snapshots: bool,
    /// Why no further ones may be made, except by calls that waited.
    refused: Option<Error>,
}

impl Default for Records {
    fn default() -> Self {
        let most = RECORD_MAX_BYTES;
        let (parts, made) = (BTreeMap::new(), Vec::new());
        Self { most, parts, made, count: 0, unwritten: 0, of_snapshots: false, refused: None }
    }
}

impl Records {
    /// For a space whose steps are stored elsewhere: records of any length, and only those of snapshots.
    pub fn of_snapshots() -> Self {
        Self { most: usize::MAX, of_snapshots: true, ..Self::default() }
    }

    /// The approximate number of bytes of a snapshot in one record.
    fn part_bytes(&self) -> usize {
        PART_MAX_BYTES.min(self.most / 2)
    }

    /// Adds a record that does not belong to a snapshot.
    fn note(&mut self, record: Vec<u8>) {
        if !self.of_snapshots {
            self.push(record);
        }
    }

    fn push(&mut self, record: Vec<u8>) {
        self.unwritten += record.len();
        self.count += 1;
        self.made.push(record);
    }
}

/// The entities and sessions that a snapshot still has to write, of those that existed when it began.
#[derive(Clone, Debug)]
pub struct Cursor {
    keys: Vec<Box<str>>,
    sessions: Vec<Session>,
}

pub(crate) fn uint(number: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(9);
    rmp::encode::write_uint(&mut out, number).expect("writing to memory does not fail");
    out
}

fn as_uint(value: &[u8]) -> Option<u64> {
    rmp::decode::read_int(&mut &*value).ok()
}

fn size(number: usize) -> Vec<u8> {
    uint(number as u64)
}

pub(crate) fn list(parts: &[Vec<u8>]) -> Vec<u8> {
    value::array(parts.iter().map(Vec::as_slice))
}

fn effect(effect: &Effect) -> Vec<u8> {
    let tag = |tag: i64| value::int(tag);
    match effect {
        Effect::Field(field, None) => list(&[tag(0), tag((*field).into())]),
        Effect::Field(field, Some(with)) => list(&[tag(0), tag((*field).into()), value::bytes(with)]),
        Effect::Put(key, None) => list(&[tag(1), value::bytes(key)]),
        Effect::Put(key, Some((at, with))) => list(&[tag(1), value::bytes(key), uint(*at), value::bytes(with)]),
        Effect::Insert(at, with) => list(&[tag(2), size(*at), value::bytes(with)]),
        Effect::Replace(at, with) => list(&[tag(3), size(*at), value::bytes(with)]),
        Effect::Remove(at) => list(&[tag(4), size(*at)]),
        Effect::Write(at, with, length) => list(&[tag(5), size(*at), value::bytes(with), size(*length)]),
        Effect::Wait(ticket, Waiter { session, call, way, value: with, fence }) => {
            let (session, way) = (value::bytes(session), tag((*way).into()));
            let mut parts = vec![tag(6), uint(*ticket), session, uint(*call), way, value::bytes(with)];
            if let Some((name, token)) = fence {
                parts.extend([value::text(name), uint(*token)]);
            }
            list(&parts)
        }
        Effect::Leave(ticket) => list(&[tag(7), uint(*ticket)]),
    }
}

/// Decodes an effect.
fn read_effect(bytes: &[u8]) -> Option<Effect> {
    let parts = value::elements(bytes).ok()?;
    let whole = |at: usize| parts.get(at).and_then(|part| as_uint(part));
    let place = |at: usize| whole(at).and_then(|place| usize::try_from(place).ok());
    let small = |at: usize| whole(at).and_then(|small| u8::try_from(small).ok());
    let bytes = |at: usize| parts.get(at).and_then(|part| value::as_bytes(part)).map(<[u8]>::to_vec);
    Some(match (whole(0)?, parts.len()) {
        (0, 2) => Effect::Field(small(1)?, None),
        (0, 3) => Effect::Field(small(1)?, Some(bytes(2)?)),
        (1, 2) => Effect::Put(bytes(1)?, None),
        (1, 4) => Effect::Put(bytes(1)?, Some((whole(2)?, bytes(3)?))),
        (2, 3) => Effect::Insert(place(1)?, bytes(2)?),
        (3, 3) => Effect::Replace(place(1)?, bytes(2)?),
        (4, 2) => Effect::Remove(place(1)?),
        (5, 4) => Effect::Write(place(1)?, bytes(2)?, place(3)?),
        (6, 6 | 8) => {
            let session = bytes(2)?.try_into().ok()?;
            let fence = match parts.get(6) {
                Some(name) => Some((value::as_text(name)?.into(), whole(7)?)),
                None => None,
            };
            Effect::Wait(whole(1)?, Waiter { session, call: whole(3)?, way: small(4)?, value: bytes(5)?, fence })
        }
        (7, 2) => Effect::Leave(whole(1)?),
        _ => return None,
    })
}

fn effects(effects: &[Effect]) -> Vec<u8> {
    list(&effects.iter().map(effect).collect::<Vec<_>>())
}

fn read_effects(bytes: &[u8]) -> Option<Vec<Effect>> {
    value::elements(bytes).ok()?.into_iter().map(read_effect).collect()
}

fn reply(reply: Option<&Reply>) -> Vec<u8> {
    match reply {
        None => value::nil(),
        Some(Ok(with)) => list(&[value::bytes(with)]),
        Some(Err(Raised { class, text })) => list(&[value::text(class), value::text(text)]),
    }
}

fn read_reply(bytes: &[u8]) -> Option<Option<Reply>> {
    if value::is_nil(bytes) {
        return Some(None);
    }
    match *value::elements(bytes).ok()? {
        [with] => Some(Some(Ok(Arc::from(value::as_bytes(with)?)))),
        [class, text] => {
            let class = crate::types::raised_class(value::as_text(class)?);
            Some(Some(Err(Raised::new(class, value::as_text(text)?))))
        }
        _ => None,
    }
}

fn released(of: &[Released]) -> Vec<u8> {
    let one = |(session, number, with): &Released| list(&[value::bytes(session), uint(*number), reply(Some(with))]);
    list(&of.iter().map(one).collect::<Vec<_>>())
}

/// The call that a step executed.
fn caller(call: Option<(&Call<'_>, Option<&Reply>)>) -> Vec<u8> {
    let Some((call, answer)) = call else { return value::nil() };
    list(&[
        value::bytes(&call.session),
        uint(call.acked),
        uint(call.number),
        uint(call.what()),
        value::boolean(call.method.waits),
        reply(answer),
    ])
}

pub(crate) fn damaged() -> Error {
    Code::FrameMalformed.error("a record of persistent objects does not follow its format")
}

pub(crate) fn session_of(bytes: &[u8]) -> Option<Session> {
    value::as_bytes(bytes)?.try_into().ok()
}

/// Reads the elements of a record in order.
pub(crate) struct Reader<'a>(pub std::vec::IntoIter<&'a [u8]>);

impl<'a> Reader<'a> {
    pub fn next(&mut self) -> Result<&'a [u8]> {
        self.0.next().ok_or_else(damaged)
    }

    pub fn read<T>(&mut self, read: impl FnOnce(&'a [u8]) -> Option<T>) -> Result<T> {
        read(self.next()?).ok_or_else(damaged)
    }

    pub fn text(&mut self) -> Result<&'a str> {
        self.read(value::as_text)
    }

    pub fn uint(&mut self) -> Result<u64> {
        self.read(as_uint)
    }

    pub fn flag(&mut self) -> Result<bool> {
        self.read(value::as_bool)
    }
}

impl Space {
    /// Sets the maximum length of a record in the journal.
    pub fn limit_records(&mut self, most: usize) {
        self.records.most = self.records.most.min(most);
    }

    /// The records that were made since the last call of this function.
    pub fn take_records(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.records.made)
    }

    /// Reports that this many bytes of records are written.
    pub fn wrote(&mut self, bytes: usize) {
        self.records.unwritten = self.records.unwritten.saturating_sub(bytes);
    }

    /// How many records have to be written before an answer about this entity may be sent.
    pub fn after(&self, key: &str) -> u64 {
        self.entities.get(key).map_or(self.records.count, |entity| entity.recorded)
    }

    /// From now on calls that change persistent entities are refused with this error, or with none no longer: their records could not be
    /// written.
    pub fn refuse_records(&mut self, error: Option<Error>) {
        self.records.refused = error;
    }

    /// Whether a further step of a persistent entity is allowed.
    pub(super) fn check_unwritten(&self, reads: bool) -> Result<()> {
        if let Some(error) = self.records.refused.as_ref().filter(|_| !reads) {
            return Err(error.clone());
        }
        if self.records.unwritten <= UNWRITTEN_MAX_BYTES {
            return Ok(());
        }
        Err(busy(format!("{} bytes of persistent objects are not written yet", self.records.unwritten)))
    }

    /// Records a step of a persistent entity, unless it changed nothing. Refused if the record would be too long.
    pub(super) fn record_step(
        &mut self,
        (key, created): (&str, bool),
        changes: &[Effect],
        call: Option<(&Call<'_>, Option<&Reply>)>,
        answers: &[Released],
    ) -> Result<()> {
        let is_kept = |entity: &&mut Entity| entity.persistent && !self.records.of_snapshots;
        let Some(entity) = self.entities.get_mut(key).filter(is_kept) else { return Ok(()) };
        if changes.is_empty() && !created {
            return Ok(());
        }
        let caller = caller(call);
        let record = list(&[
            value::int(STEP),
            value::text(key),
            value::text(entity.kind.name()),
            uint(entity.incarnation),
            value::boolean(created),
            effects(changes),
            caller,
            released(answers),
        ]);
        let most = self.records.most;
        if record.len() > most {
            let reported = format!("a step of {} bytes; the limit of a persistent object is {most}", record.len());
            return Err(Code::ObjectTooLarge.error(reported));
        }
        self.records.push(record);
        entity.recorded = self.records.count;
        Ok(())
    }

    /// Records that an entity was deleted.
    pub(super) fn record_deleted(
        &mut self,
        key: &str,
        call: Option<(&Call<'_>, Option<&Reply>)>,
        answers: &[Released],
    ) {
        self.records.note(list(&[value::int(DELETED), value::text(key), caller(call), released(answers)]));
    }

    /// Records that a session has ended that an earlier record names.
    pub(super) fn record_ended(&mut self, session: &Session) {
        self.records.note(list(&[value::int(ENDED), value::bytes(session)]));
    }

    /// Makes a session persistent, so that it exists after a restart, too.
    pub(crate) fn keep(&mut self, session: &Session) {
        let Some(client) = self.sessions.get_mut(session).filter(|client| !client.kept) else { return };
        client.kept = true;
        let (application, lease_ms) = (value::text(&client.application), uint(client.lease_ms));
        self.records.note(list(&[value::int(OPENED), value::bytes(session), application, lease_ms]));
    }

    /// The approximate size of a snapshot in bytes.
    pub fn persistent_bytes(&self) -> usize {
        self.entities.values().filter(|entity| entity.persistent).map(|entity| entity.state.bytes()).sum()
    }

    /// Begins a snapshot. Records of entities that are created from now on follow it.
    pub fn begin_snapshot(&mut self) -> Cursor {
        self.records.push(list(&[value::int(BEGIN)]));
        let keys = self.entities.iter().filter(|(_, entity)| entity.persistent).map(|(key, _)| key.clone()).collect();
        let sessions = self.sessions.iter().filter(|(_, client)| client.kept).map(|(id, _)| *id).collect();
        Cursor { keys, sessions }
    }

    /// Adds one entity or session to a snapshot; returns `None` at its end.
    pub fn go_on(&mut self, mut cursor: Cursor) -> Option<Cursor> {
        if let Some(key) = cursor.keys.pop() {
            self.entity_parts(&key);
        } else {
            let id = cursor.sessions.pop()?;
            let parts =
                self.sessions.get(&id).map(|client| kept(&id, client, self.records.part_bytes(), self.records.most));
            parts.into_iter().flatten().for_each(|part| self.records.push(part));
        }
        Some(cursor)
    }

    fn entity_parts(&mut self, key: &str) {
        let Some(entity) = self.entities.get(key) else { return };
        let part_bytes = self.records.part_bytes();
        let (mut parts, mut bytes): (Vec<Vec<Vec<u8>>>, usize) = (vec![Vec::new()], 0);
        // The mark of a step in progress is not recorded, because after a restart no step is in progress.
        let is_mark = |change: &Effect| entity.kind == Type::Shared && matches!(change, Effect::Field(RUNNING, _));
        for change in entity.state.effects(part_bytes).filter(|change| !is_mark(change)) {
            let change = effect(&change);
            if bytes > 0 && bytes + change.len() > part_bytes {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += change.len();
            parts.last_mut().expect("there is one from the beginning").push(change);
        }
        let last = parts.len() - 1;
        let (kind, incarnation) = (value::text(entity.kind.name()), uint(entity.incarnation));
        let record = |(at, part): (usize, &Vec<Vec<u8>>)| {
            let (first, last) = (value::boolean(at == 0), value::boolean(at == last));
            let (kind, incarnation) = (kind.clone(), incarnation.clone());
            list(&[value::int(ENTITY), value::text(key), kind, incarnation, first, last, list(part)])
        };
        let records: Vec<Vec<u8>> = parts.iter().enumerate().map(record).collect();
        records.into_iter().for_each(|record| self.records.push(record));
    }

    /// Applies a record. Records must be applied in their order.
    pub fn restore(&mut self, record: &[u8], moment: Moment) -> Result<()> {
        let mut reader = Reader(value::elements(record)?.into_iter());
        match reader.read(value::as_int)? {
            STEP => self.restore_step(&mut reader, moment),
            DELETED => {
                let key = reader.text()?;
                self.forget(key);
                self.restore_caller(reader.next()?, (key, 0), moment)?;
                self.restore_released(&mut reader, moment)
            }
            ENDED => {
                if let Some(client) = self.sessions.remove(&reader.read(session_of)?) {
                    client.calls.values().for_each(|asked| self.kept.forget(asked));
                    self.left(&client.application);
                }
                Ok(())
            }
            OPENED => {
                let (id, application, lease_ms) = (reader.read(session_of)?, reader.text()?, reader.uint()?);
                self.restore_session(id, application, lease_ms, moment);
                Ok(())
            }
            BEGIN => Ok(()),
            ENTITY => {
                let (key, kind, incarnation) = (reader.text()?, reader.text()?.parse::<Type>()?, reader.uint()?);
                let (is_first, is_last, changes) = (reader.flag()?, reader.flag()?, reader.read(read_effects)?);
                if is_first {
                    self.records.parts.insert(key.into(), Vec::new());
                }
                // If a host ended in the middle of a snapshot, only the first parts exist, and the earlier state stays.
                let Some(parts) = self.records.parts.get_mut(key) else { return Ok(()) };
                parts.extend(changes);
                if is_last {
                    let whole = self.records.parts.remove(key).unwrap_or_default();
                    self.restore_effects((key, kind, incarnation), true, whole);
                }
                Ok(())
            }
            SESSION => {
                let (id, application, lease_ms) = (reader.read(session_of)?, reader.text()?, reader.uint()?);
                self.restore_session(id, application, lease_ms, moment);
                let (acked, touched) = (reader.uint()?, value::elements(reader.next()?)?);
                let Some(client) = self.sessions.get_mut(&id) else { return Ok(()) };
                client.acknowledge(acked, &mut self.kept);
                client.touched.extend(touched.into_iter().filter_map(value::as_text).map(Into::into));
                for call in value::elements(reader.next()?)? {
                    let mut call = Reader(value::elements(call)?.into_iter());
                    let (number, what, incarnation) = (call.uint()?, call.uint()?, call.uint()?);
                    let reply = call.read(read_reply)?;
                    client.calls.entry(number).or_insert(Asked::new(what, incarnation));
                    if let Some(reply) = reply {
                        client.restore_answer(number, reply, moment.now_ms, &mut self.kept);
                    }
                }
                Ok(())
            }
            IGNORABLE.. => Ok(()),
            kind => Err(Code::FormatVersion.error(format!("a record of kind {kind}, unknown to this version"))),
        }
    }

    fn restore_session(&mut self, id: Session, application: &str, lease_ms: u64, moment: Moment) {
        if !self.sessions.contains_key(&id) {
            if !application.is_empty() {
                *self.applications.entry(application.into()).or_default() += 1;
            }
            let client = Client::new(application.into(), lease_ms, moment.now_ms);
            let replicated = self.limits.is_of_group();
            self.sessions.insert(id, Client { kept: true, replicated, ..client });
        }
    }

    fn restore_effects(&mut self, (key, kind, incarnation): (&str, Type, u64), fresh: bool, changes: Vec<Effect>) {
        if fresh {
            let entity = Entity::persistent(kind, incarnation);
            if let Some(before) = self.entities.insert(key.into(), entity) {
                self.bytes -= before.state.bytes();
            }
        }
        // An entity or session that is unknown here comes with a later snapshot.
        let Some(entity) = self.entities.get_mut(key).filter(|entity| entity.incarnation == incarnation) else {
            return;
        };
        let before = entity.state.bytes();
        changes.into_iter().for_each(|change| drop(entity.state.apply(change)));
        self.bytes = self.bytes + entity.state.bytes() - before;
    }

    fn restore_step(&mut self, reader: &mut Reader<'_>, moment: Moment) -> Result<()> {
        let (key, kind, incarnation) = (reader.text()?, reader.text()?.parse::<Type>()?, reader.uint()?);
        let (created, changes) = (reader.flag()?, reader.read(read_effects)?);
        self.restore_effects((key, kind, incarnation), created, changes);
        self.restore_caller(reader.next()?, (key, incarnation), moment)?;
        self.restore_released(reader, moment)
    }

    fn restore_caller(&mut self, caller: &[u8], (key, incarnation): (&str, u64), moment: Moment) -> Result<()> {
        if value::is_nil(caller) {
            return Ok(());
        }
        let mut caller = Reader(value::elements(caller)?.into_iter());
        let (id, acked) = (caller.read(session_of)?, caller.uint()?);
        let (number, what) = (caller.uint()?, caller.uint()?);
        let (touches, reply) = (caller.flag()?, caller.read(read_reply)?);
        // An entity or session that is unknown here comes with a later snapshot.
        let Some(client) = self.sessions.get_mut(&id) else { return Ok(()) };
        client.acknowledge(acked, &mut self.kept);
        client.make_room(&mut self.kept);
        client.calls.insert(number, Asked::new(what, incarnation));
        if let Some(reply) = reply {
            client.restore_answer(number, reply, moment.now_ms, &mut self.kept);
        }
        if touches {
            client.touched.insert(key.into());
        }
        Ok(())
    }

    fn restore_released(&mut self, reader: &mut Reader<'_>, moment: Moment) -> Result<()> {
        for one in value::elements(reader.next()?)? {
            let mut one = Reader(value::elements(one)?.into_iter());
            let (session, number, reply) = (one.read(session_of)?, one.uint()?, one.read(read_reply)?);
            if let (Some(client), Some(reply)) = (self.sessions.get_mut(&session), reply) {
                client.restore_answer(number, reply, moment.now_ms, &mut self.kept);
            }
        }
        Ok(())
    }

    /// All records were applied: waiting calls of user classes may begin.
    pub fn restored(&mut self) {
        self.records.parts.clear();
        self.sessions.values_mut().for_each(Client::restored);
        let waits = |entity: &Entity| entity.kind == Type::Shared && !entity.state.waiters().is_empty();
        self.work.extend(self.entities.iter().filter(|(_, entity)| waits(entity)).map(|(key, _)| key.clone()));
    }
}

/// The records of a session in a snapshot, in parts. An answer that does not fit a record does not belong to a recorded step, and is
/// omitted.
fn kept(id: &Session, client: &Client, part_bytes: usize, most: usize) -> Vec<Vec<u8>> {
    let call = |(number, asked): (&u64, &Asked)| {
        let answer = asked.reply.as_ref().map(|(reply, _)| reply);
        list(&[uint(*number), uint(asked.what), uint(asked.incarnation), reply(answer)])
    };
    let touched: Vec<Vec<u8>> = client.touched.iter().map(|key| value::text(key)).collect();
    let touched = list(&touched);
    let head = |calls: &[Vec<u8>]| {
        list(&[
            value::int(SESSION),
            value::bytes(id),
            value::text(&client.application),
            uint(client.lease_ms),
            uint(client.acked),
            touched.clone(),
            list(calls),
        ])
    };
    let room = most.saturating_sub(head(&[]).len());
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for call in client.calls.iter().map(call).filter(|call| call.len() < room) {
        if !part.is_empty() && bytes + call.len() > part_bytes {
            parts.push(head(&part));
            (part, bytes) = (Vec::new(), 0);
        }
        bytes += call.len();
        part.push(call);
    }
    parts.push(head(&part));
    parts
}

impl Entity {
    /// One that a record makes.
    fn persistent(kind: Type, incarnation: u64) -> Self {
        let (application, state) = (Application::default(), State::default());
        Self { kind, incarnation, application, state, persistent: true, recorded: 0 }
    }
}

const _: () = assert!(SESSION_BYTES == 16, "the format of the records has it");
