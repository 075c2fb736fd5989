//! A replicated space: its calls are commands, which every host with a copy applies in the same order.
//!
//! ```text
//!  a host: CALL ── Command ──> the group's order ──> Replicated::apply, on every host ──> the answer, on every host
//! ```
//!
//! Built-in types are pure, so the state after a command follows from the state before it. Methods of user classes are not pure: a call of
//! one is a waiter on every host, one host runs the method, and a second command has the result. Nothing here depends on a clock: tokens
//! grow with each command, and a lease ends by a command, too. That command has the number of the last command of the session that its
//! proposer knew: if another one came in between, it changes nothing.

mod classes;
mod command;

use crate::{
    Call, Called, DELETE, Job, Moment, Session, Space, Type,
    space::durable::{Reader, damaged, list, session_of, uint},
    types::user,
    value,
};
use classes::Classes;
pub use command::{Command, Within};
use millrace_wire::{Code, Result};
use std::collections::BTreeMap;

/// The most bytes of all entities of the space: a snapshot of them is made and sent as a whole.
const SPACE_MAX_BYTES: usize = 64 << 20;

/// The result of a command.
#[derive(Debug, Default)]
pub struct Applied {
    /// The call of the command, and its outcome.
    pub called: Option<(Session, u64, Result<Called>)>,
    /// Waiting calls that have been answered.
    pub ready: Vec<(Session, u64, Called)>,
    /// The open sessions to which the command belongs.
    pub heard: Vec<Session>,
    /// Sessions that have ended.
    pub ended: Vec<Session>,
    /// Objects of user classes whose next step may begin, and their pools.
    pub work: Vec<(Box<str>, Box<str>)>,
}

/// The state of a session, without its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// The number of the session's last command.
    last: u64,
    lease_ms: u64,
}

/// A space, and the number of the last command that was applied to it.
#[derive(Debug)]
pub struct Replicated {
    space: Space,
    /// The number of the last command, and the last token.
    token: u64,
    sessions: BTreeMap<Session, Heard>,
    classes: Classes,
}

impl Default for Replicated {
    fn default() -> Self {
        let (sessions, classes) = (BTreeMap::new(), Classes::default());
        Self { space: Space::replicated(SPACE_MAX_BYTES), token: 0, sessions, classes }
    }
}

impl Replicated {
    /// The entities and sessions.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The open sessions: the number of the last command of each, and its lease in milliseconds.
    pub fn sessions(&self) -> impl Iterator<Item = (&Session, u64, u64)> {
        self.sessions.iter().map(|(session, heard)| (session, heard.last, heard.lease_ms))
    }

    /// The lease of a session that is open.
    pub fn lease_of(&self, session: &Session) -> Option<u64> {
        self.sessions.get(session).map(|heard| heard.lease_ms)
    }

    fn moment(&self) -> Moment {
        Moment { now_ms: 0, token: self.token }
    }

    /// The answer of a call that only reads, as of the applied commands; `None` if the call has to be a command.
    pub fn peek(&mut self, call: &Call<'_>) -> Option<Called> {
        let moment = self.moment();
        self.space.peek(call, moment)
    }

    /// Applies a command. A command that cannot be decoded changes nothing.
    pub fn apply(&mut self, command: &[u8]) -> Applied {
        let mut applied = Applied::default();
        let Ok(command) = Command::decode(command) else { return applied };
        self.token += 1;
        match command {
            Command::Call { token, open, call, within } => {
                self.token = self.token.max(token);
                let is_over = |of: Within<'_>| !self.space.waits(of.key, of.incarnation, of.ticket);
                let called = if within.is_some_and(is_over) {
                    Err(Code::SessionExpired.error("the method that makes the call has ended on another host"))
                } else {
                    self.call(&call, open)
                };
                if self.space.is_open(&call.session) {
                    applied.heard.push(call.session);
                }
                applied.called = Some((call.session, call.number, called));
            }
            Command::Step { of, changed, number, session, finished } => {
                let is_it =
                    |job: &Job| job.incarnation == of.incarnation && job.ticket == of.ticket && job.changed == changed;
                if let Some(job) = self.space.plan(of.key, number).filter(is_it) {
                    self.space.conclude(&job, finished, Moment { now_ms: 0, token: self.token });
                }
                let is_over = !self.space.waits(of.key, of.incarnation, of.ticket);
                if is_over && self.sessions.remove(&session).is_some() {
                    self.space.end(&session, self.moment());
                    applied.ended.push(session);
                }
            }
            Command::Renew(sessions) => {
                for (session, lease_ms) in sessions {
                    if let Some(heard) = self.sessions.get_mut(&session) {
                        *heard = Heard { last: self.token, lease_ms };
                        let _ = self.space.renew(session, lease_ms, Moment { now_ms: 0, token: self.token });
                        applied.heard.push(session);
                    }
                }
            }
            Command::Leave(sessions) => {
                sessions.iter().for_each(|session| self.space.leave_permits(session, self.moment()));
            }
            Command::End(sessions) => {
                for (session, last) in sessions {
                    if self.sessions.get(&session).is_some_and(|heard| last == 0 || heard.last == last) {
                        self.sessions.remove(&session);
                        self.space.end(&session, self.moment());
                        applied.ended.push(session);
                    }
                }
            }
        }
        for (key, pool) in self.space.take_work() {
            self.space.refuse_unfit(&key, Moment { now_ms: 0, token: self.token });
            if self.space.plan(&key, 0).is_some() {
                applied.work.push((key, pool));
            }
        }
        for (session, number) in self.space.take_ready() {
            let called = self.space.reply(&session, number);
            applied.ready.extend(called.map(|called| (session, number, called)));
        }
        applied
    }

