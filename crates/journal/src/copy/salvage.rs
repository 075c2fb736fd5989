//! Salvage of a damaged journal: every entry with a valid checksum is copied into a new journal.
//!
//! The new journal's positions are above all of the old one's, and its epoch is too, so that references between entries (ids, positions,
//! seqnos) stay valid. Records keep their seqnos; reading a lost record returns an error.

use super::{StagingDir, open_made};
use crate::{
    entry::{ALIGN_BYTES, Entry, HEADER_BYTES, Kind, Position, Salt, payload::CARRIED_MAX_BYTES},
    journal::{Journal, MANIFEST, random_namespace, write_first_segment},
    medium::Medium,
    store::{manifest::Ancestor, segments::io_error},
    write::retention::is_kept,
};
use millrace_wire::{Code, EventId, LogName, Result};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

/// Bytes carried per commit, or a quarter of a segment if that is less; a single longer record goes alone.
const BATCH_BYTES: u64 = 256 << 10;
/// The maximum overhead of a carried entry beside its payload.
const CARRIED_BYTES: u64 = HEADER_BYTES + CARRIED_MAX_BYTES as u64 + ALIGN_BYTES;

/// Records of a log that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecords {
    /// The log.
    pub log: LogName,
    /// The first of them.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// Whether their bytes are there, but behind the journal's end: started, and never acknowledged as durable.
    pub unproven: bool,
}

/// The salvaged and the lost entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Entries that were carried over.
    pub entries: u64,
    /// Records that can be read in the new namespace.
    pub records: u64,
    /// Ranges of the old journal that were durable once and are lost. They may have contained the newest records of a log.
    pub damaged: Vec<(Position, Position)>,
    /// Records that cannot, by log.
    pub lost: Vec<LostRecords>,
    /// Runs whose end may be lost: they run again.
    pub uncertain: Vec<EventId>,
}

impl Journal {
    /// Records of a view that are within their log's history and cannot be read.
    pub fn lost_records(&self) -> Result<Vec<LostRecords>> {
        let (mut lost, mut payload) = (Vec::new(), Vec::new());
        let unproven: BTreeSet<(u32, u64)> = self.recovery().unproven.iter().copied().collect();
        for log in self.catalog()?.logs() {
            let mut add = |seqno: u64, unproven: bool| match lost.last_mut() {
                Some(LostRecords { log: name, to, unproven: before, .. })
                    if name == log.name() && *to + 1 == seqno && *before == unproven =>
                {
                    *to = seqno;
                }
                _ => lost.push(LostRecords { log: log.name().clone(), from: seqno, to: seqno, unproven }),
            };
            for seqno in log.earliest().max(1)..=log.latest() {
                if self.get(log, seqno, &mut payload).is_err() {
                    add(seqno, unproven.contains(&(log.id(), seqno)));
                }
            }
            for (_, seqno) in unproven.range((log.id(), log.latest() + 1)..=(log.id(), u64::MAX)) {
                add(*seqno, true);
            }
        }
        Ok(lost)
    }

