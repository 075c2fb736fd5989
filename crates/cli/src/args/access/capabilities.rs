//! `millrace cap …`

use clap::{Args, Subcommand};
use millrace_node::{
    Name, NamespaceId,
    application::units,
    token::{Net, TokenId, Way},
};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Subcommand)]
pub enum CapCommand {
    /// Issue a capability: a token that permits only what you list
    #[command(after_help = "\
RESOURCE is the name of a log, or function:NAME, object:NAME, store:PATH, peer:NAME, or namespace for the namespace and everything \
in it. A name that ends with / stands for everything below it, too: raw/ is raw, raw/kitchen and so on. A lone / is every log.

RIGHTS are read, append, create, delete, bind, run, call, observe, repair, link, admin and grant, with commas.

The capability is printed unless --out names a file. Anyone who holds it can use it: treat it like a password. The first \
capability of a namespace makes its keys, in secrets/ in its directory.

Examples:
  millrace cap issue --append raw/kitchen --expires 30d --label kitchen --out kitchen.cap
  millrace cap issue --read raw/ --allow run,observe=function:smooth
  millrace cap issue --allow read,observe=namespace --from 10.0.0.0/8 --out dashboard.cap")]
    Issue(IssueArgs),
    /// Derive a capability that permits less; works anywhere, without the namespace
    #[command(after_help = "\
FILE is a file with a capability, or - for standard input. The new capability permits only what both the old one \
and the new rules permit. The old one stays valid. Revoking the old one ends the new one as well.

Examples:
  millrace cap attenuate edge.cap --append raw/kitchen --expires 15m --out kitchen.cap
  millrace cap attenuate edge.cap --subject alice --expires 1h > alice.cap
  millrace cap attenuate - --from 10.0.0.0/8 < edge.cap")]
    Attenuate(AttenuateArgs),
    /// Explain what a capability permits; works anywhere
    #[command(after_help = "\
Every block of a capability must permit an action. The first one grants rights; each later block removes some. If \
--namespace selects the namespace that issued it, the command also says whether the capability is valid there.

Examples:
  millrace cap show kitchen.cap
  millrace cap show - < kitchen.cap
  millrace cap show --json kitchen.cap")]
    Show(ShowCapArgs),
    /// Replace a chain of blocks by one block that permits the same
    #[command(after_help = "\
Takes the keys of the namespace that issued it. The new capability keeps every id of the old one, so revoking any of them ends it, \
and ends with the same generation of keys.

Examples:
  millrace cap squash long.cap --out short.cap")]
    Squash(SquashArgs),
    /// Merge two to four capabilities into one that permits what any of them permits; works anywhere
    #[command(after_help = "\
A part that is revoked or expires only takes its own rights away.

Examples:
  millrace cap merge read.cap append.cap --out both.cap")]
    Merge(MergeArgs),
    /// Revoke capabilities before they expire
    #[command(after_help = "\
An ID is one that `millrace cap show` lists. It ends every capability with that id, and so all that were derived from it. With \
--file, the id of the last block is revoked: that capability ends, and those derived from it; the one it was derived from stays.

A revocation is kept until the capability would have expired, for ever if only its ID is given. `millrace log get _revoked` shows \
the latest one.

Examples:
  millrace cap revoke 5f3a9c0d1e2b4a6c
  millrace cap revoke --file kitchen.cap")]
    Revoke(RevokeArgs),
    /// Create a new key for the capabilities issued from now on
    #[command(after_help = "\
Capabilities of up to four generations of keys are valid at once; a fifth needs --revoke-before, which revokes those of the older generations.

Examples:
  millrace cap rotate
  millrace cap rotate --revoke-before 3    generations 1 and 2 end
  millrace cap rotate --revoke-all         every capability issued so far ends")]
    Rotate(RotateArgs),
    /// List what was issued, revoked and denied
    #[command(after_help = "\
The host writes one line when it denies the holder of a capability something, and counts more of the same for a minute; it writes at \
most 60 such lines a minute. The log, `_audit`, keeps the newest 10,000 lines.

Examples:
  millrace cap audit
  millrace --json cap audit -l 1000")]
    Audit(AuditArgs),
}

