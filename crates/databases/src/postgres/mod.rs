//! PostgreSQL: each transaction is one statement, which is conditional on the row of the stream.
//!
//! There is never a BEGIN and a COMMIT: the COMMIT of an aborted transaction answers ROLLBACK, which the library reports as success. The
//! errors of a single statement, also those of deferred constraints, arrive.

mod schema;
mod statement;

use crate::{
    Address, Options, Secret,
    engine::{Engine, Found, Full, Keys, Page, Reply, Standing, Table, Target, Values},
    tls::{self, Tls, unreachable},
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesOrdered};
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Limits, Outcome, Refusal, RefusalKind, Transaction};
use std::{collections::BTreeMap, future::poll_fn, sync::Arc, task::Poll};
use tokio_postgres::{Client, Config, NoTls, Row, config::SslMode, error::DbError, types::Type};

/// A statement waits this long for locks and the disk; then it fails, and is sent again.
const STATEMENT_TIMEOUT_MS: u32 = 30_000;
/// The SSLRequest of the protocol, and the agreement of the server.
const ENCRYPT: tls::Request = (&[0, 0, 0, 8, 4, 210, 22, 47], b'S');
/// PostgreSQL cuts longer names off.
const NAME_MAX_BYTES: usize = 63;

const LIMITS: Limits = Limits { rows: 65_536, bytes: 64 << 20, key: 1024, value: 16 << 20, in_flight: 4 };

type Rows = std::result::Result<Vec<Row>, PostgresFault>;

/// A connection to PostgreSQL.
pub struct Postgres {
    address: Address,
    config: Config,
    tls: Option<Tls>,
    session: Option<PostgresSession>,
}

struct PostgresSession {
    client: Arc<Client>,
    connection: BoxFuture<'static, std::result::Result<(), tokio_postgres::Error>>,
    stream: String,
    owner: String,
    tables: BTreeMap<String, Table>,
    answers: FuturesOrdered<BoxFuture<'static, (u64, Rows)>>,
}

impl Postgres {
    /// For this address.
    pub fn new(address: &Address, options: &Options) -> Result<Self> {
        let tls = Tls::of(address, options, &[])?;
        let mut config = Config::new();
        config.user(address.user.as_deref().unwrap_or("postgres")).ssl_mode(SslMode::Disable);
        config.application_name("millrace");
        config.options(format!("-c statement_timeout={STATEMENT_TIMEOUT_MS}"));
        if !address.path.is_empty() {
            config.dbname(&address.path);
        }
        if let Some(secret) = options.secret.as_ref().map(Secret::text) {
            config.password(secret);
        }
        Ok(Self { address: address.clone(), config, tls, session: None })
    }

    async fn connect(&mut self, target: &Target) -> Result<Standing> {
        self.session = None;
        target.check(NAME_MAX_BYTES)?;
        // Encryption is negotiated here, so the library sees a line that needs none.
        let line = tls::connect(&self.address, self.tls.as_ref(), Some(ENCRYPT)).await?;
        let connecting = self.config.connect_raw(line, NoTls);
        let connected = tokio::time::timeout(tls::CONNECT, connecting).await;
        let connected = connected.map_err(|_| unreachable(&self.address, &"it does not answer"))?;
        let (client, connection) = connected.map_err(|error| self.failed(&error))?;
        let mut session = PostgresSession {
            client: Arc::new(client),
            connection: Box::pin(connection),
            stream: target.stream.clone(),
            owner: target.owner.clone(),
            tables: target.tables.iter().map(|table| (table.name.clone(), table.clone())).collect(),
            answers: FuturesOrdered::new(),
        };
        let client = session.client.clone();
        let opened = beside(&mut session.connection, schema::open(&client, target)).await;
        let standing = opened.map_err(|fault| match fault {
            PostgresFault::Known(error) => error,
            PostgresFault::Database(error) => self.failed(&error),
        })?;
        self.session = Some(session);
        Ok(standing)
    }

    /// The meaning of an error outside of a transaction.
    fn failed(&self, error: &tokio_postgres::Error) -> Error {
        self.failed_with(error, &words(error))
    }

    /// The same with these words.
    fn failed_with(&self, error: &tokio_postgres::Error, words: &str) -> Error {
        let Some(code) = error.code() else { return unreachable(&self.address, &words) };
        let code = match (&code.code()[..2], code.code()) {
            ("28", _) | (_, "42501") => Code::DatabaseDenied,
            ("3D" | "3F" | "42", _) => Code::DatabaseSchema,
            ("0A", _) => Code::DatabaseProtocol,
            _ => Code::DatabaseUnreachable,
        };
        code.error(format!("{}: {words}", self.address))
    }

