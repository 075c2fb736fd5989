//! The shared objects of a host.

use super::Page;
use millrace_node::{Access, ShownObject, application::suggestion};
use millrace_wire::{Code, Hex, Result};
use serde::Serialize;

/// A list of objects.
#[derive(Serialize)]
pub(super) struct Objects {
    objects: Vec<Object>,
    /// How many sessions are open.
    sessions: usize,
    /// The key after which the next page begins, if there are more.
    next: Option<String>,
}

/// One of them.
#[derive(Serialize)]
pub(super) struct Object {
    #[serde(rename = "type")]
    kind: &'static str,
    /// The user's class, if it is an object of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    key: String,
    incarnation: String,
    application: String,
    /// Whether it exists after a restart of the host.
    persistent: bool,
    /// How many hosts have a copy at least: 1 for this host alone.
    rf: usize,
    /// The host that leads the group which keeps the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    bytes: usize,
    /// How many calls wait.
    waiting: usize,
    /// The sessions of the waiting calls, in the order in which they came; at most a hundred.
    waiters: Vec<Waiter>,
    /// The owner, if it is a lock and is taken.
    owner: Option<String>,
}

#[derive(Serialize)]
struct Waiter {
    session: String,
    call: u64,
}

/// How many other objects are compared with a key that is not found, and how long keys then are at most.
const HINT_MAX: usize = 1000;
const HINT_KEY_MAX_BYTES: usize = 64;
/// The maximum number of reported waiters of one object.
const WAITERS_MAX: usize = 100;

impl From<ShownObject> for Object {
    fn from((shown, copies): ShownObject) -> Self {
        let waiter = |(session, call): &([u8; 16], u64)| Waiter { session: Hex(session).to_string(), call: *call };
        Object {
            kind: shown.kind.name(),
            class: shown.class.map(Into::into),
            persistent: shown.persistent,
            rf: copies.as_ref().map_or(1, |copies| copies.rf),
            leader: copies.and_then(|copies| copies.leader),
            key: shown.key.into(),
            incarnation: shown.incarnation.to_string(),
            application: shown.application.into(),
            bytes: shown.bytes,
            waiting: shown.waiting.len(),
            waiters: shown.waiting.iter().take(WAITERS_MAX).map(waiter).collect(),
            owner: shown.owner.map(|owner| Hex(&owner).to_string()),
        }
    }
}

pub(super) fn list(access: &Access, page: &Page) -> Result<Objects> {
    let (mut shown, sessions) = access.show_objects(&page.after, page.limit + 1)?;
    // A page ends behind a key: two objects that have the same stand together.
    let end = (page.limit..shown.len()).find(|at| shown[*at].0.key != shown[*at - 1].0.key);
    shown.truncate(end.unwrap_or(shown.len()));
    let next = shown.last().filter(|_| end.is_some()).map(|(last, _)| last.key.to_string());
    Ok(Objects { objects: shown.into_iter().map(Object::from).collect(), sessions, next })
}

pub(super) fn one(access: &Access, key: &str) -> Result<Object> {
    if let Some(found) = access.show_object(key)?.map(Object::from) {
        return Ok(found);
    }
    // A caller that may not list objects gets no hint.
    let others = access.show_objects("", HINT_MAX).map(|(shown, _)| shown).unwrap_or_default();
    let short = key.len() <= HINT_KEY_MAX_BYTES;
    let keys = others.iter().map(|(shown, _)| &*shown.key).filter(|key| short && key.len() <= HINT_KEY_MAX_BYTES);
    let hint = suggestion(key, keys);
    Err(Code::ObjectNotFound.error(format!("no object '{}'{hint}", key.escape_debug())))
}
