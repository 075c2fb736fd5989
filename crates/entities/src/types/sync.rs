//! Types with an owner: locks, semaphores, conditions. They are released when the owner's session ends.

use super::{Args, Flow, Turn, Type, done, reply, unknown};
use crate::{
    Outcome, Raised, Session,
    state::{Effect, Ticket, Waiter},
    value,
};

// A lock, and the one within a condition.
const OWNER: u8 = 0;
const TOKEN: u8 = 1;
// A semaphore.
const FREE: u8 = 0;
const BOUND: u8 = 1;

/// Waits for the lock.
const ACQUIRE: u8 = 0;
/// Waits to be notified.
const NOTIFY: u8 = 1;
/// Was notified, and waits for the lock.
const NOTIFIED: u8 = 2;
/// Was not notified in time, and waits for the lock.
const LATE: u8 = 3;

fn owner<'t>(turn: &'t Turn<'_>) -> Option<&'t [u8]> {
    turn.state.field(OWNER)
}

fn own(turn: &mut Turn<'_>, session: &Session) -> Vec<u8> {
    turn.field(OWNER, session.to_vec());
    let token = value::int(i64::try_from(turn.moment.token).unwrap_or(i64::MAX));
    turn.field(TOKEN, token.clone());
    token
}

/// Gives a free lock to the waiter that has waited longest.
fn pass_on(turn: &mut Turn<'_>) {
    turn.apply(Effect::Field(OWNER, None));
    if let Some((ticket, waiter)) = turn.first(&[ACQUIRE, NOTIFIED, LATE]) {
        let token = own(turn, &waiter.session);
        let answer = match waiter.way {
            ACQUIRE => token,
            way => value::boolean(way == NOTIFIED),
        };
        turn.release(ticket, &waiter, Ok(answer));
    }
}

fn check_owner(turn: &Turn<'_>) -> Result<(), Raised> {
    match owner(turn) {
        None => Err(Raised::new("RuntimeError", "release unlocked lock")),
        Some(owner) if *owner == turn.session => Ok(()),
        Some(_) => Err(Raised::new("RuntimeError", "another client holds the lock, or this one's lease has ended")),
    }
}

/// `Lock`.
pub(super) fn lock(turn: &mut Turn<'_>, method: &str, _args: &Args<'_>) -> Result<Flow, Raised> {
    match method {
        "" => done(),
        "acquire" => match owner(turn) {
            Some(_) => turn.wait(ACQUIRE, value::nil()),
            None => {
                let session = turn.session;
                reply(own(turn, &session))
            }
        },
        "release" => {
            check_owner(turn)?;
            pass_on(turn);
            done()
        }
        "locked" => reply(value::boolean(owner(turn).is_some())),
        "token" => reply(turn.state.field(TOKEN).map_or_else(|| value::int(0), <[u8]>::to_vec)),
        _ => unknown(method),
    }
}

/// `Condition`, with the lock that belongs to it.
pub(super) fn condition(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    match method {
        "wait" => {
            check_owner(turn)?;
            turn.wait(NOTIFY, value::nil())?;
            pass_on(turn);
            Ok(Flow::Wait)
        }
        "notify" => {
            check_owner(turn)?;
            let mut left = args.int_or(0, 1)?;
            while left > 0
                && let Some((ticket, waiter)) = turn.first(&[NOTIFY])
            {
                requeue(turn, ticket, waiter, NOTIFIED);
                left -= 1;
            }
            done()
        }
        _ => lock(turn, method, args),
    }
}

/// Makes a notified waiter wait for the lock.
fn requeue(turn: &mut Turn<'_>, ticket: Ticket, waiter: Waiter, way: u8) {
    turn.apply(Effect::Leave(ticket));
    turn.enqueue(Waiter { way, ..waiter });
}

/// Ends a wait at its timeout. A waiter for a notification has to acquire the lock before it gets the answer.
pub(super) fn condition_gives_up(turn: &mut Turn<'_>, ticket: Ticket, waiter: &Waiter) -> Option<Outcome> {
    match waiter.way {
        ACQUIRE => {
            turn.apply(Effect::Leave(ticket));
            Some(Ok(value::boolean(false)))
        }
        NOTIFY => {
            requeue(turn, ticket, waiter.clone(), LATE);
            if owner(turn).is_none() {
                pass_on(turn);
            }
            None
        }
        _ => None,
    }
}

