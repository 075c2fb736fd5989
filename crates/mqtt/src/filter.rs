//! Topics and topic filters.

use millrace_wire::{Code, Error, Result};

/// The longest topic or topic filter.
pub const TOPIC_MAX_BYTES: usize = 1024;

/// A shared subscription begins so.
pub(crate) const SHARED: &str = "$share/";

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

fn invalid(what: &str, text: &str, rule: &str) -> Error {
    Code::MqttTopicInvalid.error(format!("{what} '{}' {rule}", shown(text)))
}

fn check_length(what: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(invalid(what, text, "is empty"));
    }
    if text.len() > TOPIC_MAX_BYTES {
        return Err(invalid(what, text, &format!("has {} bytes; the limit is {TOPIC_MAX_BYTES}", text.len())));
    }
    Ok(())
}

/// Whether this is a topic.
pub fn check_topic(topic: &str) -> Result<()> {
    check_length("topic", topic)?;
    if topic.contains(['+', '#']) {
        return Err(invalid("topic", topic, "has a wildcard, which only filters may have"));
    }
    Ok(())
}

/// Whether this is a topic filter, which is not shared.
pub fn check_filter(filter: &str) -> Result<()> {
    check_length("filter", filter)?;
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        match level {
            "+" => {}
            "#" if levels.peek().is_none() => {}
            "#" => return Err(invalid("filter", filter, "has '#' before its last level")),
            _ if level.contains(['+', '#']) => {
                return Err(invalid("filter", filter, "has a wildcard that is not a whole level"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The group and the filter of a shared subscription, if it is one.
pub fn shared(filter: &str) -> Result<Option<(&str, &str)>> {
    let Some(rest) = filter.strip_prefix(SHARED) else { return Ok(None) };
    match rest.split_once('/') {
        Some((group, filter)) if !group.is_empty() && !group.contains(['+', '#']) => Ok(Some((group, filter))),
        _ => Err(invalid("shared filter", filter, "has no group: write $share/GROUP/FILTER")),
    }
}

/// Whether a topic begins with a dollar sign: then no wildcard matches its first level.
pub(crate) fn is_reserved(topic: &str) -> bool {
    topic.starts_with('$')
}

/// Whether some topic matches both filters.
pub fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
            (Some(a), Some(b)) if a == b || a == "+" || b == "+" => {}
            _ => return false,
        }
    }
}

/// Whether a filter matches a topic.
pub fn matches(filter: &str, topic: &str) -> bool {
    if is_reserved(topic) && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut topic = topic.split('/');
    for level in filter.split('/') {
        match (level, topic.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(there)) if level == there => {}
            _ => return false,
        }
    }
    topic.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_the_topics_that_the_specification_says() {
        for (filter, topic, is) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/b/c", "a/b", false),
            ("a/#", "a", true),
            ("a/#", "a/b/c", true),
            ("a/#", "ab", false),
            ("#", "a/b", true),
            ("#", "/", true),
            ("+", "a", true),
            ("+", "/a", false),
            ("/+", "/a", true),
            ("+/+", "/a", true),
            ("a/+", "a", false),
            ("a/+", "a/", true),
            ("a/+/c", "a/b/c", true),
            ("#", "$SYS/uptime", false),
            ("+/uptime", "$SYS/uptime", false),
            ("$SYS/#", "$SYS/uptime", true),
            ("A/b", "a/b", false),
        ] {
            assert_eq!(matches(filter, topic), is, "{filter} {topic}");
        }
    }

    #[test]
    fn wildcards_are_whole_levels() {
        for filter in ["a", "#", "+", "a/+/b/#", "/", "//", "+/#", "é /x", "$SYS/#"] {
            check_filter(filter).unwrap();
        }
        for filter in ["", "a#", "a/#/b", "#/a", "a+/b", "+a", "##", &"x".repeat(1025)] {
            assert_eq!(check_filter(filter).unwrap_err().code(), Code::MqttTopicInvalid, "{filter}");
        }
        for topic in ["", "+", "a/#", "a+", &"x".repeat(1025)] {
            assert_eq!(check_topic(topic).unwrap_err().code(), Code::MqttTopicInvalid, "{topic}");
        }
        assert_eq!(shared("$share/g/a/+").unwrap(), Some(("g", "a/+")));
        assert_eq!(shared("a/b").unwrap(), None);
        for filter in ["$share/g", "$share//a", "$share/+/a", "$share/"] {
            assert!(shared(filter).is_err(), "{filter}");
        }
    }
}
