//! Reports of a host about its links: one line for each change of a link, however often it is polled.

use super::{
    LinkKey, Links, LiveLink, Stop,
    state::{self, Course, State},
};
use millrace_namespace::outbox::log_of;
use millrace_wire::{Code, Error, Result};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// The maximum number of changes of one link that are reported within [`WINDOW`]; after that, the last one is reported at the end.
const CHANGES_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Receives changes of links.
pub type LinkObserver = Arc<dyn Fn(&LinkNews) + Send + Sync>;

/// A change of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkNews {
    /// `outbox`, `relay`, or `stream` for an incoming one.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The source of the records.
    pub from: String,
    /// Their destination.
    pub to: String,
    /// The change.
    pub change: LinkChange,
}

/// The kinds of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The other side answers, and accepts records.
    Connected,
    /// Nothing is transferred now; the link continues once the cause is over.
    Waiting(Error),
    /// It is stopped until the operator decides.
    Stopped(Error),
    /// The number of permanently refused messages since the last report; each is a dead letter.
    Dead(u64),
    /// The number of records lost to the history since the last report.
    Lost(u64),
    /// An incoming stream was refused, because another copy of its namespace sends it.
    Refused(Error),
}

/// Remembers the last reports.
#[derive(Default)]
pub struct LinkWatch {
    reported: HashMap<LinkKey, Reported>,
    /// The refused streams that were reported: the number of their namespace, their name and the time.
    refused: HashSet<(u64, String, u64)>,
    /// The note of all links, and its version.
    state: State,
    version: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Unknown,
    Connected,
    Waiting,
    Stopped,
}

/// The last report about one link.
struct Reported {
    phase: Phase,
    /// The error, reduced to the part whose change is reported.
    wrong: String,
    dead: u64,
    lost: u64,
    /// The reports since then.
    since: Instant,
    changes: u32,
}

impl Reported {
    /// Earlier dead letters and losses are not reported again.
    fn new(dead: u64, lost: u64, now: Instant) -> Self {
        Self { phase: Phase::Unknown, wrong: String::new(), dead, lost, since: now, changes: 0 }
    }

    /// Reserves one more line, if there is room; returns whether there was.
    fn may_tell(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= WINDOW {
            (self.since, self.changes) = (now, 0);
        }
        self.changes += 1;
        self.changes <= CHANGES_MAX
    }

    /// The report about a link in this state.
    fn changes(
        &mut self,
        course: &Course,
        live: Option<&LiveLink>,
        dead: u64,
        lost: u64,
        now: Instant,
    ) -> Vec<LinkChange> {
        let mut changes = Vec::new();
        if dead > self.dead && self.may_tell(now) {
            changes.push(LinkChange::Dead(dead - self.dead));
            self.dead = dead;
        }
        if lost > self.lost && self.may_tell(now) {
            changes.push(LinkChange::Lost(lost - self.lost));
            self.lost = lost;
        }
        let wrong = live.and_then(|live| live.error.as_ref());
        let (phase, stop): (Phase, Option<&Stop>) = match (&course.stopped, wrong) {
            (Some(stop), _) => (Phase::Stopped, Some(stop)),
            (None, Some(wrong)) => (Phase::Waiting, Some(wrong)),
            (None, None) if live.is_some_and(|live| live.connected) => (Phase::Connected, None),
            // It has not connected yet, or has nothing to send and needs no connection.
            (None, None) => return changes,
        };
        // Attempts to connect may fail with different texts; missing targets and causes of a stop are distinguished.
        let wrong = stop.map_or_else(String::new, |stop| match phase {
            Phase::Waiting if stop.code != Code::LinkTargetMissing.id() => stop.code.clone(),
            _ => format!("{} {}", stop.code, stop.detail),
        });
        if (phase, &wrong) == (self.phase, &self.wrong) || !self.may_tell(now) {
            return changes;
        }
        changes.push(match stop {
            Some(stop) if phase == Phase::Stopped => LinkChange::Stopped(stop.error()),
            Some(stop) => LinkChange::Waiting(stop.error()),
            None => LinkChange::Connected,
        });
        (self.phase, self.wrong) = (phase, wrong);
        changes
    }
}

