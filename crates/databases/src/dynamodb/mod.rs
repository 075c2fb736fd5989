//! The DynamoDB API: each transaction is one TransactWriteItems, which is conditional on the item of the stream.
//!
//! ```text
//!  table TABLE               items with key, value, version
//!  table millrace_streams    items with stream, owner, number
//! ```

mod sign;

use crate::{
    Address, Options, Secret,
    engine::{Engine, Found, Full, Keys, Page, Reply, Standing, Table, Target, Values},
    http::{Http, Single, next},
    tls::{Tls, unreachable},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Limits, Outcome, Refusal, RefusalKind, Transaction};
use serde_json::{Map, Value, json};
use sign::Signer;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::sleep;

/// DynamoDB permits 100 items and 4 MB in a transaction, and 400 KB in an item. One item of each transaction has the number.
const LIMITS: Limits = Limits { rows: 99, bytes: 3_900_000, key: 1024, value: 390_000, in_flight: 1 };
const NAME_MAX_BYTES: usize = 255;
const STREAMS: &str = "millrace_streams";
/// DynamoDB takes seconds to create a table.
const CREATE_ATTEMPTS: usize = 100;
const CREATE_PAUSE: Duration = Duration::from_millis(200);

/// A connection to DynamoDB.
pub struct Dynamodb {
    address: Address,
    tls: Option<Tls>,
    signer: Arc<Signer>,
    session: Option<DynamodbSession>,
}

struct DynamodbSession {
    stream: String,
    owner: String,
    tables: BTreeMap<String, Table>,
    connection: Single<DynamodbLink, std::result::Result<Value, Failure>>,
}

struct DynamodbLink {
    http: Http,
    address: Address,
    signer: Arc<Signer>,
}

/// An error with its type and the whole answer.
struct Failure {
    error: Error,
    kind: String,
    answer: Value,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, kind: String::new(), answer: Value::Null }
    }
}

impl DynamodbLink {
    async fn ask(&mut self, action: &str, body: &Value) -> std::result::Result<Value, Failure> {
        let body = body.to_string();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (time, target, host) = (sign::time(seconds), format!("DynamoDB_20120810.{action}"), self.http.host());
        let mut headers = vec![
            ("content-type", "application/x-amz-json-1.0"),
            ("host", host.as_str()),
            ("x-amz-date", time.as_str()),
            ("x-amz-target", target.as_str()),
        ];
        let signature = self.signer.sign("POST", "/", &headers, body.as_bytes(), &time);
        headers.remove(1);
        headers.push(("authorization", signature.as_str()));
        let (status, bytes) = self.http.post("/", &headers, body).await?;
        let odd = || Code::DatabaseProtocol.error(format!("{}: {status}, not an answer of DynamoDB", self.address));
        let answer: Value = serde_json::from_slice(&bytes).map_err(|_| odd())?;
        if status.is_success() {
            return Ok(answer);
        }
        let kind = answer["__type"].as_str().and_then(|kind| kind.rsplit('#').next()).ok_or_else(odd)?.to_owned();
        let words = answer["message"].as_str().or(answer["Message"].as_str()).unwrap_or("").to_owned();
        let code = match kind.as_str() {
            "AccessDeniedException"
            | "UnrecognizedClientException"
            | "InvalidSignatureException"
            | "MissingAuthenticationTokenException"
            | "ExpiredTokenException"
            | "MissingAuthenticationToken" => Code::DatabaseDenied,
            "ResourceNotFoundException" => Code::DatabaseSchema,
            "ValidationException" | "TransactionCanceledException" => Code::DatabaseRefused,
            _ => Code::DatabaseUnreachable,
        };
        Err(Failure { error: code.error(format!("{}: {kind}: {words}", self.address)), kind, answer })
    }

