//! The places at the gate, by name, so that a test can remove one and verify that its absence is detected.

macro_rules! sites {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Where something is held.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Site {
            $($(#[$doc])* $name,)*
        }

        impl Site {
            /// Every one of them.
            pub const ALL: [Site; [$(Site::$name),*].len()] = [$(Site::$name),*];
        }
    };
}

sites! {
    /// The receipt of one record.
    Append,
    /// The receipts of records that were appended at once.
    AppendMany,
    /// The receipts of an append with an idempotency key, the first time and every other.
    Keyed,
    /// The receipts of one batch of many.
    AppendBatch,
    /// A record.
    Get,
    /// Records.
    Range,
    /// The newest seqno of a log.
    Latest,
    /// The answer of a table.
    Table,
    /// Where a tail begins.
    Cursor,
    /// That a log was made, or has another history.
    CreateLog,
    /// That a log was removed.
    RemoveLog,
    /// That a log was trimmed.
    Trim,
    /// An error that reveals state.
    Refusal,
    /// A report about a namespace as a whole.
    Inspect,
    /// That no run is pending.
    Idle,
    /// That a function was deployed.
    Deploy,
    /// That a function was removed.
    RemoveFunction,
    /// That a function was removed, and its runs given up.
    GiveUpFunction,
    /// An answer to another namespace that opens a stream or delivers.
    Deliver,
    /// A message or record to another namespace.
    Send,
    /// By which logs the records of a stream have come.
    Path,
    /// Who answered at the other end of a stream, before anything is sent there.
    Meet,
    /// That a message became a dead letter, before its number is sent as a void.
    Bury,
    /// That a relay was added.
    AddRelay,
    /// That a relay was removed.
    RemoveRelay,
    /// That a relay resumes.
    ResumeRelay,
    /// That an outbox restarts.
    ResetOutbox,
    /// That a peer was forgotten.
    RemovePeer,
    /// The answers that a streamed run got. They do not wait, but are journaled in one batch with the next append of the run.
    Reported,
    /// That a streamed run has published something: journaled in one batch with it.
    Published,
}

/// What a site that is taken out no longer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The namespace's own disk.
    Disk,
    /// Marks.
    Far,
}
