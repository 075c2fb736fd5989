//! Collections: maps, sets, lists and logs.

use super::{ANSWER_MAX_BYTES, Args, Flow, Turn, done, listed, reply, unknown};
use crate::{
    Raised,
    state::{Effect, State},
    value,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

type Pairs<'s> = Box<dyn DoubleEndedIterator<Item = (&'s [u8], &'s [u8])> + 's>;

fn keys(state: &State, sorted: bool) -> Pairs<'_> {
    if sorted { Box::new(state.sorted(None, None)) } else { Box::new(state.inserted()) }
}

/// Keys and values alternately.
fn flat<'s>(pairs: impl Iterator<Item = (&'s [u8], &'s [u8])>) -> Result<Flow, Raised> {
    listed(pairs.flat_map(|(key, value)| [key, value]))
}

/// A value, or none: an array of one or no element.
fn perhaps(found: Option<&[u8]>) -> Result<Flow, Raised> {
    reply(value::array(found.as_slice().iter().copied()))
}

/// A key and its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// Keys and values by turns, as an argument.
fn pairs<'a>(args: &Args<'a>, at: usize) -> Result<Vec<Pair<'a>>, Raised> {
    let elements = args.elements(at)?;
    let (pairs, rest) = elements.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    } else {
        Err(Raised::new("TypeError", "a key without a value"))
    }
}

/// Adds to the number under a key; returns the sum.
fn add(turn: &mut Turn<'_>, key: &[u8], more: &[u8]) -> Result<Vec<u8>, Raised> {
    let now = turn.state.at(key).map_or_else(|| value::int(0), <[u8]>::to_vec);
    let sum = match (value::as_int(&now), value::as_int(more)) {
        (Some(now), Some(more)) => value::int(
            now.checked_add(more).ok_or_else(|| Raised::new("OverflowError", "the number does not fit 64 bits"))?,
        ),
        _ => match (value::as_float(&now), value::as_float(more)) {
            (Some(now), Some(more)) => value::float(now + more),
            _ => return Err(Raised::new("TypeError", "only numbers can be added")),
        },
    };
    turn.put(key, sum.clone());
    Ok(sum)
}

/// `Dict`.
pub(super) fn dict(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    map(turn, method, args, false)
}

/// `SortedDict`.
pub(super) fn sorted_dict(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let bound = |at: usize| args.0.get(at).copied().filter(|key| !value::is_nil(key));
    match method {
        "range" => flat(turn.state.sorted(bound(0), bound(1))),
        "first" => flat(turn.state.sorted(None, None).take(1)),
        "last" => flat(turn.state.sorted(None, None).next_back().into_iter()),
        _ => map(turn, method, args, true),
    }
}

fn map(turn: &mut Turn<'_>, method: &str, args: &Args<'_>, sorted: bool) -> Result<Flow, Raised> {
    match method {
        "" | "update" if args.0.is_empty() => done(),
        "" | "update" => {
            pairs(args, 0)?.into_iter().for_each(|(key, value)| turn.put(key, value.to_vec()));
            done()
        }
        "get" => perhaps(turn.state.at(args.raw(0)?)),
        "set" => {
            turn.put(args.raw(0)?, args.raw(1)?.to_vec());
            done()
        }
        "setdefault" => {
            let key = args.raw(0)?;
            if let Some(value) = turn.state.at(key) {
                return reply(value.to_vec());
            }
            let value = args.raw(1)?.to_vec();
            turn.put(key, value.clone());
            reply(value)
        }
        "pop" => perhaps(turn.drop_key(args.raw(0)?).as_deref()),
        "popitem" => {
            let Some(key) = keys(turn.state, sorted).next_back().map(|(key, _)| key.to_vec()) else {
                return Err(Raised::new("KeyError", "popitem(): dictionary is empty"));
            };
            let old = turn.drop_key(&key).unwrap_or_default();
            reply(value::array([&*key, &*old].into_iter()))
        }
        "add" => reply(add(turn, args.raw(0)?, args.raw(1)?)?),
        "compare_and_set" => {
            let (key, expected, next) = (args.raw(0)?, args.elements(1)?, args.raw(2)?);
            let same = is(turn.state.at(key), expected.first().copied());
            if same {
                turn.put(key, next.to_vec());
            }
            reply(value::boolean(same))
        }
        "compare_and_pop" => {
            let (key, expected) = (args.raw(0)?, args.raw(1)?);
            let same = is(turn.state.at(key), Some(expected));
            if same {
                turn.drop_key(key);
            }
            reply(value::boolean(same))
        }
        "contains" => reply(value::boolean(turn.state.at(args.raw(0)?).is_some())),
        "len" => reply(value::count(turn.state.len())),
        "keys" => listed(keys(turn.state, sorted).map(|(key, _)| key)),
        "values" => listed(keys(turn.state, sorted).map(|(_, value)| value)),
        "items" => flat(keys(turn.state, sorted)),
        "clear" => {
            turn.clear_map();
            done()
        }
        _ => unknown(method),
    }
}

