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
The output has the id of each session, 32 hexadecimal digits. Each client has one session, with a random id. The calls that a task makes \
belong to the session of its run, and the output names this run.

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
