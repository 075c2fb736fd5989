//! The command line, declared with clap. The help of every command has an example; a test checks this.

mod access;
mod clusters;
mod contexts;
mod data;
mod devices;
mod entities;
mod functions;
mod history;
mod links;
mod namespaces;
mod serving;
mod tools;

pub use access::*;
pub use clusters::*;
pub use contexts::{AddContextArgs, ContextCommand, ShowContextArgs, UseContextArgs};
pub use data::*;
pub use devices::*;
pub use entities::EntityCommand;
pub use functions::{
    BackfillArgs, DeployArgs, FunctionCommand, FunctionLogsArgs, InvokeArgs, JournalCommand, JournalShowArgs,
    RmFunctionArgs, RunCancelArgs, RunCommand, RunFailuresArgs, RunLsArgs, RunOutputArgs, RunRetryArgs, RunWaitArgs,
    StateArg,
};
pub use history::{
    GraphArgs, GraphFormat, PlanArgs, RepairCommand, RepairDiffArgs, RepairRunArgs, RepairShowArgs, TraceArgs, WithArgs,
};
pub use links::*;
pub use namespaces::{BackupArgs, CheckArgs, NamespaceCommand, RestoreArgs, RetentionArgs};
pub use serving::{DemoArgs, ListenArgs, ServeArgs};
pub use tools::{
    BenchArgs, BenchCommand, CompletionsArgs, DashboardArgs, ManArgs, ParallelismArgs, ShellArg, SqlArgs, TopArgs,
};

use crate::complete;
use clap::{Parser, Subcommand};
use clap_complete::ArgValueCompleter;
use millrace_node::{Result, application::units};
use std::{ffi::OsString, path::PathBuf};

/// Append-only logs that run functions: each appended record runs the functions bound to its log, and each run takes effect exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "millrace",
    version,
    propagate_version = false,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  millrace demo                     # see it at work, with a dashboard
  millrace init demo && cd demo     # create an application: millrace.toml and one function
  millrace dev                      # run it, and apply each change that you save
  millrace log append inbox world   # append a record, for which the function runs
  millrace log tail outbox          # print the records that the function appends
  millrace why                      # explain what is waiting, and why

Exit codes: 0 done, 1 failed, 2 wrong usage, 74 disk failed, 75 busy (try again later).
`millrace help COMMAND` shows help with examples; `millrace error CODE` explains any error, such as MR2101."
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The command line with `help COMMAND…` as `COMMAND… --help`.
pub fn spelled_out(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|word| word == "help") {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// Options that every command takes.
#[derive(Debug, clap::Args)]
pub struct Global {
    /// Print JSON: one object, or for a list one object per line
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// The namespace: a directory, mr://host:port/namespace, unix:PATH or the name of a context (see `millrace context`)
    /// [default: $MILLRACE_NAMESPACE, else `path` in ./millrace.toml, else ./.millrace, else `path` in the millrace.toml of a parent
    /// directory, else the selected context]
    #[arg(
        short, long, global = true, value_name = "NAMESPACE", help_heading = "Global options",
        add = ArgValueCompleter::new(complete::namespaces)
    )]
    pub namespace: Option<PathBuf>,
    /// CA certificates to verify a host whose key is not stored for this user (see `millrace join`): a PEM file, or 'system' for the
    /// CA certificates of this machine [default: the value in the context, else $MILLRACE_CA]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub ca: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an application: millrace.toml, a first function and the namespace
    #[command(after_help = "\
Existing files are not changed, so the command can be repeated. Without --namespace and $MILLRACE_NAMESPACE, the namespace is \
the `path` in DIR/millrace.toml, else DIR/.millrace.

Examples:
  millrace init                     # in the current directory
  millrace init demo                # in the directory demo, which is created if it does not exist
  millrace init --bare              # only the namespace, no millrace.toml
  millrace -n /var/lib/mill init --bare --durability memory")]
    Init(InitArgs),
    /// Run the application of the current directory, and apply each saved change
    #[command(after_help = "\
