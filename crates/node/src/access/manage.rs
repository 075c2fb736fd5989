//! Changes of functions, relays and logs, for callers with the rights to them.

use super::{Access, topics::source_of, watch::End};
use crate::{
    AppendOptions, Backfilled, Gated, Namespace, Receipt, RunView, Shows, Site, Stretch,
    audit::{Act, Audited, audit},
    cluster::Cluster,
    devices::{commands::SentCommand, updates::NewImage},
    documents, functions,
    invoke::{INVOKE_HISTORY, log_to_invoke, no_run},
    links::{Links, RelayOptions},
    manage::{
        BACKFILL_PART, BackfilledDoc, Managed, Order, PassedOver, RETRIED_LISTED_MAX, RecordForDevice, RetriedAllDoc,
        RetriedDoc, Stopped, record_of, uploads::Uploads,
    },
};
use millrace_documents::LinkDoc;
use millrace_namespace::{Definition, Letters, Retried, databases::DatabaseSettings, no_function};
use millrace_security::{
    check::target,
    token::{Resource, Right},
};
use millrace_wire::{
    Address, Code, Error, EventId, HISTORY_ALL, HISTORY_DEFAULT, LogName, Name, Result, protocol::InvokeFunction,
    table::TableOptions,
};
use std::{sync::Arc, time::Duration};

impl From<&Retried> for RetriedDoc {
    fn from(retried: &Retried) -> Self {
        let Retried { dead, run, function, log, seqno, before } = retried.clone();
        Self { dead, run, function, log, seqno, before }
    }
}

fn stopped(error: &Error) -> Stopped {
    Stopped {
        code: error.code().id().to_owned(),
        detail: error.detail().to_owned(),
        retry_after_ms: error.retry_after_ms(),
    }
}

impl Access {
    /// Appends a record that runs this function, and says to which log.
    pub fn invoke_function(&self, invoke: &InvokeFunction<'_>, options: AppendOptions<'_>) -> Gated<(String, Receipt)> {
        let invoked = || {
            self.check(Right::Run, Resource::function(invoke.function))?;
            let definition = self.definition_of(&invoke.function.parse()?)?;
            let (log, is_bound) = log_to_invoke(invoke.function, &definition.spec.on, invoke.log)?;
            self.check_append(&log, invoke.data.len(), None)?;
            self.check_outboxes([&*log].into_iter())?;
            if self.namespace().log(&log).is_err() && invoke.log.is_none() {
                self.check(Right::Create, Resource::log(&log))?;
                let name: LogName = log.parse()?;
                self.check_log(&name, INVOKE_HISTORY)?;
                self.namespace().create_log(&name, INVOKE_HISTORY)?;
            }
            let key = self.own_key(invoke.key)?;
            let function = (!is_bound).then_some(invoke.function);
            let options = AppendOptions { function, durability: invoke.durability, key: key.as_deref(), ..options };
            let held = self.namespace().append_gated(&log, invoke.data, options)?;
            Ok(held.map(|receipt| (log, receipt)))
        };
        self.out(invoked(), invoke.durability)
    }

    /// The run of a function that a record started, and what waits for its end. Only the host uses it; the caller gets what
    /// [`Access::invoked_run`] reads.
    pub fn invoked(&self, function: &str, record: EventId) -> Result<(EventId, End)> {
        self.still_runs(function)?;
        let run = self.namespace().run_of(record, function)?.ok_or_else(|| no_run(function))?;
        let catalog = self.namespace().journal().catalog()?;
        let function = catalog.function(function).ok_or_else(|| no_function(function))?;
        Ok((run.id, self.served.inner.watch.end(function.clone(), run.number)))
    }

    /// The run of a function that the caller has invoked, as it is now.
    pub fn invoked_run(&self, function: &str, run: EventId) -> Gated<RunView> {
        let shows = |namespace: &Namespace| namespace.run_shows(run);
        self.inspect_showing(|| self.still_runs(function), |namespace| namespace.run(run), shows)
    }

    /// Whether the caller may still run a function that it has invoked. The rate of its capability has counted the request.
    fn still_runs(&self, function: &str) -> Result<()> {
        let on = Resource::function(function);
        if self.may(Right::Run, on) { Ok(()) } else { self.check(Right::Run, on) }
    }

    pub(super) fn definition_of(&self, function: &Name) -> Result<Arc<Definition>> {
        let there = self.namespace().functions()?.into_iter().find(|stat| stat.name == *function);
        there.ok_or_else(|| no_function(function))?.definition
    }

