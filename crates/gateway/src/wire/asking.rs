//! What a client asks a device that is connected: the request goes to the device over its own connection, and the answer comes back the same
//! way. The gate has no part in it: what a device tells is in its flash.
//!
//! ```text
//!  client ── Askable::ask ── the device's connection ── [PRESENT] GET, RANGE, LATEST, APPEND ──> device
//!         <── RemoteAnswer, or an error ──────────────────────── RECORD, RECORDS, SEQNO, APPENDED, FAILURE ──
//! ```

use super::{
    connection::Connection,
    devices::{DeviceRequest, Presentation, presentation},
    requests::Answer,
};
use millrace_documents::rfc3339;
use millrace_node::{
    Access, Record,
    devices::{AttachedDevice, CAME_MAX, Device, Presence, State, expected_ms},
};
use millrace_wire::{
    Code, Error, EventId, Headers, Hlc, Name, NamespaceId, Result,
    protocol::{self, Append, Appended, Failure, Frame, Get, Heading, Latest, Message, Range, Records, Seqno, encode},
    units,
};
use std::{
    collections::HashMap,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::timeout_at,
};

/// How many requests of others wait for the answers of one device.
const ASKED_MAX: usize = 4;
/// How long a device may take to answer: it may run a function first.
const PATIENCE: Duration = Duration::from_secs(10);
/// These requests to a device are numbered from here on, behind those of commands.
const FIRST_ASKED: u64 = 1 << 33;
/// A capability that is presented before a request has the number of the request plus this.
pub(super) const PRESENTED: u64 = 1 << 34;

/// What is asked. The names of logs are those in the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteRequest {
    /// One record, 0 for the newest.
    Get {
        log: String,
        seqno: u64,
    },
    Range {
        log: String,
        from: u64,
        count: u32,
    },
    Latest {
        log: String,
    },
    Append {
        log: String,
        data: Vec<u8>,
    },
}

/// What a device says.
#[derive(Debug)]
pub(crate) enum RemoteAnswer {
    Record(Record),
    /// And where to continue.
    Records(Vec<Record>, u64),
    Latest(u64),
    Appended {
        seqno: u64,
        id: EventId,
    },
}

impl RemoteRequest {
    pub fn log(&self) -> &str {
        match self {
            RemoteRequest::Get { log, .. }
            | RemoteRequest::Range { log, .. }
            | RemoteRequest::Latest { log }
            | RemoteRequest::Append { log, .. } => log,
        }
    }

