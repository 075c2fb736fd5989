//! A machine that can lose its power: files in memory whose unflushed sectors and names survive in any combination.
//!
//! ```text
//!  process()  --> SimMedium --+                    crash(choose) --> another SimDisk,
//!  process()  --> SimMedium --+--> SimDisk              whose every unflushed sector, length and name
//!  kill()                     |                         is what `choose` picked of its versions
//! ```
//!
//! Between two flushes of a file, each 512-byte sector has versions: the durable one and every content that was seen since, at each call of
//! the medium and at each [`SimDisk::observe`]. A power failure keeps any of them, independently. Names behave the same: each creation,
//! renaming and removal since the folder was flushed happened or did not. Torn sectors are *not* simulated, and neither are the processor's
//! writes between two calls (`tests/single_step.rs` tests those).

mod names;

pub use super::faults::{Call, Fault, Faults};

use self::names::NameChange;
use super::{
    Medium, NotFlushed, Region, SLOT_MAX, Slot,
    faults::Unreadable,
    file::{is_segment, map_file, map_file_within, memory_file, retire_region},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

/// The unit that a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
/// How much of a file is compared at a time.
const OBSERVED_BYTES: usize = 1 << 18;
/// Versions kept of a sector that is never flushed, such as the control page's.
const VERSIONS_MAX: usize = 16;

/// One inode.
struct SimFile {
    /// The file that processes map; it has no name.
    memory: File,
    /// Bytes seen at the last observation.
    seen: Vec<u8>,
    /// The content of the disk.
    durable: Vec<u8>,
    durable_bytes: u64,
    /// Unflushed contents of each sector, oldest first.
    versions: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Pages that have storage.
    pages: BTreeSet<usize>,
    /// Failed flushes, and of how many each region of it, by its address, has heard: each hears of each once.
    failures: u64,
    heard: BTreeMap<usize, u64>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u64, SimFile>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    changes: Vec<NameChange>,
    slots: BTreeMap<Slot, u64>,
    next_inode: u64,
    boot: u64,
    /// Pages that can still be given storage.
    room_pages: Option<u64>,
    /// Flushes that still succeed.
    flushes_left: Option<u64>,
    /// Whether the cache keeps unwritten pages even when it is asked to drop them.
    cache_sticks: bool,
    unreadable: Unreadable,
    /// Frozen copies made at each call, if they are wanted.
    moments: Option<Vec<SimDisk>>,
}

/// Whether flushes may proceed; a test can delay them.
#[derive(Default)]
struct Flushes {
    held: Mutex<bool>,
    waiting: AtomicU64,
    changed: Condvar,
    /// The minimum duration of each, in microseconds.
    delay_us: AtomicU64,
}

/// A machine with a disk. Clones are the same machine.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    flushes: Arc<Flushes>,
    gate: Arc<Mutex<()>>,
    wall_us: Arc<AtomicU64>,
    processes: Arc<AtomicU64>,
    faults: Arc<Mutex<Option<Faults>>>,
}

/// One process of the machine.
pub struct SimMedium {
    disk: SimDisk,
    process: u64,
    killed: AtomicBool,
}

impl SimFile {
    fn new(bytes: u64) -> io::Result<Self> {
        let memory = memory_file()?;
        memory.set_len(bytes)?;
        Ok(Self {
            memory,
            seen: vec![0; bytes as usize],
            durable: vec![0; bytes as usize],
            durable_bytes: 0,
            versions: BTreeMap::new(),
            pages: BTreeSet::new(),
            failures: 0,
            heard: BTreeMap::new(),
        })
    }

