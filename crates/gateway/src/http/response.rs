//! Answers: their bodies, and the form of errors.

use super::connection::watched::Exchange;
use crate::memory::Reservation;
use futures_util::Stream;
use hyper::{
    HeaderMap, Method, StatusCode,
    body::{Body, Bytes, Frame, SizeHint},
    header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use millrace_documents::ErrorDoc;
use millrace_wire::{Code, Error, Result};
use serde::Serialize;
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::sync::SemaphorePermit;

/// Text in JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) type Response = hyper::Response<Content>;

/// The body of an answer.
pub(super) struct Content {
    source: Source,
    /// Counts the request as answered when it is dropped, after the last part of the body.
    exchange: Option<Exchange>,
    /// Its place among the requests of a mount.
    permit: Option<SemaphorePermit<'static>>,
}

enum Source {
    Whole(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Content {
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { source: Source::Whole(bytes.into()), exchange: None, permit: None }
    }

    /// Parts as they come; the stream is asked for the next when there is room for it.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { source: Source::Stream(Box::pin(stream)), exchange: None, permit: None }
    }

    /// The same body; a large one is counted in the memory for large bodies, and is refused if there is none left.
    pub fn counted(mut self) -> Result<Self> {
        if let Source::Whole(bytes) = &mut self.source
            && let Some(reserved) = Reservation::of(bytes.len())?
        {
            // hyper drops the body as soon as it has its bytes, and the bytes only when the client has received the last of them.
            *bytes = Bytes::from_owner(Counted { bytes: std::mem::take(bytes), _reserved: reserved });
        }
        Ok(self)
    }

    /// How long it is, if that is known.
    pub fn length(&self) -> u64 {
        self.size_hint().exact().unwrap_or(0)
    }

    /// The same body, with what is given back when it has been sent.
    pub fn holding(mut self, permit: SemaphorePermit<'static>) -> Self {
        self.permit = Some(permit);
        self
    }

    pub fn of_exchange(mut self, exchange: Exchange) -> Self {
        self.exchange = Some(exchange);
        self
    }
}

/// A body and the memory that it takes.
struct Counted {
    bytes: Bytes,
    _reserved: Reservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.source {
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Stream(stream) => stream.as_mut().poll_next(cx).map(|part| part.map(|part| Ok(Frame::data(part)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.source, Source::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer in JSON. It ends with a newline, for terminals.
pub(super) fn json(status: StatusCode, text: impl Into<Vec<u8>>) -> Response {
    let mut text = text.into();
    text.push(b'\n');
    typed(status, JSON, text)
}

/// An answer of this type.
pub(super) fn typed(status: StatusCode, kind: HeaderValue, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Content::whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An answer in JSON made from a document.
pub(super) fn document(status: StatusCode, document: &impl Serialize) -> Response {
    match serde_json::to_vec(document) {
        Ok(text) => json(status, text),
        Err(error) => failure(&Code::HostInternal.error(format!("the answer cannot be written as JSON: {error}"))),
    }
}

/// The status of an answer that is an error.
pub(super) fn status_of(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

#[derive(Serialize)]
struct Failure<'e> {
    error: ErrorObject<'e>,
}

#[derive(Serialize)]
struct ErrorObject<'e> {
    #[serde(flatten)]
    error: &'e ErrorDoc,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u32>,
}

/// An error as JSON text.
pub(super) fn failure_text(error: &Error) -> String {
    let reported = ErrorObject {
        error: &ErrorDoc { remedy: Some(error.code().remedy_http().into()), ..ErrorDoc::from(error) },
        retry_after_ms: error.retry_after_ms(),
    };
    serde_json::to_string(&Failure { error: reported }).unwrap_or_default()
}

/// The answer for an error.
pub(super) fn failure(error: &Error) -> Response {
    let mut response = json(status_of(error.code()), failure_text(error));
    if let Some(after_ms) = error.retry_after_ms() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after_ms.div_ceil(1000)));
    }
    response
}

/// Whether a method is one of these.
pub(super) fn allows(allowed: &str, method: &Method) -> bool {
    allowed.split(", ").any(|allowed| allowed == method.as_str())
}

/// The refusal of a method.
pub(super) fn method_refused(allowed: &'static str) -> Response {
    let mut response = failure(&Code::HttpMethodUnsupported.error(format!("this path supports {allowed}")));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A refusal as bytes, where there is no request to answer; the connection closes after it.
pub(crate) fn raw_refusal(error: &Error) -> Vec<u8> {
    let (status, text) = (status_of(error.code()), failure_text(error));
    let after = error.retry_after_ms().map(|ms| format!("retry-after: {}\r\n", ms.div_ceil(1000))).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{after}connection: close\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or("Error"),
        text.len()
    );
    (head + &text).into_bytes()
}

/// Sets a header whose value this host made.
pub(super) fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
