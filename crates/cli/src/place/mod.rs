//! The namespace of a command, and the operations on it: the same on this machine and on another.
//!
//! ```text
//!  --namespace, environment, millrace.toml, context        target
//!            |
//!            +--> a directory     its files, mapped        local
//!            +--> mr://, unix:    its host, asked          remote
//! ```

pub mod contexts;
pub mod docs;
pub mod entries;
mod local;
mod manage;
pub mod remote;
mod tables;
mod target;

pub use manage::viewed_links;
pub use target::{Origin, Target, application_file};

use crate::{args::Global, report::Outcome};
use docs::{
    AmendmentsDoc, ChangesDoc, EntriesDoc, FailuresDoc, FunctionDoc, LinkDoc, LogDoc, OutputDoc, RepairDoc, RunDoc,
    RunsDoc, TasksDoc, WhyDoc,
};
use entries::Start;
use millrace_client::Options;
use millrace_gateway::SOCKET;
use millrace_node::{
    Address, AppendOptions, Code, Error, EventId, Hlc, HostStatus, LogName, Name, Namespace, NewRecord, Position,
    Record, Result, RunFilter,
    application::{Application, NAMESPACE_DIR},
    documents,
    repairs::{Amendments, Ask},
    upkeep,
};
pub use remote::Remote;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// A namespace that a command works on.
pub enum Place {
    /// Its files.
    Local(Namespace),
    /// A connection to its host, and where that is.
    Remote(Remote, Target),
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The record's sequence number in its log.
    pub seqno: u64,
    /// The record's id.
    pub id: EventId,
}

/// The content of a place of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record.
    Record(Record),
    /// Nothing: this many records have left the log's history.
    Missed(u64),
    /// A record that cannot be read.
    Damaged(Error),
}

impl Place {
    /// The namespace a command is about.
    pub fn find(global: &Global) -> Result<Place> {
        Self::at(&Target::find(global)?.0)
    }

    /// The namespace with a log and the log's name there: one elsewhere by its address, else one of the namespace that the
    /// command is about.
    pub fn of_log(global: &Global, log: &str) -> Result<(Place, String)> {
        if !Address::claims(log) {
            return Ok((Self::find(global)?, log.to_owned()));
        }
        let address: Address = log.parse()?;
        match address.log {
            Some(name) => Ok((Self::at(&Target::Peer(address.peer, global.ca.clone()))?, name.to_string())),
            None => {
                Err(Code::AddressInvalid.error(format!("'{log}' is the address of a namespace; add the name of a log")))
            }
        }
    }

    /// The namespace at a target.
    pub fn at(target: &Target) -> Result<Place> {
        Self::reach(target, &remote::options())
    }

    /// The namespace at a target, over a connection of this kind if it needs one.
    pub fn reach(target: &Target, options: &Options) -> Result<Place> {
        let (place, ca) = match target {
            Target::Directory(dir) => {
                let namespace = Namespace::open(&tidy(dir.clone()))?;
                // Whoever reads what a command prints is outside, as the client of a host is.
                namespace.wait_for_databases(false)?;
                return Ok(Place::Local(namespace));
            }
            Target::Peer(peer, ca) => (millrace_client::Place::Tcp(peer.clone()), ca.clone()),
            Target::Socket(path) => (millrace_client::Place::Unix(path.clone()), None),
        };
        Ok(Place::Remote(Remote::connect(&place, &Options { ca, ..options.clone() })?, target.clone()))
    }

    /// A connection to the host that serves the namespace, for what only a host can do.
    pub fn connect(self) -> Result<Remote> {
        match self {
            Place::Remote(remote, _) => Ok(remote),
            Place::Local(namespace) if namespace.host()?.is_none() => {
                Err(Code::HostNotRunning.error(format!("no host serves {}", namespace.dir().display())))
            }
            Place::Local(namespace) => {
                Remote::connect(&millrace_client::Place::Unix(namespace.dir().join(SOCKET)), &remote::options())
            }
        }
    }

    /// A connection to the host that serves these files, for what the host may add to them; none if there is no host.
    pub fn host_here(&self) -> Option<Remote> {
        let Place::Local(namespace) = self else { return None };
        namespace.host().ok()??;
        Remote::connect(&millrace_client::Place::Unix(namespace.dir().join(SOCKET)), &remote::options()).ok()
    }

