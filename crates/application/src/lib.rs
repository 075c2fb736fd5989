//! The application file, `millrace.toml`: logs, topics, functions, bindings and limits.
//!
//! ```text
//! text --parse--> Application --(node: plan, apply)--> DEFINE entries, code
//! ```
//!
//! Parsing reads only the text, and checks whether the code exists. It reports all problems at once, each with line and column. [`keys`]
//! lists the keys of a file.

mod functions;
pub mod keys;
pub mod mqtt;
mod problem;
mod section;
mod settings;
mod tables;
#[cfg(test)]
mod tests;
mod topics;
pub mod trust;
pub use millrace_wire::units;
mod watch;

pub use problem::{Problem, Problems, suggestion};
pub use settings::Settings;
pub use topics::TopicDeclaration;
pub use watch::Fingerprint;

use millrace_journal::Durability;
use millrace_mqtt::Rule;
use millrace_namespace::{
    FunctionSpec,
    databases::DatabaseSettings,
    definition::{AMEND_AGE_MAX, AMEND_COUNT_MAX, AmendPolicy, LogScope, SCOPES_MAX},
};
use millrace_wire::{Address, Code, HISTORY_DEFAULT, LogName, Result, TimeField, table::TableOptions};
use problem::{Collector, shown};
use section::{Section, Span, parse, quoted};
use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};
use toml_edit::{Document, Item, TableLike};

/// The file's usual name.
pub const FILE_NAME: &str = "millrace.toml";
/// The namespace's usual directory.
pub const NAMESPACE_DIR: &str = ".millrace";
/// The longest application file; a longer one is something else.
pub const FILE_MAX_BYTES: u64 = 4 << 20;
/// Most logs of an application file.
const LOGS_MAX: usize = 10_000;
/// Most topics of an application file.
const TOPICS_MAX: usize = 10_000;
/// Most functions of an application file.
const FUNCTIONS_MAX: usize = 1000;

/// The content of an application file.
#[derive(Debug)]
pub struct Application {
    /// The file.
    pub path: PathBuf,
    /// The directory of its namespace.
    pub namespace: PathBuf,
    /// The settings for creating the namespace.
    pub settings: Settings,
    /// The databases to which tables are written, in the order of the file.
    pub databases: Vec<DatabaseSettings>,
    /// Its logs, in the order of the file.
    pub logs: Vec<LogDeclaration>,
    /// Its topics, in the order of the file. A host of a cluster has to apply them.
    pub topics: Vec<TopicDeclaration>,
    /// The rules for topics of MQTT; none if the file leaves them as they are.
    pub mqtt: Option<Vec<Rule>>,
    /// Its functions, in the order of the file.
    pub functions: Vec<FunctionDeclaration>,
}

/// A log of an application file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDeclaration {
    /// Its name.
    pub name: LogName,
    /// How many records it keeps.
    pub history: u64,
    /// Its attributes as a table; none if it is none.
    pub table: Option<TableOptions>,
    /// When amendments of its records become a repair; none if it is not amendable.
    pub amendable: Option<AmendPolicy>,
    /// The field of its records that has the time of the observation; none if none has.
    pub time: Option<TimeField>,
    /// Of a replica: the table at its owner.
    pub from: Option<Address>,
}

/// A function of an application file.
#[derive(Clone, Debug)]
pub struct FunctionDeclaration {
    /// The functions to deploy.
    pub spec: FunctionSpec,
    /// Where its code is now.
    pub source: PathBuf,
    /// The topics for whose records it runs, besides the logs.
    pub topics: Vec<LogName>,
}

