//! etcd, through its JSON gateway: each transaction is one Txn that compares the value of the stream's key.
//!
//! ```text
//!  TABLE:KEY                  the value
//!  millrace:stream:STREAM     the number, a space, the owner
//! ```

use crate::{
    Address, Options, Secret,
    engine::{Engine, Found, Full, Page, Reply, Standing, Target},
    http::{Http, Single, next},
    tls::{Tls, unreachable},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hyper::StatusCode;
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Limits, Outcome, Refusal, RefusalKind, Transaction};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// By default, etcd permits 128 operations in a transaction, and 1.5 MiB with keys and framing. One operation writes the number.
const LIMITS: Limits = Limits { rows: 127, bytes: 1 << 20, key: 1024, value: 1 << 20, in_flight: 1 };
const NAME_MAX_BYTES: usize = 255;

/// A connection to etcd.
pub struct Etcd {
    address: Address,
    tls: Option<Tls>,
    secret: Option<Secret>,
    session: Option<EtcdSession>,
}

struct EtcdSession {
    stream: String,
    owner: String,
    tables: BTreeSet<String>,
    connection: Single<EtcdLink, Result<Value>>,
}

struct EtcdLink {
    http: Http,
    address: Address,
    token: Option<String>,
}

fn encoded(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}

fn stream_key(stream: &str) -> String {
    format!("millrace:stream:{stream}")
}

fn row_key(table: &str, key: &[u8]) -> Vec<u8> {
    [table.as_bytes(), b":", key].concat()
}

impl EtcdLink {
    /// The answer to a request; an error of the server has its words.
    async fn ask(&mut self, path: &str, body: &Value) -> Result<Value> {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(self.token.as_deref().map(|token| ("authorization", token)));
        let (status, bytes) = self.http.post(path, &headers, body.to_string()).await?;
        let odd = || Code::DatabaseProtocol.error(format!("{}: {status}, not an answer of etcd", self.address));
        let answer: Value = serde_json::from_slice(&bytes).map_err(|_| odd())?;
        if status.is_success() {
            return Ok(answer);
        }
        let words = answer["message"].as_str().or(answer["error"].as_str()).ok_or_else(odd)?;
        let code = match answer["code"].as_u64() {
            Some(7 | 16) => Code::DatabaseDenied,
            _ if words.contains("authentication") || words.contains("user name is empty") => Code::DatabaseDenied,
            // Too many operations, too large, duplicate keys.
            Some(3) | Some(11) => Code::DatabaseRefused,
            _ if status == StatusCode::NOT_FOUND => Code::DatabaseProtocol,
            _ => Code::DatabaseUnreachable,
        };
        Err(code.error(format!("{}: {words}", self.address)))
    }

    /// The owner and the number of a stream.
    async fn standing(&mut self, stream: &str) -> Result<Option<(String, u64)>> {
        let answer = self.ask("/v3/kv/range", &json!({ "key": encoded(stream_key(stream)) })).await?;
        match answer["kvs"].as_array().and_then(|found| found.first()) {
            Some(found) => Ok(Some(self.parsed(&found["value"])?)),
            None => Ok(None),
        }
    }

    fn parsed(&self, value: &Value) -> Result<(String, u64)> {
        let odd = || Code::DatabaseProtocol.error(format!("{}: the key of a stream has an odd value", self.address));
        let text = String::from_utf8(decoded(value).ok_or_else(odd)?.to_vec()).map_err(|_| odd())?;
        let (number, owner) = text.split_once(' ').ok_or_else(odd)?;
        Ok((owner.to_owned(), number.parse().map_err(|_| odd())?))
    }
}

fn decoded(value: &Value) -> Option<Bytes> {
    // An empty field is left out.
    STANDARD.decode(value.as_str().unwrap_or("")).ok().map(Bytes::from)
}

fn version_is_supported(version: &str) -> bool {
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(3), Some(4))
}

