//! Arguments of the commands for whole namespaces: check, backup, restore.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Verify everything: manifest, journal, indexes, definitions, code
    #[command(after_help = "\
A namespace that no process has open is checked without changing anything, even if it is too damaged to be opened. A namespace in use is \
verified in its current state. The exit code is 1 if anything is damaged.

--salvage copies everything with a valid checksum into a new namespace, and lists what is lost. Records keep their numbers; reading a lost \
record returns an error. A lost run becomes a dead letter. The original is not changed.

A backup is checked and salvaged like a namespace, without restoring it first.

Examples:
  millrace namespace check
  millrace namespace check /var/lib/mill --json
  millrace namespace check /backup/monday
  millrace namespace check /var/lib/mill --salvage /var/lib/mill-saved")]
    Check(CheckArgs),
    /// Copy the namespace as it is now, while it is in use
    #[command(after_help = "\
The backup is a directory with a checksum of every file. It has everything that was committed when the command started, and perhaps more. \
When the command ends, the backup is complete and on disk, and every checksum in it was verified. The backup itself cannot be opened: `millrace namespace \
restore` creates a namespace from it.

If records of the namespace are damaged, the backup is still written and marked as unsound; the command lists what is lost and exits with 1 \
(MR2033). Keep older backups in this case.

Examples:
  millrace namespace backup /backup/monday
  millrace -n /var/lib/mill namespace backup /backup/mill --json")]
    Backup(BackupArgs),
    /// Create a namespace from a backup
    #[command(after_help = "\
Every checksum is verified first. The restored namespace has a new identity, so it can run beside the original. Runs that were pending in the backup \
run in the restored namespace too, even if the original has run them. \
Its links to other namespaces stay stopped until `millrace outbox reset` or `millrace relay resume` decides how they continue.

Examples:
  millrace namespace restore /backup/monday restored
  millrace namespace restore /backup/mill /var/lib/mill --json")]
    Restore(RestoreArgs),
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The namespace's directory [default: as --namespace]
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
    /// The backup
    pub from: PathBuf,
    /// The directory of the namespace; it must be absent or empty
    pub dir: PathBuf,
}
