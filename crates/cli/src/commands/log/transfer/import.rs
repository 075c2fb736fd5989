//! `millrace log import`: a file's records into a log.

use super::{Source, format_of, is_stream, ndjson::Objects, parquet, table::Table, unreadable};
use crate::{
    args::{Format, ImportArgs, ReadingArgs},
    commands::log::append::durability,
    out::Out,
    place::Place,
    progress::{Progress, Unit},
    report::Outcome,
    show,
};
use millrace_documents::observed_us;
use millrace_node::{AppendOptions, Code, NewRecord, Result, TimeField};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::{
    fs::File,
    io::{self, BufReader, IsTerminal, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Records read before they are appended, at most; what is appended together is committed together.
const BATCH_RECORDS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 << 10;

pub fn run(place: &Place, args: &ImportArgs, out: &mut Out) -> Outcome {
    let format = format_of(args.format, &args.file)?;
    // A missing log is reported before any input is read.
    let time = place.log(&args.log)?.time;
    if let Some(option) = args.reading.only_for_csv().filter(|_| format != Format::Csv) {
        let detail = format!("{option} is for CSV, and {} is read as {}", args.file.display(), name(format));
        return Err(Code::UsageInvalid.error(detail).into());
    }
    let Input { mut source, size, read } = Input::open(&args.file, format, &args.reading)?;
    if args.dry_run {
        return dry_run(&mut *source, args, format, Untimed { time, records: 0 }, out);
    }
    let (total, unit) = match size {
        Size::Bytes(bytes) => (Some(bytes), Unit::Bytes),
        Size::Records(records) => (Some(records), Unit::Records),
        Size::Unknown => (None, Unit::Records),
    };
    let untimed = Untimed { time, records: 0 };
    let mut import = Import { place, args, done: 0, last: 0, size, read, untimed, stop: stop_flag()? };
    import.pass_over(&mut *source).map_err(|error| error.within(args.file.display()))?;
    // A progress bar would disturb a user who is typing.
    let wanted = !(is_stream(&args.file) && io::stdin().is_terminal());
    let result = import.copy(&mut *source, &Progress::new("importing", total, unit, wanted));
    result.map_err(|error| error.within(import.resume()))?;
    let (done, last) = (import.done, import.last);
    if out.json() {
        let first = (done > 0).then(|| last + 1 - done);
        let mut object = json!({ "log": args.log, "file": args.file, "records": done, "skipped": args.skip,
            "first": first, "last": first.map(|_| last), "format": name(format), "read": source.describe().to_json() });
        if let Some(untimed) = import.untimed.to_json() {
            object["untimed"] = json!(untimed);
        }
        out.object(&object)?;
    } else {
        out.line(format!("imported {} into log {}", show::count(done, "record"), args.log))?;
        for line in source.describe().lines().into_iter().chain(import.untimed.line()) {
            out.line(line)?;
        }
    }
    Ok(())
}

/// The records that have no time in the field that the log names for the time of the observation.
struct Untimed {
    time: Option<TimeField>,
    records: u64,
}

impl Untimed {
    fn look(&mut self, record: &[u8]) {
        self.records += u64::from(self.time.as_ref().is_some_and(|time| observed_us(record, time).is_none()));
    }

    fn to_json(&self) -> Option<u64> {
        self.time.as_ref().map(|_| self.records)
    }

    fn line(&self) -> Option<String> {
        let time = self.time.as_ref().filter(|_| self.records > 0)?;
        let (records, has) = (show::count(self.records, "record"), if self.records == 1 { "has" } else { "have" });
        Some(format!("{records} {has} no time in {time}: the time of the append takes its place"))
    }
}

/// Reads the file to its end, and shows how; appends nothing.
fn dry_run(source: &mut dyn Source, args: &ImportArgs, format: Format, mut untimed: Untimed, out: &mut Out) -> Outcome {
    let (mut records, mut first) = (0, None);
    while let Some(record) = source.next().map_err(|error| error.within(args.file.display()))? {
        records += 1;
        untimed.look(&record);
        first.get_or_insert(record);
    }
    if out.json() {
        let mut object = json!({ "file": args.file, "records": records, "format": name(format),
            "read": source.describe().to_json() });
        if let Some(untimed) = untimed.to_json() {
            object["untimed"] = json!(untimed);
        }
        show::put_data(&mut object, &first.unwrap_or_default());
        out.object(&object)?;
        return Ok(());
    }
    out.line(format!("{} of {} would be imported", show::count(records, "record"), args.file.display()))?;
    for line in source.describe().lines().into_iter().chain(untimed.line()) {
        out.line(line)?;
    }
    if let Some(first) = first {
        out.line(format!("the first record: {}", show::one_line(&first)))?;
    }
    Ok(())
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Ndjson => "ndjson",
        Format::Csv => "csv",
        Format::Parquet => "parquet",
    }
}

/// How much there is to import.
enum Size {
    Bytes(u64),
    Records(u64),
    Unknown,
}

/// A file that is being read.
struct Input {
    source: Box<dyn Source>,
    size: Size,
    /// How many of its bytes were read.
    read: Arc<AtomicU64>,
}

/// Counts what is read.
struct Counted<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Input {
    fn open(path: &Path, format: Format, reading: &ReadingArgs) -> Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        if format == Format::Parquet {
            if is_stream(path) {
                return Err(Code::FormatUnfit.error("Parquet cannot be read from standard input"));
            }
            let table = parquet::Table::open(path.into(), reading)?;
            return Ok(Self { size: Size::Records(table.rows()), source: Box::new(table), read });
        }
        let (file, size): (Box<dyn Read>, Size) = if is_stream(path) {
            (Box::new(io::stdin()), Size::Unknown)
        } else {
            let file = File::open(path).map_err(|error| unreadable(path, error))?;
            // Of a pipe or a device the length says nothing.
            let known = file.metadata().ok().filter(|file| file.is_file());
            (Box::new(file), known.map_or(Size::Unknown, |file| Size::Bytes(file.len())))
        };
        let reader = BufReader::with_capacity(BUFFER_BYTES, Counted { reader: file, read: read.clone() });
        let source: Box<dyn Source> = match format {
            Format::Csv => {
                // A regular file is read twice: the types of its columns come from all rows.
                let again = match size {
                    Size::Bytes(_) => Some(File::open(path).map_err(|error| unreadable(path, error))?),
                    Size::Records(_) | Size::Unknown => None,
                };
                let again = again.map(|file| Box::new(BufReader::with_capacity(BUFFER_BYTES, file)) as Box<dyn Read>);
                Box::new(Table::new(reader, again, path.into(), reading)?)
            }
            _ => Box::new(Objects::new(reader, path.into(), reading)),
        };
        Ok(Self { source, size, read })
    }
}

