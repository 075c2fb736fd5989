//! Sessions, groups and wills as they are saved, so that they outlive the host.
//!
//! | key | value |
//! |---|---|
//! | `s/SESSION` | a session: its filters, what it still has to send, and what is in flight |
//! | `m/SESSION/PACKET` | a message of quality 2 that came and is not released; written in the batch of its record |
//! | `g/GROUP` | the records of a shared subscription that nobody has taken |
//! | `w/WILL` | a will; it goes in the batch of its record |
//! | `p` | the position in the journal up to which records are in the rows of sessions and groups |
//!
//! A session is saved each second if it has changed, and before anything is sent that a later host must know of. Everything that belongs
//! together is read under the lock of the hub, on the thread that commits, so the rows are in the order of what happened.

use super::{
    hub::{Hub, Key, Sharing, Slot, State},
    will,
};
use crate::server::tasks;
use millrace_mqtt::{Group, Session, filter::shared};
use millrace_node::{Access, Gated, Position, Submitted, mqtt::MqttRow, secrets::random_id};
use millrace_wire::{Code, Error, Headers, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::sleep;

/// How often sessions are saved that have changed.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Sessions of one batch, and bytes of their rows.
const BATCH_SESSIONS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// How far the feeder comes before this is saved although no session has changed: a new host reads the journal from there.
const POSITION_BYTES: u64 = 16 << 20;
/// The key of the position.
const POSITION: &[u8] = b"p";

#[derive(Serialize, Deserialize)]
struct SessionRow {
    principal: String,
    client: String,
    expiry_s: u64,
    /// Up to where records were handed over.
    upto: u64,
    session: Session,
}

#[derive(Serialize, Deserialize)]
struct GroupRow {
    /// Its number in the host that saved it, by which flights name it.
    number: u64,
    principal: String,
    filter: String,
    upto: u64,
    group: Group,
}

#[derive(Serialize, Deserialize)]
struct WillRow {
    principal: String,
    client: String,
    topic: String,
    /// Seconds from the end of the host until the will is appended.
    delay_s: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

/// A will of a client whose host died.
pub(super) struct SavedWill {
    /// Its key where it is saved.
    pub row: Vec<u8>,
    pub topic: String,
    pub payload: Arc<[u8]>,
    pub headers: Headers,
}

/// A name that nothing else has.
pub(super) fn random_name() -> Result<String> {
    Ok(random_id()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The key of a group.
pub(super) fn group_row(name: &str) -> Vec<u8> {
    format!("g/{name}").into_bytes()
}

/// The key and the value of a will.
pub(super) fn will_row(
    key: &Key,
    (topic, headers, payload): (&str, &Headers, &[u8]),
    delay: Duration,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let (principal, client) = (key.principal.clone(), key.client.clone());
    let headers = headers.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let row = WillRow { principal, client, topic: topic.into(), delay_s: delay.as_secs(), headers };
    let mut value = json(&row);
    value.push(b'\n');
    value.extend_from_slice(payload);
    Ok((format!("w/{}", random_name()?).into_bytes(), value))
}

fn json(row: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(row).expect("text and numbers always make JSON")
}

fn read<R: DeserializeOwned>(value: &[u8]) -> Result<R> {
    serde_json::from_slice(value).map_err(|error| Code::MqttLimit.error(format!("a saved session: {error}")))
}

impl Slot {
    fn row(&self) -> Vec<u8> {
        format!("s/{}", self.id).into_bytes()
    }

    fn is_or_was_kept(&self) -> bool {
        let inner = self.inner();
        inner.saved || !inner.expiry.is_zero()
    }

    /// The key of a message of quality 2 that came.
    pub fn mark(&self, packet: u16) -> Vec<u8> {
        format!("m/{}/{packet}", self.id).into_bytes()
    }

    /// The keys of everything of it that is saved.
    pub fn rows(&self) -> Vec<Vec<u8>> {
        let inner = self.inner();
        match inner.saved {
            true => inner.session.arrived().map(|packet| self.mark(packet)).chain([self.row()]).collect(),
            false => Vec::new(),
        }
    }
}

/// What one batch saves.
#[derive(Default)]
struct Batch {
    rows: Vec<MqttRow>,
    bytes: usize,
    gone: Vec<Vec<u8>>,
    slots: Vec<Arc<Slot>>,
    groups: Vec<u64>,
}

impl Batch {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.rows.push((key, Some(value)));
    }

    /// Adds a session, its groups, and their members: what moves between them is in one batch.
    fn add(&mut self, state: &mut State, slot: &Arc<Slot>, upto: Position) {
        let (mut due, mut groups) = (vec![slot.clone()], BTreeSet::new());
        while let Some(slot) = due.pop() {
            if !slot.dirty.swap(false, Ordering::AcqRel) {
                continue;
            }
            let mut inner = slot.inner();
            for number in inner.groups.iter().filter(|number| groups.insert(**number)) {
                let members = state.groups.get(number).into_iter().flat_map(|sharing| sharing.group.members());
                due.extend(members.filter_map(|member| state.slots.get(&member)).cloned());
            }
            let is_kept = !inner.expiry.is_zero() && state.slots.contains_key(&slot.number);
            if is_kept {
                let (principal, client) = (slot.key().principal.clone(), slot.key().client.clone());
                let (expiry_s, upto, session) = (inner.expiry.as_secs(), upto.get(), inner.session.clone());
                self.put(slot.row(), json(&SessionRow { principal, client, expiry_s, upto, session }));
            } else if inner.saved {
                self.gone.push(slot.row());
            }
            inner.saved = is_kept;
            drop(inner);
            self.slots.push(slot);
        }
        for number in groups {
            let Some(sharing) = state.groups.get_mut(&number).filter(|sharing| sharing.dirty) else { continue };
            sharing.dirty = false;
            let Sharing { group, key: (principal, filter), row, .. } = sharing;
            let (principal, filter, group) = (principal.clone(), filter.clone(), group.clone());
            self.put(row.clone(), json(&GroupRow { number, principal, filter, upto: upto.get(), group }));
            self.groups.push(number);
        }
    }

    /// It could not be saved.
    fn give_back(self, state: &mut State) {
        state.gone.extend(self.gone);
        self.slots.iter().for_each(|slot| slot.dirty.store(true, Ordering::Release));
        for number in self.groups {
            if let Some(sharing) = state.groups.get_mut(&number) {
                sharing.dirty = true;
            }
        }
    }
}

impl Hub {
    /// Saves a session, and whatever else is to be saved with it.
    pub fn save(self: &Arc<Self>, access: &Access, slot: &Arc<Slot>, more: Vec<MqttRow>) -> Submitted<()> {
        let (hub, slot) = (self.clone(), slot.clone());
        access.submit(move |access| {
            let mut batch = Batch { rows: more, ..Batch::default() };
            {
                let mut state = hub.state();
                let upto = hub.handed_upto(&state);
                batch.add(&mut state, &slot, upto);
                batch.gone.append(&mut state.gone);
            }
            hub.commit(access, batch)
        })
    }

    fn handed_upto(&self, state: &State) -> Position {
        state.fed.unwrap_or_else(|| self.served.tail())
    }

    fn commit(&self, access: &Access, batch: Batch) -> Gated<()> {
        let gone = batch.gone.iter().map(|key| (key.clone(), None));
        let rows: Vec<MqttRow> = batch.rows.iter().cloned().chain(gone).collect();
        let held = access.save_mqtt_sessions(&rows);
        if held.refusal().is_some() {
            batch.give_back(&mut self.state());
        }
        held
    }

    /// Saves sessions that have changed; whether there are more. `saved` is the position that was saved last.
    fn save_changed(&self, access: &Access, saved: u64) -> Gated<(bool, u64)> {
        let (mut batch, mut state) = (Batch::default(), self.state());
        let upto = self.handed_upto(&state);
        let is_due = |slot: &&Arc<Slot>| slot.dirty.load(Ordering::Acquire) && slot.is_or_was_kept();
        let changed: Vec<Arc<Slot>> = state.slots.values().filter(is_due).cloned().collect();
        let mut has_more = false;
        for (at, slot) in changed.iter().enumerate() {
            if at >= BATCH_SESSIONS || batch.bytes >= BATCH_BYTES {
                has_more = true;
                break;
            }
            batch.add(&mut state, slot, upto);
        }
        batch.gone.append(&mut state.gone);
        let was_idle = batch.rows.is_empty() && upto.get() < saved.saturating_add(POSITION_BYTES);
        let is_of_use = state.slots.values().any(|slot| slot.inner().saved);
        let mut position = saved;
        if !has_more && !was_idle && is_of_use {
            position = upto.get();
            batch.put(POSITION.to_vec(), json(&position));
        }
        drop(state);
        if batch.rows.is_empty() && batch.gone.is_empty() {
            return Gated::passed((false, position), millrace_node::Free::Session);
        }
        self.commit(access, batch).map(|()| (has_more, position))
    }

    /// Reads what an earlier host saved, once.
    ///
    /// # Errors
    /// It cannot be read; the next client tries it again.
    pub async fn ready(self: &Arc<Self>) -> Result<()> {
        let restore = || async {
            let access = self.served.own_access();
            if self.served.has_mqtt_sessions()? {
                let rows = access.submit(Access::mqtt_sessions).await.await?;
                self.restore(rows)?;
            }
            tasks::vital_here("MQTT sessions", keep_saved(self.clone(), access));
            Ok::<(), Error>(())
        };
        self.restored.get_or_try_init(restore).await.map(drop)
    }

    fn restore(self: &Arc<Self>, rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        let (mut position, mut marks, mut sessions, mut groups) =
            (0, HashMap::<String, Vec<u16>>::new(), vec![], vec![]);
        for (key, value) in rows {
            let key = String::from_utf8_lossy(&key).into_owned();
            match key.split_once('/') {
                Some(("s", id)) => sessions.push((id.to_owned(), read::<SessionRow>(&value)?)),
                Some(("g", _)) => groups.push((key.clone().into_bytes(), read::<GroupRow>(&value)?)),
                Some(("w", _)) => self.restore_will(state, key.clone().into_bytes(), &value)?,
                Some(("m", mark)) => {
                    if let Some((id, Ok(packet))) = mark.split_once('/').map(|(id, packet)| (id, packet.parse())) {
                        marks.entry(id.into()).or_default().push(packet);
                    }
                }
                _ if key.as_bytes() == POSITION => position = read(&value)?,
                _ => {}
            }
        }
        let (mut numbers, mut from) = (HashMap::new(), self.served.tail());
        for (row, GroupRow { number, principal, filter, upto, group }) in groups {
            let Ok(Some((_, within))) = shared(&filter) else { continue };
            let since = Position::from_bytes(upto.max(position));
            let group = group.restored();
            from = from.min(since);
            let logs: Vec<u32> = group.logs().collect();
            let new = state.begin_group((principal, filter.clone()), group, within, since);
            state.logs.extend(self.served.logs_by_id(logs.into_iter())?.into_iter().map(|log| (log.id(), log)));
            if let Some(sharing) = state.groups.get_mut(&new) {
                sharing.row = row;
            }
            numbers.insert(number, new);
        }
        for (id, SessionRow { principal, client, expiry_s, upto, session }) in sessions {
            let since = Position::from_bytes(upto.max(position));
            let mut session = session.restored(|group| numbers.get(&group).copied());
            for packet in marks.remove(&id).unwrap_or_default() {
                let _ = session.arrive(packet);
            }
            let filters: Vec<String> = session.filters().map(|(filter, _)| filter.to_owned()).collect();
            let logs: Vec<u32> = session.logs().collect();
            let abandoned = session.abandon();
            let slot = match state.restore(&Key { principal, client }, id, session, Duration::from_secs(expiry_s)) {
                Ok(slot) => slot,
                Err(error) => {
                    tracing::warn!(target: "requests", protocol = "mqtt", code = error.code().id(), "{}", error.detail());
                    continue;
                }
            };
            state.logs.extend(self.served.logs_by_id(logs.into_iter())?.into_iter().map(|log| (log.id(), log)));
            for filter in &filters {
                state.restore_filter(&slot, filter, since);
            }
            state.give_back(&abandoned);
            if !filters.is_empty() {
                from = from.min(since);
            }
        }
        // A group without members was left by all of them.
        state.end_empty_groups();
        if state.slots.values().any(|slot| slot.see(|session| session.filters().next().is_some())) {
            self.feed_from(state, from);
        }
        Ok(())
    }

    fn restore_will(self: &Arc<Self>, state: &mut State, row: Vec<u8>, value: &[u8]) -> Result<()> {
        let end = value.iter().position(|byte| *byte == b'\n').unwrap_or(value.len());
        let WillRow { principal, client, topic, delay_s, headers: pairs } = read(&value[..end])?;
        if !self.served.stands(&principal) {
            state.gone.push(row);
            return Ok(());
        }
        let (payload, delay) = (value.get(end + 1..).unwrap_or_default().into(), Duration::from_secs(delay_s));
        let (key, mut headers) = (Key { principal, client }, Headers::default());
        for (name, value) in &pairs {
            headers.push(name, value)?;
        }
        state.wills.push((key, SavedWill { row: row.clone(), topic, payload, headers }));
        will::publish_saved(self, row, delay);
        Ok(())
    }
}

/// Saves sessions for as long as the host runs.
async fn keep_saved(hub: Arc<Hub>, access: Access) {
    let mut saved = 0;
    loop {
        sleep(SAVE_EVERY).await;
        let mut has_more = true;
        while has_more {
            let of_job = hub.clone();
            match access.submit(move |access| of_job.save_changed(access, saved)).await.await {
                Ok((more, position)) => (has_more, saved) = (more, position),
                Err(error) => {
                    tracing::warn!(
                        target: "requests", protocol = "mqtt", code = error.code().id(),
                        "sessions of MQTT clients are not saved now: {}", error.detail()
                    );
                    has_more = false;
                }
            }
        }
    }
}
