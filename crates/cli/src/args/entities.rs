//! `millrace entity …`

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum EntityCommand {
    /// List the shared objects of the namespace's host, and those that its cluster replicates
    #[command(after_help = "\
Examples:
  millrace entity ls
  millrace entity ls --json | jq .key")]
    Ls,
    /// Show why calls to a shared object wait: the session that owns the lock, and the waiting calls
    #[command(after_help = "\
The output names sessions. Each client has one session; the calls that a task makes have the task's run as their session.

Examples:
  millrace entity why door
  millrace -n mr://127.0.0.1:7070/farm entity why jobs --json")]
    Why(EntityArgs),
}

#[derive(Debug, Args)]
pub struct EntityArgs {
    /// The object's key
    #[arg(value_name = "KEY")]
    pub key: String,
}
