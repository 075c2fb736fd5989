//! The side of a namespace that takes part in a repair of another one: what it is asked, and what it tells of records that it sent on.

use super::seeds::{self, Seed};
use crate::{
    book::{self, Note, PartOf, Phase, Repair, note, repair, repairs},
    open::{WINDOW, WINDOW_BYTES, abandon_part, check_none_open, expect, step, undo_part},
    overlay::is_after,
    past::{At, Past},
};
use millrace_journal::Journal;
use millrace_namespace::{
    Namespace,
    outbox::{
        log_of, message,
        state::{Course, Endpoint, State, shown},
    },
};
use millrace_wire::{Code, EventId, JsonBytes, JsonBytesRead, Name, Result};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    str::FromStr,
};

/// Bytes of the values in one answer or request, about.
pub(super) const PAGE_BYTES: usize = 512 << 10;
/// Most records in one answer or request.
pub(super) const PAGE_RECORDS: usize = 1000;

/// A request of the initiator of a repair to a participant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartAsk {
    /// The initiator's repair.
    pub part_of: PartOf,
    /// The request.
    pub ask: Step,
}

/// See [`PartAsk`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Step {
    /// To take part: a part of the repair is opened, unless there is one.
    Join {
        /// The reason that was given for the repair.
        reason: String,
        /// Whether additional records of replayed runs are appended.
        append_new: bool,
        /// The repair of the initiator that is taken back.
        undo: Option<u64>,
        /// When that repair was opened, in microseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undone: Option<u64>,
        /// The ids of all namespaces that take part.
        with: Vec<String>,
        /// Functions that are replayed although they may have effects outside.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        run_external: Vec<Name>,
    },
    /// To receive changes of records elsewhere.
    Seeds {
        /// The records.
        seeds: Vec<SeedDoc>,
    },
    /// To replay what depends on the seeds.
    Replay,
    /// To replay what came since, and to promise to switch.
    Prepare,
    /// To switch: the initiator has.
    Commit,
    /// To give the part up: the initiator has given up the repair.
    Abort,
}

/// A record that changes, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeedDoc {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl SeedDoc {
    pub(super) fn of(seed: &Seed) -> Self {
        let value = seed.value.as_ref().and_then(|value| serde_json::to_value(JsonBytes(value)).ok());
        let text = |key: &str| value.as_ref()?.get(key)?.as_str().map(str::to_owned);
        Self { id: seed.id.to_string(), data: text("data"), base64: text("base64") }
    }

    pub(super) fn seed(self) -> Result<Seed> {
        let invalid = |what: &dyn std::fmt::Display| Code::CorrectionInvalid.error(format!("a seed: {what}"));
        let id = EventId::from_str(&self.id)?;
        let read = serde_json::json!({ "data": self.data, "base64": self.base64 });
        let read: JsonBytesRead = serde_json::from_value(read).map_err(|error| invalid(&error))?;
        Ok(Seed { id, value: read.bytes().map_err(|error| invalid(&error))? })
    }
}

/// Does what the initiator of a repair asks. The part as it is then; what the host does about it comes later.
pub fn part(namespace: &Namespace, asked: PartAsk) -> Result<Repair> {
    let PartAsk { part_of, ask } = asked;
    if let Step::Join { reason, append_new, undo, undone, with, run_external } = ask {
        return join(
            namespace,
            part_of,
            undo.map(|undo| (undo, undone)),
            &with,
            Joining { reason, append_new, run_external },
        );
    }
    let found = part_named(namespace, &part_of)?.ok_or_else(|| {
        let PartOf { namespace, repair, .. } = &part_of;
        Code::RepairNotFound.error(format!("no part of repair {repair} of namespace {namespace}"))
    })?;
    let number = found.repair;
    use Phase::{Applied, Closed, Committing, Open, Prepared, Preparing, Ready, RolledBack, Running, Stopped};
    match ask {
        Step::Join { .. } => {}
        Step::Seeds { seeds } => {
            let seeds = seeds.into_iter().map(SeedDoc::seed).collect::<Result<Vec<_>>>()?;
            let mut now = repair(namespace, number)?;
            now.seeds.taken = seeds::give(namespace, number, None, &seeds)?;
            return Ok(now);
        }
        Step::Replay if found.phase != Running => {
            step(namespace, number, &[Open, Stopped, Ready, Prepared], "run", &Note::Run { repair: number })?;
        }
        Step::Prepare if found.phase != Preparing => {
            step(namespace, number, &[Ready, Prepared], "prepared", &Note::Prepare { repair: number })?;
        }
        Step::Commit if !matches!(found.phase, Committing | Applied | RolledBack | Closed) => {
            step(namespace, number, &[Prepared], "committed", &Note::Commit { repair: number })?;
        }
        Step::Abort if found.phase.is_open() => {
            expect(&found, &[Open, Running, Ready, Stopped, Preparing, Prepared], "abandoned")?;
            abandon_part(namespace, number)?;
        }
        _ => {}
    }
    repair(namespace, number)
}