/// Whether the current value is the expected one.
fn is(there: Option<&[u8]>, expected: Option<&[u8]>) -> bool {
    match (there, expected) {
        (Some(there), Some(expected)) => value::same(there, expected),
        (there, expected) => there == expected,
    }
}

/// `Counter`: how often each key was counted.
pub(super) fn counter(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    match method {
        "" | "update" if args.0.is_empty() => done(),
        "" | "update" => {
            for (key, more) in pairs(args, 0)? {
                add(turn, key, more)?;
            }
            done()
        }
        "get" => reply(turn.state.at(args.raw(0)?).map_or_else(|| value::int(0), <[u8]>::to_vec)),
        "add" => {
            let one = value::int(1);
            reply(add(turn, args.raw(0)?, args.0.get(1).copied().unwrap_or(&one))?)
        }
        "set" => {
            let (key, count) = (args.raw(0)?, args.raw(1)?);
            if value::as_float(count).is_none() {
                return Err(Raised::new("TypeError", "a count must be a number"));
            }
            turn.put(key, count.to_vec());
            done()
        }
        "pop" => perhaps(turn.drop_key(args.raw(0)?).as_deref()),
        "most_common" => {
            let most = usize::try_from(args.int_or(0, -1)?).unwrap_or(usize::MAX);
            let mut all: Vec<(&[u8], &[u8])> = turn.state.inserted().collect();
            let count = |value: &[u8]| value::as_float(value).unwrap_or(0.0);
            // The sort keeps the order of those that were counted equally often, as Python's does.
            all.sort_by(|(_, one), (_, other)| count(other).total_cmp(&count(one)));
            flat(all.into_iter().take(most))
        }
        "total" => {
            let counts = turn.state.inserted().map(|(_, value)| value::as_int(value));
            let total = counts.sum::<Option<i64>>();
            let floats = || turn.state.inserted().filter_map(|(_, value)| value::as_float(value)).sum();
            reply(total.map_or_else(|| value::float(floats()), value::int))
        }
        "len" => reply(value::count(turn.state.len())),
        "items" => flat(turn.state.inserted()),
        "clear" => {
            turn.clear_map();
            done()
        }
        _ => unknown(method),
    }
}

