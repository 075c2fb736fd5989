//! A plan that the host of the namespace makes, so that no journal is read over the network.

use super::{
    super::{
        corrections::{self, Corrections, Records},
        times,
    },
    devices, words,
};
use crate::{
    args::{Global, PlanArgs},
    out::{Out, Style},
    place::{Place, Remote, Target, remote::segment},
    report::Outcome,
    show,
};
use millrace_documents::{PlanDoc, PlanFoundDoc, PlanState, RateDoc, ReplayDoc, RewritesDoc};
use millrace_node::{
    Address, Code, Error, Hlc, Result,
    application::units,
    repairs::{self, Ask, Correction, Request},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, thread, time::Duration};

/// How often the host is asked how far it is.
const LOOK: Duration = Duration::from_millis(100);
/// Longer lists of corrections do not fit a request, and the journal is read here.
const CORRECTIONS_MAX: usize = 100_000;
const CORRECTIONS_MAX_BYTES: usize = 8 << 20;

/// A plan of the host, and its namespace.
pub struct HostPlan {
    id: String,
    name: String,
    found: PlanFoundDoc,
}

/// The namespace's description of itself.
#[derive(Deserialize)]
struct Summary {
    id: String,
}

/// Whether the journal can be read here instead: the host does not make this plan, or not for this caller.
fn is_left_to_us(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::PlanTooLarge | Code::PlanBusy | Code::PlanNotFound | Code::CapabilityDenied | Code::HttpPathUnknown
    )
}

impl HostPlan {
    /// The plan of the host, if the command is about one namespace at an address and asks for nothing that only files tell.
    pub fn find(args: &PlanArgs, global: &Global) -> Result<Option<Self>> {
        let is_plain =
            args.with.with.is_empty() && args.function.is_empty() && args.verify.is_none() && args.out.is_none();
        let Some(named) = args.log.as_deref().filter(|_| is_plain) else { return Ok(None) };
        let (target, log) = if Address::claims(named) {
            let Address { peer, log: Some(log), .. } = named.parse()? else { return Ok(None) };
            (Target::Peer(peer, global.ca.clone()), log.to_string())
        } else {
            (Target::find(global)?.0, named.to_owned())
        };
        let name = match &target {
            Target::Directory(_) => return Ok(None),
            Target::Peer(peer, _) => peer.namespace.to_string(),
            Target::Socket(path) => super::super::sources::name_of(path),
        };
        let place = Place::at(&target)?;
        match Self::ask(args, &place, &log, name) {
            Err(error) if is_left_to_us(&error) => Ok(None),
            asked => asked,
        }
    }

    fn ask(args: &PlanArgs, place: &Place, log: &str, name: String) -> Result<Option<Self>> {
        let Place::Remote(remote, _) = place else { return Ok(None) };
        // What comes from standard input can be read only once.
        if args.values.as_deref() == Some(Path::new("-")) {
            return Ok(None);
        }
        let mut within = |from, to| match times::within_of(place, log, from, to)? {
            Some(observed) => Ok(Records::Each(observed)),
            None => within(remote, log, from, to).map(|(first, last)| Records::From(first, last)),
        };
        let mut of_key = |key: &str| corrections::of_key(place, log, key);
        let (at, values) = (args.at.as_deref(), args.values.as_deref());
        let corrections = corrections::read(at, values, &mut within, &mut of_key)?;
        let Some(request) = request(log, &corrections, args)? else { return Ok(None) };
        let mut plan: PlanDoc = remote.ask_repair(&Ask::Plan(request))?;
        while plan.state == PlanState::Running {
            thread::sleep(LOOK);
            plan = remote.document(&format!("plans/{}", plan.plan))?;
        }
        let Some(found) = plan.found else { return Err(failed(&plan)) };
        if found.unknown_readers && !args.accept_unknown {
            let horizon = found.horizon.as_ref().map_or(String::new(), |at| format!(" before {at}"));
            let first = found.corrects.range.0;
            let detail = format!("the runs that read record {first} of log '{log}'{horizon} are not known");
            return Err(Code::ReadersUnknown.error(detail));
        }
        let Summary { id } = remote.document("")?;
        Ok(Some(Self { id, name, found }))
    }
}

/// What the host said of a plan that it did not make.
fn failed(plan: &PlanDoc) -> Error {
    let Some(error) = &plan.error else { return Code::PlanNotFound.error("the plan was cancelled") };
    Code::from_id(&error.code).unwrap_or(Code::DocumentUnknown).error(error.detail.clone())
}

/// The first and the last record of a log in a range of time, with both ends.
fn within(remote: &Remote, log: &str, from: Hlc, to: Hlc) -> Result<(u64, u64)> {
    let until = Hlc::from_wall_us(to.wall_us().min(LAST_MOMENT_US) + 1);
    let (from, until) = (segment(&show::rfc3339(from)), segment(&show::rfc3339(until)));
    let rate: RateDoc = remote.document(&format!("logs/{}/rate?from={from}&until={until}&buckets=1", segment(log)))?;
    match rate.first.first().filter(|_| rate.records > 0) {
        Some(first) => Ok((*first, first + rate.records - 1)),
        None => Err(Code::CorrectionInvalid.error(format!("log '{log}' has no record in this time"))),
    }
}

