//! `millrace up` and `millrace down`: apply the application file to a namespace, or remove it.

mod send;
pub mod topics;

use super::sandbox;
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
    functions::Apart,
    history,
};
use serde_json::json;
use std::{collections::BTreeSet, io, path::Path};
use topics::Topics;

pub fn up(args: &UpArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(remote) = place::chosen_host(global)? {
        return send::up(&remote, args, out);
    }
    let application = Application::load(&args.file.path()?)?;
    let dir = place::application_dir(global, &application);
    let there = match Namespace::open(&dir) {
        Ok(namespace) => Some(namespace),
        Err(error) if error.code() == Code::NotANamespace => None,
        Err(error) => return Err(error.into()),
    };
    let remote = topics::host_of(&application, there.as_ref())?;
    let topics = remote.as_ref().and_then(|remote| Topics::of(&application, remote));
    let changes = Changes::of(&application).taking_over(args.take_over).kept_apart(&sandbox::isolation);
    if args.dry_run {
        if there.is_none() && !out.json() {
            out.line(format!("+ namespace {} would be created", dir.display()))?;
        }
        let mut steps = topics.as_ref().map_or(Ok(Vec::new()), Topics::plan)?;
        steps.extend(changes.plan(there.as_ref())?);
        steps.iter().try_for_each(|step| report(step, true, out))?;
        return Ok(changes.rehearse(&dir, there.as_ref(), args.force, &mut |reported| {
            if let Progress::Slow { function, what } = reported {
                slow(function, what, out.json());
            }
        })?);
    }
    drop(there);
    let opened = open(&application, &dir, &sandbox::isolation, out)?;
    let mut removed = BTreeSet::new();
    each_step(out, |progress| {
        if let Some(topics) = &topics {
            topics.create(&mut |step| progress(Progress::Step(step)))?;
        }
        changes.apply(&opened, args.force, &mut |reported| {
            note_removed(&reported, &mut removed);
            progress(reported);
        })?;
        topics.as_ref().map_or(Ok(()), |topics| topics.bind(&mut |step| progress(Progress::Step(step))))
    })?;
    release_removed(&opened.namespace, &removed, out)
}

/// Takes note of a function that was removed.
fn note_removed(reported: &Progress<'_>, removed: &mut BTreeSet<String>) {
    if let Progress::Step(Step { what: What::Function, action: Action::Removed, name, .. }) = reported {
        removed.insert(name.clone());
    }
}

/// Ends the subscriptions of functions that were removed. Without a host that is not possible, nor is it without functions.
fn release_removed(namespace: &Namespace, removed: &BTreeSet<String>, out: &mut Out) -> Outcome {
    if removed.is_empty() || namespace.host()?.is_none() {
        return Ok(());
    }
    let remote = place::Place::Local(namespace.clone()).connect()?;
    each_step(out, |progress| topics::release_removed(&remote, removed, &mut |step| progress(Progress::Step(step))))
}

/// Opens the application's namespace, which is created if it does not exist.
pub fn open(application: &Application, dir: &Path, apart: Apart<'_>, out: &mut Out) -> Outcome<Opened> {
    let opened = each_step(out, |progress| Changes::of(application).kept_apart(apart).open(dir, progress))?;
    if opened.created && !out.json() {
        out.line(format!("created namespace {}", dir.display()))?;
    }
    Ok(opened)
}

pub fn down(args: &DownArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(remote) = place::chosen_host(global)? {
        return send::down(&remote, args, out);
    }
    let application = Application::load(&args.file.path()?)?;
    let namespace = Namespace::open(&place::application_dir(global, &application))?;
    let remote = topics::host_of(&application, Some(&namespace))?;
    let topics = remote.as_ref().and_then(|remote| Topics::of(&application, remote));
    let (mut any, mut removed) = (false, BTreeSet::new());
    each_step(out, |progress| {
        let mut progress = |reported: Progress<'_>| {
            any = true;
            note_removed(&reported, &mut removed);
            progress(reported);
        };
        Changes::of(&application).taking_over(args.take_over).withdraw(
            &namespace,
            args.logs,
            args.force,
            &mut progress,
        )?;
        topics.as_ref().map_or(Ok(()), |topics| topics.release(&mut |step| progress(Progress::Step(step))))
    })?;
    release_removed(&namespace, &removed, out)?;
    nothing_there(any, out)
}

/// Says so if nothing was there to be removed.
fn nothing_there(any: bool, out: &mut Out) -> Outcome {
    if !any && !out.json() {
        out.line("nothing to remove")?;
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
        What::Setting => "namespace",
        What::Topic => "topic",
        What::Subscription => "subscription",
        What::Feed => "feed",
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
    let time = step.time.as_ref().map_or(String::new(), |change| match &change.to {
        Some(time) => format!("; the time of the observation is in {time}"),
        None => "; no field has the time of the observation".into(),
    });
    let line = out.styled(style, &format!("{mark} {what} {} {word}{history}{amendable}{time}{runs}", step.name));
    out.line(line)
}
