//! `millrace trace`: the tree of what a record or a run caused, or of what it came from.

use super::sources::{Sources, Stored, Version};
use crate::{
    args::{Global, TraceArgs},
    out::{Out, Style},
    report::Outcome,
    show,
};
use millrace_causality::{Link, Place, Tree, TreeLimits};
use millrace_journal::{Kind, Outcome as Ended};
use millrace_node::{Code, Hlc, Result, application::units};
use serde_json::{Value, json};
use std::{collections::HashMap, time::Duration};

/// Characters of a value in the tree.
const VALUE_CHARS_MAX: usize = 60;
/// Levels of the tree in JSON: each is an object in an array of the one above it, and programs that read JSON go no deeper than this.
const JSON_DEPTH_MAX: usize = 400;
/// Bytes of a value in JSON.
const VALUE_BYTES_MAX: usize = 4096;

pub fn run(args: &TraceArgs, global: &Global, out: &mut Out) -> Outcome {
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
    let shown = Shown::new(&sources, &tree, args.up)?;
    if out.json() {
        out.object(&shown.object())?;
    } else {
        shown.print(out)?;
    }
    Ok(sources.check()?)
}

/// The state of a run.
#[derive(Clone, Copy, Default)]
struct Course {
    /// When its first attempt and its last one began.
    began: Option<(Hlc, Hlc)>,
    attempts: u32,
    ended: Option<Hlc>,
    /// How it ended: the last time that it was replayed, if it was.
    outcome: Option<(Ended, u16)>,
    /// The repair that replayed it.
    replayed: Option<u64>,
}

impl Course {
    fn state(&self) -> &'static str {
        match (self.outcome, self.began) {
            (Some((Ended::Done, _)), _) => "done",
            (Some((Ended::Dead, _)), _) => "dead",
            (Some((Ended::Cancelled, _)), _) => "cancelled",
            (None, Some(_)) => "started",
            (None, None) => "pending",
        }
    }

    fn style(&self) -> Style {
        match self.state() {
            "done" => Style::Good,
            "dead" => Style::Bad,
            "started" => Style::Warn,
            _ => Style::Dim,
        }
    }

    fn code(&self) -> Option<String> {
        let (_, code) = self.outcome.filter(|(_, code)| *code != 0)?;
        Some(format!("MR{code:04}"))
    }
}

struct Shown<'a> {
    sources: &'a Sources,
    tree: &'a Tree,
    up: bool,
    runs: HashMap<Place, Course>,
    values: HashMap<Place, (String, Value)>,
}

impl<'a> Shown<'a> {
    fn new(sources: &'a Sources, tree: &'a Tree, up: bool) -> Result<Self> {
        let history = &sources.history;
        let mut shown = Self { sources, tree, up, runs: HashMap::new(), values: HashMap::new() };
        for branch in &tree.branches {
            if history.row(branch.place).is(Kind::Trigger) {
                shown.runs.insert(branch.place, Course::default());
            } else {
                shown.values.insert(branch.place, shown.value(branch.place)?);
            }
        }
        for (place, course) in &mut shown.runs {
            let table = history.table(*place);
            if let Some(replay) = table.replay(place.row) {
                course.replayed = Some(replay.repair);
                course.outcome = table.row(replay.row).outcome();
            }
        }
        for (at, table) in history.tables().iter().enumerate() {
            for number in 0..table.len() {
                let row = table.row(number);
                let is_course = row.is(Kind::Fired) || row.is(Kind::Done);
                let Some(run) = Some(number).filter(|_| is_course).and_then(|number| table.run_of(number)) else {
                    continue;
                };
                let Some(course) = shown.runs.get_mut(&Place { table: at as u32, row: run }) else { continue };
                if let Some(outcome) = row.outcome() {
                    course.ended = course.ended.or(Some(row.hlc()));
                    course.outcome = course.outcome.or(Some(outcome));
                } else if row.attempt().is_some_and(|(_, waits)| !waits) {
                    course.attempts += 1;
                    course.began = Some((course.began.map_or(row.hlc(), |(first, _)| first), row.hlc()));
                }
            }
        }
        Ok(shown)
    }

