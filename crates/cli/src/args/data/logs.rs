//! `millrace log …`

use crate::{
    args::Durability,
    commands::log::types::{Type, Types},
    complete,
};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use clap_complete::ArgValueCompleter;
use millrace_node::{HISTORY_ALL, HISTORY_DEFAULT, TimeField, TimeUnit, application::units};
use std::{ffi::OsString, path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Create a log
    #[command(after_help = "\
A name has up to 8 segments, separated by '/', of up to 64 letters, digits, '_', '.' and '-' each. No segment begins with '.', and the \
name does not begin with '_'. If the log exists with the same history, the command changes nothing but the field that --time names.

--time names the field that has the time of the observation, which may be long before the append. Exports, plots, data frames and \
corrections by time use it; for a record without it, they use the time of its append.

Examples:
  millrace log create raw/kitchen
  millrace log create raw/kitchen --time /observed_at              # text such as 2026-11-03T10:00:00Z
  millrace log create raw/kitchen --time /t --time-unit ms         # numbers: milliseconds since 1970
  millrace log create raw/kitchen --history 100k
  millrace log create orders --history all")]
    Create(CreateArgs),
    /// Append records, and print their sequence numbers
    #[command(after_help = "\
Without DATA, standard input is one record, which must not be empty (MR4034). With --lines, each line of standard input is a record. \
With --ndjson, each line is an object {\"log\": …, \"data\": …}: a string is appended unchanged, any other JSON value as compact \
JSON; \"base64\" instead of \"data\" is for bytes. With --lines and --ndjson, records are committed in batches. The command ends when all records have the \
requested durability.

Examples:
  millrace log append raw/kitchen 21.5
  millrace log append photos/door < door.jpg
  seq 1000 | millrace log append numbers --lines
  millrace log append --ndjson < records.ndjson
  millrace log append mr://edge:7070/farm/inbox hello    # send through the outbox
  millrace log append inbox hello --wait                 # print what its runs append
  millrace log append inbox hello --function greet       # also run `greet`, even if it is not bound
  millrace log append metrics 1 --durability memory      # do not wait for the disk")]
    Append(AppendArgs),
    /// Print the latest record, one by its number, or a range
    #[command(after_help = "\
The latest record, or the one with SEQNO, is printed by itself; the records of a range (--all, --from, --to) are printed with their \
sequence numbers and times. Bytes that are not text are escaped. With --raw, they are printed unchanged; in a range, a newline follows \
each record.

Examples:
  millrace log get raw/kitchen                   # the latest
  millrace log get raw/kitchen 17
  millrace log get mr://127.0.0.1:7071/edge/alerts
  millrace log get raw/kitchen --from 10 --to 20
  millrace log get raw/kitchen --all --json
  millrace log get photos/door --raw > door.jpg")]
    Get(GetArgs),
    /// Print the newest records and wait for more
    #[command(after_help = "\
Examples:
  millrace log tail outbox
  millrace log tail outbox -l 100 --no-follow    # print the last hundred and exit
  millrace log tail outbox --from 1 --json       # print all records, then wait for more
  millrace log tail outbox --until-idle 2s       # exit after two seconds without a record")]
    Tail(TailArgs),
    /// Write records to a file: NDJSON, CSV or Parquet
    #[command(after_help = "\
NDJSON has one record per line, as `millrace log get --json` prints it. CSV has the columns _seqno and _time and one for each field, if \
every record is a JSON object and a table can have these columns: at most 1000, and none that is repeated, empty or named _seqno, _time, \
data or base64. Otherwise, CSV has the columns seqno, time, data (text) and base64 (bytes that are not text). Parquet has the columns \
seqno, time, id, cause and data. An existing FILE is replaced only once the new file is written; if records could not be read, the new \
file lacks them and the command fails (MR4013). `millrace log import` reads all three formats.

Examples:
  millrace log export raw/kitchen                          # write NDJSON to standard output
  millrace log export raw/kitchen -o kitchen.csv           # the extension selects the format
  millrace log export raw/kitchen --from 1000 -o kitchen.parquet
  millrace log export raw/kitchen --format csv --whole     # write seqno, time, data and base64")]
    Export(ExportArgs),
    /// Append the records of a file: NDJSON, CSV or Parquet
    #[command(after_help = "\
A file that `millrace log export` wrote gives the same records again. Of any other file, each row or line becomes a JSON object with all \
columns; one column named data does not make a file an export. NDJSON lines with nothing but \"data\" or \"base64\" are records as \
`millrace log append --ndjson` reads them.

In CSV, the delimiter (',', ';', tab or '|'), the header and one type per column are guessed, and the command prints its guesses. A \
column is number if all of its cells are numbers, bool if all are true or false, json if all are JSON arrays or objects, and otherwise \
text. Codes that only look like numbers (007, 28e4) are text. An empty cell is an absent field. All rows of a file are examined; of \
standard input, the first 1 MiB, and a later cell that does not have the type stops the import. Parquet cannot be read from standard \
input; its NaN and infinite numbers become null, and the command prints how many.

Records get new sequence numbers, ids and times. If the import stops, the command prints how to continue it.

Examples:
  millrace log import raw/kitchen kitchen.ndjson
  millrace log import raw/kitchen kitchen.csv --dry-run    # show how the file would be read
  millrace log import raw/kitchen kitchen.csv --types room=text --null NA
  millrace log import raw/kitchen kitchen.csv --no-header --columns time,celsius
  millrace log import raw/kitchen kitchen.csv --skip 5000  # continue after the first 5000 records
  millrace log export a | millrace log import b -          # copy a log")]
    Import(ImportArgs),
    /// List the logs
    #[command(after_help = "\
Internal logs belong to the runtime; their names begin with `_`. They are listed with --internal, or if PREFIX begins with `_`.

Examples:
  millrace log ls
  millrace log ls raw/              # only logs whose name starts with raw/
  millrace log ls --json | jq -r .name")]
    Ls(LsArgs),
    /// Show one log: its records, its history and the functions bound to it
    #[command(after_help = "\
Examples:
  millrace log stat raw/kitchen
  millrace log stat raw/kitchen --json")]
    Stat(NameArgs),
    /// Change how many records a log keeps, and which field has the time of the observation
    #[command(after_help = "\
Takes effect at once, even while a host is running. A shorter history drops the records beyond it. A longer history keeps the current and \
later records; records that have left the history are not restored. Records leave the history even if a relay has not forwarded them: the relay then \
stops (MR6067), or skips them if it was added with --on-gap skip.

--time changes no record: exports, plots, data frames and corrections by time use the new field from then on. `millrace up` sets both to \
what the application file says.

Examples:
  millrace log set raw/kitchen --history 100k
  millrace log set raw/kitchen --time /observed_at
  millrace log set raw/kitchen --time /t --time-unit ms
  millrace log set orders --history all             # keep records until `log trim` drops them")]
    Set(SetArgs),
    /// Drop the oldest records of a log
    #[command(after_help = "\
Dropped records can no longer be read, and their space is reused. Sequence numbers continue. If a relay has not yet forwarded some of the \
records, the command fails and drops nothing (MR2109), unless --force is given or the relay was added with --on-gap skip. A host also \
refuses records that a topic which the log feeds has not received; a command that opens the directory itself does not check this.

Examples:
  millrace log trim raw/kitchen --before 1000    # record 1000 becomes the oldest
  millrace log trim raw/kitchen --all")]
    Trim(TrimArgs),
    /// Remove a log and its records
    #[command(after_help = "\
The command refuses to remove a log to which a function is bound, whose records have pending runs, that mirrors a topic, or that is the \
dead-letter log of a function with pending runs.

Examples:
  millrace log rm raw/kitchen")]
    Rm(NameArgs),
}

/// A sequence number of the command line.
pub fn seqno(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{}' is not a sequence number: a whole number of 1 or more", text.escape_debug());
    text.parse().ok().filter(|seqno| *seqno > 0).ok_or_else(wrong)
}

/// A history of the command line.
pub(in crate::args) fn history(text: &str) -> Result<u64, String> {
    if text == "all" {
        return Ok(HISTORY_ALL);
    }
    let count = units::parse_count(text).map_err(|reported| format!("{reported}, nor 'all'"))?;
    if count == HISTORY_ALL { Ok(u64::MAX) } else { Ok(count) }
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The log's name
    #[arg(value_name = "LOG")]
    pub name: String,
    /// How many of the newest records to keep; `all` keeps records until `millrace log trim` drops them
    #[arg(long, value_name = "RECORDS", default_value_t = HISTORY_DEFAULT, value_parser = history)]
    pub history: u64,
    #[command(flatten)]
    pub observed: TimeArgs,
}

/// The field that has the time of the observation.
#[derive(Clone, Debug, Default, Args)]
pub struct TimeArgs {
    /// The field of the records that has the time of the observation, as a JSON pointer such as /observed_at
    #[arg(long, value_name = "POINTER")]
    pub time: Option<String>,
    /// What numbers in this field count since 1970: s, ms or us; without it, only text in the form of RFC 3339 is a time
    #[arg(long, value_name = "UNIT", requires = "time")]
    pub time_unit: Option<String>,
}

impl TimeArgs {
    /// The field, if one was given.
    pub fn field(&self) -> millrace_node::Result<Option<TimeField>> {
        let unit = self.time_unit.as_deref().map(TimeUnit::parse).transpose()?;
        self.time.as_ref().map(|field| TimeField::new(field, unit)).transpose()
    }
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("changed").args(["history", "time", "no_time"]).required(true).multiple(true))]
pub struct SetArgs {
    /// The log's name
    #[arg(value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub name: String,
    /// How many of the newest records to keep; `all` keeps records until `millrace log trim` drops them
    #[arg(long, value_name = "RECORDS", value_parser = history)]
    pub history: Option<u64>,
    #[command(flatten)]
    pub observed: TimeArgs,
    /// No field has the time of the observation any longer
    #[arg(long, conflicts_with = "time")]
    pub no_time: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("dropped").args(["before", "all"]).required(true))]
