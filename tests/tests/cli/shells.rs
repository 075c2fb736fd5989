//! Completions and manual pages, as shells and `man` take them.

use millrace_tests::{Place, binary, end};
use std::{fs, path::Path, process::Command};

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// What bash offers for the last of these words.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let script = r#"
        source ./completions
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
        "$(complete -p millrace | sed 's/.*-F \([^ ]*\) .*/\1/')" millrace "${COMP_WORDS[COMP_CWORD]}" ""
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let dir = binary().parent().expect("the binary is in a directory");
    let path = std::env::join_paths([dir, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    // Its environment is that of any other command of this place.
    let plain = place.command(["version"]);
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash"]).args(words).current_dir(place.path()).env("PATH", path);
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    end(command, b"").ok().text().lines().map(String::from).collect()
}

#[test]
fn bash_completes_commands_options_and_names() {
    let place = Place::new();
    for log in ["raw/kitchen", "raw/cellar", "smooth"] {
        place.run(["log", "create", log]).ok();
    }
    place.run(["context", "add", "laboratory", "."]).ok();
    fs::write(place.path().join("completions"), place.run(["completions", "bash"]).ok().stdout).unwrap();
    assert_eq!(offered(&place, &["millrace", "lo"]), ["log"]);
    assert_eq!(offered(&place, &["millrace", "log", "exp"]), ["export"]);
    assert_eq!(offered(&place, &["millrace", "log", "get", "ra"]), ["raw/cellar", "raw/kitchen"]);
    assert_eq!(offered(&place, &["millrace", "why", "smo"]), ["smooth"]);
    assert_eq!(offered(&place, &["millrace", "log", "export", "smooth", "--form"]), ["--format"]);
    assert_eq!(offered(&place, &["millrace", "-n", "lab"]), ["laboratory"]);
    let none: Vec<String> = vec![String::new()];
    assert_eq!(
        offered(&place, &["millrace", "-n", "./nowhere", "log", "get", "ra"]),
        none,
        "and is quiet about errors"
    );
}

#[test]
fn zsh_and_fish_take_their_scripts() {
    let place = Place::empty();
    for (shell, mark) in [("zsh", "#compdef millrace"), ("fish", "complete ")] {
        let script = place.run(["completions", shell]).ok();
        assert!(script.text().contains(mark), "{script:?}");
        fs::write(place.path().join(shell), &script.stdout).unwrap();
        // A shell that is not installed cannot judge.
        if is_there(shell) {
            let mut command = Command::new(shell);
            command.args(["-n", shell]).current_dir(place.path());
            end(command, b"").ok();
        }
    }
    assert_eq!(place.run(["completions", "tcsh"]).code, 2);
}

#[test]
fn manual_pages_render() {
    let place = Place::empty();
    let reported = place.run(["--json", "man", "pages"]).ok().object();
    let pages: Vec<&str> = reported["pages"].as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    assert!(pages.len() > 40 && pages.contains(&"millrace-log-export.1"), "{pages:?}");
    assert!(place.run(["man"]).ok().text().contains(".TH "), "without a directory it prints the first page");
    if !is_there("man") {
        return;
    }
    for page in ["millrace.1", "millrace-log-export.1", "millrace-context-add.1"] {
        let mut command = Command::new("man");
        command.args(["-l", "--warnings=all"]).arg(Path::new("pages").join(page)).current_dir(place.path());
        command.envs([("MANWIDTH", "80"), ("LC_ALL", "C.UTF-8"), ("MANPAGER", "cat")]);
        let shown = end(command, b"").ok();
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES"] {
            assert!(shown.text().lines().any(|line| line == section), "{page} has no {section}: {}", shown.text());
        }
    }
}
