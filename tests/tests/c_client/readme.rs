//! The page about C, typed as it stands.

use crate::support::root;
use millrace_tests::{PAGE, Place, binary, built, end_within};
use std::{fs, process::Command};

#[test]
fn the_page_can_be_typed_as_it_stands() {
    let page = fs::read_to_string(root().join("sdk/c/README.md")).expect("the page is there");
    let inside = |block: &str| block.split_once("\n```").expect("every block ends").0.to_string();
    let typed: Vec<String> = page.split("```sh\n").skip(1).map(inside).collect();
    let place = Place::empty();
    let there = place.path().display().to_string();
    let typed = typed.join("\n").replace("/tmp/millrace-c", &there);
    assert!(typed.contains("libmillrace_local.a") && typed.contains(&there), "{typed}");
    // The page's build takes the library that is there: another call of cargo, for one package, has other features of shared crates,
    // and would replace what the tests beside this one are running.
    built("libmillrace_c.a");
    // Job control, as in the shell somebody types into; the host must not outlive the test.
    let script = format!("set -me\ntrap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{typed}\n");
    let path = std::env::var("PATH").expect("there is a PATH");
    let bin = binary().parent().expect("the binary is in a directory").display().to_string();
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(root()).env("PATH", format!("{bin}:{path}"));
    shell.env("PROFILE", "dev").env("CARGO", "true").env_remove("MILLRACE_NAMESPACE").env_remove("MAKEFLAGS");
    let ended = end_within(PAGE, shell, b"");
    assert_eq!(ended.code, 0, "{}\n{}", ended.text(), ended.stderr);
    for expected in
        ["record 1: 21.5", "20.5 is record 1, ", "\n1: 20.5\n2: 20.7\n3: 20.9\n", "20000 appended, 0 refused"]
    {
        assert!(ended.text().contains(expected), "{expected} is not in\n{}", ended.text());
    }
    // After the 3 of the thermometer and the 20 000.
    for expected in ["record 20004: 23.5", "record 20005: 24.0"] {
        assert!(ended.text().contains(expected), "{expected} is not in\n{}", ended.text());
    }
    assert!(ended.stderr.contains("MR2101: no log 'raw/kitchen'\n  "), "{}", ended.stderr);
}
