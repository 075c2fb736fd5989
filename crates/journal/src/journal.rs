//! A namespace's journal, open in this process: creates, opens and closes it, and passes calls on to the other modules.

use crate::{
    catalog::{Catalog, Log},
    copy,
    entry::{Entry, FLAG_LAST, HEADER_BYTES, Header, Kind, Position, ReplaySeed, Salt, payload},
    medium::{FileMedium, LockReplaced, Medium, Slot, ViewMedium},
    options::{CreateOptions, OpenOptions, Settings},
    read::{check::CheckReport, find::Found, get::RecordMeta, scan::Scan},
    recovery::{self, Damage, Recovery},
    space::{Retention, check_retained},
    store::{
        arena::{self, Arena},
        control::{self, Control, Remains},
        index,
        manifest::{self, Ancestor, Manifest},
        sealed::{self, SealedFiles},
        segments::{FOLDER, SEGMENT_HEADER_BYTES, SegmentHeader, Segments, io_error},
    },
    write::{
        commit::{Committed, Transaction},
        flush::Flusher,
        lock::mark,
        prepare::Preparer,
        retention::Staying,
    },
};
use millrace_wire::{Code, Durability, Error, Hlc, LogName, NamespaceId, Result, histogram::Buckets};
use std::{
    collections::HashSet,
    io::{self, Read as _},
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::Thread,
    time::Duration,
};

pub(crate) const MANIFEST: &str = "manifest";

/// Everything one process shares among its threads.
pub(crate) struct Inner {
    pub medium: Arc<dyn Medium>,
    pub slot: Slot,
    /// The state that a lock held by this process protects.
    pub mark: u32,
    pub control: Control,
    /// The memory of indexes.
    pub arena: Arc<Arena>,
    pub segments: Segments,
    pub namespace: NamespaceId,
    pub epoch: u32,
    pub settings: Settings,
    pub retention: Retention,
    /// The identities of the namespace before it was restored as this one.
    pub lineage: Vec<Ancestor>,
    pub catalog: RwLock<Arc<Catalog>>,
    pub catalog_version: AtomicU64,
    pub transactions: AtomicU64,
    /// The buffer for batches that are written through the file; used under the journal's lock.
    pub staging: Mutex<Vec<u8>>,
    pub flusher: Flusher,
    /// The error of the disk, and the position up to which storage was needed; see [`Journal::refusal`].
    pub refusal: Mutex<Option<(u64, Error)>>,
    pub refuses: AtomicBool,
    pub preparer: OnceLock<Thread>,
    /// Called after each batch of this process.
    pub on_commit: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Records, by log and seqno, that indexes knew and that are nowhere in the journal.
    pub lost: Mutex<HashSet<(u32, u64)>>,
    /// Where entries were found by sequence last.
    pub found: Found,
    /// Results that retention need not compute again for a while.
    pub held: Mutex<Staying>,
    /// Held by who writes a CATALOG.
    pub cataloging: Mutex<()>,
    /// The tail when this process opened the namespace.
    pub opened_at: u64,
    /// Nothing may change.
    pub is_view: bool,
    recovery: Recovery,
    dir: PathBuf,
}

/// An open namespace; closes when the last handle goes.
pub(crate) struct Session {
    inner: Arc<Inner>,
    preparer: Option<Preparer>,
}