/// The newest part of this repair.
fn part_named(namespace: &Namespace, part_of: &PartOf) -> Result<Option<Repair>> {
    Ok(repairs(namespace)?.into_iter().rfind(|repair| repair.part_of.as_ref().is_some_and(|of| of.is(part_of))))
}

/// How a part is opened.
struct Joining {
    reason: String,
    append_new: bool,
    run_external: Vec<Name>,
}

fn join(
    namespace: &Namespace,
    part_of: PartOf,
    undo: Option<(u64, Option<u64>)>,
    with: &[String],
    joining: Joining,
) -> Result<Repair> {
    if let Some(known) = part_named(namespace, &part_of)? {
        return Ok(known);
    }
    let own = namespace.journal().namespace().to_string();
    if part_of.namespace == own || with.iter().filter(|id| **id == own).count() > 1 {
        let error = "the namespace takes part anyway; --with must name other namespaces, each once";
        return Err(Code::CorrectionInvalid.error(error));
    }
    // If a relay fetches records from there, no sender reports their changes.
    let among: HashSet<&str> = with.iter().map(|id| &**id).chain([&*part_of.namespace]).collect();
    for relay in State::load(namespace)?.relays.iter().filter(|relay| !relay.pushes() && !relay.leaving) {
        if relay.course.namespace.is_some_and(|from| among.contains(&*shown(from))) {
            let (name, from) = (&relay.name, &relay.from);
            let error = format!("relay '{name}' fetches '{from}'; a repair follows only relays that send");
            return Err(Code::RepairUnsupported.error(error));
        }
    }
    let number = match undo {
        Some((undone, at_us)) => {
            let of = PartOf { repair: undone, at_us, ..part_of.clone() };
            let error = || Code::RepairNotFound.error(format!("no part of repair {undone} of {}", of.namespace));
            let known = part_named(namespace, &of)?.ok_or_else(error)?;
            undo_part(namespace, known.repair, joining.reason, part_of)?
        }
        None => open(namespace, part_of, joining)?,
    };
    repair(namespace, number)
}

/// Opens a part without corrections: they come as seeds.
fn open(namespace: &Namespace, part_of: PartOf, joining: Joining) -> Result<u64> {
    let Joining { reason, append_new, run_external } = joining;
    check_none_open(namespace)?;
    let journal = namespace.journal();
    let owner = format!("part of repair {} of {}", part_of.repair, part_of.namespace);
    let pin = journal.pin(&owner, WINDOW_BYTES, WINDOW)?.id;
    let opened = journal.commit(|tx| {
        check_none_open(namespace)?;
        let (log, across, part_of) = (None, Vec::new(), Some(part_of));
        let (undo, code, auto, late_of, accept_unknown) = (None, None, false, None, false);
        #[rustfmt::skip]
        let open = Note::Open {
            reason, log, records: 0, undo, code, append_new, auto, across, part_of, late_of, accept_unknown, run_external, pin,
        };
        note(tx, &open)
    });
    opened.inspect_err(|_| drop(journal.unpin(pin))).map(|opened| opened.value)
}

/// A record that went to another namespace and changes.
pub(super) struct Sent {
    /// The other namespace's id, once it was met.
    pub to: Option<String>,
    /// Its location.
    pub address: String,
    /// The record's id.
    pub id: EventId,
    /// Whether it is a message, and not a record of a relayed log.
    pub is_message: bool,
    /// Whether the other side has acknowledged it.
    pub has_arrived: bool,
    pub at: At,
}

impl Sent {
    /// The new value of the record.
    pub fn seed(&self, journal: &Journal) -> Result<Seed> {
        let value = match self.at.void {
            true => None,
            false => {
                let payload = journal.entry_at(self.at.position)?.payload;
                Some(if self.is_message { message::decode(&payload)?.data.to_vec() } else { payload })
            }
        };
        Ok(Seed { id: self.id, value })
    }
}

