//! `millrace relay …` and `millrace outbox …`

use clap::{Args, Subcommand, ValueEnum};
use millrace_node::links::OnGap;

#[derive(Debug, Subcommand)]
pub enum RelayCommand {
    /// Forward a log to another one, here or on another host
    #[command(after_help = "\
FROM and TO are logs: one of this namespace by its name, one elsewhere as mr://HOST:PORT/NAMESPACE/LOG. Every record \
arrives once and in order, whatever crashes; while the other side cannot be reached, records wait in FROM, up to its history. The host of \
this namespace (`millrace serve`) runs the relay. Both logs have to exist.

Examples:
  millrace relay add raw/kitchen mr://127.0.0.1:7071/edge/raw/kitchen
  millrace relay add mr://127.0.0.1:7071/edge/alerts alerts        fetch instead of send
  millrace relay add raw/kitchen copy --start 100                  within this namespace
  millrace relay add raw mr://127.0.0.1:7071/edge/raw --on-gap skip")]
    Add(AddRelayArgs),
    /// List relays with their progress and errors
    #[command(after_help = "\
Examples:
  millrace relay ls
  millrace --json relay ls | jq .lag_records")]
    Ls,
    /// Show one relay in detail
    #[command(after_help = "\
Examples:
  millrace relay show raw.kitchen
  millrace --json relay show raw.kitchen")]
    Show(RelayNameArgs),
    /// Remove a relay; forwarded records stay
    #[command(after_help = "\
The other side has to confirm the removal. Until it can be reached, the relay is shown as leaving; --force removes it at once.

Examples:
  millrace relay rm raw.kitchen
  millrace relay rm raw.kitchen --force")]
    Rm(RmRelayArgs),
    /// Resume a relay that has stopped
    #[command(after_help = "\
A relay stops when it could only continue by losing or repeating records; `millrace relay show` prints the reason.

Examples:
  millrace relay resume raw.kitchen
  millrace relay resume raw.kitchen --skip          skip the record that was refused
  millrace relay resume raw.kitchen --start 1       the other side was emptied: send all records that are kept")]
    Resume(ResumeArgs),
}

#[derive(Debug, Args)]
pub struct AddRelayArgs {
    /// The log to read: a name, or mr://HOST:PORT/NAMESPACE/LOG
    pub from: String,
    /// The log to append to: a name, or mr://HOST:PORT/NAMESPACE/LOG
    pub to: String,
    /// The relay's name [default: made from FROM]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The first record to forward [default: the oldest that is kept]
    #[arg(long, value_name = "SEQNO", value_parser = super::logs::seqno)]
    pub start: Option<u64>,
    /// What to do when records leave the history of FROM before they are forwarded
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    pub on_gap: OnGapArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnGapArg {
    /// Stop with an error
    Stop,
    /// Continue with the oldest record that is left, and count the missing ones
    Skip,
}

impl From<OnGapArg> for OnGap {
    fn from(arg: OnGapArg) -> Self {
        match arg {
            OnGapArg::Stop => OnGap::Stop,
            OnGapArg::Skip => OnGap::Skip,
        }
    }
}

#[derive(Debug, Args)]
pub struct RelayNameArgs {
    /// The relay
    pub name: String,
}

#[derive(Debug, Args)]
pub struct RmRelayArgs {
    /// The relay
    pub name: String,
    /// Do not wait for the other side to confirm
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The relay
    pub name: String,
    /// Skip the record that was refused
    #[arg(long)]
    pub skip: bool,
    /// The record to continue with, if the two sides disagree
    #[arg(long, value_name = "SEQNO", value_parser = super::logs::seqno)]
    pub start: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// List peers and the messages that wait for each
    #[command(after_help = "\
An append to mr://HOST:PORT/NAMESPACE/LOG, from a function or from `millrace log append`, is a message: this namespace \
stores it first, then its host delivers it once and in order.

Examples:
  millrace outbox ls
  millrace --json outbox ls | jq .lag_bytes")]
    Ls,
    /// Restart the stream to a peer that was deleted, recreated or restored
    #[command(after_help = "\
This is needed after a peer was deleted or restored from a copy: the host cannot know whether the waiting messages were \
delivered; compare with the peer's logs. Messages that the \
peer acknowledged are no longer here.

Examples:
  millrace outbox reset 127.0.0.1_7071_edge --resend     send the waiting messages
  millrace outbox reset mr://127.0.0.1:7071/edge --skip  drop the waiting messages")]
    Reset(ResetArgs),
    /// Remove a peer that is no longer used
    #[command(after_help = "\
A later append to its address adds it again.

Examples:
  millrace outbox rm 127.0.0.1_7071_edge
  millrace outbox rm mr://127.0.0.1:7071/edge --force    drop the messages that wait for it, too")]
    Rm(RmPeerArgs),
}

#[derive(Debug, Args)]
pub struct RmPeerArgs {
    /// The peer: its name as `millrace outbox ls` prints it, or its address
    pub peer: String,
    /// Drop the messages that wait for the peer
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("waiting").args(["resend", "skip"]).required(true))]
pub struct ResetArgs {
    /// The peer: its name as `millrace outbox ls` prints it, or its address
    pub peer: String,
    /// Send the unacknowledged messages again
    #[arg(long)]
    pub resend: bool,
    /// Drop the unacknowledged messages
    #[arg(long)]
    pub skip: bool,
}
