//! Records that are JSON objects, as rows of a table: a column per field, a cell per value.
//!
//! A cell is the value's JSON as it was in the record, except that a text has no quotes where it cannot be mistaken for other JSON. An
//! absent field is an empty cell. So an import restores every value exactly.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::{collections::HashMap, fmt};

/// An object's fields in their order, values as they were written.
pub struct Fields<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// The fields of a record that is a JSON object without repeated fields.
pub fn of(record: &[u8]) -> Option<Fields<'_>> {
    let fields: Fields<'_> = serde_json::from_slice(record).ok()?;
    let mut names: Vec<&str> = fields.0.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let distinct = names.windows(2).all(|pair| pair[0] != pair[1]);
    distinct.then_some(fields)
}

/// Whether a text is JSON.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// A value as a cell.
pub fn cell(value: &RawValue) -> String {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) if !text.is_empty() && !is_json(&text) => text,
        _ => value.get().to_string(),
    }
}

/// Converts rows of an export back to objects. An empty cell is an absent field.
pub fn object<'a>(cells: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let value = |cell: &str| if is_json(cell) { cell.trim().to_string() } else { quoted(cell) };
    let fields: Vec<(&str, String)> =
        cells.filter(|(_, cell)| !cell.is_empty()).map(|(name, cell)| (name, value(cell))).collect();
    written(fields.iter().map(|(name, value)| (*name, value.as_str())))
}

/// An object of fields whose values are JSON.
pub fn written<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut object = String::from("{");
    for (name, value) in fields {
        if object.len() > 1 {
            object.push(',');
        }
        object.push_str(&quoted(name));
        object.push(':');
        object.push_str(value);
    }
    object.push('}');
    object.into_bytes()
}

/// JSON without the spaces between its tokens, and otherwise as it was written: numbers keep their digits.
pub fn compact(json: &str) -> String {
    let (mut in_text, mut is_escaped) = (false, false);
    let keep = |byte: &char| {
        match byte {
            '"' if !is_escaped => in_text = !in_text,
            ' ' | '\n' | '\r' | '\t' if !in_text => return false,
            _ => {}
        }
        is_escaped = *byte == '\\' && !is_escaped;
        true
    };
    json.chars().filter(keep).collect()
}

/// A text as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The columns of a table, in the order in which fields were first seen.
#[derive(Debug, Default)]
pub struct Columns {
    pub names: Vec<String>,
    index: HashMap<String, usize>,
}

impl Columns {
    /// Adds the fields of one more record; returns whether the table still has at most `most` columns.
    pub fn add(&mut self, fields: &Fields<'_>, most: usize) -> bool {
        for (name, _) in &fields.0 {
            if !self.index.contains_key(name) {
                if self.names.len() == most {
                    return false;
                }
                self.index.insert(name.clone(), self.names.len());
                self.names.push(name.clone());
            }
        }
        true
    }

    /// The record's cells, one for each column; `None` if it has a field that is no column.
    pub fn row(&self, fields: &Fields<'_>) -> Option<Vec<String>> {
        let mut cells = vec![String::new(); self.names.len()];
        for (name, value) in &fields.0 {
            cells[*self.index.get(name)?] = cell(value);
        }
        Some(cells)
    }
}
