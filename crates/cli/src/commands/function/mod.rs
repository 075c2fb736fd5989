//! `millrace function …`

mod backfill;
pub mod invoke;
mod logs;

use crate::{
    args::{DeployArgs, FunctionCommand, Global, ModeArg, RmFunctionArgs},
    out::{Out, Style, Table},
    place::{
        Place,
        docs::{DefinitionDoc, FunctionDoc},
    },
    report::Outcome,
    show,
};
use millrace_node::{
    Change, Code, FunctionSpec, Level, LogName, LogScope, Name, Namespace, Result, Rights, Runtime, functions,
};
use serde_json::json;
use std::collections::HashSet;

pub fn run(command: &FunctionCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        FunctionCommand::Deploy(args) => deploy(place.files()?, args, out),
        FunctionCommand::Ls => ls(&place, out),
        FunctionCommand::Pools => pools(&place, out),
        FunctionCommand::Show(args) => show_one(&place, &args.name, out),
        FunctionCommand::Invoke(args) => invoke::run(&place, args, out),
        FunctionCommand::Backfill(args) => backfill::run(&place, args, out),
        FunctionCommand::Logs(args) => logs::run(&place, args, out),
        FunctionCommand::Rm(args) => rm(&place, args, out),
    }
}

fn pools(place: &Place, out: &mut Out) -> Outcome {
    let doc = place.tasks()?;
    if out.json() {
        for pool in &doc.pools {
            out.object(&json!(pool))?;
        }
        return Ok(());
    }
    if doc.pools.is_empty() {
        return Ok(out.line("no pools")?);
    }
    let mut table = Table::new(&[
        "pool",
        "workers>",
        "queued>",
        "running>",
        "retrying>",
        "ended>",
        "raised>",
        "failed>",
        "last result",
    ]);
    let now_us = show::now_us();
    for pool in &doc.pools {
        let counts = [pool.queued, pool.running, pool.retrying, pool.done, pool.raised, pool.failed].map(show::grouped);
        let last = pool.last.as_deref().and_then(show::moment);
        let mut row = vec![pool.pool.clone(), pool.workers.to_string()];
        row.extend(counts);
        row.push(last.map_or(String::new(), |last| show::ago(last, now_us)));
        table.row(row);
    }
    Ok(out.table(&table)?)
}

/// The options, with defaults for the rest.
fn spec(args: &DeployArgs) -> Result<FunctionSpec> {
    let mut spec = FunctionSpec::new(args.name.parse()?, args.runtime.into());
    spec.on = args.on.iter().map(|log| log.parse()).collect::<Result<Vec<LogName>>>()?;
    spec.on.dedup();
    spec.at = args.at.as_deref().map(str::parse).transpose()?;
    spec.command = args.command.clone();
    if let Some(handler) = &args.handler {
        spec.handler = handler.clone();
    } else if spec.runtime == Runtime::Python {
        let detail =
            format!("function '{}': a python function needs a handler: give --handler MODULE:FUNCTION", args.name);
        return Err(Code::FunctionInvalid.error(detail));
    }
    if let Some(python) = &args.python {
        spec.python = python.clone();
        if python.contains('/') {
            let path =
                std::path::absolute(python).map_err(|error| Code::ValueInvalid.error(format!("--python: {error}")))?;
            spec.python = path.to_string_lossy().into_owned();
        }
    }
    if let Some(concurrency) = args.concurrency {
        spec.concurrency = concurrency as u32; // clap admits no more than 64
        spec.ordered = concurrency == 1;
    }
    spec.monitor = args.monitor.as_deref().map(str::parse).transpose()?;
    spec.streamed = args.streamed;
    spec.isolation = args.isolation.as_deref().map_or(Ok(spec.isolation), str::parse)?;
    spec.table_mode = args.table_mode.map(Into::into);
    spec.network = args.network;
    spec.rights = rights(args)?;
    spec.timeout = args.timeout.unwrap_or(spec.timeout);
    spec.memory_max_bytes = args.memory.unwrap_or(spec.memory_max_bytes);
    spec.retries = args.retries.map_or(spec.retries, |retries| retries as u32); // no more than 100
    spec.backoff = args.backoff.unwrap_or(spec.backoff);
    if let Some(log) = &args.dead_letter {
        spec.dead_letter = log.parse()?;
    }
    Ok(spec)
}

