//! `millrace log export`: a log's records as a file.

use super::{Sink, csv, format_of, is_stream, ndjson::Lines, parquet::Groups};
use crate::{
    args::{ExportArgs, Format},
    commands::log::get::{below_history, span},
    out::Out,
    place::{Found, Place},
    progress::{Progress, Unit},
    report::{self, Failure, Outcome},
    show,
};
use millrace_documents::observed_us;
use millrace_node::{Code, TimeField};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

/// Bytes written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Records looked at before it is asked whether looking at more can change anything.
const SURVEY_RECORDS: u64 = 1024;

pub fn run(place: &Place, args: &ExportArgs, out: &mut Out) -> Outcome {
    let format = format_of(args.format, &args.output)?;
    let (from, to) = span(place, &args.log, args.from.as_deref(), args.to.as_deref())?;
    let time = place.log(&args.log)?.time;
    let mut export = Export { place, args, format, from, to, time, records: 0, missing: 0, untimed: 0 };
    if is_stream(&args.output) {
        if format == Format::Parquet && io::stdout().is_terminal() {
            return Err(Code::FormatUnfit.error("Parquet is binary and cannot be written to a terminal").into());
        }
        // The export itself is all that is printed.
        export.write(File::from(io::stdout().as_fd().try_clone_to_owned()?))?;
        if let Some(untimed) = export.untimed() {
            crate::feed::stderr(&format!("{untimed}\n"));
        }
        return export.complete();
    }
    let partial = Partial::create(&args.output)?;
    partial.finish(|file| export.write(file))?;
    let records = export.records;
    if out.json() {
        let mut object = json!({ "log": args.log, "file": args.output, "records": records, "from": from, "to": to });
        if export.time.is_some() {
            object["untimed"] = json!(export.untimed);
        }
        out.object(&object)?;
    } else {
        let file = args.output.display();
        out.line(format!("exported {} of log {} to {file}", show::count(records, "record"), args.log))?;
        if let Some(untimed) = export.untimed() {
            out.line(untimed)?;
        }
    }
    export.complete()
}

/// An export under way.
struct Export<'a> {
    place: &'a Place,
    args: &'a ExportArgs,
    format: Format,
    from: u64,
    to: u64,
    /// Records written so far.
    records: u64,
    /// Records that should have been written, and could not be read.
    missing: u64,
    /// The field that has the time of the observation, and how many records have no time there.
    time: Option<TimeField>,
    untimed: u64,
}

impl Export<'_> {
    fn write(&mut self, file: File) -> Outcome {
        let writer = BufWriter::with_capacity(BUFFER_BYTES, file);
        let mut sink: Box<dyn Sink> = match self.format {
            Format::Ndjson => Box::new(Lines { log: self.args.log.clone(), writer, is_observed: self.time.is_some() }),
            Format::Csv => Box::new(csv::Rows::new(writer, self.columns()?, self.time.is_some())?),
            Format::Parquet => Box::new(Groups::new(writer, self.time.is_some())?),
        };
        let progress = self.progress("exporting");
        let (mut records, mut missing, mut untimed) = (0, 0, 0);
        self.place.read(&self.args.log, self.from, self.to, &mut |seqno, found| {
            match found {
                Found::Record(record) => {
                    let observed = self.time.as_ref().and_then(|time| observed_us(&record.payload, time));
                    sink.put(&record, observed)?;
                    records += 1;
                    untimed += u64::from(self.time.is_some() && observed.is_none());
                }
                Found::Missed(_) if self.args.from.is_some() && records == 0 => {
                    return Err(below_history(&self.args.log, seqno).into());
                }
                // Without --from the export begins with what is there.
                Found::Missed(_) if records == 0 => {}
                Found::Missed(missed) => missing += missed,
                Found::Damaged(error) => {
                    missing += 1;
                    report::say(&error, false);
                }
            }
            progress.set(seqno - self.from + 1);
            Ok(())
        })?;
        sink.end()?;
        (self.records, self.missing, self.untimed) = (records, missing, untimed);
        Ok(())
    }

    fn progress(&self, verb: &str) -> Progress {
        // On a terminal the records themselves show how it goes.
        let wanted = !(is_stream(&self.args.output) && io::stdout().is_terminal());
        Progress::new(verb, Some((self.to + 1).saturating_sub(self.from)), Unit::Records, wanted)
    }

    /// The columns, if every record is an object whose fields can be columns. This reads everything once more.
    fn columns(&self) -> Outcome<Option<super::fields::Columns>> {
        let mut survey = csv::Survey::default();
        if self.args.whole {
            return Ok(None);
        }
        let progress = self.progress("looking for columns");
        let (mut next, mut more) = (self.from, true);
        while more && next <= self.to {
            let last = self.to.min(next.saturating_add(SURVEY_RECORDS - 1));
            self.place.read(&self.args.log, next, last, &mut |_, found| {
                if let Found::Record(record) = found {
                    more = more && survey.add(&record.payload);
                }
                Ok(())
            })?;
            progress.set(last - self.from + 1);
            next = last + 1;
        }
        Ok(survey.columns())
    }

    /// Says how many records have no time of the observation.
    fn untimed(&self) -> Option<String> {
        let time = self.time.as_ref().filter(|_| self.untimed > 0)?;
        let (records, has) = (show::count(self.untimed, "record"), if self.untimed == 1 { "has" } else { "have" });
        Some(format!("{records} {has} no time in {time}: `observed` is empty there"))
    }

    /// Says what is missing, once everything else is in place.
    fn complete(&self) -> Outcome {
        if self.missing == 0 {
            return Ok(());
        }
        let missing = show::count(self.missing, "record");
        let detail =
            format!("{missing} of log '{}' from {} to {} could not be read", self.args.log, self.from, self.to);
        Err(Code::ExportIncomplete.error(detail).into())
    }
}

/// The file that is being written; it takes the place of the one that was asked for when it is whole.
struct Partial<'a> {
    target: &'a Path,
    path: PathBuf,
    file: File,
}

impl<'a> Partial<'a> {
    fn create(target: &'a Path) -> Outcome<Self> {
        if !target.exists() || target.is_file() {
            let mut name = target.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".{}.partial", std::process::id()));
            let path = target.with_file_name(name);
            let file = File::create_new(&path).map_err(|error| not_written(target, &error))?;
            return Ok(Self { target, path, file });
        }
        // A device or a pipe cannot be replaced; it is written as it is.
        let file = File::options().write(true).open(target).map_err(|error| not_written(target, &error))?;
        Ok(Self { target, path: target.into(), file })
    }

    fn finish(self, write: impl FnOnce(File) -> Outcome) -> Outcome {
        let Self { target, path, file } = self;
        let replaces = path != target;
        let written = file.try_clone().map_err(Failure::from).and_then(write).and_then(|()| {
            if !replaces {
                return Ok(());
            }
            file.sync_all()?;
            Ok(fs::rename(&path, target)?)
        });
        written.map_err(|failure| {
            if replaces {
                // An incomplete file is useless, and the first error is the one to report.
                let _ = fs::remove_file(&path);
            }
            match failure {
                Failure::Coded(error) if error.code() == Code::OutputFailed => {
                    let why = error.detail().trim_start_matches("cannot write to standard output: ");
                    not_written(target, &why).into()
                }
                failure => failure,
            }
        })
    }
}

fn not_written(path: &Path, why: &dyn std::fmt::Display) -> millrace_node::Error {
    Code::ExportNotWritten.error(format!("cannot write {}: {why}", path.display()))
}