pub struct TrimArgs {
    /// The log's name
    #[arg(value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub name: String,
    /// The oldest record to keep
    #[arg(long, value_name = "SEQNO", value_parser = seqno)]
    pub before: Option<u64>,
    /// Drop all records
    #[arg(long)]
    pub all: bool,
    /// Also drop records that a relay has not forwarded or a topic has not received yet
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Args)]
pub struct NameArgs {
    /// The log's name
    #[arg(value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// List only logs whose name starts with PREFIX
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub prefix: Option<String>,
    /// Also list internal logs
    #[arg(long)]
    pub internal: bool,
}

#[derive(Debug, Args)]
pub struct AppendArgs {
    /// The log's name; with --ndjson, the log for lines without "log"
    #[arg(value_name = "LOG", required_unless_present = "ndjson", add = ArgValueCompleter::new(complete::logs))]
    pub log: Option<String>,
    /// The record [default: standard input]
    #[arg(conflicts_with_all = ["lines", "ndjson"], allow_negative_numbers = true)]
    pub data: Option<OsString>,
    /// Each line of standard input is a record
    #[arg(long, conflicts_with = "ndjson")]
    pub lines: bool,
    /// Each line of standard input is an object {"log": …, "data": …}
    #[arg(long)]
    pub ndjson: bool,
    /// Amend this record of an amendable log instead of appending; with --lines, amend also the records after it, one for each line. The
    /// host then corrects them in a repair
    #[arg(long, value_name = "SEQNO", value_parser = seqno, requires = "log",
        conflicts_with_all = ["ndjson", "function", "key", "fence", "wait", "durability"])]
    pub amends: Option<u64>,
    /// Also run this function, whether or not it is bound to the log
    #[arg(long, value_name = "FUNCTION")]
    pub function: Option<String>,
    /// Append the record only once, even if the append is repeated with this key; a namespace remembers its newest 100000 keys
    #[arg(long, value_name = "KEY", conflicts_with_all = ["lines", "ndjson"])]
    pub key: Option<String>,
    /// Append only if no higher token was used with this name: NAME is the key of a lock, TOKEN the number that its owner got with the lock
    #[arg(long, value_name = "NAME=TOKEN")]
    pub fence: Option<String>,
    /// What to wait for [default: the namespace's]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// How long to keep trying while too many runs are pending [default: 0s; with --lines and --ndjson 30s]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub busy_timeout: Option<Duration>,
    /// Wait until the runs of the record have ended, and print what they appended
    #[arg(long, conflicts_with_all = ["lines", "ndjson", "quiet"])]
    pub wait: bool,
    /// How long --wait waits
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    pub timeout: Duration,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// The format of a file of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A JSON object per line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
    /// Apache Parquet
    Parquet,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The log's name
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub log: String,
    /// The file's format [default: from its extension; ndjson for `-`]
    #[arg(long)]
    pub format: Option<Format>,
    /// The first record [default: the oldest that is kept]
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The last record [default: the latest]
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// The file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// CSV: always write the columns seqno, time, data and base64
    #[arg(long)]
    pub whole: bool,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The log's name
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub log: String,
    /// The file to read; `-` is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The file's format [default: from its extension; ndjson for `-`]
    #[arg(long)]
    pub format: Option<Format>,
    /// Skip this many records at the beginning of the file
    #[arg(long, value_name = "RECORDS", default_value_t = 0, value_parser = units::parse_count)]
    pub skip: u64,
    /// Read the file and show how it is read, but append nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// What to wait for [default: the namespace's]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// How long to keep trying while too many runs are pending
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::parse_duration)]
    pub busy_timeout: Duration,
}

