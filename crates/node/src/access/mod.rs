//! The access of one caller to a namespace, through a host.
//!
//! ```text
//!   request --> check --> namespace --> gate --> answer
//! ```
//!
//! Every call passes the one access check ([`millrace_security::check`]) and returns a [`Gated`] value, which is released through the one gate
//! ([`millrace_namespace::gate`]).

pub(crate) mod blocked;
mod checks;
mod denials;
mod deploy;
mod devices;
pub(crate) mod limits;
mod manage;
pub(crate) mod objects;
pub(crate) mod submit;
mod topics;
pub(crate) mod watch;

use crate::{
    AppendOptions, Free, Gate, Gated, Isolation, Namespace, Objects, Receipt, Record, Shows, Site,
    cluster::Cluster,
    devices::Refusals,
    links::{Accepted, Inbound, Inbox, Links},
    repairs::{Ask, Plans, Reported},
    replicas::{Batches, Loaded, Reached},
    secrets::LiveKeys,
};
use blocked::{Blocked, Monitor};
use checks::Buckets;
pub use checks::hinted;
use denials::Denials;
use limits::Limits;
use millrace_documents::PlanDoc;
use millrace_journal::{Durability, Log};
use millrace_security::token::{Caller, Resource, Right};
use millrace_wire::{
    Address, Code, Error, EventId, Hlc, LogName, Name, NamespaceId, Result, TimeField,
    protocol::{Deliver, Delivered, Link, Linked},
    table::{Condition, TableAnswer, TableRequest},
};
use std::{
    path::Path,
    sync::{Arc, OnceLock},
};
use submit::Submissions;
use watch::{Growth, Watch};

/// A namespace that a host serves under a name.
#[derive(Clone)]
pub struct Served {
    inner: Arc<Inner>,
}

struct Inner {
    name: Name,
    namespace: Namespace,
    watch: Arc<Watch>,
    monitor: Arc<Monitor>,
    submissions: Arc<Submissions>,
    denials: Arc<Denials>,
    refusals: Refusals,
    keys: Arc<LiveKeys>,
    rates: Buckets,
    objects: Option<Objects>,
    plans: Plans,
    cluster: OnceLock<Arc<Cluster>>,
    isolation: OnceLock<Arc<Isolation>>,
}

impl Served {
    /// Serves a namespace under this name.
    pub fn new(name: Name, namespace: Namespace) -> Result<Served> {
        Self::with_objects(name, namespace, None)
    }

    /// The same with the shared objects of its host.
    pub fn with_objects(name: Name, namespace: Namespace, objects: Option<Objects>) -> Result<Served> {
        let monitor = Arc::new(Monitor::new(namespace.journal().clone(), namespace.gate().clone()));
        let submissions = Arc::new(Submissions::default());
        let denials = Arc::new(Denials::new(namespace.clone(), submissions.clone()));
        let of_watch = Arc::downgrade(&denials);
        let also = move || of_watch.upgrade().iter().for_each(Denials::turn);
        let watch = Watch::start(namespace.journal().clone(), monitor.clone(), Box::new(also))
            .map_err(|error| Code::HostStart.error(format!("a thread could not be started: {error}")))?;
        namespace.read_keys();
        let watch = Arc::new(watch);
        let (keys, rates) = (Arc::new(LiveKeys::new(namespace.clone())?), Buckets::default());
        let (cluster, isolation) = (OnceLock::new(), OnceLock::new());
        let plans = Plans::default();
        let inner = Inner {
            name,
            namespace,
            watch,
            monitor,
            submissions,
            denials,
            refusals: Refusals::default(),
            keys,
            rates,
            objects,
            plans,
            cluster,
            isolation,
        };
        Ok(Served { inner: Arc::new(inner) })
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.inner.name
    }

    /// The gate; a loop that awaits its values calls its `turn`.
    pub fn gate(&self) -> &Arc<Gate> {
        self.inner.namespace.gate()
    }

    /// The namespace itself, for the host's own work inside of the gate. The gateway reads [`Served::facts`] instead.
    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// Why its journal is blocked, if it has been blocked for a second or longer.
    pub fn blocked(&self) -> Option<Blocked> {
        self.inner.monitor.blocked()
    }

    /// A weak reference for code that must not keep the namespace open.
    pub fn when_blocked(&self) -> impl Fn() -> Option<Blocked> + Send + use<> {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().and_then(|inner| inner.monitor.blocked())
    }