/// A stream to another namespace.
struct Route {
    log: millrace_wire::LogName,
    is_message: bool,
    address: String,
    course: Course,
    /// The numbers that it sends begin with this one, and so many are acknowledged.
    start: u64,
    acked: u64,
}

fn routes(namespace: &Namespace) -> Result<Vec<Route>> {
    let (state, catalog) = (State::load(namespace)?, namespace.journal().catalog()?);
    let mut routes = Vec::new();
    for peer in state.peers {
        let log = log_of(&peer.name);
        let acked = catalog.log(&log).map_or(0, |log| log.earliest().saturating_sub(1));
        let (address, course) = (peer.address.to_string(), peer.course);
        routes.push(Route { log, is_message: true, address, course, start: 0, acked });
    }
    for relay in state.relays.into_iter().filter(|relay| !relay.leaving) {
        if let (Endpoint::Here(log), Endpoint::There(address)) = (&relay.from, &relay.to) {
            let (start, acked) = relay.progress(namespace)?;
            let (log, address) = (log.clone(), address.peer.to_string());
            routes.push(Route { log, is_message: false, address, course: relay.course, start, acked });
        }
    }
    Ok(routes)
}

/// The changes of a repair to records that were sent to other namespaces, by log and seqno.
pub(super) fn sent(namespace: &Namespace, past: &Past, repair: u64) -> Result<Vec<Sent>> {
    // A record that is restored may have been sent since it was replaced.
    let mut slots: BTreeMap<_, _> = past.put_back(repair, namespace.journal().first()).collect();
    slots.extend(past.written.get(&repair).into_iter().flat_map(|written| &written.slots));
    let (routes, mut sent) = (routes(namespace)?, Vec::new());
    for ((log, seqno), at) in slots {
        let Some(of_log) = past.logs.get(&log) else { continue };
        let Some(slot) = of_log.slots.get(&seqno) else { continue };
        for route in routes.iter().filter(|route| route.log == of_log.name && seqno >= route.start) {
            let (to, has_arrived) = (route.course.namespace.map(shown), seqno <= route.acked);
            let (address, is_message) = (route.address.clone(), route.is_message);
            sent.push(Sent { to, address, id: slot.origin, is_message, has_arrived, at });
        }
    }
    Ok(sent)
}

/// One record of a [`SentPage`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentDoc {
    /// The id of the namespace that it went to, once that was met.
    pub to: Option<String>,
    /// Its location.
    pub address: String,
    /// Whether it is a message, and not a record of a relayed log.
    pub message: bool,
    /// Whether the other side has acknowledged it.
    pub arrived: bool,
    /// Whether the part found out that it changes after its promise to switch.
    #[serde(default)]
    pub late: bool,
    /// The record, and what it is to be.
    #[serde(flatten)]
    pub seed: SeedDoc,
}

/// A page of what a repair changes of records that went to other namespaces.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentPage {
    /// The records.
    pub sent: Vec<SentDoc>,
    /// How many records to skip to continue; `None` if these are all.
    pub next: Option<u64>,
}

/// The changes of a repair to records that were sent to other namespaces, after the first `after` ones.
pub fn sent_page(namespace: &Namespace, number: u64, after: u64) -> Result<SentPage> {
    let journal = namespace.journal();
    let prepared = book::prepared(namespace, &book::repair(namespace, number)?)?;
    let mut past = Past::new(journal)?;
    past.follow(journal, journal.tail())?;
    let (mut page, mut bytes) = (SentPage { sent: Vec::new(), next: None }, 0);
    for (at, sent) in (0..).zip(sent(namespace, &past, number)?).skip(usize::try_from(after).unwrap_or(usize::MAX)) {
        if page.sent.len() == PAGE_RECORDS || bytes > PAGE_BYTES {
            page.next = Some(at);
            break;
        }
        let seed = sent.seed(journal)?;
        bytes += seed.value.as_ref().map_or(0, Vec::len);
        let late = prepared.is_some() && is_after(&sent.at, prepared);
        let (to, address, message, arrived) = (sent.to, sent.address, sent.is_message, sent.has_arrived);
        page.sent.push(SentDoc { to, address, message, arrived, late, seed: SeedDoc::of(&seed) });
    }
    Ok(page)
}