impl Deref for Session {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

/// A namespace's journal; cheap to clone. See the crate's documentation.
#[derive(Clone)]
pub struct Journal(pub(crate) Arc<Session>);

impl Journal {
    /// Makes a namespace in `dir`, which is created if need be and must not hold one yet.
    pub fn create(dir: &Path, options: &CreateOptions) -> Result<Journal> {
        if dir.join(MANIFEST).exists() {
            return Err(Code::NamespaceExists.error(format!("{} already contains a namespace", dir.display())));
        }
        let entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
        // Our own files are what a creation that was cut short left behind; whether they are, is looked at below.
        let ours = ["lock", "segments", "index", "control", "manifest.new"];
        if let Some(foreign) =
            entries.iter().map(|entry| entry.file_name()).find(|name| !ours.iter().any(|own| name == *own))
        {
            let what = format!("{} is not empty: it contains '{}'", dir.display(), foreign.display());
            return Err(if dir.join(FOLDER).exists() {
                Code::NamespaceIncomplete.error(format!("the manifest is missing; {what}"))
            } else {
                Code::NamespaceExists.error(what)
            });
        }
        let is_new = !dir.exists();
        let create = || {
            let medium = FileMedium::open(dir, true).map_err(|error| io_error(dir.display(), &error))?;
            Self::create_on(Arc::new(medium), dir, options)
        };
        create().inspect_err(|_| {
            // A new directory contains only files of this creation, unless it became a namespace.
            if is_new && !dir.join(MANIFEST).exists() {
                let _ = std::fs::remove_dir_all(dir);
            }
        })
    }

    /// Makes a namespace on a medium; see [`Journal::create`].
    pub fn create_on(medium: Arc<dyn Medium>, dir: &Path, options: &CreateOptions) -> Result<Journal> {
        if !options.segment_bytes.is_power_of_two()
            || !(manifest::SEGMENT_MIN_BYTES..=manifest::SEGMENT_MAX_BYTES).contains(&options.segment_bytes)
        {
            return Err(Code::ValueInvalid.error(format!(
                "segments of {} bytes; the size must be a power of two from 1 MiB to 1 GiB",
                options.segment_bytes
            )));
        }
        check_retained(options.retain_bytes, options.segment_bytes)?;
        let manifest = Manifest {
            namespace: random_namespace()?,
            salt: Salt::random()?,
            replay_seed: ReplaySeed::random()?,
            epoch: 0, // opening it, below, makes it 1
            segment_bytes: options.segment_bytes,
            retain_bytes: options.retain_bytes,
            retain_age_ms: options.retain_age.map(|age| age.as_millis() as u64),
            durability: options.durability,
            created_us: medium.wall_us(),
            first_segment: 0,
            defined: 0,
            next_id: 1,
            logs: Vec::new(),
            functions: Vec::new(),
            pins: Vec::new(),
            lineage: Vec::new(),
            requires: Vec::new(),
        };
        let mut result = Ok(());
        medium
            .gate(&mut || result = make_namespace(medium.clone(), &manifest))
            .map_err(|error| io_error("lock", &error))?;
        result.map_err(|error| error.within(dir.display()))?;
        Self::open_on(medium, dir, &OpenOptions::default())
    }

