//! What a correction would change, found in the background by reading the journal. It changes nothing.
//!
//! One plan is made at a time, since it holds an index of the whole journal, and the newest are kept in memory.

use super::{Correction, Phase, Request, SLOTS_MAX, check_functions, in_force, repairs, too_old, topics};
use crate::{devices::still_on_devices_of, links::Links, secrets::FunctionSecrets};
use millrace_causality::{
    Attempted, Builder, Candidate, Changes, Class, Discovery, Kept, Reason, Rewritten, Settings, Table, discover,
};
use millrace_dispatch::functions::check_code;
use millrace_documents::{
    CopyDoc, CorrectsDoc, EstimateDoc, OverwritesDoc, PlanDoc, PlanFoundDoc, PlanState, ReplayDoc, RewritesDoc, rfc3339,
};
use millrace_journal::Position;
use millrace_namespace::Namespace;
use millrace_wire::{Address, Code, Hlc, LogName, Result};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// How many plans are kept.
const KEPT_MAX: usize = 8;
/// Most entries of a journal for which a host makes a plan: its index has about 50 bytes for each.
const ENTRIES_MAX: u64 = 20_000_000;
/// Bytes of an entry that a repair writes, beside its payload: a header and an extension.
const ENTRY_BYTES: u64 = 64 + 48;
/// Entries of a replayed run beside its records: what it read, and its end.
const ENTRIES_PER_RUN: u64 = 2;

/// The plans that a host has made for a namespace, or makes.
#[derive(Default)]
pub(crate) struct Plans(Mutex<Made>);

#[derive(Default)]
struct Made {
    last: u64,
    plans: VecDeque<Arc<Plan>>,
}

struct Plan {
    number: u64,
    at: Hlc,
    log: LogName,
    corrections: u64,
    read: AtomicU64,
    of: AtomicU64,
    cancelled: AtomicBool,
    end: OnceLock<Result<PlanFoundDoc>>,
}

impl Drop for Plans {
    fn drop(&mut self) {
        self.made().plans.iter().for_each(|plan| plan.cancelled.store(true, Relaxed));
    }
}

impl Plans {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to make a plan.
    pub fn start(&self, namespace: &Namespace, request: Request) -> Result<PlanDoc> {
        check_functions(namespace, &request.across, &request.run_external)?;
        let mut made = self.made();
        if let Some(other) = made.plans.iter().find(|plan| plan.end.get().is_none()) {
            return Err(Code::PlanBusy.error(format!("plan {} of log '{}' is being made", other.number, other.log)));
        }
        let plan = Arc::new(Plan {
            number: made.last + 1,
            at: namespace.journal().clock(),
            log: request.log.clone(),
            corrections: request.corrections.len() as u64,
            read: AtomicU64::new(0),
            of: AtomicU64::new(namespace.journal().tail().get()),
            cancelled: AtomicBool::new(false),
            end: OnceLock::new(),
        });
        let (of_thread, namespace) = (plan.clone(), namespace.clone());
        let work = move || {
            let found = find(&namespace, request, &of_thread);
            let _ = of_thread.end.set(found);
        };
        millrace_threads::spawn(thread::Builder::new().name("millrace-plan".into()), work)
            .map_err(|error| Code::HostInternal.error(format!("a thread could not be started: {error}")))?;
        made.last = plan.number;
        made.plans.push_back(plan.clone());
        if made.plans.len() > KEPT_MAX {
            made.plans.pop_front();
        }
        Ok(plan.doc())
    }

    /// A plan as it is.
    pub fn show(&self, number: u64) -> Result<PlanDoc> {
        self.plan(number).map(|plan| plan.doc())
    }

    /// The log that a plan corrects.
    pub fn log(&self, number: u64) -> Result<LogName> {
        self.plan(number).map(|plan| plan.log.clone())
    }

    /// Stops making a plan.
    pub fn cancel(&self, number: u64) -> Result<PlanDoc> {
        let plan = self.plan(number)?;
        plan.cancelled.store(true, Relaxed);
        Ok(plan.doc())
    }

    /// The plans that are kept.
    pub fn list(&self) -> Vec<PlanDoc> {
        self.made().plans.iter().map(|plan| PlanDoc { found: None, ..plan.doc() }).collect()
    }

