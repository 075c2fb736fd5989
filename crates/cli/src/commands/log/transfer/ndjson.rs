//! NDJSON: each line an object, as `log get --json` prints it and `log append --ndjson` takes it, or any object that is a record itself.

use super::{
    Described, OBSERVED, Sink, Source,
    fields::{Fields, compact},
    invalid, unreadable,
};
use crate::{
    args::ReadingArgs,
    commands::log::{
        append::{RECORD_MAX_BYTES, from_object},
        record_object,
    },
    report::Outcome,
};
use millrace_documents::rfc3339_us;
use millrace_node::{Record, Result};
use std::{
    io::{BufRead, Read, Write},
    path::PathBuf,
};

/// A line is longer than the record in it: each byte of control characters takes six, and its other fields take some.
const LINE_MAX_BYTES: u64 = 6 * RECORD_MAX_BYTES as u64 + (64 << 10);

/// What some editors write before the first character of a file.
pub const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Writes lines.
pub struct Lines<W> {
    pub log: String,
    pub writer: W,
    /// Whether a line has the time of the observation.
    pub is_observed: bool,
}

impl<W: Write> Sink for Lines<W> {
    fn put(&mut self, record: &Record, observed: Option<i64>) -> Outcome {
        let mut object = record_object(&self.log, record);
        if self.is_observed {
            object[OBSERVED] = observed.map(rfc3339_us).into();
        }
        serde_json::to_writer(&mut self.writer, &object).map_err(std::io::Error::from)?;
        Ok(self.writer.write_all(b"\n")?)
    }

    fn end(mut self: Box<Self>) -> Outcome {
        Ok(self.writer.flush()?)
    }
}

/// What lines are.
enum Shape {
    /// Records in objects, as an export has them.
    Export,
    /// Objects that are records themselves.
    Objects,
    /// Records in this field of objects.
    Value(String),
}

/// Reads lines.
pub struct Objects<R> {
    reader: R,
    path: PathBuf,
    line: u64,
    text: Vec<u8>,
    /// Known from the first line on, unless it was given.
    shape: Option<Shape>,
}

/// The keys of an exported record, besides `data` or `base64`.
const EXPORTED: [&str; 5] = ["log", "seqno", "id", "time", "cause"];

/// Whether an object has the keys of an exported record, or nothing but the record itself. One key of such a name does not tell: other
/// objects have a field `data`, too.
fn is_exported(object: &Fields<'_>) -> bool {
    let (meta, rest): (Vec<&str>, Vec<&str>) =
        object.0.iter().map(|(name, _)| name.as_str()).partition(|name| *name == OBSERVED || EXPORTED.contains(name));
    matches!(rest[..], ["data" | "base64"]) && (meta.is_empty() || EXPORTED.iter().all(|key| meta.contains(key)))
}

impl<R: BufRead> Objects<R> {
    pub fn new(reader: R, path: PathBuf, reading: &ReadingArgs) -> Self {
        let shape = match &reading.value {
            Some(value) => Some(Shape::Value(value.clone())),
            None => reading.objects.then_some(Shape::Objects),
        };
        Self { reader, path, line: 0, text: Vec::new(), shape }
    }

    fn record(&mut self) -> Result<Vec<u8>, String> {
        let text = std::str::from_utf8(&self.text).map_err(|_| "it is not UTF-8")?.trim();
        let fields: Fields<'_> =
            serde_json::from_str(text).map_err(|error| format!("it is not a JSON object: {error}"))?;
        let guess = || if is_exported(&fields) { Shape::Export } else { Shape::Objects };
        match self.shape.get_or_insert_with(guess) {
            Shape::Objects => Ok(text.into()),
            Shape::Export if is_exported(&fields) => {
                from_object(text.as_bytes(), Some("")).map(|record| record.payload)
            }
            Shape::Export => {
                let fault = match from_object(text.as_bytes(), Some("")) {
                    Err(fault) => fault,
                    Ok(_) => "it has other fields than the records before it".into(),
                };
                Err(format!("{fault}; with --objects, every line becomes a record as it is"))
            }
            Shape::Value(name) => match fields.0.iter().find(|(field, _)| field == name) {
                Some((_, value)) => {
                    let text = serde_json::from_str::<String>(value.get());
                    Ok(text.unwrap_or_else(|_| compact(value.get())).into_bytes())
                }
                None => Err(format!("it has no field '{}'", name.escape_debug())),
            },
        }
    }
}

impl<R: BufRead> Source for Objects<R> {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            self.text.clear();
            let read = (&mut self.reader).take(LINE_MAX_BYTES + 1).read_until(b'\n', &mut self.text);
            if read.map_err(|error| unreadable(&self.path, error))? == 0 {
                return Ok(None);
            }
            self.line += 1;
            if self.text.len() as u64 > LINE_MAX_BYTES {
                return Err(invalid("line", self.line, "it is longer than any record"));
            }
            if self.line == 1 && self.text.starts_with(BYTE_ORDER_MARK) {
                self.text.drain(..BYTE_ORDER_MARK.len());
            }
            // Blank lines between objects are ignored.
            if self.text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line = self.line;
            return self.record().map(Some).map_err(|fault| invalid("line", line, fault));
        }
    }

    fn describe(&self) -> Described {
        let shape = match self.shape {
            Some(Shape::Objects) => "objects",
            Some(Shape::Value(_)) => "value",
            Some(Shape::Export) | None => "export",
        };
        Described { shape, ..Described::default() }
    }
}
