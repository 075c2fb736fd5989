//! Dead letters of writes that a database refuses.

use super::{WhenRefused, Write};
use crate::{
    Namespace, Shows, Site,
    admission::{Publish, Room, Stage},
    namespace::tables::internal_table,
};
use millrace_journal::Durability;
use millrace_wire::{
    Code, DatabaseName, EventId, JsonBytes, LogName, Result,
    table::{Condition, TableRequest, show_key},
};
use serde::Serialize;
use std::collections::BTreeSet;

/// A longer value is left out of its dead letter: the table has it.
const DATA_MAX_BYTES: usize = 64 << 10;

/// A write that the database has refused, alone or together with the others of its batch.
#[derive(Serialize)]
struct RefusedWrite<'a> {
    database: &'a str,
    table: &'a str,
    key: String,
    version: u64,
    batch: u64,
    code: &'a str,
    error: &'a str,
    deleted: bool,
    /// None if it is too long.
    #[serde(flatten)]
    data: Option<JsonBytes<'a>>,
}

/// The table of the runtime with the numbers of such batches.
fn table_of(database: &DatabaseName) -> String {
    format!("_refused/{database}")
}

impl Namespace {
    /// Makes a dead letter of each write of a batch, in the log `dead/TABLE`, durably and once. The batch is written without its writes from
    /// then on.
    ///
    /// # Errors
    ///
    /// The journal does not take them, or the settings of the database do not let the batch be given up.
    pub fn bury_writes(
        &self,
        database: &DatabaseName,
        number: u64,
        (code, error): (&str, &str),
        writes: &[Write],
    ) -> Result<()> {
        if self.database(database)?.on_refused != WhenRefused::DeadLetter {
            return Err(Code::DatabaseRefused.error(format!("batch {number}: {code}: {error}")));
        }
        let committed = self.journal().commit(|tx| {
            let table = internal_table(tx, &table_of(database))?;
            let mut publish = Publish::new(self, tx);
            let key = number.to_be_bytes();
            if publish.current(&table, &key, (0, true))?.has_value {
                return Ok(());
            }
            let by_runtime =
                |ordinal| Stage { cause: EventId::NONE, ordinal, room: Room::DeadLetter, named: None, ending: None };
            for (ordinal, write) in (1..).zip(writes) {
                let log: LogName = format!("dead/{}", write.table).parse()?;
                let data = write.value.as_deref().filter(|value| value.len() <= DATA_MAX_BYTES);
                let letter = RefusedWrite {
                    database,
                    table: &write.table,
                    key: show_key(&write.key),
                    version: write.version,
                    batch: number,
                    code,
                    error,
                    deleted: write.value.is_none(),
                    data: data.map(JsonBytes),
                };
                let letter = serde_json::to_vec(&letter).expect("names, numbers and text always make JSON");
                publish.dead_letter(tx, &log, &letter, by_runtime(ordinal))?;
            }
            let note = TableRequest::Put { key: &key, value: b"", condition: Condition::Always, ttl_ms: 0 };
            publish.change(tx, &table, &note, 0, by_runtime(0)).map(drop)
        })?;
        self.settle(Site::AppendBatch, Shows::Batch(committed.end), Some(Durability::Disk))
    }

    /// The numbers of the batches whose writes are dead letters.
    pub fn buried_writes(&self, database: &DatabaseName) -> Result<BTreeSet<u64>> {
        let all = self.internal_table(&table_of(database))?;
        let number = |key: &[u8]| key.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        Ok(all.iter().filter_map(|(key, _)| number(key)).collect())
    }
}