    /// The outcome of a transaction. Whether the rest of the connection can be used, too.
    fn outcome(&self, number: u64, answer: Rows) -> Outcome {
        match answer {
            Ok(rows) => match rows.first().map(|row| row.try_get::<_, i64>(0)) {
                Some(Ok(1)) => Outcome::Written(number),
                Some(Ok(0)) => Outcome::Stale(number),
                _ => Outcome::Lost(Code::DatabaseProtocol.error(format!("{}: no count of streams", self.address))),
            },
            // It was not even sent.
            Err(PostgresFault::Known(error)) => {
                let (kind, code, detail) = (RefusalKind::Schema, error.code().id().into(), error.detail().into());
                Outcome::Refused { number, row: None, refusal: Refusal { kind, code, detail } }
            }
            Err(PostgresFault::Database(error)) => match error.code().and_then(|code| refusal_kind(code.code())) {
                Some(kind) => {
                    let code = error.code().map_or("", |code| code.code()).to_owned();
                    Outcome::Refused { number, row: None, refusal: Refusal { kind, code, detail: condition(&error) } }
                }
                None => Outcome::Lost(self.failed_with(&error, &condition(&error))),
            },
        }
    }
}

/// What is wrong with a transaction, unless the same one may succeed later.
fn refusal_kind(state: &str) -> Option<RefusalKind> {
    match (state.get(..2)?, state) {
        (_, "42501") => Some(RefusalKind::Denied),
        // Data, constraints, limits such as the length of an entry of an index, WITH CHECK OPTION, and RAISE in triggers.
        ("22" | "23" | "54" | "44" | "P0", _) => Some(RefusalKind::Data),
        ("0A" | "21" | "2F" | "38" | "39" | "42" | "3F", _) | (_, "55000") => Some(RefusalKind::Schema),
        _ => None,
    }
}

/// An error with its reason, which the library leaves out.
fn words(error: &tokio_postgres::Error) -> String {
    if let Some(known) = error.as_db_error() {
        return placed(known.message(), known);
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// An error of a transaction. Everybody who may see the state of the namespace reads it, also those who may not read the table. The message of
/// the server can contain values of rows, so it is shown only where it cannot.
fn condition(error: &tokio_postgres::Error) -> String {
    let Some(known) = error.as_db_error() else { return words(error) };
    let words = match known.code().code() {
        "22001" => "a value is too long for its column",
        "22003" => "a number is out of range for its column",
        "23502" => "a column that must not be NULL has no value",
        "23503" => "a foreign key has no match",
        "23505" => "a unique constraint is violated",
        "23514" => "a check constraint is violated",
        "23P01" => "an exclusion constraint is violated",
        "42501" | "42P01" | "42703" | "42P10" => known.message(),
        state => match state.get(..2) {
            Some("08" | "25" | "40" | "53" | "55" | "57" | "58") => known.message(),
            Some("22") => "a value is not valid for its column",
            Some("23") => "a constraint is violated",
            Some("42" | "3F" | "0A") => "the tables of the database do not have the expected form",
            Some("44") => "a row is outside of its view",
            Some("54") => "a limit of the server is exceeded",
            Some("P0" | "38" | "39") => "a trigger or a function of the database raised an error",
            _ => "the statement failed",
        },
    };
    placed(words, known)
}

/// Words about the table, the column and the constraint that an error names.
fn placed(words: &str, known: &DbError) -> String {
    let mut words = words.to_owned();
    let places = [("table", known.table()), ("column", known.column()), ("constraint", known.constraint())];
    for (what, name) in places.into_iter().filter_map(|(what, name)| Some((what, name?))) {
        words += &format!(" ({what} \"{name}\")");
    }
    words
}

enum PostgresFault {
    Known(Error),
    Database(tokio_postgres::Error),
}

impl From<Error> for PostgresFault {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}

impl From<tokio_postgres::Error> for PostgresFault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

/// Does some work while the connection moves bytes.
async fn beside<T>(
    connection: &mut BoxFuture<'static, std::result::Result<(), tokio_postgres::Error>>,
    work: impl Future<Output = std::result::Result<T, PostgresFault>>,
) -> std::result::Result<T, PostgresFault> {
    let mut work = std::pin::pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        let Poll::Ready(ended) = connection.as_mut().poll(cx) else { return Poll::Pending };
        // It may have brought the answer before it ended.
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            *connection = Box::pin(std::future::ready(ended));
            return Poll::Ready(done);
        }
        *connection = Box::pin(std::future::ready(Ok(())));
        Poll::Ready(Err(match ended {
            Err(error) => PostgresFault::Database(error),
            Ok(()) => PostgresFault::Known(Code::DatabaseUnreachable.error("the connection was closed")),
        }))
    })
    .await
}

