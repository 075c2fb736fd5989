//! The repairs and their progress: records in a log of the runtime. A repair's number is the seqno of its first record.

use crate::open::Correction;
use millrace_journal::{Kind, Log, Position, Transaction};
use millrace_namespace::{Definition, Namespace, found, names};
use millrace_wire::{Code, EventId, Hlc, LogName, Name, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The log.
pub(crate) const LOG: &str = names::REPAIRS;
/// Notes that it keeps.
const HISTORY: u64 = 100_000;

/// The results of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Runs that were replayed.
    pub replayed: u64,
    /// Those of them whose records did not change.
    pub same: u64,
    /// Those of them that failed; each has a dead letter.
    #[serde(default)]
    pub failed: u64,
    /// Runs whose record became void.
    pub cancelled: u64,
    /// Records that have another value.
    pub replaced: u64,
    /// Records that became void.
    pub void: u64,
    /// Records that are appended when it is applied.
    pub appended: u64,
}

/// The progress of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The runs that were examined.
    pub examined: u64,
    /// The runs that have ended.
    pub runs: u64,
}

/// Affected runs that are not replayed. Their records stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// Their function.
    pub function: Name,
    /// How many.
    pub runs: u64,
    /// Whether they cannot be replayed, and nobody could decide about that. Otherwise they may have effects outside the namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unable: bool,
    /// Whether they ran on devices, and have no twin here that could take their place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device: bool,
}

/// A topic that keeps its records although those of a log change that feeds it, or that is its mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicKept {
    /// The log.
    pub log: String,
    /// The topic.
    pub topic: String,
}

/// New code for the past runs of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewCode {
    /// The function.
    pub function: u32,
    pub name: Name,
    /// The definition that its runs are replayed with, and that applies from the switch on.
    pub attributes: String,
    /// The definition that it replaces, and its revision: the function must not have been deployed since.
    pub before: String,
    pub revision: u32,
    /// Runs that were FIRED at this sequence or later are replayed.
    pub since: u64,
    /// Only runs of this revision are replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
}

/// The code that an applied repair gave runs that had ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeGiven {
    /// Their function.
    pub function: u32,
    /// The sequence of the first FIRED for which it counts.
    pub since: u64,
    /// The only revision for which it counts, if there is one.
    pub only: Option<u32>,
    /// The revision that it deployed.
    pub revision: u32,
}

impl CodeGiven {
    /// Whether it gave its code to a run of a revision of its function that was FIRED at this sequence.
    pub fn is_for(&self, function: u32, revision: u32, sequence: u64) -> bool {
        let is_it = self.only.is_none_or(|only| only == revision);
        self.function == function && is_it && revision < self.revision && sequence >= self.since
    }
}

/// One note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "kebab-case")]
pub(crate) enum Note {
    /// A repair begins; its corrections follow.
    Open {
        reason: String,
        /// The log that is corrected; `None` for a rollback.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<LogName>,
        records: u64,
        /// The repair that this one rolls back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<u64>,
        /// The code that it replaces.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<NewCode>,
        /// Whether additional records of replayed runs are appended when it is applied.
        #[serde(default)]
        append_new: bool,
        /// Whether it is applied as soon as it is replayed: its corrections are amendments.
        #[serde(default)]
        auto: bool,
        /// The addresses of the namespaces that take part in it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        across: Vec<String>,
        /// The repair of another namespace that this one is a part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part_of: Option<PartOf>,
        /// The late records that it corrects, if it follows another repair of this namespace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        late_of: Option<LateOf>,
        /// Whether records that have left a participant's journal may keep their old values there.
        #[serde(default)]
        accept_unknown: bool,
        /// Functions that are replayed although they may have effects outside.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        run_external: Vec<Name>,
        /// The pin that protects the past from retention.
        pin: u32,
    },
    /// All corrections are in the journal: the host must replay.
    Run { repair: u64 },
    /// The progress of the replay.
    Progress { repair: u64, counts: Counts, progress: Progress },
    /// All runs are replayed that depended on the corrections and on this many seeds.
    Ready {
        repair: u64,
        counts: Counts,
        #[serde(default)]
        seeds: Covered,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_run: Vec<NotRun>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        topics: Vec<TopicKept>,
    },
    /// It cannot continue.
    Stopped { repair: u64, code: String, error: String },
    /// The host must apply it.
    Apply { repair: u64 },
    /// The host must prepare a part: replay newer runs behind a fence, and promise to switch.
    Prepare { repair: u64 },
    /// The part is prepared: its initiator decides.
    Prepared {
        repair: u64,
        counts: Counts,
        seeds: Covered,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_run: Vec<NotRun>,
    },
    /// The initiator has switched: the host must apply the part.
    Commit { repair: u64 },
    /// A problem of a participant, or that it knows the outcome.
    Member {
        repair: u64,
        address: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<(String, String)>,
        #[serde(default)]
        done: bool,
    },
    /// It is applied; the note is in the batch of its GENERATION. With the revision of the function that has its code.
    Applied {
        repair: u64,
        counts: Counts,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deployed: Option<u32>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        not_run: Vec<NotRun>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        topics: Vec<TopicKept>,
        #[serde(default)]
        late: bool,
    },
    /// It is abandoned.
    Abandoned { repair: u64 },
    /// The data for a rollback is no longer kept.
    Closed { repair: u64 },
}

