//! The built-in types: what their methods do in one turn.

mod collections;
pub(crate) mod made;
mod numbers;
mod sync;
pub(crate) mod user;
mod waiting;

use crate::{
    Outcome, Raised, Reply, Session,
    space::Moment,
    state::{Effect, State, Ticket, Waiter},
    value,
};
use millrace_wire::{
    Code, Error, Result,
    protocol::{FRAME_MAX_BYTES, FRAME_OVERHEAD_BYTES},
};
use std::{str::FromStr, sync::Arc};

/// The most bytes of one entity's state.
pub(crate) const STATE_MAX_BYTES: usize = 256 << 20;
/// The most bytes of one answer: a frame carries no more.
pub(crate) const ANSWER_MAX_BYTES: usize = FRAME_MAX_BYTES - FRAME_OVERHEAD_BYTES;
/// The most calls that wait for one entity.
pub(crate) const WAITERS_MAX: usize = 100_000;

/// A method, as `spec/objects.toml` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Whether it changes nothing.
    pub reads: bool,
    /// Whether a call of it may wait.
    pub waits: bool,
}

const fn read(name: &'static str) -> Method {
    Method { name, reads: true, waits: false }
}

const fn change(name: &'static str) -> Method {
    Method { name, reads: false, waits: false }
}

const fn wait(name: &'static str) -> Method {
    Method { name, reads: false, waits: true }
}

const fn wait_to_read(name: &'static str) -> Method {
    Method { name, reads: true, waits: true }
}

/// Deletes the entity, whatever its type.
pub const DELETE: Method = change("delete");

macro_rules! types {
    ($($type:ident = $run:path, [$($method:expr),* $(,)?];)*) => {
        /// The type of an entity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is the class of this name in `spec/objects.toml`")]
        pub enum Type { $($type),* }

        /// Every type and its methods.
        pub const METHODS: &[(Type, &[Method])] = &[$((Type::$type, &[$($method),*])),*];

        impl Type {
            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Type::$type => stringify!($type)),* }
            }

            fn runner(self) -> Run {
                match self { $(Type::$type => $run),* }
            }
        }
    };
}

/// Executes a method in a turn.
type Run = fn(&mut Turn<'_>, &str, &Args<'_>) -> std::result::Result<Flow, Raised>;

types! {
    AtomicInt = numbers::number, [
        read("get"), change("set"), change("get_and_set"), change("add_and_get"), change("get_and_add"), change("multiply_and_get"),
        change("compare_and_set"),
    ];
    AtomicLong = numbers::number, [
        read("get"), change("set"), change("get_and_set"), change("add_and_get"), change("get_and_add"), change("multiply_and_get"),
        change("compare_and_set"),
    ];
    AtomicBool = numbers::truth, [read("get"), change("set"), change("get_and_set"), change("compare_and_set")];
    AtomicBytes = numbers::reference, [read("get"), change("set"), change("get_and_set"), change("compare_and_set")];
    Counter = collections::counter, [
        read("get"), change("add"), change("update"), read("most_common"), read("total"), read("len"), read("items"), change("clear"),
        change("set"), change("pop"),
    ];
    Dict = collections::dict, [
        read("get"), change("set"), change("setdefault"), change("pop"), change("popitem"), change("add"), change("compare_and_set"),
        change("update"), read("contains"), read("len"), read("keys"), read("values"), read("items"), change("clear"),
        change("compare_and_pop"),
    ];
    SortedDict = collections::sorted_dict, [
        read("get"), change("set"), change("setdefault"), change("pop"), change("popitem"), change("add"), change("compare_and_set"),
        change("update"), read("contains"), read("len"), read("keys"), read("values"), read("items"), change("clear"), read("range"),
        read("first"), read("last"), change("compare_and_pop"),
    ];
    Set = collections::set, [
        change("add"), change("discard"), change("update"), change("pop"), read("contains"), read("len"), read("items"), change("clear"),
        change("difference_update"), change("intersection_update"), change("symmetric_difference_update"),
    ];
    List = collections::list, [
        read("get"), change("set"), change("append"), change("extend"), change("insert"), change("pop"), read("slice"), read("index"),
        read("count"), read("len"), read("items"), change("clear"), change("remove"), change("reverse"), change("splice"),
        read("snapshot"), change("swap"),
    ];
    Log = collections::log, [change("append"), read("get"), read("slice"), read("len"), wait("wait_for")];
    Queue = waiting::queue, [
        wait("put"), wait("get"), change("give_back"), change("task_done"), wait("join"), read("qsize"), read("maxsize"),
        read("peek"), read("items"),
    ];
    Matrix = numbers::matrix, [
        read("shape"), read("get"), change("set"), change("add"), read("row"), change("set_row"), change("add_row"), read("all"),
        change("set_all"), change("add_all"),
    ];
    Blob = numbers::blob, [read("read"), change("write"), change("append"), change("truncate"), change("replace"), read("len")];
    Lock = sync::lock, [wait("acquire"), change("release"), read("locked"), read("token")];
    Semaphore = sync::semaphore, [wait("acquire"), change("release"), read("value")];
    Event = waiting::event, [change("set"), change("clear"), read("is_set"), wait("wait")];
    Barrier = waiting::barrier, [wait("wait"), change("acted"), change("reset"), change("abort"), read("parties"), read("n_waiting"), read("broken")];
    CountDownLatch = waiting::latch, [change("count_down"), read("get_count"), wait("wait")];
    Condition = sync::condition, [wait("acquire"), change("release"), read("locked"), wait("wait"), change("notify")];
    Future = waiting::future, [change("set_result"), change("set_exception"), change("cancel"), read("done"), wait("result")];
    Shared = user::shared, [wait("call"), wait_to_read("read"), read("version"), change("class")];
}

