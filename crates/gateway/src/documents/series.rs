//! What is asked about the records of a log by time.

use super::{
    Query,
    query::{invalid, shown},
};
use millrace_documents::hlc_of;
use millrace_node::{Hlc, Span};
use millrace_wire::Result;

/// Parts of a span: the most, and how many by default.
const PARTS: (u64, u64) = (2000, 400);
/// The longest pointer to a field.
const FIELD_MAX_BYTES: usize = 1024;

/// A moment, if it is named.
pub(crate) fn moment(query: &mut Query, name: &str) -> Result<Option<Hlc>> {
    let Some(text) = query.take(name) else { return Ok(None) };
    let wrong = || {
        let shown = shown(&text);
        invalid(format!("parameter '{name}' is '{shown}', not a time such as 2026-11-28T09:30:00Z"))
    };
    hlc_of(&text).map(Some).ok_or_else(wrong)
}

/// The span that a query asks for.
pub(super) fn span(query: &mut Query) -> Result<Span> {
    let (from, until) = (moment(query, "from")?, moment(query, "until")?);
    if from.zip(until).is_some_and(|(from, until)| until <= from) {
        return Err(invalid("'until' is not behind 'from'"));
    }
    Ok(Span { from, until })
}

/// How many parts a query asks for.
pub(super) fn parts(query: &mut Query, name: &str) -> Result<u64> {
    Ok(query.number(name, 1, PARTS.0)?.unwrap_or(PARTS.1))
}

/// The field that a query asks for: a JSON pointer, or nothing for the value itself.
pub(super) fn field(query: &mut Query) -> Result<String> {
    let field = query.take("field").unwrap_or_default();
    if field.len() > FIELD_MAX_BYTES || !(field.is_empty() || field.starts_with('/')) {
        let shown = shown(&field);
        return Err(invalid(format!(
            "parameter 'field' is '{shown}', not a JSON pointer such as /celsius of at most {FIELD_MAX_BYTES} bytes"
        )));
    }
    Ok(field)
}
