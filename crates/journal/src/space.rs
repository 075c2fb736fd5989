//! The disk that a namespace is on: limits that fit it, and what is done before it is full.
//!
//! ```text
//!   the disk:  [ others' files ][ segments … ][ needed to go on ]
//!                                              ^ below this much of free space, retention drops segments that only
//!                                                `retain_bytes` and `retain_age` keep
//! ```

use crate::{
    catalog::Definition,
    entry::{Header, Kind},
    journal::{Inner, Journal, MANIFEST},
    options::CreateOptions,
    store::{
        manifest::Manifest,
        segments::{FOLDER, io_error},
    },
    write::retention::RETAINED_MAX,
};
use millrace_wire::{Code, Result};
use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Storage that only what frees space may use: definitions that trim or remove logs, and copies that retention makes.
const UPKEEP_BYTES: u64 = 64 << 10;
/// A file that is removed when the disk is full, so that retention can write what it has to write before it removes more.
const RESERVE: &str = "reserve";
/// It takes as much as the copies of a segment may take, and at most this part of the disk.
const RESERVE_PART_MAX: u64 = 16;
/// Segments for which there is to be free space.
const FREE_SEGMENTS: u64 = 3;
/// The part of the disk that is to be free besides, up to a bound.
const FREE_PART: u64 = 32;
const FREE_MAX_BYTES: u64 = 64 << 20;
/// At most this part of a disk is to be free.
const FREE_PART_MAX: u64 = 4;
/// A new namespace retains at most this part of the free space, and a segment takes this part.
const RETAINED_PART: u64 = 4;
const SEGMENT_PART: u64 = 16;
/// Disks with this much free space have room for segments of the usual size.
const ROOMY_BYTES: u64 = 1 << 30;
const SEGMENT_MIN_BYTES: u64 = 1 << 20;
/// No age.
const NO_AGE: u64 = u64::MAX;

/// How a batch helps to free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Upkeep {
    None,
    /// It has copies or a CATALOG, without which no segment can be dropped: it may use the reserve.
    Copies,
    /// It trims or removes a log, or opens the journal for that: it may also use the storage that every other batch leaves.
    Frees,
}

impl Upkeep {
    #[inline]
    pub fn of(header: &Header) -> Self {
        const TRIM: u8 = Kind::Trim as u8;
        const OPEN: u8 = Kind::Open as u8;
        const MARK: u8 = Kind::Mark as u8;
        const CATALOG: u8 = Kind::Catalog as u8;
        match header.kind {
            TRIM | OPEN | MARK => Self::Frees,
            CATALOG => Self::Copies,
            _ if header.is_carried() => Self::Copies,
            _ => Self::None,
        }
    }

    pub fn of_definition(definition: &Definition) -> Self {
        match definition {
            Definition::RemoveLog { .. } | Definition::LogHistory { .. } => Self::Frees,
            _ => Self::None,
        }
    }
}

/// The size of a file system, and how much of it this process can still use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its size.
    pub total_bytes: u64,
    /// What is free.
    pub available_bytes: u64,
}

impl Space {
    /// Of the file system of a path, or of the nearest directory above it that exists.
    pub fn of(path: &Path) -> Option<Self> {
        let path = std::path::absolute(path).ok()?;
        crate::medium::space_of(path.ancestors().find(|above| above.exists())?)
    }

    /// How much is to stay free for segments of this size.
    pub(crate) fn needed_bytes(&self, segment_bytes: u64) -> u64 {
        let needed = FREE_SEGMENTS * segment_bytes + (self.total_bytes / FREE_PART).min(FREE_MAX_BYTES);
        needed.min(self.total_bytes / FREE_PART_MAX)
    }
}

