//! The steps of objects of user classes: which call is next, what a worker receives, and what the step changes.
//!
//! ```text
//!  CALL ── a waiter of the object ── begin ──> worker: fields, method, arguments
//!                 answer <── finish <── what it returned or raised, and the fields that changed
//! ```
//!
//! The fields are in the object's state, not in the worker. So a step whose worker ends has no effect, and any worker of the pool can run
//! the next one.

use super::{Application, Entity, Space, fences, lost};
use crate::{
    Moment, Raised, Reply, Session, Type, Waiter,
    state::{Effect, State, Ticket},
    types::{
        Turn,
        user::{self, BODY, CHANGED, CLASS, CODE, METHOD, NEW, POOL, READ, RUNNING, TIMEOUT, TRIED, VERSION},
    },
    value,
};
use millrace_wire::Result;
use std::{collections::BTreeSet, mem, ops::Bound};

/// A step that has begun.
#[derive(Clone, Debug)]
pub struct Job {
    /// The object.
    pub key: Box<str>,
    /// Its incarnation.
    pub incarnation: u64,
    /// The waiter whose call it runs.
    pub ticket: Ticket,
    /// The application with whose last session the object ends.
    pub application: Application,
    /// How long the method may take.
    pub timeout_ms: u64,
    /// The input of the worker.
    pub request: Vec<u8>,
    /// The version of the fields: the number of the step that changed them last.
    pub(crate) changed: Vec<u8>,
    /// The number that becomes the version of the fields if the step changes any.
    pub(crate) number: u64,
    /// The session and the number of its call: a step that is repeated after a restart calls other objects in the same session.
    caller: Session,
    call: u64,
    /// The fence of its call, which counts even if the caller's session has ended; and those of the calls that ran within the step.
    fences: Vec<(Box<str>, u64)>,
    /// The newer class to which the step migrates the object, if any.
    becomes: Option<[Vec<u8>; 3]>,
    /// A newer record with the same class, to which the object refers from then on, because older records leave the pool's log.
    body: Option<Vec<u8>>,
    /// Whether it may change no field.
    reads: bool,
    /// Whether it runs the constructor before the method.
    constructs: bool,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub enum Finished {
    /// The method ran: the answer of the call, and the fields that changed; `None` for a field that was deleted.
    Ran(Vec<u8>, Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// The constructor or the migration raised an exception: the answer of the call.
    NotBegun(Vec<u8>),
    /// The guard of the method does not hold, so the call waits until a field changes; and the fields of an object that was made or migrated.
    Blocked(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// The worker did not run it to its end.
    Failed(String),
    /// The method was not run, or its result cannot be stored: the exception of the call, and its text.
    Refused(&'static str, String),
}

/// The relation of the caller's class to the object's.
enum Fit {
    Same,
    Newer,
    Refused(String),
}

fn fit(state: &State, args: &[&[u8]]) -> Fit {
    let field =
        |field: u8| (state.field(field).unwrap_or_default(), args.get(usize::from(field)).copied().unwrap_or_default());
    let number = |value| value::as_int(value).unwrap_or(0);
    let ((ours, theirs), (code, their_code)) = (field(VERSION), field(CODE));
    let (ours, theirs) = (number(ours), number(theirs));
    match ours.cmp(&theirs) {
        std::cmp::Ordering::Equal if code == their_code => Fit::Same,
        std::cmp::Ordering::Equal => {
            Fit::Refused(format!("the code of the class differs from that of the object, but both have version {ours}"))
        }
        std::cmp::Ordering::Less => Fit::Newer,
        std::cmp::Ordering::Greater => {
            Fit::Refused(format!("the object has version {ours} of the class, and the caller has version {theirs}"))
        }
    }
}

impl Space {
    /// Objects whose next step has become possible since the last call of this function: their keys and pools.
    pub fn take_work(&mut self) -> Vec<(Box<str>, Box<str>)> {
        let keys = mem::take(&mut self.work);
        let pool = |key: Box<str>| {
            let state = &self.entities.get(&key).filter(|entity| user::running(&entity.state).is_none())?.state;
            let pool = value::as_text(state.field(POOL)?)?.into();
            self.next(&key, 0).map(|_| (key, pool))
        };
        keys.into_iter().filter_map(pool).collect()
    }

    /// The call of an object that is next, and its step, or why it is refused.
    fn next(&self, key: &str, number: u64) -> Option<(Ticket, std::result::Result<Job, Raised>)> {
        let entity = self.entities.get(key).filter(|entity| entity.kind == Type::Shared)?;
        // The guards of those before do not hold until a field changes.
        let from = user::tried(&entity.state).map_or(Bound::Unbounded, Bound::Excluded);
        let (ticket, waiter) = entity.state.waiters().range((from, Bound::Unbounded)).next()?;
        if let Some(raised) = fences::stale(&entity.state, waiter.fence.as_ref()) {
            return Some((*ticket, Err(raised)));
        }
        let args = value::elements(&waiter.value).unwrap_or_default();
        let is_newer = match fit(&entity.state, &args) {
            Fit::Same => false,
            Fit::Newer => true,
            Fit::Refused(reported) => return Some((*ticket, Err(Raised::new("millrace.ClassChanged", reported)))),
        };
        // Bodies of replicated classes have numbers that are computed from their content, so none is newer than another.
        let is_moving = !is_newer && !self.records.of_snapshots;
        Some((*ticket, Ok(entity.job(key, (*ticket, waiter), &args, (is_newer, is_moving), number))))
    }

    /// Begins the next step of an object, if one waits and none is in progress.
    pub fn begin(&mut self, key: &str, moment: Moment) -> Option<Job> {
        loop {
            if user::running(&self.entities.get(key)?.state).is_some() {
                return None;
            }
            let job = match self.next(key, moment.token)? {
                (ticket, Err(raised)) => {
                    self.answer_one(key, ticket, Err(raised), moment);
                    continue;
                }
                (_, Ok(job)) => job,
            };
            let entity = self.entities.get_mut(key)?;
            let before = entity.state.bytes();
            entity.state.apply(Effect::Field(RUNNING, Some(user::ticket_value(job.ticket))));
            self.bytes = self.bytes + entity.state.bytes() - before;
            return Some(job);
        }
    }

    /// The next step of an object, which is not marked as begun.
    pub(crate) fn plan(&self, key: &str, number: u64) -> Option<Job> {
        self.next(key, number)?.1.ok()
    }

    /// Answers calls at the head of the queue that do not match the object's class, or that are refused otherwise.
    pub(crate) fn refuse_unfit(&mut self, key: &str, moment: Moment) {
        while let Some((ticket, Err(raised))) = self.next(key, 0) {
            self.answer_one(key, ticket, Err(raised), moment);
        }
    }

    /// Whether the call of this waiter of an object has no answer yet.
    pub(crate) fn waits(&self, key: &str, incarnation: u64, ticket: Ticket) -> bool {
        let entity = self.entities.get(key).filter(|entity| entity.incarnation == incarnation);
        entity.is_some_and(|entity| entity.state.waiters().contains_key(&ticket))
    }

    /// Objects of user classes that have waiting calls, and their pools.
    pub(crate) fn waiting_objects(&self) -> impl Iterator<Item = (&str, &str)> {
        let shared = self.entities.iter().filter(|(_, entity)| entity.kind == Type::Shared);
        let waiting = shared.filter(|(_, entity)| !entity.state.waiters().is_empty());
        waiting.filter_map(|(key, entity)| Some((&**key, value::as_text(entity.state.field(POOL)?)?)))
    }

    /// The version of the class of an object of a user class.
    pub(crate) fn version_of(&self, key: &str) -> Option<i64> {
        let entity = self.entities.get(key).filter(|entity| entity.kind == Type::Shared)?;
        entity.state.field(VERSION).and_then(value::as_int)
    }

    /// The pools and bodies of the classes of objects and of the classes that waiting calls name.
    pub(crate) fn bodies(&self) -> BTreeSet<(Box<str>, i64)> {
        let mut found = BTreeSet::new();
        let mut add = |pool: Option<&[u8]>, body: Option<&[u8]>| {
            found.extend(pool.and_then(value::as_text).map(Into::into).zip(body.and_then(value::as_int)));
        };
        for entity in self.entities.values().filter(|entity| entity.kind == Type::Shared) {
            add(entity.state.field(POOL), entity.state.field(BODY));
            for waiter in entity.state.waiters().values() {
                let args = value::elements(&waiter.value).unwrap_or_default();
                add(args.get(usize::from(POOL)).copied(), args.get(usize::from(BODY)).copied());
            }
        }
        found
    }

    /// Answers one waiter of an object, and changes nothing else.
    fn answer_one(&mut self, key: &str, ticket: Ticket, reply: Reply, moment: Moment) {
        let Some(entity) = self.entities.get_mut(key) else { return };
        let Some(waiter) = entity.state.waiters().get(&ticket).cloned() else { return };
        let before = entity.state.bytes();
        entity.state.apply(Effect::Leave(ticket));
        self.bytes = self.bytes + entity.state.bytes() - before;
        let released = vec![(waiter.session, waiter.call, reply)];
        // The record is short apart from the answer, whose length the worker protocol limits.
        let _ = self.record_step((key, false), &[Effect::Leave(ticket)], None, &released);
        self.deliver(released, moment);
    }

    /// The fields of an object, for a worker that has not cached them: a map.
    pub fn fields(&self, key: &str, incarnation: u64) -> Result<Vec<u8>> {
        let entity = self.entities.get(key).filter(|entity| entity.incarnation == incarnation);
        let entity = entity.ok_or_else(|| lost(Type::Shared, key, "it is gone"))?;
        let flat: Vec<&[u8]> = entity.state.inserted().flat_map(|(name, value)| [name, value]).collect();
        Ok(value::array(flat.into_iter()))
    }

    /// Ends a step: its changes take effect, and its caller gets the answer.
    pub fn finish(&mut self, job: &Job, finished: Finished, moment: Moment) {
        let Some(entity) = self.entities.get(&job.key) else { return };
        if entity.incarnation == job.incarnation && user::running(&entity.state) == Some(job.ticket) {
            self.conclude(job, finished, moment);
        }
    }

    /// The guard of a step's method does not hold: the call continues to wait.
    fn block(&mut self, job: &Job, made: Vec<(Vec<u8>, Option<Vec<u8>>)>, moment: Moment) {
        let Some(entity) = self.entities.get_mut(&job.key) else { return };
        let (before, limits) = (self.bytes, self.limits);
        let others = before - entity.state.bytes();
        entity.state.apply(Effect::Field(RUNNING, None));
        let mut turn = Turn::new(&mut entity.state, moment, [0; crate::SESSION_BYTES], 0);
        turn.keeps = entity.persistent;
        if job.constructs || job.becomes.is_some() {
            job.apply(&mut turn, made);
        } else {
            turn.field(TRIED, user::ticket_value(job.ticket));
        }
        let fits = limits.check_growth(turn.state, others, before);
        let (changes, back) = (mem::take(&mut turn.done), mem::take(&mut turn.back));
        self.bytes = others + entity.state.bytes();
        if let Err(error) = fits.and_then(|()| self.record_step((&*job.key, false), &changes, None, &[])) {
            self.take_back(&job.key, back);
            self.answer_one(&job.key, job.ticket, Err(Raised::new("millrace.TooLarge", error.detail())), moment);
        }
        self.work.push(job.key.clone());
    }

    /// Ends a step that is known to be the one in progress.
    pub(crate) fn conclude(&mut self, job: &Job, finished: Finished, moment: Moment) {
        let of = self.entities.get(&job.key);
        let stale = of.and_then(|entity| job.fences.iter().find_map(|fence| fences::stale(&entity.state, Some(fence))));
        let finished = match (stale, finished) {
            // A method takes effect at its end, and a call with a higher token has come meanwhile.
            (Some(raised), _) => Finished::Refused(raised.class, raised.text),
            (None, Finished::Blocked(made)) => return self.block(job, made, moment),
            (None, finished) => finished,
        };
        let Some(entity) = self.entities.get_mut(&job.key) else { return };
        let others = self.bytes - entity.state.bytes();
        let limits = self.limits;
        let before = self.bytes;
        entity.state.apply(Effect::Field(RUNNING, None));
        let mut turn = Turn::new(&mut entity.state, moment, [0; crate::SESSION_BYTES], 0);
        turn.keeps = entity.persistent;
        let (mut reply, ran): (Reply, bool) = match finished {
            Finished::Ran(answer, changed) if job.may_change(&changed) => {
                job.apply(&mut turn, changed);
                (Ok(answer.into()), true)
            }
            Finished::Ran(..) => {
                (Err(Raised::new("RuntimeError", "a method that is marked read-only changed fields")), false)
            }
            Finished::NotBegun(answer) => (Ok(answer.into()), false),
            Finished::Blocked(_) => return,
            Finished::Failed(reported) => (Err(Raised::new("millrace.StepFailed", reported)), false),
            Finished::Refused(class, reported) => (Err(Raised::new(class, reported)), false),
        };
        if let Err(error) = limits.check_growth(turn.state, others, before) {
            turn.undo();
            reply = Err(Raised::new("millrace.TooLarge", error.detail()));
        }
        // The answer is in one record with the changes.
        let waiter = turn.state.waiters().get(&job.ticket).cloned();
        turn.apply(Effect::Leave(job.ticket));
        let (changes, mut back) = (mem::take(&mut turn.done), mem::take(&mut turn.back));
        self.bytes = others + entity.state.bytes();
        let unmade = job.constructs && !ran;
        let mut released: Vec<_> = waiter.iter().map(|waiter| (waiter.session, waiter.call, reply.clone())).collect();
        if let Err(error) = self.record_step((&*job.key, false), &changes, None, &released) {
            // The waiter has left, with or without an answer.
            back.pop();
            self.take_back(&job.key, back);
            released.iter_mut().for_each(|one| one.2 = Err(Raised::new("millrace.TooLarge", error.detail())));
            let _ = self.record_step((&*job.key, false), &[Effect::Leave(job.ticket)], None, &released);
        }
        let is_last = self.entities.get(&job.key).is_none_or(|entity| entity.state.waiters().is_empty());
        if !is_last {
            self.work.push(job.key.clone());
        }
        if unmade {
            // Its caller has not seen the object, which the next waiter makes or nobody: the caller refers to whatever has the key.
            for (session, number, _) in &released {
                let asked = self.sessions.get_mut(session).and_then(|client| client.calls.get_mut(number));
                asked.into_iter().for_each(|asked| asked.incarnation = 0);
            }
        }
        self.deliver(released, moment);
        if is_last && unmade {
            self.delete(&job.key, moment);
        }
    }
}

impl Entity {
    fn job(
        &self,
        key: &str,
        (ticket, waiter): (Ticket, &Waiter),
        args: &[&[u8]],
        (is_newer, is_moving): (bool, bool),
        number: u64,
    ) -> Job {
        let at = |field: u8| self.state.field(field).unwrap_or_default();
        let arg = |field: u8| args.get(usize::from(field)).copied().unwrap_or_default().to_vec();
        let nil = value::nil();
        let reads = waiter.way == READ;
        let whole = |number: u64| value::int(i64::try_from(number).unwrap_or(i64::MAX));
        let record = |value: &[u8]| value::as_int(value).unwrap_or(0);
        let is_moved = is_moving && record(&arg(BODY)) > record(at(BODY));
        let body = if is_newer || is_moved { arg(BODY) } else { at(BODY).to_vec() };
        let changed = self.state.field(CHANGED).map_or_else(|| value::int(0), <[u8]>::to_vec);
        let parts = [
            value::text(key),
            whole(self.incarnation),
            changed.clone(),
            whole(number),
            value::boolean(reads),
            at(POOL).to_vec(),
            body,
            // Its fields are of this version.
            if is_newer { at(VERSION).to_vec() } else { nil.clone() },
            self.state.field(NEW).unwrap_or(&nil).to_vec(),
            value::text(&self.application),
            value::array(args.get(METHOD..).unwrap_or_default().iter().copied()),
        ];
        Job {
            key: key.into(),
            incarnation: self.incarnation,
            ticket,
            application: self.application.clone(),
            timeout_ms: args
                .get(TIMEOUT)
                .and_then(|ms| value::as_int(ms))
                .and_then(|ms| ms.try_into().ok())
                .unwrap_or(0),
            request: value::array(parts.iter().map(|part| &**part)),
            changed,
            number,
            caller: waiter.session,
            call: waiter.call,
            fences: waiter.fence.iter().cloned().collect(),
            becomes: is_newer.then(|| [arg(VERSION), arg(BODY), arg(CODE)]),
            body: is_moved.then(|| arg(BODY)),
            reads,
            constructs: self.state.field(NEW).is_some(),
        }
    }
}

impl Job {
    /// The identity of the step in commands of a replicated object.
    pub fn within(&self) -> crate::Within<'_> {
        crate::Within { key: &self.key, incarnation: self.incarnation, ticket: self.ticket }
    }

    /// A call with this fence ran within the step: if it is stale in the end, nothing of the step takes effect.
    pub fn fence(&mut self, fence: (Box<str>, u64)) {
        self.fences.push(fence);
    }

    /// The version, the body and the code of the newer class to which the step migrates the object, if any.
    pub fn becomes(&self) -> Option<&[Vec<u8>; 3]> {
        self.becomes.as_ref()
    }

    /// The result of the step as a command to the hosts of a replicated object.
    pub fn command(&self, session: Session, finished: Finished) -> crate::Command<'_> {
        let (changed, number) = (self.changed.clone(), self.number);
        crate::Command::Step { of: self.within(), changed, number, session, finished }
    }

    /// The session in which the step calls other objects.
    pub fn session(&self, digest: impl Fn(&[u8]) -> Session) -> Session {
        let (incarnation, call) = (self.incarnation.to_le_bytes(), self.call.to_le_bytes());
        digest(&[b"step", &incarnation[..], &self.caller, &call, self.key.as_bytes()].concat())
    }

    fn may_change(&self, changed: &[(Vec<u8>, Option<Vec<u8>>)]) -> bool {
        !self.reads || self.constructs || self.becomes.is_some() || changed.is_empty()
    }

    fn apply(&self, turn: &mut Turn<'_>, changed: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        // Guards may hold now that did not.
        let is_other = !changed.is_empty() || self.constructs || self.becomes.is_some();
        if is_other && turn.state.field(TRIED).is_some() {
            turn.apply(Effect::Field(TRIED, None));
        }
        if !changed.is_empty() {
            turn.field(CHANGED, value::int(i64::try_from(self.number).unwrap_or(i64::MAX)));
        }
        for (name, value) in changed {
            match value {
                Some(value) => turn.put(&name, value),
                None => drop(turn.drop_key(&name)),
            }
        }
        if self.constructs {
            turn.apply(Effect::Field(NEW, None));
        }
        for (field, value) in [VERSION, BODY, CODE].into_iter().zip(self.becomes.iter().flatten()) {
            turn.field(field, value.clone());
        }
        // A worker has decoded it, so it names a class.
        if let Some(body) = &self.body {
            turn.field(BODY, body.clone());
        }
    }
}

/// The class of an object of a user class.
pub(super) fn class(entity: &Entity) -> Option<Box<str>> {
    entity.state.field(CLASS).filter(|_| entity.kind == Type::Shared).and_then(value::as_text).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Called, Flags, SESSION_BYTES};
    use millrace_wire::protocol::Fence;

    #[test]
    fn an_object_has_the_newest_record_of_its_class_that_a_caller_named() {
        let mut space = Space::default();
        let moment = |token| Moment { now_ms: 0, token };
        space.open([1; SESSION_BYTES], "", 1000, moment(1)).unwrap();
        for (number, (given, expected)) in (1..).zip([(5, 5), (9, 9), (7, 9)]) {
            let [class, pool, code, method] = ["Gate", "p", "c", "enter"].map(value::text);
            let list = |parts: &[Vec<u8>]| value::array(parts.iter().map(Vec::as_slice));
            let mut args = vec![class, pool, value::int(1), value::int(given), code];
            let new = list(&[args.clone(), vec![value::bytes(b"new")]].concat());
            args.extend([method, value::int(100), value::bytes(b"args")]);
            let args = list(&args);
            let call = Call {
                session: [1; SESSION_BYTES],
                number,
                acked: 0,
                kind: Type::Shared,
                key: "g",
                incarnation: 0,
                method: Type::Shared.method("read").unwrap(),
                args: &args,
                new: Some(&new),
                flags: Flags { persistent: true, ..Flags::default() },
                fence: None,
            };
            space.call(&call, moment(10 * number)).unwrap();
            let job = space.begin("g", moment(10 * number + 1)).unwrap();
            space.finish(&job, Finished::Ran(value::nil(), Vec::new()), moment(10 * number + 2));
            let body = space.entities.get("g").and_then(|entity| entity.state.field(BODY)).and_then(value::as_int);
            assert_eq!(body, Some(expected), "call {number}");
        }
    }

    /// A call of a method of the shared object `g`, by a session and with a number.
    fn call_of_gate<'a>((session, number): (u8, u64), args: &'a [u8], new: &'a [u8], flags: Flags) -> Call<'a> {
        Call {
            session: [session; SESSION_BYTES],
            number,
            acked: 0,
            kind: Type::Shared,
            key: "g",
            incarnation: 0,
            method: Type::Shared.method("call").unwrap(),
            args,
            new: Some(new),
            flags,
            fence: None,
        }
    }

    /// Calls a method of the object `g`, and returns what comes of it.
    fn enter(space: &mut Space, session: u8, number: u64, flags: Flags, moment: Moment) -> Result<Called> {
        enter_fenced(space, (session, number), flags, None, moment)
    }

    /// The same with the token of a lock.
    fn enter_fenced(
        space: &mut Space,
        of: (u8, u64),
        flags: Flags,
        fence: Option<Fence<'_>>,
        moment: Moment,
    ) -> Result<Called> {
        let list = |parts: &[Vec<u8>]| value::array(parts.iter().map(Vec::as_slice));
        let [class, pool, code, method] = ["Gate", "p", "c", "enter"].map(value::text);
        let about = [class, pool, value::int(1), value::int(5), code];
        let new = list(&[&about[..], &[value::bytes(b"new")]].concat());
        let args = list(&[&about[..], &[method, value::int(100), value::bytes(b"args")]].concat());
        let call = Call { fence, ..call_of_gate(of, &args, &new, flags) };
        space.call(&call, moment)
    }

    fn changed(number: i64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        vec![(value::text("inside"), Some(value::int(number)))]
    }

    #[test]
    fn calls_whose_guards_do_not_hold_wait_and_are_tried_in_order_after_each_change() {
        let persistent = Flags { persistent: true, ..Flags::default() };
        let give_up = Flags { give_up: true, ..persistent };
        let mut space = Space::default();
        let moment = |token| Moment { now_ms: 0, token };
        for session in 1..=5 {
            space.open([session; SESSION_BYTES], "", 1000, moment(1)).unwrap();
        }
        let reply = |space: &Space, session| space.reply(&[session; SESSION_BYTES], 1);
        // The first call makes the object, and its guard does not hold: the object stays, and the call is tried on it once more.
        enter(&mut space, 1, 1, persistent, moment(2)).unwrap();
        let job = space.begin("g", moment(3)).unwrap();
        assert!(job.constructs);
        space.finish(&job, Finished::Blocked(changed(0)), moment(4));
        let job = space.begin("g", moment(5)).unwrap();
        assert!(!job.constructs && job.caller == [1; SESSION_BYTES]);
        space.finish(&job, Finished::Blocked(changed(9)), moment(6));
        assert!(space.begin("g", moment(7)).is_none() && space.take_work().is_empty(), "nothing has changed");
        let fields = space.fields("g", job.incarnation).unwrap();
        assert_eq!(value::elements(&fields).unwrap()[1], value::int(0), "a guard changes no field");
        // A second one waits behind it. A third changes a field, and both are tried, the first one first.
        for session in [2, 3] {
            enter(&mut space, session, 1, persistent, moment(8)).unwrap();
        }
        let job = space.begin("g", moment(9)).unwrap();
        assert_eq!(job.caller, [2; SESSION_BYTES], "the first one was tried");
        space.finish(&job, Finished::Blocked(Vec::new()), moment(10));
        let job = space.begin("g", moment(11)).unwrap();
        space.finish(&job, Finished::Ran(value::nil(), Vec::new()), moment(12));
        assert!(reply(&space, 3).is_some() && space.begin("g", moment(13)).is_none(), "it has changed nothing");
        enter(&mut space, 4, 1, persistent, moment(14)).unwrap();
        let job = space.begin("g", moment(15)).unwrap();
        space.finish(&job, Finished::Ran(value::nil(), changed(1)), moment(16));
        let job = space.begin("g", moment(17)).unwrap();
        assert_eq!(job.caller, [1; SESSION_BYTES]);
        space.finish(&job, Finished::Blocked(Vec::new()), moment(18));
        // The last waiter leaves, and the one that comes next is tried nevertheless.
        let over = enter(&mut space, 2, 1, give_up, moment(19)).unwrap();
        assert!(matches!(over, Called::Now(_, Err(raised)) if raised.class == "TimeoutError"));
        space.end(&[1; SESSION_BYTES], moment(20));
        assert!(space.begin("g", moment(21)).is_none());
        enter(&mut space, 5, 1, persistent, moment(22)).unwrap();
        let job = space.begin("g", moment(23)).unwrap();
        assert_eq!(job.caller, [5; SESSION_BYTES]);
        space.finish(&job, Finished::Blocked(Vec::new()), moment(24));
        // All of it is in the records.
        let records = space.take_records();
        let mut restored = Space::default();
        records.iter().for_each(|record| restored.restore(record, Moment::default()).unwrap());
        restored.restored();
        assert_eq!(restored.entities["g"].state, space.entities["g"].state);
        assert!(restored.begin("g", moment(25)).is_none());
        let over = enter(&mut restored, 5, 1, give_up, moment(26)).unwrap();
        let reported = "the guard of the method did not hold";
        assert!(matches!(over, Called::Now(_, Err(raised)) if &*raised.text == reported));
    }

    #[test]
    fn a_method_whose_token_became_stale_before_its_end_changes_nothing() {
        let fence = |token| Some(Fence { name: "tick", token });
        let persistent = Flags { persistent: true, ..Flags::default() };
        let mut space = Space::default();
        let mut now = 1;
        let mut moment = || {
            now += 1;
            Moment { now_ms: 0, token: now }
        };
        for session in 1..=3 {
            space.open([session; SESSION_BYTES], "", 1000, moment()).unwrap();
        }
        let refused = |space: &Space, session, number| match space.reply(&[session; SESSION_BYTES], number) {
            Some(Called::Now(_, Err(raised))) => raised.class == "millrace.FenceStale",
            _ => false,
        };
        // One waits behind its guard, one is in a worker, one has not begun.
        enter_fenced(&mut space, (1, 1), persistent, fence(5), moment()).unwrap();
        let job = space.begin("g", moment()).unwrap();
        space.finish(&job, Finished::Blocked(changed(0)), moment());
        let job = space.begin("g", moment()).unwrap();
        space.finish(&job, Finished::Blocked(Vec::new()), moment());
        enter_fenced(&mut space, (1, 2), persistent, fence(5), moment()).unwrap();
        let running = space.begin("g", moment()).unwrap();
        assert_eq!(running.call, 2);
        enter_fenced(&mut space, (1, 3), persistent, fence(5), moment()).unwrap();
        enter_fenced(&mut space, (2, 1), persistent, fence(6), moment()).unwrap();
        assert!(refused(&space, 1, 1) && refused(&space, 1, 3));
        assert!(space.reply(&[1; SESSION_BYTES], 2).is_none(), "a worker runs it");
        // A host that starts now begins with the call of the owner.
        let mut restored = Space::default();
        let log = space.take_records();
        log.iter().for_each(|record| restored.restore(record, Moment::default()).unwrap());
        restored.restored();
        assert_eq!(restored.begin("g", moment()).unwrap().caller, [2; SESSION_BYTES]);
        assert!(refused(&restored, 1, 1) && refused(&restored, 1, 2) && refused(&restored, 1, 3));
        // Here the method ends, and changes nothing; neither does one whose guard does not hold.
        space.finish(&running, Finished::Ran(value::nil(), changed(5)), moment());
        assert!(refused(&space, 1, 2));
        let fields = space.fields("g", running.incarnation).unwrap();
        assert_eq!(value::elements(&fields).unwrap()[1], value::int(0));
        let job = space.begin("g", moment()).unwrap();
        assert_eq!(job.caller, [2; SESSION_BYTES]);
        enter_fenced(&mut space, (3, 1), persistent, fence(7), moment()).unwrap();
        space.finish(&job, Finished::Blocked(Vec::new()), moment());
        assert!(refused(&space, 2, 1));
        let job = space.begin("g", moment()).unwrap();
        space.finish(&job, Finished::Ran(value::nil(), changed(7)), moment());
        assert!(matches!(space.reply(&[3; SESSION_BYTES], 1), Some(Called::Now(_, Ok(_)))));
        assert!(space.entities["g"].state.waiters().is_empty());
    }

    #[test]
    fn a_call_gets_no_answer_of_a_method_whose_session_has_ended() {
        let persistent = Flags { persistent: true, ..Flags::default() };
        let mut space = Space::default();
        let moment = |token| Moment { now_ms: 0, token };
        for session in 1..=3 {
            space.open([session; SESSION_BYTES], "", 1000, moment(1)).unwrap();
        }
        let fence = |token| Some(Fence { name: "tick", token });
        enter_fenced(&mut space, (1, 1), persistent, fence(5), moment(2)).unwrap();
        let job = space.begin("g", moment(3)).unwrap();
        space.end(&[1; SESSION_BYTES], moment(4));
        enter_fenced(&mut space, (2, 1), persistent, fence(6), moment(5)).unwrap();
        assert!(space.begin("g", moment(6)).is_none(), "the method runs to its end");
        // Its end takes no effect, because its fence is stale, and nobody gets its answer.
        space.finish(&job, Finished::Ran(value::int(1), changed(1)), moment(7));
        assert!(space.reply(&[2; SESSION_BYTES], 1).is_none());
        let next = space.begin("g", moment(8)).unwrap();
        assert_eq!((next.caller, next.constructs), ([2; SESSION_BYTES], true));
        space.end(&[2; SESSION_BYTES], moment(9));
        enter(&mut space, 3, 1, persistent, moment(10)).unwrap();
        space.finish(&next, Finished::Ran(value::int(2), changed(2)), moment(11));
        assert!(space.reply(&[3; SESSION_BYTES], 1).is_none());
        let last = space.begin("g", moment(12)).unwrap();
        assert!(last.caller == [3; SESSION_BYTES] && !last.constructs, "the method before it has taken effect");
        space.finish(&last, Finished::Ran(value::int(3), Vec::new()), moment(13));
        assert!(
            matches!(space.reply(&[3; SESSION_BYTES], 1), Some(Called::Now(_, Ok(answer))) if *answer == *value::int(3))
        );
    }

    #[test]
    fn callers_whose_constructors_fail_refer_to_the_next_object_of_the_key() {
        let mut space = Space::default();
        let moment = |token| Moment { now_ms: 0, token };
        for session in 1..=3 {
            space.open([session; SESSION_BYTES], "", 1000, moment(1)).unwrap();
            enter(&mut space, session, 1, Flags::default(), moment(1 + u64::from(session))).unwrap();
        }
        for session in 1..=2 {
            let job = space.begin("g", moment(10)).unwrap();
            assert!(job.constructs);
            space.finish(&job, Finished::NotBegun(value::text("raised")), moment(11));
            let reply = space.reply(&[session; SESSION_BYTES], 1);
            assert!(matches!(reply, Some(Called::Now(0, Ok(_)))), "{reply:?}");
        }
        let job = space.begin("g", moment(12)).unwrap();
        space.finish(&job, Finished::Ran(value::nil(), Vec::new()), moment(13));
        let made = job.incarnation;
        assert!(matches!(space.reply(&[3; SESSION_BYTES], 1), Some(Called::Now(found, Ok(_))) if found == made));
    }

    #[test]
    fn a_call_is_of_the_class_of_its_object_and_plain_only_without_pickles() {
        use crate::types::user::is_plain_call;
        let list = |parts: &[Vec<u8>]| value::array(parts.iter().map(Vec::as_slice));
        let about = |name: &str, pool: &str, version, body, code: &str| {
            vec![value::text(name), value::text(pool), value::int(version), value::int(body), value::text(code)]
        };
        let call = |about: Vec<Vec<u8>>, own: &[u8]| {
            list(&[about, vec![value::text("enter"), value::int(100), value::bytes(own)]].concat())
        };
        let mut space = Space::default();
        let moment = Moment { now_ms: 0, token: 1 };
        space.open([1; SESSION_BYTES], "", 1000, moment).unwrap();
        let (plain, pickle) = ([0x92, 0x91, 7, 0x80], [0x92, 0x91, 0xd4, 1, 0, 0x80]);
        let args = call(about("Gate", "p", 1, 5, "c"), &plain);
        let new = list(&[about("Gate", "p", 1, 5, "c"), vec![value::bytes(b"new")]].concat());
        let made = call_of_gate((1, 1), &args, &new, Flags::default());
        assert!(!space.has_class("g", &args), "there is no object yet");
        space.call(&made, moment).unwrap();
        assert!(space.has_class("g", &args) && space.has_class("g", &list(&about("Gate", "p", 1, 4, "c"))));
        for other in [
            about("Door", "p", 1, 5, "c"),
            about("Gate", "q", 1, 5, "c"),
            about("Gate", "p", 2, 5, "c"),
            about("Gate", "p", 1, 6, "c"),
            about("Gate", "p", 1, 5, "d"),
        ] {
            assert!(!space.has_class("g", &call(other, &plain)));
        }
        assert!(is_plain_call(&args) && is_plain_call(&list(&about("Gate", "p", 1, 5, "c"))));
        // In Java each argument is bytes that have a value.
        let java = |value: &[u8]| value::array([value].into_iter());
        let gate = || about("Gate", "p", 1, 5, "c");
        assert!(is_plain_call(&call(gate(), &java(&value::bytes(&[7])))));
        assert!(!is_plain_call(&call(gate(), &java(&value::bytes(&[0xd4, 3, 0])))));
        assert!(!is_plain_call(&call(gate(), &pickle)) && !is_plain_call(&call(gate(), b"")));
    }
}
