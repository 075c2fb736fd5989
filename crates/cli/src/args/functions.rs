//! `millrace function …`, `millrace run …` and `millrace journal …`

use crate::complete;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use millrace_node::{Runtime, application::units};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub enum FunctionCommand {
    /// Deploy a function, or replace it by a new version
    #[command(after_help = "\
The code is copied, so later edits change nothing until the next deploy; runs under way finish with the old code. An \
application of several functions is better kept in millrace.toml: see `millrace up`.

Examples:
  millrace function deploy smooth --runtime python --code functions --handler smooth:smooth --on raw/kitchen
  millrace function deploy count --runtime wasm --code count.wasm --on raw/kitchen
  millrace function deploy shout --runtime oneshot --code shout.sh --on inbox -- ./shout.sh")]
    Deploy(Box<DeployArgs>),
    /// List the functions
    #[command(after_help = "\
ENDED counts all runs that have ended, also those that failed for good (DEAD) and those that were cancelled.

Examples:
  millrace function ls
  millrace function ls --json | jq .pending")]
    Ls,
    /// Show one function: its code, bindings, limits and rights
    #[command(after_help = "\
Examples:
  millrace function show smooth
  millrace function show smooth --json | jq .reads")]
    Show(ShowFunctionArgs),
    /// Append a record that runs one function, and print the result
    #[command(after_help = "\
The record goes to the log that the function is bound to, and runs whatever else is bound to it; --log chooses among several. \
For a function that is bound to no log it goes to the log invoke/FUNCTION, which is created if it does not exist.

With --wait the command waits for the end of the run and prints what it appended; if the run failed for good, it prints the error and exits with 1.

Examples:
  millrace function invoke greet --data world
  millrace function invoke greet --data world --wait
  millrace function invoke greet --wait --timeout 5s < request.json")]
    Invoke(InvokeArgs),
    /// Print the output and the errors of a function's runs
    #[command(after_help = "\
Lists runs that have ended, the newest last.

Examples:
  millrace function logs smooth
  millrace function logs smooth -f             wait for more
  millrace function logs smooth -l 100 --json")]
    Logs(FunctionLogsArgs),
    /// Run a function for records that exist already
    #[command(after_help = "\
The function, and no other, runs once for each record of the log, oldest first, whether or not it ran for that record before. \
No record is appended. If it fails half-way, it says how to continue.

Examples:
  millrace function backfill smooth                       each record that its log keeps
  millrace function backfill smooth --from 1000
  millrace function backfill smooth --log raw/attic --from 1 --to 500")]
    Backfill(BackfillArgs),
    /// Remove a function; what it appended stays
    #[command(after_help = "\
Examples:
  millrace function rm smooth
  millrace function rm smooth --force    give up its pending runs; each leaves a dead letter")]
    Rm(RmFunctionArgs),
}

#[derive(Debug, Args)]
pub struct InvokeArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
    /// The record [default: standard input]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub data: Option<String>,
    /// The log to append it to
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub log: Option<String>,
    /// Wait until the run has ended, and print what it appended
    #[arg(long)]
    pub wait: bool,
    /// How long --wait waits
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct BackfillArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
    /// The log with the records [default: the log that the function is bound to]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub log: Option<String>,
    /// The first record [default: the oldest that is kept]
    #[arg(long, value_name = "SEQNO", value_parser = super::logs::seqno)]
    pub from: Option<u64>,
    /// The last record [default: the newest]
    #[arg(long, value_name = "SEQNO", value_parser = super::logs::seqno)]
    pub to: Option<u64>,
    /// How long to keep trying while too many runs of the function are pending
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    pub busy_timeout: Duration,
}

#[derive(Debug, Args)]
pub struct FunctionLogsArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
    /// Begin with this many of the newest runs
    #[arg(short, long, value_name = "RUNS", default_value_t = 20, value_parser = units::parse_count)]
    pub last: u64,
    /// Wait for more runs
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct ShowFunctionArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct RmFunctionArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
    /// Give up its pending runs; each leaves a dead letter
    #[arg(long)]
    pub force: bool,
}

/// What runs a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeArg {
    /// Warm Python workers
    Python,
    /// A WebAssembly module
    Wasm,
    /// A persistent process that speaks the worker protocol
    Process,
    /// One process per record: the record on standard input, exit code 0 means success
    Oneshot,
}

impl From<RuntimeArg> for Runtime {
    fn from(runtime: RuntimeArg) -> Self {
        match runtime {
            RuntimeArg::Python => Runtime::Python,
            RuntimeArg::Wasm => Runtime::Wasm,
            RuntimeArg::Process => Runtime::Process,
            RuntimeArg::Oneshot => Runtime::Oneshot,
        }
    }
}

