//! Incoming deliveries: each is committed together with its last number, so no item is accepted twice.

use super::{Links, note, state::Relay, upstream};
use millrace_journal::{Log, Position, Transaction};
use millrace_namespace::admission::{Publish, Room, Stage};
use millrace_namespace::{found, named};
use millrace_wire::{
    Code, Error, EventId, LogName, NamespaceId, Result, SEGMENT_MAX_BYTES,
    protocol::{Deliver, Delivered, Item, Life, Link, Linked, Refused},
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// When a sender is to try again after a temporary refusal that names no time of its own.
pub(super) const RETRY_LATER_MS: u32 = 1000;

/// The maximum number of incoming streams that a namespace ever has.
pub const INBOUND_MAX: usize = 4096;
/// How many delivery numbers the log of a stream keeps. Only the newest is used; the others are for people who look.
const HISTORY: u64 = 4;

/// The receiving side of all streams into a namespace.
#[derive(Clone)]
pub struct Inbox {
    links: Links,
    /// The prefix of the names of streams, so that no caller reaches the streams of another scope.
    scope: Option<Box<str>>,
    /// The prefix that streams of this caller may have had before: one that is opened again is taken over.
    former: Option<Box<str>>,
}

/// A stream that was opened.
#[derive(Clone, Debug)]
pub struct Inbound {
    log: LogName,
    target: Option<LogName>,
    source: NamespaceId,
    /// The stream's name within its scope.
    stream: Box<str>,
    /// The sender's life, and the life in which the last number had been sent when the stream was opened.
    life: Option<Life>,
    seen: Option<Life>,
}

impl Inbound {
    /// The log that all of its records go to, if they go to one.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// The namespace that it comes from, as the sender says.
    pub fn source(&self) -> NamespaceId {
        self.source
    }
}

/// The result, and the position that has to be safe before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted<T> {
    /// The value.
    pub value: T,
    /// The answer is sent once everything before this position is safe.
    pub end: Position,
}

/// The newest record of an inbox.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Mark {
    /// The last number that was committed.
    number: u64,
    /// The id that its record has at the source, as two halves; none if it was a void.
    id: Option<(u64, u64)>,
    /// The epoch of the source when it was sent.
    epoch: u32,
    /// The clock of its record at the source: a copy of the source gives the same id to another record, but at another time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hlc: Option<u64>,
    /// The life of the source in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    life: Option<Life>,
}

impl Mark {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and ids always make JSON")
    }
}

impl Links {
    /// Incoming streams.
    pub fn inbox(&self) -> Inbox {
        self.inbox_of(None)
    }

    /// Incoming streams of a caller, separate from those of all others.
    pub fn inbox_of(&self, scope: Option<&str>) -> Inbox {
        Inbox { links: self.clone(), scope: scope.map(Into::into), former: None }
    }
}

/// The log with the numbers of a stream; an error if no sender would name a stream like this.
pub fn log_of(link: &Link<'_>, scope: Option<&str>) -> Result<LogName> {
    let bad = || Code::NameInvalid.error(format!("'{}' is not the name of a stream", link.stream.escape_debug()));
    let source = NamespaceId::new(link.namespace).ok_or_else(bad)?;
    let parts = link.stream.split('/').count();
    if !(1..=3).contains(&parts) || link.stream.len() > 2 * SEGMENT_MAX_BYTES {
        return Err(bad());
    }
    format!("_inbox/{source}/{}", scoped(link.stream, scope)).parse().map_err(|_| bad())
}

/// A stream's name within its scope.
fn scoped<'n>(stream: &'n str, scope: Option<&str>) -> Cow<'n, str> {
    scope.map_or(Cow::Borrowed(stream), |scope| Cow::Owned(format!("{scope}/{stream}")))
}

impl Inbox {
    /// The same, for a caller whose streams may have had another scope before.
    #[must_use]
    pub fn formerly(self, scope: Option<&str>) -> Self {
        Self { former: scope.filter(|former| self.scope.as_deref() != Some(former)).map(Into::into), ..self }
    }

    /// Opens a stream, or opens it again; returns its last committed number.
    ///
    /// A stream with a target that announces no path has ended permanently; nothing will follow.
    ///
    /// # Errors
    ///
    /// `LinkForked` if what has come was sent by another copy of the namespace. This namespace then reports the refusal, too.
    pub fn link(&self, link: &Link<'_>) -> Result<(Inbound, Accepted<Linked>)> {
        let opened = self.link_if(link, || Ok(()));
        opened.inspect_err(|error| self.note_fork(link.namespace, &scoped(link.stream, self.scope.as_deref()), error))
    }

