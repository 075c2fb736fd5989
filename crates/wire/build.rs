//! Turns `spec/errors.toml`, the one catalogue of error codes, into the `Code` enum.

use std::{collections::BTreeMap, env, fmt::Write, fs, path::Path};

fn main() {
    let catalogue = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/errors.toml");
    // Relative, so that trees that share a target directory do not watch each other's catalogue.
    println!("cargo:rerun-if-changed=../../spec/errors.toml");
    let text = fs::read_to_string(&catalogue).expect("spec/errors.toml is part of the repository");
    let codes: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&text).expect("spec/errors.toml: every value is a string in a [MRnnnn] table");

    let mut variants = String::new();
    let mut rows = String::new();
    for (id, entry) in &codes {
        assert!(
            id.len() == 6 && id.starts_with("MR") && id[2..].bytes().all(|b| b.is_ascii_digit()),
            "spec/errors.toml: [{id}] is not MR and four digits"
        );
        let field = |key: &str| entry.get(key).unwrap_or_else(|| panic!("spec/errors.toml: [{id}] lacks `{key}`"));
        let (name, cause, remedy) = (field("name"), field("cause"), field("remedy"));
        writeln!(variants, "    /// {id}: {cause}\n    {name},").unwrap();
        writeln!(rows, "    Row {{ code: Code::{name}, id: {id:?}, cause: {cause:?}, remedy: {remedy:?} }},").unwrap();
    }
    let source = format!(
        "/// A stable error code; `spec/errors.toml` is its catalogue.\n\
         #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n#[non_exhaustive]\npub enum Code {{\n{variants}}}\n\n\
         const ROWS: [Row; {}] = [\n{rows}];\n",
        codes.len()
    );
    let out = Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("codes.rs");
    fs::write(out, source).expect("OUT_DIR is writable");
}
