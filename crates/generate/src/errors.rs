//! The page and the tables of error codes, except those in Rust, which the build of `wire` writes.

use crate::{
    catalogue::Entry,
    text::{between, constant},
};
use std::collections::BTreeMap;

/// `docs/reference/errors.md`.
pub fn page(codes: &[Entry]) -> String {
    let mut page = String::from(
        "# Errors\n\nGenerated from `spec/errors.toml`. `millrace error CODE` prints one of them. Each entry ends with the status of an\n\
         HTTP answer, the exit code of a command, and the exception class of the Python package.\n",
    );
    for entry in codes {
        let Entry { id, name, cause, remedy, http, exit, .. } = entry;
        let retry = entry.retry_ms.map(|ms| format!(" · try again after {ms} ms")).unwrap_or_default();
        page += &format!("\n## {id} {name}\n\n{cause}\n\n{remedy}\n\n");
        page += &format!("*HTTP {http} · exit code {exit} · `millrace.{}`{retry}*\n", class(entry));
    }
    page
}

/// The exception class of Python for a code.
fn class(entry: &Entry) -> &'static str {
    match entry.kind {
        "Function" => "FunctionFailed",
        "Storage" => "StorageFailed",
        kind => kind,
    }
}

/// `_errors/__init__.py` with its table replaced.
///
/// # Errors
///
/// If it has no marks for the table.
pub fn python(codes: &[Entry], text: &str) -> Result<String, String> {
    let mut classes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in codes {
        classes.entry(class(entry)).or_default().push(&entry.id[2..]);
    }
    let mut table = String::from("_KINDS = {\n");
    for (class, numbers) in classes {
        table += "    **dict.fromkeys((\n";
        for numbers in numbers.chunks(16) {
            table += &format!("        {},\n", numbers.join(", "));
        }
        table += &format!("    ), {class}),\n");
    }
    let lost: Vec<String> = codes.iter().filter(|entry| entry.lost).map(|entry| format!("{:?}", entry.id)).collect();
    table += &format!(
        "}}\n#: The errors after which another connection may help.\nLOST = frozenset(({}))\n",
        lost.join(", ")
    );
    between(text, "# fmt: off", "# fmt: on", &table)
}

/// `errors.tsv` of the client in Java.
pub fn java(codes: &[Entry]) -> String {
    let line = |entry: &Entry| format!("{}\t{}\t{}\t{}\n", entry.id, constant(entry.kind), entry.cause, entry.remedy);
    codes.iter().map(line).collect()
}

/// `errors.h` of the client in C.
pub fn c_header(codes: &[Entry]) -> String {
    let mut header = String::from(
        "/* errors.h - every error code as a refusal. Generated from spec/errors.toml by `cargo run -p millrace-generate`. */\n\
         #ifndef MILLRACE_ERRORS_H\n#define MILLRACE_ERRORS_H\n\n",
    );
    for entry in codes {
        header += &format!("#define MRC_{} (-{})\n", constant(&entry.name), &entry.id[2..]);
    }
    header + "\n#endif\n"
}

/// `errors.inc` of the client in C.
pub fn c_table(codes: &[Entry]) -> String {
    let mut table = String::from("/* Generated from spec/errors.toml, as errors.h is. */\n");
    for entry in codes {
        table += &format!("    {{{},\n{},\n{}}},\n", &entry.id[2..], quoted(&entry.cause), quoted(&entry.remedy));
    }
    table
}

/// A string of C on as many lines as it takes.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if line.len() + word.len() > 110 {
            out += &format!("     \"{line}\"\n");
            line.clear();
        }
        line += &word.replace('\\', "\\\\").replace('"', "\\\"");
    }
    out + &format!("     \"{line}\"")
}