/// `Semaphore`. Its map has the number of permits of each session.
pub(super) fn semaphore(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let free = turn.state.number(FREE);
    match method {
        "" => {
            let (value, bound) = (args.int_or(0, 1)?, args.int_or(1, i64::MAX)?);
            if value < 0 || bound < value {
                return Err(Raised::new("ValueError", "semaphore initial value must be >= 0"));
            }
            turn.number(FREE, value);
            turn.number(BOUND, bound);
            done()
        }
        "acquire" => {
            let (count, bound) = (args.int_or(0, 1)?, turn.state.number(BOUND));
            if !(1..=bound).contains(&count) {
                let reported = format!("{count} permits at once, of a semaphore that has at most {bound}");
                return Err(Raised::new(
                    "ValueError",
                    if count < 1 { "n must be one or more".into() } else { reported },
                ));
            }
            // Nobody overtakes those who wait for more permits than are free.
            if free < count || turn.first(&[ACQUIRE]).is_some() {
                return turn.wait(ACQUIRE, if count == 1 { value::nil() } else { value::int(count) });
            }
            turn.number(FREE, free - count);
            let session = turn.session;
            hold(turn, &session, count);
            reply(value::boolean(true))
        }
        "release" => {
            let count = args.int_or(0, 1)?;
            if count < 1 {
                return Err(Raised::new("ValueError", "n must be one or more"));
            }
            let more = free.checked_add(count).filter(|more| *more <= turn.state.number(BOUND));
            let more = more.ok_or_else(|| Raised::new("ValueError", "Semaphore released too many times"))?;
            let session = turn.session;
            let mut left = count;
            // A session may release a permit that another one acquired: it then counts as that of the session that acquired one first.
            while left > 0 {
                let own = turn.state.at(&value::bytes(&session)).is_some().then_some(value::bytes(&session));
                let Some(key) = own.or_else(|| turn.state.inserted().next().map(|(key, _)| key.to_vec())) else {
                    break;
                };
                let has = turn.state.at(&key).and_then(value::as_int).unwrap_or(0);
                let given = has.min(left).max(1);
                put_held(turn, &key, has - given);
                left -= given;
            }
            give(turn, more);
            done()
        }
        "value" => reply(value::int(free)),
        _ => unknown(method),
    }
}

fn put_held(turn: &mut Turn<'_>, key: &[u8], held: i64) {
    if held > 0 {
        turn.put(key, value::int(held));
    } else {
        turn.drop_key(key);
    }
}

fn hold(turn: &mut Turn<'_>, session: &Session, more: i64) {
    let key = value::bytes(session);
    let held = turn.state.at(&key).and_then(value::as_int).unwrap_or(0);
    put_held(turn, &key, held + more);
}

/// Gives free permits to waiters.
fn give(turn: &mut Turn<'_>, mut free: i64) {
    while let Some((ticket, waiter)) = turn.first(&[ACQUIRE])
        && let count = value::as_int(&waiter.value).unwrap_or(1)
        && count <= free
    {
        free -= count;
        hold(turn, &waiter.session, count);
        turn.release(ticket, &waiter, Ok(value::boolean(true)));
    }
    turn.number(FREE, free);
}

/// A waiter has left: those behind it take free permits.
pub(super) fn give_free(turn: &mut Turn<'_>) {
    let free = turn.state.number(FREE);
    give(turn, free);
}

/// The permits of a session whose owner ended well stay acquired, and belong to nobody: a semaphore may count items that were consumed.
pub(super) fn leave(turn: &mut Turn<'_>, session: &Session) {
    turn.drop_key(&value::bytes(session));
}

/// Releases everything that belongs to a session which has ended.
pub(super) fn freed(kind: Type, turn: &mut Turn<'_>, session: &Session) {
    if kind == Type::Semaphore {
        let held = turn.drop_key(&value::bytes(session)).as_deref().and_then(value::as_int);
        let free = turn.state.number(FREE) + held.unwrap_or(0);
        give(turn, free);
    } else if owner(turn) == Some(session) {
        pass_on(turn);
    }
}
