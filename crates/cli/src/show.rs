//! Times, ids and record bytes as people and programs read them.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use jiff::{Timestamp, tz::TimeZone};
use millrace_node::{EventId, Hlc, application::units};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

fn timestamp(hlc: Hlc) -> Timestamp {
    i64::try_from(hlc.wall_us()).ok().and_then(|us| Timestamp::from_microsecond(us).ok()).unwrap_or_default()
}

/// A time in seconds since 1970: RFC 3339 in UTC.
pub fn time_of(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().to_string()
}

/// A moment for programs: RFC 3339 in UTC with microseconds.
pub fn rfc3339(hlc: Hlc) -> String {
    format!("{:.6}", timestamp(hlc))
}

/// The moment that [`rfc3339`] writes so.
pub fn moment(text: &str) -> Option<Hlc> {
    millrace_documents::hlc_of(text)
}

/// The local time of day with milliseconds, for lists that scroll by.
pub fn clock(hlc: Hlc) -> String {
    timestamp(hlc).to_zoned(TimeZone::system()).strftime("%H:%M:%S%.3f").to_string()
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// How long ago, for people: `now`, `12s ago`, `3m ago`, `2d ago`.
pub fn ago(hlc: Hlc, now_us: u64) -> String {
    let us = now_us.saturating_sub(hlc.wall_us());
    match us / 1_000_000 {
        0 if us < 1_000 => "now".into(),
        0 => format!("{}ms ago", us / 1_000),
        s @ 1..60 => format!("{s}s ago"),
        s @ 60..3_600 => format!("{}m ago", s / 60),
        s @ 3_600..86_400 => format!("{}h ago", s / 3_600),
        s => format!("{}d ago", s / 86_400),
    }
}

/// The time between two moments; `None` if the clock says it is negative.
pub fn between(from: Hlc, to: Hlc) -> Option<String> {
    let us = to.wall_us().checked_sub(from.wall_us())?;
    Some(units::show_duration(Duration::from_micros(us)))
}

/// A record's bytes on one line.
///
/// A line of text is printed as it is, so that what was appended can be copied and parsed. JSON of several lines is joined to
/// one, which changes nothing of what it says. In everything else control characters, bytes that are not UTF-8 and, so that they
/// can be told apart, backslashes are escaped.
pub fn one_line(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        if text.chars().all(is_plain) {
            return text.to_owned();
        }
        // The lines of JSON break between its tokens: within a text they would be escaped.
        let joined = || text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        if text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
            let joined = joined();
            if joined.chars().all(is_plain) {
                return joined;
            }
        }
    }
    escaped(bytes)
}

/// Whether a terminal shows it as what it is: no control character, no line separator, and nothing that reverses text.
fn is_plain(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                // Quotes need no escape here, unlike in `escape_debug`.
                '"' | '\'' => shown.push(c),
                '\\' => shown.push_str("\\\\"),
                c => shown.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// As [`one_line`], but at most `chars_max` characters of it, for lists.
pub fn brief(bytes: &[u8], chars_max: usize) -> String {
    // A character is at most four bytes, so no more of a long record needs to be looked at.
    let head = &bytes[..bytes.len().min(chars_max.saturating_mul(4))];
    let line = one_line(head);
    if head.len() == bytes.len() && line.chars().count() <= chars_max {
        return line;
    }
    let mut cut: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// The first line of an error, for lists: a traceback follows it.
pub fn headline(error: &str, chars_max: usize) -> String {
    brief(error.lines().next().unwrap_or_default().as_bytes(), chars_max)
}

/// A record alone on the screen: text as it is with its lines, everything that could disturb a terminal escaped.
pub fn whole(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

/// Adds a record's bytes to an object: `data` if they are text, else `base64`.
pub fn put_data(object: &mut Value, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object["data"] = json!(text),
        Err(_) => object["base64"] = json!(to_base64(bytes)),
    }
}

/// Bytes as base64 text.
pub fn to_base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes base64.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// An id for programs: text, or null if there is none.
pub fn id(id: EventId) -> Value {
    if id.is_none() { Value::Null } else { json!(id.to_string()) }
}

/// `1 run`, `2 runs`, `12,345 runs`.
pub fn count(n: u64, one: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {one}{plural}", grouped(n))
}

/// The outcome of the pending runs of a removed function.
pub fn given_up(runs: u64) -> String {
    match runs {
        0 => String::new(),
        1 => "; 1 pending run became a dead letter".into(),
        runs => format!("; {} became dead letters", count(runs, "pending run")),
    }
}

/// A number with its digits in threes: `12,345`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut shown = String::new();
    for (i, digit) in digits.chars().enumerate() {
        // Up to four digits are read at a glance.
        if i > 0 && digits.len() > 4 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_escaped_and_text_is_not() {
        assert_eq!(one_line("21.5 °C \"x\" it's".as_bytes()), "21.5 °C \"x\" it's");
        assert_eq!(one_line(b"a\nb\x1b[31m\0\xff\\"), "a\\nb\\u{1b}[31m\\0\\xff\\\\");
        let json = br#"{"path": "C:\\temp", "text": "a\nb"}"#;
        assert_eq!(one_line(json), std::str::from_utf8(json).unwrap());
        assert_eq!(one_line(b"{\n\t\"a\": [\r\n  1,\n  \"x\\n\"\n]}\n"), r#"{ "a": [ 1, "x\n" ]}"#);
        assert_eq!(one_line(b"{not json\n\\"), "{not json\\n\\\\");
        assert_eq!(one_line("हिन्दी".as_bytes()), "हिन्दी");
        assert_eq!(one_line("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(whole(b"a\nb\tc"), "a\nb\tc");
        assert_eq!(whole(b"\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
    }

    #[test]
    fn long_records_are_cut_for_lists() {
        assert_eq!(brief(b"hello", 5), "hello");
        assert_eq!(brief(b"hello!", 5), "hell…");
        assert_eq!(brief(&[b'x'; 1 << 20], 8), "xxxxxxx…");
        assert_eq!(brief("µµµµµµ".as_bytes(), 4), "µµµ…");
    }

    #[test]
    fn moments_are_told_from_now_and_exactly() {
        let hlc = Hlc::from_wall_us(1_700_000_000_123_456);
        assert_eq!(rfc3339(hlc), "2023-11-14T22:13:20.123456Z");
        assert_eq!(moment(&rfc3339(hlc)), Some(hlc));
        assert_eq!((moment("yesterday"), moment("1969-01-01T00:00:00Z")), (None, None));
        assert_eq!(ago(hlc, hlc.wall_us()), "now");
        assert_eq!(ago(hlc, hlc.wall_us() + 90_000_000), "1m ago");
        assert_eq!(ago(hlc, 0), "now", "a clock that is behind");
        assert_eq!(between(hlc, Hlc::from_wall_us(hlc.wall_us() + 1500)).as_deref(), Some("1.5 ms"));
        assert_eq!(between(hlc, Hlc::default()), None);
    }

    #[test]
    fn bytes_come_back_from_json() {
        let mut object = json!({});
        put_data(&mut object, b"\xff\x00");
        assert_eq!(from_base64(object["base64"].as_str().unwrap()).unwrap(), b"\xff\x00");
        put_data(&mut object, "é".as_bytes());
        assert_eq!(object["data"], "é");
    }

    #[test]
    fn numbers_are_grouped_when_long() {
        assert_eq!(
            (grouped(9999), grouped(12345), grouped(1234567)),
            ("9999".into(), "12,345".into(), "1,234,567".into())
        );
        assert_eq!((count(1, "run"), count(2, "run")), ("1 run".into(), "2 runs".into()));
    }
}
