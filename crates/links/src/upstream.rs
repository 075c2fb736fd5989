//! The logs that incoming streams have passed through, so that no relay forwards records back to their source.
//!
//! Every relay sends its target the list of logs that its records may have passed, its own source included. The target refuses a list that
//! contains itself, stores the list, and its own relays pass it on. So a cycle of any length is detected when its last relay is created,
//! or, if two are created at once, as soon as the lists have passed through all of them.

use super::{Links, log_name, newest_note, note};
use millrace_journal::Transaction;
use millrace_namespace::Namespace;
use millrace_wire::{Code, Result, protocol::PathStep};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

pub(super) const LOG: &str = "_upstream";
const HISTORY: u64 = 8;
/// Most logs that records may have passed before they come to one.
const STEPS_MAX: usize = 4096;

/// The stored information about one incoming stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stream {
    namespace: u64,
    stream: String,
    to: String,
    /// Namespace and log.
    path: Vec<(u64, String)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Upstream {
    streams: Vec<Stream>,
}

impl Upstream {
    fn load(namespace: &Namespace) -> Result<Self> {
        newest_note(namespace, LOG)?.map_or_else(|| Ok(Self::default()), |payload| Self::decode(&payload))
    }

    fn decode(payload: &[u8]) -> Result<Self> {
        serde_json::from_slice(payload).map_err(|error| Code::LinkStateDamaged.error(format!("log '{LOG}': {error}")))
    }

    /// The logs whose records may come to `log`, without itself.
    fn of(&self, log: &str) -> BTreeSet<(u64, String)> {
        self.streams.iter().filter(|stream| stream.to == log).flat_map(|stream| stream.path.iter().cloned()).collect()
    }
}

/// Records the logs that a stream into `to` has passed; an empty path means that the stream has ended.
pub(super) fn enter(
    namespace: &Namespace,
    tx: &mut Transaction<'_>,
    (source, stream): (u64, &str),
    to: &str,
    path: &[PathStep],
) -> Result<()> {
    enter_for(namespace, tx, (source, stream, None), to, path)
}

/// The same for a stream that had another name before.
pub(super) fn enter_for(
    namespace: &Namespace,
    tx: &mut Transaction<'_>,
    (source, stream, former): (u64, &str, Option<&str>),
    to: &str,
    path: &[PathStep],
) -> Result<()> {
    let own = namespace.journal().namespace().get();
    if path.iter().any(|step| step.namespace == own && step.log == to) {
        let through: Vec<String> = path
            .iter()
            .map(|step| format!("{} of {}", step.log.escape_debug(), super::state::shown(step.namespace)))
            .collect();
        let through: String = through.join(", ").chars().take(400).collect();
        return Err(Code::RelayCircle.error(format!("the relay's records come from log '{to}': {through}")));
    }
    let mut upstream = Upstream::load(namespace)?;
    let before = upstream.clone();
    let is_it = |known: &str| replaces(stream, known) || former.is_some_and(|former| former == known);
    upstream.streams.retain(|known| known.namespace != source || !is_it(&known.stream));
    if !path.is_empty() {
        let path: BTreeSet<(u64, String)> = path.iter().map(|step| (step.namespace, step.log.clone())).collect();
        let path = path.into_iter().collect();
        upstream.streams.push(Stream { namespace: source, stream: stream.into(), to: to.into(), path });
        upstream.streams.sort_by(|a, b| (a.namespace, &a.stream).cmp(&(b.namespace, &b.stream)));
    }
    if upstream.streams.iter().map(|stream| stream.path.len()).sum::<usize>() > STEPS_MAX {
        return Err(Code::LinksFull.error(format!("streams come in through more than {STEPS_MAX} logs")));
    }
    if upstream != before {
        let payload = serde_json::to_vec(&upstream).expect("names and numbers always make JSON");
        note(tx, &log_name(LOG), HISTORY, &payload)?;
    }
    Ok(())
}

/// Whether a stream, or its log of numbers, takes the place of another: its own, or one that the same relay of the same copy of the
/// namespace began before.
pub(super) fn replaces(stream: &str, known: &str) -> bool {
    fn split(name: &str) -> Option<((&str, &str), u32)> {
        let (relay, generation) = name.rsplit_once('/')?;
        let (generation, copy) = generation.split_once('-').unwrap_or((generation, ""));
        Some(((relay, copy), generation.parse().ok()?))
    }
    match (split(stream), split(known)) {
        (Some((relay, newer)), Some((other, older))) => relay == other && newer >= older,
        _ => stream == known,
    }
}

/// The list that a relay sends to its target: every log whose records may come through `from`, and `from` itself, in the namespace `own`,
/// whose newest record this is (nothing if there is none).
pub(super) fn path(own: u64, note: Option<&[u8]>, from: &str) -> Result<Vec<PathStep>> {
    let upstream = note.map_or_else(|| Ok(Upstream::default()), Upstream::decode)?;
    let mut steps = upstream.of(from);
    steps.remove(&(own, from.to_owned()));
    let mut path: Vec<PathStep> = steps.into_iter().map(|(namespace, log)| PathStep { namespace, log }).collect();
    path.push(PathStep { namespace: own, log: from.to_owned() });
    Ok(path)
}

impl Links {
    /// The list that a relay of `from` sends to its target.
    pub(super) fn path_of(&self, from: &str) -> Result<Vec<PathStep>> {
        let own = self.namespace.journal().namespace().get();
        let upstream =
            serde_json::to_vec(&Upstream::load(&self.namespace)?).expect("names and numbers always make JSON");
        path(own, Some(&upstream), from)
    }

    /// Changes when what [`Links::path_of`] says may have changed.
    pub(super) fn path_version(&self) -> Result<u64> {
        Ok(self.namespace.journal().catalog()?.log(LOG).map_or(0, millrace_journal::Log::latest))
    }
}
