//! Compares tables with their databases, takes in the rows of a database, and writes all values to it again.

use super::{options_of, table, target_of};
use millrace_databases::{
    Engine, Found, Table, Target,
    writebehind::{Limits, Operation, Outcome, Row, Transaction},
};
use millrace_node::{
    AppendOptions, Durability, Log, Namespace, Position, Shows, Site, When,
    databases::{DatabaseSettings, Resync, newest_number},
};
use millrace_wire::{
    Code, Error, LogName, Result,
    table::{Condition, KeyRange, SCAN_MAX, TableEntry, TableRequest, show_key},
};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
};

/// Rows that are read from a database at once.
const PAGE_ROWS: u32 = 500;
/// Changes that are appended at once.
const LOAD_CHANGES: usize = 200;
/// How long a database may take for one step.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the rewriting of a database looks whether the host stops.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// Most differences that a comparison lists.
pub const DIFFERENCES_MAX: usize = 1000;

/// A key that a table and its database have with different values or versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key, for people.
    pub key: String,
    /// The version that the database ought to have; none if it ought to have none.
    pub expected: Option<u64>,
    /// The version that it has, if it has one.
    pub found: Option<u64>,
    /// Whether only the values differ.
    pub is_value: bool,
}

/// How a table compares with its database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Keys that were compared.
    pub keys: u64,
    /// Up to which batch the database had everything.
    pub number: u64,
    /// The first differences.
    pub differences: Vec<Difference>,
}

/// One connection to the database of a table, beside that of the host's writer.
struct Beside<'n> {
    namespace: &'n Namespace,
    engine: Box<dyn Engine>,
    target: Target,
}

fn unreachable(_: tokio::time::error::Elapsed) -> Error {
    Code::DatabaseUnreachable.error("the database does not answer")
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let failed = |error: std::io::Error| Code::HostStart.error(format!("an event loop: {error}"));
    Builder::new_current_thread().enable_all().build().map_err(failed)
}

/// The table and the settings of its database.
fn database_of(namespace: &Namespace, name: &LogName) -> Result<(Log, DatabaseSettings)> {
    let log = namespace.table(name)?;
    let missing = || Code::DatabaseNotFound.error(format!("table '{name}' has no database"));
    let database = log.table().and_then(|options| options.database).ok_or_else(missing)?;
    Ok((log, namespace.database(&database)?))
}

impl<'n> Beside<'n> {
    fn of(namespace: &'n Namespace, settings: &DatabaseSettings, tables: Vec<Table>) -> Result<Self> {
        let engine = millrace_databases::engine(&options_of(namespace, settings)?)?;
        Ok(Self { namespace, engine, target: target_of(namespace, settings, tables) })
    }

    async fn open(&mut self) -> Result<u64> {
        let standing = timeout(PATIENCE, self.engine.open(&self.target)).await.map_err(unreachable)??;
        Ok(standing.number)
    }

    /// Calls `visit` with the rows of each page, and the number that the database had when the page was read.
    async fn pages(&mut self, table: &str, visit: &mut dyn FnMut(u64, Vec<Found>) -> Result<()>) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = timeout(PATIENCE, self.engine.scan(table, after.as_deref(), PAGE_ROWS)).await;
            let page = page.map_err(unreachable)??;
            after = page.rows.last().map(|row| row.key.to_vec());
            visit(page.number, page.rows)?;
            if !page.has_more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Writes every value of a table as of then, and removes the other rows. The database keeps its number.
    async fn rewrite(&mut self, name: &LogName, when: When, number: u64) -> Result<()> {
        let (namespace, limits) = (self.namespace, self.engine.limits());
        let log = namespace.table(name)?;
        let mut others = Vec::new();
        let visit = &mut |_: u64, rows: Vec<Found>| {
            for row in rows {
                if entry(namespace, &log, &row.key, when)?.is_none() {
                    others.push(row.key);
                }
            }
            Ok(())
        };
        self.pages(name, visit).await?;
        let row = |key, operation, version| Row { table: (&**name).into(), key, operation, version };
        let deletes = others.into_iter().map(|key| row(key, Operation::Delete, 0)).collect();
        for part in parts(deletes, &limits) {
            self.write(number, number, part).await?;
        }
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            let (all, next) = part_from(namespace, &log, when, &key)?;
            let put = |entry: TableEntry| {
                row(entry.key.into(), Operation::Put(entry.value.unwrap_or_default().into()), entry.version)
            };
            for part in parts(all.into_iter().map(put).collect(), &limits) {
                self.write(number, number, part).await?;
            }
            from = next;
        }
        Ok(())
    }

    async fn write(&mut self, after: u64, number: u64, rows: Vec<Row>) -> Result<()> {
        let lost = || Code::DatabaseUnreachable.error("the connection took no transaction");
        self.engine.submit(Transaction { after, number, rows }).map_err(|_| lost())?;
        match timeout(PATIENCE, self.engine.next()).await.map_err(unreachable)? {
            Outcome::Written(_) => Ok(()),
            Outcome::Stale(_) => Err(Code::DatabaseOwned.error("somebody else writes to the stream")),
            Outcome::Refused { refusal, .. } => {
                Err(Code::DatabaseRefused.error(format!("{}: {}", refusal.code, refusal.detail)))
            }
            Outcome::Lost(error) => Err(error),
        }
    }
}

