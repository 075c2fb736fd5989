//! `millrace up` and `millrace down` for a namespace on another machine: sends the application file, and the code that the host does not
//! have. The host checks both as it would check them here.

use super::{
    each_step, note_removed, nothing_there, report,
    topics::{self, Topics},
};
use crate::{
    args::{DownArgs, UpArgs},
    out::Out,
    place::remote::Remote,
    progress::{Progress, Unit},
    report::Outcome,
};
use millrace_node::{
    Code, Result,
    application::Application,
    changes::{Progress as Reported, Step},
    functions::{CodeItem, list_code},
    manage::{Down, MissingDoc, Order, Sending, StepsDoc, Up, bundle::Bundle},
};
use millrace_wire::protocol::UPLOAD_PART_MAX_BYTES;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::Path,
};

/// How often files are sent, at most: the second time some were lost with a connection.
const ROUNDS_MAX: usize = 3;

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Steps(StepsDoc),
    Missing(MissingDoc),
}

/// The message about an application, without its code.
fn sending(path: &Path) -> Result<Sending> {
    let unreadable = |error| Code::ApplicationUnreadable.error(format!("cannot read {}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let origin = fs::canonicalize(path).map_err(unreadable)?.to_string_lossy().into_owned();
    Ok(Sending { file: shown(path)?, origin, text, functions: BTreeMap::new() })
}

/// A path as text, which is how it is sent.
fn shown(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Code::CodeRefused.error(format!("'{}' cannot be sent: it is not UTF-8", path.display())))
}

pub fn up(remote: &Remote, args: &UpArgs, out: &mut Out) -> Outcome {
    let path = args.file.path()?;
    // Errors in it are reported before anything is sent.
    let application = Application::load(&path)?;
    let mut sending = sending(&path)?;
    let mut files: BTreeMap<String, CodeItem> = BTreeMap::new();
    for declared in &application.functions {
        let listing =
            list_code(&declared.source).map_err(|error| error.within(format!("function '{}'", declared.spec.name)))?;
        sending.functions.insert(declared.spec.name.clone(), Bundle::of(shown(&declared.source)?, &listing));
        files.extend(listing.items.into_iter().map(|item| (item.sha256.clone(), item)));
    }
    let of_topics = Topics::of(&application, remote);
    match &of_topics {
        Some(topics) if args.dry_run => {
            topics.plan()?.iter().try_for_each(|step| report(step, true, out))?;
        }
        Some(topics) => each_step(out, |progress| topics.create(&mut |step| progress(Reported::Step(step))))?,
        None => {}
    }
    let order = Order::Up(Up { sending, force: args.force, take_over: args.take_over, dry_run: args.dry_run });
    let steps = apply(remote, &order, &files)?;
    steps.iter().try_for_each(|step| report(step, args.dry_run, out))?;
    if args.dry_run {
        return Ok(());
    }
    if let Some(topics) = &of_topics {
        each_step(out, |progress| topics.bind(&mut |step| progress(Reported::Step(step))))?;
    }
    release_removed(remote, &steps, out)
}

/// Makes the host apply an application, after sending it the missing files.
fn apply(remote: &Remote, order: &Order, files: &BTreeMap<String, CodeItem>) -> Result<Vec<Step>> {
    for _ in 0..ROUNDS_MAX {
        match remote.manage(order)? {
            Answer::Steps(done) => return Ok(done.steps),
            Answer::Missing(MissingDoc { missing }) => send(remote, files, &missing)?,
        }
    }
    Err(Code::UploadUnexpected.error("the host still lacks files that were sent to it"))
}

/// Ends the subscriptions of functions that were removed.
fn release_removed(remote: &Remote, steps: &[Step], out: &mut Out) -> Outcome {
    let mut removed = BTreeSet::new();
    steps.iter().for_each(|step| note_removed(&Reported::Step(step), &mut removed));
    if removed.is_empty() {
        return Ok(());
    }
    each_step(out, |progress| topics::release_removed(remote, &removed, &mut |step| progress(Reported::Step(step))))
}

/// Sends these files.
fn send(remote: &Remote, files: &BTreeMap<String, CodeItem>, missing: &[String]) -> Result<()> {
    let wanted = missing.iter().map(|hash| {
        let file = files.get(hash);
        file.ok_or_else(|| Code::UploadUnexpected.error("the host requests a file that was not announced"))
    });
    let wanted = wanted.collect::<Result<Vec<&CodeItem>>>()?;
    let (mut sent, total) = (0, wanted.iter().map(|file| file.bytes).sum());
    let progress = Progress::new("sending", Some(total), Unit::Bytes, true);
    let mut part = vec![0; UPLOAD_PART_MAX_BYTES];
    for item in wanted {
        let hash = hash_of(&item.sha256)?;
        let unreadable = |error| Code::Io.error(format!("cannot read '{}': {error}", item.from.display()));
        let (mut file, mut offset) = (File::open(&item.from).map_err(unreadable)?, 0);
        loop {
            let bytes = read_full(&mut file, &mut part).map_err(unreadable)?;
            if bytes == 0 {
                break;
            }
            remote.client().upload(&hash, offset, &part[..bytes]).map_err(|error| match error.code() {
                Code::UploadMismatch => error.within(format!("'{}' changed while it was sent", item.from.display())),
                _ => error,
            })?;
            offset += bytes as u64;
            sent += bytes as u64;
            progress.set_of(sent, total);
        }
    }
    Ok(())
}

fn read_full(file: &mut File, part: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < part.len() {
        match file.read(&mut part[filled..])? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    Ok(filled)
}

fn hash_of(text: &str) -> Result<Vec<u8>> {
    let byte = |at: usize| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    bytes.ok_or_else(|| Code::UploadUnexpected.error("the host requests a file with an invalid hash"))
}

pub fn down(remote: &Remote, args: &DownArgs, out: &mut Out) -> Outcome {
    let path = args.file.path()?;
    let application = Application::load(&path)?;
    let DownArgs { logs, force, take_over, .. } = *args;
    let order = Order::Down(Down { sending: sending(&path)?, logs, force, take_over });
    let done: StepsDoc = remote.manage(&order)?;
    for step in &done.steps {
        report(step, false, out)?;
    }
    let mut any = !done.steps.is_empty();
    if let Some(topics) = Topics::of(&application, remote) {
        each_step(out, |progress| {
            topics.release(&mut |step| {
                any = true;
                progress(Reported::Step(step));
            })
        })?;
    }
    release_removed(remote, &done.steps, out)?;
    nothing_there(any, out)
}
