//! The workers that run the methods of user classes: threads of a pool, each with a worker of its own.
//!
//! ```text
//!  Space::take_work ──> post_steps ── a free thread, the one that ran the object last if it is free; or a new one; or the queue
//!                            thread: begin ──> MethodWorkers::run ── its worker ──> finish
//! ```
//!
//! Objects that other hosts have, too, are not in the host's space: their steps come from the cluster, and end there.
//!
//! At most as many steps of a pool run at once as tasks of the pool. A step that waits for another object does not count, so that the step
//! that it waits for gets a thread, up to [`METHOD_WORKERS_MAX`] in all. A cycle of waiting steps is detected by the call that would
//! complete it.

use super::{Inner, Objects, State, reentry::Reentry, task::Answer};
use crate::{
    Namespace,
    cluster::{Cluster, Ring},
};
use millrace_dispatch::{
    Asked, Environment, Later, METHOD_WORKERS_MAX, MethodWorker, MethodWorkers, ObjectCalls, Step, StepCalls, StepWork,
};
use millrace_entities::{Finished, Job, SESSION_BYTES, Session, value};
use millrace_namespace::tasks;
use millrace_wire::{Code, EventId, Result, protocol::Fence};
use sha2::{Digest, Sha256};
use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    os::fd::BorrowedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a thread without a step keeps its worker.
const IDLE: Duration = Duration::from_secs(60);
/// How much longer than its method a step may take; the worker ends the method first.
const GRACE: Duration = Duration::from_secs(1);
/// How much longer a step may take that first loads its class.
const LOADING: Duration = Duration::from_secs(60);
/// The lease of a step's session, which ends with the step; after a restart the step may wait for its turn for this long.
const LEASE_MS: u64 = 24 * 3_600_000;
/// That of a step of an object that other hosts have, too, if its host is lost: by then another one has begun with the step.
const GROUP_LEASE_MS: u64 = 60_000;

// How a worker reports the outcome of a step.
const RETURNED: i64 = 0;
const RAISED: i64 = 1;
const NOT_BEGUN: i64 = 2;
const BLOCKED: i64 = 3;

/// An object of a user class: of this host, or of a group that this host leads. Their keys are apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    pub key: Box<str>,
    pub is_of_group: bool,
}

impl Place {
    pub fn new(key: &str, is_of_group: bool) -> Self {
        Self { key: key.into(), is_of_group }
    }
}

/// All threads that run steps, and which step waits for what.
#[derive(Default)]
pub(super) struct ClassPools {
    of: HashMap<Box<str>, ClassPool>,
    /// By session: the steps in progress.
    steps: HashMap<Session, Running>,
    /// The step that an object is in.
    occupied: HashMap<Place, Session>,
    /// Objects that are in a queue, or that a thread was given and has not begun with.
    posted: BTreeSet<Place>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Running {
    /// The objects of user classes that it waits for.
    waits_for: Vec<Place>,
    /// How many of its calls wait.
    calls: usize,
    /// The calls that run within it, once it has called an object.
    reentry: Option<Arc<Reentry>>,
    /// The fences of those.
    fences: Vec<(Box<str>, u64)>,
}

#[derive(Default)]
struct ClassPool {
    /// Objects whose next step no worker has taken yet.
    queue: VecDeque<Place>,
    idle: Vec<Arc<Mailbox>>,
    threads: usize,
    /// How many of them wait within a step.
    blocked: usize,
    /// How many steps may run at once.
    concurrency: usize,
}

/// Where an idle thread finds what it does next.
#[derive(Default)]
struct Mailbox {
    due: Condvar,
    next: Mutex<Next>,
}

#[derive(Default)]
struct Next {
    place: Option<Place>,
    /// The object whose step it ran last: its worker has the fields.
    last: Place,
}

impl Mailbox {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClassPools {
    /// The objects that form a circle if this step waits for that object.
    pub fn circle(&self, from: &Session, to: &Place) -> Option<Vec<Box<str>>> {
        let (mut path, mut seen) = (Vec::new(), HashSet::new());
        self.leads(from, to, &mut path, &mut seen).then(|| path.into_iter().map(|at| at.key.clone()).collect())
    }

