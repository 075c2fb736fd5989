//! What the build has made before a test runs, and what tests compile once for all of them. No test calls cargo.

use crate::{Ended, end};
use std::{
    collections::hash_map::DefaultHasher,
    fs,
    hash::{Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

/// `target/<profile>`, from which this test runs.
fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>").to_owned()
}

/// A file that `cargo build --workspace` makes in `target/<profile>`. One that is missing, or older than a source it was made
/// from, fails the test: it would test something else than the tree.
#[track_caller]
pub fn built(name: &str) -> PathBuf {
    let path = profile_dir().join(name);
    let make = "run `cargo build --workspace` (with --release for a release test), or set MILLRACE";
    let Ok(made) = fs::metadata(&path).and_then(|made| made.modified()) else {
        panic!("{} does not exist: {make}", path.display());
    };
    // Cargo writes down beside it what it was made from: `target: source source…`, spaces escaped.
    let sources = fs::read_to_string(path.with_extension("d")).expect("cargo wrote down the sources");
    let (_, sources) = sources.split_once(": ").expect("target: sources");
    for source in sources.trim().replace("\\ ", "\0").split(' ').map(|source| source.replace('\0', " ")) {
        let changed = fs::metadata(&source).and_then(|source| source.modified()).ok();
        assert!(changed.is_some_and(|changed| changed <= made), "{} is older than {source}: {make}", path.display());
    }
    path
}

/// The program that clang makes of these sources and arguments with its sanitizers, compiled by the first test that asks for
/// it and kept in `target/c`. `made` are generated files that the sources include: names with their content.
#[track_caller]
pub fn sanitized(name: &str, sources: &[PathBuf], headers: &Path, made: &[(&str, String)], more: &[&str]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (name, made, more).hash(&mut hasher);
    let texts = fs::read_dir(headers).expect("the headers are there").map(|entry| entry.expect("it is read").path());
    let mut texts: Vec<PathBuf> = texts.chain([headers.join("wire")]).flat_map(files_in).collect();
    texts.extend_from_slice(sources);
    // A library among the arguments is part of the program as well.
    texts.extend(more.iter().map(PathBuf::from).filter(|path| path.is_file()));
    texts.sort();
    texts.dedup();
    for text in texts {
        // Python may be writing its cache beside them; clang misses a source that is not there.
        fs::read(&text).ok().map(|bytes| (&text, bytes)).hash(&mut hasher);
    }
    let place = profile_dir().with_file_name("c").join(format!("{name}-{:016x}", hasher.finish()));
    let program = place.join(name);
    if program.exists() {
        return program;
    }
    // Several processes may compile the same: each does so in a directory of its own, and the first to end gives the name.
    fs::create_dir_all(place.parent().expect("below target")).expect("target can be written");
    let work = tempfile::tempdir_in(place.parent().expect("below target")).expect("target can be written");
    for (file, content) in made {
        fs::write(work.path().join(file), content).expect("the generated file is written");
    }
    let mut command = Command::new("clang");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wno-missing-field-initializers", "-Werror"]);
    command.args(["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"]);
    command.arg(work.path()).arg("-I").arg(headers).args(sources).args(more).arg("-o").arg(work.path().join(name));
    let Ended { code, stderr, .. } = end(command, b"");
    assert_eq!(code, 0, "{name} is not compiled: {stderr}");
    let _ = fs::rename(work.path(), &place);
    assert!(program.exists(), "{} was not kept", program.display());
    program
}

fn files_in(path: PathBuf) -> Vec<PathBuf> {
    if path.is_dir() {
        let entries = fs::read_dir(&path).expect("the folder is there").map(|entry| entry.expect("it is read").path());
        return entries.filter(|path| path.is_file()).collect();
    }
    vec![path]
}
