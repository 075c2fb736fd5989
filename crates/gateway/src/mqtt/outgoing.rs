//! Records that a session sends: read with the rights of its client, and through the gate.

use super::hub::{Hub, SharedRecord, Slot};
use millrace_mqtt::{
    Allowed, Flight, Range,
    packet::{Acknowledged, Outgoing, Qos, SESSION, Version, acknowledge, publish},
};
use millrace_node::{Access, Gated, Log, Record};
use millrace_wire::{Code, Error};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// Bytes that wait for the client, beyond which no more records are read for it.
const OUT_MAX_BYTES: usize = 64 << 10;
/// Records that are read at once.
const RECORDS_MAX: u64 = 256;
/// Bytes of them, unless the first alone has more.
const RECORDS_MAX_BYTES: usize = 64 << 10;

/// What the sender of a session is reading.
struct Reading {
    log: Log,
    range: Range,
    topic: String,
    qos: Qos,
    numbers: Vec<u32>,
    what: What,
    records: Gated<Vec<Record>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    New,
    /// The newest record, for a new subscription.
    Retained,
    /// A record of the group of this number.
    Shared(u64),
    /// A message that was sent before, with its id.
    Again(u16, Flight),
}

/// The sender of a session.
pub(super) struct Sender {
    access: Access,
    /// The topics of a user of MQTT, who gets no others.
    topics: Option<Arc<Allowed>>,
    hub: Arc<Hub>,
    slot: Arc<Slot>,
    version: Version,
    receive_max: usize,
    packet_max_bytes: usize,
    reading: Option<Reading>,
    /// What has to be sent again after a new connection.
    again: VecDeque<(u16, Flight)>,
    /// Logs whose newest record a new subscription gets.
    retained: VecDeque<Log>,
    /// Nothing is read before this, because a read was refused for now.
    pause: Option<Pin<Box<Sleep>>>,
    /// It took a record of a group in this turn.
    took: bool,
    /// Where what was written last begins that the session has to be saved for.
    held: Option<usize>,
    /// How many messages the log no longer had; the client is not yet told.
    lost: u64,
}

impl Sender {
    pub fn new(
        (access, topics): (Access, Option<Arc<Allowed>>),
        (hub, slot): (Arc<Hub>, Arc<Slot>),
        version: Version,
        receive_max: usize,
        packet_max_bytes: usize,
    ) -> Self {
        let again = slot.see(|session| session.flights()).into();
        slot.set_receive_max(receive_max);
        Self {
            access,
            topics,
            hub,
            slot,
            version,
            receive_max,
            packet_max_bytes,
            reading: None,
            again,
            retained: VecDeque::new(),
            pause: None,
            took: false,
            held: None,
            lost: 0,
        }
    }

    /// Where the bytes begin that the session has to be saved for, since this was asked last.
    pub fn held(&mut self) -> Option<usize> {
        self.held.take()
    }

    /// The newest record of this log is to be sent.
    pub fn retain(&mut self, log: Log) {
        if self.retained.iter().all(|there| there.id() != log.id()) {
            self.retained.push_back(log);
        }
    }

    /// Ends: what was read and not sent is sent over the next connection.
    pub fn stop(&mut self) {
        match self.reading.take() {
            Some(Reading { log, range, what: What::New, .. }) => {
                self.slot.with(|session| session.give_back(log.id(), range));
            }
            Some(Reading { log, range, what: What::Shared(group), .. }) => {
                self.hub.give_back(group, log.id(), range.from);
            }
            _ => {}
        }
    }