    /// Sets the sandboxes in which code that is sent to the host is checked; can be called once.
    pub fn keep_apart(&self, isolation: Arc<Isolation>) {
        let _ = self.inner.isolation.set(isolation);
    }

    /// The keys by which callers of this namespace are authenticated.
    pub fn keys(&self) -> &Arc<LiveKeys> {
        &self.inner.keys
    }

    /// The namespace for `caller`: the owner, or a caller that was authenticated with [`Served::keys`].
    pub fn access(&self, caller: &Arc<Caller>) -> Access {
        Access { served: self.clone(), caller: caller.clone(), limits: None }
    }
}

/// A served namespace for one caller.
#[derive(Clone)]
pub struct Access {
    served: Served,
    caller: Arc<Caller>,
    /// The limits for allocations of this caller; unlimited if absent.
    limits: Option<Limits>,
}

impl Access {
    /// Its effects.
    pub fn served(&self) -> &Served {
        &self.served
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.served.inner.namespace
    }

    /// Passes a result through the gate: a success has its own position to wait for.
    pub(crate) fn out<T>(&self, result: Result<Gated<T>>, durability: Option<Durability>) -> Gated<T> {
        result.unwrap_or_else(|error| self.refuse(self.hinted(error), durability))
    }

    /// An error, which waits at the gate like other errors of this namespace.
    pub fn refuse<T>(&self, error: Error, durability: Option<Durability>) -> Gated<T> {
        self.served.gate().refuse(error, durability)
    }

    /// A value that need not wait at the gate, for this reason; an error waits like any other.
    fn free<T>(&self, result: Result<T>, why: Free) -> Gated<T> {
        self.out(result.map(|value| Gated::passed(value, why)), None)
    }

    /// The namespace's hybrid logical clock, for answers.
    pub fn clock(&self) -> Hlc {
        self.namespace().journal().clock()
    }

    /// Appends one record.
    pub fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Gated<Receipt> {
        let append = || {
            self.check_append(log, data.len(), options.function)?;
            self.check_outboxes([log].into_iter())?;
            self.check_fence(options.fence)?;
            let key = self.own_key(options.key)?;
            self.namespace().append_gated(log, data, AppendOptions { key: key.as_deref(), ..options })
        };
        self.out(append(), options.durability)
    }