    /// The bytes of a record to append.
    fn append_bytes(&self) -> Option<usize> {
        match self {
            RemoteRequest::Append { data, .. } => Some(data.len()),
            _ => None,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, heading: Heading) {
        match self {
            RemoteRequest::Get { log, seqno } => encode(out, heading, &Get { log, seqno: *seqno, ..Get::default() }),
            RemoteRequest::Range { log, from, count } => {
                encode(out, heading, &Range { log, from: *from, count: *count, ..Range::default() });
            }
            RemoteRequest::Latest { log } => encode(out, heading, &Latest { log, ..Latest::default() }),
            RemoteRequest::Append { log, data } => encode(out, heading, &Append { log, data, ..Append::default() }),
        }
    }

    /// Whether a message is an answer to such a request, and to no other of a host.
    pub(super) fn is_answered_by(kind: u8) -> bool {
        matches!(kind, protocol::Record::TYPE | Records::TYPE | Seqno::TYPE | Appended::TYPE)
    }

    /// What the device says; its refusal; or that this is no answer.
    fn told(&self, device: &str, frame: &Frame<'_>) -> Result<RemoteAnswer> {
        Ok(match (self, frame.kind) {
            (_, Failure::TYPE) => {
                let failure: Failure<'_> = frame.message()?;
                return Err(self.refused(device, &failure));
            }
            (RemoteRequest::Get { .. }, protocol::Record::TYPE) => RemoteAnswer::Record(owned(&frame.message()?)?),
            (RemoteRequest::Range { .. }, Records::TYPE) => {
                let Records { records, next, .. } = frame.message()?;
                RemoteAnswer::Records(records.iter().map(owned).collect::<Result<_>>()?, next)
            }
            (RemoteRequest::Latest { .. }, Seqno::TYPE) => RemoteAnswer::Latest(frame.message::<Seqno>()?.seqno),
            (RemoteRequest::Append { .. }, Appended::TYPE) => {
                let Appended { seqno, id } = frame.message()?;
                RemoteAnswer::Appended { seqno, id }
            }
            (_, kind) => {
                return Err(
                    Code::MessageUnexpected.error(format!("device '{device}' answers with a message of type {kind}"))
                );
            }
        })
    }

    /// Devices have no room for texts.
    fn refused(&self, device: &str, failure: &Failure<'_>) -> Error {
        let Some(code) = Code::from_id(failure.code) else {
            return Code::HostCodeUnknown.error(format!("device '{device}' refuses the request ({})", failure.code));
        };
        let log = self.log();
        let detail = match (code, self) {
            (Code::MessageUnknown | Code::MessageUnexpected, _) => {
                return Code::DeviceNotAskable.error(format!("the firmware of '{device}' answers no requests"));
            }
            (Code::LogNotFound, _) => format!("device '{device}' has no log '{log}'"),
            (Code::AboveTail, RemoteRequest::Get { seqno: 0, .. }) => {
                format!("log '{log}' of '{device}' has no records yet")
            }
            (Code::AboveTail, RemoteRequest::Get { seqno, .. }) => {
                format!("log '{log}' of '{device}' has no record {seqno} yet")
            }
            (Code::BelowHistory, RemoteRequest::Get { seqno: 0, .. }) => {
                format!("'{device}' does not have the newest record of log '{log}' any more")
            }
            (Code::BelowHistory, RemoteRequest::Get { seqno, .. }) => {
                format!("'{device}' does not have record {seqno} of log '{log}' any more")
            }
            (Code::BelowHistory, RemoteRequest::Range { from, .. }) => {
                format!("'{device}' does not have record {from} of log '{log}' any more")
            }
            (Code::CapabilityDenied, RemoteRequest::Append { .. }) => format!(
                "device '{device}' accepts no records for log '{log}': the log takes no commands, or this host has no capability for it"
            ),
            (Code::CapabilityDenied, _) => format!(
                "device '{device}' does not let this host read log '{log}': its capability for the device does not permit it"
            ),
            (Code::CapabilityRefused, _) => {
                format!("device '{device}' does not accept the capability that this host has for it")
            }
            (Code::RecordTooLong, RemoteRequest::Append { data, .. }) => {
                format!("{} bytes are too long for log '{log}' of '{device}'", data.len())
            }
            (Code::FrameTooLong, _) => format!("a record of log '{log}' is longer than one answer of '{device}'"),
            _ if failure.detail.is_empty() || failure.detail == failure.code => {
                format!("device '{device}' refuses the request")
            }
            _ => failure.detail.to_owned(),
        };
        code.error(detail)
    }
}

fn owned(record: &protocol::Record<'_>) -> Result<Record> {
    let protocol::Record { seqno, id, hlc, cause, data, headers } = *record;
    let headers =
        Headers::read(headers).ok_or_else(|| Code::MessageUnexpected.error("the headers of a record are malformed"))?;
    Ok(Record { seqno, id, hlc, cause, payload: data.to_vec(), headers })
}

/// A request on its way to the connection of a device.
#[derive(Debug)]
struct Question {
    ask: RemoteRequest,
    /// Its place among those that wait for the device, until it has answered.
    place: OwnedSemaphorePermit,
    told: oneshot::Sender<Result<RemoteAnswer>>,
}

/// The connection over which a device can be asked.
#[derive(Clone, Debug)]
struct Line {
    connection: u64,
    questions: mpsc::Sender<Question>,
    places: Arc<Semaphore>,
}

/// A device since the host has started.
#[derive(Debug)]
struct KnownDevice {
    /// Another device may get the name of one that was removed.
    identity: NamespaceId,
    line: Option<Line>,
    /// When it connected, the last times, in milliseconds since 1970. The state of the device has them as well, over a restart of the host, but not each one.
    came: Vec<u64>,
    /// When the last connection ended, in milliseconds since 1970.
    left: Option<u64>,
}

impl KnownDevice {
    fn new(identity: NamespaceId) -> Self {
        Self { identity, line: None, came: Vec::new(), left: None }
    }

