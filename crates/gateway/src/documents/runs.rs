//! Runs, and the reasons why functions and runs wait.

use super::{
    Bounded, Query,
    query::{invalid, shown},
    text::{id_text, rfc3339},
};
use millrace_node::{Namespace, Reason, RecordRef, RunFilter, RunState, RunView};
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

#[derive(Serialize)]
struct RecordRefDoc {
    log: Option<String>,
    seqno: u64,
}

#[derive(Serialize)]
struct AttemptDoc {
    attempt: u64,
    time: String,
}

#[derive(Serialize)]
struct RunErrorDoc {
    code: String,
    detail: String,
}

/// One run.
#[derive(Serialize)]
pub(super) struct RunDoc {
    id: String,
    function: Option<String>,
    state: RunState,
    #[serde(flatten)]
    record: RecordRefDoc,
    cause: Option<String>,
    caused_by: Option<String>,
    triggered: String,
    ended: Option<String>,
    attempts: Vec<AttemptDoc>,
    reads: Vec<RecordRefDoc>,
    appends: Vec<RecordRefDoc>,
    output: Option<String>,
    error: Option<RunErrorDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retried_as: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

impl From<&RecordRef> for RecordRefDoc {
    fn from(record: &RecordRef) -> Self {
        Self { log: record.log.as_ref().map(ToString::to_string), seqno: record.seqno }
    }
}

impl From<&RunView> for RunDoc {
    fn from(view: &RunView) -> Self {
        let dead = view.ending.as_ref().and_then(|ending| ending.dead.as_ref());
        let attempt =
            |attempt: &millrace_node::Attempt| AttemptDoc { attempt: attempt.attempt, time: rfc3339(attempt.at) };
        Self {
            id: view.id.to_string(),
            function: view.function.as_ref().map(ToString::to_string),
            state: view.state,
            record: (&view.record).into(),
            cause: id_text(view.cause),
            caused_by: id_text(view.caused_by),
            triggered: rfc3339(view.triggered),
            ended: view.ended.map(rfc3339),
            attempts: view.attempts.iter().map(attempt).collect(),
            reads: view.reads.iter().map(RecordRefDoc::from).collect(),
            appends: view.appends.iter().map(RecordRefDoc::from).collect(),
            output: view.ending.as_ref().map(|ending| ending.output.clone()),
            error: dead.map(|death| RunErrorDoc { code: death.code.clone(), detail: death.error.clone() }),
            retried_as: view.retried_as.and_then(id_text),
            partial: view.partial,
        }
    }
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
