//! Reads `[functions.NAME]`: what to run, when, and within which limits.

pub(super) mod devices;

use super::{
    FunctionDeclaration, keys,
    problem::{Collector, nearest, shown},
    quoted,
    section::{Placed, Section, Span, parse},
    topics,
};
use millrace_namespace::definition::{
    BACKOFF_MAX, BOUND_LOGS_MAX, CONCURRENCY_MAX, FunctionSpec, OUTPUT_MAX_BYTES, PENDING_MAX, RETRIES_MAX,
    RunIsolation, Runtime, SCOPES_MAX, SECRETS_MAX, TIMEOUT_MAX,
};
use millrace_namespace::tasks;
use millrace_wire::{Error, LogName, Name, TableMode};
use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use toml_edit::Item;

const RUNTIMES: [(&str, Runtime); 4] = [
    ("python", Runtime::Python),
    ("wasm", Runtime::Wasm),
    ("process", Runtime::Process),
    ("oneshot", Runtime::Oneshot),
];

/// The prefix of the name of a topic in lists of logs.
const TOPIC: &str = "topic:";

/// Keys that mean something to some runtimes only, and to which.
const ONLY_FOR: [(&str, &[Runtime]); 5] = [
    ("handler", &[Runtime::Python, Runtime::Wasm]),
    ("python", &[Runtime::Python]),
    ("command", &[Runtime::Process, Runtime::Oneshot]),
    ("env", &[Runtime::Python, Runtime::Process, Runtime::Oneshot]),
    // Programs in Python make their pools themselves.
    ("pool", &[Runtime::Process, Runtime::Wasm]),
];

/// Keys that a pool cannot have: its tasks determine what it runs for, reads and appends.
const NOT_FOR_POOLS: [&str; 5] = ["on", "reads", "appends", "streamed", "isolation"];

/// The logs a function names, to be checked against those of the file, and the topics that it runs for.
#[derive(Default)]
pub(super) struct Bindings {
    pub(super) on: Vec<Placed<LogName>>,
    pub(super) topics: Vec<LogName>,
    pub(super) dead_letter: Option<LogName>,
}

/// The result of reading one function; `declaration` is set only if nothing essential was wrong.
#[derive(Default)]
pub(super) struct Read {
    pub(super) declaration: Option<FunctionDeclaration>,
    pub(super) bindings: Bindings,
}

/// Reads the table of one function.
pub(super) fn read(
    name: &str,
    item: &Item,
    span: Span,
    base: &Path,
    exists: &dyn Fn(&Path) -> bool,
    problems: &mut Collector<'_>,
) -> Read {
    let parsed = parse::<Name>(name).map_err(|message| problems.add(span.clone(), message)).ok();
    let label = format!("[functions.{}]", shown(name));
    let Some(section) = Section::open(item, span, label, keys::FUNCTION, problems) else { return Read::default() };
    let bindings = read_bindings(name, &section, problems);
    let runtime = read_runtime(&section, problems);
    let source = read_source(&section, base, exists, problems);
    // A wrong name or runtime is no reason not to look at the rest: every mistake is reported at once.
    let right = parsed.is_some() && runtime.is_some();
    let name = parsed.unwrap_or_else(|| "unnamed".parse().expect("these letters make a name"));
    let meant = runtime.or_else(|| meant_runtime(item));
    let mut spec = FunctionSpec::new(name, meant.unwrap_or(Runtime::Oneshot));
    spec.on = bindings.on.iter().map(|bound| bound.value.clone()).collect();
    if let Some(log) = &bindings.dead_letter {
        spec.dead_letter = log.clone();
    }
    // Keys that a guessed runtime lacks need not be mistakes.
    if runtime.is_some() || (meant.is_some() && (section.has("handler") || section.has("command"))) {
        read_entry(&section, base, exists, &mut spec, problems);
    }
    read_order(&section, &mut spec, problems);
    read_limits(&section, &mut spec, problems);
    read_rights(&section, &mut spec, problems);
    let may_be_pool = right && matches!(runtime, Some(Runtime::Process | Runtime::Wasm));
    if may_be_pool && section.flag("pool", problems).unwrap_or(false) {
        read_pool(&section, &mut spec, problems);
    }
    let topics = bindings.topics.clone();
    let declaration = source.filter(|_| right).map(|source| FunctionDeclaration { spec, source, topics });
    Read { declaration, bindings }
}