/// The phase of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Its corrections are not complete: the process that opened it ended in between.
    Open,
    /// The host replays what depends on it.
    Running,
    /// It can be shown, applied or abandoned.
    Ready,
    /// It cannot continue; nothing was changed.
    Stopped,
    /// The host replays newer runs, and applies it.
    Applying,
    /// Of a part: the host replays newer runs, and prepares to switch.
    Preparing,
    /// Of a part: it switches when its initiator has switched.
    Prepared,
    /// Of a part: the initiator has switched, and the host applies it.
    Committing,
    /// It is applied, and can be rolled back.
    Applied,
    /// It was rolled back.
    RolledBack,
    /// It was abandoned; nothing was changed.
    Abandoned,
    /// It is applied permanently.
    Closed,
}

impl Phase {
    /// Whether it prevents another repair.
    pub fn is_open(self) -> bool {
        use Phase::{Applying, Committing, Open, Prepared, Preparing, Ready, Running, Stopped};
        matches!(self, Open | Running | Ready | Stopped | Applying | Preparing | Prepared | Committing)
    }

    /// Whether the host has something to do.
    pub fn is_moving(self) -> bool {
        use Phase::{Applying, Committing, Preparing, Running};
        matches!(self, Running | Applying | Preparing | Committing)
    }

    /// The name of the phase.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Open => "open",
            Phase::Running => "running",
            Phase::Ready => "ready",
            Phase::Stopped => "stopped",
            Phase::Applying => "applying",
            Phase::Preparing => "preparing",
            Phase::Prepared => "prepared",
            Phase::Committing => "committing",
            Phase::Applied => "applied",
            Phase::RolledBack => "rolled-back",
            Phase::Abandoned => "abandoned",
            Phase::Closed => "closed",
        }
    }
}

/// The repair of another namespace that a part belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartOf {
    /// The namespace's id.
    pub namespace: String,
    /// The repair's number there.
    pub repair: u64,
    /// When it was opened there, in microseconds since 1970: a namespace that is put back from an older copy gives another repair this number.
    /// Versions before this one do not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<u64>,
}

impl PartOf {
    /// Whether both name the same repair. Their times are compared only if both have one.
    pub fn is(&self, other: &Self) -> bool {
        let is_number = (&self.namespace, self.repair) == (&other.namespace, other.repair);
        is_number && self.at_us.zip(other.at_us).is_none_or(|(at_us, of_other)| at_us == of_other)
    }
}

/// The records that a participant sent between its promise to switch and its switch, while its fence was down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateOf {
    /// The repair.
    pub repair: u64,
    /// The address of the namespace.
    pub address: String,
}

/// A namespace that takes part in a repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its address.
    pub address: String,
    /// Why it does not answer, or what it waits for: a code and a detail.
    pub error: Option<(String, String)>,
    /// Whether it knows the outcome.
    pub done: bool,
}

