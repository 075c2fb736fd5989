//! One table of the file, read key by key: typed values with their places, and a problem for everything else.

use super::{
    keys::Key,
    problem::{Collector, shown, suggestion},
    units,
};
use millrace_wire::{HISTORY_ALL, HISTORY_MAX, TimeField, TimeUnit};
use std::{fmt::Display, ops::Range, str::FromStr, time::Duration};
use toml_edit::{Item, TableLike, Value};

/// A place in the text, in bytes.
pub(super) type Span = Option<Range<usize>>;

/// A value and its position in the file.
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// A table of the file and the keys it may hold.
pub(super) struct Section<'a> {
    table: &'a dyn TableLike,
    /// As messages name it: `[functions.smooth]`.
    label: String,
    /// Where the table begins.
    pub(super) span: Span,
}

/// The type of a value in the file, for messages.
fn kind(item: &Item) -> &'static str {
    match item {
        Item::Value(Value::InlineTable(_)) | Item::Table(_) => "a table",
        Item::Value(Value::String(_)) => "a string",
        Item::Value(Value::Integer(_)) => "a whole number",
        Item::Value(Value::Float(_)) => "a fraction",
        Item::Value(Value::Boolean(_)) => "true or false",
        Item::Value(Value::Datetime(_)) => "a date",
        Item::Value(Value::Array(_)) => "a list",
        Item::ArrayOfTables(_) => "a list of tables",
        Item::None => "nothing",
    }
}

impl<'a> Section<'a> {
    /// The table behind `item`, after refusing every key that is not in `keys`.
    pub(super) fn open(
        item: &'a Item,
        span: Span,
        label: String,
        keys: &[Key],
        problems: &mut Collector<'_>,
    ) -> Option<Self> {
        let Some(table) = item.as_table_like() else {
            problems.add(span, format!("{label} is {}, not a table", kind(item)));
            return None;
        };
        Some(Self::of(table, span, label, keys, problems))
    }

    /// A table, after refusing every key that is not in `keys`.
    pub(super) fn of(
        table: &'a dyn TableLike,
        span: Span,
        label: String,
        keys: &[Key],
        problems: &mut Collector<'_>,
    ) -> Self {
        for (name, value) in table.iter() {
            if keys.iter().any(|key| key.name == name) {
                continue;
            }
            let span = table.key(name).and_then(|key| key.span()).or_else(|| value.span());
            let mut hint = suggestion(name, keys.iter().map(|key| key.name));
            if hint.is_empty() {
                let known: Vec<_> = keys.iter().map(|key| key.name).collect();
                hint = format!("; the keys are {}", known.join(", "));
            }
            problems.add(span, format!("unknown key '{}' in {label}{hint}", shown(name)));
        }
        Self { table, label, span }
    }

