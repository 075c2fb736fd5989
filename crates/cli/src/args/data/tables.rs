//! `millrace table …`

use super::logs::history;
use crate::{args::Durability, complete};
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use millrace_node::{HISTORY_DEFAULT, application::units, databases::WhenRefused};
use millrace_wire::{
    Address, DatabaseName, EventId, LogName, Name, TableMode,
    table::{KeyType, TableCodec},
};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Examples of all commands.
pub const TABLE_EXAMPLES: &str = "\
A table keeps the newest value of each key. Each change is a record of the table's log, so functions run for it, and its history stays.

Examples:
  millrace table create grades
  millrace table put grades alice '{\"score\": 7}'
  millrace table get grades alice
  millrace table scan grades";

#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Create a table
    #[command(after_help = "\
The values are JSON, text or any bytes: a value that is something else is refused. If the table exists with the same attributes, the command \
changes nothing. The newest value of each key is kept until it is deleted or expires; --history says how many changes can be read as records of the log.

Examples:
  millrace table create grades
  millrace table create sessions --codec bytes --ttl 30m
  millrace table create counters --history 1000")]
    Create(CreateTableArgs),
    /// Set the value of a key, and print its version
    #[command(after_help = "\
Without VALUE, standard input is the value. With --if-version or --if-absent, the command fails (MR7300) and changes nothing if the key has \
another version, or a value.

Examples:
  millrace table put grades alice '{\"score\": 7}'
  millrace table put grades alice '{\"score\": 8}' --if-version 1
  millrace table put sessions 4711 open --ttl 10m
  millrace table put photos door < door.jpg")]
    Put(PutArgs),
    /// Print the value of a key
    #[command(after_help = "\
Examples:
  millrace table get grades alice
  millrace table get grades alice --json         # also print version and time
  millrace table get photos door --raw > door.jpg")]
    Get(GetKeyArgs),
    /// Delete the value of a key
    #[command(after_help = "\
Examples:
  millrace table delete grades alice
  millrace table delete grades alice --if-version 3")]
    Delete(DeleteKeyArgs),
    /// Add to the whole number that a key has, and print the sum
    #[command(after_help = "\
A key without a value counts as 0.

Examples:
  millrace table increment counters visits
  millrace table increment counters stock --by -3")]
    Increment(IncrementArgs),
    /// List keys and values, in order
    #[command(after_help = "\
The order is that of the bytes of the keys.

Examples:
  millrace table scan grades
  millrace table scan grades --prefix cos316/ --limit 10
  millrace table scan grades --from a --to c
  millrace table scan grades --keys              # only the keys
  millrace table scan grades --json | jq .data")]
    Scan(ScanArgs),
    /// List the versions of a key, the newest first
    #[command(after_help = "\
Versions that have left the table's history and the journal are not listed.

Examples:
  millrace table versions grades alice")]
    Versions(VersionsArgs),
    /// Set a database to which tables are written
    #[command(after_help = "\
A table that names the database is written to it by the host, and answers that depend on a change wait until the database has it. The password \
is a secret: set it with `millrace secret set` first.

Examples:
  millrace secret set main-password < password.txt
  millrace table database main --url postgresql://app@db:5432/school --secret main-password
  millrace table create grades --database main")]
    Database(DatabaseArgs),
    /// Wait until the databases have everything that the tables have now
    #[command(after_help = "\
Fails with MR7310 after 30 seconds.

Examples:
  millrace table externalize
  millrace table externalize grades")]
    Externalize(ExternalizeArgs),
    /// Show what the databases do not have yet, and why
    #[command(after_help = "\
Examples:
  millrace table lag
  millrace table lag --json | jq .unwritten")]
    Lag,
    /// Try at once to write to a database that has stopped
    #[command(after_help = "\
The host tries by itself every 30 seconds. `millrace table lag` shows why a database has stopped (MR7314, MR7316, MR7320, MR7321). Writes that it \
refuses for their content become dead letters if you set `--on-refused dead-letter` with `millrace table database`.

Examples:
  millrace table resume
  millrace table resume main")]
    Resume(ResumeDatabaseArgs),
    /// Compare a table with its database
    #[command(after_help = "\
Connects to the database from this machine, and compares all keys, versions and values with the table as of the last write that the database has. \
It changes nothing. Fails with MR7327 if something differs; --json prints each difference.

Examples:
  millrace table check grades
  millrace table check grades --json")]
    Check(TableNameArgs),
    /// Put the rows of the database into a table that does not have their keys
    #[command(after_help = "\
For a table of the database that had rows before Millrace wrote to it. Keys that have a value in the table keep it. The host writes the rows back \
with their versions, so nobody else should change them meanwhile; functions run for them as for other changes.

Examples:
  millrace table load grades")]
    Load(TableNameArgs),
    /// Write all values of its tables to a database again, and remove other rows
    #[command(after_help = "\
