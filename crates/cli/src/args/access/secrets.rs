//! `millrace secret …`

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Set or replace a secret
    #[command(after_help = "\
The value is read from a file or from standard input, not from an argument, because every user of the machine can read arguments. One \
newline at the end of standard input is removed; a file that --file names is stored unchanged. A value has 1 byte to 48 KiB. A function \
gets the new value with its next run, for which the host starts a new process.

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
    /// Remove a secret; runs of functions that name it wait until it is set again
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
