//! `millrace trace`: the tree of what a record or a run caused, or of what it came from.

mod journals;

use super::sources::{Sources, Version};
use crate::{
    args::{Global, TraceArgs},
    out::{Out, Style},
    place::{Place, Target, remote::segment},
    report::Outcome,
    show,
};
use millrace_causality::{Tree, TreeLimits};
use millrace_documents::{KeyText, TraceBranchDoc, TraceDoc, TracedRecordDoc, TracedRunDoc, ValueDoc};
use millrace_node::{Address, Code, EventId, Result, application::units};
use serde_json::{Value, json};
use std::time::Duration;

/// Characters of a value in the tree.
const VALUE_CHARS_MAX: usize = 60;
/// Levels of the tree in JSON: each is an object in an array of the one above it, and programs that read JSON go no deeper than this.
const JSON_DEPTH_MAX: usize = 400;
/// A host's tree has at most so many levels, and so many branches, in all and below one.
const HOST_DEPTH_MAX: u32 = 64;
const HOST_BRANCHES_MAX: u32 = 1000;

pub fn run(args: &TraceArgs, global: &Global, out: &mut Out) -> Outcome {
    if let Some(doc) = of_host(args, global)? {
        return Shown { doc: &doc, up: args.up, prefixes: &|_| String::new(), limits: Vec::new() }.tell(out);
    }
    let (log, at) = match args.target.rsplit_once('@') {
        Some((log, seqno)) => (log, format!("@{seqno}")),
        None => (&*args.target, String::new()),
    };
    let version = if args.original { Version::Original } else { Version::Repaired };
    let (sources, log) = Sources::load_for(global, &args.with, version, log)?;
    let event = sources.find(&format!("{log}{at}"))?;
    let (branches_max, below_max) = (args.limit as usize, args.width as usize);
    let depth_max = (args.depth as usize).min(if out.json() { JSON_DEPTH_MAX } else { usize::MAX });
    let limits = TreeLimits { branches_max, below_max, depth_max };
    let tree = match args.up {
        true => Tree::causes(&sources.history, event, limits),
        false => Tree::effects(&sources.history, event, limits),
    };
    let tree = tree.ok_or_else(|| {
        let id = sources.history.id(event);
        Code::EventNotKept.error(format!("event {id} belongs to no known record or run"))
    })?;
    let doc = journals::document(&sources, &tree, args.up)?;
    let prefixes = |branch: usize| sources.prefix(tree.branches[branch].place);
    Shown { doc: &doc, up: args.up, prefixes: &prefixes, limits: sources.limits() }.tell(out)?;
    Ok(sources.check()?)
}

/// The tree as a host found it. `None` if the journal has to be read for it: it is here, or one of several; the history before repairs is
/// asked for, or more than a host shows at once; or the tree goes beyond what the host read.
fn of_host(args: &TraceArgs, global: &Global) -> Result<Option<TraceDoc>> {
    let is_small = args.depth <= HOST_DEPTH_MAX && args.limit.max(args.width) <= HOST_BRANCHES_MAX;
    if args.original || !args.with.with.is_empty() || !is_small {
        return Ok(None);
    }
    let (log, at) = args.target.rsplit_once('@').map_or((&*args.target, None), |(log, at)| (log, Some(at)));
    let (target, log) = match Address::claims(log) {
        true => match log.parse::<Address>()? {
            Address { log: Some(log), peer } => (Target::Peer(peer, global.ca.clone()), log.to_string()),
            _ => return Ok(None),
        },
        false => (Target::find(global)?.0, log.to_owned()),
    };
    if matches!(target, Target::Directory(_)) {
        return Ok(None);
    }
    let Place::Remote(host, _) = Place::at(&target)? else { return Ok(None) };
    let direction = if args.up { "causes" } else { "effects" };
    let (depth, width, limit) = (args.depth, args.width, args.limit);
    let event = at.map_or_else(|| segment(&log), |at| format!("{}@{}", segment(&log), segment(at)));
    let asked = format!("trace/{event}?direction={direction}&depth={depth}&width={width}&limit={limit}");
    let doc: TraceDoc = match host.document(&asked) {
        // Its version has no such document.
        Err(error) if error.code() == Code::HttpPathUnknown => return Ok(None),
        doc => doc?,
    };
    Ok(Some(doc).filter(|doc| doc.next.is_none() && doc.unknown == 0 && !doc.branches.is_empty()))
}