/// How many seeds a part has received, and how many of them name records that are not in its journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// How many were received.
    pub taken: u64,
    /// How many of them found no record.
    pub missing: u64,
}

/// A repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// Its number.
    pub repair: u64,
    /// Its state.
    pub phase: Phase,
    /// The reason that was given when it was opened.
    pub reason: String,
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// The log that it corrects.
    pub log: Option<LogName>,
    /// The function whose code it replaces.
    pub function: Option<Name>,
    /// How many records it corrects.
    pub records: u64,
    /// The repair that it rolls back.
    pub undo: Option<u64>,
    /// Whether it is applied as soon as it is replayed: its corrections are amendments.
    pub auto: bool,
    /// The results of its replay.
    pub counts: Counts,
    /// The progress of the replay, if it takes long.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Why it stopped: the code and a detail.
    pub error: Option<(String, String)>,
    /// The namespaces that take part in it.
    pub across: Vec<Member>,
    /// The repair of another namespace that it is a part of.
    pub part_of: Option<PartOf>,
    /// The late records that it corrects, if it follows another repair: it is applied as soon as it is replayed.
    #[serde(default)]
    pub late_of: Option<LateOf>,
    /// Of a part: whether it has replayed runs after its promise to switch, so that the others do not know yet what changed.
    #[serde(default)]
    pub late: bool,
    /// Of a part: the changed records of other namespaces that it has received.
    pub seeds: Covered,
    /// Functions that are replayed although they may have effects outside.
    #[serde(default)]
    pub run_external: Vec<Name>,
    /// Runs that are not replayed.
    #[serde(default)]
    pub not_run: Vec<NotRun>,
    /// Topics that keep old records: a repair changes no topic.
    #[serde(default)]
    pub topics: Vec<TopicKept>,
    /// Why the host cannot continue now, while it tries again: the code and a detail.
    #[serde(default)]
    pub waits: Option<(String, String)>,
    #[serde(skip)]
    pub(crate) accept_unknown: bool,
    /// Of a part: the number of its last promise to switch.
    #[serde(skip)]
    prepared: Option<u64>,
    /// The pin that protects the past from retention.
    #[serde(skip)]
    pub(crate) pin: u32,
    #[serde(skip)]
    pub(crate) code: Option<NewCode>,
    #[serde(skip)]
    pub(crate) append_new: bool,
    /// The revision of the function that has its code.
    #[serde(skip)]
    pub(crate) deployed: Option<u32>,
}

impl Repair {
    /// Whether namespaces that take part in it do not know its outcome yet.
    pub fn has_news_for_others(&self) -> bool {
        let is_decided = matches!(self.phase, Phase::Applied | Phase::Closed | Phase::RolledBack | Phase::Abandoned);
        is_decided && self.across.iter().any(|member| !member.done)
    }

    /// Whether its host replays messages to other namespaces: their receivers learn what changes.
    pub(crate) fn is_across(&self) -> bool {
        !self.across.is_empty() || self.part_of.is_some()
    }

    /// The code that it gave runs, if it is applied and did.
    pub fn given(&self) -> Option<CodeGiven> {
        let (code, revision) = (self.code.as_ref()?, self.deployed?);
        Some(CodeGiven { function: code.function, since: code.since, only: code.only, revision })
    }

    /// The function before this repair replaced its code, if it did.
    pub fn replaced(&self) -> Result<Option<Definition>> {
        let code = self.code.as_ref().filter(|_| self.deployed.is_some());
        code.map(|code| Definition::from_attributes(&code.name, &code.before)).transpose()
    }
}

/// Of applied repairs, in the order in which they were applied, each with the repair that it rolls back: those in force. A repair that was
/// rolled back is in force again once its rollback is rolled back.
pub fn in_force(applied: impl Iterator<Item = (u64, Option<u64>)>) -> Vec<u64> {
    let (mut undone, mut in_force) = (HashSet::new(), Vec::new());
    let applied: Vec<_> = applied.collect();
    for (number, undo) in applied.into_iter().rev() {
        if !undone.contains(&number) {
            in_force.push(number);
            undone.extend(undo);
        }
    }
    in_force.reverse();
    in_force
}

