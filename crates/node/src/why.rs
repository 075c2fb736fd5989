//! The reasons why functions and runs wait, from the indexes of runs and the host's status.

use crate::{
    DeadLetters, Definition, FunctionState, Holder, HostStatus, Level, LiveFunction, Namespace, RunFilter, RunState,
    RunView, Runtime,
    databases::Trouble,
    devices::{self, OnDevice},
    links::{self, LinkView, Links, OUTBOX_DEAD_LETTERS, Refusal},
    repairs::{AMENDMENT_DEAD_LETTERS, Phase, amendments, repairs},
    replicas::ReplicaStage,
};
use millrace_dispatch::status::wall_ms;
pub(crate) use millrace_documents::counted;
use millrace_documents::{LinkReason, Reason, rfc3339};
use millrace_journal::{Catalog, Function};
use millrace_namespace::{
    bindings::Bindings,
    no_function,
    runs::pending::{Pending, pending},
};
use millrace_wire::{Code, DatabaseName, EventId, Hlc, LogName, Name, Result};
use std::collections::HashSet;

/// Most pending runs that the answer about a log lists.
const LISTED_MAX: usize = 20;
/// How often a busy journal is looked at for a moment in which it is at rest.
const LOOKS_MAX: usize = 100;
/// How many of a function's oldest pending runs are read, to detect runs that were lost to damage.
const READ_MAX: usize = 1000;

/// The answer about a function, a log, a run, or (without a target) the whole namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The subject of the question, such as `function 'smooth'`.
    pub target: String,
    /// Every reason that applies, the most fundamental first; never empty.
    pub reasons: Vec<Reason>,
}

/// Says why nothing more is running for a function, a log or a run, or (for an empty target) in the namespace.
pub fn why(namespace: &Namespace, target: &str) -> Result<Why> {
    let catalog = namespace.journal().catalog()?;
    let mut status = HostStatus::of(namespace)?.unwrap_or_default();
    // The host's report is a moment old; runs that have ended since are left out.
    let is_pending = |run: EventId| {
        let fold = namespace.fold_of(run, false).ok().flatten();
        fold.is_some_and(|fold| fold.outcome().is_none())
    };
    for function in &mut status.functions {
        function.running.retain(|run| is_pending(run.run));
        function.backing_off.retain(|run| is_pending(run.run));
    }
    let asked = Asked {
        namespace,
        bindings: &*namespace.bindings()?,
        catalog: &catalog,
        holder: namespace.host()?,
        status,
        refusal: namespace.journal().refusal_anywhere().map(|error| error.to_string()),
        now_ms: wall_ms(),
    };
    let (what, mut reasons) = if target.is_empty() {
        let dead = asked.refused_messages().into_iter().chain(asked.refused_amendments());
        let links = links_behind(namespace, |_| true)?.into_iter().chain(dead);
        let repairs = repairs_behind(namespace, |_| true)?;
        let worth = refused_streams(namespace)?.into_iter().chain(wrong_clock(namespace));
        let worth = worth.chain(databases_behind(namespace, None)?).chain(replicas_behind(namespace, None)?);
        ("namespace".into(), asked.all().into_iter().chain(links).chain(repairs).chain(worth).collect())
    } else if let Ok(run) = target.parse::<EventId>() {
        (format!("run {run}"), asked.run(namespace.run(run)?))
    } else if let Some(function) = catalog.function(target) {
        (format!("function '{target}'"), asked.function(function.name()))
    } else if catalog.log(target).is_some() {
        let links = links_behind(namespace, |link| link.from == target || link.to == target)?;
        let repairs = repairs_behind(namespace, |log| log == target)?;
        let database = catalog.log(target).and_then(|log| log.table()?.database);
        let databases = database.map_or(Ok(Vec::new()), |database| databases_behind(namespace, Some(&database)))?;
        let replicas = replicas_behind(namespace, Some(target))?;
        let of_log = asked.log(target)?.into_iter().chain(links).chain(repairs).chain(databases).chain(replicas);
        (format!("log '{target}'"), of_log.collect())
    } else {
        let named = links_behind(namespace, |link| link.name == target)?;
        let what = format!("link '{target}'");
        if !named.is_empty() {
            (what, named)
        } else if Links::of(namespace).view()?.iter().any(|link| link.name == target) {
            (what, vec![Reason::LinkIdle { link: target.into() }])
        } else {
            return Err(unknown(target));
        }
    };
    reasons.dedup();
    Ok(Why { target: what, reasons })
}

