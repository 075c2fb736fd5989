//! The output: on a terminal each update replaces the last, elsewhere it is printed below the last.

use super::look::Rates;
use crate::{
    out::{Out, Style, Table},
    place::Target,
    report::Outcome,
    show,
};
use millrace_node::{Error, application::units};

/// The assumed height of a terminal that does not report its size.
const ROWS: usize = 24;
/// Characters of an error in a line.
const ERROR_CHARS_MAX: usize = 60;
/// Lines around the tables: the head, blank lines, both tables' names of columns.
const FRAME_ROWS: usize = 6;

// Another screen, so that what was there before is there again afterwards; the cursor would only flicker, and lines that
// are too long are cut, not wrapped.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K";
const REST: &str = "\x1b[J";

pub struct Screen {
    target: String,
    live: bool,
    entered: bool,
}

impl Screen {
    pub fn new(target: &Target, live: bool, out: &mut Out) -> Outcome<Self> {
        if live {
            out.bytes(ENTER.as_bytes())?;
            out.bytes(HOME.as_bytes())?;
            out.line(format!("{target}: looking"))?;
            out.flush()?;
        }
        Ok(Self { target: target.to_string(), live, entered: live })
    }

    pub fn show(&mut self, rates: &Rates, out: &mut Out) -> Outcome {
        // Links are few: each gets its line.
        let frame = FRAME_ROWS + if rates.links.is_empty() { 0 } else { 2 + rates.links.len() };
        let rows = if self.live { height().saturating_sub(frame) } else { usize::MAX };
        let mut lines = vec![self.head(rates, out)];
        // Functions are few and matter more: they get what they need, up to two thirds.
        let functions = rates.functions.len().min((rows / 3 * 2).max(1));
        let logs = rates.logs.len().min(rows.saturating_sub(functions).max(1));
        if functions > 0 {
            lines.push(String::new());
            lines.extend(table(&function_table(rates, functions), out));
        }
        if !rates.links.is_empty() {
            lines.push(String::new());
            lines.extend(table(&link_table(rates), out));
        }
        if logs > 0 {
            lines.push(String::new());
            lines.extend(table(&log_table(rates, logs), out));
        }
        let hidden = rates.functions.len() - functions + rates.logs.len() - logs;
        if hidden > 0 {
            lines.push(out.styled(Style::Dim, &format!("… and {hidden} more")));
        }
        self.print(&lines, out)
    }

    /// Why there is nothing to show just now.
    pub fn trouble(&mut self, error: &Error, out: &mut Out) -> Outcome {
        let head = out.styled(Style::Bold, &self.target);
        let error = out.styled(Style::Bad, &show::one_line(error.to_string().as_bytes()));
        let again = out.styled(Style::Dim, "retrying; Ctrl-C ends");
        self.print(&[head, error, again], out)
    }

    fn print(&self, lines: &[String], out: &mut Out) -> Outcome {
        if !self.live {
            for line in lines {
                out.line(line)?;
            }
            return Ok(out.line("")?);
        }
        out.bytes(HOME.as_bytes())?;
        for line in lines {
            out.bytes(line.as_bytes())?;
            out.line(END_OF_LINE)?;
        }
        Ok(out.bytes(REST.as_bytes())?)
    }

    /// Gives the terminal back.
    pub fn end(&mut self, out: &mut Out) -> Outcome {
        if std::mem::take(&mut self.entered) {
            out.bytes(LEAVE.as_bytes())?;
        }
        Ok(out.flush()?)
    }

    fn head(&self, rates: &Rates, out: &Out) -> String {
        let host = match &rates.host {
            None => out.styled(Style::Warn, "no host is running"),
            Some(host) => match (&host.failure, &host.refusal) {
                (Some(failure), _) => out.styled(Style::Bad, &format!("the host stopped: {failure}")),
                (None, Some(refusal)) => out.styled(Style::Bad, &format!("host {}: appends fail: {refusal}", host.pid)),
                (None, None) if host.failures_per_second > 0.0 => {
                    let failures = format!("{} attempts/s fail", per_second(host.failures_per_second));
                    format!("host {}, {}", host.pid, out.styled(Style::Bad, &failures))
                }
                (None, None) => format!("host {}", host.pid),
            },
        };
        let name = out.styled(Style::Bold, &self.target);
        let (appends, runs) = (per_second(rates.appends_per_second), per_second(rates.runs_per_second));
        format!("{name}  {host}  {appends} appends/s  {runs} runs/s  {} pending", show::grouped(rates.pending))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.entered {
            // An error ends the picture; its message belongs on the screen that was there before. If the terminal is
            // gone, there is nothing to give back.
            use std::io::Write;
            let mut stdout = std::io::stdout();
            let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
        }
    }
}

fn height() -> usize {
    terminal_size::terminal_size().map_or(ROWS, |(_, terminal_size::Height(rows))| usize::from(rows))
}

/// A rate for people: whole above ten, with a decimal below.
fn per_second(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { show::grouped(rate.round() as u64) } else { format!("{rate:.1}") }
}

/// The lines of a table; the last column is free text, and problems of a function are highlighted.
fn table(table: &Table, out: &Out) -> Vec<String> {
    let mut lines = table.lines();
    if let Some(head) = lines.first_mut() {
        *head = out.styled(Style::Dim, head);
    }
    lines
}

fn function_table(rates: &Rates, most: usize) -> Table {
    let mut table =
        Table::new(&["function", "state", "runs/s>", "in/s>", "pending>", "running>", "failing>", "dead>", "error"]);
    for function in rates.functions.iter().take(most) {
        let error = function.error.as_ref().map(|error| show::headline(error, ERROR_CHARS_MAX));
        table.row(vec![
            function.name.clone(),
            function.state.into(),
            per_second(function.runs_per_second),
            per_second(function.triggers_per_second),
            show::grouped(function.pending),
            function.running.to_string(),
            function.failing.to_string(),
            show::grouped(function.dead),
            error.unwrap_or_default(),
        ]);
    }
    table
}

fn link_table(rates: &Rates) -> Table {
    let mut table = Table::new(&["link", "from", "to", "state", "records/s>", "behind>", "bytes>", "dead>", "error"]);
    for link in &rates.links {
        let error = link.code.as_ref().zip(link.error.as_ref()).map(|(code, error)| format!("{code}: {error}"));
        let error = error.map(|error| show::headline(&error, ERROR_CHARS_MAX));
        table.row(vec![
            format!("{} {}", link.kind, link.name),
            link.from.clone(),
            link.to.clone(),
            link.state.clone(),
            per_second(link.records_per_second),
            show::grouped(link.lag_records),
            units::show_size(link.lag_bytes),
            show::grouped(link.dead),
            error.unwrap_or_default(),
        ]);
    }
    table
}

fn log_table(rates: &Rates, most: usize) -> Table {
    let mut table = Table::new(&["log", "appends/s>", "records>", "latest>"]);
    for log in rates.logs.iter().take(most) {
        table.row(vec![
            log.name.clone(),
            per_second(log.appends_per_second),
            show::grouped(log.records),
            show::grouped(log.latest),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_as_exactly_as_they_matter() {
        let shown = [0.0, 0.05, 9.94, 10.4, 123_456.7].map(per_second);
        assert_eq!(shown, ["0", "0.1", "9.9", "10", "123,457"]);
    }
}