impl Type {
    /// The method of this name.
    pub fn method(self, name: &str) -> Result<Method> {
        if name == DELETE.name {
            return Ok(DELETE);
        }
        let methods = METHODS.iter().find(|(type_, _)| *type_ == self).map(|(_, methods)| *methods);
        let found = methods.and_then(|methods| methods.iter().find(|method| method.name == name).copied());
        found.ok_or_else(|| {
            Code::MethodUnknown.error(format!("'{}' is not a method of {}", name.escape_debug(), self.name()))
        })
    }

    /// The state of a new entity with these constructor arguments.
    pub(crate) fn construct(self, turn: &mut Turn<'_>, args: &Args<'_>) -> std::result::Result<(), Raised> {
        match self.runner()(turn, "", args)? {
            Flow::Reply(_) => {
                made::record(self, turn, args);
                Ok(())
            }
            Flow::Wait | Flow::TooLarge => Err(Raised::new("RuntimeError", "a constructor cannot wait")),
        }
    }

    /// Executes a call.
    pub(crate) fn run(self, turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> std::result::Result<Flow, Raised> {
        self.runner()(turn, method, args)
    }

    /// A waiter's timeout: its answer, or nothing if it must continue to wait, as for the lock of a condition.
    pub(crate) fn give_up(self, turn: &mut Turn<'_>, ticket: Ticket, waiter: &Waiter) -> Option<Outcome> {
        match self {
            Type::Condition => sync::condition_gives_up(turn, ticket, waiter),
            Type::Shared => user::gives_up(turn, ticket),
            _ => {
                turn.apply(Effect::Leave(ticket));
                if self == Type::Semaphore {
                    // It may have waited for more permits than those behind it.
                    sync::give_free(turn);
                }
                Some(waiting::gives_up(self, turn, waiter))
            }
        }
    }

    /// Refuses a waiter, as if its call had not come.
    pub(crate) fn refuse(self, turn: &mut Turn<'_>, ticket: Ticket, waiter: &Waiter, raised: Raised) {
        turn.release(ticket, waiter, Err::<Vec<u8>, _>(raised));
        if self == Type::Semaphore {
            // It may have waited for more permits than those behind it.
            sync::give_free(turn);
        }
    }

    /// The owner of a session has ended well.
    pub(crate) fn session_left(self, turn: &mut Turn<'_>, session: &Session) {
        if self == Type::Semaphore {
            sync::leave(turn, session);
        }
    }

    /// Releases everything in this entity that belongs to a session which has ended. Its waiters have left before.
    pub(crate) fn session_ended(self, turn: &mut Turn<'_>, session: &Session, waited: bool) {
        match self {
            Type::Lock | Type::Condition | Type::Semaphore => sync::freed(self, turn, session),
            Type::Barrier if waited || waiting::acts(turn, session) => waiting::break_barrier(turn),
            _ => {}
        }
    }
}

impl FromStr for Type {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = METHODS.iter().find(|(type_, _)| type_.name() == name).map(|(type_, _)| *type_);
        found.ok_or_else(|| {
            Code::ObjectTypeUnknown.error(format!("'{}' is not a type of shared objects", name.escape_debug()))
        })
    }
}

