//! Tables: keys, their values, and ranges of them.
//!
//! The ETag of a value is its version; `If-Match` and `If-None-Match: *` make a change conditional on it.

use super::{
    api::{commit, described, durability, header},
    connection::body,
    response::{self, Content, Response, put},
    session::Session,
};
use crate::{
    documents::{Query, invalid},
    replicas::reached,
};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
};
use millrace_documents::{TableEntryDoc, TableKeyDoc, moment_of};
use millrace_node::{
    Access, AppendOptions,
    manage::{Managed, Order},
};
use millrace_wire::{
    Code, DatabaseName, EventId, Result, TableMode,
    protocol::Fence,
    table::{
        Condition, KeyRange, KeyType, SCAN_MAX, TableAnswer, TableCodec, TableEntry, TableOptions, TableRequest,
        VERSIONS_MAX, after_prefix, show_key,
    },
    units,
};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

/// How many entries a scan without a limit has.
const LIMIT: u64 = 100;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct NewTable {
    history: Option<u64>,
    keys: KeyType,
    codec: TableCodec,
    ttl_ms: u64,
    database: Option<DatabaseName>,
    mode: TableMode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Increment {
    increment: i64,
}

#[derive(Serialize)]
struct TableEntriesDoc<'e> {
    entries: Vec<TableEntryDoc<'e>>,
    /// The first key after these, if there are more: `from` of the next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<TableKeyDoc<'e>>,
}

/// Creates a table; an existing one with the same attributes is left as it is.
pub(super) async fn create(
    session: &Session,
    namespace: &str,
    table: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let (access, described) = described::<NewTable>(session, namespace, request, "table").await?;
    let NewTable { history, keys, codec, ttl_ms, database, mode } = described.unwrap_or_default();
    let order = Order::CreateTable { table: table.parse()?, history, keys, codec, ttl_ms, database, mode };
    // It may grow a file, which takes a while on a slow disk.
    let made = session.hosted.define(access, move |access| access.manage(order, None)).await?;
    let status = match &made {
        Managed::Table { change: "created", .. } => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    Ok(response::document(status, &made))
}

async fn ask(access: &Access, table: &str, request: Vec<u8>, head: &TableHead) -> Result<TableAnswer> {
    let changes = TableRequest::decode(&request)?.changes();
    if let Some(token) = header(&head.headers, "millrace-after")?.filter(|_| !changes) {
        reached(access, table, token.parse()?).await?;
    }
    let at_hand = access.is_table_at_hand(table) && !changes;
    if at_hand {
        return access.ask_table(table, &TableRequest::decode(&request)?, head.options()?).await;
    }
    let (table, head) = (table.to_owned(), head.clone());
    let act = move |access: &Access| match TableRequest::decode(&request).and_then(|asked| Ok((asked, head.options()?)))
    {
        Ok((asked, options)) => access.ask_table(&table, &asked, options),
        Err(error) => access.refuse(error, None),
    };
    commit(access, act).await
}

/// What a request says besides its key and value.
#[derive(Clone)]
struct TableHead {
    headers: HeaderMap,
    durability: Option<millrace_wire::Durability>,
}

impl TableHead {
    fn of(headers: &HeaderMap, query: &mut Query) -> Result<Self> {
        Ok(Self { durability: durability(headers, query)?, headers: headers.clone() })
    }

    fn options(&self) -> Result<AppendOptions<'_>> {
        Ok(AppendOptions {
            durability: self.durability,
            cause: header(&self.headers, "millrace-cause")?.map(str::parse).transpose()?.unwrap_or(EventId::NONE),
            fence: header(&self.headers, "millrace-fence")?.map(Fence::parse).transpose()?,
            ..AppendOptions::default()
        })
    }
}

/// The condition that the headers make.
fn condition(headers: &HeaderMap) -> Result<Condition> {
    match (header(headers, "if-match")?, header(headers, "if-none-match")?) {
        (None, None) => Ok(Condition::Always),
        (None, Some("*")) => Ok(Condition::Absent),
        (Some(tag), None) => {
            let version = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).and_then(|tag| tag.parse().ok());
            let version = version.filter(|version| *version > 0);
            version.map(Condition::Version).ok_or_else(|| invalid("`If-Match` is the ETag of a value, such as \"17\""))
        }
        _ => Err(invalid("a change takes `If-Match: \"VERSION\"` or `If-None-Match: *`, and not both")),
    }
}

/// Keys of a range, as JSON.
pub(super) async fn scan<B>(session: &Session, namespace: &str, table: &str, request: &Request<B>) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let head = TableHead::of(request.headers(), &mut query)?;
    let (prefix, from, to) = (query.take("prefix"), query.take("from"), query.take("to"));
    let limit = query.number("limit", 1, SCAN_MAX.into())?.unwrap_or(LIMIT) as u32; // at most SCAN_MAX
    let keys_only = query.flag("keys_only")?;
    query.finish()?;
    let prefix = prefix.unwrap_or_default();
    let from = from.filter(|from| *from > prefix).unwrap_or_else(|| prefix.clone());
    let end = after_prefix(prefix.as_bytes());
    let to = match to {
        Some(to) if end.is_empty() || to.as_bytes() < &*end => to.into_bytes(),
        _ => end,
    };
    let access = session.access(namespace)?;
    let range = KeyRange { from: from.as_bytes(), to: &to };
    let answer = ask(&access, table, TableRequest::Scan { range, limit, keys_only }.encode(), &head).await?;
    // The smallest key after the last one.
    let next = answer.more.then(|| answer.entries.last().map(|entry| [&*entry.key, &[0]].concat())).flatten();
    let next = next.as_deref().map(TableKeyDoc::of);
    let entries = answer.entries.iter().map(|entry| TableEntryDoc::of(entry, keys_only)).collect();
    Ok(with_token(response::document(StatusCode::OK, &TableEntriesDoc { entries, next }), &answer))
}