    /// A file that has been on the disk all along.
    fn with(content: Vec<u8>, bytes: u64) -> io::Result<Self> {
        let mut file = Self::new(bytes)?;
        for (page, content) in content.chunks(PAGE_BYTES).enumerate() {
            if content.iter().any(|byte| *byte != 0) {
                file.memory.write_all_at(content, (page * PAGE_BYTES) as u64)?;
                file.pages.insert(page);
            }
        }
        file.durable = content.clone();
        file.seen = content;
        file.durable_bytes = bytes;
        Ok(file)
    }

    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        self.seen.resize(bytes as usize, 0);
        self.durable.resize(bytes as usize, 0);
        self.memory.set_len(bytes)
    }

    /// Notes what the sectors hold now. A page that was written without having storage would have been a SIGBUS.
    fn observe(&mut self, what: &str) {
        // One read for many pages: most files hold what they held before.
        let mut buffer = vec![0; OBSERVED_BYTES.min(self.seen.len())];
        for start in (0..self.seen.len()).step_by(OBSERVED_BYTES) {
            let now = &mut buffer[..OBSERVED_BYTES.min(self.seen.len() - start)];
            self.memory.read_exact_at(now, start as u64).expect("a memory file can be read");
            if self.seen[start..start + now.len()] == *now {
                continue;
            }
            for (n, sector) in now.chunks(SECTOR_BYTES).enumerate() {
                let from = start + n * SECTOR_BYTES;
                let seen = &mut self.seen[from..from + sector.len()];
                if seen != sector {
                    let has_storage = self.pages.contains(&(from / PAGE_BYTES));
                    assert!(has_storage, "{what}: bytes from {from} on were written into a hole");
                    seen.copy_from_slice(sector);
                    self.add_version(from / SECTOR_BYTES, sector.to_vec());
                }
            }
        }
    }

    /// Notes that a range was written: what is unlike the disk's is a version that a flush concerns, also if the cache
    /// held it before.
    fn soil(&mut self, at: usize, bytes: usize) {
        for number in at / SECTOR_BYTES..(at + bytes).div_ceil(SECTOR_BYTES) {
            let range = number * SECTOR_BYTES..((number + 1) * SECTOR_BYTES).min(self.seen.len());
            let mut sector = vec![0; range.len()];
            self.memory.read_exact_at(&mut sector, range.start as u64).expect("a memory file can be read");
            let is_dirty = self.versions.contains_key(&number) || sector == self.durable[range.clone()];
            if sector == self.seen[range.clone()] && is_dirty {
                continue;
            }
            self.seen[range].copy_from_slice(&sector);
            self.add_version(number, sector);
        }
    }

    fn add_version(&mut self, sector: usize, content: Vec<u8>) {
        let versions = self.versions.entry(sector).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(VERSIONS_MAX / 2);
        }
        versions.push(content);
    }

    fn flush(&mut self, sectors: Range<usize>) {
        for sector in self.forget_versions(sectors) {
            let from = sector * SECTOR_BYTES;
            let to = (from + SECTOR_BYTES).min(self.seen.len());
            self.durable[from..to].copy_from_slice(&self.seen[from..to]);
        }
        self.durable_bytes = self.seen.len() as u64;
    }

    /// Makes sectors clean; returns those that were not.
    fn forget_versions(&mut self, sectors: Range<usize>) -> Vec<usize> {
        let dirty: Vec<usize> = self.versions.range(sectors).map(|(sector, _)| *sector).collect();
        dirty.iter().for_each(|sector| drop(self.versions.remove(sector)));
        dirty
    }

    /// The file as the disk may have it after a power failure.
    fn survivor(&self, name: &str, choose: &mut dyn FnMut(usize) -> usize) -> io::Result<Self> {
        let mut content = self.durable.clone();
        // Indexes are rebuilt after a power failure: that they are there or not is all that could matter.
        if name.starts_with("index/") {
            if !self.versions.is_empty() && choose(2) == 1 {
                content.copy_from_slice(&self.seen);
            }
            return Self::with(content, self.seen.len() as u64);
        }
        let bytes = match self.durable_bytes == self.seen.len() as u64 || choose(2) == 1 {
            true => self.seen.len(),
            false => self.durable_bytes as usize,
        };
        for (sector, versions) in &self.versions {
            let (from, to) = (sector * SECTOR_BYTES, (sector * SECTOR_BYTES + SECTOR_BYTES).min(content.len()));
            if let Some(version) = choose(versions.len() + 1).checked_sub(1) {
                content[from..to].copy_from_slice(&versions[version]);
            }
        }
        content.truncate(bytes);
        Self::with(content, bytes as u64)
    }

    fn copy(&self) -> io::Result<Self> {
        let copy = Self::with(self.seen.clone(), self.seen.len() as u64)?;
        Ok(Self {
            durable: self.durable.clone(),
            durable_bytes: self.durable_bytes,
            versions: self.versions.clone(),
            pages: self.pages.clone(),
            ..copy
        })
    }
}