/// A tree, as people and programs see it.
struct Shown<'a> {
    doc: &'a TraceDoc,
    up: bool,
    /// What is in front of a name: the namespace, if there are several.
    prefixes: &'a dyn Fn(usize) -> String,
    /// Why it may be incomplete, a sentence each.
    limits: Vec<String>,
}

impl Shown<'_> {
    fn tell(&self, out: &mut Out) -> Outcome {
        if out.json() { Ok(out.object(&self.object())?) } else { self.print(out) }
    }

    /// The branches below each one.
    fn below(&self) -> Vec<Vec<usize>> {
        let mut below = vec![Vec::new(); self.doc.branches.len()];
        for (at, branch) in self.doc.branches.iter().enumerate() {
            if let Some(above) = branch.above.and_then(|above| below.get_mut(above)) {
                above.push(at);
            }
        }
        below
    }

    /// When, counted from the root.
    fn offset(&self, at: &str) -> String {
        let [root, at] = [&self.doc.branches[0].time, at].map(micros);
        let (sign, us) = if at >= root { ("+", at - root) } else { ("-", root - at) };
        if us == 0 { "+0".into() } else { format!("{sign}{}", duration(us)) }
    }

    fn print(&self, out: &mut Out) -> Outcome {
        self.print_branches(out)?;
        let (records, runs) = (self.doc.records, self.doc.runs);
        let what = format!("{}, {}", show::count(records, "record"), show::count(runs, "run"));
        let line = out.styled(Style::Dim, &what);
        out.line(line)?;
        if self.doc.unknown > 0 {
            let line =
                format!("{} that led to it are no longer in the journals", show::count(self.doc.unknown, "event"));
            out.line(out.styled(Style::Warn, &line))?;
        }
        for limit in &self.limits {
            out.line(out.styled(Style::Warn, limit))?;
        }
        Ok(())
    }

    fn print_branches(&self, out: &mut Out) -> Outcome {
        let below = self.below();
        // As deep as causes go: a list of what is to be printed replaces nested calls.
        let mut open = vec![(0, String::new(), String::new())];
        while let Some((at, first, rest)) = open.pop() {
            if at == usize::MAX {
                out.line(format!("{first}{}", out.styled(Style::Dim, &rest)))?;
                continue;
            }
            out.line(format!("{first}{}", self.line(at, out)))?;
            let more = self.doc.branches[at].more;
            if more > 0 {
                let text = format!("and {} more", show::grouped(more));
                open.push((usize::MAX, format!("{rest}└─ "), text));
            }
            for (number, child) in below[at].iter().enumerate().rev() {
                let is_last = number + 1 == below[at].len() && more == 0;
                let (corner, side) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                open.push((*child, format!("{rest}{corner}"), format!("{rest}{side}")));
            }
        }
        Ok(())
    }

    fn line(&self, at: usize, out: &Out) -> String {
        let branch = &self.doc.branches[at];
        let when = if at == 0 { branch.time.clone() } else { self.offset(&branch.time) };
        let when = out.styled(Style::Dim, &when);
        let link = branch.link.as_deref().unwrap_or_default();
        let prefix = (self.prefixes)(at);
        match (&branch.record, &branch.run) {
            (Some(record), _) => {
                let log = record.log.as_deref().unwrap_or("(removed log)");
                let name = out.styled(Style::Bold, &format!("{prefix}{log}@{}", record.seqno));
                let word = match link {
                    "read" => "read ",
                    "claimed" => "claimed: ",
                    _ => "",
                };
                format!("{word}{name}  {when}  {}", value_of(record))
            }
            (None, Some(run)) => {
                let word = match (link, self.up) {
                    ("read", _) => "read by ",
                    ("appended", true) => "appended by ",
                    ("claimed", _) => "claimed: ",
                    _ => "",
                };
                let name = run.function.as_deref().unwrap_or("(removed function)");
                let id = out.styled(Style::Dim, &branch.id);
                format!("{word}run of {prefix}{name}  {when}  {}  {id}", course(run, out))
            }
            (None, None) => format!("event {}  {when}", branch.id),
        }
    }

    fn object(&self) -> Value {
        let below = self.below();
        let mut objects: Vec<Option<Value>> = self.doc.branches.iter().map(|branch| Some(object(branch))).collect();
        // Branches come after the one above them.
        for at in (0..objects.len()).rev() {
            let below = below[at].iter().filter_map(|below| objects[*below].take()).collect();
            if let Some(object) = &mut objects[at] {
                object["below"] = Value::Array(below);
                object["more"] = json!(self.doc.branches[at].more);
            }
        }
        json!({
            "direction": self.doc.direction,
            "root": objects[0].take(),
            "records": self.doc.records,
            "runs": self.doc.runs,
            "unknown": self.doc.unknown,
            "limits": self.limits,
        })
    }
}

