//! `millrace dev`: runs the application here, applies each saved change, and prints runs and records.

use super::{
    host_problem::{HostProblems, Refusals, observe},
    live::Live,
    serve::on_signals,
    serving::{self, Serving},
    up::topics::need_host,
};
use crate::{
    args::{ClusterArgs, DevArgs, Global},
    logging,
    out::{Out, Style},
    place, report,
    report::Outcome,
    show,
};
use millrace_node::{
    Code, Name,
    application::{Application, Fingerprint},
    changes::{Action, Changes, Opened, Progress},
    functions::Apart,
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, TryRecvError},
    time::{Duration, Instant},
};

/// How often files are looked at; a save is applied once two looks agree, so that no half-written file is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A file that no longer names a function is applied once it has stayed like that for this long: it may be half written.
const REMOVES_AFTER: Duration = Duration::from_secs(2);
/// Pause between two reports, so that a busy journal is reported in batches.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// How long runs in progress may take to end.
const DRAIN: Duration = Duration::from_secs(5);

pub fn run(args: &DevArgs, global: &Global, out: &mut Out) -> Outcome {
    out.become_host()?;
    logging::start(&args.listen.levels(), out.json());
    let stop = on_signals(Some(DRAIN))?;
    // Before the files are read: what is saved meanwhile is noticed.
    let file = args.file.path()?;
    let looked = Looked::at(&file);
    let application = Application::load(&file)?;
    check(&application)?;
    let dir = place::application_dir(global, &application);
    let apart = || serving::isolation(&args.listen);
    let opened = super::up::open(&application, &dir, &apart, out)?;
    let namespace = opened.namespace.clone();
    // The host starts first: if another one serves the namespace, nothing is changed. Runs that are given up are reported from the journal,
    // like all others.
    let (observers, host_problems) = observe(false);
    let (cluster, ca) = (ClusterArgs::default(), global.ca.as_deref());
    let listen = args.listen.with_mqtt();
    let serving = Serving::start(vec![(None, namespace.clone())], &listen, &cluster, ca, &observers)?;
    let live = Live::new(namespace.journal(), args.quiet);
    let apart = &apart;
    let mut dev = Dev { live, host_problems, opened, looked, application, apart, mistaken: false };
    dev.apply(false, out)?;
    dev.announce(&serving, out)?;
    dev.follow(&serving, &stop, out)?;
    serving.finish(DRAIN, out)
}

/// Refuses what only a host of a cluster can apply.
fn check(application: &Application) -> millrace_node::Result<()> {
    match application.has_topics() {
        true => Err(need_host(application, "`millrace dev` does not apply topics")),
        false => Ok(()),
    }
}

struct Dev<'a> {
    opened: Opened,
    application: Application,
    /// How code is kept apart when it is checked: as the host keeps it apart.
    apart: Apart<'a>,
    looked: Looked,
    live: Live,
    /// Events that are not in the journal: attempts that will be repeated, and functions that cannot be started.
    host_problems: HostProblems,
    /// Whether the file has an error, so that what runs is older.
    mistaken: bool,
}

/// The metadata of the files: the application file and all files that it names, existing or not.
struct Looked {
    path: PathBuf,
    applied: Fingerprint,
    last: Fingerprint,
    at: Instant,
    /// When what is there now was seen first, and what was applied before it.
    since: Instant,
    before: Fingerprint,
}

impl Looked {
    fn at(path: &Path) -> Self {
        let now = Fingerprint::of_application(path);
        let at = Instant::now();
        Self { path: path.to_owned(), applied: now, last: now, at, since: at, before: now }
    }

    /// Whether something was saved since the application was last applied, and nothing is being saved right now.
    fn saved(&mut self) -> bool {
        if self.at.elapsed() < LOOK_EVERY {
            return false;
        }
        let now = Fingerprint::of_application(&self.path);
        let settled = now == self.last;
        (self.last, self.at) = (now, Instant::now());
        if !settled {
            self.since = self.at;
        }
        let saved = settled && now != self.applied;
        if saved {
            (self.before, self.applied) = (self.applied, now);
        }
        saved
    }

    /// Whether what was saved may still change; then the next look finds it again.
    fn waits(&mut self) -> bool {
        let waits = self.since.elapsed() < REMOVES_AFTER;
        if waits {
            self.applied = self.before;
        }
        waits
    }
}

