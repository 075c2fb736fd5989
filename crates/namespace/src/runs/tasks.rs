//! Pools of workers, and the logs that their tasks go through. Only the runtime appends to these.

use crate::{AppendOptions, Gated, Namespace, Receipt, namespace::BATCH_RECORDS_MAX};
use millrace_wire::{Code, LogName, Name, Result};

/// How many bytes of a task name it, for its client.
pub const ID_BYTES: usize = 24;
/// A result: the task ended well.
pub const RETURNED: u8 = 0;
/// A result: the task raised.
pub const RAISED: u8 = 1;
/// A result: the task was given up.
pub const FAILED: u8 = 2;
/// How many tasks and results of a pool stay readable.
pub const HISTORY: u64 = 1 << 16;
/// How many bodies do.
pub const BODIES: u64 = 1 << 12;

const TASKS: &str = "_tasks/";

/// The pool whose tasks are in this log.
pub fn pool_of(log: &str) -> Option<&str> {
    log.strip_prefix(TASKS)
}

/// The log of a pool's tasks.
pub fn tasks(pool: &str) -> String {
    format!("{TASKS}{pool}")
}

/// The log of what they name.
pub fn bodies(pool: &str) -> String {
    format!("_bodies/{pool}")
}

/// The log of what came of them.
pub fn results(pool: &str) -> String {
    format!("_results/{pool}")
}

/// The logs of its pool that a run for a task may use.
pub struct Pool {
    /// Its name.
    pub name: String,
    bodies: String,
    results: String,
}

impl Pool {
    /// The pool whose tasks are in this log.
    pub fn of(log: &str) -> Option<Self> {
        let pool = pool_of(log)?;
        Some(Self { name: pool.into(), bodies: bodies(pool), results: results(pool) })
    }

    /// Whether its runs may read this log.
    pub fn reads(&self, log: &str) -> bool {
        log == self.bodies
    }

    /// Whether its runs may append to this log.
    pub fn appends(&self, log: &str) -> bool {
        log == self.results
    }

    /// Refuses a result of another task than the run's own, because clients unpickle the result with their task's id.
    pub fn check_result(task: &[u8], result: &[u8]) -> Result<()> {
        match task.get(..ID_BYTES) {
            Some(id) if result.get(1..=ID_BYTES) == Some(id) => Ok(()),
            _ => Err(Code::RightMissing.error("the task may not append the result of another task")),
        }
    }
}

/// The function of a pool.
pub fn function(pool: &str) -> Result<Name> {
    format!("pool-{pool}").parse()
}

impl Namespace {
    /// Makes the logs of a pool, unless they exist.
    pub fn make_pool(&self, pool: &Name) -> Result<()> {
        let logs = [(bodies(pool), BODIES), (tasks(pool), HISTORY), (results(pool), HISTORY)];
        let committed = self.journal().commit(|tx| {
            for (log, history) in &logs {
                let log: LogName = log.parse()?;
                if tx.catalog().log(&log).is_none() {
                    tx.create_log(&log, *history)?;
                }
            }
            Ok(())
        })?;
        self.settle(crate::Site::CreateLog, crate::Shows::Report(committed.end), None)
    }

    /// Has tasks run, all or none; or takes bodies that tasks name. The answer is still held at the gate.
    pub fn invoke_gated(
        &self,
        pool: &str,
        are_bodies: bool,
        tasks: &[&[u8]],
        options: AppendOptions<'_>,
    ) -> Result<Gated<Vec<Receipt>>> {
        if tasks.is_empty() || tasks.len() > BATCH_RECORDS_MAX {
            let count = tasks.len();
            return Err(
                Code::TaskInvalid.error(format!("{count} tasks in one batch; a batch has 1 to {BATCH_RECORDS_MAX}"))
            );
        }
        if let Some(short) = tasks.iter().find(|task| !are_bodies && task.len() < ID_BYTES) {
            return Err(
                Code::TaskInvalid.error(format!("a task of {} bytes; its id alone has {ID_BYTES}", short.len()))
            );
        }
        let log = if are_bodies { bodies(pool) } else { self::tasks(pool) };
        let there = log.parse::<LogName>().is_ok_and(|log| self.journal().log(&log).is_ok());
        if !there {
            return Err(Code::PoolNotFound.error(format!("no pool '{}'", pool.escape_debug())));
        }
        let records: Vec<(&str, &[u8])> = tasks.iter().map(|task| (&*log, *task)).collect();
        self.append_internal_gated(&records, options)
    }
}