    fn is_of(&self, state: &State) -> bool {
        self.identity.get() == state.namespace
    }
}

/// The devices that have been connected since the host has started, also those that were removed since.
#[derive(Debug, Default)]
pub(crate) struct Askable {
    known: Mutex<HashMap<(Name, String), KnownDevice>>,
    connections: AtomicU64,
}

impl Askable {
    fn known(&self) -> MutexGuard<'_, HashMap<(Name, String), KnownDevice>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a device. It answers within a while, or there is an error: it is not connected (MR6360), its firmware answers no requests (MR6361), it does
    /// not answer (MR6362), or others ask too much (MR6363).
    pub async fn ask(&self, access: &Access, device: &str, ask: RemoteRequest) -> Result<RemoteAnswer> {
        let state = access.asks_device(device, ask.log(), ask.append_bytes()).await?;
        let until = tokio::time::Instant::now() + PATIENCE;
        let key = (access.served().name().clone(), device.to_owned());
        let line = match self.known().get(&key).filter(|known| known.is_of(&state)) {
            Some(KnownDevice { line: Some(line), .. }) => line.clone(),
            known => return Err(asleep(device, known, &state, now_ms())),
        };
        let is_append = matches!(ask, RemoteRequest::Append { .. });
        let ended = |sent: bool| {
            let may_have = if sent && is_append { "; it may have the record" } else { "" };
            Code::DeviceNoAnswer.error(format!("the connection of '{device}' ended before it answered{may_have}"))
        };
        let place = match timeout_at(until, line.places.acquire_owned()).await {
            Ok(place) => place.map_err(|_| ended(false))?,
            Err(_) => {
                let detail = format!(
                    "{ASKED_MAX} requests wait for '{device}', none of which it answered within {} s",
                    PATIENCE.as_secs()
                );
                return Err(Code::DeviceBusy.error(detail));
            }
        };
        let (told, answer) = oneshot::channel();
        // It has room for all who have a place.
        line.questions.try_send(Question { ask, place, told }).map_err(|_| ended(false))?;
        match timeout_at(until, answer).await {
            Ok(answer) => answer.map_err(|_| ended(true))?,
            Err(_) => {
                let may_have = if is_append { "; it may have the record" } else { "" };
                let detail = format!("'{device}' has not answered within {} s{may_have}", PATIENCE.as_secs());
                Err(Code::DeviceNoAnswer.error(detail))
            }
        }
    }

