//! Arguments of the commands that serve.

use super::ClusterArgs;
use crate::logging::Levels;
use clap::ArgAction;
use millrace_gateway::{Listen, Listener, Origin};
use millrace_node::{Level, application::units};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// The usual port of a host.
const PORT: u16 = 7070;
/// The usual port of MQTT.
const MQTT_PORT: u16 = 1883;

#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Namespaces to serve, each DIR or NAME=DIR [default: the namespace of --namespace]
    #[arg(value_name = "[NAME=]DIR")]
    pub namespaces: Vec<String>,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// After the first signal, let running functions and requests continue for at most this long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::parse_duration)]
    pub drain: Duration,
    /// Maximum time for a client to send the rest of a request, or to read a part of an answer
    #[arg(long, hide = true, value_name = "DURATION", default_value = "30s", value_parser = units::parse_duration)]
    pub patience: Duration,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListenArgs {
    /// Addresses to listen on for the wire protocol and HTTP, separated by commas; 'none' for none. :PORT stands for 127.0.0.1:PORT.
    /// NAME=ADDRESS is for one protocol only, such as http=:8080 or mqtt=:1883; mqtt-plain=ADDRESS is for users of MQTT, without
    /// encryption, also from other machines. The option may be repeated [default: 127.0.0.1:7070; of `millrace dev` also
    /// mqtt=127.0.0.1:1883, if it is free]
    #[arg(long, value_name = "ADDRESS", env = "MILLRACE_LISTEN")]
    listen: Vec<Listen>,
    /// The same as --listen 127.0.0.1:PORT, which it replaces
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    /// The name under which clients reach the namespace [default: the name of its directory; of the parent directory if the name begins
    /// with a dot, as in .millrace]
    #[arg(long, value_name = "NAME", env = "MILLRACE_NAME")]
    pub name: Option<millrace_node::Name>,
    /// The highest level of sandbox to use for functions that run in processes, if the machine supports it: full, partial or none. With
    /// none, a function has every right of the host's user
    #[arg(long, value_name = "LEVEL", default_value_t = Level::Full, env = "MILLRACE_SANDBOX")]
    pub sandbox: Level,
    /// Do not start unless this machine supports at least this level of sandbox: none, partial or full
    #[arg(long, value_name = "LEVEL")]
    pub require_sandbox: Option<Level>,
    /// What the host logs to standard error: off, error, warn, info, debug or trace, or a level for each subject, such
    /// as 'info,links=debug'. The subjects are access, connections, journal, links, repairs, requests, runs and topics
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "MILLRACE_LOG_LEVEL")]
    log_level: Levels,
    /// Log more: -v replaces --log-level by info, -vv by debug, -vvv by trace
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// A PEM file with the certificate for the host's name and those of its issuers; the host reads it again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "MILLRACE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "MILLRACE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Let web pages of this origin, such as https://app.example, use this host; their requests need a capability (a token that grants
    /// rights, see `millrace cap`). The option may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<Origin>,
    /// Maximum number of connections
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = units::parse_count)]
    pub connections_max: u64,
}

impl ListenArgs {
    /// Where to listen.
    pub fn listen(&self) -> Listen {
        let local = |port| Listen::On(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()]);
        match self.port {
            Some(port) => local(port),
            None if self.listen.is_empty() => local(PORT),
            None => Listen::all(self.listen.clone()),
        }
    }

    /// The same, and by default the usual port of MQTT.
    pub fn with_mqtt(&self) -> Self {
        if self.port.is_some() || !self.listen.is_empty() {
            return self.clone();
        }
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, MQTT_PORT));
        let mqtt = Listen::On(vec![Listener { at, only: Some("mqtt".into()), spare: true }]);
        self.at(Listen::all(vec![self.listen(), mqtt]))
    }

    /// The same, at other addresses.
    pub fn at(&self, listen: Listen) -> Self {
        Self { listen: vec![listen], port: None, ..self.clone() }
    }

    /// What is logged.
    pub fn levels(&self) -> Levels {
        let level = match self.verbose {
            0 => return self.log_level.clone(),
            1 => "info",
            2 => "debug",
            _ => "trace",
        };
        level.parse().expect("the name of a level")
    }
}

/// Arguments of `millrace demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The directory of the demo, which is created if it does not exist
    #[arg(value_name = "DIR", default_value = "millrace-demo")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Use the shell script even if there is a python3
    #[arg(long, hide = true)]
    pub shell: bool,
    /// Replay this many hours
    #[arg(long, hide = true, value_parser = clap::value_parser!(u64).range(73..=8730))]
    pub hours: Option<u64>,
}
