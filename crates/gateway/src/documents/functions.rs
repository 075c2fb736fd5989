//! Functions and their pending runs.

use super::Page;
use millrace_documents::FunctionsDoc;
use millrace_node::{Namespace, documents};
use millrace_wire::Result;

pub(super) fn list(namespace: &Namespace, page: &Page) -> Result<FunctionsDoc> {
    let stats = namespace.functions()?;
    let (functions, next) = page.of_list(&stats, |stat| &stat.name, |stat| Ok(Some(documents::function(stat))))?;
    Ok(FunctionsDoc { functions, next })
}
