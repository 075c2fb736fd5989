//! Shared objects that several hosts have: the state of the group `objects`, and the callers who wait for it here.
//!
//! ```text
//!  a call ──> a command of the group ── its order ──> applied on every host ──> the answer, where its caller waits
//!  a read ──> as of now in the group ── from the state here ──────────────────> the answer
//! ```
//!
//! Any host takes a call, not only the leader. A caller whose host is lost asks another one, under the same number: the answer is there as
//! well. Answers pass no gate: a majority has what they depend on.

mod steps;

use super::{
    Cluster, MAIN, Reply, Shared,
    driver::Input,
    groups::{Group, Then},
    locked, shown,
};
use crate::slot::Slot;
use millrace_entities::{Applied, Call, Called, Command, Replicated, Session, Shown, Within};
use millrace_group::{Action, Durability, Machine, OBJECTS_NAME};
use millrace_journal::Position;
use millrace_wire::{Code, Error, Result};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    task::Waker,
    time::{Duration, Instant},
};
pub(crate) use steps::Ring;

/// Bytes of answers that were not acknowledged, beyond which no further call is proposed here.
const ANSWERS_MAX_BYTES: usize = 64 << 20;
/// How long the command that ends a session may take until it is proposed again.
const ENDING: Duration = Duration::from_secs(5);

type Key = (Session, u64);

/// The objects of one group, and who waits for them here.
pub(super) struct GroupObjects {
    state: Mutex<State>,
    ring: Arc<Ring>,
}

#[derive(Default)]
struct State {
    replicated: Replicated,
    waiting: HashMap<Key, Vec<Weak<Slot>>>,
    /// Sessions whose clients are connected here.
    here: HashMap<Session, Here>,
    /// When a command of a session was last applied.
    heard: HashMap<Session, Instant>,
    /// Sessions whose end was proposed here, and when.
    ending: HashMap<Session, Instant>,
    /// Whether this host leads the group.
    leads: bool,
    /// The steps of objects of user classes, which this host runs as long as it leads.
    steps: steps::Due,
}

/// A session whose client is connected here.
struct Here {
    /// Until when it counts.
    until: Instant,
    /// It counts in any case.
    is_pinned: bool,
    /// When it was last proposed that its lease restarts.
    renewed: Instant,
    /// Whether the group has had it: if it has not any more, its lease has ended.
    joined: bool,
}

impl State {
    /// Gives an answer to everybody here who waits for that of a call.
    fn give(&mut self, key: &Key, answer: &Result<Called>) -> Vec<Waker> {
        let slots = self.waiting.remove(key).unwrap_or_default();
        let position = Position::default();
        let give = |slot: Weak<Slot>| slot.upgrade()?.give(answer.clone().map(|called| (called, position)));
        slots.into_iter().filter_map(give).collect()
    }

    fn settle(&mut self, applied: Applied) -> Vec<Waker> {
        let (now, mut wakers) = (Instant::now(), Vec::new());
        for session in applied.heard {
            self.heard.insert(session, now);
            self.here.entry(session).and_modify(|here| here.joined = true);
        }
        match applied.called {
            None | Some((_, _, Ok(Called::Waiting(_)))) => {}
            Some((session, number, called)) => wakers.extend(self.give(&(session, number), &called)),
        }
        if self.leads {
            self.steps.work.extend(applied.work);
        }
        for (session, number, called) in applied.ready {
            wakers.extend(self.give(&(session, number), &Ok(called)));
        }
        for session in applied.ended {
            self.heard.remove(&session);
            self.ending.remove(&session);
            let ended = Err(Code::SessionExpired.error("the session has ended"));
            let keys: Vec<Key> = self.waiting.keys().filter(|(of, _)| *of == session).copied().collect();
            keys.iter().for_each(|key| wakers.extend(self.give(key, &ended)));
        }
        wakers
    }

