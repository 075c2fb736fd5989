//! One direction of a bridge.

use super::end::{Sink, Source};
use millrace_mqtt::{
    IN_FLIGHT_MAX,
    packet::{Acknowledged, FromBroker, Message, PACKET_MAX_BYTES, Qos, Welcome, acknowledge, frame, ping, reason},
};
use millrace_wire::{Code, Error, Result};
use std::{collections::VecDeque, convert::Infallible, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout},
};

/// Messages that wait for room at a broker. The host has at most half as many unacknowledged, so a direction never stops reading from it.
const WAITING_MAX: usize = 2 * IN_FLIGHT_MAX;
/// How long a broker may take nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many more messages a broker takes before it has acknowledged some.
pub(super) struct Window(Semaphore);

impl Window {
    pub fn of(welcome: &Welcome) -> Self {
        Self(Semaphore::new(usize::from(welcome.receive_max).min(IN_FLIGHT_MAX)))
    }
}

pub(super) struct Pump<'a> {
    pub from: &'a mut Source,
    pub to: &'a mut Sink,
    /// Of messages to `to`.
    pub sent: &'a Window,
    /// Of messages to `from`, whose acknowledgements come from there.
    pub answered: &'a Window,
    /// What topics begin with at `from`, and what they begin with at `to`.
    pub prefixes: (&'a str, &'a str),
    /// Messages for which `to` has no room now. What follows them from `from` is read nevertheless: acknowledgements that the other direction
    /// waits for.
    pub waiting: VecDeque<QueuedPacket>,
}

/// A message as it goes to a broker, and whether the broker acknowledges it.
pub(super) struct QueuedPacket {
    bytes: Vec<u8>,
    is_acknowledged: bool,
}

/// What is written to a broker, and since when it has got nothing.
struct Out {
    bytes: Vec<u8>,
    written: Instant,
}

impl Pump<'_> {
    /// Hands packets on until a broker is gone, or a message cannot be handed on.
    pub async fn run(&mut self, keep_alive: Duration) -> Result<Infallible> {
        let mut out = Out { bytes: Vec::new(), written: Instant::now() };
        let mut heard = Instant::now();
        loop {
            let input = std::mem::take(&mut self.from.input);
            let mut at = 0;
            while self.waiting.len() < WAITING_MAX
                && let Some((first, body, length)) =
                    frame(&input[at..], PACKET_MAX_BYTES).map_err(|fault| fault.error)?
            {
                let packet = FromBroker::read(first, body, self.from.version).map_err(|fault| fault.error)?;
                self.hand_on(packet, &mut out)?;
                at += length;
            }
            self.from.input = input;
            self.from.input.drain(..at);
            self.release(&mut out);
            self.write(&mut out).await?;
            let (reads, waits) = (self.waiting.len() < WAITING_MAX, !self.waiting.is_empty());
            tokio::select! {
                read = self.from.read(), if reads => {
                    read?;
                    heard = Instant::now();
                }
                permit = self.sent.0.acquire(), if waits => {
                    permit.map_err(|_| Code::MqttBrokerFailed.error("the bridge ends"))?.forget();
                    out.bytes.extend(self.waiting.pop_front().into_iter().flat_map(|first| first.bytes));
                }
                () = sleep_until(out.written + keep_alive / 2) => ping(&mut out.bytes),
            }
            if reads && heard.elapsed() > keep_alive * 2 {
                return Err(Code::MqttBrokerFailed.error(format!("{} is silent", self.from.name)));
            }
        }
    }

    fn hand_on(&mut self, packet: FromBroker<'_>, out: &mut Out) -> Result<()> {
        match packet {
            FromBroker::Message(message) => self.message(&message)?,
            FromBroker::Acknowledged(id, refused) if refused < reason::UNSPECIFIED => {
                self.answered.0.add_permits(1);
                acknowledge(&mut out.bytes, self.to.version, Acknowledged::Published, id, 0);
            }
            FromBroker::Acknowledged(id, refused) => {
                let (from, to) = (&self.from.name, &self.to.name);
                let detail = format!("{from} refused message {id} of {to} with reason {refused:#04x}");
                return Err(Code::MqttBridgeStuck.error(detail));
            }
            FromBroker::Subscribed(reasons) => {
                if let Some(at) = reasons.iter().position(|reason| *reason >= reason::UNSPECIFIED) {
                    let (from, reason) = (&self.from.name, reasons[at]);
                    let detail = format!("{from} refused filter {} with reason {reason:#04x}", at + 1);
                    return Err(Code::MqttBridgeDenied.error(detail));
                }
            }
            FromBroker::Pong => {}
            FromBroker::Disconnect(reason::TAKEN_OVER) => {
                return Err(Code::MqttTakenOver.error(format!("{}: another bridge has this client id", self.from.name)));
            }
            FromBroker::Disconnect(why) => {
                let detail = format!("{} ended the connection with reason {why:#04x}", self.from.name);
                return Err(Code::MqttBrokerFailed.error(detail));
            }
        }
        Ok(())
    }

    fn message(&mut self, message: &Message<'_>) -> Result<()> {
        let Some(rest) = message.topic.strip_prefix(self.prefixes.0) else {
            return Err(self.stuck(message, "the topic was not asked for"));
        };
        let topic = format!("{}{rest}", self.prefixes.1);
        let mut bytes = Vec::new();
        if !message.write(&mut bytes, self.to.version, &topic, self.to.packet_max_bytes) {
            return Err(self.stuck(message, &format!("{} takes no message of this size", self.to.name)));
        }
        self.waiting.push_back(QueuedPacket { bytes, is_acknowledged: message.qos() != Qos::AtMostOnce });
        Ok(())
    }

    /// Sends messages in their order, as far as there is room.
    fn release(&mut self, out: &mut Out) {
        while let Some(first) = self.waiting.front() {
            if first.is_acknowledged {
                let Ok(permit) = self.sent.0.try_acquire() else { return };
                permit.forget();
            }
            out.bytes.extend(self.waiting.pop_front().into_iter().flat_map(|first| first.bytes));
        }
    }

    fn stuck(&self, message: &Message<'_>, why: &str) -> Error {
        let topic: String = message.topic.chars().take(80).flat_map(char::escape_debug).collect();
        Code::MqttBridgeStuck.error(format!("a message of {} with topic '{topic}': {why}", self.from.name))
    }

    async fn write(&mut self, out: &mut Out) -> Result<()> {
        if out.bytes.is_empty() {
            return Ok(());
        }
        let written = timeout(PATIENCE, self.to.write(&out.bytes)).await;
        let late = |_| Code::MqttBrokerFailed.error(format!("{} took nothing for {PATIENCE:?}", self.to.name));
        written.map_err(late)??;
        out.bytes.clear();
        out.written = Instant::now();
        Ok(())
    }
}
