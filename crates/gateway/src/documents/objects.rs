//! The shared objects of a host.

use super::Page;
use millrace_documents::{ObjectDoc, ObjectsDoc, WaiterDoc};
use millrace_node::{Access, ShownObject, application::suggestion};
use millrace_wire::{Code, Hex, Result};

/// How many other objects are compared with a key that is not found, and how long keys then are at most.
const HINT_MAX: usize = 1000;
const HINT_KEY_MAX_BYTES: usize = 64;
/// The maximum number of reported waiters of one object.
const WAITERS_MAX: usize = 100;

fn document((shown, copies): ShownObject) -> ObjectDoc {
    let waiter = |(session, call): &([u8; 16], u64)| WaiterDoc { session: Hex(session).to_string(), call: *call };
    ObjectDoc {
        kind: shown.kind.name().into(),
        class: shown.class.map(Into::into),
        persistent: shown.persistent,
        rf: copies.as_ref().map_or(1, |copies| copies.rf as u64),
        leader: copies.and_then(|copies| copies.leader),
        key: shown.key.into(),
        incarnation: shown.incarnation.to_string(),
        application: shown.application.into(),
        bytes: shown.bytes as u64,
        waiting: shown.waiting.len() as u64,
        waiters: shown.waiting.iter().take(WAITERS_MAX).map(waiter).collect(),
        owner: shown.owner.map(|owner| Hex(&owner).to_string()),
    }
}

pub(super) fn list(access: &Access, page: &Page) -> Result<ObjectsDoc> {
    let (mut shown, sessions) = access.show_objects(&page.after, page.limit + 1)?;
    // A page ends behind a key: two objects that have the same stand together.
    let end = (page.limit..shown.len()).find(|at| shown[*at].0.key != shown[*at - 1].0.key);
    shown.truncate(end.unwrap_or(shown.len()));
    let next = shown.last().filter(|_| end.is_some()).map(|(last, _)| last.key.to_string());
    Ok(ObjectsDoc { objects: shown.into_iter().map(document).collect(), sessions: sessions as u64, next })
}

pub(super) fn one(access: &Access, key: &str) -> Result<ObjectDoc> {
    if let Some(found) = access.show_object(key)?.map(document) {
        return Ok(found);
    }
    // A caller that may not list objects gets no hint.
    let others = access.show_objects("", HINT_MAX).map(|(shown, _)| shown).unwrap_or_default();
    let short = key.len() <= HINT_KEY_MAX_BYTES;
    let keys = others.iter().map(|(shown, _)| &*shown.key).filter(|key| short && key.len() <= HINT_KEY_MAX_BYTES);
    let hint = suggestion(key, keys);
    Err(Code::ObjectNotFound.error(format!("no object '{}'{hint}", key.escape_debug())))
}
