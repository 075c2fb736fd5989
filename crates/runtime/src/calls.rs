//! What a function may ask its host for while it runs: logs, shared objects, and for methods their object.

use crate::{Code, Error, EventId, Invocation, Result};
use std::{os::fd::BorrowedFd, time::Instant};

/// The answer to a call of a shared object, now or later.
pub enum Asked {
    /// The answer.
    Now(Result<Vec<u8>>),
    /// The call waits.
    Later(Box<dyn Later>),
}

/// A future answer. If it is dropped, the answer is discarded.
pub trait Later {
    /// Becomes readable when there is an answer.
    fn fd(&self) -> BorrowedFd<'_>;
    /// The deadline, at which [`Later::take`] must be called.
    fn until(&self) -> Option<Instant>;
    /// The answer, if it has arrived; after the deadline, the answer for a timeout.
    fn take(&mut self) -> Option<Result<Vec<u8>>>;
}

/// The calls of a function to the logs of its namespace while it runs.
///
/// An error of `get` or `latest` goes back to the function, which may handle it. A refused `append` fails the run, however
/// the function returns: an atomic run's effects are all or nothing, and its worker appends without waiting for an answer.
///
/// An executor makes the calls of a run in the order in which the function makes them, one at a time; in a streamed run none after a
/// refused append. So a replayed run makes the recorded calls.
pub trait LogCalls {
    /// In an atomic run, stages `payload` as a record of `log`: it becomes visible with the run's DONE, or never; `None`. In a streamed
    /// one, publishes it at once and returns its seqno, or for an address its number in the outbox.
    fn append(&mut self, log: &str, payload: &[u8]) -> Result<Option<u64>>;
    /// The record of `log` with this seqno, as of the run's snapshot.
    fn get(&mut self, log: &str, seqno: u64) -> Result<Vec<u8>>;
    /// The seqno of the newest record of `log` as of the run's snapshot, 0 if it has none.
    fn latest(&mut self, log: &str) -> Result<u64>;
    /// Asks a table of the namespace, or changes it with the effects of the run. The request and the answer are opaque here; `wire::table`
    /// has their bytes. A refusal goes back to the function.
    fn table(&mut self, table: &str, _request: &[u8]) -> Result<Vec<u8>> {
        Err(no_tables(table))
    }
    /// Wall-clock time in nanoseconds since 1970.
    fn now_ns(&mut self) -> u64;
    /// Fills `bytes` from the operating system's random source.
    fn random(&mut self, bytes: &mut [u8]);
    /// A secret of the function. The call is not journaled.
    fn secret(&mut self, name: &str) -> Result<Vec<u8>> {
        Err(Code::RightMissing.error(format!("the function may not read secret '{}'", name.escape_debug())))
    }
    /// What the run prints, as it comes.
    fn printed(&mut self, _bytes: &[u8]) {}
    /// The result of the run, if it ends well: a byte that says what it is, and its bytes. The last one counts.
    fn result(&mut self, _result: &[u8]) {}
}

/// The calls of a task, or of a method, to shared objects while it runs.
pub trait ObjectCalls {
    /// Calls a shared object.
    fn call(&mut self, call: &[u8]) -> Asked;
    /// The next call that the worker is to run within this work, and its number.
    fn callback(&mut self) -> Option<(u32, Vec<u8>)> {
        None
    }
    /// Becomes readable when there is such a call.
    fn callbacks(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The answer of the call with this number, which the worker has run.
    fn called_back(&mut self, _number: u32, _answer: &[u8]) {}
}

/// The calls of a method of a shared object to its host while it runs. It reaches no log.
pub trait StepCalls: ObjectCalls {
    /// The object's fields.
    fn fields(&mut self) -> Result<Vec<u8>>;
    /// The class with this number of the method's pool.
    fn class(&mut self, number: u64) -> Result<Vec<u8>>;
}

/// One run of a batch: the record, and the implementations of its calls.
pub struct Run<'a> {
    /// The record that causes the run.
    pub invocation: Invocation<'a>,
    /// Answers its calls to logs.
    pub logs: &'a mut dyn LogCalls,
    /// Answers its calls to shared objects; none if it is not a task.
    pub objects: Option<&'a mut dyn ObjectCalls>,
}

/// A method call of a shared object of a user class, which runs in what runs the tasks of its pool.
#[derive(Clone, Copy, Debug)]
pub struct StepWork<'a> {
    /// The pool.
    pub pool: &'a str,
    /// Names the step, as a run's id names a run.
    pub id: EventId,
    /// What to do, as `spec/protocol/worker.md` defines it. Only code of the class's language decodes it.
    pub request: &'a [u8],
}

/// A stream of bytes in both directions between a worker and its host.
#[derive(Clone, Copy, Debug)]
pub struct StreamWork<'a> {
    /// What the worker is to do, such as the name of an action.
    pub name: &'a str,
    /// Names the stream, as a run's id names a run.
    pub id: EventId,
    /// Its arguments. Only the worker decodes them.
    pub request: &'a [u8],
}

/// How the bytes of one direction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// All of them came.
    Whole,
    /// Their source failed.
    Reset(Error),
}

/// What a host has for a worker at the moment.
#[derive(Debug)]
pub enum Taken<'a> {
    /// These bytes. None, if they are empty.
    Bytes(&'a [u8]),
    /// There are no further bytes.
    End(StreamEnd),
}

/// The host's end of a stream. Its methods do not block.
pub trait StreamCalls: Send {
    /// How many more bytes the worker may send: those for which there is room, and that an earlier call has not returned.
    fn room(&mut self) -> u32;
    /// The next bytes of the worker, never more than there is room for.
    fn put(&mut self, bytes: &[u8]);
    /// The worker sends no more bytes. It is called once.
    fn ended(&mut self, how: StreamEnd);
    /// The next bytes for the worker, at most this many. It may be called with 0, and is not called again after [`Taken::End`].
    fn take(&mut self, bytes_max: usize) -> Taken<'_>;
    /// Becomes readable when [`StreamCalls::room`] or [`StreamCalls::take`] has something new. The caller reads from it what is there.
    fn ready(&self) -> BorrowedFd<'_>;
    /// What the work has returned, if it succeeded.
    fn returned(&mut self, _result: &[u8]) {}
}

/// The answer to a call of a table by a run that cannot use tables.
pub fn no_tables(table: &str) -> Error {
    Code::TableUnavailable.error(format!("table '{}'", table.escape_debug()))
}

/// The answer to a call of a shared object by a run that is no task.
pub(crate) fn no_objects() -> Error {
    Code::ObjectCallInvalid.error("this function is not a task; only tasks can call shared objects")
}
