//! New values for records of the past, from CSV or JSON.

use crate::{
    commands::log::fields::{Fields, compact},
    place::Place,
    show,
};
use millrace_node::{AppendOptions, Code, Error, Hlc, Result};
use millrace_wire::table::{TableRequest, show_key};
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read},
    path::Path,
};

/// Most bytes of a file of values.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Most records of a range.
const RANGE_MAX: u64 = 10_000_000;

/// Seqnos with their new values; none where the value is not known yet.
pub type Corrections = BTreeMap<u64, Option<Vec<u8>>>;

fn invalid(detail: impl Into<String>) -> Error {
    Code::CorrectionInvalid.error(detail)
}

/// A range of a log, with both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Seqnos(u64, u64),
    Times(Hlc, Hlc),
}

/// The records of a log within a range of time.
pub enum Records {
    /// All from the first to the last.
    From(u64, u64),
    /// These, in the order of their numbers.
    Each(Vec<u64>),
}

/// Finds the records of a log within a range of time.
pub type Within<'a> = &'a mut dyn FnMut(Hlc, Hlc) -> Result<Records>;

/// Finds the record that a key of a table has.
pub type OfKey<'a> = &'a mut dyn FnMut(&str) -> Result<u64>;

/// The record that a key of a table has.
pub fn of_key(place: &Place, table: &str, key: &str) -> Result<u64> {
    let request = TableRequest::Get { key: key.as_bytes() };
    let answer = place.ask_table(table, &request, AppendOptions::default())?;
    let entry = answer.entries.first().ok_or_else(|| {
        let key = show_key(key.as_bytes());
        let detail = format!(
            "key '{key}' of table '{table}' has no value; `millrace table versions` shows the records that it had"
        );
        invalid(format!("{detail}: name one of them by its seqno"))
    })?;
    Ok(entry.version)
}

/// The corrections from `--at` and `--values`. `within` finds the records of a range of time, and `of_key` those of keys.
pub fn read(at: Option<&str>, values: Option<&Path>, within: Within<'_>, of_key: OfKey<'_>) -> Result<Corrections> {
    let named: Option<Vec<u64>> = match (at, at.map(range).transpose()?) {
        (Some(at), Some(Range::Times(from, to))) => match within(from, to)? {
            Records::From(first, last) => {
                check_length(at, first, last)?;
                Some((first..=last).collect())
            }
            Records::Each(seqnos) => {
                check_length(at, 1, seqnos.len() as u64)?;
                Some(seqnos)
            }
        },
        (_, Some(Range::Seqnos(first, last))) => Some((first..=last).collect()),
        (_, None) | (None, _) => None,
    };
    let Some(path) = values else {
        let named = named.ok_or_else(|| invalid("give --at or --values"))?;
        return Ok(named.into_iter().map(|seqno| (seqno, None)).collect());
    };
    let mut rows = rows(&text(path)?, path)?;
    for (number, _) in &mut rows {
        if let Some(Number::Key(key)) = number {
            *number = Some(Number::Seqno(of_key(key)?));
        }
    }
    let seqno = |number: Option<Number>| match number {
        Some(Number::Seqno(seqno)) => Some(seqno),
        _ => None,
    };
    let rows: Vec<(Option<u64>, Vec<u8>)> = rows.into_iter().map(|(number, value)| (seqno(number), value)).collect();
    let mut corrections = Corrections::new();
    let unnumbered = rows.iter().filter(|(seqno, _)| seqno.is_none()).count();
    if unnumbered > 0 {
        let named = named.filter(|_| unnumbered == rows.len()).ok_or_else(|| {
            invalid(format!("{}: {unnumbered} values have no seqno; name their records with --at", path.display()))
        })?;
        if rows.len() != named.len() {
            let (path, wanted, records) = (path.display(), named.len(), shown(&named));
            return Err(invalid(format!("{path} has {} values for the {wanted} records {records}", rows.len())));
        }
        return Ok(named.into_iter().zip(rows).map(|(seqno, (_, value))| (seqno, Some(value))).collect());
    }
    for (seqno, value) in rows {
        let seqno = seqno.unwrap_or(0);
        if let Some(named) = named.as_ref().filter(|named| named.binary_search(&seqno).is_err()) {
            return Err(invalid(format!("seqno {seqno} is not within {}", shown(named))));
        }
        if corrections.insert(seqno, Some(value)).is_some() {
            return Err(invalid(format!("seqno {seqno} occurs twice")));
        }
    }
    if corrections.is_empty() {
        return Err(invalid(format!("{} has no values", path.display())));
    }
    Ok(corrections)
}