impl CreateOptions {
    /// The sizes of a new namespace in `dir`: those that are given, and else the usual ones, or smaller ones on a small disk.
    #[must_use]
    pub fn fitting(dir: &Path, segment_bytes: Option<u64>, retain_bytes: Option<u64>) -> Self {
        let usual = Self::default();
        let available = Space::of(dir).map_or(u64::MAX, |space| space.available_bytes);
        let segment_bytes = segment_bytes.unwrap_or_else(|| {
            let part = (available / SEGMENT_PART).clamp(SEGMENT_MIN_BYTES, usual.segment_bytes);
            if available >= ROOMY_BYTES { usual.segment_bytes } else { 1 << part.ilog2() }
        });
        let retain_bytes = retain_bytes.unwrap_or_else(|| {
            let retained = usual.retain_bytes.min(available / RETAINED_PART).min(RETAINED_MAX * segment_bytes);
            retained / segment_bytes * segment_bytes
        });
        Self { segment_bytes, retain_bytes, ..usual }
    }
}

/// Free space that is so low that segments are dropped before their time, and that appends may fail soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowSpace {
    /// What is free.
    pub available_bytes: u64,
    /// What should be.
    pub needed_bytes: u64,
}

/// What retention keeps; another process may change it.
#[derive(Debug)]
pub(crate) struct Retention {
    bytes: AtomicU64,
    age_ms: AtomicU64,
}

impl Retention {
    pub fn of(manifest: &Manifest) -> Self {
        let retention = Self { bytes: AtomicU64::new(0), age_ms: AtomicU64::new(NO_AGE) };
        retention.set(manifest);
        retention
    }

    fn set(&self, manifest: &Manifest) {
        self.bytes.store(manifest.retain_bytes, Ordering::Relaxed);
        self.age_ms.store(manifest.retain_age_ms.unwrap_or(NO_AGE), Ordering::Relaxed);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn age_ms(&self) -> Option<u64> {
        Some(self.age_ms.load(Ordering::Relaxed)).filter(|age| *age != NO_AGE)
    }
}

impl Journal {
    /// The disk, if its free space is so low that retention keeps less than it should, or cannot make room.
    pub fn low_space(&self) -> Option<LowSpace> {
        self.inner().low_space()
    }

    /// Changes how much of the journal is kept; what is not given stays as it is. Returns whether anything changed. The next
    /// [`Journal::maintain`] of any process drops what is no longer retained.
    pub fn set_retention(&self, bytes: Option<u64>, age: Option<Option<Duration>>) -> Result<bool> {
        let inner = self.inner();
        if let Some(bytes) = bytes {
            check_retained(bytes, inner.segments.bytes())?;
        }
        if inner.medium.is_inherited() {
            return Err(Code::ForkedHandle.error("this process is a fork of the one that opened the namespace"));
        }
        let lock = inner.retain_lock();
        lock.acquire(); // From a dead one or not: the manifest is replaced as a whole.
        let changed = inner.change_retention(bytes, age);
        lock.release();
        changed
    }
}

/// Refuses more than segments of this size allow.
pub(crate) fn check_retained(bytes: u64, segment_bytes: u64) -> Result<()> {
    let most = RETAINED_MAX * segment_bytes;
    if bytes <= most {
        return Ok(());
    }
    Err(Code::ValueInvalid.error(format!(
        "{bytes} bytes to retain in segments of {segment_bytes}; the limit is {most}, and larger segments allow more"
    )))
}

impl Inner {
    /// Makes sure that a batch has storage up to `end`, or notes that the disk gives none.
    #[inline]
    pub(crate) fn ensure_room(&self, upkeep: Upkeep, end: u64) -> Result<()> {
        // What frees space finds storage even when nothing else does.
        let behind = end + UPKEEP_BYTES;
        match upkeep {
            Upkeep::None => self.ensure_ready(behind).inspect_err(|error| self.note_refusal(behind, error)),
            Upkeep::Copies => self.ensure_ready_to_free(behind),
            Upkeep::Frees => self.ensure_ready_to_free(end),
        }
    }

    fn low_space(&self) -> Option<LowSpace> {
        let space = self.medium.space()?;
        let needed_bytes = space.needed_bytes(self.segments.bytes());
        let available_bytes = space.available_bytes;
        (available_bytes < needed_bytes).then_some(LowSpace { available_bytes, needed_bytes })
    }

    /// How much free space is missing.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.low_space().map_or(0, |low| low.needed_bytes - low.available_bytes)
    }

