//! Runs, and the reasons why functions and runs wait.

use super::{
    Bounded, Query, RunDoc,
    query::{invalid, shown},
};
use millrace_node::{Namespace, Reason, RunFilter, RunState};
use millrace_wire::{Code, Result};
use serde::Serialize;

/// Most runs of one answer, and how many there are by default.
const LIMIT_MAX: u64 = 1000;
const LIMIT: u64 = 100;

#[derive(Serialize)]
pub(super) struct Runs {
    runs: Vec<RunDoc>,
    /// The run before which the next page begins, if there may be older ones.
    next: Option<String>,
}

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
pub(super) fn list(namespace: &Namespace, filter: &RunFilter) -> Result<Runs> {
    let mut bounded = Bounded::new();
    let page = namespace.runs_page(filter)?;
    let runs: Vec<RunDoc> = page.runs.iter().map(RunDoc::from).take_while(|run| bounded.admits(run)).collect();
    let next = match runs.last() {
        Some(last) if runs.len() < page.runs.len() => Some(last.id.clone()),
        _ => page.next.map(|next| next.to_string()),
    };
    Ok(Runs { runs, next })
}

/// The run with this id, or the newest.
pub(super) fn one(namespace: &Namespace, id: &str) -> Result<RunDoc> {
    if id != "latest" {
        return Ok(RunDoc::from(&namespace.run(id.parse()?)?));
    }
    let newest = namespace.runs(&RunFilter { limit: 1, ..RunFilter::default() })?;
    newest.first().map(RunDoc::from).ok_or_else(|| Code::RunNotFound.error("there are no runs yet"))
}

/// Why something is not running.
#[derive(Serialize)]
pub(super) struct WhyDoc {
    target: String,
    reasons: Vec<ReasonDoc>,
}

#[derive(Serialize)]
struct ReasonDoc {
    #[serde(flatten)]
    reason: Reason,
    /// The reason for people.
    text: String,
}

pub(super) fn why(namespace: &Namespace, target: &str) -> Result<WhyDoc> {
    let why = millrace_node::why(namespace, target)?;
    let document = |reason: Reason| ReasonDoc { text: reason.to_string(), reason };
    Ok(WhyDoc { target: why.target, reasons: why.reasons.into_iter().map(document).collect() })
}
