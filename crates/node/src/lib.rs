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

mod admission;
pub mod application;
mod bindings;
mod definition;
mod deploy;
mod dispatch;
mod door;
mod host;
mod letters;
pub mod links;
mod namespace;
mod runs;
mod status;
pub mod upkeep;
mod why;

pub use definition::{
    BACKOFF_MAX, BOUND_LOGS_MAX, CONCURRENCY_MAX, DEAD_LETTER_HISTORY, Definition, FunctionSpec, OUTPUT_MAX_BYTES,
    PENDING_MAX, RETRIES_MAX, Runtime, TIMEOUT_MAX,
};
pub use deploy::{Change, Deployed};
pub use dispatch::{HostEvent, Observer};
pub use door::{
    Door, Served,
    access::{Principal, Right, default_name, is_secret},
    blocked::{Blocked, Obstacle},
    gate::{Gate, Held},
    keys::{KEY_MAX_BYTES, KEYS_MAX},
    limits::{CLIENT_HISTORY_MAX, CLIENT_INDEX_MAX_BYTES, Limits},
    site::Site,
    submit::{SUBMISSION_PATIENCE, Submitted},
    watch::Growth,
};
pub use host::{Holder, Host, HostOptions};
pub use letters::{Letters, Retried, RetriedAll};
pub use millrace_journal::{
    CreateOptions, Durability, Journal, Log, LostRecords, OpenOptions, Position, Rebuilt, Recovery, Salvaged,
};
pub use millrace_runtime::{Isolation, Level, SUPERVISOR, Shortcoming, supervise};
pub use millrace_wire::{Address, Code, Error, EventId, Hlc, LogName, Name, RETRY_AFTER_MS, Result};
pub use namespace::{
    AppendOptions, BATCH_RECORDS_MAX, FunctionStat, LogStat, Namespace, NewRecord, Receipt, Record, check_directory,
};
pub use runs::{Attempt, Death, Ending, RecordRef, RunFilter, RunState, RunView};
pub use status::{FunctionState, HostStatus, LiveFunction, LiveRun};
pub use why::{LinkReason, Reason, Why};
