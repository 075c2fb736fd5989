//! The clients of MQTT.

use crate::counted;
use millrace_wire::units;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// The clients of MQTT of a namespace, as its host knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MqttDoc {
    /// Those with a session, in the order of their ids.
    pub clients: Vec<MqttClientDoc>,
    /// How many more there are, which are not listed.
    pub more: u64,
    /// Messages that were refused since the host started: the last ones.
    pub refused: Vec<MqttRefusedDoc>,
}

/// A client with a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MqttClientDoc {
    /// Its id.
    pub client: String,
    /// Whose session it is: the owner, or the holder of a capability.
    pub principal: String,
    /// Whether it has a connection.
    pub connected: bool,
    /// Since when it has none, in milliseconds.
    pub away_ms: Option<u64>,
    /// How long its session is kept without a connection.
    pub kept_ms: u64,
    /// Its topic filters.
    pub filters: Vec<String>,
    /// Records that wait for it.
    pub queued: u64,
    /// Where it stands in logs with such records.
    pub logs: Vec<MqttQueueDoc>,
    /// Messages that it has not acknowledged.
    pub in_flight: u64,
    /// How many it may have unacknowledged.
    pub in_flight_max: u64,
    /// Whether its connection reads no records now, because the client takes none, or because a read is tried again.
    pub paused: bool,
}

/// Records of a log that wait for a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MqttQueueDoc {
    /// The log.
    pub log: String,
    /// The topic of its records.
    pub topic: Option<String>,
    /// The next record that the client gets.
    pub next: u64,
    /// How many wait.
    pub queued: u64,
}

/// A message that was not appended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MqttRefusedDoc {
    /// The client.
    pub client: String,
    /// The topic, or its log.
    pub topic: String,
    /// The code of the error.
    pub code: String,
    /// Its detail.
    pub error: String,
}

fn shown(ms: u64) -> String {
    units::show_duration(Duration::from_millis(ms))
}

/// What the client waits for.
impl fmt::Display for MqttClientDoc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client '{}' of {} ", self.client.escape_debug(), self.principal)?;
        match (self.connected, self.away_ms) {
            (true, _) => write!(f, "is connected")?,
            (false, away_ms) => {
                write!(
                    f,
                    "is away since {}; its session is kept for {}",
                    shown(away_ms.unwrap_or(0)),
                    shown(self.kept_ms)
                )?;
            }
        }
        match &*self.filters {
            [] => write!(f, "; it has no topic filters")?,
            filters => write!(f, "; it receives {}", filters.join(", "))?,
        }
        let (queued, in_flight) = (counted(self.queued, "record"), counted(self.in_flight, "message"));
        match (self.queued, self.in_flight) {
            (0, 0) => return write!(f, "; nothing waits for it"),
            (0, _) => return write!(f, "; {in_flight} not acknowledged, and nothing else waits for it"),
            (_, 0) => write!(f, "; {queued} for it")?,
            (..) => write!(f, "; {queued} for it and {in_flight} not acknowledged")?,
        }
        if let Some(first) = self.logs.first() {
            write!(f, ", from record {} of log '{}' on", first.next, first.log)?;
        }
        match () {
            () if !self.connected => write!(f, ": it gets them when it is back"),
            () if self.in_flight >= self.in_flight_max => {
                write!(f, ": it has as many messages as it may have, and has to acknowledge some")
            }
            () if self.paused => write!(f, ": the client takes nothing, or its capability permits no more reads now"),
            () => write!(f, ": they are being sent"),
        }
    }
}

impl fmt::Display for MqttRefusedDoc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, topic, code, error } = self;
        write!(
            f,
            "a message of client '{}' to '{}' was refused: {code}: {error}",
            client.escape_debug(),
            topic.escape_debug()
        )
    }
}
