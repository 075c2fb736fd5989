//! The host's end of a sandbox: requests to its supervisor, and the processes that it started.

mod orphans;

pub(crate) use self::orphans::Batch;
use self::orphans::Runs;
use super::{
    SUPERVISOR,
    cgroup::{Cgroup, Most},
    files,
    level::{Executable, Isolation, Level, Networked},
    message::{Answer, PACKET_MAX_BYTES, Plan, Request, Start},
    program::{self, Found},
};
use crate::{
    Code, Error, Limits, Result,
    child::{self, Child, Ended, Environment, Process, Scratch, kill_group, readable},
    secrets::{self, Secrets},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketType,
    },
    process::Pid,
};
use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How long the supervisor may take over one request.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a sandbox may take to end by itself before it is killed.
const ENDING: Duration = Duration::from_secs(1);
/// Memory of a sandbox besides its workers': what is in its temporary files.
const TEMPORARY_BYTES: u64 = 128 << 20;
/// How long an interpreter may take to say where its library is, and how much it may say and use for that.
const ASKED_MAX: Duration = Duration::from_secs(30);
const ASKED_MAX_BYTES: usize = 16 << 10;
const ASKED_MEMORY_BYTES: u64 = 512 << 20;
/// Where programs are searched for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A function that is to have a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxSpec {
    /// The directory of its code.
    pub code: PathBuf,
    /// The parent of working directories if the sandbox has no root directory of its own.
    pub scratch: PathBuf,
    /// Its program, as in [`crate::ProcessSpec::command`] or [`crate::PythonSpec::python`].
    pub program: PathBuf,
    /// Whether that is a Python interpreter.
    pub is_python: bool,
    /// It may use the host's network.
    pub network: bool,
    /// How many workers it may have at once.
    pub workers: u32,
    /// The limits of each of them.
    pub limits: Limits,
    /// How many processors all of them may use at once, if that is limited.
    pub processors_max: Option<u32>,
    /// Additional visible files.
    pub secrets: Arc<Secrets>,
}

