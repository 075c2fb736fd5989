//! A consistent copy of a journal in use: a prefix of it, durable, with the manifest as of its end.
//!
//! Committed bytes do not change, so they are simply read. Only retention could overwrite them, because it reuses a dropped segment's file
//! for a new one. A pin prevents this. If no pin could be written, or it ended because the journal grew too much or the copy took too long,
//! the copy detects this afterwards and continues with what is left.

use super::{StagingDir, open_made};
use crate::{
    catalog::Pin,
    journal::{Inner, Journal, MANIFEST, random_namespace},
    medium::Medium,
    store::{
        manifest::{Ancestor, Manifest},
        segments::{self, FOLDER, Segments, io_error},
    },
};
use millrace_wire::{Code, Durability, Result};
use std::{
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Bytes given to the sink at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// How often retention may overtake the copy.
const ROUNDS_MAX: usize = 16;
/// How long the pin of a copy lasts beyond the end of its process.
const PIN_LASTS: Duration = Duration::from_secs(300);
/// How often it is renewed.
const PIN_RENEWED: Duration = Duration::from_secs(60);
/// The journal may grow by this number of segments while it is copied, or by the size that is retained.
const PIN_SEGMENTS: u64 = 16;

/// The pin of a copy in progress, if any.
struct Pinned<'j> {
    journal: &'j Journal,
    pin: Option<Pin>,
    renewed: Instant,
}

impl<'j> Pinned<'j> {
    fn begin(journal: &'j Journal) -> Self {
        let inner = journal.inner();
        let bytes_max = inner.retention.bytes().max(PIN_SEGMENTS * inner.segments.bytes());
        let owner = format!("a backup by process {}", std::process::id());
        // A full disk takes no pin, and can be backed up all the same.
        let pin = if inner.is_view { None } else { journal.pin(&owner, bytes_max, PIN_LASTS).ok() };
        Self { journal, pin, renewed: Instant::now() }
    }

    fn renew(&mut self) {
        if self.renewed.elapsed() >= PIN_RENEWED
            && let Some(pin) = &self.pin
        {
            self.renewed = Instant::now();
            let _ = self.journal.renew_pin(pin, PIN_LASTS);
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(pin) = &self.pin {
            let _ = self.journal.unpin(pin.id); // If not, it ends at its time.
        }
    }
}

/// Takes the bytes of segments.
pub trait SnapshotSink {
    /// Bytes of a segment, in order and without holes from 0 on.
    fn write(&mut self, segment: u64, bytes: &[u8]) -> Result<()>;
    /// The part of this segment that was written is not needed, and may be wrong.
    fn forget(&mut self, segment: u64) -> Result<()>;
    /// Reports the progress: bytes done, and the total.
    fn progress(&mut self, done: u64, total: u64);
}

/// The copied parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The manifest as of the copy's end.
    pub manifest: Vec<u8>,
    /// The first segment of it.
    pub first_segment: u64,
    /// Where the copy ends, as a position.
    pub tail: u64,
}

impl Snapshot {
    /// Makes a namespace of a snapshot in `to`, which must be absent or empty: another one, with an identity of its own.
    /// `read` gives the bytes of a segment from an offset on, nothing at its end. `finish` completes the directory before
    /// the namespace is visible.
    pub fn restore(
        &self,
        to: &Path,
        read: &mut dyn FnMut(u64, u64) -> Result<Vec<u8>>,
        finish: &mut dyn FnMut(&Path, &Journal) -> Result<()>,
    ) -> Result<()> {
        let staging_dir = StagingDir::new(to)?;
        let mut manifest = Manifest::decode(&self.manifest)?;
        manifest.lineage.retain(|ancestor| ancestor.epoch < manifest.epoch);
        manifest.lineage.push(Ancestor { namespace: manifest.namespace, epoch: manifest.epoch });
        manifest.namespace = random_namespace()?;
        let medium = staging_dir.medium()?;
        let kept = Segments::new(
            medium.clone(),
            manifest.segment_bytes,
            manifest.durability == Durability::Disk,
            manifest.salt,
        );
        for number in self.first_segment..=kept.number(self.tail - 1) {
            let failed = |error: std::io::Error| io_error(segments::name(number), &error);
            let region = kept.map(number, true)?;
            let mut at = 0;
            while at < kept.bytes() {
                let bytes = read(number, at)?;
                if bytes.is_empty() {
                    break;
                }
                // A write may take a part only.
                let end = at + bytes.len() as u64;
                while at < end {
                    let rest = &bytes[bytes.len() - (end - at) as usize..];
                    at += medium.write(&region, at, rest).map_err(failed)? as u64;
                }
            }
            medium.flush(&region).map_err(failed)?;
        }
        medium.flush_names(FOLDER).map_err(|error| io_error(FOLDER, &error.into()))?;
        medium.replace(MANIFEST, &manifest.encode()).map_err(|error| io_error(MANIFEST, &error))?;
        drop((kept, medium));
        let journal = open_made(&staging_dir)?;
        // Its own OPEN comes after.
        let found = journal.recovery();
        if journal.epoch() != manifest.epoch + 1 || found.discarded_bytes > 0 || found.tail.get() != self.tail {
            return Err(Code::BackupDamaged
                .error(format!("its journal ends at {}, but should end at {:#x}", found.tail, self.tail)));
        }
        finish(staging_dir.dir(), &journal)?;
        drop(journal);
        staging_dir.finish()
    }
}

impl Journal {
    /// Copies everything committed so far into `sink`, while other processes continue. The returned range is durable here.
    pub fn snapshot(&self, sink: &mut dyn SnapshotSink) -> Result<Snapshot> {
        let mut pinned = Pinned::begin(self);
        self.inner().snapshot(sink, &mut || pinned.renew())
    }
}

impl Inner {
    fn snapshot(&self, sink: &mut dyn SnapshotSink, renew: &mut dyn FnMut()) -> Result<Snapshot> {
        let segments = &self.segments;
        let first_of = || segments.number(self.control.upkeep.first.load(Ordering::Acquire));
        let mut first = first_of();
        let mut copied = segments.start(first);
        for _ in 0..ROUNDS_MAX {
            let (mut manifest, tail) = self.settled_manifest(first)?;
            manifest.pins.clear(); // They are of this namespace's journal, not of the copy's.
            let result = self.copy_range(copied.max(segments.start(first)), tail, sink, renew);
            let now = first_of();
            if now == first {
                result?;
                return Ok(Snapshot { manifest: manifest.encode(), first_segment: first, tail });
            }
            for number in first..now {
                sink.forget(number)?;
            }
            first = now;
            // Parts that could not be read, or that are in an incomplete segment, are copied again.
            copied = match result {
                Ok(()) => tail,
                Err(_) => {
                    for number in now..=segments.number(tail - 1) {
                        sink.forget(number)?;
                    }
                    segments.start(now)
                }
            };
        }
        Err(Code::BackupOvertaken
            .error(format!("retention dropped segments {ROUNDS_MAX} times while they were copied")))
    }

    fn copy_range(&self, from: u64, to: u64, sink: &mut dyn SnapshotSink, renew: &mut dyn FnMut()) -> Result<()> {
        let segments = &self.segments;
        let (mut at, mut copy) = (from, vec![0; CHUNK_BYTES as usize]);
        while at < to {
            let bytes = CHUNK_BYTES.min(segments.room(at)).min(to - at);
            let copy = &mut copy[..bytes as usize];
            segments.copy(at, copy)?;
            sink.write(segments.number(at), copy)?;
            at += bytes;
            renew();
            sink.progress(at - from, to - from);
        }
        Ok(())
    }
}
