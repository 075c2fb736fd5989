//! The sessions of one namespace, and the feeder: it follows the journal and hands sessions the positions of the records that their filters
//! match. The sessions read the records themselves, with the rights of their client and through the gate.

use super::{
    SESSIONS_MAX, SESSIONS_OF_ONE_MAX,
    saving::{SavedWill, group_row, random_name},
};
use crate::server::tasks;
use futures_util::task::AtomicWaker;
use millrace_documents::MqttRefusedDoc;
use millrace_mqtt::{Granted, Group, IN_FLIGHT_MAX, Rules, Session, Shares, Trie, filter::shared, packet::Qos};
use millrace_node::{Log, Name, Position, Served, token::Principal};
use millrace_wire::{Code, Result};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, OnceCell},
    task::yield_now,
    time::{sleep, timeout},
};

/// Entries of the journal that the feeder looks at before others get their turn.
const FEED_ENTRIES: usize = 1024;
/// The pause after an entry that cannot be read.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// How long a connection that takes over a session waits for the other one, whose last appends may be in progress.
const TAKE_OVER_PATIENCE: Duration = Duration::from_secs(15);
/// Messages that were not appended, of which `why` tells.
const REFUSED_MAX: usize = 64;
/// How often sessions that have expired are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Sessions and counters of all namespaces of a host.
#[derive(Default)]
pub(crate) struct Mqtt {
    hubs: Mutex<HashMap<Name, Arc<Hub>>>,
    /// Messages of quality 0 that were not appended.
    pub dropped: AtomicU64,
    /// Packets from clients.
    pub packets: AtomicU64,
}

impl Mqtt {
    /// The sessions of a namespace.
    pub(super) fn hub(&self, served: &Served) -> Arc<Hub> {
        let mut hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.entry(served.name().clone()).or_insert_with(|| Arc::new(Hub::new(served.clone()))).clone()
    }
}

/// Whose session it is: no client continues the session of another principal, whatever id it gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub principal: String,
    pub client: String,
}

impl Key {
    pub fn new(principal: &Principal, client: &str) -> Self {
        Self { principal: principal.to_string(), client: client.into() }
    }

    pub fn client(&self) -> &str {
        &self.client
    }
}

/// The sessions of a namespace.
pub(super) struct Hub {
    pub(super) served: Served,
    state: Mutex<State>,
    /// What was saved by a host before this one is read.
    pub(super) restored: OnceCell<()>,
}

pub(super) struct State {
    rules: Arc<Rules>,
    /// The version of the rules.
    version: u64,
    /// The filters of all sessions, and from which position on each one counts.
    trie: Trie<Position>,
    pub(super) slots: HashMap<u64, Arc<Slot>>,
    /// Shared subscriptions, by their numbers, which slots do not have.
    pub(super) groups: HashMap<u64, Sharing>,
    group_numbers: HashMap<(String, String), u64>,
    keys: HashMap<Key, u64>,
    /// How many sessions each principal has.
    shares: Shares,
    last: u64,
    /// Logs of records that were handed over.
    pub(super) logs: HashMap<u32, Log>,
    /// Up to where the feeder has handed records over, once it runs.
    pub(super) fed: Option<Position>,
    /// Keys of what is saved and no longer needed.
    pub(super) gone: Vec<Vec<u8>>,
    /// Wills of clients whose host died.
    pub(super) wills: Vec<(Key, SavedWill)>,
    /// The last messages that were not appended.
    pub(super) refused: VecDeque<MqttRefusedDoc>,
    swept: Instant,
}

/// A shared subscription of one principal.
pub(super) struct Sharing {
    pub group: Group,
    /// The principal, and the filter with the name of the group.
    pub key: (String, String),
    /// Its key where it is saved.
    pub row: Vec<u8>,
    /// It differs from what is saved.
    pub dirty: bool,
}

/// A record that a member of a group has taken.
pub(super) struct SharedRecord {
    /// The number of the group.
    pub group: u64,
    /// The filter with the name of the group.
    pub filter: String,
    pub log: u32,
    pub seqno: u64,
}

