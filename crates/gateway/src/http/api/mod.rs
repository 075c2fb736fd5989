//! The handlers of requests, by subject.

pub(super) mod append;
pub(super) mod dashboard;
pub(super) mod logs;
pub(super) mod manage;
pub(crate) mod metrics;
pub(super) mod pages;
pub(super) mod range;
pub(super) mod record;
pub(super) mod repairs;
pub(super) mod runs;
pub(super) mod tail;
pub(super) mod topics;

use super::{connection::body, session::Session};
use crate::{
    documents::{Query, invalid, shown},
    memory::Reservation,
};
pub(in crate::http) use append::commit;
use hyper::{HeaderMap, Request, body::Incoming, header::CONTENT_TYPE};
pub(in crate::http) use logs::described;
use millrace_node::{Access, Durability, Gated, Record};
use millrace_wire::{Code, Result};
use std::time::Duration;

/// Longest time that a request may ask to wait.
pub(super) const WAIT_MAX_MS: u64 = 5 * 60 * 1000;
/// A batch of records in JSON.
const RECORDS_JSON: &str = "application/vnd.millrace.records+json";

/// A header's text; it may come once.
pub(in crate::http) fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| invalid(format!("header '{name}' is not text"))),
        (Some(_), Some(_)) => Err(invalid(format!("header '{name}' occurs twice"))),
    }
}

/// The durability that a request asks for, as parameter `durability` or as header `Millrace-Durability`.
pub(in crate::http) fn durability(headers: &HeaderMap, query: &mut Query) -> Result<Option<Durability>> {
    let parse = |text: &str| match text {
        "memory" => Ok(Durability::Memory),
        "disk" => Ok(Durability::Disk),
        other => Err(invalid(format!("durability '{}' is not memory or disk", shown(other)))),
    };
    let of_header = header(headers, "millrace-durability")?.map(parse).transpose()?;
    let of_query = query.take("durability").as_deref().map(parse).transpose()?;
    match (of_header, of_query) {
        (Some(header), Some(query)) if header != query => {
            Err(invalid("header 'millrace-durability' and parameter 'durability' differ"))
        }
        (header, query) => Ok(header.or(query)),
    }
}

/// The type of a body without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> Result<Option<String>> {
    let text = header(headers, CONTENT_TYPE.as_str())?;
    Ok(text.map(|text| text.split(';').next().unwrap_or("").trim().to_ascii_lowercase()))
}

/// Refuses bodies that are compressed: they would be kept as they come.
fn check_encoding(headers: &HeaderMap) -> Result<()> {
    match header(headers, "content-encoding")? {
        None | Some("identity") => Ok(()),
        Some(other) => {
            Err(Code::HttpTypeUnsupported.error(format!("content encoding '{}' is not supported", shown(other))))
        }
    }
}

/// A body that is JSON, up to this size, if `check` admits the request.
pub(in crate::http) async fn json_body<T>(
    request: Request<Incoming>,
    bytes_max: usize,
    check: impl FnOnce() -> Result<T>,
) -> Result<(T, body::Data)> {
    let (head, body) = request.into_parts();
    Query::parse(head.uri.query().unwrap_or(""))?.finish()?;
    check_encoding(&head.headers)?;
    if media_type(&head.headers)?.as_deref() != Some("application/json") {
        let kind = media_type(&head.headers)?.unwrap_or_else(|| "nothing".into());
        let error = format!("the body is of type '{}', not application/json", shown(&kind));
        return Err(Code::HttpTypeUnsupported.error(error));
    }
    let checked = check()?;
    Ok((checked, body::read(body, bytes_max).await?))
}

/// The namespace as the caller may use it, and a body that is JSON, as text up to this size.
async fn json(
    session: &Session,
    namespace: &str,
    request: Request<Incoming>,
    bytes_max: usize,
) -> Result<(Access, String, Option<Reservation>)> {
    let (access, body) = json_body(request, bytes_max, || session.access(namespace)).await?;
    let text = std::str::from_utf8(&body.bytes).map_err(|_| Code::HttpBodyInvalid.error("the body is not UTF-8"))?;
    let reserved = Reservation::of(text.len())?;
    Ok((access, text.to_owned(), reserved))
}

/// Whether the client asks for this type before others.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get("accept").and_then(|accept| accept.to_str().ok()).unwrap_or("");
    accept.split(',').any(|one| one.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(kind))
}

fn wait_of(wait_ms: Option<u64>) -> Duration {
    Duration::from_millis(wait_ms.unwrap_or(0))
}

/// Something that waited at the gate, and the memory that it takes.
struct Rationed<T> {
    value: Result<T>,
    reserved: Option<Reservation>,
    /// How long it is, also when there was no memory for it.
    bytes: usize,
}

/// Waits for a value at the gate. Its memory is counted meanwhile; if there is none left, it is refused.
async fn rationed<T: Unpin>(held: Gated<T>, bytes_of: impl FnOnce(&T) -> usize) -> Rationed<T> {
    let (mut reserved, mut bytes) = (None, 0);
    let held = held.map(|value| {
        bytes = bytes_of(&value);
        reserved = Reservation::of(bytes)?;
        Ok(value)
    });
    let value = held.await.and_then(|value| value);
    Rationed { value, reserved, bytes }
}

/// About how much memory records take.
fn bytes_of(records: &[Record]) -> usize {
    records.iter().map(|record| record.payload.len() + size_of::<Record>()).sum()
}

/// Does something that may take long on another thread; the threads for this are few.
async fn blocking<T: Send + Unpin + 'static>(work: impl FnOnce() -> Gated<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(held) => held.await,
        Err(failed) => Err(Code::HostInternal.error(failed.to_string())),
    }
}
