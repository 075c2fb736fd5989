//! Errors, for people and for programs, and the exit code that goes with them.

use crate::feed;
use millrace_node::{Code, Error};
use serde_json::json;
use std::{io, process::ExitCode};

/// Exit code of wrong usage.
pub const USAGE: u8 = 2;

/// Why a command ends early.
#[derive(Debug)]
pub enum Failure {
    /// An error to be reported.
    Coded(Error),
    /// The reader has closed our output; this is not an error.
    BrokenPipe,
    /// The error has already been reported.
    Said(u8),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Coded(error)
    }
}

/// Only writing to standard output fails with a bare I/O error.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::Coded(Code::OutputFailed.error(format!("cannot write to standard output: {error}"))),
        }
    }
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Reports a failure on standard error.
pub fn failure(failure: &Failure, json: bool) -> ExitCode {
    match failure {
        Failure::Coded(error) => {
            say(error, json);
            ExitCode::from(error.code().exit_code())
        }
        Failure::BrokenPipe => ExitCode::SUCCESS,
        Failure::Said(code) => ExitCode::from(*code),
    }
}

/// Prints one error on standard error. If that is closed, the error is lost.
pub fn say(error: &Error, json: bool) {
    feed::stderr(&text(error, json));
}

/// One error as it is printed.
pub fn text(error: &Error, json: bool) -> String {
    if json { format!("{}\n", object(error)) } else { paragraph(error) }
}

/// An error in JSON, for programs.
pub fn object(error: &Error) -> serde_json::Value {
    let code = error.code();
    let mut reported =
        json!({ "code": code.id(), "detail": error.detail(), "cause": code.cause(), "remedy": code.remedy() });
    if let Some(after_ms) = error.retry_after_ms() {
        reported["retry_after_ms"] = after_ms.into();
    }
    json!({ "error": reported })
}

/// An error as text, for people.
fn paragraph(error: &Error) -> String {
    let code = error.code();
    let (bold, red, reset) =
        if crate::out::colour_stderr() { ("\x1b[1m", "\x1b[1;31m", "\x1b[0m") } else { ("", "", "") };
    let detail = error.detail().replace('\n', "\n  ");
    // Each problem of a file begins with its position, so it gets a line of its own.
    let detail = if detail.contains('\n') { format!("\n  {detail}") } else { format!(" {detail}") };
    format!(
        "{red}error[{}]{reset}:{bold}{detail}{reset}\n  cause: {}\n  remedy: {}\n",
        code.id(),
        code.cause(),
        code.remedy()
    )
}

/// Reports clap's error for an invalid command line, or prints the requested help.
pub fn usage(error: &clap::Error, json: bool) -> ExitCode {
    use clap::error::ErrorKind;
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if json && !asked {
        let text = error.render().to_string();
        let detail = text.lines().next().unwrap_or("").trim_start_matches("error: ");
        say(&Code::UsageInvalid.error(detail), true);
    } else {
        // Help goes to standard output, errors to standard error; a closed pipe is ignored.
        let _ = match asked || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            true => error.print(),
            false => print_usage(error),
        };
    }
    ExitCode::from(if asked { 0 } else { USAGE })
}

/// Clap's message, with a code like every other error.
fn print_usage(error: &clap::Error) -> io::Result<()> {
    use io::{IsTerminal, Write};
    let text = error.render();
    let text = if io::stderr().is_terminal() { text.ansi().to_string() } else { text.to_string() };
    let code = format!("error[{}]:", Code::UsageInvalid.id());
    let mut text = text.replacen("error:", &code, 1);
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(tip) = crate::tips::of(error, &words) {
        // Replaces clap's suggestion, which only compares letters.
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.contains("tip:")).collect();
        let tip = format!("\n  tip: {tip}");
        lines.insert(1, &tip);
        lines.dedup_by(|next, before| next.is_empty() && before.is_empty());
        text = lines.join("\n") + "\n";
    } else if !text.lines().all(crate::tips::is_kept) {
        let mut lines: Vec<&str> = text.lines().filter(|line| crate::tips::is_kept(line)).collect();
        lines.dedup_by(|next, before| next.is_empty() && before.is_empty());
        text = lines.join("\n") + "\n";
    }
    io::stderr().write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_what_was_wrong_why_and_what_to_do() {
        let text = paragraph(&Code::LogNotFound.error("no log 'x'"));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "error[MR2101]: no log 'x'");
        assert!(lines[1].starts_with("  cause: ") && lines[2].starts_with("  remedy: ") && lines.len() == 3);
    }

    #[test]
    fn exit_codes_tell_misuse_from_failure_from_busy() {
        assert_eq!(Code::Busy.exit_code(), 75);
        assert_eq!(Code::LogNameInvalid.exit_code(), 2);
        assert_eq!(Code::LogNotFound.exit_code(), 1);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::BrokenPipe));
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)), Failure::Coded(_)));
    }
}
