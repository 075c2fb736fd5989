//! The composition point: a namespace, the functions in it, and the host that runs them.
//!
//! ```text
//!  append --> admission --> journal: [APPEND, TRIGGER…]         any process, by mapping the namespace's files
//!                              |
//!                         dispatch::engine   decides, folding the journal: which runs may start now
//!                              |
//!  Host ---------------->  dispatch::pool    threads: claim [FIRED…], run, publish [READ…, APPEND…, TRIGGER…, DONE]
//!                              |
//!                         millrace_runtime   Wasm, Python, process, one-shot
//! ```
//!
//! [`Namespace`] is what any process may do with a namespace; [`Host`] is the one process that runs its functions.
//! Everything a host knows it learns from the journal, so it can die at any moment and another goes on.

pub mod application;
mod dispatch;
mod door;
pub mod functions;
mod host;
mod status;
pub mod upkeep;
mod why;

pub use dispatch::{HostEvent, Observer};
pub use door::{
    Door, Served,
    access::{Principal, Right, default_name, is_secret},
    blocked::{Blocked, Obstacle},
    limits::{CLIENT_HISTORY_MAX, CLIENT_INDEX_MAX_BYTES, Limits},
    submit::{SUBMISSION_PATIENCE, Submitted},
    watch::Growth,
};
pub use functions::{Change, Deployed};
pub use host::{Host, HostOptions};
pub use millrace_journal::{
    CreateOptions, Durability, Journal, Log, LostRecords, OpenOptions, Position, Rebuilt, Recovery, Salvaged,
};
pub use millrace_links as links;
pub use millrace_namespace::{
    AppendOptions, Attempt, BATCH_RECORDS_MAX, Death, Definition, Ending, FunctionSpec, FunctionStat, Gate, Held,
    Holder, Letters, LogStat, Namespace, NewRecord, Receipt, Record, RecordRef, Retried, RetriedAll, RunFilter,
    RunState, RunView, Runtime, Site, check_directory,
    definition::{
        BACKOFF_MAX, BOUND_LOGS_MAX, CONCURRENCY_MAX, DEAD_LETTER_HISTORY, OUTPUT_MAX_BYTES, PENDING_MAX, RETRIES_MAX,
        TIMEOUT_MAX,
    },
    keys::{KEY_MAX_BYTES, KEYS_MAX},
};
use millrace_namespace::{admission, bindings, definition, gate, holder, holes, outbox, runs};
pub use millrace_wire::{Address, Code, Error, EventId, Hlc, LogName, Name, RETRY_AFTER_MS, Result};
pub use status::{FunctionState, HostStatus, LiveFunction, LiveRun};
pub use why::{LinkReason, Reason, Why, why};
