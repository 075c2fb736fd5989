//! A space: entities, the sessions that call them, and one step at a time.

pub(crate) mod durable;
mod fences;
mod leaving;
mod steps;

use crate::{
    Application, Raised, Reply, Session,
    session::{Asked, Client, Kept, OPEN_MAX},
    state::{Effect, State},
    types::{ANSWER_MAX_BYTES, Args, DELETE, Flow, Method, STATE_MAX_BYTES, Turn, Type, made, user::CLASS_METHOD},
    value,
};
pub use durable::Cursor;
use millrace_wire::{Code, Error, Result, protocol::Fence};
use std::{
    collections::{BTreeMap, HashMap},
    mem,
};
pub use steps::{Finished, Job};

/// The longest key.
const KEY_MAX_BYTES: usize = 255;
/// The most entities of a space.
const ENTITIES_MAX: usize = 1 << 20;
/// The most sessions of a space.
const SESSIONS_MAX: usize = 1 << 18;
/// The most bytes of all entities together.
const SPACE_MAX_BYTES: usize = 1 << 30;
/// The size of the answers of all sessions at which older ones are forgotten, or else further calls are refused.
const SPACE_ANSWERS_MAX_BYTES: usize = 256 << 20;
/// The same for a space whose calls are ordered by a group.
const REPLICATED_ANSWERS_MAX_BYTES: usize = 48 << 20;
/// How many sessions forget answers for one call, at most; and the part of all answers below which a session keeps its own.
const FORGETTING_MAX: usize = 64;
const FORGETTING_PART: usize = 1024;
/// The time after which a refused client may retry.
const BUSY_MS: u32 = 100;

/// The time and the random values for a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// Milliseconds of a monotonic clock.
    pub now_ms: u64,
    /// A number that only grows, also across restarts of hosts.
    pub token: u64,
}

/// Options of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The entity must exist.
    pub must_exist: bool,
    /// The entity must not exist.
    pub must_create: bool,
    /// The caller has given up: the answer is that of a call after its timeout.
    pub give_up: bool,
    /// If the object is created, it is persistent.
    pub persistent: bool,
    /// The least number of hosts that have a copy; with 0 and 1, only the caller's host.
    pub copies: u8,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Whose.
    pub session: Session,
    /// Its number in the session. A number that was used before repeats that call.
    pub number: u64,
    /// The client has received all answers below this number.
    pub acked: u64,
    /// The entity's type.
    pub kind: Type,
    /// Its key.
    pub key: &'a str,
    /// The incarnation that the entity must have; 0 for any.
    pub incarnation: u64,
    /// The method.
    pub method: Method,
    /// The arguments of the method, an array.
    pub args: &'a [u8],
    /// The arguments of the constructor, which runs if the entity does not exist.
    pub new: Option<&'a [u8]>,
    /// Further options.
    pub flags: Flags,
    /// A token of a lock: the call is refused if the object has seen a higher one under its name.
    pub fence: Option<Fence<'a>>,
}

impl Call<'_> {
    /// Identifies the call: FNV-1a of its type, key and method, the same in every process.
    fn what(&self) -> u64 {
        let parts = [self.kind.name(), self.key, self.method.name].map(str::as_bytes).into_iter();
        let bytes = parts.flat_map(|part| part.iter().chain(&[0xff]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// The answer, and the entity's incarnation.
    Now(u64, Reply),
    /// The call waits; the entity's incarnation.
    Waiting(u64),
}

#[derive(Debug)]
struct Entity {
    kind: Type,
    incarnation: u64,
    application: Application,
    state: State,
    /// Whether it exists after a restart of its host.
    persistent: bool,
    /// The number of records that were made up to and including the last one of this entity.
    recorded: u64,
}

/// Information about an entity, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its type.
    pub kind: Type,
    /// Its key.
    pub key: Box<str>,
    /// Its incarnation.
    pub incarnation: u64,
    /// The application with whose last session it ends; empty if it stays.
    pub application: Application,
    /// Its approximate size in bytes.
    pub bytes: usize,
    /// The waiting sessions and their calls.
    pub waiting: Vec<(Session, u64)>,
    /// The owner, if it is a lock and is taken.
    pub owner: Option<Session>,
    /// Its class, if it is a user class.
    pub class: Option<Box<str>>,
    /// Whether it exists after a restart of its host.
    pub persistent: bool,
}

/// How many bytes entities may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    entity: usize,
    space: usize,
    answers: usize,
    /// Of the answers if each call has its own.
    separate: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let (entity, space, answers) = (STATE_MAX_BYTES, SPACE_MAX_BYTES, SPACE_ANSWERS_MAX_BYTES);
        Self { entity, space, answers, separate: usize::MAX }
    }
}