For a database that was restored from a backup (MR7317), for a restored or salvaged namespace (MR7316, MR7318), and for rows that somebody has changed. \
The tables are right: what the database has besides them is lost. The host does the work; `millrace table lag` shows when it goes on. \
--previous-owner takes the stream over from another namespace, which must not write any more; the message of MR7316 names it.

Examples:
  millrace table resync main
  millrace table resync main --previous-owner 4f0c2a3b5d6e")]
    Resync(ResyncArgs),
    /// Follow a table of another namespace, which owns it
    #[command(after_help = "\
Creates TABLE, a replica with the keys, values and versions of the owner's table, and keeps it up to date while a host of this namespace runs. All \
replicas of one owner show together a state that the owner had. Functions run for a replica as for any table; only its owner changes it. \
`millrace table ls` shows how far it is behind. The right `read` on the owner's table suffices there.

Examples:
  millrace table mirror grades --from mr://edge.example/school
  millrace table mirror edge/grades --from mr://edge.example/school/grades
  millrace table mirror grades --from mr://edge.example/school --reload
  millrace table mirror grades --stop")]
    Mirror(MirrorTableArgs),
    /// List the tables
    #[command(after_help = "\
Of a replica, the columns name its owner, and say how many records it lacks, or since when it may lack some and why.

Examples:
  millrace table ls
  millrace table ls --json | jq -r .table")]
    Ls,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CodecArg {
    /// One value of JSON
    Json,
    /// Text in UTF-8
    Text,
    /// Any bytes
    Bytes,
}

