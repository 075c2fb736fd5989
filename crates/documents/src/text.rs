//! Times and ids as documents represent them.

use jiff::Timestamp;
use millrace_wire::{EventId, Hlc, TimeField};
use serde_json::Value;

/// RFC 3339 in UTC with microseconds.
pub fn rfc3339(hlc: Hlc) -> String {
    let moment = i64::try_from(hlc.wall_us()).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    format!("{:.6}", moment.unwrap_or_default())
}

/// The moment that a text in the form of RFC 3339 names, with its offset from UTC.
pub fn hlc_of(text: &str) -> Option<Hlc> {
    let moment = text.parse::<Timestamp>().ok()?;
    u64::try_from(moment.as_microsecond()).ok().and_then(Hlc::checked_from_wall_us)
}

/// RFC 3339 in UTC with microseconds, of a time that may be before 1970.
pub fn rfc3339_us(us: i64) -> String {
    format!("{:.6}", Timestamp::from_microsecond(us).unwrap_or_default())
}

/// When what a record reports was observed, in microseconds since 1970: the time in this field of a record that is JSON. None if the record
/// has no such field, or if the field has no time in the years -9999 to 9999.
pub fn observed_us(record: &[u8], time: &TimeField) -> Option<i64> {
    let value: Value = serde_json::from_slice(record).ok()?;
    observed_in(&value, time)
}

/// The same of a record that was parsed.
pub fn observed_in(record: &Value, time: &TimeField) -> Option<i64> {
    let us = match record.pointer(time.field())? {
        Value::String(text) => us_of_rfc3339(text)?,
        Value::Number(number) => {
            let unit = time.unit()?.us();
            match number.as_i64() {
                Some(whole) => whole.checked_mul(unit)?,
                // A float beyond the range becomes its end, which is no time.
                None => (number.as_f64()? * unit as f64).round() as i64,
            }
        }
        _ => return None,
    };
    Timestamp::from_microsecond(us).is_ok().then_some(us)
}

/// A text in the form of RFC 3339 and no other: date, time with seconds, offset from UTC. Digits behind the microseconds are dropped.
fn us_of_rfc3339(text: &str) -> Option<i64> {
    let (head, rest) = text.split_at_checked(19)?;
    let fits = head.bytes().zip(b"0000-00-00T00:00:00").all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        form => byte == *form,
    });
    let (fraction, offset) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("0", rest),
    };
    let fits_offset = match offset.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].into_iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !fits || fraction.is_empty() || !fits_offset {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(6)];
    format!("{}T{}.{fraction}{offset}", &head[..10], &head[11..])
        .parse::<Timestamp>()
        .ok()
        .map(Timestamp::as_microsecond)
}

/// An id, or none.
pub fn id_text(id: EventId) -> Option<String> {
    (!id.is_none()).then(|| id.to_string())
}

/// `1 run`, `2 runs`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::TimeUnit;

    fn observed(record: &str, unit: Option<TimeUnit>) -> Option<i64> {
        observed_us(record.as_bytes(), &TimeField::new("/t", unit).unwrap())
    }

    #[test]
    fn texts_of_rfc_3339_are_times_and_others_are_none() {
        let at = |text: &str| observed(&format!(r#"{{"t": "{text}"}}"#), None);
        for text in [
            "2026-11-03T10:00:00Z",
            "2026-11-03t10:00:00z",
            "2026-11-03 11:00:00+01:00",
            "2026-11-03T10:00:00.0000009Z",
            "2026-11-03T04:30:00-05:30",
            "2026-11-03T10:00:00.0000001234567890123Z",
        ] {
            assert_eq!(at(text), Some(1_793_700_000_000_000), "{text}");
        }
        assert_eq!(at("1969-12-31T23:59:59.5Z"), Some(-500_000));
        assert_eq!(rfc3339_us(-500_000), "1969-12-31T23:59:59.500000Z");
        assert_eq!(rfc3339_us(at("2500-01-01T00:00:00.25Z").unwrap()), "2500-01-01T00:00:00.250000Z");
        for text in [
            "",
            "2026-11-03",
            "2026-11-03T10:00:00",
            "2026-11-03T10:00Z",
            "20261103T100000Z",
            "2026-11-03T10:00:00+0100",
            "2026-11-03T10:00:00Z[UTC]",
            "2026-13-03T10:00:00Z",
            "2026-11-03T10:00:00.Z",
            " 2026-11-03T10:00:00Z",
            "2026-11-03T10:00:00+99:00",
            "1793700000",
            "+2026-11-03T10:00:00Z",
            "2026\u{2013}11-03T10:00:00Z",
            "now",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_times_only_in_the_unit_that_the_log_declares() {
        use TimeUnit::{Microseconds, Milliseconds, Seconds};
        let at = |number: &str, unit| observed(&format!(r#"{{"t": {number}}}"#), unit);
        assert_eq!(at("1793700000", None), None);
        assert_eq!(at("1793700000", Some(Seconds)), Some(1_793_700_000_000_000));
        assert_eq!(at("1793700000.25", Some(Seconds)), Some(1_793_700_000_250_000));
        assert_eq!(at("1793700000001", Some(Milliseconds)), Some(1_793_700_000_001_000));
        assert_eq!(at("1793700000000001", Some(Microseconds)), Some(1_793_700_000_000_001));
        assert_eq!(at("-1", Some(Seconds)), Some(-1_000_000));
        for number in ["1e300", "-1e300", "9223372036854775807", "18446744073709551615", "true", "null", "[1]", "{}"] {
            assert_eq!(at(number, Some(Seconds)), None, "{number}");
        }
        // A text is one with a unit, too.
        assert_eq!(at(r#""1970-01-01T00:00:01Z""#, Some(Milliseconds)), Some(1_000_000));
        assert_eq!((observed("21.5", Some(Seconds)), observed("", None), observed("\u{1}", None)), (None, None, None));
    }

    #[test]
    fn a_moment_beyond_the_clock_is_refused() {
        assert!(hlc_of("2112-09-17T00:00:00Z").is_some());
        for text in ["2112-09-18T00:00:00Z", "2200-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "1969-12-31T00:00:00Z"] {
            assert_eq!(hlc_of(text), None, "{text}");
        }
    }
}
