//! Creates, changes and removes logs.

use super::{check_encoding, media_type};
use crate::{
    documents::{Query, shown},
    http::{
        connection::body,
        response::{self, Response},
        session::Session,
    },
};
use hyper::{Request, StatusCode, body::Incoming};
use millrace_node::Access;
use millrace_wire::{Code, HISTORY_DEFAULT, Result, history};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The maximum length of a request body that describes a log.
const BODY_MAX_BYTES: usize = 4 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NewLog {
    #[serde(with = "history")]
    history: u64,
}

impl Default for NewLog {
    fn default() -> Self {
        Self { history: HISTORY_DEFAULT }
    }
}

/// The attributes of a log that can be changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(with = "history")]
    history: u64,
}

#[derive(Serialize)]
struct Kept {
    #[serde(with = "history")]
    history: u64,
}

#[derive(Serialize)]
struct Change<'l> {
    log: &'l str,
    #[serde(flatten)]
    history: Option<Kept>,
    change: &'static str,
}

/// The namespace for this caller, and the description of a log or a topic in the body, if there is a body.
pub(super) async fn described<T: DeserializeOwned>(
    session: &Session,
    namespace: &str,
    request: Request<Incoming>,
    what: &str,
) -> Result<(Access, Option<T>)> {
    let (head, body) = request.into_parts();
    Query::parse(head.uri.query().unwrap_or(""))?.finish()?;
    check_encoding(&head.headers)?;
    let access = session.access(namespace)?;
    let body = body::read(body, BODY_MAX_BYTES).await?;
    if body.bytes.is_empty() {
        return Ok((access, None));
    }
    match media_type(&head.headers)?.as_deref() {
        Some("application/json") => {
            serde_json::from_slice(&body.bytes).map(|said| (access, Some(said))).map_err(|error| {
                let error = error.to_string().replace("expected u64", "expected a whole number of records");
                Code::HttpBodyInvalid.error(format!("the body does not describe a {what}: {error}"))
            })
        }
        kind => {
            let kind = kind.unwrap_or("nothing");
            Err(Code::HttpTypeUnsupported.error(format!("the body is of type '{}', not application/json", shown(kind))))
        }
    }
}

/// Creates a log; an existing one with the same history is left as it is.
pub(in crate::http) async fn create(
    session: &Session,
    namespace: &str,
    log: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (access, described) = described::<NewLog>(session, namespace, request, "log").await?;
    let history = described.unwrap_or_default().history;
    let existed = access.finds(log);
    let name = log.to_owned();
    // It may grow a file, which takes a while on a slow disk.
    session.hosted.define(access, move |access| access.create_log(&name, history)).await?;
    let (status, change) = if existed { (StatusCode::OK, "unchanged") } else { (StatusCode::CREATED, "created") };
    Ok(response::document(status, &Change { log, history: Some(Kept { history }), change }))
}

/// Changes the history of a log.
pub(in crate::http) async fn change(
    session: &Session,
    namespace: &str,
    log: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (access, described) = described::<Settings>(session, namespace, request, "log").await?;
    let missing = || Code::HttpBodyInvalid.error("the request has no body; the body names what to change");
    let Settings { history } = described.ok_or_else(missing)?;
    let name = log.to_owned();
    let changed = session.hosted.define(access, move |access| access.set_history(&name, history)).await?;
    let change = if changed { "updated" } else { "unchanged" };
    Ok(response::document(StatusCode::OK, &Change { log, history: Some(Kept { history }), change }))
}

/// Removes a log that no function or pending run needs.
pub(in crate::http) async fn remove(session: &Session, namespace: &str, log: &str, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    let access = session.access(namespace)?;
    let name = log.to_owned();
    // It reads the journal to check that no pending run needs the log.
    session.hosted.define(access, move |access| access.remove_log(&name)).await?;
    Ok(response::document(StatusCode::OK, &Change { log, history: None, change: "removed" }))
}
