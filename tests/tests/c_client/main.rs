//! The C client: its codec against the golden frames, its table of errors against the catalogue, and in the modules what
//! it does with hosts that are right, hosts that are wrong, and bytes that are neither.

mod api;
mod channel;
mod conformance;
mod fuzz;
mod hostile;
mod readme;
mod support;

use millrace_tests::{Place, end, sanitized};
use std::{fmt::Write, fs, process::Command};
use support::{root, sources};

#[test]
fn the_codec_reads_and_writes_the_golden_frames() {
    let mut convert = Command::new("python3");
    convert.args([root().join("sdk/c/tests/vectors.py"), root().join("spec/vectors/wire.json")]);
    let table = end(convert, b"").ok();
    let made = [("vectors.inc", table.text().to_owned())];
    let files = sources(&["sdk/c/wire", "sdk/c/tests/vectors.c"]);
    let program = sanitized("vectors", &files, &root().join("sdk/c"), &made, &[]);
    let said = end(Command::new(program), b"");
    assert_eq!(said.code, 0, "{said:#?}");
}

#[test]
fn the_channel_is_that_of_the_golden_bytes() {
    let mut convert = Command::new("python3");
    convert.args([root().join("sdk/c/tests/vectors.py"), root().join("spec/vectors/capability.json")]);
    let made = [("channel.inc", end(convert, b"").ok().text().to_owned())];
    // The test holds crypto.c itself, to look at its parts.
    let files = sources(&["sdk/c/wire/channel.c", "sdk/c/wire/token.c", "sdk/c/tests/channel.c"]);
    let said = end(Command::new(sanitized("channel", &files, &root().join("sdk/c"), &made, &[])), b"");
    assert_eq!(said.code, 0, "{said:#?}");
}

/// The catalogue's entries: number, name, cause, remedy.
fn catalogue() -> Vec<(String, String, String, String)> {
    let text = fs::read_to_string(root().join("spec/errors.toml")).expect("the catalogue is there");
    let field = |entry: &str, key: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(&format!("{key} = "))).expect("it is complete");
        // A string of TOML on one line is a string of C, and of JSON.
        serde_json::from_str::<String>(line.trim()).expect("it is a string")
    };
    let entries = text.split("\n[MR").skip(1);
    let mut all: Vec<_> = entries
        .map(|entry| (entry[..4].to_string(), field(entry, "name"), field(entry, "cause"), field(entry, "remedy")))
        .collect();
    all.sort();
    all
}

/// `LogNotFound` as `LOG_NOT_FOUND`.
fn constant(name: &str) -> String {
    let mut constant = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(c.to_ascii_uppercase());
    }
    constant
}

/// A string of C on as many lines as it takes.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if line.len() + word.len() > 110 {
            writeln!(out, "     \"{line}\"").expect("text can be written");
            line.clear();
        }
        line += &word.replace('\\', "\\\\").replace('"', "\\\"");
    }
    out + &format!("     \"{line}\"")
}

#[test]
fn the_errors_in_c_are_the_catalogue() {
    let mut header = String::from(
        "/* errors.h - every error code as a refusal. Generated from spec/errors.toml: MILLRACE_BLESS=1 cargo test -p\n \
         * millrace-tests --test c_client */\n#ifndef MILLRACE_ERRORS_H\n#define MILLRACE_ERRORS_H\n\n",
    );
    let mut table = String::from("/* Generated from spec/errors.toml, as errors.h is. */\n");
    for (number, name, cause, remedy) in catalogue() {
        writeln!(header, "#define MRC_{} (-{number})", constant(&name)).expect("text can be written");
        writeln!(table, "    {{{number},\n{},\n{}}},", quoted(&cause), quoted(&remedy)).expect("text can be written");
    }
    header += "\n#endif\n";
    for (file, made) in [("sdk/c/errors.h", header), ("sdk/c/errors.inc", table)] {
        let path = root().join(file);
        if std::env::var_os("MILLRACE_BLESS").is_some() {
            fs::write(path, made).expect("sdk/c is writable");
        } else {
            let there = fs::read_to_string(path).unwrap_or_default();
            assert!(there == made, "{file} is not up to date: run the test with MILLRACE_BLESS=1");
        }
    }
}

/// What the objects of these sources need from elsewhere, apart from one another.
fn needs(paths: &[&str]) -> Vec<String> {
    let place = Place::empty();
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c99", "-Os", "-fno-stack-protector", "-fno-pie", "-c"])
        .args(sources(paths))
        .current_dir(place.path());
    assert_eq!(end(gcc, b"").code, 0);
    let objects = || fs::read_dir(place.path()).expect("it is there").map(|entry| entry.expect("it is read").path());
    let mut nm = Command::new("nm");
    nm.args(["--undefined-only", "--format=just-symbols"]).args(objects());
    let said = end(nm, b"").ok();
    let mut names: Vec<String> = said.text().lines().map(String::from).collect();
    names.retain(|name| {
        !name.is_empty() && !name.ends_with(':') && !name.starts_with("mr") && !name.starts_with("_GLOBAL")
    });
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_codec_needs_nothing_and_the_client_allocates_once() {
    let memory = ["memcmp", "memcpy", "memset"];
    let codec = needs(&["sdk/c/wire"]);
    assert!(!codec.is_empty() && codec.iter().all(|name| memory.contains(&&**name)), "{codec:?}");
    for (file, allocates) in [("calls", false), ("client", true), ("fault", false), ("remote", false), ("tail", false)]
    {
        let client = needs(&[&format!("sdk/c/{file}.c")]);
        for name in ["malloc", "calloc", "realloc", "strdup"] {
            assert_eq!(client.iter().any(|needed| needed == name), allocates && name == "malloc", "{file}: {client:?}");
        }
    }
}
