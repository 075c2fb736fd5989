//! One process per run: the record on standard input, the exit status as the outcome. So a shell script is a function.
//!
//! It appends by writing to descriptor 3, one line `LOG<TAB>TEXT` per record; a line `<TAB>TEXT` is its result. A run ends with its process:
//! all other processes of its group are then killed.

use crate::{
    Code, Completion, Error, Executor, Invocation, Limits, Outcome, ProcessSpec, Progress, Rest, Result, Run, Watching,
    child::{self, Ended, Process, Scratch, read_some},
    output::{Output, head, tail},
    sandbox::{Room, Sandbox, Starting},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::MemfdFlags,
};
use std::{
    fs::File,
    io::{Seek, Write},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

/// How often the pipes of a process that ended are read, at most: a read takes what a pipe holds.
const LAST_READS_MAX: usize = 2;

/// Runs a command once per record.
pub struct OneshotExecutor {
    spec: ProcessSpec,
    limits: Limits,
    /// Found with the first run.
    program: Option<PathBuf>,
    sandbox: Option<Arc<Sandbox>>,
}

impl OneshotExecutor {
    /// An executor for this command.
    pub fn new(spec: ProcessSpec, limits: Limits) -> Self {
        Self { spec, limits, program: None, sandbox: None }
    }

    /// Its processes run in this sandbox.
    #[must_use]
    pub fn within(mut self, sandbox: Option<Arc<Sandbox>>) -> Self {
        self.sandbox = sandbox;
        self
    }

    fn run_one(&mut self, run: &mut Run<'_>, progress: &mut dyn Progress) -> Completion {
        let begun = Instant::now();
        let mut output = Output::new(self.limits.output_max_bytes);
        let outcome = match self.start(&run.invocation) {
            Ok(process) => {
                let attended = process.attend(run, progress, &mut output, begun, &self.limits);
                attended.map_or_else(Outcome::Failed, |()| Outcome::Done)
            }
            Err(error) => Outcome::CannotStart(error),
        };
        Completion { outcome, output: output.take(), elapsed: begun.elapsed() }
    }

    fn start(&mut self, invocation: &Invocation<'_>) -> Result<Running> {
        let room = Room::of(self.sandbox.as_ref())?;
        let program = match &self.program {
            Some(program) => program.clone(),
            None => self.program.insert(self.spec.program_in(&room)?).clone(),
        };
        let mut environment = room.environment(&self.spec.env);
        environment.set("MILLRACE_LOG", invocation.log);
        environment.set("MILLRACE_SEQNO", invocation.seqno.to_string());
        environment.set("MILLRACE_RUN", invocation.run.to_string());
        environment.set("MILLRACE_ATTEMPT", invocation.attempt.to_string());
        environment.set("MILLRACE_IDEMPOTENCY_KEY", invocation.run.to_string());
        environment.set("MILLRACE_APPEND_FD", "3");
        let input = input(invocation.payload)
            .map_err(|e| Code::SpawnFailed.error(format!("cannot hand over the record: {e}")))?;
        let (printed, print) = child::output_pipe()?;
        let (appended, append) = child::output_pipe()?;
        let scratch = room.scratch(self.spec.scratch.as_deref(), &self.spec.dir)?;
        let starting = Starting {
            program,
            arguments: self.spec.command[1..].to_vec(),
            environment,
            dir: scratch.as_ref().map_or(&*self.spec.dir, Scratch::path).to_owned(),
            descriptors: [input.into(), child::copy(&print)?, print, append],
            memory_max_bytes: self.limits.memory_max_bytes,
        };
        let child = room.start(starting, true)?;
        Ok(Running { child, printed: Some(printed), appended: Some(appended), _scratch: scratch })
    }
}

impl Executor for OneshotExecutor {
    /// Only a stop is handled here: a caller that lets other executors run the rest passes a batch of one run.
    fn run(&mut self, batch: &mut [Run<'_>], progress: &mut dyn Progress) {
        for (i, run) in batch.iter_mut().enumerate() {
            let batch = self.sandbox.as_ref().map(Sandbox::batch);
            let completion = self.run_one(run, progress);
            // What the process left behind has ended before the run is reported.
            drop(batch);
            progress.ended(i, completion);
        }
    }
}

/// The record as a file in memory, so that no thread has to feed a pipe while the process runs.
fn input(payload: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("record", MemfdFlags::CLOEXEC)?);
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file)
}

struct Running {
    child: Box<dyn Process>,
    /// Gone once every writer closed them.
    printed: Option<OwnedFd>,
    appended: Option<OwnedFd>,
    /// It goes after the child.
    _scratch: Option<Scratch>,
}

