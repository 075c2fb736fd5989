//! `millrace function …`, `millrace run …` and `millrace journal …`

use super::data::ModeArg;
use crate::complete;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use millrace_node::{Runtime, application::units};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub enum FunctionCommand {
    /// Deploy a new function, or a new version of an existing one
    #[command(after_help = "\
The code is copied, so later edits have no effect until the next deploy. An attempt in progress finishes with the old code; pending runs \
and retries use the new code. The command needs the namespace's files. To deploy at an address, or an application of several functions, \
use millrace.toml instead: see `millrace up`.

Examples:
  millrace function deploy smooth --runtime python --code functions --handler smooth:smooth --on raw
  millrace function deploy count --runtime wasm --code count.wasm --on raw/kitchen
  millrace function deploy shout --runtime oneshot --code shout.sh --on inbox -- ./shout.sh")]
    Deploy(Box<DeployArgs>),
    /// List the functions
    #[command(after_help = "\
The column ENDED counts all runs that have ended, including failed and cancelled ones. The column DEAD counts the runs that failed \
permanently and whose dead letters have not been retried, and in parentheses the dead letters that have left the history of their log.

Examples:
  millrace function ls
  millrace function ls --json | jq .pending")]
    Ls,
    /// List the pools of workers and their tasks
    #[command(after_help = "\
A pool runs the tasks of executors (`millrace.Executor` in Python). A task that raises an exception has ended: its client gets the \
exception. The column RAISED counts exceptions among the newest 200 results. The column FAILED counts tasks that were given up.

Examples:
  millrace function pools
  millrace function pools --json | jq .queued")]
    Pools,
    /// Show one function: its runs, code, bindings and rights
    #[command(after_help = "\
Examples:
  millrace function show smooth
  millrace function show smooth --json | jq .reads")]
    Show(ShowFunctionArgs),
    /// Run a function for a record, wait for the end of the run, and print its result
    #[command(after_help = "\
Appends the record to the log that the function is bound to, or to the log that --log names. Other functions that are bound to this log \
run for the record, too. If the function is bound to several logs, --log is required. If it is bound to none, the default is the log \
invoke/FUNCTION, which is created if it does not exist.

The command waits until the run has ended, and prints the result: the value that the function returned (text and bytes as they are, and \
everything else as JSON), or, if it returned none, the records that it appended. If every attempt of the run failed, or if the run was \
cancelled, it prints the error and exits with 1; it also exits with 1 if the run has not ended after --timeout.

Examples:
  millrace function invoke greet world
  millrace function invoke price '{\"item\":\"tea\",\"count\":2}'
  millrace function invoke greet - --timeout 5s < request.json
  millrace function invoke greet world --no-wait     # append the record only")]
    Invoke(InvokeArgs),
    /// Print the output and the errors of the runs of a function
    #[command(after_help = "\
Of the newest runs, shows those that have ended, the oldest first.

Examples:
  millrace function logs smooth
  millrace function logs smooth -f             # print further runs as they end
  millrace function logs smooth -l 100 --json")]
    Logs(FunctionLogsArgs),
    /// Run a function for existing records of a log
    #[command(after_help = "\
Starts runs of this function only, one for each record of the log, the oldest first. Without --from and --to, records whose append already \
started a run of the function are left out; with one of them, every record of the range gets a run, even if the function has already run \
for it. Appends no records to the log, and does not wait until the runs have ended. If the command fails half-way, it prints how to continue. If \
the function is not bound to exactly one log, --log is required.

Examples:
  millrace function backfill smooth                       # run for the records that were there before it
  millrace function backfill smooth --from 1000
  millrace function backfill smooth --log raw/attic --from 1 --to 500")]
    Backfill(BackfillArgs),
    /// Remove a function; the records that it appended stay
    #[command(after_help = "\
Without --force, a function that has pending runs is not removed (MR3020).

Examples:
  millrace function rm smooth
  millrace function rm smooth --force    # abandon its pending runs; each becomes a dead letter")]
    Rm(RmFunctionArgs),
}

