//! Writes the files that are generated from `spec/messages.toml` and `spec/errors.toml`. They are committed, and a test compares them.
//!
//! This crate uses nothing that it generates, so that a file that it wrote wrongly can be written again.

pub mod catalogue;

mod c;
mod errors;
mod frames;
mod languages;
mod page;
mod rust;
mod schema;
mod text;

use std::{fs, path::Path};

/// The generated files of a tree: their paths and what belongs in them.
///
/// # Errors
///
/// What is wrong with a specification, or with a file that has a generated part.
pub fn files(root: &Path) -> Result<Vec<(String, String)>, String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"));
    let within = |path: &str, make: &dyn Fn(&str) -> Result<String, String>| {
        make(&read(path)?).map(|made| (path.to_owned(), made)).map_err(|error| format!("{path}: {error}"))
    };
    let codes = catalogue::parse(&read("spec/errors.toml")?).map_err(|error| format!("spec/errors.toml: {error}"))?;
    let schema =
        schema::Schema::parse(&read("spec/messages.toml")?).map_err(|error| format!("spec/messages.toml: {error}"))?;
    let of_messages = |error| format!("spec/messages.toml: {error}");
    let mut files = vec![
        ("docs/reference/errors.md".into(), errors::page(&codes)),
        within("sdk/python/millrace/_errors/__init__.py", &|text| errors::python(&codes, text))?,
        ("sdk/java/src/main/resources/io/millrace/errors.tsv".into(), errors::java(&codes)),
        ("sdk/c/errors.h".into(), errors::c_header(&codes)),
        ("sdk/c/errors.inc".into(), errors::c_table(&codes)),
        within("spec/protocol/wire.md", &|text| page::page(&schema, text))?,
        ("spec/vectors/messages.json".into(), frames::file(&schema)),
        ("sdk/c/wire/messages.h".into(), c::header(&schema).map_err(of_messages)?),
        ("sdk/c/wire/shapes.inc".into(), c::shapes(&schema).map_err(of_messages)?),
        within("sdk/java/src/main/java/io/millrace/internal/Messages.java", &|text| languages::java(&schema, text))?,
        ("crates/node/src/manage/verbs.rs".into(), rust::verbs(&schema)),
        ("sdk/python/millrace/aio/_messages.py".into(), languages::python(&schema)),
    ];
    let rust = rust::files(&schema).into_iter();
    files.extend(rust.map(|(name, text)| (format!("crates/wire/src/protocol/messages/{name}"), text)));
    Ok(files)
}
