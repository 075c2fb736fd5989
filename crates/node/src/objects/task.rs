//! Calls of shared objects by tasks: the run is the session, so the calls of a repeated attempt count once.

use super::{Answered, Objects, State, Waiting, class_pool::Place};
use crate::{Shows, Site};
use millrace_dispatch::{Asked, Later, Objects as Callee};
use millrace_entities::{Call, Called, Flags, Session, Type, Within, value};
use millrace_wire::{Code, Error, EventId, Result, protocol::Fence};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    task::{Wake, Waker},
    time::{Duration, Instant},
};

/// How long what a run holds is its own after an attempt that failed, and after one that ended well.
const FAILED_LEASE_MS: u64 = 10_000;
const WELL_LEASE_MS: u64 = 2_000;
/// The elements of a call.
const ELEMENTS: usize = 10;

/// An event file descriptor that wakes a waiting thread.
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        fd.map(Self).map_err(|errno| Code::HostInternal.error(format!("no event descriptor: {errno}")))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes it readable.
    pub fn set(&self) {
        // Full, it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// It is not readable any more.
    pub fn clear(&self) {
        let mut reported = [0; 8];
        let _ = rustix::io::read(&self.0, &mut reported[..]);
    }
}

impl Wake for EventFd {
    fn wake(self: Arc<Self>) {
        self.set();
    }
}

/// The answer of a task's call that waits.
struct Pending {
    objects: Objects,
    waiting: Waiting,
    event_fd: Arc<EventFd>,
    until: Option<Instant>,
    session: Session,
    call: Vec<u8>,
}

impl Later for Pending {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event_fd.fd()
    }

    fn until(&self) -> Option<Instant> {
        self.until
    }

    fn take(&mut self) -> Option<Result<Vec<u8>>> {
        self.event_fd.clear();
        if let Some(answer) = self.waiting.take() {
            return Some(answer.map(|(called, upto)| {
                self.objects.depend(upto);
                encode(called)
            }));
        }
        if self.until.is_none_or(|until| Instant::now() < until) {
            return None;
        }
        // Once: what waits on is waited for without end.
        self.until = None;
        let call = Parsed::of(self.session, &self.call).and_then(|parsed| {
            let call = parsed.call();
            self.objects.call(&Call { flags: Flags { give_up: true, ..call.flags }, ..call })
        });
        match call {
            Ok(Answered::Now(called, upto)) => {
                self.objects.depend(upto);
                Some(Ok(encode(called)))
            }
            Ok(Answered::Later(waiting)) => {
                waiting.wake(&Waker::from(self.event_fd.clone()));
                self.waiting = waiting;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// A call as a worker sends it.
struct Parsed<'a> {
    session: Session,
    number: u64,
    kind: &'a str,
    key: &'a str,
    method: &'a str,
    arguments: &'a [u8],
    new: &'a [u8],
    incarnation: u64,
    flags: i64,
    application: &'a str,
    /// How long it waits; none for as long as it takes.
    wait: Option<f64>,
    /// Absent from the calls of workers that know no fences.
    fence: Option<Fence<'a>>,
}

const GIVE_UP: i64 = 1;
const MUST_EXIST: i64 = 2;
const MUST_CREATE: i64 = 4;
const PERSISTENT: i64 = 8;
/// Its method is reentrant.
const REENTRANT: i64 = 16;
/// Above them is how many hosts have a copy.
const COPIES_SHIFT: u32 = 8;

fn invalid() -> Error {
    Code::ObjectCallInvalid.error("the call does not follow the worker protocol")
}

/// A fence: its name and its token.
fn fence_of(fence: &[u8]) -> Result<Fence<'_>> {
    let elements = value::elements(fence)?;
    let [name, token] = *elements else { return Err(invalid()) };
    let name = value::as_bytes(name).and_then(|name| std::str::from_utf8(name).ok()).ok_or_else(invalid)?;
    let token = value::as_int(token).and_then(|token| u64::try_from(token).ok()).ok_or_else(invalid)?;
    Ok(Fence { name, token })
}

impl<'a> Parsed<'a> {
    fn of(session: Session, call: &'a [u8]) -> Result<Self> {
        let elements = value::elements(call)?;
        let [number, kind, key, method, arguments, new, incarnation, flags, application, wait, ref fence @ ..] =
            *elements
        else {
            let reported = format!("a call of {} elements; it must have {ELEMENTS}", elements.len());
            return Err(Code::ObjectCallInvalid.error(reported));
        };
        let bytes = |value: &'a [u8]| value::as_bytes(value).ok_or_else(invalid);
        let text = |value: &'a [u8]| bytes(value).and_then(|bytes| std::str::from_utf8(bytes).map_err(|_| invalid()));
        let whole = |value: &[u8]| value::as_int(value).and_then(|whole| u64::try_from(whole).ok()).ok_or_else(invalid);
        Ok(Self {
            session,
            number: whole(number)?,
            kind: text(kind)?,
            key: text(key)?,
            method: text(method)?,
            arguments: bytes(arguments)?,
            new: bytes(new)?,
            incarnation: whole(incarnation)?,
            flags: value::as_int(flags).ok_or_else(invalid)?,
            application: text(application)?,
            fence: fence.first().filter(|fence| !value::is_nil(fence)).map(|fence| fence_of(fence)).transpose()?,
            wait: if value::is_nil(wait) { None } else { Some(value::as_float(wait).ok_or_else(invalid)?) },
        })
    }

    /// The call; the type and the method were looked up before.
    fn call(&self) -> Call<'_> {
        let kind = self.kind.parse().unwrap_or(millrace_entities::Type::AtomicInt);
        let nothing = millrace_entities::Method { name: "", reads: true, waits: false };
        Call {
            session: self.session,
            number: self.number,
            // It asks for no answer twice but in another attempt, which begins at the first.
            acked: 0,
            kind,
            key: self.key,
            incarnation: self.incarnation,
            method: kind.method(self.method).unwrap_or(nothing),
            args: self.arguments,
            new: (!self.new.is_empty()).then_some(self.new),
            flags: Flags {
                give_up: self.flags & GIVE_UP != 0,
                must_exist: self.flags & MUST_EXIST != 0,
                must_create: self.flags & MUST_CREATE != 0,
                persistent: self.flags & PERSISTENT != 0,
                copies: u8::try_from(self.flags >> COPIES_SHIFT).unwrap_or(u8::MAX),
            },
            fence: self.fence,
        }
    }
}

