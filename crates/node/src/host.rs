//! The host: the one process that runs a namespace's functions, for as long as it holds the namespace's host lock.

use crate::{
    HostStatus, Namespace, Objects, Observer, functions,
    repairs::{Reach, Repairer},
    secrets::FunctionSecrets,
};
use millrace_dispatch::{Dispatcher, Environment, Isolation, SecretStore};
use millrace_namespace::holder::{self, HostLock};
use millrace_wire::{Code, Error, Result};
use std::{sync::Arc, time::Duration};

/// How a host runs.
#[derive(Clone, Default)]
pub struct HostOptions {
    /// Receives every run when it ends.
    pub observer: Option<Observer>,
    /// How functions are kept apart; without it they have the rights of the host's user.
    pub isolation: Option<Arc<Isolation>>,
    /// How repairs reach other namespaces; without it, none takes part in a repair of this one.
    pub reach: Option<Reach>,
}

/// The running host of a namespace. Dropping it stops it, without waiting for runs in progress.
pub struct Host {
    namespace: Namespace,
    dispatcher: Dispatcher,
    objects: Objects,
    repairer: Repairer,
    /// Held until the threads have stopped publishing.
    _lock: HostLock,
}

impl Host {
    /// Becomes the namespace's host and starts running its functions.
    pub fn start(namespace: Namespace, options: HostOptions) -> Result<Host> {
        let lock = holder::lock(namespace.dir())?;
        Self::start_locked(namespace, options, lock)
    }

    fn start_locked(namespace: Namespace, options: HostOptions, lock: HostLock) -> Result<Host> {
        HostStatus::remove(namespace.dir());
        functions::sweep_scratch(namespace.dir());
        millrace_threads::guard().map_err(|e| Code::HostStart.error(format!("cannot start a thread: {e}")))?;
        let secrets: Arc<dyn SecretStore> = Arc::new(FunctionSecrets::of(namespace.dir()));
        let objects = Objects::start(namespace.clone())?;
        let callee: Arc<dyn millrace_dispatch::Objects> = Arc::new(objects.clone());
        let environment = Environment { isolation: options.isolation, secrets: Some(secrets), objects: Some(callee) };
        objects.employ(environment.clone());
        let dispatcher = Dispatcher::start(namespace.clone(), options.observer, Some(environment.clone()))?;
        let repairer = Repairer::start(namespace.clone(), environment, options.reach)?;
        Ok(Host { namespace, dispatcher, objects, repairer, _lock: lock })
    }

    /// The shared objects in its memory.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Its current activity.
    pub fn status(&self) -> HostStatus {
        self.dispatcher.status()
    }

    /// Adds a note for the operator to [`HostStatus`]; `millrace why` reports it.
    pub fn set_notice(&self, notice: Option<String>) {
        self.dispatcher.set_notice(notice);
    }

    /// Why the host must end: the journal is closed to writes, or the namespace's directory was moved or removed. Call this periodically.
    pub fn failure(&self) -> Option<Error> {
        self.dispatcher.failure().or_else(|| self.namespace.journal().check_place().err())
    }

    fn remove_status(&self) {
        // Where another directory has this one's name, the file there is another host's.
        if self.namespace.journal().check_place().is_ok() {
            HostStatus::remove(self.namespace.dir());
        }
    }

    /// From now on no further run is started; those in progress continue, until [`Host::stop`].
    pub fn stop_starting(&self) {
        self.dispatcher.stop_starting();
    }

    /// Stops: no further run is started, and those in progress get `drain` to end.
    ///
    /// Runs that are still in progress then publish nothing; the next host tries them again.
    pub fn stop(mut self, drain: Duration) -> Result<()> {
        self.repairer.stop();
        let stopped = self.dispatcher.stop(drain);
        self.remove_status();
        stopped
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After `stop` there is nothing to do; without it, no receiver is left for the reports of runs.
        self.repairer.stop();
        let _ = self.dispatcher.stop(Duration::ZERO);
        self.objects.close();
        self.remove_status();
    }
}
