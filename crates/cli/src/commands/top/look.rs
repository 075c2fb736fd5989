//! The state of a namespace at one moment, and the rates between two moments.

use crate::place::{
    Place,
    docs::{FunctionDoc, LinkDoc, LogDoc},
};
use millrace_node::{FunctionState, HostStatus, LogName, Result};
use serde::Serialize;
use std::{collections::HashMap, time::Instant};

/// A namespace at one moment.
pub struct Look {
    at: Instant,
    logs: Vec<LogDoc>,
    functions: Vec<FunctionDoc>,
    links: Vec<LinkDoc>,
    host: Option<HostStatus>,
}

impl Look {
    pub fn at(place: &Place) -> Result<Look> {
        let (mut logs, functions, host, links) = (place.logs()?, place.functions()?, place.host()?, place.links()?);
        logs.retain(|log| !LogName::is_internal(&log.name));
        Ok(Look { at: Instant::now(), logs, functions, host, links })
    }
}

/// The changes between two states.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    pub seconds: f64,
    pub appends_per_second: f64,
    pub runs_per_second: f64,
    pub pending: u64,
    pub host: Option<HostRates>,
    pub functions: Vec<FunctionRates>,
    pub logs: Vec<LogRates>,
    pub links: Vec<LinkRates>,
}

/// The host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostRates {
    pub pid: u32,
    pub failure: Option<String>,
    /// Why the disk takes no appends now.
    pub refusal: Option<String>,
    /// Attempts that failed.
    pub failures_per_second: f64,
}

/// A log.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogRates {
    pub name: String,
    pub appends_per_second: f64,
    pub records: u64,
    pub latest: u64,
}

/// An outbox or a relay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkRates {
    pub kind: String,
    pub name: String,
    pub from: String,
    pub to: String,
    pub state: String,
    pub records_per_second: f64,
    pub lag_records: u64,
    pub lag_bytes: u64,
    /// Messages that the peer refused permanently.
    pub dead: u64,
    /// The code of what stopped it, or of what was wrong last.
    pub code: Option<String>,
    /// The kind.
    pub error: Option<String>,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FunctionRates {
    pub name: String,
    /// `idle`, `running`, `waiting`, `failing`, `stopped`, `broken`, or `no host`.
    pub state: &'static str,
    pub triggers_per_second: f64,
    pub runs_per_second: f64,
    pub pending: u64,
    pub running: usize,
    /// Runs whose last attempt failed, and that will be tried again.
    pub failing: usize,
    /// Runs that were given up and not retried since: the records of its dead-letter log, which other functions may share.
    pub dead: u64,
    pub dead_per_second: f64,
    /// Why it is not running as it should.
    pub error: Option<String>,
}

impl Rates {
    pub fn between(before: &Look, after: &Look) -> Rates {
        let seconds = after.at.duration_since(before.at).as_secs_f64().max(1e-6);
        // A log or function that was removed and made again counts from nothing.
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let latest: HashMap<&str, u64> = before.logs.iter().map(|log| (&*log.name, log.latest)).collect();
        // The growth of a new log or function is unknown.
        let grown = |log: &LogDoc| rate(latest.get(&*log.name).copied().unwrap_or(log.latest), log.latest);
        let mut logs: Vec<LogRates> = after
            .logs
            .iter()
            .map(|log| LogRates {
                name: log.name.clone(),
                appends_per_second: grown(log),
                records: log.records,
                latest: log.latest,
            })
            .collect();
        let counts: HashMap<&str, &FunctionDoc> = before.functions.iter().map(|f| (&*f.name, f)).collect();
        let dead: HashMap<&str, &LogRates> = logs.iter().map(|log| (&*log.name, log)).collect();
        let function = |doc: &FunctionDoc| {
            let was = counts.get(&*doc.name).copied().unwrap_or(doc);
            let dead_letters = doc.definition.as_ref().and_then(|definition| dead.get(&*definition.dead_letter));
            FunctionRates {
                triggers_per_second: rate(was.triggered, doc.triggered),
                runs_per_second: rate(was.done, doc.done),
                dead: dead_letters.map_or(0, |log| log.latest.saturating_sub(doc.dead_retried)),
                dead_per_second: dead_letters.map_or(0.0, |log| log.appends_per_second),
                ..state(doc, after.host.as_ref())
            }
        };
        let functions: Vec<FunctionRates> = after.functions.iter().map(function).collect();
        let link = |doc: &LinkDoc| {
            let was = before.links.iter().find(|was| was.kind == doc.kind && was.name == doc.name).unwrap_or(doc);
            LinkRates {
                kind: doc.kind.clone(),
                name: doc.name.clone(),
                from: doc.from.clone(),
                to: doc.to.clone(),
                state: doc.state.clone(),
                records_per_second: rate(was.acked, doc.acked),
                lag_records: doc.lag_records,
                lag_bytes: doc.lag_bytes,
                dead: doc.dead,
                code: doc.code.clone(),
                error: doc.error.clone(),
            }
        };
        let links = after.links.iter().map(link).collect();
        // The busiest come first, where a screen shows them.
        logs.sort_by(|a, b| b.appends_per_second.total_cmp(&a.appends_per_second).then_with(|| a.name.cmp(&b.name)));
        let failed = |look: &Look| look.host.as_ref().map_or(0, |host| host.runs_failed);
        Rates {
            seconds,
            appends_per_second: logs.iter().fold(0.0, |sum, log| sum + log.appends_per_second),
            runs_per_second: functions.iter().fold(0.0, |sum, function| sum + function.runs_per_second),
            pending: functions.iter().map(|function| function.pending).sum(),
            host: after.host.as_ref().map(|host| HostRates {
                pid: host.pid,
                failure: host.failure.clone(),
                refusal: host.refusal.clone(),
                failures_per_second: rate(failed(before), failed(after)),
            }),
            functions,
            logs,
            links,
        }
    }
}

