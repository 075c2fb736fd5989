//! Topics of the cluster: created, published to and read through any of its hosts.

use super::{
    WAIT_MAX_MS, accepts, append::commit, bytes_of, check_encoding, header, logs::described, range as of_logs, wait_of,
};
use crate::{
    cluster::topics::{self, LOCAL, replied},
    documents::{Query, invalid, shown, whole_number},
    http::{
        connection::body,
        response::{self, Content, Response, put},
        session::Session,
    },
    memory::Reservation,
};
use hyper::{
    HeaderMap, Request, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue, LOCATION},
};
use millrace_documents::{TopicRecordDoc, rfc3339};
use millrace_node::{
    Access, Record, Right,
    cluster::{NewPublish, TopicOptions},
};
use millrace_wire::{Code, EventId, HISTORY_DEFAULT, Hlc, Result, history};
use serde::{Deserialize, Serialize};

/// The attributes of a new topic.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NewTopic {
    #[serde(with = "history")]
    history: u64,
    durability: Option<String>,
    group: Option<String>,
    engine: Option<String>,
}

impl Default for NewTopic {
    fn default() -> Self {
        Self { history: HISTORY_DEFAULT, durability: None, group: None, engine: None }
    }
}

#[derive(Serialize)]
struct Change<'t> {
    topic: &'t str,
    change: &'static str,
}

/// Where a record is in its topic; none if that is decided later.
#[derive(Serialize)]
struct Published<'t> {
    topic: &'t str,
    index: Option<u64>,
}

/// A record of a topic with its bytes.
pub(super) fn topic_record<'r>(topic: &'r str, record: &'r Record) -> TopicRecordDoc<'r> {
    TopicRecordDoc::of(topic, record.seqno, record.hlc, &record.payload)
}

#[derive(Serialize)]
struct Records<'r> {
    topic: &'r str,
    records: Vec<TopicRecordDoc<'r>>,
    next: u64,
}

/// Creates a topic; an existing one with the same attributes is left as it is.
pub(in crate::http) async fn create(
    session: &Session,
    namespace: &str,
    topic: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (access, new) = described::<NewTopic>(session, namespace, request, "topic").await?;
    let NewTopic { history, durability, group, engine } = new.unwrap_or_default();
    let durability = topics::durability(durability.as_deref())?.unwrap_or_default();
    let options = TopicOptions { history, durability, group, engine: topics::engine(engine.as_deref())? };
    let cluster = access.topics(Right::Create, topic)?;
    let existed = topics::latest(cluster, topic, 0, wait_of(None)).await.is_ok();
    replied(|reply| cluster.create(topic, &options, reply)).await?;
    let (status, change) = if existed { (StatusCode::OK, "unchanged") } else { (StatusCode::CREATED, "created") };
    Ok(response::document(status, &Change { topic, change }))
}

/// Removes a topic.
pub(in crate::http) async fn remove(session: &Session, namespace: &str, topic: &str, query: &str) -> Result<Response> {
    Query::parse(query)?.finish()?;
    let access = session.access(namespace)?;
    let cluster = access.topics(Right::Delete, topic)?;
    replied(|reply| cluster.remove_topic(topic, reply)).await?;
    Ok(response::document(StatusCode::OK, &Change { topic, change: "removed" }))
}

/// Which hosts must have the record on disk, as parameter `durability` or as header `Millrace-Durability`.
fn durability(headers: &HeaderMap, query: &mut Query) -> Result<Option<String>> {
    match (header(headers, "millrace-durability")?, query.take("durability")) {
        (Some(header), Some(query)) if header != query => {
            Err(invalid("header 'millrace-durability' and parameter 'durability' differ"))
        }
        (header, query) => Ok(query.or_else(|| header.map(str::to_owned))),
    }
}