impl Limits {
    /// Whether they are those of a space whose calls are ordered by a group.
    fn is_of_group(self) -> bool {
        self.separate != usize::MAX
    }

    /// Whether a state is within the limits, given the size of all other entities.
    fn check(self, state: &State, others: usize) -> Result<()> {
        let refused = |what: &str, bytes: usize, most: usize| {
            Err(Code::ObjectTooLarge.error(format!("{what} would take {bytes} bytes; the limit is {most}")))
        };
        match state.bytes() {
            bytes if bytes > self.entity => refused("it", bytes, self.entity),
            bytes if others + bytes > self.space => refused("all objects", others + bytes, self.space),
            _ => Ok(()),
        }
    }

    /// The same for a step: one that makes the state smaller is always allowed.
    fn check_growth(self, state: &State, others: usize, before: usize) -> Result<()> {
        if others + state.bytes() <= before { Ok(()) } else { self.check(state, others) }
    }
}

/// Entities and sessions in memory.
#[derive(Debug, Default)]
pub struct Space {
    entities: HashMap<Box<str>, Entity>,
    sessions: BTreeMap<Session, Client>,
    /// The approximate size of the entities in bytes.
    bytes: usize,
    /// Answers that have not been acknowledged.
    kept: Kept,
    limits: Limits,
    /// How many sessions each application has.
    applications: BTreeMap<Application, usize>,
    /// Calls that waited and have their answers now.
    ready: Vec<(Session, u64)>,
    /// The records of persistent entities.
    records: durable::Records,
    /// Keys of objects of user classes whose next step may begin.
    work: Vec<Box<str>>,
}

/// The incarnation of an entity, and the effects of its constructor if it has just been created.
type Found = (u64, Option<Vec<Effect>>);

impl Space {
    /// A space whose calls are ordered by a group. Its state follows from the calls alone, so its limits depend on nothing else, and it
    /// makes no records except those of snapshots.
    pub(crate) fn replicated(most_bytes: usize) -> Self {
        let (answers, separate) = (usize::MAX, REPLICATED_ANSWERS_MAX_BYTES);
        let limits = Limits { entity: most_bytes, space: most_bytes, answers, separate };
        Self { limits, records: durable::Records::of_snapshots(), ..Self::default() }
    }

    /// Opens a session, or resumes it; returns whether it was already open.
    pub fn open(&mut self, session: Session, application: &str, lease_ms: u64, moment: Moment) -> Result<bool> {
        if self.renew(session, lease_ms, moment).is_ok() {
            return Ok(true);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return Err(busy(format!("{SESSIONS_MAX} sessions are open")));
        }
        if application.len() > KEY_MAX_BYTES {
            return Err(Code::ObjectKeyInvalid.error(format!("an application's name of {} bytes", application.len())));
        }
        if !application.is_empty() {
            *self.applications.entry(application.into()).or_default() += 1;
        }
        let client = Client::new(application.into(), lease_ms, moment.now_ms);
        self.sessions.insert(session, Client { replicated: self.limits.is_of_group(), ..client });
        Ok(false)
    }

