//! Starts a process as `posix_spawn` does: the child shares our memory until it executes its program.
//!
//! `fork` would copy the page tables of a host that maps a whole journal, and each page that the host writes meanwhile would fault.
//! `posix_spawn` itself can neither limit memory nor end the child with its parent.

use super::{Environment, environment::cstring, process::Child};
use crate::{Code, Error, Result};
use rustix::process::Pid;
use std::{
    ffi::{CString, c_char, c_int, c_void},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr,
};

/// The program to start.
pub(crate) struct Plan<'a> {
    /// The program's file, absolute.
    pub(crate) program: &'a Path,
    /// The program's arguments.
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a Environment,
    /// Its working directory.
    pub(crate) dir: &'a Path,
    /// Its descriptors 0, 1, 2 and 3.
    pub(crate) descriptors: [BorrowedFd<'a>; 4],
    /// The maximum private memory of it, and of each process that it starts.
    pub(crate) memory_max_bytes: u64,
}

/// The child's stack until it executes its program; it makes a dozen system calls.
const STACK_BYTES: usize = 64 << 10;
/// Descriptors that are moved to 0..=3 come from at least here, so that none is overwritten before it is moved.
const DESCRIPTOR_MIN: c_int = 10;
/// Linux has signals 1 to 64.
const SIGNAL_MAX: c_int = 64;

/// The data for the child, and its answer. Everything is prepared before, because the child must not allocate.
struct Shared {
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    dir: *const c_char,
    descriptors: [c_int; 4],
    memory: libc::rlimit,
    parent: libc::pid_t,
    /// The call that failed and its errno, or 0.
    failed_step: &'static str,
    errno: c_int,
}

/// Starts the process. It gets SIGKILL when the calling thread ends.
pub(crate) fn spawn(plan: &Plan<'_>) -> Result<Child> {
    let program = cstring(plan.program.as_os_str().as_bytes())?;
    let dir = cstring(plan.dir.as_os_str().as_bytes())?;
    let words: Vec<CString> = plan.arguments.iter().map(|word| cstring(word.as_bytes())).collect::<Result<_>>()?;
    let environment = plan.environment.to_cstrings()?;
    let sources: Vec<OwnedFd> = plan.descriptors.iter().map(|fd| high(*fd)).collect::<Result<_>>()?;

    let argv: Vec<*const c_char> =
        std::iter::once(&program).chain(&words).map(|word| word.as_ptr()).chain([ptr::null()]).collect();
    let envp: Vec<*const c_char> = environment.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect();
    let mut shared = Shared {
        program: program.as_ptr(),
        arguments: argv.as_ptr(),
        environment: envp.as_ptr(),
        dir: dir.as_ptr(),
        descriptors: [0, 1, 2, 3].map(|i: usize| sources[i].as_raw_fd()),
        memory: libc::rlimit { rlim_cur: plan.memory_max_bytes, rlim_max: plan.memory_max_bytes },
        // SAFETY: it has no preconditions.
        parent: unsafe { libc::getpid() },
        failed_step: "",
        errno: 0,
    };
    let pid = clone_vfork(&mut shared).map_err(|e| Code::SpawnFailed.error(format!("cannot start a process: {e}")))?;
    let child =
        Child::adopt(pid).map_err(|errno| Code::SpawnFailed.error(format!("cannot watch a process: {errno}")))?;
    match shared.errno {
        0 => Ok(child),
        errno => Err(refusal(plan.program, plan.dir, shared.failed_step, errno)),
    }
}

/// A copy of the descriptor that is out of the way of 0..=3, and closed when a program is executed.
fn high(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, DESCRIPTOR_MIN)
        .map_err(|errno| Code::SpawnFailed.error(format!("cannot copy a descriptor for the process: {errno}")))
}

/// Why a program did not start in a directory: this step failed.
pub(crate) fn refusal(program: &Path, dir: &Path, step: &str, errno: c_int) -> Error {
    let reason = io::Error::from_raw_os_error(errno);
    let program = program.display();
    match (step, errno) {
        ("execve", libc::ENOENT) => Code::CommandUnusable
            .error(format!("cannot execute '{program}': {reason}; check that the program in its #! line exists")),
        ("execve", libc::ENOEXEC) => {
            Code::CommandUnusable.error(format!("cannot execute '{program}': it is not a program, and has no #! line"))
        }
        ("execve", libc::EACCES) => Code::CommandUnusable.error(format!("cannot execute '{program}': {reason}")),
        ("chdir", _) => Code::CodeUnreadable.error(format!("cannot run in '{}': {reason}", dir.display())),
        _ => Code::SpawnFailed.error(format!("cannot start '{program}': {step}: {reason}")),
    }
}

/// Runs [`child`] in a new process that borrows our memory; returns when it has executed its program or given up.
fn clone_vfork(shared: &mut Shared) -> io::Result<Pid> {
    // u128 for the alignment that the calling convention wants.
    let mut stack = vec![0u128; STACK_BYTES / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a sigset is plain data, and the calls below initialise or replace it.
    let (mut all, mut ours): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: `stack` is this call's own and large enough for `child`, which does not return to our frames; CLONE_VFORK
    // suspends this thread until the child leaves our memory, so nothing it borrows from here is used concurrently by us.
    // No signal handler of ours can run in the child, since all signals are blocked until it has reset them.
    let pid = unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut ours);
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let pid = libc::clone(child, top, flags, ptr::from_mut(shared).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &ours, ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    // A pid is positive.
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("clone returned no pid"))
}

/// The child: shares our memory, so it allocates nothing, takes no lock and never unwinds.
extern "C" fn child(shared: *mut c_void) -> c_int {
    // SAFETY: `clone_vfork` passes its exclusive reference and is suspended.
    let shared = unsafe { &mut *shared.cast::<Shared>() };
    shared.failed_step = prepare(shared);
    // SAFETY: errno is this thread's; `_exit` ends the child without running anything of ours.
    unsafe {
        shared.errno = *libc::__errno_location();
        libc::_exit(127)
    }
}

/// Makes the system calls before the program, and executes it. Returns the name of the one that failed.
fn prepare(shared: &Shared) -> &'static str {
    // SAFETY: system calls on data that `spawn` prepared and keeps: strings end in zero, arrays in null. They change only
    // the child: signal actions, descriptors, group and limits are not shared (no CLONE_SIGHAND, no CLONE_FILES).
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            // Fails for the few signals that cannot be changed.
            libc::signal(signal, libc::SIG_DFL);
        }
        if libc::setpgid(0, 0) != 0 {
            return "setpgid";
        }
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return "prctl";
        }
        if libc::getppid() != shared.parent {
            return "getppid";
        }
        // Not 0, which does not stop a handler that reads cores from a pipe.
        let no_core = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        if libc::setrlimit(libc::RLIMIT_DATA, &shared.memory) != 0 || libc::setrlimit(libc::RLIMIT_CORE, &no_core) != 0
        {
            return "setrlimit";
        }
        for (to, from) in (0..).zip(shared.descriptors) {
            if libc::dup2(from, to) < 0 {
                return "dup2";
            }
        }
        // All of our descriptors are closed on execution; this is for those that a library opened without that flag.
        libc::syscall(libc::SYS_close_range, 4, libc::c_uint::MAX, 0);
        if libc::chdir(shared.dir) != 0 {
            return "chdir";
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        libc::execve(shared.program, shared.arguments, shared.environment);
        "execve"
    }
}
