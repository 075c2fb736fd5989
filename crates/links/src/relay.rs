//! Relays: adds, removes, moves and resumes them.

use super::{
    LinkKey, Links,
    sender::Sender,
    state::{Course, Endpoint, OnGap, RELAYS_MAX, Relay},
    upstream,
};
use millrace_namespace::{
    gate::{Shows, Site},
    outbox::log_of,
};
use millrace_wire::{Address, Code, Error, Name, Result, SEGMENT_MAX_BYTES};
use serde::Serialize;

/// How a relay is added.
#[derive(Clone, Debug, Default)]
pub struct RelayOptions {
    /// Its name; by default one is made from the source's.
    pub name: Option<Name>,
    /// The first record to forward; by default the oldest that is left, in another namespace when the relay first reaches it.
    pub start: Option<u64>,
    /// The behaviour when records are lost before they are forwarded.
    pub on_gap: OnGap,
}

/// How a stopped relay continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resumed {
    /// The first and the last record that it skips, in addition to records that leave the history until it continues.
    pub passed_over: Option<(u64, u64)>,
    /// Whether they are lost: no longer in the history, rather than left out.
    pub lost: bool,
}

impl Resumed {
    /// How many it passes over.
    pub fn records(&self) -> u64 {
        self.passed_over.map_or(0, |(first, last)| last + 1 - first)
    }
}

/// The first record that a relay from a peer forwards, until that is known: the oldest one.
pub(super) const OLDEST: u64 = 0;

fn invalid(detail: impl Into<String>) -> Error {
    Code::RelayInvalid.error(detail)
}

impl Links {
    /// Begins to forward one log to another.
    pub fn add_relay(&self, from: &str, to: &str, options: &RelayOptions) -> Result<Relay> {
        let (from, to) = (Endpoint::parse(from)?, Endpoint::parse(to)?);
        if matches!((&from, &to), (Endpoint::There(_), Endpoint::There(_))) {
            return Err(invalid("both ends are in other namespaces; add the relay in one of the two"));
        }
        if from == to {
            return Err(invalid(format!("FROM and TO are both '{from}'")));
        }
        let (relay, end) = self.change(|state, tx| {
            if state.relays.len() >= RELAYS_MAX {
                return Err(Code::LinksFull.error(format!("there are already {RELAYS_MAX} relays")));
            }
            if let Some(known) = state.relays.iter().find(|relay| relay.from == from && relay.to == to) {
                return Err(
                    Code::RelayExists.error(format!("relay '{}' already forwards '{from}' to '{to}'", known.name))
                );
            }
            let mut source = None;
            // What a peer keeps is known once it is reached.
            let mut start = options.start.map_or(OLDEST, |start| start.max(1));
            for end in [&from, &to] {
                let Endpoint::Here(log) = end else { continue };
                let log = millrace_namespace::found(tx.catalog().log(log), log)?;
                if end == &from {
                    source = Some(log.id());
                    start = options.start.unwrap_or(log.earliest()).max(1);
                }
            }
            let id = state.next_relay_id();
            let name = self.relay_name(state, options.name.clone(), &from)?;
            if let (Endpoint::Here(from), Endpoint::Here(to)) = (&from, &to) {
                // The list that this relay would send itself, so that a cycle is refused before records circulate.
                let own = self.namespace.journal().namespace().get();
                let path = self.path_of(from)?;
                upstream::enter(&self.namespace, tx, (own, &format!("relay/{id}/0")), to, &path)?;
            }
            let (on_gap, course) = (options.on_gap, Course::new());
            let relay =
                Relay { id, name, from, to, on_gap, start, source, lost: 0, pass_gap: false, leaving: false, course };
            state.relays.push(relay.clone());
            Ok(relay)
        })?;
        self.namespace.settle(Site::AddRelay, Shows::Report(end), None)?;
        Ok(relay)
    }

    fn relay_name(&self, state: &mut super::state::State, name: Option<Name>, from: &Endpoint) -> Result<Name> {
        if let Some(name) = name {
            return match state.relay_named(&name) {
                Ok(_) => Err(Code::RelayExists.error(format!("a relay with the name '{name}' already exists"))),
                Err(_) => Ok(name),
            };
        }
        let log = from.log().map_or("relay", |log| log);
        let stem: String = log.replace('/', ".").chars().take(SEGMENT_MAX_BYTES - 4).collect();
        let mut names = std::iter::once(stem.clone()).chain((2..=RELAYS_MAX + 1).map(|n| format!("{stem}-{n}")));
        let free = names.find(|name| state.relay_named(name).is_err()).expect("more names than relays");
        free.parse()
    }

    /// The relay of this name.
    pub fn relay(&self, name: &str) -> Result<Relay> {
        Ok(self.state()?.relay_named(name)?.clone())
    }

