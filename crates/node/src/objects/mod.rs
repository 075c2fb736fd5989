//! Shared objects of a host: one space in its memory, the waiting calls, and the thread that ends leases.
//!
//! ```text
//!  gateway ── Door::call ──┐
//!                          ├──> Objects: one lock ── Space::call ──> answer, or a Waiting that is woken
//!  dispatch ── a task ─────┘
//! ```
//!
//! A call takes its lock for as long as the method runs, which is short, and holds it for nothing else. Anyone who waits is a waker.

mod task;

use crate::{Gate, Held, Namespace, Site};
use millrace_entities::{Called, Moment, Reply, Session, Shown, Space};
use millrace_journal::{Durability, Position};
use millrace_wire::{Code, Error, Result};
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The longest lease.
pub const LEASE_MAX_MS: u32 = 60 * 60 * 1000;
/// The shortest lease.
pub const LEASE_MIN_MS: u32 = 100;
/// How often leases are looked at, at most and at least.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// The same while there is no lease: an idle host sleeps.
const LOOK_IDLE: Duration = Duration::from_secs(60);

/// The shared objects of one host.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<Inner>,
}

struct Inner {
    namespace: Namespace,
    start: Instant,
    state: Mutex<State>,
    bell: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    space: Space,
    /// The last token given out.
    token: u64,
    /// Who waits for the answer of which call.
    waiting: HashMap<(Session, u64), Vec<Arc<Slot>>>,
    /// What the answers depend on that runs have given objects.
    depends: Position,
    /// The host is gone.
    closed: bool,
}

/// Where somebody finds an answer.
#[derive(Default)]
struct Slot {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    answer: Option<Result<Called>>,
    waker: Option<Waker>,
}

impl Slot {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is still to come. Its session does not end meanwhile.
pub struct Waiting {
    objects: Objects,
    slot: Arc<Slot>,
    session: Session,
    number: u64,
}

impl Waiting {
    /// The answer, if it is there.
    pub fn take(&self) -> Option<Result<Called>> {
        self.slot.found().answer.take()
    }

    fn wake(&self, waker: &Waker) {
        let mut found = self.slot.found();
        if found.answer.is_some() {
            waker.wake_by_ref();
        }
        found.waker = Some(waker.clone());
    }
}

impl Future for Waiting {
    type Output = Result<Called>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Called>> {
        let mut found = self.slot.found();
        match found.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                found.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let inner = &self.objects.inner;
        let mut state = inner.state();
        let key = (self.session, self.number);
        if let Some(slots) = state.waiting.get_mut(&key) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                state.waiting.remove(&key);
            }
        }
        let moment = inner.moment(&mut state);
        state.space.unpin(&self.session, moment);
        inner.bell.notify_one();
    }
}

/// What became of a call.
pub enum Answered {
    /// It has its answer.
    Now(Called),
    /// It waits for it.
    Later(Waiting),
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now. Tokens go on above the namespace's clock, which never goes back: so they grow also from one host to the next.
    fn moment(&self, state: &mut State) -> Moment {
        state.token = (state.token + 1).max(self.namespace.journal().clock().get());
        Moment { now_ms: self.now_ms(), token: state.token }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Distributes answers, and returns the wakers to call once the lock is free.
    fn hand_out(state: &mut State) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (session, number) in state.space.take_ready() {
            let Some(slots) = state.waiting.remove(&(session, number)) else { continue };
            let Some(called) = state.space.reply(&session, number) else { continue };
            for slot in slots {
                let mut found = slot.found();
                found.answer = Some(Ok(called.clone()));
                wakers.extend(found.waker.take());
            }
        }
        wakers
    }
}

impl Objects {
    /// An empty space beside this namespace, and the thread that ends leases for as long as anybody has it.
    pub fn start(namespace: Namespace) -> Result<Objects> {
        let (start, state, bell, thread) = (Instant::now(), Mutex::default(), Condvar::new(), Mutex::default());
        let inner = Arc::new(Inner { namespace, start, state, bell, thread });
        let weak = Arc::downgrade(&inner);
        let started =
            millrace_threads::spawn(thread::Builder::new().name("millrace-leases".into()), move || leases(&weak));
        let started =
            started.map_err(|error| Code::HostStart.error(format!("a thread could not be started: {error}")))?;
        *inner.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok(Objects { inner })
    }