    /// Carries all entries of this view that pass their checksums into a new namespace in `to`, which must be absent or empty. `finish`
    /// completes its directory before it is visible.
    pub fn salvage(
        &self,
        to: &Path,
        progress: &mut dyn FnMut(u64, u64),
        finish: &mut dyn FnMut(&Path, &Journal, &Salvaged) -> Result<()>,
    ) -> Result<Salvaged> {
        let inner = self.inner();
        let mut salvaged =
            Salvaged { lost: self.lost_records()?, damaged: self.recovery().damaged.clone(), ..Salvaged::default() };
        let staging_dir = StagingDir::new(to)?;
        let tail = self.tail();
        let first = inner.segments.number(self.tail().get() - 1) + 1;
        let mut manifest = inner.manifest(first, inner.epoch);
        manifest.lineage.retain(|ancestor| ancestor.epoch < inner.epoch);
        manifest.lineage.push(Ancestor { namespace: inner.namespace, epoch: inner.epoch });
        manifest.namespace = random_namespace()?;
        manifest.salt = Salt::random()?;
        manifest.pins.clear();
        manifest.defined = inner.segments.start(first);
        let medium = staging_dir.medium()?;
        write_first_segment(medium.clone(), &manifest, first)?;
        medium.replace(MANIFEST, &manifest.encode()).map_err(|error| io_error(MANIFEST, &error))?;
        drop(medium);
        let target = open_made(&staging_dir)?;
        let mut runs = Runs::default();
        let mut batch: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let (mut scan, catalog) = (self.scan_all(Position::default()), self.catalog()?);
        loop {
            let entry = match scan.next() {
                Ok(Some(entry)) if entry.position < tail => entry,
                Ok(_) => break,
                Err(error) if error.code() == Code::EntryDamaged => continue,
                Err(error) => return Err(error),
            };
            if matches!(entry.kind, Kind::Open | Kind::Define | Kind::Mark | Kind::Catalog | Kind::Generation) {
                continue;
            }
            // An entry that replaces a record is carried as that record, after the one that it replaced; positions have no meaning in the copy.
            if entry.shadow
                && !(entry.kind == Kind::Append && is_kept(&catalog, entry.subject, entry.seqno, entry.position.0))
            {
                continue;
            }
            runs.take(entry);
            let more = CARRIED_BYTES + entry.payload.len() as u64;
            if bytes + more > BATCH_BYTES.min(inner.segments.bytes() / 4) {
                salvaged.entries += carry(&target, &mut batch)?;
                bytes = 0;
                progress(entry.end.get(), tail.get());
            }
            bytes += more;
            batch.push(entry.clone());
        }
        salvaged.entries += carry(&target, &mut batch)?;
        target.sync(target.tail())?;
        salvaged.uncertain = runs.uncertain();
        let mut payload = Vec::new();
        for log in target.catalog()?.logs() {
            let seqnos = log.earliest().max(1)..=log.latest();
            salvaged.records += seqnos.filter(|seqno| target.get(log, *seqno, &mut payload).is_ok()).count() as u64;
        }
        finish(staging_dir.dir(), &target, &salvaged)?;
        drop((target, scan));
        staging_dir.finish()?;
        Ok(salvaged)
    }
}

fn carry(target: &Journal, batch: &mut Vec<Entry>) -> Result<u64> {
    if batch.is_empty() {
        return Ok(0);
    }
    target.commit(|transaction| {
        for entry in batch.iter() {
            transaction.carry(entry)?;
        }
        Ok(())
    })?;
    let carried = batch.len() as u64;
    batch.clear();
    Ok(carried)
}

/// Which runs are pending, and whether ends of runs are missing.
#[derive(Default)]
struct Runs {
    pending: HashMap<EventId, u32>,
    /// By function: the numbers of the ends that were found.
    ends: BTreeMap<u32, BTreeSet<u64>>,
}

impl Runs {
    fn take(&mut self, entry: &Entry) {
        match entry.kind {
            Kind::Trigger => drop(self.pending.insert(entry.id, entry.subject)),
            Kind::Done => {
                self.pending.remove(&entry.cause);
                self.ends.entry(entry.subject).or_default().extend(entry.ended());
            }
            _ => {}
        }
    }

    /// Ends are numbered: if one is missing between those that were found, any pending run of the function may be its.
    fn uncertain(&self) -> Vec<EventId> {
        let lacks = |function: &u32| {
            self.ends.get(function).is_some_and(|ends| {
                let (first, last) = (ends.first().unwrap_or(&0), ends.last().unwrap_or(&0));
                last - first + 1 != ends.len() as u64
            })
        };
        let mut runs: Vec<EventId> =
            self.pending.iter().filter(|(_, function)| lacks(function)).map(|(run, _)| *run).collect();
        runs.sort_unstable();
        runs
    }
}
