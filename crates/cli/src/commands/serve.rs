//! `millrace serve`: a namespace's host, until it is told to stop.

use super::trouble::observe;
use crate::{
    args::{Global, ServeArgs},
    out::Out,
    place,
    report::{Failure, Outcome},
    show,
};
use millrace_node::{Code, Host, HostOptions, Namespace, Result, application::units};
use serde_json::json;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    process,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

/// How often a host that nobody stops is asked whether it still runs.
const HEALTH_EVERY: Duration = Duration::from_millis(500);

pub fn run(args: &ServeArgs, global: &Global, out: &mut Out) -> Outcome {
    let stop = on_signals()?;
    let namespace = place::open(global)?;
    let (observer, troubles) = observe(true);
    let host = Host::start(namespace.clone(), HostOptions { observer: Some(observer) })?;
    announce(&namespace, out)?;
    loop {
        match troubles.tell(out) {
            Err(Failure::BrokenPipe) => out.mute(),
            told => told?,
        }
        match stop.recv_timeout(HEALTH_EVERY) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if let Some(error) = host.failure() {
                    return Err(error.into());
                }
            }
            // A signal, or the thread that waits for them is gone and nobody could stop us any more.
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let stopped = finish(host, args.drain, out);
    troubles.tell(out)?;
    stopped
}

/// Lets runs in progress end, and tells how that went.
pub fn finish(host: Host, drain: Duration, out: &mut Out) -> Outcome {
    let running: usize = host.status().functions.iter().map(|function| function.running.len()).sum();
    if running > 0 && !out.json() {
        let runs = show::count(running as u64, "run");
        out.line(format!("stopping: {runs} may take {} to end; again to stop at once", units::show_duration(drain)))?;
        out.flush()?;
    }
    host.stop(drain)?;
    if out.json() {
        out.object(&json!({ "event": "stopped" }))?
    } else {
        out.line("stopped")?
    }
    Ok(())
}

fn announce(namespace: &Namespace, out: &mut Out) -> Outcome {
    let functions = namespace.functions()?.len() as u64;
    let dir = namespace.dir().display().to_string();
    if out.json() {
        out.object(&json!({ "event": "serving", "namespace": dir, "pid": process::id(), "functions": functions }))?;
    } else {
        out.line(format!("serving {dir} ({}); Ctrl-C stops", show::count(functions, "function")))?;
    }
    Ok(out.flush()?)
}

/// Hears of the first signal that asks to stop; the second ends the process at once.
///
/// Runs that are cut short leave nothing behind, and run again at the next start.
pub fn on_signals() -> Result<Receiver<()>> {
    let refused = |error: std::io::Error| Code::HostStart.error(format!("signals cannot be received: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(refused)?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let wait = move || {
        for (count, signal) in signals.forever().enumerate() {
            if count > 0 {
                process::exit(128 + signal);
            }
            // Whoever listened may have ended meanwhile for a reason of its own.
            let _ = sender.send(());
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map_err(refused)?;
    Ok(receiver)
}
