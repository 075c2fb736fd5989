//! A namespace's own files, as one client in C uses them.

use crate::abi::{CError, CReceipt, CRecord, OnAppended};
use millrace_node::{
    Access, AppendOptions, Code, Durability, Error, Gated, Log, Namespace, Receipt, Record, Result, Served,
    default_name, owner,
};
use std::{
    collections::VecDeque,
    ffi::c_void,
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of records that one range or one step of a tail reads.
const RANGE_BYTES_MAX: usize = 1 << 20;
/// Records of one step of a tail.
const TAIL_RECORDS: u32 = 64;

/// One open namespace.
pub struct Files {
    access: Access,
    /// What the last call handed out.
    records: Vec<Record>,
    list: Vec<CRecord>,
    /// What a tail read ahead, the next one last.
    ahead: Vec<Record>,
    /// Appends whose answers nobody has heard yet.
    held: VecDeque<(i64, Gated<Receipt>)>,
    next_ticket: i64,
    failed: Option<Error>,
}

/// The namespace in `dir`, or where `millrace init` puts one there.
fn namespace_in(dir: &Path) -> PathBuf {
    let below = dir.join(".millrace");
    if !dir.join("manifest").exists() && below.is_dir() { below } else { dir.into() }
}

impl Files {
    pub fn open(dir: &Path) -> Result<Files> {
        let dir = namespace_in(dir);
        let served = Served::new(default_name(&dir), Namespace::open(&dir)?)?;
        // Anyone who may open the files is inside the trust domain of their owner.
        Ok(Files {
            access: served.access(&Arc::new(owner())),
            records: Vec::new(),
            list: Vec::new(),
            ahead: Vec::new(),
            held: VecDeque::new(),
            next_ticket: 1,
            failed: None,
        })
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    pub fn namespace(&self) -> &Namespace {
        self.access.served().namespace()
    }

    /// Starts an append; tells of earlier ones when `window` are held.
    pub fn append_nowait(
        &mut self,
        log: &str,
        data: &[u8],
        options: AppendOptions<'_>,
        window: u32,
        callbacks: &mut Callbacks<'_>,
    ) -> i64 {
        if self.held.len() >= window as usize {
            self.settle(callbacks);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.held.push_back((ticket, self.access.append(log, data, options)));
        ticket
    }

    /// Waits for all appends; the first refusal since the last time.
    pub fn drain(&mut self, callbacks: &mut Callbacks<'_>) -> Result<()> {
        self.settle(callbacks);
        self.failed.take().map_or(Ok(()), Err)
    }

    fn settle(&mut self, callbacks: &mut Callbacks<'_>) {
        // The newest first: one flush for it is one for all.
        let newest = self.held.pop_back().map(|(ticket, held)| (ticket, held.wait()));
        let others = self.held.drain(..).map(|(ticket, held)| (ticket, held.wait()));
        for (ticket, outcome) in others.chain(newest) {
            callbacks.tell(ticket, &outcome);
            if let Err(error) = outcome {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// A record, 0 for the newest; waits for one that is not there yet.
    pub fn get(&mut self, log: &str, seqno: u64, wait_ms: u32, durability: Option<Durability>) -> Result<CRecord> {
        self.wait_above(log, seqno.max(1) - 1, wait_ms)?;
        let record = self.access.get(log, seqno, durability).wait()?;
        self.records = vec![record];
        Ok(CRecord::of(&self.records[0]))
    }

    /// Returns once the newest record is above `seen`, or after `wait_ms`.
    fn wait_above(&self, log: &str, seen: u64, wait_ms: u32) -> Result<()> {
        if wait_ms > 0 {
            let log = self.access.log(log, None).wait()?;
            self.namespace().journal().wait_log(&log, seen, Duration::from_millis(wait_ms.into()))?;
        }
        Ok(())
    }

    pub fn range(
        &mut self,
        log: &str,
        from: u64,
        count: u32,
        durability: Option<Durability>,
    ) -> Result<(Log, &[CRecord])> {
        let found = self.access.log(log, durability).wait()?;
        self.records = self.access.range_of(&found, from, count, RANGE_BYTES_MAX, durability).wait()?;
        self.list.clear();
        self.list.extend(self.records.iter().map(CRecord::of));
        Ok((found, &self.list))
    }

    pub fn latest(&self, log: &str, above: u64, wait_ms: u32, durability: Option<Durability>) -> Result<u64> {
        self.wait_above(log, above, wait_ms)?;
        self.access.latest(log, durability).wait()
    }

    /// The log that a cursor belongs to, and where a tail begins there.
    pub fn tail(&mut self, log: &str, incarnation: u32, from: u64) -> Result<(u32, u64)> {
        self.ahead.clear();
        let found = self.log_of(log, incarnation)?;
        Ok((found.id(), self.access.cursor(&found, from, None).wait()?))
    }

    fn log_of(&self, log: &str, incarnation: u32) -> Result<Log> {
        let found = self.access.log(log, None).wait()?;
        if incarnation != 0 && incarnation != found.id() {
            let anew = Code::CursorIncarnation.error(format!("log '{log}' was deleted and recreated"));
            return self.access.refuse(anew, None).wait();
        }
        Ok(found)
    }

    /// The next record of a tail, if one comes in time.
    pub fn tail_next(
        &mut self,
        log: &str,
        (incarnation, from): (u32, u64),
        wait_ms: u32,
        durability: Option<Durability>,
    ) -> Result<Option<CRecord>> {
        if self.ahead.is_empty() {
            let found = self.log_of(log, incarnation)?;
            let start = Instant::now();
            let wait = Duration::from_millis(wait_ms.into());
            while found.latest() < from {
                let left = wait.saturating_sub(start.elapsed());
                if left.is_zero() {
                    return Ok(None);
                }
                self.namespace().journal().wait_log(&found, from - 1, left)?;
            }
            self.ahead = self.access.range_of(&found, from, TAIL_RECORDS, RANGE_BYTES_MAX, durability).wait()?;
            self.ahead.reverse();
        }
        self.records = self.ahead.pop().into_iter().collect();
        Ok(self.records.first().map(CRecord::of))
    }
}

/// Tells a program in C how its appends ended.
pub struct Callbacks<'e> {
    call: OnAppended,
    context: *mut c_void,
    error: &'e mut CError,
}

impl<'e> Callbacks<'e> {
    /// `call` may be called with `context` whenever the client is.
    pub fn new(call: OnAppended, context: *mut c_void, error: &'e mut CError) -> Self {
        Self { call, context, error }
    }

    fn tell(&mut self, ticket: i64, outcome: &Result<Receipt>) {
        let (status, receipt) = match outcome {
            Ok(receipt) => (0, Some(CReceipt::from(*receipt))),
            Err(error) => (self.error.note(error), None),
        };
        if let Some(call) = self.call {
            let receipt = receipt.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: the program named this function for this context; the receipt lives until it returns.
            unsafe { call(self.context, ticket, status, receipt) };
        }
    }
}
