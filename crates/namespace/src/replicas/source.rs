//! At the owner: the batches that changed tables, in the order of the journal, and the values of a table as of an entry.

use crate::{
    Namespace,
    gate::{Gated, Shows, Site},
};
use millrace_journal::{Durability, Entry, Kind, Log, Position};
use millrace_wire::{Code, EventId, Hlc, Result};

/// Tables of one request.
pub const BATCH_TABLES_MAX: usize = 64;
/// An answer ends with the batch that makes it as long as this.
const BYTES: usize = 512 << 10;
/// A batch that is longer than this is divided.
const DIVIDED_BYTES: usize = 4 << 20;
/// Entries that are read for one answer.
const ENTRIES_MAX: usize = 8192;
/// How far back the last batch that is no copy is looked for.
const BACK_MAX: u64 = 1 << 16;
/// Records of one answer to a load, and their bytes.
const LOAD_RECORDS: usize = 16_384;
const LOAD_BYTES: usize = 2 << 20;

/// A table that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Which one of its name it is.
    pub incarnation: u32,
    /// The seqno of its newest record.
    pub latest: u64,
    /// Its attributes as JSON.
    pub options: String,
}

impl Followed {
    fn of(log: &Log, latest: u64) -> Self {
        let options = log.table().copied().unwrap_or_default();
        let options = serde_json::to_string(&options).expect("plain data always serialises");
        Self { incarnation: log.id(), latest, options }
    }
}

/// A record of a table that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedRecord {
    /// Which table of the request.
    pub table: u32,
    /// Its number in the table's log.
    pub seqno: u64,
    /// Its id.
    pub id: EventId,
    /// When it was appended.
    pub hlc: Hlc,
    /// The key.
    pub key: Vec<u8>,
    /// The value; none if the key has none from here on.
    pub value: Option<Vec<u8>>,
    /// When it expires, in microseconds since 1970; 0 if never.
    pub expires_us: u64,
    /// Whether the records of its batch end with it.
    pub ends: bool,
}

/// Batches that changed the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// The tables, in the order of the request.
    pub tables: Vec<Followed>,
    /// The records.
    pub records: Vec<FollowedRecord>,
    /// The entry up to which this goes.
    pub upto: EventId,
    /// Whether nothing was behind it.
    pub is_newest: bool,
}

/// The newest records of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The table; its newest record is that as of the entry.
    pub table: Followed,
    /// The records, in the order of their seqnos.
    pub records: Vec<FollowedRecord>,
    /// Whether there are others behind them.
    pub more: bool,
}

impl Namespace {
    fn tables_of(&self, tables: &[&str]) -> Result<Vec<Log>> {
        if tables.is_empty() || tables.len() > BATCH_TABLES_MAX {
            let detail = format!("{} tables in one request; 1 to {BATCH_TABLES_MAX} are permitted", tables.len());
            return Err(Code::ValueInvalid.error(detail));
        }
        let own = |name: &&str| {
            crate::names::check_public(name)?;
            let log = self.table(name)?;
            // A chain of replicas would have tokens of several owners.
            if self.bindings()?.is_replica(log.id()) {
                let error = self.refuse_change(log.name());
                return Err(error.code().error(format!("{}; mirror it from there", error.detail())));
            }
            Ok(log)
        };
        tables.iter().map(own).collect()
    }

    /// The batches behind an entry that changed any of these tables, or none yet; without an entry, where the journal ends. They leave the gate
    /// once they are on this disk, whatever the durability of the namespace: a replica never has what its owner can lose.
    pub fn follow_tables_gated(&self, tables: &[&str], after: EventId) -> Result<Gated<Batches>> {
        let logs = self.tables_of(tables)?;
        let journal = self.journal();
        let mut batches =
            Batches { tables: logs.iter().map(|log| Followed::of(log, log.latest())).collect(), ..Batches::default() };
        let (shown, disk) = (&mut Vec::new(), Some(Durability::Disk));
        if after.is_none() {
            let (upto, end) = self.newest_batch()?;
            (batches.upto, batches.is_newest) = (upto, true);
            return Ok(self.gate().hold(Site::Send, batches, Shows::Report(end), disk));
        }
        let begin = self.entry_of(after)?;
        batches.upto = after;
        let tail = journal.tail();
        let mut scan = journal.scan(begin.end);
        let (mut bytes, mut whole, mut open_bytes) = (0, 0, 0);
        for count in 0.. {
            if scan.position() >= tail {
                batches.is_newest = true;
                break;
            }
            let Some(entry) = scan.next()? else {
                batches.is_newest = true;
                break;
            };
            let (id, last, carried, end) = (entry.id, entry.last, entry.carried, entry.end);
            if let Some(record) = followed(entry, &logs) {
                let length = record.key.len() + record.value.as_ref().map_or(0, Vec::len) + 64;
                (bytes, open_bytes) = (bytes + length, open_bytes + length);
                batches.records.push(record);
            }
            if last {
                if batches.records.len() > whole {
                    batches.records.last_mut().expect("there are more").ends = true;
                    shown.push(end);
                }
                (whole, open_bytes) = (batches.records.len(), 0);
                if !carried {
                    batches.upto = id;
                }
                if bytes >= BYTES || count >= ENTRIES_MAX {
                    break;
                }
            } else if open_bytes >= DIVIDED_BYTES && whole == 0 {
                // The rest of the batch comes with the next answers. All of it is committed, so the mark of its end is not known here: that of
                // everything counts.
                batches.upto = id;
                let shows = Shows::All(tail);
                check_kept(scan.gap())?;
                return Ok(self.gate().hold(Site::Send, batches, shows, disk));
            } else if open_bytes >= DIVIDED_BYTES {
                break;
            }
        }
        check_kept(scan.gap())?;
        batches.records.truncate(whole);
        let shows = match shown.is_empty() {
            true => Shows::Report(self.entry_of(batches.upto).map_or(tail, |entry| entry.end)),
            false => Shows::Records(shown),
        };
        Ok(self.gate().hold(Site::Send, batches, shows, disk))
    }

