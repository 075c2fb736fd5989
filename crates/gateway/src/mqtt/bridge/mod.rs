//! A bridge: a client of two brokers, this host and a remote one, which hands messages of quality 1 from each to the other.
//!
//! ```text
//!  remote ── PUBLISH 7 ──> bridge ── PUBLISH 7 ──> host: append, gate
//!  remote <── PUBACK 7 ─── bridge <── PUBACK 7 ─── host
//! ```
//!
//! The bridge keeps nothing. A message has the same packet id on both sides, and its acknowledgement is that of the other side. So what is
//! not acknowledged stays in the session at the broker that has it, which sends it again when the bridge is back, whoever was killed.

mod end;
mod pump;

pub use end::Broker;

use end::GreetedBroker;
use millrace_mqtt::{
    IN_FLIGHT_MAX,
    filter::{check_filter, overlap},
    packet::{Greeting, Version},
};
use millrace_wire::{Code, Error, ErrorKind, Result};
use pump::{Pump, Window};
use std::{collections::VecDeque, time::Duration};
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
};
use zeroize::Zeroizing;

/// The keep-alive interval that both brokers are told.
const KEEP_ALIVE_S: u16 = 30;
/// How long each broker is asked to keep the session of a bridge that is gone.
const EXPIRY_S: u32 = 30 * 24 * 3600;
/// How long a broker may take to accept a connection and to greet.
const GREETING: Duration = Duration::from_secs(20);
/// Pauses between two attempts to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];
/// Filters in each direction.
const FILTERS_MAX: usize = 100;

/// What a bridge hands on, and between whom.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// The remote broker.
    pub remote: Broker,
    /// The host of the namespace.
    pub local: Broker,
    /// The version that the remote broker speaks: 5.0, or else 3.1.1.
    pub is_v5: bool,
    /// The id of the sessions at both brokers.
    pub client: String,
    /// The user at the remote broker.
    pub user: Option<String>,
    /// The password there.
    pub password: Option<Zeroizing<Vec<u8>>>,
    /// Topics, without prefix, whose messages come from the remote broker.
    pub incoming: Vec<String>,
    /// Topics, without prefix, whose records go there.
    pub outgoing: Vec<String>,
    /// What topics here begin with.
    pub local_prefix: String,
    /// What topics there begin with.
    pub remote_prefix: String,
}

/// What happens to a bridge.
#[derive(Clone, Debug)]
pub enum BridgeEvent {
    /// It is connected, and these brokers had its session already: the remote one, and the host.
    Connected(bool, bool),
    /// It is not, and tries again.
    Lost(Error),
}

impl Bridge {
    /// Whether it can be one.
    ///
    /// # Errors
    /// A filter is not valid, or a message would go round in circles.
    pub fn check(&self) -> Result<()> {
        if self.incoming.is_empty() && self.outgoing.is_empty() {
            return Err(Code::ValueInvalid.error("no topics: give --in FILTER or --out FILTER"));
        }
        for prefix in [&self.local_prefix, &self.remote_prefix] {
            if prefix.contains(['+', '#']) || prefix.starts_with('$') {
                return Err(Code::MqttTopicInvalid.error(format!("prefix '{}'", prefix.escape_debug())));
            }
        }
        for filters in [&self.incoming, &self.outgoing] {
            if filters.len() > FILTERS_MAX {
                return Err(Code::MqttLimit.error(format!("{} filters; the limit is {FILTERS_MAX}", filters.len())));
            }
            for filter in filters {
                [&self.local_prefix, &self.remote_prefix]
                    .into_iter()
                    .try_for_each(|prefix| check_filter(&format!("{prefix}{filter}")))?;
            }
        }
        for incoming in &self.incoming {
            if let Some(outgoing) = self.outgoing.iter().find(|outgoing| overlap(incoming, outgoing)) {
                let detail = format!("'{incoming}' comes in and '{outgoing}' goes out: a message would come back");
                return Err(Code::MqttTopicInvalid.error(detail));
            }
        }
        Ok(())
    }

    /// Hands messages on until a message cannot be, or the remote broker refuses the bridge at the start.
    ///
    /// # Errors
    /// Why it ended.
    pub fn run(&self, mut tell: impl FnMut(BridgeEvent)) -> Result<()> {
        self.check()?;
        let failed = |error: std::io::Error| Code::HostStart.error(format!("cannot start a bridge: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async {
            let (mut pause, mut was_connected) = (PAUSES[0], false);
            loop {
                let mut is_connected = false;
                let ended = self.connected(|remote, local| {
                    is_connected = true;
                    tell(BridgeEvent::Connected(remote, local));
                });
                let Err(error) = ended.await;
                let is_final = match error.code() {
                    Code::MqttBridgeStuck | Code::MqttTakenOver => true,
                    code => !was_connected && !is_connected && code.kind() == ErrorKind::Denied,
                };
                if is_final {
                    return Err(error);
                }
                (was_connected, pause) = (was_connected || is_connected, if is_connected { PAUSES[0] } else { pause });
                tell(BridgeEvent::Lost(error));
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES[1]);
            }
        })
    }

    /// Hands messages on while both brokers are there.
    async fn connected(&self, connected: impl FnOnce(bool, bool)) -> Result<std::convert::Infallible> {
        let of_remote = if self.is_v5 { Version::V5 } else { Version::V3 };
        let greeting = Greeting {
            version: of_remote,
            client: &self.client,
            user: self.user.as_deref(),
            password: self.password.as_ref().map(|password| &***password),
            keep_alive_s: KEEP_ALIVE_S,
            expiry_s: EXPIRY_S,
            receive_max: IN_FLIGHT_MAX as u16, // 64
        };
        let late = |name: &str| Code::MqttBrokerFailed.error(format!("{name} did not answer in {GREETING:?}"));
        let remote = timeout(GREETING, GreetedBroker::open(&self.remote, &greeting));
        let mut remote = remote.await.map_err(|_| late(&self.remote.name()))??;
        let here = Greeting { version: Version::V5, user: None, password: None, ..greeting };
        let local = timeout(GREETING, GreetedBroker::open(&self.local, &here));
        let mut local = local.await.map_err(|_| late(&self.local.name()))??;
        connected(remote.welcome.present, local.welcome.present);
        let prefixed = |prefix: &str, filters: &[String]| -> Vec<String> {
            filters.iter().map(|filter| format!("{prefix}{filter}")).collect()
        };
        // 3.1.1 would send its retained messages again.
        if self.is_v5 || !remote.welcome.present {
            remote.subscribe(&prefixed(&self.remote_prefix, &self.incoming)).await?;
        }
        local.subscribe(&prefixed(&self.local_prefix, &self.outgoing)).await?;
        let (to_local, to_remote) = (Window::of(&local.welcome), Window::of(&remote.welcome));
        let (mut from_remote, mut at_remote) = remote.split();
        let (mut from_local, mut at_local) = local.split();
        let prefixes = (&*self.remote_prefix, &*self.local_prefix);
        let mut inward = Pump {
            from: &mut from_remote,
            to: &mut at_local,
            sent: &to_local,
            answered: &to_remote,
            prefixes,
            waiting: VecDeque::new(),
        };
        let prefixes = (prefixes.1, prefixes.0);
        let mut outward = Pump {
            from: &mut from_local,
            to: &mut at_remote,
            sent: &to_remote,
            answered: &to_local,
            prefixes,
            waiting: VecDeque::new(),
        };
        let interval = Duration::from_secs(KEEP_ALIVE_S.into());
        tokio::select! {
            ended = inward.run(interval) => ended,
            ended = outward.run(interval) => ended,
        }
    }
}