    /// Whether the step that this object is in waits for the step `from`; `path` gets the objects in between.
    fn leads<'a>(
        &'a self,
        from: &Session,
        at: &'a Place,
        path: &mut Vec<&'a Place>,
        seen: &mut HashSet<&'a Place>,
    ) -> bool {
        let Some(session) = self.occupied.get(at).filter(|_| seen.insert(at)) else { return false };
        path.push(at);
        if session == from {
            return true;
        }
        let next = self.steps.get(session).map_or(&[][..], |step| step.waits_for.as_slice());
        if next.iter().any(|next| self.leads(from, next, path, seen)) {
            return true;
        }
        path.pop();
        false
    }

    /// The calls that run within the step that an object is in.
    pub fn reentry(&self, place: &Place) -> Option<Arc<Reentry>> {
        self.steps.get(self.occupied.get(place)?)?.reentry.clone()
    }

    /// One of them has a fence.
    pub fn fence(&mut self, place: &Place, fence: Fence<'_>) {
        if let Some(step) = self.occupied.get(place).and_then(|session| self.steps.get_mut(session)) {
            step.fences.push((fence.name.into(), fence.token));
        }
    }

    /// A step waits for the method of another object.
    pub fn waits(&mut self, session: &Session, place: Place) {
        if let Some(step) = self.steps.get_mut(session) {
            step.waits_for.push(place);
        }
    }

    /// One of the calls of that object by a step no longer waits.
    pub fn waits_no_more(&mut self, session: &Session, place: &Place) {
        if let Some(step) = self.steps.get_mut(session)
            && let Some(at) = step.waits_for.iter().position(|waits_for| waits_for == place)
        {
            step.waits_for.swap_remove(at);
        }
    }

    /// The maximum number of steps of a pool that run at once.
    pub fn allow(&mut self, pool: &str, concurrency: u32) {
        self.of.entry(pool.into()).or_default().concurrency = concurrency as usize;
    }

    /// The threads, once they are to end.
    pub fn threads(&mut self) -> Vec<JoinHandle<()>> {
        for mailbox in self.of.values_mut().flat_map(|class_pool| class_pool.idle.drain(..)) {
            mailbox.due.notify_one();
        }
        std::mem::take(&mut self.threads)
    }
}

impl Inner {
    /// Finds a thread for the next step of each object that may have one.
    pub(super) fn post_steps(self: &Arc<Self>, state: &mut State) {
        if self.method_workers.get().is_none() {
            return;
        }
        for (key, pool) in state.space.take_work() {
            self.mailbox(state, Place { key, is_of_group: false }, &pool);
        }
    }

    /// The same for objects that other hosts have, too, if this host is to run their methods.
    fn post_steps_of_group(self: &Arc<Self>, cluster: &Cluster) {
        for (key, pool) in cluster.take_steps() {
            let Some(method_workers) = self.method_workers.get() else {
                cluster.put_off_step((key, pool));
                continue;
            };
            // Without the pool, the step answers so.
            let concurrency = method_workers.concurrency(&pool).unwrap_or(1);
            let mut state = self.state();
            state.class_pools.allow(&pool, concurrency);
            self.mailbox(&mut state, Place { key, is_of_group: true }, &pool);
        }
    }

    fn mailbox(self: &Arc<Self>, state: &mut State, place: Place, pool: &str) {
        if state.closed || !state.class_pools.posted.insert(place.clone()) {
            return;
        }
        self.place(state, place, pool);
    }

    /// Gives a step to a thread, or puts it into the queue.
    fn place(self: &Arc<Self>, state: &mut State, place: Place, pool: &str) {
        let class_pool = state.class_pools.of.entry(pool.into()).or_default();
        let last = class_pool
            .idle
            .iter()
            .position(|mailbox| mailbox.next().last == place)
            .unwrap_or(class_pool.idle.len().saturating_sub(1));
        // A blocked step may continue meanwhile; then there is one active thread too many for a while.
        let busy = class_pool.threads - class_pool.idle.len();
        let may_run = busy.saturating_sub(class_pool.blocked) < class_pool.concurrency.max(1);
        if may_run && last < class_pool.idle.len() {
            let mailbox = class_pool.idle.swap_remove(last);
            mailbox.next().place = Some(place);
            mailbox.due.notify_one();
            return;
        }
        class_pool.queue.push_back(place);
        if may_run && class_pool.threads < METHOD_WORKERS_MAX as usize {
            self.hire(state, pool);
        }
    }

