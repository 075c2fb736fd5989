//! Functions in a persistent worker process: Python, or anything that speaks `spec/protocol/worker.md`.

mod frame;
mod process;
mod python;
mod run;
mod session;
mod talk;
mod zygote;

pub use process::{ProcessExecutor, ProcessSpec};
pub use python::{PythonExecutor, PythonFunction, PythonSpec};

use crate::{
    Completion, Error, Limits, Outcome, Progress, Result, Run, StepCalls, StepWork, StreamCalls, StreamWork, Watch,
    WorkId,
    sandbox::{Batch, Sandbox},
    step::StepHost,
};
use session::{Ended, Session};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use talk::Talk;

/// How long a worker may take to be ready, unless its runs may take longer.
const START_MAX: Duration = Duration::from_secs(30);
/// How long an import may take that only checks a function, however long its runs may take.
const CHECK_MAX: Duration = Duration::from_secs(10 * 60);
/// How long the reason why a worker did not start is repeated before it is tried again.
const START_AGAIN_AFTER: Duration = Duration::from_millis(500);

fn start_within(limits: &Limits) -> Duration {
    limits.timeout.max(START_MAX)
}

/// Starts a worker.
trait Launch: Send {
    fn launch(&self) -> Result<Session>;
    /// Where it is started; none if that is on the host.
    fn sandbox(&self) -> Option<&Arc<Sandbox>>;
}

/// Runs batches in one worker, which is started when there is work and restarted after it ended.
struct Worker<L> {
    launch: L,
    limits: Limits,
    session: Option<Session>,
    refused: Option<(Instant, Error)>,
    streams: Streams,
}

/// The open streams of a worker.
#[derive(Default)]
struct Streams {
    talk: Talk,
    last: u64,
    /// While there are any.
    batch: Option<Batch>,
}

impl<L: Launch> Worker<L> {
    fn new(launch: L, limits: Limits) -> Self {
        Self { launch, limits, session: None, refused: None, streams: Streams::default() }
    }

    fn session(&mut self) -> Result<&mut Session> {
        self.session.take_if(|session| session.has_ended());
        if let Some((since, error)) = &self.refused
            && since.elapsed() < START_AGAIN_AFTER
        {
            return Err(error.clone());
        }
        match &mut self.session {
            Some(session) => Ok(session),
            none => match self.launch.launch() {
                Ok(session) => {
                    self.refused = None;
                    Ok(none.insert(session))
                }
                Err(error) => {
                    self.refused = Some((Instant::now(), error.clone()));
                    Err(error)
                }
            },
        }
    }

    fn get_ready(&mut self) -> Result<()> {
        if self.session.is_none() { self.session().map(drop) } else { Ok(()) }
    }

    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress) {
        if batch.is_empty() {
            return;
        }
        assert_eq!(self.streams.talk.len(), 0, "streams are open");
        let begun = Instant::now();
        let limits = self.limits;
        let _batch = self.launch.sandbox().map(Sandbox::batch);
        let unbegun = |outcome| Completion { outcome, output: Vec::new(), elapsed: begun.elapsed() };
        // How many runs were reported, and how the next one ended that was not.
        let (reported, broken) = match self.session() {
            Ok(session) => {
                match session.run(batch, &limits, progress) {
                    Ended::All => return,
                    Ended::Left { reported, sent } => {
                        if sent > reported {
                            // It has already received runs that other executors take over now, and these cannot be recalled.
                            self.session = None;
                        }
                        (reported, None)
                    }
                    Ended::Broken { run, completion } => {
                        self.session = None;
                        (run, Some(completion))
                    }
                }
            }
            Err(error) => (0, Some(unbegun(Outcome::CannotStart(error)))),
        };
        let not_started = || Completion { outcome: Outcome::NotStarted, output: Vec::new(), elapsed: Duration::ZERO };
        let rest = broken.into_iter().chain(std::iter::repeat_with(not_started));
        for (run, completion) in (reported..batch.len()).zip(rest) {
            progress.ended(run, completion);
        }
    }

    fn step(&mut self, step: &StepWork<'_>, calls: &mut dyn StepCalls, watch: &mut dyn Watch) -> Result<Vec<u8>> {
        assert_eq!(self.streams.talk.len(), 0, "streams are open");
        let limits = self.limits;
        let _batch = self.launch.sandbox().map(Sandbox::batch);
        let mut host = StepHost::new(calls);
        match self.session()?.step(&step.invocation(), &mut host, &limits, watch) {
            Ok(outcome) => host.end(outcome),
            Err(error) => {
                self.session = None;
                Err(error)
            }
        }
    }

    fn open(&mut self, work: &StreamWork<'_>, calls: Box<dyn StreamCalls>) -> Result<WorkId> {
        // A worker that has ended while streams are open is replaced once all of them were reported.
        if self.streams.talk.len() == 0 {
            self.session()?;
        }
        let session = self.session.as_mut().expect("it has begun");
        let id = WorkId(self.streams.last + 1);
        session.open(&mut self.streams.talk, (id, work), calls, &self.limits)?;
        self.streams.last += 1;
        if self.streams.batch.is_none() {
            self.streams.batch = self.launch.sandbox().map(Sandbox::batch);
        }
        Ok(id)
    }

    fn drive(&mut self, until: Option<Instant>) -> Vec<(WorkId, Completion)> {
        let Some(session) = &mut self.session else { return Vec::new() };
        let ended = match session.drive(&mut self.streams.talk, until) {
            Ok(ended) => ended,
            Err(ended) => {
                self.session = None;
                ended
            }
        };
        if self.streams.talk.len() == 0 {
            self.streams.batch = None;
        }
        ended
    }

    fn cancel(&mut self, work: WorkId) {
        if let Some(session) = &mut self.session {
            session.cancel(&mut self.streams.talk, work);
        }
    }
}
