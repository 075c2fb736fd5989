//! System calls that no library of ours offers.

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Of `pidfd_send_signal`, since Linux 6.9: the process group of which the process is, or was, the leader.
const PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Sends SIGKILL to every process of the group that the process behind a pidfd leads.
pub(crate) fn kill_group(leader: BorrowedFd<'_>) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the call takes numbers, and null for "as kill(2) would fill it".
    let done =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, leader.as_raw_fd(), libc::SIGKILL, info, PROCESS_GROUP) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