/// The classes of the exceptions of methods.
const RAISED: [&str; 20] = [
    "AttributeError",
    "IndexError",
    "KeyError",
    "OverflowError",
    "RuntimeError",
    "TimeoutError",
    "TypeError",
    "ValueError",
    "concurrent.futures.InvalidStateError",
    "millrace.AnswerForgotten",
    "millrace.Busy",
    "millrace.ClassChanged",
    "millrace.FenceStale",
    "millrace.NotFound",
    "millrace.PoolMissing",
    "millrace.StepFailed",
    "millrace.TooLarge",
    "queue.Empty",
    "queue.Full",
    "threading.BrokenBarrierError",
];

/// The class with this name in a record.
pub(crate) fn raised_class(name: &str) -> &'static str {
    RAISED.into_iter().find(|class| *class == name).unwrap_or("RuntimeError")
}

/// The result of a step.
pub(crate) enum Flow {
    /// The call's answer.
    Reply(Vec<u8>),
    /// The call waits: [`Turn::wait`] has put it into the state.
    Wait,
    /// The answer would have more than [`ANSWER_MAX_BYTES`], and was not made.
    TooLarge,
}

/// One step of one entity: its changes and its answers.
pub(crate) struct Turn<'t> {
    pub state: &'t mut State,
    pub moment: Moment,
    pub session: Session,
    pub call: u64,
    /// The fence of the call, for its waiter.
    pub fence: Option<(Box<str>, u64)>,
    /// The effects that undo the changes, the last one first.
    pub back: Vec<Effect>,
    /// Whether the changes are recorded.
    pub keeps: bool,
    /// The changes to record, the first one first.
    pub done: Vec<Effect>,
    /// Waiters that were answered.
    pub released: Vec<(Session, u64, Reply)>,
}

impl<'t> Turn<'t> {
    pub fn new(state: &'t mut State, moment: Moment, session: Session, call: u64) -> Self {
        let (back, done, released) = (Vec::new(), Vec::new(), Vec::new());
        Self { state, moment, session, call, fence: None, back, keeps: false, done, released }
    }

    pub fn apply(&mut self, effect: Effect) {
        if self.keeps {
            self.done.push(effect.clone());
        }
        self.back.push(self.state.apply(effect));
    }

    /// Undoes all changes.
    pub fn undo(&mut self) {
        while let Some(back) = self.back.pop() {
            self.state.apply(back);
        }
        self.done.clear();
        self.released.clear();
    }

    pub fn field(&mut self, field: u8, value: Vec<u8>) {
        self.apply(Effect::Field(field, Some(value)));
    }

    pub fn number(&mut self, field: u8, number: i64) {
        self.field(field, value::int(number));
    }

    pub fn put(&mut self, key: &[u8], value: Vec<u8>) {
        let at = self.state.place(key).unwrap_or_else(|| self.state.next_place());
        self.apply(Effect::Put(key.to_vec(), Some((at, value))));
    }

    pub fn drop_key(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let old = self.state.at(key)?.to_vec();
        self.apply(Effect::Put(key.to_vec(), None));
        Some(old)
    }

    pub fn clear_map(&mut self) {
        let keys: Vec<Vec<u8>> = self.state.inserted().map(|(key, _)| key.to_vec()).collect();
        keys.into_iter().for_each(|key| self.apply(Effect::Put(key, None)));
    }

    pub fn push(&mut self, value: Vec<u8>) {
        self.apply(Effect::Insert(self.state.sequence().len(), value));
    }

    pub fn take(&mut self, at: usize) -> Option<Vec<u8>> {
        let value = self.state.sequence().get(at)?.clone();
        self.apply(Effect::Remove(at));
        Some(value)
    }

    /// The call waits.
    pub fn wait(&mut self, way: u8, value: Vec<u8>) -> std::result::Result<Flow, Raised> {
        self.wait_from(0, way, value)
    }

    /// The call waits with a ticket that no call of the entity had before: a step that is in progress is never taken for its step.
    pub fn wait_once(&mut self, way: u8, value: Vec<u8>) -> std::result::Result<Flow, Raised> {
        self.wait_from(self.moment.token, way, value)
    }

    fn wait_from(&mut self, least: Ticket, way: u8, value: Vec<u8>) -> std::result::Result<Flow, Raised> {
        if self.state.waiters().len() >= WAITERS_MAX {
            return Err(Raised::new("millrace.Busy", format!("{WAITERS_MAX} calls wait for it")));
        }
        let waiter = Waiter { session: self.session, call: self.call, way, value, fence: self.fence.clone() };
        self.apply(Effect::Wait(self.next_ticket().max(least), waiter));
        Ok(Flow::Wait)
    }