fn read_bindings(name: &str, section: &Section<'_>, problems: &mut Collector<'_>) -> Bindings {
    let (mut on, mut topics): (Vec<Placed<LogName>>, Vec<LogName>) = Default::default();
    let texts = section.texts("on", problems).map(|list| list.value).unwrap_or_default();
    if texts.len() > BOUND_LOGS_MAX {
        let message =
            format!("on in {}: {} logs are listed; the limit is {BOUND_LOGS_MAX}", section.label(), texts.len());
        problems.add(section.place_of("on"), message);
    }
    for text in texts {
        if let Some(name) = text.value.strip_prefix(TOPIC) {
            match topics::name(name) {
                Ok(topic) if topics.contains(&topic) => {
                    problems.add(text.span, format!("on in {}: topic '{topic}' is listed twice", section.label()));
                }
                Ok(topic) => topics.push(topic),
                Err(message) => problems.add(text.span, format!("on in {}: {message}", section.label())),
            }
            continue;
        }
        match parse::<LogName>(text.value) {
            Ok(log) if on.iter().any(|other| other.value == log) => {
                problems.add(text.span, format!("on in {}: '{log}' is listed twice", section.label()));
            }
            Ok(value) => on.push(Placed { value, span: text.span }),
            Err(message) => problems.add(text.span, format!("on in {}: {message}", section.label())),
        }
    }
    let dead_letter = match section.has("dead_letter") {
        true => section.parsed::<LogName>("dead_letter", problems).map(|placed| placed.value),
        false => format!("dead/{name}").parse().ok(),
    };
    if let Some(own) = on.iter().find(|log| Some(&log.value) == dead_letter.as_ref()) {
        let message = format!(
            "on in {}: '{}' is the log of this function's own dead letters, so each failed run would start another one; \
             name another log with 'dead_letter', or bind another function",
            section.label(),
            own.value
        );
        problems.add(own.span.clone(), message);
    }
    Bindings { on, topics, dead_letter }
}

/// The runtime, after refusing keys that it does not use.
fn read_runtime(section: &Section<'_>, problems: &mut Collector<'_>) -> Option<Runtime> {
    let words = quoted(RUNTIMES.map(|(word, _)| word));
    if !section.has("runtime") {
        problems.add(section.span.clone(), format!("{} lacks 'runtime': one of {words}", section.label()));
        return None;
    }
    let runtime = section.word("runtime", &RUNTIMES, problems)?.value;
    for (key, runtimes) in ONLY_FOR {
        if section.has(key) && !runtimes.contains(&runtime) {
            let users = quoted(RUNTIMES.iter().filter(|(_, r)| runtimes.contains(r)).map(|(word, _)| word));
            let message = format!("{key} in {}: only the runtimes {users} use it", section.label());
            problems.add(section.place_of(key), message);
        }
    }
    Some(runtime)
}

/// The runtime that a misspelt one was meant to be.
fn meant_runtime(item: &Item) -> Option<Runtime> {
    let given = item.get("runtime")?.as_str()?;
    let meant = nearest(given, RUNTIMES.iter().map(|(word, _)| *word))?;
    RUNTIMES.iter().find(|(word, _)| *word == meant).map(|(_, runtime)| *runtime)
}

/// Where the code is, which must exist.
fn read_source(
    section: &Section<'_>,
    base: &Path,
    exists: &dyn Fn(&Path) -> bool,
    problems: &mut Collector<'_>,
) -> Option<PathBuf> {
    if !section.has("code") {
        let message = format!("{} lacks 'code': the file or directory to run", section.label());
        problems.add(section.span.clone(), message);
        return None;
    }
    let code = section.text("code", problems)?;
    let path = base.join(code.value);
    if code.value.is_empty() || !exists(&path) {
        let message = format!("code in {}: there is no file or directory '{}'", section.label(), path.display());
        problems.add(code.span, message);
        return None;
    }
    Some(path)
}