impl Application {
    /// Reads and checks an application file.
    pub fn load(path: &Path) -> Result<Application> {
        let read = || {
            if fs::metadata(path)?.len() > FILE_MAX_BYTES {
                return Err(std::io::Error::new(ErrorKind::FileTooLarge, "it is longer than 4 MiB"));
            }
            fs::read(path)
        };
        let bytes = read().map_err(|error| match error.kind() {
            ErrorKind::NotFound => Code::ApplicationNotFound.error(format!("there is no file {}", path.display())),
            _ => Code::ApplicationUnreadable.error(format!("cannot read {}: {error}", path.display())),
        })?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let (line, column) =
                problem::place(std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""), usize::MAX);
            let message = "this byte is not UTF-8, in which the file must be written".into();
            Problems { path: path.into(), list: vec![Problem { line, column, message }] }
        })?;
        Ok(Self::parse(text, path)?)
    }

    /// Checks the text of an application file; relative paths start at the directory of `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Application, Problems> {
        Self::parse_with(text, path, &|code| code.exists())
    }

    /// As [`Application::parse`]; `exists` says whether code is there.
    pub fn parse_with(text: &str, path: &Path, exists: &dyn Fn(&Path) -> bool) -> Result<Application, Problems> {
        let mut problems = Collector::new(text);
        let application = match Document::parse(text) {
            // Of a file with more of them, nothing else is looked at: a host reads files of its clients.
            Ok(document) if has_too_many(document.as_table(), &mut problems) => None,
            Ok(document) => Some(read(document.as_table(), path, exists, &mut problems)),
            Err(error) => {
                problems.add(error.span(), explain_syntax(text, &error));
                None
            }
        };
        match (application, problems.finish()) {
            (Some(application), None) => Ok(application),
            (_, list) => Err(Problems { path: path.into(), list: list.unwrap_or_default() }),
        }
    }

    /// Whether it says anything of topics.
    pub fn has_topics(&self) -> bool {
        !self.topics.is_empty() || self.functions.iter().any(|function| !function.topics.is_empty())
    }

    /// The application file at `path`, and the code and interpreters that it names, whether they exist or not. A change of any of
    /// them means that the application must be applied again. Of a file that cannot be parsed only the file itself is listed.
    pub fn sources(path: &Path) -> Vec<PathBuf> {
        let document = fs::read_to_string(path).ok().and_then(|text| Document::parse(text).ok());
        let functions = document.as_ref().and_then(|document| document.get("functions")?.as_table_like());
        let named = functions.into_iter().flat_map(|functions| functions.iter()).flat_map(|(_, function)| {
            let text = |key| function.get(key).and_then(Item::as_str).filter(|text: &&str| !text.is_empty());
            [text("code"), text("python").filter(|python| python.contains('/'))].into_iter().flatten()
        });
        let models = document.as_ref().and_then(|document| document.get("devices")?.as_table_like());
        let twins = models.into_iter().flat_map(|models| models.iter());
        let twins = twins.filter_map(|(_, model)| model.get("functions")?.as_table_like());
        let twins = twins.flat_map(|twins| twins.iter()).filter_map(|(_, twin)| twin.get("twin")?.as_str());
        let named = named.chain(twins.filter(|text| !text.is_empty()));
        std::iter::once(path.to_owned()).chain(named.map(|source| base_of(path).join(source))).collect()
    }

    /// The namespace's directory that the file at `path` names, if the file exists, even if it has other errors: reading a log must not
    /// depend on a correct function.
    pub fn namespace_of(path: &Path) -> Option<PathBuf> {
        let text = fs::read_to_string(path).ok()?;
        let document = Document::parse(text).ok();
        let dir = document.as_ref().and_then(|document| document.get("namespace")?.get("path")?.as_str());
        Some(base_of(path).join(dir.filter(|dir| !dir.is_empty()).unwrap_or(NAMESPACE_DIR)))
    }
}

/// Whether there are more logs, topics or functions than a file may have, which is a problem then.
fn has_too_many(root: &dyn TableLike, problems: &mut Collector<'_>) -> bool {
    let mut has = false;
    for (section, max) in [("logs", LOGS_MAX), ("topics", TOPICS_MAX), ("functions", FUNCTIONS_MAX)] {
        let count = root.get(section).and_then(Item::as_table_like).map_or(0, |table| table.len());
        if count > max {
            problems.add(None, format!("the file has {count} {section}; the limit is {max}"));
            has = true;
        }
    }
    has
}

