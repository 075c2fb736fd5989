//! Detects threads that vanish.
//!
//! A thread can end without notice: by a system call that ends only this thread, by a tool, by a defect. Its locks are then never released,
//! and a host that continues without it hangs in part. So every long-lived thread is started by [`spawn`] and is in a table until it ends
//! normally. A host calls [`guard`]: two watchers check the table in turn every two seconds, and each other, and end the process with an
//! error when a thread is missing. A thread that panics ends the process too, and so does a task with a [`Fuse`]. This is sufficient: the
//! journal recovers, and the host's supervisor starts it again.
//!
//! The watchers take no lock and allocate no memory, because a thread that vanished may have held the lock of either.

#[allow(unsafe_code)]
mod system;

use millrace_wire::Code;
use std::{
    fmt::{self, Write},
    io,
    marker::PhantomData,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst},
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

/// Most threads in the table.
const SLOTS: usize = 8192;
/// How often each watcher looks. One wake-up a second is all that an idle host pays.
const EVERY: Duration = Duration::from_secs(2);
/// A started thread that is not in the table after this number of checks (five minutes) counts as lost.
const LOOKS_MAX: u16 = 150;
/// How long a watcher that misses a thread waits for another one that is already reporting it.
const REPORT_PATIENCE: Duration = Duration::from_secs(3);
const PANICKED: &str = "panicked; its message is printed above";
/// Longest report.
const REPORT_BYTES_MAX: usize = 1024;

/// One thread: 0 for none; otherwise the process in the upper half and the thread in the lower, 0 until it has begun.
struct Slot {
    who: AtomicU64,
    /// The first sixteen bytes of its name.
    name: [AtomicU64; 2],
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { who: AtomicU64::new(0), name: [const { AtomicU64::new(0) }; 2] } }; SLOTS];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// The process whose watchers run; a child that was forked has none of them.
static GUARDED: AtomicU32 = AtomicU32::new(0);
static REPORTING: AtomicBool = AtomicBool::new(false);

/// Starts a thread that is missed if it vanishes, and whose panic ends a guarded process.
///
/// # Errors
///
/// The system, or the table, has no room for another thread.
pub fn spawn<T: Send + 'static>(
    builder: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let seat = Seat::take()?;
    builder.spawn(move || {
        let _watched = seat.begin();
        work()
    })
}

/// Waits until a thread of [`spawn`] has ended, in whatever way: its panic was printed when it happened. If a thread has vanished, a
/// guarded process ends here, as the watchers would end it; [`JoinHandle::join`] panics in that case and does not say why.
pub fn join<T>(thread: JoinHandle<T>) {
    system::join(thread);
    let process = std::process::id();
    if GUARDED.load(SeqCst) == process {
        look(process, &mut vec![0; SLOTS]);
    }
}

/// Adds the calling thread, which other code started, to the table until the value is dropped.
///
/// # Errors
///
/// The table is full.
pub fn watch_me() -> io::Result<Watched> {
    Ok(Seat::take()?.begin())
}

/// Starts the watchers of this process, unless they run.
///
/// # Errors
///
/// A thread cannot be started.
pub fn guard() -> io::Result<()> {
    let process = std::process::id();
    if GUARDED.swap(process, SeqCst) == process {
        return Ok(());
    }
    for turn in 0..2 {
        let watcher = Builder::new().name("millrace-guard".into()).stack_size(128 << 10);
        // They need room for what they count before they begin, and none later.
        let mut waited = vec![0; SLOTS];
        let watch = move || {
            thread::sleep(EVERY / 2 * turn);
            loop {
                thread::sleep(EVERY);
                look(process, &mut waited);
            }
        };
        if let Err(error) = spawn::<()>(watcher, watch) {
            GUARDED.store(0, SeqCst);
            return Err(error);
        }
    }
    Ok(())
}

/// A place in the table of a thread that has not begun.
struct Seat(usize);