    /// Creates a table that does not exist, and waits until it can be used.
    async fn create(&mut self, name: &str, key: &str, kind: &str) -> Result<()> {
        let definition = json!({
            "TableName": name, "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{ "AttributeName": key, "AttributeType": kind }],
            "KeySchema": [{ "AttributeName": key, "KeyType": "HASH" }],
        });
        for _ in 0..CREATE_ATTEMPTS {
            let described = match self.ask("DescribeTable", &json!({ "TableName": name })).await {
                Ok(described) => described,
                Err(failure) if failure.kind == "ResourceNotFoundException" => {
                    match self.ask("CreateTable", &definition).await {
                        Ok(_) => {}
                        // Somebody else creates it.
                        Err(failure) if failure.kind == "ResourceInUseException" => {}
                        Err(failure) if failure.error.code() != Code::DatabaseDenied => return Err(failure.error),
                        Err(failure) => {
                            let why = failure.error.detail();
                            let ddl = format!("aws dynamodb create-table --cli-input-json '{definition}'");
                            return Err(Code::DatabaseSchema
                                .error(format!("table '{name}' does not exist ({why}). Execute: {ddl}")));
                        }
                    }
                    continue;
                }
                Err(failure) => return Err(failure.error),
            };
            let table = &described["Table"];
            let keys = table["KeySchema"].as_array().map_or(0, Vec::len);
            let found = table["AttributeDefinitions"].as_array().into_iter().flatten();
            let is_right = |found: &Value| found["AttributeName"] == key && found["AttributeType"] == kind;
            if keys != 1 || !found.into_iter().any(is_right) || table["KeySchema"][0]["AttributeName"] != key {
                let wanted = format!("table '{name}' has another key than the partition key '{key}' of type {kind}");
                let ddl = format!(
                    "aws dynamodb delete-table --table-name {name}, then aws dynamodb create-table --cli-input-json '{definition}'"
                );
                return Err(Code::DatabaseSchema.error(format!("{wanted}. Execute: {ddl}")));
            }
            if table["TableStatus"] == "ACTIVE" {
                return Ok(());
            }
            sleep(CREATE_PAUSE).await;
        }
        Err(unreachable(&self.address, &format!("table '{name}' is still being created")))
    }

    async fn standing(&mut self, stream: &str) -> Result<(String, u64)> {
        let get = json!({ "TableName": STREAMS, "Key": { "stream": { "S": stream } }, "ConsistentRead": true });
        let found = self.ask("GetItem", &get).await.map_err(|failure| failure.error)?;
        self.parsed(&found["Item"])
    }

    fn parsed(&self, item: &Value) -> Result<(String, u64)> {
        let odd = || Code::DatabaseProtocol.error(format!("{}: the item of a stream is odd", self.address));
        let owner = item["owner"]["S"].as_str().ok_or_else(odd)?.to_owned();
        Ok((owner, item["number"]["N"].as_str().and_then(|number| number.parse().ok()).ok_or_else(odd)?))
    }

    /// Writes the owner of a stream on a condition, which may fail.
    async fn claim(&mut self, update: &Value) -> Result<()> {
        match self.ask("UpdateItem", update).await {
            Err(failure) if failure.kind != "ConditionalCheckFailedException" => Err(failure.error),
            _ => Ok(()),
        }
    }
}

/// A value as an attribute. `None` for bytes that are no text.
fn attribute(is_text: bool, bytes: &[u8]) -> Option<Value> {
    Some(if is_text {
        json!({ "S": std::str::from_utf8(bytes).ok()? })
    } else {
        json!({ "B": STANDARD.encode(bytes) })
    })
}

fn bytes(attribute: &Value) -> Option<Bytes> {
    match (attribute["S"].as_str(), attribute["B"].as_str()) {
        (Some(text), _) => Some(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(text)) => STANDARD.decode(text).ok().map(Bytes::from),
        _ => None,
    }
}

impl Dynamodb {
    /// For this address; its path is the region.
    pub fn new(address: &Address, options: &Options) -> Result<Self> {
        let tls = Tls::of(address, options, &[b"http/1.1"])?;
        let secret = options.secret.as_ref().map_or("", Secret::text);
        let (access_key, secret) = secret.split_once(':').ok_or_else(|| {
            Code::DatabaseUrl.error("the secret of 'dynamodb://' is the id of an access key, a colon, and its secret")
        })?;
        let (access_key, region, secret) = (access_key.into(), address.path.clone(), Secret::new(secret));
        let signer = Arc::new(Signer { access_key, secret, region, service: "dynamodb" });
        Ok(Self { address: address.clone(), tls, signer, session: None })
    }

