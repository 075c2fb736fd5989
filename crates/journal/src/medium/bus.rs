//! SIGBUS: a page of a mapped file could not be read or written.
//!
//! A file that became shorter than its mapping ends the process, and so does a page of an index or of the control page. A page of a segment
//! that the disk cannot *read* is replaced by zeros, which pass no entry's checksum: so only reads of this page fail. Such a page is
//! recorded, and is read-only. Its zeros are never taken for free space, and nothing is written there, because only this process would see
//! it. A *write* that faults ends the process, loudly.
//!
//! The handler makes system calls and touches atomics only. It and [`mend`] exclude each other by a flag.

use super::Region;
use std::{
    io,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

const PAGE_BYTES: usize = 4096;
/// Pages that are noted at once; one more ends the process.
const PAGES_MAX: usize = 1024;
/// Checks the other flag before the process ends.
const LOOKS_MAX: u32 = 1 << 20;

/// A mapped range.
struct Range {
    /// 0 if the place is free.
    start: AtomicUsize,
    /// 0 while the place is being filled.
    end: AtomicUsize,
    /// The file's descriptor plus 1; 0 is none.
    fd: AtomicUsize,
    is_segment: AtomicBool,
}

static RANGES: [Range; 8192] = [const {
    Range {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        fd: AtomicUsize::new(0),
        is_segment: AtomicBool::new(false),
    }
}; 8192];
/// Where the search for a free range starts.
static RANGE_HINT: AtomicUsize = AtomicUsize::new(0);
/// Addresses of pages that show zeros because the disk could not read them; 0 is a free place.
static PAGES: [AtomicUsize; PAGES_MAX] = [const { AtomicUsize::new(0) }; PAGES_MAX];
/// How many there are.
static NOTED: AtomicUsize = AtomicUsize::new(0);
/// Set while a thread replaces a page.
static REPLACING: AtomicBool = AtomicBool::new(false);

const TRUNCATED: &[u8] = b"error[MR2011]: a file of the namespace became shorter while it was in use\n  \
    cause: something truncated a segment or index file; this process stopped, because it could not read the missing bytes\n  \
    remedy: find out what truncated it, then open the namespace again; if durable entries were cut off, that is refused (MR2030)\n";
const FAILED: &[u8] = b"error[MR2012]: a page of the namespace's files could not be read or written\n  \
    cause: the disk failed; this process stopped, because its memory no longer has the content of the file\n  \
    remedy: check the disk (dmesg), then open the namespace again: it has all acknowledged appends\n";

/// Exit status: EX_IOERR of sysexits.
const EXIT_FAILED: i32 = 74;

/// Notes a mapping.
pub(super) fn register(base: usize, bytes: usize, fd: i32, is_segment: bool) {
    let hint = RANGE_HINT.fetch_add(1, Ordering::Relaxed);
    for n in 0..RANGES.len() {
        let range = &RANGES[(hint + n) % RANGES.len()];
        if range.start.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            range.fd.store((fd + 1) as usize, Ordering::Relaxed);
            range.is_segment.store(is_segment, Ordering::Relaxed);
            range.end.store(base + bytes, Ordering::Release);
            return;
        }
    }
    // With more mappings than that, a fault ends the process without our message; nothing else depends on it.
}

/// Forgets a mapping and the pages noted in it.
pub(super) fn unregister(base: usize) {
    for range in &RANGES {
        if range.start.load(Ordering::Acquire) == base {
            let end = range.end.swap(0, Ordering::AcqRel);
            let pages = PAGES.iter().filter(|page| (base..end).contains(&page.load(Ordering::Acquire)));
            pages.for_each(forget);
            range.start.store(0, Ordering::Release);
        }
    }
}

fn forget(page: &AtomicUsize) {
    if page.swap(0, Ordering::AcqRel) != 0 {
        NOTED.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether any page of any mapping shows zeros because it could not be read: one load.
#[inline]
pub(crate) fn has_faults() -> bool {
    NOTED.load(Ordering::Acquire) != 0
}

/// The first page with bytes of a region from `from` to `to` that could not be read, by its offset.
#[cold]
pub(crate) fn faulted(region: &Region, from: u64, to: u64) -> Option<u64> {
    let base = region.base as usize;
    let pages = base + (from as usize / PAGE_BYTES * PAGE_BYTES)..base + to as usize;
    let noted = PAGES.iter().map(|page| page.load(Ordering::Acquire)).filter(|page| pages.contains(page));
    noted.min().map(|page| (page - base) as u64)
}

/// Shows a region's page as the file has it. It was just read through the file; if it fails again, that is noted again.
#[cold]
pub(crate) fn mend(region: &Region, offset: u64) -> io::Result<()> {
    let page = region.base as usize + offset as usize;
    let fd = region.fd.load(Ordering::Relaxed);
    assert!(offset.is_multiple_of(PAGE_BYTES as u64) && offset < region.bytes && fd >= 0);
    if !begin_replacing() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the page lies within the mapping of the region (asserted), and this is the file of that mapping.
    let mapped = unsafe { libc::mmap(page as *mut _, PAGE_BYTES, access, flags, fd, offset as i64) };
    let result = if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) };
    if result.is_ok() {
        PAGES.iter().filter(|noted| noted.load(Ordering::Acquire) == page).for_each(forget);
    }
    REPLACING.store(false, Ordering::Release);
    result
}

