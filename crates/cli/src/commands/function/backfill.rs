//! `millrace function backfill`

use crate::{
    args::BackfillArgs,
    out::Out,
    place::Place,
    report::{Failure, Outcome},
    show,
};
use millrace_node::{Backfilled, Name, Stretch};
use serde_json::json;

pub fn run(place: &Place, args: &BackfillArgs, out: &mut Out) -> Outcome {
    let function: Name = args.name.parse()?;
    let mut last = Backfilled::default();
    let missed = args.from.is_none() && args.to.is_none();
    let stretch = Stretch { from: args.from, to: args.to, missed };
    let log = args.log.as_deref();
    let done = place.backfill(&function, log, stretch, args.busy_timeout, &mut |done| last = done);
    let (log, done) = done.map_err(|error| {
        if last.upto > 0 {
            let runs = show::count(last.runs, "run");
            eprintln!("millrace: {runs} started, up to record {}; continue with --from {}", last.upto, last.upto + 1);
        }
        Failure::from(error)
    })?;
    let Backfilled { runs, upto, missing, ran } = done;
    if out.json() {
        let upto = (upto > 0).then_some(upto);
        return Ok(out.object(
            &json!({ "function": function, "log": log, "runs": runs, "upto": upto, "missing": missing, "ran": ran }),
        )?);
    }
    let gaps = match missing {
        0 => String::new(),
        missing => format!("; {} had already left the log's history or are damaged", show::count(missing, "record")),
    };
    let ran = match ran {
        0 => String::new(),
        ran => format!(
            "; {} had started a run when they were appended (--from 1 includes them)",
            show::count(ran, "record")
        ),
    };
    out.line(match runs {
        0 => format!("log '{log}' has no such record; no run was started{gaps}{ran}"),
        _ => format!(
            "{} of function '{function}' started, up to record {upto} of log '{log}'{gaps}{ran}",
            show::count(runs, "run")
        ),
    })?;
    Ok(())
}
