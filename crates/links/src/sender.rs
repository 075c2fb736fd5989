//! The sending side of one stream: what to send next, and what the answers mean. It knows no network and keeps no time.
//!
//! ```text
//!  hello ──> Link ──> Linked ──> linked ──> next ──> Deliver … ──> Delivered ──> answered ─┐
//!                                             ^────────────────────────────────────────────┘
//! ```
//!
//! Deliveries may follow one another without waiting for answers. Once one is refused, nothing more is sent until those in flight are
//! answered; then the sender continues after the last number that is safe at the other side.

use super::{
    LinkKey, Links, inbox,
    inbox::{Accepted, Inbound},
    log_name, message, note,
    outbox::Missing,
    state::{self, Aside, Course, Endpoint, OnGap, Peer, Relay, Stop},
};
use millrace_journal::{Journal, Log, Position};
use millrace_namespace::{
    Namespace,
    gate::{Shows, Site},
    outbox::log_of,
};
use millrace_wire::{
    Address, Code, Error, EventId, Hlc, LogName, Result,
    protocol::{Deliver, Delivered, Item, Life, Link, Linked, PathStep, Refused},
};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

/// Most records in one delivery.
const BATCH_RECORDS_MAX: usize = 4096;
/// How often what was acknowledged of a relay is noted: it only serves to see that the other side went back.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const PROGRESS_HISTORY: u64 = 2;

/// One stream as its sender sees it.
pub struct Sender {
    links: Links,
    key: LinkKey,
    /// Where it goes; `None` if to this very namespace.
    address: Option<Address>,
    target: Option<LogName>,
    stream: String,
    log: Log,
    /// The relay's own bounds.
    on_gap: OnGap,
    /// It was removed: only the other side has to be notified.
    leaving: bool,
    /// Which of the streams that were begun one after the other.
    generation: u32,
    /// It is to be opened at another address than before.
    moved: bool,
    /// The note of all links that says nothing against it.
    version: u64,
    void: Option<u64>,
    /// Logs that the other side lacks.
    aside: Vec<Aside>,
    /// Messages to such logs that are on their way: their numbers and logs.
    probes: Vec<(u64, String)>,
    /// The last number that was put into a delivery.
    sent: u64,
    /// The last number that is safe at the other side.
    acked: u64,
    /// The last number that the other side has once what is in flight has come.
    theirs: u64,
    /// Deliveries that are not answered.
    in_flight: usize,
    /// The first refusal since all deliveries were answered.
    refused: Option<Refused>,
    /// The state from which the path was computed.
    path_version: u64,
    /// When what was acknowledged was last noted.
    noted_at: Option<Instant>,
}

/// The initial state of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The stream's name.
    pub stream: String,
    /// This namespace.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The log at the other side that all records go to, if there is one.
    pub target: Option<LogName>,
    /// By which logs its records have come.
    pub path: Vec<PathStep>,
    /// The life of this namespace.
    pub life: Option<Life>,
}

impl Hello {
    /// As a message.
    pub fn link(&self) -> Link<'_> {
        let (stream, target) = (&*self.stream, self.target.as_deref());
        let (life, path) = (self.life, self.path.clone());
        Link { stream, namespace: self.namespace, epoch: self.epoch, target, path, life, forked: false }
    }

    /// The message that tells the other side that what it has was sent by another copy of this namespace. It is refused.
    pub fn link_forked(&self) -> Link<'_> {
        Link { forked: true, ..self.link() }
    }
}

/// Records to be delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    first: u64,
    gap: bool,
    bytes: Vec<u8>,
    items: Vec<BatchItem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BatchItem {
    id: EventId,
    hlc: Hlc,
    log: Range<usize>,
    function: Option<Range<usize>>,
    data: Range<usize>,
    void: bool,
}

