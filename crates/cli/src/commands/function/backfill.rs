//! `millrace function backfill`

use crate::{
    args::BackfillArgs,
    out::Out,
    report::{Failure, Outcome},
    show,
};
use millrace_node::{Backfilled, Code, Name, Namespace, Result, Stretch};
use serde_json::json;

/// The one log that a function is bound to.
fn log_of(namespace: &Namespace, function: &Name) -> Result<String> {
    let stat = namespace.functions()?.into_iter().find(|stat| stat.name == *function);
    let stat = stat.ok_or_else(|| Code::FunctionNotFound.error(format!("function '{function}'")))?;
    match stat.definition?.spec.on.as_slice() {
        [log] => Ok(log.to_string()),
        [] => Err(Code::UsageInvalid.error(format!("function '{function}' is bound to no log; name one with --log"))),
        logs => {
            let logs = logs.iter().map(|log| &**log).collect::<Vec<_>>().join(", ");
            Err(Code::UsageInvalid.error(format!("function '{function}' is bound to {logs}; choose one with --log")))
        }
    }
}

pub fn run(namespace: &Namespace, args: &BackfillArgs, out: &mut Out) -> Outcome {
    let function: Name = args.name.parse()?;
    let log = match &args.log {
        Some(log) => log.clone(),
        None => log_of(namespace, &function)?,
    };
    let mut last = Backfilled::default();
    let stretch = Stretch { from: args.from, to: args.to };
    let done = namespace.backfill(&function, &log, stretch, args.busy_timeout, &mut |done| last = done);
    if let Err(error) = done {
        if last.upto > 0 {
            let runs = show::count(last.runs, "run");
            eprintln!("millrace: {runs} started, up to record {}; continue with --from {}", last.upto, last.upto + 1);
        }
        return Err(Failure::from(error));
    }
    let Backfilled { runs, upto, missing } = last;
    if out.json() {
        let upto = (upto > 0).then_some(upto);
        return Ok(
            out.object(&json!({ "function": function, "log": log, "runs": runs, "upto": upto, "missing": missing }))?
        );
    }
    let gaps = match missing {
        0 => String::new(),
        missing => format!("; {} had left the log's history or are damaged", show::count(missing, "record")),
    };
    out.line(match runs {
        0 => format!("log '{log}' has no such record: no run was started{gaps}"),
        _ => format!(
            "{} of function '{function}' started, up to record {upto} of log '{log}'{gaps}",
            show::count(runs, "run")
        ),
    })?;
    Ok(())
}