    /// The namespace's files, for what can only be done with them.
    pub fn files(&self) -> Result<&Namespace> {
        match self {
            Place::Local(namespace) => Ok(namespace),
            Place::Remote(_, target) => Err(local_only(target)),
        }
    }

    pub fn logs(&self) -> Result<Vec<LogDoc>> {
        match self {
            Place::Local(namespace) => local::logs(namespace),
            Place::Remote(remote, _) => remote.logs(),
        }
    }

    pub fn log(&self, name: &str) -> Result<LogDoc> {
        match self {
            Place::Local(namespace) => local::log(namespace, name),
            Place::Remote(remote, _) => remote.log(name),
        }
    }

    /// The oldest and the newest record that can be read, each 0 if there is none.
    pub fn bounds(&self, log: &str) -> Result<(u64, u64)> {
        match self {
            Place::Local(namespace) => local::bounds(namespace, log),
            Place::Remote(remote, _) => remote.bounds(log),
        }
    }

    /// Creates a log; returns whether it existed already.
    pub fn create_log(&self, name: &LogName, history: u64) -> Result<bool> {
        match self {
            Place::Local(namespace) => local::create_log(namespace, name, history),
            Place::Remote(remote, _) => remote.create_log(name, history),
        }
    }

    pub fn set_history(&self, name: &LogName, history: u64) -> Result<()> {
        match self {
            Place::Local(namespace) => namespace.set_history(name, history).map(drop),
            Place::Remote(remote, _) => remote.client().set_history(name, history),
        }
    }

    /// Cancels a run that has not ended.
    pub fn cancel_run(&self, id: EventId) -> Result<()> {
        match self {
            Place::Local(namespace) => millrace_node::functions::cancel(namespace, id),
            Place::Remote(remote, _) => remote.client().cancel_run(id),
        }
    }

    pub fn remove_log(&self, name: &LogName) -> Result<()> {
        match self {
            Place::Local(namespace) => namespace.remove_log(name),
            Place::Remote(remote, _) => remote.remove_log(name),
        }
    }

    pub fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Result<Receipt> {
        match self {
            Place::Local(namespace) => local::append(namespace, log, data, options),
            Place::Remote(remote, _) => remote.append(log, data, options),
        }
    }

    /// Appends records, many to a commit; `progress` is called for each batch once it has the requested durability.
    ///
    /// When it returns an error, the records whose receipts `progress` was given are appended, and no others.
    pub fn append_many(
        &self,
        records: Vec<Result<NewRecord>>,
        options: AppendOptions<'_>,
        progress: &mut dyn FnMut(&[Receipt]),
    ) -> Result<()> {
        match self {
            Place::Local(namespace) => local::append_many(namespace, records, options, progress),
            Place::Remote(remote, _) => remote.append_many(records, options, progress),
        }
    }

    pub fn get(&self, log: &str, seqno: u64) -> Result<Record> {
        match self {
            Place::Local(namespace) => local::get(namespace, log, seqno),
            Place::Remote(remote, _) => remote.get(log, seqno),
        }
    }

    /// The newest record that no repair made void.
    pub fn newest(&self, log: &str) -> Result<Record> {
        match self {
            Place::Local(namespace) => local::newest(namespace, log),
            Place::Remote(remote, _) => remote.newest(log),
        }
    }

    /// Reads `from` to `to`, in order, and passes each place to `visit`.
    pub fn read(&self, log: &str, from: u64, to: u64, visit: &mut dyn FnMut(u64, Found) -> Outcome) -> Outcome {
        self.read_of(log, None, (from, to), visit)
    }

    /// The same, of one incarnation of the log and of no other.
    pub fn read_of(
        &self,
        log: &str,
        incarnation: Option<u32>,
        range: (u64, u64),
        visit: &mut dyn FnMut(u64, Found) -> Outcome,
    ) -> Outcome {
        match self {
            Place::Local(namespace) => local::read(namespace, log, incarnation, range, visit),
            Place::Remote(remote, _) => remote.read(log, incarnation, range, visit),
        }
    }

    /// Which log of its name it is; nothing if its host does not say.
    pub fn incarnation(&self, log: &str) -> Result<Option<u32>> {
        match self {
            Place::Local(namespace) => Ok(Some(namespace.log(log)?.id())),
            Place::Remote(remote, _) => remote.incarnation(log),
        }
    }

