//! The journals that a command reads, and the values of their records.

use super::super::sandbox;
use crate::{
    args::{Global, WithArgs},
    commands::up::topics::of_logs,
    place::{
        Place, Target,
        docs::{KeyText, LinkDoc},
        entries::Start,
        open_to_look, tidy, viewed_links,
    },
    show,
};
use millrace_causality::{
    Builder, Event, Extent, History, Kept, KeyedEvent, Place as Spot, Settings, Table, Violation,
};
use millrace_documents::OnDeviceDoc;
use millrace_journal::{Kind, Operation};
use millrace_node::{
    Address, Code, EventId, FunctionStat, Hlc, LogName, Namespace, Position, Result,
    devices::{kept_in, kept_of, still_on_devices, still_on_devices_of},
    repairs::{self, CodeGiven, VerifiedRuns},
    secrets::FunctionSecrets,
};
use serde_json::Value;
use std::{cell::RefCell, collections::HashMap, num::NonZero, panic::resume_unwind, path::Path, thread};

/// The maximum number of entries that are read from a known position on to find one.
const READ_ON_MAX: usize = 256;
/// The maximum number of reported pairs of events in the wrong order.
const VIOLATIONS_MAX: usize = 5;

/// The kinds of entries that a host's document may have.
const KINDS: [Kind; 12] = [
    Kind::Open,
    Kind::Define,
    Kind::Append,
    Kind::Trigger,
    Kind::Fired,
    Kind::Done,
    Kind::Read,
    Kind::Generation,
    Kind::Trim,
    Kind::Call,
    Kind::Mark,
    Kind::Catalog,
];

/// A journal, and the name of its namespace here.
pub struct Source {
    /// The last part of its directory's or address's name.
    pub name: String,
    inner: Inner,
}

enum Inner {
    Files(Namespace),
    Host(Box<Place>, RefCell<Page>),
}

/// The records of the page that was read last.
#[derive(Default)]
struct Page {
    values: HashMap<EventId, Stored>,
}

/// The bytes of a record.
#[derive(Clone, Debug)]
pub struct Stored {
    pub bytes: Vec<u8>,
    /// Whether these are only its first bytes.
    pub cut: bool,
}

/// All journals of a command, and their common history.
pub struct Sources {
    pub sources: Vec<Source>,
    pub history: History,
}

/// Which history of a namespace is shown, if repairs were applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The current content of its logs.
    Repaired,
    /// The history before any repair.
    Original,
}

impl Sources {
    /// Reads the journals of the command's namespace and of the other ones that it names.
    pub fn load(global: &Global, with: &WithArgs, version: Version) -> Result<Self> {
        Self::load_from(Target::find(global)?.0, global, with, version)
    }

    /// The same, if an address of a log may name the namespace; returns the log's name in it.
    pub fn load_for(global: &Global, with: &WithArgs, version: Version, log: &str) -> Result<(Self, String)> {
        if !Address::claims(log) {
            return Ok((Self::load(global, with, version)?, log.to_owned()));
        }
        let address: Address = log.parse()?;
        let Some(name) = address.log else {
            return Err(
                Code::AddressInvalid.error(format!("'{log}' is the address of a namespace; add the name of a log"))
            );
        };
        let first = Target::Peer(address.peer, global.ca.clone());
        Ok((Self::load_from(first, global, with, version)?, name.to_string()))
    }

    fn load_from(first: Target, global: &Global, with: &WithArgs, version: Version) -> Result<Self> {
        let mut targets = vec![first];
        for named in &with.with {
            targets.push(Target::named(named, global)?);
        }
        let (sources, tables) = load_all(&targets, version)?.into_iter().unzip();
        Ok(Self { sources, history: History::new(tables) })
    }

    /// Unique names of the namespaces.
    pub fn names(&self) -> Vec<String> {
        let is_unique = |name: &str| self.sources.iter().filter(|source| source.name == name).count() == 1;
        let named = self.sources.iter().zip(self.history.tables()).map(|(source, table)| {
            let name = &source.name;
            if is_unique(name) { name.clone() } else { format!("{name} {}", table.namespace()) }
        });
        named.collect()
    }

    /// What is in front of the name of a record or run: the namespace, if there are several.
    pub fn prefix(&self, place: Spot) -> String {
        if self.sources.len() > 1 { format!("{}:", self.sources[place.table as usize].name) } else { String::new() }
    }