    /// Appends all of these records, or none.
    pub fn append_many(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Gated<Vec<Receipt>> {
        let append = || {
            for (log, data) in records {
                self.check_append(log, data.len(), options.function)?;
            }
            self.check_outboxes(records.iter().map(|(log, _)| *log))?;
            self.check_fence(options.fence)?;
            let key = self.own_key(options.key)?;
            self.namespace().append_many_gated(records, AppendOptions { key: key.as_deref(), ..options })
        };
        self.out(append(), options.durability)
    }

    /// Reads one record; 0 is the newest.
    pub fn get(&self, log: &str, seqno: u64, durability: Option<Durability>) -> Gated<Record> {
        let get = || {
            self.check(Right::Read, Resource::log(log))?;
            self.namespace().get_gated(log, seqno, durability)
        };
        self.out(get(), durability)
    }

    /// Reads at most `count` records from `from` on, and at most `bytes_max` bytes of them unless the first alone has more; also returns
    /// the incarnation of the log.
    pub fn range(
        &self,
        log: &str,
        from: u64,
        count: u32,
        bytes_max: usize,
        durability: Option<Durability>,
    ) -> Gated<(u32, Vec<Record>)> {
        let range = || {
            self.check(Right::Read, Resource::log(log))?;
            let found = self.namespace().log(log)?;
            let held = self.namespace().range_of_gated(&found, from, count, bytes_max, durability)?;
            Ok(held.map(|records| (found.id(), records)))
        };
        self.out(range(), durability)
    }

    /// [`Access::range`] of a log that [`Access::log`] found: never of another one that has its name now.
    pub fn range_of(
        &self,
        log: &Log,
        from: u64,
        count: u32,
        bytes_max: usize,
        durability: Option<Durability>,
    ) -> Gated<Vec<Record>> {
        let range = || {
            self.check(Right::Read, Resource::log(log.name()))?;
            self.namespace().range_of_gated(log, from, count, bytes_max, durability)
        };
        self.out(range(), durability)
    }

    /// The newest sequence number of a log, 0 if there is none.
    pub fn latest(&self, log: &str, durability: Option<Durability>) -> Gated<u64> {
        let latest = || {
            self.check(Right::Read, Resource::log(log))?;
            self.namespace().latest_gated(log, durability)
        };
        self.out(latest(), durability)
    }

    /// Asks a table, or changes it. A change that says something of the version before it is a read, too.
    pub fn ask_table(&self, table: &str, request: &TableRequest<'_>, options: AppendOptions<'_>) -> Gated<TableAnswer> {
        let ask = || {
            let reads = match *request {
                TableRequest::Put { key, value, condition, .. } => {
                    self.check_append(table, key.len() + value.len(), None)?;
                    condition != Condition::Always
                }
                TableRequest::Delete { key, .. } => {
                    self.check_append(table, key.len(), None)?;
                    // The answer says whether there was a value.
                    true
                }
                TableRequest::Increment { key, .. } => {
                    self.check_append(table, key.len(), None)?;
                    true
                }
                _ => true,
            };
            if reads {
                self.check(Right::Read, Resource::log(table))?;
            }
            self.check_fence(options.fence)?;
            self.namespace().ask_table_gated(table, request, options)
        };
        self.out(ask(), options.durability)
    }

    /// The batches behind an entry that changed any of these tables: see [`Namespace::follow_tables_gated`].
    pub fn follow_tables(&self, tables: &[&str], after: EventId) -> Gated<Batches> {
        let follow = || {
            tables.iter().try_for_each(|table| self.check(Right::Read, Resource::log(table)))?;
            self.namespace().follow_tables_gated(tables, after)
        };
        self.out(follow(), None)
    }

    /// A table whose growth a follower waits for. Only the host uses this answer; nothing of it is for the caller.
    pub fn table_to_follow(&self, table: &str) -> Option<Log> {
        if self.may(Right::Read, Resource::log(table)) { self.namespace().table(table).ok() } else { None }
    }

    /// The newest records of the keys of a table as of an entry: see [`Namespace::load_table_gated`].
    pub fn load_table(&self, table: &str, at: EventId, above: u64) -> Gated<Loaded> {
        let load = || {
            self.check(Right::Read, Resource::log(table))?;
            self.namespace().load_table_gated(table, at, above)
        };
        self.out(load(), None)
    }

    /// Whether a table has what a token names.
    pub fn has_reached(&self, table: &str, token: EventId) -> Result<Reached> {
        self.check(Right::Read, Resource::log(table))?;
        self.namespace().has_reached(table, token)
    }

    /// Whether a table can be asked without reading a long part of the journal first. Only the host uses this answer.
    pub fn is_table_at_hand(&self, table: &str) -> bool {
        let namespace = self.namespace();
        namespace.log(table).is_ok_and(|log| namespace.tables().is_at_hand(&log))
    }

    /// The log of this name, for a caller that reads it next: those answers wait at the gate. The answer that there is no such log waits here.
    pub fn log(&self, log: &str, durability: Option<Durability>) -> Gated<Log> {
        let found = || {
            self.check(Right::Read, Resource::log(log))?;
            self.namespace().log(log).map(|log| Gated::passed(log, Free::Handle))
        };
        self.out(found(), durability)
    }

    /// Whether the log exists and has no record above `seen` yet. Only the host uses this answer; it is not sent to the caller. A caller
    /// that may not read the log does not wait, because the waiting time would reveal whether the log exists.
    pub fn must_wait(&self, log: &str, seen: u64) -> bool {
        self.may(Right::Read, Resource::log(log)) && self.namespace().log(log).is_ok_and(|log| log.latest() <= seen)
    }

    /// Whether there is a log of this name that the caller may read. A caller without the right gets no refusal.
    pub fn finds(&self, log: &str) -> bool {
        self.may(Right::Read, Resource::log(log)) && self.namespace().log(log).is_ok()
    }

    /// The start of a tail from record `from` on, or with new records only if `from` is 0.
    ///
    /// # Errors
    /// If the tail cannot start there: the records have left the history, or the log does not have them yet.
    pub fn cursor(&self, log: &Log, from: u64, durability: Option<Durability>) -> Gated<u64> {
        let cursor = || {
            self.check(Right::Read, Resource::log(log.name()))?;
            self.namespace().cursor_gated(log, from, durability)
        };
        self.out(cursor(), durability)
    }

    /// The number of the first record at or behind a moment; one behind the newest if there is none.
    pub fn seqno_at(&self, log: &Log, at: Hlc, durability: Option<Durability>) -> Gated<u64> {
        let found = || {
            self.check(Right::Read, Resource::log(log.name()))?;
            let seqno = crate::documents::series::seqno_at(self.namespace(), log, at)?;
            let shown = Shows::Report(self.namespace().journal().tail());
            Ok(self.served.gate().hold(Site::Cursor, seqno, shown, durability))
        };
        self.out(found(), durability)
    }

    /// Executes a request about repairs. A repair requires the right `repair` on each log that it changes; an amendment requires the right
    /// to append to its log, which must be amendable, and the right to delete if it makes a record void.
    pub fn ask_repair(&self, ask: Ask) -> Gated<Reported> {
        let asked = || {
            let namespace = self.namespace();
            if ask.is_plan() {
                // It names functions and logs of the whole namespace.
                self.check(Right::Observe, Resource::NAMESPACE)?;
            }
            if let Ask::CancelPlan(plan) = &ask {
                self.check(Right::Repair, Resource::log(&self.served.inner.plans.log(*plan)?))?;
            }
            if let Some((log, bytes)) = ask.amended() {
                self.check_append(log, bytes, None)?;
                // A record that becomes void is gone for its readers, like one that was trimmed.
                if ask.removes_records() {
                    self.check(Right::Delete, Resource::log(log))?;
                }
            }
            if ask.is_of_initiator() || !ask.across().is_empty() {
                // It can change records that links delivered, or make this host request such changes from other hosts.
                self.check(Right::Repair, Resource::NAMESPACE)?;
            }
            if let Some(odd) = ask.across().iter().find(|address| !Address::claims(address)) {
                let error = format!("'{}' is not the address of a namespace", odd.escape_debug());
                return Err(Code::AddressInvalid.error(error));
            }
            match ask.number() {
                Some(_) => self.check_repair(&ask)?,
                None => {
                    if let Some(log) = ask.corrected(namespace)? {
                        self.check(Right::Repair, Resource::log(&log))?;
                    }
                    if let Some(function) = ask.function(namespace)? {
                        self.check(Right::Bind, Resource::function(&function))?;
                    }
                    for function in ask.run_external(namespace)? {
                        self.check(Right::Run, Resource::function(&function))?; // The replay repeats its effects outside.
                    }
                }
            }
            let plans = &self.served.inner.plans;
            let reported = match ask {
                Ask::Plan(request) => Reported::Plan(Box::new(plans.start(namespace, request)?)),
                Ask::CancelPlan(plan) => Reported::Plan(Box::new(plans.cancel(plan)?)),
                ask => ask.ask(namespace)?,
            };
            Ok(self.served.gate().hold(Site::Inspect, reported, Shows::Report(namespace.journal().tail()), None))
        };
        self.out(asked(), None)
    }

    /// The plans of repairs that the host has made or makes, without what they found.
    pub fn plans(&self) -> Vec<PlanDoc> {
        self.served.inner.plans.list()
    }

    /// One of them as a whole.
    pub fn plan(&self, number: u64) -> Result<PlanDoc> {
        self.served.inner.plans.show(number)
    }

    /// Whether the caller may change the repair that is named. A caller without the rights to it gets the same answer whether or not there
    /// is one of this number, and is not told which logs it changes, unless lists show them.
    fn check_repair(&self, ask: &Ask) -> Result<()> {
        let namespace = self.namespace();
        let hidden = || self.check(Right::Repair, Resource::NAMESPACE);
        let needs = |right, on: Resource<'_>, is_seen: bool| {
            if !is_seen && !self.may(right, on) {
                hidden()?;
            }
            self.check(right, on)
        };
        // The journal is not read for a caller who may not correct the log.
        let (log, function) = match (ask.corrected(namespace), ask.function(namespace)) {
            (Ok(log), Ok(function)) => (log, function),
            (Err(error), _) | (_, Err(error)) => return hidden().and(Err(error)),
        };
        if let Some(log) = log {
            needs(Right::Repair, Resource::log(&log), self.sees(&log))?;
        }
        if let Some(function) = function {
            let on = Resource::function(&function);
            needs(Right::Bind, on, self.may(Right::Observe, on))?; // It deploys the function, or takes that back.
        }
        for function in ask.run_external(namespace)? {
            let on = Resource::function(&function);
            needs(Right::Run, on, self.may(Right::Observe, on))?;
        }
        for log in ask.logs(namespace)? {
            needs(Right::Repair, Resource::log(&log), self.sees(&log))?;
        }
        Ok(())
    }

