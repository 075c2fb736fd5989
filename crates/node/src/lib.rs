//! The host: combines the crates below, serves namespaces, runs their functions and maintains them.
//!
//! ```text
//!  gateway ──> Access ── check ──> namespace ── gate ──> answer
//!  cli ──────> Host ── dispatch           any process, by mapping the namespace's files
//!              Changes ── application, dispatch
//!              devices ── device, namespace
//!              upkeep, why ── all of them
//! ```
//!
//! [`Namespace`] has the operations that any process may use; [`Host`] is the one process that runs its functions. A host derives all its
//! state from the journal, so it can die at any moment, and another host continues.
//!
//! `gateway`, `cli` and the SDKs import this crate only, which exports what they need of the crates below.

mod access;
mod audit;
pub mod changes;
pub mod cluster;
pub mod devices;
pub mod documents;
mod facts;
mod host;
pub mod invoke;
pub mod manage;
pub mod mqtt;
mod objects;
pub mod pools;
pub mod repairs;
pub mod secrets;
mod slot;
mod trace;
pub mod upkeep;
mod why;

pub use access::{
    Access, Served,
    blocked::{Blocked, Obstacle},
    default_name, hinted,
    limits::{CLIENT_HISTORY_MAX, CLIENT_INDEX_MAX_BYTES, Limits},
    objects::{CallRight, ShownObject},
    submit::{SUBMISSION_PATIENCE, Submitted},
    watch::{Advance, AppendedRecords, End, Growth},
};
pub use audit::{AUDIT_HISTORY, Act, Audited, audit, audited};
pub use documents::series::{SERIES_RECORDS_MAX, Span, rate, series};
pub use host::{Host, HostOptions};
pub use millrace_application as application;
pub use millrace_causality::{Link, TreeLimits};
pub use millrace_dispatch::{
    HostEvent, Isolation, Level, Observer, SUPERVISOR, Shortcoming,
    functions::{self, Change, Deployed},
    status::{FunctionState, HostStatus, LiveFunction, LiveRun},
    supervise,
};
pub use millrace_documents::{Reason, low_space};
pub use millrace_entities::{Called, Shown};
pub use millrace_journal::{
    CreateOptions, Durability, Journal, Log, LostRecords, LowSpace, OpenOptions, Pin, Position, Rebuilt, Recovery,
    Salvaged, Space,
};
pub use millrace_links as links;
pub use millrace_namespace::{
    AppendOptions, Attempt, BATCH_RECORDS_MAX, Backfilled, DeadLetters, Definition, Ending, Free, FunctionSpec,
    FunctionStat, Gate, Gated, Holder, KeysRead, Letters, LogStat, Marks, Namespace, Need, NewRecord, Of, Receipt,
    Record, RecordRef, ResultKind, Retried, RetriedAll, RunError, RunFilter, RunIsolation, RunPage, RunResult,
    RunState, RunView, Runtime, Shows, Site, Stretch, TOKEN_PATIENCE, TableStat, Watermark, WhichKeys, check_directory,
    definition::{
        AmendPolicy, BACKOFF_MAX, BOUND_LOGS_MAX, CONCURRENCY_MAX, DEAD_LETTER_HISTORY, LogScope, OUTPUT_MAX_BYTES,
        PENDING_MAX, RETRIES_MAX, Rights, SendScope, TIMEOUT_MAX,
    },
    keys::{KEY_MAX_BYTES, KEYS_MAX},
    now_us,
    runs::flows::{FLOWS_MAX, Flow, Flows, Way},
    tables::When,
};
pub use millrace_namespace::{databases, replicas};
pub use millrace_security::token;
pub use millrace_security::{
    check::{is_local, is_owner, is_secret, owner},
    token::{Caller, Resource, Right},
};
pub use millrace_wire::{
    Address, Code, Error, EventId, HISTORY_ALL, HISTORY_DEFAULT, Headers, Hlc, LogName, Name, NamespaceId,
    RETRY_AFTER_MS, Result, TimeField, TimeUnit, history,
};
pub use objects::{Answer, Answered, Objects, Waiting};
pub use trace::{ENTRIES_MAX, TraceFilter, link_word, trace};
pub use why::{Why, why};
