//! Arguments of the commands about clusters and topics.

use super::data::history;
use crate::complete;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use millrace_client::Placement;
use millrace_node::application::units;
use std::{path::PathBuf, time::Duration};

/// How a host takes part in a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterArgs {
    /// Join the cluster of the host at this address: mr://HOST:PORT/NAMESPACE. Needed only once: at later starts, the host knows its
    /// cluster. Give it again, with the address of a running host, if most of the other hosts have new addresses
    #[arg(long, value_name = "ADDRESS")]
    pub join: Option<String>,
    /// The file with the cluster's secret; needed when this host joins for the first time
    #[arg(long, value_name = "FILE", env = "MILLRACE_CLUSTER_SECRET")]
    pub cluster_secret: Option<PathBuf>,
    /// The site of this host; used when it joins for the first time [default: main]
    #[arg(long, value_name = "NAME", requires = "join")]
    pub site: Option<millrace_node::Name>,
    /// A label of this host, such as zone=barn (may be repeated). `millrace cluster ls` shows labels, and `millrace cluster group create
    /// --near` chooses hosts by them. A host has only the labels that its last start gave it
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// The address at which the other hosts of the cluster reach this one [default: the first address of --listen; required if that is
    /// 0.0.0.0]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Minimum time without a leader before another host is elected. Use the same value on all hosts: `lan` (150ms) for hosts in one
    /// building, `wan` (3s) for hosts on several continents, or ten times the longest round-trip time [default: 300ms]
    #[arg(long, value_name = "DURATION", value_parser = election)]
    pub election: Option<Duration>,
    /// The NATS servers that keep topics with the engine nats: addresses nats://HOST:PORT or tls://HOST:PORT, separated by commas. In the
    /// variable, USER:PASSWORD@ or TOKEN@ may stand before HOST; in the option, which all users of the machine can read, it is refused
    #[arg(long, value_name = "ADDRESSES", env = "MILLRACE_NATS", hide_env_values = true)]
    pub nats: Option<String>,
    /// The credentials file of the NATS user, or a file with the seed of its NKey
    #[arg(long, value_name = "FILE", requires = "nats", env = "MILLRACE_NATS_CREDS")]
    pub nats_creds: Option<PathBuf>,
    /// A PEM file with certificate authorities to trust for tls:// addresses, in addition to those of this machine
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub nats_ca: Option<PathBuf>,
    /// How many NATS servers keep each topic [default: 3; or 1, if the server is not in a NATS cluster]
    #[arg(long, value_name = "COUNT", requires = "nats")]
    pub nats_replicas: Option<usize>,
}

/// Ten times the round-trip time of the network, at least: within a building it is less than 1 ms, and flushes count for more.
const ELECTION_LAN: Duration = Duration::from_millis(150);
/// The round-trip time between continents is at most about 300 ms.
const ELECTION_WAN: Duration = Duration::from_secs(3);

/// Reads a label.
fn label(text: &str) -> Result<(String, String), String> {
    let named = |text: &str| text.parse::<millrace_node::Name>().map(|name| name.to_string()).ok();
    let found = text.split_once('=').and_then(|(key, value)| Some((named(key)?, named(value)?)));
    found.ok_or_else(|| format!("'{}' is not a label KEY=VALUE such as 'zone=barn'", text.escape_debug()))
}