    /// Restarts the lease of an open session.
    pub fn renew(&mut self, session: Session, lease_ms: u64, moment: Moment) -> Result<()> {
        let Some(client) = self.sessions.get_mut(&session) else {
            return Err(Code::SessionExpired.error("the session is not open, or its lease has ended"));
        };
        client.lease_ms = lease_ms;
        client.expires_ms = moment.now_ms + lease_ms;
        Ok(())
    }

    /// Whether an entity with this key exists.
    pub fn holds(&self, key: &str) -> bool {
        self.entities.contains_key(key)
    }

    /// Whether an object of a user class with this key exists whose class is exactly the one that these arguments of a call name.
    pub fn has_class(&self, key: &str, args: &[u8]) -> bool {
        let entity = self.entities.get(key).filter(|entity| entity.kind == Type::Shared);
        entity.is_some_and(|entity| crate::types::user::is_of_class(&entity.state, None, args))
    }

    /// What a worker gets of a call of a reentrant method, if the call may run within the step that its object is in, or the refusal of
    /// its fence. `becomes` is the class to which that step migrates the object, if any.
    pub fn reentrant(
        &mut self,
        call: &Call<'_>,
        becomes: Option<&[Vec<u8>; 3]>,
        now: Moment,
    ) -> Option<Result<Vec<u8>>> {
        let entity = self.entities.get(call.key).filter(|entity| entity.kind == Type::Shared && !entity.persistent)?;
        let is_meant = [0, entity.incarnation].contains(&call.incarnation) && !call.flags.persistent;
        let waits = !call.flags.must_create && !call.flags.give_up;
        let is_meant = is_meant && waits && crate::types::user::is_of_class(&entity.state, becomes, call.args);
        let request = crate::types::user::own_call(call.method.name, call.args).filter(|_| is_meant)?;
        Some(self.note_fence(call, now).map(|()| request))
    }

    /// The fence of a call that is no step of its own: from now on lower tokens are refused.
    fn note_fence(&mut self, call: &Call<'_>, moment: Moment) -> Result<()> {
        let (Some(fence), Some(entity)) = (call.fence, self.entities.get_mut(call.key)) else { return Ok(()) };
        fence.check()?;
        fences::check(&entity.state, call.fence)?;
        let others = self.bytes - entity.state.bytes();
        let mut turn = Turn::new(&mut entity.state, moment, call.session, call.number);
        fences::note(&mut turn, call.kind, call.fence);
        let released = mem::take(&mut turn.released);
        self.bytes = others + entity.state.bytes();
        self.deliver(released, moment);
        Ok(())
    }

    /// Prevents the session from expiring until [`Space::unpin`] has been called as often as this.
    pub fn pin(&mut self, session: &Session) {
        if let Some(client) = self.sessions.get_mut(session) {
            client.pinned += 1;
        }
    }

    /// Whether a session is open.
    pub fn is_open(&self, session: &Session) -> bool {
        self.sessions.contains_key(session)
    }

    /// Whether the session is pinned.
    pub fn is_pinned(&self, session: &Session) -> bool {
        self.sessions.get(session).is_some_and(|client| client.pinned > 0)
    }

    /// Sets the length of its lease.
    pub fn lease(&mut self, session: &Session, lease_ms: u64, moment: Moment) {
        if let Some(client) = self.sessions.get_mut(session) {
            client.lease_ms = lease_ms;
            client.expires_ms = moment.now_ms + lease_ms;
        }
    }

    /// The lease restarts; when it ends, unless the session is still pinned.
    pub fn unpin(&mut self, session: &Session, moment: Moment) -> Option<u64> {
        let client = self.sessions.get_mut(session)?;
        client.pinned = client.pinned.saturating_sub(1);
        client.expires_ms = client.expires_ms.max(moment.now_ms + client.lease_ms);
        (client.pinned == 0).then_some(client.expires_ms)
    }

    /// The lease of a session that is open.
    pub fn lease_of(&self, session: &Session) -> Option<u64> {
        self.sessions.get(session).map(|client| client.lease_ms)
    }

