//! `millrace relay …` and `millrace outbox …`

use clap::{Args, Subcommand, ValueEnum};
use millrace_node::links::OnGap;

#[derive(Debug, Subcommand)]
pub enum RelayCommand {
    /// Forward a log to another one, here or on another host
    #[command(after_help = "\
FROM and TO are logs: the name of a log in this namespace, or mr://HOST:PORT/NAMESPACE/LOG for a log in another one; at least one of them \
is in this namespace. Every record arrives once and in order, even after crashes. While the other side cannot be reached, records wait in \
FROM; --on-gap says what happens if they leave its history meanwhile. The host of this namespace (`millrace serve`) runs the relay. Both \
logs have to exist.

Examples:
  millrace relay add raw/kitchen mr://127.0.0.1:7071/edge/raw/kitchen
  millrace relay add mr://127.0.0.1:7071/edge/alerts alerts        # fetch from another namespace
  millrace relay add raw/kitchen copy --start 100                  # copy within this namespace
  millrace relay add raw mr://127.0.0.1:7071/edge/raw --on-gap skip")]
    Add(AddRelayArgs),
    /// List the relays with their progress and errors
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
A relay that sends to another namespace is removed when the other side has confirmed the records in transit and the removal. Until then, \
`millrace relay ls` shows the relay as leaving. With --force, it is removed at once, and records in transit may or may not arrive. A relay \
that copies within this namespace, that fetches from another one, or that has never tried to connect to the other side is removed at once \
in any case.

Examples:
  millrace relay rm raw.kitchen
  millrace relay rm raw.kitchen --force")]
    Rm(RmRelayArgs),
    /// Resume a relay that has stopped
    #[command(after_help = "\
A relay stops if continuing would lose or repeat records, or if the other side refuses a record. `millrace relay show` prints the reason. \
A relay whose records have left the history of FROM (MR6067) continues with the oldest record that FROM still keeps. A refused record is \
sent again, or skipped with --skip. After a change of a namespace or of the log FROM, --start selects the record to continue with; if the \
relay has stopped for another reason, --start is ignored. If the relay has not stopped, --skip and --start are refused.

Examples:
  millrace relay resume raw.kitchen
  millrace relay resume raw.kitchen --skip          # skip the record that was refused
  millrace relay resume raw.kitchen --start 1       # send all records of the history again")]
    Resume(ResumeArgs),
    /// Give the other side of a relay another address
    #[command(after_help = "\
The relay goes on with the same stream at the same number: nothing is sent twice and nothing is lost. Before anything is sent or fetched, \
the host checks the identity of the namespace at the new address. If it is another namespace, the relay stops (MR6063) and sends nothing. \
A namespace that was restored from a backup has another identity: a relay that sends goes on there by itself if the restored namespace has \
everything that was acknowledged; otherwise it stops, and `millrace relay resume NAME` sends what is missing. The log on the other side \
stays the same, so the address may omit it.

Examples:
  millrace relay set raw.kitchen --to mr://10.0.0.7:7071/edge
  millrace relay set alerts --from mr://10.0.0.7:7071/edge     # a relay that fetches")]
    Set(SetRelayArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("address").args(["to", "from"]).required(true))]
pub struct SetRelayArgs {
    /// The relay's name
    pub name: String,
    /// The new address of the namespace to which the relay sends
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<String>,
    /// The new address of the namespace from which the relay fetches
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
}

