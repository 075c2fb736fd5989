//! Limits of all processes of a sandbox together: memory, shared memory included, how many there are, and processor time; and the list of
//! these processes, whatever they did to get away from those that started them.
//!
//! Each sandbox has a group below the host's own. In version 1 memory, pids and cpu are hierarchies of their own; in version 2 a group
//! that has groups below it has no processes itself, so the host moves into a leaf first.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

const MOUNTS: &str = "/proc/self/mounts";
const OWN: &str = "/proc/self/cgroup";
/// The leaf of version 2 into which the host moves.
const LEAF: &str = "millrace-host";
/// The most processes and threads.
const PROCESSES_MAX: u64 = 1024;
/// The share of a sandbox where processors are scarce: half of what another group has, such as the host's, in the units of either version.
const SHARES: (&str, &str) = ("512", "50");
/// The time for which a quota of processor time is, in microseconds.
const PERIOD_US: u64 = 100_000;

/// The limits of a sandbox.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Bytes of memory.
    pub(super) memory: u64,
    /// How many processors it may use at once; none if there is no limit but the machine's.
    pub(super) processors: Option<u32>,
}

/// Groups that hold the processes of a sandbox, one in each hierarchy. They are removed when this is dropped.
#[derive(Debug)]
pub(super) struct Cgroup(Vec<PathBuf>);

impl Cgroup {
    /// Whether groups can be made here; if not, why. Those that hosts left that were killed are removed.
    pub(super) fn probe() -> Result<(), String> {
        match parents()? {
            Parents::V1 { memory, pids, cpu } => {
                [Some(memory), pids, cpu].into_iter().flatten().for_each(|at| sweep(&at));
            }
            Parents::V2(parent) => sweep(&parent),
        }
        Self::new(Most { memory: 64 << 20, processors: Some(1) }).map(drop)
    }

