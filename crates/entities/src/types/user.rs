//! Objects of user classes: the state contains their fields, and their calls in order. Workers run the methods; `space::steps` decides when.

use super::{Args, Flow, Turn, done, reply, unknown};
use millrace_wire::{Code, Error};

use crate::{Outcome, Raised, State, state::Effect, state::Ticket, value};

// The arguments of an object's constructor, in this order.
/// The class's name.
pub(crate) const CLASS: u8 = 0;
/// The pool whose workers run its methods.
pub(crate) const POOL: u8 = 1;
/// The version of the class that wrote the fields.
pub(crate) const VERSION: u8 = 2;
/// The record of the pool's bodies that has the class.
pub(crate) const BODY: u8 = 3;
/// Identifies the code of the class, to distinguish different code of the same version.
pub(crate) const CODE: u8 = 4;
/// The arguments of the class's constructor, until it has run.
pub(crate) const NEW: u8 = 5;
/// The step that changed a field last.
pub(crate) const CHANGED: u8 = 6;
/// The waiter whose step a worker runs now.
pub(crate) const RUNNING: u8 = 7;
/// The last waiter whose guard did not hold, of those that were tried since a field changed: the guards of all waiters before it do not
/// hold either.
pub(crate) const TRIED: u8 = 8;

/// A call that may change fields, and one of a method that is marked read-only.
const CALL: u8 = 0;
pub(crate) const READ: u8 = 1;

// The arguments of a call; the first five are those of the constructor.
/// The method.
pub(crate) const METHOD: usize = 5;
/// How many milliseconds it may take.
pub(crate) const TIMEOUT: usize = 6;
/// The number of arguments; the last one has the method's own arguments.
const ARGUMENTS: usize = 8;

/// Stores a class on the hosts that have its objects. Its sixth argument is the body.
pub(crate) const CLASS_METHOD: &str = "class";

/// The body in a call that stores a class: its number and its bytes; `None` for any other call.
pub fn shipped_class<'a>(method: &str, args: &'a [u8]) -> Option<(i64, &'a [u8])> {
    let args = value::elements(args).ok().filter(|_| method == CLASS_METHOD)?;
    Some((value::as_int(args.get(usize::from(BODY))?)?, value::as_bytes(args.get(METHOD)?)?))
}

/// The pool and the body of the class that a call names, and its version.
pub(crate) fn class_of(args: &[u8]) -> Option<((Box<str>, i64), i64)> {
    let args = value::elements(args).ok()?;
    let at = |field: u8| args.get(usize::from(field)).copied();
    Some((
        (at(POOL).and_then(value::as_text)?.into(), at(BODY).and_then(value::as_int)?),
        at(VERSION).and_then(value::as_int)?,
    ))
}

/// The pool that a call of an object of a user class names.
pub fn pool_of(args: &[u8]) -> Option<&str> {
    value::elements(args).ok()?.get(usize::from(POOL)).and_then(|pool| value::as_text(pool))
}

/// What a worker gets of a call that runs within another step of its object: whether it only reads, the method, its time limit, and its
/// arguments.
pub(crate) fn own_call(method: &str, args: &[u8]) -> Option<Vec<u8>> {
    let reads = value::boolean(match method {
        "call" => false,
        "read" => true,
        _ => return None,
    });
    let args = value::elements(args).ok().filter(|args| args.len() == ARGUMENTS)?;
    let own: Vec<&[u8]> = [&*reads].into_iter().chain(args.into_iter().skip(METHOD)).collect();
    Some(value::array(own.into_iter()))
}

/// Whether a worker can decode the arguments of a call's method without running code. In Java, each argument is a byte string.
pub fn is_plain_call(args: &[u8]) -> bool {
    let Ok(args) = value::elements(args) else { return false };
    if args.len() == METHOD {
        // The query for the version, and the deletion.
        return true;
    }
    let Some(own) = args.get(ARGUMENTS - 1).and_then(|own| value::as_bytes(own)) else { return false };
    let is_plain = |element: &[u8]| value::is_plain(value::as_bytes(element).unwrap_or(element));
    args.len() == ARGUMENTS && value::elements(own).is_ok_and(|elements| elements.into_iter().all(is_plain))
}

/// The arguments that the class's own constructor gets, from those of the object; nothing if there are none.
pub(crate) fn constructor_arguments<'a>(args: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let own = value::elements(value::as_bytes(args.get(usize::from(NEW))?)?).ok()?;
    // In Python they are a list and a dict of those that are named.
    let is_empty = own.is_empty() || own == [&[0x90][..], &[0x80][..]];
    (!is_empty).then_some(own)
}