    async fn connect(&mut self, target: &Target) -> Result<Standing> {
        self.session = None;
        target.check(NAME_MAX_BYTES)?;
        for table in &target.tables {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            if table.name.len() < 3 || !table.name.chars().all(is_allowed) {
                let rule = "in DynamoDB a name has at least 3 of the characters A-Z a-z 0-9 _ . -";
                return Err(Code::DatabaseUrl.error(format!("the name '{}' of a table: {rule}", table.name)));
            }
        }
        let http = Http::connect(&self.address, self.tls.as_ref()).await?;
        let mut link = DynamodbLink { http, address: self.address.clone(), signer: self.signer.clone() };
        link.create(STREAMS, "stream", "S").await?;
        for table in &target.tables {
            link.create(&table.name, "key", if table.keys == Keys::Text { "S" } else { "B" }).await?;
        }
        let (key, names) = (json!({ "stream": { "S": target.stream } }), json!({ "#o": "owner", "#n": "number" }));
        let first = json!({
            "TableName": STREAMS, "Key": key, "UpdateExpression": "SET #o = :o, #n = :n",
            "ConditionExpression": "attribute_not_exists(#o)", "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": { ":o": { "S": target.owner }, ":n": { "N": "0" } },
        });
        link.claim(&first).await?;
        if let Some(previous) = &target.previous_owner {
            let change = json!({
                "TableName": STREAMS, "Key": key, "UpdateExpression": "SET #o = :o", "ConditionExpression": "#o = :p",
                "ExpressionAttributeNames": { "#o": "owner" },
                "ExpressionAttributeValues": { ":o": { "S": target.owner }, ":p": { "S": previous } },
            });
            link.claim(&change).await?;
        }
        let (owner, number) = link.standing(&target.stream).await?;
        target.check_owner(&owner)?;
        self.session = Some(DynamodbSession {
            stream: target.stream.clone(),
            owner: target.owner.clone(),
            tables: target.tables.iter().map(|table| (table.name.clone(), table.clone())).collect(),
            connection: Single::Idle(link),
        });
        Ok(Standing { number, is_durable: true, server: "DynamoDB".into() })
    }

    /// DynamoDB reads no pages and number at once: the number is read before and after, until it is the same.
    async fn page(&mut self, table: &str, after: Option<&[u8]>, count: u32) -> Result<Page> {
        let closed = || Code::DatabaseUnreachable.error("the database is not open");
        let session = self.session.as_mut().ok_or_else(closed)?;
        let known = session.tables.get(table).cloned();
        let known = known
            .ok_or_else(|| Code::DatabaseSchema.error(format!("table '{table}' does not belong to the stream")))?;
        // A page that is dropped half-way leaves no connection with half an answer.
        let mut link = session.connection.take().ok_or_else(closed)?;
        let odd = || Code::DatabaseProtocol.error(format!("{}: an odd page", self.address));
        let mut scan = json!({ "TableName": table, "ConsistentRead": true, "Limit": count.max(1) });
        if let Some(after) = after {
            let key = attribute(known.keys == Keys::Text, after).ok_or_else(odd)?;
            scan["ExclusiveStartKey"] = json!({ "key": key });
        }
        let mut number = link.standing(&session.stream).await?.1;
        let scanned = loop {
            let scanned = link.ask("Scan", &scan).await.map_err(|failure| failure.error)?;
            let now = link.standing(&session.stream).await?.1;
            if now == number {
                break scanned;
            }
            number = now;
        };
        session.connection = Single::Idle(link);
        let row = |item: &Value| {
            let version = item["version"]["N"].as_str().and_then(|version| version.parse().ok());
            Some(Found { key: bytes(&item["key"])?, value: bytes(&item["value"])?, version })
        };
        let items = scanned["Items"].as_array().ok_or_else(odd)?;
        let rows = items.iter().map(row).collect::<Option<Vec<Found>>>().ok_or_else(odd)?;
        Ok(Page { number, rows, has_more: scanned["LastEvaluatedKey"].is_object() })
    }
}