    /// Whether a device is connected, and since when; or until when it was, and when it is expected.
    pub fn presence(&self, namespace: &Name, device: &Device) -> Presence {
        let known = self.known();
        let known = known.get(&(namespace.clone(), device.name.clone())).filter(|known| known.is_of(&device.state));
        let text = |ms: u64| rfc3339(Hlc::from_wall_us(ms * 1000));
        let Some(KnownDevice { line: Some(_), came, .. }) = known else {
            let expected = expected_at(known, &device.state).filter(|at| *at > now_ms()).map(text);
            let until = known.and_then(|known| known.left).map(text);
            return Presence { connected: false, since: None, until, expected };
        };
        Presence { connected: true, since: came.last().copied().map(text), ..Presence::default() }
    }
}

/// When a device is expected, in milliseconds since 1970. The host may have been restarted since the device came last.
fn expected_at(known: Option<&KnownDevice>, state: &State) -> Option<u64> {
    let here = known.map_or(&[][..], |known| &known.came);
    expected_ms(if here.len() < state.came.len() { &state.came } else { here })
}

/// That a device is not connected, and when it may be.
fn asleep(device: &str, known: Option<&KnownDevice>, state: &State, now_ms: u64) -> Error {
    let detail = match (expected_at(known, state), known.and_then(|known| known.left)) {
        (Some(at), _) if at > now_ms => {
            format!("{device} is asleep; it is expected in {}", shown(Duration::from_millis(at - now_ms)))
        }
        (_, Some(left)) => {
            format!(
                "{device} is asleep; it was connected until {} ago",
                shown(Duration::from_millis(now_ms.saturating_sub(left)))
            )
        }
        _ if state.clock == 0 => format!("{device} is not connected; it has never sent anything"),
        _ => format!(
            "{device} is not connected, and was not since the host started; its newest entry is of {}",
            rfc3339(Hlc::from_bits(state.clock))
        ),
    };
    Code::DeviceAsleep.error(detail)
}

/// A time in whole seconds, at least one.
fn shown(time: Duration) -> String {
    match time.as_secs() + u64::from(time.subsec_nanos() > 0) {
        0 => "1 s".into(),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds => units::show_duration(Duration::from_secs(seconds)),
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What waits for the answer of a device.
struct AwaitedAnswer {
    ask: RemoteRequest,
    told: oneshot::Sender<Result<RemoteAnswer>>,
    _place: OwnedSemaphorePermit,
}

/// What others ask the device of a connection.
pub(super) struct Asking {
    hosted: Arc<crate::Hosted>,
    device: AttachedDevice,
    key: (Name, String),
    line: Line,
    /// The number of the next request.
    next: u64,
    /// The capability for the device was sent, and not refused.
    is_presented: Arc<AtomicBool>,
    questions: Arc<tokio::sync::Mutex<mpsc::Receiver<Question>>>,
    waiting: Arc<Mutex<HashMap<u64, AwaitedAnswer>>>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.line.places.close();
        let mut known = self.hosted.devices.known();
        let Some(device) = known.get_mut(&self.key) else { return };
        // It may be connected anew already.
        if device.line.as_ref().is_some_and(|line| line.connection == self.line.connection) {
            device.line = None;
            device.left = Some(now_ms());
        }
    }
}

impl Connection {
    /// The device is attached: from now on it can be asked.
    pub(super) fn begin_asking(&mut self) {
        let device = self.device.as_ref().and_then(|device| device.get()).map(|import| import.device().clone());
        let (Some(device), Some(access)) = (device, self.access.clone()) else { return };
        let next = self.asking.take().map_or(FIRST_ASKED, |before| {
            self.waits.cancel(before.next - 1);
            before.next
        });
        let (questions, receiver) = mpsc::channel(ASKED_MAX);
        let connection = self.hosted.devices.connections.fetch_add(1, Ordering::Relaxed);
        let line = Line { connection, questions, places: Arc::new(Semaphore::new(ASKED_MAX)) };
        let key = (access.served().name().clone(), device.name.clone());
        {
            let mut known = self.hosted.devices.known();
            let known = known.entry(key.clone()).or_insert_with(|| KnownDevice::new(device.identity));
            if known.identity != device.identity {
                *known = KnownDevice::new(device.identity);
            }
            known.line = Some(line.clone());
            known.came.push(now_ms());
            let surplus = known.came.len().saturating_sub(CAME_MAX);
            known.came.drain(..surplus);
        }
        let (hosted, questions) = (self.hosted.clone(), Arc::new(tokio::sync::Mutex::new(receiver)));
        let (is_presented, waiting) = (Arc::default(), Arc::default());
        self.asking = Some(Asking { hosted, device, key, line, next, is_presented, questions, waiting });
        self.await_question();
    }

    /// Waits for the next question.
    pub(super) fn await_question(&mut self) {
        let (exporter, access) = (self.identity.exporter, self.access.clone());
        let (Some(asking), Some(access)) = (&mut self.asking, access) else { return };
        let (request, device) = (asking.next, asking.device.clone());
        asking.next += 1;
        let is_presented = asking.is_presented.clone();
        let may_ask = {
            let (access, device) = (access.clone(), device.clone());
            move || access.check_attached(&device)
        };
        let present = move || match is_presented.swap(true, Ordering::Relaxed) {
            true => Ok(None),
            false => presentation(&access, &device.name, exporter),
        };
        let question = question(asking.questions.clone(), asking.waiting.clone(), request, (may_ask, present));
        let _ = self.waits.add(request, question);
    }

    /// Takes the answer of the device to a question; whether it is one.
    pub(super) fn asked_told(&mut self, frame: &Frame<'_>) -> bool {
        let request = frame.heading.request;
        if request < FIRST_ASKED {
            return false;
        }
        let Some(asking) = &mut self.asking else { return true };
        let found = asking.waiting().remove(&request);
        if let Some(AwaitedAnswer { ask, told, .. }) = found {
            let told_now = ask.told(&asking.key.1, frame);
            if let Err(error) = &told_now
                && matches!(error.code(), Code::CapabilityDenied | Code::CapabilityRefused)
            {
                // The host may have got another one meanwhile.
                asking.is_presented.store(false, Ordering::Relaxed);
            }
            let _ = told.send(told_now);
        }
        true
    }
}

impl Asking {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, AwaitedAnswer>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a question, and asks the device. What nobody waits for any more is not asked.
async fn question(
    questions: Arc<tokio::sync::Mutex<mpsc::Receiver<Question>>>,
    waiting: Arc<Mutex<HashMap<u64, AwaitedAnswer>>>,
    request: u64,
    (may_ask, present): (impl Fn() -> Result<()>, impl Fn() -> Result<Option<Presentation>>),
) -> Result<Answer> {
    loop {
        let Some(Question { ask, place, told }) = questions.lock().await.recv().await else { return pending().await };
        if told.is_closed() {
            continue;
        }
        if let Err(error) = may_ask() {
            // Its connection ends, and it has to attach again.
            let _ = told.send(Err(
                Code::DeviceAsleep.error(format!("the device is not accepted any more: {}", error.detail()))
            ));
            return Err(error);
        }
        let present = match present() {
            Ok(present) => present,
            Err(error) => {
                let _ = told.send(Err(error));
                continue;
            }
        };
        let asked = AwaitedAnswer { ask: ask.clone(), told, _place: place };
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(request, asked);
        return Ok(Answer::ToDevice(DeviceRequest::Asked { present, ask }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_when_a_device_comes_or_when_it_was_there() {
        let came = |seconds: &[u64]| seconds.iter().map(|second| 1_000_000 + second * 1000).collect::<Vec<u64>>();
        let known = |came: Vec<u64>| KnownDevice {
            identity: NamespaceId::new(7).unwrap(),
            line: None,
            came,
            left: Some(1_000_000 + 121_000),
        };
        let said = |known: Option<KnownDevice>, kept: &[u64], now: u64| {
            let state = State { came: came(kept), clock: kept.len() as u64, ..State::default() };
            let error = asleep("kitchen", known.as_ref(), &state, 1_000_000 + now * 1000);
            assert_eq!(error.code(), Code::DeviceAsleep);
            error.detail().to_owned()
        };
        let regular = [0, 60, 120];
        assert_eq!(said(Some(known(came(&regular))), &[], 140), "kitchen is asleep; it is expected in 40 s");
        assert_eq!(said(Some(known(came(&regular))), &[], 181), "kitchen is asleep; it was connected until 1m 0s ago");
        assert_eq!(said(Some(known(came(&[0]))), &[], 140), "kitchen is asleep; it was connected until 19 s ago");
        assert_eq!(said(None, &[], 0), "kitchen is not connected; it has never sent anything");
        // After a restart of the host, its memory has less than what was kept.
        assert_eq!(said(None, &regular, 140), "kitchen is asleep; it is expected in 40 s");
        assert_eq!(said(Some(known(came(&[120]))), &regular, 140), "kitchen is asleep; it is expected in 40 s");
        assert!(said(None, &regular, 181).starts_with("kitchen is not connected, and was not since the host started"));
    }
}