/// The two times that `--at` names, if it names times.
pub fn times(at: Option<&str>) -> Result<Option<(Hlc, Hlc)>> {
    Ok(match at.map(range).transpose()? {
        Some(Range::Times(from, to)) => Some((from, to)),
        _ => None,
    })
}

/// The records that `--at` names, for messages.
fn shown(named: &[u64]) -> String {
    let (first, last) = (named.first().copied().unwrap_or(0), named.last().copied().unwrap_or(0));
    format!("{first}..{last}")
}

/// `7`, `7..9`, or two moments, each with both ends.
fn range(text: &str) -> Result<Range> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let last = last.trim_start_matches('=');
    if first.contains(':') || last.contains(':') {
        let moment = |part: &str| show::moment(part).ok_or_else(|| not_a_moment(part, text));
        let from = if first.is_empty() { Hlc::ZERO } else { moment(first)? };
        // A moment has microseconds; records of the same microsecond are told apart by the rest of their clock.
        let end = |moment: Hlc| Hlc::from_bits(moment.get() | 0xFFF);
        let to = if last.is_empty() { Hlc::from_bits(u64::MAX) } else { end(moment(last)?) };
        return if from <= to {
            Ok(Range::Times(from, to))
        } else {
            Err(invalid(format!("--at {text}: the first time is later than the last one")))
        };
    }
    let seqno = |part: &str| match part.parse::<u64>() {
        Ok(seqno) if seqno > 0 => Ok(seqno),
        _ => Err(Code::SeqnoInvalid.error(format!("'{}' in --at {}", part.escape_debug(), text.escape_debug()))),
    };
    let (first, last) = (seqno(first)?, seqno(last)?);
    check_length(text, first, last)?;
    Ok(Range::Seqnos(first, last))
}

fn check_length(text: &str, first: u64, last: u64) -> Result<()> {
    if first > last || last - first >= RANGE_MAX {
        return Err(invalid(format!(
            "--at {text}: a range is FIRST..LAST, where LAST is not before FIRST, with at most {RANGE_MAX} records"
        )));
    }
    Ok(())
}

fn not_a_moment(part: &str, text: &str) -> Error {
    let (part, text) = (part.escape_debug(), text.escape_debug());
    invalid(format!("'{part}' in --at {text} is not a time such as 2026-11-03T00:00:00Z"))
}

fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => invalid(format!("{} is not UTF-8 text", path.display())),
        _ => Code::FileUnreadable.error(format!("cannot read {}: {error}", path.display())),
    })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(invalid(format!("{} is longer than {FILE_BYTES_MAX} bytes", path.display())));
    }
    Ok(text)
}

/// What says which record a value is for.
enum Number {
    Seqno(u64),
    /// The one that this key of a table has.
    Key(String),
}

type Row = (Option<Number>, Vec<u8>);

fn rows(text: &str, path: &Path) -> Result<Vec<Row>> {
    let rows = match text.trim_start().chars().next() {
        None => Err(invalid("the file is empty")),
        Some('{' | '[') => json_rows(text),
        Some(_) => csv_rows(text),
    };
    rows.map_err(|error| error.within(path.display()))
}

fn json_rows(text: &str) -> Result<Vec<Row>> {
    let wrong = |error: serde_json::Error| invalid(error.to_string());
    let mut rows = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value = value.map_err(wrong)?.get();
        if value.starts_with('[') {
            for row in serde_json::from_str::<Vec<&RawValue>>(value).map_err(wrong)? {
                rows.push(json_row(row.get())?);
            }
        } else {
            rows.push(json_row(value)?);
        }
    }
    Ok(rows)
}

