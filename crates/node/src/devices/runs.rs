//! The runs of a device, as entries of this namespace's journal: each in one batch with what it left, directly before its end, so that it
//! saw what stands before its FIRED.
//!
//! ```text
//!   in the device   APPEND raw  …  APPEND mean  DONE           (the first attempt is not written, and its TRIGGER is implied)
//!   here            APPEND raw  …  TRIGGER  FIRED  READ  APPEND mean  DONE
//! ```
//!
//! The host never has to execute such a run: it comes with its end. Its record is one of the namespace; of a run whose record was lost, only
//! what it left is imported.

use super::functions::DeviceFunctions;
use millrace_device::Seen;
use millrace_journal::{
    Attempt, Catalog, End, Imported, ImportedAttempt, Origin, Outcome, Reads, Run as RunId, Transaction, What,
};
use millrace_namespace::{
    Namespace,
    admission::Publish,
    runs::flows::{Flow, Way},
};
use millrace_wire::{Code, EventId, Hlc, LogName, Result};
use std::collections::HashMap;

/// Outcomes of runs in a device.
const DEAD: u8 = 1;
const CANCELLED: u8 = 2;
/// Most records of a range of reads: a device has no longer history.
const READ_MAX: u64 = 1 << 28;

/// What is new of a device.
pub(super) enum New<'e> {
    /// A record that no run of the device appended.
    Outside(NewRecord<'e>),
    /// A run that has ended.
    Ended(EndedRun<'e>),
}

/// A record that is new.
pub(super) struct NewRecord<'e> {
    pub log: &'e str,
    pub seqno: u64,
    pub payload: &'e [u8],
    pub cause: EventId,
    pub id: EventId,
    pub clock: Hlc,
}

/// A run that has ended. Logs are named as in the device.
pub(super) struct EndedRun<'e> {
    pub function: &'e str,
    /// The record that ran it.
    pub record: (&'e str, u64),
    /// The number of the attempt that ended it.
    pub attempt: u32,
    /// Its outcome, and the number of the error.
    pub ended: (u8, Option<u64>),
    pub began: ImportedAttempt,
    pub reads: &'e [Seen],
    pub records: Vec<NewRecord<'e>>,
}

impl<'e> New<'e> {
    /// The records that are new with it.
    pub fn records(&self) -> &[NewRecord<'e>] {
        match self {
            New::Outside(record) => std::slice::from_ref(record),
            New::Ended(run) => &run.records,
        }
    }
}

/// What is imported with one commit.
pub(super) struct Imports<'a> {
    namespace: &'a Namespace,
    publish: Publish<'a>,
    device: &'a str,
    functions: &'a DeviceFunctions,
    /// The ids of the records of this batch.
    ids: HashMap<(&'a str, u64), EventId>,
    /// What flowed between logs and functions with its runs.
    pub flows: Vec<(Flow, u64)>,
}

impl<'a> Imports<'a> {
    pub fn new(
        namespace: &'a Namespace,
        tx: &mut Transaction<'_>,
        device: &'a str,
        functions: &'a DeviceFunctions,
    ) -> Self {
        Self {
            namespace,
            publish: Publish::new(namespace, tx),
            device,
            functions,
            ids: HashMap::new(),
            flows: Vec::new(),
        }
    }

    pub fn stage(&mut self, tx: &mut Transaction<'_>, new: &New<'a>) -> Result<()> {
        match new {
            New::Outside(record) => self.append(tx, record, (record.cause, None)),
            New::Ended(run) => self.run(tx, run),
        }
    }

    fn append(&mut self, tx: &mut Transaction<'_>, record: &NewRecord<'a>, by: (EventId, Option<u16>)) -> Result<()> {
        let (name, catalog) = (self.log(record.log)?, tx.catalog().clone());
        let log = millrace_namespace::found(catalog.log(&name), &name)?;
        let imported = Imported::Record { id: record.id, clock: record.clock };
        let appended = self.publish.import(tx, (log, record.seqno), record.payload, by, &imported)?;
        self.ids.insert((record.log, record.seqno), appended.id);
        Ok(())
    }

