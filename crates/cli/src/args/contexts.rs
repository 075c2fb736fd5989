//! `millrace context …`

use crate::complete;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use millrace_node::Name;

#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Add a context, or change its address
    #[command(after_help = "\
ADDRESS is a directory, mr://host:port/namespace, or unix:PATH of a host's socket. The command does not connect to it. If the context \
exists, its address and its CA certificates are replaced. With --ca, commands that use this context verify the host with these CA \
certificates, unless its key is stored for this user.

Examples:
  millrace context add edge mr://127.0.0.1:7070/farm
  millrace context add edge mr://127.0.0.1:7070/farm --use
  millrace context add hub mr://hub.example:7070/hub --ca system
  millrace context add lab /var/lib/lab/.millrace")]
    Add(AddContextArgs),
    /// List the contexts
    #[command(after_help = "\
Examples:
  millrace context ls
  millrace context ls --json | jq -r .name")]
    Ls,
    /// Select the default context
    #[command(after_help = "\
In a directory with a .millrace, and in and below a directory with a millrace.toml, commands use the namespace there instead of the \
context. --namespace and $MILLRACE_NAMESPACE override both.

Examples:
  millrace context use edge
  millrace context use --none       # clear the selection")]
    Use(UseContextArgs),
    /// Remove a context; its namespace stays
    #[command(after_help = "\
Examples:
  millrace context rm edge")]
    Rm(ContextNameArgs),
    /// Show the namespace that commands use and where this choice comes from, or show one context
    #[command(after_help = "\
Examples:
  millrace context show             # the namespace that commands use in this directory
  millrace context show edge
  millrace -n edge context show --json")]
    Show(ShowContextArgs),
}

#[derive(Debug, Args)]
pub struct AddContextArgs {
    /// The context's name
    pub name: Name,
    /// The address or directory of its namespace
    pub address: std::path::PathBuf,
    /// Select it as the default
    #[arg(long = "use")]
    pub use_it: bool,
}

#[derive(Debug, Args)]
pub struct UseContextArgs {
    /// The context's name
    #[arg(required_unless_present = "none", add = ArgValueCompleter::new(complete::contexts))]
    pub name: Option<String>,
    /// Clear the selected context
    #[arg(long, conflicts_with = "name")]
    pub none: bool,
}

#[derive(Debug, Args)]
pub struct ContextNameArgs {
    /// The context's name
    #[arg(add = ArgValueCompleter::new(complete::contexts))]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ShowContextArgs {
    /// The context's name
    #[arg(add = ArgValueCompleter::new(complete::contexts))]
    pub name: Option<String>,
}