    /// The first seqno from `next` on that no repair made void: see [`Namespace::beyond_voids`].
    pub fn beyond_voids(&self, log: &Log, next: u64) -> Result<u64> {
        self.namespace().beyond_voids(log, next)
    }

    /// Resolves once the newest record of the log is above `seen`, or the log was removed. The caller then reads through the gate.
    pub fn growth(&self, log: &Log, seen: u64) -> Growth {
        self.served.inner.watch.growth(log.clone(), seen)
    }

    /// Creates a log.
    pub fn create_log(&self, log: &str, history: u64) -> Gated<()> {
        let create = || {
            self.check(Right::Create, Resource::log(log))?;
            let log = log.parse::<LogName>()?;
            self.check_log(&log, history)?;
            self.namespace().create_log_gated(&log, history)
        };
        self.out(create(), None).map(drop)
    }

    /// Changes the history of a log; returns whether it was different. A shorter history drops records, so it requires the right to delete
    /// as well.
    pub fn set_history(&self, log: &str, history: u64) -> Gated<bool> {
        let set = || {
            self.check(Right::Create, Resource::log(log))?;
            let name = log.parse::<LogName>()?;
            let before = self.namespace().log(log)?.history();
            if history < before {
                self.check(Right::Delete, Resource::log(log))?;
            }
            self.check_history(before, history)?;
            self.namespace().set_history_gated(&name, Some(before), history)
        };
        self.out(set(), None)
    }

