//! CSV as it is read: our own exports as they were written, and tables of others by columns that have names and types.

use super::{
    Column, Described, Source,
    csv::{META, META_OBSERVED, WHOLE, WHOLE_OBSERVED},
    fields, invalid, is_io,
    ndjson::BYTE_ORDER_MARK,
    sniff::{Sample, looks_like_values},
    types::{Guess, Type},
    unreadable,
};
use crate::{args::ReadingArgs, commands::log::append::RECORD_MAX_BYTES, show};
use csv::{ByteRecord, Reader, ReaderBuilder, StringRecord};
use millrace_node::{Code, Error, Result};
use std::{
    cell::Cell,
    io::{self, Chain, Cursor, Read},
    path::{Path, PathBuf},
    rc::Rc,
};

/// Most bytes of a row: a record of quotes is twice as long, and a record in base64 a third longer.
const ROW_MAX_BYTES: u64 = 2 * RECORD_MAX_BYTES as u64 + (64 << 10);

/// The meaning of rows.
enum Shape {
    /// An export with a column per field, from this column on: each cell is JSON, or a text that cannot be mistaken for it.
    Fields(usize),
    /// An export of whole records, as text or base64 in this column and the next.
    Whole(usize),
    /// Somebody else's table: a row is an object.
    Objects,
    /// The cells of one column are records as they are.
    Value(usize),
}

/// The place of a byte of CSV in its cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Start,
    Bare,
    Quoted,
    /// Behind a quote in a quoted cell: the cell ends here, or a second quote continues it.
    Closing,
}

impl Within {
    fn next(self, byte: u8, delimiter: u8) -> Self {
        match (self, byte) {
            (Self::Quoted, b'"') => Self::Closing,
            (Self::Quoted, _) | (Self::Start | Self::Closing, b'"') => Self::Quoted,
            (_, b'\r' | b'\n') => Self::Start,
            (_, byte) if byte == delimiter => Self::Start,
            _ => Self::Bare,
        }
    }
}

/// Passes at most the maximum size of a record, so that an unclosed quote is reported before memory is full.
struct Capped<R> {
    reader: R,
    left: Rc<Cell<u64>>,
    delimiter: u8,
    within: Within,
    /// Whether the file ended within quotes: the parser takes all that follows the quote for one cell, and says nothing.
    is_unclosed: bool,
}

impl<R> Capped<R> {
    fn new(reader: R, left: Rc<Cell<u64>>, delimiter: u8) -> Self {
        Self { reader, left, delimiter, within: Within::Start, is_unclosed: false }
    }
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
        let of_read = buffer[..read].iter();
        self.within = of_read.fold(self.within, |within, byte| within.next(*byte, self.delimiter));
        self.is_unclosed = read == 0 && self.within == Within::Quoted;
        Ok(read)
    }
}

/// Reads rows.
pub struct Table<R: Read> {
    reader: Reader<Capped<Chain<Cursor<Vec<u8>>, R>>>,
    left: Rc<Cell<u64>>,
    path: PathBuf,
    names: Vec<String>,
    types: Vec<Type>,
    nulls: Vec<String>,
    shape: Shape,
    row: StringRecord,
    described: Described,
}

/// Whether the cells of an export's row can be a seqno and a time.
fn is_export_row(row: &StringRecord) -> bool {
    let cell = |at: usize| row.get(at).unwrap_or_default();
    cell(0).parse::<u64>().is_ok() && show::moment(cell(1)).is_some()
}

/// The shape of an export, if the file is one. The names of its columns alone do not tell: another table may have a column `data`.
fn export(sample: &Sample) -> Option<Shape> {
    let rows = sample.rows(b',');
    let (header, rows) = rows.split_first()?;
    if !rows.iter().all(is_export_row) {
        return None;
    }
    if header.iter().eq(WHOLE) {
        return Some(Shape::Whole(WHOLE.len() - 2));
    }
    if header.iter().eq(WHOLE_OBSERVED) {
        return Some(Shape::Whole(WHOLE_OBSERVED.len() - 2));
    }
    // No field has this name in an export.
    let is_observed = header.get(META.len()) == Some(META_OBSERVED);
    header.iter().take(META.len()).eq(META).then_some(Shape::Fields(META.len() + usize::from(is_observed)))
}