impl Etcd {
    /// For this address.
    pub fn new(address: &Address, options: &Options) -> Result<Self> {
        if !address.path.is_empty() {
            return Err(Code::DatabaseUrl.error("nothing stands behind the host of 'etcd://'"));
        }
        let tls = Tls::of(address, options, &[b"http/1.1"])?;
        Ok(Self { address: address.clone(), tls, secret: options.secret.clone(), session: None })
    }

    async fn connect(&mut self, target: &Target) -> Result<Standing> {
        self.session = None;
        target.check(NAME_MAX_BYTES)?;
        if let Some(table) = target.tables.iter().find(|table| table.name.contains(':')) {
            return Err(Code::DatabaseUrl.error(format!("the name '{}' of a table contains ':'", table.name)));
        }
        let http = Http::connect(&self.address, self.tls.as_ref()).await?;
        let mut link = EtcdLink { http, address: self.address.clone(), token: None };
        if let Some(secret) = &self.secret {
            let name = self.address.user.as_deref().unwrap_or("root");
            let signs_in = json!({ "name": name, "password": secret.text() });
            let answer = link.ask("/v3/auth/authenticate", &signs_in).await;
            let answer = answer.map_err(|error| Code::DatabaseDenied.error(error.detail()))?;
            link.token = answer["token"].as_str().map(str::to_owned);
        }
        let status = link.ask("/v3/maintenance/status", &json!({})).await?;
        let version = status["version"].as_str().unwrap_or("").to_owned();
        if !version_is_supported(&version) {
            return Err(Code::DatabaseProtocol.error(format!("{}: etcd '{version}' is older than 3.4", self.address)));
        }
        let key = encoded(stream_key(&target.stream));
        let mine = |number: u64| json!({ "requestPut": { "key": key, "value": encoded(format!("{number} {}", target.owner)) } });
        let found = match link.standing(&target.stream).await? {
            Some(found) => found,
            None => {
                let compare = json!([{ "key": key, "target": "VERSION", "result": "EQUAL", "version": "0" }]);
                link.ask("/v3/kv/txn", &json!({ "compare": compare, "success": [mine(0)] })).await?;
                let found = link.standing(&target.stream).await?;
                found.ok_or_else(|| unreachable(&self.address, &"the stream's key was deleted"))?
            }
        };
        let found = match (&target.previous_owner, found) {
            (Some(previous), (owner, number)) if *previous == owner => {
                let value = encoded(format!("{number} {owner}"));
                let compare = json!([{ "key": key, "target": "VALUE", "result": "EQUAL", "value": value }]);
                link.ask("/v3/kv/txn", &json!({ "compare": compare, "success": [mine(number)] })).await?;
                let found = link.standing(&target.stream).await?;
                found.ok_or_else(|| unreachable(&self.address, &"the stream's key was deleted"))?
            }
            (_, found) => found,
        };
        target.check_owner(&found.0)?;
        self.session = Some(EtcdSession {
            stream: target.stream.clone(),
            owner: target.owner.clone(),
            tables: target.tables.iter().map(|table| table.name.clone()).collect(),
            connection: Single::Idle(link),
        });
        Ok(Standing { number: found.1, is_durable: true, server: format!("etcd {version}") })
    }

    async fn page(&mut self, table: &str, after: Option<&[u8]>, count: u32) -> Result<Page> {
        let closed = || Code::DatabaseUnreachable.error("the database is not open");
        let session = self.session.as_mut().ok_or_else(closed)?;
        if !session.tables.contains(table) {
            return Err(Code::DatabaseSchema.error(format!("table '{table}' does not belong to the stream")));
        }
        // A page that is dropped half-way leaves no connection with half an answer.
        let mut link = session.connection.take().ok_or_else(closed)?;
        let prefix = row_key(table, b"");
        let from = after.map_or_else(|| prefix.clone(), |after| [&prefix, after, b"\0"].concat());
        let end = [table.as_bytes(), b";"].concat();
        let rows = json!({ "requestRange": { "key": encoded(from), "rangeEnd": encoded(end), "limit": (u64::from(count) + 1).to_string() } });
        let number = json!({ "requestRange": { "key": encoded(stream_key(&session.stream)) } });
        let answer = link.ask("/v3/kv/txn", &json!({ "success": [number, rows] })).await?;
        let odd = || Code::DatabaseProtocol.error(format!("{}: an odd page", self.address));
        let found =
            |at: usize| answer["responses"][at]["response_range"]["kvs"].as_array().cloned().unwrap_or_default();
        let (_, number) = link.parsed(&found(0).first().ok_or_else(odd)?["value"])?;
        session.connection = Single::Idle(link);
        let row = |row: &Value| {
            let key = decoded(&row["key"]).filter(|key| key.len() >= prefix.len())?.slice(prefix.len()..);
            Some(Found { key, value: decoded(&row["value"])?, version: None })
        };
        let mut rows = found(1).iter().map(row).collect::<Option<Vec<Found>>>().ok_or_else(odd)?;
        let has_more = rows.len() > count as usize;
        rows.truncate(count as usize);
        Ok(Page { number, rows, has_more })
    }
}