/// The request of a transaction, or why it cannot be sent.
fn request(session: &DynamodbSession, transaction: &Transaction) -> std::result::Result<Value, Refusal> {
    let refused = |kind, code: &str, detail: String| Refusal { kind, code: code.into(), detail };
    let mut items = vec![json!({ "Update": {
        "TableName": STREAMS, "Key": { "stream": { "S": session.stream } }, "UpdateExpression": "SET #n = :n",
        "ConditionExpression": "#o = :o AND #n = :p", "ExpressionAttributeNames": { "#o": "owner", "#n": "number" },
        "ExpressionAttributeValues": {
            ":n": { "N": transaction.number.to_string() }, ":o": { "S": session.owner }, ":p": { "N": transaction.after.to_string() },
        },
    } })];
    for row in &transaction.rows {
        let unknown = || format!("table '{}' does not belong to the stream", row.table);
        let table = session.tables.get(&*row.table).ok_or_else(|| refused(RefusalKind::Schema, "table", unknown()))?;
        let not_text =
            || refused(RefusalKind::Data, "utf-8", format!("a key or value of table '{}' is no text", row.table));
        let key = attribute(table.keys == Keys::Text, &row.key).ok_or_else(not_text)?;
        items.push(match row.value() {
            Some(value) => {
                let value = attribute(table.values != Values::Bytes, value).ok_or_else(not_text)?;
                let version = json!({ "N": row.version.to_string() });
                json!({ "Put": { "TableName": &*row.table, "Item": { "key": key, "value": value, "version": version } } })
            }
            None => json!({ "Delete": { "TableName": &*row.table, "Key": { "key": key } } }),
        });
    }
    let mut body = Map::new();
    body.insert("TransactItems".into(), Value::Array(items));
    Ok(Value::Object(body))
}

/// What became of a transaction that failed.
fn outcome(number: u64, failure: Failure) -> Outcome {
    let reasons = failure.answer["CancellationReasons"].as_array().cloned().unwrap_or_default();
    let code = |at: usize| reasons.get(at).and_then(|reason| reason["Code"].as_str()).unwrap_or("None");
    if code(0) == "ConditionalCheckFailed" {
        return Outcome::Stale(number);
    }
    let refused = |kind, row, code: &str| {
        let detail = failure.error.detail().to_owned();
        Outcome::Refused { number, row, refusal: Refusal { kind, code: code.into(), detail } }
    };
    let is_content = |code: &str| ["ValidationError", "ItemCollectionSizeLimitExceeded"].contains(&code);
    if let Some(at) = (1..reasons.len()).find(|at| is_content(code(*at))) {
        return refused(RefusalKind::Data, Some(at - 1), code(at));
    }
    match failure.error.code() {
        Code::DatabaseRefused if failure.kind == "ValidationException" => {
            refused(RefusalKind::Data, None, &failure.kind)
        }
        Code::DatabaseSchema => refused(RefusalKind::Schema, None, &failure.kind),
        Code::DatabaseDenied => refused(RefusalKind::Denied, None, &failure.kind),
        // Among them a conflict with another transaction.
        _ => Outcome::Lost(Code::DatabaseUnreachable.error(failure.error.detail())),
    }
}

impl Engine for Dynamodb {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn open<'a>(&'a mut self, target: &'a Target) -> Reply<'a, Result<Standing>> {
        Box::pin(self.connect(target))
    }

    fn submit(&mut self, transaction: Transaction) -> std::result::Result<(), Full> {
        let session = self.session.as_mut().ok_or(Full)?;
        let request = request(session, &transaction);
        session.connection.submit(transaction.number, request, async |mut link: DynamodbLink, request| {
            let answer = link.ask("TransactWriteItems", &request).await;
            (link, answer)
        })
    }

    fn next(&mut self) -> Reply<'_, Outcome> {
        let outcome = |number, answer| match answer {
            Ok(_) => Outcome::Written(number),
            Err(failure) => outcome(number, failure),
        };
        Box::pin(next(&mut self.session, async move |session| session.connection.next(outcome).await))
    }

    fn scan<'a>(&'a mut self, table: &'a str, after: Option<&'a [u8]>, count: u32) -> Reply<'a, Result<Page>> {
        Box::pin(self.page(table, after, count))
    }
}