    fn plan(&self, number: u64) -> Result<Arc<Plan>> {
        let found = self.made().plans.iter().find(|plan| plan.number == number).cloned();
        found.ok_or_else(|| Code::PlanNotFound.error(format!("no plan {number}")))
    }
}

impl Plan {
    fn check(&self) -> Result<()> {
        match self.cancelled.load(Relaxed) {
            false => Ok(()),
            true => Err(Code::PlanNotFound.error("the plan was cancelled")),
        }
    }

    fn doc(&self) -> PlanDoc {
        let end = self.end.get();
        let state = match end {
            _ if self.cancelled.load(Relaxed) && !matches!(end, Some(Ok(_))) => PlanState::Cancelled,
            None => PlanState::Running,
            Some(Ok(_)) => PlanState::Done,
            Some(Err(_)) => PlanState::Failed,
        };
        let error = end.and_then(|end| end.as_ref().err()).filter(|_| state == PlanState::Failed);
        PlanDoc {
            plan: self.number,
            state,
            at: rfc3339(self.at),
            log: self.log.to_string(),
            corrections: self.corrections,
            read_bytes: self.read.load(Relaxed),
            of_bytes: self.of.load(Relaxed),
            error: error.map(Into::into),
            found: end.and_then(|end| end.as_ref().ok()).cloned(),
        }
    }
}

