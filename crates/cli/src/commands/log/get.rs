//! `millrace log get`: the latest record, one, or a range.

use super::{parse_seqno, record_object};
use crate::{
    args::GetArgs,
    out::Out,
    place::{Found, Place},
    report::{self, Failure, Outcome},
    show,
};
use millrace_node::{Code, Record};

pub fn run(place: &Place, args: &GetArgs, out: &mut Out) -> Outcome {
    if args.all || args.from.is_some() || args.to.is_some() {
        return range(place, args, out);
    }
    let record = match &args.seqno {
        Some(text) => place.get(&args.log, parse_seqno(text)?)?,
        None => match place.bounds(&args.log)?.1 {
            0 => return Err(Code::AboveTail.error(format!("log '{}' has no records yet", args.log)).into()),
            _ => place.newest(&args.log)?,
        },
    };
    if out.json() {
        out.object(&record_object(&args.log, &record))?;
    } else if args.raw {
        out.bytes(&record.payload)?;
    } else {
        let text = show::whole(&record.payload);
        out.line(text.strip_suffix('\n').unwrap_or(&text))?;
    }
    Ok(())
}

fn range(place: &Place, args: &GetArgs, out: &mut Out) -> Outcome {
    let (from, to) = span(place, &args.log, args.from.as_deref(), args.to.as_deref())?;
    let width = to.to_string().len();
    let now_us = show::now_us();
    let mut damaged = false;
    place.read(&args.log, from, to, &mut |seqno, found| match found {
        Found::Record(record) => print(&args.log, &record, args.raw, width, now_us, out),
        // A request for all records returns the existing ones.
        Found::Missed(_) if args.from.is_none() => Ok(()),
        Found::Missed(_) => Err(below_history(&args.log, seqno).into()),
        // Damage is confined to its record: the error is printed in its place, and the other records normally.
        Found::Damaged(error) => {
            damaged = true;
            out.flush()?;
            report::say(&error, out.json());
            Ok(())
        }
    })?;
    if damaged { Err(Failure::Said(1)) } else { Ok(()) }
}

/// The bounds of a range as typed, within what the log has; an empty log spans from 1 to 0.
pub fn span(place: &Place, log: &str, from: Option<&str>, to_text: Option<&str>) -> Outcome<(u64, u64)> {
    let (earliest, latest) = place.bounds(log)?;
    let to = to_text.map(parse_seqno).transpose()?.unwrap_or(latest);
    let next = from.map(parse_seqno).transpose()?.unwrap_or(earliest.max(1));
    if let (Some(first), Some(last)) = (from, to_text)
        && next > to
    {
        let detail = format!("--from {first} is greater than --to {last}");
        return Err(Code::ValueInvalid.error(detail).into());
    }
    if to_text.is_some() && to < earliest {
        return Err(below_history(log, to).into());
    }
    if to > latest || (from.is_some() && next > latest) {
        let asked = next.max(to);
        let error =
            Code::AboveTail.error(format!("record {asked} of log '{log}' does not exist; the latest is {latest}"));
        return Err(error.into());
    }
    Ok((next, to))
}

pub fn below_history(log: &str, seqno: u64) -> millrace_node::Error {
    Code::BelowHistory.error(format!("record {seqno} of log '{log}' has left the log's history"))
}

fn print(log: &str, record: &Record, raw: bool, width: usize, now_us: u64, out: &mut Out) -> Outcome {
    if out.json() {
        out.object(&record_object(log, record))?;
    } else if raw {
        out.bytes(&record.payload)?;
        out.bytes(b"\n")?;
    } else {
        let when = out.styled(crate::out::Style::Dim, &format!("{:>8}", show::ago(record.hlc, now_us)));
        out.line(format!("{:>width$}  {when}  {}", record.seqno, show::one_line(&record.payload)))?;
    }
    Ok(())
}
