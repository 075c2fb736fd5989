//! `millrace run …`

use super::link::not_run;
use crate::{
    args::{
        Global, RunCancelArgs, RunCommand, RunFailuresArgs, RunLsArgs, RunOutputArgs, RunRetryArgs, RunWaitArgs,
        StateArg,
    },
    out::{Out, Style, Table},
    place::{
        Place,
        docs::{KeyText, KeysReadDoc, RunDoc, RunsDoc},
    },
    progress::{Progress, Unit},
    report::{Failure, Outcome},
    show,
};
use millrace_node::{
    Code, EventId, Hlc, Letters, Name, Result, Retried, RunFilter, RunState, application::units::show_duration,
};
use serde_json::json;
use std::time::{Duration, Instant};

/// How often the number of pending runs is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// How much of a result is shown.
const RESULT_CHARS_MAX: usize = 200;
/// How much of an error is shown in a list.
const ERROR_CHARS_MAX: usize = 60;
/// How often a run is asked for more output.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn run(command: &RunCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        RunCommand::Ls(args) => ls(&place, args, out),
        RunCommand::Show(args) => show_run(&find(&place, args.id.as_deref())?, out),
        RunCommand::Output(args) => output(&place, args, out),
        RunCommand::Failures(args) => failures(&place, args, out),
        RunCommand::Wait(args) => wait(&place, args, out),
        RunCommand::Cancel(args) => cancel(&place, args, out),
        RunCommand::Retry(args) => retry(&place, args, out),
    }
}

fn filter(args: &RunLsArgs) -> Result<RunFilter> {
    Ok(RunFilter {
        function: args.function.as_deref().map(str::parse).transpose()?,
        log: args.log.as_deref().map(str::parse).transpose()?,
        state: args.state.map(|state| match state {
            StateArg::Pending => RunState::Pending,
            StateArg::Started => RunState::Started,
            StateArg::Done => RunState::Done,
            StateArg::Dead => RunState::Dead,
            StateArg::Cancelled => RunState::Cancelled,
        }),
        before: args.before.as_deref().map(str::parse).transpose()?,
        limit: usize::try_from(args.last).unwrap_or(usize::MAX),
    })
}

/// The run of that id, or the newest.
fn find(place: &Place, id: Option<&str>) -> Result<RunDoc> {
    match id {
        Some(id) => place.run(id.parse()?),
        None => {
            let newest = place.runs(&RunFilter { limit: 1, ..RunFilter::default() })?.pop();
            newest.ok_or_else(|| Code::RunNotFound.error("there are no runs yet"))
        }
    }
}

fn style(run: &RunDoc) -> Style {
    match run.state.as_str() {
        "started" => Style::Warn,
        "done" => Style::Good,
        "dead" | "cancelled" => Style::Bad,
        _ => Style::Dim,
    }
}

/// When it was triggered, and how long after that it ended.
fn times(run: &RunDoc) -> (Hlc, Option<String>) {
    let triggered = show::moment(&run.triggered).unwrap_or_default();
    let ended = run.ended.as_deref().and_then(show::moment);
    (triggered, ended.and_then(|ended| show::between(triggered, ended)))
}

