//! What an event caused, and what it came from.

use super::{
    Query,
    query::{invalid, shown},
};
use millrace_node::{Namespace, Position, TraceFilter, TreeLimits};
use millrace_wire::Result;

/// Levels of a tree, branches below one, and branches in all: the most, and how many by default.
const DEPTH: (u64, u64) = (64, 6);
const WIDTH: (u64, u64) = (1000, 50);
const LIMIT: (u64, u64) = (1000, 300);

/// The filter that a query asks for.
pub(super) fn filter(query: &mut Query) -> Result<TraceFilter> {
    let up = match query.take("direction").as_deref() {
        None | Some("effects") => false,
        Some("causes") => true,
        Some(other) => return Err(invalid(format!("'{}' is not effects or causes", shown(other)))),
    };
    let mut number = |name, (most, usual)| -> Result<usize> {
        Ok(query.number(name, 1, most)?.unwrap_or(usual) as usize) // at most 1000
    };
    let limits = TreeLimits {
        depth_max: number("depth", DEPTH)?,
        below_max: number("width", WIDTH)?,
        branches_max: number("limit", LIMIT)?,
    };
    let after = query.number("after", 0, u64::MAX)?.map(Position::named).transpose()?;
    if up && after.is_some() {
        return Err(invalid("'after' goes on with effects, not with causes"));
    }
    Ok(TraceFilter { up, limits, after })
}

/// The tree of an event as JSON text; `check` fails once the caller no longer waits.
pub(super) fn text(
    namespace: &Namespace,
    event: &str,
    filter: &TraceFilter,
    check: &dyn Fn() -> Result<()>,
) -> Result<String> {
    super::text(&millrace_node::trace(namespace, event, filter, check)?)
}
