//! CSV: a column per field where every record is a JSON object, else the records whole.

use super::{
    Sink, Source,
    fields::{self, Columns},
    invalid, is_io, unreadable,
};
use crate::{commands::log::append::RECORD_MAX_BYTES, report::Outcome, show};
use csv::{Reader, ReaderBuilder, StringRecord, Writer};
use millrace_node::{Code, Record, Result};
use std::{
    cell::Cell,
    io::{self, Read, Write},
    path::PathBuf,
    rc::Rc,
};

/// Most columns of a table; records with more different fields are written whole.
pub const COLUMNS_MAX: usize = 1000;
/// Most bytes of a row: a record of quotes is twice as long, and a record in base64 a third longer.
const ROW_MAX_BYTES: u64 = 2 * RECORD_MAX_BYTES as u64 + (64 << 10);
/// The columns before a record's fields. A record with a field of such a name is written as a whole.
const META: [&str; 2] = ["_seqno", "_time"];
/// The columns of records written whole. `base64` holds what is not text; one of the two last is empty.
const WHOLE: [&str; 4] = ["seqno", "time", "data", "base64"];

/// Whether records can stand as rows of fields, found by looking at all of them.
#[derive(Default)]
pub struct Survey {
    columns: Columns,
    unfit: bool,
}

impl Survey {
    /// Examines a record; returns whether further records can change the result.
    pub fn add(&mut self, record: &[u8]) -> bool {
        self.unfit = match fields::of(record) {
            Some(fields) => !self.columns.add(&fields, COLUMNS_MAX),
            None => true,
        };
        !self.unfit
    }

    /// The columns, if the records are to be in columns.
    pub fn columns(self) -> Option<Columns> {
        let names = &self.columns.names;
        let taken = |name: &String| META.contains(&name.as_str()) || name.is_empty();
        // Columns that import would take for whole records must not come from fields.
        let whole = names.iter().any(|name| WHOLE[2..].contains(&name.as_str()));
        (!self.unfit && !names.is_empty() && !whole && !names.iter().any(taken)).then_some(self.columns)
    }
}

/// Writes rows.
pub struct Rows<W: Write> {
    writer: Writer<W>,
    columns: Option<Columns>,
}

fn failed(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

impl<W: Write> Rows<W> {
    /// Begins with the header.
    pub fn new(writer: W, columns: Option<Columns>) -> Outcome<Self> {
        let mut rows = Self { writer: Writer::from_writer(writer), columns };
        match &rows.columns {
            Some(columns) => {
                let header = META.into_iter().chain(columns.names.iter().map(String::as_str));
                rows.writer.write_record(header).map_err(failed)?;
            }
            None => rows.writer.write_record(WHOLE).map_err(failed)?,
        }
        Ok(rows)
    }
}

impl<W: Write> Sink for Rows<W> {
    fn put(&mut self, record: &Record) -> Outcome {
        let meta = [record.seqno.to_string(), show::rfc3339(record.hlc)];
        let cells = match &self.columns {
            // The records between the bounds do not change, so what the survey found holds.
            Some(columns) => fields::of(&record.payload).and_then(|fields| columns.row(&fields)).ok_or_else(|| {
                Code::FormatUnfit.error(format!("record {} has other fields than the records before it", record.seqno))
            })?,
            None => match std::str::from_utf8(&record.payload) {
                Ok(text) => vec![text.to_string(), String::new()],
                Err(_) => vec![String::new(), show::to_base64(&record.payload)],
            },
        };
        Ok(self.writer.write_record(meta.iter().chain(&cells)).map_err(failed)?)
    }

    fn end(mut self: Box<Self>) -> Outcome {
        Ok(self.writer.flush()?)
    }
}

/// The meaning of rows, according to the header.
enum Shape {
    /// Columns of fields, from this one on.
    Fields(usize),
    /// The columns of text and of base64.
    Whole(Option<usize>, Option<usize>),
}

/// Passes at most the maximum size of a record, so that an unclosed quote is reported before memory is full.
struct Capped<R> {
    reader: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than any record"));
        }
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut buffer[..most])?;
        self.left.set(left - read as u64);
        Ok(read)
    }
}

/// Reads rows.
pub struct Table<R: Read> {
    reader: Reader<Capped<R>>,
    left: Rc<Cell<u64>>,
    path: PathBuf,
    header: StringRecord,
    shape: Shape,
    row: StringRecord,
}

impl<R: Read> Table<R> {
    /// Reads the header.
    pub fn new(reader: R, path: PathBuf) -> Result<Self> {
        let left = Rc::new(Cell::new(ROW_MAX_BYTES));
        let mut reader = ReaderBuilder::new().from_reader(Capped { reader, left: left.clone() });
        let header = match reader.headers() {
            Ok(header) => header.clone(),
            Err(error) => return Err(fault(error, &path, 1)),
        };
        let column = |name: &str| header.iter().position(|column| column == name);
        let shape = match (column(WHOLE[2]), column(WHOLE[3])) {
            (None, None) if header.iter().take(2).eq(META) => Shape::Fields(2),
            (None, None) => Shape::Fields(0),
            (text, base64) => Shape::Whole(text, base64),
        };
        let mut names: Vec<&str> = header.iter().collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid("line", 1, format!("column '{}' occurs twice", twice[0].escape_debug())));
        }
        Ok(Self { reader, left, path, header, shape, row: StringRecord::new() })
    }
}

fn fault(error: csv::Error, path: &std::path::Path, line: u64) -> millrace_node::Error {
    let line = error.position().map_or(line, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) if is_io(error.kind()) => unreadable(path, error),
        csv::ErrorKind::Io(error) => invalid("line", line, error),
        csv::ErrorKind::Utf8 { .. } => invalid("line", line, "it is not UTF-8"),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            invalid("line", line, format!("it has {len} cells where the header has {expected_len}"))
        }
        kind => invalid("line", line, format!("{kind:?}")),
    }
}

impl<R: Read> Source for Table<R> {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let line = self.reader.position().line();
        self.left.set(ROW_MAX_BYTES);
        match self.reader.read_record(&mut self.row) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => return Err(fault(error, &self.path, line)),
        }
        let line = self.row.position().map_or(line, csv::Position::line);
        let cell = |column: Option<usize>| column.and_then(|column| self.row.get(column)).unwrap_or("");
        match self.shape {
            Shape::Fields(first) => Ok(Some(fields::object(self.header.iter().zip(&self.row).skip(first)))),
            Shape::Whole(text, base64) => match (cell(text), cell(base64)) {
                (text, "") => Ok(Some(text.as_bytes().to_vec())),
                ("", base64) => match show::from_base64(base64) {
                    Some(bytes) => Ok(Some(bytes)),
                    None => Err(invalid("line", line, "its \"base64\" is not base64")),
                },
                _ => Err(invalid("line", line, "it has both \"data\" and \"base64\"")),
            },
        }
    }
}
