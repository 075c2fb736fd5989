//! Arguments of the commands for whole namespaces: check, backup, restore.

use clap::{Args, Subcommand};
use millrace_node::application::units;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Verify the whole namespace: manifest, journal, indexes, definitions, code
    #[command(after_help = "\
If no process has the namespace open, it is checked without changing it, even if it is too damaged to be opened. A namespace in use is \
checked in its current state. Without --salvage, the exit code is 1 if anything is damaged.

--salvage copies all entries with a valid checksum into a new namespace, and lists what is lost. Records keep their numbers; reading a \
lost record returns an error. A lost run becomes a dead letter. The original is not changed, and no process may have it open.

A backup is checked and salvaged like a namespace, without restoring it first.

Examples:
  millrace namespace check
  millrace namespace check /var/lib/mill --json
  millrace namespace check /backup/monday
  millrace namespace check /var/lib/mill --salvage /var/lib/mill-saved")]
    Check(CheckArgs),
    /// Back up the namespace, even while it is in use
    #[command(after_help = "\
The backup is a directory with a checksum of every file. It contains everything that was committed before the command started, and perhaps \
later commits. When the command ends, the backup is complete and on disk, and every checksum in it has been verified. The backup itself \
cannot be opened: `millrace namespace restore` creates a namespace from it.

If records of the namespace are damaged, the command still writes the backup and marks it as unsound, lists what is lost, and exits with 1 \
(MR2033). In this case, keep older backups. A backup contains nothing of the directory secrets/: neither the secrets of functions, nor the \
host's key, nor the keys of capabilities.

Examples:
  millrace namespace backup /backup/monday
  millrace -n /var/lib/mill namespace backup /backup/mill --json")]
    Backup(BackupArgs),
    /// Create a namespace from a backup
    #[command(after_help = "\
Every checksum is verified first; a backup that is marked as unsound is refused (MR2033). The restored namespace has a new identity, so it \
can be used at the same time as the original. Capabilities that the original issued are not valid there, and the secrets of functions have \
to be set again. Runs that were pending when the backup was made are executed in the restored namespace, even if the original has executed \
them. Outboxes, and relays that forward its logs, are stopped until you restart each with `millrace outbox reset` or `millrace relay \
resume`; relays that fetch from other namespaces continue.

Examples:
  millrace namespace restore /backup/monday restored
  millrace namespace restore /backup/mill /var/lib/mill --json")]
    Restore(RestoreArgs),
    /// Change how much of the journal is kept
    #[command(after_help = "\
The journal keeps its newest segments up to --retain-bytes, and everything that logs and pending runs still need. Older segments are dropped. \
A running host follows within seconds; without a host, the command drops them at once. If free space is low, segments are dropped even \
within these limits. The size of segments and the durability cannot be changed. The next `millrace up` restores the values of millrace.toml, \
if they are there.

Examples:
  millrace namespace set --retain-bytes 40MiB
  millrace -n /var/lib/mill namespace set --retain-bytes 1GiB --retain-age 168h
  millrace namespace set --retain-age none")]
    Set(RetentionArgs),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct RetentionArgs {
    /// The size of the journal that is kept
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub retain_bytes: Option<u64>,
    /// Segments older than this are dropped as well; `none` keeps them at any age
    #[arg(long, value_name = "DURATION", value_parser = age)]
    pub retain_age: Option<Age>,
}

/// An age, or none.
#[derive(Clone, Copy, Debug)]
pub struct Age(pub Option<Duration>);

fn age(text: &str) -> Result<Age, String> {
    if text == "none" {
        return Ok(Age(None));
    }
    let age = units::parse_duration(text).map_err(|error| format!("{error}, nor 'none'"))?;
    if age < Duration::from_secs(1) {
        return Err("the shortest age is 1s".into());
    }
    Ok(Age(Some(age)))
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The namespace's directory [default: the namespace of --namespace]
    pub dir: Option<PathBuf>,
    /// Copy everything that is intact into a new namespace in this directory
    #[arg(long, value_name = "DIR")]
    pub salvage: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The directory of the backup; it must not exist
    pub to: PathBuf,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory of the backup
    pub from: PathBuf,
    /// The directory of the new namespace; it must be empty or must not exist
    pub dir: PathBuf,
}
