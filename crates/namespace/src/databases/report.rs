//! What the host says of the databases, for other processes and for people.

use super::{DatabaseMarks, DatabaseSettings, progress::FOLDER};
use crate::Namespace;
use crate::gate::{Shows, Site};
use millrace_journal::{Log, Position};
use millrace_wire::{Code, DatabaseName, EventId, Result};
use serde::{Deserialize, Serialize};
use std::{fs, path::PathBuf, sync::Arc};

/// Reports of another form are not read.
const REPORT_MAX_BYTES: u64 = 64 << 10;

/// Why nothing is written at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The code of the error.
    pub code: String,
    /// Its description.
    pub detail: String,
}

impl Trouble {
    /// As part of a sentence, with what to do about it. A writer that `is_stopped` needs somebody to do that.
    pub fn words(&self, is_stopped: bool) -> String {
        let Self { code, detail } = self;
        let state = if is_stopped { "its writer has stopped" } else { "nothing is written at present" };
        let remedy = Code::from_id(code).map_or("", Code::remedy);
        format!("{state}: {code}: {}. {remedy}", detail.trim_end_matches(['.', ';', ' ']))
    }
}

/// What the writer of a database has done since the host started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WriterReport {
    /// The kind and version of the server, once it was reached.
    pub server: String,
    /// Why nothing is written, if that is so.
    pub trouble: Option<Trouble>,
    /// Whether somebody has to do something about it.
    pub is_stopped: bool,
    /// Transactions that were written.
    pub transactions: u64,
    /// Their rows.
    pub rows: u64,
    /// Writes that were not sent, because a later one of the same key was in their transaction.
    pub coalesced: u64,
    /// Transactions that the database refused.
    pub refused: u64,
    /// How often the database was opened.
    pub opened: u64,
    /// Answers of the host that wait.
    pub waiting: u64,
}

/// A database and how far it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseStat {
    /// Its settings.
    pub settings: DatabaseSettings,
    /// What is not written; none if this process cannot know it.
    pub lag: super::Lag,
    /// What the host says.
    pub report: WriterReport,
}

fn path(namespace: &Namespace, database: &DatabaseName) -> PathBuf {
    namespace.dir().join(FOLDER).join(format!("{database}.json"))
}

impl WriterReport {
    /// Leaves it for other processes. Nothing depends on it.
    pub fn leave(&self, namespace: &Namespace, database: &DatabaseName) {
        let path = path(namespace, database);
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).expect("text and numbers always make JSON");
        // A database that could not even be set up has no folder yet.
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let _ = folder.and_then(|()| fs::write(&new, text)).and_then(|()| fs::rename(&new, &path));
    }

    /// Why nothing is written, and what to do about it, if that is so.
    pub fn words(&self) -> Option<String> {
        self.trouble.as_ref().map(|trouble| trouble.words(self.is_stopped))
    }

    /// What the host has left.
    pub(super) fn of(namespace: &Namespace, database: &DatabaseName) -> Self {
        let path = path(namespace, database);
        let is_small = fs::metadata(&path).is_ok_and(|found| found.len() <= REPORT_MAX_BYTES);
        let text = if is_small { fs::read(&path).ok() } else { None };
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

impl Namespace {
    /// What has to be waited for until everything that tables have now is in this database, or in all.
    pub fn unwritten(&self, database: Option<&DatabaseName>) -> Result<Vec<crate::Need>> {
        if self.databases()?.is_empty() {
            return Ok(Vec::new());
        }
        self.database_marks()?.all_written(database)
    }

    /// How many records of a log from one on, at most `most`, depend on no unwritten write. For a sender that must not block.
    ///
    /// # Errors
    ///
    /// MR7310: the first one does.
    pub fn count_written(&self, log: &Log, from: u64, most: u32) -> Result<u32> {
        let latest = log.latest();
        for count in 0..most {
            let seqno = from + u64::from(count);
            if seqno > latest {
                break;
            }
            // An unknown position is that of a record which is gone: reading it says so.
            let upto = self.journal().position(log, seqno).just_after();
            let waits = self.gate().needs(Site::Range, &Shows::Record(upto));
            match waits.first() {
                Some(_) if count > 0 => return Ok(count),
                Some(_) => {
                    let detail = format!("record {seqno} of log '{}' waits for the writes of a database", log.name());
                    return Err(Code::WritesWaiting.error(detail));
                }
                None => {}
            }
        }
        Ok(most)
    }

    /// What somebody sees who sees a run as a whole: the records that it depends on, if it has ended.
    pub fn run_shows(&self, run: EventId) -> Shows<'static> {
        let tail = self.journal().tail();
        // What an attempt at a pending run says can depend on anything that the run has read.
        let Ok(Some(fold)) = self.fold_of(run, false) else { return Shows::All(tail) };
        let catalog = self.journal().catalog();
        let item = catalog.ok().and_then(|catalog| catalog.function_by_id(fold.function)?.run(fold.run.number));
        match item.map(|item| item.closed).filter(|closed| *closed != 0) {
            Some(closed) => Shows::Record(Position::from_bytes(closed).just_after()),
            None => Shows::All(tail),
        }
    }

    /// Every database and how far it is written.
    pub fn database_stats(&self) -> Result<Vec<DatabaseStat>> {
        let all = self.databases()?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let marks: Arc<DatabaseMarks> = self.database_marks()?;
        let has_host = !matches!(self.host(), Ok(None));
        let stat = |settings: DatabaseSettings| {
            let mut lag = marks.lag(&settings.name)?;
            let report = if has_host { WriterReport::of(self, &settings.name) } else { WriterReport::default() };
            lag.waiting = lag.waiting.max(usize::try_from(report.waiting).unwrap_or(usize::MAX));
            Ok(DatabaseStat { settings, lag, report })
        };
        all.into_iter().map(stat).collect()
    }
}
