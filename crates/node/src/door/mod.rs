//! The door: a namespace as somebody outside meets it, through a host.
//!
//! ```text
//!   request --> access --> namespace --> gate --> answer
//! ```
//!
//! Every call passes the one access check ([`millrace_access`]) and gives back something [`Held`], which leaves through the one
//! gate ([`millrace_namespace::gate`]).

pub(crate) mod blocked;
pub(crate) mod limits;
pub(crate) mod submit;
pub(crate) mod watch;

use crate::{
    AppendOptions, Gate, Held, Namespace, Receipt, Record, Site,
    links::{Accepted, Inbound, Inbox, Links},
};
use blocked::{Blocked, Monitor};
use limits::Limits;
use millrace_access::{Caller, Right};
use millrace_journal::{Durability, Log};
use millrace_wire::{
    Code, Error, Hlc, LogName, Name, Result,
    protocol::{Link, Linked},
};
use std::{path::Path, sync::Arc};
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
    submissions: Submissions,
}

impl Served {
    /// Serves a namespace under this name.
    pub fn new(name: Name, namespace: Namespace) -> Result<Served> {
        let monitor = Arc::new(Monitor::new(namespace.journal().clone(), namespace.gate().clone()));
        let watch = Watch::start(namespace.journal().clone(), monitor.clone())
            .map_err(|error| Code::HostStart.error(format!("a thread could not be started: {error}")))?;
        namespace.read_keys();
        let (watch, submissions) = (Arc::new(watch), Submissions::default());
        Ok(Served { inner: Arc::new(Inner { name, namespace, watch, monitor, submissions }) })
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.inner.name
    }

    /// The gate; whoever awaits what it holds calls its `turn`.
    pub fn gate(&self) -> &Arc<Gate> {
        self.inner.namespace.gate()
    }

    /// The namespace itself, for the host's own work: nothing that comes from outside may reach it.
    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// What keeps its journal from going on, if anything has for a second or longer.
    pub fn blocked(&self) -> Option<Blocked> {
        self.inner.monitor.blocked()
    }

    /// The same for whoever must not keep the namespace open: nothing once nobody serves it.
    pub fn when_blocked(&self) -> impl Fn() -> Option<Blocked> + Send + use<> {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().and_then(|inner| inner.monitor.blocked())
    }

    /// The namespace as `caller` may use it.
    pub fn door(&self, caller: Caller) -> Door {
        Door { served: self.clone(), caller, limits: None }
    }
}

/// A served namespace as one caller meets it.
#[derive(Clone)]
pub struct Door {
    served: Served,
    caller: Caller,
    /// What whoever comes this way may make the namespace allocate; without a bound if absent.
    limits: Option<Limits>,
}

impl Door {
    /// What it leads to.
    pub fn served(&self) -> &Served {
        &self.served
    }

    fn namespace(&self) -> &Namespace {
        &self.served.inner.namespace
    }

    /// Makes a result leave through the gate: what succeeded brings its own hold.
    fn out<T>(&self, result: Result<Held<T>>, durability: Option<Durability>) -> Held<T> {
        result.unwrap_or_else(|error| self.refuse(error, durability))
    }

    /// An error that leaves as errors of this namespace do.
    pub fn refuse<T>(&self, error: Error, durability: Option<Durability>) -> Held<T> {
        self.served.gate().refuse(error, durability)
    }

    /// The namespace's hybrid logical clock, for answers.
    pub fn clock(&self) -> Hlc {
        self.namespace().journal().clock()
    }

    /// Appends one record.
    pub fn append(&self, log: &str, data: &[u8], options: AppendOptions<'_>) -> Held<Receipt> {
        let append = || {
            self.caller.check(Right::Append.to(log))?;
            self.check_outboxes([log].into_iter())?;
            self.namespace().append_held(log, data, options)
        };
        self.out(append(), options.durability)
    }

    /// Appends records, all or none.
    pub fn append_many(&self, records: &[(&str, &[u8])], options: AppendOptions<'_>) -> Held<Vec<Receipt>> {
        let append = || {
            for (log, _) in records {
                self.caller.check(Right::Append.to(log))?;
            }
            self.check_outboxes(records.iter().map(|(log, _)| *log))?;
            self.namespace().append_many_held(records, options)
        };
        self.out(append(), options.durability)
    }

    /// Reads one record; 0 is the newest.
    pub fn get(&self, log: &str, seqno: u64, durability: Option<Durability>) -> Held<Record> {
        let get = || {
            self.caller.check(Right::Read.to(log))?;
            self.namespace().get_held(log, seqno, durability)
        };
        self.out(get(), durability)
    }

