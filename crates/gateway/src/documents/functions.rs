//! Functions and their pending runs.

use super::{Page, text::names};
use millrace_node::{FunctionStat, Namespace};
use millrace_wire::{Code, Error, Name, Result};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Functions {
    functions: Vec<FunctionDoc>,
    /// The function after which the next page begins, if there are more.
    next: Option<String>,
}

/// A function.
#[derive(Serialize)]
pub(super) struct FunctionDoc {
    name: String,
    triggered: u64,
    done: u64,
    pending: u64,
    /// Runs that were given up, ever; letters that are kept; and those that were run again.
    dead: u64,
    dead_kept: u64,
    dead_retried: u64,
    /// The definition, unless it cannot be read.
    #[serde(flatten)]
    definition: Option<DefinitionDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorDoc>,
}

#[derive(Serialize)]
struct DefinitionDoc {
    runtime: String,
    on: Vec<String>,
    ordered: bool,
    streamed: bool,
    network: bool,
    /// Logs that it may read and append to; `null` is every log.
    reads: Option<Vec<String>>,
    appends: Option<Vec<String>>,
    sends: Vec<String>,
    secrets: Vec<String>,
    concurrency: u32,
    monitor: Option<String>,
    retries: u32,
    dead_letter: String,
    code: String,
}

/// An error, as it is in documents and in answers.
#[derive(Serialize)]
pub(crate) struct ErrorDoc {
    pub code: &'static str,
    pub detail: String,
    pub cause: &'static str,
    pub remedy: &'static str,
}

impl From<&Error> for ErrorDoc {
    fn from(error: &Error) -> Self {
        let code = error.code();
        Self { code: code.id(), detail: error.detail().into(), cause: code.cause(), remedy: code.remedy() }
    }
}

impl From<&FunctionStat> for FunctionDoc {
    fn from(stat: &FunctionStat) -> Self {
        let definition = stat.definition.as_ref().ok().map(|definition| {
            let spec = &definition.spec;
            DefinitionDoc {
                runtime: spec.runtime.to_string(),
                on: names(&spec.on),
                ordered: spec.ordered,
                streamed: spec.streamed,
                network: spec.network,
                reads: spec.rights.reads.as_deref().map(names),
                appends: spec.rights.appends.as_deref().map(names),
                sends: names(&spec.rights.sends),
                secrets: names(&spec.rights.secrets),
                concurrency: spec.concurrency,
                monitor: spec.monitor.as_ref().map(ToString::to_string),
                retries: spec.retries,
                dead_letter: spec.dead_letter.to_string(),
                code: definition.code.clone(),
            }
        });
        Self {
            name: stat.name.to_string(),
            triggered: stat.triggered,
            done: stat.done,
            pending: stat.pending(),
            dead: stat.dead_letters.given_up,
            dead_kept: stat.dead_letters.kept,
            dead_retried: stat.dead_letters.retried,
            definition,
            error: stat.definition.as_ref().err().map(ErrorDoc::from),
        }
    }
}

pub(super) fn list(namespace: &Namespace, page: &Page) -> Result<Functions> {
    let stats = namespace.functions()?;
    let (functions, next) = page.of_list(&stats, |stat| &stat.name, |stat| Ok(Some(FunctionDoc::from(*stat))))?;
    Ok(Functions { functions, next })
}

pub(super) fn one(namespace: &Namespace, name: &str) -> Result<FunctionDoc> {
    let name: Name = name.parse()?;
    let found = namespace.functions()?.into_iter().find(|function| function.name == name);
    found.as_ref().map(FunctionDoc::from).ok_or_else(|| Code::FunctionNotFound.error(format!("no function '{name}'")))
}
