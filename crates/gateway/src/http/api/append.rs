//! Appending: one record, which is the unchanged body, or several in JSON.

use super::{RECORDS_JSON, check_encoding, durability, header, media_type};
use crate::{
    documents::{Query, shown},
    http::{
        connection::body,
        response::{self, JSON, Response},
        session::Session,
    },
    turns,
};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use hyper::{
    HeaderMap, Request, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue, LOCATION},
    http::request::Parts,
};
use millrace_documents::id_text;
use millrace_node::{Access, AppendOptions, BATCH_RECORDS_MAX, Durability, Gated, Receipt, SUBMISSION_PATIENCE};
use millrace_wire::{Code, EventId, Result, protocol::Fence};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, sync::Arc, time::Instant};
use tokio::time::timeout;

/// Most bytes of several records in JSON: base64 makes a third more of them.
const BATCH_MAX_BYTES: usize = 24 << 20;
/// The maximum length of the description of an invalid text.
const FAULT_MAX_CHARS: usize = 300;

/// The options from the headers and the query.
fn options<'h>(headers: &'h HeaderMap, query: Option<&str>) -> Result<AppendOptions<'h>> {
    check_encoding(headers)?;
    let mut query = Query::parse(query.unwrap_or(""))?;
    let durability = durability(headers, &mut query)?;
    query.finish()?;
    Ok(AppendOptions {
        function: header(headers, "millrace-function")?,
        durability,
        cause: header(headers, "millrace-cause")?.map(str::parse).transpose()?.unwrap_or(EventId::NONE),
        key: header(headers, "idempotency-key")?,
        fence: header(headers, "millrace-fence")?.map(Fence::parse).transpose()?,
        ..AppendOptions::default()
    })
}

/// Appends the body to a log.
pub(in crate::http) async fn one(
    session: &Session,
    namespace: &str,
    log: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (head, body) = request.into_parts();
    if head.headers.contains_key(CONTENT_TYPE) && media_type(&head.headers)?.as_deref() == Some(RECORDS_JSON) {
        return Box::pin(many(session, namespace, Some(log), head, body)).await;
    }
    let path = head.uri.path().trim_end_matches('/').to_owned();
    options(&head.headers, head.uri.query())?;
    let access = session.access(namespace)?;
    let data = body::read(body, access.served().facts().record_max_bytes()).await?;
    let log = log.to_owned();
    let append = move |access: &Access| match options(&head.headers, head.uri.query()) {
        Ok(options) => access.append(&log, &data.bytes, options),
        Err(error) => access.refuse(error, None),
    };
    Ok(created(&path, &committed(&access, append).await?))
}

/// Appends, and notes how long it took.
async fn committed<T: Send + Unpin + 'static>(
    access: &Access,
    act: impl Fn(&Access) -> Gated<T> + Send + 'static,
) -> Result<T> {
    let began = Instant::now();
    let answer = commit(access, act).await?;
    access.served().facts().append_took(began.elapsed());
    Ok(answer)
}

/// Executes a commit: here if no other client has to wait for it, and otherwise on the committing thread.
pub(in crate::http) async fn commit<T: Send + Unpin + 'static>(
    access: &Access,
    act: impl Fn(&Access) -> Gated<T> + Send + 'static,
) -> Result<T> {
    // With durability memory a commit does not wait for the disk, so other loops may commit too.
    let others = access.served().facts().durability() == Durability::Memory;
    let now = turns::may_wait(others).and_then(|_waiting| access.now(&act));
    if let Some(held) = now {
        return held.await;
    }
    let mut submitted = access.submit(act);
    match timeout(SUBMISSION_PATIENCE, &mut submitted).await {
        Ok(held) => held.await,
        Err(_) if submitted.cancel() => Err(access.blocked()),
        // It has begun, and reports its end.
        Err(_) => submitted.await.await,
    }
}

