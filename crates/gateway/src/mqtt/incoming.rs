//! Messages from a client: appended in their order, and acknowledged once they are past the gate.

use crate::turns;
use millrace_mqtt::packet::{Properties, Qos, SESSION, reason};
use millrace_node::{Access, AppendOptions, Durability, Gated, HISTORY_DEFAULT, Submitted};
use millrace_wire::{Code, Error, ErrorKind, EventId, HEADERS_MAX_BYTES, Headers};
use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// Bytes of messages of a connection that are being appended; beyond them, nothing more is read.
const BYTES_MAX: usize = 1 << 20;
/// Messages of quality 0 that are being appended, the same.
const COUNT_MAX: usize = 256;
/// The pause before a message is tried again that the namespace had no room for.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// A message.
#[derive(Clone)]
pub(super) struct Message {
    /// The log.
    pub log: String,
    /// Whether the log is created if it does not exist.
    pub creates: bool,
    pub payload: Arc<[u8]>,
    pub said: Said,
    pub qos: Qos,
    /// The packet's id.
    pub id: u16,
    pub note: Note,
}

/// What a client says of a message beside its bytes.
#[derive(Clone, Default)]
pub(super) struct Said {
    pub headers: Headers,
    pub cause: EventId,
    pub key: Option<String>,
}

impl Said {
    /// From the properties of a message; `own` is the name of its session, if that does not want it back.
    pub fn of(properties: Properties, own: Option<&str>) -> Result<Self, Error> {
        let Properties { mut headers, has_long_headers, key, cause, .. } = properties;
        if has_long_headers || own.is_some_and(|own| headers.push(SESSION, own).is_err()) {
            let detail = format!("the user properties are longer than {HEADERS_MAX_BYTES} bytes");
            return Err(Code::RecordTooLong.error(detail));
        }
        let cause = cause.map_or(Ok(EventId::NONE), |id| id.parse())?;
        Ok(Self { headers, cause, key })
    }
}

/// What is noted in the batch of a message, and lets it be appended once only.
#[derive(Clone)]
pub(super) enum Note {
    Nothing,
    /// This key comes into being with the record.
    Once(Vec<u8>),
    /// This key goes with the record.
    Takes(Vec<u8>),
    /// There is no record: the message of this key was released.
    Released(Vec<u8>),
}

/// What became of a message.
pub(super) struct Outcome {
    pub log: String,
    pub qos: Qos,
    pub id: u16,
    /// Whether it was a release.
    pub is_release: bool,
    pub appended: Result<(), Error>,
}

struct Append {
    message: Message,
    state: State,
}

enum State {
    Submitted(Submitted<()>),
    Held(Gated<()>),
    /// There was no room; it is tried again.
    Paused(Pin<Box<Sleep>>),
}

/// Messages that are being appended, in their order.
#[derive(Default)]
pub(super) struct Arrivals {
    appends: VecDeque<Append>,
    bytes: usize,
    /// The round in which messages may be appended; a refusal for now ends it.
    round: Arc<AtomicU64>,
    /// The round in which they are submitted.
    submitted: u64,
}

/// A message's place in a round. If it is refused for now, or never tried, the round is over: those behind it are not appended before it
/// is tried again.
struct Place {
    round: Arc<AtomicU64>,
    number: u64,
    /// The message is tried again.
    returns: bool,
}

impl Place {
    fn is_over(&self) -> bool {
        self.round.load(Ordering::SeqCst) != self.number
    }

