//! `millrace function …`

use crate::{
    args::{DeployArgs, FunctionCommand, Global},
    out::{Out, Style, Table},
    place,
    report::Outcome,
    show,
};
use millrace_node::{Change, Code, FunctionSpec, FunctionStat, LogName, Name, Namespace, Result};
use serde_json::{Value, json};

pub fn run(command: &FunctionCommand, global: &Global, out: &mut Out) -> Outcome {
    let namespace = place::open(global)?;
    match command {
        FunctionCommand::Deploy(args) => deploy(&namespace, args, out),
        FunctionCommand::Ls => ls(&namespace, out),
        FunctionCommand::Rm(args) => rm(&namespace, &args.name, out),
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
    let deployed = namespace.deploy(&spec, &args.code)?;
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

fn rm(namespace: &Namespace, name: &str, out: &mut Out) -> Outcome {
    let name: Name = name.parse()?;
    namespace.remove_function(&name)?;
    if out.json() {
        out.object(&json!({ "function": name, "change": "removed" }))?;
    } else {
        out.line(format!("removed function {name}"))?;
    }
    Ok(())
}

fn object(stat: &FunctionStat) -> Value {
    let mut object = json!({
        "name": stat.name, "triggered": stat.triggered, "done": stat.done, "pending": stat.pending(),
    });
    match &stat.definition {
        Ok(definition) => {
            let spec = &definition.spec;
            object["runtime"] = json!(spec.runtime);
            object["on"] = json!(spec.on);
            object["ordered"] = json!(spec.ordered);
            object["concurrency"] = json!(spec.concurrency);
            object["monitor"] = json!(spec.monitor);
            object["retries"] = json!(spec.retries);
            object["dead_letter"] = json!(spec.dead_letter);
            object["code"] = json!(definition.code);
        }
        Err(error) => object["error"] = crate::report::object(error)["error"].clone(),
    }
    object
}

fn ls(namespace: &Namespace, out: &mut Out) -> Outcome {
    let functions = namespace.functions()?;
    if out.json() {
        for stat in &functions {
            out.object(&object(stat))?;
        }
        return Ok(());
    }
    if functions.is_empty() {
        return Ok(out.line("no functions; `millrace up` deploys those of millrace.toml")?);
    }
    let mut table = Table::new(&["function", "runtime", "pending>", "done>", "code", "runs for"]);
    for stat in &functions {
        let (runtime, code, on) = match &stat.definition {
            Ok(definition) => {
                let logs: Vec<&str> = definition.spec.on.iter().map(|log| &**log).collect();
                (definition.spec.runtime.to_string(), definition.code.chars().take(8).collect(), logs.join(", "))
            }
            Err(error) => ("?".into(), String::new(), out.styled(Style::Bad, &error.to_string())),
        };
        table.row(vec![
            stat.name.to_string(),
            runtime,
            show::grouped(stat.pending()),
            show::grouped(stat.done),
            code,
            on,
        ]);
    }
    Ok(out.table(&table)?)
}