    fn call(&mut self, call: &Call<'_>, open: Option<u64>) -> Result<Called> {
        let moment = self.moment();
        if let Some(lease_ms) = open.filter(|_| !self.space.is_open(&call.session)) {
            self.space.open(call.session, "", lease_ms, moment)?;
            self.space.keep(&call.session);
        }
        if let Some(lease_ms) = self.space.lease_of(&call.session) {
            self.sessions.insert(call.session, Heard { last: self.token, lease_ms });
        }
        if call.kind == Type::Shared {
            if let Some((number, body)) = user::shipped_class(call.method.name, call.args) {
                let pool = user::pool_of(call.args).unwrap_or_default();
                self.classes.keep((pool.into(), number), body, self.token, || self.space.bodies())?;
                return Ok(Called::Now(0, Ok(value::boolean(true).into())));
            }
            self.check_class(call)?;
        }
        self.space.call(call, moment)
    }

    /// Refuses a call that would create an object of a class, or migrate one to a class, that this space does not have.
    fn check_class(&self, call: &Call<'_>) -> Result<()> {
        let Some((name, version)) = user::class_of(call.args) else { return Ok(()) };
        let is_newer = self.space.version_of(call.key).is_none_or(|known| known < version);
        let is_needed = is_newer && call.method != DELETE && !self.space.has_call(&call.session, call.number);
        if !is_needed || self.classes.has(&name) {
            return Ok(());
        }
        Err(Code::ClassMissing.error(format!(
            "the cluster does not have the class of {} '{}'",
            call.kind.name(),
            call.key
        )))
    }

    /// The commands that end the waiting calls of a session, except those of conditions, as at their timeouts: nobody takes their answers.
    pub fn giving_up(&self, session: &Session) -> Vec<Vec<u8>> {
        let command = |call| Command::Call { token: 0, open: None, call, within: None }.encode();
        self.space.giving_up(session).into_iter().map(command).collect()
    }

    /// Objects of user classes that have waiting calls, and their pools.
    pub fn waiting_objects(&self) -> impl Iterator<Item = (&str, &str)> {
        self.space.waiting_objects()
    }

    /// The next step of an object. `number` identifies the step in the fields that it changes; no other step on any host has it.
    pub fn plan(&self, key: &str, number: u64) -> Option<Job> {
        self.space.plan(key, number)
    }

    /// The body of a class.
    pub fn class(&self, pool: &str, number: i64) -> Option<&[u8]> {
        self.classes.body(&(pool.into(), number))
    }

    /// The answer of an applied call; `None` if the call waits or is unknown.
    pub fn reply(&self, session: &Session, number: u64) -> Option<Called> {
        self.space.reply(session, number)
    }

    /// The encoded state; empty if no command was ever applied.
    pub fn encode(&mut self) -> Vec<u8> {
        if self.token == 0 {
            return Vec::new();
        }
        let heard = |(session, heard): (&Session, &Heard)| {
            list(&[value::bytes(session), uint(heard.last), uint(heard.lease_ms)])
        };
        let sessions: Vec<Vec<u8>> = self.sessions.iter().map(heard).collect();
        let mut cursor = Some(self.space.begin_snapshot());
        while let Some(next) = cursor.take() {
            cursor = self.space.go_on(next);
        }
        let records: Vec<Vec<u8>> = self.space.take_records().iter().map(|record| value::bytes(record)).collect();
        list(&[uint(self.token), list(&sessions), list(&records), self.classes.encode()])
    }

    /// Decodes a state.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut restored = Self::default();
        if bytes.is_empty() {
            return Ok(restored);
        }
        let mut reader = Reader(value::elements(bytes)?.into_iter());
        restored.token = reader.uint()?;
        for heard in value::elements(reader.next()?)? {
            let mut heard = Reader(value::elements(heard)?.into_iter());
            let (session, last, lease_ms) = (heard.read(session_of)?, heard.uint()?, heard.uint()?);
            restored.sessions.insert(session, Heard { last, lease_ms });
        }
        for record in value::elements(reader.next()?)? {
            restored.space.restore(value::as_bytes(record).ok_or_else(damaged)?, Moment::default())?;
        }
        restored.space.restored();
        // A host that runs steps looks for objects that have waiting calls.
        restored.space.take_work();
        // A snapshot of an earlier version has no classes.
        if let Some(classes) = reader.0.next() {
            restored.classes = Classes::decode(classes)?;
        }
        Ok(restored)
    }
}

#[cfg(test)]
mod tests;
