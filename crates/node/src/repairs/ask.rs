//! Requests about repairs from outside, as JSON: the same over HTTP, the wire protocol and the command line.

use super::{
    Change, Correction, Phase, Repair, Request, abandon, ask_apply, ask_run, changes, close, open, repair, undo,
};
use crate::Namespace;
use millrace_wire::{Code, JsonBytes, JsonBytesRead, LogName, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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

/// What may be asked.
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

/// What is asked.
#[derive(Clone, Debug)]
pub enum Ask {
    /// To open a repair and replay what depends on it.
    Open(Request),
    /// To go on with one that was stopped.
    Run(u64),
    /// To apply it.
    Apply(u64),
    /// To take it back, for this reason.
    Rollback(u64, String),
    /// To give it up.
    Abandon(u64),
    /// To give up what it would take to take it back.
    Close(u64),
}

impl Ask {
    /// What this JSON text asks.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |error: &dyn std::fmt::Display| Code::CorrectionInvalid.error(format!("the request: {error}"));
        let ask: AskDoc = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        Ok(match ask {
            AskDoc::Open { log, reason, corrections, accept_unknown } => {
                let correction = |doc: CorrectionDoc| {
                    let value = doc.value.bytes().map_err(|error| invalid(&error))?;
                    if value.is_some() == doc.void {
                        let error = format!("record {} needs either a value or \"void\": true", doc.seqno);
                        return Err(invalid(&error));
                    }
                    Ok(Correction { seqno: doc.seqno, value })
                };
                let corrections = corrections.into_iter().map(correction).collect::<Result<_>>()?;
                Ask::Open(Request { log, corrections, reason, accept_unknown })
            }
            AskDoc::Run { repair } => Ask::Run(repair),
            AskDoc::Apply { repair } => Ask::Apply(repair),
            AskDoc::Rollback { repair, reason } => Ask::Rollback(repair, reason),
            AskDoc::Abandon { repair } => Ask::Abandon(repair),
            AskDoc::Gc { repair } => Ask::Close(repair),
        })
    }

    /// The JSON text that asks this.
    pub fn text(&self) -> String {
        let of = |what: &str, repair: u64| json!({ "do": what, "repair": repair });
        let value = match self {
            Ask::Open(request) => {
                let correction = |correction: &Correction| match &correction.value {
                    Some(value) => with_bytes(json!({ "seqno": correction.seqno }), value),
                    None => json!({ "seqno": correction.seqno, "void": true }),
                };
                let corrections: Vec<Value> = request.corrections.iter().map(correction).collect();
                let (log, reason, accept_unknown) = (&*request.log, &request.reason, request.accept_unknown);
                json!({ "do": "open", "log": log, "reason": reason, "corrections": corrections, "accept_unknown": accept_unknown })
            }
            Ask::Run(repair) => of("run", *repair),
            Ask::Apply(repair) => of("apply", *repair),
            Ask::Rollback(repair, reason) => json!({ "do": "rollback", "repair": repair, "reason": reason }),
            Ask::Abandon(repair) => of("abandon", *repair),
            Ask::Close(repair) => of("gc", *repair),
        };
        value.to_string()
    }

    fn number(&self) -> Option<u64> {
        match self {
            Ask::Open(_) => None,
            Ask::Run(repair) | Ask::Apply(repair) | Ask::Rollback(repair, _) => Some(*repair),
            Ask::Abandon(repair) | Ask::Close(repair) => Some(*repair),
        }
    }

    /// The log that is corrected, if that is one: it is found without reading the journal.
    pub fn corrected(&self, namespace: &Namespace) -> Result<Option<LogName>> {
        match self {
            Ask::Open(request) => Ok(Some(request.log.clone())),
            _ => Ok(repair(namespace, self.number().unwrap_or(0))?.log),
        }
    }

    /// The logs whose records it changes, or would change.
    pub fn logs(&self, namespace: &Namespace) -> Result<Vec<LogName>> {
        let mut logs: Vec<LogName> = self.corrected(namespace)?.into_iter().collect();
        let Some(number) = self.number() else { return Ok(logs) };
        changes(namespace, number, None, &mut |change| {
            if !logs.contains(&change.log) {
                logs.push(change.log);
            }
            Ok(true)
        })?;
        Ok(logs)
    }

    /// Asks it. The repair as it is then: what the host does about it comes later.
    pub fn ask(self, namespace: &Namespace) -> Result<Repair> {
        let number = match self {
            Ask::Open(request) => open(namespace, request)?,
            Ask::Run(number) => ask_run(namespace, number).map(|()| number)?,
            Ask::Apply(number) => ask_apply(namespace, number).map(|()| number)?,
            Ask::Rollback(number, reason) => undo(namespace, number, reason)?,
            Ask::Abandon(number) => abandon(namespace, number).map(|()| number)?,
            Ask::Close(number) => close(namespace, number).map(|()| number)?,
        };
        repair(namespace, number)
    }
}

fn with_bytes(mut object: Value, bytes: &[u8]) -> Value {
    if let (Value::Object(object), Ok(Value::Object(data))) = (&mut object, serde_json::to_value(JsonBytes(bytes))) {
        object.extend(data);
    }
    object
}

/// Whether the caller has something to wait for.
pub fn is_moving(repair: &Repair) -> bool {
    matches!(repair.phase, Phase::Open | Phase::Running | Phase::Applying)
}

/// A page of a repair's changes.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// The changes: `log`, `seqno`, and `old` and `new` with the bytes, left out where there is no record.
    pub changes: Vec<Value>,
    /// How many changes to pass over to go on; none if these are all.
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
        let mut doc = json!({ "log": &*change.log, "seqno": change.seqno });
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