/// Whether a call names exactly the class of an object, or that to which the step that it is in migrates it: a version, a body and a code.
/// With a newer record of the class, the call would make workers decode that record.
pub(crate) fn is_of_class(state: &State, becomes: Option<&[Vec<u8>; 3]>, args: &[u8]) -> bool {
    let Ok(args) = value::elements(args) else { return false };
    let field = |field: u8| match (field, becomes) {
        (VERSION, Some([version, ..])) => Some(&**version),
        (BODY, Some([_, body, _])) => Some(&**body),
        (CODE, Some([.., code])) => Some(&**code),
        _ => state.field(field),
    };
    let same = |name: u8| field(name) == args.get(usize::from(name)).copied();
    let body = |value: Option<&[u8]>| value.and_then(value::as_int);
    [CLASS, POOL, VERSION, CODE].into_iter().all(same)
        && body(args.get(usize::from(BODY)).copied()) <= body(field(BODY))
}

/// `Shared`.
pub(super) fn shared(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    check(args)?;
    match method {
        "" => {
            for field in [CLASS, POOL, VERSION, BODY, CODE, NEW] {
                turn.field(field, args.raw(field.into())?.to_vec());
            }
            done()
        }
        "call" | "read" | "version" => {
            for (field, what) in [(CLASS, "class"), (POOL, "pool")] {
                let (is, given) = (turn.state.field(field).unwrap_or_default(), args.raw(field.into())?);
                if is != given {
                    let text = |value| value::as_text(value).unwrap_or("?").to_owned();
                    let reported = format!("the object's {what} is '{}', not '{}'", text(is), text(given));
                    return Err(Raised::new("TypeError", reported));
                }
            }
            if method == "version" {
                return reply(turn.state.field(VERSION).unwrap_or_default().to_vec());
            }
            args.raw(ARGUMENTS - 1)?;
            args.int(TIMEOUT)?;
            turn.wait_once(if method == "read" { READ } else { CALL }, value::array(args.0.iter().copied()))
        }
        _ => unknown(method),
    }
}

/// Refuses a class whose description does not follow the protocol.
fn check(args: &Args<'_>) -> Result<(), Raised> {
    for text in [CLASS, POOL] {
        let named = value::as_text(args.raw(text.into())?).is_some_and(|text| !text.is_empty());
        named.then_some(()).ok_or_else(|| Raised::new("TypeError", "a user class must have a name and a pool"))?;
    }
    let numbered = args.int(VERSION.into())? >= 0 && args.int(BODY.into())? > 0;
    numbered
        .then_some(())
        .ok_or_else(|| Raised::new("ValueError", "a version must be 0 or more, and a body must have a number"))
}

/// A caller's timeout. A step that has begun continues, and the caller gets its answer.
pub(super) fn gives_up(turn: &mut Turn<'_>, ticket: Ticket) -> Option<Outcome> {
    if running(turn.state) == Some(ticket) {
        return None;
    }
    let was_tried = tried(turn.state) >= Some(ticket);
    turn.apply(Effect::Leave(ticket));
    let reported =
        if was_tried { "the guard of the method did not hold" } else { "the object was busy with other calls" };
    Some(Err(Raised::new("TimeoutError", reported)))
}

/// Refuses a constructor of another class or pool than the call's, because the caller's rights were checked for the call's pool.
pub(crate) fn check_new(args: &[u8], new: Option<&[u8]>) -> Result<(), Error> {
    let Some(new) = new else { return Ok(()) };
    let (args, new) = (value::elements(args)?, value::elements(new)?);
    let named = usize::from(NEW);
    let same = args.len() >= named && args.get(..named) == new.get(..named);
    same.then_some(()).ok_or_else(|| Code::ObjectCallInvalid.error("the constructor is of another class than the call"))
}

/// The waiter whose step a worker runs.
pub(crate) fn running(state: &State) -> Option<Ticket> {
    ticket_of(state.field(RUNNING))
}

/// The last waiter whose guard does not hold: see [`TRIED`].
pub(crate) fn tried(state: &State) -> Option<Ticket> {
    ticket_of(state.field(TRIED))
}

fn ticket_of(field: Option<&[u8]>) -> Option<Ticket> {
    field.and_then(value::as_int).and_then(|ticket| u64::try_from(ticket).ok())
}

pub(crate) fn ticket_value(ticket: Ticket) -> Vec<u8> {
    value::int(i64::try_from(ticket).unwrap_or(i64::MAX))
}
