//! The output of a host: one thread writes each of the two streams, so that a reader that does not read blocks only that thread.
//!
//! The host waits for a slow reader, but for at most [`PATIENCE`] until the reader has caught up. After that it drops lines that do not fit
//! into the buffer, and prints their number instead.

use crate::show;
use millrace_node::{Code, Result};
use serde_json::json;
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, ErrorKind, Write},
    os::fd::AsFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Bytes kept for a reader who is behind, and those from which on he is waited for.
const KEPT_BYTES_MAX: usize = 1 << 20;
const AHEAD_BYTES_MAX: usize = KEPT_BYTES_MAX / 2;
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the end waits for each output.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between attempts to write if another process has set the output to non-blocking.
const RETRY_EVERY: Duration = Duration::from_millis(10);
const STACK_BYTES: usize = 128 << 10;

static HOST: OnceLock<[Arc<Feed>; 2]> = OnceLock::new();

/// From now on this process is a host; its standard output.
pub fn become_host(json: bool) -> Result<&'static Feed> {
    let refused = |error: io::Error| Code::HostStart.error(format!("the host's output cannot be written: {error}"));
    if HOST.get().is_none() {
        let out = Feed::start("millrace-stdout", io::stdout(), json).map_err(refused)?;
        let errors = Feed::start("millrace-stderr", io::stderr(), json).map_err(refused)?;
        let _ = HOST.set([out, errors]);
    }
    Ok(&HOST.get().expect("it was set just now")[0])
}

/// Text on standard error, after all output on standard output; it need not be read.
pub fn stderr(text: &str) {
    match HOST.get() {
        None => drop(io::stderr().lock().write_all(text.as_bytes())),
        Some([out, errors]) => {
            out.wait(0);
            errors.say(text.as_bytes());
            errors.wait(0);
        }
    }
}

/// A host's text on standard error, from a thread that waits for nothing.
pub fn stderr_soon(text: &[u8]) {
    if let Some([_, errors]) = HOST.get() {
        errors.say(text);
    }
}

/// The last chance of what a host has said.
pub fn finish() {
    for feed in HOST.get().into_iter().flatten() {
        feed.lock().patience = END_PATIENCE;
        feed.wait(0);
    }
}

/// One output of a host.
pub struct Feed {
    queue: Mutex<Queue>,
    changed: Condvar,
    json: bool,
}

struct Queue {
    messages: VecDeque<Vec<u8>>,
    /// The unwritten output, including the message that is being written.
    bytes: usize,
    /// Lines for which there was no room since the last message.
    left_out: u64,
    /// The remaining patience for this reader.
    patience: Duration,
    /// The reader has closed the output.
    gone: bool,
}

impl Feed {
    fn start(name: &str, to: impl AsFd, json: bool) -> io::Result<Arc<Feed>> {
        // Not through the standard library's handle: its lock would be held for as long as a write takes.
        let to = File::from(to.as_fd().try_clone_to_owned()?);
        let queue = Queue { messages: VecDeque::new(), bytes: 0, left_out: 0, patience: PATIENCE, gone: false };
        let feed = Arc::new(Feed { queue: Mutex::new(queue), changed: Condvar::new(), json });
        let of_thread = feed.clone();
        let builder = thread::Builder::new().name(name.into()).stack_size(STACK_BYTES);
        millrace_threads::spawn(builder, move || of_thread.write_to(Retrying(to)))?;
        Ok(feed)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues whole lines for writing; never waits.
    fn say(&self, text: &[u8]) {
        let mut queue = self.lock();
        if queue.gone {
            return;
        }
        if queue.bytes > 0 && queue.bytes + text.len() > KEPT_BYTES_MAX {
            queue.left_out += text.iter().filter(|byte| **byte == b'\n').count() as u64;
            return;
        }
        queue.tell_left_out(self.json);
        queue.push(text.to_owned());
        self.changed.notify_all();
    }

    /// The same, and waits for a reader who is behind.
    pub fn say_at_pace(&self, text: &[u8]) {
        self.say(text);
        self.wait(AHEAD_BYTES_MAX);
    }

    /// Waits until at most this many bytes are unwritten, unless the reader has used up the patience.
    fn wait(&self, bytes: usize) {
        let (queue, begun) = (self.lock(), Instant::now());
        let patience = queue.patience;
        let waited = self.changed.wait_timeout_while(queue, patience, |queue| queue.bytes > bytes);
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.bytes > 0 {
            queue.patience = queue.patience.saturating_sub(begun.elapsed());
        }
    }

    fn write_to(&self, mut to: Retrying) {
        let mut queue = self.lock();
        loop {
            if queue.messages.is_empty() {
                queue.tell_left_out(self.json);
            }
            let Some(text) = queue.messages.pop_front() else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            let written = to.write_all(&text);
            queue = self.lock();
            // Anything else, such as a full disk, may be over by the next message.
            queue.gone |= written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe);
            queue.bytes -= text.len();
            if queue.bytes == 0 {
                queue.patience = PATIENCE;
            }
            self.changed.notify_all();
        }
    }
}

impl Queue {
    fn push(&mut self, text: Vec<u8>) {
        self.bytes += text.len();
        self.messages.push_back(text);
    }

    fn tell_left_out(&mut self, json: bool) {
        match std::mem::take(&mut self.left_out) {
            0 => {}
            lines if json => self.push(format!("{}\n", json!({ "event": "left_out", "lines": lines })).into()),
            lines => self.push(
                format!("… {} dropped, because the output was not read in time\n", show::count(lines, "line")).into(),
            ),
        }
    }
}

/// A file with blocking writes, even if another process has set it to non-blocking.
struct Retrying(File);

impl Write for Retrying {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(RETRY_EVERY);
                Err(ErrorKind::Interrupted.into())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
