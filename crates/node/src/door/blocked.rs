//! What keeps a journal from going on although nothing is broken: whoever has its lock does not give it back, or the disk
//! does not answer. A look takes no lock and waits for nothing.

use crate::Gate;
use millrace_journal::{Journal, Position, Writer};
use std::{
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What lasts less than this blocks nobody.
const PATIENCE: Duration = Duration::from_secs(1);
/// So much of a command line is shown.
const COMMAND_MAX_CHARS: usize = 80;

/// What the journal waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// A process that has the journal's lock.
    Process {
        /// Its id and command line, if the system tells them.
        process: Option<(u32, String)>,
        /// Whether a signal stopped it.
        stopped: bool,
    },
    /// The disk, with a write of this host.
    Write,
    /// The disk, with a flush.
    Flush,
}

/// That a journal does not go on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// What it waits for.
    pub by: Obstacle,
    /// For how long, at least.
    pub time: Duration,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs();
        match &self.by {
            Obstacle::Process { process: Some((pid, command)), stopped } => {
                write!(f, "process {pid} ({command}) has held the journal's lock for {seconds} s")?;
                if *stopped { write!(f, "; it is stopped: `kill -CONT {pid}` continues it") } else { Ok(()) }
            }
            Obstacle::Process { process: None, .. } => {
                write!(f, "another process has held the journal's lock for {seconds} s")
            }
            Obstacle::Write => write!(f, "the disk has not answered a write to the journal for {seconds} s"),
            Obstacle::Flush => write!(f, "the disk has not answered a flush of the journal for {seconds} s"),
        }
    }
}

/// Looks at a journal now and then.
pub(crate) struct Monitor {
    journal: Journal,
    gate: Arc<Gate>,
    seen: Mutex<Seen>,
}

/// What was seen at the last look, and since when it has been so.
#[derive(Default)]
struct Seen {
    /// Who had the lock, and the tail.
    writer: Option<(Writer, Position, Instant)>,
    /// Up to where the journal was durable while somebody waited for a flush.
    flush: Option<(Position, Instant)>,
}

impl Monitor {
    pub fn new(journal: Journal, gate: Arc<Gate>) -> Self {
        Self { journal, gate, seen: Mutex::default() }
    }

    /// Takes note of how things are. To be called a few times within [`PATIENCE`].
    pub fn look(&self) {
        self.look_at(Instant::now());
    }

    fn look_at(&self, now: Instant) -> (Option<(Writer, Duration)>, Option<Duration>) {
        let (tail, durable) = (self.journal.tail(), self.journal.durable());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.writer = self.journal.writer().map(|writer| match seen.writer {
            Some((before, at, since)) if (before, at) == (writer, tail) => (writer, tail, since),
            _ => (writer, tail, now),
        });
        let waits = durable < tail && self.gate.is_syncing();
        seen.flush = waits.then(|| match seen.flush {
            Some((before, since)) if before == durable => (durable, since),
            _ => (durable, now),
        });
        let writer = seen.writer.map(|(writer, _, since)| (writer, now.saturating_duration_since(since)));
        (writer, seen.flush.map(|(_, since)| now.saturating_duration_since(since)))
    }

    /// What blocks the journal now.
    pub fn blocked(&self) -> Option<Blocked> {
        let (writer, flush) = self.look_at(Instant::now());
        if let Some((writer, time)) = writer.filter(|(_, time)| *time >= PATIENCE) {
            let by = match writer {
                Writer::Own => Obstacle::Write,
                Writer::Other(byte) => {
                    let process = holder(self.journal.dir(), byte);
                    let stopped = process.as_ref().is_some_and(|(pid, _)| is_stopped(*pid));
                    Obstacle::Process { process, stopped }
                }
            };
            return Some(Blocked { by, time });
        }
        flush.filter(|time| *time >= PATIENCE).map(|time| Blocked { by: Obstacle::Flush, time })
    }
}

/// The process that holds this byte of the namespace's file `lock`, as far as the system tells.
fn holder(dir: &Path, byte: u32) -> Option<(u32, String)> {
    let lock = dir.join("lock").canonicalize().ok()?;
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
    let command: String =
        command.join(" ").trim_end().chars().take(COMMAND_MAX_CHARS).flat_map(char::escape_debug).collect();
    Some((pid, command))
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
    // The state follows the name, which stands in parentheses and may contain anything.
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
