//! Pages of other origins that the host is configured to answer (`--cors-origin`). They have no rights of their own: a request needs a capability,
//! as the connection that a browser makes says nothing about the page.

use crate::http::response::Content;
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN,
        VARY,
    },
};
use millrace_wire::{Code, Error, Result};
use std::{fmt, str::FromStr};

/// Most origins of one host.
pub const ORIGINS_MAX: usize = 64;

/// Where a page comes from: `https://app.example`, `http://localhost:3000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
            Code::ValueInvalid
                .error(format!("'{shown}' is not an origin, such as https://app.example or http://localhost:3000"))
        };
        let (scheme, host) = text.split_once("://").ok_or_else(wrong)?;
        let is_host = !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:[]".contains(&byte));
        if !matches!(scheme, "http" | "https") || !is_host {
            return Err(wrong());
        }
        HeaderValue::from_str(text).map(Self).map_err(|_| wrong())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0.as_bytes()))
    }
}

/// The origin of the page that a request comes from, if it is one of these.
pub(in crate::http) fn of(headers: &HeaderMap, origins: &[Origin]) -> Option<Origin> {
    let mut shown = headers.get_all(ORIGIN).iter();
    let (Some(origin), None) = (shown.next(), shown.next()) else { return None };
    origins.iter().find(|known| known.0 == origin).cloned()
}

/// Whether a browser asks what a page may do.
pub(in crate::http) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Methods, headers of requests and headers of answers that a page may use: all of the API's that browsers do not allow by themselves.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const REQUEST_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id, range, millrace-cause, millrace-durability, \
                               millrace-fence, millrace-function, millrace-wait";
const ANSWER_HEADERS: &str = "retry-after, content-range, location, millrace-cause, millrace-id, millrace-incarnation, millrace-index, \
                              millrace-next, millrace-run, millrace-seqno, millrace-time";

/// The answer to a preflight request of a browser.
pub(in crate::http) fn preflight() -> hyper::Response<Content> {
    let mut response = hyper::Response::new(Content::whole(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Lets a page of this origin read the answer.
pub(in crate::http) fn allow(headers: &mut HeaderMap, Origin(origin): Origin) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ANSWER_HEADERS));
    headers.append(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_told_from_what_is_none() {
        for text in ["https://app.example", "http://localhost:3000", "http://[::1]:80"] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), text);
        }
        for text in
            ["", "*", "null", "app.example", "https://", "https://app.example/", "ftp://a", "https://A", "https://a b"]
        {
            assert_eq!(text.parse::<Origin>().unwrap_err().code(), Code::ValueInvalid, "{text}");
        }
    }

    #[test]
    fn pages_may_use_every_header_of_the_api() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/api");
        let source: String = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        let named = |before: &str| -> std::collections::BTreeSet<String> {
            let after = source.split(before).skip(1);
            after.map(|rest| format!("millrace-{}", rest.split('"').next().unwrap())).collect()
        };
        let (asked, answered) = (named("header(headers, \"millrace-"), named("\"millrace-"));
        assert!(asked.len() > 3 && answered.len() > asked.len(), "{asked:?} {answered:?}");
        for (names, allowed) in
            [(&asked, REQUEST_HEADERS), (&answered.difference(&asked).cloned().collect(), ANSWER_HEADERS)]
        {
            for name in names {
                assert!(allowed.split(", ").any(|header| header == name), "{name}");
            }
        }
    }

    #[test]
    fn only_known_origins_are_answered() {
        let known = ["https://app.example".parse::<Origin>().unwrap()];
        let from = |origins: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for origin in origins {
                headers.append(ORIGIN, HeaderValue::from_static(origin));
            }
            of(&headers, &known)
        };
        assert_eq!(from(&["https://app.example"]), Some(known[0].clone()));
        for other in [&[][..], &["https://app.example.evil"], &["http://app.example"], &["https://app.example", "null"]]
        {
            assert_eq!(from(other), None, "{other:?}");
        }
    }
}
