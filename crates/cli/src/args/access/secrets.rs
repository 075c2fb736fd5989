//! `millrace secret …`

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set or replace a secret
    #[command(after_help = "\
The value is read from a file or from standard input, not from an argument, because every user of the machine can read arguments. One \
newline at the end of standard input is ignored. A function gets the new value from its next run on, which starts a new process.

Examples:
  millrace secret set api-key < key.txt
  millrace secret set tls-key --file key.pem")]
    Set(SetSecretArgs),
    /// List the names of the secrets
    #[command(after_help = "\
Examples:
  millrace secret ls
  millrace secret ls --json")]
    Ls,
    /// Remove a secret; functions that name it no longer start
    #[command(after_help = "\
Examples:
  millrace secret rm api-key")]
    Rm(SecretArgs),
}

#[derive(Debug, Args)]
pub struct SetSecretArgs {
    /// The secret's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The file with the value [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct SecretArgs {
    /// The secret's name
    #[arg(value_name = "NAME")]
    pub name: String,
}