/// Reads an election timeout.
fn election(text: &str) -> Result<Duration, String> {
    match text {
        "lan" => Ok(ELECTION_LAN),
        "wan" => Ok(ELECTION_WAN),
        text => units::parse_duration(text).map_err(|error| format!("{error}, and neither 'lan' nor 'wan'")),
    }
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a namespace the first host of a new cluster
    #[command(after_help = "\
The namespace must exist; `millrace init` creates one. A host that serves it already takes part in the cluster after its next start. Other \
hosts need the cluster's secret to join; `millrace cluster secret` writes it to a file.

Examples:
  millrace cluster init
  millrace -n /var/lib/mill cluster init --site lab")]
    Init(InitClusterArgs),
    /// Write the secret that other hosts need to join, or change it
    #[command(after_help = "\
Anyone who has the secret can add a host to the cluster, and read and write all topics. Only you can read the file that the command writes.
`millrace cluster secret rotate` changes the secret, for instance after a host was removed.

Examples:
  millrace cluster secret --out cluster.secret
  millrace cluster secret rotate")]
    Secret(ClusterSecretArgs),
    /// Make this host the first host of a new cluster, because the majority of its cluster is lost for good
    #[command(after_help = "\
Without --yes, the command changes nothing: it prints what this host has, and what may be lost. The namespace must not be served meanwhile; \
it may also be one that was restored from a backup of a host.

The new cluster has the topics and replicated objects that this host has, and no other host. Records that the other hosts acknowledged \
without this one are missing. The hosts of the old cluster cannot come back: the new cluster has another secret and refuses them. Run this \
command on one host only: a second recovered host would be another cluster. If several hosts are left, choose the one with the most \
entries.

Afterwards, start the host with `millrace serve`, and let new namespaces join with the new secret (`millrace cluster secret --out FILE`).

Examples:
  millrace -n /var/lib/mill cluster recover
  millrace -n /var/lib/mill cluster recover --yes
  millrace namespace restore /backups/mill /var/lib/mill && millrace -n /var/lib/mill cluster recover --yes")]
    Recover(RecoverArgs),
    /// List the problems that the connected host knows: unreachable hosts, a missing leader, and its own stopped functions, feeds and
    /// mirrors
    #[command(after_help = "\
Examples:
  millrace cluster why")]
    Why,
    /// Make another voter the leader of a group
    #[command(after_help = "\
The host must be a voter of the group. If the group prefers a site and another voter at that site has caught up, the leadership goes back \
there (see `millrace cluster prefer`).

Examples:
  millrace cluster lead b
  millrace cluster lead b --group farm")]
    Lead(LeadArgs),
    /// Prefer the hosts of a site as leaders of a group
    #[command(after_help = "\
Only voters can lead. If no voter at the site can lead, another voter leads until a voter at the site has caught up.

Examples:
  millrace cluster prefer campus
  millrace cluster prefer farm --group farm
  millrace cluster prefer --any")]
    Prefer(PreferArgs),
    /// Set the number of voters of a group: 1, 3 or 5
    #[command(after_help = "\
A group with 3 voters keeps working without one of them, and a group with 5 voters without two. New voters are added one by one, once they \
have caught up. If you lower the number in the group main, the leader and the hosts that are furthest ahead in the log stay voters; in \
other groups, the hosts that were chosen first do.

Examples:
  millrace cluster voters 5
  millrace cluster voters 5 --group farm")]
    Voters(VotersArgs),
    /// Remove a host from the cluster
    #[command(after_help = "\
If the host is the leader, another voter becomes the leader first. If it is a voter, another host becomes a voter instead, if there is \
one. A group whose only voter is lost for good cannot continue: --lose gives the group up, and its topics with all their records. \
The command waits until the host no longer belongs to any group. If this takes more than \
10 seconds, the command fails and names the group that it waits for. If the error says that the host has left the group main, leave the \
host running until `millrace cluster groups` lists it in no group; otherwise run the command again. The host stays removed even if it is \
started again; its data stays on its disk. To replace it, let a new namespace join the cluster.

Examples:
  millrace cluster rm b
  millrace cluster rm b --lose farm")]
    Rm(RemoveHostArgs),
    /// Create and remove groups
    #[command(
        subcommand,
        after_help = "\
Examples:
  millrace cluster group create farm --voters a,b,c
  millrace cluster group rm farm"
    )]
    Group(GroupCommand),
    /// List the groups: the leader, the voters, and how many entries the slowest host lacks
    #[command(after_help = "\
Only the leader of a group knows how many entries the other hosts lack, so the list shows this only for groups that the connected host \
leads. A group that has no work is shown as resting: it uses almost no resources.

Examples:
  millrace cluster groups
  millrace --json cluster groups | jq .leader")]
    Groups,
    /// Compare choices of voters for a group: the availability, and the time until a record is acknowledged
    #[command(after_help = "\
Needs no cluster: the command calculates with the uptimes and round-trip times that you give. It lists every choice of --count voters \
among the hosts (at most 12), the most available first. The column BOUND is a lower bound on the availability: it counts overlapping \
failures twice. If you give the round-trip times between all sites, the column LEADER names the voter with which a record is acknowledged \
soonest.

Examples:
  millrace cluster plan --host campus=99.99 --host lab=99 --host farm=99
  millrace cluster plan --host a@campus=99.99 --host b@lab=99 --host c@lab=99 \\
    --rtt campus,lab=45ms --from lab")]
    Plan(PlanGroupArgs),
    /// List the hosts of the cluster: their addresses, the leader, and the progress of each host
    #[command(after_help = "\
