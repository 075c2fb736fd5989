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
    /// Show what the callers of a shared object wait for: the owner of the lock and the waiting calls
    #[command(after_help = "\
Calls are made in sessions: each client has its own, and the session of a task is its run.

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