    /// Opens the stream of a relay within this namespace, unless the relay was removed or restarted since, because the stream would then
    /// never be ended.
    pub(super) fn link_own(&self, link: &Link<'_>, relay: u64, generation: u32) -> Result<(Inbound, Accepted<Linked>)> {
        self.link_if(link, || {
            let state = self.links.state()?;
            let stands = |known: &Relay| known.id == relay && known.course.generation == generation;
            if state.relays.iter().any(stands) {
                return Ok(());
            }
            Err(Code::RelayNotFound.error(format!("the relay of stream '{}' was removed or restarted", link.stream)))
        })
    }

    fn link_if(&self, link: &Link<'_>, check: impl Fn() -> Result<()>) -> Result<(Inbound, Accepted<Linked>)> {
        let namespace = &self.links.namespace;
        let (log, scope) = (log_of(link, self.scope.as_deref())?, self.scope.as_deref());
        let source = NamespaceId::new(link.namespace).expect("it is part of the log's name");
        let stream = scoped(link.stream, scope);
        let target = link.target.map(str::parse::<LogName>).transpose()?;
        let committed = namespace.journal().commit(|tx| {
            check()?;
            let former = self.former_log(tx, link, &log)?;
            if let Some(target) = &target {
                if !link.path.is_empty() {
                    writable(target)?;
                    found(tx.catalog().log(target), target)?;
                }
                let old = former.as_ref().and(self.former.as_deref()).map(|former| scoped(link.stream, Some(former)));
                let names = (link.namespace, &*stream, old.as_deref());
                upstream::enter_for(namespace, tx, names, target, &link.path)?;
            }
            for older in older_logs(tx, &log) {
                tx.remove_log(&older)?;
            }
            let known = former.clone().or_else(|| tx.catalog().log(&log).cloned());
            if target.is_some() && link.path.is_empty() {
                // Its name is never used again, so its number need not be kept.
                if let Some(known) = known {
                    tx.remove_log(known.name())?;
                }
                return Ok(Mark::default());
            }
            if known.is_none() {
                let streams = tx.catalog().logs().filter(|log| log.name().starts_with("_inbox/")).count();
                if streams >= INBOUND_MAX {
                    return Err(Code::LinksFull.error(format!("there are already {INBOUND_MAX} incoming streams")));
                }
                tx.create_log(&log, HISTORY)?;
            }
            let mark = known.map_or(Ok(Mark::default()), |log| self.mark(&log))?;
            check_life(&mark, link)?;
            if let Some(former) = former {
                tx.remove_log(former.name())?;
                note(tx, &log, HISTORY, &mark.encode())?;
            }
            Ok(mark)
        })?;
        let (Mark { number, life, .. }, journal) = (committed.value, namespace.journal());
        let value = Linked { number, namespace: journal.namespace().get(), epoch: journal.epoch(), life };
        let inbound = Inbound { log, target, source, stream: stream.into(), life: link.life, seen: life };
        Ok((inbound, Accepted { value, end: committed.end }))
    }

    /// The log of numbers of a stream that the caller opened under another scope before, if there is none under its scope.
    fn former_log(&self, tx: &mut Transaction<'_>, link: &Link<'_>, log: &LogName) -> Result<Option<Log>> {
        let Some(former) = self.former.as_deref().filter(|_| tx.catalog().log(log).is_none()) else { return Ok(None) };
        Ok(tx.catalog().log(&log_of(link, Some(former))?).cloned())
    }

    /// Notes that a stream of another copy of its namespace was refused, for the operator of this one.
    fn note_fork(&self, source: u64, stream: &str, error: &Error) {
        if error.code() == Code::LinkForked {
            self.links.note_refused(source, stream, error);
        }
    }

    /// The life in which the last number in a log of numbers was sent, if that is known.
    pub(super) fn life(&self, log: &LogName) -> Result<Option<Life>> {
        let catalog = self.links.namespace.journal().catalog()?;
        catalog.log(log).map_or(Ok(None), |log| Ok(self.mark(log)?.life))
    }

    /// The last number of a stream. Called under the lock, or while no other thread writes it.
    fn mark(&self, log: &Log) -> Result<Mark> {
        let latest = log.latest();
        if latest == 0 {
            return Ok(Mark::default());
        }
        let mut payload = Vec::new();
        self.links.namespace.journal().get(log, latest, &mut payload)?;
        serde_json::from_slice(&payload)
            .map_err(|error| Code::LinkStateDamaged.error(format!("log '{}': {error}", log.name())))
    }

    /// The last number in a log of numbers, 0 if there is no such log.
    pub(super) fn number(&self, log: &LogName) -> Result<u64> {
        let catalog = self.links.namespace.journal().catalog()?;
        catalog.log(log).map_or(Ok(0), |log| Ok(self.mark(log)?.number))
    }