    /// Stops forwarding permanently. The other side is informed once it can be reached; `force` does not wait for that.
    ///
    /// Returns whether the relay is removed; otherwise it is leaving.
    pub fn remove_relay(&self, name: &str, force: bool) -> Result<bool> {
        let (gone, end) = self.change(|state, tx| {
            let relay = state.relay_named(name)?;
            let id = relay.id;
            let is_known = relay.course.opened || relay.course.namespace.is_some();
            let tells = relay.pushes() && relay.address().is_some() && is_known;
            if tells && !force {
                (relay.leaving, relay.course.stopped) = (true, None);
                return Ok(false);
            }
            if let Endpoint::Here(to) = &relay.to {
                let kind = if relay.pushes() { "relay" } else { "pull" };
                let own = self.namespace.journal().namespace().get();
                let source = if relay.pushes() { own } else { relay.course.namespace.unwrap_or(own) };
                let stream = format!("{kind}/{id}/{}", relay.course.version());
                upstream::enter(&self.namespace, tx, (source, &stream), to, &[])?;
                let numbers = format!("_inbox/{}/{stream}", super::state::shown(source));
                if tx.catalog().log(&numbers).is_some() {
                    tx.remove_log(&super::log_name(&numbers))?;
                }
            }
            self.drop_relay(state, tx, id)?;
            Ok(true)
        })?;
        self.namespace.settle(Site::RemoveRelay, Shows::Report(end), None)?;
        Ok(gone)
    }

    fn drop_relay(
        &self,
        state: &mut super::state::State,
        tx: &mut millrace_journal::Transaction<'_>,
        id: u64,
    ) -> Result<()> {
        let progress = state.relay_mut(id)?.progress_log();
        state.relays.retain(|relay| relay.id != id);
        if tx.catalog().log(&progress).is_some() {
            tx.remove_log(&progress)?;
        }
        Ok(())
    }

    /// The other side of a leaving relay was informed.
    pub fn forget_relay(&self, id: u64) -> Result<()> {
        self.change(|state, tx| self.drop_relay(state, tx, id)).map(drop)
    }

    /// Resumes a stopped relay. `skip` skips the refused record; `from` names the record to continue with if the two sides no longer agree.
    /// Returns the skipped records.
    pub fn resume_relay(&self, name: &str, skip: bool, from: Option<u64>) -> Result<Resumed> {
        let relay = self.relay(name)?;
        let progress = relay.noted(&self.namespace)?;
        let done = if relay.pushes() { progress } else { self.pulled(&relay)? };
        let copy = Self::copy_number()?;
        let (resumed, end) = self.change(|state, tx| {
            let relay = state.relay_named(name)?;
            let stop = relay.course.stopped.take();
            let gap = stop.as_ref().and_then(|stop| stop.gap);
            let reason = stop.map(|stop| stop.error().code());
            if reason.is_none() && (skip || from.is_some()) {
                return Err(Code::ValueInvalid.error(format!(
                    "relay '{name}' has not stopped, so it cannot skip a record or start at another one; \
                     to send records again, remove it and add it with --start"
                )));
            }
            let source = match &relay.from {
                Endpoint::Here(log) => tx.catalog().log(log).cloned(),
                Endpoint::There(_) => None,
            };
            let mut resumed = Resumed::default();
            match reason {
                Some(Code::LinkGap) => {
                    relay.pass_gap = true;
                    // The history has gone on since it stopped.
                    let oldest = source.as_ref().map_or(0, millrace_journal::Log::earliest);
                    resumed.passed_over = gap.map(|(first, last)| (first, last.max(oldest.saturating_sub(1))));
                    resumed.lost = resumed.passed_over.is_some();
                }
                Some(Code::LinkPeerBehind) if relay.pushes() => relay.course.go_on(from.or(Some(relay.start))),
                // A copy of the namespace has the number up to which it has the records; one that is new begins with the first.
                Some(Code::LinkPeerChanged) if relay.pushes() && from.is_none() => {
                    relay.course.go_on(Some(relay.start));
                }
                // The other copy may go on as well: this one must not take its place.
                Some(code)
                    if code == Code::LinkForked
                        || (relay.pushes() && matches!(code, Code::LinkPeerAhead | Code::LinkDiverged)) =>
                {
                    relay.course.copy = Some(copy);
                    relay.course.restart(from.or(Some(progress + 1)));
                }
                // A restored source has the earlier records under their ids: those are not taken again.
                Some(Code::LinkPeerChanged) if from.is_none() => {
                    let had = relay.course.namespace.map(|namespace| (namespace, done));
                    relay.course.restart(Some(relay.start));
                    relay.course.had = had;
                }
                Some(Code::LinkPeerChanged | Code::LinkRestored) => relay.course.restart(from.or(Some(progress + 1))),
                Some(Code::LinkPeerAhead | Code::LinkPeerBehind | Code::LinkDiverged) => {
                    let next = source.as_ref().map_or(progress, |log| log.latest().max(progress));
                    relay.course.restart(from.or(Some(next + 1)));
                }
                Some(Code::LinkSourceGone) => {
                    relay.source = source.as_ref().map(millrace_journal::Log::id);
                    relay.start = from.unwrap_or(1);
                    relay.course.restart(Some(relay.start));
                }
                _ if skip => {
                    relay.course.void = Some(done + 1);
                    resumed.passed_over = Some((done + 1, done + 1));
                }
                _ => {}
            }
            let begun_anew = matches!(
                reason,
                Some(Code::LinkPeerChanged | Code::LinkRestored | Code::LinkPeerAhead | Code::LinkPeerBehind)
                    | Some(Code::LinkDiverged | Code::LinkForked)
            );
            let goes_on = relay.course.begin.filter(|next| relay.pushes() && begun_anew && *next > progress + 1);
            if let Some(next) = goes_on {
                resumed.passed_over = Some((progress + 1, next - 1));
            }
            Ok(resumed)
        })?;
        self.namespace.settle(Site::ResumeRelay, Shows::Report(end), None)?;
        Ok(resumed)
    }

