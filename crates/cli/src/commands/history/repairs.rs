//! `millrace repair run`, `show`, `ls`, `diff`, `apply`, `rollback`, `abandon`, `gc`: asks a host for it, or does it where there is
//! none.

use super::{
    super::sandbox,
    corrections::{self, Records},
    sources::{Sources, Version},
    times,
};
use crate::{
    args::{Global, RepairCommand, RepairRunArgs, RepairShowArgs, WithArgs},
    out::{Out, Style, Table},
    place::{
        Place, Target,
        docs::{AmendmentsDoc, MemberDoc, NotRunDoc, PartOfDoc, ProgressDoc, RepairDoc, TopicKeptDoc},
        tidy,
    },
    report::Outcome,
    show,
};
use millrace_gateway::{SOCKET, reach};
use millrace_node::{
    Code, Error, Hlc, Name, Namespace, Result,
    repairs::{self, Ask, Correction, NewCode, Request},
};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

/// How often it is asked how far a repair is.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long a command waits for namespaces that take part, once the repair is decided.
const OUTCOME: Duration = Duration::from_secs(10);
/// How often it is looked whether there is a host.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a host has to be gone, so that one which is started again can do the rest itself.
const HOST_GONE: Duration = Duration::from_secs(5);
/// How often progress is printed.
const TELL_EVERY: Duration = Duration::from_secs(5);

pub fn run(command: &RepairCommand, global: &Global, out: &mut Out) -> Outcome {
    let place = Place::find(global)?;
    match command {
        RepairCommand::Plan(_) => Ok(()),
        RepairCommand::Run(args) => {
            let ask = of_run(args, global)?;
            begin(&place, ask, global, out)
        }
        RepairCommand::Show(args) => show_one(&place, args, out),
        RepairCommand::Ls => list(&place, out),
        RepairCommand::Diff(args) => super::diff::diff(&place, args, out),
        RepairCommand::Apply(args) => begin(&place, Ask::Apply(args.repair), global, out),
        RepairCommand::Rollback(args) => begin(&place, Ask::Rollback(args.repair, args.reason.clone()), global, out),
        RepairCommand::Abandon(args) => begin(&place, Ask::Abandon(args.repair), global, out),
        RepairCommand::Gc(args) => begin(&place, Ask::Close(args.repair), global, out),
    }
}

fn of_run(args: &RepairRunArgs, global: &Global) -> Result<Ask> {
    if let Some(function) = &args.function {
        return of_code(args, function, global);
    }
    let log = args.log.as_deref().unwrap_or_default();
    if args.at.is_none() && args.values.is_none() {
        let invalid = || Code::CorrectionInvalid.error("give --values, or --at with --void, or the number of a repair");
        if args.append_new || !args.with.is_empty() || !args.run_external.is_empty() {
            return Err(Code::CorrectionInvalid
                .error("--append-new, --run-external and --with can be given only for a new repair"));
        }
        return Ok(Ask::Run(log.parse().map_err(|_| invalid())?));
    }
    if args.values.is_none() && !args.void {
        return Err(Code::CorrectionInvalid.error("--at needs --values or --void"));
    }
    let mut within = |from, to| {
        if let Some(observed) = times::within(global, log, from, to)? {
            return Ok(Records::Each(observed));
        }
        let sources = Sources::load(global, &WithArgs { with: Vec::new() }, Version::Original)?;
        sources.within(log, from, to).map(|(first, last)| Records::From(first, last))
    };
    let mut of_key = |key: &str| {
        let (place, log) = Place::of_log(global, log)?;
        corrections::of_key(&place, &log, key)
    };
    let (at, values) = (args.at.as_deref(), args.values.as_deref());
    let read = corrections::read(at, values, &mut within, &mut of_key)?;
    let corrections = read.into_iter().map(|(seqno, value)| Correction { seqno, value }).collect();
    let (log, reason) = (log.parse()?, args.reason.clone());
    let (accept_unknown, append_new) = (args.accept_unknown, args.append_new);
    let across = across(args, global)?;
    let run_external = external(args)?;
    Ok(Ask::Open(Request { log, corrections, reason, accept_unknown, append_new, across, run_external }))
}

