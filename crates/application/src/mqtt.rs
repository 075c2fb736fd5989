//! Reads `[mqtt]`: which topics of MQTT are which logs.

use super::{
    key_span, keys,
    problem::Collector,
    section::{Section, Span},
};
use millrace_mqtt::{Rule, Rules};
use toml_edit::TableLike;

/// The rules of the file; none if it says nothing of MQTT.
pub(super) fn read(root: &dyn TableLike, problems: &mut Collector<'_>) -> Option<Vec<Rule>> {
    let item = root.get("mqtt")?;
    let span = key_span(root, "mqtt").or_else(|| item.span());
    let section = Section::open(item, span, "[mqtt]".into(), keys::MQTT, problems)?;
    let mut rules = Vec::new();
    for (number, (table, span)) in section.tables("topics", problems).into_iter().enumerate() {
        let label = format!("rule {} of topics in [mqtt]", number + 1);
        rules.extend(read_rule(table, span, label, problems));
    }
    section.has("topics").then_some(rules)
}

fn read_rule(table: &dyn TableLike, span: Span, label: String, problems: &mut Collector<'_>) -> Option<Rule> {
    let section = Section::of(table, span.clone(), label, keys::MQTT_TOPIC, problems);
    let mut text = |key: &str| {
        if !section.has(key) {
            problems.add(span.clone(), format!("{} has no '{key}'", section.label()));
        }
        section.text(key, problems).map(|text| text.value.to_owned())
    };
    let (filter, log) = (text("filter"), text("log"));
    let retain = section.word("retain", &[("latest", true)], problems).is_some();
    let rule = Rule { filter: filter?, log: log?, retain };
    if let Err(error) = Rules::new(std::slice::from_ref(&rule)) {
        problems.add(span, format!("{}: {}", section.label(), error.detail()));
    }
    Some(rule)
}

/// The rules as one line.
pub fn summary(rules: &[Rule]) -> String {
    match rules {
        [] => "mqtt topics = none".into(),
        [only] => format!("mqtt topics = {} to {}", only.filter, only.log),
        rules => format!("mqtt topics = {} rules", rules.len()),
    }
}
