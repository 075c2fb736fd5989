//! Functions that are invoked: the record that runs one, its run, and the run's result.

use crate::{AppendOptions, Namespace, Receipt, ResultKind, RunResult, RunState, RunView};
use millrace_namespace::no_function;
use millrace_wire::{Code, Error, EventId, LogName, Name, Result};
use std::time::{Duration, Instant};

/// History of the log that records for a function without a log are appended to.
pub const INVOKE_HISTORY: u64 = 1000;
/// How long a caller waits for the end of the run by default, and at most.
pub const WAIT: Duration = Duration::from_secs(30);
/// The maximum of [`WAIT`].
pub const WAIT_MAX: Duration = Duration::from_secs(300);
/// The longest description of an error that a caller gets, in bytes.
const ERROR_MAX_BYTES: usize = 1000;

/// The log to append to, and whether the function is bound to it: the one that is named, or the function's only one, or one for such records
/// if it has none.
pub fn log_to_invoke(function: &str, on: &[LogName], log: Option<&str>) -> Result<(String, bool)> {
    match (log, on) {
        (Some(log), on) => Ok((log.to_owned(), on.iter().any(|bound| **bound == *log))),
        (None, [log]) => Ok((log.to_string(), true)),
        (None, []) => Ok((format!("invoke/{function}"), false)),
        (None, several) => {
            let several: Vec<&str> = several.iter().map(|log| &**log).collect();
            let detail = format!("function '{function}' is bound to several logs: {}; choose one", several.join(", "));
            Err(Code::ValueInvalid.error(detail))
        }
    }
}

/// Appends a record that runs a function, and says to which log.
pub fn invoke(
    namespace: &Namespace,
    function: &Name,
    log: Option<&str>,
    data: &[u8],
    options: AppendOptions<'_>,
) -> Result<(String, Receipt)> {
    let there = namespace.functions()?.into_iter().find(|stat| stat.name == *function);
    let definition = there.ok_or_else(|| no_function(function))?.definition?;
    let (to, is_bound) = log_to_invoke(function, &definition.spec.on, log)?;
    if log.is_none() && namespace.log(&to).is_err_and(|error| error.code() == Code::LogNotFound) {
        namespace.create_log(&to.parse()?, INVOKE_HISTORY)?;
    }
    let function = (!is_bound).then_some(&**function);
    let receipt = namespace.append(&to, data, AppendOptions { function, ..options })?;
    Ok((to, receipt))
}

/// The run of a function that a record started, once it has ended, or as it is when the time is up.
pub fn wait(namespace: &Namespace, function: &str, record: EventId, timeout: Duration) -> Result<RunView> {
    let started = Instant::now();
    let run = namespace.run_of(record, function)?.ok_or_else(|| no_run(function))?;
    loop {
        let seen = namespace.journal().tail();
        let view = namespace.inspect(|namespace| namespace.run(run.id))?;
        let left = timeout.saturating_sub(started.elapsed());
        if view.ended.is_some() || left.is_zero() {
            return Ok(view);
        }
        namespace.journal().wait(seen, left.min(Duration::from_secs(1)));
    }
}

/// The error for a record whose run cannot be found.
pub fn no_run(function: &str) -> Error {
    let function = function.escape_debug();
    Code::RunNotFound.error(format!("the run of function '{function}' for this record is not kept any more"))
}

/// What the caller gets of a run that has ended: its result, or why there is none. The description of an error is its first line: the others
/// are for those who may inspect the run.
pub fn answer(run: &RunView) -> Result<Option<&RunResult>> {
    if let Some(dead) = run.ending.as_ref().and_then(|ending| ending.dead.as_ref()) {
        let code = match run.state {
            RunState::Cancelled => Code::RunCancelled,
            _ => Code::from_id(&dead.code).unwrap_or(Code::FunctionFailed),
        };
        return Err(code.error(brief(&dead.error)));
    }
    match &run.result {
        Some(RunResult { kind: ResultKind::Dropped, bytes }) => {
            Err(Code::ResultDropped.error(brief(&String::from_utf8_lossy(bytes))))
        }
        result => Ok(result.as_ref()),
    }
}

/// The first line of a text.
fn brief(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    line[..line.floor_char_boundary(ERROR_MAX_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_without_a_log_gets_one_of_its_own() {
        let logs = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<LogName>>();
        assert_eq!(log_to_invoke("f", &[], None).unwrap(), ("invoke/f".into(), false));
        assert_eq!(log_to_invoke("f", &logs(&["a"]), None).unwrap(), ("a".into(), true));
        assert_eq!(log_to_invoke("f", &logs(&["a", "b"]), Some("b")).unwrap(), ("b".into(), true));
        assert_eq!(log_to_invoke("f", &logs(&["a"]), Some("c")).unwrap(), ("c".into(), false));
        assert_eq!(log_to_invoke("f", &logs(&["a", "b"]), None).unwrap_err().code(), Code::ValueInvalid);
    }

    #[test]
    fn callers_get_the_first_line_of_an_error() {
        assert_eq!(brief("ValueError: no\nTraceback"), "ValueError: no");
        assert_eq!(brief(&"é".repeat(600)).len(), ERROR_MAX_BYTES);
    }
}
