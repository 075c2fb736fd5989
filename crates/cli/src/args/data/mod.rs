//! Logs, and tables, which are logs with keys.

mod logs;
mod tables;

pub use logs::{
    AppendArgs, CreateArgs, ExportArgs, Format, GetArgs, ImportArgs, LogCommand, LsArgs, ReadingArgs, SetArgs,
    TailArgs, TrimArgs,
};
pub(super) use logs::{history, seqno};
pub use tables::{
    CreateTableArgs, DatabaseArgs, DeleteKeyArgs, ExternalizeArgs, GetKeyArgs, IncrementArgs, MirrorTableArgs, ModeArg,
    PutArgs, ResumeDatabaseArgs, ResyncArgs, ScanArgs, TABLE_EXAMPLES, TableCommand, TableNameArgs, VersionsArgs,
};
