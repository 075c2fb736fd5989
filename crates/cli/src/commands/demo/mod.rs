//! `millrace demo`: an application with a year of real readings, on a host with a dashboard. It goes on with an hour each second.

mod readings;

use super::{
    host_problem::observe,
    serve::on_signals,
    serving::{self, Serving},
};
use crate::{
    args::{ClusterArgs, DemoArgs, Global},
    logging,
    out::{Out, Style},
    report::Outcome,
    show,
};
use millrace_gateway::{Listen, Listener};
use millrace_node::{
    AppendOptions, Code, Namespace, Result,
    application::{Application, FILE_NAME, NAMESPACE_DIR},
    changes::Changes,
    repairs,
};
use readings::{HOURS, Readings, STATIONS};
use serde_json::{Value, json};
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Where the corrected readings are, beside the application.
const CORRECTION: &str = "right.jsonl";
/// Hours that are appended at once while the year is replayed.
const HOURS_AT_ONCE: u64 = 24;
/// How long an append waits while too many runs are pending.
const PATIENCE: Duration = Duration::from_secs(60);
/// After the replay, an hour passes in this time.
const HOUR: Duration = Duration::from_secs(1);
/// How often the estimates are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long runs in progress may take to end.
const DRAIN: Duration = Duration::from_secs(5);
/// Without Python, a process is started for each run: fewer hours are replayed.
const SHELL_HOURS: u64 = 7 * 24;

const PYTHON: [(&str, &str); 2] =
    [(FILE_NAME, include_str!("python.toml")), ("functions/thermometer.py", include_str!("thermometer.py"))];
const SHELL: [(&str, &str); 3] = [
    (FILE_NAME, include_str!("shell.toml")),
    ("functions/estimate.sh", include_str!("estimate.sh")),
    ("functions/at.sh", include_str!("at.sh")),
];

pub fn run(args: &DemoArgs, _: &Global, out: &mut Out) -> Outcome {
    out.become_host()?;
    logging::start(&args.listen.levels(), out.json());
    let stop = on_signals(Some(DRAIN))?;
    let python = has_python() && !args.shell;
    let dir = std::path::absolute(&args.dir).map_err(|error| not_written(&args.dir, &error))?;
    millrace_node::check_directory(&dir)?;
    write_files(&dir, if python { &PYTHON } else { &SHELL })?;
    // The functions that are there count: the demo may have been started before Python was installed, or they were edited.
    let application = Application::load(&dir.join(FILE_NAME))?;
    let python = application.functions.iter().any(|declared| &*declared.spec.name == "learn");
    let apart = || serving::isolation(&args.listen);
    let changes = Changes::of(&application).taking_over(true).kept_apart(&apart);
    let opened = changes.open(&dir.join(NAMESPACE_DIR), &mut |_| {})?;
    let namespace = opened.namespace.clone();
    let (observers, host_problems) = observe(false);
    let listen = args.listen.at(free(&args.listen.listen()));
    let cluster = ClusterArgs::default();
    let serving = Serving::start(vec![(None, namespace.clone())], &listen, &cluster, None, &observers)?;
    changes.apply(&opened, false, &mut |_| {})?;
    let readings = Readings::unpack();
    let replayed = args.hours.unwrap_or(if python { HOURS } else { SHELL_HOURS });
    write_correction(&dir, &readings, replayed)?;
    let feeder = Feeder::start(namespace.clone(), readings, replayed)?;
    let demo = Demo { dir, namespace, replayed, python };
    demo.announce(&serving, out)?;
    demo.follow(&serving, &feeder, &stop, out)?;
    feeder.stop()?;
    host_problems.tell(out)?;
    serving.finish(DRAIN, out)
}

/// Whether there is a Python that functions can run in.
fn has_python() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]);
    python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

fn not_written(path: &Path, error: &std::io::Error) -> millrace_node::Error {
    Code::FileNotWritten.error(format!("cannot write {}: {error}", path.display()))
}

