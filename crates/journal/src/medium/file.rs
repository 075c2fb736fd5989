//! The real medium: a directory of files, `mmap`, `fdatasync`, and open-file-description locks to tell which processes are alive.
//!
//! Liveness: every process holds one byte of the file `lock` for as long as it has the namespace open. The kernel releases the byte when
//! the process ends for any reason, also across containers and reboots; process ids are never compared, so they may repeat. A forked child
//! inherits the file description, so it closes it at once.

use super::{Holder, LockReplaced, Medium, NotFlushed, Region, SLOT_MAX, Slot, bus, holder};
use crate::space::Space;
use std::{
    fs, io,
    mem::ManuallyDrop,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const LOCK: &str = "lock";
/// How long a process may take to end, once it has given its byte of the lock back.
const ENDING: Duration = Duration::from_secs(3);
/// Bytes written at once when a range is filled with zeros.
const ZERO_CHUNK_BYTES: usize = 1 << 20;
/// So much is read from the disk ahead of what a mapping is to show.
const AHEAD_BYTES: u64 = 1 << 20;
/// Fewer addresses than this are not worth a try.
const RESERVED_MIN_BYTES: u64 = 256 << 20;
static ZEROS: [u8; ZERO_CHUNK_BYTES] = [0; ZERO_CHUNK_BYTES];

/// A namespace's directory.
pub struct FileMedium {
    dir: PathBuf,
    lock: ManuallyDrop<OwnedFd>,
    /// The folder of the segments, locked while this process has a slot. If the lock file was replaced, this lock still shows other
    /// processes that the namespace is open.
    folder: ManuallyDrop<OwnedFd>,
    /// Device and number of the lock file.
    lock_identity: Option<(u64, u64)>,
    forks: u32,
    boot: u64,
}

impl FileMedium {
    /// Opens the directory; `create` also makes its folders, readable to their owner only.
    pub fn open(dir: &Path, create: bool) -> io::Result<Self> {
        install_handlers();
        if create {
            make_folders(dir)?;
        }
        let lock = private_file(create).open(dir.join(LOCK))?;
        let lock_identity = lock.metadata().ok().map(|opened| (opened.dev(), opened.ino()));
        let (lock, folder) = (OwnedFd::from(lock), OwnedFd::from(fs::File::open(dir.join("segments"))?));
        let forks = FORKS.load(Ordering::Relaxed);
        register_lock(lock.as_raw_fd())?;
        register_lock(folder.as_raw_fd())?;
        // FNV-1a: any hash serves to compare for equality. Unknown is 0, and then no clean end is believed.
        let boot = fs::read("/proc/sys/kernel/random/boot_id").map_or(0, |boot| {
            let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            boot.iter().fold(0xcbf2_9ce4_8422_2325, fold)
        });
        let (lock, folder) = (ManuallyDrop::new(lock), ManuallyDrop::new(folder));
        Ok(Self { dir: dir.to_owned(), lock, folder, lock_identity, forks, boot })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Locks or unlocks the folder of the segments.
    fn lock_folder(&self, operation: i32) -> io::Result<()> {
        // SAFETY: plain system call on an open descriptor.
        check(unsafe { libc::flock(self.folder.as_raw_fd(), operation) })
    }

    /// Joins the processes that have the folder locked, unless the lock file has none of them.
    fn join_folder(&self) -> io::Result<()> {
        let since = Instant::now();
        while !Medium::has_others(self)? {
            match self.lock_folder(libc::LOCK_EX | libc::LOCK_NB) {
                // A process that ends gives its byte back, and the folder a moment later.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && since.elapsed() < ENDING => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other(LockReplaced));
                }
                // A file system without such locks gives no further information.
                _ => break,
            }
        }
        let _ = self.lock_folder(libc::LOCK_SH);
        Ok(())
    }

    /// Asks the kernel for `command` on `bytes` bytes of the lock file from `start`.
    fn lock_call(&self, command: i32, start: i64, bytes: i64) -> io::Result<libc::flock> {
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: start,
            l_len: bytes,
            l_pid: 0,
        };
        if command == UNLOCK {
            lock.l_type = libc::F_UNLCK as i16;
        }
        let call = if command == UNLOCK { libc::F_OFD_SETLK } else { command };
        loop {
            // SAFETY: `lock` is a valid flock and the descriptor is open for as long as `self` lives.
            if unsafe { libc::fcntl(self.lock.as_raw_fd(), call, &raw mut lock) } == 0 {
                return Ok(lock);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Makes the directory and its folders, readable to their owner only. The directory's own name is durable afterwards, and
/// so are those of the directories above it that had to be made.
fn make_folders(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let dir = std::path::absolute(dir)?;
    let above = || dir.ancestors().skip(1);
    let made = above().take_while(|above| !above.exists()).count();
    for folder in ["", "segments", "index"] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.join(folder))?;
    }
    for above in above().take(made + 1) {
        match fs::File::open(above) {
            Ok(names) => names.sync_all()?,
            // A directory that we may pass and not read is not ours to look after.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Not a command of fcntl: [`FileMedium::lock_call`] turns it into one.
const UNLOCK: i32 = -1;
const GATE_BYTE: i64 = 0;

fn private_file(create: bool) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(create).mode(0o600).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
    options
}

/// Lets this process have as many files open as it may allow itself; whether that is more than before. Every segment in use
/// is one.
fn allow_more_files() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with a valid structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
        }
    }
}

/// Opens a file, after raising the process's limit of open files if necessary.
fn opened(open: impl Fn() -> io::Result<fs::File>) -> io::Result<fs::File> {
    match open() {
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) && allow_more_files() => open(),
        opened => opened,
    }
}