    /// A record's value for people and for programs, with what it was before a repair.
    fn value(&self, place: Place) -> Result<(String, Value)> {
        let table = self.sources.history.table(place);
        let Some(version) = table.version(place.row) else {
            let bytes = table.row(place.row).record_bytes();
            return Ok(shown(self.sources.value(place)?.as_ref(), bytes));
        };
        let bytes = table.row(version.row).record_bytes();
        let (now, mut object) = match version.void {
            true => ("(removed)".into(), json!({})),
            false => shown(self.sources.value(place)?.as_ref(), bytes),
        };
        let (was, original) = shown(self.sources.original(place)?.as_ref(), table.row(place.row).record_bytes());
        let repair = version.repair;
        object["repaired"] = json!({ "repair": repair, "void": version.void, "original": original });
        Ok((format!("{now}  (repair {repair}; was {was})"), object))
    }

    fn root_time(&self) -> Hlc {
        self.sources.history.row(self.tree.branches[0].place).hlc()
    }

    /// When, counted from the root.
    fn offset(&self, at: Hlc) -> String {
        let root = self.root_time().wall_us();
        let (sign, us) = match at.wall_us().checked_sub(root) {
            Some(us) => ("+", us),
            None => ("-", root - at.wall_us()),
        };
        if us == 0 { "+0".into() } else { format!("{sign}{}", duration(us)) }
    }

    fn print(&self, out: &mut Out) -> Outcome {
        self.print_branch(0, "", "", out)?;
        let (records, runs) = (self.tree.records, self.tree.runs);
        let what = format!("{}, {}", show::count(records, "record"), show::count(runs, "run"));
        let line = out.styled(Style::Dim, &what);
        out.line(line)?;
        if self.tree.unknown > 0 {
            let line =
                format!("{} that led to it are no longer in the journals", show::count(self.tree.unknown, "event"));
            out.line(out.styled(Style::Warn, &line))?;
        }
        for limit in self.sources.limits() {
            out.line(out.styled(Style::Warn, &limit))?;
        }
        Ok(())
    }

    fn print_branch(&self, at: usize, first: &str, rest: &str, out: &mut Out) -> Outcome {
        // As deep as causes go: a list of what is to be printed replaces nested calls.
        let mut open = vec![(at, first.to_owned(), rest.to_owned())];
        while let Some((at, first, rest)) = open.pop() {
            if at == usize::MAX {
                out.line(format!("{first}{}", out.styled(Style::Dim, &rest)))?;
                continue;
            }
            let branch = &self.tree.branches[at];
            out.line(format!("{first}{}", self.line(at, out)))?;
            let more = branch.more > 0;
            if more {
                let text = format!("and {} more", show::grouped(branch.more));
                open.push((usize::MAX, format!("{rest}└─ "), text));
            }
            for (number, below) in branch.below.iter().enumerate().rev() {
                let is_last = number + 1 == branch.below.len() && !more;
                let (corner, side) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                open.push((*below, format!("{rest}{corner}"), format!("{rest}{side}")));
            }
        }
        Ok(())
    }