impl Batch {
    /// As a message of the stream that was opened by the request `link`.
    pub fn deliver(&self, link: u64) -> Deliver<'_> {
        let text = |range: &Range<usize>| std::str::from_utf8(&self.bytes[range.clone()]).expect("decoded as text");
        let item = |item: &BatchItem| Item {
            log: self.items_log(item),
            data: &self.bytes[item.data.clone()],
            id: item.id,
            hlc: item.hlc,
            function: item.function.as_ref().map(text),
            void: item.void,
        };
        Deliver { link, first: self.first, gap: self.gap, items: self.items.iter().map(item).collect() }
    }

    fn items_log(&self, item: &BatchItem) -> &str {
        std::str::from_utf8(&self.bytes[item.log.clone()]).expect("decoded as text")
    }

    /// How many records.
    pub fn records(&self) -> usize {
        self.items.len()
    }

    /// How many bytes of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The next step of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send on.
    Go,
    /// Wait for answers to what is in flight.
    Drain,
    /// The other side is not ready: try again after this time.
    Retry(Duration, Error),
}

impl Sender {
    /// The sender of a peer's outbox; none if nothing was ever sent to it.
    pub(super) fn of_outbox(links: &Links, peer: &Peer) -> Result<Option<Self>> {
        let catalog = links.namespace.journal().catalog()?;
        let Some(log) = catalog.log(&log_of(&peer.name)).cloned() else { return Ok(None) };
        let stream = format!("outbox/{}/{}", peer.name, peer.course.version());
        let acked = log.earliest().saturating_sub(1);
        let mut sender = Self::new(links, LinkKey::Outbox(peer.name.clone()), stream, log, &peer.course, acked);
        sender.address = Some(peer.address.clone());
        Ok(Some(sender))
    }

    /// The sender of a relay from a log of this namespace.
    pub(super) fn of_relay(links: &Links, relay: &Relay) -> Result<Self> {
        let Endpoint::Here(from) = &relay.from else {
            return Err(Code::RelayInvalid.error(format!("relay '{}' fetches", relay.name)));
        };
        let gone = |what: &str| {
            links.stop(&LinkKey::Relay(relay.id), Code::LinkSourceGone.error(format!("log '{from}' {what}")))
        };
        let catalog = links.namespace.journal().catalog()?;
        // A removal reads nothing: the log need not exist any more.
        let read = if relay.leaving { &log_name(state::LOG) } else { from };
        let log = catalog.log(read).cloned().ok_or_else(|| gone("was removed"))?;
        if relay.source.is_some_and(|id| id != log.id()) && !relay.leaving {
            return Err(gone("was deleted and recreated"));
        }
        let stream = format!("relay/{}/{}", relay.id, relay.course.version());
        let begin = relay.course.begin.unwrap_or(relay.start).max(1) - 1;
        let is_new = relay.course.fresh || relay.leaving;
        let acked = if is_new { begin } else { relay.noted(&links.namespace)?.max(begin) };
        let mut sender = Self::new(links, LinkKey::Relay(relay.id), stream, log, &relay.course, acked);
        (sender.on_gap, sender.leaving) = (relay.on_gap, relay.leaving);
        match &relay.to {
            Endpoint::Here(to) => sender.target = Some(to.clone()),
            Endpoint::There(address) => {
                sender.target = address.log.clone();
                sender.address = Some(address.clone());
            }
        }
        Ok(sender)
    }

    fn new(links: &Links, key: LinkKey, stream: String, log: Log, course: &Course, acked: u64) -> Self {
        Self {
            links: links.clone(),
            key,
            address: None,
            target: None,
            stream,
            log,
            on_gap: OnGap::Stop,
            leaving: false,
            generation: course.generation,
            moved: course.moved,
            version: 0,
            void: course.void,
            aside: course.aside.clone(),
            probes: Vec::new(),
            sent: acked,
            acked,
            theirs: acked,
            in_flight: 0,
            refused: None,
            path_version: 0,
            noted_at: None,
        }
    }

    /// Which stream it is.
    pub fn key(&self) -> &LinkKey {
        &self.key
    }

    /// Where it goes; `None` if to this very namespace.
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// The last number that is safe at the other side.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// The newest number that there is to send.
    pub fn newest(&self) -> u64 {
        self.log.latest()
    }

    /// Whether it is to be opened even if there is nothing to send: nobody has answered at its new address yet.
    pub fn is_moved(&self) -> bool {
        self.moved
    }