Creates the namespace if there is none, applies millrace.toml, runs the functions, and prints each record and run. A change of \
millrace.toml or of a function's code is applied within a second, as by `millrace up --take-over`. Functions that the file no longer names \
are removed after two more seconds, unless they have pending runs: `millrace up --force` abandons these. If a change is invalid, the \
command prints the error and keeps running the last valid version. A file with topics is refused (MR7221): `millrace up` applies it through a \
host of the cluster. Without --namespace and $MILLRACE_NAMESPACE, the namespace is the `path` in the file, else .millrace beside the file.

Examples:
  millrace dev
  millrace dev --quiet              # print only failures and changes
  millrace dev --file other.toml")]
    Dev(DevArgs),
    /// See Millrace at work: a year of real readings, functions that compute from them, and the dashboard
    #[command(after_help = "\
Creates DIR with a small application: readings of the thermometers of three airports, and Python functions that estimate one from the other \
two (without Python, a shell script). Replays a year of readings, and goes on with an hour each second, until Ctrl-C. The command prints the \
link of the dashboard, and what to try meanwhile. If it is started again with the same DIR, it goes on where it was. It needs no compiler and \
no network. Without --listen and --port, it uses another port if 7070 is in use.

Examples:
  millrace demo
  millrace demo /tmp/demo --port 8080")]
    Demo(Box<DemoArgs>),
    /// Apply millrace.toml: create logs, deploy functions, remove functions that it no longer names
    #[command(after_help = "\
Works whether or not a host is running; a running host applies the changes at once. If the command is repeated, it changes nothing. The \
whole file is checked first: if it has an error, nothing is changed. If the file has topics, a host of a cluster must be running (MR7221); \
it creates the topics first, so they stay even if the rest is then refused.

A function that `up` or `dev` deployed from this file, and that the file no longer names, is removed. If it has pending runs, \
nothing is changed without --force, which abandons them. Logs stay, even if the file no longer names them. If the file names a function that was deployed from \
another file or by another user, nothing is changed without --take-over.

With --namespace ADDRESS, the command sends the file and the code of its functions to that host, which checks and applies them. Code that \
the host already has is not sent again. A function gets only rights that you have: see `millrace cap issue`.

Examples:
  millrace up
  millrace up --dry-run             # print what would change
  millrace -n mr://127.0.0.1:7070/farm up
  millrace --json up | jq .change")]
    Up(UpArgs),
    /// Remove the functions of millrace.toml; logs and their records stay
    #[command(after_help = "\
Also removes functions that `up` or `dev` deployed from this file earlier and that the file no longer names. With --namespace ADDRESS, \
removes the file's functions from the namespace at that address. While there are pending runs, nothing is removed without --force. If the \
file names a function that was deployed from another file or by another user, nothing is removed without --take-over. Topics stay; the \
subscriptions of the functions, and the feeds that the file declares, end.

Examples:
  millrace down
  millrace down --logs              # also remove the logs and the dead letters
  millrace down --force             # abandon pending runs; each becomes a dead letter")]
    Down(DownArgs),
    /// Run the namespace's functions and answer clients, until SIGINT, SIGTERM or SIGHUP
    #[command(after_help = "\
Programs reach the host at the addresses of --listen, each of which accepts both the wire protocol and HTTP, and over the Unix socket in \
the directory of the first namespace. At addresses that other machines can reach, the host requires an encrypted connection and a \
capability (a token that grants rights) of every client: `millrace invite` issues one for another machine.

After the first signal, the host lets running functions finish (see --drain); after a second one, it stops at once. No record and no run \
is lost in either case: a run that was interrupted runs again after the next start. Shared objects that are neither persistent nor \
replicated end with the host.

Examples:
  millrace serve
  millrace serve --listen 127.0.0.1:0     # use any free port
  millrace serve --listen 0.0.0.0:7070    # accept connections from other machines, too
  millrace -n /var/lib/mill serve --listen none --drain 30s
  millrace serve farm=/var/lib/farm shop=/var/lib/shop
  millrace serve --join mr://127.0.0.1:7070/a --cluster-secret cluster.secret --site lab
  curl http://127.0.0.1:7070/v1/namespaces")]
    Serve(Box<ServeArgs>),
    /// Logs: create, append, get, tail, set, trim, export, import, ls, stat, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace log create raw/kitchen --history 1000
  millrace log append raw/kitchen 21.5
  millrace log get raw/kitchen"
    )]
    Log(LogCommand),
    /// Tables, logs whose records have keys: create, put, get, delete, increment, scan, versions, ls
    #[command(subcommand, arg_required_else_help = true, after_help = data::TABLE_EXAMPLES)]
    Table(TableCommand),
    /// Secrets of functions: set, ls, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
