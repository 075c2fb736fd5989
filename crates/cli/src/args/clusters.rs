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
    /// The site that this host stands at, for the first time it joins
    #[arg(long, value_name = "NAME", requires = "join")]
    pub site: Option<millrace_node::Name>,
    /// Where the other hosts of the cluster reach this one [default: where it listens first]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// How long, at least, the group is without a leader before another host leads it
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub election: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a namespace the first host of a new cluster
    #[command(after_help = "\
The namespace is made if there is none. Its secret, which other hosts need to join, stands in its directory; `millrace cluster secret` \
writes it to a file.

Examples:
  millrace cluster init
  millrace -n /var/lib/mill cluster init --site lab")]
    Init(InitClusterArgs),
    /// Write the secret that other hosts need to join
    #[command(after_help = "\
Whoever has it can become a host of the cluster and read and write all of it. Only this user can read the file.

Examples:
  millrace cluster secret --out cluster.secret")]
    Secret(ClusterSecretArgs),
    /// Say what is not as it should be: hosts that cannot be reached, a missing leader, functions and feeds that stand still
    #[command(after_help = "\
Examples:
  millrace cluster why")]
    Why,
    /// Have another host lead the group
    #[command(after_help = "\
Examples:
  millrace cluster lead b")]
    Lead(HostArg),
    /// Have hosts at a site lead whenever they can
    #[command(after_help = "\
Another host leads while none of the site can; once one has caught up, the lead goes back.

Examples:
  millrace cluster prefer campus
  millrace cluster prefer --any")]
    Prefer(PreferArgs),
    /// Say how many hosts vote: 1, 3 or 5
    #[command(after_help = "\
A cluster with 3 voters goes on without one of them, one with 5 without two. Hosts that follow get votes one by one, once they have caught up; \
when fewer are to vote, those keep theirs that have most of the log.

Examples:
  millrace cluster voters 5")]
    Voters(VotersArgs),
    /// Remove a host from the cluster
    #[command(after_help = "\
If it leads, another voter takes the lead first. If it votes and another host follows, that one gets the vote. The host has no part in the \
cluster any more, also if it comes back; what it has stays on its disk. To have another one in its place, let a fresh namespace join.

Examples:
  millrace cluster rm b")]
    Rm(HostArg),
    /// List the hosts of the cluster: where they are, who leads, how far each is
    #[command(after_help = "\
Examples:
  millrace cluster ls
  millrace --json cluster ls | jq .leader")]
    Ls,
}

#[derive(Debug, Args)]
pub struct InitClusterArgs {
    /// The site that this host stands at
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
    /// How many
    pub voters: u64,
}

#[derive(Debug, Args)]
pub struct HostArg {
    /// The host: its name or its id, as `millrace cluster ls` prints them
    pub host: String,
}

#[derive(Debug, Args)]
pub struct ClusterSecretArgs {
    /// Where it is to be written; must not be there yet
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Make a topic, which every host of the cluster then has
    #[command(after_help = "\
Examples:
  millrace topic create env_raw
  millrace topic create farm/env_raw --history 100000")]
    Create(CreateTopicArgs),
    /// Publish a record: it is there once a majority of the group's disks have it
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
    /// Print the records from one to another
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
    /// Print the newest records, and those that come
    #[command(after_help = "\
Examples:
  millrace topic tail env_raw
  millrace topic tail env_raw --from 1 --no-follow
  millrace topic tail env_raw --until-idle 5s")]
    Tail(TailTopicArgs),
    /// Have a function of this host run for every record of a topic from now on
    #[command(after_help = "\
The function runs on the host that is asked, in its namespace, once for each record; while the host is away records wait in the topic, \
as long as its history is.

Examples:
  millrace topic subscribe env_raw smooth")]
    Subscribe(SubscribeArgs),
    /// End a subscription of this host
    #[command(after_help = "\
Examples:
  millrace topic unsubscribe env_raw smooth")]
    Unsubscribe(SubscribeArgs),
    /// Have every record of a log of this host published to a topic from now on
    #[command(after_help = "\
So functions publish: what they append to the log goes to the topic, each record once and in order. While the group cannot be reached, \
records wait in the log, as long as its history is.

Examples:
  millrace topic feed smooth env_smooth")]
    Feed(FeedArgs),
    /// Publish no more of a log to a topic
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
    /// The record; - for all of standard input
    #[arg(allow_hyphen_values = true)]
    pub data: String,
    /// A name for the record, 1 to 128 bytes: published again under it, it is there once
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

#[derive(Debug, Args)]
pub struct GetTopicArgs {
    /// The topic
    pub topic: String,
    /// The record's index [default: the newest]
    pub index: Option<String>,
    /// Print the bytes as they are
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
    /// End when nothing has come for so long
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, conflicts_with = "no_follow")]
    pub until_idle: Option<Duration>,
    /// End with the newest record
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