    /// Deliveries that are not answered.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The message that opens the stream. Deliveries in flight are forgotten.
    pub fn hello(&mut self) -> Result<Hello> {
        (self.in_flight, self.refused) = (0, None);
        self.probes.clear();
        self.path_version = self.links.path_version()?;
        let journal = self.links.namespace.journal();
        let tells = self.target.is_some() && !self.leaving;
        let path = if tells { self.links.path_of(self.log.name())? } else { Vec::new() };
        let life = self.links.life()?;
        if tells {
            // It will know of the stream from now on, also if its answer never comes.
            self.change(|course| course.opened = true)?;
        }
        if tells || !self.links.life_is_durable()? {
            self.links.namespace.settle(Site::Path, Shows::Report(journal.tail()), None)?;
        }
        let (stream, target) = (self.stream.clone(), self.target.clone());
        Ok(Hello { stream, namespace: journal.namespace().get(), epoch: journal.epoch(), target, path, life })
    }

    /// Opens the stream of a relay within this namespace, unless it was removed or restarted since.
    pub fn open_here(&self, hello: &Hello) -> Result<(Inbound, Accepted<Linked>)> {
        let LinkKey::Relay(id) = self.key else {
            return Err(Code::RelayInvalid.error(format!("stream '{}' belongs to an outbox", self.stream)));
        };
        self.links.inbox().link_own(&hello.link(), id, self.generation)
    }

    /// Whether the path that was sent to the other side is outdated; then the stream has to be opened again.
    pub fn is_path_stale(&self) -> bool {
        self.target.is_some() && self.links.path_version().is_ok_and(|version| version != self.path_version)
    }

    /// Whether it was removed, restarted, moved or stopped meanwhile. Cheap enough for a check before each delivery.
    pub fn is_overtaken(&mut self) -> Result<bool> {
        let version = self.links.version()?;
        if version == self.version {
            return Ok(false);
        }
        let state = self.links.state()?;
        let is_ours = |course: &Course, address: Option<&Address>| {
            let is_there = address == self.address.as_ref();
            is_there && course.generation == self.generation && course.stopped.is_none()
        };
        let stands = match &self.key {
            LinkKey::Outbox(name) => {
                let mut peers = state.peers.iter();
                peers.any(|peer| peer.name == *name && is_ours(&peer.course, Some(&peer.address)))
            }
            LinkKey::Relay(id) => {
                let is_ours = |relay: &Relay| relay.leaving == self.leaving && is_ours(&relay.course, relay.address());
                state.relays.iter().any(|relay| relay.id == *id && is_ours(relay))
            }
        };
        if stands {
            self.version = version;
        }
        Ok(!stands)
    }

    /// Handles that the other side did not open the stream. If another namespace answers at a new address, its lack of the log is no reason
    /// to wait.
    pub fn unopened(&self, other: u64, error: Error) -> Error {
        let course = self.course().unwrap_or_default();
        let known = course.namespace.filter(|known| course.moved && !self.leaving && *known != other);
        match known.filter(|_| error.code() == Code::LogNotFound) {
            Some(known) => self.stop(changed(other, known)),
            None => error,
        }
    }

    /// Resumes at the other side's position.
    ///
    /// # Errors
    ///
    /// If the other side has another identity or an impossible position: then the stream has stopped.
    pub fn linked(&mut self, linked: &Linked) -> Result<()> {
        if self.leaving {
            return Ok(()); // It has forgotten the stream, as it should.
        }
        let course = self.course()?;
        let checked = self.check(&course, linked);
        if let Err(error) = checked {
            return Err(self.stop(error));
        }
        if course.namespace != Some(linked.namespace) || course.moved {
            let (_, end) = self.change(|course| (course.namespace, course.moved) = (Some(linked.namespace), false))?;
            self.links.namespace.settle(Site::Meet, Shows::Report(end), None)?;
        }
        self.theirs = linked.number;
        // The last record that came is shown once more, and counts as acknowledged only then: should it be another one
        // here, both sides have gone apart.
        let shows = linked.number > 0 && linked.number >= self.acked && linked.number >= self.log.earliest();
        if shows {
            self.sent = linked.number - 1;
            return Ok(());
        }
        if linked.number > self.acked {
            self.acked = linked.number;
            self.note_acked()?;
        }
        self.sent = self.acked;
        Ok(())
    }