/// `Set`. Changes of many elements return how many were added or removed.
pub(super) fn set(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let before = turn.state.len();
    match method {
        "" | "update" if args.0.is_empty() => reply(value::count(0)),
        "" | "update" => {
            args.elements(0)?.into_iter().for_each(|key| turn.put(key, Vec::new()));
            reply(value::count(turn.state.len() - before))
        }
        "add" => {
            let key = args.raw(0)?;
            let new = turn.state.at(key).is_none();
            if new {
                turn.put(key, Vec::new());
            }
            reply(value::boolean(new))
        }
        "discard" => {
            let there = turn.drop_key(args.raw(0)?).is_some();
            reply(value::boolean(there))
        }
        "difference_update" => {
            args.elements(0)?.into_iter().for_each(|key| drop(turn.drop_key(key)));
            reply(value::count(before - turn.state.len()))
        }
        "symmetric_difference_update" => {
            // Twice the same element is one element.
            let mut others = State::default();
            args.elements(0)?.into_iter().zip(0..).for_each(|(key, at)| {
                others.apply(Effect::Put(key.to_vec(), Some((at, Vec::new()))));
            });
            for (key, _) in others.inserted() {
                if turn.drop_key(key).is_none() {
                    turn.put(key, Vec::new());
                }
            }
            done()
        }
        "intersection_update" => {
            let stay: BTreeSet<Vec<u8>> =
                args.elements(0)?.into_iter().map(|key| value::canonical(key).into_owned()).collect();
            let goes = |key: &&[u8]| !stay.contains(&*value::canonical(key));
            let go: Vec<Vec<u8>> = turn.state.inserted().map(|(key, _)| key).filter(goes).map(<[u8]>::to_vec).collect();
            go.iter().for_each(|key| drop(turn.drop_key(key)));
            reply(value::count(go.len()))
        }
        "pop" => {
            let Some(key) = turn.state.inserted().next().map(|(key, _)| key.to_vec()) else {
                return Err(Raised::new("KeyError", "pop from an empty set"));
            };
            turn.drop_key(&key);
            reply(key)
        }
        "contains" => reply(value::boolean(turn.state.at(args.raw(0)?).is_some())),
        "len" => reply(value::count(turn.state.len())),
        "items" => listed(turn.state.inserted().map(|(key, _)| key)),
        "clear" => {
            turn.clear_map();
            done()
        }
        _ => unknown(method),
    }
}

/// The place that an index names, counted from the end if it is below 0.
fn place(state: &State, at: i64) -> Result<usize, Raised> {
    let length = state.sequence().len() as i64;
    let from = if at < 0 { at.saturating_add(length) } else { at };
    let found = (0..length).contains(&from).then_some(from as usize);
    found.ok_or_else(|| Raised::new("IndexError", format!("index {at} of {length}")))
}

/// The places from one up to another, which count from the end if they are below 0.
fn bounds(state: &State, args: &Args<'_>, first: usize) -> Result<(usize, usize), Raised> {
    let length = state.sequence().len() as i64;
    let bound = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at.min(length) };
    let (from, to) = (bound(args.int_or(first, 0)?), bound(args.int_or(first + 1, length)?));
    Ok((from as usize, to.max(from) as usize))
}

/// The items between two places.
fn slice(state: &State, args: &Args<'_>) -> Result<Flow, Raised> {
    let (from, to) = bounds(state, args, 0)?;
    listed(state.sequence().range(from..to).map(Vec::as_slice))
}

/// A digest of a list. Items are framed by their encoding.
fn digest(state: &State) -> Vec<u8> {
    let mut whole = Sha256::new();
    state.sequence().iter().for_each(|item| whole.update(item));
    whole.finalize().to_vec()
}

/// The list has these items now.
fn become_list<'v>(turn: &mut Turn<'_>, values: impl ExactSizeIterator<Item = &'v [u8]>) {
    let (before, after) = (turn.state.sequence().len(), values.len());
    (after..before).for_each(|_| drop(turn.take(turn.state.sequence().len() - 1)));
    for (at, value) in values.enumerate() {
        match turn.state.sequence().get(at) {
            None => turn.push(value.to_vec()),
            Some(now) if now == value => {}
            Some(_) => turn.apply(Effect::Replace(at, value.to_vec())),
        }
    }
}