    /// The caller holds `retain_lock`.
    fn change_retention(&self, bytes: Option<u64>, age: Option<Option<Duration>>) -> Result<bool> {
        let mut manifest = self.stored_manifest()?;
        let before = (manifest.retain_bytes, manifest.retain_age_ms);
        manifest.retain_bytes = bytes.unwrap_or(manifest.retain_bytes);
        if let Some(age) = age {
            manifest.retain_age_ms = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(NO_AGE - 1));
        }
        let is_changed = before != (manifest.retain_bytes, manifest.retain_age_ms);
        if is_changed {
            self.replace_manifest(&manifest)?;
        }
        self.retention.set(&manifest);
        Ok(is_changed)
    }

    pub(crate) fn stored_manifest(&self) -> Result<Manifest> {
        Manifest::decode(&self.medium.read(MANIFEST).map_err(|error| io_error(MANIFEST, &error))?)
    }

    /// Takes up what another process has changed; what cannot be read now is as it was.
    pub(crate) fn refresh_retention(&self) {
        if let Ok(stored) = self.stored_manifest() {
            self.retention.set(&stored);
        }
    }

    /// A manifest keeps the retention of the one that it replaces, which is `stored`.
    pub(crate) fn keep_retention(&self, manifest: &mut Manifest, stored: &Manifest) {
        self.retention.set(stored);
        (manifest.retain_bytes, manifest.retain_age_ms) = (stored.retain_bytes, stored.retain_age_ms);
    }

    /// Replaces the manifest, if need be with the space of the reserve.
    pub(crate) fn replace_manifest(&self, manifest: &Manifest) -> Result<()> {
        let replace = || self.medium.replace(MANIFEST, &manifest.encode()).map_err(|error| io_error(MANIFEST, &error));
        match replace() {
            Err(error) if error.code() == Code::DiskFull && self.release_reserve() => replace(),
            result => result,
        }
    }

    /// The storage that only retention may use.
    fn reserve_bytes(&self, space: &Space) -> u64 {
        (self.segments.bytes() + SEGMENT_MIN_BYTES).min(space.total_bytes / RESERVE_PART_MAX)
    }

    /// An error if appends would use the last storage, which retention needs: on a disk without any, it could not free more.
    pub(crate) fn check_space(&self, bytes: u64) -> Result<()> {
        let Some(space) = self.medium.space() else { return Ok(()) };
        let kept = self.reserve_bytes(&space);
        if space.available_bytes >= kept + bytes || self.medium.identify(&format!("{FOLDER}/{RESERVE}")).is_ok() {
            return Ok(());
        }
        let free = space.available_bytes;
        Err(Code::DiskFull.error(format!("{free} bytes are free, of which {kept} are kept to free more")))
    }

    /// Makes sure that there is a reserve, on a disk that may become full.
    pub(crate) fn keep_reserve(&self) {
        let Some(space) = self.medium.space() else { return };
        let needed = space.needed_bytes(self.segments.bytes());
        let name = format!("{FOLDER}/{RESERVE}");
        if !(needed / 2..4 * needed).contains(&space.available_bytes) || self.medium.identify(&name).is_ok() {
            return;
        }
        let reserve = || {
            let region = self.medium.map(&name, self.reserve_bytes(&space), true)?;
            self.medium.reserve(&region)?;
            self.medium.retire(&region);
            std::io::Result::Ok(())
        };
        if reserve().is_err() {
            let _ = self.medium.remove(&name);
        }
    }

    /// Gives the space of the reserve back to the disk; false if there is none.
    pub(crate) fn release_reserve(&self) -> bool {
        let name = format!("{FOLDER}/{RESERVE}");
        self.medium.identify(&name).is_ok() && self.medium.remove(&name).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_has_room_for_what_is_to_stay_free() {
        for total in [16u64 << 20, 64 << 20, 200 << 20, 2 << 30, 100 << 30] {
            let space = Space { total_bytes: total, available_bytes: total };
            for segment in [1u64 << 20, 64 << 20, 1 << 30] {
                assert!(space.needed_bytes(segment) <= total / 4);
            }
        }
        let roomy = Space { total_bytes: 1 << 40, available_bytes: 0 };
        assert_eq!(roomy.needed_bytes(64 << 20), (3 * 64 + 64) << 20);
    }
}
