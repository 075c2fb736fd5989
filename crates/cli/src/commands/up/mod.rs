//! `millrace up` and `millrace down`: apply the application file to a namespace, or remove it.

mod send;

use crate::{
    args::{DownArgs, Global, UpArgs},
    out::{Out, Style},
    place,
    report::Outcome,
    show,
};
use millrace_node::{
    Code, Name, Namespace,
    application::Application,
    changes::{Action, Changes, Opened, Progress, Step, What},
    history,
};
use serde_json::json;
use std::{io, path::Path};

pub fn up(args: &UpArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(remote) = place::chosen_host(global)? {
        return send::up(&remote, args, out);
    }
    let application = Application::load(&args.file.path())?;
    let dir = place::application_dir(global, &application);
    if args.dry_run {
        let namespace = match Namespace::open(&dir) {
            Ok(namespace) => Some(namespace),
            Err(error) if error.code() == Code::NotANamespace => None,
            Err(error) => return Err(error.into()),
        };
        for step in Changes::of(&application).taking_over(args.take_over).plan(namespace.as_ref())? {
            report(&step, true, out)?;
        }
        return Ok(());
    }
    let opened = open(&application, &dir, out)?;
    let changes = Changes::of(&application).taking_over(args.take_over);
    each_step(out, |progress| changes.apply(&opened, args.force, progress))
}

/// Opens the application's namespace, which is created if it does not exist.
pub fn open(application: &Application, dir: &Path, out: &mut Out) -> Outcome<Opened> {
    let opened = each_step(out, |progress| Changes::of(application).open(dir, progress))?;
    if opened.created && !out.json() {
        out.line(format!("created namespace {}", dir.display()))?;
    }
    Ok(opened)
}

pub fn down(args: &DownArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(remote) = place::chosen_host(global)? {
        return send::down(&remote, args, out);
    }
    let application = Application::load(&args.file.path())?;
    let namespace = Namespace::open(&place::application_dir(global, &application))?;
    let mut any = false;
    each_step(out, |progress| {
        Changes::of(&application).taking_over(args.take_over).withdraw(
            &namespace,
            args.logs,
            args.force,
            &mut |reported| {
                any = true;
                progress(reported);
            },
        )
    })?;
    nothing_there(any, out)
}

/// Says so if nothing was there to be removed.
fn nothing_there(any: bool, out: &mut Out) -> Outcome {
    if !any && !out.json() {
        out.line("nothing of it is there")?;
    }
    Ok(())
}

/// Runs something that reports steps, and prints them as they come.
pub fn each_step<T>(
    out: &mut Out,
    work: impl FnOnce(&mut dyn FnMut(Progress<'_>)) -> millrace_node::Result<T>,
) -> Outcome<T> {
    let mut printed: io::Result<()> = Ok(());
    let result = work(&mut |reported| match reported {
        Progress::Step(step) if printed.is_ok() => {
            printed = report(step, false, out).and_then(|()| out.flush());
        }
        Progress::Step(_) => {}
        Progress::Slow { function, what } => slow(function, what, out.json()),
    })?;
    printed?;
    Ok(result)
}

/// Says on standard error that the check of a function's code takes long.
pub fn slow(function: &Name, what: &str, json: bool) {
    let text = match json {
        true => json!({ "event": "slow", "function": function, "what": what }).to_string(),
        false => format!("millrace: function '{function}': {what}"),
    };
    crate::feed::stderr(&format!("{text}\n"));
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
        (Action::Removed, false) => ("-", "removed", Style::Bad),
        (Action::Removed, true) => ("-", "would be removed", Style::Bad),
        (Action::Unchanged, _) => ("=", "unchanged", Style::Dim),
    };
    let runs = match (step.given_up, planned) {
        (0, true) => String::new(),
        (runs, true) => format!("; it has {}", show::count(runs, "pending run")),
        (runs, false) => show::given_up(runs),
    };
    let history = step.history.map_or(String::new(), |change| {
        format!(": history {} to {}", history::show(change.from), history::show(change.to))
    });
    let amendable = match step.amendable {
        Some(true) => "; amendable",
        Some(false) => "; no longer amendable",
        None => "",
    };
    let line = out.styled(style, &format!("{mark} {what} {} {word}{history}{amendable}{runs}", step.name));
    out.line(line)
}