/// The result of a system call that answers -1 on failure.
fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The size and the free space of the file system of a path.
pub(crate) fn space_of(path: &Path) -> Option<Space> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    let mut stats = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero byte, and the call fills the structure if it returns 0.
    let stats = unsafe {
        if libc::statvfs(path.as_ptr(), stats.as_mut_ptr()) != 0 {
            return None;
        }
        stats.assume_init()
    };
    // Some file systems do not count.
    let (block, blocks) = (stats.f_frsize, stats.f_blocks);
    let total_bytes = Some(block.saturating_mul(blocks)).filter(|bytes| *bytes > 0)?;
    Some(Space { total_bytes, available_bytes: block.saturating_mul(stats.f_bavail) })
}

impl Medium for FileMedium {
    fn space(&self) -> Option<Space> {
        space_of(&self.path(""))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let (path, fresh) = (self.path(name), self.path(&format!("{name}.new")));
        let folder = self.path(name.rsplit_once('/').map_or("", |(folder, _)| folder));
        // Before anything is changed: what then stands under the name has to become durable.
        let names = opened(|| fs::File::open(&folder))?;
        let replace = || {
            let mut file = opened(|| private_file(true).truncate(true).open(&fresh))?;
            io::Write::write_all(&mut file, content)?;
            file.sync_all()?;
            fs::rename(&fresh, &path)
        };
        replace().inspect_err(|_| {
            // Blocks that it got of a full disk are released; the next attempt starts with a new file.
            let _ = fs::remove_file(&fresh);
        })?;
        names.sync_all()
    }

    fn map(&self, name: &str, bytes: u64, create: bool) -> io::Result<Arc<Region>> {
        let file = opened(|| private_file(create).open(self.path(name)))?;
        let metadata = file.metadata()?;
        if metadata.len() < bytes {
            if !create {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is too short"));
            }
            file.set_len(bytes)?;
        }
        map_file(file.into(), bytes, metadata.ino(), is_segment(name))
    }

    fn map_within(&self, name: &str, reserved_bytes: u64, create: bool) -> io::Result<Arc<Region>> {
        let file = opened(|| private_file(create).open(self.path(name)))?;
        let identity = file.metadata()?.ino();
        map_file_within(file.into(), reserved_bytes, identity)
    }

