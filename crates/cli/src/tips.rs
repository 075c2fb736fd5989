//! Tips for command lines that are nearly right: a command without its group, the word of another program, a value in the wrong place.

use crate::args::Cli;
use clap::{
    Command, CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// A command that is in more groups than this is no tip.
const GROUPS_MAX: usize = 3;
/// The names of a command in other programs, and here.
const WORDS: [(&str, &[&str]); 28] = [
    ("list", &["ls"]),
    ("ps", &["ls"]),
    ("remove", &["rm"]),
    ("delete", &["rm"]),
    ("del", &["rm"]),
    ("inspect", &["stat", "show"]),
    ("info", &["stat", "show"]),
    ("cat", &["get", "show"]),
    ("read", &["get"]),
    ("write", &["append", "publish"]),
    ("xadd", &["append"]),
    ("pub", &["publish"]),
    ("sub", &["subscribe"]),
    ("exec", &["invoke"]),
    ("create", &["init", "add", "issue", "deploy"]),
    ("salvage", &["check"]),
    ("replay", &["run"]),
    ("kill", &["cancel"]),
    ("stop", &["cancel"]),
    ("call", &["invoke"]),
    ("run", &["invoke"]),
    ("update", &["deploy", "set"]),
    ("logs", &["show"]),
    ("describe", &["show", "stat"]),
    ("push", &["append", "publish"]),
    ("produce", &["append", "publish"]),
    ("consume", &["tail", "subscribe"]),
    ("new", &["create", "init", "add"]),
];
/// The names in other programs of a command that needs no group here, or has several names.
const ROOTS: [(&str, &str); 8] = [
    ("apply", "there is `millrace up` for millrace.toml, and `millrace repair apply`"),
    ("deploy", "there is `millrace up` for millrace.toml, and `millrace function deploy` for one function"),
    ("status", "there is `millrace why` and `millrace top`"),
    ("start", "there is `millrace serve`"),
    ("stop", "a host stops on SIGTERM or Ctrl-C, and a run with `millrace run cancel`"),
    ("ps", "there is `millrace run ls` and `millrace top`"),
    ("ls", "there is `millrace log ls`, `millrace function ls` and `millrace run ls`"),
    ("list", "there is `millrace log ls`, `millrace function ls` and `millrace run ls`"),
];
/// Where what was given as an argument belongs.
const VALUES: [(&str, &str, &str); 5] = [
    (
        "secret",
        "set",
        "the value is not an argument, but is read from standard input: `millrace secret set NAME < FILE`",
    ),
    (
        "function",
        "invoke",
        "quote a record that has several words, or give it on standard input: `millrace function invoke NAME < FILE`",
    ),
    ("log", "append", "quote a record that has several words, or append a file: `millrace log append LOG < FILE`"),
    ("run", "ls", "choose runs with --function, --log or --state: `millrace run ls --function NAME`"),
    ("cap", "issue", "give rights as options: `millrace cap issue --read LOG --append LOG`"),
];

/// A tip for an invalid command line of these words.
pub fn of(error: &clap::Error, words: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return None };
            let root = Cli::command();
            match words.iter().take_while(|word| *word != typed).find_map(|word| root.find_subcommand(word)) {
                Some(group) => renamed(group, typed),
                None => grouped(&root, typed),
            }
        }
        ErrorKind::UnknownArgument => {
            let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
            if let Some(tip) = negative(typed, words) {
                return Some(tip);
            }
            if typed.starts_with("--") {
                return None;
            }
            let given = |part: &&str| words.iter().any(|word| word == part);
            VALUES.iter().find(|(group, command, _)| given(group) && given(command)).map(|(.., tip)| (*tip).into())
        }
        _ => None,
    }
}

/// A negative number as the value of an option. The parser reports only the sign and the first digit.
fn negative(typed: &str, words: &[String]) -> Option<String> {
    let is_negative =
        |word: &str| word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let at = words.iter().position(|word| is_negative(typed) && word.starts_with(typed))?;
    let option = words.get(at.checked_sub(1)?).filter(|option| option.starts_with('-'))?;
    Some(format!("the value of {option} must not be negative"))
}