/// The links that have something to carry, or something wrong with them.
fn links_behind(namespace: &Namespace, wanted: impl Fn(&LinkView) -> bool) -> Result<Vec<Reason>> {
    let views = Links::of(namespace).view()?;
    let behind = |view: &&LinkView| wanted(view) && (view.error.is_some() || view.lag_records > 0);
    let reason = |view: &LinkView| {
        Reason::Link(LinkReason {
            kind: view.kind.into(),
            link: view.name.clone(),
            to: view.to.clone(),
            state: view.state.name().into(),
            lag_records: view.lag_records,
            error: view.code.as_ref().zip(view.error.as_ref()).map(|(code, error)| format!("{code}: {error}")),
            remedy: view.remedy.map(Into::into),
        })
    };
    Ok(views.iter().filter(behind).map(reason).collect())
}

/// The databases that lack something, or with which something is wrong.
fn databases_behind(namespace: &Namespace, of: Option<&DatabaseName>) -> Result<Vec<Reason>> {
    let mut reasons = Vec::new();
    for doc in crate::documents::databases(namespace)? {
        if of.is_some_and(|name| *name != doc.database) || doc.unwritten == 0 && doc.trouble.is_none() {
            continue;
        }
        let (name, unwritten, waiting) = (doc.database, doc.unwritten, doc.waiting);
        let mut notice = format!("database '{name}': answers that wait: {waiting}; writes that it lacks: {unwritten}");
        if let Some(oldest_ms) = doc.oldest_ms {
            notice += &format!(", the oldest {oldest_ms} ms old");
        }
        if let Some(trouble) = doc.trouble {
            let (trouble, is_stopped) = (Trouble { code: trouble.code, detail: trouble.error }, trouble.stopped);
            notice += &format!("; {}", trouble.words(is_stopped));
        }
        reasons.push(Reason::Notice { notice });
    }
    Ok(reasons)
}

/// The replicas that lack something, or with which something is wrong.
fn replicas_behind(namespace: &Namespace, of: Option<&str>) -> Result<Vec<Reason>> {
    let mut reasons = Vec::new();
    for (table, stat) in namespace.replica_stats()? {
        let is_well = stat.trouble.is_none() && stat.age_ms == Some(0) && stat.records.unwrap_or(0) == 0;
        if of.is_some_and(|name| *name != *table) || is_well {
            continue;
        }
        let owner = format!("{}/{}", stat.owner.address, stat.replica.table);
        let mut notice = format!("table '{table}', a replica of {owner}");
        notice += &match (stat.replica.stage, stat.records) {
            (ReplicaStage::Following, Some(records)) => format!(": records that it lacks: {records}"),
            (ReplicaStage::Following, None) => ": it is not known what it lacks".into(),
            _ => ": is being loaded".into(),
        };
        if let Some(age_ms) = stat.age_ms.filter(|age_ms| *age_ms > 0) {
            notice += &format!(", since {age_ms} ms");
        }
        if let Some(trouble) = stat.trouble {
            let remedy = Code::from_id(&trouble.code).map_or("", Code::remedy);
            notice += &format!("; {}: {}. {remedy}", trouble.code, trouble.detail.trim_end_matches('.'));
        }
        reasons.push(Reason::Notice { notice });
    }
    Ok(reasons)
}

