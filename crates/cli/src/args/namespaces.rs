//! Arguments of the commands that look after whole namespaces.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Verify everything: manifest, journal, indexes, definitions, code
    #[command(after_help = "\
A namespace that nobody has open is looked at without changing anything, also if it is too damaged to be opened. One that \
is in use is verified as it stands. Ends with 1 if anything is damaged.

--salvage copies all that checksums prove into a new namespace, and tells what is lost. Logs keep their seqnos: a record \
that is lost stays a hole, and reading it says so. A run that is lost is given up, with a dead letter. The original is left as it is.

A backup is verified and saved like a namespace, also a damaged one; nothing needs to be restored for it.

Examples:
  millrace namespace check
  millrace namespace check /var/lib/mill --json
  millrace namespace check /backup/monday
  millrace namespace check /var/lib/mill --salvage /var/lib/mill-saved")]
    Check(CheckArgs),
    /// Copy the namespace as it is now, while it is in use
    #[command(after_help = "\
The copy is a directory with a checksum of every file: all that was committed when the command began, and perhaps more. \
When the command ends it is complete and on disk, and every checksum in it was verified. It is no namespace: `millrace \
namespace restore` makes one of it.

If records of the namespace are damaged, the backup is made all the same, is marked as unsound, and the command tells what is \
lost and ends with 1 (MR2033). Such a backup is no reason to remove older ones.

Examples:
  millrace namespace backup /backup/monday
  millrace -n /var/lib/mill namespace backup /backup/mill --json")]
    Backup(BackupArgs),
    /// Create a namespace from a backup
    #[command(after_help = "\
Every checksum is verified first. What is made is another namespace than the one that was backed up, with an identity of \
its own, so both may run at once: pending runs run again, and streams to other namespaces stand still until `millrace \
outbox reset` or `millrace relay resume` says how they go on.

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
