//! One connection: bytes in, bytes out, and the limits between them.

use super::{
    EXPIRY_MAX,
    hub::{Hub, Slot, count},
    incoming::{Arrivals, Message, Note, Outcome, Said, refusal},
    outgoing::Sender,
    saving::will_row,
};
use crate::{
    Hosted,
    memory::{self, Reservation},
    patience,
    server::Rewound,
};
use millrace_documents::MqttRefusedDoc;
use millrace_mqtt::{
    Allowed, Granted, IN_FLIGHT_MAX, Rules,
    filter::{check_filter, matches, shared},
    packet::{
        Acknowledged, Connected, Fault, PACKET_MAX_BYTES, Packet, Publish, Qos, Subscription, Version, acknowledge,
        connected, disconnect, frame, pong, reason, subscribed, unsubscribed,
    },
};
use millrace_node::{Access, Caller, mqtt::MqttRow, token::Principal};
use millrace_wire::{Code, Error, Headers};
use std::{
    cell::RefCell,
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep, sleep_until},
};

/// The maximum size of one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes that wait for the client, beyond which nothing more is read from it.
const OUT_MAX_BYTES: usize = 256 << 10;
/// Packets that a connection handles before others get their turn.
const TURN_PACKETS: usize = 256;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT_BYTES: usize = 4 << 10;
/// Numbers of topics of one connection.
const ALIASES_MAX: u16 = 16;
/// How often a connection without traffic is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// How long after the death of its host a client without keep-alive may take to come back, before its will is appended.
const RETURN_PATIENCE: Duration = Duration::from_secs(60);
/// The pause before a session is saved again that could not be saved.
const SAVE_PAUSE: Duration = Duration::from_millis(200);

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A client whose CONNECT was accepted.
pub(super) struct Opening {
    pub access: Access,
    pub caller: Arc<Caller>,
    /// The topics of a user of MQTT, who may use no others.
    pub topics: Option<Arc<Allowed>>,
    pub version: Version,
    pub keep_alive: Duration,
    pub receive_max: usize,
    pub packet_max_bytes: usize,
    pub will: Option<LastWill>,
}

impl Opening {
    pub fn principal(&self) -> &Principal {
        self.caller.principal()
    }

    /// The log of a topic to which the client publishes.
    fn log_of(&self, rules: &Rules, topic: &str) -> Result<String, Error> {
        if self.topics.as_ref().is_some_and(|topics| !topics.may_publish(topic)) {
            return Err(Code::CapabilityDenied.error("the user may not publish to this topic"));
        }
        rules.log_of(topic).ok_or_else(|| Code::MqttTopicUnmapped.error("its records would have another topic"))
    }
}

/// What is appended if the client is gone without a DISCONNECT.
pub(super) struct LastWill {
    pub topic: String,
    pub payload: Arc<[u8]>,
    pub headers: Headers,
    pub delay: Duration,
    /// Its key where it is saved.
    pub row: Option<Vec<u8>>,
}

/// A connection.
pub(super) struct Line {
    opening: Opening,
    hub: Arc<Hub>,
    slot: Arc<Slot>,
    hosted: Arc<Hosted>,
    input: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    /// Bytes that may be sent: what follows tells the client something that is not saved yet.
    released: usize,
    /// Something behind them has to be saved first, and is not being saved.
    unsaved: bool,
    /// What is being saved, and the bytes that may be sent then.
    saving: Option<(Saving, usize)>,
    /// Rows that are saved with the session.
    rows: Vec<MqttRow>,
    unflushed: bool,
    incoming: Arrivals,
    sender: Sender,
    aliases: HashMap<u16, String>,
    /// Since the client was last heard of.
    heard: Instant,
    /// Since it last took bytes, while there are any for it.
    taken: Instant,
    /// Since the host has no memory for the rest of a packet.
    starved: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
    /// It ends once everything is appended and sent, for this reason.
    ending: Option<Option<Fault>>,
    /// The client sends no more.
    ended: bool,
    counted: Reservation,
}