    /// The last entry of the newest batch that is none of copies, and its end.
    fn newest_batch(&self) -> Result<(EventId, Position)> {
        let journal = self.journal();
        let mut back = 1;
        while back <= BACK_MAX {
            let mut found = None;
            journal.visit(journal.newest(back)?, journal.tail(), &mut |entry| {
                if entry.last && !entry.carried {
                    found = Some((entry.id, entry.end));
                }
                true
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
            back *= 64;
        }
        Err(Code::JournalBlocked.error("the journal ends with copies of old entries; try again"))
    }

    /// The entry with this id.
    fn entry_of(&self, id: EventId) -> Result<Entry> {
        let journal = self.journal();
        if id.namespace() != Some(journal.namespace()) {
            let detail = format!("entry {id} is none of namespace {}", journal.namespace());
            return Err(Code::ReplicaDiverged.error(detail));
        }
        match journal.entry_of_sequence(id.sequence())? {
            Some(entry) if entry.id == id => Ok(entry),
            Some(_) => Err(Code::ReplicaDiverged.error(format!("the owner does not have entry {id}"))),
            None => {
                if id > self.newest_batch()?.0 {
                    return Err(Code::ReplicaDiverged.error(format!("the owner does not have entry {id}")));
                }
                Err(Code::ReplicaPassed.error(format!("the owner's journal no longer has entry {id}")))
            }
        }
    }

    /// The newest records of the keys of a table that have values, as of an entry that [`Namespace::follow_tables_gated`] named, above a seqno.
    pub fn load_table_gated(&self, table: &str, at: EventId, above: u64) -> Result<Gated<Loaded>> {
        let log = self.tables_of(&[table])?.remove(0);
        let (journal, end) = (self.journal(), self.entry_of(at)?.end);
        let passed = || Code::ReplicaPassed.error(format!("the owner's journal no longer has all entries behind {at}"));
        let is_kept = || if end < journal.first() { Err(passed()) } else { Ok(()) };
        is_kept()?;
        let found = self.tables().above(journal, &log, above, (LOAD_RECORDS, LOAD_BYTES), end);
        let found = found.map_err(|error| match error.code() {
            Code::TableVersionGone | Code::BelowHistory => passed(),
            _ => error,
        })?;
        let latest = journal.latest_before(&log, end)?;
        // Keys that were deleted since are only remembered as long as the journal has their deletions.
        is_kept()?;
        let record = |entry: millrace_wire::table::TableEntry| FollowedRecord {
            seqno: entry.version,
            hlc: Hlc::from_wall_us(entry.time_us),
            key: entry.key,
            value: entry.value,
            expires_us: entry.expires_us,
            ends: true,
            ..FollowedRecord::default()
        };
        let (records, more) = (found.entries.into_iter().map(record).collect(), found.more);
        let loaded = Loaded { table: Followed::of(&log, latest), records, more };
        let shows = Shows::Log { log: log.id(), upto: end };
        Ok(self.gate().hold(Site::Table, loaded, shows, Some(Durability::Disk)))
    }
}

fn check_kept(gap: bool) -> Result<()> {
    match gap {
        true => Err(Code::ReplicaPassed.error("the owner's journal dropped entries while they were read")),
        false => Ok(()),
    }
}

/// The record of a table that is followed.
fn followed(entry: &Entry, logs: &[Log]) -> Option<FollowedRecord> {
    if entry.kind != Kind::Append || entry.carried || entry.shadow {
        return None;
    }
    let table = logs.iter().position(|log| log.id() == entry.subject)?;
    let row = entry.row()?;
    Some(FollowedRecord {
        table: table as u32, // at most BATCH_TABLES_MAX
        seqno: entry.seqno,
        id: entry.id,
        hlc: entry.hlc,
        key: row.key.to_vec(),
        value: row.is_value().then(|| entry.payload.clone()),
        expires_us: row.expires_us,
        ends: false,
    })
}
