//! Requests about capabilities. The list of those that were issued is a document.

use super::{
    api::json_body,
    response::{self, Response},
    session::Session,
};
use hyper::{Request, StatusCode, body::Incoming};
use millrace_node::secrets::CapabilityAsk;
use millrace_wire::{Code, Result};
use serde_json::json;

/// Most bytes of a request.
const BODY_MAX_BYTES: usize = 64 << 10;

/// The capabilities that were issued.
pub(super) async fn list(session: &Session, namespace: &str, query: &str) -> Result<Response> {
    crate::documents::Query::parse(query)?.finish()?;
    let access = session.access(namespace)?;
    let issued = session.hosted.define(access, |access| access.capabilities()).await?;
    Ok(response::document(StatusCode::OK, &issued))
}

/// Issues a capability, or revokes some.
pub(super) async fn ask(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let (access, body) = json_body(request, BODY_MAX_BYTES, || session.access(namespace)).await?;
    let ask: CapabilityAsk = serde_json::from_slice(&body.bytes)
        .map_err(|error| Code::HttpBodyInvalid.error(format!("the body asks nothing of capabilities: {error}")))?;
    match ask {
        CapabilityAsk::Issue { allow, expires_s, label } => {
            let rules = CapabilityAsk::rules(&allow, expires_s, &label)?;
            let ids: Vec<String> = rules.ids.iter().map(ToString::to_string).collect();
            let token = session.hosted.define(access, move |access| access.issue(&rules)).await?;
            let answer = json!({ "capability": *token.to_text(), "ids": ids });
            Ok(response::document(StatusCode::OK, &answer))
        }
        CapabilityAsk::Revoke { ids } => {
            let ids = CapabilityAsk::ids(&ids)?;
            let revoked = session.hosted.define(access, move |access| access.revoke_capabilities(&ids)).await?;
            Ok(response::document(StatusCode::OK, &json!({ "revoked": revoked })))
        }
    }
}
