//! Shell completion: names of the namespace that the command line selects.

use crate::{
    args::Global,
    place::{Place, Target, contexts::Contexts, remote},
};
use clap_complete::{
    CompletionCandidate,
    engine::{PathCompleter, ValueCompleter},
};
use millrace_client::Options;
use std::{
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// The variable by which a shell asks for completions.
pub const VARIABLE: &str = "_MILLRACE_COMPLETE";
/// How long another host may take to answer.
const PATIENCE_MS: u32 = 500;
/// More names than these would not help a user to choose.
const NAMES_MAX: usize = 1000;

/// The option `--namespace` of a command line that may be incomplete.
fn namespace_of(words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    value_of(words, "--namespace", Some("-n"))
}

/// The value of an option of a command line that may be incomplete.
fn value_of(words: impl Iterator<Item = OsString>, long: &str, short: Option<&str>) -> Option<PathBuf> {
    let mut words = words.skip_while(|word| word != "--").skip(1);
    while let Some(word) = words.next() {
        if word == long || short.is_some_and(|short| word == short) {
            return words.next().map(PathBuf::from);
        }
        let text = word.to_string_lossy();
        let joined = text.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = joined.or_else(|| text.strip_prefix(short?)) {
            return Some(value.into());
        }
    }
    None
}

/// The namespace of the command line. On any error, the shell completes nothing.
fn place() -> Option<Place> {
    let (namespace, ca) = (namespace_of(env::args_os()), value_of(env::args_os(), "--ca", None));
    let (target, _) = Target::find(&Global { json: false, namespace, ca }).ok()?;
    // The user holds a key down.
    let options = Options { connect_timeout_ms: PATIENCE_MS, request_timeout_ms: PATIENCE_MS, ..remote::options() };
    Place::reach(&target, &options).ok()
}

fn beginning(names: impl IntoIterator<Item = String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fits = names.into_iter().filter(|name| name.starts_with(&*current));
    fits.take(NAMES_MAX).map(CompletionCandidate::new).collect()
}

fn log_names() -> Vec<String> {
    let logs = place().and_then(|place| place.logs().ok()).unwrap_or_default();
    logs.into_iter().map(|log| log.name).collect()
}

fn function_names() -> Vec<String> {
    let functions = place().and_then(|place| place.functions().ok()).unwrap_or_default();
    functions.into_iter().map(|function| function.name).collect()
}

/// Names of logs.
pub fn logs(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(log_names(), current)
}

/// Names of functions.
pub fn functions(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(function_names(), current)
}

/// The possible arguments of `why`.
pub fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(function_names().into_iter().chain(log_names()), current)
}

/// Names of contexts.
pub fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    let contexts = Contexts::load().unwrap_or_default().contexts;
    beginning(contexts.into_keys().map(|name| name.to_string()), current)
}

/// Contexts and directories.
pub fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = contexts(current);
    found.extend(PathCompleter::dir().complete(current));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_found_on_an_unfinished_line() {
        let of = |line: &str| namespace_of(line.split(' ').map(OsString::from));
        assert_eq!(of("millrace -n x -- millrace log get"), None);
        assert_eq!(of("millrace -- millrace -n x log get"), Some("x".into()));
        assert_eq!(of("millrace -- millrace log get --namespace=a/b "), Some("a/b".into()));
        assert_eq!(of("millrace -- millrace log get -nx"), Some("x".into()));
        assert_eq!(of("millrace -- millrace log get -n"), None);
    }
}
