//! Shared objects of a host: one space in its memory, the waiting calls, and the thread that ends leases.
//!
//! ```text
//!  gateway ── Access::call ─┐
//!                           ├──> Objects: one lock ── Space::call ──> answer, or a Waiting that is woken
//!  dispatch ── a task ──────┘
//! ```
//!
//! A call holds the lock only while its method runs, which is short. Waiting calls are wakers.

mod class_pool;
mod reentry;
mod task;
mod writer;

use crate::{
    Gate, Gated, Namespace, Shows, Site,
    cluster::{Cluster, Ring},
    slot::Slot,
};
use class_pool::ClassPools;
use millrace_dispatch::{Environment, MethodWorkers};
use millrace_entities::{Call, Called, Moment, Reply, Session, Shown, Space, Type, Within};
use millrace_journal::{Durability, Position};
use millrace_wire::{Code, Error, Result};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
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
    due: Condvar,
    /// Rings for the thread that writes the steps of persistent objects.
    to_write: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Workers for the methods of user classes; none where no functions run.
    method_workers: OnceLock<Arc<MethodWorkers>>,
    /// The cluster that keeps copies of objects, if the namespace takes part in one.
    cluster: OnceLock<Weak<Cluster>>,
    /// Rings when that has methods of objects for this host to run.
    ring: OnceLock<Arc<Ring>>,
}

#[derive(Default)]
struct State {
    space: Space,
    /// The last token given out.
    token: u64,
    /// The waiters, by call.
    waiting: HashMap<(Session, u64), Vec<Arc<Slot>>>,
    /// The position that values from runs in objects depend on.
    depends: Position,
    /// When the thread that ends leases looks at them next.
    look_at_ms: u64,
    /// The workers for the methods of user classes.
    class_pools: ClassPools,
    /// The writer of persistent objects.
    writer_state: writer::Writer,
    /// The host is gone.
    closed: bool,
}

/// An answer that is still to come. Its session does not end meanwhile.
pub struct Waiting {
    /// The objects to which the session belongs; `None` for a session of replicated objects, whose waiters the group checks itself.
    objects: Option<Objects>,
    slot: Arc<Slot>,
    session: Session,
    number: u64,
}

impl Waiting {
    /// The answer, if it exists.
    pub fn take(&self) -> Option<Result<(Called, Position)>> {
        self.slot.take()
    }

    fn wake(&self, waker: &Waker) {
        self.slot.wake(waker);
    }
}

impl Future for Waiting {
    type Output = Result<(Called, Position)>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.slot.take_or_wake(context.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(Objects { inner }) = &self.objects else { return };
        let mut state = inner.state();
        let key = (self.session, self.number);
        if let Some(slots) = state.waiting.get_mut(&key) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                state.waiting.remove(&key);
            }
        }
        let moment = inner.moment(&mut state);
        let end_ms = state.space.unpin(&self.session, moment);
        inner.look_by(&mut state, end_ms);
    }
}

/// The outcome of a call.
pub enum Answered {
    /// It has its answer, and the position that is safe before that leaves.
    Now(Called, Position),
    /// It waits for it.
    Later(Waiting),
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current time. Tokens start above the clock of the namespace that never goes back, so they also grow from one host to the next.
    fn moment(&self, state: &mut State) -> Moment {
        state.token = (state.token + 1).max(self.namespace.journal().growing_clock().get());
        Moment { now_ms: self.now_ms(), token: state.token }
    }

