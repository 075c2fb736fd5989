//! Changes of functions, relays and logs. Code is not sent over HTTP: a deployment and its files belong to one connection, and an HTTP
//! client does not control which connection it uses.

use super::json;
use crate::{
    documents,
    http::{
        response::{self, Response},
        session::Session,
    },
};
use hyper::{Request, StatusCode, body::Incoming};
use millrace_wire::Result;

/// Most bytes of what is asked.
const BODY_MAX_BYTES: usize = 1 << 20;

/// Does what the body asks.
pub(in crate::http) async fn ask(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let (access, text, _reserved) = json(session, namespace, request, BODY_MAX_BYTES).await?;
    let managed = documents::manage(&session.hosted, access, text, None).await?;
    Ok(response::json(StatusCode::OK, managed))
}
