//! The dashboard's pages. They contain nothing of a namespace and need no capability: a page asks for data as any other program does.

use crate::http::{
    mounts::Mount,
    response::{self, Response},
};
use hyper::{
    HeaderMap, StatusCode, Uri,
    header::{ACCEPT, HeaderValue, LOCATION, VARY},
};
use millrace_web::File;
use millrace_wire::Result;
use tokio::sync::Semaphore;

/// Browsers get few files at once, and each is in memory already.
const AT_ONCE: usize = 1024;

/// The files below `/ui/`, and the way there from `/`.
pub(in crate::http) static MOUNT: Mount = Mount {
    name: "dashboard",
    claims: is_claimed,
    methods: "GET, HEAD",
    body_max_bytes: 0,
    at_once: Semaphore::const_new(AT_ONCE),
    answer: |_, request| Box::pin(async move { answer(request.uri()) }),
};

/// Where the dashboard is.
const HOME: &str = "/ui/";

/// A page takes code and data from this host only, is in no other page, and turns no text into code: records are anybody's text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; \
                      trusted-types millrace";

/// The file of the dashboard that a path names: the rest of the path below `/ui`.
pub(in crate::http) fn file_of(path: &str) -> Option<&str> {
    match path.strip_prefix("/ui")? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

fn is_claimed(uri: &Uri, headers: &HeaderMap) -> bool {
    let path = uri.path();
    file_of(path).is_some() || path == "/" && is_wanted(headers)
}

fn answer(uri: &Uri) -> Result<Response> {
    file_of(uri.path()).map_or_else(redirect, |file| Ok(show(file)))
}

/// Whether a browser asks, which shows pages.
fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|types| types.to_str().ok()).is_some_and(|types| types.contains("text/html"))
}

/// Leads a browser from `/` to the dashboard.
pub(in crate::http) fn redirect() -> Result<Response> {
    let text = "<!doctype html><title>Millrace</title><a href=\"/ui/\">The dashboard</a>\n";
    let mut response =
        response::typed(StatusCode::SEE_OTHER, HeaderValue::from_static("text/html; charset=utf-8"), text);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(HOME));
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    protect(response.headers_mut());
    Ok(response)
}

/// A file, or the page for every other address: the page shows the screen that its address names.
pub(in crate::http) fn show(file: &str) -> Response {
    let File { bytes, kind, is_fixed } = millrace_web::file(file).unwrap_or_else(millrace_web::page);
    let mut response = response::typed(StatusCode::OK, HeaderValue::from_static(kind), bytes);
    let headers = response.headers_mut();
    let kept = if is_fixed { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert("cache-control", HeaderValue::from_static(kept));
    protect(headers);
    response
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