    /// A lease ends at this time. The thread that ends leases is woken only if it would look later: when thousands of waiting calls are
    /// answered at once, it sleeps.
    fn look_by(&self, state: &mut State, end_ms: Option<u64>) {
        if let Some(end_ms) = end_ms.filter(|end_ms| *end_ms < state.look_at_ms) {
            state.look_at_ms = end_ms;
            self.due.notify_one();
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Distributes answers and steps, and wakes the waiters once the lock is free.
    fn hand_out(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let wakers = self.answers(&mut state);
        self.post_steps(&mut state);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Distributes answers, and returns the wakers to call once the lock is free.
    fn answers(&self, state: &mut State) -> Vec<Waker> {
        let mut wakers = Vec::new();
        // Calls that a step released wait for the records of that step.
        let after = match state.writer_state.take(&mut state.space) {
            true => {
                self.to_write.notify_one();
                state.writer_state.queued()
            }
            false => 0,
        };
        let reached = state.writer_state.reached(after);
        for (session, number) in state.space.take_ready() {
            let Some(slots) = state.waiting.remove(&(session, number)) else { continue };
            let Some(called) = state.space.reply(&session, number) else { continue };
            state.space.hand(&session, number);
            for slot in slots {
                match reached {
                    Some(upto) => wakers.extend(slot.give(Ok((called.clone(), upto)))),
                    None => state.writer_state.add(after, slot, Ok(called.clone())),
                }
            }
        }
        wakers
    }
}

impl Objects {
    /// An empty space for this namespace, and the thread that ends leases as long as the space is in use.
    pub fn start(namespace: Namespace) -> Result<Objects> {
        let mut state = State::default();
        writer::recover(&namespace, &mut state)?;
        let (start, due, to_write, method_workers) = (Instant::now(), Condvar::new(), Condvar::new(), OnceLock::new());
        let (state, threads) = (Mutex::new(state), Mutex::default());
        let (cluster, ring) = (OnceLock::new(), OnceLock::new());
        let inner = Arc::new(Inner { namespace, start, state, due, to_write, threads, method_workers, cluster, ring });
        let (leasing, writing) = (Arc::downgrade(&inner), Arc::downgrade(&inner));
        let named = |name: &str| thread::Builder::new().name(name.into());
        let leasing = millrace_threads::spawn(named("millrace-leases"), move || leases(&leasing));
        let writing = millrace_threads::spawn(named("millrace-objects"), move || writer::write(&writing));
        let started = [leasing, writing].into_iter().collect::<std::io::Result<Vec<_>>>();
        let started =
            started.map_err(|error| Code::HostStart.error(format!("a thread could not be started: {error}")))?;
        *inner.threads.lock().unwrap_or_else(PoisonError::into_inner) = started;
        Ok(Objects { inner })
    }

    /// From now on methods of user classes run, in workers of these surroundings.
    pub(crate) fn employ(&self, environment: Environment) {
        self.inner.method_workers.get_or_init(|| class_pool::method_workers(&self.inner.namespace, environment));
        // Calls that an earlier host has left.
        self.inner.hand_out(self.inner.state());
    }

    /// Whether these are the objects of this namespace.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        self.inner.namespace.gate()
    }

    /// Opens a session, or takes it up again; 0 ends it, and one that is to be resumed is not opened. Whether it was open, and its lease.
    pub fn open(&self, session: Session, application: &str, lease_ms: u32, resume: bool) -> Result<(bool, u32)> {
        let cluster = self.cluster();
        if let Some(cluster) = cluster.as_ref().filter(|_| lease_ms == 0) {
            cluster.end_session(session);
        }
        let lease_ms = if lease_ms == 0 { 0 } else { lease_ms.clamp(LEASE_MIN_MS, LEASE_MAX_MS) };
        // Its client may have called objects through a host that is lost.
        let is_known = lease_ms > 0 && cluster.is_some_and(|cluster| cluster.hear_session(session, lease_ms.into()));
        let mut state = self.inner.state();
        let moment = self.inner.moment(&mut state);
        if lease_ms == 0 {
            state.space.leave_permits(&session, moment);
            state.space.end(&session, moment);
            let mut wakers = self.inner.answers(&mut state);
            self.inner.post_steps(&mut state);
            let theirs: Vec<_> = state.waiting.extract_if(|(of, _), _| *of == session).collect();
            for slot in theirs.into_iter().flat_map(|(_, slots)| slots) {
                wakers.extend(slot.give(Err(Code::SessionExpired.error("the session was ended"))));
            }
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            return Ok((true, 0));
        }
        let resumed = match resume {
            true if is_known && !state.space.is_open(&session) => true,
            true => state.space.renew(session, lease_ms.into(), moment).map(|()| true)?,
            false => state.space.open(session, application, lease_ms.into(), moment)?,
        };
        self.inner.look_by(&mut state, Some(moment.now_ms + u64::from(lease_ms)));
        drop(state);
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

    /// Whether a call of an object of a user class has workers open nothing but what others with more rights have sent: its arguments are
    /// plain values, and the object has its class already. So is every call of a class in WebAssembly.
    pub(crate) fn opens_nothing(&self, key: &str, args: &[u8]) -> (bool, bool) {
        let is_module = millrace_entities::pool_of(args).is_some_and(|pool| self.is_module(pool));
        let is_plain = millrace_entities::is_plain_call(args) && self.inner.state().space.has_class(key, args);
        (is_module, is_plain)
    }

    /// Whether the methods of a pool's classes are in WebAssembly: these call no objects, and open no pickles.
    fn is_module(&self, pool: &str) -> bool {
        self.inner.method_workers.get().is_some_and(|workers| workers.is_module(pool))
    }

    /// Does a call.
    pub fn call(&self, call: &Call<'_>) -> Result<Answered> {
        if call.flags.copies > 1 {
            return self.call_copies(call, (false, None));
        }
        self.employed(call)?;
        self.call_in(self.inner.state(), call)
    }

    /// From now on objects may have copies on the other hosts of this cluster.
    pub(crate) fn set_cluster(&self, cluster: &Arc<Cluster>) {
        if self.inner.cluster.set(Arc::downgrade(cluster)).is_err() {
            return;
        }
        let (objects, ring) = (Arc::downgrade(&self.inner), cluster.ring());
        let _ = self.inner.ring.set(ring.clone());
        let named = thread::Builder::new().name("millrace-steps".into());
        match millrace_threads::spawn(named, move || class_pool::hand_steps(&objects, &ring)) {
            Ok(thread) => self.inner.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
            Err(error) => {
                tracing::error!(target: "objects", %error, "cannot start a thread for the methods of replicated objects; this host does not run them");
            }
        }
    }

    fn cluster(&self) -> Option<Arc<Cluster>> {
        self.inner.cluster.get().and_then(Weak::upgrade)
    }

    /// Executes a call of a replicated object. With `pin` its session lasts until it is released; `within` is the
    /// step that makes the call, if that is one of such an object.
    fn call_copies(&self, call: &Call<'_>, (pin, within): (bool, Option<Within<'_>>)) -> Result<Answered> {
        let copies = call.flags.copies;
        if !call.flags.persistent {
            return Err(Code::PersistenceUnsupported.error(format!("rf={copies} needs `persistent`")));
        }
        if call.kind == Type::Shared {
            check_class(call)?;
        }
        let none = || Code::PersistenceUnsupported.error(format!("rf={copies}, but the namespace is not in a cluster"));
        let cluster = self.cluster().ok_or_else(none)?;
        let lease_ms = {
            let mut state = self.inner.state();
            let moment = self.inner.moment(&mut state);
            let lease_ms = state.space.lease_of(&call.session);
            lease_ms.inspect(|lease_ms| state.space.lease(&call.session, *lease_ms, moment))
        };
        let slot = Arc::<Slot>::default();
        cluster.call_object(call, within, lease_ms, pin, &slot);
        Ok(Answered::Later(Waiting { objects: None, slot, session: call.session, number: call.number }))
    }

    /// Checks that there are workers for a call of an object of a user class.
    fn employed(&self, call: &Call<'_>) -> Result<()> {
        if call.kind != Type::Shared {
            return Ok(());
        }
        let method_workers = self.inner.method_workers.get().ok_or_else(none_here)?;
        let pool = millrace_entities::pool_of(call.args);
        let pool = pool.ok_or_else(|| Code::ObjectCallInvalid.error("a call of a user class must name a pool"))?;
        let concurrency = method_workers.concurrency(pool)?;
        self.inner.state().class_pools.allow(pool, concurrency);
        Ok(())
    }

    fn call_in(&self, mut state: MutexGuard<'_, State>, call: &Call<'_>) -> Result<Answered> {
        let moment = self.inner.moment(&mut state);
        if call.flags.persistent {
            state.writer_state.check()?;
        }
        let before = state.writer_state.queued();
        let called = state.space.call(call, moment);
        let wakers = self.inner.answers(&mut state);
        let made = if state.writer_state.queued() > before { state.writer_state.queued() } else { 0 };
        let after = made.max(state.space.after(call.key));
        let is_waiting = matches!(called, Ok(Called::Waiting(_)));
        let answered = match state.writer_state.reached(after).filter(|_| !is_waiting) {
            Some(upto) => called.map(|called| Answered::Now(called, upto)),
            // A session that is not open waits for nothing.
            None if !state.space.is_open(&call.session) => {
                called.map(|called| Answered::Now(called, Position::default()))
            }
            None => {
                let slot = Arc::<Slot>::default();
                if is_waiting {
                    state.waiting.entry((call.session, call.number)).or_default().push(slot.clone());
                } else {
                    // A refusal reveals the state, too.
                    state.writer_state.add(after, slot.clone(), called);
                }
                state.space.pin(&call.session);
                let (session, number) = (call.session, call.number);
                Ok(Answered::Later(Waiting { objects: Some(self.clone()), slot, session, number }))
            }
        };
        self.inner.post_steps(&mut state);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        answered
    }

    /// An answer depends on values that runs have put into objects, and waits until these are safe.
    pub(crate) fn hold<T>(&self, answer: T, upto: Position, durability: Option<Durability>) -> Gated<T> {
        let upto = upto.max(self.inner.state().depends);
        self.gate().hold(Site::Get, answer, Shows::Report(upto), durability)
    }

    /// Everything that a worker has read is safe before this position, and so are the values that it passes on.
    fn depend(&self, upto: Position) {
        let mut state = self.inner.state();
        state.depends = state.depends.max(upto);
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

    /// The threads end: that of leases, and those that run methods.
    pub(crate) fn close(&self) {
        let methods = {
            let mut state = self.inner.state();
            state.closed = true;
            state.class_pools.threads()
        };
        self.inner.due.notify_all();
        self.inner.to_write.notify_all();
        self.inner.ring.get().into_iter().for_each(|ring| ring.ring());
        methods.into_iter().for_each(millrace_threads::join);
        // They have the namespace open, which is to end cleanly; and what was answered is to be written.
        let threads = std::mem::take(&mut *self.inner.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(millrace_threads::join);
    }
}

/// Ends leases until the objects are no longer in use.
fn leases(objects: &Weak<Inner>) {
    while let Some(inner) = objects.upgrade() {
        let mut state = inner.state();
        if state.closed {
            return;
        }
        let moment = inner.moment(&mut state);
        let next = state.space.expire(moment);
        let wakers = inner.answers(&mut state);
        inner.post_steps(&mut state);
        if !wakers.is_empty() {
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            continue;
        }
        // A lease that ends before the next look wakes this thread: see `look_by`.
        let pause = next.map_or(LOOK_IDLE, |next| {
            Duration::from_millis(next.saturating_sub(moment.now_ms)).clamp(LOOK_MIN, LOOK_MAX)
        });
        state.look_at_ms = moment.now_ms.saturating_add(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        drop(inner.due.wait_timeout(state, pause));
    }
}

/// Checks a call of an object of a user class that several hosts have. A body of such a class has the number that its bytes give it, so that
/// it is the same class on all of them.
fn check_class(call: &Call<'_>) -> Result<()> {
    if millrace_entities::pool_of(call.args).is_none() {
        return Err(Code::ObjectCallInvalid.error("a call of a user class must name a pool"));
    }
    if let Some((number, body)) = millrace_entities::shipped_class(call.method.name, call.args) {
        let digest = Sha256::digest(body);
        let first = u64::from_le_bytes(std::array::from_fn(|at| digest[at]));
        if u64::try_from(number) != Ok(first >> 2 | 1) {
            return Err(Code::ObjectCallInvalid.error("the number of a class does not match its bytes"));
        }
    } else if call.method.name == "class" {
        return Err(Code::ObjectCallInvalid.error("a class must be sent together with its body"));
    }
    Ok(())
}

/// The refusal of a call where there are no shared objects.
pub(crate) fn none_here() -> Error {
    Code::ObjectCallInvalid.error("shared objects are kept by a host, and no host runs the namespace's functions")
}

/// The value or the exception of a call, in the form for all callers.
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
