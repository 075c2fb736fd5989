//! `millrace namespace …`: verifying, saving, copying whole namespaces.

mod check;

use crate::{
    args::{BackupArgs, CheckArgs, Global, NamespaceCommand, RestoreArgs, RetentionArgs},
    out::Out,
    place::{self, Place, Target},
    progress::{Progress, Unit},
    report::{Failure, Outcome},
    show,
};
use millrace_node::{
    Code, CreateOptions, Namespace, Result,
    application::units,
    upkeep::{self, Backup},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub fn run(command: &NamespaceCommand, global: &Global, out: &mut Out) -> Outcome {
    match command {
        NamespaceCommand::Check(args) => check(args, global, out),
        NamespaceCommand::Backup(args) => backup(args, global, out),
        NamespaceCommand::Restore(args) => restore(args, out),
        NamespaceCommand::Set(args) => set(args, global, out),
    }
}

/// The directory that a command is about.
fn directory(named: Option<&PathBuf>, global: &Global) -> Result<PathBuf> {
    if let Some(dir) = named {
        return Ok(dir.clone());
    }
    match Target::find(global)?.0 {
        Target::Directory(dir) => Ok(place::tidy(dir)),
        elsewhere => Err(place::local_only(&elsewhere)),
    }
}

/// The namespace to verify: its files as they are on disk, or as the processes that use it see them.
fn to_verify(dir: &Path) -> Result<Namespace> {
    match upkeep::view(dir) {
        Err(error) if error.code() == Code::NamespaceInUse => Namespace::open(dir),
        view => view,
    }
}

fn check(args: &CheckArgs, global: &Global, out: &mut Out) -> Outcome {
    let dir = directory(args.dir.as_ref(), global)?;
    match &args.salvage {
        Some(to) => salvage(&dir, to, out),
        None => check::check(&to_verify(&dir)?, out),
    }
}

fn salvage(dir: &Path, to: &Path, out: &mut Out) -> Outcome {
    let view = upkeep::view(dir)?;
    let progress = Progress::new("salvaging", Some(0), Unit::Bytes, true);
    let upkeep::Saved { journal: salvaged, lost_runs } =
        upkeep::salvage(&view, to, &mut |done, total| progress.set_of(done, total))?;
    drop(progress);
    let rebuilt = view.journal().recovery().rebuilt.as_ref();
    let uncertain: Vec<String> = salvaged.uncertain.iter().map(ToString::to_string).collect();
    if out.json() {
        return Ok(out.object(&json!({
            "salvaged": to, "entries": salvaged.entries, "records": salvaged.records,
            "lost": check::lost_objects(&salvaged.lost), "damaged": check::ranges(&salvaged.damaged),
            "uncertain": uncertain, "lost_runs": lost_runs, "rebuilt": rebuilt.map(check::rebuilt_object),
        }))?);
    }
    out.line(format!("salvaged   {} with {}", to.display(), show::count(salvaged.records, "record")))?;
    check::tell_rebuilt(rebuilt, out)?;
    for (from, to) in &salvaged.damaged {
        out.line(format!(
            "damaged    positions {from} to {to}; the newest records of a log may have been there: such records are lost, and are not listed"
        ))?;
    }
    check::tell_lost(&salvaged.lost, out)?;
    check::tell_lost_runs(&lost_runs, out)?;
    for run in uncertain {
        out.line(format!("uncertain  run {run} may already have ended; it will run again"))?;
    }
    Ok(out.line("the original is unchanged; in the new namespace, links are stopped: see `millrace outbox ls` and `millrace relay ls`")?)
}

fn backup(args: &BackupArgs, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    let namespace = place.files()?;
    let progress = Progress::new("copying", Some(0), Unit::Bytes, true);
    let done = upkeep::back_up(namespace, &args.to, &mut |done, total| progress.set_of(done, total))?;
    drop(progress);
    if out.json() {
        let mut reported = object(&args.to, &done.head, done.bytes);
        if let (Some(reported), Value::Object(found)) = (reported.as_object_mut(), check::backup_object(&done.found)) {
            reported.extend(found);
        }
        out.object(&reported)?;
    } else {
        let (head, size, to) = (&done.head, units::show_size(done.bytes), args.to.display());
        out.line(format!("backup of namespace {} (epoch {}) in {to}: {size}", head.namespace, head.epoch))?;
        check::tell_backup(&done.found, out)?;
    }
    if done.head.sound {
        return Ok(());
    }
    out.flush()?;
    let what = format!("'{}' was written, but the namespace is damaged", args.to.display());
    Err(Failure::Coded(Code::BackupUnsound.error(what)))
}

fn object(dir: &Path, head: &Backup, bytes: u64) -> serde_json::Value {
    json!({
        "backup": dir, "namespace": head.namespace, "epoch": head.epoch, "tail": head.tail, "bytes": bytes,
        "functions": head.functions.len(), "created_us": head.created_us,
    })
}

/// Makes a restored namespace keep no more than a new one on this disk would; what it kept before, if it changed.
fn fit(namespace: &Namespace, dir: &Path) -> Result<Option<u64>> {
    let journal = namespace.journal();
    let made = journal.made_with();
    let fitting = CreateOptions::fitting(dir, Some(made.segment_bytes), None).retain_bytes;
    if fitting >= made.retain_bytes || fitting >= CreateOptions::default().retain_bytes {
        return Ok(None);
    }
    // Nothing is dropped yet: a user who needs the old entries can still raise the limit.
    Ok(journal.set_retention(Some(fitting), None)?.then_some(made.retain_bytes))
}

fn set(args: &RetentionArgs, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    let namespace = place.files()?;
    let changed = namespace.set_retention(args.retain_bytes, args.retain_age.map(|age| age.0))?;
    let made = namespace.journal().made_with();
    if out.json() {
        let age_ms = made.retain_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        return Ok(
            out.object(&json!({ "changed": changed, "retain_bytes": made.retain_bytes, "retain_age_ms": age_ms }))?
        );
    }
    let age = made.retain_age.map_or("none".into(), units::show_duration);
    out.line(format!("retain_bytes {}, retain_age {age}", units::show_size(made.retain_bytes)))?;
    if made.retain_bytes < made.segment_bytes {
        let segment = units::show_size(made.segment_bytes);
        out.line(format!("more is kept: only whole segments are dropped, of {segment} each, and never the newest"))?;
    }
    Ok(())
}

fn restore(args: &RestoreArgs, out: &mut Out) -> Outcome {
    let progress = Progress::new("verifying", Some(0), Unit::Bytes, true);
    let head = upkeep::restore(&args.from, &args.dir, &mut |done, total| progress.set_of(done, total))?;
    drop(progress);
    let namespace = Namespace::open(&args.dir)?;
    let (id, epoch) = (namespace.journal().namespace(), namespace.journal().epoch());
    let fitted = fit(&namespace, &args.dir)?;
    let retain_bytes = namespace.journal().made_with().retain_bytes;
    if out.json() {
        return Ok(out.object(&json!({
            "restored": args.dir, "namespace": id.to_string(), "epoch": epoch, "retain_bytes": retain_bytes,
            "from": { "namespace": head.namespace, "epoch": head.epoch },
        }))?);
    }
    out.line(format!(
        "restored {} as namespace {id} (epoch {epoch}), from a backup of {}",
        args.dir.display(),
        head.namespace
    ))?;
    if let Some(was) = fitted {
        let (now, was) = (units::show_size(retain_bytes), units::show_size(was));
        out.line(format!(
            "the disk is small, so the journal keeps at least {now} and no longer {was}; `millrace namespace set` changes this"
        ))?;
    }
    Ok(out.line(
        "links to other namespaces are stopped until you confirm that this copy replaces the original: \
         `millrace outbox ls`, `millrace relay ls`",
    )?)
}
