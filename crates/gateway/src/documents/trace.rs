//! What an event caused, and what it came from.

use super::{
    Query, id_text,
    query::{invalid, shown},
    state_word,
    text::rfc3339,
};
use millrace_node::{Link, Namespace, Position, Trace, TraceBranch, TraceFilter, Traced, TreeLimits};
use millrace_wire::{JsonBytes, Result};
use serde::Serialize;

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

#[derive(Serialize)]
struct TraceDoc<'t> {
    event: String,
    direction: &'static str,
    branches: Vec<BranchDoc<'t>>,
    records: u64,
    runs: u64,
    unknown: u64,
    entries: u64,
    next: Option<u64>,
}

#[derive(Serialize)]
struct BranchDoc<'t> {
    id: String,
    link: Option<&'static str>,
    above: Option<usize>,
    time: String,
    #[serde(flatten)]
    what: WhatDoc<'t>,
    more: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum WhatDoc<'t> {
    Record(RecordShown<'t>),
    Run(RunShown<'t>),
}

#[derive(Serialize)]
struct RecordShown<'t> {
    log: Option<&'t str>,
    seqno: u64,
    bytes: u64,
    /// Whether the data is only the beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    void: bool,
    #[serde(flatten)]
    data: Option<JsonBytes<'t>>,
}

#[derive(Serialize)]
struct RunShown<'t> {
    function: Option<&'t str>,
    state: Option<&'static str>,
    attempts: u64,
    began: Option<String>,
    ended: Option<String>,
    code: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed_by: Option<u64>,
}

impl<'t> BranchDoc<'t> {
    fn of(branch: &'t TraceBranch) -> Self {
        let link = match branch.link {
            Link::Root => None,
            Link::Triggered => Some("triggered"),
            Link::Read => Some("read"),
            Link::Appended => Some("appended"),
            Link::Forwarded => Some("forwarded"),
            Link::Claimed => Some("claimed"),
        };
        let what = match &branch.what {
            Traced::Record { log, seqno, bytes, data, repair } => WhatDoc::Record(RecordShown {
                log: log.as_deref(),
                seqno: *seqno,
                bytes: *bytes,
                cut: data.as_ref().is_some_and(|data| (data.len() as u64) < *bytes),
                repair: repair.map(|(repair, _)| repair),
                void: repair.is_some_and(|(_, void)| void),
                data: data.as_deref().map(JsonBytes),
            }),
            Traced::Run { function, state, attempts, began, ended, code, replayed } => WhatDoc::Run(RunShown {
                function: function.as_deref(),
                state: state.map(state_word),
                attempts: *attempts,
                began: began.map(rfc3339),
                ended: ended.map(rfc3339),
                code: code.as_deref(),
                replayed_by: *replayed,
            }),
        };
        Self { id: branch.id.to_string(), link, above: branch.above, time: rfc3339(branch.at), what, more: branch.more }
    }
}

/// The tree of an event as JSON text; `check` fails once the caller no longer waits.
pub(super) fn text(
    namespace: &Namespace,
    event: &str,
    filter: &TraceFilter,
    check: &dyn Fn() -> Result<()>,
) -> Result<String> {
    let trace = millrace_node::trace(namespace, event, filter, check)?;
    let Trace { branches, records, runs, unknown, entries, next } = &trace;
    super::text(&TraceDoc {
        event: branches.first().and_then(|root| id_text(root.id)).unwrap_or_default(),
        direction: if filter.up { "causes" } else { "effects" },
        branches: branches.iter().map(BranchDoc::of).collect(),
        records: *records,
        runs: *runs,
        unknown: *unknown,
        entries: *entries,
        next: next.map(Position::get),
    })
}
