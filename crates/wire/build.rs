//! Turns `spec/errors.toml`, the one catalogue of error codes, into the `Code` enum.

#[path = "../generate/src/catalogue.rs"]
mod catalogue;

use std::{env, fmt::Write, fs, path::Path};

fn main() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/errors.toml");
    // Relative, so that trees that share a target directory do not watch each other's catalogue.
    println!("cargo:rerun-if-changed=../../spec/errors.toml");
    println!("cargo:rerun-if-changed=../generate/src/catalogue.rs");
    let text = fs::read_to_string(&file).expect("spec/errors.toml is part of the repository");
    let codes = catalogue::parse(&text).unwrap_or_else(|error| panic!("spec/errors.toml: {error}"));
    let mut variants = String::new();
    let mut rows = String::new();
    for entry in &codes {
        let catalogue::Entry { id, name, cause, remedy, remedy_http, remedy_python, kind, .. } = entry;
        let (http, exit, retry, reveals, lost) = (entry.http, entry.exit, entry.retry_ms, entry.reveals, entry.lost);
        let transient = entry.transient.map_or("None".into(), |of| format!("Some(Transient::{of})"));
        writeln!(variants, "    /// {id}: {cause}\n    {name},").unwrap();
        writeln!(
            rows,
            "    Row {{ code: Code::{name}, id: {id:?}, cause: {cause:?}, remedy: {remedy:?}, remedy_http: {remedy_http:?}, \
             remedy_python: {remedy_python:?}, kind: ErrorKind::{kind}, http: {http}, exit: {exit}, retry_ms: {retry:?}, \
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
