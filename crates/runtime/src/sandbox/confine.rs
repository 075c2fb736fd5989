//! The last steps of a process before it executes a function's program: each removes a right permanently.

use super::{
    defence::Defence,
    files,
    message::{Plan, Start},
    supervisor::{Attempt, Step, refused},
    syscalls,
};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets},
};
use std::path::Path;

/// The most processes and threads of all workers of a function.
const PROCESSES_MAX: u64 = 512;
const DESCRIPTORS_MAX: u64 = 256;
/// The longest file; files in memory count too.
const FILE_MAX_BYTES: u64 = 64 << 20;
const LOCKED_MAX_BYTES: u64 = 1 << 20;
/// A crash handler that reads cores from a pipe is not stopped by 0, but by 1.
const CORE_MAX_BYTES: u64 = 1;

/// The newest rules that are asked for; a kernel that knows fewer enforces those.
const RULES: ABI = ABI::V6;

/// Bounds what this process and each that it starts may use.
pub(super) fn limits(plan: &Plan, start: &Start) -> Attempt<()> {
    let stands = |defence: Defence| defence.stands(plan.without);
    let mut limits = vec![
        (Resource::Data, start.memory_max_bytes),
        (Resource::Nofile, DESCRIPTORS_MAX),
        (Resource::Memlock, LOCKED_MAX_BYTES),
        (Resource::Core, CORE_MAX_BYTES),
    ];
    if stands(Defence::Temporary) {
        limits.push((Resource::Fsize, FILE_MAX_BYTES));
    }
    // The limit counts per user: without a user of its own, it would include the processes of all others.
    if plan.namespaces && stands(Defence::ProcessLimit) {
        limits.push((Resource::Nproc, PROCESSES_MAX));
    }
    for (resource, most) in limits {
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).step("setrlimit")?;
    }
    Ok(())
}

/// Gives up every capability, also for programs that are executed.
pub(super) fn drop_capabilities() -> Attempt<()> {
    let none = CapabilitySet::empty();
    for capability in CapabilitySet::all().iter() {
        // Fails where this process may not; it has no capability then that would come back.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).step("capset")?;
    rustix::thread::set_no_new_privs(true).step("no_new_privs")
}

/// Files, signals and abstract sockets, by Landlock; then system calls.
pub(super) fn rules(plan: &Plan) -> Attempt<()> {
    if Defence::Landlock.stands(plan.without) {
        landlock(plan).map_err(|error| refused(&format!("Landlock: {error}")))?;
    }
    if Defence::Syscalls.stands(plan.without) {
        syscalls::restrict(plan.network, plan.namespaces).map_err(|error| refused(&format!("seccomp: {error}")))?;
    }
    Ok(())
}

fn landlock(plan: &Plan) -> Result<(), landlock::RulesetError> {
    let (all, read) = (AccessFs::from_all(RULES), AccessFs::from_read(RULES));
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(RULES))?
        .create()?;
    if plan.namespaces {
        rules = beneath(rules, Path::new("/"), read)?;
        for written in ["/tmp", files::WORK, "/dev/shm"] {
            rules = beneath(rules, Path::new(written), all)?;
        }
        rules = beneath(rules, Path::new("/dev"), AccessFs::from_file(RULES))?;
    } else {
        for shown in files::readable() {
            rules = beneath(rules, Path::new(shown), read)?;
        }
        for shown in plan.shown.iter().chain(plan.links.iter().map(|(_, target)| target)).chain([&plan.code]) {
            rules = beneath(rules, shown, read)?;
        }
        rules = beneath(rules, Path::new("/dev/null"), AccessFs::from_file(RULES))?;
        rules = beneath(rules, &plan.work, all)?;
    }
    rules.restrict_self().map(drop)
}

/// Allows `access` below a path, if it exists.
fn beneath(
    rules: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(RULES) };
    rules.add_rule(PathBeneath::new(fd, access))
}