    /// Executes a request. `uploads` has the files that were sent over the same connection.
    pub fn manage(&self, order: Order, uploads: Option<&Uploads>) -> Gated<Managed> {
        let managed = || {
            if let Order::Externalize { table } = &order {
                return self.externalize(table.as_deref());
            }
            let done = self.managed(order, uploads)?;
            Ok(self.served.gate().hold(Site::Inspect, done, Shows::Report(self.namespace().journal().tail()), None))
        };
        self.out(managed(), None)
    }

    fn managed(&self, order: Order, uploads: Option<&Uploads>) -> Result<Managed> {
        match order {
            Order::Retry { run } => self.retry(run),
            Order::RetryFunction { function, code } => {
                self.retry_letters(Letters { function: &function, code: code.as_deref() })
            }
            Order::Backfill { function, log, from, to, missed } => {
                let missed = missed || (from.is_none() && to.is_none());
                self.backfill(&function, log, Stretch { from, to, missed })
            }
            Order::TrimLog { log, before, force } => self.trim_log(log, before, force),
            Order::RemoveFunction { function, force } => self.remove_function(function, force),
            Order::AddRelay { from, to, name, start, on_gap } => {
                self.add_relay(&from, &to, &RelayOptions { name, start, on_gap })
            }
            Order::RemoveRelay { name, force } => self.remove_relay(name, force),
            Order::ResumeRelay { name, skip, start } => self.resume_relay(&name, skip, start),
            Order::SetRelay { name, from, to } => self.set_relay(&name, from.as_deref(), to.as_deref()),
            Order::SetOutbox { peer, to } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let links = Links::of(self.namespace());
                let name = links.peer(&peer)?.name;
                self.audit_link(Act::OutboxSet, format!("peer {name}: {to}"))?;
                links.set_peer(&name, &to)?;
                self.link_doc("outbox", &name).map(Managed::Link)
            }
            Order::CreateTable { table, history, keys, codec, ttl_ms, database, mode } => {
                let history = match history {
                    None => HISTORY_DEFAULT,
                    Some(0) => HISTORY_ALL,
                    Some(history) => history,
                };
                self.create_table(&table, history, TableOptions { keys, codec, ttl_ms, database, mode })
            }
            Order::MirrorTable { table, from, history, reload } => self.mirror_table(table, &from, history, reload),
            Order::UnmirrorTable { table } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                self.audit_link(Act::RelayRemove, format!("replica '{table}'"))?;
                self.namespace().unmirror_table(&table)?;
                Ok(Managed::Table { table, change: "ended" })
            }
            Order::SetDatabase {
                database,
                url,
                secret,
                authorities,
                in_flight,
                rows,
                unwritten_max,
                accept_volatile,
                on_refused,
                refuse_outside,
            } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let settings = DatabaseSettings {
                    secret: secret.map(|secret| secret.to_string()),
                    authorities,
                    in_flight,
                    rows,
                    unwritten_max,
                    accept_volatile,
                    on_refused,
                    refuse_outside,
                    ..DatabaseSettings::new(database, url)
                };
                audit(self.namespace(), &self.by(Act::DatabaseSet).about(format!("database '{database}'")))?;
                let change = self.namespace().set_database(&settings)?;
                Ok(Managed::Database { database, change })
            }
            Order::ResumeDatabase { database } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let about = database.map_or_else(|| "all databases".to_owned(), |name| format!("database '{name}'"));
                audit(self.namespace(), &self.by(Act::DatabaseSet).about(format!("{about}: resumed")))?;
                self.namespace().resume_databases(database.as_ref())?;
                Ok(Managed::DatabasesResumed { resumed: true })
            }
            Order::ResyncDatabase { database, previous_owner } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let about = format!("database '{database}': all values are written again");
                audit(self.namespace(), &self.by(Act::DatabaseSet).about(about))?;
                self.namespace().resync_database(&database, previous_owner)?;
                Ok(Managed::Database { database, change: "resync" })
            }
            // It waits, so it is answered elsewhere.
            Order::Externalize { .. } => Ok(Managed::Externalized { externalized: true }),
            Order::SetTime { log, time } => {
                self.check(Right::Create, Resource::log(&log))?;
                let changed = self.namespace().set_time_field(&log, time.as_ref())?;
                Ok(Managed::Time { log, time, change: if changed { "updated" } else { "unchanged" } })
            }
            Order::ResetOutbox { peer, skip } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let dropped = Links::of(self.namespace()).reset_outbox(&peer, skip)?;
                Ok(Managed::Dropped { peer, dropped })
            }
            Order::RetryOutbox { peer } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let resent = Links::of(self.namespace()).resend_letters(&peer)?;
                Ok(Managed::Resent { peer, resent })
            }
            Order::RemovePeer { peer, force } => {
                self.check(Right::Admin, Resource::NAMESPACE)?;
                let dropped = Links::of(self.namespace()).remove_peer(&peer, force)?;
                Ok(Managed::Dropped { peer, dropped })
            }
            Order::RotateClusterSecret => {
                // The cluster replies later: see `Access::rotate_cluster_secret`.
                Err(Code::ManageInvalid.error("the secret of a cluster is changed by its hosts together"))
            }
            Order::SendCommand(RecordForDevice { device, log, data, base64 }) => {
                let record = record_of(data, base64)?;
                let SentCommand { number, id } = self.command(&device, &log, &record)?;
                Ok(Managed::Command { device, log, number, id })
            }
            Order::AppendOnDevice(_) => {
                // The device replies later, over its own connection: see `Access::asks_device`.
                Err(Code::ManageInvalid.error("a device is asked by the host that it is connected to"))
            }
            Order::BeginUpdate { device, size, sha256, version } => {
                let image = NewImage { size, sha256: &sha256, version: &version };
                self.begin_update(&device, &image).map(|update| Managed::Update(Box::new(update)))
            }
            Order::AddFirmware { device, update, offset, base64 } => {
                let part = record_of(None, Some(base64))?;
                self.add_firmware(&device, update, offset, &part).map(|update| Managed::Update(Box::new(update)))
            }
            Order::Up(up) => self.up(&up, uploads),
            Order::Down(down) => self.down(&down),
        }
    }

    /// Waits until everything that a table has, or that all tables have, is in their databases.
    fn externalize(&self, table: Option<&str>) -> Result<Gated<Managed>> {
        let database = match table {
            None => {
                self.check(Right::Read, Resource::NAMESPACE)?;
                None
            }
            Some(table) => {
                self.check(Right::Read, Resource::log(table))?;
                let found = self.namespace().table(table)?;
                let Some(database) = found.table().and_then(|options| options.database) else {
                    return Err(Code::DatabaseNotFound.error(format!("table '{table}' has no database")));
                };
                Some(database)
            }
        };
        let needs = self.namespace().unwritten(database.as_ref())?;
        let (done, tail) = (Managed::Externalized { externalized: true }, self.namespace().journal().tail());
        Ok(self.served.gate().hold_for(Site::Inspect, done, tail, needs))
    }

    fn create_table(&self, table: &LogName, history: u64, options: TableOptions) -> Result<Managed> {
        self.check(Right::Create, Resource::log(table))?;
        let existed = self.namespace().log(table).is_ok();
        self.check_log(table, history)?;
        self.namespace().create_table(table, history, options)?;
        Ok(Managed::Table { table: table.clone(), change: if existed { "unchanged" } else { "created" } })
    }

    fn mirror_table(&self, table: LogName, from: &str, history: Option<u64>, reload: bool) -> Result<Managed> {
        self.check(Right::Admin, Resource::NAMESPACE)?;
        let from: Address = from.parse()?;
        let history = match history {
            None => HISTORY_DEFAULT,
            Some(0) => HISTORY_ALL,
            Some(history) => history,
        };
        self.check_log(&table, history)?;
        self.audit_link(Act::RelayAdd, format!("replica '{table}' of {from}"))?;
        let change = self.namespace().mirror_table(&table, &from, history, reload)?;
        Ok(Managed::Table { table, change })
    }

    /// The cluster, whose secret the caller may change; this is audited before.
    pub fn rotate_cluster_secret(&self) -> Result<&Arc<Cluster>> {
        let cluster = self.cluster_to_change()?;
        audit(self.namespace(), &self.by(Act::ClusterSecret).about(format!("cluster {}", cluster.id())))?;
        Ok(cluster)
    }

    pub(super) fn by(&self, act: Act) -> Audited {
        Audited::by(act, self.caller.principal().to_string())
    }

    fn retry(&self, run: EventId) -> Result<Managed> {
        let function = self.namespace().run(run).ok().and_then(|view| view.function);
        // A caller without the right gets the same answer whether or not there is such a run.
        match function.filter(|function| self.may(Right::Run, Resource::function(function))) {
            Some(function) => self.check(Right::Run, Resource::function(&function))?,
            None => self.check(Right::Run, Resource::NAMESPACE)?,
        }
        let may_read = |log: &str| self.check(Right::Read, Resource::log(&source_of(log)));
        let retried = self.namespace().retry_run_of(run, Duration::ZERO, &may_read)?;
        Ok(Managed::Retried((&retried).into()))
    }

    fn retry_letters(&self, letters: Letters<'_>) -> Result<Managed> {
        self.check(Right::Run, Resource::function(letters.function))?;
        let mut doc = RetriedAllDoc::default();
        let refused =
            || Code::CapabilityDenied.error("the capability does not grant read on the log of a dead letter's record");
        let may_read =
            |log: &str| self.may(Right::Read, Resource::log(&source_of(log))).then_some(()).ok_or_else(refused);
        let done = self.namespace().retry_letters(letters, Duration::ZERO, &may_read, &mut |retried| {
            doc.retried += 1;
            doc.before += u64::from(retried.before);
            if doc.runs.len() < RETRIED_LISTED_MAX {
                doc.runs.push(retried.into());
            }
        });
        match done {
            Ok(all) => {
                (doc.retried, doc.before, doc.lost, doc.refused) = (all.retried, all.before, all.lost, all.refused);
                doc.gone = all.gone;
            }
            Err(error) if error.code() == Code::Busy => doc.stopped = Some(stopped(&error)),
            Err(error) => return Err(error),
        }
        Ok(Managed::RetriedAll(doc))
    }

    fn backfill(&self, function: &Name, log: Option<String>, asked: Stretch) -> Result<Managed> {
        let Stretch { from, to, missed } = asked;
        self.check(Right::Run, Resource::function(function))?;
        let definition = self.definition_of(function)?;
        let log = match (log, definition.spec.on.as_slice()) {
            (Some(log), _) => log,
            (None, [only]) => only.to_string(),
            (None, []) => {
                let reported = format!("function '{function}' is bound to no log; name one");
                return Err(Code::ValueInvalid.error(reported));
            }
            (None, several) => {
                let several: Vec<&str> = several.iter().map(|log| &**log).collect();
                let reported = format!("function '{function}' is bound to {}; choose one", several.join(", "));
                return Err(Code::ValueInvalid.error(reported));
            }
        };
        // It is shown records that its deployer did not let it have.
        if !definition.spec.on.iter().any(|bound| **bound == *log) {
            self.check(Right::Read, Resource::log(&log))?;
        }
        let there = self.namespace().log(&log)?;
        let (first, last) = (from.unwrap_or(there.earliest()).max(1), to.unwrap_or(there.latest()));
        let part = last.min(first.saturating_add(BACKFILL_PART - 1));
        let mut doc = BackfilledDoc { log: log.clone(), to: last, ..BackfilledDoc::default() };
        let mut done = Backfilled::default();
        // Of a log without records nothing is asked for, rather than records that it does not have.
        let stretch = if last == 0 && to.is_none() && from.is_none() {
            Stretch::default()
        } else {
            Stretch { from: Some(from.unwrap_or(first)), to: Some(if part < first { last } else { part }), missed }
        };
        let result =
            self.namespace().backfill(function, &log, stretch, Duration::ZERO, &mut |progress| done = progress);
        doc.add(done);
        match result {
            Ok(_) => doc.next = (part < last).then(|| part + 1),
            Err(error) if error.code() == Code::Busy => {
                doc.next = Some(if done.upto > 0 { done.upto + 1 } else { first });
                doc.stopped = Some(stopped(&error));
            }
            Err(error) => return Err(error),
        }
        Ok(Managed::Backfilled(doc))
    }

    fn trim_log(&self, name: LogName, before: Option<u64>, force: bool) -> Result<Managed> {
        self.check(Right::Delete, Resource::log(&name))?;
        let log = self.namespace().log(&name)?;
        let earliest = log.earliest().max(1);
        let before = before.unwrap_or(log.latest() + 1);
        if let Some(cluster) = self.served.cluster().filter(|_| !force) {
            cluster.check_fed(&name, earliest, log.latest().min(before.saturating_sub(1)))?;
        }
        self.namespace().trim_log(&name, before, force)?;
        Ok(Managed::Trimmed { log: name, dropped: before.saturating_sub(earliest), earliest: log.earliest() })
    }

    fn remove_function(&self, function: Name, force: bool) -> Result<Managed> {
        self.check(Right::Bind, Resource::function(&function))?;
        self.definition_of(&function).map(drop).or_else(|error| match error.code() {
            Code::FunctionNotFound => Err(error),
            // A relay whose state cannot be read can still be removed.
            _ => Ok(()),
        })?;
        audit(self.namespace(), &self.by(Act::FunctionRemove).about(format!("function '{function}'")))?;
        let given_up = match force {
            true => functions::give_up(self.namespace(), &function)?,
            false => functions::remove(self.namespace(), &function).map(|()| 0)?,
        };
        Ok(Managed::Removed { function, change: "removed", given_up })
    }

    /// The rights that forwarding from one of these to the other takes.
    fn rights_to_relay<'e>(from: &'e str, to: &'e str) -> impl Iterator<Item = (Right, Resource<'e>)> {
        let bind = (!Address::claims(to)).then(|| (Right::Bind, Resource::log(to)));
        [(Right::Read, target(from)), (Right::Append, target(to))].into_iter().chain(bind)
    }

    fn add_relay(&self, from: &str, to: &str, options: &RelayOptions) -> Result<Managed> {
        // As they are written in one way only, so that a grant means the same place.
        let (from, to) = (one_spelling(from)?, one_spelling(to)?);
        for (right, on) in Self::rights_to_relay(&from, &to) {
            self.check(right, on)?;
        }
        let links = Links::of(self.namespace());
        self.audit_link(Act::RelayAdd, format!("{from} to {to}"))?;
        let relay = links.add_relay(&from, &to, options)?;
        self.link_doc("relay", &relay.name).map(Managed::Link)
    }

    fn set_relay(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<Managed> {
        self.check_relay(name)?;
        let links = Links::of(self.namespace());
        let moved = links.relay_at(name, from, to)?;
        let (from, to) = (moved.from.to_string(), moved.to.to_string());
        if !self.may(Right::Admin, Resource::NAMESPACE) {
            for (right, on) in Self::rights_to_relay(&from, &to) {
                self.check(right, on)?;
            }
        }
        self.audit_link(Act::RelaySet, format!("relay '{}': {from} to {to}", name.escape_debug()))?;
        links.set_relay(&moved)?;
        self.link_doc("relay", name).map(Managed::Link)
    }

    fn audit_link(&self, act: Act, about: String) -> Result<()> {
        audit(self.namespace(), &self.by(act).about(about))
    }

    fn link_doc(&self, kind: &str, name: &str) -> Result<Box<LinkDoc>> {
        let views = Links::of(self.namespace()).view()?;
        let view = views.iter().find(|view| view.kind == kind && view.name == name);
        view.map(|view| Box::new(documents::link(view)))
            .ok_or_else(|| Code::RelayNotFound.error(format!("no {kind} '{}'", name.escape_debug())))
    }

    /// A caller without the right gets the same answer whether or not there is a relay of this name.
    fn check_relay(&self, name: &str) -> Result<()> {
        let may = |relay: &crate::links::Relay| {
            let (from, to) = (relay.from.to_string(), relay.to.to_string());
            Self::rights_to_relay(&from, &to).all(|(right, on)| self.may(right, on))
        };
        match Links::of(self.namespace()).relay(name) {
            Ok(relay) if may(&relay) => Ok(()),
            _ => self.check(Right::Admin, Resource::NAMESPACE),
        }
    }

    fn remove_relay(&self, name: String, force: bool) -> Result<Managed> {
        self.check_relay(&name)?;
        let links = Links::of(self.namespace());
        links.relay(&name)?;
        audit(self.namespace(), &self.by(Act::RelayRemove).about(format!("relay '{}'", name.escape_debug())))?;
        let change = if links.remove_relay(&name, force)? { "removed" } else { "leaving" };
        Ok(Managed::RelayLeft { relay: name, change })
    }

    fn resume_relay(&self, name: &str, skip: bool, start: Option<u64>) -> Result<Managed> {
        self.check_relay(name)?;
        let resumed = Links::of(self.namespace()).resume_relay(name, skip, start)?;
        let records = resumed.records();
        let passed_over =
            resumed.passed_over.map(|(first, last)| PassedOver { records, first, last, lost: resumed.lost });
        Ok(Managed::Resumed { relay: self.link_doc("relay", name)?, passed_over })
    }
}

/// An address as it is always written, with its port; a log's name as it is.
fn one_spelling(end: &str) -> Result<String> {
    if Address::claims(end) { end.parse::<Address>().map(|address| address.to_string()) } else { Ok(end.to_owned()) }
}
