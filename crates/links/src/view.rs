//! The state of each link, for people.

use super::{
    LinkKey, Links, LiveLink, log_name,
    state::{Course, Endpoint, Peer, Relay, Stop},
};
use millrace_journal::Log;
use millrace_namespace::outbox::{log_of, waiting};
use millrace_wire::{Code, Error, Hlc, Result};

/// The maximum number of records that are read to compute how many bytes a relay is behind.
const SAMPLE_RECORDS: u64 = 256;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// No host drives it.
    NoHost,
    /// It tries to reach the other side.
    Connecting,
    /// The other side answers, and there is something to carry.
    Carrying,
    /// The other side answers, and takes nothing now.
    Waiting,
    /// The other side answers, and has everything.
    Idle,
    /// It was removed; the other side still has to be notified.
    Leaving,
    /// It is stopped until the operator decides.
    Stopped,
}

impl LinkState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            LinkState::NoHost => "no-host",
            LinkState::Connecting => "connecting",
            LinkState::Carrying => "carrying",
            LinkState::Waiting => "waiting",
            LinkState::Idle => "idle",
            LinkState::Leaving => "leaving",
            LinkState::Stopped => "stopped",
        }
    }
}

/// One link and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// `outbox` or `relay`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Where records come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// Its state.
    pub state: LinkState,
    /// The last number that is safe at the receiving side, as far as is known here.
    pub acked: u64,
    /// The first record that a relay forwards; 0 of an outbox.
    pub start: u64,
    /// Messages of an outbox that arrived there.
    pub sent: u64,
    /// Messages that the peer refused permanently; each is a dead letter.
    pub dead: u64,
    /// Messages that were dropped by `outbox reset --skip`.
    pub dropped: u64,
    /// The newest number there is.
    pub newest: u64,
    /// Records that are still to come.
    pub lag_records: u64,
    /// Their bytes; an estimate for relays that are far behind, 0 for one that fetches.
    pub lag_bytes: u64,
    /// Records that were lost before they could be forwarded.
    pub lost: u64,
    /// The other namespace's identity, once it was met.
    pub peer: Option<String>,
    /// Whether the other side answers. An outbox that has nothing to send needs no connection.
    pub connected: bool,
    /// The last answer since the host started.
    pub last_contact: Option<Hlc>,
    /// Whether it was given an address at which the other side has not answered yet.
    pub moving: bool,
    /// When it tries again.
    pub next_try: Option<Hlc>,
    /// The code of what stopped it, or of what was wrong last.
    pub code: Option<String>,
    /// The reason for its stop, or its last error.
    pub error: Option<String>,
    /// The remedy.
    pub remedy: Option<&'static str>,
}

/// A moment in milliseconds since 1970; 0 is none.
fn moment(at_ms: u64) -> Option<Hlc> {
    (at_ms > 0).then(|| Hlc::from_wall_us(at_ms.saturating_mul(1000)))
}

impl Links {
    /// Every link, outboxes first, each by name.
    pub fn view(&self) -> Result<Vec<LinkView>> {
        let state = self.state()?;
        let (live, is_hosted) = (self.status()?.links, self.namespace.host()?.is_some());
        let live = |key: &LinkKey| live.iter().find(|live| live.key == *key).cloned();
        let mut views = Vec::new();
        for peer in &state.peers {
            let key = LinkKey::Outbox(peer.name.clone());
            let view = self.outbox_view(peer, live(&key), is_hosted);
            let ends = || (log_of(&peer.name).to_string(), peer.address.to_string());
            views.push(view.unwrap_or_else(|error| unreadable("outbox", &peer.name, &peer.course, ends(), &error)));
        }
        for relay in &state.relays {
            let view = self.relay_view(relay, live(&LinkKey::Relay(relay.id)), is_hosted);
            let ends = || (relay.from.to_string(), relay.to.to_string());
            views.push(view.unwrap_or_else(|error| unreadable("relay", &relay.name, &relay.course, ends(), &error)));
        }
        views.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Ok(views)
    }

    fn outbox_view(&self, peer: &Peer, live: Option<LiveLink>, is_hosted: bool) -> Result<LinkView> {
        let Peer { name, course, .. } = peer;
        let catalog = self.namespace.journal().catalog()?;
        let log = catalog.log(&log_of(name));
        let waits = log.map_or(Ok(Default::default()), |log| waiting(&self.namespace, log))?;
        let newest = log.map_or(0, Log::latest);
        let mut view = view("outbox", name, course, live, is_hosted, waits.records);
        (view.from, view.to) = (log_of(name).to_string(), peer.address.to_string());
        (view.acked, view.newest, view.lag_bytes) = (newest - waits.records.min(newest), newest, waits.bytes);
        (view.dead, view.dropped) = (peer.dead, peer.dropped);
        // A message that was buried a moment ago may not be done yet.
        view.sent = view.acked.saturating_sub(peer.dead + peer.dropped);
        Ok(view)
    }

