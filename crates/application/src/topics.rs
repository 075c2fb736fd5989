//! Reads `[topics."NAME"]`: logs that every host of the cluster has.

use super::{
    entries, keys,
    problem::{Collector, shown},
    section::{Placed, Section, Span, parse},
};
use millrace_wire::{HISTORY_DEFAULT, LogName, Name};
use toml_edit::{Item, TableLike};

/// A topic of an application file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDeclaration {
    /// Its name.
    pub name: LogName,
    /// How many of its newest records can be read.
    pub history: u64,
    /// When a publish is acknowledged: `quorum` or `leader`.
    pub durability: &'static str,
    /// The group that has it; none for the first.
    pub group: Option<Name>,
    /// The engine that keeps its records: `builtin` or `nats`.
    pub engine: &'static str,
    /// The logs of this host whose records are published to it; none if the file leaves that open.
    pub fed_by: Option<Vec<LogName>>,
}

/// A topic's name, which is one of a log that does not belong to the runtime.
pub(super) fn name(text: &str) -> Result<LogName, String> {
    match parse::<LogName>(text)? {
        name if LogName::is_internal(&name) => Err(format!("'{}' begins with '_'", shown(text))),
        name => Ok(name),
    }
}

/// The topics of the file, and the logs that feed them, which have to be logs of the file.
pub(super) fn read(
    root: &dyn TableLike,
    problems: &mut Collector<'_>,
) -> (Vec<TopicDeclaration>, Vec<Placed<LogName>>) {
    let mut logs = Vec::new();
    let all = entries(root, "topics", problems);
    let topics = all.into_iter().filter_map(|(name, item, span)| read_topic(name, item, span, &mut logs, problems));
    (topics.collect(), logs)
}

fn read_topic(
    given: &str,
    item: &Item,
    span: Span,
    logs: &mut Vec<Placed<LogName>>,
    problems: &mut Collector<'_>,
) -> Option<TopicDeclaration> {
    let parsed = name(given).map_err(|message| problems.add(span.clone(), message)).ok();
    let nested = item.as_table_like().and_then(|table| table.iter().find(|(_, value)| value.is_table_like()));
    if let Some((inner, _)) = nested {
        let (name, inner) = (shown(given), shown(inner));
        problems.add(span, format!("a topic's name with '/' or '.' needs quotes: [topics.\"{name}/{inner}\"]"));
        return None;
    }
    let section = Section::open(item, span.clone(), format!("[topics.\"{}\"]", shown(given)), keys::TOPIC, problems)?;
    let history = section.history("history", problems).unwrap_or(HISTORY_DEFAULT);
    let words = [("quorum", "quorum"), ("leader", "leader")];
    let durability = section.word("durability", &words, problems).map_or("quorum", |placed| placed.value);
    let words = [("builtin", "builtin"), ("nats", "nats")];
    let engine = section.word("engine", &words, problems).map_or("builtin", |placed| placed.value);
    if (engine, durability) == ("nats", "leader") {
        let label = section.label();
        problems.add(span, format!("{label}: durability 'leader' does not apply to the engine 'nats'"));
    }
    let group = section.parsed::<Name>("group", problems).map(|placed| placed.value);
    let listed = section.texts("fed_by", problems).map(|list| list.value);
    let mut fed_by: Option<Vec<LogName>> = listed.is_some().then(Vec::new);
    for text in listed.unwrap_or_default() {
        let fed_by = fed_by.get_or_insert_default();
        match parse::<LogName>(text.value) {
            Ok(log) if fed_by.contains(&log) => {
                problems.add(text.span, format!("fed_by in {}: '{log}' is listed twice", section.label()));
            }
            Ok(log) => {
                fed_by.push(log.clone());
                logs.push(Placed { value: log, span: text.span });
            }
            Err(message) => problems.add(text.span, format!("fed_by in {}: {message}", section.label())),
        }
    }
    Some(TopicDeclaration { name: parsed?, history, durability, group, engine, fed_by })
}