impl State {
    fn inode(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&mut self, inode: u64) -> &mut SimFile {
        self.files.get_mut(&inode).expect("a region's file exists")
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn link(&mut self, name: &str, file: SimFile) -> u64 {
        self.next_inode += 1;
        self.files.insert(self.next_inode, file);
        self.change(NameChange::Link(name.into(), self.next_inode));
        self.next_inode
    }

    fn observe(&mut self) {
        let names: BTreeMap<u64, &String> = self.names.iter().map(|(name, inode)| (*inode, name)).collect();
        for (inode, file) in &mut self.files {
            file.observe(names.get(inode).map_or("an unlinked file", |name| name));
        }
    }

    /// Gives pages storage, if there is any left.
    fn charge(&mut self, inode: u64, from: u64, to: u64) -> io::Result<()> {
        for page in from as usize / PAGE_BYTES..(to as usize).div_ceil(PAGE_BYTES) {
            let is_new = !self.file(inode).pages.contains(&page);
            if let Some(room) = &mut self.room_pages
                && is_new
            {
                *room = room.checked_sub(1).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
            }
            self.file(inode).pages.insert(page);
        }
        Ok(())
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self {
            state: Arc::new(Mutex::new(State { boot: 1, ..State::default() })),
            flushes: Arc::default(),
            gate: Arc::default(),
            wall_us: Arc::new(AtomicU64::new(1_700_000_000_000_000)),
            processes: Arc::default(),
            faults: Arc::default(),
        }
    }
}

impl SimDisk {
    /// A process that starts now.
    pub fn process(&self) -> Arc<SimMedium> {
        let process = self.processes.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(SimMedium { disk: self.clone(), process, killed: AtomicBool::new(false) })
    }

    /// A disk that holds these files and nothing unflushed.
    pub fn with_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let disk = Self::default();
        {
            let mut state = disk.lock();
            for (name, content) in files {
                let bytes = content.len() as u64;
                state.link(&name, SimFile::with(content, bytes).expect("memory for a file"));
            }
            state.durable_names = state.names.clone();
            state.changes.clear();
        }
        disk
    }

