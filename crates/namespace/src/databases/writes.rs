//! The writes of a journal to one database: batches in their order, each once, and only those that are durable here.

use super::{DatabaseMarks, DatabaseSettings, Progress, progress::ProgressFile};
use crate::Namespace;
use millrace_journal::{Catalog, Entry, Kind, Position, Scan};
use millrace_wire::{Code, DatabaseName, LogName, Result};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Progress without writes is noted after so much of the journal.
const NOTE_EVERY_BYTES: u64 = 256 << 10;

/// What happens to a row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: Arc<str>,
    /// The key.
    pub key: Vec<u8>,
    /// Its value; none if it is deleted.
    pub value: Option<Vec<u8>>,
    /// The version: the seqno of the record.
    pub version: u64,
}

/// The writes of one batch of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// The sequence number of its last entry.
    pub number: u64,
    /// When it was committed, in microseconds since 1970.
    pub time_us: u64,
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// What other databases must have written before.
    pub requires: Vec<(DatabaseName, u64)>,
}

/// Reads the writes for one database.
pub struct Writes {
    namespace: Namespace,
    marks: Arc<DatabaseMarks>,
    settings: DatabaseSettings,
    /// The tables that the database has; a record of another one ends the reading.
    tables: BTreeSet<LogName>,
    scan: Scan,
    catalog: Option<Arc<Catalog>>,
    /// Batches up to this number are not read.
    after: u64,
    open: Vec<Write>,
    /// A batch that has not been given out: it may not be durable yet.
    ready: Option<(WriteBatch, Position)>,
    /// Whether a record of a table came that the database does not have.
    is_other: bool,
    noted: Arc<Noted>,
}

/// What was given out, and how far it is written.
pub struct Noted {
    marks: Arc<DatabaseMarks>,
    name: DatabaseName,
    file: ProgressFile,
    given: Mutex<Given>,
}

struct Given {
    /// The number and the end of each batch that is not written.
    batches: VecDeque<(u64, Position)>,
    /// No batch that was not given out stands before this position.
    read_to: Position,
    noted: Progress,
}

impl Noted {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to a number is written; none if that is not known.
    pub fn written(&self, reached: Option<u64>) {
        let Some(reached) = reached else { return };
        let mut given = self.given();
        let mut position = None;
        while let Some((_, end)) = given.batches.pop_front_if(|(number, _)| *number <= reached) {
            position = Some(end);
        }
        let is_quiet = position.is_none();
        if given.batches.is_empty() {
            position = Some(given.read_to);
        }
        let number = reached.max(given.noted.number);
        let position = position.unwrap_or_default().max(given.noted.position);
        let ahead = position.get() - given.noted.position.get();
        let progress = Progress { number, position };
        if (is_quiet && number == given.noted.number && ahead < NOTE_EVERY_BYTES) || progress == given.noted {
            drop(given);
        } else {
            // A note that fails is made up for by the next one.
            let _ = self.file.note(progress);
            given.noted = progress;
            drop(given);
        }
        // Whoever reads the note first finds nothing that is not in it.
        self.marks.advance(&self.name, reached);
    }
}

impl Writes {
    /// Those for a database, whose tables are these.
    ///
    /// # Errors
    ///
    /// The file that notes progress cannot be opened.
    pub fn of(
        namespace: &Namespace,
        marks: &Arc<DatabaseMarks>,
        settings: &DatabaseSettings,
        tables: BTreeSet<LogName>,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| Code::HostStart.error(format!("the progress of a database: {error}"));
        let noted = Progress::of(namespace, settings);
        let file = ProgressFile::open(namespace, &settings.name).map_err(failed)?;
        let given = Given { batches: VecDeque::new(), read_to: noted.position, noted };
        let noted = Arc::new(Noted { marks: marks.clone(), name: settings.name, file, given: Mutex::new(given) });
        Ok(Self {
            namespace: namespace.clone(),
            marks: marks.clone(),
            settings: settings.clone(),
            tables,
            scan: namespace.journal().scan(Position::default()),
            catalog: None,
            after: 0,
            open: Vec::new(),
            ready: None,
            is_other: false,
            noted,
        })
    }

    /// What learns how far is written.
    pub fn noted(&self) -> Arc<Noted> {
        self.noted.clone()
    }

