//! Links to the dashboard that are valid once: the user who runs the host gets a code, and a page exchanges it for a capability.

use super::{
    api::json_body,
    response::{self, Response},
    session::Session,
};
use hyper::{Request, StatusCode, body::Incoming};
use millrace_node::{Name, secrets::random_id};
use millrace_wire::{Code, Hex, Result};
use serde::Deserialize;
use serde_json::json;
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a code is valid.
const VALID: Duration = Duration::from_secs(60);
/// Most codes that are valid at once; of more, the oldest end.
const CODES_MAX: usize = 16;
/// How long the capability of a page is valid.
const SESSION: Duration = Duration::from_secs(12 * 3600);
/// Most bytes of a request.
const BODY_MAX_BYTES: usize = 1024;

/// The codes that were given out and not used.
#[derive(Default)]
pub(crate) struct Codes(Mutex<VecDeque<(String, Name, Instant)>>);

impl Codes {
    fn issue(&self, namespace: &Name, now: Instant) -> Result<String> {
        let code = format!("{}{}", Hex(&random_id()?), Hex(&random_id()?));
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() == CODES_MAX {
            codes.pop_front();
        }
        codes.push_back((code.clone(), namespace.clone(), now));
        Ok(code)
    }

    /// Uses a code up.
    fn take(&self, code: &str, namespace: &str, now: Instant) -> Result<()> {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(.., at)| now.saturating_duration_since(*at) < VALID);
        let found = codes.iter().position(|(known, of, _)| is_same(known, code) && **of == *namespace);
        let refused = || Code::LoginCodeRefused.error("the code of the link is not valid here, or no longer");
        found.and_then(|at| codes.remove(at)).map(drop).ok_or_else(refused)
    }
}

/// Compares two texts in a time that does not depend on where they differ.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let differing = |sum, (a, b): (u8, u8)| sum | (a ^ b);
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, differing) == 0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    code: Option<String>,
}

/// Without a code in the body, the owner gets one; with a code, its bearer gets a capability.
pub(super) async fn ask(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let body = json_body(request, BODY_MAX_BYTES, || Ok(())).await?.1;
    let login: Login = serde_json::from_slice(&body.bytes)
        .map_err(|error| Code::HttpBodyInvalid.error(format!("the body does not describe a login: {error}")))?;
    let codes = &session.hosted.codes;
    let Some(code) = login.code else {
        let access = session.access(namespace)?;
        access.is_owner()?;
        let code = codes.issue(access.served().name(), Instant::now())?;
        let answer = json!({ "code": code, "expires_s": VALID.as_secs() });
        return Ok(response::document(StatusCode::OK, &answer));
    };
    codes.take(&code, namespace, Instant::now())?;
    let access = session.owners_access(namespace)?;
    let token = session.hosted.define(access, move |access| access.issue_session(SESSION)).await?;
    let answer = json!({ "capability": *token.to_text(), "expires_s": SESSION.as_secs() });
    Ok(response::document(StatusCode::OK, &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_valid_once_for_a_minute_and_for_its_namespace() {
        let (codes, now) = (Codes::default(), Instant::now());
        let farm: Name = "farm".parse().unwrap();
        let refused = |found: Result<()>| found.unwrap_err().code() == Code::LoginCodeRefused;
        let code = codes.issue(&farm, now).unwrap();
        assert_eq!(code.len(), 32);
        assert!(refused(codes.take(&code, "barn", now)) && refused(codes.take(&code[1..], "farm", now)));
        codes.take(&code, "farm", now + Duration::from_secs(59)).unwrap();
        assert!(refused(codes.take(&code, "farm", now)), "it was used");
        let code = codes.issue(&farm, now).unwrap();
        assert!(refused(codes.take(&code, "farm", now + VALID)));
        let code = codes.issue(&farm, now).unwrap();
        (0..CODES_MAX).for_each(|_| drop(codes.issue(&farm, now).unwrap()));
        assert!(refused(codes.take(&code, "farm", now)), "it had to make room");
    }
}
