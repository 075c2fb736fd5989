//! Logs to files and back.
//!
//! ```text
//!  place.read --> export --> Sink    ndjson | csv | parquet    one record at a time, bounded memory
//!  place.append_many <-- import <-- Source
//! ```

mod csv;
pub mod export;
pub mod fields;
pub mod import;
mod ndjson;
mod parquet;
mod sniff;
mod table;
#[cfg(test)]
mod tests;
pub mod types;

use crate::{args::Format, report::Outcome};
use millrace_node::{Code, Error, Record, Result};
use serde_json::{Value, json};
use std::{io, path::Path};

/// Most columns that are listed for people.
const SHOWN_COLUMNS: usize = 40;

/// Where exported records go.
trait Sink {
    /// Takes one record, and when what it reports was observed, if it says so.
    fn put(&mut self, record: &Record, observed: Option<i64>) -> Outcome;
    /// Writes what is still held back.
    fn end(self: Box<Self>) -> Outcome;
}

/// Where imported records come from.
trait Source {
    /// The bytes of the next record; an error that is bad input names its line or row.
    fn next(&mut self) -> Result<Option<Vec<u8>>>;
    /// How the file is read, and what of this was guessed.
    fn describe(&self) -> Described;
}

/// The column of the time of the observation, where the log says which field has it. Import passes over it: the field has the time.
const OBSERVED: &str = "observed";

/// How a file is read.
#[derive(Clone, Debug, Default)]
struct Described {
    /// `export` (records as they were exported), `objects` (a JSON object per row or line), or `value` (one column).
    shape: &'static str,
    /// The delimiter of CSV, and whether it was guessed.
    delimiter: Option<(u8, bool)>,
    /// Whether the first line of CSV is a header, and whether this was guessed.
    header: Option<(bool, bool)>,
    columns: Vec<Column>,
}

/// A column of a table that becomes a field.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    kind: String,
    guessed: bool,
    /// What else is to be known about it.
    note: Option<String>,
}

impl Described {
    fn to_json(&self) -> Value {
        let columns = self.columns.iter().map(|column| {
            json!({ "name": column.name, "type": column.kind, "guessed": column.guessed, "note": column.note })
        });
        let guessed = |guess: Option<bool>, name: &str| guess.filter(|guessed| *guessed).map(|_| name.to_string());
        let guesses = [
            guessed(self.delimiter.map(|(_, guessed)| guessed), "delimiter"),
            guessed(self.header.map(|(_, guessed)| guessed), "header"),
            guessed(self.columns.iter().any(|column| column.guessed).then_some(true), "types"),
        ];
        json!({
            "shape": self.shape, "delimiter": self.delimiter.map(|(delimiter, _)| char::from(delimiter).to_string()),
            "header": self.header.map(|(header, _)| header), "columns": columns.collect::<Vec<_>>(),
            "guessed": guesses.into_iter().flatten().collect::<Vec<_>>(),
        })
    }

    /// The same for people; an export has nothing to be said about.
    fn lines(&self) -> Vec<String> {
        let guess = |guessed: bool| if guessed { " (guessed)" } else { "" };
        let mut first = Vec::new();
        if let Some((delimiter, guessed)) = self.delimiter {
            first.push(format!("delimiter '{}'{}", char::from(delimiter).escape_debug(), guess(guessed)));
        }
        if let Some((header, guessed)) = self.header {
            first.push(format!(
                "{}{}",
                if header { "the first line is a header" } else { "no header" },
                guess(guessed)
            ));
        }
        if self.shape == "objects" {
            first.push("a JSON object for each row".into());
        }
        let mut lines = if first.is_empty() || self.shape == "export" { Vec::new() } else { vec![first.join("; ")] };
        let width =
            self.columns.iter().take(SHOWN_COLUMNS).map(|column| column.name.chars().count()).max().unwrap_or(0);
        for column in self.columns.iter().take(SHOWN_COLUMNS) {
            let note = column.note.as_ref().map_or(String::new(), |note| format!(": {note}"));
            lines.push(format!(
                "  {:width$}  {}{}{note}",
                column.name.escape_debug().to_string(),
                column.kind,
                guess(column.guessed)
            ));
        }
        if self.columns.len() > SHOWN_COLUMNS {
            lines.push(format!("  and {} more columns (--json shows all)", self.columns.len() - SHOWN_COLUMNS));
        }
        lines
    }
}

/// The name of standard input and output.
fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// The requested format, or that of the file's extension.
fn format_of(asked: Option<Format>, path: &Path) -> Result<Format> {
    if let Some(format) = asked {
        return Ok(format);
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match extension.as_str() {
        _ if is_stream(path) => Ok(Format::Ndjson),
        "ndjson" | "jsonl" | "json" => Ok(Format::Ndjson),
        "csv" | "tsv" | "tab" => Ok(Format::Csv),
        "parquet" | "pq" => Ok(Format::Parquet),
        _ => {
            let detail = format!("the extension of {} does not name a format; give --format", path.display());
            Err(Code::FormatUnfit.error(detail))
        }
    }
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Error {
    Code::FileUnreadable.error(format!("cannot read {}: {error}", path.display()))
}

/// Bad input at a place of the file.
fn invalid(place: &str, number: u64, fault: impl std::fmt::Display) -> Error {
    Code::ImportInvalid.error(format!("{place} {number}: {fault}"))
}

/// Reading failed below a parser, as opposed to what was read being wrong.
fn is_io(kind: io::ErrorKind) -> bool {
    !matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