    /// The state of another host has taken the place of this one.
    fn restored(&mut self, replicated: Replicated) -> Vec<Waker> {
        self.replicated = replicated;
        self.steps = steps::Due::default();
        let now = Instant::now();
        self.heard = self.replicated.sessions().map(|(session, ..)| (*session, now)).collect();
        let keys: Vec<Key> = self.waiting.keys().copied().collect();
        let mut wakers = Vec::new();
        for (session, number) in keys {
            if let Some(called) = self.replicated.reply(&session, number) {
                wakers.extend(self.give(&(session, number), &Ok(called)));
            }
        }
        wakers
    }
}

impl GroupObjects {
    /// None yet. The ring says that steps may begin.
    pub fn new(ring: Arc<Ring>) -> Self {
        Self { state: Mutex::default(), ring }
    }

    /// A caller waits for the answer of a call.
    fn wait(&self, key: Key, slot: &Arc<Slot>) {
        locked(&self.state).waiting.entry(key).or_default().push(Arc::downgrade(slot));
    }

    /// Something was heard of a session whose client is connected here.
    fn hear(&self, session: Session, lease_ms: u64, pin: bool) {
        let now = Instant::now();
        let mut state = locked(&self.state);
        let joined = state.replicated.lease_of(&session).is_some();
        let new = || Here { until: now, is_pinned: false, renewed: now, joined };
        let here = state.here.entry(session).or_insert_with(new);
        here.until = here.until.max(now + Duration::from_millis(lease_ms));
        here.is_pinned |= pin;
    }

    /// Whether the group is known to have had a session.
    fn has_joined(&self, session: &Session) -> bool {
        let state = locked(&self.state);
        state.replicated.lease_of(session).is_some() || state.here.get(session).is_some_and(|here| here.joined)
    }

    fn peek(&self, call: &Call<'_>) -> Option<Called> {
        locked(&self.state).replicated.peek(call)
    }

    fn check(&self) -> Result<()> {
        let bytes = locked(&self.state).replicated.space().answers_bytes();
        if bytes <= ANSWERS_MAX_BYTES {
            return Ok(());
        }
        Err(Code::ObjectsBusy.error(format!("{bytes} bytes of answers of all sessions are not acknowledged")))
    }

    /// A command of a call was applied. It gave its answer then, unless it was applied in a snapshot or waits.
    fn look(&self, key: Key, slot: &Arc<Slot>) {
        let mut state = locked(&self.state);
        let is_same = |known: &Weak<Slot>| known.as_ptr() == Arc::as_ptr(slot);
        let waits = state.waiting.get(&key).is_some_and(|slots| slots.iter().any(is_same));
        if !waits || state.replicated.space().is_waiting(&key.0, key.1) {
            return;
        }
        let answer = state.replicated.reply(&key.0, key.1);
        let gone = || Code::GroupUnavailable.error("the call was applied with a snapshot of another host; ask again");
        let wakers = state.give(&key, &answer.ok_or_else(gone));
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What is to be proposed for sessions: leases that restart, because their clients are here, and, where the group is led, leases
    /// that have ended.
    pub fn upkeep(&self, leads: bool) -> Vec<Vec<u8>> {
        let now = Instant::now();
        let mut state = locked(&self.state);
        let State { replicated, waiting, here, heard, ending, leads: led, steps } = &mut *state;
        waiting.retain(|_, slots| {
            slots.retain(|slot| slot.strong_count() > 0);
            !slots.is_empty()
        });
        for (session, _) in waiting.keys() {
            here.entry(*session).and_modify(|here| here.until = here.until.max(now + ENDING));
        }
        here.retain(|_, here| here.is_pinned || here.until > now);
        if leads && !std::mem::replace(led, leads) {
            // Requests that other hosts received are not known here.
            heard.values_mut().for_each(|heard| *heard = now);
            steps.all(replicated);
        }
        *led = leads;
        if steps.again() {
            self.ring.ring();
        }
        let (mut renewed, mut ended) = (Vec::new(), Vec::new());
        for (session, last, lease_ms) in replicated.sessions() {
            let lease = Duration::from_millis(lease_ms);
            let heard = *heard.entry(*session).or_insert(now);
            if let Some(here) = here.get_mut(session) {
                here.joined = true;
                if now.duration_since(heard.max(here.renewed)) >= lease / 3 {
                    here.renewed = now;
                    renewed.push((*session, lease_ms));
                }
            } else if leads && now.duration_since(heard) > lease {
                let proposed = ending.get(session).is_some_and(|at| now.duration_since(*at) < ENDING);
                if !proposed {
                    ending.insert(*session, now);
                    ended.push((*session, last));
                }
            }
        }
        ending.retain(|session, _| replicated.lease_of(session).is_some());
        let of = |sessions: Vec<(Session, u64)>, command: fn(Vec<(Session, u64)>) -> Command<'static>| {
            (!sessions.is_empty()).then(|| command(sessions).encode())
        };
        [of(renewed, Command::Renew), of(ended, Command::End)].into_iter().flatten().collect()
    }
}

