//! Information about a namespace, as JSON that `millrace._views` reads.

use millrace_node::{
    Deployed, FunctionSpec, Isolation, Name, Namespace, RunFilter, Runtime, devices, documents, functions, pools,
    repairs::{self, Ask},
};
use millrace_wire::{Code, Error, Result};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::Path, str::FromStr, sync::Arc, time::Duration};

/// What goes with a question, by name.
pub type Options = BTreeMap<String, String>;

/// The answer to a question, as JSON text: the documents that hosts answer.
pub fn show(namespace: &Namespace, what: &str, options: &Options) -> Result<String> {
    namespace.inspect(|namespace| look(namespace, what, options))
}

fn look(namespace: &Namespace, what: &str, options: &Options) -> Result<String> {
    let answer = match what.split_once('/').unwrap_or((what, "")) {
        ("logs", "") => {
            let logs = namespace.logs()?;
            let logs: Result<Vec<_>> =
                logs.iter().filter_map(|log| documents::log_if_there(namespace, log, false).transpose()).collect();
            json!({ "logs": logs? })
        }
        ("tables", "") => json!({ "tables": documents::tables(namespace, &|_| true)? }),
        ("functions", "") => {
            json!({ "functions": namespace.functions()?.iter().map(documents::function).collect::<Vec<_>>() })
        }
        ("devices", "") => json!({ "devices": devices::all(namespace)?, "refused": devices::refused(namespace)? }),
        ("devices", name) => json!(devices::one(namespace, name)?),
        ("runs", "") => {
            json!({ "runs": namespace.runs(&filter(options)?)?.iter().map(documents::run).collect::<Vec<_>>() })
        }
        ("runs", id) => json!(documents::run(&namespace.run(id.parse()?)?)),
        ("repairs", "") => {
            json!({ "repairs": repairs::repairs(namespace)?, "amendments": repairs::amendments(namespace)? })
        }
        ("repairs", of) => match of.strip_suffix("/diff") {
            Some(number) => changes(namespace, repair_number(number)?, options)?,
            None => json!(repairs::repair(namespace, repair_number(of)?)?),
        },
        ("why", "") => json!(documents::why(namespace, options.get("target").map_or("", String::as_str))?),
        _ => return Err(Code::ValueInvalid.error(format!("'{}' is not a question", what.escape_debug()))),
    };
    Ok(answer.to_string())
}

fn repair_number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Code::RepairNotFound.error(format!("no repair '{}'", text.escape_debug())))
}

/// A page of what a repair changes.
fn changes(namespace: &Namespace, number: u64, options: &Options) -> Result<Value> {
    let odd = || Code::ValueInvalid.error("'after' is not a number: the number of changes to skip");
    let after = options.get("after").map_or(Ok(0), |after| after.parse().map_err(|_| odd()))?;
    Ok(json!(repairs::page(namespace, number, options.get("log").map(String::as_str), after)?))
}

/// Asks something of repairs, and tells the repair as it is then.
pub fn repair(namespace: &Namespace, ask: Ask) -> Result<String> {
    Ok(json!(namespace.inspect(|namespace| ask.ask(namespace))?).to_string())
}

fn filter(options: &Options) -> Result<RunFilter> {
    let mut filter = RunFilter::default();
    for (key, text) in options {
        let odd = |rule: &str| {
            let detail = format!("{key} is '{}'; it must be {rule}", text.escape_debug());
            Code::ValueInvalid.error(detail)
        };
        match key.as_str() {
            "function" => filter.function = Some(text.parse()?),
            "log" => filter.log = Some(text.parse()?),
            "limit" => filter.limit = text.parse().map_err(|_| odd("a number from 0 on"))?,
            "state" => {
                use millrace_node::RunState::{Cancelled, Dead, Done, Pending, Started};
                let named = [
                    ("pending", Pending),
                    ("started", Started),
                    ("done", Done),
                    ("dead", Dead),
                    ("cancelled", Cancelled),
                ];
                filter.state = Some(
                    named
                        .iter()
                        .find(|(name, _)| name == text)
                        .ok_or_else(|| odd("pending, started, done, dead or cancelled"))?
                        .1,
                );
            }
            _ => return Err(Code::ValueInvalid.error(format!("runs cannot be chosen by '{}'", key.escape_debug()))),
        }
    }
    Ok(filter)
}

