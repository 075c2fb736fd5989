//! A session: its topic filters, the records that it still has to send, and the packets in flight.

use crate::{
    filter::{SHARED, matches},
    packet::Qos,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Topic filters of a session.
pub const FILTERS_MAX: usize = 1000;
/// Messages of a session that are unacknowledged, in each direction.
pub const IN_FLIGHT_MAX: usize = 64;

/// What a filter was subscribed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The highest quality.
    pub qos: Qos,
    /// The number that its messages carry.
    pub number: Option<u32>,
    /// Its messages keep their flag RETAIN.
    pub retain_as_published: bool,
    /// Messages of this session are not for it.
    #[serde(default)]
    pub no_local: bool,
}

/// Records of a log that a session still has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first.
    pub from: u64,
    /// The last.
    pub upto: u64,
}

/// A message that the client has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flight {
    /// The log's id.
    pub log: u32,
    /// The record's number.
    pub seqno: u64,
    /// The quality that it was sent with.
    pub qos: Qos,
    /// The group that it was taken from.
    pub group: Option<u64>,
    /// The client has it (PUBREC), and only its id is still in use.
    pub received: bool,
    /// Its place in the order of sending.
    order: u64,
}

/// A session. It has no messages: only positions in logs. It is saved as it is, except for the ids of messages that came: those are saved
/// one by one, in the batch of the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    filters: BTreeMap<String, Granted>,
    /// By the log's id.
    pending: BTreeMap<u32, Range>,
    /// What was taken from a log and is being read.
    taken: Option<(u32, Range)>,
    /// The log whose records were sent last: the logs take turns.
    last: u32,
    flights: BTreeMap<u16, Flight>,
    next_id: u16,
    sent: u64,
    /// Ids of messages of quality 2 that came and are not released.
    #[serde(skip)]
    received: BTreeSet<u16>,
}

impl Session {
    /// Its filters.
    pub fn filters(&self) -> impl Iterator<Item = (&str, &Granted)> {
        self.filters.iter().map(|(filter, granted)| (filter.as_str(), granted))
    }

    /// Subscribes to a filter; false if there are too many.
    pub fn subscribe(&mut self, filter: &str, granted: Granted) -> bool {
        if self.filters.len() >= FILTERS_MAX && !self.filters.contains_key(filter) {
            return false;
        }
        self.filters.insert(filter.to_owned(), granted);
        true
    }

    /// Whether it was subscribed to this filter, which it no longer is.
    pub fn unsubscribe(&mut self, filter: &str) -> bool {
        self.filters.remove(filter).is_some()
    }

    /// With what this filter was subscribed to.
    pub fn granted_to(&self, filter: &str) -> Option<Granted> {
        self.filters.get(filter).copied()
    }

    /// With what a message of this topic is sent: the highest quality of the filters that match, and their numbers. None if no filter does.
    /// Shared subscriptions do not count.
    pub fn granted(&self, topic: &str) -> Option<(Qos, Vec<u32>)> {
        let (mut found, mut numbers) = (None, Vec::new());
        for (filter, granted) in &self.filters {
            if !filter.starts_with(SHARED) && matches(filter, topic) {
                found = found.max(Some(granted.qos));
                numbers.extend(granted.number);
            }
        }
        found.map(|qos| (qos, numbers))
    }

    /// Whether some filter excludes messages of this topic that come from this session.
    pub fn excludes_own(&self, topic: &str) -> bool {
        self.filters.iter().any(|(filter, granted)| granted.no_local && matches(filter, topic))
    }

    /// Whether some filter includes them.
    pub fn includes_own(&self, topic: &str) -> bool {
        let includes = |(filter, granted): (&String, &Granted)| {
            !granted.no_local && !filter.starts_with(SHARED) && matches(filter, topic)
        };
        self.filters.iter().any(includes)
    }

    /// A record was appended that it has to send. Positions of a log come in their order, and repeated ones have no effect.
    pub fn hand(&mut self, log: u32, seqno: u64) {
        let range = self.pending.entry(log).or_insert(Range { from: seqno, upto: seqno });
        range.upto = range.upto.max(seqno);
    }