    /// Whether a call of a session waits.
    pub fn is_waiting(&self, session: &Session, number: u64) -> bool {
        self.sessions
            .get(session)
            .and_then(|client| client.calls.get(&number))
            .is_some_and(|asked| asked.reply.is_none())
    }

    /// Whether a session has made a call with this number and not acknowledged its answer.
    pub(crate) fn has_call(&self, session: &Session, number: u64) -> bool {
        self.sessions.get(session).is_some_and(|client| client.is_over(number) || client.calls.contains_key(&number))
    }

    /// Bytes of the answers that no session has acknowledged.
    pub fn answers_bytes(&self) -> usize {
        self.kept.bytes
    }

    /// The answer of a call that only reads an existing entity, without storing the call; `None` if it has to be executed like any other
    /// call.
    pub fn peek(&mut self, call: &Call<'_>, moment: Moment) -> Option<Called> {
        let client = self.sessions.get(&call.session).filter(|_| call.fence.is_none())?;
        let is_read = call.method.reads && !call.method.waits && !client.calls.contains_key(&call.number);
        let entity = self.entities.get_mut(call.key).filter(|entity| is_read && entity.kind == call.kind)?;
        let fits = |entity: &Entity| {
            entity.persistent == call.flags.persistent && !call.flags.must_create && !is_made_otherwise(entity, call)
        };
        let is_meant = if call.incarnation == 0 { fits(entity) } else { call.incarnation == entity.incarnation };
        if !is_meant || call.kind == Type::Shared {
            return None;
        }
        let args = Args(value::elements(call.args).ok()?);
        let mut turn = Turn::new(&mut entity.state, moment, call.session, call.number);
        let ran = call.kind.run(&mut turn, call.method.name, &args);
        let has_changed = !turn.back.is_empty();
        turn.undo();
        let reply = match ran {
            Ok(Flow::Reply(reply)) if !has_changed => Ok(reply.into()),
            Err(raised) => Err(raised),
            Ok(_) => return None,
        };
        Some(Called::Now(entity.incarnation, reply))
    }

    /// Executes a call, or returns the answer that it has already got.
    pub fn call(&mut self, call: &Call<'_>, moment: Moment) -> Result<Called> {
        let called = self.carry_out(call, moment);
        if matches!(called, Ok(Called::Now(..))) {
            self.hand(&call.session, call.number);
        }
        called
    }

    /// The answer of a call is handed to a request: from now on it may be forgotten.
    pub fn hand(&mut self, session: &Session, number: u64) {
        self.sessions.get_mut(session).into_iter().for_each(|client| client.hand(number));
    }

    fn carry_out(&mut self, call: &Call<'_>, moment: Moment) -> Result<Called> {
        let Some(client) = self.sessions.get_mut(&call.session) else {
            return Err(Code::SessionExpired.error("the session is not open, or its lease has ended"));
        };
        client.expires_ms = client.expires_ms.max(moment.now_ms + client.lease_ms);
        client.acknowledge(call.acked, &mut self.kept);
        if client.is_over(call.number) {
            return Err(Code::OutcomeUnknown.error(format!("the answer of call {} is not kept", call.number)));
        }
        if let Some(asked) = client.calls.get(&call.number) {
            if asked.what != call.what() {
                let reported = format!("call {} was already used for another method or object", call.number);
                return Err(Code::CallDiverged.error(reported));
            }
            return match (&asked.reply, call.flags.give_up) {
                (Some((reply, _)), _) => Ok(Called::Now(asked.incarnation, reply.clone())),
                (None, false) => Ok(Called::Waiting(asked.incarnation)),
                (None, true) => Ok(self.give_up(call, moment)),
            };
        }
        call.fence.map_or(Ok(()), |fence| fence.check())?;
        client.make_room(&mut self.kept);
        if client.is_full() {
            return Err(busy(format!("{OPEN_MAX} calls of the session wait")));
        }
        if self.entities.get(call.key).map_or(call.flags.persistent, |entity| entity.persistent) {
            self.check_unwritten(call.method.reads)?;
            self.keep(&call.session);
        }
        self.make_room();
        if self.kept.bytes > self.limits.answers {
            return Err(busy(format!("{} bytes of answers of all sessions are not acknowledged", self.kept.bytes)));
        }
        if call.kind == Type::Shared {
            crate::types::user::check_new(call.args, call.new)?;
            if call.method.name == CLASS_METHOD {
                return Err(Code::MethodUnknown.error("a class is kept where its objects have `rf` of 2 or more"));
            }
        }
        if call.method == DELETE {
            return self.delete_called(call, moment);
        }
        let args = Args(value::elements(call.args)?);
        let (incarnation, made) = match self.find(call, moment)? {
            Ok(found) => found,
            Err(raised) => return Ok(Called::Now(0, Err(raised))),
        };
        if let Some(made) = made
            && let Err(error) = self.record_step((call.key, true), &made, None, &[])
        {
            self.forget(call.key);
            return Err(error);
        }
        self.step(call, &args, incarnation, moment)
    }

