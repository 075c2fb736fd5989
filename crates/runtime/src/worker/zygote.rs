//! A Python interpreter that has imported a function's module, and forks workers from there.
//!
//! Starting Python and importing a module takes 20 ms to seconds, a fork 1 ms. The zygote forks a worker on request and reaps it on
//! request. It runs the function's imports, so it is not trusted: the kernel identifies a worker, as the sender of a channel's first bytes,
//! and a worker is killed through its pidfd. The process id that a zygote reports is used only in the request to reap, and in reports.
//!
//! An answer can be assigned to the last request only if every request before was answered. So a zygote with an unanswered request gets no
//! further requests: it stays alive for its workers, and new workers are forked from another zygote.

use super::python::PythonSpec;
use crate::{
    Code, Error, Limits, Result,
    child::{self, Ended, Process, Scratch, kill_group, read_some, readable},
    output::{Output, tail},
    sandbox::{Room, Starting},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType},
};
use std::{
    io::{IoSlice, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The worker's source goes through a pipe, which holds 64 KiB: its parts, with zero bytes between them, the worker itself last.
const WORKER: &str = concat!(
    include_str!("../../../../sdk/python/millrace/_errors/__init__.py"),
    "\0",
    include_str!("../../../../sdk/python/millrace/_errors/_explain.py"),
    "\0",
    include_str!("../../../../sdk/python/millrace/_work/__init__.py"),
    "\0",
    include_str!("../../../../sdk/python/millrace/_work/_channel.py"),
    "\0",
    include_str!("../../../../sdk/python/millrace/_work/_streams.py"),
    "\0",
    include_str!("../../../../sdk/python/millrace/_work/_tables.py"),
    "\0",
    include_str!("../../../../sdk/python/millrace/_worker.py")
);
const _: () = assert!(WORKER.len() < 63 << 10);

/// Python puts the working directory first in its path, where a function's files could hide the standard library's.
const BOOT: &str = "import sys\n\
    if sys.path[:1] == ['']: del sys.path[0]\n\
    import types\n\
    names = '_errors _errors/_explain _work _work/_channel _work/_streams _work/_tables _worker'.split()\n\
    for name, source in zip(names, sys.stdin.read().split('\\0')):\n\
    \x20   full = 'millrace.' + name.replace('/', '.')\n\
    \x20   part = sys.modules[full] = types.ModuleType(full)\n\
    \x20   part.__file__ = f'millrace/{name}.py'\n\
    \x20   exec(compile(source, part.__file__, 'exec'), part.__dict__)\n\
    part.main(sys.argv[1:])\n";

/// A request to a zygote: to fork a worker, whose working directory follows, or to reap the one with the pid that follows.
const FORK: u8 = b'F';
const REAP: u8 = b'R';
/// How long a fork or a reaping may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// An import that takes longer is reported to the caller of [`Zygote::start`] while it is in progress.
const SLOW_AFTER: Duration = Duration::from_secs(3);
/// How often the pipe of an interpreter that ended is read, at most: a read takes what a pipe holds.
const LAST_READS_MAX: usize = 2;
/// The longest message of a zygote.
const MESSAGE_MAX_BYTES: usize = 32 << 10;

pub(super) struct Zygote {
    /// Locked for one request and its answer.
    conversation: Mutex<Conversation>,
}

struct Conversation {
    child: Box<dyn Process>,
    control: OwnedFd,
    /// How long a request may go unanswered.
    answer_max: Duration,
    /// Whether a request is unanswered.
    owes: bool,
    /// Where it runs, unless that is where its code is. It goes after the child.
    _scratch: Option<Scratch>,
}

impl Zygote {
    /// Starts the interpreter and waits until it has imported the handler's module.
    ///
    /// `slow` is called once if that takes longer than [`SLOW_AFTER`].
    pub(super) fn start(
        spec: &PythonSpec,
        limits: &Limits,
        room: &Room,
        within: Duration,
        slow: &mut dyn FnMut(Duration),
    ) -> Result<Arc<Self>> {
        let (control, theirs) = child::channel(SocketType::SEQPACKET)?;
        let (printed, print) = child::output_pipe()?;
        let scratch = room.scratch(spec.scratch.as_deref(), &spec.dir)?;
        let runs_in = scratch.as_ref().map_or(&*spec.dir, Scratch::path);
        let child = launch(spec, limits, room, runs_in, print, theirs)?;
        let mut conversation = Conversation { child, control, answer_max: ANSWER_MAX, owes: false, _scratch: scratch };
        let mut output = Output::new(16 << 10);
        let began = Instant::now();
        let mut answer = conversation.answer(began + within.min(SLOW_AFTER), Some((&printed, &mut output)));
        if matches!(answer, Err(Silence::Timeout)) && within > SLOW_AFTER {
            slow(within);
            answer = conversation.answer(began + within, Some((&printed, &mut output)));
        }
        let last = |output: &Output| match tail(&output.last()) {
            printed if printed.is_empty() => String::new(),
            printed => format!("; it printed last:\n{printed}"),
        };
        match answer {
            Ok(answer) => match answer.split_first_chunk() {
                Some((code, [])) if *code == [0; 4] => Ok(Arc::new(Self { conversation: Mutex::new(conversation) })),
                Some((code, message)) => {
                    let error = super::run::stated(u32::from_le_bytes(*code), message, Code::PythonUnusable);
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
                // What is left in the pipe, unless another process goes on printing.
                for _ in 0..LAST_READS_MAX {
                    if !read_some(&printed, |bytes| output.push(bytes)) || !readable(printed.as_fd(), Duration::ZERO) {
                        break;
                    }
                }
                let code = if ended == Ended::Exited(1) { Code::PythonUnusable } else { Code::PythonImport };
                Err(code.error(format!("the interpreter {ended} while it imported '{}'{}", spec.module, last(&output))))
            }
        }
    }

    /// Forks a worker with these ends of a named channel and of a pipe, which runs in `dir`, or where the zygote does; waits
    /// until it speaks.
    pub(super) fn fork(
        self: &Arc<Self>,
        (ours, theirs): (&OwnedFd, OwnedFd),
        print: OwnedFd,
        dir: Option<&Path>,
        within: Duration,
    ) -> Result<Box<dyn Process>> {
        let failed = |what: &str| Code::SpawnFailed.error(format!("the Python zygote {what}"));
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = dir.map_or(&[][..], |dir| dir.as_os_str().as_bytes());
        let forked = conversation.ask(FORK, dir, &[theirs.as_fd(), print.as_fd()]);
        // Those are the worker's now: when it ends, the channel does.
        drop((theirs, print));
        let name = forked.ok_or_else(|| failed("did not fork"))?;
        let spoke = readable(ours.as_fd(), within);
        let pidfd = child::sender(ours).and_then(|pid| child::child_of(conversation.child.pidfd(), pid));
        match pidfd {
            Some(pidfd) => Ok(Box::new(Forked { name, pidfd, zygote: Arc::clone(self), ended: None })),
            None if spoke => Err(failed("forked a worker that ended or does not exist")),
            None => Err(failed("forked a worker that sends nothing")),
        }
    }

    /// Reaps a worker that was sent SIGKILL, by the zygote's name for it.
    fn reap(&self, name: i32) -> Ended {
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        match conversation.ask(REAP, &name.to_le_bytes(), &[]) {
            Some(status) if status >= 0 => Ended::from_wait_status(status),
            _ => Ended::Unknown,
        }
    }

    fn has_ended(&self) -> bool {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner).has_ended()
    }
}

fn launch(
    spec: &PythonSpec,
    limits: &Limits,
    room: &Room,
    runs_in: &Path,
    print: OwnedFd,
    control: OwnedFd,
) -> Result<Box<dyn Process>> {
    let python = room.program(&spec.python, &spec.dir).map_err(|e| Code::PythonUnusable.error(e.detail()))?;
    let dir = std::path::absolute(room.code(&spec.dir))
        .map_err(|e| Code::CodeUnreadable.error(format!("'{}': {e}", spec.dir.display())))?;
    let shown = dir.to_str().ok_or_else(|| Code::CodeUnreadable.error(format!("'{}' is not UTF-8", dir.display())))?;
    let mut arguments: Vec<String> = ["-B", "-X", "utf8", "-c", BOOT, shown].map(str::to_owned).to_vec();
    arguments.extend([spec.module.clone(), spec.function.clone()]);
    let (source, mut feed) =
        std::io::pipe().map_err(|e| Code::SpawnFailed.error(format!("cannot open a pipe: {e}")))?;
    feed.write_all(WORKER.as_bytes()).map_err(|e| Code::SpawnFailed.error(format!("cannot fill a pipe: {e}")))?;
    drop(feed);
    let starting = Starting {
        program: python,
        arguments,
        environment: room.environment(&spec.env),
        dir: runs_in.to_owned(),
        descriptors: [source.into(), child::copy(&print)?, print, control],
        memory_max_bytes: limits.memory_max_bytes,
    };
    room.start(starting, false).map_err(|error: Error| match error.code() {
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
    /// Sends a request and returns the number in the answer. `None` if there is no answer; then no more requests are sent.
    fn ask(&mut self, request: u8, what: &[u8], fds: &[BorrowedFd<'_>]) -> Option<i32> {
        if std::mem::replace(&mut self.owes, true) {
            return None;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let request = [request];
        let request = [IoSlice::new(&request), IoSlice::new(what)];
        rustix::net::sendmsg(&self.control, &request, &mut ancillary, flags).ok()?;
        let answer = self.answer(Instant::now() + self.answer_max, None).ok()?;
        let answer = i32::from_le_bytes(answer.try_into().ok()?);
        self.owes = false;
        Some(answer)
    }

    fn has_ended(&self) -> bool {
        readable(self.child.pidfd(), Duration::ZERO)
    }

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
    /// The pid by the zygote, correct if the zygote is honest.
    name: i32,
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
            kill_group(self.pidfd.as_fd());
            if self.zygote.has_ended() { Ended::Unknown } else { self.zygote.reap(self.name) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{Child, Environment, Plan};
    use rustix::process::test_kill_process;
    use std::{collections::BTreeMap, thread};

    /// A process that does nothing until it is ended.
    fn sleeper() -> Child {
        let (null, dir) = (child::null().unwrap(), std::env::temp_dir());
        let program = child::program(Path::new("sleep"), &dir).unwrap();
        let environment = Environment::new(&BTreeMap::new());
        child::on_keeper(move || {
            child::spawn(&Plan {
                program: &program,
                arguments: &["600".to_owned()],
                environment: &environment,
                dir: &dir,
                descriptors: [null.as_fd(); 4],
                memory_max_bytes: 256 << 20,
            })
        })
        .unwrap()
    }

    #[test]
    fn an_answer_that_comes_too_late_answers_no_other_request() {
        let (control, theirs) = child::channel(SocketType::SEQPACKET).unwrap();
        let answer_max = Duration::from_millis(1);
        let conversation =
            Conversation { child: Box::new(sleeper()), control, answer_max, owes: false, _scratch: None };
        let zygote = Arc::new(Zygote { conversation: Mutex::new(conversation) });
        // It is asked to reap a worker, and answers after its caller has given up: with the pid of another worker.
        let mut bystander = sleeper();
        let pid = child::pid_of(bystander.pidfd()).unwrap();
        assert_eq!(zygote.reap(pid.as_raw_nonzero().get()), Ended::Unknown);
        let late = pid.as_raw_nonzero().get().to_le_bytes();
        rustix::net::send(&theirs, &late, SendFlags::empty()).unwrap();
        zygote.conversation.lock().unwrap().answer_max = Duration::from_secs(60);
        let (ours, theirs_too) = child::named_channel().unwrap();
        let (_printed, print) = child::output_pipe().unwrap();
        thread::scope(|scope| {
            // What it would be asked now it answers well, as far as it is asked.
            let server = scope.spawn(|| {
                let mut request = [0; 64];
                while let Ok((1.., _)) = rustix::net::recv(&theirs, &mut request[..], RecvFlags::empty()) {
                    if rustix::net::send(&theirs, &late, SendFlags::NOSIGNAL).is_err() {
                        break;
                    }
                }
            });
            assert!(
                zygote.fork((&ours, theirs_too), print, None, Duration::ZERO).is_err(),
                "the late answer was taken for a fork"
            );
            drop(zygote);
            server.join().unwrap();
        });
        test_kill_process(pid).expect("nobody ended the bystander");
        bystander.end();
    }
}
