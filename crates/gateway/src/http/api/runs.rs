//! Runs of functions that are invoked, and changes of one run. The list of runs is a document.

use super::{check_encoding, durability, header};
use crate::{
    documents::{Query, invalid, shown},
    http::{
        connection::body,
        response::{self, Content, Response, put},
        session::Session,
    },
    invoked::{Invocation, Invoked, invoke},
};
use hyper::{
    HeaderMap, Request, StatusCode,
    body::Incoming,
    header::{HeaderValue, LOCATION},
};
use millrace_node::{
    ResultKind, RunResult,
    documents::state_word,
    invoke::{WAIT, WAIT_MAX, answer},
};
use millrace_wire::{EventId, Hlc, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use std::time::Duration;

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

/// A run that has not ended.
#[derive(Serialize)]
struct Underway<'r> {
    run: String,
    function: &'r str,
    state: &'r str,
    log: &'r str,
    seqno: u64,
}

/// How long the caller waits.
fn wait_of(headers: &HeaderMap) -> Result<Duration> {
    let Some(text) = header(headers, "millrace-wait")? else { return Ok(WAIT) };
    let seconds: Option<f64> = text.trim().parse().ok();
    let wait = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    wait.filter(|wait| *wait <= WAIT_MAX).ok_or_else(|| {
        let (text, max) = (shown(text), WAIT_MAX.as_secs());
        invalid(format!("header 'millrace-wait' is '{text}'; it is a number of seconds, at most {max}"))
    })
}

/// Runs a function for the body, and answers with its result.
pub(in crate::http) async fn call(
    session: &Session,
    namespace: &str,
    function: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (head, body) = request.into_parts();
    check_encoding(&head.headers)?;
    let mut query = Query::parse(head.uri.query().unwrap_or(""))?;
    let durability = durability(&head.headers, &mut query)?;
    let log = query.take("log").map(|log| log.to_string());
    query.finish()?;
    let wait = wait_of(&head.headers)?;
    let key = header(&head.headers, "idempotency-key")?.map(str::to_owned);
    let cause = header(&head.headers, "millrace-cause")?.map(str::parse).transpose()?.unwrap_or(EventId::NONE);
    let access = session.access(namespace)?;
    let data = body::read(body, access.served().facts().record_max_bytes()).await?;
    let clock = Hlc::default();
    let invocation = Invocation { function: function.to_owned(), log, data, durability, key, cause, clock };
    let mut stopped = session.stopped.clone();
    let invoked = invoke(&access, invocation, wait, stopped.wait_for(|stopped| *stopped)).await?;
    let mut response = answered(function, &invoked);
    let headers = response.headers_mut();
    let run = invoked.run.id.to_string();
    let namespace = utf8_percent_encode(namespace, NON_ALPHANUMERIC);
    if let Ok(location) = HeaderValue::try_from(format!("/v1/namespaces/{namespace}/runs/{run}")) {
        headers.insert(LOCATION, location);
    }
    put(headers, "millrace-run", &run);
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    // A browser must not take what a function returned for a page.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn answered(function: &str, Invoked { log, receipt, run }: &Invoked) -> Response {
    if run.ended.is_none() {
        let (id, state, seqno) = (run.id.to_string(), state_word(run.state), receipt.seqno);
        let underway = Underway { run: id, function, state, log, seqno };
        return response::document(StatusCode::ACCEPTED, &underway);
    }
    match answer(run) {
        Err(error) => response::failure(&error),
        Ok(None) => {
            let mut response = hyper::Response::new(Content::whole(""));
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Ok(Some(RunResult { kind, bytes })) => {
            let kind = match kind {
                ResultKind::Text | ResultKind::Dropped => HeaderValue::from_static("text/plain; charset=utf-8"),
                ResultKind::Bytes => HeaderValue::from_static("application/octet-stream"),
                ResultKind::Json => response::JSON,
            };
            response::typed(StatusCode::OK, kind, bytes.clone())
        }
    }
}