/// `List`.
pub(super) fn list(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    match method {
        "" if args.0.is_empty() => done(),
        "" | "extend" => {
            args.elements(0)?.into_iter().for_each(|value| turn.push(value.to_vec()));
            done()
        }
        "get" => reply(turn.state.sequence()[place(turn.state, args.int(0)?)?].clone()),
        "set" => {
            let at = place(turn.state, args.int(0)?)?;
            turn.apply(Effect::Replace(at, args.raw(1)?.to_vec()));
            done()
        }
        "append" => {
            turn.push(args.raw(0)?.to_vec());
            done()
        }
        "insert" => {
            let (at, length) = (args.int(0)?, turn.state.sequence().len() as i64);
            let at = if at < 0 { at.saturating_add(length).max(0) } else { at.min(length) };
            turn.apply(Effect::Insert(at as usize, args.raw(1)?.to_vec()));
            done()
        }
        "pop" => {
            if turn.state.sequence().is_empty() {
                return Err(Raised::new("IndexError", "pop from empty list"));
            }
            let at = place(turn.state, args.int_or(0, -1)?)?;
            reply(turn.take(at).unwrap_or_else(value::nil))
        }
        "slice" => slice(turn.state, args),
        "index" => {
            let (wanted, (from, to)) = (args.raw(0)?, bounds(turn.state, args, 1)?);
            let at = turn.state.sequence().range(from..to).position(|value| value::same(value, wanted));
            reply(at.map_or_else(value::nil, |at| value::count(from + at)))
        }
        "count" => {
            let wanted = args.raw(0)?;
            reply(value::count(turn.state.sequence().iter().filter(|value| value::same(value, wanted)).count()))
        }
        "remove" => {
            let wanted = args.raw(0)?;
            let Some(at) = turn.state.sequence().iter().position(|value| value::same(value, wanted)) else {
                return Err(Raised::new("ValueError", "list.remove(x): x not in list"));
            };
            turn.take(at);
            done()
        }
        "reverse" => {
            let reversed: Vec<Vec<u8>> = turn.state.sequence().iter().rev().cloned().collect();
            become_list(turn, reversed.iter().map(Vec::as_slice));
            done()
        }
        // Other items in place of a part; none deletes it.
        "splice" => {
            let ((from, to), values) = (bounds(turn.state, args, 0)?, args.elements(2)?);
            (from..to).for_each(|_| turn.apply(Effect::Remove(from)));
            for (at, value) in values.into_iter().enumerate() {
                turn.apply(Effect::Insert(from + at, value.to_vec()));
            }
            done()
        }
        // All items with their digest, and other items in their place if they still have it: for changes that the caller computes.
        "snapshot" => {
            let bytes: usize = turn.state.sequence().iter().map(Vec::len).sum();
            if bytes > ANSWER_MAX_BYTES {
                return Ok(Flow::TooLarge);
            }
            let items = value::array(turn.state.sequence().iter().map(Vec::as_slice));
            reply(value::array([&*value::bytes(&digest(turn.state)), &items].into_iter()))
        }
        "swap" => {
            let same = args.bytes(0)? == digest(turn.state);
            if same {
                become_list(turn, args.elements(1)?.into_iter());
            }
            reply(value::boolean(same))
        }
        "len" => reply(value::count(turn.state.sequence().len())),
        "items" => listed(turn.state.sequence().iter().map(Vec::as_slice)),
        "clear" => {
            while turn.take(turn.state.sequence().len().wrapping_sub(1)).is_some() {}
            done()
        }
        _ => unknown(method),
    }
}

/// `Log`: a list that only grows, and for whose growth a call can wait.
pub(super) fn log(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let length = turn.state.sequence().len();
    match method {
        "" => done(),
        "append" => {
            turn.push(args.raw(0)?.to_vec());
            super::waiting::grown(turn);
            reply(value::count(length))
        }
        "get" => reply(turn.state.sequence()[place(turn.state, args.int(0)?)?].clone()),
        "slice" => slice(turn.state, args),
        "len" => reply(value::count(length)),
        "wait_for" => {
            let wanted = args.int(0)?;
            if length as i64 >= wanted { reply(value::boolean(true)) } else { turn.wait(0, value::int(wanted)) }
        }
        _ => unknown(method),
    }
}
