//! CSV as it is written: a column per field where every record is a JSON object, else the records whole.

use super::{
    Sink,
    fields::{self, Columns},
};
use crate::{report::Outcome, show};
use csv::Writer;
use millrace_node::{Code, Record};
use std::io::{self, Write};

/// Most columns of a table; records with more different fields are written whole.
pub const COLUMNS_MAX: usize = 1000;
/// The columns before a record's fields. A record with a field of such a name is written as a whole.
pub const META: [&str; 2] = ["_seqno", "_time"];
/// The columns of records written whole. `base64` holds what is not text; one of the two last is empty.
pub const WHOLE: [&str; 4] = ["seqno", "time", "data", "base64"];

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