    /// Takes what is to be sent from one log; the logs take turns. What is not sent is given back by [`Session::give_back`].
    pub fn take(&mut self) -> Option<(u32, Range)> {
        let after = self.pending.range(self.last.saturating_add(1)..).next();
        let log = *after.or_else(|| self.pending.iter().next())?.0;
        self.last = log;
        self.taken = self.pending.remove(&log).map(|range| (log, range));
        self.taken
    }

    /// Puts records back that were taken and not sent. Others of the log may have been handed over meanwhile.
    pub fn give_back(&mut self, log: u32, range: Range) {
        self.taken = self.taken.filter(|(taken, _)| *taken != log);
        if range.from > range.upto {
            return;
        }
        let there = self.pending.entry(log).or_insert(range);
        *there = Range { from: there.from.min(range.from), upto: there.upto.max(range.upto) };
    }

    /// What was taken is not sent, because the client may not have it or wants it no longer.
    pub fn drop_taken(&mut self) {
        self.taken = None;
    }

    /// The session as it was saved, in a host that has just started: what was being read is read again.
    #[must_use]
    pub fn restored(mut self, group: impl Fn(u64) -> Option<u64>) -> Self {
        if let Some((log, range)) = self.taken.take() {
            self.give_back(log, range);
        }
        self.flights.values_mut().for_each(|flight| flight.group = flight.group.and_then(&group));
        self
    }

    /// The ids of messages of quality 2 that came and are not released.
    pub fn arrived(&self) -> impl Iterator<Item = u16> {
        self.received.iter().copied()
    }

    /// The logs whose records it has to send, or has sent.
    pub fn logs(&self) -> impl Iterator<Item = u32> {
        self.pending.keys().copied().chain(self.flights.values().map(|flight| flight.log))
    }

    /// What it still has to send: by log.
    pub fn pending(&self) -> impl Iterator<Item = (u32, Range)> {
        self.pending.iter().map(|(log, range)| (*log, *range)).chain(self.taken)
    }

    /// Whether there is something to send.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Forgets what there is to send from a log, which was removed, and nobody can acknowledge.
    pub fn forget(&mut self, log: u32) {
        self.pending.remove(&log);
    }

    /// How many more messages above quality 0 may be sent, of at most `window`.
    pub fn room(&self, window: usize) -> usize {
        window.min(IN_FLIGHT_MAX).saturating_sub(self.flights.len())
    }

    /// A message is sent, which was taken from a group perhaps: the id of its packet. None if there are too many in flight.
    pub fn send(&mut self, log: u32, seqno: u64, qos: Qos, group: Option<u64>) -> Option<u16> {
        if self.flights.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let free = (0..=IN_FLIGHT_MAX as u16)
            .map(|more| self.next_id.wrapping_add(more).max(1))
            .find(|id| !self.flights.contains_key(id))?;
        self.next_id = free.wrapping_add(1);
        self.sent += 1;
        self.flights.insert(free, Flight { log, seqno, qos, group, received: false, order: self.sent });
        Some(free)
    }

    /// PUBACK; false if there is no such message of quality 1.
    pub fn acknowledged(&mut self, id: u16) -> bool {
        let is = self.flights.get(&id).is_some_and(|flight| flight.qos == Qos::AtLeastOnce);
        is && self.flights.remove(&id).is_some()
    }

    /// PUBREC; false if there is no such message of quality 2.
    pub fn received(&mut self, id: u16) -> bool {
        match self.flights.get_mut(&id) {
            Some(flight) if flight.qos == Qos::ExactlyOnce => {
                flight.received = true;
                true
            }
            _ => false,
        }
    }

    /// PUBCOMP, or a PUBREC that refuses the message.
    pub fn complete(&mut self, id: u16) -> bool {
        let is = self.flights.get(&id).is_some_and(|flight| flight.qos == Qos::ExactlyOnce);
        is && self.flights.remove(&id).is_some()
    }

