//! The problems of an application file, with line and column, and a suggestion.

use millrace_wire::{Code, Error};
use std::{fmt, ops::Range, path::PathBuf};

/// The maximum number of problems shown for one file: more usually have a common cause.
const SHOWN_MAX: usize = 50;
/// The maximum number of problems recorded for one file: finding the position of each takes one pass over the file.
const NOTED_MAX: usize = 100;

/// One problem in an application file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem and a suggestion, without a full stop.
    pub message: String,
}

/// All problems in one application file; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file.
    pub path: PathBuf,
    /// The problems, in the order of the file.
    pub list: Vec<Problem>,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.list.iter().take(SHOWN_MAX).enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            let Problem { line, column, message } = problem;
            write!(f, "{separator}{}:{line}:{column}: {message}", self.path.display())?;
        }
        if self.list.len() > SHOWN_MAX {
            let least = if self.list.len() < NOTED_MAX { "" } else { "at least " };
            write!(f, "\nand {least}{} more", self.list.len() - SHOWN_MAX)?;
        }
        Ok(())
    }
}

impl From<Problems> for Error {
    fn from(problems: Problems) -> Error {
        Code::ApplicationInvalid.error(problems.to_string())
    }
}

/// The line and column (in characters, from 1) of a byte offset; offsets past the end are the end.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Collects the problems of one text.
pub(super) struct Collector<'a> {
    text: &'a str,
    list: Vec<(usize, Problem)>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, list: Vec::new() }
    }

    /// Notes a problem at a span; without one it belongs to the whole file.
    pub(super) fn add(&mut self, span: Option<Range<usize>>, message: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let offset = span.map_or(0, |span| span.start);
        let (line, column) = place(self.text, offset);
        self.list.push((offset, Problem { line, column, message: message.into() }));
    }

    /// Whether no further problem is noted.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= NOTED_MAX
    }

    /// The problems in the order of the file, or `None` if there are none.
    pub(super) fn finish(mut self) -> Option<Vec<Problem>> {
        self.list.sort_by_key(|(offset, _)| *offset);
        (!self.list.is_empty()).then(|| self.list.into_iter().map(|(_, problem)| problem).collect())
    }
}

/// `; did you mean 'x'?` for the candidate that `given` is a typo of, if it is one.
pub fn suggestion<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, candidates).map(|candidate| format!("; did you mean '{candidate}'?")).unwrap_or_default()
}

/// The candidate nearest to `given`, if one is near enough for `given` to be a typo of it.
pub(super) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A typo changes about a third of the letters at most; more is another word.
    let distance_max = (given.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&given.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Text from the file for a message: escaped and shortened.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let text = "a = 1\nµé = 2\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 6), (2, 1));
        assert_eq!(place(text, text.find('2').unwrap()), (2, 6));
        assert_eq!(place(text, 9999), (3, 1));
        assert_eq!(place(text, 7), (2, 1), "inside a character: its start");
    }

    #[test]
    fn near_words_are_suggested_and_far_ones_not() {
        assert_eq!(suggestion("hitory", ["history", "on"]), "; did you mean 'history'?");
        assert_eq!(suggestion("Runtime", ["runtime"]), "; did you mean 'runtime'?");
        assert_eq!(suggestion("banana", ["history", "on"]), "");
    }

    #[test]
    fn long_lists_of_problems_end() {
        let list = vec![Problem { line: 1, column: 1, message: "x".into() }; SHOWN_MAX + 7];
        let text = Problems { path: "f".into(), list }.to_string();
        assert_eq!(text.lines().count(), SHOWN_MAX + 1);
        assert!(text.ends_with("and 7 more"));
    }
}
