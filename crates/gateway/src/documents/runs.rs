//! Runs, newest first, and those that failed.

use super::{
    Bounded, Query, moment,
    query::{invalid, shown},
};
use millrace_documents::{FailuresDoc, RunDoc, RunsDoc};
use millrace_node::{Hlc, Name, Namespace, RunFilter, RunState, documents};
use millrace_wire::Result;

/// Most runs of one answer, and how many there are by default.
const LIMIT_MAX: u64 = 1000;
const LIMIT: u64 = 100;

/// The runs that a query asks for.
pub(super) fn filter(query: &mut Query) -> Result<RunFilter> {
    let state = match query.take("state").as_deref() {
        None => None,
        Some("pending") => Some(RunState::Pending),
        Some("started") => Some(RunState::Started),
        Some("done") => Some(RunState::Done),
        Some("dead") => Some(RunState::Dead),
        Some("cancelled") => Some(RunState::Cancelled),
        Some(other) => {
            let what = format!("'{}' is not pending, started, done, dead or cancelled", shown(other));
            return Err(invalid(what));
        }
    };
    Ok(RunFilter {
        before: query.take("before").map(|id| id.parse()).transpose()?,
        function: query.take("function").map(|name| name.parse()).transpose()?,
        log: query.take("log").map(|log| log.parse()).transpose()?,
        state,
        limit: query.number("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT) as usize, // at most 1000
    })
}

/// The newest runs, newest first.
pub(super) fn list(namespace: &Namespace, filter: &RunFilter) -> Result<RunsDoc> {
    let mut bounded = Bounded::new();
    let page = namespace.runs_page(filter)?;
    let runs: Vec<RunDoc> = page.runs.iter().map(documents::run).take_while(|run| bounded.admits(run)).collect();
    let next = match runs.last() {
        Some(last) if runs.len() < page.runs.len() => Some(last.id.clone()),
        _ => page.next.map(|next| next.to_string()),
    };
    Ok(RunsDoc { runs, next })
}

/// Which failures are asked for.
pub(super) struct Since {
    since: Option<Hlc>,
    pub function: Option<Name>,
}

impl Since {
    pub fn of(query: &mut Query) -> Result<Since> {
        let function = query.take("function").map(|name| name.parse()).transpose()?;
        Ok(Since { since: moment(query, "since")?, function })
    }
}

/// The dead letters since a moment, by function and error.
pub(super) fn failures(namespace: &Namespace, asked: &Since, check: &dyn Fn() -> Result<()>) -> Result<FailuresDoc> {
    let mut bounded = Bounded::new();
    let mut found = documents::failures(namespace, asked.since, asked.function.as_ref(), check)?;
    let all = found.failures.len();
    found.failures = found.failures.into_iter().take_while(|group| bounded.admits(group)).collect();
    found.more |= found.failures.len() < all;
    Ok(found)
}