fn rights(args: &DeployArgs) -> Result<Rights> {
    let logs = |texts: &[String]| -> Result<Option<Vec<LogScope>>> {
        let logs = texts.iter().map(|text| text.parse()).collect::<Result<Vec<_>>>()?;
        Ok(Some(logs).filter(|logs| !logs.is_empty()))
    };
    Ok(Rights {
        reads: logs(&args.reads)?,
        appends: logs(&args.appends)?,
        sends: args.sends.iter().map(|text| text.parse()).collect::<Result<_>>()?,
        secrets: args.secret.iter().map(|text| text.parse()).collect::<Result<_>>()?,
    })
}

fn deploy(namespace: &Namespace, args: &DeployArgs, out: &mut Out) -> Outcome {
    let spec = spec(args)?;
    let json = out.json();
    let slow = &mut |what: &str| super::up::slow(&spec.name, what, json);
    let deployed = functions::deploy_with(namespace, &spec, &args.code, Some(&super::sandbox::isolation), slow)?;
    if out.json() {
        let change = &deployed.change;
        return Ok(out.object(&json!({ "function": deployed.name, "change": change, "code": deployed.code }))?);
    }
    let name = &deployed.name;
    let runs = match spec.on.as_slice() {
        logs if spec.at.is_some() => {
            let logs = logs.iter().map(|log| &**log).collect::<Vec<_>>().join(", ");
            format!("is the twin of what devices run for every record of {logs}")
        }
        [] => "runs only for appends that name it".to_string(),
        logs => format!("runs for every record of {}", logs.iter().map(|log| &**log).collect::<Vec<_>>().join(", ")),
    };
    out.line(match deployed.change {
        Change::Created => format!("deployed function {name}; it {runs}"),
        Change::Updated => format!("replaced function {name}; it {runs}"),
        Change::Unchanged => format!("function {name} is already deployed; nothing was changed"),
    })?;
    Ok(())
}

fn rm(place: &Place, args: &RmFunctionArgs, out: &mut Out) -> Outcome {
    let name: Name = args.name.parse()?;
    let given_up = place.remove_function(&name, args.force)?;
    if out.json() {
        out.object(&json!({ "function": name, "change": "removed", "given_up": given_up }))?;
    } else {
        out.line(format!("removed function {name}{}", show::given_up(given_up)))?;
    }
    Ok(())
}

fn ls(place: &Place, out: &mut Out) -> Outcome {
    let functions = place.functions()?;
    if out.json() {
        for function in &functions {
            out.object(&json!(function))?;
        }
        return Ok(());
    }
    if functions.is_empty() {
        return Ok(out.line("no functions; `millrace up` deploys those of millrace.toml")?);
    }
    let has_devices = |function: &FunctionDoc| function.definition.as_ref().is_some_and(|it| it.at.is_some());
    let logs = if functions.iter().any(has_devices) { place.logs()? } else { Vec::new() };
    let devices: HashSet<&str> = logs.iter().filter_map(|log| log.name.strip_prefix("_device/")).collect();
    let mut table = Table::new(&["function", "runtime", "pending>", "ended>", "dead>", "code", "runs for", "may"]);
    for function in &functions {
        let (runtime, code, on, may) = match &function.definition {
            Some(definition) => (
                definition.runtime.clone(),
                definition.code.chars().take(8).collect(),
                definition.on.join(", "),
                definition.at.as_ref().map_or_else(|| may(definition), |model| runs_on(definition, model, &devices)),
            ),
            None => {
                let error = function.error.as_ref().map_or_else(String::new, ToString::to_string);
                ("?".into(), String::new(), out.styled(Style::Bad, &error), String::new())
            }
        };
        table.row(vec![
            function.name.clone(),
            runtime,
            show::grouped(function.pending),
            show::grouped(function.done),
            match (
                function.dead.saturating_sub(function.dead_retried),
                function.dead.saturating_sub(function.dead_kept),
            ) {
                (dead, 0) => show::grouped(dead),
                (dead, gone) => format!("{} ({} gone)", show::grouped(dead), show::grouped(gone)),
            },
            code,
            on,
            may,
        ]);
    }
    out.table(&table)?;
    // A full sandbox needs no line.
    let sandbox = place.host()?.and_then(|host| host.sandbox).filter(|sandbox| sandbox.level != Level::Full.as_str());
    if let Some(sandbox) = sandbox {
        out.line(format!("sandbox: {}", sandbox.summary))?;
        sandbox.remedies.iter().try_for_each(|remedy| out.line(format!("  {remedy}")))?;
    }
    Ok(())
}

