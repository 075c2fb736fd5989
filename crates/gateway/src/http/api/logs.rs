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
use millrace_wire::{Code, HISTORY_DEFAULT, Result, TimeField, history};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

/// The maximum length of a request body that describes a log.
const BODY_MAX_BYTES: usize = 4 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NewLog {
    #[serde(with = "history")]
    history: u64,
    time: Option<TimeField>,
}

impl Default for NewLog {
    fn default() -> Self {
        Self { history: HISTORY_DEFAULT, time: None }
    }
}

/// The attributes of a log that can be changed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default, deserialize_with = "known")]
    history: Option<u64>,
    /// A field, or null for none.
    #[serde(default, deserialize_with = "present")]
    time: Option<Option<TimeField>>,
}

fn known<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u64>, D::Error> {
    history::deserialize(deserializer).map(Some)
}

/// What is there, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<Option<TimeField>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
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
    /// Only if the request has named one, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Option<TimeField>>,
    change: &'static str,
}

/// The namespace for this caller, and the description of a log or a topic in the body, if there is a body.
pub(in crate::http) async fn described<T: DeserializeOwned>(
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

/// Creates a log; an existing one with the same history is left as it is, but for the field that is named as that of its time.
pub(in crate::http) async fn create(
    session: &Session,
    namespace: &str,
    log: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (access, described) = described::<NewLog>(session, namespace, request, "log").await?;
    let NewLog { history, time } = described.unwrap_or_default();
    let existed = access.finds(log);
    let name = log.to_owned();
    // It may grow a file, which takes a while on a slow disk.
    session.hosted.define(access.clone(), move |access| access.create_log(&name, history)).await?;
    let has_other = match time.clone() {
        Some(time) => set_time(session, access, log, Some(time)).await?,
        None => false,
    };
    let (status, change) = match (existed, has_other) {
        (false, _) => (StatusCode::CREATED, "created"),
        (true, true) => (StatusCode::OK, "updated"),
        (true, false) => (StatusCode::OK, "unchanged"),
    };
    Ok(response::document(status, &Change { log, history: Some(Kept { history }), time: time.map(Some), change }))
}

async fn set_time(session: &Session, access: Access, log: &str, time: Option<TimeField>) -> Result<bool> {
    let log = log.to_owned();
    session.hosted.define(access, move |access| access.set_time_field(&log, time.as_ref())).await
}

/// Changes the history of a log, and which field has the time of the observation.
pub(in crate::http) async fn change(
    session: &Session,
    namespace: &str,
    log: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (access, described) = described::<Settings>(session, namespace, request, "log").await?;
    let missing = || Code::HttpBodyInvalid.error("the request has no body; the body names what to change");
    let Settings { history, time } = described.ok_or_else(missing)?;
    if history.is_none() && time.is_none() {
        return Err(Code::HttpBodyInvalid.error("the body names nothing to change: `history`, `time` or both"));
    }
    let mut changed = false;
    if let Some(history) = history {
        let name = log.to_owned();
        changed = session.hosted.define(access.clone(), move |access| access.set_history(&name, history)).await?;
    }
    if let Some(time) = time.clone() {
        changed |= set_time(session, access, log, time).await?;
    }
    let change = if changed { "updated" } else { "unchanged" };
    let history = history.map(|history| Kept { history });
    Ok(response::document(StatusCode::OK, &Change { log, history, time, change }))
}

/// Removes a log that no function or pending run needs.
pub(in crate::http) async fn remove(session: &Session, namespace: &str, log: &str, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    let access = session.access(namespace)?;
    let name = log.to_owned();
    // It reads the journal to check that no pending run needs the log.
    session.hosted.define(access, move |access| access.remove_log(&name)).await?;
    Ok(response::document(StatusCode::OK, &Change { log, history: None, time: None, change: "removed" }))
}
