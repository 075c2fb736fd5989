//! Parquet: the columns seqno, time, id, cause and data, in row groups that fit in memory.

use super::{Column, Described, Sink, Source, invalid, table::no_column, unreadable};
use crate::{args::ReadingArgs, report::Outcome, show};
use millrace_node::{Code, Error, Record, Result};
use parquet::{
    basic::{Compression, ConvertedType, Type as Physical},
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        reader::{FileReader, SerializedFileReader},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    record::{Field, Row, reader::RowIter},
    schema::{parser::parse_message_type, types::Type},
};
use std::{
    cell::Cell,
    fs::File,
    io::Write,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{Arc, Once},
};

const SCHEMA: &str = "message log {
  required int64 seqno (integer(64, false));
  required int64 time (timestamp(micros, true));
  required binary id (string);
  optional binary cause (string);
  required binary data;
}";
/// The columns of an export, and the one of them that import reads.
const EXPORTED: [&str; 5] = ["seqno", "time", "id", "cause", DATA];
const DATA: &str = "data";
/// A row group is written when it has this number of bytes or of records.
const GROUP_BYTES_MAX: usize = 8 << 20;
const GROUP_RECORDS_MAX: usize = 64 << 10;
/// Records read at once.
const READ_RECORDS: usize = 64;

/// Writes row groups.
pub struct Groups<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    group: Group,
}

/// Records that are not written yet, by column.
#[derive(Default)]
struct Group {
    seqnos: Vec<i64>,
    times: Vec<i64>,
    ids: Vec<ByteArray>,
    causes: Vec<ByteArray>,
    caused: Vec<i16>,
    data: Vec<ByteArray>,
    bytes: usize,
}

fn failed(error: ParquetError) -> std::io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => *error,
            Err(error) => std::io::Error::other(error),
        },
        error => std::io::Error::other(error),
    }
}

impl<W: Write + Send> Groups<W> {
    pub fn new(writer: W) -> Outcome<Self> {
        let schema = parse_message_type(SCHEMA).map_err(failed)?;
        // Each record is its own value: a dictionary or bounds of whole records would only repeat them.
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_created_by(concat!("millrace ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let writer = SerializedFileWriter::new(writer, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        Ok(Self { writer, group: Group::default() })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let group = std::mem::take(&mut self.group);
        let mut rows = self.writer.next_row_group()?;
        write_numbers(&mut rows, &group.seqnos)?;
        write_numbers(&mut rows, &group.times)?;
        write_bytes(&mut rows, &group.ids, None)?;
        write_bytes(&mut rows, &group.causes, Some(&group.caused))?;
        write_bytes(&mut rows, &group.data, None)?;
        rows.close().map(drop)
    }
}

fn no_more_columns() -> ParquetError {
    ParquetError::General("the schema has fewer columns than the export writes".into())
}

fn write_numbers<W: Write + Send>(
    rows: &mut SerializedRowGroupWriter<'_, W>,
    values: &[i64],
) -> Result<(), ParquetError> {
    let mut column = rows.next_column()?.ok_or_else(no_more_columns)?;
    column.typed::<Int64Type>().write_batch(values, None, None)?;
    column.close()
}

fn write_bytes<W: Write + Send>(
    rows: &mut SerializedRowGroupWriter<'_, W>,
    values: &[ByteArray],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = rows.next_column()?.ok_or_else(no_more_columns)?;
    column.typed::<ByteArrayType>().write_batch(values, there, None)?;
    column.close()
}

impl<W: Write + Send> Sink for Groups<W> {
    fn put(&mut self, record: &Record) -> Outcome {
        let group = &mut self.group;
        // Read back as unsigned, as the schema says.
        group.seqnos.push(record.seqno.cast_signed());
        group.times.push(i64::try_from(record.hlc.wall_us()).unwrap_or(i64::MAX));
        group.ids.push(record.id.to_string().into_bytes().into());
        group.caused.push(i16::from(!record.cause.is_none()));
        if !record.cause.is_none() {
            group.causes.push(record.cause.to_string().into_bytes().into());
        }
        group.data.push(record.payload.clone().into());
        group.bytes += record.payload.len();
        if group.bytes >= GROUP_BYTES_MAX || group.data.len() >= GROUP_RECORDS_MAX {
            self.write_group().map_err(failed)?;
        }
        Ok(())
    }

    fn end(mut self: Box<Self>) -> Outcome {
        if !self.group.data.is_empty() {
            self.write_group().map_err(failed)?;
        }
        self.writer.close().map_err(failed)?;
        Ok(())
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
            None => (!reading.objects && names == EXPORTED).then_some(DATA),
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
