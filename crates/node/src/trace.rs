//! What an event caused, and what it came from: a tree, from a part of the journal around the event.
//!
//! One request reads at most [`ENTRIES_MAX`] entries, whatever the journal has. What lies beyond is counted as missing or can be asked for:
//! a branch is an event that can be asked about as well, and the effects go on behind the last entry that was read.

use crate::{
    documents::state_word,
    repairs::{self, Phase},
};
use millrace_causality::{Builder, Event, History, Link, Place, Table, Tree, TreeLimits};
use millrace_documents::{KeyText, TraceBranchDoc, TraceDoc, TracedRecordDoc, TracedRunDoc, ValueDoc, rfc3339};
use millrace_journal::{Entry, Kind, Outcome, Position};
use millrace_namespace::{Namespace, RunState};
use millrace_security::check::is_secret;
use millrace_wire::{Code, EventId, LogName, Result};

/// Most entries that one request reads.
pub const ENTRIES_MAX: u64 = 65_536;
/// How many of them lie behind an event whose causes are asked for: a run reads after it was triggered.
const BEHIND: u64 = ENTRIES_MAX / 4;

/// What is asked about an event.
#[derive(Clone, Copy, Debug)]
pub struct TraceFilter {
    /// The causes, not the effects.
    pub up: bool,
    /// How much of the tree is shown.
    pub limits: TreeLimits,
    /// Where the entries begin that are searched for effects; nothing for the event itself.
    pub after: Option<Position>,
}

/// Traces the event of an id, or the record `LOG@SEQNO`.
pub fn trace(
    namespace: &Namespace,
    event: &str,
    filter: &TraceFilter,
    check: &dyn Fn() -> Result<()>,
) -> Result<TraceDoc> {
    let journal = namespace.journal();
    let root = find(namespace, event)?;
    let read = read(namespace, &root, filter, check)?;
    let history = History::new(vec![read.table]);
    let gone = || Code::EventNotKept.error(format!("event {} belongs to no known record or run", root.id));
    let place = history.find(root.id).ok_or_else(gone)?;
    let tree = match filter.up {
        true => Tree::causes(&history, place, filter.limits),
        false => Tree::effects(&history, place, filter.limits),
    };
    let tree = tree.ok_or_else(gone)?;
    let mut branches = Vec::with_capacity(tree.branches.len());
    for (number, branch) in tree.branches.iter().enumerate() {
        check()?;
        let mut doc = TraceBranchDoc {
            id: history.id(branch.place).to_string(),
            link: link_word(branch.link).map(Into::into),
            above: (number > 0).then_some(branch.above),
            time: rfc3339(history.row(branch.place).hlc()),
            more: branch.more,
            ..TraceBranchDoc::default()
        };
        match history.row(branch.place).is(Kind::Trigger) {
            true => doc.run = Some(run(namespace, &history, branch.place)?),
            false => doc.record = Some(record(namespace, &history, branch.place)?),
        }
        branches.push(doc);
    }
    let next = (read.end < journal.tail() && !filter.up).then_some(read.end.get());
    Ok(TraceDoc {
        event: branches.first().map(|root| root.id.clone()).unwrap_or_default(),
        direction: if filter.up { "causes" } else { "effects" }.into(),
        branches,
        records: tree.records,
        runs: tree.runs,
        unknown: tree.unknown,
        entries: read.entries,
        next,
    })
}

/// How an event hangs on the one above it, in documents.
pub fn link_word(link: Link) -> Option<&'static str> {
    match link {
        Link::Root => None,
        Link::Triggered => Some("triggered"),
        Link::Read => Some("read"),
        Link::Appended => Some("appended"),
        Link::Forwarded => Some("forwarded"),
        Link::Claimed => Some("claimed"),
    }
}

fn find(namespace: &Namespace, event: &str) -> Result<Entry> {
    let journal = namespace.journal();
    let gone = || Code::EventNotKept.error(format!("the journal has no event '{}'", event.escape_debug()));
    if let Ok(id) = event.parse::<EventId>() {
        return journal.find(id)?.ok_or_else(gone);
    }
    let (log, seqno) = match event.rsplit_once('@') {
        Some((log, seqno)) => {
            let wrong = || Code::SeqnoInvalid.error(format!("'{}' is not a sequence number", seqno.escape_debug()));
            (log, Some(seqno.parse().ok().filter(|seqno: &u64| *seqno > 0).ok_or_else(wrong)?))
        }
        None => (event, None),
    };
    let log = namespace.log(&log.parse::<LogName>()?)?;
    let seqno = seqno.unwrap_or_else(|| log.latest());
    // The log shows a repaired record in its slot, and the tree hangs on the original.
    if let Some(replaced) = journal.replaced(&log, seqno)? {
        return journal.find(replaced.origin)?.ok_or_else(gone);
    }
    let mut payload = Vec::new();
    let record = journal.get(&log, seqno, &mut payload)?;
    match journal.entry_at(journal.position(&log, seqno)) {
        Ok(entry) if entry.kind == Kind::Append && entry.seqno == seqno => Ok(entry),
        _ => journal.find(record.id)?.ok_or_else(gone),
    }
}