impl<R: Read> Table<R> {
    /// Reads the beginning. Types that are to be guessed come from `again`, which reads the whole file, or else from the first rows.
    pub fn new(mut reader: R, again: Option<Box<dyn Read>>, path: PathBuf, reading: &ReadingArgs) -> Result<Self> {
        let sample = Sample::read(&mut reader).map_err(|error| unreadable(&path, error))?;
        let shape = if reading.is_given() { None } else { export(&sample) };
        let plan = match &shape {
            Some(_) => Plan::of_export(&sample),
            None => Plan::of_table(&sample, again, &path, reading)?,
        };
        let left = Rc::new(Cell::new(ROW_MAX_BYTES));
        let begin = sample.bytes.strip_prefix(BYTE_ORDER_MARK).map_or(0, |_| BYTE_ORDER_MARK.len() as u64);
        let mut whole = Cursor::new(sample.bytes);
        whole.set_position(begin);
        let whole = whole.chain(reader);
        let mut reader = ReaderBuilder::new()
            .has_headers(plan.has_header)
            .delimiter(plan.delimiter)
            .from_reader(Capped::new(whole, left.clone(), plan.delimiter));
        if plan.has_header {
            reader.headers().map_err(|error| fault(error, &path, 1))?;
        }
        let mut sorted: Vec<&String> = plan.names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let twice = twice[0].escape_debug();
            return Err(invalid(
                "line",
                1,
                format!("column '{twice}' occurs twice; give other names with --columns NAMES --header"),
            ));
        }
        let shape = match (shape, &reading.value) {
            (Some(shape), _) => shape,
            (None, None) => Shape::Objects,
            (None, Some(value)) => match plan.names.iter().position(|name| name == value) {
                Some(column) => Shape::Value(column),
                None => return Err(no_column("--value", value, &plan.names)),
            },
        };
        let Plan { names, types, described, .. } = plan;
        let nulls = reading.null.clone();
        Ok(Self { reader, left, path, names, types, nulls, shape, row: StringRecord::new(), described })
    }
}

pub fn no_column(option: &str, name: &str, names: &[String]) -> Error {
    let known: Vec<String> = names.iter().take(50).map(|name| format!("'{}'", name.escape_debug())).collect();
    let name = name.escape_debug();
    Code::ImportInvalid.error(format!("{option}: there is no column '{name}'; the columns are {}", known.join(", ")))
}

/// How a file is read.
struct Plan {
    delimiter: u8,
    has_header: bool,
    names: Vec<String>,
    types: Vec<Type>,
    described: Described,
}

impl Plan {
    fn of_export(sample: &Sample) -> Self {
        let names = sample.rows(b',').first().map(|header| header.iter().map(String::from).collect());
        let described = Described { shape: "export", ..Described::default() };
        Self { delimiter: b',', has_header: true, names: names.unwrap_or_default(), types: Vec::new(), described }
    }

    fn of_table(sample: &Sample, again: Option<Box<dyn Read>>, path: &Path, reading: &ReadingArgs) -> Result<Self> {
        let delimiter = reading.delimiter.unwrap_or_else(|| sample.delimiter());
        let rows = sample.rows(delimiter);
        let has_header = match (reading.header, reading.no_header || !reading.columns.is_empty()) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => match looks_like_values(&rows) {
                None => true,
                Some(why) => {
                    let detail = format!(
                        "it looks like values and not like the names of columns: {why}; give --no-header (or --columns NAMES) \
                         if the file has no header, or --header if it has one"
                    );
                    return Err(invalid("line", 1, detail));
                }
            },
        };
        let first: Vec<String> = rows.first().map_or(Vec::new(), |first| first.iter().map(String::from).collect());
        let names = match &reading.columns[..] {
            [] if has_header => first,
            [] => (1..=first.len()).map(|column| format!("c{column}")).collect(),
            given if given.len() == first.len() || first.is_empty() => given.to_vec(),
            given => {
                let detail = format!("it has {} cells, and --columns has {} names", first.len(), given.len());
                return Err(invalid("line", 1, detail));
            }
        };
        for (name, _) in &reading.types() {
            if !names.contains(name) {
                return Err(no_column("--types", name, &names));
            }
        }
        let mut described = Described {
            shape: if reading.value.is_some() { "value" } else { "objects" },
            delimiter: Some((delimiter, reading.delimiter.is_none())),
            header: Some((has_header, !reading.header && !reading.no_header && reading.columns.is_empty())),
            columns: Vec::new(),
        };
        let mut types = vec![Type::Text; names.len()];
        if reading.value.is_none() {
            let given = reading.types();
            let guesses = match (reading.text, again.filter(|_| !sample.is_whole)) {
                (true, _) => None,
                (false, Some(all)) => Some((guesses(all, delimiter, has_header, names.len(), &reading.null), true)),
                (false, None) => {
                    let rows = Cursor::new(whole_rows(sample));
                    let guesses = guesses(rows, delimiter, has_header, names.len(), &reading.null);
                    Some((guesses, sample.is_whole))
                }
            };
            for (column, name) in names.iter().enumerate() {
                let asked = given.iter().rev().find(|(known, _)| known == name).map(|(_, kind)| *kind);
                let guess = guesses.as_ref().map(|(guesses, _)| &guesses[column]);
                let kind = asked.unwrap_or_else(|| guess.map_or(Type::Text, Guess::kind));
                types[column] = kind;
                let guess = guess.filter(|_| asked.is_none());
                let is_whole = guesses.as_ref().is_none_or(|(_, is_whole)| *is_whole);
                let note = guess.and_then(Guess::note).or_else(|| {
                    (guess.is_some() && !is_whole).then(|| "judged by the first rows of the stream".to_string())
                });
                described.columns.push(Column {
                    name: name.clone(),
                    kind: kind.name().into(),
                    guessed: guess.is_some(),
                    note,
                });
            }
        }
        if rows.is_empty() && !sample.is_whole {
            let longest = format!("{}: the first row is longer than any header", path.display());
            return Err(Code::ImportInvalid.error(longest));
        }
        Ok(Self { delimiter, has_header, names, types, described })
    }
}