    /// A relay as it would be if its other side had another address: `from` if it fetches, `to` if it sends.
    pub fn relay_at(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<Relay> {
        let mut relay = self.relay(name)?;
        let (pushes, known) = (relay.pushes(), relay.address().cloned());
        let known = known.ok_or_else(|| {
            invalid(format!("relay '{name}' copies within this namespace, so neither side has an address"))
        })?;
        let address = match (from, to) {
            (None, Some(to)) if pushes => to,
            (Some(from), None) if !pushes => from,
            _ => {
                let (does, option) = if pushes { ("sends", "--to") } else { ("fetches", "--from") };
                return Err(invalid(format!("relay '{name}' {does}, so its new address is given with {option}")));
            }
        };
        let mut address: Address = address.parse()?;
        if let Some(log) = address.log.as_ref().filter(|log| known.log.as_ref() != Some(*log)) {
            let of = known.log.as_deref().unwrap_or_default();
            return Err(invalid(format!("relay '{name}' is for log '{of}' there; to use '{log}', add another relay")));
        }
        address.log = known.log;
        *(if pushes { &mut relay.to } else { &mut relay.from }) = Endpoint::There(address);
        Ok(relay)
    }

    /// Gives the other side of a relay the address in `moved`, see [`Links::relay_at`]. The stream goes on there if the same namespace
    /// answers, or a restored copy that has its last record.
    pub fn set_relay(&self, moved: &Relay) -> Result<()> {
        let ((), end) = self.change(|state, _| {
            let mut others = state.relays.iter().filter(|relay| relay.id != moved.id);
            if let Some(known) = others.find(|relay| relay.from == moved.from && relay.to == moved.to) {
                let (name, from, to) = (&known.name, &moved.from, &moved.to);
                return Err(Code::RelayExists.error(format!("relay '{name}' already forwards '{from}' to '{to}'")));
            }
            let relay = state.relay_mut(moved.id)?;
            (relay.from, relay.to) = (moved.from.clone(), moved.to.clone());
            relay.course.move_to();
            Ok(())
        })?;
        self.namespace.settle(Site::ResumeRelay, Shows::Report(end), None)
    }

    /// Every link that a host is to drive: those that have not stopped. Nothing of a single one is read here, so that one of
    /// which something cannot be read keeps no other from starting.
    pub fn wanted(&self) -> Result<Vec<LinkKey>> {
        let state = self.state()?;
        let catalog = self.namespace.journal().catalog()?;
        let peers = state.peers.iter().filter(|peer| peer.course.stopped.is_none());
        // One that nothing was ever sent to has no outbox.
        let peers = peers.filter(|peer| catalog.log(&log_of(&peer.name)).is_some());
        let relays = state.relays.iter().filter(|relay| relay.course.stopped.is_none());
        let peers = peers.map(|peer| LinkKey::Outbox(peer.name.clone()));
        Ok(peers.chain(relays.map(|relay| LinkKey::Relay(relay.id))).collect())
    }

    /// The stream of this key, if it exists and has not stopped.
    pub fn sender(&self, key: &LinkKey) -> Result<Option<Sender>> {
        let state = self.state()?;
        match key {
            LinkKey::Outbox(name) => {
                let peer = state.peers.iter().find(|peer| peer.name == *name && peer.course.stopped.is_none());
                peer.map_or(Ok(None), |peer| Sender::of_outbox(self, peer))
            }
            LinkKey::Relay(id) => {
                let relay = state.relays.iter().find(|relay| relay.id == *id && relay.course.stopped.is_none());
                relay.filter(|relay| relay.pushes()).map(|relay| Sender::of_relay(self, relay)).transpose()
            }
        }
    }
}