#[derive(Debug, Args)]
pub struct InvokeArgs {
    /// The function's name
    #[arg(value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub name: String,
    /// The record; `-` reads standard input [default: standard input]
    #[arg(value_name = "DATA", conflicts_with = "data")]
    pub record: Option<String>,
    /// The record, which may begin with a hyphen
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub data: Option<String>,
    /// The log to append the record to [default: the log that the function is bound to, else invoke/FUNCTION]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub log: Option<String>,
    /// Wait until the run has ended; this is the default
    #[arg(long, hide = true, conflicts_with = "no_wait")]
    pub wait: bool,
    /// Append the record, and do not wait for the run
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait for the end of the run
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
    /// The first record [default: the oldest that is kept; see below]
    #[arg(long, value_name = "SEQNO", value_parser = super::data::seqno)]
    pub from: Option<u64>,
    /// The last record [default: the newest; see below]
    #[arg(long, value_name = "SEQNO", value_parser = super::data::seqno)]
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
    /// Abandon its pending runs; each becomes a dead letter
    #[arg(long)]
    pub force: bool,
}

/// What runs a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeArg {
    /// Python code, in worker processes that stay alive between runs
    Python,
    /// A WebAssembly module
    Wasm,
    /// A program that stays alive between runs and implements the worker protocol
    Process,
    /// A program that is started for each record: it reads the record from standard input, and exits with 0 for success
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
    /// For python: MODULE:FUNCTION; for wasm: the name of the exported function [default for wasm: handle]
    #[arg(long)]
    pub handler: Option<String>,
    /// Run for every record of this log (may be repeated)
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub on: Vec<String>,
    /// The code is the twin of a function that runs on devices of this model; the function is called MODEL.NAME
    #[arg(long, value_name = "MODEL")]
    pub at: Option<String>,
    /// The Python interpreter: a path, or a name to search for in PATH [default: python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,
    /// Maximum number of runs at once; if more than 1, runs are not ordered [default: 1]
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub concurrency: Option<u64>,
    /// Run at most one of the functions with this monitor at a time
    #[arg(long, value_name = "NAME")]
    pub monitor: Option<String>,
    /// Make each append visible at once; a retry sees the same records, time and random numbers as the previous attempt
    #[arg(long)]
    pub streamed: bool,
    /// What others may change while a run is in progress: `snapshot`, other keys than those which the run changes; `serializable`, nothing
    /// that it has read [default: snapshot]
    #[arg(long, value_name = "LEVEL")]
    pub isolation: Option<String>,
    /// How what depends on the function's changes of tables waits for their databases [default: that of each table]
    #[arg(long, value_enum, value_name = "MODE")]
    pub table_mode: Option<ModeArg>,
    /// Let the function use the host's network
    #[arg(long)]
    pub network: bool,
    /// A log that the function may read; `NAME/` is NAME and all logs below it (may be repeated) [default: every log]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub reads: Vec<String>,
    /// A log that the function may append to; `NAME/` is NAME and all logs below it (may be repeated) [default: every log]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub appends: Vec<String>,
    /// An address that the function may send messages to (may be repeated) [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub sends: Vec<String>,
    /// A secret that the function may read (may be repeated); see `millrace secret`
    #[arg(long, value_name = "NAME")]
    pub secret: Vec<String>,
    /// Maximum duration of a run [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub timeout: Option<Duration>,
    /// Maximum memory of a run or worker [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub memory: Option<u64>,
    /// Maximum number of attempts after the first one [default: 3]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u64).range(0..=100))]
    pub retries: Option<u64>,
    /// Pause before the first retry; it doubles for each further one, up to 30s [default: 100ms]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub backoff: Option<Duration>,
    /// The log for the dead letters of runs that failed in every attempt [default: dead/FUNCTION]
    #[arg(long, value_name = "LOG", add = ArgValueCompleter::new(complete::logs))]
    pub dead_letter: Option<String>,
    /// For process and oneshot: the program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// List runs, newest first
    #[command(after_help = "\