/// Set by a signal to stop.
fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the process at once, for input that never comes.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .map_err(|error| Code::ImportStopped.error(format!("signals cannot be received: {error}")))?;
    }
    Ok(flag)
}

/// An import under way.
struct Import<'a> {
    place: &'a Place,
    args: &'a ImportArgs,
    /// Records appended so far, and the seqno of the newest.
    done: u64,
    last: u64,
    /// How much the file has, and how many of its bytes were read so far.
    size: Size,
    read: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    untimed: Untimed,
}

impl Import<'_> {
    fn pass_over(&self, source: &mut dyn Source) -> Result<()> {
        for passed in 0..self.args.skip {
            if source.next()?.is_none() {
                let detail = format!("--skip is {}, but the file has only {passed} records", self.args.skip);
                return Err(Code::ImportInvalid.error(detail));
            }
        }
        Ok(())
    }

    fn copy(&mut self, source: &mut dyn Source, progress: &Progress) -> Result<()> {
        let options = AppendOptions {
            durability: self.args.durability.map(durability),
            patience: self.args.busy_timeout,
            ..AppendOptions::default()
        };
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Code::ImportStopped.error("interrupted"));
            }
            let mut records = Vec::new();
            let mut bytes = 0;
            let mut end = Ok(false);
            while records.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
                match source.next() {
                    Ok(Some(payload)) => {
                        bytes += payload.len();
                        self.untimed.look(&payload);
                        records.push(Ok(NewRecord { log: self.args.log.clone(), payload }));
                    }
                    // Records that were read before are imported first.
                    other => {
                        end = other.map(|_| true);
                        break;
                    }
                }
            }
            let (done, last) = (&mut self.done, &mut self.last);
            self.place.append_many(records, options, &mut |batch| {
                *done += batch.len() as u64;
                *last = batch.last().map_or(*last, |receipt| receipt.seqno);
            })?;
            progress.set(match self.size {
                Size::Bytes(_) => self.read.load(Ordering::Relaxed),
                Size::Records(_) | Size::Unknown => self.args.skip + self.done,
            });
            if end? {
                return Ok(());
            }
        }
    }

    /// The progress, and how to continue.
    fn resume(&self) -> String {
        let (done, file) = (show::count(self.done, "record"), self.args.file.display());
        format!("{file}: after {done} were imported (continue with --skip {})", self.args.skip + self.done)
    }
}
