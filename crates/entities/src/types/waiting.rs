//! Types to wait for, without a holder: queues, events, barriers, latches, futures.

use super::{Args, Flow, Turn, Type, done, reply, unknown};
use crate::{
    Outcome, Raised,
    state::{Ticket, Waiter},
    value,
};
use std::sync::Arc;

const WAIT: u8 = 0;
// A queue.
const MOST: u8 = 0;
const UNFINISHED: u8 = 1;
const GET: u8 = 0;
const PUT: u8 = 1;
const JOIN: u8 = 2;
// A barrier.
const PARTIES: u8 = 0;
const BROKEN: u8 = 1;
// An event, a latch.
const LEFT: u8 = 0;
// A future.
const STATUS: u8 = 0;
const OUTCOME: u8 = 1;
const PENDING: i64 = 0;
const RESULT: i64 = 1;
const EXCEPTION: i64 = 2;
const CANCELLED: i64 = 3;

/// The answer of a call whose time is over.
pub(super) fn gives_up(kind: Type, turn: &mut Turn<'_>, waiter: &Waiter) -> Outcome {
    match (kind, waiter.way) {
        (Type::Queue, GET) => Err(Raised::new("queue.Empty", "")),
        (Type::Queue, PUT) => Err(Raised::new("queue.Full", "")),
        (Type::Barrier, _) => {
            break_barrier(turn);
            Err(broken())
        }
        (Type::Future, _) => Err(Raised::new("TimeoutError", "")),
        _ => Ok(value::boolean(false)),
    }
}

/// `Queue`.
pub(super) fn queue(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let (most, length) = (turn.state.number(MOST), turn.state.sequence().len());
    match method {
        "" => {
            turn.number(MOST, args.int_or(0, 0)?);
            done()
        }
        "put" => {
            let item = args.raw(0)?;
            if most > 0 && length as i64 >= most {
                return turn.wait(PUT, item.to_vec());
            }
            enter(turn, item.to_vec());
            done()
        }
        "get" => {
            let Some(item) = turn.take(0) else { return turn.wait(GET, value::nil()) };
            if let Some((ticket, waiter)) = turn.first(&[PUT]) {
                turn.release(ticket, &waiter, Ok(value::nil()));
                enter(turn, waiter.value);
            }
            reply(item)
        }
        "task_done" => {
            let left = turn.state.number(UNFINISHED) - 1;
            if left < 0 {
                return Err(Raised::new("ValueError", "task_done() called too many times"));
            }
            turn.number(UNFINISHED, left);
            while left == 0
                && let Some((ticket, waiter)) = turn.first(&[JOIN])
            {
                turn.release(ticket, &waiter, Ok(value::boolean(true)));
            }
            done()
        }
        "join" => match turn.state.number(UNFINISHED) {
            0 => reply(value::boolean(true)),
            _ => turn.wait(JOIN, value::nil()),
        },
        "qsize" => reply(value::count(length)),
        "maxsize" => reply(value::int(most)),
        _ => unknown(method),
    }
}

/// An item enters the queue, or goes to a waiter.
fn enter(turn: &mut Turn<'_>, item: Vec<u8>) {
    let unfinished = turn.state.number(UNFINISHED) + 1;
    turn.number(UNFINISHED, unfinished);
    match turn.first(&[GET]) {
        Some((ticket, waiter)) => turn.release(ticket, &waiter, Ok(item)),
        None => turn.push(item),
    }
}

/// A log has grown: those who waited for as much have their answer.
pub(super) fn grown(turn: &mut Turn<'_>) {
    let length = turn.state.sequence().len() as i64;
    let enough = |waiter: &Waiter| value::as_int(&waiter.value).is_some_and(|wanted| wanted <= length);
    let waiters = turn.state.waiters().iter().filter(|(_, waiter)| enough(waiter));
    let waiters: Vec<(Ticket, Waiter)> = waiters.map(|(at, waiter)| (*at, waiter.clone())).collect();
    waiters.iter().for_each(|(ticket, waiter)| turn.release(*ticket, waiter, Ok(value::boolean(true))));
}