    /// Whether these are the objects of this namespace.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        self.inner.namespace.gate()
    }

    /// Opens a session, or takes it up again; 0 ends it, and one that is to be resumed is not opened. Whether it was open, and its lease.
    pub fn open(&self, session: Session, application: &str, lease_ms: u32, resume: bool) -> Result<(bool, u32)> {
        let mut state = self.inner.state();
        let moment = self.inner.moment(&mut state);
        if lease_ms == 0 {
            state.space.end(&session, moment);
            let mut wakers = Inner::hand_out(&mut state);
            let theirs: Vec<_> = state.waiting.extract_if(|(of, _), _| *of == session).collect();
            for slot in theirs.into_iter().flat_map(|(_, slots)| slots) {
                let mut found = slot.found();
                found.answer = Some(Err(Code::SessionExpired.error("the session was ended")));
                wakers.extend(found.waker.take());
            }
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            return Ok((true, 0));
        }
        let lease_ms = lease_ms.clamp(LEASE_MIN_MS, LEASE_MAX_MS);
        let resumed = match resume {
            true => state.space.renew(session, lease_ms.into(), moment).map(|()| true)?,
            false => state.space.open(session, application, lease_ms.into(), moment)?,
        };
        drop(state);
        self.inner.bell.notify_one();
        Ok((resumed, lease_ms))
    }

    /// How many other sessions are open whose ids begin with the same `bytes` bytes.
    pub(crate) fn like(&self, session: &Session, bytes: usize) -> usize {
        self.inner.state().space.like(session, bytes)
    }

    /// Whether there is an object of this key.
    pub fn holds(&self, key: &str) -> bool {
        self.inner.state().space.holds(key)
    }

    /// Does a call.
    pub fn call(&self, call: &millrace_entities::Call<'_>) -> Result<Answered> {
        let mut state = self.inner.state();
        let moment = self.inner.moment(&mut state);
        let called = state.space.call(call, moment);
        let wakers = Inner::hand_out(&mut state);
        let answered = called.map(|called| match called {
            Called::Waiting(_) => {
                let slot = Arc::<Slot>::default();
                state.waiting.entry((call.session, call.number)).or_default().push(slot.clone());
                state.space.pin(&call.session);
                Answered::Later(Waiting { objects: self.clone(), slot, session: call.session, number: call.number })
            }
            now => Answered::Now(now),
        });
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        answered
    }

    /// What leaves depends on what runs have given objects: it waits until that is safe.
    pub(crate) fn hold<T>(&self, answer: T, durability: Option<Durability>) -> Held<T> {
        let upto = self.inner.state().depends;
        self.gate().hold(Site::Get, answer, upto, durability)
    }

    /// Deletes an object; whether it was there.
    pub fn delete(&self, key: &str) -> bool {
        let mut state = self.inner.state();
        let moment = self.inner.moment(&mut state);
        let deleted = state.space.delete(key, moment);
        let wakers = Inner::hand_out(&mut state);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        deleted
    }

    /// Objects by key, from behind this one on, and how many sessions are open.
    pub fn show(&self, above: &str, most: usize) -> (Vec<Shown>, usize) {
        let state = self.inner.state();
        (state.space.show(above, most), state.space.sessions())
    }

    /// One object.
    pub fn show_one(&self, key: &str) -> Option<Shown> {
        self.inner.state().space.show_one(key)
    }

    /// The thread that ends leases ends.
    pub(crate) fn close(&self) {
        self.inner.state().closed = true;
        self.inner.bell.notify_all();
        // It has the namespace open, which is to end cleanly.
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(thread.map(JoinHandle::join));
    }
}

/// Ends leases until nobody has the objects any more.
fn leases(objects: &Weak<Inner>) {
    while let Some(inner) = objects.upgrade() {
        let mut state = inner.state();
        if state.closed {
            return;
        }
        let moment = inner.moment(&mut state);
        let next = state.space.expire(moment);
        let wakers = Inner::hand_out(&mut state);
        if !wakers.is_empty() {
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            continue;
        }
        // Who opens a session or leaves one to its lease rings.
        let pause = next.map_or(LOOK_IDLE, |next| {
            Duration::from_millis(next.saturating_sub(moment.now_ms)).clamp(LOOK_MIN, LOOK_MAX)
        });
        drop(inner.bell.wait_timeout(state, pause));
    }
}

/// The refusal of a call where there are no shared objects.
pub(crate) fn none_here() -> Error {
    Code::ObjectCallInvalid.error("there are no shared objects here: no host runs the namespace's functions")
}

/// What a call returned or raised, as everybody is told it.
pub struct Answer {
    /// Which object it was.
    pub incarnation: u64,
    /// The value or what it raises; none while it waits.
    pub reply: Option<Reply>,
}

impl From<Called> for Answer {
    fn from(called: Called) -> Self {
        match called {
            Called::Now(incarnation, reply) => Self { incarnation, reply: Some(reply) },
            Called::Waiting(incarnation) => Self { incarnation, reply: None },
        }
    }
}
