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
    /// Issue a capability: a token that permits only the actions that you list
    #[command(after_help = "\
RESOURCE is the name of a log, or function:NAME, object:TYPE/KEY, peer:HOST:PORT/NAMESPACE/LOG for a log of another namespace, or \
namespace for the namespace and everything in it. A name that ends with / also includes everything below it: raw/ is raw, raw/kitchen and \
so on. A single / is every log. A topic is the log topics/TOPIC, a pool is function:pool-POOL, and an object of a user class is \
object:Shared/KEY.

RIGHTS is one or several of these, separated by commas:
  read      read records, and call methods that only read an object
  append    append to a log, publish to a topic, or send messages to a peer
  create    create a log, topic or object, or change the history of a log (shortening: also delete)
  delete    trim or remove a log, remove a topic, or delete an object
  bind      deploy or remove a function, and bind functions to a log
  run       run a function, retry or cancel its runs, or submit tasks to a pool
  call      call methods of an object
  observe   show definitions, status, runs and metrics
  repair    repair a log
  link      deliver messages and relayed records (on the namespace)
  admin     administer the namespace and its cluster
  grant     reserved for later versions

The command prints the capability, unless --out names a file. Anyone who has it can use it: treat it like a password. With the first \
capability of a namespace, the command creates the namespace's keys, in secrets/ in its directory.

Examples:
  millrace cap issue --append raw/kitchen --expires 30d --label kitchen --out kitchen.cap
  millrace cap issue --read raw/ --allow run,observe=function:smooth
  millrace cap issue --allow read,observe=namespace --from 10.0.0.0/8 --out dashboard.cap")]
    Issue(IssueArgs),
    /// Derive a capability that permits less; needs neither the namespace nor its host
    #[command(after_help = "\
FILE is a file with a capability, or - for standard input. The new capability permits only what both the old one and the new rules permit. \
The old one stays valid. If the old one is revoked, the new one is no longer valid either. `millrace cap issue --help` explains RESOURCE \
and RIGHTS.

Examples:
  millrace cap attenuate edge.cap --append raw/kitchen --expires 15m --out kitchen.cap
  millrace cap attenuate edge.cap --subject alice --expires 1h > alice.cap
  millrace cap attenuate - --from 10.0.0.0/8 < edge.cap")]
    Attenuate(AttenuateArgs),
    /// Print what a capability permits; needs neither the namespace nor its host
    #[command(after_help = "\
A capability is a chain of blocks. The first block grants rights, and each later block can only remove some: an action is permitted only \
if every block permits it. A merged capability has several such chains, and permits what any of them permits. If the selected namespace is \
a directory and issued the capability, the command also prints whether it is valid there.

Examples:
  millrace cap show kitchen.cap
  millrace cap show - < kitchen.cap
  millrace cap show --json kitchen.cap")]
    Show(ShowCapArgs),
    /// Replace a chain of blocks by one block that permits the same
    #[command(after_help = "\
Needs the keys of the namespace that issued the capability. The new capability has every id of the old one, so it is revoked by revoking \
any of them. It has the generation of the old one, and becomes invalid when that generation is revoked. A capability that is no longer \
valid cannot be squashed, and neither can an invitation, a merged capability or one with --rate.

Examples:
  millrace cap squash long.cap --out short.cap")]
    Squash(SquashArgs),
    /// Merge two to four capabilities into one that permits what any of them permits; needs neither the namespace nor its host
    #[command(after_help = "\
If one of the capabilities expires or is revoked, the merged one still permits what the others permit.

Examples:
  millrace cap merge read.cap append.cap --out both.cap")]
    Merge(MergeArgs),
    /// Revoke capabilities before they expire
    #[command(after_help = "\
`millrace cap show` lists the ids of a capability; each block has at least one. Revoking an ID revokes every capability that has this id, \
including all that were derived from it. --file revokes the last id of the last block: that capability and those derived from it are \
revoked, and the one that it was derived from stays valid. If the capability was merged and has no block since, --file revokes all \
capabilities that it was merged from.

A revocation is kept until the capability would have expired, or forever if it would not have expired or if only an ID is given. `millrace \
log get _revoked --all` shows the revocations.

