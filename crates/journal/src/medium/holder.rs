//! Which process holds a byte of a namespace's file `lock`, for messages to people.

use std::{fs, path::Path};

/// So much of a command line is shown.
const COMMAND_MAX_CHARS: usize = 80;

/// A process that has a namespace open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id, as this process sees it.
    pub pid: u32,
    /// Its command line, cut short.
    pub command: String,
    /// Whether a signal stopped it.
    pub stopped: bool,
}

/// The process that holds this byte of the file at `lock`, as far as the system tells. The kernel is asked: an id that the process
/// itself had written down would mean another process outside its PID namespace.
pub(super) fn find(lock: &Path, byte: u32) -> Option<Holder> {
    let lock = lock.canonicalize().ok()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let holds = |pid: &u32| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut open = fds.filter(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == lock));
        open.any(|fd| {
            let info = format!("/proc/{pid}/fdinfo/{}", fd.file_name().to_string_lossy());
            fs::read_to_string(info).is_ok_and(|info| info.lines().any(|line| locks(line, byte)))
        })
    };
    let pid = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(holds)?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let command = command.join(" ").trim_end().chars().take(COMMAND_MAX_CHARS).flat_map(char::escape_debug).collect();
    Some(Holder { pid, command, stopped: is_stopped(pid) })
}

/// Whether a line of a descriptor's description says that the byte is locked through it: it ends with the first and the last
/// byte of the lock.
fn locks(line: &str, byte: u32) -> bool {
    let Some(lock) = line.strip_prefix("lock:").filter(|lock| lock.contains("OFDLCK")) else { return false };
    let mut ends = lock.split_whitespace().rev().map(str::parse::<u32>);
    matches!((ends.next(), ends.next()), (Some(Ok(last)), Some(Ok(first))) if (first..=last).contains(&byte))
}

fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_a_descriptor_is_read_as_the_kernel_writes_it() {
        assert!(locks("lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:264 3 3", 3));
        assert!(locks("lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:264 0 2", 2));
        for line in
            ["lock:\t1: OFDLCK  ADVISORY  WRITE -1 fe:00:264 4 4", "lock:\t1: FLOCK  ADVISORY  WRITE 7 fe:00:264 3 3"]
        {
            assert!(!locks(line, 3), "{line}");
        }
        assert!(!locks("pos:\t3", 3) && !is_stopped(std::process::id()));
    }
}
