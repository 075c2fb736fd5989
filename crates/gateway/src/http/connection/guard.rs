//! Refuses web pages that are open in a browser on this machine: a page may send requests to any address, and its author can make a name
//! resolve to this machine. So a request must name this host by a name of this machine, and a request from a page must come from a page of
//! this host.

use crate::http::api::dashboard;
use hyper::{
    HeaderMap, Method, Request, Uri, Version,
    header::{HOST, HeaderValue, ORIGIN},
};
use millrace_wire::{Code, Defence, Error, Result};
use std::net::IpAddr;

/// The origin of a request, according to the browser.
const SITE: &str = "sec-fetch-site";

/// Refuses requests that a web page of another origin could have caused.
///
/// The dashboard's pages contain nothing of a namespace, so a link on another page may open them.
///
/// Over TLS a request may use any name of the host, because it needs a capability, which no page has. A page `is_known` if the host is
/// configured to answer its origin.
pub(in crate::http) fn check<B>(request: &Request<B>, over_tls: bool, is_known: bool) -> Result<()> {
    let headers = request.headers();
    let host = host(headers, request.uri(), request.version())?;
    if let Some(host) = host
        && !over_tls
        && !is_this_machine(host)
        && Defence::HostName.stands()
    {
        return Err(Code::HttpHostRefused.error(format!("'{}' is not a loopback name or address", shown(host))));
    }
    if is_known || opens_dashboard(request) || !Defence::Origin.stands() {
        return Ok(());
    }
    // Browsers report the site of every request, even of those without an Origin: a page of this host, or none. A page on another port of
    // this machine is `same-site`.
    if let Some(site) = headers.get(SITE)
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        let site = shown(&String::from_utf8_lossy(site.as_bytes()));
        return Err(Code::HttpOriginRefused.error(format!("the browser reports the request as '{site}'")));
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if is_own(origin, host.unwrap_or_default()) => Ok(()),
        (Some(origin), _) => {
            let origin = shown(&String::from_utf8_lossy(origin.as_bytes()));
            Err(Code::HttpOriginRefused.error(format!("the request comes from '{origin}'")))
        }
    }
}

/// Whether a browser opens a page of the dashboard in a tab, as it does for a link. A request that reads or changes data is never one:
/// only these paths count, and pages cannot set these headers.
fn opens_dashboard<B>(request: &Request<B>) -> bool {
    let said = |name: &str, word: &str| request.headers().get(name).is_some_and(|value| value == word);
    let path = request.uri().path();
    request.method() == Method::GET
        && (path == "/" || dashboard::file_of(path).is_some())
        && said("sec-fetch-mode", "navigate")
        && said("sec-fetch-dest", "document")
        && !request.headers().contains_key(ORIGIN)
}

/// The host that the request names: HTTP/1.1 requires exactly one.
fn host<'r>(headers: &'r HeaderMap, uri: &'r Uri, version: Version) -> Result<Option<&'r str>> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_10 => None,
        // The pseudo-header `:authority` replaces it.
        (None, _) if version == Version::HTTP_2 && uri.authority().is_some() => None,
        (None, _) => return Err(malformed("the request has no Host header")),
        (Some(host), None) => Some(host.to_str().map_err(|_| malformed("the Host header is not text"))?),
        (Some(_), Some(_)) => return Err(malformed("the request has more than one Host header")),
    };
    // A whole address in the request line goes before the header.
    Ok(uri.authority().map(|authority| authority.as_str()).or(host))
}

fn is_own(origin: &HeaderValue, host: &str) -> bool {
    let origin = origin.as_bytes().strip_prefix(b"http://");
    origin.is_some_and(|origin| !host.is_empty() && origin.eq_ignore_ascii_case(host.as_bytes()))
}

/// Whether this is `localhost` or a loopback address, with a port or without.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if is_port(port) => address,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    let lower = name.trim_end_matches('.').to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn malformed(detail: &str) -> Error {
    Code::HttpMalformed.error(detail)
}

fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(headers: &[(&str, &str)]) -> Option<Code> {
        let mut request = Request::builder().uri("/v1/namespaces");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap(), false, false).err().map(|error| error.code())
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in
            ["localhost", "LOCALHOST:7070", "127.0.0.1:7070", "127.9.9.9", "[::1]:7070", "[::1]", "a.localhost:1"]
        {
            assert_eq!(refusal(&[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]:1",
            "",
            "[::1",
            "a:b",
        ] {
            assert_eq!(refusal(&[("host", host)]), Some(Code::HttpHostRefused), "{host}");
        }
        assert_eq!(refusal(&[]), Some(Code::HttpMalformed));
        assert_eq!(refusal(&[("host", "localhost"), ("host", "localhost")]), Some(Code::HttpMalformed));
        let absolute = Request::builder().uri("http://evil.example/").header("host", "localhost").body(()).unwrap();
        assert_eq!(check(&absolute, false, false).unwrap_err().code(), Code::HttpHostRefused);
    }

    #[test]
    fn a_link_on_another_page_opens_the_dashboard_and_nothing_else() {
        let opens = |method: Method, path: &str, mode: &str, dest: &str, host: &str| {
            let request = Request::builder().method(method).uri(path).header("host", host);
            let request = request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", mode);
            check(&request.header("sec-fetch-dest", dest).body(()).unwrap(), false, false).is_ok()
        };
        for path in ["/", "/ui", "/ui/", "/ui/farm/logs/raw"] {
            assert!(opens(Method::GET, path, "navigate", "document", "localhost:7070"), "{path}");
            for (method, mode, dest, host) in [
                (Method::POST, "navigate", "document", "localhost:7070"),
                (Method::GET, "no-cors", "document", "localhost:7070"),
                (Method::GET, "navigate", "iframe", "localhost:7070"),
                (Method::GET, "navigate", "document", "evil.example"),
            ] {
                assert!(!opens(method, path, mode, dest, host), "{path} {mode} {dest} {host}");
            }
        }
        for path in ["/v1/namespaces", "/v1/namespaces/farm/logs", "/metrics", "/openapi.json", "/uix", "/ui/../v1"] {
            let is_page = path.starts_with("/ui/");
            assert_eq!(opens(Method::GET, path, "navigate", "document", "localhost:7070"), is_page, "{path}");
        }
    }

    #[test]
    fn only_pages_of_this_host_may_ask() {
        let of = |origin| refusal(&[("host", "localhost:7070"), ("origin", origin)]);
        assert_eq!(of("http://localhost:7070"), None);
        for origin in ["http://localhost:7071", "https://localhost:7070", "http://evil.example", "null", ""] {
            assert_eq!(of(origin), Some(Code::HttpOriginRefused), "{origin}");
        }
        // An image or a link needs no Origin.
        let of = |site| refusal(&[("host", "localhost:7070"), ("sec-fetch-site", site)]);
        assert!(of("same-origin").is_none() && of("none").is_none());
        for site in ["cross-site", "same-site", "", "Same-Origin, none"] {
            assert_eq!(of(site), Some(Code::HttpOriginRefused), "{site}");
        }
    }
}