impl Running {
    /// Takes what the process prints and appends until it ends or its time is over.
    fn attend(
        mut self,
        run: &mut Run<'_>,
        progress: &mut dyn Progress,
        output: &mut Output,
        begun: Instant,
        limits: &Limits,
    ) -> Result<()> {
        let mut lines = Lines::new(limits.append_max_bytes);
        let deadline = begun + limits.timeout;
        let stopped = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Some(Code::RunTimeout.error(format!("stopped after {} ms", limits.timeout.as_millis())));
            }
            if crate::wake_if_due(&mut Watching(progress)) == Rest::Stop {
                break Some(crate::cancelled());
            }
            let left = progress.wake_at().map_or(left, |at| left.min(at.saturating_duration_since(Instant::now())));
            let pidfd = self.child.pidfd();
            let printed = self.printed.as_ref().map_or(pidfd, OwnedFd::as_fd);
            let appended = self.appended.as_ref().map_or(pidfd, OwnedFd::as_fd);
            let mut fds = [printed, appended, pidfd].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // An interrupted sleep is one more turn of the loop.
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
            let [_, _, ended] = fds.map(|fd| !fd.revents().is_empty());
            self.take_some(run, output, &mut lines);
            if ended {
                break None;
            }
        };
        let ended = self.child.end();
        for _ in 0..LAST_READS_MAX {
            self.take_some(run, output, &mut lines);
        }
        let verdict = match (stopped, ended) {
            (Some(error), _) => Err(error),
            (None, Ended::Exited(0)) => lines.finish(run),
            (None, Ended::Exited(_)) => Err(Code::FunctionFailed.error(format!("the process {ended}"))),
            (None, _) => Err(Code::WorkerDied.error(format!("the process {ended}"))),
        };
        verdict.map_err(|error| with_output(error, output))
    }

    fn take_some(&mut self, run: &mut Run<'_>, output: &mut Output, lines: &mut Lines) {
        let mut print = |bytes: &[u8]| {
            output.push(bytes);
            run.logs.printed(bytes);
        };
        self.printed.take_if(|pipe| !read_some(pipe, &mut print));
        self.appended.take_if(|pipe| !read_some(pipe, |bytes| lines.push(bytes, run)));
    }
}

fn with_output(error: Error, output: &Output) -> Error {
    match tail(&output.last()) {
        printed if printed.is_empty() => error,
        printed => error.code().error(format!("{}; it printed last:\n{printed}", error.detail())),
    }
}

/// The lines on descriptor 3. After the first fault they are read and dropped, so that the process does not block.
struct Lines {
    rest: Vec<u8>,
    taken_bytes: usize,
    max_bytes: usize,
    fault: Option<Error>,
}

impl Lines {
    fn new(max_bytes: usize) -> Self {
        Self { rest: Vec::new(), taken_bytes: 0, max_bytes, fault: None }
    }

    fn push(&mut self, bytes: &[u8], run: &mut Run<'_>) {
        self.taken_bytes = self.taken_bytes.saturating_add(bytes.len());
        if self.taken_bytes > self.max_bytes && self.fault.is_none() {
            self.fault = Some(Code::AppendTooMuch.error(format!("a run may append {} bytes in all", self.max_bytes)));
        }
        if self.fault.is_some() {
            return;
        }
        self.rest.extend_from_slice(bytes);
        // The part before these bytes was searched when it came.
        if !bytes.contains(&b'\n') {
            return;
        }
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].iter().position(|byte| *byte == b'\n') {
            if let Err(fault) = append(&self.rest[begin..begin + length], run) {
                self.fault = Some(fault);
                return;
            }
            begin += length + 1;
        }
        self.rest.drain(..begin);
    }

    /// The last line needs no newline.
    fn finish(self, run: &mut Run<'_>) -> Result<()> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.rest.is_empty() => Ok(()),
            None => append(&self.rest, run),
        }
    }
}

fn append(line: &[u8], run: &mut Run<'_>) -> Result<()> {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let parts = tab.and_then(|tab| Some((std::str::from_utf8(&line[..tab]).ok()?, &line[tab + 1..])));
    let Some((log, text)) = parts else {
        let shown = head(&String::from_utf8_lossy(line).escape_debug().to_string(), 80);
        return Err(Code::WorkerProtocol.error(format!("a line on descriptor 3 is not LOG, tab, text: \"{shown}\"")));
    };
    if log.is_empty() {
        // Text, if it is UTF-8; otherwise bytes.
        let kind = u8::from(std::str::from_utf8(text).is_err());
        run.logs.result(&[&[kind], text].concat());
        return Ok(());
    }
    run.logs.append(log, text).map(drop)
}
