//! Changes of one run. The list of runs is a document.

use crate::{
    documents::Query,
    http::{
        response::{self, Response},
        session::Session,
    },
};
use hyper::StatusCode;
use millrace_wire::{EventId, Result};
use serde::Serialize;

#[derive(Serialize)]
struct Change {
    run: String,
    change: &'static str,
}

/// Cancels a run that has not ended.
pub(in crate::http) async fn cancel(session: &Session, namespace: &str, run: &str, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    let run = run.parse::<EventId>()?;
    let access = session.access(namespace)?;
    session.hosted.define(access, move |access| access.cancel_run(run)).await?;
    Ok(response::document(StatusCode::OK, &Change { run: run.to_string(), change: "cancelled" }))
}
