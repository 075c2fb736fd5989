//! Turns `spec/errors.toml`, the one catalogue of error codes, into the `Code` enum.

use std::{collections::BTreeMap, env, fmt::Write, fs, path::Path};

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

fn main() {
    let catalogue = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/errors.toml");
    // Relative, so that trees that share a target directory do not watch each other's catalogue.
    println!("cargo:rerun-if-changed=../../spec/errors.toml");
    let text = fs::read_to_string(&catalogue).expect("spec/errors.toml is part of the repository");
    let codes: BTreeMap<String, toml::Table> =
        toml::from_str(&text).expect("spec/errors.toml: every value stands in a [MRnnnn] table");

    let mut variants = String::new();
    let mut rows = String::new();
    for (id, entry) in &codes {
        assert!(
            id.len() == 6 && id.starts_with("MR") && id[2..].bytes().all(|b| b.is_ascii_digit()),
            "spec/errors.toml: [{id}] is not MR and four digits"
        );
        let unknown = entry.keys().find(|key| !KEYS.contains(&key.as_str()));
        assert!(unknown.is_none(), "spec/errors.toml: [{id}] has `{}`", unknown.unwrap());
        let field = |key: &str| {
            let text = entry.get(key).and_then(toml::Value::as_str);
            text.unwrap_or_else(|| panic!("spec/errors.toml: [{id}] lacks the text `{key}`"))
        };
        let number = |key: &str| {
            let number = |value: &toml::Value| value.as_integer().expect("spec/errors.toml: a number");
            entry.get(key).map(number)
        };
        let (name, cause, remedy, kind) = (field("name"), field("cause"), field("remedy"), field("kind"));
        let (_, variant, status) = KINDS
            .iter()
            .find(|(text, ..)| *text == kind)
            .unwrap_or_else(|| panic!("spec/errors.toml: [{id}] is of the unknown kind '{kind}'"));
        let (http, exit) = (number("http").unwrap_or(*status), number("exit").unwrap_or(1));
        let retry = number("retry_ms");
        let flag = |key: &str, default: bool| {
            let flag = |value: &toml::Value| value.as_bool().expect("spec/errors.toml: true or false");
            entry.get(key).map_or(default, flag)
        };
        let (reveals, lost) = (flag("reveals", !id.starts_with("MR1")), flag("lost", false));
        let transient = match entry.get("transient").map(toml::Value::as_str) {
            None => "None",
            Some(Some("disk")) => "Some(Transient::Disk)",
            Some(Some("room")) => "Some(Transient::Room)",
            Some(_) => panic!("spec/errors.toml: [{id}] is transient because of neither the disk nor room"),
        };
        let remedy_of = |key: &str| entry.get(key).and_then(toml::Value::as_str).unwrap_or(remedy);
        let (remedy_http, remedy_python) = (remedy_of("remedy_http"), remedy_of("remedy_python"));
        writeln!(variants, "    /// {id}: {cause}\n    {name},").unwrap();
        writeln!(
            rows,
            "    Row {{ code: Code::{name}, id: {id:?}, cause: {cause:?}, remedy: {remedy:?}, remedy_http: {remedy_http:?}, \
             remedy_python: {remedy_python:?}, kind: ErrorKind::{variant}, http: {http}, exit: {exit}, retry_ms: {retry:?}, \
             transient: {transient}, reveals: {reveals}, lost: {lost} }},"
        )
        .unwrap();
    }
    let source = format!(
        "/// A stable error code; `spec/errors.toml` is its catalogue.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n#[non_exhaustive]\npub enum Code {{\n{variants}}}\n\n\
         static ROWS: [Row; {}] = [\n{rows}];\n",
        codes.len()
    );
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("codes.rs");
    fs::write(out, source).expect("OUT_DIR is writable");
}