/// The state of a function from a single look.
fn state(doc: &FunctionDoc, host: Option<&HostStatus>) -> FunctionRates {
    let base = FunctionRates { name: doc.name.clone(), pending: doc.pending, ..FunctionRates::default() };
    if let Some(error) = &doc.error {
        return FunctionRates { state: "broken", error: Some(error.to_string()), ..base };
    }
    let Some(host) = host else { return FunctionRates { state: "no host", ..base } };
    // A cause that blocks everything is shown with each function that has pending runs.
    let common = host.failure.as_ref().or(host.refusal.as_ref()).filter(|_| doc.pending > 0).cloned();
    let Some(live) = host.function(&doc.name) else {
        return FunctionRates { state: if doc.pending > 0 { "waiting" } else { "idle" }, error: common, ..base };
    };
    let (running, failing) = (live.running.len(), live.backing_off.len());
    let last_error = live.backing_off.iter().find_map(|run| run.error.clone());
    let (state, error) = match &live.state {
        FunctionState::Stopped { error, .. } => ("stopped", Some(error.clone())),
        FunctionState::Ready if failing > 0 => ("failing", last_error),
        FunctionState::Ready if running > 0 => ("running", None),
        FunctionState::Ready if doc.pending > 0 => ("waiting", None),
        FunctionState::Ready => ("idle", None),
    };
    FunctionRates { state, error: error.or(common), running, failing, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::docs::DefinitionDoc;
    use serde_json::json;
    use std::time::Duration;

    fn look(at: Instant, latest: u64, done: u64, dead: u64) -> Look {
        let log = |name: &str, latest| LogDoc { name: name.into(), latest, records: latest, ..LogDoc::default() };
        let definition: DefinitionDoc = serde_json::from_value(json!({
            "runtime": "wasm", "on": ["raw"], "ordered": true, "streamed": false, "concurrency": 1, "monitor": null, "retries": 0,
            "dead_letter": "dead/f", "code": "",
        }))
        .unwrap();
        let function = FunctionDoc {
            name: "f".into(),
            triggered: latest,
            done,
            pending: latest - done,
            definition: Some(definition),
            ..FunctionDoc::default()
        };
        let logs = vec![log("raw", latest), log("dead/f", dead)];
        Look { at, logs, functions: vec![function], links: Vec::new(), host: None }
    }

    #[test]
    fn rates_are_what_changed_by_the_time_between() {
        let at = Instant::now();
        let rates = Rates::between(&look(at, 100, 50, 1), &look(at + Duration::from_secs(2), 300, 150, 3));
        assert_eq!((rates.appends_per_second, rates.runs_per_second, rates.pending), (101.0, 50.0, 150));
        assert_eq!((rates.logs[0].name.as_str(), rates.logs[0].appends_per_second), ("raw", 100.0));
        let f = &rates.functions[0];
        assert_eq!((f.state, f.triggers_per_second, f.dead, f.dead_per_second), ("no host", 100.0, 3, 1.0));
    }

    #[test]
    fn dead_runs_that_were_retried_do_not_count() {
        let at = Instant::now();
        let (before, mut after) = (look(at, 9, 9, 3), look(at + Duration::from_secs(1), 9, 9, 3));
        after.functions[0].dead_retried = 2;
        assert_eq!(Rates::between(&before, &after).functions[0].dead, 1);
    }

    #[test]
    fn what_is_new_or_was_made_again_has_no_rate() {
        let at = Instant::now();
        let mut empty = look(at, 0, 0, 0);
        empty.logs.clear();
        empty.functions.clear();
        let rates = Rates::between(&empty, &look(at + Duration::from_secs(1), 500, 500, 0));
        assert_eq!((rates.appends_per_second, rates.runs_per_second), (0.0, 0.0));
        let rates = Rates::between(&look(at, 500, 500, 0), &look(at + Duration::from_secs(1), 1, 1, 0));
        assert_eq!((rates.appends_per_second, rates.runs_per_second), (0.0, 0.0));
    }
}
