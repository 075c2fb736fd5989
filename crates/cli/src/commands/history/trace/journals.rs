//! A tree from the journals that the command reads.

use super::super::sources::{Sources, Stored};
use millrace_causality::{Place, Tree};
use millrace_documents::{KeyText, TraceBranchDoc, TraceDoc, TracedRecordDoc, TracedRunDoc, ValueDoc, rfc3339};
use millrace_journal::{Kind, Outcome as Ended};
use millrace_node::{Hlc, Result, link_word};
use std::collections::HashMap;

/// The state of a run.
#[derive(Clone, Copy, Default)]
struct Course {
    /// When its last attempt began.
    began: Option<Hlc>,
    attempts: u64,
    ended: Option<Hlc>,
    /// How it ended: the last time that it was replayed, if it was.
    outcome: Option<(Ended, u16)>,
    /// The repair that replayed it.
    replayed: Option<u64>,
}

impl Course {
    fn state(&self) -> &'static str {
        match (self.outcome, self.began) {
            (Some((Ended::Done, _)), _) => "done",
            (Some((Ended::Dead, _)), _) => "dead",
            (Some((Ended::Cancelled, _)), _) => "cancelled",
            (None, Some(_)) => "started",
            (None, None) => "pending",
        }
    }

    fn code(&self) -> Option<String> {
        let (_, code) = self.outcome.filter(|(_, code)| *code != 0)?;
        Some(format!("MR{code:04}"))
    }
}

/// The tree as a document.
pub fn document(sources: &Sources, tree: &Tree, up: bool) -> Result<TraceDoc> {
    let (history, courses) = (&sources.history, courses(sources, tree));
    let mut branches = Vec::with_capacity(tree.branches.len());
    for (number, branch) in tree.branches.iter().enumerate() {
        let (place, row) = (branch.place, history.row(branch.place));
        let mut doc = TraceBranchDoc {
            id: history.id(place).to_string(),
            link: link_word(branch.link).map(Into::into),
            above: (number > 0).then_some(branch.above),
            time: rfc3339(row.hlc()),
            more: branch.more,
            ..TraceBranchDoc::default()
        };
        match courses.get(&place) {
            Some(course) => {
                doc.run = Some(TracedRunDoc {
                    function: history.table(place).function_name(row.subject).map(Into::into),
                    state: Some(course.state().into()),
                    attempts: course.attempts,
                    began: course.began.map(rfc3339),
                    ended: course.ended.map(rfc3339),
                    code: course.code(),
                    replayed_by: course.replayed,
                });
            }
            None => doc.record = Some(record(sources, place)?),
        }
        branches.push(doc);
    }
    Ok(TraceDoc {
        event: branches.first().map(|root| root.id.clone()).unwrap_or_default(),
        direction: if up { "causes" } else { "effects" }.into(),
        branches,
        records: tree.records,
        runs: tree.runs,
        unknown: tree.unknown,
        ..TraceDoc::default()
    })
}

/// How the runs of a tree went.
fn courses(sources: &Sources, tree: &Tree) -> HashMap<Place, Course> {
    let history = &sources.history;
    let runs = tree.branches.iter().filter(|branch| history.row(branch.place).is(Kind::Trigger));
    let mut courses: HashMap<Place, Course> = runs.map(|branch| (branch.place, Course::default())).collect();
    for (place, course) in &mut courses {
        let table = history.table(*place);
        if let Some(replay) = table.replay(place.row) {
            course.replayed = Some(replay.repair);
            course.outcome = table.row(replay.row).outcome();
        }
    }
    for (at, table) in history.tables().iter().enumerate() {
        for number in 0..table.len() {
            let row = table.row(number);
            let is_course = row.is(Kind::Fired) || row.is(Kind::Done);
            let Some(run) = Some(number).filter(|_| is_course).and_then(|number| table.run_of(number)) else {
                continue;
            };
            let Some(course) = courses.get_mut(&Place { table: at as u32, row: run }) else { continue };
            if let Some(outcome) = row.outcome() {
                course.ended = course.ended.or(Some(row.hlc()));
                course.outcome = course.outcome.or(Some(outcome));
            } else if row.attempt().is_some_and(|(_, waits)| !waits) {
                course.attempts += 1;
                course.began = Some(row.hlc());
            }
        }
    }
    courses
}

/// A record, with its value now and before a repair.
fn record(sources: &Sources, place: Place) -> Result<TracedRecordDoc> {
    let (table, row) = (sources.history.table(place), sources.history.row(place));
    let version = table.version(place.row);
    let shown = |stored: Option<Stored>, bytes: u64| {
        stored.map_or_else(|| ValueDoc::hidden(bytes), |stored| ValueDoc::new(&stored.bytes, bytes))
    };
    let now = version.map_or(row, |version| table.row(version.row));
    Ok(TracedRecordDoc {
        log: table.log_name(row.subject).map(Into::into),
        seqno: row.seqno,
        key: table.key_bytes(place.row).map(|key| KeyText(key.into())),
        deleted: table.key(place.row).is_some_and(|key| key.is_deletion),
        repair: version.map(|version| version.repair),
        void: version.is_some_and(|version| version.void),
        value: shown(sources.value(place)?, now.record_bytes()),
        original: match version {
            Some(_) => Some(shown(sources.original(place)?, row.record_bytes())),
            None => None,
        },
    })
}
