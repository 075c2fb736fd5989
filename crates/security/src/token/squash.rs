//! Squash: one block that permits exactly what a chain does. Only a host can issue it, because it takes the authority's key.

use super::{
    chain::Chain,
    rights::{Grant, Kind},
    rules::Rules,
};
use millrace_wire::{Code, Error, Result};

fn not_squashable(why: &str) -> Error {
    Code::CapabilityNotSquashable.error(why)
}

/// The rules of one block that permits what all blocks of the chain do. It has every id, so that it is revoked by each of them.
///
/// A rate is counted for all tokens behind its block, and ONCE for one id: neither can move to another block.
pub fn squash(chain: &Chain) -> Result<Rules> {
    if chain.is_merged() {
        return Err(not_squashable(
            "it is merged from several capabilities; squash each of them before you merge them",
        ));
    }
    let mut rules = Rules::default();
    for link in chain.blocks() {
        let block = &link.rules;
        if block.rate.is_some() || block.once {
            return Err(not_squashable("a block limits its rate or can be used only once"));
        }
        rules.grants = both(&rules.grants, &block.grants, grants, "no grant is in all of its blocks")?;
        rules.not_after = rules.not_after.into_iter().chain(block.not_after).min();
        rules.not_before = rules.not_before.into_iter().chain(block.not_before).max();
        rules.record_max_bytes = rules.record_max_bytes.into_iter().chain(block.record_max_bytes).min();
        rules.ways = match (rules.ways, block.ways) {
            (Some(a), Some(b)) => {
                let both = super::Ways::from_bits(a.bits() & b.bits());
                Some(both.ok_or_else(|| not_squashable("no kind of connection is permitted by all of its blocks"))?)
            }
            (a, b) => a.or(b),
        };
        rules.nets = both(&rules.nets, &block.nets, |a, b| a.and(*b), "no address is permitted by all of its blocks")?;
        rules.keys = both(&rules.keys, &block.keys, same, "no key is permitted by all of its blocks")?;
        rules.sources = both(&rules.sources, &block.sources, same, "no source is permitted by all of its blocks")?;
        let new = block.ids.iter().filter(|id| !rules.ids.contains(id)).copied().collect::<Vec<_>>();
        rules.ids.extend(new);
        rules.subject = rules.subject.or_else(|| block.subject.clone());
        rules.label = rules.label.or_else(|| block.label.clone());
    }
    if rules.not_before.zip(rules.not_after).is_some_and(|(start, end)| start > end) {
        return Err(not_squashable("no time is permitted by all of its blocks"));
    }
    Ok(rules)
}

fn same<T: Copy + PartialEq>(a: &T, b: &T) -> Option<T> {
    (a == b).then_some(*a)
}

/// What two lists of alternatives have in common, each pair of them; an empty list does not restrict.
fn both<T: Clone + Ord>(a: &[T], b: &[T], and: impl Fn(&T, &T) -> Option<T>, nothing: &str) -> Result<Vec<T>> {
    if a.is_empty() || b.is_empty() {
        return Ok(if a.is_empty() { b } else { a }.to_vec());
    }
    let mut common: Vec<T> = a.iter().flat_map(|a| b.iter().filter_map(|b| and(a, b)).collect::<Vec<_>>()).collect();
    common.sort();
    common.dedup();
    if common.is_empty() { Err(not_squashable(nothing)) } else { Ok(common) }
}

/// What two grants both cover.
fn grants(a: &Grant, b: &Grant) -> Option<Grant> {
    let rights = a.rights.and(b.rights);
    if rights.is_empty() {
        return None;
    }
    let narrow = match (a.kind, b.kind) {
        (Kind::Namespace, _) => b,
        (_, Kind::Namespace) => a,
        (one, other) if one != other => return None,
        _ if within(b, a) => b,
        _ if within(a, b) => a,
        _ => return None,
    };
    Some(Grant { rights, ..narrow.clone() })
}

/// Whether every name of `inner` is one of `outer`.
fn within(inner: &Grant, outer: &Grant) -> bool {
    match (inner.subtree, outer.subtree) {
        (true, false) => false,
        // A subtree of the empty name has every name.
        _ if inner.name.is_empty() => outer.name.is_empty(),
        _ => outer.contains(&inner.name),
    }
}