/// A session's place.
pub(super) struct Slot {
    pub number: u64,
    /// Its name where it is saved.
    pub id: String,
    key: Key,
    inner: Mutex<Inner>,
    /// It differs from what is saved.
    pub dirty: AtomicBool,
    /// Wakes the connection.
    pub waker: AtomicWaker,
    released: Notify,
    /// Told when a connection takes it.
    pub taken: Notify,
}

pub(super) struct Inner {
    pub session: Session,
    /// Who has it.
    held: Held,
    /// How long it is kept without a connection.
    pub expiry: Duration,
    /// It is saved.
    pub saved: bool,
    /// The groups that it belongs to.
    pub groups: Vec<u64>,
    /// How many messages its client has unacknowledged at most.
    receive_max: usize,
    /// Whether its connection reads records now: not while the client takes none.
    is_able: bool,
    /// Its client has begun another session in its place.
    is_over: bool,
}

enum Held {
    /// A connection.
    Connected,
    /// A connection that has to end, because another one waits for the session.
    Asked,
    /// Nobody, since then.
    Free(Instant),
}

impl Inner {
    /// For how long it has had no connection.
    pub fn away(&self) -> Option<Duration> {
        match self.held {
            Held::Free(since) => Some(since.elapsed()),
            _ => None,
        }
    }

    /// How many messages its client may have unacknowledged.
    pub fn in_flight_max(&self) -> usize {
        self.receive_max.min(IN_FLIGHT_MAX)
    }

    /// Whether its connection reads no records now.
    pub fn is_paused(&self) -> bool {
        !self.is_able
    }
}

impl Slot {
    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the session.
    pub fn with<R>(&self, work: impl FnOnce(&mut Session) -> R) -> R {
        let changed = work(&mut self.inner().session);
        self.dirty.store(true, Ordering::Release);
        changed
    }

    /// Looks at the session.
    pub fn see<R>(&self, look: impl FnOnce(&Session) -> R) -> R {
        look(&self.inner().session)
    }

    /// Whether it outlives its connection, and the host.
    pub fn is_kept(&self) -> bool {
        !self.inner().expiry.is_zero()
    }

    /// Whether the connection that has it has to end.
    pub fn is_asked_for(&self) -> bool {
        matches!(self.inner().held, Held::Asked)
    }

    /// Whether no connection has it.
    pub fn is_free(&self) -> bool {
        matches!(self.inner().held, Held::Free(_))
    }

    /// Whether its client has begun another session in its place.
    pub fn is_over(&self) -> bool {
        self.inner().is_over
    }

    /// It is kept for this long after its connection.
    pub fn set_expiry(&self, expiry: Duration) {
        self.inner().expiry = expiry;
        self.dirty.store(true, Ordering::Release);
    }

    pub fn expiry(&self) -> Duration {
        self.inner().expiry
    }

    /// Its client has at most so many messages unacknowledged.
    pub fn set_receive_max(&self, receive_max: usize) {
        let mut inner = self.inner();
        (inner.receive_max, inner.is_able) = (receive_max, true);
    }