/// Whether the parser's own tip is to be shown. It knows no command, and proposes to pass any unknown option as a value.
pub fn is_kept(line: &str) -> bool {
    !(line.contains("tip:") && line.contains(" as a value, use "))
}

/// A command that has another name in its group.
fn renamed(group: &Command, typed: &str) -> Option<String> {
    let (_, names) = WORDS.iter().find(|(word, _)| *word == typed)?;
    let name = names.iter().find(|name| group.find_subcommand(name).is_some())?;
    Some(format!("there is `millrace {} {name}`", group.get_name()))
}

/// A command without its group, under its own name or that of another program.
fn grouped(root: &Command, typed: &str) -> Option<String> {
    let lower = typed.to_lowercase();
    if let Some((_, tip)) = ROOTS.iter().find(|(word, _)| *word == lower) {
        return Some((*tip).into());
    }
    let others = WORDS.iter().find(|(word, _)| *word == lower).map_or(&[] as &[&str], |(_, names)| names);
    std::iter::once(typed).chain(others.iter().copied()).find_map(|name| {
        let groups = root.get_subcommands().filter(|group| group.find_subcommand(name).is_some());
        let found: Vec<String> = groups.map(|group| format!("`millrace {} {name}`", group.get_name())).collect();
        (1..=GROUPS_MAX).contains(&found.len()).then(|| format!("there is {}", found.join(" and ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn tip(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of(&Cli::try_parse_from(["millrace".to_owned()].iter().chain(&words)).err()?, &words)
    }

    #[test]
    fn a_command_is_named_that_was_nearly_typed() {
        for (line, expected) in [
            ("append raw/kitchen 3", Some("there is `millrace log append`")),
            ("publish env 3", Some("there is `millrace topic publish`")),
            ("log list", Some("there is `millrace log ls`")),
            ("log inspect raw/kitchen", Some("there is `millrace log stat`")),
            ("cluster create", Some("there is `millrace cluster init`")),
            ("log cat raw/kitchen", Some("there is `millrace log get`")),
            ("log del raw/kitchen", Some("there is `millrace log rm`")),
            ("pub env 3", Some("there is `millrace topic publish`")),
            ("XADD raw/kitchen 3", Some("there is `millrace log append`")),
            ("exec greet", Some("there is `millrace function invoke`")),
            ("ls", Some("there is `millrace log ls`, `millrace function ls` and `millrace run ls`")),
            ("apply -f millrace.toml", Some("there is `millrace up` for millrace.toml, and `millrace repair apply`")),
            ("status", Some("there is `millrace why` and `millrace top`")),
            ("stop", Some("a host stops on SIGTERM or Ctrl-C, and a run with `millrace run cancel`")),
            ("function call greet", Some("there is `millrace function invoke`")),
            ("function run greet", Some("there is `millrace function invoke`")),
            ("function create greet", Some("there is `millrace function deploy`")),
            ("run logs", Some("there is `millrace run show`")),
            ("log push raw/kitchen 3", Some("there is `millrace log append`")),
            ("consume raw/kitchen", Some("there is `millrace log tail` and `millrace topic tail`")),
            ("ping", None),
            ("log apend x 3", None),
            ("log ls", None),
        ] {
            assert_eq!(tip(line).as_deref(), expected, "{line}");
        }
        assert_eq!(tip("log create a --history -1").as_deref(), Some("the value of --history must not be negative"));
        assert_eq!(
            tip("run wait --idle --timeout -10s").as_deref(),
            Some("the value of --timeout must not be negative")
        );
        assert_eq!(
            tip("cap issue --read a --expires -1d").as_deref(),
            Some("the value of --expires must not be negative")
        );
        assert_eq!(tip("run ls --limit 3"), None, "it chooses no run");
        assert_eq!(tip("cap issue --read a --count 1"), None);
        assert!(tip("secret set KEY value").is_some_and(|tip| tip.contains("standard input")));
        assert!(tip("run ls greet").is_some_and(|tip| tip.contains("--function")));
        assert!(tip("function invoke greet hello you").is_some_and(|tip| tip.contains("quote")));
    }
}
