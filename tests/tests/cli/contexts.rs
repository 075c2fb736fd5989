//! Which namespace a command is about.

use millrace_tests::{Place, end};
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn contexts_are_added_used_shown_and_removed() {
    let place = Place::new();
    place.run(["log", "create", "here"]).ok();
    let other = Place::new();
    other.run(["log", "create", "there"]).ok();
    let dir = other.namespace();
    place.run(["context", "ls"]).ok();
    let added = place.run(["--json", "context", "add", "lab", dir.to_str().unwrap()]).ok().object();
    assert_eq!((added["change"].as_str(), added["in_use"].as_bool()), (Some("created"), Some(false)));
    let file = place.path().join("config/millrace/contexts.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let logs = |args: &[&str]| {
        let listed = place.run([args, &["--json", "log", "ls"]].concat()).ok();
        listed.objects().iter().map(|log| log["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(logs(&["-n", "lab"]), ["there"]);
    assert_eq!(logs(&[]), ["here"]);
    let mut command = place.command(["--json", "log", "ls"]);
    command.env("MILLRACE_NAMESPACE", "lab");
    assert!(end(command, b"").ok().text().contains("there"), "the environment names contexts, too");

    let used = place.run(["context", "use", "lab"]).ok();
    assert!(used.text().contains("it has no effect in this directory"), "{used:?}");
    assert_eq!(logs(&[]), ["here"], "what is in the directory goes before the context in use");
    let mut elsewhere = place.command(["--json", "context", "show"]);
    fs::create_dir(place.path().join("empty")).unwrap();
    elsewhere.current_dir(place.path().join("empty"));
    let shown = end(elsewhere, b"").ok().object();
    assert_eq!(shown["namespace"].as_str(), dir.to_str());
    assert_eq!(shown["context"], "lab");

    place.run(["context", "use", "--none"]).ok();
    assert_eq!(place.run(["--json", "context", "ls"]).ok().object()["in_use"], false);
    place.run(["context", "rm", "lab"]).ok();
    place.run(["context", "rm", "lab"]).fails("MR4016", 1);
    place.run(["context", "use", "lab"]).fails("MR4016", 1);
}

#[test]
fn a_context_goes_before_a_directory_and_a_dot_tells_them_apart() {
    let place = Place::empty();
    place.run(["-n", "one", "init", "--bare"]).ok();
    place.run(["-n", "two", "init", "--bare"]).ok();
    place.run(["context", "add", "one", "two"]).ok();
    let namespace = |name: &str| {
        let shown = place.run(["--json", "-n", name, "context", "show"]).ok().object();
        shown["namespace"].as_str().unwrap().to_string()
    };
    assert_eq!(namespace("one"), place.path().join("two").to_str().unwrap());
    assert_eq!(namespace("./one"), "./one");
    assert_eq!(namespace("two"), "two");
}

#[test]
fn what_names_nothing_is_refused_before_anything_is_kept() {
    let place = Place::new();
    for (args, code) in [
        (["context", "add", "edge", "mr://edge"], "MR4017"),
        (["context", "add", "edge", "mr://edge/farm/raw"], "MR4017"),
        (["context", "add", "edge", "http://edge/farm"], "MR4017"),
        (["context", "add", "edge", "unix:"], "MR4017"),
    ] {
        place.run(args).fails(code, 2);
    }
    assert_eq!(place.run(["context", "add", "../x", "."]).code, 2);
    assert!(!place.path().join("config").exists());
    place.run(["-n", "mr://edge/farm/raw", "log", "ls"]).fails("MR4020", 2);
    place.run(["-n", "mr://edge", "log", "ls"]).fails("MR6001", 2);
    for command in [&["serve"][..], &["dev"], &["init"]] {
        place.run([&["-n", "mr://127.0.0.1:1/x"], command].concat()).fails("MR4019", 1);
    }
    place.write("config/millrace/contexts.toml", "current = 3");
    place.run(["context", "ls"]).fails("MR4018", 1);
    // Only those who ask for a context hear of it.
    place.run(["log", "ls"]).ok();
}
