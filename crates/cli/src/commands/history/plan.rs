//! `millrace repair plan`: what a correction of the past would replay and rewrite. It changes nothing.

mod devices;
mod host;
mod picture;
mod words;

use super::{
    corrections::{self, Corrections, Records},
    sources::{Functions, Sources, Version},
    times,
};
use crate::{
    args::{Global, PlanArgs},
    out::{Out, Style},
    place::docs::LinkDoc,
    report::Outcome,
    show,
};
use host::HostPlan;
use millrace_causality::{
    Attempted, Candidate, Changes, Class, Discovery, Kept, Place, Reason, Rewritten, Settings, Table, discover,
};
use millrace_journal::RECORD_MAX_BYTES;
use millrace_node::{
    Address, Code, Hlc, LogName, Result,
    application::units,
    repairs::{self, CodeGiven, VerifiedRuns},
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use words::{reason, runs};

/// Bytes of an entry that a repair writes, beside its payload: a header and an extension.
const ENTRY_BYTES: u64 = 64 + 48;
/// Entries of a replayed run beside its records: what it read, and its end.
const ENTRIES_PER_RUN: u64 = 2;

pub fn run(args: &PlanArgs, global: &Global, out: &mut Out) -> Outcome {
    let format = args.out.as_deref().map(picture::format).transpose()?;
    if args.log.is_some() && args.at.is_none() && args.values.is_none() {
        return Err(Code::CorrectionInvalid.error("give --at or --values with a log").into());
    }
    if let Some(plan) = HostPlan::find(args, global)? {
        return if out.json() { Ok(out.object(&plan.object())?) } else { plan.print(out) };
    }
    // Before the journal is read as it is: this opens the namespace.
    let observed = match (args.log.as_deref(), corrections::times(args.at.as_deref())?) {
        (Some(log), Some((from, to))) => times::within(global, log, from, to)?,
        _ => None,
    };
    let (sources, log) = Sources::load_for(global, &args.with, Version::Repaired, args.log.as_deref().unwrap_or(""))?;
    let mut plan = Plan::new(&sources, &args.run_external)?;
    if args.log.is_some() {
        let mut within = |from, to| match &observed {
            Some(observed) => Ok(Records::Each(observed.clone())),
            None => sources.within(&log, from, to).map(|(first, last)| Records::From(first, last)),
        };
        let mut of_key = |key: &str| {
            let (place, log) = crate::place::Place::of_log(global, &log)?;
            corrections::of_key(&place, &log, key)
        };
        let (at, values) = (args.at.as_deref(), args.values.as_deref());
        let corrections = corrections::read(at, values, &mut within, &mut of_key)?;
        plan.correct(&log, &corrections, args.accept_unknown)?;
    }
    for function in &args.function {
        plan.replace(function, args.since.as_deref())?;
    }
    plan.discover();
    if let Some(most) = args.verify {
        plan.verified = Some(sources.verify(most as usize)?);
    }
    if let (Some(path), Some(format)) = (&args.out, format) {
        super::graph::write(path, &plan.picture(format))?;
    }
    if out.json() {
        out.object(&plan.object())?;
    } else {
        plan.print(out)?;
    }
    Ok(sources.check()?)
}

/// The corrections in a log.
struct Corrected {
    log: String,
    records: u64,
    range: (u64, u64),
    times: (Hlc, Hlc),
    equal: u64,
    bytes: u64,
}

/// Replayed runs that are alike.
#[derive(Default)]
struct Group {
    runs: u64,
    /// The first and the last record through which they are reached.
    range: Option<(u64, u64)>,
    took_us: u64,
}

/// The namespace, function, reason and log by which runs are alike.
type Alike = (usize, u32, Reason, u32);

struct Plan<'a> {
    sources: &'a Sources,
    functions: Vec<Functions>,
    /// By namespace: the code that repairs gave past runs.
    given: Vec<Vec<CodeGiven>>,
    /// Functions that are run again although they may have effects outside.
    run_external: &'a [String],
    changes: Vec<Changes>,
    found: Vec<Discovery>,
    corrected: Option<Corrected>,
    replaced: Vec<(String, String)>,
    /// The oldest event that is changed.
    from: Option<u32>,
    unknown_readers: bool,
    /// By function: how many runs were replayed as they were, and how many left the same.
    verified: Option<VerifiedRuns>,
    /// By namespace: its links to others.
    links: Vec<Vec<LinkDoc>>,
    /// By namespace: the logs that feed topics or mirror them, with the topics, if that is known.
    topics: Vec<Option<Vec<(String, String)>>>,
}

