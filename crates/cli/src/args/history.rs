//! Commands about what caused what, and about corrections of the past.

use crate::complete;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use clap_complete::ArgValueCompleter;
use millrace_node::application::units;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
pub struct TraceArgs {
    /// A record as LOG@SEQNO, the newest record of a LOG, or the id of a record, a run or any other event
    #[arg(value_name = "LOG@SEQNO | EVENT-ID", add = ArgValueCompleter::new(complete::logs))]
    pub target: String,
    /// Show the causes instead of the effects
    #[arg(long)]
    pub up: bool,
    /// Show at most this many records and runs
    #[arg(short, long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Show at most this many branches below each record and each run
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub width: u32,
    /// Show at most this many levels
    #[arg(long, value_name = "COUNT", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub depth: u32,
    #[command(flatten)]
    pub with: WithArgs,
}

#[derive(Debug, Args)]
pub struct WithArgs {
    /// Read the journal of another namespace too: a directory, a backup, an address or a context; may be repeated
    #[arg(long, value_name = "NAMESPACE", add = ArgValueCompleter::new(complete::namespaces))]
    pub with: Vec<PathBuf>,
}

/// The forms of a service graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Tables
    Text,
    /// A picture
    Svg,
    /// One object
    Json,
    /// Graphviz
    Dot,
}

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The form [default: as the name of --out ends, else text]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<GraphFormat>,
    /// Write to this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Count only events of this long before now
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub since: Option<Duration>,
    /// Show the logs of the runtime too
    #[arg(long)]
    pub internal: bool,
    #[command(flatten)]
    pub with: WithArgs,
}

#[derive(Debug, Subcommand)]
pub enum RepairCommand {
    /// Show what correcting records or code in the past would replay; changes nothing
    #[command(after_help = "\
Names the runs that used a corrected value, those that used what these rewrote, and so on; the records that would be rewritten; and \
what would not be replayed, and why. A value that equals the recorded one is left out.

With --at and without --values, every record of the range counts as corrected. Values are CSV with the columns seqno and value, or \
JSON objects with these keys, one on a line; `-` reads standard input. CSV whose only column is value goes with --at, and gives the \
records of the range their values in order.

Examples:
  millrace repair plan raw/kitchen --values stale-day.csv
  millrace repair plan raw/kitchen --at 289..576
  echo '{\"seqno\": 7, \"value\": \"21.5\"}' | millrace repair plan raw/kitchen --values -
  millrace repair plan --function smooth=functions/smooth.py --since raw/kitchen@289")]
    Plan(Box<PlanArgs>),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").args(["at", "values", "function"]).required(true).multiple(true))]
pub struct PlanArgs {
    /// The log whose records are corrected
    #[arg(add = ArgValueCompleter::new(complete::logs), required_unless_present = "function")]
    pub log: Option<String>,
    /// The records: SEQNO, or FIRST..LAST with both ends
    #[arg(long, value_name = "SEQNO[..SEQNO]", requires = "log")]
    pub at: Option<String>,
    /// Their new values
    #[arg(long, value_name = "FILE", requires = "log", value_hint = ValueHint::FilePath)]
    pub values: Option<PathBuf>,
    /// Replay the runs of this function with other code
    #[arg(long, value_name = "NAME=SOURCE")]
    pub function: Vec<String>,
    /// Replay only runs from this event on: LOG@SEQNO or an event id [default: all that are kept]
    #[arg(long, value_name = "EVENT", requires = "function")]
    pub since: Option<String>,
    /// Plan even if the runs that read the oldest of these records are no longer known
    #[arg(long)]
    pub accept_unknown: bool,
    #[command(flatten)]
    pub with: WithArgs,
}
