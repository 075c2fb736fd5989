//! Commands about what caused what, and about corrections of the past.

use crate::complete;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use clap_complete::ArgValueCompleter;
use millrace_node::application::units;
use std::{path::PathBuf, time::Duration};

/// The number of a repair.
fn repair(text: &str) -> Result<u64, String> {
    let wrong = |_| format!("'{}' is not the number of a repair; `millrace repair ls` lists them", text.escape_debug());
    text.parse().map_err(wrong)
}

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
    /// Show at most this many levels; with --json, at most 400
    #[arg(long, value_name = "COUNT", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub depth: u32,
    /// Show the history as it was before any repair
    #[arg(long)]
    pub original: bool,
    #[command(flatten)]
    pub with: WithArgs,
}

#[derive(Debug, Args)]
pub struct WithArgs {
    /// Also read the journal of another namespace: a directory, a backup, an address or a context (may be repeated)
    #[arg(long, value_name = "NAMESPACE", add = ArgValueCompleter::new(complete::namespaces))]
    pub with: Vec<PathBuf>,
}

/// The forms of a service graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// Text in tables
    Text,
    /// A picture, as SVG
    Svg,
    /// One JSON object
    Json,
    /// Input for Graphviz
    Dot,
}

#[derive(Debug, Args)]
pub struct GraphArgs {
    /// The format [default: from the extension of --out, else text]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<GraphFormat>,
    /// Write to this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Count only events within this time before now
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub since: Option<Duration>,
    /// Also show internal logs, whose names begin with `_`
    #[arg(long)]
    pub internal: bool,
    /// Show the graph repeatedly, at the interval that --every sets, until the command is interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// The interval of --follow
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = units::parse_duration, requires = "follow")]
    pub every: Duration,
    /// Show the history as it was before any repair
    #[arg(long)]
    pub original: bool,
    #[command(flatten)]
    pub with: WithArgs,
}

#[derive(Debug, Subcommand)]
pub enum RepairCommand {
    /// Show which runs a correction of past records or code would replay; change nothing
    #[command(after_help = "\
Lists the runs that read a corrected record, the runs that read records which those runs appended, and so on. Also lists the records that \
would be rewritten, and the runs that could not be replayed, with the reason. A new value that equals the recorded one is ignored.

With --at and without --values, every record of the range is treated as corrected. A file of values is CSV with the columns seqno and \
value, or has one JSON object with these keys on each line; `base64` instead of `value` is for bytes, and `-` reads standard input. For a \
table, `key` instead of `seqno` names the record that the key has now. With --at, the file may leave out all seqnos: then it has one \
value for each record of the range, in order.

A replay assumes that a function which reads the same records appends the same records. --verify COUNT tests this: it runs functions again \
with the records that they read, in workers of this command and not of the host, and discards what they append. It leaves out streamed \
functions and those with `network = true`, and needs the namespace's files.

Examples:
  millrace repair plan raw/kitchen --values stale-day.csv
  millrace repair plan raw/kitchen --at 289..576
  millrace repair plan raw/kitchen --at 2026-11-03T00:00:00Z..2026-11-03T23:59:59Z
  echo '{\"seqno\": 7, \"value\": \"21.5\"}' | millrace repair plan raw/kitchen --values -
  millrace repair plan --function smooth=functions/smooth.py --since raw/kitchen@289
  millrace repair plan raw/kitchen --values stale-day.csv -o plan.svg    # also write a picture")]
    Plan(Box<PlanArgs>),
    /// Correct past records or code, and replay the runs that this affects; readers see the result after `millrace repair apply`
    #[command(after_help = "\
Writes the corrections to the journal, then replays each run that read a corrected record, each run that read records which those runs \
rewrote, and so on. Logs show the result only after `millrace repair apply`. To resume a repair that has stopped, give its number.

With --function, the past runs of a function are replayed with new code, and `millrace repair apply` deploys that code. SOURCE is a \
file or a directory, like `code` in millrace.toml; every other setting of the function stays. This needs the namespace's files, because a \
host does not accept code for a repair.

A run that appends fewer records than before leaves gaps. A run that appends more stops the repair; with --append-new, the additional \
records are appended to the end of their logs when the repair is applied, and trigger the functions that are bound to these logs. The dead \
letter of a run that now fails is always appended in this way. A repair also stops at a run that cannot be replayed because it is \
streamed, or because its code or its last attempt is no longer known.

A function with `network = true` may have effects outside the namespace, so its runs are not replayed: the records that they appended \
stay, and the repair shows how many runs there are. If the record that caused such a run is removed, the records that the run appended are \
removed, too. With --run-external, its runs are replayed, and may have these effects again.

Other namespaces may have received records, as messages of runs or through relays. With --with, such a namespace takes part in the repair: \
its host corrects the records that it received, and replays the runs that read them. If a message to a namespace that takes no part would \
change, the repair stops. `millrace repair apply` then applies the repair in all of these namespaces, or in none.

The host replays the runs; if no host is running, this command does.

Examples:
  millrace repair run raw/kitchen --values stale-day.csv --reason stuck-sensor
  millrace repair run raw/kitchen --values stale-day.csv --with mr://cloud:7070/weather
  millrace repair run raw/kitchen --at 289..300 --void
  millrace repair run --function smooth=fixed/smooth.py --since raw/kitchen@289
  millrace repair run 7")]
    Run(Box<RepairRunArgs>),
    /// Show one repair: its progress and the next step
    #[command(after_help = "\
Examples:
  millrace repair show 7
  millrace repair show 7 --follow
  millrace repair show 7 --json")]
    Show(RepairShowArgs),
    /// List the repairs of a namespace
    #[command(after_help = "\
Examples:
  millrace repair ls
  millrace -n mr://127.0.0.1:7070/weather repair ls --json")]
    Ls,
    /// Show what a repair changes, record by record
    #[command(after_help = "\
Prints the first 200 changes, then plots of the numbers that change, and counts for each log. With --json, prints every change.

Examples:
  millrace repair diff 7
  millrace repair diff 7 prediction")]
    Diff(RepairDiffArgs),
    /// Apply a repair: its logs show the repaired records from now on
    #[command(after_help = "\
All logs of the repair change at once. Runs that have read a replaced record and have not ended are run again. If other namespaces take \
part, each applies its part once all of them are ready.

Examples:
  millrace repair apply 7")]
    Apply(RepairArgs),
    /// Undo the newest applied repair
    #[command(after_help = "\
The rollback is itself a repair, and is applied without `millrace repair apply`: it restores the original records, and replays the runs \
that have read repaired ones. Records that these runs append in addition go to the end of their logs. A rollback can be rolled back as \
well: then the repair is applied again. The original records are kept for seven days after the repair was begun, or until the journal has grown by \
16 GiB since; `millrace repair gc` frees them earlier.

Examples:
  millrace repair rollback 7
  millrace repair rollback 7 --reason wrong-file")]
    Rollback(RollbackArgs),
    /// Abandon a repair that has not been applied; no log changes
    #[command(after_help = "\
Examples:
  millrace repair abandon 7")]
    Abandon(RepairArgs),
    /// Free the space that an applied repair keeps for its rollback
    #[command(after_help = "\
Afterwards, neither this repair nor the earlier ones can be rolled back.

Examples:
  millrace repair gc 7")]
    Gc(RepairArgs),
}

