//! `millrace __sandbox`: creates one sandbox, starts processes in it, and reaps them, until the host ends it.
//!
//! ```text
//! host --exec--> outer: namespaces --fork--> init (pid 1): root directory, identity --fork--> a function's processes
//! ```
//!
//! It is a separate program without the host's threads, keys or mappings, so a function cannot find any of them in it. It ends with the
//! host, and all processes of the sandbox end with it. The functions' processes can neither trace nor signal it, and it accepts requests
//! from its channel only.

use super::{
    confine,
    defence::Defence,
    files,
    message::{Answer, PACKET_MAX_BYTES, Plan, Request, Start},
    system,
};
use crate::{child::mirror, secrets::Secrets};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
    process::{
        DumpableBehavior, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, set_parent_process_death_signal,
    },
    thread::UnshareFlags,
};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::DirBuilderExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The first user id of functions on a host that runs as root; each sandbox has the one of its supervisor's pid above it.
const FIRST_UID: u32 = 0x7000_0000;
/// The id of the user in the user namespace of a sandbox.
const INNER_UID: u32 = 1000;
/// The most processes that a host may have started and not ended.
const CHILDREN_MAX: usize = 4096;

/// A failed step and its error.
#[derive(Debug)]
pub(super) struct Refused {
    step: String,
    errno: i32,
}

pub(super) type Attempt<T> = Result<T, Refused>;

/// Names the step that failed.
pub(super) trait Step<T> {
    fn step(self, name: &str) -> Attempt<T>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, name: &str) -> Attempt<T> {
        self.map_err(|errno| Refused { step: name.to_owned(), errno: errno.raw_os_error() })
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, name: &str) -> Attempt<T> {
        self.map_err(|error| Refused { step: name.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }
}

pub(super) fn refused(step: &str) -> Refused {
    Refused { step: step.to_owned(), errno: libc::EINVAL }
}

pub(super) fn missing(path: &Path) -> Refused {
    Refused { step: format!("show '{}'", path.display()), errno: libc::ENOENT }
}

/// The whole life of the process: its descriptor 3 is the channel to the host.
pub fn supervise() -> ExitCode {
    let Ok(control) = system::inherited(3) else { return ExitCode::FAILURE };
    let made = receive(&control).and_then(|(packet, mut fds)| {
        let plan = Plan::decode(&packet).map_err(|_| refused("read the plan"))?;
        let secrets = fds.pop().ok_or_else(|| refused("receive secrets"))?;
        enter(&plan, secrets).map(|inside| (plan, inside))
    });
    let (plan, inside) = match made {
        Ok(made) => made,
        Err(error) => {
            let _ = answer(&control, &failed(error), None);
            return ExitCode::FAILURE;
        }
    };
    if let Inside::Waits(init) = inside {
        drop(control);
        // Its end is that of all processes in the namespace.
        while matches!(rustix::process::waitpid(Some(init), WaitOptions::empty()), Err(Errno::INTR)) {}
        return ExitCode::SUCCESS;
    }
    let ready = settle(&plan).and_then(|()| system::child_signals().step("signalfd"));
    let signals = match ready {
        Ok(signals) => signals,
        Err(error) => {
            let _ = answer(&control, &failed(error), None);
            return ExitCode::FAILURE;
        }
    };
    let landlock = system::landlock_version();
    if answer(&control, &Answer::Done { number: landlock, path: PathBuf::new() }, None).is_ok() {
        Supervisor { plan, control, signals, children: BTreeMap::new(), dirs: BTreeMap::new(), last: 0 }.serve();
    }
    ExitCode::SUCCESS
}

/// Which of the two processes this is.
enum Inside {
    /// The one that stays outside the PID namespace, and waits for this one.
    Waits(Pid),
    /// The one that starts processes.
    Starts,
}

/// Makes the namespaces, and the process that is the first in them.
fn enter(plan: &Plan, secrets: OwnedFd) -> Attempt<Inside> {
    let take_over = |secrets| Secrets::take_over(secrets).step("read secrets");
    if !plan.namespaces {
        let secrets = take_over(secrets)?;
        if !secrets.is_empty() {
            let dir = files::secrets(Some(&plan.work));
            let made = fs::DirBuilder::new().mode(0o700).create(&dir);
            made.and_then(|()| secrets.write_to(&dir, None)).step("write secrets")?;
        }
        // Processes that lose their parent are this one's to reap.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).step("become a subreaper")?;
        return Ok(Inside::Starts);
    }
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut spaces = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    if Defence::Processes.stands(plan.without) {
        spaces |= UnshareFlags::NEWPID;
    }
    if !plan.network && Defence::Network.stands(plan.without) {
        spaces |= UnshareFlags::NEWNET;
    }
    if !uid.is_root() {
        spaces |= UnshareFlags::NEWUSER;
    }
    system::unshare(spaces.bits()).step("make namespaces")?;
    if !uid.is_root() {
        let map = |id: u32| format!("{INNER_UID} {id} 1");
        fs::write("/proc/self/setgroups", "deny").step("write setgroups")?;
        fs::write("/proc/self/uid_map", map(uid.as_raw())).step("write uid_map")?;
        fs::write("/proc/self/gid_map", map(gid.as_raw())).step("write gid_map")?;
    }
    die_with_parent()?;
    let outer = rustix::process::getpid();
    let own = FIRST_UID.checked_add(outer.as_raw_nonzero().get().unsigned_abs()).filter(|_| uid.is_root());
    match system::fork().step("fork")? {
        Some(init) => Ok(Inside::Waits(init)),
        None => {
            die_with_parent()?;
            let own = own.filter(|_| Defence::Identity.stands(plan.without));
            // Read here only: the other process holds none of them.
            files::change_root(plan, &take_over(secrets)?, own)?;
            let _ = system::name_host("sandbox");
            if let Some(own) = own {
                become_user(own)?;
            }
            Ok(Inside::Starts)
        }
    }
}

fn die_with_parent() -> Attempt<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("request to end with the host")
}