    /// Starts a thread for a pool's queue.
    fn hire(self: &Arc<Self>, state: &mut State, pool: &str) {
        let (inner, of): (Arc<Inner>, Box<str>) = (self.clone(), pool.into());
        let named = thread::Builder::new().name("millrace-methods".into());
        let started = millrace_threads::spawn(named, move || attend(&inner, &of));
        let class_pool = state.class_pools.of.entry(pool.into()).or_default();
        match started {
            Ok(thread) => {
                class_pool.threads += 1;
                state.class_pools.threads.retain(|thread| !thread.is_finished());
                state.class_pools.threads.push(thread);
            }
            // Those that there are take the queue; without any, the calls wait until a thread can be started.
            Err(error) => {
                tracing::warn!(target: "objects", pool, %error, "cannot start a thread for the methods of objects")
            }
        }
    }

    /// A call of a step begins to wait. The step's thread does not count while any of its calls waits.
    fn block(self: &Arc<Self>, pool: &str, of: &Session) {
        let mut state = self.state();
        let Some(step) = state.class_pools.steps.get_mut(of) else { return };
        step.calls += 1;
        if step.calls > 1 {
            return;
        }
        let Some(class_pool) = state.class_pools.of.get_mut(pool) else { return };
        class_pool.blocked += 1;
        if let Some(place) = class_pool.queue.pop_front() {
            self.place(&mut state, place, pool);
        }
    }