#[derive(Debug, Args)]
pub struct DeployArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
    /// What runs the code
    #[arg(long)]
    pub runtime: RuntimeArg,
    /// File or directory with the code
    #[arg(long, value_name = "PATH")]
    pub code: PathBuf,
    /// python: module:function; wasm: the exported function
    #[arg(long)]
    pub handler: Option<String>,
    /// Run for every record of this log (may be repeated)
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub on: Vec<String>,
    /// The Python interpreter
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    /// Maximum number of runs at once, in any order
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub concurrency: Option<u64>,
    /// Run at most one at a time of all functions that share this monitor's name
    #[arg(long, value_name = "NAME")]
    pub monitor: Option<String>,
    /// Publish each append at once; a repeated attempt gets the same answers as the one before
    #[arg(long)]
    pub streamed: bool,
    /// Let the function use the host's network from inside its sandbox
    #[arg(long)]
    pub network: bool,
    /// A log that the function may read; `NAME/` means all logs below NAME (may be repeated) [default: every log]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub reads: Vec<String>,
    /// A log that the function may append to, likewise [default: every log]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub appends: Vec<String>,
    /// An address that the function may send messages to (may be repeated) [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub sends: Vec<String>,
    /// A secret that the function may read (may be repeated); see `millrace secret`
    #[arg(long, value_name = "NAME")]
    pub secret: Vec<String>,
    /// Maximum duration of a run
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub timeout: Option<Duration>,
    /// Maximum memory of a run or worker
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub memory: Option<u64>,
    /// Maximum number of attempts after the first one
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub retries: Option<u64>,
    /// Pause before the first retry; it doubles with each
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub backoff: Option<Duration>,
    /// The log for records whose attempts all failed [default: dead/FUNCTION]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub dead_letter: Option<String>,
    /// Program and arguments (process, oneshot)
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// List runs, newest first
    #[command(after_help = "\
Examples:
  millrace run ls
  millrace run ls --function smooth --state dead
  millrace run ls -l 100 --json")]
    Ls(RunLsArgs),
    /// Show one run: its cause, attempts, reads, appends and output
    #[command(after_help = "\
Examples:
  millrace run show                 the newest
  millrace run show 5f3a9c0d1e2b-0-1c")]
    Show(RunIdArgs),
    /// Wait until a run has ended, or until nothing is pending
    #[command(after_help = "\
Exits with 0 when the wait succeeds, and with 1 if the timeout expires first or the run is dead.

Examples:
  millrace run wait --idle
  millrace run wait --idle --timeout 10s
  millrace run wait 5f3a9c0d1e2b-0-1c")]
    Wait(RunWaitArgs),
    /// Cancel a run that has not ended
    #[command(after_help = "\
A run that has not started never does. One in progress is stopped within a second, and nothing that it appends is published; what a \
streamed function has published stays. The run is then `cancelled`: it is not retried and leaves no dead letter. Other runs of the record are not affected.

Examples:
  millrace run cancel 5f3a9c0d1e2b-0-1c
  millrace run ls --state started           runs to choose from")]
    Cancel(RunCancelArgs),
    /// Run the records of dead letters again
    #[command(after_help = "\
A run that failed in every attempt leaves a dead letter. Correct the function, then retry: the function runs again on the record in its \
log, or on the copy in the dead letter. No record is appended, and no other function runs. The dead letter stays and is retried once, even \
if the command is repeated or killed half-way. If all attempts of the new run fail, it leaves a dead letter of its own. Works on the \
namespace's files, with or without a host.

Exits with 1 if the record has left its log's history and was longer than 64 KiB, too long to be copied into the dead letter.

Examples:
  millrace run retry 5f3a9c0d1e2b-0-1c
  millrace run retry --function smooth")]
    Retry(RunRetryArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("retried").args(["id", "function"]).required(true))]
pub struct RunRetryArgs {
    /// The dead run's id
    #[arg(value_name = "RUN")]
    pub id: Option<String>,
    /// Retry all dead letters of this function that were not retried yet
    #[arg(long, value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub function: Option<String>,
    /// How long to keep trying while too many runs of the function are pending
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    pub busy_timeout: Duration,
}

#[derive(Debug, Args)]
pub struct RunCancelArgs {
    /// The run's id, as `run ls` prints it
    #[arg(value_name = "RUN")]
    pub id: String,
}

#[derive(Debug, Args)]
pub struct RunIdArgs {
    /// The run's id, as `run ls` prints it [default: the newest]
    #[arg(value_name = "RUN")]
    pub id: Option<String>,
}

/// The states a run can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// Not started yet
    Pending,
    /// Running, or waiting for another attempt
    Started,
    /// Published
    Done,
    /// Every attempt failed
    Dead,
    /// Cancelled before the function ended
    Cancelled,
}

#[derive(Debug, Args)]
pub struct RunLsArgs {
    /// Only runs of this function
    #[arg(long, value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub function: Option<String>,
    /// Only runs caused by records of this log
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub log: Option<String>,
    /// Only runs in this state
    #[arg(long)]
    pub state: Option<StateArg>,
    /// Maximum number of runs to list
    #[arg(short, long, value_name = "RUNS", default_value_t = 20, value_parser = units::parse_count)]
    pub last: u64,
    /// Only runs older than this one
    #[arg(long, value_name = "RUN")]
    pub before: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("awaited").args(["id", "idle"]).required(true))]
pub struct RunWaitArgs {
    /// The run's id
    #[arg(value_name = "RUN")]
    pub id: Option<String>,
    /// Wait until nothing is pending
    #[arg(long)]
    pub idle: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    pub timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Print journal entries
    #[command(after_help = "\
Examples:
  millrace journal show
  millrace journal show -l 5
  millrace journal show --from 0 --json
  millrace journal show --follow")]
    Show(JournalShowArgs),
}

#[derive(Debug, Args)]
pub struct JournalShowArgs {
    /// Print this many of the newest entries
    #[arg(short, long, value_name = "ENTRIES", default_value_t = 20, value_parser = units::parse_count, conflicts_with = "from")]
    pub last: u64,
    /// Begin at the entry at this position instead: a number of the first column of the output
    #[arg(long, value_name = "POSITION", value_parser = units::parse_count)]
    pub from: Option<u64>,
    /// Wait for more entries
    #[arg(long)]
    pub follow: bool,
}