fn become_user(id: u32) -> Attempt<()> {
    let (uid, gid) = (rustix::process::Uid::from_raw(id), rustix::process::Gid::from_raw(id));
    rustix::thread::set_thread_groups(&[]).step("drop groups")?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("change the group")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("change the user")
}

/// The rights that the starting process drops itself.
fn settle(plan: &Plan) -> Attempt<()> {
    if plan.namespaces && Defence::Identity.stands(plan.without) {
        confine::drop_capabilities()?;
    }
    // A change of identity forgot it.
    die_with_parent()?;
    // Processes of the sandbox have its user id; this keeps them from its memory and descriptors.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("become undumpable")
}

fn failed(error: Refused) -> Answer {
    Answer::Failed { step: error.step, errno: error.errno }
}

/// Receives one packet of the host's.
fn receive(control: &OwnedFd) -> Attempt<(Vec<u8>, Vec<OwnedFd>)> {
    let mut packet = vec![0; PACKET_MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags);
    let received = received.step("receive")?;
    packet.truncate(received.bytes);
    let fds = ancillary
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
            _ => Vec::new(),
        })
        .collect();
    Ok((packet, fds))
}

fn answer(control: &OwnedFd, answer: &Answer, fd: Option<BorrowedFd<'_>>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    rustix::net::sendmsg(control, &[IoSlice::new(&answer.encode())], &mut ancillary, SendFlags::NOSIGNAL)
}

struct Supervisor {
    plan: Plan,
    control: OwnedFd,
    signals: OwnedFd,
    /// The processes that the host started, by number: the pid until it is reaped, then its exit status.
    children: BTreeMap<u32, Result<Pid, i32>>,
    dirs: BTreeMap<u32, PathBuf>,
    last: u32,
}

impl Supervisor {
    fn serve(mut self) {
        loop {
            let mut fds =
                [self.control.as_fd(), self.signals.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, None);
            let [control, signals] = fds.map(|fd| !fd.revents().is_empty());
            if signals {
                self.reap();
            }
            if !control {
                continue;
            }
            let Ok((packet, fds)) = receive(&self.control) else { return };
            if packet.is_empty() {
                // The host is gone, or done with this sandbox.
                return;
            }
            let Ok(request) = Request::decode(&packet) else { return };
            let (reply, pidfd) = self.handle(request, &fds).unwrap_or_else(|error| (failed(error), None));
            if answer(&self.control, &reply, pidfd.as_ref().map(AsFd::as_fd)).is_err() {
                return;
            }
        }
    }

