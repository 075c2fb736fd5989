//! The tour of the README, typed as it is there.

use millrace_tests::{PAGE, Place, Port, binary, end_within, patient};
use std::{fs, path::Path, process::Command};

/// The shell blocks of a section of the README.
fn blocks(section: &str) -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).expect("the README is part of the repository");
    let (_, text) = readme.split_once(&format!("\n## {section}\n")).expect("the section is there");
    let text = text.split("\n## ").next().expect("split gives at least one part");
    let inside = |block: &str| block.split_once("\n```").expect("every block ends").0.to_string();
    text.split("```sh\n").skip(1).map(inside).collect()
}

#[test]
fn the_first_lines_of_the_readme_end_in_a_caused_record() {
    let place = Place::empty();
    let typed = patient(&blocks("In a minute").concat());
    assert_eq!(typed.lines().count(), 6, "{typed}");
    let script = format!("set -me\ntrap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{typed}\nwait\n");
    let mut shell = Command::new("bash");
    let path = std::env::var("PATH").expect("there is a PATH");
    let bin = binary().parent().expect("the binary is in a directory").display().to_string();
    shell.args(["-c", &script]).current_dir(place.path()).env("PATH", format!("{bin}:{path}"));
    shell.env_remove("MILLRACE_NAMESPACE").env("MILLRACE_LISTEN", "none");
    let ended = end_within(PAGE, shell, b"");
    assert_eq!(ended.code, 0, "{}\n{}", ended.text(), ended.stderr);
    for expected in ["outbox 1  Hello, world!\n", "└─ appended by run of hello ", "   └─ inbox@1 "] {
        assert!(ended.text().contains(expected), "{expected} is not in\n{}", ended.text());
    }
}

#[test]
fn the_tour_can_be_typed_as_it_stands() {
    let place = Place::empty();
    // The first block builds the binary and goes to an empty directory; both are done.
    // The port of the page may be taken here.
    let port = Port::reserve();
    let free = format!("127.0.0.1:{port}");
    let typed = patient(&blocks("A tour")[1..].join("\n")).replace("127.0.0.1:7070", &free);
    assert!(typed.contains("millrace up") && typed.contains("millrace why"), "{typed}");
    // Job control, as in the shell somebody types into; hosts must not outlive the test.
    let script = format!("set -me\ntrap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{typed}\nwait\n");
    let mut shell = Command::new("bash");
    let path = std::env::var("PATH").expect("there is a PATH");
    let bin = binary().parent().expect("the binary is in a directory").display().to_string();
    shell.args(["-c", &script]).current_dir(place.path()).env("PATH", format!("{bin}:{path}"));
    shell.env_remove("MILLRACE_NAMESPACE").env("MILLRACE_LISTEN", &free).env("MILLRACE_NAME", "tour");
    let ended = end_within(PAGE, shell, b"");
    assert_eq!(ended.code, 0, "{}\n{}", ended.text(), ended.stderr);
    for expected in ["21.5", "no host is running", "sound "] {
        assert!(ended.text().contains(expected), "{expected} is not in\n{}", ended.text());
    }
    // 4 records by hand, and 200 of a stream that came while no host was there.
    assert_eq!(place.run(["--json", "log", "stat", "mean"]).ok().object()["latest"], 202);
    assert_eq!(place.run(["--json", "log", "get", "double", "1"]).ok().object()["data"], "47");
}
