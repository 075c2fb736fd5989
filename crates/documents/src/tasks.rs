//! What executors use: pools of workers with their tasks, and the shared objects of a host.

use serde::{Deserialize, Serialize};

/// The pools of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TasksDoc {
    /// In the order of their names.
    pub pools: Vec<PoolDoc>,
}

/// A pool, which runs the tasks of executors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolDoc {
    /// Its name.
    pub pool: String,
    /// The function that runs its tasks.
    pub function: String,
    /// `python` or `wasm`.
    pub runtime: String,
    /// How many tasks may be in progress at once.
    pub workers: u32,
    /// Tasks that wait for a worker.
    pub queued: u64,
    /// Tasks in progress; a host names 64 at most.
    pub running: u64,
    /// Tasks that failed and wait for their next attempt; likewise.
    pub retrying: u64,
    /// Tasks that have ended, ever.
    pub done: u64,
    /// Those of them that were given up.
    pub failed: u64,
    /// Newest results that were looked at, and how many of them are exceptions of tasks.
    pub results: u64,
    /// How many of these are exceptions.
    pub raised: u64,
    /// When the newest result came.
    pub last: Option<String>,
}

/// A list of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectsDoc {
    /// In the order of their keys.
    pub objects: Vec<ObjectDoc>,
    /// How many sessions are open.
    pub sessions: u64,
    /// The key after which the next page begins, if there are more.
    pub next: Option<String>,
}

/// A shared object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectDoc {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The user's class, if it is an object of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Its key.
    pub key: String,
    /// Which object of the key it is.
    pub incarnation: String,
    /// With whose sessions it ends; empty if it stays.
    pub application: String,
    /// Whether it exists after a restart of the host.
    pub persistent: bool,
    /// How many hosts have a copy at least: 1 for the namespace's host alone.
    pub rf: u64,
    /// The host that leads the group which keeps the copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// How much memory it takes.
    pub bytes: u64,
    /// How many calls wait.
    pub waiting: u64,
    /// Some of them, those that came first.
    pub waiters: Vec<WaiterDoc>,
    /// The session that has the lock.
    pub owner: Option<String>,
}

/// A call that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaiterDoc {
    /// Whose call it is.
    pub session: String,
    /// Its number there.
    pub call: u64,
}
