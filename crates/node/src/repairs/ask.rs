//! Requests about repairs from outside, as JSON: the same over HTTP, the wire protocol and the command line.

use super::{
    Amendments, Change, CodeRequest, Correction, PartAsk, Phase, Repair, Request, Step, Waiting, abandon, amend,
    ask_apply, ask_run, changes, close, open, open_code, part, repair, undo,
};
use crate::{Isolation, Namespace, Runtime};
use millrace_dispatch::functions;
use millrace_documents::PlanDoc;
use millrace_namespace::{Definition, no_function};
use millrace_wire::{Code, JsonBytes, JsonBytesRead, LogName, Name, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes of the values of one answer, about.
const PAGE_BYTES: usize = 1 << 20;
/// Most changes of one answer.
pub const PAGE_CHANGES: usize = 1000;

/// One correction.
#[derive(Clone, Debug, Deserialize)]
struct CorrectionDoc {
    seqno: u64,
    #[serde(default)]
    void: bool,
    #[serde(flatten)]
    value: JsonBytesRead,
}

/// The kinds of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum AskDoc {
    Open {
        log: LogName,
        #[serde(default)]
        reason: String,
        corrections: Vec<CorrectionDoc>,
        #[serde(default)]
        accept_unknown: bool,
        #[serde(default)]
        append_new: bool,
        #[serde(default)]
        across: Vec<String>,
        #[serde(default)]
        run_external: Vec<Name>,
    },
    /// To say what opening it would change.
    Plan {
        log: LogName,
        corrections: Vec<CorrectionDoc>,
        #[serde(default)]
        run_external: Vec<Name>,
    },
    CancelPlan {
        plan: u64,
    },
    Part(PartAsk),
    Amend {
        log: LogName,
        corrections: Vec<CorrectionDoc>,
    },
    Run {
        repair: u64,
    },
    Apply {
        repair: u64,
    },
    Rollback {
        repair: u64,
        #[serde(default)]
        reason: String,
    },
    Abandon {
        repair: u64,
    },
    Gc {
        repair: u64,
    },
}

/// Other code for a function, and from when on.
#[derive(Clone, Debug)]
pub struct NewCode {
    /// The function.
    pub function: Name,
    /// The file or the directory with the code.
    pub source: PathBuf,
    /// The sequence of the event from which on its runs are replayed.
    pub since: u64,
    /// Why, for people.
    pub reason: String,
    /// Whether records that runs leave beyond those that they had left are appended when the repair is applied.
    pub append_new: bool,
    /// The addresses of the namespaces that take part.
    pub across: Vec<String>,
    /// Functions that are replayed although they may have effects outside.
    pub run_external: Vec<Name>,
    /// How the code is kept apart from this process while it is checked; without it, it is not.
    pub isolation: Option<Arc<Isolation>>,
}

/// The request.
#[derive(Clone, Debug)]
pub enum Ask {
    /// To open a repair and replay what depends on it.
    Open(Request),
    /// To find out what opening it would change.
    Plan(Request),
    /// Not to find it out after all.
    CancelPlan(u64),
    /// Opens a repair that replaces a function's code. Only for callers with the namespace's files, because a host accepts no code for a repair.
    Code(NewCode),
    /// A request of the initiator of a repair to a participant.
    Part(Box<PartAsk>),
    /// Amends records, which become a repair by the policy of their log.
    Amend(Amendments),
    /// Resumes a stopped repair.
    Run(u64),
    /// To apply it.
    Apply(u64),
    /// Rolls it back, for this reason.
    Rollback(u64, String),
    /// To give it up.
    Abandon(u64),
    /// Frees the data that a rollback would need.
    Close(u64),
}