/// A text is its bytes; any other value is its JSON, and numbers keep their digits. `base64` is for bytes.
fn json_row(row: &str) -> Result<Row> {
    let fields: Fields<'_> = serde_json::from_str(row).map_err(|_| invalid(format!("{row} is not an object")))?;
    let get = |name: &str| fields.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.get());
    let text = |json: &str| serde_json::from_str::<String>(json).ok();
    let number = match (get("seqno"), get("key")) {
        (None | Some("null"), None) => None,
        (None | Some("null"), Some(key)) => {
            let key = text(key).ok_or_else(|| invalid(format!("the key in {row} is not a text")))?;
            Some(Number::Key(key))
        }
        (Some(_), Some(_)) => return Err(invalid(format!("{row} has both 'seqno' and 'key'"))),
        (Some(seqno), None) => {
            let seqno = seqno.parse().ok().filter(|seqno| *seqno > 0);
            let seqno =
                seqno.ok_or_else(|| invalid(format!("the seqno in {row} is not a whole number of 1 or more")))?;
            Some(Number::Seqno(seqno))
        }
    };
    let value = match (get("value"), get("base64")) {
        (Some(_), Some(_)) => return Err(invalid(format!("{row} has both 'value' and 'base64'"))),
        (Some("null"), None) => {
            let detail =
                format!("the value in {row} is null: write \"null\" for this text, or void the record with --void");
            return Err(invalid(detail));
        }
        (Some(value), None) => text(value).unwrap_or_else(|| compact(value)).into_bytes(),
        (None, Some(value)) => {
            let bytes = text(value).and_then(|text| show::from_base64(&text));
            bytes.ok_or_else(|| invalid(format!("the base64 in {row} is not base64")))?
        }
        (None, None) => return Err(invalid(format!("{row} has no key 'value'"))),
    };
    Ok((number, value))
}