    fn line(&self, at: usize, out: &Out) -> String {
        let branch = &self.tree.branches[at];
        let row = self.sources.history.row(branch.place);
        let when = if at == 0 { show::rfc3339(row.hlc()) } else { self.offset(row.hlc()) };
        let when = out.styled(Style::Dim, &when);
        let Some(course) = self.runs.get(&branch.place) else {
            let name = out.styled(Style::Bold, &self.sources.record_name(branch.place));
            let word = match branch.link {
                Link::Read => "read ",
                Link::Claimed => "claimed: ",
                _ => "",
            };
            return format!("{word}{name}  {when}  {}", self.values[&branch.place].0);
        };
        let word = match (branch.link, self.up) {
            (Link::Read, _) => "read by ",
            (Link::Appended, true) => "appended by ",
            (Link::Claimed, _) => "claimed: ",
            _ => "",
        };
        let state = out.styled(course.style(), course.state());
        let took = match (course.began, course.ended) {
            (Some((_, last)), Some(ended)) => {
                format!(" in {}", duration(ended.wall_us().saturating_sub(last.wall_us())))
            }
            _ => String::new(),
        };
        let tried = if course.attempts > 1 { format!(", attempt {}", course.attempts) } else { String::new() };
        let code = course.code().map_or(String::new(), |code| format!(" {code}"));
        let replayed = course.replayed.map_or(String::new(), |repair| format!(", replayed by repair {repair}"));
        let name = self.sources.function_name(branch.place);
        let id = out.styled(Style::Dim, &self.sources.history.id(branch.place).to_string());
        format!("{word}run of {name}  {when}  {state}{took}{tried}{code}{replayed}  {id}")
    }

    fn object(&self) -> Value {
        let mut objects: Vec<Option<Value>> = (0..self.tree.branches.len()).map(|at| Some(self.branch(at))).collect();
        // Branches come after the one above them.
        for at in (0..objects.len()).rev() {
            let below = self.tree.branches[at].below.iter().filter_map(|below| objects[*below].take()).collect();
            if let Some(object) = &mut objects[at] {
                object["below"] = Value::Array(below);
            }
        }
        json!({
            "direction": if self.up { "causes" } else { "effects" },
            "root": objects[0].take(),
            "records": self.tree.records,
            "runs": self.tree.runs,
            "unknown": self.tree.unknown,
            "limits": self.sources.limits(),
        })
    }

    fn branch(&self, at: usize) -> Value {
        let branch = &self.tree.branches[at];
        let (history, place) = (&self.sources.history, branch.place);
        let (row, table) = (history.row(place), history.table(place));
        let link = match branch.link {
            Link::Root => Value::Null,
            Link::Triggered => "triggered".into(),
            Link::Read => "read".into(),
            Link::Appended => "appended".into(),
            Link::Forwarded => "forwarded".into(),
            Link::Claimed => "claimed".into(),
        };
        let mut object = json!({
            "id": history.id(place).to_string(),
            "namespace": table.namespace().to_string(),
            "link": link,
            "time": show::rfc3339(row.hlc()),
        });
        match self.runs.get(&place) {
            Some(course) => {
                object["run"] = json!({
                    "function": table.function_name(row.subject),
                    "state": course.state(),
                    "attempts": course.attempts,
                    "began": course.began.map(|(first, _)| show::rfc3339(first)),
                    "ended": course.ended.map(show::rfc3339),
                    "code": course.code(),
                    "replayed_by": course.replayed,
                });
            }
            None => {
                let mut record = self.values[&place].1.clone();
                record["log"] = json!(table.log_name(row.subject));
                record["seqno"] = json!(row.seqno);
                object["record"] = record;
            }
        }
        object["below"] = json!([]);
        object["more"] = json!(branch.more);
        object
    }
}

/// The bytes of a record, with their total number, for people and for programs.
fn shown(stored: Option<&Stored>, bytes: u64) -> (String, Value) {
    let mut object = json!({ "bytes": bytes });
    let Some(stored) = stored else { return ("(not readable)".into(), object) };
    let mut length = stored.bytes.len().min(VALUE_BYTES_MAX);
    while length > 0 && length < stored.bytes.len() && stored.bytes[length] & 0xC0 == 0x80 {
        length -= 1;
    }
    show::put_data(&mut object, &stored.bytes[..length]);
    if stored.cut || length < stored.bytes.len() {
        object["cut"] = json!(true);
    }
    (show::brief(&stored.bytes, VALUE_CHARS_MAX), object)
}

fn duration(us: u64) -> String {
    units::show_duration(Duration::from_micros(us))
}