A function can read the secrets that its definition names: `secrets = [\"api-key\"]` in millrace.toml. The values of secrets are neither in \
the journal nor in backups.

Examples:
  millrace secret set api-key < key.txt
  millrace secret ls"
    )]
    Secret(SecretCommand),
    /// Functions: deploy, ls, show, invoke, logs, backfill, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace function ls
  millrace function invoke shout hello
  millrace function deploy shout --runtime oneshot --code shout.sh --on inbox -- ./shout.sh
  millrace function rm shout"
    )]
    Function(FunctionCommand),
    /// Runs: ls, show, wait, cancel, retry
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace run ls --function smooth
  millrace run show 5f3a9c0d1e2b-0-1c
  millrace run wait --idle --timeout 10s"
    )]
    Run(RunCommand),
    /// Shared objects (objects of a host that programs and tasks call): ls, why
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace entity ls
  millrace entity why door",
        visible_alias = "object"
    )]
    Entity(EntityCommand),
    /// The journal: show its entries
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace journal show -l 20
  millrace journal show --follow"
    )]
    Journal(JournalCommand),
    /// Whole namespaces: check, backup, restore
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace namespace check
  millrace namespace backup /backup/monday
  millrace namespace restore /backup/monday restored"
    )]
    Namespace(NamespaceCommand),
    /// Explain why a function, log, run, relay or outbox is waiting
    #[command(after_help = "\
`millrace relay ls` and `millrace outbox ls` print the names of relays and peers. Without TARGET, the command lists everything that waits.

Examples:
  millrace why
  millrace why smooth
  millrace why raw/kitchen
  millrace why 5f3a9c0d1e2b-0-1c")]
    Why(WhyArgs),
    /// Show what a record or a run caused, or what caused it
    #[command(after_help = "\
Prints a tree: a record, the runs that it triggered and those that read it, the records that they appended, and so on. Times are \
relative to the record or run at the root. --with adds the journals of other namespaces. A directory that no process uses, such as a \
backup or a copy from a failed machine, is read without changing it.

Examples:
  millrace trace raw/kitchen@17
  millrace trace raw/kitchen              # the newest record
  millrace trace --up prediction@289      # the records and runs that led to it
  millrace trace 5f3a9c0d1e2b-0-1c        # what a run caused
  millrace trace raw/kitchen@17 --with mr://127.0.0.1:7071/edge --json")]
    Trace(TraceArgs),
    /// Draw the logs, the functions and the flow of records between them
    #[command(after_help = "\
Shows records, runs, rates, times and failures, as far back as the journal reaches. The wait of a run is the time from its trigger to its \
first attempt; its duration is that of its last attempt. In the text format, the columns WAITS and TAKES are medians.

Examples:
  millrace graph
  millrace graph --since 1h
  millrace graph -o graph.svg             # the extension selects the format: svg, json, dot
  millrace graph --format dot | dot -Tpdf > graph.pdf
  millrace -n edge graph --with cloud     # show two namespaces in one graph")]
    Graph(GraphArgs),
    /// Repair history: plan, run, ls, show, diff, apply, rollback, abandon, gc
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace repair plan raw/kitchen --values stale-day.csv
  millrace repair plan raw/kitchen --at 289..576 --json"
    )]
    Repair(RepairCommand),
    /// Answer a query in SQL over logs
    #[command(after_help = "\
Each log is a view with the columns seqno, time, id, cause, data and value, which is the decoded data. The views runs and events show the \
runs of functions, and all records and runs. Put a name with a / in double quotes. Times are in UTC. The command runs Python, and needs the \
packages of `pip install 'millrace[sql]'`.

Examples:
  millrace sql 'select * from \"raw/kitchen\" limit 5'
  millrace sql \"select count(*) from events where time > now() - interval 1 hour\"
  millrace sql --csv 'select seqno, time, value.celsius from \"raw/kitchen\"' > celsius.csv")]
    Sql(SqlArgs),
    /// Show the rates of logs and functions, and update them continuously
    #[command(after_help = "\