    /// What is in flight, in the order in which it was sent: after a new connection it is sent again.
    pub fn flights(&self) -> Vec<(u16, Flight)> {
        let mut all: Vec<(u16, Flight)> = self.flights.iter().map(|(id, flight)| (*id, *flight)).collect();
        all.sort_unstable_by_key(|(_, flight)| flight.order);
        all
    }

    /// A message of a log that cannot be read any more is in flight no longer.
    pub fn lose(&mut self, id: u16) {
        self.flights.remove(&id);
    }

    /// What was taken from groups and may go to other members, which is in flight no longer: the group, the log and the number of each. A
    /// message of quality 2 may not, even if the session ends, since the client may have it.
    pub fn abandon(&mut self) -> Vec<(u64, u32, u64)> {
        let goes = |flight: &Flight| flight.group.is_some() && flight.qos == Qos::AtLeastOnce;
        let flights = self.flights();
        let gone = flights.into_iter().filter(|(_, flight)| goes(flight));
        gone.filter_map(|(id, flight)| {
            self.flights.remove(&id);
            flight.group.map(|group| (group, flight.log, flight.seqno))
        })
        .collect()
    }

    /// A message of quality 2 comes: false if it came before and is not released. `None` if there are too many.
    pub fn arrive(&mut self, id: u16) -> Option<bool> {
        if self.received.len() >= IN_FLIGHT_MAX && !self.received.contains(&id) {
            return None;
        }
        Some(self.received.insert(id))
    }

    /// Whether a message of quality 2 came with this id and is not released.
    pub fn has_arrived(&self, id: u16) -> bool {
        self.received.contains(&id)
    }

