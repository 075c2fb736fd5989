//! Requests to the kernel: which processes are alive, and to end one.

use std::{fs::File, io::Read, os::unix::thread::JoinHandleExt, thread::JoinHandle};

/// Standard error may be a pipe without a reader; the report is given up after this time.
const REPORT_MS_MAX: libc::c_int = 1_000;

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: it has no preconditions.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Whether this process no longer has this thread.
pub(crate) fn is_gone(process: u32, thread: u32) -> bool {
    // SAFETY: signal 0 is not sent; it only asks.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    // A sandbox may refuse the question, which says nothing.
    let is_unknown = asked != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    // The number of the first thread stays as long as there are others.
    is_unknown || (process == thread && first_is_over())
}

/// Waits until a thread has ended, whether or not it has left a result.
pub(crate) fn join<T>(thread: JoinHandle<T>) {
    // SAFETY: the handle was the only one, so the thread is neither detached nor joined elsewhere.
    let error = unsafe { libc::pthread_join(thread.into_pthread_t() as libc::pthread_t, std::ptr::null_mut()) };
    debug_assert_eq!(error, 0, "a thread joins itself");
}

/// Whether the first thread has ended while others continue.
fn first_is_over() -> bool {
    let mut text = [0; 128];
    let Ok(length) = File::open("/proc/self/stat").and_then(|mut file| file.read(&mut text)) else { return false };
    // "pid (name) state": the name may hold anything, and is short.
    let text = &text[..length];
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|end| text.get(end + 2));
    matches!(state, Some(b'Z' | b'X'))
}

/// Writes the report and ends all threads at once: nothing is flushed, no handler runs, no lock is waited for.
pub(crate) fn end(report: &[u8]) -> ! {
    let mut to = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: both get pointers to what outlives them, and their lengths.
    unsafe {
        if libc::poll(&raw mut to, 1, REPORT_MS_MAX) > 0 {
            libc::write(libc::STDERR_FILENO, report.as_ptr().cast(), report.len());
        }
    }
    // SAFETY: it ends the process in any state.
    unsafe { libc::_exit(1) }
}