/// The restrictions of a block.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Permit reading a log or other RESOURCE
    #[arg(long, value_name = "RESOURCE")]
    pub read: Vec<String>,
    /// Permit appending to a log, or writing another RESOURCE
    #[arg(long, value_name = "RESOURCE")]
    pub append: Vec<String>,
    /// Permit these rights on a RESOURCE
    #[arg(long, value_name = "RIGHTS=RESOURCE")]
    pub allow: Vec<String>,
    /// Lifetime of the capability, such as 15m or 30d
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub expires: Option<Duration>,
    /// Valid only after this long from now
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub after: Option<Duration>,
    /// Maximum size of an appended record
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub record_max: Option<u64>,
    /// Permitted transports: unix, channel, tls or http
    #[arg(long = "transport", alias = "way", value_name = "TRANSPORT", value_delimiter = ',')]
    pub way: Vec<Way>,
    /// Permitted networks of callers, such as 10.0.0.0/8
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub from: Vec<Net>,
    /// SHA-256 of the caller's TLS public key, 64 hexadecimal digits
    #[arg(long, value_name = "KEY")]
    pub key: Vec<String>,
    /// Requests per second, and the burst [default burst: one second's requests]
    #[arg(long, value_name = "N[/BURST]")]
    pub rate: Option<String>,
    /// Permit only deliveries, from the namespaces with these ids
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = namespace_id)]
    pub source: Vec<NamespaceId>,
    /// The user on whose behalf the holder acts, at most 16 bytes; the first one in a chain counts
    #[arg(long, value_name = "NAME")]
    pub subject: Option<String>,
    /// A label for people, at most 32 bytes
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

fn namespace_id(text: &str) -> Result<NamespaceId, String> {
    let is_hex = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten().and_then(NamespaceId::new);
    id.ok_or_else(|| format!("'{}' is not the id of a namespace: 12 hexadecimal digits", text.escape_debug()))
}

#[derive(Debug, Args)]
pub struct OutArg {
    /// Write the capability to this new file, which only you can read
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct IssueArgs {
    #[command(flatten)]
    pub rules: RuleArgs,
    #[command(flatten)]
    pub out: OutArg,
}

#[derive(Debug, Args)]
pub struct AttenuateArgs {
    /// The capability's file, or - for standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub rules: RuleArgs,
    #[command(flatten)]
    pub out: OutArg,
}

#[derive(Debug, Args)]
pub struct ShowCapArgs {
    /// The capability's file, or - for standard input
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct SquashArgs {
    /// The capability's file, or - for standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub out: OutArg,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The capabilities' files; one of them may be - for standard input
    #[arg(required = true, num_args = 2..=4)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub out: OutArg,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("revoked").args(["ids", "file"]).required(true))]
pub struct RevokeArgs {
    /// Ids of capabilities, 16 hexadecimal digits each
    #[arg(value_name = "ID")]
    pub ids: Vec<TokenId>,
    /// The capability to revoke: its file, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Revoke the capabilities of all generations before this one
    #[arg(long, value_name = "GENERATION")]
    pub revoke_before: Option<u16>,
    /// Revoke every capability that was issued so far
    #[arg(long, conflicts_with = "revoke_before")]
    pub revoke_all: bool,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Maximum number of lines, newest first
    #[arg(short, long, value_name = "COUNT", default_value_t = 50)]
    pub limit: u64,
}

#[derive(Debug, Args)]
pub struct InviteArgs {
    /// The name of the other machine
    pub name: Name,
    /// The address by which it reaches this host, HOST or HOST:PORT [default: this machine's name, port 7070]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// The name under which the host serves the namespace [default: the name of its directory]
    #[arg(long, value_name = "NAME")]
    pub served_as: Option<Name>,
    /// How long the invitation can be used to join
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = units::parse_duration)]
    pub valid: Duration,
    #[command(flatten)]
    pub rules: RuleArgs,
}

#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The line that `millrace invite` printed, or - for standard input
    pub invitation: String,
    /// The name of the new context [default: the namespace's name]
    #[arg(long, value_name = "NAME")]
    pub context: Option<Name>,
}