impl Engine for Postgres {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn open<'a>(&'a mut self, target: &'a Target) -> Reply<'a, Result<Standing>> {
        Box::pin(self.connect(target))
    }

    fn submit(&mut self, transaction: Transaction) -> std::result::Result<(), Full> {
        let session = self.session.as_mut().filter(|session| session.answers.len() < LIMITS.in_flight).ok_or(Full)?;
        let client = session.client.clone();
        let write = statement::Write::new(&transaction, &session.tables, &session.stream, &session.owner);
        let number = transaction.number;
        let mut answer: BoxFuture<'static, (u64, Rows)> = Box::pin(async move {
            let answer = match write {
                Ok(write) => client.query_typed(&write.sql, &write.parameters()).await.map_err(PostgresFault::Database),
                Err(error) => Err(PostgresFault::Known(error)),
            };
            (number, answer)
        });
        // The first poll sends it, so that transactions are sent in their order.
        if let Some(done) = (&mut answer).now_or_never() {
            answer = Box::pin(std::future::ready(done));
        }
        session.answers.push_back(answer);
        Ok(())
    }

    fn next(&mut self) -> Reply<'_, Outcome> {
        Box::pin(async {
            let Some(session) = &mut self.session else { return std::future::pending().await };
            if session.answers.is_empty() {
                return std::future::pending().await;
            }
            let answers = &mut session.answers;
            let answered = async { Ok(answers.next().await) };
            let outcome = match beside(&mut session.connection, answered).await {
                Ok(Some((number, answer))) => self.outcome(number, answer),
                Ok(None) => return std::future::pending().await,
                Err(PostgresFault::Database(error)) => Outcome::Lost(self.failed(&error)),
                Err(PostgresFault::Known(error)) => Outcome::Lost(error),
            };
            if matches!(outcome, Outcome::Lost(_)) {
                self.session = None;
            }
            outcome
        })
    }

    fn scan<'a>(&'a mut self, table: &'a str, after: Option<&'a [u8]>, count: u32) -> Reply<'a, Result<Page>> {
        Box::pin(async move {
            let closed = || Code::DatabaseUnreachable.error("the database is not open");
            let session = self.session.as_mut().ok_or_else(closed)?;
            let known = session.tables.get(table).ok_or_else(|| Code::DatabaseSchema.error(table.to_owned()))?.clone();
            let (client, stream) = (session.client.clone(), session.stream.clone());
            let sql = statement::page(&known, after.is_some());
            let key = after.map(<[u8]>::to_vec);
            let work = async {
                let count = i64::from(count) + 1;
                let mut parameters: Vec<(&(dyn tokio_postgres::types::ToSql + Sync), Type)> =
                    vec![(&stream, Type::TEXT), (&count, Type::INT8)];
                if let Some(key) = &key {
                    parameters.push((key, Type::BYTEA));
                }
                Ok(client.query_typed(&sql, &parameters).await?)
            };
            let rows = match beside(&mut session.connection, work).await {
                Ok(rows) => rows,
                Err(fault) => {
                    let error = match fault {
                        PostgresFault::Known(error) => error,
                        PostgresFault::Database(error) => self.failed(&error),
                    };
                    return Err(error);
                }
            };
            page(&rows, count as usize).map_err(|error| self.failed(&error))
        })
    }
}

/// The first row has the number; its key is NULL.
fn page(rows: &[Row], count: usize) -> std::result::Result<Page, tokio_postgres::Error> {
    let mut page = Page { number: 0, rows: Vec::new(), has_more: false };
    for row in rows {
        let Some(key) = row.try_get::<_, Option<Vec<u8>>>(0)? else {
            page.number = u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0);
            continue;
        };
        if page.rows.len() == count {
            page.has_more = true;
            break;
        }
        let value: Vec<u8> = row.try_get(1)?;
        let version = u64::try_from(row.try_get::<_, i64>(2)?).ok();
        page.rows.push(Found { key: key.into(), value: Bytes::from(value), version });
    }
    Ok(page)
}

fn key_type(keys: Keys) -> &'static str {
    match keys {
        Keys::Text => "text",
        Keys::Bytes => "bytea",
    }
}

fn value_type(values: Values) -> &'static str {
    match values {
        Values::Bytes => "bytea",
        Values::Text => "text",
        Values::Json => "jsonb",
    }
}

/// A name as SQL writes it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
