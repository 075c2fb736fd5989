//! Logs to files and back.
//!
//! ```text
//!  place.read --> export --> Sink    ndjson | csv | parquet    one record at a time, bounded memory
//!  place.append_many <-- import <-- Source
//! ```

mod csv;
pub mod export;
mod fields;
pub mod import;
mod ndjson;
mod parquet;
#[cfg(test)]
mod tests;

use crate::{args::Format, report::Outcome};
use millrace_node::{Code, Error, Record, Result};
use std::{io, path::Path};

/// Where exported records go.
trait Sink {
    /// Takes one record.
    fn put(&mut self, record: &Record) -> Outcome;
    /// Writes what is still held back.
    fn end(self: Box<Self>) -> Outcome;
}

/// Where imported records come from.
trait Source {
    /// The bytes of the next record; an error that is bad input names its line or row.
    fn next(&mut self) -> Result<Option<Vec<u8>>>;
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
        "csv" => Ok(Format::Csv),
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
