//! The arguments with which an object was created. A call with other arguments for an existing object is refused, because the program would
//! silently use a queue of another length, or a barrier of another number of parties.

use super::{Args, Turn, Type, user};
use crate::{State, state::Effect, value};
use sha2::{Digest, Sha256};

/// The field that has the digest of the arguments. No type uses it for anything else.
const MADE: u8 = u8::MAX;
const DIGEST_BYTES: usize = 8;

/// Records what an object was created with. Objects of earlier versions lack this.
pub(crate) fn record(kind: Type, turn: &mut Turn<'_>, args: &Args<'_>) {
    if let Some(digest) = of(kind, &args.0).or_else(|| of(kind, &default(kind)?)) {
        turn.apply(Effect::Field(MADE, Some(digest)));
    }
}

/// Whether arguments differ from those with which an object was created. A call without arguments matches every object.
pub(crate) fn differs(kind: Type, state: &State, new: &[u8]) -> bool {
    let Some(made) = state.field(MADE) else { return false };
    let given = value::elements(new).ok().and_then(|args| of(kind, &args));
    given.is_some_and(|given| given != made)
}

/// The arguments that an object is created with if none are given.
fn default(kind: Type) -> Option<Vec<&'static [u8]>> {
    let only: &[u8] = match kind {
        Type::AtomicInt | Type::AtomicLong | Type::Queue => &[0],
        Type::AtomicBool => &[0xc2],
        Type::AtomicBytes | Type::Blob => &[0xc4, 0],
        Type::Semaphore => &[1],
        _ => return None,
    };
    Some(vec![only])
}

/// The digest of arguments; `None` without arguments. All pickles have the same digest, because equal values may have different pickles.
fn of<V: AsRef<[u8]>>(kind: Type, args: &[V]) -> Option<Vec<u8>> {
    let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
    let own = if kind == Type::Shared { user::constructor_arguments(&args)? } else { args };
    // Arguments that are omitted at the end count as nil.
    let given = own.iter().rposition(|value| !value::is_nil(value)).map_or(0, |last| last + 1);
    if given == 0 && kind != Type::Shared {
        return None;
    }
    // In Java each argument is bytes, which have its encoding.
    let is_plain =
        |element: &&[u8]| value::is_plain(value::as_bytes(element).filter(|_| kind == Type::Shared).unwrap_or(element));
    let mut digest = Vec::new();
    if own.iter().all(is_plain) {
        let mut whole = Sha256::new();
        own[..given].iter().for_each(|element| whole.update(value::canonical(element)));
        digest.extend_from_slice(&whole.finalize()[..DIGEST_BYTES]);
    }
    Some(digest)
}