type Saving = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// The reason for the end of a poll of a connection.
pub(super) enum LineOver {
    Turn,
    /// The end, and its fault.
    Connection(Option<Fault>),
}

impl Line {
    pub fn new(opening: Opening, hub: Arc<Hub>, slot: Arc<Slot>, hosted: Arc<Hosted>, input: Vec<u8>) -> Self {
        let sender = Sender::new(
            (opening.access.clone(), opening.topics.clone()),
            (hub.clone(), slot.clone()),
            opening.version,
            opening.receive_max,
            opening.packet_max_bytes,
        );
        let now = Instant::now();
        Self {
            opening,
            hub,
            slot,
            hosted,
            input,
            out: Vec::new(),
            sent: 0,
            released: 0,
            unsaved: false,
            saving: None,
            rows: Vec::new(),
            unflushed: false,
            incoming: Arrivals::default(),
            sender,
            aliases: HashMap::new(),
            heard: now,
            taken: now,
            starved: None,
            alarm: Box::pin(sleep_until(now)),
            ending: None,
            ended: false,
            counted: Reservation::default(),
        }
    }

    /// Answers the CONNECT.
    pub fn greet(&mut self, present: bool, client: Option<&str>, expiry: Option<Duration>) {
        let record_max_bytes = self.opening.access.served().facts().record_max_bytes();
        let accepted = Connected {
            present,
            client,
            session_expiry_s: expiry.map(|expiry| u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX)),
            receive_max: IN_FLIGHT_MAX as u16, // 64
            packet_max_bytes: (record_max_bytes + (64 << 10)).min(PACKET_MAX_BYTES) as u32, // at most 16 MiB and a bit
            aliases_max: ALIASES_MAX,
            shared: true,
            qos_max: None,
        };
        // If the host dies, the client must find its session and its will again, and no session that it has ended.
        self.note_will();
        if !self.rows.is_empty() || self.slot.is_kept() || !self.hub.state().gone.is_empty() {
            self.hold(0);
        }
        connected(&mut self.out, self.opening.version, Ok(accepted));
        tracing::debug!(
            target: "connections", protocol = "mqtt", "client '{}' is connected",
            self.slot.key().client().escape_debug()
        );
    }

    /// The will is saved, if the client may append it.
    fn note_will(&mut self) {
        let Some(will) = &self.opening.will else { return };
        let log = self.opening.log_of(&self.hub.rules(), &will.topic);
        let is_allowed = log.is_ok_and(|log| self.opening.access.may_append(&log));
        let Some(will) = &mut self.opening.will else { return };
        if !is_allowed {
            return;
        }
        let patience = match self.opening.keep_alive {
            Duration::ZERO => RETURN_PATIENCE,
            keep_alive => keep_alive * 3 / 2,
        };
        let delay = will.delay.max(patience);
        match will_row(self.slot.key(), (&will.topic, &will.headers, &will.payload), delay) {
            Ok((key, value)) => {
                will.row = Some(key.clone());
                self.rows.push((key, Some(value)));
            }
            Err(error) => tracing::warn!(target: "requests", code = error.code().id(), "{}", error.detail()),
        }
    }

    /// Nothing from this byte on is sent before the session is saved as it is now.
    fn hold(&mut self, at: usize) {
        if self.saving.is_none() && !self.unsaved {
            self.released = at;
        }
        self.unsaved = true;
    }

    /// [`Line::hold`] of what is written next, if the session outlives the host.
    fn hold_if_kept(&mut self) {
        if self.slot.is_kept() {
            self.hold(self.out.len());
        }
    }

    /// Saves the session if something waits for it.
    fn poll_saving(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        loop {
            let Some((saving, upto)) = &mut self.saving else {
                if !self.unsaved {
                    self.released = self.out.len();
                    return moved;
                }
                let submitted = self.hub.save(&self.opening.access, &self.slot, self.rows.clone());
                self.saving = Some((Box::pin(async move { submitted.await.await }), self.out.len()));
                self.unsaved = false;
                continue;
            };
            let (outcome, upto) = match saving.as_mut().poll(cx) {
                Poll::Ready(outcome) => (outcome, *upto),
                Poll::Pending => return moved,
            };
            (self.saving, moved) = (None, true);
            match outcome {
                Ok(()) => {
                    self.released = upto;
                    self.rows.clear();
                }
                // The end of the connection does not wait for room.
                Err(_) if self.ending.is_some() => {
                    self.ended = true;
                    return true;
                }
                Err(error) if error.retry_after_ms().is_some() => {
                    let pause = async {
                        sleep(SAVE_PAUSE).await;
                        Ok(())
                    };
                    let rows = std::mem::take(&mut self.rows);
                    self.saving = Some((Box::pin(pause), self.released));
                    (self.unsaved, self.rows) = (true, rows);
                }
                Err(error) => {
                    (self.ended, self.ending) = (true, Some(Some(Fault::new(reason::UNSPECIFIED, error))));
                    return true;
                }
            }
        }
    }

    /// Does the work that is possible now, within the budget of one turn.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Rewound,
        stopping: Pin<&mut impl Future>,
    ) -> Poll<LineOver> {
        self.slot.waker.register(cx.waker());
        if self.ending.is_none() {
            if self.slot.is_asked_for() {
                let error = Code::MqttTakenOver.error("the client id is used by a new connection");
                self.end(Fault::new(reason::TAKEN_OVER, error));
            } else if self.hosted.is_draining() || stopping.poll(cx).is_ready() {
                let error = Code::HostStopping.error("the host is stopping");
                self.end(Fault::new(reason::SHUTTING_DOWN, error));
            }
        }
        let mut packets = 0;
        loop {
            let mut moved = self.poll_incoming(cx);
            if self.ending.is_none() {
                moved |= self.sender.poll(cx, &mut self.out);
                if let Some(at) = self.sender.held() {
                    self.hold(at);
                }
                match self.packets(&mut packets) {
                    Ok(handled) => moved |= handled,
                    Err(fault) => self.end(fault),
                }
            }
            moved |= self.poll_saving(cx);
            match self.poll_write(cx, stream) {
                Ok(wrote) => moved |= wrote,
                Err(_) => return self.gone(),
            }
            // What is read at the end of a turn would not be handled before the end of the stream is seen.
            if self.reads() && packets < TURN_PACKETS {
                match self.poll_read(cx, stream) {
                    Ok(read) => moved |= read,
                    Err(_) => self.ended = true,
                }
            }
            // Packets that arrived whole are handled, although the client sends no more.
            let has_more = matches!(frame(&self.input, PACKET_MAX_BYTES), Ok(Some(_)));
            if self.ended && self.ending.is_none() && !has_more {
                self.ending = Some(None);
                moved = true;
            }
            // What was accepted is appended, before another connection may continue the session.
            if self.ending.is_some() && self.incoming.is_empty() && (self.ended || self.out.is_empty()) {
                return self.gone();
            }
            if packets >= TURN_PACKETS {
                self.hosted.worked(packets);
                return Poll::Ready(LineOver::Turn);
            }
            if !moved {
                break;
            }
        }
        self.hosted.worked(packets);
        self.counted.count(self.input.len() + self.out.len() + self.incoming.bytes());
        self.poll_alarm(cx)
    }

    fn gone(&mut self) -> Poll<LineOver> {
        if !self.incoming.is_empty() {
            // The client does not see the answers any more; they are awaited nevertheless.
            self.ended = true;
            self.ending.get_or_insert(None);
            return Poll::Pending;
        }
        Poll::Ready(LineOver::Connection(self.ending.take().flatten()))
    }

    /// Ends the connection, with a reason for a client of 5.0.
    fn end(&mut self, fault: Fault) {
        if self.ending.is_some() {
            return;
        }
        tracing::info!(
            target: "connections", protocol = "mqtt", code = fault.error.code().id(), "closed client '{}': {}",
            self.slot.key().client().escape_debug(), fault.error.detail()
        );
        self.input = Vec::new();
        disconnect(&mut self.out, self.opening.version, fault.reason);
        self.ending = Some(Some(fault));
    }

    fn reads(&self) -> bool {
        self.ending.is_none() && !self.ended && !self.is_held_up()
    }

    /// Whether nothing is read, because what came before has to be done first.
    fn is_held_up(&self) -> bool {
        self.incoming.is_full()
            || self.out.len() - self.sent >= OUT_MAX_BYTES
            || self.input.len() >= self.input_max_bytes()
    }

    /// Bytes of packets that are kept until they are whole.
    fn input_max_bytes(&self) -> usize {
        PACKET_MAX_BYTES.min(memory::allowance().max(READ_BYTES))
    }

    /// Takes what has become of messages.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while let Poll::Ready(outcome) = self.incoming.poll_next(&self.opening.access, cx) {
            moved = true;
            self.answer(outcome);
        }
        moved
    }

    /// Acknowledges a message, or refuses it.
    fn answer(&mut self, Outcome { log, qos, id, is_release, appended }: Outcome) {
        match appended {
            Ok(()) if is_release => self.complete(id, reason::SUCCESS),
            Err(error) if is_release => self.end(Fault::new(refusal(&error), error)),
            Ok(()) => self.acknowledge(qos, id, reason::SUCCESS),
            Err(error) => self.refuse(&log, qos, id, &error),
        }
    }

    /// PUBCOMP.
    fn complete(&mut self, id: u16, reason: u8) {
        if self.ending.is_none() {
            acknowledge(&mut self.out, self.opening.version, Acknowledged::Complete, id, reason);
        }
    }

    fn acknowledge(&mut self, qos: Qos, id: u16, reason: u8) {
        if self.ending.is_some() {
            return; // Nothing follows a DISCONNECT; the client sends the message again.
        }
        let kind = match qos {
            Qos::AtMostOnce => return,
            Qos::AtLeastOnce => Acknowledged::Published,
            Qos::ExactlyOnce => Acknowledged::Received,
        };
        acknowledge(&mut self.out, self.opening.version, kind, id, reason);
    }

    /// A message was not appended: 5.0 has a reason for it; 3.1.1 can only close the connection.
    fn refuse(&mut self, what: &str, qos: Qos, id: u16, error: &Error) {
        let code = error.code().id();
        // A client may name a topic of any length.
        let short = |text: &str| text.chars().take(200).collect::<String>();
        self.hub.note_refused(MqttRefusedDoc {
            client: self.slot.key().client().to_owned(),
            topic: short(what),
            code: code.to_owned(),
            error: short(error.detail()),
        });
        let (client, what) = (self.slot.key().client().escape_debug(), what.escape_debug());
        tracing::warn!(
            target: "requests", protocol = "mqtt", code,
            "a message of client '{client}' to '{what}' was not appended: {}", error.detail()
        );
        self.hosted.counters.failures.fetch_add(1, Ordering::Relaxed);
        if qos == Qos::AtMostOnce {
            count(&self.hosted.mqtt.dropped);
            return;
        }
        if qos == Qos::ExactlyOnce {
            self.slot.with(|session| session.release(id));
        }
        match self.opening.version {
            Version::V5 => self.acknowledge(qos, id, refusal(error)),
            Version::V3 => self.end(Fault::new(refusal(error), error.clone())),
        }
    }

    /// Handles the packets that are whole.
    fn packets(&mut self, handled: &mut usize) -> Result<bool, Fault> {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        let outcome = loop {
            // What is in the buffer is handled even if no more is read, unless that would take more room.
            if *handled >= TURN_PACKETS || self.ending.is_some() || self.incoming.is_full() {
                break Ok(());
            }
            if self.out.len() - self.sent >= OUT_MAX_BYTES {
                break Ok(());
            }
            match frame(&input[at..], PACKET_MAX_BYTES) {
                Ok(Some((first, body, length))) => {
                    at += length;
                    *handled += 1;
                    let version = self.opening.version;
                    if let Err(fault) = Packet::read(first, body, version).and_then(|packet| self.packet(packet)) {
                        break Err(fault);
                    }
                }
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        outcome?;
        if self.ending.is_none() {
            self.input = input;
            self.input.drain(..at);
            if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
                self.input = Vec::new();
            }
        }
        Ok(at > 0)
    }

    fn packet(&mut self, packet: Packet<'_>) -> Result<(), Fault> {
        count(&self.hosted.mqtt.packets);
        match packet {
            Packet::Publish(publish) => return self.publish(publish),
            Packet::Acknowledged(id, _) => {
                self.slot.with(|session| session.acknowledged(id));
            }
            Packet::Received(id, refused) => {
                let known = self.slot.with(|session| match refused >= reason::UNSPECIFIED {
                    true => session.complete(id),
                    false => session.received(id),
                });
                if refused < reason::UNSPECIFIED {
                    let reason = if known { reason::SUCCESS } else { reason::ID_NOT_FOUND };
                    self.hold_if_kept();
                    acknowledge(&mut self.out, self.opening.version, Acknowledged::Release, id, reason);
                }
            }
            Packet::Release(id) => {
                let known = self.slot.with(|session| session.release(id));
                if self.slot.is_kept() {
                    // The client may use the id again once the note of its message is gone.
                    let (log, payload, note) = (String::new(), Arc::default(), Note::Released(self.slot.mark(id)));
                    let (said, qos) = (Said::default(), Qos::ExactlyOnce);
                    let message = Message { log, creates: false, payload, said, qos, id, note };
                    self.incoming.add(&self.opening.access, message);
                } else {
                    self.complete(id, if known { reason::SUCCESS } else { reason::ID_NOT_FOUND });
                }
            }
            Packet::Complete(id) => {
                self.slot.with(|session| session.complete(id));
            }
            Packet::Subscribe(id, filters, number) => {
                let reasons: Vec<u8> = filters.iter().map(|filter| self.subscribe(filter, number)).collect();
                self.hold_if_kept();
                subscribed(&mut self.out, self.opening.version, id, &reasons);
            }
            Packet::Unsubscribe(id, filters) => {
                let unsubscribe = |filter: &&str| match self.hub.unsubscribe(&self.slot, filter) {
                    true => reason::SUCCESS,
                    false => reason::NO_SUBSCRIPTION_EXISTED,
                };
                let reasons: Vec<u8> = filters.iter().map(unsubscribe).collect();
                self.hold_if_kept();
                unsubscribed(&mut self.out, self.opening.version, id, &reasons);
            }
            Packet::Ping => pong(&mut self.out),
            Packet::Disconnect(said, expiry) => {
                if let Some(expiry) = expiry {
                    if expiry > 0 && !self.slot.is_kept() {
                        return Err(Fault::protocol("a DISCONNECT keeps a session that CONNECT did not keep"));
                    }
                    self.slot.set_expiry(Duration::from_secs(expiry.into()).min(EXPIRY_MAX));
                }
                if said != reason::DISCONNECT_WITH_WILL {
                    self.drop_will();
                }
                (self.ending, self.ended) = (Some(None), true);
            }
        }
        Ok(())
    }

    fn drop_will(&mut self) {
        if let Some(LastWill { row: Some(row), .. }) = self.opening.will.take() {
            self.rows.push((row, None));
        }
    }

    fn publish(&mut self, publish: Publish<'_>) -> Result<(), Fault> {
        let named;
        let topic = match publish.alias {
            None => publish.topic,
            Some(alias) if alias > ALIASES_MAX => {
                let error = Code::MqttPacketInvalid.error(format!("topic alias {alias}; the limit is {ALIASES_MAX}"));
                return Err(Fault::new(reason::ALIAS_INVALID, error));
            }
            Some(alias) if publish.topic.is_empty() => match self.aliases.get(&alias) {
                Some(topic) => {
                    named = topic.clone();
                    &named
                }
                None => return Err(Fault::protocol(format!("topic alias {alias} without a topic"))),
            },
            Some(alias) => {
                self.aliases.insert(alias, publish.topic.to_owned());
                publish.topic
            }
        };
        let (qos, id) = (publish.qos, publish.id);
        // 3.1.1 has no such limit: of a client that sends more, no more than some hundred are read at once.
        let is_v5 = self.opening.version == Version::V5;
        if is_v5 && qos != Qos::AtMostOnce && self.incoming.unacknowledged() >= IN_FLIGHT_MAX {
            let error = Code::MqttLimit.error(format!("more than {IN_FLIGHT_MAX} messages are unacknowledged"));
            return Err(Fault::new(reason::RECEIVE_MAXIMUM, error));
        }
        if qos == Qos::ExactlyOnce {
            match self.slot.with(|session| session.arrive(id)) {
                // Its first copy is appended, or is being appended, and then acknowledges itself.
                Some(false) => {
                    if !self.incoming.has(id) {
                        self.acknowledge(qos, id, reason::SUCCESS);
                    }
                    return Ok(());
                }
                Some(true) => {}
                None => {
                    let error = format!("more than {IN_FLIGHT_MAX} messages of quality 2 are not released");
                    return Err(Fault::new(reason::RECEIVE_MAXIMUM, Code::MqttLimit.error(error)));
                }
            }
        }
        let rules = self.hub.rules();
        let log = self.opening.log_of(&rules, topic);
        let own = self.slot.see(|session| session.excludes_own(topic)).then_some(&*self.slot.id);
        match log.and_then(|log| Ok((log, Said::of(publish.said, own)?))) {
            Ok((log, said)) => {
                let (payload, creates) = (publish.payload.into(), rules.is_ruled(topic));
                // If the host dies, another one knows that this message was appended; by its idempotency key, if it has one.
                let is_noted = qos == Qos::ExactlyOnce && self.slot.is_kept() && said.key.is_none();
                let note = if is_noted { Note::Once(self.slot.mark(id)) } else { Note::Nothing };
                self.incoming.add(&self.opening.access, Message { log, creates, payload, said, qos, id, note });
            }
            Err(error) => self.refuse(topic, qos, id, &error),
        }
        Ok(())
    }

    /// Subscribes to a filter; the reason or the quality that it has.
    fn subscribe(&mut self, asked: &Subscription<'_>, number: Option<u32>) -> u8 {
        let (is_shared, filter) = match shared(asked.filter) {
            Ok(None) => (false, asked.filter),
            Ok(Some((_, filter))) => (true, filter),
            Err(_) => return reason::FILTER_INVALID,
        };
        if check_filter(filter).is_err() {
            return reason::FILTER_INVALID;
        }
        let rules = self.hub.rules();
        let is_one = !filter.contains(['+', '#']);
        let denied = |log: String| !self.opening.access.may_read(&log);
        let topics = self.opening.topics.as_ref();
        if is_one
            && (rules.log_of(filter).is_some_and(denied) || topics.is_some_and(|topics| !topics.may_receive(filter)))
        {
            return reason::NOT_AUTHORIZED;
        }
        let Subscription { qos, no_local, retain_as_published, .. } = *asked;
        let granted = Granted { qos, number, retain_as_published, no_local };
        let Some(new) = self.hub.subscribe(&self.slot, asked.filter, granted) else { return reason::QUOTA };
        // A shared subscription has no retained messages.
        if is_shared {
            return asked.qos as u8;
        }
        if asked.retain_handling == 0 || (asked.retain_handling == 1 && new) {
            self.retained(asked.filter);
        }
        asked.qos as u8
    }

    /// The newest records of the topics of a new subscription.
    fn retained(&mut self, filter: &str) {
        let rules = self.hub.rules();
        if !rules.retains_any() {
            return;
        }
        for log in self.opening.access.logs_that(|name| {
            rules.topic_of(name).is_some_and(|topic| matches(filter, &topic) && rules.retains(&topic))
        }) {
            self.sender.retain(log);
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, stream: &mut Rewound) -> std::io::Result<bool> {
        let mut progress = false;
        if self.sent == self.released {
            self.taken = Instant::now();
        }
        while self.sent < self.released {
            match Pin::new(&mut *stream).poll_write(cx, &self.out[self.sent..self.released]) {
                Poll::Ready(Ok(0)) => return Err(std::io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.sent += count;
                    (self.unflushed, self.taken, progress) = (true, Instant::now(), true);
                    self.hosted.counters.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        if self.sent == self.out.len() {
            self.forget_sent();
            self.out.clear();
            if self.out.capacity() > KEPT_BYTES {
                self.out = Vec::new();
            }
        } else if self.sent >= OUT_MAX_BYTES {
            self.out.drain(..self.sent);
            self.forget_sent();
        }
        if self.unflushed && self.sent == self.released && Pin::new(stream).poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(progress)
    }

    /// The bytes that were sent are no longer there.
    fn forget_sent(&mut self) {
        let sent = std::mem::take(&mut self.sent);
        self.released -= sent;
        if let Some((_, upto)) = &mut self.saving {
            *upto = upto.saturating_sub(sent);
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, stream: &mut Rewound) -> std::io::Result<bool> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(stream).poll_read(cx, &mut buffer) {
                Poll::Pending => Ok(false),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    self.ended = true;
                    Ok(true)
                }
                Poll::Ready(Ok(())) => {
                    self.hosted.counters.received_bytes.fetch_add(buffer.filled().len() as u64, Ordering::Relaxed);
                    self.input.extend_from_slice(buffer.filled());
                    self.heard = Instant::now();
                    Ok(true)
                }
            }
        })
    }

    /// Notices clients that are silent for too long, and those that take nothing.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<LineOver> {
        loop {
            let now = Instant::now();
            if self.is_held_up() {
                self.heard = now; // It may have said something that was not read.
            }
            let is_starved = self.ending.is_none() && self.input.len() >= self.input_max_bytes();
            self.starved = is_starved.then(|| self.starved.unwrap_or(now));
            let starved = self.starved.map(|since| since + patience::link() / 2);
            // Half a packet takes memory, however patient the keep-alive is.
            let has_part = self.ending.is_none() && !self.input.is_empty() && !self.is_held_up();
            let partial = has_part.then(|| self.heard + patience::body());
            if starved.is_some_and(|starved| starved <= now) {
                let error = Code::HttpMemoryShort.error("there is no memory for the rest of a packet");
                self.end(Fault::new(reason::QUOTA, error));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if partial.is_some_and(|partial| partial <= now) {
                self.end(Fault::protocol("the rest of a packet did not come"));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let watched = self.ending.is_none() && !self.opening.keep_alive.is_zero();
            let silent = watched.then(|| self.heard + self.opening.keep_alive * 3 / 2);
            let stuck = (self.sent < self.released).then(|| self.taken + patience::body());
            if stuck.is_some_and(|stuck| stuck <= now) {
                self.ended = true;
                self.ending.get_or_insert(None);
                return self.gone();
            }
            if silent.is_some_and(|silent| silent <= now) {
                let error = "nothing was heard for one and a half times the keep-alive interval";
                self.end(Fault::new(reason::KEEP_ALIVE, Code::MqttKeepAlive.error(error)));
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let next = [silent, stuck, starved, partial].into_iter().flatten().fold(now + LOOK, Instant::min);
            if self.alarm.deadline() != next {
                self.alarm.as_mut().reset(next);
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let will = self.opening.will.take();
        self.sender.stop();
        let is_saved = self.slot.inner().saved;
        self.hub.release(&self.slot);
        if is_saved || !self.rows.is_empty() {
            drop(self.hub.save(&self.opening.access, &self.slot, std::mem::take(&mut self.rows)));
        }
        let may = |will: &LastWill| self.opening.topics.as_ref().is_none_or(|topics| topics.may_publish(&will.topic));
        if let Some(will) = will.filter(may) {
            super::will::publish(&self.hub, &self.slot, &self.opening.access, will);
        }
    }
}
