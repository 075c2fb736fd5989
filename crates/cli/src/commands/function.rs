//! `millrace function …`

use crate::{
    args::{DeployArgs, FunctionCommand, Global, RmFunctionArgs},
    out::{Out, Style, Table},
    place::{Place, docs::FunctionDoc},
    report::Outcome,
    show,
};
use millrace_node::{Change, Code, FunctionSpec, LogName, Name, Namespace, Result, functions};
use serde_json::json;

pub fn run(command: &FunctionCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        FunctionCommand::Deploy(args) => deploy(place.files()?, args, out),
        FunctionCommand::Ls => ls(&place, out),
        FunctionCommand::Rm(args) => rm(place.files()?, args, out),
    }
}

/// What the options say, with defaults for the rest.
fn spec(args: &DeployArgs) -> Result<FunctionSpec> {
    let mut spec = FunctionSpec::new(args.name.parse()?, args.runtime.into());
    spec.on = args.on.iter().map(|log| log.parse()).collect::<Result<Vec<LogName>>>()?;
    spec.on.dedup();
    spec.command = args.command.clone();
    if let Some(handler) = &args.handler {
        spec.handler = handler.clone();
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
    spec.timeout = args.timeout.unwrap_or(spec.timeout);
    spec.memory_max_bytes = args.memory.unwrap_or(spec.memory_max_bytes);
    spec.retries = args.retries.map_or(spec.retries, |retries| retries as u32); // no more than 100
    spec.backoff = args.backoff.unwrap_or(spec.backoff);
    if let Some(log) = &args.dead_letter {
        spec.dead_letter = log.parse()?;
    }
    Ok(spec)
}

fn deploy(namespace: &Namespace, args: &DeployArgs, out: &mut Out) -> Outcome {
    let spec = spec(args)?;
    let deployed = functions::deploy(namespace, &spec, &args.code)?;
    if out.json() {
        let change = &deployed.change;
        return Ok(out.object(&json!({ "function": deployed.name, "change": change, "code": deployed.code }))?);
    }
    let name = &deployed.name;
    let runs = match spec.on.as_slice() {
        [] => "runs when an append names it".to_string(),
        logs => format!("runs for every record of {}", logs.iter().map(|log| &**log).collect::<Vec<_>>().join(", ")),
    };
    out.line(match deployed.change {
        Change::Created => format!("deployed function {name}; it {runs}"),
        Change::Updated => format!("replaced function {name}; it {runs}"),
        Change::Unchanged => format!("function {name} is deployed already, the same in every respect"),
    })?;
    Ok(())
}

fn rm(namespace: &Namespace, args: &RmFunctionArgs, out: &mut Out) -> Outcome {
    let name: Name = args.name.parse()?;
    let given_up = match args.force {
        true => functions::give_up(namespace, &name)?,
        false => functions::remove(namespace, &name).map(|()| 0)?,
    };
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
    let mut table = Table::new(&["function", "runtime", "pending>", "done>", "dead>", "code", "runs for"]);
    for function in &functions {
        let (runtime, code, on) = match &function.definition {
            Some(definition) => {
                (definition.runtime.clone(), definition.code.chars().take(8).collect(), definition.on.join(", "))
            }
            None => {
                let error = function.error.as_ref().map_or_else(String::new, ToString::to_string);
                ("?".into(), String::new(), out.styled(Style::Bad, &error))
            }
        };
        table.row(vec![
            function.name.clone(),
            runtime,
            show::grouped(function.pending),
            show::grouped(function.done.saturating_sub(dead_of_its_own(function, &functions))),
            match (
                function.dead.saturating_sub(function.dead_retried),
                function.dead.saturating_sub(function.dead_kept),
            ) {
                (dead, 0) => show::grouped(dead),
                (dead, gone) => format!("{} ({} gone)", show::grouped(dead), show::grouped(gone)),
            },
            code,
            on,
        ]);
    }
    Ok(out.table(&table)?)
}

/// How many of a function's ended runs are dead; 0 if that is not known, because others leave their letters in the same log.
fn dead_of_its_own(function: &FunctionDoc, functions: &[FunctionDoc]) -> u64 {
    let log = |function: &FunctionDoc| function.definition.as_ref().map(|definition| definition.dead_letter.clone());
    let shares = functions.iter().filter(|other| log(other) == log(function)).count() > 1;
    if shares { 0 } else { function.dead }
}