    /// A call of a step no longer waits: that of a method of this object, or of a type of the host.
    fn unblock(&self, pool: &str, of: &Session, place: Option<&Place>) {
        let mut state = self.state();
        if let Some(place) = place {
            state.class_pools.waits_no_more(of, place);
        }
        let Some(step) = state.class_pools.steps.get_mut(of) else { return };
        step.calls -= 1;
        if step.calls == 0
            && let Some(class_pool) = state.class_pools.of.get_mut(pool)
        {
            class_pool.blocked -= 1;
        }
    }
}

/// A thread of a pool: runs steps until there are none for a while.
fn attend(inner: &Arc<Inner>, pool: &str) {
    let (mailbox, mut worker) = (Arc::<Mailbox>::default(), MethodWorker::default());
    loop {
        let mut state = inner.state();
        let place = loop {
            if state.closed {
                return;
            }
            let mut next = mailbox.next();
            if let Some(place) = next.place.take() {
                break place;
            }
            let class_pool = state.class_pools.of.entry(pool.into()).or_default();
            let own = class_pool.queue.iter().position(|place| *place == next.last).unwrap_or(0);
            if let Some(place) = class_pool.queue.remove(own) {
                break place;
            }
            drop(next);
            class_pool.idle.push(mailbox.clone());
            let (waited, timeout) = mailbox.due.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = waited;
            let class_pool = state.class_pools.of.entry(pool.into()).or_default();
            class_pool.idle.retain(|idle| !Arc::ptr_eq(idle, &mailbox));
            if timeout.timed_out() && mailbox.next().place.is_none() {
                class_pool.threads -= 1;
                return;
            }
        };
        mailbox.next().last = place.clone();
        drop(state);
        if place.is_of_group {
            step_of_group(inner, pool, &place, &mut worker);
        } else {
            step(inner, pool, &place, &mut worker);
        }
    }
}

/// Runs the next step of an object.
fn step(inner: &Arc<Inner>, pool: &str, place: &Place, worker: &mut MethodWorker) {
    let mut state = inner.state();
    state.class_pools.posted.remove(place);
    let moment = inner.moment(&mut state);
    let Some(mut job) = state.space.begin(&place.key, moment) else {
        return inner.hand_out(state);
    };
    let session = job.session(digest);
    // It cannot fail: a lease or the number of sessions may, and then the step calls no object.
    let opened = state.space.open(session, &job.application, LEASE_MS, moment);
    state.space.pin(&session);
    state.class_pools.steps.insert(session, Running::default());
    state.class_pools.occupied.insert(place.clone(), session);
    inner.hand_out(state);

    let finished = opened.and_then(|_| run(inner, pool, &job, (session, None), worker));
    let finished = finished.unwrap_or_else(|error| Finished::Failed(error.to_string()));

    let mut state = inner.state();
    if state.closed {
        // Its worker was ended with the host. If the object is persistent, the next host begins the step again.
        return;
    }
    let moment = inner.moment(&mut state);
    let running = state.class_pools.steps.remove(&session);
    running.into_iter().flat_map(|step| step.fences).for_each(|fence| job.fence(fence));
    state.class_pools.occupied.remove(place);
    let is_well = matches!(finished, Finished::Ran(..));
    state.space.finish(&job, finished, moment);
    if is_well {
        state.space.leave_permits(&session, moment);
    }
    // Locks that the method acquired and did not release are released.
    state.space.end(&session, moment);
    inner.hand_out(state);
}

/// Runs the next step of an object that other hosts have, too. It ends once the group has agreed on what it came to.
fn step_of_group(inner: &Arc<Inner>, pool: &str, place: &Place, worker: &mut MethodWorker) {
    inner.state().class_pools.posted.remove(place);
    let Some(cluster) = inner.cluster.get().and_then(Weak::upgrade) else { return };
    // No other host's step has the number, whatever clocks say.
    let mut number = [0; 8];
    getrandom::fill(&mut number).expect("the operating system has a random source");
    let Some(job) = cluster.begin_step(&place.key, u64::from_le_bytes(number) >> 1) else { return };
    let session = job.session(digest);
    let opened = {
        let mut state = inner.state();
        let moment = inner.moment(&mut state);
        let opened = state.space.open(session, &job.application, GROUP_LEASE_MS, moment);
        state.space.pin(&session);
        state.class_pools.steps.insert(session, Running::default());
        state.class_pools.occupied.insert(place.clone(), session);
        opened
    };
    cluster.hear_step(session, GROUP_LEASE_MS);

    let finished = opened.and_then(|_| run(inner, pool, &job, (session, Some(&cluster)), worker));
    let finished = finished.unwrap_or_else(|error| match error.code() {
        Code::PoolNotFound => {
            let host = crate::cluster::shown(cluster.host());
            Finished::Refused("millrace.PoolMissing", format!("no pool '{pool}' on host {host}, which runs the method"))
        }
        _ => Finished::Failed(error.to_string()),
    });

    let mut state = inner.state();
    let (closed, moment) = (state.closed, inner.moment(&mut state));
    state.class_pools.steps.remove(&session);
    state.class_pools.occupied.remove(place);
    if matches!(finished, Finished::Ran(..)) {
        state.space.leave_permits(&session, moment);
        cluster.leave_permits(session);
    }
    state.space.end(&session, moment);
    inner.hand_out(state);
    // The worker of a host that stops was ended; the next one that leads runs the method.
    if !closed {
        cluster.finish_step(job, pool, session, finished);
    }
}

/// Hands steps of objects that other hosts have, too, to workers, until the objects are no longer in use.
pub(super) fn hand_steps(objects: &Weak<Inner>, ring: &Ring) {
    loop {
        ring.wait(IDLE);
        let Some(inner) = objects.upgrade() else { return };
        let Some(cluster) = inner.cluster.get().and_then(Weak::upgrade) else { return };
        if inner.state().closed {
            return;
        }
        inner.post_steps_of_group(&cluster);
    }
}

/// A unique session.
fn digest(of: &[u8]) -> Session {
    let digest = Sha256::digest(of);
    std::array::from_fn::<u8, SESSION_BYTES, _>(|at| digest[at])
}

fn run(
    inner: &Arc<Inner>,
    pool: &str,
    job: &Job,
    (session, cluster): (Session, Option<&Cluster>),
    worker: &mut MethodWorker,
) -> Result<Finished> {
    let method_workers = inner.method_workers.get().ok_or_else(super::none_here)?;
    let extra = Cell::new(Duration::ZERO);
    let mut calls = CallsOfStep { inner, pool, job, session, cluster, extra: &extra, reentry: None };
    let id = EventId::from_bits(u128::from_le_bytes(session));
    let within = Duration::from_millis(job.timeout_ms) + GRACE;
    let step = Step { work: StepWork { pool, id, request: &job.request }, within, extra: &extra };
    finished_of(&method_workers.run(worker, &step, &mut calls, &|| inner.state().closed)?)
}

/// The result of a worker: the outcome, the value or the exception, and the changed fields.
fn finished_of(result: &[u8]) -> Result<Finished> {
    let wrong = || Code::WorkerProtocol.error("the result of a step does not follow the worker protocol");
    let elements = value::elements(result)?;
    let [kind, value, changed] = *elements else { return Err(wrong()) };
    let kind = value::as_int(kind).filter(|kind| (RETURNED..=BLOCKED).contains(kind)).ok_or_else(wrong)?;
    let reported = value::int(if kind == RETURNED { RETURNED } else { RAISED });
    let answer = value::array([&*reported, value].into_iter());
    if kind == NOT_BEGUN {
        return Ok(Finished::NotBegun(answer));
    }
    let changed = value::elements(changed)?;
    let change = |pair: &[&[u8]]| (pair[0].to_vec(), (!value::is_nil(pair[1])).then(|| pair[1].to_vec()));
    let changed = changed.chunks_exact(2).map(change).collect();
    Ok(if kind == BLOCKED { Finished::Blocked(changed) } else { Finished::Ran(answer, changed) })
}

/// The requests of a step to its host.
struct CallsOfStep<'a> {
    inner: &'a Arc<Inner>,
    pool: &'a str,
    job: &'a Job,
    session: Session,
    /// The cluster that has the object, if other hosts have it, too.
    cluster: Option<&'a Cluster>,
    /// How much longer than its method the step may take.
    extra: &'a Cell<Duration>,
    /// The calls that run within the step.
    reentry: Option<Arc<Reentry>>,
}