impl Ask {
    /// The request in this JSON text.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |error: &dyn std::fmt::Display| Code::CorrectionInvalid.error(format!("the request: {error}"));
        let ask: AskDoc = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        let correction = |doc: CorrectionDoc| {
            let value = doc.value.bytes().map_err(|error| invalid(&error))?;
            if value.is_some() == doc.void {
                let error = format!("record {} needs either a value or \"void\": true", doc.seqno);
                return Err(invalid(&error));
            }
            Ok(Correction { seqno: doc.seqno, value })
        };
        Ok(match ask {
            #[rustfmt::skip]
            AskDoc::Open { log, reason, corrections, accept_unknown, append_new, across, run_external } => {
                let corrections = corrections.into_iter().map(correction).collect::<Result<_>>()?;
                Ask::Open(Request { log, corrections, reason, accept_unknown, append_new, across, run_external })
            }
            AskDoc::Plan { log, corrections, run_external } => {
                let corrections = corrections.into_iter().map(correction).collect::<Result<_>>()?;
                Ask::Plan(Request {
                    log,
                    corrections,
                    reason: String::new(),
                    accept_unknown: true,
                    append_new: false,
                    across: Vec::new(),
                    run_external,
                })
            }
            AskDoc::CancelPlan { plan } => Ask::CancelPlan(plan),
            AskDoc::Part(asked) => Ask::Part(Box::new(asked)),
            AskDoc::Amend { log, corrections } => {
                let corrections = corrections.into_iter().map(correction).collect::<Result<_>>()?;
                Ask::Amend(Amendments { log, corrections })
            }
            AskDoc::Run { repair } => Ask::Run(repair),
            AskDoc::Apply { repair } => Ask::Apply(repair),
            AskDoc::Rollback { repair, reason } => Ask::Rollback(repair, reason),
            AskDoc::Abandon { repair } => Ask::Abandon(repair),
            AskDoc::Gc { repair } => Ask::Close(repair),
        })
    }

    /// The JSON text that asks this of a host. An error if it is only asked where the namespace's files are.
    pub fn text(&self) -> Result<String> {
        let of = |what: &str, repair: u64| json!({ "do": what, "repair": repair });
        let correction = |correction: &Correction| match &correction.value {
            Some(value) => with_bytes(json!({ "seqno": correction.seqno }), value),
            None => json!({ "seqno": correction.seqno, "void": true }),
        };
        let value = match self {
            Ask::Open(request) => {
                let corrections: Vec<Value> = request.corrections.iter().map(correction).collect();
                let (log, reason) = (&*request.log, &request.reason);
                let (accept_unknown, append_new) = (request.accept_unknown, request.append_new);
                json!({
                    "do": "open", "log": log, "reason": reason, "corrections": corrections,
                    "accept_unknown": accept_unknown, "append_new": append_new, "across": request.across,
                    "run_external": request.run_external,
                })
            }
            Ask::Amend(amendments) => {
                let corrections: Vec<Value> = amendments.corrections.iter().map(correction).collect();
                json!({ "do": "amend", "log": &*amendments.log, "corrections": corrections })
            }
            Ask::Plan(Request { log, corrections, run_external, .. }) => {
                let corrections: Vec<Value> = corrections.iter().map(correction).collect();
                json!({ "do": "plan", "log": &**log, "corrections": corrections, "run_external": run_external })
            }
            Ask::CancelPlan(plan) => json!({ "do": "cancel-plan", "plan": plan }),
            Ask::Part(asked) => {
                let mut asked = serde_json::to_value(asked).expect("names, numbers and text always make JSON");
                asked["do"] = "part".into();
                asked
            }
            Ask::Code(code) => {
                let error =
                    format!("new code of function '{}' was given for a namespace on another machine", code.function);
                return Err(Code::RepairCodeRemote.error(error));
            }
            Ask::Run(repair) => of("run", *repair),
            Ask::Apply(repair) => of("apply", *repair),
            Ask::Rollback(repair, reason) => json!({ "do": "rollback", "repair": repair, "reason": reason }),
            Ask::Abandon(repair) => of("abandon", *repair),
            Ask::Close(repair) => of("gc", *repair),
        };
        Ok(value.to_string())
    }

    /// The repair that it names; none if it opens one, or amends.
    pub fn number(&self) -> Option<u64> {
        match self {
            Ask::Open(_) | Ask::Amend(_) | Ask::Code(_) | Ask::Part(_) | Ask::Plan(_) | Ask::CancelPlan(_) => None,
            Ask::Run(repair) | Ask::Apply(repair) | Ask::Rollback(repair, _) => Some(*repair),
            Ask::Abandon(repair) | Ask::Close(repair) => Some(*repair),
        }
    }

    /// The addresses of the namespaces that are to take part in the repair that it opens.
    pub fn across(&self) -> &[String] {
        match self {
            Ask::Open(request) => &request.across,
            Ask::Code(code) => &code.across,
            _ => &[],
        }
    }

    /// Functions that it replays, or has replayed, although they may have effects outside.
    pub fn run_external(&self, namespace: &Namespace) -> Result<Vec<Name>> {
        Ok(match self {
            Ask::Open(request) | Ask::Plan(request) => request.run_external.clone(),
            Ask::Code(code) => code.run_external.clone(),
            Ask::Part(asked) => match &asked.ask {
                Step::Join { run_external, .. } => run_external.clone(),
                _ => Vec::new(),
            },
            Ask::Amend(_) | Ask::CancelPlan(_) => Vec::new(),
            _ => repair(namespace, self.number().unwrap_or(0))?.run_external,
        })
    }

    /// Whether another namespace asks it, which gives records of this one other values.
    pub fn is_of_initiator(&self) -> bool {
        matches!(self, Ask::Part(_))
    }

    /// The log whose records it amends, and the length of the longest new value: what a source may do.
    pub fn amended(&self) -> Option<(&LogName, usize)> {
        let Ask::Amend(Amendments { log, corrections }) = self else { return None };
        let lengths = corrections.iter().filter_map(|correction| Some(correction.value.as_ref()?.len()));
        Some((log, lengths.max().unwrap_or(0)))
    }

    /// Whether it amends a record so that it is void.
    pub fn removes_records(&self) -> bool {
        matches!(self, Ask::Amend(amendments) if amendments.corrections.iter().any(|it| it.value.is_none()))
    }

    /// The log that is corrected, if that is one: it is found without reading the journal.
    pub fn corrected(&self, namespace: &Namespace) -> Result<Option<LogName>> {
        match self {
            Ask::Open(request) | Ask::Plan(request) => Ok(Some(request.log.clone())),
            Ask::Amend(_) | Ask::Code(_) | Ask::Part(_) | Ask::CancelPlan(_) => Ok(None),
            _ => Ok(repair(namespace, self.number().unwrap_or(0))?.log),
        }
    }

    /// The function whose code it changes, or would change.
    pub fn function(&self, namespace: &Namespace) -> Result<Option<Name>> {
        match self {
            Ask::Open(_) | Ask::Amend(_) | Ask::Part(_) | Ask::Plan(_) | Ask::CancelPlan(_) => Ok(None),
            Ask::Code(code) => Ok(Some(code.function.clone())),
            _ => Ok(repair(namespace, self.number().unwrap_or(0))?.function),
        }
    }

    /// The logs whose records it changes, or would change.
    pub fn logs(&self, namespace: &Namespace) -> Result<Vec<LogName>> {
        let mut logs: Vec<LogName> = self.corrected(namespace)?.into_iter().collect();
        let Some(number) = self.number() else { return Ok(logs) };
        changes(namespace, number, None, &mut |change| {
            // Outboxes are nobody's to read; their receivers agree to what changes.
            if !logs.contains(&change.log) && !LogName::is_internal(&change.log) {
                logs.push(change.log);
            }
            Ok(true)
        })?;
        Ok(logs)
    }

    /// Whether it is about a plan, which a host makes.
    pub fn is_plan(&self) -> bool {
        matches!(self, Ask::Plan(_) | Ask::CancelPlan(_))
    }

    /// Makes the request. The answer is the state at that moment; the host acts on the request later.
    pub fn ask(self, namespace: &Namespace) -> Result<Reported> {
        let number = match self {
            Ask::Amend(amendments) => return amend(namespace, &amendments).map(Reported::Amended),
            Ask::Open(request) => open(namespace, request)?,
            Ask::Plan(_) | Ask::CancelPlan(_) => {
                return Err(Code::CorrectionInvalid.error("only a host makes plans; use `millrace repair plan` here"));
            }
            Ask::Code(code) => replace(namespace, code)?,
            Ask::Part(asked) => return part(namespace, *asked).map(|part| Reported::Repair(Box::new(part))),
            Ask::Run(number) => ask_run(namespace, number).map(|()| number)?,
            Ask::Apply(number) => ask_apply(namespace, number).map(|()| number)?,
            Ask::Rollback(number, reason) => take_back(namespace, number, reason)?,
            Ask::Abandon(number) => abandon(namespace, number).map(|()| number)?,
            Ask::Close(number) => close(namespace, number).map(|()| number)?,
        };
        repair(namespace, number).map(|repair| Reported::Repair(Box::new(repair)))
    }
}

