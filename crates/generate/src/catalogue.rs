//! `spec/errors.toml`, checked. The build of `wire` includes this file, too.

use std::collections::BTreeMap;

const KEYS: [&str; 12] = [
    "name",
    "kind",
    "http",
    "exit",
    "retry_ms",
    "transient",
    "reveals",
    "lost",
    "cause",
    "remedy",
    "remedy_http",
    "remedy_python",
];

/// Each kind as the catalogue writes it, its variant, and the status of an HTTP answer of this kind.
const KINDS: [(&str, &str, i64); 12] = [
    ("invalid", "Invalid", 400),
    ("denied", "Denied", 403),
    ("not-found", "NotFound", 404),
    ("conflict", "Conflict", 409),
    ("gone", "Gone", 410),
    ("busy", "Busy", 503),
    ("timed-out", "TimedOut", 504),
    ("unavailable", "Unavailable", 503),
    ("function", "Function", 500),
    ("storage", "Storage", 500),
    ("damaged", "Damaged", 500),
    ("missing", "Missing", 500),
];

/// An error code.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Such as `MR2101`.
    pub id: String,
    /// Such as `LogNotFound`.
    pub name: String,
    /// The variant of its kind, such as `NotFound`.
    pub kind: &'static str,
    /// The status of an HTTP answer.
    pub http: i64,
    /// The exit code of a command.
    pub exit: i64,
    /// When to try again.
    pub retry_ms: Option<i64>,
    /// `Disk` or `Room`, if it may pass.
    pub transient: Option<&'static str>,
    /// Whether it may reveal the state of a namespace.
    pub reveals: bool,
    /// Whether it says that a host was lost.
    pub lost: bool,
    /// What happened.
    pub cause: String,
    /// What to do.
    pub remedy: String,
    /// What to do over HTTP.
    pub remedy_http: String,
    /// What to do in Python.
    pub remedy_python: String,
}

/// The codes, in order.
///
/// # Errors
///
/// What is wrong with the file.
pub fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let codes: BTreeMap<String, toml::Table> =
        toml::from_str(text).map_err(|error| format!("every value must be in a table [MRnnnn]: {error}"))?;
    codes.into_iter().map(|(id, entry)| read(&id, &entry).map_err(|error| format!("[{id}] {error}"))).collect()
}

fn read(id: &str, entry: &toml::Table) -> Result<Entry, String> {
    if !(id.len() == 6 && id.starts_with("MR") && id[2..].bytes().all(|b| b.is_ascii_digit())) {
        return Err("is not MR and four digits".into());
    }
    if let Some(unknown) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("has `{unknown}`"));
    }
    let text = |key: &str| entry.get(key).and_then(toml::Value::as_str).map(String::from);
    let field = |key: &str| text(key).ok_or_else(|| format!("lacks the text `{key}`"));
    let number = |key: &str| {
        let number = |value: &toml::Value| value.as_integer().ok_or_else(|| format!("`{key}` is no number"));
        entry.get(key).map(number).transpose()
    };
    let flag = |key: &str, default: bool| {
        let flag = |value: &toml::Value| value.as_bool().ok_or_else(|| format!("`{key}` is neither true nor false"));
        entry.get(key).map_or(Ok(default), flag)
    };
    let kind = field("kind")?;
    let (_, kind, status) =
        KINDS.iter().find(|(text, ..)| *text == kind).ok_or_else(|| format!("is of the unknown kind '{kind}'"))?;
    let transient = match text("transient").as_deref() {
        None => None,
        Some("disk") => Some("Disk"),
        Some("room") => Some("Room"),
        Some(_) => return Err("is transient because of neither the disk nor room".into()),
    };
    let remedy = field("remedy")?;
    Ok(Entry {
        id: id.into(),
        name: field("name")?,
        kind,
        http: number("http")?.unwrap_or(*status),
        exit: number("exit")?.unwrap_or(1),
        retry_ms: number("retry_ms")?,
        transient,
        reveals: flag("reveals", !id.starts_with("MR1"))?,
        lost: flag("lost", false)?,
        cause: field("cause")?,
        remedy_http: text("remedy_http").unwrap_or_else(|| remedy.clone()),
        remedy_python: text("remedy_python").unwrap_or_else(|| remedy.clone()),
        remedy,
    })
}
