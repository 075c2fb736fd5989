//! Reports of a host about problems: failed attempts, functions that cannot be started, and links.

use super::serving::{Named, Observers};
use crate::{
    out::{Out, Style},
    report::{self, Outcome},
    show,
};
use millrace_node::{
    Code, Error, HostEvent,
    application::units,
    links::{LinkChange, LinkNews, OUTBOX_DEAD_LETTERS},
    low_space,
};
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, Thread},
    time::Duration,
};

/// The maximum number of problems kept until they are reported; more are only counted.
const KEPT_MAX: usize = 200;
/// Lines of output reported with a failed attempt.
const OUTPUT_LINES_MAX: usize = 20;

/// One thing that went wrong.
struct HostProblem {
    function: String,
    /// The run and the attempt; of a function that cannot be started, none.
    attempt: Option<(String, u32)>,
    error: Error,
    retry_in: Option<Duration>,
    output: String,
}

/// A problem of a host.
enum Heard {
    HostProblem(HostProblem),
    Link(LinkNews),
}

/// Problems of a host that have not been reported yet.
pub struct HostProblems {
    receiver: Receiver<Heard>,
    lost: Arc<AtomicU64>,
    /// Whether a run that is given up is reported as well; the journal has it too.
    with_dead: bool,
}

/// The queue that observers fill.
#[derive(Clone)]
struct EventSender {
    sender: SyncSender<Heard>,
    lost: Arc<AtomicU64>,
    /// The reporting thread, which sleeps until there is a problem.
    reader: Thread,
}

impl EventSender {
    /// Keeps what was heard; what there is no room for is counted.
    fn keep(&self, heard: Heard) {
        if self.sender.try_send(heard).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.reader.unpark();
    }
}