fn base_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Explains the common syntax errors: a name that occurs twice, an unquoted name with `/`, and an unquoted value.
fn explain_syntax(text: &str, error: &toml_edit::TomlError) -> String {
    let message = error.message().trim().replace('\n', ", ");
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let line_start = text.as_bytes()[..start].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let line = text[line_start..].lines().next().unwrap_or("").trim();
    if message.contains("duplicate key") {
        return match line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            Some((name, _)) => format!("[{}] is defined twice; define each function, log or section once", shown(name)),
            None => format!("'{}' is given twice", shown(line.split('=').next().unwrap_or("").trim())),
        };
    }
    for (kind, section) in [("log", "logs"), ("topic", "topics")] {
        let named = line.strip_prefix('[').and_then(|line| line.strip_prefix(section)?.strip_prefix('.'));
        if let Some(name) = named.filter(|name| name.contains('/') && !name.starts_with('"')) {
            let name = name.split(']').next().unwrap_or(name);
            return format!("a {kind}'s name with '/' is quoted: [{section}.\"{}\"]", shown(name));
        }
    }
    explain_value(text, start, line_start).unwrap_or(message)
}

/// Explains a value that is neither a number nor quoted. The parser takes `ten` for the beginning of `true`.
fn explain_value(text: &str, start: usize, line_start: usize) -> Option<String> {
    const RULE: &str = "must be a number, true, false or a string in quotes";
    let line = text[line_start..].lines().next().unwrap_or_default();
    let is_end = |c: char| c.is_whitespace() || ",]}#".contains(c);
    let (key, value) = match line.split_once('=').filter(|(key, _)| line_start + key.len() < start) {
        Some((key, value)) => {
            (key.trim().trim_matches(['"', '\'']), value.split('#').next().unwrap_or_default().trim())
        }
        // A list of several lines.
        None => ("", ""),
    };
    if value.starts_with(['[', '{']) || key.is_empty() {
        let word = text.get(start..)?.split(is_end).next().filter(|word| word.starts_with(char::is_alphabetic))?;
        let what = if key.is_empty() { "a value".to_owned() } else { format!("each value in '{}'", shown(key)) };
        return Some(format!("{what} {RULE}, not {}", shown(word)));
    }
    // The parser explains numbers and strings well.
    let is_number = |c: char| c.is_ascii_digit() || "+-_".contains(c);
    if value.starts_with(['"', '\'']) || (value.contains(|c: char| c.is_ascii_digit()) && value.chars().all(is_number))
    {
        return None;
    }
    let tables = [
        keys::NAMESPACE,
        keys::LOG,
        keys::DATABASE,
        keys::TABLE,
        keys::TOPIC,
        keys::MQTT,
        keys::MQTT_TOPIC,
        keys::DEVICES,
        keys::DEVICE_FUNCTION,
        keys::FUNCTION,
    ];
    let expected = tables.iter().copied().flatten().find(|known| known.name == key);
    let expected = expected.map(|known| format!("; expected: {}", known.value.replace('`', ""))).unwrap_or_default();
    Some(match value {
        "" => format!("'{}' has no value{expected}", shown(key)),
        value => format!("the value of '{}' {RULE}, not {}{expected}", shown(key), shown(value)),
    })
}

