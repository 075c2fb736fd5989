//! `millrace entity …`

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum EntityCommand {
    /// List the shared objects of the namespace's host, and those that its cluster keeps
    #[command(after_help = "\
Examples:
  millrace entity ls
  millrace entity ls --json | jq .key")]
    Ls,
    /// Show what a shared object's callers wait for: the holder of the lock and the waiting calls
    #[command(after_help = "\
Sessions are clients and tasks; the session of a task is its run.

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
