//! Sizes and durations as people write them: `64MiB`, `100ms`.
//!
//! `millrace.toml` and the command line accept the same forms, and output uses them.

use std::time::Duration;

/// Units of size, in the order they are tried when printing.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Units of time in nanoseconds, largest first.
const TIMES: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A decimal number split from the unit behind it: `("1.5", "s")`.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..unit], text[unit..].trim_start())
}

/// `number` times `unit`, exact for decimal fractions, or `None` if it is no number or does not fit.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || (number.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut total = u128::from(whole.parse::<u64>().ok()?) * u128::from(unit);
    if !fraction.is_empty() {
        let digits = u128::from(fraction.parse::<u64>().ok()?);
        total += digits * u128::from(unit) / 10_u128.pow(fraction.len() as u32);
    }
    u64::try_from(total).ok()
}

/// Reads a size such as `64MiB`, `10 MB` or `4096` (bytes); the error names the expected form.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit_bytes = match unit {
        "" => Some(1),
        unit => SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, bytes)| *bytes),
    };
    unit_bytes
        .and_then(|bytes| scaled(number, bytes))
        .ok_or_else(|| format!("'{}' is not a size such as '64MiB', '10MB' or '4096'", text.escape_debug()))
}

/// Reads a duration such as `100ms`, `1.5s` or `7d`; a bare number is refused because its unit would be a guess.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    if unit.is_empty() && !number.is_empty() {
        return Err(format!("'{number}' has no unit; write '{number}s' or '{number}ms'"));
    }
    let unit_ns = TIMES.iter().find(|(name, _)| *name == unit || (unit == "µs" && *name == "us"));
    unit_ns
        .and_then(|(_, ns)| scaled(number, *ns))
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("'{}' is not a duration such as '100ms', '30s', '5m' or '7d'", text.escape_debug()))
}

/// Reads a number such as `10000`, `10k` or `2M`; the error names the expected form.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" => Some(1),
        "k" | "K" => Some(1_000),
        "m" | "M" => Some(1_000_000),
        _ => None,
    };
    // A fraction of a unit is fine as long as the whole is one.
    let whole =
        |factor: u64| number.split_once('.').is_none_or(|(_, digits)| 10_u64.pow(digits.len() as u32) <= factor);
    factor
        .filter(|factor| number.len() <= 20 && whole(*factor))
        .and_then(|factor| scaled(number, factor))
        .ok_or_else(|| format!("'{}' is not a whole number such as '10000' or '10k'", text.escape_debug()))
}

/// A size for people: exact in a binary unit if it is one (`64 MiB`), else to one decimal.
pub fn show_size(bytes: u64) -> String {
    for (name, unit) in &SIZES[..4] {
        if bytes >= *unit {
            let tenths = (u128::from(bytes) * 10 + u128::from(*unit) / 2) / u128::from(*unit);
            let (whole, tenth) = (tenths / 10, tenths % 10);
            return if tenth == 0 { format!("{whole} {name}") } else { format!("{whole}.{tenth} {name}") };
        }
    }
    format!("{bytes} B")
}

/// A duration for people, two significant units at most: `1.2 ms`, `3m 20s`, `5d 3h`.
pub fn show_duration(duration: Duration) -> String {
    let ns = duration.as_nanos();
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..100_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        100_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => match duration.as_secs() {
            0..60 => format!("{:.1} s", duration.as_secs_f64()),
            s @ 60..3_600 => format!("{}m {}s", s / 60, s % 60),
            s @ 3_600..86_400 => format!("{}h {}m", s / 3_600, s % 3_600 / 60),
            s => format!("{}d {}h", s / 86_400, s % 86_400 / 3_600),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("64 mib", 64 << 20),
            ("10MB", 10_000_000),
            ("1.5KiB", 1536),
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "MiB", "-1", "1.MiB", ".5MiB", "1e3", "64Mb64", "99999999999TiB", "1,5MiB", "６4", "1.2.3"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_written() {
        for (text, number) in [("0", 0), ("10000", 10_000), ("10k", 10_000), ("1.5M", 1_500_000), ("2 m", 2_000_000)] {
            assert_eq!(parse_count(text), Ok(number), "{text}");
        }
        for text in
            ["", "k", "-1", "1.5", "1.2345k", "10kB", "18446744073709551616", "9999999999999999999M", "1.00000000000k"]
        {
            assert!(parse_count(text).is_err(), "{text}");
        }
        assert_eq!(parse_count("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn durations_are_read_as_written() {
        for (text, ms) in [("100ms", 100), ("1.5s", 1500), ("2m", 120_000), ("1 h", 3_600_000), ("7d", 604_800_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("3µs"), parse_duration("3us"));
    }

    #[test]
    fn a_duration_without_a_unit_says_how_to_write_it() {
        assert!(parse_duration("30").unwrap_err().contains("'30s'"));
        for text in ["", "s", "-1s", "1M", "1 fortnight", "99999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn people_read_two_digits_or_two_units() {
        assert_eq!(show_size(64 << 20), "64 MiB");
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(1023), "1023 B");
        assert_eq!(show_size(u64::MAX), "16777216 TiB");
        assert_eq!(show_duration(Duration::from_micros(1234)), "1.2 ms");
        assert_eq!(show_duration(Duration::from_millis(2500)), "2.5 s");
        assert_eq!(show_duration(Duration::from_secs(200)), "3m 20s");
        assert_eq!(show_duration(Duration::from_secs(500_000)), "5d 18h");
    }
}