#[derive(Debug, Args)]
pub struct AddRelayArgs {
    /// The log to read: a name, or mr://HOST:PORT/NAMESPACE/LOG
    pub from: String,
    /// The log to append to: a name, or mr://HOST:PORT/NAMESPACE/LOG
    pub to: String,
    /// The relay's name [default: the name of the log FROM, with '.' in place of '/', and a number if that name is taken]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The first record to forward [default: the oldest that is kept]
    #[arg(long, value_name = "SEQNO", value_parser = super::data::seqno)]
    pub start: Option<u64>,
    /// What to do when records leave the history of FROM before they are forwarded
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    pub on_gap: OnGapArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnGapArg {
    /// Stop with an error
    Stop,
    /// Continue with the oldest record in the history, and count the missing ones
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
    /// The relay's name
    pub name: String,
}

#[derive(Debug, Args)]
pub struct RmRelayArgs {
    /// The relay's name
    pub name: String,
    /// Remove the relay at once, without waiting for the other side
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The relay's name
    pub name: String,
    /// Skip the record that was refused
    #[arg(long)]
    pub skip: bool,
    /// The record to continue with, if a namespace was replaced or restored, or the log FROM was recreated
    #[arg(long, value_name = "SEQNO", value_parser = super::data::seqno)]
    pub start: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub enum OutboxCommand {
    /// List the peers, with the number and size of the messages that wait for each
    #[command(after_help = "\
An append to mr://HOST:PORT/NAMESPACE/LOG, by a function or by `millrace log append`, is a message to that namespace, the peer: it is \
first stored in this namespace, then the host delivers it, once and in order.

Examples:
  millrace outbox ls
  millrace --json outbox ls | jq .lag_bytes")]
    Ls,
    /// Restart the stream to a peer after the peer was recreated, or either side was restored
    #[command(after_help = "\
This is necessary after a peer was deleted and recreated, or after the peer or this namespace was restored from a copy. If the peer was \
recreated or restored (MR6063, MR6064), it says which messages it has, and --resend sends only those of the waiting messages that it \
lacks. If this namespace was restored, the host does not know whether the waiting messages were delivered: to choose between --resend and \
--skip, check whether they (the records of the log `_outbox/PEER`) are in the peer's logs. Messages that the peer has acknowledged are no \
longer stored, and cannot be sent again.

Examples:
  millrace outbox reset 127.0.0.1_7071_edge --resend     # send the waiting messages again
  millrace outbox reset mr://127.0.0.1:7071/edge --skip  # drop the waiting messages")]
    Reset(ResetArgs),
    /// Send the messages again that a peer permanently refused
    #[command(after_help = "\
A message that its peer permanently refuses, or whose log or function is missing for an hour, becomes a dead letter in the log \
`dead/outbox`, which keeps the newest 1000. After you have corrected the cause, this command puts the messages of the peer's dead letters \
back into the outbox, after the waiting messages. Each dead letter is sent again only once, even if you repeat the command.

Examples:
  millrace outbox retry 127.0.0.1_7071_edge
  millrace --json outbox retry mr://127.0.0.1:7071/edge | jq .resent")]
    Retry(RetryPeerArgs),
    /// Give a peer another address
    #[command(after_help = "\
The waiting messages, and all later ones, go to the new address, each once: also those that functions and programs append to the old \
address. Before anything is sent, the host checks the identity of the namespace there. If it is another namespace, the outbox stops \
(MR6063) and sends nothing; `millrace outbox set` with the right address continues. A namespace that was restored from a backup and has \
everything that was acknowledged is accepted.

Examples:
  millrace outbox set 127.0.0.1_7071_edge --to mr://10.0.0.7:7071/edge
  millrace outbox set mr://127.0.0.1:7071/edge --to mr://10.0.0.7:7071/edge")]
    Set(SetPeerArgs),
    /// Remove a peer that is no longer used
    #[command(after_help = "\
Without --force, a peer for which messages wait is not removed (MR6079). A later append to the peer's address adds the peer again.

Examples:
  millrace outbox rm 127.0.0.1_7071_edge
  millrace outbox rm mr://127.0.0.1:7071/edge --force    # also drop the messages that wait for it")]
    Rm(RmPeerArgs),
}

#[derive(Debug, Args)]
pub struct SetPeerArgs {
    /// The peer: its name as `millrace outbox ls` prints it, or its address
    pub peer: String,
    /// The new address of the peer
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
}

#[derive(Debug, Args)]
pub struct RetryPeerArgs {
    /// The peer: its name as `millrace outbox ls` prints it, or its address
    pub peer: String,
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
