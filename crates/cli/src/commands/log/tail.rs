//! `millrace log tail`: the newest records, and those that come.

use super::{parse_seqno, record_object};
use crate::{
    args::TailArgs,
    out::{Out, Style},
    place::{Found, Place},
    report::{self, Outcome},
    show,
};
use millrace_node::Record;
use std::time::{Duration, Instant};

/// A wait is repeated at least so often, so that a log removed meanwhile is noticed.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub fn run(place: &Place, args: &TailArgs, out: &mut Out) -> Outcome {
    let (earliest, mut latest) = place.bounds(&args.log)?;
    let mut next = match &args.from {
        Some(text) => parse_seqno(text)?.max(earliest),
        None => earliest.max((latest + 1).saturating_sub(args.last)).max(1),
    };
    let mut last_news = Instant::now();
    loop {
        if latest >= next {
            print_up_to(place, args, next, latest, out)?;
            next = latest + 1;
            last_news = Instant::now();
        }
        out.flush()?;
        let left = match args.until_idle {
            _ if args.no_follow => return Ok(()),
            Some(idle) => match idle.checked_sub(last_news.elapsed()) {
                Some(left) if !left.is_zero() => left.min(WAIT_MAX),
                _ => return Ok(()),
            },
            None => WAIT_MAX,
        };
        latest = place.wait_above(&args.log, next - 1, left)?;
    }
}

/// Prints what is there from `first` to `last`.
fn print_up_to(place: &Place, args: &TailArgs, first: u64, last: u64, out: &mut Out) -> Outcome {
    place.read(&args.log, first, last, &mut |_, found| match found {
        Found::Record(record) => print(&args.log, &record, args.raw, out),
        Found::Missed(missed) => {
            eprintln!("millrace: {} left the log's history before being printed", show::count(missed, "record"));
            Ok(())
        }
        Found::Damaged(error) => {
            out.flush()?;
            report::say(&error, out.json());
            Ok(())
        }
    })
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
