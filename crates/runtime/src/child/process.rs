//! A running child: watched through its pidfd, ended with its whole group, reaped exactly once.

use crate::sandbox::system;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus},
};
use std::{
    fmt,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// The capacity of a pipe on Linux.
const PIPE_BYTES: usize = 64 << 10;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Killed(i32),
    /// The process that would know is gone.
    Unknown,
}

impl Ended {
    pub(crate) fn from_wait_status(status: i32) -> Self {
        match (libc::WIFEXITED(status), libc::WIFSIGNALED(status)) {
            (true, _) => Self::Exited(libc::WEXITSTATUS(status)),
            (_, true) => Self::Killed(libc::WTERMSIG(status)),
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with status {status}"),
            Self::Killed(signal) => match Signal::from_named_raw(*signal) {
                Some(name) => {
                    // Its debug form is that of the text `Signal::SEGV`, with two names of its own.
                    let name = format!("{name:?}");
                    let name = match name.trim_matches('"').trim_start_matches("Signal::") {
                        "ABORT" => "ABRT",
                        "ALARM" => "ALRM",
                        name => name,
                    };
                    write!(f, "was killed by signal {signal} (SIG{name})")
                }
                None => write!(f, "was killed by signal {signal}"),
            },
            Self::Unknown => f.write_str("ended"),
        }
    }
}

/// A process that leads its own group.
pub(crate) trait Process: Send {
    /// Readable once the process has ended.
    fn pidfd(&self) -> BorrowedFd<'_>;
    /// Kills the process and its group, and reaps it. Only the first call does anything.
    fn end(&mut self) -> Ended;
}

/// A process that this process started.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    ended: Option<Ended>,
}

impl Child {
    /// Takes charge of a child that was just started.
    pub(super) fn adopt(pid: Pid) -> Result<Self, Errno> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { pid, pidfd, ended: None }),
            Err(errno) => {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                reap(pid);
                Err(errno)
            }
        }
    }
}

impl Process for Child {
    fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    fn end(&mut self) -> Ended {
        *self.ended.get_or_insert_with(|| {
            kill_group(self.pidfd.as_fd());
            reap(self.pid)
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills a process and every process of the group that it leads. A pidfd always refers to the process that it was opened for, even if its
/// pid was reused.
pub(crate) fn kill_group(leader: BorrowedFd<'_>) {
    if system::kill_group(leader).is_err()
        && let Some(pid) = pid_of(leader)
    {
        // A kernel before 6.9 knows no group by a pidfd. A process that has not been reaped keeps its pid.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    // For one that leads no group. It fails if the process no longer exists, which is fine.
    let _ = rustix::process::pidfd_send_signal(leader, Signal::KILL);
}

/// The pid of the process behind a pidfd, as this process sees it; `None` if it was reaped or is not to be seen from here.
pub(crate) fn pid_of(pidfd: BorrowedFd<'_>) -> Option<Pid> {
    let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid = shown.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    Pid::from_raw(pid.trim().parse().ok().filter(|pid| *pid > 0)?)
}

/// A pidfd of the process with this pid, provided that `parent` is its parent, so that a process that reused the pid is not mistaken for it.
pub(crate) fn child_of(parent: BorrowedFd<'_>, pid: Pid) -> Option<OwnedFd> {
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, which is the process's own choice, is in parentheses; state and parent follow.
    let (_, after) = stat.rsplit_once(')')?;
    let of = after.split_ascii_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)?;
    // As long as it can be seen through its pidfd, what was read was read of it.
    (pid_of(pidfd.as_fd()) == Some(pid) && pid_of(parent) == Some(of)).then_some(pidfd)
}

/// Waits for a child that ended or was sent SIGKILL, so that it will.
fn reap(pid: Pid) -> Ended {
    loop {
        match rustix::process::waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ended::from_wait_status(WaitStatus::as_raw(status)),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return Ended::Unknown,
        }
    }
}

/// Reads what is in a pipe that does not block, once. `false` if it has ended.
pub(crate) fn read_some(pipe: &OwnedFd, mut take: impl FnMut(&[u8])) -> bool {
    let mut space = [MaybeUninit::uninit(); PIPE_BYTES];
    match rustix::io::read(pipe, &mut space) {
        Ok(([], _)) => false,
        Ok((bytes, _)) => {
            take(bytes);
            true
        }
        Err(errno) => matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

/// Whether the descriptor becomes readable within the time given.
pub(crate) fn readable(fd: BorrowedFd<'_>, within: Duration) -> bool {
    let within = Timespec::try_from(within).unwrap_or_default();
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&within)).is_ok_and(|ready| ready > 0)
}
