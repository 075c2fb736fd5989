//! System calls for which our libraries have no safe functions.

use rustix::{
    fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    io::Errno,
    process::Pid,
};
use std::{ffi::CString, io, os::unix::ffi::OsStrExt, path::Path};

/// Of `pidfd_send_signal`, since Linux 6.9: the process group of which the process is, or was, the leader.
const PROCESS_GROUP: libc::c_uint = 1 << 2;
/// Of `landlock_create_ruleset`: answer the version.
const LANDLOCK_VERSION: libc::c_uint = 1;

fn errno() -> Errno {
    io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

fn done(result: libc::c_long) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// Sends SIGKILL to every process of the group that the process behind a pidfd leads.
pub(crate) fn kill_group(leader: BorrowedFd<'_>) -> Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the call takes numbers, and null for "as kill(2) would fill it".
    done(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, leader.as_raw_fd(), libc::SIGKILL, info, PROCESS_GROUP) })
}

/// Makes a copy of this process, which must have one thread; `None` in the copy.
pub(super) fn fork() -> Result<Option<Pid>, Errno> {
    debug_assert_eq!(std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count), 1, "no other thread may run");
    // SAFETY: this process has one thread, so whatever it holds, locks included, is as consistent in the copy.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        pid => Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 0).map(Some).ok_or_else(errno),
    }
}

/// Moves this process, which must have one thread, into namespaces of its own.
pub(super) fn unshare(spaces: u32) -> Result<(), Errno> {
    // SAFETY: no flag that callers give changes which memory or descriptors this process has.
    done(unsafe { libc::unshare(spaces.cast_signed()) }.into())
}

/// Gives the descriptor this number too, and without close-on-exec.
pub(super) fn duplicate(from: BorrowedFd<'_>, to: libc::c_int) -> Result<(), Errno> {
    // SAFETY: it is called in a process that is about to execute a program and owns nothing under this number.
    if unsafe { libc::dup2(from.as_raw_fd(), to) } == to { Ok(()) } else { Err(errno()) }
}

/// All descriptors from this number on are closed when a program is executed.
pub(super) fn close_on_exec_from(first: libc::c_uint) -> Result<(), Errno> {
    // SAFETY: the call takes numbers; no descriptor is closed now.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) })
}

/// Adds these attributes to the mount at `path`, and to those below it if `all`.
pub(super) fn restrict_mount(path: &Path, attributes: u64, all: bool) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = if all { libc::AT_RECURSIVE as libc::c_uint } else { 0 };
    // SAFETY: the string ends in zero, the structure has the size that is given; both live longer than the call.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    })
}

/// Names this machine within its UTS namespace.
pub(super) fn name_host(name: &str) -> Result<(), Errno> {
    // SAFETY: the pointer and the length are those of one string.
    done(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into())
}

/// The version of Landlock in this kernel, 0 without it.
pub(super) fn landlock_version() -> u32 {
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, LANDLOCK_VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Blocks SIGCHLD in this thread; the descriptor becomes readable when a child ended.
pub(super) fn child_signals() -> Result<OwnedFd, Errno> {
    // SAFETY: a sigset is plain data that the next call initialises; the others read it. The descriptor is new and owned by
    // nobody else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(errno()),
        }
    }
}

/// The descriptor with this number, which the process was started with.
pub(super) fn inherited(number: libc::c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: called once, at the start of a process that got it from the one that started it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    Ok(fd)
}
