//! How many of its newest records a log keeps.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A log's history when none is given.
pub const HISTORY_DEFAULT: u64 = 10_000;
/// The longest history of a log, unless it is [`HISTORY_ALL`].
pub const HISTORY_MAX: u64 = 1 << 28;
/// The history of a log that keeps its records until they are trimmed.
pub const HISTORY_ALL: u64 = 1 << 62;

/// For JSON, in which [`HISTORY_ALL`] is null.
pub fn serialize<S: Serializer>(history: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*history).filter(|history| *history != HISTORY_ALL).serialize(serializer)
}

/// The inverse of [`serialize`]; [`HISTORY_ALL`] as a number is none.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let history = Option::<u64>::deserialize(deserializer)?;
    Ok(history.map_or(HISTORY_ALL, |history| if history == HISTORY_ALL { u64::MAX } else { history }))
}

/// For people: `10000`, or `all`.
pub fn show(history: u64) -> String {
    if history == HISTORY_ALL { "all".into() } else { history.to_string() }
}
