//! `millrace function logs`: what the runs of a function printed, and why they failed.

use crate::{
    args::FunctionLogsArgs,
    out::{Out, Style},
    place::{Place, docs::RunDoc},
    report::Outcome,
    show,
};
use millrace_node::RunFilter;
use serde_json::json;
use std::{collections::HashSet, time::Duration};

/// Pause between two looks for runs that have ended.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Runs looked at each time: those of a function that ends more between two looks are left out.
const NEWEST_MAX: usize = 1000;

pub fn run(place: &Place, args: &FunctionLogsArgs, out: &mut Out) -> Outcome {
    let name: millrace_node::Name = args.name.parse()?;
    place.function(&name)?;
    let limit = usize::try_from(args.last).unwrap_or(usize::MAX);
    let filter = |limit| RunFilter { function: Some(name.clone()), limit, ..RunFilter::default() };
    let mut runs = place.runs(&filter(limit))?;
    let mut reported: HashSet<String> = HashSet::new();
    if args.follow {
        // Runs that ended before the first of these are not printed later either.
        let older = place.runs(&filter(NEWEST_MAX))?;
        reported.extend(older.into_iter().filter(|run| run.ended.is_some()).map(|run| run.id));
        for run in &runs {
            reported.remove(&run.id);
        }
    }
    loop {
        // Listed newest first.
        for run in runs.iter().rev().filter(|run| run.ended.is_some()) {
            if reported.insert(run.id.clone()) {
                tell(run, out)?;
            }
        }
        out.flush()?;
        if !args.follow {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
        runs = place.runs(&filter(NEWEST_MAX))?;
        let listed: HashSet<&str> = runs.iter().map(|run| &*run.id).collect();
        reported.retain(|id| listed.contains(&**id));
    }
}

fn tell(run: &RunDoc, out: &mut Out) -> Outcome {
    let output = run.output.as_deref().unwrap_or_default();
    if out.json() {
        let object = json!({
            "run": run.id, "function": run.function, "time": run.ended, "state": run.state, "output": output, "error": run.error,
        });
        return Ok(out.object(&object)?);
    }
    let ended = run.ended.as_deref().and_then(show::moment).unwrap_or_default();
    let style = if run.error.is_some() { Style::Bad } else { Style::Dim };
    let head = out.styled(style, &format!("{}  run {} {}, {}", show::rfc3339(ended), run.id, run.state, run.record));
    out.line(head)?;
    let error = run.error.as_ref().map(|dead| format!("{} {}", dead.code, dead.detail)).unwrap_or_default();
    for line in output.lines().chain(error.lines()) {
        out.line(format!("  {}", show::one_line(line.as_bytes())))?;
    }
    Ok(())
}
