//! `millrace log …`

use super::Durability;
use clap::{Args, Subcommand};
use millrace_node::application::{HISTORY_DEFAULT, units};
use std::{ffi::OsString, time::Duration};

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Make a log
    #[command(after_help = "\
A name is up to 8 segments of letters, digits, '_', '.' and '-', joined by '/'. Making the same log again is fine.

Examples:
  millrace log create raw/kitchen
  millrace log create raw/kitchen --history 1000")]
    Create(CreateArgs),
    /// Append records; prints their sequence numbers
    #[command(after_help = "\
Without DATA, standard input is one record. With --lines each of its lines is one, and with --ndjson each line is an \
object {\"log\": …, \"data\": …}: a text is appended as it is, any other JSON value as compact JSON, and {\"base64\": …} \
in place of \"data\" carries bytes. Streams are committed in batches; a record is acknowledged once it is as durable as \
asked.

Examples:
  millrace log append raw/kitchen 21.5
  millrace log append photos/door < door.jpg
  seq 1000 | millrace log append numbers --lines
  millrace log append --ndjson < records.ndjson
  millrace log append inbox hello --function greet       run `greet` for this record, bound or not
  millrace log append metrics 1 --durability memory      do not wait for the disk")]
    Append(AppendArgs),
    /// Print records: the latest, one, or a range
    #[command(after_help = "\
One record is printed alone; several with their sequence numbers and times. Bytes that are not text are escaped, unless \
--raw writes them as they are (each followed by a newline if there are several).

Examples:
  millrace log get raw/kitchen                   the latest
  millrace log get raw/kitchen 17
  millrace log get raw/kitchen --from 10 --to 20
  millrace log get raw/kitchen --all --json
  millrace log get photos/door --raw > door.jpg")]
    Get(GetArgs),
    /// Print the newest records and wait for more
    #[command(after_help = "\
Examples:
  millrace log tail outbox
  millrace log tail outbox -l 100 --no-follow    the last hundred, then end
  millrace log tail outbox --from 1 --json       everything still there, then what comes
  millrace log tail outbox --until-idle 2s       end when nothing came for two seconds")]
    Tail(TailArgs),
    /// List the logs
    #[command(after_help = "\
Examples:
  millrace log ls
  millrace log ls raw/              only those whose name begins so
  millrace log ls --json | jq -r .name")]
    Ls(LsArgs),
    /// Show one log: records, bounds, who is bound to it
    #[command(after_help = "\
Examples:
  millrace log stat raw/kitchen
  millrace log stat raw/kitchen --json")]
    Stat(NameArgs),
    /// Remove a log and its records
    #[command(after_help = "\
A log that a function is bound to, or that has pending runs, is not removed.

Examples:
  millrace log rm raw/kitchen")]
    Rm(NameArgs),
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The log's name
    #[arg(value_name = "LOG")]
    pub name: String,
    /// How many of its newest records it keeps
    #[arg(long, value_name = "RECORDS", default_value_t = HISTORY_DEFAULT)]
    pub history: u64,
}

#[derive(Debug, Args)]
pub struct NameArgs {
    /// The log's name
    #[arg(value_name = "LOG")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// List only logs whose name begins so
    pub prefix: Option<String>,
}

#[derive(Debug, Args)]
pub struct AppendArgs {
    /// The log's name (with --ndjson: for lines that name none)
    #[arg(value_name = "LOG", required_unless_present = "ndjson")]
    pub log: Option<String>,
    /// The record; without it, standard input
    #[arg(conflicts_with_all = ["lines", "ndjson"], allow_negative_numbers = true)]
    pub data: Option<OsString>,
    /// Each line of standard input is a record
    #[arg(long, conflicts_with = "ndjson")]
    pub lines: bool,
    /// Each line of standard input is an object {"log": …, "data": …}
    #[arg(long)]
    pub ndjson: bool,
    /// Run this function too, whether or not it is bound to the log
    #[arg(long, value_name = "FUNCTION")]
    pub function: Option<String>,
    /// What to wait for [default: the namespace's]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// How long to wait for room while too many runs are pending [default: 0s, for streams 30s]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub wait: Option<Duration>,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// The log's name
    pub log: String,
    /// The record's sequence number [default: the latest]
    #[arg(conflicts_with_all = ["all", "from", "to"], allow_negative_numbers = true)]
    pub seqno: Option<String>,
    /// Every record still in the log's history
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub all: bool,
    /// The first record of a range
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// The last record of a range
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub to: Option<String>,
    /// Write the bytes as they are
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct TailArgs {
    /// The log's name
    pub log: String,
    /// How many of the newest records to begin with
    #[arg(short, long, value_name = "RECORDS", default_value_t = 10, conflicts_with = "from")]
    pub last: u64,
    /// Begin at this record instead
    #[arg(long, value_name = "SEQNO", allow_negative_numbers = true)]
    pub from: Option<String>,
    /// End when the newest record has been printed
    #[arg(long, conflicts_with = "until_idle")]
    pub no_follow: bool,
    /// Wait for more records (the default; here for those used to typing it)
    #[arg(short, long, conflicts_with = "no_follow")]
    pub follow: bool,
    /// End when nothing came for so long
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub until_idle: Option<Duration>,
    /// Write the bytes as they are, each record followed by a newline
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}
