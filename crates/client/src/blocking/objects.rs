//! Shared objects and tasks through the blocking client.
//!
//! A call has a number in its session, so it may be sent again over another connection and takes effect once. This client replaces a lost
//! connection, for the time in the options.

use super::{Again, Client};
use crate::{
    ask,
    resilient::{Backoff, is_lost},
};
use millrace_wire::{
    Code, Error, EventId, Result, Transient,
    protocol::{
        Bytes, Call, Failure, Frame, Invoke, Invoked, Message, Opened, Raised, Returned, Revoke, Revoked, Session,
    },
};
use std::{cell::Cell, sync::atomic::Ordering, thread};

/// A call of a shared object.
pub type Asked<'a> = Call<'a>;

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It returned this value, in MessagePack.
    Returned(u64, Vec<u8>),
    /// It raised an exception of this class, with this text.
    Raised(u64, String, String),
    /// It waits: the client repeats it with the same number.
    Waiting(u64),
}

fn answer(frame: &Frame<'_>) -> Result<Answer> {
    match frame.kind {
        Raised::TYPE => {
            let Raised { incarnation, class, text } = frame.message()?;
            Ok(Answer::Raised(incarnation, class.into(), text.into()))
        }
        Failure::TYPE => Err(ask::failure(&frame.message()?)),
        _ => {
            let Returned { incarnation, waiting, value } = frame.message()?;
            Ok(if waiting { Answer::Waiting(incarnation) } else { Answer::Returned(incarnation, value.into()) })
        }
    }
}

/// Whether another host may answer: this one knows no majority of the group, or its disk refuses writes.
fn elsewhere(error: &Error) -> bool {
    error.code() == Code::GroupUnavailable || error.code().transient() == Some(Transient::Disk)
}

impl Client {
    /// Repeats a request until there is an answer. The request takes effect once, however often it is sent and, with `anywhere`, to
    /// whichever host.
    fn persist<M: Message, T>(
        &self,
        message: &M,
        (bytes, wait_ms, anywhere): (usize, u32, bool),
        take: impl Fn(&Frame<'_>) -> Result<T>,
    ) -> Result<T> {
        self.persist_noting(message, (bytes, wait_ms, anywhere), take, &Cell::new(false))
    }

    /// The same. `lost` is set if a connection was lost over which a host may have got the request.
    fn persist_noting<M: Message, T>(
        &self,
        message: &M,
        (bytes, wait_ms, anywhere): (usize, u32, bool),
        take: impl Fn(&Frame<'_>) -> Result<T>,
        lost: &Cell<bool>,
    ) -> Result<T> {
        let mut backoff = Backoff::new(&self.inner.options);
        let others = anywhere && self.inner.places.len() > 1;
        loop {
            let at = self.inner.at.load(Ordering::Relaxed);
            match self.ask_noting(message, (bytes, wait_ms, EventId::NONE), Again::May, &take, lost) {
                // Another host may be reachable or have a majority.
                Err(error) if is_lost(&error) || (others && elsewhere(&error)) => {
                    if others {
                        self.turn_to_next(at);
                    }
                    thread::sleep(backoff.next(error)?);
                }
                answered => return answered,
            }
        }
    }

    /// Opens a session or renews its lease; a lease of 0 ends it. With `resume` the session must exist. Returns whether it existed, and its lease.
    pub fn open_session(
        &self,
        session: &[u8; 16],
        application: &str,
        lease_ms: u32,
        resume: bool,
    ) -> Result<(bool, u32)> {
        let message = Session { session, application, lease_ms, resume };
        self.persist(&message, (application.len(), 0, true), |frame| {
            let Opened { resumed, lease_ms } = ask::answer(frame)?;
            Ok((resumed, lease_ms))
        })
    }

    /// Calls a shared object. If the session has ended, the call was not carried out, unless that is unknown because a connection was lost
    /// before the answer came ([`Code::OutcomeUnknown`]).
    pub fn call(&self, call: &Asked<'_>) -> Result<Answer> {
        let lost = Cell::new(false);
        let bytes = call.arguments.len() + call.new.len();
        match self.persist_noting(call, (bytes, call.wait_ms, true), answer, &lost) {
            Err(error) if error.code() == Code::SessionExpired && lost.get() => Err(Code::OutcomeUnknown
                .error("the connection was lost before the answer, and the session ended before it was replaced")),
            answered => answered,
        }
    }

    /// Submits tasks to a pool, all or none; returns the number of the first. With `key`, repeating the request is safe.
    pub fn invoke(&self, pool: &str, bodies: bool, tasks: &[&[u8]], key: &str) -> Result<u64> {
        let bytes = tasks.iter().map(|task| task.len() + 8).sum();
        let tasks = tasks.iter().map(|task| Bytes::new(task)).collect();
        self.persist(&Invoke { pool, bodies, tasks, key }, (bytes, 0, false), |frame| {
            Ok(ask::answer::<Invoked>(frame)?.first)
        })
    }

    /// Cancels a task that has not begun; returns whether that was so.
    pub fn revoke(&self, pool: &str, task: u64) -> Result<bool> {
        self.persist(&Revoke { pool, task }, (0, 0, false), |frame| Ok(ask::answer::<Revoked>(frame)?.cancelled))
    }
}
