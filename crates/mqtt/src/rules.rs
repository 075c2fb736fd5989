//! The rules of `[mqtt] topics`: which topic is which log.
//!
//! A rule can be turned round: the name of its log contains every wildcard of its filter, so the log alone tells the topic of its records.

use crate::filter::{check_filter, check_topic, is_reserved};
use millrace_wire::{Code, Error, LogName, Result};

/// Rules of one namespace.
const RULES_MAX: usize = 1000;

/// A rule, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The topics that it is about.
    pub filter: String,
    /// The log; `{1}`, `{2}` and so on stand for the levels of each `+`, and `{#}` for those of `#`.
    pub log: String,
    /// Whether new subscribers get the newest record.
    pub retain: bool,
}

/// Rules; the first that matches a topic decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Checked>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Checked {
    filter: Vec<Level>,
    log: Vec<Level>,
    retain: bool,
}

/// A level of a filter, or a segment of a log's name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Level {
    Text(String),
    /// The wildcard `+` of this number.
    One(usize),
    /// `#`.
    Rest,
}

/// What the wildcards stand for.
#[derive(Default)]
struct Matched<'t> {
    ones: Vec<(usize, &'t str)>,
    rest: Vec<&'t str>,
}

impl<'t> Matched<'t> {
    fn of(levels: &[Level], text: &'t str) -> Option<Self> {
        let (mut matched, mut text) = (Self::default(), text.split('/'));
        for level in levels {
            match level {
                Level::Rest => {
                    matched.rest = text.collect();
                    return Some(matched);
                }
                Level::One(number) => matched.ones.push((*number, text.next()?)),
                Level::Text(expected) => drop(text.next().filter(|there| there == expected)?),
            }
        }
        text.next().is_none().then_some(matched)
    }

    fn fill(&self, levels: &[Level]) -> Option<String> {
        let mut filled = Vec::new();
        for level in levels {
            match level {
                Level::Text(text) => filled.push(text.as_str()),
                Level::One(number) => filled.push(self.ones.iter().find(|(one, _)| one == number)?.1),
                Level::Rest => filled.extend(&self.rest),
            }
        }
        Some(filled.join("/"))
    }
}

impl Checked {
    fn of(rule: &Rule) -> Result<Self> {
        let wrong = |fault: &str| -> Error {
            let (filter, log) = (rule.filter.escape_debug(), rule.log.escape_debug());
            Code::MqttRuleInvalid.error(format!("filter '{filter}', log '{log}': {fault}"))
        };
        check_filter(&rule.filter).map_err(|error| wrong(error.detail()))?;
        let mut ones = 0;
        let mut level = |text: &str| match text {
            "+" => {
                ones += 1;
                Level::One(ones)
            }
            "#" => Level::Rest,
            text => Level::Text(text.into()),
        };
        let filter: Vec<Level> = rule.filter.split('/').map(&mut level).collect();
        let segment = |text: &str| match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some("#") => Ok(Level::Rest),
            Some(number) => match number.parse() {
                Ok(number) if (1..=ones).contains(&number) => Ok(Level::One(number)),
                _ => Err(wrong(&format!("'{{{}}}' stands for no wildcard of the filter", number.escape_debug()))),
            },
            None => Ok(Level::Text(text.into())),
        };
        let log = rule.log.split('/').map(segment).collect::<Result<Vec<_>>>()?;
        let count = |of: &[Level], level: &Level| of.iter().filter(|there| *there == level).count();
        for wildcard in (1..=ones).map(Level::One).chain([Level::Rest]) {
            let (asked, named) = (count(&filter, &wildcard), count(&log, &wildcard));
            let shown = match &wildcard {
                Level::One(number) => format!("{{{number}}}"),
                _ => "{#}".into(),
            };
            if asked != named {
                let fault = match asked {
                    0 => format!("the filter has no wildcard for '{shown}'"),
                    _ => format!("the log's name must contain '{shown}' once: records do not carry their topic"),
                };
                return Err(wrong(&fault));
            }
        }
        if log.iter().rev().skip(1).any(|level| *level == Level::Rest) {
            return Err(wrong("'{#}' must be the last part of the log's name"));
        }
        let example = Matched { ones: (1..=ones).map(|number| (number, "x")).collect(), rest: vec!["x"] };
        let name = example.fill(&log).and_then(|name| name.parse::<LogName>().ok());
        if name.is_none_or(|name| LogName::is_internal(&name)) {
            return Err(wrong("this is not the name of a log"));
        }
        Ok(Self { filter, log, retain: rule.retain })
    }

    fn log_of(&self, topic: &str) -> Option<String> {
        if is_reserved(topic) && !matches!(self.filter.first(), Some(Level::Text(_))) {
            return None;
        }
        Matched::of(&self.filter, topic)?.fill(&self.log)
    }

    fn topic_of(&self, log: &str) -> Option<String> {
        Matched::of(&self.log, log)?.fill(&self.filter)
    }
}

impl Rules {
    /// Checks rules.
    ///
    /// # Errors
    /// [`Code::MqttRuleInvalid`].
    pub fn new(rules: &[Rule]) -> Result<Self> {
        if rules.len() > RULES_MAX {
            return Err(Code::MqttRuleInvalid.error(format!("{} rules; the limit is {RULES_MAX}", rules.len())));
        }
        rules.iter().map(Checked::of).collect::<Result<_>>().map(Self)
    }