impl LinkWatch {
    /// The changes since the last call, from the stored state and the activity of the host's links.
    pub fn look(&mut self, links: &Links, live: &[LiveLink], now: Instant) -> Result<Vec<LinkNews>> {
        let (version, is_first) = (links.version()?, self.version.is_none());
        if self.version != Some(version) {
            self.state = links.state()?;
            self.version = Some(version);
        }
        let live: HashMap<&LinkKey, &LiveLink> = live.iter().map(|live| (&live.key, live)).collect();
        let mut news = Vec::new();
        let mut reported = HashMap::new();
        let mut look = |key: LinkKey, course: &Course, (dead, lost), kind, name: &str, ends: (String, String)| {
            // All losses of a link that was created since the last check are new.
            let known = self.reported.remove(&key);
            let mut known = known.unwrap_or_else(|| {
                let (dead, lost) = if is_first { (dead, lost) } else { (0, 0) };
                Reported::new(dead, lost, now)
            });
            for change in known.changes(course, live.get(&key).copied(), dead, lost, now) {
                let ((from, to), name) = (ends.clone(), name.to_owned());
                news.push(LinkNews { kind, name, from, to, change });
            }
            reported.insert(key, known);
        };
        for peer in &self.state.peers {
            let ends = (log_of(&peer.name).to_string(), peer.address.to_string());
            look(LinkKey::Outbox(peer.name.clone()), &peer.course, (peer.dead, 0), "outbox", &peer.name, ends);
        }
        for relay in &self.state.relays {
            let ends = (relay.from.to_string(), relay.to.to_string());
            look(LinkKey::Relay(relay.id), &relay.course, (0, relay.lost), "relay", &relay.name, ends);
        }
        self.reported = reported;
        let mut refused = HashSet::new();
        for known in &self.state.refused {
            let key = (known.namespace, known.stream.clone(), known.at_us);
            if !is_first && !self.refused.contains(&key) {
                let (from, change) = (state::shown(known.namespace), LinkChange::Refused(known.error()));
                news.push(LinkNews { kind: "stream", name: known.stream.clone(), from, to: String::new(), change });
            }
            refused.insert(key);
        }
        self.refused = refused;
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(connected: bool, error: Option<Code>) -> LiveLink {
        let error = error.map(|code| Stop::of(&code.error("so it is")));
        LiveLink { connected, error, ..LiveLink::new(LinkKey::Relay(1)) }
    }

    #[test]
    fn each_change_is_reported_once_and_repeated_changes_are_bounded() {
        let begun = Instant::now();
        let (mut reported, course) = (Reported::new(7, 0, begun), Course::new());
        let mut look = |course: &Course, live: &LiveLink, dead, lost, seconds| {
            reported.changes(course, Some(live), dead, lost, begun + Duration::from_secs(seconds))
        };
        let (down, up) = (live(false, Some(Code::LinkUnreachable)), live(true, None));
        assert_eq!(
            look(&course, &live(false, None), 7, 0, 0),
            [],
            "it begins, and what was dead before is told already"
        );
        let waits = LinkChange::Waiting(Code::LinkUnreachable.error("so it is"));
        assert_eq!(look(&course, &down, 7, 0, 0), std::slice::from_ref(&waits));
        assert_eq!(look(&course, &down, 7, 0, 1), []);
        assert_eq!(look(&course, &up, 7, 0, 1), [LinkChange::Connected]);
        assert_eq!(look(&course, &up, 9, 0, 1), [LinkChange::Dead(2)]);
        assert_eq!(look(&course, &up, 9, 5, 1), [LinkChange::Lost(5)]);
        // A message that waits for a missing log is reported as such.
        let missing = LinkChange::Waiting(Code::LinkTargetMissing.error("so it is"));
        assert_eq!(look(&course, &live(true, Some(Code::LogNotFound)), 9, 5, 1), [missing]);
        let other = LiveLink { error: Some(Stop::of(&Code::LogNotFound.error("another"))), ..live(true, None) };
        let waits_for_another = LinkChange::Waiting(Code::LinkTargetMissing.error("another"));
        assert_eq!(look(&course, &other, 9, 5, 1), [waits_for_another]);
        let stop = Stop::of(&Code::LinkGap.error("gone"));
        let stopped = Course { stopped: Some(stop.clone()), ..Course::new() };
        assert_eq!(look(&stopped, &down, 9, 5, 2), [LinkChange::Stopped(stop.error())]);
        assert_eq!(look(&stopped, &down, 9, 5, 2), []);
        let flapping: usize =
            (0..100).map(|n| look(&course, if n % 2 == 0 { &up } else { &down }, 9, 5, 3).len()).sum();
        assert_eq!(flapping + 7, CHANGES_MAX as usize);
        assert_eq!(look(&course, &down, 10, 5, 59), [], "what there was no room for …");
        assert_eq!(look(&course, &down, 12, 5, 61).first(), Some(&LinkChange::Dead(3)), "… is told later");
    }
}
