//! Repair: corrects past records and replays the runs that depended on them, while the namespace stays in use.
//!
//! ```text
//!   open ── corrections, as shadow entries ──> run: each run with an input that differs is replayed, in the order in which
//!                                              the runs had ended; its new records are shadow entries
//!   ready ──> apply: replay newer runs, behind a fence; one GENERATION points slots of logs to the shadow entries
//!   applied ──> rollback: a repair whose corrections are the original entries of the slots
//! ```
//!
//! A repair is completely in the journal: a log of the runtime ([`mod@book`]) has its progress, and shadow entries have its results. So a
//! process may die at any moment, and the next one resumes after the last replayed run. A run's new records take the places of its old
//! ones. If there are fewer, the rest is void; if there are more, the repair stops or, with `--append-new`, appends the rest to their logs
//! in the batch of its GENERATION. So seqnos do not change.
//!
//! Corrections that a source delivers late wait as amendments ([`mod@amend`]) until they become a repair, which the host applies
//! automatically.
//!
//! Records may have been sent to other namespaces. The namespaces that take part in a repair replay the runs that depend on such records,
//! and switch together ([`mod@across`]).
//!
//! A repair may also replace a function's code: its runs are replayed with the new code, and the GENERATION's batch deploys it.
//!
//! This crate runs no code and does not know the host: the trait [`Runner`] does both. Rights are checked elsewhere.

mod across;
mod amend;
mod apply;
mod book;
mod calls;
mod changes;
mod open;
mod overlay;
mod past;
mod session;
mod settle;
mod tables;
mod verify;

pub use across::{NoPeers, PartAsk, Peers, SentPage, Step, outcomes, part, sent_page};
pub use amend::{
    Amendments, Attempts, DEAD_LETTERS as AMENDMENT_DEAD_LETTERS, Due, Waiting, amend, amend_policy, amendments,
    declare_amendable, take_due,
};
pub use book::{
    CodeGiven, Counts, Covered, LateOf, Member, NotRun, PartOf, Phase, Progress, Repair, TopicKept, in_force, news,
    repair, repairs,
};
pub use changes::{Change, changes};
pub use open::{
    CodeRequest, Correction, Request, abandon, ask_apply, ask_run, check_functions, close, open, open_code, too_old,
    undo,
};
pub use session::{SLOTS_MAX, Session, drive};
pub use verify::{Verified, VerifiedRuns, verify};

use millrace_namespace::Definition;
use millrace_runtime::{Completion, Invocation, LogCalls};
use millrace_wire::{Error, EventId, Result};
use std::sync::Arc;

/// Runs the code of functions.
pub trait Runner {
    /// Runs a function with this definition on one record. The run is ended soon after `goes_on` has become false; then it has failed.
    fn run(
        &mut self,
        definition: &Arc<Definition>,
        invocation: Invocation<'_>,
        calls: &mut dyn LogCalls,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Completion>;

    /// The dead letter of a run that is given up.
    fn dead_letter(&self, letter: DeadLetter<'_>) -> Vec<u8>;
}

/// A run that is given up.
pub struct DeadLetter<'a> {
    /// The run.
    pub run: EventId,
    /// Its function.
    pub function: &'a str,
    /// The log of its record, the record's seqno and bytes.
    pub record: (&'a str, u64, &'a [u8]),
    /// The number of the last attempt.
    pub attempt: u32,
    /// Why it is given up.
    pub error: &'a Error,
}