    fn extend(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        // SAFETY: plain system call on an open descriptor.
        match unsafe {
            libc::posix_fallocate(region.fd.load(Ordering::Relaxed), from as i64, to.saturating_sub(from) as i64)
        } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn read_at(&self, region: &Region, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        read_at(region, at, bytes)
    }

    fn write(&self, region: &Region, at: u64, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let fd = region.fd.load(Ordering::Relaxed);
            // SAFETY: the buffer is valid for its length; the descriptor belongs to the region.
            match unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), at as i64) } {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return Err(io::Error::last_os_error()),
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => return Ok(written as usize),
            }
        }
    }

    fn allocate(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let bytes = (to - at).min(ZERO_CHUNK_BYTES as u64);
            at += self.write(region, at, &ZEROS[..bytes as usize])? as u64;
        }
        Ok(())
    }

    fn reserve_range(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        let (fd, bytes) = (region.fd.load(Ordering::Relaxed), to - from);
        // SAFETY: plain system call on an open descriptor.
        match unsafe { libc::posix_fallocate(fd, from as i64, bytes as i64) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn prefault(&self, region: &Region, from: u64, to: u64) {
        let (from, to) = (from & !4095, to.min(region.bytes) & !4095);
        if from < to {
            // SAFETY: the range lies within the mapping. Kernels before 5.14 refuse the advice: it is only a hint.
            unsafe {
                libc::madvise(region.base.add(from as usize).cast(), (to - from) as usize, libc::MADV_POPULATE_WRITE)
            };
        }
    }

    fn read_in(&self, region: &Region, from: u64, to: u64) -> bool {
        let (start, end) = (from & !4095, to.min(region.bytes).next_multiple_of(4096));
        if start >= end || end > region.bytes {
            return false;
        }
        // The kernel reads little ahead for mappings. For pages in memory this does nothing.
        if start.is_multiple_of(AHEAD_BYTES) {
            // SAFETY: plain system call on an open descriptor.
            unsafe { libc::readahead(region.fd.load(Ordering::Relaxed), start as i64, 2 * AHEAD_BYTES as usize) };
        }
        // SAFETY: the range lies within the mapping. A page that would fault is an error of this call; kernels before 5.14 refuse the call.
        let populated = unsafe {
            libc::madvise(region.base.add(start as usize).cast(), (end - start) as usize, libc::MADV_POPULATE_READ)
        };
        populated == 0
    }

    fn next_data(&self, region: &Region, from: u64) -> (u64, u64) {
        next_data(region, from)
    }

    fn flush(&self, region: &Region) -> io::Result<()> {
        // SAFETY: plain system call on an open descriptor.
        check(unsafe { libc::fdatasync(region.fd.load(Ordering::Relaxed)) })
    }

    fn flush_range(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        let from = from & !4095;
        assert!(from < to && to <= region.bytes);
        // SAFETY: the range lies within the mapping. Of a retired region nobody needs what the file held.
        check(unsafe { libc::msync(region.base.add(from as usize).cast(), (to - from) as usize, libc::MS_SYNC) })
    }

    fn flush_beside(&self, name: &str) -> Result<(), NotFlushed> {
        let file = opened(|| private_file(false).open(self.path(name))).map_err(NotFlushed::Unopened)?;
        file.sync_data().map_err(NotFlushed::Refused)
    }

    fn flush_names(&self, folder: &str) -> Result<(), NotFlushed> {
        let names = opened(|| fs::File::open(self.path(folder))).map_err(NotFlushed::Unopened)?;
        names.sync_all().map_err(NotFlushed::Refused)
    }

    fn drop_cache(&self, name: &str) {
        if let Ok(file) = fs::File::open(self.path(name)) {
            // SAFETY: plain system call on an open descriptor; a refusal only means that the cache stays.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }

    fn retire(&self, region: &Region) {
        retire_region(region);
    }

    fn is_removed(&self, region: &Region) -> bool {
        // SAFETY: any bytes make a `stat`, and the descriptor belongs to the region.
        let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
        // SAFETY: as above.
        unsafe { libc::fstat(region.fd.load(Ordering::Relaxed), &mut stat) == 0 && stat.st_nlink == 0 }
    }

    fn identify(&self, name: &str) -> io::Result<(u64, u64)> {
        let metadata = fs::symlink_metadata(self.path(name))?;
        Ok((metadata.ino(), metadata.len()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        fs::read_dir(self.path(folder))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn gate(&self, f: &mut dyn FnMut()) -> io::Result<()> {
        self.lock_call(libc::F_OFD_SETLKW, GATE_BYTE, 1)?;
        f();
        self.lock_call(UNLOCK, GATE_BYTE, 1).map(drop)
    }

    fn attach(&self) -> io::Result<Option<Slot>> {
        for slot in 1..=SLOT_MAX {
            match self.lock_call(libc::F_OFD_SETLK, i64::from(slot), 1) {
                Ok(_) => {
                    return self.join_folder().map(|()| Some(slot)).inspect_err(|_| self.detach(slot));
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn detach(&self, slot: Slot) {
        // A failure leaves byte and folder held until the descriptors close, right after.
        let _ = self.lock_folder(libc::LOCK_UN);
        let _ = self.lock_call(UNLOCK, i64::from(slot), 1);
    }

    fn is_alive(&self, slot: Slot) -> bool {
        // If the kernel cannot say, waiting longer is the safe answer.
        self.lock_call(libc::F_OFD_GETLK, i64::from(slot), 1).map_or(true, |lock| lock.l_type != libc::F_UNLCK as i16)
    }

    fn has_others(&self) -> io::Result<bool> {
        let lock = self.lock_call(libc::F_OFD_GETLK, 1, i64::from(SLOT_MAX))?;
        Ok(lock.l_type != libc::F_UNLCK as i16)
    }

    fn boot(&self) -> u64 {
        self.boot
    }

    fn holder(&self, slot: Slot) -> Option<Holder> {
        holder::find(&self.path(LOCK), slot)
    }

    fn wall_us(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        since.as_micros() as u64
    }

    fn is_in_place(&self) -> bool {
        // The lock is never replaced. A file that is open keeps its number, so no other can have the same.
        match fs::metadata(self.path(LOCK)) {
            Ok(named) => self.lock_identity.is_none_or(|opened| opened == (named.dev(), named.ino())),
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        }
    }

    fn is_inherited(&self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }
}

impl Drop for FileMedium {
    fn drop(&mut self) {
        // In a forked child the descriptor was closed at birth, and its number may mean something else by now.
        if !self.is_inherited() {
            unregister_lock(self.lock.as_raw_fd());
            unregister_lock(self.folder.as_raw_fd());
            // SAFETY: both are dropped here and only here.
            unsafe {
                ManuallyDrop::drop(&mut self.folder);
                ManuallyDrop::drop(&mut self.lock);
            }
        }
    }
}

/// Reads bytes of a region's file.
pub(super) fn read_at(region: &Region, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    let fd = region.fd.load(Ordering::Relaxed);
    while !bytes.is_empty() {
        // SAFETY: the buffer is valid for its length; the descriptor belongs to the region.
        match unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), at as i64) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = &mut bytes[read as usize..];
                at += read as u64;
            }
        }
    }
    Ok(())
}

/// The next range of a region's file that may hold something else than zeros.
pub(super) fn next_data(region: &Region, from: u64) -> (u64, u64) {
    let fd = region.fd.load(Ordering::Relaxed);
    // SAFETY: plain system calls on an open descriptor, whose file offset nobody uses.
    let seek = |at: u64, whence: i32| u64::try_from(unsafe { libc::lseek(fd, at as i64, whence) });
    // No data from there on is an error; so is a file system that cannot tell, and then all of it may be data.
    match seek(from, libc::SEEK_DATA) {
        Ok(data) => (data, seek(data, libc::SEEK_HOLE).unwrap_or(region.bytes)),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => (region.bytes, region.bytes),
        Err(_) => (from, region.bytes),
    }
}

/// Whether a file is one whose content proves itself: a page of it that cannot be read is damage, and no reason to end.
pub(super) fn is_segment(name: &str) -> bool {
    name.starts_with("segments/")
}

/// Maps a file that is at least `bytes` long. In a segment, a page that the disk cannot read shows zeros; see [`bus`].
pub(super) fn map_file(file: OwnedFd, bytes: u64, identity: u64, is_segment: bool) -> io::Result<Arc<Region>> {
    install_handlers();
    let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: the range is new, and is unmapped only in `Region::drop`.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, libc::MAP_SHARED, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    bus::register(base as usize, bytes as usize, fd, is_segment);
    let (fd, retired) = (AtomicI32::new(file.into_raw_fd()), AtomicBool::new(false));
    Ok(Arc::new(Region { base: base.cast(), bytes, identity, fd, retired }))
}

/// Maps a file beyond its end: this number of addresses, or a part of them.
pub(super) fn map_file_within(file: OwnedFd, reserved_bytes: u64, identity: u64) -> io::Result<Arc<Region>> {
    let mut bytes = reserved_bytes;
    loop {
        match map_file(file.try_clone()?, bytes, identity, false) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && bytes > RESERVED_MIN_BYTES => bytes /= 16,
            mapped => return mapped,
        }
    }
}

/// A file of zeros in memory that becomes longer, mapped so far.
pub(super) fn map_memory_within(reserved_bytes: u64, identity: u64) -> io::Result<Arc<Region>> {
    install_handlers();
    map_file_within(memory_file()?.into(), reserved_bytes, identity)
}

/// A file without a name, in memory.
pub(super) fn memory_file() -> io::Result<fs::File> {
    // SAFETY: the name is a C string; the descriptor is new and owned by nobody else.
    unsafe {
        match libc::memfd_create(c"millrace".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(fs::File::from_raw_fd(fd)),
        }
    }
}

/// Makes the file behind a region in memory longer.
pub(super) fn extend_memory(region: &Region, to: u64) -> io::Result<()> {
    // SAFETY: plain system call on an open descriptor.
    check(unsafe { libc::ftruncate(region.fd.load(Ordering::Relaxed), to as i64) })
}

/// Maps a file that is at least `bytes` long, or memory of zeros, so that writes are seen by nobody else.
pub(super) fn map_private(file: Option<OwnedFd>, bytes: u64, identity: u64) -> io::Result<Arc<Region>> {
    install_handlers();
    let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_ref().map_or(-1, AsRawFd::as_raw_fd));
    let anonymous = if file.is_none() { libc::MAP_ANONYMOUS } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | anonymous;
    // SAFETY: the range is new, and is unmapped only in `Region::drop`.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    bus::register(base as usize, bytes as usize, fd, false);
    let fd = AtomicI32::new(file.map_or(-1, IntoRawFd::into_raw_fd));
    Ok(Arc::new(Region { base: base.cast(), bytes, identity, fd, retired: AtomicBool::new(false) }))
}

/// Gives a region's memory back and leaves zeros at its address. A flush under way may still need its descriptor.
pub(super) fn retire_region(region: &Region) {
    // SAFETY: the range is ours; readers that still look at it see zeros, which no checksum passes.
    unsafe {
        libc::mmap(
            region.base.cast(),
            region.bytes as usize,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    bus::unregister(region.base as usize);
    region.retired.store(true, Ordering::Relaxed);
}

/// Closes a descriptor that was taken out of its region; -1 is none.
fn close(fd: i32) {
    if fd >= 0 {
        // SAFETY: the caller took the descriptor out of the only place that had it.
        unsafe { libc::close(fd) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A reader may still hold the address of a retired one, that it got a moment before.
        if !*self.retired.get_mut() {
            bus::unregister(self.base as usize);
            // SAFETY: nobody holds the region any more, so nobody looks at the range.
            unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
        }
        close(*self.fd.get_mut());
    }
}

/// How often this process has been the child of a fork since it started.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Lock descriptors (plus 1; 0 is free) that a forked child must close, so that its parent can be seen to die.
static LOCKS: [AtomicI32; 1024] = [const { AtomicI32::new(0) }; 1024];
fn register_lock(fd: i32) -> io::Result<()> {
    let free = |cell: &&AtomicI32| cell.compare_exchange(0, fd + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    match LOCKS.iter().find(free) {
        Some(_) => Ok(()),
        None => Err(io::Error::other("this process already has 1024 namespaces open")),
    }
}

fn unregister_lock(fd: i32) {
    for cell in &LOCKS {
        let _ = cell.compare_exchange(fd + 1, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

extern "C" fn in_forked_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for cell in &LOCKS {
        let fd = cell.swap(0, Ordering::AcqRel) - 1;
        if fd >= 0 {
            // SAFETY: `close` is async-signal-safe; the parent's copy keeps the lock. The child's handle is refused
            // from now on (`is_inherited`), and its drop leaves the number alone.
            unsafe { libc::close(fd) };
        }
    }
}

/// Once per process: what a forked child does, and what SIGBUS means.
fn install_handlers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is async-signal-safe and lives as long as the process.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        bus::install();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_does_not_give_is_told_and_is_no_fault() {
        let (dir, bytes) = (tempfile::tempdir().unwrap(), 4 * AHEAD_BYTES);
        let medium = FileMedium::open(dir.path(), true).unwrap();
        let region = medium.map("segments/0000000000", bytes, true).unwrap();
        assert!(medium.read_in(&region, 0, bytes));
        // Behind the end of a file the kernel does what it does where a disk fails.
        let file = fs::OpenOptions::new().write(true).open(dir.path().join("segments/0000000000")).unwrap();
        file.set_len(8192).unwrap();
        assert!(medium.read_in(&region, 0, 8192));
        assert!(!medium.read_in(&region, 4096, bytes) && !medium.read_in(&region, AHEAD_BYTES, bytes));
    }
}