    /// A list of tables, each with its place.
    pub(super) fn tables(&self, key: &str, problems: &mut Collector<'_>) -> Vec<(&'a dyn TableLike, Span)> {
        let read = |item: &'a Item| {
            if let Some(tables) = item.as_array_of_tables() {
                return Ok(tables.iter().map(|table| (table as &dyn TableLike, table.span())).collect());
            }
            let list = item.as_array().ok_or_else(|| format!("expected a list of tables, not {}", kind(item)))?;
            let tables = list.iter().map(|value| {
                let table = value.as_inline_table().ok_or("expected a list of tables such as { key = \"value\" }")?;
                Ok((table as &dyn TableLike, value.span()))
            });
            tables.collect::<Result<Vec<_>, &str>>().map_err(str::to_string)
        };
        self.read(key, problems, read).map(|placed| placed.value).unwrap_or_default()
    }

    /// The position of the key, or of the section if the key is absent.
    pub(super) fn place_of(&self, key: &str) -> Span {
        self.table.key(key).and_then(|key| key.span()).or_else(|| self.span.clone())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    /// The key's value if `read` accepts it; a value it refuses is a problem.
    fn read<T>(
        &self,
        key: &str,
        problems: &mut Collector<'_>,
        read: impl FnOnce(&'a Item) -> Result<T, String>,
    ) -> Option<Placed<T>> {
        let item = self.table.get(key)?;
        let span = item.span().or_else(|| self.place_of(key));
        match read(item) {
            Ok(value) => Some(Placed { value, span }),
            Err(message) => {
                problems.add(span, format!("{key} in {}: {message}", self.label));
                None
            }
        }
    }

    pub(super) fn text(&self, key: &str, problems: &mut Collector<'_>) -> Option<Placed<&'a str>> {
        self.read(key, problems, text)
    }

    /// A text that must parse: names, mostly.
    pub(super) fn parsed<T: FromStr<Err = millrace_wire::Error>>(
        &self,
        key: &str,
        problems: &mut Collector<'_>,
    ) -> Option<Placed<T>> {
        self.read(key, problems, |item| parse(text(item)?))
    }

    /// The field that has the time of the observation: a pointer, or a table with a unit.
    pub(super) fn time(&self, key: &str, problems: &mut Collector<'_>) -> Option<TimeField> {
        const EXPECTED: &str = "expected a JSON pointer such as \"/observed_at\", or { field = \"/t\", unit = \"ms\" }";
        let field = |text: &str, unit| TimeField::new(text, unit).map_err(|error| error.detail().to_owned());
        let read = |item: &'a Item| {
            if let Some(text) = item.as_str() {
                return field(text, None);
            }
            let table = item.as_table_like().ok_or_else(|| format!("{EXPECTED}, not {}", kind(item)))?;
            let unit = match table.get("unit").map(|unit| unit.as_str().ok_or_else(|| kind(unit))) {
                None => None,
                Some(Ok(unit)) => Some(TimeUnit::parse(unit).map_err(|error| error.detail().to_owned())?),
                Some(Err(kind)) => return Err(format!("unit: expected \"s\", \"ms\" or \"us\", not {kind}")),
            };
            if let Some((other, _)) = table.iter().find(|(name, _)| !matches!(*name, "field" | "unit")) {
                return Err(format!("unknown key '{}'; the keys are field, unit", shown(other)));
            }
            field(table.get("field").and_then(Item::as_str).ok_or(EXPECTED)?, unit)
        };
        self.read(key, problems, read).map(|placed| placed.value)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
        problems: &mut Collector<'_>,
    ) -> Option<Placed<T>> {
        self.read(key, problems, |item| {
            let given = text(item)?;
            words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
                let hint = suggestion(given, words.iter().map(|(word, _)| *word));
                let all: Vec<_> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
                format!("'{}' is not one of {}{hint}", shown(given), all.join(", "))
            })
        })
    }

    pub(super) fn flag(&self, key: &str, problems: &mut Collector<'_>) -> Option<bool> {
        let read = |item: &Item| item.as_bool().ok_or_else(|| format!("expected true or false, not {}", kind(item)));
        self.read(key, problems, read).map(|placed| placed.value)
    }

    pub(super) fn number(&self, key: &str, least: u64, most: u64, problems: &mut Collector<'_>) -> Option<u64> {
        let read = |item: &Item| {
            let number = item.as_integer().ok_or_else(|| format!("expected a whole number, not {}", kind(item)))?;
            within(u64::try_from(number).map_err(|_| number.to_string()), least, most, u64::to_string)
        };
        self.read(key, problems, read).map(|placed| placed.value)
    }

    /// A log's history: a whole number, a text such as `"10k"`, or `"all"`.
    pub(super) fn history(&self, key: &str, problems: &mut Collector<'_>) -> Option<u64> {
        let read = |item: &Item| match (item.as_str(), item.as_integer()) {
            (Some("all"), _) => Ok(HISTORY_ALL),
            (_, Some(number)) => {
                within(u64::try_from(number).map_err(|_| number.to_string()), 1, HISTORY_MAX, u64::to_string)
            }
            (Some(count), _) => {
                let count = units::parse_count(count).map_err(|reported| format!("{reported}, nor 'all'"))?;
                within(Ok(count), 1, HISTORY_MAX, u64::to_string)
            }
            _ => Err(format!("expected a whole number or \"all\", not {}", kind(item))),
        };
        self.read(key, problems, read).map(|placed| placed.value)
    }

    /// A size: a text with a unit, or a whole number of bytes.
    pub(super) fn size(&self, key: &str, least: u64, most: u64, problems: &mut Collector<'_>) -> Option<Placed<u64>> {
        self.read(key, problems, |item| {
            let bytes = match item.as_integer() {
                Some(number) => u64::try_from(number).map_err(|_| number.to_string()),
                None => Ok(units::parse_size(text(item)?)?),
            };
            within(bytes, least, most, |bytes| units::show_size(*bytes))
        })
    }

    pub(super) fn duration(
        &self,
        key: &str,
        least: Duration,
        most: Duration,
        problems: &mut Collector<'_>,
    ) -> Option<Duration> {
        let read = |item: &Item| {
            if let Some(number) = item.as_integer() {
                return Err(format!("{number} has no unit; write \"{number}s\" or \"{number}ms\""));
            }
            within(Ok(units::parse_duration(text(item)?)?), least, most, |value| units::show_duration(*value))
        };
        self.read(key, problems, read).map(|placed| placed.value)
    }

    /// A list of texts, each with its place.
    pub(super) fn texts(&self, key: &str, problems: &mut Collector<'_>) -> Option<Placed<Vec<Placed<&'a str>>>> {
        self.read(key, problems, |item| {
            if let Some(one) = item.as_str() {
                return Err(format!("expected a list; write [\"{}\"]", shown(one)));
            }
            let list = item.as_array().ok_or_else(|| format!("expected a list, not {}", kind(item)))?;
            let texts = list.iter().map(|value| {
                let value_text = value.as_str().ok_or("expected a list of strings; quote each of them")?;
                Ok(Placed { value: value_text, span: value.span() })
            });
            texts.collect::<Result<Vec<_>, &str>>().map_err(str::to_string)
        })
    }

    /// A table of texts.
    pub(super) fn map(&self, key: &str, problems: &mut Collector<'_>) -> Vec<(String, String)> {
        let read = |item: &'a Item| {
            let table = item.as_table_like().ok_or_else(|| format!("expected a table, not {}", kind(item)))?;
            let pairs = table.iter().map(|(name, value)| match value.as_str() {
                Some(_) if name.is_empty() || name.contains(['=', '\0']) => {
                    Err(format!("'{}' is not a valid name of an environment variable", shown(name)))
                }
                Some(text) if text.contains('\0') => Err(format!("the value of '{}' contains NUL", shown(name))),
                Some(text) => Ok((name.to_string(), text.to_string())),
                None => Err(format!("the value of '{}' is {}; quote it", shown(name), kind(value))),
            });
            pairs.collect::<Result<Vec<_>, String>>()
        };
        self.read(key, problems, read).map(|placed| placed.value).unwrap_or_default()
    }
}

fn text(item: &Item) -> Result<&str, String> {
    item.as_str().ok_or_else(|| format!("expected a string in quotes, not {}", kind(item)))
}

/// Parses a text, keeping only what was wrong of the error.
pub(super) fn parse<T: FromStr<Err = millrace_wire::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: millrace_wire::Error| error.detail().to_string())
}

/// `value` if it lies within bounds; an error already made text says only that it does not.
fn within<T: PartialOrd>(
    value: Result<T, String>,
    least: T,
    most: T,
    show: impl Fn(&T) -> String,
) -> Result<T, String> {
    let outside = |given: String| format!("{given} is outside {} to {}", show(&least), show(&most));
    match value {
        Ok(value) if value >= least && value <= most => Ok(value),
        Ok(value) => Err(outside(show(&value))),
        Err(given) => Err(outside(given)),
    }
}

/// A list of words as messages name them.
pub(super) fn quoted(words: impl IntoIterator<Item = impl Display>) -> String {
    words.into_iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}