    fn next_ticket(&self) -> Ticket {
        self.state.waiters().last_key_value().map_or(0, |(ticket, _)| ticket + 1)
    }

    pub(super) fn enqueue(&mut self, waiter: Waiter) {
        self.apply(Effect::Wait(self.next_ticket(), waiter));
    }

    /// The first waiter with one of these kinds of wait.
    pub fn first(&self, ways: &[u8]) -> Option<(Ticket, Waiter)> {
        self.state
            .waiters()
            .iter()
            .find(|(_, waiter)| ways.contains(&waiter.way))
            .map(|(at, waiter)| (*at, waiter.clone()))
    }

    /// Answers a waiter.
    pub fn release(&mut self, ticket: Ticket, waiter: &Waiter, reply: Result<impl Into<Arc<[u8]>>, Raised>) {
        self.apply(Effect::Leave(ticket));
        self.released.push((waiter.session, waiter.call, reply.map(Into::into)));
    }

    /// Answers all waiters in the order in which they came; returns their number.
    pub fn release_all<V: Into<Arc<[u8]>>>(&mut self, reply: impl Fn(usize) -> Result<V, Raised>) -> usize {
        let waiters: Vec<(Ticket, Waiter)> =
            self.state.waiters().iter().map(|(at, waiter)| (*at, waiter.clone())).collect();
        waiters.iter().enumerate().for_each(|(place, (at, waiter))| self.release(*at, waiter, reply(place)));
        waiters.len()
    }
}

/// The arguments of a call.
pub(crate) struct Args<'a>(pub Vec<&'a [u8]>);

impl<'a> Args<'a> {
    pub fn raw(&self, at: usize) -> std::result::Result<&'a [u8], Raised> {
        self.0.get(at).copied().ok_or_else(|| Raised::new("TypeError", format!("argument {} is missing", at + 1)))
    }

    pub fn int(&self, at: usize) -> std::result::Result<i64, Raised> {
        let value = self.raw(at)?;
        value::as_int(value)
            .ok_or_else(|| Raised::new("TypeError", format!("argument {} is not a whole number of 64 bits", at + 1)))
    }

    pub fn int_or(&self, at: usize, otherwise: i64) -> std::result::Result<i64, Raised> {
        if self.0.get(at).is_none_or(|value| value::is_nil(value)) { Ok(otherwise) } else { self.int(at) }
    }

    pub fn float(&self, at: usize) -> std::result::Result<f64, Raised> {
        value::as_float(self.raw(at)?)
            .ok_or_else(|| Raised::new("TypeError", format!("argument {} is not a number", at + 1)))
    }

    pub fn bytes(&self, at: usize) -> std::result::Result<&'a [u8], Raised> {
        value::as_bytes(self.raw(at)?)
            .ok_or_else(|| Raised::new("TypeError", format!("argument {} is not bytes", at + 1)))
    }

    pub fn elements(&self, at: usize) -> std::result::Result<Vec<&'a [u8]>, Raised> {
        value::elements(self.raw(at)?)
            .map_err(|_| Raised::new("TypeError", format!("argument {} is not a sequence", at + 1)))
    }
}

fn reply(value: Vec<u8>) -> std::result::Result<Flow, Raised> {
    Ok(Flow::Reply(value))
}

/// A copy of bytes of the state, if it is not too large.
fn reply_bytes(bytes: &[u8]) -> std::result::Result<Flow, Raised> {
    if bytes.len() > ANSWER_MAX_BYTES { Ok(Flow::TooLarge) } else { reply(value::bytes(bytes)) }
}

/// Values of the state as one array, if it is not too large: what they take is known before any of them is copied.
fn listed<'s>(values: impl Iterator<Item = &'s [u8]>) -> std::result::Result<Flow, Raised> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for value in values {
        bytes += value.len();
        if bytes > ANSWER_MAX_BYTES {
            return Ok(Flow::TooLarge);
        }
        all.push(value);
    }
    reply(value::array(all.into_iter()))
}

fn done() -> std::result::Result<Flow, Raised> {
    reply(value::nil())
}

/// The method table has no such name; callers check this first.
fn unknown(method: &str) -> std::result::Result<Flow, Raised> {
    Err(Raised::new("AttributeError", method))
}
