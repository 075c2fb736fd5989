//! `millrace function invoke`, and the results of a record's runs.

use crate::{
    args::InvokeArgs,
    commands::log::whole_input,
    out::Out,
    place::{Place, docs::RunDoc},
    report::{self, Failure, Outcome},
    show,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use millrace_documents::{Reason, ReasonDoc, ResultDoc};
use millrace_node::{Code, Error, EventId, Name, RunFilter, application::units::show_duration};
use serde_json::json;
use std::{
    mem::discriminant,
    time::{Duration, Instant},
};

/// The runs of the record are searched among this number of the log's newest runs.
const NEWEST_MAX: usize = 1000;
/// How long a run may take before the command prints what it waits for, and how often it looks whether that has changed.
const EXPLAIN_EVERY: Duration = Duration::from_secs(2);

pub fn run(place: &Place, args: &InvokeArgs, out: &mut Out) -> Outcome {
    let name: Name = args.name.parse()?;
    if let Place::Local(_) = place {
        // A missing function is reported before the user types its input. A host does not report it to every caller that may run it.
        place.function(&name)?;
    }
    let payload = match args.data.as_ref().or(args.record.as_ref()) {
        Some(data) if data != "-" => data.clone().into_bytes(),
        _ => whole_input()?,
    };
    if args.no_wait {
        let (log, receipt, _) = place.invoke(&name, args.log.as_deref(), &payload, Duration::ZERO)?;
        if out.json() {
            out.object(&json!({ "function": name, "log": log, "seqno": receipt.seqno, "id": show::id(receipt.id) }))?;
        } else {
            out.line(format!("function {name} runs for record {} of log {log}", receipt.seqno))?;
        }
        return Ok(());
    }
    // A host answers with the result. After a while it is asked for the reasons, too.
    let began = Instant::now();
    let first = args.timeout.min(EXPLAIN_EVERY).max(Duration::from_millis(1));
    let (log, receipt, ended) = place.invoke(&name, args.log.as_deref(), &payload, first)?;
    match ended {
        Some(run) => {
            tell(place, &run, out)?;
            if failed(&run) { Err(Failure::Said(1)) } else { Ok(()) }
        }
        None => result_since(place, (&log, receipt.seqno), Some(&name), (began, args.timeout), out),
    }
}

/// Waits for the runs of a record, of one function or of all, and prints what they appended; the error of one that is given up.
pub fn result(
    place: &Place,
    (log, seqno): (&str, u64),
    function: Option<&Name>,
    timeout: Duration,
    out: &mut Out,
) -> Outcome {
    result_since(place, (log, seqno), function, (Instant::now(), timeout), out)
}

fn result_since(
    place: &Place,
    (log, seqno): (&str, u64),
    function: Option<&Name>,
    (began, timeout): (Instant, Duration),
    out: &mut Out,
) -> Outcome {
    let deadline = began + timeout;
    let filter =
        RunFilter { function: function.cloned(), log: Some(log.parse()?), limit: NEWEST_MAX, ..RunFilter::default() };
    let mut runs: Vec<RunDoc> = place.runs(&filter)?.into_iter().filter(|run| run.record.seqno == seqno).collect();
    runs.reverse();
    if runs.is_empty() {
        if out.json() {
            out.object(&json!({ "log": log, "seqno": seqno, "runs": [] }))?;
        } else {
            out.line(format!("no function runs for record {seqno} of log {log}"))?;
        }
        return Ok(());
    }
    // At an address a host is running; only callers with the right get its state.
    let has_host = !matches!(place, Place::Local(_)) || place.host()?.is_some();
    if !has_host {
        crate::feed::stderr("millrace: no host is running; waiting for one (`millrace serve`)\n");
    }
    let mut any_failed = false;
    for run in runs {
        let run = ended(place, run.id.parse()?, (deadline, timeout), has_host, out)?;
        any_failed |= failed(&run);
        tell(place, &run, out)?;
    }
    if any_failed { Err(Failure::Said(1)) } else { Ok(()) }
}

/// Waits for the end of a run, and meanwhile prints what the run waits for whenever that changes.
fn ended(
    place: &Place,
    id: EventId,
    (deadline, timeout): (Instant, Duration),
    has_host: bool,
    out: &Out,
) -> Outcome<RunDoc> {
    let mut printed = if has_host { Vec::new() } else { vec![discriminant(&Reason::NoHost)] };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let run = place.wait_run(id, left.min(EXPLAIN_EVERY))?;
        if run.ended.is_some() {
            return Ok(run);
        }
        // Not every caller that may wait for a run may ask for the reasons.
        let mut reasons = place.why(&run.id).map(|why| why.reasons).unwrap_or_default();
        // The run was started by its record all the same.
        reasons.retain(|reason| !matches!(reason.reason, Reason::NeverBound { .. }));
        let texts: Vec<&str> = reasons.iter().map(|reason| &*reason.text).collect();
        let texts = texts.join("; ");
        if left <= EXPLAIN_EVERY {
            let waits = if texts.is_empty() { String::new() } else { format!(": {texts}") };
            let (time, id) = (show_duration(timeout), run.id);
            let detail =
                format!("run {id} has not ended after {time}{waits}; `millrace why {id}` shows what it waits for");
            return Err(Code::WaitTimeout.error(detail).into());
        }
        // The texts contain times, which change all the time.
        let kinds: Vec<_> = reasons.iter().map(|reason| discriminant(&reason.reason)).collect();
        let runs = |reason: &ReasonDoc| matches!(&reason.reason, Reason::Running { run: id, .. } if *id == run.id);
        let waits = !kinds.is_empty() && !reasons.iter().any(runs);
        if waits && kinds != printed && !out.json() {
            let function = run.function.as_deref().unwrap_or("-");
            crate::feed::stderr(&format!("millrace: run {} of function {function} waits: {texts}\n", run.id));
        }
        printed = kinds;
    }
}

