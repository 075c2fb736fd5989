//! `millrace serve`: runs a host until a signal stops it.

use super::{
    host_problem::{Refusals, observe},
    serving::{Named, Observers, Serving},
};
use crate::{
    args::{Global, ServeArgs},
    feed, logging,
    out::Out,
    place,
    report::{self, Outcome},
    show,
};
use millrace_node::{Code, Error, Name, Namespace, Result, application::units};
use serde_json::json;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    path::Path,
    process,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

/// How often the state of a running host is checked. Signals and problems wake the checking thread.
const HEALTH_EVERY: Duration = Duration::from_secs(2);
/// How long a host that finds no room waits before it tries again, at first and at most: each attempt may begin an epoch.
const ROOM_FIRST: Duration = Duration::from_millis(200);
const ROOM_MOST: Duration = Duration::from_secs(5);

pub fn run(args: &ServeArgs, global: &Global, out: &mut Out) -> Outcome {
    out.become_host()?;
    logging::start(&args.listen.levels(), out.json());
    millrace_gateway::set_patience(args.patience);
    let stop = on_signals(Some(args.drain))?;
    let (observers, host_problems) = observe(true);
    let Some((namespaces, serving)) = start(args, global, &observers, &stop, out.json())? else { return Ok(()) };
    announce(&namespaces, &serving, out)?;
    let mut refusals = Refusals::default();
    loop {
        refusals.tell(&namespaces, out)?;
        host_problems.tell(out)?;
        match stop.try_recv() {
            Err(mpsc::TryRecvError::Empty) => {
                if let Some(error) = serving.failure() {
                    return Err(error.into());
                }
                serving.refresh_certificate(out.json());
                thread::park_timeout(HEALTH_EVERY);
            }
            // A signal, or the end of the thread that waits for signals, without which the host could not be stopped.
            Ok(()) | Err(mpsc::TryRecvError::Disconnected) => break,
        }
    }
    let stopped = serving.finish(args.drain, out);
    host_problems.tell(out)?;
    stopped
}

/// Opens the namespaces and serves them. If the disk has no room for that, it waits, because a supervisor gives up a host that ends
/// repeatedly; `None` if a signal arrives first.
fn start(
    args: &ServeArgs,
    global: &Global,
    observers: &Observers,
    stop: &Receiver<()>,
    json: bool,
) -> Outcome<Option<(Vec<Named>, Serving)>> {
    let mut pause = Duration::ZERO;
    loop {
        let attempt = || {
            let namespaces = namespaces(args, global)?;
            let ca = global.ca.as_deref();
            Ok((namespaces.clone(), Serving::start(namespaces, &args.listen, &args.cluster, ca, observers)?))
        };
        match attempt() {
            Err(error) if Error::code(&error) == Code::DiskFull => {
                if pause.is_zero() {
                    report::say(&error, json);
                    feed::stderr("waiting for free space on the disk before serving; nothing is lost\n");
                }
                pause = (pause * 2).clamp(ROOM_FIRST, ROOM_MOST);
                if stop.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return Ok(None);
                }
            }
            started => return Ok(Some(started?)),
        }
    }
}

/// The namespaces to serve, and the names that were given to them.
fn namespaces(args: &ServeArgs, global: &Global) -> Result<Vec<Named>> {
    if args.namespaces.is_empty() {
        return Ok(vec![(None, place::open(global)?)]);
    }
    let open = |text: &String| {
        let (name, dir) = match text.split_once('=') {
            Some((name, dir)) => (Some(name.parse::<Name>()?), dir),
            None => (None, text.as_str()),
        };
        Ok((name, Namespace::open(Path::new(dir))?))
    };
    args.namespaces.iter().map(open).collect()
}

fn announce(namespaces: &[Named], serving: &Serving, out: &mut Out) -> Outcome {
    let mut functions = 0;
    for (_, namespace) in namespaces {
        functions += namespace.functions()?.len() as u64;
    }
    let dirs: Vec<String> = namespaces.iter().map(|(_, namespace)| namespace.dir().display().to_string()).collect();
    if out.json() {
        let mut event = json!({
            "event": "serving", "namespace": dirs[0], "pid": process::id(), "functions": functions,
        });
        if let (Some(event), serde_json::Value::Object(more)) = (event.as_object_mut(), serving.announcement()) {
            event.extend(more);
        }
        out.object(&event)?;
    } else {
        out.line(format!("serving {} ({}); Ctrl-C stops", dirs.join(", "), show::count(functions, "function")))?;
        serving.announce(out)?;
    }
    Ok(out.flush()?)
}

/// Handles the first signal to stop; the second ends the process at once.
///
/// Interrupted runs publish nothing, and run again at the next start.
///
/// A host with something to `drain` reports on standard error what it waits for. The calling thread is unparked.
pub fn on_signals(drain: Option<Duration>) -> Result<Receiver<()>> {
    let refused = |error: std::io::Error| Code::HostStart.error(format!("signals cannot be received: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(refused)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let caller = thread::current();
    let wait = move || {
        for (count, signal) in signals.forever().enumerate() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            if count > 0 {
                if drain.is_some() {
                    let what = "stopping at once; the next host runs interrupted runs again";
                    feed::stderr(&format!("{name} again: {what}\n"));
                }
                process::exit(128 + signal);
            }
            if let Some(drain) = drain.map(units::show_duration) {
                let what = format!(
                    "stopping; waiting up to {drain} for runs in progress; send the signal again to stop at once"
                );
                feed::stderr_soon(format!("{name}: {what}\n").as_bytes());
            }
            // The reader may have ended meanwhile for a reason of its own.
            let _ = sender.send(());
            caller.unpark();
        }
    };
    millrace_threads::spawn(thread::Builder::new().name("signals".into()), wait).map_err(refused)?;
    Ok(receiver)
}