/// How the code is entered: handler, interpreter or command.
fn read_entry(
    section: &Section<'_>,
    base: &Path,
    exists: &dyn Fn(&Path) -> bool,
    spec: &mut FunctionSpec,
    problems: &mut Collector<'_>,
) {
    let lacks = |key: &str, example: &str| format!("{} lacks '{key}'; for example: {example}", section.label());
    match spec.runtime {
        Runtime::Python => {
            match section.text("handler", problems) {
                Some(handler) if is_python_handler(handler.value) => spec.handler = handler.value.into(),
                Some(handler) => {
                    let label = section.label();
                    let given = shown(handler.value);
                    let message = format!("handler in {label}: '{given}' is not \"module:function\"");
                    problems.add(handler.span, message);
                }
                None if section.has("handler") => {}
                None => problems.add(section.span.clone(), lacks("handler", "handler = \"smooth:smooth\"")),
            }
            read_python(section, base, exists, spec, problems);
        }
        Runtime::Wasm => {
            if let Some(handler) = section.text("handler", problems) {
                spec.handler = handler.value.into();
            }
        }
        Runtime::Process | Runtime::Oneshot => {
            let Some(command) = section.texts("command", problems) else {
                if !section.has("command") {
                    problems.add(section.span.clone(), lacks("command", "command = [\"./smooth.sh\"]"));
                }
                return;
            };
            match command.value.first() {
                Some(program) if !program.value.is_empty() => {
                    spec.command = command.value.iter().map(|word| word.value.to_string()).collect();
                }
                _ => problems.add(command.span, format!("command in {}: it names no program", section.label())),
            }
        }
    }
}

fn read_python(
    section: &Section<'_>,
    base: &Path,
    exists: &dyn Fn(&Path) -> bool,
    spec: &mut FunctionSpec,
    problems: &mut Collector<'_>,
) {
    let Some(python) = section.text("python", problems) else { return };
    if !python.value.contains('/') {
        spec.python = python.value.into();
        return;
    }
    // The host may run in another directory, so the path is absolute. The path is not resolved further: a virtual environment is found
    // through its own link to the interpreter.
    let path = base.join(python.value);
    match std::path::absolute(&path).ok().as_deref().and_then(Path::to_str) {
        Some(absolute) if exists(&path) => spec.python = absolute.into(),
        _ => {
            let message = format!("python in {}: there is no file '{}'", section.label(), path.display());
            problems.add(python.span, message);
        }
    }
}

/// `package.module:function`, every part a Python identifier as far as ASCII goes.
fn is_python_handler(text: &str) -> bool {
    let identifier = |part: &str| {
        let mut chars = part.chars();
        chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
    };
    text.split_once(':').is_some_and(|(module, function)| module.split('.').all(identifier) && identifier(function))
}

fn read_order(section: &Section<'_>, spec: &mut FunctionSpec, problems: &mut Collector<'_>) {
    if let Some(ordered) = section.flag("ordered", problems) {
        spec.ordered = ordered;
    }
    if let Some(concurrency) = section.number("concurrency", 1, CONCURRENCY_MAX.into(), problems) {
        spec.concurrency = concurrency as u32;
        if concurrency > 1 && spec.ordered {
            let message = format!(
                "concurrency in {}: {concurrency} runs at once cannot be in order; add 'ordered = false'",
                section.label()
            );
            problems.add(section.place_of("concurrency"), message);
        }
    }
    if let Some(monitor) = section.parsed::<Name>("monitor", problems) {
        spec.monitor = Some(monitor.value);
    }
    if let Some(streamed) = section.flag("streamed", problems) {
        spec.streamed = streamed;
    }
    if let Some(isolation) = section.parsed::<RunIsolation>("isolation", problems) {
        spec.isolation = isolation.value;
    }
    let modes = [
        ("external", TableMode::External),
        ("asynchronous", TableMode::Asynchronous),
        ("synchronous", TableMode::Synchronous),
    ];
    spec.table_mode = section.word("table_mode", &modes, problems).map(|placed| placed.value);
    if let Some(network) = section.flag("network", problems) {
        spec.network = network;
    }
}