impl CallsOfStep<'_> {
    /// From now on, calls can run within the step: it calls an object, which may call its object.
    fn open(&mut self) -> Result<()> {
        if self.reentry.is_none() && self.cluster.is_none() {
            let reentry = Arc::new(Reentry::new(&self.job.key, self.job.incarnation, self.job.becomes().cloned())?);
            if let Some(step) = self.inner.state().class_pools.steps.get_mut(&self.session) {
                step.reentry = Some(reentry.clone());
            }
            self.reentry = Some(reentry);
        }
        Ok(())
    }
}

impl Drop for CallsOfStep<'_> {
    fn drop(&mut self) {
        let Some(reentry) = &self.reentry else { return };
        if let Some(step) = self.inner.state().class_pools.steps.get_mut(&self.session) {
            step.reentry = None;
        }
        reentry.end();
    }
}

impl StepCalls for CallsOfStep<'_> {
    fn fields(&mut self) -> Result<Vec<u8>> {
        let (key, incarnation) = (&self.job.key, self.job.incarnation);
        match self.cluster {
            Some(cluster) => cluster.fields(key, incarnation),
            None => self.inner.state().space.fields(key, incarnation),
        }
    }

    fn class(&mut self, number: u64) -> Result<Vec<u8>> {
        // The worker loads the class, with the modules that it needs.
        self.extra.set(LOADING);
        match self.cluster {
            Some(cluster) => cluster.class(self.pool, number),
            None => Ok(self.inner.namespace.get(&tasks::bodies(self.pool), number)?.payload),
        }
    }
}

