//! `millrace run …`

use crate::{
    args::{Global, RunCommand, RunLsArgs, RunWaitArgs, StateArg},
    out::{Out, Style, Table},
    place::{Place, docs::RunDoc},
    report::{Failure, Outcome},
    show,
};
use millrace_node::{Code, EventId, Hlc, Result, RunFilter, RunState};
use serde_json::json;

pub fn run(command: &RunCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        RunCommand::Ls(args) => ls(&place, args, out),
        RunCommand::Show(args) => show_run(&find(&place, args.id.as_deref())?, out),
        RunCommand::Wait(args) => wait(&place, args, out),
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
        }),
        limit: args.last,
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
        "dead" => Style::Bad,
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
    let runs = place.runs(&filter(args)?)?;
    if out.json() {
        for run in &runs {
            out.object(&json!(run))?;
        }
        return Ok(());
    }
    if runs.is_empty() {
        return Ok(out.line("no runs")?);
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
            error.map_or(String::new(), |dead| format!("{} {}", dead.code, show::brief(dead.detail.as_bytes(), 60))),
        ]);
    }
    Ok(out.table(&table)?)
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
        let began = show::moment(&attempt.time).and_then(|at| show::between(triggered, at)).unwrap_or_default();
        out.line(format!("attempt    {} began {began} after the trigger", attempt.attempt))?;
    }
    for record in &run.reads {
        out.line(format!("read       {record}"))?;
    }
    for record in &run.appends {
        out.line(format!("appended   {record}"))?;
    }
    if let Some(dead) = &run.error {
        let first = dead.detail.lines().next().unwrap_or("");
        let line = out.styled(Style::Bad, &format!("error      {} {}", dead.code, show::one_line(first.as_bytes())));
        out.line(line)?;
        for line in dead.detail.lines().skip(1) {
            out.line(format!("           {}", show::one_line(line.as_bytes())))?;
        }
    }
    if let Some(output) = run.output.as_ref().filter(|output| !output.is_empty()) {
        out.line("output")?;
        for line in output.lines() {
            out.line(format!("  {}", show::one_line(line.as_bytes())))?;
        }
    }
    Ok(())
}

fn wait(place: &Place, args: &RunWaitArgs, out: &mut Out) -> Outcome {
    let Some(id) = &args.id else {
        place.wait_idle(args.timeout)?;
        if out.json() {
            out.object(&json!({ "idle": true }))?;
        }
        return Ok(());
    };
    let id: EventId = id.parse()?;
    let run = place.wait_run(id, args.timeout)?;
    if run.ended.is_none() {
        let detail = format!("run {id} is not over; `millrace why {id}` says what it waits for");
        return Err(Code::WaitTimeout.error(detail).into());
    }
    show_run(&run, out)?;
    match run.state.as_str() {
        // The view has said what was wrong.
        "dead" => Err(Failure::Said(1)),
        _ => Ok(()),
    }
}