/// Reads the journal into a table.
fn read(namespace: &Namespace, plan: &Plan) -> Result<Table> {
    let journal = namespace.journal();
    let (tail, catalog) = (journal.tail(), journal.catalog()?);
    let mut builder = Builder::new(journal.namespace());
    catalog.logs().for_each(|log| builder.name_log(log.id(), log.name()));
    catalog.functions().for_each(|function| builder.name_function(function.id(), function.name()));
    let applied = repairs(namespace)?;
    let applied = applied.iter().filter(|it| matches!(it.phase, Phase::Applied | Phase::Closed | Phase::RolledBack));
    in_force(applied.map(|it| (it.repair, it.undo))).into_iter().for_each(|repair| builder.in_force(repair));
    let mut scan = journal.scan_all(Position::default());
    let begin = scan.position().get();
    plan.of.store(tail.get().saturating_sub(begin), Relaxed);
    let mut entries = 0;
    while scan.position() < tail {
        if entries % 1024 == 0 {
            plan.check()?;
            plan.read.store(scan.position().get().saturating_sub(begin), Relaxed);
        }
        entries += 1;
        if entries > ENTRIES_MAX {
            return Err(Code::PlanTooLarge.error(format!("the journal has more than {ENTRIES_MAX} entries")));
        }
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
    plan.read.store(plan.of.load(Relaxed), Relaxed);
    Ok(builder.finish())
}

/// The settings of functions now, with their revisions and how many of their runs are executed at once.
type SettingsNow = HashMap<u32, (Settings, u32, u32)>;

fn functions(namespace: &Namespace) -> Result<SettingsNow> {
    let catalog = namespace.journal().catalog()?;
    let mut functions = HashMap::new();
    for stat in namespace.functions()? {
        let (Ok(definition), Some(function)) = (&stat.definition, catalog.function(&stat.name)) else { continue };
        let settings = Settings {
            network: definition.spec.network,
            code: definition.code.clone(),
            secrets: definition.spec.rights.secrets.iter().map(ToString::to_string).collect(),
        };
        functions.insert(function.id(), (settings, function.revision(), definition.spec.concurrency));
    }
    Ok(functions)
}

/// The corrections as rows of a table, and how many bytes they have.
fn corrected(
    namespace: &Namespace,
    table: &Table,
    request: &Request,
    changes: &mut Changes,
) -> Result<(CorrectsDoc, u64, bool)> {
    let name = &request.log;
    let log = namespace.log(name)?;
    let id = table.log(name).ok_or_else(|| Code::LogNotFound.error(format!("no log '{name}'")))?;
    if let Some(error) = too_old(name, log.earliest(), request.corrections.iter().map(|it| it.seqno)) {
        return Err(error);
    }
    let mut doc = CorrectsDoc { log: name.to_string(), ..CorrectsDoc::default() };
    let (mut bytes, mut is_known, mut payload) = (0, true, Vec::new());
    for Correction { seqno, value } in &request.corrections {
        let row = table.record(id, *seqno).ok_or_else(|| match *seqno > log.latest() {
            true => {
                let latest = log.latest();
                Code::AboveTail.error(format!("log '{name}' has no record {seqno} yet; the newest is {latest}"))
            }
            false => Code::CorrectionTooOld.error(format!("record {seqno} of log '{name}' has left the journal")),
        })?;
        // Of a record that a repair wrote to say what its key has, that one is corrected.
        let restates = table.key(row).map_or(0, |key| key.restates);
        let row = if restates == 0 { row } else { table.record(id, restates).unwrap_or(row) };
        let stored = namespace.journal().get(&log, *seqno, &mut payload).is_ok();
        if stored && value.as_ref() == Some(&payload) {
            doc.equal += 1;
            continue;
        }
        let at = rfc3339(table.row(row).hlc());
        doc.from.get_or_insert_with(|| at.clone());
        doc.to = Some(at);
        bytes += value.as_ref().map_or_else(|| table.row(row).record_bytes(), |value| value.len() as u64);
        is_known &= row >= table.first_regular();
        doc.range =
            if doc.records == 0 { (*seqno, *seqno) } else { (doc.range.0.min(*seqno), doc.range.1.max(*seqno)) };
        doc.records += 1;
        changes.records.insert(row);
    }
    Ok((doc, bytes, is_known))
}

/// Makes a plan.
fn find(namespace: &Namespace, request: Request, plan: &Plan) -> Result<PlanFoundDoc> {
    let table = read(namespace, plan)?;
    let functions = functions(namespace)?;
    let mut changes = Changes::default();
    let (corrects, corrected_bytes, is_known) = corrected(namespace, &table, &request, &mut changes)?;
    let given: Vec<_> = repairs(namespace)?;
    let is_applied = |it: &&super::Repair| matches!(it.phase, Phase::Applied | Phase::Closed | Phase::RolledBack);
    let in_force = in_force(given.iter().filter(is_applied).map(|it| (it.repair, it.undo)));
    let given: Vec<_> =
        given.iter().filter(|it| in_force.contains(&it.repair)).filter_map(super::Repair::given).collect();
    let secrets: HashSet<String> =
        FunctionSecrets::of(namespace.dir()).names()?.iter().map(ToString::to_string).collect();
    // The settings with which a run is replayed: those that it ran with, unless a repair gave it other code.
    let settings = |run: &Attempted| {
        let now = functions.get(&run.function);
        let repaired = given.iter().rfind(|given| given.is_for(run.function, run.revision, run.sequence));
        let revision = repaired.map_or(run.revision, |given| given.revision);
        let known = table.settings(run.function, revision);
        known.or_else(|| now.filter(|(_, of_now, _)| *of_now == revision).map(|(settings, ..)| settings))
    };
    let mut codes: HashMap<String, bool> = HashMap::new();
    let mut kept = |run: &Attempted| {
        let Some(settings) = settings(run) else { return Some(Kept::NoCode) };
        let name = table.function_name(run.function);
        if settings.network && !request.run_external.iter().any(|external| Some(&**external) == name) {
            return Some(Kept::External);
        }
        if run.is_streamed {
            return Some(Kept::Streamed);
        }
        if settings.code.is_empty() {
            return super::lacks_twin(namespace, name).then_some(Kept::NoTwin);
        }
        let has_code =
            *codes.entry(settings.code.clone()).or_insert_with(|| check_code(namespace.dir(), &settings.code).is_ok());
        match has_code {
            false => Some(Kept::NoCode),
            true => settings.secrets.iter().any(|secret| !secrets.contains(secret)).then_some(Kept::NoSecret),
        }
    };
    plan.check()?;
    let found = discover(&table, &changes, &mut kept);
    plan.check()?;
    let shown = Shown { table: &table, found: &found };
    let will = shown.groups(|run| run.class == Class::Will && !run.pending && run.kept.is_none(), Reason::word);
    let is_external = |run: &&Candidate| {
        let is_replayed = run.class == Class::Will && !run.pending && run.kept.is_none();
        is_replayed && run.attempted.as_ref().and_then(&settings).is_some_and(|settings| settings.network)
    };
    let external: HashSet<u32> = found.candidates.iter().filter(is_external).map(|run| run.run).collect();
    let [own, sent] = shown.logs(&found.rewrites);
    let (links, topics) = (Links::of(namespace).view()?, topics(namespace)?);
    let is_changed = |log: &str| (corrects.records > 0 && corrects.log == log) || own.iter().any(|it| it.log == log);
    let is_copied =
        |link: &&crate::links::LinkView| link.kind == "relay" && is_changed(&link.from) && Address::claims(&link.to);
    let records: u64 = own.iter().chain(&sent).map(|log| log.records).sum::<u64>() + corrects.records;
    let is_final = |run: &Candidate| {
        let is_kept = run.kept.is_some_and(|kept| kept.stops());
        run.class == Class::Will && !run.pending && is_kept
    };
    let not_sent: Vec<RewritesDoc> = sent
        .into_iter()
        .map(|it| {
            let to = links.iter().find(|link| link.kind == "outbox" && link.name == it.log);
            RewritesDoc { log: to.map_or(it.log, |link| link.to.clone()), ..it }
        })
        .collect();
    let kept_topics: Vec<CopyDoc> = topics
        .into_iter()
        .filter(|topic| is_changed(&topic.log))
        .map(|topic| CopyDoc { log: topic.log, to: topic.topic })
        .collect();
    let is_read = is_known && table.damaged_stretches() == 0;
    let oldest = changes.records.iter().min();
    let tail = namespace.journal().tail().get();
    let (on_devices, on_devices_more) = still_on_devices_of(namespace, found.changed(&table, &changes));
    Ok(PlanFoundDoc {
        estimate: EstimateDoc {
            pinned_bytes: oldest.map_or(0, |row| tail.saturating_sub(table.position_near(*row))),
            ..estimate(&found, &table, &functions, corrects.records, corrected_bytes)
        },
        stops: !not_sent.is_empty() || found.candidates.iter().any(is_final) || records > SLOTS_MAX as u64,
        replays: will,
        rewrites: own.clone(),
        overwrites: shown.overwritten(&changes),
        unknown_readers: !is_known,
        horizon: table.horizon().map(rfc3339),
        damaged: table.damaged_stretches(),
        copies: links
            .iter()
            .filter(is_copied)
            .map(|link| CopyDoc { log: link.from.clone(), to: link.to.clone() })
            .collect(),
        complete: is_read && kept_topics.is_empty(),
        not_sent,
        topics: kept_topics,
        not_run: shown.kept(),
        on_devices,
        on_devices_more,
        effects: shown.groups(|run| external.contains(&run.run), Reason::word),
        stale: {
            let [own, _] = shown.logs(&found.stale);
            own
        },
        pending: shown.groups(|run| run.class == Class::Will && run.pending, Reason::word),
        may_replay: shown.groups(|run| run.class == Class::May && !run.pending && run.kept.is_none(), Reason::word),
        claims: found.claims.len() as u64,
        corrects,
    })
}

/// How long the replay takes, about, on how many workers, and how much it writes.
fn estimate(
    found: &Discovery,
    table: &Table,
    functions: &SettingsNow,
    corrected: u64,
    corrected_bytes: u64,
) -> EstimateDoc {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let workers = (cores / 2).max(1);
    let (mut runs, mut took): (u64, HashMap<u32, u64>) = (0, HashMap::new());
    for run in found.candidates.iter().filter(|run| run.class == Class::Will && !run.pending && run.kept.is_none()) {
        runs += 1;
        *took.entry(table.row(run.run).subject).or_default() += run.took_us;
    }
    let lane = |(function, took_us): (&u32, &u64)| {
        let at_once = functions.get(function).map_or(1, |(.., concurrency)| (*concurrency).max(1));
        took_us / u64::from(at_once).min(workers)
    };
    let (longest, all) = (took.iter().map(lane).max().unwrap_or(0), took.values().sum::<u64>());
    let rewritten: u64 = found.rewrites.values().map(|log| log.records * ENTRY_BYTES + log.bytes).sum();
    let bytes = rewritten + corrected * ENTRY_BYTES + corrected_bytes + runs * ENTRIES_PER_RUN * ENTRY_BYTES;
    EstimateDoc { time_us: longest.max(all / workers), workers, bytes, pinned_bytes: 0 }
}

/// The function, reason and log by which runs are alike.
type AlikeRuns = (u32, Reason, u32);
/// How many of them there are, the first and the last of their records, and how long they took.
type OfAlike = (u64, Option<(u64, u64)>, u64);

struct Shown<'a> {
    table: &'a Table,
    found: &'a Discovery,
}