    /// PUBREL; false if no such message came.
    pub fn release(&mut self, id: u16) -> bool {
        self.received.remove(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_that_two_filters_match_has_the_higher_quality_and_both_numbers() {
        let mut session = Session::default();
        let granted = |qos, number| Granted { qos, number, ..Granted::default() };
        assert!(session.subscribe("a/+", granted(Qos::AtLeastOnce, Some(7))));
        assert!(session.subscribe("a/#", granted(Qos::AtMostOnce, Some(9))));
        assert!(session.subscribe("b", granted(Qos::ExactlyOnce, None)));
        assert_eq!(session.granted("a/x"), Some((Qos::AtLeastOnce, vec![9, 7])));
        assert_eq!(session.granted("a"), Some((Qos::AtMostOnce, vec![9])));
        assert_eq!(session.granted("c"), None);
        assert!(session.unsubscribe("a/+") && !session.unsubscribe("a/+"));
        assert_eq!(session.granted("a/x"), Some((Qos::AtMostOnce, vec![9])));
    }

    #[test]
    fn own_messages_are_excluded_by_all_filters_that_match_or_come() {
        let mut session = Session::default();
        let granted = |no_local| Granted { no_local, ..Granted::default() };
        assert!(session.subscribe("a/+", granted(true)) && session.subscribe("$share/g/a/#", granted(false)));
        assert!(session.excludes_own("a/b") && !session.includes_own("a/b") && !session.excludes_own("a"));
        assert!(session.subscribe("a/#", granted(false)) && session.includes_own("a/b"));
        assert!(session.subscribe("a/+", granted(false)) && !session.excludes_own("a/b"));
        // A session that an older host saved.
        let old = r#"{"qos":"AtMostOnce","number":null,"retain_as_published":false}"#;
        assert_eq!(serde_json::from_str::<Granted>(old).unwrap(), Granted::default());
    }

    #[test]
    fn filters_and_messages_in_flight_are_bounded() {
        let mut session = Session::default();
        assert!((0..FILTERS_MAX).all(|number| session.subscribe(&number.to_string(), Granted::default())));
        assert!(!session.subscribe("one more", Granted::default()) && session.subscribe("7", Granted::default()));
        let ids: Vec<u16> = (0..).map_while(|seqno| session.send(1, seqno, Qos::AtLeastOnce, None)).collect();
        assert_eq!((ids.len(), session.room(usize::MAX)), (IN_FLIGHT_MAX, 0));
        let expected: Vec<u16> = session.flights().iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, expected, "in the order of sending");
        assert!((1..=IN_FLIGHT_MAX as u16).all(|id| session.arrive(id) == Some(true)));
        assert_eq!((session.arrive(1), session.arrive(1000)), (Some(false), None));
        assert!(session.release(1) && !session.release(1) && session.arrive(1000) == Some(true));
    }

    #[test]
    fn what_a_lost_member_of_a_group_held_goes_to_others() {
        let mut session = Session::default();
        assert!(session.subscribe("$share/g/#", Granted::default()));
        assert_eq!(session.granted("a"), None, "only the group's");
        let sent = [(Qos::AtLeastOnce, Some(7)), (Qos::ExactlyOnce, Some(7)), (Qos::AtLeastOnce, None)];
        let ids = sent.map(|(qos, group)| session.send(1, 5, qos, group).unwrap());
        let again = session.send(2, 6, Qos::ExactlyOnce, Some(8)).unwrap();
        assert!(session.received(again));
        assert_eq!(session.abandon(), [(7, 1, 5)]);
        // It outlives its host, where groups have other numbers.
        let saved = serde_json::to_string(&session).unwrap();
        let restored = serde_json::from_str::<Session>(&saved).unwrap();
        let mut session = restored.restored(|group| (group == 7).then_some(70));
        let more = session.send(3, 7, Qos::AtLeastOnce, Some(70)).unwrap();
        assert_eq!(session.abandon(), [(70, 3, 7)], "and none of quality 2");
        assert!(session.complete(ids[1]) && !session.acknowledged(more));
        assert!(session.acknowledged(ids[2]) && session.complete(again) && !session.acknowledged(ids[0]));
    }

    /// What may happen to a session.
    #[derive(Clone, Debug)]
    enum Event {
        Append(u32),
        Send(usize),
        Acknowledge(prop::sample::Index),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0u32..4).prop_map(Event::Append),
            (0usize..5).prop_map(Event::Send),
            any::<prop::sample::Index>().prop_map(Event::Acknowledge),
        ]
    }

    proptest! {
        /// Every record is sent once, those of one log in their order, and no id is used twice at once.
        #[test]
        fn it_sends_what_a_queue_would_send(events in prop::collection::vec(event(), 0..200)) {
            let mut session = Session::default();
            let (mut latest, mut sent) = ([0u64; 4], [0u64; 4]);
            let mut in_flight: BTreeMap<u16, (u32, u64)> = BTreeMap::new();
            let mut send = |session: &mut Session, in_flight: &mut BTreeMap<u16, (u32, u64)>, most: usize| {
                let Some((log, range)) = session.take() else { return Ok(false) };
                let mut next = range.from;
                while next <= range.upto && ((next - range.from) as usize) < most {
                    let Some(id) = session.send(log, next, Qos::AtLeastOnce, None) else { break };
                    prop_assert!(in_flight.insert(id, (log, next)).is_none(), "the id is in use");
                    prop_assert_eq!(next, sent[log as usize] + 1, "in order, each once");
                    sent[log as usize] = next;
                    next += 1;
                }
                session.give_back(log, Range { from: next, upto: range.upto });
                Ok(true)
            };
            for event in events {
                match event {
                    Event::Append(log) => {
                        latest[log as usize] += 1;
                        session.hand(log, latest[log as usize]);
                    }
                    Event::Send(most) => drop(send(&mut session, &mut in_flight, most)?),
                    Event::Acknowledge(index) if !in_flight.is_empty() => {
                        let id = *index.get(&in_flight.keys().copied().collect::<Vec<_>>());
                        in_flight.remove(&id);
                        prop_assert!(session.acknowledged(id) && !session.acknowledged(id));
                    }
                    Event::Acknowledge(_) => {}
                }
            }
            while session.has_pending() {
                in_flight.keys().for_each(|id| assert!(session.acknowledged(*id)));
                in_flight.clear();
                send(&mut session, &mut in_flight, 50)?;
            }
            prop_assert_eq!(latest, sent);
        }
    }
}