/// Deploys a Python function: `spec` is a JSON object with the keys of millrace.toml, times in seconds, sizes in bytes.
pub fn deploy(namespace: &Namespace, spec: &str, source: &Path, isolation: &Arc<Isolation>) -> Result<String> {
    let apart = || Ok(isolation.clone());
    Ok(reported(functions::deploy_with(namespace, &parse(spec)?, source, Some(&apart), &mut |_| ())?))
}

/// Makes a pool of workers, and tells what came of its function.
pub fn make_pool(
    namespace: &Namespace,
    pool: &Name,
    spec: &str,
    source: &Path,
    isolation: &Arc<Isolation>,
) -> Result<String> {
    let apart = || Ok(isolation.clone());
    Ok(reported(pools::make(namespace, pool, &parse(spec)?, source, Some(&apart))?))
}

fn reported(Deployed { name, code, change }: Deployed) -> String {
    json!({ "name": name, "code": code, "change": change }).to_string()
}

/// A function's specification as the package writes it.
fn parse(spec: &str) -> Result<FunctionSpec> {
    let fields: Map<String, Value> = serde_json::from_str(spec).map_err(|error| invalid(&error.to_string()))?;
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().parse()?;
    let runtime =
        if fields.get("runtime").is_some_and(|runtime| runtime == "wasm") { Runtime::Wasm } else { Runtime::Python };
    let mut spec = FunctionSpec::new(name, runtime);
    for (key, value) in &fields {
        set(&mut spec, key, value)?;
    }
    Ok(spec)
}

fn invalid(what: &str) -> millrace_wire::Error {
    Code::FunctionInvalid.error(what)
}

/// A list of texts, each as what it names.
fn parsed<T: FromStr<Err = Error>>(value: &Value, odd: impl Fn() -> Error) -> Result<Vec<T>> {
    let texts = value.as_array().ok_or_else(&odd)?.iter();
    texts.map(|text| text.as_str().ok_or_else(&odd)?.parse()).collect()
}

fn set(spec: &mut FunctionSpec, key: &str, value: &Value) -> Result<()> {
    let odd = || invalid(&format!("function '{}': {key} cannot be {value}", spec.name));
    let text = || value.as_str().ok_or_else(odd);
    let number = || value.as_u64().ok_or_else(odd);
    let small = || number()?.try_into().map_err(|_| odd());
    let time = || value.as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(odd);
    match key {
        "name" | "runtime" => {}
        "handler" => spec.handler = text()?.into(),
        "python" => spec.python = text()?.into(),
        "on" => spec.on = parsed(value, odd)?,
        "concurrency" => spec.concurrency = small()?,
        "ordered" => spec.ordered = value.as_bool().ok_or_else(odd)?,
        "streamed" => spec.streamed = value.as_bool().ok_or_else(odd)?,
        "isolation" => spec.isolation = text()?.parse()?,
        "table_mode" => spec.table_mode = Some(serde_json::from_value(value.clone()).map_err(|_| odd())?),
        "network" => spec.network = value.as_bool().ok_or_else(odd)?,
        "reads" => spec.rights.reads = Some(parsed(value, odd)?),
        "appends" => spec.rights.appends = Some(parsed(value, odd)?),
        "sends" => spec.rights.sends = parsed(value, odd)?,
        "secrets" => spec.rights.secrets = parsed(value, odd)?,
        "monitor" => spec.monitor = Some(text()?.parse()?),
        "timeout" => spec.timeout = time()?,
        "memory" => spec.memory_max_bytes = number()?,
        "output" => spec.output_max_bytes = number()?,
        "retries" => spec.retries = small()?,
        "backoff" => spec.backoff = time()?,
        "dead_letter" => spec.dead_letter = text()?.parse()?,
        "pending_max" => spec.pending_max = number()?,
        "env" => {
            let variables = value.as_object().ok_or_else(odd)?.iter();
            let pair = |(key, value): (&String, &Value)| Ok((key.clone(), value.as_str().ok_or_else(odd)?.into()));
            spec.env = variables.map(pair).collect::<Result<_>>()?;
        }
        _ => return Err(invalid(&format!("function '{}': there is no '{key}'", spec.name))),
    }
    Ok(())
}