/// Writes the files that are not there yet.
fn write_files(dir: &Path, files: &[(&str, &str)]) -> Result<()> {
    let functions = dir.join("functions");
    fs::create_dir_all(&functions).map_err(|error| not_written(&functions, &error))?;
    for (name, text) in files {
        let path = dir.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, if name.ends_with(".sh") { 0o755 } else { 0o644 });
        match options.open(&path).and_then(|mut file| file.write_all(text.as_bytes())) {
            // A millrace.toml that was there is the user's, or that of an earlier demo.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if *name == FILE_NAME && !dir.join(CORRECTION).exists() {
                    let detail = format!("{} has a {FILE_NAME} of another application", dir.display());
                    return Err(Code::FileNotWritten.error(detail));
                }
            }
            Err(error) => return Err(not_written(&path, &error)),
            Ok(()) => {}
        }
    }
    // It marks the directory as one of the demo.
    let mark = dir.join(CORRECTION);
    match OpenOptions::new().write(true).create_new(true).open(&mark) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(not_written(&mark, &error)),
        _ => Ok(()),
    }
}

/// Writes what Kennedy really measured on the day on which its thermometer was stuck.
fn write_correction(dir: &Path, readings: &Readings, replayed: u64) -> Result<()> {
    let path = dir.join(CORRECTION);
    let mut text = String::new();
    for hour in readings::stuck(replayed) {
        let value = readings.record(0, hour, 0);
        text += &format!("{}\n", json!({ "seqno": hour, "value": value }));
    }
    fs::write(&path, text).map_err(|error| not_written(&path, &error))
}

/// The address to listen on: another port, if the default one is in use.
fn free(listen: &Listen) -> Listen {
    match listen {
        Listen::On(listeners) => {
            let is_free = |address: &SocketAddr| address.port() != 7070 || TcpListener::bind(address).is_ok();
            let other = |listener: &Listener| match is_free(&listener.at) {
                true => listener.clone(),
                false => Listener { at: SocketAddr::new(listener.at.ip(), 0), ..listener.clone() },
            };
            Listen::On(listeners.iter().map(other).collect())
        }
        Listen::None => Listen::None,
    }
}

/// The thread that appends the readings.
struct Feeder {
    thread: JoinHandle<()>,
    stops: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<millrace_node::Error>>>,
}