/// Publishes the body to a topic.
pub(in crate::http) async fn publish(
    session: &Session,
    namespace: &str,
    topic: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (head, body) = request.into_parts();
    check_encoding(&head.headers)?;
    let mut query = Query::parse(head.uri.query().unwrap_or(""))?;
    let durability = durability(&head.headers, &mut query)?;
    query.finish()?;
    let key = header(&head.headers, "idempotency-key")?;
    let cause = header(&head.headers, "millrace-cause")?.map(str::parse).transpose()?.unwrap_or(EventId::NONE);
    let access = session.access(namespace)?;
    let data = body::read(body, access.served().facts().record_max_bytes()).await?;
    if durability.as_deref() == Some(LOCAL) {
        let (name, key) = (topic.to_owned(), key.map(str::to_owned));
        let publish = move |access: &Access| {
            let record = NewPublish { topic: &name, key: key.as_deref(), data: &data.bytes, cause, ordinal: 0 };
            access.publish_later(record, Hlc::default())
        };
        commit(&access, publish).await?;
        return Ok(response::document(StatusCode::ACCEPTED, &Published { topic, index: None }));
    }
    let durability = topics::durability(durability.as_deref())?;
    let published = {
        let (cluster, key) = access.topics_to_publish(topic, data.bytes.len(), key)?;
        replied(|reply| cluster.publish_from(cause, topic, (&data.bytes, key.as_deref()), durability, reply))
    };
    // With `leader`, the record has no index yet: that is decided by the group.
    let Some(index) = Some(published.await?).filter(|index| *index > 0) else {
        return Ok(response::document(StatusCode::ACCEPTED, &Published { topic, index: None }));
    };
    let mut response = response::document(StatusCode::CREATED, &Published { topic, index: Some(index) });
    let path = head.uri.path().trim_end_matches('/');
    if let Ok(location) = HeaderValue::from_maybe_shared(Bytes::from(format!("{path}/{index}"))) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Reads records from an index on; if there is none yet, the request may wait for it.
pub(in crate::http) async fn range<B>(
    session: &Session,
    namespace: &str,
    topic: &str,
    request: &Request<B>,
) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let from = query.number("from", 1, u64::MAX)?;
    let count = query.number("count", 1, of_logs::COUNT_MAX)?.unwrap_or(of_logs::COUNT) as u32; // at most 10000
    let wait = wait_of(query.number("wait_ms", 0, WAIT_MAX_MS)?);
    query.finish()?;
    let access = session.access(namespace)?;
    let cluster = access.topics(Right::Read, topic)?;
    if !wait.is_zero() {
        waited(session, topics::latest(cluster, topic, from.unwrap_or(1) - 1, wait)).await?;
    }
    let (records, next) = topics::range(cluster, topic, from, count, of_logs::RECORDS_MAX_BYTES).await?;
    let _reserved = Reservation::of(bytes_of(&records))?;
    let docs = records.iter().map(|record| topic_record(topic, record)).collect();
    let mut response = response::document(StatusCode::OK, &Records { topic, records: docs, next });
    put(response.headers_mut(), "millrace-next", &next.to_string());
    response.headers_mut().insert("cache-control", HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// What a wait results in; none if the host stops meanwhile.
async fn waited<T>(session: &Session, wait: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let mut stopped = session.stopped.clone();
    tokio::select! {
        done = wait => done.map(Some),
        _ = stopped.wait_for(|stopped| *stopped) => Ok(None),
    }
}

/// Reads one record; it may be waited for.
pub(in crate::http) async fn record<B>(
    session: &Session,
    namespace: &str,
    topic: &str,
    which: &str,
    request: &Request<B>,
) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let wait = wait_of(query.number("wait_ms", 0, WAIT_MAX_MS)?);
    let (index, above) = match which {
        "latest" => (0, query.number("above", 0, u64::MAX)?.unwrap_or(0)),
        text => match whole_number(text).filter(|index| *index > 0) {
            Some(index) => (index, index - 1),
            None => return Err(Code::SeqnoInvalid.error(format!("'{}' is not the index of a record", shown(text)))),
        },
    };
    query.finish()?;
    let access = session.access(namespace)?;
    let cluster = access.topics(Right::Read, topic)?;
    // With neither a wait nor `above`, a record that is not there is an error.
    if !wait.is_zero() || (index == 0 && above > 0) {
        let latest = waited(session, topics::latest(cluster, topic, above, wait)).await?;
        if latest.is_none_or(|latest| latest <= above) {
            let mut nothing_yet = hyper::Response::new(Content::whole(""));
            *nothing_yet.status_mut() = StatusCode::NO_CONTENT;
            return Ok(nothing_yet);
        }
    }
    let record = topics::get(cluster, topic, index).await?;
    let mut response = if accepts(request.headers(), "application/json") {
        response::document(StatusCode::OK, &topic_record(topic, &record))
    } else {
        let mut response = hyper::Response::new(Content::whole(record.payload));
        let out = response.headers_mut();
        out.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        // A record is never treated as a page of this host.
        out.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response
    };
    let out = response.headers_mut();
    put(out, "millrace-index", &record.seqno.to_string());
    put(out, "millrace-time", &rfc3339(record.hlc));
    out.insert("cache-control", HeaderValue::from_static("private, no-cache"));
    out.insert("vary", HeaderValue::from_static("accept"));
    Ok(response)
}
