//! What the beginning of a CSV file tells about it: its delimiter, and whether it has a header.

use super::types::Guess;
use csv::{ByteRecord, ReaderBuilder, StringRecord};
use std::io::Read;

/// The first bytes of a file, by which it is judged.
const SAMPLE_BYTES: u64 = 1 << 20;
/// Rows looked at for the delimiter and the header.
const SAMPLE_ROWS: usize = 1000;
/// Delimiters, the most frequent first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The beginning of a file.
pub struct Sample {
    pub bytes: Vec<u8>,
    /// Whether the file has nothing else.
    pub is_whole: bool,
}

impl Sample {
    pub fn read(reader: &mut impl Read) -> std::io::Result<Self> {
        let mut bytes = Vec::new();
        reader.by_ref().take(SAMPLE_BYTES).read_to_end(&mut bytes)?;
        let is_whole = (bytes.len() as u64) < SAMPLE_BYTES;
        Ok(Self { bytes, is_whole })
    }

    /// The complete rows, if this is the delimiter.
    pub fn rows(&self, delimiter: u8) -> Vec<StringRecord> {
        let mut builder = ReaderBuilder::new();
        let mut reader =
            builder.has_headers(false).flexible(true).delimiter(delimiter).from_reader(self.bytes.as_slice());
        let (mut rows, mut row) = (Vec::new(), ByteRecord::new());
        while rows.len() < SAMPLE_ROWS && reader.read_byte_record(&mut row).is_ok_and(|more| more) {
            // The reader of the row reports what is not UTF-8.
            rows.push(row.iter().map(String::from_utf8_lossy).collect::<StringRecord>());
        }
        if !self.is_whole && reader.is_done() {
            rows.pop(); // It was cut.
        }
        rows
    }

    /// The delimiter that gives all rows the same number of cells, and the most; else the one that gives the first row the most.
    pub fn delimiter(&self) -> u8 {
        let fit = |delimiter: &u8| {
            let rows = self.rows(*delimiter);
            let cells = rows.first().map_or(0, StringRecord::len);
            (cells > 1 && rows.iter().all(|row| row.len() == cells), cells)
        };
        // Of equal ones `max_by_key` takes the last.
        DELIMITERS.into_iter().rev().max_by_key(fit).unwrap_or(b',')
    }
}

/// Why the first row looks like values and not like the names of columns.
pub fn looks_like_values(rows: &[StringRecord]) -> Option<String> {
    let (first, rest) = rows.split_first()?;
    for (column, name) in first.iter().enumerate() {
        let mut guess = Guess::default();
        if !name.is_empty() {
            guess.add(1, name);
        }
        if !matches!(guess.kind(), super::types::Type::Text | super::types::Type::Empty) {
            return Some(format!("'{}' is a {}", name.escape_debug(), guess.kind()));
        }
        if !name.is_empty() && rest.iter().any(|row| row.get(column) == Some(name)) {
            return Some(format!("'{}' occurs again below it", name.escape_debug()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Sample {
        Sample { bytes: text.into(), is_whole: true }
    }

    #[test]
    fn the_delimiter_is_the_one_that_gives_equal_rows() {
        for (text, expected) in [
            ("a,b\n1,2\n", b','),
            ("a;b\n1,5;2,5\n", b';'),
            ("a\tb, c\n1\tx\n", b'\t'),
            ("a|b|c\n1|2|3\n", b'|'),
            ("a;b\n1,5\n", b';'),
            ("a,b,c\n1,2\n", b','),
            ("\"a;b\",c\n\"1;2;3\",x\n", b','),
            ("note\nhello world\n", b','),
            ("", b','),
        ] {
            assert_eq!(sample(text).delimiter(), expected, "{text:?}");
        }
    }

    #[test]
    fn values_in_the_first_row_are_noticed() {
        for (text, values) in [
            ("a,b\n1,2\n", false),
            ("1,2\n3,4\n", true),
            ("kitchen,warm\nattic,cold\nkitchen,cold\n", true),
            ("2026-01-01,7.5\n2026-01-02,8.5\n", true),
            (",a\n0,1\n", false),
            ("true,x\nfalse,y\n", true),
        ] {
            assert_eq!(looks_like_values(&sample(text).rows(b',')).is_some(), values, "{text:?}");
        }
    }

    #[test]
    fn a_row_that_the_sample_cuts_is_not_judged() {
        let cut = Sample { bytes: b"a,b\n1,2\n3".to_vec(), is_whole: false };
        assert_eq!(cut.rows(b',').len(), 2);
    }
}