fn csv_rows(text: &str) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(text.as_bytes());
    let wrong = |error: csv::Error| invalid(error.to_string());
    let header = reader.headers().map_err(wrong)?.clone();
    let column = |name: &str| header.iter().position(|title| title == name);
    let (seqnos, keys, value, base64) = (column("seqno"), column("key"), column("value"), column("base64"));
    if seqnos.is_some() && keys.is_some() {
        return Err(invalid("the first line has both a column 'seqno' and a column 'key'"));
    }
    if value.is_none() && base64.is_none() {
        return Err(invalid("the first line has no column 'value' or 'base64'"));
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |at: usize| record.get(at).unwrap_or("");
        let seqno = seqnos.map(|at| {
            let seqno = field(at).trim().parse().ok().filter(|seqno| *seqno > 0);
            seqno.ok_or_else(|| {
                invalid(format!("line {line}: '{}' is not a whole number of 1 or more", field(at).escape_debug()))
            })
        });
        let bytes = match (value.map_or("", field), base64.map_or("", field)) {
            (value, "") => value.as_bytes().to_vec(),
            ("", base64) => show::from_base64(base64)
                .ok_or_else(|| invalid(format!("line {line}: its \"base64\" is not base64")))?,
            _ => return Err(invalid(format!("line {line}: it has both \"value\" and \"base64\""))),
        };
        let key = keys.map(|at| Number::Key(field(at).to_owned()));
        rows.push((seqno.transpose()?.map(Number::Seqno).or(key), bytes));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(at: Option<&str>, text: &str) -> Result<Corrections> {
        let file = tempfile::NamedTempFile::new().expect("the directory for temporary files is writable");
        fs::write(file.path(), text).expect("it is writable");
        read(at, Some(file.path()), &mut no_times, &mut |key| Ok(100 + key.len() as u64))
    }

    fn no_keys(_: &str) -> Result<u64> {
        panic!("no keys are given")
    }

    fn no_times(_: Hlc, _: Hlc) -> Result<Records> {
        panic!("seqnos are given")
    }

    fn of(pairs: &[(u64, &str)]) -> Corrections {
        pairs.iter().map(|(seqno, value)| (*seqno, Some(value.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn csv_and_json_say_the_same() {
        let expected = of(&[(7, "a,b"), (9, "21.5")]);
        assert_eq!(values(None, "seqno,value\n7,\"a,b\"\n9,21.5\n").unwrap(), expected);
        assert_eq!(values(None, "time, value , seqno\nx,\"a,b\",7\ny,21.5,9\n").unwrap(), expected);
        assert_eq!(values(None, "{\"seqno\":7,\"value\":\"a,b\"}\n{\"seqno\":9,\"value\":21.5}\n").unwrap(), expected);
        assert_eq!(values(None, "[{\"seqno\":7,\"value\":\"a,b\"},{\"seqno\":9,\"value\":21.5}]").unwrap(), expected);
    }

    #[test]
    fn values_can_be_bytes_and_numbers_keep_their_digits() {
        let bytes = Corrections::from([(7, Some(vec![0xff, 0])), (8, Some(b"x".to_vec()))]);
        assert_eq!(values(None, "seqno,value,base64\n7,,/wA=\n8,x,\n").unwrap(), bytes);
        assert_eq!(values(None, "[{\"seqno\":7,\"base64\":\"/wA=\"},{\"seqno\":8,\"value\":\"x\"}]").unwrap(), bytes);
        let digits = "{\"seqno\":7,\"value\":[12345678901234567890123, 21.50]}";
        assert_eq!(values(None, digits).unwrap(), of(&[(7, "[12345678901234567890123,21.50]")]));
    }

    #[test]
    fn records_of_tables_are_named_by_their_keys() {
        let expected = of(&[(103, "1"), (105, "2")]);
        assert_eq!(values(None, "key,value\nbob,1\nalice,2\n").unwrap(), expected);
        assert_eq!(values(None, "{\"key\":\"bob\",\"value\":1}\n{\"key\":\"alice\",\"value\":2}\n").unwrap(), expected);
        assert_eq!(
            values(None, "{\"key\":\"bob\",\"value\":1}\n{\"seqno\":7,\"value\":2}\n").unwrap(),
            of(&[(7, "2"), (103, "1")])
        );
        for wrong in
            ["{\"key\":7,\"value\":1}", "{\"key\":\"bob\",\"seqno\":7,\"value\":1}", "seqno,key,value\n7,bob,1\n"]
        {
            assert_eq!(values(None, wrong).unwrap_err().code(), Code::CorrectionInvalid, "{wrong}");
        }
    }

    #[test]
    fn values_without_seqnos_go_with_a_range() {
        assert_eq!(values(Some("3..4"), "value\na\nb\n").unwrap(), of(&[(3, "a"), (4, "b")]));
        assert_eq!(read(Some("3"), None, &mut no_times, &mut no_keys).unwrap(), Corrections::from([(3, None)]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (at, text) in [
            (None, "value\na\n"),
            (Some("3..5"), "value\na\nb\n"),
            (Some("3..5"), "seqno,value\n6,a\n"),
            (None, "seqno,value\n6,a\n6,b\n"),
            (None, "seqno,value\n0,a\n"),
            (None, "seqno,value\n"),
            (None, "seqno,other\n6,a\n"),
            (None, "{\"seqno\":7}"),
            (None, "{\"seqno\":7,\"value\":null}"),
            (None, "{\"seqno\":7,\"base64\":\"%\"}"),
            (None, "seqno,value,base64\n7,x,eA==\n"),
            (None, "{\"seqno\":-7,\"value\":1}"),
            (None, "{\"seqno\":7,"),
        ] {
            assert_eq!(values(at, text).unwrap_err().code(), Code::CorrectionInvalid, "{at:?} {text}");
        }
        for at in ["0", "x", "3..", "..3"] {
            assert_eq!(
                read(Some(at), None, &mut no_times, &mut no_keys).unwrap_err().code(),
                Code::SeqnoInvalid,
                "{at}"
            );
        }
        assert_eq!(read(Some("4..3"), None, &mut no_times, &mut no_keys).unwrap_err().code(), Code::CorrectionInvalid);
    }

    #[test]
    fn a_range_of_time_has_both_ends() {
        let at = |text: &str| show::moment(text).expect("it is a moment");
        let mut seen = Vec::new();
        let mut within = |from: Hlc, to: Hlc| {
            seen.push((from, to));
            Ok(Records::From(4, 5))
        };
        let (noon, one) = ("2026-11-03T12:00:00Z", "2026-11-03T13:00:00Z");
        let found = read(Some(&format!("{noon}..{one}")), None, &mut within, &mut no_keys).unwrap();
        assert_eq!(found, Corrections::from([(4, None), (5, None)]));
        read(Some(&format!("{noon}..")), None, &mut within, &mut no_keys).unwrap();
        read(Some(&format!("..{one}")), None, &mut within, &mut no_keys).unwrap();
        assert_eq!((seen[0].0, seen[0].1.wall_us()), (at(noon), at(one).wall_us()));
        assert!(seen[0].1 > at(one), "records within the last microsecond belong to it");
        assert_eq!((seen[1].0, seen[2].0), (at(noon), Hlc::ZERO));
        assert!(seen[1].1 > seen[0].1 && seen[2].1 == seen[0].1);
        for wrong in [format!("{one}..{noon}"), "12:00..13:00".into(), format!("{noon}..3")] {
            let refused = read(Some(&wrong), None, &mut no_times, &mut no_keys).unwrap_err();
            assert_eq!(refused.code(), Code::CorrectionInvalid, "{wrong}");
        }
    }
}