Examples:
  millrace cap revoke 5f3a9c0d1e2b4a6c
  millrace cap revoke --file kitchen.cap")]
    Revoke(RevokeArgs),
    /// Create a new key for the capabilities issued from now on
    #[command(after_help = "\
Each rotation begins a new generation of keys. Capabilities of up to four generations are valid at the same time. A fifth generation needs \
--revoke-before or --revoke-all, so that at least the oldest generation is revoked.

Examples:
  millrace cap rotate
  millrace cap rotate --revoke-before 3    # revoke those of generations 1 and 2
  millrace cap rotate --revoke-all         # revoke every capability issued so far")]
    Rotate(RotateArgs),
    /// List the capabilities that were issued and revoked, and the requests that were denied
    #[command(after_help = "\
The list also has the changes of keys and of functions' secrets, and the changes to functions and relays that clients made through a host. \
The host writes a line when it denies a request of the holder of a capability. For a minute, it then only counts further requests of the \
same kind. It writes at most 60 such lines per minute. The log `_audit` keeps the newest 10 000 lines.

Examples:
  millrace cap audit
  millrace --json cap audit -l 1000")]
    Audit(AuditArgs),
}

/// The restrictions of a block.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// Permit reading a log or other RESOURCE (may be repeated)
    #[arg(long, value_name = "RESOURCE")]
    pub read: Vec<String>,
    /// Permit appending to a log or other RESOURCE (may be repeated)
    #[arg(long, value_name = "RESOURCE")]
    pub append: Vec<String>,
    /// Permit these rights on a RESOURCE (may be repeated)
    #[arg(long, value_name = "RIGHTS=RESOURCE")]
    pub allow: Vec<String>,
    /// How long the capability is valid, such as 15m or 30d
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub expires: Option<Duration>,
    /// How long from now until the capability becomes valid
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    pub after: Option<Duration>,
    /// Maximum size of an appended record
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub record_max: Option<u64>,
    /// Permitted transports, separated by commas: unix, channel, tls, http
    #[arg(long = "transport", alias = "way", value_name = "TRANSPORT", value_delimiter = ',')]
    pub way: Vec<Way>,
    /// Permitted networks of clients, separated by commas, such as 10.0.0.0/8
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub from: Vec<Net>,
    /// Permit only clients with this TLS key: the SHA-256 of the public key, 64 hexadecimal digits (may be repeated)
    #[arg(long, value_name = "KEY")]
    pub key: Vec<String>,
    /// Maximum number of requests per second, and in a burst [default burst: the number per second]
    #[arg(long, value_name = "N[/BURST]")]
    pub rate: Option<String>,
    /// Permit only deliveries by outboxes and relays of the namespaces with these ids, separated by commas
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = namespace_id)]
    pub source: Vec<NamespaceId>,
    /// The user for whom the holder acts, at most 16 bytes; in a derived capability, the name that was given first applies
    #[arg(long, value_name = "NAME")]
    pub subject: Option<String>,
    /// A description for people, at most 32 bytes
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
    /// Revoke every capability issued so far
    #[arg(long, conflicts_with = "revoke_before")]
    pub revoke_all: bool,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Show only the newest COUNT lines
    #[arg(short, long, value_name = "COUNT", default_value_t = 50)]
    pub limit: u64,
}

#[derive(Debug, Args)]
// The capability of an invitation lasts until it is revoked, so the hidden option is refused with an error that says so.
#[command(mut_arg("expires", |arg| arg.hide(true)), mut_arg("after", |arg| arg.help("How long from now until the invitation can be used")))]
pub struct InviteArgs {
    /// The name of the other machine
    pub name: Name,
    /// The address at which the other machine reaches this host, HOST or HOST:PORT [default: this machine's name, port 7070]
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<String>,
    /// The name under which the host serves the namespace [default: the name of its directory; of the parent directory if the name begins
    /// with a dot, as in .millrace]
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
    /// The name of the context; an existing context with this name is replaced [default: the namespace's name]
    #[arg(long, value_name = "NAME")]
    pub context: Option<Name>,
}
