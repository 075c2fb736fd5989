//! The rules of `[mqtt] topics`: which topic is which log.
//!
//! A rule can be turned round: the name of its log contains every wildcard of its filter, so the log alone tells the topic of its records.
//! Topics may have characters and numbers of levels that names of logs do not have; then they are written otherwise there: a byte as `_.` and
//! two digits, an empty level as `_.00`, and the slash before a level for which there is no segment as `_.2f`.

use crate::filter::{check_filter, check_topic, is_reserved};
use millrace_wire::{Code, Error, LogName, Result, SEGMENTS_MAX};
use std::fmt::Write;

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

/// A level of a topic, as it stands in the name of a log.
fn escaped(level: &str) -> String {
    if level.is_empty() {
        return "_.00".into();
    }
    let bytes = level.as_bytes();
    let mut name = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let is_plain = match byte {
            b'.' => at > 0,
            b'_' => bytes.get(at + 1) != Some(&b'.'),
            b'-' => true,
            byte => byte.is_ascii_alphanumeric(),
        };
        match is_plain {
            true => name.push(char::from(*byte)),
            false => drop(write!(name, "_.{byte:02x}")),
        }
    }
    name
}

/// The level, or levels, of a topic that stand in the name of a log like this; none if nothing is written so.
fn unescaped(name: &str) -> Option<String> {
    if name == "_.00" {
        return Some(String::new());
    }
    let mut parts = name.split("_.");
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|byte| *byte > 0)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// What the wildcards stand for.
#[derive(Default)]
struct Matched {
    ones: Vec<(usize, String)>,
    rest: Vec<String>,
}

impl Matched {
    fn of(levels: &[Level], text: &str) -> Option<Self> {
        let (mut matched, mut text) = (Self::default(), text.split('/'));
        for level in levels {
            match level {
                Level::Rest => {
                    matched.rest = text.map(str::to_owned).collect();
                    return Some(matched);
                }
                Level::One(number) => matched.ones.push((*number, text.next()?.to_owned())),
                Level::Text(expected) => drop(text.next().filter(|there| there == expected)?),
            }
        }
        text.next().is_none().then_some(matched)
    }

    /// As it stands in the name of a log that has room for so many segments of `#`.
    fn escaped(self, room: usize) -> Self {
        let ones = self.ones.into_iter().map(|(number, level)| (number, escaped(&level))).collect();
        let mut rest: Vec<String> = self.rest.iter().map(|level| escaped(level)).collect();
        if rest.len() > room && room > 0 {
            let last = rest.split_off(room - 1).join("_.2f");
            rest.push(last);
        }
        Self { ones, rest }
    }

    /// As it stands in a topic.
    fn unescaped(self) -> Option<Self> {
        let ones = self.ones.iter().map(|(number, name)| Some((*number, unescaped(name)?))).collect::<Option<_>>()?;
        let rest = self.rest.iter().map(|name| unescaped(name)).collect::<Option<_>>()?;
        Some(Self { ones, rest })
    }

    fn fill(&self, levels: &[Level]) -> Option<String> {
        let mut filled = Vec::new();
        for level in levels {
            match level {
                Level::Text(text) => filled.push(text.as_str()),
                Level::One(number) => filled.push(&*self.ones.iter().find(|(one, _)| one == number)?.1),
                Level::Rest => filled.extend(self.rest.iter().map(String::as_str)),
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
        let example = Matched { ones: (1..=ones).map(|number| (number, "x".into())).collect(), rest: vec!["x".into()] };
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
        let room = SEGMENTS_MAX.saturating_sub(self.log.iter().filter(|level| **level != Level::Rest).count());
        Matched::of(&self.filter, topic)?.escaped(room).fill(&self.log)
    }

    fn topic_of(&self, log: &str) -> Option<String> {
        Matched::of(&self.log, log)?.unescaped()?.fill(&self.filter)
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
    fn a_topic_may_have_what_a_name_has_not() {
        let rules = Rules::new(&[rule("z/+/set", "set/{1}"), rule("z/#", "z/{#}"), rule("+", "{1}")]).unwrap();
        for (topic, log) in [
            ("z/Living room/Lampe é", "z/Living_.20room/Lampe_.20_.c3_.a9"),
            ("z/0x00_1.5-x", "z/0x00_1.5-x"),
            ("z/a/b/c/d/e/f/g/h i", "z/a/b/c/d/e/f/g_.2fh_.20i"),
            ("z/a//b/", "z/a/_.00/b/_.00"),
            ("z/.a/_.20/__. ", "z/_.2ea/_.5f.20/__.5f._.20"),
            ("z/a b/set", "set/a_.20b"),
            ("z", "z"),
            ("a b", "a_.20b"),
        ] {
            assert_eq!(rules.log_of(topic).as_deref(), Some(log));
            assert_eq!(rules.topic_of(log).as_deref(), Some(topic));
            log.parse::<LogName>().unwrap();
        }
        assert_eq!(rules.log_of(" a"), None, "it would be a log of the runtime");
        for log in ["z/a_.20", "z/a_.2", "z/a_.zz", "z/a_.41", "z/a_.00", "z/_.00b", "z/_.ff", "z/a_.2fb", "z/a_.é"] {
            assert_eq!(rules.topic_of(log).is_some(), log == "z/a_.20", "{log}");
        }
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
            topics in prop::collection::vec("[ab]|a/[ab]|b/[ab]/a|a/a/b/b|[ab](/[ab_. é5f]{0,3}){1,10}", 2..12),
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