/// How a file is read that is no export; what is not given is guessed.
#[derive(Clone, Debug, Default, Args)]
pub struct ReadingArgs {
    /// CSV: the character between cells; `tab` is a tab [default: guessed]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// CSV: the first line is a header
    #[arg(long, conflicts_with = "no_header")]
    pub header: bool,
    /// CSV: the first line is a row; without --columns, columns are named c1, c2 and so on
    #[arg(long)]
    pub no_header: bool,
    /// CSV: the names of the columns, of a file without a header or, with --header, instead of its names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// CSV: types of columns: text, number, bool or json [default: guessed]
    #[arg(long, value_name = "COLUMN=TYPE,…")]
    pub types: Vec<Types>,
    /// CSV: all columns without a type in --types are text
    #[arg(long)]
    pub text: bool,
    /// CSV: a cell that stands for no value, and becomes null; can be repeated
    #[arg(long, value_name = "CELL")]
    pub null: Vec<String>,
    /// Each row or line becomes a JSON object with all columns, even if the file is an export
    #[arg(long, conflicts_with = "value")]
    pub objects: bool,
    /// The cells of this column are the records, and other columns are not imported
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["types", "text", "null"])]
    pub value: Option<String>,
}

impl ReadingArgs {
    /// Whether the user says how the file is to be read: then it is not taken for an export.
    pub fn is_given(&self) -> bool {
        self.only_for_csv().is_some() || self.objects || self.value.is_some()
    }

