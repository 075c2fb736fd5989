//! The calls of the C client at their edges (sdk/c/tests/api.c), and its headers for other compilers.

use crate::support::{build_local, build_remote, root};
use millrace_tests::{Place, end};
use std::{path::Path, process::Command};

fn check(program: &Path, address: &str) {
    let mut command = Command::new(program);
    command.arg(address);
    let said = end(command, b"");
    assert_eq!((said.code, said.text()), (0, "done\n"), "{said:#?}");
}

#[test]
fn every_call_over_a_connection() {
    let place = Place::new();
    let host = place.serve_tcp(["--name", "farm"]);
    let program = build_remote("api");
    check(&program, &format!("mr://127.0.0.1:{}/farm", host.port()));
}

#[test]
fn a_directory_is_reached_through_its_host_by_a_program_without_the_local_part() {
    let place = Place::new();
    let _host = place.serve();
    let program = build_remote("api");
    check(&program, place.path().to_str().expect("paths are text"));
}

#[test]
fn every_call_on_files() {
    let place = Place::new();
    let program = build_local("api");
    check(&program, place.path().to_str().expect("paths are text"));
}

#[test]
fn a_program_with_the_local_part_asks_the_host_for_documents() {
    let place = Place::new();
    let _host = place.serve();
    let program = build_local("driver");
    let mut driver = crate::support::Driver::start(&program, &[place.path().to_str().expect("paths are text")]);
    assert!(driver.ask("show x6c6f6773")["logs"].is_array(), "`logs`");
    assert_eq!(driver.ask("create_log x72 100"), serde_json::json!({}));
    assert_eq!(driver.end(), 0);
}

#[test]
fn the_headers_are_c_plus_plus_too_and_gcc_has_nothing_to_say() {
    let place = Place::empty();
    place.write("a.cc", "#include \"millrace_client.h\"\nint main() { return mrc_cause(nullptr) != nullptr; }\n");
    let quiet = |mut command: Command| {
        command.current_dir(place.path());
        let said = end(command, b"");
        assert_eq!((said.code, &*said.stderr), (0, ""));
    };
    let mut cpp = Command::new("clang++");
    cpp.args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "a.cc", "-I"]);
    cpp.arg(root().join("sdk/c"));
    quiet(cpp);
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-c"]);
    gcc.args(crate::support::sources(&["sdk/c", "sdk/c/wire"]));
    quiet(gcc);
}
