//! The C client: its codec against the golden frames, and in the modules what it does with hosts that are right, hosts that are
//! wrong, and bytes that are neither.

mod api;
mod channel;
mod conformance;
mod fuzz;
mod hostile;
mod readme;
mod support;

use millrace_tests::{Place, end, sanitized};
use std::{fs, process::Command};
use support::{root, sources};

#[test]
fn the_codec_reads_and_writes_the_golden_frames() {
    let mut convert = Command::new("python3");
    convert.arg(root().join("sdk/c/tests/vectors.py"));
    convert.args(["wire.json", "objects.json", "messages.json"].map(|name| root().join("spec/vectors").join(name)));
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
    // Of the cryptography, there is a fast one and a small one.
    for (name, flags) in [("channel", &[][..]), ("channel_small", &["-DMRD_SMALL"][..])] {
        let said = end(Command::new(sanitized(name, &files, &root().join("sdk/c"), &made, flags)), b"");
        assert_eq!(said.code, 0, "{name}: {said:#?}");
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
