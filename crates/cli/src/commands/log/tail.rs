//! `millrace log tail`: the newest records, and those that come.

use super::{parse_seqno, record_object};
use crate::{
    args::TailArgs,
    out::{Out, Style},
    place::{Found, Place, check_incarnation},
    report::{self, Failure, Outcome},
    show,
};
use millrace_node::Record;
use std::time::{Duration, Instant};

/// A wait is repeated at least so often, so that a log removed meanwhile is noticed.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub fn run(place: &Place, args: &TailArgs, out: &mut Out) -> Outcome {
    // Before its bounds: those of a log that is rebuilt in between are noticed.
    let incarnation = place.incarnation(&args.log)?;
    let (earliest, mut latest) = place.bounds(&args.log)?;
    let mut next = match &args.from {
        Some(text) => parse_seqno(text)?.max(earliest),
        None => earliest.max((latest + 1).saturating_sub(args.last)).max(1),
    };
    let (mut last_news, mut damaged) = (Instant::now(), false);
    let ended = |damaged| if damaged { Err(Failure::Said(1)) } else { Ok(()) };
    loop {
        if latest >= next {
            damaged |= print_up_to(place, args, incarnation, (next, latest), out)?;
            next = latest + 1;
            last_news = Instant::now();
        }
        out.flush()?;
        let left = match args.until_idle {
            _ if args.no_follow => return ended(damaged),
            Some(idle) => match idle.checked_sub(last_news.elapsed()) {
                Some(left) if !left.is_zero() => left.min(WAIT_MAX),
                _ => return ended(damaged),
            },
            None => WAIT_MAX,
        };
        latest = place.wait_above(&args.log, next - 1, left)?;
        if latest < next {
            check_incarnation(&args.log, incarnation, place.incarnation(&args.log)?)?;
        }
    }
}

/// Prints what is there from the first to the last; whether something was damaged.
fn print_up_to(
    place: &Place,
    args: &TailArgs,
    incarnation: Option<u32>,
    (first, last): (u64, u64),
    out: &mut Out,
) -> Outcome<bool> {
    let mut damaged = false;
    place.read_of(&args.log, incarnation, (first, last), &mut |_, found| match found {
        Found::Record(record) => print(&args.log, &record, args.raw, out),
        Found::Missed(missed) => {
            eprintln!("millrace: {} left the log's history before being printed", show::count(missed, "record"));
            Ok(())
        }
        Found::Damaged(error) => {
            damaged = true;
            out.flush()?;
            report::say(&error, out.json());
            Ok(())
        }
    })?;
    Ok(damaged)
}

fn print(log: &str, record: &Record, raw: bool, out: &mut Out) -> Outcome {
    if out.json() {
        out.object(&record_object(log, record))?;
    } else if raw {
        out.bytes(&record.payload)?;
        out.bytes(b"\n")?;
    } else {
        let when = out.styled(Style::Dim, &show::clock(record.hlc));
        out.line(format!("{when}  {:>4}  {}", record.seqno, show::one_line(&record.payload)))?;
    }
    Ok(())
}
