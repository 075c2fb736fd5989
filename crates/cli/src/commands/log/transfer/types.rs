//! The types of a table's columns. A column has one type, whatever single cells look like: `70835E12` in a column of codes is a text.

use super::fields::{is_json, quoted};
use std::{fmt, str::FromStr};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Text,
    Number,
    Bool,
    Json,
    /// No cell of the column has anything.
    Empty,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Bool => "bool",
            Self::Json => "json",
            Self::Empty => "empty",
        }
    }

    /// The cell as JSON; `None` if it does not have this type.
    pub fn value(self, cell: &str) -> Option<String> {
        let bare = cell.trim();
        let is_one = match self {
            Self::Text | Self::Empty => return Some(quoted(cell)),
            Self::Number => !bare.starts_with(['"', '[', '{', 't', 'f', 'n']) && is_json(bare) && is_finite(bare),
            Self::Bool => matches!(bare, "true" | "false"),
            Self::Json => is_json(bare),
        };
        is_one.then(|| bare.to_string())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Columns with their types, as in `t=number,where=text`.
#[derive(Clone, Debug, Default)]
pub struct Types(pub Vec<(String, Type)>);

impl FromStr for Types {
    type Err = String;

    /// A comma ends a pair only behind a type, so names may contain commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut types = Vec::new();
        let mut name = String::new();
        for piece in text.split(',') {
            name.push_str(piece);
            let Some((column, word)) = name.rsplit_once('=') else {
                name.push(',');
                continue;
            };
            let known = [Type::Text, Type::Number, Type::Bool, Type::Json];
            let Some(found) = known.into_iter().find(|known| known.name() == word) else {
                name.push(',');
                continue;
            };
            types.push((column.to_string(), found));
            name.clear();
        }
        if name.is_empty() {
            return Ok(Self(types));
        }
        let rest = name.trim_end_matches(',').escape_debug();
        Err(format!("'{rest}' is not COLUMN=TYPE, where TYPE is text, number, bool or json"))
    }
}

/// What the cells of a column have in common, seen so far.
#[derive(Clone, Debug, Default)]
pub struct Guess {
    cells: u64,
    numbers: u64,
    bools: u64,
    jsons: u64,
    /// The first cell that is no number.
    odd: Option<(u64, String)>,
}

impl Guess {
    /// Adds a cell that is not empty.
    pub fn add(&mut self, line: u64, cell: &str) {
        self.cells += 1;
        if is_plain_number(cell.trim()) {
            self.numbers += 1;
        } else if self.odd.is_none() {
            self.odd = Some((line, cell.chars().take(40).collect()));
        }
        self.bools += u64::from(matches!(cell.trim(), "true" | "false"));
        self.jsons += u64::from(cell.trim_start().starts_with(['[', '{']) && is_json(cell));
    }

    /// The type that all cells have.
    pub fn kind(&self) -> Type {
        match self.cells {
            0 => Type::Empty,
            all if all == self.numbers => Type::Number,
            all if all == self.bools => Type::Bool,
            all if all == self.jsons => Type::Json,
            _ => Type::Text,
        }
    }

    /// Why a column that has mostly numbers is one of text.
    pub fn note(&self) -> Option<String> {
        let (line, cell) = self.odd.as_ref().filter(|_| self.kind() == Type::Text && self.numbers * 2 >= self.cells)?;
        Some(format!("not number, because line {line} has {}", quoted(cell)))
    }
}

fn is_finite(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether a text is surely a number, and no code that looks like one: no leading zeros, no exponent of a whole number without a sign
/// (`28e4`; programs write `2.8e5` or `28e+4`), and nothing that 64 bits cannot hold.
fn is_plain_number(text: &str) -> bool {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) || !is_json(text) || !is_finite(text) {
        return false;
    }
    let (mantissa, exponent) = text.split_at(text.find(['e', 'E']).unwrap_or(text.len()));
    let is_whole = !mantissa.contains('.');
    if exponent.is_empty() {
        return !is_whole || text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
    }
    let is_zero = !mantissa.contains(|digit: char| ('1'..='9').contains(&digit));
    (!is_whole || exponent[1..].starts_with(['+', '-'])) && (is_zero || text.parse::<f64>() != Ok(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(cells: &[&str]) -> Type {
        let mut guess = Guess::default();
        cells.iter().zip(2..).for_each(|(cell, line)| guess.add(line, cell));
        guess.kind()
    }

    #[test]
    fn a_column_has_one_type() {
        for (cells, expected) in [
            (&["1", "-2.50", "1e-05", "1.0E10", "0"][..], Type::Number),
            (&["70835E12", "28e4"], Type::Text),
            (&["12", "28e4"], Type::Text),
            (&["1e999"], Type::Text),
            (&["1.5e-999"], Type::Text),
            (&["007", "12"], Type::Text),
            (&["18446744073709551615", "-9223372036854775808"], Type::Number),
            (&["18446744073709551616"], Type::Text),
            (&["1", "NA"], Type::Text),
            (&["1", "true"], Type::Text),
            (&["true", "false"], Type::Bool),
            (&["[1]", "{}"], Type::Json),
            (&["[1]", "[x"], Type::Text),
            (&["\"7\""], Type::Text),
            (&["null", "null"], Type::Text),
            (&["NaN", "inf"], Type::Text),
            (&[], Type::Empty),
        ] {
            assert_eq!(kind(cells), expected, "{cells:?}");
        }
    }

    #[test]
    fn a_type_that_was_given_takes_what_json_takes() {
        assert_eq!(Type::Number.value(" 28e4").as_deref(), Some("28e4"));
        assert_eq!(Type::Text.value("28e4").as_deref(), Some("\"28e4\""));
        for (kind, cell) in [
            (Type::Number, "NA"),
            (Type::Number, "007"),
            (Type::Number, "1e999"),
            (Type::Number, "[1]"),
            (Type::Number, "null"),
            (Type::Number, ""),
            (Type::Bool, "True"),
            (Type::Json, "x"),
        ] {
            assert_eq!(kind.value(cell), None, "{kind} {cell}");
        }
    }

    #[test]
    fn types_are_given_by_column() {
        let types: Types = "a=number,b,c=text,d=e=json".parse().unwrap();
        let names: Vec<_> = types.0.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        assert_eq!(names, [("a", Type::Number), ("b,c", Type::Text), ("d=e", Type::Json)]);
        for wrong in ["", "a", "a=int", "a=text,b"] {
            assert!(wrong.parse::<Types>().is_err(), "{wrong}");
        }
    }
}
