//! Single values: numbers, booleans, references, bytes and matrices.

use super::{Args, Flow, Turn, done, reply, reply_bytes, unknown};
use crate::{Raised, state::Effect, value};

const VALUE: u8 = 0;
const ROWS: u8 = 0;
const COLUMNS: u8 = 1;
const CELL_BYTES: usize = 8;

fn overflow() -> Raised {
    Raised::new("OverflowError", "the number does not fit 64 bits")
}

/// `AtomicInt` and `AtomicLong`.
pub(super) fn number(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let now = turn.state.number(VALUE);
    let (next, answer) = match method {
        "" => (args.int_or(0, 0)?, now),
        "get" => return reply(value::int(now)),
        "set" => {
            turn.number(VALUE, args.int(0)?);
            return done();
        }
        "get_and_set" => (args.int(0)?, now),
        "add_and_get" => now.checked_add(args.int_or(0, 1)?).map(|sum| (sum, sum)).ok_or_else(overflow)?,
        "get_and_add" => (now.checked_add(args.int_or(0, 1)?).ok_or_else(overflow)?, now),
        "multiply_and_get" => now.checked_mul(args.int(0)?).map(|product| (product, product)).ok_or_else(overflow)?,
        "compare_and_set" => {
            let (expected, next) = (args.int(0)?, args.int(1)?);
            if expected == now {
                turn.number(VALUE, next);
            }
            return reply(value::boolean(expected == now));
        }
        _ => return unknown(method),
    };
    turn.number(VALUE, next);
    reply(value::int(answer))
}

/// `AtomicBool`.
pub(super) fn truth(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let given = args.0.iter().all(|value| value::is_nil(value) || value::as_bool(value).is_some());
    if !given {
        return Err(Raised::new("TypeError", "neither True nor False"));
    }
    any(turn, method, args, value::boolean(false))
}

/// `AtomicBytes`: any bytes.
pub(super) fn reference(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    any(turn, method, args, value::bytes(b""))
}

fn any(turn: &mut Turn<'_>, method: &str, args: &Args<'_>, otherwise: Vec<u8>) -> Result<Flow, Raised> {
    let now = turn.state.field(VALUE).map_or_else(|| otherwise.clone(), <[u8]>::to_vec);
    match method {
        "" => turn.field(VALUE, args.0.first().map_or(otherwise, |value| value.to_vec())),
        "get" => return reply(now),
        "set" => turn.field(VALUE, args.raw(0)?.to_vec()),
        "get_and_set" => {
            turn.field(VALUE, args.raw(0)?.to_vec());
            return reply(now);
        }
        "compare_and_set" => {
            let (expected, next) = (args.raw(0)?, args.raw(1)?);
            if expected == now {
                turn.field(VALUE, next.to_vec());
            }
            return reply(value::boolean(expected == now));
        }
        _ => return unknown(method),
    }
    done()
}

/// `Blob`.
pub(super) fn blob(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    let length = turn.state.blob().len();
    let place = |at: usize| -> Result<usize, Raised> {
        usize::try_from(args.int_or(at, 0)?).map_err(|_| Raised::new("ValueError", "a place below 0"))
    };
    match method {
        "" if args.0.is_empty() => {}
        "" | "replace" => {
            let bytes = args.bytes(0)?;
            turn.apply(Effect::Write(0, bytes.to_vec(), bytes.len()));
        }
        "read" => {
            let from = place(0)?.min(length);
            let count = usize::try_from(args.int_or(1, -1)?).unwrap_or(usize::MAX);
            return reply_bytes(&turn.state.blob()[from..from.saturating_add(count).min(length)]);
        }
        "write" => {
            let (at, bytes) = (place(0)?, args.bytes(1)?);
            let end = at.checked_add(bytes.len()).filter(|end| *end <= super::STATE_MAX_BYTES);
            let end = end.ok_or_else(|| Raised::new("ValueError", "it would be longer than the limit of an object"))?;
            turn.apply(Effect::Write(at, bytes.to_vec(), end.max(length)));
        }
        "append" => {
            let bytes = args.bytes(0)?;
            turn.apply(Effect::Write(length, bytes.to_vec(), length + bytes.len()));
            return reply(value::count(length));
        }
        "truncate" => {
            let to = place(0)?.min(length);
            turn.apply(Effect::Write(to, Vec::new(), to));
        }
        "len" => return reply(value::count(length)),
        _ => return unknown(method),
    }
    done()
}