    /// The newest seqno, as soon as it is above `seen` or the time is up.
    pub fn wait_above(&self, log: &str, seen: u64, timeout: Duration) -> Result<u64> {
        match self {
            Place::Local(namespace) => local::wait_above(namespace, log, seen, timeout),
            Place::Remote(remote, _) => remote.wait_above(log, seen, timeout),
        }
    }

    pub fn functions(&self) -> Result<Vec<FunctionDoc>> {
        match self {
            Place::Local(namespace) => local::functions(namespace),
            Place::Remote(remote, _) => remote.functions(),
        }
    }

    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunDoc>> {
        match self {
            Place::Local(namespace) => local::runs(namespace, filter),
            Place::Remote(remote, _) => remote.runs(filter),
        }
    }

    /// A page of [`Place::runs`], and where to continue.
    pub fn runs_page(&self, filter: &RunFilter) -> Result<RunsDoc> {
        match self {
            Place::Local(namespace) => local::runs_page(namespace, filter),
            Place::Remote(remote, _) => remote.runs_page(filter),
        }
    }

    pub fn run(&self, id: EventId) -> Result<RunDoc> {
        match self {
            Place::Local(namespace) => local::run(namespace, id),
            Place::Remote(remote, _) => remote.run(id),
        }
    }

    /// The run once it has ended, or as it is when the time is up.
    pub fn wait_run(&self, id: EventId, timeout: Duration) -> Result<RunDoc> {
        match self {
            Place::Local(namespace) => local::wait_run(namespace, id, timeout),
            Place::Remote(remote, _) => remote.wait_run(id, timeout),
        }
    }

    /// Waits until no run is pending.
    pub fn wait_idle(&self, timeout: Duration) -> Result<()> {
        match self {
            Place::Local(namespace) => namespace.wait_idle(timeout),
            Place::Remote(remote, _) => remote.wait_idle(timeout),
        }
    }

    /// The activity of the namespace's host, if there is one.
    pub fn host(&self) -> Result<Option<HostStatus>> {
        match self {
            Place::Local(namespace) => HostStatus::of(namespace),
            Place::Remote(remote, _) => remote.host(),
        }
    }

    /// Outboxes and relays.
    pub fn links(&self) -> Result<Vec<LinkDoc>> {
        match self {
            Place::Local(namespace) => manage::local_links(namespace),
            Place::Remote(remote, _) => remote.links(),
        }
    }

    /// A page of the journal's entries.
    pub fn entries(&self, start: Start) -> Result<EntriesDoc> {
        self.entries_with(start, false)
    }

    /// The same, with shadow entries if they are wanted.
    pub fn entries_with(&self, start: Start, shadows: bool) -> Result<EntriesDoc> {
        match self {
            Place::Local(namespace) => entries::page(namespace.journal(), start, shadows),
            Place::Remote(remote, _) => remote.entries(start, shadows),
        }
    }

    /// Returns when the journal may have grown beyond `tail`, at the latest when the time is up.
    pub fn wait_entries(&self, tail: u64, timeout: Duration) {
        match self {
            Place::Local(namespace) => {
                namespace.journal().wait(Position::from_bytes(tail), timeout);
            }
            Place::Remote(remote, _) => remote.pause(timeout),
        }
    }

    /// Asks something of repairs; the repair as it is then.
    pub fn ask_repair(&self, ask: Ask) -> Result<RepairDoc> {
        match self {
            Place::Local(namespace) => local::ask_repair(namespace, ask),
            Place::Remote(remote, _) => remote.ask_repair(&ask),
        }
    }

    /// Amends records of a log; returns the waiting amendments.
    pub fn amend(&self, amendments: Amendments) -> Result<AmendmentsDoc> {
        let ask = Ask::Amend(amendments);
        match self {
            Place::Local(namespace) => local::ask_repair(namespace, ask),
            Place::Remote(remote, _) => remote.ask_repair(&ask),
        }
    }

    /// The amendable logs, and their waiting amendments.
    pub fn amendments(&self) -> Result<Vec<AmendmentsDoc>> {
        match self {
            Place::Local(namespace) => local::amendments(namespace),
            Place::Remote(remote, _) => remote.amendments(),
        }
    }

    pub fn repairs(&self) -> Result<Vec<RepairDoc>> {
        match self {
            Place::Local(namespace) => local::repairs(namespace),
            Place::Remote(remote, _) => remote.repairs(),
        }
    }

    pub fn repair(&self, number: u64) -> Result<RepairDoc> {
        match self {
            Place::Local(namespace) => local::repair(namespace, number),
            Place::Remote(remote, _) => remote.repair(number),
        }
    }

