//! `millrace log get`: the latest record, one, or a range.

use super::{parse_seqno, record_object};
use crate::{
    args::GetArgs,
    out::Out,
    report::{self, Failure, Outcome},
    show,
};
use millrace_node::{Code, Namespace, Record};

pub fn run(namespace: &Namespace, args: &GetArgs, out: &mut Out) -> Outcome {
    if args.all || args.from.is_some() || args.to.is_some() {
        return range(namespace, args, out);
    }
    let seqno = match &args.seqno {
        Some(text) => parse_seqno(text)?,
        None => match namespace.latest(&args.log)? {
            0 => return Err(Code::AboveTail.error(format!("log '{}' has no records yet", args.log)).into()),
            latest => latest,
        },
    };
    let record = namespace.get(&args.log, seqno)?;
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

fn range(namespace: &Namespace, args: &GetArgs, out: &mut Out) -> Outcome {
    let log = namespace.log(&args.log)?;
    let (earliest, latest) = (log.earliest(), log.latest());
    let to = args.to.as_deref().map(parse_seqno).transpose()?.unwrap_or(latest);
    let mut next = args.from.as_deref().map(parse_seqno).transpose()?.unwrap_or(earliest.max(1));
    if to > latest || (args.from.is_some() && next > latest) {
        let asked = next.max(to);
        let error = Code::AboveTail
            .error(format!("record {asked} of log '{}' does not exist; the latest is {latest}", args.log));
        return Err(error.into());
    }
    let width = to.to_string().len();
    let now_us = show::now_us();
    let mut damaged = false;
    while next <= to {
        match namespace.get(&args.log, next) {
            Ok(record) => print(&args.log, &record, args.raw, width, now_us, out)?,
            // What was appended meanwhile may have pushed records out of the history; whoever asked for all of it wants
            // what is there.
            Err(error) if error.code() == Code::BelowHistory && args.from.is_none() => {
                next = next.max(log.earliest().saturating_sub(1));
            }
            // Damage is confined to its record: it is told in its place, and the others are printed.
            Err(error) if error.code() == Code::EntryDamaged => {
                damaged = true;
                out.flush()?;
                report::say(&error, out.json());
            }
            Err(error) => return Err(error.into()),
        }
        next += 1;
    }
    if damaged { Err(Failure::Said(1)) } else { Ok(()) }
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