    /// If the answers of all sessions take too much memory, those with the most forget their older half: they are tasks, which acknowledge
    /// nothing.
    fn make_room(&mut self) {
        let Limits { answers, separate, .. } = self.limits;
        for _ in 0..FORGETTING_MAX {
            if self.kept.bytes <= answers && self.kept.separate <= separate {
                return;
            }
            let Some(most) = self.sessions.values_mut().max_by_key(|client| client.handed_bytes) else { return };
            let before = most.handed_bytes;
            if before < answers.min(separate) / FORGETTING_PART {
                return;
            }
            most.forget_answers(before / 2, &mut self.kept);
            if most.handed_bytes == before {
                return;
            }
        }
    }

    /// Deletes an entity for a caller; the answer is whether it existed.
    fn delete_called(&mut self, call: &Call<'_>, moment: Moment) -> Result<Called> {
        let (kind, key) = (call.kind, call.key);
        let incarnation = match self.entities.get(key) {
            Some(entity) if entity.kind != kind => {
                let reported = format!("'{key}' is of type {}, not {}", entity.kind.name(), kind.name());
                return Err(Code::ObjectTypeMismatch.error(reported));
            }
            Some(entity) if call.incarnation != 0 && call.incarnation != entity.incarnation => {
                return Err(lost(kind, key, "it was deleted and recreated"));
            }
            Some(entity) => {
                fences::check(&entity.state, call.fence)?;
                Some(entity.incarnation)
            }
            None => None,
        };
        let reply: Reply = Ok(value::boolean(incarnation.is_some()).into());
        self.remove(key, Some((call, Some(&reply))), moment);
        if let Some(client) = self.sessions.get_mut(&call.session) {
            let what = call.what();
            client.calls.insert(call.number, Asked::new(what, 0));
            client.answer(call.number, reply.clone(), moment.now_ms, &mut self.kept);
        }
        Ok(Called::Now(0, reply))
    }