impl<'a> Plan<'a> {
    fn new(sources: &'a Sources, run_external: &'a [String]) -> Result<Self> {
        let functions = sources.sources.iter().map(super::sources::Source::functions).collect::<Result<Vec<_>>>()?;
        if let Some(name) = run_external.iter().find(|name| !functions.iter().any(|of| of.contains_key(*name))) {
            return Err(Code::FunctionNotFound.error(format!("no function '{name}'")));
        }
        let changes = sources.sources.iter().map(|_| Changes::default()).collect();
        Ok(Self {
            sources,
            functions,
            given: sources.sources.iter().map(super::sources::Source::given).collect::<Result<_>>()?,
            run_external,
            changes,
            found: Vec::new(),
            corrected: None,
            replaced: Vec::new(),
            from: None,
            unknown_readers: false,
            verified: None,
            links: sources.sources.iter().map(super::sources::Source::links).collect(),
            topics: sources.sources.iter().map(super::sources::Source::topics).collect::<Result<_>>()?,
        })
    }

    fn table(&self, at: usize) -> &'a Table {
        &self.sources.history.tables()[at]
    }

    /// Adds corrections of a log of the first namespace.
    fn correct(&mut self, log: &str, corrections: &Corrections, accept_unknown: bool) -> Result<()> {
        let table = self.table(0);
        let name: LogName = log.parse()?;
        if LogName::is_internal(&name) {
            return Err(Code::LogInternal.error(format!("log '{log}' belongs to the runtime")));
        }
        let id = table.log(log).ok_or_else(|| Code::LogNotFound.error(format!("no log '{log}'")))?;
        let bounds = table.bounds(id);
        let oldest = self.sources.sources[0].oldest(&name).unwrap_or(0);
        if let Some(error) = repairs::too_old(log, oldest, corrections.keys().copied()) {
            return Err(error);
        }
        let mut corrected =
            Corrected { log: log.into(), records: 0, range: (0, 0), times: (Hlc::ZERO, Hlc::ZERO), equal: 0, bytes: 0 };
        for (seqno, value) in corrections {
            let Some(row) = table.record(id, *seqno) else { return Err(missing(log, *seqno, bounds)) };
            // Of a record that a repair wrote to say what its key has, that one is corrected.
            let restates = table.key(row).map_or(0, |key| key.restates);
            let source = if restates == 0 { Some(row) } else { table.record(id, restates) };
            let Some(row) = source else { return Err(missing(log, restates, bounds)) };
            if let Some(value) = value {
                if value.len() as u64 > RECORD_MAX_BYTES {
                    return Err(Code::RecordTooLong.error(format!(
                        "the value for record {seqno} of log '{log}' has {} bytes; the limit is {RECORD_MAX_BYTES}",
                        value.len()
                    )));
                }
                let stored = self.sources.value(Place { table: 0, row })?;
                if stored.is_some_and(|stored| !stored.cut && stored.bytes == *value) {
                    corrected.equal += 1;
                    continue;
                }
                corrected.bytes += value.len() as u64;
            } else {
                corrected.bytes += table.row(row).record_bytes();
            }
            if row < table.first_regular() {
                self.unknown_readers = true;
                if !accept_unknown {
                    let horizon = table.horizon().map_or(String::new(), |at| format!(" before {}", show::rfc3339(at)));
                    let detail = format!("the runs that read record {seqno} of log '{log}'{horizon} are not known");
                    return Err(Code::ReadersUnknown.error(detail));
                }
            }
            let at = table.row(row).hlc();
            if corrected.records == 0 {
                (corrected.range.0, corrected.times.0) = (*seqno, at);
            }
            (corrected.range.1, corrected.times.1) = (*seqno, at);
            corrected.records += 1;
            self.changes[0].records.insert(row);
            self.from = Some(self.from.map_or(row, |from| from.min(row)));
        }
        self.corrected = Some(corrected);
        Ok(())
    }

    /// Adds new code for a function, given as `NAME=SOURCE`.
    fn replace(&mut self, function: &str, since: Option<&str>) -> Result<()> {
        let (name, source) = super::named_source(function)?;
        let table = self.table(0);
        let id = table.function(name);
        let id = id.ok_or_else(|| Code::FunctionNotFound.error(format!("no function '{name}'")))?;
        let since = match since {
            Some(since) => {
                let event = self.sources.find(since)?;
                if event.table != 0 {
                    return Err(
                        Code::EventNotKept.error(format!("'{since}' is not an event of the namespace of '{name}'"))
                    );
                }
                event.row
            }
            None => 0,
        };
        self.changes[0].functions.insert(id, since);
        self.from = Some(self.from.map_or(since, |from| from.min(since)));
        self.replaced.push((name.into(), source.into()));
        Ok(())
    }

    /// Finds the runs, in each namespace; what changes in one is a seed for the others, until no seed is new.
    fn discover(&mut self) {
        let tables = self.sources.history.tables();
        let mut seeds: Vec<HashSet<_>> = vec![HashSet::new(); tables.len()];
        loop {
            self.found.clear();
            for (at, table) in tables.iter().enumerate() {
                let mut known = HashMap::new();
                let mut kept = |run: &Attempted| {
                    let key = (run.function, self.revision(at, run), run.has_other_code, run.is_streamed);
                    *known.entry(key).or_insert_with(|| self.kept_of(at, run))
                };
                let found = discover(table, &self.changes[at], &mut kept);
                self.found.push(found);
            }
            if tables.len() == 1 {
                return;
            }
            let mut is_new = false;
            for (at, found) in self.found.iter().enumerate() {
                let ids = found.records.iter().map(|row| tables[at].id(*row));
                let ids: Vec<_> = ids.filter(|id| seeds[at].insert(*id)).collect();
                is_new |= !ids.is_empty();
                for (_, changes) in self.changes.iter_mut().enumerate().filter(|(other, _)| *other != at) {
                    changes.seeds.extend(&ids);
                }
            }
            if !is_new {
                return;
            }
        }
    }

    /// The revision with whose code and settings a run is replayed: the one that it ran, or that of a repair since.
    fn revision(&self, at: usize, run: &Attempted) -> u32 {
        let given = self.given[at].iter().rfind(|given| given.is_for(run.function, run.revision, run.sequence));
        given.map_or(run.revision, |given| given.revision)
    }

    /// The settings with which a run is replayed, if they are known.
    fn settings(&self, at: usize, run: &Attempted) -> Option<&Settings> {
        let table = self.table(at);
        let now = table.function_name(run.function).and_then(|name| self.functions[at].get(name));
        let revision = self.revision(at, run);
        if run.has_other_code {
            return now?.settings.as_ref();
        }
        table.settings(run.function, revision).or_else(|| {
            // Retention may have dropped the definition. A host does not say which revision is the present one.
            now.filter(|now| now.revision.is_none_or(|of_now| of_now == revision))?.settings.as_ref()
        })
    }

    /// Why a run is not replayed, if it is not.
    fn kept_of(&self, at: usize, run: &Attempted) -> Option<Kept> {
        let Some(settings) = self.settings(at, run) else { return Some(Kept::NoCode) };
        let name = self.table(at).function_name(run.function);
        let is_run = self.run_external.iter().any(|external| Some(&**external) == name);
        if settings.network && !is_run {
            return Some(Kept::External);
        }
        if run.is_streamed {
            return Some(Kept::Streamed);
        }
        // New code is checked when the repair is opened.
        if run.has_other_code { None } else { self.sources.sources[at].lacks(name, settings) }
    }

    /// Candidates of a kind, grouped.
    fn groups(&self, of: impl Fn(&Candidate) -> bool) -> BTreeMap<Alike, Group> {
        let mut groups: BTreeMap<Alike, Group> = BTreeMap::new();
        for (at, found) in self.found.iter().enumerate() {
            for candidate in found.candidates.iter().filter(|candidate| of(candidate)) {
                let function = self.table(at).row(candidate.run).subject;
                let group = groups.entry((at, function, candidate.reason, candidate.log)).or_default();
                group.runs += 1;
                group.took_us += candidate.took_us;
                if candidate.log != 0 {
                    let (low, high) = group.range.unwrap_or((candidate.seqno, candidate.seqno));
                    group.range = Some((low.min(candidate.seqno), high.max(candidate.seqno)));
                }
            }
        }
        groups
    }

    fn will(&self) -> BTreeMap<Alike, Group> {
        self.groups(|run| run.class == Class::Will && !run.pending && run.kept.is_none())
    }

    fn may(&self) -> BTreeMap<Alike, Group> {
        self.groups(|run| run.class == Class::May && !run.pending && run.kept.is_none())
    }

    fn pending(&self) -> BTreeMap<Alike, Group> {
        self.groups(|run| run.class == Class::Will && run.pending)
    }

    /// Runs that are reached and not replayed, by namespace, function and reason.
    fn kept(&self) -> BTreeMap<(usize, u32, Kept), u64> {
        let mut kept = BTreeMap::new();
        for (at, found) in self.found.iter().enumerate() {
            for candidate in found.candidates.iter().filter(|run| run.class == Class::Will && !run.pending) {
                if let Some(reason) = candidate.kept {
                    *kept.entry((at, self.table(at).row(candidate.run).subject, reason)).or_default() += 1;
                }
            }
        }
        kept
    }

    /// Runs that are replayed and may have effects outside again, by namespace and function.
    fn effects(&self) -> BTreeMap<(usize, u32), u64> {
        let mut effects = BTreeMap::new();
        for (at, found) in self.found.iter().enumerate() {
            let is_replayed = |run: &&Candidate| run.class == Class::Will && !run.pending && run.kept.is_none();
            for run in found.candidates.iter().filter(is_replayed).filter_map(|run| run.attempted) {
                if self.settings(at, &run).is_some_and(|settings| settings.network) {
                    *effects.entry((at, run.function)).or_default() += 1;
                }
            }
        }
        effects
    }

    /// Records that earlier repairs corrected and that this one replaces by what their runs append now: the logs, the repairs, how many,
    /// and the first and the last.
    fn overwritten(&self) -> Vec<(String, u64, u64, (u64, u64))> {
        // By namespace, log and repair: how many, and the first and the last.
        let mut found = BTreeMap::new();
        for (at, of) in self.found.iter().enumerate() {
            let table = self.table(at);
            for row in of.records.iter().filter(|row| !self.changes[at].records.contains(row)) {
                let Some(repair) = table.corrected(*row).filter(|_| table.run_of(*row).is_some()) else { continue };
                let (log, seqno) = (table.row(*row).subject, table.row(*row).seqno);
                let (count, range) = found.entry((at, log, repair)).or_insert((0_u64, (seqno, seqno)));
                (*count, *range) = (*count + 1, (range.0.min(seqno), range.1.max(seqno)));
            }
        }
        let named = |((at, log, repair), (count, range))| (self.log(at, log), repair, count, range);
        found.into_iter().map(named).collect()
    }

    /// Logs of all namespaces with what of them changes: those of the user, and outboxes of peers that are not among the namespaces.
    fn logs(&self, of: impl Fn(&Discovery) -> &BTreeMap<u32, Rewritten>) -> [Vec<(String, Rewritten)>; 2] {
        let all = self.found.iter().enumerate().flat_map(|(at, found)| {
            of(found).iter().map(move |(log, rewritten)| (at, self.table(at).log_name(*log), *rewritten))
        });
        let (mut own, mut sent) = (Vec::new(), Vec::new());
        for (at, name, rewritten) in all {
            let name = name.unwrap_or("(removed log)");
            let Some(peer) = name.strip_prefix("_outbox/") else {
                own.push((format!("{}{name}", self.prefix(at)), rewritten));
                continue;
            };
            let link = self.links[at].iter().find(|link| link.kind == "outbox" && link.name == peer);
            if !link.is_some_and(|link| self.is_among(link)) {
                let to = link.map_or(peer, |link| &*link.to);
                sent.push((format!("{}{to}", self.prefix(at)), rewritten));
            }
        }
        [own, sent]
    }

    /// Whether the namespace at the other end of a link is one of those that the plan is about.
    fn is_among(&self, link: &LinkDoc) -> bool {
        let tables = self.sources.history.tables().iter();
        let mut ids = tables.map(|table| table.namespace().to_string());
        link.peer.as_ref().is_some_and(|peer| ids.any(|id| id == *peer))
    }

    /// The logs of a namespace that change.
    fn changed(&self, at: usize) -> HashSet<&str> {
        let corrected = self.corrected.as_ref().filter(|log| at == 0 && log.records > 0);
        let rewritten = self.found[at].rewrites.keys().filter_map(|log| self.table(at).log_name(*log));
        rewritten.chain(corrected.map(|corrected| &*corrected.log)).collect()
    }

    /// The relays of logs that change to namespaces that the plan is not about: the logs, and where the relays lead.
    fn copies(&self) -> Vec<(String, String)> {
        let mut copies = Vec::new();
        for at in 0..self.found.len() {
            let changed = self.changed(at);
            for link in self.links[at].iter().filter(|link| link.kind == "relay" && changed.contains(&*link.from)) {
                if Address::claims(&link.to) && !self.is_among(link) {
                    copies.push((format!("{}{}", self.prefix(at), link.from), link.to.clone()));
                }
            }
        }
        copies
    }

    /// The topics that keep old records of logs that change: the logs, and the topics.
    fn topics_kept(&self) -> Vec<(String, &str)> {
        let mut kept = Vec::new();
        for at in 0..self.found.len() {
            let changed = self.changed(at);
            let topics = self.topics[at].iter().flatten().filter(|(log, _)| changed.contains(&**log));
            kept.extend(topics.map(|(log, topic)| (format!("{}{log}", self.prefix(at)), &**topic)));
        }
        kept
    }

    /// The relays by which one namespace of the plan fetches from another: a repair does not follow them.
    fn fetches(&self) -> Vec<String> {
        let fetches = self.links.iter().enumerate().flat_map(|(at, links)| {
            let of = links.iter().filter(|link| link.kind == "relay" && Address::claims(&link.from));
            of.filter(move |link| self.is_among(link)).map(move |link| format!("{}{}", self.prefix(at), link.name))
        });
        fetches.collect()
    }

    fn prefix(&self, at: usize) -> String {
        if self.sources.sources.len() > 1 { format!("{}:", self.sources.sources[at].name) } else { String::new() }
    }

    fn function(&self, at: usize, function: u32) -> String {
        format!("{}{}", self.prefix(at), self.table(at).function_name(function).unwrap_or("(removed function)"))
    }

    fn log(&self, at: usize, log: u32) -> String {
        format!("{}{}", self.prefix(at), self.table(at).log_name(log).unwrap_or("(removed log)"))
    }

    fn why(&self, (at, _, reason, log): &Alike, group: &Group) -> String {
        let records = group.range.map_or(String::new(), |(first, last)| {
            let range = if first == last { format!("@{first}") } else { format!("@{first}..{last}") };
            format!("{}{range}", self.log(*at, *log))
        });
        words::why(reason.word(), &records, &self.log(*at, *log))
    }

    /// How long the replay takes, about, and on how many workers.
    fn estimate(&self, will: &BTreeMap<Alike, Group>) -> (u64, u64) {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let workers = (cores / 2).max(1);
        let mut by_function: HashMap<(usize, u32), u64> = HashMap::new();
        for ((at, function, ..), group) in will {
            *by_function.entry((*at, *function)).or_default() += group.took_us;
        }
        let lanes = by_function.iter().map(|((at, function), took_us)| {
            let facts = self.table(*at).function_name(*function).and_then(|name| self.functions[*at].get(name));
            took_us / u64::from(facts.map_or(1, |facts| facts.concurrency.max(1))).min(workers)
        });
        let all: u64 = by_function.values().sum();
        (lanes.max().unwrap_or(0).max(all / workers), workers)
    }

    /// Bytes that the repair would append to the journals, about.
    fn bytes(&self, will: &BTreeMap<Alike, Group>) -> u64 {
        let runs: u64 = will.values().map(|group| group.runs).sum();
        let rewritten = self.found.iter().flat_map(|found| found.rewrites.values());
        let records: u64 = rewritten.map(|log| log.records * ENTRY_BYTES + log.bytes).sum();
        let corrected = self.corrected.as_ref().map_or(0, |log| log.records * ENTRY_BYTES + log.bytes);
        records + corrected + runs * ENTRIES_PER_RUN * ENTRY_BYTES
    }

    /// Bytes of the journal that must be kept as long as the repair can be undone.
    fn pinned(&self) -> Option<u64> {
        self.sources.sources[0].bytes_from(self.table(0).position_near(self.from?))
    }

    /// Whether the repair would stop at a run that cannot be replayed.
    fn stops(&self) -> bool {
        let [_, sent] = self.logs(|found| &found.rewrites);
        let is_final = self.kept().into_keys().any(|(.., kept)| kept.stops());
        !sent.is_empty() || is_final || !self.fetches().is_empty() || self.is_too_large()
    }

    /// Whether a namespace would have more changed records than one repair replaces.
    fn is_too_large(&self) -> bool {
        let rewritten = |found: &Discovery| found.rewrites.values().map(|log| log.records).sum::<u64>();
        let corrected = self.corrected.as_ref().map_or(0, |log| log.records);
        let of =
            self.found.iter().enumerate().map(|(at, found)| rewritten(found) + if at == 0 { corrected } else { 0 });
        of.max().is_some_and(|records| records > repairs::SLOTS_MAX as u64)
    }

    /// The namespaces that take part, if there is more than the one that is corrected.
    fn participants(&self) -> Vec<String> {
        let names = self.sources.names();
        if names.len() > 1 { names } else { Vec::new() }
    }

    fn is_complete(&self) -> bool {
        let has_topics = self.topics.contains(&None) || !self.topics_kept().is_empty();
        !has_topics && self.is_read()
    }

    /// Whether the journals show every run that the correction reaches.
    fn is_read(&self) -> bool {
        !self.unknown_readers && self.sources.history.tables().iter().all(|table| table.damaged_stretches() == 0)
    }

    fn print(&self, out: &mut Out) -> Outcome {
        let mut names = self.sources.names();
        let name = names.remove(0);
        out.line(out.styled(Style::Bold, &format!("Plan for namespace {name}. Nothing was changed.")))?;
        if !names.is_empty() {
            out.line(format!("  {:<11}{}", "with", names.join(", ")))?;
        }
        let mut line = |word: &str, text: String| out.line(format!("  {word:<11}{text}"));
        if let Some(corrected) = &self.corrected {
            let Corrected { log, records, range, times, equal, .. } = corrected;
            let left_out = if *equal > 0 {
                format!("; {equal} more equal the recorded values and are ignored")
            } else {
                String::new()
            };
            if *records == 0 {
                line(
                    "corrects",
                    match equal {
                        1 => "nothing: the value equals the recorded one".into(),
                        equal => format!("nothing: all {equal} values equal the recorded ones"),
                    },
                )?;
            } else {
                let (first, last) = (show::rfc3339(times.0), show::rfc3339(times.1));
                let records = show::count(*records, "record");
                line("corrects", format!("{log}  {records}  @{}..{}, {first} to {last}{left_out}", range.0, range.1))?;
            }
        }
        for (function, source) in &self.replaced {
            line("corrects", format!("function {function}, with {source}"))?;
        }
        let will = self.will();
        let mut word = "replays";
        for (alike, group) in &will {
            let function = self.function(alike.0, alike.1);
            let text = format!(
                "{function:<16} {:>9} {}  {}",
                show::grouped(group.runs),
                runs(group.runs),
                self.why(alike, group)
            );
            line(std::mem::take(&mut word), text)?;
        }
        if will.is_empty() {
            line("replays", "no run".into())?;
        }
        let [own, sent] = self.logs(|found| &found.rewrites);
        let mut word = "rewrites";
        for (log, rewritten) in &own {
            let records = show::count(rewritten.records, "record");
            let (first, last) = rewritten.range;
            line(
                std::mem::take(&mut word),
                format!("{log:<16} {records}  @{first}..{last}, {}", units::show_size(rewritten.bytes)),
            )?;
        }
        let mut word = "overwrites";
        for (log, repair, count, (first, last)) in self.overwritten() {
            let records = show::count(count, "record");
            let text = format!(
                "{log:<16} {records}  @{first}..{last} that repair {repair} corrected; to keep its values, correct them again afterwards"
            );
            line(std::mem::take(&mut word), text)?;
        }
        let mut word = "not sent";
        for (peer, messages) in &sent {
            let messages = show::count(messages.records, "message");
            line(
                std::mem::take(&mut word),
                format!("{messages} to {peer}, which does not take part; add it with --with"),
            )?;
        }
        let mut word = "copies";
        for (log, to) in self.copies() {
            line(
                std::mem::take(&mut word),
                format!("{to} keeps the old records of {log}; to correct them, add it with --with"),
            )?;
        }
        let mut word = "topics";
        for (log, topic) in self.topics_kept() {
            let text = format!("topic {topic} keeps the old records of {log}, and so do its subscribers and mirrors");
            line(std::mem::take(&mut word), text)?;
        }
        if self.topics.contains(&None) {
            line("topics", "not known; topics that these logs feed keep their old records".into())?;
        }
        let mut word = "fetched";
        for relay in self.fetches() {
            line(
                std::mem::take(&mut word),
                format!("relay {relay} fetches from another namespace; a repair follows only relays that send"),
            )?;
        }
        let mut word = "not run";
        for ((at, function, kept), count) in self.kept() {
            let function = self.function(at, function);
            line(
                std::mem::take(&mut word),
                format!("{function:<16} {:>9} {}  {}", show::grouped(count), runs(count), reason(kept)),
            )?;
        }
        let mut word = "effects";
        for ((at, function), count) in self.effects() {
            let (function, count, runs) = (self.function(at, function), show::grouped(count), runs(count));
            let text = format!("{function:<16} {count:>9} {runs}  may repeat effects outside the namespace");
            line(std::mem::take(&mut word), text)?;
        }
        if self.is_too_large() || self.stops() {
            line("stops", words::stops(self.is_too_large()))?;
        }
        let mut word = "stale";
        let [own_stale, _] = self.logs(|found| &found.stale);
        for (log, stale) in own_stale {
            let records = show::count(stale.records, "record");
            line(
                std::mem::take(&mut word),
                format!("{log:<16} {records}  @{}..{} keep their values", stale.range.0, stale.range.1),
            )?;
        }
        let mut word = "pending";
        for (alike, group) in self.pending() {
            let function = self.function(alike.0, alike.1);
            let text = format!(
                "{function:<16} {:>9} {}  will use the new values",
                show::grouped(group.runs),
                runs(group.runs)
            );
            line(std::mem::take(&mut word), text)?;
        }
        let may: u64 = self.may().values().map(|group| group.runs).sum();
        if may > 0 {
            let count = show::count(may, "run");
            line("may replay", format!("{count} more, if a function appends more or fewer records than before"))?;
        }
        let claims: usize = self.found.iter().map(|found| found.claims.len()).sum();
        if claims > 0 {
            let records = show::count(claims as u64, "record");
            line("claims", format!("{records} from outside stay; their clients named a changed record as the cause"))?;
        }
        let mut word = "verified";
        for ((function, device), verified) in self.verified.iter().flatten() {
            let (same, of) = (verified.same, show::count(verified.runs, "run"));
            let of = device.as_ref().map_or(of.clone(), |device| format!("{of} of device {device}"));
            let odd = match (verified.differs, device) {
                (None, _) => String::new(),
                (Some(run), None) => format!("; {run} does not, so its replay may differ, too"),
                (Some(run), Some(_)) => format!("; {run} does not: the firmware computes something else than its twin"),
            };
            line(
                std::mem::take(&mut word),
                format!("{function:<16} {same} of {of} append the same records again{odd}"),
            )?;
        }
        let complete = match (self.is_complete(), self.table(0).horizon()) {
            (true, None) => "yes: the journal has every entry".into(),
            (true, Some(horizon)) => format!("yes: the journal goes back to {}", show::rfc3339(horizon)),
            (false, _) if self.is_read() => "no: a repair does not change the topics".into(),
            (false, Some(horizon)) if self.unknown_readers => {
                format!("no: the runs that read these records before {} are not known", show::rfc3339(horizon))
            }
            (false, _) => "no: a part of the journal cannot be read".into(),
        };
        devices::lines(&self.on_devices()).into_iter().try_for_each(|(word, text)| line(word, text))?;
        line("complete", complete)?;
        let (time_us, workers) = self.estimate(&will);
        let mut cost = format!(
            "{} on {}, {}",
            words::took(time_us),
            show::count(workers, "worker"),
            units::show_size(self.bytes(&will))
        );
        if let Some(pinned) = self.pinned() {
            cost +=
                &format!("; {} of the journal are kept as long as the repair can be undone", units::show_size(pinned));
        }
        line("cost", cost)?;
        for limit in self.sources.limits() {
            out.line(out.styled(Style::Warn, &limit))?;
        }
        Ok(())
    }

    fn object(&self) -> Value {
        let group = |(alike, group): (&Alike, &Group)| {
            json!({
                "function": self.function(alike.0, alike.1), "runs": group.runs, "reason": alike.2.word(),
                "log": (alike.3 != 0).then(|| self.log(alike.0, alike.3)), "range": group.range, "took_us": group.took_us,
            })
        };
        let groups = |groups: BTreeMap<Alike, Group>| groups.iter().map(group).collect::<Vec<Value>>();
        let logs = |logs: Vec<(String, Rewritten)>, name: &str| {
            let logs = logs.into_iter().map(|(log, rewritten)| {
                json!({ name: log, "records": rewritten.records, "bytes": rewritten.bytes, "range": rewritten.range })
            });
            logs.collect::<Vec<Value>>()
        };
        let kept = self.kept();
        let kept = kept.iter().map(|((at, function, kept), count)| {
            json!({ "function": self.function(*at, *function), "runs": count, "reason": kept.word() })
        });
        let effects = self.effects().into_iter();
        let effects =
            effects.map(|((at, function), runs)| json!({ "function": self.function(at, function), "runs": runs }));
        let corrected = self.corrected.as_ref().map(|corrected| {
            json!({
                "log": corrected.log, "records": corrected.records, "equal": corrected.equal, "range": corrected.range,
                "from": show::rfc3339(corrected.times.0), "to": show::rfc3339(corrected.times.1),
            })
        });
        let functions = self.replaced.iter().map(|(name, source)| json!({ "function": name, "source": source }));
        let will = self.will();
        let [own, sent] = self.logs(|found| &found.rewrites);
        let [own_stale, _] = self.logs(|found| &found.stale);
        let (time_us, workers) = self.estimate(&will);
        json!({
            "namespace": self.table(0).namespace().to_string(),
            "corrects": corrected,
            "replaces": functions.collect::<Vec<Value>>(),
            "replays": will.iter().map(group).collect::<Vec<Value>>(),
            "rewrites": logs(own, "log"),
            "overwrites": self.overwritten().into_iter().map(|(log, repair, records, range)| {
                json!({ "log": log, "repair": repair, "records": records, "range": range })
            }).collect::<Vec<Value>>(),
            "not_sent": logs(sent, "peer"),
            "copies": self.copies().into_iter().map(|(log, to)| json!({ "log": log, "to": to })).collect::<Vec<Value>>(),
            "topics": self.topics_kept().into_iter().map(|(log, topic)| json!({ "log": log, "topic": topic })).collect::<Vec<Value>>(),
            "fetched": self.fetches(),
            "participants": self.participants(),
            "not_run": kept.collect::<Vec<Value>>(),
            "effects": effects.collect::<Vec<Value>>(),
            "on_devices": devices::object(&self.on_devices()),
            "stops": self.stops(),
            "stale": logs(own_stale, "log"),
            "pending": groups(self.pending()),
            "may_replay": groups(self.may()),
            "claims": self.found.iter().map(|found| found.claims.len()).sum::<usize>(),
            "verified": self.verified.as_ref().map(|verified| verified.iter().map(devices::verified_object).collect::<Vec<Value>>()),
            "complete": self.is_complete(),
            "estimate": {
                "time_us": time_us, "workers": workers, "bytes": self.bytes(&will), "pinned_bytes": self.pinned(),
            },
            "limits": self.sources.limits(),
        })
    }
}

fn missing(log: &str, seqno: u64, bounds: Option<(u64, u64)>) -> millrace_node::Error {
    match bounds {
        Some((_, newest)) if seqno > newest => {
            Code::AboveTail.error(format!("log '{log}' has no record {seqno} yet; the newest is {newest}"))
        }
        Some((oldest, _)) => Code::CorrectionTooOld
            .error(format!("record {seqno} of log '{log}'; the oldest that can be corrected is {oldest}")),
        None => Code::CorrectionTooOld
            .error(format!("record {seqno} of log '{log}'; the journal has no record of this log")),
    }
}