/// Reads a key, or changes it.
pub(super) async fn key(
    session: &Session,
    namespace: &str,
    table: &str,
    key: &str,
    request: Request<Incoming>,
) -> Result<Response> {
    let key: Vec<u8> = percent_decode_str(key).collect();
    let (parts, body) = request.into_parts();
    let mut query = Query::parse(parts.uri.query().unwrap_or(""))?;
    let head = TableHead::of(&parts.headers, &mut query)?;
    if parts.method != Method::GET && parts.headers.contains_key("idempotency-key") {
        return Err(invalid("a change of a table takes no `Idempotency-Key`; make it conditional with `If-Match`"));
    }
    let access = session.access(namespace)?;
    match parts.method {
        Method::PUT => {
            let ttl_ms = match query.take("ttl") {
                None => 0,
                Some(text) => {
                    let ttl =
                        units::parse_duration(&text).map_err(|error| invalid(format!("parameter 'ttl': {error}")))?;
                    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
                }
            };
            query.finish()?;
            let condition = condition(&parts.headers)?;
            let value = body::read(body, access.served().facts().record_max_bytes()).await?;
            let asked = TableRequest::Put { key: &key, value: &value.bytes, condition, ttl_ms }.encode();
            Ok(changed(&ask(&access, table, asked, &head).await?))
        }
        Method::DELETE => {
            query.finish()?;
            let condition = condition(&parts.headers)?;
            let answer = ask(&access, table, TableRequest::Delete { key: &key, condition }.encode(), &head).await?;
            if answer.entries.is_empty() {
                return Err(absent(&key));
            }
            Ok(changed(&answer))
        }
        Method::POST => {
            query.finish()?;
            let body = body::read(body, 1 << 10).await?;
            let Increment { increment } = serde_json::from_slice(&body.bytes).map_err(|error| {
                Code::HttpBodyInvalid
                    .error(format!("the body does not say what to add, such as {{\"increment\":1}}: {error}"))
            })?;
            let asked = TableRequest::Increment { key: &key, amount: increment }.encode();
            let answer = ask(&access, table, asked, &head).await?;
            let document = answer.entries.first().map(|entry| TableEntryDoc::of(entry, false));
            Ok(with_token(response::document(StatusCode::OK, &document), &answer))
        }
        _ => {
            let versions = query.number("versions", 1, VERSIONS_MAX.into())?;
            query.finish()?;
            if let Some(limit) = versions {
                let asked = TableRequest::Versions { key: &key, below: 0, limit: limit as u32 }.encode(); // at most VERSIONS_MAX
                let answer = ask(&access, table, asked, &head).await?;
                let entries = answer.entries.iter().map(|entry| TableEntryDoc::of(entry, false)).collect();
                let document = response::document(StatusCode::OK, &TableEntriesDoc { entries, next: None });
                return Ok(with_token(document, &answer));
            }
            let answer = ask(&access, table, TableRequest::Get { key: &key }.encode(), &head).await?;
            let described = ask(&access, table, TableRequest::Describe.encode(), &head).await?;
            let token = TableAnswer { token: answer.token, ..TableAnswer::default() };
            let entry = answer.entries.into_iter().next().ok_or_else(|| absent(&key))?;
            Ok(with_token(value(session, entry, &described, &parts.headers)?, &token))
        }
    }
}

fn absent(key: &[u8]) -> millrace_wire::Error {
    Code::TableKeyAbsent.error(format!("key '{}'", show_key(key)))
}

/// The bytes of a value.
fn value(session: &Session, entry: TableEntry, described: &TableAnswer, headers: &HeaderMap) -> Result<Response> {
    let tag = format!("\"{}\"", entry.version);
    let is_known = header(headers, "if-none-match")?.is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag));
    let options: TableOptions = described
        .entries
        .first()
        .and_then(|entry| serde_json::from_slice(entry.value.as_deref()?).ok())
        .unwrap_or_default();
    session.activity.sends_raw();
    let mut response = match is_known {
        true => hyper::Response::new(Content::whole("")),
        false => hyper::Response::new(Content::whole(entry.value.unwrap_or_default())),
    };
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let out = response.headers_mut();
    let kind = match options.codec {
        TableCodec::Json => "application/json",
        TableCodec::Text => "text/plain; charset=utf-8",
        TableCodec::Bytes => "application/octet-stream",
    };
    out.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    put(out, "etag", &tag);
    put(out, "millrace-version", &entry.version.to_string());
    for (name, us) in [("millrace-time", entry.time_us), ("millrace-expires", entry.expires_us)] {
        if let Some(time) = moment_of(us) {
            put(out, name, &time);
        }
    }
    out.insert("cache-control", HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// The new version of a key.
fn changed(answer: &TableAnswer) -> Response {
    let version = answer.entries.first().map_or(0, |entry| entry.version);
    let mut response = response::document(StatusCode::OK, &serde_json::json!({ "version": version }));
    put(response.headers_mut(), "etag", &format!("\"{version}\""));
    with_token(response, answer)
}

/// The token of an answer, for reads at replicas.
fn with_token(mut response: Response, answer: &TableAnswer) -> Response {
    if !answer.token.is_none() {
        put(response.headers_mut(), "millrace-token", &answer.token.to_string());
    }
    response
}