/// `Event`.
pub(super) fn event(turn: &mut Turn<'_>, method: &str, _args: &Args<'_>) -> Result<Flow, Raised> {
    let is_set = turn.state.number(LEFT) != 0;
    match method {
        "" => done(),
        "set" => {
            turn.number(LEFT, 1);
            turn.release_all(|_| Ok(value::boolean(true)));
            done()
        }
        "clear" => {
            turn.number(LEFT, 0);
            done()
        }
        "is_set" => reply(value::boolean(is_set)),
        "wait" if is_set => reply(value::boolean(true)),
        "wait" => turn.wait(WAIT, value::nil()),
        _ => unknown(method),
    }
}

/// `CountDownLatch`.
pub(super) fn latch(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let left = turn.state.number(LEFT);
    match method {
        "" => match args.int(0)? {
            count if count >= 0 => {
                turn.number(LEFT, count);
                done()
            }
            count => Err(Raised::new("ValueError", format!("a count of {count}"))),
        },
        "count_down" => {
            let by = args.int_or(0, 1)?;
            if by < 0 {
                return Err(Raised::new("ValueError", format!("a count of {by}")));
            }
            let left = (left - by).max(0);
            turn.number(LEFT, left);
            if left == 0 {
                turn.release_all(|_| Ok(value::boolean(true)));
            }
            reply(value::int(left))
        }
        "get_count" => reply(value::int(left)),
        "wait" if left == 0 => reply(value::boolean(true)),
        "wait" => turn.wait(WAIT, value::nil()),
        _ => unknown(method),
    }
}

fn broken() -> Raised {
    Raised::new("threading.BrokenBarrierError", "")
}

/// Somebody will not come: nobody passes any more until the barrier is reset.
pub(super) fn break_barrier(turn: &mut Turn<'_>) {
    turn.field(BROKEN, value::boolean(true));
    turn.release_all(|_| Outcome::Err(broken()));
}

/// `Barrier`.
pub(super) fn barrier(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let (parties, waiting) = (turn.state.number(PARTIES), turn.state.waiters().len());
    let is_broken = turn.state.field(BROKEN).and_then(value::as_bool) == Some(true);
    match method {
        "" => match args.int(0)? {
            parties if parties > 0 => {
                turn.number(PARTIES, parties);
                done()
            }
            parties => Err(Raised::new("ValueError", format!("a barrier of {parties} parties"))),
        },
        "wait" if is_broken => Err(broken()),
        "wait" if waiting as i64 + 1 < parties => turn.wait(WAIT, value::nil()),
        "wait" => {
            turn.release_all(|place| Ok(value::count(place)));
            reply(value::count(waiting))
        }
        "reset" => {
            turn.release_all(|_| Outcome::Err(broken()));
            turn.field(BROKEN, value::boolean(false));
            done()
        }
        "abort" => {
            break_barrier(turn);
            done()
        }
        "parties" => reply(value::int(parties)),
        "n_waiting" => reply(value::count(waiting)),
        "broken" => reply(value::boolean(is_broken)),
        _ => unknown(method),
    }
}

/// `Future`.
pub(super) fn future(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let status = turn.state.number(STATUS);
    let outcome = |status: i64, value: &[u8]| value::array([&*value::int(status), value].into_iter());
    match method {
        "" => done(),
        "set_result" | "set_exception" | "cancel" => {
            let (status, value) = match (method, status) {
                ("cancel", PENDING) => (CANCELLED, value::nil()),
                ("cancel", status) => return reply(value::boolean(status == CANCELLED)),
                ("set_result", PENDING) => (RESULT, args.raw(0)?.to_vec()),
                (_, PENDING) => (EXCEPTION, args.raw(0)?.to_vec()),
                _ => return Err(Raised::new("concurrent.futures.InvalidStateError", "it has an outcome already")),
            };
            // One copy, however many wait.
            let told: Arc<[u8]> = outcome(status, &value).into();
            turn.release_all(|_| Ok(told.clone()));
            turn.number(STATUS, status);
            turn.field(OUTCOME, value);
            reply(value::boolean(true))
        }
        "done" => reply(value::int(status)),
        "result" if status == PENDING => turn.wait(WAIT, value::nil()),
        "result" => reply(outcome(status, turn.state.field(OUTCOME).unwrap_or(&value::nil()))),
        _ => unknown(method),
    }
}