/// Whether the run ended without the result that its function meant.
fn failed(run: &RunDoc) -> bool {
    run.error.is_some() || run.result.as_ref().is_some_and(|result| result.reason.is_some())
}

fn tell(place: &Place, run: &RunDoc, out: &mut Out) -> Outcome {
    if out.json() {
        out.object(&json!(run))?;
    } else if let Some(result) = run.result.as_ref().filter(|result| result.kind != "dropped") {
        out.bytes(&bytes_of(result)?)?;
    } else if run.error.is_none() {
        for record in &run.appends {
            let (Some(log), seqno) = (&record.log, record.seqno) else { continue };
            // It may have left the log's history since.
            match place.get(log, seqno) {
                Ok(appended) => out.line(format!("{log} {seqno}  {}", show::one_line(&appended.payload)))?,
                Err(_) => out.line(format!("{log} {seqno}"))?,
            }
        }
        if run.appends.is_empty() && run.result.is_none() {
            out.line(format!(
                "run {} of function {} appended nothing",
                run.id,
                run.function.as_deref().unwrap_or("-")
            ))?;
        }
    }
    let dropped = run.result.as_ref().and_then(|result| result.reason.as_ref());
    if let (Some(reason), None, false) = (dropped, &run.error, out.json()) {
        out.flush()?;
        crate::feed::stderr(&format!(
            "millrace: the run has no result (MR3150): {}\n",
            show::one_line(reason.as_bytes())
        ));
    }
    if let (Some(dead), false) = (&run.error, out.json()) {
        out.flush()?;
        let function = run.function.as_deref().unwrap_or("-");
        let code = Code::from_id(&dead.code).unwrap_or(Code::FunctionFailed);
        let error: Error = code.error(format!("run {} of function '{function}': {}", run.id, dead.detail));
        report::say(&error, false);
    }
    Ok(())
}

/// A result as it is printed: text and JSON end with a newline.
fn bytes_of(result: &ResultDoc) -> Outcome<Vec<u8>> {
    if let Some(base64) = &result.base64 {
        let decoded = BASE64_STANDARD.decode(base64);
        return decoded.map_err(|error| Code::DocumentUnknown.error(format!("a result: {error}")).into());
    }
    let mut bytes = result.data.clone().unwrap_or_default().into_bytes();
    if result.kind != "bytes" && !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    Ok(bytes)
}
