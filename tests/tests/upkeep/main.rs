//! Whole namespaces: older formats, copies, what is left of a damaged one, and how a host
//! ends.

mod copies;
mod ends;
mod formats;
#[allow(unsafe_code)] // One of a process's threads is ended through the debugger's system calls.
mod threads;
mod unsound;

use millrace_tests::Place;
use std::{fs, path::Path};

/// A namespace with logs `in` and `out`, and a shell function that copies from one to the other.
fn copying() -> Place {
    let place = Place::empty();
    place.write("copy.sh", "#!/bin/sh\nprintf 'out\\t%s\\n' \"$(cat)\" >&\"$MILLRACE_APPEND_FD\"\n");
    place.write(
        "millrace.toml",
        "[namespace]\nsegment_size = \"1MiB\"\n[logs.in]\nhistory = 100000\n[logs.out]\nhistory = 100000\n[functions.copy]\n\
         runtime = \"oneshot\"\ncode = \"copy.sh\"\ncommand = [\"./copy.sh\"]\non = [\"in\"]\n",
    );
    place.run(["up"]).ok();
    place
}

/// Inverts a bit of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

/// The same with an identity, which is random, that half of all others are smaller than.
fn copying_as_larger() -> Place {
    let is_larger = |place: &Place| {
        let dir = place.namespace().display().to_string();
        place.run(["--json", "namespace", "check", &dir]).ok().object()["namespace"].as_str().unwrap() >= "8"
    };
    (0..100).map(|_| copying()).find(is_larger).expect("one of a hundred is larger")
}

/// Has `make` make a copy in `to` of such a namespace, again and again until its identity is smaller than its ancestor's.
fn copy_as_smaller(place: &Place, make: &[&str], to: &str) {
    let made = || {
        let dir = place.path().join(to);
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        place.run(make.iter().chain([&to])).ok();
        let copy = place.run(["--json", "namespace", "check", to]).ok().object();
        copy["namespace"].as_str().unwrap() < copy["lineage"][0].as_str().unwrap()
    };
    assert!((0..100).any(|_| made()), "a hundred times larger");
}