/// Lets the pages of a range fault when they are looked at, as those do that a disk cannot read: for the simulated one.
pub(super) fn make_fault(region: &Region, range: std::ops::Range<u64>) {
    let (from, to) = (range.start as usize / PAGE_BYTES * PAGE_BYTES, range.end.min(region.bytes) as usize);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the name is a C string. The pages lie within the mapping; a file without a byte of its own is behind them then.
    unsafe {
        let fd = libc::memfd_create(c"unreadable".as_ptr(), libc::MFD_CLOEXEC);
        let address = region.base.add(from).cast();
        let mapped = libc::mmap(address, to - from, access, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0);
        assert!(mapped != libc::MAP_FAILED, "{}", io::Error::last_os_error());
        libc::close(fd);
    }
}

fn begin_replacing() -> bool {
    (0..LOOKS_MAX).any(|_| {
        let begun = REPLACING.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !begun {
            // SAFETY: a plain system call.
            unsafe { libc::sched_yield() };
        }
        begun
    })
}

/// Puts a page of zeros in the place of one that cannot be read, and notes it; false if that cannot be done.
fn replace(page: usize) -> bool {
    if !begin_replacing() {
        return false;
    }
    let is_known = PAGES.iter().any(|noted| noted.load(Ordering::Acquire) == page);
    // Recorded before the zeros are visible.
    let is_noted = is_known
        || PAGES.iter().any(|place| place.compare_exchange(0, page, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    if is_noted && !is_known {
        NOTED.fetch_add(1, Ordering::AcqRel);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the page lies within a registered mapping; on Linux `mmap` is a plain system call.
    let is_replaced = is_noted
        && unsafe { libc::mmap(page as *mut _, PAGE_BYTES, libc::PROT_READ, flags, -1, 0) } != libc::MAP_FAILED;
    REPLACING.store(false, Ordering::Release);
    is_replaced
}

/// Whether the file behind a range still reaches behind the page at `address`.
fn reaches(range: &Range, address: usize) -> bool {
    let fd = range.fd.load(Ordering::Relaxed) as i32 - 1;
    let offset = (address - range.start.load(Ordering::Relaxed)) / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: any bytes make a `stat`; `fstat` is async-signal-safe and says if the descriptor is none.
    unsafe {
        let mut stat = std::mem::zeroed::<libc::stat>();
        libc::fstat(fd, &raw mut stat) == 0 && stat.st_size as usize > offset
    }
}

/// Whether a fault is known to be that of a write. Elsewhere than on x86-64 a write finds the page of zeros that a read may
/// have, which is read-only, and ends the process with SIGSEGV.
fn is_write(context: *mut libc::c_void) -> bool {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel passes a valid context; bit 1 of the page fault's error code tells a write.
    return unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_ERR as usize] } & 2 != 0;
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        false
    }
}

fn end(message: &[u8]) -> ! {
    // SAFETY: both are async-signal-safe.
    unsafe {
        libc::write(2, message.as_ptr().cast(), message.len());
        libc::_exit(EXIT_FAILED)
    }
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    for range in &RANGES {
        if address >= range.start.load(Ordering::Acquire) && address < range.end.load(Ordering::Acquire) {
            if !reaches(range, address) {
                end(TRUNCATED);
            }
            // SAFETY: the place of this thread's error number, which the interrupted code may be about to read.
            let errno = unsafe { &mut *libc::__errno_location() };
            let before = *errno;
            let is_read = code == libc::BUS_ADRERR && range.is_segment.load(Ordering::Relaxed) && !is_write(context);
            if !is_read || !replace(address / PAGE_BYTES * PAGE_BYTES) {
                end(FAILED);
            }
            *errno = before;
            return;
        }
    }
    // SAFETY: `signal` is async-signal-safe, and the other handler is what was installed before ours.
    unsafe {
        // Not ours: the previous handler decides, or the fault occurs again and takes its usual course.
        match OLD_HANDLER.load(Ordering::Acquire) {
            libc::SIG_DFL | libc::SIG_IGN => drop(libc::signal(signal, libc::SIG_DFL)),
            old => std::mem::transmute::<usize, Handler>(old)(signal, info, context),
        }
    }
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
/// The previous handler of SIGBUS: in every Rust program, the standard library's check for stack overflow. A handler that takes only the
/// signal's number may be called with more.
static OLD_HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Installs the handler, once per process. Other faults are passed to the previous handler.
pub(super) fn install() {
    // SAFETY: the handler is async-signal-safe and lives as long as the process; `old` and `action` are valid.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut old);
        OLD_HANDLER.store(old.sa_sigaction, Ordering::Release);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}
