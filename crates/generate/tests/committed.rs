//! The generated files are those that are committed.

use std::{fs, path::Path};

#[test]
fn the_generated_files_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = millrace_generate::files(&root).unwrap_or_else(|error| panic!("{error}"));
    let stale =
        files.into_iter().filter(|(path, made)| fs::read_to_string(root.join(path)).ok().as_ref() != Some(made));
    let stale: Vec<String> = stale.map(|(path, _)| path).collect();
    assert!(stale.is_empty(), "not up to date: run `cargo run -p millrace-generate`: {stale:#?}");
}