    /// The event that `LOG@SEQNO`, `LOG` or an event's id names.
    pub fn find(&self, target: &str) -> Result<Spot> {
        if let Ok(id) = target.parse::<EventId>()
            && let Some(place) = self.history.find(id)
        {
            return Ok(place);
        }
        let (log, seqno) = split_target(target)?;
        let tables = self.history.tables();
        let Some((at, id)) = tables.iter().enumerate().find_map(|(at, table)| Some((at, table.log(log)?))) else {
            let what = if target.parse::<EventId>().is_ok() { "event" } else { "log" };
            let code = if what == "log" { Code::LogNotFound } else { Code::EventNotKept };
            let form = if what == "log" && !target.contains('@') { "; a record has the form LOG@SEQNO" } else { "" };
            let named = if what == "log" { log } else { target };
            return Err(code.error(format!("no {what} '{named}'{}{form}", self.reach())));
        };
        let table = &tables[at];
        let bounds = table.bounds(id);
        let seqno = seqno.or(bounds.map(|(_, newest)| newest));
        let row = seqno.and_then(|seqno| table.record(id, seqno));
        row.map(|row| Spot { table: at as u32, row }).ok_or_else(|| match (seqno, bounds) {
            (Some(seqno), Some((oldest, newest))) => {
                let is_damaged = table.damaged_stretches() > 0 && (oldest..=newest).contains(&seqno);
                Code::EventNotKept.error(if is_damaged {
                    format!("record {seqno} of log '{log}' is in a part of the journal that cannot be read")
                } else {
                    format!("no record {seqno} in log '{log}'; the journal has {oldest} to {newest}")
                })
            }
            _ => Code::EventNotKept.error(format!("the journal has no record of log '{log}'")),
        })
    }

    /// The first and the last record of a log of the first namespace in a range of time, with both ends.
    pub fn within(&self, log: &str, from: Hlc, to: Hlc) -> Result<(u64, u64)> {
        let table = &self.history.tables()[0];
        let id = table.log(log).ok_or_else(|| Code::LogNotFound.error(format!("no log '{log}'")))?;
        let (oldest, newest) = table
            .bounds(id)
            .ok_or_else(|| Code::EventNotKept.error(format!("the journal has no record of log '{log}'")))?;
        let time = |seqno: u64| table.record(id, seqno).map(|row| table.row(row).hlc());
        let is_within = |seqno: &u64| time(*seqno).is_some_and(|time| from <= time && time <= to);
        let first = (oldest..=newest).find(is_within);
        first.zip((oldest..=newest).rev().find(is_within)).ok_or_else(|| {
            let shown = |seqno: u64| time(seqno).map_or_else(|| "?".into(), show::rfc3339);
            let (oldest, newest) = (shown(oldest), shown(newest));
            let error = format!("log '{log}' has no record in this time; its records are from {oldest} to {newest}");
            Code::CorrectionInvalid.error(error)
        })
    }

    /// The time from which on the journals are complete, for messages.
    fn reach(&self) -> String {
        let horizons = self.history.tables().iter().filter_map(Table::horizon).max();
        horizons.map_or(String::new(), |horizon| format!("; the journals go back to {}", show::rfc3339(horizon)))
    }