struct Read {
    table: Table,
    entries: u64,
    end: Position,
}

/// The entries around an event.
fn read(namespace: &Namespace, root: &Entry, filter: &TraceFilter, check: &dyn Fn() -> Result<()>) -> Result<Read> {
    let journal = namespace.journal();
    let (catalog, tail) = (journal.catalog()?, journal.tail());
    let mut builder = Builder::new(journal.namespace());
    catalog.logs().for_each(|log| builder.name_log(log.id(), log.name()));
    catalog.functions().for_each(|function| builder.name_function(function.id(), function.name()));
    let applied = repairs::repairs(namespace)?;
    let applied = applied.iter().filter(|it| matches!(it.phase, Phase::Applied | Phase::Closed | Phase::RolledBack));
    repairs::in_force(applied.map(|it| (it.repair, it.undo))).into_iter().for_each(|repair| builder.in_force(repair));
    let (from, most) = match (filter.up, filter.after) {
        // A copy has no neighbours that tell anything of its causes.
        (true, _) if root.carried => (root.position, BEHIND),
        (true, _) => (journal.in_front(root.position, ENTRIES_MAX - BEHIND)?, ENTRIES_MAX),
        (false, Some(after)) if after > root.position => {
            builder.push(&Event::from(root))?;
            builder.damaged();
            (after, ENTRIES_MAX - 1)
        }
        (false, _) => (root.position, ENTRIES_MAX),
    };
    let mut scan = journal.scan_all(from);
    let mut entries = 0;
    while scan.position() < tail && entries < most {
        if entries % 256 == 0 {
            check()?;
        }
        entries += 1;
        match scan.next() {
            Ok(Some(entry)) => builder.push(&entry.into())?,
            Ok(None) => break,
            Err(error) if error.code() == Code::EntryDamaged => builder.damaged(),
            Err(error) => return Err(error),
        }
        if scan.gap() {
            builder.damaged();
        }
    }
    Ok(Read { table: builder.finish(), entries, end: scan.position() })
}

/// A run, with what its own entries tell; they may lie beyond those that were read.
fn run(namespace: &Namespace, history: &History, place: Place) -> Result<TracedRunDoc> {
    let (table, row) = (history.table(place), history.row(place));
    let replay = table.replay(place.row);
    let view = match namespace.run(history.id(place)) {
        Err(error) if error.code() == Code::RunNotFound => None,
        view => Some(view?),
    };
    let outcome = replay.and_then(|replay| table.row(replay.row).outcome());
    let state = outcome.map(|(outcome, _)| match outcome {
        Outcome::Done => RunState::Done,
        Outcome::Dead => RunState::Dead,
        Outcome::Cancelled => RunState::Cancelled,
    });
    let dead = view.as_ref().and_then(|view| view.ending.as_ref()?.dead.as_ref());
    let code = match outcome {
        Some((_, code)) => (code != 0).then(|| format!("MR{code:04}")),
        None => dead.map(|dead| dead.code.clone()),
    };
    Ok(TracedRunDoc {
        function: table.function_name(row.subject).map(Into::into),
        state: state.or(view.as_ref().map(|view| view.state)).map(|state| state_word(state).into()),
        attempts: view.as_ref().map_or(0, |view| view.attempts.len() as u64),
        began: view.as_ref().and_then(|view| view.attempts.last()).map(|attempt| rfc3339(attempt.at)),
        ended: view.as_ref().and_then(|view| view.ended).map(rfc3339),
        code,
        replayed_by: replay.map(|replay| replay.repair),
    })
}

/// A record, with its value now and before a repair.
fn record(namespace: &Namespace, history: &History, place: Place) -> Result<TracedRecordDoc> {
    let (table, row) = (history.table(place), history.row(place));
    let log = table.log_name(row.subject).map(String::from);
    let version = table.version(place.row);
    let is_hidden = log.as_deref().is_some_and(is_secret);
    let value = |row: u32, is_hidden: bool| -> Result<ValueDoc> {
        let bytes = table.row(row).record_bytes();
        let found = if is_hidden { None } else { namespace.journal().find(table.id(row))? };
        Ok(found.map_or_else(|| ValueDoc::hidden(bytes), |entry| ValueDoc::new(&entry.payload, bytes)))
    };
    Ok(TracedRecordDoc {
        log,
        seqno: row.seqno,
        key: table.key_bytes(place.row).filter(|_| !is_hidden).map(|key| KeyText(key.into())),
        deleted: table.key(place.row).is_some_and(|key| key.is_deletion),
        repair: version.map(|version| version.repair),
        void: version.is_some_and(|version| version.void),
        value: match version {
            Some(version) => value(version.row, is_hidden || version.void)?,
            None => value(place.row, is_hidden)?,
        },
        original: version.map(|_| value(place.row, is_hidden)).transpose()?,
    })
}
