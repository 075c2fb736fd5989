//! Functions and their pending runs.

use super::{FunctionDoc, Page};
use millrace_node::Namespace;
use millrace_wire::{Code, Name, Result};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Functions {
    functions: Vec<FunctionDoc>,
    /// The function after which the next page begins, if there are more.
    next: Option<String>,
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