    /// The limits of the journals, a sentence each.
    pub fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        for (name, table) in self.names().iter().zip(self.history.tables()) {
            if let Some(horizon) = table.horizon() {
                let at = show::rfc3339(horizon);
                limits.push(format!("the journal of {name} goes back to {at}; earlier events are not known"));
            }
            if table.damaged_stretches() > 0 {
                let stretches = show::count(table.damaged_stretches(), "stretch").replace("stretchs", "stretches");
                limits.push(format!(
                    "{stretches} of the journal of {name} cannot be read; `millrace namespace check` shows which"
                ));
            }
        }
        let (violations, all) = self.history.violations(VIOLATIONS_MAX);
        limits.extend(violations.iter().map(|violation| self.violation(violation)));
        if all > violations.len() as u64 {
            limits.push(format!("{} more pairs of events are in the wrong order", all - violations.len() as u64));
        }
        limits
    }

    fn violation(&self, violation: &Violation) -> String {
        let event = |place: Spot| {
            let id = self.history.id(place);
            format!("{id} of {}", show::rfc3339(self.history.row(place).hlc()))
        };
        match *violation {
            Violation::CauseBehindEffect { cause, effect } => {
                format!("event {} is not later than its cause, {}", event(effect), event(cause))
            }
            Violation::ClockWentBack { before, after } => {
                format!("the clock went backwards: event {} is after {}", event(after), event(before))
            }
            Violation::Differs { one, other } => {
                let names = self.names();
                let (a, b) = (&names[one.table as usize], &names[other.table as usize]);
                format!("{a} and {b} have different events with the same id, {}", self.history.id(one))
            }
        }
    }

    /// The bytes of a record, if they can be read: the repaired ones, if an applied repair changed it. `None` also if the repair removed
    /// the record.
    pub fn value(&self, place: Spot) -> Result<Option<Stored>> {
        match self.history.table(place).version(place.row) {
            Some(version) if version.void => Ok(None),
            Some(version) => self.original(Spot { row: version.row, ..place }),
            None => self.original(place),
        }
    }

    /// The bytes of an APPEND, regardless of repairs.
    pub fn original(&self, place: Spot) -> Result<Option<Stored>> {
        let (id, near) = (self.history.id(place), self.history.table(place).position_near(place.row));
        self.sources[place.table as usize].value(id, near)
    }

    /// The applied repairs that have changed something, each with the name of its namespace.
    pub fn repairs(&self) -> Vec<(String, u64, Extent)> {
        let of = |(name, table): (String, &Table)| {
            let repairs = table.repairs().into_iter();
            repairs.map(|(repair, extent)| (name.clone(), repair, extent)).collect::<Vec<_>>()
        };
        self.names().into_iter().zip(self.history.tables()).flat_map(of).collect()
    }

    /// Replays some runs of each function of the first namespace unchanged, and returns whether their output is the same.
    pub fn verify(&self, most: usize) -> Result<VerifiedRuns> {
        match &self.sources[0].inner {
            Inner::Files(namespace) => repairs::verify(namespace, most, None, &sandbox::isolation()?),
            Inner::Host(..) => {
                Err(Code::CorrectionInvalid.error("--verify needs the namespace's files, not an address"))
            }
        }
    }

    /// Returns an error if a process began to use a directory while it was read: the result may be wrong.
    pub fn check(&self) -> Result<()> {
        for source in &self.sources {
            if let Inner::Files(namespace) = &source.inner {
                namespace.journal().check_undisturbed()?;
            }
        }
        Ok(())
    }
}

/// Reads the journals, as many at a time as there are cores.
fn load_all(targets: &[Target], version: Version) -> Result<Vec<(Source, Table)>> {
    let load = |target: &Target| Source::load(target, version).map_err(|error| error.within(target));
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut loaded = Vec::with_capacity(targets.len());
    for some in targets.chunks(cores) {
        let results: Vec<_> = thread::scope(|scope| {
            let readers: Vec<_> = some.iter().map(|target| scope.spawn(move || load(target))).collect();
            let join =
                |reader: thread::ScopedJoinHandle<'_, _>| reader.join().unwrap_or_else(|panic| resume_unwind(panic));
            readers.into_iter().map(join).collect()
        });
        for result in results {
            loaded.push(result?);
        }
    }
    Ok(loaded)
}

/// `LOG@SEQNO`, or `LOG` alone.
fn split_target(target: &str) -> Result<(&str, Option<u64>)> {
    let Some((log, seqno)) = target.rsplit_once('@') else { return Ok((target, None)) };
    match seqno.parse() {
        Ok(0) | Err(_) => Err(Code::SeqnoInvalid.error(format!("'{seqno}' in '{target}' is not a sequence number"))),
        Ok(seqno) => Ok((log, Some(seqno))),
    }
}

impl Source {
    fn load(target: &Target, version: Version) -> Result<(Source, Table)> {
        if let Target::Directory(dir) = target {
            let namespace = open_to_look(&tidy(dir.clone()))?;
            let table = read_files(&namespace, version)?;
            return Ok((Source { name: name_of(dir), inner: Inner::Files(namespace) }, table));
        }
        let place = Place::at(target)?;
        let table = read_host(&place, version)?;
        let name = match target {
            Target::Peer(peer, _) => peer.namespace.to_string(),
            Target::Socket(path) | Target::Directory(path) => name_of(path),
        };
        Ok((Source { name, inner: Inner::Host(Box::new(place), RefCell::default()) }, table))
    }

