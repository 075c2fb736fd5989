//! NDJSON: each line an object, as `log get --json` prints it and `log append --ndjson` takes it.

use super::{Sink, Source, invalid, unreadable};
use crate::{
    commands::log::{
        append::{RECORD_MAX_BYTES, from_object},
        record_object,
    },
    report::Outcome,
};
use millrace_node::{Record, Result};
use std::{
    io::{BufRead, Read, Write},
    path::PathBuf,
};

/// A line is longer than the record in it: each byte of control characters takes six, and its other fields take some.
const LINE_MAX_BYTES: u64 = 6 * RECORD_MAX_BYTES as u64 + (64 << 10);

/// Writes lines.
pub struct Lines<W> {
    pub log: String,
    pub writer: W,
}

impl<W: Write> Sink for Lines<W> {
    fn put(&mut self, record: &Record) -> Outcome {
        serde_json::to_writer(&mut self.writer, &record_object(&self.log, record)).map_err(std::io::Error::from)?;
        Ok(self.writer.write_all(b"\n")?)
    }

    fn end(mut self: Box<Self>) -> Outcome {
        Ok(self.writer.flush()?)
    }
}

/// Reads lines.
pub struct Objects<R> {
    reader: R,
    path: PathBuf,
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Objects<R> {
    pub fn new(reader: R, path: PathBuf) -> Self {
        Self { reader, path, line: 0, text: Vec::new() }
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
            // Blank lines between objects are ignored.
            if self.text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let record = from_object(&self.text, Some("")).map_err(|fault| invalid("line", self.line, fault))?;
            return Ok(Some(record.payload));
        }
    }
}
