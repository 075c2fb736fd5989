//! Writes the table of the dashboard's files: those that `make web` has built in `web/dist`, or one page that says how to build them.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// The files of a folder and of those below it, as `path of the page, file`. Names that start with a dot are git's.
fn files(folder: &Path, prefix: &str, into: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.')) else {
            continue;
        };
        if path.is_dir() {
            files(&path, &format!("{prefix}{name}/"), into)?;
        } else {
            into.push((format!("{prefix}{name}"), path));
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let crate_ = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dist = crate_.join("../../web/dist");
    println!("cargo::rerun-if-changed={}", if dist.is_dir() { dist.display() } else { crate_.display() });
    let mut found = Vec::new();
    if dist.is_dir() {
        files(&dist.canonicalize()?, "", &mut found)?;
    }
    if !found.iter().any(|(name, _)| name == "index.html") {
        found = vec![("index.html".into(), crate_.join("src/missing.html"))];
    }
    found.sort();
    let rows: String = found.iter().map(|(name, path)| format!("({name:?}, include_bytes!({path:?})),\n")).collect();
    let table = format!("static FILES: &[(&str, &[u8])] = &[\n{rows}];\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("files.rs"), table)
}