/// The sandbox of one function, made when it is needed.
pub struct Sandbox {
    isolation: Arc<Isolation>,
    spec: SandboxSpec,
    entered: Mutex<Option<Entered>>,
    runs: Mutex<Runs>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Sandbox {
    pub(super) fn new(isolation: Arc<Isolation>, spec: SandboxSpec) -> Self {
        Self { isolation, spec, entered: Mutex::new(None), runs: Mutex::default() }
    }

    /// Finds the function's program, without starting it; an error if it cannot be used in a sandbox.
    pub fn check_program(&self) -> Result<()> {
        self.find(&self.code()?).map(drop)
    }

    fn code(&self) -> Result<PathBuf> {
        std::path::absolute(&self.spec.code)
            .and_then(|code| code.metadata().map(|_| code))
            .map_err(|e| Code::CodeUnreadable.error(format!("'{}': {e}", self.spec.code.display())))
    }

    fn find(&self, code: &Path) -> Result<Found> {
        let ask = |found: &Found, arguments: &[&str]| self.ask(found, arguments);
        program::find(&self.spec.program, code, self.spec.is_python, &ask)
    }

    /// What a program prints that sees these files, and no code.
    fn ask(&self, found: &Found, arguments: &[&str]) -> Result<String> {
        let plan = Plan {
            namespaces: self.isolation.namespaces,
            code: "/usr".into(),
            work: self.work(),
            shown: found.shown.clone(),
            links: found.links.clone(),
            ..Plan::default()
        };
        let cgroup = Cgroup::new(Most { memory: ASKED_MEMORY_BYTES, processors: Some(1) }).ok();
        let bounds = Bounds { cgroup, _networked: None };
        let running = Arc::new(Running::start(self.isolation.supervisor(), &plan, bounds, &Secrets::default())?);
        let (printed, print) = child::output_pipe()?;
        let home = running.work.clone().unwrap_or_else(|| "/tmp".into());
        let starting = Starting {
            program: found.program.clone(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            environment: Environment::fixed(&BTreeMap::new(), &home, PATH),
            dir: home,
            descriptors: [child::null()?, print, child::null()?, child::null()?],
            memory_max_bytes: ASKED_MEMORY_BYTES,
        };
        let mut process = running.start_process(&starting)?;
        drop(starting);
        let (mut said, deadline) = (Vec::new(), Instant::now() + ASKED_MAX);
        while said.len() < ASKED_MAX_BYTES {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || !readable(printed.as_fd(), left) {
                let seconds = ASKED_MAX.as_secs();
                return Err(Code::SpawnFailed.error(format!("it did not answer within {seconds} s")));
            }
            if !child::read_some(&printed, |bytes| said.extend_from_slice(bytes)) {
                break;
            }
        }
        match process.end() {
            // It may have been killed here, after it had said all.
            Ended::Exited(0) | Ended::Killed(_) if !said.is_empty() => Ok(String::from_utf8_lossy(&said).into_owned()),
            ended => Err(Code::SpawnFailed.error(format!("it {ended}"))),
        }
    }

    fn work(&self) -> PathBuf {
        std::path::absolute(&self.spec.scratch).unwrap_or_else(|_| self.spec.scratch.clone())
    }

    /// Runs begin that have ended when this is dropped.
    pub(crate) fn batch(self: &Arc<Self>) -> Batch {
        Batch::new(self.clone())
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox, if it runs.
    pub(super) fn running(&self) -> Option<Arc<Running>> {
        let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        entered.as_ref().map(|entered| entered.running.clone())
    }

    /// The sandbox as it runs; a new one if it ended.
    fn enter(&self) -> Result<Entered> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = entered.as_ref().filter(|entered| !entered.running.has_ended()) {
            return Ok(there.clone());
        }
        let spec = &self.spec;
        let code = self.code()?;
        let found = self.find(&code)?;
        let plan = Plan {
            namespaces: self.isolation.namespaces,
            network: spec.network,
            without: self.isolation.without,
            code: code.clone(),
            work: self.work(),
            shown: found.shown.clone(),
            links: found.links.clone(),
        };
        let memory = spec.limits.memory_max_bytes;
        let memory = memory.saturating_mul(u64::from(spec.workers) + 1).saturating_add(TEMPORARY_BYTES);
        let bounded = super::Defence::Memory.stands(self.isolation.without);
        let most = Most { memory, processors: spec.processors_max };
        let cgroup = match bounded.then(|| Cgroup::new(most)) {
            None => None,
            Some(Ok(cgroup)) => Some(cgroup),
            // If the host has no cgroups, the level reports it; if it has, a function is not started without one.
            Some(Err(_)) if self.isolation.level() < Level::Full => None,
            Some(Err(why)) => return Err(Code::SpawnFailed.error(format!("the limits of a sandbox: {why}"))),
        };
        // Before any process of it can connect to anything.
        let networked = spec.network.then(|| self.isolation.networked());
        let bounds = Bounds { cgroup, _networked: networked };
        let running = Running::start(self.isolation.supervisor(), &plan, bounds, &spec.secrets)?;
        let inside = if plan.namespaces { PathBuf::from(files::CODE) } else { code.clone() };
        let secrets = (!spec.secrets.is_empty()).then(|| files::secrets(running.work.as_deref()));
        Ok(entered.insert(Entered { running: Arc::new(running), found, code, inside, secrets }).clone())
    }
}

/// Where a function's processes are started: on the host, or in its sandbox.
pub(crate) enum Room {
    Host,
    Inside(Entered),
}

/// A sandbox that runs.
#[derive(Clone)]
pub(crate) struct Entered {
    running: Arc<Running>,
    found: Found,
    /// Where its code is, for the host and for itself.
    code: PathBuf,
    inside: PathBuf,
    /// Where its secrets are, if it has any.
    secrets: Option<PathBuf>,
}

/// A process that is to be started.
pub(crate) struct Starting {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Environment,
    pub(crate) dir: PathBuf,
    pub(crate) descriptors: [OwnedFd; 4],
    pub(crate) memory_max_bytes: u64,
}

impl Room {
    pub(crate) fn of(sandbox: Option<&Arc<Sandbox>>) -> Result<Self> {
        sandbox.map_or(Ok(Self::Host), |sandbox| sandbox.enter().map(Self::Inside))
    }

    /// The file of the program that `name` means.
    pub(crate) fn program(&self, name: &Path, dir: &Path) -> Result<PathBuf> {
        match self {
            Self::Host => child::program(name, dir),
            Self::Inside(entered) => {
                // As it is found now: code may have been removed since the sandbox was made.
                let is_own = entered.found.program.starts_with(&entered.code);
                let program = if is_own { child::program(name, &entered.code)? } else { entered.found.program.clone() };
                Ok(program.strip_prefix(&entered.code).map_or(program.clone(), |below| entered.inside.join(below)))
            }
        }
    }

    /// The location of the code.
    pub(crate) fn code(&self, dir: &Path) -> PathBuf {
        match self {
            Self::Host => dir.to_owned(),
            Self::Inside(entered) => entered.inside.clone(),
        }
    }

    pub(crate) fn environment(&self, own: &BTreeMap<String, String>) -> Environment {
        match self {
            Self::Host => Environment::new(own),
            Self::Inside(entered) => {
                let home = entered.running.work.as_deref().unwrap_or(Path::new("/tmp"));
                let found = &entered.found;
                let is_own = found.shown.is_empty() && found.links.is_empty();
                let bin = found.program.parent().filter(|_| !is_own);
                let path = bin.map_or(PATH.to_owned(), |bin| format!("{}:{PATH}", bin.display()));
                let mut environment = Environment::fixed(own, home, &path);
                if let Some(secrets) = &entered.secrets {
                    environment.set(secrets::VARIABLE, secrets);
                }
                environment
            }
        }
    }

    /// A working directory for one process. On the host there is one only if there is a place for it.
    pub(crate) fn scratch(&self, base: Option<&Path>, code: &Path) -> Result<Option<Scratch>> {
        match self {
            Self::Host => base.map(|base| Scratch::new(base, code)).transpose(),
            Self::Inside(entered) => {
                let running = &entered.running;
                let (number, path, _) =
                    running.ask(&Request::Directory, &[]).map_err(|fault| fault.reported("", Path::new("")))?;
                let running = Arc::clone(running);
                let remove = move || drop(running.ask(&Request::Remove(number), &[]));
                Ok(Some(Scratch::removed_by(path, remove)))
            }
        }
    }

    /// Starts a process. `briefly`: it does not outlive this thread, which waits for it.
    pub(crate) fn start(&self, starting: Starting, briefly: bool) -> Result<Box<dyn Process>> {
        match self {
            Self::Host => {
                let spawn = move || {
                    child::spawn(&child::Plan {
                        program: &starting.program,
                        arguments: &starting.arguments,
                        environment: &starting.environment,
                        dir: &starting.dir,
                        descriptors: starting.descriptors.each_ref().map(OwnedFd::as_fd),
                        memory_max_bytes: starting.memory_max_bytes,
                    })
                };
                let child = if briefly { spawn() } else { child::on_keeper(spawn) }?;
                Ok(Box::new(child))
            }
            Self::Inside(entered) => entered.running.start_process(&starting),
        }
    }
}

/// A supervisor, and the conversation with it.
pub(super) struct Running {
    conversation: Mutex<Conversation>,
    /// The directory of its working directories, if it has no root directory of its own. Otherwise it has processes of its own, too.
    work: Option<PathBuf>,
    /// Last: until then its processes have ended.
    bounds: Bounds,
}

/// The cgroups of a sandbox, for as long as it runs.
#[derive(Default)]
pub(super) struct Bounds {
    cgroup: Option<Cgroup>,
    _networked: Option<Networked>,
}

struct Conversation {
    supervisor: Child,
    /// None after a missing answer: then no more requests are sent.
    control: Option<OwnedFd>,
    /// The processes that the host has started and not ended, by their pids.
    started: BTreeMap<u32, Pid>,
}

/// Why a request was not done.
pub(super) enum Fault {
    Failed { step: String, errno: i32 },
    Silent(&'static str),
}

impl Fault {
    /// As an error, of a program that was to run in a directory.
    fn reported(&self, program: &str, dir: &Path) -> Error {
        match self {
            Self::Failed { step, errno } => child::refusal(Path::new(program), dir, step, *errno),
            Self::Silent(what) => Code::SpawnFailed.error(format!("the sandbox's supervisor {what}")),
        }
    }
}

impl Running {
    /// Makes a sandbox, and waits until it exists.
    pub(super) fn start(supervisor: &Executable, plan: &Plan, bounds: Bounds, secrets: &Secrets) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut plan = plan.clone();
        let mut work = None;
        if !plan.namespaces {
            plan.work.push(format!("sandbox-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&plan.work);
            made.map_err(|e| Code::SpawnFailed.error(format!("cannot make '{}': {e}", plan.work.display())))?;
            work = Some(plan.work.clone());
        }
        let (control, theirs) = child::channel(SocketType::SEQPACKET)?;
        let null = child::null()?;
        let Executable { program, mut arguments } = supervisor.clone();
        arguments.push(SUPERVISOR.to_owned());
        let child = child::on_keeper(move || {
            child::spawn(&child::Plan {
                program: &program,
                arguments: &arguments,
                environment: &Environment::empty(),
                dir: Path::new("/"),
                descriptors: [null.as_fd(), null.as_fd(), null.as_fd(), theirs.as_fd()],
                memory_max_bytes: u64::MAX,
            })
        })?;
        if let (Some(cgroup), Some(pid)) = (&bounds.cgroup, child::pid_of(child.pidfd())) {
            let taken = cgroup.take(pid.as_raw_nonzero().get().unsigned_abs());
            taken.map_err(|why| Code::SpawnFailed.error(format!("the limits of a sandbox: {why}")))?;
        }
        let conversation =
            Mutex::new(Conversation { supervisor: child, control: Some(control), started: BTreeMap::new() });
        let running = Self { conversation, work, bounds };
        let secrets = secrets.hand_over()?;
        match running.exchange(&plan.encode(), &[secrets.as_fd()]) {
            Ok(_) => Ok(running),
            Err(Fault::Failed { step, errno }) => {
                let reason = std::io::Error::from_raw_os_error(errno);
                Err(Code::SpawnFailed.error(format!("cannot make a sandbox: {step}: {reason}")))
            }
            Err(fault) => Err(fault.reported("", Path::new(""))),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        let conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        conversation.control.is_none() || readable(conversation.supervisor.pidfd(), Duration::ZERO)
    }

    fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(u32, PathBuf, Option<OwnedFd>), Fault> {
        self.exchange(&request.encode(), fds)
    }

    fn exchange(&self, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(u32, PathBuf, Option<OwnedFd>), Fault> {
        if packet.len() > PACKET_MAX_BYTES {
            return Err(Fault::Failed { step: "hand over arguments and variables".into(), errno: libc::E2BIG });
        }
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(control) = conversation.control.take() else { return Err(Fault::Silent("no longer answers")) };
        send(&control, packet, fds).map_err(|_| Fault::Silent("ended"))?;
        let (answer, fd) = receive(&control, conversation.supervisor.pidfd()).map_err(Fault::Silent)?;
        let answer = Answer::decode(&answer).map_err(|_| Fault::Silent("sent an invalid answer"))?;
        // It was answered, so that the next answer belongs to the next request.
        conversation.control = Some(control);
        match answer {
            Answer::Done { number, path } => {
                if let Some(pid) = fd.as_ref().and_then(|pidfd| child::pid_of(pidfd.as_fd())) {
                    conversation.started.insert(number, pid);
                }
                Ok((number, path, fd))
            }
            Answer::Failed { step, errno } => Err(Fault::Failed { step, errno }),
        }
    }

    /// Calls `look` with the processes in the sandbox, its supervisor, and those that the host has started. Meanwhile none is started.
    pub(super) fn look<T>(&self, look: impl FnOnce(&[i32], Pid, &dyn Fn(Pid) -> bool) -> T) -> Option<T> {
        let cgroup = self.bounds.cgroup.as_ref()?;
        let conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        let supervisor = child::pid_of(conversation.supervisor.pidfd())?;
        let is_started = |pid: Pid| conversation.started.values().any(|started| *started == pid);
        Some(look(&cgroup.members(), supervisor, &is_started))
    }

    /// Whether it has a PID namespace, with a first process.
    pub(super) fn has_first(&self) -> bool {
        self.work.is_none()
    }

    /// Ends it with all processes in it.
    pub(super) fn kill(&self) {
        let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
        conversation.control = None;
        conversation.supervisor.end();
    }

    fn start_process(self: &Arc<Self>, starting: &Starting) -> Result<Box<dyn Process>> {
        let request = Request::Start(Start {
            program: starting.program.clone(),
            arguments: starting.arguments.iter().map(Into::into).collect(),
            environment: starting.environment.pairs(),
            dir: starting.dir.clone(),
            memory_max_bytes: starting.memory_max_bytes,
        });
        let reported = |fault: Fault| fault.reported(&starting.program.to_string_lossy(), &starting.dir);
        let fds = starting.descriptors.each_ref().map(OwnedFd::as_fd);
        let (number, _, pidfd) = self.ask(&request, &fds).map_err(reported)?;
        let pidfd = pidfd.ok_or_else(|| reported(Fault::Silent("did not send the descriptor of a process")))?;
        Ok(Box::new(SandboxedProcess { number, pidfd, running: Arc::clone(self), ended: None }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let conversation = self.conversation.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It ends when its channel does, after all that is in it.
        conversation.control = None;
        readable(conversation.supervisor.pidfd(), ENDING);
        conversation.supervisor.end();
        if let Some(work) = &self.work {
            // Files that cannot be removed now are removed when the next host starts.
            let _ = fs::remove_dir_all(work);
        }
    }
}

fn send(control: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(control, &[IoSlice::new(packet)], &mut ancillary, flags).map(drop)
}

fn receive(control: &OwnedFd, supervisor: BorrowedFd<'_>) -> Result<(Vec<u8>, Option<OwnedFd>), &'static str> {
    let deadline = Instant::now() + ANSWER_MAX;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("does not answer");
        }
        let mut fds = [control.as_fd(), supervisor].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted sleep is one more turn of the loop.
        let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        let [control_ready, ended] = fds.map(|fd| !fd.revents().is_empty());
        if control_ready {
            let mut packet = vec![0; PACKET_MAX_BYTES];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags);
            let bytes = received.map_err(|_| "ended")?.bytes;
            if bytes == 0 {
                return Err("ended");
            }
            packet.truncate(bytes);
            let fd = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            return Ok((packet, fd));
        }
        if ended {
            return Err("ended");
        }
    }
}

/// A process in a sandbox.
struct SandboxedProcess {
    number: u32,
    pidfd: OwnedFd,
    running: Arc<Running>,
    ended: Option<Ended>,
}

impl Process for SandboxedProcess {
    fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    fn end(&mut self) -> Ended {
        *self.ended.get_or_insert_with(|| {
            kill_group(self.pidfd.as_fd());
            let ended = match self.running.ask(&Request::End(self.number), &[]) {
                Ok((status, ..)) if status.cast_signed() >= 0 => Ended::from_wait_status(status.cast_signed()),
                _ => Ended::Unknown,
            };
            self.running.conversation.lock().unwrap_or_else(PoisonError::into_inner).started.remove(&self.number);
            ended
        })
    }
}

impl Drop for SandboxedProcess {
    fn drop(&mut self) {
        self.end();
    }
}