/// The incoming streams that were refused because another copy of their namespace sends them.
fn refused_streams(namespace: &Namespace) -> Result<Vec<Reason>> {
    let notice = |known: Refusal| {
        let (error, at) = (known.error(), rfc3339(Hlc::from_wall_us(known.at_us)));
        let (code, detail, remedy) = (error.code().id(), error.detail(), error.code().remedy());
        let source = links::shown(known.namespace);
        let notice = format!("at {at}, a stream of namespace {source} was refused: {code}: {detail}. {remedy}");
        Reason::Notice { notice }
    };
    Ok(Links::of(namespace).refused()?.into_iter().map(notice).collect())
}

/// Whether an event has the time of a clock that was wrong.
fn wrong_clock(namespace: &Namespace) -> Option<Reason> {
    let error = namespace.journal().check_clock().err()?;
    let (code, remedy) = (error.code(), error.code().remedy());
    Some(Reason::Notice { notice: format!("{}: {}. {remedy}", code.id(), error.detail()) })
}

/// The repair of a log that is open, or that its amendments wait for, and the amendments that wait.
fn repairs_behind(namespace: &Namespace, wanted: impl Fn(&str) -> bool) -> Result<Vec<Reason>> {
    let all = repairs(namespace)?;
    let waiting: Vec<_> = amendments(namespace)?.into_iter().filter(|of| of.waiting > 0 && wanted(&of.log)).collect();
    // One repair is open at a time, so amendments wait for that of any log.
    let is_wanted = |log: &Option<LogName>| !waiting.is_empty() || log.as_ref().is_none_or(|log| wanted(log));
    let text = |error: &(String, String)| format!("{}: {}", error.0, error.1);
    let stopped = |log: &LogName| {
        let last = all.iter().rfind(|repair| repair.auto && repair.log.as_ref() == Some(log))?;
        last.error.as_ref().filter(|_| last.phase == Phase::Abandoned).map(text)
    };
    let open = all.iter().filter(|repair| repair.phase.is_open() && is_wanted(&repair.log));
    let open = open.map(|repair| Reason::RepairOpen {
        repair: repair.repair,
        phase: repair.phase.as_str().into(),
        error: repair.error.as_ref().map(text),
        topics: repair.topics.iter().map(|of| of.topic.clone()).collect(),
    });
    let now_ms = wall_ms();
    let waiting = waiting.iter().map(|of| Reason::AmendmentsWait {
        log: of.log.to_string(),
        waiting: of.waiting,
        count: of.count,
        due_in_ms: of.due_us.map_or(0, |due_us| (due_us / 1000).saturating_sub(now_ms)),
        error: stopped(&of.log),
    });
    Ok(open.chain(waiting).collect())
}

fn unknown(target: &str) -> millrace_wire::Error {
    match no_function(target) {
        error if error.code() == Code::FunctionNotFound => Code::FunctionNotFound.error(format!(
            "there is no function, log, run or link '{target}'; `millrace function ls`, `millrace log ls`, `millrace run ls` and `millrace relay ls` list them"
        )),
        _ => match target.parse::<millrace_wire::LogName>() {
            Ok(log) => Code::LogNotFound.error(format!("there is no function, log, run or link '{log}'")),
            Err(error) => error,
        },
    }
}

/// Everything known while one question is answered.
struct Asked<'a> {
    namespace: &'a Namespace,
    bindings: &'a Bindings,
    catalog: &'a Catalog,
    holder: Option<Holder>,
    status: HostStatus,
    /// Why the disk takes no appends now.
    refusal: Option<String>,
    now_ms: u64,
}