    fn check(&self, course: &Course, linked: &Linked) -> Result<()> {
        let other = state::shown(linked.namespace);
        // At a new address, a restored namespace may have the numbers of the stream: then the last record is compared.
        let has_stream = course.moved && linked.number > 0 && linked.number >= self.acked;
        if let Some(known) = course.namespace
            && known != linked.namespace
            && !has_stream
        {
            return Err(changed(linked.namespace, known));
        }
        if let Some(life) = linked.life
            && !self.links.has_lived(life)?
        {
            return Err(Code::LinkForked.error(format!(
                "namespace {other} has records up to number {} that another copy of this namespace has sent; \
                 of those here, it had acknowledged {}",
                linked.number, self.acked
            )));
        }
        if linked.number > self.log.latest() {
            return Err(Code::LinkPeerAhead.error(format!(
                "namespace {other} has number {}, but the newest here is {}",
                linked.number,
                self.log.latest()
            )));
        }
        if linked.number < self.acked && !course.fresh {
            return Err(Code::LinkPeerBehind.error(format!(
                "namespace {other} has only numbers up to {}, but had acknowledged {}",
                linked.number, self.acked
            )));
        }
        Ok(())
    }

    /// The next delivery, of about `bytes_max` bytes at most; `None` if there is nothing, or if answers have to arrive first.
    ///
    /// Everything in it has the durability that the namespace requires.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Batch>> {
        if self.refused.is_some() || self.leaving {
            return Ok(None);
        }
        if self.log.check_exists().is_err() {
            let gone = Code::LinkSourceGone.error(format!("log '{}' was removed", self.log.name()));
            return Err(self.stop(gone));
        }
        let latest = self.log.latest();
        if self.sent >= latest {
            return Ok(None);
        }
        let first = self.log.earliest().max(self.sent + 1);
        let gap = first > self.theirs + 1;
        if gap && self.in_flight > 0 {
            return Ok(None); // A gap in numbers may only follow what is known to have come.
        }
        if first > self.sent + 1 {
            self.pass_gap(first, first <= latest)?;
        }
        if first > latest {
            return Ok(None); // All of it was dropped.
        }
        let mut batch = Batch { first, gap, ..Batch::default() };
        let moved_on = self.fill(&mut batch, latest, bytes_max)?;
        if moved_on {
            return Ok(None); // The next call sees where to.
        }
        self.sent = first + batch.items.len() as u64 - 1;
        self.theirs = self.sent;
        self.in_flight += 1;
        Ok(Some(batch))
    }

    /// Reads records into a batch. Whether the history has passed them meanwhile.
    fn fill(&mut self, batch: &mut Batch, latest: u64, bytes_max: usize) -> Result<bool> {
        let namespace = &self.links.namespace;
        let journal = namespace.journal();
        let (mut payload, mut sent) = (Vec::new(), Vec::new());
        for number in batch.first..=latest {
            let (id, hlc, safe, taken) = match journal.get(&self.log, number, &mut payload) {
                // An entry of a repair is sent under the id of the record that it replaces, so the stream continues at its position.
                Ok(meta) => (meta.replaced.map_or(meta.id, |replaced| replaced.origin), meta.hlc, meta.safe, false),
                Err(error) if error.code() == Code::BelowHistory => {
                    batch.items.clear();
                    return Ok(true);
                }
                // A repair took the record away; the peer counts its number all the same.
                Err(error) if error.code() == Code::RecordVoid => match journal.replaced(&self.log, number)? {
                    Some(replaced) => (replaced.origin, replaced.clock, journal.tail(), true),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            };
            let full = batch.bytes.len() + payload.len() > bytes_max || batch.items.len() == BATCH_RECORDS_MAX;
            // A record that waits for a database keeps back only itself and the later ones.
            let waits = !batch.items.is_empty() && !namespace.gate().needs(Site::Send, &Shows::Record(safe)).is_empty();
            if (full || waits) && !batch.items.is_empty() {
                break;
            }
            sent.push(safe);
            let message = if self.target.is_none() { Some(message::decode(&payload)?) } else { None };
            let aside = message.and_then(|message| self.aside.iter().find(|aside| aside.log == message.log));
            let void = taken || self.void == Some(number) || aside.is_some_and(|aside| number < aside.from);
            if let Some(aside) = aside.filter(|_| !void) {
                self.probes.push((number, aside.log.clone()));
            }
            let at = batch.bytes.len();
            let (log, function, data) = if void {
                (at..at, None, at..at)
            } else {
                let Some(message) = message else {
                    batch.bytes.extend_from_slice(&payload);
                    let data = at..at + payload.len();
                    batch.items.push(BatchItem { id, hlc, log: at..at, function: None, data, void });
                    continue;
                };
                batch.bytes.extend_from_slice(message.log.as_bytes());
                let log = at..batch.bytes.len();
                let function = message.function.map(|name| {
                    let from = batch.bytes.len();
                    batch.bytes.extend_from_slice(name.as_bytes());
                    from..batch.bytes.len()
                });
                let from = batch.bytes.len();
                batch.bytes.extend_from_slice(message.data);
                (log, function, from..batch.bytes.len())
            };
            batch.items.push(BatchItem { id, hlc, log, function, data, void });
        }
        // The gate: what is not safe here must not be seen there.
        self.links.namespace.settle(Site::Send, Shows::Records(&sent), None)?;
        if batch.gap {
            // A gap says of records that they are lost, which is as true as what took their place.
            self.links.namespace.settle(Site::Send, Shows::Report(journal.tail()), None)?;
        }
        Ok(false)
    }

    /// Records left the log before they were sent. The relay's setting decides whether to continue. They count as lost once there is a
    /// record to continue with.
    fn pass_gap(&mut self, first: u64, goes_on: bool) -> Result<()> {
        let LinkKey::Relay(id) = self.key else { return Ok(()) };
        let lost = first - 1 - self.sent;
        let (next, log) = (self.sent + 1, self.log.name());
        let detail =
            format!("records {next} to {} left the history of log '{log}' before they were forwarded", first - 1);
        let (passes, _) = self.links.change(|state, _| {
            let relay = state.relay_mut(id)?;
            let passes = relay.on_gap == OnGap::Skip || relay.pass_gap;
            if passes && goes_on {
                (relay.lost, relay.pass_gap) = (relay.lost + lost, false);
            }
            Ok(passes)
        })?;
        if passes {
            return Ok(());
        }
        Err(self.links.stop_at_gap(id, Code::LinkGap.error(detail), (next, first - 1)))
    }

    /// Processes an answer to the oldest delivery in flight.
    ///
    /// # Errors
    ///
    /// If it is a refusal that only a person can do something about: then the stream has stopped.
    pub fn answered(&mut self, delivered: &Delivered) -> Result<Verdict> {
        self.in_flight = self.in_flight.saturating_sub(1);
        if delivered.number > self.log.latest() {
            let (number, latest) = (delivered.number, self.log.latest());
            let ahead =
                Code::LinkPeerAhead.error(format!("number {number} was acknowledged, but the newest is {latest}"));
            return Err(self.stop(ahead));
        }
        if self.refused.is_none() {
            self.refused = delivered.refused.clone();
        }
        // If the two sides have diverged, the other side has a different item under this number.
        let diverged = self.refused.as_ref().is_some_and(|refused| is_diverged(&refused.code));
        if delivered.number > self.acked && !diverged {
            self.acked = delivered.number;
            self.note_acked()?;
            self.note_found()?;
        }
        if self.refused.is_some() && self.in_flight > 0 {
            return Ok(Verdict::Drain);
        }
        let Some(refused) = self.refused.take() else { return Ok(Verdict::Go) };
        (self.sent, self.theirs) = (self.acked, delivered.number);
        self.probes.clear();
        let stop = Stop { code: refused.code, detail: refused.detail, gap: None };
        let error = stop.error();
        match refused.retry_after_ms {
            Some(0) => Ok(Verdict::Go),
            None if inbox::is_permanent(error.code()) => self.refused_for_good(&stop, error),
            Some(_) if self.goes_past(&stop, &error)? => Ok(Verdict::Go),
            after_ms => {
                let after_ms = after_ms.unwrap_or(inbox::RETRY_LATER_MS);
                Ok(Verdict::Retry(Duration::from_millis(after_ms.into()), error))
            }
        }
    }

    /// The missing target may be created; returns whether to continue meanwhile with items for other targets.
    fn goes_past(&mut self, stop: &Stop, error: &Error) -> Result<bool> {
        let LinkKey::Outbox(peer) = &self.key else { return Ok(false) };
        if !matches!(error.code(), Code::LogNotFound | Code::FunctionNotFound) {
            return Ok(false);
        }
        let number = self.acked + 1;
        let (missing, aside) = self.links.put_aside(peer, &self.log, number)?;
        if missing == Missing::TooLong {
            self.bury(&peer.clone(), number, stop)?;
        }
        self.aside = aside;
        Ok(missing != Missing::Waits)
    }

    /// Gives up a message that is refused for good. If it cannot be kept, the stream stops.
    fn bury(&mut self, peer: &str, number: u64, stop: &Stop) -> Result<()> {
        match self.links.bury(peer, &self.log, number, stop) {
            Ok(()) => self.void = Some(number),
            Err(error) if error.code() == Code::RefusedMessagesFull => return Err(self.stop(error)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Forgets that the other side lacked logs to which it has taken messages.
    fn note_found(&mut self) -> Result<()> {
        let LinkKey::Outbox(peer) = &self.key else { return Ok(()) };
        let (taken, left) = std::mem::take(&mut self.probes).into_iter().partition(|(number, _)| *number <= self.acked);
        self.probes = left;
        for (_, log) in taken {
            if self.aside.iter().any(|aside| aside.log == log) {
                self.aside = self.links.found_again(peer, &log)?;
            }
        }
        Ok(())
    }

    fn refused_for_good(&mut self, stop: &Stop, error: Error) -> Result<Verdict> {
        let number = self.acked + 1;
        match &self.key {
            LinkKey::Outbox(peer) if !is_diverged(error.code().id()) => {
                if self.void == Some(number) {
                    return Err(self.stop(error)); // Not even its number is taken.
                }
                self.bury(&peer.clone(), number, stop)?;
                Ok(Verdict::Go)
            }
            _ => {
                if self.noted_at.is_some() {
                    self.note_progress()?; // Whoever decides what becomes of the refused record has to see which one it is.
                }
                Err(self.stop(error.within(format!("record {number} of log '{}'", self.log.name()))))
            }
        }
    }

    /// Makes what was acknowledged known here: of messages at once, of a relay from time to time.
    fn note_acked(&mut self) -> Result<()> {
        let is_due = matches!(self.key, LinkKey::Outbox(_))
            || self.noted_at.is_none_or(|at| at.elapsed() >= PROGRESS_EVERY)
            || self.acked == self.log.latest();
        if is_due { self.note_progress() } else { Ok(()) }
    }

    /// Notes what was acknowledged; acknowledged messages are dropped.
    fn note_progress(&mut self) -> Result<()> {
        let acked = self.acked;
        if self.noted_at.is_none() && self.course()?.fresh {
            self.change(|course| (course.fresh, course.begin) = (false, None))?;
        }
        let journal = self.links.namespace.journal();
        match &self.key {
            LinkKey::Outbox(_) => drop(journal.commit(|tx| tx.trim(&self.log, acked + 1))?),
            LinkKey::Relay(id) => {
                let (log, number) = (log_name(&format!("_relay/{id}")), acked.to_string());
                journal.commit(|tx| {
                    if self.course().is_err() {
                        return Ok(()); // It was removed while this was in flight, and its log with it.
                    }
                    note(tx, &log, PROGRESS_HISTORY, number.as_bytes())
                })?;
            }
        }
        self.noted_at = Some(Instant::now());
        Ok(())
    }

    /// Waits until there is something to send, or for this long.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        let seen = self.sent.max(self.log.earliest().saturating_sub(1)); // What was dropped will not be sent.
        let newest = self.links.namespace.journal().wait_log(&self.log, seen, timeout)?;
        Ok(newest > seen)
    }

    fn course(&self) -> Result<Course> {
        let mut state = self.links.state()?;
        Ok(match &self.key {
            LinkKey::Outbox(name) => state.peer_mut(name)?.course.clone(),
            LinkKey::Relay(id) => state.relay_mut(*id)?.course.clone(),
        })
    }

    /// Changes what is noted of this stream; nothing of one that was restarted since.
    fn change(&self, change: impl FnOnce(&mut Course)) -> Result<((), Position)> {
        self.links.change_course(&self.key, |course| {
            if course.generation == self.generation {
                change(course);
            }
        })
    }

    /// Stops the stream until the operator decides; returns the error.
    pub fn stop(&self, error: Error) -> Error {
        // Its error does not concern a stream that was restarted since.
        if self.course().is_ok_and(|course| course.generation != self.generation) {
            return error;
        }
        self.links.stop(&self.key, error)
    }
}

/// Another namespace answers than before.
pub(super) fn changed(other: u64, known: u64) -> Error {
    let (other, known) = (state::shown(other), state::shown(known));
    Code::LinkPeerChanged.error(format!("namespace {other} answers at the address of namespace {known}"))
}

/// Whether the other side has other records than these.
fn is_diverged(code: &str) -> bool {
    code == Code::LinkDiverged.id() || code == Code::LinkForked.id()
}

impl Links {
    fn change_course(&self, key: &LinkKey, change: impl FnOnce(&mut Course)) -> Result<((), Position)> {
        self.change(|state, _| {
            change(match key {
                LinkKey::Outbox(name) => &mut state.peer_mut(name)?.course,
                LinkKey::Relay(id) => &mut state.relay_mut(*id)?.course,
            });
            Ok(())
        })
    }

    /// Stops a stream until the operator decides. Returns the reason, or the error if even that failed.
    pub fn stop(&self, key: &LinkKey, error: Error) -> Error {
        let stop = Stop::of(&error);
        self.stop_with(key, error, stop)
    }

    /// Stops a relay that lost these records.
    pub(super) fn stop_at_gap(&self, relay: u64, error: Error, gap: (u64, u64)) -> Error {
        let stop = Stop { gap: Some(gap), ..Stop::of(&error) };
        self.stop_with(&LinkKey::Relay(relay), error, stop)
    }

    fn stop_with(&self, key: &LinkKey, error: Error, stop: Stop) -> Error {
        let stopped = self.change(|state, _| {
            match key {
                LinkKey::Outbox(name) => state.peer_mut(name)?.course.stopped = Some(stop),
                LinkKey::Relay(id) => {
                    let relay = state.relay_mut(*id)?;
                    // For a removed relay there is nothing to decide: the other side is still informed.
                    if !relay.leaving {
                        relay.course.stopped = Some(stop);
                    }
                }
            }
            Ok(())
        });
        stopped.map_or_else(|failure| failure, |_| error)
    }

    /// Stops every stream of a restored namespace, because it is unknown what the original has sent since.
    pub fn stop_restored(journal: &Journal) -> Result<()> {
        let links = Self::of(&Namespace::over(journal.clone()));
        let stop = Stop::of(&Code::LinkRestored.error("the namespace was restored from a copy"));
        let (_, end) = links.change(|state, _| {
            let peers = state.peers.iter_mut().map(|peer| &mut peer.course);
            let relays =
                state.relays.iter_mut().filter(|relay| relay.pushes() && !relay.leaving).map(|relay| &mut relay.course);
            peers.chain(relays).for_each(|course| course.stopped = Some(stop.clone()));
            Ok(())
        })?;
        journal.sync(end)
    }

    /// Whether an error that ends an attempt means that further attempts cannot help.
    pub fn is_permanent(error: &Error) -> bool {
        inbox::is_permanent(error.code())
    }
}