/// Stages a note.
pub(crate) fn note(tx: &mut Transaction<'_>, note: &Note) -> Result<u64> {
    let name = names::internal(LOG);
    let log = match tx.catalog().log(&name) {
        Some(log) => log.clone(),
        None => tx.create_log(&name, HISTORY)?,
    };
    let bytes = serde_json::to_vec(note).expect("numbers and text always make JSON");
    Ok(tx.append(&log, &bytes, EventId::NONE, 0)?.seqno)
}

/// Every repair of a namespace, the oldest first.
pub fn repairs(namespace: &Namespace) -> Result<Vec<Repair>> {
    let journal = namespace.journal();
    let catalog = journal.catalog()?;
    let Some(log) = catalog.log(LOG) else { return Ok(Vec::new()) };
    let mut repairs = read(namespace, log)?;
    repairs.iter_mut().filter(|repair| !repair.phase.is_moving()).for_each(|repair| repair.progress = None);
    // Nothing can be noted on a disk that refuses appends.
    for repair in repairs.iter_mut().filter(|repair| repair.phase.is_moving()) {
        repair.waits = journal.refusal_anywhere().map(|error| (error.code().id().into(), error.detail().into()));
    }
    Ok(repairs)
}

/// One repair.
pub fn repair(namespace: &Namespace, number: u64) -> Result<Repair> {
    let found = repairs(namespace)?.into_iter().find(|repair| repair.repair == number);
    found.ok_or_else(|| Code::RepairNotFound.error(format!("no repair {number}")))
}

/// How many notes there are, to detect new ones.
pub fn news(namespace: &Namespace) -> Result<u64> {
    Ok(namespace.journal().catalog()?.log(LOG).map_or(0, Log::latest))
}

/// The position of the first note of a repair.
pub(crate) fn position(namespace: &Namespace, number: u64) -> Result<Position> {
    let catalog = namespace.journal().catalog()?;
    found(catalog.log(LOG), LOG).map(|log| namespace.journal().position(log, number))
}

/// The position of a part's promise to switch: its initiator switched without knowing the entries after it. `None` for other repairs.
pub(crate) fn prepared(namespace: &Namespace, repair: &Repair) -> Result<Option<Position>> {
    let Some(noted) = repair.prepared else { return Ok(None) };
    let catalog = namespace.journal().catalog()?;
    found(catalog.log(LOG), LOG).map(|log| Some(namespace.journal().position(log, noted)))
}

/// How many corrections of a repair are in the journal.
pub(crate) fn corrections(namespace: &Namespace, number: u64) -> Result<u64> {
    let journal = namespace.journal();
    let catalog = journal.catalog()?;
    let begun = found(catalog.log(LOG), LOG).map(|log| journal.position(log, number))?;
    let (mut scan, mut count) = (journal.scan_all(begun), 0);
    while let Some(entry) = scan.next()? {
        count += u64::from(entry.shadow && entry.kind == Kind::Append && entry.repair() == Some(number));
    }
    Ok(count)
}

/// The corrections of a repair in the journal, those of records of this log.
pub(crate) fn corrections_of(namespace: &Namespace, number: u64, log: &Log) -> Result<Vec<Correction>> {
    let mut scan = namespace.journal().scan_all(position(namespace, number)?);
    let mut found = BTreeMap::new();
    while let Some(entry) = scan.next()? {
        let is_correction = entry.shadow && entry.kind == Kind::Append && entry.cause == EventId::NONE;
        if is_correction && entry.repair() == Some(number) && entry.subject == log.id() {
            let is_void = entry.replaced().is_some_and(|replaced| replaced.void);
            found.insert(entry.seqno, (!is_void).then(|| entry.payload.to_vec()));
        }
    }
    Ok(found.into_iter().map(|(seqno, value)| Correction { seqno, value }).collect())
}

fn read(namespace: &Namespace, log: &Log) -> Result<Vec<Repair>> {
    let mut repairs: Vec<Repair> = Vec::new();
    let mut payload = Vec::new();
    for seqno in log.earliest().max(1)..=log.latest() {
        let at = match namespace.journal().get(log, seqno, &mut payload) {
            Ok(meta) => meta.hlc,
            Err(error) if error.code() == Code::BelowHistory => continue,
            Err(error) => return Err(error),
        };
        let note: Note = serde_json::from_slice(&payload)
            .map_err(|error| Code::FormatVersion.error(format!("note {seqno} of log '{LOG}': {error}")))?;
        take(&mut repairs, seqno, at, note);
    }
    Ok(repairs)
}

