//! What requests do, by what they are about.

pub(super) mod append;
pub(super) mod logs;
pub(super) mod metrics;
pub(super) mod pages;
pub(super) mod range;
pub(super) mod record;
pub(super) mod tail;

use crate::documents::{invalid, shown};
use hyper::{HeaderMap, header::CONTENT_TYPE};
use millrace_node::{Durability, Held};
use millrace_wire::{Code, Result};
use std::time::Duration;

/// Longest time that a request may ask to wait.
pub(super) const WAIT_MAX_MS: u64 = 5 * 60 * 1000;
/// A batch of records in JSON.
const RECORDS_JSON: &str = "application/vnd.millrace.records+json";

/// A header's text; it may come once.
fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| invalid(format!("header '{name}' is not text"))),
        (Some(_), Some(_)) => Err(invalid(format!("header '{name}' comes twice"))),
    }
}

fn durability(text: Option<&str>) -> Result<Option<Durability>> {
    match text {
        None => Ok(None),
        Some("memory") => Ok(Some(Durability::Memory)),
        Some("disk") => Ok(Some(Durability::Disk)),
        Some(other) => Err(invalid(format!("durability '{}' is not memory or disk", shown(other)))),
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
            Err(Code::HttpTypeUnsupported.error(format!("content encoding '{}' is not taken", shown(other))))
        }
    }
}

/// Whether the client asks for this type before others.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get("accept").and_then(|accept| accept.to_str().ok()).unwrap_or("");
    accept.split(',').any(|one| one.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case(kind))
}

fn wait_of(wait_ms: Option<u64>) -> Duration {
    Duration::from_millis(wait_ms.unwrap_or(0))
}

/// Does something that may take long on another thread; the threads for this are few.
async fn blocking<T: Send + Unpin + 'static>(work: impl FnOnce() -> Held<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(held) => held.await,
        Err(failed) => Err(Code::HostInternal.error(failed.to_string())),
    }
}
