//! Requests to the host over TLS. A connection is used again if the end of the answer before was announced; otherwise, as with events, the
//! answer ends with its connection.

use super::{Response, streamed};
use crate::http::response::Content;
use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue},
};
use millrace_client::{Encrypted, Options, Place, encrypted};
use millrace_node::token::Token;
use millrace_wire::{Code, Error, Result};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// Connections that are kept for the next request, and for how long: less than the host keeps them.
const IDLE_MAX: usize = 6;
const IDLE: Duration = Duration::from_secs(30);
/// How long an answer may take to begin: longer than a host waits for a record.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a part of an answer may take: events come at least every 15 s.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest status line and headers of an answer, and how much of it is read at once.
const HEAD_MAX_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// Headers of requests that are forwarded, beside those of ours.
const FORWARDED: [&str; 7] =
    ["accept", "content-type", "content-encoding", "range", "if-none-match", "last-event-id", "idempotency-key"];
const OURS: &str = "millrace-";
/// Headers of answers that are about their connection, or about browsers.
const KEPT_BACK: [&str; 6] = ["connection", "keep-alive", "transfer-encoding", "set-cookie", "upgrade", "te"];

/// A host that is reached over TLS.
pub(super) struct Upstream {
    place: Place,
    options: Options,
    authority: String,
    /// The capability that goes with each request, instead of the stored one.
    capability: Option<Token>,
    idle: Mutex<Vec<(Instant, Encrypted)>>,
}

/// An answer until its body.
struct Head {
    status: StatusCode,
    headers: HeaderMap,
    /// The length of the body, if it is announced.
    length: Option<u64>,
    stays_open: bool,
    /// What of the body has come.
    rest: Vec<u8>,
}

fn broken(error: &std::io::Error) -> Error {
    Code::ConnectionLost.error(format!("the connection to the host broke: {error}"))
}

fn malformed() -> Error {
    Code::ConnectionLost.error("the host's answer is not HTTP")
}

impl Upstream {
    /// Connects once. Nothing if the host is not reached by TLS.
    pub async fn connect(place: &Place, options: &Options, capability: Option<Token>) -> Result<Option<Self>> {
        let Place::Tcp(peer) = place else { return Ok(None) };
        let Some(first) = encrypted(place, options).await? else { return Ok(None) };
        let (authority, idle) = (peer.authority(), Mutex::new(vec![(Instant::now(), first)]));
        Ok(Some(Self { place: place.clone(), options: options.clone(), authority, capability, idle }))
    }

