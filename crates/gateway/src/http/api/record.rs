//! One record: its bytes as they are, or in JSON.

use super::{Rationed, WAIT_MAX_MS, accepts, durability, header, rationed, wait_of};
use crate::{
    documents::{Query, shown, whole_number},
    http::{
        response::{self, Content, Response, put},
        session::Session,
    },
};
use hyper::{
    HeaderMap, Request, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderValue},
};
use millrace_documents::{id_text, rfc3339};
use millrace_node::{Access, Record, documents::whole_record};
use millrace_wire::{Code, Result};
use std::{ops::Range, time::Duration};
use tokio::time::timeout;

/// Which record is asked for.
enum Which {
    Seqno(u64),
    /// The newest, once it is above this.
    Latest {
        above: u64,
    },
}

/// Reads one record; it may be waited for.
pub(in crate::http) async fn read<B>(
    session: &Session,
    namespace: &str,
    log: &str,
    which: &str,
    request: &Request<B>,
) -> Result<Response> {
    let mut query = Query::parse(request.uri().query().unwrap_or(""))?;
    let wait = wait_of(query.number("wait_ms", 0, WAIT_MAX_MS)?);
    let durability = durability(request.headers(), &mut query)?;
    let which = match which {
        "latest" => Which::Latest { above: query.number("above", 0, u64::MAX)?.unwrap_or(0) },
        text => match whole_number(text).filter(|seqno| *seqno > 0) {
            Some(seqno) => Which::Seqno(seqno),
            None => return Err(Code::SeqnoInvalid.error(format!("'{}' is not a sequence number", shown(text)))),
        },
    };
    query.finish()?;
    let access = session.access(namespace)?;
    let seqno = await_record(session, &access, log, &which, wait).await?;
    let held = access.get(log, seqno, durability);
    let Rationed { value: record, reserved: _reserved, .. } = rationed(held, |record| record.payload.len()).await;
    let record = match (record, &which) {
        // A wait that ran out, or a request for newer records only, is answered: nothing yet.
        (Err(error), _) if error.code() == Code::AboveTail && !wait.is_zero() => return Ok(nothing_yet()),
        (Err(error), Which::Latest { above }) if error.code() == Code::AboveTail && *above > 0 => {
            return Ok(nothing_yet());
        }
        (Ok(record), Which::Latest { above }) if record.seqno <= *above => return Ok(nothing_yet()),
        (record, _) => record?,
    };
    answer(session, log, record, request.headers())
}

fn nothing_yet() -> Response {
    let mut response = hyper::Response::new(Content::whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Waits for a record that is not there yet; returns which one to read.
async fn await_record(session: &Session, access: &Access, log: &str, which: &Which, wait: Duration) -> Result<u64> {
    let (seqno, seen) = match which {
        Which::Seqno(seqno) => (*seqno, seqno - 1),
        Which::Latest { above } => (0, *above),
    };
    if !wait.is_zero() {
        let log = access.log(log, None).await?;
        if log.latest() <= seen {
            let mut stopped = session.stopped.clone();
            tokio::select! {
                _ = timeout(wait, access.growth(&log, seen)) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }
    }
    Ok(seqno)
}

fn answer(session: &Session, log: &str, mut record: Record, headers: &HeaderMap) -> Result<Response> {
    let tag = format!("\"{}\"", record.id);
    let none_match = header(headers, "if-none-match")?;
    let mut response = if none_match.is_some_and(|tags| matches(tags, &tag)) {
        let mut response = hyper::Response::new(Content::whole(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else if accepts(headers, "application/json") {
        let text = serde_json::to_vec(&whole_record(log, &record))
            .map_err(|error| Code::HostInternal.error(format!("the record cannot be written as JSON: {error}")))?;
        response::json(StatusCode::OK, text)
    } else {
        session.activity.sends_raw();
        raw(std::mem::take(&mut record.payload), headers, &tag)?
    };
    let out = response.headers_mut();
    put(out, "millrace-seqno", &record.seqno.to_string());
    put(out, "millrace-id", &record.id.to_string());
    put(out, "millrace-time", &rfc3339(record.hlc));
    if let Some(cause) = id_text(record.cause) {
        put(out, "millrace-cause", &cause);
    }
    put(out, "etag", &tag);
    // A record never changes, but a log can be removed and another have its name: so a copy is asked about each time,
    // which costs no bytes.
    out.insert("cache-control", HeaderValue::from_static("private, no-cache"));
    out.insert("vary", HeaderValue::from_static("accept"));
    Ok(response)
}

/// Whether one of these tags is ours.
fn matches(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

/// A record's bytes, or the part of them that is asked for.
fn raw(payload: Vec<u8>, headers: &HeaderMap, tag: &str) -> Result<Response> {
    let length = payload.len();
    // A part of another record than the client has begun to read would be of no use.
    let same = header(headers, "if-range")?.is_none_or(|other| other == tag);
    let part = match header(headers, "range")?.filter(|_| same).map(|text| range(text, length)) {
        None | Some(Part::Whole) => None,
        Some(Part::Of(part)) => Some(part),
        Some(Part::None) => {
            let error = Code::HttpRangeInvalid.error(format!("the record has {length} bytes"));
            let mut response = response::failure(&error);
            put(response.headers_mut(), "content-range", &format!("bytes */{length}"));
            return Ok(response);
        }
    };
    let mut bytes = Bytes::from(payload);
    if let Some(part) = &part {
        // If a client requests a small part of a long record, only that part is kept.
        bytes = Bytes::copy_from_slice(&bytes[part.clone()]);
    }
    let mut response = hyper::Response::new(Content::whole(bytes));
    if let Some(part) = part {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let text = format!("bytes {}-{}/{}", part.start, part.end - 1, length);
        put(response.headers_mut(), "content-range", &text);
    }
    let out = response.headers_mut();
    out.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    out.insert("accept-ranges", HeaderValue::from_static("bytes"));
    // A record is never treated as a page of this host.
    out.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Ok(response)
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// All of it: the header asks for several parts, or for something that is not known.
    Whole,
    Of(Range<usize>),
    None,
}

/// The part of `length` bytes that a Range header requests.
fn range(text: &str, length: usize) -> Part {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|part| part.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| whole_number(text).map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    let (first, last) = (first.trim(), last.trim());
    let part = match (first, last) {
        ("", last) => match number(last) {
            Some(suffix) if !last.is_empty() => length.saturating_sub(suffix)..length,
            _ => return Part::Whole,
        },
        (first, "") => match number(first) {
            Some(first) => first..length,
            None => return Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(length),
            _ => return Part::Whole,
        },
    };
    if part.start >= part.end { Part::None } else { Part::Of(part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_record() {
        for (text, part) in [
            ("bytes=0-3", Part::Of(0..4)),
            ("bytes=2-", Part::Of(2..10)),
            ("bytes=-3", Part::Of(7..10)),
            ("bytes=-99", Part::Of(0..10)),
            ("bytes=0-99999999999999999999", Part::Whole),
            ("bytes=8-18446744073709551615", Part::Of(8..10)),
            ("bytes=10-", Part::None),
            ("bytes=-0", Part::None),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=3-1", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=1-2", Part::Whole),
            ("bytes=+1-2", Part::Whole),
        ] {
            assert_eq!(range(text, 10), part, "{text}");
        }
        assert_eq!(range("bytes=0-", 0), Part::None);
    }

    #[test]
    fn a_tag_is_found_among_others() {
        assert!(matches("\"a\", W/\"b\"", "\"b\"") && matches("*", "\"b\""));
        assert!(!matches("\"ab\"", "\"b\""));
    }
}
