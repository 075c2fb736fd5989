//! The tasks of the event loops. A runtime continues without a task that panicked, so every task is started by one of these functions.

use super::wake_list;
use millrace_threads::Fuse;
use std::future::Future;
use tokio::{runtime::Handle, task::JoinHandle};

/// Starts a task without which the host cannot run: its panic ends the host, as that of a thread does.
pub(super) fn vital(on: &Handle, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    let fuse = Fuse(name);
    on.spawn(async move {
        let _fuse = fuse;
        work.await;
    });
}

/// The same on the loop of this thread.
pub(crate) fn vital_here(name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    vital(&Handle::current(), name, work);
}

/// Starts the task of one connection of this thread's loop. Nothing that arrives over it may end the host: a panic is reported on standard
/// error, and ends this connection only.
pub(crate) fn of_connection(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(wake_list::woken_together(work))
}

/// Starts the task of one of several requests of a connection of this thread's loop. A panic ends this request only.
pub(crate) fn of_stream(work: impl Future<Output: Send> + Send + 'static) {
    of_connection(async { drop(work.await) });
}
