//! CSV as it is written: a column per field where every record is a JSON object, else the records whole.

use super::{
    OBSERVED, Sink,
    fields::{self, Columns},
};
use crate::{report::Outcome, show};
use csv::Writer;
use millrace_documents::rfc3339_us;
use millrace_node::{Code, Record};
use std::io::{self, Write};

/// Most columns of a table; records with more different fields are written whole.
pub const COLUMNS_MAX: usize = 1000;
/// The columns before a record's fields. A record with a field of such a name is written as a whole.
pub const META: [&str; 2] = ["_seqno", "_time"];
/// The column behind [`META`], where the log says which field has the time of the observation.
pub const META_OBSERVED: &str = "_observed";
/// The columns of records written whole. `base64` holds what is not text; one of the two last is empty.
pub const WHOLE: [&str; 4] = ["seqno", "time", "data", "base64"];
/// The same with the time of the observation.
pub const WHOLE_OBSERVED: [&str; 5] = ["seqno", "time", OBSERVED, "data", "base64"];

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
        let taken = |name: &String| name == META_OBSERVED || META.contains(&name.as_str()) || name.is_empty();
        // Columns that import would take for whole records must not come from fields.
        let whole = names.iter().any(|name| WHOLE[2..].contains(&name.as_str()));
        (!self.unfit && !names.is_empty() && !whole && !names.iter().any(taken)).then_some(self.columns)
    }
}

/// Writes rows.
pub struct Rows<W: Write> {
    writer: Writer<W>,
    columns: Option<Columns>,
    is_observed: bool,
}

fn failed(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

impl<W: Write> Rows<W> {
    /// Begins with the header. `is_observed`: rows have the time of the observation.
    pub fn new(writer: W, columns: Option<Columns>, is_observed: bool) -> Outcome<Self> {
        let mut rows = Self { writer: Writer::from_writer(writer), columns, is_observed };
        match &rows.columns {
            Some(columns) => {
                let meta = META.into_iter().chain(is_observed.then_some(META_OBSERVED));
                let header = meta.chain(columns.names.iter().map(String::as_str));
                rows.writer.write_record(header).map_err(failed)?;
            }
            None if is_observed => rows.writer.write_record(WHOLE_OBSERVED).map_err(failed)?,
            None => rows.writer.write_record(WHOLE).map_err(failed)?,
        }
        Ok(rows)
    }
}

impl<W: Write> Sink for Rows<W> {
    fn put(&mut self, record: &Record, observed: Option<i64>) -> Outcome {
        let mut meta = vec![record.seqno.to_string(), show::rfc3339(record.hlc)];
        if self.is_observed {
            meta.push(observed.map_or_else(String::new, rfc3339_us));
        }
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