impl Shown<'_> {
    fn function(&self, id: u32) -> String {
        self.table.function_name(id).unwrap_or("(removed function)").to_owned()
    }

    /// Runs of a kind, by function, reason and log.
    fn groups(&self, of: impl Fn(&Candidate) -> bool, word: impl Fn(Reason) -> &'static str) -> Vec<ReplayDoc> {
        let mut groups: BTreeMap<AlikeRuns, OfAlike> = BTreeMap::new();
        for run in self.found.candidates.iter().filter(|run| of(run)) {
            let function = self.table.row(run.run).subject;
            let (runs, range, took_us) = groups.entry((function, run.reason, run.log)).or_default();
            (*runs, *took_us) = (*runs + 1, *took_us + run.took_us);
            if run.log != 0 {
                let (low, high) = range.unwrap_or((run.seqno, run.seqno));
                *range = Some((low.min(run.seqno), high.max(run.seqno)));
            }
        }
        let doc = |((function, reason, log), (runs, range, took_us))| ReplayDoc {
            function: self.function(function),
            runs,
            reason: word(reason).into(),
            log: (log != 0).then(|| self.table.log_name(log).unwrap_or("(removed log)").to_owned()),
            range,
            took_us,
        };
        groups.into_iter().map(doc).collect()
    }

    /// Runs that are reached and not replayed, by function and reason.
    fn kept(&self) -> Vec<ReplayDoc> {
        let mut kept: BTreeMap<(u32, Kept), u64> = BTreeMap::new();
        for run in self.found.candidates.iter().filter(|run| run.class == Class::Will && !run.pending) {
            if let Some(reason) = run.kept {
                *kept.entry((self.table.row(run.run).subject, reason)).or_default() += 1;
            }
        }
        let doc = |((function, kept), runs)| ReplayDoc {
            function: self.function(function),
            runs,
            reason: Kept::word(kept).into(),
            ..ReplayDoc::default()
        };
        kept.into_iter().map(doc).collect()
    }

    /// Records that earlier repairs corrected and that this one replaces by what their runs append now.
    fn overwritten(&self, changes: &Changes) -> Vec<OverwritesDoc> {
        let mut found: BTreeMap<(u32, u64), (u64, (u64, u64))> = BTreeMap::new();
        for row in self.found.records.iter().filter(|row| !changes.records.contains(row)) {
            let Some(repair) = self.table.corrected(*row).filter(|_| self.table.run_of(*row).is_some()) else {
                continue;
            };
            let (log, seqno) = (self.table.row(*row).subject, self.table.row(*row).seqno);
            let (count, range) = found.entry((log, repair)).or_insert((0, (seqno, seqno)));
            (*count, *range) = (*count + 1, (range.0.min(seqno), range.1.max(seqno)));
        }
        let doc = |((log, repair), (records, range))| OverwritesDoc {
            log: self.table.log_name(log).unwrap_or("(removed log)").to_owned(),
            repair,
            records,
            range,
        };
        found.into_iter().map(doc).collect()
    }

    /// What changes in logs, and in outboxes by the names of their peers.
    fn logs(&self, of: &BTreeMap<u32, Rewritten>) -> [Vec<RewritesDoc>; 2] {
        let (mut own, mut sent) = (Vec::new(), Vec::new());
        for (log, rewritten) in of {
            let name = self.table.log_name(*log).unwrap_or("(removed log)");
            let Rewritten { records, bytes, range } = *rewritten;
            match name.strip_prefix("_outbox/") {
                Some(peer) => sent.push(RewritesDoc { log: peer.into(), records, bytes, range }),
                None => own.push(RewritesDoc { log: name.into(), records, bytes, range }),
            }
        }
        [own, sent]
    }
}