/// Functions that are replayed although they may have effects outside.
fn external(args: &RepairRunArgs) -> Result<Vec<Name>> {
    args.run_external.iter().map(|name| name.parse()).collect()
}

/// The addresses of the namespaces that take part.
fn across(args: &RepairRunArgs, global: &Global) -> Result<Vec<String>> {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let address = |named: &PathBuf| match Target::named(named, global)? {
        Target::Peer(peer, _) => Ok(peer.to_string()),
        Target::Socket(path) => Ok(format!("unix:{}", absolute(path).display())),
        Target::Directory(dir) => {
            // Its host is found by its socket.
            let remote = Place::at(&Target::Directory(dir.clone()))?;
            remote.connect()?;
            Ok(format!("unix:{}", absolute(tidy(dir)).join(SOCKET).display()))
        }
    };
    args.with.iter().map(address).collect()
}

/// Other code for a function, given as `NAME=SOURCE`.
fn of_code(args: &RepairRunArgs, function: &str, global: &Global) -> Result<Ask> {
    let (name, source) = super::named_source(function)?;
    let since = match &args.since {
        Some(since) => {
            let sources = Sources::load(global, &WithArgs { with: Vec::new() }, Version::Original)?;
            let event = sources.find(since)?;
            sources.history.table(event).id(event.row).sequence()
        }
        None => 0,
    };
    let (function, source) = (name.parse()?, source.into());
    let (reason, append_new) = (args.reason.clone(), args.append_new);
    let across = across(args, global)?;
    let run_external = external(args)?;
    let isolation = Some(sandbox::isolation()?);
    Ok(Ask::Code(NewCode { function, source, since, reason, append_new, across, run_external, isolation }))
}

/// Makes a request, waits until it is done, and prints the result.
fn begin(place: &Place, ask: Ask, global: &Global, out: &mut Out) -> Outcome {
    let applies = matches!(ask, Ask::Apply(_));
    if ask.number().is_none() {
        // Who may not see the repair could only open it.
        place.repairs()?;
    }
    let asked = place.ask_repair(ask)?;
    let done = if asked.is_moving() || asked.has_news_for_others() { wait(place, &asked, global)? } else { asked };
    tell(&done, out)?;
    match &done.error {
        Some((code, detail)) if done.phase == "stopped" => Err(stopped(code, detail).into()),
        // Somebody else gave it up while this command waited.
        _ if applies && done.phase == "abandoned" => {
            let detail = format!("repair {} was abandoned before it was applied; no record was replaced", done.repair);
            Err(Code::RepairPhase.error(detail).into())
        }
        _ => Ok(()),
    }
}

fn stopped(code: &str, detail: &str) -> Error {
    match Code::from_id(code) {
        Some(known) => known.error(detail),
        None => Code::RepairPhase.error(format!("the repair stopped: {code}: {detail}")),
    }
}

/// Does what repairs of a namespace without a host wait for.
fn in_place_of_host(namespace: &Namespace, global: &Global) -> Result<()> {
    let mut reported = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let mut peers = reach(global.ca.clone())(&stop);
    let isolation = sandbox::isolation()?;
    let done = repairs::here(namespace, &isolation, &mut *peers, &mut |number, counts, at, of| {
        if reported.elapsed() >= TELL_EVERY {
            reported = Instant::now();
            eprintln!("repair {number}: {} replayed, {at} of {of} examined", show::count(counts.replayed, "run"));
        }
    });
    match done {
        // A host was faster: then that one does it.
        Err(error) if error.code() == Code::HostHeld => Ok(()),
        done => done,
    }
}