    /// New groups with these limits. Processor time is limited where the host may do so.
    pub(super) fn new(most: Most) -> Result<Self, String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("millrace-{}-{}", process::id(), NEXT.fetch_add(1, Relaxed));
        let mut made = Self(Vec::new());
        let memory = most.memory.to_string();
        let quota = most.processors.map(|processors| u64::from(processors.max(1)) * PERIOD_US);
        let processes = PROCESSES_MAX.to_string();
        match parents()? {
            Parents::V1 { memory: memory_at, pids, cpu } => {
                let group = made.add(&memory_at, &name)?;
                write(&group.join("memory.limit_in_bytes"), &memory)?;
                // Swapped memory counts only if the kernel accounts for it.
                let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), &memory);
                if let Some(pids) = pids {
                    write(&made.add(&pids, &name)?.join("pids.max"), &processes)?;
                }
                if let Some(group) = cpu.and_then(|cpu| made.add(&cpu, &name).ok()) {
                    let _ = fs::write(group.join("cpu.shares"), SHARES.0);
                    if let Some(quota) = quota {
                        let _ = fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string());
                        let _ = fs::write(group.join("cpu.cfs_quota_us"), quota.to_string());
                    }
                }
            }
            Parents::V2(parent) => {
                let group = made.add(&parent, &name)?;
                write(&group.join("memory.max"), &memory)?;
                let _ = fs::write(group.join("memory.swap.max"), "0");
                let _ = fs::write(group.join("pids.max"), &processes);
                let _ = fs::write(group.join("cpu.weight"), SHARES.1);
                if let Some(quota) = quota {
                    let _ = fs::write(group.join("cpu.max"), format!("{quota} {PERIOD_US}"));
                }
            }
        }
        Ok(made)
    }

    /// Puts a process, and so all its children, into the groups.
    pub(super) fn take(&self, pid: u32) -> Result<(), String> {
        self.0.iter().try_for_each(|group| write(&group.join("cgroup.procs"), &pid.to_string()))
    }

    /// The processes in it, by the pids that the host knows.
    pub(super) fn members(&self) -> Vec<i32> {
        let first = self.0.first().and_then(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
        first.map_or(Vec::new(), |pids| pids.lines().filter_map(|pid| pid.parse().ok()).collect())
    }

    fn add(&mut self, parent: &Path, name: &str) -> Result<PathBuf, String> {
        let group = parent.join(name);
        fs::create_dir(&group).map_err(|error| failed("make", &group, &error))?;
        self.0.push(group.clone());
        Ok(group)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for group in &self.0 {
            // Processes that were killed are counted for a moment longer; an empty group costs next to nothing.
            for _ in 0..100 {
                match fs::remove_dir(group) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Removes the groups below this one that are of processes that are gone. One that has processes is not removed by the kernel, so
/// that nothing is lost where the pid means another process in another PID namespace.
fn sweep(parent: &Path) {
    let groups = fs::read_dir(parent).into_iter().flatten().flatten();
    let left = groups.filter(|group| {
        let name = group.file_name();
        let of = name.to_str().and_then(owner);
        of.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    });
    // Groups that cannot be removed now are removed by the next host.
    left.for_each(|group| drop(fs::remove_dir(group.path())));
}

/// The process that made the group of this name.
fn owner(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix("millrace-")?.split_once('-')?;
    number.parse::<u64>().ok().and_then(|_| pid.parse().ok())
}

enum Parents {
    V1 { memory: PathBuf, pids: Option<PathBuf>, cpu: Option<PathBuf> },
    V2(PathBuf),
}

/// The groups of this process below which others can be made.
fn parents() -> Result<Parents, String> {
    let own = fs::read_to_string(OWN).map_err(|error| failed("read", Path::new(OWN), &error))?;
    let mounts = fs::read_to_string(MOUNTS).map_err(|error| failed("read", Path::new(MOUNTS), &error))?;
    if let Some(memory) = version_1(&own, &mounts, "memory") {
        let [pids, cpu] = ["pids", "cpu"].map(|controller| version_1(&own, &mounts, controller));
        return Ok(Parents::V1 { memory, pids, cpu });
    }
    let Some(group) = version_2(&own, &mounts) else { return Err("no cgroups are mounted".into()) };
    let read = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    if !read("cgroup.controllers").split_whitespace().any(|name| name == "memory") {
        return Err(format!("the cgroup '{}' has no memory controller", group.display()));
    }
    let inner = if group.ends_with(LEAF) { group.parent().unwrap_or(&group).to_owned() } else { group };
    let control = inner.join("cgroup.subtree_control");
    if fs::write(&control, "+memory +pids").is_err() {
        let leaf = inner.join(LEAF);
        if let Err(error) = fs::create_dir(&leaf)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed("make", &leaf, &error));
        }
        write(&leaf.join("cgroup.procs"), &process::id().to_string())?;
        write(&control, "+memory +pids")?;
    }
    // It may have been given the others only.
    let _ = fs::write(&control, "+cpu");
    Ok(Parents::V2(inner))
}

/// Of lines `NUMBER:CONTROLLERS:PATH` and mounts, the directory of this process's group.
fn version_1(own: &str, mounts: &str, controller: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        has(controllers).then_some(path)
    })?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup" && has(options)).then_some(at)
    })?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

fn version_2(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then_some(at)
    })?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| failed("write", path, &error))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {what} '{}': {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_processes_that_are_gone_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        // No process has such a pid.
        let gone = u32::MAX - 1;
        let own = process::id();
        let names = [
            (format!("millrace-{gone}-0"), false),
            (format!("millrace-{gone}-17"), false),
            (format!("millrace-{own}-0"), true),
            (format!("millrace-{gone}"), true),
            (format!("other-{gone}-0"), true),
            ("millrace-host".into(), true),
            ("millrace-x-0".into(), true),
        ];
        names.iter().for_each(|(name, _)| fs::create_dir(dir.path().join(name)).unwrap());
        let busy = dir.path().join(format!("millrace-{gone}-3"));
        fs::create_dir(&busy).unwrap();
        fs::create_dir(busy.join("inside")).unwrap();
        sweep(dir.path());
        for (name, stays) in names {
            assert_eq!(dir.path().join(&name).exists(), stays, "{name}");
        }
        assert!(busy.exists());
    }

    #[test]
    fn the_groups_of_a_process_are_found_in_either_version() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpuacct,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0\n";
        let own = "5:memory:/user/a\n4:cpu,cpuacct:/\n0::/user.slice/b\n";
        assert_eq!(version_1(own, mounts, "memory"), Some("/sys/fs/cgroup/memory/user/a".into()));
        assert_eq!(version_1(own, mounts, "cpu"), Some("/sys/fs/cgroup/cpu,cpuacct/".into()));
        assert_eq!(version_1(own, mounts, "pids"), None);
        assert_eq!(version_2(own, mounts), Some("/sys/fs/cgroup/unified/user.slice/b".into()));
        assert_eq!(version_2("5:memory:/\n", mounts), None);
    }
}