    /// Finds or creates the entity of a call: its incarnation, or the exception of its constructor.
    fn find(&mut self, call: &Call<'_>, moment: Moment) -> Result<std::result::Result<Found, Raised>> {
        let (key, kind) = (call.key, call.kind);
        if let Some(entity) = self.entities.get(key) {
            if entity.kind != kind {
                let reported = format!("'{key}' is of type {}, not {}", entity.kind.name(), kind.name());
                return Err(Code::ObjectTypeMismatch.error(reported));
            }
            if call.incarnation != 0 && call.incarnation != entity.incarnation {
                return Err(lost(kind, key, "it was deleted and recreated"));
            }
            if call.flags.must_create {
                return Err(Code::ObjectExists.error(format!("{} '{key}'", kind.name())));
            }
            if call.flags.persistent != entity.persistent && call.incarnation == 0 {
                let reported = format!("'{key}' is {}persistent", if entity.persistent { "" } else { "not " });
                return Err(Code::ObjectTypeMismatch.error(reported));
            }
            if is_made_otherwise(entity, call) {
                let reported = format!("{} '{key}' was created with other arguments", kind.name());
                return Err(Code::ObjectArguments.error(reported));
            }
            return Ok(Ok((entity.incarnation, None)));
        }
        if call.incarnation != 0 {
            return Err(lost(kind, key, "it is gone"));
        }
        if call.flags.must_exist {
            return Err(Code::ObjectNotFound.error(format!("{} '{key}'", kind.name())));
        }
        if key.is_empty() || key.len() > KEY_MAX_BYTES {
            return Err(Code::ObjectKeyInvalid.error(format!("a key of {} bytes", key.len())));
        }
        if self.entities.len() >= ENTITIES_MAX {
            return Err(busy(format!("there are {ENTITIES_MAX} objects")));
        }
        let mut state = State::default();
        let args = Args(call.new.map(value::elements).transpose()?.unwrap_or_default());
        let mut turn = Turn::new(&mut state, moment, call.session, call.number);
        turn.keeps = call.flags.persistent;
        if let Err(raised) = kind.construct(&mut turn, &args) {
            return Ok(Err(raised));
        }
        let made = mem::take(&mut turn.done);
        self.limits.check(&state, self.bytes)?;
        self.bytes += state.bytes();
        let persistent = call.flags.persistent;
        // A persistent entity outlives every application.
        let client = self.sessions.get(&call.session).filter(|_| !persistent);
        let application = client.map(|client| client.application.clone()).unwrap_or_default();
        let entity = Entity { kind, incarnation: moment.token, application, state, persistent, recorded: 0 };
        self.entities.insert(key.into(), entity);
        Ok(Ok((moment.token, Some(made))))
    }

    /// One step of an existing entity.
    fn step(&mut self, call: &Call<'_>, args: &Args<'_>, incarnation: u64, moment: Moment) -> Result<Called> {
        let Some(entity) = self.entities.get_mut(call.key) else { return Err(lost(call.kind, call.key, "it is gone")) };
        fences::check(&entity.state, call.fence)?;
        let others = self.bytes - entity.state.bytes();
        let mut turn = Turn::new(&mut entity.state, moment, call.session, call.number);
        turn.keeps = entity.persistent;
        turn.fence = call.fence.map(|fence| (fence.name.into(), fence.token));
        if !call.method.reads || call.method.waits {
            fences::note(&mut turn, call.kind, call.fence);
        }
        let ran = call.kind.run(&mut turn, call.method.name, args);
        if matches!(ran, Err(_) | Ok(Flow::TooLarge)) {
            turn.undo();
        }
        if matches!(ran, Ok(Flow::TooLarge)) {
            let (method, key) = (call.method.name, call.key);
            let reported = format!("the answer of {method} of '{key}' would have more than {ANSWER_MAX_BYTES} bytes");
            return Err(Code::ObjectTooLarge.error(reported));
        }
        if let Err(error) = self.limits.check_growth(turn.state, others, self.bytes) {
            turn.undo();
            return Err(error);
        }
        let (released, back) = (mem::take(&mut turn.released), mem::take(&mut turn.back));
        let changes = mem::take(&mut turn.done);
        self.bytes = others + entity.state.bytes();
        let reply = match ran {
            Ok(Flow::Wait | Flow::TooLarge) => None,
            Ok(Flow::Reply(reply)) => Some(Ok(reply.into())),
            Err(raised) => Some(Err(raised)),
        };
        let recorded = self.record_step((call.key, false), &changes, Some((call, reply.as_ref())), &released);
        if let Err(error) = recorded {
            self.take_back(call.key, back);
            return Err(error);
        }
        if (!call.method.reads || call.method.waits)
            && let Some(client) = self.sessions.get_mut(&call.session)
        {
            let what = call.what();
            client.calls.insert(call.number, Asked::new(what, incarnation));
            if let Some(reply) = reply.clone() {
                client.answer(call.number, reply, moment.now_ms, &mut self.kept);
            }
            if call.method.waits {
                client.touched.insert(call.key.into());
            }
        }
        self.deliver(released, moment);
        if call.kind == Type::Shared && reply.is_none() {
            self.work.push(call.key.into());
        }
        match reply {
            Some(reply) => Ok(Called::Now(incarnation, reply)),
            // The same step may have answered it already: a condition's lock was free.
            None if call.flags.give_up => Ok(self.give_up(call, moment)),
            None => Ok(self.answered(call).unwrap_or(Called::Waiting(incarnation))),
        }
    }