/// The last moment that documents can name.
const LAST_MOMENT_US: u64 = 253_402_207_200_000_000;

fn request(log: &str, corrections: &Corrections, args: &PlanArgs) -> Result<Option<Request>> {
    let bytes: usize = corrections.values().flatten().map(Vec::len).sum();
    if corrections.len() > CORRECTIONS_MAX || bytes > CORRECTIONS_MAX_BYTES {
        return Ok(None);
    }
    let corrections =
        corrections.iter().map(|(seqno, value)| Correction { seqno: *seqno, value: value.clone() }).collect();
    Ok(Some(Request {
        log: log.parse()?,
        corrections,
        reason: String::new(),
        accept_unknown: true,
        append_new: false,
        across: Vec::new(),
        run_external: args.run_external.iter().map(|name| name.parse()).collect::<Result<_>>()?,
    }))
}

impl HostPlan {
    /// As `--json` prints a plan.
    pub fn object(&self) -> Value {
        let found = &self.found;
        let group = |group: &ReplayDoc| {
            json!({
                "function": group.function, "runs": group.runs, "reason": group.reason, "log": group.log,
                "range": group.range, "took_us": group.took_us,
            })
        };
        let groups = |groups: &[ReplayDoc]| groups.iter().map(group).collect::<Vec<Value>>();
        let logs = |logs: &[RewritesDoc], name: &str| {
            let log = |log: &RewritesDoc| json!({ name: log.log, "records": log.records, "bytes": log.bytes, "range": log.range });
            logs.iter().map(log).collect::<Vec<Value>>()
        };
        let corrects = &found.corrects;
        let not_run = found.not_run.iter();
        let not_run = not_run.map(|it| json!({ "function": it.function, "runs": it.runs, "reason": it.reason }));
        let effects = self.effects().into_iter().map(|(function, runs)| json!({ "function": function, "runs": runs }));
        let copies = found.copies.iter().map(|copy| json!({ "log": copy.log, "to": copy.to }));
        let topics = found.topics.iter().map(|copy| json!({ "log": copy.log, "topic": copy.to }));
        let nothing: [&str; 0] = [];
        json!({
            "namespace": self.id,
            "corrects": {
                "log": corrects.log, "records": corrects.records, "equal": corrects.equal, "range": corrects.range,
                "from": corrects.from, "to": corrects.to,
            },
            "replaces": nothing,
            "replays": groups(&found.replays),
            "rewrites": logs(&found.rewrites, "log"),
            "overwrites": found.overwrites,
            "not_sent": logs(&found.not_sent, "peer"),
            "copies": copies.collect::<Vec<Value>>(),
            "topics": topics.collect::<Vec<Value>>(),
            "fetched": nothing,
            "participants": nothing,
            "not_run": not_run.collect::<Vec<Value>>(),
            "effects": effects.collect::<Vec<Value>>(),
            "on_devices": devices::object(&self.on_devices()),
            "stops": found.stops,
            "stale": logs(&found.stale, "log"),
            "pending": groups(&found.pending),
            "may_replay": groups(&found.may_replay),
            "claims": found.claims,
            "verified": Value::Null,
            "complete": found.complete,
            "estimate": found.estimate,
            "limits": self.limits(),
        })
    }

    fn on_devices(&self) -> devices::OnDevices {
        (self.found.on_devices.clone(), self.found.on_devices_more)
    }

    /// Runs that may have effects outside again, by function.
    fn effects(&self) -> BTreeMap<&str, u64> {
        let mut effects = BTreeMap::new();
        for group in &self.found.effects {
            *effects.entry(&*group.function).or_default() += group.runs;
        }
        effects
    }

    /// The limits of the journal, a sentence each.
    fn limits(&self) -> Vec<String> {
        let (name, found) = (&self.name, &self.found);
        let horizon = found.horizon.iter();
        let horizon =
            horizon.map(|at| format!("the journal of {name} goes back to {at}; earlier events are not known"));
        let damaged = (found.damaged > 0).then(|| {
            let stretches =
                if found.damaged == 1 { "1 stretch".into() } else { format!("{} stretches", found.damaged) };
            format!("{stretches} of the journal of {name} cannot be read; `millrace namespace check` shows which")
        });
        horizon.chain(damaged).collect()
    }