fn take(repairs: &mut Vec<Repair>, seqno: u64, at: Hlc, note: Note) {
    let of = |repairs: &mut Vec<Repair>, number: u64, change: &dyn Fn(&mut Repair)| {
        // A repair whose first note has left the log has ended.
        if let Some(repair) = repairs.iter_mut().find(|repair| repair.repair == number) {
            change(repair);
        }
    };
    match note {
        #[rustfmt::skip]
        Note::Open {
            reason, log, records, undo, code, append_new, auto, across, part_of, late_of, accept_unknown, run_external, pin,
        } => {
            let member = |address| Member { address, error: None, done: false };
            repairs.push(Repair {
                repair: seqno,
                phase: Phase::Open,
                reason,
                at_us: at.wall_us(),
                log,
                function: code.as_ref().map(|code| code.name.clone()),
                records,
                undo,
                auto,
                counts: Counts::default(),
                progress: None,
                error: None,
                across: across.into_iter().map(member).collect(),
                part_of,
                late_of,
                late: false,
                seeds: Covered::default(),
                run_external,
                not_run: Vec::new(),
                topics: Vec::new(),
                waits: None,
                accept_unknown,
                prepared: None,
                pin,
                code,
                append_new,
                deployed: None,
            })
        }
        Note::Run { repair } => of(repairs, repair, &|repair| {
            (repair.phase, repair.error) = (Phase::Running, None);
        }),
        Note::Progress { repair, counts, progress } => of(repairs, repair, &|repair| {
            (repair.counts, repair.progress) = (counts, Some(progress));
        }),
        Note::Ready { repair, counts, seeds, not_run, topics } => of(repairs, repair, &|repair| {
            (repair.phase, repair.counts, repair.seeds) = (Phase::Ready, counts, seeds);
            repair.not_run.clone_from(&not_run);
            repair.topics.clone_from(&topics);
        }),
        Note::Stopped { repair, code, error } => of(repairs, repair, &|repair| {
            repair.error = Some((code.clone(), error.clone()));
            // A decision of its initiator is final.
            if repair.phase != Phase::Committing {
                repair.phase = Phase::Stopped;
            }
        }),
        Note::Apply { repair } => of(repairs, repair, &|repair| repair.phase = Phase::Applying),
        Note::Prepare { repair } => of(repairs, repair, &|repair| repair.phase = Phase::Preparing),
        Note::Prepared { repair, counts, seeds, not_run } => of(repairs, repair, &|repair| {
            (repair.phase, repair.counts, repair.seeds) = (Phase::Prepared, counts, seeds);
            repair.prepared = Some(seqno);
            repair.not_run.clone_from(&not_run);
        }),
        Note::Commit { repair } => of(repairs, repair, &|repair| repair.phase = Phase::Committing),
        Note::Member { repair, address, error, done } => of(repairs, repair, &|repair| {
            if let Some(member) = repair.across.iter_mut().find(|member| member.address == address) {
                (member.error, member.done) = (error.clone(), done);
            }
        }),
        Note::Applied { repair: number, counts, deployed, not_run, topics, late } => {
            of(repairs, number, &|repair| {
                (repair.phase, repair.counts, repair.deployed) = (Phase::Applied, counts, deployed);
                repair.late = late;
                repair.not_run.clone_from(&not_run);
                repair.topics.clone_from(&topics);
            });
            let undone = repairs.iter().find(|repair| repair.repair == number).and_then(|repair| repair.undo);
            undone.into_iter().for_each(|undone| of(repairs, undone, &|repair| repair.phase = Phase::RolledBack));
        }
        Note::Abandoned { repair } => of(repairs, repair, &|repair| repair.phase = Phase::Abandoned),
        Note::Closed { repair } => of(repairs, repair, &|repair| repair.phase = Phase::Closed),
    }
}