impl Seat {
    fn take() -> io::Result<Seat> {
        let me = mark(std::process::id(), 0);
        let free = |slot: &Slot| slot.who.compare_exchange(0, me, SeqCst, SeqCst).is_ok();
        let place = TABLE.iter().position(free).ok_or_else(|| io::Error::other("too many threads"))?;
        USED.fetch_max(place + 1, SeqCst);
        Ok(Seat(place))
    }

    /// The calling thread is the one that was meant.
    fn begin(self) -> Watched {
        let slot = &TABLE[self.0];
        let mut name = [0; 16];
        let current = thread::current();
        let own = current.name().unwrap_or("unnamed").as_bytes();
        let length = own.len().min(name.len());
        name[..length].copy_from_slice(&own[..length]);
        let (first, second) = name.split_at(8);
        for (half, bytes) in slot.name.iter().zip([first, second]) {
            half.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), SeqCst);
        }
        slot.who.store(mark(std::process::id(), system::thread_id()), SeqCst);
        Watched { seat: self, _of_this_thread: PhantomData }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        TABLE[self.0].who.store(0, SeqCst);
    }
}

/// An entry of the table. Dropping it means that the thread ends normally.
pub struct Watched {
    seat: Seat,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if thread::panicking() && GUARDED.load(SeqCst) == std::process::id() {
            end(Code::ThreadPanicked, "thread", &name(&TABLE[self.seat.0]), PANICKED);
        }
    }
}

/// Held by a task that the process needs: if a panic drops it, it ends a guarded process as the panic of a thread does. The task's runtime
/// would continue without the task.
pub struct Fuse(pub &'static str);

impl Drop for Fuse {
    fn drop(&mut self) {
        if thread::panicking() && GUARDED.load(SeqCst) == std::process::id() {
            end(Code::ThreadPanicked, "task", self.0.as_bytes(), PANICKED);
        }
    }
}

fn mark(process: u32, thread: u32) -> u64 {
    u64::from(process) << 32 | u64::from(thread)
}

fn name(slot: &Slot) -> [u8; 16] {
    let mut name = [0; 16];
    for (place, half) in slot.name.iter().enumerate() {
        name[place * 8..][..8].copy_from_slice(&half.load(SeqCst).to_ne_bytes());
    }
    name
}

/// Checks all threads once. `waited` counts the checks since a thread was started without having begun.
fn look(process: u32, waited: &mut [u16]) {
    for (slot, waited) in TABLE.iter().zip(waited).take(USED.load(SeqCst)) {
        let who = slot.who.load(SeqCst);
        let thread = who as u32; // the lower half
        *waited = if who == mark(process, 0) { *waited + 1 } else { 0 };
        if *waited >= LOOKS_MAX {
            end(Code::ThreadVanished, "thread", b"a new thread", "never began");
        }
        let gone = who == mark(process, thread) && thread != 0 && system::is_gone(process, thread);
        // It may have said that it ends, and done so, between the two looks at it.
        if gone && slot.who.load(SeqCst) == who {
            end(Code::ThreadVanished, "thread", &name(slot), "disappeared without ending normally");
        }
    }
}

/// Prints the reason and ends the process, without taking a lock, allocating memory or waiting.
fn end(code: Code, kind: &str, name: &[u8], what: &str) -> ! {
    if REPORTING.swap(true, SeqCst) {
        thread::sleep(REPORT_PATIENCE);
    }
    let mut report = Report { bytes: [0; REPORT_BYTES_MAX], length: 0 };
    let name = std::str::from_utf8(name).unwrap_or("?").trim_end_matches('\0');
    // Text that does not fit is cut off.
    let _ = write!(
        report,
        "error[{}]: {kind} '{name}' {what}\n  cause: {}\n  remedy: {}\n",
        code.id(),
        code.cause(),
        code.remedy()
    );
    system::end(&report.bytes[..report.length])
}

struct Report {
    bytes: [u8; REPORT_BYTES_MAX],
    length: usize,
}

impl fmt::Write for Report {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}
