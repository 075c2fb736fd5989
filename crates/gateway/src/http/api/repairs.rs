//! Requests about repairs. Their state is a document like others.

use super::{check_encoding, media_type};
use crate::{
    documents::{self, Query, shown},
    http::{
        connection::body,
        response::{self, JSON, Response},
        session::Session,
    },
};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
};
use millrace_wire::{Code, Result};

/// Most bytes of the corrections of one request.
const BODY_MAX_BYTES: usize = 24 << 20;

/// Opens, runs, applies, takes back or gives up a repair, as the body says: the repair as it is then.
pub(in crate::http) async fn ask(session: &Session, namespace: &str, request: Request<Incoming>) -> Result<Response> {
    let (head, body) = request.into_parts();
    Query::parse(head.uri.query().unwrap_or(""))?.finish()?;
    check_encoding(&head.headers)?;
    if media_type(&head.headers)?.as_deref() != Some("application/json") {
        let kind = media_type(&head.headers)?.unwrap_or_else(|| "nothing".into());
        let error = format!("the body is of type '{}', not application/json", shown(&kind));
        return Err(Code::HttpTypeUnsupported.error(error));
    }
    let door = session.door(namespace)?;
    let body = body::read(body, BODY_MAX_BYTES).await?;
    let text = std::str::from_utf8(&body.bytes).map_err(|_| Code::HttpBodyInvalid.error("the body is not UTF-8"))?;
    let repair = documents::ask_repair(&session.hosted, door, text).await?;
    Ok(response::typed(StatusCode::OK, JSON, Bytes::from(repair)))
}