    fn answered(&self, call: &Call<'_>) -> Option<Called> {
        let asked = self.sessions.get(&call.session)?.calls.get(&call.number)?;
        asked.reply.as_ref().map(|(reply, _)| Called::Now(asked.incarnation, reply.clone()))
    }

    /// The answer of a waiting call, once it exists.
    pub fn reply(&self, session: &Session, number: u64) -> Option<Called> {
        let asked = self.sessions.get(session)?.calls.get(&number)?;
        asked.reply.as_ref().map(|(reply, _)| Called::Now(asked.incarnation, reply.clone()))
    }

    /// Removes an entity as if it had never existed.
    fn forget(&mut self, key: &str) {
        if let Some(entity) = self.entities.remove(key) {
            self.bytes -= entity.state.bytes();
        }
    }

    /// Restores an entity to its state before a step.
    fn take_back(&mut self, key: &str, mut back: Vec<Effect>) {
        let Some(entity) = self.entities.get_mut(key) else { return };
        let before = entity.state.bytes();
        while let Some(effect) = back.pop() {
            entity.state.apply(effect);
        }
        self.bytes = self.bytes + entity.state.bytes() - before;
    }

    /// Stores the answers of calls that waited for them.
    fn deliver(&mut self, released: Vec<(Session, u64, Reply)>, moment: Moment) {
        for (session, number, reply) in released {
            let client = self.sessions.get_mut(&session);
            if client.is_some_and(|client| client.answer(number, reply, moment.now_ms, &mut self.kept)) {
                self.ready.push((session, number));
            }
        }
    }

    /// The waiting calls that were answered since the last call of this function.
    pub fn take_ready(&mut self) -> Vec<(Session, u64)> {
        mem::take(&mut self.ready)
    }

    /// Ends sessions whose leases are over; returns when to check again.
    pub fn expire(&mut self, moment: Moment) -> Option<u64> {
        let over = |client: &Client| client.pinned == 0 && client.expires_ms <= moment.now_ms;
        let ended: Vec<Session> = self.sessions.iter().filter(|(_, client)| over(client)).map(|(id, _)| *id).collect();
        ended.iter().for_each(|session| self.end(session, moment));
        self.sessions.values().filter(|client| client.pinned == 0).map(|client| client.expires_ms).min()
    }

    /// Ends a session: releases its locks and permits and, with the last session of its application, deletes the entities of the
    /// application.
    pub fn end(&mut self, session: &Session, moment: Moment) {
        let Some(client) = self.sessions.remove(session) else { return };
        client.calls.values().for_each(|asked| self.kept.forget(asked));
        for key in &client.touched {
            let Some(entity) = self.entities.get_mut(key) else { continue };
            let waiters = entity.state.waiters().iter().filter(|(_, waiter)| waiter.session == *session);
            let waiters: Vec<u64> = waiters.map(|(ticket, _)| *ticket).collect();
            let others = self.bytes - entity.state.bytes();
            let mut turn = Turn::new(&mut entity.state, moment, *session, 0);
            turn.keeps = entity.persistent;
            waiters.iter().for_each(|ticket| turn.apply(Effect::Leave(*ticket)));
            entity.kind.session_ended(&mut turn, session, !waiters.is_empty());
            let (released, changes) = (mem::take(&mut turn.released), mem::take(&mut turn.done));
            self.bytes = others + entity.state.bytes();
            let is_shared = entity.kind == Type::Shared;
            let _ = self.record_step((&**key, false), &changes, None, &released);
            self.deliver(released, moment);
            if is_shared {
                self.work.push(key.clone());
            }
        }
        // After its locks are released: a host that restarts in between ends the lease.
        if client.kept {
            self.record_ended(session);
        }
        if self.left(&client.application) {
            let theirs = self.entities.iter().filter(|(_, entity)| entity.application == client.application);
            let theirs: Vec<Box<str>> = theirs.map(|(key, _)| key.clone()).collect();
            for key in &theirs {
                self.delete(key, moment);
            }
        }
    }