/// Where a function runs that does not run here.
fn runs_on(definition: &DefinitionDoc, model: &str, devices: &HashSet<&str>) -> String {
    // A device without a model is its own model.
    let is_of_one = definition.on.iter().all(|log| log.split_once('/').is_some_and(|(device, _)| device == model));
    match is_of_one && !definition.on.is_empty() && !devices.contains(model) {
        true => format!("nothing runs it: device {model} was removed"),
        false => format!("runs on devices of model {model}"),
    }
}

/// A summary of a function's rights; `function show` lists them.
fn may(definition: &DefinitionDoc) -> String {
    let logs = |what: &str, scopes: &Option<Vec<String>>| match scopes.as_deref() {
        None => format!("{what} all logs"),
        Some([one]) => format!("{what} {one}"),
        Some(scopes) => format!("{what} {}", show::count(scopes.len() as u64, "log")),
    };
    let mut words = vec![logs("read", &definition.reads), logs("append", &definition.appends)];
    words.extend((!definition.sends.is_empty()).then(|| format!("send {}", definition.sends.join(" "))));
    words.extend((!definition.secrets.is_empty()).then(|| format!("secrets {}", definition.secrets.join(" "))));
    words.extend(definition.network.then(|| "network".to_owned()));
    words.join(", ")
}

fn show_one(place: &Place, name: &str, out: &mut Out) -> Outcome {
    let function = place.function(name)?;
    if out.json() {
        return Ok(out.object(&json!(function))?);
    }
    let FunctionDoc { triggered, done, pending, dead, .. } = &function;
    let line = |key: &str, value: &str| format!("{key:12} {value}");
    out.line(line("function", &function.name))?;
    out.line(line("runs", &format!("{triggered}: {pending} pending, {done} ended, {dead} failed for good")))?;
    if let Some(error) = &function.error {
        return Ok(out.line(line("definition", &out.styled(Style::Bad, &error.to_string())))?);
    }
    let Some(definition) = &function.definition else { return Ok(()) };
    let listed = |values: &[String]| if values.is_empty() { "-".to_owned() } else { values.join(" ") };
    let logs = |scopes: &Option<Vec<String>>| scopes.as_deref().map_or_else(|| "every log".to_owned(), listed);
    for (key, value) in [
        ("runtime", definition.runtime.clone()),
        ("runs on", definition.at.as_ref().map_or("this host".into(), |model| format!("devices of model {model}"))),
        ("code", if definition.code.is_empty() { "-".into() } else { definition.code.clone() }),
        ("runs for", listed(&definition.on)),
        ("dead letters", definition.dead_letter.clone()),
        ("reads", logs(&definition.reads)),
        ("appends", logs(&definition.appends)),
        ("sends", listed(&definition.sends)),
        ("secrets", listed(&definition.secrets)),
        ("isolation", definition.isolation.clone().unwrap_or_else(|| "snapshot".to_owned())),
        ("table mode", definition.table_mode.map_or("that of each table", ModeArg::word).to_owned()),
        ("network", if definition.network { "the host's" } else { "-" }.to_owned()),
    ] {
        out.line(line(key, &value))?;
    }
    Ok(())
}