The leader and the roles are those of the group main. The column BEHIND is the number of that group's entries which a host lacks; only the \
leader knows it, so the column is empty (-) unless the connected host is the leader.

Examples:
  millrace cluster ls
  millrace --json cluster ls | jq .leader")]
    Ls,
}

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create a group: a set of hosts that replicate topics
    #[command(after_help = "\
Every topic is in one group, whose voters have its records on their disks. A new cluster has the group main. Clients can use any topic \
through any host of the cluster: from the first request for one of a group's topics on, a host outside the group keeps a copy of all \
topics of the group.

Without --voters, --site, --near and --here, the cluster chooses the voters: hosts at different sites, and those with the fewest groups \
first. With --site, the command chooses only hosts at that site, so that publishing there needs no other site. With --near, it chooses \
hosts with the label first, then others at their sites, then any. With --here, it chooses the connected host first, then others at its \
site, then any. If a voter leaves the cluster later, any other host can replace it.

Examples:
  millrace cluster group create farm
  millrace cluster group create farm --site farm
  millrace cluster group create barn --near zone=barn
  millrace cluster group create mine --here
  millrace cluster group create farm --voters a,b,c
  millrace cluster group create scratch --count 1")]
    Create(CreateGroupArgs),
    /// Remove a group that has no topics
    #[command(after_help = "\
Examples:
  millrace cluster group rm farm")]
    Rm(GroupArg),
}

#[derive(Debug, Args)]
pub struct CreateGroupArgs {
    /// The name of the group
    pub group: String,
    /// The voters: 1, 3 or 5 names or ids of hosts, as `millrace cluster ls` prints them
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', conflicts_with = "count")]
    pub voters: Vec<String>,
    /// Number of voters to choose: 1, 3 or 5
    #[arg(long, value_name = "VOTERS", default_value_t = 3)]
    pub count: u64,
    /// Choose only hosts at this site as voters
    #[arg(long, value_name = "NAME", conflicts_with = "voters")]
    pub site: Option<millrace_node::Name>,
    /// Choose hosts with this label first
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, conflicts_with_all = ["voters", "site"])]
    pub near: Option<(String, String)>,
    /// Choose the connected host first
    #[arg(long, conflicts_with_all = ["voters", "site", "near"])]
    pub here: bool,
}

#[derive(Debug, Args)]
pub struct GroupArg {
    /// The name of the group, as `millrace cluster groups` prints it
    pub group: String,
}

#[derive(Debug, Args)]
pub struct PlanGroupArgs {
    /// A host and its uptime in percent: NAME=UPTIME or NAME@SITE=UPTIME (may be repeated). Without SITE, the site has the name of the host
    #[arg(long, value_name = "HOST", required = true)]
    pub host: Vec<String>,
    /// The round-trip time between two sites: SITE,SITE=DURATION (may be repeated) [default within a site: 0]
    #[arg(long, value_name = "TIME")]
    pub rtt: Vec<String>,
    /// The site of the publishers
    #[arg(long, value_name = "SITE", requires = "rtt")]
    pub from: Option<String>,
    /// Number of voters: 1, 3 or 5
    #[arg(long, value_name = "VOTERS", default_value_t = 3)]
    pub count: usize,
}

/// The group that a command changes.
#[derive(Debug, Args)]
pub struct OfGroup {
    /// The group [default: main]
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
}

#[derive(Debug, Args)]
pub struct LeadArgs {
    #[command(flatten)]
    pub host: HostArg,
    #[command(flatten)]
    pub of: OfGroup,
}

/// When a published record is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TopicDurability {
    /// Once a majority of the voters has it on disk
    Quorum,
    /// Once the leader has it on disk: the record is lost if the leader's disk is lost before other hosts have the record
    Leader,
}

impl TopicDurability {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            TopicDurability::Quorum => "quorum",
            TopicDurability::Leader => "leader",
        }
    }
}

/// What keeps the records of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TopicEngine {
    /// The hosts of the topic's group
    Builtin,
    /// A NATS cluster
    Nats,
}

impl TopicEngine {
    /// As the protocol has it; hosts that know no other take the group's for granted.
    pub fn name(self) -> Option<&'static str> {
        match self {
            TopicEngine::Builtin => None,
            TopicEngine::Nats => Some("nats"),
        }
    }
}

/// When one record is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PublishDurability {
    /// Once a majority of the voters has it on disk
    Quorum,
    /// Once the leader has it on disk: the record is lost if the leader's disk is lost before other hosts have the record
    Leader,
    /// Once this host has it on disk: when the host can reach the group, it publishes its records in order, each once
    Local,
}