    /// Reads at most `count` records from `from` on, and at most `bytes_max` bytes of them unless the first alone has more;
    /// and says of which incarnation of the log they are.
    pub fn range(
        &self,
        log: &str,
        from: u64,
        count: u32,
        bytes_max: usize,
        durability: Option<Durability>,
    ) -> Held<(u32, Vec<Record>)> {
        let range = || {
            self.caller.check(Right::Read.to(log))?;
            let found = self.namespace().log(log)?;
            let held = self.namespace().range_of_held(&found, from, count, bytes_max, durability)?;
            Ok(held.map(|records| (found.id(), records)))
        };
        self.out(range(), durability)
    }

    /// [`Door::range`] of a log that [`Door::log`] found: never of another one that has its name now.
    pub fn range_of(
        &self,
        log: &Log,
        from: u64,
        count: u32,
        bytes_max: usize,
        durability: Option<Durability>,
    ) -> Held<Vec<Record>> {
        let range = || {
            self.caller.check(Right::Read.to(log.name()))?;
            self.namespace().range_of_held(log, from, count, bytes_max, durability)
        };
        self.out(range(), durability)
    }

    /// The newest sequence number of a log, 0 if there is none.
    pub fn latest(&self, log: &str, durability: Option<Durability>) -> Held<u64> {
        let latest = || {
            self.caller.check(Right::Read.to(log))?;
            self.namespace().latest_held(log, durability)
        };
        self.out(latest(), durability)
    }

    /// The log of this name, for those who go on to read it: what is told of it is held there. That there is none is held.
    pub fn log(&self, log: &str, durability: Option<Durability>) -> Held<Log> {
        let found = || {
            self.caller.check(Right::Read.to(log))?;
            self.namespace().log(log).map(Held::passed)
        };
        self.out(found(), durability)
    }

    /// Whether the log is there and has no record above `seen` yet: the host's own question, whose answer nobody is told.
    pub fn must_wait(&self, log: &str, seen: u64) -> bool {
        self.namespace().log(log).is_ok_and(|log| log.latest() <= seen)
    }

    /// Where a tail begins that asks for record `from` first, or for what comes from now on if that is 0.
    ///
    /// # Errors
    ///
    /// There is no such place: records before it have left the history, or the log does not reach there.
    pub fn cursor(&self, log: &Log, from: u64, durability: Option<Durability>) -> Held<u64> {
        let cursor = || {
            self.caller.check(Right::Read.to(log.name()))?;
            self.namespace().cursor_held(log, from, durability)
        };
        self.out(cursor(), durability)
    }

    /// Resolves once the newest record of the log is above `seen`, or the log is gone. It says only that something is to be
    /// read, through the gate.
    pub fn growth(&self, log: &Log, seen: u64) -> Growth {
        self.served.inner.watch.growth(log.clone(), seen)
    }

    /// Makes a log.
    pub fn create_log(&self, log: &str, history: u64) -> Held<()> {
        let create = || {
            self.caller.check(Right::Define.to(log))?;
            let log = log.parse::<LogName>()?;
            self.check_log(&log, history)?;
            self.namespace().create_log_held(&log, history)
        };
        self.out(create(), None).map(drop)
    }

    /// Removes a log.
    pub fn remove_log(&self, log: &str) -> Held<()> {
        let remove = || {
            self.caller.check(Right::Define.to(log))?;
            self.namespace().remove_log_held(&log.parse::<LogName>()?)
        };
        self.out(remove(), None)
    }

    /// Looks at the namespace as a whole; what is seen is held until all of it is safe.
    pub fn inspect<T>(&self, look: impl FnOnce(&Namespace) -> Result<T>) -> Held<T> {
        let inspect = || {
            self.caller.check(Right::Read.to_namespace())?;
            let seen = look(self.namespace())?;
            Ok(self.served.gate().hold(Site::Inspect, seen, self.namespace().journal().tail(), None))
        };
        self.out(inspect(), None)
    }

    /// Opens a stream from another namespace, or opens it again.
    pub fn link(&self, link: &Link<'_>) -> Held<(Inbound, Linked)> {
        self.deliver(|inbox| {
            self.check_stream(link)?;
            let (inbound, Accepted { value, end }) = inbox.link(link)?;
            Ok(Accepted { value: (inbound, value), end })
        })
    }

    /// Takes part in a link between namespaces: what is done is held until it is safe.
    pub fn deliver<T>(&self, deliver: impl FnOnce(&Inbox) -> Result<Accepted<T>>) -> Held<T> {
        let delivered = || {
            self.caller.check(Right::Deliver.to_namespace())?;
            let Accepted { value, end } = deliver(&Links::of(self.namespace()).inbox())?;
            Ok(self.served.gate().hold(Site::Deliver, value, end, None))
        };
        self.out(delivered(), None)
    }
}

/// The name under which a namespace is served: the directory's that holds it, where that can be a name.
pub fn default_name(dir: &Path) -> Name {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let own = dir.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    let parent = || dir.parent()?.file_name()?.to_str();
    let name = own.or_else(parent).and_then(|name| name.parse().ok());
    name.unwrap_or_else(|| "main".parse().expect("`main` is a name"))
}