/// The objects as the group's commands change them.
pub(super) struct OfGroup(pub Arc<GroupObjects>);

impl Machine for OfGroup {
    fn apply(&mut self, command: &[u8]) {
        let mut state = locked(&self.0.state);
        let applied = state.replicated.apply(command);
        let wakers = state.settle(applied);
        let has_work = !state.steps.work.is_empty();
        drop(state);
        if has_work {
            self.0.ring.ring();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn encode(&self) -> Vec<u8> {
        locked(&self.0.state).replicated.encode()
    }

    fn check(&self, bytes: &[u8]) -> Result<()> {
        let damaged =
            |error: Error| Code::GroupLogDamaged.error(format!("the objects of a snapshot: {}", error.detail()));
        Replicated::decode(bytes).map(drop).map_err(damaged)
    }

    fn restore(&mut self, bytes: &[u8]) {
        // They were checked.
        let Ok(replicated) = Replicated::decode(bytes) else { return };
        let wakers = locked(&self.0.state).restored(replicated);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A call on its way.
struct Wanted {
    key: Key,
    copies: u8,
    /// Whether the group may be made for it.
    creates: bool,
    reads: bool,
    command: Vec<u8>,
    slot: Arc<Slot>,
}

impl Wanted {
    fn give(&self, answer: Result<Called>) {
        let waker = self.slot.give(answer.map(|called| (called, Position::default())));
        waker.into_iter().for_each(Waker::wake);
    }
}

/// How many hosts vote if a majority of them has to have a copy although all but one of these are lost.
fn voters(copies: u8) -> usize {
    2 * usize::from(copies) - 1
}

impl Shared {
    /// The group that has the objects, if it is here.
    fn objects(&self) -> Option<Arc<Group>> {
        let id = locked(&self.main.replica).topics().directory().group(OBJECTS_NAME)?.id;
        self.group(id)
    }

    /// Whether objects can have this number of copies.
    fn check_copies(&self, copies: u8) -> Result<()> {
        let replica = locked(&self.main.replica);
        let (topics, wanted) = (replica.topics(), voters(copies));
        let (have, what) = match topics.directory().group(OBJECTS_NAME) {
            Some(group) => (group.hosts.len(), "vote in the group 'objects'"),
            None => (topics.members().count(), "are in the cluster"),
        };
        if have >= wanted {
            return Ok(());
        }
        let can = have.div_ceil(2).max(1);
        let detail = format!("rf={copies} needs {wanted} hosts; {have} {what}, enough for rf={can}");
        Err(Code::PersistenceUnsupported.error(detail))
    }

    /// The same as of now: a host that was started just now may know the cluster as it was before.
    fn check_copies_now(self: &Arc<Self>, copies: u8, then: impl FnOnce(Result<()>) + Send + 'static) {
        if self.check_copies(copies).is_ok() {
            return then(Ok(()));
        }
        let shared = self.clone();
        let reply = Box::new(move |fresh: Result<()>| then(fresh.and_then(|()| shared.check_copies(copies))));
        self.ask(Input::Read { group: MAIN, reply });
    }

    /// Finds the group that has the objects, or makes it.
    fn find_objects(self: &Arc<Self>, copies: u8, creates: bool, then: Then) {
        let shared = self.clone();
        let found = move |found: Result<u32>| match found {
            Ok(id) => {
                let checking = shared.clone();
                let attended = move |group: Result<Arc<Group>>| match group {
                    Ok(group) => checking.check_copies_now(copies, move |checked| then(checked.map(|()| group))),
                    Err(error) => then(Err(error)),
                };
                shared.attend(id, Box::new(attended));
            }
            Err(error) if error.code() == Code::GroupNotFound && creates => {
                let next = shared.clone();
                shared.check_copies_now(copies, move |checked| match checked {
                    Ok(()) => next.make_objects(copies, then),
                    Err(error) => then(Err(error)),
                });
            }
            Err(error) if error.code() == Code::GroupNotFound => {
                then(Err(Code::ObjectNotFound.error("the cluster has no replicated objects")));
            }
            Err(error) => then(Err(error)),
        };
        self.named(OBJECTS_NAME, Box::new(found));
    }

    /// Makes the group that has the objects.
    fn make_objects(self: &Arc<Self>, copies: u8, then: Then) {
        let size = voters(copies) as u64;
        let action = Action::Group { name: OBJECTS_NAME.to_owned(), hosts: Vec::new(), size };
        let next = self.clone();
        let made: Reply<u64> = Box::new(move |made| match made {
            // Another caller may have created it meanwhile, with another size.
            Err(error) if error.code() != Code::GroupExists => then(Err(error)),
            _ => next.find_objects(copies, false, then),
        });
        self.submit(MAIN, action, Vec::new(), Durability::Quorum, made);
    }

    fn call_object(self: &Arc<Self>, wanted: Wanted, lease_ms: u64, pin: bool) {
        let shared = self.clone();
        let (copies, creates) = (wanted.copies, wanted.creates);
        let found = move |group: Result<Arc<Group>>| match group.and_then(|group| group.objects.check().map(|()| group))
        {
            Ok(group) => {
                group.objects.hear(wanted.key.0, lease_ms, pin);
                if wanted.reads { shared.read_object(group, wanted) } else { shared.propose(&group, wanted) }
            }
            Err(error) => wanted.give(Err(error)),
        };
        self.find_objects(copies, creates, Box::new(found));
    }

    /// Reads what is there here once that is as of now, or of later.
    fn read_object(self: &Arc<Self>, group: Arc<Group>, wanted: Wanted) {
        let (shared, id) = (self.clone(), group.id);
        let fresh = move |fresh: Result<()>| {
            if let Err(error) = fresh {
                return wanted.give(Err(error));
            }
            let found = match Command::decode(&wanted.command) {
                Ok(Command::Call { call, .. }) => group.objects.peek(&call),
                _ => None,
            };
            match found {
                Some(called) => wanted.give(Ok(called)),
                // It is to be made, or refused.
                None => shared.propose(&group, wanted),
            }
        };
        self.ask(Input::Read { group: id, reply: Box::new(fresh) });
    }

    fn propose(self: &Arc<Self>, group: &Arc<Group>, mut wanted: Wanted) {
        group.objects.wait(wanted.key, &wanted.slot);
        let (of, command) = (group.clone(), std::mem::take(&mut wanted.command));
        let settled = move |settled: Result<u64>| match settled {
            Ok(_) => of.objects.look(wanted.key, &wanted.slot),
            Err(error) => wanted.give(Err(error)),
        };
        self.submit(group.id, Action::Machine, command, Durability::Quorum, Box::new(settled));
    }
}

/// How the replicated objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// How many hosts have a copy at least, whichever majority is left.
    pub rf: usize,
    /// The host that leads their group, as far as is known here.
    pub leader: Option<String>,
}

impl Cluster {
    /// Calls a replicated object; the answer comes to the slot. `lease_ms` is that of the caller's session, if
    /// that is open on this host; with `pin` the session counts as heard until it is released. `within` is the
    /// step that makes the call, if one of an object of the group does.
    pub(crate) fn call_object(
        &self,
        call: &Call<'_>,
        within: Option<Within<'_>>,
        lease_ms: Option<u64>,
        pin: bool,
        slot: &Arc<Slot>,
    ) {
        let joined = self.shared.objects().is_some_and(|group| group.objects.has_joined(&call.session));
        // A session that the group had and has not any more has ended: it is not opened again.
        let open = lease_ms.filter(|_| !joined);
        let token = self.shared.namespace.journal().growing_clock().get();
        let wanted = Wanted {
            key: (call.session, call.number),
            copies: call.flags.copies,
            creates: !call.flags.must_exist && call.incarnation == 0,
            reads: call.method.reads && !call.method.waits,
            command: Command::Call { token, open, call: *call, within }.encode(),
            slot: slot.clone(),
        };
        self.shared.call_object(wanted, lease_ms.unwrap_or_default(), pin);
    }

    /// Something was heard of a session whose client is connected here; whether the group of the objects has it open.
    pub(crate) fn hear_session(&self, session: Session, lease_ms: u64) -> bool {
        let Some(group) = self.shared.objects().filter(|group| group.objects.has_joined(&session)) else {
            return false;
        };
        group.objects.hear(session, lease_ms, false);
        let state = locked(&group.objects.state);
        state.replicated.lease_of(&session).is_some()
    }

    /// A session that was pinned lasts so much longer.
    pub(crate) fn release_session(&self, session: &Session, lease_ms: u64) {
        let Some(group) = self.shared.objects() else { return };
        let mut state = locked(&group.objects.state);
        if let Some(here) = state.here.get_mut(session) {
            here.is_pinned = false;
            here.until = Instant::now() + Duration::from_millis(lease_ms);
        }
    }

    /// Ends the waiting calls of a session whose run has finished: an item that a thread left behind would get is not lost.
    pub(crate) fn give_up_all(&self, session: &Session) {
        let Some(group) = self.shared.objects() else { return };
        let commands = locked(&group.objects.state).replicated.giving_up(session);
        for command in commands {
            // If it is lost, the lease ends the session.
            self.shared.submit(group.id, Action::Machine, command, Durability::Quorum, Box::new(drop));
        }
    }

    /// The owner of a session has ended well: its permits stay acquired.
    pub(crate) fn leave_permits(&self, session: Session) {
        let Some(group) = self.shared.objects().filter(|group| group.objects.has_joined(&session)) else { return };
        let command = Command::Leave(vec![session]).encode();
        self.shared.submit(group.id, Action::Machine, command, Durability::Quorum, Box::new(drop));
    }

    /// A client has ended its session.
    pub(crate) fn end_session(&self, session: Session) {
        self.leave_permits(session);
        let Some(group) = self.shared.objects().filter(|group| group.objects.has_joined(&session)) else { return };
        locked(&group.objects.state).here.remove(&session);
        // If it is lost, the lease ends the session.
        let command = Command::End(vec![(session, 0)]).encode();
        self.shared.submit(group.id, Action::Machine, command, Durability::Quorum, Box::new(drop));
    }

    /// Replicated objects by key, from behind this one on, as far as this host knows, and how they are kept.
    pub fn show_objects(&self, above: &str, most: usize) -> (Vec<Shown>, Option<Copies>) {
        let Some(group) = self.shared.objects() else { return (Vec::new(), None) };
        let shown = locked(&group.objects.state).replicated.space().show(above, most);
        (shown, Some(copies(&group)))
    }

    /// One of them.
    pub fn show_object(&self, key: &str) -> Option<(Shown, Copies)> {
        let group = self.shared.objects()?;
        let shown = locked(&group.objects.state).replicated.space().show_one(key)?;
        Some((shown, copies(&group)))
    }
}

fn copies(group: &Group) -> Copies {
    let replica = locked(&group.replica);
    let (voters, _) = replica.replicas();
    Copies { rf: voters.len().div_ceil(2), leader: Some(replica.leader()).filter(|leader| *leader != 0).map(shown) }
}