    /// Removes a session from its application; returns whether it was the last one.
    fn left(&mut self, application: &Application) -> bool {
        let Some(left) = self.applications.get_mut(application) else { return false };
        *left -= 1;
        let is_last = *left == 0;
        if is_last {
            self.applications.remove(application);
        }
        is_last
    }

    /// Deletes an entity; returns whether it existed.
    pub fn delete(&mut self, key: &str, moment: Moment) -> bool {
        self.remove(key, None, moment)
    }

    fn remove(&mut self, key: &str, call: Option<(&Call<'_>, Option<&Reply>)>, moment: Moment) -> bool {
        let Some(entity) = self.entities.remove(key) else { return false };
        self.bytes -= entity.state.bytes();
        let gone = format!("{} '{key}' was deleted", entity.kind.name());
        let waiters = entity.state.waiters().values();
        let released =
            waiters.map(|waiter| (waiter.session, waiter.call, Err(Raised::new("millrace.NotFound", gone.clone()))));
        let released: Vec<_> = released.collect();
        if entity.persistent {
            self.record_deleted(key, call, &released);
        }
        self.deliver(released, moment);
        true
    }

    /// Every entity, by key, whose key is above this one.
    pub fn show(&self, above: &str, most: usize) -> Vec<Shown> {
        let mut keys: Vec<&Box<str>> = self.entities.keys().filter(|key| &***key > above).collect();
        keys.sort();
        keys.into_iter().take(most).filter_map(|key| self.show_one(key)).collect()
    }

    /// One entity.
    pub fn show_one(&self, key: &str) -> Option<Shown> {
        let (key, entity) = self.entities.get_key_value(key)?;
        let Entity { kind, incarnation, application, state, .. } = entity;
        let owner = matches!(kind, Type::Lock | Type::Condition).then(|| state.field(0)).flatten();
        Some(Shown {
            kind: *kind,
            key: key.clone(),
            incarnation: *incarnation,
            application: application.clone(),
            bytes: state.bytes(),
            waiting: state.waiters().values().map(|waiter| (waiter.session, waiter.call)).collect(),
            owner: owner.and_then(|owner| owner.try_into().ok()),
            class: steps::class(entity),
            persistent: entity.persistent,
        })
    }

    /// How many other sessions are open whose ids begin with the same `bytes` bytes.
    pub fn like(&self, session: &Session, bytes: usize) -> usize {
        let bound = |rest: u8| -> Session { std::array::from_fn(|at| if at < bytes { session[at] } else { rest }) };
        self.sessions.range(bound(0)..=bound(u8::MAX)).filter(|(other, _)| *other != session).count()
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

/// Whether a caller that names an object by its key, and so might have created it, has different constructor arguments.
fn is_made_otherwise(entity: &Entity, call: &Call<'_>) -> bool {
    call.incarnation == 0 && call.new.is_some_and(|new| made::differs(entity.kind, &entity.state, new))
}

fn busy(reported: String) -> Error {
    Code::ObjectsBusy.error(reported).retry_after(BUSY_MS)
}

fn lost(kind: Type, key: &str, why: &str) -> Error {
    Code::ObjectLost.error(format!("{} '{key}': {why}", kind.name()))
}

#[cfg(test)]
mod tests;