    /// Whether a rule is about this topic.
    fn rule(&self, topic: &str) -> Option<(&Checked, String)> {
        self.0.iter().find_map(|rule| rule.log_of(topic).map(|log| (rule, log)))
    }

    /// The name of the log of a topic: as a rule says, or the topic's own name. None if records of that log have another topic. It may be
    /// the name of no log, or no name at all.
    pub fn log_of(&self, topic: &str) -> Option<String> {
        let log = self.name_of(topic);
        (self.topic_of(&log).as_deref() == Some(topic)).then_some(log)
    }

    fn name_of(&self, topic: &str) -> String {
        self.rule(topic).map_or_else(|| topic.to_owned(), |(_, log)| log)
    }

    /// Whether a rule says so: then the log is created when it is needed.
    pub fn is_ruled(&self, topic: &str) -> bool {
        self.rule(topic).is_some()
    }

    /// The topic of the records of a log; none if it has none, because rules give its topic another log.
    pub fn topic_of(&self, log: &str) -> Option<String> {
        if LogName::is_internal(log) {
            return None;
        }
        let of_rules = self.0.iter().filter_map(|rule| rule.topic_of(log));
        let mut all = of_rules.chain([log.to_owned()]);
        all.find(|topic| check_topic(topic).is_ok() && self.name_of(topic) == log)
    }

    /// Whether new subscribers of any topic get its newest record.
    pub fn retains_any(&self) -> bool {
        self.0.iter().any(|rule| rule.retain)
    }

    /// Whether new subscribers of the topic get its newest record.
    pub fn retains(&self, topic: &str) -> bool {
        self.rule(topic).is_some_and(|(rule, _)| rule.retain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(filter: &str, log: &str) -> Rule {
        Rule { filter: filter.into(), log: log.into(), retain: false }
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_the_log_tells_the_topic() {
        let rules = [
            Rule { retain: true, ..rule("raw/+", "raw/{1}") },
            rule("home/+/lamp/+", "lamps/{2}/{1}"),
            rule("tele/#", "tele/{#}"),
            rule("alarm", "alerts"),
        ];
        let rules = Rules::new(&rules).unwrap();
        for (topic, log) in [
            ("raw/kitchen", "raw/kitchen"),
            ("home/hall/lamp/1", "lamps/1/hall"),
            ("tele/a/b/c", "tele/a/b/c"),
            ("tele", "tele"),
            ("alarm", "alerts"),
            ("other/x", "other/x"),
        ] {
            assert_eq!(rules.log_of(topic).as_deref(), Some(log));
            assert_eq!(rules.topic_of(log).as_deref(), Some(topic));
        }
        assert_eq!(rules.topic_of("_secret"), None);
        // Its own topic is another log.
        let rules = Rules::new(&[rule("a", "b")]).unwrap();
        assert_eq!((rules.topic_of("a"), rules.topic_of("b").as_deref()), (None, Some("a")));
        assert_eq!((rules.log_of("a").as_deref(), rules.log_of("b")), (Some("b"), None));
        let rules = Rules::new(&[rule("#", "mqtt/{#}")]).unwrap();
        assert_eq!(rules.log_of("$SYS/x").as_deref(), Some("$SYS/x"), "no log has this name");
        assert_eq!(rules.topic_of("mqtt/a/b").as_deref(), Some("a/b"));
        assert_eq!(rules.topic_of("raw/a"), None);
    }

    #[test]
    fn a_rule_whose_log_does_not_tell_the_topic_is_refused() {
        for (filter, log) in [
            ("#", "mqtt"),
            ("raw/+", "raw"),
            ("raw/+", "raw/{2}"),
            ("raw/+", "raw/{1}/{1}"),
            ("raw/#", "{#}/raw"),
            ("raw/x", "raw/{1}"),
            ("raw/x", "raw/{#}"),
            ("a#", "x"),
            ("+", "_{1}"),
            ("+", "_x/{1}"),
            ("a", ""),
            ("a", "b c"),
            ("", "a"),
        ] {
            let error = Rules::new(&[rule(filter, log)]).unwrap_err();
            assert_eq!(error.code(), Code::MqttRuleInvalid, "{filter} {log}: {}", error.detail());
        }
    }

    proptest! {
        #[test]
        fn no_two_topics_share_a_log(
            picked in prop::collection::vec(0usize..6, 0..5),
            topics in prop::collection::vec("[ab]|a/[ab]|b/[ab]/a|a/a/b/b", 2..12),
        ) {
            let all = [
                rule("a/+", "x/{1}"), rule("+/a", "{1}/x"), rule("b/#", "a/{#}"),
                rule("a/#", "y/{#}"), rule("#", "z/{#}"), rule("a", "b"),
            ];
            let picked: Vec<Rule> = picked.into_iter().map(|index| all[index].clone()).collect();
            let rules = Rules::new(&picked).unwrap();
            let mut logs = std::collections::BTreeMap::new();
            for topic in topics {
                if let Some(log) = rules.log_of(&topic) {
                    prop_assert_eq!(rules.topic_of(&log), Some(topic.clone()));
                    let before = logs.insert(log, topic.clone());
                    prop_assert!(before.is_none_or(|before| before == topic));
                }
            }
        }
    }
}
