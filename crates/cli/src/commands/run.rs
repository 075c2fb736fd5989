//! `millrace run …`

use crate::{
    args::{Global, RunCommand, RunLsArgs, RunWaitArgs, StateArg},
    out::{Out, Style, Table},
    place,
    report::{Failure, Outcome},
    show,
};
use millrace_node::{Code, EventId, Namespace, RecordRef, Result, RunFilter, RunState, RunView};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub fn run(command: &RunCommand, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    match command {
        RunCommand::Ls(args) => ls(&namespace, args, out),
        RunCommand::Show(args) => show_run(&find(&namespace, args.id.as_deref())?, out),
        RunCommand::Wait(args) => wait(&namespace, args, out),
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
fn find(namespace: &Namespace, id: Option<&str>) -> Result<RunView> {
    match id {
        Some(id) => namespace.run(id.parse()?),
        None => {
            let newest = namespace.runs(&RunFilter { limit: 1, ..RunFilter::default() })?.pop();
            newest.ok_or_else(|| Code::RunNotFound.error("there are no runs yet"))
        }
    }
}

/// The record a reference names, as `get` takes it.
fn reference(record: &RecordRef) -> String {
    let log = record.log.as_deref().unwrap_or("(removed log)");
    format!("{log} {}", record.seqno)
}

fn state(view: &RunView) -> (&'static str, Style) {
    match view.state {
        RunState::Pending => ("pending", Style::Dim),
        RunState::Started => ("started", Style::Warn),
        RunState::Done => ("done", Style::Good),
        RunState::Dead => ("dead", Style::Bad),
    }
}

fn references(records: &[RecordRef]) -> Value {
    records.iter().map(|record| json!({ "log": record.log, "seqno": record.seqno })).collect()
}

fn object(view: &RunView) -> Value {
    let attempts: Vec<Value> = view
        .attempts
        .iter()
        .map(|attempt| json!({ "attempt": attempt.attempt, "time": show::rfc3339(attempt.at) }))
        .collect();
    let dead = view.ending.as_ref().and_then(|ending| ending.dead.as_ref());
    json!({
        "id": show::id(view.id), "function": view.function, "state": view.state,
        "log": view.record.log, "seqno": view.record.seqno,
        "cause": show::id(view.cause), "caused_by": show::id(view.caused_by),
        "triggered": show::rfc3339(view.triggered), "ended": view.ended.map(show::rfc3339),
        "attempts": attempts, "reads": references(&view.reads), "appends": references(&view.appends),
        "output": view.ending.as_ref().map(|ending| &ending.output),
        "error": dead.map(|death| json!({ "code": death.code, "detail": death.error })),
    })
}

fn function_name(view: &RunView) -> String {
    view.function.as_deref().unwrap_or("(removed)").to_string()
}

fn ls(namespace: &Namespace, args: &RunLsArgs, out: &mut Out) -> Outcome {
    let runs = namespace.runs(&filter(args)?)?;
    if out.json() {
        for view in &runs {
            out.object(&object(view))?;
        }
        return Ok(());
    }
    if runs.is_empty() {
        return Ok(out.line("no runs")?);
    }
    let now_us = show::now_us();
    let mut table = Table::new(&["run", "function", "record", "state", "attempts>", "triggered", "took", "error"]);
    for view in &runs {
        let took = view.ended.and_then(|ended| show::between(view.triggered, ended)).unwrap_or_default();
        let dead = view.ending.as_ref().and_then(|ending| ending.dead.as_ref());
        table.row(vec![
            view.id.to_string(),
            function_name(view),
            reference(&view.record),
            state(view).0.into(),
            view.attempts.len().to_string(),
            show::ago(view.triggered, now_us),
            took,
            dead.map_or(String::new(), |death| format!("{} {}", death.code, show::brief(death.error.as_bytes(), 60))),
        ]);
    }
    Ok(out.table(&table)?)
}

fn show_run(view: &RunView, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&object(view))?);
    }
    let now_us = show::now_us();
    let (word, style) = state(view);
    let took = view.ended.and_then(|ended| show::between(view.triggered, ended));
    let took = took.map_or(String::new(), |took| format!(", {took} after its trigger"));
    let word = out.styled(style, word);
    out.line(format!("run        {}", view.id))?;
    out.line(format!("function   {}", function_name(view)))?;
    out.line(format!("state      {word}{took}"))?;
    out.line(format!("record     {}", reference(&view.record)))?;
    let origin = if view.caused_by.is_none() {
        "appended from outside".into()
    } else {
        format!("appended by run {}", view.caused_by)
    };
    out.line(format!("cause      {} ({origin})", view.cause))?;
    out.line(format!("triggered  {} ({})", show::rfc3339(view.triggered), show::ago(view.triggered, now_us)))?;
    for attempt in &view.attempts {
        let after = show::between(view.triggered, attempt.at).unwrap_or_default();
        out.line(format!("attempt    {} began {after} after the trigger", attempt.attempt))?;
    }
    for record in &view.reads {
        out.line(format!("read       {}", reference(record)))?;
    }
    for record in &view.appends {
        out.line(format!("appended   {}", reference(record)))?;
    }
    let Some(ending) = &view.ending else { return Ok(()) };
    if let Some(death) = &ending.dead {
        let first = death.error.lines().next().unwrap_or("");
        let line = out.styled(Style::Bad, &format!("error      {} {}", death.code, show::one_line(first.as_bytes())));
        out.line(line)?;
        for line in death.error.lines().skip(1) {
            out.line(format!("           {}", show::one_line(line.as_bytes())))?;
        }
    }
    if !ending.output.is_empty() {
        out.line("output")?;
        for line in ending.output.lines() {
            out.line(format!("  {}", show::one_line(line.as_bytes())))?;
        }
    }
    Ok(())
}

fn wait(namespace: &Namespace, args: &RunWaitArgs, out: &mut Out) -> Outcome {
    let Some(id) = &args.id else {
        namespace.wait_idle(args.timeout)?;
        if out.json() {
            out.object(&json!({ "idle": true }))?;
        }
        return Ok(());
    };
    let view = wait_for(namespace, id.parse()?, args.timeout)?;
    show_run(&view, out)?;
    match view.state {
        // The view has said what was wrong.
        RunState::Dead => Err(Failure::Said(1)),
        _ => Ok(()),
    }
}

fn wait_for(namespace: &Namespace, id: EventId, timeout: Duration) -> Result<RunView> {
    let started = Instant::now();
    let journal = namespace.journal();
    loop {
        let seen = journal.tail();
        let view = namespace.run(id)?;
        if view.ended.is_some() {
            return Ok(view);
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            let detail = format!("run {id} is not over; `millrace why {id}` says what it waits for");
            return Err(Code::WaitTimeout.error(detail));
        }
        journal.wait(seen, left.min(Duration::from_secs(1)));
    }
}
