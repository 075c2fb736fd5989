//! Replicas: follow the tables of other namespaces.
//!
//! ```text
//!  Replicator ── watches `_owner/N` ── a thread per owner ── follow ══ Line ══> the owner's host
//!     │                                                        └── Namespace::import_batches
//!     └── replicas.json
//! ```
//!
//! `millrace_node::replicas` has all state that has to survive. A connection may break, and this process may die, at any moment.

mod follow;
mod wait;

pub(crate) use wait::reached;

use crate::links::{Shared, line::IsStopping};
use follow::Follower;
use millrace_client::blocking::HangUp;
use millrace_node::{Code, Error, Namespace, Result};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often the supervisor looks for changes of owners, and tells other processes of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The same without any replica. Another process that begins one notifies this host; this only limits the effect of a missed notification.
const REST: Duration = Duration::from_secs(30);
const STACK_BYTES: usize = 512 << 10;

/// Follows the owners of the replicas of one namespace. Dropping it ends that.
pub struct Replicator {
    namespace: Namespace,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Cuts the connection of a follower when everything stops.
#[derive(Default)]
struct Cut(Mutex<Option<HangUp>>);

impl Cut {
    fn kept(&self) -> MutexGuard<'_, Option<HangUp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hang_up(&self) {
        if let Some(hang_up) = self.kept().take() {
            hang_up.hang_up();
        }
    }
}

impl Replicator {
    /// Starts to follow the owners of the replicas of a namespace, which this process hosts. `ca` names the certificate authorities that
    /// identify hosts whose key is not known: a PEM file, or `system`.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub fn start(namespace: Namespace, ca: Option<PathBuf>) -> Result<Self> {
        let shared = Arc::new(Shared::new(ca));
        let supervisor =
            ReplicaSupervisor { namespace: namespace.clone(), shared: shared.clone(), running: HashMap::new() };
        let builder = thread::Builder::new().name("millrace-replicas".into());
        let thread = millrace_threads::spawn(builder, move || supervisor.run());
        let failed = |error| Code::HostStart.error(format!("a thread could not be started: {error}"));
        Ok(Self { namespace, shared, thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for Replicator {
    fn drop(&mut self) {
        self.shared.stop();
        self.namespace.journal().wake();
        if let Some(thread) = self.thread.take() {
            millrace_threads::join(thread);
        }
        self.namespace.remove_owners();
    }
}

struct Running {
    cut: Arc<Cut>,
    thread: JoinHandle<()>,
}

struct ReplicaSupervisor {
    namespace: Namespace,
    shared: Arc<Shared>,
    running: HashMap<u32, Running>,
}

impl ReplicaSupervisor {
    fn run(mut self) {
        let journal = self.namespace.journal().clone();
        loop {
            // A stop sets the flag first, and then wakes this.
            let (wakes, version) = (journal.wakes(), journal.catalog_version());
            if self.shared.is_stopping() {
                break;
            }
            let has_any = match self.look() {
                Ok(has_any) => has_any,
                Err(error) => {
                    tracing::warn!(target: "replicas", %error, "the owners cannot be read");
                    true
                }
            };
            if has_any {
                self.namespace.leave_owners();
                self.shared.sleep(LOOK_EVERY);
            } else if journal.wait_change(None, version, wakes, REST).is_err() {
                self.shared.sleep(LOOK_EVERY);
            }
        }
        self.running.values().for_each(|running| running.cut.hang_up());
        self.running.drain().for_each(|(_, running)| millrace_threads::join(running.thread));
    }

    /// Starts what should run and does not; what should not run ends by itself. Returns whether there are any owners.
    fn look(&mut self) -> Result<bool> {
        let ended: Vec<u32> =
            self.running.iter().filter(|(_, running)| running.thread.is_finished()).map(|(key, _)| *key).collect();
        for number in ended {
            if let Some(running) = self.running.remove(&number) {
                millrace_threads::join(running.thread);
            }
        }
        let owners = self.namespace.owners()?;
        for owner in owners.iter().filter(|owner| owner.stopped.is_none()) {
            if self.running.contains_key(&owner.number) {
                continue;
            }
            let cut = Arc::new(Cut::default());
            let follower = Follower::new(self.namespace.clone(), owner.number, self.shared.clone(), cut.clone());
            let builder = thread::Builder::new().name("millrace-replica".into()).stack_size(STACK_BYTES);
            let thread = millrace_threads::spawn(builder, move || follower.run());
            let failed = |error: std::io::Error| -> Error { Code::HostStart.error(format!("a thread: {error}")) };
            self.running.insert(owner.number, Running { cut, thread: thread.map_err(failed)? });
        }
        Ok(!owners.is_empty() || !self.running.is_empty())
    }
}

fn is_stopping(shared: &Arc<Shared>) -> IsStopping {
    let shared = shared.clone();
    Arc::new(move || shared.is_stopping())
}