    /// Says which field of a log's records has the time of the observation; returns whether it was another one.
    pub fn set_time_field(&self, log: &str, time: Option<&TimeField>) -> Gated<bool> {
        let set = || {
            self.check(Right::Create, Resource::log(log))?;
            self.namespace().set_time_field_gated(&log.parse::<LogName>()?, time)
        };
        self.out(set(), None)
    }

    /// Cancels a run that has not ended. This requires the right to run its function.
    pub fn cancel_run(&self, run: EventId) -> Gated<()> {
        let cancel = || {
            let function = self.namespace().run(run).map(|run| run.function);
            // A caller without the right gets the same answer whether or not there is such a run.
            match function.as_ref().ok().and_then(Option::as_ref) {
                Some(function) if self.may(Right::Run, Resource::function(function)) => {
                    self.check(Right::Run, Resource::function(function))?;
                }
                _ => self.check(Right::Run, Resource::NAMESPACE)?,
            }
            function?;
            let end = millrace_dispatch::cancel_run(self.namespace(), run)?;
            Ok(self.served.gate().hold(Site::GiveUpFunction, (), Shows::Report(end), None))
        };
        self.out(cancel(), None)
    }

    /// Removes a log.
    pub fn remove_log(&self, log: &str) -> Gated<()> {
        let remove = || {
            self.check(Right::Delete, Resource::log(log))?;
            self.namespace().remove_log_gated(&log.parse::<LogName>()?)
        };
        self.out(remove(), None)
    }

    /// Inspects the namespace as a whole; the result waits until everything in it is safe.
    pub fn inspect<T>(&self, look: impl FnOnce(&Namespace) -> Result<T>) -> Gated<T> {
        self.inspect_with(Right::Observe, Resource::NAMESPACE, look)
    }

    /// Inspects a part of the namespace; this requires the given right.
    pub fn inspect_with<T>(
        &self,
        right: Right,
        on: Resource<'_>,
        look: impl FnOnce(&Namespace) -> Result<T>,
    ) -> Gated<T> {
        self.inspect_if(|| self.check(right, on), look)
    }

    /// Inspects the parts of the namespace that [`Access::sees`] permits: `look` omits the others.
    pub fn inspect_seen<T>(&self, look: impl FnOnce(&Namespace) -> Result<T>) -> Gated<T> {
        self.inspect_if(|| Ok(()), look)
    }

    /// Inspects one log, if the caller has any right on it.
    pub fn inspect_log<T>(&self, log: &str, look: impl FnOnce(&Namespace) -> Result<T>) -> Gated<T> {
        let check = || if self.sees(log) { Ok(()) } else { self.check(Right::Observe, Resource::log(log)) };
        self.inspect_if(check, look)
    }