    fn run(&mut self, tx: &mut Transaction<'_>, run: &EndedRun<'a>) -> Result<()> {
        let catalog = tx.catalog().clone();
        let cause = self.id_of(&catalog, run.record)?;
        let function = self.functions.get(run).and_then(|function| catalog.function_by_id(function));
        let of_record = catalog.log(&self.log(run.record.0)?);
        let (Some(function), Some(log), false) = (function, of_record, cause.is_none()) else {
            // The records have the one that led to them as their cause, if that is known.
            return run.records.iter().try_for_each(|record| self.append(tx, record, (cause, None)));
        };
        let id = tx.trigger(function.id(), cause, log, run.record.1, Origin::Bound)?;
        let attempt = Attempt { attempt: run.attempt, revision: function.revision(), ..Attempt::default() };
        let fired = tx.fired_imported(function.id(), id, &attempt, &run.began)?;
        let begun = tx.next_sequence();
        tx.reads(function.id(), id, self.reads(&catalog, run)?)?;
        for (ordinal, record) in run.records.iter().enumerate() {
            self.append(tx, record, (id.id, Some(ordinal as u16)))?; // at most 255
        }
        self.count(&catalog, function.id(), log.id(), run)?;
        self.end(tx, (function.id(), id), run, (tx.next_sequence() - begun, fired.sequence()))
    }

    /// Counts as a host does when a run of its own ends.
    fn count(&mut self, catalog: &Catalog, function: u32, on: u32, run: &EndedRun<'a>) -> Result<()> {
        let mut add = |log, way, records| self.flows.push((Flow { function, log, way }, records));
        add(on, Way::Runs, 1);
        for (log, way, records) in
            (run.reads.iter().map(|seen| (&*seen.log, Way::Reads, seen.count.clamp(1, READ_MAX))))
                .chain(run.records.iter().map(|record| (record.log, Way::Appends, 1)))
        {
            let name: LogName = format!("{}/{log}", self.device).parse()?;
            if let Some(log) = catalog.log(&name) {
                add(log.id(), way, records);
            }
        }
        Ok(())
    }

    fn end(
        &self,
        tx: &mut Transaction<'_>,
        (function, id): (u32, RunId),
        run: &EndedRun<'_>,
        (effects, fired): (u64, u64),
    ) -> Result<()> {
        let (outcome, number) = run.ended;
        let outcome = match outcome {
            DEAD => Outcome::Dead,
            CANCELLED => Outcome::Cancelled,
            _ => Outcome::Done,
        };
        let code = number.filter(|_| outcome == Outcome::Dead).map(|number| format!("MR{number:04}"));
        let known = code.as_deref().and_then(Code::from_id);
        let error = match (&code, known) {
            (None, _) => String::new(),
            (Some(_), Some(known)) => format!("on device '{}': {}", self.device, known.cause()),
            (Some(_), None) => format!("on device '{}'", self.device),
        };
        let code = code.as_deref().unwrap_or("");
        tx.done(function, id, &End { outcome, effects, fired, code, error: &error, ..End::default() }).map(drop)
    }

    /// What a run has read: the records that are known here.
    fn reads(&self, catalog: &Catalog, run: &EndedRun<'_>) -> Result<Reads> {
        let mut reads = Reads::default();
        for Seen { log, from, count } in run.reads {
            let Some(log) = catalog.log(&self.log(log)?) else { continue };
            match count {
                0 => reads.log(log.id(), *from, What::Latest),
                _ => reads.range(log.id(), *from, (*count).min(READ_MAX), What::Record),
            }
        }
        Ok(reads)
    }

    /// The log that a log of the device is here.
    fn log(&self, log: &str) -> Result<LogName> {
        format!("{}/{log}", self.device).parse()
    }

    /// The id that a record of the device has here, if it is known.
    fn id_of(&self, catalog: &Catalog, (log, seqno): (&'a str, u64)) -> Result<EventId> {
        if let Some(id) = self.ids.get(&(log, seqno)) {
            return Ok(*id);
        }
        let Some(log) = catalog.log(&self.log(log)?) else { return Ok(EventId::NONE) };
        let found = self.namespace.journal().get(log, seqno, &mut Vec::new());
        Ok(found.map_or(EventId::NONE, |meta| meta.id))
    }
}