/// How a run went.
fn course(run: &TracedRunDoc, out: &Out) -> String {
    let state = run.state.as_deref().unwrap_or("unknown");
    let style = match state {
        "done" => Style::Good,
        "dead" => Style::Bad,
        "started" => Style::Warn,
        _ => Style::Dim,
    };
    let state = out.styled(style, state);
    let took = match (&run.began, &run.ended) {
        (Some(began), Some(ended)) => match micros(ended).saturating_sub(micros(began)) {
            // The clock of a device that ran it counts milliseconds.
            0 => String::new(),
            us => format!(" in {}", duration(us)),
        },
        _ => String::new(),
    };
    let tried = if run.attempts > 1 { format!(", attempt {}", run.attempts) } else { String::new() };
    let code = run.code.as_deref().map_or(String::new(), |code| format!(" {code}"));
    let replayed = run.replayed_by.map_or(String::new(), |repair| format!(", replayed by repair {repair}"));
    format!("{state}{took}{tried}{code}{replayed}")
}

/// A record's value for people, with what it was before a repair.
fn value_of(record: &TracedRecordDoc) -> String {
    let now = match record {
        _ if record.void => "(removed)".into(),
        _ if record.deleted => "(deleted)".into(),
        _ => brief(&record.value),
    };
    let now = match &record.key {
        Some(KeyText(key)) => format!("{} = {now}", show::brief(key, VALUE_CHARS_MAX)),
        None => now,
    };
    match (record.repair, &record.original) {
        (Some(repair), Some(original)) => format!("{now}  (repair {repair}; was {})", brief(original)),
        (Some(repair), None) => format!("{now}  (repair {repair})"),
        _ => now,
    }
}

fn brief(value: &ValueDoc) -> String {
    value.shown().map_or_else(|| "(not readable)".into(), |bytes| show::brief(&bytes, VALUE_CHARS_MAX))
}

/// A branch for programs, without those below it.
fn object(branch: &TraceBranchDoc) -> Value {
    let namespace = branch.id.parse().ok().and_then(EventId::namespace).map(|namespace| namespace.to_string());
    let mut object = json!({ "id": branch.id, "namespace": namespace, "link": branch.link, "time": branch.time });
    if let Some(run) = &branch.run {
        object["run"] = json!({
            "function": run.function,
            "state": run.state,
            "attempts": run.attempts,
            "began": run.began,
            "ended": run.ended,
            "code": run.code,
            "replayed_by": run.replayed_by,
        });
    }
    if let Some(record) = &branch.record {
        let mut shown = if record.void { json!({}) } else { json!(record.value) };
        if let Some(repair) = record.repair {
            shown["repaired"] = json!({ "repair": repair, "void": record.void, "original": record.original });
        }
        shown["log"] = json!(record.log);
        shown["seqno"] = json!(record.seqno);
        if let Some(key) = &record.key {
            (shown["key"], shown["deleted"]) = (json!(key), json!(record.deleted));
        }
        object["record"] = shown;
    }
    object
}

/// A moment of a document, in microseconds since 1970.
fn micros(moment: &str) -> u64 {
    show::moment(moment).map_or(0, |at| at.wall_us())
}

fn duration(us: u64) -> String {
    units::show_duration(Duration::from_micros(us))
}
