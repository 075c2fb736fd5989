//! The fences of an object: for each name the highest token with which it was called.

use super::durable::{Reader, list, uint};
use crate::{State, types::Turn, value};
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

/// The object was called with this fence, which it did not refuse.
pub(super) fn note(turn: &mut Turn<'_>, fence: Option<Fence<'_>>) {
    let Some(fence) = fence else { return };
    let mut known = fences(turn.state);
    if known.contains(&(fence.name, fence.token)) {
        return;
    }
    known.retain(|(name, _)| *name != fence.name);
    known.push((fence.name, fence.token));
    let flat: Vec<Vec<u8>> = known.into_iter().flat_map(|(name, token)| [value::text(name), uint(token)]).collect();
    turn.field(FENCES, list(&flat));
}