One call examines at most 20000 runs. If that is not enough to list as many runs as --last asks for, the command prints the --before to \
continue with.

Examples:
  millrace run ls
  millrace run ls --function smooth --state dead
  millrace run ls -l 100 --json")]
    Ls(RunLsArgs),
    /// Show one run: its cause, attempts, reads, appends and output
    #[command(after_help = "\
Examples:
  millrace run show                 # the newest
  millrace run show 5f3a9c0d1e2b-0-1c")]
    Show(RunIdArgs),
    /// Print what a run printed, or prints
    #[command(after_help = "\
While a run is in progress, its host has the newest 64 KiB of its output; the output of a function with secrets is shown when its run ends. \
Afterwards the journal has the output, up to the output limit of the function.

Examples:
  millrace run output                  # of the newest
  millrace run output 5f3a9c0d1e2b-0-1c --follow")]
    Output(RunOutputArgs),
    /// List the dead letters by function and error
    #[command(after_help = "\
One call reads at most 20000 dead letters, the newest of each log. The column WAITING counts those that were not retried.

Examples:
  millrace run failures
  millrace run failures --since 1h --function smooth
  millrace run retry --function smooth --code MR3002     # retry one group")]
    Failures(RunFailuresArgs),
    /// Wait until a run, or every run, has ended
    #[command(after_help = "\
Exits with 0 when the run has ended successfully or all runs have ended, and with 1 if the timeout expires first, or if the run is dead or \
cancelled.

Examples:
  millrace run wait --idle
  millrace run wait --idle --timeout 10s
  millrace run wait 5f3a9c0d1e2b-0-1c")]
    Wait(RunWaitArgs),
    /// Cancel a run that has not ended
    #[command(after_help = "\
A run that has not started will not start. A run in progress is stopped within a second, and nothing that it appended is published; what a \
streamed function has already published stays. The run's state is then `cancelled`: it is not retried and leaves no dead letter. Runs of \
other functions for the same record are not affected.

Examples:
  millrace run cancel 5f3a9c0d1e2b-0-1c
  millrace run ls --state started           # list runs in progress")]
    Cancel(RunCancelArgs),
    /// Run functions again for the records of dead letters
    #[command(after_help = "\
A run that failed in every attempt leaves a dead letter, and so does a run that was pending when its function was removed with --force. \
Correct the function, then retry: the function runs again for the record in its log, or for the copy of it in the dead letter. The record \
is not appended again, and no other function runs. The dead letter stays. It is retried only once, even if the command is repeated or \
killed half-way. If all attempts of the new run fail, that run leaves its own dead letter. The command works on a directory, whether or \
not a host is running, and on an address.

Exits with 1 if a dead letter cannot be retried, for example because the record has left its log's history and is not in the dead letter \
either, because it is longer than 64 KiB.

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
    /// Of these dead letters, retry only those with this error
    #[arg(long, value_name = "CODE", requires = "function")]
    pub code: Option<String>,
    /// How long to keep trying while too many runs of the function are pending
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::parse_duration)]
    pub busy_timeout: Duration,
}

#[derive(Debug, Args)]
pub struct RunOutputArgs {
    /// The run's id, as `run ls` prints it [default: the newest]
    #[arg(value_name = "RUN")]
    pub id: Option<String>,
    /// Print further output as it comes, until the run ends
    #[arg(short, long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct RunFailuresArgs {
    /// Only dead letters of this last span of time
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub since: Option<Duration>,
    /// Only dead letters of this function
    #[arg(long, value_name = "FUNCTION", add = ArgValueCompleter::new(complete::functions))]
    pub function: Option<String>,
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
    /// Ended successfully; its appends are visible
    Done,
    /// Ended without success: all attempts failed, its function was removed, or it could not be executed
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
    /// Wait until all runs have ended
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
    /// Print all entries from this position on instead. Positions are in the first column of the output; 0 prints all entries that are kept
    #[arg(long, value_name = "POSITION", value_parser = units::parse_count)]
    pub from: Option<u64>,
    /// Wait for more entries
    #[arg(long)]
    pub follow: bool,
}