impl PublishDurability {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            PublishDurability::Quorum => "quorum",
            PublishDurability::Leader => "leader",
            PublishDurability::Local => "local",
        }
    }
}

#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Do it: without this option, the command only prints what would be lost
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct RemoveHostArgs {
    #[command(flatten)]
    pub host: HostArg,
    /// Give up this group, in which the host votes and which no longer answers, with its topics (may be repeated)
    #[arg(long, value_name = "GROUP")]
    pub lose: Vec<String>,
}

#[derive(Debug, Args)]
pub struct InitClusterArgs {
    /// The site of this host
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub site: millrace_node::Name,
    /// A file with the secret of the new cluster, as `millrace cluster secret` writes it [default: a new secret]. Do not use the secret of
    /// another cluster that is in use: hosts cannot distinguish two clusters with the same secret
    #[arg(long, value_name = "FILE")]
    pub cluster_secret: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PreferArgs {
    /// The site whose hosts should lead, as `millrace cluster ls` prints it
    #[arg(required_unless_present = "any")]
    pub site: Option<millrace_node::Name>,
    /// Let any host lead
    #[arg(long, conflicts_with = "site")]
    pub any: bool,
    #[command(flatten)]
    pub of: OfGroup,
}

#[derive(Debug, Args)]
pub struct VotersArgs {
    /// The number of voters
    pub voters: u64,
    #[command(flatten)]
    pub of: OfGroup,
}

#[derive(Debug, Args)]
pub struct HostArg {
    /// The host: its name or its id, as `millrace cluster ls` prints them
    pub host: String,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ClusterSecretArgs {
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE", required = true)]
    pub out: Option<PathBuf>,
    #[command(subcommand)]
    pub change: Option<ClusterSecretCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ClusterSecretCommand {
    /// Change the secret of the cluster while its hosts run
    #[command(after_help = "\
All hosts that answer take the new secret, and then accept nothing else: a host that was removed, or anyone else who has the old secret, \
can neither join nor connect any more. A majority of the voters of the group main must answer. The command names the hosts that did not: \
the others refuse them until they get the new secret with `millrace cluster secret use`.

Examples:
  millrace cluster secret rotate")]
    Rotate,
    /// Take the cluster's new secret from a file, on a host that was away while the secret was changed
    #[command(after_help = "\
On a host that runs, `millrace cluster secret --out FILE` writes the file. Copy it to this machine, and stop the host of this namespace \
before you run the command.

Examples:
  millrace cluster secret use cluster.secret
  millrace -n /var/lib/mill cluster secret use cluster.secret")]
    Use(UseClusterSecretArgs),
}

#[derive(Debug, Args)]
pub struct UseClusterSecretArgs {
    /// The file with the secret
    pub file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create topics
    #[command(after_help = "\
A topic can be used through every host of the cluster. It stays in the group in which it is created: main, the group of --group, or an \
existing group that is chosen by the other options. --near and --here choose the group with the largest share of its voters among the \
hosts with the label or at the site. --site chooses a group that belongs to the site: one that prefers the site (`millrace cluster \
prefer`), or one that prefers none and has most of its voters there. If several groups fit equally well, one that prefers the site of such \
a host is chosen first, then one whose leader is such a host, then one in which the connected host votes, then the one with the fewest \
topics. --spread takes the sites that have groups in turn, those with the fewest topics first. If no group fits, create one: `millrace \
cluster group create`.

An existing topic is not changed: if the options are the same as when it was created, the command succeeds, otherwise it fails (MR7203).

Examples:
  millrace topic create env_raw
  millrace topic create farm/env_raw --history 100000
  millrace topic create farm/env_raw --group farm
  millrace topic create farm/env_smooth --beside farm/env_raw
  millrace topic create hay --near zone=barn
  millrace topic create own --here
  millrace topic create one two three --spread
  millrace topic create counts --durability leader")]
    Create(CreateTopicArgs),
    /// Remove a topic, its records and its subscriptions
    #[command(after_help = "\
Afterwards, the records cannot be read, and functions no longer run for the topic. Logs that fed the topic and mirrors of it stay on their \
hosts, with their records. A new topic can have the same name, in any group; mirrors of the removed topic do not copy it. A topic whose \
records NATS keeps cannot be removed.

Records that were published with --durability local and still wait on a host stay there: if a topic with this name is created again, the \
host publishes them to it. `millrace topic ls` at that host shows how many they are, and --waiting discards them.

Examples:
  millrace topic rm env_raw
  millrace topic rm env_raw --waiting")]
    Rm(RemoveTopicArgs),
    /// Publish a record, and wait until it has the requested durability
    #[command(after_help = "\
Prints the index of the record, or 0 if the record is acknowledged before its index is known: always with --durability local, and in most \
cases with leader.

With --durability local, the record waits on the disk of this host until the topic's group can be reached. The host publishes such records \
in order and once each. `millrace topic ls` shows how many wait, and `millrace cluster why` why they wait.

Examples:
  millrace topic publish env_raw 21.5
  millrace topic publish env_raw 21.5 --durability leader
  millrace topic publish env_raw 21.5 --durability local
  millrace topic publish env_raw - < reading.json
  millrace -n mr://127.0.0.1:7072/b topic publish env_raw 21.5")]
    Publish(PublishArgs),
    /// Print the newest record, or the one with an index
    #[command(after_help = "\
Examples:
  millrace topic get env_raw
  millrace topic get env_raw 17
  millrace topic get env_raw --raw > reading")]
    Get(GetTopicArgs),
    /// Print a range of records
    #[command(after_help = "\
Examples:
  millrace topic range env_raw
  millrace topic range env_raw --from 100 --to 200
  millrace --json topic range env_raw")]
    Range(RangeTopicArgs),
    /// Print the index of the newest record
    #[command(after_help = "\
Examples:
  millrace topic latest env_raw")]
    Latest(TopicArg),
    /// Print the newest records and wait for more
    #[command(after_help = "\
Examples:
  millrace topic tail env_raw
  millrace topic tail env_raw --from 1 --no-follow
  millrace topic tail env_raw --until-idle 5s")]
    Tail(TailTopicArgs),
    /// Subscribe a function: it runs for each record that is published to the topic from now on
    #[command(after_help = "\
The function runs in the namespace of the host that receives the command, once for each record. While that host is not running, records \
wait in the topic; the function does not run for those that leave the topic's history meanwhile.

Examples:
  millrace topic subscribe env_raw smooth")]
    Subscribe(SubscribeArgs),
    /// End a subscription of this host
    #[command(after_help = "\
Examples:
  millrace topic unsubscribe env_raw smooth")]
    Unsubscribe(SubscribeArgs),
    /// Feed a topic: publish each record that is appended to a log of this host from now on
    #[command(after_help = "\
A function publishes to the topic by appending to the log: the host publishes each record of the log, once and in order. While the topic's \
group cannot be reached, records wait in the log; those that leave the log's history meanwhile are not published.

Examples:
  millrace topic feed smooth env_smooth")]
    Feed(FeedArgs),
    /// Stop publishing the records of a log to a topic
    #[command(after_help = "\
Examples:
  millrace topic unfeed smooth env_smooth")]
    Unfeed(FeedArgs),
    /// Copy a topic to a log of this host, and keep the copy up to date
    #[command(after_help = "\
Each record has the same number in the log as in the topic, and nothing else can be appended to the log. The log can be read while the \
topic's group cannot be reached; afterwards, the host copies the missing records. Functions can be bound to the log, and a relay can \
forward it to another namespace.

A new mirror begins with the oldest record in the topic's history. If records leave the history later, before they are copied, the mirror \
stops (MR7232). A topic whose records NATS keeps cannot be mirrored.

Examples:
  millrace topic mirror env_raw --to copy/env_raw
  millrace topic mirror env_raw --to archive/env_raw --history all
  millrace topic mirror env_raw --to copy/env_raw --stop")]
    Mirror(MirrorTopicArgs),
    /// List the mirrors of this host, and how many records each has yet to copy
    #[command(after_help = "\
Examples:
  millrace topic mirrors
  millrace --json topic mirrors | jq .lag")]
    Mirrors,
    /// List the topics, with the functions that run for them
    #[command(after_help = "\
Examples:
  millrace topic ls
  millrace --json topic ls | jq .topic")]
    Ls,
}

#[derive(Debug, Args)]
pub struct CreateTopicArgs {
    /// The names of the topics
    #[arg(value_name = "TOPIC", required = true)]
    pub topics: Vec<String>,
    /// How many of its newest records a topic keeps, or `all`
    #[arg(long, value_name = "RECORDS", default_value_t = 10_000, value_parser = history)]
    pub history: u64,
    /// When a record is acknowledged, unless its publish has another durability
    #[arg(long, value_enum, value_name = "WHEN", default_value = "quorum")]
    pub durability: TopicDurability,
    /// What keeps the records: the hosts of the topic's group, or a NATS cluster (see `millrace serve --nats`), which does not support the
    /// durability leader
    #[arg(long, value_enum, value_name = "ENGINE", default_value = "builtin")]
    pub engine: TopicEngine,
    #[command(flatten)]
    pub place: TopicPlaceArgs,
}

/// The group of new topics.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct TopicPlaceArgs {
    /// The group [default: main]
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// Choose the group of this existing topic
    #[arg(long, value_name = "TOPIC")]
    pub beside: Option<String>,
    /// Choose the group with the largest share of voters that have this label
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub near: Option<(String, String)>,
    /// Choose the group with the largest share of voters at the site of the connected host
    #[arg(long)]
    pub here: bool,
    /// Choose a group that belongs to this site
    #[arg(long, value_name = "NAME")]
    pub site: Option<millrace_node::Name>,
    /// Choose a group of a different site for each topic, as long as there are any
    #[arg(long)]
    pub spread: bool,
}

impl TopicPlaceArgs {
    /// The place, unless the group is named.
    pub fn placement(&self) -> Option<Placement<'_>> {
        let Self { group: _, beside, near, here, site, spread } = self;
        let beside = beside.as_deref().map(Placement::Beside);
        let near = near.as_ref().map(|(key, value)| Placement::Near(key, value));
        let site = site.as_deref().map(Placement::Site);
        beside.or(near).or(site).or(here.then_some(Placement::Here)).or(spread.then_some(Placement::Spread))
    }
}

#[derive(Debug, Args)]
pub struct TopicArg {
    /// The topic
    pub topic: String,
}

#[derive(Debug, Args)]
pub struct RemoveTopicArgs {
    /// The topic
    pub topic: String,
    /// Do not remove the topic, but discard the records that wait on this host to be published to it
    #[arg(long)]
    pub waiting: bool,
}

#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The topic
    pub topic: String,
    /// The record, or - for standard input
    #[arg(allow_hyphen_values = true)]
    pub data: String,
    /// An idempotency key of 1 to 128 bytes: a repeated publish with the same key adds no record. A topic remembers its newest 10000 keys;
    /// NATS remembers a key for 2 minutes
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// When the record is acknowledged [default: the durability of the topic]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub durability: Option<PublishDurability>,
}