fn ls(place: &Place, args: &RunLsArgs, out: &mut Out) -> Outcome {
    let filter = filter(args)?;
    let RunsDoc { runs, next } = place.runs_page(&filter)?;
    // Fewer than asked for, and there are older ones: they were not looked at.
    let unseen = next.filter(|_| runs.len() < filter.limit);
    if out.json() {
        for run in &runs {
            out.object(&json!(run))?;
        }
        if let Some(next) = unseen {
            out.object(&json!({ "next": next }))?;
        }
        return Ok(());
    }
    let more = unseen.map(|next| format!("older runs were not examined; continue with `--before {next}`"));
    let on_devices = match (&filter.before, filter.state) {
        (None, None | Some(RunState::Pending)) => not_run(place, |function, log| {
            let is_of = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
            is_of(&args.function, function) && is_of(&args.log, log)
        })
        .unwrap_or_default(),
        _ => Vec::new(),
    };
    if runs.is_empty() {
        out.line(more.as_deref().unwrap_or("no runs"))?;
        return Ok(on_devices.iter().try_for_each(|pending| out.line(pending))?);
    }
    let now_us = show::now_us();
    let mut table = Table::new(&["run", "function", "record", "state", "attempts>", "triggered", "took", "error"]);
    for run in &runs {
        let (triggered, took) = times(run);
        let error = run.error.as_ref();
        table.row(vec![
            run.id.clone(),
            run.function.as_deref().unwrap_or("(removed)").into(),
            run.record.to_string(),
            run.state.clone(),
            run.attempts.len().to_string(),
            show::ago(triggered, now_us),
            took.unwrap_or_default(),
            error.map_or(String::new(), |dead| {
                let retried = if run.retried_as.is_some() { "retried; " } else { "" };
                format!("{retried}{} {}", dead.code, show::headline(&dead.detail, 60))
            }),
        ]);
    }
    out.table(&table)?;
    more.map_or(Ok(()), |more| out.line(more))?;
    Ok(on_devices.iter().try_for_each(|pending| out.line(pending))?)
}

/// Which keys of a table a run read besides values, as "grades: no key 'dave'".
fn keys_read(keys: &KeysReadDoc) -> String {
    let table = keys.table.as_deref().unwrap_or("(removed table)");
    let quoted = |key: &KeyText| format!("'{}'", show::one_line(&key.0));
    if let Some(key) = &keys.absent {
        return format!("{table}: no key {}", quoted(key));
    }
    let from = keys.from.as_ref().map(|from| format!(" from {}", quoted(from)));
    let to = keys.to.as_ref().map(|to| format!(" before {}", quoted(to)));
    let limit = keys.limit.map(|limit| format!(", at most {limit}"));
    let which = if from.is_none() && to.is_none() { "all keys" } else { "the keys" };
    format!("{table}: {which}{}{}{}", from.unwrap_or_default(), to.unwrap_or_default(), limit.unwrap_or_default())
}

fn show_run(run: &RunDoc, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&json!(run))?);
    }
    let now_us = show::now_us();
    let (triggered, took) = times(run);
    let took = took.map_or(String::new(), |took| format!(", {took} after its trigger"));
    let word = out.styled(style(run), &run.state);
    out.line(format!("run        {}", run.id))?;
    out.line(format!("function   {}", run.function.as_deref().unwrap_or("(removed)")))?;
    out.line(format!("state      {word}{took}"))?;
    out.line(format!("record     {}", run.record))?;
    let origin = match &run.caused_by {
        None => "appended from outside".into(),
        Some(caused_by) => format!("appended by run {caused_by}"),
    };
    out.line(format!("cause      {} ({origin})", run.cause.as_deref().unwrap_or("-")))?;
    out.line(format!("triggered  {} ({})", show::rfc3339(triggered), show::ago(triggered, now_us)))?;
    for attempt in &run.attempts {
        // That of a device was before the trigger came to this host.
        let began = match show::moment(&attempt.time).and_then(|at| show::between(triggered, at)) {
            Some(began) => format!("{began} after the trigger"),
            None => attempt.time.clone(),
        };
        out.line(format!("attempt    {} began {began}", attempt.attempt))?;
    }
    for record in &run.reads {
        out.line(format!("read       {record}"))?;
    }
    for keys in &run.keys {
        out.line(format!("read       {}", keys_read(keys)))?;
    }
    for record in &run.appends {
        out.line(format!("appended   {record}"))?;
    }
    if let Some(result) = &run.result {
        let shown = match (&result.reason, &result.data, &result.base64) {
            (Some(reason), ..) => format!("none: {}", show::one_line(reason.as_bytes())),
            (_, Some(data), _) => format!("{}, {}", result.kind, show::headline(data, RESULT_CHARS_MAX)),
            (_, _, base64) => format!("{} bytes", base64.as_ref().map_or(0, |base64| base64.len() / 4 * 3)),
        };
        out.line(format!("result     {shown}"))?;
    }
    if let Some(dead) = &run.error {
        let first = dead.detail.lines().next().unwrap_or("");
        let line = out.styled(Style::Bad, &format!("error      {} {}", dead.code, show::one_line(first.as_bytes())));
        out.line(line)?;
        for line in dead.detail.lines().skip(1) {
            out.line(format!("           {}", show::one_line(line.as_bytes())))?;
        }
    }
    if run.partial {
        out.line("partial    some entries of this run are not shown: they are damaged, were dropped or moved by retention, or are too far apart")?;
    }
    if let Some(again) = &run.retried_as {
        out.line(format!("retried    as run {again}"))?;
    }
    if let Some(output) = run.output.as_ref().filter(|output| !output.is_empty()) {
        out.line("output")?;
        for line in output.lines() {
            out.line(format!("  {}", show::one_line(line.as_bytes())))?;
        }
    }
    Ok(())
}