#[derive(Debug, Args)]
pub struct RepairRunArgs {
    /// The log whose records to correct, or the number of a repair that has stopped
    #[arg(value_name = "LOG | REPAIR", add = ArgValueCompleter::new(complete::logs), required_unless_present = "function")]
    pub log: Option<String>,
    /// The records: a SEQNO, a range FIRST..LAST that includes both, or all between two times, as in 2026-11-03T00:00:00Z..2026-11-03T23:59:59Z
    #[arg(long, value_name = "SEQNO[..SEQNO] | TIME..TIME")]
    pub at: Option<String>,
    /// A file with the new values; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "void")]
    pub values: Option<PathBuf>,
    /// Correct the records even if some of the runs that read them are no longer known
    #[arg(long)]
    pub accept_unknown: bool,
    /// Remove the records
    #[arg(long, requires = "at")]
    pub void: bool,
    /// Replay the runs of this function with new code: a file or directory
    #[arg(long, value_name = "NAME=SOURCE", conflicts_with_all = ["log", "at", "values", "void", "accept_unknown"])]
    pub function: Option<String>,
    /// Replay only runs that started after EVENT: LOG@SEQNO or an event id [default: all that are kept]
    #[arg(long, value_name = "EVENT", requires = "function")]
    pub since: Option<String>,
    /// Append additional records to the end of their logs, instead of stopping
    #[arg(long)]
    pub append_new: bool,
    /// Replay this function although it has `network = true`: its effects outside the namespace may happen again (may be repeated)
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::functions))]
    pub run_external: Vec<String>,
    /// Also repair this namespace, which received records of this one: an address, a context, or the directory of a namespace with a host
    /// (may be repeated)
    #[arg(long, value_name = "NAMESPACE", add = ArgValueCompleter::new(complete::namespaces))]
    pub with: Vec<PathBuf>,
    /// The reason for the repair, for people who read it later
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The repair's number
    #[arg(value_parser = repair)]
    pub repair: u64,
}

#[derive(Debug, Args)]
pub struct RepairShowArgs {
    /// The repair's number
    #[arg(value_parser = repair)]
    pub repair: u64,
    /// Show the repair again whenever it changes, until the host has nothing left to do for it
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// The repair's number
    #[arg(value_parser = repair)]
    pub repair: u64,
    /// The reason for the rollback, for people who read it later
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

#[derive(Debug, Args)]
pub struct RepairDiffArgs {
    /// The repair's number
    #[arg(value_parser = repair)]
    pub repair: u64,
    /// Only the records of this log
    pub log: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("change").args(["at", "values", "function"]).required(true).multiple(true))]
pub struct PlanArgs {
    /// The log whose records to correct
    #[arg(add = ArgValueCompleter::new(complete::logs), required_unless_present = "function")]
    pub log: Option<String>,
    /// The records: a SEQNO, a range FIRST..LAST that includes both, or all between two times, as in 2026-11-03T00:00:00Z..2026-11-03T23:59:59Z
    #[arg(long, value_name = "SEQNO[..SEQNO] | TIME..TIME", requires = "log")]
    pub at: Option<String>,
    /// A file with the new values; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "log", value_hint = ValueHint::FilePath)]
    pub values: Option<PathBuf>,
    /// Replay the runs of this function with new code: a file or directory (may be repeated)
    #[arg(long, value_name = "NAME=SOURCE")]
    pub function: Vec<String>,
    /// Replay only runs that started after EVENT: LOG@SEQNO or an event id [default: all that are kept]
    #[arg(long, value_name = "EVENT", requires = "function")]
    pub since: Option<String>,
    /// Plan even if some of the runs that read the records are no longer known
    #[arg(long)]
    pub accept_unknown: bool,
    /// Plan to replay this function although it has `network = true` (may be repeated)
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::functions))]
    pub run_external: Vec<String>,
    /// Also replay this many of the newest runs of each function unchanged, and name the functions whose output differs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub verify: Option<u32>,
    /// Also write a picture of the logs and functions that the repair would reach: a file that ends in .svg or .dot
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub with: WithArgs,
}
