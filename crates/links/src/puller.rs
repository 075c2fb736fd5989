//! A relay that fetches records from a log of another namespace; the cursor is stored on this side.

use super::{
    LinkKey, Links,
    inbox::{Accepted, Inbound, Inbox},
    life,
    relay::OLDEST,
    state::{Course, Endpoint, OnGap, Relay, shown},
    upstream,
};
use millrace_wire::{
    Address, Code, Error, Hlc, LogName, NamespaceId, Result,
    protocol::{Deliver, Delivered, Item, Life, Link, Record, Records},
};

/// What is known of the other namespace when a relay begins to fetch from it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'b> {
    /// Its identity.
    pub namespace: u64,
    /// Its epoch.
    pub epoch: u32,
    /// The newest record of the log [`Puller::upstream_log`], if there is one.
    pub upstream: Option<&'b [u8]>,
    /// The newest record of the log that is fetched.
    pub latest: u64,
    /// Which log of its name it is.
    pub incarnation: Option<u32>,
    /// Its life; none if it counts none.
    pub life: Option<Life>,
    /// Whether the life in which records were fetched last is none of its own.
    pub forked: bool,
}

/// The receiver's side of one relay that fetches.
pub struct Puller {
    links: Links,
    inbox: Inbox,
    relay: Relay,
    address: Address,
    from: LogName,
    to: LogName,
    inbound: Option<Inbound>,
    /// The last number that is committed here.
    number: u64,
    /// Records before this one are not fetched.
    floor: u64,
    /// The next record to fetch.
    next: u64,
}

impl Links {
    /// Every relay that fetches and has not stopped.
    pub fn pullers(&self) -> Result<Vec<Puller>> {
        let state = self.state()?;
        let relays = state.relays.iter().filter(|relay| relay.course.stopped.is_none());
        Ok(relays.filter_map(|relay| Puller::of(self, relay)).collect())
    }
}

impl Puller {
    fn of(links: &Links, relay: &Relay) -> Option<Self> {
        let (Endpoint::There(address), Endpoint::Here(to)) = (&relay.from, &relay.to) else { return None };
        Some(Self {
            links: links.clone(),
            inbox: links.inbox(),
            relay: relay.clone(),
            address: address.clone(),
            from: address.log.clone()?,
            to: to.clone(),
            inbound: None,
            number: 0,
            floor: 1,
            next: 1,
        })
    }

    /// The relay's id.
    pub fn key(&self) -> LinkKey {
        LinkKey::Relay(self.relay.id)
    }

    /// The address of the log.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the relay is still there, has not stopped and fetches from this address.
    pub fn is_wanted(&self) -> Result<bool> {
        let relays = self.links.relays()?;
        let is_ours = |relay: &Relay| relay.id == self.relay.id && relay.from == self.relay.from;
        Ok(relays.iter().any(|relay| is_ours(relay) && relay.course.stopped.is_none()))
    }

    /// The log to fetch, at that address.
    pub fn log(&self) -> &LogName {
        &self.from
    }

