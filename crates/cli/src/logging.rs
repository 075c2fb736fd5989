//! The log of a host: lines on standard error, at the level of `--log-level`.

use crate::feed;
use std::{
    io::{self, Write},
    str::FromStr,
};
use tracing::{Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{filter::Targets, fmt, fmt::MakeWriter, layer::SubscriberExt};

/// A level for all subjects, or also levels for single subjects: `info`, `warn,links=debug`.
#[derive(Clone, Debug)]
pub struct Levels(Targets);

/// The subjects of log lines.
const SUBJECTS: [&str; 8] = ["access", "connections", "journal", "links", "repairs", "requests", "runs", "topics"];
/// Libraries whose lines are left out. The NATS client reports each attempt to connect, but `cluster why`, `/status` and errors say what is
/// wrong, once. HTTP/2 reports each client that breaks its rules, as often as clients do so.
const SILENT: [&str; 2] = ["async_nats", "h2"];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |level: &str| LEVELS.contains(&level);
        let known = |part: &str| match part.split_once('=') {
            Some((subject, of_it)) => SUBJECTS.contains(&subject) && level(of_it),
            None => level(part),
        };
        let wrong = || {
            let (levels, subjects) = (LEVELS.join(", "), SUBJECTS.join(", "));
            format!("a level is one of {levels}; SUBJECT=LEVEL sets the level of one subject: one of {subjects}")
        };
        if !text.split(',').all(known) {
            return Err(wrong());
        }
        text.parse().map(Self).map_err(|_| wrong())
    }
}

/// From now on this process says on standard error what it does, as text or as JSON.
pub fn start(levels: &Levels, json: bool) {
    let Levels(mut targets) = levels.clone();
    for library in SILENT {
        if !targets.would_enable(library, &Level::DEBUG) {
            targets = targets.with_target(library, LevelFilter::OFF);
        }
    }
    let started = if json {
        set(tracing_subscriber::registry()
            .with(targets)
            .with(fmt::layer().json().flatten_event(true).with_writer(Lines)))
    } else {
        set(tracing_subscriber::registry().with(targets).with(fmt::layer().with_ansi(false).with_writer(Lines)))
    };
    // A process that serves more than once, as `dev` does when its file changes, keeps its first subscriber.
    let _ = started;
}

fn set(subscriber: impl Subscriber + Send + Sync + 'static) -> Result<(), tracing::subscriber::SetGlobalDefaultError> {
    tracing::subscriber::set_global_default(subscriber)
}

/// Writes each line through the host's output queue, which does not wait for a slow reader.
struct Lines;

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Line;

    fn make_writer(&'w self) -> Line {
        Line
    }
}

/// Writes one line to the host's output queue.
struct Line;

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        feed::stderr_soon(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_or_refused_with_what_they_may_be() {
        for text in ["off", "warn", "info,links=debug", "journal=trace", "warn,access=info,topics=debug"] {
            assert!(text.parse::<Levels>().is_ok(), "{text}");
        }
        for text in ["", "loud", "5", "disk=info", "links=", "links=loud", "info,,warn", "[span]=info"] {
            let reported = text.parse::<Levels>().unwrap_err();
            assert!(reported.contains("warn, info") && reported.contains("journal, links"), "{reported}");
        }
    }
}
