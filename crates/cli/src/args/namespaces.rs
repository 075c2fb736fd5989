//! Arguments of the commands for whole namespaces: check, backup, restore.

use clap::{Args, Subcommand};
use std::path::PathBuf;

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