fn wait(place: &Place, asked: &RepairDoc, global: &Global) -> Result<RepairDoc> {
    let number = asked.repair;
    let (mut looked, mut gone, mut now) = (None::<Instant>, None::<Instant>, asked.clone());
    let (mut reported, mut said, mut decided) = (Instant::now(), String::new(), None);
    loop {
        // A host may end at any time; then this command carries the repair out.
        if let Place::Local(namespace) = place
            && looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY)
        {
            let is_first = looked.is_none();
            looked = Some(Instant::now());
            gone = if namespace.host()?.is_none() { gone.or_else(|| Some(Instant::now())) } else { None };
            let is_gone = gone.is_some_and(|gone| is_first || gone.elapsed() >= HOST_GONE);
            if is_gone && (now.is_moving() || now.has_news_for_others()) {
                in_place_of_host(namespace, global)?;
            }
        }
        now = place.repair(number)?;
        // It is decided, and a namespace that does not answer learns it when it is back.
        let waits_on = |decided: Instant| now.has_news_for_others() && decided.elapsed() < OUTCOME;
        if !now.is_moving() && !waits_on(*decided.get_or_insert_with(Instant::now)) {
            return Ok(now);
        }
        if reported.elapsed() >= TELL_EVERY {
            reported = Instant::now();
            let missing = now.across.iter().find_map(|member| Some((&member.address, member.error.as_ref()?)));
            let missing = missing.map(|(address, (code, error))| format!("; it waits for {address}: {error} [{code}]"));
            let disk = now.waits.as_ref().map(|(code, error)| format!("; it waits: {error} [{code}]"));
            let waits = disk.or(missing);
            let way_out = match &waits {
                Some(_) if now.is_moving() => format!("; `millrace repair abandon {number}` abandons it"),
                _ => String::new(),
            };
            let far = progress(&now).map(|far| format!(": {far}")).unwrap_or_default();
            let news = format!("repair {number} is {}{far}{}{way_out}", now.phase, waits.unwrap_or_default());
            if said != news {
                eprintln!("{news}");
                said = news;
            }
        }
        thread::sleep(ASK_EVERY);
    }
}

/// Shows a repair, again whenever it has changed if somebody follows it.
fn show_one(place: &Place, args: &RepairShowArgs, out: &mut Out) -> Outcome {
    let mut shown = place.repair(args.repair)?;
    tell(&shown, out)?;
    while args.follow && (shown.is_moving() || shown.has_news_for_others()) {
        out.flush()?;
        thread::sleep(ASK_EVERY);
        let now = place.repair(args.repair)?;
        if now != shown {
            tell(&now, out)?;
            shown = now;
        }
    }
    Ok(())
}

/// The progress of a replay.
fn progress(repair: &RepairDoc) -> Option<String> {
    let ProgressDoc { examined, runs } = repair.progress?;
    let (examined, runs) = (show::grouped(examined), show::count(runs, "run"));
    Some(format!("{examined} of {runs} examined, {} replayed", show::grouped(repair.counts.replayed)))
}