    /// Inspects a run: this needs the right to observe its function, or to read the namespace.
    pub fn inspect_run<T>(&self, id: &str, look: impl FnOnce(&Namespace) -> Result<T>) -> Gated<T> {
        let reads_all = self.caller.chain().is_none() || self.may(Right::Read, Resource::NAMESPACE);
        let run = id.parse::<EventId>().ok().filter(|_| !reads_all).and_then(|id| self.namespace().run(id).ok());
        let function = run.and_then(|run| run.function);
        let shows = |namespace: &Namespace| match id.parse() {
            Ok(run) => namespace.run_shows(run),
            Err(_) => Shows::Report(namespace.journal().tail()),
        };
        let check = || match function.filter(|function| self.may(Right::Observe, Resource::function(function))) {
            Some(function) => self.check(Right::Observe, Resource::function(&function)),
            // The answer is the same whether or not there is such a run.
            None => self.check(Right::Read, Resource::NAMESPACE),
        };
        self.inspect_showing(check, look, shows)
    }

    /// Inspects what can contain parts of any record, such as entries of the journal.
    pub fn inspect_records<T>(
        &self,
        right: Right,
        on: Resource<'_>,
        look: impl FnOnce(&Namespace) -> Result<T>,
    ) -> Gated<T> {
        self.inspect_showing(|| self.check(right, on), look, |namespace| Shows::All(namespace.journal().tail()))
    }

    fn inspect_if<T>(
        &self,
        check: impl FnOnce() -> Result<()>,
        look: impl FnOnce(&Namespace) -> Result<T>,
    ) -> Gated<T> {
        self.inspect_showing(check, look, |namespace| Shows::Report(namespace.journal().tail()))
    }

    /// `shows` says afterwards of which records the result shows something.
    fn inspect_showing<T>(
        &self,
        check: impl FnOnce() -> Result<()>,
        look: impl FnOnce(&Namespace) -> Result<T>,
        shows: impl FnOnce(&Namespace) -> Shows<'static>,
    ) -> Gated<T> {
        let inspect = || {
            check()?;
            let namespace = self.namespace();
            let seen = look(namespace)?;
            let (gate, tail) = (self.served.gate(), namespace.journal().tail());
            let needs = gate.needs(Site::Inspect, &shows(namespace));
            Ok(gate.hold_for(Site::Inspect, seen, tail, needs))
        };
        self.out(inspect(), None)
    }

    /// Opens a stream from another namespace, or opens it again.
    pub fn link(&self, link: &Link<'_>) -> Gated<(Inbound, Linked)> {
        self.receive(|inbox| {
            self.check(Right::Link, Resource::NAMESPACE)?;
            if let Some(target) = link.target {
                let source = NamespaceId::new(link.namespace);
                self.check_delivery(target, 0, source)?;
            }
            self.check_stream(link)?;
            let (inbound, Accepted { value, end }) = inbox.link(link)?;
            Ok(Accepted { value: (inbound, value), end })
        })
    }

    /// Commits a delivery of a stream that [`Access::link`] opened; the result waits until it is safe.
    pub fn deliver(&self, inbound: &Inbound, epoch: u32, deliver: &Deliver<'_>) -> Gated<Delivered> {
        self.receive(|inbox| {
            for item in deliver.items.iter().filter(|item| !item.void) {
                let log = inbound.target().unwrap_or(item.log);
                self.check_delivery(log, item.data.len(), Some(inbound.source()))?;
                if let Some(function) = item.function {
                    self.check(Right::Run, Resource::function(function))?;
                }
            }
            // Voids and empty deliveries also require the right to the stream.
            self.check(Right::Link, Resource::NAMESPACE)?;
            inbox.accept(inbound, epoch, deliver)
        })
    }

    fn receive<T>(&self, receive: impl FnOnce(&Inbox) -> Result<Accepted<T>>) -> Gated<T> {
        let received = || {
            let (scope, former) = self.own_streams();
            let inbox = Links::of(self.namespace()).inbox_of(scope.as_deref()).formerly(former.as_deref());
            let Accepted { value, end } = receive(&inbox)?;
            Ok(self.served.gate().hold(Site::Deliver, value, Shows::Batch(end), None))
        };
        self.out(received(), None)
    }
}

/// The default name of a served namespace: that of the directory that contains it, if it is a valid name.
pub fn default_name(dir: &Path) -> Name {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let own = dir.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    let parent = || dir.parent()?.file_name()?.to_str();
    let name = own.or_else(parent).and_then(|name| name.parse().ok());
    name.unwrap_or_else(|| "main".parse().expect("`main` is a name"))
}
