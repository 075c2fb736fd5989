//! Types that calls wait for and that have no owner: queues, events, barriers, latches, futures.

use super::{Args, Flow, Turn, Type, done, listed, reply, unknown};
use crate::{
    Outcome, Raised, Session,
    state::{Effect, Ticket, Waiter},
    value,
};
use std::{collections::VecDeque, sync::Arc};

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
/// The session that runs the action, while the others wait.
const ACTOR: u8 = 2;
/// Arrived while an action runs, and belongs to the next generation.
const NEXT: u8 = 1;
/// The answer to the party that has to run the action.
const ACT: i64 = -1;
// An event, a latch.
const LEFT: u8 = 0;
// A future.
const STATUS: u8 = 0;
const OUTCOME: u8 = 1;
const PENDING: i64 = 0;
const RESULT: i64 = 1;
const EXCEPTION: i64 = 2;
const CANCELLED: i64 = 3;

/// The answer of a call at its timeout.
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
        // An item that was taken, but not delivered.
        "give_back" => {
            let item = args.raw(0)?.to_vec();
            match turn.first(&[GET]) {
                Some((ticket, waiter)) => turn.release(ticket, &waiter, Ok(item)),
                None => turn.apply(Effect::Insert(0, item)),
            }
            done()
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
        "peek" => match turn.state.sequence().front() {
            Some(item) => reply(item.clone()),
            None => Err(Raised::new("queue.Empty", "")),
        },
        "items" => listed(turn.state.sequence().iter().map(Vec::as_slice)),
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

/// Answers the calls that waited for the length that a log has reached.
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

/// A party has left: the barrier is broken until it is reset.
pub(super) fn break_barrier(turn: &mut Turn<'_>) {
    turn.apply(Effect::Field(ACTOR, None));
    turn.field(BROKEN, value::boolean(true));
    turn.release_all(|_| Outcome::Err(broken()));
}

/// Whether this session runs the action of a barrier.
pub(super) fn acts(turn: &Turn<'_>, session: &Session) -> bool {
    turn.state.field(ACTOR) == Some(session)
}

/// Whether a caller brings an action.
fn wants_action(args: &Args<'_>) -> bool {
    args.0.first().is_some_and(|acts| value::as_bool(acts) == Some(true))
}

/// Handles the parties that arrived while an action ran as if they arrived now; the last one of a generation that has an action runs it.
fn next_generations(turn: &mut Turn<'_>, next: Vec<(Ticket, Waiter)>, parties: i64) {
    let mut next = VecDeque::from(next);
    while next.len() as i64 >= parties {
        let mut generation: Vec<(Ticket, Waiter)> = next.drain(..parties as usize).collect();
        let Some((ticket, last)) = generation.pop() else { return };
        if value::as_bool(&last.value) == Some(true) {
            turn.field(ACTOR, last.session.to_vec());
            turn.release(ticket, &last, Ok(value::int(ACT)));
            requeue(turn, generation, WAIT);
            return requeue(turn, next, NEXT);
        }
        generation.iter().enumerate().for_each(|(place, (at, one))| turn.release(*at, one, Ok(value::count(place))));
        turn.release(ticket, &last, Ok(value::count(generation.len())));
    }
    requeue(turn, next, WAIT);
}

fn requeue(turn: &mut Turn<'_>, waiters: impl IntoIterator<Item = (Ticket, Waiter)>, way: u8) {
    for (ticket, waiter) in waiters {
        turn.apply(Effect::Leave(ticket));
        turn.enqueue(Waiter { way, ..waiter });
    }
}

/// Handles the last party of a generation: all parties pass, or this one runs the action first.
fn pass(turn: &mut Turn<'_>, acts: bool) -> i64 {
    let waiting = turn.state.waiters().len();
    if acts {
        let session = turn.session;
        turn.field(ACTOR, session.to_vec());
        return ACT;
    }
    turn.release_all(|place| Ok(value::count(place)));
    waiting as i64
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
        "wait" if turn.state.field(ACTOR).is_some() => turn.wait(NEXT, value::boolean(wants_action(args))),
        "wait" if waiting as i64 + 1 < parties => turn.wait(WAIT, value::nil()),
        "wait" => {
            let acts = wants_action(args);
            reply(value::int(pass(turn, acts)))
        }
        "acted" if is_broken => Err(broken()),
        "acted" => {
            let session = turn.session;
            if !acts(turn, &session) {
                return Err(Raised::new("RuntimeError", "another client runs the action"));
            }
            turn.apply(Effect::Field(ACTOR, None));
            let waiters: Vec<(Ticket, Waiter)> =
                turn.state.waiters().iter().map(|(at, one)| (*at, one.clone())).collect();
            let (passing, next): (Vec<_>, Vec<_>) = waiters.into_iter().partition(|(_, waiter)| waiter.way == WAIT);
            let passed = passing.len();
            passing.iter().enumerate().for_each(|(place, (at, one))| turn.release(*at, one, Ok(value::count(place))));
            next_generations(turn, next, parties);
            reply(value::count(passed))
        }
        "reset" => {
            turn.apply(Effect::Field(ACTOR, None));
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
                _ => return Err(Raised::new("concurrent.futures.InvalidStateError", "it already has an outcome")),
            };
            // One copy, however many wait.
            let reported: Arc<[u8]> = outcome(status, &value).into();
            turn.release_all(|_| Ok(reported.clone()));
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