Shows appends and runs per second, and how many runs are pending, running, failing and dead, until you press q or Ctrl-C. If the output is \
not a terminal, each update is printed below the previous one; --json prints one object per update.

Examples:
  millrace top
  millrace -n edge top --every 5s
  millrace --json top --once        # print once and exit, for scripts")]
    Top(TopArgs),
    /// Print the address of the dashboard, or serve that of a host on another machine here
    #[command(after_help = "\
The dashboard shows logs, runs, failures and links, and has the command for everything that it shows. It is at /ui of each TCP address of a \
host. In a browser of the user who runs the host, at a loopback address, it has all rights; elsewhere it has those of the capability in the \
link. The capability stands behind '#', which browsers do not send, and stays in the tab.

For a host elsewhere whose key is known here, as after `millrace join`, the command serves the dashboard at a loopback address, and forwards \
its requests over TLS with the stored capability, for this user and the key of the printed link only; --direct prints the host's address.

Examples:
  millrace dashboard --open
  millrace -n mr://hub.example/farm dashboard --open
  millrace dashboard --capability reader.cap")]
    Dashboard(DashboardArgs),
    /// Measure appends to a namespace under load
    #[command(after_help = "\
Appends to a log that is created for the measurement and removed afterwards. The space that its records took in the journal can make retention \
drop older entries of the journal sooner. The latency of an append is the time from when it should have been sent until its answer arrives. \
Without a host, retention drops nothing: the journal keeps all appended records until a host runs.

Examples:
  millrace bench                                         # append directly to the namespace's files
  millrace bench mr://127.0.0.1:7070/farm --window 64
  millrace bench edge --connections 64 --durability disk --seconds 10
  millrace bench --rate 1000 --size 100 --json           # 1000 appends per second, evenly spaced")]
    Bench(BenchArgs),
    /// Contexts (short names for namespaces): add, ls, use, show, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
A context's name can be given wherever --namespace is accepted. The namespace of a command is the first of these: \
--namespace, MILLRACE_NAMESPACE, ./millrace.toml, ./.millrace, the millrace.toml of a parent directory, the selected context. \
Of these, what the command finds by itself must belong to you or to root, and not everybody may change it (MR4032); MILLRACE_TRUSTED lists \
directories that are used nevertheless, separated by ':'. A context takes precedence over a directory with the same name; write ./NAME for \
the directory. Contexts are stored in $XDG_CONFIG_HOME/millrace/contexts.toml, or ~/.config/millrace/contexts.toml.

Examples:
  millrace context add edge mr://127.0.0.1:7070/farm
  millrace -n edge log ls
  millrace context use edge"
    )]
    Context(ContextCommand),
    /// Relays, which forward a log to another one: add, ls, show, rm, resume
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace relay add raw/kitchen mr://127.0.0.1:7071/edge/raw/kitchen
  millrace relay ls
  millrace relay rm raw.kitchen"
    )]
    Relay(RelayCommand),
    /// Devices (microcontrollers that send their records): provision, flash-image, attach, send, ls, show, rm, dump, verify, sim
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace device ls
  millrace device sim device/build/station kitchen --host 127.0.0.1:7070
  millrace log tail kitchen/raw"
    )]
    Device(DeviceCommand),
    /// Manage a cluster: hosts that replicate topics
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace cluster init --site lab
  millrace cluster secret --out cluster.secret
  millrace cluster ls"
    )]
    Cluster(ClusterCommand),
    /// Topics (replicated logs of a cluster): create, publish, get, tail, subscribe, ls, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Every host of the cluster accepts these commands for every topic. For a topic with the engine nats, the host needs `millrace serve \
