//! Pages about the host: its description, its health, and its OpenAPI document.

use crate::{
    Hosted,
    documents::{Query, host_of},
    http::response::{self, Response},
};
use hyper::{StatusCode, header::HeaderValue};
use millrace_wire::Result;
use serde::Serialize;

/// The description of everything here.
const OPENAPI: &str = include_str!("../../../../../spec/openapi.json");

const ROOT: &str = concat!(
    "Millrace ",
    env!("CARGO_PKG_VERSION"),
    ": state in append-only logs; appending a record runs functions.\n\n",
    "  /ui              the dashboard, for browsers\n",
    "  /v1/namespaces   the namespaces that this host serves\n",
    "  /openapi.json    the description of all requests (OpenAPI)\n",
    "  /healthz         whether the journals accept appends\n",
    "  /readyz          whether functions run and appends are accepted\n",
    "  /metrics         metrics for Prometheus\n"
);

#[derive(Serialize)]
struct Checks {
    status: &'static str,
    namespaces: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    name: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The blockage of a sound journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
    /// That this machine's clock is or was wrong, which stops nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

pub(in crate::http) fn root(query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    Ok(response::typed(StatusCode::OK, HeaderValue::from_static("text/plain; charset=utf-8"), ROOT))
}

pub(in crate::http) fn openapi(query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    Ok(response::json(StatusCode::OK, OPENAPI))
}

/// Whether the journals accept appends.
pub(in crate::http) fn health(hosted: &Hosted, in_detail: bool, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    Ok(checks(hosted, in_detail, |_| None))
}

/// Whether requests are taken and functions run.
pub(in crate::http) fn ready(hosted: &Hosted, in_detail: bool, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    Ok(checks(hosted, in_detail, |served| {
        if hosted.is_draining() {
            return Some("the host is stopping".into());
        }
        if let Some(blocked) = served.blocked() {
            return Some(format!("appends are not accepted: {blocked}"));
        }
        if let Some(error) = served.facts().refusal() {
            return Some(format!("appends fail: {error}"));
        }
        match host_of(hosted, served.name()) {
            None => Some("this host does not run functions".into()),
            Some(status) => status.failure.map(|failure| format!("the host stopped running functions: {failure}")),
        }
    }))
}

/// Whether all is well; which namespaces there are, and what is wrong, in detail only.
fn checks(hosted: &Hosted, in_detail: bool, more: impl Fn(&millrace_node::Served) -> Option<String>) -> Response {
    let check = |served: &millrace_node::Served| {
        let reason = served.facts().check_place().err().map(|error| error.to_string()).or_else(|| more(served));
        let blocked = served.blocked().map(|blocked| blocked.to_string());
        let warning = served.facts().check_clock().err().map(|error| error.to_string());
        Check { name: served.name().to_string(), ok: reason.is_none(), reason, blocked, warning }
    };
    let namespaces: Vec<Check> = hosted.served().iter().map(check).collect();
    let ok = namespaces.iter().all(|check| check.ok);
    let (status, word) = if ok { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "failing") };
    let namespaces = if in_detail { namespaces } else { Vec::new() };
    response::document(status, &Checks { status: word, namespaces })
}
