//! Standard output: tables and lines for people, one JSON object per line for programs.

use crate::feed::{self, Feed};
use serde_json::Value;
use std::{
    io::{self, IsTerminal, StdoutLock, Write},
    sync::OnceLock,
};

/// Buffer size when the output is not a terminal.
const BUFFER_BYTES: usize = 64 << 10;
/// The same for a host.
const HOST_BUFFER_BYTES: usize = 16 << 10;

/// Where a command prints its result.
pub struct Out {
    writer: Writer,
    json: bool,
    colour: bool,
}

enum Writer {
    /// Waits until the output is written.
    Direct(io::BufWriter<StdoutLock<'static>>),
    /// Never waits, and never fails.
    Host { feed: &'static Feed, buffer: Vec<u8> },
}

/// How a piece of text is shown on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warn,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "\x1b[1m",
            Style::Dim => "\x1b[2m",
            Style::Good => "\x1b[32m",
            Style::Bad => "\x1b[31m",
            Style::Warn => "\x1b[33m",
        }
    }
}

/// Colour is for terminals whose user did not object: <https://no-color.org>.
fn colour_wanted(terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether messages on standard error are coloured.
pub fn colour_stderr() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| colour_wanted(io::stderr().is_terminal()))
}

impl Out {
    pub fn new(json: bool) -> Self {
        let colour = colour_wanted(io::stdout().is_terminal());
        let writer = Writer::Direct(io::BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()));
        Self { writer, json, colour }
    }

    /// Whether programs read what is printed.
    pub fn json(&self) -> bool {
        self.json
    }

    /// From now on what cannot be written is dropped: for a host, whose log may go to a full disk, and which works on when its
    /// reader has gone or does not read.
    pub fn become_host(&mut self) -> millrace_node::Result<()> {
        self.writer = Writer::Host { feed: feed::become_host(self.json)?, buffer: Vec::new() };
        Ok(())
    }

    /// One JSON object on a line of its own.
    pub fn object(&mut self, object: &Value) -> io::Result<()> {
        self.line(object.to_string())
    }

    /// A line for people.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.writer {
            Writer::Direct(writer) => writer.write_all(bytes),
            Writer::Host { buffer, .. } => {
                buffer.extend_from_slice(bytes);
                // Lines are printed or dropped as a whole.
                if buffer.len() < HOST_BUFFER_BYTES || !bytes.ends_with(b"\n") { Ok(()) } else { self.flush() }
            }
        }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Writer::Direct(writer) => writer.flush(),
            Writer::Host { feed, buffer } => {
                if !buffer.is_empty() {
                    feed.say_at_pace(buffer);
                    buffer.clear();
                }
                Ok(())
            }
        }
    }

    /// `text` in a style, if the terminal wants colour.
    pub fn styled(&self, style: Style, text: &str) -> String {
        if self.colour && style != Style::Plain { format!("{}{text}\x1b[0m", style.code()) } else { text.to_string() }
    }

    /// A table with aligned columns; numbers stand to the right.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        for (i, line) in table.lines().into_iter().enumerate() {
            let style = if i == 0 { Style::Dim } else { Style::Plain };
            let line = self.styled(style, &line);
            self.line(line)?;
        }
        Ok(())
    }
}

/// Rows with aligned columns.
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns; a name that ends with `>` stands to the right.
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The header and the rows, padded.
    pub fn lines(&self) -> Vec<String> {
        let title = |name: &&'static str| name.trim_end_matches('>').to_uppercase();
        let header: Vec<String> = self.header.iter().map(title).collect();
        let all: Vec<&Vec<String>> = std::iter::once(&header).chain(&self.rows).collect();
        let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let pad = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.header).zip(&widths).map(|((cell, name), width)| {
                if name.ends_with('>') { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
        };
        all.into_iter().map(pad).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters_and_lines_end_clean() {
        let mut table = Table::new(&["name", "size>", "note"]);
        table.row(vec!["µ".into(), "5".into(), String::new()]);
        table.row(vec!["long name".into(), "1000".into(), "x".into()]);
        assert_eq!(table.lines(), ["NAME       SIZE  NOTE", "µ             5", "long name  1000  x"]);
    }
}
