//! Ends the processes that runs leave behind in their sandbox: those whose parents have ended, so that no process of the function is
//! responsible for them.
//!
//! A worker stays for the next run, and so do the children that it still has. A process that forked twice, or whose parent was killed, is a
//! child of the sandbox's first process, but the host did not start it. It belongs to one of the runs in progress when it was seen first,
//! and it ends when all of these have ended. The kernel lists the processes of a sandbox in its cgroup, which they cannot leave.

use super::{Running, Sandbox};
use crate::child::{pid_of, readable};
use crate::sandbox::Defence;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// How often those are looked for that a process left which was killed; then the sandbox is ended.
const ROUNDS_MAX: usize = 32;
/// How long a process that was killed may take to end.
const ENDING: Duration = Duration::from_secs(1);

/// The runs in progress in a sandbox.
#[derive(Debug, Default)]
pub(super) struct Runs {
    last: u64,
    active: BTreeSet<u64>,
    /// Processes that were left behind, with the runs of which one may have left it and that have not ended.
    suspects: BTreeMap<i32, BTreeSet<u64>>,
}

impl Runs {
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.active.insert(self.last);
        self.last
    }

    /// Of these processes, which were left behind, those whose runs have ended, now that this one has.
    fn end(&mut self, run: u64, left: &[i32]) -> Vec<i32> {
        self.active.remove(&run);
        self.suspects.retain(|pid, _| left.contains(pid));
        for of in self.suspects.values_mut() {
            of.remove(&run);
        }
        for pid in left {
            self.suspects.entry(*pid).or_insert_with(|| self.active.clone());
        }
        self.suspects.iter().filter(|(_, of)| of.is_empty()).map(|(pid, _)| *pid).collect()
    }
}

/// Runs in one worker of a sandbox. They have ended when this is dropped.
pub(crate) struct Batch {
    sandbox: Arc<Sandbox>,
    run: u64,
}

impl Batch {
    pub(super) fn new(sandbox: Arc<Sandbox>) -> Self {
        let run = sandbox.runs().begin();
        Self { sandbox, run }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let stands = Defence::Orphans.stands(self.sandbox.isolation.without);
        let running = self.sandbox.running().filter(|_| stands);
        for _ in 0..ROUNDS_MAX {
            let left = running.as_deref().map(orphans).unwrap_or_default();
            let pids: Vec<i32> = left.iter().map(|(pid, _)| *pid).collect();
            let over = self.sandbox.runs().end(self.run, &pids);
            if over.is_empty() {
                return;
            }
            let over: Vec<OwnedFd> =
                left.into_iter().filter(|(pid, _)| over.contains(pid)).map(|(_, pidfd)| pidfd).collect();
            for pidfd in &over {
                // It fails if the process has ended.
                let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            }
            for pidfd in &over {
                // Its own children are left behind when it has ended.
                readable(pidfd.as_fd(), ENDING);
            }
        }
        // They fork faster than they are killed.
        running.iter().for_each(|running| running.kill());
    }
}

/// The processes of a sandbox that were left behind, each with its pidfd.
fn orphans(running: &Running) -> Vec<(i32, OwnedFd)> {
    let found = running.look(|members, supervisor, is_started| {
        let supervisor = supervisor.as_raw_nonzero().get();
        let parents: Vec<(i32, i32)> = members
            .iter()
            .filter(|pid| **pid != supervisor)
            .filter(|pid| Pid::from_raw(**pid).is_some_and(|pid| !is_started(pid)))
            .filter_map(|pid| Some((*pid, parent_of(*pid)?)))
            .collect();
        // The first process in the PID namespace, if there is one: it is the only child of the supervisor outside.
        let first = parents.iter().find(|(_, parent)| *parent == supervisor).map(|(pid, _)| *pid);
        let first = first.filter(|_| running.has_first());
        let reaper = first.unwrap_or(supervisor);
        let left = parents.into_iter().filter(|(pid, parent)| *parent == reaper && Some(*pid) != first);
        left.filter_map(|(pid, _)| Some((pid, open(pid, reaper)?))).collect()
    });
    found.unwrap_or_default()
}

/// The pidfd of this child.
fn open(pid: i32, parent: i32) -> Option<OwnedFd> {
    let of = Pid::from_raw(pid)?;
    let pidfd = rustix::process::pidfd_open(of, PidfdFlags::empty()).ok()?;
    // As long as it is seen through its pidfd, its parent is that of this process, and not of another one with its pid. One that has ended,
    // with all its threads, only waits to be reaped.
    let is_it = parent_of(pid) == Some(parent) && pid_of(pidfd.as_fd()) == Some(of);
    (is_it && !readable(pidfd.as_fd(), Duration::ZERO)).then_some(pidfd)
}

/// The parent of a process, by the host's view.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which is the process's own choice, is in parentheses; state and parent follow.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_when_the_runs_have_ended_that_may_have_left_it() {
        let mut runs = Runs::default();
        let (first, second) = (runs.begin(), runs.begin());
        assert_eq!(runs.end(first, &[7]), Vec::<i32>::new(), "it may be of the second run");
        let third = runs.begin();
        assert_eq!(runs.end(second, &[7, 8]), [7], "the third run began later; the other process may be of that");
        assert_eq!(runs.end(third, &[8]), [8]);
        let last = runs.begin();
        assert_eq!(runs.end(last, &[]), Vec::<i32>::new());
        assert!(runs.suspects.is_empty() && runs.active.is_empty());
    }
}