impl ObjectCalls for CallsOfStep<'_> {
    fn callback(&mut self) -> Option<(u32, Vec<u8>)> {
        self.reentry.as_ref()?.next()
    }

    fn callbacks(&self) -> Option<BorrowedFd<'_>> {
        self.reentry.as_ref().map(|reentry| reentry.fd())
    }

    fn called_back(&mut self, number: u32, answer: &[u8]) {
        self.reentry.iter().for_each(|reentry| reentry.answer(number, answer));
    }

    fn call(&mut self, call: &[u8]) -> Asked {
        if let Err(error) = self.open() {
            return Asked::Now(Err(error));
        }
        let full = {
            let state = self.inner.state();
            let waits = state.class_pools.steps.get(&self.session).is_some_and(|step| step.calls > 0);
            let class_pool = state.class_pools.of.get(self.pool).filter(|_| !waits);
            class_pool.is_some_and(|class_pool| class_pool.blocked + 1 >= METHOD_WORKERS_MAX as usize)
        };
        if full {
            let reported = format!("{METHOD_WORKERS_MAX} methods of objects of pool '{}' wait for others", self.pool);
            return Asked::Now(Err(Code::ObjectsBusy.error(reported)));
        }
        let objects = Objects { inner: self.inner.clone() };
        let within = self.cluster.map(|_| self.job.within());
        match objects.call_of(self.session, self.pool, call, (within.is_some(), within)) {
            Ok(Answer::Now(answer)) => Asked::Now(Ok(answer)),
            Ok(Answer::Later(later, place)) => {
                self.inner.block(self.pool, &self.session);
                let (inner, pool, session) = (self.inner.clone(), self.pool.into(), self.session);
                Asked::Later(Box::new(Blocked { later, inner, pool, session, place }))
            }
            Err(error) => Asked::Now(Err(error)),
        }
    }
}

/// An answer for which a step waits; its thread does not count meanwhile.
struct Blocked {
    later: Box<dyn Later>,
    inner: Arc<Inner>,
    pool: Box<str>,
    session: Session,
    /// The object of a user class whose method was called.
    place: Option<Place>,
}

impl Later for Blocked {
    fn fd(&self) -> BorrowedFd<'_> {
        self.later.fd()
    }

    fn until(&self) -> Option<Instant> {
        self.later.until()
    }

    fn take(&mut self) -> Option<Result<Vec<u8>>> {
        self.later.take()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.inner.unblock(&self.pool, &self.session, self.place.as_ref());
    }
}

/// Workers for the methods of user classes, from now on.
pub(super) fn method_workers(namespace: &Namespace, environment: Environment) -> Arc<MethodWorkers> {
    // Steps call objects through their host calls, and not as runs do.
    Arc::new(MethodWorkers::new(namespace.clone(), Environment { objects: None, ..environment }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_through_any_of_the_objects_that_a_step_waits_for() {
        let mut pools = ClassPools::default();
        let place = |key: &str| Place::new(key, false);
        let session = |number: u8| [number; SESSION_BYTES];
        for (number, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
            pools.steps.insert(session(number), Running::default());
            pools.occupied.insert(place(key), session(number));
        }
        for (number, key) in [(1, "idle"), (1, "b"), (1, "c"), (2, "d"), (3, "b"), (3, "b")] {
            pools.waits(&session(number), place(key));
        }
        let circle = |pools: &ClassPools, from: u8, to: &str| {
            let found = pools.circle(&session(from), &place(to));
            found.map(|keys| keys.iter().map(|key| key.to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(circle(&pools, 4, "a").as_deref(), Some("a b d"));
        assert_eq!(circle(&pools, 4, "c").as_deref(), Some("c b d"));
        assert_eq!(circle(&pools, 2, "a").as_deref(), Some("a b"));
        assert_eq!((circle(&pools, 1, "d"), circle(&pools, 4, "idle")), (None, None));
        assert_eq!(circle(&pools, 4, "d").as_deref(), Some("d"));
        // Two calls of c wait for b; with one of them, it still waits.
        pools.waits_no_more(&session(3), &place("b"));
        assert_eq!(circle(&pools, 4, "c").as_deref(), Some("c b d"));
        pools.waits_no_more(&session(3), &place("b"));
        assert_eq!(circle(&pools, 4, "c"), None);
        // With a reentrant method, a circle exists that no call completes.
        pools.waits(&session(4), place("a"));
        assert_eq!(circle(&pools, 3, "a").as_deref(), Some("a c"));
    }
}