#[derive(Debug, Args)]
pub struct MirrorTopicArgs {
    /// The topic
    pub topic: String,
    /// The log that the mirror creates on this host
    #[arg(long, value_name = "LOG")]
    pub to: String,
    /// How many of its newest records the log keeps, or `all` [default: the history of the topic]
    #[arg(long, value_name = "RECORDS", value_parser = history, conflicts_with = "stop")]
    pub history: Option<u64>,
    /// End the mirror; the log stays, and then accepts appends
    #[arg(long)]
    pub stop: bool,
}

#[derive(Debug, Args)]
pub struct GetTopicArgs {
    /// The topic
    pub topic: String,
    /// The record's index [default: the newest]
    pub index: Option<String>,
    /// Print the bytes of the record unchanged
    #[arg(long)]
    pub raw: bool,
}

#[derive(Debug, Args)]
pub struct RangeTopicArgs {
    /// The topic
    pub topic: String,
    /// The first record [default: the oldest]
    #[arg(long, value_name = "INDEX")]
    pub from: Option<String>,
    /// The last record [default: the newest]
    #[arg(long, value_name = "INDEX")]
    pub to: Option<String>,
}

#[derive(Debug, Args)]
pub struct TailTopicArgs {
    /// The topic
    pub topic: String,
    /// The first record [default: the tenth newest]
    #[arg(long, value_name = "INDEX")]
    pub from: Option<String>,
    /// Exit after this long without a new record
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, conflicts_with = "no_follow")]
    pub until_idle: Option<Duration>,
    /// Exit after the newest record has been printed
    #[arg(long)]
    pub no_follow: bool,
}

#[derive(Debug, Args)]
pub struct FeedArgs {
    /// A log of this host's namespace
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub log: String,
    /// The topic
    pub topic: String,
}

#[derive(Debug, Args)]
pub struct SubscribeArgs {
    /// The topic
    pub topic: String,
    /// A function of this host's namespace
    #[arg(add = ArgValueCompleter::new(complete::functions))]
    pub function: String,
}
