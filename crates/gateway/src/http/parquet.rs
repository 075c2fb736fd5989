//! Records as Parquet: the columns seqno, time, id, cause and data, in row groups that fit in memory. For exports, and over HTTP.

use millrace_node::Record;
use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, Int64Type},
    errors::ParquetError,
    file::{
        properties::{EnabledStatistics, WriterProperties},
        writer::{SerializedFileWriter, SerializedRowGroupWriter},
    },
    schema::parser::parse_message_type,
};
use std::{io::Write, sync::Arc};

const SCHEMA: &str = "message log {
  required int64 seqno (integer(64, false));
  required int64 time (timestamp(micros, true));
  optional int64 observed (timestamp(micros, true));
  required binary id (string);
  optional binary cause (string);
  required binary data;
}";
/// The column that an export has if its log says which field has the time of the observation.
const OBSERVED: &str = "observed";
/// A row group is written when it has this number of records.
const GROUP_RECORDS_MAX: usize = 64 << 10;
/// Writes row groups.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    group: Group,
    group_bytes_max: usize,
    is_observed: bool,
}

/// Records that are not written yet, by column.
#[derive(Default)]
struct Group {
    seqnos: Vec<i64>,
    times: Vec<i64>,
    observed: Vec<i64>,
    is_observed: Vec<i16>,
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

impl<W: Write + Send> ParquetWriter<W> {
    /// `is_observed`: rows have the time of the observation. A row group is written when it has `group_bytes_max`.
    pub fn new(writer: W, is_observed: bool, group_bytes_max: usize) -> std::io::Result<Self> {
        let lines = SCHEMA.lines().filter(|line| is_observed || !line.contains(OBSERVED));
        let schema = parse_message_type(&lines.collect::<Vec<_>>().join("\n")).map_err(failed)?;
        // Each record is its own value: a dictionary or bounds of whole records would only repeat them.
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_created_by(concat!("millrace ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let writer = SerializedFileWriter::new(writer, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        Ok(Self { writer, group: Group::default(), group_bytes_max, is_observed })
    }

    /// Where the rows go.
    pub fn inner(&mut self) -> &mut W {
        self.writer.inner_mut()
    }

    /// Adds a row.
    pub fn put(&mut self, record: &Record, observed: Option<i64>) -> std::io::Result<()> {
        let group = &mut self.group;
        // Read back as unsigned, as the schema says.
        group.seqnos.push(record.seqno.cast_signed());
        group.times.push(i64::try_from(record.hlc.wall_us()).unwrap_or(i64::MAX));
        group.is_observed.push(i16::from(observed.is_some()));
        group.observed.extend(observed);
        group.ids.push(record.id.to_string().into_bytes().into());
        group.caused.push(i16::from(!record.cause.is_none()));
        if !record.cause.is_none() {
            group.causes.push(record.cause.to_string().into_bytes().into());
        }
        group.data.push(record.payload.clone().into());
        group.bytes += record.payload.len();
        if group.bytes >= self.group_bytes_max || group.data.len() >= GROUP_RECORDS_MAX {
            self.write_group().map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what is left, and the end of the file.
    pub fn end(mut self) -> std::io::Result<W> {
        if !self.group.data.is_empty() {
            self.write_group().map_err(failed)?;
        }
        self.writer.into_inner().map_err(failed)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let group = std::mem::take(&mut self.group);
        let mut rows = self.writer.next_row_group()?;
        write_numbers(&mut rows, &group.seqnos, None)?;
        write_numbers(&mut rows, &group.times, None)?;
        if self.is_observed {
            write_numbers(&mut rows, &group.observed, Some(&group.is_observed))?;
        }
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
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = rows.next_column()?.ok_or_else(no_more_columns)?;
    column.typed::<Int64Type>().write_batch(values, there, None)?;
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