    /// Sends what can be sent; whether anything was.
    pub fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let moved = self.send_on(cx, out);
        self.hub.is_able(&self.slot, self.pause.is_none() && out.len() < OUT_MAX_BYTES);
        moved
    }

    fn send_on(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let mut moved = false;
        self.took = false;
        if self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(cx).is_pending()) {
            return false;
        }
        self.pause = None;
        while out.len() < OUT_MAX_BYTES {
            if self.reading.is_none() && !self.next(out) {
                break;
            }
            let Some(reading) = &mut self.reading else {
                moved = true; // A PUBREL was sent.
                continue;
            };
            let Poll::Ready(records) = Pin::new(&mut reading.records).poll(cx) else { break };
            moved = true;
            let reading = self.reading.take().expect("it is there");
            match records {
                Ok(records) => self.send(reading, records, out),
                // A database that lacks what the message depends on gets it later.
                Err(error) => match error.retry_after_ms().or(waits_for_writes(&error)) {
                    Some(after_ms) => {
                        self.give_back(reading);
                        let pause = Box::pin(sleep(Duration::from_millis(after_ms.into())));
                        self.pause.insert(pause).as_mut().poll(cx).is_ready().then(|| cx.waker().wake_by_ref());
                        break;
                    }
                    None => self.fail(reading, &error),
                },
            }
        }
        moved
    }

    /// Begins to read what comes next; false if there is nothing, or no room for it.
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        if let Some((id, flight)) = self.again.pop_front() {
            if flight.received {
                if self.slot.is_kept() {
                    self.held.get_or_insert(out.len());
                }
                acknowledge(out, self.version, Acknowledged::Release, id, 0);
                return true;
            }
            let range = Range { from: flight.seqno, upto: flight.seqno };
            match self.hub.log(flight.log) {
                Some(log) => self.read(log, range, Some(flight.qos), What::Again(id, flight)),
                None => self.slot.with(|session| session.lose(id)),
            }
            return true;
        }
        let room = self.slot.see(|session| session.room(self.receive_max));
        if room == 0 {
            return false;
        }
        if let Some(log) = self.retained.pop_front() {
            let latest = log.latest();
            if latest > 0 {
                self.hub.know(&log);
                self.read(log, Range { from: latest, upto: latest }, None, What::Retained);
            }
            return true;
        }
        if self.slot.see(|session| session.has_pending())
            && let Some((id, range)) = self.slot.with(|session| session.take())
        {
            match self.hub.log(id) {
                Some(log) => self.read(log, range, None, What::New),
                None => self.slot.with(|session| session.drop_taken()),
            }
            return true;
        }
        // One record in a turn: the next one is another member's.
        if self.took {
            return false;
        }
        let Some(SharedRecord { group, filter, log, seqno }) = self.hub.take_shared(&self.slot) else { return false };
        self.took = true;
        let granted = self.slot.see(|session| session.granted_to(&filter));
        match (granted, self.hub.log(log)) {
            (Some(granted), Some(log)) => {
                let range = Range { from: seqno, upto: seqno };
                self.read(log, range, Some(granted.qos), What::Shared(group));
                if let Some(reading) = &mut self.reading {
                    reading.numbers = granted.number.into_iter().collect();
                }
            }
            (None, _) => self.hub.give_back(group, log, seqno),
            (Some(_), None) => self.hub.drop_shared(group, log, seqno),
        }
        true
    }

    /// Begins to read; records of a topic that no filter matches any more are not read.
    fn read(&mut self, log: Log, range: Range, qos: Option<Qos>, what: What) {
        let may_receive = |topic: &String| self.topics.as_ref().is_none_or(|topics| topics.may_receive(topic));
        let topic = self.hub.rules().topic_of(log.name()).filter(may_receive);
        let topic = topic.filter(|_| self.access.finds(log.name()));
        let Some(topic) = topic else {
            // Of a log that the client may not read, it gets nothing.
            self.drop_unread(&log, range, what);
            return;
        };
        let granted = self.slot.see(|session| session.granted(&topic));
        let (qos, numbers) = match (qos, granted) {
            (Some(qos), granted) => (qos, granted.map(|(_, numbers)| numbers).unwrap_or_default()),
            (None, Some((qos, numbers))) => (qos, numbers),
            (None, None) => return self.drop_unread(&log, range, what),
        };
        let room = match (qos, what) {
            (Qos::AtMostOnce, _) | (_, What::Again(..)) => RECORDS_MAX,
            _ => self.slot.see(|session| session.room(self.receive_max)) as u64, // at most 64
        };
        let count = room.min(range.upto.saturating_sub(range.from).saturating_add(1)) as u32; // at most 256
        let records = self.access.range_of(&log, range.from, count, RECORDS_MAX_BYTES, None);
        self.reading = Some(Reading { log, range, topic, qos, numbers, what, records });
    }

    /// What was taken is not for the client any more.
    fn drop_unread(&self, log: &Log, range: Range, what: What) {
        match what {
            What::New => self.slot.with(|session| session.drop_taken()),
            What::Again(id, _) => self.slot.with(|session| session.lose(id)),
            What::Shared(group) => self.hub.drop_shared(group, log.id(), range.from),
            What::Retained => {}
        }
    }

    /// Sends records, and gives those back for which there is no room.
    fn send(&mut self, reading: Reading, records: Vec<Record>, out: &mut Vec<u8>) {
        let Reading { log, range, topic, qos, numbers, what, .. } = reading;
        let mut next = range.upto + 1;
        if let Some(last) = records.last() {
            next = last.seqno + 1;
        }
        let is_for_client = |record: &&Record| match what {
            What::Again(..) | What::Shared(_) => true,
            // The end of what is retained: MQTT does not send it to new subscribers.
            What::Retained if record.payload.is_empty() => false,
            What::New | What::Retained => !self.is_own(record) || self.slot.see(|session| session.includes_own(&topic)),
        };
        let due: Vec<&Record> =
            records.iter().filter(|record| record.seqno <= range.upto).filter(is_for_client).collect();
        // What is in flight and what is left change at once, since the session may be saved at any moment.
        let ids: Vec<u16> = match what {
            What::Again(id, _) => due.iter().map(|_| id).collect(),
            What::Shared(group) => {
                let send = |record: &&Record| self.hub.send_shared(&self.slot, (group, log.id(), record.seqno), qos);
                due.iter().map_while(send).collect()
            }
            What::New | What::Retained => self.slot.with(|session| {
                let mut ids = Vec::with_capacity(due.len());
                for record in &due {
                    match qos {
                        Qos::AtMostOnce => ids.push(0),
                        _ => match session.send(log.id(), record.seqno, qos, None) {
                            Some(id) => ids.push(id),
                            None => {
                                next = record.seqno;
                                break;
                            }
                        },
                    }
                }
                if what == What::New {
                    session.give_back(log.id(), Range { from: next, upto: range.upto });
                }
                ids
            }),
        };
        if qos == Qos::ExactlyOnce && !ids.is_empty() && self.slot.is_kept() {
            self.held.get_or_insert(out.len());
        }
        for (record, id) in due.into_iter().zip(ids) {
            let message = Outgoing {
                topic: &topic,
                payload: &record.payload,
                id,
                qos,
                dup: matches!(what, What::Again(..)),
                retain: what == What::Retained,
                subscriptions: &numbers,
                headers: &record.headers,
                lost: if what == What::New { std::mem::take(&mut self.lost) } else { 0 },
            };
            // MQTT: a message that the client cannot read counts as sent.
            if !publish(out, self.version, &message, self.packet_max_bytes) && id != 0 {
                self.slot.with(|session| session.lose(id));
            }
        }
        match what {
            What::Shared(group) if records.is_empty() => self.hub.drop_shared(group, log.id(), range.from),
            What::Again(id, _) if records.is_empty() => self.slot.with(|session| session.lose(id)),
            _ => {}
        }
    }

    /// Whether this session appended a record that it does not want back.
    fn is_own(&self, record: &Record) -> bool {
        record.headers.iter().any(|(name, value)| name == SESSION && value == self.slot.id)
    }

    /// What cannot be read now is read later.
    fn give_back(&mut self, reading: Reading) {
        let Reading { log, range, what, .. } = reading;
        match what {
            What::New => self.slot.with(|session| session.give_back(log.id(), range)),
            What::Retained => self.retained.push_front(log),
            What::Shared(group) => self.hub.give_back(group, log.id(), range.from),
            What::Again(id, flight) => self.again.push_front((id, flight)),
        }
    }

    /// What cannot be read is not sent. If the log no longer has the oldest of it, the rest is tried.
    fn fail(&mut self, reading: Reading, error: &Error) {
        let Reading { log, range, what, topic, .. } = reading;
        let earliest = log.earliest();
        let lapped = what == What::New && earliest > range.from && log.check_exists().is_ok();
        let code = error.code();
        if lapped {
            let lost = earliest.min(range.upto + 1) - range.from;
            tracing::warn!(
                target: "requests", protocol = "mqtt", code = code.id(),
                "client '{}' does not get {lost} messages of topic '{topic}', which the log no longer has",
                self.slot.key().client().escape_debug()
            );
            self.lost += lost;
            self.slot.with(|session| session.give_back(log.id(), Range { from: earliest, upto: range.upto }));
            return;
        }
        self.drop_unread(&log, range, what);
        if code != Code::LogNotFound {
            tracing::info!(
                target: "requests", protocol = "mqtt", code = code.id(),
                "client '{}' does not get messages of topic '{topic}': {}",
                self.slot.key().client().escape_debug(), error.detail()
            );
        }
    }
}

/// After how many milliseconds a read that has waited too long for a database is tried again.
fn waits_for_writes(error: &Error) -> Option<u32> {
    (error.code() == Code::WritesWaiting).then_some(500)
}