/// `Matrix`: numbers of 64 bits in rows, little-endian.
pub(super) fn matrix(turn: &mut Turn<'_>, method: &str, args: &Args<'_>) -> Result<Flow, Raised> {
    if method.is_empty() {
        let (rows, columns) = (args.int(0)?, args.int(1)?);
        let cells = usize::try_from(rows)
            .ok()
            .zip(usize::try_from(columns).ok())
            .and_then(|(rows, columns)| rows.checked_mul(columns));
        let cells = cells.filter(|cells| *cells > 0 && *cells <= super::STATE_MAX_BYTES / CELL_BYTES);
        let cells = cells.ok_or_else(|| Raised::new("ValueError", format!("a matrix of {rows} by {columns}")))?;
        turn.number(ROWS, rows);
        turn.number(COLUMNS, columns);
        turn.apply(Effect::Write(0, vec![0; cells * CELL_BYTES], cells * CELL_BYTES));
        return done();
    }
    let (rows, columns) = (turn.state.number(ROWS), turn.state.number(COLUMNS));
    let within = |at: i64, most: i64, what: &str| -> Result<usize, Raised> {
        let at = if at < 0 { at.saturating_add(most) } else { at };
        let found = (0..most).contains(&at).then_some(at as usize);
        found.ok_or_else(|| Raised::new("IndexError", format!("{what} {at} of {most}")))
    };
    let row = || within(args.int(0)?, rows, "row").map(|row| row * columns as usize * CELL_BYTES);
    let cell = || Ok(row()? + within(args.int(1)?, columns, "column")? * CELL_BYTES);
    let row_bytes = columns as usize * CELL_BYTES;
    let length = turn.state.blob().len();
    let sized = |bytes: &[u8], wanted: usize| {
        let reported = format!("{} bytes instead of {wanted}", bytes.len());
        if bytes.len() == wanted { Ok(()) } else { Err(Raised::new("ValueError", reported)) }
    };
    match method {
        "shape" => return reply(value::array([&*value::int(rows), &*value::int(columns)].into_iter())),
        "get" => return reply(value::float(number_at(turn.state.blob(), cell()?))),
        "row" => {
            let at = row()?;
            return reply_bytes(&turn.state.blob()[at..at + row_bytes]);
        }
        "all" => return reply_bytes(turn.state.blob()),
        "set" => {
            let (at, value) = (cell()?, args.float(2)?);
            turn.apply(Effect::Write(at, value.to_le_bytes().to_vec(), length));
        }
        "add" => {
            let at = cell()?;
            let sum = number_at(turn.state.blob(), at) + args.float(2)?;
            turn.apply(Effect::Write(at, sum.to_le_bytes().to_vec(), length));
            return reply(value::float(sum));
        }
        "set_row" | "set_all" => {
            let (at, wanted, of) = if method == "set_row" { (row()?, row_bytes, 1) } else { (0, length, 0) };
            let bytes = args.bytes(of)?;
            sized(bytes, wanted)?;
            turn.apply(Effect::Write(at, bytes.to_vec(), length));
        }
        "add_row" | "add_all" => {
            let (at, wanted, of) = if method == "add_row" { (row()?, row_bytes, 1) } else { (0, length, 0) };
            let bytes = args.bytes(of)?;
            sized(bytes, wanted)?;
            let now = &turn.state.blob()[at..at + wanted];
            let sums = (0..wanted)
                .step_by(CELL_BYTES)
                .flat_map(|cell| (number_at(now, cell) + number_at(bytes, cell)).to_le_bytes());
            let sums: Vec<u8> = sums.collect();
            turn.apply(Effect::Write(at, sums, length));
        }
        _ => return unknown(method),
    }
    done()
}

fn number_at(bytes: &[u8], at: usize) -> f64 {
    bytes[at..].first_chunk().map_or(0.0, |cell| f64::from_le_bytes(*cell))
}