/// Where the record is now. Formatted by hand: it is the most frequent answer.
fn created(path: &str, receipt: &Receipt) -> Response {
    let Receipt { seqno, id, .. } = receipt;
    let text = Bytes::from(format!("{{\"seqno\":{seqno},\"id\":\"{id}\"}}"));
    let mut response = response::typed(StatusCode::CREATED, JSON, text);
    if let Ok(location) = HeaderValue::from_maybe_shared(Bytes::from(format!("{path}/{seqno}"))) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Appends records to several logs, all or none.
pub(in crate::http) async fn batch(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let (head, body) = request.into_parts();
    match media_type(&head.headers)?.as_deref() {
        Some("application/json" | RECORDS_JSON) => many(session, namespace, None, head, body).await,
        other => {
            let other = shown(other.unwrap_or("nothing"));
            Err(Code::HttpTypeUnsupported.error(format!("the body is of type '{other}', not application/json")))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRecord<'b> {
    #[serde(borrow)]
    log: Option<Cow<'b, str>>,
    #[serde(borrow)]
    data: Option<&'b RawValue>,
    #[serde(borrow)]
    text: Option<Cow<'b, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'b, str>>,
}

impl NewRecord<'_> {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match (self.data, &self.text, &self.base64) {
            // A text is itself; anything else is kept as the JSON that it is.
            (Some(data), None, None) => match data.get().starts_with('"') {
                true => serde_json::from_str(data.get()).map(String::into_bytes).map_err(|error| error.to_string()),
                false => Ok(data.get().into()),
            },
            (None, Some(text), None) => Ok(text.as_bytes().into()),
            (None, None, Some(base64)) => {
                BASE64.decode(base64.as_bytes()).map_err(|error| format!("its 'base64' is not base64: {error}"))
            }
            _ => Err("it needs one of 'data', 'text' and 'base64'".into()),
        }
    }
}

/// A list of records, of which no more are kept than may be appended at once: each takes more room than its text.
struct NewRecords<'b> {
    kept: Vec<NewRecord<'b>>,
    count: usize,
}

impl<'de> Deserialize<'de> for NewRecords<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = NewRecords<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < BATCH_RECORDS_MAX
                    && let Some(record) = list.next_element()?
                {
                    kept.push(record);
                }
                let mut count = kept.len();
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(NewRecords { kept, count })
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[derive(Serialize)]
struct AppendedMany {
    records: Vec<Appended>,
}

#[derive(Serialize)]
struct Appended {
    log: String,
    seqno: u64,
    id: Option<String>,
}

/// The error of a text, which may quote any amount of it.
fn brief(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.char_indices().nth(FAULT_MAX_CHARS) {
        None => text,
        Some((at, _)) => format!("{}… at line {} column {}", &text[..at], error.line(), error.column()),
    }
}

async fn many(session: &Session, namespace: &str, log: Option<&str>, head: Parts, body: Incoming) -> Result<Response> {
    options(&head.headers, head.uri.query())?;
    let access = session.access(namespace)?;
    let data = body::read(body, BATCH_MAX_BYTES).await?;
    let NewRecords { kept: records, count } = serde_json::from_slice(&data.bytes).map_err(|error| {
        Code::HttpBodyInvalid.error(format!("the body is not a list of records: {}", brief(&error)))
    })?;
    if count > BATCH_RECORDS_MAX {
        return Err(Code::ValueInvalid.error(format!("{count} records in one batch; the limit is {BATCH_RECORDS_MAX}")));
    }
    let mut owned: Vec<(String, Vec<u8>)> = Vec::with_capacity(records.len());
    for (n, record) in records.iter().enumerate() {
        let fault = |fault: String| Code::HttpBodyInvalid.error(format!("record {n} of the list: {fault}"));
        let log = record.log.as_deref().or(log).ok_or_else(|| fault("it names no log".into()))?;
        owned.push((log.to_owned(), record.bytes().map_err(fault)?));
    }
    let owned = Arc::new(owned);
    let of_append = owned.clone();
    let append = move |access: &Access| {
        // The memory of the body is counted until it is committed.
        let _counted = &data;
        let records: Vec<(&str, &[u8])> = of_append.iter().map(|(log, bytes)| (&**log, &**bytes)).collect();
        match options(&head.headers, head.uri.query()) {
            Ok(options) => access.append_many(&records, options),
            Err(error) => access.refuse(error, None),
        }
    };
    let receipts = committed(&access, append).await?;
    let appended = receipts.iter().zip(&*owned).map(|(receipt, (log, _))| Appended {
        log: log.clone(),
        seqno: receipt.seqno,
        id: id_text(receipt.id),
    });
    Ok(response::document(StatusCode::CREATED, &AppendedMany { records: appended.collect() }))
}