impl From<CodecArg> for TableCodec {
    fn from(arg: CodecArg) -> Self {
        match arg {
            CodecArg::Json => Self::Json,
            CodecArg::Text => Self::Text,
            CodecArg::Bytes => Self::Bytes,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeysArg {
    /// Text in UTF-8
    Text,
    /// Any bytes
    Bytes,
}

impl From<KeysArg> for KeyType {
    fn from(arg: KeysArg) -> Self {
        match arg {
            KeysArg::Text => Self::Text,
            KeysArg::Bytes => Self::Bytes,
        }
    }
}

#[derive(Debug, Args)]
pub struct CreateTableArgs {
    /// The table's name
    #[arg(value_name = "TABLE")]
    pub name: String,
    /// What the values are
    #[arg(long, value_enum, default_value_t = CodecArg::Json)]
    pub codec: CodecArg,
    /// What the keys are
    #[arg(long, value_enum, default_value_t = KeysArg::Text)]
    pub keys: KeysArg,
    /// How long a value stays that is put without --ttl, such as 30m [default: until it is deleted]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub ttl: Option<Duration>,
    /// How many of the newest changes can be read as records; `all` keeps them until `millrace log trim` drops them
    #[arg(long, value_name = "RECORDS", default_value_t = HISTORY_DEFAULT, value_parser = history)]
    pub history: u64,
    /// The database to which the table is written (`millrace table database`) [default: none]
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<DatabaseName>,
    /// What waits until the database has a change
    #[arg(long, value_enum, default_value_t = ModeArg::External, requires = "database")]
    pub mode: ModeArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModeArg {
    /// Answers that depend on it
    External,
    /// Nothing
    Asynchronous,
    /// Answers that depend on it, and runs that it causes or that read it
    Synchronous,
}

impl ModeArg {
    /// The word for a mode.
    pub fn word(mode: TableMode) -> &'static str {
        match mode {
            TableMode::External => "external",
            TableMode::Asynchronous => "asynchronous",
            TableMode::Synchronous => "synchronous",
        }
    }
}

impl From<ModeArg> for TableMode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::External => Self::External,
            ModeArg::Asynchronous => Self::Asynchronous,
            ModeArg::Synchronous => Self::Synchronous,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum RefusedArg {
    /// Nothing is written until the database accepts them
    Stop,
    /// They become dead letters in the log dead/TABLE, and the next ones are written
    DeadLetter,
}

impl From<RefusedArg> for WhenRefused {
    fn from(arg: RefusedArg) -> Self {
        match arg {
            RefusedArg::Stop => Self::Stop,
            RefusedArg::DeadLetter => Self::DeadLetter,
        }
    }
}

#[derive(Debug, Args)]
pub struct DatabaseArgs {
    /// The database's name in this namespace
    #[arg(value_name = "DATABASE")]
    pub name: DatabaseName,
    /// Its address, without a password
    #[arg(long, value_name = "URL")]
    pub url: String,
    /// The name of the secret with the password
    #[arg(long, value_name = "SECRET")]
    pub secret: Option<Name>,
    /// A file with certificates of authorities to trust besides those of the system, in PEM; the host gets the certificates
    #[arg(long, value_name = "FILE")]
    pub authorities: Option<PathBuf>,
    /// The most transactions that are unanswered at once [default: as many as the database permits]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub in_flight: Option<u64>,
    /// The usual number of rows of a transaction [default: 1000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub rows: Option<u64>,
    /// Refuse changes when the journal is this much ahead of the database [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub unwritten_max: Option<u64>,
    /// What happens to writes that the database refuses for their content
    #[arg(long, value_enum, default_value_t = RefusedArg::Stop)]
    pub on_refused: RefusedArg,
    /// Let the database refuse changes of its tables by anybody else (PostgreSQL only)
    #[arg(long)]
    pub refuse_outside: bool,
    /// Accept a database that acknowledges writes before they are durable
    #[arg(long)]
    pub accept_volatile: bool,
}

#[derive(Debug, Args)]
pub struct ExternalizeArgs {
    /// Only the database of this table [default: all databases]
    #[arg(value_name = "TABLE", add = ArgValueCompleter::new(complete::logs))]
    pub table: Option<LogName>,
}

#[derive(Debug, Args)]
pub struct ResumeDatabaseArgs {
    /// Only this database [default: all databases]
    #[arg(value_name = "DATABASE")]
    pub database: Option<DatabaseName>,
}

#[derive(Debug, Args)]
pub struct ResyncArgs {
    /// The database
    #[arg(value_name = "DATABASE")]
    pub database: DatabaseName,
    /// The namespace that has written the stream so far
    #[arg(long, value_name = "NAMESPACE")]
    pub previous_owner: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("act").required(true).args(["from", "stop"]))]
pub struct MirrorTableArgs {
    /// The replica
    #[arg(value_name = "TABLE", add = ArgValueCompleter::new(complete::logs))]
    pub table: LogName,
    /// The owner's namespace, or the table there if it has another name
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<Address>,
    /// How many of the newest changes can be read as records, or `all` [default: 10000]
    #[arg(long, value_name = "RECORDS", value_parser = history, conflicts_with = "stop")]
    pub history: Option<u64>,
    /// Load an existing replica again, with the other replicas of its owner; until that is done, they cannot be read
    #[arg(long, conflicts_with = "stop")]
    pub reload: bool,
    /// End the replica; the table stays, and then accepts changes
    #[arg(long)]
    pub stop: bool,
}

#[derive(Debug, Args)]
pub struct TableNameArgs {
    /// The table
    #[arg(value_name = "TABLE", add = ArgValueCompleter::new(complete::logs))]
    pub table: LogName,
}

/// A table and a key.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The table's name
    #[arg(value_name = "TABLE", add = ArgValueCompleter::new(complete::logs))]
    pub table: String,
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,
}

#[derive(Debug, Args)]
pub struct PutArgs {
    #[command(flatten)]
    pub at: KeyArgs,
    /// The value [default: standard input]
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: Option<OsString>,
    /// How long the value stays, such as 10m [default: as the table says]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub ttl: Option<Duration>,
    /// Change it only if the key has this version
    #[arg(long, value_name = "VERSION", value_parser = super::seqno, conflicts_with = "if_absent")]
    pub if_version: Option<u64>,
    /// Change it only if the key has no value
    #[arg(long)]
    pub if_absent: bool,
    /// When the change counts as done [default: as the namespace says]
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
}

#[derive(Debug, Args)]
pub struct GetKeyArgs {
    #[command(flatten)]
    pub at: KeyArgs,
    /// Print the bytes unchanged
    #[arg(long)]
    pub raw: bool,
    /// Read at least what the answer with this token showed or changed; wait for it up to a second
    #[arg(long, value_name = "TOKEN")]
    pub after: Option<EventId>,
}

#[derive(Debug, Args)]
pub struct DeleteKeyArgs {
    #[command(flatten)]
    pub at: KeyArgs,
    /// Delete it only if the key has this version
    #[arg(long, value_name = "VERSION", value_parser = super::seqno)]
    pub if_version: Option<u64>,
}

#[derive(Debug, Args)]
pub struct IncrementArgs {
    #[command(flatten)]
    pub at: KeyArgs,
    /// What is added
    #[arg(long, value_name = "AMOUNT", default_value_t = 1, allow_hyphen_values = true)]
    pub by: i64,
}

#[derive(Debug, Args)]
pub struct ScanArgs {
    /// The table's name
    #[arg(value_name = "TABLE", add = ArgValueCompleter::new(complete::logs))]
    pub table: String,
    /// Only keys that begin with this
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub prefix: OsString,
    /// The first key
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,
    /// The first key that is not listed
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,
    /// How many keys, at most [default: all]
    #[arg(long, short, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Only the keys, without their values
    #[arg(long)]
    pub keys: bool,
    /// Read at least what the answer with this token showed or changed; wait for it up to a second
    #[arg(long, value_name = "TOKEN")]
    pub after: Option<EventId>,
}

#[derive(Debug, Args)]
pub struct VersionsArgs {
    #[command(flatten)]
    pub at: KeyArgs,
    /// How many versions, at most
    #[arg(long, short, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Read at least what the answer with this token showed or changed; wait for it up to a second
    #[arg(long, value_name = "TOKEN")]
    pub after: Option<EventId>,
}