    /// Notes what became of the message; nothing if it was not tried because the round is over.
    fn note(&mut self, held: Option<&Gated<()>>) {
        let refusal = held.and_then(Gated::refusal);
        self.returns &= refusal.is_some_and(|error| error.retry_after_ms().is_some());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.returns {
            let _ = self.round.compare_exchange(self.number, self.number + 1, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

impl Arrivals {
    pub fn is_empty(&self) -> bool {
        self.appends.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no more is to be read.
    pub fn is_full(&self) -> bool {
        self.appends.len() >= COUNT_MAX || self.bytes >= BYTES_MAX
    }

    /// How many messages above quality 0 are being appended.
    pub fn unacknowledged(&self) -> usize {
        let is = |message: &Message| message.qos != Qos::AtMostOnce && !matches!(message.note, Note::Released(_));
        self.appends.iter().filter(|append| is(&append.message)).count()
    }

    /// Whether a message of quality 2 with this id is being appended.
    pub fn has(&self, id: u16) -> bool {
        let is = |message: &Message| message.id == id && matches!(message.note, Note::Nothing | Note::Once(_));
        self.appends.iter().any(|append| append.message.qos == Qos::ExactlyOnce && is(&append.message))
    }

    pub fn add(&mut self, access: &Access, message: Message) {
        self.bytes += message.payload.len();
        let place = self.place(&message);
        let state = start(access, &message, place, self.appends.is_empty());
        if let (State::Submitted(_), Some(Append { state: State::Submitted(before), .. })) =
            (&state, self.appends.back())
        {
            // A later one may be released earlier, so this one has to report as soon as it is done.
            before.be_followed();
        }
        self.appends.push_back(Append { message, state });
    }

    fn place(&self, message: &Message) -> Place {
        Place { round: self.round.clone(), number: self.submitted, returns: message.qos != Qos::AtMostOnce }
    }

    /// Tries the first message again, and in their order those that were not appended because of it.
    fn again(&mut self, access: &Access) {
        let round = self.round.load(Ordering::SeqCst);
        let all = if round == self.submitted { 1 } else { self.appends.len() };
        self.submitted = round;
        for at in 0..all {
            let place = self.place(&self.appends[at].message);
            let append = &mut self.appends[at];
            append.state = start(access, &append.message, place, false);
        }
    }

    /// The next message whose outcome is known.
    pub fn poll_next(&mut self, access: &Access, cx: &mut Context<'_>) -> Poll<Outcome> {
        let appended = loop {
            let Some(append) = self.appends.front_mut() else { return Poll::Pending };
            match &mut append.state {
                State::Submitted(submitted) => match Pin::new(submitted).poll(cx) {
                    Poll::Ready(held) => append.state = State::Held(held),
                    Poll::Pending => return Poll::Pending,
                },
                State::Held(held) => match Pin::new(held).poll(cx) {
                    Poll::Ready(Err(error))
                        if error.retry_after_ms().is_some() && append.message.qos != Qos::AtMostOnce =>
                    {
                        append.state = State::Paused(Box::pin(sleep(BUSY_PAUSE)));
                    }
                    Poll::Ready(appended) => break appended,
                    Poll::Pending => return Poll::Pending,
                },
                State::Paused(pause) => match pause.as_mut().poll(cx) {
                    Poll::Ready(()) => self.again(access),
                    Poll::Pending => return Poll::Pending,
                },
            }
        };
        let Append { message: Message { log, payload, qos, id, note, .. }, .. } =
            self.appends.pop_front().expect("it was there");
        self.bytes -= payload.len();
        let is_release = matches!(note, Note::Released(_));
        Poll::Ready(Outcome { log, qos, id, is_release, appended })
    }
}

/// Begins to append: at once, if no other client has to wait for it, and otherwise on the committing thread.
fn start(access: &Access, message: &Message, mut place: Place, is_first: bool) -> State {
    let others = access.served().facts().durability() == Durability::Memory;
    let lacks_log =
        |held: &Gated<()>| message.creates && held.refusal().is_some_and(|error| error.code() == Code::LogNotFound);
    if is_first
        && let Some(_waiting) = turns::may_wait(others)
        && let Some(held) = access.now(|access| try_to_append(access, message))
        && !lacks_log(&held)
    {
        place.note(Some(&held));
        return State::Held(held);
    }
    let message = message.clone();
    State::Submitted(access.submit(move |access| {
        if place.is_over() {
            place.note(None);
            return Gated::failed(Code::JournalBlocked.error("a message before this one is not appended yet"));
        }
        let held = append(access, &message);
        place.note(Some(&held));
        held
    }))
}

/// Appends a message. If its log does not exist and a rule names it, the log is created.
pub(super) fn append(access: &Access, message: &Message) -> Gated<()> {
    let held = try_to_append(access, message);
    if !message.creates || held.refusal().is_none_or(|error| error.code() != Code::LogNotFound) {
        return held;
    }
    let created = access.create_log(&message.log, HISTORY_DEFAULT);
    match created.refusal() {
        Some(error) if error.code().kind() == ErrorKind::Denied => access.refuse(error.clone(), None),
        // If it exists by now, or could not be created, the append shows it.
        _ => try_to_append(access, message),
    }
}

fn try_to_append(access: &Access, message: &Message) -> Gated<()> {
    let durability = (message.qos == Qos::AtMostOnce).then_some(Durability::Memory);
    let (log, payload) = (&*message.log, &*message.payload);
    let Said { headers, cause, key } = &message.said;
    let headers = (!headers.is_empty()).then_some(headers);
    let options = AppendOptions { durability, headers, cause: *cause, key: key.as_deref(), ..AppendOptions::default() };
    match &message.note {
        Note::Nothing => access.append(log, payload, options).map(drop),
        Note::Once(key) => access.append_once(log, payload, key, options).map(drop),
        Note::Takes(key) => access.append_taking(log, payload, key, options).map(drop),
        Note::Released(key) => access.save_mqtt_sessions(&[(key.clone(), None)]),
    }
}

/// The reason in 5.0 for a message that is not appended.
pub(super) fn refusal(error: &Error) -> u8 {
    match (error.code(), error.code().kind()) {
        (Code::MqttTopicUnmapped | Code::LogNotFound | Code::LogNameInvalid, _) => reason::TOPIC_INVALID,
        (Code::RecordTooLong, _) => reason::QUOTA,
        (_, ErrorKind::Denied) => reason::NOT_AUTHORIZED,
        (_, ErrorKind::Busy) => reason::QUOTA,
        _ => reason::UNSPECIFIED,
    }
}