    /// A number that is not smaller than that of the newest batch.
    pub fn newest(&self) -> u64 {
        newest_number(&self.namespace)
    }

    /// Continues behind the batch with this number.
    ///
    /// # Errors
    ///
    /// MR7317: not all batches behind it are left.
    pub fn seek(&mut self, after: u64) -> Result<()> {
        let journal = self.namespace.journal();
        let noted = Progress::of(&self.namespace, &self.settings);
        let since = self.settings.since(journal.namespace());
        let from = if after >= noted.number {
            noted.position
        } else if let Some(entry) = journal.entry_of_sequence(after)? {
            entry.end
        } else {
            since
        };
        let from = from.max(since);
        if from < journal.first() {
            let first = journal.first();
            let missing = format!("the database has transaction {after}; the journal begins behind it, at {first}");
            return Err(Code::DatabaseBehind.error(missing));
        }
        (self.scan, self.after) = (journal.scan(from), after);
        self.open.clear();
        (self.ready, self.is_other) = (None, false);
        let mut given = self.noted.given();
        given.batches.clear();
        given.read_to = from;
        Ok(())
    }

    /// The next batch that is durable here, if there is one.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn take(&mut self) -> Result<Option<WriteBatch>> {
        if self.ready.is_none() {
            self.ready = self.read()?;
        }
        let Some((_, end)) = &self.ready else { return Ok(None) };
        // A database that has what a power failure can take away here would be ahead for ever.
        self.namespace.journal().sync(*end)?;
        let Some((mut batch, end)) = self.ready.take() else { return Ok(None) };
        batch.requires = self.marks.others(end, &self.settings.name)?;
        let mut given = self.noted.given();
        given.batches.push_back((batch.number, end));
        given.read_to = end;
        Ok(Some(batch))
    }

    fn read(&mut self) -> Result<Option<(WriteBatch, Position)>> {
        let tail = self.namespace.journal().tail();
        while !self.is_other && self.scan.position() < tail {
            let Some(entry) = self.scan.next()? else { break };
            let write = match entry.kind == Kind::Append && !entry.carried {
                true => written(&self.namespace, &mut self.catalog, &self.settings.name, entry)?,
                false => None,
            };
            let last = entry.last.then(|| (entry.id.sequence(), entry.hlc.wall_us(), entry.end));
            if self.scan.gap() {
                return Err(Code::DatabaseBehind.error("the journal has dropped entries that were not read"));
            }
            if let Some((log, write)) = write {
                // The writer starts again with this table.
                self.is_other = !self.tables.contains(&log);
                self.open.push(write);
            }
            let Some((number, time_us, end)) = last.filter(|_| !self.is_other) else { continue };
            let writes = std::mem::take(&mut self.open);
            if !writes.is_empty() && number > self.after {
                return Ok(Some((WriteBatch { number, time_us, writes, requires: Vec::new() }, end)));
            }
            self.noted.given().read_to = end;
        }
        Ok(None)
    }
}

/// A number that is not smaller than that of the journal's newest batch.
pub fn newest_number(namespace: &Namespace) -> u64 {
    let committed = namespace.journal().commit(|tx| Ok(tx.next_sequence()));
    committed.map_or(u64::MAX, |committed| committed.value.saturating_sub(1))
}

/// What a record writes to a database, if it does.
fn written(
    namespace: &Namespace,
    catalog: &mut Option<Arc<Catalog>>,
    database: &DatabaseName,
    entry: &Entry,
) -> Result<Option<(LogName, Write)>> {
    let Some(row) = entry.row() else { return Ok(None) };
    if catalog.as_ref().is_none_or(|catalog| catalog.log_by_id(entry.subject).is_none()) {
        *catalog = Some(namespace.journal().catalog()?);
    }
    let log = catalog.as_ref().and_then(|catalog| catalog.log_by_id(entry.subject));
    let is_its = |options: &millrace_wire::table::TableOptions| options.database == Some(*database);
    let Some(log) = log.filter(|log| log.table().is_some_and(is_its)) else { return Ok(None) };
    let value = row.is_value().then(|| entry.payload.clone());
    let write = Write { table: (&**log.name()).into(), key: row.key.to_vec(), value, version: entry.seqno };
    Ok(Some((log.name().clone(), write)))
}
