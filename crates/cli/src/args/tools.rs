//! Commands about the command itself, and those that watch and load a namespace.

use super::Durability;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use millrace_node::application::units;
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// The shells that can complete commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: ShellArg,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command into this directory, which is created if it does not exist
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DashboardArgs {
    /// Open the address in a browser, with xdg-open. An address with a code or a capability is passed in a file that only this user can
    /// read, and that is removed after 10 s
    #[arg(long)]
    pub open: bool,
    /// Put this capability into the link: a file, or - for standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub capability: Option<PathBuf>,
    /// Print the host's own address, even if it is on another machine
    #[arg(long)]
    pub direct: bool,
    /// Put a code into the link that a browser exchanges for all rights, once and within 60 s. Needs the machine of the host
    #[arg(long, conflicts_with = "capability")]
    pub code: bool,
}

#[derive(Debug, Args)]
pub struct SqlArgs {
    /// The query: SELECT, or COPY (SELECT ...) TO 'file.parquet'; - reads it from standard input
    pub query: String,
    /// How to decode a log: json, text, number or bytes; with ? after it, a record that cannot be decoded is NULL [default: as its newest
    /// record is]
    #[arg(long, value_name = "LOG=DECODER")]
    pub decode: Vec<String>,
    /// Memory that the query may use before it writes to temporary files [default: 1GB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Print CSV with a header
    #[arg(long)]
    pub csv: bool,
}

#[derive(Debug, Args)]
pub struct TopArgs {
    /// Interval between updates
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = units::parse_duration)]
    pub every: Duration,
    /// Print rates once, after the first interval, and exit
    #[arg(long)]
    pub once: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub what: Option<BenchCommand>,
    /// The namespace: a directory, an address or a context [default: the namespace of --namespace]
    pub address: Option<PathBuf>,
    /// Size of a record
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = units::parse_size)]
    pub size: u64,
    /// Number of connections; for a directory, of threads
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub connections: u32,
    /// Maximum number of unanswered appends per connection; for a directory, records per commit
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub window: u32,
    /// Duration of the measurement
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    pub seconds: f64,
    /// What an append waits for [default: the namespace's]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
    /// Appends per second over all connections, evenly spaced [default: as many as possible]
    #[arg(long, value_name = "PER-SECOND", value_parser = rate)]
    pub rate: Option<f64>,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure how many functions a platform runs at once: workers of Millrace, AWS Lambda, OpenWhisk, HTTP or local processes
    #[command(after_help = "\
An experiment is I/W/T/M: invocations at once, instances that are expected to be warm, task (S sleep, C compute, M matrix products), memory \
(s is 256 MiB, b 2048 MiB, or a number of MiB). The command runs the module millrace.parallelism of the Python package with the extra \
`parallelism`; MILLRACE_PYTHON names the interpreter, by default python3 beside this program or in PATH. Print the options of the module with \
`millrace bench parallelism -- --help`.

Examples:
  millrace bench parallelism 50/0/C/s --on local --calibrate -o local.json
  millrace bench parallelism 200/0/S/s --on millrace --url farm --workers 64 -o ours.json
  millrace bench parallelism chart ours.json -o ours.svg
  millrace bench parallelism compare local.json ours.json -o both.png")]
    Parallelism(ParallelismArgs),
}

#[derive(Debug, Args)]
pub struct ParallelismArgs {
    /// The experiment with its options, or chart, table, compare or function with theirs
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub words: Vec<OsString>,
}

/// A rate as typed.
fn rate(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number"))
}
