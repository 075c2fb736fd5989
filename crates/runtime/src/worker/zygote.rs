//! A Python interpreter that has imported a function's module, and forks workers from there.
//!
//! Starting Python and importing a module takes 20 ms to seconds, a fork 1 ms. The zygote forks a worker on request and
//! reaps it on request: until then the worker's pid is its own, so killing it cannot hit anybody else.

use super::python::PythonSpec;
use crate::{
    Code, Error, Limits, Result,
    child::{self, Child, Ended, Environment, Plan, Process, kill_group, read_some, readable},
    output::{Output, tail},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType},
    process::{Pid, PidfdFlags, Signal},
};
use std::{
    io::{IoSlice, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The worker's source goes through a pipe, which holds 64 KiB.
const WORKER: &str = include_str!("../../../../sdk/python/millrace/_worker.py");
const _: () = assert!(WORKER.len() < 60 << 10);

/// Python puts the working directory first in its path, where a function's files could hide the standard library's.
const BOOT: &str = "import sys\n\
    if sys.path[:1] == ['']: del sys.path[0]\n\
    import types\n\
    worker = sys.modules['millrace._worker'] = types.ModuleType('millrace._worker')\n\
    worker.__file__ = 'millrace/_worker.py'\n\
    exec(compile(sys.stdin.read(), worker.__file__, 'exec'), worker.__dict__)\n\
    worker.main(sys.argv[1:])\n";

/// How long a fork or a reaping may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The longest message of a zygote.
const MESSAGE_MAX_BYTES: usize = 32 << 10;

pub(super) struct Zygote {
    /// Locked for one request and its answer.
    conversation: Mutex<Conversation>,
}

struct Conversation {
    child: Child,
    control: OwnedFd,
}

impl Zygote {
    /// Starts the interpreter and waits until it has imported the handler's module.
    pub(super) fn start(spec: &PythonSpec, limits: &Limits, within: Duration) -> Result<Arc<Self>> {
        let (control, theirs) = child::channel(SocketType::SEQPACKET)?;
        let (printed, print) = child::output_pipe()?;
        let child = launch(spec, limits, print, theirs)?;
        let mut conversation = Conversation { child, control };
        let mut output = Output::new(16 << 10);
        let answer = conversation.answer(Instant::now() + within, Some((&printed, &mut output)));
        let last = |output: &Output| match tail(output.kept()) {
            printed if printed.is_empty() => String::new(),
            printed => format!("; it printed last:\n{printed}"),
        };
        match answer {
            Ok(answer) => match answer.split_first_chunk() {
                Some((code, [])) if *code == [0; 4] => Ok(Arc::new(Self { conversation: Mutex::new(conversation) })),
                Some((code, message)) => {
                    let error = super::run::stated(u32::from_le_bytes(*code).into(), message, Code::PythonUnusable);
                    Err(error.code().error(format!("{}{}", error.detail(), last(&output))))
                }
                None => Err(Code::PythonUnusable.error("the interpreter's first message is too short")),
            },
            Err(Silence::Timeout) => Err(Code::PythonImport.error(format!(
                "importing '{}' took more than {} s{}",
                spec.module,
                within.as_secs(),
                last(&output)
            ))),
            Err(Silence::Gone) => {
                let ended = conversation.child.end();
                while read_some(&printed, |bytes| output.push(bytes)) && output.kept().len() < 16 << 10 {
                    if !readable(printed.as_fd(), Duration::ZERO) {
                        break;
                    }
                }
                let code = if ended == Ended::Exited(1) { Code::PythonUnusable } else { Code::PythonImport };
                Err(code.error(format!("the interpreter {ended} while it imported '{}'{}", spec.module, last(&output))))
            }
        }
    }

    /// Forks a worker with these descriptors.
    pub(super) fn fork(self: &Arc<Self>, channel: OwnedFd, print: OwnedFd) -> Result<Box<dyn Process>> {
        let failed = |what: &str| Code::SpawnFailed.error(format!("the Python zygote {what}"));
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let fds = [channel.as_fd(), print.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&conversation.control, &[IoSlice::new(b"F")], &mut ancillary, flags)
            .map_err(|errno| failed(&format!("cannot be asked for a worker: {errno}")))?;
        let answer = conversation.answer(Instant::now() + ANSWER_MAX, None);
        let pid = answer.ok().and_then(|pid| Pid::from_raw(i32::from_le_bytes(pid.try_into().ok()?)));
        let pid = pid.ok_or_else(|| failed("did not fork"))?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(|errno| failed(&format!("forked a worker that cannot be watched: {errno}")))?;
        Ok(Box::new(Forked { pid, pidfd, zygote: Arc::clone(self), ended: None }))
    }

    /// Reaps a worker that was sent SIGKILL.
    fn reap(&self, pid: Pid) -> Ended {
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let request = pid.as_raw_nonzero().get().to_le_bytes();
        if rustix::net::send(&conversation.control, &request, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_err() {
            return Ended::Unknown;
        }
        let answer = conversation.answer(Instant::now() + ANSWER_MAX, None);
        match answer.ok().and_then(|status| Some(i32::from_le_bytes(status.try_into().ok()?))) {
            Some(status) if status >= 0 => Ended::from_wait_status(status),
            _ => Ended::Unknown,
        }
    }

    fn has_ended(&self) -> bool {
        readable(self.conversation.lock().unwrap_or_else(PoisonError::into_inner).child.pidfd(), Duration::ZERO)
    }
}

fn launch(spec: &PythonSpec, limits: &Limits, print: OwnedFd, control: OwnedFd) -> Result<Child> {
    let python = child::program(&spec.python, &spec.dir).map_err(|e| Code::PythonUnusable.error(e.detail()))?;
    let dir = std::path::absolute(&spec.dir)
        .map_err(|e| Code::CodeUnreadable.error(format!("'{}': {e}", spec.dir.display())))?;
    let shown = dir.to_str().ok_or_else(|| Code::CodeUnreadable.error(format!("'{}' is not UTF-8", dir.display())))?;
    let mut arguments: Vec<String> = ["-B", "-X", "utf8", "-c", BOOT, shown].map(str::to_owned).to_vec();
    arguments.extend([spec.module.clone(), spec.function.clone()]);
    let (source, mut feed) =
        std::io::pipe().map_err(|e| Code::SpawnFailed.error(format!("cannot open a pipe: {e}")))?;
    feed.write_all(WORKER.as_bytes()).map_err(|e| Code::SpawnFailed.error(format!("cannot fill a pipe: {e}")))?;
    drop(feed);
    let environment = Environment::new(&spec.env);
    let memory_max_bytes = limits.memory_max_bytes;
    child::on_keeper(move || {
        child::spawn(&Plan {
            program: &python,
            arguments: &arguments,
            environment: &environment,
            dir: &dir,
            descriptors: [source.as_fd(), print.as_fd(), print.as_fd(), control.as_fd()],
            memory_max_bytes,
        })
    })
    .map_err(|error: Error| match error.code() {
        Code::CommandUnusable => Code::PythonUnusable.error(error.detail()),
        _ => error,
    })
}

/// Why there is no answer.
enum Silence {
    Timeout,
    Gone,
}

impl Conversation {
    /// Waits for one message; meanwhile takes what the zygote prints, so that it never blocks on it.
    fn answer(&mut self, deadline: Instant, mut printed: Option<(&OwnedFd, &mut Output)>) -> Result<Vec<u8>, Silence> {
        let mut message = vec![0; MESSAGE_MAX_BYTES];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Silence::Timeout);
            }
            let pidfd = self.child.pidfd();
            let pipe = printed.as_ref().map_or(pidfd, |(pipe, _)| pipe.as_fd());
            let mut fds = [self.control.as_fd(), pipe, pidfd].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // An interrupted sleep is one more turn of the loop.
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
            let [control, pipe, ended] = fds.map(|fd| !fd.revents().is_empty());
            if let (true, Some((from, output))) = (pipe, &mut printed)
                && !read_some(from, |bytes| output.push(bytes))
            {
                printed = None;
            }
            if control {
                return match rustix::net::recv(&self.control, &mut message[..], RecvFlags::DONTWAIT) {
                    Ok((count @ 1.., _)) => {
                        message.truncate(count);
                        Ok(message)
                    }
                    _ => Err(Silence::Gone),
                };
            }
            if ended {
                return Err(Silence::Gone);
            }
        }
    }
}

/// A worker that a zygote forked.
struct Forked {
    pid: Pid,
    pidfd: OwnedFd,
    zygote: Arc<Zygote>,
    ended: Option<Ended>,
}

impl Process for Forked {
    fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    fn end(&mut self) -> Ended {
        *self.ended.get_or_insert_with(|| {
            if self.zygote.has_ended() {
                // The kernel killed the worker with it, and may have given its pid away.
                let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
                return Ended::Unknown;
            }
            kill_group(self.pid);
            self.zygote.reap(self.pid)
        })
    }
}
