//! `millrace log tail`: the newest records, and those that come.

use super::{parse_seqno, record_object};
use crate::{
    args::TailArgs,
    out::{Out, Style},
    report::{self, Outcome},
    show,
};
use millrace_node::{Code, Namespace, Record};
use std::time::{Duration, Instant};

/// A wait in the kernel is repeated at least so often, so that a log removed meanwhile is noticed.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub fn run(namespace: &Namespace, args: &TailArgs, out: &mut Out) -> Outcome {
    let log = namespace.log(&args.log)?;
    let mut next = match &args.from {
        Some(text) => parse_seqno(text)?.max(log.earliest()),
        None => log.earliest().max((log.latest() + 1).saturating_sub(args.last)).max(1),
    };
    let journal = namespace.journal();
    let mut last_news = Instant::now();
    loop {
        let seen = journal.tail();
        let printed = print_up_to(namespace, args, &mut next, out)?;
        out.flush()?;
        if printed {
            last_news = Instant::now();
        }
        let left = match args.until_idle {
            _ if args.no_follow => return Ok(()),
            Some(idle) => match idle.checked_sub(last_news.elapsed()) {
                Some(left) if !left.is_zero() => left.min(WAIT_MAX),
                _ => return Ok(()),
            },
            None => WAIT_MAX,
        };
        journal.wait(seen, left);
        // The log may have been removed, and another may have its name by now.
        namespace.log(&args.log)?;
    }
}

/// Prints what is there from `next` on; says whether there was anything.
fn print_up_to(namespace: &Namespace, args: &TailArgs, next: &mut u64, out: &mut Out) -> Outcome<bool> {
    let latest = namespace.latest(&args.log)?;
    let first = *next;
    while *next <= latest {
        match namespace.get(&args.log, *next) {
            Ok(record) => print(&args.log, &record, args.raw, out)?,
            Err(error) if error.code() == Code::BelowHistory => {
                let earliest = namespace.log(&args.log)?.earliest();
                let missed = earliest.saturating_sub(*next).max(1);
                eprintln!("millrace: {} left the log's history before being printed", show::count(missed, "record"));
                *next += missed;
                continue;
            }
            Err(error) if error.code() == Code::EntryDamaged => {
                out.flush()?;
                report::say(&error, out.json());
            }
            Err(error) => return Err(error.into()),
        }
        *next += 1;
    }
    Ok(*next > first)
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