    fn value(&self, id: EventId, near: u64) -> Result<Option<Stored>> {
        match &self.inner {
            Inner::Files(namespace) => {
                let mut scan = namespace.journal().scan_all(Position::from_bytes(near));
                for _ in 0..READ_ON_MAX {
                    match scan.next() {
                        Ok(Some(entry)) if entry.id == id => {
                            return Ok(Some(Stored { bytes: entry.payload.clone(), cut: false }));
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(error) if error.code() == Code::EntryDamaged => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(None)
            }
            Inner::Host(place, page) => {
                let mut page = page.borrow_mut();
                if !page.values.contains_key(&id) {
                    page.values = values_of(&place.entries_with(Start::Position(near), true)?.entries);
                }
                Ok(page.values.get(&id).cloned())
            }
        }
    }

    /// The functions of a directory; for a host, only the fields of its documents.
    pub fn functions(&self) -> Result<Functions> {
        match &self.inner {
            Inner::Files(namespace) => {
                let catalog = namespace.journal().catalog()?;
                let revision = |name: &str| catalog.function(name).map(|function| function.revision());
                let functions = namespace.functions()?.into_iter();
                Ok(functions.map(|stat| (stat.name.to_string(), Facts::of(&stat, revision(&stat.name)))).collect())
            }
            Inner::Host(place, _) => {
                let facts = place.functions()?.into_iter().map(|function| {
                    let facts = match &function.definition {
                        Some(definition) => Facts {
                            settings: Some(Settings {
                                network: definition.network,
                                code: definition.code.clone(),
                                secrets: definition.secrets.clone(),
                            }),
                            revision: None,
                            concurrency: definition.concurrency,
                        },
                        None => Facts::default(),
                    };
                    (function.name, facts)
                });
                Ok(facts.collect())
            }
        }
    }

    /// The code that repairs in force gave past runs; only for files.
    pub fn given(&self) -> Result<Vec<CodeGiven>> {
        let Inner::Files(namespace) = &self.inner else { return Ok(Vec::new()) };
        let repairs = repairs::repairs(namespace)?;
        let known: Vec<_> = repairs.iter().map(|it| (it.repair, it.phase.as_str(), it.undo)).collect();
        let in_force = in_force(&known);
        Ok(repairs.iter().filter(|it| in_force.contains(&it.repair)).filter_map(repairs::Repair::given).collect())
    }

    /// Why a run cannot be replayed with these settings, if the files show that.
    pub fn lacks(&self, function: Option<&str>, settings: &Settings) -> Option<Kept> {
        let Inner::Files(namespace) = &self.inner else { return None };
        if settings.code.is_empty() {
            return repairs::lacks_twin(namespace, function).then_some(Kept::NoTwin);
        }
        if millrace_node::functions::check_code(namespace.dir(), &settings.code).is_err() {
            return Some(Kept::NoCode);
        }
        let secrets = FunctionSecrets::of(namespace.dir()).names().ok()?;
        let is_known = |name: &String| secrets.iter().any(|secret| **secret == **name);
        (!settings.secrets.iter().all(is_known)).then_some(Kept::NoSecret)
    }

    /// The known links to other namespaces. A copy from a broken machine may lack some.
    pub fn links(&self) -> Vec<LinkDoc> {
        let links = match &self.inner {
            Inner::Files(namespace) => viewed_links(namespace),
            Inner::Host(place, _) => place.links(),
        };
        links.unwrap_or_default()
    }

    /// The logs that feed topics or mirror them, each with its topic; `None` if that is not known.
    pub fn topics(&self) -> Result<Option<Vec<(String, String)>>> {
        match &self.inner {
            Inner::Files(namespace) => {
                let topics = repairs::topics(namespace)?.into_iter();
                Ok(Some(topics.map(|of| (of.log, of.topic)).collect()))
            }
            Inner::Host(place, _) => match &**place {
                Place::Remote(remote, _) => of_logs(remote),
                Place::Local(_) => Ok(None),
            },
        }
    }

    /// What devices may still have of records that change, as they were; for files, which say what devices keep.
    pub fn still_on_devices<'c>(&self, changed: impl Iterator<Item = (&'c str, u64)>) -> (Vec<OnDeviceDoc>, u64) {
        match &self.inner {
            Inner::Files(namespace) => still_on_devices_of(namespace, changed),
            Inner::Host(place, _) => {
                let Place::Remote(remote, _) = &**place else { return Default::default() };
                let kept = |device: &str| {
                    remote.log(&format!("_device/{device}")).ok()?;
                    let record = remote.newest(&kept_of(device).ok()?).ok();
                    Some(record.map_or_else(Vec::new, |record| kept_in(&record.payload)))
                };
                still_on_devices(changed, &kept, &|log| remote.log(log).map_or(0, |log| log.latest))
            }
        }
    }

    /// The number of the oldest record that a log shows, if it has any.
    pub fn oldest(&self, log: &LogName) -> Option<u64> {
        match &self.inner {
            Inner::Files(namespace) => namespace.log(log).ok().filter(|log| log.latest() > 0).map(|log| log.earliest()),
            Inner::Host(place, _) => place.log(log).ok().filter(|log| log.latest > 0).map(|log| log.earliest),
        }
    }

    /// How many bytes the journal has from a position on; only for files.
    pub fn bytes_from(&self, position: u64) -> Option<u64> {
        match &self.inner {
            Inner::Files(namespace) => Some(namespace.journal().tail().get().saturating_sub(position)),
            Inner::Host(..) => None,
        }
    }
}

/// Functions by their names.
pub type Functions = HashMap<String, Facts>;

/// The parts of a function that a repair needs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The settings that it has now, if they are known.
    pub settings: Option<Settings>,
    /// Its revision, if it is known.
    pub revision: Option<u32>,
    /// How many of its runs are executed at once.
    pub concurrency: u32,
}