    /// A page of what a repair changes, behind the first `after` changes.
    pub fn repair_changes(&self, number: u64, log: Option<&str>, after: u64) -> Result<ChangesDoc> {
        match self {
            Place::Local(namespace) => local::repair_changes(namespace, number, log, after),
            Place::Remote(remote, _) => remote.repair_changes(number, log, after),
        }
    }

    /// What a run has printed behind its first `from` bytes. Only its host knows it while the run is in progress.
    pub fn output(&self, id: &str, from: u64) -> Result<OutputDoc> {
        match self {
            Place::Local(namespace) if namespace.host()?.is_none() => documents::output(namespace, id, from),
            Place::Local(namespace) => {
                let place = millrace_client::Place::Unix(namespace.dir().join(SOCKET));
                Remote::connect(&place, &remote::options())?.output(id, from)
            }
            Place::Remote(remote, _) => remote.output(id, from),
        }
    }

    /// Dead letters since a moment, by function and error.
    pub fn failures(&self, since: Option<Hlc>, function: Option<&Name>) -> Result<FailuresDoc> {
        match self {
            Place::Local(namespace) => documents::failures(namespace, since, function, &|| Ok(())),
            Place::Remote(remote, _) => remote.failures(since, function),
        }
    }

    /// Pools of workers and their tasks.
    pub fn tasks(&self) -> Result<TasksDoc> {
        match self {
            Place::Local(namespace) => documents::tasks(namespace, HostStatus::of(namespace)?.as_ref()),
            Place::Remote(remote, _) => remote.document("tasks"),
        }
    }

    pub fn why(&self, target: &str) -> Result<WhyDoc> {
        match self {
            Place::Local(namespace) => local::why(namespace, target),
            Place::Remote(remote, _) => remote.why(target),
        }
    }
}

/// Numbers of another log say nothing of how far this one was read.
pub fn check_incarnation(log: &str, wanted: Option<u32>, found: Option<u32>) -> Result<()> {
    if wanted.is_some() && wanted != found {
        return Err(Code::CursorIncarnation.error(format!("log '{log}' was deleted and recreated")));
    }
    Ok(())
}

pub fn local_only(target: &Target) -> Error {
    Code::LocalOnly.error(format!("{target} is not a directory"))
}

/// Refuses an address, for commands that need files; they ask before they begin.
pub fn require_directory(global: &Global) -> Result<()> {
    match Target::chosen(global)? {
        None | Some((Target::Directory(_), _)) => Ok(()),
        Some((target, _)) => Err(local_only(&target)),
    }
}

/// The host of the namespace that the user chose by option or environment, if it is reached by an address.
pub fn chosen_host(global: &Global) -> Result<Option<Remote>> {
    match Target::chosen(global)? {
        None | Some((Target::Directory(_), _)) => Ok(None),
        Some((target, _)) => match Place::at(&target)? {
            Place::Remote(remote, _) => Ok(Some(remote)),
            Place::Local(_) => Ok(None),
        },
    }
}

/// The directory the user chose by option or environment.
pub fn chosen(global: &Global) -> Option<PathBuf> {
    match Target::chosen(global) {
        Ok(Some((Target::Directory(dir), _))) => Some(dir),
        _ => None,
    }
}

/// Opens a directory without changing it: through a view, unless a process uses it.
pub fn open_to_look(dir: &Path) -> Result<Namespace> {
    match upkeep::view(dir) {
        Err(error) if error.code() == Code::NamespaceInUse => Namespace::open(dir),
        opened => opened,
    }
}

/// A path without a needless `./` in front.
pub fn tidy(path: PathBuf) -> PathBuf {
    match path.strip_prefix(".") {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.to_path_buf(),
        _ => path,
    }
}

/// Opens the files of the namespace a command is about.
pub fn open(global: &Global) -> Result<Namespace> {
    // A context in use is for commands that work from afar; here it is no reason to go elsewhere.
    match Target::find(global)? {
        (Target::Directory(dir), _) => Namespace::open(&tidy(dir)),
        (_, Origin::Context(_)) => Namespace::open(Path::new(NAMESPACE_DIR)),
        (target, _) => Err(local_only(&target)),
    }
}

/// The namespace of an application: as the option or environment says, else as its file does.
pub fn application_dir(global: &Global, application: &Application) -> PathBuf {
    tidy(chosen(global).unwrap_or_else(|| application.namespace.clone()))
}