    /// As the command prints a plan.
    pub fn print(&self, out: &mut Out) -> Outcome {
        let found = &self.found;
        out.line(out.styled(Style::Bold, &format!("Plan for namespace {}. Nothing was changed.", self.name)))?;
        let mut lines: Vec<(&str, String)> = vec![("corrects", self.corrects())];
        let group = |group: &ReplayDoc, why: String| {
            format!("{:<16} {:>9} {}  {why}", group.function, show::grouped(group.runs), words::runs(group.runs))
        };
        lines.extend(found.replays.iter().map(|it| ("replays", group(it, why(it)))));
        if found.replays.is_empty() {
            lines.push(("replays", "no run".into()));
        }
        lines.extend(found.rewrites.iter().map(|it| {
            let (records, (first, last)) = (show::count(it.records, "record"), it.range);
            ("rewrites", format!("{:<16} {records}  @{first}..{last}, {}", it.log, units::show_size(it.bytes)))
        }));
        lines.extend(found.overwrites.iter().map(|it| {
            let (records, (first, last)) = (show::count(it.records, "record"), it.range);
            let again = "to keep its values, correct them again afterwards";
            (
                "overwrites",
                format!("{:<16} {records}  @{first}..{last} that repair {} corrected; {again}", it.log, it.repair),
            )
        }));
        lines.extend(found.not_sent.iter().map(|it| {
            let messages = show::count(it.records, "message");
            ("not sent", format!("{messages} to {}, which does not take part; add it with --with", it.log))
        }));
        lines.extend(found.copies.iter().map(|it| {
            ("copies", format!("{} keeps the old records of {}; to correct them, add it with --with", it.to, it.log))
        }));
        lines.extend(found.topics.iter().map(|it| {
            let what =
                format!("topic {} keeps the old records of {}, and so do its subscribers and mirrors", it.to, it.log);
            ("topics", what)
        }));
        lines.extend(found.not_run.iter().map(|it| ("not run", group(it, words::reason_of(&it.reason).into()))));
        lines.extend(self.effects().into_iter().map(|(function, count)| {
            let (count, runs) = (show::grouped(count), words::runs(count));
            ("effects", format!("{function:<16} {count:>9} {runs}  may repeat effects outside the namespace"))
        }));
        if found.stops {
            let records = found.corrects.records + found.rewrites.iter().map(|it| it.records).sum::<u64>();
            lines.push(("stops", words::stops(records > repairs::SLOTS_MAX as u64)));
        }
        lines.extend(found.stale.iter().map(|it| {
            let (records, (first, last)) = (show::count(it.records, "record"), it.range);
            ("stale", format!("{:<16} {records}  @{first}..{last} keep their values", it.log))
        }));
        lines.extend(found.pending.iter().map(|it| ("pending", group(it, "will use the new values".into()))));
        let may: u64 = found.may_replay.iter().map(|it| it.runs).sum();
        if may > 0 {
            let count = show::count(may, "run");
            lines
                .push(("may replay", format!("{count} more, if a function appends more or fewer records than before")));
        }
        if found.claims > 0 {
            let records = show::count(found.claims, "record");
            let why = "their clients named a changed record as the cause";
            lines.push(("claims", format!("{records} from outside stay; {why}")));
        }
        lines.extend(devices::lines(&self.on_devices()));
        lines.push(("complete", self.complete()));
        let estimate = &found.estimate;
        let (time, workers) = (words::took(estimate.time_us), show::count(estimate.workers, "worker"));
        let (bytes, pinned) = (units::show_size(estimate.bytes), units::show_size(estimate.pinned_bytes));
        let kept = format!("{pinned} of the journal are kept as long as the repair can be undone");
        lines.push(("cost", format!("{time} on {workers}, {bytes}; {kept}")));
        let mut before = "";
        for (word, text) in lines {
            let shown = if word == before { "" } else { word };
            out.line(format!("  {shown:<11}{text}"))?;
            before = word;
        }
        for limit in self.limits() {
            out.line(out.styled(Style::Warn, &limit))?;
        }
        Ok(())
    }

    fn corrects(&self) -> String {
        let corrects = &self.found.corrects;
        match (corrects.records, corrects.equal) {
            (0, 1) => "nothing: the value equals the recorded one".into(),
            (0, equal) => format!("nothing: all {equal} values equal the recorded ones"),
            (records, equal) => {
                let left_out = if equal > 0 {
                    format!("; {equal} more equal the recorded values and are ignored")
                } else {
                    String::new()
                };
                let (from, to) = (corrects.from.as_deref().unwrap_or("?"), corrects.to.as_deref().unwrap_or("?"));
                let (records, (first, last)) = (show::count(records, "record"), corrects.range);
                format!("{}  {records}  @{first}..{last}, {from} to {to}{left_out}", corrects.log)
            }
        }
    }

    fn complete(&self) -> String {
        let found = &self.found;
        match (found.complete, &found.horizon) {
            (true, None) => "yes: the journal has every entry".into(),
            (true, Some(horizon)) => format!("yes: the journal goes back to {horizon}"),
            (false, Some(horizon)) if found.unknown_readers => {
                format!("no: the runs that read these records before {horizon} are not known")
            }
            (false, _) if found.damaged > 0 || found.unknown_readers => {
                "no: a part of the journal cannot be read".into()
            }
            (false, _) => "no: a repair does not change the topics".into(),
        }
    }
}

/// Why runs are reached, in words.
fn why(group: &ReplayDoc) -> String {
    let log = group.log.as_deref().unwrap_or("(removed log)");
    let records = group.range.map_or(String::new(), |(first, last)| match first == last {
        true => format!("{log}@{first}"),
        false => format!("{log}@{first}..{last}"),
    });
    words::why(&group.reason, &records, log)
}