/// The request of a transaction, or why it cannot be sent.
fn request(session: &EtcdSession, transaction: &Transaction) -> std::result::Result<Value, Refusal> {
    let EtcdSession { stream, owner, tables, .. } = session;
    if let Some(row) = transaction.rows.iter().find(|row| !tables.contains(&*row.table)) {
        let (code, detail) = ("table".into(), format!("table '{}' does not belong to the stream", row.table));
        return Err(Refusal { kind: RefusalKind::Schema, code, detail });
    }
    let key = encoded(stream_key(stream));
    let (before, now) = (format!("{} {owner}", transaction.after), format!("{} {owner}", transaction.number));
    let compare = json!([{ "key": key, "target": "VALUE", "result": "EQUAL", "value": encoded(before) }]);
    let mut success = vec![json!({ "requestPut": { "key": key, "value": encoded(now) } })];
    success.extend(transaction.rows.iter().map(|row| {
        let key = encoded(row_key(&row.table, &row.key));
        match row.value() {
            Some(value) => json!({ "requestPut": { "key": key, "value": encoded(value) } }),
            None => json!({ "requestDeleteRange": { "key": key } }),
        }
    }));
    Ok(json!({ "compare": compare, "success": success }))
}

/// What is wrong with a transaction, unless the same one may succeed later.
fn refusal(error: &Error) -> Option<Refusal> {
    let kind = match error.code() {
        Code::DatabaseRefused => RefusalKind::Data,
        Code::DatabaseDenied => RefusalKind::Denied,
        _ => return None,
    };
    Some(Refusal { kind, code: "etcd".into(), detail: error.detail().to_owned() })
}

impl Engine for Etcd {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn open<'a>(&'a mut self, target: &'a Target) -> Reply<'a, Result<Standing>> {
        Box::pin(self.connect(target))
    }

    fn submit(&mut self, transaction: Transaction) -> std::result::Result<(), Full> {
        let session = self.session.as_mut().ok_or(Full)?;
        let request = request(session, &transaction);
        session.connection.submit(transaction.number, request, async |mut link: EtcdLink, request| {
            let answer = link.ask("/v3/kv/txn", &request).await;
            (link, answer)
        })
    }

    fn next(&mut self) -> Reply<'_, Outcome> {
        let Self { address, session, .. } = self;
        let outcome = move |number, answer: Result<Value>| match answer {
            // A comparison that failed is left out of the answer.
            Ok(answer) if answer["succeeded"] == true => Outcome::Written(number),
            Ok(answer) if answer["header"].is_object() => Outcome::Stale(number),
            Ok(_) => Outcome::Lost(Code::DatabaseProtocol.error(format!("{address}: an odd answer"))),
            Err(error) => match refusal(&error) {
                Some(refusal) => Outcome::Refused { number, row: None, refusal },
                None => Outcome::Lost(error),
            },
        };
        Box::pin(next(session, async move |session| session.connection.next(outcome).await))
    }

    fn scan<'a>(&'a mut self, table: &'a str, after: Option<&'a [u8]>, count: u32) -> Reply<'a, Result<Page>> {
        Box::pin(self.page(table, after, count))
    }
}
