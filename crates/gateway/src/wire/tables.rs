//! Tables that other namespaces follow, and reads that wait until a replica has something.

use super::{
    connection::Connection,
    requests::{Answer, Rationed},
    waits::Permits,
};
use crate::{Hosted, replicas::reached};
use futures_util::future::select_all;
use millrace_node::{
    Access, AppendOptions, EventId, Log,
    replicas::{Batches, Followed, FollowedRecord, Loaded},
};
use millrace_wire::{
    Result,
    protocol::{
        self, FollowTables, FollowedTable, Frame, Heading, LoadTable, LoadedTable, TableBatches, TableRecord, encode,
    },
    table::TableRequest,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// The longest wait for a batch.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// After this time a follower learns that the journal has grown, although no table that it follows has changed.
const UNRELATED: Duration = Duration::from_millis(100);

/// About how much memory records take.
pub(super) fn bytes(records: &[FollowedRecord]) -> usize {
    records.iter().map(|record| record.key.len() + record.value.as_ref().map_or(0, Vec::len) + 96).sum()
}

fn table(followed: &Followed) -> FollowedTable<'_> {
    FollowedTable { incarnation: followed.incarnation, latest: followed.latest, options: &followed.options }
}

fn record(record: &FollowedRecord) -> TableRecord<'_> {
    let FollowedRecord { table, seqno, id, hlc, key, value, expires_us, ends } = record;
    TableRecord {
        table: *table,
        seqno: *seqno,
        id: *id,
        hlc: *hlc,
        key,
        data: value.as_deref().unwrap_or_default(),
        is_deletion: value.is_none(),
        expires_us: *expires_us,
        ends: *ends,
    }
}

/// Writes batches.
pub(super) fn batches(out: &mut Vec<u8>, heading: Heading, batches: &Batches) {
    let Batches { tables, records, upto, is_newest } = batches;
    let (tables, records) = (tables.iter().map(table).collect(), records.iter().map(record).collect());
    encode(out, heading, &TableBatches { tables, records, upto: *upto, is_newest: *is_newest });
}

/// Writes records of a load.
pub(super) fn loaded(out: &mut Vec<u8>, heading: Heading, loaded: &Loaded) {
    let records = loaded.records.iter().map(record).collect();
    encode(out, heading, &LoadedTable { table: table(&loaded.table), records, more: loaded.more });
}

impl Connection {
    pub(super) fn follow_tables(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let FollowTables { tables, after, wait_ms } = frame.message()?;
        let tables = tables.into_iter().map(str::to_owned).collect();
        let follow = follow((access.clone(), self.waits.permits()), tables, after, wait_ms);
        self.waits.add(frame.heading.request, follow)
    }

    /// This looks at every key of the table, so it runs on a thread for long requests.
    pub(super) fn load_table(&mut self, access: &Access, frame: &Frame<'_>) -> Result<()> {
        let LoadTable { table, at, above } = frame.message()?;
        let (table, hosted, access) = (table.to_owned(), self.hosted.clone(), access.clone());
        let permits = self.waits.permits();
        let load = async move {
            let _permit = permits.acquire().await;
            hosted.define(access, move |access| access.load_table(&table, at, above)).await.map(Answer::LoadedTable)
        };
        self.waits.add(frame.heading.request, load)
    }

    /// Reads a table once it has what a token names.
    pub(super) fn read_after(&mut self, access: &Access, frame: &Frame<'_>, asked: &protocol::Table<'_>) -> Result<()> {
        let (table, request, durability) = (asked.table.to_owned(), asked.request.to_owned(), asked.durability);
        let after = asked.after;
        let (hosted, permits, access) = (self.hosted.clone(), self.waits.permits(), access.clone());
        let read = async move {
            reached(&access, &table, after).await?;
            let _permit = permits.acquire().await;
            read(&hosted, access, table, request, AppendOptions { durability, ..AppendOptions::default() }).await
        };
        self.waits.add(frame.heading.request, read)
    }
}

async fn read(
    hosted: &Arc<Hosted>,
    access: Access,
    table: String,
    request: Vec<u8>,
    options: AppendOptions<'static>,
) -> Result<Answer> {
    let ask = move |access: &Access| match TableRequest::decode(&request) {
        Ok(request) => access.ask_table(&table, &request, options),
        Err(error) => access.refuse(error, None),
    };
    hosted.define(access, ask).await.map(|answer| Answer::OfTable(answer.encode(), answer.token))
}

/// Batches behind an entry, once there are any; after a while, how far the journal has come without.
async fn follow(
    (access, permits): (Access, Permits),
    tables: Vec<String>,
    after: EventId,
    wait_ms: u32,
) -> Result<Answer> {
    let until = Instant::now() + Duration::from_millis(wait_ms.into()).min(WAIT_MAX);
    let names: Vec<&str> = tables.iter().map(String::as_str).collect();
    loop {
        let seen = access.served().tail();
        let logs: Vec<Log> = names.iter().filter_map(|name| access.table_to_follow(name)).collect();
        let latest: Vec<u64> = logs.iter().map(Log::latest).collect();
        let answer = {
            let _permit = permits.acquire().await;
            let Rationed { held, reserved, .. } =
                Rationed::of(access.follow_tables(&names, after).map(Answer::TableBatches));
            let answer = held.await?;
            drop(reserved);
            answer
        };
        let is_over = match &answer {
            Answer::TableBatches(batches) => {
                !batches.records.is_empty() || batches.upto != after || !batches.is_newest || after.is_none()
            }
            _ => true,
        };
        if is_over || Instant::now() >= until {
            return Ok(answer);
        }
        // Nothing wakes it while nothing is committed.
        let _ = timeout_at(until, access.served().advance(seen)).await;
        let growth = logs.iter().zip(latest).map(|(log, latest)| access.growth(log, latest));
        let growth: Vec<_> = growth.collect();
        if !growth.is_empty() {
            let _ = timeout_at(until.min(Instant::now() + UNRELATED), select_all(growth)).await;
        }
    }
}
