//! Times and ids as documents represent them.

use jiff::Timestamp;
use millrace_wire::{EventId, Hlc};

/// RFC 3339 in UTC with microseconds.
pub fn rfc3339(hlc: Hlc) -> String {
    let moment = i64::try_from(hlc.wall_us()).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    format!("{:.6}", moment.unwrap_or_default())
}

/// The moment that a text in the form of RFC 3339 names, with its offset from UTC.
pub fn hlc_of(text: &str) -> Option<Hlc> {
    let moment = text.parse::<Timestamp>().ok()?;
    u64::try_from(moment.as_microsecond()).ok().map(Hlc::from_wall_us)
}

/// An id, or none.
pub fn id_text(id: EventId) -> Option<String> {
    (!id.is_none()).then(|| id.to_string())
}

/// `1 run`, `2 runs`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}