fn read_limits(section: &Section<'_>, spec: &mut FunctionSpec, problems: &mut Collector<'_>) {
    let ms = Duration::from_millis(1);
    if let Some(timeout) = section.duration("timeout", ms, TIMEOUT_MAX, problems) {
        spec.timeout = timeout;
    }
    if let Some(memory) = section.size("memory", 64 << 10, 1 << 40, problems) {
        spec.memory_max_bytes = memory.value;
    }
    if let Some(output) = section.size("output", 0, OUTPUT_MAX_BYTES, problems) {
        spec.output_max_bytes = output.value;
    }
    if let Some(retries) = section.number("retries", 0, RETRIES_MAX.into(), problems) {
        spec.retries = retries as u32;
    }
    if let Some(backoff) = section.duration("backoff", Duration::ZERO, BACKOFF_MAX, problems) {
        spec.backoff = backoff;
    }
    if let Some(pending) = section.number("pending_max", 1, PENDING_MAX, problems) {
        spec.pending_max = pending;
    }
    spec.env = section.map("env", problems).into_iter().collect();
}

/// A function that runs the tasks of executors.
fn read_pool(section: &Section<'_>, spec: &mut FunctionSpec, problems: &mut Collector<'_>) {
    for key in NOT_FOR_POOLS.into_iter().filter(|key| section.has(key)) {
        problems.add(section.place_of(key), format!("{key} in {}: a pool cannot have it", section.label()));
    }
    let pool = spec.name.strip_prefix("pool-").filter(|pool| tasks::function(pool).is_ok());
    let Some(log) = pool.and_then(|pool| tasks::tasks(pool).parse().ok()) else {
        let message = format!("pool in {}: the function of pool 'NAME' is called 'pool-NAME'", section.label());
        problems.add(section.place_of("pool"), message);
        return;
    };
    spec.on = vec![log];
    // A task reads its pool's bodies and appends its result; it needs no other log.
    (spec.rights.reads, spec.rights.appends) = (Some(Vec::new()), Some(Vec::new()));
}

/// Its rights. `reads` and `appends` are unset if the file does not have them.
fn read_rights(section: &Section<'_>, spec: &mut FunctionSpec, problems: &mut Collector<'_>) {
    let rights = &mut spec.rights;
    rights.reads = read_list(section, "reads", SCOPES_MAX, problems);
    rights.appends = read_list(section, "appends", SCOPES_MAX, problems);
    rights.sends = read_list(section, "sends", SCOPES_MAX, problems).unwrap_or_default();
    rights.secrets = read_list(section, "secrets", SECRETS_MAX, problems).unwrap_or_default();
}

/// The values of a list, in order and each once, however they are written.
fn read_list<T: FromStr<Err = Error> + Ord>(
    section: &Section<'_>,
    key: &str,
    most: usize,
    problems: &mut Collector<'_>,
) -> Option<Vec<T>> {
    let texts = section.texts(key, problems)?;
    if texts.value.len() > most {
        let message = format!("{key} in {}: {} are listed; the limit is {most}", section.label(), texts.value.len());
        problems.add(section.place_of(key), message);
    }
    let mut values = Vec::new();
    for text in texts.value {
        match parse::<T>(text.value) {
            Ok(value) => values.push(value),
            Err(message) => problems.add(text.span, format!("{key} in {}: {message}", section.label())),
        }
    }
    values.sort();
    values.dedup();
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_module_colon_function() {
        for good in ["a:b", "pkg.mod:func", "_a:_b", "größe:messen"] {
            assert!(is_python_handler(good), "{good}");
        }
        for bad in ["", "a", "a:", ":b", "a:b:c", "../a:b", "a/b:c", "a b:c", "1a:b", "a:B.method"] {
            assert!(!is_python_handler(bad), "{bad}");
        }
    }
}