    /// Opens the namespace in `dir`.
    pub fn open(dir: &Path, options: &OpenOptions) -> Result<Journal> {
        let path = dir.join(MANIFEST);
        match std::fs::symlink_metadata(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                // Leftovers of an interrupted creation contain no records.
                if ViewMedium::open(dir, &[]).is_ok_and(|medium| records_without_manifest(&medium).unwrap_or(false)) {
                    return Err(Code::NamespaceIncomplete.error("the manifest is missing").within(dir.display()));
                }
                let shown = dir.display();
                return Err(Code::NotANamespace.error(match std::fs::metadata(dir) {
                    Err(_) => format!("there is no directory {shown}"),
                    Ok(found) if !found.is_dir() => format!("{shown} is a file, not the directory of a namespace"),
                    Ok(_) => format!("{shown} is not a namespace"),
                }));
            }
            Err(error) => return Err(io_error(path.display(), &error)),
            Ok(_) => {}
        }
        // Before anything is touched: is it ours to read at all?
        let bytes = std::fs::read(&path).map_err(|error| io_error(path.display(), &error))?;
        Manifest::decode(&bytes).map_err(|error| error.within(dir.display()))?;
        let medium = FileMedium::open(dir, false).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let missing = ["lock", FOLDER].map(|name| dir.join(name)).into_iter().find(|path| !path.exists());
                let missing = missing.unwrap_or_else(|| dir.join("lock"));
                Code::NamespaceIncomplete.error(format!("{} is missing", missing.display()))
            }
            _ => io_error(dir.join("lock").display(), &error),
        })?;
        Self::open_on(Arc::new(medium), dir, options).map_err(|error| error.within(dir.display()))
    }

    /// Opens the namespace on a medium; see [`Journal::open`].
    pub fn open_on(medium: Arc<dyn Medium>, dir: &Path, options: &OpenOptions) -> Result<Journal> {
        let mut result = None;
        medium
            .gate(&mut || result = Some(Inner::attach(medium.clone(), dir, Damage::Refuse)))
            .map_err(|error| io_error("lock", &error))?;
        let inner = Arc::new(result.expect("the gate ran it")?);
        let preparer = if options.background { Some(Preparer::start(&inner)?) } else { None };
        Ok(Journal(Arc::new(Session { inner, preparer })))
    }

    /// Opens a view of a namespace that no process has open, even of a damaged one, without changing it: all writes stay in memory. Damage
    /// is skipped and reported by [`Journal::recovery`]. Lost parts of the manifest and of definitions are recreated from the segments, as
    /// far as possible. A view accepts no appends.
    pub fn view(dir: &Path) -> Result<Journal> {
        Self::view_copy(dir, &[], 0)
    }

    /// The same of a copy, in which files of a namespace have other `names`, and which was durable up to `tail`.
    pub fn view_copy(dir: &Path, names: &'static [(&'static str, &'static str)], tail: u64) -> Result<Journal> {
        let medium = ViewMedium::open(dir, names).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => Code::NamespaceInUse.error("a process has it open").within(dir.display()),
            _ => io_error(dir.display(), &error),
        })?;
        Self::view_proven(Arc::new(medium), dir, tail).map_err(|error| error.within(dir.display()))
    }

    /// An error if a process has opened the namespace of this view since: then the view may have been wrong.
    pub fn check_undisturbed(&self) -> Result<()> {
        match self.0.medium.is_undisturbed() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Code::NamespaceInUse.error("a process opened it meanwhile")),
            Err(error) => Err(io_error(self.0.dir.display(), &error)),
        }
    }

    /// [`Journal::view`] of a medium that no other process uses.
    pub fn view_on(medium: Arc<dyn Medium>, dir: &Path) -> Result<Journal> {
        Self::view_proven(medium, dir, 0)
    }

    fn view_proven(medium: Arc<dyn Medium>, dir: &Path, durable: u64) -> Result<Journal> {
        let rebuilt = copy::rebuild(&medium)?;
        let mut inner = Inner::attach(medium, dir, Damage::StepOver { durable })?;
        inner.recovery.rebuilt = rebuilt;
        Ok(Journal(Arc::new(Session { inner: Arc::new(inner), preparer: None })))
    }

    /// Everything within.
    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// The longest record that it takes.
    pub fn record_max_bytes(&self) -> usize {
        crate::RECORD_MAX_BYTES.min(self.0.segments.bytes() / 4) as usize
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// The namespace's identity.
    pub fn namespace(&self) -> NamespaceId {
        self.0.namespace
    }

    /// The identities that the namespace had before it was restored, with their last epochs, oldest first.
    pub fn lineage(&self) -> &[Ancestor] {
        &self.0.lineage
    }

    /// The epoch: raised at every unclean open.
    pub fn epoch(&self) -> u32 {
        self.0.epoch
    }

    /// The default durability of appends.
    pub fn durability(&self) -> Durability {
        self.0.settings.durability
    }

    /// How long flushes of entries by this process took.
    pub fn flushes(&self) -> Buckets {
        self.0.flusher.took.now()
    }

    /// The findings of this open.
    pub fn recovery(&self) -> &Recovery {
        &self.0.recovery
    }

    /// All logs and functions as of now.
    pub fn catalog(&self) -> Result<Arc<Catalog>> {
        self.0.fresh_catalog()
    }

    /// [`Catalog::version`] as of now; one load.
    pub fn catalog_version(&self) -> u64 {
        self.0.control.writer.defined.load(Ordering::Acquire)
    }

    /// Calls `each` with the attributes of every definition of a function whose runs the journal may still have.
    pub fn functions_kept(&self, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.functions_kept(each)
    }

    /// The log of this name.
    pub fn log(&self, name: &LogName) -> Result<Log> {
        let catalog = self.catalog()?;
        catalog.log(name).cloned().ok_or_else(|| Code::LogNotFound.error(format!("no log '{name}'")))
    }

    /// Runs `f` under the namespace's lock and commits what it staged as one atomic batch; nothing if it fails or panics.
    /// `f` must be short, and must not commit itself.
    #[inline]
    pub fn commit<R>(&self, f: impl FnOnce(&mut Transaction<'_>) -> Result<R>) -> Result<Committed<R>> {
        self.0.commit(f)
    }

    /// Reads a record into `payload`, which is cleared first.
    #[inline]
    pub fn get(&self, log: &Log, seqno: u64, payload: &mut Vec<u8>) -> Result<RecordMeta> {
        self.0.get(log, seqno, Position(u64::MAX), payload)
    }

    /// When a record was appended, from the header of its entry: its bytes are neither copied nor verified, so that the time of a long record
    /// costs as little as that of a short one. Damage may make it wrong. Records of repairs and of devices are read as a whole.
    pub fn clock_of(&self, log: &Log, seqno: u64) -> Result<Hlc> {
        self.0.clock_of(log, seqno)
    }

    /// Reads a record if it was appended before `snapshot`; otherwise it is above the tail.
    pub fn get_before(&self, log: &Log, seqno: u64, snapshot: Position, payload: &mut Vec<u8>) -> Result<RecordMeta> {
        self.0.get(log, seqno, snapshot, payload)
    }

    /// Where a record stands now, or stood, if the log has left it behind. It is on disk once [`Journal::durable`] is above.
    pub fn position(&self, log: &Log, seqno: u64) -> Position {
        Position(self.0.position_of(log, seqno))
    }

    /// The seed of the random numbers of atomic runs. It must not be sent to clients.
    pub fn replay_seed(&self) -> ReplaySeed {
        self.0.settings.replay_seed
    }

    /// The newest seqno that was appended before `snapshot`; 0 if there is none.
    pub fn latest_before(&self, log: &Log, snapshot: Position) -> Result<u64> {
        crate::read::get::latest_before(self, log, snapshot)
    }

    /// The entry in a slot of a log that a repair put in place of the first version, if any.
    pub fn replaced(&self, log: &Log, seqno: u64) -> Result<Option<payload::Replaced>> {
        self.0.replaced(log, seqno)
    }

    /// The newest record of a log that is not void while `seqno` is the newest; the one before the oldest if all are.
    pub fn newest_upto(&self, log: &Log, seqno: u64) -> Result<u64> {
        self.0.newest(log, seqno)
    }

    /// All committed entries from a position on.
    pub fn scan(&self, from: Position) -> Scan {
        Scan::new(self.0.clone(), from)
    }

    /// The same, including shadow entries, which have no effect until a GENERATION refers to them.
    pub fn scan_all(&self, from: Position) -> Scan {
        self.scan(from).with_shadows()
    }

    /// The committed entry at a position.
    pub fn entry_at(&self, position: Position) -> Result<Entry> {
        self.0.entry_at(position.0)
    }

    /// The end of the committed journal.
    pub fn tail(&self) -> Position {
        Position(self.0.control.published.tail.load(Ordering::Acquire))
    }

    /// The oldest position kept.
    pub fn first(&self) -> Position {
        Position(self.0.control.upkeep.first.load(Ordering::Acquire))
    }

    /// Everything before this is on disk.
    pub fn durable(&self) -> Position {
        Position(self.0.control.durable())
    }

    /// Returns when everything before `upto` is on disk. One flush serves all who wait.
    pub fn sync(&self, upto: Position) -> Result<()> {
        self.0.sync(upto)
    }

    /// Returns the tail when it is after `seen`, at the timeout, or after a call of [`Journal::wake`].
    pub fn wait(&self, seen: Position, timeout: Duration) -> Position {
        self.0.wait(seen, timeout)
    }

    /// [`Journal::wait`] for those who run functions: batches of records that run none do not wake it. Nor does it sleep if
    /// [`Journal::wake`] was called since [`Journal::wakes`] returned `wakes`.
    pub fn wait_work(&self, seen: Position, wakes: u32, timeout: Duration) -> Position {
        self.0.wait_work(seen, wakes, timeout)
    }

    /// Returns the log's newest seqno when it is above `seen`, or at the timeout, or after [`Journal::wake`]. Changes of other logs do not
    /// wake such a waiter.
    pub fn wait_log(&self, log: &Log, seen: u64, timeout: Duration) -> Result<u64> {
        self.0.wait_log(log, seen, self.wakes(), timeout)
    }

    /// Returns when the log has grown beyond `seen`, or, without a log, when [`Journal::catalog_version`] is not `seen` any more;
    /// or at the timeout, or if [`Journal::wake`] was called since [`Journal::wakes`] returned `wakes`.
    pub fn wait_change(&self, log: Option<&Log>, seen: u64, wakes: u32, timeout: Duration) -> Result<()> {
        match log {
            Some(log) => self.0.wait_log(log, seen, wakes, timeout).map(drop),
            None => {
                self.0.wait_defined(seen, wakes, timeout);
                Ok(())
            }
        }
    }

    /// [`Journal::wait`] for a process that [`Journal::on_commit`] notifies of its own batches, which do not end this wait. As with
    /// [`Journal::wait_work`], a call of [`Journal::wake`] since `wakes` does.
    pub fn wait_foreign(&self, seen: Position, wakes: u32, timeout: Duration) -> Position {
        self.0.wait_foreign(seen, wakes, timeout)
    }

    /// Calls `reported` after each batch of this process, on the thread that committed it. It must be quick. Only one can be set: false if
    /// there is one already.
    pub fn on_commit(&self, reported: Box<dyn Fn() + Send + Sync>) -> bool {
        self.0.on_commit.set(reported).is_ok()
    }

    /// How often [`Journal::wake`] was called. Read it before checking whether to wait.
    pub fn wakes(&self) -> u32 {
        self.0.wakes()
    }

    /// Wakes all waiters for the tail, for definitions or for a log, in every process.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// The sealed files beside the journal.
    pub fn sealed(&self) -> SealedFiles<'_> {
        SealedFiles::of(&self.0)
    }

    /// Verifies every kept entry. `progress` gets the verified bytes and the total.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.0.check(progress)
    }
}

