//! The thread that starts long-lived children.
//!
//! The kernel sends a child its parent-death signal when the *thread* that started it ends. Executors move between short-lived threads, so
//! children that outlive a run are started here, on a thread that runs as long as the process.

use std::{
    panic,
    sync::{
        OnceLock,
        mpsc::{self, SyncSender},
    },
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// The most starts that wait; more wait in their callers.
const JOBS_MAX: usize = 64;

/// Runs `job` on the keeper thread and returns what it returns.
pub(crate) fn on_keeper<R: Send + 'static>(job: impl FnOnce() -> R + Send + 'static) -> R {
    static KEEPER: OnceLock<SyncSender<Job>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, queue) = mpsc::sync_channel::<Job>(JOBS_MAX);
        let serve = move || queue.iter().for_each(|job| job());
        let builder = thread::Builder::new().name("child-keeper".into());
        millrace_threads::spawn(builder, serve).expect("the system can start one more thread");
        jobs
    });
    let (answer, answered) = mpsc::sync_channel(1);
    let job = move || {
        let result = panic::catch_unwind(panic::AssertUnwindSafe(job));
        // The caller waits for it, so it can be sent.
        let _ = answer.send(result);
    };
    keeper.send(Box::new(job)).expect("the keeper never ends");
    match answered.recv().expect("the keeper answers every job") {
        Ok(result) => result,
        Err(panic) => panic::resume_unwind(panic),
    }
}