    /// Commits a delivery, or the part of it before a refused item, whose reason is in the answer.
    ///
    /// An item is committed with all runs that it triggers, or not at all. If an item is refused, everything staged is dropped, because it
    /// may be staged in part, and the items before it are committed separately.
    ///
    /// # Errors
    ///
    /// Only errors of the namespace as a whole, and `JournalBlocked` if the caller waits no longer for the journal's lock: another thread
    /// may wait for it, so this is no answer for the sender. The answer has the errors that the sender can act on.
    pub fn accept(&self, inbound: &Inbound, epoch: u32, deliver: &Deliver<'_>) -> Result<Accepted<Delivered>> {
        let (mut most, mut refused) = (deliver.items.len(), None);
        loop {
            let deliver = Deliver { items: deliver.items[..most].to_vec(), ..*deliver };
            let mut taken = 0;
            let error = match self.accept_at_once(inbound, epoch, &deliver, &mut taken) {
                Ok(mut accepted) => {
                    accepted.value.refused = refused;
                    return Ok(accepted);
                }
                Err(error) => error,
            };
            self.note_fork(inbound.source.get(), &inbound.stream, &error);
            let too_large = error.code() == Code::BatchTooLarge;
            if taken > 0 && taken < most && is_for_sender(error.code()) {
                // An item that does not fit after others gets a batch of its own, and is refused if it does not fit there.
                let error = if too_large { Code::LinkOutOfOrder.error(error.detail()) } else { error };
                (most, refused) = (taken, Some(refusal(&error)));
            } else if too_large && most > 1 {
                // Larger than a batch of this namespace can be: the sender continues after the accepted items.
                most /= 2;
            } else if is_for_sender(error.code()) {
                let log = self.links.namespace.log(&inbound.log)?;
                let (number, end) = (self.mark(&log)?.number, self.links.namespace.journal().tail());
                return Ok(Accepted { value: Delivered { number, refused: Some(refusal(&error)) }, end });
            } else {
                return Err(error);
            }
        }
    }

    /// Commits the whole delivery. `taken` is how many items were staged when one is refused.
    fn accept_at_once(
        &self,
        inbound: &Inbound,
        epoch: u32,
        deliver: &Deliver<'_>,
        taken: &mut usize,
    ) -> Result<Accepted<Delivered>> {
        let namespace = &self.links.namespace;
        let committed = namespace.journal().commit(|tx| {
            if deliver.first == 0 || deliver.first > EventId::SEQUENCE_MAX {
                return Err(Code::SeqnoInvalid
                    .error(format!("the first number of a delivery is {}; numbers start at 1", deliver.first)));
            }
            let log = found(tx.catalog().log(&inbound.log), &inbound.log)?.clone();
            let before = self.mark(&log)?;
            let mut mark = before;
            if deliver.first > mark.number + 1 && !deliver.gap {
                return Err(Code::LinkOutOfOrder.error(format!(
                    "a delivery begins with number {}; the next number is {}",
                    deliver.first,
                    mark.number + 1
                )));
            }
            if let (Some(own), Some(last)) = (inbound.life, before.life)
                && last != own
                && Some(last) != inbound.seen
            {
                return Err(Code::LinkForked.error(format!(
                    "another copy of namespace {} has delivered up to number {} since this stream was opened",
                    inbound.source, before.number
                )));
            }
            deliver.items.iter().for_each(|item| tx.observe(item.hlc));
            for (number, item) in (deliver.first..).zip(&deliver.items) {
                self.take(tx, inbound, &mut mark, number, item)?;
                *taken += 1;
            }
            if mark.number != before.number {
                (mark.epoch, mark.life) = (epoch, inbound.life);
                note(tx, &inbound.log, HISTORY, &mark.encode())?;
            }
            Ok(Delivered { number: mark.number, refused: None })
        })?;
        Ok(Accepted { value: committed.value, end: committed.end })
    }

    /// Stages one item, unless it came before.
    fn take(
        &self,
        tx: &mut Transaction<'_>,
        inbound: &Inbound,
        mark: &mut Mark,
        number: u64,
        item: &Item<'_>,
    ) -> Result<()> {
        if number < mark.number {
            return Ok(());
        }
        if number == mark.number {
            return match mark.id {
                Some(id)
                    if !item.void && (id != halves(item.id) || mark.hlc.is_some_and(|hlc| hlc != item.hlc.get())) =>
                {
                    Err(Code::LinkDiverged.error(format!(
                        "number {number} of the stream is now record {}, but was another record before",
                        item.id
                    )))
                }
                _ => Ok(()),
            };
        }
        if !item.void {
            self.append(tx, inbound, item)?;
        }
        (mark.number, mark.id) = (number, (!item.void).then_some(halves(item.id)));
        mark.hlc = (!item.void).then_some(item.hlc.get());
        Ok(())
    }