fn read(
    root: &dyn TableLike,
    path: &Path,
    exists: &dyn Fn(&Path) -> bool,
    problems: &mut Collector<'_>,
) -> Application {
    for (name, item) in root.iter() {
        if !keys::SECTIONS.contains(&name) {
            let hint = suggestion(name, keys::SECTIONS.iter().copied());
            let sections = "the sections are [namespace], [logs.\"NAME\"], [databases.NAME], [tables.\"NAME\"], [topics.\"NAME\"], [mqtt], \
                            [devices.MODEL] and [functions.NAME]";
            let span = key_span(root, name).or_else(|| item.span());
            problems.add(span, format!("unknown section '{}'{hint}; {sections}", shown(name)));
        }
    }
    let (namespace, settings) = read_namespace(root, base_of(path), problems);
    let logs: Vec<_> = entries(root, "logs", problems)
        .into_iter()
        .filter_map(|(name, item, span)| read_log(name, item, span, problems))
        .collect();
    let mut logs = logs.into_iter().chain(tables::read(root, problems)).collect::<Vec<_>>();
    let devices = functions::devices::read(root, (base_of(path), exists), &logs, problems);
    logs.extend(devices.logs);
    let databases = tables::databases(root, problems);
    let (topics, fed_by) = topics::read(root, problems);
    let mqtt = mqtt::read(root, problems);
    let mut functions = Vec::new();
    let mut bindings = Vec::new();
    for (name, item, span) in entries(root, "functions", problems) {
        let read = functions::read(name, item, span, base_of(path), exists, problems);
        functions.extend(read.declaration);
        bindings.push(read.bindings);
    }
    // Dead-letter logs are created with their functions, so binding to one needs no declaration.
    let mut known: BTreeSet<&str> = logs.iter().map(|log| &*log.name).collect();
    known.extend(bindings.iter().filter_map(|b| b.dead_letter.as_deref()));
    known.extend(entries_quiet(root, "logs"));
    known.extend(entries_quiet(root, "tables"));
    for bound in bindings.iter().flat_map(|b| &b.on).chain(&fed_by) {
        if !known.contains(&*bound.value) && !problems.is_full() {
            let mut hint = suggestion(&bound.value, known.iter().copied());
            if hint.is_empty() {
                hint = format!("; declare it with [logs.\"{}\"]", bound.value);
            }
            problems.add(bound.span.clone(), format!("no log '{}' is declared{hint}", bound.value));
        }
    }
    grant_logs(&mut functions, &known, path, problems);
    for twin in devices.functions {
        if functions.iter().any(|function| function.spec.name == twin.spec.name) {
            problems.add(None, format!("[functions.{0}] has the name of a function of devices, {0}", twin.spec.name));
        }
        functions.push(twin);
    }
    Application { path: path.into(), namespace, settings, databases, logs, topics, mqtt, functions }
}

/// A function that says nothing else may read the logs of the file and append to them, those of dead letters included. They are
/// named one by one: another file, or another version of this one, may bring logs that are not meant for it.
fn grant_logs(
    functions: &mut [FunctionDeclaration],
    known: &BTreeSet<&str>,
    path: &Path,
    problems: &mut Collector<'_>,
) {
    let own: Vec<LogScope> = known.iter().filter_map(|name| name.parse().ok()).collect();
    let mut silent = false;
    for rights in functions.iter_mut().map(|function| &mut function.spec.rights) {
        for logs in [&mut rights.reads, &mut rights.appends] {
            silent |= logs.is_none();
            logs.get_or_insert_with(|| own.clone());
        }
    }
    if silent && own.len() > SCOPES_MAX {
        let message = format!(
            "{} has {} logs: a function without 'reads' and 'appends' gets a right for each, and the limit is {SCOPES_MAX}; \
             set subtrees instead, such as reads = [\"raw/\"]",
            path.display(),
            own.len()
        );
        problems.add(None, message);
    }
}

fn key_span(table: &dyn TableLike, key: &str) -> Span {
    table.key(key).and_then(|key| key.span())
}

