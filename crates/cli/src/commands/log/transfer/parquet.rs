//! Parquet: the columns seqno, time, id, cause and data, in row groups that fit in memory.

use super::{Column, Described, OBSERVED, Sink, Source, invalid, table::no_column, unreadable};
use crate::{args::ReadingArgs, report::Outcome, show};
use millrace_gateway::ParquetWriter;
use millrace_node::{Code, Error, Record, Result};
use parquet::{
    basic::{ConvertedType, Type as Physical},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, ByteArrayType},
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row, reader::RowIter},
    schema::types::Type,
};
use std::{
    cell::Cell,
    fs::File,
    io::Write,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{Arc, Once},
};

/// The columns of an export, without the one of [`OBSERVED`], and the one of them that import reads.
const EXPORTED: [&str; 5] = ["seqno", "time", "id", "cause", DATA];
const DATA: &str = "data";
/// A row group is written when it has this number of bytes.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// Records read at once.
const READ_RECORDS: usize = 64;

/// Writes row groups.
pub struct Groups<W: Write + Send>(ParquetWriter<W>);

impl<W: Write + Send> Groups<W> {
    /// `is_observed`: rows have the time of the observation.
    pub fn new(writer: W, is_observed: bool) -> Outcome<Self> {
        Ok(Self(ParquetWriter::new(writer, is_observed, GROUP_BYTES_MAX)?))
    }
}

impl<W: Write + Send> Sink for Groups<W> {
    fn put(&mut self, record: &Record, observed: Option<i64>) -> Outcome {
        Ok(self.0.put(record, observed)?)
    }

    fn end(self: Box<Self>) -> Outcome {
        Ok(self.0.end().map(drop)?)
    }
}

/// The meaning of rows.
enum Rows {
    /// Records in a column of bytes.
    Data(Box<Data>),
    /// JSON objects.
    Objects(RowIter<'static>),
}

/// Reads rows.
pub struct Table {
    path: PathBuf,
    row: u64,
    rows_total: u64,
    rows: Rows,
    described: Described,
    /// In how many rows each column has a number that JSON lacks.
    lost: Vec<u64>,
}

thread_local! {
    /// Whether this thread is reading a file that may be damaged.
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Reads. The library panics at some damage (a negative length, for one); here that is an error like any other, and the
/// panic's own message would only confuse.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !READING.get() {
                usual(info);
            }
        }));
    });
    READING.set(true);
    // After a panic the reader is no longer used: the error ends the import.
    let read = panic::catch_unwind(AssertUnwindSafe(read));
    READING.set(false);
    read.unwrap_or_else(|_| Err(ParquetError::General("it is damaged".into())))
}

impl Table {
    pub fn open(path: PathBuf, reading: &ReadingArgs) -> Result<Self> {
        let file = File::open(&path).map_err(|error| unreadable(&path, error))?;
        let reader = guarded(|| SerializedFileReader::new(file)).map_err(|error| unfit(&path, &error))?;
        let rows_total = u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
        let schema = reader.metadata().file_metadata().schema_descr();
        let names: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
        let wanted = match &reading.value {
            Some(value) => Some(value.as_str()),
            // Another table may have a column `data`, too.
            None => (!reading.objects && is_exported(&names)).then_some(DATA),
        };
        let shape = match (&reading.value, wanted) {
            (Some(_), _) => "value",
            (None, Some(_)) => "export",
            (None, None) => "objects",
        };
        let mut described = Described { shape, ..Described::default() };
        let rows = match wanted.map(|wanted| names.iter().position(|name| name == wanted).ok_or(wanted)) {
            Some(Err(missing)) => return Err(no_column("--value", missing, &names)),
            Some(Ok(column)) if schema.column(column).max_rep_level() > 0 => {
                return Err(unfit(&path, format!("its column '{}' is repeated", names[column].escape_debug())));
            }
            Some(Ok(column)) => Rows::Data(Box::new(Data::new(reader, column))),
            None => {
                described.columns = columns(schema.root_schema().get_fields());
                let mut sorted: Vec<&str> = described.columns.iter().map(|column| column.name.as_str()).collect();
                sorted.sort_unstable();
                if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(unfit(&path, format!("it has two columns '{}'", twice[0].escape_debug())));
                }
                Rows::Objects(RowIter::from_file_into(Box::new(reader)))
            }
        };
        let lost = vec![0; described.columns.len()];
        Ok(Self { path, row: 0, rows_total, rows, described, lost })
    }

    /// How many rows the file says it has.
    pub fn rows(&self) -> u64 {
        self.rows_total
    }
}

fn is_exported(names: &[String]) -> bool {
    let without: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != OBSERVED).collect();
    without == EXPORTED && (names.len() == EXPORTED.len() || names[2] == OBSERVED)
}

fn unfit(path: &std::path::Path, fault: impl std::fmt::Display) -> Error {
    Code::FormatUnfit.error(format!("cannot read {} as Parquet: {fault}", path.display()))
}

