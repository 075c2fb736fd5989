//! `millrace init`: a new application that works at once.

use crate::{
    args::{Durability as Level, Global, InitArgs},
    out::Out,
    place,
    report::Outcome,
};
use millrace_node::{
    Code, CreateOptions, Durability, Namespace, Result,
    application::{Application, FILE_NAME, NAMESPACE_DIR, Settings, trust, units},
};
use serde_json::json;
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

const APPLICATION: &str = include_str!("init/millrace.toml");
const MQTT: &str = include_str!("init/mqtt.toml");
const FUNCTION: &str = include_str!("init/hello.py");

pub fn run(args: &InitArgs, global: &Global, out: &mut Out) -> Outcome {
    millrace_node::check_directory(&args.dir)?; // Before anything is made of its name.
    let mut made = Made::default();
    let (dir, created, sizes, written) = make(args, global, &mut made).inspect_err(|_| made.undo())?;
    report(args, (&dir, created, &sizes), &written, out)
}

/// The sizes that a namespace has.
struct Sizes {
    segment: u64,
    retain: u64,
    /// Whether they are smaller than usual because of the disk.
    are_fitted: bool,
}

impl Sizes {
    fn of(dir: &Path, settings: &Settings) -> Result<Self> {
        let made = Namespace::open(dir)?.journal().made_with();
        let usual = CreateOptions::default();
        let are_fitted = settings.segment_bytes.is_none() && made.segment_bytes < usual.segment_bytes
            || settings.retain_bytes.is_none() && made.retain_bytes < usual.retain_bytes;
        Ok(Self { segment: made.segment_bytes, retain: made.retain_bytes, are_fitted })
    }
}

/// The files created so far, the newest last.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Removes the created files, because half an application is useless. Directories with other files stay.
    fn undo(&self) {
        for path in self.0.iter().rev() {
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

/// Makes application and namespace; says where the namespace is, whether it was made, and which files were written.
fn make(args: &InitArgs, global: &Global, made: &mut Made) -> Result<(PathBuf, bool, Sizes, Vec<PathBuf>)> {
    let mut written = Vec::new();
    make_dir(&args.dir, made)?;
    let file = args.dir.join(FILE_NAME);
    for found in [&file, &args.dir.join(NAMESPACE_DIR)] {
        trust::check(found)?;
    }
    let application = if args.mqtt { [APPLICATION, MQTT].concat() } else { APPLICATION.into() };
    if !args.bare && write_new(&file, &application, made)? {
        written.push(file.clone());
        let function = args.dir.join("functions/hello.py");
        make_dir(&args.dir.join("functions"), made)?;
        if write_new(&function, FUNCTION, made)? {
            written.push(function);
        }
    }
    // An existing file determines the place and the settings of the namespace, even if it has other errors.
    let declared = Application::load(&file).ok();
    let mut settings = declared.map(|application| application.settings).unwrap_or_default();
    adjust(&mut settings, args)?;
    let dir = place::chosen(global)
        .or_else(|| Application::namespace_of(&file))
        .unwrap_or_else(|| args.dir.join(NAMESPACE_DIR));
    let dir = place::tidy(dir);
    let created = ensure_namespace(&dir, &settings)?;
    let sizes = Sizes::of(&dir, &settings)?;
    Ok((dir, created, sizes, written))
}

fn adjust(settings: &mut Settings, args: &InitArgs) -> Result<()> {
    if let Some(bytes) = args.segment_size {
        if !bytes.is_power_of_two() || !(1 << 20..=1 << 30).contains(&bytes) {
            let detail = format!("--segment-size is {bytes} bytes, not a power of two from 1 MiB to 1 GiB");
            return Err(Code::ValueInvalid.error(detail));
        }
        settings.segment_bytes = Some(bytes);
    }
    match args.durability {
        Some(Level::Memory) => settings.durability = Some(Durability::Memory),
        Some(Level::Disk) => settings.durability = Some(Durability::Disk),
        None => {}
    }
    Ok(())
}

/// Creates the namespace with the given settings unless it exists; returns whether it did.
pub fn ensure_namespace(dir: &Path, settings: &Settings) -> Result<bool> {
    match Namespace::open(dir) {
        Ok(namespace) => settings.check(&namespace).and_then(|()| settings.apply(&namespace)).map(|()| false),
        // A directory that is not there, or empty, becomes one; `create` refuses any other.
        Err(error) if error.code() == Code::NotANamespace => {
            Namespace::create(dir, &settings.options(dir)).map(|_| true)
        }
        Err(error) => Err(error),
    }
}

fn not_written(path: &Path, error: &std::io::Error) -> millrace_node::Error {
    Code::FileNotWritten.error(format!("cannot write {}: {error}", path.display()))
}

fn make_dir(path: &Path, made: &mut Made) -> Result<()> {
    let is_missing = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let missing: Vec<PathBuf> = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    made.0.extend(missing.iter().rev().cloned());
    fs::create_dir_all(path).map_err(|error| not_written(path, &error))?;
    // Its name is durable, and so are those of the directories above it that had to be made.
    for made in &missing {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(above).and_then(|names| names.sync_all()).map_err(|error| not_written(above, &error))?;
    }
    Ok(())
}

/// Writes a file unless it exists; returns whether it did.
fn write_new(path: &Path, text: &str, made: &mut Made) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(mut file) => {
            made.0.push(path.to_owned());
            file.write_all(text.as_bytes()).map(|()| true).map_err(|error| not_written(path, &error))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(not_written(path, &error)),
    }
}

fn report(
    args: &InitArgs,
    (dir, created, sizes): (&Path, bool, &Sizes),
    written: &[PathBuf],
    out: &mut Out,
) -> Outcome {
    if out.json() {
        let object = json!({ "namespace": dir, "created": created, "written": written,
            "segment_bytes": sizes.segment, "retain_bytes": sizes.retain });
        return Ok(out.object(&object)?);
    }
    for path in written {
        out.line(format!("wrote {}", place::tidy(path.clone()).display()))?;
    }
    let state = if created { "created" } else { "found existing" };
    out.line(format!("{state} namespace {}", dir.display()))?;
    if created && sizes.are_fitted {
        let (segment, retain) = (units::show_size(sizes.segment), units::show_size(sizes.retain));
        out.line(format!(
            "the disk is small, so the journal keeps at least {retain} in segments of {segment}; a record can have {}",
            units::show_size((sizes.segment / 4).min(16 << 20))
        ))?;
        out.line("change it with `millrace namespace set --retain-bytes SIZE`; segments keep their size")?;
    }
    if !args.bare && (created || !written.is_empty()) {
        let here = args.dir == Path::new(".");
        let dev = if here { "millrace dev".into() } else { format!("cd {} && millrace dev", args.dir.display()) };
        let append = "millrace log append inbox world";
        let width = dev.len().max(append.len());
        out.line("\nNext:")?;
        out.line(format!("  {dev:width$}  run it, and apply each change"))?;
        out.line(format!("  {append:width$}  in the same directory, in another terminal: append a record, for which the function runs"))?;
        out.line(format!("  {:width$}  print the record that the function appended", "millrace log get outbox"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_application_is_right() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("functions")).unwrap();
        fs::write(dir.path().join("functions/hello.py"), FUNCTION).unwrap();
        let application = Application::parse(APPLICATION, &dir.path().join(FILE_NAME)).unwrap();
        assert_eq!(application.functions.len(), 1);
        assert_eq!(application.logs.len(), 2);
    }
}