    fn take_idle(&self) -> Option<Encrypted> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| since.elapsed() < IDLE);
        idle.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: Encrypted) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push((Instant::now(), connection));
        }
    }

    /// Sends a request; the answer's body comes as it is read.
    pub async fn ask(
        self: &Arc<Self>,
        method: &Method,
        target: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response> {
        // The host may have closed a connection that was not used for a while. What changes something is not repeated.
        if *method == Method::GET
            && let Some(idle) = self.take_idle()
            && let Ok(response) = self.exchange(idle, method, target, headers, &body).await
        {
            return Ok(response);
        }
        let unsafe_ = || Code::HostUnknown.error("the host is no longer reached by TLS");
        let fresh = encrypted(&self.place, &self.options).await?.ok_or_else(unsafe_)?;
        self.exchange(fresh, method, target, headers, &body).await
    }

    async fn exchange(
        self: &Arc<Self>,
        mut connection: Encrypted,
        method: &Method,
        target: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Response> {
        let capability = self.capability.as_ref().or(connection.capability.as_ref());
        // Of HTTP/1.0, the end of an answer is where it says, or the end of the connection: never a part of the body.
        let mut text = format!("{method} {target} HTTP/1.0\r\nhost: {}\r\nconnection: keep-alive\r\n", self.authority);
        if let Some(capability) = capability {
            text += &format!("authorization: Bearer {}\r\n", *capability.to_text());
        }
        if !body.is_empty() || matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            text += &format!("content-length: {}\r\n", body.len());
        }
        let mut request = zeroize::Zeroizing::new(text.into_bytes());
        for (name, value) in headers {
            if FORWARDED.contains(&name.as_str()) || name.as_str().starts_with(OURS) {
                request.extend_from_slice(name.as_str().as_bytes());
                request.extend_from_slice(b": ");
                request.extend_from_slice(value.as_bytes());
                request.extend_from_slice(b"\r\n");
            }
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        let answered = async {
            connection.stream.write_all(&request).await.map_err(|error| broken(&error))?;
            connection.stream.flush().await.map_err(|error| broken(&error))?;
            read_head(&mut connection).await
        };
        let late = |_| Code::RequestTimeout.error(format!("the host did not answer in {} s", PATIENCE.as_secs()));
        let head = timeout(PATIENCE, answered).await.map_err(late)??;
        let has_body = *method != Method::HEAD
            && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            && head.length != Some(0);
        let mut response = hyper::Response::new(Content::whole(""));
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        if !has_body {
            if head.stays_open && head.rest.is_empty() {
                self.keep(connection);
            }
            return Ok(response);
        }
        let body = Rest {
            upstream: self.clone(),
            connection: Some(connection),
            come: head.rest,
            left: head.length,
            stays_open: head.stays_open,
        };
        let parts = futures_util::stream::unfold(body, |mut body| async move {
            let part = body.part().await?;
            Some((part, body))
        });
        *response.body_mut() = streamed(parts);
        Ok(response)
    }
}

/// The rest of an answer's body.
struct Rest {
    upstream: Arc<Upstream>,
    connection: Option<Encrypted>,
    /// What came with the head.
    come: Vec<u8>,
    left: Option<u64>,
    stays_open: bool,
}

impl Rest {
    async fn part(&mut self) -> Option<Bytes> {
        let mut part = std::mem::take(&mut self.come);
        if part.is_empty() && self.left != Some(0) {
            let connection = self.connection.as_mut()?;
            part = vec![0; READ_BYTES];
            let read = timeout(SILENCE, connection.stream.read(&mut part)).await;
            let Ok(Ok(length @ 1..)) = read else {
                self.connection = None;
                return None;
            };
            part.truncate(length);
        }
        if let Some(left) = &mut self.left {
            part.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= part.len() as u64;
            if *left == 0
                && self.stays_open
                && let Some(connection) = self.connection.take()
            {
                self.upstream.keep(connection);
            }
        }
        (!part.is_empty()).then(|| part.into())
    }
}

async fn read_head(connection: &mut Encrypted) -> Result<Head> {
    let (mut read, mut end) = (Vec::with_capacity(4096), None);
    while end.is_none() {
        let searched = read.len().saturating_sub(3);
        match connection.stream.read_buf(&mut read).await.map_err(|error| broken(&error))? {
            0 => return Err(Code::ConnectionLost.error("the host closed the connection")),
            _ => end = read[searched..].windows(4).position(|four| four == b"\r\n\r\n").map(|at| searched + at),
        }
        if end.is_none() && read.len() > HEAD_MAX_BYTES {
            return Err(malformed());
        }
    }
    let end = end.unwrap_or_default();
    let rest = read.split_off(end + 4);
    parse(&read[..end], rest).ok_or_else(malformed)
}

/// The status line and the headers of an answer.
fn parse(head: &[u8], rest: Vec<u8>) -> Option<Head> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let line = std::str::from_utf8(lines.next()?).ok()?;
    let status = line.strip_prefix("HTTP/1.").and_then(|line| line.get(2..5))?;
    let mut headers = HeaderMap::new();
    let (mut length, mut stays_open) = (None, false);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        if name == CONTENT_LENGTH {
            length = Some(value.to_str().ok()?.parse().ok()?);
        }
        stays_open |= name == CONNECTION && value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
        if headers.len() == HEADERS_MAX || name == "transfer-encoding" {
            return None;
        }
        if !KEPT_BACK.contains(&name.as_str()) && !name.as_str().starts_with("access-control-") {
            headers.append(name, value);
        }
    }
    Some(Head { status: status.parse().ok()?, headers, stays_open: stays_open && length.is_some(), length, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_end_where_they_say() {
        let of = |text: &str| parse(text.as_bytes(), Vec::new());
        let head = of("HTTP/1.0 200 OK\r\ncontent-length: 12\r\nConnection: Keep-Alive\r\nx-a:  b ").unwrap();
        assert_eq!((head.status.as_u16(), head.length, head.stays_open), (200, Some(12), true));
        assert_eq!((head.headers["x-a"].as_bytes(), head.headers.contains_key("connection")), (&b"b"[..], false));
        let events = of("HTTP/1.1 200 OK\r\nset-cookie: a=b\r\naccess-control-allow-origin: *").unwrap();
        assert_eq!((events.length, events.stays_open, events.headers.len()), (None, false, 0));
        for wrong in
            ["", "HTTP/2 200", "HTTP/1.1 2x0 OK", "HTTP/1.1 200\r\nno colon", "HTTP/1.1 200\r\ncontent-length: x"]
        {
            assert!(of(wrong).is_none(), "{wrong}");
        }
        assert!(of("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked").is_none());
    }
}