    /// All files as processes see them now.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut state = self.lock();
        state.observe();
        state.names.iter().map(|(name, inode)| (name.clone(), state.files[inode].seen.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes what all files hold at this moment.
    pub fn observe(&self) {
        self.lock().observe();
    }

    /// The machine after a power failure now. `choose(n)` says which of `n` versions of something survived, 0 being the
    /// durable one and `n - 1` the newest; it is asked in the same order for the same state.
    pub fn crash(&self, choose: &mut dyn FnMut(usize) -> usize) -> SimDisk {
        let mut state = self.lock();
        state.observe();
        let mut names = state.durable_names.clone();
        for change in &state.changes {
            if choose(2) == 1 {
                change.apply(&mut names);
            }
        }
        let survivor = |(name, inode): (&String, &u64)| {
            Some((*inode, state.files.get(inode)?.survivor(name, choose).expect("memory for a file")))
        };
        let files = names.iter().filter_map(survivor).collect();
        let (next_inode, boot) = (state.next_inode, state.boot + 1);
        let after = State { files, durable_names: names.clone(), names, next_inode, boot, ..State::default() };
        SimDisk {
            state: Arc::new(Mutex::new(after)),
            flushes: Arc::default(),
            gate: Arc::default(),
            wall_us: Arc::new(AtomicU64::new(self.wall_us.load(Ordering::Relaxed))),
            processes: Arc::default(),
            faults: Arc::default(),
        }
    }

    /// How many versions each thing has that [`SimDisk::crash`] asks about, if names all survive.
    pub fn choices(&self) -> Vec<usize> {
        let mut choices = Vec::new();
        drop(self.crash(&mut |n| {
            choices.push(n);
            n - 1
        }));
        choices
    }

    /// From now on a copy of the machine is kept at each call, until [`SimDisk::take_moments`].
    pub fn record_moments(&self) {
        self.lock().moments = Some(Vec::new());
    }

    /// The machine as it was before each call since [`SimDisk::record_moments`].
    pub fn take_moments(&self) -> Vec<SimDisk> {
        self.lock().moments.take().unwrap_or_default()
    }

    /// How many more bytes can be given storage; `None` is no bound.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.lock().room_pages = bytes.map(|bytes| bytes / PAGE_BYTES as u64);
    }

    /// How many more flushes succeed; those that fail leave their data unwritten, and the next one does not know of it.
    pub fn set_flushes_left(&self, flushes: Option<u64>) {
        self.lock().flushes_left = flushes;
    }

    /// From now on the disk cannot read this range of a file.
    pub fn set_unreadable(&self, name: &str, range: Range<u64>) {
        self.lock().unreadable.add(name, range);
    }

    /// The same; reading it through an existing mapping causes a fault.
    pub fn set_faulting(&self, name: &str, range: Range<u64>) {
        let mut state = self.lock();
        let inode = state.inode(name).expect("a file of that name");
        state.unreadable.fault(inode, &range);
        state.unreadable.add(name, range);
    }

    /// From now on the disk can read everything again.
    pub fn set_readable(&self) {
        self.lock().unreadable.clear();
    }

    /// From now on this decides how calls end.
    pub fn set_faults(&self, faults: Option<Faults>) {
        *self.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = faults;
    }

    /// Whether pages that a failed flush left behind stay in the cache when it is asked to forget them: a kernel drops them
    /// only if nobody else looks at them.
    pub fn set_cache_sticks(&self, sticks: bool) {
        self.lock().cache_sticks = sticks;
    }

    /// How the call that begins now ends; `Ok` is how many bytes of a write.
    fn fault(&self, call: Call) -> io::Result<usize> {
        let fault = match &mut *self.faults.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(faults) => faults(call),
            None => Fault::None,
        };
        match fault {
            Fault::None => Ok(usize::MAX),
            Fault::Short(bytes) => Ok(bytes.max(1)),
            Fault::Error(error) => Err(io::Error::from_raw_os_error(error)),
            Fault::Stall(over) => {
                let mut guard = over.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                while !*guard {
                    guard = over.1.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                Ok(usize::MAX)
            }
        }
    }

    /// Holds back every flush of a file, those under way included, until they are let go; a process that is killed meanwhile
    /// sees its flush fail. What is flushed then is what is there when the flush ends.
    pub fn hold_flushes(&self, held: bool) {
        *self.flushes.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.flushes.changed.notify_all();
    }

    /// How many flushes are held back.
    pub fn flushes_held(&self) -> u64 {
        self.flushes.waiting.load(Ordering::Relaxed)
    }

    /// Makes every flush of a file take at least this long.
    pub fn set_flush_delay(&self, delay: Duration) {
        self.flushes.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// Sets the wall clock, microseconds since 1970.
    pub fn set_wall_us(&self, wall_us: u64) {
        self.wall_us.store(wall_us, Ordering::Relaxed);
    }

    fn freeze(&self, state: &State) -> SimDisk {
        let copy = |(inode, file): (&u64, &SimFile)| (*inode, file.copy().expect("memory for a file"));
        let frozen = State {
            files: state.files.iter().map(copy).collect(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            changes: state.changes.clone(),
            next_inode: state.next_inode,
            boot: state.boot,
            ..State::default()
        };
        SimDisk {
            state: Arc::new(Mutex::new(frozen)),
            flushes: Arc::default(),
            gate: Arc::default(),
            wall_us: Arc::new(AtomicU64::new(self.wall_us.load(Ordering::Relaxed))),
            processes: Arc::default(),
            faults: Arc::default(),
        }
    }
}

impl SimMedium {
    /// The process dies: its slot is free, its mappings are as it left them, and dropping its handles does nothing.
    pub fn kill(&self) {
        {
            let _held = self.disk.flushes.held.lock().unwrap_or_else(PoisonError::into_inner);
            self.killed.store(true, Ordering::Relaxed);
            self.disk.flushes.changed.notify_all();
        }
        self.disk.lock().slots.retain(|_, process| *process != self.process);
    }

    /// Sits out what slows flushes down; an error if the process dies meanwhile.
    fn await_flush(&self) -> io::Result<()> {
        let flushes = &self.disk.flushes;
        let delay_us = flushes.delay_us.load(Ordering::Relaxed);
        if delay_us > 0 {
            thread::sleep(Duration::from_micros(delay_us));
        }
        let mut held = flushes.held.lock().unwrap_or_else(PoisonError::into_inner);
        flushes.waiting.fetch_add(1, Ordering::Relaxed);
        while *held && !self.killed.load(Ordering::Relaxed) {
            held = flushes.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        flushes.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.killed.load(Ordering::Relaxed) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Flushes sectors of a file by a region of it, or by a descriptor that nobody has used before.
    fn flush_file(&self, inode: u64, region: Option<usize>, sectors: Range<usize>) -> io::Result<()> {
        self.await_flush()?;
        let fault = self.disk.fault(Call::Flush);
        let mut state = self.call();
        let fails = match &mut state.flushes_left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        let file = state.file(inode);
        file.observe("a flushed file");
        if fails || fault.is_err() {
            file.forget_versions(sectors); // Clean in the cache, never written, and nobody will try again.
            file.failures += 1;
        } else {
            file.flush(sectors);
        }
        let heard = region.map_or(file.failures, |region| file.heard.insert(region, file.failures).unwrap_or(0));
        match fault {
            Ok(_) if !fails && heard == file.failures => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
            Err(error) => Err(error),
        }
    }

    /// A file that is to be mapped; one of `bytes` is made if there is none and `create` says so.
    fn opened(&self, name: &str, bytes: u64, create: bool) -> io::Result<(MutexGuard<'_, State>, u64)> {
        self.disk.fault(Call::Map)?;
        let state = self.disk.lock();
        let inode = state.inode(name);
        if inode.is_ok() || !create {
            return Ok((state, inode?));
        }
        drop(state);
        self.disk.fault(Call::Allocate)?;
        let mut state = self.call();
        let inode = state.link(name, SimFile::new(bytes)?);
        Ok((state, inode))
    }

    /// The state, for a call that changes something; a moment to remember.
    fn call(&self) -> MutexGuard<'_, State> {
        let mut state = self.disk.lock();
        if state.moments.is_some() {
            state.observe();
            let moment = self.disk.freeze(&state);
            state.moments.as_mut().expect("just seen").push(moment);
        }
        state
    }
}

impl Medium for SimMedium {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.disk.lock();
        let inode = state.inode(name)?;
        let file = state.file(inode);
        file.observe(name);
        Ok(file.seen.clone())
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.disk.fault(Call::Replace)?;
        self.disk.fault(Call::Rename)?;
        let flushed = self.disk.fault(Call::FlushNames).map(drop);
        let mut state = self.call();
        if state.room_pages.is_some_and(|room| room < content.len().div_ceil(PAGE_BYTES) as u64) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let file = SimFile::with(content.to_vec(), content.len() as u64)?;
        let inode = state.link(name, file);
        if flushed.is_ok() {
            state.changes.pop();
            state.durable_names.insert(name.into(), inode);
        }
        flushed
    }

    fn map(&self, name: &str, bytes: u64, create: bool) -> io::Result<Arc<Region>> {
        let (mut state, inode) = self.opened(name, bytes, create)?;
        let file = state.file(inode);
        if (file.seen.len() as u64) < bytes {
            if !create {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.grow(bytes)?;
        }
        let region = map_file(file.memory.try_clone()?.into(), bytes, inode, is_segment(name))?;
        file.heard.insert(region.base as usize, file.failures);
        state.unreadable.watch(inode, &region);
        Ok(region)
    }

    fn map_within(&self, name: &str, reserved_bytes: u64, create: bool) -> io::Result<Arc<Region>> {
        let (mut state, inode) = self.opened(name, 0, create)?;
        let file = state.file(inode);
        let region = map_file_within(file.memory.try_clone()?.into(), reserved_bytes, inode)?;
        file.heard.insert(region.base as usize, file.failures);
        Ok(region)
    }

    fn extend(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        self.disk.fault(Call::Allocate)?;
        let mut state = self.call();
        state.charge(region.identity, from, to)?;
        let file = state.file(region.identity);
        if (file.seen.len() as u64) < to { file.grow(to) } else { Ok(()) }
    }

    fn read_at(&self, region: &Region, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let is_of = |name: &str| state.names.get(name) == Some(&region.identity);
        if state.unreadable.has(is_of, at..at + bytes.len() as u64) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        state.file(region.identity).memory.read_exact_at(bytes, at)
    }

    fn write(&self, region: &Region, at: u64, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..self.disk.fault(Call::Write)?.min(bytes.len())];
        let mut state = self.call();
        state.charge(region.identity, at, at + bytes.len() as u64)?;
        let file = state.file(region.identity);
        file.memory.write_all_at(bytes, at)?;
        file.soil(at as usize, bytes.len());
        Ok(bytes.len())
    }

    fn allocate(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        self.disk.fault(Call::Allocate)?;
        let mut state = self.call();
        state.charge(region.identity, from, to)?;
        state.file(region.identity).memory.write_all_at(&vec![0; (to - from) as usize], from)
    }

    fn reserve_range(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        self.disk.fault(Call::Allocate)?;
        self.call().charge(region.identity, from, to)
    }

    fn prefault(&self, _region: &Region, _from: u64, _to: u64) {}

    fn flush(&self, region: &Region) -> io::Result<()> {
        self.flush_file(region.identity, Some(region.base as usize), 0..usize::MAX)
    }

    fn flush_range(&self, region: &Region, from: u64, to: u64) -> io::Result<()> {
        let sectors = from as usize / PAGE_BYTES * (PAGE_BYTES / SECTOR_BYTES)
            ..(to as usize).div_ceil(PAGE_BYTES) * (PAGE_BYTES / SECTOR_BYTES);
        self.flush_file(region.identity, Some(region.base as usize), sectors)
    }

    fn flush_beside(&self, name: &str) -> Result<(), NotFlushed> {
        self.disk.fault(Call::Open).map_err(NotFlushed::Unopened)?;
        let inode = self.disk.lock().inode(name).map_err(NotFlushed::Unopened)?;
        self.flush_file(inode, None, 0..usize::MAX).map_err(NotFlushed::Refused)
    }

    fn flush_names(&self, folder: &str) -> Result<(), NotFlushed> {
        self.disk.fault(Call::Open).map_err(NotFlushed::Unopened)?;
        let fault = self.disk.fault(Call::FlushNames);
        let mut guard = self.call();
        let state = &mut *guard;
        if let Err(error) = fault {
            state.changes.retain(|change| change.folder() != folder); // As it is with a file's bytes.
            return Err(NotFlushed::Refused(error));
        }
        let (flushed, rest): (Vec<_>, _) =
            std::mem::take(&mut state.changes).into_iter().partition(|change| change.folder() == folder);
        flushed.iter().for_each(|change| change.apply(&mut state.durable_names));
        state.changes = rest;
        Ok(())
    }

    fn drop_cache(&self, name: &str) {
        let mut state = self.disk.lock();
        let Ok(inode) = state.inode(name) else { return };
        if state.cache_sticks {
            return;
        }
        let file = state.file(inode);
        file.observe(name);
        for sector in 0..file.seen.len() / SECTOR_BYTES {
            let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            if !file.versions.contains_key(&sector) && file.seen[range.clone()] != file.durable[range.clone()] {
                file.memory
                    .write_all_at(&file.durable[range.clone()], range.start as u64)
                    .expect("memory can be written");
                file.seen[range.clone()].copy_from_slice(&file.durable[range]);
            }
        }
    }

    fn retire(&self, region: &Region) {
        retire_region(region);
    }

    fn is_removed(&self, region: &Region) -> bool {
        !self.disk.lock().names.values().any(|inode| *inode == region.identity)
    }

    fn identify(&self, name: &str) -> io::Result<(u64, u64)> {
        let mut state = self.disk.lock();
        let inode = state.inode(name)?;
        Ok((inode, state.file(inode).seen.len() as u64))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.fault(Call::Rename)?;
        let mut state = self.call();
        state.inode(from)?;
        state.change(NameChange::Rename(from.into(), to.into()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.disk.lock();
        if state.inode(name).is_ok() {
            drop(state);
            self.disk.fault(Call::Rename)?;
            state = self.call();
            state.change(NameChange::Unlink(name.into()));
        }
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{folder}/");
        let state = self.disk.lock();
        Ok(state.names.keys().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    fn gate(&self, f: &mut dyn FnMut()) -> io::Result<()> {
        let _gate = self.disk.gate.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        f();
        Ok(())
    }

    fn attach(&self) -> io::Result<Option<Slot>> {
        let mut state = self.disk.lock();
        let slot = (1..=SLOT_MAX).find(|slot| !state.slots.contains_key(slot));
        if let Some(slot) = slot {
            state.slots.insert(slot, self.process);
        }
        Ok(slot)
    }

    fn detach(&self, slot: Slot) {
        self.disk.lock().slots.remove(&slot);
    }

    fn is_alive(&self, slot: Slot) -> bool {
        self.disk.lock().slots.get(&slot).is_some_and(|process| *process != self.process)
    }

    fn has_others(&self) -> io::Result<bool> {
        Ok(self.disk.lock().slots.values().any(|process| *process != self.process))
    }

    fn boot(&self) -> u64 {
        self.disk.lock().boot
    }

    fn wall_us(&self) -> u64 {
        self.disk.wall_us.fetch_add(1, Ordering::Relaxed)
    }

    fn is_inherited(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }
}
