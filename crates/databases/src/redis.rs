//! Redis and Valkey: each transaction is one Lua script, which is conditional on the hash of the stream.
//!
//! ```text
//!  TABLE:KEY                  the value, for any program to GET
//!  millrace:versions:TABLE    hash: the version of each key
//!  millrace:keys:TABLE        sorted set of the keys, for pages
//!  millrace:stream:STREAM     hash: owner, number
//! ```
//!
//! A script that fails half-way keeps what it has written, so everything that can fail is checked first, and the number is written last.

use crate::{
    Address, Options, Secret,
    engine::{Engine, Found, Full, Page, Reply, Standing, Target},
    tls::{self, Line, Tls, unreachable},
};
use bytes::{Buf, Bytes, BytesMut};
use millrace_wire::{Code, Error, Result};
use millrace_writebehind::{Limits, Outcome, Refusal, RefusalKind, Transaction};
use std::{
    collections::{BTreeSet, VecDeque},
    io,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

/// A script blocks all other clients, so it is short.
const LIMITS: Limits = Limits { rows: 4096, bytes: 16 << 20, key: 1024, value: 16 << 20, in_flight: 8 };
/// Redis permits longer names. This limit keeps names readable.
const NAME_MAX_BYTES: usize = 255;
/// Longest string and longest list of an answer.
const ANSWER_BYTES_MAX: usize = 512 << 20;
const ANSWER_ITEMS_MAX: usize = 1 << 20;
/// Longest line of an answer: an error, or a length.
const LINE_BYTES_MAX: usize = 64 << 10;

/// KEYS: the stream. ARGV: owner, predecessor, number; then table, key, version (none for a delete) and value of each row.
const WRITE: &str = "
local now = redis.call('HMGET', KEYS[1], 'owner', 'number')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then return 0 end
local checked = {}
for i = 4, #ARGV, 4 do
  local t = ARGV[i]
  if not checked[t] then
    local v, k = redis.call('TYPE', 'millrace:versions:' .. t).ok, redis.call('TYPE', 'millrace:keys:' .. t).ok
    if (v ~= 'none' and v ~= 'hash') or (k ~= 'none' and k ~= 'zset') then
      return redis.error_reply('WRONGTYPE the versions or keys of table ' .. t)
    end
    checked[t] = true
  end
end
for i = 4, #ARGV, 4 do
  local t, k = ARGV[i], ARGV[i + 1]
  if ARGV[i + 2] == '' then
    redis.call('DEL', t .. ':' .. k)
    redis.call('HDEL', 'millrace:versions:' .. t, k)
    redis.call('ZREM', 'millrace:keys:' .. t, k)
  else
    redis.call('SET', t .. ':' .. k, ARGV[i + 3])
    redis.call('HSET', 'millrace:versions:' .. t, k, ARGV[i + 2])
    redis.call('ZADD', 'millrace:keys:' .. t, 0, k)
  end
end
redis.call('HSET', KEYS[1], 'number', ARGV[3])
return 1";

/// KEYS: the stream. ARGV: owner, previous owner or ''.
const CLAIM: &str = "
local owner = redis.call('HGET', KEYS[1], 'owner')
if not owner then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'number', '0')
elseif ARGV[2] ~= '' and owner == ARGV[2] then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1])
end
return redis.call('HMGET', KEYS[1], 'owner', 'number')";

