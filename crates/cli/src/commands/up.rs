//! `millrace up` and `millrace down`: a namespace holds what the application file says, or no longer does.

use super::init::ensure_namespace;
use crate::{
    args::{DownArgs, Global, UpArgs},
    out::{Out, Style},
    place,
    report::Outcome,
    show,
};
use millrace_node::{
    Code, Namespace,
    application::Application,
    changes::{Action, Changes, Step, What},
};
use serde_json::json;
use std::io;

pub fn up(args: &UpArgs, global: &Global, out: &mut Out) -> Outcome {
    let application = Application::load(&args.file.file)?;
    let dir = place::application_dir(global, &application);
    if args.dry_run {
        let namespace = match Namespace::open(&dir) {
            Ok(namespace) => Some(namespace),
            Err(error) if error.code() == Code::NotANamespace => None,
            Err(error) => return Err(error.into()),
        };
        for step in Changes::of(&application).plan(namespace.as_ref())? {
            report(&step, true, out)?;
        }
        return Ok(());
    }
    if ensure_namespace(&dir, &application.settings)? && !out.json() {
        out.line(format!("created namespace {}", dir.display()))?;
    }
    let namespace = Namespace::open(&dir)?;
    each_step(out, |progress| Changes::of(&application).apply(&namespace, progress))
}

pub fn down(args: &DownArgs, global: &Global, out: &mut Out) -> Outcome {
    let application = Application::load(&args.file.file)?;
    let namespace = Namespace::open(&place::application_dir(global, &application))?;
    let mut any = false;
    each_step(out, |progress| {
        Changes::of(&application).withdraw(&namespace, args.logs, args.force, |step| {
            any = true;
            progress(step);
        })
    })?;
    if !any && !out.json() {
        out.line("nothing of it is there")?;
    }
    Ok(())
}

/// Runs something that reports steps, and prints them as they come.
pub fn each_step(out: &mut Out, work: impl FnOnce(&mut dyn FnMut(&Step)) -> millrace_node::Result<()>) -> Outcome {
    let mut printed: io::Result<()> = Ok(());
    let result = work(&mut |step| {
        if printed.is_ok() {
            printed = report(step, false, out).and_then(|()| out.flush());
        }
    });
    result?;
    Ok(printed?)
}

fn report(step: &Step, planned: bool, out: &mut Out) -> io::Result<()> {
    if out.json() {
        return out.object(&json!(step));
    }
    let what = match step.what {
        What::Log => "log",
        What::Function => "function",
    };
    let (mark, word, style) = match (step.action, planned) {
        (Action::Created, false) => ("+", "created", Style::Good),
        (Action::Created, true) => ("+", "would be created", Style::Good),
        (Action::Updated, false) => ("~", "updated", Style::Warn),
        (Action::Updated, true) => ("~", "would be updated", Style::Warn),
        (Action::Removed, _) => ("-", "removed", Style::Bad),
        (Action::Unchanged, _) => ("=", "unchanged", Style::Dim),
    };
    let line = out.styled(style, &format!("{mark} {what} {} {word}{}", step.name, show::given_up(step.given_up)));
    out.line(line)
}
