//! The fences of an object: for each name the highest token with which it was called.
//!
//! A call is checked when it arrives. While it waits, a call with a higher token refuses it, so it does not take effect after that call. If
//! a worker runs its method by then, the result is refused.

use super::durable::{Reader, list, uint};
use crate::{
    Raised, State, Ticket, Type, Waiter,
    types::{Turn, user},
    value,
};
use millrace_wire::{Code, Result, protocol::Fence};

/// The field of the names and tokens. No type uses it for anything else.
const FENCES: u8 = u8::MAX - 1;
/// The most names of an object.
const NAMES_MAX: usize = 16;

fn fences(state: &State) -> Vec<(&str, u64)> {
    let flat = state.field(FENCES).and_then(|fences| value::elements(fences).ok()).unwrap_or_default();
    let mut reader = Reader(flat.into_iter());
    let pairs = std::iter::from_fn(|| Some((reader.text().ok()?, reader.uint().ok()?)));
    pairs.collect()
}

/// Refuses a call with this fence if the object was called with a higher token.
pub(super) fn check(state: &State, fence: Option<Fence<'_>>) -> Result<()> {
    let Some(fence) = fence else { return Ok(()) };
    let known = fences(state);
    match known.iter().find(|(name, _)| *name == fence.name) {
        Some((_, highest)) => fence.check_against(*highest),
        None if known.len() < NAMES_MAX => Ok(()),
        None => Err(Code::FenceInvalid.error(format!("the object has fences of {NAMES_MAX} names"))),
    }
}

/// The refusal of a call that has waited with this fence, if the object was called with a higher token since it arrived.
pub(super) fn stale(state: &State, fence: Option<&(Box<str>, u64)>) -> Option<Raised> {
    let (name, token) = fence?;
    let (_, highest) = fences(state).into_iter().find(|(known, _)| *known == &**name)?;
    let refused = Fence { name, token: *token }.check_against(highest).err()?;
    Some(Raised::new("millrace.FenceStale", refused.detail()))
}

/// The object is called with this fence, which it has not refused: from now on calls with lower tokens are refused, also those that wait.
pub(super) fn note(turn: &mut Turn<'_>, kind: Type, fence: Option<Fence<'_>>) {
    let Some(fence) = fence else { return };
    let mut known = fences(turn.state);
    if known.contains(&(fence.name, fence.token)) {
        return;
    }
    let is_known = known.iter().any(|(name, _)| *name == fence.name);
    known.retain(|(name, _)| *name != fence.name);
    known.push((fence.name, fence.token));
    let flat: Vec<Vec<u8>> = known.into_iter().flat_map(|(name, token)| [value::text(name), uint(token)]).collect();
    turn.field(FENCES, list(&flat));
    if is_known {
        refuse_stale(turn, kind);
    }
}

fn refuse_stale(turn: &mut Turn<'_>, kind: Type) {
    // Whether the method that a worker runs now takes effect is decided at its end.
    let running = user::running(turn.state).filter(|_| kind == Type::Shared);
    let others = turn.state.waiters().iter().filter(|(ticket, _)| running != Some(**ticket));
    let waiters = others
        .filter_map(|(ticket, waiter)| Some((*ticket, waiter.clone(), stale(turn.state, waiter.fence.as_ref())?)));
    let refused: Vec<(Ticket, Waiter, Raised)> = waiters.collect();
    for (ticket, waiter, raised) in refused {
        kind.refuse(turn, ticket, &waiter, raised);
    }
}