/// The answer to a request about repairs.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Reported {
    /// The repair as it is.
    Repair(Box<Repair>),
    /// The amendments of the log that wait.
    Amended(Waiting),
    /// The plan as it is.
    Plan(Box<PlanDoc>),
}

/// Brings the new code of a function into the namespace, checks it, and opens the repair. Its number.
fn replace(namespace: &Namespace, asked: NewCode) -> Result<u64> {
    let NewCode { function: name, source, since, reason, append_new, across, run_external, isolation } = asked;
    // Until a repair names it, only this keeps the code from being removed.
    let _lock = functions::StoreLock::shared(namespace.dir())?;
    let catalog = namespace.journal().catalog()?;
    let function = catalog.function(&name).ok_or_else(|| no_function(&name))?;
    let old = Definition::from_attributes(&name, function.attributes())?;
    check_module(&old, &source)?;
    let apart = isolation.map(|isolation| move || Ok(isolation.clone()));
    let apart = apart.as_ref().map(|apart| apart as functions::Apart<'_>);
    let new = functions::prepare(namespace.dir(), &old.spec, &source, &[], apart, &mut |_| ())?;
    let Definition { application, confined, removing, .. } = old;
    let definition = Definition { application, confined, removing, ..new };
    // The check of the code has taken a while; what was deployed meanwhile is not replaced.
    let revision = function.revision();
    open_code(namespace, CodeRequest { definition, revision, since, reason, append_new, across, run_external })
}

/// Opens the repair that takes another one back, if the code that the function gets again is there. Its number.
fn take_back(namespace: &Namespace, number: u64, reason: String) -> Result<u64> {
    let applied = repair(namespace, number)?;
    let Some(before) = applied.replaced()?.filter(|_| applied.phase == Phase::Applied) else {
        return undo(namespace, number, reason);
    };
    // Until the other repair is open, only this keeps the code from being removed, because no definition names it any longer.
    let _lock = functions::StoreLock::shared(namespace.dir())?;
    functions::check_code(namespace.dir(), &before.code)
        .map_err(|error| error.within(format!("the code of function '{}' before repair {number}", before.spec.name)))?;
    undo(namespace, number, reason)
}

/// An error if the handler of a Python function cannot be in this file, because its module has another name.
fn check_module(definition: &Definition, source: &Path) -> Result<()> {
    let spec = &definition.spec;
    let Some((module, _)) = spec.python_handler().filter(|_| spec.runtime == Runtime::Python) else { return Ok(()) };
    if source.is_dir() || source.file_stem().is_some_and(|stem| stem == module) {
        return Ok(());
    }
    let (name, source) = (&spec.name, source.display());
    Err(Code::CorrectionInvalid.error(format!(
        "the handler of function '{name}' is '{}': give a file {module}.py, or a directory that has it; this is '{source}'",
        spec.handler
    )))
}

fn with_bytes(mut object: Value, bytes: &[u8]) -> Value {
    if let (Value::Object(object), Ok(Value::Object(data))) = (&mut object, serde_json::to_value(JsonBytes(bytes))) {
        object.extend(data);
    }
    object
}

/// Whether the caller has something to wait for.
pub fn is_moving(repair: &Repair) -> bool {
    repair.phase == Phase::Open || repair.phase.is_moving()
}

/// A page of a repair's changes.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// The changes: `log`, `seqno`, and `old` and `new` with the bytes, left out where there is no record.
    pub changes: Vec<Value>,
    /// How many changes the next request has to skip; none if these are all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// The changes of a repair behind the first `after`, of all logs or of one.
pub fn page(namespace: &Namespace, number: u64, log: Option<&str>, after: u64) -> Result<Page> {
    let (mut page, mut at, mut bytes) = (Page { changes: Vec::new(), next: None }, 0, 0);
    changes(namespace, number, log, &mut |change: Change| {
        at += 1;
        if at <= after {
            return Ok(true);
        }
        if page.changes.len() == PAGE_CHANGES || bytes > PAGE_BYTES {
            page.next = Some(at - 1);
            return Ok(false);
        }
        let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        bytes += length(&change.old) + length(&change.new);
        // One that is appended when the repair is applied has no seqno yet.
        let seqno = Some(change.seqno).filter(|seqno| *seqno > 0);
        let mut doc = json!({ "log": &*change.log, "seqno": seqno });
        for (key, value) in [("old", &change.old), ("new", &change.new)] {
            if let Some(value) = value {
                doc[key] = with_bytes(json!({}), value);
            }
        }
        page.changes.push(doc);
        Ok(true)
    })?;
    Ok(page)
}