impl Source for Table {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.row += 1;
        match &mut self.rows {
            Rows::Data(data) => match guarded(|| data.next()) {
                Ok(Some(None)) => Err(invalid("row", self.row, "its value is null")),
                Ok(record) => Ok(record.flatten()),
                Err(error) => Err(unfit(&self.path, error).within(format!("row {}", self.row))),
            },
            Rows::Objects(rows) => {
                let read = guarded(|| {
                    let row = rows.next().transpose()?;
                    Ok(row.map(|row| (not_finite(&row), row.to_json_value().to_string())))
                });
                let read = read.map_err(|error| unfit(&self.path, error).within(format!("row {}", self.row)))?;
                Ok(read.map(|(lost, row)| {
                    for column in lost {
                        self.lost[column] += 1;
                    }
                    row.into_bytes()
                }))
            }
        }
    }

    fn describe(&self) -> Described {
        let mut described = self.described.clone();
        for (column, lost) in described.columns.iter_mut().zip(&self.lost).filter(|(_, lost)| **lost > 0) {
            let rows = show::count(*lost, "row");
            let note = format!("NaN or infinite in {rows}, where the records have null");
            column.note = Some(column.note.as_ref().map_or_else(|| note.clone(), |more| format!("{more}; {note}")));
        }
        described
    }
}

/// The columns of a file with what their values become.
fn columns(fields: &[Arc<Type>]) -> Vec<Column> {
    let column = |field: &Arc<Type>| {
        let info = field.get_basic_info();
        let (kind, note) = match (field.is_primitive(), info.logical_type_ref(), info.converted_type()) {
            (false, ..) => ("json".to_string(), None),
            (true, Some(logical), ConvertedType::NONE) => {
                // The library gives such values as they are stored.
                let note = format!("the numbers or base64 of what the file declares as {logical:?}");
                (format!("{:?}", field.get_physical_type()).to_lowercase(), Some(note))
            }
            (true, _, converted) => {
                let note = match (field.get_physical_type(), converted) {
                    (Physical::INT96, _) => Some("times to the millisecond, in UTC".to_string()),
                    (Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY, ConvertedType::NONE) => {
                        Some("bytes, as base64".to_string())
                    }
                    _ => None,
                };
                let kind = match converted {
                    ConvertedType::NONE => format!("{:?}", field.get_physical_type()),
                    converted => format!("{converted:?}"),
                };
                (kind.to_lowercase(), note)
            }
        };
        Column { name: field.name().to_string(), kind, guessed: false, note }
    };
    fields.iter().map(column).collect()
}

/// The columns of a row that have numbers which JSON lacks.
fn not_finite(row: &Row) -> Vec<usize> {
    fn is_lost(field: &Field) -> bool {
        match field {
            Field::Float16(n) => !f32::from(*n).is_finite(),
            Field::Float(n) => !n.is_finite(),
            Field::Double(n) => !n.is_finite(),
            Field::Group(row) => row.get_column_iter().any(|(_, field)| is_lost(field)),
            Field::ListInternal(list) => list.elements().iter().any(is_lost),
            Field::MapInternal(map) => map.entries().iter().any(|(key, value)| is_lost(key) || is_lost(value)),
            _ => false,
        }
    }
    let lost = row.get_column_iter().enumerate().filter(|(_, (_, field))| is_lost(field));
    lost.map(|(column, _)| column).collect()
}

/// The column of data, row group by row group.
struct Data {
    reader: SerializedFileReader<File>,
    column: usize,
    /// Whether rows may have no data: the level of those that have.
    level: i16,
    group: usize,
    values: Option<ColumnReaderImpl<ByteArrayType>>,
    read: std::vec::IntoIter<Option<ByteArray>>,
}

impl Data {
    fn new(reader: SerializedFileReader<File>, column: usize) -> Self {
        let level = reader.metadata().file_metadata().schema_descr().column(column).max_def_level();
        Self { reader, column, level, group: 0, values: None, read: Vec::new().into_iter() }
    }

    /// The next row: none at the end, none of its own where it is null.
    fn next(&mut self) -> Result<Option<Option<Vec<u8>>>, ParquetError> {
        loop {
            if let Some(value) = self.read.next() {
                return Ok(Some(value.map(|bytes| bytes.data().to_vec())));
            }
            let Some(values) = &mut self.values else {
                if self.group == self.reader.num_row_groups() {
                    return Ok(None);
                }
                match self.reader.get_row_group(self.group)?.get_column_reader(self.column)? {
                    ColumnReader::ByteArrayColumnReader(values) => self.values = Some(values),
                    _ => return Err(ParquetError::General("the column has neither text nor bytes".into())),
                }
                self.group += 1;
                continue;
            };
            let (mut levels, mut bytes) = (Vec::new(), Vec::new());
            let (rows, ..) = values.read_records(READ_RECORDS, Some(&mut levels), None, &mut bytes)?;
            if rows == 0 {
                self.values = None;
                continue;
            }
            let mut bytes = bytes.into_iter();
            self.read = match self.level {
                0 => bytes.map(Some).collect::<Vec<_>>().into_iter(),
                there => {
                    let row = |level: &i16| if *level == there { bytes.next() } else { None };
                    levels.iter().map(row).collect::<Vec<_>>().into_iter()
                }
            };
        }
    }
}