/// Prints the output of a run, a line at a time.
fn output(place: &Place, args: &RunOutputArgs, out: &mut Out) -> Outcome {
    let id = find(place, args.id.as_deref())?.id;
    let (mut from, mut line) = (0, String::new());
    loop {
        let part = place.output(&id, from)?;
        let is_new = !part.text.is_empty();
        if out.json() && (is_new || part.ended) {
            out.object(&json!(part))?;
        } else {
            line += &part.text;
            while let Some(end) = line.find('\n') {
                out.line(show::one_line(&line.as_bytes()[..end]))?;
                line.drain(..=end);
            }
        }
        out.flush()?;
        from = part.next;
        if part.ended || !(is_new || args.follow) {
            break;
        }
        if !is_new {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    if !line.is_empty() {
        out.line(show::one_line(line.as_bytes()))?;
    }
    Ok(())
}

/// Lists dead letters by function and error.
fn failures(place: &Place, args: &RunFailuresArgs, out: &mut Out) -> Outcome {
    let since = args.since.map(|since| {
        let us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        Hlc::from_wall_us(show::now_us().saturating_sub(us))
    });
    let function: Option<Name> = args.function.as_deref().map(str::parse).transpose()?;
    let doc = place.failures(since, function.as_ref())?;
    if out.json() {
        return Ok(out.object(&json!(doc))?);
    }
    if doc.failures.is_empty() {
        return Ok(out.line("no dead letters")?);
    }
    let now_us = show::now_us();
    let mut table = Table::new(&["function", "error", "letters>", "waiting>", "last", "run", "detail"]);
    for group in &doc.failures {
        let last = show::moment(&group.last);
        table.row(vec![
            group.function.clone(),
            group.code.clone(),
            show::grouped(group.letters),
            show::grouped(group.waiting),
            last.map_or(String::new(), |last| show::ago(last, now_us)),
            group.run.clone().unwrap_or_default(),
            show::headline(&group.error, ERROR_CHARS_MAX),
        ]);
    }
    out.table(&table)?;
    if doc.more {
        out.line(format!("older dead letters were not read, beyond the newest {}", show::grouped(doc.letters)))?;
    }
    Ok(())
}

fn wait(place: &Place, args: &RunWaitArgs, out: &mut Out) -> Outcome {
    let Some(id) = &args.id else {
        wait_idle(place, args.timeout, out.json())?;
        if out.json() {
            out.object(&json!({ "idle": true }))?;
        }
        return Ok(());
    };
    let id: EventId = id.parse()?;
    let run = place.wait_run(id, args.timeout)?;
    if run.ended.is_none() {
        let detail = format!("run {id} has not ended; `millrace why {id}` explains what it waits for");
        return Err(Code::WaitTimeout.error(detail).into());
    }
    show_run(&run, out)?;
    match run.state.as_str() {
        // The view has said what was wrong.
        "dead" | "cancelled" => Err(Failure::Said(1)),
        _ => Ok(()),
    }
}

/// Waits until no run is pending, and shows how many there are.
fn wait_idle(place: &Place, timeout: Duration, json: bool) -> Result<()> {
    let pending = || Ok::<u64, millrace_node::Error>(place.functions()?.iter().map(|function| function.pending).sum());
    // At an address there is a host.
    let no_host = || Ok::<bool, millrace_node::Error>(matches!(place, Place::Local(_)) && place.host()?.is_none());
    let start = Instant::now();
    let mut progress = None;
    loop {
        let left = timeout.saturating_sub(start.elapsed());
        match place.wait_idle(left.min(SHOW_EVERY)) {
            Err(error) if error.code() == Code::WaitTimeout && left > SHOW_EVERY => {
                // A host that was started just now has had time to begin.
                if progress.is_none() && !json && no_host()? {
                    crate::feed::stderr("millrace: no host is running; waiting for one (`millrace serve`)\n");
                }
                let progress = progress.get_or_insert_with(|| Progress::new("waiting:", None, Unit::Runs, true));
                progress.set(pending()?);
            }
            Err(error) if error.code() == Code::WaitTimeout => {
                let pending = pending()?;
                let have = if pending == 1 { "has" } else { "have" };
                let hint = if no_host()? { "; no host is running" } else { "" };
                let (runs, time) = (show::count(pending, "run"), show_duration(timeout));
                return Err(Code::WaitTimeout.error(format!("{runs} {have} not ended after {time}{hint}")));
            }
            waited => return waited,
        }
    }
}

fn cancel(place: &Place, args: &RunCancelArgs, out: &mut Out) -> Outcome {
    let id: EventId = args.id.parse()?;
    place.cancel_run(id)?;
    if out.json() {
        out.object(&json!({ "run": id.to_string(), "change": "cancelled" }))?;
    } else {
        out.line(format!("cancelled run {id}"))?;
    }
    Ok(())
}

fn retry(place: &Place, args: &RunRetryArgs, out: &mut Out) -> Outcome {
    if let Some(id) = &args.id {
        let retried = place.retry(id.parse()?, args.busy_timeout)?;
        return Ok(reported(&retried, out)?);
    }
    let function: Name = args.function.as_deref().unwrap_or_default().parse()?;
    let mut printed = Ok(());
    let letters = Letters { function: &function, code: args.code.as_deref() };
    let all = place.retry_letters(letters, args.busy_timeout, &mut |retried| {
        if out.json() && printed.is_ok() {
            printed = reported(retried, out);
        }
    })?;
    printed?;
    if !out.json() {
        let before = match all.before {
            0 => String::new(),
            1 => "; 1 was already retried".into(),
            before => format!("; {before} were already retried"),
        };
        out.line(format!("retrying {} of function '{function}'{before}", show::count(all.retried, "run")))?;
        if all.gone > 0 {
            let gone = show::count(all.gone, "dead letter");
            out.line(format!("{gone} left the history of their log before, and cannot be retried"))?;
        }
    }
    let left = |count| format!("{} of function '{function}' were not retried", show::count(count, "dead letter"));
    match (all.refused, all.lost) {
        (0, 0) => Ok(()),
        (0, lost) => Err(Code::LetterWithoutRecord.error(left(lost)).into()),
        (refused, _) => {
            let why = "the capability does not permit reading the logs of their records, and the function is not bound to these logs";
            Err(Code::CapabilityDenied.error(format!("{}: {why}", left(refused))).into())
        }
    }
}

fn reported(retried: &Retried, out: &mut Out) -> std::io::Result<()> {
    let Retried { dead, run, function, log, seqno, before } = retried;
    if out.json() {
        return out.object(&json!({
            "dead": dead.to_string(), "run": run.to_string(), "function": function, "log": log, "seqno": seqno, "before": before,
        }));
    }
    out.line(match *before {
        true => format!("run {dead} was already retried, as run {run}"),
        false => format!("retrying run {dead} as run {run}: function '{function}' for record {seqno} of log '{log}'"),
    })
}