impl Feeder {
    fn start(namespace: Namespace, readings: Readings, replayed: u64) -> Result<Self> {
        let (stops, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (of_thread, told) = (stops.clone(), failed.clone());
        let feed = move || {
            if let Err(error) = feed(&namespace, &readings, replayed, &of_thread) {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        let thread = millrace_threads::spawn(thread::Builder::new().name("demo".into()), feed)
            .map_err(|error| Code::HostStart.error(format!("cannot start a thread: {error}")))?;
        Ok(Self { thread, stops, failed })
    }

    fn failure(&self) -> Option<millrace_node::Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn stop(self) -> Result<()> {
        self.stops.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let failure = self.failure();
        millrace_threads::join(self.thread);
        failure.map_or(Ok(()), Err)
    }
}

/// Appends the hours that are not in the logs yet: those of the year at once, and then one each second. The readings of an hour are appended
/// together or not at all, so after a crash the next one is known.
fn feed(namespace: &Namespace, readings: &Readings, replayed: u64, stops: &AtomicBool) -> Result<()> {
    let log = namespace.log(&format!("raw/{}", STATIONS[0]))?;
    while !stops.load(Ordering::Acquire) {
        let next = log.latest() + 1;
        let last = if next <= replayed { replayed.min(next + HOURS_AT_ONCE - 1) } else { next };
        if next > replayed {
            thread::park_timeout(HOUR);
        }
        if stops.load(Ordering::Acquire) {
            break;
        }
        let records: Vec<(String, String)> = (next..=last)
            .flat_map(|hour| {
                let record = move |(station, name): (usize, &&str)| {
                    (format!("raw/{name}"), readings.record(station, hour, replayed))
                };
                STATIONS.iter().enumerate().map(record)
            })
            .collect();
        let records: Vec<(&str, &[u8])> = records.iter().map(|(log, record)| (&**log, record.as_bytes())).collect();
        let options = AppendOptions { patience: PATIENCE, ..AppendOptions::default() };
        match namespace.append_many_gated(&records, options).and_then(|held| held.wait()) {
            Err(error) if error.code() == Code::Busy => {}
            appended => drop(appended?),
        }
    }
    Ok(())
}

struct Demo {
    dir: PathBuf,
    namespace: Namespace,
    replayed: u64,
    python: bool,
}

impl Demo {
    fn announce(&self, serving: &Serving, out: &mut Out) -> Outcome {
        let http = serving.bound().addresses.first().map(|address| format!("http://{address}"));
        let ui = http.as_ref().map(|http| format!("{http}/ui"));
        let name = serving.name();
        if out.json() {
            let object = json!({
                "event": "serving", "directory": self.dir, "dashboard": ui, "namespace": name, "pid": process::id(),
                "hours": self.replayed, "python": self.python,
            });
            out.object(&object)?;
            return Ok(out.flush()?);
        }
        let what = "the temperature at Newark, estimated from those at Kennedy and LaGuardia";
        out.line(format!("running the demo: {what}, from real readings of 2013; Ctrl-C stops"))?;
        if !self.python {
            let note = "There is no python3 (3.9 or later) on this machine, so the function is a shell script.";
            let note = out.styled(Style::Dim, note);
            out.line(note)?;
        }
        if let Some(ui) = &ui {
            out.line(format!("\n  dashboard  {ui}"))?;
        }
        out.line(format!("  directory  {}\n", self.dir.display()))?;
        let (dir, pid) = (quoted(&self.dir), process::id());
        out.line("Three things to try in another terminal:\n")?;
        out.line("  kill this process, and start it again: no reading is lost, none is counted twice")?;
        out.line(format!("    kill -9 {pid}; millrace demo {dir}\n"))?;
        out.line("  repair a day on which the thermometer at Kennedy was stuck, and all that was computed from it")?;
        out.line(format!(
            "    cd {dir} && millrace repair run raw/jfk --values {CORRECTION} --reason 'stuck thermometer'"
        ))?;
        let repair = repairs::repairs(&self.namespace)?.iter().map(|repair| repair.repair).max().unwrap_or(0) + 1;
        out.line(format!("    millrace repair diff {repair} estimate; millrace repair apply {repair}\n"))?;
        out.line("  ask why an estimate is what it is: the records and runs that led to it")?;
        out.line(format!("    cd {dir} && millrace trace --up estimate"))?;
        if let Some(http) = &http {
            out.line(format!("    curl -d '' {http}/v1/namespaces/{name}/functions/at\n"))?;
        }
        Ok(out.flush()?)
    }

    /// Until a signal: prints the estimates as they come.
    fn follow(&self, serving: &Serving, feeder: &Feeder, stop: &Receiver<()>, out: &mut Out) -> Outcome {
        let journal = self.namespace.journal();
        let (estimates, mut seen) = (self.namespace.log("estimate")?, self.namespace.latest("estimate")?);
        let (mut is_first, mut quarter) = (true, 0);
        loop {
            match stop.try_recv() {
                Err(TryRecvError::Empty) => {}
                Ok(()) | Err(TryRecvError::Disconnected) => return Ok(()),
            }
            if let Some(error) = serving.failure().or_else(|| feeder.failure()) {
                return Err(error.into());
            }
            let tail = journal.tail();
            let latest = estimates.latest();
            if latest > seen {
                let record = self.namespace.get("estimate", latest)?;
                let estimate: Value = serde_json::from_slice(&record.payload).unwrap_or_default();
                let hour = estimate["hour"].as_u64().unwrap_or(0);
                let share = 4 * hour.min(self.replayed) / self.replayed;
                if is_first || hour > self.replayed || share > quarter {
                    self.tell(hour, &estimate, out)?;
                    (is_first, quarter) = (false, share);
                }
                seen = latest;
            }
            journal.wait(tail, LOOK_EVERY);
        }
    }

    fn tell(&self, hour: u64, estimate: &Value, out: &mut Out) -> Outcome {
        let measured = self.namespace.get("raw/ewr", hour).ok();
        let measured: Value =
            measured.and_then(|record| serde_json::from_slice(&record.payload).ok()).unwrap_or_default();
        if out.json() {
            let (celsius, measured) = (&estimate["celsius"], &measured["celsius"]);
            out.object(&json!({ "event": "estimate", "hour": hour, "celsius": celsius, "measured": measured }))?;
        } else {
            let (celsius, was) = (number(&estimate["celsius"]), number(&measured["celsius"]));
            let time = measured["time"].as_str().unwrap_or("").to_owned();
            let of = match hour.cmp(&self.replayed) {
                std::cmp::Ordering::Greater => String::new(),
                _ => format!("  ({} of {} replayed)", hour, show::count(self.replayed, "hour")),
            };
            out.line(format!("{time}  Newark {celsius} °C estimated, {was} °C measured{of}"))?;
        }
        Ok(out.flush()?)
    }
}

fn number(value: &Value) -> String {
    value.as_f64().map_or("?".into(), |number| format!("{number:.1}"))
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