    /// The first option that was given and is for CSV only.
    pub fn only_for_csv(&self) -> Option<&'static str> {
        let given = [
            (self.delimiter.is_some(), "--delimiter"),
            (self.header, "--header"),
            (self.no_header, "--no-header"),
            (!self.columns.is_empty(), "--columns"),
            (!self.types.is_empty(), "--types"),
            (self.text, "--text"),
            (!self.null.is_empty(), "--null"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// The types that were given, by column.
    pub fn types(&self) -> Vec<(String, Type)> {
        self.types.iter().flat_map(|types| types.0.clone()).collect()
    }
}

/// A delimiter of the command line.
fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if matches!(text, "tab" | "\\t") => Ok(b'\t'),
        [one] if one.is_ascii() && !matches!(one, b'"' | b'\n' | b'\r') => Ok(*one),
        _ => Err("a delimiter is one ASCII character other than a quote, or 'tab'".into()),
    }
}

#[derive(Clone, Debug, Args)]
pub struct GetArgs {
    /// The log's name
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub log: String,
    /// The record's sequence number [default: the latest]
    #[arg(conflicts_with_all = ["all", "from", "to"], allow_negative_numbers = true)]
    pub seqno: Option<String>,
    /// Print every record in the log's history
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub all: bool,
    /// The first record of a range
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The last record of a range
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// Print the bytes of the record unchanged
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TailArgs {
    /// The log's name
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub log: String,
    /// Begin with this many of the newest records
    #[arg(short, long, value_name = "RECORDS", default_value_t = 10, value_parser = units::parse_count, conflicts_with = "from")]
    pub last: u64,
    /// Begin at this record instead
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// Exit after the newest record has been printed
    #[arg(long, conflicts_with = "until_idle")]
    pub no_follow: bool,
    /// Wait for more records (the default)
    #[arg(short, long, conflicts_with = "no_follow")]
    pub follow: bool,
    /// Exit after this long without a new record
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub until_idle: Option<Duration>,
    /// Print the bytes of each record unchanged, followed by a newline
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}