fn tell(repair: &RepairDoc, out: &mut Out) -> Outcome {
    if out.json() {
        return Ok(out.object(&serde_json::to_value(repair).unwrap_or_default())?);
    }
    let of = match (&repair.log, repair.undo, &repair.function) {
        (_, Some(undone), _) => format!("undoes repair {undone}"),
        (Some(log), None, _) => format!("corrects {} of '{log}'", show::count(repair.records, "record")),
        (None, None, Some(function)) => format!("replaces the code of function '{function}'"),
        (None, None, None) => "corrects records that other namespaces sent".into(),
    };
    let style = if repair.phase == "stopped" { Style::Bad } else { Style::Bold };
    let phase = out.styled(style, &repair.phase);
    out.line(format!("repair {}: {phase}; {of}", repair.repair))?;
    if !repair.reason.is_empty() {
        out.line(format!("  because    {}", repair.reason))?;
    }
    if let Some(far) = progress(repair) {
        out.line(format!("  progress   {far}"))?;
    }
    let counts = &repair.counts;
    if counts.replayed + counts.cancelled + counts.replaced + counts.void + counts.appended > 0 {
        let same = if counts.same > 0 { format!(", {} with the same result", counts.same) } else { String::new() };
        out.line(format!("  replayed   {}{same}", show::count(counts.replayed, "run")))?;
        if counts.failed > 0 {
            out.line(format!("  failed     {}, each with a dead letter", show::count(counts.failed, "run")))?;
        }
        if counts.cancelled > 0 {
            out.line(format!("  cancelled  {}", show::count(counts.cancelled, "run")))?;
        }
        out.line(format!("  replaces   {}", show::count(counts.replaced, "record")))?;
        if counts.void > 0 {
            out.line(format!("  removes    {}", show::count(counts.void, "record")))?;
        }
        if counts.appended > 0 {
            out.line(format!("  appends    {}", show::count(counts.appended, "record")))?;
        }
    }
    let mut word = "not run";
    for NotRunDoc { function, runs, unable, device } in &repair.not_run {
        let runs = show::count(*runs, "run");
        let why = match (unable, device) {
            (_, true) => "which ran on devices, and which no twin can replay",
            (true, _) => "which cannot be replayed",
            (false, _) => "which may have effects outside the namespace",
        };
        let text = format!("{runs} of {function}, {why}; the records that they appended stay");
        out.line(format!("  {:<11}{text}", std::mem::take(&mut word)))?;
    }
    let mut word = "topics";
    for TopicKeptDoc { log, topic } in &repair.topics {
        let text = format!("topic {topic} keeps the old records of {log}, and so do its subscribers and mirrors");
        out.line(format!("  {:<11}{text}", std::mem::take(&mut word)))?;
    }
    if let Some((code, error)) = &repair.waits {
        out.line(format!("  waits      {error} [{code}]"))?;
    }
    if let Some((code, error)) = repair.error.as_ref().filter(|_| matches!(&*repair.phase, "stopped" | "abandoned")) {
        out.line(format!("  stopped    {error} [{code}]"))?;
    }
    let number = repair.repair;
    for MemberDoc { address, error, done } in &repair.across {
        let state = match error {
            Some((code, error)) => format!("; waits: {error} [{code}]"),
            None if !*done && repair.has_news_for_others() => "; does not know the outcome yet".into(),
            None => String::new(),
        };
        out.line(format!("  with       {address}{state}"))?;
    }
    if let Some(PartOfDoc { namespace, repair }) = &repair.part_of {
        return Ok(out.line(format!(
            "  part of    repair {repair} of namespace {namespace}, which decides whether it is applied"
        ))?);
    }
    let next = match &*repair.phase {
        "open" | "stopped" => Some(format!("millrace repair run {number}   or   millrace repair abandon {number}")),
        "running" => Some(format!("the host continues; if no host is running: millrace repair run {number}")),
        "applying" => Some(format!("the host continues; if no host is running: millrace repair apply {number}")),
        "ready" => Some(format!("millrace repair diff {number}   then   millrace repair apply {number}")),
        "applied" if repair.undo.is_none() => Some(format!("millrace repair rollback {number} to undo it")),
        _ => None,
    };
    next.map_or(Ok(()), |next| Ok(out.line(format!("  next       {next}"))?))
}

fn list(place: &Place, out: &mut Out) -> Outcome {
    let repairs = place.repairs()?;
    if out.json() {
        for repair in &repairs {
            out.object(&serde_json::to_value(repair).unwrap_or_default())?;
        }
        return Ok(());
    }
    let waiting: Vec<_> = place.amendments()?.into_iter().filter(|of| of.waiting > 0).collect();
    if repairs.is_empty() {
        out.line("no repairs")?;
        return list_waiting(&waiting, out);
    }
    let mut table = Table::new(&["repair>", "phase", "begun", "log", "records>", "runs>", "replaces>", "reason"]);
    for repair in repairs {
        let log = match (repair.undo, &repair.part_of) {
            (Some(undone), _) => format!("(undoes {undone})"),
            (None, Some(of)) => format!("(part of {} of {})", of.repair, of.namespace),
            (None, None) => repair.log.or(repair.function.map(|name| format!("(function {name})"))).unwrap_or_default(),
        };
        let counts = repair.counts;
        table.row(vec![
            repair.repair.to_string(),
            repair.phase,
            show::clock(Hlc::from_bits(repair.at_us << 12)),
            log,
            repair.records.to_string(),
            counts.replayed.to_string(),
            (counts.replaced + counts.void + counts.appended).to_string(),
            repair.reason,
        ]);
    }
    out.table(&table)?;
    list_waiting(&waiting, out)
}

/// The waiting amendments.
fn list_waiting(waiting: &[AmendmentsDoc], out: &mut Out) -> Outcome {
    for AmendmentsDoc { log, waiting, count, due_us } in waiting {
        let due = show::clock(Hlc::from_bits(due_us.unwrap_or(0) << 12));
        out.line(format!("{waiting} of {count} amendments of log '{log}' wait for a repair, due at {due}"))?;
    }
    Ok(())
}