    fn handle(&mut self, request: Request, fds: &[OwnedFd]) -> Attempt<(Answer, Option<OwnedFd>)> {
        let done = |number, path| (Answer::Done { number, path }, None);
        match request {
            Request::Directory => {
                let number = self.next()?;
                let (base, code) = match self.plan.namespaces {
                    true => (Path::new(files::WORK), Path::new(files::CODE)),
                    false => (&*self.plan.work, &*self.plan.code),
                };
                let dir = base.join(format!("{}-{number}", std::process::id()));
                self.dirs.insert(number, dir.clone());
                mirror(code, &dir).step("make a working directory")?;
                Ok(done(number, dir))
            }
            Request::Remove(number) => {
                if let Some(dir) = self.dirs.remove(&number) {
                    // Files that cannot be removed are removed with the sandbox.
                    let _ = fs::remove_dir_all(dir);
                }
                Ok(done(number, PathBuf::new()))
            }
            Request::Start(start) => {
                let [input, output, errors, channel] = fds else { return Err(refused("four descriptors")) };
                let number = self.next()?;
                let pid = self.start(&start, [input, output, errors, channel])?;
                self.children.insert(number, Ok(pid));
                let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).step("pidfd_open")?;
                Ok((Answer::Done { number, path: PathBuf::new() }, Some(pidfd)))
            }
            Request::End(number) => {
                let status = match self.children.remove(&number).ok_or_else(|| refused("find the process"))? {
                    Ok(pid) => end(pid),
                    Err(status) => status,
                };
                Ok(done(status.cast_unsigned(), PathBuf::new()))
            }
        }
    }

    fn next(&mut self) -> Attempt<u32> {
        if self.children.len() + self.dirs.len() >= CHILDREN_MAX {
            return Err(Refused { step: "count processes".into(), errno: libc::EAGAIN });
        }
        self.last = self.last.wrapping_add(1);
        Ok(self.last)
    }

    /// Starts a process; returns when it has executed its program, or says why it could not.
    fn start(&self, start: &Start, fds: [&OwnedFd; 4]) -> Attempt<Pid> {
        let (mut failure, reported) = io::pipe().step("open a pipe")?;
        match system::fork().step("fork")? {
            None => {
                let error = self.become_program(start, fds);
                let message = failed(error).encode();
                let _ = (&reported).write_all(&message);
                std::process::exit(127)
            }
            Some(pid) => {
                drop(reported);
                let mut message = Vec::new();
                let _ = failure.by_ref().take(4096).read_to_end(&mut message);
                match Answer::decode(&message) {
                    Ok(Answer::Failed { step, errno }) => {
                        end(pid);
                        Err(Refused { step, errno })
                    }
                    // The pipe was closed by the start of the program, or by an end that its status shows.
                    _ => Ok(pid),
                }
            }
        }
    }

    /// Only returns when it cannot.
    fn become_program(&self, start: &Start, fds: [&OwnedFd; 4]) -> Refused {
        let prepare = || -> Attempt<()> {
            rustix::process::setsid().step("setsid")?;
            die_with_parent()?;
            // Out of the way of the numbers they get.
            let fds = fds.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, 10));
            for (to, from) in (0..).zip(&fds) {
                system::duplicate(from.as_ref().map_err(|errno| *errno).step("dup")?.as_fd(), to).step("dup2")?;
            }
            system::close_on_exec_from(4).step("close_range")?;
            rustix::process::chdir(&start.dir).step("chdir")?;
            confine::limits(&self.plan, start)?;
            if !self.plan.namespaces {
                confine::drop_capabilities()?;
            }
            confine::rules(&self.plan)
        };
        if let Err(error) = prepare() {
            return error;
        }
        let mut command = Command::new(&start.program);
        command.args(&start.arguments).env_clear().envs(start.environment.iter().map(|(name, value)| (name, value)));
        let error = command.exec();
        Refused { step: "execve".into(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    /// Reaps what ended: the host's processes with what they left in their groups, and orphans.
    fn reap(&mut self) {
        let mut space = [MaybeUninit::uninit(); 1024];
        while matches!(rustix::io::read(&self.signals, &mut space), Ok((bytes, _)) if !bytes.is_empty()) {}
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        for child in self.children.values_mut() {
            if let Ok(pid) = *child
                && let Ok(Some(_)) = rustix::process::waitid(WaitId::Pid(pid), options)
            {
                *child = Err(end(pid));
            }
        }
        while let Ok(Some((pid, status))) = rustix::process::waitpid(None, WaitOptions::NOHANG) {
            if let Some(child) = self.children.values_mut().find(|child| **child == Ok(pid)) {
                *child = Err(status.as_raw());
            }
        }
    }
}

/// Kills a child with its group, reaps it and returns its exit status. Until it is reaped, its pid is not reused.
fn end(pid: Pid) -> i32 {
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return status.as_raw(),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return -1,
        }
    }
}