/// An answer as a worker takes it: 0 and the value, or 1, the class and what it says; the incarnation before either.
pub(super) fn encode(called: Called) -> Vec<u8> {
    match called {
        Called::Now(incarnation, Ok(value)) => [&incarnation.to_le_bytes()[..], &[0], &value].concat(),
        Called::Now(incarnation, Err(raised)) => {
            [&incarnation.to_le_bytes()[..], &[1], raised.class.as_bytes(), &[0], raised.text.as_bytes()].concat()
        }
        Called::Waiting(incarnation) => [&incarnation.to_le_bytes()[..], &[0], &value::nil()].concat(),
    }
}

/// The answer of a call that a worker made.
pub(super) enum Answer {
    Now(Vec<u8>),
    /// It waits: for a method of this object, if that is of a user class.
    Later(Box<dyn Later>, Option<Place>),
}

impl Objects {
    /// Does a call that a worker of this pool makes in a session that is open. With `pin` a session that the group of an object has
    /// lasts until it is released.
    pub(super) fn call_of(
        &self,
        session: Session,
        pool: &str,
        call: &[u8],
        (pin, within): (bool, Option<Within<'_>>),
    ) -> Result<Answer> {
        let parsed = Parsed::of(session, call)?;
        let kind: Type = parsed.kind.parse()?;
        kind.method(parsed.method)?;
        let wanted = parsed.call();
        let other = millrace_entities::pool_of(wanted.args).filter(|named| *named != pool);
        if kind == Type::Shared && !other.is_none_or(|other| self.is_module(other)) {
            let reported = format!("a worker of pool '{pool}' cannot call user classes of other pools");
            return Err(Code::RightMissing.error(reported));
        }
        if within.is_some() && wanted.flags.copies <= 1 {
            let reported = format!(
                "a method of a replicated object called {} '{}', which is not replicated",
                parsed.kind, parsed.key
            );
            return Err(Code::ReplicationUnsupported.error(reported));
        }
        // Objects have no marks: what a run puts into them must not depend on anything that a database lacks.
        let needs = self.gate().needs(Site::Get, &Shows::All(self.inner.namespace.journal().tail()));
        self.gate().hold_for(Site::Get, (), Default::default(), needs).wait()?;
        if wanted.flags.copies > 1 {
            // Other hosts see what the worker has seen: it is safe before.
            let seen = self.inner.namespace.journal().tail();
            self.gate().hold(Site::Get, (), Shows::Report(seen), None).wait()?;
            let place = (kind == Type::Shared).then(|| Place::new(parsed.key, true));
            if let Some(place) = &place {
                self.wait_for(&mut self.inner.state(), &session, place)?;
            }
            let answered = self.call_copies(&wanted, (pin, within));
            return self.answer_of(answered, &parsed, call, place);
        }
        self.employed(&wanted)?;
        let mut state = self.inner.state();
        // Readers of the effects of this worker depend on what it has seen.
        state.depends = state.depends.max(self.inner.namespace.journal().tail());
        let place = (kind == Type::Shared).then(|| Place::new(parsed.key, false));
        // Under one lock with the call: the step that it waits for may be the one that closes a circle.
        if let Some(place) = &place
            && let Err(deadlock) = self.wait_for(&mut state, &session, place)
        {
            let is_reentrant = parsed.flags & REENTRANT != 0;
            let reentered = is_reentrant.then(|| self.reenter(&mut state, &wanted, place)).flatten();
            // Its fence may have refused others.
            self.inner.hand_out(state);
            return reentered.unwrap_or(Err(deadlock));
        }
        let answered = self.call_in(state, &wanted);
        self.answer_of(answered, &parsed, call, place)
    }

    /// A session waits for the method of an object from now on, unless that would close a circle.
    fn wait_for(&self, state: &mut State, session: &Session, place: &Place) -> Result<()> {
        let Some(circle) = state.class_pools.circle(session, place) else {
            state.class_pools.waits(session, place.clone());
            return Ok(());
        };
        let reported = match &*circle {
            [one] => format!("'{one}' would wait for itself: one of its methods called another of its methods"),
            circle => {
                let circle: Vec<String> = circle.iter().map(|key| format!("'{key}'")).collect();
                format!("{} would wait for each other: a method of one of them made the call", circle.join(" and "))
            }
        };
        Err(Code::Deadlock.error(reported))
    }

    /// Has the step that an object is in run a call of a reentrant method. Of the objects of this host only those that are not persistent
    /// have such steps: if a step is repeated, the answers of its calls are repeated, and the calls that came back during them are not.
    fn reenter(&self, state: &mut State, call: &Call<'_>, place: &Place) -> Option<Result<Answer>> {
        let (reentry, moment) = (state.class_pools.reentry(place)?, self.inner.moment(state));
        let request = state.space.reentrant(call, reentry.becomes(), moment)?;
        let later = request.and_then(|request| reentry.call(request));
        if later.is_ok() {
            state.class_pools.waits(&call.session, place.clone());
            call.fence.into_iter().for_each(|fence| state.class_pools.fence(place, fence));
        }
        Some(later.map(|later| Answer::Later(later, Some(place.clone()))))
    }

    fn answer_of(
        &self,
        answered: Result<Answered>,
        parsed: &Parsed<'_>,
        call: &[u8],
        place: Option<Place>,
    ) -> Result<Answer> {
        let session = parsed.session;
        let answer = answered.and_then(|answered| self.pending(answered, parsed, call));
        match (answer, place) {
            (Ok(Answer::Later(later, _)), place) => Ok(Answer::Later(later, place)),
            (answer, place) => {
                if let Some(place) = place {
                    self.inner.state().class_pools.waits_no_more(&session, &place);
                }
                answer
            }
        }
    }

    fn pending(&self, answered: Answered, parsed: &Parsed<'_>, call: &[u8]) -> Result<Answer> {
        let session = parsed.session;
        match answered {
            Answered::Now(called, upto) => {
                self.depend(upto);
                Ok(Answer::Now(encode(called)))
            }
            Answered::Later(waiting) => {
                let event_fd = Arc::new(EventFd::new()?);
                waiting.wake(&Waker::from(event_fd.clone()));
                // The timeout is in seconds; one that exceeds a Duration is unlimited.
                let wait = parsed.wait.and_then(|wait| Duration::try_from_secs_f64(wait.max(0.0)).ok());
                let until = wait.and_then(|wait| Instant::now().checked_add(wait));
                let pending = Pending { objects: self.clone(), waiting, event_fd, until, session, call: call.to_vec() };
                Ok(Answer::Later(Box::new(pending), None))
            }
        }
    }

    /// The run's session is open, and does not end while the run is in progress.
    fn enter(&self, parsed: &Parsed<'_>) -> Result<()> {
        let mut state = self.inner.state();
        let moment = self.inner.moment(&mut state);
        if !state.space.open(parsed.session, parsed.application, FAILED_LEASE_MS, moment)?
            || !state.space.is_pinned(&parsed.session)
        {
            state.space.pin(&parsed.session);
        }
        Ok(())
    }
}

impl Callee for Objects {
    fn call(&self, run: EventId, pool: &str, call: &[u8]) -> Asked {
        let session = run.get().to_le_bytes();
        let entered = Parsed::of(session, call).and_then(|parsed| self.enter(&parsed));
        match entered.and_then(|()| self.call_of(session, pool, call, (true, None))) {
            Ok(Answer::Now(answer)) => Asked::Now(Ok(answer)),
            Ok(Answer::Later(later, _)) => Asked::Later(later),
            Err(error) => Asked::Now(Err(error)),
        }
    }

    fn left(&self, run: EventId, well: bool) {
        let mut state = self.inner.state();
        let moment = self.inner.moment(&mut state);
        let session = run.get().to_le_bytes();
        let lease_ms = if well { WELL_LEASE_MS } else { FAILED_LEASE_MS };
        if let Some(cluster) = self.cluster() {
            if well {
                cluster.give_up_all(&session);
                cluster.leave_permits(session);
            }
            cluster.release_session(&session, lease_ms);
        }
        if well {
            // An item that a thread left behind would get is not lost.
            state.space.give_up_all(&session, moment);
            state.space.leave_permits(&session, moment);
        }
        state.space.lease(&session, lease_ms, moment);
        let end_ms = state.space.unpin(&session, moment);
        self.inner.look_by(&mut state, end_ms);
        self.inner.hand_out(state);
    }
}