--nats`.

Examples:
  millrace topic create env_raw
  millrace topic publish env_raw 21.5
  millrace topic subscribe env_raw smooth
  millrace topic tail env_raw"
    )]
    Topic(TopicCommand),
    /// Outboxes (the messages to other namespaces): ls, reset, retry, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace log append mr://127.0.0.1:7071/edge/raw 21.5
  millrace outbox ls
  millrace outbox reset 127.0.0.1_7071_edge --resend"
    )]
    Outbox(OutboxCommand),
    /// Capabilities (tokens that grant rights): issue, attenuate, show, squash, merge, revoke, rotate, audit
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
A capability is a token that says what its holder may do. Any holder can derive one that permits less, offline. These commands take a \
capability from a file, or with - from standard input. None takes it as an argument, because every user of the machine can read arguments.

Examples:
  millrace cap issue --append raw/kitchen --expires 30d --out kitchen.cap
  millrace cap show kitchen.cap
  millrace cap revoke --file kitchen.cap"
    )]
    Cap(Box<CapCommand>),
    /// MQTT: users, clients, and bridges to other brokers
    #[command(subcommand, arg_required_else_help = true, after_help = access::MQTT_EXAMPLES)]
    Mqtt(MqttCommand),
    /// Invite another machine: print the line with which it joins
    #[command(after_help = "\
The line is secret. It is valid for one `millrace join`, within the time of --valid. It contains the address of this namespace, the key of \
its host, and the permitted actions. NAME identifies the other machine. If you invite the machine again, use the same name: it then keeps \
its streams and idempotency keys.

The host has to listen at an address that the other machine can reach: `millrace serve --listen 0.0.0.0:7070`. `millrace cap issue --help` \
explains RESOURCE and RIGHTS.

Examples:
  millrace invite edge --append raw
  millrace invite edge --append raw --address 192.168.1.10:7070
  millrace invite laptop --allow read,observe=namespace --valid 1h")]
    Invite(Box<InviteArgs>),
    /// Join a namespace on another machine with its invitation
    #[command(after_help = "\
The command stores the host's key, exchanges the invitation for a capability (a token that grants rights) that only this user can use, and \
adds a context (a short name for the namespace): see `millrace cap` and `millrace context`. Hosts started by this user also use the \
capability to deliver appends to logs of that namespace (see `millrace outbox`), and for relays to and from it (see `millrace relay`).

Every user of this machine can read the arguments of a command. An invitation works only once and expires soon; to keep it secret until \
then, use standard input.

Examples:
  millrace join mri1_AbC...
  millrace join - < invitation.txt
  millrace join mri1_AbC... --context hub && millrace -n hub log append raw 21.5")]
    Join(JoinArgs),
    /// Print a script that completes commands, logs, functions and contexts in a shell
    #[command(after_help = "\
The directory of the file that you write must exist. Zsh must call compinit before it reads the script.

Examples:
  millrace completions bash > ~/.local/share/bash-completion/completions/millrace
  echo 'source <(millrace completions zsh)' >> ~/.zshrc
  millrace completions fish > ~/.config/fish/completions/millrace.fish")]
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for every command
    #[command(after_help = "\
Examples:
  millrace man | man -l -
  millrace man ~/.local/share/man/man1")]
    Man(ManArgs),
    /// Explain an error code, or list them all
    #[command(
        after_help = "\
Examples:
  millrace error MR2101
  millrace error                    # list every code",
        visible_alias = "explain"
    )]
    Error(ErrorArgs),
    /// Print the version
    #[command(after_help = "\
Examples:
  millrace version
  millrace --json version")]
    Version,
}

#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// The application's directory
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Create only the namespace, without millrace.toml
    #[arg(long)]
    pub bare: bool,
    /// Add rules to millrace.toml by which every topic of MQTT is a log
    #[arg(long, conflicts_with = "bare")]
    pub mqtt: bool,
    /// Size of a journal segment: a power of two from 1 MiB to 1 GiB [default: the value in millrace.toml, else 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub segment_size: Option<u64>,
    /// What an append waits for, unless it requests otherwise [default: the value in millrace.toml, else disk]
    #[arg(long, value_name = "LEVEL")]
    pub durability: Option<Durability>,
}

#[derive(Debug, clap::Args)]
pub struct FileArg {
    /// The application file [default: millrace.toml in the current directory, else in the nearest parent directory that has one]
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

impl FileArg {
    /// The file that was named, or the nearest one.
    pub fn path(&self) -> Result<PathBuf> {
        self.file.clone().map_or_else(crate::place::application_file, Ok)
    }
}

#[derive(Debug, clap::Args)]
pub struct DevArgs {
    #[command(flatten)]
    pub file: FileArg,
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Print only failures and applied changes of the application, not records and runs
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(Debug, clap::Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub file: FileArg,
    /// Print what would change and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Abandon pending runs of functions that the file no longer names; each becomes a dead letter
    #[arg(long)]
    pub force: bool,
    /// Also change functions that were deployed from another file, or by another user
    #[arg(long)]
    pub take_over: bool,
}

#[derive(Debug, clap::Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub file: FileArg,
    /// Also remove the file's logs and the dead-letter logs of the functions, with all their records
    #[arg(long)]
    pub logs: bool,
    /// Abandon pending runs; each becomes a dead letter
    #[arg(long)]
    pub force: bool,
    /// Also remove functions that were deployed from another file, or by another user
    #[arg(long)]
    pub take_over: bool,
}

#[derive(Debug, clap::Args)]
pub struct WhyArgs {
    /// A function, a log, a relay, a peer of an outbox, the id of a run, 'mqtt' for all clients of MQTT, or mqtt:CLIENT or mqtt:FILTER for some
    #[arg(add = ArgValueCompleter::new(complete::targets))]
    pub target: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct ErrorArgs {
    /// The code, such as MR2101
    pub code: Option<String>,
}

/// What an append waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Durability {
    /// The kernel has the record: it survives the crash of every process, but not a power failure
    Memory,
    /// The disk has the record: it survives a power failure, too
    Disk,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn walk(command: &clap::Command, path: &str, check: &mut dyn FnMut(&clap::Command, &str)) {
        let path = format!("{path} {}", command.get_name());
        check(command, path.trim());
        for sub in command.get_subcommands() {
            walk(sub, &path, check);
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does_and_shows_an_example_of_itself() {
        let mut seen = 0;
        walk(&Cli::command(), "", &mut |command, path| {
            seen += 1;
            assert!(command.get_about().is_some(), "`{path}` says nothing about itself");
            let help = command.get_after_help().unwrap_or_else(|| panic!("`{path}` has no example")).to_string();
            let examples: Vec<_> = help.lines().filter(|line| line.contains("millrace ")).collect();
            let words: Vec<_> = path.split(' ').skip(1).collect();
            let own = |line: &&str| words.iter().all(|word| line.split_whitespace().any(|w| w == *word));
            assert!(examples.iter().any(own), "no example of `{path}` in:\n{help}");
        });
        assert!(seen > 20, "only {seen} commands were visited");
    }

    #[test]
    fn every_option_says_what_it_is_for() {
        walk(&Cli::command(), "", &mut |command, path| {
            for arg in command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
                assert!(arg.get_help().is_some(), "{} of `{path}` has no help", arg.get_id());
            }
        });
    }

    /// Commands that a text tells its reader to run: `millrace …` in backticks, or at the start of a line of a block.
    fn reported(text: &str) -> Vec<String> {
        let spans = text.split('`').filter(|span| span.starts_with("millrace ")).map(|span| span.replace("\\\n", " "));
        let typed = text.lines().map(str::trim).filter(|line| line.starts_with("millrace ")).map(str::to_owned);
        spans.chain(typed).filter(|command| !command.contains('…')).collect()
    }

    /// What of a command does not exist. Placeholders of values are not looked at.
    fn unknown(reported: &str) -> Option<String> {
        let mut command = Cli::command();
        command.build();
        let mut command = &command;
        let reported = reported
            .split(['|', '&', ';', '<', '>', '#', '`', ')'])
            .next()
            .unwrap_or("")
            .trim_start_matches("millrace");
        let reported = reported.split("  ").next().unwrap_or("");
        let mut words = reported.split_whitespace().map(|word| word.trim_end_matches([',', '.', ':', '\'']));
        while let Some(word) = words.next() {
            if word == "help" && command.get_name() == "millrace" || word == "COMMAND" {
                continue;
            }
            if word == "--" {
                return None;
            }
            if let Some(option) = word.strip_prefix('-') {
                let name = option.trim_start_matches('-').split('=').next().unwrap_or(option);
                let is_it = |arg: &&clap::Arg| match option.starts_with('-') {
                    true => arg.get_long() == Some(name),
                    false => arg.get_short().is_some_and(|short| name.starts_with(short)),
                };
                let Some(arg) = command.get_arguments().find(is_it) else {
                    // Another program reads these.
                    if command.get_arguments().any(clap::Arg::is_trailing_var_arg_set) {
                        return None;
                    }
                    if name == "help" || !option.starts_with('-') {
                        continue;
                    }
                    return Some(format!("--{name} of {}", command.get_name()));
                };
                // Its value is the next word.
                if arg.get_action().takes_values() && !option.contains('=') {
                    words.next();
                }
            } else if let Some(sub) = command.find_subcommand(word) {
                command = sub;
            } else if command.has_subcommands() && command.get_positionals().next().is_none() {
                return Some(format!("{word} of {}", command.get_name()));
            }
        }
        None
    }

    #[test]
    fn every_command_that_errors_pages_and_help_tell_exists() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut pages = vec![root.join("spec/errors.toml"), root.join("README.md"), root.join("CHANGELOG.md")];
        let mut open =
            vec![root.join("docs"), root.join("examples"), root.join("sdk/python/README.md"), root.join("crates")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|kind| kind == "md" || kind == "rs") {
                pages.push(path);
            }
        }
        let (mut seen, mut missing) = (0, Vec::new());
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            // In source files only text in backticks reaches users.
            let source = page.extension().is_some_and(|kind| kind == "rs");
            // What the program starts of itself has a name with underscores, and is no command.
            let reported = reported(&text).into_iter().filter(|command| !command.starts_with("millrace __"));
            for command in reported.filter(|command| !source || !command.contains(['"', '{'])) {
                seen += 1;
                if let Some(unknown) = unknown(&command) {
                    missing.push(format!("{}: {unknown}: {command}", page.display()));
                }
            }
        }
        assert!(missing.is_empty(), "commands that do not exist:\n{}", missing.join("\n"));
        assert!(seen > 300, "only {seen} commands were found");
        assert_eq!(unknown("millrace status"), Some("status of millrace".into()));
        assert_eq!(unknown("millrace log inspect LOG"), Some("inspect of log".into()));
        assert_eq!(unknown("millrace log get LOG --nonsense"), Some("--nonsense of get".into()));
    }

    #[test]
    fn help_of_a_command_can_be_asked_for_by_name() {
        let spelled = |words: &[&str]| {
            let words = ["millrace"].iter().chain(words).map(OsString::from).collect::<Vec<_>>();
            let spelled = spelled_out(words.into_iter());
            spelled.iter().skip(1).map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(spelled(&["help", "log", "append"]), "log append --help");
        assert_eq!(spelled(&["help"]), "--help");
        assert_eq!(spelled(&["log", "append", "inbox", "help"]), "log append inbox help");
    }

    /// The words of each command of a line, as a shell reads them; two spaces begin the comment behind a command.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let (mut commands, mut word, mut quoted) = (vec![Vec::new()], String::new(), None);
        let line = line.trim();
        // A command that begins with a comment has ended before.
        let mut ended = false;
        for (at, letter) in line.char_indices() {
            match letter {
                '\'' | '"' if quoted.is_none() => quoted = Some(letter),
                letter if quoted == Some(letter) && !line[..at].ends_with('\\') => quoted = None,
                ' ' | '|' | '&' | ';' | '<' | '>' if quoted.is_none() => {
                    if !word.is_empty() {
                        commands.last_mut().expect("there is one").push(std::mem::take(&mut word));
                    }
                    ended |= line[at..].starts_with("  ");
                    if letter != ' ' {
                        commands.push(Vec::new());
                        ended = false;
                    }
                }
                letter if !ended => word.push(letter),
                _ => {}
            }
        }
        commands.last_mut().expect("there is one").extend(Some(word).filter(|word| !word.is_empty()));
        commands.retain(|words| !words.is_empty());
        commands
    }

    #[test]
    fn every_example_parses() {
        walk(&Cli::command(), "", &mut |command, path| {
            let help = command.get_after_help().map(|help| help.to_string()).unwrap_or_default();
            // An example may be continued on the next line.
            let help = help.replace("\\\n    ", "");
            for line in help.lines().filter(|line| line.starts_with("  ")) {
                for words in commands(line).into_iter().filter(|words| words[0] == "millrace") {
                    if let Err(error) = Cli::try_parse_from(&words) {
                        panic!("example of `{path}` does not parse: {words:?}\n{error}");
                    }
                }
            }
        });
    }
}