/// Observers for a host, and where to read what they heard. They unpark the calling thread when there is something to read.
pub fn observe(with_dead: bool) -> (Observers, HostProblems) {
    let (sender, receiver) = mpsc::sync_channel(KEPT_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let host_problems = HostProblems { receiver, lost: lost.clone(), with_dead };
    let event_sender = EventSender { sender, lost, reader: thread::current() };
    let of_links = event_sender.clone();
    let runs = Arc::new(move |event: &HostEvent<'_>| hear(event, &event_sender));
    let links = Arc::new(move |news: &LinkNews| of_links.keep(Heard::Link(news.clone())));
    (Observers { runs, links }, host_problems)
}

/// Runs on the thread that ran the function, so it never waits.
fn hear(event: &HostEvent<'_>, event_sender: &EventSender) {
    let heard = match event {
        HostEvent::Failed { function, run, attempt, error, retry_in, output } => Heard::HostProblem(HostProblem {
            function: function.to_string(),
            attempt: Some((run.to_string(), *attempt)),
            error: (*error).clone(),
            retry_in: *retry_in,
            output: String::from_utf8_lossy(output).into_owned(),
        }),
        HostEvent::StartFailed { function, error } => Heard::HostProblem(HostProblem {
            function: function.to_string(),
            attempt: None,
            error: (*error).clone(),
            retry_in: None,
            output: String::new(),
        }),
        HostEvent::Done { .. } => return,
    };
    event_sender.keep(heard);
}

impl HostProblems {
    /// Tells what went wrong since the last time.
    pub fn tell(&self, out: &mut Out) -> Outcome {
        let mut any = false;
        for heard in self.receiver.try_iter().take(KEPT_MAX) {
            match heard {
                Heard::Link(news) => tell_link(&news, out)?,
                Heard::HostProblem(host_problem)
                    if host_problem.retry_in.is_some() || host_problem.attempt.is_none() || self.with_dead =>
                {
                    host_problem.tell(out)?;
                }
                Heard::HostProblem(_) => continue,
            }
            any = true;
        }
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost if out.json() => out.object(&json!({ "event": "failed", "not_told": lost }))?,
            lost => out.line(format!("… and {} not shown", show::count(lost, "more problem")))?,
        }
        if any {
            out.flush()?;
        }
        Ok(())
    }
}

/// Disks that refuse appends, and clocks that are or were wrong, as of the last report.
#[derive(Default)]
pub struct Refusals {
    reported: HashMap<PathBuf, Code>,
    /// Disks that are nearly full, as of the last report.
    low: HashSet<PathBuf>,
    /// Namespaces with events that are dated ahead of the machine's clock, as of the last report.
    ahead: HashSet<PathBuf>,
}

impl Refusals {
    /// Tells on standard error that a disk begins to refuse or that the clock is or was wrong, and on standard output that a disk refuses no
    /// longer.
    pub fn tell(&mut self, namespaces: &[Named], out: &mut Out) -> Outcome {
        for (_, namespace) in namespaces {
            let (dir, refusal) = (namespace.dir(), namespace.journal().refusal());
            match (refusal, self.reported.get(dir).copied()) {
                (Some(error), reported) if reported != Some(error.code()) => {
                    self.reported.insert(dir.to_owned(), error.code());
                    report::say(&error.within(dir.display()), out.json());
                }
                (None, Some(_)) => {
                    self.reported.remove(dir);
                    if out.json() {
                        out.object(&json!({ "event": "resumed", "namespace": dir }))?;
                    } else {
                        out.line(format!("{}: the disk accepts appends again", dir.display()))?;
                    }
                    out.flush()?;
                }
                _ => {}
            }
            match namespace.journal().check_clock() {
                Err(error) if self.ahead.insert(dir.to_owned()) => {
                    report::say(&error.within(dir.display()), out.json())
                }
                Ok(()) => drop(self.ahead.remove(dir)),
                Err(_) => {}
            }
            match namespace.journal().low_space() {
                Some(low) if self.low.insert(dir.to_owned()) => {
                    let (available, needed) = (low.available_bytes, low.needed_bytes);
                    if out.json() {
                        out.object(&json!({ "event": "disk_low", "namespace": dir, "available_bytes": available,
                            "needed_bytes": needed }))?;
                    } else {
                        out.line(format!("{}: {}", dir.display(), low_space(available, needed)))?;
                    }
                    out.flush()?;
                }
                None if self.low.remove(dir) => {
                    if out.json() {
                        out.object(&json!({ "event": "disk_enough", "namespace": dir }))?;
                    } else {
                        out.line(format!("{}: the disk has enough free space again", dir.display()))?;
                    }
                    out.flush()?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A change of a link: one line, and what to do about it.
fn tell_link(news: &LinkNews, out: &mut Out) -> Outcome {
    let LinkNews { kind, name, from, to, change } = news;
    let (word, error, records) = match change {
        LinkChange::Connected => ("connected", None, None),
        LinkChange::Waiting(error) => ("waiting", Some(error), None),
        LinkChange::Stopped(error) => ("stopped", Some(error), None),
        LinkChange::Dead(records) => ("dead", None, Some(*records)),
        LinkChange::Lost(records) => ("lost", None, Some(*records)),
        LinkChange::Refused(error) => ("refused", Some(error), None),
    };
    if out.json() {
        let error = error.map(|error| report::object(error)["error"].take());
        return Ok(out.object(&json!({
            "event": "link", "kind": kind, "name": name, "from": from, "to": to, "change": word, "records": records,
            "error": error,
        }))?);
    }
    let (style, what) = match change {
        LinkChange::Connected => (Style::Plain, "connected".into()),
        LinkChange::Waiting(error) => (Style::Warn, format!("waiting: {}: {}", error.code().id(), error.detail())),
        LinkChange::Stopped(error) => (Style::Bad, format!("stopped: {}: {}", error.code().id(), error.detail())),
        LinkChange::Refused(error) => (Style::Bad, format!("refused: {}: {}", error.code().id(), error.detail())),
        LinkChange::Dead(records) => {
            let count = show::count(*records, "message");
            (Style::Bad, format!("{count} permanently refused; `millrace log tail {OUTBOX_DEAD_LETTERS}` shows why"))
        }
        LinkChange::Lost(records) => (
            Style::Bad,
            format!(
                "{} left the history before they were forwarded, and were skipped",
                show::count(*records, "record")
            ),
        ),
    };
    let end = if *kind == "outbox" || to.starts_with("mr:") { to } else { from };
    let now = show::clock(millrace_node::Hlc::from_wall_us(show::now_us()));
    let line = format!("{now}  {kind} {name} ({end}) {}", show::one_line(what.as_bytes()));
    let line = out.styled(style, &line);
    out.line(line)?;
    if let Some(error) = error.filter(|_| matches!(change, LinkChange::Stopped(_) | LinkChange::Refused(_))) {
        out.line(format!("{}{}", " ".repeat(14), error.code().remedy()))?;
    }
    Ok(())
}

impl HostProblem {
    fn tell(&self, out: &mut Out) -> Outcome {
        if out.json() {
            let event = if self.attempt.is_some() { "failed" } else { "start_failed" };
            out.object(&json!({
                "event": event, "function": self.function,
                "run": self.attempt.as_ref().map(|(run, _)| run), "attempt": self.attempt.as_ref().map(|(_, n)| n),
                "error": crate::report::object(&self.error)["error"], "output": self.output,
                "retry_in_ms": self.retry_in.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            }))?;
            return Ok(());
        }
        let mut lines = self.error.detail().lines().map(|line| show::one_line(line.as_bytes()));
        let first = lines.next().unwrap_or_default();
        let what = match &self.attempt {
            Some((_, 0)) => format!("a run of {} is lost", self.function),
            Some((_, n)) => format!("attempt {n} of {} failed", self.function),
            None => format!("{} cannot be started", self.function),
        };
        let next = match (self.retry_in, &self.attempt) {
            (Some(time), _) => format!("next in {}", units::show_duration(time)),
            (None, Some(_)) => "not retried".into(),
            (None, None) => "retrying".into(),
        };
        let indent = " ".repeat(14);
        let style = if self.retry_in.is_some() { Style::Warn } else { Style::Bad };
        let now = show::clock(millrace_node::Hlc::from_wall_us(show::now_us()));
        let head = format!("{now}  {what} ({next}): {} {first}", self.error.code().id());
        let head = out.styled(style, &head);
        out.line(head)?;
        for line in lines {
            out.line(format!("{indent}{line}"))?;
        }
        // The error of a process that failed ends with what it printed last.
        let repeated = self.error.detail().trim_end().ends_with(self.output.trim_end());
        for line in self.output.lines().take(if repeated { 0 } else { OUTPUT_LINES_MAX }) {
            let line = out.styled(Style::Dim, &format!("{indent}| {}", show::one_line(line.as_bytes())));
            out.line(line)?;
        }
        if let Some((run, 1..)) = &self.attempt
            && self.retry_in.is_none()
        {
            out.line(format!("{indent}see `millrace run show {run}`"))?;
        }
        Ok(())
    }
}