/// KEYS: the stream. ARGV: table, where to begin, count.
const PAGE: &str = "
local t, found = ARGV[1], { redis.call('HGET', KEYS[1], 'number') }
for _, k in ipairs(redis.call('ZRANGEBYLEX', 'millrace:keys:' .. t, ARGV[2], '+', 'LIMIT', 0, ARGV[3])) do
  found[#found + 1] = k
  found[#found + 1] = redis.call('GET', t .. ':' .. k) or ''
  found[#found + 1] = redis.call('HGET', 'millrace:versions:' .. t, k) or ''
end
return found";

/// A connection to Redis.
pub struct Redis {
    address: Address,
    tls: Option<Tls>,
    secret: Option<Secret>,
    session: Option<RedisSession>,
}

struct RedisSession {
    reader: ReadHalf<Box<dyn Line>>,
    writer: WriteHalf<Box<dyn Line>>,
    input: BytesMut,
    output: BytesMut,
    is_flushed: bool,
    stream: Vec<u8>,
    owner: String,
    tables: BTreeSet<String>,
    /// The name of the script WRITE in the server.
    script: Bytes,
    /// The numbers of the unanswered transactions. Those that were not sent have their refusal.
    unanswered: VecDeque<(u64, Option<Refusal>)>,
}

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Text(Bytes),
    Error(String),
    Number(i64),
    List(Vec<Answer>),
    Nothing,
}

impl Redis {
    /// For this address.
    pub fn new(address: &Address, options: &Options) -> Result<Self> {
        if !address.path.chars().all(|c| c.is_ascii_digit()) {
            return Err(Code::DatabaseUrl.error("behind the host of 'redis://' is the number of a database"));
        }
        let tls = Tls::of(address, options, &[])?;
        Ok(Self { address: address.clone(), tls, secret: options.secret.clone(), session: None })
    }

    /// The meaning of an error of the server outside of a transaction.
    fn failed(&self, words: &str) -> Error {
        let code = match words.split(' ').next().unwrap_or("") {
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Code::DatabaseDenied,
            "WRONGTYPE" => Code::DatabaseSchema,
            "ERR" if words.contains("AUTH") => Code::DatabaseDenied,
            "ERR" => Code::DatabaseProtocol,
            _ => Code::DatabaseUnreachable,
        };
        code.error(format!("{}: {words}", self.address))
    }

    fn odd(&self, answer: &Answer) -> Error {
        match answer {
            Answer::Error(words) => self.failed(words),
            _ => Code::DatabaseProtocol.error(format!("{}: an unexpected answer", self.address)),
        }
    }

    async fn ask(&self, session: &mut RedisSession, parts: &[&[u8]]) -> Result<Answer> {
        session.push(parts);
        let answer = session.answer().await.map_err(|error| unreachable(&self.address, &error))?;
        if let Answer::Error(_) = answer { Err(self.odd(&answer)) } else { Ok(answer) }
    }

    async fn connect(&mut self, target: &Target) -> Result<Standing> {
        self.session = None;
        target.check(NAME_MAX_BYTES)?;
        if let Some(table) = target.tables.iter().find(|table| table.name.contains(':')) {
            return Err(Code::DatabaseUrl.error(format!("the name '{}' of a table contains ':'", table.name)));
        }
        let (reader, writer) = tokio::io::split(tls::connect(&self.address, self.tls.as_ref(), None).await?);
        let mut session = RedisSession {
            reader,
            writer,
            input: BytesMut::new(),
            output: BytesMut::new(),
            is_flushed: true,
            stream: format!("millrace:stream:{}", target.stream).into_bytes(),
            owner: target.owner.clone(),
            tables: target.tables.iter().map(|table| table.name.clone()).collect(),
            script: Bytes::new(),
            unanswered: VecDeque::new(),
        };
        if let Some(secret) = &self.secret {
            let (user, secret) = (self.address.user.as_deref().unwrap_or("default"), secret.text());
            self.ask(&mut session, &[b"AUTH", user.as_bytes(), secret.as_bytes()]).await?;
        }
        if !self.address.path.is_empty() {
            self.ask(&mut session, &[b"SELECT", self.address.path.as_bytes()]).await?;
        }
        let info = self.text(&mut session, &[b"INFO"]).await?;
        let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        if of("role") == Some("slave") {
            return Err(unreachable(&self.address, &"this server is a replica, which accepts no writes"));
        }
        let server = match (of("valkey_version"), of("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or("?")),
        };
        // A user who may not read the setting gets an error here: then it is not known whether writes are durable.
        let policy = self.ask(&mut session, &[b"CONFIG", b"GET", b"appendfsync"]).await;
        let always = Answer::List(vec![Answer::Text("appendfsync".into()), Answer::Text("always".into())]);
        let is_durable = of("aof_enabled") == Some("1") && policy.is_ok_and(|policy| policy == always);
        target.check_durable(
            is_durable,
            "Redis runs without 'appendonly yes' and 'appendfsync always', or hides these settings",
        )?;
        session.script = self.text(&mut session, &[b"SCRIPT", b"LOAD", WRITE.as_bytes()]).await?.into();
        let previous = target.previous_owner.as_deref().unwrap_or("");
        let stream = session.stream.clone();
        let claim: [&[u8]; 6] =
            [b"EVAL", CLAIM.as_bytes(), b"1", &stream, target.owner.as_bytes(), previous.as_bytes()];
        let claimed = self.ask(&mut session, &claim).await?;
        let Answer::List(items) = &claimed else { return Err(self.odd(&claimed)) };
        let [Answer::Text(owner), Answer::Text(number)] = &items[..] else { return Err(self.odd(&claimed)) };
        target.check_owner(&String::from_utf8_lossy(owner))?;
        let number = decimal(number).ok_or_else(|| self.odd(&claimed))?;
        self.session = Some(session);
        Ok(Standing { number, is_durable, server })
    }

    async fn text(&self, session: &mut RedisSession, parts: &[&[u8]]) -> Result<String> {
        match self.ask(session, parts).await? {
            Answer::Text(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => Err(self.odd(&other)),
        }
    }

    async fn page(&mut self, table: &str, after: Option<&[u8]>, count: u32) -> Result<Page> {
        let closed = || Code::DatabaseUnreachable.error("the database is not open");
        let is_idle = self.session.as_ref().is_some_and(|session| session.unanswered.is_empty());
        // A page that is dropped half-way leaves no connection with half an answer.
        let mut session = self.session.take_if(|_| is_idle).ok_or_else(closed)?;
        if !session.tables.contains(table) {
            self.session = Some(session);
            return Err(Code::DatabaseSchema.error(format!("table '{table}' does not belong to the stream")));
        }
        let from = after.map_or_else(|| b"-".to_vec(), |after| [b"(", after].concat());
        let (stream, most) = (session.stream.clone(), (u64::from(count) + 1).to_string());
        let parts: [&[u8]; 7] = [b"EVAL", PAGE.as_bytes(), b"1", &stream, table.as_bytes(), &from, most.as_bytes()];
        let answer = self.ask(&mut session, &parts).await?;
        self.session = Some(session);
        let Answer::List(items) = &answer else { return Err(self.odd(&answer)) };
        let texts = items.iter().map(|item| match item {
            Answer::Text(text) => Ok(text.clone()),
            _ => Err(self.odd(item)),
        });
        let texts = texts.collect::<Result<Vec<Bytes>>>()?;
        let (number, found) = texts.split_first().ok_or_else(|| self.odd(&answer))?;
        let row = |row: &[Bytes]| Found { key: row[0].clone(), value: row[1].clone(), version: decimal(&row[2]) };
        let mut rows: Vec<Found> = found.chunks_exact(3).map(row).collect();
        let has_more = rows.len() > count as usize;
        rows.truncate(count as usize);
        Ok(Page { number: decimal(number).ok_or_else(|| self.odd(&answer))?, rows, has_more })
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What is wrong with a transaction, unless the same one may succeed later.
fn refusal(words: &str) -> Option<Refusal> {
    let (code, detail) = words.split_once(' ').unwrap_or((words, ""));
    let kind = match code {
        // The script was forgotten by a server that was restarted: opening loads it again.
        "NOSCRIPT" | "OOM" | "BUSY" | "LOADING" | "READONLY" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS"
        | "UNKILLABLE" | "CLUSTERDOWN" => return None,
        "NOPERM" | "NOAUTH" => RefusalKind::Denied,
        _ => RefusalKind::Schema,
    };
    Some(Refusal { kind, code: code.to_owned(), detail: detail.to_owned() })
}

impl RedisSession {
    fn push(&mut self, parts: &[&[u8]]) {
        self.is_flushed = false;
        self.output.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
        for part in parts {
            self.output.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            self.output.extend_from_slice(part);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// The next answer. Sends what is to be sent meanwhile. May be dropped at any time.
    async fn answer(&mut self) -> io::Result<Answer> {
        loop {
            let mut rest = &self.input[..];
            if let Some(answer) = parse(&mut rest, 0)? {
                let used = self.input.len() - rest.len();
                self.input.advance(used);
                return Ok(answer);
            }
            let (writer, output) = (&mut self.writer, &mut self.output);
            let sending = async {
                while !output.is_empty() {
                    if writer.write_buf(output).await? == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                }
                writer.flush().await
            };
            tokio::select! {
                biased;
                read = self.reader.read_buf(&mut self.input) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                sent = sending, if !self.is_flushed => {
                    sent?;
                    self.is_flushed = true;
                }
            }
        }
    }
}

/// Takes an answer from the front of the bytes, if they contain all of it.
fn parse(rest: &mut &[u8], depth: usize) -> io::Result<Option<Answer>> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "an answer that is none of Redis");
    let Some(end) = rest.windows(2).take(LINE_BYTES_MAX).position(|two| two == b"\r\n") else {
        return if rest.len() > LINE_BYTES_MAX { Err(odd()) } else { Ok(None) };
    };
    let (line, behind) = (&rest[..end], &rest[end + 2..]);
    let (kind, text) = line.split_first().ok_or_else(odd)?;
    let number = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()).ok_or_else(odd);
    let length = |most: usize| usize::try_from(number()?).ok().filter(|length| *length <= most).ok_or_else(odd);
    let answer = match kind {
        b'+' => Answer::Text(Bytes::copy_from_slice(text)),
        b'-' => Answer::Error(String::from_utf8_lossy(text).into_owned()),
        b':' => Answer::Number(number()?),
        b'$' | b'*' if text == b"-1" => Answer::Nothing,
        b'$' => {
            let length = length(ANSWER_BYTES_MAX)?;
            let Some(bytes) = behind.get(..length + 2) else { return Ok(None) };
            *rest = &behind[length + 2..];
            return Ok(Some(Answer::Text(Bytes::copy_from_slice(&bytes[..length]))));
        }
        b'*' if depth < 4 => {
            let mut behind = behind;
            let mut items = Vec::new();
            for _ in 0..length(ANSWER_ITEMS_MAX)? {
                let Some(item) = parse(&mut behind, depth + 1)? else { return Ok(None) };
                items.push(item);
            }
            *rest = behind;
            return Ok(Some(Answer::List(items)));
        }
        _ => return Err(odd()),
    };
    *rest = behind;
    Ok(Some(answer))
}

impl Engine for Redis {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn open<'a>(&'a mut self, target: &'a Target) -> Reply<'a, Result<Standing>> {
        Box::pin(self.connect(target))
    }

    fn submit(&mut self, transaction: Transaction) -> std::result::Result<(), Full> {
        let room = |session: &&mut RedisSession| session.unanswered.len() < LIMITS.in_flight;
        let session = self.session.as_mut().filter(room).ok_or(Full)?;
        if let Some(row) = transaction.rows.iter().find(|row| !session.tables.contains(&*row.table)) {
            let (code, detail) = ("table".into(), format!("table '{}' does not belong to the stream", row.table));
            let refusal = Refusal { kind: RefusalKind::Schema, code, detail };
            session.unanswered.push_back((transaction.number, Some(refusal)));
            return Ok(());
        }
        let (after, number) = (transaction.after.to_string(), transaction.number.to_string());
        let versions: Vec<String> = transaction.rows.iter().map(|row| row.version.to_string()).collect();
        let (script, stream, owner) = (session.script.clone(), session.stream.clone(), session.owner.clone());
        let mut parts: Vec<&[u8]> =
            vec![b"EVALSHA", &script, b"1", &stream, owner.as_bytes(), after.as_bytes(), number.as_bytes()];
        for (row, version) in transaction.rows.iter().zip(&versions) {
            let (version, value) = row.value().map_or((&b""[..], &b""[..]), |value| (version.as_bytes(), &value[..]));
            parts.extend([row.table.as_bytes(), &row.key, version, value]);
        }
        session.push(&parts);
        session.unanswered.push_back((transaction.number, None));
        Ok(())
    }

    fn next(&mut self) -> Reply<'_, Outcome> {
        Box::pin(async {
            let Some(session) = &mut self.session else { return std::future::pending().await };
            let Some((number, known)) = session.unanswered.front().cloned() else {
                return std::future::pending().await;
            };
            let outcome = if let Some(refusal) = known {
                Outcome::Refused { number, row: None, refusal }
            } else {
                match session.answer().await {
                    Ok(Answer::Number(1)) => Outcome::Written(number),
                    Ok(Answer::Number(0)) => Outcome::Stale(number),
                    Ok(Answer::Error(words)) => match refusal(&words) {
                        Some(refusal) => Outcome::Refused { number, row: None, refusal },
                        None => Outcome::Lost(Code::DatabaseUnreachable.error(format!("{}: {words}", self.address))),
                    },
                    Ok(other) => Outcome::Lost(self.odd(&other)),
                    Err(error) => Outcome::Lost(unreachable(&self.address, &error)),
                }
            };
            match (&outcome, &mut self.session) {
                (Outcome::Lost(_), session) => *session = None,
                (_, Some(session)) => drop(session.unanswered.pop_front()),
                _ => {}
            }
            outcome
        })
    }

    fn scan<'a>(&'a mut self, table: &'a str, after: Option<&'a [u8]>, count: u32) -> Reply<'a, Result<Page>> {
        Box::pin(self.page(table, after, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_parsed_once_it_is_whole() {
        let bytes = b"*4\r\n$3\r\na\r\n\r\n:-7\r\n$-1\r\n*1\r\n+OK\r\n-ERR no\r\n";
        for end in 0..bytes.len() - 9 {
            assert_eq!(parse(&mut &bytes[..end], 0).unwrap(), None, "{end}");
        }
        let mut rest = &bytes[..];
        let ok = Answer::List(vec![Answer::Text("OK".into())]);
        let list = vec![Answer::Text("a\r\n".into()), Answer::Number(-7), Answer::Nothing, ok];
        assert_eq!(parse(&mut rest, 0).unwrap(), Some(Answer::List(list)));
        assert_eq!(parse(&mut rest, 0).unwrap(), Some(Answer::Error("ERR no".into())));
        assert_eq!(rest, b"");
        for odd in
            [&b"HTTP/1.1 400\r\n"[..], b"\r\n", b"$x\r\n", b"$999999999999\r\n", b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"]
        {
            assert!(parse(&mut &odd[..], 0).is_err(), "{odd:?}");
        }
    }
}