/// The sample up to the end of its last whole line: what follows may be half a cell.
fn whole_rows(sample: &Sample) -> Vec<u8> {
    let end = sample.bytes.iter().rposition(|byte| *byte == b'\n').map_or(sample.bytes.len(), |at| at + 1);
    sample.bytes[..if sample.is_whole { sample.bytes.len() } else { end }].to_vec()
}

/// What the cells of each column have in common.
fn guesses(reader: impl Read, delimiter: u8, has_header: bool, columns: usize, nulls: &[String]) -> Vec<Guess> {
    let left = Rc::new(Cell::new(ROW_MAX_BYTES));
    let capped = Capped::new(reader, left.clone(), delimiter);
    let mut builder = ReaderBuilder::new();
    let mut reader = builder.has_headers(has_header).flexible(true).delimiter(delimiter).from_reader(capped);
    let mut guesses = vec![Guess::default(); columns];
    let mut row = ByteRecord::new();
    // The import itself reports bad rows.
    while reader.read_byte_record(&mut row).is_ok_and(|more| more) {
        left.set(ROW_MAX_BYTES);
        let line = row.position().map_or(0, csv::Position::line);
        for (guess, cell) in guesses.iter_mut().zip(&row).filter(|(_, cell)| !cell.is_empty()) {
            let cell = String::from_utf8_lossy(cell);
            if !nulls.iter().any(|null| *null == cell) {
                guess.add(line, &cell);
            }
        }
    }
    guesses
}

fn fault(error: csv::Error, path: &Path, line: u64) -> Error {
    let line = error.position().map_or(line, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) if is_io(error.kind()) => unreadable(path, error),
        csv::ErrorKind::Io(error) => invalid("line", line, error),
        csv::ErrorKind::Utf8 { .. } => invalid("line", line, "it is not UTF-8"),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            invalid("line", line, format!("it has {len} cells where the first line has {expected_len}"))
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
        // The parser reads the end of the file only for the last row.
        if self.reader.get_ref().is_unclosed {
            return Err(invalid("line", line, "a quote in this row is not closed"));
        }
        let cell = |column: usize| self.row.get(column).unwrap_or("");
        if matches!(self.shape, Shape::Fields(_) | Shape::Whole(_)) && !is_export_row(&self.row) {
            let detail = "it does not begin with a seqno and a time, as the rows of an export do; with --objects, every row becomes an \
                          object of all its columns";
            return Err(invalid("line", line, detail));
        }
        match self.shape {
            Shape::Fields(first) => {
                Ok(Some(fields::object(self.names.iter().map(String::as_str).zip(&self.row).skip(first))))
            }
            Shape::Whole(data) => match (cell(data), cell(data + 1)) {
                (text, "") => Ok(Some(text.as_bytes().to_vec())),
                ("", base64) => match show::from_base64(base64) {
                    Some(bytes) => Ok(Some(bytes)),
                    None => Err(invalid("line", line, "its \"base64\" is not base64")),
                },
                _ => Err(invalid("line", line, "it has both \"data\" and \"base64\"")),
            },
            Shape::Value(column) => Ok(Some(cell(column).as_bytes().to_vec())),
            Shape::Objects => self.object(line).map(Some),
        }
    }

    fn describe(&self) -> Described {
        self.described.clone()
    }
}

impl<R: Read> Table<R> {
    /// The row as an object. An empty cell is an absent field.
    fn object(&self, line: u64) -> Result<Vec<u8>> {
        let mut values = Vec::with_capacity(self.names.len());
        for ((name, kind), cell) in self.names.iter().zip(&self.types).zip(&self.row) {
            if cell.is_empty() {
                continue;
            }
            let is_null = self.nulls.iter().any(|null| null == cell);
            let value = if is_null { Some("null".to_string()) } else { kind.value(cell) };
            let value = value.ok_or_else(|| {
                let (name, cell) = (name.escape_debug(), fields::quoted(&cell.chars().take(40).collect::<String>()));
                let detail = format!(
                    "column '{name}' has {cell}, which is no {kind}; give --types '{name}=text', or --null with the cell if it \
                     stands for no value"
                );
                invalid("line", line, detail)
            })?;
            values.push((name.as_str(), value));
        }
        Ok(fields::written(values.iter().map(|(name, value)| (*name, value.as_str()))))
    }
}
