//! What an event caused, and what it came from: a tree, from a part of the journal around the event.
//!
//! One request reads at most [`ENTRIES_MAX`] entries, whatever the journal has. What lies beyond is counted as missing or can be asked for:
//! a branch is an event that can be asked about as well, and the effects go on behind the last entry that was read.

use crate::repairs::{self, Phase};
use millrace_causality::{Builder, Event, History, Link, Place, Table, Tree, TreeLimits};
use millrace_journal::{Entry, Kind, Outcome, Position};
use millrace_namespace::{Namespace, RunState};
use millrace_security::check::is_secret;
use millrace_wire::{Code, EventId, Hlc, LogName, Result};

/// Most entries that one request reads.
pub const ENTRIES_MAX: u64 = 65_536;
/// How many of them lie behind an event whose causes are asked for: a run reads after it was triggered.
const BEHIND: u64 = ENTRIES_MAX / 4;
/// The longest shown beginning of a record.
const VALUE_MAX_BYTES: usize = 4096;

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

/// A part of what an event caused, or of what it came from.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The branches; the first is the event itself, and each comes after the one above it.
    pub branches: Vec<TraceBranch>,
    /// How many records the tree has, shown or not.
    pub records: u64,
    /// How many runs.
    pub runs: u64,
    /// How many causes are not among the entries that were read.
    pub unknown: u64,
    /// How many entries were read.
    pub entries: u64,
    /// Where to go on, if the journal has more entries behind those that were read.
    pub next: Option<Position>,
}

/// A record or a run.
#[derive(Clone, Debug)]
pub struct TraceBranch {
    /// Its id.
    pub id: EventId,
    /// How it hangs on the branch above.
    pub link: Link,
    /// The number of that branch; of the first, none.
    pub above: Option<usize>,
    /// When it was.
    pub at: Hlc,
    /// What it is.
    pub what: Traced,
    /// How many records and runs below it are not shown.
    pub more: u64,
}

/// What a branch is.
#[derive(Clone, Debug)]
pub enum Traced {
    /// A record.
    Record {
        /// Its log, unless that was removed.
        log: Option<String>,
        /// Its number.
        seqno: u64,
        /// How many bytes it has.
        bytes: u64,
        /// Their beginning; nothing if nobody may read it, or it is gone.
        data: Option<Vec<u8>>,
        /// The repair in force that gave it its value, or removed it.
        repair: Option<(u64, bool)>,
    },
    /// A run.
    Run {
        /// Its function, unless that was removed.
        function: Option<String>,
        /// Its state; nothing if the entries that tell it are gone.
        state: Option<RunState>,
        /// How many attempts there were.
        attempts: u64,
        /// When the last one began.
        began: Option<Hlc>,
        /// When it ended.
        ended: Option<Hlc>,
        /// The error for which it was given up.
        code: Option<String>,
        /// The repair that replayed it.
        replayed: Option<u64>,
    },
}

/// Traces the event of an id, or the record `LOG@SEQNO`.
pub fn trace(
    namespace: &Namespace,
    event: &str,
    filter: &TraceFilter,
    check: &dyn Fn() -> Result<()>,
) -> Result<Trace> {
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
        branches.push(TraceBranch {
            id: history.id(branch.place),
            link: branch.link,
            above: (number > 0).then_some(branch.above),
            at: history.row(branch.place).hlc(),
            what: traced(namespace, &history, branch.place)?,
            more: branch.more,
        });
    }
    let next = (read.end < journal.tail() && !filter.up).then_some(read.end);
    let Tree { records, runs, unknown, .. } = tree;
    Ok(Trace { branches, records, runs, unknown, entries: read.entries, next })
}

fn find(namespace: &Namespace, event: &str) -> Result<Entry> {
    let journal = namespace.journal();
    let gone = || Code::EventNotKept.error(format!("the journal has no event '{}'", event.escape_debug()));
    if let Ok(id) = event.parse::<EventId>() {
        return journal.find(id)?.ok_or_else(gone);
    }
    let Some((log, seqno)) = event.rsplit_once('@') else { return Err(gone()) };
    let log = namespace.log(&log.parse::<LogName>()?)?;
    let seqno: u64 = seqno.parse().ok().filter(|seqno| *seqno > 0).ok_or_else(gone)?;
    let mut payload = Vec::new();
    let record = journal.get(&log, seqno, &mut payload)?;
    // The log shows a repaired record in its slot, and the tree hangs on the original.
    let original = journal.position(&log, seqno);
    match journal.entry_at(original) {
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

fn traced(namespace: &Namespace, history: &History, place: Place) -> Result<Traced> {
    let (table, row, id) = (history.table(place), history.row(place), history.id(place));
    if row.is(Kind::Trigger) {
        let replay = table.replay(place.row);
        // The run's own entries may lie beyond those that were read.
        let view = match namespace.run(id) {
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
        return Ok(Traced::Run {
            function: table.function_name(row.subject).map(Into::into),
            state: state.or(view.as_ref().map(|view| view.state)),
            attempts: view.as_ref().map_or(0, |view| view.attempts.len() as u64),
            began: view.as_ref().and_then(|view| view.attempts.last()).map(|attempt| attempt.at),
            ended: view.as_ref().and_then(|view| view.ended),
            code,
            replayed: replay.map(|replay| replay.repair),
        });
    }
    let log = table.log_name(row.subject).map(String::from);
    let version = table.version(place.row);
    let shown = version.map_or(id, |version| table.id(version.row));
    let bytes = version.map_or(row, |version| table.row(version.row)).record_bytes();
    let is_hidden = log.as_deref().is_some_and(is_secret) || version.is_some_and(|version| version.void);
    let found = if is_hidden { None } else { namespace.journal().find(shown)? };
    let data = found.map(|entry| {
        let mut data = entry.payload;
        // A text that is cut stays a text.
        let mut length = data.len().min(VALUE_MAX_BYTES);
        while length < data.len() && data[length] & 0xC0 == 0x80 && length > VALUE_MAX_BYTES - 4 {
            length -= 1;
        }
        data.truncate(length);
        data
    });
    let repair = version.map(|version| (version.repair, version.void));
    Ok(Traced::Record { log, seqno: row.seqno, bytes, data, repair })
}
