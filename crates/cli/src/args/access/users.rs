//! `millrace mqtt …`

use clap::{Args, Subcommand};
use std::path::PathBuf;

pub const MQTT_EXAMPLES: &str = "\
Every host speaks MQTT at its addresses. The password of a client is a capability, or that of a user.

Examples:
  millrace mqtt user add lamp --publish 'tele/lamp/#'
  millrace mqtt ls
  millrace mqtt bridge mqtt://broker.example --in 'sensors/#'";

#[derive(Debug, Subcommand)]
pub enum MqttCommand {
    /// Users for clients that cannot show a capability: add, ls, rm
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Examples:
  millrace mqtt user add lamp --publish 'tele/lamp/#' --subscribe 'cmnd/lamp/#'
  millrace mqtt user ls"
    )]
    User(MqttUserCommand),
    /// List the clients with a session: what they receive, what waits for them, what was refused
    #[command(after_help = "\
The host answers, so it has to run. `millrace why mqtt` says the same in sentences, and `millrace why mqtt:CLIENT` for one client.

Examples:
  millrace mqtt ls
  millrace mqtt ls lamp            # the client with this id
  millrace mqtt ls 'raw/+'         # who receives such topics")]
    Ls {
        /// The id of a client, or a topic filter
        #[arg(value_name = "CLIENT|FILTER")]
        of: Option<String>,
    },
    /// Exchange messages with another MQTT broker until it is stopped
    #[command(after_help = "\
The bridge is a client of both: of the host of this namespace, through its socket, and of the broker. A message is acknowledged to the one \
side when the other has acknowledged it, so no message of quality 1 is lost, whatever ends; some may come twice. What waits is in the \
sessions at both sides, which keep it for 30 days. A message that one side refuses ends the bridge with an error that names it. A session \
keeps the filters of earlier starts: give another --client-id after removing some.

Retained messages of the broker come once. Messages that come in need a log: see `[mqtt]` in millrace.toml.

Examples:
  millrace mqtt bridge mqtts://broker.example --in 'sensors/#' --user site --secret broker-password
  millrace mqtt bridge mqtt://127.0.0.1 --out 'alerts/#' --remote-prefix site7/")]
    Bridge(Box<MqttBridgeArgs>),
}

#[derive(Debug, Args)]
pub struct MqttBridgeArgs {
    /// The broker: mqtt://HOST[:PORT], or with TLS mqtts://HOST[:PORT]
    #[arg(value_name = "BROKER")]
    pub broker: String,
    /// Topics of the broker whose messages become records here (may be repeated)
    #[arg(long = "in", value_name = "FILTER")]
    pub incoming: Vec<String>,
    /// Topics here whose records go to the broker (may be repeated)
    #[arg(long = "out", value_name = "FILTER")]
    pub outgoing: Vec<String>,
    /// What topics here begin with, besides FILTER
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub local_prefix: String,
    /// What topics of the broker begin with, besides FILTER
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub remote_prefix: String,
    /// The user at the broker
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// A file with the password at the broker; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "secret")]
    pub password_file: Option<PathBuf>,
    /// The secret of this namespace that is the password at the broker (see `millrace secret`)
    #[arg(long, value_name = "NAME")]
    pub secret: Option<String>,
    /// Send the password without TLS to another machine
    #[arg(long)]
    pub plain: bool,
    /// The id of the sessions at both sides [default: millrace- and the first digits of the namespace's id]
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Speak MQTT 3.1.1 with the broker, in place of 5.0
    #[arg(long)]
    pub v3: bool,
}

#[derive(Debug, Subcommand)]
pub enum MqttUserCommand {
    /// Add a user and print its password
    #[command(after_help = "\
The client connects with this user name and password, over TLS or from this machine. It may use only the topics that the filters match. \
The host creates a log that a rule names, and refuses other topics. The password has 22 random characters and is not printed again: the \
namespace keeps only a hash of it.

Examples:
  millrace mqtt user add lamp --publish 'tele/lamp/#' --subscribe 'cmnd/lamp/#'
  millrace mqtt user add wall --subscribe '#'")]
    Add(AddMqttUserArgs),
    /// List the users with the topics that they may use
    #[command(after_help = "\
Examples:
  millrace mqtt user ls
  millrace mqtt user ls --json")]
    Ls,
    /// Remove a user; its connections may do nothing from then on
    #[command(after_help = "\
Examples:
  millrace mqtt user rm lamp")]
    Rm {
        /// The user's name
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct AddMqttUserArgs {
    /// The user's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Topics to which the user may publish (may be repeated)
    #[arg(long, value_name = "FILTER")]
    pub publish: Vec<String>,
    /// Topics whose messages the user may receive (may be repeated)
    #[arg(long, value_name = "FILTER")]
    pub subscribe: Vec<String>,
}