impl Asked<'_> {
    /// Messages that became dead letters, which users would not notice otherwise.
    fn refused_messages(&self) -> Option<Reason> {
        let log = self.catalog.log(OUTBOX_DEAD_LETTERS)?.name();
        // If it cannot be read, all count.
        let records = self.namespace.letters_waiting(log).unwrap_or(DeadLetters::of(self.catalog, log).kept);
        (records > 0).then(|| Reason::OutboxDead { log: log.to_string(), records })
    }

    /// Amendments that became dead letters.
    fn refused_amendments(&self) -> Option<Reason> {
        let log = self.catalog.log(AMENDMENT_DEAD_LETTERS).filter(|log| log.latest() >= log.earliest().max(1))?;
        Some(Reason::AmendmentsDead { log: log.name().to_string(), records: log.latest() + 1 - log.earliest() })
    }

    /// The reason why nothing runs.
    fn host(&self) -> Vec<Reason> {
        let refusing = self.refusal.iter().map(|refusal| Reason::Refusing { refusal: refusal.clone() });
        let host = match (&self.holder, &self.status.failure) {
            (None, _) => Some(Reason::NoHost),
            (Some(_), Some(failure)) => Some(Reason::HostFailed { failure: failure.clone() }),
            (Some(_), None) => None,
        };
        let low = self.namespace.journal().low_space();
        let low =
            low.map(|low| Reason::DiskLow { available_bytes: low.available_bytes, needed_bytes: low.needed_bytes });
        refusing.chain(low).chain(host).collect()
    }

    /// Whether a host runs what there is to run.
    fn runs(&self) -> bool {
        self.holder.is_some() && self.status.failure.is_none() && self.refusal.is_none()
    }

    fn all(&self) -> Vec<Reason> {
        let mut reasons = self.host();
        let notice = self.status.notice.as_ref().filter(|_| self.holder.is_some());
        reasons.extend(notice.map(|notice| Reason::Notice { notice: notice.clone() }));
        for function in self.catalog.functions() {
            reasons.extend(self.of_function(function.name()));
        }
        if self.catalog.functions().next().is_none() {
            let logs = self.catalog.logs().filter(|log| !LogName::is_internal(log.name()));
            reasons.extend(logs.map(|log| Reason::NothingBound { log: log.name().to_string() }));
        }
        reasons
    }

    fn function(&self, name: &Name) -> Vec<Reason> {
        let mut reasons = self.host();
        reasons.extend(self.of_function(name));
        reasons
    }

    /// The activity of one function, and the reasons why it waits.
    fn of_function(&self, name: &Name) -> Vec<Reason> {
        let Some(function) = self.catalog.function(name) else { return vec![Reason::Removed] };
        if let Some(definition) = self.bindings.definition(function.id())
            && let Some(reason) = self.on_devices(definition)
        {
            let mut reasons = vec![reason];
            reasons.extend(self.not_run_on_devices(definition, None));
            if reasons.len() == 1 {
                reasons.push(Reason::Idle { function: name.clone(), done: function.done() });
            }
            return reasons;
        }
        let mut reasons = self.of_definition(name);
        let pending = function.triggered().saturating_sub(function.done());
        let live = self.status.function(name);
        let obstacles = live.map_or_else(Vec::new, |live| self.obstacles(live));
        let definition = self.bindings.definition(function.id());
        if let Some(definition) = definition
            && pending >= definition.spec.pending_max
        {
            let pending_max = definition.spec.pending_max;
            reasons.push(Reason::Busy { function: name.clone(), pending, pending_max });
        }
        if let Some((counted, found)) = self.uncounted(function) {
            reasons.push(Reason::Uncounted { function: name.clone(), counted, found });
        } else if pending == 0 {
            reasons.push(Reason::Idle { function: name.clone(), done: function.done() });
        } else if obstacles.is_empty() && self.runs() {
            reasons.push(Reason::Starting { function: name.clone(), pending });
        } else if obstacles.is_empty() {
            reasons.push(Reason::Pending { function: name.clone(), pending });
        }
        reasons.extend(obstacles);
        reasons.extend(definition.and_then(|definition| self.dead_letters(name, &definition.spec.dead_letter)));
        let feeds_itself =
            definition.is_some_and(|definition| definition.spec.on.contains(&definition.spec.dead_letter));
        reasons.extend(feeds_itself.then(|| Reason::Notice {
            notice: format!("function '{name}' is bound to the log of its own dead letters: each run that fails for good starts another one"),
        }));
        if definition.is_some_and(|definition| definition.spec.runtime != Runtime::Wasm) {
            reasons.extend(self.sandbox());
        }
        reasons
    }

    /// Where a function runs that does not run here.
    fn on_devices(&self, definition: &Definition) -> Option<Reason> {
        let spec = &definition.spec;
        let mut devices: Vec<&str> = spec.on.iter().filter_map(|log| Some(log.split_once('/')?.0)).collect();
        devices.dedup();
        let (name, _) = (&spec.name, spec.at.as_ref()?);
        let twin = match (definition.is_without_code(), self.bindings.twin_of(definition)) {
            (false, _) => "repairs replay its runs with the code that is deployed here, its twin".to_owned(),
            (true, Some(twin)) => format!("repairs replay its runs with the twin '{}'", twin.spec.name),
            (true, None) => "it has no twin here, so repairs keep what its runs appended".to_owned(),
        };
        let (devices, s) = (devices.join(", "), if devices.len() == 1 { "" } else { "s" });
        let are_gone = devices::devices_of(self.namespace, definition).is_ok_and(|known| known.is_empty());
        Some(Reason::Notice {
            notice: match are_gone && !devices.is_empty() {
                true => format!(
                    "function '{name}' ran on device{s} {devices}, which this namespace does not know any more; `millrace function rm {name}` \
                     removes it from the lists"
                ),
                false => format!("function '{name}' runs on device{s} {devices}; {twin}"),
            },
        })
    }

    /// For which records of its logs, or of one log, a function has not run on its devices.
    fn not_run_on_devices(&self, definition: &Definition, log: Option<&LogName>) -> Vec<Reason> {
        let pending = devices::pending_of(self.namespace, definition).unwrap_or_default();
        let of_log = pending.into_iter().filter(|pending| log.is_none_or(|log| *log == pending.log));
        let reason = |pending: OnDevice| Reason::OnDevice {
            function: pending.function,
            device: pending.device,
            log: pending.log.to_string(),
            from: pending.from,
            records: pending.records,
        };
        of_log.map(reason).collect()
    }

    /// The number of a function's runs that are counted as pending and the number that exist, if they differ. If the numbers change
    /// meanwhile, both are read again.
    fn uncounted(&self, function: &Function) -> Option<(u64, u64)> {
        let journal = self.namespace.journal();
        for _ in 0..LOOKS_MAX {
            let now = || (function.triggered(), function.done(), journal.tail());
            let before = now();
            let lost = pending(journal, function, 1).take(READ_MAX).filter(|run| matches!(run, Ok(Pending::Lost(_))));
            let found = function.count_pending(1, u64::MAX).saturating_sub(lost.count() as u64);
            if now() == before {
                let counted = before.0.saturating_sub(before.1);
                return (counted != found).then_some((counted, found));
            }
        }
        None // Busy: what is counted is being worked on.
    }

    /// Why the isolation of functions is weaker than possible.
    fn sandbox(&self) -> Option<Reason> {
        let sandbox = self.status.sandbox.as_ref().filter(|sandbox| sandbox.level != Level::Full.as_str())?;
        Some(Reason::Sandbox { summary: sandbox.summary.clone(), remedies: sandbox.remedies.clone() })
    }

    fn dead_letters(&self, function: &Name, log: &LogName) -> Option<Reason> {
        let dead_letters = DeadLetters::of(self.catalog, log);
        // A retry reports the ones that cannot be read.
        let waiting = self.namespace.letters_waiting(log).unwrap_or(dead_letters.kept);
        (dead_letters.given_up > 0).then(|| Reason::DeadLetters {
            function: function.clone(),
            log: log.to_string(),
            records: dead_letters.kept,
            given_up: dead_letters.given_up,
            gone: dead_letters.gone(),
            retried: dead_letters.retried,
            waiting,
        })
    }

    fn of_definition(&self, name: &Name) -> Vec<Reason> {
        let function = self.catalog.function(name).map(|function| function.id());
        match self.bindings.functions().find(|(id, _)| Some(*id) == function) {
            Some((_, Ok(definition))) if definition.removing => vec![Reason::Removing { function: name.clone() }],
            Some((_, Ok(definition))) => {
                let on = &definition.spec.on;
                let missing = on.iter().filter(|log| self.catalog.log(log).is_none());
                let never = on.is_empty().then(|| Reason::NeverBound { function: name.clone() });
                let gone = |log: &millrace_wire::LogName| Reason::BoundLogMissing {
                    function: name.clone(),
                    log: log.to_string(),
                };
                never.into_iter().chain(missing.map(gone)).collect()
            }
            Some((_, Err(error))) => {
                vec![Reason::DefinitionDamaged { function: name.clone(), error: error.to_string() }]
            }
            None => Vec::new(),
        }
    }

    /// The host's report about a function: stopped, running, waiting for a retry, or waiting for its monitor.
    fn obstacles(&self, live: &LiveFunction) -> Vec<Reason> {
        let name = &live.name;
        let mut reasons = Vec::new();
        if let FunctionState::Stopped { error, until_ms } = &live.state {
            let retry_in_ms = until_ms.saturating_sub(self.now_ms);
            reasons.push(Reason::Stopped { function: name.clone(), error: error.clone(), retry_in_ms });
        }
        reasons.extend(live.running.iter().map(|run| Reason::Running {
            function: name.clone(),
            run: run.run.to_string(),
            attempt: run.attempt,
            for_ms: self.now_ms.saturating_sub(run.at_ms),
        }));
        reasons.extend(live.backing_off.iter().map(|run| Reason::BackingOff {
            function: name.clone(),
            run: run.run.to_string(),
            attempt: run.attempt,
            error: run.error.clone().unwrap_or_default(),
            retry_in_ms: run.at_ms.saturating_sub(self.now_ms),
        }));
        if live.running.is_empty() {
            reasons.extend(self.monitor_holder(name));
        }
        reasons
    }

    /// The run of another function that holds the function's monitor.
    fn monitor_holder(&self, name: &Name) -> Option<Reason> {
        let monitor_of = |name: &str| {
            let function = self.catalog.function(name)?;
            self.bindings.definition(function.id())?.spec.monitor.clone()
        };
        let monitor = monitor_of(name)?;
        let sharing = |live: &&LiveFunction| live.name != *name && monitor_of(&live.name).as_ref() == Some(&monitor);
        let holder = self.status.functions.iter().filter(sharing).find(|live| !live.running.is_empty())?;
        let run = holder.running.first()?;
        let for_ms = self.now_ms.saturating_sub(run.at_ms);
        Some(Reason::MonitorHeld { monitor, function: holder.name.clone(), run: run.run.to_string(), for_ms })
    }

    fn log(&self, name: &str) -> Result<Vec<Reason>> {
        let mut reasons = self.host();
        let log = millrace_namespace::found(self.catalog.log(name), name)?;
        let bound = self.bindings.of_log(log.id());
        let of_log = |definition: &&Definition| definition.spec.on.contains(log.name());
        let known = self.bindings.functions().filter_map(|(_, definition)| definition.as_deref().ok());
        let with_pending = |it: &Definition| {
            let reason = self.on_devices(it)?;
            Some(std::iter::once(reason).chain(self.not_run_on_devices(it, Some(log.name()))).collect::<Vec<_>>())
        };
        let on_devices: Vec<Reason> = known.filter(of_log).filter_map(with_pending).flatten().collect();
        if bound.is_empty() && on_devices.is_empty() {
            reasons.push(Reason::NothingBound { log: name.into() });
        }
        reasons.extend(on_devices);
        for bound in bound {
            if let Some(definition) = self.bindings.definition(bound.function) {
                reasons.extend(self.of_function(&definition.spec.name));
            }
        }
        for state in [RunState::Pending, RunState::Started] {
            let filter = RunFilter {
                log: Some(log.name().clone()),
                state: Some(state),
                limit: LISTED_MAX,
                ..RunFilter::default()
            };
            let mut explained = HashSet::new();
            for run in self.namespace.runs_page(&filter)?.runs.into_iter().rev() {
                // Of the runs that have not started, the others of a function wait for the oldest one.
                if state == RunState::Pending && !explained.insert(run.function.clone()) {
                    continue;
                }
                // The reasons of its functions name some of these runs already.
                for reason in self.of_run(&run) {
                    if !reasons.contains(&reason) {
                        reasons.push(reason);
                    }
                }
            }
        }
        Ok(reasons)
    }

    fn run(&self, run: RunView) -> Vec<Reason> {
        match (&run.ending, run.ended) {
            (Some(ending), Some(at)) => vec![match &ending.dead {
                _ if run.state == RunState::Cancelled => Reason::Cancelled { run: run.id.to_string(), at: rfc3339(at) },
                None => Reason::Done { run: run.id.to_string(), at: rfc3339(at) },
                Some(death) => Reason::Dead {
                    run: run.id.to_string(),
                    at: rfc3339(at),
                    code: death.code.clone(),
                    error: death.error.clone(),
                },
            }],
            _ => {
                let mut reasons = self.host();
                reasons.extend(self.of_run(&run));
                reasons
            }
        }
    }

    /// The reason why one pending run waits.
    fn of_run(&self, run: &RunView) -> Vec<Reason> {
        let Some(name) = &run.function else { return vec![Reason::Removed] };
        let mut reasons = self.of_definition(name);
        let live = self.status.function(name);
        let obstacles = live.map_or_else(Vec::new, |live| self.obstacles(live));
        let own = run.id.to_string();
        let is_own = |reason: &Reason| match reason {
            Reason::Running { run, .. } | Reason::BackingOff { run, .. } => *run == own,
            _ => false,
        };
        if let Some(reason) = obstacles.iter().find(|reason| is_own(reason)) {
            reasons.push(reason.clone());
            return reasons;
        }
        let (ahead, first) = self.ahead(name, run.id);
        let definition = self.catalog.function(name).and_then(|f| self.bindings.definition(f.id()));
        if let (Some(first), Some(definition)) = (first, definition) {
            let concurrency = definition.spec.concurrency;
            if definition.spec.serial() {
                reasons.push(Reason::Ordered { behind: first.to_string() });
            } else if live.is_some_and(|live| live.running.len() as u32 >= concurrency) {
                reasons.push(Reason::ConcurrencyFull { concurrency });
            }
            reasons.push(Reason::Queued { function: name.clone(), ahead });
        } else if obstacles.is_empty() && self.runs() {
            reasons.push(Reason::Starting { function: name.clone(), pending: 1 });
        }
        reasons.extend(obstacles);
        reasons
    }

    /// How many of the function's pending runs are older than `run`, and the oldest of them.
    fn ahead(&self, name: &Name, run: EventId) -> (u64, Option<EventId>) {
        let (Some(function), Ok(Some(fold))) = (self.catalog.function(name), self.namespace.fold_of(run, false)) else {
            return (0, None);
        };
        let number = fold.run.number;
        let oldest = pending(self.namespace.journal(), function, 1).find_map(|run| run.ok()?.found());
        let oldest = oldest.filter(|oldest| oldest.run.number < number).map(|oldest| oldest.run.id);
        (if oldest.is_some() { function.count_pending(1, number) } else { 0 }, oldest)
    }
}
