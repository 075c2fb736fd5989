//! Arguments of the commands about clusters and topics.

use super::logs::history;
use crate::complete;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use millrace_node::application::units;
use std::{path::PathBuf, time::Duration};

/// How a host takes part in a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterArgs {
    /// Join the cluster of this host: mr://HOST:PORT/NAMESPACE. A host that has joined finds its cluster by itself
    #[arg(long, value_name = "ADDRESS", requires = "cluster_secret")]
    pub join: Option<String>,
    /// The file with the cluster's secret, for the first time this host joins
    #[arg(long, value_name = "FILE", env = "MILLRACE_CLUSTER_SECRET")]
    pub cluster_secret: Option<PathBuf>,
    /// The site of this host; used when it joins for the first time
    #[arg(long, value_name = "NAME", requires = "join")]
    pub site: Option<millrace_node::Name>,
    /// The address at which the other hosts of the cluster reach this one [default: the first address of --listen]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Minimum time without a leader before another host is elected
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub election: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a namespace the first host of a new cluster
    #[command(after_help = "\
Creates the namespace if there is none. Other hosts need its secret to join; `millrace cluster secret` writes the secret to a file.

Examples:
  millrace cluster init
  millrace -n /var/lib/mill cluster init --site lab")]
    Init(InitClusterArgs),
    /// Write the secret that other hosts need to join
    #[command(after_help = "\
Anyone who has the secret can join a host to the cluster and read and write all its topics. Only this user can read the file.

Examples:
  millrace cluster secret --out cluster.secret")]
    Secret(ClusterSecretArgs),
    /// List the cluster's problems: hosts that cannot be reached, a missing leader, functions and feeds that are stopped
    #[command(after_help = "\
Examples:
  millrace cluster why")]
    Why,
    /// Make another host the leader
    #[command(after_help = "\
Examples:
  millrace cluster lead b")]
    Lead(HostArg),
    /// Prefer the hosts of a site as leaders
    #[command(after_help = "\
While no host of the site can lead, another host leads. Once a host of the site has caught up, it becomes the leader again.

Examples:
  millrace cluster prefer campus
  millrace cluster prefer --any")]
    Prefer(PreferArgs),
    /// Set the number of voters: 1, 3 or 5
    #[command(after_help = "\
A cluster with 3 voters continues without one of them, and a cluster with 5 voters without two. Other hosts become voters one by one, once \
they have caught up. If the number is lowered, the hosts with most of the log keep their votes.

Examples:
  millrace cluster voters 5")]
    Voters(VotersArgs),
    /// Remove a host from the cluster
    #[command(after_help = "\
If the host is the leader, another voter becomes the leader first. If it is a voter, a host that does not vote gets its vote. The host no longer \
belongs to the cluster, even if it comes back; its data stays on its disk. To replace it, let a new namespace join.

Examples:
  millrace cluster rm b")]
    Rm(HostArg),
    /// List the hosts of the cluster: their addresses, the leader, the progress of each
    #[command(after_help = "\
Examples:
  millrace cluster ls
  millrace --json cluster ls | jq .leader")]
    Ls,
}

#[derive(Debug, Args)]
pub struct InitClusterArgs {
    /// The site of this host
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub site: millrace_node::Name,
}

#[derive(Debug, Args)]
pub struct PreferArgs {
    /// The site
    #[arg(required_unless_present = "any")]
    pub site: Option<millrace_node::Name>,
    /// Any host may lead
    #[arg(long, conflicts_with = "site")]
    pub any: bool,
}

#[derive(Debug, Args)]
pub struct VotersArgs {
    /// The number of voters
    pub voters: u64,
}

#[derive(Debug, Args)]
pub struct HostArg {
    /// The host: its name or its id, as `millrace cluster ls` prints them
    pub host: String,
}

#[derive(Debug, Args)]
pub struct ClusterSecretArgs {
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create a topic, which every host of the cluster then has
    #[command(after_help = "\
Examples:
  millrace topic create env_raw
  millrace topic create farm/env_raw --history 100000")]
    Create(CreateTopicArgs),
    /// Publish a record; acknowledged once a majority of the hosts has it on disk
    #[command(after_help = "\
Examples:
  millrace topic publish env_raw 21.5
  millrace topic publish env_raw - < reading.json
  millrace -n mr://127.0.0.1:7072/b topic publish env_raw 21.5")]
    Publish(PublishArgs),
    /// Print a record, by default the newest
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
    /// Run a function of this host for every record that is published to a topic from now on
    #[command(after_help = "\
The function runs on the host that receives the command, in its namespace, once for each record. While that host is down, records wait in \
the topic, up to the topic's history.

Examples:
  millrace topic subscribe env_raw smooth")]
    Subscribe(SubscribeArgs),
    /// End a subscription of this host
    #[command(after_help = "\
Examples:
  millrace topic unsubscribe env_raw smooth")]
    Unsubscribe(SubscribeArgs),
    /// Publish every record that is appended to a log of this host from now on to a topic
    #[command(after_help = "\
Functions publish in this way: each record that they append to the log goes to the topic, once and in order. While the group cannot be \
reached, records wait in the log, up to the log's history.

Examples:
  millrace topic feed smooth env_smooth")]
    Feed(FeedArgs),
    /// Stop publishing the records of a log to a topic
    #[command(after_help = "\
Examples:
  millrace topic unfeed smooth env_smooth")]
    Unfeed(FeedArgs),
    /// List the topics, with the functions that run for them
    #[command(after_help = "\
Examples:
  millrace topic ls
  millrace --json topic ls | jq .topic")]
    Ls,
}

#[derive(Debug, Args)]
pub struct CreateTopicArgs {
    /// Its name
    pub topic: String,
    /// How many of its newest records stay readable, or `all`
    #[arg(long, value_name = "RECORDS", default_value_t = 10_000, value_parser = history)]
    pub history: u64,
}

#[derive(Debug, Args)]
pub struct TopicArg {
    /// The topic
    pub topic: String,
}

#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The topic
    pub topic: String,
    /// The record, or - for standard input
    #[arg(allow_hyphen_values = true)]
    pub data: String,
    /// An idempotency key, 1 to 128 bytes: if the publish is repeated with it, the record is in the topic once
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
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
    /// The log, of the namespace of the host that is asked
    #[arg(add = ArgValueCompleter::new(complete::logs))]
    pub log: String,
    /// The topic
    pub topic: String,
}

#[derive(Debug, Args)]
pub struct SubscribeArgs {
    /// The topic
    pub topic: String,
    /// The function, of the namespace of the host that is asked
    #[arg(add = ArgValueCompleter::new(complete::functions))]
    pub function: String,
}