/// A number that cannot be guessed.
pub(crate) fn random_u64() -> Result<u64> {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.map_err(|error| io_error("/dev/urandom", &error))?;
    Ok(u64::from_le_bytes(bytes))
}

pub(crate) fn random_namespace() -> Result<NamespaceId> {
    loop {
        if let Some(id) = NamespaceId::new(random_u64()? & NamespaceId::MAX) {
            return Ok(id);
        }
    }
}

/// Writes the files of a new namespace. Runs within the gate: of two who create one at once, the second is refused.
fn make_namespace(medium: Arc<dyn Medium>, manifest: &Manifest) -> Result<()> {
    if medium.identify(MANIFEST).is_ok() {
        return Err(Code::NamespaceExists.error("it already contains a namespace"));
    }
    if records_without_manifest(&*medium)? {
        return Err(Code::NamespaceIncomplete.error("the manifest is missing, but the directory has records"));
    }
    write_first_segment(medium.clone(), manifest, 0)?;
    // Last: with the manifest the directory becomes a namespace.
    medium.replace(MANIFEST, &manifest.encode()).map_err(|error| io_error(MANIFEST, &error))
}

/// Whether there are segments with more in them than a creation that was cut short leaves: those of a namespace that lost
/// its manifest.
fn records_without_manifest(medium: &dyn Medium) -> Result<bool> {
    let names = match medium.list(FOLDER) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        names => names.map_err(|error| io_error(FOLDER, &error))?,
    };
    let first = crate::store::segments::name(0);
    for name in names {
        let name = format!("{FOLDER}/{name}");
        if name != first {
            return Ok(true);
        }
        let failed = |error: io::Error| io_error(&name, &error);
        // Its header and its OPEN.
        let mut behind =
            medium.read(&name).map_err(failed)?.into_iter().skip((SEGMENT_HEADER_BYTES + HEADER_BYTES) as usize);
        if behind.any(|byte| byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first segment with its OPEN entry, durable before the manifest names it.
pub(crate) fn write_first_segment(medium: Arc<dyn Medium>, manifest: &Manifest, number: u64) -> Result<()> {
    let name = crate::store::segments::name(number);
    let failed = |error: io::Error| io_error(&name, &error);
    medium.remove(&name).map_err(failed)?;
    medium.remove(control::NAME).map_err(failed)?;
    let segments =
        Segments::new(medium.clone(), manifest.segment_bytes, manifest.durability == Durability::Disk, manifest.salt);
    let region = segments.map(number, true)?;
    medium.allocate(&region, 0, 4096).map_err(failed)?;
    let (namespace, epoch) = (manifest.namespace.get(), manifest.epoch);
    let segment = SegmentHeader { namespace, number, base_sequence: 1, prev: 0, epoch, salt: manifest.salt };
    let mut entry = Header {
        length: HEADER_BYTES as u32,
        kind: Kind::Open as u8,
        flags: FLAG_LAST,
        sequence: 1,
        hlc: millrace_wire::Hlc::from_wall_us(manifest.created_us).get(),
        epoch,
        ..Header::default()
    };
    entry.cause = [manifest.salt.seal(segments.first_entry(number), 0), 0];
    entry.crc = manifest.salt.checksum(segments.first_entry(number), &entry.encode()[4..]);
    segments.write(segments.start(number), &segment.encode())?;
    segments.write(segments.first_entry(number), &entry.encode())?;
    medium.flush(&region).map_err(failed)?;
    medium.flush_names(FOLDER).map_err(|error| failed(error.into()))
}

impl Inner {
    /// Joins the processes that have the namespace open, or recovers it if there are none. Runs within the gate.
    fn attach(medium: Arc<dyn Medium>, dir: &Path, on_damage: Damage) -> Result<Inner> {
        let bytes = medium.read(MANIFEST).map_err(|error| io_error(MANIFEST, &error))?;
        let manifest = Manifest::decode(&bytes)?;
        let alone = !medium.has_others().map_err(|error| io_error("lock", &error))?;
        let slot = medium.attach().map_err(|error| match error.get_ref() {
            Some(replaced) if replaced.is::<LockReplaced>() => Code::NamespaceIncomplete.error(replaced.to_string()),
            _ => io_error("lock", &error),
        })?;
        let slot = slot.ok_or_else(|| Code::TooManyProcesses.error("255 processes have the namespace open"))?;
        let control = Control::map(&*medium).map_err(|error| {
            medium.detach(slot);
            io_error(control::NAME, &error)
        })?;
        let found = Arena::open(&medium);
        // No other process uses one.
        let has_indexes = found.is_ok();
        let arena = if alone { found.or_else(|_| Arena::create(&medium)) } else { found };
        let arena = arena.map_err(|error| {
            medium.detach(slot);
            io_error(arena::NAME, &error)
        })?;
        let mark = mark(slot, control.count_attachment());
        // The note there is from the previous owner of the slot.
        control.set_refusing(slot, None);
        let mut inner = Inner {
            segments: Segments::new(
                medium.clone(),
                manifest.segment_bytes,
                manifest.durability == Durability::Disk,
                manifest.salt,
            ),
            slot,
            mark,
            control,
            arena,
            namespace: manifest.namespace,
            epoch: manifest.epoch,
            settings: Settings {
                durability: manifest.durability,
                created_us: manifest.created_us,
                replay_seed: manifest.replay_seed,
            },
            retention: Retention::of(&manifest),
            lineage: manifest.lineage.clone(),
            catalog: RwLock::default(),
            catalog_version: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            staging: Mutex::default(),
            flusher: Flusher::default(),
            refusal: Mutex::default(),
            refuses: AtomicBool::new(false),
            preparer: OnceLock::new(),
            on_commit: OnceLock::new(),
            lost: Mutex::default(),
            found: Found::default(),
            held: Mutex::default(),
            cataloging: Mutex::default(),
            opened_at: 0,
            is_view: on_damage != Damage::Refuse,
            recovery: Recovery::default(),
            dir: dir.to_owned(),
            medium,
        };
        let result = inner.attach_to(&manifest, alone, has_indexes, on_damage);
        if let Err(error) = result {
            inner.medium.detach(slot);
            return Err(error);
        }
        inner.opened_at = inner.control.published.tail.load(Ordering::Acquire);
        Ok(inner)
    }

    fn attach_to(&mut self, manifest: &Manifest, alone: bool, has_indexes: bool, on_damage: Damage) -> Result<()> {
        let clean = on_damage == Damage::Refuse
            && has_indexes
            && self.control.is_clean(self.namespace.get(), self.medium.boot())
            && self.has_whole_segments(manifest);
        if alone && !(clean && self.has_right_indexes() && self.load_catalog(manifest).is_ok()) {
            return self.recover(manifest, on_damage);
        }
        if alone {
            let upkeep = &self.control.upkeep;
            if upkeep.marked.load(Ordering::Relaxed) > self.control.durable() {
                upkeep.marked.store(0, Ordering::Relaxed); // A flipped bit must not keep marks away.
            }
            upkeep.attested.store(0, Ordering::Relaxed);
            self.control.seal_words(); // The mark of the clean end covers them, and not their checksum.
            self.control.set_clean(false);
            return Ok(());
        }
        if !self.control.belongs_to(self.namespace.get()) {
            return Err(Code::NamespaceIncomplete
                .error("the control page was removed or replaced while another process has the namespace open"));
        }
        self.load_catalog(manifest)?;
        self.take_over()
    }

    /// Takes over from processes that died with a lock. One of them may have had the slot that is ours now: to everybody
    /// else it looks alive.
    fn take_over(&self) -> Result<()> {
        if self.write_lock().has_dead_owner() {
            drop(self.lock()?);
        }
        for lock in [self.prepare_lock(), self.retain_lock()] {
            if lock.has_dead_owner() {
                lock.acquire();
                lock.release();
            }
        }
        Ok(())
    }

    /// Whether counters and what leads to slots are what they were at the clean end: a seqno must not be given out twice.
    fn has_right_indexes(&self) -> bool {
        index::mark(&self.arena) == self.control.birth.counters.load(Ordering::Relaxed)
    }

    /// Whether all segments have files of full length.
    fn has_whole_segments(&self, manifest: &Manifest) -> bool {
        let tail = self.control.published.tail.load(Ordering::Acquire);
        (manifest.first_segment..=self.segments.number(tail.saturating_sub(1))).all(|number| {
            let file = self.medium.identify(&crate::store::segments::name(number));
            file.is_ok_and(|(_, bytes)| bytes >= self.segments.bytes())
        })
    }

    /// Recreates everything except manifest and segments, and begins a new epoch.
    fn recover(&mut self, manifest: &Manifest, on_damage: Damage) -> Result<()> {
        let mut remains = self.control.remains(self.namespace.get());
        if let Damage::StepOver { durable } = on_damage {
            remains.durable = remains.durable.max(durable);
        }
        if remains.flush_failed {
            // The cache may hold what the disk refused: what counts is what the disk has.
            for number in recovery::segment_numbers(self)? {
                self.medium.drop_cache(&crate::store::segments::name(number));
            }
        }
        // The durable watermark stays until a later one replaces it, so that an interrupted recovery hides no damage.
        self.control.reset(self.namespace.get(), self.medium.boot());
        self.arena = Arena::create(&self.medium).map_err(|error| io_error(arena::NAME, &error))?;
        sealed::remove_others(&*self.medium);
        let first = self.segments.start(manifest.first_segment);
        self.control.upkeep.first.store(first, Ordering::Release);
        let recovered = recovery::recover(self, manifest, &remains, on_damage)?;
        if recovered.last == 0 {
            return Err(Code::EntryDamaged.error("the journal has no valid entry"));
        }
        if manifest.epoch >= millrace_wire::EventId::EPOCH_MAX {
            return Err(Code::ManifestDamaged.error("the epoch has reached its maximum"));
        }
        let (writer, tail) = (&self.control.writer, recovered.tail);
        writer.last.store(recovered.last, Ordering::Release);
        writer.applied.store(tail, Ordering::Relaxed);
        writer.hlc.store(recovered.hlc, Ordering::Relaxed);
        writer.defined.store(recovered.catalog.version(), Ordering::Release);
        self.control.seal_words();
        self.control.upkeep.cataloged.store(recovered.cataloged, Ordering::Release);
        self.control.upkeep.ready.store(tail, Ordering::Release);
        self.publish(tail);
        self.catalog_version.store(recovered.catalog.version(), Ordering::Release);
        *self.catalog.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(recovered.catalog);
        // The data may be only in the page cache, and everything from now on depends on it.
        self.make_durable(first, tail, &remains)?;
        self.control.set_durable(tail);
        if on_damage != Damage::Refuse {
            self.recovery = recovered.report;
            return Ok(()); // Looking begins no epoch.
        }
        self.epoch = manifest.epoch + 1;
        self.write_manifest(manifest.first_segment, self.epoch)?;
        self.recovery = recovered.report;
        let payload = payload::open(self.recovery.discarded_bytes, self.settings.replay_seed);
        let end = self.commit(|transaction| transaction.opened(&payload))?.end;
        self.sync(end)
    }

    /// Makes all that recovery found durable. After a failed flush the cache may hold, as if it were written, what the disk
    /// refused: what was not known to be durable then is written once more, which makes the flush concern it.
    fn make_durable(&self, first: u64, tail: u64, remains: &Remains) -> Result<()> {
        let flushed = || {
            if remains.flush_failed {
                self.segments.rewrite(remains.durable.max(first), tail)?;
            }
            // The tail's own segment in any case, to its end: something behind the tail may have been cleared.
            let end = self.segments.start(self.segments.number(tail - 1) + 1);
            self.segments.flush(remains.durable.clamp(first, tail).min(tail - 1), end)
        };
        flushed().inspect_err(|error| {
            if error.code() == Code::FlushFailed {
                self.close_after_failed_flush(); // So that the next open does not believe the cache either.
            }
        })?;
        self.control.writer.poison.store(0, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn set_catalog(&self, catalog: Arc<Catalog>, version: u64) {
        let mut catalog = catalog;
        if catalog.version() != version {
            Arc::make_mut(&mut catalog).set_version(version);
        }
        *self.catalog.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = catalog;
        self.catalog_version.store(version, Ordering::Release);
    }

    pub(crate) fn cached_catalog(&self) -> Arc<Catalog> {
        self.catalog.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// The last process flushes everything, and records that.
    fn leave(&self) -> Result<(), Error> {
        let alone = !self.medium.has_others().map_err(|error| io_error("lock", &error))?;
        if alone && self.control.check_health().is_ok() {
            drop(self.lock()?); // Puts right what a dead process left.
            self.sync(Position(self.control.published.tail.load(Ordering::Acquire)))?;
            self.mark_the_end();
            self.control.birth.counters.store(index::mark(&self.arena), Ordering::Relaxed);
            self.control.set_clean(true);
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.preparer.take());
        let inner = &self.inner;
        if inner.medium.is_inherited() || inner.is_view {
            return;
        }
        // If the clean close fails, the next open recovers.
        let _ = inner.medium.gate(&mut || {
            if let Err(error) = inner.leave() {
                tracing::error!(
                    target: "journal", namespace = %inner.dir.display(), %error,
                    "the journal was not closed cleanly; records that were not flushed before may be lost"
                );
            }
            inner.medium.detach(inner.slot);
        });
    }
}