    fn relay_view(&self, relay: &Relay, live: Option<LiveLink>, is_hosted: bool) -> Result<LinkView> {
        let catalog = self.namespace.journal().catalog()?;
        let (acked, newest, lag_bytes, gone) = match &relay.from {
            Endpoint::Here(from) => {
                let begin = relay.course.begin.unwrap_or(relay.start).max(1) - 1;
                let acked = if relay.course.fresh { begin } else { relay.noted(&self.namespace)?.max(begin) };
                match catalog.log(from) {
                    Some(log) => {
                        (acked, log.latest(), self.bytes_behind(log, acked)?, log.earliest().saturating_sub(1))
                    }
                    None => (acked, acked, 0, 0),
                }
            }
            Endpoint::There(_) => {
                let number = self.pulled(relay)?;
                (number, live.as_ref().map_or(number, |live| live.newest.max(number)), 0, 0)
            }
        };
        let lag = newest.saturating_sub(acked.max(gone));
        let mut view = view("relay", &relay.name, &relay.course, live, is_hosted, lag);
        (view.from, view.to) = (relay.from.to_string(), relay.to.to_string());
        (view.acked, view.newest, view.lag_bytes, view.lost) = (acked, newest, lag_bytes, relay.lost);
        view.start = relay.start.max(1);
        if relay.leaving {
            view.state = LinkState::Leaving;
        }
        Ok(view)
    }

    /// The last number that a relay has fetched.
    pub(super) fn pulled(&self, relay: &Relay) -> Result<u64> {
        let Some(source) = relay.course.namespace.and_then(millrace_wire::NamespaceId::new) else { return Ok(0) };
        let log = log_name(&format!("_inbox/{source}/pull/{}/{}", relay.id, relay.course.version()));
        self.inbox().number(&log)
    }

    /// How many bytes of a log lie behind record `acked`; beyond some records, judged by the newest ones.
    fn bytes_behind(&self, log: &Log, acked: u64) -> Result<u64> {
        let (latest, mut payload, mut bytes) = (log.latest(), Vec::new(), 0);
        let lag = latest.saturating_sub(acked).min(latest + 1 - log.earliest().min(latest + 1));
        let sample = lag.min(SAMPLE_RECORDS);
        for seqno in latest + 1 - sample..=latest {
            match self.namespace.journal().get(log, seqno, &mut payload) {
                Ok(_) => bytes += payload.len() as u64,
                Err(error) if error.code() == Code::BelowHistory => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if lag == sample { bytes } else { (u128::from(bytes) * u128::from(lag) / u128::from(sample)) as u64 })
    }
}

/// A link whose state cannot be read: it is reported with the reason, and all others normally.
fn unreadable(kind: &'static str, name: &str, course: &Course, ends: (String, String), error: &Error) -> LinkView {
    let course = Course { stopped: Some(Stop::of(error)), ..course.clone() };
    let mut view = view(kind, name, &course, None, true, 0);
    (view.from, view.to) = ends;
    view
}

/// The common part of both kinds of links.
fn view(
    kind: &'static str,
    name: &str,
    course: &Course,
    live: Option<LiveLink>,
    is_hosted: bool,
    lag_records: u64,
) -> LinkView {
    let state = match (&course.stopped, &live) {
        (Some(_), _) => LinkState::Stopped,
        _ if !is_hosted => LinkState::NoHost,
        (None, Some(live)) if live.connected && lag_records == 0 => LinkState::Idle,
        (None, Some(live)) if live.connected && live.error.is_some() => LinkState::Waiting,
        (None, Some(live)) if live.connected => LinkState::Carrying,
        // An outbox that has delivered everything needs no connection.
        (None, _) if kind == "outbox" && lag_records == 0 => LinkState::Idle,
        _ => LinkState::Connecting,
    };
    let (connected, contact_ms, retry_ms) =
        live.as_ref().map_or((false, 0, 0), |live| (live.connected, live.contact_ms, live.retry_ms));
    let said = course.stopped.clone().or_else(|| live.and_then(|live| live.error));
    // Where nothing is to be carried and nothing is to be decided, what was wrong last does not matter.
    let said = said.filter(|_| state != LinkState::Idle);
    LinkView {
        kind,
        name: name.to_owned(),
        from: String::new(),
        to: String::new(),
        state,
        acked: 0,
        start: 0,
        sent: 0,
        dead: 0,
        dropped: 0,
        newest: 0,
        lag_records,
        lag_bytes: 0,
        lost: 0,
        peer: course.namespace.map(super::state::shown),
        connected,
        moving: course.moved,
        last_contact: moment(contact_ms),
        next_try: moment(retry_ms),
        remedy: said.as_ref().map(|said| said.error().code().remedy()),
        code: said.as_ref().map(|said| said.code.clone()),
        error: said.map(|said| said.detail),
    }
}