    /// The log of the other namespace whose newest record [`Puller::begin`] needs, if that log exists.
    pub fn upstream_log() -> &'static str {
        upstream::LOG
    }

    /// The log of the lives of the other namespace, if it exists.
    pub fn lives_log() -> &'static str {
        life::LOG
    }

    /// The life of the other namespace in which the last record was fetched, if that is known.
    pub fn life(&self) -> Result<Option<Life>> {
        let Some(source) = self.relay.course.namespace.and_then(NamespaceId::new) else { return Ok(None) };
        self.inbox.life(&super::log_name(&format!("_inbox/{source}/{}", self.stream())))
    }

    /// The life that a record of the log of lives is about.
    pub fn life_of(number: u64, payload: &[u8]) -> Option<Life> {
        life::decode(payload).map(|id| Life { number, id })
    }

    fn stream(&self) -> String {
        format!("pull/{}/{}", self.relay.id, self.relay.course.version())
    }

    /// The last number that is committed here.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Checks the identity of the other namespace and the newest record of its log; returns the first record to fetch.
    ///
    /// # Errors
    /// If it is another namespace than before, or lacks records that it had: then the relay is stopped.
    pub fn begin(&mut self, source: Source<'_>) -> Result<u64> {
        let begun = self.try_begin(source);
        let is_for_operator =
            |code| super::inbox::is_permanent(code) || matches!(code, Code::LinkPeerChanged | Code::LinkPeerBehind);
        begun.map_err(|error| if is_for_operator(error.code()) { self.stop(error) } else { error })
    }

    /// Handles that the log does not exist there. If it was fetched from before, the relay is stopped.
    pub fn missing(&self, namespace: u64, error: Error) -> Error {
        let is_ours = self.relay.course.namespace == Some(namespace) && self.relay.source.is_some();
        if error.code() != Code::LogNotFound || !is_ours {
            return error; // It may be created later.
        }
        self.stop(Code::LinkSourceGone.error(format!("'{}' was removed", self.address)))
    }

    fn try_begin(&mut self, source: Source<'_>) -> Result<u64> {
        let Source { namespace, epoch, upstream, latest, incarnation, life, forked } = source;
        if let Some(known) = self.relay.course.namespace
            && known != namespace
        {
            return Err(Code::LinkPeerChanged.error(format!(
                "namespace {} answers at the address of namespace {}",
                shown(namespace),
                shown(known)
            )));
        }
        // Also for an empty log: a recreated log is never a continuation of the earlier one.
        if let (Some(_), Some(found)) = (self.relay.source, incarnation) {
            self.check_source(found)?;
        }
        let stream = self.stream();
        let path = upstream::path(namespace, upstream, &self.from)?;
        let link = Link { stream: &stream, namespace, epoch, target: Some(&self.to), path, life, forked };
        let (inbound, linked) = self.inbox.link_own(&link, self.relay.id, self.relay.course.generation)?;
        self.inbound = Some(inbound);
        self.number = linked.value.number;
        if self.number > latest {
            return Err(Code::LinkPeerBehind.error(format!(
                "log '{}' ends with record {latest}, but record {} was already received from it",
                self.from, self.number
            )));
        }
        let id = self.relay.id;
        if self.relay.course.namespace.is_none() || self.relay.course.moved {
            let met = |course: &mut Course| (course.namespace, course.moved) = (Some(namespace), false);
            // No flush is needed: the records that are fetched come after it in the same journal.
            self.links.change(|state, _| {
                met(&mut state.relay_mut(id)?.course);
                Ok(())
            })?;
            met(&mut self.relay.course);
        }
        if latest == 0 && self.relay.start == OLDEST {
            // The log is empty: it begins with what is appended from now on, and nothing of that may be missing.
            self.links.change(|state, _| {
                state.relay_mut(id)?.start = 1;
                Ok(())
            })?;
            self.relay.start = 1;
        }
        // The last record is fetched once more: if it has changed, the two sides have diverged.
        self.floor = self.relay.course.begin.unwrap_or(self.relay.start).max(1);
        self.next = self.number.max(self.floor);
        Ok(self.next)
    }

    /// Commits fetched records. The answer has the last committed number, and the reason if it stopped before the end.
    pub fn take(&mut self, epoch: u32, records: &Records<'_>) -> Result<Accepted<Delivered>> {
        let inbound = self.inbound.clone();
        let inbound =
            inbound.ok_or_else(|| Code::LinkOutOfOrder.error("the host sent records from before the requested one"))?;
        self.check_source(records.incarnation)?;
        let first = records.records.first().map_or(self.next, |record| record.seqno);
        if first > self.next {
            self.lost(self.next, first)?;
            self.floor = first;
        }
        let (void, had) = (self.relay.course.void, self.relay.course.had);
        let is_here = |record: &Record<'_>| {
            let namespace = record.id.namespace().map(NamespaceId::get);
            had.is_some_and(|(earlier, upto)| record.seqno <= upto && namespace == Some(earlier))
        };
        let items = records.records.iter().map(|record| Item {
            log: &self.to,
            data: record.data,
            id: record.id,
            hlc: record.hlc,
            function: None,
            void: void == Some(record.seqno) || is_here(record),
        });
        let deliver = Deliver { link: 0, first, gap: first > self.number + 1, items: items.collect() };
        let accepted = self.inbox.accept(&inbound, epoch, &deliver)?;
        self.number = accepted.value.number;
        self.next = self.floor.max(self.number + 1);
        if let Some(refused) = &accepted.value.refused
            && refused.retry_after_ms.is_none()
        {
            let code = Code::from_id(&refused.code).unwrap_or(Code::LinkStopped);
            let number = self.number + 1;
            return Err(self.stop(code.error(format!("record {number} of '{}': {}", self.address, refused.detail))));
        }
        Ok(accepted)
    }

    /// The source no longer has the next record; its oldest one is `earliest`. The relay's setting decides whether to continue there.
    /// Returns the first record to fetch.
    pub fn passed_by(&mut self, earliest: u64) -> Result<u64> {
        if earliest > self.next {
            // The record that was only needed for comparison is not lost.
            let wanted = self.floor.max(self.number + 1);
            if earliest > wanted {
                self.lost(wanted, earliest)?;
            }
            self.floor = earliest;
            self.next = earliest;
        }
        Ok(self.next)
    }

    fn check_source(&mut self, incarnation: u32) -> Result<()> {
        match self.relay.source {
            Some(known) if known == incarnation => Ok(()),
            Some(_) => {
                let gone = Code::LinkSourceGone.error(format!("'{}' was deleted and recreated", self.address));
                Err(self.stop(gone))
            }
            None => {
                let id = self.relay.id;
                self.links.change(|state, _| {
                    state.relay_mut(id)?.source = Some(incarnation);
                    Ok(())
                })?;
                self.relay.source = Some(incarnation);
                Ok(())
            }
        }
    }

    fn lost(&mut self, wanted: u64, first: u64) -> Result<()> {
        let (id, lost) = (self.relay.id, first - wanted);
        let (passes, _) = self.links.change(|state, _| {
            let relay = state.relay_mut(id)?;
            if relay.start == OLDEST && wanted == 1 {
                // Nothing was fetched yet, and nobody said where to begin.
                relay.start = first;
                return Ok(true);
            }
            if relay.course.had.is_some_and(|(_, upto)| first <= upto + 1) {
                return Ok(true); // They are here since before the source was restored.
            }
            let passes = relay.on_gap == OnGap::Skip || relay.pass_gap;
            if passes {
                (relay.lost, relay.pass_gap) = (relay.lost + lost, false);
            }
            Ok(passes)
        })?;
        if passes {
            return Ok(());
        }
        let (address, last) = (&self.address, first - 1);
        let detail = format!("records {wanted} to {last} left the history of '{address}' before they were fetched");
        Err(self.links.stop_at_gap(id, Code::LinkGap.error(detail), (wanted, last)))
    }

    /// Stops the relay until the operator decides; returns the error.
    pub fn stop(&self, error: Error) -> Error {
        self.links.stop(&self.key(), error)
    }

    /// The newest clock known here, for answers.
    pub fn clock(&self) -> Hlc {
        self.links.namespace.journal().clock()
    }
}