/// A table as of the batch with this number; as it is now, if the journal no longer says where that was.
fn as_of(namespace: &Namespace, number: u64) -> Result<When> {
    let upto = match number {
        0 => Some(Position::default()),
        number => namespace.journal().entry_of_sequence(number)?.map(|entry| entry.end),
    };
    Ok(When { upto, now_us: 0 })
}

fn entry(namespace: &Namespace, log: &Log, key: &[u8], when: When) -> Result<Option<TableEntry>> {
    let (answer, _) = namespace.read_table(log, &TableRequest::Get { key }, when)?;
    Ok(answer.entries.into_iter().next())
}

/// Calls `visit` with the entries of a table, in parts.
fn entries(
    namespace: &Namespace,
    log: &Log,
    when: When,
    visit: &mut dyn FnMut(Vec<TableEntry>) -> Result<()>,
) -> Result<()> {
    let mut from = Some(Vec::new());
    while let Some(key) = from {
        let (all, next) = part_from(namespace, log, when, &key)?;
        visit(all)?;
        from = next;
    }
    Ok(())
}

/// Entries from a key on, and the key from which to go on.
fn part_from(namespace: &Namespace, log: &Log, when: When, from: &[u8]) -> Result<(Vec<TableEntry>, Option<Vec<u8>>)> {
    let range = KeyRange { from, to: b"" };
    let request = TableRequest::Scan { range, limit: SCAN_MAX, keys_only: false };
    let (answer, _) = namespace.read_table(log, &request, when)?;
    let next = answer.entries.last().filter(|_| answer.more).map(|last| [&last.key, &b"\0"[..]].concat());
    Ok((answer.entries, next))
}

/// Whether the database has this value. It may write JSON in another way.
fn is_same(log: &Log, ours: &[u8], theirs: &[u8]) -> bool {
    let json = |bytes| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let is_json = log.table().is_some_and(|options| options.codec == millrace_wire::table::TableCodec::Json);
    ours == theirs || is_json && json(ours).is_some_and(|ours| json(theirs) == Some(ours))
}

/// Compares a table with its database: with everything that the database has so far.
///
/// # Errors
///
/// The table has no database, or the database cannot be read.
pub fn check_table(namespace: &Namespace, name: &LogName) -> Result<Comparison> {
    let (log, settings) = database_of(namespace, name)?;
    let options = log.table().copied().unwrap_or_default();
    let mut beside = Beside::of(namespace, &settings, vec![table(name, options.keys, options.codec)])?;
    let mut compared = Comparison::default();
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let differ = |difference: Difference, compared: &mut Comparison| {
        if compared.differences.len() < DIFFERENCES_MAX {
            compared.differences.push(difference);
        }
    };
    let first = runtime()?.block_on(async {
        let first = beside.open().await?;
        let mut visit = |number, rows: Vec<Found>| {
            let when = as_of(namespace, number)?;
            for row in rows {
                let expected = entry(namespace, &log, &row.key, when)?;
                let (version, value) = match &expected {
                    Some(entry) => (Some(entry.version), entry.value.as_deref().unwrap_or_default()),
                    None => (None, &[][..]),
                };
                // etcd keeps no versions.
                let is_version = row.version.is_none() && version.is_some() || row.version == version;
                let is_value = version.is_none() || is_same(&log, value, &row.value);
                if !is_version || !is_value {
                    let key = show_key(&row.key);
                    let difference = Difference { key, expected: version, found: row.version, is_value: is_version };
                    differ(difference, &mut compared);
                }
                compared.keys += 1;
                seen.insert(row.key.to_vec());
            }
            compared.number = number;
            Ok(())
        };
        beside.pages(name, &mut visit).await.map(|()| first)
    })?;
    let last = as_of(namespace, compared.number)?;
    entries(namespace, &log, as_of(namespace, first)?, &mut |all| {
        for missing in all.into_iter().filter(|entry| !seen.contains(&entry.key)) {
            compared.keys += 1;
            // One that was deleted meanwhile is not missing.
            if let Some(entry) = entry(namespace, &log, &missing.key, last)? {
                let (key, expected) = (show_key(&entry.key), Some(entry.version));
                differ(Difference { key, expected, found: None, is_value: false }, &mut compared);
            }
        }
        Ok(())
    })?;
    Ok(compared)
}