    fn append(&self, tx: &mut Transaction<'_>, inbound: &Inbound, item: &Item<'_>) -> Result<()> {
        let name = inbound.target.as_deref().unwrap_or(item.log);
        writable(name)?;
        let catalog = tx.catalog().clone();
        let publish = Publish::new(&self.links.namespace, tx);
        let log = found(catalog.log(name), name)?;
        let named = item.function.map(|name| named(&catalog, publish.bindings(), name)).transpose()?;
        let stage = Stage { cause: item.id, ordinal: 0, room: Room::Outside, named, ending: None };
        publish.append(tx, log, item.data, stage).map(drop)
    }
}

/// The logs of numbers of the streams that this one takes the place of: those of the same outbox or relay, begun before. No
/// sender goes back to one.
fn older_logs(tx: &mut Transaction<'_>, log: &LogName) -> Vec<LogName> {
    let names = tx.catalog().logs().map(Log::name);
    names.filter(|name| *name != log && upstream::replaces(log, name)).cloned().collect()
}

/// Whether a stream may be opened: what has come was not sent by another copy of its namespace.
fn check_life(mark: &Mark, link: &Link<'_>) -> Result<()> {
    let Some(last) = mark.life else { return Ok(()) };
    let is_other =
        |life: Life| life.number < last.number || (life.number == last.number && life.id != last.id) || link.forked;
    if !link.life.is_some_and(is_other) {
        return Ok(());
    }
    Err(Code::LinkForked.error(format!(
        "another copy of the sending namespace has sent the records up to number {} of stream '{}'",
        mark.number,
        link.stream.escape_debug()
    )))
}

/// The id as two numbers of 64 bits each, because readers of JSON do not take 128 bits.
fn halves(id: EventId) -> (u64, u64) {
    ((id.get() >> 64) as u64, id.get() as u64)
}

fn writable(log: &str) -> Result<()> {
    if LogName::is_internal(log) {
        return Err(Code::LogInternal.error(format!("log '{}' belongs to the runtime", log.escape_debug())));
    }
    Ok(())
}

/// Whether sending the same again can never help. A log or function that is missing may still be created, so it does not count.
pub(super) fn is_permanent(code: Code) -> bool {
    matches!(
        code,
        Code::LogNameInvalid
            | Code::NameInvalid
            | Code::LogInternal
            | Code::RecordTooLong
            | Code::BatchTooLarge
            | Code::FrameTooLong
            | Code::LinkDiverged
            | Code::LinkForked
            | Code::RelayCircle
            | Code::LinkStopped
            | Code::LogIsTable
            | Code::SeqnoInvalid
    )
}

/// Whether the sender can act on it, or has to wait.
fn is_for_sender(code: Code) -> bool {
    let waits = matches!(code, Code::LogNotFound | Code::FunctionNotFound | Code::ClockAhead | Code::LinkOutOfOrder);
    // A thread that may wait for the journal's lock tries again; the sender is told nothing of it.
    let is_blocked = code == Code::JournalBlocked;
    waits || is_permanent(code) || (code.transient().is_some() && !is_blocked)
}

fn refusal(error: &Error) -> Refused {
    let retry_after_ms = match error.code() {
        code if is_permanent(code) => None,
        Code::LinkOutOfOrder => Some(0),
        _ => Some(error.retry_after_ms().unwrap_or(RETRY_LATER_MS)),
    };
    Refused { code: error.code().id().to_owned(), detail: error.detail().to_owned(), retry_after_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other errors end the connection.
    #[test]
    fn senders_are_told_what_they_can_act_on() {
        use Code::*;
        let permanent = [
            LogNameInvalid,
            NameInvalid,
            LogInternal,
            RecordTooLong,
            BatchTooLarge,
            FrameTooLong,
            LinkDiverged,
            LinkForked,
            RelayCircle,
            LinkStopped,
            LogIsTable,
            SeqnoInvalid,
        ];
        let waits = [LogNotFound, FunctionNotFound, ClockAhead, LinkOutOfOrder];
        let of_appends = [Busy, DatabaseBacklog, RoomExhausted, OutboxFull, PublishBufferFull, RepairWaits];
        let room = [&of_appends[..], &[MountBusy, DeviceCommandsFull]].concat();
        let disk = [DiskFull, ReadOnly, Io, AppendUncertain, JournalFull];
        let told = [&permanent[..], &waits, &room, &disk].concat();
        for (code, ..) in millrace_wire::catalogue() {
            assert_eq!(is_permanent(code), permanent.contains(&code), "{code:?}");
            assert_eq!(is_for_sender(code), told.contains(&code), "{code:?}");
        }
    }
}