    /// Whether a connection has it, and may send another message above quality 0.
    fn has_room(&self) -> bool {
        let inner = self.inner();
        matches!(inner.held, Held::Connected) && inner.is_able && inner.session.room(inner.receive_max) > 0
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Takes it, to begin another session in its place or to continue it, unless a connection has it, which then has to end.
    fn take(&self, clean: bool, expiry: Duration) -> bool {
        let mut inner = self.inner();
        let free = matches!(inner.held, Held::Free(_));
        inner.held = if free { Held::Connected } else { Held::Asked };
        if free {
            (inner.expiry, inner.is_over) = (expiry, clean);
            self.dirty.store(true, Ordering::Release);
            self.taken.notify_waiters();
        } else {
            self.waker.wake();
        }
        free
    }

    fn has_expired(&self) -> bool {
        let inner = self.inner();
        matches!(inner.held, Held::Free(since) if since.elapsed() >= inner.expiry)
    }
}

impl Hub {
    pub fn new(served: Served) -> Self {
        let state = State {
            rules: Arc::default(),
            version: 0,
            trie: Trie::default(),
            slots: HashMap::new(),
            groups: HashMap::new(),
            group_numbers: HashMap::new(),
            keys: HashMap::new(),
            shares: Shares::new(SESSIONS_MAX, SESSIONS_OF_ONE_MAX),
            last: 0,
            logs: HashMap::new(),
            fed: None,
            gone: Vec::new(),
            wills: Vec::new(),
            refused: VecDeque::new(),
            swept: Instant::now(),
        };
        Self { served, state: Mutex::new(state), restored: OnceCell::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules as they are now.
    pub fn rules(&self) -> Arc<Rules> {
        let mut state = self.state();
        self.refresh(&mut state);
        state.rules.clone()
    }

    fn refresh(&self, state: &mut State) {
        match self.served.mqtt_rules(state.version) {
            Ok(None) => {}
            Ok(Some((version, rules))) => (state.version, state.rules) = (version, Arc::new(rules)),
            // Those before stay.
            Err(error) => tracing::warn!(
                target: "requests", protocol = "mqtt", code = error.code().id(), "{}", error.detail()
            ),
        }
    }

    /// The session of a client, and whether it was there before.
    pub async fn open(&self, key: &Key, clean: bool, expiry: Duration) -> Result<(Arc<Slot>, bool)> {
        let until = Instant::now() + TAKE_OVER_PATIENCE;
        loop {
            let there = {
                let mut state = self.state();
                state.sweep(false);
                state.is_back(key);
                let there = state.keys.get(key).and_then(|number| state.slots.get(number)).cloned();
                if let Some(expired) = there.as_ref().filter(|slot| slot.has_expired()) {
                    state.remove(expired);
                }
                match there.filter(|slot| state.slots.contains_key(&slot.number)) {
                    None => return state.begin(key, expiry).map(|slot| (slot, false)),
                    Some(slot) => slot,
                }
            };
            let holder = there.clone();
            let released = holder.released.notified();
            if there.take(clean, expiry) {
                let mut state = self.state();
                if clean || !state.slots.contains_key(&there.number) {
                    state.remove(&there);
                    return state.begin(key, expiry).map(|slot| (slot, false));
                }
                return Ok((there, true));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let error = "the connection that has the session has not ended yet";
                return Err(Code::MqttTakenOver.error(error));
            }
            // It may be released before this waits for it.
            let _ = timeout(left.min(Duration::from_millis(200)), released).await;
        }
    }

    /// Gives a session back at the end of its connection.
    pub fn release(&self, slot: &Arc<Slot>) {
        let mut state = self.state();
        let mut inner = slot.inner();
        inner.held = Held::Free(Instant::now());
        let (ends, abandoned, groups) = (inner.expiry.is_zero(), inner.session.abandon(), inner.groups.clone());
        slot.dirty.store(true, Ordering::Release);
        drop(inner);
        state.give_back(&abandoned);
        state.pass_on(&groups);
        if ends {
            state.remove(slot);
        }
        drop(state);
        slot.released.notify_waiters();
    }

    /// Subscribes a session; false if it has too many filters. The records that are appended from now on are handed over.
    pub fn subscribe(self: &Arc<Self>, slot: &Arc<Slot>, filter: &str, granted: Granted) -> Option<bool> {
        let mut state = self.state();
        let new = {
            let mut inner = slot.inner();
            let new = inner.session.filters().all(|(there, _)| there != filter);
            if !inner.session.subscribe(filter, granted) {
                return None;
            }
            slot.dirty.store(true, Ordering::Release);
            new
        };
        if new {
            let tail = self.served.tail();
            match shared(filter) {
                Ok(Some((_, within))) => state.join(slot, filter, within, tail),
                _ => drop(state.trie.insert(filter, slot.number, tail)),
            }
            self.feed_from(&mut state, tail);
        }
        Some(new)
    }

    /// Starts the feeder here, unless it runs.
    pub(super) fn feed_from(self: &Arc<Self>, state: &mut State, from: Position) {
        if state.fed.is_none() {
            state.fed = Some(from);
            tasks::vital_here("MQTT feeder", feed(self.clone(), from));
        }
    }

    /// Whether the session had the filter, which it has no longer.
    pub fn unsubscribe(&self, slot: &Slot, filter: &str) -> bool {
        let mut state = self.state();
        match shared(filter) {
            Ok(Some((_, within))) => state.leave(slot, filter, within),
            _ => drop(state.trie.remove(filter, slot.number)),
        }
        slot.with(|session| session.unsubscribe(filter))
    }

    /// Takes a record of a group that the session belongs to. The next member is woken, if there are more.
    pub fn take_shared(&self, slot: &Slot) -> Option<SharedRecord> {
        let groups = slot.inner().groups.clone();
        if groups.is_empty() {
            return None;
        }
        let mut state = self.state();
        let State { groups: all, slots, .. } = &mut *state;
        for number in groups {
            let Some(sharing) = all.get_mut(&number) else { continue };
            if let Some((log, seqno)) = sharing.group.take() {
                sharing.dirty = true;
                if sharing.group.has_pending() {
                    wake_next(&mut sharing.group, slots);
                }
                return Some(SharedRecord { group: number, filter: sharing.key.1.clone(), log, seqno });
            }
        }
        None
    }

    /// Whether the connection of a session reads records now. If it does not, those of its groups are for other members.
    pub fn is_able(&self, slot: &Slot, is_able: bool) {
        let groups = {
            let mut inner = slot.inner();
            inner.is_able = is_able;
            if inner.groups.is_empty() || (is_able && inner.session.room(inner.receive_max) > 0) {
                return;
            }
            inner.groups.clone()
        };
        self.state().pass_on(&groups);
    }

    /// A member sends a record that it took: the id of its packet, 0 at quality 0. None if it has no room; then others get it.
    pub fn send_shared(&self, slot: &Slot, (group, log, seqno): (u64, u32, u64), qos: Qos) -> Option<u16> {
        let mut state = self.state();
        let id = match qos {
            Qos::AtMostOnce => Some(0),
            _ => slot.with(|session| session.send(log, seqno, qos, Some(group))),
        };
        match id {
            Some(_) => state.drop_taken(group, log, seqno),
            None => state.give_back(&[(group, log, seqno)]),
        }
        id
    }

    /// A record that a member took cannot be sent.
    pub fn drop_shared(&self, group: u64, log: u32, seqno: u64) {
        self.state().drop_taken(group, log, seqno);
    }

    /// A member has not sent a record that it took.
    pub fn give_back(&self, group: u64, log: u32, seqno: u64) {
        self.state().give_back(&[(group, log, seqno)]);
    }

    /// A message of a client was not appended.
    pub fn note_refused(&self, refused: MqttRefusedDoc) {
        let mut state = self.state();
        if state.refused.len() >= REFUSED_MAX {
            state.refused.pop_front();
        }
        state.refused.push_back(refused);
    }

    /// A log of records that were handed over.
    pub fn log(&self, id: u32) -> Option<Log> {
        self.state().logs.get(&id).cloned()
    }

    /// A log whose records a session is about to send.
    pub fn know(&self, log: &Log) {
        self.state().logs.entry(log.id()).or_insert_with(|| log.clone());
    }

    /// Hands records to the sessions.
    fn hand(&self, records: &[(Log, u64, Position)], next: Position) {
        let mut woken: HashMap<u64, Arc<Slot>> = HashMap::new();
        let mut state = self.state();
        state.sweep(false);
        self.refresh(&mut state);
        state.fed = Some(next);
        let State { rules, trie, slots, groups, logs, .. } = &mut *state;
        let mut known: Option<(u32, Option<String>)> = None;
        for (log, seqno, at) in records {
            if known.as_ref().is_none_or(|(id, _)| *id != log.id()) {
                known = Some((log.id(), rules.topic_of(log.name())));
            }
            let Some((_, Some(topic))) = &known else { continue };
            let mut matched = BTreeSet::new();
            trie.visit(topic, |who, since| {
                if at >= since {
                    matched.insert(who);
                }
            });
            if !matched.is_empty() {
                logs.entry(log.id()).or_insert_with(|| log.clone());
            }
            for who in matched {
                if let Some(slot) = slots.get(&who) {
                    slot.with(|session| session.hand(log.id(), *seqno));
                    woken.entry(who).or_insert_with(|| slot.clone());
                } else if let Some(sharing) = groups.get_mut(&who) {
                    sharing.group.hand(log.id(), *seqno);
                    sharing.dirty = true;
                    wake_next(&mut sharing.group, slots);
                }
            }
        }
        drop(state);
        woken.values().for_each(|slot| slot.waker.wake());
    }
}

/// Wakes the member whose turn it is, of those that are connected and may send more. If there is none, the next one that may takes it.
fn wake_next(group: &mut Group, slots: &HashMap<u64, Arc<Slot>>) {
    group.turn(|who| {
        let able = slots.get(&who).filter(|slot| slot.has_room());
        able.iter().for_each(|slot| slot.waker.wake());
        able.is_some()
    });
}

impl State {
    /// A session joins a shared subscription, which begins now if it is the first.
    fn join(&mut self, slot: &Slot, filter: &str, within: &str, tail: Position) {
        let key = (slot.key.principal.clone(), filter.to_owned());
        let number = match self.group_numbers.get(&key) {
            Some(number) => *number,
            None => self.begin_group(key, Group::default(), within, tail),
        };
        if let Some(sharing) = self.groups.get_mut(&number) {
            sharing.group.join(slot.number);
        }
        slot.inner().groups.push(number);
    }

    /// Begins a group: its number.
    pub(super) fn begin_group(&mut self, key: (String, String), group: Group, within: &str, since: Position) -> u64 {
        self.last += 1;
        let row = group_row(&random_name().unwrap_or_else(|_| self.last.to_string()));
        self.groups.insert(self.last, Sharing { group, key: key.clone(), row, dirty: true });
        self.group_numbers.insert(key, self.last);
        self.trie.insert(within, self.last, since);
        self.last
    }

    /// A client is back: what it does from now on has a will of its own.
    fn is_back(&mut self, key: &Key) {
        let Self { wills, gone, .. } = self;
        wills.retain(|(of, will)| {
            let stays = of != key;
            if !stays {
                gone.push(will.row.clone());
            }
            stays
        });
    }

    /// Ends groups without members.
    pub(super) fn end_empty_groups(&mut self) {
        let Self { groups, group_numbers, trie, gone, .. } = self;
        groups.retain(|number, sharing| {
            let stays = sharing.group.members().next().is_some();
            if !stays {
                gone.push(std::mem::take(&mut sharing.row));
                group_numbers.remove(&sharing.key);
                if let Ok(Some((_, within))) = shared(&sharing.key.1) {
                    trie.remove(within, *number);
                }
            }
            stays
        });
    }

    fn leave(&mut self, slot: &Slot, filter: &str, within: &str) {
        let key = (slot.key.principal.clone(), filter.to_owned());
        let Some(number) = self.group_numbers.get(&key).copied() else { return };
        slot.inner().groups.retain(|group| *group != number);
        if self.groups.get_mut(&number).is_some_and(|sharing| sharing.group.leave(slot.number)) {
            self.gone.extend(self.groups.remove(&number).map(|sharing| sharing.row));
            self.group_numbers.remove(&key);
            self.trie.remove(within, number);
        }
    }

    /// Wakes another member of each of these groups that has records.
    fn pass_on(&mut self, groups: &[u64]) {
        let Self { groups: all, slots, .. } = self;
        for number in groups {
            if let Some(sharing) = all.get_mut(number).filter(|sharing| sharing.group.has_pending()) {
                wake_next(&mut sharing.group, slots);
            }
        }
    }

    /// What a member held goes to others.
    pub(super) fn give_back(&mut self, taken: &[(u64, u32, u64)]) {
        let Self { groups, slots, .. } = self;
        for (group, log, seqno) in taken {
            if let Some(sharing) = groups.get_mut(group) {
                sharing.group.give_back(*log, *seqno);
                sharing.dirty = true;
                wake_next(&mut sharing.group, slots);
            }
        }
    }

    fn drop_taken(&mut self, group: u64, log: u32, seqno: u64) {
        if let Some(sharing) = self.groups.get_mut(&group) {
            sharing.group.done(log, seqno);
            sharing.dirty = true;
        }
    }

    fn begin(&mut self, key: &Key, expiry: Duration) -> Result<Arc<Slot>> {
        self.begin_with(key, random_name()?, Session::default(), expiry, Held::Connected)
    }

    /// Begins with a session that was saved, which has no filters yet here.
    pub(super) fn restore(&mut self, key: &Key, id: String, session: Session, expiry: Duration) -> Result<Arc<Slot>> {
        self.begin_with(key, id, session, expiry, Held::Free(Instant::now()))
    }

    /// A session that was saved has this filter.
    pub(super) fn restore_filter(&mut self, slot: &Slot, filter: &str, since: Position) {
        match shared(filter) {
            Ok(Some((_, within))) => self.join(slot, filter, within, since),
            _ => drop(self.trie.insert(filter, slot.number, since)),
        }
    }

    fn begin_with(
        &mut self,
        key: &Key,
        id: String,
        session: Session,
        expiry: Duration,
        held: Held,
    ) -> Result<Arc<Slot>> {
        if self.shares.take(&key.principal).is_err() {
            self.sweep(true);
            self.shares.take(&key.principal)?;
        }
        self.last += 1;
        let inner = Mutex::new(Inner {
            saved: matches!(held, Held::Free(_)),
            session,
            held,
            expiry,
            groups: Vec::new(),
            receive_max: IN_FLIGHT_MAX,
            is_able: true,
            is_over: false,
        });
        let (number, key) = (self.last, key.clone());
        let slot = Arc::new(Slot {
            number,
            id,
            key,
            inner,
            dirty: AtomicBool::new(true),
            waker: AtomicWaker::new(),
            released: Notify::new(),
            taken: Notify::new(),
        });
        self.keys.insert(slot.key.clone(), number);
        self.slots.insert(number, slot.clone());
        Ok(slot)
    }

    fn remove(&mut self, slot: &Slot) {
        let filters: Vec<String> = slot.with(|session| session.filters().map(|(filter, _)| filter.into()).collect());
        if self.slots.remove(&slot.number).is_some() {
            self.shares.give_back(&slot.key.principal);
            self.gone.extend(slot.rows());
        }
        let abandoned = slot.with(Session::abandon);
        for filter in filters {
            match shared(&filter) {
                Ok(Some((_, within))) => self.leave(slot, &filter, within),
                _ => drop(self.trie.remove(&filter, slot.number)),
            }
        }
        self.give_back(&abandoned);
        if self.keys.get(&slot.key) == Some(&slot.number) {
            self.keys.remove(&slot.key);
        }
    }

    /// Ends sessions that have expired, and forgets logs that were removed.
    fn sweep(&mut self, now: bool) {
        if !now && self.swept.elapsed() < SWEEP_EVERY {
            return;
        }
        self.swept = Instant::now();
        let expired: Vec<Arc<Slot>> = self.slots.values().filter(|slot| slot.has_expired()).cloned().collect();
        expired.iter().for_each(|slot| self.remove(slot));
        self.logs.retain(|_, log| log.check_exists().is_ok());
    }
}

/// Follows the journal for as long as the host runs.
async fn feed(hub: Arc<Hub>, mut position: Position) {
    loop {
        hub.served.advance(position).await;
        match hub.served.appended(position, FEED_ENTRIES) {
            Ok(appended) => {
                if appended.gap {
                    tracing::warn!(
                        target: "requests",
                        "entries of the journal behind {} cannot be read, so MQTT clients do not get their records",
                        position.get()
                    );
                }
                position = appended.next;
                hub.hand(&appended.records, appended.next);
            }
            Err(error) => {
                tracing::warn!(target: "requests", code = error.code().id(), "MQTT waits: {}", error.detail());
                sleep(FEED_PAUSE).await;
            }
        }
        yield_now().await;
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