/// Puts the rows of the database into its table whose keys have no value there; returns how many. The host then writes them back, as they are.
///
/// # Errors
///
/// The table has no database, the database cannot be read, or a row is no value of the table.
pub fn load_table(namespace: &Namespace, name: &LogName) -> Result<u64> {
    let (log, settings) = database_of(namespace, name)?;
    let options = log.table().copied().unwrap_or_default();
    let mut beside = Beside::of(namespace, &settings, vec![table(name, options.keys, options.codec)])?;
    let mut loaded = 0;
    let mut load = |_: u64, rows: Vec<Found>| {
        let mut absent = Vec::new();
        for row in rows {
            if entry(namespace, &log, &row.key, When { upto: None, now_us: millrace_node::now_us() })?.is_none() {
                absent.push(row);
            }
        }
        for rows in absent.chunks(LOAD_CHANGES) {
            let changes: Vec<(&str, TableRequest<'_>)> = rows
                .iter()
                .map(|row| {
                    let (key, value, condition) = (&*row.key, &*row.value, Condition::Absent);
                    (&**name, TableRequest::Put { key, value, condition, ttl_ms: 0 })
                })
                .collect();
            drop(namespace.change_tables_gated(&changes, AppendOptions::default())?);
            loaded += changes.len() as u64;
        }
        Ok(())
    };
    runtime()?.block_on(async {
        beside.open().await?;
        beside.pages(name, &mut load).await
    })?;
    Ok(loaded)
}

/// Writes every value of these tables to the database, and removes all other rows. Afterwards the database has the number of the journal's newest
/// batch, which is returned. If it ends half-way, it begins anew.
pub(super) fn resync(
    namespace: &Namespace,
    settings: &DatabaseSettings,
    (names, tables): (Vec<LogName>, Vec<Table>),
    resync: &Resync,
    stops: &AtomicBool,
) -> Result<u64> {
    let newest = newest_number(namespace);
    let upto = namespace.journal().tail();
    // Nothing is sent that a power failure could take away here.
    namespace.settle(Site::Send, Shows::Report(upto), Some(Durability::Disk))?;
    let when = When { upto: Some(upto), now_us: 0 };
    let mut beside = Beside::of(namespace, settings, tables)?;
    beside.target.previous_owner.clone_from(&resync.previous_owner);
    let work = async {
        let number = beside.open().await?;
        for name in &names {
            beside.rewrite(name, when, number).await?;
        }
        beside.write(number, newest, Vec::new()).await.map(|()| newest)
    };
    let stopped = async {
        while !stops.load(Ordering::Acquire) {
            sleep(STOP_LOOK).await;
        }
        Err(Code::WritesWaiting.error("the host stops"))
    };
    runtime()?.block_on(async {
        tokio::select! {
            done = work => done,
            stopped = stopped => stopped,
        }
    })
}

/// Divides rows as the limits of a transaction demand.
fn parts(rows: Vec<Row>, limits: &Limits) -> Vec<Vec<Row>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for row in rows {
        let last = parts.last_mut().expect("there is one");
        if !last.is_empty() && (last.len() == limits.rows || bytes + row.bytes() > limits.bytes) {
            bytes = 0;
            parts.push(Vec::new());
        }
        bytes += row.bytes();
        parts.last_mut().expect("there is one").push(row);
    }
    parts
}
