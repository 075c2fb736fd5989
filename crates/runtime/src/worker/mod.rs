//! Functions in a persistent worker process: Python, or anything that speaks `spec/protocol/worker.md`.

mod frame;
mod process;
mod python;
mod run;
mod session;
mod zygote;

pub use process::{ProcessExecutor, ProcessSpec};
pub use python::{PythonExecutor, PythonFunction, PythonSpec};

use crate::{Call, Code, Completion, Error, Limits, Outcome, Result};
use session::Session;
use std::time::{Duration, Instant};

/// How long a worker may take to be ready, unless its runs may take longer.
const START_MAX: Duration = Duration::from_secs(30);
/// How long the reason why a worker did not start is repeated before it is tried again.
const START_AGAIN_AFTER: Duration = Duration::from_millis(500);

fn start_within(limits: &Limits) -> Duration {
    limits.timeout.max(START_MAX)
}

/// Starts a worker.
trait Launch: Send {
    fn launch(&self) -> Result<Session>;
}

/// Runs batches in one worker, which is started when there is work and started anew after it ended.
struct Worker<L> {
    launch: L,
    limits: Limits,
    session: Option<Session>,
    refused: Option<(Instant, Error)>,
}

impl<L: Launch> Worker<L> {
    fn new(launch: L, limits: Limits) -> Self {
        Self { launch, limits, session: None, refused: None }
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

    fn run(&mut self, batch: &mut [Call<'_>], done: &mut dyn FnMut(usize, Completion)) {
        if batch.is_empty() {
            return;
        }
        let begun = Instant::now();
        let limits = self.limits;
        let unbegun = |run, error| session::Broken {
            run,
            completion: Completion { outcome: Outcome::Failed(error), output: Vec::new(), elapsed: begun.elapsed() },
        };
        let broken = match self.session() {
            Ok(session) => {
                let unknown = |call: &Call<'_>| call.invocation.streamed && !session.knows_streamed();
                let known = batch.iter().position(unknown).unwrap_or(batch.len());
                match session.run(&mut batch[..known], &limits, done) {
                    Ok(()) if known == batch.len() => return,
                    Ok(()) => unbegun(known, Code::WorkerTooOld.error("it speaks version 1 of the worker protocol")),
                    Err(broken) => {
                        self.session = None;
                        broken
                    }
                }
            }
            Err(error) => unbegun(0, error),
        };
        done(broken.run, broken.completion);
        for i in broken.run + 1..batch.len() {
            done(i, Completion { outcome: Outcome::NotStarted, output: Vec::new(), elapsed: Duration::ZERO });
        }
    }
}
