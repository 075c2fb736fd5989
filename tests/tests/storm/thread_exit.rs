//! Ends one thread of another process, as if it had never been: the thread is made to do the system call `exit`, so
//! nothing is unwound and whatever it held stays held.

use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    thread,
    time::{Duration, Instant},
};

/// How long a thread may take to stop: one that waits for a child to begin stops after that.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The threads of a process that live.
pub fn threads(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// What a thread is called.
pub fn name(pid: u32, tid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default().trim().into()
}

/// Ends the thread; false if it was gone, or did not let itself be stopped.
pub fn end_thread(pid: u32, tid: u32) -> io::Result<bool> {
    let Some(gate) = system_call_instruction(pid)? else { return Ok(false) };
    let thread = tid as libc::pid_t;
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: requests about another process's thread; every result is looked at.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) != 0 {
            return gone_or(io::Error::last_os_error());
        }
        if libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) != 0 {
            return gone_or(io::Error::last_os_error());
        }
        let start = Instant::now();
        let mut status = 0;
        loop {
            match libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) {
                0 if start.elapsed() < STOP_PATIENCE => thread::sleep(Duration::from_micros(200)),
                found if found == thread && libc::WIFSTOPPED(status) => break,
                _ => {
                    libc::ptrace(libc::PTRACE_DETACH, thread, none, none);
                    return Ok(false);
                }
            }
        }
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_GETREGS, thread, none, &raw mut registers) != 0 {
            return gone_or(io::Error::last_os_error());
        }
        registers.rip = gate;
        registers.rax = libc::SYS_exit as u64;
        registers.rdi = 0;
        registers.orig_rax = u64::MAX; // no system call is to be begun again
        if libc::ptrace(libc::PTRACE_SETREGS, thread, none, &raw const registers) != 0
            || libc::ptrace(libc::PTRACE_DETACH, thread, none, none) != 0
        {
            return gone_or(io::Error::last_os_error());
        }
    }
    Ok(true)
}

fn gone_or(error: io::Error) -> io::Result<bool> {
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(false) } else { Err(error) }
}

/// Where that process has the instruction that makes a system call: somewhere in its C library.
fn system_call_instruction(pid: u32) -> io::Result<Option<u64>> {
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return Ok(None) };
    let library = maps.lines().find(|line| line.contains(" r-xp ") && line.contains("/libc.so"));
    let range = library.and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let Some((from, upto)) = range else { return Ok(None) };
    let address = |text| u64::from_str_radix(text, 16).expect("maps are hexadecimal");
    let (from, upto) = (address(from), address(upto));
    let mut code = vec![0; (upto - from) as usize];
    let read = fs::File::open(format!("/proc/{pid}/mem")).and_then(|mut memory| {
        memory.seek(SeekFrom::Start(from))?;
        memory.read_exact(&mut code)
    });
    if read.is_err() {
        return Ok(None); // it ended meanwhile
    }
    Ok(code.windows(2).position(|two| two == [0x0f, 0x05]).map(|place| from + place as u64))
}