impl Facts {
    fn of(stat: &FunctionStat, revision: Option<u32>) -> Self {
        let Ok(definition) = &stat.definition else { return Self::default() };
        let settings = Settings {
            network: definition.spec.network,
            code: definition.code.clone(),
            secrets: definition.spec.rights.secrets.iter().map(ToString::to_string).collect(),
        };
        Self { settings: Some(settings), revision, concurrency: definition.spec.concurrency }
    }
}

/// The last meaningful part of a path.
pub(super) fn name_of(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut parts = whole.iter().rev().map(|part| part.to_string_lossy().into_owned());
    let named = parts.find(|part| !part.starts_with('.') && part != "sock");
    named.unwrap_or_else(|| path.display().to_string())
}

/// The repairs whose records the logs show, of these with their phases and what they undo.
fn in_force(repairs: &[(u64, &str, Option<u64>)]) -> Vec<u64> {
    // One that was rolled back is in force again if the rollback was rolled back.
    let applied = repairs.iter().filter(|(_, phase, _)| matches!(*phase, "applied" | "closed" | "rolled-back"));
    repairs::in_force(applied.map(|(number, _, undo)| (*number, *undo)))
}

fn read_files(namespace: &Namespace, version: Version) -> Result<Table> {
    let journal = namespace.journal();
    let (tail, catalog) = (journal.tail(), journal.catalog()?);
    let mut builder = Builder::new(journal.namespace());
    catalog.logs().for_each(|log| builder.name_log(log.id(), log.name()));
    catalog.functions().for_each(|function| builder.name_function(function.id(), function.name()));
    if version == Version::Repaired {
        let repairs = repairs::repairs(namespace)?;
        let repairs: Vec<_> = repairs.iter().map(|it| (it.repair, it.phase.as_str(), it.undo)).collect();
        in_force(&repairs).into_iter().for_each(|repair| builder.in_force(repair));
    }
    let mut scan = journal.scan_all(Position::default());
    while scan.position() < tail {
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
    Ok(builder.finish())
}

fn read_host(place: &Place, version: Version) -> Result<Table> {
    let newest = place.entries_with(Start::Last(1), true)?;
    let id = newest.entries.first().and_then(|entry| id_of(entry, "id"));
    let namespace = id.and_then(EventId::namespace);
    let namespace =
        namespace.ok_or_else(|| Code::DocumentUnknown.error("the host returned no entry of its journal"))?;
    let mut builder = Builder::new(namespace);
    place.logs()?.iter().for_each(|log| builder.name_log(log.incarnation, &log.name));
    if version == Version::Repaired {
        let repairs = place.repairs()?;
        let repairs: Vec<_> = repairs.iter().map(|it| (it.repair, &*it.phase, it.undo)).collect();
        in_force(&repairs).into_iter().for_each(|repair| builder.in_force(repair));
    }
    let (mut start, tail) = (0, newest.tail);
    while start < tail {
        let page = place.entries_with(Start::Position(start), true)?;
        for entry in &page.entries {
            match take(&mut builder, entry) {
                Some(taken) => taken?,
                None => builder.damaged(),
            }
        }
        if page.next <= start {
            break;
        }
        start = page.next;
    }
    Ok(builder.finish())
}

fn id_of(entry: &Value, key: &str) -> Option<EventId> {
    entry[key].as_str().map_or(Some(EventId::NONE), |text| text.parse().ok())
}

fn payload_of(entry: &Value) -> Option<Vec<u8>> {
    match (&entry["data"], &entry["base64"]) {
        (Value::String(text), _) => Some(text.clone().into_bytes()),
        (_, Value::String(text)) => show::from_base64(text),
        _ => Some(Vec::new()),
    }
}

/// What an entry of a host's document says of the key of a table. An older host says only what it restates.
fn key_of(entry: &Value) -> Option<(Vec<u8>, KeyedEvent)> {
    let restates = entry["restates"].as_u64();
    let Some(key) = entry.get("key") else {
        return restates.map(|restates| (Vec::new(), KeyedEvent { restates, ..KeyedEvent::default() }));
    };
    let KeyText(key) = serde_json::from_value(key.clone()).ok()?;
    let operation = entry["operation"].as_str().and_then(Operation::named)?;
    let event = KeyedEvent::new(&key, operation, restates.unwrap_or(0));
    Some((key, event))
}

/// Puts an entry of a host's document into a table; `None` if it is none.
fn take(builder: &mut Builder, entry: &Value) -> Option<Result<()>> {
    let name = entry["kind"].as_str()?;
    let kind = KINDS.into_iter().find(|kind| kind.name() == name)?;
    let subject = u32::try_from(entry["subject_id"].as_u64()?).ok()?;
    if let Some(name) = entry["subject"].as_str() {
        match kind {
            Kind::Append | Kind::Trim => builder.name_log(subject, name),
            _ => builder.name_function(subject, name),
        }
    }
    let (payload, key) = (payload_of(entry)?, key_of(entry));
    Some(builder.push(&Event {
        id: id_of(entry, "id")?,
        position: entry["position"].as_u64()?,
        kind,
        hlc: Hlc::from_bits(entry["hlc"].as_str()?.parse().ok()?),
        cause: id_of(entry, "cause")?,
        subject,
        seqno: entry["seqno"].as_u64()?,
        ordinal: u16::try_from(entry["ordinal"].as_u64()?).ok()?,
        carried: entry["carried"].as_bool()?,
        claimed: entry["claimed"].as_bool().unwrap_or(false),
        repair: entry["repair"].as_u64(),
        void: entry["void"].as_bool().unwrap_or(false),
        key: key.as_ref().map(|(key, event)| (&**key, *event)),
        payload: &payload,
        payload_bytes: entry["bytes"].as_u64()?,
    }))
}

fn values_of(entries: &[Value]) -> HashMap<EventId, Stored> {
    let records = entries.iter().filter(|entry| entry["kind"] == "APPEND");
    let records = records.filter_map(|entry| {
        let stored = Stored { bytes: payload_of(entry)?, cut: entry["cut"].as_bool().unwrap_or(false) };
        Some((id_of(entry, "id")?, stored))
    });
    records.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_a_record_or_the_newest_one() {
        assert_eq!(split_target("raw/a@7").unwrap(), ("raw/a", Some(7)));
        assert_eq!(split_target("raw/a").unwrap(), ("raw/a", None));
        for wrong in ["raw/a@0", "raw/a@", "raw/a@x"] {
            assert_eq!(split_target(wrong).unwrap_err().code(), Code::SeqnoInvalid, "{wrong}");
        }
    }

    #[test]
    fn a_repair_is_in_force_until_another_one_undoes_it() {
        let repairs = |undone: &'static str| [(1, "closed", None), (4, undone, None), (8, "ready", Some(4))];
        assert_eq!(in_force(&repairs("applied")), [1, 4]);
        // One that was rolled back may have been closed since.
        let mut undone =
            vec![(1, "applied", None), (4, "closed", None), (8, "applied", Some(4)), (12, "abandoned", None)];
        assert_eq!(in_force(&undone), [1, 8]);
        (undone[1].1, undone[2].1) = ("rolled-back", "rolled-back");
        undone.push((16, "applied", Some(8)));
        assert_eq!(in_force(&undone), [1, 4, 16], "the rollback was rolled back");
    }

    #[test]
    fn a_namespace_is_called_by_the_last_part_of_its_path_that_says_something() {
        assert_eq!(name_of(Path::new("/srv/farm/.millrace")), "farm");
        assert_eq!(name_of(Path::new("/srv/farm")), "farm");
        assert_eq!(name_of(Path::new("/srv/farm/sock")), "farm");
    }
}