/// The named tables of a section of tables: `[logs."a"]`, `[logs."b"]`.
fn entries<'a>(root: &'a dyn TableLike, section: &str, problems: &mut Collector<'_>) -> Vec<(&'a str, &'a Item, Span)> {
    let Some(item) = root.get(section) else { return Vec::new() };
    let Some(table) = item.as_table_like() else {
        let name = if section == "functions" { "NAME" } else { "\"NAME\"" };
        let span = key_span(root, section).or_else(|| item.span());
        problems.add(span, format!("'{section}' is a section of tables: [{section}.{name}]"));
        return Vec::new();
    };
    table.iter().map(|(name, item)| (name, item, key_span(table, name).or_else(|| item.span()))).collect()
}

/// The names in a section, valid or not, so that one mistake is reported once.
fn entries_quiet<'a>(root: &'a dyn TableLike, section: &str) -> Vec<&'a str> {
    let table = root.get(section).and_then(Item::as_table_like);
    table.map(|table| table.iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

fn read_log(name: &str, item: &Item, span: Span, problems: &mut Collector<'_>) -> Option<LogDeclaration> {
    let parsed = parse::<LogName>(name).map_err(|message| problems.add(span.clone(), message)).ok();
    // `time` may be a table itself.
    let is_nested = |(key, value): &(&str, &Item)| *key != "time" && value.is_table_like();
    let nested = item.as_table_like().and_then(|table| table.iter().find(is_nested));
    if let Some((inner, _)) = nested {
        let (name, inner) = (shown(name), shown(inner));
        problems.add(span, format!("a log's name with '/' or '.' needs quotes: [logs.\"{name}/{inner}\"]"));
        return None;
    }
    let section = Section::open(item, span, format!("[logs.\"{}\"]", shown(name)), keys::LOG, problems)?;
    let history = section.history("history", problems).unwrap_or(HISTORY_DEFAULT);
    let amendable = section.flag("amendable", problems).unwrap_or(false);
    let count = section.number("amend_count", 1, AMEND_COUNT_MAX, problems);
    let age = section.duration("amend_age", Duration::ZERO, AMEND_AGE_MAX, problems);
    for key in ["amend_count", "amend_age"].into_iter().filter(|key| !amendable && section.has(key)) {
        let label = section.label();
        problems.add(section.place_of(key), format!("{key} in {label} needs `amendable = true`"));
    }
    let default = AmendPolicy::default();
    let age_ms = age.map_or(default.age_ms, |age| age.as_millis() as u64); // at most a week
    let policy = AmendPolicy { count: count.unwrap_or(default.count), age_ms };
    let time = section.time("time", problems);
    let amendable = amendable.then_some(policy);
    Some(LogDeclaration { name: parsed?, history, table: None, amendable, time, from: None })
}

fn read_namespace(root: &dyn TableLike, base: &Path, problems: &mut Collector<'_>) -> (PathBuf, Settings) {
    let mut settings = Settings::default();
    let mut dir = base.join(NAMESPACE_DIR);
    let Some(item) = root.get("namespace") else { return (dir, settings) };
    let span = key_span(root, "namespace").or_else(|| item.span());
    let Some(section) = Section::open(item, span, "[namespace]".into(), keys::NAMESPACE, problems) else {
        return (dir, settings);
    };
    if let Some(path) = section.text("path", problems) {
        match path.value {
            "" => problems.add(path.span, "path in [namespace]: it is empty"),
            path => dir = base.join(path),
        }
    }
    if let Some(size) = section.size("segment_size", 1 << 20, 1 << 30, problems) {
        if size.value.is_power_of_two() {
            settings.segment_bytes = Some(size.value);
        } else {
            let near = units::show_size(size.value.next_power_of_two());
            problems.add(
                size.span,
                format!("segment_size in [namespace]: not a power of two; the nearest larger one is '{near}'"),
            );
        }
    }
    settings.retain_bytes = section.size("retain_bytes", 0, 1 << 60, problems).map(|size| size.value);
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(100 * 366 * 86_400));
    settings.retain_age = section.duration("retain_age", least, most, problems);
    let words = [("disk", Durability::Disk), ("memory", Durability::Memory)];
    settings.durability = section.word("durability", &words, problems).map(|word| word.value);
    (dir, settings)
}