impl Dev<'_> {
    fn announce(&self, serving: &Serving, out: &mut Out) -> Outcome {
        let functions = self.application.functions.len() as u64;
        if out.json() {
            out.object(
                &json!({ "event": "serving", "namespace": self.opened.namespace.dir(), "functions": functions }),
            )?;
        } else {
            let name = self.application.path.display();
            out.line(format!(
                "running {} of {name}; saved changes are applied; Ctrl-C stops",
                show::count(functions, "function")
            ))?;
            serving.announce(out)?;
            let bound = self.application.functions.iter().find_map(|declared| declared.spec.on.first());
            if let Some(log) = bound {
                let hint = format!("try in another terminal: millrace log append {log} hello");
                let hint = out.styled(Style::Dim, &hint);
                out.line(hint)?;
                if let Some((_, at)) = serving.bound().others.iter().find(|(name, _)| *name == "mqtt") {
                    let port = if at.port() == 1883 { String::new() } else { format!(" -p {}", at.port()) };
                    let hint = out.styled(Style::Dim, &format!("or with MQTT: mosquitto_pub{port} -t {log} -m hello"));
                    out.line(hint)?;
                }
            }
        }
        Ok(out.flush()?)
    }

    /// Until a signal: reports events, and applies saved changes.
    fn follow(&mut self, serving: &Serving, stop: &Receiver<()>, out: &mut Out) -> Outcome {
        let mut refusals = Refusals::default();
        let namespaces = [(None, self.opened.namespace.clone())];
        loop {
            refusals.tell(&namespaces, out)?;
            match stop.try_recv() {
                Err(TryRecvError::Empty) => {}
                Ok(()) | Err(TryRecvError::Disconnected) => return Ok(()),
            }
            if let Some(error) = serving.failure() {
                return Err(error.into());
            }
            let journal = self.opened.namespace.journal();
            let seen = journal.tail();
            self.host_problems.tell(out)?;
            if self.live.tell(out)? {
                std::thread::sleep(TELL_EVERY);
            } else {
                journal.wait(seen, LOOK_EVERY);
            }
            if self.looked.saved() {
                self.reload(out)?;
            }
        }
    }

    /// Applies a saved change; a mistake is reported, and the last valid version keeps running.
    fn reload(&mut self, out: &mut Out) -> Outcome {
        let new = match Application::load(&self.application.path) {
            Ok(new) => new,
            Err(error) => return self.mistake(&error, out),
        };
        if new.namespace != self.application.namespace {
            let detail =
                "`path` in [namespace] has changed; stop `millrace dev` and start it again to use the other namespace";
            return self.mistake(&Code::ApplicationInvalid.error(detail), out);
        }
        let names = |name: &Name| new.functions.iter().any(|declared| declared.spec.name == *name);
        if !self.application.functions.iter().all(|declared| names(&declared.spec.name)) && self.looked.waits() {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.application, new);
        match self.apply(true, out) {
            Err(report::Failure::Coded(error)) => {
                self.application = old;
                self.mistake(&error, out)
            }
            Ok(()) if std::mem::take(&mut self.mistaken) && !out.json() => {
                out.line("the error is corrected; what runs is as the file says")?;
                Ok(out.flush()?)
            }
            outcome => outcome,
        }
    }

    fn mistake(&mut self, error: &millrace_node::Error, out: &mut Out) -> Outcome {
        self.mistaken = true;
        out.flush()?;
        report::say(error, out.json());
        if !out.json() {
            let line = out.styled(Style::Dim, "the last valid version keeps running; correct the error and save");
            out.line(line)?;
        }
        Ok(out.flush()?)
    }

    /// Applies the application. A function that the file no longer names and that has pending runs stays: saving a file is no reason to
    /// give them up.
    fn apply(&self, reloading: bool, out: &mut Out) -> Outcome {
        check(&self.application)?;
        super::up::each_step(out, |progress| {
            let changes = Changes::of(&self.application).taking_over(true).kept_apart(self.apart);
            changes.apply(&self.opened, false, &mut |reported| match reported {
                // After a save only what changed is news.
                Progress::Step(step) if reloading && step.action == Action::Unchanged => {}
                reported => progress(reported),
            })
        })
    }
}
